#!/usr/bin/env bats
# dlb-costmodel --split: an op as shards over nodes. The losses equal those of the whole op up to rounding, with the same
# bits under every placement of the shards; the model's whole weights are read and written.
load helper

setup_file() {
	for m in digits_cnn digits_mlp resnet8; do
		dlb-profile -q --analytic --batch 16 "$models/$m.onnx" >"$BATS_FILE_TMPDIR/$m.json"
	done
}
setup() { tmp=$BATS_TEST_TMPDIR; made=$BATS_FILE_TMPDIR; data=("${digits[@]}"); }

# split MODEL CLUSTER SPLIT... : the document with its plan
planned_split() {
	local doc=$made/$1.json cluster=$2 how=()
	shift 2
	for s; do how+=(--split "$s"); done
	dlb-costmodel -q -c "$cluster" "${how[@]}" "$doc" | dlb-place -q -a "${placer:-auto}"
}

losses() { # [DLB-RUN-OPTION...] <DOCUMENT: one loss per line
	dlb-run -q "${data[@]}" --steps "${steps:-20}" --loss-log "$tmp/log" "$@" >"$tmp/ran.json"
	cut -d' ' -f2 <"$tmp/log"
}

near() { # FILE FILE RELATIVE-ERROR: the same count of numbers, each within the error
	paste "$1" "$2" | awk -v most="$3" 'NF != 2 { far = 1 } { d = $1 - $2; d = d < 0 ? -d : d; if (d > most * ($1 < 0 ? -$1 : $1)) far = 1 }
		END { exit far || NR == 0 }' || { paste "$1" "$2"; return 1; }
}

# In double precision: in single, rounding moves values across Relu's kink within 20 steps of resnet8 on some processors.
# bats test_tags=slow
@test "every op of a network that can be is split into 2 and 3: the losses are those of the whole" {
	for m in digits_mlp digits_cnn resnet8; do
		dlb-profile -q --analytic --batch 16 --dtype f64 "$models/$m.onnx" >"$made/double-$m.json"
		[ $m != resnet8 ] || data=("${digits[@]}" --transform pad=10)
		dlb-costmodel -q -c cpu:1 "$made/double-$m.json" | dlb-place -q | losses >"$tmp/whole"
		for k in 2 3; do
			planned_split "double-$m" cpu:1 "*=$k" >"$tmp/doc.json"
			validates "$tmp/doc.json"
			losses <"$tmp/doc.json" >"$tmp/split"
			near "$tmp/whole" "$tmp/split" 1e-9
			jq -e --argjson k "$k" '(.graph.split | length) >= 2 and all(.graph.split[]; .shards == $k)' "$tmp/doc.json"
		done
	done
}

# bats test_tags=slow
@test "one network, split one way: one set of bits, wherever the shards are" {
	planned_split digits_cnn cpu:1 '*=3' >"$tmp/one.json"
	losses <"$tmp/one.json" >"$tmp/one"
	for placer in even random etf; do
		planned_split digits_cnn cpu:3 '*=3' >"$tmp/three.json"
		[ "$(jq '[.plan.placement[]] | unique | length' "$tmp/three.json")" -ge 2 ]
		losses <"$tmp/three.json" >"$tmp/three"
		cmp "$tmp/one" "$tmp/three"
	done
}

# bats test_tags=slow
@test "micro-batches: the same losses, split or not" {
	dlb-costmodel -q -c cpu:2 "$made/digits_mlp.json" | dlb-place -q -m 4 | losses >"$tmp/whole"
	dlb-costmodel -q -c cpu:2 --split '*=2' "$made/digits_mlp.json" >"$tmp/cost.json"
	# the profile is of the split graph from now on
	jq -e '.profile.inputs.graph | type == "string" and . != $was' --arg was "$(jq -r .profile.inputs.graph "$made/digits_mlp.json")" "$tmp/cost.json"
	jq -e '.profile.inputs.graph == .cost.inputs.graph' "$tmp/cost.json"
	dlb-place -q -m 4 -a even "$tmp/cost.json" | losses >"$tmp/split"
	near "$tmp/whole" "$tmp/split" 1e-5
}

