#!/usr/bin/env bats
# dlb-convert: files of other tools to a document and back, and the values stated by plans for them.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; net=$tmp/net.json; network >"$net"; }

# Five nodes with a skip edge, two accelerators, one host core; milliseconds.
network() {
	cat <<-'EOF'
	{"maxSizePerFPGA": 100, "maxFPGAs": 2, "maxCPUs": 1,
	 "nodes": [
	  {"id": 10, "name": "a", "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1, "isBackwardNode": 0, "colorClass": 1, "size": 40},
	  {"id": 20, "name": "b", "supportedOnFpga": true, "cpuLatency": 20, "fpgaLatency": 2, "isBackwardNode": false, "size": 40},
	  {"id": 30, "name": "b", "supportedOnFpga": 1, "cpuLatency": 30, "fpgaLatency": 3, "isBackwardNode": 0, "colorClass": null, "size": 40},
	  {"id": 40, "name": "d", "supportedOnFpga": 0, "cpuLatency": 0.5, "fpgaLatency": 9, "isBackwardNode": 0},
	  {"id": 50, "name": "a'", "supportedOnFpga": 1, "cpuLatency": 10, "fpgaLatency": 1, "isBackwardNode": 1, "colorClass": 1, "size": 10}],
	 "edges": [
	  {"sourceId": 10, "destId": 20, "cost": 0.25, "size": 8}, {"sourceId": 10, "destId": 30, "cost": 0.25, "size": 8},
	  {"sourceId": 10, "destId": 30, "cost": 0.25, "size": 8}, {"sourceId": 20, "destId": 20, "cost": 0.5, "size": 16},
	  {"sourceId": 20, "destId": 30, "cost": 0.5, "size": 16}, {"sourceId": 30, "destId": 40, "cost": 0.125, "size": 4},
	  {"sourceId": 40, "destId": 50, "cost": 0, "size": 0}]}
	EOF
}

# max-load and latency of a split by the rules of the published evaluators, in milliseconds.
judge() { # NETWORK SPLIT
	python3 - "$1" "$2" <<'PY'
import json, sys
net, split = (json.load(open(p)) for p in sys.argv[1:])
node = {n["id"]: n for n in net["nodes"]}
at = {v: ("cpu", i) for i, m in enumerate(split["cpus"]) for v in m["nodes"]}
at.update({v: ("acc", i) for i, m in enumerate(split["fpgas"]) for v in m["nodes"]})
assert set(at) == set(node) and sum(len(m["nodes"]) for k in split.values() for m in k) == len(node)
for d in set(at.values()):
    if d[0] == "acc":
        assert sum(node[v].get("size", 0) for v in at if at[v] == d) <= net["maxSizePerFPGA"]
        assert all(node[v]["supportedOnFpga"] for v in at if at[v] == d)
colours = {}
for v, n in node.items():
    if n.get("colorClass") is not None:
        assert colours.setdefault(n["colorClass"], at[v]) == at[v]
succ, pred, cost = {v: set() for v in node}, {v: set() for v in node}, {}
for e in net["edges"]:
    cost.setdefault(e["sourceId"], e["cost"])
    if e["sourceId"] != e["destId"]:
        succ[e["sourceId"]].add(e["destId"])
        pred[e["destId"]].add(e["sourceId"])
place = lambda v: "host" if at[v][0] == "cpu" else at[v]
load = {}
for v in node:
    load[at[v]] = load.get(at[v], 0) + node[v]["cpuLatency" if at[v][0] == "cpu" else "fpgaLatency"]
    away = {place(w) for w in succ[v]} - {place(v)}
    for p in away | ({place(v)} if away else set()):
        if p != "host":
            load[p] = load.get(p, 0) + cost[v]
print("%.12g" % max(load.values()))
PY
}

@test "help" { shows_help dlb-convert; }
@test "unknown option" { refuses_unknown_option dlb-convert; }
@test "--to: bad JSON, empty input, no such file, other version, missing section" {
	refuses_bad_json dlb-convert --to dnn-partitioning
	refuses_empty_input dlb-convert --to dnn-partitioning
	refuses_missing_file dlb-convert --to dnn-partitioning
	refuses_other_major dlb-convert --to dnn-partitioning
	refuses_missing_section dlb-convert graph --to dnn-partitioning
	dlb-convert --from dnn-partitioning "$net" >"$tmp/doc.json"
	run -2 --separate-stderr dlb-convert --to dnn-partitioning "$tmp/doc.json"
	one_line dlb-convert "'plan'"
}
@test "--from: empty input, no such file" {
	refuses_empty_input dlb-convert --from dnn-partitioning
	refuses_missing_file dlb-convert --from pipedream
}

@test "formats: listed, unknown, one way only, both or none" {
	run -0 dlb-convert --list
	[[ $output == *'dnn-partitioning'*'from, to'* ]]
	run -2 --separate-stderr dlb-convert --from onnx "$net"
	one_line dlb-convert "'onnx'" --list
	run -2 --separate-stderr dlb-convert --to pipedream "$net"
	one_line dlb-convert "can only be read"
	run -2 --separate-stderr dlb-convert "$net"
	one_line dlb-convert --from --to
	run -2 --separate-stderr dlb-convert --from pipedream --to dnn-partitioning "$net"
	one_line dlb-convert --from --to
}

@test "a network becomes graph, cluster and cost that validate" {
	dlb-convert --from dnn-partitioning "$net" >"$tmp/doc.json"
	dlb-convert --from dnn-partitioning <"$net" >"$tmp/again.json"
	validates "$tmp/doc.json"
	cmp <(jq 'del(.provenance)' "$tmp/doc.json") <(jq 'del(.provenance)' "$tmp/again.json")
	run -0 jq -c '[(.graph.ops | length), (.cluster.nodes | length), .cluster.link_model,
		[.graph.ops[].attributes.id] , ([.graph.ops[].name] | unique | length), .graph.ops[3].inputs]' "$tmp/doc.json"
	[ "$output" = '[5,3,"port",[10,20,30,40,50],5,[2]]' ]
	refuses_full_disk "$net" dlb-convert --from dnn-partitioning
}

# bats test_tags=slow
@test "the value stated is that of the published evaluators" {
	for a in dp auto single; do
		dlb-convert --from dnn-partitioning "$net" | dlb-place -a $a --objective throughput >"$tmp/plan.json" || [ $a = single ]
		[ -s "$tmp/plan.json" ] || continue
		validates "$tmp/plan.json"
		dlb-convert --to dnn-partitioning "$tmp/plan.json" >"$tmp/split.json"
		stated=$(jq '.plan.value_s * 1e3' "$tmp/plan.json")
		run -0 jq -n -e --argjson a "$stated" --argjson b "$(judge "$net" "$tmp/split.json")" '($a - $b) | fabs <= 1e-9 * $b'
		run -0 jq -e '.plan | .bound_s > 0 and .value_s >= .bound_s and .objective == "throughput"' "$tmp/plan.json"
	done
}

@test "faults of a network are named with their place" {
	fault() { # JQ TEXT...
		local filter=$1
		shift
		jq -c "$filter" "$net" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-convert --from dnn-partitioning "$tmp/bad.json"
		one_line dlb-convert bad.json "$@"
	}
	fault 'del(.nodes)' nodes
	fault '.nodes = 3' /nodes
	fault '.nodes[1].id = 10' '/nodes/1/id' 'taken'
	fault '.nodes[2].fpgaLatency = -1' '/nodes/2/fpgaLatency'
	fault '.nodes[2].cpuLatency = "x"' '/nodes/2/cpuLatency'
	fault '.nodes[0].supportedOnFpga = 7' '/nodes/0/supportedOnFpga'
	fault '.nodes[0].id = 1.5' '/nodes/0/id'
	fault '.edges[0].destId = 99' '/edges/0/destId' '99'
	fault '.edges[1].cost = 9' '/edges/1/cost' '0.25'
	fault '.edges += [{sourceId: 40, destId: 10, cost: 0}]' 'cycle'
	fault '.maxFPGAs = -1' '/maxFPGAs'
	fault '.nodes = [] | .edges = []' 'no vertices'
	fault '.maxFPGAs = 0 | .maxCPUs = 0' 'neither'
	printf '{"nodes": [}' >"$tmp/bad.json"
	run -2 --separate-stderr dlb-convert --from dnn-partitioning "$tmp/bad.json"
	one_line dlb-convert 'bad.json:1:'
}

@test "a PipeDream profile: times, sizes, edges; faults by line" {
	printf '%s\n' 'node1 -- Input0 -- forward_compute_time=0.500, backward_compute_time=0.0, activation_size=2147483648.0, parameter_size=0.0' \
		'node2 -- Conv2d(3 -- 4) -- forward_compute_time=2.0, backward_compute_time=3.0, activation_size=[1024.0; 1024.0], parameter_size=10' \
		$'\tnode1 -- node2' >"$tmp/graph.txt"
	dlb-convert --from pipedream --accelerators 3 "$tmp/graph.txt" >"$tmp/doc.json"
	validates "$tmp/doc.json"
	run -0 jq -e '(.cluster.nodes | length) == 4 and (.cost.rows | map([.output_s, .resident_bytes, .time_s.accelerator[0],
		.time_s.host[0]]) == [[1, 2147483648, 0.0005, 0.005], [2048 / 2147483648, 2058, 0.002, 0.02]])' "$tmp/doc.json"
	dlb-place -a dp "$tmp/doc.json" | jq -e '.plan.value_s == 0.0025'
	# data without a part in the costs are kept, and ids are those of the file
	jq -e '.graph.ops | map([.name, .type, .attributes.id, .attributes.backward_s, .attributes.parameter_bytes]) ==
		[["node1", "Input0", 1, 0, 0], ["node2", "Conv2d", 2, 0.003, 10]] and .[1].attributes.description == "Conv2d(3 -- 4)"' "$tmp/doc.json"
	printf 'node1 -- x -- forward_compute_time=1\n' >"$tmp/graph.txt"
	run -2 --separate-stderr dlb-convert --from pipedream "$tmp/graph.txt"
	one_line dlb-convert 'graph.txt:1' 'activation_size'
	printf '\tnode1 -- node2\n' >"$tmp/graph.txt"
	run -2 --separate-stderr dlb-convert --from pipedream "$tmp/graph.txt"
	one_line dlb-convert 'graph.txt:1' "'node1'"
}

@test "what a format cannot express is reported in one line" {
	dlb-profile -q --analytic --batch 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:4 >"$tmp/cost.json"
	dlb-place -q -a even -m 2 --replicas 2 "$tmp/cost.json" >"$tmp/replicas.json"
	dlb-place -q -a even -m 2 --schedule async "$tmp/cost.json" >"$tmp/async.json"
	dlb-place -q -a even "$tmp/cost.json" >"$tmp/plain.json"
	unsaid() { run -0 --separate-stderr dlb-convert --to "$1" "$tmp/$2.json"; [ -n "$output" ]; [ "$stderr" = "${3:+dlb-convert: $1 cannot express $3}" ]; }
	unsaid dnn-partitioning replicas '2 replicas (written is the first), 2 micro-batches and their order'
	unsaid torch-pipelining replicas '2 replicas (written is the first)'
	unsaid torch-pipelining async "that steps overlap (schedule 'async')"
	unsaid dnn-partitioning plain
	unsaid torch-pipelining plain
	unsaid rankfile replicas
	run -0 --separate-stderr dlb-convert -q --to torch-pipelining "$tmp/async.json"
	[ -z "$stderr" ]
}

