/* Kept programs and simulated steps of random plans that differ in more than test_program_kept's: three and four
 * replicas of unequal speed, some without samples; servers of weights, averages, moments; tensors without bytes,
 * ops without time, all times equal; other weights for updates, orders under weights of nodes, states, weights
 * and activations in other memories; short last batches. kept.h says how they are replaced. */
#include "check.h"
#include "kept.h"
#include "random_dag.h"
#include "plan/again.h"
#include "plan/bucket_cost.h"
#include "plan/async.h"
#include "plan/offload.h"
#include "plan/print.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "plan/timeline.h"

enum { PLANS = 220, NODES = 4 };
static const char *const kept[] = {
#include "program_wide_kept.inc"
};
static const char *const clusters[] = { "cpu:2 cpu/2:2*0.5", "cpu:1 host cpu:3*0.7 link=rack:1e-5,1e7",
					"2(rack 2(host cpu:1)) link=rack:1e-5,2e7 link=site:5e-4,1e6",
					"2(host cpu:2) link=shm:1e-6,1e9 link=rack:3e-5,5e6" };
static const char *const sums[] = {
	"ring", "tree", "host", "doubling", "hierarchical", "hierarchical", "auto"
};
static const char *const compressions[] = { "none", "bf16", "lowrank:2", "lowrank:1", "cholesky:0.5" };
static const int teams[][4 * NODES] = { { 0, -1, 2, -1, 1, -1, 3, -1 },
					{ -1, -1, -1, 3, -1, -1, -1, 1, -1, -1, -1, 0 },
					{ 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1 },
					{ -1, 1, 2, -1, -1, 0, 3, -1 } };
static const int n_teams[] = { 2, 3, 4, 2 };
static const struct dlb_offload_rule rules[] = { { "w*", "far", DLB_OFFLOAD_STATES },
						 { "w*", "far", DLB_OFFLOAD_WEIGHTS },
						 { "f*", "far", DLB_OFFLOAD_ACTIVATIONS },
						 { "*1", "disk", DLB_OFFLOAD_STATES } };

static int below(struct dlb_rng *r, int n) { return (int)dlb_rng_below(r, (uint64_t)n); }

/* The shape of a weight, and that of its gradient. size 1: a sum of its own; 2: a few elements. */
static void set_shape(struct dlb_graph *g, int t, int size)
{
	struct dlb_tensor *x = &g->tensor[t];

	if (x->kind == DLB_T_WEIGHT) {
		const int64_t n = size == 1 ? (int64_t)x->size_add / 4 * 301 :
				  size == 2 ? 1 + (int64_t)x->size_add / 4 % 9 :
					      (int64_t)x->size_add / 4;
		const int64_t rows = n % 7 == 0 ? 7 : n % 2 == 0 ? 2 : 1;

		x->n_dims = n % 5 ? 2 : 1;
		x->dim[0] = (struct dlb_dim){ 0, n % 5 ? rows : n };
		x->dim[1] = (struct dlb_dim){ 0, n / rows };
		x->size_add = 4 * (double)n;
	} else if (x->kind == DLB_T_WEIGHT_GRADIENT) {
		const struct dlb_tensor *w = &g->tensor[x->of];

		x->n_dims = w->n_dims;
		memcpy(x->dim, w->dim, sizeof x->dim);
		x->size_add = w->size_add;
	} else {
		return;
	}
	x->dtype = DLB_F32;
}

/* Times and sizes that are equal, or nothing. */
static void change_costs(struct dag *d, struct dlb_rng *r)
{
	const int how = below(r, 4);

	for (int i = 0; i < d->g.n_ops; i++)
		for (int k = 0; k < d->cl.n_kinds; k++)
			for (int b = 0; b < d->c.n_batches; b++) {
				double *s = &d->c.op_s[(k * d->c.n_ops + i) * d->c.n_batches + b];

				*s = how == 1 ? ldexp((double)d->c.batch[b], -14) :
						ldexp(rint(ldexp(*s, 30)), -30);
				if (how == 2 && i % 3 == 0)
					*s = 0;
			}
	const int size = below(r, 4);

	for (int t = 0; t < d->g.n_tensors; t++) {
		set_shape(&d->g, t, size);
		if (how == 1 && d->g.tensor[t].size_mul > 0)
			d->g.tensor[t].size_mul = 4096;
		if (how == 3 && d->g.tensor[t].kind == DLB_T_ACTIVATION && t % 3 == 0 && t != d->g.loss)
			d->g.tensor[t].size_mul = 0;
	}
}

