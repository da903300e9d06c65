#!/usr/bin/env bats
# Steps that follow each other without a flush: what depends on nothing late is bit for bit the synchronous run, every
# rule repeats itself, the pipeline is drained where it must be, and what cannot be is a line.
load helper

steps=12 samples=16 place=(--optimizer momentum)
setup() { tmp=$BATS_TEST_TMPDIR; }

@test "on one node nothing is late: the losses of the synchronous run" {
	plan cpu:1 -m 4 >"$tmp/sync.json"
	plan cpu:1 -m 4 --schedule async >"$tmp/async.json"
	validates "$tmp/async.json"
	[ "$(losses "$tmp/sync.json")" = "$(losses "$tmp/async.json")" ]
}

@test "every rule repeats itself bit for bit, and no two are the same" {
	for rule in stash 2bw predict none; do
		plan cpu:2 -a even -m 4 --schedule async --staleness "$rule" >"$tmp/doc.json"
		[ "$(jq -r .plan.staleness "$tmp/doc.json")" = "$rule" ]
		first=$(losses "$tmp/doc.json")
		[ "$first" = "$(losses "$tmp/doc.json")" ]
		echo "$first" >>"$tmp/all"
	done
	[ "$(sort -u "$tmp/all" | wc -l)" -eq 4 ]
}

@test "2bw where two versions are enough, else stash" {
	plan cpu:4 -a even -m 4 --schedule async >"$tmp/4.json"
	plan cpu:4 -a even -m 1 --schedule async >"$tmp/1.json"
	[ "$(jq -r .plan.staleness "$tmp/4.json" "$tmp/1.json" | xargs)" = '2bw stash' ]
}

@test "predicted steps are shorter than those of the synchronous schedules" {
	for s in gpipe 1f1b async; do
		plan cpu:4 -a proportional -m 4 --schedule "$s" >"$tmp/$s.json"
	done
	run -0 jq -s '.[2].plan.value_s < .[0].plan.value_s and .[2].plan.value_s < .[1].plan.value_s' "$tmp/gpipe.json" "$tmp/1f1b.json" "$tmp/async.json"
	[ "$output" = true ]
}

@test "a checkpoint drains the pipeline; the run goes on from it" {
	plan cpu:2 -a even -m 4 --schedule async >"$tmp/doc.json"
	losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --checkpoint-every 5 --loss-log "$tmp/log" >/dev/null
	losses "$tmp/doc.json" --checkpoint "$tmp/ckpt" --loss-log "$tmp/log" >/dev/null
	[ "$(wc -l <"$tmp/log")" -eq 24 ]
}

@test "what cannot be: one line" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	run -2 --separate-stderr dlb-place --staleness stash "$tmp/doc.json"
	one_line dlb-place '--staleness is for --schedule async'
	run -2 --separate-stderr dlb-run --staleness stash "${digits[@]}" "$tmp/doc.json"
	one_line dlb-run '--staleness is for plans of dlb-place --schedule async'
	run -2 --separate-stderr dlb-place --staleness older --schedule async "$tmp/doc.json"
	one_line dlb-place "no rule 'older'"
}

@test "the report says how late each weight was: by 2bw one update, by stash the stages behind it" {
	plan cpu:2 -a even -m 4 --schedule async --staleness 2bw >"$tmp/doc.json"
	dlb-run --steps 5 "${digits[@]}" --optimizer momentum "$tmp/doc.json" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '.report.delays | length == 6 and all(.least == 1 and .most == 1)' "$tmp/out.json"
	plan cpu:4 -a even -m 1 --schedule async --staleness stash | dlb-run --dry-run >"$tmp/out.json"
	jq -e '.report.delays | group_by(.node) | map(.[0].most) | . == (sort | reverse) and .[-1] == 0 and .[0] > 0' "$tmp/out.json"
	dlb-view "$tmp/out.json" | grep -Eq 'read weights 0 to [123] updates behind'
}

# formula NODES 'LATE0 LATE1 [predict]' [DLB-PLACE OPTION...]: the losses are those of gradients so late, to rounding
formula() {
	local nodes=$1 steps=10 late
	read -ra late <<<"$2"
	shift 2
	dlb-profile --analytic --batch 16 "$models/digits_mlp.onnx" | dlb-costmodel -c "cpu:$nodes" | dlb-place -a even --optimizer momentum "$@" >"$tmp/doc.json"
	dlb-run -q --steps 0 "${digits[@]}" --optimizer momentum --save "$tmp/first.safetensors" "$tmp/doc.json" >/dev/null
	dlb-run -q --steps "$steps" "${digits[@]}" --order sequential --optimizer momentum --momentum 0.9 --lr 0.1 "$tmp/doc.json" |
		jq -c .report.losses >"$tmp/losses"
	python3 "$root/tests/data/delayed.py" "$tmp/first.safetensors" "$root/share/data/digits/images-idx3-ubyte.gz" \
		"$root/share/data/digits/labels-idx1-ubyte.gz" "$steps" 16 0.1 0.9 "${late[@]}" <"$tmp/losses"
}

@test "losses are what the formulas of delayed gradients say" {
	formula 2 '0 0' -m 4 --schedule 1f1b
	formula 2 '1 1' -m 4 --schedule async --staleness 2bw
	formula 2 '1 0' -m 1 --schedule async --staleness stash
	formula 4 '2 0' -m 1 --schedule async --staleness stash
	formula 4 '2 0 predict' -m 1 --schedule async --staleness predict
	run ! formula 2 '0 0' -m 4 --schedule async --staleness 2bw
	run ! formula 4 '2 0' -m 1 --schedule async --staleness predict
}
