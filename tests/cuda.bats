#!/usr/bin/env bats
# The back end 'cuda' over the stand-in of tests/cuda-host: training, refusals, and a failure of each of its calls.
load helper

setup() {
	tmp=$BATS_TEST_TMPDIR
	export DLB_PLUGIN_DIR=$BUILD/cuda-host
	[ -s "$DLB_PLUGIN_DIR/dlb-cuda.so" ] || skip "no stand-in for CUDA: make $BUILD/cuda-host/dlb-cuda.so"
}

# The plan of share/models/digits_NAME.onnx: on CLUSTER NAME FILE [DLB-PLACE-OPTION...]
on() {
	local cluster=$1 profile=$BATS_FILE_TMPDIR/$2.json to=$3
	[ -s "$profile" ] || dlb-profile --analytic --batch 16 "$models/digits_$2.onnx" >"$profile" || return
	shift 3
	dlb-costmodel -q -c "$cluster" "$profile" | dlb-place -q "$@" >"$to"
}
# `pins`: the forward ops of digits_NAME in turns on nodes 0 .. N - 1; their gradients follow: pin NAME N
pin() {
	local op i=0
	on cpu:1 "$1" "$tmp/one.json" || return
	pins=()
	for op in $(jq -r '.graph.ops[] | select(.phase == "forward") | .name' "$tmp/one.json"); do
		pins+=(--pin "$op=$((i++ % $2))")
	done
}
train() { # DOCUMENT [DLB-RUN-OPTION...]: prints the losses
	local doc=$1
	shift
	dlb-run -q "${digits[@]}" --steps 6 "$@" "$doc" | jq -c .report.losses
}
# Weights of two files, equal but for 1e-5.
same_weights() { # FILE FILE
	python3 - "$1" "$2" <<-'END'
		import array, json, struct, sys
		def values(path):
		    data = open(path, 'rb').read()
		    end = 8 + struct.unpack('<Q', data[:8])[0]
		    return json.loads(data[8:end]), array.array('f', data[end:])
		(names, a), (same, b) = map(values, sys.argv[1:])
		assert names == same and len(a) == len(b) > 0
		assert max(abs(x - y) for x, y in zip(a, b)) < 1e-5, max(abs(x - y) for x, y in zip(a, b))
	END
}
close() { # LOSSES LOSSES: as many, and equal but for 1e-5
	jq -en --argjson a "$1" --argjson b "$2" \
		'($a | length) > 0 and ($a | length) == ($b | length) and ([$a, $b] | transpose | all((.[0] - .[1]) | fabs < 1e-5))' \
		>/dev/null || { echo "$1"; echo "$2"; return 1; }
}

# The losses on GPU-DOC are those on CPU-DOC, and have the same bits in every order of the queues.
same() { # CPU-DOC GPU-DOC SEEDS [DLB-RUN-OPTION...]
	local cpu gpu again seeds=$3 seed
	cpu=$(train "$1" "${@:4}") && gpu=$(train "$2" "${@:4}") && close "$cpu" "$gpu" || return
	for ((seed = 0; seed < seeds; seed++)); do
		again=$(DLB_CUDA_HOST_SEED=$seed train "$2" "${@:4}") || return
		[ "$again" = "$gpu" ] || { echo "seed $seed: $again, before $gpu"; return 1; }
	done
}
# The same for digits_mlp and digits_cnn, in 1 and 4 micro-batches, by two optimizers: alike CLUSTER N SEEDS
alike() {
	local name m rule
	for name in mlp cnn; do
		pin "$name" "$2"
		for m in 1 4; do
			on cpu:1 "$name" "$tmp/cpu.json" -m $m
			on "$1" "$name" "$tmp/gpu.json" -m $m "${pins[@]}"
			for rule in adam sgd; do
				echo "$name, $m micro-batches, $rule"
				same "$tmp/cpu.json" "$tmp/gpu.json" "$3" --optimizer $rule || return
			done
		done
	done
}

