/* Copies into memory that another core reads next, through the caches or past them. See shared.h. */
#include <string.h>
#include "comm/shared.h"
#include "util/clock.h"
#if defined __x86_64__
#include <immintrin.h>
#endif

/* ---- past the caches ---- */

enum { LINE = 64, LEAST = 4096 };	/* for fewer bytes the fence costs more than it saves */

#if defined __x86_64__
/* Copies n bytes, a multiple of a cache line; `to` is aligned to one. A line that is stored in one
 * instruction leaves at once: 16 MB took 1.6 to 2.0 ms in stores of 16 bytes, 1.1 to 1.3 ms in stores of
 * 64. */
static void stream_16(char *to, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i += 16)
		_mm_stream_si128((__m128i *)(void *)(to + i),
				 _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

__attribute__((target("avx"))) static void stream_32(char *to, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i += 32)
		_mm256_stream_si256((__m256i *)(void *)(to + i),
				    _mm256_loadu_si256((const __m256i *)(const void *)(from + i)));
}

__attribute__((target("avx512f"))) static void stream_64(char *to, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i += 64)
		_mm512_stream_si512((__m512i *)(void *)(to + i),
				    _mm512_loadu_si512((const void *)(from + i)));
}

static void stream(char *to, const char *from, size_t n)
{
	if (__builtin_cpu_supports("avx512f"))
		stream_64(to, from, n);
	else if (__builtin_cpu_supports("avx"))
		stream_32(to, from, n);
	else
		stream_16(to, from, n);
	_mm_sfence();
}
#else
static void stream(char *to, const char *from, size_t n)
{
	memcpy(to, from, n);
}
#endif

void dlb_copy_far(void *to, const void *from, size_t bytes)
{
	size_t head = (LINE - (uintptr_t)to % LINE) % LINE, n;
	const char *p = (const char *)from + head;
	char *q = (char *)to + head;

	if (bytes < LEAST) {
		if (bytes)
			memcpy(to, from, bytes);
		return;
	}
	n = (bytes - head) / LINE * LINE;
	memcpy(to, from, head);
	stream(q, p, n);
	memcpy(q + n, p + n, bytes - head - n);
}

/* ---- the faster of the two ways ---- */

enum { SAMPLES = 4, AGAIN = 256 };	/* the first SAMPLES of AGAIN copies try both ways in turn */

enum dlb_copy_way dlb_copy_tuner_begin(const struct dlb_copy_tuner *p, size_t bytes, double *start_s)
{
	unsigned n = p->n % AGAIN;

	if (bytes < LEAST)		/* reading a clock is not worth its time either */
		return DLB_COPY_NEAR;
	*start_s = dlb_clock_s();
	if (n < SAMPLES)
		return n % 2 ? DLB_COPY_FAR : DLB_COPY_NEAR;
	return p->s[DLB_COPY_FAR] < 0.7 * p->s[DLB_COPY_NEAR] ? DLB_COPY_FAR : DLB_COPY_NEAR;
}

void dlb_copy_tuner_end(struct dlb_copy_tuner *p, enum dlb_copy_way way, size_t bytes, double start_s)
{
	double last = p->last[way], now;

	if (bytes < LEAST)
		return;
	now = (dlb_clock_s() - start_s) / (double)bytes;
	/* the least of the last two: one may have been interrupted */
	p->s[way] = p->n < 2 ? now : now < last ? now : last;
	p->last[way] = now;
	p->n++;
}

void dlb_copy_there(struct dlb_copy_tuner *p, void *to, const void *from, size_t bytes)
{
	double start_s;
	enum dlb_copy_way way = dlb_copy_tuner_begin(p, bytes, &start_s);

	if (way == DLB_COPY_FAR)
		dlb_copy_far(to, from, bytes);
	else if (bytes)
		memcpy(to, from, bytes);
	dlb_copy_tuner_end(p, way, bytes, start_s);
}
