/* Cells of recurrent networks: one step of one sample without the products. Formulas and their order are
 * those of tensor/cpu/cell_real.h. s: planes, d.plane apart. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/cell.h"
}

template <typename T> static __device__ inline T act(int f, T x)
{
	return f == DLB_CELL_RELU ? (x > 0 ? x : 0) : f == DLB_CELL_TANH ? F(tanh)(x) : F(sigmoid)(x);
}

/* Derivative, as a function of the result y. */
template <typename T> static __device__ inline T slope(int f, T y)
{
	return f == DLB_CELL_RELU ? (y > 0 ? 1 : 0) : f == DLB_CELL_TANH ? 1 - y * y : y * (1 - y);
}

template <typename T> static __device__ inline const T *in(const struct cuda_cell &a, int i)
{
	return (const T *)a.p.in[i];
}

template <typename T> static __device__ inline T *out(const struct cuda_cell &a, int i)
{
	return (T *)a.p.out[i];
}

template <typename T> static __device__ void lstm(const struct cuda_cell &a, int64_t j)
{
	const T *x = in<T>(a, 0), *rec = in<T>(a, 1), *b = in<T>(a, 2), *peep = in<T>(a, 3),
		*cp = in<T>(a, 5);
	const int64_t h = a.d.h, p = a.d.plane;
	const bool peeps = a.d.peepholes;
	const int *f = a.d.act;
	T *s = out<T>(a, 0);
	const T vi = x[j] + rec[j] + b[j], vo = x[h + j] + rec[h + j] + b[h + j];
	const T vf = x[2 * h + j] + rec[2 * h + j] + b[2 * h + j],
		vg = x[3 * h + j] + rec[3 * h + j] + b[3 * h + j];
	const T i = act(f[0], vi + (peeps ? peep[j] * cp[j] : 0));
	const T keep = a.d.coupled ? 1 - i : act(f[0], vf + (peeps ? peep[2 * h + j] * cp[j] : 0));
	const T g = act(f[1], vg), c = keep * cp[j] + i * g;
	const T o = act(f[0], vo + (peeps ? peep[h + j] * c : 0));

	s[j] = i;
	s[p + j] = o;
	s[2 * p + j] = keep;
	s[3 * p + j] = g;
	s[4 * p + j] = c;
	s[5 * p + j] = o * act(f[2], c);
}

template <typename T> static __device__ void lstm_grad(const struct cuda_cell &a, int64_t j)
{
	const T *s = in<T>(a, 0), *cp = in<T>(a, 2), *peep = in<T>(a, 3);
	const int64_t h = a.d.h, p = a.d.plane;
	const bool peeps = a.d.peepholes, coupled = a.d.coupled;
	const int *f = a.d.act;
	T *dh = out<T>(a, 0), *dc = out<T>(a, 1), *dx = out<T>(a, 2);
	const T i = s[j], o = s[p + j], keep = s[2 * p + j], g = s[3 * p + j], c = s[4 * p + j];
	const T hc = act(f[2], c), d_o = dh[j] * hc * slope(f[0], o);
	const T e = dc[j] + dh[j] * o * slope(f[2], hc) + (peeps ? d_o * peep[h + j] : 0);
	const T di = (coupled ? e * (g - cp[j]) : e * g) * slope(f[0], i);
	const T df = coupled ? 0 : e * cp[j] * slope(f[0], keep);

	dx[j] = di;
	dx[h + j] = d_o;
	dx[2 * h + j] = df;
	dx[3 * h + j] = e * i * slope(f[1], g);
	dc[j] = e * keep + (peeps ? di * peep[j] + df * peep[2 * h + j] : 0);
	dh[j] = 0;
}

template <typename T> static __device__ void gru(const struct cuda_cell &a, int64_t j)
{
	const T *x = in<T>(a, 0), *rec = in<T>(a, 1), *b = in<T>(a, 2), *hp = in<T>(a, 4);
	const int64_t h = a.d.h, p = a.d.plane;
	const int *f = a.d.act;
	T *s = out<T>(a, 0);
	const T z = act(f[0], x[j] + rec[j] + b[j]), q = act(f[0], x[h + j] + rec[h + j] + b[h + j]);

	s[j] = z;
	s[p + j] = q;
	s[2 * p + j] = x[2 * h + j] + b[2 * h + j];
	s[3 * p + j] = a.d.joint ? rec[2 * h + j] + b[3 * h + j] : q * hp[j];
}

