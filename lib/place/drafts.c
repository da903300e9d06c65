/* Known drafts. See drafts.h. */
#include "place/drafts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/problem.h"
#include "plan/schedule.h"
#include "util/hash.h"

uint64_t dlb_draft_key(const struct dlb_problem *p, uint64_t division)
{
	const size_t n = (size_t)p->cluster->n_nodes;
	const int32_t number[] = {
		p->micro_batches, p->chunks, p->staleness, p->zero, p->n_shares, p->quick
	};

	uint64_t h = dlb_hash_str(division, p->schedule->name);
	h = dlb_hash_bytes(h, number, sizeof number);
	h = dlb_hash_bytes(h, &p->batch, sizeof p->batch);
	h = dlb_hash_bytes(h, p->ranked_scale, n * sizeof *p->ranked_scale);
	h = dlb_hash_bytes(h, p->stated_scale, n * sizeof *p->stated_scale);
	h = dlb_hash_bytes(h, p->memory_bytes, n * sizeof *p->memory_bytes);
	return dlb_hash_bytes(h, p->state_bytes, (size_t)p->n_groups * sizeof *p->state_bytes);
}

static bool runs_again(const struct dlb_problem *p) { return p->recompute && p->recompute->chosen; }

const struct dlb_draft *dlb_draft_find(const struct dlb_problem *p, uint64_t key)
{
	for (int i = 0; p->drafts && i < p->drafts->n; i++) {
		const struct dlb_draft *d = &p->drafts->at[i];
		if (d->key == key && (d->again == runs_again(p) || !d->scarce))
			return d;
	}
	return NULL;
}

void dlb_draft_keep(const struct dlb_problem *p, uint64_t division, double ranked_s, bool scarce)
{
	struct dlb_drafts *d = p->drafts;
	const uint64_t key = dlb_draft_key(p, division);

	if (!d || dlb_draft_find(p, key))
		return;
	DLB_GROW(d->at, d->n, d->cap);
	d->at[d->n++] = (struct dlb_draft){
		key, division, p->micro_batches, ranked_s, runs_again(p), scarce
	};
}

double dlb_draft_least_s(const struct dlb_problem *p, uint64_t division)
{
	double least_s = INFINITY;

	for (int i = 0; p->drafts && i < p->drafts->n; i++) {
		const struct dlb_draft *d = &p->drafts->at[i];
		if (d->micro_batches == p->micro_batches && (!division || d->division == division))
			least_s = fmin(least_s, d->ranked_s);
	}
	return least_s;
}

void dlb_drafts_release(struct dlb_drafts *d)
{
	free(d->at);
	memset(d, 0, sizeof *d);
}

bool dlb_draft_may_lack(const struct dlb_problem *p)
{
	double all = 0, least = INFINITY;

	for (int g = 0; g < p->n_groups; g++)
		all += dlb_group_bytes(p, g);
	for (int d = 0; d < p->cluster->n_nodes; d++)
		least = p->free_node[d] ? fmin(least, p->memory_bytes[d]) : least;
	return all > least;
}
