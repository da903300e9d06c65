#!/usr/bin/env bats
# Schedules: the same bits under all of them, limits of memory, and their gains.
load helper

samples=16
setup() { tmp=$BATS_TEST_TMPDIR; }
schedules='1f1b gpipe interleaved zero-bubble none'

# The loss log of 8 steps: log DOCUMENT FILE
log() {
	dlb-run -q --steps 8 "${digits[@]}" --optimizer momentum --lr 0.02 --loss-log "$2" "$1" >"$tmp/out.json"
}

# bats test_tags=slow
@test "loss logs are the same bytes under every schedule on 1, 2 and 3 nodes, whatever the placement" {
	plan cpu:1 -m 4 >"$tmp/one.json"
	log "$tmp/one.json" "$tmp/truth"
	[ "$(wc -l <"$tmp/truth")" -eq 8 ]
	for schedule in $schedules; do
		for how in 'cpu:1' 'cpu:2' 'cpu:3 -a even' 'cpu:2 -a random --seed 3' 'cpu:3 -a random --seed 5'; do
			chosen || continue
			echo "$schedule $how"
			# shellcheck disable=SC2086
			plan $how --schedule "$schedule" -m 4 >"$tmp/doc.json"
			[ "$(jq -r .plan.schedule "$tmp/doc.json")" = "$schedule" ]
			log "$tmp/doc.json" "$tmp/log"
			cmp "$tmp/truth" "$tmp/log"
		done
	done
}

# bats test_tags=slow
@test "plans of every schedule are valid, and kept by the next round" {
	for schedule in $schedules; do
		plan cpu:2 --schedule "$schedule" -m 4 >"$tmp/doc.json"
		validates "$tmp/doc.json"
		dlb-place "$tmp/doc.json" >"$tmp/again.json"
		[ "$(jq -c '.plan | [.schedule, .micro_batches, .in_flight]' "$tmp/again.json")" = \
			"$(jq -c '.plan | [.schedule, .micro_batches, .in_flight]' "$tmp/doc.json")" ]
	done
}

# bats test_tags=slow
@test "less memory: fewer micro-batches under way, then a refusal with numbers" {
	plan cpu:2 -a even --schedule zero-bubble -m 8 >"$tmp/free.json"
	peak=$(jq '[.plan.nodes[].peak_bytes] | max' "$tmp/free.json")
	plan cpu:2 -a even --schedule none -m 8 >"$tmp/least.json"
	least=$(jq '[.plan.nodes[].peak_bytes] | max' "$tmp/least.json")
	[ "$(jq -n "$least < $peak")" = true ]
	middle=$(jq -n "$least + ($peak - $least) / 12 | floor")	# too little for all micro-batches of the schedule
	jq -c "del(.plan) | .cluster.nodes[].memory_bytes = $middle" "$tmp/free.json" | dlb-costmodel >"$tmp/tight.json"
	dlb-place -a even --schedule zero-bubble -m 8 "$tmp/tight.json" >"$tmp/fits.json"
	[ "$(jq "[.plan.nodes[].peak_bytes] | max <= $middle" "$tmp/fits.json")" = true ]
	[ "$(jq .plan.in_flight "$tmp/fits.json")" -ge 1 ]
	[ "$(jq --slurpfile f "$tmp/free.json" '.plan.value_s >= $f[0].plan.value_s' "$tmp/fits.json")" = true ]
	run -1 --separate-stderr dlb-place -a even --schedule gpipe -m 8 "$tmp/tight.json"
	[[ $stderr == *'needs '*' of '* ]]
	[ "${#stderr_lines[@]}" -eq 1 ]
}

@test "an unknown schedule is a usage error that names those there are" {
	run -2 --separate-stderr dlb-place --schedule zero "$tmp/none"
	[[ $stderr == *"no schedule 'zero'; there are auto, 1f1b, gpipe, interleaved, zero-bubble, none and async"* ]]
}

