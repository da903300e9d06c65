/* Copies of the nodes' state in memory, from which a run continues after a loss (--buddy-every). Private to
 * lib/exec.
 *
 * Every K steps each rank copies its part of a checkpoint, except weights that are not trained, into files in
 * its host's memory (copies.h), which outlive the rank. If the ranks are on several hosts, the rank also
 * sends the copy to its buddy, a rank on another host, while the next steps compute. So the state of a dead
 * rank remains on its host, and the state of a dead host's nodes remains on other hosts.
 *
 * Each rank has two slots on its host and two at its buddy, used in turn. A slot is sealed, with step and
 * checksum, once it is complete. It is sealed before the sum that ends the step of the next copy. So when any
 * rank begins to overwrite a slot, the copy in the other slot is complete on all ranks: at any moment one
 * copy is whole. With K = 1 a loss costs at most the last complete step.
 *
 * The files of a slot are parts of a checkpoint (checkpoint.h): to continue, each host links its files into a
 * folder of that form and fetches the files of other hosts. The folder is then loaded like a checkpoint, on
 * any nodes. */
#ifndef DLB_EXEC_BUDDY_H
#define DLB_EXEC_BUDDY_H
#include "exec/checkpoint.h"
#include "exec/exec.h"
#include "plan/report.h"

struct dlb_buddy;
struct dlb_buddy_desc {
	const char *copies; /* name of the run's copies (copies.h); borrowed, as all other members */
	struct dlb_comm *comm;
	const struct dlb_state *state;
	int64_t every;
};
/* Collective. -1 with err, on all ranks. */
int dlb_buddy_new(struct dlb_buddy **out, const struct dlb_buddy_desc *d, struct dlb_error *err);
/* The comm may be broken. NULL: nothing to do. ends: the run has its result, so this host's copies are
 * removed. */
void dlb_buddy_free(struct dlb_buddy *b, bool ends);
bool dlb_buddy_alone(const struct dlb_buddy *b); /* all ranks are on one host: copies stay there */
/* Copies the state after a step, and begins to send the copy. The previous copy must be settled. Collective;
 * -1: the comm broke, or on all ranks with err. */
int dlb_buddy_copy(struct dlb_buddy *b, const struct dlb_local_state *local,
		   const struct dlb_progress_state *at, struct dlb_error *err);
bool dlb_buddy_under_way(const struct dlb_buddy *b); /* whether a copy is not settled yet; b NULL: false */
/* Seals the copy under way if it is complete; wait: waits until it is complete. -1: the comm broke. */
int dlb_buddy_settle(struct dlb_buddy *b, bool wait, struct dlb_error *err);
double dlb_buddy_mapped_bytes(const struct dlb_buddy *b); /* of slots in this process; NULL: 0 */
/* Fills rank 0's report. Collective. */
int dlb_buddy_report(struct dlb_buddy *b, struct dlb_report *report, struct dlb_error *err);

/* ---- buddy_load.c ---- */
/* The newest whole copy of a run; step -1: there is none. */
struct dlb_buddy_found;
/* Collective. -1 with err, on all ranks. */
int dlb_buddy_find(struct dlb_buddy_found **out, const char *copies, struct dlb_comm *comm,
		   struct dlb_error *err);
int64_t dlb_buddy_found_step(const struct dlb_buddy_found *f);
/* Loads the copy into s and p, and leaves the folder DIR/step-N, from which dlb_checkpoint_load_local loads
 * the rest. Collective. */
int dlb_buddy_load(struct dlb_buddy_found *f, struct dlb_state *s, struct dlb_progress_state *p,
		   struct dlb_error *err);
const char *dlb_buddy_found_dir(const struct dlb_buddy_found *f); /* DIR: this host's folder of copies */
/* Removes the folder that dlb_buddy_load made; all ranks must have read it. NULL: nothing to do. */
void dlb_buddy_found_free(struct dlb_buddy_found *f);

/* ---- buddy_plan.c ---- */
/* Chooses buddies: out[i], the buddy of node i, is a node on another host (host[i]: a number), and each node
 * is the buddy of as few nodes as possible; -1: there is only one host. */
void dlb_buddy_choose(const int *host, int n, int *out);
/* Refuses plans and options that --buddy-every does not support. -1 with err. */
struct dlb_job;
int dlb_buddy_check(const struct dlb_job *j, const struct dlb_exec_options *o, struct dlb_error *err);
/* Predicts the bytes of a copy, without the state of compression and K-FAC, and the seconds that the copy
 * adds to its step. Called after dlb_job_predict. */
void dlb_buddy_predict(const struct dlb_job *j, int64_t every, struct dlb_report *report);
#endif
