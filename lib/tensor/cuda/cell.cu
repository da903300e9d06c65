/* Cells of recurrent networks: one step of all samples without the products. Formulas and their order are
 * those of tensor/cpu/cell_real.h. s: the saved values, in planes d.plane elements apart. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/cell.h"
}

template <typename T> static __device__ inline T act(int f, T x)
{
	return f == DLB_CELL_RELU ? (x > 0 ? x : 0) : f == DLB_CELL_TANH ? F(tanh)(x) : F(sigmoid)(x);
}

/* The activation's derivative, as a function of its result y. */
template <typename T> static __device__ inline T slope(int f, T y)
{
	return f == DLB_CELL_RELU ? (y > 0 ? 1 : 0) : f == DLB_CELL_TANH ? 1 - y * y : y * (1 - y);
}

/* One sample's operands, in the order of struct dlb_cell_desc. */
template <typename T> struct sample { const struct dlb_cell_desc &d; const T *in[6]; T *out[5]; };

template <typename T> static __device__ void lstm(const sample<T> &u, int64_t j)
{
	const T *x = u.in[0], *rec = u.in[1], *b = u.in[2], *peep = u.in[3],
		*cp = u.in[5];
	const int64_t h = u.d.h, p = u.d.plane;
	const bool peeps = u.d.peepholes;
	const int *f = u.d.act;
	T *s = u.out[0];
	const T vi = x[j] + rec[j] + b[j], vo = x[h + j] + rec[h + j] + b[h + j];
	const T vf = x[2 * h + j] + rec[2 * h + j] + b[2 * h + j],
		vg = x[3 * h + j] + rec[3 * h + j] + b[3 * h + j];
	const T i = act(f[0], vi + (peeps ? peep[j] * cp[j] : 0));
	const T keep = u.d.coupled ? 1 - i : act(f[0], vf + (peeps ? peep[2 * h + j] * cp[j] : 0));
	const T g = act(f[1], vg), c = keep * cp[j] + i * g;
	const T o = act(f[0], vo + (peeps ? peep[h + j] * c : 0));

	s[j] = i;
	s[p + j] = o;
	s[2 * p + j] = keep;
	s[3 * p + j] = g;
	s[4 * p + j] = c;
	s[5 * p + j] = o * act(f[2], c);
}

