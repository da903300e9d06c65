/* A stand-in for CUDA's runtime, over host memory, that finds what compiling cannot: a host pointer in a kernel,
 * the host in device memory, memory that nobody wrote, a missing wait, a call whose failure is ignored. It shows
 * order, memory and arithmetic of our code; never speed, nor the bits of NVIDIA's libraries.
 *
 * Device memory is a region that the host can reach only while a queued task runs; fresh memory is NaN. Work is
 * queued and runs when something waits for it, streams in an order drawn from a seed as far as events allow.
 * A copy from or to memory that is not pinned needs a wait right behind it: CUDA may make it one. Graphs are in
 * graph.c; calls that are not allowed while a stream is captured abort.
 *     DLB_CUDA_HOST_SEED=N      draws the order of the streams (0)
 *     DLB_CUDA_HOST_FAIL=N      call N of this library fails, counted from 1
 *     DLB_CUDA_HOST_MEMORY=B    bytes of device memory (4 GiB)
 *     DLB_CUDA_HOST_DEVICES=N   number of devices (1)
 *     DLB_CUDA_HOST_CUDNN=0 and others: see dnn.c
 *     DLB_CUDA_HOST_EARLY=FILE  gets a line of bytes for each copy from the host that runs before earlier work
 *     DLB_CUDA_HOST_UNIFIED=1   work runs at once and takes any address: for unit tests of kernels alone */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_runtime_api.h"
#include "host.h"
#include "streams.h"
#include "tensor/cuda/kernels.h"

void cuda_host_abort(const char *call, const char *what)
{
	fprintf(stderr, "cuda-host: %s: %s\n", call, what);
	abort();
}

uint64_t cuda_host_setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

bool cuda_host_fails(void)
{
	static uint64_t calls;

	return ++calls == cuda_host_setting("DLB_CUDA_HOST_FAIL", 0);
}

/* ---- device memory: one region, pages of allocations in order of address ---- */
enum { PAGE = 4096, MOST = 1 << 16 };
struct block { char *p; size_t bytes, pages; };
static char *region;
static size_t region_bytes, used;	/* used: up to the end of the last block */
static struct block block[MOST];
static int n_blocks;
static bool open_to_host;

static bool is_unified(void)
{
	return cuda_host_setting("DLB_CUDA_HOST_UNIFIED", 0) != 0;
}

static void reach(bool yes)
{
	yes = yes || is_unified();
	if (used && yes != open_to_host && mprotect(region, used, yes ? PROT_READ | PROT_WRITE : PROT_NONE))
		cuda_host_abort("mprotect", "device memory cannot be opened or closed");
	open_to_host = yes;
}

static void on_fault(int signal_, siginfo_t *info, void *context)
{
	const char *p = info->si_addr;
	static const char text[] = "cuda-host: the host reads or writes device memory\n";

	(void)context;
	if (region && p >= region && p < region + region_bytes && write(2, text, sizeof text - 1) < 0)
		_exit(3);
	signal(signal_, SIG_DFL);	/* the access is repeated and ends the process */
}

static void make_region(void)
{
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	region_bytes = cuda_host_setting("DLB_CUDA_HOST_MEMORY", (uint64_t)4 << 30) / PAGE * PAGE;
	region = mmap(NULL, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region == MAP_FAILED)
		cuda_host_abort("mmap", "no address space for device memory");
	madvise(region, region_bytes, MADV_HUGEPAGE);	/* fewer entries to change at each mprotect */
	sigaction(SIGSEGV, &fault, NULL);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	size_t pages = (bytes + PAGE - 1) / PAGE + 1;	/* one between neighbours */
	char *at;
	int i = 0;

	cuda_host_no_capture("cudaMalloc");
	MAY_FAIL(cudaErrorMemoryAllocation);
	if (!region)
		make_region();
	at = region;
	while (i < n_blocks && (size_t)(block[i].p - at) < pages * PAGE) {
		at = block[i].p + block[i].pages * PAGE;
		i++;
	}
	if (n_blocks == MOST || pages * PAGE > region_bytes - (size_t)(at - region))
		return cudaErrorMemoryAllocation;
	memmove(block + i + 1, block + i, (size_t)(n_blocks - i) * sizeof *block);
	block[i] = (struct block){ at, bytes, pages };
	n_blocks++;
	used = (size_t)(at - region) + pages * PAGE > used ? (size_t)(at - region) + pages * PAGE : used;
	mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE);
	memset(at, 0xff, pages * PAGE);		/* NaN in every float type */
	mprotect(at, pages * PAGE, open_to_host ? PROT_READ | PROT_WRITE : PROT_NONE);
	*p = at;
	return cudaSuccess;
}

