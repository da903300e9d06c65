/* The plan section.
 *
 *     {"inputs":    {"graph":"...", "cluster":"...", "cost":"..."},      written by the tool
 *      "algorithm": "proportional", "algorithm_given": false,            the winning algorithm; requested?
 *      "staleness": "2bw", "staleness_given": false, "fill_s": 0.1,      asynchronous: rule; fill and drain
 *      "schedule": "1f1b", "micro_batches": 8, "batch": 64, "in_place": true, "seed": 1, "optimizer": "sgd",
 *      "in_flight": 3, "chunks": 2,                                      absent: defaults of the schedule
 *      "schedules_tried": [{"schedule", "micro_batches", "value_s"}],    by --schedule auto; no value: does not fit
 *      "batches_tried": [{"batch", "value_s"}],                          by --batch auto; the same
 *      "replicas": [[0], [1]], "power": [2, 1],                          absent: one replica; even shares
 *      "allreduce": "ring", "compress": "none", "sync": false, "sync_batchnorm": false,     how replicas sum gradients
 *      "objective": "throughput", "effort": 1,                           absent: the step; none, or by time
 *      "placement": {"0":0, "1":1},  "hash": "16 hex digits",
 *      "value_s":   predicted step,  "bound_s": no plan can be shorter,  "gap": value_s / bound_s - 1,
 *      "imbalance": max / mean busy, "moved_ops": 0, "moved_bytes": 0,   against the plan it replaced
 *      "migration_s": seconds of moving them, if counted
 *      "recompute": {"auto": true, "ops": [3, 4]},                       or "patterns": ["*relu*"]; absent: none
 *      "state_dtype": "8bit",                                                              absent: f32
 *      "offload": {"auto": true, "states": [{"weights": "h.*", "memory": "disk"}],         absent: none
 *                  "weights": [{"weights": "h.*", "memory": "disk"}],                      absent: none
 *                  "activations": [{"ops": "h.*", "memory": "disk"}]},                     absent: none
 *      "pins": {"name of an op": node}, "exclude": [node],  "priority", "affinity", "rewrites"    constraints
 *      "nodes":     [{"busy_s", "wait_s", "peak_bytes", "memories": [{"name", "weights", "state", "activations"}],
 *                     "order": [[op, micro_batch], ...]}],
 *      "timeline":  [[[op, micro_batch, start_s, end_s], ...], ...]}     a list per node; fifth true: again
 *
 * Only "placement" is needed: omitted members have their defaults, and an order that does not fit an edited
 * placement is computed again. Spans of micro-batch -1 are updates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/again.h"
#include "plan/offload.h"
#include "plan/async.h"
#include "plan/by_class.h"
#include "plan/plan.h"
#include "plan/plan_json.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "plan/timeline_json.h"

static json_t *write_memories(const struct dlb_node_plan *np)
{
	json_t *a = json_array();
	for (int i = 0; i < np->n_memories; i++) {
		json_t *o = json_object();
		dlb_set_str(o, "name", np->memory[i].name);
		for (int b = 0; b < DLB_N_BUFFERS; b++)
			dlb_set_number(o, dlb_buffers_names[b], np->memory[i].bytes[b]);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_node(const struct dlb_node_plan *np)
{
	json_t *o = json_object(), *order = json_array();
	dlb_set_number(o, "busy_s", np->busy_s);
	dlb_set_number(o, "wait_s", np->wait_s);
	dlb_set_number(o, "peak_bytes", np->peak_bytes);
	if (np->offloaded_bytes > 0)
		dlb_set_number(o, "offloaded_bytes", np->offloaded_bytes);
	if (np->n_memories)
		json_object_set_new(o, "memories", write_memories(np));
	for (int i = 0; i < np->n_order; i++)
		json_array_append_new(order, json_pack("[ii]", np->order[i].op, np->order[i].micro_batch));
	json_object_set_new(o, "order", order);
	return o;
}

static void write_constraints(const struct dlb_plan *p, json_t *o)
{
	json_t *pins = json_object(), *exclude = json_array();
	for (int i = 0; p->pin && i < p->n_ops; i++)
		if (p->pin[i] >= 0)
			dlb_set_int(pins, p->graph->op[i].name, p->pin[i]);
	for (int d = 0; p->excluded && d < p->n_nodes; d++)
		if (p->excluded[d])
			json_array_append_new(exclude, json_integer(d));
	if (p->pin)
		json_object_set(o, "pins", pins);
	if (p->excluded)
		json_object_set(o, "exclude", exclude);
	dlb_set_str(o, "priority", p->priority);
	dlb_set_str(o, "affinity", p->affinity);
	dlb_set_str(o, "rewrites", p->rewrites);
	json_decref(pins);
	json_decref(exclude);
}

static void write_recompute(const struct dlb_plan *p, json_t *o)
{
	const struct dlb_recompute *x = &p->recompute;
	json_t *section, *patterns, *ops;
	if (!x->chosen && !x->n)
		return;
	section = json_object();
	if (x->chosen) {
		json_object_set_new(section, "auto", json_true());
	} else {
		json_object_set_new(section, "patterns", patterns = json_array());
		for (int i = 0; i < x->n; i++)
			json_array_append_new(patterns, json_string(x->pattern[i]));
	}
	json_object_set_new(section, "ops", ops = json_array());
	for (int i = 0; p->again && i < p->n_ops; i++)
		if (p->again[i])
			json_array_append_new(ops, json_integer(i));
	json_object_set_new(o, "recompute", section);
}

/* [kind] the member that lists the rules of the kind, and the member of a rule that has its pattern. */
static const struct {
	const char *list, *names;
} offload_rules[DLB_N_OFFLOAD_KINDS] = { [DLB_OFFLOAD_STATES] = { "states", "weights" },
					 [DLB_OFFLOAD_WEIGHTS] = { "weights", "weights" },
					 [DLB_OFFLOAD_ACTIVATIONS] = { "activations", "ops" } };

