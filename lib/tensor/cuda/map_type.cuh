/* The functions of map_list.h on one element of type T, for one class of types; included by map.cu for reals and
 * integers, each with its arithmetic. NAMED(number): those whose operands and result have type T; NAMED(chosen):
 * those that choose by a mask. */
#define CASE(name, expr) case DLB_MAP_##name: return (T)(expr);

template <typename T> static __device__ T NAMED(number)(int fn, const operands<T> &v)
{
	LOAD(v);
	switch (fn) {
#define MAP(name, n, expr) CASE(name, expr)
#ifdef T_IS_FLOAT
#define MAP_INT(name, n, expr)
#else
#define MAP_FLOAT(name, n, expr)
#endif
#define MAP_COMPARE(name, n, expr)
#define MAP_LOGIC(name, n, expr)
#define MAP_SELECT(name, n, expr)
#include "tensor/map_list.h"
#undef MAP
	}
	return 0;
}

template <typename T> static __device__ T NAMED(chosen)(int fn, const operands<T> &v)
{
	const bool a = v.mask;
	const T b = v.b, c = v.c, alpha = v.alpha;

	switch (fn) {
#define MAP(name, n, expr)
#define MAP_SELECT(name, n, expr) CASE(name, expr)
#include "tensor/map_list.h"
#undef MAP
	}
	return 0;
}
#undef CASE
