#!/usr/bin/env bats
# Rank 0 reads and prepares samples for all nodes: the same bits as if every node reads for itself.
load helper

samples=24
setup() { tmp=$BATS_TEST_TMPDIR; }

# The losses do not depend on who reads: same DOCUMENT DLB-RUN-OPTION...
same() {
	local doc=$1 who
	shift
	for who in local host; do
		dlb-run -q --optimizer momentum --lr 0.02 "$@" --feed "$who" "$doc" >"$tmp/$who.json"
		validates "$tmp/$who.json"
	done
	diff <(jq -c .report.losses "$tmp/local.json") <(jq -c .report.losses "$tmp/host.json")
}

# bats test_tags=slow
@test "the same bits: 2, 3 and 4 replicas, an epoch with a short last batch" {
	for r in 2 3 4; do
		plan "cpu:$r" -m 2 --replicas "$r" >"$tmp/doc.json"
		same "$tmp/doc.json" --epochs 1 "${digits[@]}"
		# bytes that rank 0 sent: samples and labels of all other nodes, and one line of seeds each
		jq -e --argjson r "$r" '((24 - 24 / $r) * (64 * 4 + 8)) as $b | .report.feed | .bytes >= $b and .bytes <= $b + $r * 256 and .wait_s >= 0' \
			"$tmp/host.json"
		jq -e '.report | has("feed") | not' "$tmp/local.json"
	done
}

# bats test_tags=slow
@test "shares by power, pipelines as replicas, batch statistics over all" {
	plan 'cpu:1 cpu:1*0.5' --replicas 2 --split power >"$tmp/doc.json"
	same "$tmp/doc.json" --steps 12 "${digits[@]}"
	plan cpu:4 -m 3 --replicas 2 -a even >"$tmp/doc.json"
	same "$tmp/doc.json" --steps 12 "${digits[@]}"
	plan cpu:4 -m 3 --replicas 2 -a random --seed 3 --schedule gpipe >"$tmp/doc.json"
	same "$tmp/doc.json" --steps 12 "${digits[@]}"
	plan cpu:2 --replicas 2 >"$tmp/doc.json"
	same "$tmp/doc.json" --steps 12 "${digits[@]}" --gossip 0.5
	same "$tmp/doc.json" --steps 80 "${digits[@]}" --gossip 0.5 --shards sorted --exchange-data 0.3
	same "$tmp/doc.json" --steps 12 --data random
}

# bats test_tags=slow
@test "groups: their first ranks hand on" {
	plan 'cpu:2 host cpu:3' --replicas 5 >"$tmp/doc.json"
	same "$tmp/doc.json" --epochs 1 "${digits[@]}"
	# nodes 0 and 2 send: to 1 and for 2, 3, 4; and on to 3 and 4
	jq -en --slurpfile l "$tmp/local.json" --slurpfile h "$tmp/host.json" '
		[range(5) | $h[0].report.nodes[.].bytes_sent - $l[0].report.nodes[.].bytes_sent] as $b |
		$b[0] > $b[2] and $b[2] > 0 and $b[1] == 0 and $b[3] == 0 and $b[4] == 0 and ($b | add) == $h[0].report.feed.bytes'
}

# bats test_tags=slow
@test "what is planned: the bytes that are sent, and steps no shorter than the busiest link needs" {
	for cluster in cpu:3 'cpu:2 host cpu:3'; do
		plan "$cluster" -m 2 --replicas "$([ "$cluster" = cpu:3 ] && echo 3 || echo 5)" --feed host >"$tmp/doc.json"
		dlb-run -q --dry-run "$tmp/doc.json" >"$tmp/dry.json"
		validates "$tmp/dry.json"
		dlb-run -q --steps 2 "${digits[@]}" "$tmp/doc.json" | jq -e --slurpfile dry "$tmp/dry.json" '
			.report.feed.bytes == $dry[0].report.feed.bytes'
	done
	# to the other host: 14 samples of 260 bytes and three lines of seeds over 100 kB/s
	profiled
	dlb-costmodel -c 'cpu:2 host cpu:3' "$profile" |
		jq -c 'del(.cost) | .cluster.links |= map(if .class == "shm" then . else .bandwidth_Bps = 1e5 end)' | dlb-costmodel >"$tmp/slow.json"
	for who in local host; do
		dlb-place --replicas 5 --gossip 0.001 --sync-every 100000 --feed "$who" "$tmp/slow.json" | jq .plan.value_s >"$tmp/$who"
	done
	jq -en --slurpfile local "$tmp/local" --slurpfile host "$tmp/host" '$local[0] < 0.005 and $host[0] > 0.0364 and $host[0] < 0.0398'
}

