/* Names, options, classes and bytes of compression, without messages. See compress.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/cholesky.h"
#include "comm/compress.h"
#include "comm/compressor.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "tensor/spd.h"
#include "util/mem.h"

const struct dlb_compress_name dlb_compress_names[] = {
	[DLB_COMPRESS_NONE] = { "none", "dense" },
	[DLB_COMPRESS_BF16] = { "bf16", "dense, 16 bits on the wire" },
	[DLB_COMPRESS_CHOLESKY] = { "cholesky", "gradients in a basis found by pivoted Cholesky; K-FAC's "
						"factors as triangles" },
	[DLB_COMPRESS_PER_HOP] = { "cholesky:per-hop",
				   "restored, added and factored at every hop, as first published" },
	[DLB_COMPRESS_LOWRANK] = { "lowrank:R",
				   "gradients as two thin matrices of rank R, with error feedback" },
	{ NULL, NULL },
};
const char *const dlb_traffic_names[DLB_N_TRAFFIC] = { "factor", "gradient", "small" };

enum { USUAL_RANK = 4, USUAL_START = 100, LEAST_RATE = 2 };
/* cholesky without R: a step sends at most 1 / usual_rate of its dense bytes (but at least rank 1). One step
 * in USUAL_SHARE is dense, so a run sends a twentieth: 1/100 + 99/100 / 24.8. If the run's end is unknown,
 * the first FEW_STEPS are dense. */
enum { USUAL_SHARE = 100, FEW_STEPS = 4 };
static const double usual_rate = 24.8, usual_tolerance = 1e-6;

static int bad(const char *text, struct dlb_error *err)
{
	dlb_fail(err, NULL, "no compression '%s'", text);
	return dlb_hint(err,
			"none, bf16, cholesky, cholesky:per-hop, cholesky:TOL, 0 < TOL < 1, cholesky:R or "
			"lowrank:R, R from 1 to %d",
			DLB_MOST_RANK);
}

/* The number in s, n characters, if it consists of `prefix` and digits; else -1. */
static int64_t number_after(const char *s, size_t n, const char *prefix)
{
	size_t skip = strlen(prefix);
	int64_t v = 0;

	if (n <= skip || n > skip + 12 || strncmp(s, prefix, skip))
		return -1;
	for (size_t i = skip; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -1;
		v = v * 10 + (s[i] - '0');
	}
	return v;
}

static bool is(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && !strncmp(s, word, n);
}

static void send_blocks(struct dlb_compress_choice *c)
{
	c->wire = c->dense_wire = DLB_WIRE_BF16;
	c->thin_wire = DLB_WIRE_BLOCKS;
}

static int parse_option(const char *s, size_t n, struct dlb_compress_choice *c, struct dlb_error *err)
{
	const bool low_rank = c->how == DLB_COMPRESS_LOWRANK || c->how == DLB_COMPRESS_CHOLESKY;
	int64_t start = number_after(s, n, "start=");

	if (start >= 0 && low_rank) {
		c->start = start;
	} else if ((is(s, n, "error=local") || is(s, n, "error=global")) && low_rank) {
		c->local_error = is(s, n, "error=local");
	} else if ((is(s, n, "wire=f32") || is(s, n, "wire=bf16")) && low_rank) {
		c->wire = c->thin_wire = is(s, n, "wire=f32") ? DLB_WIRE_PLAIN : DLB_WIRE_BF16;
		c->dense_wire = DLB_WIRE_PLAIN;
	} else if (is(s, n, "wire=blocks") && c->how == DLB_COMPRESS_CHOLESKY) {
		send_blocks(c);
	} else {
		dlb_fail(err, NULL, "no option '%.*s' of compression '%s'", (int)n, s,
			 dlb_compress_names[c->how].name);
		return dlb_hint(err, "start=N, wire=f32|bf16, error=global|local of cholesky and lowrank; "
				     "wire=blocks of cholesky");
	}
	return 0;
}

