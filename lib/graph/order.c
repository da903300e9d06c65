/* The graph's order: producers and readers of tensors, sorting, the invariants, colocation classes.
 *
 * State (weights and buffers) makes no edges: it is written once a step or in micro-batch order, and its
 * readers take a copy (graph.h). So an edge is a tensor that is not state, from its producer to a reader. */
#include "graph/graph.h"
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "graph/name_map.h"
#include "graph/order.h"
#include "graph/rewrite.h"

#define MAX_DIM (INT64_C(1) << 48)	/* bound of mul and add: mul * batch + add stays exact for any batch
					 * below 2^13 */

bool dlb_dim_in_range(struct dlb_dim d)
{
	return d.mul >= -MAX_DIM && d.mul <= MAX_DIM && d.add >= -MAX_DIM && d.add <= MAX_DIM;
}

static bool is_state(const struct dlb_tensor *t)
{
	return t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER;
}

int dlb_graph_index(struct dlb_graph *g)
{
	int rc = 0;
	int *start = dlb_xrealloc(g->reader_start, (size_t)g->n_tensors + 2, sizeof *start);
	/* 1 + the last op counted as a reader */
	int *last = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *last);
	memset(start, 0, ((size_t)g->n_tensors + 2) * sizeof *start);
	g->reader_start = start;

	for (int t = 0; t < g->n_tensors; t++)
		g->tensor[t].producer = -1;
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_out; k++) {
			const int t = g->op[i].out[k];
			if (t < 0 || is_state(&g->tensor[t]))
				continue;
			if (g->tensor[t].producer >= 0)
				rc = -1;
			else
				g->tensor[t].producer = i;
		}
		/* counts are shifted by two, so that start[t] is the beginning of t's
		 * readers after the filling pass */
		for (int k = 0; k < g->op[i].n_in; k++) {
			const int t = g->op[i].in[k];
			if (t >= 0 && last[t] != i + 1) {
				last[t] = i + 1;
				start[t + 2]++;
			}
		}
	}
	for (int t = 0; t < g->n_tensors; t++)
		start[t + 2] += start[t + 1];
	g->reader = dlb_xrealloc(g->reader, (size_t)start[g->n_tensors + 1] + 1, sizeof *g->reader);
	memset(last, 0, ((size_t)g->n_tensors + 1) * sizeof *last);
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++) {
			const int t = g->op[i].in[k];
			if (t >= 0 && last[t] != i + 1) {
				last[t] = i + 1;
				g->reader[start[t + 1]++] = i;
			}
		}
	free(last);
	return rc;
}

/* The producer of each tensor that is not state, -1: none, without changing the
 * graph. Returns a new array. */
static int *producers(const struct dlb_graph *g)
{
	int *p = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *p);
	for (int t = 0; t < g->n_tensors; t++)
		p[t] = -1;
	for (int i = 0; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_out; k++) {
			const int t = g->op[i].out[k];
			if (t >= 0 && !is_state(&g->tensor[t]))
				p[t] = i;
		}
	return p;
}

/* Fills err with the ops of one cycle. `stuck[i]`: op i waits for another stuck op, so walking back from a
 * stuck op to a stuck producer must come to an op twice. */
static int fail_cycle(const struct dlb_graph *g, const int *producer, const bool *stuck,
		      struct dlb_error *err)
{
	bool *seen = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *seen);
	int at = 0, next = -1;
	while (at < g->n_ops && !stuck[at])
		at++;
	assert(at < g->n_ops);
	while (!seen[at]) {
		seen[at] = true;
		next = -1;
		for (int k = 0; k < g->op[at].n_in && next < 0; k++) {
			const int t = g->op[at].in[k];
			if (t >= 0 && producer[t] >= 0 && stuck[producer[t]])
				next = producer[t];
		}
		assert(next >= 0);
		at = next;
	}
	char text[360] = "";
	size_t used = 0;
	const int first = at;
	int steps = 0;
	do {	/* `at` reads an output of `next` */
		for (int k = 0; k < g->op[at].n_in; k++) {
			const int t = g->op[at].in[k];
			if (t >= 0 && producer[t] >= 0 && stuck[producer[t]]) {
				next = producer[t];
				break;
			}
		}
		if (++steps <= 8 && used < sizeof text)
			used += (size_t)snprintf(text + used, sizeof text - used, "'%.40s' <- ",
						 g->op[at].name);
		else if (steps == 9 && used < sizeof text)
			used += (size_t)snprintf(text + used, sizeof text - used, "... <- ");
		at = next;
	} while (at != first);
	free(seen);
	return dlb_refuse(err, NULL, "no op may read what follows from it: the model or document is damaged",
			"cycle of ops: %s'%.40s'", text, g->op[first].name);
}

