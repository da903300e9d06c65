#!/usr/bin/env bats
# Exported models, our own (tests/data/truth), those of share/models and those of DLB_TEST_DATA/onnx where they are: every
# file is read, folded, differentiated, costed, placed on three nodes and trained for a step on random data, and has as many
# trainable parameters as it had in PyTorch (truth.json, MODELS.tsv). With DLB_TEST_DATA and DLB_TEST_LONG about three minutes;
# the largest take some GB for a moment.
load helper

onnx=$DLB_TEST_DATA/onnx

setup() {
	tmp=$BATS_TEST_TMPDIR
	faults=0
	have_shared=''
	[ ! -s "$onnx/MODELS.tsv" ] || have_shared=1
}

fault() { # NAME WHAT...
	faults=$((faults + 1))
	echo "$*"
}

# Number of parameters in PyTorch. light/ has models of onnx/onnx: the numbers of the papers' networks.
parameters() { # NAME
	case $1 in
	own-*) jq --arg m "${1#own-}" '.models[$m].n_parameters' "$own/truth.json" ;;
	light_bvlc_alexnet) echo 60965224 ;;
	light_inception_v1) echo 6998552 ;;
	light_resnet50) echo 25557032 ;;
	light_squeezenet) echo 1235496 ;;
	light_vgg19) echo 143667240 ;;
	*) awk -F'\t' -v name="$1" '$1 == name { print $5 }' "$onnx/MODELS.tsv" ;;
	esac
}

