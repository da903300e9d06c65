#!/usr/bin/env bats
# Output of a run in progress: the line of -v, the log of steps, measurements on the test data and the best weights.
# None of it changes training.
load helper

steps=24 samples=16
test_data=(--test-data digits:test)
setup() { tmp=$BATS_TEST_TMPDIR; }

train() { # DOCUMENT NAME DLB-RUN-OPTION...: $tmp/NAME.json, NAME.err
	local doc=$1 name=$2
	shift 2
	dlb-run --steps "$steps" "${digits[@]}" --optimizer momentum --lr 0.02 "$@" "$doc" >"$tmp/$name.json" 2>"$tmp/$name.err"
}

losses_of() { jq -c .report.losses "$tmp/$1.json"; }

everything() { # NAME: all options that print or log
	told=(-v --step-log "$tmp/$1.jsonl" --eval-every 5 --save-best "$tmp/$1.best.safetensors" "${test_data[@]}")
}

valid_log() { # FILE: each line against its schema
	/usr/bin/python3 - "$root/share/schemas/step-log.json" "$1" <<-'END'
		import json, jsonschema, sys
		schema = json.load(open(sys.argv[1]))
		jsonschema.Draft202012Validator.check_schema(schema)
		check = jsonschema.Draft202012Validator(schema)
		for line in open(sys.argv[2]):
		    assert line.endswith('\n'), line
		    check.validate(json.loads(line))
	END
}

