/* Optimizers with PyTorch's semantics and defaults; one row of dlb_optimizers[] each. The kernel is the back
 * end's fused update (dlb_update_desc.rule = index of the row, hyper[] in the row's order).
 *
 *   sgd       w -= lr (g + wd w)
 *   momentum  v = mu v + g;  w -= lr v          (first step: v = g)
 *   nesterov  v = mu v + g;  w -= lr (g + mu v)
 *   adam      m, v moments with bias correction; w -= lr m^ / (sqrt(v^) + eps); L2 decay in g
 *   adamw     decoupled decay: w -= lr wd w first (Loshchilov, Hutter, 2019)
 *   adabelief as adamw, but the second moment s is of g - m, the difference from the expected gradient. As
 *             in its authors' code (0.2.0, without rectification), eps is added to s at every step, and again
 *             to the root (Zhuang et al., NeurIPS 2020)
 *   adagrad   sum += g^2;  w -= lr g / (sqrt(sum) + eps)
 *   rmsprop   v = alpha v + (1 - alpha) g^2;  w -= lr g / (sqrt(v) + eps)
 *   max-adabelief  m, s as in adabelief, without eps in s; x = max(x, s) never shrinks;
 *             w -= lr m^ / (d + eps), with d by variant
 *             corrected        (default) d = sqrt(x), x = max(x, s / (1 - beta2^t)): d / lr never shrinks
 *                              unless lr grows
 *             denom_corrected  d = sqrt(x) / sqrt(1 - beta2^t)
 *             uncorrected      d = sqrt(x): the first step is 1 / sqrt(beta1^2 (1 - beta2)), 35 times lr, so
 *                              it needs a warm-up
 *             amsgrad          denom_corrected with eps also in s, as in the authors' code with amsgrad
 *
 *   kfac      u = (G + damping)^-1 [dW db] (A + damping)^-1 of dense layers and convolutions, times
 *             min(1, sqrt(kl_clip / (lr^2 sum u . [dW db]))), then as sgd; all other parameters as sgd
 *             (Martens, Grosse, ICML 2015; kfac.h)
 *
 * Decay is on every parameter (biases and normalization too), as in PyTorch with one parameter group. It is
 * added to the gradient (wd w), but decoupled (w -= lr wd w) in adamw, adabelief and max-adabelief.
 *
 * Replicas exchange gradients, summed and weighted by each replica's share of the batch, which gives the
 * whole batch's gradient. For a rule with n_moments they can exchange moments of their own gradients
 * instead: m^ and x (dlb_optimizer_exchange has the weights; dlb-run's replicas sum, so it has no maximum
 * over them). E |g_i - m_i|^2 is about the number of replicas times that of the mean gradient, so lr
 * should be larger by its square root.
 *
 * The learning rate of step i (counted from 0 over all restarts) is dlb_optimizer_rate: a pure function of
 * i. */
#ifndef DLB_OPTIM_OPTIM_H
#define DLB_OPTIM_OPTIM_H
#include "doc/doc.h"
#include "tensor/backend.h"			/* enum dlb_update_rule, DLB_HYPER_... */
#include "util/error.h"

enum { DLB_MAX_MOMENTS = 2 };

struct dlb_optimizer {
	const char *name, *summary;
	int n_state;				/* tensors of the weight's shape, per weight */
	const char *state_name[3];		/* names in checkpoints: "momentum", "exp_avg", ... */
	/* the code of each state in 8 bits; DLB_CODE_F32: this optimizer's states are kept as f32, because in
	 * 8 bits sums that only grow (adagrad) would stop growing, and maxima (max-adabelief) would shrink */
	enum dlb_state_code state_code[3];
	/* tensors of the weight's shape that can be exchanged instead of the gradient */
	int n_moments;
	double hyper[DLB_N_HYPER];		/* defaults */
	double flop_per_element, bytes_per_element;	/* f32 */
};
extern const struct dlb_optimizer dlb_optimizers[];	/* ends with name NULL */
int dlb_optimizer_find(const char *name);		/* row; -1: none */
/* Hyper-parameters by DLB_HYPER_...: member of .run.optimizer with its least and largest value; option of
 * dlb-run, which allows up to option_max, with its --help line. */
struct dlb_hyper {
	const char *key;
	double min, max;
	const char *option;
	double option_max;
	const char *arg, *help;
};
extern const struct dlb_hyper dlb_hypers[DLB_N_HYPER];
extern const char *const dlb_optimizer_variants[DLB_N_VARIANTS + 1];	/* ends with NULL */
bool dlb_optimizer_uses(int rule, int hyper);		/* does the rule use it? */

/* Learning-rate schedule. During the first `warmup` steps the rate grows linearly: step
 * i has lr (i + 1) / warmup. Then
 *   constant                lr
 *   cosine:STEPS[:MIN]      min + (lr - min) (1 + cos(pi (i - warmup) / (STEPS - warmup))) / 2; min from STEPS on
 *   step:N:FACTOR           lr FACTOR^floor(i / N)
 */
