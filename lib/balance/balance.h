/* Balancing: from what a round measured to the weights of the next plan (BALANCE in dlb(7)).
 *
 * A round's load is one row per node; a rule is one file and one row of dlb_rules[]. The state that
 * survives from round to round is the document's balance section. */
#ifndef DLB_BALANCE_BALANCE_H
#define DLB_BALANCE_BALANCE_H
#include "plan/report.h"

struct dlb_balance_round {
	int round;
	double step_s, predicted_step_s, max_excess_s, mean_excess_s;	/* v_i = waiting beyond structural */
	bool test_a, test_b, held, rolled_back;
	char plan_hash[17];
	double *weight;				/* [node], used in that round */
	int moved_ops;
};
struct dlb_balance {
	struct dlb_arena arena;
	int n_nodes, round, stable;		/* stable: rounds for which the plan has stayed the same */
	double *weight, *kappa;			/* [node]; weights have mean 1 */
	double eta; double *last_sign;
	bool converged; const char *reason;	/* "balanced", "unchanged", "cycle", "floor", "rounds" or NULL */
	const char *rule;
	double best_step_s; char best_plan_hash[17];
	struct dlb_balance_round *history; int n_history;
	int *best_placement; int n_placement;	/* kept so that a worse plan can be rolled back; NULL: none */
};
void dlb_balance_init(struct dlb_balance *b, int n_nodes);
void dlb_balance_release(struct dlb_balance *b);
json_t *dlb_balance_write(const struct dlb_balance *b);
int dlb_balance_read(const struct dlb_doc *d, int n_nodes, struct dlb_balance *b, struct dlb_error *err);

struct dlb_load {				/* one round */
	int n_nodes;
	double round_s, round_se_s;		/* T */
	double *busy_s, *busy_se_s, *predicted_busy_s;
	double *structural_s;			/* u0_i from the balanced replay */
	bool *free_node;			/* F: may take load */
	double predicted_s;
	char plan_hash[17];
	const int *placement; int n_ops;
};
struct dlb_balance_options { int stable; int max_rounds; };	/* 3, 50 */
struct dlb_rule {
	const char *name, *summary;
	int (*update)(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b, struct dlb_error *err);
};
extern const struct dlb_rule dlb_rules[];	/* log, patent; ends with name NULL */
const struct dlb_rule *dlb_rule_find(const char *name);
/* The load of the document's report; replays the plan's program for the structural waits. */
int dlb_load_read(const struct dlb_doc *d, struct dlb_arena *a, struct dlb_load *l, struct dlb_error *err);
double dlb_imbalance(const double *busy_s, const bool *free_node, int n);
#endif
