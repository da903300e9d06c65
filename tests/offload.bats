#!/usr/bin/env bats
# dlb-place --offload: optimizer states, weights and activations in a file give the same bits, take the memory that the plan says,
# and are moved there where memory is short. Programs: unit test_offload.
load helper

set -o pipefail
setup() { cd "$BATS_FILE_TMPDIR" || return; tmp=$BATS_TEST_TMPDIR; }

data=(--data random --init 1)
profiled() { small_gpt 4; }
# A cluster of N nodes of one host, of MB each (0: any), whose memory "disk" is a file.
cluster() { # N MB
	mkdir -p disk
	jq -n --argjson n "$1" --argjson bytes "$2e6" --arg folder "$PWD/disk" '{dlb: "1.0", cluster: {
		kinds: [{name: "cpu", peak_flops: 1e11, bandwidth_Bps: 1e10}],
		links: [{name: "shm", class: "shm", latency_s: 1e-6, bandwidth_Bps: 1e10, overlap: false}],
		groups: [{name: "host", class: "host", inside: "shm"}],
		nodes: [range($n) | {kind: "cpu", group: "host", memory_bytes: $bytes}],
		memories: [{name: "disk", class: "file", folder: $folder, group: "host", bytes: 1e8, bandwidth_Bps: 1e9, latency_s: 1e-4}]}}'
}
made() { # NODES DLB-PLACE OPTION... >DOCUMENT
	local n=$1
	shift
	profiled
	cluster "$n" 0 >"$tmp/cluster.json"
	dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json | dlb-place -q "$@"
}
same_bits() { # NODES DLB-PLACE OPTION...
	local n=$1 plain
	shift
	made "$n" "$@" >"$tmp/near.json"
	plain=$(gpt_trained "$tmp/near.json")
	for where in "${offloads[@]}"; do
		# shellcheck disable=SC2086	# words
		made "$n" "$@" $where >"$tmp/far.json"
		jq -e '[.plan.nodes[].offloaded_bytes // 0] | add > 0' "$tmp/far.json"
		[ "$(gpt_trained "$tmp/far.json")" = "$plain" ]
		[ -z "$(ls disk)" ]			# the file has no name
	done
}
offloads=('--offload *=disk')

# A checkpoint of $tmp/near.json or $tmp/far.json, plans with Adam, goes on as either.
goes_on_as_either() {
	local whole first next
	whole=$(dlb-run -q --steps 8 "${data[@]}" --save "$tmp/whole" "$tmp/near.json" | jq -c .report.losses[4:])
	for first in near far; do
		for next in near far; do
			rm -rf "$tmp/check"
			dlb-run -q --until-step 4 "${data[@]}" --optimizer adam --checkpoint "$tmp/check" "$tmp/$first.json" >"$tmp/a.json" || return
			dlb-run -q --until-step 8 "${data[@]}" --optimizer adam --checkpoint "$tmp/check" --save "$tmp/saved" "$tmp/$next.json" >"$tmp/b.json" || return
			[ "$(jq -c .report.losses "$tmp/b.json")" = "$whole" ] && cmp "$tmp/saved" "$tmp/whole" || return
		done
	done
}

# bats test_tags=slow
@test "the same losses, weights and states, over nodes, micro-batches and optimizers" {
	for optimizer in adam momentum adamw; do
		for n in 1 2; do
			for m in 1 3; do
				echo "$optimizer, $n nodes, $m micro-batches"
				same_bits "$n" -a even -m "$m" --optimizer "$optimizer"
			done
		done
	done
}

# bats test_tags=slow
@test "the same with replicas, which may divide the states, and with clipping" {
	same_bits 2 --replicas 2 --optimizer adam
	same_bits 2 --replicas 2 --zero 1 --optimizer adam
	same_bits 2 --replicas 2 --zero 2 --optimizer adam
	same_bits 2 --replicas 2 --zero 3 -m 2 --optimizer adam
	same_bits 1 -m 2 --optimizer adam --clip-norm 0.5
}