@test "dlb-profile --list says why the back end cannot be used" {
	run -0 dlb-profile --list
	[[ $output == *$'\ncuda '*' 1 device; convolution by cuDNN' ]]
	DLB_CUDA_HOST_CUDNN=0 run -0 dlb-profile --list
	[[ $output == *$'\ncuda '*' 1 device; convolution by cuBLAS (cuDNN: CUDNN_STATUS_NOT_INITIALIZED)' ]]
	mkdir "$tmp/none" "$tmp/other"
	DLB_PLUGIN_DIR=$tmp/none run -0 dlb-profile --list
	[[ $output == *$'\ncuda '*"cannot be used: back end 'cuda': no plug-in '$tmp/none/dlb-cuda.so'; build with CUDA=1"* ]]
	DLB_CUDA_HOST_DEVICES=0 run -0 dlb-profile --list
	[[ $output == *$'\ncuda '*"cannot be used: back end 'cuda': no CUDA-capable device is detected"* ]]
	command -v cc >/dev/null || skip 'no cc'
	cc -shared -fPIC -x c -o "$tmp/other/dlb-cuda.so" - <<<'const unsigned long dlb_plugin[8] = { 1 };'
	DLB_PLUGIN_DIR=$tmp/other run -0 dlb-profile --list
	[[ $output == *$'\ncuda '*'cannot be used: the plug-in is not of this version; build both from one source'* ]]
	on cuda:1 mlp "$tmp/doc"
	DLB_PLUGIN_DIR=$tmp/other run -2 --separate-stderr dlb-run "${digits[@]}" "$tmp/doc"
	one_line dlb-run "node 0 of kind 'cuda'" 'not of this version'
}

@test "a node of kind cuda is refused in one line without plug-in, device or memory" {
	on cuda:1 mlp "$tmp/doc"
	DLB_PLUGIN_DIR=$tmp run -2 --separate-stderr dlb-run "${digits[@]}" "$tmp/doc"
	one_line dlb-run "node 0 of kind 'cuda'" "no plug-in '$tmp/dlb-cuda.so'" 'set DLB_PLUGIN_DIR'
	DLB_CUDA_HOST_DEVICES=0 run -2 --separate-stderr dlb-run "${digits[@]}" "$tmp/doc"
	one_line dlb-run "node 0 of kind 'cuda'" 'no CUDA-capable device is detected'
	# from less than cuBLAS takes to all but the last constant
	for kib in 16384 32768 32784 32800 32832 32850 32870 32890 32910; do
		DLB_CUDA_HOST_MEMORY=$((kib * 1024)) run -2 --separate-stderr dlb-run "${digits[@]}" "$tmp/doc"
		one_line dlb-run 'memory' 'device cuda:0'
	done
	DLB_CUDA_HOST_MEMORY=40000000 dlb-run -q "${digits[@]}" --steps 1 "$tmp/doc" >"$tmp/out"
}

# bats test_tags=slow
@test "the table's unit tests pass on it" {
	export DLB_TEST_BACKEND=cuda DLB_CUDA_HOST_UNIFIED=1
	for test in maps softmax loops kernels bf16 optim rows attention cell batch_norm norm lines embedding rotary \
		in_place op_types state_codec; do
		run -0 "$BUILD/tests/test_$test"
	done
	DLB_TEST_BACKEND=cuda+fast run -0 "$BUILD/tests/test_embedding"
	DLB_CUDA_HOST_CUDNN=0 run -0 "$BUILD/tests/test_bf16"
}

# bats test_tags=long
@test "... and without cuDNN, where convolutions go by columns" {
	export DLB_TEST_BACKEND=cuda DLB_CUDA_HOST_UNIFIED=1 DLB_CUDA_HOST_CUDNN=0
	run -0 "$BUILD/tests/test_kernels"
}

# bats test_tags=slow
@test "exports of PyTorch train on it, every op, with the CPU's losses" {
	[ -d "$DLB_TEST_DATA/onnx/today" ] || skip "no exports in $DLB_TEST_DATA"
	# the first of each four are tried, so llama comes first
	for name in llama bert conv1d_ts dlrm gpt2 lenet gcn_scatter mha unet_gn lstm_lm vit_small pe_transformer mobilenet_v3_small vae \
		shufflenet norm_mean bert_mask llama_mask mlp; do
		[ -s "$DLB_TEST_DATA/onnx/today/$name/default.onnx" ] && chosen || continue
		dlb-profile -q --analytic -d cpu -d cuda "$DLB_TEST_DATA/onnx/today/$name/default.onnx" 2>"$tmp/err" >"$tmp/profile"
		for cluster in cpu:1 cuda:1; do
			dlb-costmodel -q -c "$cluster" "$tmp/profile" | dlb-place -q -a single |
				dlb-run -q --steps 3 --data random --optimizer sgd | jq -c '.report.losses' >"$tmp/$cluster"
		done
		echo "$name: $(cat "$tmp/cpu:1" "$tmp/cuda:1")"
		close "$(cat "$tmp/cpu:1")" "$(cat "$tmp/cuda:1")"
	done
}

# The engines of cuDNN that a run of the document executes, in a line: engines DOCUMENT
engines() {
	rm -f "$tmp/engines"
	DLB_CUDA_HOST_ENGINES=$tmp/engines train "$1" >"$tmp/losses" || return
	[ ! -e "$tmp/engines" ] || sort -u "$tmp/engines" | paste -s -d ' '
}

