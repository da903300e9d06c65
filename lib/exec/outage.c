/* Nodes and hosts that a run has lost. See outage.h. */
#include "exec/outage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/host_probe.h"
#include "util/clock.h"
#include "util/mem.h"

#define SUSPECT_S 3.0			/* least time to answer for a host whose ranks are all silent */
#define OTHER_S 15.0			/* time to answer for other hosts, which may only be busy */
enum { MOST_DOUBLINGS = 10 };

struct place { bool lost; char why[300]; };		/* a host */
/* due_s: when to check the node again; returns: how often it was put back */
struct node { double due_s; int returns; };

struct dlb_outage {
	struct dlb_outage_options options;
	int n_hosts;				/* of options.hosts; 0: this host alone */
	bool *lost, *back; struct node *node;	/* [n] */
	const struct dlb_host **place;		/* [n] */
	struct place *host;			/* [n_hosts] */
	char *jobs;				/* ids of the ended jobs, "12,34"; NULL: none known */
	struct dlb_host_probe *probe; int *asked, n_asked;	/* asked: the probe's hosts */
};

static const struct dlb_host *host_at(const struct dlb_outage *o, int h)
{
	return &o->options.hosts->cluster.host[h];
}

/* The host of a node, -1: there are none. */
static int host_of(const struct dlb_outage *o, int node)
{
	return o->n_hosts ? (int)(o->options.hosts->rank[node] - o->options.hosts->cluster.host) : -1;
}

/* Places each rank on its node's host or, if that is lost, on the first remaining host. */
static void set_places(struct dlb_outage *o)
{
	const struct dlb_host *first = NULL;

	for (int i = 0; i < o->options.n && o->n_hosts && !first; i++)
		first = o->host[host_of(o, i)].lost ? NULL : host_at(o, host_of(o, i));
	for (int i = 0; i < o->options.n && first; i++)
		o->place[i] = o->host[host_of(o, i)].lost ? first : host_at(o, host_of(o, i));
}

struct dlb_outage *dlb_outage_new(const struct dlb_outage_options *options)
{
	struct dlb_outage *o = dlb_xcalloc(1, sizeof *o);
	const size_t n = (size_t)options->n + 1;

	o->options = *options;
	o->n_hosts = options->hosts->rank ? options->hosts->cluster.n_hosts : 0;
	o->lost = dlb_xcalloc(n, sizeof *o->lost);
	o->back = dlb_xcalloc(n, sizeof *o->back);
	o->node = dlb_xcalloc(n, sizeof *o->node);
	o->place = dlb_xcalloc(n, sizeof *o->place);
	o->host = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *o->host);
	o->asked = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *o->asked);
	set_places(o);
	return o;
}

/* ---- asking hosts ---- */

/* Whether host h has nodes of the plan and all of them are set in node[]. */
static bool has_only(const struct dlb_outage *o, int h, const bool *node)
{
	bool any = false;

	for (int i = 0; i < o->options.n; i++) {
		if (host_of(o, i) != h)
			continue;
		if (!node[i])
			return false;
		any = true;
	}
	return any;
}

static bool has_nodes(const struct dlb_outage *o, int h)
{
	int i = 0;

	while (i < o->options.n && host_of(o, i) != h)
		i++;
	return i < o->options.n;
}

/* Seconds in which a host that is thought dead must answer. */
static double suspect_s(const struct dlb_outage *o)
{
	return o->options.heartbeat_s > SUSPECT_S ? o->options.heartbeat_s : SUSPECT_S;
}

