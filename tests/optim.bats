#!/usr/bin/env bats
# Optimizers end to end: dlb-run over steps, placements and continued runs.
load helper

setup() {
	planned "$BATS_TEST_TMPDIR/doc.json"
	tmp=$BATS_TEST_TMPDIR
	doc=$tmp/doc.json
}

# Losses of a run, one per line: losses DOCUMENT OPTION...
losses() {
	local from=$1
	shift
	dlb-run -q "${digits[@]}" "$@" "$from" | jq -c '.report.losses[]'
}

# The whole model on one node, for a document with two: alone FILE.
alone() { dlb-place -a single <"$doc" >"$1"; }

# bats test_tags=slow
@test "every optimizer learns, and its document is valid" {
	for o in 'adagrad --lr 0.03' 'rmsprop --lr 0.002' 'max-adabelief --lr 0.005' 'max-adabelief --lr 0.005 --variant denom_corrected' \
		'max-adabelief --lr 0.0005 --variant uncorrected --warmup 30' 'max-adabelief --lr 0.005 --variant amsgrad'; do
		echo "$o"
		# shellcheck disable=SC2086
		dlb-run -q --steps 120 "${digits[@]}" --optimizer $o "$doc" >"$tmp/out.json"
		validates "$tmp/out.json"
		jq -e '.report.losses | (.[:10] | add) * 0.8 > (.[-10:] | add)' "$tmp/out.json"
	done
}

# bats test_tags=slow
@test "one node and two: the same losses, whatever the optimizer" {
	alone "$tmp/one.json"
	for o in 'adagrad' 'rmsprop' 'max-adabelief' 'sgd --lr 0.1 --warmup 5 --lr-schedule cosine:20'; do
		echo "$o"
		# shellcheck disable=SC2086
		diff <(losses "$doc" --steps 12 --optimizer $o) <(losses "$tmp/one.json" --steps 12 --optimizer $o)
	done
}

# bats test_tags=slow
@test "max-adabelief: the report counts where the quotient shrank" {
	for v in corrected:0 uncorrected:0 denom_corrected:1; do
		dlb-run -q --steps 40 "${digits[@]}" --optimizer max-adabelief --variant "${v%:*}" "$doc" >"$tmp/out.json"
		jq -e --argjson some "${v#*:}" '.report.optimizer_violations | if $some == 1 then . > 0 else . == 0 end' "$tmp/out.json"
	done
	dlb-run -q --steps 40 "${digits[@]}" --optimizer max-adabelief "$doc" >"$tmp/default.json"
	dlb-run -q --steps 40 "${digits[@]}" --optimizer max-adabelief --variant corrected "$doc" >"$tmp/corrected.json"
	jq -e '.report.optimizer_violations == 0' "$tmp/default.json"
	diff <(jq -c .report.losses "$tmp/default.json") <(jq -c .report.losses "$tmp/corrected.json")
	# a growing rate lets it shrink for any variant, a falling rate for none
	dlb-run -q --steps 10 "${digits[@]}" --optimizer max-adabelief --variant corrected --warmup 10 "$doc" >"$tmp/out.json"
	jq -e '.report.optimizer_violations > 0' "$tmp/out.json"
	dlb-run -q --steps 10 "${digits[@]}" --optimizer max-adabelief --variant corrected --lr-schedule cosine "$doc" >"$tmp/out.json"
	jq -e '.report.optimizer_violations == 0' "$tmp/out.json"
	dlb-run -q --steps 10 "${digits[@]}" --optimizer adam "$doc" >"$tmp/out.json"
	jq -e '.report | has("optimizer_violations") | not' "$tmp/out.json"
}

# bats test_tags=slow
@test "a rate of half the size for one step: losses say what the schedule does" {
	# step:1:0 trains in the first step only: the weights of step 2 equal those of step 3
	losses "$doc" --steps 3 --order sequential --lr 0.1 --lr-schedule step:1:0 >"$tmp/a"
	losses "$doc" --steps 3 --order sequential --lr 0.1 >"$tmp/b"
	diff <(head -2 "$tmp/a") <(head -2 "$tmp/b")
	run ! diff -q "$tmp/a" "$tmp/b"
	# a warm-up of one step has no effect, one of two steps halves the first step
	diff <(losses "$doc" --steps 3 --lr 0.1 --warmup 1) <(losses "$doc" --steps 3 --lr 0.1)
	diff <(losses "$doc" --steps 2 --lr 0.1 --warmup 2) <(losses "$doc" --steps 2 --lr 0.05)
}

