/* Compression: its names, and sums under mpiexec with 1 to 4 ranks: right results, the same bits on all
 * ranks, bytes as predicted, every failure of one rank known to all. test_bases.c, test_lowrank.c and
 * test_triangles.c test the mathematics, test_compress_sizes.c sizes. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "comm/cholesky.h"
#include "comm/compress.h"
#include "check.h"
#include "random_matrix.h"
#include "tensor/spd.h"
#include "util/mem.h"

static long n_checks;

/* ---- names ---- */

static void names(void)
{
	static const char *const bad[] = { "",
					   "lowrank",
					   "lowrank:",
					   "lowrank:0",
					   "lowrank:65",
					   "lowrank:4x",
					   "lowrank:-1",
					   "lowrank:99999999999999",
					   "chol",
					   "none,start=1",
					   "lowrank:4,start=",
					   "lowrank:4,wire=fp16",
					   "bf16,wire=f32",
					   "lowrank:4,",
					   "cholesky:hop" };
	struct dlb_compress_choice c;
	struct dlb_error err;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert(IS(dlb_compress_parse(bad[i], &c, &err), ==, -1) && err.what[0] && err.hint[0] &&
		       !strchr(err.what, '\n'));
	assert(!dlb_compress_parse(NULL, &c, &err) && IS(c.how, ==, DLB_COMPRESS_NONE));
	for (int i = 0; i < DLB_COMPRESS_LOWRANK; i++)
		assert(!dlb_compress_parse(dlb_compress_names[i].name, &c, &err) && IS((int)c.how, ==, i) &&
		       dlb_compress_names[i].summary);
	assert(!dlb_compress_parse("lowrank:8", &c, &err) && IS(c.how, ==, DLB_COMPRESS_LOWRANK) &&
	       IS(c.rank, ==, 8) && IS(c.start, ==, -1) && IS(c.wire, ==, DLB_WIRE_BF16));
	dlb_compress_settle(&c, 5000);
	assert(IS(c.start, ==, 500));
	dlb_compress_settle(&c, 50);
	assert(IS(c.start, ==, 500));
	assert(!dlb_compress_parse("lowrank:64,wire=f32,start=0,error=local", &c, &err) &&
	       IS(c.rank, ==, 64) && !c.start && IS(c.wire, ==, DLB_WIRE_PLAIN) && c.local_error);
	n_checks += 8;
}

/* ---- on ranks ---- */

enum { N_TENSORS = 8 };
static const struct { int rows, cols; bool factor; } shape[N_TENSORS] = {
	{ 96, 64, false }, { 40, 150, false }, { 7, 1, false }, { 1, 333, false }, { 10, 10, false },
	{ 64, 64, true }, { 33, 33, true }, { 1, 1, true },
};
static const char *const tensor_names[N_TENSORS] = { "w0", "w1", "b0", "b1", "w2", "f0", "f1", "f2" };

/* The tensors of a rank at a step: gradients of low rank with some noise, positive definite factors. */
static void give(float *const *x, int rank, int64_t step)
{
	struct dlb_rng rng;

	dlb_rng_init(&rng, (uint64_t)(rank * 1000 + step));
	for (int i = 0; i < N_TENSORS; i++) {
		int n = shape[i].rows, m = shape[i].cols;

		if (shape[i].factor) {
			spd(&rng, x[i], n, 0.5);
			continue;
		}
		for (int r = 0; r < n; r++)
			for (int c = 0; c < m; c++)
				x[i][r * m + c] = (float)(sin(r * 0.1 + i) * cos(c * 0.05) +
							  0.3 * (rank + 1) * cos(r * 0.3) * sin(c * 0.2 + i) +
							  0.01 * normal(&rng));
	}
}

static void dense_sum(double **want, float *const *x, int size, int64_t step)
{
	for (int i = 0; i < N_TENSORS; i++)
		memset(want[i], 0, (size_t)(shape[i].rows * shape[i].cols) * sizeof **want);
	for (int r = 0; r < size; r++) {
		give(x, r, step);
		for (int i = 0; i < N_TENSORS; i++)
			for (int j = 0; j < shape[i].rows * shape[i].cols; j++)
				want[i][j] += (double)x[i][j];
	}
}

