#!/usr/bin/env bats
# dlb-run: trained weights and a report of a plan and data.
load helper

setup() { planned "$BATS_TEST_TMPDIR/doc.json"; tmp=$BATS_TEST_TMPDIR; doc=$tmp/doc.json; }

@test "bad JSON" { refuses_bad_json dlb-run --dry-run --steps 2; }
@test "empty input" { refuses_empty_input dlb-run; }
@test "no such file" { refuses_missing_file dlb-run --steps 2; }
@test "missing section" {
	refuses_missing_section dlb-run graph --steps 2
	jq -c 'del(.plan)' "$doc" >"$tmp/unplanned.json"
	run -2 --separate-stderr dlb-run --steps 2 "${digits[@]}" "$tmp/unplanned.json"
	one_line dlb-run "'plan'" dlb-place
}
@test "other major version" { refuses_other_major dlb-run --steps 2; }
@test "unknown member" { refuses_unknown_member "$doc" dlb-run --dry-run --steps 2; }
@test "newer minor version" { passes_unknown_on "$doc" dlb-run --dry-run --steps 2; }
@test "full disk" {
	refuses_full_disk "$doc" dlb-run --dry-run --steps 2
	refuses_full_disk "$doc" dlb-run --steps 2 "${digits[@]}"
}
@test "help" { shows_help dlb-run; }
@test "unknown option" { refuses_unknown_option dlb-run; }

@test "bad options" {
	for option in '--steps -1' '--steps x' '--data nothing' '--optimizer sdg' '--lr x' '--slow 1' '--slow 7:2' '--slow 1:0.5' \
		'--transform shear=1' '--order random' '--until loss' '--data idx:/nonexistent,/nonexistent'; do
		# shellcheck disable=SC2086
		run -2 --separate-stderr dlb-run --steps 1 "${digits[@]}" $option "$doc"
		echo "$option"
		one_line dlb-run
	done
	run -2 --separate-stderr dlb-run --optimizer sdg --steps 1 "${digits[@]}" "$doc"
	one_line dlb-run "'sdg'"
}

@test "checkpoints that nobody said a place for: one line, and the run goes on" {
	run -0 --separate-stderr dlb-run --steps 2 "${digits[@]}" --checkpoint-every 1 "$doc"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "dlb-run: --checkpoint-every "*"--checkpoint DIR" ]]
	jq -e '.report.losses | length == 2' <<<"$output"
}

# bats test_tags=slow
@test "a place where nothing can be saved is found before training, not after it" {
	for where in "$tmp/nowhere/trained.safetensors" "$tmp/nowhere/trained.onnx" "$tmp"; do
		run -2 --separate-stderr dlb-run --until 'loss<-1' "${digits[@]}" --save "$where" "$doc"	# would never end
		one_line dlb-run '[0]' "$where"
	done
}

# bats test_tags=slow
@test "--dry-run writes the same report as a run" {
	dlb-run --dry-run --steps 5 "$doc" >"$tmp/dry.json"
	validates "$tmp/dry.json"
	dlb-run --steps 5 "${digits[@]}" "$doc" >"$tmp/real.json"
	validates "$tmp/real.json"
	run -0 jq -n -e --slurpfile dry "$tmp/dry.json" --slurpfile real "$tmp/real.json" '
		def names: .report | [.step_s, .predicted_step_s, .imbalance, (.nodes | length)] | map(type);
		($dry[0] | names) == ($real[0] | names) and
		all($dry[0], $real[0]; .report.nodes | all(.busy_s >= 0 and .wait_s >= 0 and .peak_bytes > 0))'
	run -0 jq -e '.report.losses | length == 5 and all(. > 0)' "$tmp/real.json"
}

@test "a simulated run repeats itself" {
	dlb-run --dry-run --steps 5 "$doc" >"$tmp/a.json"
	dlb-run --dry-run --steps 5 "$doc" >"$tmp/b.json"
	cmp "$tmp/a.json" "$tmp/b.json"
}

@test "--print-program writes text" {
	run -0 --separate-stderr dlb-run --print-program "$doc"
	[ -z "$stderr" ]
	[[ $output == *COMPUTE* && $output == *SEND* ]]
	run -2 --separate-stderr bash -c 'dlb-run --print-program "$1" >/dev/full' - "$doc"
	one_line dlb-run 'No space left on device'
}

# bats test_tags=slow
@test "every optimizer learns" {
	for o in 'sgd --lr 0.1' 'momentum --lr 0.05' 'nesterov --lr 0.05' 'adam --lr 0.005' 'adamw --lr 0.005' 'adabelief --lr 0.005'; do
		# shellcheck disable=SC2086
		dlb-run --steps 120 "${digits[@]}" --optimizer $o "$doc" >"$tmp/out.json"
		echo "$o"
		jq -e '.report.losses | (.[:10] | add) * 0.8 > (.[-10:] | add)' "$tmp/out.json"
	done
}

