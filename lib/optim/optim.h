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
 *             to the root (Zhuang et al., NeurIPS 2020) */
#ifndef DLB_OPTIM_OPTIM_H
#define DLB_OPTIM_OPTIM_H
#include "doc/doc.h"
#include "tensor/backend.h"			/* enum dlb_update_rule, DLB_HYPER_... */
#include "util/error.h"

struct dlb_optimizer {
	const char *name, *summary;
	int n_state;				/* tensors of the weight's shape kept per weight */
	const char *state_name[3];		/* "momentum", "exp_avg", ... in checkpoints */
	double hyper[DLB_N_HYPER];		/* defaults */
	double flop_per_element, bytes_per_element;	/* f32 */
};
extern const struct dlb_optimizer dlb_optimizers[];	/* ends with name NULL */
int dlb_optimizer_find(const char *name);		/* row, -1: none */
/* The run section's optimizer, hyper-parameters resolved. */
struct dlb_optimizer_choice { int rule; double hyper[8]; };
void dlb_optimizer_defaults(int rule, struct dlb_optimizer_choice *o);
/* Members name, lr, momentum, beta1, beta2, eps, weight_decay. */
int dlb_optimizer_read(const struct dlb_doc *d, struct dlb_optimizer_choice *o, struct dlb_error *err);	/* default sgd */
#endif
