#!/usr/bin/env bats
# What is a parameter: the exporter's list, the module's state_dict, the role of an initializer; freezing; groups of the
# optimizer. The last tests walk our own exports (tests/data/truth), and those of DLB_TEST_DATA/onnx/today.
load helper

today=$DLB_TEST_DATA/onnx/today

setup() {
	tmp=$BATS_TEST_TMPDIR
}

weights() { # [DLB-PROFILE OPTION...]: names of trained tensors, in order
	dlb-profile -q --analytic --batch 16 "$@" "$model" | jq -r '[.graph.tensors[] | select(.kind == "weight") | .name] | sort | join(" ")'
}

# bats test_tags=slow
@test "--freeze and --train-only: constants without gradient, update and state, saved with the rest" {
	all=$(weights)
	first=${all%% *}
	[ "$(weights --freeze "$first")" = "${all#* }" ]
	[ "$(weights --train-only "$first")" = "$first" ]
	dlb-profile -q --analytic --batch 16 --freeze "$first" "$model" >"$tmp/doc.json"
	jq -e --arg name "$first" '.graph | ([.tensors[] | select(.name == $name)][0] | .kind == "constant" and .frozen and .rule == "option" and .why == "--freeze")
		and ([.tensors[] | select(.name == $name + ".grad")] | length) == 0 and ([.ops[] | select(.name == $name + ".update")] | length) == 0' "$tmp/doc.json"
	for cluster in cpu:1 cpu:3; do
		dlb-costmodel -c "$cluster" "$tmp/doc.json" | dlb-place -q -a even | dlb-run -q --steps 3 "${digits[@]}" --optimizer adamw --save "$tmp/$cluster.safetensors" |
			jq -c .report.losses >"$tmp/$cluster"
	done
	cmp "$tmp/cpu:1" "$tmp/cpu:3"
	cmp "$tmp/cpu:1.safetensors" "$tmp/cpu:3.safetensors"
	[ "$(python3 - "$tmp/cpu:1.safetensors" <<-'END'
		import json, struct, sys
		f = open(sys.argv[1], 'rb')
		print(' '.join(sorted(json.loads(f.read(struct.unpack('<Q', f.read(8))[0])))))
	END
	)" = "$all" ]
}

@test "names that no weight has are refused with the nearest one" {
	all=$(weights)
	first=${all%% *}
	for option in --freeze --train-only --parameters; do
		run -2 --separate-stderr dlb-profile --analytic "$option" "${first}x" "$model"
		one_line dlb-profile "$option: no weight matches '${first}x'" "did you mean '$first'?"
	done
}

@test "--parameters: exactly these, by name, pattern or from a file" {
	all=$(weights)
	first=${all%% *}
	[ "$(weights --parameters "$first")" = "$first" ]
	[ "$(weights --parameters '*')" = "$all" ]
	printf '# the first\n%s\n\n' "$first" >"$tmp/list"
	[ "$(weights --parameters "$tmp/list")" = "$first" ]
}

@test "a name with brackets is no pattern of itself, but names itself" {
	python3 - "$root/tests/data" "$tmp/m.onnx" <<-'END'
		import struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import model, node, tensor, value
		table = tensor('emb[0]', [5, 4], struct.pack('<20f', *range(20)))
		weight = tensor('w[0]', [4, 3], struct.pack('<12f', *range(12)))
		open(sys.argv[2], 'wb').write(model(node('Gather', ['emb[0]', 'x'], ['e'], 'g[0]') + node('MatMul', ['e', 'w[0]'], ['y'], 'm[0]') +
		    node('Relu', ['y'], ['z']) + table + weight + value(11, 'x', ['batch'], 7) + value(12, 'z', ['batch', 3])))
	END
	profile=(dlb-profile -q --analytic --batch 4)
	"${profile[@]}" --dropout 'm[0]=.5' --padding-row 'emb[0]=1' --freeze 'w[0]' "$tmp/m.onnx" >"$tmp/doc.json"
	jq -e '.graph | (.ops[] | select(.name == "m[0].dropout") | .attributes.ratio == .5) and
		(.ops[] | select(.name == "g[0]") | .attributes.padding == 1) and (.tensors[] | select(.name == "w[0]") | .frozen)' "$tmp/doc.json"
	"${profile[@]}" "$tmp/m.onnx" | dlb-costmodel -q -c cpu:2 --split 'm[0]=3:output' | dlb-place -q >"$tmp/doc.json"
	jq -e '[.graph.split[].op] | index("m[0]") != null' "$tmp/doc.json"
	dlb-run -q --data random --steps 1 --group 'w[0]:lr=0' --group 'emb[0]:lr=0' "$tmp/doc.json"
}

