/* Balancing: computes the weights of the next plan from the measurements of a round (BALANCE in dlb(7)).
 *
 * The load of a round has one row per node. A rule is one file and one row of dlb_rules[]. The document's
 * balance section keeps the state between rounds. Symbols, per round and node i; times are medians over the
 * round's steps without the first:
 *
 *     T     seconds per step                    busy_i  seconds per step in which node i computes
 *     u_i   T - busy_i, waiting                 u0_i    waiting in a balanced simulation: structural
 *     v_i   max(0, u_i - u0_i)                  F       nodes that can take load
 *     kappa_i  measured over predicted busy     w_i     weight; dlb-place reads both
 *     s     relative spread of a node's busy time between rounds, beyond the spread within rounds
 *
 * dlb-place multiplies a node's times by kappa and divides them by weight. If `converged` or `keep` is set,
 * dlb-place makes no new plan but uses best_placement; if that is not of this graph, it keeps the present
 * plan. */
#ifndef DLB_BALANCE_BALANCE_H
#define DLB_BALANCE_BALANCE_H
#include "optim/optim.h"
#include "plan/program.h"
#include "plan/report.h"

struct dlb_balance_round {
	int round;
	/* v_i: waiting beyond structural */
	double step_s, step_se_s, predicted_step_s, max_excess_s, mean_excess_s;
	double expected_s;			/* prediction of the previous round; 0: none */
	bool test_a, test_b, held, rolled_back;	/* rolled_back: the best plan was restored after this round */
	bool changed;				/* a change point: earlier measurements no longer apply */
	bool noisy;				/* its waiting is noise, so it changed no weights */
	/* The decision after the round: "moves", "same plan", "does not pay", "no plan fits", "repeats",
	 * "rolled back", "held", "noise", "ended"; NULL: unknown. If another plan was tried: the seconds that
	 * it would save per step, less the margin of error, and the seconds that the change would cost in
	 * all. */
	const char *decision; double gain_s, price_s;
	/* common factor of all nodes' busy times relative to the round before */
	double drift;
	char plan_hash[17];
	double *weight;				/* [node], of that round */
	int moved_ops;				/* since the round before */
};
/* Replicas of a plan: node k of replica 0 corresponds to replica[r * n_nodes + k] in replica r
 * (-1: none). n < 2: no replicas. */
struct dlb_balance_teams { int n; int *replica; double *power; };
enum { DLB_EQUAL_LINKS = 4 }; /* most links of a culprit whose numbers are kept */
/* The cause of a slow round. data: a node's samples are read more slowly than it computes. computing: all ops
 * of a node are slower than on other nodes of its kind. memory: the same, but mainly for ops bound by memory
 * traffic. link: nodes wait for messages and sums longer than the speeds of all nodes explain, and less
 * bandwidth of the link would explain it. */
enum dlb_cause { DLB_CAUSE_NONE, DLB_CAUSE_DATA, DLB_CAUSE_COMPUTING, DLB_CAUSE_MEMORY, DLB_CAUSE_LINK };
struct dlb_culprit {
	enum dlb_cause cause;
	int node; /* of all causes but link */
	/* cause link: the number of links that explain the round equally well; the ids of the first ones; the
	 * names of the first and the last one, in the balance's arena; the first link's bandwidth that
	 * explains the round, and the one that the cluster states */
	int n_links, at[DLB_EQUAL_LINKS];
	const char *link, *or_link;
	double measured_Bps, stated_Bps;
	double step_s; /* of the present plan without the cause */
};
/* Writes a line with node or link, cause, and the step without the cause; "": no cause. step_s: the measured
 * step. */
void dlb_culprit_tell(const struct dlb_culprit *c, double step_s, char *text, size_t size);
/* The bandwidth of a link as learnt from rounds (links.c). */
struct dlb_balance_link {
	int link; /* of the cluster */
	double factor; /* of the stated bandwidth; 1: as stated */
	bool suspected; /* a slower link would explain the last round */
	int unseen; /* rounds in a row whose plan does not use the corrected link */
	int patience; /* unseen rounds after which the stated bandwidth is tried again */
	int trial; /* rounds left of this trial */
};
struct dlb_balance {
	struct dlb_arena arena;
	int n_nodes, round, stable;		/* stable: rounds with the present plan */
	int first_round;			/* of the present search: a change point begins another one */
	double *weight, *kappa;			/* [node]; weights have mean 1 */
	double *kappa_mean;			/* [node] kappa before equal nodes share a value */
	double *kappa_rounds;			/* [node] rounds in kappa_mean; 0: not yet measured */
	double *settled;			/* [node] kappa_mean when the search ended; NULL: it has not */
	/* s, and the number of rounds it was learnt from (the initial guess counts as one) */
	double spread; int spread_rounds;
	double eta; double *last_sign;
	/* reason: "balanced", "unchanged", "cycle" (patent: also while it
	 * continues), "floor", "rounds", "noise" (it waits for the noise to end) or NULL */
	bool converged; const char *reason;
	bool keep;				/* the next round runs best_placement, whatever the weights */
	const char *rule;
	/* best_rounds: rounds that measured the best plan */
	double best_step_s, best_se_s; char best_plan_hash[17]; int best_rounds;
	double *best_weight;			/* [node] weights of the best plan; NULL: no best plan yet */
	int hold, hold_off;			/* rounds of `keep` left; length of the next hold */
	double expected_s;			/* predicted step of the next round; 0: no prediction */
	/* lower bound of any plan's step, from the planner; 0: unknown */
	double floor_s;
	struct dlb_balance_round *history; int n_history;
	int *best_placement; int n_placement;	/* for rolling back a worse plan; NULL: none */
	/* the plan that the gate has accepted; not written. NULL: none, or the planner has to find it */
	struct dlb_plan *next;
	struct dlb_balance_teams best_teams;	/* replicas and their shares under best_placement */
	/* nodes of replicas wait, but no samples move because the user asked for an even split; not
	 * written */
	bool split_stays;
	struct dlb_balance_link *link;
	int n_links;
	struct dlb_sample_time *sample;
	int n_samples; /* of the last round that prepared samples */
	const char *links_told; /* the last round's corrections of links in words; NULL: none; not written */
	struct dlb_culprit culprit; /* of the last round; not written */
};
void dlb_balance_init(struct dlb_balance *b, int n_nodes);
void dlb_balance_release(struct dlb_balance *b);
json_t *dlb_balance_write(const struct dlb_balance *b);
int dlb_balance_read(const struct dlb_doc *d, int n_nodes, struct dlb_balance *b, struct dlb_error *err);

