/* Reads and writes the profile section:
 *
 *     {"batches": [32, 16, 8, 4, 2],
 *      "kinds":   [{"name":"cpu", "peak_flops":..., "bandwidth_Bps":..., "step_s":...,
 *                   "step_spread":..., "step_overhead_s":...}],
 *      "rows":    [{"type":"Conv", "key":"...", "ops":[0, 7],
 *                   "time_s":{"cpu":[1e-3, 6e-4, ...]}, "workspace_bytes":{"cpu":0}, ...}]}
 *
 * Element b of time_s is for batches[b]: null if not measured, false if the kind has no kernel. A kind that a
 * row does not name was not measured for that row. */
#include "cost/profile.h"
#include "graph/graph_json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BATCHES = 64, MAX_KINDS = 4096 };

static json_t *write_times(const double *t, int n)
{
	json_t *a = json_array();

	for (int b = 0; b < n; b++)
		json_array_append_new(a, isnan(t[b]) ? json_null() :
					 isinf(t[b]) ? json_false() :
						       json_real(t[b]));
	return a;
}

static void write_sizes(json_t *o, const char *key, const struct dlb_profile *p, const double *x)
{
	json_t *m = NULL;

	for (int k = 0; k < p->n_kinds; k++)
		if (x[k] > 0) {
			if (!m)
				m = json_object();
			dlb_set_number(m, p->kind[k], x[k]);
		}
	if (m)
		json_object_set_new(o, key, m);
}

json_t *dlb_batch_sizes_write(const double *x, int n_batches)
{
	bool equal = true, none = true;
	json_t *a;

	for (int b = 0; b < n_batches; b++) {
		equal &= x[b] == x[0];
		none &= !(x[b] > 0);
	}
	if (none)
		return NULL;
	if (equal)
		return dlb_doc_number(x[0]);
	a = json_array();
	for (int b = 0; b < n_batches; b++)
		json_array_append_new(a, dlb_doc_number(x[b]));
	return a;
}

static void write_batch_sizes(json_t *o, const char *key, const struct dlb_profile *p, double *const *x)
{
	json_t *m = NULL, *v;

	for (int k = 0; k < p->n_kinds; k++)
		if ((v = dlb_batch_sizes_write(x[k], p->n_batches))) {
			m = m ? m : json_object();
			json_object_set_new(m, p->kind[k], v);
		}
	if (m)
		json_object_set_new(o, key, m);
}

static json_t *write_row(const struct dlb_profile *p, const struct dlb_profile_row *r)
{
	json_t *o = json_object(), *ops = json_array(), *times = json_object();

	dlb_set_str(o, "type", r->type);
	dlb_set_str(o, "key", r->key);
	for (int i = 0; i < r->n_ops; i++)
		json_array_append_new(ops, json_integer(r->op[i]));
	json_object_set_new(o, "ops", ops);
	for (int k = 0; k < p->n_kinds; k++)
		json_object_set_new(times, p->kind[k], write_times(r->time_s[k], p->n_batches));
	json_object_set_new(o, "time_s", times);
	if (p->n_kinds) {
		write_sizes(o, "workspace_bytes", p, r->workspace_bytes);
		write_batch_sizes(o, "scratch_bytes", p, r->scratch_bytes);
		write_batch_sizes(o, "packed_bytes", p, r->packed_bytes);
	}
	return o;
}

json_t *dlb_profile_write(const struct dlb_profile *p)
{
	json_t *o = json_object(), *batches = json_array(), *kinds = json_array(), *rows = json_array();

	for (int b = 0; b < p->n_batches; b++)
		json_array_append_new(batches, json_integer(p->batch[b]));
	for (int k = 0; k < p->n_kinds; k++) {
		json_t *kind = json_object();
		dlb_set_str(kind, "name", p->kind[k]);
		if (p->peak_flops[k] > 0)
			dlb_set_real(kind, "peak_flops", p->peak_flops[k]);
		if (p->bandwidth_Bps[k] > 0)
			dlb_set_real(kind, "bandwidth_Bps", p->bandwidth_Bps[k]);
		dlb_set_real(kind, "step_s", p->step_s[k]);
		dlb_set_real(kind, "step_spread", p->step_spread[k]);
		dlb_set_real(kind, "step_overhead_s", p->step_overhead_s[k]);
		json_array_append_new(kinds, kind);
	}
	for (int i = 0; i < p->n_rows; i++)
		json_array_append_new(rows, write_row(p, &p->row[i]));
	json_object_set_new(o, "batches", batches);
	json_object_set_new(o, "kinds", kinds);
	json_object_set_new(o, "rows", rows);
	return o;
}

/* ---- reading ---- */

static int read_batches(const struct dlb_ref *r, struct dlb_profile *p, struct dlb_error *err)
{
	struct dlb_ref a;
	int n;

	if (dlb_get_array(r, "batches", DLB_NEED, &a, &n, err))
		return -1;
	if (n < 1 || n > MAX_BATCHES)
		return dlb_ref_fail(&a, err, "1 to %d batch sizes are expected", MAX_BATCHES);
	p->batch = dlb_arena_array(&p->arena, (size_t)n, sizeof *p->batch);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		if (dlb_ref_int(&e, 1, INT64_C(1) << 40, &p->batch[i], err))
			return -1;
		if (i && p->batch[i] >= p->batch[i - 1])
			return dlb_ref_fail(&e, err, "batch sizes must descend");
	}
	p->n_batches = n;
	return 0;
}

