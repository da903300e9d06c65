#!/usr/bin/env bats
# dlb-run --rounds: the load is balanced inside a run. Losses have the same bits as without.
load helper

setup() {
	tmp=$BATS_TEST_TMPDIR
	ranks=3 place=(-m 3)
}

# moving FILE STEPS SEED [FOLDER]: a run on $ranks ranks whose plan changes at random every second step.
moving() {
	command -v mpirun >/dev/null || skip 'no mpirun'
	timeout 300 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n "$ranks" "$BUILD/tests/moving-run" "$@"
}

# The document of MODEL, planned with the options in place, with the settings of a run in it:
# ready MODEL BATCH DLB-RUN-OPTION...
ready() {
	local file=$1 batch=$2
	shift 2
	dlb-profile --analytic --batch "$batch" "$file" | dlb-costmodel -c "cpu:$ranks" | dlb-place -q "${place[@]}" >"$tmp/plan.json"
	# the settings stay in the document
	dlb-run -q --steps 1 "$@" "$tmp/plan.json" | jq -c 'del(.report)' >"$tmp/doc.json"
}

# The document's run as it is, and with at least CHANGES of its plan: compare CHANGES.
compare() {
	rm -rf "$tmp/a" "$tmp/b"
	dlb-run -q --steps 102 --save "$tmp/a.safetensors" --checkpoint "$tmp/a" "$tmp/doc.json" >"$tmp/a.json"
	moving "$tmp/doc.json" 102 1 "$tmp/b" >"$tmp/b.json"
	# it counts from 1; short batches belong to no round
	run -0 jq -c '.balance.round - 1' "$tmp/b.json"
	[ "$output" -ge "$1" ]
	run -1 jq -e --slurpfile was "$tmp/doc.json" '.plan.placement == $was[0].plan.placement' "$tmp/b.json"
	jq -c .report.losses "$tmp/a.json" >"$tmp/a.losses"
	jq -c .report.losses "$tmp/b.json" | cmp - "$tmp/a.losses"
	# the plan of the end is another one; the weights are the same
	dlb-run -q --steps 0 --checkpoint "$tmp/b" --save "$tmp/b.safetensors" "$tmp/doc.json" >/dev/null
	cmp "$tmp/a.safetensors" "$tmp/b.safetensors"
	dlb-run -q --steps 4 --checkpoint "$tmp/a" "$tmp/doc.json" | jq -c .report.losses >"$tmp/a.more"
	dlb-run -q --steps 4 --checkpoint "$tmp/b" "$tmp/doc.json" | jq -c .report.losses | cmp - "$tmp/a.more"
}

# bats test_tags=slow
@test "replicas that average weights move inside a run: the same bits" {
	local how
	ranks=4
	for how in '--replicas 2 --split even --gossip 0.5' '--replicas 2 --split even --sync-every 3 --gossip 0.3 -m 2'; do
		# shellcheck disable=SC2206	# words
		place=($how)
		ready "$root/share/models/digits_cnn.onnx" 24 --data random --init 1 --optimizer momentum
		compare 40
	done
}

# bats test_tags=slow
@test "an asynchronous plan changes inside a run: losses are those of runs that go on from checkpoints under its plans" {
	# random placements have more stages than the other rules of staleness allow
	place=(-m 4 -a even --schedule async --staleness none)
	ready "$model" 32 "${digits[@]}" --optimizer momentum --lr 0.02
	cp "$tmp/doc.json" "$tmp/now.json"
	for steps in 2 4 6 8 10; do
		dlb-run -q --until-step "$steps" --checkpoint "$tmp/ck" "$tmp/now.json" | jq -c '.report.losses[]' >>"$tmp/losses"
		# the plan after as many changes
		moving "$tmp/doc.json" $((steps + 1)) 1 >"$tmp/now.json"
		run -0 jq .balance.round "$tmp/now.json"
		[ "$output" = $((steps / 2 + 1)) ]
	done
	moving "$tmp/doc.json" 10 1 | jq -c '.report.losses[]' | cmp - "$tmp/losses"
	# the plans differ from that of the start, whose losses are others
	run -1 cmp <(jq -c .plan.placement "$tmp/now.json") <(jq -c .plan.placement "$tmp/doc.json")
	run -1 cmp <(dlb-run -q --steps 10 "$tmp/doc.json" | jq -c '.report.losses[]') "$tmp/losses"
}

