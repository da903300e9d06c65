#!/usr/bin/env bats
# Graphs, costs, plans, programs, simulated steps and rounds of many models, clusters and options are the kept ones: a change of any
# of them is intended, or a fault. tests/data/kept/write says what a case is, and how kept results are replaced.
load helper

kept() { # GROUP
	local data=$BATS_TEST_DIRNAME/data/kept
	mkdir "$BATS_TEST_TMPDIR/out"
	"$data/write" "$BATS_TEST_TMPDIR/out" "$1"
	[ -s "$BATS_TEST_TMPDIR/out/$1" ] || skip "models of DLB_TEST_DATA"
	diff "$data/out/$1" "$BATS_TEST_TMPDIR/out/$1" ||
		{ echo "where that is intended: tests/data/kept/write tests/data/kept/out $1, and read git diff"; false; }
}

@test "kept: models" { kept models; }
@test "kept: options of dlb-profile" { kept profile; }
@test "kept: clusters" { kept clusters; }
@test "kept: algorithms of placement" { kept algorithms; }
@test "kept: schedules" { kept schedules; }
@test "kept: memory" { kept memory; }
@test "kept: replicas" { kept replicas; }
@test "kept: optimizers" { kept optimizers; }
@test "kept: split ops" { kept split; }
@test "kept: balancing of simulated rounds" { kept balance; }
@test "kept: plans made from plans" { kept moves; }
@test "kept: many ops" { kept many; }
@test "kept: tables, pictures and pages" { kept views; }
@test "kept: files for other tools" { kept convert; }
@test "kept: graphs of exported models and of single ops" { kept exported; }
@test "kept: networks of published benchmarks" { kept networks; }
@test "every group of kept cases has its test" {
	diff <(sed -n 's/^\[\(.*\)\]$/\1/p' "$BATS_TEST_DIRNAME/data/kept/cases" | sort) \
		<(sed -n 's/^@test .*{ kept \(.*\); }$/\1/p' "$BATS_TEST_FILENAME" | sort)
}
