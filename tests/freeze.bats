#!/usr/bin/env bats
# dlb-run --freeze-at: weights that are trained up to a step. The losses after it are those of a run that goes on from a
# checkpoint with a document of dlb-profile --freeze.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

run=(--optimizer adam --lr 0.01 "${digits[@]}")

# The digits' model on a cluster: made FILE CLUSTER DLB-PLACE-OPTION...
made() {
	local file=$1 cluster=$2
	shift 2
	profiled
	dlb-costmodel -c "$cluster" "$profile" | dlb-place -q "$@" >"$file"
}

# Losses and weights of 10 steps of all weights, 10 with the first layer frozen, 10 with the kernel of the second one frozen
# too, each from the checkpoint before, by documents of dlb-profile --freeze: apart DLB-PLACE-OPTION..., to $tmp/apart and
# $tmp/apart.safetensors.
apart() {
	local freeze=()
	rm -rf "$tmp/ck" "$tmp/apart" "$tmp/apart.safetensors"
	made "$tmp/part.json" "$@"
	for part in 1 2 3; do
		dlb-run -q --steps 10 "${run[@]}" --checkpoint "$tmp/ck" --save "$tmp/apart.new" "$tmp/part.json" |
			jq -c '.report.losses[]' >>"$tmp/apart"
		mv "$tmp/apart.new" "$tmp/apart.safetensors"
		freeze+=(--freeze '0.*')
		[ $part = 1 ] || freeze+=(--freeze 3.weight)
		dlb-profile -q --analytic --batch "$samples" --weights "$tmp/apart.safetensors" "${freeze[@]}" "$model" |
			dlb-costmodel -q -c "$1" | dlb-place -q "${@:2}" >"$tmp/part.json"
	done
}

frozen=(--freeze-at '3.weight@20' --freeze-at '0.*@10')

# The same in one run: compare DOCUMENT
compare() {
	dlb-run -q --steps 30 "${run[@]}" "${frozen[@]}" --save "$tmp/one.safetensors" "$1" >"$tmp/one.json"
	jq -c '.report.losses[]' "$tmp/one.json" | cmp - "$tmp/apart"
	cmp "$tmp/one.safetensors" "$tmp/apart.safetensors"
}

# bats test_tags=slow
@test "freeze-at: the losses of a checkpoint and dlb-profile --freeze, on 1 to 3 nodes" {
	for m in 1 2; do
		apart cpu:1 -m $m
		for nodes in 1 2 3; do
			made "$tmp/doc.json" cpu:$nodes -m $m
			compare "$tmp/doc.json"
		done
	done
	validates "$tmp/one.json"
	# up to the step, those of a run that freezes nothing
	dlb-run -q --steps 12 "${run[@]}" "$tmp/doc.json" | jq -c '.report.losses[:10][]' | cmp - <(head -n 10 "$tmp/apart")
	run -1 cmp <(dlb-run -q --steps 12 "${run[@]}" "$tmp/doc.json" | jq -c '.report.losses[]') <(head -n 12 "$tmp/apart")
	# nothing is left of the frozen weights' gradients and updates; the step is predicted to be shorter
	run -0 jq -e --slurpfile was "$tmp/doc.json" '[.graph.ops[] | select(.phase == "update") | .name] ==
		["3.bias.update", "7.weight.update", "7.bias.update"] and
		([.graph.ops[] | select(.name | startswith("/0/Conv.grad") or . == "/3/Conv.grad_weight")] | length == 0) and
		.report.predicted_step_s < $was[0].plan.value_s' "$tmp/one.json"
	# the document of the result goes on with them frozen
	rm -rf "$tmp/ck"
	dlb-run -q --steps 22 "${run[@]}" "${frozen[@]}" --checkpoint "$tmp/ck" "$tmp/doc.json" >"$tmp/frozen.json"
	dlb-run -q --steps 8 "${run[@]}" --checkpoint "$tmp/ck" "$tmp/frozen.json" | jq -c '.report.losses[]' |
		cmp - <(tail -n 8 "$tmp/apart")
}

# bats test_tags=slow
@test "freeze-at: replicas, shares of the optimizer's state" {
	for options in '--replicas 2' '--replicas 2 -m 2 --zero 2'; do
		# shellcheck disable=SC2086
		apart cpu:2 $options
		# shellcheck disable=SC2086
		made "$tmp/doc.json" cpu:2 $options
		compare "$tmp/doc.json"
	done
}

