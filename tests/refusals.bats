#!/usr/bin/env bats
# Every error message in lib/model and lib/graph has a cure, and a test that provokes it.

# bats test_tags=slow
@test "refusals name the cure and are tested" {
	run "$BATS_TEST_DIRNAME/refusals"
	echo "$output"
	[ "$status" = 0 ]
}
