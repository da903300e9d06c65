/* MLCommons Chakra execution traces (schema/protobuf/et_def.proto of mlcommons/chakra; Sridharan et
 * al., arXiv 2305.14516). A file is a sequence of messages, each preceded by its length as a varint:
 * one GlobalMetadata, then Nodes.
 *
 *     Node  1 id  2 name  3 type  4 ctrl_deps  5 data_deps  6 start_time_micros  7 duration_micros
 *           8 inputs  9 outputs (IOInfo: 1 values, 2 shapes, 3 types)  10 attr (AttributeProto)
 *
 * Import: every node becomes a vertex; dependencies of both kinds become edges. A node with is_cpu_op true
 * runs only on the host, any other only on accelerators, because the trace has no time for the other
 * device. Its output bytes are its comm_size, else computed from the shapes and types of its outputs.
 * Fields without a counterpart in the document become attributes of the op: the type (chakra_type), the
 * start time, both lists of dependencies, and all other fields in hexadecimal (chakra_rest). The metadata
 * are x-chakra of the graph section.
 *
 * Export of an imported trace gives the same trace. Any other document needs a plan, and --rank selects the
 * node: a COMP_NODE for each op and micro-batch in the node's order (ctrl_deps), and COMM_RECV_NODEs and
 * COMM_SEND_NODEs for its messages. With replicas, the node has its own replica's messages and micro-batches,
 * and a COMM_COLL_NODE before each update for the sum with the same node of other replicas. If replicas
 * average weights after the step, there is no such sum in the trace. Microseconds are integers. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"
#include "convert/planned.h"
#include "convert/protobuf.h"
#include "graph/graph_json.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "plan/tensors.h"

enum { COMP = 4, SEND = 5, RECV = 6, COLL = 7 };	/* NodeType */
enum { ALL_REDUCE = 0 };				/* CollectiveCommType */
/* fields of AttributeProto */
enum { DOUBLE_VAL = 3, FLOAT_VAL = 5, INT32 = 7, INT64 = 9, UINT64 = 13, BOOL = 27 };

static const char hex[] = "0123456789abcdef";

static char *to_hex(struct dlb_arena *a, const uint8_t *s, size_t n)
{
	char *text = dlb_arena_alloc(a, 2 * n + 1);
	for (size_t i = 0; i < n; i++) {
		text[2 * i] = hex[s[i] >> 4];
		text[2 * i + 1] = hex[s[i] & 15];
	}
	return text;
}

static bool add_hex(struct dlb_bytes *b, const char *s)
{
	for (; *s; s += 2) {
		const char *x = strchr(hex, s[0]), *y = s[1] ? strchr(hex, s[1]) : NULL;
		if (!x || !y)
			return false;
		dlb_bytes_add(b, &(uint8_t){ (uint8_t)((x - hex) << 4 | (y - hex)) }, 1);
	}
	return true;
}

/* ---- reading ---- */

struct id_list { int64_t *v; int n, cap; };
struct chakra_node {
	uint64_t id, type, start_us, duration_us;
	struct id_list ctrl, data;
	struct dlb_bytes name, rest;
	double bytes;
	bool host;
};
struct chakra_parser {
	struct dlb_arena arena;
	struct dlb_network net;
	struct id_list *deps;			/* [vertex] both kinds of dependency */
	int cap, cap_deps, cap_edges;
	json_t *index;				/* id -> vertex */
	const uint8_t *start;
	const char *file;
	struct dlb_error *err;
};

static int fail(const struct chakra_parser *p, const uint8_t *at, const char *what)
{
	dlb_fail(p->err, p->file, "%s at byte %zu", what, (size_t)(at - p->start));
	return dlb_hint(p->err, "is it a Chakra execution trace, and all of it?");
}

static void push(struct id_list *l, uint64_t v)
{
	DLB_GROW(l->v, l->n, l->cap);
	l->v[l->n++] = (int64_t)v;
}

/* Reads a repeated varint, packed or not. */
static bool read_list(const struct dlb_field *f, struct id_list *l)
{
	uint64_t v;
	if (f->type == 0) {
		push(l, f->v);
		return true;
	}
	struct dlb_protobuf w = { f->data, f->data + f->n };
	while (f->type == 2 && w.p < w.end) {
		if (!dlb_protobuf_varint(&w, &v))
			return false;
		push(l, v);
	}
	return f->type == 2;
}