static void write_offload(const struct dlb_plan *p, json_t *o)
{
	const struct dlb_offload *x = &p->offload;
	json_t *section;
	if (!x->chosen && !x->n)
		return;
	section = json_object();
	if (x->chosen)
		json_object_set_new(section, "auto", json_true());
	for (int kind = 0; kind < DLB_N_OFFLOAD_KINDS; kind++) {
		json_t *list = json_array();
		for (int i = 0; i < x->n; i++)
			if ((int)x->rule[i].kind == kind)
				json_array_append_new(list, json_pack("{ssss}", offload_rules[kind].names,
								      x->rule[i].pattern, "memory",
								      x->rule[i].memory));
		if (kind == DLB_OFFLOAD_STATES || json_array_size(list))
			json_object_set(section, offload_rules[kind].list, list);
		json_decref(list);
	}
	json_object_set_new(o, "offload", section);
}

/* A row ends with its last node, as in [[0, 1], [2, 3]]. -1 stands for a node of replica 0 that does
 * nothing. */
void dlb_plan_write_replicas(const struct dlb_plan *p, json_t *o)
{
	json_t *rows = json_array(), *power = json_array();
	int n = 0;
	for (int k = 0; k < p->n_nodes; k++)
		if (p->replica[0][k] >= 0)
			n = k + 1;
	for (int r = 0; r < p->n_replicas; r++) {
		json_t *row = json_array();
		for (int k = 0; k < n; k++)
			json_array_append_new(row, json_integer(p->replica[r][k]));
		json_array_append_new(rows, row);
		json_array_append_new(power, dlb_doc_number(p->power ? p->power[r] : 1));
	}
	json_object_set_new(o, "replicas", rows);
	json_object_set_new(o, "power", power);
}

static void write_replicas(const struct dlb_plan *p, json_t *o)
{
	dlb_plan_write_replicas(p, o);
	dlb_sharing_write(&p->sharing, o);
	dlb_advice_write(p, o);
}

int dlb_plan_count_replicas(const json_t *section)
{
	const size_t n = json_array_size(json_object_get(section, "replicas"));

	return n ? (int)n : 1;
}

