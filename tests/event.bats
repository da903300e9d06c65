#!/usr/bin/env bats
# --on-event: a command is told of a lost node; training and the end of the run do not depend on it.
load helper

setup() { three_replicas; }

loses() { # RANK SIGNAL COMMAND: a run that ends by it
	started --steps 1000000 --on-event "$3" "${digits[@]}" "$doc"
	wait_for_lines "$tmp/log" 40
	ranks_of "$parent"
	kill "-$2" "${ranks[$1]}"
	status=0
	wait "$parent" || status=$?
	[ "$status" -eq 2 ]
	[ ! -s "$tmp/out" ]
}

# bats test_tags=slow
@test "the command is told which node, at which step, and why; its output is no document" {
	export told=$tmp/told
	# shellcheck disable=SC2016
	command='echo out; printf "%s|" "$DLB_EVENT" "$DLB_NODE" "$DLB_STEP" "$DLB_MESSAGE" >>"$told"; read -r x || echo >>"$told"'
	loses 1 KILL "$command"
	grep -Eqx 'lost\|1\|[0-9]+\|lost rank 1: killed by signal 9\|' "$told"
	[ "$(cut -d '|' -f 3 "$told")" -ge 40 ]
	grep -qx out "$tmp/err"
	grep -q '^dlb-run: lost rank 1: killed' "$tmp/err"
	rm "$told"
	loses 0 STOP "$command"
	grep -Eqx 'lost\|0\|[0-9]+\|node 0 \(host .*\) is silent for .*: it has been stopped\|' "$told"
	[ -z "$(find "$TMPDIR" -mindepth 1)" ]
}

# bats test_tags=slow
@test "a command that fails, or cannot be found: one line more, the same end" {
	loses 2 KILL 'exit 7'
	[ "$(wc -l <"$tmp/err")" -eq 2 ]
	grep -qx 'dlb-run: --on-event: the command ended with status 7' "$tmp/err"
	loses 2 KILL 'kill -TERM $$'
	grep -qx 'dlb-run: --on-event: the command was killed by signal 15' "$tmp/err"
}

# bats test_tags=slow
@test "a command that does not end is killed with what it started, and the run ends" {
	loses 1 KILL "sleep 1000 & echo \$! >'$tmp/pid'; wait"
	grep -q 'dlb-run: --on-event: the command did not end in 10 s and was killed' "$tmp/err"
	grep -s '^State:.[^Z]' "/proc/$(cat "$tmp/pid")/status" && return 1
	true
}

# bats test_tags=slow
@test "under somebody's mpirun one rank runs the command once" {
	as_rank 0 "echo \$\$ >'$tmp/pid'"
	mpirun --oversubscribe --bind-to none -n 3 "$tmp/as-rank" dlb-run -q --loss-log "$tmp/log" --steps 1000000 \
		--on-event "echo \"\$DLB_NODE\" >>'$tmp/told'" "${digits[@]}" "$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
	wait_for_lines "$tmp/log" 40
	kill -STOP "$(cat "$tmp/pid")"
	wait "$parent" || true
	wait_for_lines "$tmp/told" 1
	sleep 1
	[ "$(cat "$tmp/told")" = 0 ]
}
