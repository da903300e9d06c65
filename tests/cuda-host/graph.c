/* Graphs of the stand-in: a stream's tasks from the begin of a capture to its end, with their arguments as they were
 * then. A launch queues copies of them one by one, so that tasks of other streams run between them. */
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "host.h"
#include "streams.h"

struct CUgraph_st { struct task_list tasks; };
struct CUgraphExec_st { struct task_list tasks; };

static struct task *copy_of(const struct task *t)
{
	struct task *c = malloc(sizeof *c + t->bytes);

	memcpy(c, t, sizeof *c + t->bytes);
	return c;
}

static void free_tasks(struct task_list *l)
{
	while (l->first) {
		struct task *t = l->first;

		l->first = t->next;
		free(t);
	}
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	cuda_host_no_capture("cudaStreamBeginCapture");
	MAY_FAIL(cudaErrorInvalidValue);
	if (mode != cudaStreamCaptureModeThreadLocal)
		cuda_host_abort("cudaStreamBeginCapture", "calls of other threads would end it");
	stream->capturing = true;
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	if (!stream->capturing)
		cuda_host_abort("cudaStreamEndCapture", "the stream is not captured");
	stream->capturing = false;
	*graph = NULL;
	if (cuda_host_fails()) {
		free_tasks(&stream->captured);
		return cudaErrorStreamCaptureInvalidated;
	}
	*graph = malloc(sizeof **graph);
	(*graph)->tasks = stream->captured;
	stream->captured.first = NULL;
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
	cuda_host_no_capture("cudaGraphInstantiate");
	MAY_FAIL(cudaErrorMemoryAllocation);
	(void)flags;
	*exec = calloc(1, sizeof **exec);
	for (const struct task *t = graph->tasks.first; t; t = t->next)
		cuda_host_append(&(*exec)->tasks, copy_of(t));
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	cuda_host_no_capture("cudaGraphLaunch");
	MAY_FAIL(cudaErrorLaunchFailure);
	for (const struct task *t = exec->tasks.first; t; t = t->next) {
		cuda_host_append(&stream->queue, copy_of(t));
		if (t->kind == RECORD)
			t->event->queued++;
		cuda_host_queued(stream);
	}
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	free_tasks(&graph->tasks);
	free(graph);
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	free_tasks(&exec->tasks);
	free(exec);
	return cudaSuccess;
}
