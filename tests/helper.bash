# Loaded by every bats file: paths of the tools, documents to start from, and checks that every
# filter must pass.
bats_require_minimum_version 1.5.0

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$(realpath -m "${BUILD:-$root/build}")
PATH=$BUILD/bin:$PATH
DLB_TEST_DATA=$(realpath -m "${DLB_TEST_DATA:-$root/../shared/data}")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
models=$root/share/models
model=$models/digits_cnn.onnx
own=$root/tests/data/truth	# small networks of our own, exported by PyTorch: for tests whose shared data are not there
# The digits are 8x8, grey 0..16; this model takes them without a transform.
digits=(--data digits --transform scale=1/16)

# bats ends its countdown of a test with a signal that is lost where the test ends, by a skip, before the countdown is ready
# for it; then bats waits for the rest of the ten minutes. Here it is stopped first, so that it starts nothing more.
bats_abort_timeout_countdown() { # PID
	[ -z "$1" ] || { kill -STOP "$1"; pkill -KILL -P "$1"; kill -KILL "$1"; } 2>/dev/null
	return 0
}

# For lists of cases: all of them with DLB_TEST_LONG (tests/run -l), else each fourth, from the first.
case_number=0
chosen() {
	case_number=$((case_number + 1))
	[ -n "${DLB_TEST_LONG:-}" ] || [ $((case_number % 4)) -eq 1 ]
}

# A document with graph, profile, cluster, cost and plan, made once per bats file: planned FILE.
planned() {
	local doc=$BATS_FILE_TMPDIR/planned.json
	if [ ! -s "$doc" ]; then
		dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:2 |
			dlb-place -m 4 >"$doc.new" && mv "$doc.new" "$doc" || return
	fi
	cp "$doc" "$1"
}

# The same with the report of a simulated round: reported FILE.
reported() {
	local doc=$BATS_FILE_TMPDIR/reported.json
	if [ ! -s "$doc" ]; then
		planned "$BATS_TEST_TMPDIR/for-report.json" &&
			dlb-run --dry-run --steps 10 <"$BATS_TEST_TMPDIR/for-report.json" >"$doc.new" &&
			mv "$doc.new" "$doc" || return
	fi
	cp "$doc" "$1"
}

# Sets tmp, an own TMPDIR, and doc: a plan of three replicas, made once per bats file.
three_replicas() {
	tmp=$BATS_TEST_TMPDIR
	export TMPDIR=$tmp/run
	mkdir "$TMPDIR"
	doc=$BATS_FILE_TMPDIR/replicas.json
	[ -s "$doc" ] || dlb-profile --analytic --batch 24 "$model" | dlb-costmodel -c cpu:3 | dlb-place --replicas 3 >"$doc"
	command -v mpiexec.openmpi >/dev/null || skip 'no Open MPI'
}

# For files whose tests train the digits' model: `samples` per batch, `steps` of a run, `place`: options of every plan.
steps=12 samples=16 place=()
profiled() { # a profile made once per bats file: its path is $profile
	profile=$BATS_FILE_TMPDIR/profiled.json
	[ -s "$profile" ] || dlb-profile --analytic --batch "$samples" "$model" >"$profile"
}
plan() { # CLUSTER [DLB-PLACE OPTION...] >DOCUMENT
	local cluster=$1
	shift
	profiled
	dlb-costmodel -c "$cluster" "$profile" | dlb-place "${place[@]}" "$@"
}
losses() { # DOCUMENT [DLB-RUN OPTION...]
	local doc=$1
	shift
	dlb-run --steps "$steps" "${digits[@]}" --optimizer momentum --lr 0.02 "$@" "$doc" | jq -c .report.losses
}

# A GPT of 2 layers with its loss, 65 words, and a text: `gpt`, `text`; those of DLB_TEST_DATA, where there are none our own
# model and manuals.
gpt_and_text() {
	gpt=$DLB_TEST_DATA/onnx/models/gpt_2l.train.op17.dyn.loss.onnx text=$DLB_TEST_DATA/onnx/data/tinyshakespeare/input.txt
	if [ ! -s "$gpt" ] || [ ! -s "$text" ]; then
		gpt=$own/gpt/loss.onnx text=$BATS_FILE_TMPDIR/own.txt
		# 65 different bytes, as many as the model has words
		cat "$root"/man/dlb*.[157] | tr -cd 'a-zA-Z0-9 \n.' >"$text"
	fi
}

# Makes samples for the digits' models, COUNT random images of 64 numbers with NaN in those listed: PREFIX.x.npy, PREFIX.y.npy.
arrays() { # PREFIX COUNT [SAMPLE...]
	python3 - "$@" <<-'END'
		import random, struct, sys
		def npy(path, descr, shape, data):
		    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
		    head += ' ' * (63 - (10 + len(head)) % 64) + '\n'
		    open(path, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() + data)
		draw, n = random.Random(1), int(sys.argv[2])
		x = [draw.random() for _ in range(n * 64)]
		for i in sys.argv[3:]:
		    x[int(i) * 64 + 5] = float('nan')
		npy(sys.argv[1] + '.x.npy', '<f4', '(%d, 1, 8, 8)' % n, struct.pack('<%df' % len(x), *x))
		npy(sys.argv[1] + '.y.npy', '<i8', '(%d,)' % n, struct.pack('<%dq' % n, *(i % 10 for i in range(n))))
	END
}