/* Parses s, n characters, as "cholesky:TOL" or "cholesky:R"; false: neither. */
static bool parse_cholesky(const char *s, size_t n, struct dlb_compress_choice *c)
{
	static const char prefix[] = "cholesky:";
	const size_t skip = sizeof prefix - 1;
	int64_t rank = number_after(s, n, prefix);
	char number[24] = "", *end;

	if (n <= skip || n - skip >= sizeof number || strncmp(s, prefix, skip) || s[skip] < '0' ||
	    s[skip] > '9')
		return false;
	if (rank >= 0) {
		c->rank = (int)rank;
		c->tolerance = 0;
		return rank >= 1 && rank <= DLB_MOST_RANK;
	}
	memcpy(number, s + skip, n - skip);
	if (strspn(number, "0123456789.e-") != n - skip)
		return false;
	c->tolerance = strtod(number, &end);
	return !*end && c->tolerance > 0 && c->tolerance < 1;
}

int dlb_compress_parse(const char *text, struct dlb_compress_choice *out, struct dlb_error *err)
{
	struct dlb_compress_choice c = { .how = DLB_COMPRESS_NONE };
	struct dlb_compress_choice cholesky = {
		.how = DLB_COMPRESS_CHOLESKY, .tolerance = usual_tolerance, .local_error = true, .start = -1
	};
	size_t n;
	int64_t rank;

	send_blocks(&cholesky);
	if (!text)
		text = "none";
	n = strcspn(text, ",");
	rank = number_after(text, n, "lowrank:");
	if (rank >= 1 && rank <= DLB_MOST_RANK) {
		c = (struct dlb_compress_choice){ .how = DLB_COMPRESS_LOWRANK,
						  .rank = (int)rank,
						  .wire = DLB_WIRE_BF16,
						  .thin_wire = DLB_WIRE_BF16,
						  .start = -1 };
	} else if (parse_cholesky(text, n, &cholesky)) {
		c = cholesky;
	} else {
		int i = 0;

		while (i < DLB_COMPRESS_LOWRANK && !is(text, n, dlb_compress_names[i].name))
			i++;
		if (i == DLB_COMPRESS_LOWRANK)
			return bad(text, err);
		c.how = i;
		c.dense_wire = i == DLB_COMPRESS_BF16 ? DLB_WIRE_BF16 : DLB_WIRE_PLAIN;
		c = i == DLB_COMPRESS_CHOLESKY ? cholesky : c;
	}
	for (const char *s = text + n; *s == ','; s += n) {
		n = strcspn(++s, ",");
		if (parse_option(s, n, &c, err))
			return -1;
	}
	*out = c;
	return 0;
}

void dlb_compress_settle(struct dlb_compress_choice *c, int64_t last)
{
	if (c->start >= 0)
		return;
	if (c->how == DLB_COMPRESS_CHOLESKY)
		c->start = last != INT64_MAX ? last / USUAL_SHARE : FEW_STEPS;
	else
		c->start = last != INT64_MAX && last / 10 > USUAL_START ? last / 10 : USUAL_START;
}

bool dlb_compress_transposed(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	return c->how == DLB_COMPRESS_CHOLESKY && a->rows > a->cols;
}

int64_t dlb_compress_p_length(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	return dlb_compress_transposed(c, a) ? a->cols : a->rows;
}

int64_t dlb_compress_q_length(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	return dlb_compress_transposed(c, a) ? a->rows : a->cols;
}

static int64_t wire_bytes_of(enum dlb_wire wire, int64_t n)
{
	return dlb_wire_units(wire, n) * (int64_t)dlb_wire_bytes(wire, DLB_F32);
}

int64_t dlb_compress_p_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int columns)
{
	return wire_bytes_of(c->thin_wire, columns * dlb_compress_p_length(c, a));
}

int64_t dlb_compress_q_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int columns)
{
	return wire_bytes_of(c->thin_wire, columns * dlb_compress_q_length(c, a));
}

enum dlb_wire dlb_compress_dense_wire(const struct dlb_compress_choice *c)
{
	return c->how == DLB_COMPRESS_CHOLESKY && c->gradients_dense ? DLB_WIRE_PLAIN : c->dense_wire;
}