template <typename T> static __device__ void lstm_grad(const sample<T> &u, int64_t j)
{
	const T *s = u.in[0], *cp = u.in[2], *peep = u.in[3];
	const int64_t h = u.d.h, p = u.d.plane;
	const bool peeps = u.d.peepholes, coupled = u.d.coupled;
	const int *f = u.d.act;
	T *dh = u.out[0], *dc = u.out[1], *dx = u.out[2];
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

template <typename T> static __device__ void gru(const sample<T> &u, int64_t j)
{
	const T *x = u.in[0], *rec = u.in[1], *b = u.in[2], *hp = u.in[4];
	const int64_t h = u.d.h, p = u.d.plane;
	const int *f = u.d.act;
	T *s = u.out[0];
	const T z = act(f[0], x[j] + rec[j] + b[j]), q = act(f[0], x[h + j] + rec[h + j] + b[h + j]);

	s[j] = z;
	s[p + j] = q;
	s[2 * p + j] = x[2 * h + j] + b[2 * h + j];
	s[3 * p + j] = u.d.joint ? rec[2 * h + j] + b[3 * h + j] : q * hp[j];
}

/* Candidate and new state. If the reset comes first, rec is (r h) R^T. */
template <typename T> static __device__ void gru_candidate(const sample<T> &u, int64_t j)
{
	const T *rec = u.in[1], *b = u.in[2], *hp = u.in[4];
	const int64_t h = u.d.h, p = u.d.plane;
	T *s = u.out[0];
	const T z = s[j], more = u.d.joint ? s[p + j] * s[3 * p + j] : rec[j] + b[3 * h + j];
	const T c = act(u.d.act[1], s[2 * p + j] + more);

	s[2 * p + j] = c;
	s[4 * p + j] = (1 - z) * c + z * hp[j];
}

template <typename T> static __device__ void gru_grad(const sample<T> &u, int64_t j)
{
	const T *s = u.in[0], *hp = u.in[1];
	const int64_t h = u.d.h, p = u.d.plane;
	const int *f = u.d.act;
	T *dh = u.out[0], *dx = u.out[2], *dr = u.out[3];
	const T z = s[j], q = s[p + j], c = s[2 * p + j];
	const T dn = dh[j] * (1 - z) * slope(f[1], c);

	dx[j] = dr[j] = dh[j] * (hp[j] - c) * slope(f[0], z);
	dx[2 * h + j] = dn;
	dh[j] *= z;
	dx[h + j] = dr[h + j] = u.d.joint ? dn * s[3 * p + j] * slope(f[0], q) : 0;
	if (u.d.joint)
		dr[2 * h + j] = dn * q;
}

/* If the reset comes first: the remaining gradients, from the gradient of r h (in[4]). */
template <typename T> static __device__ void gru_grad_reset(const sample<T> &u, int64_t j)
{
	const T *s = u.in[0], *hp = u.in[1], *drh = u.in[4];
	const int64_t h = u.d.h;
	T *dh = u.out[0], *dx = u.out[2], *dr = u.out[3];
	const T q = s[u.d.plane + j];

	dx[h + j] = dr[h + j] = drh[j] * hp[j] * slope(u.d.act[0], q);
	dh[j] += drh[j] * q;
}

template <typename T> static __device__ void rnn(const sample<T> &u, int64_t j)
{
	u.out[0][j] = act(u.d.act[0], u.in[0][j] + u.in[1][j] + u.in[2][j]);
}

template <typename T> static __device__ void rnn_grad(const sample<T> &u, int64_t j)
{
	T *dh = u.out[0];

	u.out[2][j] = dh[j] * slope(u.d.act[0], u.in[0][j]);
	dh[j] = 0;
}

template <typename T> static __device__ void step(const sample<T> &u, int64_t j)
{
	switch (u.d.loop) {
	case DLB_CELL_RNN:
		rnn(u, j);
		break;
	case DLB_CELL_RNN_GRAD:
		rnn_grad(u, j);
		break;
	case DLB_CELL_GRU:
		gru(u, j);
		break;
	case DLB_CELL_GRU_CANDIDATE:
		gru_candidate(u, j);
		break;
	case DLB_CELL_GRU_GRAD:
		gru_grad(u, j);
		break;
	case DLB_CELL_GRU_GRAD_RESET:
		gru_grad_reset(u, j);
		break;
	case DLB_CELL_LSTM:
		lstm(u, j);
		break;
	case DLB_CELL_LSTM_GRAD:
		lstm_grad(u, j);
		break;
	}
}

static __device__ inline bool is_gru(const struct dlb_cell_desc &d)
{
	return d.loop >= DLB_CELL_GRU && d.loop <= DLB_CELL_GRU_GRAD_RESET;
}

template <typename T> static __device__ void forth(const sample<T> &u, int64_t j, bool ended)
{
	T *s = u.out[0], *state = s + (u.d.loop == DLB_CELL_RNN ? 0 : is_gru(u.d) ? 4 : 5) * u.d.plane;

	step(u, j);
	if (u.d.loop == DLB_CELL_GRU)
		return;
	if (ended)
		state[j] = u.in[4][j];
	if (ended && u.d.loop == DLB_CELL_LSTM)
		s[4 * u.d.plane + j] = u.in[5][j];
	if (u.out[1])
		u.out[1][j] = ended ? (T)0 : state[j];
}

template <typename T> static __device__ void back(const sample<T> &u, int64_t j, bool ended)
{
	const int64_t h = u.d.h;
	T *dx = u.out[2], *dp = u.out[4];

	if (ended) {
		for (int64_t i = j; i < u.d.x_row; i += h)
			dx[i] = 0;
		for (int64_t i = j; i < u.d.rec_row && is_gru(u.d); i += h)
			u.out[3][i] = 0;
		return;
	}
	if (u.in[5] && u.d.loop != DLB_CELL_GRU_GRAD_RESET)
		u.out[0][j] += u.in[5][j];
	step(u, j);
	for (int g = 0; g < 3 && dp; g++)
		dp[g * h + j] += dx[g * h + j] * (g == 1 ? u.in[0][4 * u.d.plane + j] : u.in[2][j]);
}

template <typename T> static __device__ inline T *row(const void *p, int64_t i)
{
	return p ? (T *)p + i : NULL;
}

/* Computes unit j of sample n. */
template <typename T> static __device__ void unit(const struct cuda_cell &a, int64_t n, int64_t j)
{
	const struct dlb_cell_desc &d = a.d;
	const void *const *in = a.p.in, *lengths = in[6];
	void *const *out = a.p.out;
	const bool ended = lengths && a.step >= (d.length == DLB_I64 ? ((const int64_t *)lengths)[n] :
								       ((const int32_t *)lengths)[n]);

	if (a.gradient)
		back(sample<T>{ d,
				{ row<T>(in[0], n * d.h), row<T>(in[1], n * d.h), row<T>(in[2], n * d.h),
				  (const T *)in[3], row<T>(in[4], n * d.h), row<T>(in[5], n * d.y_row) },
				{ row<T>(out[0], n * d.h), row<T>(out[1], n * d.h), row<T>(out[2], n * d.x_row),
				  row<T>(out[3], n * d.rec_row), (T *)out[4] } }, j, ended);
	else
		forth(sample<T>{ d,
				 { row<T>(in[0], n * d.x_row), row<T>(in[1], n * d.rec_row), (const T *)in[2],
				   (const T *)in[3], row<T>(in[4], n * d.h), row<T>(in[5], n * d.h) },
				 { row<T>(out[0], n * d.h), row<T>(out[1], n * d.y_row), NULL, NULL, NULL } }, j, ended);
}

template <typename T> static __device__ void all_samples(const struct cuda_cell &a)
{
	const int64_t n = a.d.n, h = a.d.h;

	if (a.gradient && a.p.out[4])		/* a thread adds to dp in the order of the samples */
		for (EACH(j, h))
			for (int64_t s = 0; s < n; s++)
				unit<T>(a, s, j);
	else
		for (EACH(i, n * h)) {
			int64_t s, j;

			divide(i, h, &s, &j);
			unit<T>(a, s, j);
		}
}

KERNEL(cell_f32, cuda_cell) { all_samples<float>(a); }
KERNEL(cell_f64, cuda_cell) { all_samples<double>(a); }
