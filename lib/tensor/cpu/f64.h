/* T = double: see f32.h. */
#undef T
#undef T_INT
#undef S
#undef F
#undef T_IS_F64
#define T double
#define T_INT int64_t
#define S(name) S_PASTE(name, _f64)
#ifndef S_PASTE
#define S_PASTE(a, b) a##b		/* two macros, so that S(P(name)) works too */
#endif
#define F(name) f64_##name
#define T_IS_F64 1
