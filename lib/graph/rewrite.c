/* Functions shared by the rewrites: see rewrite.h. */
#include "graph/order.h"
#include "graph/rewrite.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/rewrites.h"

int64_t dlb_graph_reference(const struct dlb_graph *g)
{
	return (g->batch >= 2 ? g->batch : 2) * (g->sample_shares > 1 ? g->sample_shares : 1);
}

bool dlb_dim_fit(const int64_t at[DLB_N_SIZES], int64_t n, struct dlb_dim *out)
{
	const int64_t step = at[1] - at[0];

	if (at[2] - at[1] != step || step % n)
		return false;
	out->mul = step / n;
	out->add = at[0] - step;
	return true;
}

/* -- shapes -- */

void dlb_graph_known_io(const struct dlb_graph *g, int op, int64_t n, int s,
			const struct dlb_known_values *known, struct dlb_arena *a, struct dlb_op_io *io)
{
	const struct dlb_op *o = &g->op[op];

	dlb_graph_io(g, op, n * (s + 1), a, io);
	if (!known)
		return;
	const void **value = dlb_arena_array(a, (size_t)o->n_in + 1, sizeof *value);
	for (int i = 0; i < o->n_in; i++) {
		const int t = o->in[i];
		value[i] = io->value[i];
		if (!value[i] && t >= 0 && t < known->n)
			value[i] = known->value[t][s];
	}
	io->value = value;
}

static const char *shape_list(const struct dlb_desc d[DLB_N_SIZES], char *buf, size_t size)
{
	char one[3][100];

	for (int s = 0; s < DLB_N_SIZES; s++)
		dlb_desc_str(&d[s], one[s], sizeof one[s]);
	snprintf(buf, size, "%s, %s, %s", one[0], one[1], one[2]);
	return buf;
}

static int too_large(const struct dlb_op *o, const struct dlb_tensor *x, struct dlb_error *err)
{
	return dlb_vertex_fail(o, err, "a smaller --batch", "output '%s' of %s is too large", x->name,
			       o->type);
}

/* Sets the shape of tensor t, output k of op, from its inference at three sizes. A tensor computed from a
 * share of the samples has that share. */
static int set_shape(struct dlb_graph *g, int op, int k, const struct dlb_desc d[DLB_N_SIZES], int64_t n,
		     struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	struct dlb_tensor *x = &g->tensor[o->out[k]];
	char text[320];

	if (d[0].n_dims < 0 || d[0].n_dims > DLB_MAX_DIMS)
		return dlb_vertex_fail(&g->op[op], err, "export with fixed dimensions but for the batch",
				"the shape of output '%s' of %s is not known", x->name,
				g->op[op].type);
	for (int s = 0; s < DLB_N_SIZES; s++) {
		if (d[s].n_dims != d[0].n_dims || d[s].dtype != d[0].dtype)
			return dlb_vertex_fail(&g->op[op], err,
					       "export with the batch as the first dimension of every input",
					       "output '%s' of %s changes its kind with the batch (%s)",
					       x->name, g->op[op].type, shape_list(d, text, sizeof text));
		if (dlb_checked_count(d[s].dim, d[s].n_dims) < 0)
			return too_large(o, x, err);
	}
	x->dtype = d[0].dtype;
	x->n_dims = d[0].n_dims;
	x->layout = d[0].n_dims >= 3 ? d[0].layout : DLB_PLAIN;
	x->samples = dlb_op_class_of(o->kind)->flags & DLB_OP_SHARES_SAMPLES ?
			     (struct dlb_samples){ k, o->n_out } :
			     dlb_common_samples(g, o->in, o->n_in, NULL, 0);
	const int64_t own = dlb_samples_count(x->samples, n);
	for (int i = 0; i < d[0].n_dims; i++) {
		const int64_t at[DLB_N_SIZES] = { d[0].dim[i], d[1].dim[i], d[2].dim[i] };
		if (own < 1 && at[1] != at[0])
			return dlb_vertex_fail(o, err, "a larger --batch",
					       "%" PRId64 " samples are not enough for %d shares", n,
					       x->samples.parts);
		if (!dlb_dim_fit(at, own < 1 ? 1 : own, &x->dim[i]))
			return dlb_vertex_fail(
				&g->op[op], err,
				"only the batch may change: export with the other dimensions fixed",
				"dimension %d of output '%s' of %s does not follow the batch linearly (%s)",
				i, x->name, g->op[op].type, shape_list(d, text, sizeof text));
		if (!dlb_dim_in_range(x->dim[i]))
			return too_large(o, x, err);
	}
	if (!dlb_tensor_follows_batch(x))
		x->samples = (struct dlb_samples){ 0 };
	return 0;
}

