#!/usr/bin/env bats
# No run waits for ever or leaves anything behind: ranks, mpiexec and the parent stopped or killed at any time,
# ranks that do not find each other, tags beyond MPI's limit.
load helper

setup() { three_replicas; }

teardown() { # no process survives a test
	local stat pid
	for stat in /proc/[0-9]*/environ; do
		grep -qzsx "TMPDIR=$TMPDIR" "$stat" || continue
		pid=${stat#/proc/} pid=${pid%/environ}
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dlb-run ] && kill -KILL "$pid" 2>/dev/null
	done
	return 0
}

without_dlb_launch() { # DLB-RUN-OPTION...
	mpirun --oversubscribe --bind-to none -n 3 "$tmp/as-rank" dlb-run -q "$@"
}

# Builds a library, stops.so, that stops the process at the entry of an MPI function: stops_in FUNCTION PARAMETERS ARGUMENTS
stops_in() {
	command -v mpicc >/dev/null || skip 'no mpicc'
	mpicc -shared -fPIC -o "$tmp/stops.so" -x c - <<-END
		#include <mpi.h>
		#include <signal.h>
		int $1($2)
		{
		        raise(SIGSTOP);
		        return P$1($3);
		}
	END
}

took() { # MOST: at most this many seconds since `start`
	local s=$((($(date +%s%N) - start) / 1000000))
	echo "$s ms"
	[ "$s" -le $(($1 * 1000)) ]
}

nothing_left() {
	local left
	left=$(find "$TMPDIR" -mindepth 1)
	[ -z "$left" ] || { echo "left: $left"; return 1; }
}

segments_of() { # JOB...: their files of Open MPI in /dev/shm
	local job
	for job; do find /dev/shm -name "$(printf 'vader_segment.*.%x.*' "$job")"; done
}

# dlb-run ends in time, names the rank that as_rank stops, and leaves nothing behind.
names_stopped() { # RANK STEPS
	(
		own_launch
		start=$(date +%s%N)
		run -2 --separate-stderr timeout 60 dlb-run -q "${limits[@]}" --steps "$2" "${digits[@]}" "$doc"
		one_line dlb-run "lost rank $1: it has been stopped for 4 s"
		took 25
	)
	nothing_left
}

# bats test_tags=slow
@test "a rank stopped before it begins: the parent names it after --heartbeat, and without it after --timeout" {
	for rank in 0 1 2; do
		limits=(--heartbeat 4)
		as_rank $rank 'kill -STOP $$'
		names_stopped $rank 5
		limits=(--timeout 4 --heartbeat 0)
		names_stopped $rank 5
	done
}

# bats test_tags=slow
@test "a rank stopped while MPI starts: what the others did after all were told to end is no result" {
	limits=(--heartbeat 4)
	stops_in MPI_Init_thread 'int *n, char ***v, int want, int *got' 'n, v, want, got'
	for rank in 0 1; do
		as_rank $rank "export LD_PRELOAD=$tmp/stops.so"
		names_stopped $rank 300
	done
}

# bats test_tags=slow
@test "the same under somebody's mpirun: at most three lines of ours, status 2" {
	for rank in 0 2; do
		as_rank $rank 'kill -STOP $$'
		start=$(date +%s%N)
		run -2 --separate-stderr timeout 60 mpirun --oversubscribe --bind-to none -n 3 "$tmp/as-rank" dlb-run -q --timeout 4 --steps 5 "${digits[@]}" "$doc"
		[ -z "$output" ]
		took 25
		ours=$(grep -c '^dlb-run\[[0-9]\]: the start of MPI.* not complete after 4 s' <<<"$stderr")
		[ "$ours" -ge 1 ] && [ "$ours" -le 3 ]
		[[ ${stderr_lines[0]} == dlb-run* ]]
	done
}

