/* Mathematical functions of float and double for F(...).
 *
 * The float functions of training's inner loops (exp, log, erf and those built on them) are written here
 * without branches, so that the compiler vectorizes them, and a vector lane and a loop's tail give the
 * same bits. The others, and all of double, are the C library's. Polynomials without a source were fitted
 * for this file (minimax, by iterated weights). Errors in ulp are bounds that test_maps checks over the
 * whole range, with FMA and without. */
#ifndef DLB_TENSOR_CPU_REAL_MATH_H
#define DLB_TENSOR_CPU_REAL_MATH_H
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Functions with polynomials are always inlined: a single call in a loop prevents its vectorization (LSTM's
 * cell ran at a fifth of the speed). */
#define INLINED static inline __attribute__((always_inline))

#ifdef __FMA__
static inline float f32_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double f64_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
static inline float f32_fma(float a, float b, float c) { return a * b + c; }
static inline double f64_fma(double a, double b, double c) { return a * b + c; }
#endif

#define LIBM_F32(name) static inline float f32_##name(float a) { return name##f(a); }
#define LIBM_F64(name) static inline double f64_##name(double a) { return name(a); }
#define LIBM(name) LIBM_F32(name) LIBM_F64(name)
LIBM(sqrt) LIBM(sin) LIBM(cos) LIBM(tan) LIBM(asin) LIBM(acos) LIBM(atan) LIBM(sinh) LIBM(cosh)
LIBM(asinh) LIBM(acosh) LIBM(atanh) LIBM(floor) LIBM(ceil) LIBM(rint) LIBM(fabs)
LIBM_F64(exp) LIBM_F64(log) LIBM_F64(expm1) LIBM_F64(log1p) LIBM_F64(tanh) LIBM_F64(erf)
#undef LIBM
#undef LIBM_F32
#undef LIBM_F64
static inline float f32_pow(float a, float b) { return powf(a, b); }
static inline double f64_pow(double a, double b) { return pow(a, b); }
static inline double f64_sigmoid(double a) { return 1 / (1 + exp(-a)); }

static inline float f32_of_bits(uint32_t u)
{
	float v;

	memcpy(&v, &u, sizeof v);
	return v;
}

/* v 2^n with 2^n in two factors, so that results below 2^-126 and near the
 * largest are right. n in [-151, 128]. */
static inline float f32_scale2(float v, int32_t n)
{
	int32_t h = n >> 1;

	return v * f32_of_bits((uint32_t)(h + 127) << 23) * f32_of_bits((uint32_t)(n - h + 127) << 23);
}

static inline uint32_t f32_bits(float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof u);
	return u;
}

/* x = n ln2 + r, n = round(x log2 e), |r| <= ln2/2. Adding 1.5 2^23 rounds to an integer in the low bits; the
 * upper part of ln2 has so few bits that its product with n is exact. */
INLINED int32_t f32_reduce(float x, float *r)
{
	const float magic = 12582912.0f;
	float z = f32_fma(x, 1.44269504088896341f, magic), n = z - magic;

	*r = f32_fma(n, -1.42860682030941723e-6f, f32_fma(n, -0.693145751953125f, x));
	return (int32_t)(f32_bits(z) - 0x4b400000u);
}

/* e^r for |r| <= ln2/2 by its Taylor polynomial of degree 7 (error below 6e-9 of 1). */
INLINED float f32_exp_part(float r)
{
	float p = f32_fma(r, 1.0f / 5040, 1.0f / 720);

	p = f32_fma(p, r, 1.0f / 120);
	p = f32_fma(p, r, 1.0f / 24);
	p = f32_fma(p, r, 1.0f / 6);
	p = f32_fma(p, r, 0.5f);
	p = f32_fma(p, r, 1.0f);
	return f32_fma(p, r, 1.0f);
}

/* e^x = 2^n e^r; 1.5 ulp. Far below the smallest number nothing is computed, because underflow is slow. */
INLINED float f32_exp(float x)
{
	int nothing = x < -104.0f;
	float c = x > 89.0f ? 89.0f : nothing ? 0 : x, r, p;
	int32_t n = f32_reduce(c, &r);

	p = f32_scale2(f32_exp_part(r), n);
	return x != x ? x : nothing ? 0 : p;
}

/* e^x without overflow or results below 2^-126: x in [-87, 88], or NaN. */
INLINED float f32_exp_inside(float x)
{
	float r;
	int32_t n = f32_reduce(x, &r);

	return f32_exp_part(r) * f32_of_bits((uint32_t)(n + 127) << 23);
}

