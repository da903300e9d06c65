/* Losses that sum one term per element of x, with labels t of any type (domain dlb), for --loss with a model
 * without loss. The terms, and the divisor of their sum:
 *
 *     BinaryCrossEntropyLoss (x, t[, w])   softplus(x) - x t, x being logits; with the weights w of positive labels, which
 *                                          broadcast to x: (1 - t) x + (1 + (w - 1) t) softplus(-x)        elements
 *     MeanSquaredErrorLoss   (x, t)        (x - t)^2                                                       elements
 *     MeanAbsoluteErrorLoss  (x, t)        |x - t|                                                         elements
 *     HuberLoss              (x, t)        d^2 / 2 where |d| = |x - t| <= "delta", else delta (|d| - delta / 2)   elements
 *     SmoothL1Loss           (x, t)        d^2 / (2 beta) where |d| <= "beta", else |d| - beta / 2         elements
 *     KLDivergenceLoss       (x, t)        t (log t - x), 0 where t = 0; x being log-probabilities         samples (dim 0)
 *
 * These are PyTorch's BCEWithLogitsLoss, MSELoss, L1Loss, HuberLoss, SmoothL1Loss and KLDivLoss("batchmean").
 * LOSSGrad (dy, x, t[, w]) -> dx is the derivative of the terms by x, times dy, with the same divisor. */
#include "op/op_util.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A kernel being built. Terms (or their derivatives) go to `to`; all operands but w have x's shape. */
struct loss_terms {
	struct dlb_chain *c;
	struct dlb_desc x;
	const struct dlb_desc *w_desc;		/* NULL: no w */
	int in, t, w, to;			/* references */
	double width;				/* delta or beta */
};

static void map(const struct loss_terms *s, enum dlb_map_fn fn, double alpha, double beta, int a, int b,
		int to)
{
	const struct dlb_desc *d[2] = { &s->x, b == s->w && s->w_desc ? s->w_desc : &s->x };

	dlb_chain_map(s->c, &(struct dlb_map){ .fn = fn, .n_in = b == DLB_NOTHING ? 1 : 2, .alpha = alpha,
					       .beta = beta }, DLB_REFS(a, b), d, to, &s->x);
}

static int temp(const struct loss_terms *s)
{
	return dlb_chain_temp(s->c, &s->x);
}

/* u = 1 + (w - 1) t, the weight of softplus(-x). */
static int positive_weight(const struct loss_terms *s)
{
	const int u = temp(s), v = temp(s);

	map(s, DLB_MAP_mul, 0, 0, s->t, s->w, u);
	map(s, DLB_MAP_sub, 0, 0, u, s->t, v);
	map(s, DLB_MAP_linear, 1, 1, v, DLB_NOTHING, u);
	return u;
}

static void bce_terms(const struct loss_terms *s)
{
	const int u = temp(s), v = temp(s);

	if (!s->w_desc) {
		map(s, DLB_MAP_mul, 0, 0, s->in, s->t, u);
		map(s, DLB_MAP_softplus, 0, 0, s->in, DLB_NOTHING, v);
		map(s, DLB_MAP_sub, 0, 0, v, u, s->to);
		return;
	}
	const int weight = positive_weight(s), weighted = temp(s);
	map(s, DLB_MAP_neg, 0, 0, s->in, DLB_NOTHING, u);
	map(s, DLB_MAP_softplus, 0, 0, u, DLB_NOTHING, v);
	map(s, DLB_MAP_mul, 0, 0, weight, v, weighted);
	map(s, DLB_MAP_linear, -1, 1, s->t, DLB_NOTHING, u);
	map(s, DLB_MAP_mul, 0, 0, u, s->in, v);
	map(s, DLB_MAP_add, 0, 0, v, weighted, s->to);
}