# bats test_tags=slow
@test "rank 0 waits for a slow pipe longer than --timeout; stopped there, the others give it up" {
	as_rank 9 :
	(sleep 5 && cat "$doc") | without_dlb_launch --timeout 1 --steps 3 "${digits[@]}" | jq -e '.report.losses | length == 3'
	as_rank 0 "echo \$\$ >'$tmp/pid'"
	start=$(date +%s%N)
	(
		while [ ! -s "$tmp/pid" ]; do sleep 0.05; done
		sleep 1.5
		kill -STOP "$(cat "$tmp/pid")"
	) &
	mkfifo "$tmp/pipe"
	sleep 60 >"$tmp/pipe" &
	writer=$!
	status=0
	timeout 60 mpirun --oversubscribe --bind-to none -n 3 "$tmp/as-rank" dlb-run -q --timeout 1 --steps 3 "${digits[@]}" <"$tmp/pipe" >"$tmp/out" 2>"$tmp/err" || status=$?
	kill "$writer"
	[ "$status" -eq 2 ]
	took 25
	grep -q '^dlb-run\[[12]\]: lost rank 0: nothing heard for 1 s' "$tmp/err"
}

# bats test_tags=slow
@test "a rank stopped where MPI ends: the result is complete and passed on" {
	stops_in MPI_Finalize void ''
	as_rank 1 "export LD_PRELOAD=$tmp/stops.so"
	start=$(date +%s%N)
	run -2 --separate-stderr timeout 60 mpirun --oversubscribe --bind-to none -n 3 "$tmp/as-rank" dlb-run -q --timeout 4 --steps 5 "${digits[@]}" "$doc"
	took 25
	echo "$stderr"
	[[ $stderr == *'the end of MPI'* ]]
	own_launch
	start=$(date +%s%N)
	run -0 --separate-stderr timeout 60 dlb-run --timeout 4 --steps 5 "${digits[@]}" "$doc"
	took 25
	[[ $stderr == *'the result is complete'* ]]
	jq -e '.report.losses | length == 5' <<<"$output"
	nothing_left
}

# bats test_tags=slow
@test "mpiexec stopped: it goes on, and nothing is lost" {
	started --timeout 4 --steps 1000000 "${digits[@]}" "$doc"
	wait_for_lines "$tmp/log" 5
	kill -STOP "$(children "$parent")"
	kill -TERM "$parent"		# must be passed on by mpiexec
	wait "$parent"
	jq -e '.report.stopped == "signal" and .report.steps >= 5' "$tmp/out"
	nothing_left
}

# bats test_tags=slow
@test "all of a run stopped for longer than --timeout, then continued, as a batch system does" {
	started --timeout 2 --steps 1000000 "${digits[@]}" "$doc"
	wait_for_lines "$tmp/log" 5
	ranks_of "$parent"
	mapfile -t all < <(children "$parent")
	all+=("$parent" "${ranks[@]}")
	kill -STOP "${all[@]}"
	sleep 5
	far=$(wc -l <"$tmp/log")
	kill -CONT "${all[@]}"
	wait_for_lines "$tmp/log" $((far + 500))
	kill -TERM "$parent"
	wait "$parent"
	jq -e '.report.stopped == "signal"' "$tmp/out"
}

# bats test_tags=slow
@test "what a killed run leaves, the next start removes; not what a living one has" {
	for what in both mpiexec parent; do
		started --steps 1000000 "${digits[@]}" "$doc"
		wait_for_lines "$tmp/log" 5
		mpiexec=$(children "$parent")
		mapfile -t jobs <"$(echo "$TMPDIR"/dlb-run.*/jobs)"
		[ "${#jobs[@]}" -eq 3 ] && [ "$(segments_of "${jobs[0]}" | wc -l)" -eq 3 ]
		[ -d "$TMPDIR/ompi.$(hostname).$(id -u)/pid.$mpiexec" ]
		case $what in
		both) kill -KILL "$parent" "$mpiexec" ;;
		mpiexec) kill -KILL "$mpiexec" ;;
		parent) kill -KILL "$parent" ;;
		esac
		wait "$parent" 2>/dev/null || true
		for _ in $(seq 200); do	# an orphaned mpiexec ends its ranks first
			grep -qs '^State:.[^Z]' "/proc/$mpiexec/status" || break
			sleep 0.05
		done
		dlb-run -q --steps 2 "${digits[@]}" "$doc" >/dev/null
		nothing_left
		[ -z "$(segments_of "${jobs[0]}")" ]
	done
	started --steps 1000000 "${digits[@]}" "$doc"
	wait_for_lines "$tmp/log" 5
	mkdir "$TMPDIR/dlb-run.ABCDEF" "$tmp/theirs"		# no lock: of unknown origin
	touch "$tmp/theirs/file"
	ln -s "$tmp/theirs" "$TMPDIR/dlb-run.GHIJKL"
	dlb-run -q --steps 2 "${digits[@]}" "$doc" >/dev/null
	[ -d "$TMPDIR/dlb-run.ABCDEF" ] && [ -f "$tmp/theirs/file" ] && [ -L "$TMPDIR/dlb-run.GHIJKL" ]
	kill -TERM "$parent"
	wait "$parent"
	jq -e '.report.stopped == "signal"' "$tmp/out"
}

