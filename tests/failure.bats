#!/usr/bin/env bats
# Any failure on one rank ends all of them: one line, status 2, no hang.
load helper

setup() { tmp=$BATS_TEST_TMPDIR; }

# plan CLUSTER MODEL BATCH [DLB-PLACE OPTION...] >FILE
plan() {
	local cluster=$1 file=$2 batch=$3
	shift 3
	dlb-profile --analytic --batch "$batch" "$models/$file.onnx" | dlb-costmodel -c "$cluster" | dlb-place "$@"
}

# Makes samples for the digits' models, with NaN in those numbered: samples FILE SAMPLE...
samples() {
	arrays "$tmp/$1" 960 "${@:2}"
	data=(--order sequential --data "npy:$tmp/$1.x.npy,$tmp/$1.y.npy")
}

# bats test_tags=slow
@test "NaN in one replica's samples, whatever the model makes of it" {
	samples spoilt 800		# step 33, of replica 1 or 2
	for file in digits_mlp digits_cnn; do
		plan cpu:3 "$file" 24 --replicas 3 >"$tmp/doc.json"
		started --epochs 2 "${data[@]}" "$tmp/doc.json"
		wait_for_lines "$tmp/log" 33
		ends "$tmp/log" 'step 33'
	done
	plan cpu:2 digits_cnn 24 -a even >"$tmp/doc.json"
	started --epochs 2 "${data[@]}" "$tmp/doc.json"
	wait_for_lines "$tmp/log" 33
	ends "$tmp/log" "step 33"
}

# bats test_tags=slow
@test "NaN with the sums compressed, the weights averaged, the steps asynchronous" {
	samples spoilt 800
	plan cpu:2 digits_cnn 24 --replicas 2 >"$tmp/doc.json"
	for how in '--compress bf16' '--compress lowrank:2,start=2' '--gossip 0.5' '--param-server 0' '--sync' '--allreduce tree'; do
		echo "$how"
		# shellcheck disable=SC2086
		started --epochs 2 "${data[@]}" $how "$tmp/doc.json"
		wait_for_lines "$tmp/log" 33
		ends "$tmp/log" 'not finite'
	done
	plan cpu:2 digits_cnn 24 -m 4 --schedule async -a even >"$tmp/doc.json"
	started --epochs 2 "${data[@]}" "$tmp/doc.json"
	wait_for_lines "$tmp/log" 20
	ends "$tmp/log" 'not finite'
	plan cpu:4 digits_cnn 24 -m 4 --schedule async -a even --replicas 2 >"$tmp/doc.json"
	for how in '' '--clip-norm 1 --feed host' '--compress bf16'; do
		# shellcheck disable=SC2086
		started --epochs 2 "${data[@]}" $how "$tmp/doc.json"
		wait_for_lines "$tmp/log" 20
		ends "$tmp/log" 'not finite'
	done
}

@test "--allow-nonfinite goes on" {
	samples spoilt 30
	plan cpu:2 digits_cnn 24 --replicas 2 >"$tmp/doc.json"
	dlb-run -q --allow-nonfinite --steps 5 "${data[@]}" "$tmp/doc.json" | jq -e '.report.losses | length == 5'
}

# bats test_tags=slow
@test "a rank killed, any rank, however they share the work" {
	plan cpu:3 digits_cnn 24 --replicas 3 >"$tmp/replicas.json"
	plan cpu:3 digits_cnn 24 -m 4 -a even >"$tmp/stages.json"
	plan cpu:4 digits_cnn 24 -m 4 -a even --schedule async --replicas 2 >"$tmp/async.json"
	plan cpu:4 digits_cnn 24 --replicas 3 --param-server 3 >"$tmp/server.json"
	while read -r doc rank options; do
		chosen || continue
		echo "$doc: rank $rank, $options"
		# shellcheck disable=SC2086
		started --steps 1000000 "${digits[@]}" $options "$tmp/$doc.json"
		wait_for_lines "$tmp/log" 20
		ranks_of "$parent"
		[ "${#ranks[@]}" -ge 3 ]
		touch "$tmp/began"
		kill -KILL "${ranks[rank]}"
		ends "$tmp/began" 'rank [0123]'
	done <<-'END'
		replicas 0
		replicas 2 --allreduce host
		replicas 1 --allreduce mpi --sync
		replicas 1 --gossip 0.5
		replicas 0 --param-server 0
		replicas 1 --compress lowrank:2,start=0
		replicas 2 --allreduce doubling --sync-every 3
		replicas 1 --feed host --shards sorted --exchange-data 0.5
		replicas 0 --optimizer kfac --compress cholesky
		replicas 1 --optimizer max-adabelief --reduce moments
		server 3
		server 1 --sync-every 4
		stages 0
		stages 2
		async 0 --feed host
		async 3 --clip-norm 1
		async 2 --compress lowrank:2,start=0
	END
}

