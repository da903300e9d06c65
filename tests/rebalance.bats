#!/usr/bin/env bats
# dlb-rebalance: the balance section of a report. Rounds here are simulated (dlb-run --dry-run).
load helper

setup() { reported "$BATS_TEST_TMPDIR/doc.json"; tmp=$BATS_TEST_TMPDIR; doc=$tmp/doc.json; }

@test "bad JSON" { refuses_bad_json dlb-rebalance; }
@test "empty input" { refuses_empty_input dlb-rebalance; }
@test "no such file" { refuses_missing_file dlb-rebalance; }
@test "missing section" {
	planned "$tmp/planned.json"
	run -2 --separate-stderr dlb-rebalance "$tmp/planned.json"
	one_line dlb-rebalance "'report'" dlb-run
}
@test "other major version" { refuses_other_major dlb-rebalance; }
@test "unknown member" { refuses_unknown_member "$doc" dlb-rebalance; }
@test "newer minor version" { passes_unknown_on "$doc" dlb-rebalance; }
@test "full disk" { refuses_full_disk "$doc" dlb-rebalance; }
@test "help" { shows_help dlb-rebalance; }
@test "unknown option" { refuses_unknown_option dlb-rebalance; }

@test "no such rule" {
	run -2 --separate-stderr dlb-rebalance --rule lag "$doc"
	one_line dlb-rebalance "'lag'" log
	run -2 --separate-stderr dlb-rebalance --stable 0 "$doc"
	one_line dlb-rebalance "try 'dlb-rebalance --help'"
}

@test "--test: 1 before the first round and while it is not balanced, 2 for bad input, and nothing is written" {
	planned "$tmp/planned.json"
	run -1 --separate-stderr dlb-rebalance --test "$tmp/planned.json"
	[ -z "$output$stderr" ]
	dlb-rebalance "$doc" >"$tmp/one.json"
	run -1 --separate-stderr dlb-rebalance --test "$tmp/one.json"
	[ -z "$output$stderr" ]
	run -2 --separate-stderr dlb-rebalance --test </dev/null
	one_line dlb-rebalance 'empty input'
}

@test "both rules write a valid balance and leave the rest alone" {
	for rule in log patent; do
		dlb-rebalance --rule $rule "$doc" >"$tmp/$rule.json"
		validates "$tmp/$rule.json"
		run -0 jq -e --slurpfile was "$doc" '.graph == $was[0].graph and .cost == $was[0].cost and .plan == $was[0].plan
			and (.balance.weights | length) == 2 and ((.balance.weights | add) - 2 | fabs) < 1e-9
			and .balance.round == 1 and .balance.converged == false' "$tmp/$rule.json"
	done
}

# The loop on a simulated cluster: loop FILE ROUNDS_AT_MOST [DLB-RUN OPTION...]; prints the number of rounds.
loop() {
	local file=$1 most=$2 round=0 status
	shift 2
	while status=0; dlb-rebalance --test "$file" || status=$?; [ $status = 1 ] && [ $round -lt "$most" ]; do
		dlb-run --dry-run --steps 10 "$@" <"$file" | dlb-rebalance | dlb-place >"$file.next" || return
		mv "$file.next" "$file"
		round=$((round + 1))
	done
	[ $status = 0 ] && echo $round
}

@test "one node twice as slow: converges, and the slow node gets less" {
	dlb-profile --analytic --batch 64 "$model" | dlb-costmodel -c cpu:2 | dlb-place -m 8 >"$tmp/l.json"
	before=$(dlb-run --dry-run --steps 10 --slow 1:2 "$tmp/l.json" | jq .report.step_s)
	rounds=$(loop "$tmp/l.json" 20 --slow 1:2)
	[ "$rounds" -le 12 ]
	dlb-run --dry-run --steps 10 --slow 1:2 "$tmp/l.json" >"$tmp/after.json"
	run -0 jq -e --argjson before "$before" '.balance.converged and .report.step_s <= $before * 1.0001' "$tmp/after.json"
}

# rounds FILE COUNT DLB-REBALANCE-OPTIONS [DLB-RUN OPTION...]: so many simulated rounds, balanced or not.
rounds() {
	local file=$1 count=$2 rebalance=$3
	shift 3
	for _ in $(seq "$count"); do
		# shellcheck disable=SC2086
		dlb-run --dry-run --steps 10 "$@" <"$file" | dlb-rebalance -q $rebalance | dlb-place -q >"$file.next" || return
		mv "$file.next" "$file"
	done
}
times() { jq -c '[.balance.history[].step_s]' "$1"; }