# bats test_tags=slow
@test "losses, weights, running statistics and optimizer state are the same bits with everything told" {
	for how in '-m 4' '-m 2 --replicas 2' '-m 2 --replicas 2 --gossip 0.5' '-m 2 --replicas 2 --param-server 0'; do
		chosen || continue
		# shellcheck disable=SC2086
		plan cpu:2 $how >"$tmp/doc.json"
		train "$tmp/doc.json" plain --checkpoint "$tmp/plain"
		everything all
		train "$tmp/doc.json" all --checkpoint "$tmp/all" "${told[@]}"
		echo "$how"
		[ "$(losses_of plain)" = "$(losses_of all)" ]
		for part in "$tmp/plain/step-$steps"/*.safetensors; do
			cmp "$part" "$tmp/all/step-$steps/$(basename "$part")"
		done
		validates "$tmp/all.json"
		valid_log "$tmp/all.jsonl"
		rm -rf "$tmp/plain" "$tmp/all"
	done
}

# bats test_tags=slow
@test "batch normalization's running statistics are not touched by measuring" {
	dlb-profile --analytic --batch 8 "$models/resnet8.onnx" | dlb-costmodel -c cpu:2 | dlb-place -m 2 >"$tmp/doc.json"
	idx 24 "$tmp/x" "$tmp/y"
	for name in plain all; do
		told=()
		[ $name = plain ] || told=(--eval-every 2 --test-data "idx:$tmp/x,$tmp/y")
		dlb-run --steps 6 --data "idx:$tmp/x,$tmp/y" --transform scale=1/255 --checkpoint "$tmp/$name" "${told[@]}" \
			"$tmp/doc.json" >"$tmp/$name.json"
	done
	[ "$(losses_of plain)" = "$(losses_of all)" ]
	jq -e '.report.evaluations | map(.step) == [2, 4, 6]' "$tmp/all.json"
	for part in "$tmp/plain/step-6"/*.safetensors; do
		cmp "$part" "$tmp/all/step-6/$(basename "$part")"
	done
}

idx() { # COUNT IMAGES LABELS: grey images of 28 x 28, random but reproducible
	/usr/bin/python3 - "$@" <<-'END'
		import random, struct, sys
		n, draw = int(sys.argv[1]), random.Random(1)
		open(sys.argv[2], 'wb').write(struct.pack('>IIII', 2051, n, 28, 28) + bytes(draw.randrange(256) for _ in range(n * 784)))
		open(sys.argv[3], 'wb').write(struct.pack('>II', 2049, n) + bytes(i % 10 for i in range(n)))
	END
}

# bats test_tags=slow
@test "a run that goes on gives the same losses, whether it measures or not" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	train "$tmp/doc.json" whole
	steps=10 train "$tmp/doc.json" first --checkpoint "$tmp/ck"
	cp -r "$tmp/ck" "$tmp/ck2"
	steps=14 train "$tmp/doc.json" second --checkpoint "$tmp/ck"
	everything told
	steps=14 train "$tmp/doc.json" told --checkpoint "$tmp/ck2" "${told[@]}"
	[ "$(losses_of second)" = "$(losses_of told)" ]
	[ "$(jq -c '.report.losses[10:]' "$tmp/whole.json")" = "$(losses_of told)" ]
}

# bats test_tags=slow
@test "--step-log: a line a step, valid, with the losses of the loss log, and every node's times and bytes" {
	for doc in 'cpu:1 -m 2' 'cpu:2 -m 4' 'cpu:2 -m 2 --replicas 2' 'cpu:2 -a even -m 4 --schedule async'; do
		# shellcheck disable=SC2086
		plan $doc >"$tmp/doc.json"
		train "$tmp/doc.json" out --step-log "$tmp/steps" --loss-log "$tmp/losses"
		echo "$doc"
		valid_log "$tmp/steps"
		jq -es "map(.step) == [range(1; $steps + 1)]" "$tmp/steps"
		cmp <(jq -c .loss "$tmp/steps") <(jq -c . "$tmp/losses")
		jq -es --slurpfile out "$tmp/out.json" '
			($out[0].report.nodes | length) as $n |
			all(.nodes | length == $n) and all(.bytes == (.nodes | map(.bytes_sent) | add)) and
			all(.[].nodes[]; .busy_s > 0) and all(.step_s > 0) and
			(.[-1].nodes | map(.bytes_sent)) == ($out[0].report.nodes | map(.bytes_sent)) and
			any(.[].nodes[]; .waited_for != null) == ($n > 1 and $out[0].report.allreduce == null) and
			any(.[].nodes[]; .sum_bytes > 0) == ($out[0].report.allreduce != null) and
			all(.[].nodes | to_entries[]; .key != .value.waited_for)' "$tmp/steps"
		rm "$tmp/steps" "$tmp/losses"
	done
}

# bats test_tags=slow
@test "the log of steps can be read while it is written: only whole lines" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	dlb-run -q --until 'loss<-1' "${digits[@]}" --step-log "$tmp/log" "$tmp/doc.json" >"$tmp/out" 2>"$tmp/err" 3>&- &
	pid=$!
	wait_for_lines "$tmp/log" 20
	for _ in 1 2 3 4 5 6 7 8; do
		cp "$tmp/log" "$tmp/copy"
		jq -es 'length >= 20 and map(.step) == [range(1; length + 1)]' "$tmp/copy" >/dev/null
	done
	kill -TERM $pid
	wait $pid
	jq -es --slurpfile out "$tmp/out" '(map(.loss) == $out[0].report.losses)' "$tmp/log"
}

# bats test_tags=slow
@test "who waits for whom: the node that is made slow is waited for" {
	plan cpu:2 -a even -m 4 >"$tmp/doc.json"
	for slow in 0 1; do
		train "$tmp/doc.json" out -v --step-log "$tmp/log" --slow "$slow:30"
		cat "$tmp/out.err"
		tail -1 "$tmp/out.err" | grep -q "node $((1 - slow)) waits .* for node $slow"
		jq -es "map(.nodes[$slow].busy_s) | add" "$tmp/log"
	done
}

# bats test_tags=slow
@test "a run that goes on cuts the log of steps back to its checkpoint" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	steps=10 train "$tmp/doc.json" first --checkpoint "$tmp/ck" --step-log "$tmp/log"
	cp -r "$tmp/ck" "$tmp/kept"
	steps=7 train "$tmp/doc.json" second --checkpoint "$tmp/ck" --step-log "$tmp/log"
	jq -es 'map(.step) == [range(1; 18)]' "$tmp/log"
	head -c -20 "$tmp/log" >"$tmp/torn"			# as after a crash
	cp "$tmp/torn" "$tmp/log"
	steps=5 train "$tmp/doc.json" third --checkpoint "$tmp/kept" --step-log "$tmp/log"
	jq -es 'map(.step) == [range(1; 16)]' "$tmp/log"
	valid_log "$tmp/log"
	# a log that begins with the second run has the steps of that run
	steps=2 train "$tmp/doc.json" fourth --checkpoint "$tmp/kept" --step-log "$tmp/late"
	steps=2 train "$tmp/doc.json" fifth --checkpoint "$tmp/kept" --step-log "$tmp/late"
	jq -es 'map(.step) == [16, 17, 18, 19]' "$tmp/late"
	# a file that is not such a log is not changed
	echo 'my diary' >"$tmp/diary"
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" --optimizer momentum --checkpoint "$tmp/kept" --step-log "$tmp/diary" "$tmp/doc.json"
	one_line dlb-run "$tmp/diary" 'line 1'
	[ "$(cat "$tmp/diary")" = 'my diary' ]
}

# bats test_tags=slow
@test "a log of steps that cannot be written: one line, status 2, and the checkpoint is left" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	run -2 --separate-stderr dlb-run --steps 50 "${digits[@]}" --step-log /dev/full --checkpoint "$tmp/ck" "$tmp/doc.json"
	one_line dlb-run /dev/full 'No space left on device'
	[ -c /dev/full ]
	find "$tmp/ck" -name manifest.json | grep -q .
	plan cpu:1 >"$tmp/one.json"
	for doc in one doc; do
		run -2 --separate-stderr dlb-run --dry-run --steps 5 --step-log /dev/full "$tmp/$doc.json"
		one_line dlb-run /dev/full 'No space left on device'
	done
	run -2 --separate-stderr dlb-run --steps 5 "${digits[@]}" --step-log /dev/full "$tmp/one.json"
	one_line dlb-run /dev/full 'No space left on device'
	for where in "$tmp/nowhere/log" "$tmp"; do
		run -2 --separate-stderr dlb-run --steps 5 "${digits[@]}" --step-log "$where" "$tmp/doc.json"
		one_line dlb-run "$where"
	done
	mkfifo "$tmp/fifo"
	run -2 --separate-stderr dlb-run --steps 5 "${digits[@]}" --step-log "$tmp/fifo" "$tmp/doc.json"
	one_line dlb-run "$tmp/fifo"
	[ -p "$tmp/fifo" ]
}

@test "a disk that fills up while steps are logged leaves whole lines" {
	[ "$(id -u)" -eq 0 ] || skip 'needs root to mount a small disk'
	mkdir "$tmp/disk"
	mount -t tmpfs -o size=64k none "$tmp/disk" 2>/dev/null || skip 'cannot mount a small disk'
	plan cpu:2 -m 4 >"$tmp/doc.json"
	run -2 --separate-stderr dlb-run --steps 2000 "${digits[@]}" --step-log "$tmp/disk/log" "$tmp/doc.json"
	cp "$tmp/disk/log" "$tmp/log"
	umount "$tmp/disk"
	one_line dlb-run "$tmp/disk/log" 'No space left on device'
	valid_log "$tmp/log"
	[ "$(wc -l <"$tmp/log")" -gt 20 ]
}

@test "--step-log: the learning rate of each step, as the schedule has it" {
	plan cpu:1 >"$tmp/doc.json"
	dlb-run -q --steps 4 "${digits[@]}" --lr 0.1 --lr-schedule step:2:0.5 --step-log "$tmp/log" "$tmp/doc.json" >"$tmp/out.json"
	jq -es 'map(.lr) == [0.1, 0.1, 0.05, 0.05] and all(.simulated == null)' "$tmp/log"
}

@test "--dry-run logs simulated steps" {
	plan cpu:2 -m 2 --replicas 2 >"$tmp/doc.json"
	dlb-run --dry-run --steps 5 --step-log "$tmp/log" "$tmp/doc.json" >"$tmp/out.json"
	valid_log "$tmp/log"
	jq -es --slurpfile out "$tmp/out.json" 'map(.step) == [range(1; 6)] and all(.simulated) and all(.loss == null and .lr == null) and
		all((.step_s - $out[0].report.step_s | fabs) < 1e-9) and
		all(.[].nodes[0]; (.bytes_sent - $out[0].report.nodes[0].bytes_sent | fabs) < 1 and .sum_bytes > 0)' "$tmp/log"
}

# bats test_tags=slow
@test "--eval-every measures what a run that ends there measures" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	train "$tmp/doc.json" out --eval-every 10 --step-log "$tmp/log" "${test_data[@]}"
	validates "$tmp/out.json"
	jq -e '.report | (.evaluations | map(.step)) == [10, 20, 24] and .test_loss == .evaluations[2].test_loss and
		.accuracy == .evaluations[2].accuracy and .best == null' "$tmp/out.json"
	for k in 0 1; do
		steps=$((10 * k + 10)) train "$tmp/doc.json" short "${test_data[@]}"
		jq -e '.report.evaluations == null' "$tmp/short.json"
		jq -en --slurpfile a "$tmp/out.json" --slurpfile b "$tmp/short.json" "
			\$a[0].report.evaluations[$k] as \$e | \$b[0].report | .test_loss == \$e.test_loss and .accuracy == \$e.accuracy"
	done
	jq -es --slurpfile out "$tmp/out.json" 'map(select(.test_loss) | {step, test_loss, accuracy}) ==
		($out[0].report.evaluations | map(del(.time_s)))' "$tmp/log"
	dlb-view "$tmp/out.json" >/dev/null
}

# bats test_tags=slow
@test "--save-best keeps the weights of the least test loss" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	# a learning rate so large that the test loss goes up and down
	steps=60 train "$tmp/doc.json" out --lr 0.3 --eval-every 4 --save-best "$tmp/best.safetensors" "${test_data[@]}"
	best=$(jq '.report.evaluations | min_by(.test_loss).step' "$tmp/out.json")
	jq -c .report.evaluations "$tmp/out.json"
	jq -e ".report.best.step == $best and (.report.evaluations | map(.test_loss) | min) == .report.best.test_loss" "$tmp/out.json"
	jq -e '.report.best.step < 60' "$tmp/out.json"		# otherwise the test would show nothing
	steps=$best train "$tmp/doc.json" short --lr 0.3 --save "$tmp/short.safetensors"
	cmp "$tmp/best.safetensors" "$tmp/short.safetensors"
	steps=$best train "$tmp/doc.json" short --lr 0.3 --eval-every "$best" --save-best "$tmp/short.onnx" "${test_data[@]}"
	[ -s "$tmp/short.onnx" ]
}

# bats test_tags=slow
@test "--save-best of a run that goes on: only by better ones, unless the file is gone" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	best=(--eval-every 5 --save-best "$tmp/best.safetensors" "${test_data[@]}")
	steps=20 train "$tmp/doc.json" first --checkpoint "$tmp/ck" "${best[@]}"
	[ "$(jq .report.best.step "$tmp/first.json")" -eq 20 ]
	cp "$tmp/best.safetensors" "$tmp/was"
	cp -r "$tmp/ck" "$tmp/ck2"
	steps=5 train "$tmp/doc.json" worse --lr 2 --checkpoint "$tmp/ck" "${best[@]}"
	jq -e '.report.best.step == 20 and .report.best.test_loss < .report.evaluations[0].test_loss' "$tmp/worse.json"
	cmp "$tmp/was" "$tmp/best.safetensors"
	rm "$tmp/best.safetensors"
	steps=5 train "$tmp/doc.json" anew --lr 2 --checkpoint "$tmp/ck2" "${best[@]}"
	jq -e '.report.best.step == 25' "$tmp/anew.json"
	[ -s "$tmp/best.safetensors" ]
}

# bats test_tags=slow
@test "asynchronous plans are measured where their pipeline is drained" {
	plan cpu:2 -a even -m 4 --schedule async >"$tmp/doc.json"
	for without in '' "--checkpoint $tmp/ck --checkpoint-every 4"; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 9 "${digits[@]}" "${test_data[@]}" --eval-every 6 $without "$tmp/doc.json"
		one_line dlb-run --eval-every asynchronous --checkpoint-every
	done
	[ ! -e "$tmp/ck" ]
	train "$tmp/doc.json" plain --checkpoint "$tmp/plain" --checkpoint-every 6
	train "$tmp/doc.json" told --checkpoint "$tmp/told" --checkpoint-every 6 --eval-every 12 "${test_data[@]}" -v --step-log "$tmp/log"
	[ "$(losses_of plain)" = "$(losses_of told)" ]
	jq -e '.report.evaluations | map(.step) == [12, 24]' "$tmp/told.json"
	jq -es "map(.step) == [range(1; $steps + 1)]" "$tmp/log"
	cmp "$tmp/plain/step-$steps/part-0.safetensors" "$tmp/told/step-$steps/part-0.safetensors"
}

@test "options that would do nothing are refused, or said to" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" --eval-every 1 "$tmp/doc.json"
	one_line dlb-run --eval-every --test-data
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" "${test_data[@]}" --save-best "$tmp/b.safetensors" "$tmp/doc.json"
	one_line dlb-run --save-best --eval-every
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" "${test_data[@]}" --eval-every 1 --save-best "$tmp/b" --save "$tmp/b" "$tmp/doc.json"
	one_line dlb-run --save-best "$tmp/b"
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" "${test_data[@]}" --eval-every 1 --save-best "$tmp/no/b" "$tmp/doc.json"
	one_line dlb-run "$tmp/no/b"
	run -0 --separate-stderr dlb-run --dry-run --steps 2 --eval-every 1 "$tmp/doc.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "dlb-run: --eval-every has no effect"* ]]
	run -0 --separate-stderr dlb-run --dry-run --steps 2 --eval-every 1 --save-best "$tmp/b" "$tmp/doc.json"
	[ "${#stderr_lines[@]}" -eq 2 ]
	[[ $stderr == *"dlb-run: --eval-every has no effect"*"dlb-run: --save-best has no effect"* ]]
}

# bats test_tags=slow
@test "-v: lines with step, loss, speed beside the prediction and time left; at checkpoints and measurements" {
	line='^dlb-run: step [0-9]+ of 24, loss [0-9.]+, [0-9.]+ samples/s, [0-9.]+ [mu]?s a step \(predicted [0-9.]+ [mu]?s\), 0:0[0-9] left'
	for doc in 'cpu:1 -m 2' 'cpu:2 -m 4'; do
		# shellcheck disable=SC2086
		plan $doc >"$tmp/doc.json"
		train "$tmp/doc.json" out -v --checkpoint "$tmp/ck" --checkpoint-every 10 --eval-every 8 "${test_data[@]}"
		cat "$tmp/out.err"
		grep '^dlb-run: step' "$tmp/out.err" >"$tmp/lines"
		run ! grep -Ev "$line" "$tmp/lines"
		grep -q "^dlb-run: step 10 of .*; checkpoint '$tmp/ck/step-10'$" "$tmp/out.err"
		grep -q '^dlb-run: step 8 of .*; test loss [0-9.]*, accuracy 0[0-9.]*, took ' "$tmp/out.err"
		[[ $(tail -1 "$tmp/out.err") == 'dlb-run: step 24 of 24, '*'; ended: steps' ]]
		run ! grep -q $'[\r\033]' "$tmp/out.err"
		rm -r "$tmp/ck"
	done
	train "$tmp/doc.json" quiet
	[ ! -s "$tmp/quiet.err" ]
	mpirun --oversubscribe --bind-to none -np 2 dlb-run -v --steps 3 "${digits[@]}" "$tmp/doc.json" >"$tmp/out.json" 2>"$tmp/err"
	validates "$tmp/out.json"
	grep -q '^dlb-run: step 3 of 3, .*; ended: steps' "$tmp/err"
}

# On a terminal of 100 columns; $output is the text sent to it.
on_terminal() { # DLB-RUN-OPTION...
	run -0 script -qec "stty cols 100; dlb-run --until 'loss<-1' --patience 100000000 ${digits[*]} $* '$tmp/doc.json' >'$tmp/out.json'" /dev/null
}

# bats test_tags=slow
@test "on a terminal: one line that is rewritten, with a bar when the end is known" {
	command -v script >/dev/null || skip 'no script'
	for doc in 'cpu:1 -m 2' 'cpu:2 -m 4'; do
		# shellcheck disable=SC2086
		plan $doc >"$tmp/doc.json"
		on_terminal -v --steps 400
		printf '%s\n' "$output" | grep -Eq $'\r\\[#*\\.*\\] +[0-9]+ % step [0-9]+ of 400, loss .*\033\\[K'
		[[ $output == *$'\r\033[K'"dlb-run: step 400 of 400,"*'; ended: steps'* ]]
		# the bar and its number are those of the step
		printf '%s\n' "$output" | tr '\r' '\n' | sed -nE 's/^\[([#.]*)\] +([0-9]+) % step ([0-9]+) of 400, .*/\1 \2 \3/p' >"$tmp/bars"
		[ -s "$tmp/bars" ]
		awk '{ n = gsub(/#/, "", $1); size = n + length($1); if ($2 != int($3 / 4) || n != int($3 / 400 * size)) { print; wrong = 1 } } END { exit wrong }' \
			"$tmp/bars"
		# rewritten lines never reach the last column
		printf '%s\n' "$output" | tr '\r' '\n' | grep '^\[' | sed 's/\x1b\[K.*//' | awk 'length > 99 { exit 1 }'
	done
}

