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

/* Hash of the inputs of a draft of p, without ops that run again and without inputs that depend on the number
 * of micro-batches (the state's bytes do, since they include sums of gradients). division: hash of nodes and
 * placers. */
static uint64_t hash_kin(const struct dlb_problem *p, uint64_t division)
{
	const size_t n = (size_t)p->cluster->n_nodes;
	const int32_t number[] = { p->chunks, p->staleness, p->zero, p->n_shares, p->quick };

	uint64_t h = dlb_hash_str(division, p->schedule->name);
	h = dlb_hash_bytes(h, number, sizeof number);
	h = dlb_hash_bytes(h, &p->batch, sizeof p->batch);
	h = dlb_hash_bytes(h, p->ranked_scale, n * sizeof *p->ranked_scale);
	h = dlb_hash_bytes(h, p->stated_scale, n * sizeof *p->stated_scale);
	return dlb_hash_bytes(h, p->memory_bytes, n * sizeof *p->memory_bytes);
}

/* The same hash with the bytes of the state. */
static uint64_t hash_inputs(const struct dlb_problem *p, uint64_t division)
{
	return dlb_hash_bytes(hash_kin(p, division), p->state_bytes,
			      (size_t)p->n_groups * sizeof *p->state_bytes);
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
	uint64_t h = dlb_hash_u64(hash_inputs(p, DLB_HASH_INIT), (uint64_t)p->micro_batches);

	for (int d = 0; d < p->cluster->n_nodes; d++)
		h = hash_node(&p->cluster->node[d], h);
	for (int i = 0; p->offload && i < p->offload->n; i++)
		h = dlb_hash_u64(dlb_hash_str(dlb_hash_str(h, p->offload->rule[i].pattern),
					      p->offload->rule[i].memory),
				 p->offload->rule[i].kind);
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

/* Whether draft d, perhaps with fewer micro-batches, is the same plan as p's: each micro-batch of d has at
 * most one sample of a replica already. A plan with one micro-batch differs, since it needs no sums of
 * gradients. */
static bool is_as_many(const struct dlb_draft *d, const struct dlb_problem *p)
{
	return d->micro_batches == p->micro_batches ||
	       (d->micro_batches > 1 && d->most_samples <= d->micro_batches &&
		d->micro_batches <= p->micro_batches);
}

static bool holds_for(const struct dlb_draft *d, const struct dlb_problem *p)
{
	return d->again == runs_again(p) || !d->scarce;
}

/* The draft with p's number of micro-batches, else a draft with fewer that is the same plan (is_as_many);
 * NULL: none. */
static const struct dlb_draft *find(const struct dlb_problem *p, uint64_t division)
{
	const uint64_t key = hash_inputs(p, division);
	const struct dlb_draft *found = NULL;

	for (int i = 0; p->drafts && i < p->drafts->n; i++) {
		const struct dlb_draft *d = &p->drafts->at[i];
		if (d->key != key || !is_as_many(d, p) || !holds_for(d, p))
			continue;
		if (d->micro_batches == p->micro_batches)
			return d;
		found = d;
	}
	return found;
}

static void add(struct dlb_drafts *d, const struct dlb_draft *x)
{
	DLB_GROW(d->at, d->n, d->cap);
	d->at[d->n++] = *x;
}

const struct dlb_draft *dlb_draft_recall(const struct dlb_problem *p, uint64_t division)
{
	const struct dlb_draft *known = find(p, division);

	if (!known || known->micro_batches == p->micro_batches)
		return known;
	struct dlb_draft x = *known;
	x.micro_batches = p->micro_batches;
	add(p->drafts, &x);
	return &p->drafts->at[p->drafts->n - 1];
}

void dlb_draft_beside(const struct dlb_problem *p, uint64_t division, const struct dlb_draft **fewer,
		      const struct dlb_draft **more)
{
	const uint64_t kin = hash_kin(p, division);

	*fewer = *more = NULL;
	for (int i = 0; p->drafts && i < p->drafts->n; i++) {
		const struct dlb_draft *d = &p->drafts->at[i];
		if (d->kin != kin || !holds_for(d, p))
			continue;
		if (d->micro_batches < p->micro_batches &&
		    (!*fewer || d->micro_batches > (*fewer)->micro_batches))
			*fewer = d;
		if (d->micro_batches > p->micro_batches &&
		    (!*more || d->micro_batches < (*more)->micro_batches))
			*more = d;
	}
}

void dlb_draft_keep(const struct dlb_problem *p, uint64_t division, double ranked_s, int64_t most_samples,
		    bool scarce)
{
	struct dlb_drafts *d = p->drafts;
	const struct dlb_draft *known = find(p, division);

	if (!d || (known && known->micro_batches == p->micro_batches))
		return;
	add(d, &(struct dlb_draft){ .key = hash_inputs(p, division),
				    .kin = hash_kin(p, division),
				    .division = division,
				    .micro_batches = p->micro_batches,
				    .most_samples = most_samples,
				    .ranked_s = ranked_s,
				    .outline_s = dlb_draft_outline_s(p, division),
				    .again = runs_again(p),
				    .scarce = scarce });
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

double dlb_draft_best_s(const struct dlb_problem *p)
{
	double best_s = INFINITY;

	for (int i = 0; p->drafts && i < p->drafts->n; i++)
		best_s = fmin(best_s, p->drafts->at[i].ranked_s);
	return best_s;
}

double dlb_draft_ratio(const struct dlb_problem *p, uint64_t division)
{
	/* a larger ratio comes from scarce memory, which other drafts may not lack */
	static const double SCARCE = 1.5;
	double took = INFINITY, others = INFINITY, lacking = 1;

	for (int i = 0; p->drafts && i < p->drafts->n; i++) {
		const struct dlb_draft *d = &p->drafts->at[i];
		const double now = d->outline_s > 0 ? d->ranked_s / d->outline_s : INFINITY;
		if (d->division == division && (!d->scarce || now < SCARCE))
			took = fmin(took, now);
		else if (d->division == division && d->again >= runs_again(p) &&
			 d->micro_batches >= p->micro_batches / 2)
			lacking = SCARCE;
		if (d->micro_batches != p->micro_batches)
			others = fmin(others, now);
	}
	return isfinite(took) ? took : fmax(lacking, isfinite(others) ? others : 1);
}

bool dlb_drafts_are_spent(const struct dlb_problem *p, double part)
{
	return p->drafts && !(p->search_s > 0) && dlb_problem_has_many_ops(p) &&
	       (double)p->drafts->work >= part * DLB_SEARCH_WORK * dlb_search_effort(p);
}

static uint64_t hash_outline(const struct dlb_problem *p, uint64_t division)
{
	const int32_t number[] = { p->micro_batches, runs_again(p) };

	return dlb_hash_bytes(hash_kin(p, division), number, sizeof number);
}

double dlb_draft_outline_s(const struct dlb_problem *p, uint64_t division)
{
	const uint64_t key = hash_outline(p, division);

	for (int i = 0; p->drafts && i < p->drafts->n_outlines; i++)
		if (p->drafts->outline[i].key == key)
			return p->drafts->outline[i].s;
	return NAN;
}

void dlb_draft_keep_outline(const struct dlb_problem *p, uint64_t division, double outline_s)
{
	struct dlb_drafts *d = p->drafts;

	if (!d)
		return;
	DLB_GROW(d->outline, d->n_outlines, d->cap_outlines);
	d->outline[d->n_outlines++] = (struct dlb_known_outline){ hash_outline(p, division), outline_s };
}

void dlb_drafts_release(struct dlb_drafts *d)
{
	free(d->at);
	free(d->outline);
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
