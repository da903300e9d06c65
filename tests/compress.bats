#!/usr/bin/env bats
# Compression between replicas (--compress): results, bytes, checkpoints, and failures of one replica that all report.
load helper

samples=24
setup() { tmp=$BATS_TEST_TMPDIR; }

# doc REPLICAS >FILE
doc() { plan "cpu:$1" -a single --replicas "$1" --allreduce ring; }

run_it() { # DOCUMENT STEPS [DLB-RUN OPTION...]
	local doc=$1 steps=$2
	shift 2
	dlb-run --steps "$steps" "${digits[@]}" --optimizer momentum --lr 0.02 "$@" "$doc"
}

# bats test_tags=slow
@test "lowrank sends less, dense until its start, and the report says what" {
	doc 2 >"$tmp/doc.json"
	dense=$(run_it "$tmp/doc.json" 6 | jq -c .report.losses)
	run_it "$tmp/doc.json" 6 --compress lowrank:2,start=4 >"$tmp/low.json"
	validates "$tmp/low.json"
	[ "$(jq -r .plan.compress "$tmp/low.json")" = lowrank:2,start=4 ]
	# Steps 0 to 3 are dense: losses 0 to 4 depend on them only.
	jq -e --argjson d "$dense" '[.report.losses[:5], $d[:5]] | transpose | all((.[0] - .[1]) | fabs < 1e-5)' "$tmp/low.json"
	jq -e --argjson d "$dense" '.report.losses[5] != $d[5]' "$tmp/low.json"
	jq -e '.report.allreduce | .bytes < .dense_bytes / 4 and .classes.gradient.bytes < .classes.gradient.dense_bytes / 8' "$tmp/low.json"
	run_it "$tmp/doc.json" 6 --compress bf16 | jq -e '.report.allreduce | .bytes < .dense_bytes * 0.51'
	# Predicted bytes are those sent, except a few words of flags.
	dlb-run --dry-run --compress lowrank:2 "$tmp/doc.json" >"$tmp/dry.json"
	jq -e --argjson b "$(jq .report.allreduce.bytes "$tmp/low.json")" '.report.allreduce.bytes as $p | ($p - $b) | fabs < $b * 0.1' "$tmp/dry.json"
}

# bats test_tags=slow
@test "lowrank learns what dense sums learn, at a thirteenth of the bytes" {
	dlb-profile --analytic --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 |
		dlb-place -a single --replicas 2 --allreduce ring >"$tmp/doc.json"
	for how in none lowrank:2,start=0; do			# without residuals the loss is twice that of dense sums
		run_it "$tmp/doc.json" 300 --lr 0.05 --compress "$how" >"$tmp/out.json"
		jq '.report.losses[-30:] | add / 30' "$tmp/out.json" >>"$tmp/losses"
	done
	jq -e '.report.allreduce | .bytes < .dense_bytes / 13' "$tmp/out.json"
	jq -es '.[1] < 1.1 * .[0]' "$tmp/losses"
}

@test "peak_bytes counts errors, bases and what travels" {
	dlb-profile --analytic --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 |
		dlb-place -a single --replicas 2 --allreduce ring >"$tmp/doc.json"
	peak() { dlb-run -q --dry-run "$@" "$tmp/doc.json" | jq '.report.nodes[0].peak_bytes'; }
	none=$(peak)
	# 1.weight (32, 64), 3.weight (10, 32) and 42 biases, in one bucket; dense: packed.
	packed=$((4 * (2048 + 320 + 42)))
	low_rank=$((4 * (2048 + 320 + 2 * 2 * (64 + 32) + 2 * 2 * (32 + 64 + 10 + 32) + 42 + 4 * 2) + 8 * 2 * 32))
	[ "$(peak --compress lowrank:2,start=0)" -eq $((none - packed + low_rank)) ]
	[ "$(peak --compress lowrank:2)" -eq $((none - packed + low_rank + 4 * (2048 + 320))) ]	# dense at first
	# error=local: this rank's own coefficients, and what rounding took from them
	[ "$(peak --compress lowrank:2,start=0,error=local)" -eq $((none - packed + low_rank + 2 * 4 * 2 * (64 + 32))) ]
	[ "$(peak --gossip 0.5)" -eq $((none + packed * 3 / 2)) ]
	[ "$(peak --param-server 0)" -eq $((none + packed * 3)) ]		# its own weights, those received from one other, the mean
}