int64_t dlb_compress_dense_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	return wire_bytes_of(dlb_compress_dense_wire(c), a->rows * a->cols);
}

static int64_t low_rank_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a,
			      int columns)
{
	return dlb_compress_p_bytes(c, a, columns) + dlb_compress_q_bytes(c, a, columns);
}

/* Without compression. */
static int64_t float_bytes(const struct dlb_sum_tensor *a)
{
	return a->rows * a->cols * (int64_t)sizeof(float);
}

struct dlb_compress_volume dlb_compress_volume_of(const struct dlb_compress_choice *c,
						  const struct dlb_sum_tensor *a, int n)
{
	struct dlb_compress_volume v = { 0, 0, 0, 0 };

	for (int i = 0; i < n; i++) {
		const int rank = dlb_compress_rank(c, &a[i]);

		v.dense += rank ? 0 : dlb_compress_dense_bytes(c, &a[i]);
		v.p += rank ? dlb_compress_p_bytes(c, &a[i], rank) : 0;
		v.q += rank ? dlb_compress_q_bytes(c, &a[i], rank) : 0;
		v.first += rank && c->start ? float_bytes(&a[i]) : 0;
	}
	return v;
}

int dlb_compress_budget(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int n)
{
	struct dlb_compress_choice with = *c;
	int64_t dense = 0;

	for (int i = 0; i < n; i++)
		dense += float_bytes(&a[i]);
	for (with.rank = DLB_MOST_RANK; with.rank > 1; with.rank--) {
		const struct dlb_compress_volume v = dlb_compress_volume_of(&with, a, n);

		if ((double)(v.dense + v.p + v.q) * usual_rate <= (double)dense)
			break;
	}
	return with.rank;
}

int dlb_compress_rank(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	int64_t least = a->rows < a->cols ? a->rows : a->cols, dense = float_bytes(a), rank = c->rank;

	if (a->factor || !dlb_compress_remembers(c))
		return 0;
	if (c->how == DLB_COMPRESS_CHOLESKY) {
		if (!rank)
			rank = dlb_compress_budget(c, a, 1);
		rank = rank < least ? rank : least - 1;
		rank = rank < DLB_MOST_RANK ? rank : DLB_MOST_RANK;
		while (rank > 0 && dense < LEAST_RATE * low_rank_bytes(c, a, (int)rank))
			rank--;
	}
	return rank < 1 || least <= rank || dense < LEAST_RATE * low_rank_bytes(c, a, (int)rank) ? 0 :
												   (int)rank;
}

bool dlb_compress_remembers(const struct dlb_compress_choice *c)
{
	return c->how == DLB_COMPRESS_LOWRANK || (c->how == DLB_COMPRESS_CHOLESKY && !c->gradients_dense);
}

enum dlb_traffic_class dlb_traffic_class_of(const struct dlb_compress_choice *c,
					    const struct dlb_sum_tensor *a)
{
	int rank = c->how == DLB_COMPRESS_LOWRANK ? c->rank : USUAL_RANK;

	if (a->factor)
		return DLB_TRAFFIC_FACTOR;
	if (dlb_compress_rank(c, a))
		return DLB_TRAFFIC_GRADIENT;
	return a->rows * a->cols < LEAST_RATE * rank * (a->rows + a->cols) ? DLB_TRAFFIC_SMALL :
									     DLB_TRAFFIC_GRADIENT;
}

int64_t dlb_factor_words(const struct dlb_compress_choice *c, int64_t n)
{
	int64_t count = dlb_rfp_count((int)n);

	return 1 + (c->wire == DLB_WIRE_BF16 ? dlb_bf16_words(count) : count);	/* 1: number of retries */
}

/* Takes the largest factor first, and gives each to the owner with the least load so far; ties go to the
 * lower id and the lower owner. Ids break ties, not positions, so that the result does not depend on the
 * order of the list. */
