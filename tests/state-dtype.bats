#!/usr/bin/env bats
# dlb-place --state-dtype: optimizer states in bf16 and 8 bits. The same bits however the work is placed, less memory, the bytes
# that the plan says, and checkpoints that go on. Formats and kernels: unit test_state_codec.
load helper

set -o pipefail
setup() { cd "$BATS_FILE_TMPDIR" || return; tmp=$BATS_TEST_TMPDIR; }

data=(--data random --init 1)
profiled() { small_gpt 12; }
made() { # CLUSTER DLB-PLACE OPTION... >DOCUMENT
	local cluster=$1
	shift
	profiled
	dlb-costmodel -q -c "$cluster" profile.json | dlb-place -q "$@"
}
bits() { # CLUSTER DLB-PLACE OPTION...
	made "$@" >"$tmp/doc.json" && gpt_trained "$tmp/doc.json"
}

# bats test_tags=slow
@test "the same bits over one to three nodes, for each number of micro-batches, type and optimizer; other ones than f32" {
	for optimizer in adam adabelief momentum; do
		for m in 1 2; do
			f32=$(bits cpu:1 -m "$m" --optimizer "$optimizer")
			for type in bf16 8bit; do
				echo "$optimizer, $m micro-batches, $type"
				one=$(bits cpu:1 -m "$m" --optimizer "$optimizer" --state-dtype "$type")
				[ "$one" != "$f32" ]
				[ "$(bits cpu:2 -a even -m "$m" --optimizer "$optimizer" --state-dtype "$type")" = "$one" ]
				[ "$(bits cpu:3 -a random --seed 4 -m "$m" --optimizer "$optimizer" --state-dtype "$type")" = "$one" ]
			done
		done
	done
}

@test "--state-dtype f32 has the plan and the bits of a plan without it" {
	made cpu:2 -a even --optimizer adam >"$tmp/a.json"
	made cpu:2 -a even --optimizer adam --state-dtype f32 >"$tmp/b.json"
	cmp <(jq .plan "$tmp/a.json") <(jq .plan "$tmp/b.json")
}

# bats test_tags=slow
@test "replicas: the same bits whether they divide the states or not, and offloaded" {
	mkdir -p disk
	for type in bf16 8bit; do
		for m in 1 2; do
			whole=$(bits cpu:3 --replicas 3 --allreduce ring -m "$m" --optimizer adam --state-dtype "$type")
			for zero in 1 2 3; do
				echo "$type, $m micro-batches, stage $zero"
				[ "$(bits cpu:3 --replicas 3 --allreduce ring -m "$m" --optimizer adam --state-dtype "$type" --zero "$zero")" = "$whole" ]
			done
		done
	done
	profiled
	jq -n --arg folder "$PWD/disk" '{dlb: "1.0", cluster: {kinds: [{name: "cpu", peak_flops: 1e11, bandwidth_Bps: 1e10}],
		links: [{name: "shm", class: "shm", latency_s: 1e-6, bandwidth_Bps: 1e10, overlap: false}],
		groups: [{name: "host", class: "host", inside: "shm"}], nodes: [range(2) | {kind: "cpu", group: "host"}],
		memories: [{name: "disk", class: "file", folder: $folder, group: "host", bytes: 1e8, bandwidth_Bps: 1e9, latency_s: 1e-4}]}}' >"$tmp/cluster.json"
	dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json >"$tmp/cost.json"
	for zero in 0 1 3; do
		for off in none '*=disk'; do
			dlb-place -q --replicas 2 --allreduce ring --zero "$zero" --optimizer adam --state-dtype 8bit --offload "$off" "$tmp/cost.json" >"$tmp/doc.json"
			gpt_trained "$tmp/doc.json" >"$tmp/bits.$zero.$off"
			[ "$off" = none ] || jq -e '[.plan.nodes[].offloaded_bytes] | add > 0' "$tmp/doc.json"
			cmp "$tmp/bits.0.none" "$tmp/bits.$zero.$off"
		done
	done
}

