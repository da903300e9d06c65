#!/usr/bin/env bats
# Exports of PyTorch 2.15, with the exporters' defaults, with a dynamic batch and in the older way, trained and compared
# with PyTorch's own losses (DLB_TEST_DATA/onnx/today). tests/exports does the work; it can also run single cases.
load helper

setup() {
	[ -d "$DLB_TEST_DATA/onnx/today" ] || skip "no exports (DLB_TEST_DATA=$DLB_TEST_DATA)"
}

models() { "$root/tests/exports" --bin "$BUILD/bin" "$@"; }

@test "exports of networks without attention train to PyTorch's losses" {
	models mlp lenet norm_mean frozen_backbone dlrm vae gcn_scatter unet_gn lstm_lm
}

@test "exports of transformers train to PyTorch's losses" {
	models mha pe_transformer vit_small bert bert_mask gpt2 llama llama_mask
}

@test "exports of networks with batch normalization train to PyTorch's losses" {
	models conv1d_ts mobilenet_v3_small shufflenet
}

@test "no export is left out" {
	for folder in "$DLB_TEST_DATA"/onnx/today/*/; do
		name=$(basename "$folder")
		grep -q "models .*\b$name\b" "$BATS_TEST_FILENAME" || { echo "$name: not trained"; false; }
	done
}
