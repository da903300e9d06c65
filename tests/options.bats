#!/usr/bin/env bats
# No option does nothing: tests/options runs each with and without.

@test "every option of every tool changes an output, is refused, or is said to have no effect" {
	run "$BATS_TEST_DIRNAME/options"
	echo "$output"
	[ "$status" = 0 ]
}