/* Pinned memory of the host. */
struct pinned { char *p; size_t bytes; struct pinned *next; };
static struct pinned *pinned;

static bool is_pinned(const void *p, size_t bytes)
{
	const char *at = p;

	for (const struct pinned *x = pinned; x; x = x->next)
		if (at >= x->p && at + bytes <= x->p + x->bytes)
			return true;
	return false;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags)
{
	struct pinned *x;

	cuda_host_no_capture("cudaHostAlloc");
	MAY_FAIL(cudaErrorMemoryAllocation);
	(void)flags;
	*p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
	if (!*p)
		return cudaErrorMemoryAllocation;
	memset(*p, 0xff, bytes);
	x = malloc(sizeof *x);
	*x = (struct pinned){ *p, bytes, pinned };
	pinned = x;
	return cudaSuccess;
}

static int find_block(const void *p)
{
	for (int i = 0; i < n_blocks; i++)
		if ((const char *)p >= block[i].p && (const char *)p < block[i].p + block[i].pages * PAGE)
			return i;
	return -1;
}

void cuda_host_must_be_device(const char *call, const void *p, size_t bytes)
{
	const int i = find_block(p);

	if (i < 0 && is_unified())
		return;
	if (i < 0)
		cuda_host_abort(call, "an operand is not in device memory");
	if ((const char *)p + bytes > block[i].p + block[i].bytes && bytes)
		cuda_host_abort(call, "an operand ends behind its allocation");
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
	size_t taken = 0;

	MAY_FAIL(cudaErrorInvalidValue);
	if (!region)
		make_region();
	for (int i = 0; i < n_blocks; i++)
		taken += block[i].pages * PAGE;
	*total = region_bytes;
	*available = region_bytes - taken;
	return cudaSuccess;
}

/* ---- streams and events ---- */
static struct CUstream_st *streams;

void cuda_host_append(struct task_list *l, struct task *t)
{
	static uint64_t tasks;

	t->number = ++tasks;
	t->next = NULL;
	*(l->first ? &l->last->next : &l->first) = t;
	l->last = t;
}

static struct task *append(cudaStream_t s, enum task_kind kind, size_t bytes)
{
	struct task *t = calloc(1, sizeof *t + bytes);

	if (!s)
		cuda_host_abort("a call", "the default stream is not used by this back end");
	if (s->pageable)
		cuda_host_abort("cudaMemcpyAsync", "the host's memory is not pinned, and the stream goes on without a wait");
	t->kind = kind;
	t->bytes = bytes;
	cuda_host_append(s->capturing ? &s->captured : &s->queue, t);
	return t;
}

void cuda_host_no_capture(const char *call)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		if (s->capturing)
			cuda_host_abort(call, "not allowed while a stream is captured");
}

static bool can_run(const struct CUstream_st *s)
{
	const struct task *t = s->queue.first;

	return t && (t->kind != WAIT || t->event->done >= t->until);
}

/* Writes the bytes of a copy that runs before what another stream had queued earlier. */
static void note_early(const struct task *t)
{
	const char *path = getenv("DLB_CUDA_HOST_EARLY");
	bool early = false;
	FILE *f;

	for (struct CUstream_st *s = streams; path && s; s = s->next)
		early = early || (s->queue.first && s->queue.first->number < t->number);
	if (early && (f = fopen(path, "a"))) {
		fprintf(f, "%zu\n", t->from_host);
		fclose(f);
	}
}

