#!/usr/bin/env bats
# The whole pipe on the digits: the same losses under every placement and after any number of interruptions,
# and the loop that balances.
load helper

steps=12 samples=16 place=(-m 4)
setup() { tmp=$BATS_TEST_TMPDIR; }

# The losses of an unbroken run on one node.
truth() {
	[ -s "$BATS_FILE_TMPDIR/truth" ] || { plan cpu:1 >"$tmp/one.json" && losses "$tmp/one.json" >"$BATS_FILE_TMPDIR/truth"; }
	cat "$BATS_FILE_TMPDIR/truth"
}

# bats test_tags=slow
@test "the whole pipe, every document valid" {
	dlb-profile --batch 16 "$model" | tee "$tmp/1.json" | dlb-costmodel -c cpu:2 | tee "$tmp/2.json" |
		dlb-place -m 4 | tee "$tmp/3.json" | dlb-run --steps 20 "${digits[@]}" | tee "$tmp/4.json" |
		dlb-rebalance | tee "$tmp/5.json" | dlb-place >"$tmp/6.json"
	for i in 1 2 3 4 5 6; do
		validates "$tmp/$i.json"
	done
	run -0 jq -c '[.provenance[].tool]' "$tmp/6.json"
	[ "$output" = '["dlb-profile","dlb-costmodel","dlb-place","dlb-run","dlb-rebalance","dlb-place"]' ]
}

# bats test_tags=slow
@test "document.json has every section's schema and is all that a validator needs" {
	cd "$root/share/schemas"
	for section in $(jq -r '.properties[]["$ref"] // empty' envelope.json); do
		cmp <(jq --arg name "${section%.json}" '."$defs"[$name]' document.json) <(jq . "$section")
	done
	cmp <(jq 'del(."$defs")' document.json) <(jq . envelope.json)
	reported "$tmp/doc.json"
	cp document.json "$tmp/schema.json"
	cd "$tmp"
	/usr/bin/python3 -m jsonschema -i doc.json schema.json
	jq '.graph.ops[3].name = 1' doc.json >bad.json
	run -1 /usr/bin/python3 -m jsonschema -i bad.json schema.json
	[[ $output == *"1 is not of type 'string'"* ]]
	run -1 "$root/tests/validate" bad.json
	[ "$output" = "bad.json: /graph/ops/3/name: 1 is not of type 'string'" ]
}

@test "jq may reprint a document anywhere in the pipe" {
	plan cpu:2 | jq . | jq -c . >"$tmp/doc.json"
	[ "$(losses "$tmp/doc.json")" = "$(truth)" ]
}

@test "losses are bit-equal on 1, 2, 3 and 4 nodes" {
	for n in 2 3 4; do
		plan "cpu:$n" >"$tmp/doc.json"
		echo "$n nodes"
		[ "$(losses "$tmp/doc.json")" = "$(truth)" ]
	done
}

# bats test_tags=slow
@test "losses are bit-equal for even and random placements and both schedules" {
	for how in '-a even' '-a even --schedule gpipe' '-a greedy --schedule gpipe' '-a proportional' '-a random --seed 1' \
		'-a random --seed 2 --schedule gpipe' '-a random --seed 3'; do
		# shellcheck disable=SC2086
		plan cpu:3 $how >"$tmp/doc.json"
		echo "$how"
		[ "$(losses "$tmp/doc.json")" = "$(truth)" ]
	done
}

@test "a placement edited by hand is legal and gives the same losses" {
	plan cpu:2 -a single >"$tmp/doc.json"
	jq -c '(.graph.ops | map(select(.phase == "forward")) | .[0].id | tostring) as $op |
		[.graph.ops[] | select((.id | tostring) == $op or (.colocate != null and (.colocate | tostring) == $op)) | .id | tostring] as $bound |
		.plan.placement |= with_entries(if .key | IN($bound[]) then .value = 1 - .value else . end)' "$tmp/doc.json" >"$tmp/edited.json"
	run --separate-stderr losses "$tmp/edited.json"
	# Groups of colocated ops may reach further than one step of jq: then the message names the op.
	[ "$output" = "$(truth)" ] || [[ $stderr == *op* ]]
}

# bats test_tags=slow
@test "across checkpoints, on other numbers of nodes" {
	for n in 1 2 3 4; do
		plan "cpu:$n" >"$tmp/$n.json"
	done
	all=
	for n in 2 3 1 4; do
		steps=3
		part=$(losses "$tmp/$n.json" --checkpoint "$tmp/ckpt")
		all=$(jq -nc --argjson a "${all:-[]}" --argjson b "$part" '$a + $b')
	done
	steps=12
	[ "$all" = "$(truth)" ]
}

# bats test_tags=slow
@test "across a rebalance in mid-training" {
	plan cpu:2 >"$tmp/doc.json"
	steps=6
	first=$(losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --slow 1:3)
	dlb-run --dry-run --steps 6 --slow 1:3 "$tmp/doc.json" | dlb-rebalance | dlb-place >"$tmp/next.json"
	second=$(losses "$tmp/next.json" --checkpoint "$tmp/ckpt")
	steps=12
	[ "$(jq -nc --argjson a "$first" --argjson b "$second" '$a + $b')" = "$(truth)" ]
}

# ---- interrupted runs ----

long=(--optimizer momentum --lr 0.02 --checkpoint-every 100)

# A speed at which 4000 steps last long enough to be interrupted on the fastest machine.
slowly=(--slow 0:50)

