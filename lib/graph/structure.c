/* Control flow: If, Loop and Scan are replaced by the vertices that they run.
 *
 * Folding visits vertices in topological order. When it visits one of these, the values that control it are
 * constant, or never will be: the condition of If, trip count and condition of Loop, the length of Scan's
 * inputs. If is replaced by one branch. Loop and Scan are unrolled; a Loop's condition is computed by folding
 * the iteration before. Outputs of iterations are stacked by Unsqueeze and Concat; Scan's inputs are divided
 * by Split and Squeeze. New vertices are ordinary ones and visited at once, so nested bodies and folding
 * inside them need no further code, and they can be differentiated.
 *
 * Control that depends on the data of a run is refused; the message names the vertex and
 * the input it depends on. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "graph/fold.h"
#include "graph/order.h"
#include "graph/passes.h"

enum { MAX_SPENT = 1 << 17 };	/* limit on vertices and iterations, since a file can state any trip count */
enum { OPSET = 17 };		/* version of the vertices made here */

/* -- names -- */

/* Numbers increase over the whole graph: an unrolled loop makes thousands of names from one base. */
static const char *unique(struct fold *f, struct dlb_name_map *m, const char *base)
{
	const char *name = base;

	while (dlb_name_map_get(m, name) >= 0)
		name = dlb_arena_printf(&f->a, "%s.%d", base, ++f->n_renamed);
	return name;
}

static const char *op_name(struct fold *f, const char *base)
{
	for (; f->n_op_names < f->g->n_ops; f->n_op_names++)
		dlb_name_map_add(&f->op_names, f->g->op[f->n_op_names].name, 0);
	return unique(f, &f->op_names, base);
}

static int add_tensor(struct fold *f, const char *base, enum dlb_tensor_kind kind)
{
	for (; f->n_tensor_names < f->g->n_tensors; f->n_tensor_names++)
		dlb_name_map_add(&f->tensor_names, f->g->tensor[f->n_tensor_names].name, 0);
	const int t = dlb_graph_add_tensor(f->g, unique(f, &f->tensor_names, base), kind);
	dlb_fold_room(f);
	return t;
}

/* -- known values -- */

int dlb_fold_spend(struct fold *f, int op, int64_t n, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];

	f->spent = n > MAX_SPENT ? MAX_SPENT + 1 : f->spent + n;
	if (f->spent <= MAX_SPENT)
		return 0;
	return dlb_vertex_fail(o, err, "export with a shorter sequence, or without the loop",
			"%s unrolls into more than %d vertices", o->type, MAX_SPENT);
}

/* The name of a fed input that tensor t is computed from; NULL: none. */
static const char *origin(const struct fold *f, int t)
{
	const struct dlb_graph *g = f->g;
	bool *wanted = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *wanted);
	const char *name = g->tensor[t].kind == DLB_T_INPUT ? g->tensor[t].name : NULL;

	wanted[t] = true;
	for (int i = f->n_order - 1; i >= 0 && !name; i--) {
		const struct dlb_op *o = &g->op[f->order[i]];
		bool reads = false;
		for (int k = 0; k < o->n_out; k++)
			reads |= o->out[k] >= 0 && wanted[o->out[k]];
		for (int k = 0; k < o->n_in && reads; k++) {
			if (o->in[k] < 0)
				continue;
			wanted[o->in[k]] = true;
			if (g->tensor[o->in[k]].kind == DLB_T_INPUT)
				name = g->tensor[o->in[k]].name;
		}
	}
	free(wanted);
	return name;
}

