#!/usr/bin/env bats
# Steps that follow each other without a flush: results that depend on no late weight equal the synchronous run bit for bit,
# every rule is repeatable, the pipeline is drained where required, and impossible settings are refused in one line.
load helper

steps=12 samples=16 place=(--optimizer momentum)
setup() { tmp=$BATS_TEST_TMPDIR; }

@test "on one node nothing is late: the losses of the synchronous run" {
	plan cpu:1 -m 4 >"$tmp/sync.json"
	plan cpu:1 -m 4 --schedule async >"$tmp/async.json"
	validates "$tmp/async.json"
	[ "$(losses "$tmp/sync.json")" = "$(losses "$tmp/async.json")" ]
}

# bats test_tags=slow
@test "every rule repeats itself bit for bit, and no two are the same" {
	for rule in stash 2bw predict none; do
		plan cpu:2 -a even -m 4 --schedule async --staleness "$rule" >"$tmp/doc.json"
		[ "$(jq -r .plan.staleness "$tmp/doc.json")" = "$rule" ]
		first=$(losses "$tmp/doc.json")
		[ "$first" = "$(losses "$tmp/doc.json")" ]
		echo "$first" >>"$tmp/all"
	done
	[ "$(sort -u "$tmp/all" | wc -l)" -eq 4 ]
}

# bats test_tags=slow
@test "2bw where two versions are enough, else stash" {
	plan cpu:4 -a even -m 4 --schedule async >"$tmp/4.json"
	plan cpu:4 -a even -m 1 --schedule async >"$tmp/1.json"
	[ "$(jq -r .plan.staleness "$tmp/4.json" "$tmp/1.json" | xargs)" = '2bw stash' ]
}

@test "predicted steps are shorter than those of the synchronous schedules" {
	for s in gpipe 1f1b async; do
		plan cpu:4 -a proportional -m 4 --schedule "$s" >"$tmp/$s.json"
	done
	run -0 jq -s '.[2].plan.value_s < .[0].plan.value_s and .[2].plan.value_s < .[1].plan.value_s' "$tmp/gpipe.json" "$tmp/1f1b.json" "$tmp/async.json"
	[ "$output" = true ]
}

@test "a checkpoint drains the pipeline; the run goes on from it" {
	plan cpu:2 -a even -m 4 --schedule async >"$tmp/doc.json"
	losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --checkpoint-every 5 --loss-log "$tmp/log" >/dev/null
	losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" >/dev/null
	[ "$(wc -l <"$tmp/log")" -eq 24 ]
}

@test "clipped on one node: the losses of the synchronous run" {
	for c in 0.3 100; do
		plan cpu:1 -m 4 --clip-norm "$c" >"$tmp/sync.json"
		plan cpu:1 -m 4 --schedule async --clip-norm "$c" >"$tmp/async.json"
		losses "$tmp/sync.json" --clip-norm "$c" >>"$tmp/all"
		[ "$(tail -n 1 "$tmp/all")" = "$(losses "$tmp/async.json" --clip-norm "$c")" ]
	done
	[ "$(sort -u "$tmp/all" | wc -l)" -eq 2 ]
}

