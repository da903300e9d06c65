/* Parses synthetic clusters from a line of text; cluster.h has the grammar. */
#include "cluster/cluster.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 20, MAX_THREADS = 1 << 16, MAX_NESTED = 8 };

struct cluster_parser {
	const char *text, *p;
	struct dlb_cluster *c;
	struct dlb_error *err;
	bool kinds_given; /* the text may name no other kinds */
	int site, rack, host;			/* current groups; -1: none yet */
	int n_racks, n_hosts, devices;		/* devices: on the current host */
	/* the last "host" and "rack" in the text, if no node has followed it so far; else NULL */
	const char *bare_host, *bare_rack;
	struct dlb_link_class socket, shm, rack_link, site_link;
};

static int fail(const struct cluster_parser *s, const char *expected)
{
	dlb_fail(s->err, NULL, "cluster '%s': %s expected at '%s'", s->text, expected,
		 *s->p ? s->p : "the end");
	return dlb_hint(s->err, "the form is [GROUP=]KIND[/THREADS][:COUNT][*SPEED][@MEMORY], "
				"as in 'cpu:2 host cpu/4:1*0.5@8GB 4(host cpu:2) link=rack:1e-5,1.25e9'");
}

static bool is_name(int ch)
{
	return isalnum((unsigned char)ch) || ch == '_' || ch == '-' || ch == '.' || ch == '+';
}

static int get_name(struct cluster_parser *s, char *out, size_t size)
{
	size_t n = 0;

	while (is_name(s->p[n]))
		n++;
	if (!n || n >= size || !isalpha((unsigned char)*s->p))
		return fail(s, "a name");
	memcpy(out, s->p, n);
	out[n] = '\0';
	s->p += n;
	return 0;
}

static int get_int(struct cluster_parser *s, const char *what, long max, int *out)
{
	char *end;
	long v;

	if (!isdigit((unsigned char)*s->p))
		return fail(s, what);
	v = strtol(s->p, &end, 10);
	if (v < 1 || v > max)
		return fail(s, what);
	s->p = end;
	*out = (int)v;
	return 0;
}

static int get_real(struct cluster_parser *s, const char *what, bool zero_too, double *out)
{
	char *end;
	double v;

	if (!isdigit((unsigned char)*s->p) && *s->p != '.')
		return fail(s, what);
	v = strtod(s->p, &end);
	if (!isfinite(v) || (v <= 0 && !(zero_too && v == 0)))
		return fail(s, what);
	s->p = end;
	*out = v;
	return 0;
}