# bats test_tags=slow
@test "convolution takes cuDNN's first engine that is deterministic, precise and small; without cuDNN, columns" {
	on cuda:1 cnn "$tmp/doc"
	[ "$(engines "$tmp/doc")" = plane ]
	by_cudnn=$(cat "$tmp/losses")
	[ -z "$(DLB_CUDA_HOST_CUDNN=0 engines "$tmp/doc")" ]
	close "$by_cudnn" "$(cat "$tmp/losses")"
	# what a kind allows
	on cuda+fast:1 cnn "$tmp/fast"
	[ "$(engines "$tmp/fast")" = nondeterministic ]
	on cuda+tf32:1 cnn "$tmp/tf32"
	[[ "$(engines "$tmp/tf32")" = *tf32* ]]
	# the notes are what decides
	[ "$(DLB_CUDA_HOST_NOTES=0 engines "$tmp/doc")" = nondeterministic ]
	run ! close "$by_cudnn" "$(cat "$tmp/losses")"
	dlb-profile --analytic --batch 16 --dtype bf16 "$models/digits_cnn.onnx" |
		dlb-costmodel -q -c cuda:1 | dlb-place -q >"$tmp/doc"
	# gradients of weights are f32, of operands that TF32 holds
	[ "$(engines "$tmp/doc")" = 'tensor-core tf32' ]
	DLB_TEST_BACKEND=cuda DLB_CUDA_HOST_UNIFIED=1 DLB_CUDA_HOST_NOTES=0 run ! "$BUILD/tests/test_kernels"
	[[ $output == *'conv dir 0'*'output 0'* ]]
}

# bats test_tags=slow
@test "training on one device has the CPU's losses" {
	alike cuda:1 1 2
}

# bats test_tags=slow
@test "training on a CPU and a device in turns has the CPU's losses" {
	for name in mlp cnn; do
		pin $name 2
		on cpu:1 $name "$tmp/cpu.json" -m 4
		on 'cpu:1 cuda:1' $name "$tmp/gpu.json" -m 4 "${pins[@]}"
		same "$tmp/cpu.json" "$tmp/gpu.json" 2 --optimizer adam
	done
}

# bats test_tags=slow
@test "... in 1 and 4 micro-batches, by adam and sgd" {
	alike 'cpu:1 cuda:1' 2 3
}

# bats test_tags=long
@test "... in 50 orders of the queues" {
	alike cuda:1 1 50
	alike 'cpu:1 cuda:1' 2 50
}

# Steps 3 to 5 of 6 replay graphs (the first one warms up, and steps 2 and 6 are timed op by op): they have the bits of
# kernels that are started one by one, in every order of the queues: graphs DOCUMENT SEEDS [DLB-RUN-OPTION...]
graphs() {
	local doc=$1 seeds=$2 want seed seen='[.report.losses, .report.test_loss, .report.evaluations[]?.test_loss, .report.optimizer_violations]'
	dlb-run -q "${digits[@]}" --steps 6 --no-gpu-graph "${@:3}" "$doc" >"$tmp/plain" || return
	jq -e 'all(.report.nodes[]; has("graphs") | not)' "$tmp/plain" >/dev/null || return
	want=$(jq -c "$seen" "$tmp/plain")
	for ((seed = 0; seed < seeds; seed++)); do
		DLB_CUDA_HOST_SEED=$seed dlb-run -q "${digits[@]}" --steps 6 "${@:3}" "$doc" >"$tmp/run" || return
		[ "$(jq -c "$seen" "$tmp/run")" = "$want" ] || { echo "seed $seed: $(jq -c "$seen" "$tmp/run"), before $want"; return 1; }
		jq -e --slurpfile plan "$doc" '.report.nodes | to_entries | all(
			if $plan[0].cluster.nodes[.key].kind == "cuda" then .value.graph_steps == 3 and .value.graphs > 0 else true end)' \
			"$tmp/run" >/dev/null || { jq -c .report.nodes "$tmp/run"; return 1; }
	done
}

@test "replayed graphs have the bits of kernels that are started one by one" {
	on cuda:1 mlp "$tmp/doc"
	graphs "$tmp/doc" 3 --optimizer adam --lr-schedule step:1:0.7
	# all ops but the loss, which is alone between its labels and its seed
	jq -e '(.report.ops | length) as $ops | .report.nodes[0] | .graphs == 2 and .graph_ops == $ops - 1' "$tmp/run"
	# of a step: its learning rate, its number, its random numbers, the norm of its gradients
	on cuda:1 mlp "$tmp/doc" -m 2
	graphs "$tmp/doc" 2 --optimizer adamw --warmup 4 --clip-norm 0.1 --group '*.bias:lr=0.2' --test-data digits --eval-every 2
	dlb-profile -q --analytic --batch 16 --dropout '*Relu=0.4' "$models/digits_mlp.onnx" |
		dlb-costmodel -q -c cuda:1 | dlb-place -q -m 2 >"$tmp/doc"
	graphs "$tmp/doc" 2 --optimizer momentum
	[ "$(jq -c .report.losses "$tmp/run")" != "$(train "$tmp/doc" --optimizer momentum --seed 2 --no-gpu-graph)" ]
}