# They cost some 25 us a step; a step of resnet8 takes some ms.
@test "-v and the log of steps cost no more than a hundredth of a step" {
	[ -n "${DLB_TIMING:-}" ] || skip 'timing: set DLB_TIMING=1 on a quiet machine'
	dlb-profile -q --analytic --batch 32 "$models/resnet8.onnx" | dlb-costmodel -c cpu:1 | dlb-place -q -m 2 >"$tmp/doc.json"
	seconds() { # DLB-RUN-OPTION...
		dlb-run --steps 150 --data digits --transform resize=28,scale=1/16 "$@" "$tmp/doc.json" 2>/dev/null | jq .report.wall_s
	}
	for _ in 1 2 3 4 5 6 7; do		# the least of seven: other programs only make a run longer
		echo "$(seconds) $(seconds -v --step-log "$tmp/log")" >>"$tmp/seconds"
	done
	cat "$tmp/seconds"
	[ "$(wc -l <"$tmp/log")" -eq 150 ]
	awk '{ plain = NR == 1 || $1 < plain ? $1 : plain; told = NR == 1 || $2 < told ? $2 : told }
		END { print told / plain; exit told > 1.01 * plain }' "$tmp/seconds"
}

# The file in Prometheus' text format, checked line by line, as JSON: {"dlb_loss": X, "dlb_node_weight{node=\"0\"}": X, ...}
metrics() { # FILE
	/usr/bin/python3 - "$1" <<-'END'
		import json, re, sys
		text, kind, last, seen = open(sys.argv[1]).read(), {}, None, {}
		assert text.endswith('\n')
		for line in text[:-1].split('\n'):
		    if m := re.fullmatch(r'# HELP ([a-z_]+) (\S.*\.)', line):
		        assert m[1] not in kind, line			# a metric's lines stand together
		        last = m[1]
		    elif m := re.fullmatch(r'# TYPE ([a-z_]+) (gauge|counter)', line):
		        assert m[1] == last and (m[2] == 'counter') == last.endswith('_total'), line
		        kind[last] = m[2]
		    else:
		        m = re.fullmatch(r'([a-z_]+)((?:\{[a-z]+="(?:[^"\\]|\\[\\n"])*"(?:,[a-z]+="(?:[^"\\]|\\[\\n"])*")*\})?) (\S+)', line)
		        assert m and m[1] == last and last in kind, line	# no third word: a time
		        assert m[1] + m[2] not in seen, line
		        seen[m[1] + m[2]] = float(m[3])
		json.dump(seen, sys.stdout)
	END
}

