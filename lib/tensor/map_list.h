/* The elementwise functions, one per line; included with different definitions of the six macros.
 *
 *     MAP(name, n_inputs, expression)      every number type; a, b, c and the result share it
 *     MAP_INT(name, n, expression)         integers only
 *     MAP_FLOAT(name, n, expression)       f32 and f64 only
 *     MAP_COMPARE(name, n, expression)     inputs of any one type (bool too); the result is bool
 *     MAP_LOGIC(name, n, expression)       bool to bool
 *     MAP_SELECT(name, n, expression)      a is bool; b, c and the result share any type
 *
 * To get only the names (the enum in backend.h), define only MAP: the others default to it. To instantiate
 * the expressions, define for each type
 *     T                        the type of a, b, c, alpha and beta
 *     ADD SUB MUL DIV NEG      arithmetic that wraps in integers (no undefined overflow, x/0 = 0)
 *     MOD FMOD POW             Python's and C's remainder, powers
 *     NEGATIVE                 a < 0
 *     SHIFTS_ALL               integers: b is negative or at least the number of bits of T
 *     F(exp)                   expf or exp, for float types
 * Gradients take dy first: relu_grad(dy, y), clip_grad(dy, x). min, max and clip return NaN for NaN. */
#ifndef MAP_INT
#define MAP_INT MAP
#endif
#ifndef MAP_FLOAT
#define MAP_FLOAT MAP
#endif
#ifndef MAP_COMPARE
#define MAP_COMPARE MAP
#endif
#ifndef MAP_LOGIC
#define MAP_LOGIC MAP
#endif
#ifndef MAP_SELECT
#define MAP_SELECT MAP
#endif

/* tanh(log(1 + e^x)) = n / (n + 2), n = e (e + 2), e = e^x; 1 from 20 on. */
#define MISH_E(x) F(exp)((x) > 20 ? 20 : (x))
#define MISH_N(e) ((e) * ((e) + 2))
/* 0.5 (1 + tanh(u)) = sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) */
#define GELU_SIGMOID(x) F(sigmoid)((T)1.59576912160573071176 * ((x) + (T)0.044715 * (x) * (x) * (x)))

/* arithmetic */
MAP(add, 2, ADD(a, b))
MAP(sub, 2, SUB(a, b))
MAP(mul, 2, MUL(a, b))
MAP(div, 2, DIV(a, b))
MAP(div_or_zero, 2, b == 0 ? 0 : DIV(a, b))
MAP(add3, 3, ADD(ADD(a, b), c))
MAP(mul_add, 3, ADD(MUL(a, b), c))
MAP(sub_mul, 3, MUL(SUB(a, b), c))
MAP(mul_mul, 3, MUL(MUL(a, b), c))
MAP(linear, 1, ADD(MUL(a, alpha), beta))				/* alpha a + beta */
MAP(weighted, 2, ADD(MUL(a, alpha), MUL(b, beta)))			/* alpha a + beta b */
MAP(neg, 1, NEG(a))
MAP(abs, 1, NEGATIVE(a) ? NEG(a) : a)
MAP(sign, 1, (T)((a > 0) - (NEGATIVE(a))))
MAP(square, 1, MUL(a, a))
MAP(cube, 1, MUL(MUL(a, a), a))
MAP(min, 2, (a < b || a != a) ? a : b)
MAP(max, 2, (a > b || a != a) ? a : b)
MAP(mod, 2, MOD(a, b))							/* sign of b */
MAP(fmod, 2, FMOD(a, b))						/* sign of a */
MAP(pow, 2, POW(a, b))
/* alpha = minimum, beta = maximum; if the minimum is larger, the result is the maximum */
MAP(clip, 1, (a < alpha ? alpha : a) > beta ? beta : (a < alpha ? alpha : a))
MAP(clip_between, 3, (a < b ? b : a) > c ? c : (a < b ? b : a))		/* x, minimum, maximum */
MAP(prelu, 2, NEGATIVE(a) ? MUL(a, b) : a)				/* x, slope */
MAP(relu, 1, NEGATIVE(a) ? (T)0 : a)
MAP(shrink, 1,
    (T)-1 < 1 && a < NEG(alpha) ? ADD(a, beta) :
    a > alpha                   ? SUB(a, beta) :
				  0) /* alpha = lambda, beta = bias */
