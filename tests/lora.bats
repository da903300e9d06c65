#!/usr/bin/env bats
# Low-rank adapters: dlb-profile --lora, dlb-run --save and --merge.
load helper
model=$models/digits_mlp.onnx

setup() {
	tmp=$BATS_TEST_TMPDIR
}

adapted() { # CLUSTER [DLB-PROFILE OPTION...] >DOCUMENT, in two micro-batches
	local cluster=$1
	shift
	dlb-profile -q --analytic --batch 16 "$@" "$model" | dlb-costmodel -q -c "$cluster" | dlb-place -q -m 2 -a even
}

trained() { # DOCUMENT STEPS [DLB-RUN OPTION...]: losses
	local doc=$1 n=$2
	shift 2
	dlb-run -q --steps "$n" "${digits[@]}" --optimizer adam --lr 0.01 "$@" "$doc" | jq -c .report.losses
}

header() { # FILE.safetensors: names and shapes
	python3 - "$1" <<-'END'
		import json, struct, sys
		f = open(sys.argv[1], 'rb')
		head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
		print(' '.join(sorted(f"{k}{v['shape']}".replace(' ', '') for k, v in head.items() if k != '__metadata__')))
	END
}

# bats test_tags=slow
@test "adapters start at the model's loss, learn, and give the same bits on one node and three" {
	adapted cpu:1 >"$tmp/plain.json"
	adapted cpu:1 --lora 4:'*' >"$tmp/one.json"
	adapted cpu:3 --lora 4:'*' >"$tmp/three.json"
	[ "$(trained "$tmp/one.json" 1)" = "$(trained "$tmp/plain.json" 1)" ]
	trained "$tmp/one.json" 60 --save "$tmp/one.safetensors" >"$tmp/one"
	trained "$tmp/three.json" 60 --save "$tmp/three.safetensors" >"$tmp/three"
	cmp "$tmp/one" "$tmp/three"
	cmp "$tmp/one.safetensors" "$tmp/three.safetensors"
	jq -e '([.[50:][]] | add / length) < .9 * ([.[:5][]] | add / length)' "$tmp/one"
	# drawn from the seed of the run
	[ "$(trained "$tmp/one.json" 3 --seed 1)" != "$(trained "$tmp/one.json" 3 --seed 2)" ]
}

# bats test_tags=slow
@test "only adapters and --train-only are trained, with PEFT's names" {
	adapted cpu:2 --lora 4:'*' --lora-alpha 8 >"$tmp/doc.json"
	jq -e '.graph | (.adapters | length) > 0 and all(.adapters[]; .scale == 2 and .rank == 4) and
		([.tensors[] | select(.kind == "weight") | .name] | sort) == ([.adapters[] | .a, .b] | sort) and
		([.ops[] | select(.phase == "update")] | length) == 2 * (.adapters | length)' "$tmp/doc.json"
	mkdir "$tmp/folder"
	trained "$tmp/doc.json" 2 --save "$tmp/folder/adapter_model.safetensors"
	[ "$(header "$tmp/folder/adapter_model.safetensors")" = "$(jq -r '.graph | [.tensors[] | select(.kind == "weight") |
		.name + (.shape | tojson)] | sort | join(" ")' "$tmp/doc.json")" ]
	jq -e --slurpfile doc "$tmp/doc.json" '.peft_type == "LORA" and .r == 4 and .lora_alpha == 8 and
		.target_modules == [$doc[0].graph.adapters[].of | rtrimstr(".weight")]' "$tmp/folder/adapter_config.json"
	first=$(jq -r '[.graph.tensors[] | select(.frozen) | .name][0]' "$tmp/doc.json")
	adapted cpu:1 --lora 4:'*' --train-only "$first" >"$tmp/more.json"
	jq -e --arg name "$first" 'any(.graph.tensors[]; .name == $name and .kind == "weight")' "$tmp/more.json"
	trained "$tmp/more.json" 1 --save "$tmp/more.safetensors"
	[[ "$(header "$tmp/more.safetensors")" = *"base_model.model.${first}["* ]]
}