@test "the arena has at most three weights' states; the rest is not in peak_bytes" {
	made 1 --optimizer adam >"$tmp/near.json"
	made 1 --optimizer adam --offload '*=disk' >"$tmp/far.json"
	jq -ne --slurpfile near "$tmp/near.json" --slurpfile far "$tmp/far.json" '
		($near[0].plan.nodes[0].peak_bytes - $far[0].plan.nodes[0].peak_bytes) > 0.4 * $far[0].plan.nodes[0].offloaded_bytes'
	dlb-run --print-program "$tmp/far.json" >"$tmp/program"
	for verb in FETCH FETCHED STORE STORED; do
		[ "$(grep -cw $verb "$tmp/program")" -eq "$(grep -c 'update op' "$tmp/program")" ]
	done
	awk '/FETCH / { if (++n > most) most = n } /FREE.*its states/ { n-- } END { exit most != 3 }' "$tmp/program"
}

# bats test_tags=slow
@test "activations: the same bits, over nodes, schedules, replicas, and with states and ops that run again" {
	set -f
	offloads=('--offload activations:*=disk')
	same_bits 1 --optimizer sgd
	same_bits 1 -m 3 --optimizer adam --clip-norm 0.5
	same_bits 2 -a even -m 4 --optimizer momentum
	same_bits 3 -a random -m 3 --schedule zero-bubble
	same_bits 2 -a even -m 4 --schedule interleaved
	same_bits 2 --replicas 2 -m 2 --optimizer adam
	same_bits 2 --replicas 2 --zero 3 --optimizer adam
	offloads=('--offload activations:*MatMul*=disk --offload *=disk' '--offload activations:*MatMul*=disk --recompute *')
	same_bits 2 -a even -m 2 --optimizer adam
}

@test "activations: STORE when they are made, FETCH before they are read again; the arena has the rest" {
	made 1 >"$tmp/near.json"
	made 1 --offload 'activations:*=disk' >"$tmp/far.json"
	jq -ne --slurpfile near "$tmp/near.json" --slurpfile far "$tmp/far.json" '
		($near[0].plan.nodes[0].peak_bytes - $far[0].plan.nodes[0].peak_bytes) > 0.4 * $far[0].plan.nodes[0].offloaded_bytes'
	jq -e '.plan.offload == {states: [], activations: [{ops: "*", memory: "disk"}]}' "$tmp/far.json"
	dlb-place -q -m 2 "$tmp/far.json" | dlb-run --print-program >"$tmp/program"
	for verb in STORED FETCH FETCHED; do
		[ "$(grep -cw $verb "$tmp/program")" -eq "$(grep -cw STORE "$tmp/program")" ]
	done
	# of each tensor and micro-batch: stored, then fetched
	awk '$2 ~ /^(STORE|STORED|FETCH|FETCHED)$/ { match($0, /tensor [0-9]+/); t = substr($0, RSTART, RLENGTH)
		match($0, / m=[0-9]+/); t = t substr($0, RSTART, RLENGTH); seen[t] = seen[t] $2 " "; n++ }
		END { for (t in seen) bad += seen[t] != "STORE STORED FETCH FETCHED "; exit n < 40 || bad }' "$tmp/program"
	# the next plan keeps them there, unless it is asked for another
	dlb-place -q "$tmp/far.json" | jq -e '.plan.nodes[0].offloaded_bytes > 0'
	dlb-place -q --offload none "$tmp/far.json" | jq -e '.plan.offload == null'
	dlb-view -f table "$tmp/far.json" | grep 'offloaded: '
}

