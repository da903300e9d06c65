/* Kept results of what dlb-place chooses on small random training graphs: replicas with their teams and
 * shares, under all ways to sum and divide; plans made again under other weights; schedules and numbers of
 * micro-batches; cuts, outlines and lower bounds. kept.h says how they are replaced. */
#include "place_worlds.h"
#include "place/borders.h"
#include "place/bound.h"
#include "place/contiguous.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/recut.h"
#include "place/replicas.h"
#include "place/schedules.h"
#include "place/why.h"
#include "plan/sharing.h"

static const char *const kept[] = {
#include "replicas_kept.inc"
};

static const struct world worlds[] = {
	{ { .seed = 1,
	    .n_forward = 8,
	    .chain = true,
	    .colocate = 1,
	    .cluster = "cpu:2 host cpu:2*0.5 link=rack:1e-6,1e8" },
	  2,
	  "1f1b" },
	{ { .seed = 2,
	    .n_forward = 6,
	    .colocate = .5,
	    .no_kernel = .1,
	    .cluster = "2(rack 2(host cpu:1 cpu:1*0.6)) link=shm:1e-6,1e9 link=rack:1e-5,2e8 "
		       "link=site:5e-5,5e7" },
	  3,
	  "gpipe" },
	{ { .seed = 3, .n_forward = 6, .chain = true, .colocate = .8, .cluster = "cpu:3*2 cpu/2:3" },
	  4,
	  "1f1b" },
	{ { .seed = 4, .n_forward = 5, .colocate = 0, .cluster = "3(host cpu:2) link=rack:2e-6,4e8" },
	  2,
	  "zero-bubble" },
};
static const struct variant variants[] = {
	{ .name = "plain" },
	{ .name = "weights", .weighs = true, .n_state = 2 },
	{ .name = "memory", .little_memory = true, .n_state = 2 },
	{ .name = "excluded", .excludes = true, .weighs = true },
	{ .name = "recompute", .recomputes = true, .little_memory = true },
	{ .name = "draft", .drafts = true, .weighs = true, .n_state = 1 },
	{ .name = "compared", .compared = true, .quick = true, .n_state = 2 },
};

/* Ways to share. */
static const struct way {
	int n;
	const char *allreduce, *algorithm;
	int zero;
	bool by_power, even, averages, clips, feeds;
} ways[] = {
	{ 0, DLB_ALLREDUCE_AUTO, .zero = 0 },
	{ 2, DLB_ALLREDUCE_AUTO, .zero = 1 },
	{ 2, "ring", .by_power = true },
	{ 3, "tree", .zero = 2, .clips = true },
	{ 4, "hierarchical", .zero = 3 },
	{ 2, "doubling", "proportional", .even = true },
	{ 0, "host", .zero = 1, .even = true },
	{ 2, "ring", .averages = true, .feeds = true, .by_power = true },
	{ .n = 5, .allreduce = "ring" },
	{ .n = 9, .allreduce = "ring" },
};

static struct dlb_replicas_choice choice_of(const struct way *x)
{
	struct dlb_replicas_choice c = { .n = x->n, .algorithm = x->algorithm };

	dlb_sharing_init(&c.sharing);
	c.sharing.allreduce = x->allreduce;
	c.sharing.zero = x->zero;
	c.sharing.by_power = x->by_power;
	c.sharing.split_given = x->by_power || x->even;
	c.sharing.feed_host = x->feeds;
	if (x->averages)
		c.sharing.gossip = .5;
	return c;
}

/* The same teams under other weights: the plan is made again, with its shares or others; its borders move. */
static void once_more(const char *name, struct made *m, struct dlb_replicas_choice c,
		      const struct dlb_plan *plan)
{
	struct dlb_problem other = m->p;
	struct dlb_plan next;
	struct dlb_error err = { .what = "" };
	double weight[8], ranked_s;
	bool same;

	for (int i = 0; i < m->d.cl.n_nodes; i++)
		weight[i] = i % 3 ? 1.25 : 0.5;
	other.weight = weight;
	if (dlb_problem_init(&other, &err))
		die(name, 0, &err);
	c.n = plan->n_replicas;
	c.current = plan->placement;
	c.now = plan;
	c.keeps_shares = c.sharing.zero > 0;
	const int rc = c.n > 1 ? dlb_place_replicas(&other, &c, &next, &ranked_s, &same, &err) :
				 dlb_place_again(&other, NULL, plan->placement, &next, &same, &err);
	keep_plan(name, rc, &next, &err);
	if (!rc) {
		if (c.n > 1) {
			dlb_borders_move(&other, &next, &ranked_s);
			add_plan(&next);
			kept_real(ranked_s);
		}
		kept_line(name, "again, %s", same ? "kept" : "other");
		dlb_plan_release(&next);
	}
	dlb_problem_release(&other);
}

