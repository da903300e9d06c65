/* Folding: infers shapes, evaluates constants, and finds which dimensions follow the batch.
 *
 * Vertices are visited once, in topological order. The outputs of each are inferred at N, 2N and 3N samples
 * (rewrite.h). A vertex whose inputs are known at these sizes is evaluated at once by its own kernel, and the
 * three results are classified:
 *
 *     equal at all sizes                          a constant
 *     integers, affine in the batch size          a constant with data_mul (shapes that contain the batch)
 *     all elements equal, shape follows batch     a fill
 *     anything else                               the vertex stays; later vertices can still use its values
 *
 * A vertex that a trainable initializer reaches through differentiable ones is not folded: the transpose of a
 * weight is not a constant. In exported transformers most vertices compute shapes, and disappear.
 *
 * If, Loop, Scan and sequences are replaced by plain vertices when they are visited: conditions and lengths
 * that can be known are known by then (structure.c, sequence.c). The new vertices are visited immediately.
 *
 * Models exported with a fixed batch contain it in the shapes of their inputs and in constants. The inputs
 * define the batch; batch_at.c and batch_follow.c find the constants that must follow it. At N equal to the
 * model's own batch nothing changes. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "graph/fold.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrites.h"

enum { MAX_FOLD = 1 << 24 };		/* elements: larger results are not folded */
#define MAX_FOLDED ((size_t)4 << 30)	/* bytes of all results; later vertices are not folded */

/* -- inputs -- */

static int64_t wired_batch(const struct dlb_graph *g)
{
	for (int i = 0; i < g->n_inputs; i++) {
		const struct dlb_tensor *t = &g->tensor[g->input[i]];
		if (t->n_dims > 0 && !t->dim[0].mul)
			return t->dim[0].add;
		if (t->n_dims > 0)
			return 0;
	}
	return 0;
}

static int take_batch(struct fold *f, int64_t batch, struct dlb_error *err)
{
	struct dlb_graph *g = f->g;

	for (int i = 0; i < g->n_inputs; i++) {
		const struct dlb_tensor *t = &g->tensor[g->input[i]];
		if (t->n_dims < 0)
			return dlb_refuse(err, t->name,
					  "export with example inputs, so that their shapes are in the model",
					  "input has no shape");
		for (int k = batch < 0 ? 0 : 1; k < t->n_dims; k++)
			if (t->dim[k].mul || t->dim[k].add < 0) {
				dlb_fail(err, t->name, "dimension %d of the input has no size ('%s')", k,
					 t->symbol ? t->symbol : "?");
				return dlb_hint(err, batch < 0 ? "shapes must be fixed here" :
								 "only the first, the batch, may be: export "
								 "the model with the others fixed");
			}
	}
	if (batch < 0) {
		g->batch = 1;
		f->n = dlb_graph_reference(g);
		return 0;
	}
	f->wired = wired_batch(g);
	for (int i = 0; i < g->n_inputs; i++) {
		struct dlb_tensor *t = &g->tensor[g->input[i]];
		if (t->n_dims > 0 && !t->dim[0].mul && t->dim[0].add == f->wired && f->wired > 0)
			t->dim[0] = (struct dlb_dim){ 1, 0 };
		for (int k = 0; k < t->n_dims; k++)
			f->outer[g->input[i]][k] = t->dim[k].mul;
	}
	g->batch = batch ? batch : f->wired ? f->wired : 32;
	f->n = f->wired ? f->wired : dlb_graph_reference(g);
	return 0;
}

/* -- values -- */

const void *dlb_fold_value(struct fold *f, int t, int s)
{
	const struct dlb_tensor *x = &f->g->tensor[t];

	if (x->kind == DLB_T_CONSTANT)
		return dlb_tensor_value(x, f->n * (s + 1), &f->a);
	return f->known.value[t][s];
}

bool dlb_fold_is_known(struct fold *f, int t)
{
	const struct dlb_tensor *x = &f->g->tensor[t];

	return x->kind == DLB_T_CONSTANT ? x->data || x->is_fill : f->known.value[t][0] != NULL;
}

static int no_memory(const struct dlb_op_io *io, size_t bytes, struct dlb_error *err)
{
	dlb_op_fail(io, err, "no memory for %zu bytes", bytes);
	return dlb_hint(err, "a smaller --batch");
}

