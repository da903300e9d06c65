/* The cpu back end, inside: what its files share. One file a subject (gemm.c, conv.c, ...).
 *
 * float32 work goes to oneDNN where it was measured to be the faster, all else is plain loops,
 * written once over T in a *_real.h and included for float and double (f32.h, f64.h say what T, S and
 * F mean). Sums keep a fixed number of partial sums, so that bits never follow from an address. */
#ifndef DLB_TENSOR_CPU_CPU_H
#define DLB_TENSOR_CPU_CPU_H
#include <cblas.h>
#include <dnnl.h>
#include <string.h>

#include "tensor/backend.h"
#include "tensor/cpu/level.h"
#include "util/mem.h"

#if DNNL_VERSION_MAJOR != 2
#error "written for oneDNN 2 (desc_init + primitive_desc_create)"
#endif

extern const struct dlb_backend_ops dlb_cpu_ops;

/* dlb_backend.self */
struct cpu {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
};
static inline struct cpu *cpu_of(struct dlb_backend *b) { return b->self; }

int dlb_cpu_n_devices(void);
int dlb_cpu_open(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err);
void dlb_cpu_close(struct dlb_backend *b);
void *dlb_cpu_alloc(struct dlb_backend *b, size_t bytes);
void dlb_cpu_free(struct dlb_backend *b, void *p);
void dlb_cpu_copy_bytes(struct dlb_backend *b, void *dst, const void *src, size_t bytes);
void dlb_cpu_sync(struct dlb_backend *b);
int dlb_cpu_gemm(struct dlb_backend *b, const struct dlb_gemm_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_product(struct dlb_backend *b, const struct dlb_product_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_conv(struct dlb_backend *b, const struct dlb_conv_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_pool(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_norm(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_attention(struct dlb_backend *b, const struct dlb_attention_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_dropout(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_cell(struct dlb_backend *b, const struct dlb_cell_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_loss(struct dlb_backend *b, const struct dlb_loss_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_reduce(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_copy(struct dlb_backend *b, const struct dlb_copy_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_square_sum(struct dlb_backend *b, const struct dlb_square_sum_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_accumulate(struct dlb_backend *b, const struct dlb_accumulate_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_update(struct dlb_backend *b, const struct dlb_update_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_host(struct dlb_backend *b, dlb_host_fn fn, const void *ctx, size_t ctx_bytes, size_t scratch_bytes,
		 struct dlb_kernel **k, struct dlb_error *err);
/* As those without "mixed", with bf16 operands too (mixed.c). */
int dlb_cpu_mixed_map(struct dlb_backend *b, const struct dlb_map_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_mixed_softmax(struct dlb_backend *b, const struct dlb_softmax_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_mixed_norm(struct dlb_backend *b, const struct dlb_norm_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_mixed_dropout(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_mixed_pool(struct dlb_backend *b, const struct dlb_pool_desc *d, struct dlb_kernel **k, struct dlb_error *err);
int dlb_cpu_mixed_reduce(struct dlb_backend *b, const struct dlb_reduce_desc *d, struct dlb_kernel **k, struct dlb_error *err);

/* col (taps, positions), rows `row` elements apart: what each tap of the convolution's kernel (one group) meets at each
 * position of an image of x, taps in the weight's order. */
void dlb_cpu_patches(const struct dlb_conv_desc *d, int64_t image, const void *x, void *col, int64_t row);

/* ---- small things ---- */
void dlb_cpu_sgemm(CBLAS_LAYOUT order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha,
		   const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
static inline size_t cpu_round64(size_t n) { return (n + 63) & ~(size_t)63; }
void *dlb_cpu_aligned(size_t bytes);		/* 64-byte aligned, zeroed; exits when there is none; free() */
void dlb_cpu_kernel_free(struct dlb_kernel *k);	/* for kernels that own nothing but themselves */
/* A loop nest in canonical form: loops of length 1 dropped, neighbours merged where every operand allows
 * it, the loop with the least strides (first operand first) innermost. stride[operand][loop]. */
#define CPU_MAX_OPERANDS 4
struct cpu_nest {
	int n_dims, n_operands;
	int64_t dim[DLB_MAX_DIMS];
	int64_t stride[CPU_MAX_OPERANDS][DLB_MAX_DIMS];
};
void dlb_cpu_nest(struct cpu_nest *n);
/* Iterations of loops [0, n_loops), and the odometer (see cpu_step) at iteration `index` of them. */
static inline int64_t cpu_iterations(const struct cpu_nest *n, int n_loops)
{
	int64_t count = 1;

	for (int i = 0; i < n_loops; i++)
		count *= n->dim[i];
	return count;
}
static inline void cpu_seek(const struct cpu_nest *n, int n_loops, int64_t index, int64_t *pos, int64_t *at)
{
	for (int i = n_loops - 1; i >= 0; i--) {
		pos[i] = index % n->dim[i];
		index /= n->dim[i];
		for (int o = 0; o < n->n_operands; o++)
			at[o] += n->stride[o][i] * pos[i];
	}
}
/* Steps the odometer over loops [0, n_loops): pos[] counts, at[] are the operands' offsets in elements.
 * false when it has wrapped round. */
static inline bool cpu_step(const struct cpu_nest *n, int n_loops, int64_t *pos, int64_t *at)
{
	for (int i = n_loops - 1; i >= 0; i--) {
		for (int o = 0; o < n->n_operands; o++)
			at[o] += n->stride[o][i];
		if (++pos[i] < n->dim[i])
			return true;
		for (int o = 0; o < n->n_operands; o++)
			at[o] -= n->stride[o][i] * n->dim[i];
		pos[i] = 0;
	}
	return false;
}

/* ---- oneDNN (onednn.c) ---- */
/* A primitive with the memories it runs on. Arguments are given by index in the order they were added. */
struct cpu_prim {
	dnnl_primitive_t prim;
	dnnl_exec_arg_t arg[8];
	int n_args;
	size_t scratch_bytes;
};
const char *dlb_cpu_dnnl_text(dnnl_status_t s);
/* Creates the primitive from an operation descriptor with a user scratchpad. 0, or DLB_NO_KERNEL when
 * oneDNN has none (or only its reference loop). `pd` is returned new, for queries. */
int dlb_cpu_pd(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd);
/* The same with what it makes multiplied by `scale`; with Relu of it. */
int dlb_cpu_pd_scaled(struct cpu *c, const_dnnl_op_desc_t od, float scale, dnnl_primitive_desc_t *pd);
int dlb_cpu_pd_relu(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd);
int dlb_cpu_prim(struct cpu *c, const_dnnl_primitive_desc_t pd, struct cpu_prim *p);
const dnnl_memory_desc_t *dlb_cpu_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index);
void dlb_cpu_prim_arg(struct cpu *c, struct cpu_prim *p, int dnnl_arg, const dnnl_memory_desc_t *md);
/* ptr[i]: memory of argument i; scratch: scratch_bytes. */
void dlb_cpu_prim_run(struct cpu *c, struct cpu_prim *p, void *const *ptr, void *scratch);
void dlb_cpu_prim_release(struct cpu_prim *p);
/* Reorder from md to md; prim NULL (and nothing to run) when they are the same. */
int dlb_cpu_reorder(struct cpu *c, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, struct cpu_prim *p);
/* An operand that a primitive wants otherwise than it lies: moved into scratch before the run (stage_in), or
 * out of scratch after it (stage, then stage_out). move.prim NULL: used where it lies. */
struct cpu_staged {
	struct cpu_prim move;
	size_t bytes, at;		/* in scratch; `at` is the owner's to set */
};
/* `staged`: which of the two is the one in scratch. */
int dlb_cpu_staged(struct cpu *c, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, const dnnl_memory_desc_t *staged,
		   struct cpu_staged *s);
void *dlb_cpu_stage_in(struct cpu *c, struct cpu_staged *s, void *operand, char *scratch);
void *dlb_cpu_stage(const struct cpu_staged *s, void *operand, char *scratch);
void dlb_cpu_stage_out(struct cpu *c, struct cpu_staged *s, void *operand, char *scratch);
/* A weight kept in the layout a primitive likes, made again when the version changes. */
struct cpu_packed {
	struct cpu_prim reorder;	/* prim NULL: used as it is */
	void *data;
	size_t bytes;
	uint64_t version;		/* of what lies in data; 0: nothing */
};
int dlb_cpu_packed(struct cpu *c, const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *want, struct cpu_packed *p);
void *dlb_cpu_packed_get(struct cpu *c, struct cpu_packed *p, void *plain, uint64_t version, void *scratch);
void dlb_cpu_packed_release(struct cpu_packed *p);
#endif
