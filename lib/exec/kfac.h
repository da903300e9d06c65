/* K-FAC on one node (optim/kfac.h): sums, averages and inverses of the layers whose weights live here, and the kernels
 * that work on them.
 *
 * Of replicas, each keeps the averages of its own samples' share; they begin as I over the number of replicas, and since
 * averaging is linear their sum is the average of the whole batch, to be made only when a new inverse is due. What is
 * exchanged is a copy of it, in the place of the sum that it was made of; all replicas then make the same inverse.
 *
 * Where something cannot be inverted (tensor/kfac.h), the inverse stays what it was, the same on all replicas. */
#ifndef DLB_EXEC_KFAC_H
#define DLB_EXEC_KFAC_H
#include "comm/compress.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "plan/program.h"

struct dlb_kfac;
/* For the layers whose updates stand on `node`. *out NULL: there are none. -1: no memory. */
int dlb_kfac_new(struct dlb_kfac **out, const struct dlb_graph *g, struct dlb_backend *be, const int *placement, int node,
		 const struct dlb_optimizer_choice *c, int n_replicas, struct dlb_error *err);
void dlb_kfac_free(struct dlb_kfac *k);
struct dlb_memories;
int dlb_kfac_put(const struct dlb_kfac *k, struct dlb_memories *m, struct dlb_error *err);	/* what it keeps, into memories (engine.h) */
/* Sums moment `moment` (dlb_kfac_moment_of) of the update's layer over micro-batch m of p; where that ends the last of its
 * factor's, the average is made. in {the operand} */
int dlb_kfac_prepare_sum(struct dlb_kfac *k, const struct dlb_program *p, int update, int moment, int m, struct dlb_kernel **out,
			 struct dlb_error *err);
/* in {}, out {sum of dW, sum of db or NULL}. Inverts where that is due. */
int dlb_kfac_prepare_apply(struct dlb_kfac *k, int update, struct dlb_kernel **out, struct dlb_error *err);

/* Of the last step, what was preconditioned times what it was before: [dw db] . u. */
double dlb_kfac_along(const struct dlb_kfac *k, int update);
void dlb_kfac_held_back(struct dlb_kfac *k);		/* counts a step that would have left the trust region; NULL: no layer here */

/* ---- for sync/factors.c ---- */
bool dlb_kfac_due(const struct dlb_kfac *k, int64_t step);		/* a new inverse is */
/* What is summed over the replicas, of one group: its order squared elements, symmetric. */
void *dlb_kfac_summand(struct dlb_kfac *k, int update, int factor, int group);
double dlb_kfac_damping(const struct dlb_kfac *k);
/* It came back as its Cholesky factor (dlb_sum_tensor.as_factor), or as the sum. */
void dlb_kfac_came(struct dlb_kfac *k, int update, int factor, int group, bool factored);

/* ---- for checkpoints and reports ---- */
/* Averages, each replica's own, and inverses; i from 0, false: no more. */
bool dlb_kfac_state(struct dlb_kfac *k, int i, struct dlb_local_tensor *s);
/* Inverses so far; of those, made with more on the diagonal; left as they were. Steps whose moments were not finite; that the
 * trust region shortened. */
struct dlb_kfac_counts { int64_t inverses, shifted, kept, not_finite, held_back; };
struct dlb_kfac_counts dlb_kfac_counted(const struct dlb_kfac *k);
#endif
