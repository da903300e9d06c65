/* Arithmetic of integers of type T for map_list.h, in place of what map_real.h defined before: wraps as two's
 * complement; x / 0 = 0. Included once; MAP_DEVICE: the qualifiers of a function that runs on the device. */
#ifndef MAP_DEVICE
#define MAP_DEVICE
#endif
#undef ADD
#undef SUB
#undef MUL
#undef DIV
#undef NEG
#undef NEGATIVE
#undef POW
#undef FMOD
#undef MOD
#define ADD(a, b) ((T)((uint64_t)(a) + (uint64_t)(b)))
#define SUB(a, b) ((T)((uint64_t)(a) - (uint64_t)(b)))
#define MUL(a, b) ((T)((uint64_t)(a) * (uint64_t)(b)))
#define NEG(a) ((T)(0 - (uint64_t)(a)))
#define NEGATIVE(a) (!((a) > 0) && (a) != 0)		/* avoids a warning for unsigned types */
#define IS_MINUS_1(b) ((b) == (T)-1 && (T)-1 < 1)
#define DIV(a, b) ((T)((b) == 0 ? 0 : IS_MINUS_1(b) ? NEG(a) : (T)((a) / (b))))
#define FMOD(a, b) ((T)((b) == 0 || IS_MINUS_1(b) ? 0 : (T)((a) % (b))))
#define MOD(a, b) ((T)(FMOD(a, b) != 0 && (FMOD(a, b) < 1) != ((b) < 1) ? FMOD(a, b) + (b) : FMOD(a, b)))
#define SHIFTS_ALL(b) (NEGATIVE(b) || (uint64_t)(b) >= 8 * sizeof(T))
#define POW(a, b) ((T)int_pow((uint64_t)(a), (b) < 1 && (b) != 0 ? -1 : (int64_t)(b)))

/* a^b modulo 2^64; negative powers give the integer part of the real result (1, -1 or 0). */
static MAP_DEVICE uint64_t int_pow(uint64_t a, int64_t b)
{
	uint64_t r = 1;

	if (b < 0)
		return a == 1 ? 1 : 0;
	for (; b; b >>= 1, a *= a)
		if (b & 1)
			r *= a;
	return r;
}