/* Starts a probe of the hosts with limit_s[h] > 0. */
static void ask(struct dlb_outage *o, const double *limit_s)
{
	const struct dlb_host **host = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *host);
	double *limit = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *limit);
	struct dlb_error ignored;

	o->n_asked = 0;
	for (int h = 0; h < o->n_hosts; h++) {
		if (!(limit_s[h] > 0))
			continue;
		host[o->n_asked] = host_at(o, h);
		limit[o->n_asked] = limit_s[h];
		o->asked[o->n_asked++] = h;
	}
	/* without room for the probe's files the restart fails too and reports this */
	if (o->n_asked)
		o->probe = dlb_host_probe_new(o->options.tool, host, limit, o->n_asked,
					      o->options.hosts->allocated, o->jobs ? o->jobs : "-", &ignored);
	free(host);
	free(limit);
}

static void stop_asking(struct dlb_outage *o)
{
	dlb_host_probe_free(o->probe);
	o->probe = NULL;
}

/* Appends "lost host a (nodes 1, 3): it does not answer within 3 s" to *line. */
static void add_line(const struct dlb_outage *o, int h, char **line)
{
	char *before = *line, *nodes = NULL;
	int n = 0;

	for (int i = 0; i < o->options.n; i++) {
		char *longer;

		if (host_of(o, i) != h)
			continue;
		longer = dlb_xprintf("%s%s%d", nodes ? nodes : "", n++ ? ", " : "", i);
		free(nodes);
		nodes = longer;
	}
	*line = dlb_xprintf("%s%slost host %s (node%s %s): %s", before ? before : "", before ? "; " : "",
			    host_at(o, h)->name, n == 1 ? "" : "s", nodes, o->host[h].why);
	free(before);
	free(nodes);
}

/* Counts node i as lost from now on. */
static void lose(struct dlb_outage *o, int i, double now_s)
{
	struct node *d = &o->node[i];

	if (o->lost[i])
		return;
	o->lost[i] = true;
	d->due_s = now_s + o->options.rejoin_s *
				   ldexp(1.0, d->returns < MOST_DOUBLINGS ? d->returns : MOST_DOUBLINGS);
}

char *dlb_outage_happened(struct dlb_outage *o, struct dlb_launch_end *end)
{
	double *limit_s = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *limit_s);
	char *line = NULL;
	const char *why;

	for (int h = 0; h < o->n_hosts; h++) {
		const bool suspect = (end->silent && has_only(o, h, end->lost_node)) ||
				     !strcmp(end->lost_host, host_at(o, h)->name) ||
				     !strcmp(end->lost_host, host_at(o, h)->address);

		limit_s[h] = o->host[h].lost || !has_nodes(o, h) ? 0 : suspect ? suspect_s(o) : OTHER_S;
	}
	ask(o, limit_s);
	if (o->probe)
		dlb_host_probe_wait(o->probe);
	for (int k = 0; k < o->n_asked && o->probe; k++) {
		const int h = o->asked[k];

		if (dlb_host_probe_answers(o->probe, k, &why))
			continue;
		o->host[h].lost = true;
		snprintf(o->host[h].why, sizeof o->host[h].why, "%s", why);
		for (int i = 0; i < o->options.n; i++) {
			end->n_lost += host_of(o, i) == h && !end->lost_node[i];
			end->lost_node[i] |= host_of(o, i) == h;
		}
		add_line(o, h, &line);
	}
	stop_asking(o);
	free(limit_s);
	for (int i = 0; i < o->options.n; i++)
		if (end->lost_node[i])
			lose(o, i, dlb_clock_s());
	set_places(o);
	return line;
}

/* ---- lost nodes and hosts ---- */

const bool *dlb_outage_lost(const struct dlb_outage *o)
{
	return o->lost;
}

const char *dlb_outage_reason(const struct dlb_outage *o, int node)
{
	const int h = host_of(o, node);

	return h >= 0 && o->host[h].lost ? o->host[h].why : NULL;
}

const struct dlb_host *dlb_outage_home(const struct dlb_outage *o, int node)
{
	return host_at(o, host_of(o, node));
}

