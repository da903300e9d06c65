/* Teams: the nodes of each replica, and the part of the model that each node has. Private to lib/place.
 *
 * A way is one division of the nodes into R teams of K nodes, with the nodes over which the model is then
 * placed. Nodes are in the order of the tree of groups, so that neighbours in it are close, and team r
 * gets
 *
 *     inside    nodes rK .. rK + K-1: a pipeline's stages are closest, sums of gradients go between groups
 *     across    nodes r, r + R, ...: nodes that sum the same gradients are closest
 *     alike     in order of speed, nodes r, r + R, ...: part 0 is on the R fastest nodes, so that the nodes
 *               of each part have similar speeds
 *     now       its nodes in the current plan
 *
 * Alike is tried if nodes differ: over all of them, and with the R fastest alone. It is also tried within
 * each of the fastest groups of the tree, so that sums do not use the slow links between groups. */
#ifndef DLB_PLACE_TEAMS_H
#define DLB_PLACE_TEAMS_H
#include "place/place.h"

enum dlb_team_cut { DLB_CUT_NOW, DLB_CUT_INSIDE, DLB_CUT_ACROSS, DLB_CUT_ALIKE };
struct dlb_team_way {
	enum dlb_team_cut cut;
	int group;				/* of the cluster, whose nodes are divided; -1: all nodes */
	bool one;				/* one node per team, whatever the number of nodes */
	/* placed over nodes as slow as each part's slowest, else over team 0 */
	bool slowest;
	const char *by;				/* the algorithm if the user names none; NULL: the default */
};
enum { DLB_MOST_WAYS = 32 };
struct dlb_teams {
	const struct dlb_problem *p;
	const struct dlb_plan *now;		/* the plan of way `now`; NULL: none */
	/* [node] seconds of a step on this node alone, under kappa; INFINITY: it lacks a kernel. Without node
	 * weights, which move work between teams, not nodes */
	double *alone_s;
	bool differ;				/* nodes differ in alone_s */
};
void dlb_teams_init(struct dlb_teams *t, const struct dlb_problem *p, const struct dlb_plan *now);
void dlb_teams_release(struct dlb_teams *t);
/* Ways to try for R replicas, the most usual first. algorithm: the user names one, which then places over
 * whole teams. */
int dlb_teams_ways(const struct dlb_teams *t, int R, bool algorithm, struct dlb_team_way way[DLB_MOST_WAYS]);
/* team[r * K + k] = node; returns K. */
int dlb_teams_form(const struct dlb_teams *t, int R, const struct dlb_team_way *way, int *team);
/* like[k]: the slowest node of part k, under kappa and weights; false: all teams are equal to team 0. */
bool dlb_teams_slowest(const struct dlb_teams *t, const int *team, int R, int K, int *like);
/* "across groups, one node each", for -v */
const char *dlb_team_way_name(const struct dlb_teams *t, const struct dlb_team_way *way, char *out,
			      size_t size);
int dlb_teams_free_nodes(const struct dlb_problem *p);
#endif