# bats test_tags=long
@test "sums over four shards on a slow network go in pairs: shorter, the losses of the whole, one set of bits" {
	slow='cpu:1 host cpu:1 host cpu:1 host cpu:1 link=rack:1e-5,1e7'
	dlb-profile -q --analytic --batch 1024 "$models/digits_mlp.onnx" >"$made/wide.json"
	how=(--split '/1/Gemm=4:input' --split '/3/Gemm=4:output')
	dlb-costmodel -v -c "$slow" "${how[@]}" "$made/wide.json" 2>"$tmp/said" >"$tmp/pairs.json"
	validates "$tmp/pairs.json"
	[ "$(grep -c ', sums in pairs: asked for' "$tmp/said")" -eq 2 ]
	# of the outputs of the first and of the gradients of the second: no op adds more than two; elsewhere one op adds four
	jq -e '.graph | ([.split[].sums] == ["pairs", "pairs"]) and ([.ops[] | select(.type == "Sum") | .inputs | length] | length >= 6 and max == 2)' "$tmp/pairs.json"
	dlb-costmodel -q -c cpu:4 "${how[@]}" "$made/wide.json" >"$tmp/shm.json"
	jq -e '.graph | ([.split[].sums] == [null, null]) and ([.ops[] | select(.type == "Sum") | .inputs | length] == [4, 4])' "$tmp/shm.json"
	dlb-costmodel -q -c 'cpu:1 host cpu:1 host cpu:1 link=rack:1e-5,1e7' --split '/3/Gemm=3:output' "$made/wide.json" |
		jq -e '.graph.split[0] | has("sums") | not'
	# times of both on the slow network, a shard on each node
	spread=()
	for k in 0 1 2 3; do spread+=(--pin "/1/Gemm@$k=$k" --pin "/3/Gemm@$k=$k" --pin "/3/Gemm@$k.grad_input=$k"); done
	dlb-place -q --effort 16 "${spread[@]}" "$tmp/pairs.json" >"$tmp/in_pairs.json"
	dlb-costmodel -q -c "$slow" "$tmp/shm.json" | dlb-place -q --effort 16 "${spread[@]}" >"$tmp/by_one.json"
	jq -en --slurpfile a "$tmp/in_pairs.json" --slurpfile b "$tmp/by_one.json" '$a[0].plan.value_s < 0.95 * $b[0].plan.value_s'
	# and run
	steps=4
	dlb-costmodel -q -c cpu:1 "$made/wide.json" | dlb-place -q | losses >"$tmp/whole"
	dlb-costmodel -q -c cpu:1 "$tmp/pairs.json" | dlb-place -q | losses >"$tmp/one"
	near "$tmp/whole" "$tmp/one" 1e-5
	dlb-costmodel -q -c cpu:4 "$tmp/pairs.json" | dlb-place -q -a random | losses >"$tmp/four"
	cmp "$tmp/one" "$tmp/four"
	# split again, the sums do not change
	dlb-costmodel -q -c cpu:4 --split '/3/Gemm@0=2' "$tmp/pairs.json" >"$tmp/again.json"
	jq -e '[.graph.split[].sums] == ["pairs", "pairs", null]' "$tmp/again.json"
}

@test "two products one after the other: nothing is put together between them" {
	planned_split digits_mlp cpu:1 '/1/Gemm=2' '/3/Gemm=2' >"$tmp/doc.json"
	jq -e '.graph.split | map([.op, .axis]) == [["/1/Gemm", "output"], ["/3/Gemm", "input"]]' "$tmp/doc.json"
	jq -e '[.graph.ops[] | select(.phase == "forward") | .type] | (index("Concat") == null) and (map(select(. == "Relu")) | length == 2)
		and (map(select(. == "Sum")) | length == 1)' "$tmp/doc.json"
	# alone, the outputs of the first are concatenated
	planned_split digits_mlp cpu:1 '/1/Gemm=2' >"$tmp/doc.json"
	jq -e '[.graph.ops[] | select(.phase == "forward") | .type] | (map(select(. == "Relu")) | length == 1) and index("Concat") != null' "$tmp/doc.json"
}

# bats test_tags=slow
@test "K-FAC takes a weight that shards by samples share, and one in parts" {
	for n in 2 4; do
		planned_split digits_mlp cpu:2 "/3/Gemm=$n:batch" >"$tmp/doc.json"
		dlb-run -q "${digits[@]}" --steps 2 --optimizer kfac "$tmp/doc.json" |
			jq -e '.report.kfac | (.weights | index("3.weight")) and .left == []'
	done
	planned_split digits_mlp cpu:2 '/3/Gemm=2:output' >"$tmp/doc.json"
	dlb-run -q "${digits[@]}" --steps 2 --optimizer kfac "$tmp/doc.json" |
		jq -e '.report.kfac | [.weights[] | select(startswith("3.weight"))] == ["3.weight@0", "3.weight@1"]'
}

@test "shares that do not come out even: the first get one more" {
	planned_split digits_mlp cpu:1 '/3/Gemm=3' >"$tmp/doc.json"
	jq -e '[.graph.tensors[] | select(.slice and (.shape | length) == 1) | .shape[0]] == [4, 3, 3]' "$tmp/doc.json"
}

