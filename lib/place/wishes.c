/* Wishes: from options to what a problem holds. */
#include <stdlib.h>
#include <string.h>
#include "place/affinity.h"
#include "place/wishes.h"

static int find_op(const struct dlb_graph *g, const char *name, size_t n)
{
	char *end;
	for (int i = 0; i < g->n_ops; i++)
		if (strlen(g->op[i].name) == n && !strncmp(g->op[i].name, name, n))
			return i;
	long id = n ? strtol(name, &end, 10) : -1;
	return n && end == name + n && *name >= '0' && *name <= '9' && id < g->n_ops ? (int)id : -1;
}

static int find_node(const struct dlb_cluster *cl, const char *text, const char *option, int *node, struct dlb_error *err)
{
	char *end;
	long id = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || id >= cl->n_nodes)
		return dlb_fail(err, NULL, "--%s: no node '%s'; the cluster has nodes 0 to %d", option, text, cl->n_nodes - 1);
	*node = (int)id;
	return 0;
}

static int read_pin(const char *text, struct dlb_wishes *w, const struct dlb_problem *p, struct dlb_error *err)
{
	const char *last = strrchr(text, '=');
	int node = -1;
	if (!last)
		return dlb_fail(err, NULL, "--pin wants OP=NODE, not '%s'", text);
	int op = find_op(p->graph, text, (size_t)(last - text));
	if (op < 0)
		return dlb_fail(err, NULL, "--pin: no op '%.*s'", (int)(last - text), text);
	if (find_node(p->cluster, last + 1, "pin", &node, err))
		return -1;
	if (w->op_node[op] >= 0 && w->op_node[op] != node)
		return dlb_fail(err, NULL, "--pin: op %d '%s' is pinned to node %d and to node %d", op, p->graph->op[op].name,
				w->op_node[op], node);
	w->op_node[op] = node;
	return 0;
}

static int read_pins(struct dlb_wishes *w, const struct dlb_plan *there_is, const struct dlb_problem *p, struct dlb_error *err)
{
	size_t n_ops = (size_t)p->graph->n_ops, n_nodes = (size_t)p->cluster->n_nodes;
	if (w->pin.n || (there_is && there_is->pin)) {
		w->op_node = dlb_xmalloc((n_ops + 1) * sizeof *w->op_node);
		for (size_t i = 0; i < n_ops; i++)
			w->op_node[i] = w->pin.n || !there_is->pin ? -1 : there_is->pin[i];
	}
	for (int i = 0; i < w->pin.n; i++)
		if (strcmp(w->pin.item[i], "none") && read_pin(w->pin.item[i], w, p, err))
			return -1;
	if (w->exclude.n || (there_is && there_is->excluded))
		w->excluded = dlb_xcalloc(n_nodes, sizeof *w->excluded);
	for (size_t d = 0; !w->exclude.n && w->excluded && d < n_nodes; d++)
		w->excluded[d] = there_is->excluded[d];
	for (int i = 0; i < w->exclude.n; i++) {
		int node = -1;
		if (!strcmp(w->exclude.item[i], "none"))
			continue;
		if (find_node(p->cluster, w->exclude.item[i], "exclude", &node, err))
			return -1;
		w->excluded[node] = true;
	}
	return 0;
}

/* The numbers that the user gave ops: member x-priority of /graph/ops/N, the greatest first. */
static int read_numbers(struct dlb_wishes *w, const struct dlb_doc *d, const struct dlb_problem *p, struct dlb_error *err)
{
	json_t *ops = json_object_get(dlb_doc_section(d, "graph"), "ops");
	int n = 0;
	w->number = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *w->number);
	for (int i = 0; i < p->graph->n_ops; i++) {
		json_t *x = json_object_get(json_array_get(ops, (size_t)i), "x-priority");
		if (x && !json_is_number(x)) {
			char where[300];
			snprintf(where, sizeof where, "%.200s: /graph/ops/%d/x-priority", d->name, i);
			return dlb_fail(err, where, "must be a number");
		}
		w->number[i] = json_number_value(x);
		n += x != NULL;
	}
	if (n)
		return 0;
	dlb_fail(err, d->name, "--priority given: no op has a number");
	return dlb_hint(err, "give ops a member x-priority, the greatest first");
}

