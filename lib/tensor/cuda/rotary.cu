/* Rotation of pairs by position (struct dlb_rotary_desc). Neighbouring threads have neighbouring pairs of a row. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/rotary.h"
}

/* The start of the table entry of row i of sample b; -1: there is none. */
static __device__ inline int64_t entry(const struct cuda_rotary &a, int64_t b, int64_t i)
{
	const struct dlb_rotary_desc &d = a.d;

	if (!d.by_id)
		return ((d.one_batch ? 0 : b * d.rows) + i) * d.half;
	const int64_t at = ((const int64_t *)a.p.in[3])[b * d.rows + i];

	return at < 0 || at >= d.positions ? -1 : at * d.half;
}

template <typename T> static __device__ void turn(const struct cuda_rotary &a)
{
	const struct dlb_rotary_desc &d = a.d;
	const int64_t each = d.width - d.half;	/* pairs and copied elements of a row */

	for (EACH(k, d.batch * d.heads * d.rows * each)) {
		int64_t row, j, line, i, b, h;

		divide(k, each, &row, &j);
		divide(row, d.rows, &line, &i);
		divide(line, d.heads, &b, &h);
		const int64_t at = b * d.x[0] + h * d.x[1] + i * d.x[2];
		const T *x = (const T *)a.p.in[0] + at;
		T *y = (T *)a.p.out[0] + at;

		if (j >= d.half) {
			y[d.half + j] = x[d.half + j];
			continue;
		}
		const int64_t e = entry(a, b, i), u = j * d.step, v = u + d.far;
		const T c = e < 0 ? (T)0 : ((const T *)a.p.in[1])[e + j],
			s = e < 0 ? (T)0 : ((const T *)a.p.in[2])[e + j], turned = d.inverse ? -s : s, p = x[u],
			q = x[v];

		y[u] = e < 0 ? (T)0 : p * c - q * turned;
		y[v] = e < 0 ? (T)0 : p * turned + q * c;
	}
}

KERNEL(rotary_f32, cuda_rotary) { turn<float>(a); }
KERNEL(rotary_f64, cuda_rotary) { turn<double>(a); }
