#!/usr/bin/env bats
# Mixed precision, --dtype bf16: activations in bf16, parameters and losses in f32. It must learn like f32, give the same
# bits under every placement, send half the bytes, and save f32.
# shellcheck disable=SC2154	# what helper.bash and bats set
load helper

onnx=$DLB_TEST_DATA/onnx

setup() {
	tmp=$BATS_TEST_TMPDIR
}

# Makes a planned document: made DTYPE CLUSTER MODEL [DLB-PLACE OPTION...]
made() {
	local dtype=$1 cluster=$2 file=$3
	shift 3
	dlb-profile -q --analytic --batch "${batch:-16}" --dtype "$dtype" "$file" | dlb-costmodel -c "$cluster" | dlb-place -q "$@"
}

# |A / B - 1| <= TOLERANCE
within() { # A B TOLERANCE
	jq -n -e --argjson a "$1" --argjson b "$2" --argjson t "$3" '"\($a) beside \($b)", (($a / $b - 1) | fabs <= $t)'
}

@test "activations are bf16, parameters, their gradients, statistics and the loss f32" {
	dlb-profile -q --analytic --dtype bf16 "$model" >"$tmp/doc.json"
	jq -e '.graph | .dtype == "bf16" and
		([.tensors[] | select(.kind == "weight" or .kind == "weight-gradient" or .kind == "buffer") | .dtype] |
			length > 0 and all(. == "f32")) and
		(.tensors[.loss].dtype == "f32") and
		([.ops[] | select(.type == "Conv" or .type == "Relu" or .type == "ReluGrad") | .outputs[0]] as $t |
			[.tensors[$t[]].dtype] | length > 0 and all(. == "bf16")) and
		([.ops[] | select(.phase == "forward" and .type == "Cast")] | length <= 3)' "$tmp/doc.json"
}

# A single run is chaotic: rounding changes its sum of losses by up to some 2 %, either way, and differs between processors.
@test "digits: bf16 learns as f32 does, over three seeds" {
	for t in f32 bf16; do
		made $t cpu:1 "$model" >"$tmp/$t.doc"
		for seed in 1 2 3; do
			dlb-run -q --steps 150 --seed $seed "${digits[@]}" --optimizer adam --lr 0.005 "$tmp/$t.doc" >"$tmp/$t.$seed"
			jq -e '.report.losses | .[-1] < 0.5 * .[0]' "$tmp/$t.$seed"
		done
		jq -s 'map(.report.losses | add) | add' "$tmp/$t".[123] >"$tmp/$t"
	done
	within "$(cat "$tmp/bf16")" "$(cat "$tmp/f32")" 0.02
	[ "$(jq -c .report.losses "$tmp/f32.1")" != "$(jq -c .report.losses "$tmp/bf16.1")" ]	# other arithmetic, so other losses
}

# bats test_tags=slow
@test "a GPT on text: bf16's final loss within 1 % of f32's" {
	gpt_and_text
	rate=0.001
	[ "$gpt" != "$own/gpt/loss.onnx" ] || rate=0.01		# a quarter as wide
	for t in f32 bf16; do
		batch=8 made $t cpu:1 "$gpt" |
			dlb-run -q --steps 200 --data "text:$text" --optimizer adam --lr "$rate" --loss-log "$tmp/$t" >/dev/null
	done
	[ "$(wc -l <"$tmp/bf16")" -eq 200 ]
	within "$(tail -n 1 "$tmp/bf16")" "$(tail -n 1 "$tmp/f32")" 0.01
	awk 'NR == 1 { first = $NF } END { exit !($NF < 0.7 * first) }' "$tmp/bf16"
}

# bats test_tags=slow
@test "a residual network: bf16 follows f32 over 20 steps within a tenth" {
	net=$onnx/models/resnet20_cifar.train.op17.dyn.onnx fashion=/usr/share/datasets/fashion-mnist
	shape=,pad=2,channels=3
	[ -s "$net" ] || net=$models/resnet8.onnx shape=
	[ -s "$fashion/train-images-idx3-ubyte.gz" ] || skip 'no Fashion-MNIST (package dataset-fashion-mnist)'
	for t in f32 bf16; do
		batch=32 made $t cpu:1 "$net" | dlb-run -q --steps 20 --order sequential --optimizer momentum --lr 0.01 \
			--data "idx:$fashion/train-images-idx3-ubyte.gz,$fashion/train-labels-idx1-ubyte.gz" \
			--transform "scale=1/255$shape" >"$tmp/$t.json"
	done
	jq -n -e --slurpfile a "$tmp/bf16.json" --slurpfile b "$tmp/f32.json" \
		'[range(20) | ($a[0].report.losses[.] / $b[0].report.losses[.] - 1) | fabs] | max | ., . <= 0.1'
}

