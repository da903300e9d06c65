/* Compression of the sums that replicas exchange: gradients and K-FAC's factors.
 *
 *     none              dense
 *     bf16              dense, 16 bits on the wire
 *     cholesky          symmetric positive definite factors: triangles are summed at an owner, which factors once
 *                       and sends L back; gradients of two dimensions and more: in a basis that all ranks share,
 *                       of a rank that adapts to them (lowrank.h), with error feedback; small gradients, and those
 *                       of K-FAC: dense
 *     cholesky:TOL      the same; the basis ends when TOL of a sketch's trace remains (0 < TOL < 1)
 *     cholesky:R        the same; the basis has at most R columns
 *     cholesky:per-hop  factors as first published: every hop restores, adds, factors and sends L; gradients dense
 *     lowrank:R         gradients of two dimensions and more: P and Q of rank R with error feedback; small ones dense
 *
 * and after the name, by commas: wire=f32 (P, Q and L travel as floats; bf16 otherwise; wire=f8, as of
 * cholesky: Q in 8 bits), start=N (gradients are dense for the first N steps; otherwise, of lowrank, a tenth
 * of the run, at least a hundred; of cholesky, one step in 400), error=local (what is kept back is what each
 * rank did not send itself, as of cholesky, or, error=global, as of lowrank, an equal share of what all did
 * not).
 *
 * A dlb_compressor sums a list of tensors over some ranks in place of a dlb_collective, and is driven like
 * one: start, test until done, wait. All ranks end with the same bits and the same verdict. What it keeps
 * from step to step (errors kept back, bases of the step before) a checkpoint has to hold.
 *
 * What goes wrong on one rank is known to all in the same step: each has a place of its own in an array that
 * is summed beside the tensors, and says there which tensor is not finite (or not symmetric). With a number
 * that is not finite the sums are meaningless: the step must not count (state is as it was); a factor that is
 * not symmetric makes all factors of that step travel dense, and one whose sum is not positive definite comes
 * as the sum.
 *
 * All ranks learn of faults in the same step: each rank has its own entry in an array that is summed beside
 * the tensors, and writes there which of its tensors is not finite (or not symmetric). If any is not finite,
 * the sums are meaningless and the step must not count (state is unchanged). If a factor is not symmetric,
 * all factors of that step travel dense. A factor whose sum is not positive definite is returned as the sum.
 *
 * The first part of this header is plain C over numbers and needs no MPI; predictions use it. */
#ifndef DLB_COMM_COMPRESS_H
#define DLB_COMM_COMPRESS_H
#include "comm/allreduce.h"

enum dlb_compress { DLB_COMPRESS_NONE, DLB_COMPRESS_BF16, DLB_COMPRESS_CHOLESKY, DLB_COMPRESS_PER_HOP, DLB_COMPRESS_LOWRANK };
struct dlb_compress_name { const char *name, *summary; };	/* "lowrank:R": a number follows the colon */
extern const struct dlb_compress_name dlb_compress_names[];	/* by enum dlb_compress; ends with NULL */
struct dlb_compress_choice {
	enum dlb_compress how;
	/* lowrank: the rank. cholesky: the greatest; 0: from the bytes of each tensor by itself
	 * (dlb_compress_budget) */
	int rank;
	double tolerance;		/* cholesky: part of a sketch's trace that may remain */
	bool gradients_dense;		/* cholesky: only factors are compressed */
	enum dlb_wire wire;		/* of L; of all sums with bf16 */
	enum dlb_wire p_wire, q_wire;	/* of P and Q */
	bool local_error;
	/* of gradients: the first step that is compressed; -1: the usual (dlb_compress_settle) */
	int64_t start;
};
/* Parses the value of --compress; text NULL: none. On error *c is unchanged. */
int dlb_compress_parse(const char *text, struct dlb_compress_choice *c, struct dlb_error *err);

/* Sets the default of c->start for a run that ends with step `last` (INT64_MAX: unknown). */
void dlb_compress_settle(struct dlb_compress_choice *c, int64_t last);

