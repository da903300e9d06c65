/* dlb-place --offload: tensors kept in another memory. See replan_offload.h. */
#include <stdlib.h>
#include <string.h>
#include "balance/replan_offload.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/value.h"
#include "plan/again.h"
#include "plan/offload.h"
#include "plan/schedule.h"
#include "util/patterns.h"

/* most rules of single ops, since each is compared with the names of all ops */
enum { MOST_RULES = 256 };
#define AS_FAST 1e-3	/* a step longer by this fraction counts as equally fast */
#define SEARCH_GAIN 1.25	/* factor by which a search may shorten the step of a draft */

static bool is_word(const struct dlb_strlist *l, const char *word)
{
	return l->n == 1 && !strcmp(l->item[0], word);
}

/* The word with which patterns of a kind begin; "" for states. */
static const char *const word_of[DLB_N_OFFLOAD_KINDS] = { [DLB_OFFLOAD_STATES] = "",
							  [DLB_OFFLOAD_WEIGHTS] = "weights:",
							  [DLB_OFFLOAD_ACTIVATIONS] = "activations:" };

static enum dlb_offload_kind kind_of(const char *item)
{
	enum dlb_offload_kind kind = DLB_N_OFFLOAD_KINDS - 1;

	while (strncmp(item, word_of[kind], strlen(word_of[kind])))
		kind--;
	return kind;
}

/* The pattern of an item, and the rest of the item. */
static const char *names_of(const char *item) { return item + strlen(word_of[kind_of(item)]); }

int dlb_replan_check_offload(const struct dlb_replan *o)
{
	for (int i = 0; i < o->offload.n; i++) {
		const char *item = o->offload.item[i], *equals = strrchr(item, '=');

		if (is_word(&o->offload, "none") || is_word(&o->offload, "auto"))
			return 0;
		if (!strcmp(item, "none") || !strcmp(item, "auto"))
			return dlb_cli_usage(o->cli, "--offload %s excludes another --offload", item);
		if (!equals || equals == names_of(item) || !equals[1])
			return dlb_cli_usage(
				o->cli,
				"--offload wants none, auto or [weights:|activations:]GLOB=MEMORY, "
				"not '%s'",
				item);
	}
	return 0;
}

/* Checks that each pattern of a kind, states or weights, names a weight that may be offloaded. */
static int check_patterns(const struct dlb_graph *g, const struct dlb_offload *x, enum dlb_offload_kind kind,
			  struct dlb_error *err)
{
	const char **name = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *name),
		   **pattern = dlb_xcalloc((size_t)x->n + 1, sizeof *pattern);
	struct dlb_patterns p = { "--offload", pattern, 0 };
	int n = 0, rc;

	for (int t = 0; t < g->n_tensors; t++)
		if ((name[n] = dlb_offload_name(g, kind, t)) != NULL)
			n++;
	for (int i = 0; i < x->n; i++)
		if (x->rule[i].kind == kind)
			pattern[p.n++] = x->rule[i].pattern;
	rc = dlb_patterns_check(&p, name, n, err);
	free(name);
	free(pattern);
	return rc;
}

/* Checks that each pattern of activations names an op with an output that the backward phase reads, or such
 * an output. */
static int check_ops(const struct dlb_graph *g, const struct dlb_offload *x, struct dlb_error *err)
{
	for (int i = 0; i < x->n; i++) {
		const struct dlb_offload one = { .rule = &x->rule[i], .n = 1 };
		const char **name;
		int op = 0, n = 0;

		if (x->rule[i].kind != DLB_OFFLOAD_ACTIVATIONS)
			continue;
		while (op < g->n_ops && dlb_offload_rule_of_op(&one, g, op) < 0)
			op++;
		if (op < g->n_ops)
			continue;
		dlb_fail(err, NULL,
			 "--offload: no op matches '%s' that has an output which the backward phase reads",
			 x->rule[i].pattern);
		name = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *name);
		for (op = 0; op < g->n_ops; op++)
			if (g->op[op].phase == DLB_FORWARD && dlb_op_has_backward_use(g, op))
				name[n++] = g->op[op].name;
		dlb_hint_nearest(err, x->rule[i].pattern, name, n, NULL);
		free(name);
		return -1;
	}
	return 0;
}

/* Checks that some node has each memory. */
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
		const char *item = asked->item[in->offload.n];
		char *pattern = dlb_arena_strdup(&in->arena, names_of(item)), *equals = strrchr(pattern, '=');

		*equals = '\0';
		rule[in->offload.n] = (struct dlb_offload_rule){ pattern, equals + 1, kind_of(item) };
	}
	if (schedule->async)
		return dlb_refuse(
			err, NULL, "choose another schedule, or --offload none",
			"--offload: under an asynchronous schedule updates of several steps overlap");
	return check_patterns(&in->graph, &in->offload, DLB_OFFLOAD_STATES, err) ||
			       check_patterns(&in->graph, &in->offload, DLB_OFFLOAD_WEIGHTS, err) ||
			       check_ops(&in->graph, &in->offload, err) ||
			       check_memories(&in->cluster, &in->offload, err) ?
		       -1 :
		       0;
}

