/* dlb-place --offload: which optimizer states are kept in another memory. See replan_offload.h. */
#include <stdlib.h>
#include <string.h>
#include "balance/replan_offload.h"
#include "place/make.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/value.h"
#include "plan/offload.h"
#include "plan/schedule.h"
#include "util/patterns.h"

static bool is_word(const struct dlb_strlist *l, const char *word)
{
	return l->n == 1 && !strcmp(l->item[0], word);
}

int dlb_replan_check_offload(const struct dlb_replan *o)
{
	for (int i = 0; i < o->offload.n; i++) {
		const char *item = o->offload.item[i], *equals = strrchr(item, '=');

		if (is_word(&o->offload, "none") || is_word(&o->offload, "auto"))
			return 0;
		if (!strcmp(item, "none") || !strcmp(item, "auto"))
			return dlb_cli_usage(o->cli, "--offload %s excludes another --offload", item);
		if (!equals || equals == item || !equals[1])
			return dlb_cli_usage(o->cli, "--offload wants none, auto or GLOB=MEMORY, not '%s'",
					     item);
	}
	return 0;
}

/* Each pattern names a weight that is trained. */
static int check_patterns(const struct dlb_graph *g, const struct dlb_offload *x, struct dlb_error *err)
{
	const char **name = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *name),
		   **pattern = dlb_xcalloc((size_t)x->n + 1, sizeof *pattern);
	const struct dlb_patterns p = { "--offload", pattern, x->n };
	int n = 0, rc;

	for (int t = 0; t < g->n_tensors; t++)
		if ((name[n] = dlb_offload_name(g, t)) != NULL)
			n++;
	for (int i = 0; i < x->n; i++)
		pattern[i] = x->rule[i].pattern;
	rc = dlb_patterns_check(&p, name, n, err);
	free(name);
	free(pattern);
	return rc;
}

/* Each memory is one that some node has. */
static int check_memories(const struct dlb_cluster *c, const struct dlb_offload *x, struct dlb_error *err)
{
	for (int i = 0; i < x->n; i++) {
		int node = 0;

		while (node < c->n_nodes && dlb_offload_memory(c, node, x->rule[i].memory) < 0)
			node++;
		if (node == c->n_nodes)
			return dlb_refuse(
				err, NULL,
				"dlb-profile --cluster --memory NAME=FOLDER adds one that is a file",
				"--offload: no node has a memory '%s'", x->rule[i].memory);
	}
	return 0;
}

int dlb_replan_find_offload(struct replan_input *in, const struct dlb_schedule *schedule,
			    struct dlb_error *err)
{
	const struct dlb_strlist *asked = &in->options->offload;
	struct dlb_offload_rule *rule;

	in->offload = (struct dlb_offload){ .n = 0 };
	if (!asked->n) {
		in->offload = in->plan.offload;
		return 0;
	}
	in->offload.chosen = is_word(asked, "auto");
	if (in->offload.chosen || is_word(asked, "none"))
		return 0;
	in->offload.rule = rule = dlb_arena_array(&in->arena, (size_t)asked->n, sizeof *rule);
	for (in->offload.n = 0; in->offload.n < asked->n; in->offload.n++) {
		char *pattern = dlb_arena_strdup(&in->arena, asked->item[in->offload.n]),
		     *equals = strrchr(pattern, '=');

		*equals = '\0';
		rule[in->offload.n] = (struct dlb_offload_rule){ pattern, equals + 1 };
	}
	if (schedule->async)
		return dlb_refuse(
			err, NULL, "choose another schedule, or --offload none",
			"--offload: under an asynchronous schedule updates of several steps overlap");
	return check_patterns(&in->graph, &in->offload, err) ||
			       check_memories(&in->cluster, &in->offload, err) ?
		       -1 :
		       0;
}

/* ---- auto ---- */

/* The fastest memory that all nodes have for offloaded states, by name; NULL: none. */
static const char *fastest(const struct dlb_cluster *c)
{
	const char *best = NULL;
	double best_Bps = -1;

	for (int i = 0; i < c->n_memories; i++) {
		const double Bps = c->memory[i].bandwidth_Bps > 0 ? c->memory[i].bandwidth_Bps : 0;
		bool fits = true;

		for (int node = 0; node < c->n_nodes && fits; node++)
			fits = dlb_offload_takes(c, node, &c->memory[i]);
		if (fits && Bps > best_Bps) {
			best = c->memory[i].name;
			best_Bps = Bps;
		}
	}
	return best;
}

struct weight {
	const char *name;
	double bytes;
};

static int by_bytes(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* A rule for each weight that is trained, the largest first; in in->arena. Parts of a weight are one. */
static int list_weights(struct replan_input *in, const char *memory, struct dlb_offload_rule **rule)
{
	const struct dlb_graph *g = &in->graph;
	struct weight *w = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *w);
	int n = 0, kept = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if ((w[n].name = dlb_offload_name(g, t)) != NULL)
			w[n++].bytes = dlb_tensor_bytes(&g->tensor[t], 1);
	qsort(w, (size_t)n, sizeof *w, by_bytes);
	*rule = dlb_arena_array(&in->arena, (size_t)n + 1, sizeof **rule);
	for (int i = 0; i < n; i++)
		if (!kept || strcmp((*rule)[kept - 1].pattern, w[i].name))
			(*rule)[kept++] = (struct dlb_offload_rule){ w[i].name, memory };
	free(w);
	return kept;
}

/* The least number of rules of `all` with which the placement fits. p: a problem that has all of them. */
static int least_rules(const struct dlb_problem *p, struct dlb_offload *all, const int *placement)
{
	int lo = 0, hi = all->n;

	while (hi - lo > 1) {
		all->n = lo + (hi - lo) / 2;
		*(dlb_place_lack_bytes(p, placement) > 0 ? &lo : &hi) = all->n;
	}
	return hi;
}

/* Offloads as few of the states as the placement of *plan needs. */
static void offload_less(const struct dlb_problem *p, struct dlb_offload *all, struct dlb_plan *plan)
{
	all->n = least_rules(p, all, plan->placement);
	dlb_plan_remake(p, plan, NULL);
}

int dlb_replan_offloading(struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			  struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_offload asked = { .chosen = true };
	struct dlb_offload_rule *rule;
	struct dlb_problem q = *p;
	int rc = -1;

	if (!p->offload || !p->offload->chosen)
		return make(in, p, plan, err);
	for (int offloads = 0; offloads < 2; offloads++) {
		const char *memory = offloads ? fastest(p->cluster) : NULL;

		if (offloads &&
		    (dlb_error_status(err) != 1 || dlb_problem_is_limited(p) || !p->n_state || !memory))
			break;
		if (offloads) {
			asked.n = list_weights(in, memory, &rule);
			asked.rule = rule;
		}
		q = *p;
		q.offload = &asked;
		if (dlb_problem_init(&q, err))
			return -1;
		rc = make(in, &q, plan, err);
		if (!rc && offloads && plan->n_replicas < 2)
			offload_less(&q, &asked, plan);
		dlb_problem_release(&q);
		if (!rc)
			break;
	}
	return rc;
}