@test "accuracy needs test data" {
	dlb-run --epochs 2 "${digits[@]}" --test-data digits:test --optimizer adam --lr 0.003 "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	jq -e '.report.accuracy > 0.8' "$tmp/out.json"
}

@test "--test-data with a loss of no classification: the mean over the samples, and no accuracy" {
	for loss in mse l1; do
		for nodes in 1 2; do
			dlb-profile -q --analytic --batch 36 --loss $loss "$models/digits_mlp.onnx" | dlb-costmodel -q -c cpu:$nodes | dlb-place -q -m 2 -a even |
				dlb-run -q --epochs 1 --lr 0 --data digits:test --transform scale=1/16 --test-data digits:test --eval-every 5 \
					--step-log "$BATS_TEST_TMPDIR/log" >"$BATS_TEST_TMPDIR/$nodes.json"
		done
		jq -e '.report | (.losses | length == 10) and (.test_loss / (.losses | add / 10) - 1 | fabs < 1e-5) and
			(.evaluations | length == 2) and ([.accuracy, .evaluations[].accuracy] | all(. == null))' "$BATS_TEST_TMPDIR/1.json"
		[ "$(jq -c '[.report.losses, .report.test_loss]' "$BATS_TEST_TMPDIR/1.json")" = "$(jq -c '[.report.losses, .report.test_loss]' "$BATS_TEST_TMPDIR/2.json")" ]
		tail -n 1 "$BATS_TEST_TMPDIR/log" | jq -e 'has("test_loss") and (has("accuracy") | not)'
		dlb-view "$BATS_TEST_TMPDIR/2.json" | grep -q '^  test loss '
	done
}

