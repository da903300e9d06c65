#!/usr/bin/env bats
# --on-failure replan: a run that loses nodes goes on without them, with the same bits, and puts them back; one that cannot
# says why in one line.
load helper

steps=300
setup() {
	tmp=$BATS_TEST_TMPDIR
	export TMPDIR=$tmp/run
	mkdir "$TMPDIR"
	doc=$BATS_FILE_TMPDIR/stages.json plain=$BATS_FILE_TMPDIR/plain
	command -v mpiexec.openmpi >/dev/null || skip 'no Open MPI'
	[ -s "$doc" ] || dlb-profile --analytic --batch 24 "$model" | dlb-costmodel -c cpu:3 | dlb-place -m 2 -a even >"$doc"
	train=(--steps "$steps" --optimizer momentum --lr 0.02 "${digits[@]}")
	[ -s "$plain" ] || dlb-run -q "${train[@]}" --loss-log "$plain" "$doc" >/dev/null
	# slow enough to be hit; the bits are the same
	replan=(--on-failure replan --checkpoint "$tmp/ck" --checkpoint-every 50 --slow 0:90 --slow 1:90 --slow 2:90 --step-log "$tmp/steps" "${train[@]}")
}

# The run succeeded; losses and both logs are those of the unbroken run, and nothing is left.
same_bits() {
	local status=0
	wait "$parent" || status=$?
	cat "$tmp/err"
	[ "$status" -eq 0 ]
	cmp "$tmp/log" "$plain"
	jq -es "map(.step) == [range(1; $steps + 1)]" "$tmp/steps"
	cmp <(jq -c .loss "$tmp/steps") <(jq -c . "$plain")
	validates "$tmp/out"
	[ -z "$(find "$TMPDIR" -mindepth 1)" ]
	for pid in "${ranks[@]}"; do
		[ ! -e "/proc/$pid" ] || grep -q '^State:.Z' "/proc/$pid/status"
	done
}

same_as_unbroken() { # NODE...: the same, and the nodes that were lost
	same_bits
	jq -c .report.events "$tmp/out"
	jq -e --argjson lost "[$(IFS=,; echo "$*")]" '
		(.report.events | map(.node)) == $lost and all(.report.events[]; .cause | length > 5) and
		.plan.exclude == ($lost | unique) and all(.plan.placement[]; . as $n | $lost | index($n) == null) and
		.report.first_step + .report.steps == '"$steps" "$tmp/out"
}

# bats test_tags=slow
@test "a rank killed or stopped while training: the same losses, logs without a gap, and the report tells" {
	while read -r signal rank; do
		chosen || [ "$rank" = 0 ] || continue
		echo "$signal $rank"
		rm -rf "$tmp/ck" "$tmp/steps"
		started "${replan[@]}" "$doc"
		wait_for_lines "$tmp/log" 120
		ranks_of "$parent"
		kill "-$signal" "${ranks[rank]}"
		same_as_unbroken "$rank"
		jq -e '.report.first_step >= 50 and (.report.events[0] | .step >= 119 and .resume_s > 0 and (.notice_s // 0) >= 0)' "$tmp/out"
		dlb-view "$tmp/out" | grep -A 1 'noticed' | tail -1 | grep -Eq "^ +[0-9]+ +$rank "
	done <<-'END'
		KILL 0
		STOP 0
		KILL 1
		STOP 2
	END
}

# bats test_tags=slow
@test "a rank killed or stopped before the ranks meet: the run begins nevertheless" {
	while read -r signal rank; do
		rm -rf "$tmp/ck" "$tmp/steps" "$tmp/once"
		on_rank "$rank" "[ -e '$tmp/once' ] || { touch '$tmp/once'; kill -$signal \$\$; }"
		started "${replan[@]}" "$doc"
		ranks=()
		if [ "$signal" = KILL ]; then	# mpiexec may not say which rank it was
			same_bits
		else
			same_as_unbroken "$rank"
		fi
		jq -e '.report.first_step == 0 and .report.steps == 300' "$tmp/out"
	done <<-'END'
		KILL 0
		STOP 1
	END
}

# bats test_tags=slow
@test "a rank killed or stopped while a checkpoint is written: the one before it counts" {
	command -v gcc >/dev/null || skip 'no gcc'
	gcc -shared -fPIC -o "$tmp/slow.so" -x c - <<-'END'
		#include <unistd.h>
		int fsync(int fd)
		{
		        (void)fd;
		        usleep(300000);
		        return 0;
		}
	END
	on_rank 0 "export LD_PRELOAD=$tmp/slow.so"
	while read -r signal rank; do
		rm -rf "$tmp/ck" "$tmp/steps"
		started "${replan[@]}" "$doc"
		wait_for_lines "$tmp/log" 100
		until compgen -G "$tmp/ck/.new-*" >/dev/null; do sleep 0.01; done
		ranks_of "$parent"
		kill "-$signal" "${ranks[rank]}"
		same_as_unbroken "$rank"
		[ -z "$(compgen -G "$tmp/ck/.*-*")" ]
	done <<-'END'
		STOP 0
		KILL 1
	END
}