MAP_INT(bit_and, 2, a & b)
MAP_INT(bit_or, 2, a | b)
MAP_INT(bit_xor, 2, a ^ b)
MAP_INT(bit_not, 1, ~a)
MAP_INT(shift_left, 2, SHIFTS_ALL(b) ? 0 : (uint64_t)a << b)
MAP_INT(shift_right, 2, SHIFTS_ALL(b) ? (NEGATIVE(a) ? (T)-1 : 0) : a >> b)	/* copies the sign */

/* real functions */
MAP_FLOAT(sqrt, 1, F(sqrt)(a))
MAP_FLOAT(rsqrt, 1, 1 / F(sqrt)(a))
MAP_FLOAT(reciprocal, 1, 1 / a)
MAP_FLOAT(exp, 1, F(exp)(a))
MAP_FLOAT(log, 1, F(log)(a))
MAP_FLOAT(sin, 1, F(sin)(a))
MAP_FLOAT(cos, 1, F(cos)(a))
MAP_FLOAT(tan, 1, F(tan)(a))
MAP_FLOAT(asin, 1, F(asin)(a))
MAP_FLOAT(acos, 1, F(acos)(a))
MAP_FLOAT(atan, 1, F(atan)(a))
MAP_FLOAT(sinh, 1, F(sinh)(a))
MAP_FLOAT(cosh, 1, F(cosh)(a))
MAP_FLOAT(tanh, 1, F(tanh)(a))
MAP_FLOAT(asinh, 1, F(asinh)(a))
MAP_FLOAT(acosh, 1, F(acosh)(a))
MAP_FLOAT(atanh, 1, F(atanh)(a))
MAP_FLOAT(erf, 1, F(erf)(a))
MAP_FLOAT(floor, 1, F(floor)(a))
MAP_FLOAT(ceil, 1, F(ceil)(a))
MAP_FLOAT(round, 1, F(rint)(a))						/* ties to even */

/* activations */
MAP_FLOAT(sigmoid, 1, F(sigmoid)(a))
MAP_FLOAT(add_relu, 2, a + b < 0 ? 0 : a + b)
MAP_FLOAT(leaky_relu, 1, a < 0 ? alpha * a : a)
MAP_FLOAT(thresholded_relu, 1, a > alpha ? a : 0)
MAP_FLOAT(elu, 1, a < 0 ? alpha * F(expm1)(a) : a)
MAP_FLOAT(selu, 1, beta * (a < 0 ? alpha * F(expm1)(a) : a))		/* beta = gamma */
MAP_FLOAT(celu, 1, a < 0 ? alpha * F(expm1)(a / alpha) : a)
MAP_FLOAT(softplus, 1, (a > 0 ? a : 0) + F(log1p)(F(exp)(a > 0 ? -a : a)))
MAP_FLOAT(softsign, 1, a / (1 + F(fabs)(a)))
MAP_FLOAT(hard_sigmoid, 1, a * alpha + beta < 0 ? 0 : a * alpha + beta > 1 ? 1 : a * alpha + beta)
MAP_FLOAT(hard_swish, 1, a * (a + 3 < 0 ? 0 : a + 3 > 6 ? 1 : (a + 3) / 6))
MAP_FLOAT(gelu, 1, (T)0.5 * a * (1 + F(erf)(a * (T)0.70710678118654752440)))
MAP_FLOAT(gelu_tanh, 1, a * GELU_SIGMOID(a))
MAP_FLOAT(mish, 1, a > 20 ? a : a * (MISH_N(MISH_E(a)) / (MISH_N(MISH_E(a)) + 2)))
MAP_FLOAT(swish, 1, a * F(sigmoid)(alpha * a))
MAP_FLOAT(swiglu, 2, a * F(sigmoid)(alpha * a) * b)			/* gate, value */

