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
 * Options follow the name, separated by commas:
 *
 *     wire=f32, wire=bf16   format of P, Q and L on the wire; bf16 is the default of lowrank
 *     wire=blocks           P and Q in blocks of 4 bits a number (blocks.h), L and gradients that are not
 *                           compressed in bf16; the default of cholesky
 *     start=N               gradients are dense for the first N steps. Default of lowrank: a tenth of the run, at
 *                           least 100; of cholesky: one step in 100
 *     error=local           the residual is the part that each rank itself did not send, and what its
 *                           rounding took from sums; the default of cholesky
 *     error=global          the residual is an equal share of the part that was not sent in all; default of lowrank
 *
 * A dlb_compressor sums a list of tensors over some ranks, in place. It replaces a dlb_collective and is used
 * like one: start, test until done, wait. All ranks end with the same bits and the same verdict. Checkpoints
 * must hold its state: residuals, and bases of the step before.
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

enum dlb_compress {
	DLB_COMPRESS_NONE,
	DLB_COMPRESS_BF16,
	DLB_COMPRESS_CHOLESKY,
	DLB_COMPRESS_PER_HOP,
	DLB_COMPRESS_LOWRANK
};
struct dlb_compress_name { const char *name, *summary; };	/* "lowrank:R": a number follows the colon */
extern const struct dlb_compress_name dlb_compress_names[];	/* by enum dlb_compress; ends with NULL */
struct dlb_compress_choice {
	enum dlb_compress how;
	/* lowrank: the rank. cholesky: the greatest rank; 0: computed from the bytes of each tensor by itself
	 * (dlb_compress_budget) */
	int rank;
	double tolerance;		/* cholesky: part of a sketch's trace that may remain */
	bool gradients_dense;		/* cholesky: only factors are compressed */
	enum dlb_wire wire; /* of L */
	enum dlb_wire thin_wire; /* of P and Q */
	enum dlb_wire dense_wire; /* of all other sums (dlb_compress_dense_wire) */
	bool local_error;
	int64_t start;	/* first step that compresses gradients; -1: default (dlb_compress_settle) */
};
/* Parses the value of --compress; text NULL: none. On error *c is unchanged. */
int dlb_compress_parse(const char *text, struct dlb_compress_choice *c, struct dlb_error *err);

/* Sets the default of c->start for a run that ends with step `last` (INT64_MAX: unknown). */
void dlb_compress_settle(struct dlb_compress_choice *c, int64_t last);

enum dlb_traffic_class { DLB_TRAFFIC_FACTOR, DLB_TRAFFIC_GRADIENT, DLB_TRAFFIC_SMALL, DLB_N_TRAFFIC };
extern const char *const dlb_traffic_names[DLB_N_TRAFFIC];
/* One tensor: a gradient as a matrix, or a factor. */
struct dlb_sum_tensor {
	float *x;			/* row-major, borrowed; summed in place */
	int64_t rows, cols;
	/* How x lies if not row by row: as (rows / lead, middle, lead, cols / middle), of which the matrix is
	 * (rows / lead, lead, middle, cols / middle). middle 0: row by row. */
	int64_t middle, lead;
	int id;				/* the same on all ranks, whichever other tensors are in the list */
	const char *name;		/* borrowed */
	bool factor;			/* square and symmetric */
	double damping;	/* of a factor: added to the diagonal for factoring; not part of the sum */
	/* x receives L as the owner sends it instead of the sum: L of the reversed matrix with damping, RFP
	 * (tensor/spd.h). dlb_compressor_factored says whether it did. */
	bool as_factor;
	int summand;
	int64_t at; /* for the caller: where the tensor lies */
};
enum dlb_traffic_class dlb_traffic_class_of(const struct dlb_compress_choice *c,
					    const struct dlb_sum_tensor *a);
