/* Elementwise functions with broadcasting: one kernel for each type, which chooses among the lines of
 * map_list.h. All threads choose alike. f32 and bf16 have kernels by runs too, one of them for each
 * function that models spend their time in. */
#include "tensor/cuda/runs.cuh"
extern "C" {
#include "tensor/cuda/map.h"
}

/* Values of one element. mask: a as bool, for functions that choose by it and for logic. */
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
	return m.runs.nest.n_operands > i + 1 ? Memory::get(m, i + 1, m.p.in[i], at[i + 1]) : (T)0;
}

template <typename T, typename Memory, typename Number, typename Chosen>
static __device__ void map(const struct cuda_map &m, T alpha, T beta, Number number, Chosen chosen)
{
	const enum kind kind = kind_of(m.fn);

	for (EACH(i, m.runs.nest.count)) {
		operands<T> v;
		int64_t at[4];

		seek(m.runs.nest, i, at);
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

/* ---- by runs, of f32 or of f32 and bf16 ----
 * get loads a run of operand o into v as it lies in memory; widen converts it to f32. Loads of other operands
 * start between the two. */
struct plain_runs {
	static const int width = RUN_BYTES / sizeof(float);
	static __device__ inline void get(const struct cuda_map &m, int o, int64_t at, int length, float *v)
	{
		get_run<width>(m.runs, o, (const float *)m.p.in[o - 1], at, length, v);
	}
	static __device__ inline void widen(const struct cuda_map &, int, float *) {}
	static __device__ inline void put(const struct cuda_map &m, int64_t at, int length, const float *v)
	{
		put_run<width>(m.runs, 0, (float *)m.p.out[0], at, length, v);
	}
};
static __device__ inline float as_float(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof v);
	return v;
}
struct mixed_runs {
	static const int width = RUN_BYTES / sizeof(bf16);
	static __device__ inline void get(const struct cuda_map &m, int o, int64_t at, int length, float *v)
	{
		typedef neighbours<float, width / 2> pairs;
		const bf16 *p = (const bf16 *)m.p.in[o - 1];

		if (!(m.narrow >> o & 1)) {
			get_run<width>(m.runs, o, (const float *)m.p.in[o - 1], at, length, v);
		} else if (at_once<width>(m.runs, o, p, length)) {
			const pairs x = *(const pairs *)(p + at);

			for (int j = 0; j < width / 2; j++)
				v[j] = x.v[j];
		} else {
			bf16 x[width];

			get_run<width>(m.runs, o, p, at, length, x);
			for (int j = 0; j < width / 2; j++)
				v[j] = as_float(x[2 * j].bits | (uint32_t)x[2 * j + 1].bits << 16);
		}
	}
	static __device__ inline void widen(const struct cuda_map &m, int o, float *v)
	{
		if (!(m.narrow >> o & 1))
			return;
		for (int j = width / 2 - 1; j >= 0; j--) {
			uint32_t pair;

			memcpy(&pair, &v[j], sizeof pair);
			v[2 * j + 1] = as_float(pair & 0xffff0000);
			v[2 * j] = as_float(pair << 16);
		}
	}
	static __device__ inline void put(const struct cuda_map &m, int64_t at, int length, const float *v)
	{
		bf16 x[width];

		if (!(m.narrow & 1)) {
			put_run<width>(m.runs, 0, (float *)m.p.out[0], at, length, v);
			return;
		}
		for (int j = 0; j < width; j++)
			x[j] = bf16(v[j]);
		put_run<width>(m.runs, 0, (bf16 *)m.p.out[0], at, length, x);
	}
};

/* A function that is known to the compiler, which drops all others from the switch. */
template <int FN, int N_IN> struct known_function {
	static const int n_in = N_IN;
	const enum kind kind;

	__device__ inline explicit known_function(const struct cuda_map &) : kind(kind_of(FN)) {}
	__device__ inline float operator()(const operands<float> &v) const
	{
		return kind == CHOSEN ? real_chosen<float>(FN, v) : real_number<float>(FN, v);
	}
};

/* Any other function. One copy of the switch, called for each element, costs less than a copy for each
 * element of a run: such copies would take all registers. */
static __device__ __attribute__((noinline)) float any_value(int fn, enum kind kind, float a, float b, float c,
							    float alpha, float beta, bool mask)
{
	const operands<float> v = { a, b, c, alpha, beta, mask };

	return kind == COMPARED ? (float)compared(fn, v) :
	       kind == CHOSEN   ? real_chosen<float>(fn, v) :
				  real_number<float>(fn, v);
}
struct any_function {
	const int fn, n_in;
	const enum kind kind;

	__device__ inline explicit any_function(const struct cuda_map &m)
	    : fn(m.fn), n_in(m.runs.nest.n_operands - 1), kind(kind_of(m.fn))
	{
	}
	__device__ inline float operator()(const operands<float> &v) const
	{
		return any_value(fn, kind, v.a, v.b, v.c, v.alpha, v.beta, v.mask);
	}
};

template <typename Memory, typename Function> static __device__ inline void map_runs(const struct cuda_map &m)
{
	enum { N = Memory::width };
	const Function f(m);
	const float alpha = (float)m.alpha, beta = (float)m.beta;

	for (EACH(i, m.runs.nest.count)) {
		const int length = run_length<N>(m.runs, i);
		float a[N] = {}, b[N] = {}, c[N] = {}, y[N];
		uint8_t mask[N] = {};
		int64_t at[4];

		seek_run(m.runs, i, at);
		if (f.n_in > 2)
			Memory::get(m, 3, at[3], length, c);
		if (f.n_in > 1)
			Memory::get(m, 2, at[2], length, b);
		if (f.kind == CHOSEN) {
			get_run<N>(m.runs, 1, (const uint8_t *)m.p.in[0], at[1], length, mask);
		} else {
			Memory::get(m, 1, at[1], length, a);
			Memory::widen(m, 1, a);
		}
		if (f.n_in > 1)
			Memory::widen(m, 2, b);
		if (f.n_in > 2)
			Memory::widen(m, 3, c);
		for (int j = 0; j < N; j++)
			y[j] = f({ a[j], b[j], c[j], alpha, beta, mask[j] != 0 });
		if (f.kind == COMPARED) {
			for (int j = 0; j < N; j++)
				mask[j] = y[j] != 0;
			put_run<N>(m.runs, 0, (uint8_t *)m.p.out[0], at[0], length, mask);
		} else {
			Memory::put(m, at[0], length, y);
		}
	}
}

#define RUNS(name, ...) \
KERNEL(map_##name##_f32, cuda_map) { map_runs<plain_runs, __VA_ARGS__>(a); } \
KERNEL(map_##name##_bf16, cuda_map) { map_runs<mixed_runs, __VA_ARGS__>(a); }
#define KNOWN(name, n_in) RUNS(name, known_function<DLB_MAP_##name, n_in>)
RUNS(runs, any_function)
KNOWN(add, 2)
KNOWN(sub, 2)
KNOWN(mul, 2)
KNOWN(add3, 3)
KNOWN(linear, 1)
KNOWN(weighted, 2)
KNOWN(relu, 1)
KNOWN(add_relu, 2)
KNOWN(relu_grad, 2)
KNOWN(gelu, 1)
KNOWN(gelu_grad, 2)
KNOWN(gelu_tanh, 1)
KNOWN(gelu_tanh_grad, 2)
KNOWN(where, 3)

/* ---- integers ---- */
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