json_t *dlb_plan_write(const struct dlb_plan *p)
{
	json_t *o = json_object(), *placement = json_object(), *nodes = json_array();
	char key[16];
	dlb_set_str(o, "algorithm", p->winner);
	dlb_set_bool(o, "algorithm_given", p->algorithm_given);
	dlb_set_str(o, "schedule", p->schedule);
	dlb_set_int(o, "micro_batches", p->micro_batches);
	if (p->in_flight)
		dlb_set_int(o, "in_flight", p->in_flight);
	if (p->chunks)
		dlb_set_int(o, "chunks", p->chunks);
	if (dlb_plan_is_async(p)) {
		dlb_set_str(o, "staleness",
			    dlb_staleness_names[p->staleness_used ? p->staleness_used : DLB_STALE_STASH]);
		dlb_set_bool(o, "staleness_given", p->staleness != DLB_STALE_DEFAULT);
		dlb_set_number(o, "fill_s", p->fill_s);
	}
	dlb_set_int(o, "batch", p->batch);
	dlb_set_bool(o, "in_place", p->in_place);
	dlb_set_int(o, "seed", p->seed);
	dlb_set_str(o, "optimizer", p->optimizer);
	if (p->n_replicas > 1)
		write_replicas(p, o);
	if (p->clip)
		json_object_set_new(o, "clip", json_true());
	if (p->clip && p->clip_norm > 0)
		dlb_set_number(o, "clip_norm", p->clip_norm);
	if (p->inverse_every)
		dlb_set_int(o, "inverse_every", p->inverse_every);
	dlb_set_str(o, "objective", p->objective);
	if (p->effort)
		dlb_set_int(o, "effort", p->effort);
	for (int i = 0; i < p->n_ops; i++) {
		snprintf(key, sizeof key, "%d", i);
		dlb_set_int(placement, key, p->placement[i]);
	}
	json_object_set_new(o, "placement", placement);
	dlb_set_str(o, "hash", p->hash);
	dlb_set_number(o, "value_s", p->value_s);
	dlb_set_number(o, "bound_s", p->bound_s);
	dlb_set_number(o, "gap", p->gap);
	dlb_set_number(o, "imbalance", p->imbalance);
	dlb_set_int(o, "moved_ops", p->moved_ops);
	dlb_set_number(o, "moved_bytes", p->moved_bytes);
	if (p->migration_s > 0)
		dlb_set_number(o, "migration_s", p->migration_s);
	write_recompute(p, o);
	write_offload(p, o);
	if (p->state_dtype != DLB_STATE_F32)
		dlb_set_str(o, "state_dtype", dlb_state_dtypes[p->state_dtype]);
	write_constraints(p, o);
	for (int n = 0; n < p->n_nodes; n++)
		json_array_append_new(nodes, write_node(&p->node[n]));
	json_object_set_new(o, "nodes", nodes);
	if (p->timeline)
		json_object_set_new(o, "timeline", dlb_spans_write(p->timeline, p->n_spans, p->n_nodes));
	return o;
}

/* ---- reading ---- */

static int read_placement(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	struct dlb_ref map;
	char key[16], name[64];
	if (dlb_get_object(r, "placement", DLB_NEED, &map, err))
		return -1;
	for (int i = 0; i < p->n_ops; i++) {
		int64_t node;
		snprintf(key, sizeof key, "%d", i);
		if (dlb_get_int(&map, key, DLB_NEED, 0, p->n_nodes - 1, &node, err))
			return -1;
		p->placement[i] = (int)node;
	}
	if (json_object_size(map.v) > (size_t)p->n_ops) {
		const char *k;
		json_t *v;
		json_object_foreach(map.v, k, v) {
			char *end;
			long op = strtol(k, &end, 10);
			snprintf(name, sizeof name, "%ld", op);
			if (strncmp(k, "x-", 2) && (*end || op < 0 || op >= p->n_ops || strcmp(name, k)))
				return dlb_ref_fail(&map, err, "no op '%s': the graph has %d ops", k,
						    p->n_ops);
		}
	}
	return 0;
}

/* Reads [op, micro_batch]. */
static int read_pair(const struct dlb_ref *r, int64_t *op, int64_t *m, struct dlb_error *err)
{
	struct dlb_ref first = dlb_ref_index(r, 0), second = dlb_ref_index(r, 1);

	if (!json_is_array(r->v) || json_array_size(r->v) != 2)
		return dlb_ref_fail(r, err, "must be an array of 2 numbers");
	return dlb_ref_int(&first, 0, INT32_MAX, op, err) || dlb_ref_int(&second, -1, INT32_MAX, m, err) ?
		       -1 :
		       0;
}

static int read_memories(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_node_plan *np,
			 struct dlb_error *err)
{
	static const char *const known[] = { "name", "weights", "state", "activations", NULL };
	struct dlb_ref rows;
	int n = 0;
	if (dlb_get_array(r, "memories", DLB_OPT, &rows, &n, err) || !rows.v)
		return rows.v ? -1 : 0;
	np->memory = dlb_arena_array(&p->arena, (size_t)n + 1, sizeof *np->memory);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		if (!json_is_object(row.v))
			return dlb_ref_fail(&row, err, "must be an object");
		if (dlb_ref_known(&row, known, err) ||
		    dlb_get_str(&row, "name", DLB_NEED, &np->memory[i].name, err))
			return -1;
		np->memory[i].name = dlb_arena_strdup(&p->arena, np->memory[i].name);
		for (int b = 0; b < DLB_N_BUFFERS; b++)
			if (dlb_get_real(&row, dlb_buffers_names[b], DLB_OPT, 0, 1e18,
					 &np->memory[i].bytes[b], err))
				return -1;
	}
	np->n_memories = n;
	return 0;
}

