/* Kernels of a device that are recorded once and replayed. See step_ops.h. */
#include <string.h>
#include "exec/runtime.h"
#include "exec/step_ops.h"
#include "util/mem.h"

enum { LEAST_KERNELS = 2 };

/* Whether the kernel queues the same work in every step, except for numbers that are renewed. */
static bool is_recordable(const struct step_op *a)
{
	return a->kind == STEP_RUN && a->dynamic < 0 && !a->predict && !a->preconditioned;
}

void dlb_segments_find(struct dlb_engine *e)
{
	const struct dlb_engine_program *v = &e->view;

	if (!e->runtime->be->ops->record || v->program->async)
		return;
	e->segment = dlb_arena_array(&e->arena, (size_t)e->n_step_ops / LEAST_KERNELS + 1, sizeof *e->segment);
	e->view.is_replayed = dlb_arena_array(&e->arena, (size_t)v->n_computes + 1,
					      sizeof *e->view.is_replayed);
	memset(e->view.is_replayed, 0, (size_t)v->n_computes * sizeof *e->view.is_replayed);
	for (int i = 0; i < e->n_step_ops; i++) {
		int end = i;

		while (end < e->n_step_ops && is_recordable(&e->step_op[end]))
			end++;
		if (end - i >= LEAST_KERNELS) {
			e->segment[e->n_segments++] = (struct segment){ .first = i, .end = end };
			e->view.replayed.ops += end - i;
			for (int k = i; k < end; k++)
				e->view.is_replayed[e->step_op[k].compute] = true;
		}
		i = end > i ? end - 1 : i;
	}
	e->view.replayed.n = e->n_segments;
}

void dlb_segments_free(struct dlb_engine *e)
{
	struct dlb_backend *be = e->runtime->be;
	struct dlb_error ignored;
	bool any = false;

	for (int i = 0; i < e->n_segments; i++)
		any = any || e->segment[i].recording[false] || e->segment[i].recording[true];
	if (any)			/* a failed step may have left recordings in the queue */
		be->ops->sync(be, &ignored);
	for (int i = 0; i < e->n_segments; i++)
		for (int timed = 0; timed < 2; timed++)
			be->ops->discard(be, e->segment[i].recording[timed]);
}

bool dlb_segments_replay(const struct op_pass *t)
{
	struct dlb_engine *e = t->e;

	for (int i = 0; i < e->n_segments; i++)
		e->segment[i].replayed = false;
	return e->n_segments && e->warm && t->w->step->replay && dlb_step_ops_queue(e);
}

static const struct step_op *last_of(const struct dlb_engine *e, const struct segment *g)
{
	return &e->step_op[g->end - 1];
}

double dlb_segment_seconds(const struct dlb_engine *e, const struct segment *g)
{
	struct dlb_backend *be = e->runtime->be;

	return be->ops->seconds(be, dlb_step_op_mark(e->step_op[g->first].compute, false),
				dlb_step_op_mark(last_of(e, g)->compute, true));
}

void dlb_segment_times(struct dlb_engine *e, const struct segment *g)
{
	struct dlb_backend *be = e->runtime->be;
	double start_s = be->ops->seconds(be, 0, dlb_step_op_mark(e->step_op[g->first].compute, false));

	for (int i = g->first; i < g->end; i++) {
		const int compute = e->step_op[i].compute;
		const double end_s = be->ops->seconds(be, 0, dlb_step_op_mark(compute, true));

		e->view.start_s[compute] = start_s;
		e->view.end_s[compute] = start_s = end_s;
	}
}

int dlb_segments_mark_after(const struct op_pass *t, int step_op)
{
	const struct dlb_engine *e = t->e;
	int last = step_op;

	for (int i = 0; t->replays && i < e->n_segments; i++)
		if (step_op >= e->segment[i].first && step_op < e->segment[i].end)
			last = e->segment[i].end - 1;
	return dlb_step_op_mark(e->step_op[last].compute, true);
}

static const char *name_of(const struct dlb_engine *e, const struct step_op *a)
{
	return e->graph->op[e->view.compute_op[a->compute]].name;
}

/* Runs the kernels while they are recorded. */
static int run_kernels(struct op_pass *t, const struct segment *g, struct dlb_error *err)
{
	struct dlb_backend *be = t->e->runtime->be;

	if (t->s->timed && be->ops->mark(be, dlb_step_op_mark(t->e->step_op[g->first].compute, false), err))
		return -1;
	for (int i = g->first; i < g->end; i++) {
		const struct step_op *a = &t->e->step_op[i];

		dlb_step_op_set_run(t, a, t->step, t->s->version);
		a->kernel->run(a->kernel, &t->run);
		if (be->ops->mark(be, dlb_step_op_mark(a->compute, true), err))
			return dlb_error_at(err, name_of(t->e, a));
	}
	return 0;
}

static int record(struct op_pass *t, const struct segment *g, struct dlb_recording **made,
		  struct dlb_error *err)
{
	struct dlb_backend *be = t->e->runtime->be;
	struct dlb_error later;
	int rc;

	if (be->ops->record(be, t->s->timed, err))
		return -1;
	rc = run_kernels(t, g, err);
	*made = be->ops->recorded(be, rc ? &later : err);
	return rc || !*made ? -1 : 0;
}

int dlb_segment_run(struct op_pass *t, struct segment *g, struct dlb_error *err)
{
	struct dlb_engine *e = t->e;
	struct dlb_backend *be = e->runtime->be;
	const struct step_op *first = &e->step_op[g->first];
	struct dlb_recording **recording;

	t->s = t->w->step;
	t->step = t->w->iteration;
	recording = &g->recording[t->s->timed];
	if (!*recording && record(t, g, recording, err))
		return dlb_hint(err, "try --no-gpu-graph");
	for (int i = g->first; i < g->end; i++) {
		const struct step_op *a = &e->step_op[i];

		if (!a->kernel->renew)
			continue;
		dlb_step_op_set_run(t, a, t->step, t->s->version);
		dlb_kernel_renew(a->kernel, &t->run);
	}
	if ((!t->s->timed && be->ops->mark(be, dlb_step_op_mark(first->compute, false), err)) ||
	    be->ops->replay(be, *recording, err) ||
	    (!t->s->timed && be->ops->mark(be, dlb_step_op_mark(last_of(e, g)->compute, true), err)))
		return dlb_error_at(err, name_of(e, first));
	g->replayed = true;
	return dlb_step_op_beside(t, err);
}