# After run --separate-stderr: nothing on stdout, exactly one line on stderr, which begins with the tool's
# name and holds every word given.
one_line() { # TOOL TEXT...
	local tool=$1 text
	shift
	[ -z "$output" ] || { echo "stdout: ${output:0:300}"; return 1; }
	[ "${#stderr_lines[@]}" -eq 1 ] || { printf 'stderr: %s\n' "${stderr_lines[@]}"; return 1; }
	[[ $stderr == "$tool: "* || $stderr == "${tool}["* ]] || { echo "stderr: $stderr"; return 1; }
	for text; do
		[[ $stderr == *"$text"* ]] || { echo "no '$text' in: $stderr"; return 1; }
	done
}

wait_for_lines() { # FILE N
	for _ in $(seq 1500); do
		[ -f "$1" ] && [ "$(wc -l <"$1")" -ge "$2" ] && return
		sleep 0.02
	done
	echo "$1 has not reached $2 lines"
	return 1
}

children() { # PID: its direct children; no process is started for each that there is
	local stat line
	for stat in /proc/[0-9]*/stat; do
		{ read -r line <"$stat"; } 2>/dev/null || continue
		line=${line##*) }
		# shellcheck disable=SC2086
		set -- "$1" $line
		stat=${stat%/stat}
		[ "$3" != "$1" ] || echo "${stat##*/}"
	done
}

ranks_of() { # PID of a dlb-run that starts its ranks itself: `ranks`, the process of each
	mapfile -t ranks < <(for launcher in $(children "$1"); do children "$launcher"; done)
}

kill_at_once() { # PID: the process and all its descendants, as in a power failure: none can print a last message
	local pids=("$1") i=0
	while [ $i -lt ${#pids[@]} ]; do
		mapfile -t -O ${#pids[@]} pids < <(children "${pids[i]}")
		i=$((i + 1))
	done
	kill -KILL "${pids[@]}"
}

# Starts a run in the background, `parent`; its log, $tmp/log, shows its progress.
started() { # DLB-RUN-OPTION...
	rm -f "$tmp/log"
	dlb-run -q --loss-log "$tmp/log" "$@" >"$tmp/out" 2>"$tmp/err" 3>&- &
	parent=$!
}

# A wrapper, $tmp/as-rank COMMAND...: it does SETUP on rank RANK, then becomes the command: as_rank RANK SETUP
as_rank() {
	printf '#!/bin/bash\n[ "$OMPI_COMM_WORLD_RANK" = %s ] && { %s; }\nexec "$@"\n' "$1" "$2" >"$tmp/as-rank"
	chmod +x "$tmp/as-rank"
}

# Makes dlb-run's own mpiexec start its ranks through that wrapper.
own_launch() {
	local real
	[[ $PATH != "$tmp/bin:"* ]] || return 0
	real=$(command -v mpiexec.openmpi) || skip 'no Open MPI'
	mkdir -p "$tmp/bin"
	cat >"$tmp/bin/mpiexec.openmpi" <<-END
		#!/bin/bash
		options=()
		while [ "\$1" != "$(command -v dlb-run)" ]; do options+=("\$1"); shift; done
		exec $real "\${options[@]}" "$tmp/as-rank" "\$@"
	END
	chmod +x "$tmp/bin/mpiexec.openmpi"
	PATH=$tmp/bin:$PATH
}

on_rank() { # RANK SETUP: both
	as_rank "$@"
	own_launch
}

# No process of these is left. A dead one that its parent, or init, has not reaped yet is none.
none_is_left() { # PID...
	local pid line
	for pid; do
		{ read -r line <"/proc/$pid/stat"; } 2>/dev/null || continue
		line=${line##*) }
		[ "${line%% *}" = Z ] || return 1
	done
}

# It ends with status 2, one line that matches WORDS, and no document, sooner than --timeout (30 s) would end it; with
# DLB_TIMING, on a quiet machine, within 3 s of the last change of FILE, and MORE ms.
ends() { # FILE WORDS [MORE]
	local status=0 took end most=25000
	[ -z "${DLB_TIMING:-}" ] || most=$((3000 + ${3:-0}))
	wait "$parent" || status=$?
	end=$(date +%s%N)
	took=$(((end - $(date -r "$1" +%s%N)) / 1000000))
	echo "$took ms: $(cat "$tmp/err")"
	[ "$status" -eq 2 ] || return 1
	[ ! -s "$tmp/out" ] || return 1
	[ "$(wc -l <"$tmp/err")" -eq 1 ] || return 1
	grep -Eq "$2" "$tmp/err" || return 1
	[ "$took" -lt "$most" ]
}

# ---- behaviour of every filter on its input; arguments: the tool and the options that it needs ----

refuses_bad_json() { # TOOL [OPTION...]
	printf '{"dlb": "1.0",\n "graph": {]}' >"$BATS_TEST_TMPDIR/bad.json"
	run -2 --separate-stderr "$@" "$BATS_TEST_TMPDIR/bad.json"
	one_line "$1" "bad.json:2:"
	run -2 --separate-stderr "$@" <"$BATS_TEST_TMPDIR/bad.json"
	one_line "$1" "<stdin>:2:"
}

refuses_empty_input() {
	run -2 --separate-stderr "$@" </dev/null
	one_line "$1" 'empty input' 'did the previous command fail?'
}

refuses_missing_file() {
	run -2 --separate-stderr "$@" /nonexistent/doc.json
	one_line "$1" "cannot open '/nonexistent/doc.json'" 'No such file'
}

refuses_missing_section() { # TOOL SECTION [OPTION...]
	local tool=$1 section=$2
	shift 2
	run -2 --separate-stderr "$tool" "$@" <<<'{"dlb": "1.0"}'
	one_line "$tool" "'$section'"
}

refuses_other_major() {
	run -2 --separate-stderr "$@" <<<'{"dlb": "2.0", "graph": {}}'
	one_line "$1" '2.0' 'version 1'
}

refuses_unknown_member() { # DOCUMENT TOOL [OPTION...]
	local doc=$1
	shift
	jq -c '. + {grahp: 1}' "$doc" >"$BATS_TEST_TMPDIR/unknown.json"
	run -2 --separate-stderr "$@" <"$BATS_TEST_TMPDIR/unknown.json"
	one_line "$1" "'grahp'" "did you mean 'graph'?"
	jq -c '.graph.bacth = 1' "$doc" >"$BATS_TEST_TMPDIR/unknown.json"
	run -2 --separate-stderr "$@" <"$BATS_TEST_TMPDIR/unknown.json"
	one_line "$1" "'bacth'" "did you mean 'batch'?"
}

# A newer minor version: unknown members are kept, and x- members at any depth.
passes_unknown_on() { # DOCUMENT TOOL [OPTION...]
	local doc=$1
	shift
	jq -c '.dlb = "1.9" | .zebra = {a: 1} | .graph.zebra = 2 | .["x-mine"] = 3 | .graph["x-mine"] = 4 |
		del(.profile.inputs, .cost.inputs, .plan.inputs, .report.inputs, .balance.inputs)' "$doc" |
		"$@" >"$BATS_TEST_TMPDIR/newer.json"
	run -0 jq -c '[.dlb, .zebra, .graph.zebra, .["x-mine"], .graph["x-mine"]]' "$BATS_TEST_TMPDIR/newer.json"
	[ "$output" = '["1.9",{"a":1},2,3,4]' ] || { echo "$output"; return 1; }
}

refuses_full_disk() { # DOCUMENT TOOL [OPTION...]
	local doc=$1
	shift
	run -2 --separate-stderr bash -c '"${@:2}" <"$1" >/dev/full' - "$doc" "$@"
	one_line "$1" 'No space left on device'
}

shows_help() { # TOOL
	run -0 --separate-stderr "$1" --help
	[[ ${lines[0]} == "usage: $1 "* ]]
	[ -z "$stderr" ]
	run -0 --separate-stderr "$1" --version
	[[ $output == "$1 "[0-9]* ]]
	run -2 --separate-stderr bash -c '"$1" --help >/dev/full' - "$1"
	one_line "$1" 'No space left on device'
}

refuses_unknown_option() { # TOOL
	run -2 --separate-stderr "$1" --no-such-option </dev/null
	one_line "$1" "'--no-such-option'" "try '$1 --help'"
	run -2 --separate-stderr "$1" -0 </dev/null
	one_line "$1" "'-0'" "try '$1 --help'"
}

# Checks the whole document and each of its sections with share/schemas.
validates() { # FILE
	"$root/tests/validate" "$1"
}

# For files whose tests train a small GPT, most of whose memory are weights and states: gpt.onnx and profile.json of so many
# samples, made once in the current folder.
small_gpt() { # BATCH
	[ -s profile.json ] && return
	python3 -B "$root/tests/bench/gpt_graph.py" --layers 3 --width 64 --heads 4 --vocabulary 64 --sequence 16 gpt.onnx
	dlb-profile -q --analytic --batch "$1" --loss next-token gpt.onnx >profile.json
}
# Its losses, and what it saves: five steps of data that are drawn. Peaks must be those predicted. $tmp: the test's folder.
gpt_trained() { # DOCUMENT [DLB-RUN OPTION...]
	local doc=$1
	shift
	dlb-run -q --steps 5 --data random --init 1 --lr 0.02 --save "$tmp/saved" "$@" "$doc" >"$tmp/out.json" &&
		jq -e '[.plan.nodes[].peak_bytes] == [.report.nodes[].peak_bytes]' "$tmp/out.json" >"$tmp/peaks" &&
		jq -c .report.losses "$tmp/out.json" && sha256sum <"$tmp/saved"
}
