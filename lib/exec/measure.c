/* Real steps of the whole graph on one node, timed op by op, for dlb-profile. Ops are measured in graph
 * order, with the caches in the state that the preceding ops left: an op repeated on its own runs up to twice
 * as fast.
 *
 * If a back end records kernels, a run replays them without the gaps between launches, which take longer than
 * small kernels. So ops are measured in a replay, with a mark after each op. The time that the marks add is
 * known from a replay without marks; it is subtracted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/data.h"
#include "exec/feed.h"
#include "exec/job.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "plan/tensors.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/memory.h"
#include "util/stats.h"

struct dlb_measurement {
	struct dlb_plan plan;
	struct dlb_program program;
	struct dlb_backend *be;
	struct dlb_comm *comm;
	struct dlb_state state;
	struct dlb_runtime runtime;
	struct dlb_engine *engine;
	struct dlb_data *data;
	struct dlb_fed fed;
	int n_steps;				/* run so far */
	double *sample; int n_samples;		/* [repeat][compute]: seconds */
};

/* A plan with all ops on node 0 in graph order, one micro-batch. */
static int plan_one_node(struct dlb_measurement *m, const struct dlb_graph *g, int64_t n,
			 struct dlb_error *err)
{
	dlb_plan_init(&m->plan, g->n_ops, 1);
	m->plan.graph = g;
	m->plan.batch = n;
	m->plan.micro_batches = 1;
	for (int i = 0; i < g->n_ops; i++)
		m->plan.placement[i] = 0;
	m->plan.node[0].order = dlb_arena_array(&m->plan.arena, (size_t)g->n_ops + 1,
						sizeof *m->plan.node[0].order);
	m->plan.node[0].n_order = g->n_ops;
	for (int i = 0; i < g->n_ops; i++)
		m->plan.node[0].order[i] = (struct dlb_item){
			.op = i, .micro_batch = g->op[i].phase == DLB_UPDATE ? -1 : 0
		};
	return dlb_program_compile(&m->plan, NULL, n, 0, &m->program, err);
}

/* Fills the weights with their data or, if they have none, with drawn values: zeros and denormals would
 * change times. */
static int fill_state(struct dlb_measurement *m, const struct dlb_graph *g, struct dlb_error *err)
{
	(void)err;
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		struct dlb_desc d;
		void *fresh;

		if (!m->state.value[t])
			continue;
		d = dlb_tensor_desc(x, 1);
		if (x->data) {
			m->be->ops->upload(m->be, m->state.value[t], x->data, dlb_desc_bytes(&d));
			continue;
		}
		fresh = dlb_xmalloc(dlb_desc_bytes(&d) + 1);
		dlb_weight_draw(g, t, 1, fresh);
		m->be->ops->upload(m->be, m->state.value[t], fresh, dlb_desc_bytes(&d));
		free(fresh);
	}
	return 0;
}

static int fill_inputs(struct dlb_measurement *m, const struct dlb_graph *g, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(m->engine);

	if (dlb_data_open(&m->data, &(struct dlb_data_choice){ .spec = "random", .seed = 1 }, g, err))
		return -1;
	m->fed.base = dlb_samples_alloc(m->be, v->feed_bytes + 64, err);
	if (!m->fed.base)
		return -1;
	m->fed.seed = dlb_xcalloc(1, sizeof(double));
	m->fed.seed[0] = 1.0;
	for (int i = 0; i < v->n_feed; i++)
		if (dlb_data_fill(m->data, v->feed[i].tensor, 0, v->feed[i].first, v->feed[i].n,
				  m->fed.base + v->feed[i].offset, err))
			return -1;
	return 0;
}

