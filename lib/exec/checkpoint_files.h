/* Inside checkpoint*.c: what lies in the folder of one step (checkpoint.h), and around it. */
#ifndef DLB_EXEC_CHECKPOINT_FILES_H
#define DLB_EXEC_CHECKPOINT_FILES_H
#include "exec/checkpoint.h"
#include "util/mem.h"

#define DLB_CHECKPOINT_MANIFEST "manifest.json"
#define DLB_CHECKPOINT_SUMS "SHA256SUMS"
#define DLB_CHECKPOINT_FORMAT "1.2"		/* 1.1 and before: no list of files, no sums */
/* How the names begin of a checkpoint that is being written, and of one that is being replaced. */
#define DLB_CHECKPOINT_NEW ".new-"
#define DLB_CHECKPOINT_OLD ".old-"

/* ---- checkpoint_write.c, checkpoint_local.c ---- */
/* The name of an optimizer's k-th state of a weight; lives in a. */
const char *dlb_checkpoint_slot_name(struct dlb_arena *a, int rule, int k, const char *weight);
/* part-RANK.safetensors: weights, buffers and optimizer state of this node; none, no file and sha256 "". */
int dlb_checkpoint_write_part(const char *dir, int rank, const struct dlb_state *s, char sha256[65], struct dlb_error *err);
/* kept-RANK.safetensors, likewise; local may be NULL. */
int dlb_checkpoint_write_local(const char *dir, int rank, const struct dlb_local_state *local, char sha256[65], struct dlb_error *err);
/* What the files of the ranks will be called, so that they can be removed should the run be killed before they are complete. */
int dlb_checkpoint_write_names(const char *dir, int n_ranks, struct dlb_error *err);
/* The manifest and, with its own, the sums of n files. */
struct dlb_sum { char name[64], sha256[65]; };
int dlb_checkpoint_write_manifest(const char *dir, const struct dlb_state *s, const struct dlb_progress_state *p,
				  const struct dlb_sum *sum, int n, struct dlb_error *err);

/* ---- checkpoint_read.c ---- */
/* Whether all of folder DIR/step-STEP is there and undamaged, without a look at the model: collective in that each rank looks at
 * its share of the files. A manifest of a format that is not known passes, for _read to refuse. */
int dlb_checkpoint_check(const char *dir, int64_t step, int rank, int n_ranks, struct dlb_error *err);
/* Manifest and parts of folder DIR/step-STEP into s and p; p is untouched where it fails. */
int dlb_checkpoint_read(const char *dir, int64_t step, struct dlb_state *s, struct dlb_progress_state *p, struct dlb_error *err);
/* The files that a manifest lists; old: it is of a format without a list. false: no manifest of ours. */
struct dlb_checkpoint_list { struct dlb_arena arena; const char **name; int n; bool old; };
bool dlb_checkpoint_manifest_list(const char *text, size_t n, struct dlb_checkpoint_list *list);

/* ---- checkpoint_sums.c ---- */
int dlb_sums_write(const char *dir, const struct dlb_sum *sum, int n, struct dlb_error *err);
/* *sum: new. */
int dlb_sums_read(const char *dir, struct dlb_sum **sum, int *n, bool *found, struct dlb_error *err);
bool dlb_sums_have(const struct dlb_sum *sum, int n, const char *name);
/* Every n_ranks-th file, from that of `rank` on. */
int dlb_sums_check(const char *dir, const struct dlb_sum *sum, int n, int rank, int n_ranks, struct dlb_error *err);

/* ---- checkpoint_folder.c, on rank 0 ---- */
int64_t dlb_checkpoint_step_of(const char *name);		/* "step-120" -> 120, else -1 */
int64_t *dlb_checkpoint_steps(int folder, int *n);		/* newest first; new, NULL: none */
/* Removes what a manifest of ours in folder `name` lists, and the folder where nothing else was in it. */
bool dlb_checkpoint_remove(int folder, const char *name);
void dlb_checkpoint_sweep(int folder);				/* what runs that were killed have left */
/* Gives the complete folder `aside` its name, and removes all but the newest two. */
int dlb_checkpoint_settle(struct dlb_checkpoint *c, const char *aside, int64_t step, char **path, struct dlb_error *err);
#endif