/* sigmoid(x) - t; with w: (1 - t) - u sigmoid(-x). */
static void bce_slopes(const struct loss_terms *s)
{
	const int u = temp(s), v = temp(s);

	if (!s->w_desc) {
		map(s, DLB_MAP_sigmoid, 0, 0, s->in, DLB_NOTHING, u);
		map(s, DLB_MAP_sub, 0, 0, u, s->t, s->to);
		return;
	}
	const int weight = positive_weight(s), weighted = temp(s);
	map(s, DLB_MAP_neg, 0, 0, s->in, DLB_NOTHING, u);
	map(s, DLB_MAP_sigmoid, 0, 0, u, DLB_NOTHING, v);
	map(s, DLB_MAP_mul, 0, 0, weight, v, weighted);
	map(s, DLB_MAP_linear, -1, 1, s->t, DLB_NOTHING, u);
	map(s, DLB_MAP_sub, 0, 0, u, weighted, s->to);
}

static void squares(const struct loss_terms *s)
{
	const int d = temp(s);

	map(s, DLB_MAP_sub, 0, 0, s->in, s->t, d);
	map(s, DLB_MAP_square, 0, 0, d, DLB_NOTHING, s->to);
}

static void differences(const struct loss_terms *s)
{
	map(s, DLB_MAP_sub, 0, 0, s->in, s->t, s->to);
}

static void absolutes(const struct loss_terms *s)
{
	const int d = temp(s);

	map(s, DLB_MAP_sub, 0, 0, s->in, s->t, d);
	map(s, DLB_MAP_abs, 0, 0, d, DLB_NOTHING, s->to);
}

static void signs(const struct loss_terms *s)
{
	const int d = temp(s);

	map(s, DLB_MAP_sub, 0, 0, s->in, s->t, d);
	map(s, DLB_MAP_sign, 0, 0, d, DLB_NOTHING, s->to);
}

/* m (|d| - m / 2) with m = min(|d|, delta) covers both cases. */
static void huber_terms(const struct loss_terms *s)
{
	const int d = temp(s), m = temp(s), rest = temp(s);

	map(s, DLB_MAP_sub, 0, 0, s->in, s->t, rest);
	map(s, DLB_MAP_abs, 0, 0, rest, DLB_NOTHING, d);
	map(s, DLB_MAP_clip, 0, s->width, d, DLB_NOTHING, m);
	map(s, DLB_MAP_weighted, 1, -0.5, d, m, rest);
	map(s, DLB_MAP_mul, 0, 0, m, rest, s->to);
}

static void huber_slopes(const struct loss_terms *s)
{
	const int d = temp(s);

	map(s, DLB_MAP_sub, 0, 0, s->in, s->t, d);
	map(s, DLB_MAP_clip, -s->width, s->width, d, DLB_NOTHING, s->to);
}

static void kl_terms(const struct loss_terms *s)
{
	const int u = temp(s), v = temp(s);

	/* t log t is 0 at t = 0: keeps the logarithm finite there */
	map(s, DLB_MAP_clip, s->x.dtype == DLB_F64 ? DBL_MIN : FLT_MIN, HUGE_VAL, s->t, DLB_NOTHING, u);
	map(s, DLB_MAP_log, 0, 0, u, DLB_NOTHING, v);
	map(s, DLB_MAP_sub, 0, 0, v, s->in, u);
	map(s, DLB_MAP_mul, 0, 0, s->t, u, s->to);
}

static void kl_slopes(const struct loss_terms *s)
{
	map(s, DLB_MAP_neg, 0, 0, s->t, DLB_NOTHING, s->to);
}

