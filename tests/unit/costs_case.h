/* A random training graph with work in FLOP and bytes, a cluster of several kinds, memories and hosts, a
 * profile that measured some of its ops, and the costs that are fitted to them. */
#ifndef DLB_TESTS_COSTS_CASE_H
#define DLB_TESTS_COSTS_CASE_H
#include <jansson.h>
#include "check.h"
#include "kept.h"
#include "random_dag.h"
#include "graph/graph_json.h"

struct costs {
	struct dag d;
	struct dlb_profile p;
};

static inline void costs_must(int bad, const struct dlb_error *err)
{
	if (!bad)
		return;
	fprintf(stderr, "%s: %s\n", err->where, err->what);
	abort();
}

/* Seeds 13 to 15: no FLOP, no bytes, or neither, and so without rates that measurements show. */
static inline void costs_work(struct dlb_graph *g, struct dlb_rng *r, uint64_t seed)
{
	static const char *const types[] = { "Conv", "MatMul", "Relu", "Add", "MaxPool", "Softmax" };

	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_op *o = &g->op[i];

		if (o->phase != DLB_UPDATE)
			o->type = types[dlb_rng_below(r, 6)];
		o->flop = floor(exp(18 * dlb_rng_uniform(r)));
		o->bytes = floor(exp(14 * dlb_rng_uniform(r)));
		o->flop_fixed = dlb_rng_below(r, 3) ? 0 : floor(1e5 * dlb_rng_uniform(r));
		o->bytes_fixed = floor(1e5 * dlb_rng_uniform(r));
		if (seed == 13 || seed == 15)
			o->flop = o->flop_fixed = 0;
		if (seed == 14 || seed == 15)
			o->bytes = o->bytes_fixed = 0;
	}
}

static inline void costs_cluster(struct dlb_cluster *c)
{
	static const char *without[] = { "MaxPool", "loss" };
	static struct dlb_efficiency efficiency[] = { { "conv", 0.5, 0.25 }, { "dense", 0.75, 0.8 } };
	const int m = dlb_cluster_add_memory(c, c->node[0].group, "near", "dram", 4e9),
		  far = dlb_cluster_add_memory(c, c->node[0].group, "far", "cxl", 3e10),
		  file = dlb_cluster_add_memory(c, c->node[0].group, "disk", "file", 1e11);

	c->memory[m].bandwidth_Bps = 2e10;
	c->memory[m].latency_s = 1e-7;
	c->memory[m].os_index = 1;
	c->memory[far].bandwidth_Bps = 5e9;
	c->memory[far].count = 2;
	c->memory[far].link = dlb_cluster_add_link(c, "port", "cxl");
	c->link[c->memory[far].link].bandwidth_Bps = 4e9;
	c->link[c->memory[far].link].duplex = !c->link[c->memory[far].link].overlap;
	c->memory[file].folder = "spill";
	c->node[0].memory[0] = m;
	c->node[0].memory[1] = far;
	c->node[0].n_memories = 2;
	c->node[1].memory[0] = far;
	c->node[1].n_memories = 1;
	c->memory[far].users = 2;
	c->memory[m].users = 1;
	c->node[c->n_nodes - 1].memory_bytes = 7e9;
	c->kind[1].without = without;
	c->kind[1].n_without = 2;
	c->kind[1].launch_s = 3e-6;
	c->kind[1].device = "a device";
	c->kind[1].peak_flops = 4e11;
	c->kind[1].bandwidth_Bps = 3e10;
	c->kind[1].peak_bf16_flops = 8e11;
	c->kind[2].memory_bytes = 5e9;
	c->kind[2].efficiency = efficiency;
	c->kind[2].n_efficiency = 2;
	c->group[0].processor = "a processor";
	c->group[0].cores = 16;
	dlb_cluster_add_host(c, "h0", "h0.site", "me", 4);
	dlb_cluster_add_host(c, "h1", "10.0.0.2", NULL, 2);
}

/* Times of some ops on the first kind, fewer on the third: those of a roofline, with noise. */
static inline void costs_measure(struct costs *x, struct dlb_rng *r, uint64_t seed)
{
	struct dlb_profile *p = &x->p;
	const struct dlb_graph *g = &x->d.g;

	dlb_profile_init(p, g, g->batch);
	for (int k = 0; k < 3; k += 2) {
		const int at = dlb_profile_add_kind(p, x->d.cl.kind[k].name);
		const double rate = k ? 6e10 : 3e10, Bps = k ? 9e9 : 6e9;

		p->peak_flops[at] = seed % 3 && seed < 13 ? 2 * rate : 0;
		p->bandwidth_Bps[at] = seed % 2 && seed < 13 ? 1.5 * Bps : 0;
		p->step_s[at] = 0.125 * (k + 1);
		p->step_spread[at] = k ? 0.0625 : NAN;
		p->step_overhead_s[at] = k ? NAN : 3e-5;
		for (int i = 0; i < p->n_rows; i++) {
			struct dlb_profile_row *row = &p->row[i];
			const struct dlb_op *o = &g->op[row->op[0]];
			const bool missing = dlb_rng_below(r, k ? 2 : 5) == 0,
				   none = dlb_rng_below(r, 25) == 0;

			row->workspace_bytes[at] = 64 * (double)dlb_rng_below(r, 9);
			for (int b = 0; b < p->n_batches; b++) {
				const double n = (double)p->batch[b];
				const double s = 2e-6 + fmax((o->flop * n + o->flop_fixed) / rate,
							     (o->bytes * n + o->bytes_fixed) / Bps);

				row->time_s[at][b] = none ? INFINITY :
						     missing || dlb_rng_below(r, 8) == 0 ?
							    NAN :
							    s * (0.8 + 0.4 * dlb_rng_uniform(r));
				row->scratch_bytes[at][b] = 128 * (double)dlb_rng_below(r, 4);
				row->packed_bytes[at][b] = i % 2 ? 256 : 64 * (double)b;
			}
		}
	}
}

static inline void costs_init(struct costs *x, uint64_t seed)
{
	struct dag_options o = { .seed = seed,
				 .n_forward = 5 + (int)(seed % 9),
				 .training = true,
				 .colocate = .5,
				 .cluster = "cpu:2 cpu/4:1 host cpu/2:2*0.5 link=rack:1e-5,1e9",
				 .batch = 16 << seed % 3 };
	struct dlb_error err = { .what = "" };
	struct dlb_rng r;

	dlb_rng_init(&r, seed + 100);
	dag_init(&x->d, &o);
	dlb_cost_release(&x->d.c);
	costs_work(&x->d.g, &r, seed);
	costs_cluster(&x->d.cl);
	costs_must(dlb_cluster_check(&x->d.cl, &err), &err);
	costs_measure(x, &r, seed);
	costs_must(dlb_cost_fit(&x->d.c, &x->d.g, seed % 4 ? &x->p : NULL, &x->d.cl, &err), &err);
}

static inline void costs_release(struct costs *x)
{
	dlb_profile_release(&x->p);
	dag_release(&x->d);
}
#endif
