/* Optimizer steps (update.cu). Scalars are computed in double, once per run. PyTorch's formulas
 * (torch/optim/{sgd,adagrad,rmsprop,adam,adamw}.py); see tensor/cpu/update.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/update.h"
#include "tensor/loops.h"
#include "tensor/state_codec.h"
#include "util/mem.h"

enum { NOT_FINITE, SHRUNK, N_COUNTERS };

struct update_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct dlb_update_desc d;
	struct cuda_update args;
	cudaKernel_t f;
	struct cuda_slot step, counter;	/* struct cuda_scalars; [N_COUNTERS], never reset */
	unsigned long long counted[N_COUNTERS];	/* the counters at the last update_count */
	int n_in, n_out;
};

static void set_common(struct cuda_scalars *s, const struct dlb_update_desc *d, const struct dlb_run *r)
{
	const double *h = d->hyper;
	const double lr = r->has_rate ? r->rate : h[DLB_HYPER_LR], t = (double)(r->step ? r->step : 1);
	const double bias1 = 1 - pow(h[DLB_HYPER_BETA1], t), bias2 = 1 - pow(h[DLB_HYPER_BETA2], t);
	const bool decoupled = d->rule == DLB_RULE_ADAMW || d->rule == DLB_RULE_ADABELIEF,
		   rms = d->rule == DLB_RULE_RMSPROP;

	*s = (struct cuda_scalars){
		.c = r->grad_scale > 0 ? r->grad_scale : 1,
		.lr = lr,
		.decay = decoupled ? 0 : h[DLB_HYPER_DECAY],
		.shrink = decoupled ? 1 - lr * h[DLB_HYPER_DECAY] : 1,
		.mu = h[DLB_HYPER_MOMENTUM],
		.alpha = h[DLB_HYPER_ALPHA],
		.beta1 = h[DLB_HYPER_BETA1],
		.rest1 = 1 - h[rms ? DLB_HYPER_ALPHA : DLB_HYPER_BETA1],
		.beta2 = h[DLB_HYPER_BETA2],
		.rest2 = 1 - h[DLB_HYPER_BETA2],
		.eps = h[DLB_HYPER_EPS],
		.step_size = lr / bias1,
		.root_bias2 = sqrt(bias2),
	};
	if (d->stage == DLB_UPDATE_PREDICT) {
		const bool adaptive = d->rule != DLB_RULE_MOMENTUM && d->rule != DLB_RULE_NESTEROV;

		s->step_size = r->distance * lr / (adaptive ? bias1 : 1);
		s->shrink = decoupled ? 1 - r->distance * lr * h[DLB_HYPER_DECAY] : 1;
	}
}

static void set_belief(struct cuda_scalars *s, const struct dlb_update_desc *d, const struct dlb_run *r)
{
	const double *h = d->hyper;
	const double lr = r->has_rate ? r->rate : h[DLB_HYPER_LR], before = r->has_rate ? r->rate_before : lr;
	const double t = (double)(r->step ? r->step : 1), beta2 = h[DLB_HYPER_BETA2];
	const double bias1 = 1 - pow(h[DLB_HYPER_BETA1], t), bias2 = 1 - pow(beta2, t),
		     bias2_before = 1 - pow(beta2, t - 1);
	const bool in_root = d->variant == DLB_VARIANT_DENOM_CORRECTED || d->variant == DLB_VARIANT_AMSGRAD;

	s->over_bias1 = 1 / bias1;
	s->over_bias2 = d->variant == DLB_VARIANT_CORRECTED ? 1 / bias2 : 1;
	s->root_bias2 = in_root ? sqrt(bias2) : 1;
	s->seps = d->variant == DLB_VARIANT_AMSGRAD ? h[DLB_HYPER_EPS] : 0;
	s->shrink = 1 - lr * h[DLB_HYPER_DECAY];
	s->q = 1 / (lr * lr * (in_root ? bias2 : 1));
	s->q_before = t > 1 ? 1 / (before * before * (in_root ? bias2_before : 1)) : 0;
	for (int i = 0; i < 3; i++)
		s->scale[i] = d->scale[i] != 0 ? d->scale[i] : 1;
	s->scale[0] *= r->grad_scale > 0 ? r->grad_scale : 1;
}

