/* Sums of ranks under mpiexec, for test_allreduce.c and test_sums.c, which start themselves. */
#ifndef DLB_TEST_ALLREDUCE_H
#define DLB_TEST_ALLREDUCE_H
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "comm/allreduce.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/rng.h"
#include "check.h"

struct kind {
	enum dlb_dtype dtype;
	enum dlb_wire wire;
};
static const struct kind kinds[] = { { DLB_F32, DLB_WIRE_PLAIN },
				     { DLB_F64, DLB_WIRE_PLAIN },
				     { DLB_F32, DLB_WIRE_BF16 } };

/* Element i of a rank's array; whole: small integers whose sums are exact in any type. */
static double value(int rank, int64_t i, bool whole)
{
	int64_t v = (i * 37 + rank * 101) % 1009 - 500;

	return whole ? (double)(v % 30) : (double)v / 7.0;
}

/* Tolerance of the sum of `n` values below 72: one rounding per hop. */
static double tolerance(const struct kind *kind, bool whole, int n)
{
	double unit = kind->wire == DLB_WIRE_BF16 ? 0x1p-9 : kind->dtype == DLB_F64 ? 0x1p-53 : 0x1p-24;

	return whole ? 0 : (n + 1) * unit * 72 * n;
}

static void check_sum(const struct dlb_collective_desc *d, const struct kind *kind, bool whole)
{
	int n = d->ranks.n;

	for (int64_t i = 0; i < d->n; i++) {
		double want = 0, got = dlb_value_real(d->x, d->dtype, i);

		for (int m = 0; m < n; m++)
			want += value(d->ranks.rank ? d->ranks.rank[m] : m, i, whole);
		assert(IS(fabs(got - want), <=, tolerance(kind, whole, n)));
	}
}

/* Ranks whose arrays are in shared memory. */
enum seen { NONE, ALL, EVEN, N_SEEN };

static void *array(struct dlb_comm *c, size_t bytes, enum seen seen)
{
	bool shared = seen == ALL || (seen == EVEN && dlb_comm_rank(c) % 2 == 0);
	void *x = shared ? dlb_comm_alloc(c, bytes) : NULL;

	assert(!shared || dlb_comm_local_size(c) == 1 || (x && dlb_comm_shares(c, x, bytes)));
	return x ? x : dlb_xcalloc(1, bytes);
}

static void release(struct dlb_comm *c, void *x)
{
	if (dlb_comm_offset(c, x) != SIZE_MAX)
		dlb_comm_release(c, x);
	else
		free(x);
}

/* Sums twice: right results, the same bits again and on all members, no access beyond the array. */
static void sum_seen(struct dlb_comm *c, struct dlb_collective_desc d, const struct kind *kind,
		     enum seen seen)
{
	int rank = dlb_comm_rank(c), member = dlb_ranks_member(&d.ranks, rank),
	    root = d.ranks.rank ? d.ranks.rank[0] : 0;
	size_t bytes = dlb_dtype_bytes(kind->dtype), size = (size_t)d.n * bytes;
	char *x = array(c, ((size_t)d.n + 1) * bytes, seen), *first = dlb_xmalloc(size + 1);
	struct dlb_collective *k;
	struct dlb_error err;

	d.x = x;
	d.dtype = kind->dtype;
	d.wire = kind->wire;
	d.tag = 11;
	assert(IS(dlb_collective_new(&k, c, &d, &err), ==, 0));
	for (int round = 0; round < 3; round++) {
		bool whole = round == 2;

		for (int64_t i = 0; i < d.n; i++)
			dlb_value_set(x, d.dtype, i, value(rank, i, whole));
		dlb_value_set(x, d.dtype, d.n, 42);
		dlb_collective_start(k);
		if (round)
			while (!dlb_collective_test(k))
				dlb_sleep_s(20e-6); /* ranks may be more than cores */
		assert(IS(dlb_collective_wait(k, &err), ==, 0));
		assert(IS(dlb_value_real(x, d.dtype, d.n), ==, 42));
		if (member >= 0)
			check_sum(&d, kind, whole);
		for (int64_t i = 0; member < 0 && i < d.n; i++)
			/* unchanged */
			assert(IS(fabs(dlb_value_real(x, d.dtype, i) - value(rank, i, whole)), <=, 1e-5));
		if (round == 1)
			assert(!memcmp(first, x, size));
		memcpy(first, x, size);
		assert(IS(dlb_comm_bcast(c, first, size, root, &err), ==, 0));
		assert(member < 0 || !memcmp(first, x, size));
		memcpy(first, x, size);
	}
	assert(IS(dlb_collective_bytes_sent(k), ==,
		  (member < 0 ? 0 :
				dlb_allreduce_bytes(d.how, &d.ranks, member, d.n, d.at,
						    dlb_wire_bytes(d.wire, d.dtype), NULL))));
	dlb_collective_free(k);
	free(first);
	release(c, x);
}

