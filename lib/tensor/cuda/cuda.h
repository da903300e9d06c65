/* Internal to the cuda back end, a plug-in (tensor/plugin.h): products by cuBLAS, convolution by cuDNN where
 * it is installed, everything else by our own kernels (NAME.cu beside NAME.c), which are embedded as fatbins
 * and loaded when a device is opened.
 *
 * An opened device has a stream of kernels and one of transfers in each direction. A failure is kept until sync
 * reports it. Kernels can be recorded as a CUDA graph and replayed (record.c). Results repeat bit for bit on one
 * kind of device with the same libraries, unless numerics.fast: cuBLAS has one workspace of its own on one
 * stream, only deterministic engines of cuDNN are used, sums are in a fixed order, and reals are never added
 * atomically. */
#ifndef DLB_TENSOR_CUDA_CUDA_H
#define DLB_TENSOR_CUDA_CUDA_H
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/runs.h"
#include "tensor/nest.h"

/* The .cu files; each is one fatbin, `dlb_fatbin_NAME`. */
#define CUDA_MODULES(X) \
	X(attention) \
	X(attention_bf16) X(attention_wide_bf16) X(batch_norm) X(cell) X(conv) X(copy) X(dropout) X(gather) \
		X(index) X(loss) X(map) X(norm) X(places) X(pool) X(reduce) X(rotary) X(rows) X(scan) \
			X(scores) X(select) X(softmax) X(sums) X(taps) X(update)
enum {
#define X(name) CUDA_MODULE_##name,
	CUDA_MODULES(X)
#undef X
	CUDA_N_MODULES
};

/* A few numbers of a kernel, in pinned memory of the host and of the device (shared.c): values, which the host sets
 * and a replay copies to the device, and counters, which kernels add to and sync copies to the host. They lie
 * in chunks. Bytes [from, to) of a chunk are to be copied (to 0: none). */
enum cuda_shared_kind { CUDA_VALUES, CUDA_COUNTERS, CUDA_N_WAYS };
struct cuda_chunk { char *host, *device; size_t used, from, to; int users; };
struct cuda_shared { struct cuda_chunk *chunk; int n, cap; };
struct cuda_slot { void *host, *device; int chunk; size_t bytes; };	/* bytes 0: there is none */

/* dlb_backend.self */
struct cuda {
	int device, processors;		/* streaming multiprocessors */
	int generation; /* major number of the compute capability */
	cudaStream_t stream, in, out;	/* in: transfers from host memory, out: to it */
	cublasHandle_t blas;
	void *blas_workspace;
	struct cuda_dnn *dnn;		/* cuDNN (cudnn.h), once it is opened; NULL: there is none */
	bool dnn_opened;
	cudaLibrary_t module[CUDA_N_MODULES];
	cudaEvent_t *mark; int n_marks, cap_marks;
	cudaEvent_t *transfer; int n_transfers, cap_transfers;	/* reached when the transfer is done */
	cudaEvent_t here;		/* end of the kernels before the last transfer that waits for all */
	bool recording, timed; /* timed: marks are recorded too */
	bool attention_checked; /* dlb_cuda_check_attention has succeeded */
	struct cuda_shared shared[CUDA_N_WAYS];
	/* the first failure since the last sync; "" : none */
	char failed[256];
};
static inline struct cuda *cuda_of(struct dlb_backend *b) { return b->self; }

/* Notes that `call` failed with that status, unless a failure is noted already; success is no failure. The
 * text of `call` is cut at its first parenthesis. */
void dlb_cuda_note(struct cuda *c, const char *call, cudaError_t status);
void dlb_cuda_note_blas(struct cuda *c, const char *call, cublasStatus_t status);
void dlb_cuda_note_text(struct cuda *c, const char *call, const char *why);	/* notes that it failed */

/* Reports the first failure since the last report: -1 with err. */
int dlb_cuda_report(struct cuda *c, struct dlb_error *err);

/* ---- shared.c ---- */
/* Makes a slot of zeros. -1 with err. */
int dlb_cuda_slot_new(struct cuda *c, enum cuda_shared_kind way, size_t bytes, struct cuda_slot *slot,
		      struct dlb_error *err);
