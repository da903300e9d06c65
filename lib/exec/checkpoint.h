/* Checkpoints. Private to lib/exec.
 *
 *     DIR/lock                      held by rank 0 while a run uses DIR
 *     DIR/step-120/manifest.json    step, epoch and position, seed, optimizer, the files, which part has which tensor
 *     DIR/step-120/SHA256SUMS       of all files and the manifest, for sha256sum -c too
 *     DIR/step-120/part-0.safetensors ...   one a node that has state
 *     DIR/step-120/kept-0.safetensors ...   one a node: residuals of compressed sums, K-FAC's
 *                                   averages and inverses
 *
 * A weight or buffer has its name in the model, an optimizer state the name "optimizer/exp_avg/NAME". A
 * checkpoint is written under another name, synced, and renamed as a whole, so it is complete or absent. The
 * newest two are kept. A damaged one is detected by its checksums, and the one before it is loaded. Other
 * files in DIR are left alone. A checkpoint loads on any number of nodes: every rank opens the parts that
 * hold its tensors. Where the ops of a weight are split, the manifest lists its slices with name and place,
 * so that it loads whole or split in another way. Where replicas divide the optimizer's state, each writes
 * its share, an array of one dimension, and the manifest's member "shares" has for each weight a list of
 * {"part", "first", "count"} in elements; it loads whole or in other shares. "weight_shares" does so for the
 * weights of which each has a share. "frozen" lists the weights that were trained no longer (freeze.h): they
 * have no optimizer state, and a run that trains them is refused. */
#ifndef DLB_EXEC_CHECKPOINT_H
#define DLB_EXEC_CHECKPOINT_H
#include "comm/compress.h"
#include "exec/engine.h"
#include "exec/kfac.h"

struct dlb_state;

struct dlb_progress_state {		/* where training stands, beside the tensors */
	int64_t step, epoch, position;	/* step: steps done; position: samples done of the epoch */
	uint64_t seed;
	double best_loss; int64_t since_best;	/* for --patience; best_loss HUGE_VAL: none yet */
	double best_test_loss; int64_t best_test_step;	/* for --save-best, in the same way */
	enum dlb_state_dtype state_dtype;	/* read from a checkpoint: how its run kept optimizer states */
};
struct dlb_checkpoint {
	char *dir;
	int lock, folder;		/* on rank 0; else -1 */
	/* steps of damaged checkpoints: they do not count among the newest two */
	int64_t *damaged; int n_damaged;
};
/* State that each replica has alone: of compression, of K-FAC; NULL: none. */
struct dlb_local_state {
	struct dlb_compress_state *compress;
	struct dlb_kfac *kfac;
	int replica, n_replicas;
};

/* Rank 0 makes DIR and locks it; the others check that they see the same folder. Collective. */
int dlb_checkpoint_open(struct dlb_checkpoint *c, const char *dir, struct dlb_comm *comm,
			struct dlb_error *err);
void dlb_checkpoint_close(struct dlb_checkpoint *c);
/* Loads the newest whole checkpoint into state and p; *found: whether there was one. *warning: a new line
 * where newer ones are damaged, else NULL. -1: none is whole, or the whole one is of another model.
 * Collective. */
int dlb_checkpoint_load(struct dlb_checkpoint *c, struct dlb_comm *comm, struct dlb_state *s,
			struct dlb_progress_state *p, bool *found, char **warning, struct dlb_error *err);
/* Replaces a checkpoint of the same step. *path: the folder, new, may be NULL. Collective. */
int dlb_checkpoint_save(struct dlb_checkpoint *c, struct dlb_comm *comm, const struct dlb_state *s,
			const struct dlb_local_state *local, const struct dlb_progress_state *p, char **path,
			struct dlb_error *err);
/* Loads the state of compression and K-FAC from the checkpoint of that step in folder dir. A replica gets
 * its own state where the number of replicas is the same, else an equal share of the sum. A checkpoint
 * without such state changes nothing. */
int dlb_checkpoint_load_local(const char *dir, int64_t step, const struct dlb_local_state *local,
			      struct dlb_error *err);
/* *step: of the newest checkpoint, -1: none; its checksums are not checked. Collective. */
int dlb_checkpoint_newest_step(struct dlb_checkpoint *c, struct dlb_comm *comm, int64_t *step,
			       struct dlb_error *err);
/* Path of the newest checkpoint in folder dir, new; NULL: none. It is complete; its checksums are not
 * checked. */
char *dlb_checkpoint_newest(const char *dir);
/* Checks before training that the file can be written. -1 with err. */
int dlb_weights_check_path(const char *path, bool merge, const struct dlb_graph *g, struct dlb_error *err);
/* Collects weights and buffers of all nodes on rank 0, which writes them to path (.onnx: the model with
 * them). Of a graph with adapters: what is trained, with the names that PEFT gives it, and if the file is
 * called adapter_model.safetensors also PEFT's adapter_config.json; with `merge` all weights, the adapters
 * added to theirs. Collective. */
int dlb_weights_save(const char *path, bool merge, struct dlb_comm *comm, const struct dlb_state *s,
		     struct dlb_error *err);
#endif
