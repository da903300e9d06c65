#!/usr/bin/env bats
# Ranks on several hosts: dlb-profile --cluster --hosts, and dlb-run with a cluster that has hosts, which loses ranks and
# hosts and gets them back. The hosts are network namespaces on a bridge, each with a name of its own and, where there is
# one, an sshd of its own; else an agent takes the place of ssh.
load helper
model=$models/digits_mlp.onnx

keys() { # for ssh to the hosts
	mkdir -p "$HOSTS_SSH" /run/sshd
	ssh-keygen -q -t ed25519 -N '' -f "$HOSTS_SSH/key" && ssh-keygen -q -t ed25519 -N '' -f "$HOSTS_SSH/host"
	cat >"$HOSTS_SSH/config" <<-END
		Host *
		IdentityFile $HOSTS_SSH/key
		IdentitiesOnly yes
		StrictHostKeyChecking no
		UserKnownHostsFile /dev/null
		LogLevel ERROR
		BatchMode yes
	END
	cat >"$HOSTS_SSH/sshd" <<-END
		HostKey $HOSTS_SSH/host
		AuthorizedKeysFile $HOSTS_SSH/key.pub
		StrictModes no
		PermitRootLogin yes
		UsePAM no
		UseDNS no
		MaxStartups 100
	END
}

# shellcheck disable=SC2015
host_starts() { # I
	touch "$BATS_FILE_TMPDIR/lives$1"
	[ -z "$HOSTS_SSH" ] || ip netns exec "$HOSTS_ID$1" unshare --uts bash -c "hostname $HOSTS_ID$1 &&
		/usr/sbin/sshd -f $HOSTS_SSH/sshd -o ListenAddress=$HOSTS_NET.$((10 + $1)) -o PidFile=$HOSTS_SSH/pid$1 -E $HOSTS_SSH/log$1" 3>&-
}

host_dies() { # I: as in a power failure
	rm -f "$BATS_FILE_TMPDIR/lives$1"
	while ip netns pids "$HOSTS_ID$1" | xargs -r kill -KILL 2>/dev/null && [ -n "$(ip netns pids "$HOSTS_ID$1")" ]; do sleep .1; done
}

