#!/usr/bin/env bats
# Training beside PyTorch's own numbers: the same exported model, data, order and optimizer must give the same losses. Each
# test trains models of ours beside tests/data/truth/truth.json (tests/exports --own: losses and gradients, f32 and f64), then,
# where they are, those of DLB_TEST_DATA/onnx/truth on Fashion-MNIST and tinyshakespeare; tolerances from its README. The
# accuracies after an epoch are measured by tests/bench/truth.
load helper

fashion=/usr/share/datasets/fashion-mnist
onnx=$DLB_TEST_DATA/onnx
images=(--data "idx:$fashion/train-images-idx3-ubyte.gz,$fashion/train-labels-idx1-ubyte.gz" --order sequential)
images28=("${images[@]}" --transform scale=1/255)
images32=("${images[@]}" --transform 'scale=1/255,pad=2,channels=3')
text=(--data "tokens:$onnx/data/tinyshakespeare/input.txt" --order sequential)

setup() {
	tmp=$BATS_TEST_TMPDIR
	weights=()
}

own() { "$root/tests/exports" --own --bin "$BUILD/bin" "$@"; }

# Are there the curves of DLB_TEST_DATA and what they were trained on? They take minutes: with DLB_TEST_LONG.
curves() {
	[ -n "$DLB_TEST_LONG" ] && [ -d "$onnx/truth" ] && [ -s "$fashion/train-images-idx3-ubyte.gz" ]
}

# Trains and keeps the losses in $tmp/losses: trained MODEL BATCH STEPS DTYPE NODES [DLB-RUN OPTION...]
trained() {
	local model=$1 batch=$2 steps=$3 dtype=$4 nodes=$5
	shift 5
	dlb-profile -q --analytic --batch "$batch" --dtype "$dtype" "${weights[@]}" "$onnx/models/$model.train.op17.dyn.onnx" |
		dlb-costmodel -c "cpu:$nodes" | dlb-place -q -a even |
		dlb-run -q --steps "$steps" --loss-log "$tmp/losses" "$@" >/dev/null
	[ "$(wc -l <"$tmp/losses")" -eq "$steps" ]
}