# bats test_tags=slow
@test "a continued run has the losses of an unbroken one, with what was kept back" {
	doc 2 >"$tmp/doc.json"
	doc 3 >"$tmp/three.json"
	whole=$(run_it "$tmp/doc.json" 9 --compress lowrank:2,start=2 | jq -c .report.losses)
	run_it "$tmp/doc.json" 5 --compress lowrank:2,start=2 --checkpoint "$tmp/ckpt" >"$tmp/first.json"
	cp -r "$tmp/ckpt" "$tmp/other"
	rest=$(run_it "$tmp/doc.json" 4 --compress lowrank:2,start=2 --checkpoint "$tmp/ckpt" | jq -c .report.losses)
	[ "$rest" = "$(jq -c '.[5:]' <<<"$whole")" ]
	# Without residuals the losses differ; more replicas divide the sum; another rank cannot use them.
	run_it "$tmp/three.json" 2 --compress lowrank:2,start=2 --checkpoint "$tmp/other" | jq -e '.report.losses | length == 2'
	run -2 --separate-stderr run_it "$tmp/doc.json" 2 --compress lowrank:3,start=2 --checkpoint "$tmp/other"
	[[ $stderr == *"elements in the checkpoint"* ]]
}

# bats test_tags=slow
@test "a gradient that is not finite ends all ranks with one line that names it" {
	doc 3 >"$tmp/doc.json"
	for how in lowrank:2,start=0 lowrank:2 bf16 cholesky cholesky:3; do
		run -2 --separate-stderr run_it "$tmp/doc.json" 50 --lr 1e30 --compress "$how"
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" = 1 ]
		[[ $stderr == *"is not finite"* ]]
	done
}

# bats test_tags=slow
@test "cholesky sends less than dense with every optimizer, learns, and the report has the ranks" {
	dlb-profile --analytic --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 |
		dlb-place -a single --replicas 2 --allreduce ring >"$tmp/doc.json"
	for o in 'sgd --lr 0.1' 'momentum --lr 0.02' 'adam --lr 0.003' 'adamw --lr 0.003' 'rmsprop --lr 0.001' 'max-adabelief --lr 0.003'; do
		echo "$o"
		# shellcheck disable=SC2086	# words
		dlb-run -q --steps 150 "${digits[@]}" --optimizer $o --compress cholesky "$tmp/doc.json" >"$tmp/out.json"
		validates "$tmp/out.json"
		jq -e '.report.allreduce | .bytes < .dense_bytes / 9 and .classes.gradient.bytes < .classes.gradient.dense_bytes / 20' "$tmp/out.json"
		jq -e '.report.losses | (.[:10] | add) * 0.8 > (.[-10:] | add)' "$tmp/out.json"
		jq -e '.report.allreduce.ranks | map(.weight) | sort == ["1.weight", "3.weight"]' "$tmp/out.json"
		jq -e '.report.allreduce.ranks | all(1 <= .min and .min <= .median and .median <= .max and .max <= .most)' "$tmp/out.json"
	done
}

# bats test_tags=slow
@test "cholesky: the rank adapts between 1 and R, and bytes with it; what is predicted is the most" {
	doc 2 >"$tmp/doc.json"
	dlb-run -q --dry-run --compress cholesky:8 "$tmp/doc.json" >"$tmp/dry.json"
	validates "$tmp/dry.json"
	most=$(jq .report.allreduce.bytes "$tmp/dry.json")
	for how in cholesky:8 cholesky:1 cholesky:0.3; do
		run_it "$tmp/doc.json" 30 --compress "$how" >"$tmp/out.json"
		validates "$tmp/out.json"
		jq -c .report.allreduce.ranks "$tmp/out.json"
		jq -e '.report.allreduce.bytes' "$tmp/out.json" >>"$tmp/bytes"
		jq -e '.report.allreduce.ranks | length > 0 and all(.min >= 1 and .max <= 8)' "$tmp/out.json"
	done
	jq -es --argjson most "$most" '.[0] <= $most * 1.01 and .[1] < .[0] and .[2] < .[0]' "$tmp/bytes"
	run_it "$tmp/doc.json" 30 --compress cholesky:1 | jq -e '.report.allreduce.ranks | all(.max == 1)'
	dlb-run -q --dry-run --compress cholesky "$tmp/doc.json" | jq -e '.report.allreduce.ranks | length > 0 and all(.min == .most and .max == .most)'
}

