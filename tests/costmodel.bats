#!/usr/bin/env bats
# dlb-costmodel: graph, profile and cluster make the cost section.
load helper

setup_file() {
	dlb-profile --analytic --batch 16 "$model" >"$BATS_FILE_TMPDIR/profiled.json"
}
setup() { doc=$BATS_FILE_TMPDIR/profiled.json; tmp=$BATS_TEST_TMPDIR; }

@test "bad JSON" { refuses_bad_json dlb-costmodel -c cpu:2; }
@test "empty input" { refuses_empty_input dlb-costmodel -c cpu:2; }
@test "no such file" { refuses_missing_file dlb-costmodel -c cpu:2; }
@test "no such cluster" {
	planned "$BATS_TEST_TMPDIR/doc.json"
	for name in gone.json ./gone ../gone /gone; do
		run -2 --separate-stderr dlb-costmodel -c "$name" "$BATS_TEST_TMPDIR/doc.json"
		one_line dlb-costmodel "cannot open '$name': No such file or directory"
	done
}
@test "missing section" { refuses_missing_section dlb-costmodel graph -c cpu:2; }
@test "other major version" { refuses_other_major dlb-costmodel -c cpu:2; }
@test "unknown member" { refuses_unknown_member "$doc" dlb-costmodel -c cpu:2; }
@test "newer minor version" { passes_unknown_on "$doc" dlb-costmodel -c cpu:2; }
@test "full disk" { refuses_full_disk "$doc" dlb-costmodel -c cpu:2; }
@test "help" { shows_help dlb-costmodel; }
@test "unknown option" { refuses_unknown_option dlb-costmodel; }

@test "no cluster anywhere" {
	run -2 --separate-stderr dlb-costmodel "$doc"
	one_line dlb-costmodel cluster
}

@test "a GPU has no kernel for an operator of the CPU alone, measured or not" {
	PYTHONPATH=$root/tests/data python3 -B - >"$tmp/lrn.onnx" <<-'END'
		import struct, sys
		from onnx_file import attribute_int, model, node, tensor, value
		sys.stdout.buffer.write(model(node("LRN", ["x"], ["z"], attributes=attribute_int("size", 3)) + node("Flatten", ["z"], ["f"]) +
			node("MatMul", ["f", "w"], ["y"]) + tensor("w", [16, 4], struct.pack("<f", .1) * 64) + value(11, "x", ["N", 4, 2, 2]) + value(12, "y", ["N", 4])))
	END
	dlb-profile -q --analytic --batch 8 "$tmp/lrn.onnx" >"$tmp/lrn.json"
	dlb-costmodel -q -c 'cpu:1 cuda:1*1000' "$tmp/lrn.json" | dlb-place -q >"$tmp/doc.json"
	jq -e '.plan.placement as $node | [.graph.ops[] | {type, node: $node["\(.id)"]}] |
		(map(select(.type == "LRN").node) == [0]) and (map(.node) | max == 1)' "$tmp/doc.json"
	dlb-costmodel -q -c cuda:2 "$tmp/lrn.json" >"$tmp/cost.json"
	run -1 --separate-stderr dlb-place -q "$tmp/cost.json"
	one_line dlb-place 'no plan fits' 'no node has a kernel' LRN
}

@test "the output is valid and keeps graph and profile" {
	dlb-costmodel -c 'cpu:2 host cpu:1*0.5' "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	run -0 jq -e --slurpfile was "$doc" '.graph == $was[0].graph and .profile == $was[0].profile
		and (.cluster.nodes | length) == 3 and .cost != null' "$tmp/out.json"
}

@test "same input, same bytes" {
	dlb-costmodel -c cpu:2 "$doc" >"$tmp/a.json"
	dlb-costmodel -c cpu:2 <"$doc" >"$tmp/b.json"
	jq 'del(.provenance)' "$tmp/a.json" >"$tmp/a"
	jq 'del(.provenance)' "$tmp/b.json" >"$tmp/b"
	cmp "$tmp/a" "$tmp/b"
}

@test "a cluster comes from a string, a document or the document itself" {
	dlb-costmodel -c 'cpu:1 cpu:1*0.5' "$doc" >"$tmp/string.json"
	jq -c '{dlb, cluster}' "$tmp/string.json" >"$tmp/lab.json"
	dlb-costmodel -c "$tmp/lab.json" "$doc" >"$tmp/file.json"
	cmp <(jq -S '.cost, .cluster' "$tmp/string.json") <(jq -S '.cost, .cluster' "$tmp/file.json")
	dlb-costmodel "$tmp/string.json" >"$tmp/again.json"
	cmp <(jq -S '.cost' "$tmp/string.json") <(jq -S '.cost' "$tmp/again.json")
}