@test "--merge: the merged model continues where the adapters are" {
	adapted cpu:2 --lora 3:'*' --lora-alpha 6 >"$tmp/doc.json"
	trained "$tmp/doc.json" 6 --save "$tmp/merged.onnx" --merge >"$tmp/six"
	trained "$tmp/doc.json" 7 >"$tmp/seven"
	dlb-profile -q --analytic --batch 16 "$tmp/merged.onnx" | dlb-costmodel -q -c cpu:1 | dlb-place -q -m 2 >"$tmp/merged.json"
	# the seventh batch, by the merged weights without an update
	trained "$tmp/merged.json" 7 --lr 0 >"$tmp/merged"
	jq -n -e --slurpfile a "$tmp/seven" --slurpfile m "$tmp/merged" '($a[0][6] - $m[0][6] | fabs) < 1e-5'
	trained "$tmp/doc.json" 6 --save "$tmp/merged.safetensors" --merge
	[ "$(header "$tmp/merged.safetensors")" = "$(jq -r '.graph | [.tensors[] | select(.kind == "weight") |
		.name + (.shape | tojson)] | sort | join(" ")' "$tmp/merged.json")" ]
	run -2 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" --save "$tmp/no.onnx" "$tmp/doc.json"
	[[ "$stderr" = *"--merge"* ]]
}

# bats test_tags=slow
@test "adapters continue from a checkpoint, and may be split" {
	adapted cpu:2 --lora 4:'*' >"$tmp/doc.json"
	trained "$tmp/doc.json" 6 >"$tmp/whole"
	trained "$tmp/doc.json" 3 --checkpoint "$tmp/ck" >"$tmp/first"
	trained "$tmp/doc.json" 3 --checkpoint "$tmp/ck" >"$tmp/second"
	[ "$(jq -c -n --slurpfile a "$tmp/first" --slurpfile b "$tmp/second" '$a[0] + $b[0]')" = "$(cat "$tmp/whole")" ]
	op=$(jq -r '[.graph.ops[] | select(.phase == "forward" and .type == "Gemm" and (.name | contains("lora") | not)) | .name][0]' "$tmp/doc.json")
	dlb-profile -q --analytic --batch 16 --lora 4:'*' "$model" | dlb-costmodel -q -c cpu:2 --split "$op=2:output" | dlb-place -q -m 2 -a even >"$tmp/split.json"
	jq -e '.graph.split | length > 0' "$tmp/split.json"
	trained "$tmp/split.json" 6 --save "$tmp/split.safetensors" --merge >"$tmp/split"
	trained "$tmp/doc.json" 6 --save "$tmp/whole.safetensors" --merge
	[ "$(header "$tmp/split.safetensors")" = "$(header "$tmp/whole.safetensors")" ]
	jq -n -e --slurpfile a "$tmp/whole" --slurpfile b "$tmp/split" '[range(6) | $a[0][.] - $b[0][.] | fabs] | max < 1e-4'
}

@test "--lora: what cannot be done is refused in one line" {
	for case in '0|no rank' 'x|no rank' '4:nothing|has that name' '4:|no rank'; do
		run -2 --separate-stderr dlb-profile --analytic --lora "${case%|*}" "$model"
		[[ "$stderr" = *"${case#*|}"* ]] && [ "${#stderr_lines[@]}" = 1 ]
	done
	run -2 --separate-stderr dlb-profile --analytic --lora 4 --freeze '*' "$model"
	[[ "$stderr" = *"freezes all"* ]]
	run -2 --separate-stderr dlb-profile --analytic --lora 4:'*' --train-only nothing "$model"
	[[ "$stderr" = *"nothing"* ]] && [ "${#stderr_lines[@]}" = 1 ]
	# names or shapes that do not agree
	adapted cpu:1 --lora 4:'*' >"$tmp/doc.json"
	for change in '.graph.adapters[0].of = "none"' '.graph.adapters[0].rank = 5' '.graph.adapters[0].transposed |= not'; do
		jq "$change" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-run -q --steps 1 --data random "$tmp/bad.json"
		[[ "$stderr" = *"/graph/adapters/0"* ]]
	done
}