@test "the step is not simulated under the port model, nor throughput without it" {
	dlb-convert --from dnn-partitioning "$net" >"$tmp/doc.json"
	run -2 --separate-stderr dlb-place --objective step "$tmp/doc.json"
	one_line dlb-place 'port model' '--objective throughput'
	planned "$tmp/planned.json"
	run -2 --separate-stderr dlb-place --objective latency "$tmp/planned.json"
	one_line dlb-place 'link_model'
	run -2 --separate-stderr dlb-place --objective speed "$tmp/doc.json"
	one_line dlb-place "'speed'"
}

@test "what does not fit is refused with the numbers, status 1; what just fits is placed" {
	jq -c '.maxCPUs = 0 | .nodes[3].supportedOnFpga = 1' "$net" >"$tmp/tight.json"	# 50, 40 and 40 of 2 x 100
	for room in 100 90; do
		jq -c --argjson m $room '.maxSizePerFPGA = $m' "$tmp/tight.json" | dlb-convert --from dnn-partitioning |
			dlb-place -a auto | jq -e '[.plan.nodes[].peak_bytes] | max <= 90'
	done
	jq -c '.maxSizePerFPGA = 79' "$tmp/tight.json" | dlb-convert --from dnn-partitioning >"$tmp/doc.json"
	run -1 --separate-stderr dlb-place -a auto "$tmp/doc.json"
	one_line dlb-place 'no plan fits: node' 'lacks' 'MB for op' 'all ops need 0.00013 MB, the nodes have 0.000158 MB'
	jq -c '.nodes[3].supportedOnFpga = 0 | .maxCPUs = 0' "$net" | dlb-convert --from dnn-partitioning >"$tmp/doc.json"
	run -1 --separate-stderr dlb-place "$tmp/doc.json"
	one_line dlb-place "no node has a kernel for op 'd'"
}

# bats test_tags=slow
@test "published networks: contiguous optima, and never worse with a search" {
	data=$DLB_TEST_DATA/placement/throughput
	[ -d "$data" ] || skip "no $data; set DLB_TEST_DATA"
	best() { jq -n -e --argjson v "$1" --argjson want "$2" --argjson slack "$3" '$v <= $want * (1 + $slack) and $v >= $want * 0.9'; }
	while read -r name dp found; do
		dlb-convert --from dnn-partitioning "$data/$name.json" >"$tmp/doc.json"
		v=$(dlb-place -a dp "$tmp/doc.json" | jq '.plan.value_s * 1e3')
		run -0 jq -n -e --argjson v "$v" --argjson want "$dp" '($v - $want) | fabs < 1e-4'
		dlb-place -a auto --effort 1 "$tmp/doc.json" >"$tmp/plan.json"
		best "$(jq '.plan.value_s * 1e3' "$tmp/plan.json")" "$found" 0.01
	done <<-'EOF'
	layer_bert24_inference 17.7899 17.7147
	layer_bert24_training 41.7458 39.7895
	layer_gnmt_inference 32.9107 31.6873
	op_bert3_inference 27.9186 21.9084
	op_bert3_training 65.3031 54.2074
	EOF
}

@test "published networks: the operator graphs' loads are proved least" {
	data=$DLB_TEST_DATA/placement/throughput
	[ -d "$data" ] || skip "no $data; set DLB_TEST_DATA"
	for name in op_bert3_inference op_bert3_training op_resnet50_inference; do
		dlb-convert --from dnn-partitioning "$data/$name.json" | dlb-place -q >"$tmp/plan.json"
		run -0 jq -e '.plan.gap >= 0 and .plan.gap < 1e-8' "$tmp/plan.json"
	done
}

@test "isolated ops cost dp little and change no optimum where there is room" {
	jq -c '.nodes += [range(100; 118) | {id: ., supportedOnFpga: 1, cpuLatency: 0.1, fpgaLatency: 0.01, isBackwardNode: 0, size: 0.1}]' \
		"$net" >"$tmp/isolated.json"
	dlb-convert --from dnn-partitioning "$net" | dlb-place -q -a dp >"$tmp/without.json"
	dlb-convert --from dnn-partitioning "$tmp/isolated.json" | timeout 20 dlb-place -a dp >"$tmp/with.json" 2>"$tmp/err"
	run ! grep 'too many ideals' "$tmp/err"
	run -0 jq -n -e --slurpfile a "$tmp/without.json" --slurpfile b "$tmp/with.json" '$a[0].plan.value_s == $b[0].plan.value_s'
}

# Runs a schedule as torch would: every action once, each stage on one rank, F before B, no rank waits for ever.
runs_to_the_end() { # CSV MICRO-BATCHES TRAINING
	python3 - "$@" <<'PY'
import csv, re, sys
rows = [[a for a in row if a] for row in csv.reader(open(sys.argv[1]))]
m, training = int(sys.argv[2]), sys.argv[3] == "true"
act = [[re.fullmatch(r"(\d+)([FB])(\d+)", a).groups() for a in row] for row in rows]
act = [[(int(s), k, int(i)) for s, k, i in row] for row in act]
stages = sorted({a[0] for row in act for a in row})
assert stages == list(range(len(stages)))
assert all(len({a[0] for a in row}) == 1 for row in act)
want = {(s, k, i) for s in stages for k in ("FB" if training else "F") for i in range(m)}
flat = [a for row in act for a in row]
assert len(flat) == len(want) and set(flat) == want
done, at, moved = set(), [0] * len(act), True
while moved:
    moved = False
    for r, row in enumerate(act):
        while at[r] < len(row):
            s, k, i = row[at[r]]
            need = [(s - 1, "F", i)] if k == "F" and s else []
            if k == "B":
                need = [(s, "F", i)] + ([(s + 1, "B", i)] if s + 1 < len(stages) else [])
            if not all(x in done for x in need):
                break
            done.add(row[at[r]]); at[r] += 1; moved = True
assert done == want
PY
}

# bats test_tags=slow
@test "torch-pipelining: schedules that run, for stages, micro-batches and schedules of all sorts" {
	for nodes in 1 2 3; do
		dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c "cpu:$nodes" >"$tmp/cost.json"
		for m in 1 4 7; do
			for schedule in 1f1b gpipe; do
				dlb-place -a proportional -m $m --schedule $schedule "$tmp/cost.json" | dlb-convert --to torch-pipelining >"$tmp/s.csv"
				runs_to_the_end "$tmp/s.csv" $m true
			done
		done
	done
	dlb-profile --analytic --inference --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place -a even -m 4 |
		dlb-convert --to torch-pipelining >"$tmp/s.csv"
	runs_to_the_end "$tmp/s.csv" 4 false
	# no pipeline: status 1 and the ops that are the reason
	dlb-place -a random --seed 2 -m 4 "$tmp/cost.json" >"$tmp/random.json"
	run -1 --separate-stderr dlb-convert --to torch-pipelining "$tmp/random.json"
	one_line dlb-convert 'of stage'
}

@test "rankfile, hostfile: ranks are nodes, cores are counted on each host" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c 'cpu/2:2 cpu:1 host cpu/4:1' >"$tmp/cost.json"
	run -0 dlb-convert --to rankfile "$tmp/cost.json"
	[ "$output" = $'rank 0=h0 slot=0-1\nrank 1=h0 slot=2-3\nrank 2=h0 slot=4\nrank 3=h1 slot=0-3' ]
	run -0 dlb-convert --to hostfile "$tmp/cost.json"
	[ "$output" = $'h0 slots=3\nh1 slots=1' ]
	# devices that are not cores: on the host's cores, or if the document has none, one core each
	dlb-costmodel -q -c 'cpu/2:1 cuda:2 cpu:1 host cuda:2' "$tmp/cost.json" >"$tmp/mixed.json"
	run -0 dlb-convert --to rankfile "$tmp/mixed.json"
	[ "$output" = $'rank 0=h0 slot=0-1\nrank 1=h0 slot=0-2\nrank 2=h0 slot=0-2\nrank 3=h0 slot=2\nrank 4=h1 slot=0\nrank 5=h1 slot=1' ]
	jq -c '.cluster.nodes[1].host = "a b"' "$tmp/cost.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-convert --to rankfile "$tmp/bad.json"
	one_line dlb-convert "'a b'"
}

@test "sbatch: a task for each node, cores of the largest, GPUs of a host, and only names of hosts" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c 'cpu/2:2 cuda:2 host cpu/4:1' >"$tmp/cost.json"
	dlb-convert --to sbatch "$tmp/cost.json" >"$tmp/job"
	bash -n "$tmp/job"
	for line in '#SBATCH --nodes=2' '#SBATCH --ntasks=5' '#SBATCH --cpus-per-task=4' '#SBATCH --gpus-per-node=2' '#SBATCH --requeue' \
		'hosts=(h0 h1)' 'host_of=(0 0 0 0 1)'; do
		grep -qxF -e "$line" "$tmp/job"
	done
	dlb-convert --to sbatch --replan "$tmp/cost.json" >"$tmp/job"
	bash -n "$tmp/job"
	for line in '#SBATCH --nodes=2' '#SBATCH --ntasks=5' '#SBATCH --no-kill' '#SBATCH --requeue' '#SBATCH --signal=B:TERM@120'; do
		grep -qxF -e "$line" "$tmp/job"
	done
	run ! grep -q srun "$tmp/job"
	jq -c '.cluster.nodes[1].host = "a$(id)"' "$tmp/cost.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-convert --to sbatch "$tmp/bad.json"
	one_line dlb-convert 'no name of a host'
}

# bats test_tags=slow
@test "smpi, simgrid: SimGrid takes as long for a step as predicted" {
	command -v smpirun >/dev/null || skip 'no smpirun (package libsimgrid-dev)'
	"$root/tests/bench/simgrid" -n 6 'cpu:1 host cpu:1' 'cpu:1 host cpu:1 host cpu:1' >"$tmp/ratios"
	cat "$tmp/ratios"
	# median, 5th and 95th percentile
	awk '$1 == "all" { found = 1; for (i = 3; i <= 5; i++) if ($i < .998 || $i > 1.002) exit 1 } END { if (!found) exit 1 }' "$tmp/ratios"
}

@test "smpi: what it cannot express is refused" {
	dlb-profile -q --analytic --batch 16 "$model" | dlb-costmodel -q -c cpu:4 >"$tmp/cost.json"
	for options in '--replicas 2' '--schedule async -m 4' '--clip-norm 1'; do
		# shellcheck disable=SC2086
		dlb-place -q $options "$tmp/cost.json" >"$tmp/doc.json"
		run -1 --separate-stderr dlb-convert --to smpi "$tmp/doc.json"
		one_line dlb-convert 'cannot express'
	done
}