# bats test_tags=slow
@test "mpiexec killed, before the first step and while training: its ranks end, and all start again with the same losses" {
	dlb-run --loss-log "$tmp/log" "${replan[@]}" "$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
	until mpiexec=$(pgrep -P "$parent" -f mpiexec); do sleep .01; done
	kill -KILL "$mpiexec"
	wait_for_lines "$tmp/log" 120
	ranks_of "$parent"
	kill -KILL "$(pgrep -P "$parent" -f mpiexec)"
	same_bits
	grep -q '^dlb-run: a rank or mpiexec was killed before the first step; starting the ranks again$' "$tmp/err"
	at=$(sed -En "s|^dlb-run: mpiexec was killed by signal 9; going on from '.*/step-([0-9]+)': the ranks are started again$|\\1|p" "$tmp/err")
	[ "$at" -ge 100 ]	# the checkpoint before the kill, or a later one where the kill came late
	jq -e --argjson at "$at" '.report.events == null and .plan.exclude == null and .report.first_step == $at' "$tmp/out"
	# at each start: three more are tried
	on_rank 0 'kill -KILL $PPID; sleep 9'
	run -2 --separate-stderr dlb-run --on-failure replan --checkpoint "$tmp/none" --checkpoint-every 9 "${train[@]}" "$doc"
	[ "$(grep -c 'starting the ranks again$' <<<"$stderr")" -eq 3 ]
	[ "$(grep -c 'mpiexec was killed by signal 9' <<<"$stderr")" -eq 1 ]
}

# bats test_tags=slow
@test "a rank killed before and after weights are frozen: the same losses" {
	train+=(--freeze-at '0.*@80')
	replan=("${replan[@]}" --freeze-at '0.*@80')
	plain=$tmp/plain
	dlb-run -q "${train[@]}" --loss-log "$plain" "$doc" >/dev/null
	run -1 cmp "$plain" "$BATS_FILE_TMPDIR/plain"
	for lines in 60 120; do
		rm -rf "$tmp/ck" "$tmp/steps"
		started "${replan[@]}" "$doc"
		wait_for_lines "$tmp/log" $lines
		ranks_of "$parent"
		kill -KILL "${ranks[1]}"
		same_as_unbroken 1
	done
}

# bats test_tags=slow
@test "a second loss, and the last one" {
	dlb-run --loss-log "$tmp/log" "${replan[@]}" --slow 0:400 --slow 1:400 --slow 2:400 "$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
	wait_for_lines "$tmp/log" 60
	ranks_of "$parent"
	kill -KILL "${ranks[2]}"
	first=("${ranks[@]}")
	for _ in $(seq 1500); do	# the second start, as far as its first steps
		sleep 0.02
		ranks_of "$parent"
		[ "${#ranks[@]}" -ge 3 ] && [ "${ranks[0]}" != "${first[0]}" ] && grep -q 'going on' "$tmp/err" && break
	done
	sleep 0.8
	for _ in $(seq 100); do		# Open MPI may have tried this start again
		ranks_of "$parent"
		kill -KILL "${ranks[0]}" && break
		sleep 0.05
	done
	same_as_unbroken 2 0
	grep -q ': 2 of 3 nodes are left$' "$tmp/err"
	grep -q ': 1 of 3 nodes are left$' "$tmp/err"
	# a rank that dies at each start
	on_rank 0 'kill -KILL $$'
	run -2 --separate-stderr dlb-run -q --on-failure replan --checkpoint "$tmp/none" --checkpoint-every 9 "${train[@]}" "$doc"
	one_line dlb-run
}

# bats test_tags=slow
@test "replicas: as many as nodes are left, and a line says so; a run that goes on counts its steps from its own start" {
	dlb-place --replicas 3 "$doc" >"$tmp/three.json"
	dlb-run -q --steps 20 --checkpoint "$tmp/ck" "${digits[@]}" --optimizer momentum "$tmp/three.json" >"$tmp/first.json"
	rm -f "$tmp/log"
	dlb-run "${replan[@]}" --slow 0:300 --slow 1:300 --slow 2:300 --steps 100 --loss-log "$tmp/log" --metrics "$tmp/m.prom" "$tmp/three.json" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
	wait_for_lines "$tmp/log" 45
	ranks_of "$parent"
	kill -KILL "${ranks[1]}"
	wait "$parent"
	grep -Eq "^dlb-run: lost rank 1: killed by signal 9; going on from '$tmp/ck/step-[0-9]+': 2 of 3 nodes are left, 2 replicas instead of 3" "$tmp/err"
	[ "$(wc -l <"$tmp/log")" -eq 100 ]			# the log began with the second run
	jq -es 'map(.step) == [range(21; 121)]' "$tmp/steps"
	jq -e '(.plan.replicas | length == 2) and .report.first_step + .report.steps == 120' "$tmp/out"
	grep -qx 'dlb_steps_total 120' "$tmp/m.prom"
}