# bats test_tags=slow
@test "--group: all weights in one group are the optimizer's own settings; a schedule holds for it too" {
	all=$(weights)
	planned "$tmp/doc.json"
	for rule in sgd momentum adamw; do
		train() { dlb-run -q --steps 4 "${digits[@]}" --optimizer "$rule" --lr-schedule cosine:4 "$@" "$tmp/doc.json" | jq -c .report.losses; }
		want=$(train --lr 0.02 --weight-decay 0.1)
		[ "$(train --lr 0.01 --group '*:lr=0.02,weight-decay=0.1')" = "$want" ]
		[ "$(train --lr 0.02 --weight-decay 0.1 --group "${all%% *}:weight-decay=0")" != "$want" ]
	done
	dlb-run -q --steps 1 "${digits[@]}" --group '*:lr=0.02' "$tmp/doc.json" >"$tmp/out.json"
	jq -e '.run.optimizer.groups == [{"glob": "*", "lr": 0.02}]' "$tmp/out.json"
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --group 'nothing:lr=1' "$tmp/doc.json"
	one_line dlb-run "no weight matches 'nothing'"
	for text in 'w' 'w:' ':lr=1' 'w:lr' 'w:lr=x' 'w:lr=-1' 'w:rate=1' 'w:lr=1,'; do
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --group "$text" "$tmp/doc.json"
		one_line dlb-run '--group wants GLOB:lr=X,weight-decay=Y'
	done
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --optimizer kfac --group '*:lr=1' "$tmp/doc.json"
	one_line dlb-run 'kfac'
}

# -- exports of PyTorch --

parameters_of() { # FOLDER: [[name, shape, ...], ...]
	if [ -e "$1/truth.json" ]; then jq .parameters "$1/truth.json"; else jq --arg m "${1##*/}" '.models[$m].parameters' "$own/truth.json"; fi
}

trained() { # FILE [DLB-PROFILE OPTION...]
	dlb-profile -q --analytic "${@:2}" "$1" | jq '[.graph.tensors[] | select(.kind == "weight") | .shape | reduce .[] as $d (1; . * $d)] | add'
}

# Number of elements that PyTorch trains and a file lacks: rows of tables that the model does not use, and
# normalizations that were multiplied into convolutions.
lacks() { # MODEL VARIANT STATE
	case $1/$2/$3 in
	mobilenet_v3_small/default/*) echo 6056 ;;
	shufflenet/default/*) echo 3976 ;;
	conv1d_ts/default/* | conv1d_ts/dynamic/*) echo 32 ;;
	bert*/default/list) echo 544 ;;		# 16 of 32 positions, 1 of 2 token types
	bert*/dynamic/list | gpt2/*/list) echo 512 ;;
	*) echo 0 ;;
	esac
}

# bats test_tags=slow
@test "as many elements are trained as in PyTorch, by the list and with the state_dict" {
	faults=0
	for file in "$own"/*/{default,dynamic,legacy}.onnx "$today"/*/{default,dynamic,legacy}.onnx; do
		[ -e "$file" ] || continue
		[[ $file == "$own"/* ]] || chosen || continue
		variant=$(basename "$file" .onnx) folder=$(dirname "$file")
		want=$(parameters_of "$folder" | jq '[.[] | .[1] | reduce .[] as $d (1; . * $d)] | add')
		for state in list state; do
			options=()
			[ $state = list ] || options=(--weights "$folder/state.safetensors")
			[ "$folder" != "$own/ranker" ] || options+=(--loss bce)		# one output a sample: no default
			got=$(trained "$file" "${options[@]}")
			[ "$((got + $(lacks "$(basename "$folder")" "$variant" $state)))" = "$want" ] ||
				{ faults=$((faults + 1)); echo "${folder##*/}/$variant with $state: $got of $want"; }
		done
	done
	[ $faults -eq 0 ]
}

# bats test_tags=slow
@test "what is saved with --weights has the names, shapes and types of the state_dict; ONNX gets its own back" {
	for folder in "$own"/{lstm,gpt,vit,residual} "$today"/{lstm_lm,gpt2,vit_small,norm_mean}; do
		state=$folder/state.safetensors
		[ -e "$state" ] || continue
		chosen || continue
		dlb-profile -q --analytic --batch 4 --weights "$state" "$folder/default.onnx" | dlb-costmodel -c cpu:2 | dlb-place -q -a even >"$tmp/doc.json"
		dlb-run -q --steps 1 --data random --save "$tmp/out.safetensors" "$tmp/doc.json" >/dev/null
		dlb-run -q --steps 1 --data random --save "$tmp/out.onnx" "$tmp/doc.json" >/dev/null
		python3 - "$state" "$tmp/out.safetensors" <<-'END'
			import json, struct, sys
			def head(path):
			    f = open(path, 'rb')
			    h = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
			    return {k: (v['dtype'], v['shape']) for k, v in h.items() if k != '__metadata__'}
			sys.exit(head(sys.argv[1]) != head(sys.argv[2]))
		END
		# every initializer of the saved model is made of the saved weights again
		[ "$(trained "$tmp/out.onnx" --weights "$tmp/out.safetensors")" = "$(trained "$folder/default.onnx" --weights "$state")" ]
	done
}