static void sum(struct dlb_comm *c, struct dlb_collective_desc d, const struct kind *kind)
{
	for (int s = 0; s < N_SEEN; s++)
		sum_seen(c, d, kind, (enum seen)s);
}

/* Many sums without a barrier: each rank writes its next numbers as soon as it has the sum, while others may
 * still be at the sum before. */
static void again(struct dlb_comm *c, const struct dlb_allreduce *how, int64_t n)
{
	float *x = array(c, (size_t)n * sizeof *x, ALL);
	struct dlb_collective *k;
	struct dlb_error err;
	struct dlb_rng rng;
	int size = dlb_comm_size(c), rank = dlb_comm_rank(c);

	assert(dlb_collective_new(&k, c,
				  &(struct dlb_collective_desc){
					  .how = how, .ranks.n = size, .x = x, .n = n, .tag = 12 },
				  &err) == 0);
	dlb_rng_init(&rng, (uint64_t)rank);
	for (int round = 0; round < 100; round++) {
		double until_s = dlb_clock_s() +
				 (dlb_rng_below(&rng, 4) ? 0 : 100e-6 * dlb_rng_uniform(&rng));

		while (dlb_clock_s() < until_s)
			;
		for (int64_t i = 0; i < n; i++)
			x[i] = (float)((i + round) % 1000 + rank);
		dlb_collective_start(k);
		assert(IS(dlb_collective_wait(k, &err), ==, 0));
		for (int64_t i = 0; i < n; i++)
			assert(IS(x[i], ==, (float)(size * ((i + round) % 1000) + size * (size - 1) / 2)));
	}
	dlb_collective_free(k);
	release(c, x);
}

/* Two pairs at the same time, then some ranks in another order; `mpi` does not send bf16. */
static void subsets(struct dlb_comm *c, int64_t n)
{
	static const int even[] = { 2, 0 }, odd[] = { 1, 3 }, three[] = { 3, 0, 2 }, group[] = { 7, 4, 7 };
	int rank = dlb_comm_rank(c);

	if (dlb_comm_size(c) < 4)
		return;
	for (int a = 0; dlb_allreduces[a]; a++)
		for (int t = 0; t < DLB_LEN(kinds) - dlb_allreduces[a]->external; t++) {
			struct dlb_collective_desc d = { .how = dlb_allreduces[a], .n = n };
			double *x = dlb_xcalloc((size_t)n, sizeof *x);
			struct dlb_collective *k;
			struct dlb_error err;

			d.ranks = (struct dlb_ranks){ .n = 2, .rank = rank % 2 ? odd : even };
			d.dtype = kinds[t].dtype;
			d.wire = kinds[t].wire;
			d.x = x;
			for (int64_t i = 0; i < d.n; i++)
				dlb_value_set(x, d.dtype, i, value(rank, i, true));
			assert(IS(dlb_collective_new(&k, c, &d, &err), ==, 0));
			dlb_collective_start(k);
			assert(IS(dlb_collective_wait(k, &err), ==, 0));
			check_sum(&d, &kinds[t], true);
			dlb_collective_free(k);
			free(x);
			d.ranks = (struct dlb_ranks){ .n = 3, .rank = three, .group = group };
			sum(c, d, &kinds[t]);
		}
}

