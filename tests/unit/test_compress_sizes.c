/* Names, ranks, bytes and memory of compression, restated from their definitions in compress.h, for random
 * gradients and factors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/compress.h"
#include "comm/compressor.h"
#include "util/rng.h"
#include "check.h"

enum { MOST = 6, MOST_RANK = 64 };

static int64_t below(struct dlb_rng *r, int64_t n) { return (int64_t)dlb_rng_below(r, (uint64_t)n); }

/* ---- names ---- */

static void test_names(void)
{
	enum { F32 = DLB_WIRE_PLAIN, B16 = DLB_WIRE_BF16, BLOCKS = DLB_WIRE_BLOCKS };
	static const struct {
		const char *text;
		int how, rank;
		double tolerance;
		int wire, thin, dense;
		bool local;
		int64_t start;
	} rows[] = {
		{ "none", DLB_COMPRESS_NONE, 0, 0, F32, F32, F32, false, 0 },
		{ "bf16", DLB_COMPRESS_BF16, 0, 0, F32, F32, B16, false, 0 },
		{ "cholesky", DLB_COMPRESS_CHOLESKY, 0, 1e-6, B16, BLOCKS, B16, true, -1 },
		{ "cholesky:per-hop", DLB_COMPRESS_PER_HOP, 0, 0, F32, F32, F32, false, 0 },
		{ "cholesky:1", DLB_COMPRESS_CHOLESKY, 1, 0, B16, BLOCKS, B16, true, -1 },
		{ "cholesky:64,start=7", DLB_COMPRESS_CHOLESKY, 64, 0, B16, BLOCKS, B16, true, 7 },
		{ "cholesky:1e-3,error=global", DLB_COMPRESS_CHOLESKY, 0, 1e-3, B16, BLOCKS, B16, false, -1 },
		{ "cholesky:0.25,wire=f32", DLB_COMPRESS_CHOLESKY, 0, 0.25, F32, F32, F32, true, -1 },
		{ "cholesky,wire=bf16", DLB_COMPRESS_CHOLESKY, 0, 1e-6, B16, B16, F32, true, -1 },
		{ "cholesky,wire=f32,wire=blocks", DLB_COMPRESS_CHOLESKY, 0, 1e-6, B16, BLOCKS, B16, true,
		  -1 },
		{ "lowrank:1", DLB_COMPRESS_LOWRANK, 1, 0, B16, B16, F32, false, -1 },
		{ "lowrank:64,wire=f32,error=local,start=123456789012", DLB_COMPRESS_LOWRANK, 64, 0, F32, F32,
		  F32, true, 123456789012 },
	};
	struct dlb_compress_choice c;
	struct dlb_error err;

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		assert(IS(dlb_compress_parse(rows[i].text, &c, &err), ==, 0));
		assert(IS((int)c.how, ==, rows[i].how) && IS(c.rank, ==, rows[i].rank) &&
		       IS(c.tolerance, ==, rows[i].tolerance) && IS((int)c.wire, ==, rows[i].wire) &&
		       IS((int)c.thin_wire, ==, rows[i].thin) && IS((int)c.dense_wire, ==, rows[i].dense) &&
		       IS(c.local_error, ==, rows[i].local) && IS(c.start, ==, rows[i].start) &&
		       IS(c.gradients_dense, ==, false));
	}
}

