/* Fuzzer of the safetensors reader; every byte of every tensor is touched.
 *     make fuzz && build/fuzz/safetensors -max_total_time=600 CORPUS */
#include <stdlib.h>
#include <string.h>
#include "model/safetensors.h"
#include "util/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_safetensors s;
	if (dlb_safetensors_parse(data, size, "fuzz.safetensors", &s, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		return 0;
	}
	uint64_t h = DLB_HASH_INIT;
	for (int i = 0; i < s.n; i++) {
		if (dlb_safetensors_find(&s, s.tensor[i].name) != &s.tensor[i])
			dlb_bug("tensor '%s' is not found", s.tensor[i].name);
		h = dlb_hash_bytes(h, s.tensor[i].data, dlb_desc_bytes(&s.tensor[i].desc));
		if (dlb_desc_count(&s.tensor[i].desc))
			(void)dlb_value_real(s.tensor[i].data, s.tensor[i].desc.dtype, 0);
	}
	if (h == 1)	/* so that the reading is not optimised away */
		abort();
	dlb_safetensors_release(&s);
	return 0;
}
