#!/usr/bin/env bats
# dlb-view: any document as table, SVG, Chrome trace, memory plan or Graphviz dot.
load helper

setup() { planned "$BATS_TEST_TMPDIR/doc.json"; doc=$BATS_TEST_TMPDIR/doc.json; }

@test "bad JSON" { refuses_bad_json dlb-view; }
@test "empty input" { refuses_empty_input dlb-view; }
@test "no such file" { refuses_missing_file dlb-view; }
@test "other major version" { refuses_other_major dlb-view; }
@test "unknown member" { refuses_unknown_member "$doc" dlb-view; }
@test "full disk" { for f in table svg trace memory dot; do refuses_full_disk "$doc" dlb-view -f $f; done; }
@test "help" { shows_help dlb-view; }
@test "unknown option" { refuses_unknown_option dlb-view; }

@test "a document of only a version is a table too" {
	run -0 --separate-stderr dlb-view <<<'{"dlb": "1.0"}'
	[ -z "$stderr" ]
}

@test "a newer minor version with unknown members" {
	jq -c '.dlb = "1.9" | .zebra = {a: 1} | .graph.zebra = 2 |
		del(.profile.inputs, .cost.inputs, .plan.inputs)' "$doc" >"$BATS_TEST_TMPDIR/newer.json"
	run -0 --separate-stderr dlb-view "$BATS_TEST_TMPDIR/newer.json"
	[ -n "$output" ]
}

@test "no such format" {
	run -2 --separate-stderr dlb-view -f png "$doc"
	one_line dlb-view "'png'" "try 'dlb-view --help'"
}

@test "the table names what a person reads first" {
	run -0 --separate-stderr dlb-view "$doc"
	[ -z "$stderr" ]
	[[ $output == *node* ]]
}

@test "SVG is well-formed XML" {
	dlb-view -f svg "$doc" >"$BATS_TEST_TMPDIR/x.svg"
	/usr/bin/python3 -c 'import sys, xml.dom.minidom as m; assert m.parse(sys.argv[1]).documentElement.tagName == "svg"' \
		"$BATS_TEST_TMPDIR/x.svg"
}

@test "the bars of a simulated pipeline are as long as its step on every node: what is copied is in them" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place -a even -m 4 | dlb-run --dry-run |
		dlb-view -f svg >"$BATS_TEST_TMPDIR/x.svg"
	grep -q '<title>copying, other</title>' "$BATS_TEST_TMPDIR/x.svg"
	python3 - "$BATS_TEST_TMPDIR/x.svg" <<-'END'
		import re, sys
		rows = {}
		for y, w in re.findall(r'<rect x="[0-9.]+" y="([0-9.]+)" width="([0-9.]+)" [^>]*><title>(?:busy|starved|backpressure|collective|structural|copying, other)</title>', open(sys.argv[1]).read()):
		    rows.setdefault(y, []).append(float(w))
		assert len(rows) == 2 and all(abs(sum(w) - 816) < 1 for w in rows.values()), rows
	END
}

@test "the memory plan: well-formed XML, a rectangle a place, and in the table arena and bound" {
	dlb-view -f memory "$doc" >"$BATS_TEST_TMPDIR/m.svg"
	python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$BATS_TEST_TMPDIR/m.svg"
	nodes=$(jq '.plan.nodes | length' "$doc")
	[ "$(grep -c 'least possible' "$BATS_TEST_TMPDIR/m.svg")" -eq "$nodes" ]
	[ "$(grep -c '<rect.*instructions' "$BATS_TEST_TMPDIR/m.svg")" -gt "$(jq '.graph.ops | length / 2' "$doc")" ]
	dlb-view "$doc" | grep -q 'arena *least *over'
	jq 'del(.plan)' "$doc" >"$BATS_TEST_TMPDIR/none.json"
	run -2 --separate-stderr dlb-view -f memory "$BATS_TEST_TMPDIR/none.json"
	one_line dlb-view 'no plan'
}

