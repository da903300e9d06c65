/* Runs our loops on the node's threads: libgomp's, which oneDNN uses too, so there is only one
 * set of threads. libgomp is called by name, not by "#pragma omp parallel", because clang
 * would link a second thread library. */
#include "tensor/cpu/threads.h"

#define GRAIN 16384			/* elements worth a thread: starting threads takes microseconds */

void GOMP_parallel(void (*fn)(void *), void *data, unsigned n_threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

struct team { int parts; dlb_cpu_part_fn *fn; const void *ctx; };

/* Runs every n-th part, where n is the number of threads that exist: all parts are done, however many threads
 * there are. */
static void member(void *data)
{
	const struct team *t = data;

	for (int i = omp_get_thread_num(); i < t->parts; i += omp_get_num_threads())
		t->fn(t->ctx, i, t->parts);
}

int dlb_cpu_parts(const struct dlb_backend *b, int64_t elements, int64_t most)
{
	int64_t parts = elements / GRAIN;

	parts = parts < b->n_threads ? parts : b->n_threads;
	parts = parts < most ? parts : most;
	return parts < 1 ? 1 : (int)parts;
}

void dlb_cpu_parallel(int parts, dlb_cpu_part_fn *fn, const void *ctx)
{
	struct team t = { parts, fn, ctx };

	if (parts == 1)
		fn(ctx, 0, 1);
	else
		GOMP_parallel(member, &t, (unsigned)parts, 0);
}
