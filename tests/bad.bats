#!/usr/bin/env bats
# Hostile input: documents (tests/data/bad/edits), ONNX, IDX and safetensors files (tests/data/bad/make). Each is
# refused with one line and status 2, nothing on stdout. scripts/check runs this file under the sanitizers too,
# whose findings would give more lines and another status.
load helper

setup_file() {
	planned "$BATS_FILE_TMPDIR/doc.json"
	/usr/bin/python3 "$root/tests/data/bad/make" "$model" "$BATS_FILE_TMPDIR/bad"
}
setup() { doc=$BATS_FILE_TMPDIR/doc.json; bad=$BATS_FILE_TMPDIR/bad; tmp=$BATS_TEST_TMPDIR; faults=0; }

# Runs a command that must refuse its input; counts, and reports any other result.
refused() { # NAME TOOL [OPTION...]
	local name=$1 status=0
	shift
	timeout 60 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
	if [ $status -ne 2 ] || [ -s "$tmp/out" ] || [ "$(wc -l <"$tmp/err")" -ne 1 ] || ! grep -q "^$1[:[]" "$tmp/err"; then
		faults=$((faults + 1))
		echo "$name: status $status, $(wc -c <"$tmp/out") bytes out, $(wc -l <"$tmp/err") lines: $(head -n 3 "$tmp/err")"
	fi
}

# bats test_tags=slow
@test "documents" {
	while IFS='|' read -r name tool edit; do
		[[ $name == \#* ]] && continue
		jq -c "$edit" "$doc" >"$tmp/hostile.json"
		# shellcheck disable=SC2086
		refused "$name" $tool "$tmp/hostile.json"
	done < <(sed 's/ | /|/; s/ | /|/' "$root/tests/data/bad/edits")
	[ "$faults" -eq 0 ]
}

@test "documents cut off anywhere" {
	size=$(wc -c <"$doc")
	for i in $(seq 1 23); do
		head -c $((size * i / 24)) "$doc" >"$tmp/hostile.json"
		refused "cut at $((size * i / 24))" dlb-place "$tmp/hostile.json"
	done
	[ "$faults" -eq 0 ]
}

@test "a document ten thousand levels deep" {
	{ printf '{"dlb":"1.0","x-deep":'; head -c 10000 /dev/zero | tr '\0' '['; } >"$tmp/deep.json"
	refused deep dlb-view "$tmp/deep.json"
	[ "$faults" -eq 0 ]
}

@test "more memory than a node has: refused with the numbers" {
	jq -c '.cluster.nodes[].memory_bytes = 1000 | del(.plan.inputs, .cost.inputs)' "$doc" >"$tmp/hostile.json"
	for how in '--steps 1 --dry-run' '--print-program' '--steps 1 --data random'; do
		# shellcheck disable=SC2086
		refused "memory $how" dlb-run $how "$tmp/hostile.json"
		grep -q "^dlb-run: $tmp/hostile.json: node [01] .* needs .* of 0.001 MB" "$tmp/err" || { cat "$tmp/err"; false; }
	done
	[ "$faults" -eq 0 ]
}

# bats test_tags=slow
@test "ONNX models" {
	for file in "$bad"/onnx/*.onnx; do
		refused "${file##*/}" dlb-profile --analytic "$file"
	done
	[ "$faults" -eq 0 ]
}

# bats test_tags=slow
@test "an ONNX model with bits flipped: refused with one line, or taken" {
	for file in "$bad"/flips/*.onnx; do
		status=0
		timeout 60 dlb-profile --analytic "$file" >"$tmp/out" 2>"$tmp/err" || status=$?
		[ $status -eq 0 ] && [ -s "$tmp/out" ] && continue
		if [ $status -ne 2 ] || [ -s "$tmp/out" ] || [ "$(wc -l <"$tmp/err")" -ne 1 ]; then
			faults=$((faults + 1))
			echo "${file##*/}: status $status: $(head -n 5 "$tmp/err")"
		fi
	done
	[ "$faults" -eq 0 ]
}

# bats test_tags=slow
@test "IDX files" {
	for images in "$bad"/idx/*.images; do
		refused "${images##*/}" dlb-run --steps 1 --data "idx:$images,${images%.images}.labels" "$doc"
	done
	[ "$faults" -eq 0 ]
}

# bats test_tags=slow
@test "data files with bytes changed or cut off: refused with one line, or taken" {
	"$BUILD/tests/digits-images" "$tmp/images" 3 2
	"$BUILD/tests/digits-images" -p -c -f 3 "$tmp/images" 2 2
	/usr/bin/python3 "$root/tests/data/bad/hurt" "$tmp"
	for spec in "$tmp"/hurt/*; do
		status=0
		case $spec in
		*.images | *.tar) timeout 60 "$BUILD/tests/data-dump" -t channels=3,resize=5x7,random-crop=4,flip "images:$spec" f32 3x4x4 9 ;;
		*.npy) timeout 60 "$BUILD/tests/data-dump" "npy:$spec,$tmp/labels.npy" f32 2 9 ;;
		*.vocab) timeout 60 "$BUILD/tests/data-dump" "text:$tmp/text,vocab=$spec,merges=$tmp/merges" i64 2 0 ;;
		*.merges) timeout 60 "$BUILD/tests/data-dump" "text:$tmp/text,vocab=$tmp/vocab,merges=$spec" i64 2 0 ;;
		*.text) timeout 60 "$BUILD/tests/data-dump" "text:$spec,vocab=$tmp/vocab,merges=$tmp/merges" i64 2 0 ;;
		*.labels) timeout 60 "$BUILD/tests/data-dump" "images:$tmp/images,labels=$spec" f32 1x16x16 9 ;;
		esac >"$tmp/out" 2>"$tmp/err" || status=$?
		[ $status -eq 0 ] && [ -s "$tmp/out" ] && continue
		if [ $status -ne 2 ] || [ -s "$tmp/out" ] || [ "$(wc -l <"$tmp/err")" -ne 1 ]; then
			faults=$((faults + 1))
			echo "${spec##*/}: status $status: $(head -n 5 "$tmp/err")"
		fi
	done
	[ "$faults" -eq 0 ]
}

@test "safetensors as first weights" {
	for file in "$bad"/safetensors/*.safetensors; do
		refused "${file##*/}" dlb-profile --analytic --weights "$file" "$model"
	done
	[ "$faults" -eq 0 ]
}

# bats test_tags=slow
@test "a checkpoint whose files were damaged" {
	export ASAN_OPTIONS=detect_leaks=0	# leaks of Open MPI; see scripts/check
	dlb-run --steps 2 "${digits[@]}" --checkpoint "$tmp/ckpt" "$doc" >/dev/null
	n=0
	while read -r file; do
		cp -R "$tmp/ckpt" "$tmp/hurt"
		size=$(wc -c <"$file")
		head -c $((size / 2)) "$file" >"$tmp/hurt/${file#"$tmp"/ckpt/}"
		refused "half of ${file##*/}" dlb-run --steps 1 "${digits[@]}" --checkpoint "$tmp/hurt" "$doc"
		rm -rf "$tmp/hurt"
		n=$((n + 1))
	done < <(find "$tmp/ckpt" -type f -size +0)
	[ $n -gt 0 ]
	[ "$faults" -eq 0 ]
}