@test "along the axis that is named" {
	dlb-costmodel -q -c cpu:1 "$made/digits_mlp.json" | dlb-place -q | losses >"$tmp/whole"
	for axis in output input; do
		planned_split digits_mlp cpu:1 "/1/Gemm=2:$axis" >"$tmp/doc.json"
		jq -e --arg a "$axis" '.graph.split == [{op: "/1/Gemm", shards: 2, axis: $a, why: "asked for"}]' "$tmp/doc.json"
		losses <"$tmp/doc.json" >"$tmp/split"
		near "$tmp/whole" "$tmp/split" 1e-5
	done
}

# bats test_tags=slow
@test "by samples: nothing is put together before the loss, shares need not come out even, nor have a sample each" {
	steps=114				# the last of an epoch has 5 samples of 16
	for m in digits_mlp digits_cnn; do
		for k in 2 3; do
			dlb-costmodel -q -c cpu:1 "$made/$m.json" | dlb-place -q -m 3 | losses >"$tmp/whole"
			dlb-costmodel -q -c cpu:3 --split "*=$k:batch" "$made/$m.json" | dlb-place -q -a even -m 3 >"$tmp/doc.json"
			validates "$tmp/doc.json"
			jq -e --argjson k "$k" '[.graph.ops[] | select(.phase == "forward") | .type] |
				map(select(. == "SampleSplit" or . == "SampleConcat")) | length == 2' "$tmp/doc.json"
			jq -e 'all(.graph.split[]; .axis == "batch")' "$tmp/doc.json"
			[ "$(jq '[.plan.placement[]] | unique | length' "$tmp/doc.json")" -ge 2 ]
			losses <"$tmp/doc.json" >"$tmp/split"
			near "$tmp/whole" "$tmp/split" 1e-4
		done
	done
	# weights are whole, with one update each
	jq -e '[.graph.tensors[] | select(.kind == "weight")] | length > 0 and all(.slice == null)' "$tmp/doc.json"
}

@test "by samples: accuracy on test data, and samples that are fewer than shares there" {
	steps=60
	dlb-costmodel -q -c cpu:1 "$made/digits_mlp.json" | dlb-place -q >"$tmp/whole.json"
	dlb-costmodel -q -c cpu:2 --split "*=5:batch" "$made/digits_mlp.json" | dlb-place -q -a even >"$tmp/split.json"
	for way in whole split; do
		losses --lr 0.1 --test-data digits:test <"$tmp/$way.json" >"$tmp/$way"
		jq -e '.report | .accuracy, .test_loss' "$tmp/ran.json" >"$tmp/$way.tested"
	done
	near "$tmp/whole" "$tmp/split" 1e-4
	near "$tmp/whole.tested" "$tmp/split.tested" 1e-2
}

@test "by samples: a normalization over the batch stays whole, or is refused where it is named" {
	data=("${digits[@]}" --transform pad=10)
	dlb-costmodel -q -c cpu:1 "$made/resnet8.json" | dlb-place -q | losses >"$tmp/whole"
	dlb-costmodel -q -c cpu:2 --split '*=2:batch' "$made/resnet8.json" | dlb-place -q -a even >"$tmp/doc.json"
	jq -e '[.graph.ops[] | select(.type == "BatchNormalization" and .phase == "forward")] | length == 9' "$tmp/doc.json"
	losses <"$tmp/doc.json" >"$tmp/split"
	near "$tmp/whole" "$tmp/split" 1e-3
	bn=$(jq -r '[.graph.ops[] | select(.type == "BatchNormalization")][0].name' "$made/resnet8.json")
	run -2 --separate-stderr dlb-costmodel -q -c cpu:2 --split "$bn=2:batch" "$made/resnet8.json"
	one_line dlb-costmodel "$bn" 'takes statistics over the batch'
	run -2 --separate-stderr dlb-costmodel -q -c cpu:2 --split "*=17:batch" "$made/resnet8.json"
	one_line dlb-costmodel '17 shards are too many' '16'
}