# bats test_tags=slow
@test "a continued run goes on where its schedule was" {
	schedule=(--optimizer momentum --lr 0.05 --warmup 4 --lr-schedule cosine:20:0.001)
	losses "$doc" --steps 20 "${schedule[@]}" >"$tmp/whole"
	{
		losses "$doc" --steps 9 "${schedule[@]}" --checkpoint "$tmp/ckpt"
		losses "$doc" --steps 11 "${schedule[@]}" --checkpoint "$tmp/ckpt"
	} >"$tmp/parts"
	diff "$tmp/whole" "$tmp/parts"
	run ! diff -q "$tmp/whole" <(losses "$doc" --steps 20 --optimizer momentum --lr 0.05)
}

# bats test_tags=slow
@test "the schedule is kept in the document, the end of a cosine too" {
	dlb-run -q --steps 6 "${digits[@]}" --warmup 2 --lr-schedule cosine "$doc" >"$tmp/out.json"
	jq -e '.run.optimizer | .lr_schedule == "cosine:6" and .warmup == 2' "$tmp/out.json"
	dlb-run -q --steps 1 --optimizer adam "$tmp/out.json" | jq -e '.run.optimizer | .lr_schedule == "cosine:6" and .name == "adam"'
	dlb-run -q --steps 1 --lr-schedule constant --warmup 0 "$tmp/out.json" | jq -e '.run.optimizer.lr_schedule == "constant"'
}

# bats test_tags=slow
@test "--clip-norm: the same losses on any placement, and none where nothing is long" {
	alone "$tmp/one.json"
	dlb-place -m 1 <"$doc" >"$tmp/whole.json"
	dlb-place -m 1 -a single <"$doc" >"$tmp/whole-one.json"
	for o in 'sgd --lr 0.1' 'adam' 'adabelief' 'max-adabelief' 'momentum --weight-decay 0.01' adagrad rmsprop nesterov; do
		chosen || continue
		echo "$o"
		# shellcheck disable=SC2086
		losses "$doc" --steps 8 --optimizer $o --clip-norm 0.5 >"$tmp/two"
		# shellcheck disable=SC2086
		diff "$tmp/two" <(losses "$tmp/one.json" --steps 8 --optimizer $o --clip-norm 0.5)
		# shellcheck disable=SC2086
		diff <(losses "$doc" --steps 8 --optimizer $o --clip-norm 1e9) <(losses "$doc" --steps 8 --optimizer $o)
	done
	diff <(losses "$tmp/whole.json" --steps 8 --clip-norm 0.5) <(losses "$tmp/whole-one.json" --steps 8 --clip-norm 0.5)
	run ! diff -q <(losses "$doc" --steps 8 --clip-norm 0.5) <(losses "$doc" --steps 8)
}

@test "--clip-norm with replicas: the norm is that of the whole batch" {
	dlb-place --replicas 2 -m 2 <"$doc" >"$tmp/replicas.json"
	dlb-place -a single -m 4 <"$doc" >"$tmp/one.json"
	losses "$tmp/replicas.json" --steps 6 --lr 0.1 --clip-norm 0.5 >"$tmp/a"
	losses "$tmp/one.json" --steps 6 --lr 0.1 --clip-norm 0.5 >"$tmp/b"
	paste "$tmp/a" "$tmp/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 } END { exit NR != 6 }'
}