# bats test_tags=slow
@test "weights: the same bits, over nodes, schedules, replicas, and with states and activations there" {
	set -f
	offloads=('--offload weights:*=disk')
	same_bits 1 --optimizer sgd
	same_bits 1 -m 3 --optimizer adamw --clip-norm 0.5
	same_bits 2 -a even -m 4 --optimizer momentum
	same_bits 3 -a random -m 3 --schedule zero-bubble
	same_bits 2 --replicas 2 -m 2 --optimizer adam
	offloads=('--offload weights:*=disk --offload *=disk' '--offload weights:*=disk --offload activations:*=disk --recompute *')
	same_bits 2 -a even -m 2 --optimizer adam
	made 1 --optimizer adam >"$tmp/near.json"
	made 1 --optimizer adam --offload '*=disk' --offload 'weights:*=disk' --offload 'activations:*=disk' >"$tmp/far.json"
	jq -ne --slurpfile near "$tmp/near.json" --slurpfile far "$tmp/far.json" '
		[$near, $far | .[0].plan.nodes[0]] | .[1].peak_bytes < 0.6 * .[0].peak_bytes and .[1].offloaded_bytes > 0.8 * .[0].peak_bytes'
	jq -e '.plan.offload.weights == [{weights: "*", memory: "disk"}]' "$tmp/far.json"
	goes_on_as_either
	# the process holds no more than predicted: pages of the file are not its memory
	dlb-run -q --steps 3 "${data[@]}" "$tmp/far.json" |
		jq -e '.report.nodes[0] | .predicted_process_bytes - .process_bytes | . >= 0 and . < 3e6'
	# plans that change while it trains
	command -v mpirun >/dev/null || skip 'no mpirun'
	made 2 -a even -m 2 --optimizer adam >"$tmp/near.json"
	made 2 -a even -m 2 --optimizer adam --offload 'weights:*=disk' >"$tmp/far.json"
	dlb-run -q --steps 24 "${data[@]}" --save "$tmp/a" "$tmp/near.json" | jq -c .report.losses >"$tmp/losses"
	dlb-run -q --steps 1 "${data[@]}" "$tmp/far.json" | jq -c 'del(.report)' >"$tmp/doc.json"
	timeout 300 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 2 "$BUILD/tests/moving-run" \
		"$tmp/doc.json" 24 1 "$tmp/check.w" >"$tmp/out.json"
	jq -c .report.losses "$tmp/out.json" | cmp - "$tmp/losses"
	dlb-run -q --steps 0 --checkpoint "$tmp/check.w" --save "$tmp/b" "$tmp/doc.json" >"$tmp/end.json"
	cmp "$tmp/a" "$tmp/b"
}

@test "frozen weights: the same bits with --lora and --freeze, over nodes, replicas, shares and evaluations" {
	local how options
	set -f
	trained_digits() { # DLB-PLACE OPTION... >LOSSES, TEST LOSS, SAVED WEIGHTS
		dlb-place -q --optimizer adam "$@" "$tmp/cost.json" >"$tmp/plan.json"
		dlb-run -q --steps 12 "${digits[@]}" --test-data digits --eval-every 6 --save "$tmp/w" "$tmp/plan.json" >"$tmp/out.json"
		jq -e '[.plan.nodes[].peak_bytes] == [.report.nodes[].peak_bytes]' "$tmp/out.json" >"$tmp/peaks"
		jq -c '.report | .losses, .test_loss' "$tmp/out.json"
		cat "$tmp/w"
	}
	for how in '--lora 4:*' '--freeze 1.*'; do
		cluster 2 0 >"$tmp/cluster.json"
		# shellcheck disable=SC2086	# words
		dlb-profile -q --analytic --batch 12 $how "$root/share/models/digits_mlp.onnx" |
			dlb-costmodel -q --cluster "$tmp/cluster.json" >"$tmp/cost.json"
		for options in '-a single' '-a even -m 5' '-a single --replicas 2 --zero 2' '-a single --replicas 2 --gossip 0.5' \
			'-a even -m 2 --recompute *'; do
			# shellcheck disable=SC2086	# words
			trained_digits $options >"$tmp/near"
			# shellcheck disable=SC2086	# words
			trained_digits $options --offload weights:1.weight=disk | cmp - "$tmp/near"
			jq -e '[.plan.nodes[].offloaded_bytes // 0] | max == 8192' "$tmp/plan.json"
		done
		! grep -q 'STORE' <(dlb-run --print-program "$tmp/plan.json")
		grep -q 'FETCH .*1.weight' <(dlb-run --print-program "$tmp/plan.json")
	done
	run -2 --separate-stderr dlb-place -a single --replicas 2 --zero 3 --optimizer adam --offload 'weights:1.weight=disk' "$tmp/cost.json"
	one_line dlb-place 'the replicas exchange weights' '--zero'
}

