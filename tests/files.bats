#!/usr/bin/env bats
# Files that a run overwrites, follows, waits for or loads into memory: other files are never lost.
load helper

setup() {
	tmp=$BATS_TEST_TMPDIR
	doc=$tmp/doc.json
	planned "$doc"
}

train() { dlb-run -q "${digits[@]}" "$@"; }
one_node() { # FILE: a plan of one node, which starts no ranks
	dlb-profile --analytic --batch 16 "$model" | dlb-costmodel -c cpu:1 | dlb-place >"$1"
}
# A device that is always full: only root can make it, and not on every system.
full_device() { mknod "$1" c 1 7 2>/dev/null && (: >"$1") 2>/dev/null; }

# bats test_tags=slow
@test "--save and --loss-log follow links, and leave FIFOs, sockets and dangling links alone" {
	one_node "$tmp/one.json"
	for doc in "$doc" "$tmp/one.json"; do
		rm -rf "$tmp/there" && mkdir "$tmp/there"
		echo old >"$tmp/there/w" && echo old >"$tmp/there/log"
		ln -sf there/w "$tmp/w.safetensors" && ln -sf there/log "$tmp/log"
		train --steps 2 --save "$tmp/w.safetensors" --loss-log "$tmp/log" "$doc" >/dev/null
		[ -L "$tmp/w.safetensors" ] && [ -L "$tmp/log" ]
		[ "$(wc -l <"$tmp/there/log")" -eq 2 ]
		[ "$(wc -c <"$tmp/there/w")" -gt 1000 ]
		[ "$(find "$tmp/there" -type f | wc -l)" -eq 2 ]
		for option in save loss-log; do
			rm -rf "$tmp/pipe" "$tmp/nothing" && mkfifo "$tmp/pipe" && ln -s gone "$tmp/nothing"
			run -2 --separate-stderr timeout 20 dlb-run --steps 2 "${digits[@]}" --$option "$tmp/pipe" "$doc"
			one_line dlb-run "$tmp/pipe" 'FIFO'
			[ -p "$tmp/pipe" ]
			run -2 --separate-stderr timeout 20 dlb-run --steps 2 "${digits[@]}" --$option "$tmp/nothing" "$doc"
			one_line dlb-run "$tmp/nothing" 'link to nothing'
			[ -L "$tmp/nothing" ] && [ ! -e "$tmp/gone" ]
		done
	done
}

@test "--save to a device writes to it, and leaves it there" {
	full_device "$tmp/full" || skip 'no device can be made here'
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" --save "$tmp/full" "$doc"
	one_line dlb-run "$tmp/full" 'No space left on device'
	[ -c "$tmp/full" ]
}

# bats test_tags=slow
@test "a full disk under the loss log: one line, status 2, and the weights are kept" {
	one_node "$tmp/one.json"
	dlb-costmodel -c cpu:2 "$doc" | dlb-place -m 4 --schedule async -a even >"$tmp/async.json"
	for doc in "$doc" "$tmp/one.json" "$tmp/async.json"; do
		rm -rf "$tmp/ck" "$tmp/w.safetensors"
		run -2 --separate-stderr timeout 30 dlb-run --until 'loss<-1' "${digits[@]}" --loss-log /dev/full --checkpoint "$tmp/ck" \
			--save "$tmp/w.safetensors" "$doc"		# would never end
		one_line dlb-run '/dev/full' 'No space left on device'
		[ -c /dev/full ]
		[ -s "$tmp/w.safetensors" ]
		ls "$tmp"/ck/step-*/manifest.json
	done
}

@test "a run that is refused leaves the loss log as it was" {
	train --steps 3 --loss-log "$tmp/log" "$doc" >/dev/null
	cp "$tmp/log" "$tmp/was"
	run -2 dlb-run --steps 2 "${digits[@]}" --loss-log "$tmp/log" --save "$tmp/no/where.safetensors" "$doc"
	cmp "$tmp/log" "$tmp/was"
}