# bats test_tags=slow
@test "--on-event is told of the loss and of the first step after it" {
	started "${replan[@]}" --on-event "printf '%s %s %s\n' \"\$DLB_EVENT\" \"\$DLB_NODE\" \"\$DLB_STEP\" >>'$tmp/told'" "$doc"
	wait_for_lines "$tmp/log" 60
	ranks_of "$parent"
	kill -KILL "${ranks[1]}"
	same_as_unbroken 1
	grep -Eq '^lost 1 [0-9]+$' <(head -1 "$tmp/told")
	grep -Eq '^resumed 1 [0-9]+$' <(tail -1 "$tmp/told")
	[ "$(wc -l <"$tmp/told")" -eq 2 ]
}

# bats test_tags=slow
@test "--rejoin: a lost node is put back at the next checkpoint, with the plan of the start and the same losses" {
	while read -r every rank; do
		every=${every#-}
		echo "every '$every' $rank"
		rm -rf "$tmp/ck" "$tmp/steps" "$tmp/log" "$tmp/told"
		# shellcheck disable=SC2086
		dlb-run --loss-log "$tmp/log" "${train[@]}" --on-failure replan --rejoin 0.3 --checkpoint "$tmp/ck" ${every:+--checkpoint-every $every} \
			--slow 0:120 --slow 1:120 --slow 2:120 --step-log "$tmp/steps" --on-event "echo \"\$DLB_EVENT \$DLB_NODE\" >>'$tmp/told'" \
			"$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
		parent=$!
		wait_for_lines "$tmp/log" 30
		ranks_of "$parent"
		kill -KILL "${ranks[rank]}"
		same_bits
		jq -c .report.events "$tmp/out"
		grep -Eq "^dlb-run: node $rank is back at step [0-9]+; going on from '.*': all 3 nodes are there" "$tmp/err"
		jq -e --argjson rank "$rank" --argjson every "${every:-1}" '
			(.report.events | map([.node, .rejoined]) == [[$rank, null], [$rank, true]] and .[1].step % $every == 0 and .[1].resume_s > 0) and
			.plan.exclude == null and .report.first_step == .report.events[1].step' "$tmp/out"
		diff <(jq -c .plan.placement "$doc") <(jq -c .plan.placement "$tmp/out")
		[ "$(tr '\n' ' ' <"$tmp/told")" = "lost $rank resumed $rank rejoined $rank " ]
	done <<-'END'
		20 1
		20 0
		- 2
	END
}

# bats test_tags=slow
@test "--rejoin: a node that is lost again is put back again, after twice the time; 0: never" {
	dlb-run --loss-log "$tmp/log" "${replan[@]}" --rejoin 0.3 --checkpoint-every 10 --slow 0:250 --slow 1:250 --slow 2:250 "$doc" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
	wait_for_lines "$tmp/log" 30
	for i in 1 2; do
		ranks_of "$parent"
		kill -KILL "${ranks[1]}"
		until [ "$(grep -c 'is back' "$tmp/err")" -eq $i ]; do
			kill -0 "$parent" || cat "$tmp/err"
			kill -0 "$parent"
			sleep .05
		done
		wait_for_lines "$tmp/log" $(($(wc -l <"$tmp/log") + 3)) # the ranks train again
	done
	same_bits
	jq -e '(.report.events | map(.rejoined) == [null, true, null, true]) and .plan.exclude == null' "$tmp/out"
	rm -rf "$tmp/ck" "$tmp/steps"
	started "${replan[@]}" --rejoin 0 "$doc"
	wait_for_lines "$tmp/log" 60
	ranks_of "$parent"
	kill -KILL "${ranks[1]}"
	same_as_unbroken 1
}

# bats test_tags=slow
@test "an error of the input is no lost node: one line, as without replan" {
	arrays "$tmp/spoilt" 960 800
	started --on-failure replan --checkpoint "$tmp/ck" --checkpoint-every 10 --order sequential --epochs 2 \
		--data "npy:$tmp/spoilt.x.npy,$tmp/spoilt.y.npy" "$doc"
	wait_for_lines "$tmp/log" 33
	ends "$tmp/log" 'step 33'
}

@test "replan without a checkpoint, or under somebody's mpirun, is refused; a plan of one node has no use for it" {
	run -2 --separate-stderr dlb-run --on-failure replan "${train[@]}" "$doc"
	one_line dlb-run '--on-failure replan' '--checkpoint DIR'
	run -2 --separate-stderr mpirun --oversubscribe -n 3 dlb-run -q --on-failure replan --checkpoint "$tmp/ck" "${train[@]}" "$doc"
	grep -q '^dlb-run\[0\]: --on-failure replan: .*; start dlb-run without mpirun' <<<"$stderr"
	run -2 --separate-stderr dlb-run --on-failure perhaps "${train[@]}" "$doc"
	one_line dlb-run "not 'perhaps'"
	run -0 --separate-stderr dlb-run --rejoin 9 "${train[@]}" --steps 1 "$doc"
	[[ "$stderr" = *"--rejoin has no effect"*"--on-failure replan"* ]]
}

@test "--drain: no ops for the node, the same losses, also where a run goes on" {
	dlb-run -q --drain 1 --drain 0 "${train[@]}" --loss-log "$tmp/log" "$doc" >"$tmp/out"
	cmp "$tmp/log" "$plain"
	jq -e '.plan.exclude == [0, 1] and all(.plan.placement[]; . == 2) and (.report.nodes | length == 3)' "$tmp/out"
	validates "$tmp/out"
	dlb-run -q "${train[@]}" --steps 100 --checkpoint "$tmp/ck" --loss-log "$tmp/log" "$doc" >/dev/null
	dlb-run -q "${train[@]}" --steps 200 --checkpoint "$tmp/ck" --loss-log "$tmp/log" --drain 2 "$doc" >/dev/null
	cmp "$tmp/log" "$plain"
	run -2 --separate-stderr dlb-run --drain 3 "${train[@]}" "$doc"
	one_line dlb-run "--drain '3': there are nodes 0 to 2"
	run -2 --separate-stderr dlb-run --drain 0 --drain 1 --drain 2 "${train[@]}" "$doc"
	one_line dlb-run '--drain: no node is left'
}

@test "--drain: replicas keep their shares of the batch, even or not, and the losses their bits" {
	jq 'del(.plan, .cost)' "$doc" | dlb-costmodel -q -c 'cpu:2 cpu:1*0.5' >"$tmp/cost.json"
	for split in even power; do
		dlb-place -q --replicas 2 "$tmp/cost.json" | jq --arg split "$split" 'if $split == "power" then
			.plan += {split: "power", power: [3, 1]} else . end' >"$tmp/two.json"
		dlb-run -q "${train[@]}" --steps 12 --loss-log "$tmp/whole" "$tmp/two.json" >"$tmp/out"
		dlb-run -q "${train[@]}" --steps 12 --loss-log "$tmp/drained" --drain 1 "$tmp/two.json" >"$tmp/out"
		jq -e '.plan.exclude == [1]' "$tmp/out"
		cmp "$tmp/whole" "$tmp/drained"
	done
}

# bats test_tags=slow
@test "--release idle: nodes that make no step shorter get no ops, with the same losses; those that do keep them" {
	jq 'del(.plan, .cost)' "$doc" | dlb-costmodel -q -c 'cpu:3 link=shm:1e-3,1e6' | dlb-place -q -m 2 -a even >"$tmp/far.json"
	dlb-run --release idle "${train[@]}" --loss-log "$tmp/log" "$tmp/far.json" >"$tmp/out" 2>"$tmp/err"
	cmp "$tmp/log" "$plain"
	grep -Eq '^dlb-run: --release idle: without nodes [012], [012] a step takes [0-9.]+ ms by the plan, [0-9.]+ ms with all nodes$' "$tmp/err"
	jq -e '(.plan.exclude | length == 2) and (.plan.exclude as $out | all(.plan.placement[]; . as $n | $out | index($n) == null))' "$tmp/out"
	[ "$(jq .plan.value_s "$tmp/out")" != "$(jq .plan.value_s "$tmp/far.json")" ]
	# a node that has no ops is found, one that is drained is none of them; replicas stay as many
	jq 'del(.plan, .cost)' "$doc" | dlb-costmodel -q -c 'cpu:3 link=shm:1e-7,1e11' | dlb-place -q -m 12 --exclude 0 >"$tmp/near.json"
	dlb-run --release idle --dry-run "$tmp/near.json" 2>"$tmp/err" >"$tmp/out"
	grep -q -- '--release idle: all nodes are needed' "$tmp/err"
	jq -e '.plan.exclude == [0]' "$tmp/out"
	dlb-place -q --replicas 3 "$tmp/far.json" | dlb-run --release idle --dry-run 2>"$tmp/err" >"$tmp/out"
	jq -e '.plan.replicas | length == 3' "$tmp/out"
	run -2 --separate-stderr dlb-run --release busy "$doc"
	one_line dlb-run "--release wants idle, not 'busy'" "try 'dlb-run --help'"
}