# mpiexec deletes a dozen files at the end; a disk may take long for that, memory takes no time.
# bats test_tags=slow
@test "a rank killed where the disk takes half a second to delete a file" {
	[ "$(stat -f -c %T /dev/shm)" = tmpfs ] && [ "$(stat -f -c '%a * %S' /dev/shm | xargs expr)" -ge 1000000000 ] ||
		skip 'no room in memory'
	${CC:-cc} -D_GNU_SOURCE -shared -fPIC -o "$tmp/disk.so" -x c - -ldl <<-'END'
		#include <dlfcn.h>
		#include <string.h>
		#include <unistd.h>
		static int delete(const char *how, const char *path)
		{
		        void *next = dlsym(RTLD_NEXT, how);

		        if (path[0] == '/' && strncmp(path, "/dev/shm/", 9))
		                usleep(500000);
		        return (*(int (**)(const char *))&next)(path);
		}
		int unlink(const char *path) { return delete("unlink", path); }
		int rmdir(const char *path) { return delete("rmdir", path); }
	END
	plan cpu:3 digits_cnn 24 --replicas 3 >"$tmp/doc.json"
	unset TMPDIR
	export LD_PRELOAD=$tmp/disk.so
	started --steps 1000000 "${digits[@]}" "$tmp/doc.json"
	unset LD_PRELOAD
	wait_for_lines "$tmp/log" 20
	ranks_of "$parent"
	touch "$tmp/began"
	kill -KILL "${ranks[1]}"
	ends "$tmp/began" 'rank 1'
}

# bats test_tags=slow
@test "a rank that is stopped is given up after --timeout" {
	plan cpu:2 digits_cnn 24 --replicas 2 >"$tmp/doc.json"
	started --steps 1000000 --timeout 1 --heartbeat 0 "${digits[@]}" "$tmp/doc.json"
	wait_for_lines "$tmp/log" 20
	ranks_of "$parent"
	touch "$tmp/began"
	kill -STOP "${ranks[1]}"
	ends "$tmp/began" 'lost rank 1: it has been stopped'
	kill -KILL "${ranks[1]}" 2>/dev/null || true
}

# bats test_tags=slow
@test "one rank without the memory that the plan wants" {
	plan cpu:2 digits_cnn 30000 --replicas 2 >"$tmp/doc.json"
	on_rank 1 "touch '$tmp/began'"
	dlb-run -q --steps 0 --data random "$tmp/doc.json" >/dev/null
	start=$((($(date +%s%N) - $(date -r "$tmp/began" +%s%N)) / 1000000))	# a rank can only lack memory after its start
	# With 300000 KB MPI would hang if started; with 150000 OpenBLAS would hang at exit, since it could not start its thread.
	while read -r threads limit; do
		on_rank 1 "touch '$tmp/began'; export OMP_NUM_THREADS=$threads; ulimit -v $limit"
		started --steps 3 --data random "$tmp/doc.json"
		ends "$tmp/began" '(rank 1|\[1\]).*memory' "$start"
	done <<-END
		1 150000
		1 300000
		1 350000
		2 150000
		2 300000
	END
}

# Uses MPI's profiling interface: one message of a rank is four bytes too short, or too long.
shorten() { # BYTES
	mpicc -shared -fPIC -o "$tmp/shorten.so" -x c - <<-END
		#include <mpi.h>
		static int n;
		int MPI_Isend(const void *p, int count, MPI_Datatype type, int to, int tag, MPI_Comm c, MPI_Request *q)
		{
		        return PMPI_Isend(p, type == MPI_BYTE && count > 64 && ++n == 2000 ? count + $1 : count, type, to, tag, c, q);
		}
	END
}

# bats test_tags=slow
@test "a message of the wrong size" {
	command -v mpicc >/dev/null || skip 'no mpicc'
	plan cpu:3 digits_cnn 24 --replicas 3 >"$tmp/replicas.json"
	plan cpu:3 digits_cnn 24 -m 4 -a even >"$tmp/stages.json"
	for doc in replicas stages; do
		for bytes in -4 4; do
			shorten $bytes
			# without shared memory all messages use MPI
			on_rank 1 "export LD_PRELOAD=$tmp/shorten.so"
			sed -i '2i ulimit -v 20000000' "$tmp/as-rank"
			started --steps 1000000 "${digits[@]}" "$tmp/$doc.json"
			wait_for_lines "$tmp/log" 1
			ends "$tmp/log" "rank 1 sent"
		done
	done
}

