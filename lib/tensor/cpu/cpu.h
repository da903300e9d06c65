/* Internal to the cpu back end. One file per subject (gemm.c, conv.c, ...).
 *
 * float32 uses oneDNN where it was measured to be faster. Everything else is plain loops, written once over T
 * in a *_real.h and included for float and double (f32.h and f64.h define T, S and F). Sums have a fixed
 * number of partial sums, so bits never depend on an address. */
#ifndef DLB_TENSOR_CPU_CPU_H
#define DLB_TENSOR_CPU_CPU_H
#include <cblas.h>
#include <dnnl.h>
#include <string.h>

#include "tensor/backend.h"
#include "tensor/cpu/level.h"
#include "tensor/nest.h"
#include "util/mem.h"

#if DNNL_VERSION_MAJOR != 2
#error "written for oneDNN 2 (desc_init + primitive_desc_create)"
#endif

extern const struct dlb_backend_ops dlb_cpu_ops;

/* dlb_backend.self */
struct cpu {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct { int omp, openblas; } before;	/* threads before it was opened */
};
static inline struct cpu *cpu_of(struct dlb_backend *b) { return b->self; }

int dlb_cpu_n_devices(struct dlb_error *err);
int dlb_cpu_open(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err);
void dlb_cpu_close(struct dlb_backend *b);
void *dlb_cpu_alloc(struct dlb_backend *b, size_t bytes);
void dlb_cpu_free(struct dlb_backend *b, void *p);
void dlb_cpu_copy_bytes(struct dlb_backend *b, void *dst, const void *src, size_t bytes);
int dlb_cpu_sync(struct dlb_backend *b, struct dlb_error *err);
int dlb_cpu_gemm(struct dlb_backend *b, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_product(struct dlb_backend *b, const struct dlb_product_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
int dlb_cpu_conv(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_pool(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
int dlb_cpu_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
int dlb_cpu_norm(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_attention(struct dlb_backend *b, const struct dlb_attention_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
int dlb_cpu_dropout(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
int dlb_cpu_cell(struct dlb_backend *b, const struct dlb_cell_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_loss(struct dlb_backend *b, const struct dlb_loss_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k,
		struct dlb_error *err);
int dlb_cpu_reduce(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
int dlb_cpu_copy(struct dlb_backend *b, const struct dlb_copy_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err);
int dlb_cpu_constant(struct dlb_backend *b, const void *data, size_t bytes, struct dlb_kernel **k,
		     struct dlb_error *err);
int dlb_cpu_index(struct dlb_backend *b, const struct dlb_index_desc *d, struct dlb_kernel **k,
		  struct dlb_error *err);
int dlb_cpu_gather(struct dlb_backend *b, const struct dlb_gather_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
int dlb_cpu_square_sum(struct dlb_backend *b, const struct dlb_square_sum_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
int dlb_cpu_select(struct dlb_backend *b, const struct dlb_select_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err);
int dlb_cpu_taps(struct dlb_backend *b, const struct dlb_taps_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
int dlb_cpu_rotary(struct dlb_backend *b, const struct dlb_rotary_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
int dlb_cpu_scan(struct dlb_backend *b, const struct dlb_scan_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
int dlb_cpu_accumulate(struct dlb_backend *b, const struct dlb_accumulate_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
int dlb_cpu_update(struct dlb_backend *b, const struct dlb_update_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err);
int dlb_cpu_host(struct dlb_backend *b, dlb_host_fn fn, const void *ctx, size_t ctx_bytes,
		 size_t scratch_bytes, struct dlb_kernel **k, struct dlb_error *err);
/* As those without "mixed", but bf16 operands are allowed (mixed.c). */
int dlb_cpu_mixed_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k,
		      struct dlb_error *err);
int dlb_cpu_mixed_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err);
int dlb_cpu_mixed_norm(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
int dlb_cpu_mixed_dropout(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k,
			  struct dlb_error *err);
int dlb_cpu_mixed_pool(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err);
int dlb_cpu_mixed_reduce(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k,
			 struct dlb_error *err);

/* Writes col (taps, positions), rows `row` elements apart: the input under each tap of one group's kernel at
 * each output position of an image of x; taps in the weight's order. */
void dlb_cpu_im2col(const struct dlb_conv_desc *d, int64_t image, const void *x, void *col, int64_t row);

/* ---- helpers ---- */
/* y = alpha op(a) op(w), or y += that: y is (m, n), op(a) (m, k), op(w) (k, n), row-major. trans_a, trans_w:
 * op transposes the matrix in memory. Rows in memory lie lda, ldw and ldy elements apart. */
struct cpu_matmul {
	int m, n, k, lda, ldw, ldy;
	bool trans_a, trans_w, add;
	double alpha;
};
/* float32 by oneDNN, which supports newer processors than OpenBLAS; float64 by OpenBLAS. */
void dlb_cpu_sgemm(const struct cpu_matmul *p, const float *a, const float *w, float *y);
void dlb_cpu_dgemm(const struct cpu_matmul *p, const double *a, const double *w, double *y);
/* float32 by OpenBLAS, for the shapes and processors where it is faster. */
void dlb_cpu_openblas_sgemm(const struct cpu_matmul *p, const float *a, const float *w, float *y);
static inline size_t cpu_round64(size_t n) { return (n + 63) & ~(size_t)63; }
/* 64-byte aligned, zeroed; exits if out of memory; use free() */
void *dlb_cpu_aligned(size_t bytes);
void dlb_cpu_kernel_free(struct dlb_kernel *k);	/* for kernels that own nothing else */
/* ---- oneDNN (onednn.c) ---- */
/* A primitive with its memories. Arguments are given by index, in the order they were added. */
struct cpu_prim {
	dnnl_primitive_t prim;
	dnnl_exec_arg_t arg[8];
	int n_args;
	size_t scratch_bytes;
	bool has_code; /* a product that oneDNN generated code for (brgemm) */
};
const char *dlb_cpu_dnnl_text(dnnl_status_t s);
/* Creates the primitive descriptor *pd (new) of an operation, with a user scratchpad. Returns 0, or
 * DLB_NO_KERNEL if oneDNN has none, or only its reference loop. */
int dlb_cpu_pd(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint,
	       dnnl_primitive_desc_t *pd);
/* As above with the result multiplied by `scale`; with Relu of the result. */
int dlb_cpu_pd_scaled(struct cpu *c, const_dnnl_op_desc_t od, float scale, dnnl_primitive_desc_t *pd);
int dlb_cpu_pd_relu(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint,
		    dnnl_primitive_desc_t *pd);
int dlb_cpu_prim(struct cpu *c, const_dnnl_primitive_desc_t pd, struct cpu_prim *p);
const dnnl_memory_desc_t *dlb_cpu_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index);
void dlb_cpu_prim_arg(struct cpu *c, struct cpu_prim *p, int dnnl_arg, const dnnl_memory_desc_t *md);
/* ptr[i]: memory of argument i; scratch: of scratch_bytes. */
void dlb_cpu_prim_run(struct cpu *c, struct cpu_prim *p, void *const *ptr, void *scratch);
void dlb_cpu_prim_release(struct cpu_prim *p);
/* Reorder between descriptors; prim NULL (nothing to run) if they are equal. */
int dlb_cpu_reorder(struct cpu *c, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
		    struct cpu_prim *p);
/* An operand that a primitive needs in another layout: reordered into scratch before the run (stage_in), or
 * out of scratch after it (stage, then stage_out). move.prim NULL: used in place. */
struct cpu_staged {
	struct cpu_prim move;
	size_t bytes, at;		/* in scratch; the owner sets `at` */
};
/* `staged`: the descriptor of the side in scratch. */
int dlb_cpu_staged(struct cpu *c, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
		   const dnnl_memory_desc_t *staged, struct cpu_staged *s);
void *dlb_cpu_stage_in(struct cpu *c, struct cpu_staged *s, void *operand, char *scratch);
void *dlb_cpu_stage(const struct cpu_staged *s, void *operand, char *scratch);
void dlb_cpu_stage_out(struct cpu *c, struct cpu_staged *s, void *operand, char *scratch);
/* A weight in a primitive's layout: kept, and packed again when its version changes, or packed in scratch at
 * each run. */
struct cpu_packed {
	struct cpu_prim reorder;	/* prim NULL: used unchanged */
	void *data;			/* NULL: in scratch */
	size_t bytes, at;		/* in scratch; the owner sets `at` */
	uint64_t version;		/* version of the weight in data; 0: none */
};
int dlb_cpu_packed(struct cpu *c, const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *want, bool kept,
		   struct cpu_packed *p);
void *dlb_cpu_packed_get(struct cpu *c, struct cpu_packed *p, void *plain, uint64_t version, void *scratch);
void dlb_cpu_packed_release(struct cpu_packed *p);
#endif
