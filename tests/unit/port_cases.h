/* Random networks under the port model, for tests of placement. */
#ifndef DLB_TESTS_PORT_CASES_H
#define DLB_TESTS_PORT_CASES_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "convert/convert.h"
#include "graph/graph_json.h"
#include "place/place.h"
#include "place/problem.h"
#include "plan/schedule.h"
#include "util/rng.h"
#include "check.h"

struct net {
	struct dlb_network n;
	struct dlb_vertex v[64];
	struct dlb_edge e[256];
	char name[64][16];
};
struct made {
	struct dlb_doc d;
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_cost c;
	struct dlb_problem p;
};

static inline void draw(struct net *t, struct dlb_rng *r, int n, bool training)
{
	memset(t, 0, sizeof *t);
	t->n = (struct dlb_network){ .vertex = t->v,
				     .edge = t->e,
				     .n_vertices = n,
				     .n_accelerators = 1 + (int)dlb_rng_below(r, 2),
				     .n_hosts = (int)dlb_rng_below(r, 2) };
	if (t->n.n_accelerators == 1)
		t->n.n_hosts = 1 + (int)dlb_rng_below(r, 2);
	double total = 0;
	for (int i = 0; i < n; i++) {
		struct dlb_vertex *v = &t->v[i];
		snprintf(t->name[i], sizeof t->name[i], "v%d", i);
		*v = (struct dlb_vertex){ .name = t->name[i],
					  .id = 100 - i,
					  .colour = dlb_rng_below(r, 3) ?
							    -1 :
							    (int)dlb_rng_below(r, n < 3 ? (uint64_t)n : 3) };
		v->accelerator_s = dlb_rng_below(r, 4) ? dlb_rng_uniform(r) : 0;
		v->host_s = v->accelerator_s * 10 * dlb_rng_uniform(r);
		v->size_bytes = dlb_rng_below(r, 3) ? floor(100 * dlb_rng_uniform(r)) : 0;
		v->output_s = dlb_rng_below(r, 3) ? 0.5 * dlb_rng_uniform(r) : 0;
		v->output_bytes = 8;
		v->backward = training && i >= n / 2;
		if (t->n.n_hosts && dlb_rng_below(r, 8) == 0)
			v->accelerator_s = INFINITY;
		total += v->size_bytes;
	}
	for (int i = 1; i < n; i++) {
		int k = (int)dlb_rng_below(r, 3); /* also isolated ops, repeated edges and loops */
		for (int j = 0; j < k; j++)
			t->e[t->n.n_edges++] = (struct dlb_edge){ (int)dlb_rng_below(r, (uint64_t)i), i };
		if (dlb_rng_below(r, 6) == 0)
			t->e[t->n.n_edges++] = (struct dlb_edge){ i, i };
	}
	t->n.memory_bytes = dlb_rng_below(r, 2) ? total + 1 : total * (0.3 + 0.7 * dlb_rng_uniform(r)) + 1;
}

static inline void make(struct made *m, const struct net *t, enum dlb_objective goal, uint64_t seed)
{
	struct dlb_error err = { .what = "" };
	memset(m, 0, sizeof *m);
	dlb_doc_init(&m->d, "test");
	int bad = dlb_network_import(&t->n, &m->d, &err) || dlb_graph_read(&m->d, &m->g, &err) ||
		  dlb_cluster_read(&m->d, &m->cl, &err) || dlb_cost_read(&m->d, &m->g, &m->cl, &m->c, &err);
	m->p = (struct dlb_problem){ .graph = &m->g,
				     .cluster = &m->cl,
				     .cost = &m->c,
				     .micro_batches = 1,
				     .batch = 1,
				     .schedule = dlb_schedules,
				     .seed = seed,
				     .objective = goal,
				     .effort = 1 };
	if (bad || dlb_problem_init(&m->p, &err)) {
		fprintf(stderr, "seed %llu: %s %s\n", (unsigned long long)seed, err.where, err.what);
		abort();
	}
}

static inline void release(struct made *m)
{
	dlb_problem_release(&m->p);
	dlb_cost_release(&m->c);
	dlb_cluster_release(&m->cl);
	dlb_graph_release(&m->g);
	dlb_doc_release(&m->d);
}

/* Sets the edges of two modules: branches of one or two ops that leave an op and join again. */
static inline void set_modules(struct net *t, bool nested)
{
	static const struct dlb_edge two[] = { { 0, 1 }, { 0, 2 }, { 1, 3 }, { 2, 3 },
					       { 3, 4 }, { 3, 5 }, { 4, 6 }, { 5, 6 } },
				     in_one[] = { { 0, 1 }, { 1, 2 }, { 1, 3 }, { 2, 4 },
						  { 3, 4 }, { 0, 5 }, { 4, 6 }, { 5, 6 } };

	t->n.n_edges = DLB_LEN(two);
	memcpy(t->e, nested ? in_one : two, sizeof two);
}
#endif