static void test_refused(void)
{
	static const char *const none[] = { "",
					    "nona",
					    "bf",
					    "bf161",
					    "lowrank:0",
					    "lowrank:65",
					    "lowrank:1:",
					    "lowrank:/1",
					    "cholesky:0",
					    "cholesky:65",
					    "cholesky:1.0",
					    "cholesky:0.0",
					    "cholesky:.5",
					    "cholesky:2e1",
					    "cholesky:1e-3x",
					    "cholesky:0x1p-3",
					    "cholesky:0.1111111111111111111111",
					    "cholesky:0.5e",
					    "lowrank:R",
					    "cholesky:" };
	static const struct {
		const char *text, *what;
	} options[] = {
		{ "none,start=1", "no option 'start=1' of compression 'none'" },
		{ "bf16,wire=f32", "no option 'wire=f32' of compression 'bf16'" },
		{ "lowrank:4,wire=blocks", "no option 'wire=blocks' of compression 'lowrank:R'" },
		{ "cholesky:per-hop,error=local",
		  "no option 'error=local' of compression 'cholesky:per-hop'" },
		{ "cholesky,start=", "no option 'start=' of compression 'cholesky'" },
		{ "cholesky,start=1234567890123",
		  "no option 'start=1234567890123' of compression 'cholesky'" },
		{ "cholesky,wire=f32,", "no option '' of compression 'cholesky'" },
		{ "lowrank:4,error=locals,start=1", "no option 'error=locals' of compression 'lowrank:R'" },
	};
	const struct dlb_compress_choice was = { .how = DLB_COMPRESS_BF16, .rank = 77 };
	struct dlb_error err;

	for (int i = 0; i < (int)(sizeof none / sizeof *none); i++) {
		struct dlb_compress_choice c = was;
		char want[80];

		snprintf(want, sizeof want, "no compression '%s'", none[i]);
		assert(IS(dlb_compress_parse(none[i], &c, &err), ==, -1) && SAME(err.what, want) &&
		       IS(c.rank, ==, 77));
		assert(SAME(err.hint, "none, bf16, cholesky, cholesky:per-hop, cholesky:TOL, 0 < TOL < 1, "
				      "cholesky:R or lowrank:R, R from 1 to 64"));
	}
	for (int i = 0; i < (int)(sizeof options / sizeof *options); i++) {
		struct dlb_compress_choice c = was;

		assert(IS(dlb_compress_parse(options[i].text, &c, &err), ==, -1) &&
		       SAME(err.what, options[i].what) && IS(c.rank, ==, 77));
	}
}

/* The first step that is compressed: a hundredth of the run or step 4; a tenth or step 100. */
static void test_start(void)
{
	static const struct {
		enum dlb_compress how;
		int64_t start, last, want;
	} rows[] = {
		{ DLB_COMPRESS_CHOLESKY, -1, 5000, 50 },     { DLB_COMPRESS_CHOLESKY, -1, 99, 0 },
		{ DLB_COMPRESS_CHOLESKY, -1, INT64_MAX, 4 }, { DLB_COMPRESS_CHOLESKY, 0, 5000, 0 },
		{ DLB_COMPRESS_LOWRANK, -1, 5000, 500 },     { DLB_COMPRESS_LOWRANK, -1, 1010, 101 },
		{ DLB_COMPRESS_LOWRANK, -1, 990, 100 },      { DLB_COMPRESS_LOWRANK, -1, INT64_MAX, 100 },
		{ DLB_COMPRESS_LOWRANK, 3, 5000, 3 },
	};

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_compress_choice c = { .how = rows[i].how, .start = rows[i].start };

		dlb_compress_settle(&c, rows[i].last);
		assert(IS(c.start, ==, rows[i].want));
	}
}

/* ---- sizes ---- */

/* Bytes of n numbers: 4 each, 2 each, or blocks of 64 with a scale of 2 bytes and half a byte each. */
static int64_t bytes_of(enum dlb_wire wire, int64_t n)
{
	return wire == DLB_WIRE_PLAIN ? 4 * n : wire == DLB_WIRE_BF16 ? 2 * n : (n + 63) / 64 * 34;
}

/* Numbers that this many bytes hold. */
static int64_t room(enum dlb_wire wire, int64_t n)
{
	return wire == DLB_WIRE_BLOCKS ? (n + 63) / 64 * 64 : n;
}

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* The shorter side of a matrix is P's with cholesky; with lowrank it is the rows. */
static int64_t p_side(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	return c->how == DLB_COMPRESS_CHOLESKY ? lesser(a->rows, a->cols) : a->rows;
}

static int64_t q_side(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	return a->rows * a->cols / p_side(c, a);
}

static int64_t both_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int64_t r)
{
	return bytes_of(c->thin_wire, r * p_side(c, a)) + bytes_of(c->thin_wire, r * q_side(c, a));
}

static enum dlb_wire dense_wire(const struct dlb_compress_choice *c)
{
	return c->how == DLB_COMPRESS_CHOLESKY && c->gradients_dense ? DLB_WIRE_PLAIN : c->dense_wire;
}

static int plain_rank(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);