@test "the memory plan of an asynchronous schedule: copies, and places that reach into the next round" {
	dlb-profile -q --analytic -b 32 "$root/share/models/lenet5.onnx" | dlb-costmodel -c cpu:3 |
		dlb-place -q -a even --schedule async --staleness stash -m 2 | dlb-view -f memory >"$BATS_TEST_TMPDIR/m.svg"
	grep -q '<rect.*, [2-9] copies, ' "$BATS_TEST_TMPDIR/m.svg"
	python3 - "$BATS_TEST_TMPDIR/m.svg" <<-'END'
		import re, sys
		rects = re.findall(r'x="([\d.]+)" y="[\d.]+" width="([\d.-]+)".*instructions (\d+) to (\d+)<', open(sys.argv[1]).read())
		assert all(float(w) >= 0 for _, w, _, _ in rects)
		around = [x for x, w, first, last in rects if int(last) < int(first)]
		assert len(around) >= 2 and any(float(x) > 200 for x in around), rects
	END
}

@test "arenas of the shipped models are within 5 % of what liveness asks, on 1 and 3 nodes, for any schedule" {
	for name in lenet5 resnet8 digits_cnn digits_mlp; do
		dlb-profile -q --analytic --batch 32 "$models/$name.onnx" >"$BATS_TEST_TMPDIR/model.json"
		for nodes in 1 3; do
			for how in '-m 1' '-m 4' '-m 8 --schedule gpipe' '-m 8 --schedule 1f1b'; do
				# shellcheck disable=SC2086	# options are words
				dlb-costmodel -q -c "cpu:$nodes" "$BATS_TEST_TMPDIR/model.json" | dlb-place -q -a even $how | dlb-view |
					awk -v n="$nodes" '/ over$/ { on = 1; next } on && $NF ~ /%$/ { rows++; if ($NF + 0 > 5) bad = 1; next } on { on = 0 }
						END { exit bad || rows != n }'
			done
		done
	done
}

@test "the trace is what Perfetto opens: an array of events with names, times and a process" {
	dlb-view -f trace "$doc" >"$BATS_TEST_TMPDIR/x.json"
	run -0 jq -e '(.traceEvents // .) | map(select(.ph == "X")) |
		length > 0 and all(.name != null and .ts >= 0 and .dur >= 0 and .pid != null and .tid != null)' "$BATS_TEST_TMPDIR/x.json"
}

@test "dot has a vertex for every op of the graph" {
	dlb-view -f dot "$doc" >"$BATS_TEST_TMPDIR/x.dot"
	[[ $(head -n 1 "$BATS_TEST_TMPDIR/x.dot") == digraph* ]]
	[ "$(grep -c 'label=' "$BATS_TEST_TMPDIR/x.dot")" -ge "$(jq '.graph.ops | length' "$doc")" ]
	[ "$(tail -n 1 "$BATS_TEST_TMPDIR/x.dot")" = '}' ]
}

@test "every format shows the reported round too" {
	reported "$BATS_TEST_TMPDIR/round.json"
	for f in table svg trace dot; do
		run -0 --separate-stderr dlb-view -f $f "$BATS_TEST_TMPDIR/round.json"
		[ -n "$output" ]
		[ -z "$stderr" ]
	done
}

@test "why an op went where it did: a line a node" {
	run -0 --separate-stderr dlb-view --why 0 "$doc"
	[ -z "$stderr" ]
	[ "${#lines[@]}" -ge 2 ]
	name=$(jq -r '.graph.ops[0].name' "$doc")
	by_id=$output
	run -0 --separate-stderr dlb-view --why "$name" "$doc"
	[ "$output" = "$by_id" ]
}

@test "why: no such op, no plan" {
	run -2 --separate-stderr dlb-view --why no_such_op "$doc"
	one_line dlb-view no_such_op
	jq -c 'del(.plan)' "$doc" >"$BATS_TEST_TMPDIR/unplanned.json"
	run -2 --separate-stderr dlb-view --why 0 "$BATS_TEST_TMPDIR/unplanned.json"
	one_line dlb-view plan
}

@test "a placement edited since its times were stated is said to be" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place >"$BATS_TEST_TMPDIR/plan.json"
	run ! grep -q edited <(dlb-view "$BATS_TEST_TMPDIR/plan.json")
	jq -c '.plan.placement[] |= 1 - .' "$BATS_TEST_TMPDIR/plan.json" | dlb-view | grep -q 'the placement was edited'
}
