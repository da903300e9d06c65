#!/usr/bin/env bats
# Replicas that average weights instead of summing gradients: gossip, means, a parameter server.
load helper

steps=12 samples=24 model=$models/digits_mlp.onnx
setup() { tmp=$BATS_TEST_TMPDIR; }

# train DOCUMENT NAME [DLB-RUN OPTION...]: NAME.out.json, NAME.log, NAME.safetensors
train() {
	local doc=$1 name=$tmp/$2
	shift 2
	dlb-run -q --steps "$steps" "${digits[@]}" --order sequential --init 3 --lr 0.1 --loss-log "$name.log" \
		--save "$name.safetensors" "$@" "$doc" >"$name.out.json"
}

# The losses of two logs agree within a relative R: near LOG LOG R
near() {
	paste "$1" "$2" | awk -v r="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > r * $2) { print NR, $0; bad = 1 } } END { exit bad || NR == 0 }'
}

# bats test_tags=slow
@test "mixing everything at every step is one node's training, as is a server or a mean at every step" {
	plan cpu:1 >"$tmp/one.json"
	plan cpu:2 --replicas 2 >"$tmp/two.json"
	plan cpu:4 --replicas 4 >"$tmp/four.json"
	train "$tmp/one.json" one --optimizer momentum --lr 0.02
	train "$tmp/two.json" all --optimizer momentum --lr 0.02 --gossip 1 --sync-every 1000
	train "$tmp/four.json" mean --optimizer momentum --lr 0.02 --sync-every 1
	train "$tmp/four.json" server --optimizer momentum --lr 0.02 --param-server 2
	for name in all mean server; do
		echo "$name"
		near "$tmp/$name.log" "$tmp/one.log" 2e-6
	done
	run -0 jq -r .report.allreduce.algorithm "$tmp/all.out.json" "$tmp/mean.out.json" "$tmp/server.out.json"
	[ "${lines[*]}" = 'gossip average param-server' ]
	jq -e '.report.allreduce.sums == []' "$tmp/server.out.json"		# the server has what is sent, no sums
	jq -e '.report.allreduce.sums | length > 0' "$tmp/mean.out.json"
}

@test "gossip repeats itself bit for bit, also on a pipeline for each replica" {
	plan cpu:3 --replicas 3 >"$tmp/three.json"
	plan cpu:4 --replicas 2 -m 2 >"$tmp/pipes.json"
	plan cpu:2 --replicas 2 -m 2 >"$tmp/two.json"
	train "$tmp/three.json" a --gossip 0.3 --sync-every 5
	train "$tmp/three.json" b --gossip 0.3 --sync-every 5
	cmp "$tmp/a.log" "$tmp/b.log"
	cmp "$tmp/a.safetensors" "$tmp/b.safetensors"
	train "$tmp/pipes.json" c --gossip 0.3 --sync-every 5
	train "$tmp/two.json" d --gossip 0.3 --sync-every 5
	cmp "$tmp/c.log" "$tmp/d.log"
}

@test "bytes are those of the share, and what is apart is said" {
	plan cpu:2 --replicas 2 >"$tmp/two.json"
	train "$tmp/two.json" g --gossip 0.25 --sync-every 1000
	run -0 jq -r '.report.allreduce | [.algorithm, (.bytes / .dense_bytes > 0.23 and .bytes / .dense_bytes < 0.27), .apart > 0] | @csv' "$tmp/g.out.json"
	[ "$output" = '"gossip",true,true' ]
	validates "$tmp/g.out.json"
	dlb-run --dry-run --steps 1 --gossip 0.25 --sync-every 1000 "$tmp/two.json" >"$tmp/dry.json"
	run -0 jq -s '.[0].report.allreduce.bytes / .[1].report.allreduce.bytes - 1 | fabs < 0.03' "$tmp/dry.json" "$tmp/g.out.json"
	[ "$output" = true ]
	validates "$tmp/dry.json"
}

