/* Optimizers: PyTorch's semantics and defaults; one row of dlb_optimizers[] each. The kernel is the back
 * end's fused update (dlb_update_desc.rule = index of the row, hyper[] in the row's order).
 *
 *   sgd       w -= lr (g + wd w)
 *   momentum  v = mu v + g;  w -= lr v          (first step: v = g)
 *   nesterov  v = mu v + g;  w -= lr (g + mu v)
 *   adam      m, v moments with bias correction; w -= lr m^ / (sqrt(v^) + eps); L2 decay in g
 *   adamw     decoupled decay: w -= lr wd w first (Loshchilov, Hutter, 2019)
 *   adabelief as adamw, but the second moment s is of g - m: how far a gradient is from what was expected. As its
 *             authors' code has it (0.2.0, without rectification), eps is added to s itself at every step, and again
 *             to the root (Zhuang et al., NeurIPS 2020)
 *   adagrad   sum += g^2;  w -= lr g / (sqrt(sum) + eps)
 *   rmsprop   v = alpha v + (1 - alpha) g^2;  w -= lr g / (sqrt(v) + eps)
 *   max-adabelief  m, s as adabelief's without eps in s; x = max(x, s) never shrinks; w -= lr m^ / (d + eps), where by variant
 *             corrected        (default) d = sqrt(x), x = max(x, s / (1 - beta2^t)): d / lr never shrinks while lr does not grow
 *             denom_corrected  d = sqrt(x) / sqrt(1 - beta2^t)
 *             uncorrected      d = sqrt(x): a first step of 1 / sqrt(beta1^2 (1 - beta2)), 35 times lr; wants a warm-up
 *             amsgrad          denom_corrected with eps in s too, as the authors' code with amsgrad has it
 *
 *   kfac      u = (G + damping)^-1 [dW db] (A + damping)^-1 of dense layers and convolutions, times
 *             min(1, sqrt(kl_clip / (lr^2 sum u . [dW db]))), then as sgd; everything else as sgd
 *             (Martens, Grosse, ICML 2015; kfac.h)
 *
 * Decay is on every parameter (biases and normalization too), as PyTorch's with one parameter group: added to the gradient
 * (wd w), but decoupled (w -= lr wd w) in adamw, adabelief and max-adabelief.
 *
 * What replicas exchange is the gradient (summed, each being weighted by its share of the batch: the whole batch's), or,
 * for a rule with n_moments, those moments of each replica's own gradient: m^ and x (dlb_optimizer_exchange says how they
 * are weighted; dlb-run's replicas sum, so there is no maximum over them). E |g_i - m_i|^2 is about the number of replicas times that of the mean gradient, so lr wants to be larger
 * by its root.
 *
 * The learning rate of step i (from 0, in all, whatever started when) is dlb_optimizer_rate: a pure function of i. */
#ifndef DLB_OPTIM_OPTIM_H
#define DLB_OPTIM_OPTIM_H
#include "doc/doc.h"
#include "tensor/backend.h"			/* enum dlb_update_rule, DLB_HYPER_... */
#include "util/error.h"

enum { DLB_MAX_MOMENTS = 2 };

struct dlb_optimizer {
	const char *name, *summary;
	int n_state;				/* tensors of the weight's shape kept per weight */
	const char *state_name[3];		/* "momentum", "exp_avg", ... in checkpoints */
	int n_moments;				/* tensors of the weight's shape that may be exchanged in place of the gradient */
	double hyper[DLB_N_HYPER];		/* defaults */
	double flop_per_element, bytes_per_element;	/* f32 */
};
extern const struct dlb_optimizer dlb_optimizers[];	/* ends with name NULL */
int dlb_optimizer_find(const char *name);		/* row, -1: none */
/* Hyper-parameters by DLB_HYPER_...: member of .run.optimizer with its least and largest value; option of dlb-run, which allows up to
 * option_max, with its --help line. */
struct dlb_hyper { const char *key; double min, max; const char *option; double option_max; const char *arg, *help; };
extern const struct dlb_hyper dlb_hypers[DLB_N_HYPER];
extern const char *const dlb_optimizer_variants[DLB_N_VARIANTS + 1];	/* ends with NULL */
bool dlb_optimizer_uses(int rule, int hyper);		/* does the rule make use of it? */

