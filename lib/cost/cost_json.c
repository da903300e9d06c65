/* Reads and writes the cost section. Ops with equal costs share a row, which keeps
 * the section small for any graph:
 *
 *     {"inputs":  {"graph":"...", "profile":"...", "cluster":"..."},
 *      "kinds":   ["cpu"],  "batches": [32, 16, 8, 4, 2],
 *      "accumulate_Bps": {"cpu":1e10},  "fit_error": {"cpu":0.2},
 *      "step_spread": {"cpu":0.03}, "step_overhead_s": {"cpu":3e-5},
 *      "rows":    [{"type":"Conv", "ops":[0], "time_s":{"cpu":[...]}, "measured":["cpu"],
 *                   "memory":{"output_bytes":..., "weight_bytes":..., "gradient_bytes":..., "state_bytes":...},
 *                   "scratch_bytes":{"cpu":...}, "split":{"output_s":..., "sum_s":...}}],
 *      "transfers":[{"route":["shm"], "from":0, "to":1, "latency_s":1e-6, "bandwidth_Bps":6e9}],
 *      "fit":     [{"kind":"cpu", "work":"conv", ...}]}
 *
 * time_s is null for a kind without a kernel. state_bytes is for one optimizer state; the optimizer
 * determines the number of states. "memory", "split", "transfers" and "fit" inform people; the reader ignores
 * them. */
#include "cost/cost.h"
#include "optim/optim.h"
#include "util/hash.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BATCHES = 64, MAX_TRANSFERS = 64, MAX_LEAVES = 512 };

static void set_known(json_t *o, const char *key, double x)
{
	if (isfinite(x) && x > 0)
		dlb_set_number(o, key, x);
}

/* ---- rows: ops grouped by all members of a row ---- */

struct memory { double output, weight, gradient, state, buffer; };

/* Bytes that an op needs on its node: its outputs (one pass over the whole batch) and the state whose home is
 * this op. */
static struct memory memory_of(const struct dlb_graph *g, int op, int64_t batch)
{
	struct memory m = { .output = dlb_cost_out_bytes(g, op, batch) };
	const struct dlb_op *o = &g->op[op];

	for (int i = 0; i < o->n_in; i++) {
		const struct dlb_tensor *t = o->in[i] < 0 ? NULL : &g->tensor[o->in[i]];
		if (!t || t->home != op)
			continue;
		if (t->kind == DLB_T_WEIGHT) {
			m.weight += dlb_tensor_bytes(t, 1);
			if (t->frozen)
				continue;
			m.gradient += dlb_tensor_bytes(t, 1);
			m.state += dlb_tensor_bytes(t, 1);
		} else if (t->kind == DLB_T_BUFFER) {
			m.buffer += dlb_tensor_bytes(t, 1);
		}
	}
	return m;
}

struct cost_key { uint64_t hash; int op; };

