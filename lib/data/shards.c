/* Deals samples to replicas and exchanges them between epochs: see shards.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/shards.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/rng.h"

enum { DEAL, EXCHANGE, ORDER };			/* purpose of a random generator, part of its key */

struct dlb_shards {
	struct dlb_shards_choice c;
	int64_t count, *share, *last;
	int64_t *start;				/* [n + 1] start of each shard in held */
	int64_t *held, *dealt;			/* [count] samples by shard, at `epoch` and at epoch 0 */
	int64_t epoch;
	bool shuffled;
	uint64_t seed;
	int64_t *scratch;			/* [count] */
};

static void rng_for(const struct dlb_shards *s, int what, int64_t epoch, int shard, struct dlb_rng *r)
{
	uint64_t key[4] = { s->seed, (uint64_t)what + 0x5348415244ull, (uint64_t)epoch, (uint64_t)shard };

	dlb_rng_init(r, dlb_hash_bytes(DLB_HASH_INIT, key, sizeof key));
}

/* The Fisher-Yates shuffle. */
static void shuffle(int64_t *x, int64_t n, struct dlb_rng *r)
{
	for (int64_t i = n - 1; i > 0; i--) {
		int64_t j = (int64_t)dlb_rng_below(r, (uint64_t)i + 1), t = x[i];

		x[i] = x[j];
		x[j] = t;
	}
}

/* Copies between the order by shard and the order of steps (`back`: from steps to shards). Each step takes
 * its share of every shard, shard by shard. */
static void lay_out(const struct dlb_shards *s, int64_t *shards, int64_t *steps, bool back)
{
	int64_t *next = dlb_xmalloc((size_t)s->c.n * sizeof *next), i = 0;

	memcpy(next, s->start, (size_t)s->c.n * sizeof *next);
	while (i < s->count) {
		const int64_t *share = s->count - i >= s->c.batch ? s->share : s->last;

		for (int r = 0; r < s->c.n; r++)
			for (int64_t k = 0; k < share[r]; k++, i++) {
				int64_t *in_shard = &shards[next[r]++];

				*(back ? in_shard : &steps[i]) = *(back ? &steps[i] : in_shard);
			}
	}
	free(next);
}

struct labelled { double label; int64_t sample; };

static int by_label(const void *a, const void *b)
{
	const struct labelled *x = a, *y = b;

	return x->label != y->label ? (x->label > y->label) - (x->label < y->label) :
				      (x->sample > y->sample) - (x->sample < y->sample);
}

static void deal(struct dlb_shards *s, const double *label)
{
	struct dlb_rng r;

	if (s->c.sorted) {
		struct labelled *all = dlb_xmalloc((size_t)s->count * sizeof *all + 1);

		for (int64_t i = 0; i < s->count; i++)
			all[i] = (struct labelled){ label[i], i };
		qsort(all, (size_t)s->count, sizeof *all, by_label);
		for (int64_t i = 0; i < s->count; i++)
			s->dealt[i] = all[i].sample;
		free(all);
		return;
	}
	for (int64_t i = 0; i < s->count; i++)
		s->scratch[i] = i;
	rng_for(s, DEAL, 0, 0, &r);
	if (s->shuffled)
		shuffle(s->scratch, s->count, &r);
	lay_out(s, s->dealt, s->scratch, true);
}

struct dlb_shards *dlb_shards_new(const struct dlb_shards_choice *c, int64_t count, const double *label,
				  bool shuffled, uint64_t seed)
{
	struct dlb_shards *s = dlb_xcalloc(1, sizeof *s);
	size_t n = (size_t)c->n;

	*s = (struct dlb_shards){ .c = *c, .count = count, .shuffled = shuffled, .seed = seed };
	s->share = dlb_xmalloc(n * sizeof *s->share);
	s->last = dlb_xmalloc(n * sizeof *s->last);
	s->start = dlb_xcalloc(n + 1, sizeof *s->start);
	memcpy(s->share, c->share, n * sizeof *s->share);
	memcpy(s->last, c->last, n * sizeof *s->last);
	for (size_t r = 0; r < n; r++)
		s->start[r + 1] = s->start[r] + count / c->batch * c->share[r] +
				  (count % c->batch ? c->last[r] : 0);
	s->held = dlb_xmalloc((size_t)count * sizeof *s->held + 1);
	s->dealt = dlb_xmalloc((size_t)count * sizeof *s->dealt + 1);
	s->scratch = dlb_xmalloc((size_t)count * sizeof *s->scratch + 1);
	deal(s, label);
	memcpy(s->held, s->dealt, (size_t)count * sizeof *s->held);
	return s;
}

void dlb_shards_free(struct dlb_shards *s)
{
	if (!s)
		return;
	free(s->share);
	free(s->last);
	free(s->start);
	free(s->held);
	free(s->dealt);
	free(s->scratch);
	free(s);
}

/* Draws places from every shard and permutes the samples in them. */
static void exchange(struct dlb_shards *s)
{
	int64_t *place = s->scratch, n = 0, *moved;
	struct dlb_rng r;

	rng_for(s, EXCHANGE, s->epoch, 0, &r);
	for (int k = 0; k < s->c.n; k++) {
		int64_t left = s->start[k + 1] - s->start[k],
			wanted = (int64_t)floor(s->c.exchange * (double)left + 0.5);

		for (int64_t i = s->start[k]; wanted > 0; i++, left--) {
			if (wanted < left && dlb_rng_uniform(&r) * (double)left >= (double)wanted)
				continue;
			place[n++] = i;
			wanted--;
		}
	}
	moved = dlb_xmalloc((size_t)n * sizeof *moved + 1);
	for (int64_t i = 0; i < n; i++)
		moved[i] = s->held[place[i]];
	shuffle(moved, n, &r);
	for (int64_t i = 0; i < n; i++)
		s->held[place[i]] = moved[i];
	free(moved);
}

void dlb_shards_order(struct dlb_shards *s, int64_t epoch, int64_t *at)
{
	if (epoch < s->epoch) {
		memcpy(s->held, s->dealt, (size_t)s->count * sizeof *s->held);
		s->epoch = 0;
	}
	for (; s->epoch < epoch; s->epoch++)
		if (s->c.exchange > 0.0)
			exchange(s);
	memcpy(s->scratch, s->held, (size_t)s->count * sizeof *s->held);
	for (int k = 0; k < s->c.n && s->shuffled; k++) {
		struct dlb_rng r;

		rng_for(s, ORDER, epoch, k, &r);
		shuffle(s->scratch + s->start[k], s->start[k + 1] - s->start[k], &r);
	}
	lay_out(s, s->scratch, at, false);
}
