#!/usr/bin/env bats
# dlb-place --zero: replicas divide the optimizer's state. The same bits as without, less memory, the bytes that the plan says.
load helper

set -o pipefail
setup() { cd "$BATS_FILE_TMPDIR" || return; tmp=$BATS_TEST_TMPDIR; }

# Profiles of the digits' network, whose gradients are small and share a message, and of dense layers of 300 that do not.
small() {
	[ -s small.json ] || dlb-profile -q --analytic --batch 24 "$model" >small.json
	profile=small.json
}
large() {
	[ -s large.json ] || {
		python3 - "$root/tests/data" large.onnx <<-'END2'
			import array, random, sys
			sys.dont_write_bytecode = True
			sys.path.insert(0, sys.argv[1])
			from onnx_file import model, node, tensor, value
			draw = random.Random(1)
			width, weights, at = [64] + 7 * [300] + [10], b'', 'f'
			graph = node('Flatten', ['x'], ['f'], 'flatten')
			for i, (n, m) in enumerate(zip(width, width[1:])):
			    graph += node('MatMul', [at, f'w{i}'], [f'p{i}'], f'dense{i}') + node('Add', [f'p{i}', f'b{i}'], [f'y{i}'], f'bias{i}')
			    weights += tensor(f'w{i}', [n, m], array.array('f', (draw.uniform(-1, 1) * (3 / n) ** .5 for _ in range(n * m))).tobytes())
			    weights += tensor(f'b{i}', [m], bytes(4 * m))
			    at = f'y{i}'
			    if i < len(width) - 2:
			        graph += node('Relu', [at], [f'r{i}'], f'relu{i}')
			        at = f'r{i}'
			open(sys.argv[2], 'wb').write(model(graph + weights + value(11, 'x', ['N', 1, 8, 8]) + value(12, at, ['N', 10])))
		END2
		dlb-profile -q --analytic --batch 24 large.onnx >large.json
	}
	profile=large.json
}
made() { # CLUSTER DLB-PLACE OPTION... >DOCUMENT
	local cluster=$1
	shift
	dlb-costmodel -q -c "$cluster" "$profile" | dlb-place -q "$@"
}
# Losses and all that is saved of four steps. Peaks must be those predicted, and weights travel whole.
trained() { # DOCUMENT DLB-RUN OPTION...
	local doc=$1
	shift
	dlb-run -q --steps 4 "${digits[@]}" --lr 0.005 --save "$tmp/saved" "$@" "$doc" >"$tmp/out.json" &&
		jq -e '[.plan.nodes[].peak_bytes] == [.report.nodes[].peak_bytes] and
			(.report.allreduce.classes.weights // {bytes: 0, dense_bytes: 0} | .bytes == .dense_bytes)' "$tmp/out.json" >"$tmp/peaks" &&
		jq -c .report.losses "$tmp/out.json" && sha256sum <"$tmp/saved"
}
# The same bits with all stages, or those of $stages: same_bits CLUSTER "DLB-PLACE OPTIONS" [DLB-RUN OPTION...]
same_bits() {
	local cluster=$1 place=$2 zero
	shift 2
	echo "$cluster $place $*"
	# shellcheck disable=SC2086
	for zero in ${stages:-0 1 2 3}; do
		made "$cluster" $place --zero $zero >"$tmp/$zero.json" || return
		trained "$tmp/$zero.json" "$@" >"$tmp/$zero.bits" || return
		cmp "$tmp/0.bits" "$tmp/$zero.bits" || return
	done
}

@test "the lower bound counts a share of each update" {
	large
	for zero in 0 1 2 3; do
		for nodes in 2 4; do
			made cpu:$nodes -a single --optimizer adam --replicas $nodes --zero $zero >"$tmp/bound.json"
			jq -e '.plan | .bound_s > 0 and .bound_s <= .value_s' "$tmp/bound.json" ||
				{ jq -c '.plan | [.bound_s, .value_s]' "$tmp/bound.json"; false; }
		done
	done
}

# bats test_tags=slow
@test "every optimizer that updates element by element: the same bits with 2 and 3 replicas" {
	small
	for rule in adam sgd momentum nesterov adagrad rmsprop adamw adabelief max-adabelief; do
		chosen || continue
		same_bits cpu:2 "--replicas 2 --optimizer $rule"
		same_bits cpu:3 "--replicas 3 --allreduce ring --optimizer $rule"
	done
	same_bits cpu:2 '--replicas 2 --optimizer adamw' --weight-decay 0.1 --group '*.bias:lr=0.02,weight-decay=0' \
		--lr-schedule cosine:6 --warmup 2
}

# bats test_tags=slow
@test "every algorithm of sums, and unequal replicas: the same bits" {
	small
	for how in ring tree host hierarchical doubling mpi auto; do
		same_bits cpu:3 "--replicas 3 --optimizer momentum --allreduce $how"
	done
	# a replica of one sample has one micro-batch, and with stage 3 then all have
	stages='0 1 2' same_bits cpu:2 '--replicas 2 --optimizer adam --batch 3 -m 2'
	stages='0 3' same_bits cpu:2 '--replicas 2 --optimizer adam --batch 7 -m 3'
	same_bits cpu:2 '--replicas 2 --optimizer adam --sync'
	made cpu:2 --replicas 2 --zero 2 --optimizer adam --batch 24 >"$tmp/doc.json"
	made cpu:2 --replicas 2 --zero 3 --optimizer adam --batch 24 -m 2 >"$tmp/three.json"
	made cpu:2 --replicas 2 --optimizer adam --batch 24 -m 2 >"$tmp/halves.json"
	made cpu:2 --replicas 2 --optimizer adam --batch 24 >"$tmp/plain.json"
	# the last batch of an epoch has one sample, and a replica has none
	arrays "$tmp/few" 25
	for doc in doc plain three halves; do
		dlb-run -q --epochs 2 --data "npy:$tmp/few.x.npy,$tmp/few.y.npy" "$tmp/$doc.json" | jq -c .report.losses >"$tmp/$doc.losses"
	done
	[ "$(jq length "$tmp/doc.losses")" = 4 ]
	cmp "$tmp/doc.losses" "$tmp/plain.losses"
	cmp "$tmp/three.losses" "$tmp/halves.losses"
}

# bats test_tags=slow
@test "pipelines, micro-batches, schedules, recomputation: the same bits" {
	small
	same_bits cpu:4 '--replicas 2 -a even --optimizer adam'
	same_bits cpu:4 '--replicas 2 -a random --seed 3 --optimizer adam'
	for how in 1f1b gpipe zero-bubble interleaved none; do
		same_bits cpu:4 "--replicas 2 -a even --optimizer adam -m 4 --schedule $how"
	done
	same_bits cpu:2 '--replicas 2 --optimizer adam -m 2 --recompute /[03]/Conv'
	same_bits cpu:2 '--replicas 2 --optimizer adam --recompute /[03]/Conv'
}

# bats test_tags=slow
@test "gradients that are large, clipped, compressed: the same bits" {
	large
	same_bits cpu:2 '--replicas 2 --optimizer adam'
	same_bits cpu:2 '--replicas 2 --optimizer adam --clip-norm 0.1'
	same_bits cpu:2 '--replicas 2 --optimizer adam --compress lowrank:2'
	same_bits cpu:2 '--replicas 2 --optimizer sgd --compress bf16 --clip-norm 0.1'
	same_bits cpu:4 '--replicas 2 -a even --optimizer momentum'
	same_bits cpu:3 '--replicas 3 --optimizer max-adabelief -m 2'
	small
	same_bits cpu:2 '--replicas 2 --optimizer adam --clip-norm 0.1'
	same_bits cpu:2 '--replicas 2 --optimizer momentum --compress cholesky:4 -m 2'
}

# bats test_tags=slow
@test "devices (stand-in): the same bits, alone and beside a CPU" {
	export DLB_PLUGIN_DIR=$BUILD/cuda-host
	[ -s "$DLB_PLUGIN_DIR/dlb-cuda.so" ] || skip "no stand-in for CUDA: make $BUILD/cuda-host/dlb-cuda.so"
	for make in small large; do
		$make
		for cluster in cuda:2 'cpu:1 cuda:1'; do
			same_bits "$cluster" '--replicas 2 --optimizer adam' --optimizer adam
			same_bits "$cluster" '--replicas 2 -m 2 --split even --optimizer momentum' --optimizer momentum
			same_bits "$cluster" '--replicas 2 --clip-norm 0.1 --optimizer adam' --optimizer adam
			for seed in 1 2 3; do
				DLB_CUDA_HOST_SEED=$seed same_bits "$cluster" '--replicas 2 --optimizer adam' --optimizer adam
			done
		done
	done
}

# bats test_tags=slow
@test "devices (stand-in): a checkpoint goes on with other stages, and on CPUs" {
	export DLB_PLUGIN_DIR=$BUILD/cuda-host
	[ -s "$DLB_PLUGIN_DIR/dlb-cuda.so" ] || skip "no stand-in for CUDA: make $BUILD/cuda-host/dlb-cuda.so"
	small
	for zero in 0 1 2 3; do
		made cuda:2 --replicas 2 --optimizer adam --zero $zero >"$tmp/gpu$zero.json"
		dlb-run -q --steps 3 "${digits[@]}" --checkpoint "$tmp/gpu$zero" "$tmp/gpu$zero.json" >"$tmp/out.json"
	done
	made cpu:2 --replicas 2 --optimizer adam --zero 3 >"$tmp/cpu3.json"
	for to in gpu0 gpu1 gpu3 cpu3; do
		for from in gpu0 gpu2 gpu3; do
			rm -rf "$tmp/on"
			cp -r "$tmp/$from" "$tmp/on"
			dlb-run -q --steps 3 "${digits[@]}" --checkpoint "$tmp/on" --save "$tmp/saved" "$tmp/$to.json" |
				jq -c .report.losses >"$tmp/$from.losses"
			sha256sum <"$tmp/saved" >>"$tmp/$from.losses"
			echo "$from $to"
			cmp "$tmp/gpu0.losses" "$tmp/$from.losses"
		done
	done
}

# bats test_tags=slow
@test "state is a share of what it was, in plan and program; stage 2 sends what no stage sends" {
	large
	for r in 2 3; do
		for zero in 0 1 2; do
			made "cpu:$r" --replicas "$r" --allreduce ring --optimizer adam --zero $zero -m 2 >"$tmp/$zero.json"
			validates "$tmp/$zero.json"
			dlb-run -q --dry-run --steps 2 "$tmp/$zero.json" | jq -c .report >"$tmp/$zero.report"
			dlb-run --print-program "$tmp/$zero.json" | grep -o 'state [0-9]*' | cut -d' ' -f2 >"$tmp/$zero.state"
		done
		weights=$(jq '[.graph.tensors[] | select(.kind == "weight").shape | reduce .[] as $d (1; . * $d)] | add * 4' "$tmp/0.json")
		for zero in 1 2; do
			paste "$tmp/0.state" "$tmp/$zero.state" | while read -r all divided; do
				# two states, each of an R-th of the weights, but for elements that do not divide
				saved=$((all - divided)) expected=$((2 * weights * (r - 1) / r))
				echo "$all $divided $expected"
				[ $((saved - expected)) -le 200 ] && [ $((expected - saved)) -le 200 ]
			done
		done
		jq -en --slurpfile none "$tmp/0.report" --slurpfile one "$tmp/1.report" --slurpfile two "$tmp/2.report" '
			($none[0].allreduce.bytes) as $n | $two[0].allreduce.bytes == $n and ($one[0].allreduce.bytes - 1.5 * $n | fabs) <= 1 and
			$two[0].allreduce.classes.weights.bytes * 2 == $n and $none[0].allreduce.classes.weights.bytes == 0'
	done
	# what is measured is what was predicted
	for zero in 0 1 2; do
		dlb-run -q --steps 2 "${digits[@]}" "$tmp/$zero.json" >"$tmp/out.json"
		[ "$(jq -c '.report.allreduce | .bytes, [.classes[].bytes]' "$tmp/out.json")" = "$(jq -c '.allreduce | .bytes, [.classes[].bytes]' "$tmp/$zero.report")" ]
	done
}

@test "stage 2 frees gradients in the backward phase, and lists what it does" {
	large
	for zero in 1 2; do
		made cpu:2 --replicas 2 --allreduce ring --optimizer adam --zero $zero >"$tmp/$zero.json"
		dlb-run --print-program "$tmp/$zero.json" | sed '/node 1:/,$d' >"$tmp/$zero.txt"
	done
	grep -q 'COLLECTIVE gather bucket .* weights, .* by ring.s second half' "$tmp/1.txt"
	grep -q 'COLLECTIVE reduce bucket .* by ring$' "$tmp/1.txt"
	grep -q 'COLLECTIVE reduce bucket .* by ring.s first half' "$tmp/2.txt"
	# lines with frees of gradients of weights before the last op of the backward phase
	early() { awk '/COMPUTE +run op/ {n = NR} /FREE .*\.grad. m=0$/ && /w[0-9]/ {at[NR]} END {for (l in at) k += l + 0 < n; print k + 0}' "$1"; }
	[ "$(early "$tmp/1.txt")" = 0 ]
	[ "$(early "$tmp/2.txt")" -ge 4 ]
	grep -q 'its share' "$tmp/2.txt"
	dlb-view "$tmp/2.json" | grep -q 'each keeps .* and of their gradients'
	jq -en --slurpfile a "$tmp/1.json" --slurpfile b "$tmp/2.json" '$b[0].plan.nodes[0].peak_bytes < $a[0].plan.nodes[0].peak_bytes'
}

# bats test_tags=slow
@test "a checkpoint goes on with other stages, replicas and nodes" {
	small
	made cpu:1 --optimizer adam >one.json
	for zero in 0 1 2 3; do
		made cpu:2 --replicas 2 --optimizer adam --zero $zero >two$zero.json
		made cpu:3 --replicas 3 --optimizer adam --zero $zero >three$zero.json
	done
	made cpu:4 --replicas 2 -a even --optimizer adam --zero 1 >four1.json
	made cpu:4 --replicas 2 -a even --optimizer adam --zero 3 >four3.json
	for from in two0 two1 two2 two3 three3 four1 four3; do
		dlb-run -q --steps 3 "${digits[@]}" --checkpoint "$tmp/$from" $from.json >"$tmp/out.json"
	done
	[ "$(jq -c '.shares["3.weight"] | map(.first)' "$tmp/two1/step-3/manifest.json")" = '[576,0]' ]
	[ "$(jq -c '.weight_shares["3.weight"] | map(.first)' "$tmp/two3/step-3/manifest.json")" = '[576,0]' ]
	[ "$(jq -c .weight_shares "$tmp/two2/step-3/manifest.json")" = null ]
	for to in one two0 two1 two2 two3 three0 three2 three3 four1 four3; do
		chosen || continue
		for from in two0 two1 two2 two3 four1 four3; do
			rm -rf "$tmp/on"
			cp -r "$tmp/$from" "$tmp/on"
			dlb-run -q --steps 3 "${digits[@]}" --checkpoint "$tmp/on" --save "$tmp/saved" $to.json | jq -c .report.losses >"$tmp/$from.losses"
			sha256sum <"$tmp/saved" >>"$tmp/$from.losses"
			echo "$from $to"
			cmp "$tmp/two0.losses" "$tmp/$from.losses"
		done
	done
}

# bats test_tags=slow
@test "a share that is missing or damaged: one line" {
	small
	made cpu:2 --replicas 2 --optimizer adam --zero 1 >"$tmp/doc.json"
	dlb-run -q --steps 2 "${digits[@]}" --checkpoint "$tmp/c" "$tmp/doc.json" >"$tmp/out.json"
	manifest=$tmp/c/step-2/manifest.json
	cp "$manifest" "$tmp/whole.json"
	cp "$tmp/c/step-2/SHA256SUMS" "$tmp/sums"
	# a manifest without checksums, of the oldest format, so that the shares themselves are looked at
	while read -r change said; do
		rm -f "$tmp/c/step-2/SHA256SUMS"
		jq "del(.files) | .[\"dlb-checkpoint\"] = \"1.1\" | $change" "$tmp/whole.json" >"$manifest"
		run -2 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" --checkpoint "$tmp/c" "$tmp/doc.json"
		one_line dlb-run "$said"
	done <<-'LIST'
		del(.shares["3.weight"][1]) has not all shares of 'optimizer/exp_avg/3.weight'
		(.shares["3.weight"][1].first|=9999) the manifest does not say where the shares
		(.shares["3.weight"][1].count|=5) is f32
	LIST
	cp "$tmp/whole.json" "$manifest"
	cp "$tmp/sums" "$tmp/c/step-2/SHA256SUMS"
	rm "$tmp/c/step-2/part-1.safetensors"
	run -2 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" --checkpoint "$tmp/c" "$tmp/doc.json"
	one_line dlb-run part-1.safetensors
}

@test "memory that is enough with shares only: the line without them says so" {
	large
	made cpu:2 --replicas 2 --optimizer adam >"$tmp/plain.json"
	most=$(jq '.plan.nodes[0].peak_bytes' "$tmp/plain.json")
	limit=cpu:2@$((most * 9 / 10000))K
	run -1 --separate-stderr made "$limit" --replicas 2 --optimizer adam
	one_line dlb-place '--zero 1'
	made "$limit" --replicas 2 --optimizer adam --zero 1 | jq -e ".plan.nodes[0].peak_bytes <= 0.9 * $most"
	made "$limit" --replicas 2 --optimizer adam --zero auto | jq -e ".plan.zero == 1 and .plan.nodes[0].peak_bytes <= 0.9 * $most"
	made cpu:2 --replicas 2 --optimizer adam --zero auto | jq -e '.plan.zero == null'
	# with stage 3 weights too
	made cpu:2 --replicas 2 --optimizer adam --zero 2 >"$tmp/two.json"
	least=$(jq '.plan.nodes[0].peak_bytes' "$tmp/two.json")
	limit=cpu:2@$((least * 9 / 10000))K
	run -1 --separate-stderr made "$limit" --replicas 2 --optimizer adam --zero 2
	one_line dlb-place '--zero 3'
	made "$limit" --replicas 2 --optimizer adam --zero auto | jq -e ".plan.zero == 3 and .plan.nodes[0].peak_bytes <= 0.9 * $least"
	run -2 --separate-stderr made cpu:2 --replicas 2 --zero 4
	one_line dlb-place '--zero wants 0, 1, 2, 3 or auto'
}

@test "where state cannot be divided: one line" {
	small
	dlb-costmodel -q -c cpu:2 "$profile" >"$tmp/cost.json"
	while IFS='|' read -r options said; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-place --zero 1 $options "$tmp/cost.json"
		one_line dlb-place "$said"
	done <<-'LIST'
		--replicas 2 --gossip 0.2|average their weights
		--replicas 2 --param-server 0|average their weights
		--replicas 2 --sync-every 3|average their weights
		--replicas 2 --optimizer max-adabelief --reduce moments|moments
		--replicas 2 -m 2 --schedule async|/plan/zero
		--micro-batches 2|--replicas
	LIST
	made cpu:2 --replicas 2 --optimizer adam --zero 2 >"$tmp/doc.json"
	for options in '--optimizer kfac' '--gossip 0.2' '--optimizer max-adabelief --reduce moments'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" $options "$tmp/doc.json"
		[[ "${stderr_lines[*]}" = *zero* ]] && [ "${#stderr_lines[@]}" = 1 ]
	done
	run -0 --separate-stderr dlb-place --replicas 2 --optimizer sgd --zero 1 "$tmp/cost.json"
	[[ "$stderr" = *'--zero has no effect'* ]]
}

# bats test_tags=slow
@test "memory measured: a process holds at least its planned bytes, and a simulated one none" {
	large
	made cpu:2 --replicas 2 --optimizer adam --zero 1 >"$tmp/doc.json"
	dlb-run -q --steps 2 "${digits[@]}" "$tmp/doc.json" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '[.report.nodes[] | .process_bytes >= .peak_bytes] | length == 2 and all' "$tmp/out.json"
	dlb-run -q --dry-run --steps 2 "$tmp/doc.json" | jq -e '[.report.nodes[].process_bytes] == [null, null]'
}

@test "one micro-batch on one node: sums of gradients are not planned for, since none are allocated" {
	small
	weights=$(jq '[.graph.tensors[] | select(.kind == "weight").shape | reduce .[] as $d (1; . * $d)] | add * 4' "$profile")
	for m in 1 2; do
		made cpu:1 --optimizer momentum -m $m >"$tmp/doc.json"
		dlb-run --print-program "$tmp/doc.json" | grep -o 'state [0-9]*' | cut -d' ' -f2 >"$tmp/$m"
	done
	[ $(($(cat "$tmp/2") - $(cat "$tmp/1"))) = "$weights" ]
	# weights, momenta, constants
	[ "$(cat "$tmp/1")" -lt $((2 * weights + 1000)) ]
}

@test "stage 3: each replica keeps a share of the weights, gathers them ahead of use, and frees them after it" {
	large
	for r in 2 3; do
		for zero in 2 3; do
			made "cpu:$r" -a single --replicas "$r" --allreduce ring --optimizer adam --zero $zero >"$tmp/$zero.json"
			validates "$tmp/$zero.json"
			dlb-run -q --dry-run --steps 2 "$tmp/$zero.json" | jq -c .report >"$tmp/$zero.report"
			dlb-run --print-program "$tmp/$zero.json" | sed '/node 1:/,$d' >"$tmp/$zero.txt"
			dlb-run --print-program "$tmp/$zero.json" | grep -o 'state [0-9]*' | cut -d' ' -f2 >"$tmp/$zero.state"
		done
		weights=$(jq '[.graph.tensors[] | select(.kind == "weight").shape | reduce .[] as $d (1; . * $d) | select(. >= 1024)] | add * 4' "$tmp/3.json")
		paste "$tmp/2.state" "$tmp/3.state" | while read -r all divided; do
			saved=$((all - divided)) expected=$((weights * (r - 1) / r))
			echo "$all $divided $expected"
			[ $((saved - expected)) -le 100 ] && [ $((expected - saved)) -le 100 ]
		done
		# each large weight twice, but those at the end of the forward phase, which the backward phase reads first
		jq -en --slurpfile a "$tmp/2.report" --slurpfile b "$tmp/3.report" "
			(\$b[0].allreduce.classes.weights.bytes - \$a[0].allreduce.classes.weights.bytes) as \$more |
			\$more > 0 and \$more <= $weights * ($r - 1) and \$b[0].allreduce.classes.gradient.bytes == \$a[0].allreduce.classes.gradient.bytes"
		jq -en --slurpfile a "$tmp/2.json" --slurpfile b "$tmp/3.json" '$b[0].plan.nodes[0].peak_bytes < 0.9 * $a[0].plan.nodes[0].peak_bytes'
		dlb-run -q --steps 2 "${digits[@]}" "$tmp/3.json" >"$tmp/out.json"
		[ "$(jq -c '.report.allreduce | .bytes, [.classes[].bytes]' "$tmp/out.json")" = "$(jq -c '.allreduce | .bytes, [.classes[].bytes]' "$tmp/3.report")" ]
	done
	# the second weight is on its way while the first is used
	grep -E "gathere?d? bucket .*weight|run op .*dense[01]'|FREE .*, whole" "$tmp/3.txt" | sed -E "s/^ *[0-9]+ +//; s/ bucket [0-9]+:|, [0-9]+ elements.*| tensor [0-9]+|weight [0-9]+|op [0-9]+| at .*//g" |
		head -6 >"$tmp/first"
	cat "$tmp/first"
	[ "$(grep -c . "$tmp/first")" = 6 ]
	[[ "$(sed -n 1p "$tmp/first")" = *"gather "*"'w0'" ]]
	[[ "$(sed -n 2p "$tmp/first")" = *"gather "*"'w1'" ]]
	[[ "$(sed -n 3p "$tmp/first")" = *"gathered "*"'w0'" ]]
	[[ "$(sed -n 4p "$tmp/first")" = COMPUTE*dense0* ]]
	[[ "$(sed -n 5p "$tmp/first")" = FREE*"'w0', whole" ]]
	dlb-view "$tmp/3.json" | grep -q 'each keeps its share of the weights, and the optimizer.s state of its share'
}

@test "stage 3: a weight of which a graph states the bytes alone: each replica keeps half of it" {
	dlb-profile -q --analytic "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 | jq -c 'del(.cost.inputs, .profile)
		| .graph.tensors |= map(if has("value") then . else .shape = null end)' >sizes.json
	gathered=$(jq '[.graph.tensors[] | select(.kind == "weight" and .size_bytes >= 4096).size_bytes] | add' sizes.json)
	for z in 2 3; do
		peak[z]=$(dlb-place -q -a single --replicas 2 --zero $z sizes.json | jq '.plan.nodes[0].peak_bytes')
	done
	[ "$gathered" -gt 0 ]
	[ $((peak[2] - peak[3])) -eq $((gathered / 2)) ]
}

@test "stage 3: fewer micro-batches for the least share are told in a line" {
	small
	jq '.cluster.nodes[1].speed = 0.05' "$root/share/clusters/fast-and-slow.json" >"$tmp/slow.json"
	dlb-costmodel -q -c "$tmp/slow.json" "$profile" >"$tmp/cost"
	run -0 --separate-stderr dlb-place --replicas 2 -m 4 --zero 3 --split power --optimizer adam "$tmp/cost"
	[[ $stderr = *'all replicas compute 1 micro-batch, not 4, since one has no more samples and --zero 3 gathers weights in one order'* ]]
	run -0 --separate-stderr dlb-place --replicas 2 -m 4 --zero 3 --split even --optimizer adam "$tmp/cost"
	[[ $stderr != *'all replicas compute'* ]]
}

# bats test_tags=slow
@test "stage 3 with pipelines, small states, recomputation: the same bits" {
	large
	stages='0 3'
	same_bits cpu:4 '--replicas 2 -a even --optimizer adam -m 4 --schedule 1f1b'
	same_bits cpu:4 '--replicas 2 -a random --seed 3 --optimizer adam -m 2'
	same_bits cpu:3 '--replicas 3 --optimizer adam -m 4 --clip-norm 0.1'
	same_bits cpu:2 '--replicas 2 --optimizer adam -m 2 --recompute relu*'
	same_bits cpu:2 '--replicas 2 --optimizer adam --state-dtype bf16'
	same_bits cpu:2 '--replicas 2 --optimizer adam -m 2 --state-dtype 8bit'
}

@test "stage 3: test data are evaluated by all replicas, with the results of whole weights" {
	large
	for zero in 0 3; do
		made cpu:4 --replicas 2 -a even --optimizer adam --zero $zero >"$tmp/doc.json"
		dlb-run -q --steps 4 "${digits[@]}" --test-data digits --eval-every 2 --lr 0.005 "$tmp/doc.json" |
			jq -c ".report | .losses, (.evaluations | map(del(.time_s)))" >"$tmp/$zero.evals"
	done
	grep -q accuracy "$tmp/0.evals"
	cmp "$tmp/0.evals" "$tmp/3.evals"
}

@test "stage 3: a share of a weight that is missing or damaged: one line" {
	small
	made cpu:2 --replicas 2 --optimizer adam --zero 3 >"$tmp/doc.json"
	dlb-run -q --steps 2 "${digits[@]}" --checkpoint "$tmp/c" "$tmp/doc.json" >"$tmp/out.json"
	cp "$tmp/c/step-2/manifest.json" "$tmp/whole.json"
	while read -r change said; do
		rm -f "$tmp/c/step-2/SHA256SUMS"
		jq "del(.files) | .[\"dlb-checkpoint\"] = \"1.1\" | $change" "$tmp/whole.json" >"$tmp/c/step-2/manifest.json"
		run -2 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" --checkpoint "$tmp/c" "$tmp/doc.json"
		one_line dlb-run "$said"
	done <<-'LIST'
		del(.weight_shares["3.weight"][1]) has not all shares of '3.weight'
		(.weight_shares["3.weight"][1].first|=9999) the manifest does not say where the shares of '3.weight'
		del(.weight_shares) '3.weight' is f32
	LIST
}

@test "stage 3: what needs whole weights is refused in one line" {
	small
	made cpu:2 --replicas 2 --optimizer adam --zero 3 >"$tmp/doc.json"
	run -2 --separate-stderr dlb-run -q --steps 4 "${digits[@]}" --buddy-every 2 "$tmp/doc.json"
	one_line dlb-run '--zero 3'
	run -2 --separate-stderr dlb-run -q --steps 4 "${digits[@]}" --freeze-at '0.*@2' "$tmp/doc.json"
	one_line dlb-run '--zero 3'
}