/* A binary heap of op ids; the least (phase, id) is first. */
struct heap { int *op; int n; const struct dlb_graph *g; };

static bool before(const struct heap *h, int a, int b)
{
	const enum dlb_phase p = h->g->op[a].phase, q = h->g->op[b].phase;
	return p != q ? p < q : a < b;
}

static void heap_push(struct heap *h, int op)
{
	int i = h->n++;
	for (; i > 0 && before(h, op, h->op[(i - 1) / 2]); i = (i - 1) / 2)
		h->op[i] = h->op[(i - 1) / 2];
	h->op[i] = op;
}

static int heap_pop(struct heap *h)
{
	const int top = h->op[0], op = h->op[--h->n];
	int i = 0;
	for (int c; (c = 2 * i + 1) < h->n; i = c) {
		if (c + 1 < h->n && before(h, h->op[c + 1], h->op[c]))
			c++;
		if (!before(h, h->op[c], op))
			break;
		h->op[i] = h->op[c];
	}
	h->op[i] = op;
	return top;
}

/* Kahn's algorithm on an indexed graph: fills order[] and returns how many ops it could order; waits[i] is
 * non-zero for the others. */
static int kahn(const struct dlb_graph *g, int *order, int *waits)
{
	struct heap h = { dlb_xcalloc((size_t)g->n_ops + 1, sizeof(int)), 0, g };
	int n = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].producer >= 0)
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
				waits[g->reader[r]]++;
	for (int i = 0; i < g->n_ops; i++)
		if (!waits[i])
			heap_push(&h, i);
	while (h.n) {
		const int i = order[n++] = heap_pop(&h);
		for (int k = 0; k < g->op[i].n_out; k++) {
			const int t = g->op[i].out[k];
			if (t < 0 || g->tensor[t].producer != i)
				continue;
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
				if (--waits[g->reader[r]] == 0)
					heap_push(&h, g->reader[r]);
		}
	}
	free(h.op);
	return n;
}

int dlb_graph_sort(struct dlb_graph *g, struct dlb_error *err)
{
	if (dlb_graph_index(g))
		return dlb_refuse(err, NULL, "every tensor is made once: the model is damaged",
				"a tensor has two producers");
	int *order = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *order);
	int *waits = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *waits);
	int rc = 0;

	if (kahn(g, order, waits) < g->n_ops) {
		int *producer = producers(g);
		bool *stuck = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *stuck);
		for (int i = 0; i < g->n_ops; i++)
			stuck[i] = waits[i] > 0;
		rc = fail_cycle(g, producer, stuck, err);
		free(stuck);
		free(producer);
	} else {
		int *to = waits;	/* old id -> new id */
		struct dlb_op *op = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *op);
		for (int i = 0; i < g->n_ops; i++) {
			op[i] = g->op[order[i]];
			to[order[i]] = i;
		}
		for (int i = 0; i < g->n_ops; i++) {
			op[i].of = op[i].of < 0 ? -1 : to[op[i].of];
			op[i].colocate = op[i].colocate < 0 ? -1 : to[op[i].colocate];
		}
		for (int t = 0; t < g->n_tensors; t++)
			if (g->tensor[t].home >= 0)
				g->tensor[t].home = to[g->tensor[t].home];
		free(g->op);
		g->op = op;
		g->cap_ops = g->n_ops + 1;
		dlb_graph_index(g);
	}
	free(order);
	free(waits);
	return rc;
}

/* -- invariants -- */

/* A JSON Pointer, formatted only for a message. */
struct where { char text[80]; };

static struct where at(const char *list, int i, const char *member, int k)
{
	struct where w;
	int n = snprintf(w.text, sizeof w.text, "/graph/%s/%d%s", list, i, member);

	if (k >= 0)
		snprintf(w.text + n, sizeof w.text - (size_t)n, "/%d", k);
	return w;
}

static bool is_id(int id, int n) { return id >= -1 && id < n; }