int dlb_fold_decide(struct fold *f, int op, int t, const char *what, int64_t *v, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	int64_t at[DLB_N_SIZES];

	if (f->sequence[t])
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK, "the %s of %s is a sequence", what, o->type);
	if (f->ragged[t].mask >= 0)
		return dlb_ragged_refuse_at(f, op, t, "it would decide what is run", err);
	const void *first = dlb_fold_is_known(f, t) ? dlb_fold_value(f, t, 0) : NULL;
	if (!first) {
		const char *from = origin(f, t);
		dlb_vertex_fail(o, err, NULL, "the %s of %s ('%s') is not known before the run%s%s%s", what,
				o->type, f->g->tensor[t].name, from ? ": it is computed from input '" : "",
				from ? from : "", from ? "'" : "");
		return dlb_hint(err, "it may follow shapes and constants, not data");
	}
	const struct dlb_desc d = dlb_tensor_desc(&f->g->tensor[t], f->n);
	if (dlb_desc_count(&d) != 1)
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK, "the %s of %s has %" PRId64 " values, not one",
				       what, o->type, dlb_desc_count(&d));
	for (int s = 0; s < DLB_N_SIZES; s++)
		at[s] = dlb_value_int(dlb_fold_value(f, t, s), d.dtype, 0);
	if (at[1] != at[0] || at[2] != at[0]) {
		dlb_vertex_fail(o, err, NULL,
				"the %s of %s follows the batch: %" PRId64 " for %" PRId64
				" samples, %" PRId64 " for %" PRId64,
				what, o->type, at[0], f->n, at[1], 2 * f->n);
		return dlb_hint(err, "only what is the same for every batch can be resolved");
	}
	*v = at[0];
	return 0;
}

int dlb_fold_length(struct fold *f, int op, int t, int64_t *axis, int64_t *length, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_tensor *x = t < 0 ? NULL : &f->g->tensor[t];

	if (!x || x->n_dims < 0 || f->sequence[t])
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"an input of %s is missing, or no tensor", o->type);
	if (*axis < -x->n_dims || *axis >= x->n_dims)
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"axis %" PRId64 " of %s is out of range for %d dimensions", *axis, o->type,
				x->n_dims);
	*axis += *axis < 0 ? x->n_dims : 0;
	if (f->ragged[t].mask >= 0 && (f->ragged[t].size || f->ragged[t].dim == *axis))
		return dlb_ragged_refuse_at(f, op, t, "it would decide what is run", err);
	if (x->dim[*axis].mul)
		return dlb_vertex_fail(
			o, err, "export it so that the loop goes along another dimension than the batch",
			"%s goes along dimension %" PRId64 " of '%s', which follows the batch", o->type,
			*axis, x->name);
	*length = x->dim[*axis].add;
	return 0;
}

/* -- vertices -- */

int dlb_fold_ints(struct fold *f, int op, const int64_t *v, int n)
{
	const size_t count = n < 0 ? 1 : (size_t)n;
	const int t = add_tensor(f, dlb_arena_printf(&f->a, "%s.constant", f->g->op[op].name),
				 DLB_T_CONSTANT);
	struct dlb_tensor *x = &f->g->tensor[t];
	int64_t *data = dlb_arena_array(&f->g->arena, count + 1, sizeof *data);

	if (count)
		memcpy(data, v, count * sizeof *data);
	x->dtype = DLB_I64;
	x->n_dims = n < 0 ? 0 : 1;
	x->dim[0] = (struct dlb_dim){ 0, n < 0 ? 0 : n };
	x->data = data;
	return t;
}

/* Adds a vertex with the tensors s->out[] as outputs; its domain follows from the type. */
static int add_vertex(struct fold *f, int op, const struct dlb_op_spec *s, struct dlb_error *err)
{
	struct dlb_op_spec own = *s;

	if (dlb_fold_spend(f, op, 1, err))
		return -1;
	own.name = op_name(f, s->name);
	own.domain = dlb_op_kind_find(s->type, "") < 0 ? "dlb" : "";
	own.opset = OPSET;
	const int id = dlb_graph_add_op(f->g, DLB_FORWARD, &own);
	f->resolved = true;
	return dlb_fold_visit(f, id, err);
}

int dlb_fold_emit(struct fold *f, int op, const struct dlb_op_spec *s, int *out, struct dlb_error *err)
{
	const int n_out = s->n_out ? s->n_out : 1;
	int *id = dlb_arena_array(&f->a, (size_t)n_out + 1, sizeof *id);
	struct dlb_op_spec own = *s;

	own.name = dlb_arena_printf(&f->a, "%s.%s", f->g->op[op].name, s->type);
	own.out = id;
	own.n_out = n_out;
	for (int k = 0; k < n_out; k++)
		id[k] = add_tensor(f, n_out > 1 ? dlb_arena_printf(&f->a, "%s.%d", own.name, k) : own.name,
				   DLB_T_ACTIVATION);
	if (add_vertex(f, op, &own, err))
		return -1;
	for (int k = 0; k < n_out && out; k++)
		out[k] = id[k];
	return id[0];
}

