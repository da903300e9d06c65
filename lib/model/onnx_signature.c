/* Reads the list of parameters and buffers that PyTorch's exporter (dynamo=True) stores in the model's
 * metadata, under the key "pkg.torch.export.ExportedProgram.graph_signature": the text of Python's
 * ExportGraphSignature. Newer versions write one line per input, with its path in the module:
 *
 *     # inputs
 *     p_fc_weight: PARAMETER target='fc.weight'
 *     b_mean: BUFFER target='mean' persistent=True
 *     c_k: CONSTANT_TENSOR target='k'
 *     x: USER_INPUT
 *
 *     # outputs
 *     linear: USER_OUTPUT
 *
 * Older versions write the repr() of the object:
 *
 *     ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_fc_weight'),
 *     target='fc.weight', persistent=None), ...], output_specs=[...])
 *
 * The exporter may have folded a listed parameter; then no initializer has its name. */
#include <stdlib.h>
#include <string.h>
#include "model/onnx_reader.h"
#include "util/utf8.h"

#define KEY "pkg.torch.export.ExportedProgram.graph_signature"
#define MAX_INHERITED 4096	/* longest text of a call that vertices of a function inherit */

struct parameter_list {
	struct dlb_graph *g;
	struct dlb_listed *item;
	int n, cap;
};

static const struct { const char *name; enum dlb_listed_kind kind; } kinds[] = {
	{ "PARAMETER", DLB_LISTED_PARAMETER },
	{ "BUFFER", DLB_LISTED_BUFFER },
	{ "CONSTANT_TENSOR", DLB_LISTED_CONSTANT },
};

/* A part of the text, which is not modified. */
struct text_span { const char *s; size_t n; };

static bool is(struct text_span a, const char *text)
{
	return a.n == strlen(text) && !memcmp(a.s, text, a.n);
}

/* Adds an input to the list. Kinds that are no state of the module (USER_INPUT,
 * TOKEN, CUSTOM_OBJ) are skipped. */
static void add(struct parameter_list *l, struct text_span kind, const char *input, const char *target,
		struct text_span persistent)
{
	for (int i = 0; i < DLB_LEN(kinds); i++) {
		if (!is(kind, kinds[i].name))
			continue;
		DLB_GROW(l->item, l->n, l->cap);
		l->item[l->n++] = (struct dlb_listed){ .name = target, .input = input, .kind = kinds[i].kind,
			.persistent = kinds[i].kind == DLB_LISTED_BUFFER ? !is(persistent, "False")
				: kinds[i].kind == DLB_LISTED_PARAMETER };
	}
}

static const char *copied(struct parameter_list *l, struct text_span a)
{
	char *text = dlb_arena_alloc(&l->g->arena, a.n + 1);

	memcpy(text, a.s, a.n);
	return text;
}

/* -- newer: one line per input -- */

/* Splits *rest at `mark`: *before is the part before it, *rest the part after it. False: no mark. */
static bool cut(struct text_span *rest, const char *mark, struct text_span *before)
{
	const size_t n = strlen(mark);

	for (size_t i = 0; i + n <= rest->n; i++)
		if (!memcmp(rest->s + i, mark, n)) {
			*before = (struct text_span){ rest->s, i };
			*rest = (struct text_span){ rest->s + i + n, rest->n - i - n };
			return true;
		}
	return false;
}

/* Reads NAME: KIND[ target='...'][ persistent=X]. A target may contain anything except a line end. */
static int read_line(struct parameter_list *l, struct text_span line)
{
	struct text_span input, kind = { NULL, 0 }, target = line, persistent = { NULL, 0 };

	if (!cut(&line, ": ", &input) || !input.n)
		return -1;
	if (!cut(&line, " target='", &kind)) {
		for (int i = 0; i < DLB_LEN(kinds); i++)
			if (is(line, kinds[i].name))
				return -1;		/* state of the module, but without a path */
		return 0;
	}
	target = line;
	for (size_t i = target.n; i-- > 0;)
		if (target.s[i] == '\'') {
			persistent = (struct text_span){ target.s + i + 1, target.n - i - 1 };
			target.n = i;
			break;
		}
	struct text_span none;
	if (!target.n || target.n == line.n ||
	    (persistent.n && (!cut(&persistent, " persistent=", &none) || none.n)))
		return -1;
	add(l, kind, copied(l, input), copied(l, target), persistent);
	return 0;
}

static int read_lines(struct parameter_list *l, const char *p)
{
	for (bool inputs = false; *p;) {
		const char *end = strchr(p, '\n');
		const struct text_span line = { p, end ? (size_t)(end - p) : strlen(p) };
		if (is(line, "# inputs"))
			inputs = true;
		else if (is(line, "# outputs"))
			return inputs ? 0 : -1;
		else if (line.n && (!inputs || read_line(l, line)))
			return -1;
		p += line.n + (end != NULL);
	}
	return -1;
}

