/* Constants that hold the batch a model was exported with.
 *
 * Exporters write out what they can compute: an initial state of zeros becomes a constant of shape (layers, 8, hidden),
 * a mask or a list of positions one of shape (8, length). The vertex that reads it then agrees with its other operands
 * at 8 samples alone. Where inference fails at another size, each constant operand with a dimension equal to the
 * model's own batch is tried again, first as one row that broadcasts (its rows are equal), then, when it has the same
 * value all over, as a fill whose dimension follows the batch. What makes the shapes agree is kept. */
#include <string.h>
#include "graph/fold.h"

/* Elements of all dimensions before, and after, dimension k. */
static void around(const struct dlb_tensor *x, int k, int64_t *outer, int64_t *inner)
{
	*outer = *inner = 1;
	for (int i = 0; i < x->n_dims; i++)
		if (i != k)
			*(i < k ? outer : inner) *= x->dim[i].add;
}

/* The constant's first row along dimension k when all are equal, else NULL; in f->a. */
static void *one_row(struct fold *f, const struct dlb_tensor *x, int k)
{
	const char *from = x->data;
	int64_t outer, inner;

	around(x, k, &outer, &inner);
	const size_t bytes = (size_t)inner * dlb_dtype_bytes(x->dtype), rows = (size_t)x->dim[k].add;
	char *row = dlb_arena_alloc(&f->a, (size_t)outer * bytes + 1);
	for (size_t o = 0; o < (size_t)outer; o++) {
		for (size_t r = 1; r < rows; r++)
			if (memcmp(from + o * rows * bytes, from + (o * rows + r) * bytes, bytes))
				return NULL;
		memcpy(row + o * bytes, from + o * rows * bytes, bytes);
	}
	return row;
}

static bool is_uniform(const struct dlb_tensor *x, int64_t count)
{
	const size_t size = dlb_dtype_bytes(x->dtype);

	for (int64_t i = 1; i < count; i++)
		if (memcmp(x->data, (const char *)x->data + (size_t)i * size, size))
			return false;
	return count > 0;
}

/* Operand k of `op` becomes tensor t; true when the shapes agree then, else it is put back. */
static bool agrees(struct fold *f, int op, int k, int t)
{
	const int before = f->g->op[op].in[k];
	struct dlb_error ignored = { .what = "" };

	dlb_fold_room(f);
	f->g->op[op].in[k] = t;
	if (!dlb_graph_infer(f->g, op, f->n, &f->known, &ignored))
		return true;
	f->g->op[op].in[k] = before;
	return false;
}

static bool try_dimension(struct fold *f, int op, int k, int dim)
{
	const struct dlb_tensor x = f->g->tensor[f->g->op[op].in[k]];
	struct dlb_desc d = dlb_tensor_desc(&x, f->n);
	void *row = one_row(f, &x, dim);

	if (!row)
		return false;
	d.dim[dim] = 1;
	if (x.dim[dim].add > 1 && agrees(f, op, k, dlb_graph_add_constant(f->g, x.name, &d, row, NULL)))
		return true;
	d.dim[dim] = x.dim[dim].add;
	if (!is_uniform(&x, dlb_desc_count(&d)))
		return false;
	const int t = dlb_graph_add_tensor(f->g, dlb_graph_tensor_name(f->g, x.name), DLB_T_CONSTANT);
	struct dlb_tensor *fill = &f->g->tensor[t];
	fill->dtype = x.dtype;
	fill->n_dims = x.n_dims;
	memcpy(fill->dim, x.dim, sizeof fill->dim);
	fill->dim[dim] = (struct dlb_dim){ 1, 0 };
	fill->is_fill = true;
	fill->fill = dlb_value_real(x.data, x.dtype, 0);
	return agrees(f, op, k, t);
}

int dlb_fold_unwire(struct fold *f, int op, struct dlb_error *err)
{
	for (int k = 0; k < f->g->op[op].n_in; k++) {
		const int t = f->g->op[op].in[k];
		const struct dlb_tensor *x = t < 0 ? NULL : &f->g->tensor[t];
		if (!x || x->kind != DLB_T_CONSTANT || !x->data || x->data_mul || x->n_dims < 2 || f->trained[t])
			continue;
		for (int dim = 0, n = x->n_dims; dim < n; dim++)
			if (f->g->tensor[t].dim[dim].add == f->wired && !f->g->tensor[t].dim[dim].mul &&
			    try_dimension(f, op, k, dim)) {
				if (err)
					*err = (struct dlb_error){ .what = "" };
				return 0;
			}
	}
	return -1;
}
