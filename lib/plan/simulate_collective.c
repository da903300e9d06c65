/* What nodes do together (simulate.h): global norms, and sums over replicas. */
#include <math.h>
#include "plan/simulate.h"

/* ---- norms ---- */

bool dlb_sim_norm(struct sim *s, int node, bool trust)
{
	struct sim_node *n = &s->node[node];
	double t = trust ? 0 : dlb_sim_square_sum_s(s, node), end_s = 0;
	n->now += t;
	s->t->node[node].busy_s += t;
	n->wait_from = n->now;
	n->stands = true;
	if (++s->at_norm < s->g->n_nodes)
		return true;
	s->at_norm = 0;
	for (int i = 0; i < s->g->n_nodes; i++)
		end_s = fmax(end_s, s->node[i].now);
	end_s += dlb_sim_norm_s(s);
	for (int i = 0; i < s->g->n_nodes; i++) {
		struct sim_node *x = &s->node[i];
		x->stands = false;
		s->t->node[i].waits_s[DLB_WAIT_COLLECTIVE] += end_s - x->wait_from;
		x->now = end_s;
		x->pc++;
		dlb_heap_push(&s->event, end_s, i * 4 + EV_NODE);
	}
	return true;
}

bool dlb_sim_norm_of_step(struct sim *s, int node, const struct dlb_instr *in)
{
	struct sim_node *n = &s->node[node];
	struct squares *x = &s->squares[in->iteration];
	if (in->what == DLB_RUN_SQUARES) {
		double t = dlb_sim_square_sum_s(s, node);
		n->now += t;
		s->t->node[node].busy_s += t;
		x->at_s = fmax(x->at_s, n->now);
		x->n++;
	} else {
		n->wait_from = n->now;
		n->stands = true;
		n->pc++;
		s->waits_for_norm[node] = in->iteration;
	}
	for (int i = 0; i < s->g->n_nodes && x->n == s->g->n_nodes; i++) {
		struct sim_node *w = &s->node[i];
		if (s->waits_for_norm[i] != in->iteration)
			continue;
		s->waits_for_norm[i] = -1;
		w->stands = false;
		w->now = fmax(w->now, x->at_s + dlb_sim_norm_s(s));
		s->t->node[i].waits_s[DLB_WAIT_COLLECTIVE] += w->now - w->wait_from;
		dlb_heap_push(&s->event, w->now, i * 4 + EV_NODE);
	}
	return in->what == DLB_RUN_NORM;
}

/* ---- sums over replicas ---- */

/* The bucket that sum `index` of a part is of. */
static const struct dlb_bucket *bucket_of(const struct sim *s, int part, int index)
{
	return &dlb_program_of(s->g, part)->node[part].bucket[index / s->g->micro_batches];
}

/* How long a sum takes once it may run (sums.c). */
static double sum_s(const struct sim *s, int part, int index)
{
	return s->c && s->c->cluster ? dlb_plan_bucket_s(s->g, s->c, part, index / s->g->micro_batches) : 0;
}

/* Sums whose bytes the nodes' own cores move (shared memory) go on only while all of them wait. */
static bool sum_needs_cores(struct sim *s, int part)
{
	const struct dlb_plan *p = s->g->whole;
	bool copies = false;
	for (int r = 1; r < p->n_replicas && s->c && s->c->cluster; r++) {
		int k = dlb_sim_route(s, p->replica[r - 1][part], p->replica[r][part]);
		copies |= s->route[k].copies;
	}
	return copies;
}

static void release_peers(struct sim *s, int part, int index)
{
	const struct dlb_plan *p = s->g->whole;
	struct sum *x = &s->sum[part][index];
	for (int r = 0; r < p->n_replicas; r++) {
		int node = p->replica[r][part];
		struct sim_node *n = &s->node[node];
		if (s->waits_for_sum[node] != index)
			continue;
		s->waits_for_sum[node] = -1;
		n->stands = false;
		if (x->end_s > n->now) {
			s->t->node[node].waits_s[DLB_WAIT_COLLECTIVE] += x->end_s - n->now;
			s->t->node[node].sum_wait_s[bucket_of(s, part, index)->cls] += x->end_s - n->now;
			n->now = x->end_s;
		}
		dlb_heap_push(&s->event, n->now, node * 4 + EV_NODE);
	}
}