static int by_hash(const void *a, const void *b)
{
	const struct cost_key *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

static uint64_t hash_real(uint64_t h, double x)
{
	x += 0.0;	/* -0 becomes +0 */
	return dlb_hash_bytes(h, &x, sizeof x);
}

static uint64_t row_hash(const struct dlb_cost *c, int op)
{
	const struct dlb_op *o = &c->graph->op[op];
	struct memory m = memory_of(c->graph, op, c->batch[0]);
	uint64_t h = dlb_hash_str(DLB_HASH_INIT, o->type);

	h = hash_real(hash_real(hash_real(h, m.output), m.weight), m.buffer);
	h = hash_real(h, dlb_cost_in_bytes(c->graph, op, c->batch[0]));
	h = hash_real(hash_real(h, c->output_s[op]), c->resident_bytes[op]);
	for (int k = 0; k < c->n_kinds; k++) {
		size_t at = (size_t)k * (size_t)c->n_ops + (size_t)op;
		for (int b = 0; b < c->n_batches; b++) {
			const size_t i = at * (size_t)c->n_batches + (size_t)b;

			h = hash_real(hash_real(hash_real(h, c->op_s[i]), c->scratch_bytes[i]),
				      c->packed_bytes[i]);
		}
		h = hash_real(h, c->workspace_bytes[at]);
		h = hash_real(h, c->measured[at]);
	}
	return h;
}

/* x: [kind][op][n] */
static void write_sizes(json_t *o, const char *key, const struct dlb_cost *c, const double *x, int n, int op)
{
	json_t *m = NULL, *v;

	for (int k = 0; k < c->n_kinds; k++) {
		v = dlb_batch_sizes_write(&x[((size_t)k * (size_t)c->n_ops + (size_t)op) * (size_t)n], n);
		if (!v)
			continue;
		m = m ? m : json_object();
		json_object_set_new(m, c->cluster->kind[k].name, v);
	}
	if (m)
		json_object_set_new(o, key, m);
}

static json_t *write_memory(const struct dlb_cost *c, int op)
{
	struct memory m = memory_of(c->graph, op, c->batch[0]);
	json_t *o = json_object();

	set_known(o, "output_bytes", m.output);
	set_known(o, "weight_bytes", m.weight);
	set_known(o, "gradient_bytes", m.gradient);
	set_known(o, "state_bytes", m.state);
	set_known(o, "buffer_bytes", m.buffer);
	return o;
}

/* Writes, as an example, the seconds of communication if the op is split over all nodes (at most 16). */
static void write_split(json_t *row, const struct dlb_cost *c, int op)
{
	const char *work = dlb_op_work(c->graph->op[op].type);
	int node[16], k = c->cluster->n_nodes < 16 ? c->cluster->n_nodes : 16;
	json_t *o;

	if (k < 2 || (strcmp(work, "conv") && strcmp(work, "dense")))
		return;
	for (int i = 0; i < k; i++)
		node[i] = i;
	o = json_object();
	dlb_set_int(o, "nodes", k);
	dlb_set_real(o, "output_s", dlb_cost_split_s(c, op, c->batch[0], node, k, DLB_SPLIT_OUTPUT));
	dlb_set_real(o, "sum_s", dlb_cost_split_s(c, op, c->batch[0], node, k, DLB_SPLIT_SUM));
	json_object_set_new(row, "split", o);
}

static json_t *write_row(const struct dlb_cost *c, const struct cost_key *ops, int n)
{
	json_t *o = json_object(), *ids = json_array(), *times = json_object(), *measured = json_array();
	int op = ops[0].op;

	dlb_set_str(o, "type", c->graph->op[op].type);
	for (int i = 0; i < n; i++)
		json_array_append_new(ids, json_integer(ops[i].op));
	json_object_set_new(o, "ops", ids);
	for (int k = 0; k < c->n_kinds; k++) {
		size_t at = (size_t)k * (size_t)c->n_ops + (size_t)op;
		const double *t = &c->op_s[at * (size_t)c->n_batches];
		json_t *a = isinf(t[0]) ? json_null() : json_array();
		for (int b = 0; b < c->n_batches && !isinf(t[0]); b++)
			json_array_append_new(a, json_real(t[b]));
		json_object_set_new(times, c->cluster->kind[k].name, a);
		if (c->measured[at])
			json_array_append_new(measured, json_string(c->cluster->kind[k].name));
	}
	json_object_set_new(o, "time_s", times);
	json_object_set_new(o, "measured", measured);
	json_object_set_new(o, "memory", write_memory(c, op));
	write_sizes(o, "scratch_bytes", c, c->scratch_bytes, c->n_batches, op);
	write_sizes(o, "packed_bytes", c, c->packed_bytes, c->n_batches, op);
	write_sizes(o, "workspace_bytes", c, c->workspace_bytes, 1, op);
	write_split(o, c, op);
	if (!isnan(c->output_s[op]))
		dlb_set_real(o, "output_s", c->output_s[op]);
	if (!isnan(c->resident_bytes[op]))
		dlb_set_number(o, "resident_bytes", c->resident_bytes[op]);
	return o;
}

static int by_first_op(const void *a, const void *b)
{
	const struct cost_key *const *x = a, *const *y = b;

	return (*x)->op < (*y)->op ? -1 : (*x)->op > (*y)->op;
}

static json_t *write_rows(const struct dlb_cost *c)
{
	struct cost_key *k = dlb_xcalloc((size_t)c->n_ops + 1, sizeof *k),
			**start = dlb_xcalloc((size_t)c->n_ops + 1, sizeof *start);
	json_t *rows = json_array();
	int n = 0;

	for (int i = 0; i < c->n_ops; i++) {
		k[i].op = i;
		k[i].hash = row_hash(c, i);
	}
	qsort(k, (size_t)c->n_ops, sizeof *k, by_hash);
	for (int i = 0; i < c->n_ops; i++)
		if (!i || k[i].hash != k[i - 1].hash)
			start[n++] = &k[i];
	qsort(start, (size_t)n, sizeof *start, by_first_op);
	for (int r = 0; r < n; r++) {
		int len = 1;
		while (start[r] + len < k + c->n_ops && start[r][len].hash == start[r]->hash)
			len++;
		json_array_append_new(rows, write_row(c, start[r], len));
	}
	free(start);
	free(k);
	return rows;
}

/* ---- information for people: distinct routes, quality of the fit ---- */

static json_t *write_route(const struct dlb_cluster *cl, int a, int b)
{
	int link[DLB_MAX_ROUTE], n = dlb_cluster_route(cl, a, b, link);
	struct dlb_way way = dlb_cluster_way(cl, a, b);
	json_t *o = json_object(), *route = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(route, json_string(cl->link[link[i]].cls));
	json_object_set_new(o, "route", route);
	dlb_set_int(o, "from", a);
	dlb_set_int(o, "to", b);
	dlb_set_real(o, "latency_s", way.latency_s);
	set_known(o, "bandwidth_Bps", way.Bps);
	return o;
}

static uint64_t route_hash(const struct dlb_cluster *cl, int a, int b)
{
	int link[DLB_MAX_ROUTE], n = dlb_cluster_route(cl, a, b, link);
	uint64_t h = DLB_HASH_INIT;

	for (int i = 0; i < n; i++) {
		h = dlb_hash_str(h, cl->link[link[i]].cls);
		h = hash_real(hash_real(h, cl->link[link[i]].latency_s), cl->link[link[i]].bandwidth_Bps);
	}
	return h;
}

/* Writes one example of each distinct route among the first two nodes of every leaf group (at most 512
 * leaves). */
static json_t *write_transfers(const struct dlb_cluster *cl)
{
	json_t *a = json_array();
	int *pick = dlb_xcalloc(2 * MAX_LEAVES, sizeof *pick),
	    *have = dlb_xcalloc((size_t)cl->n_groups + 1, sizeof *have);
	uint64_t seen[MAX_TRANSFERS];
	int n = 0, n_seen = 0;

	for (int i = 0; i < cl->n_nodes && n < 2 * MAX_LEAVES; i++)
		if (have[cl->node[i].group]++ < 2)
			pick[n++] = i;
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n && n_seen < MAX_TRANSFERS; j++) {
			uint64_t h = route_hash(cl, pick[i], pick[j]);
			int s = 0;
			while (s < n_seen && seen[s] != h)
				s++;
			if (s < n_seen)
				continue;
			seen[n_seen++] = h;
			json_array_append_new(a, write_route(cl, pick[i], pick[j]));
		}
	free(have);
	free(pick);
	return a;
}