static void keep_why(const char *name, const struct made *m, const struct dlb_plan *plan)
{
	char *text = NULL;
	size_t size;
	struct dlb_error err = { .what = "" };
	FILE *f = open_memstream(&text, &size);

	for (int i = 0; i < m->d.g.n_ops; i += 5)
		if (dlb_place_why(&m->p, plan, i, f, &err))
			die("why", 0, &err);
	fclose(f);
	kept_text(text);
	kept_line(name, "why, %d bytes", (int)size);
	free(text);
}

/* What is remembered of the divisions that were tried. */
static void keep_drafts(const struct dlb_drafts *d)
{
	for (int i = 0; i < d->n; i++) {
		const struct dlb_draft *x = &d->at[i];

		kept_add((const int[]){ x->micro_batches, (int)x->most_samples, x->again, x->scarce }, 4);
		kept_real(x->ranked_s);
		kept_real(x->outline_s);
	}
	for (int i = 0; i < d->n_outlines; i++)
		kept_real(d->outline[i].s);
}

static void shared(const struct world *w, const struct variant *v, const struct way *x)
{
	struct made m;
	struct dlb_plan plan;
	struct dlb_error err = { .what = "" };
	struct dlb_replicas_choice c = choice_of(x);
	struct dlb_drafts drafts = { .n = 0 };
	char name[64];
	double ranked_s = 0;
	bool same;

	init(&m, w, v);
	assert(IS(m.d.g.n_ops > 500, ==, w->dag.seed > 6));
	m.p.clip = x->clips;
	m.p.drafts = v->drafts || v->little_memory ? &drafts : NULL;
	snprintf(name, sizeof name, "%d %s %d %s", w->dag.seed > 6 ? 9 : (int)(w - worlds), v->name,
		 (int)(x - ways), x->allreduce);
	const int rc = dlb_place_replicas(&m.p, &c, &plan, &ranked_s, &same, &err);
	kept_real(ranked_s);
	keep_drafts(&drafts);
	keep_plan(name, rc, &plan, &err);
	m.p.drafts = NULL;
	for (int i = 0; i < 6; i++)
		kept_real(dlb_replicas_outline_s(&m.p, &c, i * i));
	if (!rc) {
		if (plan.n_replicas > 1) {
			m.p.replicas = &plan;
			kept_real(dlb_replicas_bound_s(&m.p));
			m.p.replicas = NULL;
		}
		keep_why(name, &m, &plan);
		once_more(name, &m, c, &plan);
		dlb_plan_release(&plan);
	}
	release(&m);
	dlb_drafts_release(&drafts);
}

static int place_one(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	bool same;

	return dlb_place_replicas(p, arg, plan, NULL, &same, err);
}

static double outline_one(void *arg, const struct dlb_problem *p, int place)
{
	return dlb_replicas_outline_s(p, arg, place);
}

static void scheduled(const struct world *w, const struct variant *v, int replicas, bool given)
{
	struct made m;
	struct dlb_plan plan;
	struct dlb_error err = { .what = "" };
	struct dlb_replicas_choice c = choice_of(&ways[0]);
	struct dlb_drafts drafts = { .n = 0 };
	struct dlb_trial *trial = NULL;
	int n = 0;
	char name[64];

	c.n = replicas;
	init(&m, w, v);
	if (given)
		m.p.drafts = &drafts;
	const struct dlb_plan_maker maker = { place_one, outline_one, &c };
	const int rc = dlb_place_schedule(&m.p, given, &maker, &plan, &trial, &n, &err);
	for (int i = 0; i < n; i++) {
		kept_text(trial[i].schedule);
		kept_add(&trial[i].micro_batches, 1);
		kept_real(trial[i].value_s);
	}
	snprintf(name, sizeof name, "%d %s schedules%s %d", w->dag.seed > 6 ? 9 : (int)(w - worlds), v->name,
		 given ? " of M" : "", replicas);
	keep_plan(name, rc, &plan, &err);
	if (!rc)
		dlb_plan_release(&plan);
	free(trial);
	dlb_problem_release(&m.p);
	dlb_drafts_release(&drafts);
	m.p.n_groups = 0;
	dag_release(&m.d);
	free(m.pin);
	free(m.before);
	free(m.number);
}

