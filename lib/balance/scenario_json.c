/* Reads a scenario. See scenario.h. */
#include <stdlib.h>
#include <string.h>
#include "balance/scenario.h"
#include "util/input.h"

enum { NODE = 1, ANY_NODE = 2, LINK = 4, VALUE = 8, ROUNDS = 16, BACK = 32 };
enum { MOST_ROUNDS = 1 << 30 };

/* The members of each kind of event beside `event` and `round`. */
static const struct event_kind {
	const char *name;
	int members;
	const char *value; /* name of the value, and its range */
	double least, most;
} kinds[DLB_N_SCENARIO] = {
	[DLB_SCENARIO_NOISE] = { "noise", ANY_NODE | VALUE | ROUNDS, "spread", 0, 3 },
	[DLB_SCENARIO_DRIFT] = { "drift", NODE | VALUE | ROUNDS, "factor", 0.1, 10 },
	[DLB_SCENARIO_STRAGGLER] = { "straggler", NODE | VALUE | ROUNDS, "factor", 1e-3, 1e6 },
	[DLB_SCENARIO_FAILURE] = { "failure", NODE | BACK, NULL, 0, 0 },
	[DLB_SCENARIO_LINK] = { "link", LINK | VALUE | ROUNDS, "factor", 1e-6, 1e3 },
};

static int find_kind(const struct dlb_ref *r, const char *name, struct dlb_error *err)
{
	const char *names[DLB_N_SCENARIO];

	for (int i = 0; i < DLB_N_SCENARIO; i++) {
		if (!strcmp(name, kinds[i].name))
			return i;
		names[i] = kinds[i].name;
	}
	dlb_ref_fail(r, err, "no event '%.60s'", name);
	return dlb_hint_nearest(err, name, names, DLB_N_SCENARIO,
				"there are noise, drift, straggler, failure and link");
}

/* Reads a link, given by number or by name. */
static int read_link(const struct dlb_ref *r, const struct dlb_cluster *cl, int *link, struct dlb_error *err)
{
	struct dlb_ref v = dlb_ref_at(r, "link");
	int64_t number = -1;

	if (!json_is_string(v.v)) {
		if (dlb_get_int(r, "link", DLB_NEED, 0, cl->n_links - 1, &number, err))
			return -1;
		*link = (int)number;
		return 0;
	}
	for (int i = 0; i < cl->n_links; i++)
		if (cl->link[i].name && !strcmp(cl->link[i].name, json_string_value(v.v))) {
			*link = i;
			return 0;
		}
	return dlb_ref_fail(&v, err, "the cluster has no link '%.60s'", json_string_value(v.v));
}

static int known_members(const struct dlb_ref *r, const struct event_kind *k, struct dlb_error *err)
{
	const char *known[8];
	int n = 0;

	known[n++] = "event";
	known[n++] = "round";
	if (k->members & (NODE | ANY_NODE))
		known[n++] = "node";
	if (k->members & LINK)
		known[n++] = "link";
	if (k->members & VALUE)
		known[n++] = k->value;
	if (k->members & ROUNDS)
		known[n++] = "rounds";
	if (k->members & BACK)
		known[n++] = "back";
	known[n] = NULL;
	return dlb_ref_known(r, known, err);
}

static int read_event(const struct dlb_ref *r, const struct dlb_cluster *cl, struct dlb_scenario_event *e,
		      struct dlb_error *err)
{
	const char *name = NULL;
	int64_t rounds = MOST_ROUNDS, back = MOST_ROUNDS, node = -1;
	int kind;

	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	if (dlb_get_str(r, "event", DLB_NEED, &name, err) || (kind = find_kind(r, name, err)) < 0)
		return -1;
	const struct event_kind *k = &kinds[kind];