# One file through the five filters. Its lines on stderr stay in $tmp/said.
one_step() { # FILE BATCH [NAME [DLB-PROFILE-OPTION...]]
	local name=${3:-${1##*/}} batch=$2 init=()
	name=${name%.onnx}
	[[ $name == *light* ]] && init=(--init 1)	# their weights are all the same number
	if ! dlb-profile -v --analytic --batch "$batch" "${@:4}" "$1" >"$tmp/graph.json" 2>"$tmp/said" ||
		! dlb-costmodel -c cpu:3 "$tmp/graph.json" >"$tmp/cost.json" 2>>"$tmp/said" ||
		! dlb-place -q "$tmp/cost.json" >"$tmp/plan.json" 2>>"$tmp/said" ||
		! dlb-place -q -a even "$tmp/cost.json" >"$tmp/plan.json" 2>>"$tmp/said"; then
		fault "$name" "$(cat "$tmp/said")"
		return
	fi
	if ! dlb-run -q --steps 1 --data random "${init[@]}" "$tmp/plan.json" >"$tmp/out.json" 2>"$tmp/err"; then
		fault "$name" "$(cat "$tmp/err")"
		return
	fi
	jq -e '(.plan.placement | [.[]] | unique) == [0, 1, 2] and (.report.losses | length) == 1 and
		(.report.losses[0] | . > 0 and . < 100)' "$tmp/out.json" >/dev/null ||
		fault "$name" "$(jq -c '[.report.losses, (.plan.placement | [.[]] | unique)]' "$tmp/out.json")"
	count=$(sed -n 's/.* batch [0-9]*, \([0-9]*\) parameters,.*/\1/p' "$tmp/said")
	case $name in
	resnet*.eval.* | *.preserve.*) ;;	# folded or merged: messages name the lost parameters, see below
	*) [ "$count" = "$(parameters "$name")" ] || fault "$name has '$count' parameters, not $(parameters "$name")" ;;
	esac
	rm -f "$tmp"/*.json
	done_files=$((done_files + 1))
}

# With DLB_TEST_LONG: runs the files of models/ and light/ that match a pattern; at least LEAST.
all_of() { # LEAST BATCH PATTERN...
	local least=$1 batch=$2 pattern file
	done_files=0
	shift 2
	for pattern; do
		for file in "$onnx"/models/$pattern.onnx "$onnx"/light/$pattern.onnx; do
			[ -n "$DLB_TEST_LONG" ] || continue
			[ ! -e "$file" ] || one_step "$file" "$batch"
		done
	done
	echo "$done_files files of DLB_TEST_DATA"
	[ "$faults" -eq 0 ] && { [ -z "$DLB_TEST_LONG" ] || [ -z "$have_shared" ] || [ "$done_files" -ge "$least" ]; }
}

# Our own: the exports of each, or the file of share/models.
each_own() { # MODEL...
	local name file loss before
	done_files=0
	for name; do
		loss=() before=$done_files
		[ "$(jq -r --arg m "$name" '.models[$m].loss' "$own/truth.json")" != bce ] || loss=(--loss bce)
		for file in "$own/$name"/{default,dynamic,legacy,loss}.onnx "$models/$name.onnx"; do
			[ ! -e "$file" ] || one_step "$file" 4 "own-$name" "${loss[@]}"
		done
		[ "$done_files" -gt "$before" ] || fault "$name" "$name: no file"
	done
	[ "$faults" -eq 0 ]
}

# bats test_tags=slow
@test "mlp, lenet5, moe, dlrm" {
	each_own digits_mlp experts ranker
	all_of 11 2 'mlp.*' 'lenet5.*' 'moe.*' 'dlrm.*'
}
# bats test_tags=slow
@test "transformers and LSTM" {
	each_own gpt encoder lstm
	all_of 7 2 'gpt_2l.*' 'bert_4l.*' 'lstm_lm.*'
}
# bats test_tags=slow
@test "small images" {
	each_own digits_cnn residual folded
	all_of 9 2 'resnet20_cifar.*' 'resnet18_cifar.*' 'inception_small.*' 'vgg_small.*'
}
# bats test_tags=slow
@test "images of 28 and 224" {
	each_own lenet5 resnet8
	all_of 8 2 'resnet18.*' 'resnet50.*' 'googlenet.*' 'squeezenet1_1.*' light_resnet50 light_squeezenet light_inception_v1
}
# bats test_tags=slow
@test "vision transformers; alexnet, vgg and gpt2_124m" {
	each_own vit
	all_of 4 2 'alexnet.*' 'vgg11_bn.*' light_bvlc_alexnet light_vgg19
	all_of 1 1 'vit_b_16.*'
	all_of 1 1 'gpt2_124m.*'
}

@test "no file is left out" {
	[ -z "$have_shared" ] || [ "$(find "$onnx/models" "$onnx/light" -name '*.onnx' | wc -l)" -eq 41 ]
	for name in $(jq -r '.models | keys[]' "$own/truth.json"); do
		grep -q "each_own .*\b$name\b" "$BATS_TEST_FILENAME" || { echo "$name: not trained"; false; }
	done
}

warnings() { { dlb-profile --analytic "$1.onnx" >/dev/null; } 2>&1; }
shared() { # NAME...: the files that there are
	for name; do [ -z "$have_shared" ] || echo "$onnx/models/$name"; done
}

@test "exported for inference: what was folded, what is tied, and how to export for training" {
	for name in "$own/folded/eval" $(shared resnet20_cifar.eval.op17.dyn resnet50.eval.op13.st.light); do
		run -0 warnings "$name"
		[[ ${lines[0]} == *'convolutions have batch normalization folded in'*'TrainingMode.TRAINING'* ]]
		[[ ${lines[1]} == *'of equal values were merged by the exporter'*'stay tied in training'*'TrainingMode.TRAINING'* ]]
	done
	run -0 warnings "$own/folded/preserve"
	[[ ${lines[0]} == *'2 BatchNormalization, exported for inference, train by the statistics of each batch'*'--batchnorm frozen'* ]]
	[[ ${lines[1]} == *'4 running statistics are of a value that other tensors have too'* ]]
	[[ ${lines[2]} == *'weights or statistics of equal values were merged by the exporter '* ]]
	for name in $(shared resnet20_cifar.preserve.op17.dyn); do
		run -0 warnings "$name"
		[[ ${lines[0]} == *'21 BatchNormalization, exported for inference, train by the statistics of each batch'*'--batchnorm frozen'* ]]
		[[ ${lines[1]} == *'42 running statistics are of a value that other tensors have too'* ]]
		[[ ${lines[2]} == *"6 weights or statistics of equal values were merged by the exporter ('f.0.1.weight' has 7 readers)"* ]]
	done
}

@test "exported for training: nothing to warn of" {
	for name in "$models/lenet5" "$own"/{residual,folded,experts}/legacy \
			$(shared resnet20_cifar.train.op17.dyn lstm_lm.train.op17.dyn bert_4l.train.op17.dyn mlp.train.op13.dyn.loss); do
		run -0 warnings "$name"
		[ -z "$output" ] || { echo "$name: $output"; false; }
	done
}

@test "an embedding that the last layer shares is no accident, and said to be shared" {
	for name in "$own/gpt/loss" $(shared gpt_2l.train.op17.dyn); do
		run -0 warnings "$name"
		# beside what is trained: the second model has masks
		[ "$(grep -vc ' weights by their role; 2 constants not trained$' <<<"$output")" -eq 1 ]
		[[ $output == *"1 weight is shared in the model ('m."*"wte.weight', by Gather "*"): trained as one"* ]]
	done
}

# bats test_tags=slow
@test "a batch that is wired into the model: the same loss as without" {
	two() {
		dlb-profile -q --analytic --batch 4 "$1" | dlb-costmodel -c cpu:1 | dlb-place -q |
			dlb-run -q --steps 2 --data random | jq -c .report.losses
	}
	cmp <(two "$own/vit/default.onnx") <(two "$own/vit/dynamic.onnx")
	for name in $(shared lstm_lm gpt_2l); do
		cmp <(two "$name.train.op17.st.loss.onnx") <(two "$name.train.op17.dyn.onnx")
	done
}