/* Units, their balance over the nodes in two orders, cuts again, and bounds. */
static void cuts(const struct world *w, const struct variant *v)
{
	static const int forth[] = { 0, 1, 2, 3 }, back[] = { 3, 1, 0, 2 };
	const double other[] = { 1, .5, 2, 1, .5, 1, 1, 1 };
	struct made m;
	struct dlb_units u;
	int start[5];
	char name[64];

	init(&m, w, v);
	snprintf(name, sizeof name, "%d %s cuts", w->dag.seed > 6 ? 9 : (int)(w - worlds), v->name);
	dlb_units_init(&u, &m.p);
	for (int i = 0; i < u.n; i++) {
		kept_real(u.bytes[i]);
		kept_real(u.forward_bytes[i]);
		kept_real(u.backward_bytes[i]);
		for (int d = 0; d < 4; d++)
			kept_real(dlb_unit_s(&u, &m.p, i, d));
	}
	kept_line(name, "%d units", u.n);
	int *at = malloc((size_t)m.d.g.n_ops * sizeof *at),
	    *next = malloc((size_t)m.d.g.n_ops * sizeof *next);
	for (int turn = 0; turn < 4; turn++) {
		const int *node = turn % 2 ? back : forth;
		const struct dlb_parts parts = { .n = 4, .node = node, .any_size = turn > 1 };
		const double s = dlb_units_balance(&u, &m.p, &parts, start);
		double step_s = INFINITY;

		if (isfinite(s)) {
			kept_add(start, 5);
			step_s = dlb_units_step_s(&u, &m.p, 4, start, node);
			dlb_units_place(&u, &m.p, 4, start, node, at);
			struct dlb_problem q = m.p;
			struct dlb_error err;
			q.weight = other;
			if (dlb_problem_init(&q, &err))
				die(name, 0, &err);
			if (dlb_place_recut(&q, at, next))
				kept_add(next, m.d.g.n_ops);
			dlb_problem_release(&q);
		}
		for (int more = 90; more < 150; more += 20)
			for (int end = 0; end < 2; end++)
				if (dlb_units_fill(&u, &m.p, &parts, isfinite(s) ? s * more / 100 : 1, end,
						   start))
					kept_add(start, 5);
		kept_line(name, "%.5g s, step %.5g s", s, step_s);
	}
	kept_line(name, "bounds %.5g s, %.5g s", dlb_lower_bound_s(&m.p),
		  dlb_pool_bound_s(&m.p, m.p.class_count));
	dlb_units_release(&u);
	free(at);
	free(next);
	release(&m);
}

/* More than 500 ops, for which less is tried. */
static void many(void)
{
	static const struct world large = { { .seed = 7,
					      .n_forward = 206,
					      .chain = true,
					      .colocate = 1,
					      .cluster = "cpu:2 cpu:1*0.6 host cpu:3 link=rack:1e-6,1e9" },
					    2,
					    "1f1b" };

	shared(&large, &variants[5], &ways[0]);
	scheduled(&large, &variants[5], 0, false);
	cuts(&large, &variants[2]);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(worlds); i++)
		for (int j = 0; j < DLB_LEN(variants); j++) {
			for (int k = 0; k < DLB_LEN(ways); k++)
				if ((i + j + k) % 5 == 0)
					shared(&worlds[i], &variants[j], &ways[k]);
			if ((i + j) % 3 == 0 && i < 2)
				scheduled(&worlds[i], &variants[j], (i + j) % 2 ? 2 : i, j % 2);
			cuts(&worlds[i], &variants[j]);
		}
	many();
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
