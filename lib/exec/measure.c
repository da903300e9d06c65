/* A real step of the whole graph on one node, timed op by op: for dlb-profile. Ops are measured where they
 * will run, in graph order with the caches as the ops before left them: an op measured again and again on
 * its own reads up to twice too fast. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/job.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/stats.h"

struct dlb_measurement {
	struct dlb_plan plan;
	struct dlb_program program;
	struct dlb_backend *be;
	struct dlb_comm *comm;
	struct dlb_state state;
	struct dlb_ground ground;
	struct dlb_engine *engine;
	struct dlb_data *data;
	struct dlb_fed fed;
	int n_steps;				/* run so far */
	double *sample; int n_samples;		/* [repeat][compute]: seconds */
};

/* Plan: everything on node 0 in the order of the graph, one micro-batch. */
static int plan_one_node(struct dlb_measurement *b, const struct dlb_graph *g, int64_t n, struct dlb_error *err)
{
	dlb_plan_init(&b->plan, g->n_ops, 1);
	b->plan.graph = g;
	b->plan.batch = n;
	b->plan.micro_batches = 1;
	for (int i = 0; i < g->n_ops; i++)
		b->plan.placement[i] = 0;
	b->plan.node[0].order = dlb_arena_array(&b->plan.arena, (size_t)g->n_ops + 1, sizeof *b->plan.node[0].order);
	b->plan.node[0].n_order = g->n_ops;
	for (int i = 0; i < g->n_ops; i++)
		b->plan.node[0].order[i] = (struct dlb_item){ .op = i, .micro_batch = g->op[i].phase == DLB_UPDATE ? -1 : 0 };
	return dlb_program_compile(&b->plan, NULL, n, 0, &b->program, err);
}

/* Values do not matter much, but zeros and denormals do: weights as they are or drawn, inputs random. */
static int fill_state(struct dlb_measurement *b, const struct dlb_graph *g, struct dlb_error *err)
{
	(void)err;
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		struct dlb_desc d;
		void *fresh;

		if (!b->state.value[t])
			continue;
		d = dlb_tensor_desc(x, 1);
		if (x->data) {
			b->be->ops->upload(b->be, b->state.value[t], x->data, dlb_desc_bytes(&d));
			continue;
		}
		fresh = dlb_xmalloc(dlb_desc_bytes(&d) + 1);
		dlb_weight_draw(g, t, 1, fresh);
		b->be->ops->upload(b->be, b->state.value[t], fresh, dlb_desc_bytes(&d));
		free(fresh);
	}
	return 0;
}

static int fill_inputs(struct dlb_measurement *b, const struct dlb_graph *g, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(b->engine);

	if (dlb_data_open(&b->data, &(struct dlb_data_choice){ .spec = "random", .seed = 1 }, g, err))
		return -1;
	b->fed.base = dlb_xcalloc(v->feed_bytes + 64, 1);
	b->fed.seed = dlb_xcalloc(1, sizeof(double));
	b->fed.seed[0] = 1.0;
	for (int i = 0; i < v->n_feed; i++)
		if (dlb_data_fill(b->data, v->feed[i].tensor, 0, v->feed[i].first, v->feed[i].n, b->fed.base + v->feed[i].offset, err))
			return -1;
	return 0;
}

void dlb_measurement_free(struct dlb_measurement *b)
{
	if (!b)
		return;
	dlb_engine_free(b->engine);
	dlb_data_close(b->data);
	free(b->fed.base);
	free(b->fed.seed);
	dlb_ground_release(&b->ground);
	dlb_state_release(&b->state);
	dlb_comm_free(b->comm);
	dlb_program_release(&b->program);
	dlb_plan_release(&b->plan);
	free(b->sample);
	free(b);
}

/* What this host could still give, a little kept back. Infinity where the kernel does not say. */
static double free_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];
	double kb = HUGE_VAL;

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "MemAvailable: %lf kB", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return 0.9 * 1024.0 * kb;
}