static double distance(const float *x, const double *want, int n)
{
	double d = 0, all = 0;

	for (int j = 0; j < n; j++) {
		d += ((double)x[j] - want[j]) * ((double)x[j] - want[j]);
		all += want[j] * want[j];
	}
	return sqrt(d / (all > 0 ? all : 1));
}

static void same_everywhere(struct dlb_comm *c, const void *p, size_t bytes)
{
	char *first = dlb_xmalloc(bytes + 1);
	struct dlb_error err;

	memcpy(first, p, bytes);
	assert(IS(dlb_comm_bcast(c, first, bytes, 0, &err), ==, 0));
	assert(!memcmp(first, p, bytes));
	free(first);
}

static int64_t state_bytes(struct dlb_compress_state *k, char *to)
{
	struct dlb_local_tensor s;
	int64_t n = 0;

	for (int i = 0; dlb_compress_state_tensor(k, i, &s); i++) {
		if (to)
			memcpy(to + n, s.p, (size_t)s.n * sizeof(float));
		n += s.n * (int64_t)sizeof(float);
	}
	return n;
}

struct trial {
	struct dlb_comm *c;
	struct dlb_compressor *k;
	struct dlb_compress_state *state;
	struct dlb_sum_tensor tensor[N_TENSORS];
	float *x[N_TENSORS];
	double *want[N_TENSORS];
	struct dlb_compress_choice choice;
	const struct dlb_allreduce *how;
	int rank, size;
};

enum { AS_FACTOR = 6 };			/* returned as L */

/* Restores the sum from L in x. */
static void multiply_out(struct trial *t)
{
	const int n = shape[AS_FACTOR].rows;
	float *l = dlb_xmalloc((size_t)dlb_rfp_count(n) * sizeof *l), *x = t->x[AS_FACTOR];

	same_everywhere(t->c, x, (size_t)dlb_rfp_count(n) * sizeof *x);
	memcpy(l, x, (size_t)dlb_rfp_count(n) * sizeof *l);
	dlb_rfp_restore(n, l, x);
	for (int i = 0; i < n; i++)
		x[i * n + i] -= (float)t->tensor[AS_FACTOR].damping;
	free(l);
}

static void run(struct trial *t, int64_t step)
{
	const struct dlb_verdict *v = dlb_compressor_verdict(t->k);
	struct dlb_error err;

	dlb_compressor_start(t->k, step);
	if (step % 2 && t->choice.how != DLB_COMPRESS_PER_HOP)
		while (!dlb_compressor_test(t->k))
			;
	assert(IS(dlb_compressor_wait(t->k, &err), ==, 0));
	assert(IS(dlb_compressor_factored(t->k, AS_FACTOR), ==,
		  (t->choice.how == DLB_COMPRESS_CHOLESKY && t->size > 1 && !v->not_finite &&
		   !v->n_asymmetric)));
	assert(!dlb_compressor_factored(t->k, AS_FACTOR - 1));
	if (dlb_compressor_factored(t->k, AS_FACTOR))
		multiply_out(t);
}

/* Tensor `which` of the last rank is not finite: all ranks report it, and the step leaves no trace. */
static void spoilt(struct trial *t, int which, float by)
{
	struct dlb_compress_choice *c = &t->choice;
	const struct dlb_verdict *v = dlb_compressor_verdict(t->k);
	char *before = dlb_xmalloc((size_t)state_bytes(t->state, NULL) + 1),
	     *after = dlb_xmalloc((size_t)state_bytes(t->state, NULL) + 1);
	struct dlb_error err;

	if (t->size < 2)
		goto out;
	state_bytes(t->state, before);
	give(t->x, t->rank, 50);
	if (t->rank == t->size - 1)
		t->x[which][shape[which].rows * shape[which].cols / 2] = by;
	run(t, 50);
	assert(IS(v->not_finite, ==, tensor_names[which]) && IS(v->rank, ==, t->size - 1));
	assert(IS(dlb_verdict_error(v, &err), ==, -1) && HAS(err.what, tensor_names[which]));
	same_everywhere(t->c, err.what, sizeof err.what);
	state_bytes(t->state, after);
	assert(!memcmp(before, after, (size_t)state_bytes(t->state, NULL)));
	/* The next step is as without the failure. */
	give(t->x, t->rank, 51);
	run(t, 51);
	assert(!v->not_finite && IS(dlb_verdict_error(v, &err), ==, 0));
	assert(c->how != DLB_COMPRESS_CHOLESKY || !v->n_not_definite);
out:
	free(before);
	free(after);
}