# bats test_tags=slow
@test "an asynchronous plan changes inside a run: a slow node loses work, with every rule of staleness" {
	ranks=2
	for staleness in 2bw stash predict; do
		place=(-m 4 --schedule async --staleness "$staleness" --optimizer momentum)
		ready "$models/resnet8.onnx" 64 --data random --seed 5 --optimizer momentum --lr 0.002
		for _ in 1 2 3; do # a busy machine may hide the slow node
			dlb-run -v --rounds 1 --round-steps 6 --slow 1:8 --until-step 80 "$tmp/doc.json" >"$tmp/b.json" 2>"$tmp/said"
			grep -o 'round 1: .*' "$tmp/said"
			if jq -e '.balance.history[0].decision == "moves"' "$tmp/b.json"; then break; fi
		done
		jq -e '.plan.schedule == "async" and .balance.history[0].decision == "moves"' "$tmp/b.json"
		rm -rf "$tmp/ck"
		dlb-run -q --until-step 6 --checkpoint "$tmp/ck" "$tmp/doc.json" | jq -c '.report.losses[]' >"$tmp/losses"
		dlb-run -q --until-step 80 --checkpoint "$tmp/ck" "$tmp/b.json" | jq -c '.report.losses[]' >>"$tmp/losses"
		jq -c '.report.losses[]' "$tmp/b.json" | cmp - "$tmp/losses"
	done
}

# bats test_tags=slow
@test "asynchronous replicas change their plan inside a run, and repeat it bit for bit" {
	place=(-m 2 --schedule async --staleness none --replicas 2) ranks=4
	ready "$model" 32 "${digits[@]}" --optimizer momentum --lr 0.02
	moving "$tmp/doc.json" 9 3 >"$tmp/a.json"
	moving "$tmp/doc.json" 9 3 | jq -c .report.losses | cmp - <(jq -c .report.losses "$tmp/a.json")
	jq -e '.balance.round > 2 and .plan.schedule == "async" and (.report.losses | length) == 9' "$tmp/a.json"
}

# bats test_tags=slow
@test "50 changes of the plan: losses, weights and optimizer state are the same bits" {
	# Adam's two states and running statistics move too
	ready "$models/resnet8.onnx" 61 --data random --seed 5 --optimizer adam --lr 0.002
	compare 50
	# four epochs, the last batch of each is short
	ready "$model" 64 "${digits[@]}" --optimizer momentum --lr 0.02 --test-data digits:test
	compare 47
	# K-FAC's averages and inverses move too
	ready "$model" 64 "${digits[@]}" --optimizer kfac --inverse-every 5
	compare 47
	jq -c '.report.kfac | [.inverses, .kept, .held_back]' "$tmp/a.json" >"$tmp/a.kfac"
	jq -c '.report.kfac | [.inverses, .kept, .held_back]' "$tmp/b.json" | cmp - "$tmp/a.kfac"
	jq -c '[.report | .test_loss, .accuracy]' "$tmp/a.json" >"$tmp/a.test"
	jq -c '[.report | .test_loss, .accuracy]' "$tmp/b.json" | cmp - "$tmp/a.test"
}