static json_t *write_fit(const struct dlb_cost *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_fits; i++) {
		const struct dlb_cost_fit *f = &c->fit[i];
		json_t *o = json_object();
		dlb_set_str(o, "kind", f->kind);
		dlb_set_str(o, "work", f->work);
		dlb_set_int(o, "samples", f->n);
		dlb_set_real(o, "launch_s", f->launch_s);
		set_known(o, "flop_efficiency", f->flop_efficiency);
		set_known(o, "bytes_efficiency", f->bytes_efficiency);
		set_known(o, "median_error", f->median_error);
		set_known(o, "blind_error", f->blind_error);
		json_array_append_new(a, o);
	}
	return a;
}

static void write_per_kind(json_t *o, const char *key, const struct dlb_cost *c, const double *x)
{
	json_t *m = json_object();

	for (int k = 0; k < c->n_kinds; k++)
		dlb_set_finite(m, c->cluster->kind[k].name, x[k]);
	json_object_set_new(o, key, m);
}

json_t *dlb_cost_write(const struct dlb_cost *c)
{
	json_t *o = json_object(), *kinds = json_array(), *batches = json_array();

	for (int k = 0; k < c->n_kinds; k++)
		json_array_append_new(kinds, json_string(c->cluster->kind[k].name));
	for (int b = 0; b < c->n_batches; b++)
		json_array_append_new(batches, json_integer(c->batch[b]));
	json_object_set_new(o, "kinds", kinds);
	json_object_set_new(o, "batches", batches);
	write_per_kind(o, "accumulate_Bps", c, c->accumulate_Bps);
	write_per_kind(o, "fit_error", c, c->fit_error);
	write_per_kind(o, "step_spread", c, c->step_spread);
	write_per_kind(o, "step_overhead_s", c, c->step_overhead_s);
	json_object_set_new(o, "rows", write_rows(c));
	json_object_set_new(o, "transfers", write_transfers(c->cluster));
	if (c->n_fits)
		json_object_set_new(o, "fit", write_fit(c));
	return o;
}

