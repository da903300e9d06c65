/* T = double: see f32.h. */
#undef T
#undef S
#undef F
#undef T_IS_F64
#define T double
#define S(name) name##_f64
#define F(name) f64_##name
#define T_IS_F64 1
