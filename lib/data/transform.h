/* Transforms of images. An image is stored plane by plane: (c, h, w). */
#ifndef DLB_DATA_TRANSFORM_H
#define DLB_DATA_TRANSFORM_H
#include <stdbool.h>
#include "data/readers.h"

enum { DLB_MAX_TRANSFORMS = 16, DLB_MAX_CHANNELS = 64 };
struct dlb_transform_step {
	enum dlb_transform_kind {
		DLB_TR_SCALE,
		DLB_TR_NORMALISE,
		DLB_TR_CHANNELS,
		DLB_TR_PAD,
		DLB_TR_RESIZE,
		DLB_TR_CROP,
		DLB_TR_RANDOM_CROP,
		DLB_TR_FLIP,
		DLB_N_TR
	} kind;
	float mul, div;				/* scale */
	/* normalise: 1 value or one per channel */
	float mean[DLB_MAX_CHANNELS], sd[DLB_MAX_CHANNELS]; int n;
	int64_t amount;				/* pad, channels */
	int64_t h, w;				/* resize, crops; resize with w 0: h is the shorter side */
	double chance;				/* of a flip, 0 to 1 */
};
struct dlb_transform {
	struct dlb_transform_step step[DLB_MAX_TRANSFORMS];
	int n_steps, tail;			/* steps from `tail` on change each value independently */
	int64_t out_c, out_h, out_w;
	/* [out_c][256]: result of steps from `tail` on for each byte */
	float *table;
};
struct dlb_image { bool bytes; int64_t c, h, w; void *p; };	/* bytes, else f32; p borrowed */
struct dlb_sample_seed { uint64_t seed; int64_t epoch, sample; };
int dlb_transform_parse(const char *text, struct dlb_transform *t, struct dlb_error *err);
/* Computes the output shape from the data's shape and builds the table. */
int dlb_transform_bind(struct dlb_transform *t, int64_t c, int64_t h, int64_t w, struct dlb_error *err);
/* Transforms image x into out_c*out_h*out_w floats. seed NULL: crops are centred, nothing is flipped. -1 with
 * err: the result has not the shape that dlb_transform_bind computed. */
int dlb_transform_apply(const struct dlb_transform *t, const struct dlb_image *x,
			const struct dlb_sample_seed *seed, struct dlb_scratch *s, float *dst,
			struct dlb_error *err);
void dlb_transform_release(struct dlb_transform *t);
#endif