@test "an option that a format has no use for is a mistake" {
	dlb-profile -q --analytic --batch 16 "$model" | dlb-costmodel -q -c cpu:2 | dlb-place -q >"$tmp/planned.json"
	for option in '--to rankfile --accelerators 3' '--to hostfile --rank 1' '--to torch-pipelining --rank 1' '--to megatron --threads 2' \
		'--from hwloc --memory 1' '--from pipedream --threads 2' '--from dnn-partitioning --hosts 2' '--from chakra --rank 1'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-convert $option "$tmp/planned.json"
		one_line dlb-convert 'has no meaning'
	done
}

@test "what is not UTF-8 is refused with its place" {
	printf 'node1 -- in -- forward_compute_time=1, backward_compute_time=0, activation_size=1, parameter_size=0\nnode2 -- a\xff -- forward_compute_time=1, backward_compute_time=0, activation_size=1, parameter_size=0\n' >"$tmp/graph.txt"
	run -2 --separate-stderr dlb-convert --from pipedream "$tmp/graph.txt"
	one_line dlb-convert "graph.txt:2: not UTF-8"
	printf 'node1 -- x -- forward_compute_time=1, activation_size=1, parameter_size=0\n\0' >"$tmp/graph.txt"
	run -2 --separate-stderr dlb-convert --from pipedream "$tmp/graph.txt"
	one_line dlb-convert "graph.txt: not a text: it has zero bytes"
	{ cat "$root/tests/data/machine.xml"; printf '\xff'; } >"$tmp/machine.xml"
	run -2 --separate-stderr dlb-convert --from hwloc "$tmp/machine.xml"
	one_line dlb-convert "not UTF-8"
}