/* Invalid factors on one rank: all ranks use the same fallback, and the sum is right. */
static void odd_factors(struct trial *t)
{
	const struct dlb_verdict *v = dlb_compressor_verdict(t->k);
	const int f = 5, n = shape[f].rows;

	if (t->size < 2)
		return;
	for (int kind = 0; kind < 2; kind++) {
		dense_sum(t->want, t->x, t->size, 60 + kind);
		give(t->x, t->rank, 60 + kind);
		if (kind == 0) {				/* not symmetric */
			if (t->rank == 0)
				t->x[f][3] += 7;
			t->want[f][3] += 7;
		} else {					/* far from positive definite */
			if (t->rank == 0)
				t->x[f][4 * n + 4] -= 1000;
			t->want[f][4 * n + 4] -= 1000;
		}
		run(t, 60 + kind);
		assert(kind == 0 ? v->n_asymmetric == 1 : v->n_asymmetric == 0 && v->n_not_definite == 1);
		for (int i = f; i < N_TENSORS; i++) {
			int count = shape[i].rows * shape[i].cols;

			assert(IS(distance(t->x[i], t->want[i], count), <=,
				  (kind == 0 || i == f             ? 1e-6 :
				   t->choice.wire == DLB_WIRE_BF16 ? 8e-3 :
								     1e-5)));
			same_everywhere(t->c, t->x[i], (size_t)count * sizeof(float));
		}
	}
}

