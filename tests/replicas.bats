#!/usr/bin/env bats
# Several groups of nodes that each hold the model: together they learn the same as one node.
load helper

steps=10 samples=24
setup() { tmp=$BATS_TEST_TMPDIR; }

# near A B TOLERANCE: relative difference of lists of losses is at most TOLERANCE
near() {
	jq -en --argjson a "$1" --argjson b "$2" --argjson t "$3" \
		'($a | length) == ($b | length) and ([$a, $b] | transpose | all((.[0] - .[1]) | fabs <= $t * 2))' >/dev/null ||
		{ printf '%s\n%s\n' "$1" "$2"; return 1; }
}

# bats test_tags=slow
@test "replicas learn what one node learns, to rounding" {
	plan cpu:1 -m 2 >"$tmp/one.json"
	one=$(losses "$tmp/one.json")
	for r in 2 3 4; do
		plan "cpu:$r" -m 2 --replicas "$r" >"$tmp/$r.json"
		validates "$tmp/$r.json"
		[ "$(jq -c .plan.replicas "$tmp/$r.json")" = "$(jq -nc "[range($r) | [.]]")" ]
		near "$one" "$(losses "$tmp/$r.json")" 1e-6
	done
}

# bats test_tags=slow
@test "pipelines as replicas: the same bits wherever their ops stand" {
	plan cpu:2 -m 3 --replicas 2 >"$tmp/doc.json"
	truth=$(losses "$tmp/doc.json")
	for how in '-a even' '-a random --seed 3' '-a random --seed 4 --schedule gpipe' '-a single'; do
		# shellcheck disable=SC2086
		plan cpu:4 -m 3 --replicas 2 $how >"$tmp/doc.json"
		echo "$how"
		[ "$(losses "$tmp/doc.json")" = "$truth" ]
	done
}

# bats test_tags=slow
@test "four replicas by every algorithm: the same bits twice, on other placements, and with the command" {
	plan cpu:4 --replicas 4 >"$tmp/narrow.json"
	plan cpu:8 --replicas 4 -a random --seed 5 >"$tmp/wide.json"
	for how in ring tree host hierarchical; do
		chosen || continue
		echo "$how"
		truth=$(losses "$tmp/narrow.json" --allreduce "$how")
		[ "$(losses "$tmp/narrow.json" --allreduce "$how")" = "$truth" ]
		[ "$(losses "$tmp/wide.json" --allreduce "$how")" = "$truth" ]
		[ "$(losses "$tmp/narrow.json" --allreduce "$how" --sync)" = "$truth" ]
	done
}

# bats test_tags=slow
@test "two replicas: every algorithm, MPI's own too, gives the same bits" {
	plan cpu:2 --replicas 2 >"$tmp/two.json"
	truth=$(losses "$tmp/two.json" --allreduce ring)
	for how in auto tree host hierarchical doubling mpi 'mpi --sync'; do
		echo "$how"
		# shellcheck disable=SC2086
		[ "$(losses "$tmp/two.json" --allreduce $how)" = "$truth" ]
	done
}

