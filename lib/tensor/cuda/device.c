/* The cuda back end: devices, memory, copies, launches. See cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cudnn.h"
#include "tensor/cuda/row_runs.h"
#include "util/mem.h"

enum { FIRST_WITH_BF16 = 8, BLOCKS_PER_PROCESSOR = 8, WARP = 32, LONG_ROW = 1024 };

#define X(name) extern const unsigned char dlb_fatbin_##name[];
CUDA_MODULES(X)
#undef X
static const struct { const char *name; const void *code; } modules[CUDA_N_MODULES] = {
#define X(name) { #name, dlb_fatbin_##name },
	CUDA_MODULES(X)
#undef X
};

/* ---- failures ---- */
/* Length of the function's name in the text of a call. */
#define NAME_LENGTH(call) (int)strcspn(call, "(")

void dlb_cuda_note_text(struct cuda *c, const char *call, const char *why)
{
	if (!*c->failed)
		snprintf(c->failed, sizeof c->failed, "%.*s: %s", NAME_LENGTH(call), call, why);
}

void dlb_cuda_note(struct cuda *c, const char *call, cudaError_t status)
{
	if (status != cudaSuccess)
		dlb_cuda_note_text(c, call, cudaGetErrorString(status));
}

void dlb_cuda_note_blas(struct cuda *c, const char *call, cublasStatus_t status)
{
	if (status != CUBLAS_STATUS_SUCCESS)
		dlb_cuda_note_text(c, call, cublasGetStatusString(status));
}

#define NOTE(c, call) dlb_cuda_note(c, #call, call)

/* ---- devices ---- */
int dlb_cuda_n_devices(struct dlb_error *err)
{
	int n = 0;
	const cudaError_t status = cudaGetDeviceCount(&n);

	if (status == cudaSuccess && n > 0)
		return n;
	dlb_fail(err, NULL, "back end 'cuda': %s",
		 status == cudaSuccess ? "there is no device" : cudaGetErrorString(status));
	return 0;
}