# bats test_tags=slow
@test "cholesky: the same bits again, wherever ops stand, and from a checkpoint" {
	for o in 'momentum --lr 0.02' 'adam --lr 0.003'; do
		plan 'cpu:4' -a single --replicas 2 --allreduce ring >"$tmp/one.json"
		plan 'cpu:4' -a even --replicas 2 --allreduce ring >"$tmp/two.json"
		[ "$(jq -c '.plan.placement | [.[]] | unique | length' "$tmp/two.json")" -gt 1 ]
		for d in one one two; do
			# shellcheck disable=SC2086	# words
			dlb-run -q --steps 12 "${digits[@]}" --optimizer $o --compress cholesky,start=2 "$tmp/$d.json" >"$tmp/out.json"
			jq -c .report.losses "$tmp/out.json" >>"$tmp/losses"
			jq -e '.report.allreduce.ranks | length == 3' "$tmp/out.json"		# of both parts of the split op
		done
		[ "$(sort -u "$tmp/losses" | wc -l)" = 1 ]
		# shellcheck disable=SC2086	# words
		gone_on() { dlb-run -q --steps "$1" "${digits[@]}" --optimizer $o --compress cholesky,start=2 --checkpoint "$tmp/ckpt" "$tmp/two.json"; }
		gone_on 7 >"$tmp/first.json"
		[ "$(gone_on 5 | jq -c .report.losses)" = "$(head -n 1 "$tmp/losses" | jq -c '.[7:]')" ]
		rm -r "$tmp/ckpt" "$tmp/losses"
	done
}