void dlb_measurement_free(struct dlb_measurement *m)
{
	if (!m)
		return;
	dlb_engine_free(m->engine);
	dlb_data_close(m->data);
	dlb_samples_free(m->be, m->fed.base);
	free(m->fed.seed);
	dlb_runtime_release(&m->runtime);
	dlb_state_release(&m->state);
	dlb_comm_free(m->comm);
	dlb_program_release(&m->program);
	dlb_plan_release(&m->plan);
	free(m->sample);
	free(m);
}

static int make_ready(struct dlb_measurement *m, const struct dlb_graph *g, struct dlb_backend *be, int64_t n,
		      struct dlb_error *err)
{
	const struct dlb_optimizer_choice sgd = { .rule = DLB_RULE_SGD };
	const double free_bytes = 0.9 * dlb_memory_free_bytes(); /* less a reserve */
	const struct dlb_node_program *np;

	m->be = be;
	if (dlb_comm_new_alone(&m->comm, err) || plan_one_node(m, g, n, err))
		return -1;
	np = &m->program.node[0];
	if ((double)np->arena_bytes + (double)np->state_bytes > free_bytes)
		return dlb_fail(err, NULL, "a step of %lld samples needs %zu bytes, %.0f are free",
				(long long)n, np->arena_bytes + np->state_bytes, free_bytes);
	if (dlb_state_init(&m->state,
			   &(struct dlb_local_graph){ .graph = g, .be = be, .placement = m->plan.placement },
			   DLB_RULE_SGD, false, NULL, err) ||
	    fill_state(m, g, err))
		return -1;
	m->runtime = (struct dlb_runtime){
		.be = be, .comm = m->comm, .state = &m->state, .slow.factor = 1.0, .partial = true
	};
	if (dlb_runtime_ready(&m->runtime, np->arena_bytes, NULL, 0, 0, err) ||
	    dlb_engine_new(&m->engine, &m->runtime, &m->program, 0, &sgd, NULL, err))
		return -1;
	return fill_inputs(m, g, err);
}

int dlb_measurement_open(const struct dlb_graph *g, struct dlb_backend *be, int64_t n,
			 struct dlb_measurement **out, struct dlb_error *err)
{
	*out = dlb_xcalloc(1, sizeof **out);
	if (make_ready(*out, g, be, n, err) == 0)
		return 0;
	dlb_measurement_free(*out);
	*out = NULL;
	return -1;
}

/* Seconds of an op without its mark, but at least s / 4: mark_s is the mean of marks that take unequal
 * times. */
static double least_share(double s, double mark_s) { return fmax(s - mark_s, s / 4); }

/* Runs one step; timed: also times each replayed op. */
static int run_step(struct dlb_measurement *m, bool timed, struct dlb_error *err)
{
	const struct dlb_step step = { .step = m->n_steps,
				       .seed = 1,
				       .version = (uint64_t)m->n_steps + 1,
				       .fed = &m->fed,
				       .replay = true,
				       .timed = timed };

	m->n_steps++;
	return dlb_engine_run(m->engine, &step, err);
}

/* Runs a timed step. *mark_s: seconds that the marks of its replay add to each op, known from a step before
 * it that is replayed without marks; 0: nothing is replayed. */
static int time_step(struct dlb_measurement *m, double *mark_s, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(m->engine);
	const int n = v->replayed.ops;
	double whole_s;

	if (n && run_step(m, false, err))
		return -1;
	whole_s = v->times.busy_s;
	if (run_step(m, true, err))
		return -1;
	*mark_s = n ? fmax(v->times.busy_s - whole_s, 0) / n : 0;
	return 0;
}

int dlb_measurement_run(struct dlb_measurement *m, int warm_up, int repeats, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(m->engine);
	const size_t n = (size_t)v->n_computes;

	m->sample = dlb_xrealloc(m->sample, n * (size_t)(m->n_samples + repeats) + 1, sizeof *m->sample);
	for (int k = 0; k < warm_up; k++)
		if (run_step(m, true, err))
			return -1;
	for (int k = 0; k < repeats; k++) {
		double *sample = m->sample + n * (size_t)m->n_samples, mark_s;

		if (time_step(m, &mark_s, err))
			return -1;
		for (size_t i = 0; i < n; i++)
			sample[i] = least_share(v->end_s[i] - v->start_s[i],
						v->is_replayed && v->is_replayed[i] ? mark_s : 0);
		m->n_samples++;
	}
	return 0;
}