static bool named(const struct dlb_field *f, const char *name)
{
	return f->n == strlen(name) && !memcmp(f->data, name, f->n);
}

/* Reads is_cpu_op and comm_size; malformed attributes are kept unread. */
static void read_attr(const struct dlb_field *attr, struct chakra_node *x)
{
	struct dlb_protobuf w = { attr->data, attr->data + attr->n };
	struct dlb_field f, name = { .n = 0 };
	bool bad = false;
	while (dlb_protobuf_next(&w, &f, &bad)) {
		if (f.number == 1 && f.type == 2)
			name = f;
		else if (f.type == 0 && name.n && named(&name, "is_cpu_op"))
			x->host = f.v != 0;
		else if (f.type == 0 && name.n && named(&name, "comm_size") && f.v < (UINT64_C(1) << 53))
			x->bytes = (double)f.v;
	}
}

static double size_of_type(const char *s, size_t n)
{
	static const struct { const char *name; double bytes;
	} types[] = {
		/* a name that contains another comes first */
		{ "c10::quint8", 1 },
		{ "c10::qint8", 1 },
		{ "c10::qint32", 4 },
		{ "complex<double>", 16 },
		{ "complex<float>", 8 },
		{ "c10::BFloat16", 2 },
		{ "c10::Half", 2 },
		{ "double", 8 },
		{ "long", 8 },
		{ "float", 4 },
		{ "int", 4 },
		{ "bool", 1 },
		{ "unsigned char", 1 },
		{ "signed char", 1 },
		{ "short", 2 },
	};
	for (int i = 0; i < DLB_LEN(types); i++)
		for (size_t k = 0; k + strlen(types[i].name) <= n; k++)
			if (!memcmp(s + k, types[i].name, strlen(types[i].name)))
				return types[i].bytes;
	return 0;
}

/* Total bytes of all tensors in "[[64, 128], []]" with "['Tensor(float)', 'Int']"; 0 for other texts. */
static double output_bytes(const struct dlb_field *io)
{
	struct dlb_protobuf w = { io->data, io->data + io->n };
	struct dlb_field f, shapes = { .n = 0 }, types = { .n = 0 };
	bool bad = false;
	double sum = 0;
	while (dlb_protobuf_next(&w, &f, &bad)) {
		shapes = f.number == 2 && f.type == 2 ? f : shapes;
		types = f.number == 3 && f.type == 2 ? f : types;
	}
	size_t t = 0, depth = 0;
	double product = 0;
	for (size_t i = 0; i < shapes.n; i++) {
		char c = (char)shapes.data[i];
		if (c == '[' || c == '(') {
			product = ++depth == 2 ? 1 : product;
		} else if (c >= '0' && c <= '9' && depth == 2) {
			double number = 0;
			for (; i < shapes.n && shapes.data[i] >= '0' && shapes.data[i] <= '9'; i++)
				number = number * 10 + (shapes.data[i] - '0');
			product *= number;
			i--;
		} else if ((c == ']' || c == ')') && depth) {
			if (depth-- != 2)
				continue;
			while (t < types.n && types.data[t] != '\'' && types.data[t] != '"')
				t++;
			size_t end = t + 1;
			while (end < types.n && types.data[end] != '\'' && types.data[end] != '"')
				end++;
			if (end < types.n && end - t > 6 && !memcmp(types.data + t + 1, "Tensor", 6))
				sum += product * size_of_type((const char *)types.data + t + 1, end - t - 1);
			t = end + 1;
		}
	}
	return sum < 1e18 ? sum : 0;
}