/* The greatest rank with which all gradients take at most 1/24.8 of their bytes; at least 1. */
static int plain_budget(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int n)
{
	int best = 1;

	for (int r = 2; r <= MOST_RANK; r++) {
		struct dlb_compress_choice with = *c;
		int64_t sent = 0, floats = 0;

		with.rank = r;
		for (int i = 0; i < n; i++) {
			const int own = plain_rank(&with, &a[i]);

			sent += own ? both_bytes(c, &a[i], own) :
				      bytes_of(dense_wire(c), a[i].rows * a[i].cols);
			floats += 4 * a[i].rows * a[i].cols;
		}
		best = 24.8 * (double)sent <= (double)floats ? r : best;
	}
	return best;
}

/* The greatest rank up to the limit, below both sides, that saves half of the bytes; lowrank: that rank or
 * none. */
static int plain_rank(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	const int64_t sides = lesser(a->rows, a->cols), floats = 4 * a->rows * a->cols;
	int best = 0;

	if (a->factor || (c->how != DLB_COMPRESS_LOWRANK && c->how != DLB_COMPRESS_CHOLESKY) ||
	    (c->how == DLB_COMPRESS_CHOLESKY && c->gradients_dense))
		return 0;
	if (c->how == DLB_COMPRESS_LOWRANK)
		return c->rank < sides && 2 * both_bytes(c, a, c->rank) <= floats ? c->rank : 0;
	const int64_t limit = c->rank ? c->rank : plain_budget(c, a, 1);
	for (int r = 1; r <= lesser(limit, sides - 1); r++)
		best = 2 * both_bytes(c, a, r) <= floats ? r : best;
	return best;
}

static double plain_memory(const struct dlb_compress_choice *c, int n_ranks, const struct dlb_sum_tensor *a,
			   int n)
{
	int64_t words = 2 * 2 * n_ranks, work = 0, transposed = 0, folded = 0, triangle = 0, matrix = 0;

	for (int i = 0; i < n; i++) {
		const int64_t all = a[i].rows * a[i].cols, r = plain_rank(c, &a[i]), p = p_side(c, &a[i]),
			      q = q_side(c, &a[i]), t = a[i].rows * (a[i].rows + 1) / 2;
		const enum dlb_wire w = c->thin_wire;

		if (r) {
			words += all + (c->start ? all : 0); /* residual, dense at first */
			words += (c->local_error ? 3 : 2) * r * ((q + 15) / 16 * 16); /* bases, own Q */
			words += 2 * room(w, r * p) + 2 * room(w, r * q); /* and fusion buffers */
			words += w == DLB_WIRE_BLOCKS ? r * p : 0; /* P by column */
			words += c->local_error && w != DLB_WIRE_PLAIN ? room(w, r * q) : 0; /* lost */
			work = greater(work, r * (c->how == DLB_COMPRESS_CHOLESKY ? greater(p, q) : p));
			if (c->how == DLB_COMPRESS_CHOLESKY && a[i].rows > a[i].cols)
				transposed = greater(transposed,
						     r * (a[i].rows + (a[i].cols + 15) / 16 * 16));
			folded = greater(folded, a[i].middle ? all : 0);
		} else if (a[i].factor && c->how == DLB_COMPRESS_CHOLESKY) {
			words += all + t + 1 + (c->wire == DLB_WIRE_BF16 ? (t + 1) / 2 : t);
			triangle = greater(triangle, t);
		} else if (a[i].factor && c->how == DLB_COMPRESS_PER_HOP) {
			words += all + 3 * t + 2;
			triangle = greater(triangle, t);
			matrix = greater(matrix, all);
		} else {
			words += all;
		}
	}
	return 4.0 * (double)(words + transposed + folded + 2 * triangle + matrix) + 8.0 * (double)work;
}

/* Owners of factors, largest first: each to the least loaded one. */
static void plain_owners(const struct dlb_sum_tensor *a, int n, int n_owners, int *owner)
{
	int64_t load[16] = { 0 }, key[MOST];

	for (int i = 0; i < n; i++) {
		owner[i] = -1;
		key[i] = a[i].factor ? a[i].rows * 1000 + 999 - a[i].id : -1;
	}
	for (int turn = 0; turn < n; turn++) {
		int i = 0, o = 0;

		for (int k = 1; k < n; k++)
			i = key[k] > key[i] ? k : i;
		for (int k = 1; k < n_owners; k++)
			o = load[k] < load[o] ? k : o;
		if (key[i] < 0)
			return;
		owner[i] = o;
		load[o] += a[i].rows * a[i].rows;
		key[i] = -1;
	}
}