static int no_such(int id, int n, const char *what, const char *where, struct dlb_error *err)
{
	return dlb_refuse(err, where, "ids are positions in the document",
			"no %s %d (there are %d)", what, id, n);
}

static int check_op(const struct dlb_graph *g, int i, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[i];

	if (!o->name || !*o->name)
		return dlb_refuse(err, at("ops", i, "", -1).text, "give it one", "op without a name");
	if (!o->type || !*o->type)
		return dlb_refuse(err, at("ops", i, "", -1).text, "give it one", "op without a type");
	if (o->kind < -1 || o->kind >= DLB_N_OPS || o->phase >= DLB_N_PHASES)
		return dlb_refuse(err, at("ops", i, "", -1).text, "dlb-document(5) lists them",
				  "unknown kind or phase");
	for (int k = 0; k < o->n_in; k++)
		if (!is_id(o->in[k], g->n_tensors))
			return no_such(o->in[k], g->n_tensors, "tensor", at("ops", i, "/inputs", k).text,
				       err);
	for (int k = 0; k < o->n_out; k++) {
		if (!is_id(o->out[k], g->n_tensors))
			return no_such(o->out[k], g->n_tensors, "tensor", at("ops", i, "/outputs", k).text,
				       err);
		if (o->out[k] < 0)
			continue;
		const enum dlb_tensor_kind kind = g->tensor[o->out[k]].kind;
		if (kind == DLB_T_INPUT || kind == DLB_T_LABEL || kind == DLB_T_SEED ||
		    kind == DLB_T_CONSTANT)
			return dlb_refuse(err, at("ops", i, "/outputs", k).text,
					  "give the op an output of its own",
					  "tensor '%s' is fed or constant and cannot be an output",
					  g->tensor[o->out[k]].name);
	}
	if (!is_id(o->of, g->n_ops))
		return no_such(o->of, g->n_ops, "op", at("ops", i, "/of", -1).text, err);
	if (!is_id(o->colocate, g->n_ops))
		return no_such(o->colocate, g->n_ops, "op", at("ops", i, "/colocate", -1).text, err);
	if (!(o->flop >= 0 && o->flop_fixed >= 0 && o->bytes >= 0 && o->bytes_fixed >= 0))
		return dlb_refuse(err, at("ops", i, "", -1).text, "run dlb-profile again",
				  "negative work of op '%s'", o->name);
	if (i > 0 && o->phase < g->op[i - 1].phase) {
		dlb_fail(err, at("ops", i, "", -1).text, "op '%s' stands after one of a later phase",
			 o->name);
		return dlb_hint(err, "forward ops come first, then backward, then updates");
	}
	return 0;
}

static int check_tensor(const struct dlb_graph *g, int i, struct dlb_error *err)
{
	const struct dlb_tensor *t = &g->tensor[i];

	if (!t->name || !*t->name)
		return dlb_refuse(err, at("tensors", i, "", -1).text, "give it one", "tensor without a name");
	if (t->kind >= DLB_N_T_KINDS || t->dtype >= DLB_N_DTYPES || t->layout > DLB_CHANNELS_LAST)
		return dlb_refuse(err, at("tensors", i, "", -1).text, "dlb-document(5) lists them",
				  "unknown kind, dtype or layout");
	if (t->n_dims < -1 || t->n_dims > DLB_MAX_DIMS)
		return dlb_refuse(err, at("tensors", i, "", -1).text, "reshape it in the model",
				  "tensor '%s' has %d dimensions; at most %d", t->name, t->n_dims,
				  DLB_MAX_DIMS);
	if (t->layout == DLB_CHANNELS_LAST && t->n_dims < 3)
		return dlb_refuse(err, at("tensors", i, "", -1).text, "make its layout plain",
				  "channels-last needs 3 dimensions or more");
	if (!(t->size_mul >= 0 && t->size_add >= 0))
		return dlb_refuse(err, at("tensors", i, "", -1).text, "run dlb-profile again",
				  "negative size");
	double bytes = (double)dlb_dtype_bytes(t->dtype);
	for (int k = 0; k < t->n_dims; k++) {
		const struct dlb_dim d = t->dim[k];
		if (t->data && d.mul)
			return dlb_refuse(err, at("tensors", i, "/shape", k).text,
					  "constants have fixed shapes",
					  "tensor '%s' has values, but its shape follows the batch", t->name);
		if (!dlb_dim_in_range(d))
			return dlb_refuse(err, at("tensors", i, "/shape", k).text,
					  "run dlb-profile again, with another --batch",
					  "dimension of tensor '%s' is out of range", t->name);
		const double v = (double)d.mul * (double)(g->batch ? g->batch : 1) + (double)d.add;
		if (v < 0 && (d.mul != 0 || d.add != -1))
			return dlb_refuse(err, at("tensors", i, "/shape", k).text,
					  "run dlb-profile again, with another --batch",
					  "dimension of tensor '%s' is negative at batch %" PRId64, t->name,
					  g->batch);
		bytes *= v > 1 ? v : 1;
	}
	if (bytes > 4e18)
		return dlb_refuse(err, at("tensors", i, "", -1).text, "a smaller --batch",
				  "tensor '%s' is too large", t->name);
	if (!is_id(t->home, g->n_ops))
		return no_such(t->home, g->n_ops, "op", at("tensors", i, "/home", -1).text, err);
	if (!is_id(t->of, g->n_tensors))
		return no_such(t->of, g->n_tensors, "tensor", at("tensors", i, "/of", -1).text, err);
	return 0;
}