static int read_node(struct chakra_parser *p, const struct dlb_field *message, struct chakra_node *x)
{
	struct dlb_protobuf w = { message->data, message->data + message->n };
	struct dlb_field f;
	uint64_t *const number[] = {
		[1] = &x->id, [3] = &x->type, [6] = &x->start_us, [7] = &x->duration_us
	};
	bool bad = false;
	while (dlb_protobuf_next(&w, &f, &bad)) {
		if (f.type == 0 && f.number < DLB_LEN(number) && number[f.number])
			*number[f.number] = f.v;
		else if (f.number == 2 && f.type == 2)
			x->name.n = 0, dlb_bytes_add(&x->name, f.data, f.n);
		else if (f.number == 4 || f.number == 5)
			bad = !read_list(&f, f.number == 4 ? &x->ctrl : &x->data);
		else if (f.number > 7)
			dlb_bytes_add(&x->rest, f.start, (size_t)(w.p - f.start));
		if (bad)
			break;
		if (f.number == 9 && f.type == 2 && x->bytes == 0)
			x->bytes = output_bytes(&f);
		if (f.number == 10 && f.type == 2)
			read_attr(&f, x);
	}
	if (bad)
		return fail(p, f.start, "no Node");
	if (x->id > INT64_MAX || x->type > INT32_MAX || x->start_us > INT64_MAX ||
	    x->duration_us > (UINT64_C(1) << 53))
		return fail(p, message->data, "a number that is too large");
	return 0;
}

static void add_attr(struct dlb_vertex *v, struct dlb_attr *attr, const char *name, int64_t i)
{
	attr[v->n_attr++] = (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = i };
}

static void add_list(struct chakra_parser *p, struct dlb_vertex *v, struct dlb_attr *attr, const char *name,
		     const struct id_list *l)
{
	if (!l->n)
		return;
	int64_t *ints = dlb_arena_array(&p->arena, (size_t)l->n, sizeof *ints);
	memcpy(ints, l->v, (size_t)l->n * sizeof *ints);
	attr[v->n_attr++] = (struct dlb_attr){ .name = name, .type = DLB_ATTR_INTS, .ints = ints, .n = l->n };
}

static int add_vertex(struct chakra_parser *p, struct chakra_node *x)
{
	char key[32], *name = dlb_arena_alloc(&p->arena, x->name.n + 1);
	snprintf(key, sizeof key, "%" PRIu64, x->id);
	if (json_object_get(p->index, key))
		return dlb_fail(p->err, p->file, "node %s is given twice", key);
	dlb_set_int(p->index, key, p->net.n_vertices);
	if (x->name.n)
		memcpy(name, x->name.s, x->name.n);
	/* invalid UTF-8 or zero bytes: the id is used instead */
	json_t *text = json_stringn(name, x->name.n);
	bool good = text && strlen(name) == x->name.n;
	json_decref(text);
	struct dlb_vertex v = {
		.name = good ? name : "", .id = (int64_t)x->id, .colour = -1, .output_bytes = x->bytes
	};
	struct dlb_attr *attr = dlb_arena_array(&p->arena, 7, sizeof *attr);
	v.attr = attr;
	v.accelerator_s = x->host ? INFINITY : (double)x->duration_us / 1e6;
	v.host_s = x->host ? (double)x->duration_us / 1e6 : INFINITY;
	add_attr(&v, attr, "chakra_type", (int64_t)x->type);
	add_attr(&v, attr, "chakra_start_us", (int64_t)x->start_us);
	add_list(p, &v, attr, "chakra_ctrl_deps", &x->ctrl);
	add_list(p, &v, attr, "chakra_data_deps", &x->data);
	if (x->rest.n)
		attr[v.n_attr++] = (struct dlb_attr){ .name = "chakra_rest", .type = DLB_ATTR_STR,
						      .s = to_hex(&p->arena, x->rest.s, x->rest.n) };
	if (good)
		attr[v.n_attr++] = (struct dlb_attr){ .name = "chakra_name",
						      .type = DLB_ATTR_STR,
						      .s = name };
	DLB_GROW(p->deps, p->net.n_vertices, p->cap_deps);
	p->deps[p->net.n_vertices] = (struct id_list){ .n = 0 };
	for (int i = 0; i < x->ctrl.n + x->data.n; i++)
		push(&p->deps[p->net.n_vertices],
		     (uint64_t)(i < x->ctrl.n ? x->ctrl.v[i] : x->data.v[i - x->ctrl.n]));
	DLB_GROW(p->net.vertex, p->net.n_vertices, p->cap);
	p->net.vertex[p->net.n_vertices++] = v;
	return 0;
}

static int add_edges(struct chakra_parser *p)
{
	char key[32];
	for (int v = 0; v < p->net.n_vertices; v++) {
		for (int i = 0; i < p->deps[v].n; i++) {
			snprintf(key, sizeof key, "%" PRIu64, (uint64_t)p->deps[v].v[i]);
			json_t *from = json_object_get(p->index, key);
			if (!from)
				return dlb_fail(p->err, p->file,
						"node %" PRId64 " waits for node %s, which does not exist",
						p->net.vertex[v].id, key);
			DLB_GROW(p->net.edge, p->net.n_edges, p->cap_edges);
			p->net.edge[p->net.n_edges++] = (struct dlb_edge){ (int)json_integer_value(from), v };
		}
	}
	return 0;
}

