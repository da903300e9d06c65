/* Members of the section "graph" that tell how the graph came from the model's file:
 *
 *     {"rewrites":[{"name":"gelu", "count":12}],
 *      "split":[{"op":"fc1", "shards":2, "axis":"output", "why":"...", "sums":"pairs"}],
 *      "listed":[{"name":"fc.weight", "input":"p_fc_weight", "kind":"parameter", "persistent":true}],
 *      "upcast":{"f16":{"initializers":4, "others":2}}, "derived":[...],
 *      "unmerged":[{"name":"b.weight", "of":"a.weight", "vertex":"conv2", "operand":1}]} */
#include <limits.h>
#include <string.h>
#include "graph/derived_json.h"
#include "graph/history_json.h"

static const char *const listed_names[] = {
	[DLB_LISTED_PARAMETER] = "parameter",
	[DLB_LISTED_BUFFER] = "buffer",
	[DLB_LISTED_CONSTANT] = "constant",
};
static const char *const upcast_names[] = { [DLB_UPCAST_F16] = "f16", [DLB_UPCAST_BF16] = "bf16" };

/* -- writing -- */

static json_t *write_rewritten(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_rewritten; i++) {
		json_t *o = json_object();
		dlb_set_str(o, "name", g->rewritten[i].name);
		dlb_set_int(o, "count", g->rewritten[i].count);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_was_split(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_was_split; i++) {
		json_t *o = json_object();
		dlb_set_str(o, "op", g->was_split[i].op);
		dlb_set_int(o, "shards", g->was_split[i].parts);
		dlb_set_str(o, "axis", g->was_split[i].axis);
		dlb_set_str(o, "why", g->was_split[i].why);
		if (g->was_split[i].pairs)
			dlb_set_str(o, "sums", "pairs");
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_listed(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_listed; i++) {
		json_t *o = json_object();
		dlb_set_str(o, "name", g->listed[i].name);
		dlb_set_str(o, "input", g->listed[i].input);
		dlb_set_str(o, "kind", listed_names[g->listed[i].kind]);
		dlb_set_bool(o, "persistent", g->listed[i].persistent);
		json_array_append_new(a, o);
	}
	return a;
}

static void write_upcast(const struct dlb_graph *g, json_t *graph)
{
	json_t *o = json_object();
	for (int i = 0; i < DLB_N_UPCAST; i++) {
		const struct dlb_upcast *c = &g->upcast[i];
		if (c->initializers || c->others)
			json_object_set_new(o, upcast_names[i],
					    json_pack("{s:i, s:i}", "initializers", c->initializers, "others",
						      c->others));
	}
	if (json_object_size(o))
		json_object_set(graph, "upcast", o);
	json_decref(o);
}

static json_t *write_unmerged(const struct dlb_graph *g)
{
	json_t *a = json_array();
	for (int i = 0; i < g->n_unmerged; i++) {
		json_t *o = json_object();
		dlb_set_str(o, "name", g->unmerged[i].name);
		dlb_set_str(o, "of", g->unmerged[i].of);
		dlb_set_str(o, "vertex", g->unmerged[i].vertex);
		if (g->unmerged[i].operand)
			dlb_set_int(o, "operand", g->unmerged[i].operand);
		json_array_append_new(a, o);
	}
	return a;
}

void dlb_history_write(const struct dlb_graph *g, json_t *graph)
{
	if (g->n_rewritten)
		json_object_set_new(graph, "rewrites", write_rewritten(g));
	if (g->n_was_split)
		json_object_set_new(graph, "split", write_was_split(g));
	if (g->n_listed)
		json_object_set_new(graph, "listed", write_listed(g));
	write_upcast(g, graph);
	if (g->n_derived)
		json_object_set_new(graph, "derived", dlb_derived_write(g));
	if (g->n_unmerged)
		json_object_set_new(graph, "unmerged", write_unmerged(g));
}

/* -- reading -- */

/* Rewrites are kept for information, also those with names unknown to this version. */
static int read_rewritten(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "name", "count", NULL };
	struct dlb_ref list = dlb_ref_at(r, "rewrites");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "rewrites", DLB_NEED, &list, &n, err))
		return -1;
	g->rewritten = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->rewritten);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		struct dlb_rewritten *w = &g->rewritten[i];
		const char *name;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err) ||
		    dlb_get_int(&e, "count", DLB_NEED, 0, INT32_MAX, &w->count, err))
			return -1;
		w->name = dlb_arena_strdup(&g->arena, name);
	}
	g->n_rewritten = n;
	return 0;
}

