/* The update rules for type T; included by update.c. c: factor of gradients. */
static void S(update_sgd)(T *w, const T *g, T c, T lr, T decay, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		w[i] -= lr * (g[i] * c + decay * w[i]);
}

static void S(update_momentum)(T *w, T *v, const T *g, T c, T lr, T mu, T decay, bool nesterov, int64_t n)
{
	if (nesterov) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			T d = g[i] * c + decay * w[i];

			v[i] = mu * v[i] + d;
			w[i] -= lr * (d + mu * v[i]);
		}
		return;
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		v[i] = mu * v[i] + (g[i] * c + decay * w[i]);
		w[i] -= lr * v[i];
	}
}

/* shrink: 1 - lr wd of decoupled decay (1: none); decay: factor of L2 decay. */
static void S(update_adam)(T *w, T *m, T *v, const T *g, T c, T shrink, T decay, T beta1, T rest1, T beta2,
			   T rest2, T step_size, T root_bias2, T eps, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		T x = w[i] * shrink, d = g[i] * c + decay * x;

		m[i] = m[i] * beta1 + rest1 * d;
		v[i] = v[i] * beta2 + rest2 * d * d;
		w[i] = x - step_size * (m[i] / (F(sqrt)(v[i]) / root_bias2 + eps));
	}
}

/* As adamw, but v is the moment of (g - m), and eps is added to it. */
static void S(update_adabelief)(T *w, T *m, T *v, const T *g, T c, T shrink, T beta1, T rest1, T beta2,
				T rest2, T step_size, T root_bias2, T eps, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		T surprise = g[i] * c;

		m[i] = m[i] * beta1 + rest1 * surprise;
		surprise -= m[i];

		v[i] = v[i] * beta2 + rest2 * surprise * surprise + eps;
		w[i] = w[i] * shrink - step_size * (m[i] / (F(sqrt)(v[i]) / root_bias2 + eps));
	}
}

static void S(update_adagrad)(T *w, T *sum, const T *g, T c, T lr, T decay, T eps, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		T d = g[i] * c + decay * w[i];

		sum[i] += d * d;
		w[i] -= lr * (d / (F(sqrt)(sum[i]) + eps));
	}
}

static void S(update_rmsprop)(T *w, T *v, const T *g, T c, T lr, T decay, T alpha, T rest, T eps, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		T d = g[i] * c + decay * w[i];

		v[i] = v[i] * alpha + rest * d * d;
		w[i] -= lr * (d / (F(sqrt)(v[i]) + eps));
	}
}

/* Max-AdaBelief's scalars of one step. Between two steps, the one with the larger q s^ has the larger
 * quotient of denominator and step size, sqrt(s^ / bias2) / lr. */
struct S(belief) {
	T beta1, rest1, beta2, rest2, over_bias1, over_bias2, root_bias2, eps, seps, shrink, lr, q, q_before,
		scale[3];
};

/* Computes m, s and the exchanged moments: a = m / (1 - beta1^t), y = the larger of s (or corrected s) and x,
 * the maximum so far. */
static int64_t S(update_belief_local)(const struct S(belief) * c, T *a, T *y, T *m, T *s, T *x, const T *g,
				      bool keep, int64_t n)
{
	const struct S(belief) k = *c;
	int64_t shrunk = 0;

#pragma omp simd reduction(+ : shrunk)
	for (int64_t i = 0; i < n; i++) {
		T d = g[i] * k.scale[0], most;

		m[i] = m[i] * k.beta1 + k.rest1 * d;
		d -= m[i];
		s[i] = s[i] * k.beta2 + k.rest2 * d * d + k.seps;
		most = s[i] * k.over_bias2 > x[i] ? s[i] * k.over_bias2 : x[i];
		shrunk += keep && most * k.q < x[i] * k.q_before;
		x[i] = keep ? most : x[i];
		a[i] = m[i] * k.over_bias1 * k.scale[1];
		y[i] = most * k.scale[2];
	}
	return shrunk;
}

/* Rounding can make the mean of the replicas' maxima smaller than x although none of them is, so the maximum
 * is taken again. */
static int64_t S(update_belief_apply)(const struct S(belief) * c, T *w, T *x, const T *a, const T *y,
				      bool keep, int64_t n)
{
	const struct S(belief) k = *c;
	int64_t shrunk = 0;

#pragma omp simd reduction(+ : shrunk)
	for (int64_t i = 0; i < n; i++) {
		T most = keep || y[i] > x[i] ? y[i] : x[i];

		shrunk += !keep && most * k.q < x[i] * k.q_before;
		x[i] = keep ? x[i] : most;
		w[i] = w[i] * k.shrink - k.lr * (a[i] / (F(sqrt)(most) / k.root_bias2 + k.eps));
	}
	return shrunk;
}