int dlb_fold_again(struct fold *f, int op, const int *in, int t)
{
	const struct dlb_op o = f->g->op[op];
	int *out = dlb_arena_array(&f->a, (size_t)o.n_out + 1, sizeof *out), made = -1;
	struct dlb_error ignored = { .what = "" };

	if (dlb_fold_spend(f, op, 1, &ignored))
		return -1;
	for (int k = 0; k < o.n_out; k++) {
		out[k] = o.out[k] < 0 ? -1 : add_tensor(f, f->g->tensor[o.out[k]].name, DLB_T_ACTIVATION);
		made = o.out[k] == t ? out[k] : made;
	}
	const int id = dlb_graph_add_op(f->g, DLB_FORWARD,
					&(struct dlb_op_spec){ .name = op_name(f, o.name), .type = o.type,
							       .domain = o.domain, .in = in, .n_in = o.n_in,
							       .out = out, .n_out = o.n_out, .attr = o.attr,
							       .n_attr = o.n_attr });
	f->g->op[id].opset = o.opset;
	f->resolved = true;
	return dlb_fold_visit(f, id, &ignored) ? -1 : made;
}

int dlb_fold_bind(struct fold *f, int op, int k, int t, struct dlb_error *err)
{
	const int out = k < f->g->op[op].n_out ? f->g->op[op].out[k] : -1;

	if (out < 0)
		return 0;
	if (t < 0)
		return dlb_vertex_fail(&f->g->op[op], err, DLB_CURE_CHECK,
				"output %d of %s is not made", k, f->g->op[op].type);
	if (f->sequence[t] || !dlb_graph_is_output(f->g, out)) {
		f->stands_for[out] = t;
		return 0;
	}
	return add_vertex(f, op, &(struct dlb_op_spec){ .name = f->g->op[op].name, .type = "Identity",
							DLB_OPERANDS(t), .out = &out, .n_out = 1 }, err);
}

int dlb_fold_split(struct fold *f, int op, int t, const struct dlb_fold_pieces *p, int *piece,
		   struct dlb_error *err)
{
	const struct dlb_attr attr = { .name = "axis", .type = DLB_ATTR_INT, .i = p->axis };
	const int n = p->n;
	int64_t *ones = dlb_arena_array(&f->a, (size_t)n + 1, sizeof *ones);

	for (int i = 0; i < n; i++)
		ones[i] = 1;
	if (dlb_fold_spend(f, op, n, err))
		return -1;
	piece[0] = t;
	if (n > 1) {
		const int in[2] = { t, dlb_fold_ints(f, op, p->size ? p->size : ones, n) };
		if (dlb_fold_emit(f, op,
				  &(struct dlb_op_spec){ .type = "Split", .in = in, .n_in = 2, .n_out = n,
							 .attr = &attr, .n_attr = 1 }, piece, err) < 0)
			return -1;
	}
	const int axes = p->keep ? -1 : dlb_fold_ints(f, op, &p->axis, 1);
	for (int i = 0; i < n && !p->keep; i++) {
		const int in[2] = { piece[i], axes };
		if ((piece[i] = dlb_fold_emit(f, op,
					      &(struct dlb_op_spec){ .type = "Squeeze", .in = in, .n_in = 2 },
					      NULL, err)) < 0)
			return -1;
	}
	return 0;
}

int dlb_fold_join(struct fold *f, int op, const int *t, int n, int64_t axis, bool new_axis,
		  struct dlb_error *err)
{
	const struct dlb_attr attr = { .name = "axis", .type = DLB_ATTR_INT, .i = axis };
	const int axes = new_axis ? dlb_fold_ints(f, op, &axis, 1) : -1;
	int *part = dlb_arena_array(&f->a, (size_t)n + 1, sizeof *part);

	for (int i = 0; i < n; i++) {
		const int in[2] = { t[i], axes };
		part[i] = t[i];
		if (new_axis &&
		    (part[i] = dlb_fold_emit(f, op,
					     &(struct dlb_op_spec){ .type = "Unsqueeze", .in = in,
								    .n_in = 2 }, NULL, err)) < 0)
			return -1;
	}
	return n == 1 ? part[0] : dlb_fold_emit(f, op,
						&(struct dlb_op_spec){ .type = "Concat", .in = part,
							.n_in = n, .attr = &attr, .n_attr = 1 }, NULL, err);
}

/* -- bodies -- */

