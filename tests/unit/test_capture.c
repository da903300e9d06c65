/* The stand-in for CUDA (tests/cuda-host): a graph holds a stream's tasks as they were captured, runs them at each launch,
 * and calls that CUDA does not allow meanwhile abort with their names. */
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../cuda-host/include/cuda_runtime_api.h"
#include "check.h"

#define CALLS(X) \
	X(cudaMalloc) X(cudaFree) X(cudaHostAlloc) X(cudaFreeHost) X(cudaMemsetAsync) X(cudaMemcpyAsync) \
	X(cudaStreamCreateWithFlags) X(cudaStreamSynchronize) X(cudaStreamWaitEvent) X(cudaEventCreateWithFlags) \
	X(cudaEventRecord) X(cudaEventQuery) X(cudaEventSynchronize) X(cudaStreamBeginCapture) X(cudaStreamEndCapture) \
	X(cudaGraphInstantiate) X(cudaGraphLaunch) X(cudaGraphDestroy) X(cudaGraphExecDestroy)
#define X(name) static __typeof__(&name) p_##name;
CALLS(X)
#undef X

static cudaStream_t stream, other;
static cudaEvent_t event;
static char *device, *host;

static bool load(void)
{
	const char *folder = getenv("DLB_PLUGIN_DIR");
	char own[PATH_MAX] = "", path[PATH_MAX + 40];
	const ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
	char *slash = n > 0 ? strstr(own, "/tests/test_capture") : NULL;
	void *so;

	if (slash)
		*slash = '\0';
	snprintf(path, sizeof path, "%s%s/dlb-cuda.so", folder ? folder : own, folder ? "" : "/cuda-host");
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!so || !dlsym(so, "cuda_host_find"))
		return false;
#define X(name) *(void **)&p_##name = dlsym(so, #name);
	CALLS(X)
#undef X
	return true;
}

static void fill(cudaStream_t s, int value)
{
	assert(IS(p_cudaMemsetAsync(device, value, 1, s), ==, cudaSuccess));
}

static char read_back(void)
{
	assert(IS(p_cudaMemcpyAsync(host, device, 1, cudaMemcpyDeviceToHost, stream), ==, cudaSuccess));
	assert(IS(p_cudaStreamSynchronize(stream), ==, cudaSuccess));
	return *host;
}

static void replays(void)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	fill(stream, 1);
	assert(IS(p_cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), ==, cudaSuccess));
	fill(stream, 2);
	assert(IS(p_cudaStreamEndCapture(stream, &graph), ==, cudaSuccess));
	assert(IS(read_back(), ==, 1));		/* what is captured has not run */
	assert(IS(p_cudaGraphInstantiate(&exec, graph, 0), ==, cudaSuccess));
	p_cudaGraphDestroy(graph);
	for (int i = 0; i < 2; i++) {
		fill(stream, 3);
		assert(IS(read_back(), ==, 3));
		p_cudaGraphLaunch(exec, stream);
		assert(IS(read_back(), ==, 2));
	}
	p_cudaGraphExecDestroy(exec);
}

static void make_space(void) { p_cudaMalloc((void **)&device, 1); }
static void free_space(void) { p_cudaFree(device); }
static void make_host(void) { p_cudaHostAlloc((void **)&host, 1, cudaHostAllocDefault); }
static void free_host(void) { p_cudaFreeHost(host); }
static void wait_here(void) { p_cudaStreamSynchronize(stream); }
static void wait_there(void) { p_cudaStreamSynchronize(other); }
static void wait_event(void) { p_cudaStreamWaitEvent(stream, event, 0); }
static void record(void) { p_cudaEventRecord(event, stream); }
static void query(void) { p_cudaEventQuery(event); }
static void wait_until(void) { p_cudaEventSynchronize(event); }
static void begin(void) { p_cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); }
static void to_host(void) { p_cudaMemcpyAsync(host, device, 1, cudaMemcpyDeviceToHost, stream); }
static void legacy(void) { fill(NULL, 1); }
static void harmless(void) { fill(stream, 1), fill(other, 1), p_cudaEventRecord(event, other); }

/* Runs call in a process of its own while `stream` is captured; false: it aborts, and *text is what it says. */
static bool survives(void (*call)(void), char *text, size_t size)
{
	int ends[2], status;
	ssize_t n;
	pid_t p;

	assert(!pipe(ends));
	p = fork();
	assert(p >= 0);
	if (!p) {
		dup2(ends[1], 2);
		p_cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
		call();
		_exit(0);
	}
	close(ends[1]);
	n = read(ends[0], text, size - 1);
	text[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	assert(waitpid(p, &status, 0) == p);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static void refuses(void)
{
	static const struct { void (*call)(void); const char *name; } illegal[] = {
		{ make_space, "cudaMalloc: " },
		{ free_space, "cudaFree: " },
		{ make_host, "cudaHostAlloc: " },
		{ free_host, "cudaFreeHost: " },
		{ wait_here, "cudaStreamSynchronize: " },
		{ wait_there, "cudaStreamSynchronize: " },
		{ wait_event, "cudaStreamWaitEvent: " },
		{ record, "cudaEventRecord: " },
		{ query, "cudaEventQuery: " },
		{ wait_until, "cudaEventSynchronize: " },
		{ begin, "cudaStreamBeginCapture: " },
		{ to_host, "cudaMemcpyAsync: " },
		{ legacy, "the default stream" },
	};
	char text[300];

	assert(survives(harmless, text, sizeof text));
	for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++) {
		assert(!survives(illegal[i].call, text, sizeof text));
		assert(HAS(text, illegal[i].name));
	}
}

int main(void)
{
	if (!load()) {
		puts("no stand-in for CUDA");
		return 77;
	}
	p_cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	p_cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
	p_cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
	make_space();
	make_host();
	replays();
	refuses();
	puts("ok");
	return 0;
}
