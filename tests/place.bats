#!/usr/bin/env bats
# dlb-place: cost and balance make the plan.
load helper

setup_file() {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 >"$BATS_FILE_TMPDIR/costed.json"
}
setup() { doc=$BATS_FILE_TMPDIR/costed.json; tmp=$BATS_TEST_TMPDIR; }

@test "bad JSON" { refuses_bad_json dlb-place; }
@test "empty input" { refuses_empty_input dlb-place; }
@test "no such file" { refuses_missing_file dlb-place; }
@test "missing section" {
	refuses_missing_section dlb-place graph
	jq -c 'del(.cost)' "$doc" >"$tmp/uncosted.json"
	run -2 --separate-stderr dlb-place "$tmp/uncosted.json"
	one_line dlb-place "'cost'" dlb-costmodel
}
@test "other major version" { refuses_other_major dlb-place; }
@test "unknown member" { refuses_unknown_member "$doc" dlb-place; }
@test "newer minor version" { passes_unknown_on "$doc" dlb-place; }
@test "full disk" { refuses_full_disk "$doc" dlb-place; }
@test "help" { shows_help dlb-place; }
@test "unknown option" { refuses_unknown_option dlb-place; }

@test "options that contradict each other" {
	run -2 --separate-stderr dlb-place --effort 1 --time 1 "$doc"
	one_line dlb-place '--effort' '--time'
}

algorithms() { dlb-place --list | awk '{ print $1 }'; }

# bats test_tags=slow
@test "--list names the algorithms, and each makes a valid plan" {
	for a in greedy proportional even largest-first single random by-kind heft peft etf dp refine anneal auto; do
		algorithms | grep -qx "$a"
	done
	for a in $(algorithms); do
		dlb-place -a "$a" -m 4 "$doc" >"$tmp/$a.json"
		validates "$tmp/$a.json"
		run -0 jq -e --arg a "$a" '.plan.algorithm == $a and .plan.micro_batches == 4
			and (.plan.placement | length) == (.graph.ops | length)
			and (.plan.placement | all(. >= 0 and . < 2))
			and .plan.value_s >= .plan.bound_s * 0.999999 and .plan.bound_s > 0 and .plan.imbalance >= 1' "$tmp/$a.json"
	done
}

@test "no such algorithm, no such schedule, bad numbers" {
	run -2 --separate-stderr dlb-place -a gredy "$doc"
	one_line dlb-place "'gredy'"
	run -2 --separate-stderr dlb-place --schedule 2f3b "$doc"
	one_line dlb-place "'2f3b'"
	for m in 0 -1 x 1.5; do
		run -2 --separate-stderr dlb-place -m "$m" "$doc"
		one_line dlb-place "try 'dlb-place --help'"
	done
}

@test "a default run is repeatable and never worse than the trivial plans" {
	dlb-place -m 4 "$doc" >"$tmp/a.json"
	dlb-place -m 4 "$doc" >"$tmp/b.json"
	cmp "$tmp/a.json" "$tmp/b.json"
	best=$(jq .plan.value_s "$tmp/a.json")
	for a in even largest-first single; do
		dlb-place -a $a -m 4 "$doc" | jq -e --argjson best "$best" '.plan.value_s >= $best * 0.999999'
	done
	jq -e '.plan.algorithm_given == false' "$tmp/a.json"
}

@test "random follows its seed" {
	dlb-place -a random --seed 1 "$doc" >"$tmp/1.json"
	dlb-place -a random --seed 1 "$doc" >"$tmp/again.json"
	dlb-place -a random --seed 2 "$doc" >"$tmp/2.json"
	cmp "$tmp/1.json" "$tmp/again.json"
	run ! cmp -s <(jq .plan.placement "$tmp/1.json") <(jq .plan.placement "$tmp/2.json")
}

@test "both schedules, and the memory that gpipe takes more" {
	dlb-place -a even -m 8 --schedule gpipe "$doc" >"$tmp/gpipe.json"
	dlb-place -a even -m 8 --schedule 1f1b "$doc" >"$tmp/1f1b.json"
	run -0 jq -n -e --slurpfile g "$tmp/gpipe.json" --slurpfile f "$tmp/1f1b.json" '
		$g[0].plan.schedule == "gpipe" and $f[0].plan.schedule == "1f1b" and
		([$g[0].plan.nodes[].peak_bytes] | max) >= ([$f[0].plan.nodes[].peak_bytes] | max)'
}

