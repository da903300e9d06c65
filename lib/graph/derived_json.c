/* The member "derived" of the section "graph": initializers computed from parameters.
 *
 *     [{"name":"val_12", "shape":[64,192], "axis":0,
 *       "parts":[{"of":"in_proj.weight", "shape":[192,64], "axis":0, "first":0, "count":192, "perm":[1,0], "length":64}]}]
 *
 * "base", if present, is the shape before the repetition; "function" is the function of each element. "index"
 * has the table's row for each place in the dimensions other than the axis. */
#include <string.h>
#include "graph/derived.h"
#include "graph/derived_json.h"
#include "graph/graph.h"

static json_t *write_dims(const int64_t *dim, int n)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_integer(dim[i]));
	return a;
}

static json_t *write_part(const struct dlb_part *p)
{
	int64_t perm[DLB_MAX_DIMS];

	for (int i = 0; i < p->n_dims; i++)
		perm[i] = p->perm[i];
	return json_pack("{s:s, s:o, s:i, s:I, s:I, s:o, s:I}", "of", p->of, "shape",
			 write_dims(p->dim, p->n_dims), "axis", p->axis, "first", (json_int_t)p->first,
			 "count", (json_int_t)p->count, "perm", write_dims(perm, p->n_dims), "length",
			 (json_int_t)p->length);
}

json_t *dlb_derived_write(const struct dlb_graph *g)
{
	json_t *a = json_array();

	for (int i = 0; i < g->n_derived; i++) {
		const struct dlb_derived *d = &g->derived[i];
		json_t *parts = json_array(), *o = json_pack("{s:s, s:o, s:i}", "name", d->name, "shape",
							     write_dims(d->dim, d->n_dims), "axis", d->axis);
		if (memcmp(d->base, d->dim, (size_t)d->n_dims * sizeof *d->dim))
			json_object_set_new(o, "base", write_dims(d->base, d->n_dims));
		if (d->function != DLB_DERIVED_SAME)
			dlb_set_str(o, "function", dlb_derived_function_name(d->function));
		if (d->index) {
			json_t *rows = json_array();
			for (int64_t k = 0; k < d->n_index; k++)
				json_array_append_new(rows, json_integer(d->index[k]));
			json_object_set_new(o, "index", rows);
		}
		for (int k = 0; k < d->n_parts; k++)
			json_array_append_new(parts, write_part(&d->part[k]));
		json_object_set_new(o, "parts", parts);
		json_array_append_new(a, o);
	}
	return a;
}

static int read_dims(const struct dlb_ref *r, const char *key, int64_t least, int64_t *dim, int *n,
		     struct dlb_error *err)
{
	const struct dlb_ref at = dlb_ref_at(r, key);
	struct dlb_ref list;

	if (dlb_get_array(r, key, DLB_NEED, &list, n, err))
		return -1;
	if (*n > DLB_MAX_DIMS)
		return dlb_ref_fail(&at, err, "%d dimensions; at most %d", *n, DLB_MAX_DIMS);
	for (int i = 0; i < *n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		if (dlb_ref_int(&e, least, INT64_C(1) << 40, &dim[i], err))
			return -1;
	}
	return 0;
}

