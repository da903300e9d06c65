/* Problems for kept results of placement: random training graphs under weights, limits, pins, moves and
 * objectives. Costs are whole multiples of 2^-30 s, so that sums of them do not depend on their order. */
#ifndef DLB_TESTS_PLACE_WORLDS_H
#define DLB_TESTS_PLACE_WORLDS_H
#include "check.h"
#include "kept.h"
#include "place_cases.h"

struct world {
	struct dag_options dag;
	int M;
	const char *schedule;
};
/* What a case changes. */
struct variant {
	const char *name;
	bool weighs, little_memory, pins, excludes, moves, recomputes, drafts, compared, quick, by_rank,
		numbered, serves;
	enum dlb_objective objective;
	int n_state, n_shares;
};

struct made {
	struct dag d;
	struct dlb_problem p;
	double weight[8], kappa[8], *number;
	int *pin, *before;
	bool excluded[8];
};
static const struct dlb_recompute chosen = { .chosen = true };

static inline void round_costs(struct dag *d)
{
	const size_t n = (size_t)d->cl.n_kinds * (size_t)d->c.n_ops * (size_t)d->c.n_batches;

	for (size_t i = 0; i < n; i++)
		if (isfinite(d->c.op_s[i]))
			d->c.op_s[i] = ldexp(rint(ldexp(d->c.op_s[i], 30)), -30);
}

static inline void tried(void *arg, const char *name, double ranked_s, double value_s,
			 const struct dlb_error *err)
{
	(void)arg;
	kept_text(name);
	kept_real(ranked_s);
	kept_real(value_s);
	kept_text(err ? err->what : "");
}

static inline void said(void *arg, const char *line)
{
	(void)arg;
	kept_text(line);
}

static inline void limit_memory(struct dag *d, struct dlb_rng *r)
{
	double all = 0;

	for (int i = 0; i < d->g.n_tensors; i++)
		all += d->g.tensor[i].size_add + 3 * d->g.tensor[i].size_mul;
	for (int i = 0; i < d->cl.n_nodes; i++)
		d->cl.node[i].memory_bytes = rint(all * (2 + 2 * dlb_rng_uniform(r)) / d->cl.n_nodes);
}

static inline void init(struct made *m, const struct world *w, const struct variant *v)
{
	struct dag_options o = w->dag;
	struct dlb_error err = { .what = "" };
	struct dlb_rng r;
	const uint64_t seed = o.seed;

	memset(m, 0, sizeof *m);
	dlb_rng_init(&r, seed);
	o.batch = 12;
	o.training = seed != 6 || v->recomputes;
	dag_init(&m->d, &o);
	round_costs(&m->d);
	if (v->little_memory)
		limit_memory(&m->d, &r);
	m->pin = malloc((size_t)m->d.g.n_ops * sizeof *m->pin);
	m->before = malloc((size_t)m->d.g.n_ops * sizeof *m->before);
	m->number = malloc((size_t)m->d.g.n_ops * sizeof *m->number);
	for (int i = 0; i < m->d.g.n_ops; i++) {
		m->pin[i] = -1;
		m->number[i] = (i * 7) % 5;
	}
	m->pin[1] = 1;
	m->pin[m->d.g.n_ops / 2] = 0;
	for (int i = 0; i < m->d.cl.n_nodes; i++) {
		m->weight[i] = 0.5 + 0.25 * (double)dlb_rng_below(&r, 5);
		m->kappa[i] = 0.75 + 0.25 * (double)dlb_rng_below(&r, 4);
	}
	m->excluded[2] = true;
	m->p = (struct dlb_problem){ .graph = &m->d.g,
				     .cluster = &m->d.cl,
				     .cost = &m->d.c,
				     .micro_batches = w->M,
				     .batch = o.batch,
				     .schedule = dlb_schedule_find(w->schedule),
				     .seed = seed,
				     .n_state = v->n_state,
				     .n_shares = v->n_shares,
				     .objective = v->objective,
				     .quick = v->quick,
				     .draft = v->drafts,
				     .compared = v->compared,
				     .by_upward_rank = v->by_rank,
				     .recompute = v->recomputes ? &chosen : NULL,
				     .number = v->numbered ? m->number : NULL,
				     .weight = v->weighs ? m->weight : NULL,
				     .kappa = v->weighs ? m->kappa : NULL,
				     .pin = v->pins ? m->pin : NULL,
				     .excluded = v->excludes ? m->excluded : NULL,
				     .tried = tried,
				     .said = said,
				     .warned = said };
	if (v->recomputes && !strcmp(w->schedule, "async"))
		m->p.schedule = dlb_schedule_find("1f1b");
	if (v->objective != DLB_STEP) {
		m->p.schedule = dlb_schedules;
		m->p.micro_batches = 1;
		m->d.cl.link_model = DLB_LINKS_PORT;
	}
	if (v->moves) {
		for (int i = 0; i < m->d.g.n_ops; i++)
			m->before[i] = i % m->d.cl.n_nodes;
		int *group = malloc((size_t)m->d.g.n_ops * sizeof *group);
		dlb_graph_groups(&m->d.g, group);
		for (int i = 0; i < m->d.g.n_ops; i++)
			m->before[i] = m->before[group[i]];
		free(group);
		m->p.before = m->before;
		m->p.max_moves = 6;
		m->p.serve_steps = 50;
	}
	if (dlb_problem_init(&m->p, &err))
		die("problem", seed, &err);
}

static inline void release(struct made *m)
{
	dlb_problem_release(&m->p);
	dag_release(&m->d);
	free(m->pin);
	free(m->before);
	free(m->number);
}

/* The plan, all of it, becomes part of the checksum. */
static inline void add_plan(const struct dlb_plan *plan)
{
	kept_add(plan->placement, plan->n_ops);
	for (int d = 0; d < plan->n_nodes; d++) {
		const struct dlb_node_plan *n = &plan->node[d];

		kept_real(n->peak_bytes);
		kept_real(n->busy_s);
		kept_add(&n->n_order, 1);
		for (int i = 0; i < n->n_order; i++)
			kept_add((const int[]){ n->order[i].op, n->order[i].micro_batch }, 2);
	}
	for (int i = 0; plan->again && i < plan->n_ops; i++)
		kept_add((const int[]){ plan->again[i] }, 1);
	kept_add((const int[]){ plan->micro_batches, plan->in_flight, plan->most_in_flight,
				plan->updates_first, plan->n_replicas, plan->moved_ops },
		 6);
	kept_real(plan->moved_bytes);
	kept_real(plan->migration_s);
	kept_real(plan->imbalance);
	kept_real(plan->gap);
	kept_text(plan->schedule);
	kept_text(plan->winner ? plan->winner : "");
	for (int r = 0; plan->replica && r < plan->n_replicas; r++) {
		kept_add(plan->replica[r], plan->n_nodes / plan->n_replicas);
		kept_real(plan->power ? plan->power[r] : 1);
	}
}

static inline void keep_plan(const char *name, int rc, struct dlb_plan *plan, const struct dlb_error *err)
{
	if (rc) {
		kept_line(name, "%d %s", err->status, err->what);
		return;
	}
	add_plan(plan);
	kept_line(name, "%.5g s, bound %.5g s", plan->value_s, plan->bound_s);
}
#endif
