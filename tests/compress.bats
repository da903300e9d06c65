#!/usr/bin/env bats
# Replicas that send less (--compress): what arrives, bytes, checkpoints, and failures of one that all hear of.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

# doc REPLICAS >FILE
doc() {
	[ -s "$BATS_FILE_TMPDIR/profiled.json" ] ||
		dlb-profile --analytic --batch 24 "$model" >"$BATS_FILE_TMPDIR/profiled.json"
	dlb-costmodel -c "cpu:$1" "$BATS_FILE_TMPDIR/profiled.json" | dlb-place -a single --replicas "$1" --allreduce ring
}

run_it() { # DOCUMENT STEPS [DLB-RUN OPTION...]
	local doc=$1 steps=$2
	shift 2
	dlb-run --steps "$steps" "${digits[@]}" --optimizer momentum --lr 0.02 "$@" "$doc"
}

@test "lowrank sends less, dense until its start, and the report says what" {
	doc 2 >"$tmp/doc.json"
	dense=$(run_it "$tmp/doc.json" 6 | jq -c .report.losses)
	run_it "$tmp/doc.json" 6 --compress lowrank:2,start=4 >"$tmp/low.json"
	validates "$tmp/low.json"
	[ "$(jq -r .plan.compress "$tmp/low.json")" = lowrank:2,start=4 ]
	# Steps 0 to 3 are dense: what they make is seen in losses 0 to 4.
	jq -e --argjson d "$dense" '[.report.losses[:5], $d[:5]] | transpose | all((.[0] - .[1]) | fabs < 1e-5)' "$tmp/low.json"
	jq -e --argjson d "$dense" '.report.losses[5] != $d[5]' "$tmp/low.json"
	jq -e '.report.allreduce | .bytes < .dense_bytes / 4 and .classes.gradient.bytes < .classes.gradient.dense_bytes / 8' "$tmp/low.json"
	run_it "$tmp/doc.json" 6 --compress bf16 | jq -e '.report.allreduce | .bytes < .dense_bytes * 0.51'
	# What is predicted is what is sent, but for a few words of flags.
	dlb-run --dry-run --compress lowrank:2 "$tmp/doc.json" >"$tmp/dry.json"
	jq -e --argjson b "$(jq .report.allreduce.bytes "$tmp/low.json")" '.report.allreduce.bytes as $p | ($p - $b) | fabs < $b * 0.1' "$tmp/dry.json"
}

@test "peak_bytes counts errors, bases and what travels" {
	dlb-profile --analytic --batch 24 "$models/digits_mlp.onnx" | dlb-costmodel -c cpu:2 |
		dlb-place -a single --replicas 2 --allreduce ring >"$tmp/doc.json"
	peak() { dlb-run -q --dry-run "$@" "$tmp/doc.json" | jq '.report.nodes[0].peak_bytes'; }
	none=$(peak)
	# 1.weight (32, 64), 3.weight (10, 32) and 42 biases, in one bucket; dense: packed.
	packed=$((4 * (2048 + 320 + 42)))
	thin=$((4 * (2048 + 320 + 2 * 2 * (64 + 32) + 2 * 2 * (32 + 64 + 10 + 32) + 42 + 4 * 2) + 8 * 2 * 32))
	[ "$(peak --compress lowrank:2,start=0)" -eq $((none - packed + thin)) ]
	[ "$(peak --compress lowrank:2)" -eq $((none - packed + thin + 4 * (2048 + 320))) ]	# dense at first
	[ "$(peak --compress lowrank:2,start=0,error=local)" -eq $((none - packed + thin + 4 * 2 * (64 + 32))) ]
	[ "$(peak --gossip 0.5)" -eq $((none + packed * 3 / 2)) ]
	[ "$(peak --param-server 0)" -eq $((none + packed * 3)) ]		# its own, what comes from one other, the mean
}

@test "a continued run has the losses of an unbroken one, with what was kept back" {
	doc 2 >"$tmp/doc.json"
	doc 3 >"$tmp/three.json"
	whole=$(run_it "$tmp/doc.json" 9 --compress lowrank:2,start=2 | jq -c .report.losses)
	run_it "$tmp/doc.json" 5 --compress lowrank:2,start=2 --checkpoint "$tmp/ckpt" >"$tmp/first.json"
	cp -r "$tmp/ckpt" "$tmp/other"
	rest=$(run_it "$tmp/doc.json" 4 --compress lowrank:2,start=2 --checkpoint "$tmp/ckpt" | jq -c .report.losses)
	[ "$rest" = "$(jq -c '.[5:]' <<<"$whole")" ]
	# Without it they are others; more replicas share it out; another rank has no use for it.
	run_it "$tmp/three.json" 2 --compress lowrank:2,start=2 --checkpoint "$tmp/other" | jq -e '.report.losses | length == 2'
	run -2 --separate-stderr run_it "$tmp/doc.json" 2 --compress lowrank:3,start=2 --checkpoint "$tmp/other"
	[[ $stderr == *"elements in the checkpoint"* ]]
}

@test "a gradient that is not finite ends all ranks with one line that names it" {
	doc 3 >"$tmp/doc.json"
	for how in lowrank:2,start=0 lowrank:2 bf16; do
		run -2 --separate-stderr run_it "$tmp/doc.json" 50 --lr 1e30 --compress "$how"
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" = 1 ]
		[[ $stderr == *"is not finite"* ]]
	done
}

@test "what makes no sense is one line" {
	doc 2 >"$tmp/doc.json"
	for how in lowrank lowrank:0 lowrank:99 zip bf16,start=1 lowrank:2,wire=f8; do
		run -2 --separate-stderr run_it "$tmp/doc.json" 1 --compress "$how"
		[ "${#stderr_lines[@]}" = 1 ]
	done
	run -2 --separate-stderr run_it "$tmp/doc.json" 1 --compress bf16 --allreduce mpi
	[[ $stderr == *"cannot compress"* ]]
	jq '.plan.compress = "zip"' "$tmp/doc.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-run --dry-run "$tmp/bad.json"
	[[ $stderr == *"/plan/compress"* ]]
}