/* Fewer bits: what rounding takes from the sum is kept, once, by the rank that rounds. */
static void lost(struct dlb_comm *c, enum dlb_wire wire, int64_t units)
{
	const int64_t n = units * dlb_wire_unit(wire);
	float *x = dlb_xmalloc((size_t)n * sizeof *x), *rest = dlb_xmalloc((size_t)n * sizeof *rest);
	double *sum = dlb_xmalloc((size_t)n * sizeof *sum);
	struct dlb_collective_desc d = { .ranks.n = dlb_comm_size(c),
					 .dtype = DLB_F32,
					 .wire = wire,
					 .x = x,
					 .n = units,
					 .lost = rest,
					 .tag = 14 };
	struct dlb_error err;

	for (int a = 0; dlb_allreduces[a] && d.ranks.n > 1; a++) {
		struct dlb_collective *k;
		double off = 0;

		if (dlb_allreduces[a]->external)
			continue;
		d.how = dlb_allreduces[a];
		assert(IS(dlb_collective_new(&k, c, &d, &err), ==, 0));
		for (int round = 0; round < 2; round++) {
			for (int64_t i = 0; i < n; i++) {
				x[i] = (float)value(dlb_comm_rank(c), i + round, false);
				rest[i] = 0;
			}
			dlb_collective_start(k);
			assert(IS(dlb_collective_wait(k, &err), ==, 0));
			for (int64_t i = 0; i < n; i++)
				sum[i] = (double)rest[i];
			assert(IS(dlb_comm_allreduce_f64(c, sum, (int)n, DLB_COMM_SUM, &err), ==, 0));
			for (int64_t i = 0; i < n; i++) {
				double want = 0;

				for (int m = 0; m < d.ranks.n; m++)
					want += value(m, i + round, false);
				off = fmax(off, fabs(want - (double)x[i]));
				assert(IS(fabs((double)x[i] + sum[i] - want), <=, 72 * 0x1p-20));
			}
		}
		assert(IS(off, >, 0.01)); /* something was lost */
		dlb_collective_free(k);
	}
	free(x);
	free(rest);
	free(sum);
}

/* bf16 on the wire: results are bf16, NaN and infinities stay on all ranks. */
static void narrow(struct dlb_comm *c)
{
	enum { N = 5000 };
	float *x = dlb_xmalloc(N * sizeof *x);
	struct dlb_collective_desc d = {
		.ranks.n = dlb_comm_size(c), .dtype = DLB_F32, .wire = DLB_WIRE_BF16, .x = x, .n = N
	};
	struct dlb_error err;

	for (int a = 0; dlb_allreduces[a] && d.ranks.n > 1; a++) {
		struct dlb_collective *k;

		d.how = dlb_allreduces[a];
		if (d.how->external) {
			assert(IS(dlb_collective_new(&k, c, &d, &err), ==, -1) && HAS(err.what, "bf16"));
			continue;
		}
		for (int i = 0; i < N; i++)
			x[i] = (float)value(dlb_comm_rank(c), i, false);
		if (dlb_comm_rank(c) == d.ranks.n - 1) {
			uint32_t low = 0x7f800001; /* a NaN whose mantissa has only bits that bf16 drops */

			memcpy(&x[17], &low, sizeof low);
			x[3000] = INFINITY;
		}
		assert(IS(dlb_collective_new(&k, c, &d, &err), ==, 0));
		dlb_collective_start(k);
		assert(IS(dlb_collective_wait(k, &err), ==, 0));
		dlb_collective_free(k);
		for (int i = 0; i < N; i++) {
			uint32_t u;

			memcpy(&u, &x[i], sizeof u);
			assert(!(u & 0xffff) && IS(isnan(x[i]), ==, (i == 17)) &&
			       IS(isinf(x[i]), ==, (i == 3000)));
		}
	}
	free(x);
}

