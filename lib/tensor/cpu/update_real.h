/* The update rules for type T; included by update.c. */
static void S(update_sgd)(T *w, const T *g, T lr, T decay, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		w[i] -= lr * (g[i] + decay * w[i]);
}

static void S(update_momentum)(T *w, T *v, const T *g, T lr, T mu, T decay, bool nesterov, int64_t n)
{
	if (nesterov) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			T d = g[i] + decay * w[i];

			v[i] = mu * v[i] + d;
			w[i] -= lr * (d + mu * v[i]);
		}
		return;
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		v[i] = mu * v[i] + (g[i] + decay * w[i]);
		w[i] -= lr * v[i];
	}
}

/* shrink: 1 - lr wd of the decoupled decay (1: none); decay: the L2 term. */
static void S(update_adam)(T *w, T *m, T *v, const T *g, T shrink, T decay, T beta1, T rest1, T beta2, T rest2,
			   T step_size, T root_bias2, T eps, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		T x = w[i] * shrink, d = g[i] + decay * x;

		m[i] = m[i] * beta1 + rest1 * d;
		v[i] = v[i] * beta2 + rest2 * d * d;
		w[i] = x - step_size * (m[i] / (F(sqrt)(v[i]) / root_bias2 + eps));
	}
}

/* As adamw, but v is the moment of how far g is from m, and eps stays in it. */
static void S(update_adabelief)(T *w, T *m, T *v, const T *g, T shrink, T beta1, T rest1, T beta2, T rest2, T step_size,
				T root_bias2, T eps, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		m[i] = m[i] * beta1 + rest1 * g[i];
		T surprise = g[i] - m[i];

		v[i] = v[i] * beta2 + rest2 * surprise * surprise + eps;
		w[i] = w[i] * shrink - step_size * (m[i] / (F(sqrt)(v[i]) / root_bias2 + eps));
	}
}

/* One part: the elements from w, g and the states on. */
static void S(update_part)(const void *ctx, int part, int parts)
{
	const struct update_job *job = ctx;
	const struct update_kernel *u = job->u;
	const struct dlb_run *r = job->run;
	const double *h = u->hyper;
	double lr = r->rate > 0 ? r->rate : h[DLB_HYPER_LR], t = (double)(r->step ? r->step : 1);
	double bias1 = 1 - pow(h[DLB_HYPER_BETA1], t), bias2 = 1 - pow(h[DLB_HYPER_BETA2], t);
	const bool belief = u->rule == DLB_RULE_ADABELIEF, decoupled = u->rule == DLB_RULE_ADAMW || belief,
		adam = decoupled || u->rule == DLB_RULE_ADAM;
	const int64_t from = cpu_cut(u->count, part, parts), n = cpu_cut(u->count, part + 1, parts) - from;
	T *w = (T *)r->out[0] + from, *s0 = u->rule == DLB_RULE_SGD ? NULL : (T *)r->out[1] + from, *s1 = adam ? (T *)r->out[2] + from : NULL;
	const T *g = (const T *)r->in[0] + from;

	switch (u->rule) {
	case DLB_RULE_SGD:
		S(update_sgd)(w, g, (T)lr, (T)h[DLB_HYPER_DECAY], n);
		break;
	case DLB_RULE_MOMENTUM:
	case DLB_RULE_NESTEROV:
		S(update_momentum)(w, s0, g, (T)lr, (T)h[DLB_HYPER_MOMENTUM], (T)h[DLB_HYPER_DECAY], u->rule == DLB_RULE_NESTEROV, n);
		break;
	case DLB_RULE_ADABELIEF:
		S(update_adabelief)(w, s0, s1, g, (T)(1 - lr * h[DLB_HYPER_DECAY]),
				    (T)h[DLB_HYPER_BETA1], (T)(1 - h[DLB_HYPER_BETA1]),
				    (T)h[DLB_HYPER_BETA2], (T)(1 - h[DLB_HYPER_BETA2]),
				    (T)(lr / bias1), (T)sqrt(bias2), (T)h[DLB_HYPER_EPS], n);
		break;
	default:
		S(update_adam)(w, s0, s1, g, (T)(decoupled ? 1 - lr * h[DLB_HYPER_DECAY] : 1), (T)(decoupled ? 0 : h[DLB_HYPER_DECAY]),
			       (T)h[DLB_HYPER_BETA1], (T)(1 - h[DLB_HYPER_BETA1]),
			       (T)h[DLB_HYPER_BETA2], (T)(1 - h[DLB_HYPER_BETA2]),
			       (T)(lr / bias1), (T)sqrt(bias2), (T)h[DLB_HYPER_EPS], n);
	}
}
