#!/usr/bin/env bats
# Programs and sections that are spoilt, one place at a time: what the verifier and the readers answer. build/tests/spoilt-programs
# and spoilt-sections spoil them; tests/data/spoilt/write says how these answers are replaced.
load helper

spoilt() { # CASE
	"$BATS_TEST_DIRNAME/data/spoilt/write" "$BATS_TEST_TMPDIR" "$1"
	diff "$BATS_TEST_DIRNAME/data/spoilt/out/$1" "$BATS_TEST_TMPDIR/$1"
}

@test "spoilt programs: messages between nodes" { spoilt messages; }
@test "spoilt programs: not in place, with a global norm" { spoilt inorder; }
@test "spoilt programs: an asynchronous loop that stashes weights" { spoilt stash; }
@test "spoilt programs: an asynchronous loop that predicts weights" { spoilt predict; }
@test "spoilt programs: replicas in an asynchronous loop" { spoilt loop; }
@test "spoilt programs: replicas" { spoilt replicas; }
@test "spoilt programs: sums that wait for a command" { spoilt sync; }
@test "spoilt programs: replicas that average weights" { spoilt gossip; }
@test "spoilt programs: divided optimizer states" { spoilt zero1; }
@test "spoilt programs: divided gradients" { spoilt zero2; }
@test "spoilt programs: divided weights" { spoilt zero3; }
@test "spoilt programs: K-FAC" { spoilt kfac; }
@test "spoilt programs: statistics of the whole batch" { spoilt statistics; }
@test "spoilt programs: ops that run again" { spoilt again; }
@test "spoilt programs: offloaded states" { spoilt pool; }
@test "spoilt programs: offloaded activations" { spoilt activations; }
@test "spoilt programs: offloaded weights" { spoilt weights; }
@test "spoilt sections: a report with all its members" { spoilt report; }
@test "spoilt sections: a plan with options of placement" { spoilt plan; }
@test "spoilt sections: a plan of replicas" { spoilt shared; }
@test "spoilt sections: a plan of replicas that average weights" { spoilt averaged; }
@test "spoilt sections: a plan of replicas that sum moments" { spoilt moments; }
@test "spoilt sections: a plan of compressed sums" { spoilt packed; }
@test "spoilt sections: an asynchronous plan" { spoilt async; }
@test "spoilt sections: a plan with ops that run again" { spoilt rerun; }
@test "spoilt sections: a plan with offloaded data" { spoilt far; }
@test "memory that processes are predicted to need" { spoilt processes; }
@test "every case of spoilt programs and sections has its test" {
	diff <(sed -n 's/^\([a-z0-9]*\) | \([0-9]*\|plan\|report\) | .*/\1/p' "$BATS_TEST_DIRNAME/data/spoilt/write" | sort) \
		<(sed -n 's/^@test .*{ spoilt \(.*\); }$/\1/p' "$BATS_TEST_FILENAME" | grep -vx processes | sort)
}
