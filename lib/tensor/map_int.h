/* Arithmetic of integers of type T for map_list.h: wraps as two's complement; x / 0 = 0. POW calls the
 * includer's int_pow(uint64_t a, int64_t b), a^b modulo 2^64. Included again after another definition. */
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
