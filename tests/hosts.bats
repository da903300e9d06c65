#!/usr/bin/env bats
# Ranks on several hosts: dlb-profile --cluster --hosts, and dlb-run with a cluster that has hosts. The hosts are network
# namespaces on a bridge, each with a name of its own; an agent takes the place of ssh.
load helper
model=$models/digits_mlp.onnx

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
	cat >"$agent" <<-END
		#!/bin/bash
		# [OPTION...] ADDRESS COMMAND...
		while [[ \$1 == -* ]]; do shift; done
		[[ \$1 != $net.99 ]] || { echo 'ssh: no route to this host' >&2; exit 255; }
		name=$HOSTS_ID\$((\${1##*.} - 10))
		shift
		exec ip netns exec "\$name" unshare --uts bash -c "hostname \$name; \$*"
	END
	chmod +x "$agent"
	export HOSTS_NET=$net OMPI_MCA_plm_rsh_agent=$agent OMPI_MCA_oob_tcp_if_include=$net.0/24 \
		OMPI_MCA_btl_tcp_if_include=$net.0/24 OMPI_MCA_mpi_yield_when_idle=1
	touch "$BATS_FILE_TMPDIR/up"
}

teardown_file() {
	local i
	for i in 0 1; do
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
	jq '.cluster.hosts[0].name = "other"' hosts.json >bad.json
	run -2 --separate-stderr dlb-run -q "${digits[@]}" bad.json
	one_line dlb-run 'not in the list'
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
