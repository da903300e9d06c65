#!/usr/bin/env bats
# dlb-run under Slurm: srun, salloc, and the script of dlb-convert --to sbatch, on a controller and two daemons of our own.
load helper
model=$models/digits_mlp.onnx

setup_file() {
	local run=$BATS_FILE_TMPDIR/slurm host i port=$((20000 + RANDOM % 10000))

	command -v slurmctld >/dev/null && command -v slurmd >/dev/null && command -v sbatch >/dev/null || return 0
	[ "$(id -u)" = 0 ] || return 0
	host=$(hostname -s)
	mkdir -p "$run"/{ctl,a,b,tmp_a,tmp_b}
	export SLURM_CONF=$run/slurm.conf
	cat >"$SLURM_CONF" <<-END
		ClusterName=t
		SlurmctldHost=$host(127.0.0.1)
		SlurmctldPort=$port
		AuthType=auth/none
		CredType=cred/none
		SlurmUser=root
		SlurmdUser=root
		StateSaveLocation=$run/ctl
		SlurmdSpoolDir=$run/%n
		SlurmctldPidFile=$run/ctld.pid
		SlurmdPidFile=$run/%n.pid
		SlurmctldLogFile=$run/ctld.log
		SlurmdLogFile=$run/%n.log
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		SchedulerType=sched/builtin
		JobAcctGatherType=jobacct_gather/none
		AccountingStorageType=accounting_storage/none
		SwitchType=switch/none
		MpiDefault=none
		TmpFS=$run/tmp_%n
		ReturnToService=2
		SlurmdParameters=config_overrides
		NodeName=a NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1
		NodeName=b NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1
		PartitionName=p Nodes=a,b Default=YES MaxTime=10 State=UP OverSubscribe=YES
	END
	# the daemons must not hold the descriptor that bats waits for
	slurmctld -f "$SLURM_CONF" 3>&- && slurmd -f "$SLURM_CONF" -N a 3>&- && slurmd -f "$SLURM_CONF" -N b 3>&- || return 0
	for i in $(seq 40); do
		[ "$(sinfo -h -t idle -o %D 2>/dev/null)" != 2 ] || { touch "$run/up"; return 0; }
		sleep .5
	done
}

teardown_file() { # bats removes their files next, in which they still write
	local file pid
	for file in "$BATS_FILE_TMPDIR"/slurm/*.pid; do
		pid=$(cat "$file" 2>/dev/null) || continue
		kill "$pid" || continue
		timeout 20 tail --pid="$pid" -f /dev/null || true
	done
}

setup() {
	[ -e "$BATS_FILE_TMPDIR/slurm/up" ] || skip 'no Slurm that starts here (packages slurmctld slurmd slurm-client, as root)'
	tmp=$BATS_TEST_TMPDIR
	export TMPDIR=$tmp/run	# a killed job of another test leaves files there
	mkdir "$TMPDIR"
	cd "$tmp" || return
	squeue -h -o %A | xargs -r scancel	# of a test that failed
	kill -0 "$(cat "$BATS_FILE_TMPDIR/slurm/b.pid")" || b_returns
	idle
	dlb-profile -q --analytic -b 16 "$model" | dlb-costmodel -q -c 'cpu:1 host cpu:1' | dlb-place -q -m 2 -a even >doc.json
}

waits() { # STATE SECONDS: for the only job to be in this state. An slurmctld that is too busy to answer says nothing
	local i state
	for i in $(seq $((2 * $2))); do
		! state=$(squeue -h -o %T) || [ "$state" != "$1" ] || return 0
		sleep .5
	done
	squeue >&2
	cat slurm-*.out >&2
	return 1
}

# The job is pending again. Slurm lets it wait for two minutes; and within the second of its end the daemons refuse the
# next start ("Job credential revoked"), because they compare whole seconds.
starts_again() {
	sleep 2
	scontrol update jobid="$job" StartTime=now
}

job_says() {
	scontrol show job "$job" || true
	cat slurm-*.out
} >&2

completes() { # SECONDS: waits until the job has ended by itself
	local i
	for i in $(seq $((2 * $1))); do
		[[ "$(scontrol -o show job "$job")" != *" JobState=COMPLETED "* ]] || return 0
		sleep .5
	done
	job_says
	return 1
}

same_losses() { # of the job, whose output says why if not
	cmp plain log && return
	job_says
	ls -l "checkpoint-$job" >&2
	return 1
}

# bats test_tags=slow
@test "srun with PMIx and salloc: the losses of a run without Slurm" {
	dlb-run -q "${digits[@]}" --steps 5 doc.json | jq -c .report.losses >plain
	srun --mpi=pmix -N2 dlb-run -q "${digits[@]}" --steps 5 doc.json | jq -c .report.losses >by-srun
	cmp plain by-srun
	salloc -Q -N2 dlb-run -q "${digits[@]}" --steps 5 doc.json | jq -c .report.losses >by-salloc
	cmp plain by-salloc
	run -2 --separate-stderr srun --mpi=none -N2 dlb-run -q "${digits[@]}" --steps 5 doc.json
	[[ "$stderr" = *"--mpi=pmix"* ]]
}

# bats test_tags=slow
@test "sbatch: a job that is queued again continues, with the same losses" {
	dlb-run -q "${digits[@]}" --until-step 1500 --loss-log plain --slow 0:30 doc.json >out.json
	dlb-convert --to sbatch doc.json >job
	job=$(sbatch --parsable --time=5 job doc.json "${digits[@]}" --until-step 1500 --slow 0:30 --loss-log log)
	waits RUNNING 20
	until [ -s log ]; do sleep .1; done
	scontrol requeue "$job"
	waits PENDING 40
	[ "$(ls "checkpoint-$job")" != lock ]
	[ "$(wc -l <log)" -lt 1500 ]
	starts_again
	completes 90
	same_losses
	jq -e '.report.stopped == "steps"' "report-$job.json"
}

# bats test_tags=long
@test "sbatch: the time limit, again and again, until the job ends by itself" {
	dlb-run -q "${digits[@]}" --until-step 6000 --loss-log plain --slow 0:30 doc.json >out.json
	dlb-convert --to sbatch doc.json >job
	job=$(sbatch --parsable --time=1 --signal=TERM@50 job doc.json "${digits[@]}" --until-step 6000 --slow 0:30 --loss-log log)
	waits RUNNING 20		# it is pending at first, too
	until [ -s log ]; do sleep .1; done
	while [ "$(wc -l <log)" -lt 6000 ]; do
		waits PENDING 70 || break
		starts_again
		sleep 2
		[ -n "$(squeue -h)" ] || break
	done
	completes 90
	same_losses
	[[ "$(cat "slurm-$job.out")" != *"dlb-run["* ]]
}

lose_b() { # as in a power failure of host b: its daemon, and all that it has started
	local environ
	kill -KILL "$(cat "$BATS_FILE_TMPDIR/slurm/b.pid")"
	for environ in /proc/[0-9]*/environ; do
		! tr '\0' '\n' 2>/dev/null <"$environ" | grep -qx -e SLURMD_NODENAME=b || ! grep -qzx -e "SLURM_CONF=$SLURM_CONF" "$environ" ||
			kill -KILL "$(basename "${environ%/environ}")" || true
	done
}
b_returns() {
	slurmd -f "$SLURM_CONF" -N b 3>&-
}
said() { # FILE TEXT: waits for it
	local i
	for i in $(seq 600); do
		! grep -q -- "$2" "$1" || return 0
		sleep .1
	done
	cat "$1"
	return 1
}
idle() { # waits until both hosts are free
	local i
	for i in $(seq 60); do
		[ "$(sinfo -h -t idle -o %D)" != 2 ] || return 0
		sleep .5
	done
	sinfo
	return 1
}