static int read_all(struct chakra_parser *p, const char *text, size_t n, json_t **metadata)
{
	struct dlb_protobuf w = { (const uint8_t *)text, (const uint8_t *)text + n };
	for (bool first = true; w.p < w.end; first = false) {
		uint64_t length;
		const uint8_t *at = w.p;
		if (!dlb_protobuf_varint(&w, &length) || length > (uint64_t)(w.end - w.p))
			return fail(p, at, "no message");
		struct dlb_field message = { .data = w.p, .n = (size_t)length };
		w.p += length;
		if (first) {
			*metadata = json_string(to_hex(&p->arena, message.data, message.n));
			continue;
		}
		struct chakra_node x = { .id = 0 };
		int rc = read_node(p, &message, &x) || add_vertex(p, &x);
		free(x.ctrl.v);
		free(x.data.v);
		free(x.name.s);
		free(x.rest.s);
		if (rc)
			return -1;
	}
	return add_edges(p);
}

int dlb_import_chakra(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
		      struct dlb_doc *d, struct dlb_error *err)
{
	struct chakra_parser p = {
		.index = json_object(), .start = (const uint8_t *)text, .file = name, .err = err
	};
	json_t *metadata = NULL;
	p.net.n_accelerators = (int)(o->accelerators ? o->accelerators : 6);
	p.net.n_hosts = (int)(o->hosts ? o->hosts : 1);
	p.net.memory_bytes = o->memory_bytes > 0 ? o->memory_bytes : 0x1p34;
	double bandwidth_Bps = o->bandwidth_Bps > 0 ? o->bandwidth_Bps : 0x1p31;
	int rc = read_all(&p, text, n, &metadata);
	for (int i = 0; i < p.net.n_vertices; i++)
		p.net.vertex[i].output_s = p.net.vertex[i].output_bytes / bandwidth_Bps;
	if (rc == 0 && dlb_network_import(&p.net, d, err))
		rc = dlb_error_at(err, name);
	if (rc == 0)
		json_object_set(dlb_doc_section(d, "graph"), "x-chakra", metadata);
	json_decref(metadata);
	for (int i = 0; i < p.net.n_vertices; i++)
		free(p.deps[i].v);
	free(p.deps);
	free(p.net.vertex);
	free(p.net.edge);
	json_decref(p.index);
	dlb_arena_release(&p.arena);
	return rc;
}

/* ---- writing ---- */

static void add_message(struct dlb_bytes *file, const struct dlb_bytes *message)
{
	dlb_bytes_varint(file, message->n);
	dlb_bytes_add(file, message->s, message->n);
}

static void add_deps(struct dlb_bytes *b, int field, const int64_t *v, int n)
{
	struct dlb_bytes packed = { .n = 0 };
	for (int i = 0; i < n; i++)
		dlb_bytes_varint(&packed, (uint64_t)v[i]);
	if (n)
		dlb_bytes_field(b, field, packed.s, packed.n);
	free(packed.s);
}

static void add_value(struct dlb_bytes *b, const char *name, int field, uint64_t v)
{
	struct dlb_bytes attr = { .n = 0 };
	dlb_bytes_field(&attr, 1, name, strlen(name));
	dlb_bytes_number(&attr, field, v);
	dlb_bytes_field(b, 10, attr.s, attr.n);
	free(attr.s);
}

/* Begins a node with fields 1 to 3; proto3 omits zeros. */
static void begin_node(struct dlb_bytes *b, uint64_t id, const char *name, uint64_t type)
{
	b->n = 0;
	if (id)
		dlb_bytes_number(b, 1, id);
	if (*name)
		dlb_bytes_field(b, 2, name, strlen(name));
	if (type)
		dlb_bytes_number(b, 3, type);
}

static uint64_t micros(double s)
{
	return isfinite(s) && s > 0 ? (uint64_t)llround(s * 1e6) : 0;
}

static int by_id(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;
	return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : 0;
}

