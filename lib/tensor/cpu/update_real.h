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

static void S(update_run)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct update_kernel *u = (struct update_kernel *)k;
	const double *h = u->hyper;
	double lr = r->rate > 0 ? r->rate : h[DLB_HYPER_LR], t = (double)(r->step ? r->step : 1);
	double bias1 = 1 - pow(h[DLB_HYPER_BETA1], t), bias2 = 1 - pow(h[DLB_HYPER_BETA2], t);
	bool decoupled = u->rule == DLB_RULE_ADAMW;

	switch (u->rule) {
	case DLB_RULE_SGD:
		S(update_sgd)(r->out[0], r->in[0], (T)lr, (T)h[DLB_HYPER_DECAY], u->count);
		break;
	case DLB_RULE_MOMENTUM:
	case DLB_RULE_NESTEROV:
		S(update_momentum)(r->out[0], r->out[1], r->in[0], (T)lr, (T)h[DLB_HYPER_MOMENTUM],
				   (T)h[DLB_HYPER_DECAY], u->rule == DLB_RULE_NESTEROV, u->count);
		break;
	default:
		S(update_adam)(r->out[0], r->out[1], r->out[2], r->in[0],
			       (T)(decoupled ? 1 - lr * h[DLB_HYPER_DECAY] : 1), (T)(decoupled ? 0 : h[DLB_HYPER_DECAY]),
			       (T)h[DLB_HYPER_BETA1], (T)(1 - h[DLB_HYPER_BETA1]),
			       (T)h[DLB_HYPER_BETA2], (T)(1 - h[DLB_HYPER_BETA2]),
			       (T)(lr / bias1), (T)sqrt(bias2), (T)h[DLB_HYPER_EPS], u->count);
	}
}