/* Learning-rate schedule: after `warmup` steps, in which the rate grows linearly to lr (step i: (i + 1) / warmup of it),
 *   constant                lr
 *   cosine:STEPS[:MIN]      min + (lr - min) (1 + cos(pi (i - warmup) / (STEPS - warmup))) / 2; min from step STEPS on
 *   step:N:FACTOR           lr FACTOR^floor(i / N) */
enum dlb_rate_kind { DLB_RATE_CONSTANT, DLB_RATE_COSINE, DLB_RATE_STEP };
struct dlb_rate { enum dlb_rate_kind kind; int64_t warmup, steps; double min, factor; };
/* `steps`: what a cosine without STEPS takes; 0: it must say. Leaves r->warmup alone. -1: err says what is expected. */
int dlb_rate_parse(const char *text, int64_t steps, struct dlb_rate *r, struct dlb_error *err);

enum dlb_reduce_what { DLB_REDUCE_GRADIENTS, DLB_REDUCE_MOMENTS };
enum dlb_reduce_how { DLB_REDUCE_BY_MEAN, DLB_REDUCE_BY_SUM, DLB_REDUCE_BY_MAX };	/* max: of x; m^ by mean */
/* "gradients[:mean|:sum]", "moments[:mean|:sum|:max]" */
int dlb_reduce_parse(const char *text, enum dlb_reduce_what *what, enum dlb_reduce_how *how, struct dlb_error *err);

/* Weights whose name matches the pattern have these in place of the optimizer's own; of several groups the last one counts.
 * The schedule multiplies each group's learning rate alike. */
enum { DLB_MAX_GROUPS = 32 };
struct dlb_optimizer_group { char glob[200]; bool given[DLB_N_HYPER]; double hyper[DLB_N_HYPER]; };
/* GLOB:lr=X,weight-decay=Y, one or both */
int dlb_group_parse(const char *text, struct dlb_optimizer_group *g, struct dlb_error *err);
bool dlb_group_matches(const struct dlb_optimizer_group *g, const char *name);

/* The run section's optimizer, hyper-parameters resolved. */
struct dlb_optimizer_choice {
	int rule;
	double hyper[DLB_N_HYPER];
	enum dlb_update_variant variant;
	struct dlb_rate rate;
	double clip_norm;			/* 0: gradients are not clipped */
	bool delay_discount;			/* asynchronous: a weight that is read d updates late has lr times min(1, 2 / (1 + d)) */
	enum dlb_reduce_what reduce;
	enum dlb_reduce_how reduce_by;
	struct dlb_optimizer_group group[DLB_MAX_GROUPS];
	int n_groups;
	bool local_max;				/* x is each replica's own, not what came back from the exchange */
};
/* The choice for the weight of that name; its learning rate is so many times the optimizer's. */
double dlb_optimizer_for(const struct dlb_optimizer_choice *c, const char *name, struct dlb_optimizer_choice *own);
/* Learning rate of step i, from 0. */
double dlb_optimizer_rate(const struct dlb_optimizer_choice *o, int64_t step);

/* What replicas exchange for one parameter: n buffers of its shape, each to be summed (or its maximum taken) over the
 * replicas, with the factors that go before: `in` on the gradient, `out` on each buffer. For a replica with the given share
 * of the global batch (its gradient being that share's part of the whole batch's). */
struct dlb_optimizer_exchange { int n; bool moments, max[DLB_MAX_MOMENTS]; double in, out[DLB_MAX_MOMENTS]; };
void dlb_optimizer_exchange(const struct dlb_optimizer_choice *o, double share, struct dlb_optimizer_exchange *e);
/* The update kernel's desc for `count` elements at a stage; stages other than WHOLE only where moments are exchanged. */
struct dlb_update_desc dlb_optimizer_desc(const struct dlb_optimizer_choice *o, enum dlb_dtype dtype, int64_t count,
					  enum dlb_update_stage stage, const struct dlb_optimizer_exchange *e);

/* Adds to err, "no optimizer 'NAME'", which name is near or which there are. -1. */
int dlb_optimizer_hint(const char *name, struct dlb_error *err);
void dlb_optimizer_defaults(int rule, struct dlb_optimizer_choice *o);
/* Members name, lr, momentum, alpha, beta1, beta2, eps, weight_decay, variant, warmup, lr_schedule, clip_norm, reduce,
 * max_state. */
int dlb_optimizer_read(const struct dlb_doc *d, struct dlb_optimizer_choice *o, struct dlb_error *err);	/* default sgd */
#endif
