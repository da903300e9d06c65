/* Reads the options --pin, --exclude, --priority, --affinity, --from and --max-moves into a placement
 * problem. */
#include <stdlib.h>
#include <string.h>
#include "place/affinity.h"
#include "place/constraints.h"

static int find_op(const struct dlb_graph *g, const char *name, size_t n)
{
	char *end;
	for (int i = 0; i < g->n_ops; i++)
		if (strlen(g->op[i].name) == n && !strncmp(g->op[i].name, name, n))
			return i;
	long id = n ? strtol(name, &end, 10) : -1;
	return n && end == name + n && *name >= '0' && *name <= '9' && id < g->n_ops ? (int)id : -1;
}

static int find_node(const struct dlb_cluster *cl, const char *text, const char *option, int *node,
		     struct dlb_error *err)
{
	char *end;
	long id = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || id >= cl->n_nodes)
		return dlb_fail(err, NULL, "--%s: no node '%s'; the cluster has nodes 0 to %d", option, text,
				cl->n_nodes - 1);
	*node = (int)id;
	return 0;
}

static int read_pin(const char *text, struct dlb_constraints *c, const struct dlb_problem *p,
		    struct dlb_error *err)
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
	if (c->op_node[op] >= 0 && c->op_node[op] != node)
		return dlb_fail(err, NULL, "--pin: op %d '%s' is pinned to node %d and to node %d", op,
				p->graph->op[op].name, c->op_node[op], node);
	c->op_node[op] = node;
	return 0;
}

static int read_pins(struct dlb_constraints *c, const struct dlb_plan *previous, const struct dlb_problem *p,
		     struct dlb_error *err)
{
	size_t n_ops = (size_t)p->graph->n_ops, n_nodes = (size_t)p->cluster->n_nodes;
	if (c->pin.n || (previous && previous->pin)) {
		c->op_node = dlb_xmalloc((n_ops + 1) * sizeof *c->op_node);
		for (size_t i = 0; i < n_ops; i++)
			c->op_node[i] = c->pin.n || !previous->pin ? -1 : previous->pin[i];
	}
	for (int i = 0; i < c->pin.n; i++)
		if (strcmp(c->pin.item[i], "none") && read_pin(c->pin.item[i], c, p, err))
			return -1;
	if (c->exclude.n || (previous && previous->excluded))
		c->excluded = dlb_xcalloc(n_nodes, sizeof *c->excluded);
	for (size_t d = 0; !c->exclude.n && c->excluded && d < n_nodes; d++)
		c->excluded[d] = previous->excluded[d];
	for (int i = 0; i < c->exclude.n; i++) {
		int node = -1;
		if (!strcmp(c->exclude.item[i], "none"))
			continue;
		if (find_node(p->cluster, c->exclude.item[i], "exclude", &node, err))
			return -1;
		c->excluded[node] = true;
	}
	return 0;
}

/* Reads the user's priorities of ops: member x-priority of /graph/ops/N, the greatest first. */
static int read_numbers(struct dlb_constraints *c, const struct dlb_doc *d, const struct dlb_problem *p,
			struct dlb_error *err)
{
	json_t *ops = json_object_get(dlb_doc_section(d, "graph"), "ops");
	int n = 0;
	c->number = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *c->number);
	for (int i = 0; i < p->graph->n_ops; i++) {
		json_t *x = json_object_get(json_array_get(ops, (size_t)i), "x-priority");
		if (x && !json_is_number(x)) {
			char where[300];
			snprintf(where, sizeof where, "%.200s: /graph/ops/%d/x-priority", d->name, i);
			return dlb_fail(err, where, "must be a number");
		}
		c->number[i] = json_number_value(x);
		n += x != NULL;
	}
	if (n)
		return 0;
	dlb_fail(err, d->name, "--priority given: no op has a number");
	return dlb_hint(err, "give ops a member x-priority, the greatest first");
}

/* Reads the placement of another document's plan. Ops are matched by name, since that graph may order them
 * differently. */