/* The placement of another document's plan, by names of ops: its graph may have them in another order. */
static int read_before(struct dlb_wishes *w, const struct dlb_problem *p, struct dlb_error *err)
{
	struct dlb_doc other;
	int rc = -1;
	if (dlb_doc_read(&other, w->from, err))
		return -1;
	json_t *ops = json_object_get(dlb_doc_section(&other, "graph"), "ops"), *index = json_object(), *op;
	json_t *placement = json_object_get(dlb_doc_section(&other, "plan"), "placement");
	size_t k;
	json_array_foreach(ops, k, op) {
		const char *name = json_string_value(json_object_get(op, "name"));
		if (name)
			json_object_set_new(index, name, json_integer((json_int_t)k));
	}
	w->before = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *w->before);
	if (!placement) {
		dlb_fail(err, other.name, "no plan to move from");
		goto out;
	}
	for (int i = 0; i < p->graph->n_ops; i++) {
		char key[32];
		json_t *at = json_object_get(index, p->graph->op[i].name);
		snprintf(key, sizeof key, "%lld", at ? (long long)json_integer_value(at) : -1LL);
		json_t *node = json_object_get(placement, key);
		if (!json_is_integer(node) || json_integer_value(node) < 0 || json_integer_value(node) >= p->cluster->n_nodes) {
			dlb_fail(err, other.name, "--from: its plan has no node of this cluster for op '%s'", p->graph->op[i].name);
			goto out;
		}
		w->before[i] = (int)json_integer_value(node);
	}
	rc = 0;
out:
	json_decref(index);
	dlb_doc_release(&other);
	return rc;
}

int dlb_wishes_read(struct dlb_wishes *w, const struct dlb_doc *d, const struct dlb_plan *there_is, struct dlb_problem *p,
		    struct dlb_error *err)
{
	size_t n_ops = (size_t)p->graph->n_ops;
	if (!w->priority && there_is && there_is->priority)
		w->priority = there_is->priority;
	if (w->priority && !strcmp(w->priority, "given") && read_numbers(w, d, p, err))
		return -1;
	p->by_upward_rank = w->priority && !strcmp(w->priority, "upward-rank");
	p->number = w->number;
	if (read_pins(w, there_is, p, err))
		return -1;
	p->pin = w->op_node;
	p->excluded = w->excluded;
	if (!w->affinity && there_is && there_is->affinity)
		w->affinity = there_is->affinity;
	if (w->affinity) {
		w->table = dlb_xcalloc(1, sizeof *w->table);
		if (dlb_affinity_read(w->table, w->affinity, err))
			return -1;
		p->affinity = w->table;
	}
	p->max_moves = w->max_moves;
	if (w->from) {
		if (read_before(w, p, err))
			return -1;
	} else if (w->max_moves >= 0 || w->serve_steps > 0) {
		if (!there_is)
			return dlb_fail(err, NULL, "there is no plan to move from: give one with --from");
		w->before = dlb_xmalloc((n_ops + 1) * sizeof *w->before);
		memcpy(w->before, there_is->placement, n_ops * sizeof *w->before);
	}
	p->before = w->before;
	p->serve_steps = w->before ? w->serve_steps > 0 ? w->serve_steps : 1000 : 0;
	return 0;
}

const char *dlb_wishes_rewrites(const struct dlb_wishes *w, const struct dlb_plan *there_is)
{
	return w->rewrites ? w->rewrites : there_is && there_is->rewrites ? there_is->rewrites : "keep-affinity";
}

void dlb_wishes_release(struct dlb_wishes *w)
{
	if (w->table)
		dlb_affinity_release(w->table);
	free(w->table);
	free(w->op_node);
	free(w->before);
	free(w->excluded);
	free(w->number);
	w->op_node = w->before = NULL;
	w->excluded = NULL;
	w->number = NULL;
	w->table = NULL;
}

void dlb_wishes_keep(const struct dlb_wishes *w, struct dlb_plan *plan)
{
	bool some = false;
	for (int i = 0; w->op_node && i < plan->n_ops; i++)
		some |= w->op_node[i] >= 0;
	if (some) {
		plan->pin = dlb_arena_array(&plan->arena, (size_t)plan->n_ops + 1, sizeof *plan->pin);
		memcpy(plan->pin, w->op_node, (size_t)plan->n_ops * sizeof *plan->pin);
	}
	some = false;
	for (int d = 0; w->excluded && d < plan->n_nodes; d++)
		some |= w->excluded[d];
	if (some) {
		plan->excluded = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes + 1, sizeof *plan->excluded);
		memcpy(plan->excluded, w->excluded, (size_t)plan->n_nodes * sizeof *plan->excluded);
	}
	if (w->priority && strcmp(w->priority, "graph"))
		plan->priority = dlb_arena_strdup(&plan->arena, w->priority);
	if (w->affinity && !strcmp(plan->winner, "by-kind"))
		plan->affinity = dlb_arena_strdup(&plan->arena, w->affinity);
	plan->rewrites = w->rewrites;
}