int dlb_graph_infer(struct dlb_graph *g, int op, int64_t n, const struct dlb_known_values *known,
		    struct dlb_error *err)
{
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	const int n_out = g->op[op].n_out;
	struct dlb_desc *out = dlb_xcalloc((size_t)n_out * DLB_N_SIZES + 1, sizeof *out);
	struct dlb_arena a = { 0 };
	int rc = 0;

	rc = dlb_graph_check_arity(g, op, err);
	for (int s = 0; s < DLB_N_SIZES && !rc; s++) {
		struct dlb_op_io io;
		dlb_graph_known_io(g, op, n, s, known, &a, &io);
		rc = cls->infer(&io, err);
		for (int k = 0; k < n_out && !rc; k++)
			out[k * DLB_N_SIZES + s] = io.out[k];
		dlb_arena_release(&a);
		a = (struct dlb_arena){ 0 };
		if (rc && s > 0 && err && !*err->hint)
			dlb_hint(err,
				 "at %" PRId64 " samples; at %" PRId64
				 " the shapes agree: the model holds its batch size",
				 n * (s + 1), n);
	}
	if (rc && err && !*err->hint)
		dlb_hint(err, DLB_CURE_VERTEX);
	dlb_arena_release(&a);
	for (int k = 0; k < n_out && !rc; k++) {
		const int t = g->op[op].out[k];
		if (t >= 0 && g->tensor[t].kind != DLB_T_BUFFER && g->tensor[t].kind != DLB_T_WEIGHT)
			rc = set_shape(g, op, k, &out[k * DLB_N_SIZES], n, err);
	}
	free(out);
	return rc;
}

int dlb_graph_infer_new(struct dlb_graph *g, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];

	if (o->kind >= 0 && dlb_op_class_of(o->kind)->flags & DLB_OP_SHARES_SAMPLES &&
	    dlb_graph_share_samples(g, o->n_out))
		return dlb_vertex_fail(o, err, "fewer shares with --split",
				"%d shares of the samples are too many beside the others", o->n_out);
	return dlb_graph_infer(g, op, dlb_graph_reference(g), NULL, err);
}

static double default_bytes(const struct dlb_op_io *io)
{
	double bytes = 0;

	for (int i = 0; i < io->n_in; i++)
		if (io->in[i].n_dims >= 0)
			bytes += (double)dlb_desc_bytes(&io->in[i]);
	for (int i = 0; i < io->n_out; i++)
		if (io->out[i].n_dims >= 0)
			bytes += (double)dlb_desc_bytes(&io->out[i]);
	return bytes;
}

static double default_flop(const struct dlb_op_io *io)
{
	return io->n_out > 0 && io->out[0].n_dims >= 0 ? (double)dlb_desc_count(&io->out[0]) : 0;
}

/* Computes, from the values at n and 2n samples, the value at `batch` samples (*whole) and the part that does
 * not follow the batch (*fixed). Negative rounding errors become 0. */
static void split(const double at[2], int64_t n, int64_t batch, double *whole, double *fixed)
{
	const double per_sample = (at[1] - at[0]) / (double)n, rest = at[0] - per_sample * (double)n;

	*fixed = rest > 0 ? rest : 0;
	*whole = fmax(*fixed, rest + per_sample * (double)batch);
}

void dlb_graph_fill_work(struct dlb_graph *g, int first)
{
	const int64_t n = dlb_graph_reference(g);

	for (int i = first; i < g->n_ops; i++) {
		struct dlb_op *o = &g->op[i];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		double flop[2], bytes[2];
		if (!cls)
			continue;
		for (int s = 0; s < 2; s++) {
			struct dlb_arena a = { 0 };
			struct dlb_op_io io;
			dlb_graph_io(g, i, n * (s + 1), &a, &io);
			flop[s] = cls->flops ? cls->flops(&io) : default_flop(&io);
			bytes[s] = cls->bytes ? cls->bytes(&io) : default_bytes(&io);
			dlb_arena_release(&a);
		}
		split(flop, n, g->batch, &o->flop, &o->flop_fixed);
		split(bytes, n, g->batch, &o->bytes, &o->bytes_fixed);
	}
}

/* -- order -- */

static int renamed(const int *to, int id)
{
	return id < 0 ? -1 : to[id];
}