@test "shared memory is as fast as the slowest device there was measured to copy" {
	jq '.profile.kinds = [{name: "cpu", peak_flops: 1e11, bandwidth_Bps: 3e10}]' "$doc" >"$tmp/measured.json"
	bandwidths() { dlb-costmodel -c "$1" "$2" | jq -c '[.cluster.links[].bandwidth_Bps]'; }
	[ "$(bandwidths cpu:2 "$tmp/measured.json")" = '[15000000000]' ]
	[ "$(bandwidths cpu:2 "$doc")" = '[6000000000]' ]				# no measurement
	[ "$(bandwidths 'cpu:2 link=shm:1e-6,6e9' "$tmp/measured.json")" = '[6000000000]' ]	# stated
	[ "$(bandwidths 'cpu:2 host cuda:1' "$tmp/measured.json" | jq -c '[.[] | select(. > 2e9)]')" = '[15000000000,6000000000]' ]
}

@test "bad cluster strings" {
	for c in 'cpu:0' 'cpu:-1' 'cpu:999999999' 'cpu:2*0' 'cpu/0:1' '' 'cpu:2 link=warp:1,1' 'cpu:2@lots' ':2'; do
		run -2 --separate-stderr dlb-costmodel -c "$c" "$doc"
		one_line dlb-costmodel
	done
	run -2 --separate-stderr dlb-costmodel -c /nonexistent/lab.json "$doc"
	one_line dlb-costmodel
}

@test "a changed cluster drops what stood on it" {
	dlb-costmodel -c cpu:2 "$doc" | dlb-place >"$tmp/plan.json"
	dlb-costmodel -c cpu:3 "$tmp/plan.json" >"$tmp/out.json"
	run -0 jq -c '[has("plan"), has("report"), has("balance"), (.cluster.nodes | length)]' "$tmp/out.json"
	[ "$output" = '[false,false,false,3]' ]
}