@test "a product by a part of a weight gets no adapter, and one line counts it" {
	python3 - "$root/tests/data" "$tmp/m.onnx" <<-'END'
		import struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import model, node, tensor, value
		def ints(name, *v): return tensor(name, [len(v)], struct.pack(f'<{len(v)}q', *v), 7)
		first = tensor('a.weight', [4, 4], struct.pack('<16f', *range(16)))
		both = tensor('both.weight', [4, 6], struct.pack('<24f', *range(24)))
		open(sys.argv[2], 'wb').write(model(node('MatMul', ['x', 'a.weight'], ['h'], 'a') + node('Slice', ['both.weight', 'from', 'to', 'axis'], ['part'], 's') +
		    node('MatMul', ['h', 'part'], ['y'], 'b') + first + both + ints('from', 0) + ints('to', 3) + ints('axis', 1) +
		    value(11, 'x', ['batch', 4]) + value(12, 'y', ['batch', 3])))
	END
	run -0 --separate-stderr dlb-profile --analytic --batch 4 --lora 2:'*' "$tmp/m.onnx"
	[[ "$stderr" = *"1 product by a part of a weight"*"gets no adapter"* ]]
	[ "$(jq -c '[.graph.adapters[].of]' <<<"$output")" = '["a.weight"]' ]
}

@test "a product by what six operators make of a weight is counted, one by what seven make is not" {
	python3 - "$root/tests/data" "$tmp/m.onnx" <<-'END'
		import struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import model, node, tensor, value
		def weight(name): return tensor(name, [4, 4], struct.pack('<16f', *(i / 16 for i in range(16))))
		def chain(name, n):
		    names = [f'{name}.weight'] + [f'{name}{i}' for i in range(n)]
		    return b''.join(node(('Tanh', 'Sigmoid')[i % 2], [names[i]], [names[i + 1]], names[i + 1]) for i in range(n)), names[-1]
		six, last_of_six = chain('six', 6)
		seven, last_of_seven = chain('seven', 7)
		open(sys.argv[2], 'wb').write(model(six + seven + node('MatMul', ['x', 'a.weight'], ['h'], 'a') + node('MatMul', ['h', last_of_six], ['k'], 'b') +
		    node('MatMul', ['k', last_of_seven], ['y'], 'c') + weight('a.weight') + weight('six.weight') + weight('seven.weight') +
		    value(11, 'x', ['batch', 4]) + value(12, 'y', ['batch', 4])))
	END
	run -0 --separate-stderr dlb-profile --analytic --batch 4 --lora 2:'*' "$tmp/m.onnx"
	[[ "$stderr" = *"1 product by a part of a weight"*"gets no adapter"* ]]
	[ "$(jq -c '[.graph.adapters[].of]' <<<"$output")" = '["a.weight"]' ]
}

@test "--test-data measures adapters, and weights beside frozen ones, as the saved model" {
	local how score merge
	for how in '--lora 4' "--freeze 1.*"; do
		[[ $how == --lora* ]] && merge=(--merge) || merge=()
		# shellcheck disable=SC2086	# words
		dlb-profile -q --analytic --batch 16 $how "$model" | dlb-costmodel -q -c cpu:2 | dlb-place -q -m 2 -a even >"$tmp/doc.json"
		dlb-run -q --steps 20 "${digits[@]}" --test-data digits:test --eval-every 10 --optimizer adam --lr 0.01 \
			--save "$tmp/trained.onnx" "${merge[@]}" "$tmp/doc.json" >"$tmp/out.json"
		score=$(jq '.report | if .evaluations | length == 2 then .test_loss else empty end' "$tmp/out.json")
		dlb-profile -q --analytic --batch 16 "$tmp/trained.onnx" | dlb-costmodel -q -c cpu:1 | dlb-place -q |
			dlb-run -q --steps 1 --lr 0 "${digits[@]}" --test-data digits:test >"$tmp/saved.json"
		jq -e --argjson score "$score" '.report.test_loss / $score - 1 | fabs < 1e-6' "$tmp/saved.json"
	done
}