static void run_first(struct CUstream_st *s)
{
	struct task *t = s->queue.first;

	s->queue.first = t->next;
	if (t->kind == RECORD) {
		t->event->done++;
		clock_gettime(CLOCK_MONOTONIC, &t->event->at);
	}
	if (t->from_host)
		note_early(t);
	if (t->kind == RUN) {
		reach(true);
		t->run(t->arg);
	}
	free(t);
}

/* Runs the first task of a stream drawn at random. */
static void run_any(void)
{
	static uint64_t state;
	struct CUstream_st *chosen = NULL;
	unsigned n = 0;

	if (!state)
		state = cuda_host_setting("DLB_CUDA_HOST_SEED", 0) * 2 + 1;
	for (struct CUstream_st *s = streams; s; s = s->next)
		if (can_run(s)) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			if ((state >> 33) % ++n == 0)
				chosen = s;
		}
	if (!chosen)
		cuda_host_abort("a call that waits", "streams wait for each other");
	run_first(chosen);
}

static void drain(struct CUstream_st *until_empty)
{
	while (until_empty->queue.first)
		run_any();
	reach(false);
}

void cuda_host_queued(struct CUstream_st *s)
{
	if (is_unified() && !s->capturing)
		drain(s);
}

static struct task *enqueue(cudaStream_t stream, void (*run)(void *arg), const void *arg, size_t bytes)
{
	struct task *t = append(stream, RUN, bytes);

	t->run = run;
	memcpy(t->arg, arg, bytes);
	return t;
}

