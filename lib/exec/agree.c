/* Compares a batch with its samples one by one. See agree.h. */
#include "exec/agree.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/data.h"
#include "exec/engine.h"
#include "exec/state.h"
#include "graph/passes.h"

enum { N_BATCHES = 3 };			/* both samples together, the first sample, the second sample */
/* value[tensor]: on the device; NULL: not computed, or stored once for all batches in batch 0 */
struct batch { int64_t first, n; void **value; };
struct trial {
	const struct dlb_graph *g;
	struct dlb_backend *be;
	struct dlb_data *data;
	struct batch batch[N_BATCHES];
	int *last;			/* [tensor] last op that reads it; n_ops: it is an output */
	int suspect;			/* first op whose output differs; -1: none */
	double off;			/* its difference, relative to its largest value */
};

static const double tolerance[] = {
	[DLB_F32] = 1e-4, [DLB_F64] = 1e-10, [DLB_BF16] = 0.05, [DLB_F16] = 0.01
};
/* In f32, libraries of a device may choose another algorithm for two samples than for one, such as
 * Winograd's, whose errors grow with each layer; TF32 adds further rounding differences. If samples are
 * mixed, the difference is as large as the values themselves. */
static const double device_tolerance = 1e-3, tf32_tolerance = 0.02;

/* An f32 tensor in a bf16 graph is computed from bf16 tensors, so it gets the tolerance of bf16. */
static double tolerance_of(const struct trial *v, enum dlb_dtype type)
{
	if (type == DLB_F32 && v->g->dtype == DLB_BF16)
		return tolerance[DLB_BF16];
	if (type != DLB_F32 || v->be->ops->is_host_memory)
		return tolerance[type];
	return v->be->numerics.tf32 ? tf32_tolerance : device_tolerance;
}

/* -- values -- */

static bool is_shared(const struct dlb_tensor *x)
{
	return x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ||
	       (x->kind == DLB_T_CONSTANT && !dlb_tensor_follows_batch(x));
}

/* A new copy on the host of a tensor that no op computes; NULL: it has no value. */
static void *given(struct trial *v, int t, const struct batch *l)
{
	const struct dlb_tensor *x = &v->g->tensor[t];
	const struct dlb_desc d = dlb_tensor_desc(x, l->n);
	const size_t bytes = dlb_desc_bytes(&d);
	struct dlb_arena a = { 0 };
	struct dlb_error ignored = { .what = "" };
	char *host = dlb_xcalloc(bytes + 8, 1);

	if (x->is_fill)
		for (int64_t i = 0; i < dlb_desc_count(&d); i++)
			dlb_value_set(host, x->dtype, i, x->fill);
	else if (x->data && x->kind == DLB_T_CONSTANT)
		memcpy(host, dlb_tensor_value(x, l->n, &a), bytes);
	else if (x->data)
		memcpy(host, x->data, bytes);
	else if (x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER)
		dlb_weight_draw(v->g, t, 1, host);
	else if (x->kind == DLB_T_SEED)
		dlb_value_set(host, x->dtype, 0, 1);
	else if ((x->kind != DLB_T_INPUT && x->kind != DLB_T_LABEL) ||
		 dlb_data_fill(v->data, t, 0, l->first, l->n, host, &ignored)) {
		free(host);
		host = NULL;
	}
	dlb_arena_release(&a);
	return host;
}

static bool put(struct trial *v, struct batch *l, int t, const void *host)
{
	const struct dlb_desc d = dlb_tensor_desc(&v->g->tensor[t], l->n);
	const size_t bytes = dlb_desc_bytes(&d);

	l->value[t] = v->be->ops->alloc(v->be, bytes ? bytes : 1);
	if (l->value[t] && host)
		v->be->ops->upload(v->be, l->value[t], host, bytes);
	return l->value[t];
}

static void *get(struct trial *v, int batch, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&v->g->tensor[t], v->batch[batch].n);
	void *host = dlb_xmalloc(dlb_desc_bytes(&d) + 1);

	v->be->ops->download(v->be, host, v->batch[batch].value[t], dlb_desc_bytes(&d));
	return host;
}

