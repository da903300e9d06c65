/* A cluster that changes during a simulated run (dlb-run --dry-run --scenario): its nodes become slower, are
 * noisy, fail and come back; its links lose bandwidth. The balancer sees these changes only in the times of
 * its rounds. A failure is an exception: the plan is made again without the node, as --on-failure replan
 * does.
 *
 *     {"seed": 1, "compare": ["even", "start", "patent"], "events": [
 *        {"event": "noise", "round": 1, "spread": 0.05},
 *        {"event": "drift", "round": 10, "rounds": 50, "node": 3, "factor": 1.01},
 *        {"event": "straggler", "round": 20, "rounds": 15, "node": 2, "factor": 4},
 *        {"event": "failure", "round": 40, "back": 60, "node": 7},
 *        {"event": "link", "round": 50, "rounds": 10, "link": "rack0", "factor": 0.1}]}
 *
 * Rounds count from 1. An event lasts for `rounds` rounds (absent: to the end). All noise depends on (seed,
 * node, round, step) alone. */
#ifndef DLB_BALANCE_SCENARIO_H
#define DLB_BALANCE_SCENARIO_H
#include "exec/exec.h"
#include "util/cli.h"

enum dlb_scenario_kind {
	DLB_SCENARIO_NOISE,	/* value: spread of the logarithm of compute times; the last event holds */
	DLB_SCENARIO_DRIFT,	/* value: factor of compute times from round to round; the product stays */
	DLB_SCENARIO_STRAGGLER,	/* value: factor of compute times */
	DLB_SCENARIO_FAILURE,
	DLB_SCENARIO_LINK,	/* value: factor of the bandwidth */
	DLB_N_SCENARIO
};
struct dlb_scenario_event {
	enum dlb_scenario_kind kind;
	int64_t first, last;		/* rounds in which it holds */
	int at;				/* node or link; -1: all nodes */
	double value;
};
/* A scenario: its events, and the ways to balance with which the same rounds are simulated, beside the rule
 * log. */
struct dlb_scenario {
	struct dlb_arena arena;
	uint64_t seed;
	struct dlb_scenario_event *event; int n;
	const char **compare; int n_compare;	/* names of dlb_scenario_ways */
};
/* Ways to balance: by a rule of dlb-rebalance, or without one. `even`: a plan of algorithm even; `start`: the
 * plan of the document; both change only when nodes fail or come back. */
struct dlb_scenario_way { const char *name, *rule, *algorithm; };
extern const struct dlb_scenario_way dlb_scenario_ways[];	/* the first: log; ends with name NULL */

/* scenario_json.c: reads the file for this cluster. -1 with err. */
int dlb_scenario_read(const char *path, const struct dlb_cluster *cl, struct dlb_scenario *s,
		      struct dlb_error *err);
void dlb_scenario_release(struct dlb_scenario *s);
/* In a round: whether the node has failed; the factor of its compute times in the round's simulated step
 * `step`, noise included; the factor of a link's bandwidth. */
bool dlb_scenario_lost(const struct dlb_scenario *s, int node, int64_t round);
double dlb_scenario_scale(const struct dlb_scenario *s, int node, int64_t round, int step);
double dlb_scenario_link(const struct dlb_scenario *s, int link, int64_t round);
/* Runs o->rounds rounds on doc, which ends with the last balance and plan, and the same rounds for every way
 * to compare. report: of the last round, with the means over all rounds. */
int dlb_scenario_run(const struct dlb_cli *cli, struct dlb_doc *doc, const struct dlb_exec_options *o,
		     const char *path, struct dlb_report *report, struct dlb_error *err);
#endif
