#!/usr/bin/env bats
# Models exported with a fixed batch run with another one: losses do not depend on the number of micro-batches.
load helper

today=$DLB_TEST_DATA/onnx/today

# losses MODEL BATCH MICRO-BATCHES
losses() {
	dlb-profile -q --analytic --dtype f64 -b "$2" "$1" | dlb-costmodel -q -c cpu:1 | dlb-place -q -m "$3" |
		dlb-run -q --steps 2 --lr 0.001 --data random | jq -c .report.losses
}
# Two lists of losses are equal to 1e-9.
same() {
	jq -ne --argjson a "$1" --argjson b "$2" '[$a, $b] | transpose | all((.[0] - .[1]) / .[1] | fabs < 1e-9)'
}

# Our own exports MODEL/VARIANT..., then those of DLB_TEST_DATA, where they are, after --: their paths, a line each
exports() {
	local from=$own
	for m; do
		if [ "$m" = -- ]; then from=$today; elif [ -d "$from" ]; then echo "$from/$m"; fi
	done
}

# bats test_tags=slow
@test "exports at batch 4 take 6 samples in 1, 2 and 3 micro-batches, and 4 and 8" {
	for m in $(exports {gpt,vit,lstm}/default -- {mha,vit_small,bert,gpt2,llama,lstm_lm,gcn_scatter,unet_gn}/default); do
		for b in 4 6 8; do
			one=$(losses "$m.onnx" "$b" 1)
			[ -n "$one" ]
			for k in 2 3; do
				same "$one" "$(losses "$m.onnx" "$b" "$k")" || { echo "$m, batch $b, $k micro-batches"; false; }
			done
		done
	done
}
@test "fixed and open batch give the same losses" {
	for m in $(exports vit -- mha vit_small gcn_scatter); do
		same "$(losses "$m/default.onnx" 6 2)" "$(losses "$m/dynamic.onnx" 6 2)"
	done
}