/* ---- reading ---- */

struct cost_reader {
	struct dlb_cost *c;
	struct dlb_error *err;
	const char **kind;			/* names of the cluster's kinds, ends with NULL */
	bool *seen;				/* [op] */
};

static int read_batches(struct cost_reader *rd, const struct dlb_ref *r)
{
	struct dlb_cost *c = rd->c;
	struct dlb_ref a;
	int n;

	if (dlb_get_array(r, "batches", DLB_NEED, &a, &n, rd->err))
		return -1;
	if (n < 1 || n > MAX_BATCHES)
		return dlb_ref_fail(&a, rd->err, "1 to %d batch sizes are expected", MAX_BATCHES);
	c->batch = dlb_arena_array(&c->arena, (size_t)n, sizeof *c->batch);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		if (dlb_ref_int(&e, 1, INT64_C(1) << 40, &c->batch[i], rd->err))
			return -1;
		if (i && c->batch[i] >= c->batch[i - 1])
			return dlb_ref_fail(&e, rd->err, "batch sizes must descend");
	}
	c->n_batches = n;
	return 0;
}

static int read_per_kind(struct cost_reader *rd, const struct dlb_ref *r, const char *key, int opt,
			 double least, double *x)
{
	struct dlb_ref o;

	o.v = NULL;
	if (dlb_get_object(r, key, opt, &o, rd->err))
		return -1;
	if (!o.v)
		return 0;
	if (dlb_ref_known(&o, rd->kind, rd->err))
		return -1;
	for (int k = 0; k < rd->c->n_kinds; k++)
		if (dlb_get_real(&o, rd->kind[k], DLB_OPT, least, 1e30, &x[k], rd->err))
			return -1;
	return 0;
}

/* Reads the times of the row's first op; the other ops get copies. */
static int read_times(struct cost_reader *rd, const struct dlb_ref *row, int op)
{
	struct dlb_cost *c = rd->c;
	struct dlb_ref times, a;
	int n;

	if (dlb_get_object(row, "time_s", DLB_NEED, &times, rd->err) ||
	    dlb_ref_known(&times, rd->kind, rd->err))
		return -1;
	for (int k = 0; k < c->n_kinds; k++) {
		double *t = &c->op_s[((size_t)k * (size_t)c->n_ops + (size_t)op) * (size_t)c->n_batches];
		a = dlb_ref_at(&times, rd->kind[k]);
		if (!a.v)
			return dlb_ref_fail(&a, rd->err, "no times for the kind '%s'", rd->kind[k]);
		if (json_is_null(a.v)) {
			for (int b = 0; b < c->n_batches; b++)
				t[b] = INFINITY;
			continue;
		}
		if (dlb_get_array(&times, rd->kind[k], DLB_NEED, &a, &n, rd->err))
			return -1;
		if (n != c->n_batches)
			return dlb_ref_fail(&a, rd->err, "%d times for %d batch sizes", n, c->n_batches);
		for (int b = 0; b < n; b++) {
			struct dlb_ref e = dlb_ref_index(&a, b);
			if (dlb_ref_real(&e, 0, 1e12, &t[b], rd->err))
				return -1;
		}
	}
	return 0;
}