# bats test_tags=slow
@test "the limit of rounds counts from the last change: a node that becomes slow later loses ops" {
	dlb-profile --analytic --batch 64 "$model" | dlb-costmodel -c cpu:2 | dlb-place -m 8 >"$tmp/l.json"
	rounds "$tmp/l.json" 10 '--max-rounds 8'
	run -0 jq -e .balance.converged "$tmp/l.json"
	rounds "$tmp/l.json" 3 '--max-rounds 8' --slow 1:4
	times "$tmp/l.json"
	run -0 jq -e '.balance | .first_round == 11 and .history[10].changed and .history[12].step_s < .5 * .history[10].step_s' \
		"$tmp/l.json"
	rounds "$tmp/l.json" 8 '--max-rounds 8' --slow 1:4
	run -0 jq -e '.balance | .converged and .first_round == 11' "$tmp/l.json"
	validates "$tmp/l.json"
}

# bats test_tags=slow
@test "one of four nodes becomes faster: the search begins again" {
	dlb-profile --analytic --batch 64 "$model" | dlb-costmodel -c cpu:4 | dlb-place -m 8 >"$tmp/l.json"
	rounds "$tmp/l.json" 6 '' --slow 0:4 --slow 1:4 --slow 2:4 --slow 3:4
	run -0 jq -e .balance.converged "$tmp/l.json"
	rounds "$tmp/l.json" 3 '' --slow 0:4 --slow 1:4 --slow 2:4
	times "$tmp/l.json"
	# T itself has moved by less than what counts as a jump
	run -0 jq -e '.balance.history | .[6].step_s > .95 * .[5].step_s and .[6].changed and .[8].step_s < .75 * .[5].step_s' \
		"$tmp/l.json"
}

# bats test_tags=slow
@test "noise: the loop waits, and ends when it is over" {
	dlb-profile --analytic --batch 64 "$model" | dlb-costmodel -c cpu:2 | dlb-place -m 8 >"$tmp/l.json"
	jq -c .plan.placement "$tmp/l.json" >"$tmp/first"
	noisy() { # rounds in which all nodes wait for something else: COUNT
		for _ in $(seq "$1"); do
			dlb-run --dry-run --steps 10 "$tmp/l.json" | jq -c '.report.step_s *= 7 | .report.step_se_s = .2 * .report.step_s' |
				dlb-rebalance -v 2>"$tmp/said" | dlb-place -q >"$tmp/next.json"
			mv "$tmp/next.json" "$tmp/l.json"
		done
	}
	noisy 5
	cat "$tmp/said"
	run -0 jq -c '.balance | [.converged, .reason, .keep] + [.history[] | .noisy]' "$tmp/l.json"
	[ "$output" = '[false,"noise",true,true,true,true,true,true]' ]
	validates "$tmp/l.json"
	grep -q 'waiting for noise to end: 8[0-9]' "$tmp/said"
	rounds "$tmp/l.json" 4 ''
	run -0 jq -e '.balance.converged and .balance.reason != "noise"' "$tmp/l.json"
	jq -c .plan.placement "$tmp/l.json" | cmp - "$tmp/first"
}

# bats test_tags=slow
@test "a plan that is kept keeps its order, unless another one is simulated faster" {
	dlb-profile --analytic --batch 64 "$models/resnet8.onnx" >"$tmp/p.json"
	for case in cpu:2,1:1.1 cpu:3,1:1.3 cpu:4,1:1.1; do
		dlb-costmodel -c "${case%,*}" "$tmp/p.json" | dlb-place -m 8 >"$tmp/l.json"
		dlb-run --dry-run --steps 10 --slow "${case#*,}" "$tmp/l.json" >"$tmp/before.json"
		dlb-rebalance -q "$tmp/before.json" | jq -c '.balance.keep = true' | dlb-place -q |
			dlb-run --dry-run --steps 10 --slow "${case#*,}" >"$tmp/after.json"
		run -0 jq -e --slurpfile was "$tmp/before.json" '.plan.hash == $was[0].plan.hash
			and .report.step_s <= $was[0].report.step_s * 1.0001' "$tmp/after.json"
	done
}

