#!/usr/bin/env bats
# The manuals: options equal those of --help, mandoc finds no fault, and their EXAMPLES run.
load helper

tools=(dlb-profile dlb-costmodel dlb-place dlb-run dlb-rebalance dlb-view dlb-convert)

# Options of --help: "-a --algorithm NAME", one per line, sorted.
help_options() {
	"$1" --help | sed -n 's/^  \(-.\), --\([^ ]*\)\( [^ ]\+\)\?  .*/\1 --\2\3/p; s/^      --\([^ ]*\)\( [^ ]\+\)\?  .*/--\1\2/p' |
		sed 's/ *$//' | sort
}

# The same from the manual: items of the OPTIONS list, ".It Fl a , Fl -algorithm Ar NAME".
man_options() {
	sed -n 's/^\.It Fl \(.\) , Fl -\([^ ]*\)\( Ar \(.*\)\)\?$/-\1 --\2 \4/p; s/^\.It Fl -\([^ ]*\)\( Ar \(.*\)\)\?$/--\1 \3/p' \
		"$root/man/$1.1" | sed 's/ *$//' | sort
}

@test "options are those of --help" {
	for tool in "${tools[@]}"; do
		diff <(help_options "$tool") <(man_options "$tool")
	done
}

# bats test_tags=slow
@test "every option of --help is in the SYNOPSIS of the manual" {
	for tool in "${tools[@]}"; do
		synopsis=$(sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/p' "$root/man/$tool.1")
		for option in $("$tool" --help | sed -n 's/^  .\{4\}--\([^ ]*\).*/\1/p'); do
			case $option in help|version|quiet|verbose) continue ;; esac
			letter=$("$tool" --help | sed -n "s/^  -\\(.\\), --$option .*/\\1/p")
			echo "$tool $option"
			[[ $synopsis == *"Fl -$option"* || ( -n $letter && $synopsis == *"Fl $letter"* ) ]]
		done
	done
}

@test "sections that every manual of a tool has" {
	for tool in "${tools[@]}"; do
		for section in NAME SYNOPSIS DESCRIPTION OPTIONS 'EXIT STATUS' EXAMPLES 'SEE ALSO'; do
			grep -qx "\.Sh $section" "$root/man/$tool.1"
		done
	done
}

@test "they lint" {
	command -v mandoc >/dev/null || skip 'no mandoc'
	for page in "$root"/man/*.[157]; do
		run ! grep -v 'referenced manual not found' <(mandoc -T lint -W warning "$page")
	done
}

# The displays of the EXAMPLES section as a shell script.
examples() {
	awk '/^\.Sh / { on = $2 == "EXAMPLES" } on && /^\.Ed/ { in_display = 0; print "" } in_display { gsub(/\\e/, "\\"); print } on && /^\.Bd -literal/ { in_display = 1 }' \
		"$root/man/$1"
}

run_examples() { # PAGE
	cd "$BATS_TEST_TMPDIR" || return
	cp "$model" model.onnx
	planned doc.json
	{ echo 'set -euo pipefail'; examples "$1"; } >script
	[ "$(wc -l <script)" -gt 1 ]
	cat script
	bash script
}

# bats test_tags=slow
@test "EXAMPLES of dlb-profile(1)" { run_examples dlb-profile.1; }
@test "EXAMPLES of dlb-costmodel(1)" { run_examples dlb-costmodel.1; }
@test "EXAMPLES of dlb-place(1)" { run_examples dlb-place.1; }
@test "EXAMPLES of dlb-run(1)" { run_examples dlb-run.1; }
@test "EXAMPLES of dlb-rebalance(1)" { run_examples dlb-rebalance.1; }
@test "EXAMPLES of dlb-view(1)" { run_examples dlb-view.1; }
@test "EXAMPLES of dlb-convert(1)" { run_examples dlb-convert.1; }
# bats test_tags=slow
@test "EXAMPLES of dlb(7)" { run_examples dlb.7; }

@test "the README names every tool and page, and claims none that is not there" {
	for tool in "${tools[@]}"; do
		grep -q "$tool" "$root/README.md"
	done
	while read -r page; do
		[ -f "$root/$page" ]
	done < <(grep -o 'man/[a-z0-9.-]*\.[157]' "$root/README.md")
}

# bats test_tags=slow
@test "CONTRIBUTING.md names files and functions that are there" {
	run /usr/bin/python3 - "$root" <<-'END'
		import os, re, sys
		os.chdir(sys.argv[1])
		text = open('CONTRIBUTING.md').read()
		source = ''.join(open(os.path.join(d, f)).read() for top in ('lib', 'cmd') for d, _, fs in os.walk(top)
		                 for f in fs if f.endswith(('.c', '.h')))
		names = sorted(set(re.findall(r'`([^`\n]+)`', text)))
		files = [p for w in names for p in w.split() if re.match(r'(lib|cmd|tests|scripts|man)/', p) and 'NAME' not in p]
		functions = [w for w in names if re.fullmatch(r'(dlb|conv|run)_\w+', w)]
		assert len(files) > 30 and len(functions) > 20, (files, functions)
		bad = [p for p in files if not os.path.exists(p)] + [w for w in functions if not re.search(r'\b' + w + r'\(', source)]
		assert not bad, bad
	END
	echo "$output"
	[ "$status" = 0 ]
}