static int64_t S(update_belief_whole)(const struct S(belief) * c, T *w, T *m, T *s, T *x, const T *g,
				      int64_t n)
{
	const struct S(belief) k = *c;
	int64_t shrunk = 0;

#pragma omp simd reduction(+ : shrunk)
	for (int64_t i = 0; i < n; i++) {
		T d = g[i] * k.scale[0], most;

		m[i] = m[i] * k.beta1 + k.rest1 * d;
		d -= m[i];
		s[i] = s[i] * k.beta2 + k.rest2 * d * d + k.seps;
		most = s[i] * k.over_bias2 > x[i] ? s[i] * k.over_bias2 : x[i];
		shrunk += most * k.q < x[i] * k.q_before;
		x[i] = most;
		w[i] = w[i] * k.shrink -
		       k.lr * (m[i] * k.over_bias1 / (F(sqrt)(most) / k.root_bias2 + k.eps));
	}
	return shrunk;
}

static void S(update_belief)(const struct update_job *job, int64_t from, int64_t n)
{
	const struct dlb_update_desc *d = &job->u->d;
	const struct dlb_run *r = job->run;
	const double *h = d->hyper;
	const double lr = r->has_rate ? r->rate : h[DLB_HYPER_LR], before = r->has_rate ? r->rate_before : lr;
	const double t = (double)(r->step ? r->step : 1), beta2 = h[DLB_HYPER_BETA2];
	const double bias1 = 1 - pow(h[DLB_HYPER_BETA1], t), bias2 = 1 - pow(beta2, t),
		     bias2_before = 1 - pow(beta2, t - 1);
	const bool in_root = d->variant == DLB_VARIANT_DENOM_CORRECTED || d->variant == DLB_VARIANT_AMSGRAD;
	const struct S(belief) c = {
		.beta1 = (T)h[DLB_HYPER_BETA1],
		.rest1 = (T)(1 - h[DLB_HYPER_BETA1]),
		.beta2 = (T)beta2,
		.rest2 = (T)(1 - beta2),
		.over_bias1 = (T)(1 / bias1),
		.over_bias2 = (T)(d->variant == DLB_VARIANT_CORRECTED ? 1 / bias2 : 1),
		.root_bias2 = (T)(in_root ? sqrt(bias2) : 1),
		.eps = (T)h[DLB_HYPER_EPS],
		.seps = (T)(d->variant == DLB_VARIANT_AMSGRAD ? h[DLB_HYPER_EPS] : 0),
		.shrink = (T)(1 - lr * h[DLB_HYPER_DECAY]),
		.lr = (T)lr,
		.q = (T)(1 / (lr * lr * (in_root ? bias2 : 1))),
		.q_before = (T)(t > 1 ? 1 / (before * before * (in_root ? bias2_before : 1)) : 0),
		.scale = { (T)(d->scale[0] * (r->grad_scale > 0 ? r->grad_scale : 1)), (T)d->scale[1],
			   (T)d->scale[2] },
	};
	const T *in0 = (const T *)r->in[0] + from;
	T *o0 = (T *)r->out[0] + from, *o1 = (T *)r->out[1] + from, *o2 = (T *)r->out[2] + from,
	  *o3 = (T *)r->out[3] + from;
	int64_t shrunk;

	if (d->stage == DLB_UPDATE_LOCAL)
		shrunk = S(update_belief_local)(&c, o0, o1, o2, o3, (T *)r->out[4] + from, in0, d->keep_local,
						n);
	else if (d->stage == DLB_UPDATE_APPLY)
		shrunk = S(update_belief_apply)(&c, o0, o3, in0, (const T *)r->in[1] + from, d->keep_local,
						n);
	else
		shrunk = S(update_belief_whole)(&c, o0, o1, o2, o3, in0, n);
	if (r->shrunk)
		__atomic_fetch_add(r->shrunk, shrunk, __ATOMIC_RELAXED);
}

/* Predicts the weights; w and the states are only read. Scalars as in the updates. */
static void S(predict_part)(const struct dlb_update_desc *d, const struct dlb_run *r, double lr, double bias1,
			    double bias2, int64_t from, int64_t n)
{
	const T *w = (const T *)r->in[0] + from, *m = (const T *)r->in[1] + from,
		*v = r->in[2] ? (const T *)r->in[2] + from : NULL;
	T *y = (T *)r->out[0] + from;
	const bool decoupled = d->rule == DLB_RULE_ADAMW || d->rule == DLB_RULE_ADABELIEF;
	const T far = (T)(r->distance * lr / (v ? bias1 : 1)), root_bias2 = (T)sqrt(bias2),
		eps = (T)d->hyper[DLB_HYPER_EPS];
	const T shrink = (T)(decoupled ? 1 - r->distance * lr * d->hyper[DLB_HYPER_DECAY] : 1);

	if (!v) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			y[i] = w[i] - far * m[i];
		return;
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = w[i] * shrink - far * (m[i] / (F(sqrt)(v[i]) / root_bias2 + eps));
}

/* True if any element is NaN or infinite: otherwise the sum of w * 0 is zero. */
static bool S(any_not_finite)(const T *w, int64_t n)
{
	T sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += w[i] * 0;
	return sum != 0;
}

