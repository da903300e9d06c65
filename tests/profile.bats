#!/usr/bin/env bats
# dlb-profile: graph and profile of an ONNX model; --cluster describes this machine.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

@test "empty input" {
	run -2 --separate-stderr dlb-profile /dev/null
	one_line dlb-profile
}
@test "no such file" {
	run -2 --separate-stderr dlb-profile /nonexistent/model.onnx
	one_line dlb-profile "/nonexistent/model.onnx'" 'No such file'
}
@test "no model at all" {
	run -2 --separate-stderr dlb-profile </dev/null
	one_line dlb-profile
}
@test "a folder, a text, a document in place of a model" {
	run -2 --separate-stderr dlb-profile "$tmp"
	one_line dlb-profile
	echo '{"dlb": "1.0"}' >"$tmp/text"
	run -2 --separate-stderr dlb-profile "$tmp/text"
	one_line dlb-profile
}
@test "full disk" {
	run -2 --separate-stderr bash -c 'dlb-profile --analytic "$1" >/dev/full' - "$model"
	one_line dlb-profile 'No space left on device'
}
@test "help" { shows_help dlb-profile; }
@test "unknown option" { refuses_unknown_option dlb-profile; }

@test "bad numbers and names" {
	for option in --batch=0 --batch=-3 --batch=x --loss=no-such-loss --device=abacus --device=cpu/0; do
		run -2 --separate-stderr dlb-profile "$option" "$model"
		one_line dlb-profile
	done
}

@test "forward, backward and update ops, all of it valid" {
	dlb-profile --batch 16 "$model" >"$tmp/doc.json"
	validates "$tmp/doc.json"
	run -0 jq -e '(.graph.ops | map(.phase) | unique) == ["backward", "forward", "update"] and
		(.graph.ops | map(.id)) == [range(.graph.ops | length)] and
		(.graph.ops | map(select(.phase == "update")) | length) > 0 and
		(.graph.ops | all(.type != null and .flop >= 0)) and .graph.batch == 16' "$tmp/doc.json"
	[ "$(jq '[.graph.ops[] | select(.phase == "update")] | length' "$tmp/doc.json")" -eq \
		"$(jq '[.graph.tensors[] | select(.kind == "weight")] | length' "$tmp/doc.json")" ]
}

@test "--analytic measures nothing and repeats itself" {
	dlb-profile --analytic "$model" >"$tmp/a.json"
	dlb-profile --analytic "$model" >"$tmp/b.json"
	cmp "$tmp/a.json" "$tmp/b.json"
	validates "$tmp/a.json"
}

@test "rewrites are listed, recorded and switched" {
	run -0 dlb-profile --list
	[[ $output == *'layer-norm '* && $output == *'gelu '* ]]
	[[ $output == *'cpu '*'back end: 1 device'*'cuda '*'back end: '* ]]
	dlb-profile --analytic "$model" >"$tmp/on.json"
	dlb-profile --analytic --no-rewrite all "$model" >"$tmp/off.json"
	dlb-profile --analytic --no-rewrite gelu --no-rewrite=no-ops "$model" >"$tmp/some.json"
	validates "$tmp/on.json"
	validates "$tmp/off.json"
	run -0 jq -e '.graph.rewrites | all(.count >= 0) and length > 5' "$tmp/on.json"
	run -0 jq -e '.graph | has("rewrites") | not' "$tmp/off.json"
	run -0 jq -e '.graph.rewrites | map(.name) | (index("gelu") == null) and (index("layer-norm") != null)' "$tmp/some.json"
	# tools that read the document keep them
	dlb-profile --analytic <"$tmp/on.json" | jq -c .graph.rewrites >"$tmp/kept"
	[ "$(cat "$tmp/kept")" = "$(jq -c .graph.rewrites "$tmp/on.json")" ]
}

