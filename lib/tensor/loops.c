/* Checks descriptors of elementwise functions, reductions and updates, and makes loop nests of the first
 * two. */
#include <string.h>

#include "tensor/loops.h"

/* Types that a function takes. */
enum class_of_fn { NUMBERS, INTEGERS, REALS, COMPARES, LOGIC, SELECTS };
static const struct {
	const char *name;
	int n_in;
	enum class_of_fn cls;
} functions[] = {
#define MAP(name, n, expr) { #name, n, NUMBERS },
#define MAP_INT(name, n, expr) { #name, n, INTEGERS },
#define MAP_FLOAT(name, n, expr) { #name, n, REALS },
#define MAP_COMPARE(name, n, expr) { #name, n, COMPARES },
#define MAP_LOGIC(name, n, expr) { #name, n, LOGIC },
#define MAP_SELECT(name, n, expr) { #name, n, SELECTS },
#include "tensor/map_list.h"
#undef MAP
};

static bool types_fit(const struct dlb_map_desc *d, enum dlb_dtype *of)
{
	const enum class_of_fn cls = functions[d->fn].cls;
	const enum dlb_dtype in = d->in[0].dtype, out = d->out.dtype;

	*of = cls == SELECTS ? out : in;
	for (int i = cls == SELECTS; i < d->n_in; i++)
		if (d->in[i].dtype != *of)
			return false;
	if (cls == SELECTS && in != DLB_BOOL)
		return false;
	if ((cls == COMPARES || cls == LOGIC) ? out != DLB_BOOL : out != *of)
		return false;
	if (cls == LOGIC && in != DLB_BOOL)
		return false;
	if ((cls == REALS && !dlb_dtype_is_float(*of)) || (cls == INTEGERS && !dlb_dtype_is_int(*of)))
		return false;
	if (*of == DLB_BOOL && (cls == COMPARES || cls == LOGIC || cls == SELECTS))
		*of = DLB_U8;
	return true;
}

int dlb_map_loops(const struct dlb_map_desc *d, enum dlb_dtype *of, struct dlb_nest *nest,
		  struct dlb_error *err)
{
	const char *name = functions[d->fn].name;

	if (d->n_in != functions[d->fn].n_in)
		return dlb_fail(err, NULL, "'%s' takes %d inputs, not %d", name, functions[d->fn].n_in, d->n_in);
	if (!types_fit(d, of)) {
		dlb_fail(err, NULL, "'%s' does not take these types", name);
		return DLB_NO_KERNEL;
	}
	*nest = (struct dlb_nest){ .n_dims = d->out.n_dims, .n_operands = d->n_in + 1 };
	for (int i = 0; i < d->out.n_dims; i++)
		nest->dim[i] = d->out.dim[i];
	dlb_desc_strides(&d->out, nest->stride[0]);
	for (int o = 0; o < d->n_in; o++) {
		const struct dlb_desc *in = &d->in[o];
		int64_t stride[DLB_MAX_DIMS];
		int shift = d->out.n_dims - in->n_dims;

		if (shift < 0)
			return dlb_fail(err, NULL, "'%s': operand %d has more dimensions than the result", name, o);
		dlb_desc_strides(in, stride);
		for (int i = 0; i < in->n_dims; i++) {
			if (in->dim[i] != 1 && in->dim[i] != d->out.dim[shift + i])
				return dlb_fail(err, NULL, "'%s': operand %d does not broadcast to the result",
						name, o);
			nest->stride[o + 1][shift + i] = in->dim[i] == 1 ? 0 : stride[i];
		}
	}
	dlb_nest_simplify(nest);
	return 0;
}

int dlb_reduce_loops(const struct dlb_reduce_desc *d, struct dlb_nest *kept, struct dlb_nest *reduced,
		     struct dlb_error *err)
{
	struct dlb_nest all = { .n_dims = d->in.n_dims, .n_operands = 2 };

	if (d->out.dtype != d->in.dtype || d->out.n_dims != d->in.n_dims)
		return dlb_fail(err, NULL, "a reduction keeps type and number of dimensions");
	dlb_desc_strides(&d->in, all.stride[0]);
	dlb_desc_strides(&d->out, all.stride[1]);
	for (int i = 0; i < d->in.n_dims; i++) {
		const bool is_reduced = d->axes >> i & 1;

		all.dim[i] = d->in.dim[i];
		if (is_reduced)
			all.stride[1][i] = 0;
		if (d->out.dim[i] != (is_reduced ? 1 : d->in.dim[i]))
			return dlb_fail(err, NULL, "a reduction's result has the wrong shape at dimension %d",
					i);
	}
	dlb_nest_simplify(&all);
	*kept = (struct dlb_nest){ .n_operands = 2 };
	*reduced = (struct dlb_nest){ .n_operands = 1 };
	for (int i = 0; i < all.n_dims; i++) {
		struct dlb_nest *to = all.stride[1][i] ? kept : reduced;

		to->dim[to->n_dims] = all.dim[i];
		to->stride[0][to->n_dims] = all.stride[0][i];
		to->stride[1][to->n_dims] = all.stride[1][i];
		to->n_dims++;
	}
	return 0;
}

int dlb_update_check(const struct dlb_update_desc *d, struct dlb_error *err)
{
	const bool predicts = d->rule == DLB_RULE_MOMENTUM || d->rule == DLB_RULE_NESTEROV ||
			      d->rule == DLB_RULE_ADAM || d->rule == DLB_RULE_ADAMW ||
			      d->rule == DLB_RULE_ADABELIEF;

	if (d->rule < 0 || d->rule >= DLB_N_RULES)
		return dlb_fail(err, NULL, "no update rule %d", d->rule);
	if (d->stage == DLB_UPDATE_PREDICT && !predicts)
		return DLB_NO_KERNEL;
	if (d->stage != DLB_UPDATE_WHOLE && d->stage != DLB_UPDATE_PREDICT && d->rule != DLB_RULE_MAX_ADABELIEF)
		return dlb_fail(err, NULL, "update rule %d has no stages", d->rule);
	if (dlb_update_is_small(d) &&
	    (dlb_update_states(d->rule) > 2 || d->stage != DLB_UPDATE_WHOLE || d->dtype != DLB_F32))
		return DLB_NO_KERNEL;
	return d->dtype == DLB_F32 || d->dtype == DLB_F64 ? 0 : DLB_NO_KERNEL;
}

int dlb_update_states(int rule)
{
	return rule == DLB_RULE_SGD || rule == DLB_RULE_KFAC                                 ? 0 :
	       rule == DLB_RULE_MAX_ADABELIEF                                                ? 3 :
	       rule == DLB_RULE_ADAM || rule == DLB_RULE_ADAMW || rule == DLB_RULE_ADABELIEF ? 2 :
											       1;
}

bool dlb_update_is_small(const struct dlb_update_desc *d) { return d->code[0] || d->code[1] || d->code[2]; }