void dlb_cuda_slot_free(struct cuda *c, enum cuda_shared_kind way, const struct cuda_slot *slot);
/* Marks the slot to be copied. */
void dlb_cuda_touch(struct cuda *c, enum cuda_shared_kind way, const struct cuda_slot *slot);
void dlb_cuda_copy_touched(struct cuda *c, enum cuda_shared_kind way); /* queues the copies */
void dlb_cuda_shared_close(struct cuda *c);

/* Returns our kernel of that name: "map_f32". NULL with err: no module has it. */
cudaKernel_t dlb_cuda_find(struct cuda *c, const char *name, struct dlb_error *err);
/* As dlb_cuda_find(STEM_TYPE): "f32" and so on; bool is u8. NULL: there is no such kernel. */
cudaKernel_t dlb_cuda_find_typed(struct cuda *c, const char *stem, enum dlb_dtype type);
/* Queues kernel f with the struct `args`: a thread for each of `count` elements, or a block for each of
 * `rows` rows. Queues nothing for 0. */
void dlb_cuda_launch(struct cuda *c, cudaKernel_t f, void *args, int64_t count);
void dlb_cuda_launch_rows(struct cuda *c, cudaKernel_t f, void *args, int64_t rows);
/* Returns the number of threads that share a row of n elements, for kernels with groups of threads: 1, those
 * of a warp or of a block. side_by_side: the number of neighbouring rows that begin in neighbouring elements;
 * if there are many, a thread for each row reads whole cache lines. */
int dlb_cuda_row_width(int64_t n, int64_t side_by_side);
/* Returns the number of threads for a row of n elements in registers (row_runs.cuh); 0: the row does not
 * consist of whole runs, is too short or too long. */
int dlb_cuda_row_threads(int64_t n, enum dlb_dtype type);

/* Returns p if it is a multiple of CUDA_ALIGN, as the executor's addresses are. Kernels of libraries rely on
 * this. For any other p, returns aligned memory of `bytes`, with a copy of the operand if it is read, so that
 * bits do not depend on addresses. That memory is *copy: it is allocated at the first such call, and the
 * caller frees it by cudaFree. NULL: the allocation failed, which is noted. */
enum { CUDA_ALIGN = 16 };
void *dlb_cuda_align(struct cuda *c, void **copy, void *p, size_t bytes, bool is_read);

/* Copies the run's operands into those of a kernel. */
void dlb_cuda_operands(struct cuda_operands *p, const struct dlb_run *r, int n_in, int n_out);
struct cuda_nest dlb_cuda_nest(const struct dlb_nest *n);
/* Runs of `width` elements; of 1 if the innermost loop does not allow it for all operands. Operand 0 is the output. */
struct cuda_runs dlb_cuda_runs(const struct dlb_nest *n, int width);

void dlb_cuda_kernel_free(struct dlb_kernel *k);	/* for kernels that own nothing else */
/* Makes *k (new), a kernel of one launch with a copy of `args`, whose operands are those of the run. rows: a
 * block per row. */
struct cuda_launch { cudaKernel_t f; int n_in, n_out; int64_t count; bool rows; size_t scratch_bytes; };
void dlb_cuda_simple(struct dlb_backend *b, const struct cuda_launch *l, const void *args, size_t bytes,
		     struct dlb_kernel **k);

/* Makes the kernel that copies count elements and converts them. */
int dlb_cuda_cast(struct dlb_backend *b, int64_t count, enum dlb_dtype from, enum dlb_dtype to,
		  struct dlb_kernel **k, struct dlb_error *err);

/* Copies `rows` rows of n elements of bf16 or f32 to bf16, rounded. Rows lie in_ld and out_ld elements
 * apart. */
struct cuda_row_copy {
	enum dlb_dtype from;
	int64_t rows, n, in_ld, out_ld;
};
int dlb_cuda_rows(struct dlb_backend *b, const struct cuda_row_copy *d, struct dlb_kernel **k,
		  struct dlb_error *err);

/* y = alpha op(a) op(w) + beta y, row-major, `batch` times: y (m, n), op(a) (m, k), op(w) (k, n); op transposes
 * the matrix in memory. Rows in memory lie lda, ldw, ldy elements apart, matrices a_batch, w_batch, y_batch. */
