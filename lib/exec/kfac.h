/* K-FAC on one node (optim/kfac.h): sums, averages and inverses of the layers whose weights are here, and the
 * kernels that work on them.
 *
 * Each replica keeps averages over its share of the samples. They start as I divided by the number of
 * replicas. Averaging is linear, so their sum over the replicas is the average of the whole batch; it is
 * needed only when an inverse is due. A copy of the average, in the place of sum[0], is exchanged; all
 * replicas then compute the same inverse.
 *
 * If a matrix cannot be inverted (tensor/kfac.h), the inverse stays as it was, the same on all replicas. */
#ifndef DLB_EXEC_KFAC_H
#define DLB_EXEC_KFAC_H
#include "comm/compress.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "plan/program.h"

struct dlb_local_graph;			/* state.h */
struct dlb_kfac;
/* For the layers whose updates are on the node. *out NULL: no layer. -1: no memory. */
int dlb_kfac_new(struct dlb_kfac **out, const struct dlb_local_graph *l, const struct dlb_optimizer_choice *c,
		 int n_replicas, struct dlb_error *err);
void dlb_kfac_free(struct dlb_kfac *k);
struct dlb_memories;
/* binds its matrices (memories.h) */
int dlb_kfac_put(const struct dlb_kfac *k, struct dlb_memories *m, struct dlb_error *err);
/* Kernel that sums moment `moment` (dlb_kfac_moment_of) of the update's layer over micro-batch m of p; after
 * the last moment of a factor it updates the average. in {the operand} */
int dlb_kfac_prepare_sum(struct dlb_kfac *k, const struct dlb_program *p, int update, int moment, int m,
			 struct dlb_kernel **out, struct dlb_error *err);
/* Kernel in {}, out {sum of dW, sum of db or NULL}: preconditions them. Inverts first when an inverse is
 * due. */
int dlb_kfac_prepare_apply(struct dlb_kfac *k, int update, struct dlb_kernel **out, struct dlb_error *err);

/* In the last step, the product of preconditioned and original gradient: [dw db] . u. */
double dlb_kfac_along(const struct dlb_kfac *k, int update);
/* counts a step shortened by the trust region; NULL: nothing */
void dlb_kfac_held_back(struct dlb_kfac *k);

/* ---- for sync/factors.c ---- */
bool dlb_kfac_due(const struct dlb_kfac *k, int64_t step);		/* whether a new inverse is due */
/* The matrix of one group that replicas sum: n * n elements, symmetric. */
void *dlb_kfac_summand(struct dlb_kfac *k, int update, int factor, int group);
double dlb_kfac_damping(const struct dlb_kfac *k);
/* Reports that the sum came back as its Cholesky factor (dlb_sum_tensor.as_factor), or as the sum. */
void dlb_kfac_came(struct dlb_kfac *k, int update, int factor, int group, bool factored);

/* ---- for checkpoints and reports ---- */
/* Tensor i of the averages, each replica's own, and inverses. i from 0; false: no more. */
bool dlb_kfac_state(struct dlb_kfac *k, int i, struct dlb_local_tensor *s);
/* The update op of tensor i's layer. */
int dlb_kfac_update_of(const struct dlb_kfac *k, int i);
/* move.c: sends averages and inverses of the layers whose node has changed straight to their new nodes, as
 * dlb_state_move. NULL: no layer here. Collective; -1: the comm broke. */
struct dlb_comm;
struct dlb_placements;
int dlb_kfac_move(struct dlb_kfac *to, struct dlb_kfac *from, const struct dlb_placements *p,
		  struct dlb_comm *comm, struct dlb_error *err);
/* Inverses so far; of those, made with more on the diagonal; not made (the old one stayed). Steps whose
 * moments were not finite; steps shortened by the trust region. */
struct dlb_kfac_counts { int64_t inverses, shifted, kept, not_finite, held_back; };
struct dlb_kfac_counts dlb_kfac_counted(const struct dlb_kfac *k);
#endif
