/* Shards of samples: exchanges neither lose nor duplicate a sample; shards depend on seed and epoch alone. */
#undef NDEBUG
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/shards.h"
#include "util/mem.h"
#include "util/rng.h"
#include "check.h"

struct deal { int n; int64_t batch, share[8], last[8], count; double exchange; bool sorted, shuffled; };

static struct dlb_shards *new_shards(const struct deal *d, const double *label, uint64_t seed)
{
	struct dlb_shards_choice c = { .n = d->n,
				       .batch = d->batch,
				       .share = d->share,
				       .last = d->last,
				       .sorted = d->sorted,
				       .exchange = d->exchange };

	return dlb_shards_new(&c, d->count, label, d->shuffled, seed);
}

/* owner[sample] from the order of an epoch; every sample once. */
static void owners(const struct deal *d, const int64_t *at, int *owner)
{
	int64_t i = 0;

	for (int64_t k = 0; k < d->count; k++)
		owner[k] = -1;
	while (i < d->count) {
		const int64_t *share = d->count - i >= d->batch ? d->share : d->last;

		for (int r = 0; r < d->n; r++)
			for (int64_t k = 0; k < share[r]; k++, i++) {
				assert(IS(at[i], >=, 0) && IS(at[i], <, d->count) && IS(owner[at[i]], <, 0));
				owner[at[i]] = r;
			}
	}
	assert(IS(i, ==, d->count));
}

static struct deal draw(struct dlb_rng *r)
{
	struct deal d = { .n = 1 + (int)dlb_rng_below(r, 6),
			  .exchange = (double)dlb_rng_below(r, 5) / 4.0,
			  .sorted = dlb_rng_below(r, 2),
			  .shuffled = dlb_rng_below(r, 2) };
	int64_t rest;

	for (int k = 0; k < d.n; k++)
		d.batch += d.share[k] = 1 + (int64_t)dlb_rng_below(r, 5);
	rest = (int64_t)dlb_rng_below(r, (uint64_t)d.batch);
	d.count = d.batch * (1 + (int64_t)dlb_rng_below(r, 20)) + rest;
	for (int k = 0; rest > 0; k = (k + 1) % d.n, rest--)
		d.last[k]++;
	return d;
}

static void any_deal(uint64_t seed)
{
	struct dlb_rng r;
	dlb_rng_init(&r, seed);
	struct deal d = draw(&r);
	size_t n = (size_t)d.count;
	double *label = dlb_xcalloc(n, sizeof *label);
	int64_t *at = dlb_xcalloc(n, sizeof *at), *again = dlb_xcalloc(n, sizeof *again);
	int *owner = dlb_xcalloc(n, sizeof *owner), *before = dlb_xcalloc(n, sizeof *before);

	for (size_t i = 0; i < n; i++)
		label[i] = (double)dlb_rng_below(&r, 4);
	struct dlb_shards *s = new_shards(&d, label, seed);
	for (int64_t epoch = 0; epoch < 6; epoch++) {
		int64_t moved = 0;

		dlb_shards_order(s, epoch, at);
		owners(&d, at, owner);
		for (size_t i = 0; i < n; i++)
			moved += epoch > 0 && owner[i] != before[i];
		assert(IS((double)moved, <=, d.exchange * (double)d.count + d.n));
		assert(d.exchange > 0.0 || moved == 0);
		/* a smaller label is not with a later shard */
		for (size_t i = 0; epoch == 0 && d.sorted && i < n; i++)
			for (size_t k = 0; k < n; k++)
				assert(label[i] >= label[k] || owner[i] <= owner[k]);
		memcpy(before, owner, n * sizeof *owner);

		/* as a run that continues from here */
		struct dlb_shards *fresh = new_shards(&d, label, seed);
		dlb_shards_order(fresh, epoch, again);
		assert(!memcmp(at, again, n * sizeof *at));
		dlb_shards_free(fresh);
	}
	dlb_shards_order(s, 2, again);				/* and back */
	struct dlb_shards *fresh = new_shards(&d, label, seed);
	dlb_shards_order(fresh, 2, at);
	assert(!memcmp(at, again, n * sizeof *at));
	dlb_shards_free(fresh);
	dlb_shards_free(s);
	free(label);
	free(at);
	free(again);
	free(owner);
	free(before);
}

/* In sequential order with even shards, every replica gets the same samples as without shards. */
static void plain(void)
{
	struct deal d = { .n = 3, .batch = 7, .share = { 3, 2, 2 }, .last = { 2, 1, 1 }, .count = 7 * 9 + 4 };
	struct dlb_shards *s = new_shards(&d, NULL, 1);
	int64_t at[7 * 9 + 4];

	for (int64_t epoch = 0; epoch < 3; epoch++) {
		dlb_shards_order(s, epoch, at);
		for (int64_t i = 0; i < d.count; i++)
			assert(IS(at[i], ==, i));
	}
	dlb_shards_free(s);
}

/* The requested share is exchanged: of the samples drawn, all but about one in n move to another shard. */
static void shares(void)
{
	struct deal d = {
		.n = 4, .batch = 8, .share = { 2, 2, 2, 2 }, .count = 8000, .shuffled = true, .exchange = 0.25
	};
	struct dlb_shards *s = new_shards(&d, NULL, 5);
	static int64_t at[8000];
	static int owner[8000], before[8000];
	int moved = 0;

	dlb_shards_order(s, 0, at);
	owners(&d, at, before);
	dlb_shards_order(s, 1, at);
	owners(&d, at, owner);
	for (int i = 0; i < 8000; i++)
		moved += owner[i] != before[i];
	assert(IS(fabs(moved - 1500.0), <, 100.0));			/* 8000 * 0.25 * 3/4; sd about 20 */
	dlb_shards_free(s);
}

int main(void)
{
	enum { N = 400 };

	for (uint64_t seed = 1; seed <= N; seed++)
		any_deal(seed);
	plain();
	shares();
	printf("%d deals of samples\n", N);
	return 0;
}