/* Runs one call while a device is opened. If it fails: returns -1 with err, which names the call. */
#define OPEN_TRY(call) \
	do { \
		const cudaError_t status_ = call; \
		if (status_ != cudaSuccess) \
			return dlb_fail(err, NULL, "device cuda:%d: %.*s: %s", c->device, NAME_LENGTH(#call), #call, \
					cudaGetErrorString(status_)); \
	} while (0)

static int load_modules(struct cuda *c, struct dlb_error *err)
{
	for (int i = 0; i < CUDA_N_MODULES; i++) {
		const cudaError_t status = cudaLibraryLoadData(&c->module[i], modules[i].code, NULL, NULL, 0,
							       NULL, NULL, 0);

		if (status != cudaSuccess)
			return dlb_fail(err, NULL, "device cuda:%d: kernels '%s' cannot be loaded: %s",
					c->device, modules[i].name, cudaGetErrorString(status));
	}
	return 0;
}

static int open_blas(struct cuda *c, struct dlb_error *err)
{
	cublasStatus_t s = cublasCreate(&c->blas);

	if (s == CUBLAS_STATUS_SUCCESS)
		s = cublasSetStream(c->blas, c->stream);
	OPEN_TRY(cudaMalloc(&c->blas_workspace, CUDA_BLAS_WORKSPACE));
	if (s == CUBLAS_STATUS_SUCCESS)
		s = cublasSetWorkspace(c->blas, c->blas_workspace, CUDA_BLAS_WORKSPACE);
	return s == CUBLAS_STATUS_SUCCESS ? 0 :
		       dlb_fail(err, NULL, "device cuda:%d: cannot open cuBLAS: %s", c->device,
				cublasGetStatusString(s));
}

static int open_parts(struct cuda *c, struct dlb_error *err)
{
	OPEN_TRY(cudaSetDevice(c->device));
	OPEN_TRY(cudaDeviceGetAttribute(&c->processors, cudaDevAttrMultiProcessorCount, c->device));
	OPEN_TRY(cudaDeviceGetAttribute(&c->generation, cudaDevAttrComputeCapabilityMajor, c->device));
	OPEN_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
	OPEN_TRY(cudaStreamCreateWithFlags(&c->in, cudaStreamNonBlocking));
	OPEN_TRY(cudaStreamCreateWithFlags(&c->out, cudaStreamNonBlocking));
	OPEN_TRY(cudaEventCreateWithFlags(&c->here, cudaEventDisableTiming));
	return load_modules(c, err) || open_blas(c, err) ? -1 : 0;
}

static void destroy_stream(cudaStream_t s)
{
	if (s)
		cudaStreamDestroy(s);
}

static void close_parts(struct cuda *c)
{
	for (int i = 0; i < c->n_marks; i++)
		cudaEventDestroy(c->mark[i]);
	for (int i = 0; i < c->n_transfers; i++)
		cudaEventDestroy(c->transfer[i]);
	if (c->here)
		cudaEventDestroy(c->here);
	free(c->mark);
	free(c->transfer);
	dlb_cuda_shared_close(c);
	dlb_cuda_dnn_close(c->dnn);
	if (c->blas)
		cublasDestroy(c->blas);
	if (c->blas_workspace)
		cudaFree(c->blas_workspace);
	for (int i = 0; i < CUDA_N_MODULES; i++)
		if (c->module[i])
			cudaLibraryUnload(c->module[i]);
	destroy_stream(c->stream);
	destroy_stream(c->in);
	destroy_stream(c->out);
	free(c);
}

int dlb_cuda_open(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err)
{
	const int n = dlb_cuda_n_devices(err);
	struct cuda *c;

	if (!n)
		return -1;
	if (device < 0 || device >= n)
		return dlb_fail(err, NULL, "no device cuda:%d; there are %d", device, n);
	if (n_threads != 1)
		return dlb_fail(err, NULL, "a node of back end 'cuda' has one thread, not %d", n_threads);
	c = dlb_xcalloc(1, sizeof *c);
	c->device = device;
	if (open_parts(c, err)) {
		close_parts(c);
		return -1;
	}
	*out = (struct dlb_backend){ .ops = &dlb_cuda_ops,
				     .device = device,
				     .n_threads = 1,
				     .self = c,
				     .fast_bf16 = c->generation >= FIRST_WITH_BF16 };
	return 0;
}

void dlb_cuda_close(struct dlb_backend *b)
{
	if (b->self)
		close_parts(cuda_of(b));
	memset(b, 0, sizeof *b);
}

void dlb_cuda_describe(struct dlb_backend *b, char *text, size_t n)
{
	struct cuda *c = cuda_of(b);
	struct cudaDeviceProp p = { .name = "" };
	int kHz = 0;

	NOTE(c, cudaGetDeviceProperties(&p, c->device));
	NOTE(c, cudaDeviceGetAttribute(&kHz, cudaDevAttrClockRate, c->device));
	snprintf(text, n, "%.100s, %d multiprocessors, %d MHz", p.name, c->processors, kHz / 1000);
}

/* ---- memory ---- */
/* Makes the device current in this thread: checkpoints are written by another thread than the steps. */
static void choose(struct cuda *c)
{
	NOTE(c, cudaSetDevice(c->device));
}

double dlb_cuda_free_bytes(struct dlb_backend *b)
{
	size_t available = 0, total = 0;

	NOTE(cuda_of(b), cudaMemGetInfo(&available, &total));
	return (double)available;
}

void *dlb_cuda_alloc(struct dlb_backend *b, size_t bytes)
{
	struct cuda *c = cuda_of(b);
	void *p = NULL;
	cudaError_t status;

	bytes = bytes ? bytes : 1;
	choose(c);
	status = cudaMalloc(&p, bytes);
	if (status != cudaSuccess) {
		cudaGetLastError();	/* the caller reports lack of memory; sync reports others */
		if (status != cudaErrorMemoryAllocation)
			dlb_cuda_note(c, "cudaMalloc", status);
		return NULL;
	}
	NOTE(c, cudaMemsetAsync(p, 0, bytes, c->stream));
	NOTE(c, cudaStreamSynchronize(c->stream)); /* copies on other streams do not wait for the zeros */
	return p;
}

static void wait_for_all(struct cuda *c)
{
	choose(c);
	NOTE(c, cudaStreamSynchronize(c->in));
	NOTE(c, cudaStreamSynchronize(c->stream));
	NOTE(c, cudaStreamSynchronize(c->out));
}

void dlb_cuda_free(struct dlb_backend *b, void *p)
{
	struct cuda *c = cuda_of(b);

	wait_for_all(c);	/* queued work may use p */
	NOTE(c, cudaFree(p));
}

/* Waits for the copy, because the caller may use the host memory at once. CUDA knows of each address whether
 * it is the host's or the device's. */
static void copy_bytes(struct cuda *c, void *dst, const void *src, size_t bytes)
{
	if (!bytes)
		return;
	choose(c);
	NOTE(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, c->stream));
	NOTE(c, cudaStreamSynchronize(c->stream));
}

void dlb_cuda_upload(struct dlb_backend *b, void *dst, const void *host, size_t bytes)
{
	copy_bytes(cuda_of(b), dst, host, bytes);
}