static const struct mean_loss {
	const char *name;
	void (*terms)(const struct loss_terms *s), (*slopes)(const struct loss_terms *s);
	double flops, slope_flops;		/* per element */
	double scale;				/* of the derivatives */
	const char *width;			/* the attribute for terms.width, NULL: none */
	bool by_width;				/* terms and derivatives are also divided by it */
	bool by_samples;			/* the divisor is the number of samples */
} losses[] = {
	{ "BinaryCrossEntropyLoss", bce_terms, bce_slopes, 24, 12, 1, NULL, false, false },
	{ "MeanSquaredErrorLoss", squares, differences, 3, 2, 2, NULL, false, false },
	{ "MeanAbsoluteErrorLoss", absolutes, signs, 3, 3, 1, NULL, false, false },
	{ "HuberLoss", huber_terms, huber_slopes, 6, 3, 1, "delta", false, false },
	{ "SmoothL1Loss", huber_terms, huber_slopes, 6, 3, 1, "beta", true, false },
	{ "KLDivergenceLoss", kl_terms, kl_slopes, 12, 2, 1, NULL, false, true },
};

static const struct mean_loss *loss_of(const struct dlb_op_io *io)
{
	for (int i = 0; i < DLB_LEN(losses); i++)
		if (!strncmp(io->cls->name, losses[i].name, strlen(losses[i].name)))
			return &losses[i];
	dlb_bug("no loss %s", io->cls->name);
}

/* Checks x, t and w, from input `first` on, and the loss's attribute. */
static int check(const struct dlb_op_io *io, int first, struct dlb_error *err)
{
	const struct mean_loss *l = loss_of(io);
	const struct dlb_desc *x = &io->in[first], *w = &io->in[first + 2];
	bool fits = true;

	if (!dlb_dtype_is_float(x->dtype))
		return dlb_op_fail(io, err, "a loss of type %s", dlb_dtype_name(x->dtype));
	if (dlb_desc_count(x) != dlb_desc_count(&io->in[first + 1]))
		return dlb_op_fail(io, err, "%lld outputs but %lld labels", (long long)dlb_desc_count(x),
				   (long long)dlb_desc_count(&io->in[first + 1]));
	if (l->width && !(dlb_io_real(io, l->width, 1) > 0))
		return dlb_op_fail(io, err, "attribute '%s' is %g; more than 0 is needed", l->width,
				   dlb_io_real(io, l->width, 1));
	if (!dlb_io_has(io, first + 2))
		return 0;
	for (int i = 0; i < w->n_dims && fits; i++) {
		const int k = x->n_dims - w->n_dims + i;
		fits = k >= 0 && (w->dim[i] == 1 || w->dim[i] == x->dim[k]);
	}
	return fits && w->dtype == x->dtype ?
		       0 :
		       dlb_op_fail(io, err, "the weights of positive labels do not broadcast to the logits");
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (check(io, 0, err))
		return -1;
	io->out[0] = dlb_desc_scalar(io->in[0].dtype);
	return 0;
}

/* The labels in x's type: the input, or a temporary. */
static int labels(struct dlb_chain *c, const struct dlb_op_io *io, int i, const struct dlb_desc *x)
{
	int ref;

	if (io->in[i].dtype == x->dtype)
		return DLB_IN(i);
	ref = dlb_chain_temp(c, x);
	dlb_chain_cast(c, DLB_IN(i), &io->in[i], ref, x);
	return ref;
}

static struct loss_terms start(struct dlb_chain *c, const struct dlb_op_io *io, int first)
{
	const struct dlb_desc *x = &io->in[first];
	struct loss_terms s = { .c = c,
				.x = dlb_desc_make(x->dtype, x->n_dims, x->dim),
				.in = DLB_IN(first),
				.w = DLB_IN(first + 2) };

	s.t = labels(c, io, first + 1, &s.x);
	if (dlb_io_has(io, first + 2))
		s.w_desc = &io->in[first + 2];
	s.width = loss_of(io)->width ? dlb_io_real(io, loss_of(io)->width, 1) : 0;
	return s;
}