/* Greatest rank on the wire of `a`; 0: dense (small, or that rank would save less than half of the bytes). */
int dlb_compress_rank(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* cholesky: whether `a` is sent as its transpose: it has more rows than columns, and P, which must be exact,
 * should be the shorter one. */
bool dlb_compress_transposed(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* rows of P, of Q */
int64_t dlb_compress_p_length(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
int64_t dlb_compress_q_length(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* Floats of P and Q of a transposed tensor, in the layout that the passes over it read. */
int64_t dlb_transposed_words(const struct dlb_sum_tensor *a, int rank);
/* Doubles of dlb_compressor's work for `a`. */
int64_t dlb_compress_work(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int rank);
/* cholesky: the greatest common rank at which all n gradients, including those that stay dense, take at most
 * 1/24.8 of their dense bytes; at least 1. All gradients get one rank, not one share of bytes each, because
 * an error in a tensor of few rows costs as much as in any other. */
int dlb_compress_budget(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int n);
/* Bytes of P and of Q with `columns` columns; of all of `a` if it is sent dense. */
int64_t dlb_compress_p_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a,
			     int columns);
int64_t dlb_compress_q_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a,
			     int columns);
int64_t dlb_compress_dense_bytes(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a);
/* Format of gradients that are not compressed: exact if all gradients are dense (K-FAC), else
 * c->dense_wire. */
enum dlb_wire dlb_compress_dense_wire(const struct dlb_compress_choice *c);
/* Floats on the wire of the Cholesky factor of a matrix of order n, from its owner. */
int64_t dlb_factor_words(const struct dlb_compress_choice *c, int64_t n);
/* Sets owner[i], of n_owners, for each of n tensors; -1: tensor i is not a factor. */
void dlb_factor_owners(const struct dlb_sum_tensor *a, int n, int n_owners, int *owner);
/* Bytes by class: as they are sent, and as they would be without compression. */
struct dlb_traffic_bytes { double sent[DLB_N_TRAFFIC], dense[DLB_N_TRAFFIC]; };
/* Bytes that `member` sends for these n tensors in one step. */
struct dlb_traffic_bytes dlb_compress_bytes(const struct dlb_compress_choice *c,
					    const struct dlb_allreduce *how, const struct dlb_ranks *r,
					    int member, const struct dlb_sum_tensor *a, int n);

/* Memory in bytes of a compressor of these n tensors, state and buffers, on each of n_ranks. */
double dlb_compress_memory_bytes(const struct dlb_compress_choice *c, int n_ranks,
				 const struct dlb_sum_tensor *a, int n);

/* Bytes on the wire of n gradients. dense: of those that are never compressed; p, q: of P and Q; first: of
 * those that are dense only at first. */
struct dlb_compress_volume {
	int64_t dense, p, q, first;
};
struct dlb_compress_volume dlb_compress_volume_of(const struct dlb_compress_choice *c,
						  const struct dlb_sum_tensor *a, int n);
/* An array that a compressor sums by a collective of its own: bytes on the wire, 0: there is none; whether its
 * numbers are converted for the wire. */
struct dlb_compress_array {
	double bytes;
	bool converted;
};
/* The arrays of a compressor of these n gradients over n_ranks: dense gradients, flags, gradients that are
 * dense only at first, P, Q. */
enum { DLB_COMPRESS_ARRAYS = 5 };
void dlb_compress_arrays(const struct dlb_compress_choice *c, int n_ranks, const struct dlb_sum_tensor *a,
			 int n, struct dlb_compress_array out[DLB_COMPRESS_ARRAYS]);

/* Bytes that `member` sends in one step for the flags (not finite, not symmetric). */
double dlb_compress_flag_bytes(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member);

/* State of compression from step to step, keyed by tensor id: residuals, bases, ranks. Compressors that
 * alternate (full batches, the short last one of an epoch) share it. Checkpoints hold it. Residuals differ
 * between ranks, and their sum over the ranks matters; bases are equal on all ranks. */
struct dlb_compress_state;
struct dlb_compress_state *dlb_compress_state_new(void);
void dlb_compress_state_free(struct dlb_compress_state *k);
/* A tensor of state that belongs to one rank, n elements at p (borrowed), f32 or f64. name: of the model's
 * tensor; what: its kind of state. summed: its sum over the replicas matters. needed: a checkpoint without it
 * is refused. */
struct dlb_local_tensor {
	const char *name, *what;
	void *p;
	int64_t n;
	bool summed;
	enum dlb_dtype dtype;
	bool needed;
};
/* Whether sums of this kind keep a state of gradients. */
bool dlb_compress_remembers(const struct dlb_compress_choice *c);
/* i from 0; false: no more */
bool dlb_compress_state_tensor(struct dlb_compress_state *k, int i, struct dlb_local_tensor *s);
/* The state of the i-th gradient, i from 0, as blocks of memory, borrowed; false: no more. For another rank that has
 * the same gradient. */
enum { DLB_COMPRESS_BLOCKS = 4 };
struct dlb_compress_block {
	void *p;
	size_t bytes;
};
bool dlb_compress_state_blocks(struct dlb_compress_state *k, int i, int *id,
			       struct dlb_compress_block block[DLB_COMPRESS_BLOCKS]);
/* Forgets the i-th gradient; the others keep their order. No compressor may have it. */
void dlb_compress_state_drop(struct dlb_compress_state *k, int i);

struct dlb_compressor_desc {
	struct dlb_compress_choice choice;
	const struct dlb_allreduce *how;
	struct dlb_ranks ranks;			/* its arrays are borrowed during the call */
	const struct dlb_sum_tensor *tensor;	/* copied; x is borrowed until _free */
	int n_tensors;
	int tag;				/* and the DLB_N_BUCKET_TAGS - 1 after it */
	struct dlb_compress_state *state;			/* borrowed: outlives the compressor */
};
struct dlb_compressor;
int dlb_compressor_new(struct dlb_compressor **out, struct dlb_comm *c, const struct dlb_compressor_desc *d,
		       struct dlb_error *err);
void dlb_compressor_free(struct dlb_compressor *k);
void dlb_compressor_start(struct dlb_compressor *k, int64_t step);
/* true: done, or broken (_wait returns the error); per-hop runs in _wait only */
bool dlb_compressor_test(struct dlb_compressor *k);
int dlb_compressor_wait(struct dlb_compressor *k, struct dlb_error *err);
/* Faults of the last step, the same on all ranks (but n_hops_failed). */
struct dlb_verdict {
	/* a tensor's name; NULL: all finite. World rank; -1: only the sum is not finite */
	const char *not_finite; int rank;
	/* n_asymmetric: ranks with a factor that is not symmetric, so that all factors were sent dense;
	 * n_not_definite: factors that were returned as the sum; n_retries: factors that needed a larger
	 * diagonal */
	int n_asymmetric, n_not_definite, n_retries;
	int n_hops_failed;			/* per-hop: factors that this rank sent as the sum */
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
/* Traffic of this rank in the last step. */
struct dlb_traffic { double bytes[DLB_N_TRAFFIC], dense_bytes[DLB_N_TRAFFIC], time_s[DLB_N_TRAFFIC]; };
const struct dlb_traffic *dlb_compressor_traffic(const struct dlb_compressor *k);
#endif