# bats test_tags=slow
@test "50 changes of the plan of two replicas, which change their nodes: the same bits" {
	ranks=4 place=(-m 2 --replicas 2 --split even)
	ready "$models/resnet8.onnx" 61 --data random --seed 5 --optimizer adam --lr 0.002
	compare 50
	for steps in 5 7 9; do moving "$tmp/doc.json" "$steps" 1 | jq -c .plan.replicas; done >"$tmp/replicas"
	run -0 grep -cvxF "$(jq -c .plan.replicas "$tmp/doc.json")" "$tmp/replicas"
	# each replica's part of the states moves; K-FAC's averages are each replica's own
	for zero in 1 2; do
		place=(-m 2 --replicas 2 --split even --zero "$zero")
		ready "$model" 64 "${digits[@]}" --optimizer adam --test-data digits:test
		compare 47
	done
	# a weight that is read on one node is divided; else it is put together
	for options in '-m 2 --replicas 2 --split even' '--replicas 3 --split even'; do
		# shellcheck disable=SC2206	# words
		ranks=${options//[^3]/} ranks=$((ranks ? 6 : 4)) place=($options --zero 3)
		ready "$root/share/models/lenet5.onnx" 24 --data random --init 1 --optimizer adam
		compare 40
	done
	ranks=4 place=(-m 2 --replicas 2 --split even)
	ready "$model" 64 "${digits[@]}" --optimizer kfac --inverse-every 5
	compare 47
	# what compressed sums remember of a gradient moves with its weight
	for how in lowrank:2,start=3 cholesky:4,start=3; do
		place=(-m 2 --replicas 2 --split even --compress "$how")
		ready "$model" 64 "${digits[@]}" --optimizer momentum --lr 0.02
		compare 47
		jq -e '.report.allreduce | .bytes < .dense_bytes and (.ranks | length > 1)' "$tmp/b.json"
		jq -c '[.report.allreduce.ranks[] | [.weight, .min, .median, .max]] | sort' "$tmp/a.json" >"$tmp/a.ranks"
		jq -c '[.report.allreduce.ranks[] | [.weight, .min, .median, .max]] | sort' "$tmp/b.json" | cmp - "$tmp/a.ranks"
	done
}

# bats test_tags=slow
@test "a slow replica loses samples while the run goes on; with --split even it keeps them" {
	dlb-profile --analytic --batch 256 "$models/lenet5.onnx" | dlb-costmodel -c cpu:2 | dlb-place -q --replicas 2 >"$tmp/doc.json"
	dlb-place -q --split even "$tmp/doc.json" >"$tmp/even.json"
	local run=(--steps 120 --data random --slow 1:6 --rounds 6 --round-steps 10)
	dlb-run -v "${run[@]}" "$tmp/doc.json" >"$tmp/a.json" 2>"$tmp/said"
	grep -ao 'round [0-9]*:.*' "$tmp/said" | sort -u
	grep -aq 'replicas share samples as [0-9]* : [0-9]*, .* ms a step expected' "$tmp/said"
	run -0 jq -e '.plan.power | .[0] > 2 * .[1]' "$tmp/a.json"
	validates "$tmp/a.json"
	dlb-run -q "${run[@]}" "$tmp/even.json" >"$tmp/b.json"
	run -0 jq -e '.plan.power == [1, 1]' "$tmp/b.json"
	run -0 jq -e --slurpfile was "$tmp/b.json" '.report.step_s < .8 * $was[0].report.step_s' "$tmp/a.json"
	# sums have other last bits
	run -0 jq -e --slurpfile was "$tmp/b.json" '[.report.losses, $was[0].report.losses] | transpose | all(.[]; (.[0] / .[1] - 1 | fabs) < 1e-4)' "$tmp/a.json"
}

# bats test_tags=slow
@test "a slow node loses ops while the run goes on: faster, the same losses, every decision is told" {
	dlb-profile --analytic --batch 64 "$models/resnet8.onnx" | dlb-costmodel -c cpu:3 | dlb-place -q -m 4 >"$tmp/doc.json"
	local run=(--steps 150 --data random --slow 0:8 --round-steps 10)
	dlb-run -q "${run[@]:0:6}" "$tmp/doc.json" >"$tmp/a.json"
	dlb-run -v "${run[@]}" --rounds 8 --step-log "$tmp/log" "$tmp/doc.json" >"$tmp/b.json" 2>"$tmp/said"
	grep -ao 'round [0-9]*:.*' "$tmp/said" | sort -u
	jq -c .report.losses "$tmp/a.json" >"$tmp/a.losses"
	jq -c .report.losses "$tmp/b.json" | cmp - "$tmp/a.losses"
	validates "$tmp/b.json"
	run -0 jq -e '.balance.round == 8 and (.balance.history | length == 8 and (map(.moved_ops) | add) > 0)
		and .report.steps == 150' "$tmp/b.json"
	# ops move after a decision to move them, or back to a plan from before (in a burst of noise, to the best one)
	run -0 jq -c '.balance.history as $h | [range(1; $h | length) as $i | $h[$i] | select(.moved_ops > 0) | .plan_hash as $hash |
		select(any($h[:$i][]; .plan_hash == $hash) | not) | $h[$i - 1].decision] | unique - ["moves"]' "$tmp/b.json"
	[ "$output" = '[]' ]
	run -0 jq -e --slurpfile was "$tmp/a.json" '.report.step_s < .8 * $was[0].report.step_s' "$tmp/b.json"
	run -0 jq -s -c '[.[] | select(.decision) | .step]' "$tmp/log"
	[ "$output" = '[10,20,30,40,50,60,70,80]' ]
	jq -rs '.[] | select(.decision) | .decision' "$tmp/log" >"$tmp/decisions"
	grep -Eq 'ops? moves? with .* of state, .* ms a step expected' "$tmp/decisions"
	while read -r line; do grep -aqF "$line" "$tmp/said"; done <"$tmp/decisions"
}