@test "auto with --lora: the base weights leave the node when they do not fit" {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 3 --width 64 --heads 4 --vocabulary 64 --sequence 16 "$tmp/gpt.onnx"
	dlb-profile -q --analytic --batch 4 --loss next-token --lora 4:'*' "$tmp/gpt.onnx" >"$tmp/lora.json"
	cluster 1 0 >"$tmp/cluster.json"
	dlb-costmodel -q --cluster "$tmp/cluster.json" "$tmp/lora.json" | dlb-place -q --optimizer adam >"$tmp/plain.json"
	cluster 1 0.6 >"$tmp/cluster.json"
	dlb-costmodel -q --cluster "$tmp/cluster.json" "$tmp/lora.json" >"$tmp/cost.json"
	run -1 --separate-stderr dlb-place --optimizer adam "$tmp/cost.json"
	one_line dlb-place 'no plan fits' '--offload'
	dlb-place -q --optimizer adam --offload auto "$tmp/cost.json" >"$tmp/far.json"
	jq -e '.plan.nodes[0].peak_bytes <= 6e5 and ([.plan.offload.weights[].weights] | any(test("lora") | not))' "$tmp/far.json"
	[ "$(gpt_trained "$tmp/far.json")" = "$(gpt_trained "$tmp/plain.json")" ]
}

# bats test_tags=slow
@test "activations: batches of other sizes, evaluation and plans that change while it trains" {
	made 2 -a even -m 3 --optimizer adam >"$tmp/near.json"
	made 2 -a even -m 3 --optimizer adam --offload 'activations:*=disk' >"$tmp/far.json"
	# the last batch of an epoch is of 97 digits
	for where in none 'activations:*=disk'; do
		dlb-profile -q --analytic --batch 100 "$root/share/models/digits_cnn.onnx" |
			dlb-costmodel -q --cluster "$tmp/cluster.json" | dlb-place -q -a even -m 3 --offload "$where" |
			dlb-run -q "${digits[@]}" --epochs 1 --test-data digits --eval-every 5 --init 1 |
			jq -ce '.report | .losses, .test_loss' >"$tmp/$where.losses"
	done
	cmp "$tmp/none.losses" "$tmp/activations:*=disk.losses"
	command -v mpirun >/dev/null || skip 'no mpirun'
	dlb-run -q --steps 24 "${data[@]}" --save "$tmp/a" "$tmp/near.json" | jq -c .report.losses >"$tmp/losses"
	dlb-run -q --steps 1 "${data[@]}" "$tmp/far.json" | jq -c 'del(.report)' >"$tmp/doc.json"
	timeout 300 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 2 "$BUILD/tests/moving-run" \
		"$tmp/doc.json" 24 1 "$tmp/check" >"$tmp/out.json"
	jq -c .report.losses "$tmp/out.json" | cmp - "$tmp/losses"
	jq -e '.plan.offload.activations | length == 1' "$tmp/out.json"
}

# bats test_tags=slow
@test "a checkpoint of either goes on as the other" {
	made 2 -a even --optimizer adam >"$tmp/near.json"
	made 2 -a even --optimizer adam --offload '*=disk' >"$tmp/far.json"
	goes_on_as_either
}

# bats test_tags=slow
@test "states move between nodes while they are offloaded: plans change at random every second step" {
	command -v mpirun >/dev/null || skip 'no mpirun'
	made 3 -a even -m 2 --optimizer adam >"$tmp/near.json"
	made 3 -a even -m 2 --optimizer adam --offload '*=disk' >"$tmp/far.json"
	dlb-run -q --steps 40 "${data[@]}" --save "$tmp/a" --checkpoint "$tmp/check.a" "$tmp/near.json" | jq -c .report.losses >"$tmp/losses"
	dlb-run -q --steps 1 "${data[@]}" "$tmp/far.json" | jq -c 'del(.report)' >"$tmp/doc.json"	# the settings stay in the document
	timeout 300 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 3 "$BUILD/tests/moving-run" \
		"$tmp/doc.json" 40 1 "$tmp/check.b" >"$tmp/out.json"
	jq -e '.balance.round > 15 and .plan.offload and ([.plan.nodes[].offloaded_bytes // 0] | add > 0)' "$tmp/out.json"
	jq -c .report.losses "$tmp/out.json" | cmp - "$tmp/losses"
	dlb-run -q --steps 0 --checkpoint "$tmp/check.b" --save "$tmp/b" "$tmp/doc.json" >"$tmp/end.json"
	cmp "$tmp/a" "$tmp/b"
}

