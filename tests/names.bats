#!/usr/bin/env bats
# Names come from files and may contain anything: every output of every tool shows control characters as \n, \x1b, \u202e.
load helper

evil=$'first\\nsecond\\u001b[31mred\\u0007\\u009bC1\\u202eback\\u2028'	# as in JSON
shown='first\nsecond\x1b[31mred\x07\u009bC1\u202eback\u2028'

setup() {
	tmp=$BATS_TEST_TMPDIR doc=$tmp/doc.json
	planned "$tmp/plain.json"
	# every op, tensor, host and group; hashes would not match
	jq -c --argjson evil "\"$evil\"" '
		del(.profile.inputs, .cost.inputs, .plan.inputs) |
		.graph.ops |= map(.name = $evil + .name) | .graph.tensors |= map(.name = $evil + .name) |
		.graph.model.path = $evil |
		.cluster.nodes |= map(.host = $evil)' "$tmp/plain.json" >"$doc"
}

# No control characters but line feeds, no C1, no direction marks, and valid UTF-8.
is_clean() { # FILE
	/usr/bin/python3 - "$1" <<-'END'
		import sys
		text = open(sys.argv[1], 'rb').read().decode()
		bad = [c for c in text if (ord(c) < 32 and c != '\n') or 127 <= ord(c) < 160 or 0x2028 <= ord(c) <= 0x202e or 0x2066 <= ord(c) <= 0x2069]
		assert text and not bad, bad[:5]
	END
}

shows() { # FILE [TEXT]: clean, and contains the name
	is_clean "$1"
	grep -qF "${2:-$shown}" "$1"
}

@test "dlb-view: every format" {
	dlb-run --dry-run --steps 2 --name "$(printf 'a\033[31mb')" --note "$(printf 'c\nd')" "$doc" >"$tmp/out.json"
	dlb-view "$tmp/out.json" >"$tmp/table"
	shows "$tmp/table" 'run      a\x1b[31mb'
	grep -qxF 'note     c\nd' "$tmp/table"
	dlb-run --dry-run --steps 2 --name a --note c "$tmp/plain.json" >"$tmp/plain-out.json"
	for format in table svg trace memory dot html; do
		echo "$format"
		dlb-view -f "$format" "$tmp/out.json" | tr -d '\t' >"$tmp/text"	# a page's style and script have tabs
		is_clean "$tmp/text"
		case $format in
		dot) grep -qF "${shown//\\/\\\\}" "$tmp/text" ;;
		trace) jq -e . "$tmp/text" >/dev/null ;;
		*) grep -qF "$shown" "$tmp/text" ;;
		esac
		dlb-view -f "$format" "$tmp/plain-out.json" >"$tmp/plain-text"
		[ "$(wc -l <"$tmp/text")" -eq "$(wc -l <"$tmp/plain-text")" ]
	done
}

