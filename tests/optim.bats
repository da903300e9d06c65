#!/usr/bin/env bats
# Optimizers end to end: what dlb-run trains with, over steps, placements and continued runs.
load helper

setup() {
	planned "$BATS_TEST_TMPDIR/doc.json"
	tmp=$BATS_TEST_TMPDIR
	doc=$tmp/doc.json
}

# Losses of a run, a line each: losses DOCUMENT OPTION...
losses() {
	local from=$1
	shift
	dlb-run -q "${digits[@]}" "$@" "$from" | jq -c '.report.losses[]'
}

# The whole model on one node, as the document has it on two: alone FILE.
alone() { dlb-place -a single <"$doc" >"$1"; }

@test "every optimizer learns, and its document is valid" {
	for o in 'adagrad --lr 0.03' 'rmsprop --lr 0.002' 'max-adabelief --lr 0.005' 'max-adabelief --lr 0.005 --variant corrected' \
		'max-adabelief --lr 0.0005 --variant uncorrected --warmup 30' 'max-adabelief --lr 0.005 --variant amsgrad'; do
		echo "$o"
		# shellcheck disable=SC2086
		dlb-run -q --steps 120 "${digits[@]}" --optimizer $o "$doc" >"$tmp/out.json"
		validates "$tmp/out.json"
		jq -e '.report.losses | (.[:10] | add) * 0.8 > (.[-10:] | add)' "$tmp/out.json"
	done
}

@test "one node and two: the same losses, whatever the optimizer" {
	alone "$tmp/one.json"
	for o in 'adagrad' 'rmsprop' 'max-adabelief' 'sgd --lr 0.1 --warmup 5 --lr-schedule cosine:20'; do
		echo "$o"
		# shellcheck disable=SC2086
		diff <(losses "$doc" --steps 12 --optimizer $o) <(losses "$tmp/one.json" --steps 12 --optimizer $o)
	done
}

@test "max-adabelief: the report counts where the quotient shrank" {
	for v in corrected:0 uncorrected:0 denom_corrected:1; do
		dlb-run -q --steps 40 "${digits[@]}" --optimizer max-adabelief --variant "${v%:*}" "$doc" >"$tmp/out.json"
		jq -e --argjson some "${v#*:}" '.report.optimizer_violations | if $some == 1 then . > 0 else . == 0 end' "$tmp/out.json"
	done
	# a rate that grows breaks it for any variant, one that falls for none
	dlb-run -q --steps 10 "${digits[@]}" --optimizer max-adabelief --variant corrected --warmup 10 "$doc" >"$tmp/out.json"
	jq -e '.report.optimizer_violations > 0' "$tmp/out.json"
	dlb-run -q --steps 10 "${digits[@]}" --optimizer max-adabelief --variant corrected --lr-schedule cosine "$doc" >"$tmp/out.json"
	jq -e '.report.optimizer_violations == 0' "$tmp/out.json"
	dlb-run -q --steps 10 "${digits[@]}" --optimizer adam "$doc" >"$tmp/out.json"
	jq -e '.report | has("optimizer_violations") | not' "$tmp/out.json"
}

@test "a rate of half the size for one step: losses say what the schedule does" {
	# step:1:0 trains in the first step alone: the weights of step 2 are those of step 3
	losses "$doc" --steps 3 --order sequential --lr 0.1 --lr-schedule step:1:0 >"$tmp/a"
	losses "$doc" --steps 3 --order sequential --lr 0.1 >"$tmp/b"
	diff <(head -2 "$tmp/a") <(head -2 "$tmp/b")
	run ! diff -q "$tmp/a" "$tmp/b"
	# a warm-up of one step is none, one of two halves the first step
	diff <(losses "$doc" --steps 3 --lr 0.1 --warmup 1) <(losses "$doc" --steps 3 --lr 0.1)
	diff <(losses "$doc" --steps 2 --lr 0.1 --warmup 2) <(losses "$doc" --steps 2 --lr 0.05)
}

@test "a continued run goes on where its schedule was" {
	schedule=(--optimizer momentum --lr 0.05 --warmup 4 --lr-schedule cosine:20:0.001)
	losses "$doc" --steps 20 "${schedule[@]}" >"$tmp/whole"
	{
		losses "$doc" --steps 9 "${schedule[@]}" --checkpoint "$tmp/ckpt"
		losses "$doc" --steps 11 "${schedule[@]}" --checkpoint "$tmp/ckpt"
	} >"$tmp/parts"
	diff "$tmp/whole" "$tmp/parts"
	run ! diff -q "$tmp/whole" <(losses "$doc" --steps 20 --optimizer momentum --lr 0.05)
}

@test "the schedule is kept in the document, the end of a cosine too" {
	dlb-run -q --steps 6 "${digits[@]}" --warmup 2 --lr-schedule cosine "$doc" >"$tmp/out.json"
	jq -e '.run.optimizer | .lr_schedule == "cosine:6" and .warmup == 2' "$tmp/out.json"
	dlb-run -q --steps 1 --optimizer adam "$tmp/out.json" | jq -e '.run.optimizer | .lr_schedule == "cosine:6" and .name == "adam"'
	dlb-run -q --steps 1 --lr-schedule constant --warmup 0 "$tmp/out.json" | jq -e '.run.optimizer.lr_schedule == "constant"'
}

@test "what cannot be: one line" {
	while read -r options; do
		echo "$options"
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" $options "$doc"
		one_line dlb-run
	done <<-'END'
		--optimizer max-adabelief --variant right
		--optimizer adam --variant corrected
		--optimizer adagrad --beta1 0.5
		--lr-schedule linear
		--lr-schedule cosine:0
		--lr-schedule step:5
		--warmup 8 --lr-schedule cosine:5
		--warmup -1
	END
	run -2 --separate-stderr dlb-run --epochs 1 "${digits[@]}" --lr-schedule cosine "$doc"
	one_line dlb-run 'cosine:STEPS'
}
