/* Checkpoints. Private to lib/exec.
 *
 *     DIR/lock                      held by rank 0 while a run uses DIR
 *     DIR/step-120/manifest.json    step, epoch, position, seed, optimizer, files, part file of each tensor
 *     DIR/step-120/SHA256SUMS       checksums of all files and the manifest, in the format of sha256sum -c
 *     DIR/step-120/part-0.safetensors ...   one for each node that has state
 *     DIR/step-120/kept-0.safetensors ...   one for each node: residuals of compressed sums, K-FAC's
 *                                   averages and inverses
 *
 * A weight or buffer is stored under its name in the model, an optimizer state under
 * "optimizer/exp_avg/NAME". A checkpoint is written under another name, synced, and renamed as a whole, so it
 * is complete or absent. The newest two checkpoints are kept. Checksums detect a damaged checkpoint; the
 * previous one is then loaded. Other files in DIR are not touched. A checkpoint loads on any number of nodes:
 * every rank opens the parts that hold its tensors. If the ops of a weight are split, the manifest lists the
 * weight's slices with name and place, so that the weight loads whole or split in another way. If replicas
 * divide the optimizer's state, each replica writes its share as an array of one dimension, and the
 * manifest's member "shares" has for each weight a list of {"part", "first", "count"} in elements; the state
 * loads whole or in other shares. "weight_shares" is the same list for weights that replicas divide. "frozen"
 * lists the weights whose training had ended (freeze.h): they have no optimizer state, and a run that would
 * train them is refused. */
#ifndef DLB_EXEC_CHECKPOINT_H
#define DLB_EXEC_CHECKPOINT_H
#include "comm/compress.h"
#include "exec/engine.h"
#include "exec/kfac.h"

struct dlb_state;

struct dlb_progress_state {		/* the progress of training, without the tensors */
	int64_t step, epoch, position;	/* step: steps done; position: samples of the epoch done */
	uint64_t seed;
	double best_loss; int64_t since_best;	/* for --patience; best_loss HUGE_VAL: none yet */
	double best_test_loss; int64_t best_test_step;	/* the same for --save-best */
	/* after reading: the type of optimizer states in the run that wrote the checkpoint */
	enum dlb_state_dtype state_dtype;
};
struct dlb_checkpoint {
	char *dir;
	int lock, folder;		/* on rank 0; else -1 */
	/* steps of damaged checkpoints, which do not count among the newest two */
	int64_t *damaged; int n_damaged;
};
/* State that each replica keeps for itself: of compression and of K-FAC; NULL: none. */
struct dlb_local_state {
	struct dlb_compress_state *compress;
	struct dlb_kfac *kfac;
	int replica, n_replicas;
};

/* Rank 0 makes DIR and locks it; the others check that they see the same folder. Collective. */
int dlb_checkpoint_open(struct dlb_checkpoint *c, const char *dir, struct dlb_comm *comm,
			struct dlb_error *err);
void dlb_checkpoint_close(struct dlb_checkpoint *c);
/* Loads the newest whole checkpoint into state and p; *found: whether there was one. *warning: a new line if
 * newer ones are damaged, else NULL. -1: no checkpoint is whole, or the whole one belongs to another model.
 * Collective. */
int dlb_checkpoint_load(struct dlb_checkpoint *c, struct dlb_comm *comm, struct dlb_state *s,
			struct dlb_progress_state *p, bool *found, char **warning, struct dlb_error *err);
/* Replaces a checkpoint of the same step. *path: the folder, new; path may be NULL. Collective. */
int dlb_checkpoint_save(struct dlb_checkpoint *c, struct dlb_comm *comm, const struct dlb_state *s,
			const struct dlb_local_state *local, const struct dlb_progress_state *p, char **path,
			struct dlb_error *err);
/* Loads the state of compression and K-FAC from the checkpoint of that step in folder dir. A replica gets its
 * own state if the number of replicas is unchanged, else an equal share of the sum. If the checkpoint has no
 * state of compression, nothing changes; if it has no state of K-FAC, this fails. */
int dlb_checkpoint_load_local(const char *dir, int64_t step, const struct dlb_local_state *local,
			      struct dlb_error *err);
/* *step: the step of the newest checkpoint, -1: none; its checksums are not checked. Collective. */
int dlb_checkpoint_newest_step(struct dlb_checkpoint *c, struct dlb_comm *comm, int64_t *step,
			       struct dlb_error *err);
/* Path of the newest checkpoint in folder dir, new; NULL: none. It is complete; its checksums are not
 * checked. */
char *dlb_checkpoint_newest(const char *dir);
/* Checks before training that the file can be written. -1 with err. */
int dlb_weights_check_path(const char *path, bool merge, const struct dlb_graph *g, struct dlb_error *err);
/* Collects weights and buffers of all nodes on rank 0, which writes them to path (.onnx: a model with these
 * weights). For a graph with adapters it writes the trained tensors under PEFT's names and, if the file is
 * called adapter_model.safetensors, also PEFT's adapter_config.json; with `merge` it writes all weights, with
 * the adapters added to their weights. Collective. */
int dlb_weights_save(const char *path, bool merge, struct dlb_comm *comm, const struct dlb_state *s,
		     struct dlb_error *err);
#endif
