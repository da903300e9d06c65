/* The table of placers, and the choice among them.
 *
 * The default rule is auto, which starts from the placers marked by_default and is never worse than any of
 * them. If it finds no plan that fits, each of them is tried by itself, so that the error states the
 * nearest plan's shortage. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/make.h"
#include "place/moves.h"
#include "place/place.h"
#include "place/recut.h"
#include "place/value.h"
#include "plan/schedule.h"
#include "plan/tensors.h"

const struct dlb_placer dlb_placers[] = {
#define PLACER(id, name_, summary_, trivial_, by_default_) { .name = name_, .summary = summary_, .place = dlb_place_##id, \
							    .trivial = trivial_, .by_default = by_default_ },
#include "place/place_list.h"
#undef PLACER
	{ .name = NULL },
};

const struct dlb_placer *dlb_placer_find(const char *name)
{
	for (const struct dlb_placer *p = dlb_placers; p->name; p++)
		if (!strcmp(p->name, name))
			return p;
	return NULL;
}

bool dlb_placer_by_default(const struct dlb_problem *p, const struct dlb_placer *x)
{
	return x->by_default || (x->place == dlb_place_interleaved && dlb_schedule_in_parts(p->schedule));
}

/* Makes one placer's plan and reports it to p->tried. *lack: bytes of memory that a refused plan lacks;
 * INFINITY: no placement was refused. */
static int attempt(const struct dlb_problem *p, const struct dlb_placer *placer, struct dlb_plan *plan,
		   double *ranked, double *lack, struct dlb_error *err)
{
	int *placement = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof(int));
	int rc = placer->place(p, placement, err);
	*lack = INFINITY;
	if (rc == 0)
		rc = dlb_place_limit_moves(p, placement, err);
	if (rc == 0) {
		rc = dlb_plan_make(p, placement, plan, ranked, err);
		if (rc)
			*lack = dlb_place_lack_bytes(p, placement);
	}
	free(placement);
	if (rc == 0) {
		plan->winner = placer->name;
		bool searches = placer->place == dlb_place_auto || placer->place == dlb_place_anneal ||
				placer->place == dlb_place_refine;
		if (searches && !(p->search_s > 0))
			plan->effort = p->effort > 0 ? p->effort : 1;
	}
	if (p->tried)
		p->tried(p->tried_arg, placer->name, rc ? INFINITY : *ranked, rc ? INFINITY : plan->value_s,
			 rc ? err : NULL);
	return rc;
}

static int choose(const struct dlb_problem *p, const char *algorithm, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err)
{
	double lack, least_lack = INFINITY;
	bool given = algorithm != NULL;
	if (!given && p->objective != DLB_STEP)		/* auto tries the others */
		algorithm = "auto";
	if (!given && p->objective == DLB_STEP &&
	    attempt(p, dlb_placer_find("auto"), plan, ranked, &lack, err) == 0) {
		plan->algorithm = "default";
		return 0;
	}
	if (!given && p->objective == DLB_STEP && p->brief)
		return -1;
	if (algorithm) {
		const struct dlb_placer *placer = dlb_placer_find(algorithm);
		if (!placer) {
			const char *names[32];
			int n = 0;
			for (const struct dlb_placer *x = dlb_placers; x->name; x++)
				names[n++] = x->name;
			dlb_fail(err, NULL, "no algorithm '%s'", algorithm);
			return dlb_hint_nearest(err, algorithm, names, n, NULL);
		}
		if (attempt(p, placer, plan, ranked, &lack, err))
			return -1;
		plan->algorithm = given ? placer->name : "default";
		plan->algorithm_given = given;
		return 0;
	}
	bool found = false;
	struct dlb_error nearest = { .status = 0 };		/* error of the plan nearest to fitting */
	*ranked = INFINITY;
	for (const struct dlb_placer *x = dlb_placers; x->name; x++) {
		struct dlb_plan other;
		struct dlb_error why = { .status = 0 };
		double value;
		if (!dlb_placer_by_default(p, x))
			continue;
		if (attempt(p, x, &other, &value, &lack, &why)) {
			bool better = lack < least_lack ||
				      (isinf(least_lack) && nearest.status != 1 && why.status == 1);
			if (better || !nearest.what[0])
				nearest = why;
			if (lack < least_lack)
				least_lack = lack;
			continue;
		}
		if (!found || value < *ranked) {
			if (found)
				dlb_plan_release(plan);
			*plan = other;
			*ranked = value;
			found = true;
		} else {
			dlb_plan_release(&other);
		}
	}
	if (!found) {
		if (strncmp(nearest.what, "no plan fits", 12)) {
			char what[sizeof nearest.what];
			memcpy(what, nearest.what, sizeof what);
			snprintf(nearest.what, sizeof nearest.what, "no plan fits: %s%.460s",
				 isfinite(least_lack) ? "in the nearest one " : "", what);
		}
		nearest.status = 1;
		*err = nearest;
		return -1;
	}
	plan->algorithm = "default";
	return 0;
}

