/* The work of dlb-place on a document: its next plan, from the costs, the node weights of the balance and the
 * existing plan. */
#ifndef DLB_BALANCE_REPLAN_H
#define DLB_BALANCE_REPLAN_H
#include "balance/balance.h"
#include "place/constraints.h"
#include "plan/process_bytes.h"
#include "plan/sharing.h"
#include "util/cli.h"

/* Options of dlb-place. NULL: as in the existing plan, else the default. */
struct dlb_replan {
	const struct dlb_cli *cli;
	/* dlb_clock_s() at the start of the process; --time counts from there */
	double started_s;
	const char *objective, *algorithm, *schedule, *staleness, *in_place, *optimizer, *replicas, *split;
	int64_t effort;					/* 0: default */
	double search_s;				/* 0: no limit */
	double clip_norm; bool clip_given;
	const char *batch;				/* samples per step, or auto */
	int64_t micro_batches, chunks, seed;
	bool micro_batches_given, seed_given, no_timeline, front;
	bool stay;			/* keep the existing placement, whatever the balance says */
	bool keeps_shares;		/* replicas keep their shares, so losses keep their bits */
	/* use the placement of this plan, with its replicas and shares; NULL: search one */
	const struct dlb_plan *next;
	struct dlb_strlist recompute; /* none, auto, or patterns of names */
	struct dlb_strlist offload; /* none, auto, or [weights:|activations:]pattern of names=memory */
	const char *state_dtype;
	const char *zero;
	bool zero_auto; /* zero: a stage, or auto, the least one that fits (dlb_replan_take_zero) */
	struct dlb_sharing_options sharing;
	struct dlb_constraints constraints;
	/* not NULL: the plan only shows whether one fits; it is made with less effort, without suggestions
	 * and warnings. [n_nodes], receives the memory of its processes. NULL: a plan to keep */
	struct dlb_memory_need *need;
	dlb_kernel_sizes_fn *sizes; /* for need; NULL: sizes of kernels that were not measured are guessed */
};
/* Options for a plan that is made again inside dlb-run: all as in the existing plan, and nothing is printed.
 * quiet: the caller's storage for a copy of cli. */
struct dlb_replan dlb_replan_in_run(const struct dlb_cli *cli, struct dlb_cli *quiet);
/* Reads o->zero into o->sharing. 0, or the exit status after one line. */
int dlb_replan_take_zero(struct dlb_replan *o);
/* Refuses unknown names and values, with one line. 0, or the exit status. */
int dlb_replan_check(const struct dlb_replan *o);
/* Puts the new plan into doc; --rewrites keep-affinity may change the graph, the profile and the cost too.
 * Warns of options without effect. Releases o->constraints. 0, or -1 with err. */
int dlb_replan(struct dlb_replan *o, struct dlb_doc *doc, struct dlb_error *err);
#endif