# bats test_tags=slow
@test "each sum by its size: what the plan says, and the same bits on other placements" {
	# the ring is used for 256 KB but not for half of the model; statistics are a few hundred bytes
	shm=link=shm:3e-5,5e9
	dlb-profile --analytic --batch 8 "$models/resnet8.onnx" >"$tmp/profile.json"
	dlb-costmodel -c "cpu:4 $shm" "$tmp/profile.json" | dlb-place --replicas 4 --sync-batchnorm >"$tmp/narrow.json"
	dlb-costmodel -c "cpu:8 $shm" "$tmp/profile.json" | dlb-place --replicas 4 --sync-batchnorm -a random --seed 5 >"$tmp/wide.json"
	validates "$tmp/narrow.json"
	jq -e '.plan | .allreduce == "auto" and .allreduce_by_size == [{from_bytes: 0, allreduce: "doubling"}, {from_bytes: 262144, allreduce: "ring"}]' "$tmp/narrow.json"
	for doc in narrow wide; do
		dlb-run --steps 2 --data random --seed 3 "$tmp/$doc.json" >"$tmp/$doc.out.json"
		validates "$tmp/$doc.out.json"
		jq -e '.report.allreduce.sums | map({(.class): .algorithm}) | add | . == {statistics: "doubling", small: "ring"}' "$tmp/$doc.out.json"
	done
	# two parts share the small gradients: neither has as many as the whole model
	jq -e '[.report.allreduce.sums[] | select(.class == "small")] | (map(.part) | unique | length) == 2 and all(.bytes < 262144)' "$tmp/wide.out.json"
	[ "$(jq -c .report.losses "$tmp/wide.out.json")" = "$(jq -c .report.losses "$tmp/narrow.out.json")" ]
	jq -es 'map(.report.allreduce | [.sums, .bytes]) | .[0] == .[1]' "$tmp/narrow.out.json" <(dlb-run --dry-run "$tmp/narrow.json")
	dlb-run --print-program "$tmp/narrow.json" >"$tmp/program"
	grep -Eq 'COLLECTIVE reduce bucket 0: .* by ring$' "$tmp/program"
	# another algorithm by name, and back
	dlb-run --dry-run --allreduce tree "$tmp/narrow.json" | jq -e '.report.allreduce | .algorithm == "tree" and all(.sums[]; .algorithm == "tree")'
	dlb-place --allreduce tree "$tmp/narrow.json" | jq '.plan |= del(.allreduce_by_size)' >"$tmp/tree.json"
	jq -e '.plan.allreduce == "tree"' "$tmp/tree.json"
	dlb-run --dry-run --allreduce auto "$tmp/tree.json" | jq -e --slurpfile a "$tmp/narrow.out.json" '.report.allreduce.sums == $a[0].report.allreduce.sums'
}

@test "updates wait for their sums in the order in which these begin" {
	dlb-profile --analytic --batch 24 "$models/resnet8.onnx" | dlb-costmodel -c cpu:2 >"$tmp/costed.json"
	for how in '' '-m 3'; do
		# shellcheck disable=SC2086
		dlb-place --replicas 2 $how "$tmp/costed.json" >"$tmp/doc.json"
		dlb-run --print-program "$tmp/doc.json" >"$tmp/program"
		grep -o 'reduce bucket [0-9]*' "$tmp/program" | grep -o '[0-9]*' >"$tmp/begin"
		grep -o 'reduced bucket [0-9]*' "$tmp/program" | grep -o '[0-9]*' >"$tmp/wanted"
		[ "$(wc -l <"$tmp/begin")" -eq 4 ]
		diff "$tmp/begin" "$tmp/wanted"
	done
}

@test "between hosts the choice sees which nodes share a port" {
	two_hosts='cpu:4 host cpu:4 link=rack:5e-5,1.25e8'
	plan "$two_hosts" --replicas 8 >"$tmp/doc.json"
	# large sums: the least possible bytes between the hosts
	jq -e '.plan.allreduce_by_size | .[-1].allreduce == "hierarchical"' "$tmp/doc.json"
	for how in ring tree host doubling; do
		dlb-place --allreduce "$how" "$tmp/doc.json" | jq -e --slurpfile a "$tmp/doc.json" '.plan.value_s >= $a[0].plan.value_s'
	done
}

# bats test_tags=slow
@test "the report counts what went over the wire, by the formula" {
	plan cpu:3 --replicas 3 >"$tmp/doc.json"
	dlb-run --steps 3 "${digits[@]}" "$tmp/doc.json" >"$tmp/out.json"
	validates "$tmp/out.json"
	elements=$(jq '[.graph.ops[] | select(.phase == "update") | .inputs[0]] as $w | [.graph.tensors[$w[]] | .shape | reduce .[] as $d (1; . * $d)] | add' "$tmp/doc.json")
	echo "$elements parameters"
	# a ring of three: each sends 2 (3 - 1) / 3 of the array
	[ "$(jq .report.allreduce.bytes "$tmp/out.json")" -eq $((4 * 4 * elements)) ]
	[ "$(dlb-run --dry-run "$tmp/doc.json" | jq .report.allreduce.bytes)" -eq $((4 * 4 * elements)) ]
	jq -e '.report.allreduce | .time_s > 0 and .hidden_s >= 0 and .hidden_s <= .time_s' "$tmp/out.json"
	dlb-run --steps 3 --sync "${digits[@]}" "$tmp/doc.json" | jq -e '.report.allreduce.command_s > 0'
	# one node takes twice as long, so the others wait for the same time
	dlb-run --dry-run --sync --slow 0:2 "$tmp/doc.json" |
		jq -e '.report | (.nodes[0].busy_s - .nodes[1].busy_s) as $more | (.allreduce.command_s - $more) | fabs < 0.2 * $more'
	dlb-run --dry-run "$tmp/doc.json" | jq -e '.report.allreduce.command_s == 0'
}