void dlb_cuda_download(struct dlb_backend *b, void *host, const void *src, size_t bytes)
{
	copy_bytes(cuda_of(b), host, src, bytes);
}

int dlb_cuda_report(struct cuda *c, struct dlb_error *err)
{
	if (!*c->failed)
		return 0;
	dlb_fail(err, NULL, "device cuda:%d: %s", c->device, c->failed);
	*c->failed = '\0';
	return -1;
}

int dlb_cuda_sync(struct dlb_backend *b, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);

	choose(c);
	dlb_cuda_copy_touched(c, CUDA_COUNTERS);
	wait_for_all(c);
	return dlb_cuda_report(c, err);
}

/* ---- marks and ends of transfers: events, made when they are first used ---- */
static cudaEvent_t new_event(struct cuda *c, unsigned flags)
{
	cudaEvent_t e = NULL;

	NOTE(c, cudaEventCreateWithFlags(&e, flags));
	return e;
}

int dlb_cuda_mark(struct dlb_backend *b, int i, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);

	if (c->recording && !c->timed)
		return dlb_cuda_report(c, err);
	while (c->n_marks <= i) {
		cudaEvent_t e = new_event(c, cudaEventDefault);

		if (!e)
			return dlb_cuda_report(c, err);
		DLB_GROW(c->mark, c->n_marks, c->cap_marks);
		c->mark[c->n_marks++] = e;
	}
	if (c->recording)
		NOTE(c, cudaEventRecordWithFlags(c->mark[i], c->stream, cudaEventRecordExternal));
	else
		NOTE(c, cudaEventRecord(c->mark[i], c->stream));
	return dlb_cuda_report(c, err);
}

double dlb_cuda_seconds(struct dlb_backend *b, int from, int to)
{
	struct cuda *c = cuda_of(b);
	float ms = 0;

	NOTE(c, cudaEventElapsedTime(&ms, c->mark[from], c->mark[to]));
	return ms * 1e-3;
}

/* ---- transfers ---- */
void *dlb_cuda_host_alloc(struct dlb_backend *b, size_t bytes)
{
	struct cuda *c = cuda_of(b);
	void *p = NULL;
	cudaError_t status;

	choose(c);
	status = cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocDefault);
	if (status != cudaSuccess && status != cudaErrorMemoryAllocation)
		dlb_cuda_note(c, "cudaHostAlloc", status);
	return status == cudaSuccess ? p : NULL;
}

void dlb_cuda_host_free(struct dlb_backend *b, void *p)
{
	struct cuda *c = cuda_of(b);

	wait_for_all(c);
	NOTE(c, cudaFreeHost(p));
}

void dlb_cuda_transfer(struct dlb_backend *b, int i, const struct dlb_transfer *t)
{
	struct cuda *c = cuda_of(b);
	const cudaStream_t s = t->to_host ? c->out : c->in;

	choose(c);
	while (c->n_transfers <= i) {
		cudaEvent_t e = new_event(c, cudaEventDisableTiming);

		if (!e)
			return;
		DLB_GROW(c->transfer, c->n_transfers, c->cap_transfers);
		c->transfer[c->n_transfers++] = e;
	}
	if (t->after == DLB_AFTER_ALL)
		NOTE(c, cudaEventRecord(c->here, c->stream));
	if (t->after != DLB_AFTER_NOTHING)
		NOTE(c, cudaStreamWaitEvent(s, t->after == DLB_AFTER_ALL ? c->here : c->mark[t->after], 0));
	if (t->bytes)
		NOTE(c, cudaMemcpyAsync(t->dst, t->src, t->bytes,
					t->to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, s));
	NOTE(c, cudaEventRecord(c->transfer[i], s));
}

int dlb_cuda_transferred(struct dlb_backend *b, int i, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);
	cudaError_t status = cudaSuccess;

	if (!*c->failed)	/* else the transfer may not have been queued */
		status = cudaEventQuery(c->transfer[i]);
	if (status == cudaErrorNotReady)
		return 0;
	dlb_cuda_note(c, "cudaEventQuery", status);
	return dlb_cuda_report(c, err) ? -1 : 1;
}

void dlb_cuda_join(struct dlb_backend *b, int i)
{
	struct cuda *c = cuda_of(b);

	if (i < c->n_transfers)
		NOTE(c, cudaStreamWaitEvent(c->stream, c->transfer[i], 0));
}

/* ---- our kernels ---- */
static cudaKernel_t find(struct cuda *c, const char *name)
{
	cudaKernel_t f = NULL;

	for (int i = 0; i < CUDA_N_MODULES; i++)
		if (cudaLibraryGetKernel(&f, c->module[i], name) == cudaSuccess)
			return f;
	return NULL;
}

