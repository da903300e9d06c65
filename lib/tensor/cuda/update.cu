/* Optimizer steps, fused: one pass over weight, gradient and state. The formulas and their order are those of
 * the cpu back end (tensor/cpu/update_real.h), compiled without fused multiply-add, so the bits are equal. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/update.h"
}

/* The operands and scalars of a rule, in type T. */
template <typename T> struct step {
	const T *in0, *in1, *in2;
	T *o0, *o1, *o2, *o3, *o4;
	T c, lr, decay, shrink, mu, alpha, beta1, rest1, beta2, rest2, eps, step_size, root_bias2;
	T over_bias1, over_bias2, seps, q, q_before, scale0, scale1, scale2;
	bool keep;

	__device__ inline step(const struct cuda_update &u, const struct cuda_scalars &s)
	    : in0((const T *)u.p.in[0]), in1((const T *)u.p.in[1]), in2((const T *)u.p.in[2]),
	      o0((T *)u.p.out[0]), o1((T *)u.p.out[1]), o2((T *)u.p.out[2]), o3((T *)u.p.out[3]),
	      o4((T *)u.p.out[4]), c((T)s.c), lr((T)s.lr), decay((T)s.decay), shrink((T)s.shrink), mu((T)s.mu),
	      alpha((T)s.alpha), beta1((T)s.beta1), rest1((T)s.rest1), beta2((T)s.beta2), rest2((T)s.rest2),
	      eps((T)s.eps), step_size((T)s.step_size), root_bias2((T)s.root_bias2), over_bias1((T)s.over_bias1),
	      over_bias2((T)s.over_bias2), seps((T)s.seps), q((T)s.q), q_before((T)s.q_before),
	      scale0((T)s.scale[0]), scale1((T)s.scale[1]), scale2((T)s.scale[2]), keep(u.keep_local)
	{
	}
};

/* Rules of element i: they return the new weight, or output 0 of the stage. `shrunk` counts shrunk
 * quotients. */
struct sgd {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T w = k.o0[i];

		return k.o0[i] = w - k.lr * (k.in0[i] * k.c + k.decay * w);
	}
};
struct momentum {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T w = k.o0[i], v = k.mu * k.o1[i] + (k.in0[i] * k.c + k.decay * w);

		k.o1[i] = v;
		return k.o0[i] = w - k.lr * v;
	}
};
struct nesterov {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T w = k.o0[i], d = k.in0[i] * k.c + k.decay * w, v = k.mu * k.o1[i] + d;

		k.o1[i] = v;
		return k.o0[i] = w - k.lr * (d + k.mu * v);
	}
};
struct adagrad {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T w = k.o0[i], d = k.in0[i] * k.c + k.decay * w, sum = k.o1[i] + d * d;

		k.o1[i] = sum;
		return k.o0[i] = w - k.lr * (d / (F(sqrt)(sum) + k.eps));
	}
};
struct rmsprop {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T w = k.o0[i], d = k.in0[i] * k.c + k.decay * w,
			v = k.o1[i] * k.alpha + k.rest1 * d * d;

		k.o1[i] = v;
		return k.o0[i] = w - k.lr * (d / (F(sqrt)(v) + k.eps));
	}
};
struct adam {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T x = k.o0[i] * k.shrink, d = k.in0[i] * k.c + k.decay * x,
			m = k.o1[i] * k.beta1 + k.rest1 * d, v = k.o2[i] * k.beta2 + k.rest2 * d * d;

		k.o1[i] = m;
		k.o2[i] = v;
		return k.o0[i] = x - k.step_size * (m / (F(sqrt)(v) / k.root_bias2 + k.eps));
	}
};
/* As adam, but v is the moment of (g - m), and eps is added to v. */
struct adabelief {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		const T g = k.in0[i] * k.c, m = k.o1[i] * k.beta1 + k.rest1 * g, surprise = g - m,
			v = k.o2[i] * k.beta2 + k.rest2 * surprise * surprise + k.eps;

		k.o1[i] = m;
		k.o2[i] = v;
		return k.o0[i] = k.o0[i] * k.shrink - k.step_size * (m / (F(sqrt)(v) / k.root_bias2 + k.eps));
	}
};

/* Max-AdaBelief. Updates the moments *m and *s of an element; returns the maximum of (corrected) s and
 * `before`. Between two steps, the one with the larger q s^ has the larger quotient of denominator and step
 * size. */
template <typename T> static __device__ inline T belief_moments(const step<T> &k, T *m, T *s, T g, T before)
{
	T d = g * k.scale0, corrected;

	*m = *m * k.beta1 + k.rest1 * d;
	d -= *m;
	*s = *s * k.beta2 + k.rest2 * d * d + k.seps;
	corrected = *s * k.over_bias2;
	return corrected > before ? corrected : before;
}