@test "an mpiexec that is killed between its folder and that of the user: neither is left" {
	local real
	real=$(command -v mpiexec.openmpi) || skip 'no Open MPI'
	mkdir -p "$tmp/bin"
	printf '#!/bin/bash\n%s "$@"\nmkdir "$TMPDIR/ompi.$(hostname).$(id -u)"\n' "$real" >"$tmp/bin/mpiexec.openmpi"
	chmod +x "$tmp/bin/mpiexec.openmpi"
	PATH=$tmp/bin:$PATH dlb-run -q --steps 2 "${digits[@]}" "$doc" >/dev/null
	nothing_left
}

# bats test_tags=slow
@test "srun without --mpi=pmix: one line with the cure" {
	run -2 --separate-stderr env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 dlb-run -q --steps 2 "${digits[@]}" "$doc"
	one_line dlb-run 'srun has started 2 tasks that do not find each other' 'srun --mpi=pmix'
	run -2 --separate-stderr env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 dlb-run -q --steps 2 "${digits[@]}" "$doc"
	[ -z "$output$stderr" ]
	run -2 --separate-stderr env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 PMI_RANK=0 dlb-run -q --steps 2 "${digits[@]}" "$doc"
	one_line dlb-run 'srun --mpi=pmix'
	run -2 --separate-stderr env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 dlb-profile --analytic "$model"
	one_line dlb-profile 'srun --mpi=pmix'
	SLURM_NTASKS=2 SLURM_PROCID=0 dlb-run -q --steps 2 "${digits[@]}" "$doc" | jq -e '.report.losses | length == 2'	# in a batch script
}

# bats test_tags=slow
@test "no tag is above what every MPI has" {
	command -v mpicc >/dev/null || skip 'no mpicc'
	mpicc -shared -fPIC -o "$tmp/tags.so" -x c - <<-'END'
		#include <mpi.h>
		int MPI_Isend(const void *p, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *q)
		{
		        return tag > 32767 ? MPI_ERR_TAG : PMPI_Isend(p, n, t, to, tag, c, q);
		}
		int MPI_Irecv(void *p, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *q)
		{
		        return tag > 32767 ? MPI_ERR_TAG : PMPI_Irecv(p, n, t, from, tag, c, q);
		}
		int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *out)
		{
		        return tag > 32767 ? MPI_ERR_TAG : PMPI_Comm_create_group(c, g, tag, out);
		}
	END
	# on every rank; without shared memory all messages use MPI
	as_rank 9 :
	sed -i "2c ulimit -v 20000000; export LD_PRELOAD=$tmp/tags.so" "$tmp/as-rank"
	own_launch
	while read -r options; do
		echo "$options"
		# shellcheck disable=SC2086
		dlb-run -q --steps 5 "${digits[@]}" $options "$doc" | jq -e '.report.losses | length == 5'
	done <<-'END'

		--allreduce mpi
		--gossip 0.5
		--param-server 0
		--sync-every 2
		--feed host
		--compress lowrank:2,start=2
		--optimizer max-adabelief --reduce moments
	END
}

# bats test_tags=long
@test "faults at random moments: one of each kind" {
	"$root/tests/faults" 9
}

# bats test_tags=long
@test "a hundred faults at random moments" {
	"$root/tests/faults" 100 "${DLB_TEST_SEED:-1}"
}