# bats test_tags=slow
@test "what a server sends is counted where it is, and what happens now and then as a part of every step" {
	plan cpu:4 --replicas 3 --param-server 3 --sync-every 4 >"$tmp/server.json"
	train "$tmp/server.json" apart
	dlb-run --dry-run "$tmp/server.json" >"$tmp/dry.json"
	# three replicas send and three fetch, every fourth step
	jq -es 'map(.report | [.allreduce.bytes, (.nodes | map(.bytes_sent))]) | .[0] == .[1] and .[0][0] > 0 and .[0][1][3] == 3 * .[0][1][0]' \
		"$tmp/apart.out.json" "$tmp/dry.json"
	train "$tmp/server.json" mean --param-server none
	for name in apart mean; do
		jq -e '.report.allreduce | .time_s > 0 and .hidden_s <= .time_s' "$tmp/$name.out.json"
	done
}

@test "a plan that was made for it predicts it; dlb-run may undo it" {
	plan cpu:2 --replicas 2 --gossip 0.25 >"$tmp/two.json"
	validates "$tmp/two.json"
	run -0 jq -c '.plan | [.gossip, .sync_every]' "$tmp/two.json"
	[ "$output" = '[0.25,null]' ]
	run -0 bash -c 'dlb-place <"$1" | jq .plan.gossip' - "$tmp/two.json"
	[ "$output" = 0.25 ]
	train "$tmp/two.json" sum --gossip 0
	run -0 jq -r '.report.allreduce.algorithm' "$tmp/sum.out.json"
	[ "$output" = auto ]
	run -0 dlb-run --print-program --data random "$tmp/two.json"
	[[ $output == *"COLLECTIVE reduce bucket 0: "*" weights"* ]]
}

@test "a server without a part in the replicas serves pipelines; all start with its weights" {
	plan cpu:5 --replicas 2 -m 2 >"$tmp/five.json"
	plan cpu:1 -m 2 >"$tmp/one.json"
	run -0 jq -c '[.plan.replicas[][]] | sort' "$tmp/five.json"
	[ "$output" = '[0,1,2,3]' ]
	train "$tmp/five.json" five --param-server 4 -v 2>"$tmp/said"
	grep -q 'parameter server 4: all nodes start with its weights, checksum [0-9a-f]\{16\}' "$tmp/said"
	train "$tmp/one.json" one
	near "$tmp/five.log" "$tmp/one.log" 2e-6
}

# bats test_tags=slow
@test "a run broken off goes on from its checkpoint" {
	plan cpu:3 --replicas 3 >"$tmp/three.json"
	for how in '--gossip 0.3 --sync-every 5' '--param-server 1 --sync-every 4'; do
		rm -rf "$tmp/whole" "$tmp/parts"
		# shellcheck disable=SC2086
		train "$tmp/three.json" whole $how --optimizer momentum --checkpoint "$tmp/whole" --checkpoint-every 7
		# shellcheck disable=SC2086
		train "$tmp/three.json" parts $how --optimizer momentum --steps 7 --checkpoint "$tmp/parts"
		# shellcheck disable=SC2086
		train "$tmp/three.json" parts $how --optimizer momentum --steps 5 --checkpoint "$tmp/parts"
		cmp "$tmp/whole.log" "$tmp/parts.log"
		cmp "$tmp/whole.safetensors" "$tmp/parts.safetensors"
	done
}

# bats test_tags=slow
@test "shards: everybody's own samples; in sequence and evenly those that it would have drawn" {
	plan cpu:4 --replicas 4 >"$tmp/four.json"
	train "$tmp/four.json" none
	train "$tmp/four.json" even --shards even
	cmp "$tmp/none.log" "$tmp/even.log"
	train "$tmp/four.json" sorted --shards sorted
	run -1 cmp -s "$tmp/none.log" "$tmp/sorted.log"
	validates "$tmp/sorted.out.json"
	run -0 jq -c '.plan | [.shards, .exchange_data]' "$tmp/sorted.out.json"
	[ "$output" = '["sorted",null]' ]
	run -2 --separate-stderr dlb-run --steps 1 --data random --shards even "$tmp/four.json"
	one_line dlb-run 'endless data'
}