static int64_t id_of(const struct dlb_op *o)
{
	return dlb_attr_int(o->attr, o->n_attr, "id", 0);
}

/* Writes the dependencies of an op: the trace's two lists if together they still equal the graph's,
 * else all as data dependencies. */
static void op_deps(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_bytes *b)
{
	const int64_t *ctrl, *data;
	int n_ctrl = dlb_attr_ints(o->attr, o->n_attr, "chakra_ctrl_deps", &ctrl);
	int n_data = dlb_attr_ints(o->attr, o->n_attr, "chakra_data_deps", &data), n = 0;
	int64_t *now = dlb_xcalloc((size_t)o->n_in + 1, sizeof *now);
	for (int k = 0; k < o->n_in; k++)
		if (o->in[k] >= 0 && g->tensor[o->in[k]].producer >= 0)
			now[n++] = id_of(&g->op[g->tensor[o->in[k]].producer]);
	bool same = true;
	for (int k = 0; k < n && same; k++) {
		bool found = false;
		for (int i = 0; i < n_ctrl + n_data && !found; i++)
			found = (i < n_ctrl ? ctrl[i] : data[i - n_ctrl]) == now[k];
		same = found;
	}
	for (int i = 0; i < n_ctrl + n_data && same; i++) {
		int64_t id = i < n_ctrl ? ctrl[i] : data[i - n_ctrl];
		bool found = id == id_of(o);		/* a node's dependency on itself is no edge */
		for (int k = 0; k < n && !found; k++)
			found = now[k] == id;
		same = found;
	}
	add_deps(b, 4, ctrl, same ? n_ctrl : 0);
	add_deps(b, 5, same ? data : now, same ? n_data : n);
	free(now);
}

/* Writes the trace that a document was imported from, in the order of ids. */
static int write_back(const struct dlb_doc *d, struct dlb_bytes *file, struct dlb_error *err)
{
	struct dlb_graph g;
	struct dlb_cluster cl = { .n_nodes = 0 };
	struct dlb_cost c = { .n_ops = 0 };
	struct dlb_bytes b = { .n = 0 };
	const char *metadata = json_string_value(json_object_get(dlb_doc_section(d, "graph"), "x-chakra"));
	int rc = -1;
	dlb_graph_init(&g);
	if (dlb_graph_read(d, &g, err) || dlb_cluster_read(d, &cl, err) || dlb_cost_read(d, &g, &cl, &c, err))
		goto out;
	if (!add_hex(&b, metadata)) {
		dlb_fail(err, "/graph/x-chakra", "hexadecimal digits are expected");
		goto out;
	}
	add_message(file, &b);
	int64_t (*order)[2] = dlb_xcalloc((size_t)g.n_ops + 1, sizeof *order);
	for (int i = 0; i < g.n_ops; i++) {
		order[i][0] = id_of(&g.op[i]);
		order[i][1] = i;
	}
	qsort(order, (size_t)g.n_ops, sizeof *order, by_id);
	rc = 0;
	for (int k = 0; k < g.n_ops && rc == 0; k++) {
		const struct dlb_op *o = &g.op[order[k][1]];
		double s = INFINITY;
		for (int i = 0; i < cl.n_kinds; i++)
			s = fmin(s, dlb_cost_kind_s(&c, (int)order[k][1], i, (double)c.batch[0]));
		begin_node(&b, (uint64_t)order[k][0], dlb_attr_str(o->attr, o->n_attr, "chakra_name", ""),
			   (uint64_t)dlb_attr_int(o->attr, o->n_attr, "chakra_type", COMP));
		op_deps(&g, o, &b);
		uint64_t start = (uint64_t)dlb_attr_int(o->attr, o->n_attr, "chakra_start_us", 0);
		if (start)
			dlb_bytes_number(&b, 6, start);
		if (micros(s))
			dlb_bytes_number(&b, 7, micros(s));
		if (!add_hex(&b, dlb_attr_str(o->attr, o->n_attr, "chakra_rest", "")))
			rc = dlb_fail(err, "/graph/ops",
				      "op '%s': chakra_rest: hexadecimal digits are expected", o->name);
		add_message(file, &b);
	}
	free(order);
out:
	free(b.s);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_graph_release(&g);
	return rc;
}

/* ---- writing the trace of a planned node ---- */