int dlb_graph_run_op(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_arena *a, void **out,
		     struct dlb_error *err)
{
	const struct dlb_backend_ops *ops = be->ops;
	const int n = io->n_in + io->n_out;
	void **dev = dlb_xcalloc((size_t)n + 1, sizeof *dev);
	struct dlb_kernel *k = NULL;
	int rc = dlb_op_kernel(be, io, &k, err);

	if (rc == DLB_NO_KERNEL) {
		dlb_op_fail(io, err, "it has no kernel on '%s', so it cannot be folded", ops->name);
		rc = dlb_hint(err, "--no-rewrite constant-folding, or another type in the model");
	}
	for (int i = 0; i < n && !rc; i++) {
		const struct dlb_desc *d = i < io->n_in ? &io->in[i] : &io->out[i - io->n_in];
		const void *host = i < io->n_in ? io->value[i] : NULL;
		const size_t bytes = d->n_dims < 0 ? 0 : dlb_desc_bytes(d);
		if (d->n_dims < 0 || (i < io->n_in && !host))
			continue;
		if (!(dev[i] = ops->alloc(be, bytes ? bytes : 1)))
			rc = no_memory(io, bytes, err);
		else if (host)
			ops->upload(be, dev[i], host, bytes);
	}
	void *scratch = !rc ? ops->alloc(be, k->scratch_bytes + 1) : NULL;
	if (!rc && !scratch)
		rc = no_memory(io, k->scratch_bytes, err);
	if (!rc) {
		const struct dlb_run run = { .in = dev, .out = dev + io->n_in, .scratch = scratch };
		k->run(k, &run);
		rc = ops->sync(be, err);
	}
	for (int i = 0; i < io->n_out && !rc; i++) {
		out[i] = NULL;
		if (io->out[i].n_dims < 0)
			continue;
		const size_t bytes = dlb_desc_bytes(&io->out[i]);
		out[i] = dlb_arena_alloc(a, bytes ? bytes : 1);
		ops->download(be, out[i], dev[io->n_in + i], bytes);
	}
	if (!rc)
		rc = ops->sync(be, err);	/* waits for the downloads */
	for (int i = 0; i < n; i++)
		if (dev[i])
			ops->free(be, dev[i]);
	if (scratch)
		ops->free(be, scratch);
	dlb_kernel_free(k);
	free(dev);
	return rc;
}

static bool all_equal(const void *v, const struct dlb_desc *d)
{
	const size_t size = dlb_dtype_bytes(d->dtype), n = (size_t)dlb_desc_count(d);

	for (size_t i = 1; i < n; i++)
		if (memcmp(v, (const char *)v + i * size, size))
			return false;
	return n > 0;
}

void dlb_fold_constant(struct dlb_graph *g, int t)
{
	g->tensor[t].kind = DLB_T_CONSTANT;
	g->tensor[t].producer = -1;
}

/* Fits integers a + b n through the three sizes; false if they are not affine. */
static bool take_line(struct fold *f, int t, void *const v[DLB_N_SIZES], int64_t count)
{
	struct dlb_tensor *x = &f->g->tensor[t];
	struct dlb_dim line;

	if (!dlb_dtype_is_int(x->dtype))
		return false;
	int64_t *mul = dlb_arena_array(&f->g->arena, (size_t)count + 1, sizeof *mul);
	void *data = dlb_arena_array(&f->g->arena, (size_t)count + 1, dlb_dtype_bytes(x->dtype));
	for (int64_t i = 0; i < count; i++) {
		int64_t at[DLB_N_SIZES];
		for (int s = 0; s < DLB_N_SIZES; s++)
			at[s] = dlb_value_int(v[s], x->dtype, i);
		if (!dlb_dim_fit(at, f->n, &line))
			return false;
		mul[i] = line.mul;
		/* INT64_MAX, the end of a Slice, must not be rounded to a double */
		if (x->dtype == DLB_I64)
			((int64_t *)data)[i] = line.add;
		else
			dlb_value_set(data, x->dtype, i, (double)line.add);
	}
	x->data = data;
	x->data_mul = mul;
	dlb_fold_constant(f->g, t);
	return true;
}

