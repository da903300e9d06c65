#!/usr/bin/env bats
# dlb-view: any document as table, SVG, Chrome trace, memory plan, page or Graphviz dot; differences of two documents.
load helper

setup() { planned "$BATS_TEST_TMPDIR/doc.json"; doc=$BATS_TEST_TMPDIR/doc.json; }

@test "outputs of four kept documents are the kept ones" {
	local data=$BATS_TEST_DIRNAME/data/view
	mkdir "$BATS_TEST_TMPDIR/out"
	"$data/write" "$BATS_TEST_TMPDIR/out"
	diff -r "$data/out" "$BATS_TEST_TMPDIR/out" ||
		{ echo "where that is intended: tests/data/view/write tests/data/view/out, and look at git diff"; false; }
}
@test "bad JSON" { refuses_bad_json dlb-view; }
@test "empty input" { refuses_empty_input dlb-view; }
@test "no such file" { refuses_missing_file dlb-view; }
@test "other major version" { refuses_other_major dlb-view; }
@test "unknown member" { refuses_unknown_member "$doc" dlb-view; }
@test "full disk" { for f in table svg trace memory dot html; do refuses_full_disk "$doc" dlb-view -f $f; done; }
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
	# the message and --help name all that the manual describes
	local formats
	formats=$(awk '/^\.It Fl f/ { on = 1 } on && /^\.It Cm/ { print $3 } on && /^\.El/ { exit }' "$root/man/dlb-view.1")
	[ "$(wc -w <<<"$formats")" -ge 7 ]
	for f in $formats; do
		[[ $stderr == *[\ ]$f* ]]
		dlb-view --help | grep -qw -- "$f"
		run ! grep 'no format' <(dlb-view -f "$f" "$doc" 2>&1)
	done
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

@test "bandwidths that rounds have corrected are those of SimGrid's platform; the tables state the cluster's" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 64 "$root/share/models/digits_mlp.onnx" | dlb-costmodel -q -c 'cpu:1 host cpu:1' >cost.json
	jq -c '.balance = {weights: [1, 1], links: [.cluster.links | to_entries[] | {link: .key, factor: 0.125}]}' cost.json |
		dlb-place -q -a even >slow.json
	links() { dlb-view -q "$1" | grep '^  link ' | grep -v ' counts with '; }
	diff <(links slow.json) <(links cost.json)
	bandwidths() { dlb-convert --to simgrid "$1" | grep -o 'bandwidth="[^"]*"' | tr -dc '0-9.e+\n'; }
	paste <(bandwidths slow.json) <(bandwidths cost.json) | awk '$2 < 1e18 && ($1 / $2 < 0.124 || $1 / $2 > 0.126) { wrong = 1 } END { exit wrong || !NR }'
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

# bats test_tags=slow
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
	for f in table svg trace dot html; do
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
	n=$(jq '.graph.ops | length' "$doc")
	for op in no_such_op "$n" -1 '' 3x 99999999999999999999; do
		run -2 --separate-stderr dlb-view --why "$op" "$doc"
		one_line dlb-view "no op '$op'" "ids run from 0 to $((n - 1))"
	done
	run -0 dlb-view --why $((n - 1)) "$doc"
	jq -c 'del(.plan)' "$doc" >"$BATS_TEST_TMPDIR/unplanned.json"
	run -2 --separate-stderr dlb-view --why 0 "$BATS_TEST_TMPDIR/unplanned.json"
	one_line dlb-view plan
}

@test "a placement edited since its times were stated is said to be" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place >"$BATS_TEST_TMPDIR/plan.json"
	run ! grep -q edited <(dlb-view "$BATS_TEST_TMPDIR/plan.json")
	jq -c '.plan.placement[] |= 1 - .' "$BATS_TEST_TMPDIR/plan.json" | dlb-view | grep -q 'the placement was edited'
}

