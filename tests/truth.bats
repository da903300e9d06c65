#!/usr/bin/env bats
# Training compared with PyTorch's own numbers (DLB_TEST_DATA/onnx/truth; tolerances from its README): the same exported
# model, data, order and optimizer must give the same losses. tests/bench/truth measures the accuracies after an epoch.
# tests/bench/truth.
load helper

fashion=/usr/share/datasets/fashion-mnist
onnx=$DLB_TEST_DATA/onnx
images=(--data "idx:$fashion/train-images-idx3-ubyte.gz,$fashion/train-labels-idx1-ubyte.gz" --order sequential)
images28=("${images[@]}" --transform scale=1/255)
images32=("${images[@]}" --transform 'scale=1/255,pad=2,channels=3')
text=(--data "tokens:$onnx/data/tinyshakespeare/input.txt" --order sequential)

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

# The mean of all losses is within a tenth of TRUTH's.
trend() { # TRUTH
	jq -n -e --slurpfile truth "$onnx/truth/$1.json" --rawfile log "$tmp/losses" '
		($log | split("\n") | map(select(. != "") | split(" ") | last | tonumber) | add) / ($truth[0].losses | add) |
		., (. > 0.9 and . < 1.1)'
}

@test "mlp, SGD: 20 losses to 1e-4, 50 to 1e-3" {
	trained mlp 128 50 f32 1 "${images28[@]}" --lr 0.1
	near mlp_fashion_e1.sgd losses 20 1e-4
	near mlp_fashion_e1.sgd losses 50 1e-3
}

@test "mlp, Adam: 20 losses to 1e-4, 50 to 1e-3" {
	trained mlp 128 50 f32 2 "${images28[@]}" --optimizer adam --lr 0.001
	near mlp_fashion_e1.adam losses 20 1e-4
	near mlp_fashion_e1.adam losses 50 1e-3
}

@test "lenet5, SGD: 50 losses to 1e-3" {
	trained lenet5 128 50 f32 2 "${images28[@]}" --lr 0.1
	near lenet5_fashion_e1.sgd losses 50 1e-3
}

@test "lenet5, Adam: 50 losses to 1e-2" {
	trained lenet5 128 50 f32 1 "${images28[@]}" --optimizer adam --lr 0.001
	near lenet5_fashion_e1.adam losses 50 1e-2
}

@test "resnet20: the first loss to 1e-5, the trend of 20 within a tenth" {
	trained resnet20_cifar 32 20 f32 1 "${images32[@]}" --optimizer momentum --lr 0.01
	near resnet20_fashion32.momentum losses 1 1e-5
	trend resnet20_fashion32.momentum
}

@test "inception_small: the first loss to 1e-5, the trend of 10 within a tenth" {
	trained inception_small 32 10 f32 1 "${images32[@]}" --optimizer momentum --lr 0.01
	near inception_small_fashion32.momentum losses 1 1e-5
	trend inception_small_fashion32.momentum
}

@test "mlp, AdaBelief: 20 losses to 1e-4, 50 to 1e-3" {
	trained mlp 128 50 f32 2 "${images28[@]}" --optimizer adabelief --lr 0.001 --eps 1e-8
	near mlp_fashion_e1.adabelief losses 20 1e-4
	near mlp_fashion_e1.adabelief losses 50 1e-3
}

@test "GPT of 2 layers on text, SGD, Adam, AdamW: 20 losses to 1e-4" {
	trained gpt_2l 8 20 f32 1 "${text[@]}" --lr 0.1
	near gpt2l_shakespeare.sgd losses 20 1e-4
	trained gpt_2l 8 20 f32 2 "${text[@]}" --optimizer adam --lr 0.001
	near gpt2l_shakespeare.adam losses 20 1e-4
	trained gpt_2l 8 20 f32 1 "${text[@]}" --optimizer adamw --lr 0.001
	near gpt2l_shakespeare.adamw losses 20 1e-4
}