const struct dlb_host *const *dlb_outage_places(const struct dlb_outage *o, bool *crowded)
{
	*crowded = false;
	for (int i = 0; i < o->options.n && o->n_hosts; i++)
		*crowded |= o->host[host_of(o, i)].lost;
	return o->n_hosts ? o->place : NULL;
}

/* ---- checking lost nodes ---- */

/* Marks the lost nodes that can be put back: those that are due and whose host is not lost or answers.
 * Returns whether there are any. */
static bool note_answers(struct dlb_outage *o, double now_s)
{
	bool *answers = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *answers), any = false;
	const char *why;

	for (int k = 0; k < o->n_asked && o->probe; k++)
		answers[o->asked[k]] = dlb_host_probe_answers(o->probe, k, &why);
	for (int i = 0; i < o->options.n; i++) {
		const int h = host_of(o, i);

		if (!o->lost[i] || o->node[i].due_s > now_s)
			continue;
		o->back[i] = h < 0 || !o->host[h].lost || answers[h];
		any |= o->back[i];
		if (!o->back[i])
			o->node[i].due_s = now_s + o->options.rejoin_s;
	}
	free(answers);
	return any;
}

bool dlb_outage_look(void *ctx)
{
	struct dlb_outage *o = ctx;
	const double now_s = dlb_clock_s();
	double *limit_s;
	bool due = false, any;

	if (!o->options.rejoin_s || (o->probe && !dlb_host_probe_poll(o->probe)))
		return false;
	if (!o->probe) {
		memset(o->back, 0, (size_t)o->options.n * sizeof *o->back);
		limit_s = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *limit_s);
		for (int i = 0; i < o->options.n; i++) {
			const int h = host_of(o, i);

			if (!o->lost[i] || o->node[i].due_s > now_s)
				continue;
			due = true;
			if (h >= 0 && o->host[h].lost)
				limit_s[h] = OTHER_S;
		}
		ask(o, limit_s);
		free(limit_s);
		if (!due || o->probe)
			return false;
	}
	any = note_answers(o, now_s);
	stop_asking(o);
	return any;
}

void dlb_outage_ended(struct dlb_outage *o, unsigned long job)
{
	char *jobs = o->jobs;

	stop_asking(o);
	if (!job)
		return;
	o->jobs = dlb_xprintf("%s%s%lu", jobs ? jobs : "", jobs ? "," : "", job);
	free(jobs);
}

int dlb_outage_put_back(struct dlb_outage *o, const bool **back)
{
	int n = 0;

	for (int i = 0; i < o->options.n; i++) {
		const int h = host_of(o, i);

		if (!o->back[i])
			continue;
		n++;
		o->lost[i] = false;
		o->node[i].returns++;
		if (h >= 0)
			o->host[h].lost = false;
	}
	set_places(o);
	*back = o->back;
	return n;
}

/* On lost hosts that answer now, ends processes of former jobs and removes copies; failed: also removes
 * copies on the other hosts. */
static void clean(struct dlb_outage *o, bool failed)
{
	const bool all = failed && o->options.copies;
	double *limit_s = dlb_xcalloc((size_t)o->n_hosts + 1, sizeof *limit_s);
	char *jobs = o->jobs;

	for (int h = 0; h < o->n_hosts; h++)
		limit_s[h] = o->host[h].lost || (all && has_nodes(o, h)) ? suspect_s(o) : 0;
	if (o->options.copies) {
		o->jobs = dlb_xprintf("%s" DLB_HOST_COPIES "%s", jobs ? jobs : "-", o->options.copies);
		free(jobs);
	}
	ask(o, limit_s);
	if (o->probe)
		dlb_host_probe_wait(o->probe);
	stop_asking(o);
	free(limit_s);
}

void dlb_outage_free(struct dlb_outage *o, bool failed)
{
	stop_asking(o);
	clean(o, failed);
	free(o->lost);
	free(o->back);
	free(o->node);
	free(o->place);
	free(o->host);
	free(o->asked);
	free(o->jobs);
	free(o);
}