# bats test_tags=slow
@test "auto: none where the plan fits, else the largest, no more than needed" {
	profiled
	cluster 1 0 >"$tmp/any.json"
	near=$(dlb-costmodel -q --cluster "$tmp/any.json" profile.json | dlb-place -q --optimizer adam | jq '.plan.nodes[0].peak_bytes')
	run --separate-stderr bash -c 'dlb-costmodel -q --cluster "$1" profile.json | dlb-place --optimizer adam --offload auto' - "$tmp/any.json"
	[ "$status" -eq 0 ]
	[[ "$stderr" == *"--offload has no effect: the plan fits without"* ]]
	mb=$(jq -n "$near * 0.95 / 1e6")
	cluster 1 "$mb" >"$tmp/tight.json"
	dlb-costmodel -q --cluster "$tmp/tight.json" profile.json >"$tmp/cost.json"
	run dlb-place -q --optimizer adam "$tmp/cost.json"
	[ "$status" -eq 1 ]
	dlb-place -q --optimizer adam --offload auto "$tmp/cost.json" >"$tmp/auto.json"
	jq -e --argjson near "$near" '.plan | .nodes[0].peak_bytes <= $near * 0.95 and (.offload.states | length) < 12 and .offload.auto' "$tmp/auto.json"
	[ "$(gpt_trained "$tmp/auto.json")" = "$(made 1 --optimizer adam >"$tmp/near.json" && gpt_trained "$tmp/near.json")" ]
	# the next plan chooses anew
	dlb-place -q --optimizer adam "$tmp/auto.json" | jq -e '.plan.offload.states | length > 0'
	# what states do not free, activations do
	made 1 --optimizer adam --offload '*=disk' >"$tmp/far.json"
	cluster 1 "$(jq '.plan.nodes[0].peak_bytes * 0.98 / 1e6' "$tmp/far.json")" >"$tmp/tight.json"
	dlb-costmodel -q --cluster "$tmp/tight.json" profile.json >"$tmp/cost.json"
	dlb-place -q --optimizer adam --offload auto "$tmp/cost.json" >"$tmp/auto.json"
	jq -e '.plan.offload | .auto and (.states | length > 5) and (.activations | length | . > 0 and . < 40)' "$tmp/auto.json"
	[ "$(gpt_trained "$tmp/auto.json")" = "$(gpt_trained "$tmp/near.json")" ]
	# and what these do not free, weights do
	made 1 --optimizer adam --offload '*=disk' --offload 'activations:*=disk' >"$tmp/far.json"
	cluster 1 "$(jq '.plan.nodes[0].peak_bytes * 0.97 / 1e6' "$tmp/far.json")" >"$tmp/tight.json"
	dlb-costmodel -q --cluster "$tmp/tight.json" profile.json >"$tmp/cost.json"
	dlb-place -q --optimizer adam --offload auto "$tmp/cost.json" >"$tmp/auto.json"
	jq -e '.plan.offload | .auto and (.states | length > 5) and .activations[-1].ops == "*" and (.weights | length | . > 0 and . < 12)' "$tmp/auto.json"
	[ "$(gpt_trained "$tmp/auto.json")" = "$(gpt_trained "$tmp/near.json")" ]
	# not where an optimizer keeps them near: the line is of what else could move
	run -1 --separate-stderr dlb-place -q --optimizer kfac --offload auto "$tmp/cost.json"
	[[ $stderr != *K-FAC* ]]
}