/* The divisor of the sum of terms. */
static double divisor(const struct mean_loss *l, const struct loss_terms *s)
{
	const double n = l->by_samples && s->x.n_dims ? (double)s->x.dim[0] : (double)dlb_desc_count(&s->x);

	return (n > 0 ? n : 1) * (l->by_width ? s->width : 1);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct mean_loss *l = loss_of(io);
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct loss_terms s = start(c, io, 0);
	const struct dlb_desc flat = dlb_desc_1d(s.x.dtype, dlb_desc_count(&s.x)),
			      one = dlb_desc_1d(s.x.dtype, 1), *d[1] = { &one };
	int sum = DLB_OUT(0);

	s.to = temp(&s);
	l->terms(&s);
	if (!l->by_samples && !l->by_width) {
		dlb_chain_reduce(c, DLB_REDUCE_FN_MEAN, 1, s.to, &flat, DLB_OUT(0), &one);
		return dlb_chain_finish(c, k);
	}
	sum = dlb_chain_temp(c, &one);
	dlb_chain_reduce(c, DLB_REDUCE_FN_SUM, 1, s.to, &flat, sum, &one);
	dlb_chain_map(c, &(struct dlb_map){ .fn = DLB_MAP_linear, .n_in = 1, .alpha = 1 / divisor(l, &s) },
		      DLB_REFS(sum), d, DLB_OUT(0), &one);
	return dlb_chain_finish(c, k);
}

static double flops(const struct dlb_op_io *io)
{
	return loss_of(io)->flops * (double)dlb_desc_count(&io->in[0]);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const bool weighted = dlb_io_has(&b->io, 2);
	char type[64];

	(void)err;
	if (!b->need[0])
		return 0;
	snprintf(type, sizeof type, "%sGrad", b->io.cls->name);
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = type,
							.in = (int[]){ b->dout[0], b->in[0], b->in[1],
								       weighted ? b->in[2] : -1 },
							.n_in = weighted ? 4 : 3,
							.attr = b->io.attr,
							.n_attr = b->io.n_attr });
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (check(io, 1, err) || dlb_same_types(io, 0, 2, err) || dlb_has_count(io, 0, 1, err))
		return -1;
	io->out[0] = io->in[1];
	io->out[0].layout = DLB_PLAIN;
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct mean_loss *l = loss_of(io);
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct loss_terms s = start(c, io, 1);
	const struct dlb_desc one = dlb_desc_1d(s.x.dtype, 1), *scalar = &one, *d[2] = { &s.x, &one };
	const int dy = dlb_chain_temp(c, &one);

	dlb_chain_map(c, &(struct dlb_map){ .fn = DLB_MAP_linear, .n_in = 1,
					    .alpha = l->scale / divisor(l, &s) }, DLB_REFS(DLB_IN(0)),
		      &scalar, dy, &one);
	s.to = DLB_OUT(0);
	l->slopes(&s);
	dlb_chain_map(c, DLB_MAP(mul, 2), DLB_REFS(DLB_OUT(0), dy), d, DLB_OUT(0), &s.x);
	return dlb_chain_finish(c, k);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return loss_of(io)->slope_flops * (double)dlb_desc_count(&io->in[1]);
}

#define MEAN(n, weights) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = "dlb", \
						 .n_in = { 2, 2 + weights }, \
						 .n_out = { 1, 1 }, \
						 .flags = DLB_OP_IS_LOSS, \
						 .work = "loss", \
						 .infer = infer, \
						 .flops = flops, \
						 .gradient = gradient, \
						 .kernel = kernel }; \
	const struct dlb_op_class dlb_op_##n##Grad = { .name = #n "Grad", \
						       .domain = "dlb", \
						       .n_in = { 3, 3 + weights }, \
						       .n_out = { 1, 1 }, \
						       .work = "loss", \
						       .infer = grad_infer, \
						       .flops = grad_flops, \
						       .kernel = grad_kernel };
MEAN(BinaryCrossEntropyLoss, 1)
MEAN(MeanSquaredErrorLoss, 0)
MEAN(MeanAbsoluteErrorLoss, 0)
MEAN(HuberLoss, 0)
MEAN(SmoothL1Loss, 0)
MEAN(KLDivergenceLoss, 0)