# bats test_tags=slow
@test "... in networks with convolutions, on a CPU and devices, with what updates count" {
	export DLB_CUDA_HOST_DEVICES=2
	for m in 1 4; do
		on cuda:1 cnn "$tmp/doc" -m $m
		graphs "$tmp/doc" 4 --optimizer max-adabelief --lr-schedule step:1:0.5
		jq -e '.report.optimizer_violations == 0' "$tmp/run"
		pin cnn 3
		on 'cpu:1 cuda:2' cnn "$tmp/doc" -m $m "${pins[@]}"
		graphs "$tmp/doc" 4 --optimizer adam --warmup 3
	done
	on 'cpu:1 cuda:1' cnn "$tmp/doc" --replicas 2 --clip-norm 0.5
	graphs "$tmp/doc" 3 --optimizer adam
	# a learning rate that grows: counted in each step, replayed or not
	on cuda:1 cnn "$tmp/doc"
	graphs "$tmp/doc" 2 --optimizer max-adabelief --lr 1 --warmup 6
	jq -e '.report.optimizer_violations > 0' "$tmp/run"
}

# bats test_tags=slow
@test "a weight that a replayed update makes infinite ends the run" {
	on cuda:1 cnn "$tmp/doc"
	for way in '' --no-gpu-graph; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run -q "${digits[@]}" --steps 6 --lr 1e-37 --lr-schedule step:2:1e38 $way "$tmp/doc"
		one_line dlb-run "the weight '3.weight' is not finite after step 4"
		err=$stderr
		[ -z "$way" ] || [ "$err" = "$was" ]
		was=$err
	done
}

@test "samples of a micro-batch are copied beside the kernels of those before" {
	on cuda:1 mlp "$tmp/doc" -m 4
	for way in '' --no-gpu-graph; do
		: >"$tmp/early"
		for seed in 1 2 3; do
			DLB_CUDA_HOST_SEED=$seed DLB_CUDA_HOST_EARLY=$tmp/early train "$tmp/doc" $way >/dev/null
		done
		# four samples of 64 numbers
		[ "$(grep -c '^1024$' "$tmp/early")" -gt 10 ]
	done
}

@test "memory of the device: as predicted, and of all nodes that share it" {
	on cuda:1 cnn "$tmp/doc"
	dlb-run -q "${digits[@]}" --steps 6 "$tmp/doc" >"$tmp/run"
	validates "$tmp/run"
	# a page or two for each allocation, and the kernels' own numbers
	jq -e '.report.nodes[0] | .device_bytes >= .peak_bytes and .device_bytes - .peak_bytes < 6e5' "$tmp/run"
	pin cnn 2
	on cuda:2 cnn "$tmp/doc" "${pins[@]}"
	need=$(jq '[.plan.nodes[].peak_bytes] | add' "$tmp/doc")
	# cuBLAS has 32 MiB
	DLB_CUDA_HOST_MEMORY=$((33554432 + need - 8192)) run -2 --separate-stderr dlb-run -q "${digits[@]}" "$tmp/doc"
	one_line dlb-run 'device cuda:0: its 2 nodes need' 'MB are free'
	DLB_CUDA_HOST_DEVICES=2 DLB_CUDA_HOST_MEMORY=40000000 dlb-run -q "${digits[@]}" --steps 1 "$tmp/doc" >"$tmp/run"
}

