#!/usr/bin/env bats
# What a run writes over, follows, waits for or takes memory for: nothing of anybody else's is lost.
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
# A device of our own that is always full: root's alone, and not everywhere.
full_device() { mknod "$1" c 1 7 2>/dev/null && (: >"$1") 2>/dev/null; }

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