static int read_node(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_node_plan *np,
		     struct dlb_error *err)
{
	static const char *const known[] = { "busy_s",   "wait_s", "peak_bytes", "offloaded_bytes",
					     "memories", "order",  NULL };
	struct dlb_ref order;
	int n = 0;
	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	if (dlb_ref_known(r, known, err) || dlb_get_real(r, "busy_s", DLB_OPT, 0, 1e18, &np->busy_s, err) ||
	    dlb_get_real(r, "wait_s", DLB_OPT, 0, 1e18, &np->wait_s, err) ||
	    dlb_get_real(r, "peak_bytes", DLB_OPT, 0, 1e18, &np->peak_bytes, err) ||
	    dlb_get_real(r, "offloaded_bytes", DLB_OPT, 0, 1e18, &np->offloaded_bytes, err) ||
	    read_memories(r, p, np, err) || dlb_get_array(r, "order", DLB_OPT, &order, &n, err))
		return -1;
	if (!order.v)
		n = 0;
	np->order = dlb_arena_array(&p->arena, (size_t)n + 1, sizeof *np->order);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&order, i);
		int64_t op, m;
		if (read_pair(&e, &op, &m, err))
			return -1;
		if (op >= p->n_ops)
			return dlb_ref_fail(&e, err, "no op %lld: the graph has %d ops", (long long)op,
					    p->n_ops);
		if (m >= p->micro_batches)
			return dlb_ref_fail(&e, err, "no micro-batch %lld of %d", (long long)m,
					    p->micro_batches);
		np->order[i] = (struct dlb_item){ (int)op, (int)m };
	}
	np->n_order = n;
	return 0;
}

/* Pins use names of ops, so that they stay valid when ops are renumbered. */
static int read_pins(const struct dlb_ref *r, const struct dlb_graph *g, struct dlb_plan *p,
		     struct dlb_error *err)
{
	struct dlb_ref pins = { .v = NULL };
	const char *key;
	json_t *v;
	if (dlb_get_object(r, "pins", DLB_OPT, &pins, err))
		return -1;
	if (!pins.v)
		return 0;
	p->pin = dlb_arena_array(&p->arena, (size_t)p->n_ops + 1, sizeof *p->pin);
	for (int i = 0; i < p->n_ops; i++)
		p->pin[i] = -1;
	json_object_foreach(pins.v, key, v) {
		int op = 0;
		int64_t node;
		while (op < g->n_ops && strcmp(g->op[op].name, key))
			op++;
		if (op == g->n_ops) {
			dlb_ref_fail(&pins, err, "no op '%s' to pin", key);
			return dlb_hint(err, "--pin none clears pins");
		}
		if (dlb_get_int(&pins, key, DLB_NEED, 0, p->n_nodes - 1, &node, err))
			return -1;
		p->pin[op] = (int)node;
	}
	return 0;
}

static int read_recompute(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	static const char *const known[] = { "auto", "patterns", "ops", NULL };
	struct dlb_ref section = { .v = NULL }, patterns = { .v = NULL };
	const char **pattern;
	int n = 0;
	if (dlb_get_object(r, "recompute", DLB_OPT, &section, err))
		return -1;
	if (!section.v)
		return 0;
	if (dlb_ref_known(&section, known, err) ||
	    dlb_get_bool(&section, "auto", DLB_OPT, &p->recompute.chosen, err) ||
	    dlb_get_array(&section, "patterns", DLB_OPT, &patterns, &n, err))
		return -1;
	n = patterns.v ? n : 0;
	if (p->recompute.chosen == (n > 0))
		return dlb_ref_fail(&section, err, "wants either \"auto\": true or patterns of names");
	p->recompute.pattern = pattern = dlb_arena_array(&p->arena, (size_t)n + 1, sizeof *pattern);
	for (p->recompute.n = 0; p->recompute.n < n; p->recompute.n++) {
		struct dlb_ref e = dlb_ref_index(&patterns, p->recompute.n);
		if (!json_is_string(e.v))
			return dlb_ref_fail(&e, err, "must be a string");
		pattern[p->recompute.n] = dlb_arena_strdup(&p->arena, json_string_value(e.v));
	}
	return 0;
}

