#!/usr/bin/env bats
# dlb-place --recompute: ops that run again give the same bits, take the memory and the time that the plan says, and are
# chosen where memory is short. Programs and the choice against all subsets: unit test_recompute.
load helper

set -o pipefail
setup() { cd "$BATS_FILE_TMPDIR" || return; tmp=$BATS_TEST_TMPDIR; }

# Profiles with batch statistics and with Dropout, and how to train them.
residual() {
	[ -s residual.json ] || dlb-profile -q --analytic --batch 8 "$models/resnet8.onnx" >residual.json
	profile=residual.json data=(--data digits --transform pad=10)
}
dropout() {
	[ -s dropout.json ] || dlb-profile -q --analytic --batch 8 --dropout '*Relu=0.4' "$models/digits_cnn.onnx" >dropout.json
	profile=dropout.json data=("${digits[@]}")
}
made() { # CLUSTER DLB-PLACE OPTION... >DOCUMENT
	local cluster=$1
	shift
	dlb-costmodel -q -c "$cluster" "$profile" | dlb-place -q --optimizer momentum "$@"
}
# Losses, and all that is saved, of three steps: weights, momenta and running statistics. Peaks must be those predicted.
trained() { # DOCUMENT DLB-RUN OPTION...
	local doc=$1
	shift
	dlb-run -q --steps 3 "${data[@]}" --lr 0.02 --save "$tmp/saved" "$@" "$doc" >"$tmp/out.json" &&
		jq -e '[.plan.nodes[].peak_bytes] == [.report.nodes[].peak_bytes]' "$tmp/out.json" >"$tmp/peaks" &&
		jq -c .report.losses "$tmp/out.json" && sha256sum <"$tmp/saved"
}

same_bits() { # of $profile, for the patterns given: over nodes, micro-batches and schedules
	local pattern nodes m schedule plain
	for m in 1 2 4; do
		plain=$(made cpu:1 -m "$m" >"$tmp/plain.json" && trained "$tmp/plain.json")
		for nodes in 1 2 3; do
			for schedule in 1f1b gpipe zero-bubble none interleaved; do
				for pattern; do
					chosen || continue
					[ "$m" -gt 1 ] || schedule=1f1b
					echo "$nodes nodes, $m micro-batches, $schedule, $pattern"
					made "cpu:$nodes" -a even -m "$m" --schedule "$schedule" --recompute "$pattern" >"$tmp/doc.json"
					jq -e '.plan.recompute.ops | length > 0' "$tmp/doc.json" >/dev/null
					[ "$(trained "$tmp/doc.json")" = "$plain" ]
				done
			done
		done
	done
}

# bats test_tags=slow
@test "batch statistics: the same losses, weights and running statistics, which are updated once" {
	residual
	same_bits '*bn*' '/stage[12]*' '*Relu*' '*'
}

# bats test_tags=slow
@test "Dropout: the same random numbers again" {
	dropout
	same_bits '*dropout*' '*Relu*' '*MaxPool' '*'
}

# bats test_tags=slow
@test "replicas of one and two nodes, with gradients clipped or weights averaged" {
	residual
	for how in '' '--clip-norm 1' '--sync-every 2'; do
		# shellcheck disable=SC2086
		made cpu:4 -a even -m 2 --replicas 2 $how >"$tmp/plain.json"
		# shellcheck disable=SC2086
		made cpu:4 -a even -m 2 --replicas 2 $how --recompute '/stage*' >"$tmp/doc.json"
		[ "$(trained "$tmp/plain.json")" = "$(trained "$tmp/doc.json")" ]
	done
	made cpu:4 -a even -m 2 --replicas 2 --sync-batchnorm >"$tmp/plain.json"
	made cpu:4 -a even -m 2 --replicas 2 --sync-batchnorm --recompute '*conv*' >"$tmp/doc.json"
	[ "$(trained "$tmp/plain.json")" = "$(trained "$tmp/doc.json")" ]
	made cpu:4 -a even -m 2 --replicas 2 --sync-batchnorm --recompute '*bn*' >"$tmp/doc.json" 2>"$tmp/said"
	jq -e '.plan.recompute.ops == []' "$tmp/doc.json"
	dlb-costmodel -q -c cpu:4 "$profile" | dlb-place -a even -m 2 --replicas 2 --sync-batchnorm --recompute '*bn*' 2>&1 >/dev/null |
		grep 'dlb-place: --recompute has no effect: what it names sums statistics over the replicas'
}

