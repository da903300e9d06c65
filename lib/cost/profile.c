/* Selects the ops and batch sizes to measure; stores the measurements. */
#include "cost/profile.h"
#include "util/hash.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* hash: of an op's signatures at two batch sizes. Ops with equal signatures at one size may differ at
 * another, because a fixed dimension may equal the batch. */
struct profile_key { uint64_t hash; int op; };

static int by_key_then_op(const void *a, const void *b)
{
	const struct profile_key *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static int by_first_op(const void *a, const void *b)
{
	const struct dlb_profile_row *x = a, *y = b;

	return x->op[0] < y->op[0] ? -1 : x->op[0] > y->op[0];
}

static uint64_t key_of(const struct dlb_graph *g, int op, int64_t batch)
{
	struct dlb_arena scratch = { 0 };
	const char *at_n = dlb_op_signature(g, op, batch, &scratch);
	const uint64_t hash = dlb_hash_str(dlb_hash_str(DLB_HASH_INIT, at_n),
					   dlb_op_signature(g, op, 2 * batch + 1, &scratch));

	dlb_arena_release(&scratch);
	return hash;
}

void dlb_profile_init(struct dlb_profile *p, const struct dlb_graph *g, int64_t batch)
{
	struct profile_key *k = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *k);

	memset(p, 0, sizeof *p);
	p->batch = dlb_arena_array(&p->arena, 5, sizeof *p->batch);
	for (int64_t n = batch;
	     n >= dlb_graph_least_samples(g) && n * 16 >= batch && p->n_batches < (g->fixed_batch ? 1 : 5);
	     n /= 2)
		p->batch[p->n_batches++] = n;
	for (int i = 0; i < g->n_ops; i++)
		k[i] = (struct profile_key){ .op = i, .hash = key_of(g, i, batch) };
	qsort(k, (size_t)g->n_ops, sizeof *k, by_key_then_op);
	for (int i = 0; i < g->n_ops; i++)
		p->n_rows += !i || k[i].hash != k[i - 1].hash;
	p->row = dlb_arena_array(&p->arena, (size_t)p->n_rows + 1, sizeof *p->row);
	int *ops = dlb_arena_array(&p->arena, (size_t)g->n_ops + 1, sizeof *ops), r = -1;
	for (int i = 0; i < g->n_ops; i++) {
		if (!i || k[i].hash != k[i - 1].hash) {
			p->row[++r].op = ops + i;
			p->row[r].hash = k[i].hash;
			p->row[r].type = dlb_arena_strdup(&p->arena, g->op[k[i].op].type);
			p->row[r].key = dlb_op_signature(g, k[i].op, batch, &p->arena);
		}
		ops[i] = k[i].op;
		p->row[r].n_ops++;
	}
	free(k);
	if (p->n_rows)
		qsort(p->row, (size_t)p->n_rows, sizeof *p->row, by_first_op);
}

/* Half the smallest memory bandwidth measured on the kinds of the nodes in `group` and below; INFINITY: none
 * measured. */
static double slowest_copy_Bps(const struct dlb_profile *p, const struct dlb_cluster *c, int group)
{
	double least = INFINITY;

	for (int d = 0; d < c->n_nodes; d++) {
		const int q = dlb_profile_find_kind(p, c->kind[c->node[d].kind].name);
		int g = c->node[d].group;

		while (g >= 0 && g != group)
			g = c->group[g].parent;
		if (g == group && q >= 0 && p->bandwidth_Bps[q] > 0)
			least = fmin(least, p->bandwidth_Bps[q] / 2);
	}
	return least;
}

int dlb_profile_price_copies(const struct dlb_profile *p, struct dlb_cluster *c)
{
	int n = 0;

	for (int g = 0; g < c->n_groups; g++) {
		struct dlb_link *l = c->group[g].inside >= 0 ? &c->link[c->group[g].inside] : NULL;
		const double Bps = l && l->usual && !strcmp(l->cls, "shm") ? slowest_copy_Bps(p, c, g) :
									     INFINITY;

		if (isinf(Bps))
			continue;
		l->bandwidth_Bps = Bps;
		l->usual = false;
		n++;
	}
	return n;
}

int dlb_profile_find_kind(const struct dlb_profile *p, const char *name)
{
	for (int i = 0; i < p->n_kinds; i++)
		if (!strcmp(p->kind[i], name))
			return i;
	return -1;
}