struct dlb_load {				/* one round */
	int n_nodes;
	double round_s, round_se_s;		/* T */
	double *busy_s, *busy_se_s;
	/* initial value of s; 0: simulated rounds, which repeat exactly */
	double usual_spread;
	double *predicted_busy_s;		/* by the costs without kappa; 0: node has no ops */
	double *structural_s;			/* u0_i of the balanced simulation */
	bool *free_node;			/* F: can take load */
	int *kind;				/* kind of device; NULL: all equal */
	double predicted_s;			/* T by the costs and kappa that the plan was made with */
	double *kappa; /* [node] kappa that the plan was made with; NULL: all 1 */
	double bound_s;				/* the plan's lower bound; 0: unknown */
	int64_t steps;				/* measured in the round */
	int moved_ops;				/* since the previous round */
	bool links_changed; /* bandwidths of links were corrected in this round */
	bool samples_changed; /* their preparation took other time than was predicted, and makes another step */
	char plan_hash[17];
	const int *placement; int n_ops;
	struct dlb_balance_teams teams;
};
/* Returns the replicas of a plan (memory in a); sets a plan's replicas from t (memory in the plan's
 * arena). */
struct dlb_balance_teams dlb_balance_teams_of(const struct dlb_plan *p, struct dlb_arena *a);
void dlb_balance_teams_set(const struct dlb_balance_teams *t, struct dlb_plan *p);
/* Usual values: stable 3, max_rounds 50. Inside a run, left_steps: the steps left of it; change_s: the
 * seconds that its last change of plan took. 0: the round is a run of its own. */
struct dlb_balance_options {
	int stable, max_rounds;
	double left_steps, change_s;
	bool simulated;				/* planning takes no time of the run */
};
struct dlb_rule {
	const char *name, *summary;
	/* Computes the next round's weights from this round's load; sets all members of *b that need no
	 * planner. */
	int (*update)(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b,
		      struct dlb_error *err);
	bool gated;				/* gate.c checks new plans before they are used */
};
extern const struct dlb_rule dlb_rules[];	/* log, patent; ends with name NULL */
const struct dlb_rule *dlb_rule_find(const char *name);
/* Reads the load from the document's report; simulates the plan's program to get the structural waits. */
int dlb_load_read(const struct dlb_doc *d, struct dlb_arena *a, struct dlb_load *l, struct dlb_error *err);
double dlb_imbalance(const double *busy_s, const bool *free_node, int n);
/* Runs one balancing round on a document with a report: reads load and balance, applies the rule, asks the
 * planner if a new plan pays off, and sets the balance section. *out: the new state. -1 with err. */
int dlb_rebalance(struct dlb_doc *d, const struct dlb_rule *rule, const struct dlb_balance_options *o,
		  struct dlb_balance *out, struct dlb_error *err);

/* ---- inside lib/balance ---- */
/* Begins another search in the document's balance, if there is one: forgets the measurements of plans, keeps
 * node weights and kappa. */
int dlb_balance_begin_search(struct dlb_doc *d, int n_nodes, struct dlb_error *err);
/* All sections of a document that a round needs, owned, in the order of reading. The struct must not move,
 * since the program borrows its address. */
struct dlb_balance_inputs {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_plan plan;
	struct dlb_program program; /* of the plan */
	struct dlb_report report;
	struct dlb_optimizer_choice optimizer;
	int n_state;				/* optimizer states per weight */
	double **foreseen_sample_s; /* as cost.sample_s, of the rounds before; NULL: they measured none */
};
int dlb_balance_inputs_read(const struct dlb_doc *d, struct dlb_balance_inputs *s, struct dlb_error *err);
void dlb_balance_inputs_release(struct dlb_balance_inputs *s);
/* The same for a later round: reads only the report and, with other_plan, the plan. -1 with err: s is
 * released. */
int dlb_balance_inputs_again(const struct dlb_doc *d, bool other_plan, struct dlb_balance_inputs *s,
			     struct dlb_error *err);
/* dlb_rebalance with sections that are read already. Corrects the links of s->cluster. */
int dlb_rebalance_with(struct dlb_doc *d, struct dlb_balance_inputs *s, const struct dlb_rule *rule,
		       const struct dlb_balance_options *o, struct dlb_balance *out, struct dlb_error *err);
int dlb_load_of(const struct dlb_balance_inputs *s, const double *kappa, struct dlb_arena *a,
		struct dlb_load *l, struct dlb_error *err);
/* The gate: decides whether the plan that the new weights give is worth the change. Sets keep, expected_s
 * and, if the plan would repeat an earlier one, converged. -1 with err. */
int dlb_balance_gate(const struct dlb_balance_inputs *s, const struct dlb_load *l,
		     const struct dlb_balance_options *o, struct dlb_balance *b, struct dlb_error *err);
#endif
