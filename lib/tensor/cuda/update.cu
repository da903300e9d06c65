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

template <typename T> static __device__ inline step<T> step_of(const struct cuda_update &u)
{
	const struct cuda_scalars *now = (const struct cuda_scalars *)u.p.in[CUDA_VALUES_IN];

	return step<T>(u, now ? *now : u.s);
}

static __device__ inline void count_them(const struct cuda_update &u, bool bad, int64_t shrunk)
{
	unsigned long long *counter = (unsigned long long *)u.p.scratch;

	if (u.count_not_finite && bad)
		atomicAdd(&counter[0], 1);
	if (u.count_shrunk && shrunk)
		atomicAdd(&counter[1], (unsigned long long)shrunk);
}

/* A thread for each element. */
template <typename T, typename Rule> static __device__ inline void all(const struct cuda_update &u, Rule rule)
{
	const step<T> k = step_of<T>(u);
	int64_t shrunk = 0;
	bool bad = false;

	for (EACH(i, u.count)) {
		const T w = rule(k, i, &shrunk);

		bad = bad || w * 0 != 0;	/* NaN or infinite */
	}
	count_them(u, bad, shrunk);
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

/* -- states in fewer bits: formats and formulas are those of tensor/cpu/state_block.h -- */

/* The block of states of a block of threads: element `at` and scale number `block` are this thread's; it has
 * none if !mine. */
struct state_block { int64_t at, block; bool mine; };

static __device__ inline int64_t chunk_at(const struct cuda_update &u, int k)	/* util/chunk.h */
{
	return u.count / u.n_chunks * k + u.count % u.n_chunks * k / u.n_chunks;
}

static __device__ inline struct state_block state_block_of(const struct cuda_update &u, int64_t block)
{
	int64_t left = block, first = 0, n = 0;

	for (int k = 0; k < u.n_chunks; k++) {
		first = chunk_at(u, k);
		n = chunk_at(u, k + 1) - first;
		const int64_t blocks = (n + DLB_STATE_BLOCK - 1) / DLB_STATE_BLOCK;
		if (left < blocks)
			break;
		left -= blocks;
	}
	const int64_t at = left * DLB_STATE_BLOCK + threadIdx.x;

	return { first + at, block, at < n };
}

static __device__ inline float *state_scale(const struct cuda_update &u, void *state, struct state_block b)
{
	return (float *)((char *)state + (u.count + 3) / 4 * 4) + b.block;
}

static __device__ inline float decoded(const struct cuda_update &u, int code, void *state, struct state_block b)
{
	if (!b.mine)
		return 0;
	if (code == DLB_CODE_BF16)
		return load(((const bf16 *)state)[b.at]);
	const bool is_signed = code == DLB_CODE_SIGNED_8;
	const float t = is_signed ? (float)((const int8_t *)state)[b.at] * (1.0f / 127) :
				    (float)((const uint8_t *)state)[b.at] * (1.0f / 255);

	return t * F(fabs)(t) * (t * t) * *state_scale(u, state, b);
}

/* x^(1/4), 0 <= x <= 1: see dlb_fourth_root. */
static __device__ inline float fourth_root(float x)
{
	const float least = x > 1e-30f ? x : 1e-30f;
	uint32_t u;
	float y;

	memcpy(&u, &least, sizeof u);
	u = 0x4f584615 - (u >> 2);
	memcpy(&y, &u, sizeof y);
	for (int i = 0; i < 2; i++)
		y *= 1.25f - 0.25f * (least * (y * y * (y * y)));
	return x * (y * y * y);
}

/* Encodes this thread's element v, and the scale of its block. All threads of the block call it. */
static __device__ inline void encode(const struct cuda_update &u, int code, void *state, struct state_block b,
				     float v)
{
	const float magnitude = F(fabs)(v), least_scale = 0x1p-94f;
	const bool is_signed = code == DLB_CODE_SIGNED_8;
	uint32_t bits;
	float scale;

	if (code == DLB_CODE_BF16) {
		if (b.mine)
			((bf16 *)state)[b.at] = bf16(v);
		return;
	}
	/* in the order of their bits NaN is the largest and infinity the next */
	memcpy(&bits, &magnitude, sizeof bits);
	const uint32_t top = block_max(b.mine ? bits & 0x7fffffff : 0), infinite = 0x7f800000;
	memcpy(&scale, &top, sizeof scale);
	scale = scale > least_scale ? scale : least_scale;
	const float root = top < infinite ? fourth_root(magnitude * (1 / scale)) : 0;
	const int q = top < infinite ? (int)((is_signed ? 127 : 255) * root + 0.5f) : 0, least = top < infinite && v != 0;
	if (b.mine && is_signed)
		((int8_t *)state)[b.at] = (int8_t)(v < 0 ? -q : q);
	else if (b.mine)
		((uint8_t *)state)[b.at] = (uint8_t)(q > least ? q : least);
	if (threadIdx.x == 0)
		*state_scale(u, state, b) = top < infinite ? scale : NAN;
}

/* Decodes one or two states, updates and encodes them; an element a thread. */
template <typename Rule> static __device__ inline void small(const struct cuda_update &u, int n_states, Rule rule)
{
	const step<float> whole = step_of<float>(u);
	bool bad = false;

	static_assert((int)DLB_STATE_BLOCK == (int)CUDA_THREADS, "a thread has one element");
	for (EACH_ROW(row, u.blocks)) {
		const struct state_block b = state_block_of(u, row);
		step<float> k = whole;
		float state[2] = { 0, 0 };
		int64_t shrunk;

		for (int j = 0; j < n_states; j++)
			state[j] = decoded(u, u.code[j], u.p.out[1 + j], b);
		if (b.mine) {
			k.in0 += b.at;
			k.o0 += b.at;
			k.o1 = &state[0];
			k.o2 = &state[1];
			bad = rule(k, 0, &shrunk) * 0 != 0 || bad;
		}
		for (int j = 0; j < n_states; j++)
			encode(u, u.code[j], u.p.out[1 + j], b, state[j]);
	}
	count_them(u, bad, 0);
}

BLOCK_KERNEL(update_small, cuda_update)
{
	switch (a.rule) {
	case DLB_RULE_MOMENTUM: small(a, 1, momentum()); break;
	case DLB_RULE_NESTEROV: small(a, 1, nesterov()); break;
	case DLB_RULE_ADAGRAD: small(a, 1, adagrad()); break;
	case DLB_RULE_RMSPROP: small(a, 1, rmsprop()); break;
	case DLB_RULE_ADABELIEF: small(a, 2, adabelief()); break;
	default: small(a, 2, adam());
	}
}