static int read_offload_rule(const struct dlb_ref *list, int i, enum dlb_offload_kind kind,
			     struct dlb_plan *p, struct dlb_offload_rule *to, struct dlb_error *err)
{
	const char *names = offload_rules[kind].names, *const known[] = { names, "memory", NULL };
	const struct dlb_ref e = dlb_ref_index(list, i);
	const char *pattern = NULL, *memory = NULL;
	if (!json_is_object(e.v))
		return dlb_ref_fail(&e, err, "an object is expected");
	if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, names, DLB_NEED, &pattern, err) ||
	    dlb_get_str(&e, "memory", DLB_NEED, &memory, err))
		return -1;
	*to = (struct dlb_offload_rule){ dlb_arena_strdup(&p->arena, pattern),
					 dlb_arena_strdup(&p->arena, memory), kind };
	return 0;
}

static int read_offload(const struct dlb_ref *r, const struct dlb_graph *g, struct dlb_plan *p,
			struct dlb_error *err)
{
	static const char *const known[] = { "auto", "states", "weights", "activations", NULL };
	struct dlb_ref section = { .v = NULL }, list[DLB_N_OFFLOAD_KINDS] = { { .v = NULL } };
	struct dlb_offload_rule *rule;
	int n[DLB_N_OFFLOAD_KINDS] = { 0 }, sum = 0;
	if (dlb_get_object(r, "offload", DLB_OPT, &section, err))
		return -1;
	if (!section.v)
		return 0;
	if (dlb_ref_known(&section, known, err) ||
	    dlb_get_bool(&section, "auto", DLB_OPT, &p->offload.chosen, err))
		return -1;
	for (int kind = 0; kind < DLB_N_OFFLOAD_KINDS; kind++) {
		if (dlb_get_array(&section, offload_rules[kind].list,
				  kind == DLB_OFFLOAD_STATES ? DLB_NEED : DLB_OPT, &list[kind], &n[kind],
				  err))
			return -1;
		sum += n[kind];
	}
	p->offload.rule = rule = dlb_arena_array(&p->arena, (size_t)sum + 1, sizeof *rule);
	for (int kind = 0; kind < DLB_N_OFFLOAD_KINDS; kind++)
		for (int i = 0; i < n[kind]; i++)
			if (read_offload_rule(&list[kind], i, (enum dlb_offload_kind)kind, p,
					      &rule[p->offload.n++], err))
				return -1;
	dlb_offload_mark(p, g);
	return 0;
}

static int read_state_dtype(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	const struct dlb_ref at = dlb_ref_at(r, "state_dtype");
	const char *name = NULL;
	if (dlb_get_str(r, "state_dtype", DLB_OPT, &name, err))
		return -1;
	const int d = name ? dlb_state_dtype_find(name) : DLB_STATE_F32;
	if (d < 0)
		return dlb_ref_fail(&at, err, "'f32', 'bf16' or '8bit' is expected, not '%.40s'", name);
	p->state_dtype = (enum dlb_state_dtype)d;
	return 0;
}

static int read_again(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	struct dlb_ref section = { .v = NULL }, ops = { .v = NULL };
	int n_ops = 0;
	if (dlb_get_object(r, "recompute", DLB_OPT, &section, err) ||
	    (section.v && dlb_get_array(&section, "ops", DLB_OPT, &ops, &n_ops, err)))
		return -1;
	n_ops = ops.v ? n_ops : 0;
	if (n_ops)
		p->again = dlb_arena_array(&p->arena, (size_t)p->n_ops + 1, sizeof *p->again);
	for (int i = 0; i < n_ops; i++) {
		struct dlb_ref e = dlb_ref_index(&ops, i);
		int64_t op;
		if (dlb_ref_int(&e, 0, p->n_ops - 1, &op, err))
			return -1;
		p->again[op] = true;
	}
	return 0;
}

static int read_constraints(const struct dlb_ref *r, const struct dlb_graph *g, struct dlb_plan *p,
			    struct dlb_error *err)
{
	static const char *const priorities[] = { "graph", "upward-rank", "given" }, *const rewrites[] = {
		"keep-affinity", "all"
	};
	struct dlb_ref exclude = { .v = NULL }, at = dlb_ref_at(r, "priority"),
		       fused = dlb_ref_at(r, "rewrites");
	const char *s = NULL, *which = NULL;
	int n = 0;
	if (read_pins(r, g, p, err) || dlb_get_array(r, "exclude", DLB_OPT, &exclude, &n, err) ||
	    dlb_get_str(r, "affinity", DLB_OPT, &p->affinity, err) ||
	    dlb_get_str(r, "rewrites", DLB_OPT, &which, err) || dlb_get_str(r, "priority", DLB_OPT, &s, err))
		return -1;
	if (p->affinity)
		p->affinity = dlb_arena_strdup(&p->arena, p->affinity);
	for (int i = 0; s && i < DLB_LEN(priorities); i++)
		if (!strcmp(s, priorities[i]))
			p->priority = priorities[i];
	if (s && !p->priority)
		return dlb_ref_fail(&at, err, "no priority '%s'; there are graph, upward-rank and given", s);
	for (int i = 0; which && i < DLB_LEN(rewrites); i++)
		if (!strcmp(which, rewrites[i]))
			p->rewrites = rewrites[i];
	if (which && !p->rewrites)
		return dlb_ref_fail(&fused, err, "no '%s'; there are keep-affinity and all", which);
	if (!exclude.v)
		return 0;
	p->excluded = dlb_arena_array(&p->arena, (size_t)p->n_nodes + 1, sizeof *p->excluded);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&exclude, i);
		int64_t node;
		if (dlb_ref_int(&e, 0, p->n_nodes - 1, &node, err))
			return -1;
		p->excluded[node] = true;
	}
	return 0;
}

