/* Shards: each replica draws samples from its own shard, and after an epoch a random share of every shard is
 * exchanged. Contents and order depend only on seed and epoch, so a restarted run continues identically and
 * nodes exchange no messages about it. */
#ifndef DLB_DATA_SHARDS_H
#define DLB_DATA_SHARDS_H
#include <stdbool.h>
#include <stdint.h>

struct dlb_shards_choice {
	int n;				/* shards */
	int64_t batch;			/* samples per step; the epoch's last step has count % batch */
	const int64_t *share, *last;	/* [n] samples from each shard in a full step and in the last one */
	bool sorted;			/* dealt sorted by label, else evenly */
	double exchange;		/* share of each shard exchanged after an epoch, 0 to 1 */
};
struct dlb_shards;
/* Returns new. label: [count], read only for a sorted deal. Without `shuffled`, an even deal
 * gives each replica the samples that it would draw without shards, and a shard keeps the
 * order in which it got its samples. */
struct dlb_shards *dlb_shards_new(const struct dlb_shards_choice *c, int64_t count, const double *label,
				  bool shuffled, uint64_t seed);
void dlb_shards_free(struct dlb_shards *s);
/* Writes to at[] the sample at each position of an epoch: a permutation. Epochs may come in any
 * order; the next epoch is cheapest. */
void dlb_shards_order(struct dlb_shards *s, int64_t epoch, int64_t *at);
#endif