/* Statistics are small: they slip in between the segments of gradients that are under way. */
static void begin_sum(struct sim *s, int part, int index, double now)
{
	struct sum *x = &s->sum[part][index];
	enum dlb_sum_class cls = bucket_of(s, part, index)->cls;
	double start = now > s->sum_busy_until[part] || cls == DLB_SUM_STATISTICS ? now : s->sum_busy_until[part];
	x->end_s = start + sum_s(s, part, index);
	if (cls != DLB_SUM_STATISTICS)
		s->sum_busy_until[part] = x->end_s;
	for (int r = 0; r < s->g->n_replicas; r++) {
		int node = s->g->whole->replica[r][part];
		s->t->node[node].sum_s[cls] += x->end_s - start;
	}
}

bool dlb_sim_meet_others(struct sim *s, int node, const struct dlb_instr *in)
{
	int R = s->g->n_replicas, part = s->part[node];
	struct sim_node *n = &s->node[node];
	if (in->what == DLB_RUN_COMPUTED) {
		n->wait_from = n->now;
		n->stands = true;
		if (n->now > s->command_s)
			s->command_s = n->now;
		if (++s->at_command < s->n_commands) {
			n->pc++;
			return true;
		}
		for (int i = 0; i < s->g->n_nodes; i++) {	/* this one's event is made below, like the others' */
			if (!s->commanded[i])
				continue;
			s->t->node[i].waits_s[DLB_WAIT_COLLECTIVE] += s->command_s - s->node[i].wait_from;
			s->t->node[i].command_s += s->command_s - s->node[i].wait_from;
			s->node[i].now = s->command_s;
			s->node[i].stands = false;
			if (i != node)
				dlb_heap_push(&s->event, s->command_s, i * 4 + EV_NODE);
		}
		return false;
	}
	int index = in->tag * s->g->micro_batches + (in->micro_batch < 0 ? in->iteration : in->micro_batch);
	struct sum *x = &s->sum[part][index];
	if (in->what == DLB_RUN_REDUCE) {
		if (++x->started == R && !x->needs_cores)
			begin_sum(s, part, index, n->now);
		if (x->started == R && !x->needs_cores)
			release_peers(s, part, index);
		return false;
	}
	x->waiting++;
	if (x->needs_cores && x->waiting == R)
		begin_sum(s, part, index, n->now);
	n->pc++;
	s->waits_for_sum[node] = index;
	n->stands = true;
	if (x->started == R && (!x->needs_cores || x->waiting == R))
		release_peers(s, part, index);
	return true;
}

void dlb_sim_find_sums(struct sim *s)
{
	const struct dlb_program *g = s->g;
	size_t n_nodes = (size_t)g->n_nodes;
	s->part = dlb_xcalloc(n_nodes, sizeof *s->part);
	s->sum = dlb_xcalloc(n_nodes, sizeof *s->sum);
	s->waits_for_sum = dlb_xcalloc(n_nodes, sizeof *s->waits_for_sum);
	s->sum_busy_until = dlb_xcalloc(n_nodes, sizeof *s->sum_busy_until);
	s->commanded = dlb_xcalloc(n_nodes, sizeof *s->commanded);
	for (int i = 0; i < g->n_nodes; i++) {
		const struct dlb_node_program *np = &dlb_program_of(g, i)->node[i];
		s->part[i] = dlb_plan_part_of(g->whole, i);
		s->waits_for_sum[i] = -1;
		int n_sums = np->n_buckets * g->micro_batches;
		s->sum[i] = dlb_xcalloc((size_t)n_sums + 1, sizeof *s->sum[i]);
		bool needs_cores = s->part[i] == i && n_sums && sum_needs_cores(s, i);
		for (int b = 0; b < n_sums; b++)
			s->sum[i][b].needs_cores = needs_cores;
		for (int k = 0; k < np->n_instr; k++)
			s->commanded[i] |= np->instr[k].verb == DLB_COLLECTIVE && np->instr[k].what == DLB_RUN_COMPUTED;
		s->n_commands += s->commanded[i];
	}
}