static int read_row(const struct dlb_ref *row, struct dlb_plan *p, int *replica, char *taken,
		    struct dlb_error *err)
{
	int n = 0;
	struct dlb_ref list = *row;
	if (!json_is_array(row->v))
		return dlb_ref_fail(row, err, "must be an array of nodes");
	n = (int)json_array_size(row->v);
	if (n > p->n_nodes)
		return dlb_ref_fail(row, err, "%d nodes, the cluster has %d", n, p->n_nodes);
	for (int k = 0; k < n; k++) {
		struct dlb_ref x = dlb_ref_index(&list, k);
		int64_t node;
		if (dlb_ref_int(&x, -1, p->n_nodes - 1, &node, err))
			return -1;
		if (node >= 0 && taken[node]++)
			return dlb_ref_fail(&x, err, "node %lld has a part already", (long long)node);
		replica[k] = (int)node;
	}
	return 0;
}

int dlb_plan_read_replicas(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	struct dlb_ref rows = { .v = NULL }, power = { .v = NULL };
	int n = 0, n_power = 0, rc = 0;
	if (dlb_get_array(r, "replicas", DLB_OPT, &rows, &n, err) ||
	    dlb_get_array(r, "power", DLB_OPT, &power, &n_power, err))
		return -1;
	if (!rows.v || n == 0)
		return 0;
	if (n > p->n_nodes)
		return dlb_ref_fail(&rows, err, "%d replicas over %d nodes", n, p->n_nodes);
	if (power.v && n_power != n)
		return dlb_ref_fail(&power, err, "%d values for %d replicas", n_power, n);
	int *replica = dlb_xmalloc((size_t)n * (size_t)p->n_nodes * sizeof *replica);
	char *taken = dlb_xcalloc((size_t)p->n_nodes + 1, 1);
	for (int i = 0; i < n * p->n_nodes; i++)
		replica[i] = -1;
	p->power = dlb_arena_array(&p->arena, (size_t)n, sizeof *p->power);
	for (int i = 0; i < n && rc == 0; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i), x = dlb_ref_index(&power, i);
		p->power[i] = 1;
		rc = read_row(&row, p, replica + (size_t)i * (size_t)p->n_nodes, taken, err);
		if (rc == 0 && power.v)
			rc = dlb_ref_real(&x, 1e-12, 1e18, &p->power[i], err);
		for (int k = 0; k < p->n_nodes && rc == 0; k++) {
			int node = replica[(size_t)i * (size_t)p->n_nodes + (size_t)k];
			if (i == 0 ? node >= 0 && node != k : (node < 0) != (replica[k] < 0))
				rc = dlb_ref_fail(
					&row, err,
					i ? "replica %d has other parts than replica 0" :
					    "replica %d: a node plays its own part in the first one",
					i);
		}
	}
	if (rc == 0)
		dlb_plan_set_replicas(p, n, replica);
	free(replica);
	free(taken);
	return rc;
}

static int read_replicas(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	return dlb_sharing_read(r, &p->sharing, err) || dlb_plan_read_replicas(r, p, err) ? -1 : 0;
}

/* Keeps a rule given by the user; any other rule will be chosen again for the plan. */
static int read_staleness(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	const char *s = NULL;
	bool given = false;
	if (dlb_get_str(r, "staleness", DLB_OPT, &s, err) ||
	    dlb_get_bool(r, "staleness_given", DLB_OPT, &given, err) ||
	    dlb_get_real(r, "fill_s", DLB_OPT, -1e18, 1e18, &p->fill_s, err))
		return -1;
	if (s && dlb_staleness_find(s) < 0) {
		struct dlb_ref at = dlb_ref_at(r, "staleness");
		return dlb_ref_fail(&at, err, "no rule '%s'; there are none, stash, 2bw and predict", s);
	}
	p->staleness_used = s ? (enum dlb_staleness)dlb_staleness_find(s) : DLB_STALE_DEFAULT;
	p->staleness = given ? p->staleness_used : DLB_STALE_DEFAULT;
	return 0;
}