static void share(struct dlb_plan *p, struct dlb_rng *r, bool async)
{
	struct dlb_sharing *s = &p->sharing;
	const int k = below(r, DLB_LEN(n_teams));

	dlb_plan_set_replicas(p, n_teams[k], teams[k]);
	s->allreduce = sums[below(r, DLB_LEN(sums))];
	s->zero = async || below(r, 2) ? 0 : 1 + below(r, 3);
	if (s->zero > 1 && below(r, 2))
		p->micro_batches = 1;
	s->feed_host = below(r, 3) == 0;
	s->by_power = below(r, 2);
	if (s->by_power) {
		p->power = dlb_arena_array(&p->arena, NODES, sizeof *p->power);
		for (int i = 0; i < n_teams[k]; i++)
			p->power[i] = 1 + below(r, 9);
	}
	switch (s->zero ? 9 : below(r, 6)) {
	case 0:
		s->param_server = below(r, NODES);
		break;
	case 1:
		s->gossip = .25;
		break;
	case 2:
		s->reduce = "moments:mean";
		break;
	case 3:
		s->sync_every = 3;
		break;
	case 4:
		s->sync = true;
		break;
	default:
		break;
	}
	if (!async)
		strcpy(s->compress, compressions[below(r, DLB_LEN(compressions))]);
}

static void run_again(struct dlb_plan *p, const struct dag *d, struct dlb_rng *r)
{
	p->again = dlb_arena_array(&p->arena, (size_t)p->n_ops + 1, sizeof *p->again);
	for (int i = 0; i < p->n_ops; i++)
		p->again[i] = d->g.op[i].phase == DLB_FORWARD && below(r, 3) == 0;
	for (int i = 0; i < p->n_ops; i++)
		if (p->again[i] && !dlb_plan_needs_again(p, &d->g, i)) {
			p->again[i] = false;
			i = -1;
		}
}

static void choose(struct dlb_plan *p, const struct dag *d, struct dlb_rng *r)
{
	const struct dlb_schedule *rule;
	int n = 0, *group = malloc((size_t)d->g.n_ops * sizeof *group);
	const int parts = 1 + below(r, 4);

	while (dlb_schedules[n].name)
		n++;
	rule = &dlb_schedules[below(r, n)];
	p->graph = &d->g;
	p->batch = d->g.batch;
	p->micro_batches = 1 + below(r, 6);
	p->schedule = rule->name;
	p->in_place = below(r, 3) > 0;
	p->clip = below(r, 3) == 0;
	p->in_flight = below(r, 3) ? 0 : 1 + below(r, 2);
	p->updates_first = below(r, 3) == 0;
	if (below(r, 2))
		share(p, r, rule->async);
	dlb_graph_groups(&d->g, group);
	for (int i = 0; i < d->g.n_ops; i++) {
		const int part = group[i] < i ? -1 : below(r, parts);

		p->placement[i] = group[i] < i ? p->placement[group[i]] : part;
		while (p->n_replicas > 1 && p->replica[0][p->placement[i]] < 0)
			p->placement[i] = (p->placement[i] + 1) % NODES;
	}
	free(group);
	if (!rule->async && below(r, 3) == 0)
		run_again(p, d, r);
	if (!rule->async && below(r, 3) == 0) {
		p->offload.rule = &rules[below(r, 4)];
		p->offload.n = 1;
	}
	if (rule->async)
		p->staleness = (enum dlb_staleness)below(r, DLB_N_STALENESS);
	kept_text(rule->name);
}

static void add_times(const struct dlb_timeline *t)
{
	for (int n = 0; n < NODES; n++) {
		const struct dlb_node_times *x = &t->node[n];
		const double times[] = { x->busy_s,
					 x->wait_s,
					 x->waits_s[0],
					 x->waits_s[1],
					 x->waits_s[2],
					 x->bytes_sent,
					 x->copy_s,
					 x->comm_s,
					 x->comm_hidden_s,
					 x->sum_s[DLB_SUM_GRADIENT],
					 x->sum_s[DLB_SUM_SMALL],
					 x->sum_s[DLB_SUM_WEIGHTS],
					 x->sum_wait_s[DLB_SUM_GRADIENT],
					 x->sum_wait_s[DLB_SUM_SMALL],
					 x->sum_wait_s[DLB_SUM_WEIGHTS],
					 x->command_s };

		for (int i = 0; i < DLB_LEN(times); i++)
			kept_real(times[i]);
		for (int i = 0; i < t->n_spans[n]; i++) {
			kept_add((const int[]){ t->span[n][i].op, t->span[n][i].micro_batch }, 2);
			kept_real(t->span[n][i].start_s);
		}
	}
	kept_real(t->fill_s);
}

/* To nine digits, so that one element more or less shows. */
static void add_exactly(double x)
{
	char text[32];

	snprintf(text, sizeof text, "%.9g", x);
	kept_text(text);
}