/* The new weight; a: corrected m. */
template <typename T> static __device__ inline T belief_weight(const step<T> &k, T w, T a, T most)
{
	return w * k.shrink - k.lr * (a / (F(sqrt)(most) / k.root_bias2 + k.eps));
}

struct belief_whole {
	template <typename T>
	__device__ inline T operator()(const step<T> &k, int64_t i, int64_t *shrunk) const
	{
		const T before = k.o3[i], most = belief_moments(k, &k.o1[i], &k.o2[i], k.in0[i], before);

		*shrunk += most * k.q < before * k.q_before;
		k.o3[i] = most;
		return k.o0[i] = belief_weight(k, k.o0[i], k.o1[i] * k.over_bias1, most);
	}
};
struct belief_local {
	template <typename T>
	__device__ inline T operator()(const step<T> &k, int64_t i, int64_t *shrunk) const
	{
		const T before = k.o4[i], most = belief_moments(k, &k.o2[i], &k.o3[i], k.in0[i], before);

		*shrunk += k.keep && most * k.q < before * k.q_before;
		k.o4[i] = k.keep ? most : before;
		k.o1[i] = most * k.scale2;
		return k.o0[i] = k.o2[i] * k.over_bias1 * k.scale1;
	}
};
/* Rounding can make a mean smaller than the maximum so far although no term is, so the maximum is taken
 * again. */
struct belief_apply {
	template <typename T>
	__device__ inline T operator()(const step<T> &k, int64_t i, int64_t *shrunk) const
	{
		const T before = k.o3[i], y = k.in1[i], most = k.keep || y > before ? y : before;

		*shrunk += !k.keep && most * k.q < before * k.q_before;
		k.o3[i] = k.keep ? before : most;
		return k.o0[i] = belief_weight(k, k.o0[i], k.in0[i], most);
	}
};

/* Predicts weights some updates ahead; step_size is the size of all these updates together. */
struct predict_momentum {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		return k.o0[i] = k.in0[i] - k.step_size * k.in1[i];
	}
};
struct predict_adam {
	template <typename T> __device__ inline T operator()(const step<T> &k, int64_t i, int64_t *) const
	{
		return k.o0[i] = k.in0[i] * k.shrink -
				 k.step_size * (k.in1[i] / (F(sqrt)(k.in2[i]) / k.root_bias2 + k.eps));
	}
};

template <typename T, typename Rule> static __device__ inline void all(const struct cuda_update &u, Rule rule)
{
	unsigned long long *counter = (unsigned long long *)u.p.scratch;
	const struct cuda_scalars *now = (const struct cuda_scalars *)u.p.in[CUDA_VALUES_IN];
	const step<T> k(u, now ? *now : u.s);
	int64_t shrunk = 0;
	bool bad = false;

	for (EACH(i, u.count)) {
		const T w = rule(k, i, &shrunk);

		bad = bad || w * 0 != 0;	/* NaN or infinite */
	}
	if (u.count_not_finite && bad)
		atomicAdd(&counter[0], 1);
	if (u.count_shrunk && shrunk)
		atomicAdd(&counter[1], (unsigned long long)shrunk);
}

template <typename T> static __device__ inline void update(const struct cuda_update &u)
{
	if (u.stage == DLB_UPDATE_PREDICT && (u.rule == DLB_RULE_MOMENTUM || u.rule == DLB_RULE_NESTEROV))
		all<T>(u, predict_momentum());
	else if (u.stage == DLB_UPDATE_PREDICT)
		all<T>(u, predict_adam());
	else if (u.stage == DLB_UPDATE_LOCAL)
		all<T>(u, belief_local());
	else if (u.stage == DLB_UPDATE_APPLY)
		all<T>(u, belief_apply());
	else
		switch (u.rule) {
		case DLB_RULE_SGD: case DLB_RULE_KFAC: all<T>(u, sgd()); break;
		case DLB_RULE_MOMENTUM: all<T>(u, momentum()); break;
		case DLB_RULE_NESTEROV: all<T>(u, nesterov()); break;
		case DLB_RULE_ADAGRAD: all<T>(u, adagrad()); break;
		case DLB_RULE_RMSPROP: all<T>(u, rmsprop()); break;
		case DLB_RULE_ADABELIEF: all<T>(u, adabelief()); break;
		case DLB_RULE_MAX_ADABELIEF: all<T>(u, belief_whole()); break;
		default: all<T>(u, adam());
		}
}

KERNEL(update_f32, cuda_update) { update<float>(a); }
KERNEL(update_f64, cuda_update) { update<double>(a); }