@test "the options of the plan hold unless told otherwise" {
	dlb-place -a even -m 4 --schedule gpipe "$doc" | dlb-place >"$tmp/again.json"
	run -0 jq -c '[.plan.algorithm, .plan.micro_batches, .plan.schedule]' "$tmp/again.json"
	[ "$output" = '["even",4,"gpipe"]' ]
	dlb-place -a even -m 4 --schedule gpipe "$doc" | dlb-place -m 2 >"$tmp/again.json"
	run -0 jq -c '[.plan.algorithm, .plan.micro_batches, .plan.schedule]' "$tmp/again.json"
	[ "$output" = '["even",2,"gpipe"]' ]
}

@test "ops that are bound together share a node" {
	for a in $(algorithms); do
		dlb-place -a "$a" --seed 3 "$doc" |
			jq -e '.plan.placement as $p | [.graph.ops[] | select(.colocate != null and .colocate >= 0) |
				$p[.id | tostring] == $p[.colocate | tostring]] | length > 0 and all'
	done
}

@test "double weight moves load to a node, under a cost model that knows nothing of it" {
	dlb-place -a greedy -m 8 "$doc" >"$tmp/even.json"
	jq -c '.balance = {weights: [1.3333333333333333, 0.6666666666666666], round: 1, converged: false}' "$doc" |
		dlb-place -a greedy -m 8 >"$tmp/weighted.json"
	run -0 jq -n -e --slurpfile a "$tmp/even.json" --slurpfile b "$tmp/weighted.json" '
		def share: .plan.nodes | map(.busy_s) | .[0] / add;
		($b[0] | share) > ($a[0] | share) + 0.05'
}

# bats test_tags=slow
@test "what does not fit is refused with the numbers, status 1" {
	dlb-costmodel -c 'cpu:2@1kB' "$doc" >"$tmp/tiny.json"
	run -1 --separate-stderr dlb-place "$tmp/tiny.json"
	one_line dlb-place 'no plan fits: in the nearest one node' ' of 0.001 MB'
	for a in single even proportional; do
		run -1 --separate-stderr dlb-place -a $a "$tmp/tiny.json"
		one_line dlb-place 'node ' ' MB of 0.001 MB'
	done
}

@test "a plan can be made of another graph only anew" {
	dlb-place "$doc" >"$tmp/plan.json"
	jq -c '.graph.ops[0].flop += 1' "$tmp/plan.json" >"$tmp/other.json"
	run -2 --separate-stderr dlb-run --dry-run --steps 1 "$tmp/other.json"
	one_line dlb-run graph
}

@test "an unknown member of the plan is named" {
	dlb-place "$doc" | jq -c '.plan.micro_bacthes = 8' >"$tmp/typo.json"
	run -2 --separate-stderr dlb-place "$tmp/typo.json"
	one_line dlb-place "'micro_bacthes'" "did you mean 'micro_batches'?"
}

# bats test_tags=slow
@test "in place: recorded, shown, kept by the next plan, and the losses are the same bits without it" {
	dlb-profile --analytic --batch 16 "$root/share/models/resnet8.onnx" | dlb-costmodel -c cpu:2 | dlb-place -m 2 >"$tmp/on.json"
	jq -e '.plan.in_place' "$tmp/on.json"
	dlb-place --in-place off "$tmp/on.json" >"$tmp/off.json"
	jq -e '.plan.in_place == false' "$tmp/off.json"
	jq -e '.plan.in_place == false' <(dlb-place "$tmp/off.json")
	dlb-run --print-program --data random "$tmp/on.json" | grep -q 'Relu.* over tensor'
	run ! grep ' over tensor' <(dlb-run --print-program --data random "$tmp/off.json")
	for f in on off; do dlb-run --steps 3 --data random --init 1 -q "$tmp/$f.json" | jq .report.losses >"$tmp/$f"; done
	cmp "$tmp/on" "$tmp/off"
	run -2 --separate-stderr dlb-place --in-place maybe "$tmp/on.json"
	one_line dlb-place "'maybe'"
}