# bats test_tags=slow
@test "fresh weights, checkpoints and saved models are those of the whole model" {
	dlb-costmodel -q -c cpu:1 "$made/digits_cnn.json" | dlb-place -q >"$tmp/whole.json"
	placer=even planned_split digits_cnn cpu:2 '*=2' >"$tmp/split.json"
	placer=even planned_split digits_cnn cpu:3 '/7/Gemm=3:input' '/3/Conv=3' >"$tmp/other.json"
	steps=8
	opt=(--init 7 --optimizer adam --lr 0.001)
	losses "${opt[@]}" --save "$tmp/whole.safetensors" <"$tmp/whole.json" >"$tmp/whole"
	losses "${opt[@]}" --save "$tmp/split.safetensors" <"$tmp/split.json" >"$tmp/split"
	near "$tmp/whole" "$tmp/split" 1e-4
	# names and shapes of the saved tensors, from the header of safetensors
	header() { tail -c +9 "$1" | head -c "$(od -An -tu8 -N8 "$1" | tr -d ' ')" | jq -S 'del(.__metadata__) | map_values(.shape)'; }
	[ "$(header "$tmp/whole.safetensors")" = "$(header "$tmp/split.safetensors")" ]
	[ "$(header "$tmp/whole.safetensors" | jq length)" -eq 6 ]

	# four steps whole, then four split, four split in another way, four whole
	steps=16 losses "${opt[@]}" <"$tmp/whole.json" >"$tmp/unbroken"
	steps=4
	: >"$tmp/mixed"
	for d in whole split other whole; do
		losses "${opt[@]}" --checkpoint "$tmp/ckpt" <"$tmp/$d.json" | tail -n 4 >>"$tmp/mixed"
	done
	near "$tmp/unbroken" "$tmp/mixed" 1e-4

	# a saved ONNX file is again the model
	steps=4 losses "${opt[@]}" --save "$tmp/split.onnx" <"$tmp/split.json" >"$tmp/split"
	dlb-profile -q --analytic --batch 16 "$tmp/split.onnx" | jq -e --slurpfile was "$made/digits_cnn.json" \
		'[.graph.ops[] | [.name, .type]] == [$was[0].graph.ops[] | [.name, .type]]'
}

# bats test_tags=slow
@test "what does not fit whole fits split" {
	dlb-profile -q --analytic --batch 1 "$models/lenet5.onnx" >"$tmp/profiled.json"
	data=("${digits[@]}" --transform pad=10)
	whole() { dlb-costmodel -q -c "$1" "$tmp/profiled.json" | dlb-place -q; }
	run -1 --separate-stderr whole cpu:3@300kB
	one_line dlb-place 'no plan fits' 'of 0.3 MB'
	dlb-costmodel -q -c cpu:3@300kB --split '/7/Gemm=3' "$tmp/profiled.json" | dlb-place -q >"$tmp/split.json"
	jq -e 'all(.plan.nodes[]; .peak_bytes <= 300000)' "$tmp/split.json"
	jq -e '.plan.placement as $p | [.graph.ops[] | select(.name | startswith("/7/Gemm@")) | select(.phase == "forward") | $p[.id | tostring]] |
		unique | length == 3' "$tmp/split.json"
	whole cpu:1 | losses >"$tmp/whole"
	losses <"$tmp/split.json" >"$tmp/split"
	near "$tmp/whole" "$tmp/split" 1e-3
}

@test "auto: what does not fit is split" {
	dlb-profile -q --analytic --batch 1 "$models/lenet5.onnx" >"$tmp/profiled.json"
	slow='link=rack:1,1e3'				# no other split pays
	dlb-costmodel -q -c "cpu:1@300kB host cpu:1@300kB host cpu:1@300kB $slow" --split auto "$tmp/profiled.json" >"$tmp/doc.json"
	validates "$tmp/doc.json"
	jq -e '.graph.split | map([.op, .shards]) == [["/7/Gemm", 2]]' "$tmp/doc.json"
	jq -e '.graph.split[0].why | contains("needs 0.3") and contains("0.3 MB")' "$tmp/doc.json"
	dlb-costmodel -q -c "cpu:1@500kB host cpu:1@500kB $slow" --split auto "$tmp/profiled.json" >"$tmp/doc.json"
	jq -e '.graph | has("split") | not' "$tmp/doc.json"
}

# bats test_tags=slow
@test "auto: what makes the step shorter is split, and said with -v" {
	dlb-profile -q --analytic --batch 256 "$models/lenet5.onnx" >"$tmp/profiled.json"
	dlb-costmodel -v -c cpu:2 --split auto "$tmp/profiled.json" >"$tmp/doc.json" 2>"$tmp/said"
	validates "$tmp/doc.json"
	jq -e '.graph.split | length >= 2 and all(.[]; .shards == 2 and (.why | contains("instead of")))' "$tmp/doc.json"
	[ "$(grep -c '^split ' "$tmp/said")" -eq "$(jq '.graph.split | length' "$tmp/doc.json")" ]
	# the placement algorithms find it faster too
	step() { dlb-place -q "$1" | dlb-run -q --dry-run --steps 2 | jq '.report.step_s'; }
	dlb-costmodel -q -c cpu:2 "$tmp/profiled.json" >"$tmp/whole.json"
	jq -en "$(step "$tmp/doc.json") < 0.9 * $(step "$tmp/whole.json")"
	# and over a slow link no split pays
	dlb-costmodel -q -c 'cpu:1 host cpu:1 link=rack:1,1e3' --split auto "$tmp/profiled.json" | jq -e '.graph | has("split") | not'
	# explicit splits are done as well
	dlb-costmodel -q -c 'cpu:1 host cpu:1 link=rack:1,1e3' --split auto --split '/9/Gemm=3' "$tmp/profiled.json" |
		jq -e '.graph.split | map([.op, .shards]) == [["/9/Gemm", 3]]'
}

