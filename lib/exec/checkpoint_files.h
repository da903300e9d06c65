/* Inside checkpoint*.c: what lies in the folder of one step (checkpoint.h). */
#ifndef DLB_EXEC_CHECKPOINT_FILES_H
#define DLB_EXEC_CHECKPOINT_FILES_H
#include "exec/checkpoint.h"
#include "util/mem.h"

#define DLB_CHECKPOINT_MANIFEST "manifest.json"
#define DLB_CHECKPOINT_FORMAT "1.1"

/* The name of an optimizer's k-th state of a weight; lives in a. */
const char *dlb_checkpoint_slot_name(struct dlb_arena *a, int rule, int k, const char *weight);
/* part-RANK.safetensors: weights, buffers and optimizer state of this node; none, no file. */
int dlb_checkpoint_write_part(const char *dir, int rank, const struct dlb_state *s, struct dlb_error *err);
/* kept-RANK.safetensors, likewise; kept may be NULL. */
int dlb_checkpoint_write_kept(const char *dir, int rank, const struct dlb_checkpoint_kept *kept, struct dlb_error *err);
int dlb_checkpoint_write_manifest(const char *dir, const struct dlb_state *s, const struct dlb_progress_state *p, struct dlb_error *err);
/* Manifest and parts of folder DIR/step-STEP into s and p; p is untouched where it fails. */
int dlb_checkpoint_read(const char *dir, int64_t step, struct dlb_state *s, struct dlb_progress_state *p, struct dlb_error *err);
#endif