/* Bytes of one half of a ring whose chunk of each owner is as long as that owner's factors. */
static double half(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member,
		   const int64_t *bytes, const int *owner, int n)
{
	int64_t at[17] = { 0 };

	for (int o = 0; o < r->n; o++) {
		at[o + 1] = at[o];
		for (int i = 0; i < n; i++)
			at[o + 1] += owner[i] == o ? bytes[i] : 0;
	}
	return (double)dlb_allreduce_bytes(how, r, member, at[r->n], at, 1, NULL);
}

static void check_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int n,
			int n_ranks)
{
	const struct dlb_allreduce *how = &dlb_allreduce_ring;
	const struct dlb_ranks r = { .n = n_ranks };
	int64_t there[MOST] = { 0 }, back[MOST] = { 0 };
	int owner[MOST], got[MOST];

	plain_owners(a, n, n_ranks, owner);
	dlb_factor_owners(a, n, n_ranks, got);
	assert(!memcmp(owner, got, (size_t)n * sizeof *owner));
	for (int i = 0; i < n; i++) {
		const int64_t t = a[i].rows * (a[i].rows + 1) / 2;
		const bool hop = c->how == DLB_COMPRESS_PER_HOP;

		there[i] = hop ? 4 * t + 4 : 4 * t;
		back[i] = hop ? 4 * t + 4 : 4 + 4 * (c->wire == DLB_WIRE_BF16 ? (t + 1) / 2 : t);
	}
	for (int m = 0; m < n_ranks; m++) {
		const struct dlb_traffic_bytes b = dlb_compress_bytes(c, how, &r, m, a, n);
		double sent[DLB_N_TRAFFIC] = { 0 }, dense[DLB_N_TRAFFIC] = { 0 };
		bool triangles = c->how == DLB_COMPRESS_CHOLESKY || c->how == DLB_COMPRESS_PER_HOP;

		for (int i = 0; i < n; i++) {
			const int64_t all = a[i].rows * a[i].cols, rank = plain_rank(c, &a[i]),
				      few = c->how == DLB_COMPRESS_LOWRANK ? c->rank : 4;
			const int class = a[i].factor ? DLB_TRAFFIC_FACTOR :
					  rank || all >= 2 * few * (a[i].rows + a[i].cols) ?
							DLB_TRAFFIC_GRADIENT :
							DLB_TRAFFIC_SMALL;
			const int64_t unit = c->thin_wire == DLB_WIRE_BLOCKS ? 34 : bytes_of(c->thin_wire, 1),
				      side[2] = { rank * p_side(c, &a[i]), rank * q_side(c, &a[i]) };

			assert(IS((int)dlb_traffic_class_of(c, &a[i]), ==, class));
			dense[class] += (double)dlb_allreduce_bytes(how, &r, m, all, NULL, 4, NULL);
			for (int k = 0; rank && k < 2; k++)
				sent[class] += (double)dlb_allreduce_bytes(how, &r, m,
									   bytes_of(c->thin_wire, side[k]) /
										   unit,
									   NULL, (size_t)unit, NULL);
			if (!rank && !(a[i].factor && triangles))
				sent[class] += (double)dlb_allreduce_bytes(how, &r, m, all, NULL,
									   (size_t)bytes_of(dense_wire(c), 1),
									   NULL);
		}
		if (triangles)
			sent[DLB_TRAFFIC_FACTOR] += half(&dlb_ring_scatter, &r, m, there, owner, n) +
						    half(&dlb_ring_gather, &r, m, back, owner, n);
		for (int k = 0; k < DLB_N_TRAFFIC; k++)
			assert(IS(b.sent[k], ==, sent[k]) && IS(b.dense[k], ==, dense[k]));
		assert(IS(dlb_compress_flag_bytes(how, &r, m), ==,
			  (double)dlb_allreduce_bytes(how, &r, m, 2 * n_ranks, NULL, 4, NULL)));
	}
}

