/* Divides sums of channels among blocks: see columns.h. */
#include <stdint.h>

#include "tensor/cuda/columns.h"

/* 1056 blocks fill the 132 processors of a large device evenly with 2, 4 or 8 at a time. */
enum { WIDEST = 32, PER_THREAD = 4, BLOCKS = 1056, PER_JOINING_THREAD = 4 };

static int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct cuda_columns dlb_cuda_columns(int64_t n, int64_t channels, int64_t s, int64_t run)
{
	struct cuda_columns m = { .channels = channels, .s = s, .rows = n * s, .each = 1, .wide = 1 };
	int64_t lanes, wanted;
	int join = 1;

	if (!channels || !m.rows)
		s = m.s = 1;
	if (s == 1 && channels % run == 0)
		m.each = (int)run;
	while (s == 1 && m.wide < WIDEST && m.wide * m.each < channels)
		m.wide *= 2; /* neighbouring threads read neighbouring channels */
	lanes = CUDA_THREADS / m.wide;
	m.groups = divided(channels, m.wide * m.each);
	wanted = m.groups ? divided(BLOCKS, m.groups) : 1;
	m.chunk = divided(divided(m.rows, wanted), lanes) * lanes;
	if (m.chunk < lanes * PER_THREAD)
		m.chunk = lanes * PER_THREAD;
	m.chunks = divided(m.rows, m.chunk);
	while (join < CUDA_THREADS && join * PER_JOINING_THREAD < m.chunks)
		join *= 2;
	m.join_wide = CUDA_THREADS / join;
	m.join_blocks = divided(channels, m.join_wide);
	return m;
}

bool dlb_cuda_aligned(const struct cuda_operands *p, int n_in, int n_out)
{
	uintptr_t bits = 0;

	for (int i = 0; i < n_in; i++)
		bits |= (uintptr_t)p->in[i];
	for (int i = 0; i < n_out; i++)
		bits |= (uintptr_t)p->out[i];
	return bits % CUDA_RUN_BYTES == 0;
}