# bats test_tags=slow
@test "interleaved deals contiguous chunks to the nodes in turn, and trains on them" {
	plan cpu:1 -m 4 >"$tmp/one.json"
	log "$tmp/one.json" "$tmp/truth"
	for v in 2 3; do
		plan cpu:2 -a interleaved --chunks "$v" --schedule interleaved -m 4 >"$tmp/doc.json"
		validates "$tmp/doc.json"
		# stages of the forward order: as many contiguous parts per node as chunks
		runs=$(jq '.plan.placement as $p | [.graph.ops[] | select(.phase == "forward") | $p[.id | tostring]] |
			reduce .[] as $n ([]; if .[-1] == $n then . else . + [$n] end) | length' "$tmp/doc.json")
		echo "chunks $v: $runs stages"
		[ "$runs" -ge 3 ]
		[ "$(jq .plan.chunks "$tmp/doc.json")" -eq "$v" ]
		log "$tmp/doc.json" "$tmp/log"
		cmp "$tmp/truth" "$tmp/log"
	done
	dlb-place "$tmp/doc.json" | jq -e '.plan.chunks == 3 and .plan.schedule == "interleaved"'
}

@test "zero-bubble also tries parts dealt in turn, and its plan is not longer than theirs" {
	plan cpu:2 -m 4 >"$tmp/cost.json"
	dlb-place -v --schedule zero-bubble -m 4 "$tmp/cost.json" 2>"$tmp/said" >"$tmp/doc.json"
	grep -q interleaved "$tmp/said"
	dlb-place -q -a interleaved --schedule zero-bubble -m 4 "$tmp/cost.json" >"$tmp/parts.json"
	jq -e --slurpfile parts "$tmp/parts.json" '.plan.value_s <= $parts[0].plan.value_s * 1.000001' "$tmp/doc.json"
}

# bats test_tags=slow
@test "auto takes the schedule and number of micro-batches whose step is least" {
	plan cpu:2 --schedule auto >"$tmp/doc.json"
	validates "$tmp/doc.json"
	jq -e '.plan | (.schedules_tried | length) >= 20 and ([.schedules_tried[].value_s | values] | min) as $least |
		.value_s <= $least * 1.000001' "$tmp/doc.json"
	jq -e '.plan as $p | any($p.schedules_tried[]; .schedule == $p.schedule and .micro_batches == $p.micro_batches)' "$tmp/doc.json"
	plan cpu:2 --schedule auto -m 4 >"$tmp/four.json"
	jq -e '.plan.micro_batches == 4 and all(.plan.schedules_tried[]; .micro_batches == 4)' "$tmp/four.json"
	for schedule in $schedules; do
		plan cpu:2 --schedule "$schedule" -m 4 >"$tmp/this.json"
		jq -n -e --slurpfile a "$tmp/four.json" --slurpfile b "$tmp/this.json" '$a[0].plan.value_s <= $b[0].plan.value_s * 1.02'
	done
	dlb-place "$tmp/doc.json" >"$tmp/again.json"		# the choice is kept
	[ "$(jq -c '.plan | [.schedule, .micro_batches]' "$tmp/again.json")" = "$(jq -c '.plan | [.schedule, .micro_batches]' "$tmp/doc.json")" ]
}

# bats test_tags=slow
@test "auto under little memory: what does not fit is not taken, and where nothing does it says what is lacking" {
	dlb-profile --analytic --batch 8 "$model" | dlb-costmodel -c cpu:2 | dlb-place --schedule none -m 8 >"$tmp/least.json"
	most=$(jq '[.plan.nodes[].peak_bytes] | max | . * 1.02 | floor' "$tmp/least.json")
	jq -c "del(.plan) | .cluster.nodes[].memory_bytes = $most" "$tmp/least.json" | dlb-costmodel >"$tmp/tight.json"
	dlb-place --schedule auto "$tmp/tight.json" >"$tmp/doc.json"
	jq -e "([.plan.nodes[].peak_bytes] | max) <= $most" "$tmp/doc.json"
	jq -e 'any(.plan.schedules_tried[]; has("value_s") | not)' "$tmp/doc.json"
	jq -c "del(.plan) | .cluster.nodes[].memory_bytes = 10000" "$tmp/least.json" | dlb-costmodel >"$tmp/none.json"
	run -1 --separate-stderr dlb-place --schedule auto "$tmp/none.json"
	[[ $stderr == *'no plan fits'*'needs '* ]]
	# fits only with one sample per micro-batch: a batch that is no power of two, and one of more samples than are tried otherwise
	for batch in 14 44; do
		dlb-profile --analytic --batch $batch "$model" | dlb-costmodel -c cpu:1 >"$tmp/costed.json"
		most=$(dlb-place --schedule none -m $batch "$tmp/costed.json" | jq '.plan.nodes[0].peak_bytes')
		jq -c ".cluster.nodes[].memory_bytes = $most" "$tmp/costed.json" | dlb-costmodel | dlb-place --schedule auto >"$tmp/doc.json"
		jq -e ".plan.micro_batches == $batch and .plan.nodes[0].peak_bytes <= $most" "$tmp/doc.json"
	done
	# if several fit, a number between powers of two is used when it is faster
	dlb-profile --analytic --batch 12 "$model" | dlb-costmodel -c cpu:1 >"$tmp/costed.json"
	most=$(dlb-place --schedule none -m 3 "$tmp/costed.json" | jq '.plan.nodes[0].peak_bytes')
	jq -c ".cluster.nodes[].memory_bytes = $most" "$tmp/costed.json" | dlb-costmodel | dlb-place --schedule auto | jq -e '.plan.micro_batches == 3'
}

@test "the report says how much of the messages was hidden behind computing" {
	plan cpu:2 -a even -m 4 >"$tmp/doc.json"
	dlb-run -q --steps 4 "${digits[@]}" "$tmp/doc.json" >"$tmp/run.json"
	validates "$tmp/run.json"
	dlb-run -q --dry-run --data random "$tmp/doc.json" >"$tmp/dry.json"
	validates "$tmp/dry.json"
	for r in run dry; do
		jq -e '.report.communication | .bytes > 0 and .time_s >= 0 and .hidden_s >= 0 and .hidden_s <= .time_s' "$tmp/$r.json"
	done
	[ "$(jq .report.communication.bytes "$tmp/run.json")" = "$(jq .report.communication.bytes "$tmp/dry.json")" ]
	jq -e '.report.communication | .in_place_bytes >= 0 and .in_place_bytes <= .bytes' "$tmp/run.json"
	jq -e '.report.communication | has("in_place_bytes") | not' "$tmp/dry.json"
	dlb-view "$tmp/dry.json" | grep -E '^  messages .* while computing$'
	# Links that need no core hide messages that no node waits for; copies by a core hide nothing.
	jq -e '.report.communication.hidden_s == 0' "$tmp/dry.json"
	jq -c 'del(.plan) | .cluster.links[].overlap = true' "$tmp/doc.json" | dlb-costmodel | dlb-place -a even -m 4 >"$tmp/apart.json"
	dlb-run -q --dry-run --data random "$tmp/apart.json" | jq -e '.report.communication.hidden_s > 0'
	plan cpu:1 -m 4 | dlb-run -q --dry-run --data random | jq -e '.report | has("communication") | not'
}

# bats test_tags=slow
@test "a tensor that both nodes of a host read lies in one place: nothing is copied, and the bits are those of one node" {
	plan cpu:2 -a even -m 4 >"$tmp/even.json"
	# By hand: node 1 pools the output of node 0's convolution, which node 0 reads again in its backward pass.
	jq -c '.plan.placement = ([.graph.ops[] | {key: (.id | tostring), value: (if .name | test("^/(5|6|7)/|^loss|^7[.]|plain") then 1 else 0 end)}] | from_entries)' \
		"$tmp/even.json" >"$tmp/doc.json"
	dlb-run --print-program --steps 1 "${digits[@]}" "$tmp/doc.json" >"$tmp/program"
	[ "$(grep -c 'SEND .*/4/Relu_output_0. .*zero-copy' "$tmp/program")" -eq 4 ]
	shared=$(sed -n 's/.* POST .* zero-copy at .*, \([0-9]*\) bytes$/\1/p' "$tmp/program" | jq -s add)
	dlb-run -q --steps 4 "${digits[@]}" "$tmp/doc.json" >"$tmp/run.json"	# after so many steps the faster way is chosen
	jq -e ".report.communication.in_place_bytes >= $shared and $shared > 0" "$tmp/run.json"
	plan cpu:1 -m 4 >"$tmp/one.json"
	log "$tmp/one.json" "$tmp/truth"
	log "$tmp/doc.json" "$tmp/log"
	cmp "$tmp/truth" "$tmp/log"
	(	# without shared memory it is sent
		ulimit -v 20000000
		log "$tmp/doc.json" "$tmp/log"
	)
	cmp "$tmp/truth" "$tmp/log"
	jq -e '.report.communication.in_place_bytes == 0' "$tmp/out.json"
	plan cpu:2 -a even -m 4 --in-place off >"$tmp/off.json"
	jq -c --slurpfile p "$tmp/doc.json" '.plan.placement = $p[0].plan.placement' "$tmp/off.json" >"$tmp/copied.json"
	dlb-run --print-program --steps 1 "${digits[@]}" "$tmp/copied.json" >"$tmp/program"
	run ! grep -q zero-copy "$tmp/program"
	log "$tmp/copied.json" "$tmp/log"
	cmp "$tmp/truth" "$tmp/log"
	# asynchronous, over many steps in which both ways are tried; a tensor that two other nodes read
	for how in 'cpu:2 -a even' 'cpu:3 -a random --seed 2' 'cpu:4 -a random --seed 6'; do
		# shellcheck disable=SC2086
		plan $how --schedule async --staleness none -m 2 >"$tmp/on.json"
		# shellcheck disable=SC2086
		plan $how --schedule async --staleness none -m 2 --in-place off >"$tmp/off.json"
		for x in on off; do
			dlb-run --print-program --steps 1 "${digits[@]}" "$tmp/$x.json" >"$tmp/program"
			[ $x = off ] || grep -q 'SEND .*zero-copy' "$tmp/program"
			dlb-run -q --steps 40 "${digits[@]}" --optimizer momentum --lr 0.02 --loss-log "$tmp/$x" "$tmp/$x.json" >"$tmp/out.json"
		done
		cmp "$tmp/on" "$tmp/off"
	done
}

# bats test_tags=slow
@test "zero-bubble idles less than 1f1b, on 2 and 4 nodes, simulated" {
	gpt_and_text
	dlb-profile -q --analytic --batch 16 "$gpt" >"$tmp/gpt.json"
	for n in 2 4; do
		dlb-costmodel -q -c "cpu:$n" "$tmp/gpt.json" >"$tmp/costed.json"
		for M in 2 4 8; do
			for s in 1f1b zero-bubble; do
				dlb-place -q -a proportional --schedule $s -m $M "$tmp/costed.json" |
					jq '.plan | 1 - ([.nodes[].busy_s] | add) / (.nodes | length) / .value_s' >"$tmp/$s"
			done
			echo "$n nodes, M = $M: 1f1b $(cat "$tmp/1f1b"), zero-bubble $(cat "$tmp/zero-bubble")"
			jq -n -e --slurpfile a "$tmp/zero-bubble" --slurpfile b "$tmp/1f1b" '$a[0] < $b[0]'
		done
	done
}