# bats test_tags=slow
@test "JPEGs out of a tar file, augmented; a damaged one ends the run with its place" {
	"$BUILD/tests/digits-images" "$tmp/images" 200 4
	tar -C "$tmp" -cf "$tmp/images.tar" images
	plan cpu:3 -m 2 --replicas 3 >"$tmp/doc.json"
	same "$tmp/doc.json" --epochs 1 --data "images:$tmp/images.tar" --transform resize=10x10,random-crop=8,scale=1/255
	hurt=$(find "$tmp/images/7" -name '*.jpg' | sort | head -n 3 | tail -n 1)
	truncate -s $(($(wc -c <"$hurt") - 40)) "$hurt"
	run -2 --separate-stderr dlb-run -q --epochs 1 --data "images:$tmp/images" --transform resize=8x8,scale=1/255 --feed host "$tmp/doc.json"
	one_line dlb-run "$hurt: byte" truncated
}

@test "arrays, several epochs" {
	arrays "$tmp/all" 96
	plan cpu:2 --replicas 2 >"$tmp/doc.json"
	same "$tmp/doc.json" --epochs 3 --data "npy:$tmp/all.x.npy,$tmp/all.y.npy"
}

# bats test_tags=slow
@test "stopping early, checkpoints, and a sample that cannot be trained on" {
	plan cpu:3 --replicas 3 >"$tmp/doc.json"
	same "$tmp/doc.json" --steps 500 "${digits[@]}" --until 'loss<1.9'
	same "$tmp/doc.json" --steps 5 "${digits[@]}"
	truth=$(dlb-run -q --steps 10 "${digits[@]}" --feed host "$tmp/doc.json" | jq -c '.report.losses[5:]')
	dlb-run -q --steps 5 "${digits[@]}" --feed host --checkpoint "$tmp/ckpt" "$tmp/doc.json" >/dev/null
	[ "$(dlb-run -q --steps 5 "${digits[@]}" --feed host --checkpoint "$tmp/ckpt" "$tmp/doc.json" | jq -c .report.losses)" = "$truth" ]
	run -2 --separate-stderr dlb-run -q --steps 5 "${digits[@]}" --lr 1e30 --feed host "$tmp/doc.json"
	one_line dlb-run finite
	run -2 --separate-stderr dlb-run -q --steps 5 --data /nonexistent --feed host "$tmp/doc.json"
	one_line dlb-run
	run -2 --separate-stderr dlb-run -q --feed somebody "$tmp/doc.json"
	one_line dlb-run 'local or host'
}

slow=(--data digits --transform 'resize=1500x1500,resize=8x8,scale=1/16')

