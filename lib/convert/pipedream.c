/* PipeDream's graph.txt (Narayanan et al., SOSP 2019): a profile of a network's layers.
 *
 *     node1 -- Conv2d(3, 64, ...) -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=100.0, parameter_size=10.0
 *     	node1 -- node2
 *
 * Times are milliseconds, sizes bytes; an activation_size may be a list in brackets, which is summed. As in the
 * published placement benchmark made from such files: an accelerator takes the forward time, a host core ten times as
 * long; memory is activation and parameters; the output's seconds are its bytes over the port's bandwidth. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"

#define HOST_FACTOR 10

struct parser {
	struct dlb_network net;
	struct dlb_arena arena;
	json_t *index;				/* name -> vertex */
	int cap_vertices, cap_edges, line;
	const char *file;
	double bandwidth_Bps;
	struct dlb_error *err;
};

static int fail(struct parser *p, const char *what, const char *text)
{
	char where[256];
	snprintf(where, sizeof where, "%.200s:%d", p->file, p->line);
	return dlb_fail(p->err, where, what, text);
}

/* "key=12.5" or "key=[1.0; 2.0]" in text: the number, lists summed. */
static int get_number(struct parser *p, const char *text, const char *key, double *out)
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

static int add_vertex(struct parser *p, char *name, char *rest)
{
	struct dlb_vertex v = { .colour = -1 };
	double forward_ms, activation, parameters;
	char *numbers = NULL;
	for (char *s = rest; (s = strstr(s, " -- ")) != NULL; s += 4)	/* descriptions are free text: the last part counts */
		numbers = s + 4;
	if (!numbers)
		return fail(p, "a node is 'NAME -- DESCRIPTION -- NUMBERS'%s", "");
	if (get_number(p, numbers, "forward_compute_time", &forward_ms) || get_number(p, numbers, "activation_size", &activation) ||
	    get_number(p, numbers, "parameter_size", &parameters))
		return -1;
	if (json_object_get(p->index, name))
		return fail(p, "node '%.80s' stands twice", name);
	json_object_set_new(p->index, name, json_integer(p->net.n_vertices));
	v.name = dlb_arena_strdup(&p->arena, name);
	v.id = p->net.n_vertices;
	v.accelerator_s = forward_ms / 1e3;
	v.host_s = v.accelerator_s * HOST_FACTOR;
	v.size_bytes = activation + parameters;
	v.output_bytes = activation;
	v.output_s = activation / p->bandwidth_Bps;
	DLB_GROW(p->net.vertex, p->net.n_vertices, p->cap_vertices);
	p->net.vertex[p->net.n_vertices++] = v;
	return 0;
}

static int add_edge(struct parser *p, char *from, char *to)
{
	json_t *a = json_object_get(p->index, from), *b = json_object_get(p->index, to);
	if (!a || !b)
		return fail(p, "no node '%.80s' above", a ? to : from);
	DLB_GROW(p->net.edge, p->net.n_edges, p->cap_edges);
	p->net.edge[p->net.n_edges++] = (struct dlb_edge){ (int)json_integer_value(a), (int)json_integer_value(b) };
	return 0;
}

static bool is_utf8(const char *line)
{
	json_t *text = json_string(line);
	json_decref(text);
	return text != NULL;
}

static int parse_line(struct parser *p, char *line)
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

int dlb_import_pipedream(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
			 struct dlb_doc *d, struct dlb_error *err)
{
	struct parser p = { .index = json_object(), .file = name, .err = err };
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
	if (rc == 0 && dlb_network_import(&p.net, d, err))
		rc = dlb_error_at(err, name);
	free(copy);
	free(p.net.vertex);
	free(p.net.edge);
	json_decref(p.index);
	dlb_arena_release(&p.arena);
	return rc;
}