# The largest relative error of the first N losses against TRUTH's member is at most TOLERANCE.
near() { # TRUTH MEMBER N TOLERANCE
	local truth=$onnx/truth/$1.json
	[ -f "$truth" ] || truth=$1
	jq -n -e --slurpfile truth "$truth" --rawfile log "$tmp/losses" --arg member "$2" --argjson n "$3" \
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

# In double precision the curves agree to 1e-9 as far as they go, batch normalization included.
exactly() { # TRUTH MODEL BATCH STEPS NODES [DLB-RUN OPTION...]
	local truth=$1 model=$2 batch=$3 steps=$4 nodes=$5
	shift 5
	trained "$model" "$batch" "$steps" f64 "$nodes" "$@"
	near "$truth" losses_f64 "$steps" 1e-9
}

# At the first step of mlp the input of hidden unit 86 is 1.16e-7 for sample 84: so near to Relu's kink that
# the rounding of a sum in f32 decides its side. Adam divides by the gradient's size and makes 4e-3 of it in
# 20 losses. Each side has its curve: TRUTH's, and that of weights with this unit's bias lowered by 1.3e-7, in
# f64 (which "exactly" compares with PyTorch). A run in f32 has to follow one of them. After the 20th loss
# more values cross their kinks: 1e-3.
near_either_side() { # TRUTH OPTION_OF_DLB_RUN...
	local truth=$1
	shift
	trained mlp 128 50 f32 2 "${images28[@]}" "$@"
	near "$truth" losses 20 1e-4 && near "$truth" losses 50 1e-3 && return
	cp "$tmp/losses" "$tmp/losses.f32"
	trained mlp 128 0 f64 1 "${images28[@]}" --save "$tmp/start.safetensors"
	python3 - "$tmp/start.safetensors" fc1.bias 86 -1.3e-7 <<'END'
import json, struct, sys
path, name, index, change = sys.argv[1:]
with open(path, 'r+b') as f:
    length, = struct.unpack('<Q', f.read(8))
    at = 8 + length + json.loads(f.read(length))[name]['data_offsets'][0] + 8 * int(index)
    f.seek(at)
    value, = struct.unpack('<d', f.read(8))
    f.seek(at)
    f.write(struct.pack('<d', value + float(change)))
END
	weights=(--weights "$tmp/start.safetensors")
	trained mlp 128 50 f64 1 "${images28[@]}" "$@"
	weights=()
	jq -n -R '{losses: [inputs | split(" ") | last | tonumber]}' "$tmp/losses" >"$tmp/other_side.json"
	cp "$tmp/losses.f32" "$tmp/losses"
	near "$tmp/other_side.json" losses 20 1e-4
	near "$tmp/other_side.json" losses 50 1e-3
}

# bats test_tags=slow
@test "mlp: SGD, Adam, AdaBelief, in f32 20 losses to 1e-4, 50 to 1e-3; in f64 50 to 1e-9" {
	own digits_mlp
	curves || return 0
	trained mlp 128 50 f32 1 "${images28[@]}" --lr 0.1
	near mlp_fashion_e1.sgd losses 20 1e-4
	near mlp_fashion_e1.sgd losses 50 1e-3
	near_either_side mlp_fashion_e1.adam --optimizer adam --lr 0.001
	near_either_side mlp_fashion_e1.adabelief --optimizer adabelief --lr 0.001 --eps 1e-8
	exactly mlp_fashion_e1.sgd mlp 128 50 1 "${images28[@]}" --lr 0.1
	exactly mlp_fashion_e1.adam mlp 128 50 2 "${images28[@]}" --optimizer adam --lr 0.001
	exactly mlp_fashion_e1.adabelief mlp 128 50 1 "${images28[@]}" --optimizer adabelief --lr 0.001 --eps 1e-8
}

# bats test_tags=slow
@test "lenet5: in f32 50 losses to 1e-3 by SGD, to 1e-2 by Adam; in f64 50 to 1e-9" {
	own digits_cnn lenet5
	curves || return 0
	trained lenet5 128 50 f32 2 "${images28[@]}" --lr 0.1
	near lenet5_fashion_e1.sgd losses 50 1e-3
	trained lenet5 128 50 f32 1 "${images28[@]}" --optimizer adam --lr 0.001
	near lenet5_fashion_e1.adam losses 50 1e-2
	exactly lenet5_fashion_e1.sgd lenet5 128 50 1 "${images28[@]}" --lr 0.1
	exactly lenet5_fashion_e1.adam lenet5 128 50 2 "${images28[@]}" --optimizer adam --lr 0.001
}

# bats test_tags=slow
@test "networks with batch normalization: in f32 the first loss to 1e-5, the trend within a tenth; in f64 all to 1e-9" {
	own resnet8
	curves || return 0
	trained resnet20_cifar 32 20 f32 1 "${images32[@]}" --optimizer momentum --lr 0.01
	near resnet20_fashion32.momentum losses 1 1e-5
	trend resnet20_fashion32.momentum
	trained inception_small 32 10 f32 1 "${images32[@]}" --optimizer momentum --lr 0.01
	near inception_small_fashion32.momentum losses 1 1e-5
	trend inception_small_fashion32.momentum
	exactly inception_small_fashion32.momentum inception_small 32 10 1 "${images32[@]}" --optimizer momentum --lr 0.01
	exactly resnet20_fashion32.momentum resnet20_cifar 32 20 2 "${images32[@]}" --optimizer momentum --lr 0.01
}

# bats test_tags=slow
@test "GPT of 2 layers on text, SGD, Adam, AdamW: in f32 20 losses to 1e-4, in f64 to 1e-9" {
	own gpt/legacy
	curves || return 0
	trained gpt_2l 8 20 f32 1 "${text[@]}" --lr 0.1
	near gpt2l_shakespeare.sgd losses 20 1e-4
	trained gpt_2l 8 20 f32 2 "${text[@]}" --optimizer adam --lr 0.001
	near gpt2l_shakespeare.adam losses 20 1e-4
	trained gpt_2l 8 20 f32 1 "${text[@]}" --optimizer adamw --lr 0.001
	near gpt2l_shakespeare.adamw losses 20 1e-4
	exactly gpt2l_shakespeare.sgd gpt_2l 8 20 1 "${text[@]}" --lr 0.1
	exactly gpt2l_shakespeare.adam gpt_2l 8 20 2 "${text[@]}" --optimizer adam --lr 0.001
	exactly gpt2l_shakespeare.adamw gpt_2l 8 20 1 "${text[@]}" --optimizer adamw --lr 0.001
}

# bats test_tags=slow
@test "LSTM and mixture of experts: in f32 20 losses to 1e-4, 50 to 1e-3; in f64 to 1e-9" {
	own experts/legacy
	curves || return 0
	trained lstm_lm 16 20 f32 2 "${text[@]}" --optimizer adam --lr 0.001
	near lstm_shakespeare.adam losses 20 1e-4
	trained moe 128 50 f32 2 "${images28[@]}" --optimizer adam --lr 0.001
	near moe_fashion.adam losses 20 1e-4
	near moe_fashion.adam losses 50 1e-3
	exactly lstm_shakespeare.adam lstm_lm 16 20 1 "${text[@]}" --optimizer adam --lr 0.001
	exactly moe_fashion.adam moe 128 50 1 "${images28[@]}" --optimizer adam --lr 0.001
}

@test "no curve is left out" {
	for file in "$onnx"/truth/*.json; do
		[ -e "$file" ] || continue
		name=${file##*/}
		name=${name%.json}
		grep -Eq "near(_either_side)? $name (losses|--)" "$BATS_TEST_FILENAME" || { echo "$name: not compared in f32"; false; }
		grep -q "exactly $name " "$BATS_TEST_FILENAME" || { echo "$name: not compared in f64"; false; }
	done
}