static void trial(struct dlb_comm *c, const char *name, const struct dlb_allreduce *how)
{
	struct trial t = { .c = c, .how = how, .rank = dlb_comm_rank(c), .size = dlb_comm_size(c) };
	const int group[] = { 0, 1, 0, 1 };
	double sum_want = 0, sum_error = 0;
	double *given[2] = { NULL }, *got[2] = { NULL };
	struct dlb_compressor_desc d = {
		.how = how, .ranks = { .n = t.size, .group = group }, .n_tensors = N_TENSORS, .tag = 40
	};
	struct dlb_error err;

	assert(!dlb_compress_parse(name, &t.choice, &err));
	dlb_compress_settle(&t.choice, 8);
	const bool adapts = t.choice.how == DLB_COMPRESS_CHOLESKY;
	const int64_t start = t.choice.start;
	for (int i = 0; i < N_TENSORS; i++) {
		size_t n = (size_t)(shape[i].rows * shape[i].cols);

		t.x[i] = dlb_xcalloc(n, sizeof(float));
		t.want[i] = dlb_xcalloc(n, sizeof(double));
		t.tensor[i] = (struct dlb_sum_tensor){ .x = t.x[i],
						       .rows = shape[i].rows,
						       .cols = shape[i].cols,
						       .id = 100 + i,
						       .name = tensor_names[i],
						       .factor = shape[i].factor,
						       .damping = 0.01,
						       .as_factor = i == AS_FACTOR };
	}
	for (int i = 0; i < 2; i++) {
		given[i] = dlb_xcalloc((size_t)(shape[i].rows * shape[i].cols), sizeof(double));
		got[i] = dlb_xcalloc((size_t)(shape[i].rows * shape[i].cols), sizeof(double));
	}
	d.choice = t.choice;
	d.tensor = t.tensor;
	d.state = t.state = dlb_compress_state_new();
	assert(IS(dlb_compressor_new(&t.k, c, &d, &err), ==, 0));
	for (int64_t step = 0; step < 8; step++) {
		const struct dlb_traffic *traffic = dlb_compressor_traffic(t.k);

		dense_sum(t.want, t.x, t.size, step);
		give(t.x, t.rank, step);
		run(&t, step);
		assert(!dlb_compressor_verdict(t.k)->not_finite);
		for (int i = 0; i < N_TENSORS; i++) {
			int n = shape[i].rows * shape[i].cols,
			    rank = dlb_compress_rank(&t.choice, &t.tensor[i]);
			double off = distance(t.x[i], t.want[i], n);
			bool triangle = shape[i].factor && (t.choice.how == DLB_COMPRESS_CHOLESKY ||
							    t.choice.how == DLB_COMPRESS_PER_HOP);

			/* rank 1: residuals are sent in bursts */
			assert(t.size == 1           ? off < 1e-7 :
			       rank && step >= start ? off < (rank > 1 ? 0.9 : 10) :
			       (triangle && t.choice.wire == DLB_WIRE_BF16) ||
					       (!triangle && !rank && t.choice.dense_wire == DLB_WIRE_BF16) ?
						       off < 8e-3 :
						       off < 2e-6);
			same_everywhere(c, t.x[i], (size_t)n * sizeof(float));
			for (int j = 0; i < 2 && j < n; j++) {
				given[i][j] += t.want[i][j];
				got[i][j] += (double)t.x[i][j];
			}
		}
		const struct dlb_traffic_bytes predicted =
			dlb_compress_bytes(&t.choice, how, &d.ranks, t.rank, t.tensor, N_TENSORS);
		for (int class = 0; class < DLB_N_TRAFFIC && step >= start && t.size > 1; class++) {
			/* Flags are additional; an adaptive rank may be less than predicted. Per hop,
			 * matrices are not cut into chunks: exact for the ring. */
			double flags = class == DLB_TRAFFIC_SMALL ? 64.0 * t.size : 1;

			assert(IS(traffic->dense_bytes[class], ==, predicted.dense[class]));
			assert((t.choice.how == DLB_COMPRESS_PER_HOP && how != &dlb_allreduce_ring) ||
			       fabs(traffic->bytes[class] - predicted.sent[class]) <=
				       flags + 0.2 * predicted.sent[class] / t.size ||
			       (adapts && class == DLB_TRAFFIC_GRADIENT &&
				traffic->bytes[class] < predicted.sent[class] && traffic->bytes[class] > 0));
		}
	}
	/* Residuals hold exactly the part that was not sent. */
	for (int i = 0; i < 2 && (adapts || t.choice.how == DLB_COMPRESS_LOWRANK) && t.size > 1; i++) {
		int n = shape[i].rows * shape[i].cols;
		struct dlb_local_tensor s;
		double *rest = dlb_xcalloc((size_t)n, sizeof *rest);

		assert(dlb_compress_state_tensor(t.state, (2 + adapts) * i, &s) &&
		       IS(s.name, ==, tensor_names[i]) && s.summed && IS(s.n, ==, n));
		for (int j = 0; j < n; j++)
			rest[j] = (double)((const float *)s.p)[j];
		assert(IS(dlb_comm_allreduce_f64(c, rest, n, DLB_COMM_SUM, &err), ==, 0));
		for (int j = 0; j < n; j++) {
			double lost = given[i][j] - got[i][j] - rest[j];

			sum_want += given[i][j] * given[i][j];
			sum_error += lost * lost;
		}
		assert(IS(sqrt(sum_error / sum_want), <=, 1e-5));
		assert(dlb_compress_state_tensor(t.state, (2 + adapts) * i + 1, &s));
		same_everywhere(c, s.p, (size_t)s.n * sizeof(float));
		/* The gradients' two strong directions are sent: residuals do not grow with the steps. */
		sum_error = 0;
		for (int j = 0; j < n; j++)
			sum_error += rest[j] * rest[j];
		assert(IS(sqrt(sum_error / sum_want), <,
			  (dlb_compress_rank(&t.choice, &t.tensor[i]) > 1 ? 0.05 : 0.6)));
		sum_want = sum_error = 0;
		free(rest);
	}
	spoilt(&t, 0, NAN);
	spoilt(&t, 1, INFINITY);
	spoilt(&t, 2, -INFINITY);
	spoilt(&t, 5, NAN);
	if (t.choice.how == DLB_COMPRESS_CHOLESKY || t.choice.how == DLB_COMPRESS_PER_HOP)
		odd_factors(&t);
	dlb_compressor_free(t.k);
	dlb_compress_state_free(t.state);
	for (int i = 0; i < N_TENSORS; i++) {
		free(t.x[i]);
		free(t.want[i]);
	}
	for (int i = 0; i < 2; i++) {
		free(given[i]);
		free(got[i]);
	}
}