static int read_part(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_part *p, struct dlb_error *err)
{
	static const char *const known[] = {
		"of", "shape", "axis", "first", "count", "perm", "length", NULL
	};
	const struct dlb_ref at = dlb_ref_at(r, "perm");
	int64_t axis, perm[DLB_MAX_DIMS];
	const char *of;
	int n;

	if (dlb_ref_known(r, known, err) || dlb_get_str(r, "of", DLB_NEED, &of, err) ||
	    read_dims(r, "shape", 1, p->dim, &p->n_dims, err) ||
	    dlb_get_int(r, "axis", DLB_NEED, 0, DLB_MAX_DIMS - 1, &axis, err) ||
	    dlb_get_int(r, "first", DLB_NEED, 0, INT64_C(1) << 40, &p->first, err) ||
	    dlb_get_int(r, "count", DLB_NEED, 1, INT64_C(1) << 40, &p->count, err) ||
	    read_dims(r, "perm", 0, perm, &n, err) ||
	    dlb_get_int(r, "length", DLB_NEED, 1, INT64_C(1) << 40, &p->length, err))
		return -1;
	if (n != p->n_dims)
		return dlb_ref_fail(&at, err, "%d dimensions of %d", n, p->n_dims);
	for (int i = 0; i < n; i++)
		p->perm[i] = (int)(perm[i] < DLB_MAX_DIMS ? perm[i] : -1);
	p->axis = (int)axis;
	p->of = dlb_arena_strdup(&g->arena, of);
	return 0;
}

static int read_function(const struct dlb_ref *r, struct dlb_derived *d, struct dlb_error *err)
{
	const struct dlb_ref at = dlb_ref_at(r, "function");
	const char *name = NULL;
	int f = DLB_DERIVED_SAME;

	if (dlb_get_str(r, "function", DLB_OPT, &name, err))
		return -1;
	while (name && f < DLB_DERIVED_FUNCTIONS && strcmp(name, dlb_derived_function_name(f)))
		f++;
	if (f == DLB_DERIVED_FUNCTIONS)
		return dlb_ref_fail(&at, err, "no function '%s'", name);
	d->function = f;
	return 0;
}

static int read_index(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_derived *d,
		      struct dlb_error *err)
{
	struct dlb_ref list;
	int n;

	if (!json_object_get(r->v, "index"))
		return 0;
	if (dlb_get_array(r, "index", DLB_NEED, &list, &n, err))
		return -1;
	d->n_index = n;
	d->index = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *d->index);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		if (dlb_ref_int(&e, 0, INT64_C(1) << 40, &d->index[i], err))
			return -1;
	}
	return 0;
}

static int read_derived(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_derived *d,
			struct dlb_error *err)
{
	static const char *const known[] = { "name",     "shape", "base",  "axis",
					     "function", "index", "parts", NULL };
	struct dlb_ref parts;
	const char *name;
	int64_t axis;
	int n;

	if (dlb_ref_known(r, known, err) || dlb_get_str(r, "name", DLB_NEED, &name, err) ||
	    read_dims(r, "shape", 1, d->dim, &d->n_dims, err) ||
	    dlb_get_int(r, "axis", DLB_NEED, 0, DLB_MAX_DIMS - 1, &axis, err) || read_function(r, d, err) ||
	    read_index(r, g, d, err) || dlb_get_array(r, "parts", DLB_NEED, &parts, &d->n_parts, err))
		return -1;
	memcpy(d->base, d->dim, sizeof d->base);
	n = d->n_dims;
	if (json_object_get(r->v, "base") && read_dims(r, "base", 1, d->base, &n, err))
		return -1;
	d->part = dlb_arena_array(&g->arena, (size_t)d->n_parts + 1, sizeof *d->part);
	for (int i = 0; i < d->n_parts; i++) {
		const struct dlb_ref e = dlb_ref_index(&parts, i);
		if (read_part(&e, g, &d->part[i], err))
			return -1;
	}
	d->axis = (int)axis;
	d->name = dlb_arena_strdup(&g->arena, name);
	return n == d->n_dims && dlb_derived_fits(d) ? 0 :
						       dlb_ref_fail(r, err, "its parts do not fit its shape");
}

int dlb_derived_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err)
{
	struct dlb_ref list = dlb_ref_at(graph, "derived");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(graph, "derived", DLB_NEED, &list, &n, err))
		return -1;
	g->derived = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->derived);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		g->derived[i] = (struct dlb_derived){ .name = NULL };
		if (read_derived(&e, g, &g->derived[i], err))
			return -1;
	}
	g->n_derived = n;
	return 0;
}