# bats test_tags=slow
@test "rounds: ops stay off excluded nodes, and pinned ops where they are" {
	dlb-profile -q --analytic --batch 64 "$models/resnet8.onnx" | dlb-costmodel -q -c cpu:3 |
		dlb-place -q -m 4 --exclude 2 --pin 3=0 >"$tmp/doc.json"
	for at in 0 1; do
		dlb-run -q --dry-run --steps 10 --slow $at:6 "$tmp/doc.json" | dlb-rebalance -q | dlb-place -q >"$tmp/next.json"
		dlb-run -q --dry-run --steps 10 --slow $at:6 "$tmp/next.json" | dlb-rebalance -q | dlb-place -q >"$tmp/last.json"
		dlb-run -q --data random --steps 30 --rounds auto --round-steps 5 --slow $at:6 "$tmp/doc.json" >"$tmp/live.json"
		for file in last live; do
			run -0 jq -e '.plan.placement["3"] == 0 and all(.plan.placement[]; . != 2)' "$tmp/$file.json"
		done
		# simulated times do not depend on how busy the host is
		run -1 jq -e --slurpfile was "$tmp/doc.json" '.plan.placement == $was[0].plan.placement' "$tmp/last.json"
	done
}

@test "rounds: what they are not for" {
	planned "$tmp/doc.json"
	run -2 --separate-stderr dlb-run --rounds none "$tmp/doc.json"
	one_line dlb-run "'none'" "try 'dlb-run --help'"
	run -2 --separate-stderr dlb-run --rounds 0 "$tmp/doc.json"
	one_line dlb-run "'0'"
	run -2 --separate-stderr dlb-run --rounds 99999999999999999999x "$tmp/doc.json"
	one_line dlb-run "'99999999999999999999x'"
	run -0 --separate-stderr dlb-run --dry-run --rounds 3 "$tmp/doc.json"
	output='' one_line dlb-run '--rounds has no effect' '--dry-run'
	run -0 --separate-stderr dlb-run --steps 1 "${digits[@]}" --round-steps 7 "$tmp/doc.json"
	output='' one_line dlb-run '--round-steps has no effect' '--rounds'
	for options in '--replicas 2 --param-server 1' '--replicas 2 --compress auto' \
		'--replicas 2 --shards even --sync-every 2'; do
		# shellcheck disable=SC2086
		dlb-place -q $options --optimizer adam "$tmp/doc.json" >"$tmp/other.json"
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --rounds auto "$tmp/other.json"
		one_line dlb-run '--rounds' dlb-rebalance
	done
}