static int read_measured(struct cost_reader *rd, const struct dlb_ref *row, int op)
{
	struct dlb_cost *c = rd->c;
	struct dlb_ref a;
	int n = 0;

	a.v = NULL;
	if (dlb_get_array(row, "measured", DLB_OPT, &a, &n, rd->err))
		return -1;
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		int k = 0;
		if (!json_is_string(e.v))
			return dlb_ref_fail(&e, rd->err, "a kind's name is expected");
		while (k < c->n_kinds && strcmp(rd->kind[k], json_string_value(e.v)))
			k++;
		if (k == c->n_kinds)
			return dlb_ref_fail(&e, rd->err, "no kind '%s'", json_string_value(e.v));
		c->measured[(size_t)k * (size_t)c->n_ops + (size_t)op] = true;
	}
	return 0;
}

/* x: [kind][op][n] */
static int read_sizes(struct cost_reader *rd, const struct dlb_ref *row, const char *key, int n, double *x,
		      int op)
{
	struct dlb_cost *c = rd->c;
	struct dlb_ref o = { .v = NULL };

	if (dlb_get_object(row, key, DLB_OPT, &o, rd->err))
		return -1;
	if (!o.v)
		return 0;
	if (dlb_ref_known(&o, rd->kind, rd->err))
		return -1;
	for (int k = 0; k < c->n_kinds; k++)
		if (dlb_batch_sizes_read(&o, rd->kind[k], n,
					 &x[((size_t)k * (size_t)c->n_ops + (size_t)op) * (size_t)n],
					 rd->err))
			return -1;
	return 0;
}

static void copy_op(struct dlb_cost *c, int from, int to)
{
	c->output_s[to] = c->output_s[from];
	c->resident_bytes[to] = c->resident_bytes[from];
	for (int k = 0; k < c->n_kinds; k++) {
		size_t f = (size_t)k * (size_t)c->n_ops + (size_t)from,
		       t = (size_t)k * (size_t)c->n_ops + (size_t)to;
		double *const by_batch[] = { c->op_s, c->scratch_bytes, c->packed_bytes };

		for (int i = 0; i < DLB_LEN(by_batch); i++)
			memcpy(&by_batch[i][t * (size_t)c->n_batches], &by_batch[i][f * (size_t)c->n_batches],
			       (size_t)c->n_batches * sizeof *c->op_s);
		c->measured[t] = c->measured[f];
		c->workspace_bytes[t] = c->workspace_bytes[f];
	}
}

static int read_row(struct cost_reader *rd, const struct dlb_ref *row)
{
	static const char *const known[] = { "type",   "ops",           "time_s",         "measured",
					     "memory", "scratch_bytes", "packed_bytes",   "workspace_bytes",
					     "split",  "output_s",      "resident_bytes", NULL };
	struct dlb_cost *c = rd->c;
	struct dlb_ref ops;
	int64_t op, first = -1;
	int n;

	if (!json_is_object(row->v))
		return dlb_ref_fail(row, rd->err, "an object is expected");
	if (dlb_ref_known(row, known, rd->err) || dlb_get_array(row, "ops", DLB_NEED, &ops, &n, rd->err))
		return -1;
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&ops, i);
		if (dlb_ref_int(&e, 0, c->n_ops - 1, &op, rd->err))
			return -1;
		if (rd->seen[op])
			return dlb_ref_fail(&e, rd->err, "op %d has costs already", (int)op);
		rd->seen[op] = true;
		if (i) {
			copy_op(c, (int)first, (int)op);
			continue;
		}
		first = op;
		if (read_times(rd, row, (int)op) || read_measured(rd, row, (int)op) ||
		    read_sizes(rd, row, "scratch_bytes", c->n_batches, c->scratch_bytes, (int)op) ||
		    read_sizes(rd, row, "packed_bytes", c->n_batches, c->packed_bytes, (int)op) ||
		    read_sizes(rd, row, "workspace_bytes", 1, c->workspace_bytes, (int)op) ||
		    dlb_get_real(row, "output_s", DLB_OPT, 0, 1e12, &c->output_s[op], rd->err) ||
		    dlb_get_real(row, "resident_bytes", DLB_OPT, 0, 1e18, &c->resident_bytes[op], rd->err))
			return -1;
	}
	return 0;
}