/* Two at a time, each with its own tag, started in another order by odd ranks. */
static void together(struct dlb_comm *c)
{
	enum { N = 200000 };
	float *x[2] = { dlb_xmalloc(N * sizeof(float)), dlb_xmalloc(N * sizeof(float)) };
	struct dlb_collective *k[2];
	struct dlb_error err;
	int rank = dlb_comm_rank(c), size = dlb_comm_size(c);

	for (int b = 0; b < 2; b++) {
		for (int i = 0; i < N; i++)
			x[b][i] = (float)(rank + b);
		const struct dlb_collective_desc d = {
			.how = &dlb_allreduce_ring, .ranks.n = size, .x = x[b], .n = N, .tag = 20 + b
		};

		assert(IS(dlb_collective_new(&k[b], c, &d, &err), ==, 0));
	}
	dlb_collective_start(k[rank % 2]);
	dlb_collective_start(k[1 - rank % 2]);
	for (bool done[2] = { false, false }; !done[0] || !done[1];)
		for (int b = 0; b < 2; b++) {
			done[b] = dlb_collective_test(k[b]);
			dlb_sleep_s(20e-6);
		}
	for (int b = 0; b < 2; b++) {
		assert(IS(dlb_collective_wait(k[b], &err), ==, 0));
		for (int i = 0; i < N; i++)
			assert(IS(x[b][i], ==, (float)(size * (size - 1) / 2 + b * size)));
		dlb_collective_free(k[b]);
		free(x[b]);
	}
}

/* The last rank gives other terms, or is lost in the middle (none: neither): ranks that notice report it and
 * abort as dlb-run does. */
static int odd_one(const char *how, const char *what)
{
	enum { N = 3 << 16 };
	static const int64_t other[] = { 0, 1, 2, 3, N };
	struct dlb_collective_desc d = {
		.how = dlb_allreduce_find(how), .x = dlb_xcalloc(N + 1, sizeof(double)), .n = N, .tag = 3
	};
	struct dlb_collective *k;
	struct dlb_error err = { .what = "" };
	struct dlb_comm *c;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	d.ranks.n = dlb_comm_size(c);
	if (dlb_comm_rank(c) == d.ranks.n - 1) {
		if (!strcmp(what, "less"))
			d.n = N - (1 << 16);
		else if (!strcmp(what, "more"))
			d.n = N + 1;
		else if (!strcmp(what, "type"))
			d.dtype = DLB_F64;
		else if (!strcmp(what, "cuts"))
			d.at = other;
	}
	if (dlb_collective_new(&k, c, &d, &err))
		return 1;
	if (!strcmp(what, "lost") && dlb_comm_rank(c) == d.ranks.n - 1) {
		dlb_collective_start(k);
		dlb_collective_test(k);
		raise(SIGKILL);
	}
	dlb_collective_start(k);
	bool noticed = dlb_collective_wait(k, &err) != 0;
	if (!strcmp(what, "none")) {
		dlb_comm_free(c);
		return noticed;
	}
	if (strcmp(what, "lost") &&
	    strstr(err.what, strcmp(what, "type") ? strcmp(what, "cuts") ? "elements, rank" : "cut" :
						    "type of elements"))
		dlb_comm_abort(c, 42);
	dlb_sleep_s(20); /* ranks that did not notice it are ended from outside */
	return 1;
}

/* Chunks of very different sizes, in a ring and in a ring of leaders. */
static void uneven(struct dlb_comm *c, int64_t unit)
{
	static const int group[] = { 0, 1, 2, 0 };
	const struct dlb_allreduce *const how[] = { &dlb_allreduce_ring, &dlb_allreduce_hierarchical };

	for (int a = 0; a < DLB_LEN(how); a++) {
		const struct dlb_ranks ranks = { .n = dlb_comm_size(c), .group = group };
		int n = how[a]->n_chunks(&ranks);
		int64_t at[5] = { 0 };

		for (int i = 1; i <= n; i++)
			at[i] = (i * i - 1) * unit;
		for (int t = 0; t < DLB_LEN(kinds); t++)
			sum(c,
			    (struct dlb_collective_desc){
				    .how = how[a], .n = at[n], .at = at, .ranks = ranks },
			    &kinds[t]);
	}
}

static int start(const char *self, int n, const char *how, const char *what)
{
	char command[1024];
	int status;

	snprintf(command, sizeof command,
		 "mpiexec -n %d --oversubscribe --bind-to none '%s' %s %s >/dev/null 2>&1", n, self, how,
		 what);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#endif