@test "shares by power: half the speed, half the samples" {
	plan 'cpu:1 cpu:1*0.5' --replicas 2 --split power >"$tmp/doc.json"
	dlb-run --print-program "$tmp/doc.json" >"$tmp/program"
	# a little more than two thirds: the constant part of a step also takes the slow node twice as long
	grep -Eq '^replica 0, 1[678] of 24 samples, node 0' "$tmp/program"
	grep -Eq '^replica 1, [678] of 24 samples, node 1' "$tmp/program"
	# within a sample
	jq -e '.plan.nodes | (.[0].busy_s / .[1].busy_s - 1 | fabs) < 0.2' "$tmp/doc.json"
	plan cpu:1 >"$tmp/one.json"
	near "$(losses "$tmp/one.json")" "$(losses "$tmp/doc.json")" 1e-6
}

@test "what talks most sits closest, and --why says so" {
	slow_rack='cpu:2 host cpu:2 link=rack:1e-6,1e8'
	# few weights, large activations: a pipeline stays in its host
	dlb-profile --analytic --batch 512 "$model" | dlb-costmodel -c "$slow_rack" | dlb-place --replicas 2 -a even >"$tmp/doc.json"
	[ "$(jq -c .plan.replicas "$tmp/doc.json")" = '[[0,1],[2,3]]' ]
	dlb-view --why 3 "$tmp/doc.json" >"$tmp/why"
	grep -Eq 'node 0 exchanges [0-9.]+ MB a step with node 1 over shm' "$tmp/why"
	grep -Eq 'node 2 plays the same part in replica 1; gradients of [0-9.]+ MB are summed with it by auto: [a-z]+.* over rack' "$tmp/why"
	# many weights, few samples: nodes that sum the same gradients stay in one host
	dlb-profile --analytic --batch 8 "$models/digits_mlp.onnx" | dlb-costmodel -c "$slow_rack" | dlb-place --replicas 2 -a even >"$tmp/doc.json"
	[ "$(jq -c .plan.replicas "$tmp/doc.json")" = '[[0,-1,2],[1,-1,3]]' ]
}

@test "what the first round measures changes the shares, and then the loop rests" {
	plan cpu:2 --replicas 2 --split power >"$tmp/doc.json"
	[ "$(jq -c .plan.power "$tmp/doc.json")" = '[12,12]' ]
	for round in 1 2 3 4 5 6; do
		dlb-run --dry-run --slow 1:2 "$tmp/doc.json" | dlb-rebalance | dlb-place >"$tmp/next.json"
		mv "$tmp/next.json" "$tmp/doc.json"
		dlb-rebalance --test "$tmp/doc.json" && break
	done
	echo "$round rounds"
	[ "$round" -le 4 ]
	jq -e '.plan.power | add == 24 and .[0] >= 16 and .[0] <= 18' "$tmp/doc.json"
}

