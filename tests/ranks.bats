#!/usr/bin/env bats
# dlb-profile by several ranks of this host: the kinds that each has, clusters, and the hosts of a file, for
# which a stand-in of mpiexec says what ranks and hosts would say.
load helper
model=$models/digits_mlp.onnx

setup() {
	tmp=$BATS_TEST_TMPDIR
	cd "$tmp" || return
	command -v mpiexec.openmpi >/dev/null || skip 'no Open MPI'
}

# Two ranks with options of their own: by_ranks 'OPTIONS OF RANK 0' 'OPTIONS OF RANK 1'
by_ranks() {
	printf '#!/bin/bash\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec dlb-profile %s\nexec dlb-profile %s\n' "$1" "$2" >as-rank
	chmod +x as-rank
	mpirun --oversubscribe --bind-to none -np 2 ./as-rank
}

@test "each kind of both ranks is measured, and all its figures are of one measurement" {
	by_ranks "-q -b 4 -d cpu/2 -d cpu $model" "-q -b 4 -d cpu/3 -d cpu/2 $model" >doc.json
	validates doc.json
	jq -e '.profile | ([.kinds[].name] == ["cpu/2", "cpu/3", "cpu"]) and (.kinds | all(.peak_flops > 1e8 and .bandwidth_Bps > 1e7 and
		.step_s > 0 and .step_s < 1 and (.step_spread // 0) >= 0 and (.step_overhead_s // 0) < 1))' doc.json
	# each op is the only one of its row, so that a step takes the sum of the rows
	jq -e '.profile as $p | $p.rows | all(.ops | length == 1) and ([$p.kinds[] | .name as $k | .step_s /
		([$p.rows[].time_s[$k][0]] | add) | . > 0.999999 and . < 1.000001] | all)' doc.json
	jq -e '.profile.rows | all(.time_s | length == 3 and all(length == 3)) and
		([.[] | select(.scratch_bytes)] | length > 0 and all(.scratch_bytes | length == 3 and (to_entries | all(.value > 0))))' doc.json
	run -2 --separate-stderr by_ranks "-q -b 4 -d cpu $model" "-q -b 4 -d cpu $models/digits_cnn.onnx"
	[ "$(grep -c 'the ranks were not given the same model and options' <<<"$stderr")" -ge 1 ]
}

@test "--cluster by two ranks: a node each on one host, and the link between them" {
	mpirun --oversubscribe --bind-to none -np 2 dlb-profile -q --cluster >two.json
	validates two.json
	jq -e '.cluster | (.nodes | map([.kind, .group, .device])) == (.groups[0].name | [["cpu", ., 0], ["cpu", ., 1]]) and
		(.links | length == 1 and all(.class == "shm" and .latency_s > 0 and .latency_s < 1 and .bandwidth_Bps > 1e6))' two.json
	# compared with a document by both, told by one
	jq '.cluster.groups[0].cores = 12345 | .cluster.kinds[0] |= del(.peak_flops, .bandwidth_Bps) |
		.cluster.kinds += [{name: "gpu", backend: "cuda"}]' two.json >other.json
	run -1 --separate-stderr mpirun --oversubscribe --bind-to none -np 2 dlb-profile --check other.json
	[ "$(grep -c '12345 in the document' <<<"$stderr")" -eq 1 ]
	[ "$(grep -c "the speed of kind 'cpu' is not checked: the document has none" <<<"$stderr")" -eq 1 ]
	[ "$(grep -c "kind 'gpu' is not checked: devices are checked by one process" <<<"$stderr")" -eq 1 ]
	[ "$(grep -c 'dlb-profile' <<<"$stderr")" -eq 3 ]
	run -2 --separate-stderr mpirun --oversubscribe --bind-to none -np 2 dlb-profile --check <other.json
	[ "$(grep -c 'needs a document that each can read; name its file' <<<"$stderr")" -eq 1 ]
}

# The hosts of `hosts`, with mpiexec replaced by a script: it keeps its arguments and the host file.
pretended() { # WHAT MPIEXEC DOES
	printf '%b' "${hosts_file:-# the second first\nb1 slots=1 user=me\na1 slots=2\n}" >hosts
	mkdir -p bin temporary
	cat >bin/mpiexec.openmpi <<-END
		#!/bin/bash
		printf '%s ' "\$@" >arguments
		cp "\$4" hostfile
		$1
	END
	chmod +x bin/mpiexec.openmpi
	PATH=$tmp/bin:$PATH TMPDIR=$tmp/temporary dlb-profile "${@:2}" --cluster --hosts hosts
}
# A document of N nodes, as ranks write it; the third is on the host of the second.
written() { # N
	dlb-costmodel -q -c "cpu:$1" <(dlb-profile -q --analytic "$model") |
		jq -c '.cluster.nodes |= [.[] | .host = (["two", "one", "one"][.id] // "more")] | {dlb, cluster}' >written.json
}

