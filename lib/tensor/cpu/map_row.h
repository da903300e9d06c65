/* One row function per line of map_list.h for type T, and their table; included by map.c for each type. Rows
 * are contiguous; the result may alias an operand. */
#ifndef OPERANDS_1
#define OPERANDS_1(TB)
#define OPERANDS_2(TB) const TB b = pb[i];
#define OPERANDS_3(TB) const TB b = pb[i]; const TB c = pc[i];
#define LOOP(name, n_in, TA, TB, TO, expr) \
static void S(row_##name)(void *vo, const void *va, const void *vb, const void *vc, const struct params *ps, int64_t n) \
{ \
	TO *o = vo; \
	const TA *pa = va; \
	const TB *pb = vb, *pc = vc; \
	const T alpha = PARAM(ps->alpha), beta = PARAM(ps->beta); \
	(void)alpha; (void)beta; (void)pb; (void)pc; \
	_Pragma("omp simd") \
	for (int64_t i = 0; i < n; i++) { \
		const TA a = pa[i]; \
		OPERANDS_##n_in(TB) \
		o[i] = (TO)(expr); \
	} \
}
#endif

#define MAP(name, n, expr) LOOP(name, n, T, T, T, expr)
#ifdef T_IS_FLOAT
#define MAP_FLOAT(name, n, expr) LOOP(name, n, T, T, T, expr)
#define MAP_INT(name, n, expr)
#else
#define MAP_FLOAT(name, n, expr)
#define MAP_INT(name, n, expr) LOOP(name, n, T, T, T, expr)
#endif
#define MAP_COMPARE(name, n, expr) LOOP(name, n, T, T, uint8_t, expr)
#define MAP_LOGIC(name, n, expr) LOOP(name, n, T, T, uint8_t, expr)
#define MAP_SELECT(name, n, expr) LOOP(name, n, uint8_t, T, T, expr)
#include "tensor/map_list.h"
#undef MAP

static row_fn *const S(rows)[DLB_N_MAPS] = {
#define MAP(name, n, expr) S(row_##name),
#ifdef T_IS_FLOAT
#define MAP_FLOAT(name, n, expr) S(row_##name),
#define MAP_INT(name, n, expr) NULL,
#else
#define MAP_FLOAT(name, n, expr) NULL,
#endif
#include "tensor/map_list.h"
#undef MAP
};