# bats test_tags=slow
@test "a resumed run has the bits of an unbroken one; a checkpoint goes on with another type, with one line" {
	for type in bf16 8bit; do
		made cpu:2 -a even --optimizer adam --state-dtype "$type" >"$tmp/$type.json"
		made cpu:1 --optimizer adam --state-dtype "$type" >"$tmp/one.json"
		rm -rf "$tmp/check"
		dlb-run -q --steps 8 "${data[@]}" --save "$tmp/whole" "$tmp/$type.json" | jq -c .report.losses[4:] >"$tmp/losses"
		dlb-run -q --until-step 4 "${data[@]}" --checkpoint "$tmp/check" "$tmp/$type.json" >"$tmp/a.json"
		dlb-run -q --until-step 8 "${data[@]}" --checkpoint "$tmp/check" --save "$tmp/saved" "$tmp/one.json" | jq -c .report.losses | cmp - "$tmp/losses"
		cmp "$tmp/saved" "$tmp/whole"
		jq -e --arg type "$type" '.state_dtype == $type' "$tmp/check/step-8/manifest.json"
	done
	made cpu:1 --optimizer adam >"$tmp/f32.json"
	for doc in f32 bf16; do
		run --separate-stderr dlb-run --steps 1 "${data[@]}" --checkpoint "$tmp/check" "$tmp/$doc.json"
		[ "$status" -eq 0 ]
		[ "$(grep -c "checkpoint's run kept optimizer states as .*; this one keeps them as $doc" <<<"$stderr")" -eq 1 ]
	done
	run --separate-stderr dlb-run --steps 1 "${data[@]}" --checkpoint "$tmp/check" "$tmp/bf16.json"
	[ "$status" -eq 0 ]
	[[ "$stderr" != *"kept optimizer states"* ]]
}

# bats test_tags=slow
@test "replicas go on from shares, and shares from replicas, with the same bits" {
	made cpu:2 --replicas 2 --allreduce ring --optimizer adam --state-dtype 8bit >"$tmp/whole.json"
	made cpu:2 --replicas 2 --allreduce ring --optimizer adam --state-dtype 8bit --zero 1 >"$tmp/shares.json"
	dlb-run -q --steps 6 "${data[@]}" --save "$tmp/unbroken" "$tmp/whole.json" >"$tmp/a.json"
	for first in whole shares; do
		for then in whole shares; do
			rm -rf "$tmp/check"
			dlb-run -q --until-step 3 "${data[@]}" --checkpoint "$tmp/check" "$tmp/$first.json" >"$tmp/a.json"
			dlb-run -q --until-step 6 "${data[@]}" --checkpoint "$tmp/check" --save "$tmp/saved" "$tmp/$then.json" >"$tmp/a.json"
			cmp "$tmp/saved" "$tmp/unbroken"
		done
	done
}

# bats test_tags=slow
@test "the plan counts the states so, and what does not fit with f32 may fit" {
	for type in f32 bf16 8bit; do
		made cpu:1 --optimizer adam --state-dtype "$type" >"$tmp/$type.json"
	done
	# two states of each weight: 8 bytes an element, 4, and 2 with a scale for 256
	jq -ne --slurpfile f "$tmp/f32.json" --slurpfile h "$tmp/bf16.json" --slurpfile q "$tmp/8bit.json" '
		def peak: .[0].plan.nodes[0].peak_bytes;
		([$f[0].graph.tensors[] | select(.kind == "weight") | .shape // .dims | reduce .[] as $d (1; . * $d)] | add) as $n |
		($f | peak) - ($h | peak) == 4 * $n and (($f | peak) - ($q | peak)) / $n > 5.8'
	limit=$(jq '.plan.nodes[0].peak_bytes * 0.95 / 1e3 | floor' "$tmp/f32.json")
	dlb-costmodel -q -c "cpu:1@${limit}K" profile.json >"$tmp/cost.json"
	run dlb-place -q -m 1 --optimizer adam "$tmp/cost.json"
	[ "$status" -eq 1 ]
	dlb-place -q -m 1 --optimizer adam --state-dtype 8bit "$tmp/cost.json" >"$tmp/fits.json"
	[ "$(gpt_trained "$tmp/fits.json")" = "$(gpt_trained "$tmp/8bit.json")" ]
	# the next plan keeps it, another optimizer may refuse it
	dlb-place -q "$tmp/fits.json" | jq -e '.plan.state_dtype == "8bit"'
	run --separate-stderr dlb-place --optimizer sgd "$tmp/fits.json"
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"the optimizer sgd keeps no state that could be smaller; take another --optimizer, or --state-dtype f32" ]]
	dlb-view "$tmp/fits.json" | grep -q 'optimizer states are kept as 8bit'
}

# bats test_tags=slow
@test "what cannot be is refused in one line" {
	profiled
	dlb-costmodel -q -c cpu:2 profile.json >"$tmp/cost.json"
	refuses() { # MESSAGE DLB-PLACE OPTION...
		local text=$1
		shift
		run --separate-stderr dlb-place "$@" --state-dtype 8bit "${from:-$tmp/cost.json}"
		echo "$stderr"
		[ "$status" -ne 0 ]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ "$stderr" == *"$text"* ]]
	}
	refuses "keeps matrices" --optimizer kfac
	refuses "they only grow" --optimizer max-adabelief
	refuses "they only grow" --optimizer adagrad
	refuses "keeps no state"
	refuses "an asynchronous schedule" --optimizer adam --schedule async -m 2
	refuses "average their weights" --optimizer adam --replicas 2 --gossip 0.5
	refuses "average their weights" --optimizer adam --replicas 2 --sync-every 4
	dlb-profile -q --analytic --dtype f64 --batch 12 --loss next-token gpt.onnx | dlb-costmodel -q -c cpu:2 >"$tmp/f64.json"
	from=$tmp/f64.json refuses "is f64; only states of f32 weights" --optimizer adam
	dlb-place -q --optimizer adam --state-dtype 8bit "$tmp/cost.json" >"$tmp/doc.json"
	for option in "--optimizer sgd:keeps no state" "--buddy-every 2:copies have optimizer states as f32"; do
		# shellcheck disable=SC2086	# words
		run --separate-stderr dlb-run --steps 1 "${data[@]}" ${option%:*} "$tmp/doc.json"
		echo "$stderr"
		[ "$status" -eq 2 ]
		[[ "$stderr" == *"${option#*:}"* ]]
	done
	jq '.plan.state_dtype = "4bit"' "$tmp/doc.json" >"$tmp/bad.json"
	run --separate-stderr dlb-run "$tmp/bad.json"
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"/plan/state_dtype: 'f32', 'bf16' or '8bit' is expected, not '4bit'" ]]
}