static int read_was_split(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "op", "shards", "axis", "why", "sums", NULL };
	static const char *const sums[] = { "one", "pairs" };
	struct dlb_ref list = dlb_ref_at(r, "split");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "split", DLB_NEED, &list, &n, err))
		return -1;
	g->was_split = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->was_split);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const char *op, *axis, *why = "";
		int64_t shards;
		int pairs = 0;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "op", DLB_NEED, &op, err) ||
		    dlb_get_int(&e, "shards", DLB_NEED, 2, INT32_MAX, &shards, err) ||
		    dlb_get_str(&e, "axis", DLB_NEED, &axis, err) ||
		    dlb_get_str(&e, "why", DLB_OPT, &why, err) ||
		    dlb_get_name(&e, "sums", DLB_OPT, sums, 2, &pairs, err))
			return -1;
		g->was_split[i] = (struct dlb_was_split){ dlb_arena_strdup(&g->arena, op),
							  dlb_arena_strdup(&g->arena, axis),
							  dlb_arena_strdup(&g->arena, why), (int)shards,
							  pairs };
	}
	g->n_was_split = n;
	return 0;
}

static int read_listed(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "name", "input", "kind", "persistent", NULL };
	struct dlb_ref list = dlb_ref_at(r, "listed");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "listed", DLB_NEED, &list, &n, err))
		return -1;
	g->listed = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->listed);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const char *name, *input;
		bool persistent;
		int kind = 0;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err) ||
		    dlb_get_str(&e, "input", DLB_NEED, &input, err) ||
		    dlb_get_name(&e, "kind", DLB_NEED, listed_names, DLB_LEN(listed_names), &kind, err) ||
		    dlb_get_bool(&e, "persistent", DLB_NEED, &persistent, err))
			return -1;
		g->listed[i] = (struct dlb_listed){ dlb_arena_strdup(&g->arena, name),
						    dlb_arena_strdup(&g->arena, input),
						    (enum dlb_listed_kind)kind, persistent };
	}
	g->n_listed = n;
	return 0;
}

static int read_upcast(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const types[] = { "f16", "bf16", NULL }, *const known[] = { "initializers",
										       "others", NULL };
	struct dlb_ref all = dlb_ref_at(r, "upcast");

	if (!all.v)
		return 0;
	if (dlb_get_object(r, "upcast", DLB_NEED, &all, err) || dlb_ref_known(&all, types, err))
		return -1;
	for (int i = 0; i < DLB_N_UPCAST; i++) {
		struct dlb_ref e = dlb_ref_at(&all, upcast_names[i]);
		int64_t initializers, others;
		if (!e.v)
			continue;
		if (dlb_get_object(&all, upcast_names[i], DLB_NEED, &e, err) ||
		    dlb_ref_known(&e, known, err) ||
		    dlb_get_int(&e, "initializers", DLB_NEED, 0, INT32_MAX, &initializers, err) ||
		    dlb_get_int(&e, "others", DLB_NEED, 0, INT32_MAX, &others, err))
			return -1;
		g->upcast[i] = (struct dlb_upcast){ (int)initializers, (int)others };
	}
	return 0;
}

static int read_unmerged(const struct dlb_ref *r, struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const known[] = { "name", "of", "vertex", "operand", NULL };
	struct dlb_ref list = dlb_ref_at(r, "unmerged");
	int n;

	if (!list.v)
		return 0;
	if (dlb_get_array(r, "unmerged", DLB_NEED, &list, &n, err))
		return -1;
	g->unmerged = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *g->unmerged);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const char *name, *of, *vertex;
		int64_t operand = 0;
		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "name", DLB_NEED, &name, err) ||
		    dlb_get_str(&e, "of", DLB_NEED, &of, err) ||
		    dlb_get_str(&e, "vertex", DLB_NEED, &vertex, err) ||
		    dlb_get_int(&e, "operand", DLB_OPT, 0, INT_MAX, &operand, err))
			return -1;
		g->unmerged[i] = (struct dlb_unmerged){ dlb_arena_strdup(&g->arena, name),
							dlb_arena_strdup(&g->arena, of),
							dlb_arena_strdup(&g->arena, vertex), (int)operand };
	}
	g->n_unmerged = n;
	return 0;
}

int dlb_history_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err)
{
	if (read_rewritten(graph, g, err) || read_was_split(graph, g, err) || read_listed(graph, g, err) ||
	    read_upcast(graph, g, err) || dlb_derived_read(graph, g, err) || read_unmerged(graph, g, err))
		return -1;
	return 0;
}