@test "--hosts: a rank for each slot, in the order of the file, and hosts by the names that ranks report" {
	written 3
	pretended 'cat written.json; echo "a line of ssh" >&2' >doc.json 2>said
	[ ! -s said ]
	validates doc.json
	jq -e '.cluster.hosts == [{name: "two", address: "b1", user: "me", slots: 1}, {name: "one", address: "a1", slots: 2}]' doc.json
	jq -e --slurpfile was written.json '(.cluster | del(.hosts)) == ($was[0].cluster | del(.hosts))' doc.json
	grep -Eq "^-n 3 --hostfile $tmp/temporary/dlb-hosts-[^ ]* --map-by seq --bind-to none .*$BUILD/bin/dlb-profile --cluster $" arguments
	printf 'b1 username=me\na1\na1\n' | cmp - hostfile
	[ -z "$(ls temporary)" ]
	hosts_file='b1\na1\n'
	written 2
	pretended 'cat written.json' | jq -e '.cluster.hosts == [{name: "two", address: "b1", slots: 1}, {name: "one", address: "a1", slots: 1}]'
	hosts_file=
	written 3
	# a document keeps what it has
	dlb-profile -q --analytic "$model" >model.json
	pretended 'cat written.json' -q model.json | jq -e '.graph and .profile and (.cluster.hosts | length == 2)'
	grep -q 'dlb-profile .*-q' arguments
}

@test "--hosts: what ranks and mpiexec say" {
	written 2
	run -2 --separate-stderr pretended 'cat written.json'
	one_line dlb-profile '3 ranks have written 2 nodes'
	run -2 --separate-stderr pretended 'echo "{"'
	one_line dlb-profile 'the ranks:'
	run -2 --separate-stderr pretended 'echo "dlb-profile[1]: the reason" >&2; echo "another line" >&2; exit 2'
	[ "$stderr" = 'dlb-profile[1]: the reason' ]
	run -1 --separate-stderr pretended 'echo "dlb-profile: the reason" >&2; exit 1'
	[ "$stderr" = 'dlb-profile: the reason' ]
	run -2 --separate-stderr pretended 'printf "%s\n" "------" "" "ssh: no route" "a second line" >&2; exit 1'
	one_line dlb-profile 'the 3 ranks ended without a result, or did not start: ssh: no route; -v shows all messages'
	run -2 --separate-stderr pretended 'exit 3'
	one_line dlb-profile 'did not start: mpiexec gives no reason'
	run -2 --separate-stderr pretended 'kill -KILL $$'
	one_line dlb-profile 'did not start: mpiexec gives no reason'
	run -2 --separate-stderr pretended 'printf "first\r\nlast" >&2; exit 1' -v
	[[ ${stderr_lines[0]} == first && ${stderr_lines[1]} == *'did not start: first'* ]]
	# a line that is too long comes in pieces
	run -2 --separate-stderr pretended 'printf "%04095d" 7 >&2; echo XY >&2; exit 1' -v
	[ "${#stderr_lines[0]}" -eq 4095 ] && [ "${stderr_lines[1]}" = XY ]
	[ -z "$(ls temporary)" ]
	rm -r temporary
	ln -s nowhere temporary
	mkdir() { command mkdir "$1" bin 2>/dev/null; }
	run -2 --separate-stderr pretended :
	[[ $stderr == *"cannot write '$tmp/temporary/dlb-hosts-"* ]]
}

@test "--hosts: what mpiexec is started with" {
	local as_root='' say='echo "dlb-profile: $SLURM_OVERLAP,$OMPI_ALLOW_RUN_AS_ROOT,$OMPI_ALLOW_RUN_AS_ROOT_CONFIRM,$(wc -c)" >&2; exit 2'
	[ "$(id -u)" != 0 ] || as_root=1
	unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM SLURM_OVERLAP SLURM_JOB_ID
	run -2 --separate-stderr pretended "$say" <<<input
	[ "$stderr" = "dlb-profile: ,$as_root,$as_root,0" ]
	export SLURM_JOB_ID=7
	run -2 --separate-stderr pretended "$say" <<<input
	[ "$stderr" = "dlb-profile: 1,$as_root,$as_root,0" ]
	SLURM_OVERLAP=0 run -2 --separate-stderr pretended "$say" <<<input
	[ "$stderr" = "dlb-profile: 0,$as_root,$as_root,0" ]
	unset SLURM_JOB_ID
	# a process group of its own, so that a signal from the terminal reaches the tool alone
	run -2 --separate-stderr pretended 'read -r _ _ _ _ group _ <"/proc/$$/stat"; echo "dlb-profile: $((group == $$))" >&2; exit 2'
	[ "$stderr" = 'dlb-profile: 1' ]
	# variables of dlb go to the ranks, and no others
	DLB_ONE=1 DLB_TWO='' XDLB=3 pretended 'exit 2' || true
	[[ $(cat arguments) == *' -x DLB_ONE '* && $(cat arguments) == *' -x DLB_TWO '* && $(cat arguments) != *XDLB* ]]
	mkdir none
	run -2 --separate-stderr env PATH="$tmp/none" "$BUILD/bin/dlb-profile" --cluster --hosts hosts
	one_line dlb-profile 'cannot start mpiexec: No such file or directory'
}
