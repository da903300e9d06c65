#!/usr/bin/env bats
# --buddy-every: copies of the nodes' state in memory, from which a run goes on after a loss, with the same bits and at
# most the steps since the last copy done again. tests/hosts.bats has copies on other hosts.
load helper

steps=300
setup() {
	tmp=$BATS_TEST_TMPDIR
	export TMPDIR=$tmp/run
	mkdir "$TMPDIR"
	command -v mpiexec.openmpi >/dev/null || skip 'no Open MPI'
	train=(--steps "$steps" --lr 0.02 "${digits[@]}")
	slow=(--slow 0:90 --slow 1:90 --slow 2:90)	# slow enough to be hit; the bits are the same
	# no checkpoint before the end, so that copies alone have the state
	buddy=(--on-failure replan --buddy-every 1 --checkpoint "$tmp/ck" --checkpoint-every 100000 --step-log "$tmp/steps")
}
of() { # CLUSTER [DLB-PLACE-OPTION...]: $doc
	doc=$tmp/doc.json
	dlb-profile --analytic --batch 24 "$model" | dlb-costmodel -c "$1" | dlb-place -q -m 2 "${@:2}" >"$doc"
}
unbroken() { # [DLB-RUN-OPTION...]: $tmp/plain, its losses
	dlb-run -q "${train[@]}" --loss-log "$tmp/plain" "$@" "$doc" >"$tmp/plain.json"
}
hit() { # SIGNAL RANK [LINES]
	wait_for_lines "$tmp/log" "${3:-100}"
	ranks_of "$parent"
	kill "-$1" "${ranks[$2]}"
}
# The run succeeded; losses and both logs are those of the unbroken run, copies had the state, at most `lost` (1) complete
# steps were done again, and nothing is left.
same_bits() {
	local status=0 folder
	wait "$parent" || status=$?
	cat "$tmp/err"
	[ "$status" -eq 0 ]
	jq -c '.report | [.events, .buddy]' "$tmp/out"
	cmp "$tmp/log" "$tmp/plain"
	jq -es "map(.step) == [range(1; $steps + 1)]" "$tmp/steps"
	validates "$tmp/out"
	jq -e --argjson lost "${lost:-1}" '.report.events | length > 0 and all(.copies and .step - .from_step <= $lost and .step >= .from_step)' "$tmp/out"
	[ -z "$(find "$TMPDIR" -mindepth 1)" ]
	[ "$(jq '.report.buddy.removed | length' "$tmp/out")" -eq 1 ]
	folder=$(jq -r '.report.buddy.removed[0]' "$tmp/out")
	[[ $folder == /dev/shm/dlb-copies.*."$(hostname)" ]] || [ ! -d /dev/shm ]
	[ ! -e "$folder" ]
}

# bats test_tags=slow
@test "a rank is killed or stopped: the same losses, at most one step done again, nothing left" {
	of cpu:3 -a even
	unbroken --optimizer momentum
	while read -r signal rank; do
		chosen || [ "$rank" = 0 ] || continue
		rm -rf "$tmp/ck" "$tmp/steps"
		started "${buddy[@]}" "${slow[@]}" "${train[@]}" --optimizer momentum "$doc"
		hit "$signal" "$rank"
		same_bits
		jq -e '.report.buddy | .every == 1 and .copies > 0 and .bytes > 10000 and .sent_bytes == 0 and .time_s > 0' "$tmp/out"
	done <<-'END'
		KILL 0
		STOP 0
		KILL 1
		STOP 2
	END
}

# bats test_tags=slow
@test "optimizer states, K-FAC and error feedback are in the copies" {
	while IFS='|' read -r cluster place run; do
		rm -rf "$tmp/ck" "$tmp/steps"
		IFS=' ' read -ra place <<<"$place"
		IFS=' ' read -ra run <<<"$run"
		of "$cluster" "${place[@]}"
		unbroken "${run[@]}"
		started "${buddy[@]}" "${slow[@]}" --slow 3:90 "${train[@]}" "${run[@]}" "$doc"
		hit KILL 1 60
		same_bits
	done <<-'END'
		cpu:4|-a even|--optimizer adam
		cpu:4|-a even|--optimizer kfac
		cpu:4|--replicas 2|--optimizer momentum --compress lowrank:2
		cpu:4|--replicas 2 --zero 1|--optimizer adam
	END
}