/* A copy of n elements with space for one more and a closing zero. */
static void *one_more(struct dlb_arena *a, const void *p, int n, size_t size)
{
	void *q = dlb_arena_array(a, (size_t)n + 2, size);

	if (n)
		memcpy(q, p, (size_t)n * size);
	return q;
}

int dlb_profile_add_kind(struct dlb_profile *p, const char *name)
{
	struct dlb_arena *a = &p->arena;
	int k = dlb_profile_find_kind(p, name), n = p->n_kinds;

	if (k >= 0)
		return k;
	p->kind = one_more(a, p->kind, n, sizeof *p->kind);
	p->kind[n] = dlb_arena_strdup(a, name);
	p->peak_flops = one_more(a, p->peak_flops, n, sizeof *p->peak_flops);
	p->bandwidth_Bps = one_more(a, p->bandwidth_Bps, n, sizeof *p->bandwidth_Bps);
	p->step_s = one_more(a, p->step_s, n, sizeof *p->step_s);
	p->step_s[n] = NAN;
	p->step_spread = one_more(a, p->step_spread, n, sizeof *p->step_spread);
	p->step_spread[n] = NAN;
	p->step_overhead_s = one_more(a, p->step_overhead_s, n, sizeof *p->step_overhead_s);
	p->step_overhead_s[n] = NAN;
	for (int i = 0; i < p->n_rows; i++) {
		struct dlb_profile_row *r = &p->row[i];
		r->time_s = one_more(a, r->time_s, n, sizeof *r->time_s);
		r->time_s[n] = dlb_arena_array(a, (size_t)p->n_batches + 1, sizeof **r->time_s);
		for (int b = 0; b < p->n_batches; b++)
			r->time_s[n][b] = NAN;
		r->workspace_bytes = one_more(a, r->workspace_bytes, n, sizeof(double));
		r->scratch_bytes = one_more(a, r->scratch_bytes, n, sizeof *r->scratch_bytes);
		r->scratch_bytes[n] = dlb_arena_array(a, (size_t)p->n_batches + 1, sizeof(double));
		r->packed_bytes = one_more(a, r->packed_bytes, n, sizeof *r->packed_bytes);
		r->packed_bytes[n] = dlb_arena_array(a, (size_t)p->n_batches + 1, sizeof(double));
	}
	return p->n_kinds++;
}

void dlb_profile_carry(const struct dlb_profile *p, const struct dlb_graph *was, const struct dlb_graph *g,
		       struct dlb_profile *out)
{
	uint64_t *key = dlb_xcalloc((size_t)p->n_rows + 1, sizeof *key);

	dlb_profile_init(out, g, p->batch[0]);
	out->batch = dlb_arena_array(&out->arena, (size_t)p->n_batches, sizeof *out->batch);
	memcpy(out->batch, p->batch, (size_t)p->n_batches * sizeof *out->batch);
	out->n_batches = p->n_batches;
	for (int k = 0; k < p->n_kinds; k++) {
		const int to = dlb_profile_add_kind(out, p->kind[k]);
		out->peak_flops[to] = p->peak_flops[k];
		out->bandwidth_Bps[to] = p->bandwidth_Bps[k];
	}
	for (int r = 0; r < p->n_rows; r++)
		key[r] = key_of(was, p->row[r].op[0], p->batch[0]);
	for (int i = 0; i < out->n_rows; i++) {
		struct dlb_profile_row *to = &out->row[i];
		for (int r = 0; r < p->n_rows; r++) {
			const struct dlb_profile_row *from = &p->row[r];
			if (key[r] != to->hash)
				continue;
			for (int k = 0; k < p->n_kinds; k++) {
				const size_t bytes = (size_t)p->n_batches * sizeof(double);

				memcpy(to->time_s[k], from->time_s[k], bytes);
				memcpy(to->scratch_bytes[k], from->scratch_bytes[k], bytes);
				memcpy(to->packed_bytes[k], from->packed_bytes[k], bytes);
				to->workspace_bytes[k] = from->workspace_bytes[k];
			}
			break;
		}
	}
	free(key);
}

void dlb_profile_release(struct dlb_profile *p)
{
	if (!p)
		return;
	dlb_arena_release(&p->arena);
	memset(p, 0, sizeof *p);
}