# bats test_tags=slow
@test "--metrics: the state of the run in Prometheus' format, the same as the report and the log say; losses keep their bits" {
	plan cpu:2 -a even -m 4 >"$tmp/doc.json"
	train "$tmp/doc.json" plain
	train "$tmp/doc.json" out --metrics "$tmp/run.prom" --step-log "$tmp/steps" --rounds 2 --round-steps 8
	[ ! -s "$tmp/out.err" ]
	[ "$(losses_of plain)" = "$(losses_of out)" ]
	metrics "$tmp/run.prom" >"$tmp/seen.json"
	jq -e --slurpfile m "$tmp/seen.json" --slurpfile s "$tmp/steps" '
		$m[0] as $m | def near($a; $b): ($a - $b | fabs) < 1e-6 * $b + 1e-9;
		$m.dlb_running == 0 and $m.dlb_steps_total == 24 and $m.dlb_samples_total == 24 * 16 and $m.dlb_rounds_total == 2 and
		$m.dlb_loss == .report.losses[-1] and $m.dlb_learning_rate == 0.02 and
		$m.dlb_step_seconds > 0 and $m.dlb_samples_per_second > 0 and $m.dlb_step_predicted_seconds > 0 and
		$m["dlb_node_info{node=\"1\",host=\"\(.cluster.nodes[1].host // "")\",kind=\"cpu\"}"] == 1 and
		$m["dlb_node_weight{node=\"0\"}"] == .balance.weights[0] and $m["dlb_node_weight{node=\"1\"}"] == .balance.weights[1] and
		all(range(2) | . as $i | ($s | map(.nodes[$i])) as $n |
			near($m["dlb_node_busy_seconds_total{node=\"\($i)\"}"]; $n | map(.busy_s) | add) and
			near($m["dlb_node_sent_bytes_total{node=\"\($i)\"}"]; $n | map(.bytes_sent) | add) and
			near($m["dlb_node_wait_seconds_total{node=\"\($i)\",wait=\"starved\"}"]; $n | map(.waits.starved) | add); .)' "$tmp/out.json"
	[ -z "$(find "$tmp" -name '.dlb-*')" ]
}

