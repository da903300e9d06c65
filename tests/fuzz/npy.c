/* Fuzzer of the .npy header reader.
 *     make fuzz && build/fuzz/npy -max_total_time=300 CORPUS */
#include <stdint.h>
#include "data/npy.h"
#include "data/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_npy x;

	if (dlb_npy_parse(data, size, size, "fuzz.npy", &x, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		return 0;
	}
	if (x.n_dims < 1 ||
	    x.at + (uint64_t)dlb_checked_count(x.dim, x.n_dims) * dlb_dtype_bytes(x.dtype) != size)
		dlb_bug("taken, but not of that size");
	return 0;
}