@test "all nodes alike: nothing moves in 20 rounds" {
	planned "$tmp/l.json"
	jq .plan.placement "$tmp/l.json" >"$tmp/first"
	for _ in $(seq 20); do
		dlb-run --dry-run --steps 10 <"$tmp/l.json" | dlb-rebalance | dlb-place >"$tmp/next.json"
		mv "$tmp/next.json" "$tmp/l.json"
	done
	jq .plan.placement "$tmp/l.json" | cmp - "$tmp/first"
	dlb-rebalance --test "$tmp/l.json"
}

@test "a slow node or link is named, with the cause and the step without it" {
	dlb-profile -q --analytic --batch 32 "$models/lenet5.onnx" | dlb-costmodel -q -c 'cpu:1 host cpu:1 host cpu:1' |
		dlb-place -q -m 4 -a even >"$tmp/doc.json"
	dlb-run -q --dry-run "$tmp/doc.json" >"$tmp/ran.json"
	after() { # JQ: what dlb-rebalance says of the round changed by it
		jq --argjson node 0 "$1" "$tmp/ran.json" | dlb-rebalance -v 2>&1 >/dev/null | grep -v '^dlb-rebalance: round '
	}
	run after .
	[ -z "$output" ]
	run -0 after '.report.nodes[2].data_wait_s = .report.step_s / 4'
	[[ $output == 'dlb-rebalance: node 2 waits 25.0 % of a step for data' ]]
	# of all ops, or of each by its memory traffic, three times as much
	slower='.report.ops |= map(if .node == $node then .time_s += 2 * by else . end) |
		([.report.ops[] | select(.node == $node) | .time_s - .predicted_s] | add * 4) as $more |
		.report.nodes[$node].busy_s += $more | .report.step_s += $more'
	run -0 after "def by: .time_s; $slower"
	[[ $output == 'dlb-rebalance: node 0 is slow at computing: as others of its kind, a step would take '*' ms (-'*' %)' ]]
	run -0 after ". as \$d | def by: . as \$t | \$d.graph.ops[.op] |
		[\$t.time_s, ((.bytes - .bytes_fixed) / 4 + .bytes_fixed) / \$d.cost.accumulate_Bps.cpu] | min; $slower"
	[[ $output == 'dlb-rebalance: node 0 is slow at memory-bound ops: as others of its kind, a step would take '* ]]
	echo '{"events": [{"event": "link", "round": 3, "link": "rack:h2", "factor": 0.004}]}' >"$tmp/scenario.json"
	dlb-run -v --dry-run --scenario "$tmp/scenario.json" --rounds 3 "$tmp/doc.json" 2>"$tmp/said" >/dev/null
	grep '^dlb-run: round' "$tmp/said"
	[ "$(grep -c '^dlb-run: round .* link ' "$tmp/said")" -eq 1 ]
	Bps=$(sed -En 's/^dlb-run: round 3: .*; link rack:h2 has about ([0-9.]+) MB\/s instead of 1250: with them, a step would .*/\1/p' "$tmp/said")
	jq -en "$Bps > 4.5 and $Bps < 5.5"
}

# bats test_tags=slow
@test "of a program too large to be simulated for every link, none is named" {
	echo '{"events": [{"event": "link", "round": 3, "link": "rack:h2", "factor": 0.004}]}' >"$tmp/scenario.json"
	for m in 256 16384; do
		dlb-profile -q --analytic --batch "$m" "$models/digits_mlp.onnx" | dlb-costmodel -q -c 'cpu:1 host cpu:1 host cpu:1' |
			dlb-place -q -m "$m" -a even >"$tmp/doc.json"
		dlb-run -v --dry-run --scenario "$tmp/scenario.json" --rounds 3 "$tmp/doc.json" 2>"$tmp/said" >/dev/null
		grep '^dlb-run: round 3: .* something changed' "$tmp/said"
		[ "$(grep -c '^dlb-run: round 3: .* link rack:' "$tmp/said")" -eq $((m == 256)) ]
	done
}

@test "hostile reports: negative, missing and misshapen loads" {
	for edit in '.report.nodes[0].busy_s = -1' '.report.nodes = []' 'del(.report.nodes[1])' '.report.step_s = "fast"' \
		'.report.nodes = {}' 'del(.report.step_s)' '.plan.placement["0"] = 99' \
		'.balance = {weights: [1], round: 1, converged: false}' \
		'.balance = {weights: [-1, 3], round: 1, converged: false}' \
		'.balance = {weights: [1, 1], round: -1, converged: false}'; do
		jq -c "$edit" "$doc" >"$tmp/hostile.json"
		echo "$edit"
		run -2 --separate-stderr dlb-rebalance "$tmp/hostile.json"
		one_line dlb-rebalance
	done
}
