/* Teams: which nodes form a replica, and which part each plays. Not for others than replicas.c.
 *
 * A way is one cut of the nodes into R teams of K nodes, and what the model is placed over then. Nodes are put in the order of
 * the tree of groups, so that neighbours in it sit close, and team r gets
 *
 *     inside    nodes rK .. rK + K-1: a pipeline's stages sit closest, sums of gradients go between groups
 *     across    nodes r, r + R, ...: those that sum the same gradients sit closest
 *     alike     in order of speed, nodes r, r + R, ...: part 0 is the R fastest nodes, so that each part meets nodes as alike
 *               as can be, and no team waits for its slowest where it could do without
 *     now       what it has in the plan there is
 *
 * Alike is tried where nodes differ: over all of them, and with the R fastest alone. It is also tried within each of the fastest
 * groups of the tree, so that no sum has to go over the slow links between them. */
#ifndef DLB_PLACE_TEAMS_H
#define DLB_PLACE_TEAMS_H
#include "place/place.h"

enum dlb_team_cut { DLB_CUT_NOW, DLB_CUT_INSIDE, DLB_CUT_ACROSS, DLB_CUT_ALIKE };
struct dlb_team_way {
	enum dlb_team_cut cut;
	int group;				/* of the cluster, whose nodes alone are cut; -1: all */
	bool one;				/* one node a team, however many there are */
	bool slowest;				/* placed over nodes as slow as the slowest of each part, else over team 0's */
	const char *by;				/* the algorithm where nobody says; NULL: the default */
};
enum { DLB_MOST_WAYS = 32 };
struct dlb_teams {
	const struct dlb_problem *p;
	const struct dlb_plan *now;		/* whose teams way `now` has; NULL: none */
	double *alone_s;			/* [node]: of a step done alone, under kappa but not weights: these move work between
						 * teams and do not form others; INFINITY: not all kernels */
	bool differ;				/* in that */
};
void dlb_teams_init(struct dlb_teams *t, const struct dlb_problem *p, const struct dlb_plan *now);
void dlb_teams_release(struct dlb_teams *t);
/* Ways to try for R replicas, the most usual first; algorithm: the user names one, which then decides over whole teams. */
int dlb_teams_ways(const struct dlb_teams *t, int R, bool algorithm, struct dlb_team_way way[DLB_MOST_WAYS]);
/* team[r * K + k] = node; returns K. */
int dlb_teams_form(const struct dlb_teams *t, int R, const struct dlb_team_way *way, int *team);
/* like[k]: of the nodes that play part k, the one that would take longest under kappa and weights; false: all teams are as
 * team 0. */
bool dlb_teams_slowest(const struct dlb_teams *t, const int *team, int R, int K, int *like);
/* "across groups, one node each", for -v */
const char *dlb_team_way_name(const struct dlb_teams *t, const struct dlb_team_way *way, char *out, size_t size);
int dlb_teams_free_nodes(const struct dlb_problem *p);
#endif