static int read_kinds(const struct dlb_ref *r, struct dlb_profile *p, struct dlb_error *err)
{
	static const char *const known[] = { "name",   "peak_flops",  "bandwidth_Bps",
					     "step_s", "step_spread", "step_overhead_s",
					     NULL };
	struct dlb_ref a;
	int n = 0;

	a.v = NULL;
	if (dlb_get_array(r, "kinds", DLB_OPT, &a, &n, err))
		return -1;
	if (n > MAX_KINDS)
		return dlb_ref_fail(&a, err, "more than %d kinds", MAX_KINDS);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		const char *name;
		if (!json_is_object(e.v))
			return dlb_ref_fail(&e, err, "an object is expected");
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err))
			return -1;
		if (dlb_profile_find_kind(p, name) >= 0)
			return dlb_ref_fail(&e, err, "the kind '%s' is given twice", name);
		int k = dlb_profile_add_kind(p, name);
		if (dlb_get_real(&e, "peak_flops", DLB_OPT, 0, 1e24, &p->peak_flops[k], err) ||
		    dlb_get_real(&e, "bandwidth_Bps", DLB_OPT, 0, 1e24, &p->bandwidth_Bps[k], err) ||
		    dlb_get_real(&e, "step_s", DLB_OPT, 0, 1e12, &p->step_s[k], err) ||
		    dlb_get_real(&e, "step_spread", DLB_OPT, 0, 1e3, &p->step_spread[k], err) ||
		    dlb_get_real(&e, "step_overhead_s", DLB_OPT, 0, 1e6, &p->step_overhead_s[k], err))
			return -1;
	}
	return 0;
}

static int read_times(const struct dlb_ref *times, const struct dlb_profile *p, int k, double *t,
		      struct dlb_error *err)
{
	struct dlb_ref a;
	int n = 0;

	a.v = NULL;
	if (dlb_get_array(times, p->kind[k], DLB_OPT, &a, &n, err))
		return -1;
	if (!a.v)
		return 0;
	if (n != p->n_batches)
		return dlb_ref_fail(&a, err, "%d times for %d batch sizes", n, p->n_batches);
	for (int b = 0; b < n; b++) {
		struct dlb_ref e = dlb_ref_index(&a, b);
		if (json_is_null(e.v))
			t[b] = NAN;
		else if (json_is_false(e.v))
			t[b] = INFINITY;
		else if (dlb_ref_real(&e, 0, 1e12, &t[b], err))
			return -1;
	}
	return 0;
}

int dlb_batch_sizes_read(const struct dlb_ref *o, const char *key, int n_batches, double *x,
			 struct dlb_error *err)
{
	struct dlb_ref a = dlb_ref_at(o, key);
	int n;

	if (!json_is_array(a.v)) {
		double all = 0;

		if (dlb_get_real(o, key, DLB_OPT, 0, 1e18, &all, err))
			return -1;
		for (int b = 0; b < n_batches; b++)
			x[b] = all;
		return 0;
	}
	if (dlb_get_array(o, key, DLB_NEED, &a, &n, err))
		return -1;
	if (n != n_batches)
		return dlb_ref_fail(&a, err, "%d sizes for %d batch sizes", n, n_batches);
	for (int b = 0; b < n; b++) {
		struct dlb_ref e = dlb_ref_index(&a, b);
		if (dlb_ref_real(&e, 0, 1e18, &x[b], err))
			return -1;
	}
	return 0;
}

/* Reads an optional member of a row into x [kind][n]. */
static int read_sizes(const struct dlb_ref *row, const char *key, const struct dlb_profile *p, int n,
		      double **x, struct dlb_error *err)
{
	struct dlb_ref o;

	o.v = NULL;
	if (dlb_get_object(row, key, DLB_OPT, &o, err))
		return -1;
	if (!o.v)
		return 0;
	if (dlb_ref_known(&o, p->kind, err))
		return -1;
	for (int k = 0; k < p->n_kinds; k++)
		if (dlb_batch_sizes_read(&o, p->kind[k], n, x[k], err))
			return -1;
	return 0;
}

static int read_workspaces(const struct dlb_ref *row, const struct dlb_profile *p, double *x,
			   struct dlb_error *err)
{
	double **each = dlb_xcalloc((size_t)p->n_kinds + 1, sizeof *each);
	int rc;

	for (int k = 0; k < p->n_kinds; k++)
		each[k] = &x[k];
	rc = read_sizes(row, "workspace_bytes", p, 1, each, err);
	free(each);
	return rc;
}