# bats test_tags=slow
@test "copies that are damaged do not count: the run goes on from the checkpoint" {
	of cpu:3 -a even
	unbroken --optimizer momentum
	started "${buddy[@]}" --checkpoint-every 50 "${slow[@]}" "${train[@]}" --optimizer momentum "$doc"
	wait_for_lines "$tmp/log" 110
	ranks_of "$parent"
	kill -STOP "${ranks[@]}"
	python3 - "${ranks[1]}" <<-'END'
		import glob, os, struct, sys
		# the folder of that rank, by its open lock
		fds = [os.readlink(f) for f in glob.glob('/proc/%s/fd/*' % sys.argv[1])]
		folder = os.path.dirname(next(f for f in fds if '/dlb-copies.' in f and f.endswith('/lock')))
		# each sealed slot: where both are, the older one would count
		for name in glob.glob(folder + '/*-1-?.head'):
		    head = open(name, 'rb').read()
		    if struct.unpack_from('<Q', head, len(head) - 8)[0] != 1:
		        continue
		    with open(name.replace('.head', '.part'), 'r+b') as f:
		        f.seek(-5, 2); b = f.read(1)
		        f.seek(-5, 2); f.write(bytes([b[0] ^ 4]))
	END
	kill -KILL "${ranks[0]}"
	wait "$parent"
	cat "$tmp/err"
	cmp "$tmp/log" "$tmp/plain"
	jq -c .report.events "$tmp/out"
	jq -e '.report.events[0] | (has("copies") | not) and .from_step % 50 == 0 and .from_step >= 100' "$tmp/out"
}

# bats test_tags=slow
@test "every few steps, and after the plan has changed in the run" {
	of cpu:3 -a even
	unbroken --optimizer momentum
	started "${buddy[@]}" --buddy-every 7 "${slow[@]}" "${train[@]}" --optimizer momentum "$doc"
	hit KILL 2
	lost=14 same_bits
	jq -e '.report.events[0].from_step % 7 == 0' "$tmp/out"
	rm -rf "$tmp/ck" "$tmp/steps"
	started "${buddy[@]}" --rounds 2 --round-steps 20 --slow 0:200 --slow 1:90 --slow 2:90 "${train[@]}" --optimizer momentum "$doc"
	hit KILL 0 60
	same_bits
}

# bats test_tags=slow
@test "a run with copies that dies at once leaves them to the next one; no room is one line" {
	of cpu:2
	started "${buddy[@]}" --slow 0:90 --slow 1:90 --optimizer momentum "${train[@]}" "$doc"
	wait_for_lines "$tmp/log" 20
	folder=$(find "/proc/$parent/fd" -lname '*dlb-copies*' -printf '%l\n' | head -1)
	folder=${folder%/lock}
	[ -d "$folder" ]
	kill_at_once "$parent"
	wait "$parent" || true
	[ -d "$folder" ]
	dlb-run -q "${buddy[@]}" --steps 2 "${digits[@]}" "$doc" >/dev/null
	[ ! -e "$folder" ]
	command -v gcc >/dev/null || skip 'no gcc'
	gcc -shared -fPIC -o "$tmp/full.so" -x c - <<-'END'
		#include <errno.h>
		int posix_fallocate(int fd, long at, long n) { return (void)fd, (void)at, (void)n, ENOSPC; }
	END
	on_rank 1 "export LD_PRELOAD=$tmp/full.so"
	run -2 --separate-stderr dlb-run -q "${buddy[@]}" --steps 9 "${digits[@]}" "$doc"
	one_line dlb-run 'cannot keep a copy of' 'No space left' '--buddy-every'
}

@test "plans that copies cannot serve are refused, and where they have no effect a line says so" {
	of cpu:2 --schedule async
	run -2 --separate-stderr dlb-run -q "${buddy[@]}" "${train[@]}" "$doc"
	one_line dlb-run '--buddy-every: an asynchronous plan'
	of cpu:2 --replicas 2 --gossip 0.5
	run -2 --separate-stderr dlb-run -q --buddy-every 2 --dry-run "$doc"
	one_line dlb-run '--buddy-every: each replica has a state of its own'
	of cpu:2
	run -2 --separate-stderr dlb-run -q "${buddy[@]}" --freeze-at '3.weight@3' "${train[@]}" "$doc"
	one_line dlb-run '--buddy-every: --freeze-at'
}

# bats test_tags=slow
@test "--dry-run predicts the copies; on links of 10 Gb/s they cost at most a twentieth of a step" {
	gpt_and_text
	dlb-profile -q --analytic --batch 64 "$gpt" | dlb-costmodel -c 'cpu:1 host cpu:1 link=rack:2e-5,1.25e9' | dlb-place -q -m 4 >"$tmp/doc.json"
	dlb-run -q --dry-run --buddy-every 1 --optimizer adam "$tmp/doc.json" >"$tmp/out"
	jq -c '.report | [.step_s, .buddy]' "$tmp/out"
	jq -e '.report | .buddy.sent_bytes == .buddy.bytes and .buddy.link_s > 0 and .buddy.predicted_time_s <= 0.05 * .step_s' "$tmp/out"
	validates "$tmp/out"
}