# bats test_tags=slow
@test "an asynchronous plan in turns has the CPU's losses" {
	pin mlp 2
	for staleness in none 2bw; do
		on 'cpu:1 cuda:1' mlp "$tmp/gpu.json" -m 4 --schedule async --staleness $staleness "${pins[@]}"
		# the losses depend on the place of each op
		mapfile -t all < <(jq -r '.graph.ops as $op | .plan.placement | to_entries[] |
			"--pin", "\($op[.key | tonumber].name)=\(.value)"' "$tmp/gpu.json")
		on cpu:2 mlp "$tmp/cpu.json" -m 4 --schedule async --staleness $staleness "${all[@]}"
		same "$tmp/cpu.json" "$tmp/gpu.json" 2 --optimizer momentum
	done
}

@test "the first samples are copied when fresh memory is zero" {
	on cpu:1 cnn "$tmp/cpu.json" -m 2
	pins=()
	for op in $(jq -r '.graph.ops | to_entries[] | select(.key % 3 > 0) | .value.name' "$tmp/cpu.json"); do
		pins+=(--pin "$op=1")
	done
	on 'cpu:1 cuda:1' cnn "$tmp/gpu.json" -m 2 "${pins[@]}"
	same "$tmp/cpu.json" "$tmp/gpu.json" 8
}

@test "replicas on devices: whole gradients, shares of states and of weights, clipped, and averages" {
	local how
	for how in '' '--zero 2' '--zero 3' '--zero 2 --clip-norm 0.1' '--sync-every 2'; do
		# shellcheck disable=SC2086	# words
		on 'cpu:1 cuda:1' mlp "$tmp/gpu.json" --replicas 2 --optimizer adam $how
		jq '{dlb, cluster} | .cluster.kinds[].backend = "cpu"' "$tmp/gpu.json" >"$tmp/cpus.cluster"
		# shellcheck disable=SC2086	# words
		dlb-costmodel -q --cluster "$tmp/cpus.cluster" "$BATS_FILE_TMPDIR/mlp.json" |
			dlb-place -q --replicas 2 --optimizer adam $how >"$tmp/cpu.json"
		echo "$how"
		train "$tmp/cpu.json" --steps 4 --save "$tmp/cpu.safetensors" >"$tmp/cpu.losses"
		train "$tmp/gpu.json" --steps 4 --save "$tmp/gpu.safetensors" >"$tmp/gpu.losses"
		close "$(cat "$tmp/cpu.losses")" "$(cat "$tmp/gpu.losses")"
		same_weights "$tmp/cpu.safetensors" "$tmp/gpu.safetensors"
	done
}

# bats test_tags=slow
@test "replicas on a CPU and a device, with clipping and without" {
	for clip in '' '--clip-norm 0.5'; do
		# shellcheck disable=SC2086
		on cpu:2 cnn "$tmp/cpu.json" --replicas 2 $clip
		# shellcheck disable=SC2086
		on 'cpu:1 cuda:1' cnn "$tmp/gpu.json" --replicas 2 $clip
		[ "$(jq .plan.replicas "$tmp/gpu.json")" != null ]
		same "$tmp/cpu.json" "$tmp/gpu.json" 4 --optimizer adam
	done
}

# bats test_tags=slow
@test "--cluster measures every device, and leaves it a core" {
	run -0 --separate-stderr dlb-profile --cluster -d cpu -d cuda
	[ -z "$stderr" ]
	jq -e '.cluster | (.nodes | length) as $n |
		([.nodes[] | select(.kind == "cuda")] | length == 1 and all(.memory_bytes > 1e9)) and
		([.nodes[] | select(.kind == "cpu")] | length) == ([1, ([.groups[] | select(.class == "host") | .cores] | add) - 1] | max)' \
		<<<"$output"
	jq -e '.cluster.kinds[] | select(.name == "cuda") | .device == "stand-in for a device, 1 multiprocessors, 1000 MHz" and
		([.peak_flops, .peak_bf16_flops, .bandwidth_Bps, .launch_s, .memory_bytes] | all(. > 0))' <<<"$output"
	jq -e '.cluster | .links[] | select(.class == "pcie") | .name == "pcie:cuda0" and .latency_s > 0 and .bandwidth_Bps > 0' <<<"$output"
	# far from what is measured
	jq '.cluster.kinds |= map(if .name == "cuda" then .peak_flops *= 20 else . end)' <<<"$output" >"$tmp/fast"
	run -1 --separate-stderr dlb-profile --check "$tmp/fast"
	[[ $stderr = *"kind cuda: "*"GFLOP/s here, "*"in the document"* ]]
	DLB_CUDA_HOST_DEVICES=0 run -1 --separate-stderr dlb-profile --check "$tmp/fast"
	[[ $stderr = *"kind cuda: back end 'cuda': "* ]]
	DLB_CUDA_HOST_DEVICES=2 run -0 --separate-stderr dlb-profile --cluster -d cuda
	jq -e '[.cluster.nodes[].kind] == ["cuda", "cuda"] and [.cluster.nodes[].group] == ["cuda0", "cuda1"]' <<<"$output"
	run -2 --separate-stderr dlb-profile --cluster -d cuda --topology "$tmp/none.xml"
	one_line dlb-profile "devices of back end 'cuda' are measured on this host alone" 'without --topology'
}

# bats test_tags=slow
@test "--tf32 and --fast-math are of the kind, from the profile to the report" {
	local flags kind model=$models/digits_mlp.onnx
	on cuda:1 mlp "$tmp/doc"
	plain=$(train "$tmp/doc" --optimizer sgd)
	while read -r kind flags; do
		# shellcheck disable=SC2086
		dlb-profile -q -d cuda $flags --batch 16 "$model" >"$tmp/profile"
		[ "$(jq -r '.profile.kinds[].name' "$tmp/profile")" = "$kind" ]
		dlb-costmodel -q -c "$kind:1" "$tmp/profile" | dlb-place -q >"$tmp/doc"
		dlb-run -q "${digits[@]}" --steps 6 --optimizer sgd "$tmp/doc" >"$tmp/run"
		losses=$(jq -c .report.losses "$tmp/run")
		# TF32 has 10 bits of fraction: the losses differ, but not by more than rounding of operands can make them
		[ "$kind" = cuda+fast ] || [ "$losses" != "$plain" ]
		jq -en --argjson a "$losses" --argjson b "$plain" '[$a, $b] | transpose | all((.[0] - .[1]) | fabs < 3e-3)'
		[ "$(jq .report.varies "$tmp/run")" = "$([[ $kind = *fast ]] && echo true || echo null)" ]
		[ "$(dlb-view "$tmp/run" | grep -c 'bits differ between runs')" = "$([[ $kind = *fast ]] && echo 1 || echo 0)" ]
	done <<-'END'
		cuda+tf32 --tf32
		cuda+fast --fast-math
		cuda+tf32+fast --tf32 --fast-math
	END
	run -2 --separate-stderr dlb-profile --tf32 "$model"
	one_line dlb-profile '--tf32 is for GPUs, and no -d names one' 'add -d cuda'
	run -2 --separate-stderr dlb-profile --fast-math -d cpu+fast "$model"
	one_line dlb-profile "back end 'cpu' has one way to compute" 'leave the plus'
	run -2 --separate-stderr dlb-profile -d cuda+fats "$model"
	one_line dlb-profile "no back end 'cuda+fats'" "what may follow a plus is 'tf32' or 'fast'"
}

# bats test_tags=slow
@test "each node has a device of its own while there are as many; else they share, and say so" {
	pin mlp 3
	on 'cuda:1 cpu:1 cuda:1' mlp "$tmp/doc" "${pins[@]}"
	DLB_CUDA_HOST_DEVICES=2 run -0 --separate-stderr dlb-run -q "${digits[@]}" --steps 2 "$tmp/doc"
	[ -z "$stderr" ]
	run -0 --separate-stderr dlb-run "${digits[@]}" --steps 2 "$tmp/doc"
	[[ $stderr = *'node 2 shares device cuda:0 with another node'* ]] || { echo "$stderr"; return 1; }
	[ "$(jq '.report.losses | length' <<<"$output")" = 2 ]
}

# bats test_tags=slow
@test "four ranks, two CPUs and two devices" {
	export DLB_CUDA_HOST_DEVICES=2
	for name in mlp cnn; do
		pin $name 4
		on cpu:1 $name "$tmp/cpu.json" -m 4
		on 'cpu:2 cuda:2' $name "$tmp/gpu.json" -m 4 "${pins[@]}"
		same "$tmp/cpu.json" "$tmp/gpu.json" 3 --optimizer adam
	done
}

@test "a checkpoint goes from a device to a CPU, and back" {
	on cpu:1 cnn "$tmp/cpu.json"
	on cuda:1 cnn "$tmp/gpu.json"
	whole=$(train "$tmp/cpu.json" --optimizer adam)
	for way in 'cpu gpu' 'gpu cpu' 'gpu gpu'; do
		read -r first second <<<"$way"
		rm -rf "$tmp/ck"
		a=$(dlb-run -q "${digits[@]}" --optimizer adam --steps 3 --checkpoint "$tmp/ck" "$tmp/$first.json" | jq -c .report.losses)
		b=$(dlb-run -q "${digits[@]}" --optimizer adam --until-step 6 --checkpoint "$tmp/ck" "$tmp/$second.json" | jq -c .report.losses)
		close "$whole" "$(jq -cn "$a + $b")"
	done
}

# bats test_tags=slow
@test "the test data's loss and accuracy, and the weights saved, are the CPU's" {
	on cpu:1 cnn "$tmp/cpu.json"
	for cluster in cuda:1 'cpu:1 cuda:1'; do
		pin cnn "$(wc -w <<<"$cluster")"
		on "$cluster" cnn "$tmp/gpu.json" "${pins[@]}"
		for kind in cpu gpu; do
			dlb-run -q "${digits[@]}" --optimizer adam --steps 6 --test-data digits --eval-every 3 --save "$tmp/$kind.safetensors" \
				"$tmp/$kind.json" | jq -c '.report | [.accuracy, .test_loss] + [.evaluations[] | .accuracy, .test_loss]' >"$tmp/$kind"
		done
		close "$(cat "$tmp/cpu")" "$(cat "$tmp/gpu")"
		same_weights "$tmp/cpu.safetensors" "$tmp/gpu.safetensors"
	done
}

# bats test_tags=slow
@test "averages of weights: the losses and the weights saved are the CPU's, also from a checkpoint" {
	local how cluster kind
	for how in '--sync-every 2' '--gossip 0.5 --sync-every 4' '--param-server 0' '--param-server 1 --sync-every 3'; do
		for cluster in cuda:2 'cpu:1 cuda:1'; do
			# shellcheck disable=SC2086	# words
			on "$cluster" cnn "$tmp/doc" --replicas 2 $how
			jq '{dlb, cluster} | .cluster.kinds[].backend = "cpu"' "$tmp/doc" >"$tmp/cpus.cluster"
			# shellcheck disable=SC2086	# words
			dlb-costmodel -q --cluster "$tmp/cpus.cluster" "$BATS_FILE_TMPDIR/cnn.json" | dlb-place -q --replicas 2 $how >"$tmp/cpus"
			for kind in cpus doc; do
				train "$tmp/$kind" --optimizer adam --save "$tmp/$kind.safetensors" >"$tmp/$kind.losses"
			done
			close "$(cat "$tmp/cpus.losses")" "$(cat "$tmp/doc.losses")"
			same_weights "$tmp/cpus.safetensors" "$tmp/doc.safetensors"
		done
		rm -rf "$tmp/ck"
		train "$tmp/doc" --optimizer adam --checkpoint "$tmp/ck" --checkpoint-every 3 >"$tmp/whole"
		rm -rf "$tmp/ck"/step-6
		train "$tmp/doc" --optimizer adam --checkpoint "$tmp/ck" --until-step 6 | jq -c '.[-3:]' >"$tmp/rest"
		[ "$(jq -c '.[-3:]' "$tmp/whole")" = "$(cat "$tmp/rest")" ]
	done
}

# bats test_tags=slow
@test "sums of moments: the losses and the weights saved are the CPU's, in any order of the queues" {
	local cluster kind how
	for cluster in cuda:2 'cpu:1 cuda:1'; do
		for how in '--reduce moments:mean' '--reduce moments:sum --max-state local'; do
			# shellcheck disable=SC2086	# words
			on "$cluster" cnn "$tmp/doc" --replicas 2 --optimizer max-adabelief $how
			jq '{dlb, cluster} | .cluster.kinds[].backend = "cpu"' "$tmp/doc" >"$tmp/cpus.cluster"
			# shellcheck disable=SC2086	# words
			dlb-costmodel -q --cluster "$tmp/cpus.cluster" "$BATS_FILE_TMPDIR/cnn.json" |
				dlb-place -q --replicas 2 --optimizer max-adabelief $how >"$tmp/cpus"
			for kind in cpus doc; do
				train "$tmp/$kind" --save "$tmp/$kind.safetensors" >"$tmp/$kind.losses"
			done
			close "$(cat "$tmp/cpus.losses")" "$(cat "$tmp/doc.losses")"
			same_weights "$tmp/cpus.safetensors" "$tmp/doc.safetensors"
			DLB_CUDA_HOST_SEED=3 train "$tmp/doc" | cmp - "$tmp/doc.losses"
		done
	done
}

# bats test_tags=slow
@test "asynchronous replicas: the CPU's losses by every rule, clipped, compressed, in any order of the queues, alone and beside CPUs" {
	local cluster how rule
	while IFS='|' read -r rule how; do
		for cluster in cuda:4 'cpu:2 cuda:2'; do
			# shellcheck disable=SC2086	# words
			on cpu:4 cnn "$tmp/cpus" --optimizer momentum -a even -m 2 --replicas 2 --schedule async --staleness "$rule" $how
			# shellcheck disable=SC2086	# words
			on "$cluster" cnn "$tmp/doc" --optimizer momentum -a even -m 2 --replicas 2 --split even --schedule async --staleness "$rule" $how
			echo "$cluster $rule $how"
			close "$(train "$tmp/cpus" --optimizer momentum)" "$(train "$tmp/doc" --optimizer momentum | tee "$tmp/losses")"
			[ "$cluster" = cuda:4 ] || continue
			DLB_CUDA_HOST_SEED=5 train "$tmp/doc" --optimizer momentum | cmp - "$tmp/losses"
		done
	done <<-'END'
		2bw|
		stash|--clip-norm 0.5
		predict|--compress bf16
		none|
	END
}

@test "what a device cannot do is refused in one line" {
	on cuda:1 mlp "$tmp/doc"
	run -2 --separate-stderr dlb-run "${digits[@]}" --optimizer kfac "$tmp/doc"
	one_line dlb-run 'node 0 computes on a device: it has no K-FAC' 'use another optimizer'
	while IFS='|' read -r what place run; do
		# shellcheck disable=SC2086
		on 'cpu:1 cuda:1' cnn "$tmp/doc" --replicas 2 $place
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run "${digits[@]}" --steps 2 $run "$tmp/doc"
		one_line dlb-run "node 1 computes on a device: it has no $what" 'nodes that compute in host memory'
	done <<-'END'
		K-FAC|--optimizer kfac|--optimizer kfac
	END
}

# ---- failures ----

# The plan $tmp/doc of digits_MODEL, a checkpoint of its step 3, $tmp/sound, and the losses of steps 4 to 6, `want`. Kernels
# are captured and replayed in the third step of a run.
three_steps() { # CLUSTER MODEL
	pin "$2" "$(wc -w <<<"$1")"
	on "$1" "$2" "$tmp/doc" "${pins[@]}"
	run_of=(dlb-run -q --timeout 20 "${digits[@]}" --optimizer adam --steps 3)
	"${run_of[@]}" --checkpoint "$tmp/sound" "$tmp/doc" >/dev/null
	cp -R "$tmp/sound" "$tmp/ck"
	want=$("${run_of[@]}" --checkpoint "$tmp/ck" "$tmp/doc" | jq -c .report.losses)
	export TMPDIR=$tmp/folders	# of ranks
	mkdir "$TMPDIR"
}

# Call N of the stand-in fails in the run. It ends with the losses, if the call has no effect on them; else with status 2
# and one line that names the device, and the checkpoint before is whole.
fail_call() { # N
	local status=0 err
	rm -rf "$tmp/ck" && cp -R "$tmp/sound" "$tmp/ck"
	DLB_CUDA_HOST_FAIL=$1 timeout 60 "${run_of[@]}" --save "$tmp/saved.safetensors" --checkpoint "$tmp/ck" "$tmp/doc" \
		>"$tmp/out" 2>"$tmp/err" 3>&- || status=$?
	# notes of AddressSanitizer about the stacks of the stand-in's threads
	sed -i '/__asan_handle_no_return\|^False positive error reports\|sanitizers\/issues\/189/d' "$tmp/err"
	err=$(cat "$tmp/err")
	(cd "$tmp/ck/step-3" && sha256sum -c --quiet SHA256SUMS) || return
	[ -z "$(ls -A "$TMPDIR")" ] || { echo "call $1 leaves $(ls -A "$TMPDIR")"; return 1; }
	if [ $status = 0 ]; then
		[ -z "$err" ] && [ "$(jq -c .report.losses "$tmp/out")" = "$want" ] && return
	elif [ $status = 2 ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" -eq 1 ]; then
		failed=$((failed + 1))
		# a kernel's failure has its op's name
		case $err in
		'dlb-run'*': device cuda:0: cudaLaunch'* | 'dlb-run'*': device cuda:0: cublasGemm'* | \
			'dlb-run'*': device cuda:0: cublasLtMatmul'* | \
			'dlb-run'*': device cuda:0: cudnnBackendExecute'*)
			[[ $err =~ ^dlb-run(\[[01]\])?:\ [^\ ]+:\ device ]] && return ;;
		'dlb-run'*'device cuda:0'* | 'dlb-run'*"back end 'cuda': no CUDA-capable device"*) return ;;
		esac
	fi
	echo "call $1, status $status: $err"
	cat "$tmp/out"
	return 1
}