# bats test_tags=slow
@test "auto: where memory limits the placement, as fast as any rule given by hand, and faster than nothing" {
	local m auto hand none
	dlb-profile -q --analytic -b 16 "$models/resnet8.onnx" | dlb-costmodel -q -c "$BATS_TEST_DIRNAME/data/kept/pools.json" >"$tmp/scarce.json"
	for m in 2 4; do
		auto=$(dlb-place -q -m $m --optimizer adam --offload auto "$tmp/scarce.json" | jq .plan.value_s)
		none=$(dlb-place -q -m $m --optimizer adam "$tmp/scarce.json" | jq .plan.value_s)
		awk -v a="$auto" -v b="$none" 'BEGIN { exit !(a < .75 * b) }'
		for rule in '*=pool' 'activations:*=pool' 'weights:*=pool'; do
			hand=$(dlb-place -q -m $m --optimizer adam --offload "$rule" "$tmp/scarce.json" | jq .plan.value_s)
			awk -v a="$auto" -v b="$hand" 'BEGIN { exit !(a <= b) }'
		done
	done
}

# bats test_tags=slow
@test "auto beside --recompute auto: the faster of both, by the memory's bandwidth" {
	profiled
	cluster 1 0 >"$tmp/any.json"
	near=$(dlb-costmodel -q --cluster "$tmp/any.json" profile.json | dlb-place -q -m 2 --optimizer adam | jq '.plan.nodes[0].peak_bytes')
	cluster 1 "$(jq -n "$near * 0.9 / 1e6")" >"$tmp/tight.json"
	for Bps in 1e12 1e5; do
		jq --argjson Bps $Bps '.cluster.memories[0] += {bandwidth_Bps: $Bps, latency_s: 0}' "$tmp/tight.json" >"$tmp/c.json"
		dlb-costmodel -q --cluster "$tmp/c.json" profile.json >"$tmp/cost.json"
		for how in '--offload auto' '--recompute auto' '--offload auto --recompute auto'; do
			# shellcheck disable=SC2086	# words
			dlb-place -q -m 2 --optimizer adam $how "$tmp/cost.json" |
				jq -c '[.plan.value_s, .plan.nodes[0].offloaded_bytes > 0, (.plan.recompute.ops // [] | length) > 0]'
		done | jq -es --argjson fast "$([ $Bps = 1e12 ] && echo true || echo false)" 'debug | (.[2][0] <= ([.[0][0], .[1][0]] | min)) and
			.[2][1] == $fast and .[2][2] == ($fast | not)'
	done
}

# A cluster of one host: COUNT devices of MB each (0: any), behind a link each, and the host's memory "dram0".
devices() { # COUNT MB
	jq -n --argjson n "$1" --argjson bytes "$2e6" '{dlb: "1.0", cluster: {
		kinds: [{name: "cuda", peak_flops: 1e12, bandwidth_Bps: 1e11}],
		links: [{name: "shm", class: "shm", latency_s: 1e-6, bandwidth_Bps: 1e10, overlap: false},
			(range($n) | {name: "pcie:\(.)", class: "pcie", latency_s: 1e-5, bandwidth_Bps: 1e9, overlap: true})],
		groups: [{name: "host", class: "host", inside: "shm"},
			(range($n) | {name: "cuda\(.)", class: "device", parent: "host", up: "pcie:\(.)"})],
		nodes: [range($n) | {kind: "cuda", group: "cuda\(.)", memory_bytes: $bytes}],
		memories: [{name: "dram0", class: "dram", group: "host", bytes: 1e9, bandwidth_Bps: 2e9},
			{name: "disk", class: "file", folder: "/tmp", group: "host", bytes: 1e8, bandwidth_Bps: 1e9, latency_s: 1e-4}]}}'
}

