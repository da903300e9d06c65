/* Moves the borders of a plan: see borders.h. */
#include "place/borders.h"
#include <stdlib.h>
#include <string.h>
#include "place/contiguous.h"
#include "place/make.h"
#include "util/mem.h"

struct borders {
	const struct dlb_problem *p;
	struct dlb_units u;
	int n, *node, *start; /* parts, their nodes, and n + 1 borders */
	int *placement;
	int64_t calls; /* plans that may still be made */
	struct dlb_plan *plan;
	double *ranked_s;
};

/* Finds the parts; false: the ops of a unit lie on several nodes, or there are no two parts. */
static bool find_parts(struct borders *b)
{
	int *to = dlb_xmalloc(((size_t)b->u.n + 1) * sizeof *to);
	bool whole = b->u.n > 0;

	for (int i = 0; i < b->u.n; i++)
		to[i] = -1;
	for (int i = 0; i < b->plan->n_ops; i++) {
		int *unit = &to[b->u.of_group[b->p->group_of[i]]];

		whole &= *unit < 0 || *unit == b->plan->placement[i];
		*unit = b->plan->placement[i];
	}
	for (int i = 0; i < b->u.n && whole; i++) {
		if (b->n && to[i] == b->node[b->n - 1])
			continue;
		b->node[b->n] = to[i];
		b->start[b->n++] = i;
	}
	b->start[b->n] = b->u.n;
	free(to);
	return whole && b->n > 1;
}

static double crossing_bytes(const struct borders *b, int unit)
{
	return b->u.forward_bytes[unit] + b->u.backward_bytes[unit];
}

/* A cut is a position across which no more bytes are sent than across border k; in a model of equal
 * layers, cuts are a layer or a part of it apart. Returns the units from border k to the cut number
 * `steps` in direction `sign`; 0: none. */
static int next_cut(const struct borders *b, int k, int sign, int steps)
{
	const double most = crossing_bytes(b, b->start[k]) * (1 + 1e-9);
	int at = b->start[k] + sign;

	for (; at > b->start[k - 1] && at < b->start[k + 1]; at += sign)
		if (crossing_bytes(b, at) <= most && --steps == 0)
			return at - b->start[k];
	return 0;
}

/* Moves border k by `by` units if that shortens the step. */
static bool move(struct borders *b, int k, int by)
{
	struct dlb_problem whole = *b->p;
	struct dlb_plan other;
	const int was = b->start[k];
	double ranked_s;

	if (!by || was + by <= b->start[k - 1] || was + by >= b->start[k + 1] || b->calls <= 0)
		return false;
	b->calls--;
	b->start[k] += by;
	dlb_units_place(&b->u, b->p, b->n, b->start, b->node, b->placement);
	whole.replicas = b->plan;
	whole.below_s = *b->ranked_s;
	whole.brief = true;
	if (dlb_plan_make(&whole, b->placement, &other, &ranked_s, NULL)) {
		b->start[k] = was;
		return false;
	}
	if (!(ranked_s < *b->ranked_s * (1 - 1e-6))) {
		dlb_plan_release(&other);
		b->start[k] = was;
		return false;
	}
	dlb_plan_say_origin(&other, b->plan);
	dlb_plan_release(b->plan);
	*b->plan = other;
	*b->ranked_s = ranked_s;
	return true;
}

/* Moves border k in one direction by 1, 2, 4 ... cuts while the step gets shorter; if even the first move
 * does not help, by one unit. */
static bool move_on(struct borders *b, int k, int sign)
{
	bool any = false;

	for (int steps = 1; move(b, k, next_cut(b, k, sign, steps)); steps *= 2)
		any = true;
	return any || (next_cut(b, k, sign, 1) != sign && move(b, k, sign));
}

void dlb_borders_move(const struct dlb_problem *p, struct dlb_plan *plan, double *ranked_s)
{
	enum { CALLS = 40 };
	struct borders b = { .p = p, .plan = plan, .ranked_s = ranked_s };

	if (p->objective != DLB_STEP || plan->n_replicas < 2 || p->pin || p->before)
		return;
	b.calls = (int64_t)(CALLS * dlb_search_effort(p));
	dlb_units_init(&b.u, p);
	b.node = dlb_xcalloc((size_t)b.u.n + 1, sizeof *b.node);
	b.start = dlb_xcalloc((size_t)b.u.n + 2, sizeof *b.start);
	b.placement = dlb_xcalloc((size_t)plan->n_ops + 1, sizeof *b.placement);
	for (bool any = find_parts(&b); any && b.calls > 0;) {
		any = false;
		for (int k = 1; k < b.n; k++)
			any |= move_on(&b, k, -1) || move_on(&b, k, 1);
	}
	free(b.node);
	free(b.start);
	free(b.placement);
	dlb_units_release(&b.u);
}