static const struct dlb_body *body_of(const struct fold *f, int op, const char *name, int n_formal,
				      int n_results, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int64_t i = dlb_attr_int(o->attr, o->n_attr, name, -1);
	const struct dlb_body *b = i >= 0 && i < f->g->n_bodies ? f->g->body[i] : NULL;

	if (!b || b->first_capture + b->g.n_inputs - b->n_formal > o->n_in) {
		dlb_vertex_fail(o, err, DLB_CURE_CHECK, "%s has no graph '%s'", o->type, name);
		return NULL;
	}
	if (n_formal >= 0 && b->n_formal != n_formal) {
		dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"'%s' of %s has %d inputs, not %d", name, o->type, b->n_formal, n_formal);
		return NULL;
	}
	if (b->g.n_outputs < n_results) {
		dlb_vertex_fail(o, err, DLB_CURE_CHECK, "'%s' of %s has %d outputs, %d are needed", name,
				o->type, b->g.n_outputs, n_results);
		return NULL;
	}
	return b;
}

/* Operand k of those that ONNX defines; -1: absent. */
static int operand(const struct fold *f, int op, const struct dlb_body *b, int k)
{
	return k < b->first_capture ? f->g->op[op].in[k] : -1;
}

/* Copies the body's vertices into the graph, named PREFIX.NAME, with actual[] as its formal
 * inputs; result[]: its outputs. */
static int run_body(struct fold *f, int op, const struct dlb_body *b, const char *prefix, const int *actual,
		    int *result, struct dlb_error *err)
{
	const struct dlb_graph *from = &b->g;
	const int *captured = f->g->op[op].in + b->first_capture;
	int *to = dlb_xcalloc((size_t)from->n_tensors + 1, sizeof *to);
	int rc = dlb_fold_spend(f, op, from->n_ops + 1, err);

	for (int t = 0; t < from->n_tensors; t++)
		to[t] = -1;
	for (int i = 0; i < from->n_inputs; i++)
		to[from->input[i]] = i < b->n_formal ? actual[i] : captured[i - b->n_formal];
	for (int i = 0; i < from->n_ops && !rc; i++) {
		const struct dlb_op *o = &from->op[i];
		int *in = dlb_arena_array(&f->a, (size_t)o->n_in + 1, sizeof *in);
		int *out = dlb_arena_array(&f->a, (size_t)o->n_out + 1, sizeof *out);
		for (int k = 0; k < o->n_in; k++)
			in[k] = o->in[k] < 0 ? -1 : to[o->in[k]];
		for (int k = 0; k < o->n_out; k++) {
			out[k] = -1;
			if (o->out[k] >= 0)
				out[k] = to[o->out[k]] = add_tensor(f,
								    dlb_arena_printf(&f->a, "%s.%s", prefix,
										     from->tensor[o->out[k]]
											     .name),
								    DLB_T_ACTIVATION);
		}
		const struct dlb_op_spec s = {
			.name = op_name(f, dlb_arena_printf(&f->a, "%s.%s", prefix, o->name)),
			.type = o->type,
			.domain = o->domain,
			.in = in,
			.n_in = o->n_in,
			.out = out,
			.n_out = o->n_out,
			.attr = o->attr,
			.n_attr = o->n_attr
		};
		const int id = dlb_graph_add_op(f->g, DLB_FORWARD, &s);
		f->g->op[id].opset = o->opset;
		f->g->op[id].kind = o->kind;
		rc = dlb_fold_visit(f, id, err);
	}
	for (int i = 0; i < from->n_outputs && !rc; i++) {
		result[i] = dlb_fold_actual(f, to[from->output[i]]);
		if (result[i] < 0)
			rc = dlb_vertex_fail(&f->g->op[op], err, DLB_CURE_CHECK,
					"nothing makes output '%s' of a body",
				      from->tensor[from->output[i]].name);
	}
	free(to);
	return rc;
}

/* Does the If have a condition, operand 0? The operands that its bodies capture come last; none of these is
 * the condition. */
static bool has_condition(const struct fold *f, int op)
{
	static const char *const branches[] = { "then_branch", "else_branch" };
	const struct dlb_op *o = &f->g->op[op];

	for (int i = 0; i < DLB_LEN(branches); i++) {
		const int64_t k = dlb_attr_int(o->attr, o->n_attr, branches[i], -1);
		if (k >= 0 && k < f->g->n_bodies && f->g->body[k]->first_capture < 1)
			return false;
	}
	return o->n_in > 0 && o->in[0] >= 0;
}