unbroken() { # prints the loss log of 4000 steps
	[ -s "$BATS_FILE_TMPDIR/unbroken" ] || {
		plan cpu:1 >"$tmp/one.json"
		dlb-run --steps 4000 "${digits[@]}" "${long[@]}" --loss-log "$BATS_FILE_TMPDIR/unbroken" "$tmp/one.json" >/dev/null
	}
	cat "$BATS_FILE_TMPDIR/unbroken"
}

# bats test_tags=long
@test "killed with SIGKILL and resumed on another number of nodes" {
	plan cpu:2 >"$tmp/2.json"
	plan cpu:3 >"$tmp/3.json"
	for n in 2 3; do
		touch "$tmp/log"
		before=$(wc -l <"$tmp/log")
		dlb-run --until-step 4000 "${digits[@]}" "${long[@]}" "${slowly[@]}" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" "$tmp/$n.json" \
			>"$tmp/out.json" 2>"$tmp/err" 3>&- &
		wait_for_lines "$tmp/log" $((before + 50 + RANDOM % 100))
		kill_at_once $!
		wait $! || true
		[ ! -s "$tmp/out.json" ]
	done
	plan cpu:4 | dlb-run --until-step 4000 "${digits[@]}" "${long[@]}" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" >"$tmp/out.json"
	unbroken >"$tmp/truth"
	cmp "$tmp/log" "$tmp/truth"
}

# bats test_tags=slow
@test "SIGTERM: a checkpoint, status 0, and the report says so" {
	plan cpu:2 >"$tmp/2.json"
	dlb-run --until-step 4000 "${digits[@]}" "${long[@]}" "${slowly[@]}" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" "$tmp/2.json" \
		>"$tmp/out.json" 2>"$tmp/err" 3>&- &
	wait_for_lines "$tmp/log" 60
	kill -TERM $!
	wait $!
	validates "$tmp/out.json"
	jq -e '.report.stopped == "signal"' "$tmp/out.json"
	dlb-run --until-step 4000 "${digits[@]}" "${long[@]}" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" "$tmp/2.json" >"$tmp/out.json"
	unbroken >"$tmp/truth"
	cmp "$tmp/log" "$tmp/truth"
}

# bats test_tags=slow
@test "a rank killed in mid-step: within 3 s, one line that names the rank, status 2, the checkpoint intact" {
	plan cpu:2 >"$tmp/2.json"
	started --until-step 100000000 "${digits[@]}" "${long[@]}" --checkpoint "$tmp/ckpt" "$tmp/2.json"
	wait_for_lines "$tmp/log" 60
	ranks_of "$parent"
	[ "${#ranks[@]}" -eq 2 ]
	touch "$tmp/began"
	kill -KILL "${ranks[1]}"
	ends "$tmp/began" 'rank [01]'
	plan cpu:1 | dlb-run --until-step 200 "${digits[@]}" "${long[@]}" --checkpoint "$tmp/ckpt" >"$tmp/out.json" ||
		plan cpu:1 | dlb-run --steps 5 "${digits[@]}" "${long[@]}" --checkpoint "$tmp/ckpt" >"$tmp/out.json"
	validates "$tmp/out.json"
}

# bats test_tags=slow
@test "two runs do not share a checkpoint folder" {
	plan cpu:1 >"$tmp/1.json"
	dlb-run --until-step 100000000 "${digits[@]}" "${long[@]}" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" "$tmp/1.json" \
		>/dev/null 2>&1 3>&- &
	wait_for_lines "$tmp/log" 5
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --checkpoint "$tmp/ckpt" "$tmp/1.json"
	kill -KILL $!
	one_line dlb-run ckpt
}

# ---- the loop ----

# bats test_tags=slow
@test "the loop of the README comes to rest, really run" {
	plan cpu:2 >"$tmp/doc.json"
	rounds=0 quiet=0
	# Beside other processes the loop waits for the end of the noise, at most for the 50 rounds of dlb-rebalance.
	while status=0; dlb-rebalance --test "$tmp/doc.json" || status=$?; [ $status = 1 ] && [ "$quiet" -lt 15 ] && [ $rounds -lt 50 ]; do
		dlb-run --steps 20 "${digits[@]}" --slow 1:2 --checkpoint "$tmp/ckpt" <"$tmp/doc.json" |
			dlb-rebalance | dlb-place >"$tmp/next.json"
		mv "$tmp/next.json" "$tmp/doc.json"
		rounds=$((rounds + 1)) quiet=$(jq '[.balance.history[] | select(.noisy | not)] | length' "$tmp/doc.json")
	done
	jq -c '.balance.history[] | [.round, .step_s, .noisy, .changed, .decision]' "$tmp/doc.json"
	[ $status = 0 ]
	dlb-run --epochs 1 "${digits[@]}" --checkpoint "$tmp/ckpt" --save "$tmp/trained.safetensors" <"$tmp/doc.json" >"$tmp/final.json"
	validates "$tmp/final.json"
	[ -s "$tmp/trained.safetensors" ]
}

@test "a failing command in the pipe leaves the document alone" {
	plan cpu:2 >"$tmp/doc.json"
	run -2 --separate-stderr bash -c 'set -o pipefail
		dlb-run --steps 2 --data nothing <"$1" | dlb-rebalance | dlb-place >"$2"' - "$tmp/doc.json" "$tmp/next.json"
	[ "${#stderr_lines[@]}" -eq 3 ]
	[ ! -s "$tmp/next.json" ]
}