@test "the weight of a convolution goes as (out height, in width), also from a checkpoint; the bytes are those of P and Q" {
	dlb-profile -q --analytic --batch 24 "$models/resnet8.onnx" | dlb-costmodel -q -c cpu:2 |
		dlb-place -q -a single --replicas 2 --allreduce ring --compress lowrank:2,start=0,wire=f32 >"$tmp/doc.json"
	dlb-run -q --dry-run "$tmp/doc.json" >"$tmp/dry.json"
	python3 - "$tmp/dry.json" <<-'END'
		import json, math, sys
		doc = json.load(open(sys.argv[1]))
		sent = 0
		for t in doc['graph']['tensors']:
		    if t['kind'] != 'weight' or len(t['shape']) < 2:
		        continue
		    all, out = math.prod(t['shape']), t['shape'][0]
		    side = min(rows + all // rows for rows in [out, all // t['shape'][-1]] + [out * 3, out * 9] * (t['shape'][2:] == [3, 3]))
		    sent += 2 * side if all >= 2 * 2 * side else 0
		got = doc['report']['allreduce']['classes']['gradient']
		assert got['bytes'] == 2 * 4 * sent, (got, 2 * 4 * sent)		# two replicas
	END
	go() { dlb-run -q --data digits --transform scale=1/16,pad=10 --lr 0.05 --compress cholesky,start=1 --steps "$@" "$tmp/doc.json"; }
	go 7 >"$tmp/whole.json"
	jq -e '.report.losses | .[0] > .[6]' "$tmp/whole.json"
	go 4 --checkpoint "$tmp/ckpt" >"$tmp/first.json"
	[ "$(go 3 --checkpoint "$tmp/ckpt" | jq -c .report.losses)" = "$(jq -c '.report.losses[4:]' "$tmp/whole.json")" ]
	peaks() { jq -c '[.report.nodes[].peak_bytes]' "$@"; }
	[ "$(peaks "$tmp/whole.json")" = "$(dlb-run -q --dry-run --steps 7 --compress cholesky,start=1 "$tmp/doc.json" | peaks)" ]
}

@test "cholesky: weights in one tensor are compressed one by one, and continue from a checkpoint" {
	python3 "$root/tests/data/kfac_models.py" fused "$tmp/fused.onnx"
	dlb-profile -q --analytic --batch 24 "$tmp/fused.onnx" | dlb-costmodel -q -c cpu:2 |
		dlb-place -q -a single --replicas 2 --allreduce ring >"$tmp/doc.json"
	go() { run_it "$tmp/doc.json" "$@" -q --compress cholesky:4,start=1; }
	go 9 >"$tmp/whole.json"
	validates "$tmp/whole.json"
	[ "$(jq -c '[.report.allreduce.ranks[].weight] | sort' "$tmp/whole.json")" = \
		'["fused.weight[0:32]","fused.weight[32:48]","fused.weight[48:64]","last.weight"]' ]
	[ "$(dlb-run -q --dry-run --compress cholesky:4 "$tmp/doc.json" | jq -c '[.report.allreduce.ranks[].weight] | sort')" = \
		"$(jq -c '[.report.allreduce.ranks[].weight] | sort' "$tmp/whole.json")" ]
	go 5 --checkpoint "$tmp/ckpt" >"$tmp/first.json"
	[ "$(go 4 --checkpoint "$tmp/ckpt" | jq -c .report.losses)" = "$(jq -c '.report.losses[5:]' "$tmp/whole.json")" ]
	run -2 --separate-stderr run_it "$tmp/doc.json" 50 -q --lr 1e30 --compress cholesky:4,start=0
	[ "${#stderr_lines[@]}" = 1 ]
	[[ $stderr == *"is not finite"* ]]
}

# bats test_tags=slow
@test "cholesky: three replicas by every algorithm, and fewer bits" {
	doc 3 >"$tmp/doc.json"
	for how in ring tree host doubling; do
		dlb-run -q --steps 8 "${digits[@]}" --optimizer momentum --lr 0.02 --allreduce $how --compress cholesky,start=1 "$tmp/doc.json" |
			jq -e '.report.losses | all(. < 4)'
	done
	# Blocks: 4 bits and a scale instead of 16 bits, at the same rank.
	for wire in bf16 blocks; do
		dlb-run -q --steps 8 "${digits[@]}" --optimizer momentum --lr 0.02 --compress "cholesky:2,start=1,wire=$wire" "$tmp/doc.json" >"$tmp/out.json"
		jq -e '.report.losses | all(. < 4)' "$tmp/out.json"
		jq .report.allreduce.classes.gradient.bytes "$tmp/out.json" >>"$tmp/bytes"
	done
	jq -es '.[1] < 0.6 * .[0]' "$tmp/bytes"
}

@test "what makes no sense is one line" {
	doc 2 >"$tmp/doc.json"
	for how in cholesky:0 cholesky:1.5 cholesky:-1 cholesky:x cholesky:1.0 cholesky:65 cholesky: cholesky:0.0 cholesky:1e-3x cholesky,wire=f9 \
		cholesky:per-hop,start=1 lowrank lowrank:0 lowrank:99 zip bf16,start=1 lowrank:2,wire=blocks cholesky,wire=f8; do
		run -2 --separate-stderr run_it "$tmp/doc.json" 1 --compress "$how"
		[ "${#stderr_lines[@]}" = 1 ]
	done
	run -2 --separate-stderr run_it "$tmp/doc.json" 1 --compress bf16 --allreduce mpi
	[[ $stderr == *"cannot compress"* ]]
	jq '.plan.compress = "zip"' "$tmp/doc.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-run --dry-run "$tmp/bad.json"
	[[ $stderr == *"/plan/compress"* ]]
}

# kfac_doc REPLICAS [MODEL] >FILE
kfac_doc() {
	dlb-profile --analytic --batch 24 "${2:-$models/digits_mlp.onnx}" | dlb-costmodel -c "cpu:$1" |
		dlb-place -a single --replicas "$1" --allreduce ring --optimizer kfac
}

kfac() { # DOCUMENT STEPS [DLB-RUN OPTION...]
	local doc=$1 steps=$2
	shift 2
	dlb-run -q --steps "$steps" "${digits[@]}" --optimizer kfac --lr 0.05 --inverse-every 4 "$@" "$doc"
}

# bats test_tags=slow
@test "kfac's factors: whole, as triangles or in 16 bits; the bytes are those that were predicted, losses those of one node" {
	kfac_doc 1 | kfac - 20 | jq -c .report.losses >"$tmp/one"
	for n in 2 3; do
		kfac_doc "$n" >"$tmp/doc.json"
		for how in none:1e-5 bf16:0.02 cholesky:0.02 cholesky,wire=f32:1e-5 cholesky:per-hop:1e-5; do
			kfac "$tmp/doc.json" 20 --compress "${how%:*}" >"$tmp/out.json"
			validates "$tmp/out.json"
			dlb-run -q --dry-run --optimizer kfac --inverse-every 4 --compress "${how%:*}" "$tmp/doc.json" >"$tmp/dry.json"
			jq -s -e '[.[].report.allreduce.classes.factor | .bytes, .dense_bytes] | (.[0] - .[2] | fabs) < 1e-6 and .[1] == .[3] and .[0] > 0' \
				"$tmp/out.json" "$tmp/dry.json" || { echo "$n $how: bytes"; return 1; }
			jq -e --argjson one "$(cat "$tmp/one")" --argjson near "${how##*:}" \
				'[.report.losses, $one] | transpose | all((.[0] - .[1] | fabs) < $near * .[1])' "$tmp/out.json" >/dev/null ||
				{ echo "$n $how: losses"; return 1; }
			jq -e '.report.kfac | .exchanges == 5 and .not_definite == 0 and .not_symmetric == 0 and .kept == 0 and .weights == ["1.weight", "3.weight"] and .others == "sgd"' \
				"$tmp/out.json" >/dev/null
		done
	done
}

# bats test_tags=slow
@test "kfac with replicas: the same bits again, and from a checkpoint between two inversions; more replicas share the averages" {
	kfac_doc 2 >"$tmp/doc.json"
	kfac_doc 3 >"$tmp/three.json"
	for how in none cholesky; do
		rm -rf "$tmp/ckpt" "$tmp/other"
		whole=$(kfac "$tmp/doc.json" 15 --compress "$how" | jq -c .report.losses)
		[ "$whole" = "$(kfac "$tmp/doc.json" 15 --compress "$how" | jq -c .report.losses)" ]
		kfac "$tmp/doc.json" 6 --compress "$how" --checkpoint "$tmp/ckpt" >"$tmp/first.json"
		cp -r "$tmp/ckpt" "$tmp/other"
		[ "$(kfac "$tmp/doc.json" 9 --compress "$how" --checkpoint "$tmp/ckpt" | jq -c .report.losses)" = "$(jq -c '.[6:]' <<<"$whole")" ]
		kfac "$tmp/three.json" 9 --compress "$how" --checkpoint "$tmp/other" |
			jq -e --argjson w "$whole" '[.report.losses, $w[6:]] | transpose | all((.[0] - .[1] | fabs) < 0.02 * .[1])'
	done
}

# bats test_tags=slow
@test "kfac: factors that are not positive definite come with more on the diagonal, or as sums; the report counts them" {
	kfac_doc 2 >"$tmp/doc.json"
	# Of 24 samples alone, without damping: a factor of order 65 is singular.
	singular() { kfac "$tmp/doc.json" 4 --lr 1e-7 --inverse-every 1 --damping 0 --factor-decay 0 "$@" | jq -c .report.kfac; }
	singular --compress none | jq -e '.inverses == 16 and .shifted > 8'
	singular --compress cholesky | jq -e '.shifted > 8 and .not_definite == 0'
	singular --compress cholesky:per-hop | jq -e '.not_definite > 0 and .hops_failed > 0'
	kfac "$tmp/doc.json" 4 --lr 1e-7 --inverse-every 1 --damping 0 --factor-decay 0 --compress cholesky:per-hop >"$tmp/out.json"
	validates "$tmp/out.json"
	dlb-view "$tmp/out.json" | grep -Eq 'kfac: .* factors not positive definite, [1-9][0-9]* hops failed'
}

@test "kfac's triangles: at most 0.502 of dense bytes, 0.377 with 16 bits on the way back, for factors of order 256 and more" {
	mlp=$DLB_TEST_DATA/onnx/models/mlp.train.op17.dyn.onnx
	[ -f "$mlp" ] || { mlp=$tmp/wide.onnx; python3 "$root/tests/data/kfac_models.py" wide "$mlp"; }
	for n in 2 4; do
		kfac_doc "$n" "$mlp" >"$tmp/doc.json"
		for how in cholesky,wire=f32:0.502 cholesky:0.377; do
			dlb-run -q --dry-run --optimizer kfac --inverse-every 1 --compress "${how%:*}" "$tmp/doc.json" |
				jq -e --argjson most "${how##*:}" '.report.allreduce.classes.factor | .bytes <= $most * .dense_bytes'
		done
		dlb-run -q --dry-run --optimizer kfac --compress cholesky "$tmp/doc.json" |
			jq -e '.report.allreduce.classes.factor | .bytes <= 0.27 * .dense_bytes'
	done
}

# bats test_tags=slow
@test "kfac's triangles: simulated at 0.1 to 100 Gb/s, a step takes no longer than dense" {
	mlp=$DLB_TEST_DATA/onnx/models/mlp.train.op17.dyn.onnx
	[ -f "$mlp" ] || { mlp=$tmp/wide.onnx; python3 "$root/tests/data/kfac_models.py" wide "$mlp"; }
	for model in "$mlp" "$models/lenet5.onnx"; do
		dlb-profile --analytic --batch 128 "$model" | dlb-costmodel -c cpu:4 >"$tmp/whole.json"
		for gb in 0.1 1 10 100; do
			jq --argjson gb "$gb" '.cluster.links |= map(.bandwidth_Bps = $gb * 125e6 | .latency_s = 2e-5 | .overlap = true) | del(.cost)' "$tmp/whole.json" |
				dlb-costmodel | dlb-place -a single --replicas 4 --allreduce ring --optimizer kfac >"$tmp/doc.json"
			dense=$(dlb-run -q --dry-run --optimizer kfac "$tmp/doc.json" | jq .report.predicted_step_s)
			for how in cholesky,wire=f32 cholesky; do
				dlb-run -q --dry-run --optimizer kfac --compress "$how" "$tmp/doc.json" >"$tmp/dry.json"
				jq -e --argjson d "$dense" '.report | .predicted_step_s <= $d' "$tmp/dry.json" ||
					{ echo "$model $gb $how"; return 1; }
			done
		done
	done
}

# auto GB_PER_S OPTIMIZER >FILE: lenet5, four replicas, links of that bandwidth that use no core
auto() {
	dlb-profile --analytic --batch 64 "$models/lenet5.onnx" | dlb-costmodel -c cpu:4 |
		jq --argjson b "$1" '.cluster.links |= map(.bandwidth_Bps = $b * 1e9 | .latency_s = 2e-5 | .overlap = true) | del(.cost)' |
		dlb-costmodel | dlb-place -q -a single --replicas 4 --optimizer "$2" --compress auto
}

# bats test_tags=slow
@test "auto: on slow links less is sent and the step is shorter, on fast ones all goes whole; dlb-view says what each way costs" {
	auto 0.1 momentum >"$tmp/slow.json"
	validates "$tmp/slow.json"
	jq -e '.plan | .compress == "auto" and .compress_by_class.small == "cholesky"' "$tmp/slow.json"
	jq -e '[.plan.compress_advice[] | select(.class == "small") | .compress] == ["none", "bf16", "cholesky", "lowrank:4"]' "$tmp/slow.json"
	jq '.plan.compress = "none" | .plan |= del(.compress_by_class, .compress_advice)' "$tmp/slow.json" >"$tmp/none.json"
	none=$(dlb-run -q --dry-run "$tmp/none.json" | jq .report.predicted_step_s)
	dlb-run -q --dry-run "$tmp/slow.json" >"$tmp/dry.json"
	jq -e --argjson none "$none" '.report.predicted_step_s == .plan.value_s and .report.predicted_step_s < 0.95 * $none' "$tmp/dry.json"
	# the chosen row has the step and bytes of the plan, the dense row those of a plan without compression
	jq -e --argjson none "$none" '.plan.value_s as $step | .report.allreduce.bytes as $bytes | .plan.compress_advice |
		.[0].compress == "none" and (.[0].step_s - $none | fabs) < 1e-9 and
		(.[] | select(.chosen) | (.step_s - $step | fabs) < 1e-9 and (.bytes - $bytes | fabs) < 1)' "$tmp/dry.json"
	dlb-view "$tmp/slow.json" | grep -Eq 'cholesky .* 0.95 % of loss  <- chosen'
	dlb-view "$tmp/slow.json" | grep -Eq 'lowrank:4 .* 1.1 % of loss$'
	auto 100 momentum >"$tmp/fast.json"
	jq -e '.plan.compress_by_class == {small: "none"}' "$tmp/fast.json"
	dlb-view "$tmp/fast.json" | grep -Eq 'bf16 .* -[0-9.]+ us .*; costs more than it saves'
	# optimizers that divide by second moments need more rank of lowrank; K-FAC's factors are a separate class, gradients dense
	auto 0.1 adam | jq -e '.plan | .compress_by_class.small == "cholesky" and [.compress_advice[].compress] == ["none", "bf16", "cholesky", "lowrank:16"]'
	auto 0.1 kfac | jq -e '.plan.compress_by_class == {factor: "cholesky", small: "lowrank:4"}'
}

@test "where the link is all that counts, a predicted step is the bytes over its bandwidth" {
	doc 2 | jq '.cluster.links |= map(.bandwidth_Bps = 1e5 | .latency_s = 0) | del(.cost, .plan)' | dlb-costmodel -q >"$tmp/cost.json"
	for how in none bf16 lowrank:1 lowrank:4 lowrank:8 cholesky:1 cholesky:4; do
		dlb-place -q -a single --replicas 2 --allreduce ring --compress "$how" "$tmp/cost.json" | dlb-run -q --dry-run >"$tmp/dry.json"
		# each of the two sends half of the bytes, both at once; beside these stand 50 us of computing, and flags of some bytes
		jq -e '.report | (.allreduce.bytes / 2 / 1e5) as $sent | .predicted_step_s - $sent | . > -0.01 * $sent and . < 0.02 * $sent + 1e-3' "$tmp/dry.json" ||
			{ echo "$how"; jq -c '.report | [.predicted_step_s, .allreduce.bytes]' "$tmp/dry.json"; false; }
	done
}

# bats test_tags=slow
@test "auto: a run does by class what the plan says, and chooses where none says" {
	doc 2 | jq '.cluster.links |= map(.bandwidth_Bps = 1e6 | .overlap = true) | del(.cost, .plan)' | dlb-costmodel |
		dlb-place -q -a single --replicas 2 --allreduce ring >"$tmp/doc.json"
	run_it "$tmp/doc.json" 4 --compress auto >"$tmp/auto.json"
	validates "$tmp/auto.json"
	how=$(jq -r .plan.compress_by_class.small "$tmp/auto.json")
	[ "$how" = cholesky ]
	# losses and bytes equal those of the same compression given by name; a document with the choice runs it
	one=$(run_it "$tmp/doc.json" 4 --compress "$how" | jq -c '[.report.losses, .report.allreduce.bytes]')
	[ "$one" = "$(jq -c '[.report.losses, .report.allreduce.bytes]' "$tmp/auto.json")" ]
	jq '.plan.compress_by_class.small = "bf16"' "$tmp/auto.json" >"$tmp/edited.json"
	[ "$(run_it "$tmp/edited.json" 4 | jq -c .report.losses)" = "$(run_it "$tmp/doc.json" 4 --compress bf16 | jq -c .report.losses)" ]
	# with another optimizer it is chosen again
	dlb-run -q --steps 1 "${digits[@]}" --optimizer adam "$tmp/auto.json" | jq -e '.plan.compress_advice | all(.compress != "lowrank:4")'
	# given by name, it is no longer auto
	run_it "$tmp/auto.json" 1 --compress none | jq -e '.plan | .compress == "none" and (has("compress_by_class") or has("compress_advice") | not)'
	# if no compression helps, a line says so; an invalid choice is refused with its place
	run -0 --separate-stderr dlb-place -a single --replicas 2 --compress auto <(doc 2)
	[[ $stderr == *'--compress has no effect'*'costs more than it saves'* ]]
	jq '.plan.compress_by_class.small = "zip"' "$tmp/auto.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-run --dry-run "$tmp/bad.json"
	[[ $stderr == *'/plan/compress_by_class/small'*"'zip'"* ]]
	jq '.plan.compress = "bf16"' "$tmp/auto.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-run --dry-run "$tmp/bad.json"
	[[ $stderr == *'/plan/compress_by_class'* ]]
}