/* Operand t of a batch, created at its first use; NULL: it cannot be created. */
static void *operand(struct trial *v, int batch, int t)
{
	struct batch *l = &v->batch[is_shared(&v->g->tensor[t]) ? 0 : batch];

	if (!l->value[t]) {
		void *host = given(v, t, l);
		const bool done = host && put(v, l, t, host);
		free(host);
		if (!done)
			return NULL;
	}
	return l->value[t];
}

static void drop(struct trial *v, int t)
{
	for (int i = 0; i < N_BATCHES; i++) {
		if (v->batch[i].value[t])
			v->be->ops->free(v->be, v->batch[i].value[t]);
		v->batch[i].value[t] = NULL;
	}
}

/* -- one vertex -- */

static bool run(struct trial *v, int op, int batch)
{
	const struct dlb_op *o = &v->g->op[op];
	struct batch *l = &v->batch[batch];
	void **at = dlb_xcalloc((size_t)(o->n_in + o->n_out) + 1, sizeof *at);
	struct dlb_error ignored = { .what = "" };
	struct dlb_kernel *k = NULL;
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;
	bool good = true;

	dlb_graph_io(v->g, op, l->n, &a, &io);
	io.weight = NULL;
	for (int i = 0; i < o->n_in && good; i++)
		good = o->in[i] < 0 || (at[i] = operand(v, batch, o->in[i]));
	for (int i = 0; i < o->n_out && good; i++)
		good = o->out[i] < 0 ||
		       (put(v, l, o->out[i], NULL) && (at[o->n_in + i] = l->value[o->out[i]]));
	good = good && io.cls && io.cls->kernel && !io.cls->kernel(v->be, &io, &k, &ignored);
	void *scratch = good ? v->be->ops->alloc(v->be, k->scratch_bytes + 1) : NULL;
	if (scratch) {
		const struct dlb_run r = { .in = at,
					   .out = at + o->n_in,
					   .scratch = scratch,
					   .seed = 1,
					   .vertex = (uint64_t)op,
					   .first_sample = l->first };
		k->run(k, &r);
		good = !v->be->ops->sync(v->be, &ignored);
	} else {
		good = false;
	}
	if (scratch)
		v->be->ops->free(v->be, scratch);
	dlb_kernel_free(k);
	free(at);
	dlb_arena_release(&a);
	return good;
}

/* -- comparing -- */

static double distance(double a, double b, double scale)
{
	if (a == b || (isnan(a) && isnan(b)))
		return 0;
	return isfinite(a) && isfinite(b) ? fabs(a - b) / (scale > 0 ? scale : 1) : HUGE_VAL;
}