# bats test_tags=slow
@test "a run goes on from a checkpoint with the other setting" {
	residual
	made cpu:2 -a even -m 2 >"$tmp/plain.json"
	made cpu:1 -m 2 --recompute '*bn*' >"$tmp/again.json"
	all=$(dlb-run -q --steps 6 "${data[@]}" "$tmp/plain.json" | jq -c .report.losses)
	for order in 'plain again' 'again plain'; do
		rm -rf "$tmp/ckpt"
		parts=
		for doc in $order; do
			parts+=$(dlb-run -q --steps 3 "${data[@]}" --checkpoint "$tmp/ckpt" "$tmp/$doc.json" | jq -c .report.losses)
		done
		[ "${parts/][/,}" = "$all" ]
	done
}

# bats test_tags=slow
@test "less memory, more time, as the plan says; the program, the views and the schema know it" {
	residual
	made cpu:1 --recompute '*Relu*' >"$tmp/doc.json"
	made cpu:1 >"$tmp/plain.json"
	jq -en --slurpfile a "$tmp/plain.json" --slurpfile b "$tmp/doc.json" '($a[0].plan, $b[0].plan) as $p |
		[$a[0].plan.nodes[0].peak_bytes, $b[0].plan.nodes[0].peak_bytes] | .[1] < 0.9 * .[0]'
	# the step is longer by what runs again
	jq -e '.plan | .value_s as $s | ([.timeline[0][] | select(.[4]) | .[3] - .[2]] | add) as $again |
		([.timeline[0][] | select(.[4] | not) | .[3] - .[2]] | add) as $first |
		$again > 0 and ($s - $first - $again | fabs) < 1e-9' "$tmp/doc.json"
	jq -en --slurpfile a "$tmp/plain.json" --slurpfile b "$tmp/doc.json" '$b[0].plan.value_s > $a[0].plan.value_s'
	trained "$tmp/doc.json"
	jq -e '.report | .predicted_step_s == $s and ([.timeline[0][] | select(.[4])] | length > 0)' \
		--argjson s "$(jq .plan.value_s "$tmp/doc.json")" "$tmp/out.json"
	dlb-run -q --print-program "${data[@]}" "$tmp/doc.json" | grep 'COMPUTE *run again op'
	dlb-view -f trace "$tmp/doc.json" | jq -e '[.traceEvents[] | select(.cat == "again")] | length > 0'
	dlb-view -f svg "$tmp/doc.json" | grep -c 'forward, again'
	dlb-view -f html "$tmp/out.json" >"$tmp/page.html"
	dlb-run -q --dry-run --steps 2 "$tmp/doc.json" | jq -e '.report.step_s == .plan.value_s'
	if python3 -c 'import jsonschema' 2>/dev/null; then
		python3 - "$root/share/schemas/document.json" "$tmp/out.json" <<-'END'
			import json, jsonschema, sys
			jsonschema.Draft202012Validator(json.load(open(sys.argv[1]))).validate(json.load(open(sys.argv[2])))
		END
	fi
}

