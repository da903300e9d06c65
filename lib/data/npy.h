/* Headers of .npy files. */
#ifndef DLB_DATA_NPY_H
#define DLB_DATA_NPY_H
#include <stddef.h>
#include <stdint.h>
#include "tensor/tensor.h"
#include "util/error.h"

/* Parses the header of a .npy file (NumPy's format, versions 1 to 3): type, dimensions, offset of the
 * elements. p has the first n bytes of the file, `size` is the size of the whole file. */
struct dlb_npy { enum dlb_dtype dtype; int n_dims; int64_t dim[DLB_MAX_DIMS]; uint64_t at; };
int dlb_npy_parse(const unsigned char *p, size_t n, uint64_t size, const char *name, struct dlb_npy *x,
		  struct dlb_error *err);
#endif