# LAPACK reports "not positive definite" on one rank only, where it factors the sum: four times, for all retries.
# bats test_tags=slow
@test "not positive definite on one rank: all take the same way out and go on, the report says so" {
	${CC:-cc} -D_GNU_SOURCE -shared -fPIC -o "$tmp/indefinite.so" -x c - -ldl <<-'END'
		#include <dlfcn.h>
		void spftrf_(const char *r, const char *u, const int *n, float *a, int *info, unsigned long x, unsigned long y)
		{
		        static int calls;
		        void *next = dlsym(RTLD_NEXT, "spftrf_");

		        if (++calls > 2 && calls <= 6)
		                *info = 1;
		        else
		                (*(void (**)(const char *, const char *, const int *, float *, int *, unsigned long, unsigned long))&next)(r, u, n, a, info, x, y);
		}
	END
	for n in 2 3 4; do
		plan "cpu:$n" digits_mlp 24 --replicas "$n" >"$tmp/doc.json"
		for how in cholesky cholesky:per-hop; do
			run_it() { dlb-run -q --steps 8 "${digits[@]}" --optimizer kfac --lr 0.02 --inverse-every 1 --timeout 3 --compress "$how" "$tmp/doc.json"; }
			on_rank 1 :
			run_it >"$tmp/sound.json"
			on_rank 1 "export LD_PRELOAD=$tmp/indefinite.so"
			run_it >"$tmp/out.json"
			run_it | jq -c .report.losses >"$tmp/again"
			cmp <(jq -c .report.losses "$tmp/out.json") "$tmp/again"
			validates "$tmp/out.json"
			jq -e --arg how "$how" '.report.kfac | if $how == "cholesky" then .not_definite == 1 else .hops_failed > 0 end' "$tmp/out.json"
			jq -e --slurpfile s "$tmp/sound.json" '([.report.losses, $s[0].report.losses] | transpose | length == 8 and
				all((.[0] - .[1] | fabs) < 0.02 * .[1])) and $s[0].report.kfac.not_definite + $s[0].report.kfac.hops_failed == 0' "$tmp/out.json"
		done
	done
}

# $tmp/slow.so: where it is loaded, what is opened, written or synced of files whose path has SLOW in it takes 1.5 s: each
# call with DLB_TEST_LONG, else the first two.
slow_disk() {
	command -v gcc >/dev/null || skip 'no gcc'
	gcc -shared -fPIC -o "$tmp/slow.so" -x c - -ldl <<-'END'
		#define _GNU_SOURCE
		#include <dlfcn.h>
		#include <fcntl.h>
		#include <stdarg.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <unistd.h>
		static void at(const char *path)
		{
		        static int calls;
		        const char *every = getenv("DLB_TEST_LONG");

		        if (getenv("SLOW") && strstr(path, getenv("SLOW")) && (calls++ < 2 || (every && *every)))
		                usleep(1500000);
		}
		static void at_file(int file)
		{
		        char name[32], path[4096] = "";
		        snprintf(name, sizeof name, "/proc/self/fd/%d", file);
		        if (readlink(name, path, sizeof path - 1) > 0)
		                at(path);
		}
		int fsync(int file)
		{
		        at_file(file);
		        return 0;
		}
		ssize_t write(int file, const void *p, size_t n)
		{
		        static ssize_t (*real)(int, const void *, size_t);
		        if (!real)
		                *(void **)&real = dlsym(RTLD_NEXT, "write");
		        at_file(file);
		        return real(file, p, n);
		}
		int fflush(FILE *f)
		{
		        static int (*real)(FILE *);
		        if (!real)
		                *(void **)&real = dlsym(RTLD_NEXT, "fflush");
		        if (f)
		                at_file(fileno(f));
		        return real(f);
		}
		FILE *fopen(const char *path, const char *how)
		{
		        static FILE *(*real)(const char *, const char *);
		        if (!real)
		                *(void **)&real = dlsym(RTLD_NEXT, "fopen");
		        at(path);
		        return real(path, how);
		}
		int open(const char *path, int flags, ...)
		{
		        static int (*real)(const char *, int, ...);
		        va_list ap;
		        va_start(ap, flags);
		        const int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
		        va_end(ap);
		        if (!real)
		                *(void **)&real = dlsym(RTLD_NEXT, "open");
		        at(path);
		        return real(path, flags, mode);
		}
	END
}