cudaKernel_t dlb_cuda_find(struct cuda *c, const char *name, struct dlb_error *err)
{
	cudaKernel_t f = find(c, name);

	if (!f)
		dlb_fail(err, NULL, "device cuda:%d: no kernel '%s' in this plug-in", c->device, name);
	return f;
}

cudaKernel_t dlb_cuda_find_typed(struct cuda *c, const char *stem, enum dlb_dtype type)
{
	char name[64];

	snprintf(name, sizeof name, "%s_%s", stem, type == DLB_BOOL ? "u8" : dlb_dtype_name(type));
	return find(c, name);
}

static void launch(struct cuda *c, cudaKernel_t f, void *args, int64_t blocks)
{
	const int64_t most = (int64_t)c->processors * BLOCKS_PER_PROCESSOR;
	cudaLaunchConfig_t config = { .stream = c->stream };
	void *list[] = { args };

	if (blocks < 1)
		return;
	config.gridDim = (dim3){ (unsigned)(blocks < most ? blocks : most), 1, 1 };
	config.blockDim = (dim3){ CUDA_THREADS, 1, 1 };
	NOTE(c, cudaLaunchKernelExC(&config, (const void *)f, list));
}

void dlb_cuda_launch(struct cuda *c, cudaKernel_t f, void *args, int64_t count)
{
	launch(c, f, args, (count + CUDA_THREADS - 1) / CUDA_THREADS);
}

void dlb_cuda_launch_rows(struct cuda *c, cudaKernel_t f, void *args, int64_t rows)
{
	launch(c, f, args, rows);
}

int dlb_cuda_row_width(int64_t n, int64_t side_by_side)
{
	return side_by_side >= WARP || n < WARP ? 1 : n < LONG_ROW ? WARP : CUDA_THREADS;
}

int dlb_cuda_row_threads(int64_t n, enum dlb_dtype type)
{
	const int64_t run = CUDA_ALIGN / (int64_t)dlb_dtype_bytes(type), runs = n / run;
	int width = 1;

	if (n % run || runs < WARP / 2 || runs > CUDA_THREADS * ROW_RUNS)
		return 0;
	while (width * ROW_RUNS < runs)
		width *= 2;
	return width;
}

void *dlb_cuda_align(struct cuda *c, void **copy, void *p, size_t bytes, bool is_read)
{
	if ((uintptr_t)p % CUDA_ALIGN == 0)
		return p;
	if (!*copy)
		NOTE(c, cudaMalloc(copy, bytes));
	if (*copy && is_read)
		NOTE(c, cudaMemcpyAsync(*copy, p, bytes, cudaMemcpyDeviceToDevice, c->stream));
	return *copy;
}

void dlb_cuda_operands(struct cuda_operands *p, const struct dlb_run *r, int n_in, int n_out)
{
	for (int i = 0; i < n_in; i++)
		p->in[i] = r->in[i];
	for (int i = 0; i < n_out; i++)
		p->out[i] = r->out[i];
	p->scratch = r->scratch;
}

struct cuda_nest dlb_cuda_nest(const struct dlb_nest *n)
{
	struct cuda_nest c = { .n_dims = n->n_dims,
			       .n_operands = n->n_operands,
			       .count = dlb_nest_count(n, n->n_dims) };

	memcpy(c.dim, n->dim, sizeof c.dim);
	memcpy(c.stride, n->stride, sizeof c.stride);
	return c;
}

void dlb_cuda_kernel_free(struct dlb_kernel *k)
{
	free(k);
}

/* ---- kernels of one launch ---- */
struct simple_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_launch l;
	_Alignas(16) char args[];	/* begins with struct cuda_operands */
};

static void simple_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct simple_kernel *s = (struct simple_kernel *)k;

	dlb_cuda_operands((struct cuda_operands *)s->args, r, s->l.n_in, s->l.n_out);
	(s->l.rows ? dlb_cuda_launch_rows : dlb_cuda_launch)(s->c, s->l.f, s->args, s->l.count);
}

void dlb_cuda_simple(struct dlb_backend *b, const struct cuda_launch *l, const void *args, size_t bytes,
		     struct dlb_kernel **k)
{
	struct simple_kernel *s = dlb_xcalloc(1, sizeof *s + bytes);

	s->c = cuda_of(b);
	s->l = *l;
	memcpy(s->args, args, bytes);
	s->k = (struct dlb_kernel){
		.run = simple_run, .free = dlb_cuda_kernel_free, .scratch_bytes = l->scratch_bytes, .impl = "cuda"
	};
	*k = &s->k;
}
