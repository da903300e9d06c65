/* Samples that belong to replicas: each draws from a shard of its own, and after an epoch a random share of every shard
 * changes hands. Who has what, and in which order it comes, is a function of seed and epoch alone, so that a run that was
 * broken off goes on alike and nobody has to tell anybody. */
#ifndef DLB_DATA_SHARDS_H
#define DLB_DATA_SHARDS_H
#include <stdbool.h>
#include <stdint.h>

struct dlb_shards_choice {
	int n;				/* shards */
	int64_t batch;			/* of a step; the epoch's last step has count % batch samples */
	const int64_t *share, *last;	/* [n] of a full step and of the last one, shard by shard in that order */
	bool sorted;			/* dealt by label, else evenly */
	double exchange;		/* share of each that changes hands after an epoch, 0 to 1 */
};
struct dlb_shards;
/* label: [count] of a sorted deal, else not read. Without `shuffled` an even deal gives everybody what it would have
 * drawn without shards, and a shard's order is that in which it got its samples. Returns new. */
struct dlb_shards *dlb_shards_new(const struct dlb_shards_choice *c, int64_t count, const double *label, bool shuffled, uint64_t seed);
void dlb_shards_free(struct dlb_shards *s);
/* The order of an epoch: at[i] for every position, a permutation. Epochs may be asked for in any order; going on is cheap. */
void dlb_shards_order(struct dlb_shards *s, int64_t epoch, int64_t *at);
#endif
