#!/usr/bin/env bats
# Memories that nodes name: found by hwloc, priced, and bound to.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

# A plan for two nodes whose buffers are to lie in a memory: with_memory EDIT >FILE
with_memory() {
	dlb-profile --analytic --batch 24 "$model" | dlb-costmodel -c cpu:2 |
		jq -c ".cluster.memories = [{name: \"here\", class: \"dram\", group: .cluster.groups[0].name, os_index: 0, bytes: 1e9},
			{name: \"there\", class: \"cxl\", group: .cluster.groups[0].name, os_index: 77, bytes: 1e9, bandwidth_Bps: 1e6}] |
			del(.cost.inputs) | $1" | dlb-place --replicas 2
}

@test "dlb-profile says the system's numbers of NUMA nodes" {
	dlb-profile --cluster >"$tmp/here.json"
	validates "$tmp/here.json"
	jq -e '[.cluster.memories[] | select(.os_index == 0)] | length == 1' "$tmp/here.json"
	dlb-profile --cluster --topology "$root/tests/data/machine.xml" | jq -e '[.cluster.memories[] | .os_index | values] == [0, 1]'
}

@test "buffers in a memory of this host: the same bits" {
	with_memory . >"$tmp/plain.json"
	with_memory '.cluster.nodes[].memory = "here"' >"$tmp/bound.json"
	validates "$tmp/bound.json"
	for doc in plain bound; do
		if ! dlb-run -q --steps 5 "${digits[@]}" "$tmp/$doc.json" >"$tmp/out.json" 2>"$tmp/err"; then
			cat "$tmp/err"
			grep -q 'cannot bind to memory' "$tmp/err" && skip 'this system lets nobody bind memory'
			false
		fi
		jq -c .report.losses "$tmp/out.json" >"$tmp/$doc.losses"
	done
	cmp "$tmp/plain.losses" "$tmp/bound.losses"
}

@test "a memory that this host does not have, or nobody has: one line" {
	with_memory '.cluster.nodes[1].memory = "there"' >"$tmp/doc.json"
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/doc.json"
	one_line dlb-run "memory 'there' is NUMA node 77"
	jq -c '.cluster.nodes[1].memory = "nowhere"' "$tmp/doc.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/bad.json"
	one_line dlb-run '/cluster/nodes/1/memory' "no memory 'nowhere'"
}

@test "slow memory is priced: ops take their bytes over its bandwidth at least" {
	with_memory . >"$tmp/plain.json"
	with_memory '.cluster.nodes[1].memory = "there"' >"$tmp/slow.json"
	jq -en --slurpfile p "$tmp/plain.json" --slurpfile s "$tmp/slow.json" '
		($p[0].plan.nodes | map(.busy_s)) as $a | ($s[0].plan.nodes | map(.busy_s)) as $b |
		$b[1] > 10 * $a[1] and $b[0] <= $a[0] * 1.001'
}
