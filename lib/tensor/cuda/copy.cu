/* Strided copies: transpose, slice, expand, change of layout, cast, scatter of slices. */
#include "tensor/cuda/runs.cuh"
extern "C" {
#include "tensor/cuda/copy.h"
}

/* Calls of(out, in) for each element of out, in the order of the loops if an element is addressed again. */
template <typename Out, typename In, typename Of>
static __device__ inline void walk(const struct cuda_copy &c, Of of)
{
	for (EACH(i, c.apart.nest.count)) {
		int64_t at[4];

		seek(c.apart.nest, i, at);
		for (int64_t j = 0; j < c.again.count; j++) {
			int64_t too[4];

			seek(c.again, j, too);
			of((Out *)c.p.out[0] + c.out_offset + at[0] + too[0],
			   (const In *)c.p.in[0] + c.in_offset + at[1] + too[1]);
		}
	}
}

/* As walk, by runs of 16 bytes of the narrower type. */
template <typename Out, typename In, typename Of>
static __device__ inline void walk_runs(const struct cuda_copy &c, Of of)
{
	enum { N = RUN_BYTES / (sizeof(In) < sizeof(Out) ? sizeof(In) : sizeof(Out)) };
	const In *in = (const In *)c.p.in[0] + c.in_offset;
	Out *out = (Out *)c.p.out[0] + c.out_offset;

	for (EACH(i, c.apart.nest.count)) {
		const int length = run_length<N>(c.apart, i);
		int64_t at[4];
		In x[N];
		Out y[N];

		seek_run(c.apart, i, at);
		get_run<N>(c.apart, 1, in, at[1], length, x);
		if (Of::adds)
			get_run<N>(c.apart, 0, (const Out *)out, at[0], length, y);
		for (int j = 0; j < N; j++)
			of(&y[j], &x[j]);
		put_run<N>(c.apart, 0, out, at[0], length, y);
	}
}