# bats test_tags=slow
@test "the shipped clusters are valid" {
	for lab in "$root"/share/clusters/*.json; do
		[ -e "$lab" ] || skip 'none shipped'
		validates "$lab"
		run -0 dlb-costmodel -c "$lab" "$doc"
	done
}

@test "-v tells how well the model fits" {
	run -0 --separate-stderr dlb-costmodel -v -c cpu:2 "$doc"
	[ -n "$stderr" ]
}

# bats test_tags=slow
@test "a kind from a data sheet: launch + the larger of FLOP over peak and bytes over bandwidth, at its efficiencies" {
	cat >"$tmp/box.json" <<-'EOF'
	{"kinds": [{"name": "cpu"},
	  {"name": "fpga", "peak_flops": 1e12, "bandwidth_Bps": 1e11, "launch_s": 3e-6, "without": ["pool"],
	   "efficiency": {"conv": {"flops": 0.5, "bandwidth": 0.25}, "dense": {"flops": 0.75, "bandwidth": 1}}}],
	 "groups": [{"name": "box"}], "nodes": [{"kind": "cpu", "group": "box"}, {"kind": "fpga", "group": "box"}]}
	EOF
	dlb-profile --batch 16 "$model" >"$tmp/measured.json"
	for d in "$doc" "$tmp/measured.json"; do
		dlb-costmodel -c "$tmp/box.json" "$d" >"$tmp/out.json"
		validates "$tmp/out.json"
		run -0 jq -e '.graph.ops as $ops | def near($x; $y): ($x - $y | fabs) < 1e-9 * $y;
			def model($o; $f; $b): 3e-6 + ([$o.flop / (1e12 * $f), $o.bytes / (1e11 * $b)] | max);
			[.cost.rows[] | .time_s.fpga as $t | .type as $type | $ops[.ops[0]] as $o |
			 if $type == "Conv" then near($t[0]; model($o; 0.5; 0.25))
			 elif $type == "Gemm" then near($t[0]; model($o; 0.75; 1))
			 elif $type == "MaxPool" then $t == null else empty end] | length >= 3 and all' "$tmp/out.json"
	done
	jq -c '.kinds[1].efficiency.conv.flops = 2' "$tmp/box.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-costmodel -c "$tmp/bad.json" "$doc"
	one_line dlb-costmodel /kinds/1/efficiency/conv/flops
	jq -c '.kinds[1].efficiency.conv.flop = 1' "$tmp/box.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-costmodel -c "$tmp/bad.json" "$doc"
	one_line dlb-costmodel "'flop'" "'flops'"
}

# bats test_tags=slow
@test "batches without a measurement take the model's times, scaled by the nearest measured batch" {
	local at='.profile.rows[] | select(.type == "Gemm" and (.ops | index(1))) | .time_s.cpu'
	predicted() { # SECONDS for one sample: the times for 16, 8, 4, 2 and 1 samples
		jq -c "($at) = [2e-3, null, null, null, $1]" "$tmp/profile.json" | dlb-costmodel -q -c cpu:1 |
			jq -c '.cost.rows[] | select(.ops | index(1)) | .time_s.cpu'
	}
	dlb-profile -q --batch 16 "$models/digits_mlp.onnx" >"$tmp/profile.json"
	predicted 1e-4 >"$tmp/a"
	predicted 1e-3 >"$tmp/b"
	cat "$tmp/a" "$tmp/b"
	# that for 8 follows the time for 16, that for 2 the time for 1
	jq -es '(.[0][0] == 2e-3 and .[1][0] == 2e-3 and .[0][4] == 1e-4 and .[1][4] == 1e-3) and (.[1][1] / .[0][1] | . > .5 and . < 2) and .[1][3] / .[0][3] > 5' \
		"$tmp/a" "$tmp/b"
}

@test "clusters that come with the tools go by name, and each figure has its source" {
	for name in cxl-box cxl-two-pools npu-tpu a100-v100 h100-l40 campus; do
		dlb-costmodel -c $name "$doc" | jq -e --slurpfile file "$root/share/clusters/$name.json" '
			(.cluster.nodes | length >= 5) and .cluster == ($file[0].cluster // $file[0])'
		jq -e '.cluster | (.kinds | all(.["x-source"] | has("peak_flops") and has("bandwidth_Bps") and has("memory_bytes")
			and has("efficiency"))) and (.links | all(has("x-source")))' "$root/share/clusters/$name.json"
	done
	for file in "$root"/share/clusters/*.json; do			# the others say that they are invented
		jq -e '.cluster | (.kinds + .links | all(has("x-source"))) or (.["x-source"] // "" | startswith("Made up"))' "$file"
	done
}

# bats test_tags=slow
@test "a duplex link carries messages both ways at once; one that is said to take turns does not" {
	two='.cluster | {kinds, groups, nodes, links: [.links[] | select(.class == "rack") + $more + {latency_s: 0, bandwidth_Bps: 1e6}]} | .groups |= map(del(.inside))'
	step() { # MEMBERS OF THE LINKS; $took: predicted seconds of a pipeline that never drains and waits only for messages
		jq -c --argjson more "$1" "$two" "$tmp/two.json" >"$tmp/cluster.json"
		dlb-costmodel -c "$tmp/cluster.json" "$doc" >"$tmp/costed.json"
		validates "$tmp/costed.json"
		[ "$(jq -c '.cluster.links | map(.duplex) | unique' "$tmp/costed.json")" = "[$(jq '.duplex' <<<"$1")]" ]
		dlb-place -a even -m 8 --schedule async "$tmp/costed.json" >"$tmp/placed.json"
		jq -c .plan.placement "$tmp/placed.json" >>"$tmp/placements"
		took=$(jq .plan.value_s "$tmp/placed.json")
	}
	dlb-costmodel -c 'cpu:1 host cpu:1' "$doc" >"$tmp/two.json"
	step '{"duplex": true}'
	both=$took
	step '{}'
	[ "$took" = "$both" ]						# overlapping links are duplex by default
	step '{"duplex": false}'
	turns=$took
	[ "$(sort -u "$tmp/placements" | wc -l)" -eq 1 ]
	jq -ne "$turns > 1.8 * $both and $turns < 2.001 * $both"
	dlb-view "$tmp/two.json" | grep -Eq '^  link rack:h0: .*/s each way$'
	dlb-view "$tmp/costed.json" | grep -Eq '^  link rack:h0: .*/s$'
	jq -c '.links[0].duplex = 1' "$tmp/cluster.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-costmodel -c "$tmp/bad.json" "$doc"
	one_line dlb-costmodel /links/0/duplex
}

