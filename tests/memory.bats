#!/usr/bin/env bats
# Memories that nodes name: discovery by hwloc, costs, and binding.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

# A plan for two nodes whose buffers lie in a named memory: with_memory EDIT >FILE
with_memory() {
	dlb-profile --analytic --batch 24 "$model" | dlb-costmodel -c cpu:2 |
		jq -c ".cluster.memories = [{name: \"here\", class: \"dram\", group: .cluster.groups[0].name, os_index: 0, bytes: 1e9},
			{name: \"there\", class: \"cxl\", group: .cluster.groups[0].name, os_index: 77, bytes: 1e9, bandwidth_Bps: 1e6}] |
			del(.cost.inputs) | $1" | dlb-place --replicas 2 --split even
}

@test "dlb-profile says the system's numbers of NUMA nodes" {
	dlb-profile --cluster >"$tmp/here.json"
	validates "$tmp/here.json"
	jq -e '[.cluster.memories[] | select(.os_index == 0)] | length == 1' "$tmp/here.json"
	dlb-profile --cluster --topology "$root/tests/data/machine.xml" | jq -e '[.cluster.memories[] | .os_index | values] == [0, 1]'
}

# bats test_tags=slow
@test "buffers in a memory of this host: the same bits" {
	with_memory . >"$tmp/plain.json"
	with_memory '.cluster.nodes[].memory = "here"' >"$tmp/bound.json"
	validates "$tmp/bound.json"
	for doc in plain bound; do
		if ! dlb-run -q --steps 5 "${digits[@]}" "$tmp/$doc.json" >"$tmp/out.json" 2>"$tmp/err"; then
			cat "$tmp/err"
			grep -q 'cannot bind to memory' "$tmp/err" && skip 'this system lets nobody bind memory'
			false
		fi
		jq -c .report.losses "$tmp/out.json" >"$tmp/$doc.losses"
	done
	cmp "$tmp/plain.losses" "$tmp/bound.losses"
}

@test "a memory that this host does not have, or nobody has: one line" {
	with_memory '.cluster.nodes[1].memory = "there"' >"$tmp/doc.json"
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/doc.json"
	one_line dlb-run "memory 'there' is NUMA node 77"
	jq -c '.cluster.nodes[1].memory = "nowhere"' "$tmp/doc.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/bad.json"
	one_line dlb-run '/cluster/nodes/1/memory' "no memory 'nowhere'"
}

@test "slow memory is priced: ops take their bytes over its bandwidth at least" {
	with_memory . >"$tmp/plain.json"
	with_memory '.cluster.nodes[1].memory = "there"' >"$tmp/slow.json"
	jq -en --slurpfile p "$tmp/plain.json" --slurpfile s "$tmp/slow.json" '
		($p[0].plan.nodes | map(.busy_s)) as $a | ($s[0].plan.nodes | map(.busy_s)) as $b |
		$b[1] > 10 * $a[1] and $b[0] <= $a[0] * 1.001'
}

# Two memories, a fast one of FAST_BYTES and a slow one over a link: with_two FAST_BYTES EDIT [OPTION...]
with_two() {
	local bytes=$1 edit=$2
	shift 2
	dlb-profile --analytic --batch 24 "$model" | dlb-costmodel -c cpu:2 |
		jq -c ".cluster.links += [{name: \"lane\", class: \"cxl\", latency_s: 3e-7, bandwidth_Bps: 1e9}] |
			.cluster.memories = [{name: \"fast\", class: \"dram\", group: .cluster.groups[0].name, os_index: 0, bytes: $bytes, bandwidth_Bps: 1e11},
			{name: \"slow\", class: \"cxl\", group: .cluster.groups[0].name, os_index: 0, bytes: 1e9, bandwidth_Bps: 4e9, link: \"lane\"}] |
			.cluster.nodes[].memory = [\"slow\", \"fast\"] | del(.cost.inputs) | $edit" | dlb-place "$@"
}

@test "two memories: what is moved most for its size lies in the fast one, the rest in the slow one, all of it counted" {
	with_two 1e9 . --replicas 2 --optimizer adam >"$tmp/all.json"
	validates "$tmp/all.json"
	jq -e '[.plan.nodes[] | (.memories | map(.name)) == ["slow", "fast"] and (.memories[0] | .weights + .state + .activations) == 0 and
		.peak_bytes == (.memories[1] | .weights + .state + .activations)] | all' "$tmp/all.json"
	with_two 60000 . --replicas 2 --optimizer adam >"$tmp/some.json"
	jq -e '[.plan.nodes[] | .peak_bytes == ([.memories[] | .weights, .state, .activations] | add) and
		(.memories[1] | .weights + .state + .activations) == 30000 and .memories[1].state == 0] | all' "$tmp/some.json"
}

@test "two memories are both room: a plan that neither holds alone; what does not fit both is refused with the numbers" {
	with_two 60000 '.cluster.memories[1].bytes = 180000' --replicas 2 --optimizer adam >"$tmp/doc.json"
	jq -e '[.plan.nodes[].peak_bytes > 90000] | all' "$tmp/doc.json"
	run -1 --separate-stderr with_two 60000 '.cluster.memories[1].bytes = 80000' --replicas 2 --optimizer adam
	one_line dlb-place 'MB'
}

@test "ops are priced by where their operands lie, and by the link to it, which nodes share" {
	step() { with_two "$@" --optimizer adam | jq .plan.value_s; }
	fast=$(step 1e9 . --replicas 2) some=$(step 60000 . --replicas 2) slow=$(step 100 . --replicas 2)
	wide=$(step 100 '.cluster.links[-1].bandwidth_Bps = 3e9' --replicas 2)
	alone=$(step 100 '.cluster.nodes[0].memory = "fast" | .cluster.memories[0].bytes = 1e9 | .cluster.nodes[1].memory = ["slow"]' --replicas 2)
	jq -en "$fast < $some and $some < $slow and $wide < 0.6 * $slow and $alone < 0.7 * $slow"
}

# bats test_tags=slow
@test "a run puts its buffers where the plan says: the same bits, and the simulator's time in the report" {
	with_two 1e9 . --replicas 2 --optimizer adam >"$tmp/all.json"
	with_two 60000 . --replicas 2 --optimizer adam >"$tmp/some.json"
	for doc in all some; do
		if ! dlb-run -q --steps 5 "${digits[@]}" "$tmp/$doc.json" >"$tmp/out.json" 2>"$tmp/err"; then
			cat "$tmp/err"
			grep -q 'cannot bind' "$tmp/err" && skip 'this system lets nobody bind memory'
			false
		fi
		validates "$tmp/out.json"
		jq -c .report.losses "$tmp/out.json" >"$tmp/$doc.losses"
		jq .report.predicted_step_s "$tmp/out.json" >"$tmp/$doc.s"
	done
	cmp "$tmp/all.losses" "$tmp/some.losses"
	jq -en --slurpfile a "$tmp/all.s" --slurpfile b "$tmp/some.s" '$b[0] > 2 * $a[0]'
	for doc in all some; do
		dlb-run -q --steps 4 "${digits[@]}" --optimizer kfac --inverse-every 2 "$tmp/$doc.json" | jq -c .report.losses >"$tmp/$doc.losses"
	done
	cmp "$tmp/all.losses" "$tmp/some.losses"
}

@test "memories that make no sense: one line" {
	with_two 1e9 . >"$tmp/doc.json"
	bad() { # EDIT WHERE WHAT
		jq -c "$1" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-place "$tmp/bad.json"
		one_line dlb-place "$2" "$3"
	}
	bad '.cluster.nodes[1].memory = ["fast", "none"]' /cluster/nodes/1/memory/1 "no memory 'none'"
	bad '.cluster.nodes[1].memory = ["fast", "fast"]' /cluster/nodes/1/memory/1 'named twice'
	bad '.cluster.nodes[1].memory = 3' /cluster/nodes/1/memory 'name of a memory'
	bad '.cluster.memories[1].link = "none"' /cluster/memories/1/link "no link 'none'"
}

@test "placers give less to a node whose memory is slow" {
	dlb-profile --analytic --batch 24 "$models/lenet5.onnx" | dlb-costmodel -c cpu:2 |
		jq -c '.cluster.memories = [{name: "slow", class: "cxl", group: .cluster.groups[0].name, bytes: 1e9, bandwidth_Bps: 1e9}] |
			.cluster.nodes[0].memory = "slow" | del(.cost.inputs)' >"$tmp/cost.json"
	traffic() { # DOCUMENT: bytes that the ops of each node read and write, node 0 first
		jq -c '.plan.placement as $on | [.graph.ops[] | [$on[.id | tostring], .bytes]] | group_by(.[0]) | map(map(.[1]) | add)' "$1"
	}
	for a in heft dp greedy; do
		jq -c 'del(.cluster.nodes[0].memory)' "$tmp/cost.json" | dlb-place -q -a $a -m 4 >"$tmp/equal.json"
		dlb-place -q -a $a -m 4 "$tmp/cost.json" >"$tmp/slow.json"
		jq -en --argjson slow "$(traffic "$tmp/slow.json")" --argjson equal "$(traffic "$tmp/equal.json")" '$slow[0] < .7 * ($equal | min)'
	done
}

# the order of node 0 with its updates at the end, as plans had it that were made for more memory
updates_last() { jq -c '.plan.nodes[0].order |= (map(select(.[1] >= 0)) + map(select(.[1] < 0)))'; }

@test "on one node a weight is updated as soon as its gradient is there: less memory, the same losses" {
	for m in 1 4; do
		dlb-profile --analytic --batch 8 "$model" | dlb-costmodel -c cpu:1 | dlb-place -m $m >"$tmp/first.json"
		updates_last <"$tmp/first.json" >"$tmp/last.json"
		for doc in first last; do
			dlb-run --steps 4 "${digits[@]}" "$tmp/$doc.json" >"$tmp/out.json"
			jq -c .report.losses "$tmp/out.json" >"$tmp/$doc.losses"
			jq '.report.nodes[0].peak_bytes' "$tmp/out.json" >"$tmp/$doc.bytes"
		done
		cmp "$tmp/first.losses" "$tmp/last.losses"
		[ "$(cat "$tmp/first.bytes")" -le "$(cat "$tmp/last.bytes")" ]
		[ $m -gt 1 ] || [ "$(cat "$tmp/first.bytes")" -lt "$(cat "$tmp/last.bytes")" ]
	done
}

# memory_of MICRO-BATCHES BYTES: "SCRATCH STATE" of a plan in which the packed weight of each product takes BYTES
memory_of() {
	jq -c "(.cost.rows[] | select(.type == \"Gemm\") | .packed_bytes) = {cpu: $2}" "$tmp/costs.json" | dlb-place -q -m "$1" |
		dlb-run --print-program | sed -n 's/.*scratch \([0-9]*\), state \([0-9]*\)$/\1 \2/p'
}

@test "a packed copy of a weight is kept for several micro-batches only; with one it lies in scratch memory" {
	dlb-profile -q --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:1 | jq -c 'del(.cost.inputs)' >"$tmp/costs.json"
	products=$(jq '[.cost.rows[] | select(.type == "Gemm") | .ops | length] | add' "$tmp/costs.json")
	[ "$products" -ge 3 ]
	for m in 1 4; do
		read -r scratch state <<<"$(memory_of $m 0)"
		read -r scratch_packed state_packed <<<"$(memory_of $m 1000000)"
		[ "$scratch" -gt 0 ] && [ "$state" -gt 0 ]
		if [ $m = 1 ]; then
			[ "$state_packed" -eq "$state" ]
			[ "$scratch_packed" -gt "$((scratch + 1000000))" ] && [ "$scratch_packed" -lt "$((scratch + 1000064))" ]
		else
			[ "$state_packed" -eq "$((state + products * 1000000))" ]
			[ "$scratch_packed" -eq "$scratch" ]
		fi
	done
}

@test "on several nodes updates come early where the plan does not fit otherwise" {
	dlb-profile --analytic --batch 4 "$root/share/models/lenet5.onnx" | dlb-costmodel -c cpu:2 | dlb-place -a even >"$tmp/roomy.json"
	bytes=$(jq '.plan.nodes[0].peak_bytes' "$tmp/roomy.json")
	jq -c "del(.plan) | .cluster.nodes[0].memory_bytes = $bytes - 1" "$tmp/roomy.json" | dlb-costmodel | dlb-place -a even >"$tmp/tight.json"
	jq -e --argjson bytes "$bytes" '.plan.nodes[0].peak_bytes < $bytes' "$tmp/tight.json"
	[ "$(jq -c .plan.placement "$tmp/tight.json")" = "$(jq -c .plan.placement "$tmp/roomy.json")" ]
	for doc in roomy tight; do dlb-run --steps 4 --data random "$tmp/$doc.json" | jq -c .report.losses >"$tmp/$doc.losses"; done
	cmp "$tmp/roomy.losses" "$tmp/tight.losses"
}

# expected DOCUMENT PERCENT MB [DLB-RUN OPTION...]: each process holds no more than the report of a simulated run says, and that
# says at most PERCENT and MB too much
expected() {
	local doc=$1 percent=$2 mb=$3
	shift 3
	dlb-run -q --dry-run --steps 2 --data random "$@" "$doc" | jq -c '[.report.nodes[].predicted_process_bytes]' >"$tmp/expected"
	dlb-run -q --steps 2 --data random "$@" "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -c '[.report.nodes[].predicted_process_bytes]' "$tmp/out.json" | cmp - "$tmp/expected"
	jq -c '.report.nodes[] | [.peak_bytes, .process_bytes, .predicted_process_bytes]' "$tmp/out.json"
	jq -e --argjson percent "$percent" --argjson mb "$mb" '[.report.nodes[] | .predicted_process_bytes >= .process_bytes and
		.predicted_process_bytes <= .process_bytes * (1 + $percent / 100) + $mb * 1e6] | all' "$tmp/out.json"
}

# bats test_tags=slow
@test "the memory of a process is predicted: never too little, at most 3 % too much" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 2 --width 768 --heads 12 --vocabulary 20000 --sequence 64 "$tmp/gpt.onnx"
	dlb-profile -q --loss cross-entropy --batch 8 "$tmp/gpt.onnx" >"$tmp/gpt.json"
	while read -r nodes options; do
		echo "$nodes $options"
		# shellcheck disable=SC2086
		dlb-costmodel -q -c "cpu:$nodes" "$tmp/gpt.json" | dlb-place -q --optimizer adam $options >"$tmp/doc.json"
		expected "$tmp/doc.json" 3 0
	done <<-'LIST'
		1 -m 1
		1 -m 3
		2 -m 2 -a even
		2 -m 1 --replicas 2
		2 -m 1 --replicas 2 --zero 2
		2 -m 1 --replicas 2 --zero 2 --allreduce tree
		2 -m 2 --replicas 2 --zero 3
		3 -m 1 --replicas 3 --zero 3
		2 -m 1 --replicas 2 --compress bf16
		2 -m 1 --replicas 2 --compress lowrank:4,start=0
		3 -m 1 --replicas 3 --compress lowrank:4,start=1
	LIST
}

# bats test_tags=slow
@test "the memory of a small process is predicted to 4 MB: its libraries, document and kernels" {
	for model in digits_mlp digits_cnn; do
		dlb-profile -q --batch 24 "$models/$model.onnx" >"$tmp/profile.json"
		for nodes in 1 2; do
			for optimizer in sgd kfac; do
				dlb-costmodel -q -c "cpu:$nodes" "$tmp/profile.json" | dlb-place -q -m 2 -a even --optimizer $optimizer >"$tmp/doc.json"
				expected "$tmp/doc.json" 0 4
			done
		done
	done
	# many small products, each with code of its own, in micro-batches of two sizes
	for model in vit/default gpt/loss; do
		for options in '' '--lora 4'; do
			# shellcheck disable=SC2086
			dlb-profile -q --batch 7 $options "$root/tests/data/truth/$model.onnx" | dlb-costmodel -q -c cpu:1 |
				dlb-place -q -m 4 >"$tmp/doc.json"
			expected "$tmp/doc.json" 0 4
		done
	done
}

@test "samples in memory count" {
	python3 - "$tmp" <<-'END'
		import gzip, os, struct, sys
		n = 30000
		with gzip.open(sys.argv[1] + '/images.gz', 'wb', 1) as f:
		    f.write(struct.pack('>IIII', 0x803, n, 28, 28) + os.urandom(28 * 28 * 100) * (n // 100))
		with gzip.open(sys.argv[1] + '/labels.gz', 'wb') as f:
		    f.write(struct.pack('>II', 0x801, n) + bytes(i % 10 for i in range(n)))
	END
	dlb-profile -q --batch 24 "$models/lenet5.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even >"$tmp/doc.json"
	dlb-run -q --steps 2 --data random "$tmp/doc.json" >"$tmp/random.json"
	dlb-run -q --steps 2 --data "idx:$tmp/images.gz,$tmp/labels.gz" --transform scale=1/255 "$tmp/doc.json" >"$tmp/idx.json"
	predicted() { jq '[.report.nodes[].predicted_process_bytes] | max' "$@"; }
	[ $(($(predicted "$tmp/idx.json") - $(predicted "$tmp/random.json"))) -eq $((30000 * (28 * 28 + 1 + 2 * 8))) ]
	jq -c '.report.nodes[] | [.process_bytes, .predicted_process_bytes]' "$tmp/idx.json"
	jq -e '[.report.nodes[] | .predicted_process_bytes >= .process_bytes and .predicted_process_bytes <= 1.03 * .process_bytes + 4e6] | all' "$tmp/idx.json"
}

# bats test_tags=slow
@test "memory of kernels that nobody measured: their sizes are asked for, so that convolutions too are predicted to 3 % and 4 MB" {
	dlb-profile -q --analytic --batch 256 "$root/share/models/resnet8.onnx" >"$tmp/profile.json"
	jq -e '.profile.kinds == []' "$tmp/profile.json"
	while read -r nodes options; do
		echo "$nodes $options"
		# shellcheck disable=SC2086
		dlb-costmodel -q -c "cpu:$nodes" "$tmp/profile.json" | dlb-place -q $options >"$tmp/doc.json"
		expected "$tmp/doc.json" 3 4
	done <<-'LIST'
		1 -m 1
		1 -m 2
		2 -m 2 -a even
		2 -m 1 --replicas 2
	LIST
}

# process_of DOCUMENT [DLB-PLACE OPTION...]: bytes of the larger process of the plan that dlb-place makes with them
process_of() {
	dlb-place -q "${@:2}" "$1" | dlb-run -q --dry-run | jq '[.report.nodes[].predicted_process_bytes] | max'
}

# cures LINE: the options of dlb-place that the line says would fit, one set a line; "limited OPTIONS": with less memory_bytes
cures() {
	local plain=${1%%; dlb-place: *} limited=
	plain=${1#"$plain"; dlb-place: }
	case $plain in *' would fit where '*) limited=${plain#*' would fit; '} plain=${plain%"$limited"} ;; esac
	grep -oE -e '(-m|--batch|--zero) [0-9]+|--recompute auto' <<<"$plain" || true
	grep -oE -e '(-m|--batch|--zero) [0-9]+|--recompute auto' <<<"$limited" | sed 's/^/limited /' || true
}

# bats test_tags=slow
@test "a run whose processes need more memory than there is is refused; what it names fits, the rest does not" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 4 --width 512 --heads 8 --vocabulary 8000 --sequence 256 "$tmp/gpt.onnx"
	dlb-profile -q --analytic --loss cross-entropy --batch 16 "$tmp/gpt.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -m 4 -a even >"$tmp/doc.json"
	need=$(process_of "$tmp/doc.json")
	limit=$((${need%.*} * 96 / 100 / 1024))
	(ulimit -d $limit && run -2 --separate-stderr dlb-run --steps 1 --data random --init 1 "$tmp/doc.json"
		one_line dlb-run 'the process of node ' ' MB of memory, its limit (ulimit) is ' '; dlb-place: ' ' would fit'
		echo "$stderr" >"$tmp/line")
	cat "$tmp/line"
	cures "$(cat "$tmp/line")" | tee "$tmp/cures"
	grep -q -e '^--batch' "$tmp/cures"
	grep -qx -e 'limited --recompute auto' "$tmp/cures"
	bytes=$(sed -n "s/.* where each node's memory_bytes is //p" "$tmp/line")
	jq -c --argjson bytes "$bytes" '.cluster.nodes[].memory_bytes = $bytes | del(.cost, .plan)' "$tmp/doc.json" | dlb-costmodel -q |
		dlb-place -q -m 4 -a even --recompute auto >"$tmp/limited.json"
	while read -r options; do
		case $options in limited*) doc=$tmp/limited.json options=${options#limited} ;; *) doc=$tmp/doc.json ;; esac
		# shellcheck disable=SC2086
		need=$(process_of "$doc" $options)
		[ "${need%.*}" -le $((limit * 1024)) ]
	done <"$tmp/cures"
	# such a plan runs under the limit
	(ulimit -d $limit && dlb-run -q --steps 1 --data random --init 1 "$tmp/limited.json") | jq -e --argjson bytes $((limit * 1024)) \
		'[.report.nodes[].process_bytes] | max <= $bytes'
	# of a plan with ops that run again, too, the line says what would
	(ulimit -d $((limit * 85 / 100)) && run -2 --separate-stderr dlb-run --steps 1 --data random --init 1 "$tmp/limited.json"
		one_line dlb-run 'the process of node ' ' MB of memory, its limit (ulimit) is ' ' would fit')
	# what is not named does not fit
	for options in '-m 1' '-m 2' '--recompute auto'; do
		# shellcheck disable=SC2086
		need=$(process_of "$tmp/doc.json" $options)
		grep -qxe "$options" "$tmp/cures" || [ "${need%.*}" -gt $((limit * 1024)) ]
	done
}

# bats test_tags=slow
@test "a run of more memory than its host has is refused before it allocates; a batch that fits is named" {
	dlb-profile -q --analytic --batch 16777216 "$root/share/models/lenet5.onnx" | dlb-costmodel -q -c cpu:2 |
		jq -c '.cluster.nodes[].memory_bytes = 1e15 | del(.cost)' | dlb-costmodel -q | dlb-place -q -a even -m 2 >"$tmp/doc.json"
	bytes=$(awk '/^MemTotal|^SwapTotal/ {sum += $2} END {printf "%.0f", sum * 1024}' /proc/meminfo)
	[ "$bytes" -lt 600000000000 ] || skip 'this host has the memory'
	run -2 --separate-stderr dlb-run --steps 1 --data random "$tmp/doc.json"
	one_line dlb-run 'the processes of node 0 and 1 more of its host need ' ' GB of memory, which has ' '; dlb-place: '
	batch=$(cures "$stderr" | sed -n 's/^--batch //p')
	dlb-place -q -a even -m 2 --batch "$batch" "$tmp/doc.json" | dlb-run -q --dry-run |
		jq -e --argjson bytes "$bytes" '[.report.nodes[].predicted_process_bytes] | max < $bytes'
	dlb-place -q -a even -m 2 --batch $((batch + batch / 8)) "$tmp/doc.json" | dlb-run -q --dry-run |
		jq -e --argjson bytes "$bytes" '[.report.nodes[].predicted_process_bytes] | add > 0.95 * $bytes'
}

@test "dlb-place warns where processes need more than the host has, and plans all the same" {
	dlb-profile -q --analytic --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 >"$tmp/costs.json"
	run -0 --separate-stderr dlb-place -a even "$tmp/costs.json"
	[ -z "$stderr" ]
	need=$(process_of "$tmp/costs.json" -a even)
	jq -c --argjson bytes "${need%.*}" '.cluster.nodes[].memory_bytes = $bytes / 2 | del(.cost)' "$tmp/costs.json" | dlb-costmodel -q >"$tmp/tight.json"
	run -0 --separate-stderr dlb-place -a even "$tmp/tight.json"
	jq -e .plan <<<"$output" >/dev/null
	output=
	one_line dlb-place 'the processes of node 0 and 1 more of its host need ' ' MB of memory, which has ' '; it fits with '
}

@test "where the weights, gradients and states alone take more than all nodes have, the line says so" {
	dlb-profile -q --analytic --batch 8 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 >"$tmp/costs.json"
	jq -c '.cluster.nodes[].memory_bytes = 1e4 | del(.cost)' "$tmp/costs.json" | dlb-costmodel -q >"$tmp/small.json"
	run -1 --separate-stderr dlb-place -m 2 --optimizer adam "$tmp/small.json"
	one_line dlb-place 'the weights, gradients and states take ' ' MB, the nodes have 0.02 MB: try more nodes, --offload or --state-dtype'
}

@test "where no plan fits, the line says how much more each node needs; with several micro-batches also that one would fit" {
	dlb-profile -q --analytic --batch 8 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 >"$tmp/costs.json"
	dlb-place -q -a even -m 1 "$tmp/costs.json" | jq -c '[.plan.nodes[].peak_bytes]' >"$tmp/one"
	dlb-place -q -a even -m 2 "$tmp/costs.json" | jq -c '[.plan.nodes[].peak_bytes]' >"$tmp/two"
	# sums of gradients: two micro-batches take more here
	jq -e --slurpfile two "$tmp/two" '. as $one | [$two[0], $one] | transpose | all(.[0] > .[1])' "$tmp/one"
	jq -c --slurpfile one "$tmp/one" '.cluster.nodes[0].memory_bytes = $one[0][0] | .cluster.nodes[1].memory_bytes = $one[0][1] | del(.cost)' "$tmp/costs.json" |
		dlb-costmodel -q >"$tmp/tight.json"
	run -1 --separate-stderr dlb-place -a even -m 2 "$tmp/tight.json"
	one_line dlb-place ' MB more on node 0, ' ' MB more on node 1; --micro-batches 1 ' ' would fit'
	dlb-place -q -a even -m 1 "$tmp/tight.json" | jq -e --slurpfile one "$tmp/one" '[.plan.nodes[].peak_bytes] == $one[0]'
}
