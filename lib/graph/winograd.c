/* Marks convolutions that may use Winograd's algorithm. It rounds differently from the direct sum, and
 * choices that change bits are made on the graph. The back end uses the algorithm if its kernel library has
 * it and the work is large enough. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

static bool all_are(const struct dlb_op *o, const char *name, int64_t value)
{
	const int64_t *v;
	const int n = dlb_attr_ints(o->attr, o->n_attr, name, &v);

	for (int i = 0; i < n; i++)
		if (v[i] != value)
			return false;
	return true;
}

/* Does the convolution have a 3 x 3 window, strides and dilations of 1, one group and many channels? */
static bool fits(const struct dlb_graph *g, const struct dlb_op *o)
{
	const struct dlb_tensor *w = &g->tensor[o->in[1]];
	const int64_t group = dlb_attr_int(o->attr, o->n_attr, "group", 1);

	return w->dtype == DLB_F32 && w->n_dims == 4 && w->dim[2].mul == 0 && w->dim[2].add == 3 &&
	       w->dim[3].add == 3 && w->dim[0].add >= 32 && w->dim[1].add >= 32 && group == 1 &&
	       all_are(o, "strides", 1) && all_are(o, "dilations", 1);
}

int dlb_rewrite_winograd(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	(void)err;
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_op *o = &g->op[i];

		if (!dlb_is_op(g, i, "Conv") || !fits(g, o))
			continue;
		struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *attr);
		if (o->n_attr)
			memcpy(attr, o->attr, (size_t)o->n_attr * sizeof *attr);
		attr[o->n_attr++] = (struct dlb_attr){ .name = "winograd", .type = DLB_ATTR_INT, .i = 1 };
		o->attr = attr;
		++*count;
	}
	return 0;
}