/* Parses bytes: 8GB, 512MiB, 1e9. */
static int get_bytes(struct cluster_parser *s, double *out)
{
	static const struct { const char *unit; double times; } units[] = {
		{ "KiB", 1024.0 }, { "MiB", 1048576.0 }, { "GiB", 1073741824.0 }, { "TiB", 1099511627776.0 },
		{ "kB", 1e3 }, { "KB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "TB", 1e12 },
		{ "K", 1e3 }, { "M", 1e6 }, { "G", 1e9 }, { "T", 1e12 }, { "B", 1 },
	};

	if (get_real(s, "an amount of memory such as 8GB", false, out))
		return -1;
	for (int i = 0; i < DLB_LEN(units); i++)
		if (!strncmp(s->p, units[i].unit, strlen(units[i].unit))) {
			s->p += strlen(units[i].unit);
			*out *= units[i].times;
			break;
		}
	return *out >= 1 && *out < 1e18 ? 0 : fail(s, "an amount of memory such as 8GB");
}

static int fail_bare(const struct cluster_parser *s, const char *what, const char *before)
{
	dlb_fail(s->err, NULL, "cluster '%s': a %s without nodes %s%s%s", s->text, what,
		 *before ? "before '" : "at the end", before, *before ? "'" : "");
	return dlb_hint(s->err, "leave one word '%s' out, or put nodes such as cpu:2 behind it", what);
}

/* Adjacent words "rack" and "host", in either order, start only one host: the first host of the next rack. */
static int next_rack(struct cluster_parser *s, const char *word)
{
	if (s->bare_rack)
		return fail_bare(s, "rack", word);
	s->bare_rack = word;
	s->rack = s->host = -1;
	return 0;
}

static int next_host(struct cluster_parser *s, const char *word)
{
	if (s->bare_host)
		return fail_bare(s, "host", word);
	s->bare_host = word;
	s->host = -1;
	return 0;
}

/* Makes the current host's group when its first node needs it, so a leading "host" has no effect. Every host
 * is made under a rack and a site; finish() removes these levels if they are not needed. */
static void begin_host(struct cluster_parser *s)
{
	char name[32];

	s->bare_host = s->bare_rack = NULL;
	if (s->host >= 0)
		return;
	if (s->site < 0)
		s->site = dlb_cluster_add_group(s->c, "site", "site", -1);
	if (s->rack < 0) {
		snprintf(name, sizeof name, "r%d", s->n_racks++);
		s->rack = dlb_cluster_add_group(s->c, name, "rack", s->site);
	}
	snprintf(name, sizeof name, "h%d", s->n_hosts++);
	s->host = dlb_cluster_add_group(s->c, name, "host", s->rack);
	s->devices = 0;
}

static int subgroup(struct cluster_parser *s, const char *name)
{
	struct dlb_cluster *c = s->c;
	char full[160];

	snprintf(full, sizeof full, "%s.%s", c->group[s->host].name, name);
	for (int i = 0; i < c->n_groups; i++)
		if (!strcmp(c->group[i].name, full))
			return i;
	return dlb_cluster_add_group(c, full, "socket", s->host);
}

static int get_link(struct cluster_parser *s)
{
	struct dlb_link_class *const classes[] = { &s->socket, &s->shm, &s->rack_link, &s->site_link };
	char name[32];

	if (get_name(s, name, sizeof name))
		return -1;
	for (int i = 0; i < DLB_LEN(classes); i++)
		if (!strcmp(classes[i]->name, name)) {
			if (*s->p++ != ':')
				return s->p--, fail(s, "':' and a latency in seconds");
			if (get_real(s, "a latency in seconds", true, &classes[i]->latency_s))
				return -1;
			if (*s->p++ != ',')
				return s->p--, fail(s, "',' and a bandwidth in bytes per second");
			classes[i]->stated = true;
			return get_real(s, "a bandwidth in bytes per second", false,
					&classes[i]->bandwidth_Bps);
		}
	return fail(s, "a class of link (socket, shm, rack, site) before this");
}

/* Index of the kind that a word names; -1 with err. The kind is added if it is missing, unless kinds were
 * given. */
static int get_kind(struct cluster_parser *s, const char *word, int threads)
{
	struct dlb_cluster *c = s->c;
	const char *name = dlb_cluster_kind_name(&c->arena, word, threads), *names[64];
	int n = 0;

	if (!s->kinds_given)
		return dlb_cluster_add_kind(c, word, threads);
	for (int i = 0; i < c->n_kinds; i++) {
		if (!strcmp(c->kind[i].name, name))
			return i;
		if (n < DLB_LEN(names))
			names[n++] = c->kind[i].name;
	}
	dlb_fail(s->err, NULL, "no kind '%s'", name);
	return dlb_hint_nearest(s->err, name, names, n, NULL);
}

static int get_nodes(struct cluster_parser *s, const char *first)
{
	char kind[64], group[64] = "";
	int threads = 1, count = 1;
	double speed = 1.0, memory = 0;
	struct dlb_cluster *c = s->c;

	snprintf(kind, sizeof kind, "%s", first);
	if (*s->p == '=') {
		snprintf(group, sizeof group, "%s", first);
		s->p++;
		if (get_name(s, kind, sizeof kind))
			return -1;
	}
	for (;;) {
		if (*s->p == '/') {
			s->p++;
			if (get_int(s, "a number of threads", MAX_THREADS, &threads))
				return -1;
		} else if (*s->p == ':') {
			s->p++;
			if (get_int(s, "a number of nodes", MAX_NODES, &count))
				return -1;
		} else if (*s->p == '*') {
			s->p++;
			if (get_real(s, "a positive speed", false, &speed))
				return -1;
		} else if (*s->p == '@') {
			s->p++;
			if (get_bytes(s, &memory))
				return -1;
		} else {
			break;
		}
	}
	if (count > MAX_NODES - c->n_nodes)
		return dlb_fail(s->err, NULL, "cluster '%s': more than %d nodes", s->text, MAX_NODES);
	begin_host(s);
	int in = *group ? subgroup(s, group) : s->host, k = get_kind(s, kind, threads);
	if (k < 0)
		return -1;
	for (int i = 0; i < count; i++) {
		int n = dlb_cluster_add_node(c, k, in, c->group[s->host].name, s->devices++);
		c->node[n].speed = speed;
		c->node[n].memory_bytes = memory;
	}
	return 0;
}

static int get_word(struct cluster_parser *s)
{
	const char *at = s->p;
	char word[64];

	if (get_name(s, word, sizeof word))
		return -1;
	if (!strcmp(word, "link") && *s->p == '=') {
		s->p++;
		if (get_link(s))
			return -1;
	} else if (!strcmp(word, "host") && *s->p != '=') {
		if (next_host(s, at))
			return -1;
	} else if (!strcmp(word, "rack") && *s->p != '=') {
		if (next_rack(s, at))
			return -1;
	} else if (get_nodes(s, word)) {
		return -1;
	}
	return 0;
}

static int get_words(struct cluster_parser *s, int depth);

/* Parses COUNT(WORDS): the words COUNT times. Each repetition must add nodes; their limit MAX_NODES bounds
 * the loop. */
static int repeat(struct cluster_parser *s, int depth)
{
	const char *from;
	int count = 0;

	if (get_int(s, "a number of times", MAX_NODES, &count))
		return -1;
	if (*s->p != '(')
		return fail(s, "'(' behind a number of times");
	if (depth == MAX_NESTED)
		return fail(s, "at most 8 brackets in each other");
	from = ++s->p;
	for (int i = 0; i < count; i++) {
		const int n = s->c->n_nodes;

		s->p = from;
		if (get_words(s, depth + 1))
			return -1;
		if (s->c->n_nodes == n)
			return fail(s, "a kind of node such as cpu:2");
		if (*s->p != ')')
			return fail(s, "')'");
	}
	s->p++;
	return 0;
}

/* Parses words up to the end of the text, or up to the bracket that ends the repeated words. */
static int get_words(struct cluster_parser *s, int depth)
{
	for (;;) {
		while (*s->p == ',' || isspace((unsigned char)*s->p))
			s->p++;
		if (!*s->p || (depth && *s->p == ')'))
			return 0;
		if (isdigit((unsigned char)*s->p) ? repeat(s, depth) : get_word(s))
			return -1;
		if (*s->p && *s->p != ',' && !isspace((unsigned char)*s->p) && !(depth && *s->p == ')'))
			return fail(s, "a blank or ','");
	}
}

static int add_link(struct cluster_parser *s, const char *of, const struct dlb_link_class *k,
		    double latency_times)
{
	int l = dlb_cluster_add_link(s->c, dlb_arena_printf(&s->c->arena, "%s:%s", k->name, of), k->name);

	s->c->link[l].latency_s = k->latency_s * latency_times;
	s->c->link[l].bandwidth_Bps = k->bandwidth_Bps;
	s->c->link[l].usual = !k->stated;
	return l;
}

/* Removes the site group if there is only one rack, and the rack group if there is only one host; gives the
 * other groups their links. */
static void finish(struct cluster_parser *s)
{
	struct dlb_cluster *c = s->c;
	int n = 0, *to = dlb_xmalloc((size_t)c->n_groups * sizeof *to);
	bool site = s->n_racks > 1, rack = s->n_hosts > 1;

	for (int i = 0; i < c->n_groups; i++) {
		const char *cls = c->group[i].cls;
		bool keep = (strcmp(cls, "site") || site) && (strcmp(cls, "rack") || rack);
		to[i] = keep ? n++ : -1;
		if (keep) {
			struct dlb_group g = c->group[i];
			/* parents come before their children */
			g.parent = g.parent < 0 ? -1 : to[g.parent];
			c->group[to[i]] = g;
		}
	}
	c->n_groups = n;
	for (int i = 0; i < c->n_nodes; i++)
		c->node[i].group = to[c->node[i].group];
	free(to);
	for (int i = 0; i < n; i++) {
		const char *name = c->group[i].name, *cls = c->group[i].cls;
		int inside = -1, up = -1;
		if (!strcmp(cls, "socket")) {
			inside = add_link(s, name, &s->socket, 1);
		} else if (!strcmp(cls, "host")) {
			inside = add_link(s, name, &s->shm, 1);
			up = c->group[i].parent >= 0 ? add_link(s, name, &s->rack_link, 0.5) : -1;
		} else if (!strcmp(cls, "rack") && c->group[i].parent >= 0) {
			up = add_link(s, name, &s->site_link, 0.5);
		}
		c->group[i].inside = inside;
		c->group[i].up = up;
	}
}

int dlb_cluster_build(struct dlb_cluster *c, const char *text, struct dlb_error *err)
{
	struct cluster_parser s = { .text = text,
				    .p = text,
				    .c = c,
				    .err = err,
				    .kinds_given = c->n_kinds > 0,
				    .site = -1,
				    .rack = -1,
				    .host = -1,
				    .socket = *dlb_link_class_find("socket"),
				    .shm = *dlb_link_class_find("shm"),
				    .rack_link = *dlb_link_class_find("rack"),
				    .site_link = *dlb_link_class_find("site") };

	if (get_words(&s, 0))
		return -1;
	if (!c->n_nodes)
		return fail(&s, "a kind of node such as cpu:2");
	if (s.bare_host || s.bare_rack)
		return fail_bare(&s, s.bare_host ? "host" : "rack", s.p);
	finish(&s);
	return dlb_cluster_check(c, err);
}

int dlb_cluster_parse(const char *text, struct dlb_cluster *c, struct dlb_error *err)
{
	dlb_cluster_init(c);
	if (!dlb_cluster_build(c, text, err))
		return 0;
	dlb_cluster_release(c);
	return -1;
}