@test "a split graph is profiled like any" {
	dlb-costmodel -q -c cpu:2 --split '*=2' "$made/digits_mlp.json" | dlb-profile -q - | dlb-costmodel -q | dlb-place -q >"$tmp/doc.json"
	validates "$tmp/doc.json"
	jq -e 'all(.profile.rows[]; .time_s.cpu != null)' "$tmp/doc.json"
}

@test "what was measured of ops that stay as they are stays" {
	dlb-profile -q --batch 16 "$models/digits_cnn.onnx" | dlb-costmodel -q -c cpu:2 --split '/7/Gemm=2' >"$tmp/doc.json"
	validates "$tmp/doc.json"
	jq -e '[.profile.rows[] | select(.type == "Conv") | .time_s.cpu[0]] | length == 2 and all(. != null)' "$tmp/doc.json"
	jq -e '[.profile.rows[] | select(.type == "Gemm") | .time_s.cpu[0]] | any(. == null)' "$tmp/doc.json"
}

@test "dlb-view says of a shard what it is of, and why" {
	planned_split digits_mlp cpu:2 '/1/Gemm=2' >"$tmp/doc.json"
	run -0 --separate-stderr dlb-view --why '/1/Gemm@1' "$tmp/doc.json"
	[ "${lines[1]}" = "shard 1 of 2 of '/1/Gemm', split by output: asked for" ]
	run -0 --separate-stderr dlb-view --why '/3/Gemm' "$tmp/doc.json"
	[[ $output != *shard* ]]
}

@test "the user's own members stay" {
	jq '.graph["x-mine"] = 4' "$made/digits_mlp.json" | dlb-costmodel -q -c cpu:2 --split '*=2' | jq -e '.graph["x-mine"] == 4'
}

@test "what cannot be split" {
	refused() { # SPLIT WORDS...
		run -2 --separate-stderr dlb-costmodel -c cpu:2 --split "$1" "$made/digits_mlp.json"
		one_line dlb-costmodel "${@:2}"
	}
	refused '/1/Gem=2' "no forward op '/1/Gem'" "did you mean '/1/Gemm'?"
	refused '*nothing*=2' "no forward op '*nothing*'"
	refused '/2/Relu=2' '/2/Relu' 'cannot be split for itself'
	refused '/3/Gemm=11:output' '11 shards are too many' '10'
	refused '/3/Gemm=4000' '4000 shards are too many' '10'
	refused '/3/Gemm=1' '2 to 4096'
	refused '/3/Gemm=2:sideways' "no axis 'sideways'" 'output, input, batch, rows, head or vocabulary'
	refused '/3/Gemm=2:head' "no axis 'head'"
	refused '/3/Gemm' 'does not say what is split'
	refused '/3/Gemm=two' 'does not say what is split'
}

# bats test_tags=slow
@test "a graph that is split is split again: other ops, or shards into smaller ones" {
	dlb-costmodel -q -c cpu:1 "$made/digits_mlp.json" | dlb-place -q | losses >"$tmp/whole"
	dlb-costmodel -q -c cpu:2 --split '/1/Gemm=2' "$made/digits_mlp.json" >"$tmp/once.json"
	for again in '/3/Gemm=2' '/3/Gemm=3:batch' '/1/Gemm@0=3' '/1/Gemm@?=2' '/1/Gemm@1=2:batch' '*=2:batch'; do
		dlb-costmodel -q -c cpu:2 --split "$again" "$tmp/once.json" | dlb-place -q -a even >"$tmp/doc.json"
		validates "$tmp/doc.json"
		jq -e '.graph.split | length >= 2 and .[0].op == "/1/Gemm"' "$tmp/doc.json"
		losses <"$tmp/doc.json" >"$tmp/split"
		near "$tmp/whole" "$tmp/split" 1e-5
	done
	# weights are written whole again
	dlb-costmodel -q -c cpu:2 --split '/1/Gemm@0=3' "$tmp/once.json" | dlb-place -q -a even | losses --init 7 --save "$tmp/split.safetensors" >"$tmp/split"
	dlb-costmodel -q -c cpu:1 "$made/digits_mlp.json" | dlb-place -q | losses --init 7 --save "$tmp/whole.safetensors" >"$tmp/whole"
	near "$tmp/whole" "$tmp/split" 1e-5
	[ "$(wc -c <"$tmp/split.safetensors")" -eq "$(wc -c <"$tmp/whole.safetensors")" ]
	# a part along two axes is invalid
	run -2 --separate-stderr dlb-costmodel -q -c cpu:2 --split '/1/Gemm@0=2:input' "$tmp/once.json"
	one_line dlb-costmodel 'is a part of' 'at once'
	dlb-costmodel -q -c cpu:2 --split '/1/Gemm=2:batch' "$made/digits_mlp.json" >"$tmp/once.json"
	run -2 --separate-stderr dlb-costmodel -q -c cpu:2 --split '/1/Gemm@0=2:batch' "$tmp/once.json"
	one_line dlb-costmodel 'share of the samples already'
}