	*e = (struct dlb_scenario_event){ .kind = (enum dlb_scenario_kind)kind, .at = -1, .value = 1 };
	if (known_members(r, k, err) || dlb_get_int(r, "round", DLB_NEED, 1, MOST_ROUNDS, &e->first, err))
		return -1;
	if (((k->members & (NODE | ANY_NODE)) &&
	     dlb_get_int(r, "node", k->members & NODE ? DLB_NEED : DLB_OPT, 0, cl->n_nodes - 1, &node,
			 err)) ||
	    ((k->members & VALUE) &&
	     dlb_get_real(r, k->value, DLB_NEED, k->least, k->most, &e->value, err)) ||
	    ((k->members & ROUNDS) && dlb_get_int(r, "rounds", DLB_OPT, 1, MOST_ROUNDS, &rounds, err)) ||
	    ((k->members & BACK) && dlb_get_int(r, "back", DLB_OPT, e->first + 1, MOST_ROUNDS, &back, err)))
		return -1;
	e->at = (int)node;
	e->last = (k->members & BACK ? back : e->first + rounds) - 1;
	return k->members & LINK ? read_link(r, cl, &e->at, err) : 0;
}

static int read_compare(const struct dlb_ref *r, struct dlb_scenario *s, struct dlb_error *err)
{
	static const char *const usual[] = { "even", "start" };
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(r, "compare", DLB_OPT, &list, &n, err))
		return -1;
	n = list.v ? n : DLB_LEN(usual);
	s->compare = dlb_arena_array(&s->arena, (size_t)n + 1, sizeof *s->compare);
	for (s->n_compare = 0; s->n_compare < n; s->n_compare++) {
		struct dlb_ref e = dlb_ref_index(&list, s->n_compare);
		const char *name = list.v ? json_string_value(e.v) : usual[s->n_compare];
		const struct dlb_scenario_way *w = &dlb_scenario_ways[1];

		while (w->name && (!name || strcmp(w->name, name)))
			w++;
		if (!w->name)
			return dlb_ref_fail(&e, err, "must be \"even\", \"start\" or \"patent\"");
		s->compare[s->n_compare] = w->name;
	}
	return 0;
}

static int read_scenario(const struct dlb_ref *r, const struct dlb_cluster *cl, struct dlb_scenario *s,
			 struct dlb_error *err)
{
	static const char *const known[] = { "seed", "compare", "events", NULL };
	struct dlb_ref list;
	int64_t seed = 1;
	int n = 0;

	if (dlb_ref_known(r, known, err) || dlb_get_int(r, "seed", DLB_OPT, 0, INT64_MAX, &seed, err) ||
	    read_compare(r, s, err) || dlb_get_array(r, "events", DLB_NEED, &list, &n, err))
		return -1;
	s->seed = (uint64_t)seed;
	s->event = dlb_arena_array(&s->arena, (size_t)n + 1, sizeof *s->event);
	for (s->n = 0; s->n < n; s->n++) {
		struct dlb_ref e = dlb_ref_index(&list, s->n);

		if (read_event(&e, cl, &s->event[s->n], err))
			return -1;
	}
	return 0;
}

int dlb_scenario_read(const char *path, const struct dlb_cluster *cl, struct dlb_scenario *s,
		      struct dlb_error *err)
{
	struct dlb_ref root = { .index = -1, .doc = path };
	char *text, where[300];
	json_error_t e;
	size_t n;
	int rc;

	*s = (struct dlb_scenario){ .n = 0 };
	if (dlb_input_read_text(path, '{', &text, &n, err))
		return -1;
	root.v = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	free(text);
	if (!root.v) {
		snprintf(where, sizeof where, "%.200s:%d:%d", path, e.line, e.column);
		return dlb_fail(err, where, "%s", e.text);
	}
	rc = read_scenario(&root, cl, s, err);
	json_decref((json_t *)(uintptr_t)root.v);
	if (rc)
		dlb_scenario_release(s);
	return rc;
}

void dlb_scenario_release(struct dlb_scenario *s)
{
	dlb_arena_release(&s->arena);
	memset(s, 0, sizeof *s);
}