@test "the options that say what to write exclude each other, and --transfers wants a time-line" {
	run -2 --separate-stderr dlb-view --why 0 --diff "$doc" "$doc"
	one_line dlb-view 'give one of them'
	run -0 --separate-stderr dlb-view -f html --diff "$doc" "$doc"
	[ "$stderr" = 'dlb-view: --format has no effect: --diff answers in words' ]
	for f in table trace memory dot; do
		run -2 --separate-stderr dlb-view -f $f --transfers "$doc"
		one_line dlb-view '-f svg or -f html'
	done
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:1 | dlb-place >"$BATS_TEST_TMPDIR/one.json"
	run -0 --separate-stderr dlb-view -f svg --transfers "$BATS_TEST_TMPDIR/one.json"
	[[ $stderr == 'dlb-view: --transfers has no effect: '* && ${#stderr_lines[@]} -eq 1 ]]
	reported "$BATS_TEST_TMPDIR/round.json"
	for without in '.plan, .report' '.plan.timeline, .report' '.plan, .report.inputs, .report.plan_hash'; do
		jq -c "del($without, .plan.hash?)" "$BATS_TEST_TMPDIR/round.json" >"$BATS_TEST_TMPDIR/without.json"
		run -0 --separate-stderr dlb-view -f html --transfers "$BATS_TEST_TMPDIR/without.json"
		[[ $stderr == 'dlb-view: --transfers has no effect: '* && ${#stderr_lines[@]} -eq 1 ]]
	done
	run -2 --separate-stderr dlb-view -f dot <<<'{"dlb": "1.0"}'
	one_line dlb-view 'no graph in the document' 'dlb-profile'
}

@test "SVG: waits by kind on the time-line, busy in a colour that forward has not, messages as arrows when asked" {
	reported "$BATS_TEST_TMPDIR/round.json"
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place -a even -m 4 | dlb-run --dry-run >"$BATS_TEST_TMPDIR/even.json"
	dlb-view -f svg "$BATS_TEST_TMPDIR/even.json" >"$BATS_TEST_TMPDIR/x.svg"
	grep -q '<title>waits: starved, for node 0, ' "$BATS_TEST_TMPDIR/x.svg"
	grep -q '<title>waits: collective, ' "$BATS_TEST_TMPDIR/x.svg"
	run ! grep -q '<line.*marker-end' "$BATS_TEST_TMPDIR/x.svg"
	dlb-view -f svg --transfers "$BATS_TEST_TMPDIR/even.json" >"$BATS_TEST_TMPDIR/arrows.svg"
	python3 - "$BATS_TEST_TMPDIR/arrows.svg" <<-'END'
		import re, sys, xml.dom.minidom
		text = open(sys.argv[1]).read()
		xml.dom.minidom.parseString(text)
		fill = {t: c for c, t in re.findall(r'fill="(#\w+)"[^>]*><title>(\w+)', text)}
		assert len({fill['busy'], fill['forward'], fill['backward'], fill['update']}) == 4, fill
		ways = set(re.findall(r'marker-end.*from node (\d) to node (\d)', text))
		assert ways == {('0', '1'), ('1', '0')}, ways
		late = [x for x in re.findall(r'<line x1="([\d.]+)".* x2="([\d.]+)".*marker-end', text) if float(x[1]) < float(x[0]) - 1]
		assert not late, late
	END
}

@test "one step has one predicted time: the title's is the report's, of the optimizer that ran" {
	dlb-run -q --dry-run --optimizer kfac "$doc" >"$BATS_TEST_TMPDIR/kfac.json"
	dlb-view "$BATS_TEST_TMPDIR/kfac.json" >"$BATS_TEST_TMPDIR/table"
	planned=$(sed -n '/^plan /,/^report /s/.*step predicted \([^,]*\),.*/\1/p' "$BATS_TEST_TMPDIR/table")
	line=$(sed -n '/^report /,$s/^  step \([^,]*\), predicted \([^(]*\) ([^)]* to [^)]*), off by.*/\2, simulated \1/p' "$BATS_TEST_TMPDIR/table")
	[ -n "$planned" ] && [ -n "$line" ] && [[ $line != "$planned",* ]]
	dlb-view -f svg "$BATS_TEST_TMPDIR/kfac.json" >"$BATS_TEST_TMPDIR/kfac.svg"
	grep -q "step predicted $line<" "$BATS_TEST_TMPDIR/kfac.svg"
	grep -q "the plan's, made for sgd ($planned a step); what ran was kfac<" "$BATS_TEST_TMPDIR/kfac.svg"
	dlb-view -f svg "$doc" | grep -q "step predicted $planned<"
}

# bats test_tags=slow
@test "a prediction has an interval: wide where nothing was measured, narrower with each round like the last" {
	dlb-profile -q --analytic "$model" | dlb-costmodel -q -c cpu:2 | dlb-place -q >"$BATS_TEST_TMPDIR/doc.json"
	for round in 1 2 3 4; do
		dlb-run -q --dry-run "$BATS_TEST_TMPDIR/doc.json" >"$BATS_TEST_TMPDIR/ran.json"
		validates "$BATS_TEST_TMPDIR/ran.json"
		jq '.report | [.predicted_step_low_s, .predicted_step_s, .predicted_step_high_s] | (.[2] - .[0]) / .[1],
			(.[0] < .[1] and .[1] < .[2])' "$BATS_TEST_TMPDIR/ran.json" >"$BATS_TEST_TMPDIR/width.$round"
		[ "$(tail -1 "$BATS_TEST_TMPDIR/width.$round")" = true ]
		dlb-rebalance -q "$BATS_TEST_TMPDIR/ran.json" | dlb-place -q >"$BATS_TEST_TMPDIR/doc.json"
	done
	width() { head -1 "$BATS_TEST_TMPDIR/width.$1"; }
	jq -en "$(width 1) > 1 and $(width 2) < 0.2 and $(width 3) < $(width 2) and $(width 4) < $(width 3)"
	run -0 dlb-view "$BATS_TEST_TMPDIR/ran.json"
	grep -Eq '^  step [^,]*, predicted [0-9.]+ [mu]?s \([0-9.]+ [mu]?s to [0-9.]+ [mu]?s\), off by ' <<<"$output"
	dlb-view -f html "$BATS_TEST_TMPDIR/ran.json" | grep -q predicted_step_high_s
}

@test "the interval of a prediction widens with the spread of a step that the profile measured" {
	dlb-profile -q "$model" | dlb-costmodel -q -c cpu:1 >"$BATS_TEST_TMPDIR/cost.json"
	validates "$BATS_TEST_TMPDIR/cost.json"
	jq -e '.profile.kinds[0].step_spread == .cost.step_spread.cpu and .cost.step_spread.cpu >= 0' "$BATS_TEST_TMPDIR/cost.json"
	for spread in 0 0.05 0.2; do
		jq ".cost.step_spread.cpu = $spread" "$BATS_TEST_TMPDIR/cost.json" | dlb-place -q | dlb-run -q --dry-run |
			jq '.report | (.predicted_step_high_s - .predicted_step_low_s) / .predicted_step_s'
	done >"$BATS_TEST_TMPDIR/widths"
	jq -es '.[0] < 0.25 and .[1] > .[0] and .[1] < 0.35 and .[2] > 0.5' "$BATS_TEST_TMPDIR/widths"
	run -2 --separate-stderr dlb-place -q <(jq '.cost.step_spread.cpu = -1' "$BATS_TEST_TMPDIR/cost.json")
	[[ $stderr == *'step_spread'* ]]
}

@test "a step's overhead is measured, and predictions have it" {
	dlb-profile -q "$model" | dlb-costmodel -q -c cpu:1 >"$BATS_TEST_TMPDIR/cost.json"
	if [ "$(nproc)" -gt 1 ]; then	# one core also prepares the samples: not measured
		jq -e '.cost.step_overhead_s.cpu | . > 0 and . < 0.1' "$BATS_TEST_TMPDIR/cost.json"
	fi
	for overhead in 0 1.5; do
		jq ".cost.step_overhead_s.cpu = $overhead" "$BATS_TEST_TMPDIR/cost.json" | dlb-place -q | dlb-run -q --dry-run |
			jq '.report.predicted_step_s'
	done >"$BATS_TEST_TMPDIR/steps"
	jq -es '(.[1] - .[0] - 1.5 | fabs) < 1e-9' "$BATS_TEST_TMPDIR/steps"
	run -2 --separate-stderr dlb-place -q <(jq '.cost.step_overhead_s.cpu = -1' "$BATS_TEST_TMPDIR/cost.json")
	[[ $stderr == *'step_overhead_s'* ]]
}

@test "one micro-batch is singular" {
	for m in 1:micro-batch 2:micro-batches; do
		dlb-place -m ${m%:*} "$doc" >"$BATS_TEST_TMPDIR/m.json"
		dlb-view "$BATS_TEST_TMPDIR/m.json" | grep -q "^plan .* in ${m/:/ }\$"
		dlb-view -f svg "$BATS_TEST_TMPDIR/m.json" | grep -q ", ${m/:/ };"
	done
}

@test "the table has what was measured on the test data while training, at most 20 rows of it, the first and the last among them" {
	reported "$BATS_TEST_TMPDIR/reported.json"
	jq -c '.report.evaluations = [range(1; 101) | {step: (10 * .), test_loss: (1 / .), accuracy: (. / 100), time_s: 0.25}] |
		.report.best = {step: 1000, test_loss: 0.01, saved: "best.safetensors"}' "$BATS_TEST_TMPDIR/reported.json" >"$BATS_TEST_TMPDIR/evals.json"
	dlb-view "$BATS_TEST_TMPDIR/evals.json" | sed -n '/evaluation/,/best after/p' >"$BATS_TEST_TMPDIR/table"
	[[ $(sed -n 1p "$BATS_TEST_TMPDIR/table") == '  100 evaluations on the test data, some of them' ]]
	[ "$(sed -n '3p;$p' "$BATS_TEST_TMPDIR/table" | tr -s ' ')" = ' 10 1 0.0100 250 ms
 best after step 1000, test loss 0.01, saved best.safetensors' ]
	[ "$(tail -n 2 "$BATS_TEST_TMPDIR/table" | head -n 1 | tr -s ' ')" = ' 1000 0.01 1.0000 250 ms' ]
	[ "$(wc -l <"$BATS_TEST_TMPDIR/table")" -eq 23 ]
	jq -c '.report.evaluations = [{step: 5, test_loss: 2.5, time_s: 0.25}] | del(.report.best)' "$BATS_TEST_TMPDIR/evals.json" | dlb-view >"$BATS_TEST_TMPDIR/table"
	grep -q '^  1 evaluation on the test data$' "$BATS_TEST_TMPDIR/table"
	grep -Eq '^ +5 +2.5 +- +250 ms$' "$BATS_TEST_TMPDIR/table"
}

@test "SVG: a measured step far from the predicted one has a scale of its own, and both fill the width" {
	reported "$BATS_TEST_TMPDIR/round.json"
	jq -c '.report.timeline[] |= map([.[0], .[1], .[2] * 40, .[3] * 40])' "$BATS_TEST_TMPDIR/round.json" >"$BATS_TEST_TMPDIR/far.json"
	dlb-view -f svg "$BATS_TEST_TMPDIR/far.json" >"$BATS_TEST_TMPDIR/x.svg"
	grep -q 'on a scale of its own: 40 times the other' "$BATS_TEST_TMPDIR/x.svg"
	python3 - "$BATS_TEST_TMPDIR/x.svg" <<-'END'
		import re, sys
		ends = {}
		for x, y, w in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" [^>]*><title>(?:forward|backward|update)', open(sys.argv[1]).read()):
		    ends[y] = max(ends.get(y, 0), float(x) + float(w))
		widest = sorted(ends.values())[-2:]
		assert len(ends) >= 2 and all(1100 < e < 1175 for e in widest), ends
	END
}

@test "pictures give nodes without work one line together" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:6 | dlb-place -a single -m 2 | dlb-run --dry-run >"$BATS_TEST_TMPDIR/idle.json"
	for f in svg memory; do
		dlb-view -f $f "$BATS_TEST_TMPDIR/idle.json" >"$BATS_TEST_TMPDIR/x.svg"
		[ "$(grep -c 'nodes 1-5: no work' "$BATS_TEST_TMPDIR/x.svg")" -eq 1 ]
		run ! grep -q '>node [1-5]' "$BATS_TEST_TMPDIR/x.svg"
	done
}

@test "the memory plan has a viewBox, and what stays does not push the rest out of the picture" {
	dlb-profile -q --analytic --batch 1 "$root/share/models/lenet5.onnx" | dlb-costmodel -c cpu:1 | dlb-place -q -m 1 |
		dlb-view -f memory >"$BATS_TEST_TMPDIR/m.svg"
	grep -q '<svg .*viewBox="0 0 1200 ' "$BATS_TEST_TMPDIR/m.svg"
	grep -q 'not to scale' "$BATS_TEST_TMPDIR/m.svg"
	python3 - "$BATS_TEST_TMPDIR/m.svg" <<-'END'
		import re, sys
		text = open(sys.argv[1]).read()
		tops = [float(y) for y in re.findall(r'y="([\d.]+)" width="[\d.]+" height="[\d.]+" [^>]*><title>[^<]*instructions', text)]
		assert max(tops) - min(tops) > 150, tops
		frame = float(re.search(r'y="([\d.]+)" width="1060" height="340"', text)[1])		# the arena ends at its top
		assert abs(min(tops) - frame) < 0.1, (min(tops), frame)
	END
}

@test "dot tells edges between nodes from those within one" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place -a even >"$BATS_TEST_TMPDIR/even.json"
	dlb-view -f dot "$BATS_TEST_TMPDIR/even.json" >"$BATS_TEST_TMPDIR/x.dot"
	between=$(jq '.plan.placement as $at | ([.graph.ops[] | .id as $i | .outputs[] | values | {key: tostring, value: $i}] | from_entries) as $from |
		[.graph.ops[] | .id as $i | .inputs[] | values | $from[tostring] | values | select($at[tostring] != $at[$i | tostring])] | length' "$BATS_TEST_TMPDIR/even.json")
	[ "$between" -gt 0 ]
	[ "$(grep -c 'style=dashed' "$BATS_TEST_TMPDIR/x.dot")" -eq "$between" ]
	run ! grep 'style=dashed' <(dlb-view -f dot <(jq -c '.plan.placement[] = 0 | del(.plan.hash)' "$BATS_TEST_TMPDIR/even.json"))
}

@test "html: one page; nothing outside; texts of the document cannot leave the data" {
	evil='</script><script>alert(1)</script><img src=x onerror=alert(2)>&"'"'"
	jq -c --arg evil "$evil"$'\a\e[31m\u2028' '.graph.ops[0].name = $evil | .graph.tensors[0].name = "</SCRIPT >" + $evil | .graph.model.path = "/tmp/" + $evil |
		.provenance[0].arguments += [$evil] | del(.profile.inputs, .cost.inputs, .plan.inputs)' "$doc" >"$BATS_TEST_TMPDIR/evil.json"
	dlb-view -f html "$BATS_TEST_TMPDIR/evil.json" >"$BATS_TEST_TMPDIR/x.html"
	python3 - "$BATS_TEST_TMPDIR/x.html" "$evil" <<-'END'
		import html.parser, json, re, sys
		text = open(sys.argv[1], newline='').read()
		class Page(html.parser.HTMLParser):
		    tags, attributes, texts = [], [], {}
		    def handle_starttag(self, tag, attributes):
		        self.tags.append(tag)
		        self.attributes += attributes
		    def handle_data(self, data):
		        self.texts.setdefault((self.tags or ['none'])[-1] + str(self.tags.count('script')), []).append(data)
		page = Page()
		page.feed(text)
		assert page.tags.count('script') == 2 and 'img' not in page.tags, page.tags
		assert not [a for a in page.attributes if a[0] in ('src', 'onerror') or a[0] == 'href' and a[1] != 'data:,'], page.attributes
		assert not re.search(r'[\x00-\x08\x0b-\x1f\x7f]', text)
		assert '\u2028' not in ''.join(page.texts['script1'])		# escaped there; in the title it is ordinary text
		data = json.loads(''.join(page.texts['script1']))
		assert data['ops']['name'][0].startswith(sys.argv[2]) and data['ops']['name'][0].endswith(r'\x07\x1b[31m\u2028')
		assert sys.argv[2].split('/')[-1] in ''.join(page.texts['title0'])
		assert not re.search(r'(src|href)="?https?:|@import|url\((?!#)|fetch\(|XMLHttpRequest|innerHTML|insertAdjacent|document\.write|eval\(', text)
	END
}

# bats test_tags=slow
@test "html: of more spans than a page can draw, neighbours of one phase and micro-batch are merged, none is left out" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 2300 "$root/share/models/resnet8.onnx" | dlb-costmodel -q -c cpu:2 |
		dlb-place -q -m 2300 -a even --schedule gpipe >many.json
	dlb-view -q -f trace many.json >spans.json
	dlb-view -q -f html many.json | sed -n 's|^<script type="application/json" id="document">||p' | sed 's|</script>$||' >page
	python3 <<-'END'
		import json
		data, trace = json.load(open("page")), json.load(open("spans.json"))["traceEvents"]
		page = data["predicted"]
		# the groups whose step is simulated on the other node: as many as two million items allow
		assert len(data["why"]["steps_s"]) == int(2e6 / (len(data["ops"]["name"]) * 2300)) < max(data["why"]["group"])
		ticks_per_us = 1e-6 / page["tick_s"]
		for node, spans in enumerate(page["spans"]):
		    ops = [e for e in trace if e["ph"] == "X" and e["tid"] == node and "op" in e["args"]]
		    ops.sort(key=lambda e: e["ts"])
		    at = now = 0
		    for op, micro_batch, since, length, more in zip(*[iter(spans)] * 5):
		        group = ops[at:at + 1 + more]
		        at += 1 + more
		        start, now = now + since, now + since + length
		        assert group[0]["args"]["op"] == op
		        assert all(e["args"]["micro_batch"] == micro_batch and e["cat"] == group[0]["cat"] for e in group), group
		        assert abs(start - group[0]["ts"] * ticks_per_us) <= 1
		        assert abs(now - max(e["ts"] + e["dur"] for e in group) * ticks_per_us) <= 1
		    assert at == len(ops)
		assert page["joined"] and sum(len(s) for s in page["spans"]) <= 5 * 200000 < 5 * sum("op" in e["args"] for e in trace)
	END
}

@test "html: the page's data are those of the document: model, ops, nodes, cluster, rounds, provenance" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$root/share/models/digits_mlp.onnx" | dlb-costmodel -q -c 'cpu/2:2 host cpu:1*0.5' | dlb-place -q -a even -m 3 >doc.json
	for _ in 1 2; do
		dlb-run -q --dry-run --slow 1:3 --steps 3 doc.json | dlb-rebalance -q | dlb-place -q >next.json
		mv next.json doc.json
	done
	# all that a document may hold has a value of its own
	dlb-run -q --dry-run --steps 3 doc.json | jq -c '.report |= (.first_step = 7 | .accuracy = 0.625 | .test_loss = 1.5 | .saved = "s" | .wall_s = 2.5 |
		.losses = [range(9002) | (. * 37 % 101)] | .evaluations = [range(8001) | {step: (. + 1), test_loss: (. / 8), accuracy: (. / 8001), time_s: 1}] |
		.nodes |= (to_entries | map(.value * {bytes_sent: (.key + 11), peak_bytes: (.key + 21), wait_s: (.key + 31),
			waits: {starved: (.key + 41), backpressure: (.key + 51), collective: (.key + 61), structural: (.key + 71)}}))) |
		.plan |= (.moved_ops = 5) | .balance |= (.converged = true | .keep = true | .reason = "balanced" | .weights = [0.5, 1.25, 1.25] |
			.history[0] |= (.held = false | .rolled_back = true | .changed = true | .moved_ops = 3 | .weights = [0.75, 1, 1.25])) |
		.cluster |= (.kinds[0] |= (.peak_flops = 1e9 | .bandwidth_Bps = 2e9 | .memory_bytes = 3e9) | .nodes[1].memory_bytes = 1e9) |
		.provenance[1].arguments[1] = 5 | .provenance[2].arguments += ["a\u2028b\u2029c\u2030d<\u0007&>\"\\\u007f\u00e9"] | del(.cost.inputs, .plan.inputs, .report.inputs, .balance.inputs, .balance.best_plan)' >all.json
	dlb-view -q -f html all.json | sed -n 's|^<script type="application/json" id="document">||p' | sed 's|</script>$||' >page.json
	python3 <<-'END'
		import json, math
		d, p = json.load(open("all.json")), json.load(open("page.json"))
		def same(a, b, where):
		    if isinstance(b, float) and isinstance(a, (int, float)):
		        assert a == b or abs(a - b) <= 1e-6 * abs(b), (where, a, b)
		    elif isinstance(b, dict):
		        for k in b:
		            same(a[k], b[k], where + "/" + k)
		    elif isinstance(b, list):
		        assert len(a) == len(b), (where, a, b)
		        for i, (x, y) in enumerate(zip(a, b)):
		            same(x, y, "%s/%d" % (where, i))
		    else:
		        assert a == b and isinstance(a, bool) == isinstance(b, bool), (where, a, b)
		def part(o, *keys):
		    return {k: float(o[k]) if k.endswith(("_s", "Bps", "bytes")) and o.get(k) is not None else o.get(k) for k in keys}
		g, c, plan, report, balance = (d[k] for k in ("graph", "cluster", "plan", "report", "balance"))
		ops, tensors = g["ops"], g["tensors"]
		phases = ["forward", "backward", "update"]
		same(p["model"], {"path": g["model"]["path"], "batch": 16, "flop": float(sum(o["flop"] for o in ops)),
		                  "parameters": float(sum(math.prod(t["shape"]) for t in tensors if t["kind"] == "weight"))}, "model")
		same(p["ops"], {"name": [o["name"] for o in ops], "phase": [phases.index(o["phase"]) for o in ops], "flop": [float(o["flop"]) for o in ops],
		                "inputs": [[t for t in o["inputs"] if t is not None] for o in ops],
		                "node": [plan["placement"][str(i)] if isinstance(plan["placement"], dict) else plan["placement"][i] for i in range(len(ops))]}, "ops")
		same([p["ops"]["types"][t] for t in p["ops"]["type"]], [o["type"] for o in ops], "types")
		assert len(set(p["ops"]["types"])) == len(p["ops"]["types"])
		made = {t: o["id"] for o in ops for t in o["outputs"]}
		same(p["tensors"], {"name": [t["name"] for t in tensors], "producer": [made.get(t["id"], -1) for t in tensors]}, "tensors")
		same(p["plan"], {"algorithm": plan.get("winner", plan["algorithm"]), "moved_ops": 5, "replicas": 1, **part(plan, "schedule", "batch", "micro_batches", "value_s",
		     "bound_s", "gap", "imbalance", "optimizer")}, "plan")
		same(p["report"], {**part(report, "dry_run", "first_step", "steps", "optimizer", "stopped", "step_s", "step_se_s", "predicted_step_s", "wall_s", "batch",
		     "predicted_step_low_s", "predicted_step_high_s", "accuracy", "test_loss", "saved"), "prediction_error": float(report["prediction_error"]),
		     "imbalance": float(report["imbalance"]), "message_bytes": float(report["communication"]["bytes"]),
		     "message_s": float(report["communication"]["time_s"]), "hidden_s": float(report["communication"]["hidden_s"])}, "report")
		same(p["nodes"], [{"idle": False, "plan": {**part(n, "busy_s", "wait_s", "peak_bytes"), "replica": 0, "part": i},
		                   "report": {**part(r, "host", "busy_s", "predicted_busy_s", "wait_s", "bytes_sent", "peak_bytes"),
		                              "waits_s": [float(r["waits"][w]) for w in ("starved", "backpressure", "collective", "structural")]}}
		                  for i, (n, r) in enumerate(zip(plan["nodes"], report["nodes"]))], "nodes")
		kinds, groups, links = c["kinds"], [x["name"] for x in c["groups"]], [x["name"] for x in c["links"]]
		names = [k["name"] for k in kinds]
		index = lambda table, x: table.index(x) if x is not None else -1
		same(p["cluster"], {"kinds": [part(k, "name", "backend", "threads", "peak_flops", "bandwidth_Bps", "memory_bytes") for k in kinds],
		     "groups": [{"name": x["name"], "class": x["class"], "parent": index(groups, x.get("parent")), "inside": index(links, x.get("inside")), "up": index(links, x.get("up"))}
		                for x in c["groups"]],
		     "links": [{**part(x, "name", "class", "latency_s", "bandwidth_Bps", "overlap"), "duplex": x.get("duplex", x["overlap"])} for x in c["links"]]}, "cluster")
		same(p["cluster"]["nodes"], [{"kind": names.index(n["kind"]), "group": groups.index(n["group"]), "speed": float(n["speed"]), "host": n["host"]} for n in c["nodes"]], "nodes of the cluster")
		same([n["memory_bytes"] for n in p["cluster"]["nodes"]], [3e9, 1e9, None], "memory")
		same(p["balance"], {**part(balance, "rule", "round", "converged", "reason", "floor_s", "weights"), "kappa": [float(x) for x in balance["kappa"]],
		     "best_plan": balance["best"]["plan_hash"], "history": [{**part(h, "round", "step_s", "step_se_s", "predicted_step_s", "mean_excess_s", "moved_ops", "held",
		     "rolled_back", "changed"), "plan": h["plan_hash"], "weights": [float(w) for w in h["weights"]]} for h in balance["history"]]}, "balance")
		assert len(p["balance"]["history"]) == 2
		same(p["provenance"], [[x["tool"], *(a if isinstance(a, str) else "?" for a in x["arguments"])] for x in d["provenance"]], "provenance")
		assert "\u2028" not in open("page.json").read() and "\u2029" not in open("page.json").read()
		# of many losses the mean, least and most of three at a time; of many evaluations each third, the last among them
		rows = [report["losses"][i:i + 3] for i in range(0, 9002, 3)]
		same(p["losses"], {"first": 7, "stride": 3, "values": [float(x) for r in rows for x in (sum(r) / len(r), min(r), max(r))]}, "losses")
		same(p["evaluations"], [[e["step"], float(e["test_loss"]), float(e["accuracy"])] for e in report["evaluations"][2::3]], "evaluations")
	END
}

@test "html: what the page says of an op elsewhere is what --why says" {
	dlb-view -f html "$doc" >"$BATS_TEST_TMPDIR/x.html"
	dlb-view --why 3 "$doc" >"$BATS_TEST_TMPDIR/why"
	python3 - "$BATS_TEST_TMPDIR/x.html" "$BATS_TEST_TMPDIR/why" <<-'END'
		import json, re, sys
		data = json.loads(re.search(r'id="document">(.*?)</script>', open(sys.argv[1]).read(), re.S).group(1))
		why, group = data['why'], data['why']['group'][3]
		steps = {s[0]: s[1:] for s in why['steps_s']}[group]
		said = [l.split() for l in open(sys.argv[2]) if re.match(r'\d+ ', l)]
		assert len(said) == 2
		for row in said:
		    node = int(row[0])
		    assert abs(why['work_s'][group * why['classes'] + why['class'][node]] * 1e3 / float(row[2]) - 1) < 1e-3, row
		    assert abs(steps[node] * 1e3 / float(row[3]) - 1) < 1e-3, row
	END
}

@test "diff: moves and their gains, settings, weights, times; nothing where nothing differs" {
	a=$BATS_TEST_TMPDIR/a.json b=$BATS_TEST_TMPDIR/b.json
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 >"$BATS_TEST_TMPDIR/costs.json"
	dlb-place -a even -m 2 --schedule gpipe "$BATS_TEST_TMPDIR/costs.json" >"$a"
	dlb-place -m 4 "$BATS_TEST_TMPDIR/costs.json" | dlb-run --dry-run --slow 0:3 | dlb-rebalance | jq -c '.balance.weights = [0.5, 1.5]' >"$b"
	run -0 --separate-stderr dlb-view --diff "$a" "$b"
	[ -z "$stderr" ]
	for text in 'schedule *gpipe -> 1f1b' 'micro-batches *2 -> 4' 'step, predicted by the plan' 'node 0, weight' 'gain alone' 'rounds *0 -> 1'; do
		grep -q -e "$text" <<<"$output" || { echo "no '$text' in $output"; false; }
	done
	moved=$(jq -n --slurpfile a "$a" --slurpfile b "$b" '[$a[0].plan.placement as $p | $b[0].plan.placement | to_entries[] | select($p[.key] != .value)] | length')
	[ "$moved" -gt 0 ]
	grep -q "^moves    $moved ops in " <<<"$output"
	run -0 dlb-view --diff "$a" "$a"
	[[ $output == *'nothing differs'* ]]
}

@test "diff: the gain of a single move is the difference of the steps that --why states" {
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 | dlb-place -a even -m 4 >"$BATS_TEST_TMPDIR/a.json"
	dlb-view --why 0 "$BATS_TEST_TMPDIR/a.json" >"$BATS_TEST_TMPDIR/why"
	bound=$(sed -n 's/^bound to it://p' "$BATS_TEST_TMPDIR/why" | grep -o ' [0-9]* ' | tr -d ' ' | paste -sd,)
	jq -c --argjson ops "[0${bound:+,$bound}]" '.plan.placement[$ops[] | tostring] |= 1 - . | del(.plan.hash)' "$BATS_TEST_TMPDIR/a.json" >"$BATS_TEST_TMPDIR/b.json"
	run -0 dlb-view --diff "$BATS_TEST_TMPDIR/a.json" "$BATS_TEST_TMPDIR/b.json"
	printf '%s\n' "$output" >"$BATS_TEST_TMPDIR/diff"
	python3 - "$BATS_TEST_TMPDIR/why" "$BATS_TEST_TMPDIR/diff" <<-'END'
		import re, sys
		step = {int(l.split()[0]): float(l.split()[3]) for l in open(sys.argv[1]) if re.match(r'\d ', l)}
		m = re.search(r'(\d) -> (\d) +[\d.]+ \w+ +(-?[\d.e-]+) (\w+) +(-?[\d.e-]+) (\w+)', open(sys.argv[2]).read())
		unit = {'s': 1e3, 'ms': 1, 'us': 1e-3}
		alone, left = float(m[3]) * unit[m[4]], float(m[5]) * unit[m[6]]
		want = step[int(m[1])] - step[int(m[2])]
		assert abs(alone - want) < 0.01 * abs(want) + 1e-6 and abs(alone - left) < 1e-9, (alone, left, want)
	END
}

@test "diff: other graphs, a document without one, too few documents" {
	dlb-profile --analytic --batch 16 "$models/lenet5.onnx" >"$BATS_TEST_TMPDIR/other.json"
	run -2 --separate-stderr dlb-view --diff "$doc" "$BATS_TEST_TMPDIR/other.json"
	one_line dlb-view 'other graphs'
	jq -c '.graph.ops[2].name = "renamed" | del(.profile, .cost, .plan)' "$doc" >"$BATS_TEST_TMPDIR/renamed.json"
	run -2 --separate-stderr dlb-view --diff "$doc" "$BATS_TEST_TMPDIR/renamed.json"
	one_line dlb-view 'op 2' "'renamed'"
	run -2 --separate-stderr dlb-view --diff "$doc" <<<'{"dlb": "1.0"}'
	one_line dlb-view 'no graph'
	run -2 --separate-stderr dlb-view --diff /nonexistent/doc.json "$doc"
	one_line dlb-view "cannot open '/nonexistent/doc.json'"
}

@test "the front as a picture: points and marks of the axes are on one scale, inside the frame, and their texts are their values" {
	planned "$BATS_TEST_TMPDIR/plan.json"
	picture() { # FRONT
		jq -c --argjson front "$1" 'del(.plan.hash) | .plan.front = $front' "$BATS_TEST_TMPDIR/plan.json" >"$BATS_TEST_TMPDIR/front.json"
		dlb-view -q -f front "$BATS_TEST_TMPDIR/front.json" >"$BATS_TEST_TMPDIR/front.svg"
		python3 - "$BATS_TEST_TMPDIR" <<-'END'
			import json, re, sys, xml.etree.ElementTree as xml
			front = json.load(open(sys.argv[1] + "/front.json"))["plan"]["front"]
			svg = xml.parse(sys.argv[1] + "/front.svg").getroot()
			tag = lambda name: [x for x in svg if x.tag.endswith("}" + name)]
			width, height = float(svg.get("width")), float(svg.get("height"))
			assert svg.get("viewBox") == "0 0 %g %g" % (width, height)
			left, top, bottom, right = map(float, re.fullmatch(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)", tag("path")[0].get("d")).groups())
			assert 0 < left < width / 4 and 0 < top < height / 4 and height * 3 / 4 < bottom < height and width * 3 / 4 < right < width
			points = [tuple(map(float, p.split(","))) for p in tag("polyline")[0].get("points").split(" ")]
			circles = [(float(c.get("cx")), float(c.get("cy"))) for c in tag("circle")]
			assert points == circles and len(points) == len(front)
			assert all(left <= x <= right and top <= y <= bottom for x, y in points), points
			unit = {"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "s": 1, "ms": 1e-3, "us": 1e-6}
			def value(text):
			    n, u = text.split()
			    return float(n) * unit[u]
			for c, f in zip(tag("circle"), front):
			    m = re.fullmatch(r"([\d.]+ \w+), ([\d.]+ \w+) a step, (\d+) ops run again", c[0].text)
			    assert abs(value(m[1]) / f["bytes"] - 1) < 0.01 and abs(value(m[2]) / f["value_s"] - 1) < 0.01 and int(m[3]) == f["again"], (c[0].text, f)
			texts = [(float(t.get("x")), float(t.get("y")), t.get("text-anchor"), t.text) for t in tag("text")]
			across = [t for t in texts if t[2] == "middle" and re.match(r"\d", t[3])]
			up = [t for t in texts if t[2] == "end"]
			assert len(across) == len(up) == 6
			assert all(bottom < y < height for _, y, _, _ in across) and all(0 < x < left for x, _, _, _ in up)
			title = [t for t in texts if t[3] == "memory of the fullest node"][0]
			assert title[0] == (left + right) / 2 and across[0][1] + 10 < title[1] < height
			assert [t for t in texts if t[3].startswith("seconds per step")][0][1] < top
			# marks from end to end of the axes, at equal distances
			assert [x for x, *_ in across] == [left + (right - left) * i / 5 for i in range(6)], across
			assert [round(y - up[5][1], 1) for _, y, *_ in up] == [round((bottom - top) * (5 - i) / 5, 1) for i in range(6)], up
			assert abs(up[5][1] - 4 - top) < 1
			# a tenth of the range is left on each side, but nothing below 0; a point alone is in the middle
			if len(front) == 1:
			    assert points == [((left + right) / 2, (top + bottom) / 2)]
			    sys.exit()
			for key, at, begin, end, marks in (("bytes", 0, left, right, across), ("value_s", 1, bottom, top, up)):
			    values = [f[key] for f in front]
			    tenth = (max(values) - min(values)) / 10
			    low, high = max(0, min(values) - tenth), max(values) + tenth
			    for p, v in zip(points, values):
			        assert abs(p[at] - begin - (v - low) / (high - low) * (end - begin)) < 0.06, (key, p, v)
			    for i, m in enumerate(marks):
			        v = low + (high - low) * i / 5
			        assert abs(value(m[3]) - v) <= 0.0051 * v, (key, m, v)
		END
	}
	picture '[{"bytes": 90e6, "value_s": 2, "again": 0}, {"bytes": 50e6, "value_s": 2.5, "again": 3}, {"bytes": 30e6, "value_s": 4, "again": 17}]'
	picture '[{"bytes": 90e6, "value_s": 2, "again": 5}]'
	picture '[{"bytes": 90e6, "value_s": 0.125, "again": 0}, {"bytes": 5e6, "value_s": 4, "again": 2}]'
}

@test "diff: every value that differs, and no other, on a line of its own with the change in percent" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:3 | dlb-place -q -a even -m 2 | dlb-run -q --dry-run --steps 4 |
		jq -c 'del(.cost.inputs, .plan.inputs, .report.inputs) | .report |= (.losses = [3, 2] | .step_s = 0.5 | .predicted_step_s = 0.25 | .nodes[].busy_s = 0.125 | .nodes[].wait_s = 1) |
			.plan |= (.value_s = 0.5 | .bound_s = 0.25 | .imbalance = 1.5 | .nodes[].busy_s = 0.125 | .nodes[].peak_bytes = 2000) |
			.balance = {weights: [1, 1, 1], kappa: [1, 1, 1], round: 1}' >a.json
	jq -c '.balance = {weights: [0.5, 1, 1.5], kappa: [1, 2, 1], round: 3, converged: true, reason: "floor"} | .cluster.nodes[1].speed = 0.5 |
		.report |= (.losses = [3, 2, 1.5] | .accuracy = 0.75 | .step_s = 1 | .predicted_step_s = 1 | .nodes[1].busy_s = 0.25 | .nodes[2].wait_s = 0.5) |
		.plan |= (.value_s = 0.55 | .bound_s = 0.125 | .imbalance = 3 | .nodes[0].busy_s = 0.25 | .nodes[2].peak_bytes = 3000 | .optimizer = "adam" | del(.hash))' a.json >b.json
	dlb-view --diff a.json b.json | tr -s ' ' >lines
	diff lines - <<-'END'
		first a.json
		second b.json

		made otherwise
		 optimizer sgd -> adam

		machine
		 node 1, speed 1 -> 0.5 (-50.0 %)

		balance
		 rounds 1 -> 3
		 balanced no -> floor
		 node 0, weight 1 -> 0.5 (-50.0 %)
		 node 2, weight 1 -> 1.5 (+50.0 %)
		 node 1, kappa 1 -> 2 (+100.0 %)

		times
		 step, predicted by the plan 500 ms -> 550 ms (+10.0 %)
		 lower bound 250 ms -> 125 ms (-50.0 %)
		 imbalance, predicted 1.5 -> 3 (+100.0 %)
		 node 0, busy, predicted 125 ms -> 250 ms (+100.0 %)
		 node 2, peak 2 kB -> 3 kB (+50.0 %)
		 step, simulated or measured 500 ms -> 1 s (+100.0 %)
		 step, predicted for the run 250 ms -> 1 s (+300.0 %)
		 last loss 2 -> 1.5 (-25.0 %)
		 accuracy - -> 0.75
		 node 1, busy 125 ms -> 250 ms (+100.0 %)
		 node 2, waiting 1 s -> 500 ms (-50.0 %)
	END
	# what only one of them has
	jq -c 'del(.plan, .report, .balance)' a.json >costs.json
	dlb-view --diff a.json costs.json | tail -n +3 | tr -s ' ' >lines
	diff lines - <<-'END'

		made otherwise
		 plan there -> none

		balance
		 rounds 1 -> 0

		times
		 step, predicted by the plan 500 ms -> -
		 lower bound 250 ms -> -
		 imbalance, predicted 1.5 -> -
		 step, simulated or measured 500 ms -> -
		 step, predicted for the run 250 ms -> -
	END
	# a node that the second has not; values of a weight that one has not are 1
	jq -c '.cluster.nodes |= .[0:2] | .balance = {weights: [0.75, 1.25], round: 1} | .plan |= (.placement[] |= ([., 1] | min) | del(.hash, .timeline) | .nodes |= .[0:2])' a.json >two.json
	jq -c '.balance.weights = [0.5, 1, 1.5]' a.json >third.json
	dlb-view --diff third.json two.json | tr -s ' ' >lines
	for line in ' nodes 3 -> 2' ' node 1, weight 1 -> 1.25 (+25.0 %)' ' node 2, weight 1.5 -> 1 (-33.3 %)' ' node 0, weight 0.5 -> 0.75 (+50.0 %)' 'moves the first plan has ops on nodes that the second document does not have'; do
		grep -qxF -e "$line" lines
	done
	run ! grep -q kappa lines
	# measured runs are called so; nothing but the run differs
	jq -c '.report.dry_run = false' a.json >measured.json
	[ "$(dlb-view --diff measured.json <(jq -c '.report.step_s = 0.25' measured.json) | tail -n +3 | tr -s ' ')" = $'\ntimes\n step, measured 500 ms -> 250 ms (-50.0 %)' ]
	[ "$(dlb-view --diff a.json <(jq . a.json) | tail -n 1)" = 'nothing differs: the same graph, machine, weights, plan and times' ]
}

@test "diff: groups of ops that moved, those with the most work first, 40 of them" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/resnet8.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even | jq -c 'del(.plan.hash, .plan.timeline)' >a.json
	jq -c '.plan.placement[] |= 1 - .' a.json >b.json
	dlb-view --diff a.json b.json >lines
	python3 - <<-'END'
		import json, re
		d, text = json.load(open("b.json")), open("lines").read()
		a = json.load(open("a.json"))["plan"]["placement"]
		group = {}
		for o in d["graph"]["ops"]:
		    at = o["id"]
		    while d["graph"]["ops"][at].get("colocate") is not None:
		        at = d["graph"]["ops"][at]["colocate"]
		    group.setdefault(at, []).append(o["id"])
		ops, n = map(int, re.search(r"^moves    (\d+) ops in (\d+) groups", text, re.M).groups())
		assert ops == len(d["graph"]["ops"])
		rows = re.findall(r"^  (\d) -> (\d) +([\d.]+) (\w+) .* (\d+) (\S+?)(?: and (\d+) bound to it)?$", text, re.M)
		assert len(rows) == 40 and int(re.search(r"\.\.\. and (\d+) more groups", text)[1]) == n - 40
		work = [float(r[2]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[r[3]] for r in rows]
		assert work == sorted(work, reverse=True), work
		for r in rows:
		    op = int(r[4])
		    assert d["graph"]["ops"][op]["name"] == r[5]
		    assert (a[str(op)], d["plan"]["placement"][str(op)]) == (int(r[0]), int(r[1]))
		    members = next(g for g in group.values() if op in g)
		    assert op == min(members) and len(members) - 1 == int(r[6] or 0), (r, members)
	END
}

@test "diff: of moves with the same work those of ops with lower ids first" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even |
		jq -c 'del(.plan.hash, .plan.timeline, .plan.inputs, .cost.inputs) | .cost.rows[].time_s.cpu |= map(2)' >a.json
	jq -c '.plan.placement[] |= 1 - .' a.json >b.json
	dlb-view --diff a.json b.json | grep ' -> . .* s ' | sed -E 's/^ +. -> . +//' | awk '{ print $1, $7 }' >rows
	# less work further down, and among rows of the same work rising ids
	awk 'NR > 1 && ($1 > work || $1 == work && $2 <= op) { bad = 1 } NR > 1 && $1 == work { same = 1 } { work = $1; op = $2 } END { exit bad || !same || NR < 6 }' rows || { cat rows; false; }
}

@test "diff: which op or tensor differs between two graphs" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | jq -c 'del(.profile)' >a.json
	other() { # JQ TEXT
		jq -c "$1" a.json >b.json
		for pair in 'a.json b.json' 'b.json a.json'; do
			# shellcheck disable=SC2086
			run -2 --separate-stderr dlb-view --diff $pair
			one_line dlb-view "$2"
		done
	}
	other '.graph.ops[2].name = "other"' 'other graphs: op 2 is '
	other '(.graph.ops[] | select(.name == "/1/Gemm") | .inputs) |= [.[0], .[1]]' "other graphs: op 1 is '/1/Gemm' (Gemm) in one, '/1/Gemm' (Gemm) in the other, with other inputs"
	other '.graph.tensors[0].name = "other"' "other graphs: tensor 0, '"
	other '.graph.tensors |= (.[-1].name = "last")' "other graphs: tensor $(jq '.graph.tensors | length - 1' a.json), '"
	run -0 dlb-view --diff a.json a.json
	# optimizers append states: the tensors that both have are compared
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:1 >costs.json
	dlb-place -q costs.json >sgd.json
	dlb-place -q --optimizer adam costs.json >adam.json
	for pair in 'sgd.json adam.json' 'adam.json sgd.json'; do
		# shellcheck disable=SC2086
		run -0 dlb-view --diff $pair
		[[ $output == *optimizer* ]]
	done
}

@test "SVG: the losses of a run, from the first step to the last, between the least and the most" {
	reported "$BATS_TEST_TMPDIR/round.json"
	for losses in '[3, 1]' '[5, 4, 4.5, 1.25, 2]' '[range(5000) | . * 7 % 1009 + 1]' '[4, null, 2, 3]'; do
		jq -c ".report |= (.losses = $losses | .first_step = 12)" "$BATS_TEST_TMPDIR/round.json" >"$BATS_TEST_TMPDIR/losses.json"
		dlb-view -q -f svg "$BATS_TEST_TMPDIR/losses.json" >"$BATS_TEST_TMPDIR/x.svg"
		python3 - "$BATS_TEST_TMPDIR" <<-'END'
			import json, re, sys
			losses, text = json.load(open(sys.argv[1] + "/losses.json"))["report"]["losses"], open(sys.argv[1] + "/x.svg").read()
			m = re.search(r'<rect x="(\d+)" y="([\d.]+)" width="(\d+)" height="(\d+)" fill="none" stroke="#cccccc"/>\n<polyline fill="none" stroke="#0072b2" stroke-width="1.5" points="([^"]*)"', text)
			left, top, width, height = map(float, m.groups()[:4])
			points = [tuple(map(float, p.split(","))) for p in m[5].split()]
			known = [x for x in losses if x is not None]
			lo, hi, n = min(known), max(known), len(losses)
			assert len(points) <= 4 * width and (n > 2 * width or len(points) == len(known))
			for i, (x, y) in enumerate(points):
			    at = (x - left) / width * (n - 1)
			    near = [k for k in range(max(0, int(at) - 1), min(n, int(at) + 3)) if losses[k] is not None and abs(left + width * k / (n - 1) - x) < 0.06]
			    assert any(abs(top + height * (1 - (losses[k] - lo) / (hi - lo)) - y) < 0.06 for k in near), (i, x, y)
			assert points[0][0] == left and left + width - points[-1][0] < 1
			labels = {t: (float(x), float(y)) for x, y, t in re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', text)}
			assert labels["%.4g" % hi][0] < left and top <= labels["%.4g" % hi][1] <= top + 20
			assert labels["%.4g" % lo][0] < left and top + height - 10 <= labels["%.4g" % lo][1] <= top + height
			first, last = labels["step 12"], labels["step %d" % (12 + n - 1)]
			assert first[0] == left and last[0] == left + width and first[1] == last[1] > top + height
			assert float(re.search(r'<svg [^>]*height="([\d.]+)"', text)[1]) > first[1]
		END
	done
	# one loss, or losses that are all alike, make no line
	for losses in '[3]' '[2, 2, 2]'; do
		jq -c ".report.losses = $losses" "$BATS_TEST_TMPDIR/round.json" | dlb-view -q -f svg >"$BATS_TEST_TMPDIR/x.svg"
		run ! grep '>loss<' "$BATS_TEST_TMPDIR/x.svg"
	done
}

@test "html: the page of a part of a document has what there is, and nothing else" {
	cd "$BATS_TEST_TMPDIR"
	reported round.json
	keys() { jq -c "$1 | del(.profile.inputs, .cost.inputs, .plan.inputs, .report.inputs)" round.json | dlb-view -q -f html |
		sed -n 's|^<script type="application/json" id="document">||p' | sed 's|</script>$||' | jq -c 'keys - ["file", "transfers"]'; }
	title() { jq -c "$1" round.json | dlb-view -q -f html >x.html; tr '\n' ' ' <x.html | grep -o '<title>.*</title> <style>'; }
	[ "$(title 'del(.run)')" = '<title>digits_cnn.onnx - dlb</title> <style>' ]
	[ "$(title '.graph.model.path = "bare" | .run = {name: "a<b"} | del(.profile.inputs, .cost.inputs, .plan.inputs, .report.inputs)')" = '<title>a&lt;b: bare - dlb</title> <style>' ]
	[ "$(title '{dlb}')" = '<title>&lt;stdin&gt; - dlb</title> <style>' ]
	[ "$(keys '{dlb}')" = '["nodes","provenance"]' ]
	[ "$(keys '{dlb, cluster}')" = '["cluster","nodes","provenance"]' ]
	[ "$(keys '{dlb, graph}')" = '["model","nodes","ops","provenance","tensors"]' ]
	[ "$(keys '{dlb, report: (.report | del(.losses, .timeline))}')" = '["nodes","provenance","report"]' ]
	[ "$(keys '{dlb, graph, cluster, cost, plan: (.plan | del(.timeline))}')" = '["cluster","memory","model","nodes","ops","plan","provenance","tensors","why"]' ]
}

@test "the table of a profile without costs has its times by type of op, the longest first" {
	dlb-profile -q "$models/digits_mlp.onnx" | jq -c '{dlb, graph, profile}' >"$BATS_TEST_TMPDIR/profile.json"
	dlb-view "$BATS_TEST_TMPDIR/profile.json" >"$BATS_TEST_TMPDIR/table"
	python3 - "$BATS_TEST_TMPDIR" <<-'END'
		import json, re, sys
		d, text = json.load(open(sys.argv[1] + "/profile.json")), open(sys.argv[1] + "/table").read()
		kind, ops = d["profile"]["kinds"][0]["name"], d["graph"]["ops"]
		time, count = {}, {}
		for o in ops:
		    count[o["type"]] = count.get(o["type"], 0) + 1
		for r in d["profile"]["rows"]:
		    for o in r["ops"]:
		        t = r["time_s"].get(kind)
		        t = t[0] if isinstance(t, list) else t
		        time[ops[o]["type"]] = time.get(ops[o]["type"], 0) + (t or 0)
		total = sum(time.values())
		rows = re.findall(r"^  (\w+) +(\d+) +[\d.e+]+ \w+ +([\d.]+) (\w+) +([\d.]+)%$", text, re.M)
		assert {r[0] for r in rows} == set(count) and total > 0, (rows, text)
		assert [time[r[0]] for r in rows] == sorted((time[r[0]] for r in rows), reverse=True)
		for name, n, t, unit, share in rows:
		    assert int(n) == count[name]
		    assert abs(float(t) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit] - time[name]) <= 0.006 * time[name] + 1e-12, (name, t, unit, time[name])
		    assert abs(float(share) - 100 * time[name] / total) < 0.051
	END
}

@test "html: the memories of a machine; trace: a document without a time-line" {
	dlb-profile -q --cluster --topology "$root/tests/data/topology-2x2-cxl.xml" >"$BATS_TEST_TMPDIR/cxl.json"
	dlb-view -q -f html "$BATS_TEST_TMPDIR/cxl.json" | sed -n 's|^<script type="application/json" id="document">||p' | sed 's|</script>$||' >"$BATS_TEST_TMPDIR/page.json"
	jq -e --slurpfile d "$BATS_TEST_TMPDIR/cxl.json" '[.cluster.groups[].name] as $groups | [.cluster.memories[] | [.name, .class, $groups[.group], .count, (.bytes / 1e6 | round)]] ==
		[$d[0].cluster.memories[] | [.name, .class, .group, .count // 1, (.bytes / 1e6 | round)]] and (.cluster.memories | length > 4) and [.cluster.nodes[].memory_bytes / 1e6 | round] ==
		[$d[0].cluster.nodes[].memory_bytes / 1e6 | round]' "$BATS_TEST_TMPDIR/page.json" || { cut -c1-3000 "$BATS_TEST_TMPDIR/page.json"; false; }
	jq -c '.cluster.nodes[1].memory = ["dram0", "cxl4"]' "$BATS_TEST_TMPDIR/cxl.json" | dlb-view -q -f html | sed -n 's|^<script type="application/json" id="document">||p' |
		sed 's|</script>$||' >"$BATS_TEST_TMPDIR/page.json"
	[ "$(jq -c '[.cluster.nodes[].memories]' "$BATS_TEST_TMPDIR/page.json")" = '[[],[0,4],[],[],[],[],[],[]]' ]
	run -2 --separate-stderr dlb-view -f trace "$BATS_TEST_TMPDIR/cxl.json"
	one_line dlb-view 'no time-line in the document' 'dlb-place'
}

@test "the table of what --compress auto weighed: saved against the class without compression" {
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c 'cpu:1 host cpu:1' | dlb-place -q --replicas 2 --compress bf16 >"$BATS_TEST_TMPDIR/plan.json"
	jq -c 'del(.plan.hash) | .plan.compress_advice = [{class: "gradient", compress: "none", bytes: 4000, step_s: 0.5},
		{class: "gradient", compress: "bf16", bytes: 2000, step_s: 0.375, error: 0.004, error_of: "sums", chosen: true},
		{class: "gradient", compress: "lowrank:4", bytes: 1000, step_s: 0.5, error: 0.05, error_of: "loss"},
		{class: "small", compress: "none", bytes: 20, step_s: 0.25, chosen: true}, {class: "small", compress: "bf16", bytes: 10, step_s: 0.375, error: 0.004, error_of: "sums"}]' \
		"$BATS_TEST_TMPDIR/plan.json" | dlb-view | sed -n '/^  compression/,/^  node/p' | sed '$d' | tr -s ' ' >"$BATS_TEST_TMPDIR/table"
	diff "$BATS_TEST_TMPDIR/table" - <<-'END'
		 compression bytes step saves error
		 gradient none 4 kB 500 ms none
		 bf16 2 kB 375 ms 125 ms 0.4 % of sums <- chosen
		 lowrank:4 1 kB 500 ms 0 us 5 % of loss; costs more than it saves
		 small none 20 B 250 ms none <- chosen
		 bf16 10 B 375 ms -125 ms 0.4 % of sums; costs more than it saves
	END
}

@test "SVG: a rectangle for each span of the plan with its op and times, neighbours of one phase and micro-batch together; marks of the axis at their times" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even -m 2 >plan.json
	for end in 0.004 0.0015 0.0072; do
		# [op, micro-batch, start, end] in thousandths of the end; 0 and 1 touch, 2 is of another micro-batch, 12 an update
		jq -c --argjson e $end 'del(.plan.hash) | .plan.value_s = $e | .plan.timeline = ([[[0, 0, 0, 100], [1, 0, 100, 200], [2, 1, 200, 300], [3, 1, 400, 450], [9, 1, 450, 500]],
			[[10, 0, 500, 600], [11, 0, 600, 700], [12, -1, 800, 1000]]] | map(map([.[0], .[1], .[2] * $e / 1000, .[3] * $e / 1000])))' plan.json >spans.json
		dlb-view -q -f svg spans.json >x.svg
		python3 - <<-'END'
			import json, re
			d, text = json.load(open("spans.json")), open("x.svg").read()
			end, name = d["plan"]["value_s"], [o["name"] for o in d["graph"]["ops"]]
			frames = [tuple(map(float, m)) for m in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="\d+" fill="#f1f3f5"/>', text)]
			assert len(frames) == 2 and frames[0][0] == frames[1][0] and frames[0][2] == frames[1][2]
			left, width = frames[0][0], frames[0][2]
			rects = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="\d+" fill="(#\w+)" fill-opacity="([\d.]+)"><title>([^<]*)</title>', text)
			want = [(0, 0, 200, "forward, micro-batch 0, %s and 1 more" % name[0], "1"), (0, 200, 300, "forward, micro-batch 1, " + name[2], "0.7"),
			        (0, 400, 450, "forward, micro-batch 1, " + name[3], "0.7"), (0, 450, 500, "backward, micro-batch 1, " + name[9], "0.7"),
			        (1, 500, 700, "backward, micro-batch 0, %s and 1 more" % name[10], "1"), (1, 800, 1000, "update, " + name[12], "1")]
			assert len(rects) == len(want), rects
			for (x, y, w, fill, opacity, title), (node, a, b, told, o) in zip(rects, want):
			    assert abs(float(x) - left - width * a / 1000) < 0.02 and abs(float(w) - width * (b - a) / 1000) < 0.02 and float(y) == frames[node][1], (x, y, w, told)
			    assert title == "%s, %.4g to %.4g ms" % (told, a * end, b * end) and opacity == o, (title, told)
			assert len({r[3] for r in rects}) == 3
			marks = re.findall(r'<line x1="([\d.]+)" x2="\1" y1="([\d.]+)" y2="[\d.]+" stroke="#888888"/>\n<text x="([\d.]+)" y="([\d.]+)" text-anchor="middle">([^<]*)<', text)
			assert 3 <= len(marks) <= 9, marks
			for x, y, at, below, label in marks:
			    t = 0 if label == "0" else float(label.split()[0]) * {"ms": 1e-3, "us": 1e-6, "s": 1}[label.split()[1]]
			    assert x == at and abs(float(x) - left - width * t / end) < 0.06 and float(below) > float(y), (x, label)
			steps = [float(b[0]) - float(a[0]) for a, b in zip(marks, marks[1:])]
			assert max(steps) - min(steps) < 0.11 and float(marks[-1][0]) + steps[0] > left + width
			numbers = re.findall(r'text-anchor="middle" fill="white" font-size="10">(\d+)<', text)
			assert numbers == ["0", "1", "1", "1", "0"], numbers
		END
	done
}

@test "the table of a report and of balancing, line for line" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a even | dlb-run -q --dry-run | jq -c '
		del(.cost.inputs, .plan.inputs, .report.inputs) | .report |= (.stopped = "signal" | .steps = 12 | .first_step = 5 | .step_s = 0.5 | .predicted_step_s = 0.25 |
			del(.predicted_step_low_s, .predicted_step_high_s) | .prediction_error = 0.5 | .imbalance = 1.25 | .losses = [3, 1, 2] | .accuracy = 0.75 | .saved = "w.safetensors" | .varies = true | .batch_statistics = "all" |
			.communication = {bytes: 4000, time_s: 0.5, hidden_s: 0.125, in_place_bytes: 1000} |
			.events = [{step: 7, node: 1, cause: "lost", notice_s: 2, resume_s: 0.5, from_step: 6, copies: true}, {node: 0, cause: "back", rejoined: true}, {step: 9, node: 1, cause: "lost", from_step: 8}] |
			.buddy = {every: 3, bytes: 5000, sent_bytes: 2000, buddies: [1, 0], link_s: 0.125, predicted_time_s: 0.25} |
			.delays = [{weight: "a", node: 0, least: 2, most: 3}, {weight: "b", node: 1, least: 1, most: 2}, {weight: "c", node: 1, least: 2, most: 5}] |
			.kfac = {weights: ["a", "b"], others: "adam", inverses: 7, shifted: 2, kept: 1, held_back: 3, left: [{weight: "c", why: "too large"}], not_symmetric: 0, not_definite: 4} |
			.nodes |= [.[0] + {busy_s: 0.125, predicted_busy_s: 0.25, wait_s: 0.375, waits: {starved: 0.25, backpressure: 0.125, collective: 0, structural: 0}, peak_bytes: 3000, process_bytes: 9000, predicted_process_bytes: 8000, data_wait_s: 0.125},
				.[1] + {busy_s: 0.25, predicted_busy_s: 0.125, wait_s: 0.25, waits: {starved: 0.0625, backpressure: 0.1875, collective: 0, structural: 0}, peak_bytes: 4000, process_bytes: 0, predicted_process_bytes: 0, data_wait_s: 0}]) |
			.balance = {rule: "log", round: 2, converged: true, reason: "floor", weights: [0.5, 1.5], links: [{link: 0, factor: 0.125}],
				history: [{round: 1, step_s: 1, predicted_step_s: 0.5, mean_excess_s: 0.25, weights: [1, 1]}, {round: 2, step_s: 0.5, predicted_step_s: 0.25, mean_excess_s: 0.125, weights: [0.5, 1.5]}]}' >report.json
	shows() { # JQ: of the report on, in single spaces
		jq -c "$1" report.json | dlb-view | sed -n '/^report/,$p' | tr -s ' '
	}
	diff <(shows .) - <<-'END'
		report simulated, 12 steps from step 5, ended by signal
		 step 500 ms, predicted 250 ms, off by 50.0%, imbalance 1.250
		 loss 3 -> 2
		 forward ops read weights 1 to 5 updates behind
		 kfac: 2 weights preconditioned, the others by adam; 7 inverses, 2 with more on the diagonal, 1 not made; 3 steps held back by the trust region
		 kfac: left to adam: c: too large
		 kfac: 0 exchanges with a factor not symmetric, 4 factors not positive definite, 0 hops failed, 0 moments not finite
		 bits differ between runs: a kind of node adds in any order (--fast-math)
		 batch statistics of all replicas together
		 accuracy 0.7500
		 at step node noticed resumed lost or put back
		 7 1 2 s 500 ms lost; went on from step 6, by copies
		 - 0 - - back
		 9 1 - - lost; went on from step 8
		 copies of the state every 3 steps: 5 kB, 2 kB to other hosts; they add - to a step, predicted 250 ms
		 1 kB of the messages written where they are read, never copied
		 messages 3 kB in 500 ms, 25% of it while computing
		 samples: node 0 waits 125 ms a step for them (25.0%)
		 saved w.safetensors
		 node busy predicted wait starved held up peak process expected
		 0 125 ms 250 ms 375 ms 250 ms 125 ms 3 kB 9 kB 8 kB
		 1 250 ms 125 ms 250 ms 62.5 ms 188 ms 4 kB - -

		balance round 2, rule log, converged: floor
		 link shm:h0 counts with 0.125 of its 6000 MB/s
		 round measured predicted excess weights
		 1 1 s 500 ms 250 ms 1.000 1.000
		 2 500 ms 250 ms 125 ms 0.500 1.500
	END
	diff <(shows 'del(.report.stopped, .report.events, .report.delays) | .report |= (.communication = {bytes: 4000, time_s: 0.5, hidden_s: 0.125, in_place_bytes: 4000} |
		.batch_statistics = "replica" | .buddy.every = 1 | .buddy.time_s = 2 | .nodes[0].data_wait_s = 0.005 | .kfac = {weights: [], others: "sgd"} | del(.saved) |
		.predicted_step_low_s = 0.125 | .predicted_step_high_s = 0.375) | .balance |= (.converged = false | .reason = null | .links[0].factor = 1)') - <<-'END'
		report simulated, 12 steps from step 5
		 step 500 ms, predicted 250 ms (125 ms to 375 ms), off by 50.0%, imbalance 1.250
		 loss 3 -> 2
		 kfac: 0 weights preconditioned, the others by sgd; 0 inverses, 0 with more on the diagonal, 0 not made; 0 steps held back by the trust region
		 bits differ between runs: a kind of node adds in any order (--fast-math)
		 batch statistics of each replica
		 accuracy 0.7500
		 copies of the state every step: 5 kB, 2 kB to other hosts; they add 2 s to a step, predicted 250 ms
		 messages 4 kB, in place: read where they were written, nothing copied
		 node busy predicted wait starved held up peak process expected
		 0 125 ms 250 ms 375 ms 250 ms 125 ms 3 kB 9 kB 8 kB
		 1 250 ms 125 ms 250 ms 62.5 ms 188 ms 4 kB - -

		balance round 2, rule log, not converged
		 round measured predicted excess weights
		 1 1 s 500 ms 250 ms 1.000 1.000
		 2 500 ms 250 ms 125 ms 0.500 1.500
	END
	# nothing in place, and no time; one loss
	diff <(shows '.report |= (.communication = {bytes: 4000, time_s: 0, hidden_s: 0, in_place_bytes: 0} | .losses = [7]) | del(.balance) |
		del(.report["events", "buddy", "delays", "kfac", "varies", "batch_statistics", "accuracy", "saved", "stopped"]) | .report.dry_run = false | .report.nodes[].data_wait_s = 0') - <<-'END'
		report measured, 12 steps from step 5
		 step 500 ms, predicted 250 ms, off by 50.0%, imbalance 1.250
		 loss 7 -> 7
		 messages 4 kB in 0 us, 100% of it while computing
		 node busy predicted wait starved held up peak process expected
		 0 125 ms 250 ms 375 ms 250 ms 125 ms 3 kB 9 kB 8 kB
		 1 250 ms 125 ms 250 ms 62.5 ms 188 ms 4 kB - -
	END
}

@test "the table of a cluster: kinds, of many links and nodes the first, and each column as wide as its names" {
	cd "$BATS_TEST_TMPDIR"
	spec=$(printf 'cpu:7 host %.0s' 1 2 3 4 5 6 7 8 9)
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c "${spec% host } host cpu/2:1 cuda:1" | jq -c '{dlb, cluster} |
		.cluster.kinds |= map(if .name == "cpu/2" then . + {peak_flops: 2e12, peak_bf16_flops: 4e12, bandwidth_Bps: 3e9, memory_bytes: 5e9, without: ["Conv", "Gemm"]}
			elif .name == "cuda" then {name, backend, device: "a device", threads: 1} else . end) |
		.cluster.nodes[0].memory_bytes = 7e9 | .cluster.nodes[1].speed = 0.25' >cluster.json
	dlb-view cluster.json >table
	nodes=$(jq '.cluster.nodes | length' cluster.json) links=$(jq '.cluster.links | length' cluster.json)
	[ "$nodes" = 65 ] && [ "$links" -gt 16 ]
	for line in "cluster  65 nodes, 3 kinds, $(jq '.cluster.groups | length' cluster.json) groups" '  kind cpu: 1 thread' \
		'  kind cpu/2: 2 threads, 2 TFLOP/s (bf16 4 TFLOP/s), memory 3 GB/s; without Conv, Gemm' '  kind cuda: a device' "  ... and $((links - 16)) more links" '  ... and 1 more'; do
		grep -qxF -e "$line" table || { echo "$line"; cat table; return 1; }
	done
	[ "$(grep -c '^  link ' table)" = 16 ]
	python3 - <<-'END'
		import json, re
		c, lines = json.load(open("cluster.json"))["cluster"], open("table").read().split("\n")
		unit = {"s": 1, "ms": 1e-3, "us": 1e-6, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
		for l, line in zip(c["links"], (x for x in lines if x.startswith("  link "))):
		    m = re.fullmatch(r"  link (\S+): (\S+) (\w+), (\S+) (\w+)/s( each way)?", line)
		    assert m[1] == l["name"] and abs(float(m[2]) * unit[m[3]] - l["latency_s"]) <= 0.006 * l["latency_s"], line
		    assert abs(float(m[4]) * unit[m[5]] / l["bandwidth_Bps"] - 1) < 0.006 and bool(m[6]) == l.get("duplex", l["overlap"]), line
		rows = [x.split() for x in lines if re.match(r"  +\d+ ", x)]
		memory = {k["name"]: k.get("memory_bytes") for k in c["kinds"]}
		def shown(b):
		    return ["-"] if not b else ["%.3g" % (b / 1e9), "GB"]
		assert rows == [[str(n["id"]), n["kind"], n["host"], n["group"], "%.3g" % n["speed"], *shown(n.get("memory_bytes", memory[n["kind"]]))] for n in c["nodes"][:64]], rows[-3:]
	END
	# a long name of a group widens its column; all rows end at the same place
	jq -c '.cluster.groups |= map(.name |= if . == "h3" then "a-group-with-a-long-name" else . end) | .cluster.nodes |= map(.group |= if . == "h3" then "a-group-with-a-long-name" else . end)' \
		cluster.json | dlb-view | grep -E '^  +([0-9]+ |node )' | awk '{ n[length($0)]++ } END { for (l in n) k++; exit k != 1 }'
	# one of each is singular
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:1 | jq -c '{dlb, cluster}' | dlb-view | grep -E '^cluster  1 node, 1 kind, [0-9]+ groups?$'
}

@test "html: a time-line's messages go from the end of the op that makes a tensor to the first of its readers on each other node" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$model" | dlb-costmodel -q -c cpu:4 >costs.json
	for options in '-m 3' '-m 2 --replicas 2'; do
		# shellcheck disable=SC2086
		dlb-place -q -a even $options costs.json >plan.json
		dlb-view -q -f html plan.json | sed -n 's|^<script type="application/json" id="document">||p' | sed 's|</script>$||' >page.json
		python3 - <<-'END'
			import json, math
			d, page = json.load(open("plan.json")), json.load(open("page.json"))["predicted"]
			plan, ops, tensors, tick = d["plan"], d["graph"]["ops"], d["graph"]["tensors"], page["tick_s"]
			replicas = plan.get("replicas", [list(range(4))])
			samples = 16 // len(replicas)
			share = [samples // plan["micro_batches"] + (m < samples % plan["micro_batches"]) for m in range(plan["micro_batches"])]
			element = {"f32": 4, "u8": 1, "i64": 8, "i32": 4}
			want = []
			for nodes in replicas:
			    when = {(op, m): (node, start, end) for node in nodes for op, m, start, end, *_ in plan["timeline"][node]}
			    for o in ops:
			        for t in o["outputs"]:
			            for m in range(plan["micro_batches"]):
			                if t is None or (o["id"], m) not in when:
			                    continue
			                made, to = when[o["id"], m], {}
			                for r in ops:
			                    if t in r["inputs"] and (r["id"], m) in when and when[r["id"], m][0] != made[0]:
			                        node, start, _ = when[r["id"], m]
			                        to[node] = min(start, to.get(node, math.inf))
			                shape = tensors[t]["shape"]
			                n = math.prod([share[m] if s == "N" else s for s in shape]) * element[tensors[t]["dtype"]]
			                want += [[made[0], node, t, m, round(made[2] / tick), round(start / tick), n] for node, start in to.items()]
			got = [page["sendings"][i:i + 7] for i in range(0, len(page["sendings"]), 7)]
			assert got and [g[6] for g in got] == sorted((g[6] for g in got), reverse=True)
			assert want and page["sendings_left_out"] == 0
			near = lambda a, b: a[:4] == b[:4] and abs(a[4] - b[4]) <= 1 and abs(a[5] - b[5]) <= 1 and a[6] == b[6]
			assert len(got) == len(want) and all(near(a, b) for a, b in zip(sorted(got), sorted(want))), (sorted(got), sorted(want))
			# where a node neither computes nor is in a gap that is told, less than a hundred thousandth of the step passes
			for spans, gaps in zip(page["spans"], page["gaps"]):
			    now, parts = 0, []
			    for i in range(0, len(spans), 5):
			        parts.append((now + spans[i + 2], now + spans[i + 2] + spans[i + 3]))
			        now = parts[-1][1]
			    parts += [(gaps[i + 2], gaps[i + 2] + gaps[i + 3]) for i in range(0, len(gaps), 4)]
			    now = 0
			    for begin, end in sorted(parts):
			        assert abs(begin - now) <= 1e-5 * page["end"] + 2, (begin, now)
			        now = max(now, end)
			    assert abs(now - page["end"]) <= 1e-5 * page["end"] + 2
		END
	done
}

@test "nodes without work are named in ranges" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:7 | dlb-place -q -a single | jq -c 'del(.plan.hash, .plan.timeline, .plan.nodes)' >one.json
	for case in '0:nodes 1-6: no work' '6:nodes 0-5: no work' '3:nodes 0-2, 4-6: no work' '1:nodes 0, 2-6: no work'; do
		jq -c --argjson at "${case%%:*}" '.plan.placement[] |= $at' one.json >moved.json
		dlb-view -q -f memory moved.json | grep -qF ">${case#*:}<" || { echo "$case"; dlb-view -q -f memory moved.json | grep 'no work'; return 1; }
	done
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:2 | dlb-place -q -a single | dlb-view -q -f memory | grep -qE '>node [01]: no work<'
}

@test "svg: what a node of a report does in a step is as long as its seconds, in the order busy, waits, copying" {
	cd "$BATS_TEST_TMPDIR"
	dlb-profile -q --analytic -b 16 "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:3 | dlb-place -q -a even -m 2 | dlb-run -q --dry-run |
		jq -c 'del(.plan.inputs, .report.inputs, .report.timeline, .report.losses) | .report.step_s = 1 | .report.nodes |= [
			.[0] + {busy_s: 0.5, wait_s: 0.375, waits: {starved: 0.125, backpressure: 0.0625, collective: 0.125, structural: 0.0625}},
			.[1] + {busy_s: 0.25, wait_s: 0.25, waits: {starved: 0, backpressure: 0.25, collective: 0, structural: 0}},
			.[2] + {busy_s: 0.75, wait_s: 0.5, waits: {starved: 0.5, backpressure: 0, collective: 0, structural: 0}}]' >bars.json
	dlb-view -q -f svg bars.json >x.svg
	python3 - <<-'END'
		import json, re
		text, nodes = open("x.svg").read(), json.load(open("bars.json"))["report"]["nodes"]
		text = text[text.index("busy and waiting, seconds per step"):]
		names = ["busy", "starved", "backpressure", "collective", "structural", "copying, other"]
		rows = {}
		for x, y, w, title in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" [^>]*><title>([^<]*)</title>', text):
		    if title in names:
		        rows.setdefault(float(y), []).append((title, float(x), float(w)))
		assert len(rows) == 3
		longest = max(n["busy_s"] + n["wait_s"] for n in nodes)		# more than the step
		scale = sum(w for _, _, w in list(rows.values())[2]) / longest
		for (y, row), n in zip(sorted(rows.items()), nodes):
		    want = [("busy", n["busy_s"])] + [(k, n["waits"][k]) for k in names[1:5]] + [("copying, other", 1 - n["busy_s"] - n["wait_s"])]
		    want = [(k, s) for k, s in want if s > 0]
		    assert [t for t, _, _ in row] == [k for k, _ in want], row
		    at = row[0][1]
		    for (title, x, w), (_, s) in zip(row, want):
		        assert abs(x - at) < 0.11 and abs(w - scale * s) < 0.11, (row, want)
		        at += scale * s
		    label = re.search(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="start">busy %s<' % re.escape("%.3g ms" % (n["busy_s"] * 1e3)), text)
		    assert label and 0 < float(label[1]) - at < 10 and y < float(label[2]) < y + 40, (label, at, y)
	END
	# a report without a plan, and a plan without a report
	jq -c '{dlb, report}' bars.json | dlb-view -q -f svg | grep -q 'busy and waiting'
	run ! grep 'busy and waiting' <(jq -c 'del(.report)' bars.json | dlb-view -q -f svg)
}