@test "pins and excluded nodes hold in every algorithm, and for the next plan until cleared" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:3 >"$tmp/three.json"
	name=$(jq -r '.graph.ops[1].name' "$tmp/three.json")
	for a in $(algorithms); do
		dlb-place -a "$a" -m 4 --pin "$name=1" --pin 3=2 --exclude 0 "$tmp/three.json" >"$tmp/pinned.json" 2>"$tmp/why" ||
			{ grep -q 'no plan fits' "$tmp/why"; continue; }
		jq -e '.plan.placement | .["1"] == 1 and .["3"] == 2 and all(. != 0)' "$tmp/pinned.json"
	done
	validates "$tmp/pinned.json"
	dlb-place -m 4 --pin "$name=1" --exclude 0 "$tmp/three.json" >"$tmp/pinned.json"
	dlb-place -a greedy "$tmp/pinned.json" | jq -e --arg n "$name" '.plan.pins == {($n): 1} and .plan.exclude == [0]
		and .plan.placement["1"] == 1 and (.plan.placement | all(. != 0))'
	dlb-place -a greedy --pin none --exclude none "$tmp/pinned.json" | jq -e '.plan | has("pins") or has("exclude") | not'
}

@test "pins and nodes that cannot be" {
	run -2 --separate-stderr dlb-place --pin nobody=1 "$doc"
	one_line dlb-place "'nobody'"
	run -2 --separate-stderr dlb-place --pin 1 "$doc"
	one_line dlb-place OP=NODE
	for node in 2 -1 x; do
		run -2 --separate-stderr dlb-place --pin "1=$node" "$doc"
		one_line dlb-place "no node '$node'" 'nodes 0 to 1'
		run -2 --separate-stderr dlb-place "--exclude=$node" "$doc"
		one_line dlb-place "no node '$node'"
	done
	run -2 --separate-stderr dlb-place --pin 1=0 --pin 1=1 "$doc"
	one_line dlb-place 'pinned to node 0 and to node 1'
	run -1 --separate-stderr dlb-place --pin 1=0 --exclude 0 "$doc"
	one_line dlb-place 'no plan fits' 'left out'
	run -1 --separate-stderr dlb-place --exclude 0 --exclude 1 "$doc"
	one_line dlb-place 'no plan fits' 'left out'
	jq -c '.cluster.kinds += [{name: "fpga", peak_flops: 1e12, bandwidth_Bps: 1e11, without: ["conv"]}] | .cluster.nodes[1].kind = "fpga"' \
		"$doc" | dlb-costmodel >"$tmp/fpga.json"
	conv=$(jq -r '[.graph.ops[] | select(.type == "Conv")][0].name' "$tmp/fpga.json")
	run -1 --separate-stderr dlb-place --pin "$conv=1" "$tmp/fpga.json"
	one_line dlb-place 'no plan fits' 'node 1 (fpga) has no kernel' "'$conv'"
}

# bats test_tags=slow
@test "moving: no more ops than may, and what it costs counts" {
	dlb-place -a even -m 4 "$doc" >"$tmp/even.json"
	dlb-place -a single -m 4 "$doc" >"$tmp/single.json"
	for n in 0 3 10; do
		for a in proportional greedy single; do
			dlb-place -a $a --max-moves $n "$tmp/even.json" >"$tmp/moved.json"
			validates "$tmp/moved.json"
			jq -e --argjson n $n --slurpfile was "$tmp/even.json" '.plan.placement as $p | $was[0].plan.placement as $q |
				([$p | keys[] | select($p[.] != $q[.])] | length) == .plan.moved_ops and .plan.moved_ops <= $n' "$tmp/moved.json"
		done
	done
	dlb-place -m 4 --from "$tmp/single.json" --max-moves 8 "$doc" | jq -e '.plan.moved_ops <= 8'
	# a node that is faster by a thousandth: moving does not pay for one step, but for very many
	dlb-costmodel -c 'cpu:1*0.999 cpu:1 link=shm:1e-6,1e5' "$doc" >"$tmp/near.json"
	dlb-place --exclude 1 "$tmp/near.json" >"$tmp/slower.json"
	dlb-place --from "$tmp/slower.json" --serve 1 "$tmp/near.json" | jq -e '.plan.moved_ops == 0'
	dlb-place --from "$tmp/slower.json" --serve 1e9 "$tmp/near.json" |
		jq -e '.plan.moved_ops == (.graph.ops | length) and .plan.migration_s > 0'
	run -2 --separate-stderr dlb-place --max-moves 3 "$doc"
	one_line dlb-place --from
	run -2 --separate-stderr dlb-place --from "$doc" "$doc"
	one_line dlb-place 'no plan to move from'
	run -1 --separate-stderr dlb-place --max-moves 1 --exclude 0 "$tmp/single.json"
	one_line dlb-place 'ops have to move, 1 may'
}