# bats test_tags=slow
@test "replicas with classes of their own meet every other step unless told otherwise, and seldom is said" {
	plan cpu:2 --replicas 2 >"$tmp/two.json"
	train "$tmp/two.json" default --shards sorted --gossip 0.25
	train "$tmp/two.json" two --shards sorted --gossip 0.25 --sync-every 2
	train "$tmp/two.json" rare --shards sorted --gossip 0.25 --sync-every 25
	cmp "$tmp/default.log" "$tmp/two.log"
	run -1 cmp -s "$tmp/default.log" "$tmp/rare.log"
	local words='sorted by label learn less'
	for options in '--gossip 0.25 --sync-every 3' '--sync-every 5' '--param-server 0 --sync-every 5' \
		'--gossip 0.25 --sync-every 6 --exchange-data 0.25'; do
		# shellcheck disable=SC2086
		run -0 --separate-stderr dlb-run --dry-run --steps 1 --shards sorted $options "$tmp/two.json"
		[[ $stderr == *"$words"* ]]
		# shellcheck disable=SC2086
		run -0 --separate-stderr plan cpu:2 --replicas 2 --shards sorted $options
		[[ $stderr == *"$words"* ]]
	done
	for options in '--shards sorted' '--shards sorted --gossip 0.25' '--shards sorted --param-server 0' '--shards even --gossip 0.25' \
		'--shards sorted --gossip 0.25 --sync-every 5 --exchange-data 0.25'; do
		# shellcheck disable=SC2086
		run -0 --separate-stderr dlb-run --dry-run --steps 1 $options "$tmp/two.json"
		[[ $stderr != *"$words"* ]]
	done
}

# bats test_tags=slow
@test "samples change hands after an epoch, and a run broken off meets the same ones" {
	plan cpu:2 --replicas 2 >"$tmp/two.json"
	local data=(--data digits:test --order shuffled --shards sorted --exchange-data 0.5)
	local n
	n=$(dlb-run -q --epochs 1 "${digits[@]}" --data digits:test --loss-log "$tmp/n" "$tmp/two.json" | jq .report.steps)
	steps=$((3 * n))
	train "$tmp/two.json" whole "${data[@]}"
	train "$tmp/two.json" parts "${data[@]}" --steps $((n + 2)) --checkpoint "$tmp/parts"
	train "$tmp/two.json" parts "${data[@]}" --steps $((2 * n - 2)) --checkpoint "$tmp/parts"
	cmp "$tmp/whole.log" "$tmp/parts.log"
	train "$tmp/two.json" stay "${data[@]}" --exchange-data 0
	cmp <(head -n "$n" "$tmp/whole.log") <(head -n "$n" "$tmp/stay.log")
	run -1 cmp -s "$tmp/whole.log" "$tmp/stay.log"
}

# bats test_tags=slow
@test "bad options and members" {
	plan cpu:4 --replicas 2 -m 2 >"$tmp/doc.json"
	plan cpu:2 >"$tmp/single.json"
	for option in '--gossip 2' '--gossip -0.1' '--gossip x' '--gossip 0.5 --param-server 0' '--gossip 0.5 --sync' '--param-server 9' \
		'--param-server x' '--param-server -3' '--param-server 1' '--sync-every -1' '--exchange-data 1.5' '--shards odd' '--feed nobody' \
		'--shards none --exchange-data 0.5' '--gossip 0.5 --compress bf16' '--sync-every 3 --compress cholesky'; do
		echo "$option"
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" $option "$tmp/doc.json"
		one_line dlb-run
	done
	run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" --gossip 0.5 "$tmp/single.json"
	one_line dlb-run 'no replicas'
	run -2 --separate-stderr dlb-place --gossip 0.5 "$tmp/single.json"
	one_line dlb-place '--replicas'
	for edit in '.plan.gossip = 7' '.plan.gossip = "x"' '.plan.param_server = 77' '.plan.param_server = -4' '.plan.sync_every = -1' \
		'.plan.shards = "odd"' '.plan.feed = 3' '.plan.exchange_data = 1.5' '.plan.gossip = 0.5 | .plan.param_server = 3'; do
		echo "$edit"
		jq -c "$edit" "$tmp/doc.json" >"$tmp/bad.json"
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/bad.json"
		one_line dlb-run
	done
}

@test "a loss that is not finite ends all ranks with one line" {
	plan cpu:3 --replicas 3 >"$tmp/three.json"
	for how in '--gossip 0.3' '--param-server 1'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr timeout 20 dlb-run -q --steps 50 "${digits[@]}" --lr 1e30 $how "$tmp/three.json"
		one_line dlb-run 'not finite'
	done
}