@test "bf16 training has f32 weights, whose states may be smaller" {
	dlb-profile -q --analytic --dtype bf16 --batch 24 "$model" | dlb-costmodel -q -c cpu:2 >"$tmp/cost.json"
	dlb-place -q -a even --optimizer adam --state-dtype 8bit "$tmp/cost.json" >"$tmp/two.json"
	dlb-place -q -a single --optimizer adam --state-dtype 8bit "$tmp/cost.json" >"$tmp/one.json"
	dlb-run -q --steps 4 "${digits[@]}" "$tmp/two.json" | jq -c .report.losses >"$tmp/losses"
	dlb-run -q --steps 4 "${digits[@]}" "$tmp/one.json" | jq -c .report.losses | cmp - "$tmp/losses"
}

# bats test_tags=slow
@test "the process has the memory that was predicted" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 6 --width 512 --heads 8 --vocabulary 512 --sequence 32 large.onnx
	dlb-profile -q --analytic --batch 2 --loss next-token large.onnx | dlb-costmodel -q -c cpu:1 >"$tmp/cost.json"
	for type in f32 bf16 8bit; do
		dlb-place -q --optimizer adam --state-dtype "$type" "$tmp/cost.json" |
			dlb-run -q --steps 3 "${data[@]}" >"$tmp/$type.json"
		jq -c '.report.nodes[0] | [.predicted_process_bytes, .process_bytes]' "$tmp/$type.json"
		jq -e '.report.nodes[0] | .predicted_process_bytes / .process_bytes | . > 0.97 and . < 1.03' "$tmp/$type.json"
	done
	jq -ne --slurpfile f "$tmp/f32.json" --slurpfile q "$tmp/8bit.json" '
		def kept: .[0].report.nodes[0].process_bytes; ($f | kept) - ($q | kept) > 0.3 * ($f | kept)'
}