void dlb_factor_owners(const struct dlb_sum_tensor *a, int n, int n_owners, int *owner)
{
	int64_t *load = dlb_xcalloc((size_t)n_owners, sizeof *load);

	for (int i = 0; i < n; i++)
		owner[i] = -1;
	for (;;) {
		int best = -1, least = 0;

		for (int i = 0; i < n; i++)
			if (a[i].factor && owner[i] < 0 &&
			    (best < 0 || a[i].rows > a[best].rows ||
			     (a[i].rows == a[best].rows && a[i].id < a[best].id)))
				best = i;
		if (best < 0)
			break;
		for (int o = 1; o < n_owners; o++)
			if (load[o] < load[least])
				least = o;
		owner[best] = least;
		load[least] += a[best].rows * a[best].rows;
	}
	free(load);
}

/* Bytes that `member` sends of a chunk of `bytes` bytes in the first half of the ring, or in the second
 * (gather). */
static double half_ring(const struct dlb_ranks *r, int member, int chunk, double bytes, bool gather)
{
	int n = r->n;
	/* A member sends all but one of the n chunks: the chunk that it completes, or the last one that it
	 * receives. */
	int kept = gather ? (member + 2) % n : (member + 1) % n;

	return n > 1 && chunk != kept ? bytes : 0;
}

/* Bytes that `member` sends of the sum of n floats. */
static double sum_bytes(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member,
			enum dlb_wire wire, int64_t n)
{
	return (double)dlb_allreduce_bytes(how, r, member, dlb_wire_units(wire, n), NULL,
					   dlb_wire_bytes(wire, DLB_F32), NULL);
}

struct dlb_traffic_bytes dlb_compress_bytes(const struct dlb_compress_choice *c,
					    const struct dlb_allreduce *how, const struct dlb_ranks *r,
					    int member, const struct dlb_sum_tensor *a, int n)
{
	struct dlb_traffic_bytes bytes = { .sent = { 0 } };
	int *owner = dlb_xcalloc((size_t)n + 1, sizeof *owner);

	dlb_factor_owners(a, n, r->n, owner);
	for (int i = 0; i < n; i++) {
		enum dlb_traffic_class t = dlb_traffic_class_of(c, &a[i]);
		int64_t count = a[i].rows * a[i].cols, triangle = 4 * dlb_rfp_count((int)a[i].rows);
		int rank = dlb_compress_rank(c, &a[i]);

		bytes.dense[t] += sum_bytes(how, r, member, DLB_WIRE_PLAIN, count);
		if (rank) {
			bytes.sent[t] += sum_bytes(how, r, member, c->thin_wire,
						   dlb_compress_p_length(c, &a[i]) * rank) +
					 sum_bytes(how, r, member, c->thin_wire,
						   dlb_compress_q_length(c, &a[i]) * rank);
		} else if (a[i].factor && c->how == DLB_COMPRESS_CHOLESKY) {
			bytes.sent[t] += half_ring(r, member, owner[i], (double)triangle, false) +
				    half_ring(r, member, owner[i],
					      4.0 * (double)dlb_factor_words(c, a[i].rows), true);
		} else if (a[i].factor && c->how == DLB_COMPRESS_PER_HOP) {
			bytes.sent[t] += half_ring(r, member, owner[i], (double)triangle + 4, false) +
					 half_ring(r, member, owner[i], (double)triangle + 4, true);
		} else {
			bytes.sent[t] += sum_bytes(how, r, member, dlb_compress_dense_wire(c), count);
		}
	}
	free(owner);
	return bytes;
}

int64_t dlb_compress_work(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int rank)
{
	const int64_t p = dlb_compress_p_length(c, a), q = dlb_compress_q_length(c, a);

	return rank * (c->how == DLB_COMPRESS_CHOLESKY && q > p ? q : p);
}

int64_t dlb_transposed_words(const struct dlb_sum_tensor *a, int rank)
{
	return rank * (a->rows + dlb_skinny_stride(a->cols));
}

/* Floats for a tensor that is sent as P and Q: residual, two bases, P and Q with their fusion buffers, this
 * rank's own Q and its losses if they are kept; and a buffer for the whole tensor if it is dense at first. */