@test "LSTM on text, Adam: 20 losses to 1e-4" {
	trained lstm_lm 16 20 f32 2 "${text[@]}" --optimizer adam --lr 0.001
	near lstm_shakespeare.adam losses 20 1e-4
}

@test "mixture of experts, Adam: 20 losses to 1e-4, 50 to 1e-3" {
	trained moe 128 50 f32 2 "${images28[@]}" --optimizer adam --lr 0.001
	near moe_fashion.adam losses 20 1e-4
	near moe_fashion.adam losses 50 1e-3
}

# In double precision the curves agree to 1e-9 over their whole length, also with batch normalization.
exactly() { # TRUTH MODEL BATCH STEPS NODES [DLB-RUN OPTION...]
	local truth=$1 model=$2 batch=$3 steps=$4 nodes=$5
	shift 5
	trained "$model" "$batch" "$steps" f64 "$nodes" "$@"
	near "$truth" losses_f64 "$steps" 1e-9
}

@test "mlp in f64: 50 losses to 1e-9" {
	exactly mlp_fashion_e1.sgd mlp 128 50 1 "${images28[@]}" --lr 0.1
	exactly mlp_fashion_e1.adam mlp 128 50 2 "${images28[@]}" --optimizer adam --lr 0.001
	exactly mlp_fashion_e1.adabelief mlp 128 50 1 "${images28[@]}" --optimizer adabelief --lr 0.001 --eps 1e-8
}

@test "lenet5 in f64: 50 losses to 1e-9" {
	exactly lenet5_fashion_e1.sgd lenet5 128 50 1 "${images28[@]}" --lr 0.1
	exactly lenet5_fashion_e1.adam lenet5 128 50 2 "${images28[@]}" --optimizer adam --lr 0.001
}

@test "networks with batch normalization in f64: 10 and 20 losses to 1e-9" {
	exactly inception_small_fashion32.momentum inception_small 32 10 1 "${images32[@]}" --optimizer momentum --lr 0.01
	exactly resnet20_fashion32.momentum resnet20_cifar 32 20 2 "${images32[@]}" --optimizer momentum --lr 0.01
}

@test "GPT, LSTM, mixture of experts in f64: 20 and 50 losses to 1e-9" {
	exactly gpt2l_shakespeare.sgd gpt_2l 8 20 1 "${text[@]}" --lr 0.1
	exactly gpt2l_shakespeare.adam gpt_2l 8 20 2 "${text[@]}" --optimizer adam --lr 0.001
	exactly gpt2l_shakespeare.adamw gpt_2l 8 20 1 "${text[@]}" --optimizer adamw --lr 0.001
	exactly lstm_shakespeare.adam lstm_lm 16 20 1 "${text[@]}" --optimizer adam --lr 0.001
	exactly moe_fashion.adam moe 128 50 1 "${images28[@]}" --optimizer adam --lr 0.001
}

@test "no curve is left out" {
	for file in "$onnx"/truth/*.json; do
		name=${file##*/}
		name=${name%.json}
		grep -q "near $name losses " "$BATS_TEST_FILENAME" || { echo "$name: not compared in f32"; false; }
		grep -q "exactly $name " "$BATS_TEST_FILENAME" || { echo "$name: not compared in f64"; false; }
	done
}

# The forward vectors: each is made a case in ONNX's layout and run by the program of the op tests.
@test "outputs of mlp, lenet5, resnet20, GPT, mixture of experts and dlrm" {
	for folder in "$onnx"/truth/fwd_*; do
		name=${folder##*/fwd_}
		mkdir -p "$tmp/cases/$name"
		cp -R "$folder/test_data_set_0" "$tmp/cases/$name/"
		cp "$onnx/models/$name.train.op17.dyn.onnx" "$tmp/cases/$name/model.onnx"
		chmod -R u+w "$tmp/cases/$name"
	done
	run -0 "$BUILD/tests/onnx-cases" --atol 1e-6 "$tmp/cases"
	[ "${lines[-1]}" = '6 passed, 0 failed, 0 unsupported' ]
}
