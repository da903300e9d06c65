#!/usr/bin/env bats
# Every tool on a small model, for scripts/check, which runs them under the address sanitizer: a tool that leaks ends
# with another status. dlb-run starts no ranks here, since Open MPI leaks.
load helper

setup() {
	set -o pipefail
	tmp=$BATS_TEST_TMPDIR doc=$BATS_TEST_TMPDIR/doc.json
	planned "$doc"
}

@test "leaks: dlb-profile" {
	dlb-profile --analytic --batch 16 "$model" | jq -e .profile >/dev/null
	dlb-profile --analytic --inference "$model" | jq -e .graph >/dev/null
	dlb-profile --analytic --lora '2:*' "$model" | jq -e .graph.adapters >/dev/null
	# a model that is none, and an option that names nothing
	run -2 dlb-profile --analytic "$BATS_TEST_FILENAME"
	run -2 dlb-profile --analytic --freeze 'none*' "$model"
}

@test "leaks: dlb-costmodel" {
	dlb-costmodel -c 'cpu:2 host cpu:2*0.5' "$doc" | jq -e .cost >/dev/null
	dlb-costmodel -c cpu:2 --split /7/Gemm=2 "$doc" | jq -e .graph.split >/dev/null
	run -2 dlb-costmodel -c cpu:0 "$doc"
	run -2 dlb-costmodel -c cpu:2 --split none=2 "$doc"
}

@test "leaks: dlb-place" {
	dlb-place "$doc" | jq -e .plan >/dev/null
	dlb-place --schedule auto --recompute auto "$doc" | jq -e .plan.schedules_tried >/dev/null
	run -2 dlb-place --pin none=0 "$doc"
	dlb-costmodel -q -c 'cpu:2@50KB' "$doc" >"$tmp/small.json"
	run -1 dlb-place "$tmp/small.json"
}

@test "leaks: dlb-place: replicas" {
	dlb-place --replicas auto --split power "$doc" | jq -e .plan >/dev/null
	dlb-place --replicas 2 --zero 1 --compress auto "$doc" | jq -e .plan.replicas >/dev/null
	run -1 dlb-place --replicas 3 "$doc"
}

@test "leaks: dlb-run" {
	dlb-run --dry-run --steps 4 "$doc" | jq -e .report >/dev/null
	dlb-run --print-program "$doc" | grep -c SEND >/dev/null
	jq -n '{nodes: 2, events: []}' >"$tmp/s.json"
	run -2 dlb-run --dry-run --scenario "$tmp/s.json" "$doc"
	run -2 dlb-run --dry-run --data none "$doc"
}

@test "leaks: dlb-rebalance" {
	dlb-run --dry-run --steps 4 --slow 1:2 "$doc" >"$tmp/r.json"
	dlb-rebalance "$tmp/r.json" | dlb-place | jq -e '.balance and .plan' >/dev/null
	dlb-rebalance --rule patent "$tmp/r.json" | jq -e .balance >/dev/null
	run -2 dlb-rebalance "$doc"
}

@test "leaks: dlb-view" {
	reported "$tmp/r.json"
	for format in table svg trace memory dot html; do
		dlb-view -f $format "$tmp/r.json" >"$tmp/out"
		[ -s "$tmp/out" ]
	done
	dlb-view --why 0 "$doc" >/dev/null
	dlb-view --diff "$doc" "$tmp/r.json" >/dev/null
	run -2 dlb-view --why none "$doc"
}

@test "leaks: dlb-convert" {
	for format in dnn-partitioning chakra torch-pipelining rankfile hostfile sbatch smpi simgrid; do
		dlb-convert -q --to $format "$doc" >"$tmp/out"
		[ -s "$tmp/out" ]
	done
	dlb-convert --to chakra "$doc" >"$tmp/chakra.et"
	dlb-convert --from chakra "$tmp/chakra.et" | jq -e .graph >/dev/null
	run -2 dlb-convert --from pipedream "$doc"
}
