/* How sums of channels are divided among blocks; see columns.h. */
#include "tensor/cuda/columns.h"

enum { WIDEST = 32, PER_THREAD = 8, BLOCKS = 1024, JOIN_LANES = 64 };

static int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct cuda_columns dlb_cuda_columns(int64_t n, int64_t channels, int64_t s)
{
	struct cuda_columns m = { .channels = channels, .s = s, .rows = n * s, .wide = 1 };
	int64_t lanes, wanted;
	int join = 1;

	if (!channels || !m.rows)
		s = m.s = 1;
	while (s == 1 && m.wide < WIDEST && m.wide < channels)
		m.wide *= 2; /* neighbouring threads read neighbouring channels */
	lanes = CUDA_THREADS / m.wide;
	m.groups = divided(channels, m.wide);
	wanted = m.groups ? divided(BLOCKS, m.groups) : 1;
	m.chunk = divided(divided(m.rows, wanted), lanes) * lanes;
	if (m.chunk < lanes * PER_THREAD)
		m.chunk = lanes * PER_THREAD;
	m.chunks = divided(m.rows, m.chunk);
	while (join < JOIN_LANES && join < m.chunks)
		join *= 2;
	m.join_wide = CUDA_THREADS / join;
	m.join_blocks = divided(channels, m.join_wide);
	return m;
}