static int64_t low_rank_words(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int rank)
{
	const int64_t bases = rank * dlb_skinny_stride(dlb_compress_q_length(c, a)) *
			      (c->local_error ? 3 : 2),
		      p = rank * dlb_compress_p_length(c, a), q = rank * dlb_compress_q_length(c, a),
		      by_column = dlb_wire_unit(c->thin_wire) > 1 ? p : 0,
		      lost = c->local_error && c->thin_wire != DLB_WIRE_PLAIN ?
				     dlb_wire_room(c->thin_wire, q) :
				     0;

	return a->rows * a->cols * (c->start == 0 ? 1 : 2) + bases + by_column +
	       2 * dlb_wire_room(c->thin_wire, p) + 2 * dlb_wire_room(c->thin_wire, q) + lost;
}

/* Floats of the buffers for a factor: the whole matrix, and its triangles to and from the owner. */
static int64_t factor_words(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a)
{
	int64_t triangle = dlb_rfp_count((int)a->rows);

	return a->rows * a->cols +
	       (c->how == DLB_COMPRESS_PER_HOP ? 3 * triangle + 2 : triangle + dlb_factor_words(c, a->rows));
}

double dlb_compress_memory_bytes(const struct dlb_compress_choice *c, int n_ranks,
				 const struct dlb_sum_tensor *a, int n)
{
	/* flags and their buffer */
	int64_t words = 4 * (int64_t)n_ranks, basis = 0, transposed = 0, triangle = 0, matrix = 0, folded = 0;

	for (int i = 0; i < n; i++) {
		int rank = dlb_compress_rank(c, &a[i]);

		if (rank) {
			words += low_rank_words(c, &a[i], rank);
			int64_t work = dlb_compress_work(c, &a[i], rank),
				both = dlb_compress_transposed(c, &a[i]) ? dlb_transposed_words(&a[i], rank) :
									   0;

			basis = work > basis ? work : basis;
			transposed = both > transposed ? both : transposed;
			if (a[i].middle && a[i].rows * a[i].cols > folded)
				folded = a[i].rows * a[i].cols;
		} else if (a[i].factor &&
			   (c->how == DLB_COMPRESS_CHOLESKY || c->how == DLB_COMPRESS_PER_HOP)) {
			int64_t count = dlb_rfp_count((int)a[i].rows), all = a[i].rows * a[i].cols;

			words += factor_words(c, &a[i]);
			triangle = count > triangle ? count : triangle;
			matrix = all > matrix ? all : matrix;
		} else {
			words += a[i].rows * a[i].cols;
		}
	}
	words += transposed + folded + 2 * triangle + (c->how == DLB_COMPRESS_PER_HOP ? matrix : 0);
	return 4.0 * (double)words + 8.0 * (double)basis;
}

void dlb_compress_arrays(const struct dlb_compress_choice *c, int n_ranks, const struct dlb_sum_tensor *a,
			 int n, struct dlb_compress_array out[DLB_COMPRESS_ARRAYS])
{
	/* flags are sent with the dense gradients, if the wire format of those is exact */
	const bool thin = c->thin_wire != DLB_WIRE_PLAIN,
		   exact = dlb_compress_dense_wire(c) == DLB_WIRE_PLAIN;
	const double flags = 2.0 * n_ranks * (double)sizeof(float);
	const struct dlb_compress_volume v = dlb_compress_volume_of(c, a, n);

	out[0] = (struct dlb_compress_array){ (double)v.dense + (exact ? flags : 0), !exact };
	out[1] = (struct dlb_compress_array){ exact ? 0 : flags, false };
	out[2] = (struct dlb_compress_array){ (double)v.first, false };
	out[3] = (struct dlb_compress_array){ (double)v.p, thin };
	out[4] = (struct dlb_compress_array){ (double)v.q, thin };
}

double dlb_compress_flag_bytes(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member)
{
	return (double)dlb_allreduce_bytes(how, r, member, 2 * r->n, NULL, sizeof(float), NULL);
}
