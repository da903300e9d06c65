/* Balancing: from what a round measured to the weights of the next plan (BALANCE in dlb(7)).
 *
 * A round's load is one row per node; a rule is one file and one row of dlb_rules[]. The state that
 * survives from round to round is the document's balance section. Symbols, per round and node i, medians
 * over the round's steps, the first one dropped:
 *
 *     T     seconds a step                      busy_i  seconds of it that node i computes
 *     u_i   T - busy_i, waiting                 u0_i    waiting in a balanced replay: structural
 *     v_i   max(0, u_i - u0_i)                  F       nodes free to take load
 *     kappa_i  measured over predicted busy     w_i     weight; both are read by dlb-place
 *     s     relative spread of a node's busy time between rounds, beyond the spread within them
 *
 * What dlb-place does with the section: kappa multiplies and weight divides a node's times; when
 * `converged` or `keep` is set it makes no new plan but adopts best_placement (if its length fits the
 * graph; else it keeps the plan there is). */
#ifndef DLB_BALANCE_BALANCE_H
#define DLB_BALANCE_BALANCE_H
#include "plan/report.h"

struct dlb_balance_round {
	int round;
	double step_s, step_se_s, predicted_step_s, max_excess_s, mean_excess_s;	/* v_i = waiting beyond structural */
	double expected_s;			/* what the round before said this one would take; 0: it did not */
	bool test_a, test_b, held, rolled_back;	/* rolled_back: after this round the best plan was taken up again */
	bool changed;				/* a change point: what was learnt before says nothing of now */
	double drift;				/* busy times that all nodes have in common, over those of the round before */
	char plan_hash[17];
	double *weight;				/* [node], used in that round */
	int moved_ops;				/* against the round before */
};
/* The replicas of a plan: node k of replica 0 is replica[r * n_nodes + k] in replica r (-1: none); n < 2: there are none. */
struct dlb_balance_teams { int n; int *replica; double *power; };
struct dlb_balance {
	struct dlb_arena arena;
	int n_nodes, round, stable;		/* stable: rounds for which the plan has stayed the same */
	double *weight, *kappa;			/* [node]; weights have mean 1 */
	double *kappa_mean;			/* [node]: kappa before nodes that are alike were given the same */
	double *kappa_rounds;			/* [node]: how many rounds it is the mean of; 0: not yet measured */
	double spread; int spread_rounds;	/* s, and rounds that it was learnt from (what is taken for it at first counts as one) */
	double eta; double *last_sign;
	bool converged; const char *reason;	/* "balanced", "unchanged", "cycle" (patent: while it goes on, too), "floor", "rounds" or NULL */
	bool keep;				/* the next round runs best_placement, whatever the weights say */
	const char *rule;
	double best_step_s, best_se_s; char best_plan_hash[17]; int best_rounds;	/* measured so often */
	double *best_weight;			/* [node]: weights it was made with; NULL: no best yet */
	int hold, hold_off;			/* rounds of keep left; length of the next hold */
	double expected_s;			/* what the next round should take; 0: nothing is expected */
	double floor_s;				/* no plan's step is shorter (certified by the planner); 0: unknown */
	struct dlb_balance_round *history; int n_history;
	int *best_placement; int n_placement;	/* kept so that a worse plan can be rolled back; NULL: none */
	struct dlb_balance_teams best_teams;	/* whose parts and shares that placement had */
};
void dlb_balance_init(struct dlb_balance *b, int n_nodes);
void dlb_balance_release(struct dlb_balance *b);
json_t *dlb_balance_write(const struct dlb_balance *b);
int dlb_balance_read(const struct dlb_doc *d, int n_nodes, struct dlb_balance *b, struct dlb_error *err);

struct dlb_load {				/* one round */
	int n_nodes;
	double round_s, round_se_s;		/* T */
	double *busy_s, *busy_se_s;
	double usual_spread;			/* s before any round has told; 0: rounds repeat themselves (they are simulated) */
	double *predicted_busy_s;		/* under the costs alone, without kappa; 0: holds no ops */
	double *structural_s;			/* u0_i from the balanced replay */
	bool *free_node;			/* F: may take load */
	int *kind;				/* of device; NULL: all alike */
	double predicted_s;			/* T under the costs and the kappa the plan was made with */
	double bound_s;				/* the plan's lower bound; 0: unknown */
	int64_t steps;				/* measured in the round */
	int moved_ops;				/* against the round before */
	char plan_hash[17];
	const int *placement; int n_ops;
	struct dlb_balance_teams teams;
};
/* A plan's replicas; and those as a plan's, whose arena then holds them. */
struct dlb_balance_teams dlb_balance_teams_of(const struct dlb_plan *p, struct dlb_arena *a);
void dlb_balance_teams_set(const struct dlb_balance_teams *t, struct dlb_plan *p);
struct dlb_balance_options { int stable; int max_rounds; };	/* 3, 50 */
struct dlb_rule {
	const char *name, *summary;
	/* The next round's weights from this one's load; sets everything in *b that needs no planner. */
	int (*update)(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b, struct dlb_error *err);
	bool gated;				/* new plans are looked at before they are adopted (gate.c) */
};
extern const struct dlb_rule dlb_rules[];	/* log, patent; ends with name NULL */
const struct dlb_rule *dlb_rule_find(const char *name);
/* The load of the document's report; replays the plan's program for the structural waits. */
int dlb_load_read(const struct dlb_doc *d, struct dlb_arena *a, struct dlb_load *l, struct dlb_error *err);
double dlb_imbalance(const double *busy_s, const bool *free_node, int n);
/* One turn of the wheel for a document with a report: reads load and balance, applies the rule, asks the
 * planner whether a new plan would pay, and puts the balance section. *out is the new state. */
int dlb_rebalance(struct dlb_doc *d, const struct dlb_rule *rule, const struct dlb_balance_options *o,
		  struct dlb_balance *out, struct dlb_error *err);

/* ---- inside lib/balance ---- */
/* Everything of a document that a round needs; owned, in reading order. */
struct dlb_scene {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_plan plan;
	struct dlb_report report;
	int n_state;				/* optimizer states per weight */
};
int dlb_scene_read(const struct dlb_doc *d, struct dlb_scene *s, struct dlb_error *err);
void dlb_scene_release(struct dlb_scene *s);
int dlb_load_of(const struct dlb_scene *s, const double *kappa, struct dlb_arena *a, struct dlb_load *l,
		struct dlb_error *err);
/* The gate: whether the plan that the new weights lead to is worth its while; sets keep, expected_s, hold and,
 * where the plan would repeat an earlier one, converged. */
int dlb_balance_gate(const struct dlb_scene *s, const struct dlb_load *l, const struct dlb_balance_options *o,
		     struct dlb_balance *b, struct dlb_error *err);
#endif
