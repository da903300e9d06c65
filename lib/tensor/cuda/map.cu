/* Elementwise functions with broadcasting: one kernel for each type, which chooses among the lines of
 * map_list.h. All threads choose alike. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/map.h"
}

/* Values of one element. mask: a as bool, for functions that choose and logic. */
template <typename T> struct operands { T a, b, c, alpha, beta; bool mask; };

template <typename T> static __device__ T real_python_mod(T a, T b)
{
	const T r = F(fmod)(a, b);

	return r == 0 ? copysign((T)0, b) : (r < 0) != (b < 0) ? r + b : r;
}

#define LOAD(v) const T a = v.a, b = v.b, c = v.c, alpha = v.alpha, beta = v.beta; \
	(void)a, (void)b, (void)c, (void)alpha, (void)beta

/* ---- numbers: real_number and real_chosen, int_number and int_chosen ---- */
#define T_IS_FLOAT
#define NAMED(name) real_##name
#include "tensor/map_real.h"
#include "tensor/cuda/map_type.cuh"
#undef T_IS_FLOAT
#undef NAMED
#define NAMED(name) int_##name
#define MAP_DEVICE __device__
#include "tensor/map_int.h"
#include "tensor/cuda/map_type.cuh"

/* ---- comparisons and logic ---- */
template <typename T> static __device__ bool compared(int fn, const operands<T> &v)
{
	LOAD(v);
	switch (fn) {
#define MAP(name, n, expr)
#define MAP_COMPARE(name, n, expr) case DLB_MAP_##name: return expr;
#define MAP_LOGIC(name, n, expr) case DLB_MAP_##name: return expr;
#include "tensor/map_list.h"
#undef MAP
	}
	return false;
}

enum kind { NUMBER, COMPARED, CHOSEN };
static __device__ enum kind kind_of(int fn)
{
	switch (fn) {
#define MAP(name, n, expr)
#define MAP_COMPARE(name, n, expr) case DLB_MAP_##name: return COMPARED;
#define MAP_LOGIC(name, n, expr) case DLB_MAP_##name: return COMPARED;
#define MAP_SELECT(name, n, expr) case DLB_MAP_##name: return CHOSEN;
#include "tensor/map_list.h"
#undef MAP
	}
	return NUMBER;
}

/* How operands lie in memory: all of type T; or f32, some of them as bf16. */
template <typename T> struct plain {
	static __device__ inline T get(const struct cuda_map &, int, const void *p, int64_t i)
	{
		return ((const T *)p)[i];
	}
	static __device__ inline void put(const struct cuda_map &, void *p, int64_t i, T v) { ((T *)p)[i] = v; }
};
struct mixed {
	static __device__ inline float get(const struct cuda_map &m, int o, const void *p, int64_t i)
	{
		return m.narrow >> o & 1 ? (float)((const bf16 *)p)[i] : ((const float *)p)[i];
	}
	static __device__ inline void put(const struct cuda_map &m, void *p, int64_t i, float v)
	{
		if (m.narrow & 1)
			((bf16 *)p)[i] = bf16(v);
		else
			((float *)p)[i] = v;
	}
};

template <typename T, typename Memory>
static __device__ T value(const struct cuda_map &m, int i, const int64_t *at)
{
	return m.nest.n_operands > i + 1 ? Memory::get(m, i + 1, m.p.in[i], at[i + 1]) : (T)0;
}

template <typename T, typename Memory, typename Number, typename Chosen>
static __device__ void map(const struct cuda_map &m, T alpha, T beta, Number number, Chosen chosen)
{
	const enum kind kind = kind_of(m.fn);

	for (EACH(i, m.nest.count)) {
		operands<T> v;
		int64_t at[4];

		seek(m.nest, i, at);
		v.mask = kind == CHOSEN && ((const uint8_t *)m.p.in[0])[at[1]];
		v.a = kind == CHOSEN ? (T)0 : value<T, Memory>(m, 0, at);
		v.b = value<T, Memory>(m, 1, at);
		v.c = value<T, Memory>(m, 2, at);
		v.alpha = alpha;
		v.beta = beta;
		if (kind == COMPARED)
			((uint8_t *)m.p.out[0])[at[0]] = compared(m.fn, v);
		else
			Memory::put(m, m.p.out[0], at[0], kind == CHOSEN ? chosen(m.fn, v) : number(m.fn, v));
	}
}

#define REAL(T, name) \
KERNEL(map_##name, cuda_map) \
{ \
	map<T, plain<T>>(a, (T)a.alpha, (T)a.beta, real_number<T>, real_chosen<T>); \
}
REAL(float, f32)
REAL(double, f64)
KERNEL(map_bf16, cuda_map)
{
	map<float, mixed>(a, (float)a.alpha, (float)a.beta, real_number<float>, real_chosen<float>);
}

/* The parameter as an integer of the type: limited to its range; NaN is 0. */
template <typename T> static __device__ T limited(double v, int64_t least, int64_t most)
{
	return (T)(v != v ? 0 : v <= (double)least ? least : v >= (double)most ? most : (int64_t)v);
}
#define INTEGER(T, name, least, most) \
KERNEL(map_##name, cuda_map) \
{ \
	map<T, plain<T>>(a, limited<T>(a.alpha, least, most), limited<T>(a.beta, least, most), int_number<T>, \
			 int_chosen<T>); \
}
INTEGER(int8_t, i8, INT8_MIN, INT8_MAX)
INTEGER(int16_t, i16, INT16_MIN, INT16_MAX)
INTEGER(int32_t, i32, INT32_MIN, INT32_MAX)
INTEGER(int64_t, i64, INT64_MIN, INT64_MAX)
INTEGER(uint8_t, u8, 0, UINT8_MAX)
INTEGER(uint16_t, u16, 0, UINT16_MAX)
INTEGER(uint32_t, u32, 0, UINT32_MAX)
INTEGER(uint64_t, u64, 0, INT64_MAX)