static int read_options(const struct dlb_ref *r, const struct dlb_graph *g, struct dlb_plan *p,
			struct dlb_error *err)
{
	const char *s = NULL;
	int64_t batch = g->batch, micro_batches = 1, seed = 1, in_flight = 0, chunks = 0, inverse_every = 0;
	if (dlb_get_int(r, "batch", DLB_OPT, 1, INT64_C(1) << 40, &batch, err) ||
	    dlb_get_int(r, "micro_batches", DLB_OPT, 1, batch < 1 << 20 ? batch : 1 << 20, &micro_batches,
			err) ||
	    dlb_get_int(r, "in_flight", DLB_OPT, 1, 1 << 20, &in_flight, err) ||
	    dlb_get_int(r, "chunks", DLB_OPT, 1, 1024, &chunks, err) ||
	    dlb_get_int(r, "seed", DLB_OPT, INT64_MIN, INT64_MAX, &seed, err) ||
	    dlb_get_bool(r, "algorithm_given", DLB_OPT, &p->algorithm_given, err) ||
	    dlb_get_bool(r, "in_place", DLB_OPT, &p->in_place, err) ||
	    dlb_get_bool(r, "clip", DLB_OPT, &p->clip, err) ||
	    dlb_get_real(r, "clip_norm", DLB_OPT, 0, HUGE_VAL, &p->clip_norm, err) ||
	    dlb_get_int(r, "inverse_every", DLB_OPT, 1, 1000000000, &inverse_every, err) ||
	    dlb_get_str(r, "algorithm", DLB_OPT, &s, err))
		return -1;
	p->batch = batch;
	p->micro_batches = (int)micro_batches;
	p->inverse_every = (int)inverse_every;
	p->in_flight = (int)in_flight;
	p->chunks = (int)chunks;
	p->seed = (uint64_t)seed;
	if (s)
		p->winner = dlb_arena_strdup(&p->arena, s);
	p->algorithm = p->algorithm_given ? p->winner : "default";
	s = NULL;
	if (dlb_get_str(r, "schedule", DLB_OPT, &s, err))
		return -1;
	if (s && !dlb_schedule_find(s)) {
		struct dlb_ref at = dlb_ref_at(r, "schedule");
		return dlb_ref_fail(&at, err, "no schedule '%s'", s);
	}
	if (s)
		p->schedule = dlb_schedule_find(s)->name;
	if (read_staleness(r, p, err))
		return -1;
	s = NULL;
	if (dlb_get_str(r, "objective", DLB_OPT, &s, err) ||
	    dlb_get_int(r, "effort", DLB_OPT, 0, INT64_MAX, &p->effort, err))
		return -1;
	if (s)
		p->objective = dlb_arena_strdup(&p->arena, s);
	s = NULL;
	if (dlb_get_str(r, "optimizer", DLB_OPT, &s, err))
		return -1;
	if (s)
		p->optimizer = dlb_arena_strdup(&p->arena, s);
	return read_constraints(r, g, p, err) || read_recompute(r, p, err) || read_offload(r, g, p, err) ||
			       read_state_dtype(r, p, err) || read_replicas(r, p, err) ?
		       -1 :
		       0;
}

static int read_numbers(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err)
{
	int64_t moved = 0;
	const char *hash = NULL;
	if (dlb_get_real(r, "value_s", DLB_OPT, 0, 1e18, &p->value_s, err) ||
	    dlb_get_real(r, "bound_s", DLB_OPT, 0, 1e18, &p->bound_s, err) ||
	    dlb_get_real(r, "gap", DLB_OPT, -1, 1e18, &p->gap, err) ||
	    dlb_get_real(r, "imbalance", DLB_OPT, 0, 1e18, &p->imbalance, err) ||
	    dlb_get_real(r, "moved_bytes", DLB_OPT, 0, 1e18, &p->moved_bytes, err) ||
	    dlb_get_real(r, "migration_s", DLB_OPT, 0, 1e18, &p->migration_s, err) ||
	    dlb_get_int(r, "moved_ops", DLB_OPT, 0, INT32_MAX, &moved, err) ||
	    dlb_get_str(r, "hash", DLB_OPT, &hash, err))
		return -1;
	p->moved_ops = (int)moved;
	return 0;
}

