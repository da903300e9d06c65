/* T = float for the *_real.h files included next: S(name) is a function's name for this type, F(exp) a
 * mathematical function (real_math.h). */
#undef T
#undef T_INT
#undef S
#undef F
#undef T_IS_F64
#define T float
#define T_INT int32_t			/* integer of the same width */
#define S(name) S_PASTE(name, _f32)
#ifndef S_PASTE
#define S_PASTE(a, b) a##b		/* two macros, so that S(P(name)) works too */
#endif
#define F(name) f32_##name
