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