@test "weights of the nodes reach the shares, and so does the rule patent" {
	plan cpu:2 --replicas 2 --split power >"$tmp/doc.json"
	jq '.balance = {weights: [1.8, 0.2], round: 0, converged: false}' "$tmp/doc.json" | dlb-place >"$tmp/weighted.json"
	validates "$tmp/weighted.json"
	jq -e '.plan.power | add == 24 and .[0] >= 21' "$tmp/weighted.json"
	# predictions use the costs alone: as the shares really take
	dlb-run --dry-run "$tmp/weighted.json" | jq -e '.report.step_s / .plan.value_s - 1 | fabs < 1e-6'
	for round in 1 2 3 4 5 6 7 8; do
		dlb-run --dry-run --slow 1:2 "$tmp/doc.json" >"$tmp/ran.json"
		[ "$round" -gt 1 ] || first=$(jq .report.step_s "$tmp/ran.json")
		dlb-rebalance --rule patent "$tmp/ran.json" | dlb-place >"$tmp/doc.json"
		[ "$(jq '.plan.power[0]' "$tmp/doc.json")" -gt 12 ]
		dlb-rebalance --test "$tmp/doc.json" && break
	done
	validates "$tmp/doc.json"
	echo "$round rounds, $first s at first: $(jq -c '[.plan.power, .balance.best.step_s]' "$tmp/doc.json")"
	jq -e --argjson first "$first" '.balance.converged and .balance.best.step_s < 0.8 * $first and .balance.best.power == .plan.power' "$tmp/doc.json"
}

@test "the best plan that was measured comes back with its replicas and shares" {
	plan 'cpu:3' --replicas 2 --split power >"$tmp/doc.json"
	dlb-run --dry-run "$tmp/doc.json" | dlb-rebalance >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '.balance.best | .replicas == [[0], [1]] and .power == [12, 12]' "$tmp/out.json"
	jq '.balance.keep = true | .balance.best.replicas = [[1], [2]] | .balance.best.power = [20, 4] | .balance.best_placement |= map(1)' \
		"$tmp/out.json" >"$tmp/other.json"
	run -2 --separate-stderr dlb-place "$tmp/other.json"		# node 1 has part 1 of the first replica, not part 0
	one_line dlb-place /balance/best/replicas/0
	jq '.balance.best.replicas = [[-1, 1], [-1, 2]]' "$tmp/other.json" | dlb-place >"$tmp/back.json"
	jq -e '.plan.replicas == [[-1, 1], [-1, 2]] and .plan.power == [20, 4] and all(.plan.placement[]; . == 1)' "$tmp/back.json"
}

# bats test_tags=slow
@test "replicas over unlike nodes: the fast ones work, and no cut that is faster is missed" {
	dlb-profile --analytic --batch 64 "$models/resnet8.onnx" >"$tmp/profiled.json"
	for cluster in two-racks campus; do
		dlb-costmodel -c "$root/share/clusters/$cluster.json" "$tmp/profiled.json" >"$tmp/$cluster.json"
		dlb-place -q --replicas 4 "$tmp/$cluster.json" >"$tmp/$cluster.out.json"
		validates "$tmp/$cluster.out.json"
		one=$(dlb-place -a single "$tmp/$cluster.json" | jq .plan.value_s)
		# it took 4.3 and 9.5 times as long as the fastest node alone
		jq -e --argjson one "$one" '.plan.value_s < 1.3 * $one and .plan.split == "power"' "$tmp/$cluster.out.json"
		# nor is the plan with given options slower than equal shares of one node each
		even=$(dlb-place -q --replicas 4 --split even "$tmp/$cluster.json" | jq '.plan | [.value_s, .split]')
		jq -en --argjson even "$even" --slurpfile p "$tmp/$cluster.out.json" '$even[1] == "even" and $p[0].plan.value_s <= $even[0]'
	done
	gpus='[.cluster.nodes[] | select(.kind == "cuda") | .id]'
	jq -e "$gpus as \$gpus | all(\$gpus[] as \$d | .plan.nodes[\$d]; .busy_s > 0)" "$tmp/two-racks.out.json"
	# a slow node among its kind: the next round replaces it, and then the plan stays
	cp "$tmp/two-racks.out.json" "$tmp/doc.json"
	slow=$(jq '.cluster.nodes as $n | first(.plan.replicas[] | max | select($n[.].kind == "cpu/8"))' "$tmp/doc.json")
	for round in 1 2 3 4 5 6; do
		dlb-run --dry-run --slow "$slow:2" "$tmp/doc.json" >"$tmp/ran.json"
		[ "$round" -gt 1 ] || first=$(jq .report.step_s "$tmp/ran.json")
		dlb-rebalance -q "$tmp/ran.json" | dlb-place >"$tmp/doc.json"
		dlb-rebalance --test "$tmp/doc.json" && break
	done
	echo "$round rounds: $first s, $(jq .balance.best.step_s "$tmp/doc.json") s"
	jq -e --argjson first "$first" --argjson slow "$slow" \
		'.balance.converged and .balance.best.step_s < 0.8 * $first and (.plan.replicas | flatten | index($slow) == null)' "$tmp/doc.json"
}