@test "--clip-norm: a step of plain descent is as long as it says" {
	dlb-run -q --steps 1 "${digits[@]}" --lr 1 --clip-norm 0.25 --save "$tmp/after.safetensors" "$doc" >/dev/null
	dlb-run -q --steps 1 "${digits[@]}" --lr 0 --save "$tmp/before.safetensors" "$doc" >/dev/null
	python3 - "$tmp/before.safetensors" "$tmp/after.safetensors" <<-'END'
		import json, math, struct, sys
		def read(path):
		    raw = open(path, 'rb').read()
		    n = struct.unpack('<Q', raw[:8])[0]
		    head, out = json.loads(raw[8:8 + n]), {}
		    for name, t in head.items():
		        if name != '__metadata__' and t['dtype'] == 'F32':
		            a, b = t['data_offsets']
		            out[name] = struct.unpack('<%df' % ((b - a) // 4), raw[8 + n + a:8 + n + b])
		    return out
		a, b = read(sys.argv[1]), read(sys.argv[2])
		moved = math.sqrt(sum((x - y) ** 2 for k in a for x, y in zip(a[k], b[k])))
		assert abs(moved - 0.25) < 1e-5, moved
	END
}

# bats test_tags=slow
@test "--clip-norm is part of the program, and of what is predicted" {
	dlb-run --print-program --clip-norm 1 "$doc" >"$tmp/program"
	[ "$(grep -c 'COLLECTIVE norm' "$tmp/program")" -eq 2 ]
	[ "$(dlb-run --print-program "$doc" | grep -c 'COLLECTIVE norm')" -eq 0 ]
	dlb-run -q --dry-run --steps 3 --clip-norm 1 "$doc" >"$tmp/clipped.json"
	validates "$tmp/clipped.json"
	dlb-run -q --dry-run --steps 3 "$doc" >"$tmp/plain.json"
	jq -n -e --slurpfile a "$tmp/clipped.json" --slurpfile b "$tmp/plain.json" '$a[0].report.step_s > $b[0].report.step_s'
	dlb-place --clip-norm 1 <"$doc" >"$tmp/planned.json"
	validates "$tmp/planned.json"
	jq -e '.plan.clip' "$tmp/planned.json"
	dlb-place <"$tmp/planned.json" | jq -e '.plan.clip'
	dlb-place --clip-norm 0 <"$tmp/planned.json" | jq -e '.plan | has("clip") | not'
}

# bats test_tags=slow
@test "schedules, clipping and weight decay over three replicas of pipelines: the losses of one node with the whole batch" {
	dlb-profile --analytic --batch 30 "$model" >"$tmp/profile.json"
	dlb-costmodel -c cpu:6 "$tmp/profile.json" | dlb-place --replicas 3 -a even -m 2 >"$tmp/three.json"
	dlb-costmodel -c cpu:1 "$tmp/profile.json" | dlb-place -a single -m 6 >"$tmp/one.json"
	while read -r options; do
		echo "$options"
		# shellcheck disable=SC2086
		losses "$tmp/three.json" --steps 5 --order sequential --clip-norm 0.4 --optimizer $options >"$tmp/a"
		# shellcheck disable=SC2086
		losses "$tmp/one.json" --steps 5 --order sequential --clip-norm 0.4 --optimizer $options >"$tmp/b"
		paste "$tmp/a" "$tmp/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 } END { exit NR != 5 }'
	done <<-'END'
		adamw --weight-decay 0.1 --warmup 3 --lr-schedule cosine:5
		max-adabelief --variant corrected --weight-decay 0.05 --lr 0.01
		adagrad --weight-decay 0.01 --lr-schedule step:2:0.5
		rmsprop --lr 0.002 --weight-decay 0.01
		kfac --lr 0.05 --weight-decay 0.01 --inverse-every 2
	END
}

@test "what cannot be: one line" {
	while read -r options; do
		echo "$options"
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" $options "$doc"
		one_line dlb-run
	done <<-'END'
		--optimizer max-adabelief --variant right
		--optimizer adam --variant corrected
		--optimizer adagrad --beta1 0.5
		--lr-schedule linear
		--lr-schedule cosine:0
		--lr-schedule step:5
		--warmup 8 --lr-schedule cosine:5
		--warmup -1
		--clip-norm -1
	END
	run -2 --separate-stderr dlb-run --epochs 1 "${digits[@]}" --lr-schedule cosine "$doc"
	one_line dlb-run 'cosine:STEPS'
}

# bats test_tags=slow
@test "moments in place of gradients: one replica has none to exchange" {
	jq -c '.run = {"optimizer": {"name": "max-adabelief", "reduce": "moments"}}' "$doc" >"$tmp/moments.json"
	diff <(losses "$tmp/moments.json" --steps 5) <(losses "$doc" --steps 5 --optimizer max-adabelief)
	# two options use the settings of the run section
	dlb-place --replicas 2 <"$tmp/moments.json" >"$tmp/replicas.json"
	dlb-place --replicas 2 --reduce moments <"$tmp/moments.json" >"$tmp/asked.json"
	diff <(losses "$tmp/replicas.json" --steps 5) <(losses "$tmp/asked.json" --steps 5)
}

# A model whose gradient is its input: w . x, summed over the samples' mean.
dot() { # FILE
	python3 - "$root/tests/data" "$1" <<-'END'
		import struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import model, node, tensor, value
		w = tensor('w', [5, 1], struct.pack('<5f', 0.5, -0.3, 1.0, 0.0, -2.0))
		open(sys.argv[2], 'wb').write(model(node('Gemm', ['x', 'w'], ['y']) + w + value(11, 'x', ['N', 5]) + value(12, 'y', ['N', 1])))
	END
}

# bats test_tags=slow
@test "moments over three replicas: the shared vectors, by every way to sum" {
	vectors=$DLB_TEST_DATA/vectors/optimizers.json
	[ -f "$vectors" ] || skip "no $vectors"
	dot "$tmp/dot.onnx"
	python3 - "$vectors" "$tmp/x.npy" <<-'END'
		import json, struct, sys
		x = [v for step in json.load(open(sys.argv[1]))['gradients'] for worker in step for v in worker]
		head = "{'descr': '<f4', 'fortran_order': False, 'shape': (30, 5), }"
		head += ' ' * (63 - (10 + len(head)) % 64) + '\n'
		open(sys.argv[2], 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() + struct.pack('<150f', *x))
	END
	dlb-profile --analytic --batch 3 --loss sum "$tmp/dot.onnx" | dlb-costmodel -c cpu:3 | dlb-place --replicas 3 >"$tmp/three.json"
	while read -r name options; do
		for how in ring tree host; do
			chosen || continue
			echo "$name $how"
			# shellcheck disable=SC2086
			dlb-run -q --steps 10 --order sequential --data "npy:$tmp/x.npy" --optimizer max-adabelief --lr 0.001 --allreduce $how \
				$options --save "$tmp/w.safetensors" "$tmp/three.json" >"$tmp/out.json"
			validates "$tmp/out.json"
			python3 - "$vectors" "$name" "$tmp/w.safetensors" <<-'END'
				import json, struct, sys
				want = json.load(open(sys.argv[1]))['cases'][sys.argv[2]][-1]['theta']
				data = open(sys.argv[3], 'rb').read()
				w = struct.unpack('<5f', data[-20:])
				print(w, want)
				sys.exit(any(abs(a - b) > 2e-5 * abs(b) + 1e-7 for a, b in zip(w, want)))
			END
		done
	done <<-'END'
		max_adabelief_literal_3workers_moment_allreduce --variant uncorrected --reduce moments
		max_adabelief_corrected_3workers_moment_allreduce --variant corrected --reduce moments:mean
		max_adabelief_denom_corrected_3workers_moment_allreduce --variant denom_corrected --reduce moments
		max_adabelief_literal_3workers_moment_allreduce_localstate --variant uncorrected --reduce moments --max-state local
		max_adabelief_corrected_3workers_grad_allreduce --variant corrected --reduce gradients
	END
}

# bats test_tags=slow
@test "moments: bytes are twice those of gradients, predicted too; every number of replicas; corrected never shrinks" {
	for r in 2 3 4; do
		dlb-costmodel -c "cpu:$r" <"$doc" | dlb-place --replicas "$r" --allreduce ring --reduce moments >"$tmp/moments.json" 2>/dev/null
		dlb-place --reduce gradients <"$tmp/moments.json" >"$tmp/gradients.json"
		dlb-run -q --steps 12 "${digits[@]}" --optimizer max-adabelief --variant corrected "$tmp/moments.json" >"$tmp/out.json"
		validates "$tmp/out.json"
		bytes=$(jq .report.allreduce.bytes "$tmp/out.json")
		[ "$(dlb-run --dry-run --optimizer max-adabelief "$tmp/moments.json" | jq .report.allreduce.bytes)" -eq "$bytes" ]
		[ "$bytes" -eq $((2 * $(dlb-run --dry-run --optimizer max-adabelief "$tmp/gradients.json" | jq .report.allreduce.bytes))) ]
		jq -e '.report.optimizer_violations == 0' "$tmp/out.json"
		diff <(jq -c .report.losses "$tmp/out.json") \
			<(dlb-run -q --steps 12 "${digits[@]}" --optimizer max-adabelief --variant corrected "$tmp/moments.json" | jq -c .report.losses)
	done
	for bad in '--reduce moments --optimizer adam' '--reduce moments:sum' '--reduce moments --compress bf16' '--reduce moments --gossip 0.5' \
		'--reduce momentum' '--max-state mine' '--reduce moments --clip-norm 1'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --optimizer max-adabelief $bad "$tmp/moments.json"
		echo "$bad"
		one_line dlb-run
	done
}

# kfac_formula MODEL STEPS LR KL_CLIP TOLERANCE [DLB-PLACE OPTION...]: losses of K-FAC equal those of its formula in plain
# Python; prints the number of steps beyond the trust region.
kfac_formula() {
	local model=$1 steps=$2 lr=$3 kl_clip=$4 tolerance=$5
	shift 5
	dlb-profile --analytic --batch 16 "${made:-$models/digits_$model.onnx}" | dlb-costmodel -c "${cluster:-cpu:2}" | dlb-place --optimizer kfac "$@" >"$tmp/$model.json"
	dlb-run -q --steps 0 "${digits[@]}" --save "$tmp/first.safetensors" "$tmp/$model.json" >/dev/null
	dlb-run -q --steps "$steps" "${digits[@]}" --order sequential --optimizer kfac --lr 0.05 --damping 0.02 --factor-decay 0.9 --inverse-every 4 --kl-clip "${kl_used:-$kl_clip}" \
		--compress "${how:-none}" "$tmp/$model.json" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -c .report.losses "$tmp/out.json" >"$tmp/losses"
	python3 "$root/tests/data/kfac.py" "$model" "$tmp/first.safetensors" "$root/share/data/digits/images-idx3-ubyte.gz" \
		"$root/share/data/digits/labels-idx1-ubyte.gz" "$steps" 16 "$lr" 0.02 0.9 4 "$kl_clip" "$tolerance" <"$tmp/losses"
}

# bats test_tags=slow
@test "kfac: losses are those of the formula in plain Python, on one node and on two, and for replicas" {
	kfac_formula mlp 30 0.05 0 1e-5 -a single
	kfac_formula mlp 15 0.05 0 1e-5 -a even -m 3
	kfac_formula mlp 15 0.05 0 1e-5 --replicas 2
	run ! kfac_formula mlp 15 0.051 0 1e-5 -a single
}

# bats test_tags=long
@test "kfac: convolutions' losses are those of the formula in plain Python, on one node and on two, and for replicas" {
	kfac_formula cnn 9 0.05 0 1e-5 -a single
	kfac_formula cnn 6 0.05 0 1e-5 -a even -m 3
	kfac_formula cnn 6 0.05 0 1e-5 --replicas 2
	run ! kfac_formula cnn 6 0.051 0 1e-5 -a single
}

# Makes a model for K-FAC that does not come with dlb (tests/data/kfac_models.py), as $made.
made_for_kfac() { # KIND
	made=$tmp/$1.onnx
	python3 "$root/tests/data/kfac_models.py" "$1" "$made"
}

# bats test_tags=long
@test "kfac: a layer that reads the data, and one weight of two layers: losses of the formula, on one node, two and four, and for replicas" {
	made_for_kfac tied
	kfac_formula tied 12 0.05 0 1e-5 -a single
	jq -e '.report.kfac | .left == [] and .weights == ["first.weight", "again.weight", "last.weight"]' "$tmp/out.json"
	kfac_formula tied 8 0.05 0 1e-5 -a even -m 3
	kfac_formula tied 8 0.05 0 1e-5 --replicas 2 -m 2
	cluster=cpu:4 kfac_formula tied 6 0.05 0 1e-5 -a random --seed 3 -m 2
	cluster=cpu:3 how=cholesky,wire=f32 kfac_formula tied 6 0.05 0 1e-5 --replicas 3 --allreduce ring
	kfac_formula tied 8 0.05 0.0004 1e-5 -a even -m 2
	run ! kfac_formula tied 8 0.051 0 1e-5 -a single
}

# bats test_tags=long
@test "kfac: a convolution in groups: losses of the formula, on one node, two and four, and for replicas" {
	made_for_kfac grouped
	kfac_formula grouped 6 0.05 0 1e-5 -a single
	jq -e '.report.kfac | .left == [] and .inverses == 16 and .weights == ["first.weight", "second.weight", "last.weight"]' "$tmp/out.json"
	kfac_formula grouped 5 0.05 0 1e-5 -a even -m 3
	kfac_formula grouped 5 0.05 0 1e-5 --replicas 2
	cluster=cpu:4 kfac_formula grouped 5 0.05 0 1e-5 -a random --seed 3 -m 2
	cluster=cpu:3 how=cholesky,wire=f32 kfac_formula grouped 5 0.05 0 1e-5 --replicas 3 --allreduce ring
	run ! kfac_formula grouped 6 0.051 0 1e-5 -a single
}

# bats test_tags=long
@test "kfac: tied weights and groups: the same losses on one node and two, gone on with from a checkpoint, with replicas too" {
	for kind in tied grouped; do
		made_for_kfac $kind
		dlb-profile --analytic --batch 16 "$made" | dlb-costmodel -c cpu:2 >"$tmp/$kind.json"
		rm -f "$tmp/first"
		for plan in '-a single -m 2' '-a even -m 2' '-a even -m 2 --schedule zero-bubble' '--replicas 2 --compress cholesky'; do
			# shellcheck disable=SC2086
			dlb-place $plan --optimizer kfac "$tmp/$kind.json" >"$tmp/plan.json"
			losses "$tmp/plan.json" --steps 9 --optimizer kfac --inverse-every 4 >"$tmp/whole"
			[ -f "$tmp/first" ] || cp "$tmp/whole" "$tmp/first"
			[[ $plan == *replicas* ]] || diff "$tmp/first" "$tmp/whole"
			rm -rf "$tmp/ck"
			losses "$tmp/plan.json" --steps 5 --optimizer kfac --inverse-every 4 --checkpoint "$tmp/ck" >"$tmp/parts"
			losses "$tmp/plan.json" --steps 4 --optimizer kfac --inverse-every 4 --checkpoint "$tmp/ck" >>"$tmp/parts"
			diff "$tmp/whole" "$tmp/parts"
		done
	done
}

# bats test_tags=slow
@test "kfac: a layer whose samples shards share is what it is whole" {
	for kind in tied grouped; do
		made_for_kfac $kind
		dlb-profile --analytic --batch 16 "$made" >"$tmp/profile.json"
		dlb-costmodel -c cpu:2 "$tmp/profile.json" | dlb-place -a even --optimizer kfac >"$tmp/whole.json"
		dlb-costmodel -c cpu:2 --split 'z0=2:batch' "$tmp/profile.json" | dlb-place -a even --optimizer kfac >"$tmp/split.json"
		losses "$tmp/whole.json" --steps 6 --optimizer kfac --inverse-every 2 >"$tmp/a"
		losses "$tmp/split.json" --steps 6 --optimizer kfac --inverse-every 2 >"$tmp/b"
		paste "$tmp/a" "$tmp/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 } END { exit NR != 6 }'
		dlb-run -q --steps 1 "${digits[@]}" --optimizer kfac "$tmp/split.json" | jq -e '.report.kfac | .left == [] and (.weights | length) == 3'
	done
}

# bats test_tags=long
@test "kfac: the trust region's losses are those of the formula in plain Python; the report counts the steps that it shortened" {
	for plan in '-a single' '-a even -m 3' '--replicas 2'; do
		# shellcheck disable=SC2086
		held_back=$(kfac_formula cnn 7 0.05 0.0004 1e-5 $plan)
		[ "$held_back" -gt 0 ]
		jq -e --argjson n "$held_back" '.report.kfac.held_back == $n and .report.kfac.left == []' "$tmp/out.json"
	done
	kl_used=0.002 run ! kfac_formula cnn 7 0.05 0.0004 1e-5 -a single
}

# bats test_tags=slow
@test "kfac: the same losses on one node and two, gone on with from a checkpoint, with either schedule" {
	for plan in '-a single -m 4' '-a even -m 4' '-a even -m 4 --schedule zero-bubble'; do
		# shellcheck disable=SC2086
		dlb-place $plan --optimizer kfac "$doc" >"$tmp/plan.json"
		losses "$tmp/plan.json" --steps 25 --optimizer kfac >"$tmp/whole"
		[ -f "$tmp/first" ] || cp "$tmp/whole" "$tmp/first"
		diff "$tmp/first" "$tmp/whole"
		rm -rf "$tmp/ck"
		losses "$tmp/plan.json" --steps 13 --optimizer kfac --checkpoint "$tmp/ck" >"$tmp/parts"
		losses "$tmp/plan.json" --steps 12 --optimizer kfac --checkpoint "$tmp/ck" >>"$tmp/parts"
		diff "$tmp/whole" "$tmp/parts"
	done
	jq -e -s '.[-1] < .[0]' "$tmp/whole"
	rm "$tmp"/ck/step-*/kept-*
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --optimizer kfac --checkpoint "$tmp/ck" "$tmp/plan.json"
	one_line dlb-run 'kept-'
	for manifest in "$tmp"/ck/step-*/manifest.json; do	# as in versions without checksums
		rm "${manifest%/*}/SHA256SUMS"
		jq '.["dlb-checkpoint"] = "1.1" | del(.files)' "$manifest" >"$tmp/manifest"
		mv "$tmp/manifest" "$manifest"
	done
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --optimizer kfac --checkpoint "$tmp/ck" "$tmp/plan.json"
	[[ $stderr == *"the checkpoint has no tensor 'average_A/0/"* ]]
}

# bats test_tags=long
@test "kfac: convolutions: the same losses on one node and two, gone on with from a checkpoint; again with replicas" {
	dlb-profile --analytic --batch 32 "$models/digits_cnn.onnx" | dlb-costmodel -c cpu:2 >"$tmp/cnn.json"
	for plan in '-a single -m 2' '-a even -m 2'; do
		# shellcheck disable=SC2086
		dlb-place $plan --optimizer kfac "$tmp/cnn.json" >"$tmp/plan.json"
		losses "$tmp/plan.json" --steps 13 --optimizer kfac --lr 0.1 --inverse-every 5 >"$tmp/whole"
		[ -f "$tmp/first" ] || cp "$tmp/whole" "$tmp/first"
		diff "$tmp/first" "$tmp/whole"
		rm -rf "$tmp/ck"
		losses "$tmp/plan.json" --steps 7 --optimizer kfac --lr 0.1 --inverse-every 5 --checkpoint "$tmp/ck" >"$tmp/parts"
		losses "$tmp/plan.json" --steps 6 --optimizer kfac --lr 0.1 --inverse-every 5 --checkpoint "$tmp/ck" >>"$tmp/parts"
		diff "$tmp/whole" "$tmp/parts"
	done
	dlb-place --replicas 2 --allreduce ring --optimizer kfac "$tmp/cnn.json" >"$tmp/plan.json"
	for how in none cholesky; do
		losses "$tmp/plan.json" --steps 8 --optimizer kfac --lr 0.1 --inverse-every 5 --compress $how >"$tmp/whole"
		losses "$tmp/plan.json" --steps 8 --optimizer kfac --lr 0.1 --inverse-every 5 --compress $how | diff "$tmp/whole" -
	done
}

# bats test_tags=slow
@test "kfac: gradients clipped by their norm, and the trust region after it: the same on one node and two" {
	for plan in '-a single -m 2' '-a even -m 2' '-a random --seed 5 -m 2'; do
		# shellcheck disable=SC2086
		dlb-place $plan --optimizer kfac "$doc" >"$tmp/plan.json"
		losses "$tmp/plan.json" --steps 12 --optimizer kfac --lr 0.1 --clip-norm 0.05 --kl-clip 0.01 >"$tmp/clipped"
		[ -f "$tmp/first" ] || cp "$tmp/clipped" "$tmp/first"
		diff "$tmp/first" "$tmp/clipped"
		losses "$tmp/plan.json" --steps 12 --optimizer kfac --lr 0.1 --kl-clip 0.01 >"$tmp/whole"
		run ! diff "$tmp/whole" "$tmp/clipped"
	done
}

# bats test_tags=slow
@test "kfac: a rate that diverges without the trust region does not with it; weights that are left to sgd are named" {
	dlb-place -a single --optimizer kfac "$doc" >"$tmp/plan.json"
	losses "$tmp/plan.json" --steps 150 --optimizer kfac --lr 0.2 >"$tmp/held"
	losses "$tmp/plan.json" --steps 150 --optimizer kfac --lr 0.2 --kl-clip 0 --allow-nonfinite >"$tmp/free"
	jq -n -e --slurpfile held "$tmp/held" --slurpfile free "$tmp/free" '$held[-1] < 0.5 and ($free[-1] == null or $free[-1] > 2)'
	gpt_and_text
	dlb-profile --analytic --batch 2 "$gpt" | dlb-costmodel -c cpu:1 | dlb-place --optimizer kfac |
		dlb-run -q --data random --steps 1 --optimizer kfac >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '.report.kfac | (.weights | length) == 8 and (.left | length) == 2 and any(.left[]; .why == "several ops read it, not all of them layers of one kind")' "$tmp/out.json"
	dlb-view "$tmp/out.json" | grep -q 'kfac: left to sgd: .*: several ops read it, not all of them layers of one kind'
}

@test "kfac: what cannot be: one line" {
	run -2 --separate-stderr dlb-run --optimizer kfac --inverse-every 2.5 "${digits[@]}" "$doc"
	one_line dlb-run '--inverse-every 2.5 is not a whole number'
	run -2 --separate-stderr dlb-run --optimizer sgd --damping 1 "${digits[@]}" "$doc"
	one_line dlb-run 'optimizer sgd has no damping'
	dlb-place -a even -m 4 --schedule async "$doc" >"$tmp/async.json"
	run -2 --separate-stderr dlb-run --optimizer kfac "${digits[@]}" "$tmp/async.json"
	one_line dlb-run "async: K-FAC's averages"
	dlb-place --replicas 2 --gossip 0.5 "$doc" >"$tmp/gossip.json"
	run -2 --separate-stderr dlb-run --optimizer kfac "${digits[@]}" "$tmp/gossip.json"
	one_line dlb-run "kfac's factors are of the sum of gradients"
}

# bats test_tags=slow
@test "what dlb-place was told is run, unless dlb-run is told otherwise" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place --optimizer adam --clip-norm 0.5 >"$tmp/doc.json"
	validates "$tmp/doc.json"
	dlb-run -q --steps 2 "${digits[@]}" "$tmp/doc.json" >"$tmp/run.json"
	[ "$(jq -c '[.report.optimizer, .run.optimizer.name, .run.optimizer.clip_norm]' "$tmp/run.json")" = '["adam","adam",0.5]' ]
	truth=$(dlb-run -q --steps 2 "${digits[@]}" --optimizer adam --clip-norm 0.5 "$tmp/doc.json" | jq -c .report.losses)
	[ "$(jq -c .report.losses "$tmp/run.json")" = "$truth" ]
	dlb-run -q --dry-run --optimizer sgd --clip-norm 0 "$tmp/doc.json" >"$tmp/other.json"
	[ "$(jq -c '[.report.optimizer, (.run.optimizer | has("clip_norm"))]' "$tmp/other.json")" = '["sgd",false]' ]
	# the plan counts adam's state, sgd has none: with another optimizer the plan is checked again
	jq -e --slurpfile o "$tmp/other.json" '[.report.nodes[].peak_bytes] > [$o[0].report.nodes[].peak_bytes]' "$tmp/run.json"
	# the optimizer of a run is kept, and a plan for another optimizer says so
	run -0 --separate-stderr dlb-place --optimizer sgd "$tmp/run.json"
	[[ $stderr == *'the run section says adam'* ]]
}