@test "slices that do not fit are refused" {
	dlb-costmodel -q -c cpu:2 --split '*=2' "$made/digits_mlp.json" >"$tmp/doc.json"
	for change in '.first = 1000' '.count = 0' '.axis = 7' '.units = 0' '.unit = 9007199254740991' '.shape = [9007199254740991, 2]' \
		'.shape = []' 'del(.of)' '.of = 3'; do
		jq "(.graph.tensors[] | select(.slice)).slice |= ($change)" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-place "$tmp/bad.json"
		one_line dlb-place slice
	done
}

@test "shares of samples that cannot be are refused" {
	dlb-costmodel -q -c cpu:2 --split '*=2:batch' "$made/digits_mlp.json" | jq 'del(.profile, .cost)' >"$tmp/doc.json"
	for change in '.part = 2' '.of = 1' '.of = 5000' '.of = 17' 'del(.part)' '.x = 1'; do
		jq "(.graph.tensors[] | select(.samples)).samples |= ($change)" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-costmodel "$tmp/bad.json"
		one_line dlb-costmodel samples
	done
	# tensors of one op that do not match
	jq 'del(.graph.tensors[] | .samples)' "$tmp/doc.json" >"$tmp/bad.json"
	run -2 --separate-stderr bash -c 'dlb-costmodel -q "$1" | dlb-place -q | dlb-run -q --data digits --steps 1' - "$tmp/bad.json"
	one_line dlb-run 'is stated as'
}

# bats test_tags=slow
@test "a checkpoint whose list of parts is wrong is refused" {
	placer=even planned_split digits_mlp cpu:2 '*=2' >"$tmp/doc.json"
	dlb-costmodel -q -c cpu:1 "$made/digits_mlp.json" | dlb-place -q >"$tmp/whole.json"
	steps=2 losses --checkpoint "$tmp/ckpt" <"$tmp/doc.json" >"$tmp/split"
	m=$tmp/ckpt/step-2/manifest.json
	cp "$m" "$tmp/manifest.json"
	sums() { (cd "${m%/*}" && sha256sum -- *.safetensors manifest.json >SHA256SUMS); }
	for change in '.count = 1000' '.axis = -1' '.units = 0' '.shape = [1]' '.name = "no"' '.part = "../x"' 'del(.part)'; do
		jq "(.tensors[] | select(type == \"array\"))[0] |= ($change)" "$tmp/manifest.json" >"$m"
		sums
		run -2 --separate-stderr dlb-run -q "${data[@]}" --steps 1 --checkpoint "$tmp/ckpt" "$tmp/whole.json"
		one_line dlb-run
	done
	# a part that does not exist
	jq '.tensors |= map_values(if type == "array" then .[1:] else . end)' "$tmp/manifest.json" >"$m"
	sums
	run -2 --separate-stderr dlb-run -q "${data[@]}" --steps 1 --checkpoint "$tmp/ckpt" "$tmp/whole.json"
	one_line dlb-run 'has not all of'
}

