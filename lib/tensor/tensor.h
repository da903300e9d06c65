/* Shapes and types of tensors.
 *
 * A struct dlb_desc is concrete: every dimension is a number. Dimensions are numbered as in ONNX (N, C, H,
 * W); the layout gives their order in memory:
 *     plain           row-major, last dimension fastest
 *     channels-last   dimension 1 moved to the end (N, H, W, C); only for n_dims >= 3
 */
#ifndef DLB_TENSOR_TENSOR_H
#define DLB_TENSOR_TENSOR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

#define DLB_MAX_DIMS 8

/* tensor.c has the table: name ("f32"), bytes, ONNX TensorProto.DataType, safetensors name. */
enum dlb_dtype { DLB_F32, DLB_F64, DLB_F16, DLB_BF16, DLB_I8, DLB_I16, DLB_I32, DLB_I64,
		 DLB_U8, DLB_U16, DLB_U32, DLB_U64, DLB_BOOL, DLB_N_DTYPES };
enum dlb_layout { DLB_PLAIN, DLB_CHANNELS_LAST };

struct dlb_desc {
	enum dlb_dtype dtype;
	enum dlb_layout layout;
	int n_dims;			/* -1: absent (optional input or output) */
	int64_t dim[DLB_MAX_DIMS];
};

const char *dlb_dtype_name(enum dlb_dtype t);
const char *dlb_dtype_safetensors(enum dlb_dtype t);	/* "F32" */
int dlb_dtype_find(const char *name);			/* our name or safetensors'; -1: none */
size_t dlb_dtype_bytes(enum dlb_dtype t);
bool dlb_dtype_is_float(enum dlb_dtype t);
bool dlb_dtype_is_int(enum dlb_dtype t);		/* signed or unsigned, not bool */
int dlb_dtype_from_onnx(int onnx);			/* -1: none (string, complex) */
int dlb_dtype_to_onnx(enum dlb_dtype t);

int64_t dlb_desc_count(const struct dlb_desc *d);	/* elements; 1 for a scalar */
int64_t dlb_desc_range(const struct dlb_desc *d, int from, int to);	/* product of dims [from, to) */
size_t dlb_desc_bytes(const struct dlb_desc *d);
/* Number of elements; -1: negative dimension, or more than 2^62. For input from files. */
int64_t dlb_checked_count(const int64_t *dim, int n_dims);
/* stride[i]: elements between neighbours along dimension i, under d->layout. */
void dlb_desc_strides(const struct dlb_desc *d, int64_t stride[DLB_MAX_DIMS]);
bool dlb_desc_same_shape(const struct dlb_desc *a, const struct dlb_desc *b);
/* NumPy broadcasting of shapes; -1 if they do not broadcast. The layout is that of the larger shape. */
int dlb_broadcast(const struct dlb_desc *a, const struct dlb_desc *b, struct dlb_desc *out);
/* "f32[32,1,28,28]" or "f32[32,6,28,28]:channels-last" */
char *dlb_desc_str(const struct dlb_desc *d, char *buf, size_t n);
double dlb_value_real(const void *data, enum dlb_dtype t, int64_t i);	/* element i as a double */
int64_t dlb_value_int(const void *data, enum dlb_dtype t, int64_t i);
void dlb_value_set(void *data, enum dlb_dtype t, int64_t i, double v);
void dlb_value_set_int(void *data, enum dlb_dtype t, int64_t i, int64_t v);	/* integers: low bits of v */
#endif