# bats test_tags=slow
@test "clipped by the norm of all nodes: by 2bw the same bits wherever the ops stand" {
	plan cpu:2 -a even -m 4 --schedule async --staleness 2bw --clip-norm 0.3 >"$tmp/doc.json"
	truth=$(losses "$tmp/doc.json" --clip-norm 0.3)
	for how in 'cpu:2 -a proportional -m 4' 'cpu:3 -a even -m 4'; do
		# shellcheck disable=SC2086
		plan ${how% -a*} -a ${how#*-a } --schedule async --staleness 2bw --clip-norm 0.3 >"$tmp/doc.json"
		[ "$(losses "$tmp/doc.json" --clip-norm 0.3)" = "$truth" ]
	done
	# with the option alone the programs are compiled again
	plan cpu:2 -a even -m 4 --schedule async --staleness 2bw >"$tmp/doc.json"
	[ "$(losses "$tmp/doc.json" --clip-norm 0.3)" = "$truth" ]
}

# near LOSSES LOSSES: equal up to rounding by another order of sums
near() {
	jq -en --argjson a "$1" --argjson b "$2" '[$a, $b] | transpose | all((.[0] - .[1] | fabs) <= 1e-6 * .[1])' >/dev/null || {
		printf '%s\n' "$1" "$2"
		return 1
	}
}

# bats test_tags=slow
@test "replicas: the losses of one asynchronous pipeline with the whole batch, by every rule, clipped or not" {
	for clip in 0 0.3; do
		for rule in stash 2bw predict none; do
			chosen || continue
			echo "$rule $clip"
			plan cpu:2 -a even -m 4 --schedule async --staleness "$rule" --clip-norm "$clip" >"$tmp/one.json"
			plan cpu:4 -a even -m 4 --replicas 2 --schedule async --staleness "$rule" --clip-norm "$clip" >"$tmp/two.json"
			validates "$tmp/two.json"
			near "$(losses "$tmp/one.json" --clip-norm "$clip")" "$(losses "$tmp/two.json" --clip-norm "$clip")"
		done
	done
	# replicas of one node each: no weight is late
	plan cpu:2 -m 4 --replicas 2 >"$tmp/sync.json"
	plan cpu:2 -m 4 --replicas 2 --schedule async >"$tmp/async.json"
	[ "$(losses "$tmp/sync.json")" = "$(losses "$tmp/async.json")" ]
}

# bats test_tags=slow
@test "replicas: the same bits twice by every algorithm, compressed or not, whoever reads" {
	plan cpu:4 -a even -m 2 --replicas 2 --schedule async >"$tmp/doc.json"
	for how in '--allreduce ring' '--allreduce tree' '--allreduce host' '--allreduce hierarchical' '--compress bf16' \
		'--compress lowrank:2,start=2' '--compress lowrank:2,start=2 --clip-norm 0.3' '--clip-norm 0.3 --allreduce tree'; do
		chosen || continue
		echo "$how"
		# shellcheck disable=SC2086
		truth=$(losses "$tmp/doc.json" $how)
		[ "$(jq length <<<"$truth")" -eq 12 ]
		# shellcheck disable=SC2086
		[ "$(losses "$tmp/doc.json" $how --feed host)" = "$truth" ]
	done
}

# bats test_tags=slow
@test "replicas: batches cut short, fewer samples than replicas, shares by power, an epoch's end" {
	# 1797 samples are 4 batches of 449 and one sample
	dlb-profile --analytic --batch 449 "$model" >"$tmp/profiled.json"
	for n in 2 6; do
		dlb-costmodel -c "cpu:$n" "$tmp/profiled.json" |
			dlb-place -a even -m 2 --replicas $((n / 2)) --schedule async --staleness 2bw --optimizer momentum >"$tmp/doc.json"
		losses "$tmp/doc.json" --steps 8 --order sequential >"$tmp/$n.losses"
	done
	[ "$(jq length "$tmp/6.losses")" -eq 8 ]
	near "$(cat "$tmp/2.losses")" "$(cat "$tmp/6.losses")"
	plan 'cpu:2 cpu:2*0.5' -a even -m 3 --replicas 2 --split power --schedule async --staleness 2bw >"$tmp/power.json"
	plan cpu:2 -a even -m 3 --schedule async --staleness 2bw >"$tmp/one.json"
	near "$(losses "$tmp/one.json")" "$(losses "$tmp/power.json")"
}

# bats test_tags=slow
@test "replicas: a checkpoint drains all of them, on any other number of nodes the run goes on" {
	plan cpu:4 -a even -m 4 --replicas 2 --schedule async >"$tmp/doc.json"
	plan cpu:1 -m 4 >"$tmp/one.json"
	for options in '' '--clip-norm 0.3 --feed host'; do
		rm -rf "$tmp/ckpt" "$tmp/log"
		# shellcheck disable=SC2086
		losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --checkpoint-every 5 --loss-log "$tmp/log" $options >/dev/null
		# shellcheck disable=SC2086
		losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" $options >"$tmp/next"
		losses "$tmp/one.json" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" >/dev/null
		[ "$(wc -l <"$tmp/log")" -eq 36 ]
		[ "$(jq -c . "$tmp/next")" = "$(tail -n +13 "$tmp/log" | head -n 12 | jq -sc .)" ]
	done
}

# bats test_tags=slow
@test "replicas: the simulator walks them; rank 0 that feeds is part of it" {
	plan cpu:4 -a even -m 4 --replicas 2 --schedule async --allreduce tree >"$tmp/async.json"
	plan cpu:4 -a even -m 4 --replicas 2 --schedule 1f1b --allreduce tree >"$tmp/sync.json"
	jq -es '.[0].plan.value_s < .[1].plan.value_s' "$tmp/async.json" "$tmp/sync.json"
	dlb-run -q --dry-run --feed host "$tmp/async.json" >"$tmp/dry.json"
	validates "$tmp/dry.json"
	dlb-run -q --steps 4 "${digits[@]}" --feed host "$tmp/async.json" >"$tmp/run.json"
	validates "$tmp/run.json"
	# bytes: sums, shares and messages per step
	jq -es 'map(.report | [.allreduce.bytes, .feed.bytes, .communication.bytes]) | .[0] == .[1] and (.[0] | all(. > 0))' "$tmp/dry.json" "$tmp/run.json"
}

@test "what cannot be: one line" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	run -2 --separate-stderr dlb-place --staleness stash "$tmp/doc.json"
	one_line dlb-place '--staleness is for --schedule async'
	run -2 --separate-stderr dlb-run --staleness stash "${digits[@]}" "$tmp/doc.json"
	one_line dlb-run '--staleness is for plans of dlb-place --schedule async'
	run -2 --separate-stderr dlb-place --staleness older --schedule async "$tmp/doc.json"
	one_line dlb-place "no rule 'older'"
	plan cpu:4 -a even -m 4 --replicas 2 --schedule async >"$tmp/doc.json"
	while IFS='@' read -r option words; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" $option "$tmp/doc.json"
		one_line dlb-run "$words"
	done <<-'END'
		--gossip 0.5@replicas sum gradients; gossip averages the weights that a step ended with, and several are under way; leave gossip out, or take a synchronous schedule
		--param-server 0@replicas sum gradients; param-server averages the weights
		--sync-every 5@replicas sum gradients; average averages the weights
		--sync@a command after every step would empty the pipeline; leave sync out
		--optimizer kfac@K-FAC
		--delay-discount some@--delay-discount wants on or off, not 'some'
	END
}