@test "dnn-partitioning: long colours are told apart" {
	python3 - >"$tmp/net.json" <<'PY'
import json
long = "\u00e4" * 70
nodes = [{"id": i, "supportedOnFpga": 1, "cpuLatency": 1, "fpgaLatency": 1, "isBackwardNode": 0, "size": 1, "colorClass": c}
         for i, c in enumerate([long + "a", long + "b", long + "a", "x" + long])]
print(json.dumps({"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 10, "nodes": nodes, "edges": []}))
PY
	dlb-convert --from dnn-partitioning "$tmp/net.json" | jq -e '[.graph.ops[].colocate] | map(select(. != null)) | length == 1'
}

@test "hwloc: the cluster of an XML, and what is none" {
	dlb-convert --from hwloc "$root/tests/data/machine.xml" >"$tmp/there.json"
	validates "$tmp/there.json"
	cmp <(jq -S .cluster "$tmp/there.json") <(dlb-profile --cluster --topology "$root/tests/data/machine.xml" | jq -S '.cluster')
	dlb-convert --from hwloc --threads 2 <"$root/tests/data/machine.xml" | jq -e --slurpfile one "$tmp/there.json" '
		.cluster.kinds[0].threads == 2 and (.cluster.nodes | length) < ($one[0].cluster.nodes | length)'
	dlb-convert --from hwloc --threads 8 "$root/tests/data/machine.xml" | jq -e '.cluster.nodes | length == 1'
	run -2 --separate-stderr dlb-convert --from hwloc --threads 9 "$root/tests/data/machine.xml"
	one_line dlb-convert 'machine.xml' 'a node of 9 threads on a machine of 8 processing units'
	head -c 300 "$root/tests/data/machine.xml" >"$tmp/cut.xml"
	run -2 --separate-stderr dlb-convert --from hwloc "$tmp/cut.xml"
	one_line dlb-convert 'cut.xml'
	for index in '' 'os_index="4294967290"'; do	# for such a core hwloc would allocate half a gigabyte
		sed "0,/type=\"PU\" os_index=\"0\"/s//type=\"PU\" $index/" "$root/tests/data/machine.xml" >"$tmp/odd.xml"
		run -2 --separate-stderr dlb-convert --from hwloc "$tmp/odd.xml"
		one_line dlb-convert 'os_index'
	done
}

@test "megatron: layers by their names, whole, in the order of stages" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place -a even >"$tmp/cnn.json"
	run -1 --separate-stderr dlb-convert --to megatron "$tmp/cnn.json"
	one_line dlb-convert 'no layers'
	# the same plan with names of a transformer: two ops before, two layers of two, one op after
	jq -c '.graph.ops |= [to_entries[] | .value.name = (["/wte/Gather", "/wpe/Gather", "/h.0/a", "/h.0/b", "/h.1/a", "/h.1/b"][.key] // "/tail/\(.key)") | .value]
		| del(.plan.inputs, .cost.inputs, .profile.inputs)' "$tmp/cnn.json" >"$tmp/gpt.json"
	layout() { jq -c --argjson at "$1" '.plan.placement |= with_entries(.key as $k | .value = ($at[($k | tonumber)] // $at[-1]))
		| .plan |= del(.nodes, .timeline)' "$tmp/gpt.json" | dlb-convert --to megatron; }
	jq -c '.graph.ops |= [.[] | del(.colocate)]' "$tmp/gpt.json" >"$tmp/free.json" && mv "$tmp/free.json" "$tmp/gpt.json"
	jq -e '.graph.ops[0:6] | all(.phase == "forward")' "$tmp/gpt.json"
	# a transformer needs more than names
	run -1 --separate-stderr layout '[0,0,0,0,0,0,0]'
	one_line dlb-convert 'no stack of transformer layers: layer 0 has no attention'
	# nor is one layer none
	jq -c '.graph.ops |= [to_entries[] | .value.name = "/h.0/\(.key)" | .value] | del(.plan.inputs, .cost.inputs, .profile.inputs)' \
		"$tmp/cnn.json" >"$tmp/one.json"
	run -1 --separate-stderr dlb-convert --to megatron "$tmp/one.json"
	one_line dlb-convert 'no stack of transformer layers: layer 0 has no attention'
}

@test "megatron: what is no stack of transformer layers is refused, numbered blocks too" {
	local vit=$DLB_TEST_DATA/onnx/models/vit_b_16.train.op17.dyn.light.onnx bert=$DLB_TEST_DATA/onnx/models/bert_4l.train.op17.dyn.onnx
	# numbered parts of one block: mlp.0, mlp.3; in our own experts.0 ...
	[ -e "$vit" ] || vit=$own/experts/legacy.onnx bert=$own/encoder/legacy.onnx
	dlb-profile -q --analytic --batch 2 "$bert" | dlb-costmodel -c cpu:2 | dlb-place -q -a even >"$tmp/bert.json"
	[ "$(dlb-convert --to megatron "$tmp/bert.json" | tr -d '|')" = "Et*2t*2L" ]
	dlb-profile -q --analytic --batch 2 "$vit" | dlb-costmodel -c cpu:2 | dlb-place -q -a even >"$tmp/vit.json"
	run -1 --separate-stderr dlb-convert --to megatron "$tmp/vit.json"
	one_line dlb-convert 'no stack of transformer layers' 'no attention'
	# two different layers
	jq -c '(.graph.ops[] | select(.name == "/enc/layers.2/Mul_1") | .name) = "/enc/layers.3/other"
		| del(.plan.inputs, .cost.inputs, .profile.inputs)' "$tmp/bert.json" >"$tmp/odd.json"
	run -1 --separate-stderr dlb-convert --to megatron "$tmp/odd.json"
	one_line dlb-convert 'has other ops than layer 0'
}

# bats test_tags=slow
@test "megatron: GPT-2's layers, each once, embedding first and loss last" {
	local gpt=$DLB_TEST_DATA/onnx/models/gpt2_124m.train.op17.dyn.light.onnx layers=12
	[ -e "$gpt" ] || gpt=$own/gpt/legacy.onnx layers=2
	dlb-profile -q --analytic --batch 8 "$gpt" | dlb-costmodel -c cpu:4 >"$tmp/gpt.json"
	for a in proportional even single; do
		dlb-place -q -a $a -m 4 "$tmp/gpt.json" | dlb-convert --to megatron >"$tmp/layout"
		python3 - "$tmp/layout" "$layers" <<-'PY'
		import re, sys
		text = open(sys.argv[1]).read().strip()
		assert re.fullmatch(r'E(t(\*\d+)?)?(\|t(\*\d+)?)*(\|?(t(\*\d+)?)?L)', text), text
		assert sum(int(n or 1) for n in re.findall(r't(?:\*(\d+))?', text)) == int(sys.argv[2]), text
		PY
	done
}

# bats test_tags=slow
@test "variants of the published benchmark and of networks drawn at random: valid plans, the gap stated, and a reason where there can be none" {
	python3 - "$DLB_TEST_DATA/placement" <<'PY'
import copy, json, os, random, subprocess, sys

def pipe(net, objective, *options, edit=None):
    doc = subprocess.run(["dlb-convert", "--from", "dnn-partitioning"], input=json.dumps(net), capture_output=True, text=True)
    assert doc.returncode == 0, doc.stderr
    doc = doc.stdout
    if edit:
        d = json.loads(doc)
        edit(d)
        doc = json.dumps(d)
    return subprocess.run(["dlb-place", "-q", "--objective", objective, *options], input=doc, capture_output=True, text=True)

def check(name, net, objective, edit=None):
    """The plan of auto: valid, what it states is what it is, and not worse than the trivial ones."""
    values = {}
    for a in ("auto", "single", "even", "largest-first"):
        r = pipe(net, objective, "-a", a, edit=edit)
        assert r.returncode in (0, 1), (name, a, r.stderr)
        if r.returncode:
            assert r.stderr.count("\n") == 1 and "no plan fits" in r.stderr, (name, a, r.stderr)
            continue
        d = json.loads(r.stdout)
        p = d["plan"]
        values[a] = p["value_s"]
        assert p["bound_s"] <= p["value_s"] * (1 + 1e-9) and abs(p["gap"] - (p["value_s"] / p["bound_s"] - 1)) < 1e-6 * (1 + p["gap"]), name
        for k, n in enumerate(d["cluster"]["nodes"]):
            room = n.get("memory_bytes") or next(x for x in d["cluster"]["kinds"] if x["name"] == n["kind"]).get("memory_bytes", float("inf"))
            assert p["nodes"][k]["peak_bytes"] <= room, (name, a, k)
        if edit:
            continue
        split = json.loads(subprocess.run(["dlb-convert", "--to", "dnn-partitioning"], input=r.stdout, capture_output=True, text=True).stdout)
        node = {n["id"]: n for n in net["nodes"]}
        at = {v: ("cpu", i) for i, m in enumerate(split["cpus"]) for v in m["nodes"]}
        at.update({v: ("acc", i) for i, m in enumerate(split["fpgas"]) for v in m["nodes"]})
        assert set(at) == set(node) and len(split["fpgas"]) == net["maxFPGAs"], (name, a)
        assert all(node[v]["supportedOnFpga"] for v in at if at[v][0] == "acc"), (name, a)
        colours = {}
        for v, n in node.items():
            if n.get("colorClass") is not None:
                assert colours.setdefault(n["colorClass"], at[v]) == at[v], (name, a)
        if objective == "throughput":
            load, succ, cost = {}, {v: set() for v in node}, {}
            for e in net["edges"]:
                cost.setdefault(e["sourceId"], e["cost"])
                succ[e["sourceId"]].add(e["destId"])
            place = lambda v: "host" if at[v][0] == "cpu" else at[v]
            for v in node:
                load[at[v]] = load.get(at[v], 0) + node[v]["cpuLatency" if at[v][0] == "cpu" else "fpgaLatency"]
                away = {place(w) for w in succ[v]} - {place(v)}
                for q in away | ({place(v)} if away else set()):
                    if q != "host":
                        load[q] = load.get(q, 0) + cost[v]
            most = max(load.values())
            assert abs(most - p["value_s"] * 1e3) <= 1e-9 * most, (name, a, most, p["value_s"])
    for a in values:
        assert "auto" in values and values["auto"] <= values[a] * (1 + 1e-12), (name, values)
    return values.get("auto")

def drawn(n, training):
    """Ops in a row, some read by one further on; backward ones on their forward op's accelerator."""
    nodes = [{"id": i, "name": "f%d" % i, "supportedOnFpga": 1, "isBackwardNode": 0, "size": random.uniform(50, 150),
              "cpuLatency": random.uniform(20, 60), "fpgaLatency": random.uniform(1, 5)} for i in range(n)]
    pairs = [(i, j) for i in range(n) for j in (i + 1, i + random.randint(2, 4)) if j < n and (j == i + 1 or random.random() < .4)]
    if training:
        nodes += [dict(x, id=n + i, name="b%d" % i, isBackwardNode=1, size=5, fpgaLatency=2 * x["fpgaLatency"], cpuLatency=2 * x["cpuLatency"])
                  for i, x in enumerate(nodes)]
        for i in range(n):
            nodes[i]["colorClass"] = nodes[n + i]["colorClass"] = i
        pairs += [(n + j, n + i) for i, j in pairs] + [(i, n + i) for i in range(n)]
    cost = [random.uniform(.1, .4) for _ in nodes]		# of an op's output
    edges = [{"sourceId": i, "destId": j, "cost": cost[i]} for i, j in pairs]
    return {"maxFPGAs": 4, "maxCPUs": 1, "maxSizePerFPGA": 100 * n, "nodes": nodes, "edges": edges}

random.seed(1)
bases = [("throughput", "drawn, inference", drawn(16, False)), ("throughput", "drawn, training", drawn(10, True)),
         ("latency", "drawn, latency", drawn(16, False))]
for objective, file in (("throughput", "layer_bert24_inference"), ("throughput", "layer_bert24_training"), ("latency", "layer_bert24")):
    path = "%s/%s/%s.json" % (sys.argv[1], objective, file)
    if os.path.exists(path):
        bases.append((objective, file, json.load(open(path))))
random.seed(1)
for objective, file, base in bases:
    def variant(**over):
        net = copy.deepcopy(base)
        net.update(over)
        return net
    found = check(file, base, objective)
    assert found
    for cores in (0, 2, 8):
        check("%s, %d cores" % (file, cores), variant(maxCPUs=cores), objective)
    for k in (-1, 1):
        check("%s, k %+d" % (file, k), variant(maxFPGAs=base["maxFPGAs"] + k), objective)
    for times in (0.1, 10):
        net = variant()
        for e in net["edges"]:
            e["cost"] *= times
        check("%s, costs times %g" % (file, times), net, objective)
    net = variant()
    for n in random.sample(net["nodes"], len(net["nodes"]) // 4):
        colour = n.get("colorClass")
        for x in net["nodes"]:
            if x is n or (colour is not None and x.get("colorClass") == colour):
                x["supportedOnFpga"] = 0
    check(file + ", a quarter unsupported", net, objective)
    net = variant()
    net["edges"] += random.sample(net["edges"], len(net["edges"]) // 2)
    again = check(file + ", edges twice", net, objective)
    assert abs(again - found) <= 1e-12 * found
    net = variant()
    net["nodes"] += [{"id": 90000 + i, "name": "alone", "supportedOnFpga": i % 2, "cpuLatency": 3, "fpgaLatency": 0.3, "isBackwardNode": 0, "size": 1}
                     for i in range(5)]
    check(file + ", isolated ops", net, objective)
    # memory that the largest share of a plan just fills, and memory too small for all together
    plan = json.loads(pipe(variant(maxCPUs=0), objective, "-a", "auto").stdout)["plan"]
    most = max(n["peak_bytes"] for n in plan["nodes"])
    check(file + ", memory just feasible", variant(maxCPUs=0, maxSizePerFPGA=most), objective)
    total = sum(n.get("size", 0) for n in base["nodes"])
    r = pipe(variant(maxCPUs=0, maxSizePerFPGA=total / base["maxFPGAs"] * 0.999), objective, "-a", "auto")
    assert r.returncode == 1 and "lacks" in r.stderr and "node " in r.stderr and r.stderr.count("\n") == 1, r.stderr
    def unequal(d):
        d["cost"].pop("inputs")
        d["cluster"]["nodes"][0].update(speed=0.5)
        d["cluster"]["nodes"][1].update(speed=2, memory_bytes=base["maxSizePerFPGA"] * 0.75)
    check(file + ", unequal accelerators", base, objective, edit=unequal)
PY
}

# Chakra traces: chakra make FILE SEED writes one; chakra pair FILE SHAPES TYPES writes one of an op with these outputs and
# one that reads them; chakra show FILE prints the messages of a trace, one per line.
chakra() {
	PYTHONPATH=$root/tests/data python3 -B - "$@" <<'PY'
import random, struct, sys
from onnx_file import num, sub as field, varint
def number(f, v): return num(f, v) if v else b""
def attr(name, f, v): return field(10, field(1, name) + varint(f << 3) + varint(v))
def fields(s):
    i = 0
    def get():
        nonlocal i
        v = shift = 0
        while True:
            b = s[i]; i += 1
            v |= (b & 127) << shift; shift += 7
            if not b & 128:
                return v
    while i < len(s):
        tag = get()
        if tag & 7 == 0:
            yield tag >> 3, get()
        else:
            assert tag & 7 == 2, tag
            n = get()
            assert i + n <= len(s)
            yield tag >> 3, s[i:i + n]; i += n
def unpack(s):
    out = []
    while s:
        v = shift = k = 0
        while True:
            b = s[k]; k += 1; v |= (b & 127) << shift; shift += 7
            if not b & 128:
                break
        out.append(v); s = s[k:]
    return out
if sys.argv[1] == "make":
    rng = random.Random(int(sys.argv[3]))
    n = rng.randrange(1, 30)
    ids = rng.sample(range(10**9), n)
    out = [field(1, b"0.0.4") + field(2, field(1, b"pid") + varint(9 << 3) + varint(7))]
    for k, i in enumerate(ids):
        m = number(1, i) + field(2, rng.choice([b"aten::mm", b"n%d" % k, "\u00e4ther".encode(), b"x" * 40])) + number(3, rng.choice([1, 4, 4, 4, 5, 6, 7]))
        deps = rng.sample(ids[:k], min(k, rng.randrange(4)))
        cut = rng.randrange(len(deps) + 1)
        for f, d in ((4, deps[:cut]), (5, deps[cut:])):
            if d and rng.random() < 0.5:
                m += field(f, b"".join(map(varint, d)))
            else:
                m += b"".join(varint(f << 3) + varint(x) for x in d)
        m += number(6, rng.randrange(10**6)) + number(7, rng.randrange(10**5))
        if rng.random() < 0.5:
            m += field(8, field(1, b"[1]") + field(2, b"[[2, 3]]")) + field(9, field(2, b"[[64, 128], []]") + field(3, b"['Tensor(float)', 'Int']"))
        m += attr(b"is_cpu_op", 27, rng.randrange(2))
        if rng.random() < 0.3:
            m += attr(b"comm_size", 9, rng.randrange(1, 10**8))
        out.append(m)
    open(sys.argv[2], "wb").write(b"".join(varint(len(m)) + m for m in out))
elif sys.argv[1] == "pair":
    shapes, types = (x.encode() for x in sys.argv[3:5])
    out = [field(1, b"0.0.4"),
           number(1, 1) + field(2, b"a") + number(3, 4) + number(7, 5) + field(9, field(2, shapes) + field(3, types)),
           number(1, 2) + field(2, b"b") + number(3, 4) + field(5, varint(1)) + number(7, 5)]
    open(sys.argv[2], "wb").write(b"".join(varint(len(m)) + m for m in out))
else:
    s = open(sys.argv[2], "rb").read()
    first, rows = True, []
    while s:
        n = shift = k = 0
        while True:
            b = s[k]; k += 1; n |= (b & 127) << shift; shift += 7
            if not b & 128:
                break
        m, s = s[k:k + n], s[k + n:]
        assert len(m) == n
        one, rest = {4: [], 5: []}, []
        for f, v in fields(m):
            if first or f > 7:
                rest.append((f, v))
            elif f in (4, 5):
                one[f] += unpack(v) if isinstance(v, bytes) else [v]
            else:
                one[f] = v
        rows.append((0 if first else 1, one.get(1, 0), sorted((str(k), v) for k, v in one.items()), rest))
        first = False
    for r in sorted(rows, key=lambda r: r[:2]):
        print(r)
PY
}

# bats test_tags=slow
@test "chakra: traces come back as they were" {
	for seed in 1 2 3 4 5 6 7 8 9 10; do
		chakra make "$tmp/t.et" $seed
		dlb-convert --from chakra "$tmp/t.et" >"$tmp/t.json"
		[ $seed != 1 ] || validates "$tmp/t.json"
		dlb-place -a auto --objective throughput "$tmp/t.json" >"$tmp/planned.json"
		for doc in t planned; do
			dlb-convert --to chakra "$tmp/$doc.json" >"$tmp/back.et"
			diff <(chakra show "$tmp/t.et") <(chakra show "$tmp/back.et")
		done
	done
	jq -e '[.cost.rows[].time_s | [.accelerator, .host] | map(. == null)] | all(. == [true, false] or . == [false, true])' "$tmp/t.json"
}

@test "chakra: the bytes of an op's outputs, by the types of their elements" {
	bytes() { # SHAPES TYPES BYTES
		chakra pair "$tmp/pair.et" "$1" "$2"
		[ "$(dlb-convert --from chakra "$tmp/pair.et" | jq '.graph.tensors[0].size_bytes')" = "$3" ] || { echo "$1 $2"; return 1; }
	}
	bytes '[[64, 128], []]' "['Tensor(float)', 'Int']" $((64 * 128 * 4))
	bytes '[[3, 5], [7], []]' "['Tensor(c10::BFloat16)', 'Tensor(double)', 'Tensor(bool)']" $((3 * 5 * 2 + 7 * 8 + 1))
	bytes '((9,), (11,), (13,))' '("Tensor(c10::Half)", "Tensor(long int)", "Tensor(unsigned char)")' $((9 * 2 + 11 * 8 + 13))
	bytes '[[3], [5], [7]]' "['Tensor(c10::quint8)', 'Tensor(c10::qint32)', 'Tensor(c10::complex<float>)']" $((3 + 5 * 4 + 7 * 8))
	# a name may end the text
	bytes '[[5], [6], [7]]' "['Tensor float', 'Tensor int', 'Tensor double']" $((5 * 4 + 6 * 4 + 7 * 8))
	# of no known type, or without elements
	bytes '[[5], [6]]' "['Tensor(nullptr (uninitialized))', 'Tensor(bool)']" 6
	bytes '[[5, 0], [6]]' "['Tensor(float)', 'Tensor']" 0
}

@test "chakra: what is no trace, or a part of one" {
	chakra make "$tmp/t.et" 3
	for n in 3 30 100; do
		head -c $n "$tmp/t.et" >"$tmp/cut.et"
		run -2 --separate-stderr dlb-convert --from chakra "$tmp/cut.et"
		one_line dlb-convert 'cut.et'
	done
	run -2 --separate-stderr dlb-convert --from chakra "$model"
	one_line dlb-convert
	run -2 --separate-stderr dlb-convert --to chakra <(dlb-convert --from dnn-partitioning "$net")
	one_line dlb-convert "'plan'"
}

# fit together PLAN NODES: in the traces of all nodes, every send has its receive, and each op is on its planned node
fit_together() {
	for ((r = 0; r < $2; r++)); do dlb-convert --to chakra --rank $r "$1" >"$tmp/$r.et"; chakra show "$tmp/$r.et" >"$tmp/$r.txt"; done
	python3 - "$tmp" "$1" "$2" <<-'PY'
	import ast, json, sys
	d = json.load(open(sys.argv[2]))
	replicas = d["plan"].get("replicas", [])
	sent, got, n_comp, sums = set(), set(), 0, {}
	for r in range(int(sys.argv[3])):
	    rows = [ast.literal_eval(x) for x in open("%s/%d.txt" % (sys.argv[1], r))][1:]
	    ids = [x[1] for x in rows]
	    assert len(set(ids)) == len(ids)
	    for _, i, f, rest in rows:
	        f = dict(f)
	        assert all(x in ids for x in f["4"] + f["5"])
	        text = [v for k, v in rest if k == 10]
	        if f["3"] == 4:
	            n_comp += 1
	        elif f["3"] == 7:
	            assert f["5"] and any(b"comm_size" in v for v in text)
	            sums.setdefault(r, set()).add(f["2"])
	        else:
	            key = tuple(sorted(v for v in text if b"comm_" in v))
	            assert len(key) == 4
	            where = [row for row in replicas if r in row]
	            (sent if f["3"] == 5 else got).add(key + (str(where),))
	assert sent and sent == got
	assert n_comp == sum(len(n["order"]) for n in d["plan"]["nodes"])
	n_updates = sum(o["phase"] == "update" for o in d["graph"]["ops"])
	for row in replicas:		# every update is preceded by one sum in each replica, with the same node of the others
	    assert sum(len(sums.get(n, ())) for n in row if n is not None) == n_updates
	    assert [sums.get(n) for n in row] == [sums.get(n) for n in replicas[0]]
	assert replicas or not sums
	PY
}

# bats test_tags=slow
@test "chakra: the traces of a plan's nodes fit together" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:3 | dlb-place -a proportional -m 3 >"$tmp/plan.json"
	fit_together "$tmp/plan.json" 3
	run -2 --separate-stderr dlb-convert --to chakra --rank 3 "$tmp/plan.json"
	one_line dlb-convert 'no node 3'
	# replicas: messages within each, and sums between them
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:4 | dlb-place -a proportional -m 2 --replicas 2 >"$tmp/plan.json"
	fit_together "$tmp/plan.json" 4
}

@test "a PipeDream profile: ids, names, white space; each fault by its line" {
	layer() { printf '%s -- %s -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=8.0, parameter_size=0.0%s\n' "$1" "$2" "${3:-}"; }
	ids() { dlb-convert --from pipedream "$tmp/graph.txt" | jq -c '[.graph.ops[] | [.name, .type, .attributes.id, .inputs]]'; }
	# empty lines, spaces at the ends, an edge twice, one to itself
	{ layer node30 'A(1)' $' \t\r'; printf '  \n\r\n'; layer node7 'B_2' $'\r'; printf '\tnode30 -- node7 \r\n  node30 -- node7\n\tnode7 -- node7\n'; } >"$tmp/graph.txt"
	[ "$(ids)" = '[["node30","A",30,[]],["node7","B_2",7,[0]]]' ]
	# all names must be of the form nodeN, and all numbers differ: else ids count from 0
	for second in nodeB node node3x other7 node07 Node8 node12345678901234567; do
		{ layer node7 A; layer "$second" '(1)'; } >"$tmp/graph.txt"
		[ "$(ids)" = "[[\"node7\",\"A\",0,[]],[\"$second\",\"Layer\",1,[]]]" ] || { ids; return 1; }
	done
	{ layer node7 A; layer node123456789012345 B; } >"$tmp/graph.txt"
	[ "$(ids)" = '[["node7","A",7,[]],["node123456789012345","B",123456789012345,[]]]' ]
	fault() { # LINE TEXT...
		local line=$1
		shift
		run -2 --separate-stderr dlb-convert --from pipedream "$tmp/graph.txt"
		one_line dlb-convert "graph.txt:$line: " "$@"
	}
	{ layer node1 A; layer node2 B; layer node1 C; } >"$tmp/graph.txt"
	fault 3 "'node1' is given twice"
	{ layer node1 A; printf '\tnode1 -- node2\n'; layer node2 B; } >"$tmp/graph.txt"
	fault 2 "no node 'node2' above"
	{ layer node1 A; printf '\tnode0 -- node1\n'; } >"$tmp/graph.txt"
	fault 2 "no node 'node0' above"
	printf '\nnode1\n' >"$tmp/graph.txt"
	fault 2 "' -- ' is expected"
	printf 'node1 -- forward_compute_time=1\n' >"$tmp/graph.txt"
	fault 1 'NAME -- DESCRIPTION -- NUMBERS'
	for numbers in 'forward_compute_time=-1, activation_size=1, parameter_size=1' 'forward_compute_time=1, activation_size=nan, parameter_size=1' \
		'forward_compute_time=1, activation_size=[1; x], parameter_size=1' 'forward_compute_time=1, activation_size=1, parameter_size=' \
		'forward_compute_time=2e18, activation_size=1, parameter_size=1' 'forward_compute_time=1, backward_compute_time=-1, activation_size=1, parameter_size=1'; do
		printf 'node1 -- A -- %s\n' "$numbers" >"$tmp/graph.txt"
		fault 1 'a number, not negative, is expected'
	done
	for numbers in 'forward_compute_time=1, activation_size=1' 'forward_compute_times=1, activation_size=1, parameter_size=1' 'activation_size=1, parameter_size=1'; do
		printf 'node1 -- A -- %s\n' "$numbers" >"$tmp/graph.txt"
		fault 1 'no '
	done
	printf 'node1 -- A -- forward_compute_time=1e18, activation_size=[1;2, 3 ], parameter_size=0\n' >"$tmp/graph.txt"
	[ "$(dlb-convert --from pipedream "$tmp/graph.txt" | jq '.cost.rows[0] | .resident_bytes == 6 and .time_s.accelerator == [1e15]')" = true ]
}

@test "the machine of a file that names none: accelerators, host cores, memory, bandwidth, and their defaults" {
	printf 'node1 -- A -- forward_compute_time=1, activation_size=1048576, parameter_size=0\n' >"$tmp/graph.txt"
	chakra pair "$tmp/pair.et" '[[262144]]' "['Tensor(float)']"
	for format in pipedream:graph.txt chakra:pair.et; do
		machine() { dlb-convert --from ${format%:*} "$@" "$tmp/${format#*:}" | jq -c '[.cluster.nodes | group_by(.kind)[] | [.[0].kind, length]],
			[.cluster.kinds[].memory_bytes], .cost.rows[0].output_s' | paste -sd' '; }
		[ "$(machine)" = '[["accelerator",6],["host",1]] [17179869184,null] 0.00048828125' ] || { machine; return 1; }
		[ "$(machine --accelerators 2 --hosts 3 --memory 1000 --bandwidth 1048576)" = '[["accelerator",2],["host",3]] [1000,null] 1' ] || { machine --accelerators 2 --hosts 3 --memory 1000 --bandwidth 1048576; return 1; }
	done
}

@test "dnn-partitioning: what may be left out, colours, ids, costs that agree" {
	get() { jq -c "$1" "$net" | dlb-convert --from dnn-partitioning | jq -c "$2"; }
	[ "$(get . '[[.graph.ops[].colocate], .graph.dtype, .graph.batch, .graph.training, [.graph.tensors[].dtype]]')" = '[[null,null,null,null,0],"f32",1,true,["f32","f32","f32","f32"]]' ]
	# a number and the text of it are two colours, and so are two numbers
	[ "$(get '.nodes[0].colorClass = "1" | .nodes[1].colorClass = 2 | .nodes[2].colorClass = "1"' '[.graph.ops[].colocate]')" = '[null,null,0,null,null]' ]
	[ "$(get 'del(.nodes[0].supportedOnFpga, .nodes[4].isBackwardNode, .nodes[0].name, .nodes[0].size)' \
		'[.graph.ops[0].name, [.graph.ops[].phase] == ["forward", "forward", "forward", "forward", "forward"], .cost.rows[0].time_s, .cost.rows[0].resident_bytes, .graph.training]')" = \
		'["#10",true,{"accelerator":[0.001],"host":[0.01]},0,false]' ]
	[ "$(get '.nodes[0].name = "b"' '[.graph.ops[].name]')" = "[\"b\",\"b#20\",\"b#30\",\"d\",\"a'\"]" ]
	# seconds and bytes of an output are those of its first edge; the others may differ by 1e-6 ms
	[ "$(get '.edges[0].size = 12 | .edges[1].cost = 0.2500009' '[.cost.rows[0].output_s, .graph.tensors[0].size_bytes, .cost.rows[3].time_s, .cost.rows[2].output_s]')" = \
		'[0.00025,12,{"accelerator":null,"host":[0.0005]},0.000125]' ]
	run -2 --separate-stderr dlb-convert --from dnn-partitioning <(jq '.edges[1].cost = 0.250002' "$net")
	one_line dlb-convert '/edges/1/cost' '0.250002 ms here, 0.25 ms in an edge before'
	[ "$(get '.nodes[0].id = 9007199254740992 | .edges[0:3][].sourceId = 9007199254740992.0 | .nodes[1].id = -3 | .edges[0].destId = -3 | .edges[3:5][].sourceId = -3 | .edges[3].destId = -3' \
		'[.graph.ops[].attributes.id]')" = '[9007199254740992,-3,30,40,50]' ]
	# phases are kept only if no backward op feeds a forward one
	[ "$(get . '[.graph.ops[].phase == "backward"]')" = '[false,false,false,false,true]' ]
	[ "$(get '.nodes[1].isBackwardNode = 1' '[.graph.ops[].phase == "backward"]')" = '[false,false,false,false,false]' ]
	[ "$(get '.nodes[3].isBackwardNode = 1' '[.graph.tensors[].kind]')" = '["activation","activation","activation","gradient"]' ]
	# ops are in an order of their own: each has its vertex's times
	[ "$(get '.nodes |= reverse | .nodes |= map(.cpuLatency = .id | del(.colorClass))' \
		'[.cost.rows[] | .ops[] as $op | [$op, .time_s.host[0]]] as $host | [.graph.ops[] | .id as $i | [.attributes.id, ($host[] | select(.[0] == $i)[1])]] | all(.[0] == .[1] * 1e3) and length == 5')" = true ]
	fault() { # JQ TEXT
		run -2 --separate-stderr dlb-convert --from dnn-partitioning <(jq -c "$1" "$net")
		one_line dlb-convert "$2"
	}
	fault '.nodes[1] = 5' '/nodes/1: an object'
	fault '.edges[2] = []' '/edges/2: an object'
	fault '.nodes[1].colorClass = []' '/nodes/1/colorClass: a colour is a number or a string'
	fault '.edges[1].sourceId = 11' '/edges/1/sourceId: no node with the id 11'
	fault '.edges[1].cost = -1' '/edges/1/cost'
	fault '.edges[1].size = -1' '/edges/1/size'
	fault '.nodes[1].size = -1' '/nodes/1/size'
	fault '.maxCPUs = 1.5' '/maxCPUs: an integer is expected'
	fault '.maxSizePerFPGA = -1' '/maxSizePerFPGA'
	fault 'del(.edges)' edges
	fault '[.]' 'an object is expected'
	fault '.nodes[1].isBackwardNode = "x"' '/nodes/1/isBackwardNode'
}

@test "dnn-partitioning: the split lists the ids on each node; ops without one, their numbers" {
	jq -c '.maxCPUs = 2 | .nodes[1].id = 7 | .edges[0].destId = 7 | .edges[3:5][].sourceId = 7 | .edges[3].destId = 7 | .nodes |= map(del(.colorClass))' "$net" |
		dlb-convert --from dnn-partitioning | dlb-place -q -a single | jq -c 'del(.plan.hash, .plan.inputs) | .plan.placement = {"0": 3, "1": 1, "2": 0, "3": 2, "4": 1}' >"$tmp/plan.json"
	[ "$(dlb-convert --to dnn-partitioning "$tmp/plan.json")" = '{"fpgas":[{"nodes":[30]},{"nodes":[7,50]}],"cpus":[{"nodes":[40]},{"nodes":[10]}]}' ]
	planned "$tmp/cpu.json"
	dlb-convert -q --to dnn-partitioning "$tmp/cpu.json" >"$tmp/split.json"
	jq -e --slurpfile d "$tmp/cpu.json" '($d[0].plan.placement | to_entries | map([(.key | tonumber), .value])) as $at |
		.cpus == [] and [.fpgas[].nodes] == [[$at[] | select(.[1] == 0)[0]], [$at[] | select(.[1] == 1)[0]]]' "$tmp/split.json"
}

@test "rankfile, hostfile, sbatch: nodes of hosts in turn" {
	dlb-profile -q --analytic --batch 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c 'cpu/2:1 cuda:1 cpu/3:1 host cpu/4:1 cuda:1 cpu:1' |
		jq -c '.cluster.nodes |= [to_entries[] | .value.host = "n\((.key + 1) % 2)" | .value]' >"$tmp/turns.json"
	[ "$(jq -c '[.cluster.nodes[] | .host, .kind]' "$tmp/turns.json")" = '["n1","cpu/2","n0","cuda","n1","cpu/3","n0","cpu/4","n1","cuda","n0","cpu"]' ]
	run -0 dlb-convert --to hostfile "$tmp/turns.json"
	[ "$output" = $'n1 slots=3\nn0 slots=3' ]
	run -0 dlb-convert --to rankfile "$tmp/turns.json"
	[ "$output" = $'rank 0=n1 slot=0-1\nrank 1=n0 slot=0-4\nrank 2=n1 slot=2-4\nrank 3=n0 slot=0-3\nrank 4=n1 slot=0-4\nrank 5=n0 slot=4' ]
	dlb-convert --to sbatch "$tmp/turns.json" >"$tmp/job"
	for line in '# A plan for 6 nodes on 2 hosts, run by Slurm: task i is node i of the plan.' '#SBATCH --nodes=2' '#SBATCH --ntasks=6' \
		'#SBATCH --cpus-per-task=4' '#SBATCH --gpus-per-node=1' 'hosts=(n1 n0)' 'host_of=(0 1 0 1 0 1)'; do
		grep -qxF -e "$line" "$tmp/job"
	done
	# on a host without cores for its ranks one core each, from 0
	run -0 dlb-convert --to rankfile <(dlb-costmodel -q -c 'cuda:3 host cuda:2' "$tmp/turns.json")
	[ "$output" = $'rank 0=h0 slot=0\nrank 1=h0 slot=1\nrank 2=h0 slot=2\nrank 3=h1 slot=0\nrank 4=h1 slot=1' ]
	# the most GPUs of a host, not of the last; none, no line; one is singular
	jq -c '.cluster.nodes |= [to_entries[] | .value.host = (["a", "a", "a", "b", "a", "b"][.key]) | .value]' "$tmp/turns.json" | dlb-convert --to sbatch >"$tmp/job"
	grep -qxF '#SBATCH --gpus-per-node=2' "$tmp/job"
	dlb-profile -q --analytic --batch 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:1 >"$tmp/one.json"
	dlb-convert --to sbatch "$tmp/one.json" >"$tmp/job"
	for line in '# A plan for 1 node on 1 host, run by Slurm: task i is node i of the plan.' '#SBATCH --cpus-per-task=1' 'hosts=(h0)' 'host_of=(0)'; do
		grep -qxF -e "$line" "$tmp/job"
	done
	run ! grep gpus "$tmp/job"
	for host in 'a b' $'a\tb' 'a=b' 'a#b' ''; do
		jq -c --arg host "$host" '.cluster.nodes[0].host = $host' "$tmp/one.json" >"$tmp/bad.json"
		for format in hostfile rankfile sbatch; do
			run -2 --separate-stderr dlb-convert --to $format "$tmp/bad.json"
			[ -z "$output" ]
			[ "${#stderr_lines[@]}" -eq 1 ]
		done
	done
}

@test "smpi, simgrid: the actions are the plan's, each message has its receive, and a route has the links' latency and bandwidth" {
	dlb-profile -q --analytic --batch 16 "$model" | dlb-costmodel -q -c 'cpu:2 host cpu:1' >"$tmp/cost.json"
	dlb-place -q -a proportional -m 3 "$tmp/cost.json" >"$tmp/plan.json"
	dlb-convert --to smpi "$tmp/plan.json" >"$tmp/actions"
	dlb-convert --to simgrid "$tmp/plan.json" >"$tmp/platform.xml"
	python3 - "$tmp" <<-'END'
		import collections, json, math, sys, xml.etree.ElementTree as xml
		d = json.load(open(sys.argv[1] + "/plan.json"))
		plan, tensors, c = d["plan"], d["graph"]["tensors"], d["cluster"]
		at = {int(k): v for k, v in plan["placement"].items()}
		rows = [l.split() for l in open(sys.argv[1] + "/actions")]
		nodes = len(c["nodes"])
		assert [r[0] for r in rows if r[1] == "init"] == [r[0] for r in rows if r[1] == "finalize"] == ["0", "1", "2"]
		sent, got, waits, computed = collections.Counter(), collections.Counter(), collections.Counter(), collections.Counter()
		for r in rows:
		    if r[1] == "isend":
		        sent[r[0], r[2], r[3], r[4]] += 1
		    elif r[1] == "irecv":
		        got[r[2], r[0], r[3], r[4]] += 1
		    elif r[1] == "wait":
		        assert r[0] in r[2:4]
		        waits[tuple(r[2:5]) + (r[0],)] += 1
		    elif r[1] == "compute":
		        computed[int(r[0])] += float(r[2]) / 1e9
		assert sent and sent == got and max(sent.values()) == 1, (sent, got)
		assert waits == collections.Counter(x for a, b, tag, _ in sent for x in ((a, b, tag, a), (a, b, tag, b))), waits
		# every tensor that another node reads is sent once for each micro-batch, of 6, 5 and 5 samples; over a link in the
		# host its sender copies it before, which takes time: no bytes
		makes = {t: o["id"] for o in d["graph"]["ops"] for t in o["outputs"] if t is not None}
		want = collections.Counter()
		for t, o in makes.items():
		    if tensors[t]["kind"] in ("activation", "gradient"):
		        for to in {at[r["id"]] for r in d["graph"]["ops"] if t in r["inputs"]} - {at[o]}:
		            for n in (6, 5, 5):
		                bytes = 4 * n * math.prod(tensors[t]["shape"][1:])
		                want[str(at[o]), str(to), str(bytes if c["nodes"][at[o]]["host"] != c["nodes"][to]["host"] else 0)] += 1
		assert want == collections.Counter((a, b, bytes) for a, b, tag, bytes in sent), (want, sent)
		for i in range(nodes):
		    assert computed[i] >= plan["nodes"][i]["busy_s"] * (1 - 1e-9), (i, computed[i])
		    assert any(int(a) == i and bytes == "0" for a, b, tag, bytes in sent) or abs(computed[i] / plan["nodes"][i]["busy_s"] - 1) < 1e-9, (i, computed[i])
		zone = xml.parse(sys.argv[1] + "/platform.xml").getroot().find("zone")
		assert [h.get("id") for h in zone.iter("host")] == ["n0", "n1", "n2"] and {h.get("speed") for h in zone.iter("host")} == {"1e+09f"}
		link = {l.get("id"): l for l in zone.iter("link")}
		assert len(link) == len(list(zone.iter("link")))
		routes = {(r.get("src"), r.get("dst")): [x.get("id") for x in r] for r in zone.iter("route")}
		assert set(routes) == {("n%d" % a, "n%d" % b) for a in range(nodes) for b in range(nodes) if a != b}
		cl = {x["name"]: x for x in c["links"]}
		group = {x["name"]: x for x in c["groups"]}
		used = collections.Counter(x for r in routes.values() for x in r)
		for (a, b), ids in routes.items():
		    g, h = (group[c["nodes"][int(x[1:])]["group"]] for x in (a, b))
		    way = [cl[g["inside"]]] if g is h else [cl[g["up"]], cl[h["up"]]]
		    latency = sum(float(link[i].get("latency")[:-1]) for i in ids)
		    assert abs(latency - sum(x["latency_s"] for x in way)) < 1e-15, (a, b, latency)
		    direct = [i for i in ids if used[i] == 1 and link[i].get("sharing_policy") == "FATPIPE"]
		    assert len(direct) == 1 and len(ids) == 1 + len(way) and link[direct[0]].get("bandwidth") == "1e18Bps"
		    assert sorted(float(link[i].get("bandwidth")[:-3]) for i in ids if i not in direct) == sorted(x["bandwidth_Bps"] for x in way)
		assert set(used) == set(link)
	END
	run -2 --separate-stderr dlb-convert --to simgrid <(jq -c '.cluster.nodes = [range(1025) as $i | .cluster.nodes[2] | .id = $i | .device = $i]' "$tmp/cost.json")
	one_line dlb-convert '/cluster/nodes' 'at most 1024 nodes'
}

@test "torch-pipelining: ranks by the nodes' ids, stages by the forward order" {
	dlb-profile -q --analytic --batch 16 "$model" | dlb-costmodel -q -c cpu:3 | dlb-place -q -a even -m 3 >"$tmp/plan.json"
	at() { jq -c --argjson at "$1" 'del(.plan.nodes, .plan.timeline, .plan.hash) | .plan.placement |= with_entries(.value = $at[.value])' "$tmp/plan.json" |
		dlb-convert --to torch-pipelining | paste -sd' '; }
	dlb-convert --to torch-pipelining "$tmp/plan.json" >"$tmp/s.csv"
	runs_to_the_end "$tmp/s.csv" 3 true
	read -rd '' first second third <"$tmp/s.csv" || true
	# 1F1B of three stages: the first begins with three forward parts, the last alternates
	[ "$first" = 0F0,0F1,0F2,0B0,0B1,0B2 ]
	[ "$third" = 2F0,2B0,2F1,2B1,2F2,2B2 ]
	[ "$(at '[2,0,1]')" = "$second $third $first" ]
	[ "$(at '[1,2,0]')" = "$third $first $second" ]
	# a node without ops is no rank
	[ "$(at '[2,2,0]')" = '1F0,1B0,1F1,1B1,1F2,1B2 0F0,0F1,0B0,0F2,0B1,0B2' ]
	[ "$(at '[1,1,1]')" = 0F0,0B0,0F1,0B1,0F2,0B2 ]
	# the last forward op on the first node, or a node of backward ops alone: status 1
	other() { jq -c "(.graph.ops | map(select(.phase == \"forward\").id) | max) as \$last | del(.plan.nodes, .plan.timeline, .plan.hash, .plan.inputs, .cost.inputs, .profile.inputs) |
		.graph.ops |= map(del(.colocate)) | $1" "$tmp/plan.json" | dlb-convert --to torch-pipelining; }
	run -1 --separate-stderr other '.plan.placement["\($last)"] = 0'
	one_line dlb-convert "of stage 2 feeds op 'loss' of stage 0"
	run -1 --separate-stderr other '.plan.placement |= with_entries(if (.key | tonumber) > $last and .value == 2 then . else .value = 0 end)'
	one_line dlb-convert 'node 2 has backward ops and no forward op: it is no stage'
	run -1 --separate-stderr other '.plan.placement[] |= [2, 1, 0][.] | .plan.placement["0"] = 0'
	one_line dlb-convert 'stages of torch pass on to the next'
}

@test "hwloc: an os_index has one to six digits" {
	for index in 1234567 '' 12345678901; do
		sed "s/type=\"PU\" os_index=\"7\"/type=\"PU\" os_index=\"$index\"/" "$root/tests/data/machine.xml" >"$tmp/odd.xml"
		run -2 --separate-stderr dlb-convert --from hwloc "$tmp/odd.xml"
		one_line dlb-convert 'no os_index of one to six digits'
		sed "s/type=\"NUMANode\" os_index=\"1\"/type=\"NUMANode\" os_index=\"$index\"/" "$root/tests/data/machine.xml" >"$tmp/odd.xml"
		run -2 --separate-stderr dlb-convert --from hwloc "$tmp/odd.xml"
		one_line dlb-convert 'no os_index of one to six digits'
	done
	# other objects need none
	sed 's/type="Core" os_index="[0-9]*"/type="Core"/; s/type="Package" os_index="[0-9]*"/type="Package"/' "$root/tests/data/machine.xml" >"$tmp/few.xml"
	[ "$(dlb-convert --from hwloc "$tmp/few.xml" | jq '.cluster.nodes | length')" = 8 ]
	sed 's/type="PU" os_index="7"/type="PU" os_index="654321"/' "$root/tests/data/machine.xml" >"$tmp/few.xml"
	[ "$(dlb-convert --from hwloc "$tmp/few.xml" | jq '.cluster.nodes | length')" = 8 ]
}

@test "megatron: which layers are stages of which node" {
	dlb-profile -q --analytic --batch 2 "$own/encoder/legacy.onnx" | dlb-costmodel -q -c cpu:4 | dlb-place -q -a single |
		jq -c '.graph.ops |= map(del(.colocate)) | .plan |= del(.nodes, .timeline, .hash) | del(.plan.inputs, .cost.inputs, .profile.inputs)' >"$tmp/enc.json"
	# nodes of the embedding, of four layers, of the loss; MORE: a further change
	layout() { # NODES [MORE]
		jq -c --argjson at "$1" "([.graph.ops[] | select(.name | test(\"layers\")) | .id] | min) as \$first | 
			.graph.ops as \$ops | .plan.placement |= with_entries((.key | tonumber) as \$i | .value = (\$ops[\$i] |
			if .phase != \"forward\" then 0 elif (.name | test(\"layers.\")) then \$at[1 + (.name | capture(\"layers.(?<n>[0-9])\").n | tonumber)]
			elif \$i < \$first then \$at[0] else \$at[5] end)) | ${2:-.}" "$tmp/enc.json" | dlb-convert -q --to megatron
	}
	is() { [ "$(layout "$1" "${3:-}")" = "$2" ] || { layout "$1" "${3:-}"; return 1; }; }
	is '[0,0,0,0,0,0]' 'Et*4L'
	is '[0,0,1,1,1,1]' 'Et|t*3L'
	is '[0,1,1,2,3,3]' 'E|t*2|t|tL'
	is '[3,3,2,2,1,0]' 'Et|t*2|t|L'
	is '[0,0,1,0,1,1]' 'Et|t|t|tL'
	is '[1,1,0,0,1,1]' 'Et|t*2|tL'
	run -1 --separate-stderr layout '[0,0,1,0,2,2]'
	one_line dlb-convert "node 2 has stages 3 apart, which Megatron's 3 ranks cannot"
	run -1 --separate-stderr layout '[0,0,1,1,2,1]'
	one_line dlb-convert "node 1 has stages 3 apart, which Megatron's 3 ranks cannot"
	# the node with most of a layer's FLOP has it
	is '[0,0,0,0,0,0]' 'Et|t|t*2L' '.graph.ops as $ops | .plan.placement |= with_entries(if ($ops[.key | tonumber].name | test("layers.1/self_attn/(Softmax|Dropout|MatMul)")) then .value = 1 else . end)'
	is '[0,0,0,0,0,0]' 'Et*4L' '.graph.ops as $ops | .plan.placement |= with_entries(if ($ops[.key | tonumber].name | test("layers.1/self_attn/(Softmax|Dropout)$")) then .value = 1 else . end)'
	# numbers: between a dot and a slash or another dot, behind a name
	is '[0,0,1,1,1,1]' 'Et|t*3L' '.graph.ops[].name |= (sub("^/enc/layers.(?<n>[0-9])/"; "enc.\(.n).x/"))'
	is '[0,0,1,1,1,1]' 'Et|t*3L' '.graph.ops[0].name |= "/.9/a.100000/b.7"'
	for name in '/enc/layers.\(.n | tonumber | if . == 1 then 5 else . end)/' '/enc/layers.\(.n | tonumber * 2)/'; do
		run -1 --separate-stderr layout '[0,0,1,1,1,1]' ".graph.ops[].name |= sub(\"^/enc/layers.(?<n>[0-9])/\"; \"$name\")"
		one_line dlb-convert 'there is no layer 1 below layer'
	done
	# one product of matrices is none
	run -1 --separate-stderr layout '[0,0,0,0,0,0]' '.graph.ops |= map(if .phase == "forward" and (.type == "Gemm" or .type == "Product") and (.name | test("layers.0/(self|linear1)")) then .name = "/x\(.id)" else . end)'
	one_line dlb-convert 'no stack of transformer layers'
}

# bats test_tags=slow
@test "chakra: what of a trace becomes what, and what an edit of the graph changes in it" {
	PYTHONPATH=$root/tests/data python3 -B - "$tmp/t.et" <<-'END'
		import struct, sys
		from onnx_file import num as number, sub as field, varint
		attr = lambda name, f, v: field(10, field(1, name) + number(f, v))
		out = [field(1, b"0.0.4"),
		       # id 0, as proto3 writes it; a name that is no UTF-8; fields of fixed size, which are kept
		       field(2, b"\xff") + number(3, 4) + number(7, 3) + varint(30 << 3 | 1) + struct.pack("<d", 2.5) + varint(31 << 3 | 5) + b"abcd" + attr(b"comm_size", 9, 4096),
		       # both lists, packed and not, itself among them; the size is that stated, whatever the shapes say
		       number(1, 9) + field(2, b"b") + number(3, 5) + number(4, 0) + field(5, varint(9) + varint(0)) + number(6, 77) + number(7, 5)
		       + field(9, field(2, b"[[2]]") + field(3, b"['Tensor(float)']")) + attr(b"comm_size", 9, 12) + attr(b"is_cpu_op", 27, 1),
		       # other names than is_cpu_op and comm_size have no meaning, nor has a size of 2^53
		       number(1, 2**52) + field(2, b"c") + number(3, 4) + number(5, 9) + number(5, 0) + number(7, 2**53) + attr(b"is_cpu_opx", 27, 1) + attr(b"comm_siz", 9, 7)
		       + attr(b"comm_size", 9, 2**53) + field(9, field(2, b"[[2]]") + field(3, b"['Tensor(float)']")),
		       number(1, 3) + number(3, 4) + number(4, 2**52) + attr(b"is_cpu_op", 27, 0)]
		open(sys.argv[1], "wb").write(b"".join(varint(len(m)) + m for m in out))
	END
	dlb-convert --from chakra "$tmp/t.et" >"$tmp/t.json"
	jq -e '[.graph.ops[] | [.name, .attributes.id, .inputs]] == [["#0", 0, []], ["b", 9, [0]], ["c", 4503599627370496, [0, 1]], ["#3", 3, [2]]] and
		[.graph.tensors[].size_bytes] == [4096, 12, 8] and .cost.rows[0].output_s == 4096 / 2147483648 and ([.cost.rows[] | [.ops, .time_s]] ==
			[[[0], {accelerator: [3e-6], host: null}], [[1], {accelerator: null, host: [5e-6]}], [[2], {accelerator: [9007199254.740992], host: null}],
			[[3], {accelerator: [0], host: null}]])' "$tmp/t.json"
	back() { # JQ: the nodes of the trace as id: control dependencies; data dependencies; microseconds
		jq -c "$1" "$tmp/t.json" | dlb-convert --to chakra >"$tmp/back.et"
		python3 - "$tmp/back.et" <<-'END'
			import sys
			def varint(s, i):
			    v = shift = 0
			    while True:
			        v |= (s[i] & 127) << shift
			        shift, i = shift + 7, i + 1
			        if s[i - 1] < 128:
			            return v, i
			def numbers(s):
			    i, out = 0, []
			    while i < len(s):
			        v, i = varint(s, i)
			        out.append(v)
			    return out
			s, at, rows = open(sys.argv[1], "rb").read(), 0, []
			while at < len(s):
			    n, at = varint(s, at)
			    one, i = {1: [0], 4: [], 5: [], 7: [0]}, at
			    while i < at + n:
			        tag, i = varint(s, i)
			        if tag & 7 in (1, 5):
			            i += 8 if tag & 7 == 1 else 4
			            continue
			        v, i = varint(s, i)
			        if tag & 7 == 2:
			            v, i = s[i:i + v], i + v
			            v = numbers(v) if tag >> 3 in (4, 5) else []
			        one.setdefault(tag >> 3, []).extend(v if isinstance(v, list) else [v])
			    at += n
			    rows.append("%d: %s; %s; %d" % (one[1][-1], " ".join(map(str, one[4])), " ".join(map(str, one[5])), one[7][-1]))
			print(" | ".join(rows[1:]))
		END
	}
	is() { [ "$(back "$1")" = "$2" ] || { back "$1"; return 1; }; }
	is . '0: ; ; 3 | 3: 4503599627370496; ; 0 | 9: 0; 9 0; 5 | 4503599627370496: ; 9 0; 9007199254740992'
	# the trace's own bytes are in it, fields of fixed size too
	for text in abcd "[[2]]" "Tensor(float)" is_cpu_opx comm_siz; do
		[ "$(grep -aoF "$text" "$tmp/t.et" | wc -l)" = "$(grep -aoF "$text" "$tmp/back.et" | wc -l)" ]
	done
	[ "$(stat -c %s "$tmp/t.et")" -ge "$(stat -c %s "$tmp/back.et")" ]
	# durations are those of the costs
	is '.cost.rows[1].time_s.host = [2e-6] | .cost.rows[3].time_s.accelerator = [7e-6]' '0: ; ; 3 | 3: 4503599627370496; ; 7 | 9: 0; 9 0; 2 | 4503599627370496: ; 9 0; 9007199254740992'
	# where edges were taken or added, the node has the edges that there are
	is 'del(.cost.inputs) | .graph.ops[1].inputs = []' '0: ; ; 3 | 3: 4503599627370496; ; 0 | 9: ; ; 5 | 4503599627370496: ; 9 0; 9007199254740992'
	is 'del(.cost.inputs) | .graph.ops[2].inputs = [1]' '0: ; ; 3 | 3: 4503599627370496; ; 0 | 9: 0; 9 0; 5 | 4503599627370496: ; 9; 9007199254740992'
	is 'del(.cost.inputs) | .graph.ops[3].inputs = [2, 1]' '0: ; ; 3 | 3: ; 4503599627370496 9; 0 | 9: 0; 9 0; 5 | 4503599627370496: ; 9 0; 9007199254740992'
	is 'del(.cost.inputs) | .graph.ops[3].inputs = [0]' '0: ; ; 3 | 3: ; 0; 0 | 9: 0; 9 0; 5 | 4503599627370496: ; 9 0; 9007199254740992'
	for fault in '.graph["x-chakra"] += "0"' '.graph["x-chakra"] = "0G"' '.graph["x-chakra"] = "G0"' '.graph.ops[2].attributes.chakra_rest += "x0"' '.graph.ops[0].attributes.chakra_rest += "f"'; do
		run -2 --separate-stderr dlb-convert --to chakra <(jq -c "del(.cost.inputs) | $fault" "$tmp/t.json")
		one_line dlb-convert 'hexadecimal digits are expected'
	done
}

@test "chakra: faults of a trace, and numbers that are too large or cut" {
	mkdir "$tmp/traces"
	PYTHONPATH=$root/tests/data python3 -B - "$tmp/traces" <<-'END' >"$tmp/faults"
		import sys
		from onnx_file import num as number, sub as field, varint
		message = lambda m: varint(len(m)) + m
		fixed = lambda f, type, s: varint(f << 3 | type) + s
		one = number(1, 1) + field(2, b"a") + number(3, 4)
		cut, large = "no Node at byte", "a number that is too large"
		faults = [
		    (message(one) + message(one), "node 1 is given twice"), (message(one + number(5, 8)), "node 1 waits for node 8, which does not exist"), (b"", "no vertices"),
		    # the last byte of a number says that another follows; the rest of a field is not there
		    (message(one) + b"\x80", "no message at byte"), (message(one) + b"\x02\x08", "no message at byte"), (message(one + b"\x30\x80"), cut), (message(one + b"\x30"), cut),
		    (message(one + field(4, b"\x80")), cut), (message(one + field(90, b"abc")[:-1]), cut), (message(one + fixed(40, 1, b"1234567")), cut), (message(one + fixed(40, 5, b"123")), cut),
		    # types and numbers of fields that there are not, and a list of another type
		    *((message(one + fixed(40, type, b"12345678")), cut) for type in (3, 4, 6, 7)), (message(one + b"\x00\x00"), cut), (message(one + number(1 << 29, 1)), cut),
		    (message(one + fixed(4, 5, b"1234")), cut),
		    *((message(one + number(f, v)), large) for f, v in ((1, 1 << 63), (3, 1 << 31), (6, 1 << 63), (7, (1 << 53) + 1)))]
		good = message(one + number((1 << 29) - 1, (1 << 64) - 1) + fixed(40, 1, b"12345678") + fixed(41, 5, b"1234") + number(3, (1 << 31) - 1) + number(6, (1 << 63) - 1))
		for i, (s, text) in enumerate(faults + [(good, "")]):
		    open("%s/%d.et" % (sys.argv[1], i), "wb").write(message(field(1, b"0.0.4")) + s)
		    print(i, text)
	END
	while read -r case text; do
		if [ -n "$text" ]; then
			run -2 --separate-stderr dlb-convert --from chakra "$tmp/traces/$case.et"
			one_line dlb-convert "$case.et" "$text"
		else
			dlb-convert --from chakra "$tmp/traces/$case.et" | dlb-convert --to chakra >"$tmp/back.et"
			grep -qaF 12345678 "$tmp/back.et"
		fi
	done <"$tmp/faults"
	grep -q "^22 $" "$tmp/faults"
}

# bats test_tags=slow
@test "chakra: the nodes of a plan's trace: what each waits for, how long it takes, what a message has" {
	dlb-profile -q --analytic --batch 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:4 >"$tmp/cost.json"
	for options in '-m 2 --replicas 2' '-m 4'; do
		# shellcheck disable=SC2086
		dlb-place -q -a even $options "$tmp/cost.json" >"$tmp/plan.json"
		for rank in 0 1 2 3; do
			dlb-convert --to chakra --rank $rank "$tmp/plan.json" >"$tmp/t.et"
			chakra show "$tmp/t.et" >"$tmp/$rank.txt"
		done
		python3 - "$tmp" <<-'END'
			import ast, json, math, sys
			d = json.load(open(sys.argv[1] + "/plan.json"))
			ops, tensors, plan = d["graph"]["ops"], d["graph"]["tensors"], d["plan"]
			M, at, batches = plan["micro_batches"], {int(k): v for k, v in plan["placement"].items()}, d["cost"]["batches"]
			replicas = plan.get("replicas", [[0, 1, 2, 3]])
			made = {t: o["id"] for o in ops for t in o["outputs"] if t is not None}
			moving = {t["id"] for t in tensors if t["id"] in made and t["kind"] in ("activation", "gradient", "weight-gradient")}
			seconds = {o: r["time_s"]["cpu"][batches.index(4)] for r in d["cost"]["rows"] for o in r["ops"]}		# a micro-batch has 4 samples
			def bytes_of(t):
			    shape = tensors[t]["shape"]
			    return 4 * math.prod([4] + shape[1:] if shape[:1] == ["N"] else shape)
			def varint(s):
			    return sum((b & 127) << 7 * i for i, b in enumerate(s))
			def attributes(rest):
			    out = {}
			    for f, v in rest:
			        assert f == 10 and v[0] == 10
			        n = v[1]
			        tag = v[2 + n:]
			        out[v[2:2 + n].decode()] = varint(tag[1 if tag[0] < 128 else 2:])
			    return out
			n_sums = 0
			for rank in range(4):
			    rows = [ast.literal_eval(l) for l in open("%s/%d.txt" % (sys.argv[1], rank))][1:]
			    node = {i: dict(f, rest=attributes(rest)) for _, i, f, rest in rows for f in [dict(f)]}
			    name = {i: f["2"].decode() for i, f in node.items()}
			    assert len(set(name.values())) == len(name)
			    by = {n: node[i] for i, n in name.items()}
			    replica = next(r for r in replicas if rank in r)
			    part = replica.index(rank)
			    want = {}
			    for o in ops:
			        if at[o["id"]] != part:
			            continue
			        update = o["phase"] == "update"
			        for m in [None] if update else range(M):
			            me, deps = o["name"] if update else "%s %d" % (o["name"], m), []
			            for t in o["inputs"]:
			                if t in moving:
			                    p = made[t]
			                    for k in range(M) if update else [m]:
			                        deps.append("%s %d" % (ops[p]["name"], k) if at[p] == part else "receive %s %d" % (tensors[t]["name"], k))
			                        if at[p] != part:
			                            want["receive %s %d" % (tensors[t]["name"], k)] = ([], {"comm_src": replica[at[p]], "comm_dst": rank, "comm_size": bytes_of(t)}, 6)
			            if update and len(replicas) > 1:
			                n_sums += 1
			                want["sum " + me] = (deps, {"comm_size": sum(bytes_of(t) for t in o["inputs"] if t in moving)}, 7)
			                deps = ["sum " + me]
			            want[me] = (deps, {"is_cpu_op": 1}, 4)
			            if o["type"] not in ("Flatten", "Reshape") and not update:
			                assert by[me].get("7", 0) == round(seconds[o["id"]] * 1e6), (me, by[me], seconds[o["id"]])
			            for t in o["outputs"]:
			                if t in moving and not update:
			                    for to in {replica[at[r["id"]]] for r in ops if t in r["inputs"]} - {rank}:
			                        want["send %s %d" % (tensors[t]["name"], m)] = ([me], {"comm_src": rank, "comm_dst": to, "comm_size": bytes_of(t)}, 5)
			    assert set(want) == set(by), set(want) ^ set(by)
			    for n, (deps, attrs, kind) in want.items():
			        assert [name[i] for i in by[n]["5"]] == deps, (n, deps, [name[i] for i in by[n]["5"]])
			        assert by[n]["3"] == kind and all(by[n]["rest"].get(k) == v for k, v in attrs.items()), (n, by[n], attrs)
			    # the ops of a node wait for each other, one behind the other
			    comp = {i: f for i, f in node.items() if f["3"] == 4}
			    assert sorted(len(f["4"]) for f in comp.values()) == [0] + [1] * (len(comp) - 1)
			    assert len({f["4"][0] for f in comp.values() if f["4"]}) == len(comp) - 1 and all(f["4"][0] in comp for f in comp.values() if f["4"])
			    assert not any(f["4"] for f in node.values() if f["3"] != 4)
			    tags = [(f["rest"]["comm_src"], f["rest"]["comm_dst"], f["rest"]["comm_tag"]) for f in node.values() if f["3"] in (5, 6)]
			    assert len(set(tags)) == len(tags)
			assert (n_sums > 0) == (len(replicas) > 1)
		END
	done
}
