/* Fuzzer of JPEG and PNG decoding and of the transforms: the input is a transform, a zero byte, an image
 * file.
 *     make fuzz && build/fuzz/image -max_total_time=300 CORPUS */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "data/image.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/transform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct dlb_scratch scratch;
	const struct dlb_sample_seed seed = { 1, 2, 3 };
	const uint8_t *zero = size ? memchr(data, 0, size < 100 ? size : 100) : NULL,
		      *p = zero ? zero + 1 : data;
	size_t n = size - (size_t)(p - data), at = 0;
	struct dlb_error err = { .what = "" };
	struct dlb_transform t;
	struct dlb_image x;
	float *out;

	if (dlb_image_decode(p, n, 1 << 16, &scratch, &x, &at, &err)) {
		if (!err.what[0] || at > n)
			dlb_bug("refused without a word, or at byte %zu of %zu", at, n);
		return 0;
	}
	if (x.h < 1 || x.w < 1 || x.h * x.w > 1 << 16 || (x.c != 1 && x.c != 3))
		dlb_bug("an image of %lldx%lldx%lld", (long long)x.c, (long long)x.h, (long long)x.w);
	memset(&t, 0, sizeof t);
	if (!zero || dlb_transform_parse((const char *)data, &t, &err))
		return 0;
	for (int i = 0; i < t.n_steps; i++)		/* what is asked for is not untrusted, only slow */
		if (t.step[i].h > 256 || t.step[i].w > 256 || t.step[i].amount > 32)
			goto out;
	if (dlb_transform_bind(&t, x.c, x.h, x.w, &err) || t.out_c * t.out_h * t.out_w > 1 << 22)
		goto out;
	out = malloc((size_t)(t.out_c * t.out_h * t.out_w) * sizeof *out);
	if (dlb_transform_apply(&t, &x, &seed, &scratch, out, &err))
		dlb_bug("the image that the transform was fixed for is refused: %s", err.what);
	free(out);
out:
	dlb_transform_release(&t);
	return 0;
}