struct tracer {
	const struct dlb_planned *x;
	const struct dlb_plan *p;		/* plan of the node's replica */
	int node, M;
	bool sums;				/* true: gradients are summed with other replicas */
	struct dlb_bytes *file, b;
	struct id_list data, ctrl;
	bool *came;				/* [tensor * M + m] already received */
};

/* Ids: op * M + m for computing, then receives and sends, by tensor, micro-batch and receiver. */
static uint64_t comp_id(const struct tracer *t, int op, int m)
{
	return (uint64_t)op * (uint64_t)t->M + (uint64_t)m;
}
static uint64_t tag_of(const struct tracer *t, int tensor, int m)
{
	return (uint64_t)tensor * (uint64_t)t->M + (uint64_t)m;
}
static uint64_t message_id(const struct tracer *t, int tensor, int m, int to)
{
	uint64_t base = (uint64_t)t->x->g.n_ops * (uint64_t)t->M;
	return base + tag_of(t, tensor, m) * (uint64_t)t->x->cl.n_nodes + (uint64_t)to;
}

static void write_message(struct tracer *t, int tensor, int m, int from, int to)
{
	bool send = from == t->node;
	const struct dlb_tensor *x = &t->x->g.tensor[tensor];
	char *name = dlb_xprintf("%s %s %d", send ? "send" : "receive", x->name, m);
	int64_t n = dlb_micro_batch_size(t->p->batch, t->M, m);
	begin_node(&t->b, message_id(t, tensor, m, to), name, send ? SEND : RECV);
	if (send)
		add_deps(&t->b, 5, &(int64_t){ (int64_t)comp_id(t, x->producer, m) }, 1);
	add_value(&t->b, "is_cpu_op", BOOL, 0);
	add_value(&t->b, "comm_src", INT32, (uint64_t)from);
	add_value(&t->b, "comm_dst", INT32, (uint64_t)to);
	add_value(&t->b, "comm_tag", INT32, tag_of(t, tensor, m) & 0x7fffffff);
	add_value(&t->b, "comm_size", UINT64, (uint64_t)dlb_tensor_bytes(x, n));
	add_message(t->file, &t->b);
	free(name);
}

/* Writes the dependencies of (op, m); a message that (op, m) needs first is received before it. */
static void inputs_of(struct tracer *t, int op, int m)
{
	const struct dlb_graph *g = &t->x->g;
	bool update = g->op[op].phase == DLB_UPDATE;
	t->data.n = 0;
	for (int k = 0; k < g->op[op].n_in; k++) {
		int tensor = g->op[op].in[k], from = tensor < 0 || dlb_tensor_is_state(&g->tensor[tensor]) ?
							     -1 :
							     g->tensor[tensor].producer;
		if (from < 0)
			continue;
		int home = t->p->placement[from];
		for (int i = update ? 0 : m; i < (update ? t->M : m + 1); i++) {
			if (home == t->node) {
				push(&t->data, comp_id(t, from, i));
				continue;
			}
			push(&t->data, message_id(t, tensor, i, t->node));
			if (!t->came[tag_of(t, tensor, i)])
				write_message(t, tensor, i, home, t->node);
			t->came[tag_of(t, tensor, i)] = true;
		}
	}
}

static void outputs_of(struct tracer *t, int op, int m)
{
	const struct dlb_graph *g = &t->x->g;
	for (int k = 0; k < g->op[op].n_out; k++) {
		int tensor = g->op[op].out[k];
		if (tensor < 0 || dlb_tensor_is_state(&g->tensor[tensor]))
			continue;
		for (int to = 0; to < t->x->cl.n_nodes; to++) {
			bool reads = false;
			for (int r = g->reader_start[tensor]; r < g->reader_start[tensor + 1]; r++)
				reads |= t->p->placement[g->reader[r]] == to;
			if (reads && to != t->node)
				write_message(t, tensor, m, t->node, to);
		}
	}
}