static int resolve_if(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	int64_t yes;

	if (!has_condition(f, op))
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK, "If has no condition");
	if (dlb_fold_decide(f, op, o->in[0], "condition", &yes, err))
		return -1;
	const struct dlb_body *b = body_of(f, op, yes ? "then_branch" : "else_branch", 0, o->n_out, err);
	if (!b)
		return -1;
	const int n_out = o->n_out;
	int *result = dlb_arena_array(&f->a, (size_t)b->g.n_outputs + 1, sizeof *result);
	int rc = run_body(f, op, b, o->name, NULL, result, err);
	for (int k = 0; k < n_out && !rc; k++)
		rc = dlb_fold_bind(f, op, k, result[k], err);
	return rc;
}

/* -- iterations -- */

/* Results of the iterations for one scan output: one tensor each. */
struct scan_outputs { int *t, n, cap; };

static void follow(struct scan_outputs *trail, int n, const int *t)
{
	for (int k = 0; k < n; k++) {
		DLB_GROW(trail[k].t, trail[k].n, trail[k].cap);
		trail[k].t[trail[k].n++] = t[k];
	}
}

static void free_trails(struct scan_outputs *trail, int n)
{
	for (int k = 0; k < n; k++)
		free(trail[k].t);
	free(trail);
}

/* The result of no iteration: an empty tensor with the shape that the body's output states. */
static int stack_none(struct fold *f, int op, const struct dlb_tensor *each, int64_t axis,
		      struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];

	if (each->n_dims < 0 || each->n_dims >= DLB_MAX_DIMS || axis != 0)
		return dlb_vertex_fail(
			o, err,
			"state the shape of the output in the model: onnx.shape_inference.infer_shapes",
			"%s makes no iteration, and the shape of its output '%s' is not stated", o->type,
			each->name);
	const int t = add_tensor(f, dlb_arena_printf(&f->a, "%s.none", o->name), DLB_T_CONSTANT);
	struct dlb_tensor *x = &f->g->tensor[t];
	x->dtype = each->dtype;
	x->n_dims = each->n_dims + 1;
	x->dim[0] = (struct dlb_dim){ 0, 0 };
	for (int i = 0; i < each->n_dims; i++)
		x->dim[i + 1] = each->dim[i];
	x->data = dlb_arena_alloc(&f->g->arena, 16);
	return t;
}

static int stack(struct fold *f, int op, struct scan_outputs *trail, const struct dlb_tensor *each,
		 int64_t axis, bool backwards, struct dlb_error *err)
{
	for (int i = 0; i < trail->n / 2 && backwards; i++) {
		const int t = trail->t[i];
		trail->t[i] = trail->t[trail->n - 1 - i];
		trail->t[trail->n - 1 - i] = t;
	}
	for (int i = 0; i < trail->n; i++)
		if (f->sequence[trail->t[i]])
			return dlb_vertex_fail(&f->g->op[op], err, "let the body give tensors",
					"output '%s' of a body is a sequence and cannot be stacked",
					each->name);
	return trail->n ? dlb_fold_join(f, op, trail->t, trail->n, axis, true, err) :
			  stack_none(f, op, each, axis, err);
}

/* A constant for input i of the body: a scalar, or one element if the body states so. */
static int one_value(struct fold *f, int op, const struct dlb_body *b, int i, int64_t v, enum dlb_dtype dtype)
{
	const int t = dlb_fold_ints(f, op, &v, b->g.tensor[b->g.input[i]].n_dims == 1 ? 1 : -1);

	f->g->tensor[t].dtype = dtype;
	dlb_value_set((void *)f->g->tensor[t].data, dtype, 0, (double)v);
	return t;
}

/* Loop: inputs are trip count and condition (either may be absent), then the carried values. The body
 * takes iteration number, condition and carried values, and returns condition, carried values, and the
 * outputs that are stacked. */
static int loop(struct fold *f, int op, const struct dlb_body *b, int n_carried, int *state,
		struct scan_outputs *trail, struct dlb_error *err)
{
	const char *name = f->g->op[op].name;
	const int count = operand(f, op, b, 0), condition = operand(f, op, b, 1),
		  n_stacked = b->g.n_outputs - 1 - n_carried;
	int *actual = dlb_arena_array(&f->a, (size_t)b->n_formal + 1, sizeof *actual);
	int *result = dlb_arena_array(&f->a, (size_t)b->g.n_outputs + 1, sizeof *result);
	int64_t trips = INT64_MAX, go = 1;

