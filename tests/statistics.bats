#!/usr/bin/env bats
# Running statistics of batch normalization that several vertices read: those that the exporter merged with other tensors get
# places of their own; those of a module that is called twice stay together.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

# The loss of each step and that of the test samples: trained PROFILE CLUSTER 'DLB-COSTMODEL OPTION...' DLB-PLACE OPTION...
trained() {
	local profile=$1 cluster=$2 options=$3
	shift 3
	# shellcheck disable=SC2086	# words
	dlb-costmodel -q -c "$cluster" $options "$profile" | dlb-place -q "$@" |
		dlb-run -q --steps 6 "${digits[@]}" --test-data digits:test | jq -c '[.report.losses, .report.test_loss]'
}

@test "merged with scales by the exporter: each has its own, and the same losses wherever it is" {
	dlb-profile --analytic -b 16 "$own/folded/preserve.onnx" >"$tmp/profile.json" 2>"$tmp/said"
	grep -q '4 running statistics are of a value that other tensors have too, .* each BatchNormalization gets its own' "$tmp/said"
	run -0 jq '[.graph.tensors[] | select(.kind == "buffer")] | length' "$tmp/profile.json"
	[ "$output" -eq 4 ]
	trained "$tmp/profile.json" cpu:1 '' -m 2 >"$tmp/one"
	trained "$tmp/profile.json" cpu:3 '' -m 2 -a even >"$tmp/even"
	trained "$tmp/profile.json" cpu:3 '' -m 2 -a random >"$tmp/random"
	cmp "$tmp/one" "$tmp/even"
	cmp "$tmp/one" "$tmp/random"
	# a file of the model has no place for them
	dlb-costmodel -q -c cpu:1 "$tmp/profile.json" | dlb-place -q >"$tmp/plan.json"
	run -2 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" --save "$tmp/saved.onnx" "$tmp/plan.json"
	one_line dlb-run running_mean .safetensors
}

@test "of a module that is called twice: on one node, updated in turn, and not split" {
	PYTHONPATH=$root/tests/data python3 -B - >"$tmp/twice.onnx" <<-'END'
		import random, struct, sys
		from onnx_file import attribute_int, attribute_ints, model, node, tensor, value
		draw = random.Random(1)
		def floats(n, low=-.3, high=.3): return struct.pack("<%df" % n, *(draw.uniform(low, high) for _ in range(n)))
		conv = attribute_ints("kernel_shape", [3, 3]) + attribute_ints("pads", [1, 1, 1, 1])
		norm = attribute_int("training_mode", 1)
		def bn(x, y): return node("BatchNormalization", [x, "s", "t", "mean", "var"], [y, "mean_" + y, "var_" + y], "bn_" + y, norm)
		sys.stdout.buffer.write(model(
		    node("Conv", ["x", "wa"], ["a"], "conv_a", conv) + bn("a", "na") + node("Conv", ["x", "wb"], ["b"], "conv_b", conv) + bn("b", "nb") +
		    node("Add", ["na", "nb"], ["c"]) + node("Relu", ["c"], ["d"]) + node("Flatten", ["d"], ["e"]) + node("Gemm", ["e", "w"], ["y"]) +
		    tensor("wa", [8, 1, 3, 3], floats(72)) + tensor("wb", [8, 1, 3, 3], floats(72)) + tensor("w", [512, 10], floats(5120)) +
		    tensor("s", [8], floats(8, .5, 1)) + tensor("t", [8], floats(8)) + tensor("mean", [8], floats(8)) + tensor("var", [8], floats(8, .5, 1)) +
		    value(11, "x", ["N", 1, 8, 8]) + value(12, "y", ["N", 10])))
	END
	dlb-profile -q --analytic -b 16 "$tmp/twice.onnx" >"$tmp/profile.json"
	for a in even random greedy; do
		dlb-costmodel -q -c cpu:3 "$tmp/profile.json" | dlb-place -q -a $a >"$tmp/plan.json"
		jq -e '. as $d | [.graph.ops[] | select(.type == "BatchNormalization" and .phase == "forward") | $d.plan.placement["\(.id)"]] |
			length == 2 and .[0] == .[1]' "$tmp/plan.json" >"$tmp/together"
	done
	for m in 1 3; do
		trained "$tmp/profile.json" cpu:1 '' -m $m >"$tmp/one"
		for how in '-a even' '-a random --schedule gpipe' '-a greedy --schedule zero-bubble'; do
			# shellcheck disable=SC2086	# words
			trained "$tmp/profile.json" cpu:3 '' -m $m $how | cmp - "$tmp/one"
		done
	done
	# the statistics stay whole: the test samples, which use them, lose as much
	trained "$tmp/profile.json" cpu:1 '' >"$tmp/whole"
	trained "$tmp/profile.json" cpu:2 '--split conv_a=2:output' -a even >"$tmp/split"
	jq -e --slurpfile one "$tmp/whole" '[.[0] + [.[1]], $one[0][0] + [$one[0][1]]] | transpose | all(.[0] - .[1] | fabs < 1e-4)' "$tmp/split"
	run -2 --separate-stderr dlb-costmodel -q -c cpu:2 --split bn_na=2 "$tmp/profile.json"
}
