#!/usr/bin/env bats
# Training beside PyTorch's own numbers (DLB_TEST_DATA/onnx/truth; tolerances from its README): the same exported
# model, data, order and optimizer must give the same losses. The accuracies after an epoch are measured by
# tests/bench/truth.
load helper

fashion=/usr/share/datasets/fashion-mnist
images=(--data "idx:$fashion/train-images-idx3-ubyte.gz,$fashion/train-labels-idx1-ubyte.gz" --order sequential)
onnx=$DLB_TEST_DATA/onnx

setup() {
	tmp=$BATS_TEST_TMPDIR
	[ -d "$onnx/truth" ] || skip "no truth data (DLB_TEST_DATA=$DLB_TEST_DATA)"
	[ -s "$fashion/train-images-idx3-ubyte.gz" ] || skip 'no Fashion-MNIST (package dataset-fashion-mnist)'
}

# Trains and keeps the losses in $tmp/losses: trained MODEL BATCH STEPS DTYPE NODES [DLB-RUN OPTION...]
trained() {
	local model=$1 batch=$2 steps=$3 dtype=$4 nodes=$5
	shift 5
	dlb-profile -q --analytic --batch "$batch" --dtype "$dtype" "$onnx/models/$model.train.op17.dyn.onnx" |
		dlb-costmodel -c "cpu:$nodes" | dlb-place -q -a even |
		dlb-run -q --steps "$steps" --loss-log "$tmp/losses" "$@" >/dev/null
	[ "$(wc -l <"$tmp/losses")" -eq "$steps" ]
}

# The largest relative error of the first N losses against TRUTH's member is at most TOLERANCE.
near() { # TRUTH MEMBER N TOLERANCE
	jq -n -e --slurpfile truth "$onnx/truth/$1.json" --rawfile log "$tmp/losses" --arg member "$2" --argjson n "$3" \
		--argjson tolerance "$4" '
		($log | split("\n") | map(select(. != "") | split(" ") | last | tonumber)) as $l |
		([range($n) | ($l[.] / $truth[0][$member][.] - 1) | fabs] | max) as $error |
		"\($n) losses of \($member): largest relative error \($error), at most \($tolerance)", ($error <= $tolerance)'
}

@test "mlp, SGD: 20 losses to 1e-4, 50 to 1e-3" {
	trained mlp 128 50 f32 1 "${images[@]}" --transform scale=1/255 --lr 0.1
	near mlp_fashion_e1.sgd losses 20 1e-4
	near mlp_fashion_e1.sgd losses 50 1e-3
}

@test "mlp, Adam: 20 losses to 1e-4, 50 to 1e-3" {
	trained mlp 128 50 f32 2 "${images[@]}" --transform scale=1/255 --optimizer adam --lr 0.001
	near mlp_fashion_e1.adam losses 20 1e-4
	near mlp_fashion_e1.adam losses 50 1e-3
}

@test "lenet5, SGD: 50 losses to 1e-3" {
	trained lenet5 128 50 f32 2 "${images[@]}" --transform scale=1/255 --lr 0.1
	near lenet5_fashion_e1.sgd losses 50 1e-3
}

@test "lenet5, Adam: 50 losses to 1e-2" {
	trained lenet5 128 50 f32 1 "${images[@]}" --transform scale=1/255 --optimizer adam --lr 0.001
	near lenet5_fashion_e1.adam losses 50 1e-2
}

@test "resnet20: the first loss to 1e-5, the trend of 20 within a tenth" {
	trained resnet20_cifar 32 20 f32 1 "${images[@]}" --transform scale=1/255,pad=2,channels=3 --optimizer momentum --lr 0.01
	near resnet20_fashion32.momentum losses 1 1e-5
	jq -n -e --slurpfile truth "$onnx/truth/resnet20_fashion32.momentum.json" --rawfile log "$tmp/losses" '
		($log | split("\n") | map(select(. != "") | split(" ") | last | tonumber) | add) / ($truth[0].losses | add) |
		., (. > 0.9 and . < 1.1)'
}

@test "mlp in f64: 50 losses to 1e-9" {
	trained mlp 128 50 f64 1 "${images[@]}" --transform scale=1/255 --lr 0.1
	near mlp_fashion_e1.sgd losses_f64 50 1e-9
	trained mlp 128 50 f64 2 "${images[@]}" --transform scale=1/255 --optimizer adam --lr 0.001
	near mlp_fashion_e1.adam losses_f64 50 1e-9
}

@test "lenet5 in f64: 50 losses to 1e-9" {
	trained lenet5 128 50 f64 1 "${images[@]}" --transform scale=1/255 --lr 0.1
	near lenet5_fashion_e1.sgd losses_f64 50 1e-9
}