static void drop_tensors(struct dlb_graph *g)
{
	int *to = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *to), n = 0;

	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_in; k++)
			if (g->op[i].in[k] >= 0)
				to[g->op[i].in[k]] = 1;
		for (int k = 0; k < g->op[i].n_out; k++)
			if (g->op[i].out[k] >= 0)
				to[g->op[i].out[k]] = 1;
	}
	for (int i = 0; i < g->n_inputs; i++)
		to[g->input[i]] = 1;
	for (int i = 0; i < g->n_outputs; i++)
		to[g->output[i]] = 1;
	const int special[3] = { g->loss, g->label, g->seed };
	for (int i = 0; i < 3; i++)
		if (special[i] >= 0)
			to[special[i]] = 1;
	for (int t = 0; t < g->n_tensors; t++) {
		const bool keep = to[t];
		to[t] = keep ? n : -1;
		if (keep)
			g->tensor[n++] = g->tensor[t];
	}
	g->n_tensors = n;
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_in; k++)
			g->op[i].in[k] = renamed(to, g->op[i].in[k]);
		for (int k = 0; k < g->op[i].n_out; k++)
			g->op[i].out[k] = renamed(to, g->op[i].out[k]);
	}
	for (int i = 0; i < g->n_inputs; i++)
		g->input[i] = to[g->input[i]];
	for (int i = 0; i < g->n_outputs; i++)
		g->output[i] = to[g->output[i]];
	g->loss = renamed(to, g->loss);
	g->label = renamed(to, g->label);
	g->seed = renamed(to, g->seed);
	for (int t = 0; t < n; t++)
		g->tensor[t].of = renamed(to, g->tensor[t].of);
	free(to);
}

void dlb_graph_reorder(struct dlb_graph *g, const int *order, int n)
{
	struct dlb_op *op = dlb_xcalloc((size_t)n + 1, sizeof *op);
	int *to = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *to);

	for (int i = 0; i < g->n_ops; i++)
		to[i] = -1;
	for (int i = 0; i < n; i++) {
		op[i] = g->op[order[i]];
		to[order[i]] = i;
	}
	for (int i = 0; i < n; i++) {
		op[i].of = renamed(to, op[i].of);
		op[i].colocate = renamed(to, op[i].colocate);
	}
	for (int t = 0; t < g->n_tensors; t++)
		g->tensor[t].home = renamed(to, g->tensor[t].home);
	free(to);
	free(g->op);
	g->op = op;
	g->n_ops = n;
	g->cap_ops = n + 1;
	drop_tensors(g);
	dlb_graph_forget_names(g);
	dlb_graph_index(g);
}

void dlb_graph_drop_dead(struct dlb_graph *g, const int *root, int n_root)
{
	bool *wanted = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *wanted);
	int *order = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *order);
	const bool keep_dead = !dlb_rewrite_is_on(g, DLB_REWRITE_DEAD);
	int n = 0;

	for (int i = 0; i < g->n_outputs; i++)
		wanted[g->output[i]] = true;
	for (int i = 0; i < n_root; i++)
		if (root[i] >= 0)
			wanted[root[i]] = true;
	if (g->loss >= 0)
		wanted[g->loss] = true;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_op *o = &g->op[i];
		bool live = o->phase == DLB_UPDATE, kept = false;
		for (int k = 0; k < o->n_out; k++) {
			live |= o->out[k] >= 0 && wanted[o->out[k]];
			kept |= o->out[k] >= 0 && keep_dead && o->phase == DLB_FORWARD;
		}
		if (!live && kept)
			dlb_rewrite_missed(g, DLB_REWRITE_DEAD);
		if (!live && !kept)
			continue;
		order[n++] = i;
		for (int k = 1; k < o->n_out; k++)	/* drops optional outputs without readers */
			if (o->out[k] >= 0 && !wanted[o->out[k]] && g->tensor[o->out[k]].kind != DLB_T_BUFFER)
				o->out[k] = -1;
		for (int k = 0; k < o->n_in; k++)
			if (o->in[k] >= 0)
				wanted[o->in[k]] = true;
	}
	for (int i = 0; i < n / 2; i++) {
		const int x = order[i];
		order[i] = order[n - 1 - i];
		order[n - 1 - i] = x;
	}
	dlb_graph_reorder(g, order, n);
	free(order);
	free(wanted);
}

/* -- names -- */

/* Adds `more` to the number of ops (tensors) with this name. x counts the names of the first x->n ops
 * (tensors); op_names and tensor_names bring it up to date. */
static void count_name(struct dlb_names *x, const char *name, int more)
{
	const int n = dlb_name_map_get(&x->count, name);

	dlb_name_map_set(&x->count, name, (n < 0 ? 0 : n) + more);
}

static struct dlb_names *op_names(struct dlb_graph *g)
{
	struct dlb_names *x = &g->op_names;

	for (; x->n < g->n_ops; x->n++)
		count_name(x, g->op[x->n].name, 1);
	return x;
}

