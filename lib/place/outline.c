/* Outlines of divisions into replicas: see outline.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/outline.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "util/mem.h"

/* A plan that placers' estimate of memory excludes may fit with fewer micro-batches in flight or ops that run
 * again. It is then slower by about this factor. */
static const double SCARCE = 1.3;

/* Gradients are summed from the beginning of the last micro-batch's backward phase, which takes about this
 * part of the micro-batch's time. */
static const double BACKWARD = 2. / 3;

void dlb_outline_init(struct dlb_outline *s, const struct dlb_replicas_task *t, int R)
{
	const int n_nodes = t->p->cluster->n_nodes;
	struct dlb_problem shared = *t->p;
	int *node = dlb_xcalloc((size_t)n_nodes + 1, sizeof *node);

	*s = (struct dlb_outline){ .t = t, .R = R };
	shared.n_shares = R > 1 ? dlb_sharing_shares(&t->choice->sharing, R) : t->p->n_shares;
	shared.zero = R > 1 ? t->choice->sharing.zero : t->p->zero;
	for (int i = 0; i < n_nodes; i++)
		node[i] = i;
	s->is_made = !dlb_team_problem_init(&s->all, &shared, node, NULL, n_nodes, t->p->batch / R, NULL);
	if (s->is_made) {
		/* units count as many micro-batches in flight as a team has nodes */
		s->all.cluster.n_nodes = dlb_teams_free_nodes(t->p) / R;
		dlb_units_init(&s->units, &s->all.p);
		s->all.cluster.n_nodes = n_nodes;
		s->bytes = s->units.bytes;
		s->least_bytes = dlb_xcalloc((size_t)s->units.n + 1, sizeof *s->least_bytes);
		for (int g = 0; g < s->all.p.n_groups; g++)
			s->least_bytes[s->units.of_group[g]] += s->all.p.state_bytes[g];
	}
	free(node);
}

void dlb_outline_release(struct dlb_outline *s)
{
	if (s->is_made) {
		s->units.bytes = s->bytes;
		dlb_units_release(&s->units);
		free(s->least_bytes);
	}
	dlb_team_problem_release(&s->all);
	s->is_made = false;
}

/* Seconds of the model on the fastest of K nodes by itself; INFINITY: it does not fit there. start: the
 * borders. */
static double alone_s(const struct dlb_outline *s, int K, const int *node, int *start)
{
	double best_s = INFINITY, bytes = 0;
	int best = 0;

	for (int i = 0; i < s->units.n; i++)
		bytes += s->units.bytes[i];
	for (int k = 0; k < K; k++) {
		double sum = 0;

		for (int i = 0; i < s->units.n; i++)
			sum += dlb_unit_s(&s->units, &s->all.p, i, node[k]);
		if (sum < best_s && bytes <= s->all.p.memory_bytes[node[k]]) {
			best_s = sum;
			best = k;
		}
	}
	for (int k = 0; k <= K; k++)
		start[k] = k <= best ? 0 : s->units.n;
	return best_s;
}

/* Estimated seconds of the better cut: everything on one node or, unless `alone`, a part for each of K nodes.
 * start: K + 1 borders. bytes: [unit] memory; becomes s->units.bytes. */
static double cut_s(struct dlb_outline *s, int K, const int *node, bool alone, double *bytes, int *start)
{
	const struct dlb_parts parts = { .n = K, .node = node };
	int *border = dlb_xcalloc((size_t)K + 1, sizeof *border);

	s->units.bytes = bytes;
	double least_s = alone_s(s, K, node, start);

	if (!alone && K > 1 && isfinite(dlb_units_balance(&s->units, &s->all.p, &parts, border))) {
		const double cut = dlb_units_step_s(&s->units, &s->all.p, K, border, node);

		if (cut < least_s) {
			least_s = cut;
			memcpy(start, border, ((size_t)K + 1) * sizeof *start);
		}
	}
	free(border);
	return least_s;
}

