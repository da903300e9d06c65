#!/usr/bin/env bats
# Every option has an effect: tests/options runs each with and without.

# bats test_tags=slow
@test "every option of every tool changes an output, is refused, or is said to have no effect" {
	run "$BATS_TEST_DIRNAME/options"
	echo "$output"
	[ "$status" = 0 ]
}
