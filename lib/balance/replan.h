/* What dlb-place makes of a document: its next plan, from the costs, the node weights of the balance and
 * the plan that is there. */
#ifndef DLB_BALANCE_REPLAN_H
#define DLB_BALANCE_REPLAN_H
#include "balance/balance.h"
#include "place/constraints.h"
#include "plan/process_bytes.h"
#include "plan/sharing.h"
#include "util/cli.h"

/* Options of dlb-place. NULL: as in the plan that is there, else the default. */
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
	bool stay;			/* the placement that is there, whatever the balance says */
	bool keeps_shares;		/* replicas keep their shares of the batch: losses keep their bits */
	/* the placement of this plan, with its replicas and shares, instead of a search; NULL: a search */
	const struct dlb_plan *next;
	struct dlb_strlist recompute; /* none, auto, or patterns of names */
	struct dlb_strlist offload; /* none, auto, or [weights:|activations:]pattern of names=memory */
	const char *state_dtype;
	const char *zero;
	bool zero_auto; /* a stage, or auto: the least that fits (dlb_replan_take_zero) */
	struct dlb_sharing_options sharing;
	struct dlb_constraints constraints;
	/* only to see whether a plan fits: made with less effort, nothing is suggested or warned of.
	 * [n_nodes], filled: memory of its processes. NULL: a plan to keep */
	struct dlb_memory_need *need;
	dlb_kernel_sizes_fn *sizes; /* for need; NULL: kernels that were not measured are guessed */
};
/* For a plan that is made again inside dlb-run: all as in the plan that is there, and nothing is printed.
 * quiet: storage for a copy of cli. */
struct dlb_replan dlb_replan_in_run(const struct dlb_cli *cli, struct dlb_cli *quiet);
/* Reads o->zero into o->sharing. 0, or the exit status after one line. */
int dlb_replan_take_zero(struct dlb_replan *o);
/* Refuses values that name nothing, with one line. 0, or the exit status. */
int dlb_replan_check(const struct dlb_replan *o);
/* Puts the new plan into doc; --rewrites keep-affinity may change the graph, the profile and the cost too.
 * Warns of options without effect. Releases o->constraints. 0, or -1 with err. */
int dlb_replan(struct dlb_replan *o, struct dlb_doc *doc, struct dlb_error *err);
#endif