setup_file() {
	local i net agent=$BATS_FILE_TMPDIR/agent

	export HOSTS_ID=d$((RANDOM % 10000))
	net=10.$((64 + RANDOM % 64)).$((RANDOM % 256))
	[ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v mpiexec.openmpi >/dev/null || return 0
	ip link add "${HOSTS_ID}b" type bridge 2>/dev/null || return 0
	ip addr add "$net.1/24" dev "${HOSTS_ID}b" && ip link set "${HOSTS_ID}b" up || return 0
	for i in 0 1; do
		ip netns add "$HOSTS_ID$i" && ip link add "$HOSTS_ID-$i" type veth peer name eth0 netns "$HOSTS_ID$i" &&
			ip link set "$HOSTS_ID-$i" master "${HOSTS_ID}b" up && ip -n "$HOSTS_ID$i" addr add "$net.$((10 + i))/24" dev eth0 &&
			ip -n "$HOSTS_ID$i" link set eth0 up && ip -n "$HOSTS_ID$i" link set lo up || return 0
		unshare --uts true 2>/dev/null || return 0
	done
	export HOSTS_SSH='' HOSTS_NET=$net
	[ ! -x /usr/sbin/sshd ] || ! command -v ssh-keygen >/dev/null || HOSTS_SSH=$BATS_FILE_TMPDIR/ssh
	[ -z "$HOSTS_SSH" ] || keys
	cat >"$agent" <<-END
		#!/bin/bash
		# [OPTION...] ADDRESS COMMAND...
		while [[ \$1 == -* ]]; do shift; done
		! rm "$BATS_FILE_TMPDIR/refuses-once" 2>/dev/null || { echo 'ssh: connection reset' >&2; exit 255; }
		[[ \$1 != $net.99 ]] || { echo 'ssh: no route to this host' >&2; exit 255; }
		[ -z "$HOSTS_SSH" ] || exec ssh -F "$HOSTS_SSH/config" "\$@"
		i=\$((\${1##*.} - 10))
		[ -e "$BATS_FILE_TMPDIR/lives\$i" ] || { echo "ssh: connect to host \$1: Connection refused" >&2; exit 255; }
		shift
		exec ip netns exec $HOSTS_ID\$i unshare --uts bash -c "hostname $HOSTS_ID\$i; \$*"
	END
	chmod +x "$agent"
	host_starts 0 && host_starts 1 || return 0
	export OMPI_MCA_plm_rsh_agent=$agent OMPI_MCA_oob_tcp_if_include=$net.0/24 \
		OMPI_MCA_btl_tcp_if_include=$net.0/24 OMPI_MCA_mpi_yield_when_idle=1
	touch "$BATS_FILE_TMPDIR/up"
}

teardown_file() {
	local i
	for i in 0 1; do
		ip netns pids "$HOSTS_ID$i" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
		ip link del "$HOSTS_ID-$i" 2>/dev/null || true
		ip netns del "$HOSTS_ID$i" 2>/dev/null || true
	done
	ip link del "${HOSTS_ID}b" 2>/dev/null || true
}

setup() {
	[ -e "$BATS_FILE_TMPDIR/up" ] || skip 'no network namespaces can be made here, or no Open MPI'
	tmp=$BATS_TEST_TMPDIR
	cd "$tmp" || return
	printf '# the second first\n%s.11 slots=1\n%s.10\n' "$HOSTS_NET" "$HOSTS_NET" >hosts
}

slow_link() { # RATE: of the link to host 1, both ways; "": as before
	ip link show "$HOSTS_ID-1" >/dev/null || return
	tc qdisc del dev "$HOSTS_ID-1" root 2>/dev/null || true
	tc -n "${HOSTS_ID}1" qdisc del dev eth0 root 2>/dev/null || true
	[ -z "$1" ] || { tc qdisc add dev "$HOSTS_ID-1" root tbf rate "$1" burst 64kbit latency 400ms &&
		tc -n "${HOSTS_ID}1" qdisc add dev eth0 root tbf rate "$1" burst 64kbit latency 400ms; }
}

on_hosts() { # a plan for the two hosts: hosts.json
	dlb-profile -q --cluster --hosts hosts >cluster.json
	dlb-profile -q --analytic -b 16 "$model" | dlb-costmodel -q -c cluster.json | dlb-place -q -m 2 -a even >hosts.json
}

# bats test_tags=slow
@test "--hosts: measured over the network, in the order of the file, and kept with their addresses" {
	dlb-profile -q --cluster --hosts hosts >cluster.json
	jq -e --arg id "$HOSTS_ID" --arg net "$HOSTS_NET" '.cluster |
		.hosts == [{name: ($id + "1"), address: ($net + ".11"), slots: 1}, {name: ($id + "0"), address: ($net + ".10"), slots: 1}] and
		[.nodes[].host] == [.hosts[].name] and ([.links[] | select(.class != "shm") | .bandwidth_Bps] | length > 0 and all(. > 0))' cluster.json
	dlb-profile -q --analytic -b 16 "$model" | dlb-profile -q --cluster --hosts hosts - | jq -e '.graph and .cluster.hosts'
	printf '%s.10 slot=1\n' "$HOSTS_NET" >wrong
	run -2 --separate-stderr dlb-profile -q --cluster --hosts wrong
	one_line dlb-profile 'wrong:1'
	printf '%s.10\n%s.99\n' "$HOSTS_NET" "$HOSTS_NET" >wrong
	run -2 --separate-stderr dlb-profile -q --cluster --hosts wrong
	one_line dlb-profile 'no route to this host'
}

# bats test_tags=slow
@test "dlb-run starts its ranks on the hosts of the cluster: the losses of one host" {
	on_hosts
	dlb-profile -q --analytic -b 16 "$model" | dlb-costmodel -q -c cpu:2 | dlb-place -q -m 2 -a even |
		dlb-run -q "${digits[@]}" --steps 5 | jq -c .report.losses >plain
	dlb-run -q "${digits[@]}" --steps 5 hosts.json >out.json
	jq -c .report.losses out.json >losses
	cmp plain losses
	jq -e '[.provenance[].tool] == ["dlb-profile", "dlb-costmodel", "dlb-place", "dlb-run"]' out.json
	dlb-run -q "${digits[@]}" --steps 5 <hosts.json | jq -c .report.losses | cmp plain
	run -2 --separate-stderr dlb-run -q --data nothing hosts.json
	one_line dlb-run 'nothing'
	# the list is checked before what was made from it
	jq '.cluster.hosts[0].name = "other"' hosts.json >bad.json
	run -2 --separate-stderr dlb-run -q "${digits[@]}" bad.json
	one_line dlb-run 'not in the list' '/cluster/hosts'
	run -2 --separate-stderr dlb-run -q --dry-run bad.json
	one_line dlb-run 'not in the list' '/cluster/hosts'
	run -2 --separate-stderr dlb-convert --to hostfile bad.json
	one_line dlb-convert 'not in the list' '/cluster/hosts'
	jq '.cluster.hosts[0].address = "a b"' hosts.json >bad.json
	run -2 --separate-stderr dlb-run -q "${digits[@]}" bad.json
	[[ "$stderr" = *"/cluster/hosts/0/address"* ]]
}

# bats test_tags=slow
@test "SIGTERM reaches the ranks on other hosts: they stop after the step, with a checkpoint" {
	on_hosts
	mkdir scratch
	TMPDIR=$tmp/scratch dlb-run -q "${digits[@]}" --steps 1000000 --checkpoint ck --loss-log log hosts.json >out.json &
	run=$!
	until [ -s log ]; do sleep .1; done
	kill "$run"
	wait "$run"
	jq -e '.report.stopped == "signal"' out.json
	[ "$(ls ck)" != lock ]
	run ! pgrep -f "$tmp/hosts.json"
	run ! ls "$tmp"/scratch/dlb-hosts-*
}

# bats test_tags=slow
@test "the link between hosts gets slow in mid-run: the plan leaves it, with the same losses" {
	command -v tc >/dev/null || skip 'no tc (Debian package iproute2)'
	dlb-profile -q --cluster --hosts hosts >cluster.json
	dlb-profile -q -b 64 "$models/resnet8.onnx" | dlb-costmodel -q -c cluster.json | dlb-place -q -m 4 -a even >even.json
	jq 'del(.plan.algorithm_given)' even.json >hosts.json
	set -- --data random --seed 5 --lr 0.01
	dlb-run -q --steps 150 "$@" --loss-log plain hosts.json >out.json
	dlb-run -v --steps 150 --rounds auto --round-steps 10 "$@" --loss-log log hosts.json >out.json 2>err 3>&- &
	parent=$!
	wait_for_lines log 25
	slow_link 80mbit
	wait "$parent"
	slow_link ""
	grep -o 'round [0-9]*: .*' err
	cmp log plain
	jq -c '.balance.links' out.json
	# the plan leaves the link: after two late rounds, which correct it, or at once, where another plan pays without
	jq -e '[.balance.history[].step_s] | .[-1] < max / 3' out.json
	grep -Eq 'link .* has about .* MB/s instead of ' err
	if jq -e '[.balance.history[].step_s] | max as $max | map(select(. > $max / 3)) | length > 1' out.json; then
		jq -e '.balance.links | length > 0 and all(.factor < 0.5)' out.json
		grep -Eq 'link .* counts with .* MB/s: .* ops move' err
	fi
}

# Runs that lose nodes: slow enough to be hit; the bits are the same.
steps=1500
loses() { # SLOW [DLB-RUN-OPTION...]: starts one in the background: parent
	local slow=$1
	shift
	on_hosts
	dlb-run -q --steps $steps "${digits[@]}" --loss-log plain hosts.json >out.json
	dlb-run --on-failure replan --checkpoint ck --checkpoint-every 50 --slow "0:$slow" --slow "1:$slow" --steps $steps "${digits[@]}" \
		--loss-log log --note "$tmp" --on-event 'echo "$DLB_EVENT $DLB_NODE" >>told' "$@" hosts.json >out.json 2>err 3>&- &
	parent=$!
	wait_for_lines log 120
	sleep 1		# until heartbeats have arrived, also where 120 steps take less than their period
}
said() { # TEXT: waits until the run has printed it
	until grep -q -- "$1" err; do
		sleep .1
		kill -0 "$parent" || { cat err; return 1; }
	done
}
ends_with() { # STATUS
	local status=0
	wait "$parent" || status=$?
	cat err
	[ "$status" = "$1" ]
}
same_losses() {
	ends_with 0
	jq -c .report.events out.json
	cmp log plain
	validates out.json
	[ -z "$(pgrep -f -- "--remote-worker.*$tmp")" ]
	[ -z "$(find /dev/shm -name "vader_segment.$HOSTS_ID*")" ]
}
put_back() { # the plan is that of the start
	diff <(jq -c '.plan | [.placement, .exclude]' hosts.json) <(jq -c '.plan | [.placement, .exclude]' out.json)
}

# bats test_tags=slow
@test "a rank on another host is killed: the run goes on without its node, and puts it back, with the same losses" {
	loses 80 --rejoin 1
	kill -KILL "$(pgrep -f -- "^[^ ]*dlb-run --remote-worker.*$tmp" | tail -1)"
	said 'is back'
	same_losses
	put_back
	grep -Eq "^dlb-run: lost rank [01]: killed by signal 9; going on from 'ck/step-[0-9]+': 1 of 2 nodes are left" err
	jq -e '.report.events | map(.rejoined) == [null, true] and .[0].node == .[1].node' out.json
	[ "$(cut -d' ' -f1 told | tr '\n' ' ')" = 'lost resumed rejoined ' ]
}

# bats test_tags=slow
@test "a host that refuses once, as where two jobs share Open MPI's folder, is not lost" {
	loses 80 --rejoin 0
	touch "$BATS_FILE_TMPDIR/refuses-once"
	kill -KILL "$(pgrep -f -- "^[^ ]*dlb-run --remote-worker.*$tmp" | tail -1)"
	said 'going on'
	[ ! -e "$BATS_FILE_TMPDIR/refuses-once" ]
	same_losses
	run ! grep 'lost host' err
}

# bats test_tags=slow
@test "a host dies, and answers again: hosts and nodes are named, and nothing is left there" {
	loses 120 --rejoin 1
	host_dies 0	# node 1
	said 'going on'
	host_starts 0
	said 'is back'
	same_losses
	put_back
	grep -Eq "lost host ${HOSTS_ID}0 \(node 1\): it does not answer.*; going on from 'ck/step-[0-9]+': 1 of 2 nodes are left" err
	grep -Eq "node 1 is back at step [0-9]+; going on from 'ck/step-[0-9]+': all 2 nodes are there" err
	jq -e '.report.events | map([.node, .rejoined]) == [[1, null], [1, true]]' out.json
	[ -z "$(compgen -G "/tmp/ompi.${HOSTS_ID}*/*")" ]
}

# bats test_tags=slow
@test "the host of rank 0 is cut off: the rest go on, and its ranks end when the link is there again" {
	loses 80 --rejoin 0
	ip link set "$HOSTS_ID-1" down
	said 'going on'
	ip link set "$HOSTS_ID-1" up
	same_losses
	# the kernel gives the address up after about as long as the probe waits, and Open MPI then says why
	grep -Eq "^dlb-run: node 0 \(host ${HOSTS_ID}1\) is silent for .* s at step [0-9]+; lost host ${HOSTS_ID}1 \(node 0\): it does not answer( within 3 s|: .* TCP connection); going on" err
	jq -e '(.report.events | map(.node) == [0]) and .plan.exclude == [0] and .report.events[0].notice_s < 30' out.json
}

# bats test_tags=slow
@test "all hosts die: one line; without replan a dead host ends the run" {
	loses 80
	host_dies 0
	host_dies 1
	ends_with 2
	grep -q 'cannot go on: no node is left' err
	host_starts 0
	host_starts 1
	rm -rf ck log
	loses 80 --on-failure stop
	host_dies 0
	ends_with 2
	[ "$(grep -c . err)" -eq 1 ]
	[ ! -s out.json ]
	host_starts 0
}

# bats test_tags=slow
@test "copies on another host: a host dies, and then a rank; at most one step is done again, and the copies are removed" {
	loses 150 --rejoin 1 --checkpoint-every 100000 --buddy-every 1	# so slow that the host is back before the end
	host_dies 0	# node 1
	said 'of which there are copies'
	host_starts 0
	said 'is back'
	same_losses
	put_back
	jq -c '.report.buddy' out.json
	jq -e '.report.events | length == 2 and .[0].copies and (.[0] | .step - .from_step <= 1)' out.json
	jq -e '.report.buddy | .sent_bytes == .bytes and .buddies == [1, 0] and (.removed | length) == 2' out.json
	for folder in $(jq -r '.report.buddy.removed[]' out.json); do [ ! -e "$folder" ]; done
	[ -z "$(find /dev/shm -name "dlb-copies.*.$HOSTS_ID*")" ]
	rm -rf ck log
	loses 80 --rejoin 0 --checkpoint-every 100000 --buddy-every 1
	kill -KILL "$(pgrep -f -- "^[^ ]*dlb-run --remote-worker.*$tmp" | tail -1)"
	said 'of which there are copies'
	same_losses
	jq -e '.report.events | length == 1 and .[0].copies and (.[0] | .step - .from_step <= 1)' out.json
	[ -z "$(find /dev/shm -name "dlb-copies.*.$HOSTS_ID*")" ]
}

# bats test_tags=slow
@test "copies on another host: the host of rank 0 is cut off" {
	loses 80 --rejoin 0 --checkpoint-every 100000 --buddy-every 1
	ip link set "$HOSTS_ID-1" down
	said 'of which there are copies'
	ip link set "$HOSTS_ID-1" up
	same_losses
	jq -e '.report.events | length == 1 and .[0].copies and (.[0] | .step - .from_step <= 1)' out.json
	[ -z "$(find /dev/shm -name "dlb-copies.*.$HOSTS_ID*")" ]
	# a run that ends with an error, after some copies
	rm -rf ck
	run -2 --separate-stderr dlb-run -q --on-failure replan --buddy-every 1 --checkpoint ck --steps 50 --lr 1e30 "${digits[@]}" hosts.json
	one_line dlb-run 'is not finite'
	[ -z "$(find /dev/shm -name "dlb-copies.*.$HOSTS_ID*")" ]
}
