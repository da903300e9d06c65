/* Optimizer states in fewer bits: sizes, blocks, whole arrays. See state_codec.h. */
#include <string.h>
#include "tensor/cpu/state_block.h"
#include "util/chunk.h"

const char *const dlb_state_dtypes[DLB_N_STATE_DTYPES + 1] = {
	[DLB_STATE_F32] = "f32", [DLB_STATE_BF16] = "bf16", [DLB_STATE_8BIT] = "8bit"
};

int dlb_state_dtype_find(const char *name)
{
	for (int i = 0; i < DLB_N_STATE_DTYPES; i++)
		if (!strcmp(dlb_state_dtypes[i], name))
			return i;
	return -1;
}

static int64_t blocks_of(int64_t n) { return (n + DLB_STATE_BLOCK - 1) / DLB_STATE_BLOCK; }

int64_t dlb_state_blocks(int64_t n, int n_chunks)
{
	int64_t sum = 0;

	for (int k = 0; k < n_chunks; k++)
		sum += blocks_of(dlb_chunk_at(n, n_chunks, k + 1) - dlb_chunk_at(n, n_chunks, k));
	return sum;
}

size_t dlb_state_bytes(enum dlb_state_dtype d, size_t weight_bytes, int64_t n, int n_chunks)
{
	if (d == DLB_STATE_8BIT)
		return (size_t)((n + 3) / 4 * 4) + (size_t)dlb_state_blocks(n, n_chunks) * sizeof(float);
	return (size_t)n * (d == DLB_STATE_BF16 ? sizeof(uint16_t) : weight_bytes);
}

double dlb_state_ratio(enum dlb_state_dtype d)
{
	return (double)dlb_state_bytes(d, sizeof(float), DLB_STATE_BLOCK, 1) /
	       (double)(DLB_STATE_BLOCK * sizeof(float));
}

/* Sets s->n for the block that begins at s->first. */
static void measure(struct dlb_state_span *s)
{
	s->n = (int)(s->end - s->first < DLB_STATE_BLOCK ? s->end - s->first : DLB_STATE_BLOCK);
}

struct dlb_state_span dlb_state_span_at(int64_t n, int n_chunks, int64_t block)
{
	struct dlb_state_span s = { .block = block };

	for (int64_t left = block; s.chunk < n_chunks; s.chunk++) {
		s.first = dlb_chunk_at(n, n_chunks, s.chunk);
		s.end = dlb_chunk_at(n, n_chunks, s.chunk + 1);
		if (left < blocks_of(s.end - s.first)) {
			s.first += left * DLB_STATE_BLOCK;
			measure(&s);
			return s;
		}
		left -= blocks_of(s.end - s.first);
	}
	return s;
}

void dlb_state_next(int64_t n, int n_chunks, struct dlb_state_span *s)
{
	s->first += s->n;
	s->block++;
	while (s->first == s->end && ++s->chunk < n_chunks)
		s->end = dlb_chunk_at(n, n_chunks, s->chunk + 1);
	measure(s);
}

void dlb_state_decode(enum dlb_state_code code, int64_t n, int n_chunks, const void *from, float *to)
{
	for (struct dlb_state_span s = dlb_state_span_at(n, n_chunks, 0); s.n;
	     dlb_state_next(n, n_chunks, &s))
		dlb_decode_span(code, n, from, &s, to + s.first);
}

void dlb_state_encode(enum dlb_state_code code, int64_t n, int n_chunks, const float *from, void *to)
{
	for (struct dlb_state_span s = dlb_state_span_at(n, n_chunks, 0); s.n;
	     dlb_state_next(n, n_chunks, &s))
		dlb_encode_span(code, n, from + s.first, &s, to);
}