/* Classifies tensor t by its values v[size]: see the top of the file. */
static void take_values(struct fold *f, int t, void *const v[DLB_N_SIZES])
{
	struct dlb_tensor *x = &f->g->tensor[t];
	struct dlb_desc d[DLB_N_SIZES];
	bool same_shape = true, same = true, uniform = true;
	const size_t size = dlb_dtype_bytes(x->dtype);

	for (int s = 0; s < DLB_N_SIZES; s++) {
		d[s] = dlb_tensor_desc(x, f->n * (s + 1));
		f->known.value[t][s] = v[s];
		same_shape &= dlb_desc_same_shape(&d[0], &d[s]);
		uniform &= all_equal(v[s], &d[s]) && !memcmp(v[0], v[s], size);
	}
	for (int s = 1; s < DLB_N_SIZES && same_shape; s++)
		same &= v[s] == v[0] || !memcmp(v[0], v[s], dlb_desc_bytes(&d[0]));
	f->varies[t] = !same_shape || !same;
	if (same_shape && same) {
		void *copy = dlb_arena_alloc(&f->g->arena, dlb_desc_bytes(&d[0]) + 1);
		memcpy(copy, v[0], dlb_desc_bytes(&d[0]));
		x->data = copy;
		dlb_fold_constant(f->g, t);
	} else if (same_shape) {
		take_line(f, t, v, dlb_desc_count(&d[0]));
	} else if (uniform) {
		x->is_fill = true;
		x->fill = dlb_value_real(v[0], x->dtype, 0);
		dlb_fold_constant(f->g, t);
	}
}

/* -- one vertex -- */

static bool reached_by_weights(const struct fold *f, const struct dlb_op *o, const struct dlb_op_class *cls)
{
	for (int i = 0; i < o->n_in && cls->gradient; i++)
		if (o->in[i] >= 0 && f->trained[o->in[i]])
			return true;
	return false;
}

/* With folding switched off: may the vertex stay? Yes unless an output is a scalar or vector, which an
 * operator may need as a constant shape, scale or setting. */
static bool may_stay(const struct dlb_graph *g, const struct dlb_op *o)
{
	for (int i = 0; i < o->n_out; i++)
		if (o->out[i] >= 0 && g->tensor[o->out[i]].n_dims < 2)
			return false;
	return o->n_in > 0;
}

static bool may_fold(struct fold *f, const struct dlb_op *o, const struct dlb_op_class *cls)
{
	const struct dlb_graph *g = f->g;

	if (cls->flags & (DLB_OP_NO_FOLD | DLB_OP_RANDOM | DLB_OP_BUFFERS) || reached_by_weights(f, o, cls))
		return false;
	for (int i = 0; i < o->n_in; i++) {
		if (o->in[i] < 0 || cls->flags & DLB_OP_SHAPE_ONLY)
			continue;
		if (!dlb_fold_is_known(f, o->in[i]))
			return false;
		for (int s = 0; s < DLB_N_SIZES; s++)
			if (!dlb_fold_value(f, o->in[i], s))
				return false;
	}
	size_t bytes = f->folded_bytes;
	for (int i = 0; i < o->n_out; i++) {
		const struct dlb_desc d = o->out[i] < 0 ? (struct dlb_desc){ 0 }
			: dlb_tensor_desc(&g->tensor[o->out[i]], f->n * DLB_N_SIZES);
		if (o->out[i] >= 0 && dlb_desc_count(&d) > MAX_FOLD)
			return false;
		bytes += o->out[i] >= 0 ? dlb_desc_bytes(&d) : 0;
	}
	if (bytes > MAX_FOLDED)
		return false;
	if (!dlb_rewrite_is_on(g, DLB_REWRITE_FOLDING) && may_stay(g, o)) {
		dlb_rewrite_missed(f->g, DLB_REWRITE_FOLDING);
		return false;
	}
	f->folded_bytes = bytes;
	return true;
}

static bool inputs_vary(const struct fold *f, const struct dlb_op *o)
{
	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 &&
		    (f->varies[o->in[i]] || dlb_tensor_follows_batch(&f->g->tensor[o->in[i]])))
			return true;
	return false;
}