# bats test_tags=slow
@test "attention without a mask, with a past, written as it lies: by heads, the losses of the whole" {
	python3 - "$BATS_TEST_DIRNAME/data" "$tmp" <<-'END'
		import struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import attribute_int, model, node, tensor, value
		from options import rewritten
		def table(name):
		    return tensor(name, [8, 8], struct.pack('<64f', *((i * 7 % 13 - 6) / 8 for i in range(64))))
		def attention(past):		# of 3, or of 6 inputs: no mask, no lengths
		    return model(node('MatMul', ['x', 'a'], ['q'], 'mq') + node('MatMul', ['x', 'b'], ['k'], 'mk') + node('MatMul', ['x', 'c'], ['v'], 'mv') +
		        node('Attention', ['q', 'k', 'v'] + past * ['', 'pk', 'pv'], ['z'] + past * ['k2', 'v2'], 'att',
		             attribute_int('q_num_heads', 4) + attribute_int('kv_num_heads', 4)) + node('Tanh', ['z'], ['y'], 'last') +
		        table('a') + table('b') + table('c') + value(11, 'x', ['batch', 6, 8]) +
		        past * (value(11, 'pk', ['batch', 4, 3, 2]) + value(11, 'pv', ['batch', 4, 3, 2])) + value(12, 'y', ['batch', 6, 8]), opset=23, ir=10)
		for name, m in ('flat', attention(0)), ('past', attention(1)), ('strided', rewritten()['attention']):
		    open(f'{sys.argv[2]}/{name}.onnx', 'wb').write(m)
	END
	data=(--data random) steps=4
	for m in flat past strided; do
		for loss in mse cross-entropy:1; do
			dlb-profile -q --analytic --batch 6 --loss $loss "$tmp/$m.onnx" >"$tmp/profiled.json"
			op=$(jq -r '.graph.ops[] | select(.phase == "forward" and (.type | endswith("Attention"))).name' "$tmp/profiled.json")
			dlb-costmodel -q -c cpu:1 "$tmp/profiled.json" | dlb-place -q | losses >"$tmp/whole"
			for how in =2:head =2 =2:batch; do
				chosen || continue
				dlb-costmodel -q -c cpu:2 --split "$op$how" "$tmp/profiled.json" | dlb-place -q -a even >"$tmp/doc.json"
				validates "$tmp/doc.json"
				axis=${how#=2:}
				jq -e --arg op "$op" --arg axis "${axis/#=2/head}" '.graph.split[] | select(.op == $op) | .axis == $axis and .shards == 2' "$tmp/doc.json"
				[ "$axis" = batch ] || jq -e 'all(.graph.split[]; .axis != "batch")' "$tmp/doc.json"
				losses <"$tmp/doc.json" >"$tmp/split"
				near "$tmp/whole" "$tmp/split" 1e-5
			done
		done
	done
}

# ---- with models of DLB_TEST_DATA, where there are none with our own ----

a_gpt() { # [DLB-PROFILE-OPTION...]
	gpt_and_text
	dlb-profile -q --analytic "$@" "$gpt"
}
a_bert() {
	local m=$DLB_TEST_DATA/onnx/models/bert_4l.train.op17.dyn.onnx
	local attention=()
	# the exporter leaves our attention's dropout switched off
	[ -s "$m" ] || m=$own/encoder/legacy.onnx attention=(--dropout '/enc/layers.*/self_attn/Dropout=0.1')
	dlb-profile -q --analytic "${attention[@]}" "$@" "$m"
}

forward_types() { jq -c '[.graph.ops[] | select(.phase == "forward") | .type]' "$1"; }

# bats test_tags=slow
@test "attention by heads: the projections are split with them, nothing is put together between" {
	a_gpt --batch 8 >"$tmp/profiled.json"
	data=(--data random) steps=8
	dlb-costmodel -q -c cpu:1 "$tmp/profiled.json" | dlb-place -q | losses >"$tmp/whole"
	for how in '/m/h.0/attn/*=2' '/m/h.0/attn/MatMul=2:head' '/m/h.0/attn/*=3'; do
		dlb-costmodel -q -c cpu:1 --split "$how" "$tmp/profiled.json" | dlb-place -q >"$tmp/doc.json"
		jq -e '.graph.split | map(.axis) == ["output", "head", "head", "input"]' "$tmp/doc.json"
		[ "$(forward_types "$tmp/doc.json" | jq 'index("Concat")')" = null ]
		losses <"$tmp/doc.json" >"$tmp/split"
		near "$tmp/whole" "$tmp/split" 1e-5
	done
	# the weight that holds queries, keys and values: two heads of each
	jq -e '[.graph.tensors[] | select(.slice) | select(.name | test("c_attn.weight")) | .slice | [.units, .unit, .shape[0]]] | .[0] as [$heads, $wide, $all] |
		$heads == 4 and $all == 3 * $heads * $wide' "$tmp/doc.json"
}

# bats test_tags=slow
@test "the table of words, read by two: split by rows for both" {
	a_gpt --batch 8 >"$tmp/profiled.json"
	data=(--data random --init 3) steps=8
	dlb-costmodel -q -c cpu:1 "$tmp/profiled.json" | dlb-place -q | losses >"$tmp/whole"
	# the message names the op that has the axis, whatever precedes it
	run -2 --separate-stderr dlb-costmodel -c cpu:2 --split '*=999:vocabulary' "$tmp/profiled.json"
	one_line dlb-costmodel '/m/wte/Gather' '999 shards are too many'
	for how in '/m/wte/Gather=2' '/m/lm_head/*=2' '/m/wte/Gather=3:output'; do
		dlb-costmodel -q -c cpu:1 --split "$how" "$tmp/profiled.json" | dlb-place -q | losses >"$tmp/split"
		near "$tmp/whole" "$tmp/split" 1e-5
	done
	dlb-costmodel -q -c cpu:1 --split '/m/wte/Gather=2' --split '/m/lm_head/*=2' "$tmp/profiled.json" | dlb-place -q >"$tmp/doc.json"
	jq -e '[.graph.tensors[] | select(.slice and .kind == "weight") | .shape[0]] == [33, 32]' "$tmp/doc.json"
	losses <"$tmp/doc.json" >"$tmp/split"
	near "$tmp/whole" "$tmp/split" 1e-5
}

# bats test_tags=slow
@test "dropout between: the masks are those of the whole" {
	a_bert --batch 4 >"$tmp/profiled.json"
	data=(--data random) steps=5
	dlb-costmodel -q -c cpu:1 "$tmp/profiled.json" | dlb-place -q | losses >"$tmp/whole"
	dlb-costmodel -q -c cpu:1 --split '*layers*=2' "$tmp/profiled.json" | dlb-place -q >"$tmp/doc.json"
	[ "$(forward_types "$tmp/doc.json" | jq 'index("Concat")')" = null ]
	losses <"$tmp/doc.json" >"$tmp/split"
	near "$tmp/whole" "$tmp/split" 1e-5
	# a mask other than the whole op's would not pass
	jq '(.graph.ops[] | select(.attributes.slice) | .attributes.slice[3]) |= 0 | del(.profile, .cost, .plan)' "$tmp/doc.json" | dlb-costmodel -q | dlb-place -q >"$tmp/wrong.json"
	losses <"$tmp/wrong.json" >"$tmp/split"
	run -1 near "$tmp/whole" "$tmp/split" 1e-5
}

# bats test_tags=slow
@test "scores of a vocabulary that is split go into the loss in parts; right ones are counted as of the whole" {
	a_gpt --batch 8 >"$tmp/profiled.json"
	tr -cd 'a-z \n' <"$BATS_TEST_DIRNAME/../man/dlb.7" | head -c 9000 >"$tmp/text"
	data=(--data "tokens:$tmp/text" --test-data "tokens:$tmp/text" --lr 0.03 --init 3) steps=8
	dlb-costmodel -q -c cpu:1 "$tmp/profiled.json" | dlb-place -q | losses >"$tmp/whole"
	jq -e '.report | .accuracy, .test_loss' "$tmp/ran.json" >"$tmp/whole.tested"
	for k in 2 3; do			# the table is also the weight of the last product
		dlb-costmodel -q -c cpu:2 --split "/m/wte/Gather=$k" --split "/m/lm_head/*=$k:output" "$tmp/profiled.json" |
			dlb-place -q -a even >"$tmp/doc.json"
		validates "$tmp/doc.json"
		[ "$(forward_types "$tmp/doc.json" | jq 'index("Concat")')" = null ]
		[ "$(forward_types "$tmp/doc.json" | jq 'index("CrossEntropyJoin") != null')" = true ]
		losses <"$tmp/doc.json" >"$tmp/split"
		near "$tmp/whole" "$tmp/split" 1e-5
		jq -e '.report | .accuracy, .test_loss' "$tmp/ran.json" >"$tmp/split.tested"
		near "$tmp/whole.tested" "$tmp/split.tested" 1e-5
	done
}

# bats test_tags=slow
@test "transformers by samples: attention, normalization and dropout; masks are counted by sample" {
	data=(--data random) steps=5
	a_gpt --batch 6 >"$tmp/gpt.json"
	dlb-costmodel -q -c cpu:2 --split '*=2:batch' "$tmp/gpt.json" >"$tmp/doc.json"
	forward_types "$tmp/doc.json" | jq -e 'map(select(. == "SampleConcat" or . == "SampleSplit")) | length == 2'
	a_bert --batch 6 >"$tmp/bert.json"
	for m in gpt bert; do
		for n in 1 2; do
			dlb-costmodel -q -c cpu:1 "$tmp/$m.json" | dlb-place -q -m $n | losses >"$tmp/whole.$n"
			dlb-costmodel -q -c cpu:2 --split '*=2:batch' "$tmp/$m.json" | dlb-place -q -m $n -a even | losses >"$tmp/split"
			near "$tmp/whole.$n" "$tmp/split" 1e-5
		done
		near "$tmp/whole.1" "$tmp/whole.2" 1e-5		# also if heads come before the rows of a sample
	done
}