static void set_scalars(const struct update_kernel *u, const struct dlb_run *r, struct cuda_scalars *s)
{
	set_common(s, &u->d, r);
	if (u->d.rule == DLB_RULE_MAX_ADABELIEF)
		set_belief(s, &u->d, r);
}

static void update_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct update_kernel *u = (struct update_kernel *)k;

	set_scalars(u, r, &u->args.s);
	u->args.count_not_finite = r->not_finite && u->d.stage != DLB_UPDATE_PREDICT;
	u->args.count_shrunk = r->shrunk && u->d.rule == DLB_RULE_MAX_ADABELIEF;
	dlb_cuda_operands(&u->args.p, r, u->n_in, u->n_out);
	u->args.p.in[CUDA_VALUES_IN] = u->c->recording ? u->step.device : NULL;
	u->args.p.scratch = u->counter.device;
	dlb_cuda_touch(u->c, CUDA_COUNTERS, &u->counter);
	if (dlb_update_is_small(&u->d))
		dlb_cuda_launch_rows(u->c, u->f, &u->args, u->args.blocks);
	else
		dlb_cuda_launch(u->c, u->f, &u->args, u->d.count);
}

static void update_renew(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct update_kernel *u = (struct update_kernel *)k;

	set_scalars(u, r, u->step.host);
	dlb_cuda_touch(u->c, CUDA_VALUES, &u->step);
	dlb_cuda_touch(u->c, CUDA_COUNTERS, &u->counter);
}

/* Adds the changes of the counters since the last call to the caller's counters. */
static void update_count(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct update_kernel *u = (struct update_kernel *)k;
	const unsigned long long *now = u->counter.host;

	if (r->not_finite)
		*r->not_finite += now[NOT_FINITE] != u->counted[NOT_FINITE];
	if (r->shrunk)
		*r->shrunk += (int64_t)(now[SHRUNK] - u->counted[SHRUNK]);
	memcpy(u->counted, now, sizeof u->counted);
}

static void update_free(struct dlb_kernel *k)
{
	struct update_kernel *u = (struct update_kernel *)k;

	dlb_cuda_slot_free(u->c, CUDA_VALUES, &u->step);
	dlb_cuda_slot_free(u->c, CUDA_COUNTERS, &u->counter);
	free(u);
}

PREPARE(update)
{
	struct cuda *c = cuda_of(b);
	struct update_kernel *u;
	const int rc = dlb_update_check(d, err);

	if (rc)
		return rc;
	u = dlb_xcalloc(1, sizeof *u);
	u->c = c;
	u->d = *d;
	u->k = (struct dlb_kernel){ .run = update_run,
				    .free = update_free,
				    .renew = update_renew,
				    .count = update_count,
				    .impl = "cuda" };
	u->args = (struct cuda_update){ .count = d->count,
					.rule = d->rule,
					.stage = (int)d->stage,
					.keep_local = d->keep_local,
					.n_chunks = d->n_chunks ? d->n_chunks : 1,
					.code = { d->code[0], d->code[1] } };
	u->args.blocks = dlb_state_blocks(d->count, u->args.n_chunks);
	u->n_in = d->stage == DLB_UPDATE_PREDICT ? 1 + dlb_update_states(d->rule) :
		  d->stage == DLB_UPDATE_APPLY   ? 2 :
						   1;
	u->n_out = d->stage == DLB_UPDATE_PREDICT ? 1 :
		   d->stage == DLB_UPDATE_LOCAL   ? 5 :
						    1 + dlb_update_states(d->rule);
	u->f = dlb_update_is_small(d) ? dlb_cuda_find(c, "update_small", err) :
					dlb_cuda_find_typed(c, "update", d->dtype);
	if (!u->f || dlb_cuda_slot_new(c, CUDA_VALUES, sizeof(struct cuda_scalars), &u->step, err) ||
	    dlb_cuda_slot_new(c, CUDA_COUNTERS, sizeof u->counted, &u->counter, err)) {
		update_free(&u->k);
		return -1;
	}
	*k = &u->k;
	return 0;
}