struct S(scalars) { double rate, bias1, bias2; T c, lr, decay, step_size, root_bias2; };

/* Updates n elements; states that the rule does not have are not read. */
static void S(update_block)(const struct dlb_update_desc *d, const struct S(scalars) *k, T *w, T *s0, T *s1,
			    const T *g, int64_t n)
{
	const double *h = d->hyper;
	const bool decoupled = d->rule == DLB_RULE_ADAMW || d->rule == DLB_RULE_ADABELIEF;

	switch (d->rule) {
	case DLB_RULE_SGD:
	case DLB_RULE_KFAC:
		S(update_sgd)(w, g, k->c, k->lr, k->decay, n);
		break;
	case DLB_RULE_MOMENTUM:
	case DLB_RULE_NESTEROV:
		S(update_momentum)
		(w, s0, g, k->c, k->lr, (T)h[DLB_HYPER_MOMENTUM], k->decay, d->rule == DLB_RULE_NESTEROV, n);
		break;
	case DLB_RULE_ADAGRAD:
		S(update_adagrad)(w, s0, g, k->c, k->lr, k->decay, (T)h[DLB_HYPER_EPS], n);
		break;
	case DLB_RULE_RMSPROP:
		S(update_rmsprop)
		(w, s0, g, k->c, k->lr, k->decay, (T)h[DLB_HYPER_ALPHA], (T)(1 - h[DLB_HYPER_ALPHA]),
		 (T)h[DLB_HYPER_EPS], n);
		break;
	case DLB_RULE_ADABELIEF:
		S(update_adabelief)
		(w, s0, s1, g, k->c, k->decay, (T)h[DLB_HYPER_BETA1], (T)(1 - h[DLB_HYPER_BETA1]),
		 (T)h[DLB_HYPER_BETA2], (T)(1 - h[DLB_HYPER_BETA2]), k->step_size, k->root_bias2,
		 (T)h[DLB_HYPER_EPS], n);
		break;
	default:
		S(update_adam)
		(w, s0, s1, g, k->c, decoupled ? k->decay : 1, decoupled ? 0 : k->decay,
		 (T)h[DLB_HYPER_BETA1], (T)(1 - h[DLB_HYPER_BETA1]), (T)h[DLB_HYPER_BETA2],
		 (T)(1 - h[DLB_HYPER_BETA2]), k->step_size, k->root_bias2, (T)h[DLB_HYPER_EPS], n);
	}
}

static struct S(scalars) S(scalars_of)(const struct dlb_update_desc *d, const struct dlb_run *r)
{
	const double *h = d->hyper, lr = r->has_rate ? r->rate : h[DLB_HYPER_LR],
		     t = (double)(r->step ? r->step : 1), bias1 = 1 - pow(h[DLB_HYPER_BETA1], t),
		     bias2 = 1 - pow(h[DLB_HYPER_BETA2], t);
	const bool decoupled = d->rule == DLB_RULE_ADAMW || d->rule == DLB_RULE_ADABELIEF;

	return (struct S(scalars)){ .rate = lr,
				    .bias1 = bias1,
				    .bias2 = bias2,
				    .c = (T)(r->grad_scale > 0 ? r->grad_scale : 1),
				    .lr = (T)lr,
				    .step_size = (T)(lr / bias1),
				    .root_bias2 = (T)sqrt(bias2),
				    .decay = (T)(decoupled ? 1 - lr * h[DLB_HYPER_DECAY] :
							     h[DLB_HYPER_DECAY]) };
}

/* Updates one part; checks results block by block while they are in cache. */
static void S(update_part)(const void *ctx, int part, int parts)
{
	const struct update_job *job = ctx;
	const struct dlb_update_desc *d = &job->u->d;
	const struct dlb_run *r = job->run;
	const int64_t from = cpu_cut(d->count, part, parts), end = cpu_cut(d->count, part + 1, parts);
	const struct S(scalars) k = S(scalars_of)(d, r);
	const int n_state = dlb_update_states(d->rule);
	const int64_t block = r->not_finite ? UPDATE_BLOCK : end - from;
	bool bad = false;

	if (d->stage == DLB_UPDATE_PREDICT) {
		S(predict_part)(d, r, k.rate, k.bias1, k.bias2, from, end - from);
		return;
	}
	for (int64_t at = from; at < end; at += block) {
		const int64_t n = end - at < block ? end - at : block;

		if (d->rule == DLB_RULE_MAX_ADABELIEF)
			S(update_belief)(job, at, n);
		else
			S(update_block)(d, &k, (T *)r->out[0] + at, n_state > 0 ? (T *)r->out[1] + at : NULL,
					n_state > 1 ? (T *)r->out[2] + at : NULL, (const T *)r->in[0] + at, n);
		bad = bad || (r->not_finite && S(any_not_finite)((const T *)r->out[0] + at, n));
	}
	if (bad)
		__atomic_fetch_add(r->not_finite, 1, __ATOMIC_RELAXED);
}