@test "greedy takes ready ops in the order asked for" {
	for p in graph upward-rank; do dlb-place -a greedy -m 4 --priority $p "$doc" >"$tmp/$p.json"; done
	validates "$tmp/upward-rank.json"
	jq -e '.plan.priority == "upward-rank"' <(dlb-place "$tmp/upward-rank.json")
	# numbers in the graph's order give its plan
	jq -c '.graph.ops |= [to_entries[] | .value + {"x-priority": (-.key)}]' "$doc" >"$tmp/numbered.json"
	dlb-place -a greedy -m 4 --priority given "$tmp/numbered.json" >"$tmp/given.json"
	cmp <(jq .plan.placement "$tmp/given.json") <(jq .plan.placement "$tmp/graph.json")
	run -2 --separate-stderr dlb-place --priority given "$doc"
	one_line dlb-place x-priority
	run -2 --separate-stderr dlb-place --priority speed "$doc"
	one_line dlb-place "'speed'"
}

@test "by-kind follows its table" {
	jq -c '.cluster.kinds += [{name: "fpga", peak_flops: 1e12, bandwidth_Bps: 1e11}] | .cluster.nodes[1].kind = "fpga"' "$doc" |
		dlb-costmodel >"$tmp/fpga.json"
	echo '{"classes": {"conv": ["fpga"], "dense": ["cpu"], "pool": ["npu", "cpu"]}}' >"$tmp/table.json"
	dlb-place -a by-kind --affinity "$tmp/table.json" "$tmp/fpga.json" >"$tmp/plan.json"
	validates "$tmp/plan.json"
	jq -e '.plan.placement as $p | [.graph.ops[] | select(.phase == "forward") | {type, at: $p[.id | tostring]}] |
		all(if .type == "Conv" then .at == 1 elif .type == "Gemm" or .type == "MaxPool" then .at == 0 else true end)' "$tmp/plan.json"
	jq -e --arg t "$tmp/table.json" '.plan.affinity == $t' <(dlb-place "$tmp/plan.json")
	# the row of an op's type is before that of its class, wherever it stands
	for rows in '"conv": ["cpu"], "Conv": ["fpga"]' '"Conv": ["fpga"], "conv": ["cpu"]'; do
		echo "{\"classes\": {$rows, \"dense\": [\"cpu\"]}}" >"$tmp/type.json"
		dlb-place -q -a by-kind --affinity "$tmp/type.json" "$tmp/fpga.json" |
			jq -e '.plan.placement as $p | [.graph.ops[] | select(.type == "Conv") | $p[.id | tostring]] | all(. == 1)'
	done
	dlb-place -a by-kind "$doc" | jq -e '.plan.affinity == "default"'
	run -2 --separate-stderr dlb-place -a by-kind --affinity nothing "$doc"
	one_line dlb-place "'nothing'"
	# a link to the tool finds the files that come with it; a copy says where it searched
	ln -s "$BUILD/bin/dlb-place" "$tmp/dlb-linked"
	"$tmp/dlb-linked" -a by-kind "$doc" | jq -e '.plan.affinity == "default"'
	cp "$BUILD/bin/dlb-place" "$tmp/dlb-copied"
	run -2 --separate-stderr "$tmp/dlb-copied" -a by-kind --affinity nothing "$doc"
	one_line dlb-place "'nothing'" "share[/dlb]/affinity at or above $(realpath "$tmp" | cut -c 1-80)" '/usr/share/dlb' '--affinity FILE'
	echo '{"classes": {"conv": []}}' >"$tmp/empty.json"
	run -2 --separate-stderr dlb-place -a by-kind --affinity "$tmp/empty.json" "$doc"
	one_line dlb-place /classes/conv
}