/* gradients */
MAP_FLOAT(relu_grad, 2, b > 0 ? a : 0)					/* dy, y */
MAP_FLOAT(sigmoid_grad, 2, a * b * (1 - b))				/* dy, y */
MAP_FLOAT(tanh_grad, 2, a * (1 - b * b))				/* dy, y */
MAP_FLOAT(sqrt_grad, 2, a / (2 * b))					/* dy, y */
MAP_FLOAT(reciprocal_grad, 2, -a * b * b)				/* dy, y */
MAP_FLOAT(abs_grad, 2, b > 0 ? a : b < 0 ? -a : 0)			/* dy, x */
MAP_FLOAT(erf_grad, 2, a * (T)1.12837916709551257390 * F(exp)(-b * b))	/* dy, x */
MAP_FLOAT(sin_grad, 2, a * F(cos)(b))
MAP_FLOAT(cos_grad, 2, -a * F(sin)(b))
MAP_FLOAT(asin_grad, 2, a / F(sqrt)(1 - b * b))
MAP_FLOAT(acos_grad, 2, -a / F(sqrt)(1 - b * b))
MAP_FLOAT(atan_grad, 2, a / (1 + b * b))
MAP_FLOAT(tan_grad, 2, a * (1 + b * b))					/* dy, y */
MAP_FLOAT(sinh_grad, 2, a * F(cosh)(b))
MAP_FLOAT(cosh_grad, 2, a * F(sinh)(b))
MAP_FLOAT(asinh_grad, 2, a / F(sqrt)(b * b + 1))
MAP_FLOAT(acosh_grad, 2, a / F(sqrt)(b * b - 1))
MAP_FLOAT(atanh_grad, 2, a / (1 - b * b))
MAP_FLOAT(leaky_relu_grad, 2, b > 0 ? a : alpha * a)			/* dy, x */
MAP_FLOAT(thresholded_relu_grad, 2, b > alpha ? a : 0)			/* dy, x */
MAP_FLOAT(prelu_grad, 3, b > 0 ? a : a * c)				/* dy, x, slope: dx */
/* dy, x: dslope before the sum over broadcast dimensions */
MAP_FLOAT(prelu_grad_slope, 2, b > 0 ? 0 : a * b)
MAP_FLOAT(elu_grad, 2, b > 0 ? a : a * alpha * F(exp)(b))		/* dy, x */
MAP_FLOAT(selu_grad, 2, beta * (b > 0 ? a : a * alpha * F(exp)(b)))	/* dy, x */
MAP_FLOAT(celu_grad, 2, b > 0 ? a : a * F(exp)(b / alpha))		/* dy, x */
MAP_FLOAT(softplus_grad, 2, a * F(sigmoid)(b))				/* dy, x */
MAP_FLOAT(softsign_grad, 2, a / ((1 + F(fabs)(b)) * (1 + F(fabs)(b))))	/* dy, x */
MAP_FLOAT(hard_sigmoid_grad, 2, (b * alpha + beta > 0 && b * alpha + beta < 1) ? a * alpha : 0)	/* dy, x */
MAP_FLOAT(hard_swish_grad, 2, b <= -3 ? 0 : b >= 3 ? a : a * (b / 3 + (T)0.5))			/* dy, x */
MAP_FLOAT(gelu_grad, 2, a * ((T)0.5 * (1 + F(erf)(b * (T)0.70710678118654752440)) +
	b * (T)0.39894228040143267794 * F(exp)(-(T)0.5 * b * b)))	/* dy, x */
