/* Inside lib/data: what the readers give, and the transforms. */
#ifndef DLB_DATA_SOURCE_H
#define DLB_DATA_SOURCE_H
#include "data/data.h"

/* An IDX file (Y. LeCun's format of MNIST): two zero bytes, a type, the number of dimensions, each
 * dimension as 32 bits, then the elements; all big-endian. Here in the machine's order. */
struct dlb_idx { enum dlb_dtype dtype; int n_dims; int64_t dim[DLB_MAX_DIMS]; void *data; /* owned, malloc */ };
int dlb_idx_read(const char *path, struct dlb_idx *x, struct dlb_error *err);
/* The same from memory, gzip or not; `name` for messages. */
int dlb_idx_parse(const void *p, size_t n, const char *name, struct dlb_idx *x, struct dlb_error *err);
void dlb_idx_release(struct dlb_idx *x);
/* A whole file in memory: returns new. */
int dlb_file_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err);

/* The digits built in: the two IDX files of share/data/digits. */
int dlb_digits_read(struct dlb_idx *images, struct dlb_idx *labels, struct dlb_error *err);

/* Bytes of a text as ids 0 .. vocabulary-1 in the order of the bytes. */
struct dlb_tokens { unsigned char *id; size_t n; int vocabulary; };
int dlb_tokens_read(const char *path, struct dlb_tokens *t, struct dlb_error *err);
void dlb_tokens_release(struct dlb_tokens *t);

/* random.c: `count` elements of dtype into dst: reals N(0,1), integers in [0, bound) (bound 0: 0 or 1),
 * element j of sample i from stream(name) at i*count+j. */
void dlb_random_fill(uint64_t seed, uint64_t stream, int64_t sample, int64_t count, enum dlb_dtype dtype, int64_t bound,
		     void *dst);

/* Transforms of images. Elementwise steps are functions of one value and its channel, in f32. */
enum { DLB_MAX_TRANSFORMS = 16, DLB_MAX_CHANNELS = 64 };
struct dlb_transform_step {
	enum { DLB_TR_SCALE, DLB_TR_NORMALISE, DLB_TR_PAD, DLB_TR_CHANNELS } kind;
	float mul, div;				/* scale */
	float mean[DLB_MAX_CHANNELS], sd[DLB_MAX_CHANNELS]; int n;	/* normalise: 1 or one a channel */
	int64_t amount;				/* pad, channels */
};
struct dlb_transform {
	struct dlb_transform_step step[DLB_MAX_TRANSFORMS];
	int n_steps;
	int64_t c, h, w;			/* of the data */
	int64_t out_c, out_h, out_w;
	int64_t pad;				/* of all steps together */
	float *canvas;				/* one sample of padding only, out_c*out_h*out_w */
	float *table;				/* [out_c][256]: what becomes of a byte */
};
int dlb_transform_parse(const char *text, struct dlb_transform *t, struct dlb_error *err);
/* Fixes the shape of the data; makes canvas and table. */
int dlb_transform_bind(struct dlb_transform *t, int64_t c, int64_t h, int64_t w, struct dlb_error *err);
/* One sample (dtype, c*h*w elements) into out_c*out_h*out_w floats. */
void dlb_transform_apply(const struct dlb_transform *t, enum dlb_dtype dtype, const void *src, float *dst);
void dlb_transform_release(struct dlb_transform *t);
#endif