# bats test_tags=slow
@test "freeze-at: a run continues from any checkpoint, on other nodes, and says what was frozen" {
	made "$tmp/one.json" cpu:1
	made "$tmp/two.json" cpu:2
	made "$tmp/three.json" cpu:3 -m 1
	dlb-run -q --steps 30 "${run[@]}" "${frozen[@]}" --save "$tmp/a.safetensors" "$tmp/one.json" |
		jq -c '.report.losses[]' >"$tmp/whole"
	for step in 7 10 11 20 25; do
		rm -rf "$tmp/ck"
		# what is frozen later than the run ends is refused
		local before=()
		[ $step -le 10 ] || before+=(--freeze-at '0.*@10')
		[ $step -le 20 ] || before+=(--freeze-at '3.weight@20')
		dlb-run -q --until-step $step "${run[@]}" "${before[@]}" --checkpoint "$tmp/ck" "$tmp/two.json" |
			jq -c '.report.losses[]' >"$tmp/parts"
		dlb-run --until-step 30 "${run[@]}" "${frozen[@]}" --checkpoint "$tmp/ck" --save "$tmp/b.safetensors" \
			"$tmp/three.json" 2>"$tmp/said" | jq -c '.report.losses[]' >>"$tmp/parts"
		cmp "$tmp/parts" "$tmp/whole"
		cmp "$tmp/a.safetensors" "$tmp/b.safetensors"
		[ $step = 7 ] || grep -q "from the checkpoint of step $step on, [23] weights are frozen (0\.\*.*), [0-9]* elements" "$tmp/said"
		[ $step -ge 20 ] || grep -q 'dlb-run: step 20: 1 weight is frozen (3.weight), 1152 elements; .* ms a step predicted' "$tmp/said"
	done
	# the checkpoint has the weights, and no optimizer state of the frozen ones
	run -0 jq -c .frozen "$tmp/ck/step-30/manifest.json"
	[ "$output" = "$(jq -cn '["0.weight", "0.bias", "3.weight"]')" ]
	run -0 jq -c '.tensors | keys' "$tmp/ck/step-30/manifest.json"
	[ "$output" = "$(jq -cn '["0.bias", "0.weight", "3.bias", "3.weight", "7.bias", "7.weight"]')" ]
	cat "$tmp"/ck/step-30/part-*.safetensors >"$tmp/parts"
	grep -qa 'optimizer/exp_avg/3.bias' "$tmp/parts"
	run -1 grep -qa 'optimizer/exp_avg/\(0\.\|3.weight\)' "$tmp/parts"
	# a run that would train them again is refused
	run -2 --separate-stderr dlb-run -q --steps 1 "${run[@]}" --checkpoint "$tmp/ck" "$tmp/one.json"
	one_line dlb-run "weight '0.weight' is frozen in the checkpoint" '--freeze-at'
}

# bats test_tags=slow
@test "freeze-at: running statistics, rounds, a tied weight" {
	for file in "$models/resnet8.onnx" "$own/gpt/loss.onnx"; do
		local glob='*[135].*'
		[ "$file" = "$models/resnet8.onnx" ] || glob='*wte*'
		dlb-profile -q --analytic --batch 6 "$file" | dlb-costmodel -q -c cpu:1 | dlb-place -q -m 3 >"$tmp/one.json"
		dlb-costmodel -q -c cpu:3 "$tmp/one.json" | dlb-place -q -m 3 >"$tmp/three.json"
		local train=(--steps 24 --data random --optimizer adam --freeze-at "$glob@11")
		dlb-run -q "${train[@]}" "$tmp/one.json" | jq -c .report.losses >"$tmp/a"
		dlb-run -q "${train[@]}" --rounds auto --round-steps 5 "$tmp/three.json" >"$tmp/b.json"
		jq -c .report.losses "$tmp/b.json" | cmp - "$tmp/a"
		validates "$tmp/b.json"
		# the search for a balance began again
		run -0 jq -e '.balance.round == 4 and .balance.first_round >= 3' "$tmp/b.json"
	done
}

@test "freeze-at: excluded nodes and pins hold; a pin of an op that is no more is dropped" {
	made "$tmp/doc.json" cpu:3 -m 2 --exclude 1 --pin /0/Conv=2 --pin /0/Conv.grad_weight=0
	dlb-run -q --steps 4 "${run[@]}" --freeze-at '0.*@2' "$tmp/doc.json" >"$tmp/a.json"
	run -0 jq -e '.plan.exclude == [1] and .plan.pins == {"/0/Conv": 2} and .plan.placement["1"] == 2 and
		all(.plan.placement[]; . != 1)' "$tmp/a.json"
}

# bats test_tags=slow
@test "freeze-at: what it is not for" {
	planned "$tmp/doc.json"
	for text in '0.*' '0.*@' '@4' '0.*@0' '0.*@x'; do
		run -2 --separate-stderr dlb-run "${digits[@]}" --freeze-at "$text" "$tmp/doc.json"
		one_line dlb-run "GLOB@STEP" "'$text'" "try 'dlb-run --help'"
	done
	run -2 --separate-stderr dlb-run "${digits[@]}" --steps 9 --freeze-at '0.weigth@4' "$tmp/doc.json"
	one_line dlb-run "no weight matches '0.weigth'" "did you mean '0.weight'?"
	run -2 --separate-stderr dlb-run "${digits[@]}" --steps 9 --freeze-at '0.*@4' --freeze-at '[37].*@5' "$tmp/doc.json"
	one_line dlb-run 'no weight would be trained any more' 'leave out'
	for limit in '--steps 9' '--until-step 9' '--epochs 1'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run "${digits[@]}" $limit --freeze-at '0.*@200' "$tmp/doc.json"
		[[ $stderr == *"'0.*@200': the run ends at step "*'; give an earlier step' ]]
	done
	for options in '--replicas 2 --gossip 0.5' '--replicas 2 --compress lowrank:2' '--schedule async'; do
		# shellcheck disable=SC2086
		dlb-place -q $options "$tmp/doc.json" >"$tmp/other.json"
		run -2 --separate-stderr dlb-run "${digits[@]}" --steps 9 --freeze-at '0.*@4' "$tmp/other.json"
		one_line dlb-run "--freeze-at '0.*@4'" 'dlb-profile --freeze'
	done
	run -2 --separate-stderr dlb-run "${digits[@]}" --steps 9 --optimizer kfac --freeze-at '0.*@4' "$tmp/doc.json"
	one_line dlb-run "--freeze-at '0.*@4'" kfac 'dlb-profile --freeze'
	run -0 --separate-stderr dlb-run --dry-run --freeze-at '0.*@4' "$tmp/doc.json"
	output='' one_line dlb-run '--freeze-at has no effect' '--dry-run'
}