/* -- older: repr() of the object -- */

/* Returns the position after a quoted string; NULL: the string does not end. */
static const char *skip_string(const char *p)
{
	const char quote = *p++;

	for (; *p && *p != quote; p++)
		if (*p == '\\' && !*++p)
			return NULL;
	return *p ? p + 1 : NULL;
}

/* Returns the comma or bracket that ends a value; NULL: the text ends first. */
static const char *skip_value(const char *p)
{
	for (int depth = 0; *p;) {
		if (*p == '\'' || *p == '"') {
			if (!(p = skip_string(p)))
				return NULL;
			continue;
		}
		if (!depth && (*p == ',' || *p == ')' || *p == ']'))
			return p;
		depth += *p == '(' || *p == '[' || *p == '{';
		depth -= *p == ')' || *p == ']' || *p == '}';
		p++;
	}
	return NULL;
}

/* Returns the string literal v, in the arena. NULL: v is not one literal, or has escapes other
 * than of quotes and backslashes. */
static const char *unquoted(struct parameter_list *l, struct text_span v)
{
	char *text = dlb_arena_alloc(&l->g->arena, v.n + 1);
	size_t n = 0;

	if (v.n < 2 || (*v.s != '\'' && *v.s != '"') || skip_string(v.s) != v.s + v.n)
		return NULL;
	for (size_t i = 1; i + 1 < v.n; i++) {
		if (v.s[i] == '\\' && !strchr("\\'\"", v.s[++i]))
			return NULL;
		text[n++] = v.s[i];
	}
	text[n] = '\0';
	return text;
}

/* Finds the value of `key` in the arguments "key=value, key=value)" at p. *end: position after
 * the closing bracket; NULL: none. */
static bool argument(const char *p, const char *key, struct text_span *value, const char **end)
{
	bool found = false;

	for (;; p += strspn(p, ", ")) {
		const size_t n = strcspn(p, "=,)]");
		const struct text_span name = { p, n };
		if (*p == ')' || p[n] != '=') {
			*end = *p == ')' ? p + 1 : NULL;
			return found && *end;
		}
		p += n + 1;
		const char *stop = skip_value(p);
		if (!stop) {
			*end = NULL;
			return false;
		}
		if (is(name, key)) {
			*value = (struct text_span){ p, (size_t)(stop - p) };
			found = true;
		}
		p = stop;
	}
}

/* Reads the arguments of one InputSpec; returns the position after them; NULL: damaged. */
static const char *read_spec(struct parameter_list *l, const char *p)
{
	struct text_span kind, arg, target, persistent = { NULL, 0 }, name, before;
	const char *end, *ignored;

	if (!argument(p, "kind", &kind, &end) || !argument(p, "arg", &arg, &end) ||
	    !argument(p, "target", &target, &end))
		return NULL;
	argument(p, "persistent", &persistent, &ignored);		/* absent in PyTorch 2.1 */
	if (!cut(&kind, "InputKind.", &before) || !cut(&kind, ":", &before))
		return NULL;
	kind = before;
	if (is(target, "None"))
		return end;
	if (!cut(&arg, "(", &before) || !argument(arg.s, "name", &name, &ignored))
		return NULL;
	const char *input = unquoted(l, name), *place = unquoted(l, target);
	if (!input || !place || !*input || !*place)
		return NULL;
	add(l, kind, input, place, persistent);
	return end;
}

static int read_object(struct parameter_list *l, const char *p)
{
	static const char spec[] = "InputSpec(";

	p += strspn(p, " ");
	while (!strncmp(p, spec, sizeof spec - 1)) {
		if (!(p = read_spec(l, p + sizeof spec - 1)))
			return -1;
		p += strspn(p, ", ");
	}
	return *p == ']' ? 0 : -1;
}

/* -- model metadata -- */

static void read_signature(struct onnx_reader *r, const char *text)
{
	static const char object[] = "ExportGraphSignature(input_specs=[";
	struct parameter_list l = { .g = r->g };
	const bool is_object = !strncmp(text, object, sizeof object - 1);
	const bool is_text = dlb_is_utf8(text, strlen(text));

	if (!is_text || (is_object ? read_object(&l, text + sizeof object - 1) : read_lines(&l, text))) {
		dlb_graph_note(r->g,
			       "the exporter's list of parameters (%s in the metadata) cannot be read and is "
			       "ignored: the role of each initializer decides if it is trained",
			       strrchr(KEY, '.') + 1);
	} else {
		r->g->listed = dlb_arena_array(&r->g->arena, (size_t)l.n + 1, sizeof *l.item);
		if (l.n)
			memcpy(r->g->listed, l.item, (size_t)l.n * sizeof *l.item);
		r->g->n_listed = l.n;
	}
	free(l.item);
}

const char *dlb_reader_metadata(Onnx__StringStringEntryProto *const *p, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (p[i]->key && p[i]->value && !strcmp(p[i]->key, key))
			return p[i]->value;
	return NULL;
}