static int make_ready(struct dlb_measurement *b, const struct dlb_graph *g, struct dlb_backend *be, int64_t n, struct dlb_error *err)
{
	const struct dlb_optimizer_choice sgd = { .rule = DLB_RULE_SGD };
	const struct dlb_node_program *np;

	b->be = be;
	if (dlb_comm_new_alone(&b->comm, err) || plan_one_node(b, g, n, err))
		return -1;
	np = &b->program.node[0];
	if ((double)np->arena_bytes + (double)np->state_bytes > free_bytes())
		return dlb_fail(err, NULL, "a step of %lld samples needs %zu bytes, %.0f are free", (long long)n,
				np->arena_bytes + np->state_bytes, free_bytes());
	if (dlb_state_init(&b->state, g, be, b->plan.placement, 0, DLB_RULE_SGD, false, NULL, err) || fill_state(b, g, err))
		return -1;
	b->ground = (struct dlb_ground){ .be = be, .comm = b->comm, .state = &b->state, .slow.factor = 1.0 };
	if (dlb_ground_ready(&b->ground, np->arena_bytes, NULL, 0, 0, err) ||
	    dlb_engine_new(&b->engine, &b->ground, &b->program, 0, &sgd, NULL, err))
		return -1;
	return fill_inputs(b, g, err);
}

int dlb_measurement_open(const struct dlb_graph *g, struct dlb_backend *be, int64_t n, struct dlb_measurement **out,
			 struct dlb_error *err)
{
	*out = dlb_xcalloc(1, sizeof **out);
	if (make_ready(*out, g, be, n, err) == 0)
		return 0;
	dlb_measurement_free(*out);
	*out = NULL;
	return -1;
}

int dlb_measurement_run(struct dlb_measurement *b, int warm_up, int repeats, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(b->engine);
	size_t n = (size_t)v->n_computes;

	b->sample = dlb_xrealloc(b->sample, n * (size_t)(b->n_samples + repeats) + 1, sizeof *b->sample);
	for (int k = 0; k < warm_up + repeats; k++) {
		const struct dlb_step step = { .step = b->n_steps, .seed = 1, .version = (uint64_t)b->n_steps + 1, .fed = &b->fed };

		if (dlb_engine_run(b->engine, &step, err))
			return -1;
		b->n_steps++;
		if (k < warm_up)
			continue;
		for (size_t i = 0; i < n; i++)
			b->sample[n * (size_t)b->n_samples + i] = v->end_s[i] - v->start_s[i];
		b->n_samples++;
	}
	return 0;
}

void dlb_measurement_medians(const struct dlb_measurement *b, double *op_s, double *scratch_bytes, double *packed_bytes)
{
	const struct dlb_engine_program *v = dlb_engine_view(b->engine);
	const struct dlb_graph *g = b->plan.graph;
	double *x = dlb_xcalloc((size_t)b->n_samples + 1, sizeof *x);

	for (int i = 0; i < g->n_ops; i++) {
		op_s[i] = dlb_graph_is_view(g, i) ? 0.0 : NAN;
		if (scratch_bytes)
			scratch_bytes[i] = 0.0;
		if (packed_bytes)
			packed_bytes[i] = 0.0;
	}
	for (int i = 0; i < v->n_computes && b->n_samples; i++) {
		int op = v->compute_op[i];

		for (int k = 0; k < b->n_samples; k++)
			x[k] = b->sample[(size_t)k * (size_t)v->n_computes + (size_t)i];
		op_s[op] = dlb_median(x, b->n_samples);
		if (scratch_bytes)
			scratch_bytes[op] = (double)dlb_engine_kernel(b->engine, i)->scratch_bytes;
		if (packed_bytes)
			packed_bytes[op] = (double)dlb_engine_kernel(b->engine, i)->packed_bytes;
	}
	free(x);
}