static int read_before(struct dlb_constraints *c, const struct dlb_problem *p, struct dlb_error *err)
{
	struct dlb_doc other;
	int rc = -1;
	if (dlb_doc_read(&other, c->from, err))
		return -1;
	json_t *ops = json_object_get(dlb_doc_section(&other, "graph"), "ops"), *index = json_object(), *op;
	json_t *placement = json_object_get(dlb_doc_section(&other, "plan"), "placement");
	size_t k;
	json_array_foreach(ops, k, op) {
		const char *name = json_string_value(json_object_get(op, "name"));
		if (name)
			dlb_set_int(index, name, k);
	}
	c->before = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *c->before);
	if (!placement) {
		dlb_fail(err, other.name, "no plan to move from");
		goto out;
	}
	for (int i = 0; i < p->graph->n_ops; i++) {
		char key[32];
		json_t *at = json_object_get(index, p->graph->op[i].name);
		snprintf(key, sizeof key, "%lld", at ? (long long)json_integer_value(at) : -1LL);
		json_t *node = json_object_get(placement, key);
		if (!json_is_integer(node) || json_integer_value(node) < 0 ||
		    json_integer_value(node) >= p->cluster->n_nodes) {
			dlb_fail(err, other.name, "--from: its plan has no node of this cluster for op '%s'",
				 p->graph->op[i].name);
			goto out;
		}
		c->before[i] = (int)json_integer_value(node);
	}
	rc = 0;
out:
	json_decref(index);
	dlb_doc_release(&other);
	return rc;
}

int dlb_constraints_read(struct dlb_constraints *c, const struct dlb_doc *d, const struct dlb_plan *previous,
			 struct dlb_problem *p, struct dlb_error *err)
{
	size_t n_ops = (size_t)p->graph->n_ops;
	if (!c->priority && previous && previous->priority)
		c->priority = previous->priority;
	if (c->priority && !strcmp(c->priority, "given") && read_numbers(c, d, p, err))
		return -1;
	p->by_upward_rank = c->priority && !strcmp(c->priority, "upward-rank");
	p->number = c->number;
	if (read_pins(c, previous, p, err))
		return -1;
	p->pin = c->op_node;
	p->excluded = c->excluded;
	if (!c->affinity && previous && previous->affinity)
		c->affinity = previous->affinity;
	if (c->affinity) {
		c->table = dlb_xcalloc(1, sizeof *c->table);
		if (dlb_affinity_read(c->table, c->affinity, err))
			return -1;
		p->affinity = c->table;
	}
	p->max_moves = c->max_moves;
	if (c->from) {
		if (read_before(c, p, err))
			return -1;
	} else if (c->max_moves >= 0 || c->serve_steps > 0) {
		if (!previous)
			return dlb_fail(err, NULL, "there is no plan to move from: give one with --from");
		c->before = dlb_xmalloc((n_ops + 1) * sizeof *c->before);
		memcpy(c->before, previous->placement, n_ops * sizeof *c->before);
	}
	p->before = c->before;
	p->serve_steps = c->before ? c->serve_steps > 0 ? c->serve_steps : 1000 : 0;
	return 0;
}

const char *dlb_constraints_rewrites(const struct dlb_constraints *c, const struct dlb_plan *previous)
{
	return c->rewrites                    ? c->rewrites :
	       previous && previous->rewrites ? previous->rewrites :
						"keep-affinity";
}

void dlb_constraints_release(struct dlb_constraints *c)
{
	if (c->table)
		dlb_affinity_release(c->table);
	free(c->table);
	free(c->op_node);
	free(c->before);
	free(c->excluded);
	free(c->number);
	c->op_node = c->before = NULL;
	c->excluded = NULL;
	c->number = NULL;
	c->table = NULL;
}

void dlb_constraints_keep(const struct dlb_constraints *c, struct dlb_plan *plan)
{
	bool some = false;
	for (int i = 0; c->op_node && i < plan->n_ops; i++)
		some |= c->op_node[i] >= 0;
	if (some) {
		plan->pin = dlb_arena_array(&plan->arena, (size_t)plan->n_ops + 1, sizeof *plan->pin);
		memcpy(plan->pin, c->op_node, (size_t)plan->n_ops * sizeof *plan->pin);
	}
	some = false;
	for (int d = 0; c->excluded && d < plan->n_nodes; d++)
		some |= c->excluded[d];
	if (some) {
		plan->excluded = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes + 1,
						 sizeof *plan->excluded);
		memcpy(plan->excluded, c->excluded, (size_t)plan->n_nodes * sizeof *plan->excluded);
	}
	if (c->priority && strcmp(c->priority, "graph"))
		plan->priority = dlb_arena_strdup(&plan->arena, c->priority);
	if (c->affinity && !strcmp(plan->winner, "by-kind"))
		plan->affinity = dlb_arena_strdup(&plan->arena, c->affinity);
	plan->rewrites = c->rewrites;
}