enum dlb_rate_kind { DLB_RATE_CONSTANT, DLB_RATE_COSINE, DLB_RATE_STEP };
struct dlb_rate { enum dlb_rate_kind kind; int64_t warmup, steps; double min, factor; };
/* `steps`: default of a cosine's STEPS; 0: STEPS is required. Does not change r->warmup. -1
 * with err, which gives the syntax. */
int dlb_rate_parse(const char *text, int64_t steps, struct dlb_rate *r, struct dlb_error *err);

enum dlb_reduce_what { DLB_REDUCE_GRADIENTS, DLB_REDUCE_MOMENTS };
/* max: for x; m^ uses the mean */
enum dlb_reduce_how { DLB_REDUCE_BY_MEAN, DLB_REDUCE_BY_SUM, DLB_REDUCE_BY_MAX };
/* "gradients[:mean|:sum]", "moments[:mean|:sum|:max]" */
int dlb_reduce_parse(const char *text, enum dlb_reduce_what *what, enum dlb_reduce_how *how,
		     struct dlb_error *err);

/* Hyper-parameters of the weights whose name matches the pattern, instead of the optimizer's; of several
 * matching groups the last one counts. The schedule scales all learning rates alike. */
enum { DLB_MAX_GROUPS = 32 };
struct dlb_optimizer_group { char glob[200]; bool given[DLB_N_HYPER]; double hyper[DLB_N_HYPER]; };
/* Parses GLOB:lr=X,weight-decay=Y with one or both settings. */
int dlb_group_parse(const char *text, struct dlb_optimizer_group *g, struct dlb_error *err);
bool dlb_group_matches(const struct dlb_optimizer_group *g, const char *name);

/* The optimizer of the run section, with all hyper-parameters set. */
struct dlb_optimizer_choice {
	int rule;
	double hyper[DLB_N_HYPER];
	enum dlb_update_variant variant;
	struct dlb_rate rate;
	double clip_norm;			/* 0: no clipping */
	/* asynchronous: a weight read d updates late has lr times min(1, 2 / (1 + d)) */
	bool delay_discount;
	enum dlb_reduce_what reduce;
	enum dlb_reduce_how reduce_by;
	struct dlb_optimizer_group group[DLB_MAX_GROUPS];
	int n_groups;
	bool local_max;				/* x is the replica's own, not the exchanged one */
	enum dlb_state_dtype state_dtype;	/* the plan's */
};
/* Writes the choice for the weight of that name to *own. Returns its learning
 * rate divided by the optimizer's. */
double dlb_optimizer_for(const struct dlb_optimizer_choice *c, const char *name,
			 struct dlb_optimizer_choice *own);
/* Learning rate of step i, from 0. */
double dlb_optimizer_rate(const struct dlb_optimizer_choice *o, int64_t step);

/* Buffers that replicas exchange for one parameter: n of its shape, each summed over the replicas (max: the
 * maximum is taken). Factors before the exchange: `in` on the gradient, `out` on each buffer. `share` is the
 * replica's share of the global batch; its gradient is its part of the whole batch's. */
struct dlb_optimizer_exchange { int n; bool moments, max[DLB_MAX_MOMENTS]; double in, out[DLB_MAX_MOMENTS]; };
void dlb_optimizer_exchange(const struct dlb_optimizer_choice *o, double share,
			    struct dlb_optimizer_exchange *e);
/* How state k of a rule is kept under that type. */
enum dlb_state_code dlb_optimizer_code(int rule, enum dlb_state_dtype d, int k);
/* -1 with err, at /plan/state_dtype: the rule's states cannot be kept so. */
int dlb_optimizer_check_states(int rule, enum dlb_state_dtype d, struct dlb_error *err);
/* Descriptor of the update kernel for `count` elements, whose states are one chunk. Stages other than WHOLE
 * exist only if moments are exchanged. */
struct dlb_update_desc dlb_optimizer_desc(const struct dlb_optimizer_choice *o, enum dlb_dtype dtype,
					  int64_t count, enum dlb_update_stage stage,
					  const struct dlb_optimizer_exchange *e);

/* Adds to err, "no optimizer 'NAME'", the closest name, or the list of names. Returns -1. */
int dlb_optimizer_hint(const char *name, struct dlb_error *err);
void dlb_optimizer_defaults(int rule, struct dlb_optimizer_choice *o);
/* Reads members name, lr, momentum, alpha, beta1, beta2, eps, weight_decay, variant, warmup,
 * lr_schedule, clip_norm, reduce, max_state. */
/* default sgd */
int dlb_optimizer_read(const struct dlb_doc *d, struct dlb_optimizer_choice *o, struct dlb_error *err);
#endif
