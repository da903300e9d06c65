#!/usr/bin/env bats
# --heartbeat: a node that gives no sign of life is named within seconds; a slow or overloaded machine raises no alarm.
load helper

setup() { three_replicas; }

teardown() {
	[ -z "${busy:-}" ] || kill "${busy[@]}" 2>/dev/null || true
}

# Rank RANK is stopped; the run names it far sooner than --timeout (30 s) would, and leaves nothing.
stopped_is_named() { # RANK
	wait_for_lines "$tmp/log" 60
	ranks_of "$parent"
	touch "$tmp/began"
	kill -STOP "${ranks[$1]}"
	ends "$tmp/began" "^dlb-run: node $1 \(host .*\) is silent for [23]\.[0-9] s at step [0-9]+.*$2"
	[ -z "$(find "$TMPDIR" -mindepth 1)" ]
	none_is_left "${ranks[@]}"
}

# bats test_tags=slow
@test "a stopped rank is named by the others, with the last checkpoint" {
	for rank in 0 2; do
		rm -rf "$tmp/ck"
		started --steps 1000000 --checkpoint "$tmp/ck" --checkpoint-every 20 "${digits[@]}" "$doc"
		stopped_is_named $rank "it has been stopped; the last checkpoint is '$tmp/ck/step-[0-9]+'$"
		[ -f "$(sed "s/.*checkpoint is '//; s/'$//" "$tmp/err")/manifest.json" ]
	done
	started --steps 1000000 --checkpoint "$tmp/none" "${digits[@]}" "$doc"
	stopped_is_named 1 "there is no checkpoint yet in '$tmp/none'$"
}

# bats test_tags=slow
@test "the same by datagrams, between ranks that share no memory" {
	as_rank 9 :
	sed -i '2i ulimit -v 20000000' "$tmp/as-rank"
	own_launch
	for rank in 0 1; do
		started --steps 1000000 "${digits[@]}" "$doc"
		stopped_is_named $rank ''
	done
}

# bats test_tags=slow
@test "a rank stopped under somebody's mpirun: the ranks themselves end the job" {
	for rank in 0 1; do
		as_rank $rank "echo \$\$ >'$tmp/pid'"
		rm -f "$tmp/log"
		mpirun --oversubscribe --bind-to none -n 3 "$tmp/as-rank" dlb-run --loss-log "$tmp/log" --steps 1000000 \
			--checkpoint "$tmp/ck$rank" --checkpoint-every 20 "${digits[@]}" "$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
		parent=$!
		wait_for_lines "$tmp/log" 60
		start=$(date +%s)
		kill -STOP "$(cat "$tmp/pid")"
		status=0
		wait "$parent" || status=$?
		[ "$status" -eq 2 ]
		[ $(($(date +%s) - start)) -lt 25 ]
		grep -Eq "^dlb-run\[[012]\]: node $rank \(host .*\) is silent for .*; the last checkpoint is '$tmp/ck$rank/step-" "$tmp/err"
		run ! grep 'does a firewall drop UDP' "$tmp/err"
	done
}

# bats test_tags=slow
@test "no datagram gets through: one line says so, and nothing else changes" {
	command -v gcc >/dev/null || skip 'no gcc'
	gcc -shared -fPIC -o "$tmp/firewall.so" -x c - <<-'END'
		#include <sys/socket.h>
		ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t size)
		{
		        (void)fd, (void)p, (void)flags, (void)to, (void)size;
		        return (ssize_t)n;
		}
	END
	as_rank 9 :
	sed -i "2i ulimit -v 20000000; export LD_PRELOAD=$tmp/firewall.so" "$tmp/as-rank"
	own_launch
	dlb-run --loss-log "$tmp/log" --heartbeat 0.5 --until 'loss<-1' "${digits[@]}" "$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
	wait_for_lines "$tmp/err" 1
	far=$(wc -l <"$tmp/log")
	wait_for_lines "$tmp/log" $((far + 200))
	kill -TERM "$parent"
	wait "$parent"
	jq -e '.report.stopped == "signal"' "$tmp/out"
	[ "$(grep -c heartbeat "$tmp/err")" -eq 1 ]
	grep -q '^dlb-run: no heartbeat of node [0-9] .*UDP' "$tmp/err"
}

# bats test_tags=long
@test "no alarm in 2000 steps beside twenty busy processes per core, by memory or by datagram" {
	local n
	n=$(($(nproc) * 20))
	for _ in $(seq "$n"); do
		(while :; do :; done) 3>&- &
		busy+=($!)
	done
	dlb-run -q --heartbeat 1 --timeout 0 --steps 2000 "${digits[@]}" "$doc" >"$tmp/out"
	jq -e '.report.losses | length == 2000' "$tmp/out" >/dev/null
	as_rank 9 :
	sed -i '2i ulimit -v 20000000' "$tmp/as-rank"
	own_launch
	dlb-run -q --heartbeat 1 --timeout 0 --steps 200 "${digits[@]}" "$doc" >"$tmp/out"
	jq -e '.report.losses | length == 200' "$tmp/out" >/dev/null
}

@test "--heartbeat 0 and one node have none" {
	dlb-run -q --heartbeat 0 --steps 3 "${digits[@]}" "$doc" | jq -e '.report.losses | length == 3'
	planned "$tmp/planned.json"
	run -2 --separate-stderr dlb-run --heartbeat -1 --steps 3 "${digits[@]}" "$tmp/planned.json"
	one_line dlb-run --heartbeat
}