# bats test_tags=slow
@test "replicas that one node outruns: a warning names it" {
	dlb-profile --analytic --batch 64 "$models/resnet8.onnx" | dlb-costmodel -c "$root/share/clusters/two-racks.json" >"$tmp/costed.json"
	run -0 --separate-stderr dlb-place --replicas 4 --split even "$tmp/costed.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "dlb-place: 4 replicas take "*"where node 4 (cuda) alone takes "*"--replicas auto"* ]]
	run -0 --separate-stderr dlb-place --replicas 2 "$tmp/costed.json"
	[ -z "$stderr" ]
}

@test "an epoch whose last batch has fewer samples than replicas" {
	# 1797 samples are 4 batches of 449 and one sample
	dlb-profile --analytic --batch 449 "$model" >"$tmp/profiled.json"
	for n in 1 3; do
		dlb-costmodel -c "cpu:$n" "$tmp/profiled.json" | dlb-place -m 2 --replicas "$n" >"$tmp/doc.json"
		dlb-run --epochs 1 "${digits[@]}" --order sequential --lr 0.01 "$tmp/doc.json" | jq -c .report.losses >"$tmp/$n.losses"
	done
	[ "$(jq length "$tmp/3.losses")" -eq 5 ]
	near "$(cat "$tmp/1.losses")" "$(cat "$tmp/3.losses")" 1e-6
}

# bats test_tags=slow
@test "a broken-off run goes on with the same bits, and its checkpoint on one node" {
	plan cpu:4 -m 2 --replicas 2 >"$tmp/doc.json"
	truth=$(losses "$tmp/doc.json" --loss-log "$tmp/unbroken")
	losses "$tmp/doc.json" --steps 4 --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" >/dev/null
	losses "$tmp/doc.json" --until-step 10 --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" >/dev/null
	cmp "$tmp/unbroken" "$tmp/log"
	[ -n "$truth" ]
	plan cpu:1 -m 2 >"$tmp/one.json"
	dlb-run --steps 1 "${digits[@]}" --optimizer momentum --checkpoint "$tmp/ckpt" "$tmp/one.json" >/dev/null
}

# bats test_tags=slow
@test "saved weights and accuracy are those of one node, to rounding" {
	plan cpu:4 --replicas 2 >"$tmp/doc.json"
	plan cpu:1 >"$tmp/one.json"
	for doc in doc one; do
		dlb-run --steps 200 --data digits:train --test-data digits:test --transform scale=1/16 --optimizer momentum --lr 0.05 \
			--save "$tmp/$doc.safetensors" "$tmp/$doc.json" | jq .report.accuracy >"$tmp/$doc.accuracy"
	done
	jq -en --argjson a "$(cat "$tmp/doc.accuracy")" --argjson b "$(cat "$tmp/one.accuracy")" '($a - $b | fabs) < 0.01 and $a > 0.7'
	[ "$(stat -c %s "$tmp/doc.safetensors")" -eq "$(stat -c %s "$tmp/one.safetensors")" ]
}

@test "as many replicas as are predicted to be fastest" {
	plan cpu:4 --replicas auto >"$tmp/auto.json"
	best=$(jq .plan.value_s "$tmp/auto.json")
	for r in 1 2 4; do
		plan cpu:4 --replicas "$r" | jq -e --argjson best "$best" '.plan.value_s >= $best - 1e-12'
	done
}

