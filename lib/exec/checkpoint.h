/* Inside lib/exec: checkpoints.
 *
 *     DIR/lock                      held by rank 0 while a run uses DIR
 *     DIR/step-120/manifest.json    step, epoch and position, seed, optimizer, the files, which part has which tensor
 *     DIR/step-120/SHA256SUMS       of all files and the manifest, for sha256sum -c too
 *     DIR/step-120/part-0.safetensors ...   one a node that has state
 *
 *     DIR/step-120/kept-0.safetensors ...   one a node: residuals of compressed sums, K-FAC's
 *                                   averages and inverses
 *
 * Tensors are named: a weight or buffer by its name in the model, an optimizer state by
 * "optimizer/exp_avg/NAME". A checkpoint is written under another name, synced, and renamed as a whole,
 * so it is complete or absent; the newest two are kept. One that is damaged all the same is found by its sums, and the one
 * before it is loaded. What is not ours in DIR is left alone. It loads on any number of nodes: every rank
 * opens the parts that hold what it needs. Of a weight whose ops are split the manifest lists the slices, each with its
 * name and place, so that it loads whole, or split in another way, too. */
#ifndef DLB_EXEC_CHECKPOINT_H
#define DLB_EXEC_CHECKPOINT_H
#include "comm/compress.h"
#include "exec/engine.h"
#include "exec/kfac.h"

struct dlb_progress_state {		/* where training stands, beside the tensors */
	int64_t step, epoch, position;	/* steps done; position: samples of the epoch done */
	uint64_t seed;
	double best_loss; int64_t since_best;	/* for --patience; best_loss HUGE_VAL: none yet */
	double best_test_loss; int64_t best_test_step;	/* for --save-best; likewise */
};
struct dlb_checkpoint {
	char *dir;
	int lock, folder;		/* on rank 0; else -1 */
	int64_t *damaged; int n_damaged;	/* steps whose checkpoints were found so: not counted among the newest two */
};
/* By compression, and by K-FAC; NULL: nothing. */
struct dlb_local_state { struct dlb_compress_state *compress; struct dlb_kfac *kfac; int replica, n_replicas; };

/* Rank 0 makes DIR and locks it, the others see whether it is theirs too. Every rank calls with its comm. */
int dlb_checkpoint_open(struct dlb_checkpoint *c, const char *dir, struct dlb_comm *comm, struct dlb_error *err);
void dlb_checkpoint_close(struct dlb_checkpoint *c);
/* Loads the newest whole checkpoint into state and p; *found tells whether there was one. *warning: a line (new) where newer ones
 * are damaged, else NULL. None of them whole, or the whole one of another model: -1. Collective. */
int dlb_checkpoint_load(struct dlb_checkpoint *c, struct dlb_comm *comm, struct dlb_state *s, struct dlb_progress_state *p,
			bool *found, char **warning, struct dlb_error *err);
/* Collective; a checkpoint of the same step is replaced. Returns the folder in *path (new, may be NULL). */
int dlb_checkpoint_save(struct dlb_checkpoint *c, struct dlb_comm *comm, const struct dlb_state *s,
			const struct dlb_local_state *local, const struct dlb_progress_state *p, char **path, struct dlb_error *err);
/* The state of compression and K-FAC, read from the checkpoint of that step: each replica's own where there are as many as then, else
 * an equal share of the sum. Nothing there: nothing to do. */
int dlb_checkpoint_load_local(struct dlb_checkpoint *c, int64_t step, const struct dlb_local_state *local, struct dlb_error *err);
/* Whether that file can be written, found out before hours of training. -1 with err. */
int dlb_weights_check_path(const char *path, const struct dlb_graph *g, struct dlb_error *err);
/* Weights and buffers of all nodes to rank 0, which writes them to path (.onnx: the model again). Collective. */
int dlb_weights_save(const char *path, struct dlb_comm *comm, const struct dlb_state *s, struct dlb_error *err);
#endif