static int read_rows(struct cost_reader *rd, const struct dlb_ref *r)
{
	struct dlb_cost *c = rd->c;
	struct dlb_ref rows;
	int n;

	if (dlb_get_array(r, "rows", DLB_NEED, &rows, &n, rd->err))
		return -1;
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		if (read_row(rd, &row))
			return -1;
	}
	for (int i = 0; i < c->n_ops; i++)
		if (!rd->seen[i]) {
			dlb_ref_fail(&rows, rd->err, "no costs for op %d, '%.200s'", i, c->graph->op[i].name);
			return dlb_hint(rd->err, "run dlb-costmodel again");
		}
	return 0;
}

/* Checks that the section has all kinds of the cluster, in any order. */
static int read_kinds(struct cost_reader *rd, const struct dlb_ref *r)
{
	struct dlb_cost *c = rd->c;
	struct dlb_ref a;
	int n;

	if (dlb_get_array(r, "kinds", DLB_NEED, &a, &n, rd->err))
		return -1;
	for (int k = 0; k < c->n_kinds; k++) {
		bool there = false;
		for (int i = 0; i < n; i++) {
			struct dlb_ref e = dlb_ref_index(&a, i);
			there |= json_is_string(e.v) && !strcmp(json_string_value(e.v), rd->kind[k]);
		}
		if (!there) {
			dlb_ref_fail(&a, rd->err, "the cluster's kind '%s' has no costs", rd->kind[k]);
			return dlb_hint(rd->err, "run dlb-costmodel again");
		}
	}
	return 0;
}

static int read_section(struct cost_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = {
		"inputs",      "kinds",           "batches", "accumulate_Bps", "fit_error",
		"step_spread", "step_overhead_s", "rows",    "transfers",      "fit",
		NULL
	};
	struct dlb_cost *c = rd->c;

	if (!json_is_object(r->v))
		return dlb_ref_fail(r, rd->err, "an object is expected");
	if (dlb_ref_known(r, known, rd->err) || read_kinds(rd, r) || read_batches(rd, r))
		return -1;
	dlb_cost_make_arrays(c);
	for (int i = 0; i < c->n_kinds; i++) {
		c->fit_error[i] = c->profile_step_s[i] = c->step_spread[i] = c->step_overhead_s[i] = NAN;
		c->accumulate_Bps[i] = 1e10;
	}
	if (read_per_kind(rd, r, "accumulate_Bps", DLB_OPT, 1, c->accumulate_Bps) ||
	    read_per_kind(rd, r, "fit_error", DLB_OPT, 0, c->fit_error) ||
	    read_per_kind(rd, r, "step_spread", DLB_OPT, 0, c->step_spread) ||
	    read_per_kind(rd, r, "step_overhead_s", DLB_OPT, 0, c->step_overhead_s) || read_rows(rd, r))
		return -1;
	return 0;
}

int dlb_cost_read(const struct dlb_doc *d, const struct dlb_graph *g, const struct dlb_cluster *cl,
		  struct dlb_cost *c, struct dlb_error *err)
{
	struct cost_reader rd = { .c = c, .err = err };
	struct dlb_optimizer_choice o;
	json_t *section;
	int rc;

	memset(c, 0, sizeof *c);
	if (dlb_doc_need(d, "cost", &section, err) || dlb_doc_check_inputs(d, "cost", err) ||
	    dlb_optimizer_read(d, &o, err))
		return -1;
	c->graph = g;
	c->cluster = cl;
	c->n_ops = g->n_ops;
	c->n_kinds = cl->n_kinds;
	rd.kind = dlb_xcalloc((size_t)cl->n_kinds + 1, sizeof *rd.kind);
	rd.seen = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *rd.seen);
	for (int k = 0; k < cl->n_kinds; k++)
		rd.kind[k] = cl->kind[k].name;
	struct dlb_ref r = dlb_ref_root(d, "cost");
	rc = read_section(&rd, &r) || dlb_cost_read_samples(d, true, c, &c->sample_s, err) ? -1 : 0;
	free(rd.kind);
	free(rd.seen);
	if (rc)
		dlb_cost_release(c);
	else
		dlb_cost_set_optimizer(c, o.rule);
	return rc;
}