	if ((count >= 0 && dlb_fold_decide(f, op, count, "trip count", &trips, err)) ||
	    (condition >= 0 && dlb_fold_decide(f, op, condition, "condition", &go, err)))
		return -1;
	for (int64_t i = 0; i < trips && go; i++) {
		actual[0] = one_value(f, op, b, 0, i, DLB_I64);
		actual[1] = one_value(f, op, b, 1, 1, DLB_BOOL);
		memcpy(actual + 2, state, (size_t)n_carried * sizeof *state);
		if (run_body(f, op, b, dlb_arena_printf(&f->a, "%s.%" PRId64, name, i), actual, result, err))
			return -1;
		if (n_carried)
			memcpy(state, result + 1, (size_t)n_carried * sizeof *state);
		follow(trail, n_stacked, result + 1 + n_carried);
		/* a Loop without an initial condition ignores the body's condition
		 * (ONNX's table of loop kinds) */
		if (condition >= 0 && i + 1 < trips &&
		    dlb_fold_decide(f, op, result[0], "condition", &go, err))
			return -1;
	}
	return 0;
}

static int resolve_loop(struct fold *f, int op, struct dlb_error *err)
{
	const int bags = dlb_fold_bags(f, op, err);
	if (bags)
		return bags < 0 ? -1 : 0;
	const struct dlb_op *o = &f->g->op[op];
	const int n_out = o->n_out;
	const struct dlb_body *b = body_of(f, op, "body", -1, 1, err);
	if (!b)
		return -1;
	const int n_carried = b->first_capture > 2 ? b->first_capture - 2 : 0,
		  n_stacked = b->g.n_outputs - 1 - n_carried;
	if (!(b = body_of(f, op, "body", n_carried + 2, n_carried + 1, err)))
		return -1;
	if (n_out > n_carried + n_stacked)
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"Loop has %d outputs, its body gives %d", n_out, n_carried + n_stacked);
	struct scan_outputs *trail = dlb_xcalloc((size_t)n_stacked + 1, sizeof *trail);
	int *state = dlb_arena_array(&f->a, (size_t)n_carried + 1, sizeof *state);
	for (int k = 0; k < n_carried; k++)
		state[k] = operand(f, op, b, k + 2);
	int rc = loop(f, op, b, n_carried, state, trail, err);
	for (int k = 0; k < n_out && !rc; k++) {
		int t = k < n_carried ? state[k] : -1;
		if (f->g->op[op].out[k] < 0)
			continue;
		if (k >= n_carried)
			rc = (t = stack(f, op, &trail[k - n_carried], &b->g.tensor[b->g.output[1 + k]], 0,
					false, err)) < 0;
		rc = rc || dlb_fold_bind(f, op, k, t, err) ? -1 : 0;
	}
	free_trails(trail, n_stacked);
	return rc;
}

/* Scan: n_state inputs are carried, the others are divided along an axis each. In opset 8 every operand also
 * has the batch as first dimension, and each sample is scanned. */
struct scan { const struct dlb_body *b; int op, n_state, n_taken, n_stacked; bool batched; };

static int64_t listed(const struct fold *f, int op, const char *name, int i)
{
	const struct dlb_op *o = &f->g->op[op];
	const int64_t *v = NULL;
	const int n = dlb_attr_ints(o->attr, o->n_attr, name, &v);

	return i < n ? v[i] : 0;
}

/* state[]: carried values, in and out. taken[]: tensors to divide. stacked[]: results. */
static int scan_once(struct fold *f, const struct scan *s, int *state, const int *taken, int *stacked,
		     struct dlb_error *err)
{
	const int op = s->op, n_in = s->n_state + s->n_taken;
	const char *name = f->g->op[op].name;
	int **piece = dlb_arena_array(&f->a, (size_t)s->n_taken + 1, sizeof *piece);
	int *actual = dlb_arena_array(&f->a, (size_t)n_in + 1, sizeof *actual);
	int *result = dlb_arena_array(&f->a, (size_t)s->b->g.n_outputs + 1, sizeof *result);
	struct scan_outputs *trail = dlb_xcalloc((size_t)s->n_stacked + 1, sizeof *trail);
	int64_t trips = -1;
	int rc = 0;

