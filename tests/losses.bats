#!/usr/bin/env bats
# The losses of --loss from the model to the run, messages about unsuitable labels, and functions that an export for
# inference lacks in training: --batchnorm, --dropout. Values and gradients against PyTorch's: unit test_losses.
load helper

setup_file() {
	cd "$BATS_FILE_TMPDIR" || return
	python3 - <<-'END'
		import random, struct
		def npy(path, descr, shape, code, data):
		    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
		    head += ' ' * (63 - (10 + len(head)) % 64) + '\n'
		    with open(path, 'wb') as f:
		        f.write(b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode() + struct.pack('<%d%s' % (len(data), code), *data))
		random.seed(1)
		n = 16
		npy('x.npy', '<f4', (n, 1, 8, 8), 'f', [random.random() for _ in range(64 * n)])
		y = [random.randrange(10) for _ in range(n)]
		npy('y.npy', '<i8', (n,), 'q', y)
		npy('some.npy', '<i8', (n,), 'q', [-100 if i % 3 == 0 else v for i, v in enumerate(y)])
		npy('wrong.npy', '<i8', (n,), 'q', y[:3] + [900] + y[4:])
		hot = [float(y[i // 10] == i % 10) for i in range(10 * n)]
		npy('hot.npy', '<f4', (n, 10), 'f', hot)
		npy('soft.npy', '<f8', (n, 10), 'd', [.1 + .8 * v for v in hot])
		npy('high.npy', '<f4', (n, 10), 'f', hot[:25] + [1.5] + hot[26:])
	END
}
set -o pipefail
setup() { cd "$BATS_FILE_TMPDIR" || return; doc=$BATS_TEST_TMPDIR/doc.json; }

make() { # M DLB-PROFILE OPTION... >DOCUMENT
	local m=$1
	shift
	dlb-profile -q --analytic --batch 8 "$@" "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 | dlb-place -a even -m "$m"
}
train() { # LABELS M DLB-PROFILE OPTION...
	local labels=$1
	shift
	make "$@" | dlb-run --steps 4 --order sequential --lr 0.1 --data "npy:x.npy$labels" | jq -c .report.losses
}
first() { train "$@" | jq '.[0]'; }
# Numbers that agree up to rounding of f32.
same() { jq -en "[$1, $2] | flatten | . as \$a | [range(length / 2) | (\$a[.] - \$a[. + (\$a | length) / 2]) / ([1, (\$a[.] | fabs)] | max) | fabs] | max < 5e-6"; }

# bats test_tags=slow
@test "losses are added up with their factors, each with labels of its own" {
	ce=$(first ,y.npy 1 --loss cross-entropy)
	mse=$(first ,hot.npy 1 --loss mse)
	both=$(first ,y.npy,hot.npy 1 --loss cross-entropy --loss 'y=mse*0.25')
	same "$both" "$ce + 0.25 * $mse"
	same "$(train ,y.npy,hot.npy 1 --loss cross-entropy --loss 'mse*0.25')" "$(train ,y.npy,hot.npy 4 --loss cross-entropy --loss 'mse*0.25')"
	run -2 --separate-stderr train ,y.npy 1 --loss cross-entropy --loss mse
	[[ $stderr == *"name 2 files, the model has 3 inputs: 'x', 'y.label' (labels), 'y.label.2' (labels)"* ]]
	run -2 --separate-stderr train ,some.npy,hot.npy 4 --loss cross-entropy --loss mse
	[[ $stderr == *"of the labels that count, and the model has several losses"* ]]
	train ,some.npy,hot.npy 1 --loss cross-entropy --loss mse
}

# bats test_tags=slow
@test "micro-batches weigh by what the loss counts: ignored labels, weights of classes" {
	for loss in cross-entropy cross-entropy,weights=1/2/3/4/5/.1/.2/.3/.4/.5 cross-entropy,smoothing=0.1,weights=1/2/3/4/5/.1/.2/.3/.4/.5; do
		same "$(train ,some.npy 1 --loss "$loss")" "$(train ,some.npy 3 --loss "$loss")"
	done
	[ "$(train ,some.npy 1)" = "$(train ,some.npy 1 --loss cross-entropy)" ]
	[ "$(train ,some.npy 1)" != "$(train ,some.npy 1 --loss cross-entropy,smoothing=0.1)" ]
}

# bats test_tags=slow
@test "every loss trains the same in one micro-batch and in several" {
	for labels in hot soft; do
		for loss in bce bce,pos-weight=3 mse l1 huber:0.5 smooth-l1:0.5 kl; do
			chosen || continue
			same "$(train ,$labels.npy 1 --loss $loss)" "$(train ,$labels.npy 4 --loss $loss)" || { echo "$loss $labels"; false; }
		done
	done
	same "$(train '' 1 --loss sum)" "$(train '' 4 --loss sum)"
}

# bats test_tags=slow
@test "labels that do not fit are told with file, byte, sample and range" {
	run -2 --separate-stderr train ,wrong.npy 1
	[[ $stderr == *"wrong.npy: byte "*": label 900 of sample 3 is outside the model's 0 to 9"* ]]
	run -2 --separate-stderr train ,high.npy 1 --loss bce
	[[ $stderr == *"high.npy: byte "*": label 1.5 of sample 2 is outside what input 'label' takes, 0 to 1"* ]]
	run -2 --separate-stderr train ,hot.npy 1
	[[ $stderr == *"labels of "*"input 'label' wants"* || $stderr == *"samples of 10"* ]]
}

@test "--loss: one line for what is not understood" {
	for word in "mze:did you mean 'mse'" "q=mse:no output 'q'" 'next-token:samples, positions and tokens' \
		'bce,smoothing=0.1:bce has no option' 'mse*-1:factor is more than 0'; do
		run -2 --separate-stderr dlb-profile --analytic --loss "${word%%:*}" "$models/digits_mlp.onnx"
		[[ ${#stderr_lines[@]} -eq 1 && -z $output && $stderr == *"${word#*:}"* ]] || { echo "$word: $stderr"; false; }
	done
}

# Types of the vertices of a document, each once.
types() { jq -r '.graph.ops[].type' "$1" | sort -u; }

@test "--batchnorm frozen keeps the running statistics" {
	dlb-profile --analytic --batch 8 --batchnorm frozen "$models/resnet8.onnx" 2>"$BATS_TEST_TMPDIR/said" >"$doc"
	grep -q '9 BatchNormalization use the running statistics, which stay as they are' "$BATS_TEST_TMPDIR/said"
	validates "$doc"
	types "$doc" | grep -qx BatchNormalizationGradInfer
	run ! grep -qx BatchNormalizationGrad <(types "$doc")
	run -0 --separate-stderr dlb-profile --analytic --batch 8 --batchnorm train "$models/resnet8.onnx"
	[ -z "$stderr" ]
	dlb-profile --analytic --batch 8 "$models/resnet8.onnx" | diff <(jq -S .graph) <(jq -S .graph <<<"$output")
	run -2 --separate-stderr dlb-profile --batchnorm off "$models/resnet8.onnx"
	one_line dlb-profile "no batchnorm 'off'"
	run -2 --separate-stderr dlb-profile --inference --batchnorm train "$models/resnet8.onnx"
	one_line dlb-profile 'is for training'
}

# bats test_tags=slow
@test "stochastic depth: each sample draws its own numbers, the same on any node and in any micro-batch" {
	# x times floor(1/2 + uniform), of the shape (8, 1) of a constant at the exported batch of 8
	m=$BATS_TEST_TMPDIR/m
	python3 - "$root/tests/data" "$m.onnx" <<-'END'
		import struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import *
		w = struct.pack('<640f', *[((i * 7) % 11 - 5) / 10 for i in range(640)])
		open(sys.argv[2], 'wb').write(model(
			node('RandomUniformLike', ['rows'], ['u'], 'draw') + node('Add', ['u', 'half'], ['v'], 'shift') + node('Floor', ['v'], ['keep'], 'keep') +
			node('Flatten', ['x'], ['flat'], 'flat') + node('Mul', ['flat', 'keep'], ['y'], 'drop') + node('MatMul', ['y', 'w'], ['z'], 'fc') +
			tensor('rows', [8, 1], struct.pack('<8f', *[0] * 8)) + tensor('half', [], struct.pack('<f', .5)) + tensor('w', [64, 10], w) +
			value(11, 'x', [8, 1, 8, 8]) + value(12, 'z', [8, 10])))
	END
	dlb-profile --analytic --loss cross-entropy "$m.onnx" >"$m.json" 2>"$m.said"
	grep -q "1 vertex draws random numbers (RandomUniformLike 'draw.*'), on test data too" "$m.said"
	jq -e '[.graph.ops[] | select(.type == "RandomUniformLike")] | length == 1' "$m.json"
	run_it() { # NODES M [DLB-RUN OPTION...]
		dlb-costmodel -q -c "cpu:$1" "$m.json" | dlb-place -q -a even -m "$2" |
			dlb-run -q --steps 6 --order sequential --data npy:x.npy,y.npy --lr .1 "${@:3}" | jq -c .report.losses
	}
	one=$(run_it 1 1)
	[ "$(run_it 2 1)" = "$one" ]
	[ "$(run_it 1 1 --seed 2)" != "$one" ]
	[ "$(run_it 1 2)" = "$(run_it 3 2)" ]
	same "$one" "$(run_it 1 4)"
}

# bats test_tags=slow
@test "--dropout puts Dropout in: the same losses on one node and two, and none when the model is used" {
	make 2 --dropout '*Relu=0.4' >"$doc"
	validates "$doc"
	jq -e '[.graph.ops[] | select(.type == "Dropout")] | length == 1' "$doc"
	run_it() { dlb-run --steps 4 --order sequential --lr 0.1 --data npy:x.npy,y.npy "$@" | jq -c .report.losses; }
	with=$(run_it "$doc")
	make 2 | run_it >"$BATS_TEST_TMPDIR/without"
	[ "$with" != "$(cat "$BATS_TEST_TMPDIR/without")" ]
	[ "$with" = "$(dlb-place -a single -m 2 "$doc" | run_it)" ]
	[ "$(dlb-profile -q --analytic --batch 8 --dropout '*Relu=0' "$models/digits_mlp.onnx" | jq -S .graph)" = \
		"$(dlb-profile -q --analytic --batch 8 "$models/digits_mlp.onnx" | jq -S .graph)" ]
	run -2 --separate-stderr dlb-profile --analytic --dropout 'Nothing=0.1' "$models/digits_mlp.onnx"
	one_line dlb-profile 'no vertex of this name'
	run -2 --separate-stderr dlb-profile --analytic --dropout '*Relu=1' "$models/digits_mlp.onnx"
	one_line dlb-profile 'PATTERN=P'
}