/* A gradient of rank 1 is exact in the first step, up to rounding on the wire, wider than tall and taller
 * than wide. */
static void rank_one(struct dlb_comm *c, const char *name, double most)
{
	static const int size[2][2] = { { 96, 64 }, { 40, 150 } };
	const int n_ranks = dlb_comm_size(c), group[] = { 0, 1, 0, 1 };
	struct dlb_sum_tensor tensor[2];
	struct dlb_compressor_desc d = { .how = &dlb_allreduce_ring,
					 .ranks = { .n = n_ranks, .group = group },
					 .tensor = tensor,
					 .n_tensors = 2,
					 .tag = 40,
					 .state = dlb_compress_state_new() };
	struct dlb_compressor *k;
	double *want[2];
	struct dlb_error err;

	assert(!dlb_compress_parse(name, &d.choice, &err));
	dlb_compress_settle(&d.choice, 8);
	for (int i = 0; i < 2; i++) {
		const int rows = size[i][0], cols = size[i][1];
		float *x = dlb_xcalloc((size_t)(rows * cols), sizeof *x);

		want[i] = dlb_xcalloc((size_t)(rows * cols), sizeof **want);
		for (int r = 0; r < rows; r++)
			for (int j = 0; j < cols; j++) {
				const double one = (1.5 + sin(r * 0.7)) * cos(j * 0.3 + i);

				x[r * cols + j] = (float)((dlb_comm_rank(c) + 1) * one);
				want[i][r * cols + j] = n_ranks * (n_ranks + 1) / 2 * one;
			}
		tensor[i] = (struct dlb_sum_tensor){
			.x = x, .rows = rows, .cols = cols, .id = 100 + i, .name = tensor_names[i]
		};
		assert(IS(dlb_compress_rank(&d.choice, &tensor[i]), >, 0));
	}
	assert(IS(dlb_compressor_new(&k, c, &d, &err), ==, 0));
	dlb_compressor_start(k, 0);
	assert(IS(dlb_compressor_wait(k, &err), ==, 0) && !dlb_compressor_verdict(k)->not_finite);
	for (int i = 0; i < 2; i++) {
		const int n = size[i][0] * size[i][1];

		assert(IS(distance(tensor[i].x, want[i], n), <=, most));
		same_everywhere(c, tensor[i].x, (size_t)n * sizeof(float));
		free(tensor[i].x);
		free(want[i]);
	}
	dlb_compressor_free(k);
	dlb_compress_state_free(d.state);
}

/* Offset of element (row, col) of a's matrix where x lies as a tensor. */
static int64_t folded_at(const struct dlb_sum_tensor *a, int64_t row, int64_t col)
{
	const int64_t inner = a->cols / a->middle, outer = row / a->lead, s = row % a->lead, in = col / inner,
		      t = col % inner;

	return ((outer * a->middle + in) * a->lead + s) * inner + t;
}