# bats test_tags=slow
@test "a box of five kinds: work stands where its kernels are, and auto beats by-kind and any one device" {
	dlb-profile -q --analytic --batch 32 "$root/share/models/resnet8.onnx" | dlb-costmodel -c cxl-box >"$tmp/box.json"
	for a in by-kind auto; do dlb-place -q -a $a -m 4 "$tmp/box.json" >"$tmp/$a.json"; done
	dlb-place -q -a single --exclude 1 --exclude 2 --exclude 3 --exclude 4 -m 4 "$tmp/box.json" >"$tmp/cpu.json"
	dlb-place -q -a single --exclude 0 --exclude 2 --exclude 3 --exclude 4 -m 4 "$tmp/box.json" >"$tmp/gpu.json"
	jq -e '.plan.placement | all(. == 0)' "$tmp/cpu.json"
	jq -e '.plan.placement | all(. == 1)' "$tmp/gpu.json"
	for other in by-kind cpu gpu; do
		run -0 jq -n -e --slurpfile a "$tmp/auto.json" --slurpfile b "$tmp/$other.json" '$a[0].plan.value_s <= $b[0].plan.value_s'
	done
	# no op without a kernel; by kind: convolutions on the FPGA, dense layers on the GPU, activations on the ASIC
	for a in by-kind auto; do
		jq -e '[.cluster.nodes[].kind] as $kind | .plan.placement as $p | [.cost.rows[] | .time_s as $t | .ops[] |
			$t[$kind[$p[tostring]]] != null] | all' "$tmp/$a.json"
	done
	jq -e '[.cluster.nodes[].kind] as $kind | .plan.placement as $p | [.graph.ops[] | {type, at: $kind[$p[.id | tostring]]}] |
		all(if .type | test("^Conv") then .at == "fpga" elif .type == "Gemm" then .at == "gpu"
		    elif .type | test("^Relu") then .at == "asic" else true end)' "$tmp/by-kind.json"
	jq -e '[.graph.ops[] | select(.type == "Relu")] | length == 4' "$tmp/by-kind.json"
}