@test "--untie and --no-rewrite where there is nothing to do: a line each" {
	dlb-profile --analytic "$model" >"$tmp/plain.json" 2>"$tmp/plain"
	run -0 --separate-stderr dlb-profile --analytic --untie "$model"
	[ "$(grep -vxFf "$tmp/plain" <<<"$stderr")" = "dlb-profile: --untie has no effect: no weight has the values of another, or was made of them" ]
	run -0 --separate-stderr dlb-profile --analytic --no-rewrite gelu --no-rewrite conv-relu --no-rewrite gelu "$models/digits_cnn.onnx"
	[ "${#stderr_lines[@]}" -eq 2 ]
	[ "${stderr_lines[0]}" = "dlb-profile: --no-rewrite gelu has no effect: there is nothing in the model that it would change" ]
	[ "${stderr_lines[1]}" = "dlb-profile: --no-rewrite gelu has no effect: it is left out already" ]
	run -0 --separate-stderr dlb-profile --analytic --no-rewrite all --no-rewrite conv-relu "$models/digits_cnn.onnx"
	[ "$stderr" = "dlb-profile: --no-rewrite conv-relu has no effect: it is left out already" ]
}

@test "a rewrite that is not there: its nearest name" {
	run -2 --separate-stderr dlb-profile --no-rewrite layernorm "$model"
	one_line dlb-profile "no rewrite 'layernorm'" "'layer-norm'"
	dlb-profile --analytic "$model" >"$tmp/doc.json"
	run -2 --separate-stderr dlb-profile --no-rewrite gelu "$tmp/doc.json"
	one_line dlb-profile 'made already'
}

@test "--inference makes no backward and no update" {
	dlb-profile --inference --analytic "$model" >"$tmp/doc.json"
	validates "$tmp/doc.json"
	run -0 jq -c '.graph.ops | map(.phase) | unique' "$tmp/doc.json"
	[ "$output" = '["forward"]' ]
}

