/* Collectives in the simulator (simulate.h): global norms, and sums over replicas. */
#include <math.h>
#include "plan/bucket_cost.h"
#include "plan/replica.h"
#include "plan/simulate.h"
#include "plan/sums.h"
#include "plan/timeline.h"

/* ---- norms ---- */

void dlb_sim_norm(struct sim *s, int node, bool trust)
{
	struct sim_node *n = &s->node[node];
	double t = trust ? 0 : dlb_sim_square_sum_s(s, node), end_s = 0;
	n->now += t;
	s->t->node[node].busy_s += t;
	n->wait_from = n->now;
	n->stands = true;
	if (++s->at_norm < s->g->n_nodes)
		return;
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

/* The bucket of sum `index` of a part. */
static const struct dlb_bucket *bucket_of(const struct sim *s, int part, int index)
{
	return &dlb_program_of(s->g, part)->node[part].bucket[index / s->g->micro_batches];
}

/* Sets the seconds of a sum without other traffic, and the directions that it uses (sums.c). */
static void price_sum(struct sim *s, struct sum *x)
{
	const struct dlb_bucket *u = bucket_of(s, x->part, x->index);
	if (!s->c || !s->c->cluster)
		return;
	x->flow.bytes = dlb_plan_bucket_s(s->g, s->c, x->part, x->index / s->g->micro_batches);
	if (x->needs_cores || (!s->n_msgs && s->n_parts < 2))
		return;
	struct dlb_direction_load *busy = dlb_xcalloc((size_t)s->n_directions + 1, sizeof *busy);
	x->flow.n = dlb_plan_sum_directions(s->g->whole, s->c, u->how, x->part, u->n, u->element_bytes, busy);
	x->flow.passage = dlb_xcalloc((size_t)x->flow.n + 1, sizeof *x->flow.passage);
	for (int i = 0; i < x->flow.n; i++)
		x->flow.passage[i] = (struct passage){ .direction = busy[i].direction, .load = busy[i].load };
	free(busy);
}

/* Whether the nodes' own cores move the bytes of the part's sums (shared memory). Such sums progress only
 * while all of the nodes wait. */
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

static void release_peers(struct sim *s, const struct sum *x, double now)
{
	const struct dlb_plan *p = s->g->whole;
	for (int r = 0; r < p->n_replicas; r++) {
		int node = p->replica[r][x->part];
		struct sim_node *n = &s->node[node];
		if (s->waits_for_sum[node] != x->index)
			continue;
		s->waits_for_sum[node] = -1;
		n->stands = false;
		s->t->node[node].waits_s[DLB_WAIT_COLLECTIVE] += now - n->now;
		s->t->node[node].sum_wait_s[bucket_of(s, x->part, x->index)->cls] += now - n->now;
		n->now = now;
		dlb_heap_push(&s->event, now, node * 4 + EV_NODE);
	}
}

static bool is_statistics(const struct sim *s, const struct sum *x)
{
	return bucket_of(s, x->part, x->index)->cls == DLB_SUM_STATISTICS;
}

static void begin_sum(struct sim *s, struct sum *x, double now)
{
	price_sum(s, x);
	dlb_sim_begin_sum(s, x, now);
}

/* Queues a sum whose inputs are complete. Statistics are small: they run between the segments of a sum of
 * gradients. */
static void line_up(struct sim *s, struct sum *x, double now)
{
	int last = s->last_in_line[x->part];
	if (!is_statistics(s, x)) {
		s->last_in_line[x->part] = x->index;
		if (last >= 0) {
			s->sum[x->part][last].next = x->index;
			return;
		}
	}
	begin_sum(s, x, now);
}

void dlb_sim_sum_ended(struct sim *s, struct sum *x, double now)
{
	enum dlb_sum_class cls = bucket_of(s, x->part, x->index)->cls;
	for (int r = 0; r < s->g->n_replicas; r++)
		s->t->node[s->g->whole->replica[r][x->part]].sum_s[cls] += now - x->flow.begin_s;
	free(x->flow.passage);
	x->flow.passage = NULL;
	x->flow.n = 0;
	if (!is_statistics(s, x)) {
		if (x->next >= 0)
			begin_sum(s, &s->sum[x->part][x->next], now);
		else
			s->last_in_line[x->part] = -1;
	}
	release_peers(s, x, now);
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
		/* the last node releases the others by events, and goes on itself */
		for (int i = 0; i < s->g->n_nodes; i++) {
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
			line_up(s, x, n->now);
		return false;
	}
	if (x->flow.done)
		return false;
	if (++x->waiting == R && x->needs_cores)
		line_up(s, x, n->now);
	n->pc++;
	s->waits_for_sum[node] = index;
	n->stands = true;
	return true;
}

void dlb_sim_find_sums(struct sim *s)
{
	const struct dlb_program *g = s->g;
	size_t n_nodes = (size_t)g->n_nodes, all = 0;
	s->part = dlb_xcalloc(n_nodes, sizeof *s->part);
	s->sum = dlb_xcalloc(n_nodes, sizeof *s->sum);
	s->waits_for_sum = dlb_xcalloc(n_nodes, sizeof *s->waits_for_sum);
	s->last_in_line = dlb_xcalloc(n_nodes, sizeof *s->last_in_line);
	s->commanded = dlb_xcalloc(n_nodes, sizeof *s->commanded);
	for (int i = 0; i < g->n_nodes; i++) {
		const struct dlb_node_program *np = &dlb_program_of(g, i)->node[i];
		s->part[i] = dlb_plan_part_of(g->whole, i);
		s->waits_for_sum[i] = s->last_in_line[i] = -1;
		all += s->part[i] == i ? (size_t)np->n_buckets * (size_t)g->micro_batches : 0;
		for (int k = 0; k < np->n_instr; k++)
			s->commanded[i] |= np->instr[k].verb == DLB_COLLECTIVE &&
					   np->instr[k].what == DLB_RUN_COMPUTED;
		s->n_commands += s->commanded[i];
	}
	s->all_sums = dlb_xcalloc(all + 1, sizeof *s->all_sums);
	struct sum *next = s->all_sums;
	for (int i = 0; i < g->n_nodes; i++) {
		int n_sums = s->part[i] == i ? dlb_program_of(g, i)->node[i].n_buckets * g->micro_batches : 0;
		bool needs_cores = n_sums && sum_needs_cores(s, i);
		s->sum[i] = next;
		s->n_parts += n_sums > 0;
		for (int b = 0; b < n_sums; b++)
			*next++ = (struct sum){ .flow.is_sum = true,
						.part = i,
						.index = b,
						.next = -1,
						.needs_cores = needs_cores };
	}
}

void dlb_sim_release_sums(struct sim *s)
{
	free(s->part);
	free(s->sum);
	free(s->all_sums);
	free(s->waits_for_sum);
	free(s->last_in_line);
	free(s->commanded);
}