@test "accuracy of scores for each pixel: the greatest of a pixel's scores counts, ignored pixels do not" {
	cd "$tmp"
	# scores (N, 3, 2, 4) are the pixels of x; of 40 labels every fourth is wrong, and one wrong and one right label are ignored
	python3 - "$root/tests/data" <<-'END'
		import random, struct, sys
		sys.dont_write_bytecode = True
		sys.path.insert(0, sys.argv[1])
		from onnx_file import model, node, tensor, value
		def npy(path, descr, shape, data):
		    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
		    head += ' ' * (63 - (10 + len(head)) % 64) + '\n'
		    open(path, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() + data)
		identity = tensor('w', [3, 3, 1, 1], struct.pack('<9f', 1, 0, 0, 0, 1, 0, 0, 0, 1))
		open('m.onnx', 'wb').write(model(node('Conv', ['x', 'w'], ['y']) + identity + value(11, 'x', ['N', 3, 2, 4]) + value(12, 'y', ['N', 3, 2, 4])))
		draw = random.Random(1)
		x = [[[draw.random() for pixel in range(8)] for c in range(3)] for n in range(5)]
		y = [max(range(3), key=lambda c: x[i // 8][c][i % 8]) for i in range(40)]
		y = [(c + (i % 4 == 0)) % 3 for i, c in enumerate(y)]
		y[7] = y[20] = -100
		npy('x.npy', '<f4', (5, 3, 2, 4), struct.pack('<120f', *[v for sample in x for plane in sample for v in plane]))
		npy('y.npy', '<i8', (5, 2, 4), struct.pack('<40q', *y))
	END
	dlb-profile -q --analytic --batch 2 --loss cross-entropy m.onnx | dlb-costmodel -q -c cpu:1 | dlb-place -q >m.json
	dlb-run -q --steps 1 --lr 0 --data npy:x.npy,y.npy --test-data npy:x.npy,y.npy m.json >out.json
	jq -e '.report.accuracy * 38 - 29 | fabs < 1e-9' out.json || { jq .report.accuracy out.json; false; }
}

@test "--loss-log: a loss a line with 17 digits" {
	dlb-run --steps 7 "${digits[@]}" --loss-log "$tmp/log" "$doc" >"$tmp/out.json"
	[ "$(wc -l <"$tmp/log")" -eq 7 ]
	jq -r '.report.losses[]' "$tmp/out.json" | awk '{ printf "%.15g\n", $1 }' >"$tmp/a"
	awk '{ printf "%.15g\n", $NF }' "$tmp/log" | cmp - "$tmp/a"
}

# bats test_tags=slow
@test "--save: safetensors and ONNX, named as the model's weights" {
	dlb-run --steps 3 "${digits[@]}" --save "$tmp/w.safetensors" "$doc" >/dev/null
	/usr/bin/python3 - "$tmp/w.safetensors" <(jq -r '.graph.tensors[] | select(.kind == "weight") | .name' "$doc") <<'EOS'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
names = set(open(sys.argv[2]).read().split())
assert names and names <= set(header), names - set(header)
assert max(t["data_offsets"][1] for k, t in header.items() if k != "__metadata__") == len(data) - 8 - n
EOS
	dlb-run --steps 3 "${digits[@]}" --save "$tmp/w.onnx" "$doc" >/dev/null
	dlb-profile --analytic "$tmp/w.onnx" | jq -e --slurpfile was "$doc" '(.graph.ops | length) == ($was[0].graph.ops | length)'
	run ! cmp -s "$tmp/w.onnx" "$model"
}

@test "--until and --patience end a run and say so" {
	dlb-run --steps 2000 "${digits[@]}" --optimizer adam --lr 0.003 --until 'loss<1.5' "$doc" >"$tmp/out.json"
	jq -e '.report.stopped == "loss" and (.report.losses | length) < 2000' "$tmp/out.json"
	# after the first three losses in a row that are no better than the best one before
	dlb-run --steps 2000 "${digits[@]}" --lr 0.2 --patience 3 "$doc" >"$tmp/out.json"
	jq -c .report.losses "$tmp/out.json"
	jq -e '.report | .stopped == "patience" and (.losses as $l | [range(1; $l | length) as $i | select($l[$i] >= ($l[:$i] | min)) | $i] |
		[.[] as $i | select([$i - 1, $i - 2] - . == []) | $i] == [($l | length) - 1])' "$tmp/out.json"
}

@test "a loss that is not finite ends the run" {
	run -2 --separate-stderr dlb-run --steps 50 "${digits[@]}" --lr 1e30 "$doc"
	one_line dlb-run finite
	run -0 --separate-stderr dlb-run --steps 10 "${digits[@]}" --lr 1e30 --allow-nonfinite "$doc"
}

@test "--slow stretches a node's work" {
	dlb-run --steps 30 "${digits[@]}" "$doc" >"$tmp/a.json"
	dlb-run --steps 30 "${digits[@]}" --slow 1:4 "$doc" >"$tmp/b.json"
	jq -n -e --slurpfile a "$tmp/a.json" --slurpfile b "$tmp/b.json" '
		$b[0].report.nodes[1].busy_s > 2 * $a[0].report.nodes[1].busy_s'
}

# bats test_tags=slow
@test "under mpirun: joins, and rank 0 alone writes" {
	mpirun --oversubscribe --bind-to none -np 2 dlb-run --steps 3 "${digits[@]}" "$doc" >"$tmp/out.json"
	validates "$tmp/out.json"
	dlb-run --steps 3 "${digits[@]}" "$doc" >"$tmp/own.json"
	cmp <(jq .report.losses "$tmp/out.json") <(jq .report.losses "$tmp/own.json")
}

@test "data of the wrong shape, truncated and lying IDX files" {
	run -2 --separate-stderr dlb-run --steps 1 --data digits --transform pad=3 "$doc"
	one_line dlb-run
	printf 'no idx at all' >"$tmp/x"
	run -2 --separate-stderr dlb-run --steps 1 --data "idx:$tmp/x,$tmp/x" "$doc"
	one_line dlb-run
}

# bats test_tags=slow
@test "a plan for more cores, hosts or memory than this host has: one line that says what to expect" {
	cores=$(nproc)
	dlb-costmodel -c "cpu:$((2 * cores))" "$doc" | dlb-place -q -a even >"$tmp/wide.json"
	run -0 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/wide.json"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ $stderr == "dlb-run: the plan has $((2 * cores)) nodes of $((2 * cores)) cores in all, this host has $cores: expect steps up to about 2 times the predicted" ]]
	run -0 --separate-stderr dlb-run -q --steps 1 "${digits[@]}" "$tmp/wide.json"
	[ -z "$stderr" ]
	dlb-costmodel -c 'cpu:1 host cpu:1' "$doc" | dlb-place -q -a even >"$tmp/apart.json"
	run -0 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/apart.json"
	[[ $stderr == *'2 hosts, all nodes run on this one: expect other times of transfers than predicted' && ${#stderr_lines[@]} -eq 1 ]]
	# no message if the machine is that of the plan, nor for a simulated run
	dlb-costmodel -c cpu:1 "$doc" | dlb-place -q >"$tmp/one.json"
	run -0 --separate-stderr dlb-run --steps 1 "${digits[@]}" "$tmp/one.json"
	[ -z "$stderr" ]
	run -0 --separate-stderr dlb-run --dry-run --steps 1 "$tmp/wide.json"
	[ -z "$stderr" ]
}
