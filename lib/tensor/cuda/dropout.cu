/* Dropout: mask and product in one pass. The mask's words are those of dlb_philox (util/rng.h). */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/dropout.h"
}

/* Philox 4x32-10 (Salmon et al., SC 2011). */
static __device__ inline void philox(struct cuda_draw d, uint64_t i, uint32_t c[4])
{
	uint32_t k0 = (uint32_t)d.seed, k1 = (uint32_t)(d.seed >> 32);

	c[0] = (uint32_t)i;
	c[1] = (uint32_t)(i >> 32);
	c[2] = (uint32_t)d.stream;
	c[3] = (uint32_t)(d.stream >> 32);
	for (int round = 0; round < 10; round++) {
		const uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
		const uint32_t c0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, c2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;

		c[0] = c0;
		c[1] = (uint32_t)p1;
		c[2] = c2;
		c[3] = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

static __device__ inline struct cuda_draw draw_of(const struct cuda_dropout &d)
{
	const struct cuda_draw *step = (const struct cuda_draw *)d.p.in[CUDA_VALUES_IN];

	return step ? *step : d.draw;
}

/* Four neighbours, which one instruction reads or writes where they are aligned. */
template <typename S> struct alignas(4 * sizeof(S) < 16 ? 4 * sizeof(S) : 16) four { S v[4]; };
template <typename V> static __device__ inline bool is_aligned(const void *p)
{
	return (uintptr_t)p % alignof(V) == 0;
}

template <typename S> static __device__ inline S kept(const struct cuda_dropout &d, S x, bool keep)
{
	typedef typename computes<S>::type T;

	return (S)(keep ? (T)x * (T)d.scale : (T)0);
}

template <typename S> static __device__ inline void dropout(const struct cuda_dropout &d)
{
	const S *x = (const S *)d.p.in[0];
	S *y = (S *)d.p.out[0];
	uint8_t *mask = (uint8_t *)d.p.out[1];
	const struct cuda_draw draw = draw_of(d);
	const bool whole = d.per_sample % 4 == 0 && is_aligned<four<S>>(x) && is_aligned<four<S>>(y) &&
			   is_aligned<four<uint8_t>>(mask);

	for (EACH(i, d.samples * d.counters)) {
		uint32_t word[4];
		int64_t sample, counter;

		divide(i, d.counters, &sample, &counter);
		philox(draw,
		       (uint64_t)(d.first_sample + sample) * (uint64_t)d.counters + (uint64_t)counter, word);
		const int64_t at = sample * d.per_sample + 4 * counter;
		if (whole) {
			four<S> v = *(const four<S> *)(x + at);
			four<uint8_t> m;

			for (int j = 0; j < 4; j++) {
				m.v[j] = word[j] >= d.least;
				v.v[j] = kept(d, v.v[j], m.v[j]);
			}
			*(four<S> *)(y + at) = v;
			if (mask)
				*(four<uint8_t> *)(mask + at) = m;
			continue;
		}
		for (int j = 0; j < 4 && 4 * counter + j < d.per_sample; j++) {
			y[at + j] = kept(d, x[at + j], word[j] >= d.least);
			if (mask)
				mask[at + j] = word[j] >= d.least;
		}
	}
}

/* A part of a tensor: its elements have the same random words as in the whole tensor. */
template <typename S> static __device__ inline void dropout_part(const struct cuda_dropout &d)
{
	const int64_t count = d.samples * d.per_sample;
	uint8_t *mask = (uint8_t *)d.p.out[1];
	const struct cuda_draw draw = draw_of(d);

	for (EACH(i, count)) {
		uint32_t word[4];
		int64_t strip, e;

		divide(i, d.part, &strip, &e);
		const int64_t there = strip * d.whole + d.first + e, sample = there / d.per_whole,
			      in_sample = there - sample * d.per_whole;
		philox(draw,
		       (uint64_t)(d.first_sample + sample) * (uint64_t)d.counters + (uint64_t)in_sample / 4,
		       word);
		const bool keep = word[in_sample % 4] >= d.least;
		((S *)d.p.out[0])[i] = kept(d, ((const S *)d.p.in[0])[i], keep);
		if (mask)
			mask[i] = keep;
	}
}

#define DROPOUT(S, name) \
KERNEL(dropout_##name, cuda_dropout) { dropout<S>(a); } \
KERNEL(dropout_part_##name, cuda_dropout) { dropout_part<S>(a); }
DROPOUT(float, f32)
DROPOUT(double, f64)
DROPOUT(bf16, bf16)