# bats test_tags=slow
@test "many ops: what promises little is left out and said, twice the same plan, and twice the effort is never worse" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 6 --width 32 --heads 2 --vocabulary 32 --sequence 8 "$tmp/gpt.onnx"
	dlb-profile -q --analytic --batch 16 --loss next-token "$tmp/gpt.onnx" | dlb-costmodel -q -c 'cpu:6 host cpu:6*0.5' >"$tmp/cost.json"
	jq -e '.graph.ops | length > 500' "$tmp/cost.json"
	for effort in 1 2; do
		dlb-place -v --replicas auto --schedule auto --effort $effort "$tmp/cost.json" >"$tmp/$effort.json" 2>"$tmp/$effort.said"
		grep 'left out' "$tmp/$effort.said" >"$tmp/$effort.out"
		# some, but never all: those that are not are drafts
		awk '!/: [1-9][0-9]* of [1-9][0-9]* divisions left out; they promise [0-9.e+-]+ ms or more$/ { exit 1 }
			{ sub(/.*: /, ""); if (!($1 + 0 < $3 + 0)) exit 1 }' "$tmp/$effort.out"
	done
	jq -en '[inputs.plan.value_s] | .[1] <= .[0]' "$tmp/1.json" "$tmp/2.json"
	dlb-place -v --replicas auto --schedule auto "$tmp/cost.json" 2>"$tmp/again.said" | jq -c .plan >"$tmp/again"
	jq -c .plan "$tmp/1.json" | cmp - "$tmp/again"
	cmp <(grep 'left out' "$tmp/1.said") <(grep 'left out' "$tmp/again.said")
	# no worse than what people make by hand
	for by_hand in '-a even --schedule 1f1b -m 8' '-a single --replicas 12 --split even' '-a single --replicas 6 --split even -m 2'; do
		# shellcheck disable=SC2086
		dlb-place -q $by_hand "$tmp/cost.json" | jq -e --slurpfile auto "$tmp/1.json" '.plan.value_s >= $auto[0].plan.value_s'
	done
}

# bats test_tags=slow
@test "pipelines of unequal nodes: no worse than one node of each, or than a placement for the slowest" {
	local value
	for cluster in 'cpu:3 cpu:1*0.3' 'cpu:1 cpu:1*0.9 cpu:1*0.7 cpu:1*0.3' 'cpu:1*0.3 cpu:4 cpu:1*0.5'; do
		for split in even power; do
			echo "$cluster $split"
			value=$(plan "$cluster" --replicas 2 --split "$split" | jq .plan.value_s)
			for algorithm in single proportional; do
				plan "$cluster" --replicas 2 --split "$split" -a "$algorithm" | jq -e --argjson v "$value" '.plan.value_s >= $v * (1 - 1e-9)'
			done
		done
	done
}

# bats test_tags=slow
@test "a slow node is left out, wherever it stands, and auto sees that" {
	for cluster in 'cpu:2 cpu:1*0.05' 'cpu:1*0.05 cpu:2' 'cpu:1 cpu:1*0.05 cpu:1'; do
		echo "$cluster"
		plan "$cluster" --replicas auto >"$tmp/auto.json"
		slow=$(jq '.cluster.nodes | map(.speed // 1) | index(0.05)' "$tmp/auto.json")
		jq -e --argjson slow "$slow" '.plan.replicas | length == 2 and (flatten | index($slow) == null)' "$tmp/auto.json"
		plan "$cluster" --replicas 2 | jq -e --slurpfile a "$tmp/auto.json" '.plan.replicas == $a[0].plan.replicas'
	done
	near "$(losses "$tmp/auto.json")" "$(plan cpu:1 >"$tmp/one.json" && losses "$tmp/one.json")" 1e-6
}

# bats test_tags=slow
@test "a rebalanced plan keeps its replicas" {
	plan cpu:4 -m 2 --replicas 2 --allreduce tree --split even >"$tmp/doc.json"
	dlb-run --dry-run --slow 1:2 "$tmp/doc.json" | dlb-rebalance | dlb-place >"$tmp/next.json"
	validates "$tmp/next.json"
	[ "$(jq -c '[.plan.replicas, .plan.allreduce]' "$tmp/next.json")" = '[[[0,1],[2,3]],"tree"]' ]
	# as many, but perhaps others and with other shares, if samples may move too and that is faster
	plan cpu:4 -m 2 --replicas 2 --allreduce tree >"$tmp/doc.json"
	dlb-run --dry-run --slow 1:2 "$tmp/doc.json" | dlb-rebalance | dlb-place >"$tmp/power.json"
	jq -e --slurpfile even "$tmp/next.json" '.plan | (.replicas | length) == 2 and .allreduce == "tree" and
		.value_s < 1.01 * $even[0].plan.value_s' "$tmp/power.json"
}

