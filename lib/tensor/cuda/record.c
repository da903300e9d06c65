/* Recordings: the work that kernels queue is captured as a CUDA graph, which one call launches. Numbers that
 * differ from step to step are in memory (CUDA_VALUES) that a copy before the launch renews, so the nodes of
 * a graph never change. One copy serves all updates of a graph; changed parameters of nodes would take a call
 * per node. */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct dlb_recording { cudaGraphExec_t graph; };

int dlb_cuda_record(struct dlb_backend *b, bool timed, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);

	if (dlb_cuda_report(c, err))	/* an earlier failure would leave the capture open */
		return -1;
	dlb_cuda_note(c, "cudaStreamBeginCapture",
		      cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
	c->recording = !*c->failed;
	c->timed = timed;
	return dlb_cuda_report(c, err);
}

/* The capture is ended in any case. */
struct dlb_recording *dlb_cuda_recorded(struct dlb_backend *b, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);
	struct dlb_recording *x = dlb_xcalloc(1, sizeof *x);
	cudaGraph_t graph = NULL;

	c->recording = false;
	dlb_cuda_note(c, "cudaStreamEndCapture", cudaStreamEndCapture(c->stream, &graph));
	if (!*c->failed)
		dlb_cuda_note(c, "cudaGraphInstantiate", cudaGraphInstantiate(&x->graph, graph, 0));
	if (graph)
		dlb_cuda_note(c, "cudaGraphDestroy", cudaGraphDestroy(graph));
	if (!dlb_cuda_report(c, err))
		return x;
	dlb_cuda_discard(b, x);
	return NULL;
}

int dlb_cuda_replay(struct dlb_backend *b, struct dlb_recording *x, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);

	dlb_cuda_copy_touched(c, CUDA_VALUES);
	dlb_cuda_note(c, "cudaGraphLaunch", cudaGraphLaunch(x->graph, c->stream));
	return dlb_cuda_report(c, err);
}

void dlb_cuda_discard(struct dlb_backend *b, struct dlb_recording *x)
{
	if (x && x->graph)
		dlb_cuda_note(cuda_of(b), "cudaGraphExecDestroy", cudaGraphExecDestroy(x->graph));
	free(x);
}
