/* Internal header of the files of a dlb_compressor: compressor.c (order of messages), fusion_buffer.c (arrays
 * that share a message), lowrank.c and sketch.c (P and Q), cholesky_reduce.c (factors), per_hop.c (factors as
 * first published). */
#ifndef DLB_COMM_COMPRESSOR_H
#define DLB_COMM_COMPRESSOR_H
#include "comm/compress.h"
#include "comm/lowrank.h"
#include "comm/pack.h"

/* A fusion buffer: arrays that are summed as one message. */
struct dlb_fusion_buffer {
	struct dlb_pack pack; /* of units; parts' class: enum dlb_traffic_class */
	enum dlb_wire wire;
	float *buffer;
	bool keeps_lost;
	float *lost; /* the part that this rank's rounding took from the sums; laid out as buffer */
	struct dlb_collective *sum;
	double bytes[DLB_N_TRAFFIC];		/* sent per run, by class */
	bool active;
	double since_s;
};
/* x: n floats, with space up to the end of the last unit. */
void dlb_fusion_add(struct dlb_fusion_buffer *f, float *x, int64_t n, int owner,
		    enum dlb_traffic_class class);
/* Makes buffer and collective, after all dlb_fusion_add. buffer (borrowed): memory of a fusion buffer with
 * the same layout; NULL: allocates. */
int dlb_fusion_ready(struct dlb_fusion_buffer *f, struct dlb_compressor *k, const struct dlb_allreduce *how,
		     enum dlb_wire wire, int tag, float *buffer, struct dlb_error *err);
/* Lays the buffer out anew after lengths of parts changed; none may be longer than at dlb_fusion_ready. */
void dlb_fusion_resize(struct dlb_fusion_buffer *f);
void dlb_fusion_free(struct dlb_fusion_buffer *f);
/* Address in the buffer of the slice of part i in chunk `chunk`. */
float *dlb_fusion_at(const struct dlb_fusion_buffer *f, int i, int chunk);
void dlb_fusion_load(struct dlb_fusion_buffer *f);
void dlb_fusion_unload(const struct dlb_fusion_buffer *f);
void dlb_fusion_unload_lost(const struct dlb_fusion_buffer *f); /* copies `lost` to the parts' arrays */
void dlb_fusion_start(struct dlb_compressor *k, struct dlb_fusion_buffer *f);
/* true also if never started; counts the traffic when done */
bool dlb_fusion_done(struct dlb_compressor *k, struct dlb_fusion_buffer *f);

struct dlb_low_rank_state {			/* state from step to step of one low-rank gradient */
	int id, most;
	bool adapts, transposed;	/* transposed: P and Q are those of the transpose */
	int64_t rows, cols;
	int64_t p_length, q_length;	/* rows of P, of Q: rows and cols, or transposed */
	const char *name;
	float *residual;			/* (rows, cols) */
	float *basis; /* Q^T of the last step that counted, for the next sketch: (most, stride of q_length) */
	float *next;			/* Q^T of this step */
	float width;	/* if adapts: columns of the next sketch; float, because checkpoints hold floats */
	int64_t *seen;			/* [most + 1] steps with that rank */
};
struct dlb_compress_state { struct dlb_low_rank_state **low_rank; int n, cap; };
/* Finds the state of tensor a; makes it at the first call. Borrowed from k. */
struct dlb_low_rank_state *dlb_low_rank_state_of(struct dlb_compress_state *k,
						 const struct dlb_compress_choice *c,
						 const struct dlb_sum_tensor *a, int most);

struct dlb_low_rank {			/* a gradient that is sent as P and Q */
	int tensor, most;
	int width, rank; /* of this step: columns of P on the wire, of Q; at most `most` */
	struct dlb_low_rank_state *state;
	float *mine;			/* error=local: this rank's own Q^T; else NULL */
	float *p; /* (p_length, width) */
	/* as sent: p, or in blocks its transpose; and (rank, q_length) without padding */
	float *p_sent, *q;
};
struct dlb_triangle { int tensor, owner; bool taken, factored; };
struct dlb_compressor {
	struct dlb_comm *c;
	struct dlb_compress_choice choice;
	const struct dlb_allreduce *how;
	struct dlb_ranks ranks; int *rank_, *group_;	/* arrays of ranks, owned */
	int member, tag;
	struct dlb_sum_tensor *tensor; int n_tensors;
	/* [member] 1 + index of its first tensor that is not finite, not symmetric; 0: none */
	float *not_finite, *asymmetric;
	int64_t step;
	enum { DLB_PHASE_DONE, DLB_PHASE_FIRST, DLB_PHASE_SECOND, DLB_PHASE_THIRD } phase;
	bool low_rank_now;			/* this step compresses gradients */
	struct dlb_fusion_buffer dense, flags, warm, p, q, scatter, gather, third, whole;
	struct dlb_compress_state *state;
	struct dlb_low_rank *low_rank; int n_low_rank;
	struct dlb_triangle *triangle; int n_triangles;
	double *work; /* of dlb_orthonormal */
	float *transposed;	/* P and Q of a transposed tensor, in the layout that the passes read */
	float *folded; /* a copy of the largest tensor that does not lie row by row */
	float *factor_work;		/* space for two of the largest triangle */
	struct dlb_hops *hops;		/* per_hop.c */
	struct dlb_verdict verdict;
	struct dlb_traffic traffic;
	bool hops_due;
	struct dlb_error fault; bool failed;	/* per-hop found the comm broken */
};

/* lowrank.c */
void dlb_low_rank_new(struct dlb_compressor *k);
void dlb_low_rank_free(struct dlb_compressor *k);
/* x += residual; computes P; flags tensors that are not finite */
void dlb_low_rank_project(struct dlb_compressor *k);
void dlb_low_rank_back(struct dlb_compressor *k);	/* turns the sum of P into a basis; computes Q */
void dlb_low_rank_restore(struct dlb_compressor *k);	/* computes x, residual and basis from the sum of Q */
/* The first sketches come from the last sums that were dense: a step of the power method each. */
enum { DLB_WARM_STEPS = 4 };
void dlb_low_rank_warm(struct dlb_compressor *k);
/* sketch.c: tensors whose rank adapts */
void dlb_sketch_init(struct dlb_low_rank_state *t);
/* makes a basis from the sum of P; sets t->rank. -1: the sum is not finite */
int dlb_sketch_basis(const struct dlb_compressor *k, struct dlb_low_rank *t);
/* makes the next sketch from Q in state->basis */
void dlb_sketch_next(const struct dlb_compressor *k, struct dlb_low_rank *t);
/* cholesky_reduce.c */
int dlb_triangles_new(struct dlb_compressor *k, struct dlb_error *err);
void dlb_triangles_check(struct dlb_compressor *k); /* flags factors that are not finite or not symmetric */
void dlb_triangles_load(struct dlb_compressor *k);
void dlb_triangles_factor(struct dlb_compressor *k);	/* factors that this rank owns */
/* true: some owner could not factor; their sums are needed */
bool dlb_triangles_restore(struct dlb_compressor *k);
void dlb_triangles_take_sums(struct dlb_compressor *k);
/* per_hop.c: dlb_hops_run blocks until all is done. */
struct dlb_hops *dlb_hops_new(struct dlb_compressor *k);
void dlb_hops_free(struct dlb_hops *h);
int dlb_hops_run(struct dlb_hops *h, struct dlb_compressor *k, struct dlb_error *err);
bool dlb_all_finite(const float *x, int64_t n);
void dlb_compressor_flag(struct dlb_compressor *k, float *flags, int tensor);
#endif
