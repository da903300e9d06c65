#!/usr/bin/env bats
# What the Makefile remakes, with a compiler that takes no time: it writes what it was called with, and the file's name.
load helper

setup() {
	tmp=$BATS_TEST_TMPDIR
	mkdir "$tmp/source"
	cp -R "$root/Makefile" "$root/lib" "$root/cmd" "$tmp/source"
	cd "$tmp/source" || return
	cat >"$tmp/cc" <<-'END'
		#!/bin/bash
		while [ $# -gt 0 ]; do
			case $1 in
			-dumpmachine) echo x86_64-linux-gnu; exit ;;
			-o) out=$2; shift ;;
			*.c) source=$1 ;;
			esac
			shift
		done
		echo "$source" >>"$0.said"
		echo "$source" >"$out"
	END
	chmod +x "$tmp/cc"
}

made() { # [MAKE-OPTION...]: the sources compiled for the library
	: >"$tmp/cc.said"
	make -s CC="$tmp/cc" BUILD="$tmp/build" "$@" "$tmp/build/libdlb.a" && sort -u "$tmp/cc.said"
}

# bats test_tags=slow
@test "the library is remade when a source comes, however old, or goes; all of it when flags change" {
	made >"$tmp/all"
	[ "$(grep -c '^lib/' "$tmp/all")" -gt 200 ]
	[ "$(made)" = '' ]
	for source in lib/util/more.c lib/tensor/cpu/more.c; do
		echo 'int more;' >$source
		touch -d 2001-01-01 $source		# as mv and tar leave it
		[ "$(made)" = $source ]
		ar t "$tmp/build/libdlb.a" | grep -qx more.o
		[ "$(made)" = '' ]
		rm $source
		[ "$(made)" = '' ]
		[ "$(ar t "$tmp/build/libdlb.a" | grep -cx more.o)" -eq 0 ]
	done
	[ "$(made OPT=-O1)" = "$(cat "$tmp/all")" ]
	[ "$(made OPT=-O1)" = '' ]
	touch lib/util/error.c
	[ "$(made OPT=-O1)" = lib/util/error.c ]
}

# bats test_tags=slow
@test "an object is remade when a header changes, wherever the build is and whatever ccache makes of names" {
	command -v ccache >/dev/null || skip 'no ccache'
	export CCACHE_BASEDIR=$tmp/source
	for build in build "$tmp/source/build" "$tmp/elsewhere"; do
		export CCACHE_DIR=$tmp/cache-of-${build##*/}-${#build}	# what it has it names otherwise
		object=$build/lib/util/error.o
		make -s CC='ccache gcc' BUILD="$build" "$object"
		touch lib/util/error.h
		make -s CC='ccache gcc' BUILD="$build" "$object"
		[ "$object" -nt lib/util/error.h ]
	done
}
