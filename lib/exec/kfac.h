/* K-FAC on one node (optim/kfac.h): sums, averages and inverses of the layers whose weights are on this node,
 * and their kernels.
 *
 * Each replica keeps averages over its share of the samples. They start as I divided by the number of
 * replicas. Averaging is linear, so the sum of these averages over the replicas is the average of the whole
 * batch. This sum is needed only when an inverse is due: a copy of each average, in the memory of sum[0], is
 * exchanged, and all replicas then compute the same inverse.
 *
 * If a matrix cannot be inverted (tensor/kfac.h), the previous inverse is kept on all replicas. */
#ifndef DLB_EXEC_KFAC_H
#define DLB_EXEC_KFAC_H
#include "comm/compress.h"
#include "optim/kfac.h"
#include "optim/optim.h"
#include "plan/program.h"

struct dlb_local_graph;			/* state.h */
struct dlb_kfac;
/* Makes K-FAC's state for the layers whose updates are on the node. *out NULL: no layer. -1 with err: no
 * memory, or the node computes on a device. */
int dlb_kfac_new(struct dlb_kfac **out, const struct dlb_local_graph *l, const struct dlb_optimizer_choice *c,
		 int n_replicas, struct dlb_error *err);
void dlb_kfac_free(struct dlb_kfac *k);
struct dlb_memories;
/* Binds the matrices of k (memories.h). */
int dlb_kfac_put(const struct dlb_kfac *k, struct dlb_memories *m, struct dlb_error *err);
/* Makes a kernel that sums moment `moment` (dlb_kfac_moment_of) of the update's layer over micro-batch m of
 * p; after the last moment of a factor it updates the factor's average. in {the operand} */
int dlb_kfac_prepare_sum(struct dlb_kfac *k, const struct dlb_program *p, int update, int moment, int m,
			 struct dlb_kernel **out, struct dlb_error *err);
/* Makes a kernel with in {}, out {sum of dW, sum of db or NULL}, which preconditions out in place. If an
 * inverse is due, the kernel first computes it. */
int dlb_kfac_prepare_apply(struct dlb_kfac *k, int update, struct dlb_kernel **out, struct dlb_error *err);

/* The scalar product of the original and the preconditioned gradient of the last step, [dw db] . u. */
double dlb_kfac_along(const struct dlb_kfac *k, int update);
/* Counts a step that the trust region has shortened; k NULL: nothing to do. */
void dlb_kfac_held_back(struct dlb_kfac *k);

/* ---- for sync/factors.c ---- */
bool dlb_kfac_due(const struct dlb_kfac *k, int64_t step);		/* whether a new inverse is due */
/* The matrix of one group that replicas sum, in the memory of sum[0]: n * n elements, symmetric. */
void *dlb_kfac_summand(struct dlb_kfac *k, int update, int factor, int group);
double dlb_kfac_damping(const struct dlb_kfac *k);
/* Tells k the form of the sum that the exchange has returned. factored: its Cholesky factor
 * (dlb_sum_tensor.as_factor); else the sum itself. */
void dlb_kfac_set_received(struct dlb_kfac *k, int update, int factor, int group, bool factored);

/* ---- for checkpoints and reports ---- */
/* Tensor i, from 0, of the averages (each replica's own) and inverses; false: no more tensors. */
bool dlb_kfac_state(struct dlb_kfac *k, int i, struct dlb_local_tensor *s);
/* The update op of tensor i's layer. */
int dlb_kfac_update_of(const struct dlb_kfac *k, int i);
/* move.c: sends averages and inverses of the layers whose node has changed directly to their new nodes, as
 * dlb_state_move. to, from NULL: no layer on this node. Collective; -1: the comm broke. */
struct dlb_comm;
struct dlb_placements;
int dlb_kfac_move(struct dlb_kfac *to, struct dlb_kfac *from, const struct dlb_placements *p,
		  struct dlb_comm *comm, struct dlb_error *err);
/* Counts so far. inverses: attempts to invert a matrix; shifted: with more than the damping on the diagonal;
 * kept: failed, so the previous inverse was kept; not_finite: updates of a factor's average with non-finite
 * moments; held_back: steps that the trust region has shortened. */
struct dlb_kfac_counts { int64_t inverses, shifted, kept, not_finite, held_back; };
struct dlb_kfac_counts dlb_kfac_counted(const struct dlb_kfac *k);
#endif
