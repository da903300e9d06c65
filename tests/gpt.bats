#!/usr/bin/env bats
# A GPT on text (tinyshakespeare of DLB_TEST_DATA, else our own of tests/data/truth) through the five filters, over two
# unequal nodes: loads are measured and moved during training, and the losses equal those of one node, bit for bit.
load helper

setup() {
	tmp=$BATS_TEST_TMPDIR
	gpt_and_text
	rate=0.001
	[ "$gpt" != "$own/gpt/loss.onnx" ] || rate=0.01		# a quarter as wide
	train=(-q --data "text:$text" --order sequential --optimizer adam --lr "$rate")
}

planned() { # NODES DLB-PROFILE-OPTION...
	local nodes=$1
	shift
	dlb-profile -q --batch 8 "$@" "$gpt" | dlb-costmodel -q -c "cpu:$nodes" |
		dlb-place -q -m 4
}

# bats test_tags=slow
@test "a GPT over two unequal nodes, rebalanced in mid-training, has the losses of one node" {
	planned 1 --analytic | dlb-run --steps 45 --loss-log "$tmp/one" "${train[@]}" >/dev/null
	planned 2 >"$tmp/doc.json"
	for round in 1 2 3; do
		dlb-run --steps 15 --slow 1:6 --checkpoint "$tmp/ckpt" --loss-log "$tmp/two" "${train[@]}" <"$tmp/doc.json" |
			dlb-rebalance -q | dlb-place -q >"$tmp/next.json"
		mv "$tmp/next.json" "$tmp/doc.json"
	done
	[ "$(wc -l <"$tmp/one")" -eq 45 ]
	cmp "$tmp/one" "$tmp/two"
	# It learns: from about log 65 = 4.2 to less than the letters' frequencies alone give.
	awk '{ last = $2 } END { exit !(last < 3.3) }' "$tmp/two"
	# The slow node ends with less work than the fast one. Its factor is well above what other programs on this machine
	# may take from the fast node: a slow node sleeps most of the time, so that they cost it nothing.
	jq -e '.plan.placement | [.[]] | (map(select(. == 0)) | length) > (map(select(. == 1)) | length)' "$tmp/doc.json"
}