# bats test_tags=slow
@test "a disk that takes longer than --timeout for a checkpoint: the others wait" {
	plan cpu:2 digits_cnn 24 --replicas 2 >"$tmp/doc.json"
	slow_disk
	for rank in 0 1; do
		on_rank $rank "export LD_PRELOAD=$tmp/slow.so SLOW=$tmp/ck"
		run -0 --separate-stderr dlb-run -q --timeout 1 --steps 2 --checkpoint "$tmp/ck$rank" "${digits[@]}" "$tmp/doc.json"
		[ -f "$tmp/ck$rank/step-2/manifest.json" ]
	done
}

# bats test_tags=slow
@test "a disk that takes longer than --timeout for weights, logs and the result: the others wait" {
	plan cpu:2 digits_cnn 24 --replicas 2 >"$tmp/doc.json"
	slow_disk
	mkdir "$tmp/slow"
	on_rank 0 "export LD_PRELOAD=$tmp/slow.so SLOW=$tmp/slow"
	train=(dlb-run -q --timeout 1 --steps 4 "${digits[@]}")
	for file in w.safetensors w.onnx; do
		run -0 --separate-stderr "${train[@]}" --save "$tmp/slow/$file" "$tmp/doc.json"
		[ -s "$tmp/slow/$file" ]
	done
	run -0 --separate-stderr "${train[@]}" --test-data digits:test --eval-every 2 --save-best "$tmp/slow/best.safetensors" "$tmp/doc.json"
	[ -s "$tmp/slow/best.safetensors" ]
	for log in loss-log step-log; do	# every line takes longer, and in the end the file
		run -0 --separate-stderr "${train[@]}" --$log "$tmp/slow/$log" "$tmp/doc.json"
		[ "$(wc -l <"$tmp/slow/$log")" -eq 4 ]
	done
	# a checkpoint comes after the lines of its steps
	run -0 --separate-stderr "${train[@]}" --loss-log "$tmp/slow/lines" --checkpoint "$tmp/ck" --checkpoint-every 2 "$tmp/doc.json"
	run -0 --separate-stderr "${train[@]}" --loss-log "$tmp/slow/lines" --checkpoint "$tmp/ck" "$tmp/doc.json"
	[ "$(wc -l <"$tmp/slow/lines")" -eq 8 ]
	on_rank 0 "export LD_PRELOAD=$tmp/slow.so SLOW=/out.json"
	run -0 --separate-stderr "${train[@]}" "$tmp/doc.json"
	jq -e '.report.steps == 4' <<<"$output"
}

# bats test_tags=slow
@test "a disk that takes longer than --timeout for what a run starts from: the others wait" {
	mkdir "$tmp/slow"
	cp "$models/digits_cnn.onnx" "$tmp/slow/m.onnx"
	gzip -dc "$root/share/data/digits/images-idx3-ubyte.gz" >"$tmp/slow/x"
	gzip -dc "$root/share/data/digits/labels-idx1-ubyte.gz" >"$tmp/slow/y"
	dlb-profile --analytic --batch 24 "$tmp/slow/m.onnx" | dlb-costmodel -c cpu:2 | dlb-place --replicas 2 >"$tmp/doc.json"
	slow_disk
	train=(dlb-run -q --timeout 1 --steps 2 --order sequential "$tmp/doc.json")
	data=(--data "idx:$tmp/slow/x,$tmp/slow/y" --transform scale=1/16)
	"${train[@]}" "${data[@]}" --checkpoint "$tmp/ck" --optimizer momentum --loss-log "$tmp/log" --step-log "$tmp/steps" >"$tmp/first.json"
	for rank in 0 1; do
		on_rank $rank "export LD_PRELOAD=$tmp/slow.so SLOW=$tmp/slow"
		run -0 --separate-stderr "${train[@]}" --data random
		run -0 --separate-stderr "${train[@]}" "${data[@]}" --test-data "idx:$tmp/slow/x,$tmp/slow/y"
		for file in ck log steps; do
			chosen || continue
			rm -rf "$tmp/again" && mkdir "$tmp/again" && cp -r "$tmp/ck" "$tmp/log" "$tmp/steps" "$tmp/again"
			on_rank $rank "export LD_PRELOAD=$tmp/slow.so SLOW=$tmp/again/$file"
			run -0 --separate-stderr "${train[@]}" "${data[@]}" --checkpoint "$tmp/again/ck" --optimizer momentum --loss-log "$tmp/again/log" \
				--step-log "$tmp/again/steps"
			[ "$(wc -l <"$tmp/again/log")" -eq 4 ]
			[ "$(wc -l <"$tmp/again/steps")" -eq 4 ]
		done
	done
}