void dlb_reader_signature(struct onnx_reader *r)
{
	const Onnx__ModelProto *m = r->all->model;
	const char *text = dlb_reader_metadata(m->graph->metadata_props, m->graph->n_metadata_props, KEY);

	if (!text)
		text = dlb_reader_metadata(m->metadata_props, m->n_metadata_props, KEY);
	if (text)
		read_signature(r, text);
	for (int i = 0; i < r->g->n_listed; i++)
		dlb_name_map_add(&r->all->listed, r->g->listed[i].input, i);
}

/* Whether the vertex reads a float initializer that the list does not name. */
static bool reads_nameless(const struct dlb_graph *g, const struct dlb_op *o)
{
	for (int k = 0; k < o->n_in; k++) {
		const struct dlb_tensor *x = o->in[k] < 0 ? NULL : &g->tensor[o->in[k]];
		bool named = !x || x->kind != DLB_T_CONSTANT || !x->initial || !dlb_dtype_is_float(x->dtype);
		for (int i = 0; i < g->n_listed && !named; i++)
			named = !strcmp(g->listed[i].name, x->name);
		if (!named)
			return true;
	}
	return false;
}

/* The module of the vertex: the last but one element of "['', 'model', 'model.norm', 'mul_5']". */
static struct text_span module_of(const char *text)
{
	const char *comma = NULL, *from;

	for (const char *at = text; (at = strstr(at, "', '")); at++)
		comma = at;
	for (from = comma; from && from > text && from[-1] != '\''; from--)
		;
	return (struct text_span){ from, from ? (size_t)(comma - from) : 0 };
}

/* For a vertex that reads a tensor that the exporter computed from a parameter, so that the parameter's name
 * is lost. Candidates are the parameters of the vertex's module, if it has at most one besides a bias. Writes
 * the candidates' indices; returns their number. */
static int uses_by_module(const struct onnx_reader *r, const Onnx__NodeProto *p, const struct dlb_op *o,
			  int use[2])
{
	const char *text = dlb_reader_metadata(p->metadata_props, p->n_metadata_props, DLB_NAME_SCOPES);
	const struct text_span module = module_of(text ? text : "");
	int found[2] = { -1, -1 }, n = 0;	/* the bias, the other parameter */

	if (!module.s || !reads_nameless(r->g, o))
		return 0;
	for (int i = 0; i < r->g->n_listed; i++) {
		const char *name = r->g->listed[i].name;
		const char *word = name + (module.n ? module.n + 1 : 0);
		if (r->g->listed[i].kind != DLB_LISTED_PARAMETER || strncmp(name, module.s, module.n) ||
		    (module.n && name[module.n] != '.') || strchr(word, '.'))
			continue;
		int *of = &found[strcmp(word, "bias") != 0];
		if (*of >= 0)
			return 0;
		*of = i;
	}
	for (int k = 0; k < 2; k++)
		if (found[k] >= 0)
			use[n++] = found[k];
	return n;
}

/* Parses "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args =
 * (%x, %p_fc_weight), kwargs = {})". */
void dlb_reader_uses(struct onnx_reader *r, const Onnx__NodeProto *p, int op)
{
	struct dlb_op *o = &r->g->op[op];
	const struct dlb_name_map *all = &r->all->listed;
	const char *text = all->n ? dlb_reader_metadata(p->metadata_props, p->n_metadata_props, DLB_FX_NODE) :
				    NULL;
	int *use = NULL, n = 0, cap = 0;
	char name[256];

	/* inside a function, the text of the calling vertex */
	for (; all->n && !text && r->caller; r = r->caller) {
		text = dlb_reader_metadata(r->call->metadata_props, r->call->n_metadata_props, DLB_FX_NODE);
		/* limits the search, which is repeated for each vertex of the function */
		if (text && strnlen(text, MAX_INHERITED) == MAX_INHERITED)
			text = NULL;
	}
	const bool own = text && r->caller == NULL;
	for (text = text ? strchr(text, '%') : NULL; text; text = strchr(text, '%')) {
		const size_t length = strcspn(++text, " ,()[]{}:=%");
		if (length >= sizeof name)
			continue;
		memcpy(name, text, length);
		name[length] = '\0';
		const int at = dlb_name_map_get(all, name);
		if (at < 0)
			continue;
		DLB_GROW(use, n, cap);
		use[n++] = at;
	}
	int more[2];
	const int n_more = own ? uses_by_module(r, p, o, more) : 0;
	o->n_uses = n;
	for (int i = 0; i < n_more; i++) {
		DLB_GROW(use, n, cap);
		use[n++] = more[i];
	}
	if (n) {
		int *copy = dlb_arena_array(&r->g->arena, (size_t)n, sizeof *copy);
		memcpy(copy, use, (size_t)n * sizeof *copy);
		o->uses = copy;
		o->n_may_use = n;
	}
	free(use);
}