# bats test_tags=slow
@test "--metrics while the run goes on: always whole, and newer; a file that cannot be written" {
	plan cpu:2 -m 4 >"$tmp/doc.json"
	dlb-run -q --until 'loss<-1' "${digits[@]}" --metrics "$tmp/run.prom" "$tmp/doc.json" >"$tmp/out" 2>"$tmp/err" 3>&- &
	pid=$!
	wait_for_lines "$tmp/run.prom" 20
	for _ in $(seq 500); do
		metrics "$tmp/run.prom" >"$tmp/seen.json"
		jq -e '.dlb_running == 1 and .dlb_steps_total > 5' "$tmp/seen.json" >/dev/null && break
		sleep 0.05
	done
	jq -e '.dlb_running == 1 and .dlb_steps_total > 5' "$tmp/seen.json"
	kill -TERM $pid
	wait $pid
	metrics "$tmp/run.prom" | jq -e '.dlb_running == 0'
	# no disk: one line, and the run goes on
	run -0 --separate-stderr dlb-run --steps 5 "${digits[@]}" --metrics /dev/full "$tmp/doc.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == 'dlb-run: --metrics: '*/dev/full*'No space left on device'*'training goes on' ]]
	jq -e '.report.losses | length == 5' <<<"$output"
	[ -c /dev/full ]
	mkfifo "$tmp/fifo"
	for where in "$tmp/nowhere/m.prom" "$tmp" "$tmp/fifo"; do
		run -2 --separate-stderr dlb-run --steps 5 "${digits[@]}" --metrics "$where" "$tmp/doc.json"
		one_line dlb-run "$where"
	done
}

