/* Files in the IDX format, and the built-in digits (digits.c), which are two of them. */
#ifndef DLB_DATA_IDX_H
#define DLB_DATA_IDX_H
#include "data/file.h"
#include "tensor/tensor.h"

/* An IDX file (Y. LeCun's format of MNIST): two zero bytes, a type, the number of dimensions, each dimension
 * as 32 bits, then the elements; all big-endian. Here the elements are in the machine's byte order. */
struct dlb_idx {
	enum dlb_dtype dtype;
	int n_dims;
	int64_t dim[DLB_MAX_DIMS];
	void *data; /* owned */
	uint64_t at;
};
/* Opens an IDX file. One-byte elements of a plain file are not loaded: data is NULL, they begin at
 * byte `at`, and *file stays open. */
int dlb_idx_open(const char *path, struct dlb_idx *x, struct dlb_data_file *file, struct dlb_error *err);
/* Parses an IDX file in memory, gzip or not; x->data is new. `name` for messages. */
int dlb_idx_parse(const void *p, size_t n, const char *name, struct dlb_idx *x, struct dlb_error *err);
void dlb_idx_release(struct dlb_idx *x);
/* The built-in digits: the two IDX files of share/data/digits. */
int dlb_digits_read(struct dlb_idx *images, struct dlb_idx *labels, struct dlb_error *err);
#endif