struct cuda_matmul {
	enum dlb_dtype type, y_type;
	int64_t m, n, k, lda, ldw, ldy, batch, a_batch, w_batch, y_batch;
	bool trans_a, trans_w, tf32;		/* tf32: operands of f32 are rounded to TF32 */
	double alpha, beta;
};
bool dlb_cuda_matmul_fits(const struct cuda_matmul *p);	/* cuBLAS takes these types and sizes */
void dlb_cuda_matmul(struct cuda *c, const struct cuda_matmul *p, const void *a, const void *w, void *y);
/* As above for n products: a, w and y are arrays in device memory with the addresses of n matrices each.
 * batch and its strides are ignored. */
void dlb_cuda_matmul_at(struct cuda *c, const struct cuda_matmul *p, const void *const *a,
			const void *const *w, void *const *y, int64_t n);

enum { CUDA_BLAS_WORKSPACE = 32 << 20 }; /* bytes at blas_workspace */

extern const struct dlb_backend_ops dlb_cuda_ops;

int dlb_cuda_n_devices(struct dlb_error *err);
int dlb_cuda_open(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err);
void dlb_cuda_close(struct dlb_backend *b);
void dlb_cuda_describe(struct dlb_backend *b, char *text, size_t n);
double dlb_cuda_free_bytes(struct dlb_backend *b);
void *dlb_cuda_alloc(struct dlb_backend *b, size_t bytes);
void dlb_cuda_free(struct dlb_backend *b, void *p);
void dlb_cuda_upload(struct dlb_backend *b, void *dst, const void *host, size_t bytes);
void dlb_cuda_download(struct dlb_backend *b, void *host, const void *src, size_t bytes);
int dlb_cuda_sync(struct dlb_backend *b, struct dlb_error *err);
int dlb_cuda_mark(struct dlb_backend *b, int i, struct dlb_error *err);
double dlb_cuda_seconds(struct dlb_backend *b, int from, int to);
void *dlb_cuda_host_alloc(struct dlb_backend *b, size_t bytes);
void dlb_cuda_host_free(struct dlb_backend *b, void *p);
void dlb_cuda_transfer(struct dlb_backend *b, int i, const struct dlb_transfer *t);
int dlb_cuda_transferred(struct dlb_backend *b, int i, struct dlb_error *err);
void dlb_cuda_join(struct dlb_backend *b, int i);
int dlb_cuda_record(struct dlb_backend *b, bool timed, struct dlb_error *err);
struct dlb_recording *dlb_cuda_recorded(struct dlb_backend *b, struct dlb_error *err);
int dlb_cuda_replay(struct dlb_backend *b, struct dlb_recording *x, struct dlb_error *err);
void dlb_cuda_discard(struct dlb_backend *b, struct dlb_recording *x);
#define PREPARE(name) \
	int dlb_cuda_##name(struct dlb_backend *b, const struct dlb_##name##_desc *d, struct dlb_kernel **k, \
			    struct dlb_error *err)
PREPARE(gemm);
PREPARE(product);
PREPARE(conv);
PREPARE(pool);
PREPARE(softmax);
PREPARE(norm);
PREPARE(attention);
/* Compares bf16 attention on this device with sums on the host. -1 with err: they differ, or it cannot be run. */
int dlb_cuda_check_attention(struct dlb_backend *b, struct dlb_error *err);
int dlb_cuda_attention_by_products(struct dlb_backend *b, const struct dlb_attention_desc *d,
				   struct dlb_kernel **k, struct dlb_error *err);
PREPARE(dropout);
PREPARE(cell);
PREPARE(loss);
PREPARE(map);
PREPARE(reduce);
PREPARE(copy);
PREPARE(gather);
PREPARE(index);
PREPARE(select);
PREPARE(taps);
PREPARE(scan);
PREPARE(rotary);
PREPARE(accumulate);
PREPARE(square_sum);
PREPARE(update);
int dlb_cuda_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
			struct dlb_error *err);
int dlb_cuda_constant(struct dlb_backend *b, const void *data, size_t bytes, struct dlb_kernel **k,
		      struct dlb_error *err);
int dlb_cuda_host(struct dlb_backend *b, dlb_host_fn fn, const void *ctx, size_t ctx_bytes,
		  size_t scratch_bytes, struct dlb_kernel **k, struct dlb_error *err);
#endif