static bool order_fits(const struct dlb_plan *p, const struct dlb_graph *g)
{
	int *times = dlb_xcalloc((size_t)p->n_ops + 1, sizeof(int));
	bool fits = true;
	for (int n = 0; n < p->n_nodes; n++) {
		for (int i = 0; i < p->node[n].n_order; i++) {
			fits &= p->placement[p->node[n].order[i].op] == n;
			times[p->node[n].order[i].op]++;
		}
	}
	for (int i = 0; i < p->n_ops; i++)
		fits &= times[i] == (g->op[i].phase == DLB_UPDATE ? 1 : p->micro_batches);
	free(times);
	return fits;
}

/* Whether each replica's orders fit its part of the plan. */
static bool orders_fit(const struct dlb_plan *p, const struct dlb_graph *g)
{
	bool fits = true;
	if (p->n_replicas < 2)
		return order_fits(p, g);
	int64_t *share = dlb_xcalloc((size_t)p->n_replicas, sizeof *share);
	dlb_plan_shares(p, p->batch, share);
	for (int r = 0; r < p->n_replicas && fits; r++) {
		struct dlb_plan one;
		dlb_plan_of_replica(p, r, share[r] ? share[r] : 1, &one);
		fits = order_fits(&one, g);
		dlb_plan_release(&one);
	}
	free(share);
	return fits;
}

/* Members of the section. */
/* clang-format off */
static const char *const plan_members[] = {
	"inputs", "algorithm", "algorithm_given", "schedule", "micro_batches", "in_flight", "chunks",
	"schedules_tried", "batches_tried", "front", "batch", "in_place", "staleness", "staleness_given", "fill_s", "seed",
	"objective", "effort", "optimizer", "clip", "clip_norm", "inverse_every", "placement", "hash",
	"value_s", "bound_s", "gap", "imbalance", "moved_ops", "moved_bytes", "migration_s", "recompute",
	"offload", "state_dtype",
	"pins", "exclude", "priority", "affinity", "rewrites", "nodes", "replicas", "power", "allreduce",
	"allreduce_by_size", "compress", "compress_by_class", "compress_advice", "sync", "sync_batchnorm", "zero",
	"split", "split_given", "gossip", "sync_every", "param_server", "shards", "reduce", "max_state",
	"exchange_data", "feed", "timeline",
	NULL
};
/* clang-format on */

static int read_plan(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p, bool *rescheduled,
		     struct dlb_error *err)
{
	json_t *section;
	struct dlb_ref nodes;
	int n = 0;
	if (dlb_doc_need(d, "plan", &section, err) || dlb_doc_check_inputs(d, "plan", err))
		return -1;
	struct dlb_ref r = dlb_ref_root(d, "plan");
	if (dlb_ref_known(&r, plan_members, err) || read_options(&r, c->graph, p, err) ||
	    read_placement(&r, p, err) || read_again(&r, p, err) || read_numbers(&r, p, err) ||
	    dlb_advice_read(&r, p, err) || dlb_get_array(&r, "nodes", DLB_OPT, &nodes, &n, err))
		return -1;
	if (nodes.v && n != p->n_nodes)
		return dlb_ref_fail(&nodes, err, "%d nodes, the cluster has %d", n, p->n_nodes);
	for (int i = 0; nodes.v && i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&nodes, i);
		if (read_node(&e, p, &p->node[i], err))
			return -1;
	}
	dlb_plan_hash(p);
	if (dlb_plan_check_replicas(p, err))
		return -1;
	dlb_plan_choose_sums(p, c);
	*rescheduled = !orders_fit(p, c->graph);
	if (*rescheduled)
		dlb_plan_order(p, c, NULL);
	else if (dlb_spans_read(&r, p->n_nodes, p->n_ops, &p->arena, &p->timeline, &p->n_spans, err))
		return -1;
	if (dlb_plan_check(p, c, err))
		return dlb_error_at(err, d->name);
	return 0;
}

int dlb_plan_read(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p, bool *rescheduled,
		  struct dlb_error *err)
{
	bool ignored;
	dlb_plan_init(p, c->graph->n_ops, c->cluster->n_nodes);
	p->graph = c->graph;
	if (!read_plan(d, c, p, rescheduled ? rescheduled : &ignored, err))
		return 0;
	dlb_plan_release(p);
	return -1;
}

int dlb_plan_read_options(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p,
			  struct dlb_error *err)
{
	json_t *section;
	dlb_plan_init(p, c->graph->n_ops, c->cluster->n_nodes);
	p->graph = c->graph;
	if (!dlb_doc_need(d, "plan", &section, err)) {
		struct dlb_ref r = dlb_ref_root(d, "plan");
		if (!read_options(&r, c->graph, p, err))
			return 0;
	}
	dlb_plan_release(p);
	return -1;
}
