#!/usr/bin/env bats
# Exports of PyTorch 2.15, as its exporters write them by default, with a dynamic batch and in the older way, trained beside
# PyTorch's own losses: our own (tests/data/truth), each by two optimizers, on one node and on three, in one micro-batch and in
# two, in f32 and f64, with the gradients of the first step; and those of DLB_TEST_DATA/onnx/today, where they are.
# tests/exports does the work and takes cases by hand.
load helper

own() { "$root/tests/exports" --own --bin "$BUILD/bin" "$@"; }
models() { [ ! -d "$DLB_TEST_DATA/onnx/today" ] || "$root/tests/exports" --bin "$BUILD/bin" "$@"; }

# bats test_tags=slow
@test "exports of our own train to PyTorch's losses: without attention" {
	own lstm/default experts/default ranker/default ranker/legacy
}

# bats test_tags=slow
@test "exports of our own train to PyTorch's losses: transformers" {
	own gpt/default vit/default vit/dynamic
}

# bats test_tags=slow
@test "exports of our own train to PyTorch's losses: batch normalization" {
	own residual folded
}

# bats test_tags=long
@test "exports of networks without attention train to PyTorch's losses" {
	models mlp lenet norm_mean frozen_backbone dlrm vae gcn_scatter unet_gn lstm_lm
}

# bats test_tags=long
@test "exports of transformers train to PyTorch's losses" {
	models mha pe_transformer vit_small bert bert_mask gpt2 llama llama_mask
}

# bats test_tags=long
@test "exports of networks with batch normalization train to PyTorch's losses" {
	models conv1d_ts mobilenet_v3_small shufflenet
}

# bats test_tags=slow
@test "with another rate it fails" {
	run -1 own --lr 0.0501 residual/default
	[ "${lines[-1]}" = '1 passed, 8 failed, 0 skipped' ]		# its gradients do not depend on the rate
}

@test "no export is left out" {
	for folder in "$DLB_TEST_DATA"/onnx/today/*/; do
		[ -d "$folder" ] || continue
		name=$(basename "$folder")
		grep -q "models .*\b$name\b" "$BATS_TEST_FILENAME" || { echo "$name: not trained"; false; }
	done
	for name in $(jq -r '.models | to_entries[] | select(.value.sgd) | .key' "$own/truth.json"); do
		grep -hq "own .*\b$name\b" "$BATS_TEST_FILENAME" "$BATS_TEST_DIRNAME/truth.bats" || { echo "$name: not trained"; false; }
	done
}