/* As dlb_value_real, but without a function call for the most frequent types. */
static inline double value_at(const void *p, enum dlb_dtype type, int64_t i)
{
	uint32_t bits;
	float v;

	if (type == DLB_F32)
		return ((const float *)p)[i];
	if (type != DLB_BF16)
		return dlb_value_real(p, type, i);
	bits = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* One tensor in each batch. x: its values in the whole batch and in the two halves; count: values per sample;
 * scale: the largest finite absolute value; differences up to `enough` count as equal. */
struct compared {
	void *x[N_BATCHES];
	enum dlb_dtype type;
	int64_t count;
	double scale, enough;
};

/* The largest relative difference, if the batch dimension has `outer` parts before it and `inner` elements
 * after it. The search ends at the first difference above `enough`. */
static double apart(const struct compared *c, int64_t outer, int64_t inner, double enough)
{
	void *const *x = c->x;
	double most = 0;

	for (int64_t o = 0; o < outer; o++)
		for (int s = 0; s < 2; s++)
			for (int64_t i = 0; i < inner; i++) {
				most = fmax(most,
					    distance(value_at(x[0], c->type, (2 * o + s) * inner + i),
						     value_at(x[1 + s], c->type, o * inner + i), c->scale));
				if (most > enough)
					return most;
			}
	return most;
}

/* The least difference over all splits of the dimension's `parts` per sample into outer and inner. The search
 * ends at the first split whose difference is within c->enough. before: elements of the dimensions before the
 * batch dimension. Unless `whole`, a split is abandoned once its difference exceeds c->enough. */
static double least_apart(const struct compared *c, int64_t before, int64_t parts, bool whole)
{
	double least = HUGE_VAL;

	for (int64_t outer = 1; outer <= parts && !(least <= c->enough); outer++)
		if (parts % outer == 0)
			least = fmin(least, apart(c, before * outer, c->count / (before * outer),
						  whole ? HUGE_VAL : c->enough));
	return least;
}

/* The largest relative difference of a tensor that does not follow the batch: its value is the same for every
 * sample or, for a loss, the mean over samples. */
static double apart_as_mean(const struct compared *c)
{
	double most = 0;

	for (int64_t i = 0; i < c->count; i++) {
		const double a = value_at(c->x[1], c->type, i), b = value_at(c->x[2], c->type, i);
		most = fmax(most, distance(value_at(c->x[0], c->type, i), a / 2 + b / 2, c->scale));
	}
	return most;
}

/* The difference of tensor t between the batches, relative to its largest value; 0 also if it cannot be
 * compared. A dimension of outer * n * inner elements follows the batch; all splits into outer and inner are
 * tried. */
static double difference(struct trial *v, int t)
{
	const struct dlb_tensor *x = &v->g->tensor[t];
	const struct dlb_desc one = dlb_tensor_desc(x, 1);
	struct compared c = { .type = x->dtype,
			      .count = dlb_desc_count(&one),
			      .enough = tolerance_of(v, x->dtype) };
	double least;
	int64_t before = 1;
	int dim = -1, n = 0;

	for (int k = 0; k < x->n_dims; k++)
		if (x->dim[k].mul) {
			dim = k;
			n++;
		}
	if (!dlb_dtype_is_float(x->dtype) || n > 1 || c.count < 1 || (n && x->dim[dim].add) ||
	    (dim > 0 && x->layout != DLB_PLAIN))
		return 0;
	for (int i = 0; i < N_BATCHES; i++)
		c.x[i] = get(v, i, t);
	for (int s = 1; s < N_BATCHES; s++)
		for (int64_t i = 0; i < c.count; i++)
			if (isfinite(value_at(c.x[s], x->dtype, i)))
				c.scale = fmax(c.scale, fabs(value_at(c.x[s], x->dtype, i)));
	for (int k = 0; k < dim; k++)
		before *= x->dim[k].add;
	if (!n)
		least = apart_as_mean(&c);
	else
		least = least_apart(&c, before, x->dim[dim].mul, false);
	if (n && least > c.enough) /* the message states the difference */
		least = least_apart(&c, before, x->dim[dim].mul, true);
	for (int i = 0; i < N_BATCHES; i++)
		free(c.x[i]);
	return least;
}

/* -- the graph -- */

static bool can_tell(const struct dlb_graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op_class *cls = dlb_op_class_of(g->op[i].kind);
		if (!cls || cls->flags & DLB_OP_RANDOM ||
		    (cls->flags & DLB_OP_MIXES_BATCH && strcmp(g->op[i].type, "BatchNormalization")))
			return false;
	}
	return g->n_ops > 0 && dlb_graph_least_samples(g) == 1;
}

static void find_last(struct trial *v)
{
	for (int i = 0; i < v->g->n_ops; i++)
		for (int k = 0; k < v->g->op[i].n_in; k++)
			if (v->g->op[i].in[k] >= 0)
				v->last[v->g->op[i].in[k]] = i;
	for (int i = 0; i < v->g->n_outputs; i++)
		v->last[v->g->output[i]] = v->g->n_ops;
	if (v->g->loss >= 0)
		v->last[v->g->loss] = v->g->n_ops;
}

