/* Detects the levels of this processor: see level.h. */
#include "tensor/cpu/level.h"
#include "tensor/backend.h"
#include "tensor/skinny.h"

extern const struct dlb_backend_ops dlb_cpu_ops;
extern const struct dlb_skinny dlb_cpu_skinny;
#ifdef __x86_64__
extern const struct dlb_backend_ops dlb_cpu_ops_v3, dlb_cpu_ops_v4;
extern const struct dlb_skinny dlb_cpu_skinny_v3, dlb_cpu_skinny_v4;
#endif

const struct dlb_backend_ops *dlb_cpu_level(int i)
{
	const struct dlb_backend_ops *level[4] = { NULL };
	int n = 0;

#ifdef __x86_64__
	bool v3, v4;

	__builtin_cpu_init();			/* checks also that the system saves the registers */
	v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	     __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
	v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	     __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
	     __builtin_cpu_supports("avx512vl");
	if (v4)
		level[n++] = &dlb_cpu_ops_v4;
	if (v3)
		level[n++] = &dlb_cpu_ops_v3;
#endif
	level[n++] = &dlb_cpu_ops;
	return i < n ? level[i] : NULL;
}

const struct dlb_skinny *dlb_skinny(void)
{
	const struct dlb_backend_ops *best = dlb_cpu_level(0);

#ifdef __x86_64__
	if (best == &dlb_cpu_ops_v4)
		return &dlb_cpu_skinny_v4;
	if (best == &dlb_cpu_ops_v3)
		return &dlb_cpu_skinny_v3;
#endif
	(void)best;
	return &dlb_cpu_skinny;
}
