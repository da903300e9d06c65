/* Known drafts. See drafts.h. */
#include "place/drafts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/problem.h"
#include "plan/schedule.h"
#include "util/hash.h"

enum { MOST_VALUES = 4096 };

static bool runs_again(const struct dlb_problem *p) { return p->recompute && p->recompute->chosen; }

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

static uint64_t hash_node(const struct dlb_node *x, uint64_t h)
{
	const int32_t number[] = { x->kind, x->group, x->n_memories };

	h = dlb_hash_bytes(h, number, sizeof number);
	h = dlb_hash_bytes(h, x->memory, (size_t)x->n_memories * sizeof *x->memory);
	return dlb_hash_bytes(h, &x->speed, sizeof x->speed);
}

static uint64_t hash_sharing(const struct dlb_plan *replicas, uint64_t h)
{
	const struct dlb_sharing *x = &replicas->sharing;
	const int32_t number[] = { replicas->n_replicas, x->zero, x->by_power };

	h = dlb_hash_bytes(h, number, sizeof number);
	h = dlb_hash_str(dlb_hash_str(h, x->allreduce ? x->allreduce : ""), x->compress);
	for (int i = 0; i < x->n_by_size; i++)
		h = dlb_hash_str(dlb_hash_u64(h, (uint64_t)x->by_size[i].from_bytes),
				 x->by_size[i].allreduce);
	for (int i = 0; i < DLB_N_COMPRESSED; i++)
		h = dlb_hash_str(h, x->compress_of[i]);
	return h;
}

uint64_t dlb_problem_key(const struct dlb_problem *p)
{
	uint64_t h = dlb_draft_key(p, DLB_HASH_INIT);

	for (int d = 0; d < p->cluster->n_nodes; d++)
		h = hash_node(&p->cluster->node[d], h);
	for (int i = 0; p->offload && i < p->offload->n; i++)
		h = dlb_hash_str(dlb_hash_str(h, p->offload->rule[i].pattern), p->offload->rule[i].memory);
	h = dlb_hash_u64(h, runs_again(p));
	return p->replicas ? hash_sharing(p->replicas, h) : h;
}

const struct dlb_known_value *dlb_value_find(const struct dlb_problem *p, uint64_t key, double below_s)
{
	const struct dlb_known_value *x = p->drafts && p->drafts->value ?
						  &p->drafts->value[key % MOST_VALUES] :
						  NULL;

	return x && x->key == key && (x->exact || x->below_s >= below_s) ? x : NULL;
}

void dlb_value_keep(const struct dlb_problem *p, const struct dlb_known_value *x)
{
	if (!p->drafts)
		return;
	if (!p->drafts->value)
		p->drafts->value = dlb_xcalloc(MOST_VALUES, sizeof *p->drafts->value);
	p->drafts->value[x->key % MOST_VALUES] = *x;
}

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
	free(d->value);
	dlb_arena_release(&d->memo.arena);
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