/* A tensor whose matrix exchanges two of its dimensions has the sums of that matrix, bit for bit. */
static void folded(struct dlb_comm *c, const char *name)
{
	enum { OUT = 32, IN = 24, SIDE = 3, ROWS = OUT * SIDE, COLS = IN * SIDE };
	const int n_ranks = dlb_comm_size(c), group[] = { 0, 1, 0, 1 };
	struct dlb_sum_tensor tensor[2];
	struct dlb_compressor *k[2];
	struct dlb_compress_state *state[2];
	struct dlb_error err;

	for (int i = 0; i < 2; i++) {
		struct dlb_compressor_desc d = { .how = &dlb_allreduce_ring,
						 .ranks = { .n = n_ranks, .group = group },
						 .tensor = &tensor[i],
						 .n_tensors = 1,
						 .tag = 40,
						 .state = state[i] = dlb_compress_state_new() };

		assert(!dlb_compress_parse(name, &d.choice, &err));
		dlb_compress_settle(&d.choice, 8);
		tensor[i] = (struct dlb_sum_tensor){ .x = dlb_xcalloc(ROWS * COLS, sizeof(float)),
						     .rows = ROWS,
						     .cols = COLS,
						     .middle = i ? IN : 0,
						     .lead = i ? SIDE : 0,
						     .id = 100,
						     .name = tensor_names[0] };
		assert(IS(dlb_compress_rank(&d.choice, &tensor[i]), >, 0));
		assert(IS(dlb_compressor_new(&k[i], c, &d, &err), ==, 0));
	}
	for (int step = 0; step < 5; step++) {
		for (int r = 0; r < ROWS; r++)
			for (int j = 0; j < COLS; j++)
				tensor[0].x[r * COLS + j] = tensor[1].x[folded_at(&tensor[1], r, j)] = (float)
					sin(r * 0.7 + j * j * 0.31 + step + dlb_comm_rank(c));
		for (int i = 0; i < 2; i++) {
			dlb_compressor_start(k[i], step);
			assert(IS(dlb_compressor_wait(k[i], &err), ==, 0) &&
			       !dlb_compressor_verdict(k[i])->not_finite);
		}
		for (int r = 0; r < ROWS; r++)
			for (int j = 0; j < COLS; j++)
				assert(IS(tensor[0].x[r * COLS + j], ==,
					  tensor[1].x[folded_at(&tensor[1], r, j)]));
	}
	for (int i = 0; i < 2; i++) {
		dlb_compressor_free(k[i]);
		dlb_compress_state_free(state[i]);
		free(tensor[i].x);
	}
}

static int rank_main(void)
{
	static const char *const choice[] = {
		"lowrank:2,start=2",
		"cholesky",
		"cholesky:per-hop",
		"none",
		"cholesky,wire=f32",
		"bf16",
		"lowrank:4,start=0,wire=f32",
		"lowrank:3,start=0,error=local",
		"cholesky:1e-6,start=0",
		"cholesky:4,start=0,wire=bf16",
		"cholesky:8,start=2,wire=f32",
		"cholesky:3,start=0,error=local"
	}; /* every fourth: all algorithms */
	static const struct { const char *name; double most;
	} exact[] = {
		{ "cholesky:1,start=0,wire=f32", 1e-6 }, { "cholesky:0.001,start=0,wire=f32", 1e-6 },
		{ "lowrank:1,start=0,wire=f32", 1e-6 },  { "cholesky:1,start=0,wire=bf16", 8e-3 },
		{ "lowrank:1,start=0", 8e-3 },           { "cholesky,start=0", 0.12 },
	}; /* 4 bits: levels at most .28 of the scale apart, for numbers of .66 of it: .28 / sqrt(12) / .66 */
	struct dlb_comm *c;
	struct dlb_error err;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
		rank_one(c, exact[i].name, exact[i].most);
	folded(c, "cholesky,start=0");
	folded(c, "lowrank:3,start=0");
	/* sums of three numbers depend on the order in which chunks go round */
	if (dlb_comm_size(c) < 3)
		folded(c, "cholesky:4,start=2");
	for (size_t i = 0; i < (check_long() ? sizeof choice / sizeof *choice : 3); i++)
		for (int a = 0; dlb_allreduces[a]; a++)
			if (!dlb_allreduces[a]->external &&
			    (i % 4 == 0 || dlb_allreduces[a] == &dlb_allreduce_ring))
				trial(c, choice[i], dlb_allreduces[a]);
	dlb_comm_free(c);
	return 0;
}

/* 1 to 4 ranks; false: no mpiexec. */
static bool ranks(const char *self)
{
	if (!dlb_comm_is_open_mpi() || system("mpiexec --version >/dev/null 2>&1"))
		return false;
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (int n = check_long() ? 1 : 2; n <= (check_long() ? 4 : 3); n++) {
		char command[1024];
		int status;

		snprintf(command, sizeof command,
			 "mpiexec -n %d --oversubscribe --bind-to none '%s' rank >&2", n, self);
		status = system(command);
		assert(WIFEXITED(status) && IS(WEXITSTATUS(status), ==, 0));
		n_checks++;
	}
	return true;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return rank_main();
	names();
	const bool mpi = ranks(argv[0]);
	printf("%ld checks of compression%s\n", n_checks,
	       mpi ? ", with ranks" : "; skipped ranks: no mpiexec of Open MPI");
	return 0;
}