static int fold_op(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int n_out = o->n_out, sizes = inputs_vary(f, o) ? DLB_N_SIZES : 1;
	void *(*v)[DLB_N_SIZES] = dlb_xcalloc((size_t)n_out + 1, sizeof *v);
	void **out = dlb_xcalloc((size_t)n_out + 1, sizeof *out);
	int rc = 0;

	for (int s = 0; s < sizes && !rc; s++) {
		struct dlb_op_io io;
		dlb_graph_known_io(f->g, op, f->n, s, &f->known, &f->a, &io);
		rc = io.cls->infer(&io, err);
		for (int k = 0; k < n_out && !rc; k++)
			if (o->out[k] < 0)
				io.out[k].n_dims = -1;
		if (!rc)
			rc = dlb_graph_run_op(f->be, &io, &f->a, out, err);
		for (int k = 0; k < n_out && !rc; k++)
			v[k][s] = out[k];
	}
	for (int k = 0; k < n_out && !rc; k++) {
		for (int s = sizes; s < DLB_N_SIZES; s++)
			v[k][s] = v[k][0];
		if (o->out[k] >= 0)
			take_values(f, o->out[k], v[k]);
	}
	free(out);
	free(v);
	return rc;
}

/* ConstantOfShape stays a fill: weight-free ("light") models describe a hundred
 * million weights in one vertex. */
static bool fold_fill(struct fold *f, int op)
{
	struct dlb_graph *g = f->g;
	const struct dlb_op *o = &g->op[op];
	const struct dlb_attr *a = dlb_attr_find(o->attr, o->n_attr, "value");
	struct dlb_tensor *t = &g->tensor[o->out[0]];

	if (strcmp(o->type, "ConstantOfShape") || *o->domain)
		return false;
	t->is_fill = true;
	t->fill = a && a->type == DLB_ATTR_TENSOR && a->data ? dlb_value_real(a->data, a->desc.dtype, 0) : 0;
	t->initial &= dlb_dtype_is_float(t->dtype) && t->fill != 0 && !dlb_tensor_follows_batch(t);
	f->trained[o->out[0]] = t->initial;
	dlb_fold_constant(g, o->out[0]);
	return true;
}

/* -- all -- */

/* Readers of an Identity, or of a Cast that keeps the type, read the input of that op instead. */
static bool fold_identity(struct fold *f, const struct dlb_op *o)
{
	const struct dlb_tensor *x = o->n_in == 1 && o->in[0] >= 0 ? &f->g->tensor[o->in[0]] : NULL;
	const bool cast = !strcmp(o->type, "Cast") && x &&
			  dlb_attr_int(o->attr, o->n_attr, "to", 0) == dlb_dtype_to_onnx(x->dtype);

	if ((strcmp(o->type, "Identity") && !cast) || *o->domain || dlb_graph_is_output(f->g, o->out[0]))
		return false;
	f->stands_for[o->out[0]] = o->in[0];
	return true;
}

/* CastLike uses only the type of its second operand, which is known. It becomes a Cast, which does not depend
 * on that operand's values. */
static void name_type(struct dlb_graph *g, int op)
{
	struct dlb_op *o = &g->op[op];

	if (strcmp(o->type, "CastLike") || *o->domain)
		return;
	struct dlb_attr *all = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *all);
	if (o->n_attr)
		memcpy(all, o->attr, (size_t)o->n_attr * sizeof *all);
	all[o->n_attr] = (struct dlb_attr){ .name = "to",
					    .type = DLB_ATTR_INT,
					    .i = dlb_dtype_to_onnx(g->tensor[o->out[0]].dtype) };
	o->type = "Cast";
	o->kind = DLB_OP_Cast;
	o->attr = all;
	o->n_attr++;
	o->n_in = 1;
}

/* Grows the tables indexed by tensor to one more than the graph's tensors: a vertex may get a replaced
 * constant. */