static struct dlb_names *tensor_names(struct dlb_graph *g)
{
	struct dlb_names *x = &g->tensor_names;

	for (; x->n < g->n_tensors; x->n++)
		count_name(x, g->tensor[x->n].name, 1);
	return x;
}

static const char *unique(struct dlb_graph *g, const char *base, const struct dlb_names *x)
{
	const char *name = dlb_arena_strdup(&g->arena, base);

	for (int i = 2; dlb_name_map_get(&x->count, name) > 0; i++)
		name = dlb_arena_printf(&g->arena, "%s.%d", base, i);
	return name;
}

const char *dlb_graph_op_name(struct dlb_graph *g, const char *base)
{
	return unique(g, base, op_names(g));
}

const char *dlb_graph_tensor_name(struct dlb_graph *g, const char *base)
{
	return unique(g, base, tensor_names(g));
}

static void rename_in(struct dlb_names *x, const char **name, const char *to)
{
	count_name(x, *name, -1);
	count_name(x, to, 1);
	*name = to;
}

void dlb_graph_rename_op(struct dlb_graph *g, int op, const char *name)
{
	rename_in(op_names(g), &g->op[op].name, name);
}

void dlb_graph_rename_tensor(struct dlb_graph *g, int t, const char *name)
{
	rename_in(tensor_names(g), &g->tensor[t].name, name);
}

void dlb_graph_forget_names(struct dlb_graph *g)
{
	dlb_name_map_release(&g->op_names.count);
	dlb_name_map_release(&g->tensor_names.count);
	g->op_names.n = g->tensor_names.n = 0;
}

/* -- edges -- */

void dlb_graph_replace(struct dlb_graph *g, int from, int to, bool outputs_too)
{
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++)
			if (g->op[i].in[k] == from)
				g->op[i].in[k] = to;
	for (int i = 0; outputs_too && i < g->n_outputs; i++)
		if (g->output[i] == from)
			g->output[i] = to;
}

bool dlb_graph_is_output(const struct dlb_graph *g, int t)
{
	for (int i = 0; i < g->n_outputs; i++)
		if (g->output[i] == t)
			return true;
	return false;
}

int dlb_graph_add_constant(struct dlb_graph *g, const char *base, const struct dlb_desc *d, const void *data,
			   const int64_t *data_mul)
{
	const size_t bytes = dlb_desc_bytes(d), count = (size_t)dlb_desc_count(d);
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, base), DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[t];
	void *copy = dlb_arena_alloc(&g->arena, bytes ? bytes : 1);

	memcpy(copy, data, bytes);
	x->dtype = d->dtype;
	x->layout = d->layout;
	x->n_dims = d->n_dims;
	for (int i = 0; i < d->n_dims; i++)
		x->dim[i] = (struct dlb_dim){ 0, d->dim[i] };
	x->data = copy;
	if (data_mul) {
		int64_t *mul = dlb_arena_array(&g->arena, count ? count : 1, sizeof *mul);
		memcpy(mul, data_mul, count * sizeof *mul);
		x->data_mul = mul;
	}
	return t;
}

int dlb_graph_add_forward(struct dlb_graph *g, const struct dlb_op_spec *s, struct dlb_error *err)
{
	struct dlb_op_spec own = *s;

	own.name = dlb_graph_op_name(g, s->name);
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, own.name), DLB_T_ACTIVATION);
	own.out = &t;
	own.n_out = 1;
	const int op = dlb_graph_add_op(g, DLB_FORWARD, &own);
	g->tensor[t].producer = op;
	return dlb_graph_infer_new(g, op, err) ? -1 : t;
}

bool dlb_layouts_coincide(const struct dlb_tensor *t)
{
	bool one_pixel = true;

	if (t->n_dims < 3)
		return true;
	if (!t->dim[1].mul && t->dim[1].add == 1)
		return true;
	for (int i = 2; i < t->n_dims; i++)
		one_pixel &= !t->dim[i].mul && t->dim[i].add == 1;
	return one_pixel;
}

void dlb_graph_set_homes(struct dlb_graph *g)
{
	for (int t = 0; t < g->n_tensors; t++)
		g->tensor[t].home = -1;
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		for (int k = 0; k < o->n_in; k++) {
			struct dlb_tensor *t = o->in[k] < 0 ? NULL : &g->tensor[o->in[k]];
			const bool state = t && (t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER);
			if (state && (t->home < 0 || (o->phase == DLB_UPDATE && t->kind == DLB_T_WEIGHT)))
				t->home = i;
		}
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] >= 0 && g->tensor[o->out[k]].kind == DLB_T_BUFFER)
				g->tensor[o->out[k]].home = i;
	}
}