/* Candidate and new state. If the reset comes first, rec is (r h) R^T. */
template <typename T> static __device__ void gru_candidate(const struct cuda_cell &a, int64_t j)
{
	const T *rec = in<T>(a, 1), *b = in<T>(a, 2), *hp = in<T>(a, 4);
	const int64_t h = a.d.h, p = a.d.plane;
	T *s = out<T>(a, 0);
	const T z = s[j], more = a.d.joint ? s[p + j] * s[3 * p + j] : rec[j] + b[3 * h + j];
	const T c = act(a.d.act[1], s[2 * p + j] + more);

	s[2 * p + j] = c;
	s[4 * p + j] = (1 - z) * c + z * hp[j];
}

template <typename T> static __device__ void gru_grad(const struct cuda_cell &a, int64_t j)
{
	const T *s = in<T>(a, 0), *hp = in<T>(a, 1);
	const int64_t h = a.d.h, p = a.d.plane;
	const int *f = a.d.act;
	T *dh = out<T>(a, 0), *dx = out<T>(a, 2), *dr = out<T>(a, 3);
	const T z = s[j], q = s[p + j], c = s[2 * p + j];
	const T dn = dh[j] * (1 - z) * slope(f[1], c);

	dx[j] = dr[j] = dh[j] * (hp[j] - c) * slope(f[0], z);
	dx[2 * h + j] = dn;
	dh[j] *= z;
	dx[h + j] = dr[h + j] = a.d.joint ? dn * s[3 * p + j] * slope(f[0], q) : 0;
	if (a.d.joint)
		dr[2 * h + j] = dn * q;
}

/* If the reset comes first: the remaining gradients, from the gradient of r h (in[4]). */
template <typename T> static __device__ void gru_grad_reset(const struct cuda_cell &a, int64_t j)
{
	const T *s = in<T>(a, 0), *hp = in<T>(a, 1), *drh = in<T>(a, 4);
	const int64_t h = a.d.h;
	T *dh = out<T>(a, 0), *dx = out<T>(a, 2), *dr = out<T>(a, 3);
	const T q = s[a.d.plane + j];

	dx[h + j] = dr[h + j] = drh[j] * hp[j] * slope(a.d.act[0], q);
	dh[j] += drh[j] * q;
}

template <typename T> static __device__ void rnn(const struct cuda_cell &a, int64_t j)
{
	out<T>(a, 0)[j] = act(a.d.act[0], in<T>(a, 0)[j] + in<T>(a, 1)[j] + in<T>(a, 2)[j]);
}

template <typename T> static __device__ void rnn_grad(const struct cuda_cell &a, int64_t j)
{
	T *dh = out<T>(a, 0);

	out<T>(a, 2)[j] = dh[j] * slope(a.d.act[0], in<T>(a, 0)[j]);
	dh[j] = 0;
}

template <typename T> static __device__ void step(const struct cuda_cell &a)
{
	for (EACH(j, a.d.h))
		switch (a.d.loop) {
		case DLB_CELL_RNN:
			rnn<T>(a, j);
			break;
		case DLB_CELL_RNN_GRAD:
			rnn_grad<T>(a, j);
			break;
		case DLB_CELL_GRU:
			gru<T>(a, j);
			break;
		case DLB_CELL_GRU_CANDIDATE:
			gru_candidate<T>(a, j);
			break;
		case DLB_CELL_GRU_GRAD:
			gru_grad<T>(a, j);
			break;
		case DLB_CELL_GRU_GRAD_RESET:
			gru_grad_reset<T>(a, j);
			break;
		case DLB_CELL_LSTM:
			lstm<T>(a, j);
			break;
		case DLB_CELL_LSTM_GRAD:
			lstm_grad<T>(a, j);
			break;
		}
}

KERNEL(cell_f32, cuda_cell) { step<float>(a); }
KERNEL(cell_f64, cuda_cell) { step<double>(a); }