/* A lower bound on the seconds of the sums of gradients over the teams. */
static double sums_s(const struct dlb_outline *s, const int *team, int K, const int *start)
{
	struct dlb_plan plan;
	double sums;

	if (s->R < 2 || !dlb_team_plan_bounds_sums(s->t))
		return 0;
	dlb_team_plan_share_out(s->t, s->R, K, team, &plan);
	dlb_plan_choose_sums(&plan, s->t->p->cost);
	dlb_units_place(&s->units, &s->all.p, K, start, team, plan.placement);
	sums = dlb_plan_sums_bound_s(&plan, s->t->p->cost, plan.placement);
	dlb_plan_release(&plan);
	return sums;
}

/* Adds the seconds that the messages of one team's cuts keep the directions of links busy. */
static void add_messages(const struct dlb_outline *s, const int *node, int K, const int *start,
			 double *busy_s)
{
	const struct dlb_problem *p = &s->all.p;
	int before = -1;

	for (int k = 0; k < K; k++) {
		if (start[k] == start[k + 1])
			continue;
		const double bytes[] = { s->units.forward_bytes[start[k]],
					 s->units.backward_bytes[start[k]] };

		for (int way = 0; way < 2 && before >= 0; way++) {
			struct dlb_direction direction[DLB_MAX_ROUTE];
			const int from = node[way ? k : before], to = node[way ? before : k],
				  n = dlb_cluster_directions(p->cluster, from, to, direction, NULL);

			for (int i = 0; i < n; i++)
				busy_s[direction[i].id] += p->micro_batches * bytes[way] /
							   p->cluster->link[direction[i].link].bandwidth_Bps;
		}
		before = k;
	}
}

/* The seconds that the messages of all teams keep the busiest direction of a link busy. */
static double messages_s(const struct dlb_outline *s, const int *team, int K, const int *start)
{
	const int n = dlb_cluster_n_directions(s->all.p.cluster);
	double *busy_s = dlb_xcalloc((size_t)n + 1, sizeof *busy_s), most = 0;

	for (int r = 0; r < s->R; r++)
		add_messages(s, team + r * K, K, start, busy_s);
	for (int i = 0; i < n; i++)
		most = fmax(most, busy_s[i]);
	free(busy_s);
	return most;
}

/* Estimated seconds of the teams, all with the borders of the first one, under the better of the shares that
 * may be chosen. */
static double teams_s(const struct dlb_outline *s, const int *team, int K, const int *start)
{
	const struct dlb_sharing *x = &s->t->choice->sharing;
	const bool by_power = x->by_power || (!x->split_given && !s->t->choice->keeps_shares);
	double most = 0, powers = 0;

	for (int r = 0; r < s->R; r++) {
		const double one_s = dlb_units_step_s(&s->units, &s->all.p, K, start, team + r * K);

		most = fmax(most, one_s);
		powers += 1 / one_s;
	}
	return by_power ? s->R / powers : most;
}

double dlb_outline_s(struct dlb_outline *s, const struct dlb_team_way *way)
{
	const size_t n_nodes = (size_t)s->t->p->cluster->n_nodes;
	int *team = dlb_xcalloc(3 * n_nodes + 3, sizeof *team), *like = team + n_nodes,
	    *start = like + n_nodes;
	const int K = s->is_made ? dlb_teams_form(&s->t->teams, s->R, way, team) : 0;
	const bool unlike = s->is_made && dlb_teams_slowest(&s->t->teams, team, s->R, K, like);
	const int *over = way->slowest && unlike ? like : team;
	const bool alone = way->by || way->one;
	double least_s = INFINITY;

	if (s->is_made) {
		double factor = 1, cut = cut_s(s, K, over, alone, s->bytes, start);

		if (isinf(cut)) {
			factor = SCARCE;
			cut = cut_s(s, K, over, alone, s->least_bytes, start);
		}
		if (isfinite(cut)) {
			const double work_s = factor *
					      fmax(teams_s(s, team, K, start), messages_s(s, team, K, start)),
				     part = 1 - BACKWARD / s->all.p.micro_batches;

			least_s = fmax(work_s, part * work_s + sums_s(s, team, K, start));
		}
	}
	free(team);
	return least_s;
}
