#!/usr/bin/env bats
# Checkpoints: damage is found and the checkpoint before is used; other files in their folder are not touched.
load helper

setup() {
	tmp=$BATS_TEST_TMPDIR
	doc=$tmp/doc.json
	ck=$tmp/ck
	planned "$doc"
}

train() { dlb-run -q "${digits[@]}" --optimizer momentum --checkpoint "$ck" "$@" "$doc"; }
# Checkpoints at steps 2 and 4, and the losses of steps 5 and 6: $tmp/want.
two() {
	rm -rf "$ck" "$tmp/whole"
	ck=$tmp/whole train --steps 6 --loss-log "$tmp/log" >/dev/null
	tail -n 2 "$tmp/log" >"$tmp/want"
	train --steps 4 --checkpoint-every 2 >/dev/null
}
names() { find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort; } # FOLDER
sums() { (cd "$1" && sha256sum -- *.safetensors manifest.json >SHA256SUMS); }

# bats test_tags=slow
@test "sha256sum checks them" {
	two
	for step in 2 4; do
		(cd "$ck/step-$step" && sha256sum -c --quiet SHA256SUMS)
		run -0 jq -r '.files[]' "$ck/step-$step/manifest.json"
		[ "$({ cat <<<"$output"; echo manifest.json; } | sort)" = "$(names "$ck/step-$step")" ]
	done
	[ "$(names "$ck")" = $'lock\nstep-2\nstep-4' ]
	train --until-step 6 --loss-log "$tmp/log" >/dev/null
	cmp <(tail -n 2 "$tmp/log") "$tmp/want"
}

# bats test_tags=slow
@test "links, and files that no manifest lists, are left alone" {
	mkdir "$tmp/v" && echo mine >"$tmp/v/part-0.safetensors" && echo mine >"$tmp/v/notes"
	train --steps 2 --checkpoint-every 1 >/dev/null
	cp "$ck/step-2/manifest.json" "$ck/step-2/SHA256SUMS" "$tmp/v"
	for name in step-1 step-0 .new-step-5 .new-0123456789abcdef .old-77; do
		rm -rf "${ck:?}/$name" && ln -s "$tmp/v" "$ck/$name"
	done
	echo mine >"$ck/step-2/notes" && ln -s "$tmp/v/notes" "$ck/step-2/part-7.safetensors"
	train --steps 6 --checkpoint-every 1 >/dev/null
	[ "$(cat "$tmp/v/part-0.safetensors" "$tmp/v/notes")" = $'mine\nmine' ]
	[ "$(names "$tmp/v" | wc -l)" -eq 4 ]
	[ -L "$ck/step-1" ] && [ -L "$ck/.new-step-5" ] && [ -L "$ck/.old-77" ]
	[ "$(cat "$ck/step-2/notes")" = mine ] && [ -L "$ck/step-2/part-7.safetensors" ]
	[ ! -e "$ck/step-2/part-0.safetensors" ] && [ ! -e "$ck/step-5" ]
	[ -e "$ck/step-7/manifest.json" ] && [ -e "$ck/step-8/manifest.json" ]
}