static int check_names(const struct dlb_graph *g, struct dlb_error *err)
{
	struct dlb_name_map m = { 0 };
	char where[80];
	int rc = 0, other;

	for (int i = 0; i < g->n_ops && !rc; i++)
		if ((other = dlb_name_map_add(&m, g->op[i].name, i)) >= 0) {
			snprintf(where, sizeof where, "/graph/ops/%d/name", i);
			rc = dlb_refuse(err, where, "names are unique: rename one",
					"op '%s' has the name of op %d", g->op[i].name, other);
		}
	dlb_name_map_release(&m);
	for (int i = 0; i < g->n_tensors && !rc; i++)
		if ((other = dlb_name_map_add(&m, g->tensor[i].name, i)) >= 0) {
			snprintf(where, sizeof where, "/graph/tensors/%d/name", i);
			rc = dlb_refuse(err, where, "names are unique: rename one",
					"tensor '%s' has the name of tensor %d", g->tensor[i].name, other);
		}
	dlb_name_map_release(&m);
	return rc;
}

/* Every tensor is produced once, and before it is read. */
static int check_order(const struct dlb_graph *g, struct dlb_error *err)
{
	int *made = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *made);	/* producer + 1 */
	char where[80];
	int rc = 0;

	for (int i = 0; i < g->n_ops && !rc; i++)
		for (int k = 0; k < g->op[i].n_out && !rc; k++) {
			const int t = g->op[i].out[k];
			if (t < 0 || is_state(&g->tensor[t]))
				continue;
			if (made[t]) {
				snprintf(where, sizeof where, "/graph/ops/%d/outputs/%d", i, k);
				rc = dlb_refuse(err, where, "every tensor is made once: rename one",
						"tensor '%s' is made by op '%s' already",
					      g->tensor[t].name, g->op[made[t] - 1].name);
			} else {
				made[t] = i + 1;
			}
		}
	for (int i = 0; i < g->n_ops && !rc; i++)
		for (int k = 0; k < g->op[i].n_in && !rc; k++) {
			const int t = g->op[i].in[k];
			if (t < 0 || made[t] - 1 < i)	/* produced earlier, or without producer */
				continue;
			snprintf(where, sizeof where, "/graph/ops/%d/inputs/%d", i, k);
			rc = dlb_refuse(err, where, "sort the ops",
					"op '%s' reads '%s', which op '%s' makes %s", g->op[i].name,
					g->tensor[t].name, g->op[made[t] - 1].name,
					made[t] - 1 == i ? "itself: a cycle" :
							   "only later: a cycle or not in order");
		}
	/* an activation or gradient with readers must have a producer */
	for (int i = 0; i < g->n_ops && !rc; i++)
		for (int k = 0; k < g->op[i].n_in && !rc; k++) {
			const int t = g->op[i].in[k];
			if (t < 0 || made[t] || g->tensor[t].kind < DLB_T_ACTIVATION)
				continue;
			snprintf(where, sizeof where, "/graph/ops/%d/inputs/%d", i, k);
			rc = dlb_refuse(err, where, "is it cut out of a larger graph?",
					"nothing makes tensor '%s', which op '%s' reads", g->tensor[t].name,
				      g->op[i].name);
		}
	free(made);
	return rc;
}