# The forward vectors: as a case in ONNX's layout, run by its op tests' program. Of our own the outputs for two samples.
@test "outputs of mlp, lenet5, resnet20, GPT, mixture of experts and dlrm" {
	python3 - "$root/tests/data" "$tmp/cases" <<-'END'
		import json, os, shutil, struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import num, sub
		from truth_inputs import inputs
		def write(path, name, code, shape, numbers):
		    raw = struct.pack('<%d%s' % (len(numbers), code), *numbers)
		    open(path, 'wb').write(b''.join(num(1, d) for d in shape) + num(2, 7 if code == 'q' else 1) + sub(8, name) + sub(9, raw))
		for name, t in json.load(open(sys.argv[1] + '/truth/truth.json'))['models'].items():
		    if 'outputs' not in t:
		        continue
		    folder, own = '%s/%s' % (sys.argv[2], name), '%s/truth/%s/legacy.onnx' % (sys.argv[1], name)
		    os.makedirs(folder + '/test_data_set_0')
		    shutil.copy(own if os.path.exists(own) else '%s/../../share/models/%s.onnx' % (sys.argv[1], name), folder + '/model.onnx')
		    for i, (_, code, shape, numbers) in enumerate(inputs(t['inputs'], 2)[:-1]):
		        write('%s/test_data_set_0/input_%d.pb' % (folder, i), 'x', code, shape, numbers)
		    write(folder + '/test_data_set_0/output_0.pb', 'y', 'f', *t['outputs'])
	END
	run -0 "$BUILD/tests/onnx-cases" --atol 1e-6 "$tmp/cases"
	[ "${lines[-1]}" = '6 passed, 0 failed, 0 unsupported' ]
	[ -d "$onnx/truth" ] || return 0
	rm -r "$tmp/cases"
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
