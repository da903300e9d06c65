/* Imports PipeDream's graph.txt (Narayanan et al., SOSP 2019): a profile of a network's layers.
 *
 *     node1 -- Conv2d(3, 64, ...) -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=100.0, parameter_size=10.0
 *     	node1 -- node2
 *
 * Times are milliseconds, sizes bytes; a list activation_size=[...] is summed. As in the published
 * placement benchmark from such files, an accelerator takes the forward time and a host core ten
 * times as long; memory is activation plus parameters; the output takes its bytes over the port's
 * bandwidth. Other data are attributes of the op: description, backward_s, parameter_bytes. Its id is
 * N if all vertices are named nodeN. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"

#define HOST_FACTOR 10

struct pipedream_parser {
	struct dlb_network net;
	struct dlb_arena arena;
	json_t *index;				/* name -> vertex index */
	int cap_vertices, cap_edges, line;
	const char *file;
	double bandwidth_Bps;
	struct dlb_error *err;
};

static int fail(struct pipedream_parser *p, const char *what, const char *text)
{
	char where[256];
	snprintf(where, sizeof where, "%.200s:%d", p->file, p->line);
	return dlb_fail(p->err, where, what, text);
}

/* Reads "key=12.5" or "key=[1.0; 2.0]" from text; sums a list. */
static int get_number(struct pipedream_parser *p, const char *text, const char *key, double *out)
{
	const char *s = strstr(text, key);
	char *end;
	if (!s || s[strlen(key)] != '=')
		return fail(p, "no '%s='", key);
	s += strlen(key) + 1;
	bool list = *s == '[';
	s += list;
	*out = 0;
	do {
		double x = strtod(s, &end);
		if (end == s || !(x >= 0) || x > 1e18)
			return fail(p, "a number, not negative, is expected after '%s='", key);
		*out += x;
		s = end + strspn(end, " ;,");
	} while (list && *s && *s != ']');
	return 0;
}

