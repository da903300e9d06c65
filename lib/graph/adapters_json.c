/* The member "adapters" of the section "graph": weights with low-rank adapters.
 *
 *     [{"of":"fc.weight", "a":"base_model.model.fc.lora_A.weight", "b":"base_model.model.fc.lora_B.weight",
 *       "rank":8, "scale":1, "transposed":true}]
 */
#include <string.h>
#include "graph/adapters.h"
#include "graph/slice.h"

json_t *dlb_adapters_write(const struct dlb_graph *g)
{
	json_t *list = json_array();

	for (int i = 0; i < g->n_adapters; i++) {
		const struct dlb_adapter *ad = &g->adapter[i];
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:i, s:f, s:b}", "of", ad->of, "a", ad->a,
						"b", ad->b, "rank", ad->rank, "scale", ad->scale,
						"transposed", ad->transposed));
	}
	return list;
}

/* Has the tensor of this name, or the tensor that its slices come from, the shape (rows, columns)? -1 in
 * *rows or *columns stands for any size; both are set to the tensor's sizes. */
static bool has_shape(const struct dlb_graph *g, const char *name, int64_t *rows, int64_t *columns)
{
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		const struct dlb_desc d = x->slice ? dlb_slice_desc(x->slice, x->dtype) :
						     dlb_tensor_desc(x, 1);

		if (strcmp(x->slice ? x->slice->of : x->name, name))
			continue;
		if ((x->kind != DLB_T_WEIGHT && x->kind != DLB_T_CONSTANT) || d.n_dims != 2 ||
		    (*rows >= 0 && d.dim[0] != *rows) || (*columns >= 0 && d.dim[1] != *columns))
			return false;
		*rows = d.dim[0];
		*columns = d.dim[1];
		return true;
	}
	return false;
}

static int read_adapter(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_adapter *ad,
			struct dlb_error *err)
{
	static const char *const known[] = { "of", "a", "b", "rank", "scale", "transposed", NULL };
	int64_t rank, rows = -1, columns = -1;
	const char *of, *a, *b;

	if (dlb_ref_known(r, known, err) || dlb_get_str(r, "of", DLB_NEED, &of, err) ||
	    dlb_get_str(r, "a", DLB_NEED, &a, err) || dlb_get_str(r, "b", DLB_NEED, &b, err) ||
	    dlb_get_int(r, "rank", DLB_NEED, 1, INT32_MAX, &rank, err) ||
	    dlb_get_real(r, "scale", DLB_NEED, 0, 1e30, &ad->scale, err) ||
	    dlb_get_bool(r, "transposed", DLB_OPT, &ad->transposed, err))
		return -1;
	bool fits = has_shape(g, of, &rows, &columns);
	int64_t in = ad->transposed ? columns : rows, out = ad->transposed ? rows : columns;
	fits = fits && has_shape(g, a, &rank, &in) && has_shape(g, b, &out, &rank);
	if (!fits)
		return dlb_ref_fail(r, err, "its weights are not in the graph, or their shapes do not agree");
	ad->of = dlb_arena_strdup(&g->arena, of);
	ad->a = dlb_arena_strdup(&g->arena, a);
	ad->b = dlb_arena_strdup(&g->arena, b);
	ad->rank = (int)rank;
	return 0;
}

int dlb_adapters_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err)
{
	struct dlb_ref list = dlb_ref_at(graph, "adapters");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(graph, "adapters", DLB_NEED, &list, &n, err))
		return -1;
	g->adapter = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->adapter);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		if (read_adapter(&e, g, &g->adapter[i], err))
			return -1;
	}
	g->n_adapters = n;
	return 0;
}