# Each STEPth call, from FIRST to behind the last: every CLUSTER FIRST STEP LEAST MODEL, the least number of calls that matter
every() {
	local n behind=0 before
	failed=0
	three_steps "$1" "$5"
	for ((n = $2; behind < 40 || behind < 6 * $3; n += $3)); do
		before=$failed
		fail_call $n || return
		[ "$failed" -gt "$before" ] && behind=0 || behind=$((behind + $3))
	done
	echo "$failed calls fail the run"
	[ "$failed" -ge "$4" ]
}

@test "each 50th call fails" {
	every cuda:1 4 50 5 mlp
}

# bats test_tags=slow
@test "each 7th call fails" {
	every cuda:1 1 7 40 mlp
}

# bats test_tags=slow
@test "each 21st call fails where a CPU waits for the device" {
	every 'cpu:1 cuda:1' 3 21 13 mlp
}

# bats test_tags=slow
@test "each 41st call fails in a network with convolutions" {
	every cuda:1 1 41 20 cnn
}

# bats test_tags=long
@test "each call fails" {
	every cuda:1 1 1 300 mlp
}

# bats test_tags=long
@test "each call fails in a network with convolutions" {
	every cuda:1 1 1 300 cnn
}

# bats test_tags=long
@test "each call fails where a CPU waits for the device" {
	every 'cpu:1 cuda:1' 1 1 250 mlp
}