int dlb_place(const struct dlb_problem *p, const char *algorithm, struct dlb_plan *plan,
	      struct dlb_error *err)
{
	double ranked;
	struct dlb_error local = { .status = 0 };
	return choose(p, algorithm, plan, &ranked, err ? err : &local);
}

void dlb_plan_moved(const struct dlb_problem *p, const int *before, struct dlb_plan *plan)
{
	const struct dlb_graph *g = p->graph;
	plan->moved_ops = 0;
	plan->moved_bytes = 0;
	for (int i = 0; i < g->n_ops; i++)
		plan->moved_ops += plan->placement[i] != before[i];
	for (int t = 0; t < g->n_tensors; t++) {
		int kind = g->tensor[t].kind;
		int home = kind == DLB_T_WEIGHT || kind == DLB_T_BUFFER ? dlb_graph_home(g, t) : -1;
		if (home >= 0 && plan->placement[home] != before[home])
			plan->moved_bytes += dlb_place_moved_bytes(p, t, home);
	}
}

static int place_recut(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	return dlb_place_recut(p, p->first, placement) ? 0 :
							 dlb_fail_no(err, NULL, "no pipeline to cut again");
}

/* As choose(), inside a run: all nodes wait, so the parts of a large graph are cut again without a search. If
 * the current placement is no pipeline, the quick placers make the plan. */
static int choose_in_run(const struct dlb_problem *p, const int *current, struct dlb_plan *plan,
			 double *ranked, struct dlb_error *err)
{
	static const struct dlb_placer recut = { .name = "proportional", .place = place_recut };
	struct dlb_problem quick = *p;
	struct dlb_error none = { .status = 0 };
	double lack;

	quick.first = current;
	quick.draft = true;
	if (attempt(&quick, &recut, plan, ranked, &lack, &none))
		return choose(&quick, NULL, plan, ranked, err);
	plan->algorithm = "default";
	return 0;
}

int dlb_place_again(const struct dlb_problem *p, const char *algorithm, const int *current,
		    struct dlb_plan *plan, bool *kept, struct dlb_error *err)
{
	struct dlb_plan now;
	double ranked, value;
	struct dlb_error local = { .status = 0 };
	*kept = false;
	bool have = dlb_plan_make(p, current, &now, &value, NULL) == 0;
	const bool quick = p->in_run && !algorithm && dlb_problem_is_large(p) && p->objective == DLB_STEP &&
			   !dlb_schedule_in_parts(p->schedule);
	if (quick ? choose_in_run(p, current, plan, &ranked, err ? err : &local) :
		    choose(p, algorithm, plan, &ranked, err ? err : &local)) {
		if (!have)
			return -1;
		ranked = INFINITY;
	}
	if (have && ranked >= value * (1 - DLB_KEEP_GAIN)) {
		if (isfinite(ranked))
			dlb_plan_release(plan);
		*plan = now;
		/* the placer of the kept plan is not known here */
		plan->algorithm = algorithm ? algorithm : "default";
		plan->algorithm_given = algorithm != NULL;
		*kept = true;
	} else if (have) {
		dlb_plan_release(&now);
	}
	dlb_plan_moved(p, current, plan);
	return 0;
}