static void check_arrays(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int n,
			 int n_ranks)
{
	struct dlb_compress_array out[DLB_COMPRESS_ARRAYS];
	const struct dlb_compress_volume v = dlb_compress_volume_of(c, a, n);
	const bool exact = dense_wire(c) == DLB_WIRE_PLAIN, thin = c->thin_wire != DLB_WIRE_PLAIN;
	int64_t dense = 0, p = 0, q = 0, first = 0;

	for (int i = 0; i < n; i++) {
		const int64_t r = plain_rank(c, &a[i]), all = a[i].rows * a[i].cols;

		dense += r ? 0 : bytes_of(dense_wire(c), all);
		p += bytes_of(c->thin_wire, r * p_side(c, &a[i]));
		q += bytes_of(c->thin_wire, r * q_side(c, &a[i]));
		first += r && c->start ? 4 * all : 0;
	}
	assert(IS(v.dense, ==, dense) && IS(v.p, ==, p) && IS(v.q, ==, q) && IS(v.first, ==, first));
	dlb_compress_arrays(c, n_ranks, a, n, out);
	assert(IS(out[0].bytes, ==, dense + (exact ? 8 * n_ranks : 0)) && IS(out[0].converted, ==, !exact));
	assert(IS(out[1].bytes, ==, exact ? 0 : 8 * n_ranks) && !out[1].converted);
	assert(IS(out[2].bytes, ==, first) && !out[2].converted);
	assert(IS(out[3].bytes, ==, p) && IS(out[3].converted, ==, thin));
	assert(IS(out[4].bytes, ==, q) && IS(out[4].converted, ==, thin));
}

static void test_sizes(void)
{
	static const char *const names[] = { "none", "bf16", "cholesky:per-hop" };
	static const char *const how[] = { "cholesky", "cholesky:%d", "lowrank:%d" };
	static const char *const options[] = { "", ",wire=f32", ",wire=bf16", ",error=local",
					       ",error=global" };
	struct dlb_rng r;
	int low = 0, factors = 0, transposed = 0;

	dlb_rng_init(&r, 3);
	for (int round = 0; round < 3000; round++) {
		struct dlb_sum_tensor a[MOST];
		struct dlb_compress_choice c;
		struct dlb_error err;
		char text[60];
		const int n = 1 + (int)below(&r, MOST), n_ranks = 1 + (int)below(&r, 6);

		if (below(&r, 5)) {
			snprintf(text, sizeof text, how[below(&r, 3)],
				 1 + (int)below(&r, below(&r, 3) ? 6 : 64));
			strcat(text, options[below(&r, 5)]);
		} else {
			strcpy(text, names[below(&r, 3)]);
		}
		assert(IS(dlb_compress_parse(text, &c, &err), ==, 0));
		c.start = below(&r, 2) * 5;
		c.gradients_dense = c.how == DLB_COMPRESS_CHOLESKY && !below(&r, 4);
		for (int i = 0; i < n; i++) {
			const int64_t most = below(&r, 3) ? 90 : 600;

			a[i] = (struct dlb_sum_tensor){ .rows = 1 + below(&r, most),
							.cols = 1 + below(&r, most),
							.id = (int)((i * 7 + round) % 100) };
			if (!below(&r, 3)) {
				a[i].factor = true;
				a[i].rows = a[i].cols = 1 + below(&r, 20);
			} else {
				a[i].middle = a[i].lead = below(&r, 3) == 0;
			}
		}
		for (int i = 0; i < n; i++) {
			const int rank = plain_rank(&c, &a[i]);
			const int64_t p = p_side(&c, &a[i]), q = q_side(&c, &a[i]);

			assert(IS(dlb_compress_rank(&c, &a[i]), ==, rank));
			assert(IS(dlb_compress_p_bytes(&c, &a[i], 3), ==, bytes_of(c.thin_wire, 3 * p)) &&
			       IS(dlb_compress_q_bytes(&c, &a[i], 5), ==, bytes_of(c.thin_wire, 5 * q)));
			low += rank > 0;
			factors += a[i].factor;
			transposed += rank > 0 && dlb_compress_transposed(&c, &a[i]);
		}
		if (c.how == DLB_COMPRESS_CHOLESKY)
			assert(IS(dlb_compress_budget(&c, a, n), ==, plain_budget(&c, a, n)));
		assert(IS(dlb_compress_memory_bytes(&c, n_ranks, a, n), ==, plain_memory(&c, n_ranks, a, n)));
		check_arrays(&c, a, n, n_ranks);
		check_bytes(&c, a, n, n_ranks);
	}
	assert(IS(low, >, 1000) && IS(factors, >, 1000) && IS(transposed, >, 200));
}

int main(void)
{
	test_names();
	test_refused();
	test_start();
	test_sizes();
	puts("compression: names, ranks, bytes, memory");
	return 0;
}