#define COPY(name, Out, In, of) \
KERNEL(copy_##name, cuda_copy) { walk<Out, In>(a, of()); } \
KERNEL(copy_runs_##name, cuda_copy) { walk_runs<Out, In>(a, of()); }

/* ---- same type: by size ---- */
struct set {
	static const bool adds = false;
	template <typename T> __device__ inline void operator()(T *o, const T *x) const { *o = *x; }
};

/* o[i][j] = x[j][i], a tile at a time through shared memory, so both sides use whole lines. */
template <typename T> static __device__ inline void transpose(const struct cuda_copy &c)
{
	enum { STEP = CUDA_THREADS / COPY_TILE };
	__shared__ T tile[COPY_TILE][COPY_TILE + 1];
	const int64_t tiles_a = (c.a + COPY_TILE - 1) / COPY_TILE,
		      tiles_b = (c.b + COPY_TILE - 1) / COPY_TILE, x = threadIdx.x % COPY_TILE,
		      first = threadIdx.x / COPY_TILE;

	for (EACH_ROW(r, c.apart.nest.count * tiles_a * tiles_b)) {
		const int64_t a = r / tiles_b % tiles_a * COPY_TILE, b = r % tiles_b * COPY_TILE;
		int64_t at[4];

		seek(c.apart.nest, r / tiles_b / tiles_a, at);
		const T *in = (const T *)c.p.in[0] + c.in_offset + at[1];
		T *out = (T *)c.p.out[0] + c.out_offset + at[0];

		for (int64_t y = first; y < COPY_TILE; y += STEP)
			if (a + x < c.a && b + y < c.b)
				tile[y][x] = in[a + x + (b + y) * c.in_b];
		__syncthreads();
		for (int64_t y = first; y < COPY_TILE; y += STEP)
			if (a + y < c.a && b + x < c.b)
				out[(a + y) * c.out_a + b + x] = tile[x][y];
		__syncthreads();
	}
}

#define BY_SIZE(T, bytes) \
COPY(bytes, T, T, set) \
BLOCK_KERNEL(copy_tile_##bytes, cuda_copy) { transpose<T>(a); }
BY_SIZE(uint8_t, 1)
BY_SIZE(uint16_t, 2)
BY_SIZE(uint32_t, 4)
BY_SIZE(uint64_t, 8)

/* ---- the casts of mixed precision, and adding ---- */
struct cast {
	static const bool adds = false;
	template <typename Out, typename In> __device__ inline void operator()(Out *o, const In *x) const
	{
		*o = (Out)*x;
	}
};
struct add {
	static const bool adds = true;
	template <typename T> __device__ inline void operator()(T *o, const T *x) const { *o = *o + *x; }
};
COPY(f32_bf16, bf16, float, cast)
COPY(bf16_f32, float, bf16, cast)
COPY(add_f32, float, float, add)
COPY(add_f64, double, double, add)

/* ---- all other types: through double, or int64 between integers; as dlb_value_real, _int and _set ---- */
static __device__ inline double from_f16(uint16_t h)
{
	const int e = h >> 10 & 31, m = h & 1023;
	const double v = e == 31 ? (m ? NAN : INFINITY) :
			 e       ? ldexp(m + 1024.0, e - 25) :
				   ldexp((double)m, -24);

	return h & 0x8000 ? -v : v;
}

static __device__ inline uint16_t to_f16(double v)
{
	const double a = fabs(v);
	const uint16_t sign = v < 0 || (v == 0 && 1 / v < 0) ? 0x8000 : 0;
	int e;

	if (v != v)
		return 0x7e00;
	if (a >= 65520)
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x1p-14)
		return (uint16_t)(sign | (uint16_t)rint(a * 0x1p24));
	const double m = frexp(a, &e);
	return (uint16_t)(sign | (uint16_t)(((e + 13) << 10) + (int)rint(m * 2048)));
}

static __device__ inline int64_t real_to_int(double v)
{
	return v != v ? 0 : v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

static __device__ inline uint64_t real_to_u64(double v)
{
	return v >= 0x1p64 ? UINT64_MAX : v >= 0x1p63 ? (uint64_t)v : (uint64_t)real_to_int(v);
}

template <typename N> static __device__ inline N number_at(const void *p, int type, int64_t i)
{
	switch (type) {
	case DLB_I8: return (N)((const int8_t *)p)[i];
	case DLB_I16: return (N)((const int16_t *)p)[i];
	case DLB_I32: return (N)((const int32_t *)p)[i];
	case DLB_I64: return (N)((const int64_t *)p)[i];
	case DLB_U8: return (N)((const uint8_t *)p)[i];
	case DLB_U16: return (N)((const uint16_t *)p)[i];
	case DLB_U32: return (N)((const uint32_t *)p)[i];
	case DLB_U64: return (N)((const uint64_t *)p)[i];
	default: return (N)(((const uint8_t *)p)[i] != 0);
	}
}

static __device__ inline double real_at(const void *p, int type, int64_t i)
{
	switch (type) {
	case DLB_F32: return ((const float *)p)[i];
	case DLB_F64: return ((const double *)p)[i];
	case DLB_F16: return from_f16(((const uint16_t *)p)[i]);
	case DLB_BF16: return (float)((const bf16 *)p)[i];
	default: return number_at<double>(p, type, i);
	}
}

static __device__ inline void set_real(void *p, int type, int64_t i, double v)
{
	switch (type) {
	case DLB_F32: ((float *)p)[i] = (float)v; break;
	case DLB_F64: ((double *)p)[i] = v; break;
	case DLB_F16: ((uint16_t *)p)[i] = to_f16(v); break;
	case DLB_BF16: ((bf16 *)p)[i] = bf16((float)v); break;
	case DLB_I8: case DLB_U8: ((uint8_t *)p)[i] = (uint8_t)real_to_int(v); break;
	case DLB_I16: case DLB_U16: ((uint16_t *)p)[i] = (uint16_t)real_to_int(v); break;
	case DLB_I32: case DLB_U32: ((uint32_t *)p)[i] = (uint32_t)real_to_int(v); break;
	case DLB_I64: ((int64_t *)p)[i] = real_to_int(v); break;
	case DLB_U64: ((uint64_t *)p)[i] = real_to_u64(v); break;
	default: ((uint8_t *)p)[i] = v != 0;
	}
}

static __device__ inline void set_int(void *p, int type, int64_t i, uint64_t v)
{
	switch (type) {
	case DLB_I8: case DLB_U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
	case DLB_I16: case DLB_U16: ((uint16_t *)p)[i] = (uint16_t)v; break;
	case DLB_I32: case DLB_U32: ((uint32_t *)p)[i] = (uint32_t)v; break;
	case DLB_I64: case DLB_U64: ((uint64_t *)p)[i] = v; break;
	default: ((uint8_t *)p)[i] = v != 0;
	}
}

static __device__ inline bool is_real(int type)
{
	return type == DLB_F32 || type == DLB_F64 || type == DLB_F16 || type == DLB_BF16;
}

KERNEL(copy_any, cuda_copy)
{
	const bool real = is_real(a.in) || is_real(a.out);

	for (EACH(i, a.apart.nest.count)) {
		int64_t at[4];

		seek(a.apart.nest, i, at);
		for (int64_t j = 0; j < a.again.count; j++) {
			int64_t too[4];

			seek(a.again, j, too);
			const int64_t o = a.out_offset + at[0] + too[0], x = a.in_offset + at[1] + too[1];
			if (real)
				set_real(a.p.out[0], a.out, o, real_at(a.p.in[0], a.in, x) +
					 (a.accumulate ? real_at(a.p.out[0], a.out, o) : 0));
			else
				set_int(a.p.out[0], a.out, o, number_at<uint64_t>(a.p.in[0], a.in, x) +
					(a.accumulate ? number_at<uint64_t>(a.p.out[0], a.out, o) : 0));
		}
	}
}