/* Chains of `colocate` must end. */
static int check_colocation(const struct dlb_graph *g, struct dlb_error *err)
{
	int *mark = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *mark);
	char where[80];
	int rc = 0;

	for (int i = 0; i < g->n_ops && !rc; i++) {
		int k = i;
		for (; k >= 0 && !mark[k]; k = g->op[k].colocate)
			mark[k] = i + 1;
		if (k >= 0 && mark[k] == i + 1) {
			snprintf(where, sizeof where, "/graph/ops/%d/colocate", k);
			rc = dlb_refuse(err, where, "remove one of the colocate members",
					"colocation of op '%s' comes round to itself", g->op[k].name);
		}
	}
	free(mark);
	return rc;
}

int dlb_graph_check(const struct dlb_graph *g, struct dlb_error *err)
{
	if (g->batch < 0 || g->batch > MAX_DIM)
		return dlb_refuse(err, "/graph/batch",
				"give a batch from 1 on", "batch %" PRId64 " is out of range", g->batch);
	for (int i = 0; i < g->n_tensors; i++)
		if (check_tensor(g, i, err))
			return -1;
	for (int i = 0; i < g->n_ops; i++)
		if (check_op(g, i, err))
			return -1;
	for (int i = 0; i < g->n_inputs; i++)
		if (g->input[i] < 0 || g->input[i] >= g->n_tensors)
			return dlb_refuse(err, "/graph/inputs",
					"ids are positions in the document", "no tensor %d", g->input[i]);
	for (int i = 0; i < g->n_outputs; i++)
		if (g->output[i] < 0 || g->output[i] >= g->n_tensors)
			return dlb_refuse(err, "/graph/outputs",
					"ids are positions in the document", "no tensor %d", g->output[i]);
	if (!is_id(g->loss, g->n_tensors))
		return no_such(g->loss, g->n_tensors, "tensor", "/graph/loss", err);
	if (!is_id(g->label, g->n_tensors))
		return no_such(g->label, g->n_tensors, "tensor", "/graph/label", err);
	if (!is_id(g->seed, g->n_tensors))
		return no_such(g->seed, g->n_tensors, "tensor", "/graph/seed", err);
	if (check_names(g, err) || check_order(g, err))
		return -1;
	return check_colocation(g, err);
}

int dlb_graph_fail_unknown(const struct dlb_op *o, struct dlb_error *err)
{
	const char *attr = dlb_attr_str(o->attr, o->n_attr, DLB_ATTR_UNSUPPORTED, NULL);

	dlb_vertex_fail(o, err, NULL, "no operator %s%s%s", o->domain, *o->domain ? "." : "", o->type);
	if (attr)
		return dlb_hint(err,
				"its attribute '%s' is of a kind that dlb does not hold: export without it",
				attr);
	if (*o->domain)
		return dlb_hint(err,
				"'%s' is no domain of ONNX: export without custom operators and before "
				"another tool fuses any, or with the operator as a function of the model",
				o->domain);
	return dlb_hint(
		err,
		"write it with operators that dlb has, or give it to the model as a function of its own");
}

int dlb_graph_check_known(const struct dlb_graph *g, struct dlb_error *err)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].kind < 0)
			return dlb_graph_fail_unknown(&g->op[i], err);
	return 0;
}

int dlb_vertex_fail(const struct dlb_op *o, struct dlb_error *err, const char *cure, const char *fmt, ...)
{
	char where[256], what[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	snprintf(where, sizeof where, "%.40s%s%.60s '%.100s' (opset %d)", o->domain, *o->domain ? "." : "",
		 o->type, o->name, o->opset);
	dlb_fail(err, where, "%s", what);
	return cure ? dlb_hint(err, "%s", cure) : -1;
}

/* -- colocation classes -- */

static int root_of(int *group, int i)
{
	while (group[i] != i)
		i = group[i] = group[group[i]];
	return i;
}

void dlb_graph_groups(const struct dlb_graph *g, int *group)
{
	for (int i = 0; i < g->n_ops; i++)
		group[i] = i;
	for (int i = 0; i < g->n_ops; i++) {
		if (g->op[i].colocate < 0)
			continue;
		const int a = root_of(group, i), b = root_of(group, g->op[i].colocate);
		group[a > b ? a : b] = a > b ? b : a;	/* the least id is the root */
	}
	for (int i = 0; i < g->n_ops; i++)
		group[i] = root_of(group, i);
}