# Dense layers, convolutions and activations each prefer one kind of device; all three kinds are this machine.
three_kinds() { # MODEL [DLB-PROFILE OPTION...] >DOCUMENT
	local path=$1
	shift
	echo '{"classes": {"dense": ["gpu"], "conv": ["fpga"], "activation": ["asic"]}}' >"$tmp/home.json"
	dlb-profile -q --batch 16 "$@" "$path" | jq -c '.cluster = {kinds: ["gpu", "fpga", "asic"] | map({name: ., backend: "cpu", threads: 1}),
		groups: [{name: "box", class: "host"}], links: [], nodes: [range(3) as $i |
		{id: $i, kind: ["gpu", "fpga", "asic"][$i], group: "box", speed: 1, host: "h0", device: $i}]}' | dlb-costmodel
}
stands() { # DOCUMENT: counts of ops by type and kind, "Conv@fpga": 3 ...
	jq -c '[.cluster.nodes[].kind] as $kind | .plan.placement as $p | [.graph.ops[] | select(.type | test("Relu|^Conv$|^Gemm$|^BatchN")) |
		.type + (.attributes.activation // "" | tostring) + "@" + $kind[$p[.id | tostring]]] | group_by(.) | map({(.[0]): length}) | add' "$1"
}

# bats test_tags=slow
@test "activations stand on their own kind where a table is given, fused on request; the losses are the same bits" {
	three_kinds "$model" --analytic >"$tmp/doc.json"
	table=(--affinity "$tmp/home.json")
	dlb-place -q -m 4 -a by-kind "${table[@]}" "$tmp/doc.json" >"$tmp/keep.json"
	dlb-place -q -m 4 -a by-kind "${table[@]}" --rewrites all "$tmp/doc.json" >"$tmp/all.json"
	dlb-place -q -m 4 -a single "$tmp/doc.json" >"$tmp/single.json"
	validates "$tmp/keep.json"
	validates "$tmp/all.json"
	[ "$(stands "$tmp/keep.json")" = '{"Conv@fpga":2,"Gemm@gpu":3,"Relu@asic":2,"ReluGrad@asic":2}' ]
	jq -e '.plan.rewrites == "keep-affinity" and (.graph.rewrites[] | select(.name == "conv-relu") | .count == 0)' "$tmp/keep.json"
	jq -e '.plan.rewrites == "all" and (.graph.rewrites[] | select(.name == "conv-relu") | .count == 2)' "$tmp/all.json"
	jq -e '[.graph.ops[] | select(.phase == "forward") | .type] | index("Relu") == null' "$tmp/all.json"
	jq -e '.plan | has("rewrites") | not' "$tmp/single.json"
	for which in keep all single; do losses "$tmp/$which.json" -q >"$tmp/$which.losses"; done
	[ "$(jq length "$tmp/single.losses")" -eq "$steps" ]
	cmp "$tmp/keep.losses" "$tmp/all.losses"
	cmp "$tmp/keep.losses" "$tmp/single.losses"
	# the next plan has the same graph and keeps the choice; an older plan loses its placement and keeps its options
	dlb-place -q "$tmp/keep.json" >"$tmp/again.json"
	cmp <(jq '[.graph, .cost, .plan.placement, .plan.rewrites]' "$tmp/keep.json") <(jq '[.graph, .cost, .plan.placement, .plan.rewrites]' "$tmp/again.json")
	dlb-place -q "$tmp/all.json" | jq -e '.plan.rewrites == "all"'
	dlb-place -q --rewrites keep-affinity "$tmp/all.json" >"$tmp/again.json"
	[ "$(stands "$tmp/again.json")" = "$(stands "$tmp/keep.json")" ]
	jq -e '.plan.micro_batches == 4' "$tmp/again.json"
	run -0 --separate-stderr dlb-place -a by-kind --rewrites all "${table[@]}" "$tmp/keep.json"
	[[ $stderr == *"--rewrites has no effect: no op is fused"* ]]
	run -2 --separate-stderr dlb-place --rewrites some "$tmp/doc.json"
	one_line dlb-place "'some'" keep-affinity
}

@test "a fused op goes by the row of both types, else by its own class: convolutions, normalizations, sums" {
	three_kinds "$models/resnet8.onnx" --analytic >"$tmp/doc.json"
	place() { # TABLE
		echo "$1" >"$tmp/table.json"
		dlb-place -q -a by-kind --affinity "$tmp/table.json" "$tmp/doc.json" >"$tmp/plan.json"
	}
	place '{"classes": {"conv": ["fpga"], "norm": ["gpu"], "elementwise": ["gpu"], "activation": ["asic"]}}'
	run -0 stands "$tmp/plan.json"
	[[ $output == *'"BatchNormalization@gpu":9,'*'"Relu@asic":7,'* ]]
	# sums prefer the same kind as activations: not separated
	place '{"classes": {"norm": ["gpu"], "elementwise": ["asic"], "activation": ["asic"]}}'
	run -0 stands "$tmp/plan.json"
	[[ $output == *'"AddRelu@asic":3,'*'"Relu@asic":4,'* ]]
	# listed with their activation: as in the table
	place '{"classes": {"norm": ["gpu"], "BatchNormalizationRelu": ["fpga"], "AddRelu": ["gpu"], "activation": ["asic"]}}'
	run -0 stands "$tmp/plan.json"
	[[ $output == *'"AddRelu@gpu":3,'*'"BatchNormalizationGradRelu@fpga":4,"BatchNormalizationRelu@fpga":4,'* ]]
	# no node of the kind that activations prefer
	place '{"classes": {"norm": ["gpu"], "activation": ["tpu"]}}'
	run -0 stands "$tmp/plan.json"
	[[ $output == *'"BatchNormalizationRelu@gpu":4'* ]]
}

@test "costs of activations by themselves: a line where they were not measured, a refusal where the costs are not ours" {
	three_kinds "$model" -b 4 >"$tmp/doc.json"
	run -0 --separate-stderr dlb-place -a by-kind --affinity "$tmp/home.json" "$tmp/doc.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *"not measured by themselves"*"--no-rewrite conv-relu"* ]]
	three_kinds "$model" -b 4 --no-rewrite conv-relu >"$tmp/apart.json"
	run -0 --separate-stderr dlb-place -a by-kind --affinity "$tmp/home.json" "$tmp/apart.json"
	[ -z "$stderr" ]
	jq -c '.cost.rows[0].time_s.fpga[0] *= 2' "$tmp/doc.json" >"$tmp/edited.json"
	run -2 --separate-stderr dlb-place -a by-kind --affinity "$tmp/home.json" "$tmp/edited.json"
	one_line dlb-place 'costs' '--rewrites all'
	dlb-place -q -a by-kind --affinity "$tmp/home.json" --rewrites all "$tmp/edited.json" | jq -e '.plan.rewrites == "all"'
}

# OPS in WIDTH chains from one op to one, with random work, in the published benchmark's format.
chains() { # OPS WIDTH
	python3 - "$@" <<-'END'
		import json, random, sys
		n, width = int(sys.argv[1]), int(sys.argv[2])
		rng = random.Random(1)
		node = lambda i: dict(id=i, supportedOnFpga=1, cpuLatency=10 * rng.uniform(1, 10), fpgaLatency=rng.uniform(1, 10),
		                      isBackwardNode=0, size=1e6)
		nodes, cost = [node(i) for i in range(n)], [rng.uniform(.1, 2) for _ in range(n)]
		edge = lambda a, b: dict(sourceId=a, destId=b, cost=cost[a])
		edges = [edge(i - width if i > width else 0, i) for i in range(1, n - 1)] + [edge(i, n - 1) for i in range(n - 1 - width, n - 1)]
		json.dump(dict(maxFPGAs=4, maxCPUs=1, maxSizePerFPGA=1e9, nodes=nodes, edges=edges), sys.stdout)
	END
}

@test "a cluster edited beside imported costs: the line says how they hold on" {
	chains 22 5 | dlb-convert --from dnn-partitioning | jq '.cluster.nodes[0].speed = 0.5' >"$tmp/slower.json"
	run -2 --separate-stderr dlb-place "$tmp/slower.json"
	one_line dlb-place /cost 'del(.cost.inputs)'
	jq 'del(.cost.inputs)' "$tmp/slower.json" | dlb-place -a greedy | jq -e '.plan.value_s > 0'
	# sections that can be computed again are
	jq -c '.cluster.nodes[0].speed = 0.5' "$doc" >"$tmp/faster.json"
	run -2 --separate-stderr dlb-place "$tmp/faster.json"
	one_line dlb-place /cost 'run the tools from dlb-costmodel on'
	[[ $stderr != *'del('* ]]
}

# bats test_tags=slow
@test "port model: dp on a wide graph ends when it should, and says when it has not looked at all ideals; no schedule is the best" {
	chains 22 5 | dlb-convert --from dnn-partitioning >"$tmp/small.json"
	run -0 --separate-stderr dlb-place -a dp --objective throughput "$tmp/small.json"
	[ -z "$stderr" ]
	jq -c . <<<"$output" | dlb-place --schedule gpipe | jq -e '.plan.schedule == "gpipe"'
	run -2 --separate-stderr dlb-place --schedule auto "$tmp/small.json"
	one_line dlb-place '--schedule auto' 'throughput'
	chains 62 5 | dlb-convert --from dnn-partitioning >"$tmp/wide.json"
	run -0 --separate-stderr timeout 60 dlb-place -a dp --time 1 --objective throughput "$tmp/wide.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == *'given up over all ideals'*'--effort'* ]]
	jq -e '.plan | .value_s >= .bound_s' <<<"$output"
}

# bats test_tags=slow
@test "--batch auto: the fastest per sample that fits, and the largest; --batch N is kept and run" {
	dlb-profile --analytic --batch 4 "$model" | dlb-costmodel -c cpu:2 >"$tmp/roomy.json"
	jq -c '.cluster.nodes[].memory_bytes = 100000 | del(.cost)' "$tmp/roomy.json" | dlb-costmodel >"$tmp/tight.json"
	run -0 --separate-stderr dlb-place --batch auto "$tmp/tight.json"
	[[ $stderr == *'of '*' tried; '*' is the largest that fits'* ]]
	echo "$output" >"$tmp/doc.json"
	validates "$tmp/doc.json"
	# one per cent slower per sample at most, and smaller than all others of which that is true
	jq -e '.plan | .batch as $b | [.batches_tried[] | select(.value_s) | {batch, s: (.value_s / .batch)}] as $fit |
		($fit | map(.s) | min) as $least | ($fit | map(select(.s <= $least * 1.01).batch) | min) == $b and
		(.value_s == (.batches_tried[] | select(.batch == $b).value_s))' "$tmp/doc.json"
	# the next batches that were tried above the largest that fits do not, by themselves
	most=$(jq '[.plan.batches_tried[] | select(.value_s).batch] | max' "$tmp/doc.json")
	least=$(jq '[.plan.batches_tried[] | select(.value_s | not).batch] | min' "$tmp/doc.json")
	[ "$least" -gt "$most" ]
	[ $((least - most)) -le $((1 + most / 16)) ]
	dlb-place --batch "$most" "$tmp/tight.json" >"$tmp/most.json"
	run -1 --separate-stderr dlb-place --batch "$least" "$tmp/tight.json"
	one_line dlb-place 'no plan fits'
	# the batch stays in later plans, and runs
	dlb-place "$tmp/most.json" | jq -e --argjson most "$most" '.plan.batch == $most'
	dlb-run --steps 2 --data random "$tmp/most.json" | jq -e --argjson most "$most" '.report.batch == $most'
	# what fits nowhere, and a model that holds its batch
	jq -c '.cluster.nodes[].memory_bytes = 2000 | del(.cost)' "$tmp/roomy.json" | dlb-costmodel >"$tmp/none.json"
	run -1 --separate-stderr dlb-place --batch auto "$tmp/none.json"
	one_line dlb-place 'no plan fits'
	run -2 --separate-stderr dlb-place --batch 0 "$tmp/tight.json"
	one_line dlb-place 'wants a number of samples or auto'
}

# bats test_tags=slow
@test "where no plan fits, the line names micro-batches and a batch that would" {
	dlb-profile --analytic --batch 32 "$model" | dlb-costmodel -c cpu:2 |
		jq -c '.cluster.nodes[].memory_bytes = 80000 | del(.cost)' | dlb-costmodel >"$tmp/tight.json"
	run -1 --separate-stderr dlb-place "$tmp/tight.json"
	one_line dlb-place 'no plan fits' 'would fit'
	[[ $stderr =~ '--micro-batches '([0-9]+)' or --batch '([0-9]+)' would fit' ]]
	m=${BASH_REMATCH[1]} batch=${BASH_REMATCH[2]}
	dlb-place -m "$m" "$tmp/tight.json" | jq -e '.plan.nodes | all(.[]; .peak_bytes <= 80000)'
	dlb-place --batch "$batch" "$tmp/tight.json" | jq -e '.plan.nodes | all(.[]; .peak_bytes <= 80000)'
	run -1 dlb-place -m $((m / 2)) "$tmp/tight.json"
	run -1 dlb-place --batch $((batch + 1 + batch / 16)) "$tmp/tight.json"
	# nothing would, since even the states are too large
	jq -c '.cluster.nodes[].memory_bytes = 2000 | del(.cost)' "$tmp/tight.json" | dlb-costmodel >"$tmp/none.json"
	run -1 --separate-stderr dlb-place "$tmp/none.json"
	one_line dlb-place 'the weights, gradients and states take ' 'try more nodes, --offload or --state-dtype'
}

@test "one node is left of three: its only placement is found at once" {
	dlb-profile -q --analytic --batch 32 "$models/lenet5.onnx" | dlb-costmodel -q -c cpu:3 >"$BATS_TEST_TMPDIR/cost.json"
	timeout 20 dlb-place -q -m 4 --exclude 0 --exclude 2 "$BATS_TEST_TMPDIR/cost.json" >"$BATS_TEST_TMPDIR/one.json"
	run -0 jq -c '[.plan.placement[]] | unique' "$BATS_TEST_TMPDIR/one.json"
	[ "$output" = '[1]' ]
}

# bats test_tags=slow
@test "sites of 1,024 and of 10,000 nodes: planned, simulated and shown in memory that does not grow with pairs of nodes" {
	for cluster in site-1024 '50(rack 25(host cpu:8))'; do
		dlb-profile -q --analytic --batch 32 "$models/lenet5.onnx" | dlb-costmodel -q -c "$cluster" >"$tmp/cost.json"
		(
			ulimit -v 350000			# pairs of 10,000 nodes: 400 MB
			dlb-place -q -m 8 "$tmp/cost.json" >"$tmp/plan.json"
			dlb-run -q --dry-run "$tmp/plan.json" >"$tmp/ran.json"
			dlb-view "$tmp/ran.json" >"$tmp/shown"
		)
		validates "$tmp/ran.json"
		run -0 jq -e '(.cluster.nodes | length) as $n | $n >= 1024 and (.report.nodes | length == $n) and (.plan.nodes | length == $n)' \
			"$tmp/ran.json"
		# the tables of the plan and the report have the 64 busiest nodes, and say so
		run -0 grep -c "^  \.\.\. and $(($(jq '.cluster.nodes | length' "$tmp/ran.json") - 64)) nodes that are no busier" "$tmp/shown"
		[ "$output" = 2 ]
		busiest=$(jq '[.report.nodes[].busy_s] | index(max)' "$tmp/ran.json")
		run -0 sed -n '/^report/,$p' "$tmp/shown"
		grep -q "^ *$busiest " <<<"$output"
	done
}

# bats test_tags=slow
@test "plans drawn at random of a GPT have no deadlock: a view of a received tensor is sent on" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 3 --width 32 --heads 2 --vocabulary 32 --sequence 8 "$BATS_TEST_TMPDIR/gpt.onnx"
	dlb-profile -q --analytic --batch 4 --loss next-token "$BATS_TEST_TMPDIR/gpt.onnx" | dlb-costmodel -q -c cpu:3 >"$BATS_TEST_TMPDIR/cost.json"
	for seed in {1..20}; do
		for m in 1 3; do
			dlb-place -q -a random --seed "$seed" -m $m "$BATS_TEST_TMPDIR/cost.json" >"$BATS_TEST_TMPDIR/plan.json" ||
				{ echo "seed $seed, $m micro-batches"; false; }
		done
	done
}
