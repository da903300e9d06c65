/* See shared.h. */
#include <string.h>
#include "comm/shared.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LINE = 64, LEAST = 4096 };	/* below, waiting for the stores to leave takes longer than it saves */

void dlb_copy_far(void *to, const void *from, size_t bytes)
{
#ifdef __SSE2__
	if (bytes >= LEAST) {
		size_t head = (LINE - (uintptr_t)to % LINE) % LINE, n;
		const char *p = (const char *)from + head;
		char *q = (char *)to + head;

		memcpy(to, from, head);
		n = (bytes - head) / LINE * LINE;
		for (size_t i = 0; i < n; i += LINE)
			for (size_t k = i; k < i + LINE; k += 16)
				_mm_stream_si128((__m128i *)(void *)(q + k), _mm_loadu_si128((const __m128i *)(const void *)(p + k)));
		memcpy(q + n, p + n, bytes - head - n);
		_mm_sfence();
		return;
	}
#endif
	if (bytes)
		memcpy(to, from, bytes);
}