# bats test_tags=slow
@test "the setting holds for the next plan, and none ends it" {
	residual
	made cpu:2 -a even -m 2 --recompute '/stage1/*' --recompute '/stage2/*' >"$tmp/doc.json"
	dlb-place -q -m 4 "$tmp/doc.json" | jq -e '.plan.recompute | .patterns == ["/stage1/*", "/stage2/*"] and (.ops | length > 0)'
	dlb-place -q --recompute none "$tmp/doc.json" | jq -e '.plan | has("recompute") | not'
	# a placement edited by hand is planned again, what runs again stays
	jq '.plan.placement |= map_values(1)' "$tmp/doc.json" >"$tmp/edited.json"
	[ "$(trained "$tmp/doc.json")" = "$(dlb-run -q --steps 3 "${data[@]}" --lr 0.02 --save "$tmp/saved" "$tmp/edited.json" |
		jq -c .report.losses && sha256sum <"$tmp/saved")" ]
}

# bats test_tags=slow
@test "auto: what fits without is left alone; where memory is short the step is the shortest that fits" {
	residual
	made cpu:1 --recompute auto >"$tmp/doc.json" 2>"$tmp/said"
	jq -e '.plan.recompute == {"auto": true, "ops": []}' "$tmp/doc.json"
	made cpu:1 >"$tmp/plain.json"
	plain=$(jq .plan.value_s "$tmp/plain.json")
	losses=$(trained "$tmp/plain.json")
	last=0
	for memory in 1750K 1600K 1480K; do
		run -1 --separate-stderr made "cpu:1@$memory"
		one_line dlb-place 'and so would --recompute auto'
		made "cpu:1@$memory" --recompute auto >"$tmp/doc.json"
		jq -e ".plan | .nodes[0].peak_bytes <= 1e3 * ${memory%K} and .value_s > $plain and .value_s > $last and
			(.recompute.ops | length > 0)" "$tmp/doc.json"
		last=$(jq .plan.value_s "$tmp/doc.json")
		[ "$(trained "$tmp/doc.json")" = "$losses" ]
	done
	# the cheapest ops first: at most a twelfth more at 80 % of the memory
	jq -en "$last < 1.13 * $plain"
	run -1 --separate-stderr made cpu:1@600K --recompute auto
	one_line dlb-place 'with ops that run again it fits with ' ' MB more on node 0'
	# several nodes and micro-batches in flight
	made cpu:2 -a even -m 4 --schedule gpipe >"$tmp/plain.json"
	most=$(jq '[.plan.nodes[].peak_bytes] | max' "$tmp/plain.json")
	made "cpu:2@$((most * 88 / 100000))K" -a even -m 4 --schedule gpipe --recompute auto >"$tmp/doc.json"
	jq -e ".plan | .schedule == \"gpipe\" and ([.nodes[].peak_bytes] | max) <= 0.88 * $most and (.recompute.ops | length > 0)" \
		"$tmp/doc.json"
	[ "$(trained "$tmp/plain.json")" = "$(trained "$tmp/doc.json")" ]
}

@test "patterns without effect, contradictions and false plans are refused in one line" {
	residual
	dlb-costmodel -q -c cpu:2 "$profile" >"$tmp/cost.json"
	run -2 --separate-stderr dlb-place --recompute 'stage1.conv' "$tmp/cost.json"
	one_line dlb-place "no op or tensor of the forward phase matches 'stage1.conv'"
	run -2 --separate-stderr dlb-place --recompute '/fc/Gemm' "$tmp/cost.json"
	one_line dlb-place "--recompute '/fc/Gemm': without effect: no op of the backward phase reads an output of the 1 op"
	run -2 --separate-stderr dlb-place --recompute auto --recompute '*' "$tmp/cost.json"
	one_line dlb-place '--recompute auto excludes another'
	run -2 --separate-stderr dlb-place --recompute '*' --schedule async -m 2 "$tmp/cost.json"
	one_line dlb-place 'no op runs again under an asynchronous schedule'
	made cpu:2 -a even -m 2 --recompute '*bn*' >"$tmp/doc.json"
	for bad in '.plan.recompute.ops += [30]' '.plan.recompute.ops += [25]' '.plan.recompute.ops += [400]' \
		'.plan.recompute.auto = true' 'del(.plan.recompute.patterns)' '.plan.recompute.op = []'; do
		jq "$bad" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-view "$tmp/bad.json"
		one_line dlb-view /plan/recompute
	done
}