# Within 1.5 GB of address space and 20 s, so that a reader that does not stop is ended early.
bounded() { (ulimit -v 1500000; timeout 20 "$@"); }

# bats test_tags=slow
@test "devices without end, FIFOs and sockets as data: one line at once" {
	one_node "$tmp/one.json"
	mkfifo "$tmp/pipe"
	python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$tmp/socket"
	mkdir "$tmp/images" && : >"$tmp/images/1.png"
	printf 'some text for a model that learns to read\n' >"$tmp/text"
	for bad in /dev/zero "$tmp/pipe" "$tmp/socket"; do
		for spec in "idx:$bad,$bad" "npy:$bad,$bad" "images:$bad" "images:$tmp/images,labels=$bad"; do
			echo "$spec"
			run -2 --separate-stderr bounded dlb-run --steps 1 --data "$spec" "$tmp/one.json"
			one_line dlb-run "'$bad' is not a file but a"
			jq -c --arg spec "$spec" '.run = {data: $spec}' "$tmp/one.json" >"$tmp/names.json"
			run -2 --separate-stderr bounded dlb-run --steps 1 "$tmp/names.json"
			one_line dlb-run "'$bad' is not a file but a"
		done
		for spec in "tokens:$bad" "tokens:$bad,type=u8" "text:$bad" "text:$bad,level=byte" "text:$tmp/text,alphabet=$bad" \
			"text:$tmp/text,vocab=$bad,merges=$tmp/text" "text:$tmp/text,vocab=$tmp/text,merges=$bad"; do
			echo "$spec"
			run -2 --separate-stderr bounded "$BUILD/tests/data-dump" "$spec" i64 2 0
			one_line data-dump "'$bad' is not a file but a"
		done
	done
}

@test "devices without end, FIFOs and sockets as models and weights: one line at once" {
	mkfifo "$tmp/pipe.onnx"
	ln -s /dev/zero "$tmp/zero.safetensors"
	for bad in /dev/zero "$tmp/pipe.onnx"; do
		run -2 --separate-stderr bounded dlb-profile --analytic "$bad"
		one_line dlb-profile "'$bad' is not a file but a"
		run -2 --separate-stderr bounded dlb-profile --analytic --weights "$bad" "$model"
		one_line dlb-profile "'$bad' is not a file but a"
		one_node "$tmp/one.json"
		jq -c --arg bad "$bad" '.graph.model.path = $bad | del(.profile.inputs, .cost.inputs, .plan.inputs)' "$tmp/one.json" >"$tmp/names.json"
		run -2 --separate-stderr bounded dlb-run --steps 1 "${digits[@]}" "$tmp/names.json"
		one_line dlb-run "'$bad' is not a file but a"
	done
	run -2 --separate-stderr bounded dlb-profile --analytic --weights "$tmp/zero.safetensors" "$model"
	one_line dlb-profile 'is not a file but a device'
}

# bats test_tags=slow
@test "documents without end, and longer than --max-document" {
	for tool in dlb-costmodel dlb-place dlb-run dlb-rebalance dlb-view 'dlb-convert --to chakra' 'dlb-profile --cluster'; do
		echo "$tool"
		# shellcheck disable=SC2086
		run -2 --separate-stderr bounded $tool /dev/zero
		one_line "${tool%% *}" '/dev/zero'
		# shellcheck disable=SC2086
		run -2 --separate-stderr bounded $tool - </dev/zero
		one_line "${tool%% *}" '<stdin>'
		# shellcheck disable=SC2086
		run -2 --separate-stderr bounded $tool --max-document 20K "$doc"
		one_line "${tool%% *}" "$doc: more than 20480 bytes" '--max-document'
		# shellcheck disable=SC2086
		run -2 --separate-stderr bounded $tool --max-document 2M - < <(printf '{"x":["'; tr '\0' x </dev/zero)
		one_line "${tool%% *}" '<stdin>: more than 2097152 bytes'
	done
	run -2 --separate-stderr bounded dlb-costmodel -c /dev/zero "$doc"
	one_line dlb-costmodel '/dev/zero'
	run -2 --separate-stderr bounded dlb-profile --cluster --topology /dev/zero
	one_line dlb-profile "/dev/zero"
	run -2 --separate-stderr bounded dlb-place --affinity /dev/zero "$doc"
	one_line dlb-place '/dev/zero'
	run -2 --separate-stderr bounded dlb-convert --from chakra --max-document 1M /dev/zero
	one_line dlb-convert '/dev/zero: more than 1048576 bytes'
	for size in 0 -1 x 1T 9223372036854775807K 10MB ''; do
		run -2 --separate-stderr dlb-place --max-document "$size" "$doc"
		one_line dlb-place '--max-document wants'
	done
	dlb-view --max-document 1M "$doc" >/dev/null
	dlb-run -q --max-document "$(wc -c <"$doc")" --steps 2 "${digits[@]}" "$doc" >/dev/null	# the ranks get a longer document
}