# bats test_tags=slow
@test "samples that are prepared more slowly than ops compute: measured, said, and predicted in the next round" {
	plan cpu:1 >"$tmp/doc.json"
	dlb-run --steps 40 "${slow[@]}" "$tmp/doc.json" >"$tmp/1.json" 2>"$tmp/err"
	validates "$tmp/1.json"
	grep -Eq '^dlb-run: node 0 waits [0-9]+ % of a step for samples, of which each takes [0-9.]+ ms to prepare; ' "$tmp/err"
	dlb-view "$tmp/1.json" | grep -Eq '^  samples: node 0 waits .* one takes .* to prepare$'
	jq -e '.report | .samples as $s | [$s[] | [.node, .tensor]] == [[0, "x"], [0, "label"]] and ($s | map(.time_s) | add) as $one |
		(.nodes[0].data_wait_s > .5 * .step_s) and (.step_s < 2 * .batch * $one) and (.predicted_step_s < .5 * .step_s)' "$tmp/1.json"
	dlb-rebalance "$tmp/1.json" | dlb-place >"$tmp/2.json"
	validates "$tmp/2.json"
	jq -e '(.balance | .reason == null and .history[0].held) and .report == null and
		(.balance.samples | map(.time_s) | add * 24) as $s | .plan | .value_s > .9999 * $s and .value_s < 1.01 * $s and .bound_s > .99 * $s' "$tmp/2.json"
	dlb-run -q --steps 40 "${slow[@]}" "$tmp/2.json" >"$tmp/3.json"
	jq -e --slurpfile plan "$tmp/2.json" '.report.predicted_step_s == $plan[0].plan.value_s' "$tmp/3.json"
	dlb-rebalance "$tmp/3.json" | jq -e --slurpfile run "$tmp/3.json" '.balance.samples == $run[0].report.samples'
}

@test "the predicted step is at least the seconds of a node's samples: one node, replicas, rank 0 for all, other kinds, no speed" {
	predicts() { # SECONDS CLUSTER DLB-PLACE-OPTION...: of a step of 24 samples, where nodes of kind cpu take 1 s a sample
		local s=$1 cluster=$2
		shift 2
		profiled
		dlb-costmodel -c "$cluster" "$profile" | jq -c '.balance = {weights: [.cluster.nodes[] | 1],
			samples: [{node: 0, tensor: "x", time_s: 0.75}, {node: 0, tensor: "label", time_s: 0.25}, {node: 0, tensor: "gone", time_s: 9}]}' |
			dlb-place "$@" >"$tmp/plan.json"
		dlb-run -q --dry-run "$tmp/plan.json" >"$tmp/dry.json"
		validates "$tmp/dry.json"
		jq -e --argjson s "$s" '(.plan.value_s / $s - 1 | fabs < 1e-3) and (.report.step_s / $s - 1 | fabs < 1e-3) and
			(.plan.bound_s <= .plan.value_s) and ([.report.nodes[].data_wait_s] | max / $s - 1 | fabs < 1e-2)' "$tmp/dry.json"
	}
	predicts 24 cpu:1
	predicts 24 cpu:1 -m 4
	predicts 12 cpu:2 --replicas 2
	predicts 24 cpu:2 --replicas 2 --feed host
	predicts 12 'cpu:1 cpu:1*0.5' --replicas 2 --split even
	jq -e '[.report.samples[] | [.node, .tensor, .time_s]] | sort == [[0, "label", 0.25], [0, "x", 0.75], [1, "label", 0.25], [1, "x", 0.75]]' "$tmp/dry.json"
	# of two stages, one reads the samples and the other their labels
	predicts 18 cpu:2 -a even
	predicts 18 cpu:2 -a even -m 4 --schedule async
	jq -e '[.report.nodes[].data_wait_s] | .[0] > 17 and .[0] < 18 and .[1] > 5 and .[1] < 6' "$tmp/dry.json"
	run -2 --separate-stderr dlb-rebalance <(jq '.report.samples[0].node = 7' "$tmp/dry.json")
	one_line dlb-rebalance '/report/samples/0/node'
	run -2 --separate-stderr dlb-place <(jq '.balance.samples[0].time_s = -1' "$tmp/plan.json")
	one_line dlb-place '/balance/samples/0/time_s'
}

# bats test_tags=slow
@test "rounds inside a run: the next round is predicted with the samples of the last one, also where the plan stays" {
	plan cpu:2 --replicas 2 >"$tmp/doc.json"
	dlb-run -q --rounds 2 --round-steps 10 --steps 30 "${slow[@]}" "$tmp/doc.json" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -c '.balance.history[] | [.step_s, .predicted_step_s, .decision]' "$tmp/out.json"
	jq -e '.report.samples as $s | (.balance.history | map(.predicted_step_s) | .[1] > 20 * .[0]) and
		([$s[].node] | unique == [0, 1]) and .report.predicted_step_s > 20 * .balance.history[0].predicted_step_s' "$tmp/out.json"
}