MAP_FLOAT(gelu_tanh_grad, 2, a * (GELU_SIGMOID(b) + b * GELU_SIGMOID(b) * (1 - GELU_SIGMOID(b)) *
	((T)1.59576912160573071176 + (T)0.21406444881780073 * b * b)))	/* dy, x */
/* n / (n + 2) + x 4 e (e + 1) / (n + 2)^2 */
MAP_FLOAT(mish_grad, 2,
	  b > 20 ? a :
		   a * (MISH_N(MISH_E(b)) / (MISH_N(MISH_E(b)) + 2) +
			b * (4 * MISH_E(b) * (MISH_E(b) + 1)) /
				((MISH_N(MISH_E(b)) + 2) * (MISH_N(MISH_E(b)) + 2)))) /* dy, x */
/* dy, x */
MAP_FLOAT(swish_grad, 2, a * F(sigmoid)(alpha * b) * (1 + alpha * b * (1 - F(sigmoid)(alpha * b))))
MAP_FLOAT(swiglu_grad, 3,
	  a *c *F(sigmoid)(alpha *b) *
		  (1 + alpha * b * (1 - F(sigmoid)(alpha * b)))) /* dy, gate, value: dgate */
MAP_FLOAT(swiglu_grad_value, 2, a * b * F(sigmoid)(alpha * b))		/* dy, gate */
MAP_FLOAT(shrink_grad, 2, b < -alpha || b > alpha ? a : 0)		/* dy, x */
MAP_FLOAT(clip_grad, 2, (b > alpha && b < beta) ? a : 0)		/* dy, x */
MAP_FLOAT(div_grad_b, 3, -a * b / c)					/* dy, y, divisor */
MAP_FLOAT(square_grad, 2, 2 * a * b)					/* dy, x; also the next three */
MAP_FLOAT(cube_grad, 2, 3 * a * b * b)
MAP_FLOAT(root_grad, 2, (T)0.5 * a / F(sqrt)(b))
MAP_FLOAT(inverse_grad, 2, -a / (b * b))
MAP_FLOAT(pow_grad, 3, c == 0 ? 0 : a * c * F(pow)(b, c - 1))		/* dy, x, p: dx */
/* dy, y, x: dp before the sum over broadcast dimensions */
MAP_FLOAT(pow_grad_p, 3, (b == 0 || c <= 0) ? 0 : a * b * F(log)(c))
MAP_FLOAT(max_grad, 3, b > c ? a : b == c ? a / 2 : 0)			/* dy, x, other operand: dx */
MAP_FLOAT(min_grad, 3, b < c ? a : b == c ? a / 2 : 0)

/* choice and logic */
MAP_SELECT(where, 3, a ? b : c)
MAP_SELECT(keep, 2, a ? MUL(b, alpha) : 0) /* mask, x; Dropout: alpha = 1/(1-p) */
MAP_SELECT(keep_not, 2, a ? 0 : MUL(b, alpha))
MAP_COMPARE(equal, 2, a == b)
MAP_COMPARE(not_equal, 2, a != b)
MAP_COMPARE(less, 2, a < b)
MAP_COMPARE(less_or_equal, 2, a <= b)
MAP_COMPARE(greater, 2, a > b)
MAP_COMPARE(greater_or_equal, 2, a >= b)
MAP_COMPARE(is_nan, 1, a != a)
/* alpha: count -inf, beta: +inf */
MAP_COMPARE(is_inf, 1, a == a && a - a != 0 && (a > 0 ? beta : alpha) != 0)
MAP_LOGIC(not, 1, !a)
MAP_LOGIC(and, 2, a && b)
MAP_LOGIC(or, 2, a || b)
MAP_LOGIC(xor, 2, !a != !b)

#undef MISH_E
#undef MISH_N
#undef GELU_SIGMOID
#undef MAP_INT
#undef MAP_FLOAT
#undef MAP_COMPARE
#undef MAP_LOGIC
#undef MAP_SELECT