# bats test_tags=slow
@test "--slow NODE:FACTOR@STEP: the node is slow from that step on, until it is taken back; losses keep their bits" {
	steps=36
	for how in 'cpu:2 -a even -m 4' 'cpu:2 -a even -m 4 --schedule async'; do
		# shellcheck disable=SC2086
		plan $how >"$tmp/doc.json"
		train "$tmp/doc.json" plain
		train "$tmp/doc.json" out --step-log "$tmp/log" --slow 1:0.05@24 --slow 1:20@12
		[ "$(losses_of plain)" = "$(losses_of out)" ]
		jq -es 'def median: sort[length / 2 | floor]; map(.nodes[1].busy_s) |
			(.[2:12] | median) as $a | (.[15:24] | median) as $b | (.[27:] | median) as $c | $b > 4 * $a and $b > 4 * $c' "$tmp/log"
	done
	for bad in 1:0.5 1:0.5@3 1:2@ 1:2@x 1:2@3x 1:0@3 1@3; do
		run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" --slow "$bad" "$tmp/doc.json"
		one_line dlb-run '--slow'
	done
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" --slow 1:3@1 --slow 1:0.2@2 "$tmp/doc.json"
	one_line dlb-run 'node 1 cannot be faster than it is'
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" --slow 2:3@1 "$tmp/doc.json"
	one_line dlb-run 'nodes 0 to 1'
}