/* Seconds of every sum by itself, and the bytes that nodes send for sums. */
static void add_sums(const struct dlb_program *g, const struct dlb_plan *p, const struct dlb_cost *c)
{
	for (int n = 0; n < NODES && p->n_replicas > 1; n++) {
		double bytes[DLB_N_SUM_CLASSES] = { 0 }, dense[DLB_N_SUM_CLASSES] = { 0 };

		for (int b = 0; p->replica[0][n] >= 0 && b < g->node[n].n_buckets; b++)
			add_exactly(dlb_plan_bucket_s(g, c, n, b));
		dlb_plan_sum_bytes(g, c->cluster, n, bytes, dense);
		for (int k = 0; k < DLB_N_SUM_CLASSES; k++) {
			add_exactly(bytes[k]);
			add_exactly(dense[k]);
		}
	}
}

/* The program for the full batch, or for a short last one. */
static void keep_program(const char *name, const struct dlb_plan *p, const struct dag *d, int64_t batch,
			 int n_state, uint64_t seed)
{
	struct dlb_program g;
	struct dlb_timeline t;
	struct dlb_error err = { .what = "" };
	char *text = NULL;
	size_t length, bytes = 0;

	if (dlb_program_compile(p, &d->c, batch, n_state, &g, &err)) {
		kept_line(name, "%s: %s", err.where, err.what);
		return;
	}
	FILE *f = open_memstream(&text, &length);
	dlb_program_print(&g, f);
	fclose(f);
	kept_text(text);
	free(text);
	int n_instr = 0;
	for (int n = 0; n < NODES; n++) {
		const struct dlb_node_program *np = &dlb_program_of(&g, n)->node[n];

		n_instr += np->n_instr;
		bytes += np->arena_bytes;
		kept_real((double)np->bound_bytes);
		kept_real((double)np->scratch_bytes);
		kept_real((double)np->state_bytes);
	}
	add_sums(&g, p, &d->c);
	const struct dlb_simulate_choice how = { .keep_spans = true,
						 .jitter = seed % 5 ? 0 : .1,
						 .seed = seed };
	if (dlb_program_simulate(&g, &d->c, &how, &t, &err)) {
		kept_line(name, "%s: %s", err.where, err.what);
	} else {
		add_times(&t);
		kept_line(name, "%d instructions, %zu bytes, %.4g s", n_instr, bytes, t.step_s);
		dlb_timeline_release(&t, NODES);
	}
	dlb_program_release(&g);
}

static void one(uint64_t seed)
{
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_error err = { .what = "" };
	double scale[NODES];
	char name[80];

	dlb_rng_init(&r, seed + 900);
	const struct dag_options o = { .seed = seed,
				       .n_forward = 1 + below(&r, 11),
				       .training = seed % 7 != 0,
				       .chain = below(&r, 2),
				       .colocate = dlb_rng_uniform(&r),
				       .cluster = clusters[below(&r, DLB_LEN(clusters))],
				       .batch = 4 + below(&r, 13) };
	dag_init(&d, &o);
	change_costs(&d, &r);
	int root = d.cl.node[0].group;
	while (root >= 0 && d.cl.group[root].parent >= 0)
		root = d.cl.group[root].parent;
	for (int k = 0; k < 2; k++) {
		const int m = dlb_cluster_add_memory(&d.cl, root, k ? "disk" : "far", k ? "file" : "cxl",
						     1e12);
		d.cl.memory[m].bandwidth_Bps = k ? 1e8 : 2e9;
		d.cl.memory[m].latency_s = k ? 1e-4 : 0;
		if (k)
			d.cl.memory[m].folder = "spill";
	}
	dlb_plan_init(&p, d.g.n_ops, NODES);
	choose(&p, &d, &r);
	for (int n = 0; n < NODES; n++)
		scale[n] = 0.5 + 0.25 * below(&r, 4);
	snprintf(name, sizeof name, "%s M %d R %d zero %d%s%s", p.schedule, p.micro_batches, p.n_replicas,
		 p.sharing.zero, p.again ? " again" : "", p.offload.n ? " far" : "");
	if (dlb_plan_check_replicas(&p, &err)) {
		kept_line(name, "%s: %s", err.where, err.what);
	} else {
		if (p.offload.n)
			dlb_offload_mark(&p, &d.g);
		dlb_plan_choose_sums(&p, &d.c);
		kept_real(dlb_plan_order(&p, &d.c, below(&r, 2) ? scale : NULL));
		if (dlb_plan_check(&p, &d.c, &err)) {
			kept_line(name, "%s: %s", err.where, err.what);
		} else {
			keep_program(name, &p, &d, o.batch, below(&r, 3), seed);
			if (seed % 3 == 0 && o.batch > 2)
				keep_program(name, &p, &d, 1 + below(&r, (int)o.batch - 1), 1, seed);
		}
	}
	dlb_plan_release(&p);
	dag_release(&d);
}

int main(int argc, char **argv)
{
	for (uint64_t seed = 1; seed <= PLANS; seed++)
		one(seed);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