/* Adds a sum over replicas of the update's inputs; the update then depends on the sum. */
static void sum_over_replicas(struct tracer *t, int update)
{
	const struct dlb_graph *g = &t->x->g;
	const uint64_t id = message_id(t, g->n_tensors, 0, 0) + (uint64_t)update;
	double bytes = 0;

	for (int k = 0; k < g->op[update].n_in; k++)
		if (g->op[update].in[k] >= 0 && !dlb_tensor_is_state(&g->tensor[g->op[update].in[k]]))
			bytes += dlb_tensor_bytes(&g->tensor[g->op[update].in[k]], 1);
	char *name = dlb_xprintf("sum %s", g->op[update].name);
	begin_node(&t->b, id, name, COLL);
	add_deps(&t->b, 5, t->data.v, t->data.n);
	add_value(&t->b, "is_cpu_op", BOOL, 0);
	add_value(&t->b, "comm_type", INT64, ALL_REDUCE);
	add_value(&t->b, "comm_size", UINT64, (uint64_t)bytes);
	add_message(t->file, &t->b);
	free(name);
	t->data.n = 0;
	push(&t->data, id);
}

static void trace(struct tracer *t)
{
	const struct dlb_node_plan *np = &t->p->node[t->node];
	bool cpu = !strcmp(t->x->cl.kind[t->x->cl.node[t->node].kind].backend, "cpu");
	uint64_t last = UINT64_MAX;
	for (int i = 0; i < np->n_order; i++) {
		int op = np->order[i].op, m = np->order[i].micro_batch < 0 ? 0 : np->order[i].micro_batch;
		int64_t n = dlb_micro_batch_size(t->p->batch, t->M, m);
		bool update = np->order[i].micro_batch < 0;
		inputs_of(t, op, m);
		if (update && t->sums)
			sum_over_replicas(t, op);
		char *name = update ? dlb_xstrdup(t->x->g.op[op].name) :
				      dlb_xprintf("%s %d", t->x->g.op[op].name, m);
		double s = dlb_graph_is_view(&t->x->g, op) ? 0 :
							     dlb_cost_op_s(&t->x->c, op, t->node, (double)n);
		begin_node(&t->b, comp_id(t, op, m), name, COMP);
		add_deps(&t->b, 4, &(int64_t){ (int64_t)last }, last != UINT64_MAX);
		add_deps(&t->b, 5, t->data.v, t->data.n);
		if (micros(s))
			dlb_bytes_number(&t->b, 7, micros(s));
		add_value(&t->b, "is_cpu_op", BOOL, cpu);
		add_message(t->file, &t->b);
		free(name);
		if (!update)
			outputs_of(t, op, m);
		last = comp_id(t, op, m);
	}
}

static int write_rank(const struct dlb_doc *d, int64_t rank, struct dlb_bytes *file, struct dlb_error *err)
{
	static const char version[] = "0.0.4";
	struct dlb_planned x;
	if (dlb_planned_read(d, &x, err))
		return -1;
	int rc = -1;
	if (rank >= x.cl.n_nodes) {
		dlb_fail(err, NULL, "no node %" PRId64 "; the cluster has nodes 0 to %d", rank,
			 x.cl.n_nodes - 1);
	} else {
		struct dlb_plan own = { .n_ops = 0 };
		if (x.p.n_replicas > 1) {
			const int r = dlb_plan_replica_of(&x.p, (int)rank);
			int64_t *share = dlb_xcalloc((size_t)x.p.n_replicas, sizeof *share);
			dlb_plan_shares(&x.p, x.p.batch, share);
			dlb_plan_of_replica(&x.p, r, share[r], &own);
			free(share);
		}
		const struct dlb_plan *p = own.n_ops ? &own : &x.p;
		struct tracer t = { .x = &x, .p = p, .node = (int)rank, .M = p->micro_batches, .file = file };
		t.sums = own.n_ops && !dlb_sharing_averages(&x.p.sharing);
		t.came = dlb_xcalloc((size_t)x.g.n_tensors * (size_t)t.M + 1, sizeof *t.came);
		dlb_bytes_field(&t.b, 1, version, strlen(version));
		add_message(file, &t.b);
		trace(&t);
		free(t.came);
		free(t.b.s);
		free(t.data.v);
		if (own.n_ops)
			dlb_plan_release(&own);
		rc = 0;
	}
	dlb_planned_release(&x);
	return rc;
}

char *dlb_export_chakra(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
			struct dlb_error *err)
{
	struct dlb_bytes file = { .n = 0 };
	bool came = json_is_string(json_object_get(dlb_doc_section(d, "graph"), "x-chakra"));
	if (came && !o->rank_given ? write_back(d, &file, err) : write_rank(d, o->rank, &file, err)) {
		free(file.s);
		return NULL;
	}
	*n = file.n;
	return (char *)file.s;
}