/* Runs one step with samples of `feed`, after requesting the next samples. *s: seconds of the step outside
 * ops. */
static int time_overhead(struct dlb_measurement *m, struct dlb_feed *feed, double *s, struct dlb_error *err)
{
	const struct dlb_fed *fed;
	struct dlb_error why;
	double start_s;
	int wrong;

	if (dlb_feed_take(feed, &fed, &wrong, &why, err))
		return -1;
	if (wrong) {
		*err = why;
		return -1;
	}
	m->fed.base = fed->base;
	start_s = dlb_clock_s();
	if (dlb_feed_ask(feed, 0, 0, 0, err) || run_step(m, true, err))
		return -1;
	*s = dlb_clock_s() - start_s - dlb_engine_view(m->engine)->times.busy_s;
	return 0;
}

int dlb_measurement_overhead(struct dlb_measurement *m, int n, double *s, struct dlb_error *err)
{
	const struct dlb_fed_engines fed = { .engine = &m->engine, .n = 1, .slots = 2, .be = m->be };
	double *x = dlb_xcalloc((size_t)n, sizeof *x);
	char *own = m->fed.base;
	struct dlb_feed *feed = NULL;
	int rc = dlb_feed_new(&feed, m->data, &fed, NULL, err) || dlb_feed_ask(feed, 0, 0, 0, err) ? -1 : 0;

	for (int k = 0; k < n && !rc; k++)
		rc = time_overhead(m, feed, &x[k], err);
	m->fed.base = own;
	dlb_feed_free(feed);
	*s = rc ? NAN : fmax(0, dlb_quantile(x, n, 0.25)); /* low: other processes interrupt some steps */
	free(x);
	return rc;
}

double dlb_measurement_last_s(const struct dlb_measurement *m, int n)
{
	const int n_ops = dlb_engine_view(m->engine)->n_computes;
	const double *sample = m->sample + (size_t)(m->n_samples - n) * (size_t)n_ops;
	double *step_s = dlb_xcalloc((size_t)n, sizeof *step_s);

	for (int k = 0; k < n; k++)
		for (int i = 0; i < n_ops; i++)
			step_s[k] += *sample++;
	const double s = dlb_median(step_s, n);
	free(step_s);
	return s;
}

void dlb_measurement_medians(const struct dlb_measurement *m, double *op_s, double *scratch_bytes,
			     double *packed_bytes)
{
	const struct dlb_engine_program *v = dlb_engine_view(m->engine);
	const struct dlb_graph *g = m->plan.graph;
	double *x = dlb_xcalloc((size_t)m->n_samples + 1, sizeof *x);

	for (int i = 0; i < g->n_ops; i++) {
		op_s[i] = dlb_graph_is_view(g, i) ? 0.0 : v->left_out[i] ? INFINITY : NAN;
		if (scratch_bytes)
			scratch_bytes[i] = 0.0;
		if (packed_bytes)
			packed_bytes[i] = 0.0;
	}
	for (int i = 0; i < v->n_computes && m->n_samples; i++) {
		int op = v->compute_op[i];

		for (int k = 0; k < m->n_samples; k++)
			x[k] = m->sample[(size_t)k * (size_t)v->n_computes + (size_t)i];
		op_s[op] = dlb_median(x, m->n_samples);
		if (scratch_bytes)
			scratch_bytes[op] = (double)dlb_engine_kernel(m->engine, i)->scratch_bytes;
		if (packed_bytes)
			packed_bytes[op] = (double)dlb_engine_kernel(m->engine, i)->packed_bytes;
	}
	free(x);
}
