/* T = float for the *_real.h files that follow: S(name) is a function's name for this type, F(exp) its
 * mathematical functions (real_math.h). */
#undef T
#undef S
#undef F
#undef T_IS_F64
#define T float
#define S(name) name##_f32
#define F(name) f32_##name