enum dlb_traffic_class { DLB_TRAFFIC_FACTOR, DLB_TRAFFIC_GRADIENT, DLB_TRAFFIC_SMALL, DLB_N_TRAFFIC };
extern const char *const dlb_traffic_names[DLB_N_TRAFFIC];
/* One tensor: a gradient as (first dimension, all others), or a factor. */
struct dlb_sum_tensor {
	float *x;			/* row-major, borrowed; summed in place */
	int64_t rows, cols;
	int id;				/* the same on all ranks, whichever other tensors are in the list */
	const char *name;		/* borrowed */
	bool factor;			/* square and symmetric */
	/* of a factor: what its owner adds to the diagonal before factoring, and takes off again */
	double damping;
	bool as_factor;			/* x is to have what comes back from the owner as it comes, not the sum that it stands for: L of the
					 * reversed matrix with damping, RFP (tensor/spd.h). dlb_compressor_factored tells whether it has */
};
enum dlb_traffic_class dlb_traffic_class_of(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* Greatest rank with which `a` travels; 0: dense (small, or that rank would save less than half of the
 * bytes). */
int dlb_compress_rank(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* cholesky: one of more rows than columns travels as its transpose does, so that P, which has to be exact, is
 * the shorter one. */
bool dlb_compress_transposed(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* of a column */
int64_t dlb_compress_p_length(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
int64_t dlb_compress_q_length(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* Floats of P and Q of a transposed tensor, in the layout that the passes over it read. */
int64_t dlb_transposed_words(const struct dlb_sum_tensor *a, int rank);
/* cholesky: the greatest rank for all n gradients with which they travel, those too that stay dense, in a
 * 21st of their dense bytes; 1 where none is low enough. One rank, not one share of the bytes: an error left
 * by a tensor of few rows costs as much as another's. */
int dlb_compress_budget(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int n);
/* Bytes of one column of P and of Q together. */
int64_t dlb_compress_column_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* Floats on the wire of the Cholesky factor of a matrix of order n, from its owner. */
int64_t dlb_factor_words(const struct dlb_compress_choice *c, int64_t n);
/* Sets owner[i], of n_owners, for each of n tensors; -1: tensor i is not a factor. */
void dlb_factor_owners(const struct dlb_sum_tensor *a, int n, int n_owners, int *owner);
/* Bytes that `member` sends for these n tensors in one step, by class: compressed (bytes) and dense. */
void dlb_compress_bytes(const struct dlb_compress_choice *c, const struct dlb_allreduce *how, const struct dlb_ranks *r, int member,
			const struct dlb_sum_tensor *a, int n, double bytes[DLB_N_TRAFFIC], double dense_bytes[DLB_N_TRAFFIC]);

/* Bytes that a compressor of these tensors takes on each of n_ranks: what is kept from step to step, and its
 * buffers. */
double dlb_compress_memory_bytes(const struct dlb_compress_choice *c, int n_ranks, const struct dlb_sum_tensor *a, int n);

/* Bytes that `member` sends in one step for the flags (not finite, not symmetric). */
double dlb_compress_flag_bytes(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member);

/* State of compression from step to step, keyed by the tensors' ids: residuals, bases, ranks. Compressors
 * that take turns (full batches, the epoch's short last one) share one. Checkpoints hold it: each rank has
 * its own residuals, whose sum over the ranks matters; a basis is the same on all. */
struct dlb_compress_state;
struct dlb_compress_state *dlb_compress_state_new(void);
void dlb_compress_state_free(struct dlb_compress_state *k);
/* One tensor of state that a rank has alone; `name` of the model's tensor, `what` it is. f32 or f64. summed:
 * the sum over the replicas matters. needed: a checkpoint without it is refused. */
struct dlb_local_tensor { const char *name, *what; void *p; int64_t n; bool summed; enum dlb_dtype dtype; bool needed; };
/* i from 0; false: no more */
bool dlb_compress_state_tensor(struct dlb_compress_state *k, int i, struct dlb_local_tensor *s);

struct dlb_compressor_desc {
	struct dlb_compress_choice choice;
	const struct dlb_allreduce *how;
	struct dlb_ranks ranks;			/* its arrays are borrowed during the call */
	const struct dlb_sum_tensor *tensor;	/* copied; x is borrowed until _free */
	int n_tensors;
	int tag;				/* and the DLB_COMPRESSOR_TAGS - 1 after it */
	struct dlb_compress_state *state;			/* borrowed: outlives the compressor */
};
enum { DLB_COMPRESSOR_TAGS = 6 };
struct dlb_compressor;
int dlb_compressor_new(struct dlb_compressor **out, struct dlb_comm *c, const struct dlb_compressor_desc *d, struct dlb_error *err);
void dlb_compressor_free(struct dlb_compressor *k);
void dlb_compressor_start(struct dlb_compressor *k, int64_t step);
/* true when done (or broken: _wait tells); hops are made in _wait only */
bool dlb_compressor_test(struct dlb_compressor *k);
int dlb_compressor_wait(struct dlb_compressor *k, struct dlb_error *err);
/* What the last step found, the same on all ranks. rank: of the world, -1: the sum of all alone is not
 * finite. */
struct dlb_verdict {
	const char *not_finite; int rank;	/* the tensor's name; NULL: all is well */
	/* factors that came dense, as the sum, with more on the diagonal */
	int n_asymmetric, n_not_definite, n_retries;
	int n_hops_failed;			/* per-hop: factors that travelled as the sum, here */
};
const struct dlb_verdict *dlb_compressor_verdict(const struct dlb_compressor *k);
/* Whether the last step left tensor i as its factor. */
bool dlb_compressor_factored(const struct dlb_compressor *k, int i);
/* 0; -1 with an error that names tensor and rank if one is not finite. */
int dlb_verdict_error(const struct dlb_verdict *v, struct dlb_error *err);
/* Ranks at which a tensor was sent, over all steps of this run that compressed it; bound: the most
 * allowed. */
struct dlb_ranks_seen { int id, least, median, most, bound; };
/* i from 0; false: no more */
bool dlb_compress_state_ranks(const struct dlb_compress_state *k, int i, struct dlb_ranks_seen *r);
/* Of the last step, by this rank. */
struct dlb_traffic { double bytes[DLB_N_TRAFFIC], dense_bytes[DLB_N_TRAFFIC], time_s[DLB_N_TRAFFIC]; };
const struct dlb_traffic *dlb_compressor_traffic(const struct dlb_compressor *k);
#endif