void dlb_fold_room(struct fold *f)
{
	const int n = f->g->n_tensors + 1, old = f->cap;

	if (n <= old)
		return;
	const int cap = f->cap = 2 * n;
	f->known.value = dlb_xrealloc(f->known.value, (size_t)cap, sizeof *f->known.value);
	f->varies = dlb_xrealloc(f->varies, (size_t)cap, sizeof *f->varies);
	f->trained = dlb_xrealloc(f->trained, (size_t)cap, sizeof *f->trained);
	f->stands_for = dlb_xrealloc(f->stands_for, (size_t)cap, sizeof *f->stands_for);
	f->outer = dlb_xrealloc(f->outer, (size_t)cap, sizeof *f->outer);
	f->made_by = dlb_xrealloc(f->made_by, (size_t)cap, sizeof *f->made_by);
	f->sequence = dlb_xrealloc(f->sequence, (size_t)cap, sizeof *f->sequence);
	f->ragged = dlb_xrealloc(f->ragged, (size_t)cap, sizeof *f->ragged);
	f->known.n = cap;
	for (int t = old; t < cap; t++) {
		memset(f->known.value[t], 0, sizeof f->known.value[t]);
		f->varies[t] = f->trained[t] = false;
		memset(f->outer[t], 0, sizeof f->outer[t]);
		f->stands_for[t] = f->made_by[t] = -1;
		f->sequence[t] = NULL;
		f->ragged[t] = (struct dlb_ragged){ .mask = -1 };
	}
}

int dlb_fold_actual(const struct fold *f, int t)
{
	return t >= 0 && f->stands_for[t] >= 0 ? f->stands_for[t] : t;
}

int dlb_fold_visit(struct fold *f, int op, struct dlb_error *err)
{
	struct dlb_graph *g = f->g;
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	const struct dlb_op *o = &g->op[op];
	bool reads_sequence = false;

	dlb_fold_room(f);
	for (int k = 0; k < o->n_in; k++) {
		o->in[k] = dlb_fold_actual(f, o->in[k]);
		reads_sequence |= o->in[k] >= 0 && f->sequence[o->in[k]];
	}
	if (dlb_graph_is_structure(o->type, o->domain) || reads_sequence)
		return dlb_fold_structure(f, op, err);
	if (dlb_graph_check_arity(g, op, err))
		return -1;
	const int padded = dlb_ragged_bound(f, op, err);
	if (padded)
		return padded < 0 ? -1 : 0;
	dlb_batch_decide(f, op);
	dlb_batch_indices(f, op);
	if (dlb_graph_infer(g, op, f->n, &f->known, err) && (f->wired <= 0 || dlb_batch_unwire(f, op, err)))
		return dlb_ragged_blame(f, op, err);
	if (dlb_batch_place(f, op, err))
		return -1;
	name_type(g, op);
	cls = dlb_op_class_of(g->op[op].kind);
	const int passed = dlb_ragged_pass(f, op, err);
	if (passed)
		return passed < 0 ? -1 : 0;
	DLB_GROW(f->order, f->n_order, f->cap_order);
	f->order[f->n_order++] = op;
	o = &g->op[op];
	if (fold_identity(f, o) || fold_fill(f, op))
		return 0;
	return may_fold(f, o, cls) ? fold_op(f, op, err) : 0;
}

/* Drops vertices whose outputs are all constants; returns their number. */
static int64_t drop_folded(struct dlb_graph *g)
{
	int64_t folded = 0;

	for (int i = 0; i < g->n_ops; i++) {
		int left = 0, gone = 0;
		for (int k = 0; k < g->op[i].n_out; k++) {
			const int t = g->op[i].out[k];
			if (t >= 0 && g->tensor[t].kind == DLB_T_CONSTANT) {
				g->op[i].out[k] = -1;
				gone++;
			}
			left += g->op[i].out[k] >= 0;
		}
		folded += gone && !left;
	}
	return folded;
}

/* Finds the initializers that may be trained, by make_weights.c's rule: those with a differentiable path to
 * an output, and those read only inside a loop or branch. A float mask that only a comparison reads is not
 * trained. */
static void find_trained(struct fold *f)
{
	const struct dlb_graph *g = f->g;
	bool *wanted = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *wanted);
	bool *read = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *read);

	for (int i = 0; i < g->n_outputs; i++)
		wanted[g->output[i]] = true;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		const struct dlb_op *o = &g->op[i];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		bool wants = false;
		for (int k = 0; k < o->n_out && (!cls || cls->gradient); k++)
			wants |= o->out[k] >= 0 && wanted[o->out[k]];
		for (int k = 0; k < o->n_in; k++)
			if (o->in[k] >= 0) {
				wanted[o->in[k]] |= wants;
				read[o->in[k]] = true;
			}
	}
	for (int t = 0; t < g->n_tensors; t++)
		f->trained[t] = (wanted[t] || !read[t]) && g->tensor[t].kind == DLB_T_CONSTANT &&
				g->tensor[t].initial && dlb_dtype_is_float(g->tensor[t].dtype);
	free(read);
	free(wanted);
}