# bats test_tags=slow
@test "every model that is shipped" {
	for m in "$models"/*.onnx; do
		dlb-profile --analytic "$m" >"$tmp/doc.json"
		validates "$tmp/doc.json"
	done
}

@test "--cluster: this machine" {
	dlb-profile --cluster >"$tmp/here.json"
	validates "$tmp/here.json"
	run -0 jq -e '(.cluster.nodes | length) >= 1 and (.cluster.kinds | all(.peak_flops > 0 and .bandwidth_Bps > 0))' "$tmp/here.json"
}

# This machine's cluster without speeds, which another load may change.
here() { dlb-profile --cluster | jq '.cluster.kinds[0] |= del(.peak_flops, .bandwidth_Bps)'; }

@test "--check: the machine that was measured" {
	here >"$tmp/here.json"
	validates "$tmp/here.json"
	jq -e '.cluster.groups[0].cores >= 1' "$tmp/here.json"
	run -0 --separate-stderr dlb-profile --check "$tmp/here.json"
	[ -z "$output" ]
	[ "$stderr" = "dlb-profile: the speed of kind 'cpu' is not checked: the document has none" ]
	run -0 --separate-stderr dlb-profile --check -v <"$tmp/here.json"
	[ -z "$output" ]
	[[ $stderr == *" cores here"* && $stderr == *"GB of memory here"*"(1.00 times)"* ]] || [[ $stderr == *"1 core here"* ]]
}

@test "--check: another machine, a line for each difference" {
	here | jq '(.cluster.nodes[].host) = "elsewhere" | .cluster.groups[0].cores += 3 | .cluster.groups[0].processor = "Z80" |
		(.cluster.memories[] | select(.class == "dram").bytes) *= 2 |
		.cluster.kinds[0].peak_flops = 1e18 | .cluster.kinds[0].bandwidth_Bps = 1' >"$tmp/there.json"
	run -1 --separate-stderr dlb-profile --check "$tmp/there.json"
	[ -z "$output" ]
	cores=$(jq '.cluster.groups[0].cores' "$tmp/there.json")
	[[ ${stderr_lines[0]} == "dlb-profile: host '$(hostname)' here, 'elsewhere' in the document" ]]
	[[ $stderr == *"$((cores - 3)) core"*" here, $cores in the document"* && $stderr == *"in the document (0.50 times)"* ]]
	[[ $stderr == *"kind cpu: "*" GFLOP/s here, 1e+09 in the document (0.00 times)"* ]]
	[[ $stderr == *"kind cpu: "*" GB/s of memory here, 1e-09 in the document ("* ]]
	# a processor that the system does not name is not compared
	[ "${#stderr_lines[@]}" -eq $((5 + $(here | jq '.cluster.groups[0] | has("processor") | if . then 1 else 0 end'))) ]
	run -1 --separate-stderr dlb-profile -q --check "$tmp/there.json"
	[ -z "$output$stderr" ]
}

@test "--check: what it refuses" {
	run -2 --separate-stderr dlb-profile --check </dev/null
	one_line dlb-profile 'empty input'
	dlb-profile --analytic "$model" >"$tmp/doc.json"
	run -2 --separate-stderr dlb-profile --check "$tmp/doc.json"
	one_line dlb-profile "'cluster'"
	[[ $stderr == "dlb-profile: $tmp/doc.json: no section 'cluster'"* ]]
	dlb-costmodel -q -c cpu:2 "$tmp/doc.json" >"$tmp/costed.json"
	run -2 --separate-stderr dlb-profile --check "$tmp/costed.json"
	one_line dlb-profile "$tmp/costed.json: /cluster: no machine was measured for it; dlb-profile --cluster measures one"
	for option in --cluster --batch=2 --device=cpu/2 --list --untie --topology=x; do
		run -2 --separate-stderr dlb-profile --check "$option" "$tmp/doc.json"
		one_line dlb-profile "${option%=*} has no effect on --check" "try 'dlb-profile --help'"
	done
}

# bats test_tags=slow
@test "--check under mpirun: all ranks measure, one tells" {
	mpirun --oversubscribe --bind-to none -np 2 dlb-profile --cluster >"$tmp/two.json"
	jq '.cluster.kinds[0] |= del(.peak_flops, .bandwidth_Bps)' "$tmp/two.json" >"$tmp/same.json"
	run -0 --separate-stderr mpirun --oversubscribe --bind-to none -np 2 dlb-profile --check "$tmp/same.json"
	[ "$(grep -c '^dlb-profile' <<<"$stderr")" -eq 1 ]
	jq '.cluster.groups[0].cores = 12345' "$tmp/same.json" >"$tmp/other.json"
	run -1 --separate-stderr mpirun --oversubscribe --bind-to none -np 2 dlb-profile --check "$tmp/other.json"
	[ "$(grep -c '12345 in the document' <<<"$stderr")" -eq 1 ]
	run -2 --separate-stderr mpirun --oversubscribe --bind-to none -np 2 dlb-profile --check <"$tmp/same.json"
	[ "$(grep -c 'needs a document that each can read; name its file' <<<"$stderr")" -eq 1 ]
}

# bats test_tags=slow
@test "--cluster under mpirun: a node a rank, links measured" {
	mpirun --oversubscribe --bind-to none -np 2 dlb-profile --cluster >"$tmp/two.json"
	validates "$tmp/two.json"
	run -0 jq -e '(.cluster.nodes | length) == 2 and (.cluster.links | length) >= 1 and
		(.cluster.links | all(.latency_s > 0 and .bandwidth_Bps > 0))' "$tmp/two.json"
}

@test "--topology: another machine's hwloc XML" {
	# From hwloc's synthetic machine 'package:2 numa:1 core:4 pu:1'.
	dlb-profile --cluster --topology "$root/tests/data/machine.xml" >"$tmp/there.json"
	validates "$tmp/there.json"
	[ "$(jq '.cluster.nodes | length' "$tmp/there.json")" -eq 8 ]
}

@test "--topology: a file that is no topology" {
	echo '<nothing/>' >"$tmp/bad.xml"
	run -2 --separate-stderr dlb-profile --cluster --topology "$tmp/bad.xml"
	[ -z "$output" ]
	run -2 --separate-stderr dlb-profile --cluster --topology /nonexistent.xml
	[ -z "$output" ]
}

# bats test_tags=slow
@test "150 tensors in one Concat: the sum of their products" {
	PYTHONPATH=$root/tests/data python3 -B - >"$BATS_TEST_TMPDIR/many.onnx" <<-'END'
		import struct, sys
		from onnx_file import attribute_int, model, node, tensor, value
		n = 150
		parts = [node("Mul", ["x", f"c{i}"], [f"m{i}"], f"mul{i}") + tensor(f"c{i}", [1, 1], struct.pack("<f", i + 1)) for i in range(n)]
		sys.stdout.buffer.write(model(b"".join(parts) + node("Concat", [f"m{i}" for i in range(n)], ["z"], attributes=attribute_int("axis", 1)) +
			node("MatMul", ["z", "w"], ["y"]) + tensor("w", [n, 1], struct.pack("<f", 1.0) * n) + value(11, "x", ["N", 1]) + value(12, "y", ["N", 1])))
	END
	dlb-profile -q --batch 2 --loss sum "$BATS_TEST_TMPDIR/many.onnx" | dlb-costmodel -q -c cpu:1 | dlb-place -q >"$BATS_TEST_TMPDIR/doc.json"
	PYTHONPATH=$root/tests/data python3 -B - "$BATS_TEST_TMPDIR/x.npy" <<-'END'
		import struct, sys
		head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }"
		head = head.ljust(117) + "\n"
		open(sys.argv[1], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<2f", 1, 3))
	END
	dlb-run -q --steps 1 --data "npy:$BATS_TEST_TMPDIR/x.npy" "$BATS_TEST_TMPDIR/doc.json" | jq -e '.report.losses[0] == 22650'
}

# A GPT whose weights are a sparse file of their own, all zero: sparse_gpt WIDTH >FOLDER/gpt.onnx
sparse_gpt() {
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 1 --width "$1" --heads 1 --vocabulary 64 --sequence 8 "$tmp/gpt.onnx"
}

# The largest resident memory of a command in kilobytes, with the pages of mapped files that it has touched.
peak_kb() { # COMMAND...
	python3 -B -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$@"
}

# bats test_tags=slow
@test "--analytic: weights in another file are neither read nor kept in memory, and dlb-run trains from them" {
	sparse_gpt 4096
	[ "$(stat -c %s "$tmp/gpt.onnx.data")" -gt 800000000 ]
	# private memory: the file's pages are the system's
	(
		ulimit -d 400000
		dlb-profile --analytic --batch 2 "$tmp/gpt.onnx" >"$tmp/doc.json" 2>"$tmp/said"
	)
	grep -q 'GB of weights in other files are not hashed with --analytic' "$tmp/said"
	validates "$tmp/doc.json"
	jq -e '.graph.model.external_unread' "$tmp/doc.json"
	[ "$(peak_kb dlb-profile -q --analytic --batch 2 "$tmp/gpt.onnx")" -lt 300000 ]
	[ "$(jq -r .graph.model.sha256 "$tmp/doc.json")" = "$(sha256sum <"$tmp/gpt.onnx" | cut -d' ' -f1)" ]
	sparse_gpt 32
	dlb-profile -q --batch 2 "$tmp/gpt.onnx" >"$tmp/measured.json"
	jq -e '.graph.model | has("external_unread") | not' "$tmp/measured.json"
	dlb-profile -q --analytic --batch 2 "$tmp/gpt.onnx" >"$tmp/analytic.json"
	for doc in measured analytic; do
		dlb-costmodel -q -c cpu:1 "$tmp/$doc.json" | dlb-place -q | dlb-run -q --steps 3 --data random | jq -c .report.losses >"$tmp/$doc.losses"
	done
	cmp "$tmp/measured.losses" "$tmp/analytic.losses"
}

# bats test_tags=slow
@test "--analytic: damaged weights in another file are found by dlb-run" {
	sparse_gpt 32
	dlb-profile -q --analytic --batch 2 "$tmp/gpt.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even >"$tmp/doc.json"
	# NaN
	printf '\xff\xff\xff\x7f' | dd of="$tmp/gpt.onnx.data" bs=1 seek=400 conv=notrunc status=none
	for options in "" --analytic; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-profile -q $options --batch 2 "$tmp/gpt.onnx"
		one_line dlb-profile 'weights hold NaN'
	done
	run -2 --separate-stderr dlb-run -q --steps 1 --data random "$tmp/doc.json"
	one_line dlb-run 'weights hold NaN'
	truncate -s 1000 "$tmp/gpt.onnx.data"
	for options in "" --analytic; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-profile -q $options --batch 2 "$tmp/gpt.onnx"
		one_line dlb-profile 'reach past the end'
	done
	run -2 --separate-stderr dlb-run -q --steps 1 --data random "$tmp/doc.json"
	one_line dlb-run 'reach past the end'
}
