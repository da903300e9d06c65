/* Fuzzer of the IDX reader, gzip or not.
 *     make fuzz && build/fuzz/idx -max_total_time=600 CORPUS share/data/digits */
#include <stdint.h>
#include "data/idx.h"
#include "data/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_idx x;
	double sum = 0.0;

	if (dlb_idx_parse(data, size, "fuzz.idx", &x, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		return 0;
	}
	for (int64_t i = 0; i < dlb_checked_count(x.dim, x.n_dims); i++)
		sum += dlb_value_real(x.data, x.dtype, i);
	dlb_idx_release(&x);
	return sum > 1e300 ? -1 : 0;
}