# bats test_tags=slow
@test "the report says how late each weight was: by 2bw one update, by stash the stages behind it" {
	plan cpu:2 -a even -m 4 --schedule async --staleness 2bw >"$tmp/doc.json"
	dlb-run --steps 5 "${digits[@]}" --optimizer momentum "$tmp/doc.json" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '.report.delays | length == 6 and all(.least == 1 and .most == 1)' "$tmp/out.json"
	plan cpu:4 -a even -m 1 --schedule async --staleness stash | dlb-run --dry-run >"$tmp/out.json"
	jq -e '.report.delays | group_by(.node) | map(.[0].most) | . == (sort | reverse) and .[-1] == 0 and .[0] > 0' "$tmp/out.json"
	dlb-view "$tmp/out.json" | grep -Eq 'read weights 0 to [123] updates behind'
}

# formula NODES 'LATE0 LATE1 [predict] [discount] [clip=C]' [DLB-PLACE OPTION...]: losses equal those of gradients with these delays, up to rounding
formula() {
	local nodes=$1 steps=10 late clip=()
	[[ $2 != *discount* ]] || clip=(--delay-discount on)
	read -ra late <<<"$2"
	[[ $2 != *clip=* ]] || clip+=(--clip-norm "${2##*clip=}")
	shift 2
	dlb-profile --analytic --batch 16 "$models/digits_mlp.onnx" | dlb-costmodel -c "cpu:$nodes" | dlb-place -a even --optimizer momentum "$@" >"$tmp/doc.json"
	dlb-run -q --steps 0 "${digits[@]}" --optimizer momentum --save "$tmp/first.safetensors" "$tmp/doc.json" >/dev/null
	dlb-run -q --steps "$steps" "${digits[@]}" --order sequential --optimizer momentum --momentum 0.9 --lr 0.1 "${clip[@]}" "$tmp/doc.json" |
		jq -c .report.losses >"$tmp/losses"
	python3 "$root/tests/data/delayed.py" "$tmp/first.safetensors" "$root/share/data/digits/images-idx3-ubyte.gz" \
		"$root/share/data/digits/labels-idx1-ubyte.gz" "$steps" 16 0.1 0.9 "${late[@]}" <"$tmp/losses"
}

# bats test_tags=slow
@test "losses are what the formulas of delayed gradients say" {
	formula 2 '0 0' -m 4 --schedule 1f1b
	formula 2 '0 0 clip=0.5' -m 4 --schedule 1f1b --clip-norm 0.5
	formula 2 '1 1' -m 4 --schedule async --staleness 2bw
	formula 2 '1 0' -m 1 --schedule async --staleness stash
	formula 4 '2 0' -m 1 --schedule async --staleness stash
	formula 4 '2 0 predict' -m 1 --schedule async --staleness predict
	formula 4 '2 0 discount' -m 1 --schedule async --staleness stash
	# the updates of a step wait for the norm of all its gradients
	formula 2 '1 1 clip=0.5' -m 4 --schedule async --staleness 2bw --clip-norm 0.5
	formula 2 '2 1 clip=0.5' -m 1 --schedule async --staleness stash --clip-norm 0.5
	formula 4 '3 2 clip=0.5' -m 1 --schedule async --staleness stash --clip-norm 0.5
	run ! formula 2 '0 0' -m 4 --schedule async --staleness 2bw
	run ! formula 4 '3 1 discount' -m 1 --schedule async --staleness stash
	run ! formula 2 '0 0 clip=0.5' -m 4 --schedule async --staleness 2bw --clip-norm 0.5
	run ! formula 4 '2 0' -m 1 --schedule async --staleness predict
}

@test "a run that is shorter than the pipeline is deep states the time of its step" {
	dlb-profile -q --analytic --batch 8 "$model" | dlb-costmodel -q -c cpu:2 |
		dlb-place -q -a even -m 2 --schedule async --optimizer momentum | dlb-run -q --steps 1 "${digits[@]}" |
		jq -e '.report | .step_s > 0 and .step_s <= .wall_s'
}