# bats test_tags=slow
@test "what cannot be: one line" {
	plan cpu:2 --replicas 2 >"$tmp/doc.json"
	while IFS='@' read -r edit words; do
		jq "$edit" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-run --steps 1 --data random "$tmp/bad.json"
		echo "$edit"
		one_line dlb-run "$words"
	done <<-'END'
		.plan.replicas = [[0], [0]]@node 0 has a part already
		.plan.replicas = [[0], [7]]@/plan/replicas/1/0
		.plan.replicas = [[0], [-1]]@other parts than replica 0
		.plan.replicas = [[1], [0]]@plays its own part in the first one
		.plan.replicas = [[0], [1], [0]]@3 replicas over 2 nodes
		.plan.replicas = "two"@/plan/replicas
		.plan.power = [1]@1 values for 2 replicas
		.plan.power = [1, 0]@/plan/power/1
		.plan.allreduce = "ringg"@no way to sum 'ringg'
		.plan.allreduce_by_size[0].from_bytes = 3@/plan/allreduce_by_size/0/from_bytes
		.plan.allreduce_by_size[1].from_bytes = 0@/plan/allreduce_by_size/1/from_bytes
		.plan.allreduce_by_size[0].allreduce = "mpi"@no way to sum 'mpi'
		.plan.allreduce_by_size = [range(9) | {from_bytes: ., allreduce: "ring"}]@9 ranges of sizes
		.plan.allreduce = "ring"@'auto' chooses by size
		.plan.placement |= map_values(1)@node 1 has no part in the replicas
	END
	for options in '--allreduce rings' '--sync --async-allreduce'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run $options "$tmp/doc.json"
		one_line dlb-run
	done
	run -1 --separate-stderr plan cpu:2 --replicas 3
	run -2 --separate-stderr plan cpu:2 --replicas some
	one_line dlb-place "wants a number or auto"
}

@test "replicas asked for by number that are slower than one node: one line; else none" {
	dlb-profile -q --analytic --batch 16 "$root/share/models/digits_mlp.onnx" |
		dlb-costmodel -q -c 'cpu:1 host cpu:1 link=rack:1e-2,1e5' >"$tmp/cost.json"
	run -0 --separate-stderr dlb-place --replicas 2 "$tmp/cost.json"
	output='' one_line dlb-place '2 replicas take' 'a step where node 0 (cpu) alone takes' '--replicas auto'
	for options in '-a even' '--replicas auto'; do
		# shellcheck disable=SC2086	# words
		run -0 --separate-stderr dlb-place $options "$tmp/cost.json"
		[ -z "$stderr" ]
	done
}

@test "a sample that is not a number reaches one replica: all end, one line, status 2" {
	arrays "$tmp/some" 96 30			# sample 30: of replica 1 in step 1
	dlb-profile --analytic --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 | dlb-place --replicas 2 >"$tmp/doc.json"
	start=$(date +%s%N)
	run -2 --separate-stderr dlb-run -q --epochs 1 --order sequential --data "npy:$tmp/some.x.npy,$tmp/some.y.npy" "$tmp/doc.json"
	[ $(($(date +%s%N) - start)) -lt 20000000000 ]	# with the start of the ranks; less than --timeout, so no rank hung
	one_line dlb-run 'the loss of step 1 is not finite'
}

# bats test_tags=slow
@test "a lost replica ends the others: one line that names a rank, status 2" {
	plan cpu:3 --replicas 3 >"$tmp/doc.json"
	started --steps 1000000 "${digits[@]}" "$tmp/doc.json"
	wait_for_lines "$tmp/log" 20
	ranks_of "$parent"
	[ "${#ranks[@]}" -eq 3 ]
	touch "$tmp/began"
	kill -KILL "${ranks[2]}"
	ends "$tmp/began" 'rank [012]'
}