# bats test_tags=slow
@test "salloc, a slurmd is killed in mid-run: the rest replan, and its node is put back, with the same losses" {
	dlb-run -q "${digits[@]}" --steps 3000 --loss-log plain doc.json >out.json
	salloc -Q -N2 --no-kill dlb-run --on-failure replan --rejoin 1 --checkpoint ck --checkpoint-every 50 --slow 0:50 --slow 1:50 \
		"${digits[@]}" --steps 3000 --loss-log log doc.json >out.json 2>err 3>&- &
	job=$!
	wait_for_lines log 120
	lose_b
	said err 'going on'
	b_returns
	said err 'is back'
	wait "$job"
	cat err
	grep -Eq "^dlb-run: .*lost host b \(node 1\): it does not answer.*; going on from 'ck/step-[0-9]+': 1 of 2 nodes are left" err
	cmp plain log
	jq -e '(.report.events | map([.node, .rejoined]) == [[1, null], [1, true]]) and .plan.exclude == null' out.json
	idle
}

# bats test_tags=slow
@test "sbatch --replan: a host is lost; the job is queued again, and goes on; the losses are the same" {
	dlb-run -q "${digits[@]}" --until-step 2000 --loss-log plain doc.json >out.json
	dlb-convert --to sbatch --replan doc.json >job
	job=$(DLB_CHECKPOINT_EVERY=50 sbatch --parsable --time=5 job doc.json "${digits[@]}" --until-step 2000 --slow 0:40 --slow 1:40 --rejoin 0 --loss-log log)
	waits RUNNING 20
	wait_for_lines log 120
	lose_b
	said "slurm-$job.out" 'going on'
	wait_for_lines log 220
	scontrol requeue "$job"
	b_returns
	waits PENDING 40
	[ "$(wc -l <log)" -lt 2000 ]
	starts_again
	completes 90
	cat "slurm-$job.out"
	grep -q 'lost host b (node 1)' "slurm-$job.out"
	same_losses
	jq -e '.report.stopped == "steps" and .plan.exclude == null' "report-$job.json"
	idle
}

# bats test_tags=slow
@test "sbatch --replan: before its time limit the job writes a checkpoint, and is queued again" {
	dlb-run -q "${digits[@]}" --until-step 2000 --loss-log plain doc.json >out.json
	dlb-convert --to sbatch --replan doc.json >job
	job=$(DLB_CHECKPOINT_EVERY=100000 sbatch --parsable --time=5 job doc.json "${digits[@]}" --until-step 2000 --slow 0:40 --slow 1:40 --loss-log log)
	waits RUNNING 20
	wait_for_lines log 120
	scancel --batch --signal=TERM "$job"	# as --signal=B:TERM@120 does
	waits PENDING 40
	compgen -G "checkpoint-$job/step-*"
	starts_again
	completes 90
	cat "slurm-$job.out"
	same_losses
	idle
}
