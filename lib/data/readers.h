/* Threads that fill samples in parallel, and the scratch memory of each. */
#ifndef DLB_DATA_READERS_H
#define DLB_DATA_READERS_H
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

enum dlb_scratch_use {
	DLB_SCRATCH_FILE,
	DLB_SCRATCH_ROWS,
	DLB_SCRATCH_IMAGE,
	DLB_SCRATCH_A,
	DLB_SCRATCH_B,
	DLB_SCRATCH_RESIZE,
	DLB_SCRATCH_SAMPLE,
	DLB_SCRATCH_SLAB,
	DLB_N_SCRATCH
};
struct dlb_scratch { void *p[DLB_N_SCRATCH]; size_t cap[DLB_N_SCRATCH]; };
void *dlb_scratch(struct dlb_scratch *s, enum dlb_scratch_use use, size_t bytes);
void dlb_scratch_release(struct dlb_scratch *s);

/* readers.c: calls fn(ctx, i, scratch) for i = 0 .. n-1 on the threads and the caller. */
struct dlb_readers;
int dlb_readers_new(struct dlb_readers **out, int n, struct dlb_error *err);
void dlb_readers_free(struct dlb_readers *r);
void dlb_readers_run(struct dlb_readers *r, int64_t n,
		     void (*fn)(void *ctx, int64_t i, struct dlb_scratch *s), void *ctx);
#endif
