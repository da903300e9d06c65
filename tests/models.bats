#!/usr/bin/env bats
# The exported models of DLB_TEST_DATA/onnx: every file is read, folded, differentiated, costed, placed on three nodes
# and trained for a step on random data, and has the number of trainable parameters of PyTorch (MODELS.tsv).
# About three minutes; the largest models briefly take some GB.
load helper

onnx=$DLB_TEST_DATA/onnx

setup() {
	tmp=$BATS_TEST_TMPDIR
	faults=0
	[ -s "$onnx/MODELS.tsv" ] || skip "no exported models (DLB_TEST_DATA=$DLB_TEST_DATA)"
}

fault() { # NAME WHAT...
	faults=$((faults + 1))
	echo "$*"
}

# Number of parameters in PyTorch. light/ has models of onnx/onnx: the numbers of the papers' networks.
parameters() { # NAME
	case $1 in
	light_bvlc_alexnet) echo 60965224 ;;
	light_inception_v1) echo 6998552 ;;
	light_resnet50) echo 25557032 ;;
	light_squeezenet) echo 1235496 ;;
	light_vgg19) echo 143667240 ;;
	*) awk -F'\t' -v name="$1" '$1 == name { print $5 }' "$onnx/MODELS.tsv" ;;
	esac
}

# Runs one file through the five filters. Its lines on stderr are kept in $tmp/said.
one_step() { # FILE BATCH
	local name=${1##*/} batch=$2 init=()
	name=${name%.onnx}
	[[ $name == *light* ]] && init=(--init 1)	# all their weights are equal
	if ! dlb-profile -v --analytic --batch "$batch" "$1" >"$tmp/graph.json" 2>"$tmp/said" ||
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

# Runs the files of models/ and light/ that match a pattern; at least LEAST.
all_of() { # LEAST BATCH PATTERN...
	local least=$1 batch=$2 pattern file
	done_files=0
	shift 2
	for pattern; do
		for file in "$onnx"/models/$pattern.onnx "$onnx"/light/$pattern.onnx; do
			[ ! -e "$file" ] || one_step "$file" "$batch"
		done
	done
	echo "$done_files files"
	[ "$faults" -eq 0 ] && [ "$done_files" -ge "$least" ]
}

@test "mlp, lenet5, moe, dlrm" { all_of 11 2 'mlp.*' 'lenet5.*' 'moe.*' 'dlrm.*'; }
@test "transformers and LSTM" { all_of 7 2 'gpt_2l.*' 'bert_4l.*' 'lstm_lm.*'; }
@test "small images" { all_of 9 2 'resnet20_cifar.*' 'resnet18_cifar.*' 'inception_small.*' 'vgg_small.*'; }
@test "images of 224" { all_of 8 2 'resnet18.*' 'resnet50.*' 'googlenet.*' 'squeezenet1_1.*' light_resnet50 light_squeezenet light_inception_v1; }
@test "alexnet and vgg" { all_of 4 2 'alexnet.*' 'vgg11_bn.*' light_bvlc_alexnet light_vgg19; }
@test "vit_b_16" { all_of 1 1 'vit_b_16.*'; }
@test "gpt2_124m" { all_of 1 1 'gpt2_124m.*'; }

@test "no file is left out" {
	[ "$(find "$onnx/models" "$onnx/light" -name '*.onnx' | wc -l)" -eq 41 ]
}

warnings() { { dlb-profile --analytic "$onnx/models/$1.onnx" >/dev/null; } 2>&1; }

@test "exported for inference: what was folded, what is tied, and how to export for training" {
	for name in resnet20_cifar.eval.op17.dyn resnet50.eval.op13.st.light; do
		run -0 warnings "$name"
		[[ ${lines[0]} == *'convolutions have batch normalization folded in'*'TrainingMode.TRAINING'* ]]
		[[ ${lines[1]} == *'of equal values were merged by the exporter'*'stay tied in training'*'TrainingMode.TRAINING'* ]]
	done
	run -0 warnings resnet20_cifar.preserve.op17.dyn
	[[ ${lines[0]} == *'21 BatchNormalization, exported for inference, train by the statistics of each batch'*'--batchnorm frozen'* ]]
	[[ ${lines[1]} == *"6 weights or statistics of equal values were merged by the exporter ('f.0.1.weight' has 7 readers)"* ]]
}

@test "exported for training: nothing to warn of" {
	for name in resnet20_cifar.train.op17.dyn lstm_lm.train.op17.dyn bert_4l.train.op17.dyn mlp.train.op13.dyn.loss; do
		run -0 warnings "$name"
		[ -z "$output" ] || { echo "$name: $output"; false; }
	done
}

@test "an embedding that the last layer shares is no accident, and said to be shared" {
	run -0 warnings gpt_2l.train.op17.dyn
	[ "${#lines[@]}" -eq 1 ]
	[[ $output == *"1 weight is shared in the model ('m.transformer.wte.weight', by Gather "*"): trained as one"* ]]
}

@test "a batch that is wired into the model: the same loss as without" {
	for name in lstm_lm gpt_2l; do
		for how in st.loss dyn; do
			dlb-profile -q --analytic --batch 4 "$onnx/models/$name.train.op17.$how.onnx" | dlb-costmodel -c cpu:1 |
				dlb-place -q | dlb-run -q --steps 2 --data random | jq -c .report.losses >"$tmp/$how"
		done
		cmp "$tmp/st.loss" "$tmp/dyn"
	done
}
