/* Private to checkpoint*.c: the files in the folder of one step (checkpoint.h), and the neighbouring
 * folders. */
#ifndef DLB_EXEC_CHECKPOINT_FILES_H
#define DLB_EXEC_CHECKPOINT_FILES_H
#include "exec/checkpoint.h"
#include "util/mem.h"

struct dlb_state;

#define DLB_CHECKPOINT_MANIFEST "manifest.json"
#define DLB_CHECKPOINT_SUMS "SHA256SUMS"
#define DLB_CHECKPOINT_FORMAT "1.2"	/* versions up to 1.1 have no list of files and no checksums */
/* Prefixes of the names of a checkpoint that is being written and of one that is being replaced. */
#define DLB_CHECKPOINT_NEW ".new-"
#define DLB_CHECKPOINT_OLD ".old-"

/* ---- checkpoint_write.c, checkpoint_local.c ---- */
/* The name of a weight's k-th optimizer state; allocated from a. */
const char *dlb_checkpoint_slot_name(struct dlb_arena *a, int rule, int k, const char *weight);
/* Writes part-RANK.safetensors: weights, buffers and optimizer state of this node. Without any state it
 * writes no file and sha256 is "". */
int dlb_checkpoint_write_part(const char *dir, int rank, const struct dlb_state *s, char sha256[65],
			      struct dlb_error *err);
/* Writes kept-RANK.safetensors in the same way; local may be NULL. */
int dlb_checkpoint_write_local(const char *dir, int rank, const struct dlb_local_state *local,
			       char sha256[65], struct dlb_error *err);
/* Lists the tensors of these files; their data point into the memory of this node's device. changed: leaves
 * out weights that are not trained. Returns the number of tensors; *out: new, names from a. */
struct dlb_st_tensor;
int dlb_checkpoint_part_tensors(const struct dlb_state *s, bool changed, struct dlb_arena *a,
				struct dlb_st_tensor **out);
int dlb_checkpoint_local_tensors(const struct dlb_local_state *local, struct dlb_arena *a,
				 struct dlb_st_tensor **out);
/* Whether tensor t is a weight that is not trained: training does not change it. */
bool dlb_checkpoint_is_constant(const struct dlb_graph *g, int t);
/* The manifest of parts with changed tensors only, made in two steps. The first returns the part file of each
 * tensor as new text; NULL with err. The second writes the whole manifest, with that text and without
 * checksums, to path; -1 with err. */
char *dlb_checkpoint_places(const struct dlb_state *s, struct dlb_error *err);
int dlb_checkpoint_write_changed(const char *path, const char *places, const struct dlb_state *s,
				 const struct dlb_progress_state *p, struct dlb_error *err);
/* Writes a manifest with only the names of all ranks' files, so that the files can be removed if the run is
 * killed before the checkpoint is complete. */
int dlb_checkpoint_write_names(const char *dir, int n_ranks, struct dlb_error *err);
/* Writes the manifest, and the checksums of n files and of itself. */
struct dlb_sum { char name[64], sha256[65]; };
int dlb_checkpoint_write_manifest(const char *dir, const struct dlb_state *s,
				  const struct dlb_progress_state *p, const struct dlb_sum *sum, int n,
				  struct dlb_error *err);

/* ---- checkpoint_read.c ---- */
/* Checks that folder DIR/step-STEP is whole and undamaged; needs no model. Collective: each rank checks its
 * share of the files. A manifest of an unknown format passes; dlb_checkpoint_read refuses it. */
int dlb_checkpoint_check(const char *dir, int64_t step, int rank, int n_ranks, struct dlb_error *err);
/* Reads manifest and parts of folder DIR/step-STEP into s and p; p is unchanged on failure. */
int dlb_checkpoint_read(const char *dir, int64_t step, struct dlb_state *s, struct dlb_progress_state *p,
			struct dlb_error *err);
/* The files that a manifest lists. old: the manifest's format has no list. Returns false if the text is not a
 * manifest of dlb. */
struct dlb_checkpoint_list { struct dlb_arena arena; const char **name; int n; bool old; };
bool dlb_checkpoint_manifest_list(const char *text, size_t n, struct dlb_checkpoint_list *list);

/* ---- checkpoint_sums.c ---- */
int dlb_sums_write(const char *dir, const struct dlb_sum *sum, int n, struct dlb_error *err);
/* *sum: new. */
int dlb_sums_read(const char *dir, struct dlb_sum **sum, int *n, bool *found, struct dlb_error *err);
bool dlb_sums_have(const struct dlb_sum *sum, int n, const char *name);
/* Checks every n_ranks-th file, beginning with file `rank`. */
int dlb_sums_check(const char *dir, const struct dlb_sum *sum, int n, int rank, int n_ranks,
		   struct dlb_error *err);

/* ---- checkpoint_folder.c, on rank 0 ---- */
int64_t dlb_checkpoint_step_of(const char *name);		/* "step-120" -> 120, else -1 */
/* steps of all checkpoints, newest first; new; NULL: none */
int64_t *dlb_checkpoint_steps(int folder, int *n);
/* Removes the files that the manifest in folder `name` lists, then the folder if it is empty. Returns whether
 * the folder was removed. Without a manifest of dlb it does nothing. */
bool dlb_checkpoint_remove(int folder, const char *name);
void dlb_checkpoint_sweep(int folder);				/* removes the remains of killed runs */
/* Renames the complete folder `aside` to its final name, and removes all but the newest two. */
int dlb_checkpoint_settle(struct dlb_checkpoint *c, const char *aside, int64_t step, char **path,
			  struct dlb_error *err);
#endif