@test "dlb-view: each name of kinds, groups, links, memories, plan and report, in every format" {
	# each with a text of its own behind what must not reach a terminal
	dlb-run -q --dry-run --steps 2 "$tmp/plain.json" >"$tmp/run.json"
	jq -c --argjson evil "\"$evil\"" 'del(.profile.inputs, .cost.inputs, .plan.inputs, .report.inputs) |
		(.cluster.kinds[0].name) as $kind | .cluster.kinds[0].name = $evil + "KIND" | .cluster.nodes[].kind = $evil + "KIND" |
		.cost |= walk(if type == "object" and has($kind) then .[$evil + "KIND"] = .[$kind] | del(.[$kind]) else . end) |
		.cost.kinds |= map(if . == $kind then $evil + "KIND" else . end) |
		.cluster.groups |= map(.name = $evil + "GROUP" + .name | .class = $evil + "CLASS" + .class) |
		.cluster.groups |= map((if .parent then .parent = $evil + "GROUP" + .parent else del(.parent) end) | (if .inside then .inside = $evil + "LINK" + .inside else del(.inside) end) |
			if .up then .up = $evil + "LINK" + .up else del(.up) end) |
		.cluster.links |= map(.name = $evil + "LINK" + .name | .class = $evil + "WAY" + .class) |
		.cluster.nodes |= map(.group = $evil + "GROUP" + .group) |
		.report |= (.saved = $evil + "SAVED" | .stopped = $evil + "STOPPED" | .nodes[].host = $evil + "HOST" |
			.best = {step: 1, test_loss: 1, saved: ($evil + "BEST")} | .evaluations = [{step: 1, test_loss: 1, time_s: 1}]) | del(.profile)' "$tmp/run.json" >"$tmp/names.json"
	for format in table svg trace memory dot html; do
		dlb-view -q -f "$format" "$tmp/names.json" | tr -d '\t' >"$tmp/$format"
		is_clean "$tmp/$format"
	done
	jq -c --argjson evil "\"$evil\"" 'del(.report, .plan.hash, .plan.inputs) | .plan.algorithm = $evil + "PLACED"' "$tmp/run.json" >"$tmp/placed.json"
	for format in table svg html; do
		dlb-view -q -f "$format" "$tmp/placed.json" | tr -d '\t' >"$tmp/placed"
		is_clean "$tmp/placed"
		[ "$format" = svg ] || grep -qF PLACED "$tmp/placed"
	done
	for name in KIND GROUP LINK SAVED STOPPED BEST; do
		grep -qF "$shown$name" "$tmp/table" || { echo "$name"; return 1; }
	done
	for name in KIND GROUP CLASS LINK WAY SAVED STOPPED HOST; do
		sed -n 's|^<script type="application/json" id="document">||p' "$tmp/html" | sed 's|</script>$||' | jq -r '.. | strings' | grep -qF "$shown$name" || { echo "$name"; return 1; }
	done
}

@test "dlb-view --why, asked for by id and by name" {
	dlb-view --why 0 "$doc" >"$tmp/text"
	shows "$tmp/text"
	name=$(jq -r '.graph.ops[0].name' "$doc")
	dlb-view --why "$name" "$doc" | cmp - "$tmp/text"
	run -2 --separate-stderr dlb-view --why $'none\e[31m\nof these' "$doc"
	one_line dlb-view 'none\x1b[31m\nof these'
}

@test "dlb-run --print-program" {
	dlb-run --print-program "$doc" >"$tmp/text"
	shows "$tmp/text"
	dlb-run --print-program "$tmp/plain.json" | wc -l | diff - <(wc -l <"$tmp/text")
}

@test "messages that quote names: every tool" {
	for tool in dlb-costmodel dlb-place dlb-run dlb-view; do
		jq -c '.graph.ops[1].name = .graph.ops[0].name' "$doc" >"$tmp/bad.json"
		run -2 --separate-stderr "$tool" "$tmp/bad.json"
		one_line "$tool" "$shown"
		printf '%s\n' "$stderr" >"$tmp/text"
		is_clean "$tmp/text"
	done
	for tool in dlb-profile dlb-costmodel dlb-place dlb-run dlb-rebalance dlb-view dlb-convert; do
		how=()
		[ "$tool" != dlb-convert ] || how=(--from "$(dlb-convert --list | awk '/ from/ { print $1; exit }')")
		run -2 --separate-stderr "$tool" "${how[@]}" $'/no/such\e[2J\nfile'
		[[ $stderr == *'/no/such\x1b[2J\nfile'* ]]
		[ "${#stderr_lines[@]}" -eq 1 ]
		run -2 --separate-stderr "$tool" $'--no\e[2J\n'
		[[ $stderr == *'--no\x1b[2J\n'* ]]
		[ "${#stderr_lines[@]}" -eq 1 ]
	done
}

@test "dlb-run -v, and a rank's own messages" {
	dlb-run -v --steps 3 "${digits[@]}" --checkpoint "$tmp/"$'ck\e[31m' "$tmp/plain.json" >"$tmp/out.json" 2>"$tmp/err"
	shows "$tmp/err" "checkpoint '$tmp/ck\\x1b[31m/step-3'"
	run -2 --separate-stderr dlb-run --steps 3 "${digits[@]}" --save "$tmp/"$'no\e[31m/w.safetensors' "$tmp/plain.json"
	one_line dlb-run 'no\x1b[31m/w.safetensors'
}