	for (int k = 0; k < s->n_taken && !rc; k++) {
		int64_t axis = s->batched ? 0 : listed(f, op, "scan_input_axes", k), n;
		rc = dlb_fold_length(f, op, taken[k], &axis, &n, err);
		if (!rc && trips >= 0 && n != trips)
			rc = dlb_vertex_fail(&f->g->op[op], err, DLB_CURE_CHECK,
					"inputs of Scan are %" PRId64 " and %" PRId64 " long", trips, n);
		trips = n;
		if (!rc)
			rc = dlb_fold_spend(f, op, trips, err);
		if (rc)
			break;
		piece[k] = dlb_arena_array(&f->a, (size_t)trips + 1, sizeof **piece);
		rc = trips ? dlb_fold_split(f, op, taken[k],
					    &(struct dlb_fold_pieces){ .axis = axis, .n = (int)trips },
					    piece[k], err) :
			     0;
	}
	for (int64_t i = 0; i < trips && !rc; i++) {
		if (s->n_state)
			memcpy(actual, state, (size_t)s->n_state * sizeof *state);
		for (int k = 0; k < s->n_taken; k++) {
			const bool back = listed(f, op, s->batched ? "directions" : "scan_input_directions",
						 k) != 0;
			actual[s->n_state + k] = piece[k][back ? trips - 1 - i : i];
		}
		rc = run_body(f, op, s->b, dlb_arena_printf(&f->a, "%s.%" PRId64, name, i), actual, result,
			      err);
		if (rc)
			break;
		if (s->n_state)
			memcpy(state, result, (size_t)s->n_state * sizeof *state);
		follow(trail, s->n_stacked, result + s->n_state);
	}
	for (int k = 0; k < s->n_stacked && !rc; k++) {
		const struct dlb_tensor *each = &s->b->g.tensor[s->b->g.output[s->n_state + k]];
		stacked[k] = stack(f, op, &trail[k], each,
				   s->batched ? 0 : listed(f, op, "scan_output_axes", k),
				   listed(f, op, "scan_output_directions", k) != 0, err);
		rc = stacked[k] < 0 ? -1 : 0;
	}
	free_trails(trail, s->n_stacked);
	return rc;
}

/* Scans each sample: divides operands along the batch, joins the results. */
static int scan_batch(struct fold *f, const struct scan *s, int *state, const int *taken, int *stacked,
		      struct dlb_error *err)
{
	const int n_in = s->n_state + s->n_taken, n_out = s->n_state + s->n_stacked;
	int64_t samples = 0, axis = 0, n;
	int rc = 0;

	for (int k = 0; k < n_in && !rc; k++) {
		rc = dlb_fold_length(f, s->op, k < s->n_state ? state[k] : taken[k - s->n_state], &axis, &n,
				     err);
		if (!rc && (n < 1 || (k && n != samples)))
			rc = dlb_vertex_fail(&f->g->op[s->op], err, DLB_CURE_CHECK,
					     "inputs of Scan have %" PRId64 " and %" PRId64 " samples",
					     samples, n);
		samples = n;
	}
	if (rc || dlb_fold_spend(f, s->op, samples * (n_in + n_out), err))
		return -1;
	int *piece = dlb_arena_array(&f->a, (size_t)samples * (size_t)n_in + 1, sizeof *piece);
	int *made = dlb_arena_array(&f->a, (size_t)samples * (size_t)n_out + 1, sizeof *made);
	int *mine = dlb_arena_array(&f->a, (size_t)(n_in + n_out) + 1, sizeof *mine);
	for (int k = 0; k < n_in && !rc; k++)
		rc = dlb_fold_split(f, s->op, k < s->n_state ? state[k] : taken[k - s->n_state],
				    &(struct dlb_fold_pieces){ .n = (int)samples },
				    piece + (size_t)k * (size_t)samples, err);
	for (int64_t i = 0; i < samples && !rc; i++) {
		for (int k = 0; k < n_in; k++)
			mine[k] = piece[(size_t)k * (size_t)samples + (size_t)i];
		rc = scan_once(f, s, mine, mine + s->n_state, mine + n_in, err);
		for (int k = 0; k < n_out; k++)
			made[(size_t)k * (size_t)samples + (size_t)i] = k < s->n_state ? mine[k] :
											 mine[s->n_taken + k];
	}
	for (int k = 0; k < n_out && !rc; k++) {
		int *to = k < s->n_state ? &state[k] : &stacked[k - s->n_state];
		*to = dlb_fold_join(f, s->op, made + (size_t)k * (size_t)samples, (int)samples, 0, true, err);
		rc = *to < 0 ? -1 : 0;
	}
	return rc;
}