# Images of one byte per pixel, ROWS times 28 x 28, all 0, and their labels.
zeros() { # ROWS
	python3 - "$tmp" "$1" <<-'END'
		import gzip, struct, sys
		rows = int(sys.argv[2])
		with gzip.open(sys.argv[1] + '/x.gz', 'wb') as f:
		    f.write(b'\0\0\x08\x03' + struct.pack('>III', rows, 28, 28))
		    for i in range(0, rows, 10000):
		        f.write(bytes(784 * min(10000, rows - i)))
		with gzip.open(sys.argv[1] + '/y.gz', 'wb') as f:
		    f.write(b'\0\0\x08\x01' + struct.pack('>I', rows) + bytes(rows))
	END
}

# bats test_tags=slow
@test "gzip of zeros: one copy in memory, and none of what cannot be" {
	dlb-profile --analytic --batch 16 "$models/lenet5.onnx" | dlb-costmodel -c cpu:1 | dlb-place >"$tmp/doc.json"
	zeros 500000				# 392 MB; two copies and the buffers would exceed 800
	(ulimit -v 750000; OPENBLAS_NUM_THREADS=1 timeout 100 dlb-run -q --steps 1 --data "idx:$tmp/x.gz,$tmp/y.gz" "$tmp/doc.json") |
		jq -e '.report.losses | length == 1'
	# An uncompressed file is not kept in memory.
	gunzip "$tmp/x.gz"
	(ulimit -v 450000; OPENBLAS_NUM_THREADS=1 timeout 100 dlb-run -q --steps 1 --data "idx:$tmp/x,$tmp/y.gz" "$tmp/doc.json") |
		jq -e '.report.losses | length == 1'
	rm "$tmp/x"
	zeros 100
	for rows in 100000000 5000000; do	# larger than its file can hold; larger than this process's memory
		printf '\0\0\10\3%b\0\0\0\34\0\0\0\34' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $((rows >> 24)) $((rows >> 16 & 255)) $((rows >> 8 & 255)) $((rows & 255)))" >"$tmp/x"
		[ $rows = 5000000 ] && head -c 4000000 /dev/urandom >"$tmp/noise" && cat "$tmp/noise" >>"$tmp/x"
		gzip -f "$tmp/x"
		run -2 --separate-stderr bounded dlb-run --steps 1 --data "idx:$tmp/x.gz,$tmp/y.gz" "$tmp/doc.json"
		one_line dlb-run "$tmp/x.gz"
		[[ $stderr == *'more than '*' bytes of gzip can hold'* ]] || [[ $stderr == *'do not fit this machine'* ]]
	done
}

@test "a text that does not fit the memory is refused before it is read" {
	truncate -s 100G "$tmp/sparse"
	for spec in "tokens:$tmp/sparse" "text:$tmp/sparse" "text:$tmp/sparse,vocab=$tmp/sparse,merges=$tmp/sparse"; do
		run -2 --separate-stderr bounded "$BUILD/tests/data-dump" "$spec" i64 2 0
		one_line data-dump "$tmp/sparse" 'memory'
	done
}