# bats test_tags=slow
@test "devices (stand-in): states, activations and weights in the memory of the host, the same bits, also from a checkpoint" {
	export DLB_PLUGIN_DIR=$BUILD/cuda-host
	[ -s "$DLB_PLUGIN_DIR/dlb-cuda.so" ] || skip "no stand-in for CUDA: make $BUILD/cuda-host/dlb-cuda.so"
	profiled
	while IFS='|' read -r n options; do
		devices "$n" 0 >"$tmp/cluster.json"
		for where in none '*=dram0'; do
			# shellcheck disable=SC2086
			dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json |
				dlb-place -q $options --offload "$where" >"$tmp/$where.json"
		done
		jq -e '[.plan.nodes[].offloaded_bytes // 0] | add > 0' "$tmp/*=dram0.json"
		gpt_trained "$tmp/none.json" >"$tmp/none.bits"
		for seed in 1 2 3; do
			echo "$n $options, seed $seed"
			DLB_CUDA_HOST_SEED=$seed gpt_trained "$tmp/*=dram0.json" | cmp - "$tmp/none.bits"
		done
	done <<-'END'
		1|--optimizer adam
		1|--optimizer momentum -m 3 --clip-norm 0.5
		2|-a even --optimizer adam -m 2
		2|--replicas 2 --optimizer adam
		2|--replicas 2 --zero 2 --optimizer adam
		2|-a even --optimizer adamw -m 3
	END
	while IFS='|' read -r n options; do
		devices "$n" 0 >"$tmp/cluster.json"
		for where in none 'activations:*=dram0' 'weights:*=dram0'; do
			# shellcheck disable=SC2086
			dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json |
				dlb-place -q $options --offload "$where" >"$tmp/$where.json"
		done
		gpt_trained "$tmp/none.json" >"$tmp/none.bits"
		for where in 'activations:*=dram0' 'weights:*=dram0'; do
			jq -e '[.plan.nodes[].offloaded_bytes // 0] | add > 0' "$tmp/$where.json"
			for seed in 1 2 3; do
				echo "$where, $n $options, seed $seed"
				DLB_CUDA_HOST_SEED=$seed gpt_trained "$tmp/$where.json" | cmp - "$tmp/none.bits"
			done
		done
	done <<-'END'
		1|--optimizer sgd -m 2
		2|-a even --optimizer adam -m 3
		2|--replicas 2 --optimizer adam
	END
	devices 1 0 >"$tmp/cluster.json"
	dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json >"$tmp/cost.json"
	dlb-place -q --optimizer adam "$tmp/cost.json" >"$tmp/near.json"
	dlb-place -q --optimizer adam --offload '*=dram0' "$tmp/cost.json" >"$tmp/far.json"
	goes_on_as_either
}

@test "devices: a copy takes the time of the link, auto takes the memory of the host, and a file is refused" {
	profiled
	devices 1 0 >"$tmp/cluster.json"
	for Bps in 1e9 1e8; do
		jq --argjson Bps $Bps '.cluster.links[1].bandwidth_Bps = $Bps' "$tmp/cluster.json" >"$tmp/link.json"
		dlb-costmodel -q --cluster "$tmp/link.json" profile.json | dlb-place -q --optimizer adam --offload '*=dram0' |
			jq '[.plan.value_s, .plan.nodes[0].offloaded_bytes]'
	done | jq -es '.[0] as [$a, $bytes] | .[1][0] - $a | . > 0.8 * $bytes * 2 * 9e-9 and . < 1.05 * $bytes * 2 * 9e-9'
	dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json >"$tmp/cost.json"
	run -1 --separate-stderr dlb-place --optimizer adam --offload '*=disk' "$tmp/cost.json"
	one_line dlb-place 'node 0 is no CPU' "the file 'disk'" 'name a memory of its host'
	dlb-place -q --optimizer adam "$tmp/cost.json" >"$tmp/near.json"
	devices 1 "$(jq '.plan.nodes[0].peak_bytes / 1e6 * 0.9' "$tmp/near.json")" >"$tmp/tight.json"
	dlb-costmodel -q --cluster "$tmp/tight.json" profile.json | dlb-place -q --optimizer adam --offload auto |
		jq -e '(.plan.offload.states | length > 0 and all(.memory == "dram0")) and .plan.nodes[0].offloaded_bytes > 0'
}