/* ---- auto ---- */

/* The name of the fastest memory to which all nodes can offload; NULL: none. */
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

/* A weight, or an op whose outputs the backward phase reads. */
struct item {
	const char *name;
	double bytes;
};

static int by_bytes(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Appends a rule for each item, the largest first; of many ops only for the largest. Items of one name share
 * a rule. */
static void add_rules(struct item *x, int n, const char *memory, enum dlb_offload_kind kind,
		      struct dlb_offload_rule *rule, int *n_rules)
{
	qsort(x, (size_t)n, sizeof *x, by_bytes);
	for (int i = 0; i < n && (kind != DLB_OFFLOAD_ACTIVATIONS || i < MOST_RULES); i++)
		if (!i || strcmp(x[i - 1].name, x[i].name))
			rule[(*n_rules)++] = (struct dlb_offload_rule){ x[i].name, memory, kind };
}

/* Lists the weights for which rules of a kind hold; parts of a weight have its name. Returns their number. */
static int list_weights(const struct dlb_graph *g, enum dlb_offload_kind kind, struct item *x)
{
	int n = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if ((x[n].name = dlb_offload_name(g, kind, t)) != NULL)
			x[n++].bytes = dlb_tensor_bytes(&g->tensor[t], 1);
	return n;
}

/* Lists the ops of which the backward phase reads an output. Returns their number. */
static int list_ops(const struct dlb_graph *g, struct item *x)
{
	static const struct dlb_offload_rule any = { "*", NULL, DLB_OFFLOAD_ACTIVATIONS };
	static const struct dlb_offload all = { .rule = &any, .n = 1 };
	int n = 0;

	for (int i = 0; i < g->n_ops; i++) {
		if (dlb_offload_rule_of_op(&all, g, i) < 0)
			continue;
		x[n] = (struct item){ g->op[i].name, 0 };
		for (int k = 0; k < g->op[i].n_out; k++)
			x[n].bytes += g->op[i].out[k] < 0 ? 0 :
							    dlb_tensor_bytes(&g->tensor[g->op[i].out[k]], 1);
		n++;
	}
	return n;
}

/* Levels of --offload auto. Each level adds tensors that are copied more often: optimizer states once per
 * step, activations once per micro-batch, weights for each phase of a micro-batch. */
enum level { NOTHING, STATES, ACTIVATIONS, WEIGHTS, N_LEVELS };

/* Sets *to to the rules of a level, in in->arena: of states (none if the optimizer has none), of activations,
 * of weights; of each kind the largest come first. One rule names all activations; one_by_one: rules of
 * single ops precede it. */
static void list_rules(struct replan_input *in, const struct dlb_problem *p, enum level level,
		       const char *memory, bool one_by_one, struct dlb_offload *to)
{
	const struct dlb_graph *g = &in->graph;
	const size_t most = 2 * (size_t)g->n_tensors + (size_t)g->n_ops + 2;
	struct item *x = dlb_xcalloc(most, sizeof *x);
	struct dlb_offload_rule *rule = dlb_arena_array(&in->arena, most, sizeof *rule);

	*to = (struct dlb_offload){ .chosen = true, .rule = rule };
	if (level >= STATES && p->n_state)
		add_rules(x, list_weights(g, DLB_OFFLOAD_STATES, x), memory, DLB_OFFLOAD_STATES, rule, &to->n);
	if (level >= ACTIVATIONS && one_by_one)
		add_rules(x, list_ops(g, x), memory, DLB_OFFLOAD_ACTIVATIONS, rule, &to->n);
	if (level >= ACTIVATIONS)
		rule[to->n++] = (struct dlb_offload_rule){ "*", memory, DLB_OFFLOAD_ACTIVATIONS };
	if (level >= WEIGHTS)
		add_rules(x, list_weights(g, DLB_OFFLOAD_WEIGHTS, x), memory, DLB_OFFLOAD_WEIGHTS, rule, &to->n);
	free(x);
}

/* The least number of rules of `all`, from the first on, with which the placement fits. p: a problem that
 * borrows `all`. Changes all->n. */
static int least_rules(const struct dlb_problem *p, struct dlb_offload *all, const int *placement)
{
	int lo = 0, hi = all->n;

	while (hi - lo > 1) {
		all->n = lo + (hi - lo) / 2;
		*(dlb_place_lack_bytes(p, placement) > 0 ? &lo : &hi) = all->n;
	}
	return hi;
}

/* Whether the first rules of q->offload give the placement of *plan a step that is not slower. */
static bool is_as_fast(const struct dlb_problem *q, const struct dlb_plan *plan)
{
	struct dlb_plan less;

	if (dlb_plan_make(q, plan->placement, &less, NULL, NULL))
		return false;
	const bool as_fast = less.value_s <= plan->value_s * (1 + AS_FAST);
	dlb_plan_release(&less);
	return as_fast;
}

/* Offloads as little as the placement of *plan needs to be as fast, with no op that runs again where *plan
 * has none. q: its problem; all: the level's rules one by one. */
static void offload_less(struct dlb_problem *q, struct dlb_offload *all, struct dlb_plan *plan)
{
	const struct dlb_recompute asked = plan->recompute;
	const int most = all->n;

	if (!dlb_plan_runs_any_again(plan))
		q->recompute = NULL;
	q->offload = all;
	all->n = least_rules(q, all, plan->placement);
	while (all->n < most && !is_as_fast(q, plan))
		all->n += (most - all->n + 1) / 2;
	dlb_plan_remake(q, plan, NULL);
	plan->recompute = asked;
}

/* Makes a plan of the level. 0; -1 with err. */
static int make_level(struct replan_input *in, const struct dlb_problem *p, enum level level,
		      const char *memory, dlb_replan_maker *make, struct dlb_plan *plan,
		      struct dlb_error *err)
{
	struct dlb_offload rules, one_by_one;
	struct dlb_problem q = *p;
	int rc;

	list_rules(in, p, level, memory, false, &rules);
	q.offload = &rules;
	if (dlb_problem_init(&q, err))
		return -1;
	if (q.scarce)
		*q.scarce |= dlb_draft_may_lack(&q);
	rc = make(in, &q, plan, err);
	if (!rc && level > NOTHING && plan->n_replicas < 2 && !dlb_problem_is_limited(p)) {
		list_rules(in, p, level, memory, true, &one_by_one);
		offload_less(&q, &one_by_one, plan);
	}
	dlb_problem_release(&q);
	return rc;
}

/* Replaces *plan by `one` if there is none or `one` is faster; else releases `one`. *rc: 0 if there is a
 * plan; becomes 0. */
static void take_faster(struct dlb_plan *plan, struct dlb_plan *one, int *rc)
{
	if (*rc || one->value_s < plan->value_s) {
		if (!*rc)
			dlb_plan_release(plan);
		*plan = *one;
	} else {
		dlb_plan_release(one);
	}
	*rc = 0;
}

/* Whether a plan of the level may be faster than *plan: a draft decides, which a search may improve. */
static bool may_be_faster(struct replan_input *in, const struct dlb_problem *p, enum level level,
			  const char *memory, dlb_replan_maker *make, const struct dlb_plan *plan)
{
	struct dlb_problem draft = *p;
	struct dlb_plan one = { .n_ops = 0 };

	draft.draft = true;
	draft.below_s = plan->value_s * SEARCH_GAIN;
	draft.first = plan->n_replicas < 2 ? plan->placement : NULL;
	if (make_level(in, &draft, level, memory, make, &one, NULL))
		return false;
	const bool near = one.value_s < draft.below_s;
	dlb_plan_release(&one);
	return near;
}

/* The next level is tried while no plan fits, or only one in which ops run again, since offloading may be
 * faster. If memory is scarce, it may let ops go to nodes that they did not fit on. */
int dlb_replan_offloading(struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			  struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_problem watched = *p;
	bool scarce = false;
	int rc = -1;

	if (!p->offload || !p->offload->chosen)
		return make(in, p, plan, err);
	const char *memory = fastest(p->cluster);

	watched.scarce = &scarce;
	for (enum level level = NOTHING; level < N_LEVELS; level++) {
		struct dlb_error ignored = { .what = "" };
		struct dlb_plan one = { .n_ops = 0 };

		if (level > NOTHING &&
		    (!memory || dlb_problem_is_limited(p) || (rc && dlb_error_status(err) != 1)))
			break;
		if ((level == STATES && !p->n_state) ||
		    (!rc && !dlb_plan_runs_any_again(plan) &&
		     !may_be_faster(in, p, level, memory, make, plan)))
			continue;
		if (make_level(in, &watched, level, memory, make, &one, &ignored)) {
			/* if weights cannot be offloaded at all, as with K-FAC, the error of the last level
			 * says more */
			if (rc && (level < WEIGHTS || dlb_error_status(&ignored) == 1) && err)
				*err = ignored;
			continue;
		}
		const bool runs_again = dlb_plan_runs_any_again(&one);

		take_faster(plan, &one, &rc);
		if (!runs_again && !scarce)
			break;
	}
	if (p->scarce)
		*p->scarce |= scarce;
	return rc;
}