# bats test_tags=slow
@test "what has the name of the next checkpoint is put aside, not replaced" {
	mkdir "$tmp/v" && echo mine >"$tmp/v/notes"
	for way in 'ln -s ../v' 'cp -R ../v' 'cp ../v/notes' 'mkfifo'; do
		rm -rf "$ck" && train --steps 2 >/dev/null
		(cd "$ck" && $way step-4)
		run -0 --separate-stderr dlb-run "${digits[@]}" --optimizer momentum --until-step 4 --checkpoint "$ck" "$doc"
		[[ ${#stderr_lines[@]} -eq 1 && $stderr == 'dlb-run: '*step-4*'; training goes on from '*step-2 ]] || { echo "$way: $stderr"; false; }
		[ "$(cat "$tmp/v/notes")" = mine ] && [ "$(names "$tmp/v")" = notes ]
		(cd "$ck/step-4" && sha256sum -c --quiet SHA256SUMS)
		ls -d "$ck"/step-4.aside-*
	done
}

# bats test_tags=slow
@test "a newest one that is damaged: the one before it is used, and a line says so" {
	two
	mv "$ck" "$tmp/sound"
	n=0
	while read -r damage; do
		n=$((n + 1))
		chosen || continue
		for sound in yes no; do
			rm -rf "$ck" && cp -R "$tmp/sound" "$ck"
			(cd "$ck/step-4" && eval "$damage")
			[ $sound = yes ] || rm -r "$ck/step-2"
			echo "$damage ($sound)"
			if [ $sound = yes ]; then
				run -0 --separate-stderr dlb-run "${digits[@]}" --optimizer momentum --until-step 6 --checkpoint "$ck" --loss-log "$tmp/log" "$doc"
				[ "${#stderr_lines[@]}" -eq 1 ] || { echo "$stderr"; false; }
				[[ $stderr == 'dlb-run: '*step-4*'; training goes on from the checkpoint before, '*/ck/step-2 ]] || { echo "$stderr"; false; }
				[ "$(jq '.report.losses | length' <<<"$output")" -eq 4 ]
				cmp <(tail -n 2 "$tmp/log") "$tmp/want"
				[ -e "$ck/step-2/manifest.json" ] && [ -e "$ck/step-6/manifest.json" ]	# two complete ones
			else
				run -2 --separate-stderr dlb-run "${digits[@]}" --optimizer momentum --until-step 6 --checkpoint "$ck" "$doc"
				one_line dlb-run step-4
			fi
		done
	done <<-'END'
		rm manifest.json
		: >manifest.json
		head -c 100 manifest.json >x; mv x manifest.json
		echo '{}' >manifest.json
		rm manifest.json; mkfifo manifest.json
		sed -i 's/"step": 4/"step": 5/' manifest.json
		sed -i 's/"epoch": 0/"epoch": 1/' manifest.json
		rm part-0.safetensors
		: >part-1.safetensors
		head -c 1000 part-0.safetensors >x; mv x part-0.safetensors
		printf 'x' >>part-0.safetensors
		printf '\377' | dd of=part-0.safetensors bs=1 seek=0 conv=notrunc 2>/dev/null
		rm part-1.safetensors; mkdir part-1.safetensors
		rm part-1.safetensors; mkfifo part-1.safetensors
		rm part-1.safetensors; ln -s /dev/zero part-1.safetensors
		cp part-0.safetensors part-1.safetensors
		rm SHA256SUMS
		: >SHA256SUMS
		sed -i 1d SHA256SUMS
		sed -i '1s/./x/' SHA256SUMS
		echo 'nothing that sha256sum writes' >SHA256SUMS
	END
	[ "$n" -eq 21 ]
}

# bats test_tags=slow
@test "one bit anywhere" {
	two
	mv "$ck" "$tmp/sound"
	for file in "$tmp"/sound/step-4/*; do
		for i in 0 1 2 3; do
			chosen || continue
			rm -rf "$ck" && cp -R "$tmp/sound" "$ck"
			python3 - "$ck/step-4/${file##*/}" $i <<-'END'
				import random, sys
				data = bytearray(open(sys.argv[1], "rb").read())
				draw = random.Random(sys.argv[1][-20:] + sys.argv[2])
				data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
				open(sys.argv[1], "wb").write(data)
			END
			run -0 --separate-stderr dlb-run "${digits[@]}" --optimizer momentum --until-step 6 --checkpoint "$ck" --loss-log "$tmp/log" "$doc"
			[[ $stderr == 'dlb-run: '*'; training goes on from the checkpoint before, '*/ck/step-2 ]] || { echo "$file: $stderr"; false; }
			cmp <(tail -n 2 "$tmp/log") "$tmp/want"
		done
	done
}

# bats test_tags=slow
@test "another model or optimizer is refused, though older ones are there" {
	two
	run -2 --separate-stderr dlb-run "${digits[@]}" --optimizer adam --steps 1 --checkpoint "$ck" "$doc"
	one_line dlb-run step-4 "optimizer 'momentum'"
	sed -i 's/"1\.2"/"2.0"/' "$ck/step-4/manifest.json"
	run -2 --separate-stderr dlb-run "${digits[@]}" --steps 1 --checkpoint "$ck" "$doc"
	one_line dlb-run step-4 'format 2.0'
}

# bats test_tags=slow
@test "steps and epochs beyond counting" {
	train --steps 2 >/dev/null
	cp -R "$ck" "$tmp/sound"
	for edit in '.epoch = 424242' '.position = 424242' '.since_best = 424242' '.epoch = -1' '.epoch = 0.5' 'del(.position)' '.step = "2"'; do
		rm -rf "$ck" && cp -R "$tmp/sound" "$ck"
		jq "$edit" "$tmp/sound/step-2/manifest.json" | sed 's/424242/9223372036854775807/' >"$ck/step-2/manifest.json"
		sums "$ck/step-2"
		run -2 --separate-stderr timeout 30 dlb-run "${digits[@]}" --epochs 1 --checkpoint "$ck" "$doc"
		one_line dlb-run manifest.json 'out of range'
	done
	rm -rf "$ck" && cp -R "$tmp/sound" "$ck" && mv "$ck/step-2" "$ck/step-9223372036854775807"
	sed -i 's/"step": 2/"step": 9223372036854775807/' "$ck/step-9223372036854775807/manifest.json"
	sums "$ck/step-9223372036854775807"
	run -2 --separate-stderr timeout 30 dlb-run "${digits[@]}" --steps 1 --checkpoint "$ck" "$doc"
	one_line dlb-run manifest.json 'out of range'
}

# Makes a checkpoint as versions before 1.2 wrote it.
unlist() { # FOLDER
	rm "$1/SHA256SUMS"
	jq 'del(.files) | .["dlb-checkpoint"] = "1.1"' "$1/manifest.json" >"$1/x" && mv "$1/x" "$1/manifest.json"
}

# bats test_tags=slow
@test "those of before checksums load, their structure is checked, and they are removed in their turn" {
	two
	unlist "$ck/step-2"
	unlist "$ck/step-4"
	cp -R "$ck" "$tmp/sound"
	train --until-step 6 --loss-log "$tmp/log" >/dev/null
	cmp <(tail -n 2 "$tmp/log") "$tmp/want"
	[ ! -e "$ck/step-2" ] && [ -e "$ck/step-4/manifest.json" ] && [ -e "$ck/step-6/SHA256SUMS" ]
	rm -rf "$ck" && cp -R "$tmp/sound" "$ck"
	head -c 1000 "$tmp/sound/step-4/part-1.safetensors" >"$ck/step-4/part-1.safetensors"
	run -0 --separate-stderr dlb-run "${digits[@]}" --optimizer momentum --until-step 6 --checkpoint "$ck" --loss-log "$tmp/log" "$doc"
	[[ $stderr == *part-1*'; training goes on from the checkpoint before, '*step-2 ]] || { echo "$stderr"; false; }
	cmp <(tail -n 2 "$tmp/log") "$tmp/want"
}

# bats test_tags=slow
@test "what a killed run has left is removed at the next start, and no more" {
	train --steps 2 >/dev/null
	mkdir "$ck/.new-0123456789abcdef" "$ck/.new-0123456789abcdee" "$ck/.new-step-7"
	jq '{"dlb-checkpoint", files}' "$ck/step-2/manifest.json" >"$ck/.new-0123456789abcdef/manifest.json"
	cp "$ck/.new-0123456789abcdef/manifest.json" "$ck/.new-0123456789abcdee"
	: >"$ck/.new-0123456789abcdef/part-0.safetensors"
	: >"$ck/.new-0123456789abcdef/.dlb-00000000000000ff.part"
	: >"$ck/.new-0123456789abcdee/mine"
	: >"$ck/.new-step-7/part-0.safetensors"		# no manifest: of unknown origin
	mkdir "$ck/.new-0123456789abcdea" "$ck/.new-0123456789abcdeb" "$ck/.old-0123456789abcdec" "$ck/.new-0123456789abcded"
	: >"$ck/.new-0123456789abcdeb/.dlb-00000000000000ff.part"	# killed before the manifest was there
	: >"$ck/.new-0123456789abcded/.dlb-00000000000000ff.part"
	: >"$ck/.new-0123456789abcded/mine"
	train --steps 1 >/dev/null
	for name in .new-0123456789abcdea .new-0123456789abcdeb .old-0123456789abcdec; do [ ! -e "$ck/$name" ]; done
	[ "$(find "$ck/.new-0123456789abcded" -type f | wc -l)" -eq 2 ]
	[ ! -e "$ck/.new-0123456789abcdef" ] && [ -e "$ck/.new-0123456789abcdee/mine" ] && [ -e "$ck/.new-step-7/part-0.safetensors" ]
}

@test "a lock that is a link is not followed" {
	mkdir "$ck" && ln -s "$tmp/victim" "$ck/lock"
	run -2 --separate-stderr dlb-run "${digits[@]}" --steps 1 --checkpoint "$ck" "$doc"
	one_line dlb-run "$ck/lock" 'symbolic link'
	[ ! -e "$tmp/victim" ]
}

# bats test_tags=slow
@test "a folder that the nodes do not share is found before the first step" {
	mkdir -p "$tmp/there"
	on_rank 1 "cd '$tmp/there'"
	cd "$tmp"
	for made in no yes; do
		[ $made = no ] || mkdir -p "$tmp/there/here"
		run -2 --separate-stderr timeout 30 dlb-run "${digits[@]}" --until 'loss<-1' --loss-log "$tmp/log" --checkpoint here "$doc"
		one_line dlb-run "'here' is not shared: node 1"
		[ ! -e "$tmp/log" ]
		[ "$(names here)" = lock ]
	done
}