# bats test_tags=slow
@test "what cannot be offloaded is refused in one line" {
	profiled
	cluster 2 0 >"$tmp/cluster.json"
	dlb-costmodel -q --cluster "$tmp/cluster.json" profile.json >"$tmp/cost.json"
	refuses() { # MESSAGE DLB-PLACE OPTION...
		local text=$1
		shift
		run --separate-stderr dlb-place "$@" "$tmp/cost.json"
		echo "$stderr"
		[ "$status" -ne 0 ]
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ "$stderr" == *"$text"* ]]
	}
	refuses "no weight matches 'nosuch'" --optimizer adam --offload 'nosuch=disk'
	refuses "no node has a memory 'dusk'" --optimizer adam --offload '*=dusk'
	refuses "wants none, auto or [weights:|activations:]GLOB=MEMORY" --offload disk
	refuses "no op matches 'nosuch' that has an output which the backward phase reads" --offload 'activations:nosuch=disk'
	refuses "no node has a memory 'dusk'" --offload 'activations:*=dusk'
	refuses "under an asynchronous schedule" --schedule async -m 2 --offload 'activations:*=disk'
	refuses "no weight matches 'nosuch'" --offload 'weights:nosuch=disk'
	refuses "the replicas exchange weights" --replicas 2 --zero 1 --optimizer adam --offload 'weights:*=disk'
	refuses "K-FAC" --optimizer kfac --offload 'weights:*=disk'
	run --separate-stderr dlb-place --offload 'weights:*.bias=disk' "$tmp/cost.json"
	[[ "$stderr" == *"--offload has no effect: no weight of 4096 bytes or more that it names"* ]]
	refuses "excludes another" --offload auto --offload '*=disk'
	dlb-place -q --optimizer adam --offload '*=disk' "$tmp/cost.json" >"$tmp/doc.json"
	run --separate-stderr dlb-convert --to smpi "$tmp/doc.json"
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"smpi cannot express copies of offloaded tensors"* ]]
	refuses "under an asynchronous schedule" --optimizer adam --schedule async -m 2 --offload '*=disk'
	refuses "replicas sum moments" --optimizer adam --replicas 2 --reduce moments --offload '*=disk'
	jq '.cluster.memories[0].bytes = 1000' "$tmp/cluster.json" >"$tmp/small.json"
	dlb-costmodel -q --cluster "$tmp/small.json" profile.json >"$tmp/cost.json"
	refuses "offloaded to memory 'disk'" --optimizer adam --offload '*=disk'
	run --separate-stderr dlb-place --optimizer sgd --offload '*=disk' "$tmp/cost.json"
	[[ "$stderr" == *"--offload has no effect: the optimizer keeps no state"* ]]
	jq '.cluster.memories[0].folder = "/no/such"' "$tmp/cluster.json" >"$tmp/gone.json"
	dlb-costmodel -q --cluster "$tmp/gone.json" profile.json | dlb-place -q --optimizer adam --offload '*=disk' >"$tmp/doc.json"
	run --separate-stderr dlb-run -q --steps 1 "${data[@]}" "$tmp/doc.json"
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"cannot make a file for offloaded tensors"* ]]
	jq '.cluster.memories[0].class = "cxl"' "$tmp/cluster.json" >"$tmp/bad.json"
	run --separate-stderr dlb-costmodel -q --cluster "$tmp/bad.json" profile.json
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"a memory of class file, and no other, has a folder"* ]]
}

@test "dlb-profile --cluster --memory measures a folder" {
	mkdir -p disk
	dlb-profile -q --cluster --memory "disk=$PWD/disk" >"$tmp/cluster.json"
	jq -e '.cluster.memories[] | select(.name == "disk") | .class == "file" and .bandwidth_Bps > 1e6 and .bytes > 0' "$tmp/cluster.json"
	[ -z "$(ls disk)" ]
	run --separate-stderr dlb-profile -q --cluster --memory "disk=/no/such"
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"/no/such: cannot be measured as a memory"* ]]
	run dlb-profile --cluster --memory disk
	[ "$status" -eq 2 ]
}