# bats test_tags=slow
@test "states move between nodes as they are kept: plans change at random every second step" {
	command -v mpirun >/dev/null || skip 'no mpirun'
	made cpu:3 -a even -m 2 --optimizer adam --state-dtype 8bit >"$tmp/plan.json"
	dlb-run -q --steps 40 "${data[@]}" --save "$tmp/a" --checkpoint "$tmp/check.a" "$tmp/plan.json" | jq -c .report.losses >"$tmp/losses"
	dlb-run -q --steps 1 "${data[@]}" "$tmp/plan.json" | jq -c 'del(.report)' >"$tmp/doc.json"
	timeout 300 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 3 "$BUILD/tests/moving-run" \
		"$tmp/doc.json" 40 1 "$tmp/check.b" >"$tmp/out.json"
	jq -e '.balance.round > 15 and .plan.state_dtype == "8bit"' "$tmp/out.json"
	jq -c .report.losses "$tmp/out.json" | cmp - "$tmp/losses"
}

# bats test_tags=slow
@test "devices (stand-in): the states of CPUs, alone and beside one, divided, in any order of the queues; checkpoints go on elsewhere" {
	export DLB_PLUGIN_DIR=$BUILD/cuda-host
	[ -s "$DLB_PLUGIN_DIR/dlb-cuda.so" ] || skip "no stand-in for CUDA: make $BUILD/cuda-host/dlb-cuda.so"
	near() { # FILE FILE: losses to 1e-5
		jq -es '.[0] as $a | .[1] as $b | [range(5)] | all(($a[.] - $b[.]) / $b[.] | fabs < 1e-5)' "$1" "$2"
	}
	for options in '--optimizer momentum --state-dtype bf16' '--optimizer adam --state-dtype 8bit'; do
		# shellcheck disable=SC2086	# words
		{
			bits cpu:1 $options >"$tmp/cpu"
			bits cuda:1 ${options%--state*} >"$tmp/f32"
			bits cuda:1 $options >"$tmp/gpu"
			DLB_CUDA_HOST_SEED=2 bits cuda:1 $options | cmp - "$tmp/gpu"
			bits cuda:2 -a even $options | cmp - "$tmp/gpu"
			bits 'cpu:1 cuda:1' -a even $options >"$tmp/mixed"
			bits cuda:2 --replicas 2 $options >"$tmp/whole"
			bits cuda:2 --replicas 2 --zero 2 $options | cmp - "$tmp/whole"
		}
		run ! cmp "$tmp/f32" "$tmp/gpu"
		near <(sed 1q "$tmp/cpu") <(sed 1q "$tmp/gpu")
		near <(sed 1q "$tmp/cpu") <(sed 1q "$tmp/mixed")
	done
	# from a device to a CPU and back: the same codes and scales
	made cuda:1 --optimizer adam --state-dtype 8bit >"$tmp/gpu.json"
	made cpu:1 --optimizer adam --state-dtype 8bit >"$tmp/cpu.json"
	dlb-run -q --steps 3 "${data[@]}" --checkpoint "$tmp/check" "$tmp/gpu.json" >"$tmp/out.json"
	cp -r "$tmp/check" "$tmp/there"
	dlb-run -q --steps 2 "${data[@]}" --checkpoint "$tmp/check" "$tmp/gpu.json" | jq -c .report.losses >"$tmp/same"
	dlb-run -q --steps 2 "${data[@]}" --checkpoint "$tmp/there" "$tmp/cpu.json" | jq -c .report.losses >"$tmp/other"
	jq -es '.[0] as $a | .[1] as $b | [range(2)] | all(($a[.] - $b[.]) / $b[.] | fabs < 1e-5)' "$tmp/same" "$tmp/other"
}