static int add_vertex(struct pipedream_parser *p, char *name, char *rest)
{
	struct dlb_vertex v = { .colour = -1 };
	double forward_ms, backward_ms = 0, activation, parameters;
	char *numbers = NULL, *description = rest + strspn(rest, " -");
	/* descriptions may contain " -- ": the last part has the numbers */
	for (char *s = rest; (s = strstr(s, " -- ")) != NULL; s += 4)
		numbers = s + 4;
	if (!numbers)
		return fail(p, "a node is 'NAME -- DESCRIPTION -- NUMBERS'%s", "");
	if (get_number(p, numbers, "forward_compute_time", &forward_ms) ||
	    get_number(p, numbers, "activation_size", &activation) ||
	    get_number(p, numbers, "parameter_size", &parameters) ||
	    (strstr(numbers, "backward_compute_time") &&
	     get_number(p, numbers, "backward_compute_time", &backward_ms)))
		return -1;
	if (json_object_get(p->index, name))
		return fail(p, "node '%.80s' is given twice", name);
	dlb_set_int(p->index, name, p->net.n_vertices);
	v.name = dlb_arena_strdup(&p->arena, name);
	v.id = p->net.n_vertices;
	v.accelerator_s = forward_ms / 1e3;
	v.host_s = v.accelerator_s * HOST_FACTOR;
	v.size_bytes = activation + parameters;
	v.output_bytes = activation;
	v.output_s = activation / p->bandwidth_Bps;
	struct dlb_attr *attr = dlb_arena_array(&p->arena, 3, sizeof *attr);
	const size_t length = numbers - description >= 4 ? (size_t)(numbers - 4 - description) : 0;
	attr[0] = (struct dlb_attr){ .name = "description",
				     .type = DLB_ATTR_STR,
				     .s = dlb_arena_printf(&p->arena, "%.*s", (int)length, description) };
	attr[1] = (struct dlb_attr){ .name = "backward_s", .type = DLB_ATTR_REAL, .f = backward_ms / 1e3 };
	attr[2] = (struct dlb_attr){ .name = "parameter_bytes", .type = DLB_ATTR_REAL, .f = parameters };
	v.attr = attr;
	v.n_attr = 3;
	const int word = (int)strspn(attr[0].s,
				     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	v.type = word && attr[0].s[word] != ' ' ? dlb_arena_printf(&p->arena, "%.*s", word, attr[0].s) : NULL;
	DLB_GROW(p->net.vertex, p->net.n_vertices, p->cap_vertices);
	p->net.vertex[p->net.n_vertices++] = v;
	return 0;
}

static int add_edge(struct pipedream_parser *p, char *from, char *to)
{
	json_t *a = json_object_get(p->index, from), *b = json_object_get(p->index, to);
	if (!a || !b)
		return fail(p, "no node '%.80s' above", a ? to : from);
	DLB_GROW(p->net.edge, p->net.n_edges, p->cap_edges);
	p->net.edge[p->net.n_edges++] = (struct dlb_edge){ (int)json_integer_value(a),
							   (int)json_integer_value(b) };
	return 0;
}

static bool is_utf8(const char *line)
{
	json_t *text = json_string(line);
	json_decref(text);
	return text != NULL;
}

static int parse_line(struct pipedream_parser *p, char *line)
{
	bool edge = *line == '\t' || *line == ' ';
	if (!is_utf8(line))
		return fail(p, "not UTF-8 text%s", "");
	line += strspn(line, "\t ");
	char *end = line + strlen(line);
	while (end > line && strchr(" \t\r", end[-1]))
		*--end = '\0';
	if (!*line)
		return 0;
	char *second = strstr(line, " -- ");
	if (!second)
		return fail(p, "' -- ' is expected%s", "");
	*second = '\0';
	return edge ? add_edge(p, line, second + 4) : add_vertex(p, line, second + 3);
}

/* Sets id N of vertices nodeN, if all have such names and no two are equal. */
static void number_vertices(struct pipedream_parser *p)
{
	json_t *seen = json_object();
	int64_t *id = dlb_xcalloc((size_t)p->net.n_vertices + 1, sizeof *id);
	bool all = true;

	for (int i = 0; i < p->net.n_vertices && all; i++) {
		const char *digits = p->net.vertex[i].name + 4;
		char key[32], *end;
		all = !strncmp(p->net.vertex[i].name, "node", 4) && isdigit((unsigned char)*digits) &&
		      strlen(digits) < 16;
		if (!all)
			break;
		id[i] = strtoll(digits, &end, 10);
		snprintf(key, sizeof key, "%lld", (long long)id[i]);
		all = !*end && !json_object_get(seen, key);
		json_object_set_new(seen, key, json_true());
	}
	for (int i = 0; i < p->net.n_vertices && all; i++)
		p->net.vertex[i].id = id[i];
	json_decref(seen);
	free(id);
}

int dlb_import_pipedream(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
			 struct dlb_doc *d, struct dlb_error *err)
{
	struct pipedream_parser p = { .index = json_object(), .file = name, .err = err };
	int rc = 0;
	p.net.n_accelerators = (int)(o->accelerators ? o->accelerators : 6);
	p.net.n_hosts = (int)(o->hosts ? o->hosts : 1);
	p.net.memory_bytes = o->memory_bytes > 0 ? o->memory_bytes : 0x1p34;
	p.bandwidth_Bps = o->bandwidth_Bps > 0 ? o->bandwidth_Bps : 0x1p31;
	char *copy = dlb_xmalloc(n + 1), *line = copy;
	memcpy(copy, text, n);
	copy[n] = '\0';
	if (memchr(text, 0, n))
		rc = dlb_fail(err, name, "not a text: it has zero bytes");
	while (line && rc == 0) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		p.line++;
		rc = parse_line(&p, line);
		line = next;
	}
	number_vertices(&p);
	if (rc == 0 && dlb_network_import(&p.net, d, err))
		rc = dlb_error_at(err, name);
	free(copy);
	free(p.net.vertex);
	free(p.net.edge);
	json_decref(p.index);
	dlb_arena_release(&p.arena);
	return rc;
}