/* Reads a row's ops: they must exist and belong to no other row (owner[op] = row + 1). */
static int read_ops(const struct dlb_ref *row, const struct dlb_graph *g, int index, struct dlb_profile *p,
		    int *owner, struct dlb_error *err)
{
	struct dlb_profile_row *r = &p->row[index];
	struct dlb_ref a;
	int n;

	if (dlb_get_array(row, "ops", DLB_NEED, &a, &n, err))
		return -1;
	if (n < 1)
		return dlb_ref_fail(&a, err, "a row needs at least one op");
	r->op = dlb_arena_array(&p->arena, (size_t)n, sizeof *r->op);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		int64_t op;
		if (dlb_ref_int(&e, 0, g->n_ops - 1, &op, err))
			return -1;
		if (owner[op])
			return dlb_ref_fail(&e, err, "op %d is in row %d already", (int)op, owner[op] - 1);
		owner[op] = index + 1;
		r->op[r->n_ops++] = (int)op;
	}
	return 0;
}

static int read_rows(const struct dlb_ref *rows, int n, const struct dlb_graph *g, struct dlb_profile *p,
		     int *owner, struct dlb_error *err)
{
	static const char *const known[] = {
		"type", "key", "ops", "time_s", "workspace_bytes", "scratch_bytes", "packed_bytes", NULL
	};

	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(rows, i), times;
		struct dlb_profile_row *r = &p->row[i];
		const char *type, *key = "";
		if (!json_is_object(e.v))
			return dlb_ref_fail(&e, err, "an object is expected");
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "type", DLB_NEED, &type, err) ||
		    dlb_get_str(&e, "key", DLB_OPT, &key, err) || read_ops(&e, g, i, p, owner, err) ||
		    dlb_get_object(&e, "time_s", DLB_NEED, &times, err) ||
		    dlb_ref_known(&times, p->kind, err))
			return -1;
		r->type = dlb_arena_strdup(&p->arena, type);
		r->key = dlb_arena_strdup(&p->arena, key);
		for (int k = 0; k < p->n_kinds; k++)
			if (read_times(&times, p, k, r->time_s[k], err))
				return -1;
		if (read_workspaces(&e, p, r->workspace_bytes, err) ||
		    read_sizes(&e, "scratch_bytes", p, p->n_batches, r->scratch_bytes, err) ||
		    read_sizes(&e, "packed_bytes", p, p->n_batches, r->packed_bytes, err))
			return -1;
	}
	return 0;
}

int dlb_profile_read(const struct dlb_doc *d, const struct dlb_graph *g, struct dlb_profile *p,
		     struct dlb_error *err)
{
	static const char *const known[] = { "batches", "kinds", "rows", "inputs", NULL };
	struct dlb_ref r, rows;
	json_t *section;
	int n, *owner = NULL, rc = -1;

	memset(p, 0, sizeof *p);
	if (dlb_doc_need(d, "profile", &section, err) || dlb_doc_check_inputs(d, "profile", err))
		return -1;
	r = dlb_ref_root(d, "profile");
	if (!json_is_object(section))
		return dlb_ref_fail(&r, err, "an object is expected");
	if (dlb_ref_known(&r, known, err) || read_batches(&r, p, err) ||
	    dlb_get_array(&r, "rows", DLB_NEED, &rows, &n, err))
		goto out;
	if (n > g->n_ops) {
		dlb_ref_fail(&rows, err, "%d rows for %d ops", n, g->n_ops);
		goto out;
	}
	/* Rows are made before kinds, because adding a kind allocates storage in every row. The list of kind
	 * names ends with NULL. */
	p->row = dlb_arena_array(&p->arena, (size_t)n + 1, sizeof *p->row);
	p->n_rows = n;
	if (read_kinds(&r, p, err))
		goto out;
	p->kind = p->n_kinds ? p->kind : dlb_arena_array(&p->arena, 1, sizeof *p->kind);
	owner = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *owner);
	rc = read_rows(&rows, n, g, p, owner, err);
out:
	free(owner);
	if (rc)
		dlb_profile_release(p);
	return rc;
}

/* Adds to the new graph section the members of the old one (was) that dlb does not write itself: the user's,
 * or those of a newer version. Returns the new section. */
static json_t *with_members_of(json_t *was, json_t *graph)
{
	static const char *const ours[] = { "loss", "label", "seed", "rewrites", "split" };
	const char *key;
	json_t *v;

	json_object_foreach(was, key, v) {
		bool own = json_object_get(graph, key);
		for (int i = 0; i < DLB_LEN(ours); i++)
			own |= !strcmp(key, ours[i]);
		if (!own)
			json_object_set(graph, key, v);
	}
	return graph;
}

void dlb_profile_put_graph(struct dlb_doc *doc, const struct dlb_graph *was, const struct dlb_graph *g,
			   struct dlb_profile *p)
{
	static const char *const inputs[] = { "graph", NULL };
	struct dlb_profile carried;

	dlb_doc_set(doc, "graph", with_members_of(dlb_doc_section(doc, "graph"), dlb_graph_write(g)));
	if (!p)
		return;
	dlb_profile_carry(p, was, g, &carried);
	dlb_profile_release(p);
	*p = carried;
	json_t *section = dlb_profile_write(p);
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "profile", section);
}
