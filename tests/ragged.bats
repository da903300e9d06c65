#!/usr/bin/env bats
# Rows that a mask selects: a mixture of experts trains like the network that computes all rows.
load helper

setup_file() {
	python3 "$root/tests/data/experts.py" "$BATS_FILE_TMPDIR"
}
setup() {
	cd "$BATS_FILE_TMPDIR" || return
}

# losses MODEL NODES MICRO-BATCHES TYPE OPTIMIZER
losses() {
	dlb-profile -q --analytic --dtype "$4" -b 6 "$1.onnx" | dlb-costmodel -q -c "cpu:$2" | dlb-place -q -a even -m "$3" |
		dlb-run -q --steps 5 --optimizer "$5" --lr 0.05 --data random | jq -c .report.losses
}
same() { # A B TOLERANCE
	jq -ne --argjson a "$1" --argjson b "$2" --argjson tol "$3" \
		'($a | length) == 5 and ([$a, $b] | transpose | all((.[0] - .[1]) / .[1] | fabs < $tol))'
}

# bats test_tags=slow
@test "experts of selected rows train like experts of all rows, masked" {
	for by in sgd adamw; do
		all=$(losses all 1 1 f64 $by)
		for nodes in 1 3; do
			for m in 1 2 3; do
				same "$(losses select $nodes $m f64 $by)" "$all" 1e-10 || { echo "$by, $nodes nodes, $m micro-batches"; false; }
			done
		done
		same "$(losses select 3 2 f32 $by)" "$all" 2e-5
	done
}
@test "the bound is said once, and follows the batch" {
	run -0 --separate-stderr dlb-profile --analytic -b 6 select.onnx
	# shellcheck disable=SC2154
	[ "$(grep -c 'selections by value' <<<"$stderr")" = 1 ]
	[[ $stderr = *"3 selections by value (first NonZero 'where0', opset 16): computed for all rows that may be selected, 6 there at a batch of 6"* ]]
}
@test "samples together give what each gives alone" {
	run -0 --separate-stderr dlb-profile -b 4 select.onnx
	[[ $stderr != *"micro-batch"* ]]
}
@test "what would mix rows with padding is refused" {
	run -2 --separate-stderr dlb-profile --analytic softmax.onnx
	# shellcheck disable=SC2154
	[ -z "$output" ]
	[ "${#stderr_lines[@]}" = 1 ]
	[[ $stderr = *"Softmax "*"(opset 16): the length of 'u0' follows values, those of 'mask0' that are not zero: its rows would be mixed with padding; keep all rows"* ]]
}
@test "K-FAC leaves out layers whose rows are selected by value" {
	dlb-profile -q --analytic -b 6 select.onnx | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even |
		dlb-run -q --steps 1 --optimizer kfac --lr 0.01 --data random >kfac.json
	jq -e '.report.kfac | .weights == ["in", "router", "out"] and (.left | length) == 6 and
		all(.left[]; .why == "rows of its layer are selected by value")' kfac.json
}