# bats test_tags=slow
@test "--front: less memory, slower steps, each as dlb-place plans it under that limit" {
	dlb-profile -q --analytic -b 64 "$models/resnet8.onnx" | dlb-costmodel -q -c cpu:1 >"$tmp/cost.json"
	dlb-place -q -m 4 --front "$tmp/cost.json" >"$tmp/front.json"
	jq -e '.plan.front | length > 2 and ([.[].bytes] | . == (sort | reverse | unique_by(-.))) and ([.[].value_s] | . == sort) and
		.[0].again == 0 and .[-1].again > 0' "$tmp/front.json"
	# the plan is that without the option
	cmp <(jq -S 'del(.plan.front, .provenance)' "$tmp/front.json") <(dlb-place -q -m 4 "$tmp/cost.json" | jq -S 'del(.provenance)')
	least=$(jq '.plan.front[-1]' "$tmp/front.json")
	jq --argjson x "$least" '.cluster.nodes[0].memory_bytes = $x.bytes | .cluster' "$tmp/cost.json" >"$tmp/small.json"
	dlb-costmodel -q -c "$tmp/small.json" "$tmp/cost.json" | dlb-place -q -m 4 --recompute auto |
		jq -e --argjson x "$least" '.plan | .nodes[0].peak_bytes <= $x.bytes and (.value_s / $x.value_s | . > .98 and . < 1.02)'
	dlb-view "$tmp/front.json" | grep -A3 'memory, fullest node'
	dlb-view -f front "$tmp/front.json" >"$tmp/front.svg"
	[ "$(grep -c '<circle' "$tmp/front.svg")" = "$(jq '.plan.front | length' "$tmp/front.json")" ]
	dlb-place -q "$tmp/cost.json" >"$tmp/none.json"
	run -2 --separate-stderr dlb-view -f front "$tmp/none.json"
	one_line dlb-view '--front'
}

@test "auto fits where no op need run again, also with parts whose least memory is not that of one micro-batch in flight" {
	python3 - "$root/tests/data" "$tmp/net.onnx" <<-'END'
		import random, struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import model, node, tensor, value
		draw, graph, weights = random.Random(1), b'', b''
		def op(kind, inputs, name):
		    global graph
		    graph += node(kind, inputs, [name + '_o'], name)
		    return name + '_o'
		def product(x, name, n, m):
		    global weights
		    weights += tensor(name + '.w', [n, m], struct.pack('<%df' % (n * m), *(draw.gauss(0, .1) for _ in range(n * m))))
		    return op('MatMul', [x, name + '.w'], name)
		wide = product('x', 'first', 16, 1024)
		sums = op('Add', [op('Add', [op('Tanh', [wide], 'tanh'), op('Sigmoid', [wide], 'sigmoid')], 'add1'), op('Exp', [wide], 'exp')], 'add2')
		y = op('Add', [product(wide, 'beside', 1024, 16), product(sums, 'after', 1024, 16)], 'joined')
		for i in range(2):
		    y = op('Tanh', [product(y, 'dense%d' % i, 16, 16)], 'tanh%d' % i)
		y = product(y, 'last', 16, 10)
		open(sys.argv[2], 'wb').write(model(graph + weights + value(11, 'x', ['N', 16]) + value(12, y, ['N', 10])))
	END
	dlb-profile -q --analytic --batch 64 "$tmp/net.onnx" | dlb-costmodel -q -c 'cpu:1 host cpu:1 host cpu:3' |
		jq 'del(.cost) | .cluster.nodes[1].memory_bytes = 456000' | dlb-costmodel -q >"$tmp/cost.json"
	for how in none auto; do
		dlb-place -q -a even -m 8 --schedule interleaved --recompute $how "$tmp/cost.json" >"$tmp/$how.json"
	done
	jq -en --slurpfile none "$tmp/none.json" --slurpfile auto "$tmp/auto.json" '$auto[0].plan.value_s <= $none[0].plan.value_s * 1.000001'
}