static int resolve_scan(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int n_out = o->n_out;
	const bool batched = o->opset < 9;
	const int64_t n_taken = dlb_attr_int(o->attr, o->n_attr, "num_scan_inputs", 0);
	const struct dlb_body *b = body_of(f, op, "body", -1, 0, err);
	if (!b)
		return -1;
	const int first = batched, n_state = b->first_capture - first - (int)n_taken;
	if (n_taken < 1 || n_taken > b->first_capture - first)
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK, "Scan takes %" PRId64 " inputs apart, of %d",
				       n_taken, b->first_capture - first);
	if (!(b = body_of(f, op, "body", n_state + (int)n_taken, n_state, err)))
		return -1;
	if (batched && operand(f, op, b, 0) >= 0)
		return dlb_vertex_fail(o, err, "export with opset 9 or later",
				"sequence lengths of Scan (opset 8) are not supported");
	const struct scan s = { b, op, n_state, (int)n_taken, b->g.n_outputs - n_state, batched };
	if (n_out > b->g.n_outputs)
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"Scan has %d outputs, its body gives %d", n_out, b->g.n_outputs);
	int *in = dlb_arena_array(&f->a, (size_t)b->first_capture + 1, sizeof *in);
	int *made = dlb_arena_array(&f->a, (size_t)s.n_stacked + 1, sizeof *made);
	for (int k = 0; k < n_state + s.n_taken; k++)
		if ((in[k] = operand(f, op, b, first + k)) < 0)
			return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
					"input %d of Scan is missing", first + k);
	int rc = (batched ? scan_batch : scan_once)(f, &s, in, in + n_state, made, err);
	for (int k = 0; k < n_out && !rc; k++)
		rc = dlb_fold_bind(f, op, k, k < n_state ? in[k] : made[k - n_state], err);
	return rc;
}

/* -- the table -- */

static const struct {
	const char *type;
	int (*resolve)(struct fold *f, int op, struct dlb_error *err);
} kinds[] = {
	{ "If", resolve_if },
	{ "Loop", resolve_loop },
	{ "Scan", resolve_scan },
};

static int find(const char *type)
{
	for (int i = 0; i < DLB_LEN(kinds); i++)
		if (!strcmp(kinds[i].type, type))
			return i;
	return -1;
}

bool dlb_graph_is_structure(const char *type, const char *domain)
{
	if (domain && *domain && strcmp(domain, "ai.onnx"))
		return false;
	return find(type) >= 0 || dlb_sequence_find(type) >= 0;
}

int dlb_fold_structure(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const bool onnx = dlb_graph_is_structure(o->type, o->domain);
	const int row = onnx ? dlb_sequence_find(o->type) : -1;

	if (!onnx && strcmp(o->type, "Identity") == 0 && o->n_in == 1 && o->n_out == 1)
		return dlb_fold_bind(f, op, 0, o->in[0], err);
	if (!onnx)
		return dlb_vertex_fail(o, err,
				       "take the tensors out of it with SequenceAt or ConcatFromSequence",
				       "an input of %s is a sequence", o->type);
	f->resolved = true;
	return row >= 0 ? dlb_sequence_resolve(f, op, row, err) : kinds[find(o->type)].resolve(f, op, err);
}

int dlb_fold_end_structure(struct fold *f, struct dlb_error *err)
{
	struct dlb_graph *g = f->g;

	if (!f->resolved)
		return 0;
	for (int i = 0; i < g->n_outputs; i++) {
		const int t = dlb_fold_actual(f, g->output[i]);
		if (f->sequence[t])
			return dlb_refuse(err, g->tensor[g->output[i]].name,
					  "let the model return tensors: ConcatFromSequence joins them",
					  "the output is a sequence of tensors; dlb has tensors only");
	}
	dlb_graph_reorder(g, f->order, f->n_order);
	for (int i = 0; i < g->n_bodies; i++) {
		dlb_graph_release(&g->body[i]->g);
		free(g->body[i]);
	}
	g->n_bodies = 0;
	return 0;
}