# bats test_tags=slow
@test "losses are bit-equal on one node, on two, and placed at random" {
	made bf16 cpu:1 "$model" -a single -m 4 | dlb-run -q --steps 12 "${digits[@]}" --optimizer adam | jq -c .report.losses >"$tmp/one"
	made bf16 cpu:2 "$model" -a even -m 4 | dlb-run -q --steps 12 "${digits[@]}" --optimizer adam | jq -c .report.losses >"$tmp/two"
	made bf16 cpu:2 "$model" -a random --seed 5 -m 4 | dlb-run -q --steps 12 "${digits[@]}" --optimizer adam |
		jq -c .report.losses >"$tmp/random"
	cmp "$tmp/one" "$tmp/two"
	cmp "$tmp/one" "$tmp/random"
	gpt_and_text
	for where in "cpu:1 -a single" "cpu:2 -a even" "cpu:2 -a random --seed 3"; do
		read -ra place <<<"$where"
		batch=4 made bf16 "${place[0]}" "$gpt" "${place[@]:1}" -m 2 | dlb-run -q --steps 4 --data random --optimizer adam |
			jq -c .report.losses
	done >"$tmp/gpt"
	[ "$(sort -u "$tmp/gpt" | wc -l)" -eq 1 ]
}

# bats test_tags=slow
@test "two nodes send each other half the bytes" {
	for t in f32 bf16; do
		made $t cpu:2 "$model" -a even | dlb-run -q --steps 3 "${digits[@]}" >"$tmp/$t.json"
	done
	within "$(jq '[.report.nodes[].bytes_sent] | add' "$tmp/bf16.json")" "$(jq '[.report.nodes[].bytes_sent] | add / 2' "$tmp/f32.json")" 0.1
}

@test "checkpoints and saved weights are f32, and go on in either type" {
	made bf16 cpu:1 "$model" >"$tmp/doc.json"
	dlb-run -q --steps 6 "${digits[@]}" --optimizer adam <"$tmp/doc.json" | jq -c '.report.losses[3:]' >"$tmp/whole"
	dlb-run -q --steps 3 "${digits[@]}" --optimizer adam --checkpoint "$tmp/ck" <"$tmp/doc.json" >/dev/null
	dlb-run -q --steps 3 "${digits[@]}" --optimizer adam --checkpoint "$tmp/ck" --save "$tmp/out.safetensors" <"$tmp/doc.json" |
		jq -c '.report.losses[-3:]' >"$tmp/rest"
	cmp "$tmp/whole" "$tmp/rest"
	grep -aq '"dtype":"F32"' "$tmp/out.safetensors"
	[ "$(grep -ac BF16 "$tmp/out.safetensors")" -eq 0 ]
	dlb-profile -q --analytic --batch 16 --weights "$tmp/out.safetensors" "$model" | dlb-costmodel -c cpu:1 | dlb-place -q |
		dlb-run -q --steps 1 "${digits[@]}" >/dev/null
}

@test "a processor without bf16: a line says so, and the losses are near" {
	export ONEDNN_MAX_CPU_ISA=AVX2
	run -0 --separate-stderr dlb-profile --analytic --batch 16 --dtype bf16 "$model"
	[[ $stderr == *"has no instructions for bf16"* ]]
	printf '%s' "$output" | dlb-costmodel -c cpu:1 | dlb-place -q | dlb-run -q --steps 5 "${digits[@]}" >"$tmp/without.json"
	unset ONEDNN_MAX_CPU_ISA
	made f32 cpu:1 "$model" | dlb-run -q --steps 5 "${digits[@]}" >"$tmp/f32.json"
	within "$(jq '.report.losses[-1]' "$tmp/without.json")" "$(jq '.report.losses[-1]' "$tmp/f32.json")" 0.01
}

@test "attention over 256 keys is one op, with log sums in f32, and its losses are near f32's" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 1 --width 32 --heads 2 --vocabulary 50 --sequence 256 "$tmp/gpt.onnx"
	for t in f32 bf16; do
		dlb-profile -q --analytic --batch 2 --loss next-token --dtype $t "$tmp/gpt.onnx" >"$tmp/$t.doc"
		dlb-costmodel -c cpu:1 <"$tmp/$t.doc" | dlb-place -q |
			dlb-run -q --init 1 --steps 3 --data random --optimizer sgd --lr 0.1 >"$tmp/$t.json"
	done
	jq -e '.graph as $g | [$g.ops[] | select(.type == "Softmax")] == [] and
		([$g.ops[] | select(.type == "StridedAttention") | [.outputs[] | select(. != null) | $g.tensors[.].dtype]] ==
			[["bf16", "f32"]])' "$tmp/bf16.doc"
	within "$(jq '.report.losses[-1]' "$tmp/bf16.json")" "$(jq '.report.losses[-1]' "$tmp/f32.json")" 0.002
	[ "$(jq -c .report.losses "$tmp/f32.json")" != "$(jq -c .report.losses "$tmp/bf16.json")" ]
}

@test "no other dtype" {
	run -2 --separate-stderr dlb-profile --dtype bf8 "$model"
	one_line dlb-profile "no dtype 'bf8': f32, bf16 or f64"
}