/* Runs all ops; false: a batch cannot be run. */
static bool walk(struct trial *v)
{
	for (int op = 0; op < v->g->n_ops; op++) {
		const struct dlb_op *o = &v->g->op[op];
		for (int l = 0; l < N_BATCHES; l++)
			if (!run(v, op, l))
				return false;
		for (int k = 0; k < o->n_out && v->suspect < 0; k++) {
			const int t = o->out[k];
			if (t < 0 || !dlb_dtype_is_float(v->g->tensor[t].dtype) ||
			    !dlb_tensor_follows_batch(&v->g->tensor[t]))
				continue;
			const double off = difference(v, t);
			if (off > tolerance_of(v, v->g->tensor[t].dtype)) {
				v->suspect = op;
				v->off = off;
			}
		}
		for (int k = 0; k < o->n_in; k++)
			if (o->in[k] >= 0 && v->last[o->in[k]] == op)
				drop(v, o->in[k]);
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0 && v->last[o->out[k]] < 0)
				drop(v, o->out[k]);
	}
	return true;
}

/* Judges tensor t, an output or the loss: -1 with err when it differs. */
static int judge(struct trial *v, int t, struct dlb_error *err)
{
	const struct dlb_tensor *x = &v->g->tensor[t];

	if (!v->batch[0].value[t] || !v->batch[1].value[t] || !v->batch[2].value[t] ||
	    !dlb_dtype_is_float(x->dtype))
		return 0;
	const double off = difference(v, t);
	if (off <= tolerance_of(v, x->dtype))
		return 0;
	int op = v->suspect;
	for (int i = 0; i < v->g->n_ops && op < 0; i++)
		for (int k = 0; k < v->g->op[i].n_out; k++)
			op = v->g->op[i].out[k] == t ? i : op;
	const struct dlb_op *o = &v->g->op[op];
	const double by = v->suspect < 0 ? off : v->off;
	dlb_fail(err, o->name,
		 "%s (opset %d) mixes samples: of two together it makes other than of each alone (by %.2g of "
		 "its largest value), so other micro-batches would give other losses",
		 o->type, o->opset, by);
	return dlb_hint(err, "train it in one micro-batch");
}

int dlb_samples_agree(const struct dlb_graph *g, struct dlb_backend *be, struct dlb_error *err)
{
	struct trial v = { .be = be,
			   .suspect = -1,
			   .batch = { { 0, 2, NULL }, { 0, 1, NULL }, { 1, 1, NULL } } };
	struct dlb_error ignored = { .what = "" };
	int *op_of, *tensor_of, rc = 0;
	struct dlb_graph use;

	if (g->fixed_batch || dlb_graph_eval(g, &use, &op_of, &tensor_of, &ignored))
		return 0;
	if (dlb_graph_least_samples(g) == 1 && !dlb_graph_check_runnable(&use, g->batch, &ignored) &&
	    (dlb_graph_check_runnable(&use, 2, err) || dlb_graph_check_runnable(&use, 1, err))) {
		dlb_graph_release(&use);
		return -1;
	}
	v.g = &use;
	v.last = dlb_xcalloc((size_t)use.n_tensors + 1, sizeof *v.last);
	for (int t = 0; t < use.n_tensors; t++)
		v.last[t] = -1;
	for (int i = 0; i < N_BATCHES; i++)
		v.batch[i].value = dlb_xcalloc((size_t)use.n_tensors + 1, sizeof *v.batch[i].value);
	find_last(&v);
	if (can_tell(&use) &&
	    !dlb_data_open(&v.data, &(struct dlb_data_choice){ .spec = "random", .seed = 1 }, &use,
			   &ignored) &&
	    walk(&v)) {
		for (int i = 0; i < use.n_outputs && !rc; i++)
			rc = judge(&v, use.output[i], err);
		if (!rc && use.loss >= 0)
			rc = judge(&v, use.loss, err);
		/* a copy failed, so the compared values are invalid */
		if (be->ops->sync(be, &ignored))
			rc = 0;
	}
	for (int t = 0; t < use.n_tensors; t++)
		drop(&v, t);
	for (int i = 0; i < N_BATCHES; i++)
		free(v.batch[i].value);
	free(v.last);
	dlb_data_close(v.data);
	dlb_graph_release(&use);
	return rc;
}
