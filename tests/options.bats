#!/usr/bin/env bats
# Every option has an effect: tests/options runs each with and without.

@test "every option and every choice has a row; the rows of dlb-costmodel hold" {
	run "$BATS_TEST_DIRNAME/options" dlb-costmodel
	echo "$output"
	[ "$status" = 0 ]
}

# bats test_tags=slow
@test "every option of every tool changes an output, is refused, or is said to have no effect" {
	run "$BATS_TEST_DIRNAME/options"
	echo "$output"
	[ "$status" = 0 ]
}