void cuda_host_enqueue(cudaStream_t stream, void (*run)(void *arg), const void *arg, size_t bytes)
{
	enqueue(stream, run, arg, bytes);
	cuda_host_queued(stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	MAY_FAIL(cudaErrorInvalidValue);
	(void)flags;
	*stream = calloc(1, sizeof **stream);
	(*stream)->next = streams;
	streams = *stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cuda_host_no_capture("cudaStreamSynchronize");
	drain(stream);
	stream->pageable = false;
	MAY_FAIL(cudaErrorLaunchFailure);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	struct CUstream_st **at = &streams;

	cuda_host_no_capture("cudaStreamDestroy");
	drain(stream);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	MAY_FAIL(cudaErrorInvalidValue);
	(void)flags;
	*event = calloc(1, sizeof **event);
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	if (event->done < event->queued)
		drain(event->stream);
	free(event);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	MAY_FAIL(cudaErrorInvalidValue);
	if (stream->capturing)
		cuda_host_abort("cudaEventRecord", "the event of a captured stream has no time");
	append(stream, RECORD, 0)->event = event;
	event->queued++;
	event->stream = stream;
	return cudaSuccess;
}

/* In a graph, the event is recorded at each launch. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
	if (!stream->capturing)
		return cudaEventRecord(event, stream);
	MAY_FAIL(cudaErrorInvalidValue);
	if (flags != cudaEventRecordExternal)
		cuda_host_abort("cudaEventRecordWithFlags", "the event of a captured stream has no time");
	append(stream, RECORD, 0)->event = event;
	event->stream = stream;
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	struct task *t;

	MAY_FAIL(cudaErrorInvalidValue);
	(void)flags;
	if (stream->capturing)
		cuda_host_abort("cudaStreamWaitEvent", "a captured stream waits for an event outside its graph");
	t = append(stream, WAIT, 0);
	t->event = event;
	t->until = event->queued;
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	cuda_host_no_capture("cudaEventSynchronize");
	MAY_FAIL(cudaErrorLaunchFailure);
	if (event->done < event->queued)
		drain(event->stream);
	return cudaSuccess;
}

/* Runs one task where the event is not passed, so that who asks again and again gets on. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cuda_host_no_capture("cudaEventQuery");
	MAY_FAIL(cudaErrorLaunchFailure);
	if (event->done >= event->queued)
		return cudaSuccess;
	run_any();
	reach(false);
	return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	MAY_FAIL(cudaErrorInvalidValue);
	if (!from->done || !to->done || from->done < from->queued || to->done < to->queued)
		cuda_host_abort("cudaEventElapsedTime", "an event is not passed");
	*ms = (float)((double)(to->at.tv_sec - from->at.tv_sec) * 1e3 +
		      (double)(to->at.tv_nsec - from->at.tv_nsec) * 1e-6);
	return cudaSuccess;
}

/* Waits for all streams, as CUDA's does. */
cudaError_t cudaFree(void *p)
{
	int i;

	cuda_host_no_capture("cudaFree");
	if (!p)
		return cudaSuccess;
	for (struct CUstream_st *s = streams; s; s = s->next)
		drain(s);
	i = find_block(p);
	if (i < 0 || block[i].p != p)
		cuda_host_abort("cudaFree", "not the address of an allocation");
	n_blocks--;
	memmove(block + i, block + i + 1, (size_t)(n_blocks - i) * sizeof *block);
	return cudaSuccess;
}

/* Waits for all streams, as CUDA's does. */
cudaError_t cudaFreeHost(void *p)
{
	struct pinned **at = &pinned, *x;

	cuda_host_no_capture("cudaFreeHost");
	for (struct CUstream_st *s = streams; s; s = s->next)
		drain(s);
	while (*at && (*at)->p != p)
		at = &(*at)->next;
	if (!*at)
		cuda_host_abort("cudaFreeHost", "not the address of an allocation");
	x = *at;
	*at = x->next;
	free(x);
	free(p);
	return cudaSuccess;
}

/* ---- copies ---- */
struct move { void *dst; const void *src; size_t bytes; int value; };

static void run_move(void *arg)
{
	const struct move *m = arg;

	memmove(m->dst, m->src, m->bytes);
}

static void run_fill(void *arg)
{
	const struct move *m = arg;

	memset(m->dst, m->value, m->bytes);
}

/* Between two places of the host's memory, one of which is pinned. */
static cudaError_t copy_on_host(const struct move *m, cudaStream_t stream)
{
	if (stream && stream->capturing)
		cuda_host_abort("cudaMemcpyAsync", "host memory in a graph may have changed when it runs");
	enqueue(stream, run_move, m, sizeof *m);
	cuda_host_queued(stream);
	stream->pageable = !is_unified() && !(is_pinned(m->src, m->bytes) && is_pinned(m->dst, m->bytes));
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	const struct move m = { dst, src, bytes, 0 };

	MAY_FAIL(cudaErrorLaunchFailure);
	if (kind == cudaMemcpyDefault && find_block(dst) < 0 && find_block(src) < 0)
		return copy_on_host(&m, stream);
	if (kind == cudaMemcpyDefault)
		kind = find_block(dst) < 0 ? cudaMemcpyDeviceToHost :
		       find_block(src) < 0 ? cudaMemcpyHostToDevice :
					     cudaMemcpyDeviceToDevice;
	if (kind != cudaMemcpyDeviceToHost)
		cuda_host_must_be_device("cudaMemcpyAsync (to)", dst, bytes);
	if (kind != cudaMemcpyHostToDevice)
		cuda_host_must_be_device("cudaMemcpyAsync (from)", src, bytes);
	if (kind != cudaMemcpyDeviceToDevice && stream && stream->capturing)
		cuda_host_abort("cudaMemcpyAsync", "host memory in a graph may have changed when it runs");
	if ((kind == cudaMemcpyHostToDevice && region && find_block(src) >= 0) ||
	    (kind == cudaMemcpyDeviceToHost && find_block(dst) >= 0))
		cuda_host_abort("cudaMemcpyAsync", "the host's side is in device memory");
	enqueue(stream, run_move, &m, sizeof m)->from_host = kind == cudaMemcpyHostToDevice ? bytes : 0;
	cuda_host_queued(stream);
	stream->pageable = kind != cudaMemcpyDeviceToDevice && !is_unified() &&
			   !is_pinned(kind == cudaMemcpyHostToDevice ? src : dst, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
	const struct move m = { p, NULL, bytes, value };

	MAY_FAIL(cudaErrorLaunchFailure);
	cuda_host_must_be_device("cudaMemsetAsync", p, bytes);
	cuda_host_enqueue(stream, run_fill, &m, sizeof m);
	return cudaSuccess;
}

/* ---- kernels ---- */
struct launch { const void *kernel; unsigned blocks, threads; _Alignas(16) char args[4096]; };

static void run_launch(void *arg)
{
	const struct launch *l = arg;

	cuda_host_run(l->kernel, l->args, l->blocks, l->threads);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
	struct launch l = { kernel, config->gridDim.x, config->blockDim.x, { 0 } };
	const struct cuda_operands *p = args[0];
	const size_t bytes = cuda_host_arg_bytes(kernel);
	const char *name = cuda_host_name(kernel);

	MAY_FAIL(cudaErrorLaunchFailure);
	if (bytes > sizeof l.args || !l.blocks || !l.threads || l.threads > 1024)
		cuda_host_abort(name, "arguments over 4 KB, or no grid");
	for (int i = 0; i < CUDA_IN; i++)
		if (p->in[i])
			cuda_host_must_be_device(name, p->in[i], 0);
	for (int i = 0; i < CUDA_OUT; i++)
		if (p->out[i])
			cuda_host_must_be_device(name, p->out[i], 0);
	if (p->scratch)
		cuda_host_must_be_device(name, p->scratch, 0);
	memcpy(l.args, p, bytes);
	cuda_host_enqueue(config->stream, run_launch, &l, offsetof(struct launch, args) + bytes);
	return cudaSuccess;
}

/* The code of a module is not looked at: all kernels of emulate.cpp are in one table. */
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit_options,
				void **jit_values, unsigned int n_jit, enum cudaLibraryOption *options,
				void **values, unsigned int n_options)
{
	cuda_host_no_capture("cudaLibraryLoadData");
	MAY_FAIL(cudaErrorInvalidValue);
	(void)jit_options, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n_options;
	*library = (cudaLibrary_t)code;
	return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
	cuda_host_no_capture("cudaLibraryUnload");
	(void)library;
	return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
	(void)library;
	*kernel = (cudaKernel_t)(uintptr_t)cuda_host_find(name);
	return *kernel ? cudaSuccess : cudaErrorSymbolNotFound;
}

/* ---- devices ---- */
cudaError_t cudaGetDeviceCount(int *count)
{
	MAY_FAIL(cudaErrorNoDevice);
	*count = (int)cuda_host_setting("DLB_CUDA_HOST_DEVICES", 1);
	return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
	MAY_FAIL(cudaErrorInvalidDevice);
	return device < (int)cuda_host_setting("DLB_CUDA_HOST_DEVICES", 1) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	MAY_FAIL(cudaErrorInvalidValue);
	(void)device;
	if (attr != cudaDevAttrMultiProcessorCount && attr != cudaDevAttrClockRate &&
	    attr != cudaDevAttrComputeCapabilityMajor)
		return cudaErrorInvalidValue;
	*value = attr == cudaDevAttrClockRate ? 1000000 : attr == cudaDevAttrComputeCapabilityMajor ? 9 : 1;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	MAY_FAIL(cudaErrorInvalidValue);
	(void)device;
	snprintf(prop->name, sizeof prop->name, "stand-in for a device");
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { return cudaSuccess; }

const char *cudaGetErrorString(cudaError_t error)
{
	static const struct { cudaError_t error; const char *text; } known[] = {
		{ cudaSuccess, "no error" },
		{ cudaErrorInvalidValue, "invalid argument" },
		{ cudaErrorMemoryAllocation, "out of memory" },
		{ cudaErrorNoDevice, "no CUDA-capable device is detected" },
		{ cudaErrorInvalidDevice, "invalid device ordinal" },
		{ cudaErrorSymbolNotFound, "named symbol not found" },
		{ cudaErrorNotReady, "device not ready" },
		{ cudaErrorLaunchFailure, "unspecified launch failure" },
		{ cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture" },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].error == error)
			return known[i].text;
	return "unrecognized error code";
}