/* e^x for x <= 0, as in softmax; 0 below 2^-126, so masks of -inf are not slow. */
INLINED float f32_exp_down(float x)
{
	float v = f32_exp_inside(x < -87.0f ? -87.0f : x);

	return x < -87.0f ? 0 : v;
}
static inline double f64_exp_down(double x) { return exp(x); }

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1); 2 ulp. */
INLINED float f32_expm1(float x)
{
	float c = x > 87.0f ? 87.0f : x < -18.0f ? -18.0f : x, r, p, two_n;
	int32_t n = f32_reduce(c, &r);

	p = f32_fma(r, 1.0f / 5040, 1.0f / 720);
	p = f32_fma(p, r, 1.0f / 120);
	p = f32_fma(p, r, 1.0f / 24);
	p = f32_fma(p, r, 1.0f / 6);
	p = f32_fma(p, r, 0.5f);
	p = f32_fma(p * r, r, r);
	two_n = f32_of_bits((uint32_t)(n + 127) << 23);
	p = f32_fma(two_n, p, two_n - 1);
	return x != x ? x : x > 87.0f ? f32_exp(x) : p;
}

/* x = 2^k m, m in [sqrt(1/2), sqrt(2)), f = m - 1: log x = k ln2 + f - f^2/2 + f^3 P(f). Relative error of
 * P's term 8e-10 of the logarithm; 1.5 ulp. */
INLINED float f32_log(float x)
{
	int tiny = x < 1.17549435e-38f;
	uint32_t bits = f32_bits(tiny ? x * 8388608.0f : x);
	int32_t k = (int32_t)(bits - 0x3f3504f3u) >> 23;
	float f = f32_of_bits(bits - ((uint32_t)k << 23)) - 1, n = (float)(k - (tiny ? 23 : 0)), s = f * f, p;

	p = f32_fma(f, 0.06757570803165436f, -0.1169433519244194f);
	p = f32_fma(p, f, 0.11893512308597565f);
	p = f32_fma(p, f, -0.12403083592653275f);
	p = f32_fma(p, f, 0.1421855390071869f);
	p = f32_fma(p, f, -0.16668090224266052f);
	p = f32_fma(p, f, 0.2000216692686081f);
	p = f32_fma(p, f, -0.25000008940696716f);
	p = f32_fma(p, f, 0.3333331048488617f);
	p = f32_fma(p, s * f, n * 1.42860682030941723e-6f);
	p = f32_fma(-0.5f, s, p) + f;
	p = f32_fma(n, 0.693145751953125f, p);
	return x > 0 ? (x < INFINITY ? p : x) : x == 0 ? -INFINITY : NAN;
}

/* log(w) + (x - (w - 1)) / w, w = 1 + x rounded; 3 ulp. */
INLINED float f32_log1p(float x)
{
	float w = 1 + x, v = f32_log(w) + (x - (w - 1)) / w;

	return w > 0 && w < INFINITY ? v : f32_log(w);
}

/* Below 0.92 x + x P(x^2); above 1 - e^-(x + x R(x)) up to x = 4.05, then 1; 2 ulp. */
INLINED float f32_erf(float x)
{
	float a = x < 0 ? -x : x, t = a > 4.05f ? 4.05f : a, s = x * x, p, r, big;

	p = f32_fma(s, 8.331880962941796e-05f, -0.0008133630617521703f);
	p = f32_fma(p, s, 0.005200229585170746f);
	p = f32_fma(p, s, -0.026859072968363762f);
	p = f32_fma(p, s, 0.11283689737319946f);
	p = f32_fma(p, s, -0.37612631916999817f);
	p = f32_fma(p, s, 0.12837916612625122f);
	p = f32_fma(p, x, x);
	r = f32_fma(t, 1.1231264579691924e-05f, -0.00032280347659252584f);
	r = f32_fma(r, t, 0.003642457537353039f);
	r = f32_fma(r, t, -0.023762060329318047f);
	r = f32_fma(r, t, 0.10623687505722046f);
	r = f32_fma(r, t, 0.6351513266563416f);
	r = f32_fma(r, t, 0.12864848971366882f);
	big = 1 - f32_exp_inside(-f32_fma(r, t, t));
	big = x < 0 ? -big : big;
	return a < 0.92f ? p : x != x ? x : big;
}

/* Results below 2^-126 are 0. */
INLINED float f32_sigmoid(float x)
{
	float c = x < -88.0f ? -88.0f : x > 87.0f ? 87.0f : x;

	return x < -88.0f ? 0 : 1 / (1 + f32_exp_inside(-c));
}

/* Below 0.625 x + x^3 P(x^2) (Cephes tanhf.c, Moshier 1989), above 1 - 2/(e^2x + 1); 2 ulp. */
INLINED float f32_tanh(float x)
{
	float a = x < 0 ? -x : x, t = a > 40 ? 40 : a, s = x * x, p, big;

	p = f32_fma(s, -5.70498872745e-3f, 2.06390887954e-2f);
	p = f32_fma(p, s, -5.37397155531e-2f);
	p = f32_fma(p, s, 1.33314422036e-1f);
	p = f32_fma(p, s, -3.33332819422e-1f);
	p = f32_fma(p * s, x, x);
	big = 1 - 2 / (f32_exp_inside(2 * t) + 1);
	big = x < 0 ? -big : big;
	return a < 0.625f ? p : x != x ? x : big;
}
#undef INLINED
#endif