static int fold_all(struct dlb_graph *g, int64_t batch, struct dlb_backend *be, struct dlb_error *err)
{
	struct fold f = { .g = g, .be = be };
	int rc = -1;

	if (dlb_graph_sort(g, err))
		return -1;
	int64_t dead = g->n_ops;
	if (dlb_rewrite_is_on(g, DLB_REWRITE_DEAD))
		dlb_graph_drop_dead(g, NULL, 0);
	dead -= g->n_ops;
	dlb_fold_room(&f);
	find_trained(&f);
	if (take_batch(&f, batch, err))
		goto out;
	const int n_ops = g->n_ops;	/* structure.c adds more, and visits them itself */
	for (int i = 0; i < n_ops; i++)
		if (dlb_fold_visit(&f, i, err))
			goto out;
	if (dlb_ragged_end(&f, err) || dlb_fold_end_structure(&f, err))
		goto out;
	const int64_t folded = drop_folded(g), before = g->n_ops;
	dlb_graph_drop_dead(g, NULL, 0);
	dlb_rewrite_done(g, DLB_REWRITE_FOLDING, folded);
	dlb_rewrite_done(g, DLB_REWRITE_DEAD, dead + before - g->n_ops - folded);
	dlb_graph_fill_work(g, 0);
	rc = 0;
out:
	free(f.known.value);
	free(f.varies);
	free(f.trained);
	free(f.stands_for);
	free(f.outer);
	free(f.made_by);
	free(f.made);
	free(f.sequence);
	free(f.ragged);
	free(f.selection);
	free(f.unpadded);
	free(f.order);
	dlb_name_map_release(&f.op_names);
	dlb_name_map_release(&f.tensor_names);
	dlb_arena_release(&f.a);
	return rc;
}

/* Shapes were inferred at multiples of the model's batch; an operand of fixed size may fit these batches and
 * not the requested one. */
static int fold_for_batch(struct dlb_graph *g, int64_t batch, struct dlb_backend *be, struct dlb_error *err)
{
	if (fold_all(g, batch, be, err))
		return -1;
	if (!dlb_graph_check_runnable(g, g->batch, err))
		return 0;
	return dlb_hint(err, "batches of other sizes fit: give another --batch than %" PRId64, g->batch);
}

/* Restores g from `read`, the copy made when it was read, after folding failed. */
static void start_again(struct dlb_graph *g, struct dlb_graph *read)
{
	struct dlb_graph half = *g;

	read->body = half.body;
	read->n_bodies = half.n_bodies;
	read->cap_bodies = half.cap_bodies;
	half.body = NULL;
	half.n_bodies = half.cap_bodies = 0;
	dlb_arena_give(&half.arena, &read->arena);
	*g = *read;
	dlb_graph_release(&half);
}

int dlb_graph_fold(struct dlb_graph *g, int64_t batch, struct dlb_backend *be, struct dlb_error *err)
{
	const int64_t wired = batch < 0 ? 0 : wired_batch(g);
	struct dlb_error again = { .what = "" };
	struct dlb_graph read;

	if (g->fixed_batch && wired > 0 && batch && batch != wired)
		return dlb_refuse(err, NULL, "leave --batch out",
				"the model was exported for batches of %" PRId64 " and is to stay so", wired);
	if (g->fixed_batch && wired > 0) {
		if (fold_all(g, -1, be, err))
			return -1;
		g->batch = wired;
		return 0;
	}
	if (wired < 1)
		return fold_for_batch(g, batch, be, err);
	dlb_graph_copy(g, &read);
	if (!fold_for_batch(g, batch, be, err)) {
		dlb_graph_release(&read);
		return 0;
	}
	/* a batch that cannot follow: keep the model's own batch, in one micro-batch */
	start_again(g, &read);
	if (fold_all(g, -1, be, &again) || (batch && batch != wired))
		return -1;
	g->batch = wired;
	g->fixed_batch = true;
	dlb_graph_note(g, "the batch stays %" PRId64 ", in one micro-batch and one replica: %s%s%s%s%s",
		       wired, err->where, *err->where ? ": " : "", err->what, *err->hint ? "; " : "",
		       err->hint);
	*err = (struct dlb_error){ .what = "" };
	return 0;
}