@test "what a user says of a cluster, anywhere in its document, stays" {
	jq '.["x-of-the-file"] = "where from" | .cluster.nodes[0]["x-of-a-node"] = 7' "$root/share/clusters/h100-l40.json" >"$tmp/c.json"
	dlb-costmodel -c "$tmp/c.json" "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '.cluster | .["x-of-the-file"] == "where from" and .nodes[0]["x-of-a-node"] == 7 and has("x-source")' "$tmp/out.json"
}

@test "words in brackets stand for as many times the words: clusters of racks in a line" {
	dlb-costmodel -q -c '2(rack 2(host cpu:2 cpu:1*0.5)) rack 3(s0=cpu:1)' "$doc" >"$tmp/out.json"
	dlb-costmodel -q -c 'host cpu:2 cpu:1*0.5 host cpu:2 cpu:1*0.5 rack host cpu:2 cpu:1*0.5 host cpu:2 cpu:1*0.5
		rack s0=cpu:1 s0=cpu:1 s0=cpu:1' "$doc" >"$tmp/long.json"
	cmp <(jq -c .cluster "$tmp/out.json") <(jq -c .cluster "$tmp/long.json")
	for c in '2(cpu:1' '2()' '2(link=rack:1,1)' '2' '0(cpu:1)' '2(cpu:1)cpu:1' '2(cpu:1)(cpu:1)' '(cpu:1)' 'cpu:1)' \
		'1000000(1000000(cpu:1))' '9(8(7(6(5(4(3(2(1(cpu:1)))))))))' '2(host cpu:1 host)'; do
		run -2 --separate-stderr dlb-costmodel -c "$c" "$doc"
		one_line dlb-costmodel
	done
}

# bats test_tags=slow
@test "a file with kinds and a synthetic line: the rows are written out" {
	cat >"$tmp/lab.json" <<-'EOF'
	{"x-lab": 7, "kinds": [{"name": "cpu/4", "threads": 4, "x-cpu": 1}, {"name": "fast", "backend": "gpu", "peak_flops": 1e12, "bandwidth_Bps": 1e11}],
	 "synthetic": "2(rack 2(host cpu/4:1 fast:3)) link=rack:1e-5,1e9"}
	EOF
	dlb-costmodel -q -c "$tmp/lab.json" "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	run -0 jq -e '.cluster | has("synthetic") == false and ."x-lab" == 7 and .kinds[0]."x-cpu" == 1 and (.nodes | length == 16) and
		([.nodes[].kind] == [range(4) | "cpu/4", "fast", "fast", "fast"]) and ([.groups[].class] | unique == ["host", "rack", "site"]) and
		(.links | any(.class == "rack" and .bandwidth_Bps == 1e9))' "$tmp/out.json"
	jq '{dlb: "1.0", cluster: .}' "$tmp/lab.json" >"$tmp/document.json"
	validates "$tmp/document.json"
	cmp <(jq -c .cluster "$tmp/out.json") <(dlb-costmodel -q -c "$tmp/document.json" "$doc" | jq -c .cluster)
	refused() { # EDIT WORD...
		jq -c "$1" "$tmp/lab.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-costmodel -c "$tmp/bad.json" "$doc"
		shift
		one_line dlb-costmodel bad.json "$@"
	}
	refused '.synthetic |= sub("fast"; "fats")' "no kind 'fats'" "'fast'"
	refused '.nodes = []' "'nodes'"
	refused '.synthetic = 1' /synthetic
	refused '.kinds = []' /synthetic kinds
	refused '.synthetic = "2(cpu/4:1"' "')' expected"
	# a document of a section whose rows are not written out is not planned for
	jq --slurpfile lab "$tmp/lab.json" '.cluster = $lab[0]' "$tmp/out.json" >"$tmp/bad.json"
	run -2 --separate-stderr dlb-place "$tmp/bad.json"
	one_line dlb-place /cluster/synthetic 'dlb-costmodel -c'
}

@test "a site of 1,024 nodes in racks goes by name" {
	dlb-costmodel -q -c site-1024 "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	run -0 jq -e '.cluster | (.nodes | length == 1024) and ([.nodes[].kind] | unique | length == 4) and
		([.groups[] | select(.class == "rack")] | length == 32)' "$tmp/out.json"
	[ "$(wc -c <"$root/share/clusters/site-1024.json")" -lt 10000 ]
}
