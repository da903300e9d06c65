/* Mathematical functions of float and double for F(...).
 *
 * The float ones that training meets in inner loops (exp and what stands on it) are written here
 * without branches, so that the compiler vectorizes them and a vector lane and a loop's tail give the
 * same bits; the rest and all of double are the C library's. */
#ifndef DLB_TENSOR_CPU_REAL_MATH_H
#define DLB_TENSOR_CPU_REAL_MATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __FMA__
static inline float f32_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double f64_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
static inline float f32_fma(float a, float b, float c) { return a * b + c; }
static inline double f64_fma(double a, double b, double c) { return a * b + c; }
#endif

#define LIBM(name) \
	static inline float f32_##name(float a) { return name##f(a); } \
	static inline double f64_##name(double a) { return name(a); }
LIBM(sqrt) LIBM(log) LIBM(sin) LIBM(cos) LIBM(tan) LIBM(asin) LIBM(acos) LIBM(atan) LIBM(sinh) LIBM(cosh)
LIBM(asinh) LIBM(acosh) LIBM(atanh) LIBM(floor) LIBM(ceil) LIBM(rint) LIBM(fabs) LIBM(expm1) LIBM(log1p) LIBM(erf)
#undef LIBM
static inline float f32_pow(float a, float b) { return powf(a, b); }
static inline double f64_pow(double a, double b) { return pow(a, b); }
static inline double f64_exp(double a) { return exp(a); }
static inline double f64_tanh(double a) { return tanh(a); }
static inline double f64_sigmoid(double a) { return 1 / (1 + exp(-a)); }

static inline float f32_of_bits(uint32_t u)
{
	float v;

	memcpy(&v, &u, sizeof v);
	return v;
}

/* 2^n in two factors, so that results below 2^-126 and near the largest come out right. n in [-151, 128]. */
static inline float f32_scale2(float v, int32_t n)
{
	int32_t h = n >> 1;

	return v * f32_of_bits((uint32_t)(h + 127) << 23) * f32_of_bits((uint32_t)(n - h + 127) << 23);
}

/* e^x = 2^n e^r, n = round(x log2 e), |r| <= ln2/2; e^r by its Taylor polynomial of degree 7 (error below
 * 6e-9 of 1); 1 ulp. Adding 1.5 2^23 rounds to an integer, which then stands in the low bits. */
static inline float f32_exp(float x)
{
	const float magic = 12582912.0f;
	float c = x > 89.0f ? 89.0f : x < -104.5f ? -104.5f : x;
	float z = f32_fma(c, 1.44269504088896341f, magic), n = z - magic, r, p;
	uint32_t bits;

	memcpy(&bits, &z, sizeof bits);
	r = f32_fma(n, -0.693145751953125f, c);
	r = f32_fma(n, -1.42860682030941723e-6f, r);
	p = f32_fma(r, 1.0f / 5040, 1.0f / 720);
	p = f32_fma(p, r, 1.0f / 120);
	p = f32_fma(p, r, 1.0f / 24);
	p = f32_fma(p, r, 1.0f / 6);
	p = f32_fma(p, r, 0.5f);
	p = f32_fma(p, r, 1.0f);
	p = f32_fma(p, r, 1.0f);
	p = f32_scale2(p, (int32_t)(bits - 0x4b400000u));
	return x != x ? x : p;
}

static inline float f32_sigmoid(float x) { return 1 / (1 + f32_exp(-x)); }

/* Below 0.625 x + x^3 P(x^2) (Cephes tanhf.c, Moshier 1989), above 1 - 2/(e^2x + 1). */
static inline float f32_tanh(float x)
{
	float a = x < 0 ? -x : x, s = x * x, p, big;

	p = f32_fma(s, -5.70498872745e-3f, 2.06390887954e-2f);
	p = f32_fma(p, s, -5.37397155531e-2f);
	p = f32_fma(p, s, 1.33314422036e-1f);
	p = f32_fma(p, s, -3.33332819422e-1f);
	p = f32_fma(p * s, x, x);
	big = 1 - 2 / (f32_exp(2 * a) + 1);
	big = x < 0 ? -big : big;
	return a < 0.625f ? p : x != x ? x : big;
}
#endif
