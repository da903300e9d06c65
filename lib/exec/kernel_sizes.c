/* Asks the back end for the memory sizes of kernels. See kernel_sizes.h. */
#include "exec/kernel_sizes.h"

#include <stdlib.h>
#include <string.h>

#include "plan/buckets.h"
#include "plan/replica.h"
#include "tensor/backend.h"
#include "util/cores.h"
#include "util/mem.h"

/* Whether the back end is asked for the sizes of op's kernel: op is a matrix product, for which libraries keep
 * memory, or a convolution that was not measured. */
static bool is_asked(const struct dlb_program *p, const struct dlb_cost *c, int op, int node)
{
	const int kind = c->cluster->node[node].kind;
	const struct dlb_op *o = &p->graph->op[op];

	if (p->plan->placement[op] != node || o->kind < 0 || o->phase == DLB_UPDATE)
		return false;
	const bool measured = c->measured[(size_t)kind * (size_t)p->graph->n_ops + (size_t)op];
	const char *work = dlb_op_work(o->type);

	return !strcmp(work, "dense") || (!measured && !strcmp(work, "conv"));
}

/* An op whose sizes are asked for. key: its signature. */
struct asked {
	const char *key;
	int op;
};

static int by_key(const void *a, const void *b)
{
	const struct asked *x = a, *y = b;
	const int order = strcmp(x->key, y->key);

	return order ? order : x->op - y->op;
}

/* Sizes of op's kernel for a micro-batch of p; known is false if the back end has no such kernel. */
static struct dlb_kernel_bytes ask(struct dlb_backend *be, const struct dlb_program *p, int op)
{
	struct dlb_kernel_bytes x = { .known = false };
	struct dlb_error ignored = { .what = "" };
	struct dlb_kernel *k = NULL;
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;

	dlb_graph_io(p->graph, op, p->size[0], &a, &io);
	io.once = dlb_program_packs_once(p, op);
	if (!dlb_op_kernel(be, &io, &k, &ignored)) {
		x = (struct dlb_kernel_bytes){ (double)k->scratch_bytes, (double)k->packed_bytes,
					       .code = (double)k->code_bytes, .known = true };
		for (int i = 0; i < DLB_N_LIBRARIES; i++)
			x.library[i] = (double)k->library_bytes[i];
	}
	dlb_kernel_free(k);
	dlb_arena_release(&a);
	return x;
}

struct dlb_kernel_bytes *dlb_kernel_sizes(const struct dlb_program *whole, const struct dlb_cost *c, int node)
{
	const struct dlb_program *p = dlb_program_of(whole, node);
	const struct dlb_device_kind *kind = &c->cluster->kind[c->cluster->node[node].kind];
	const struct dlb_backend_ops *ops = dlb_backend_find(kind->backend);
	struct asked *asked = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *asked);
	struct dlb_kernel_bytes *found = NULL;
	struct dlb_error ignored = { .what = "" };
	struct dlb_arena a = { 0 };
	struct dlb_backend be;
	/* a kind with more threads than this host has cores belongs to another host */
	const bool here = ops && ops->is_host_memory && kind->threads <= dlb_cores();
	int n = 0;

	for (int i = 0; i < p->graph->n_ops && here; i++)
		if (is_asked(p, c, i, node))
			asked[n++] = (struct asked){ dlb_op_signature(p->graph, i, p->size[0], &a), i };
	if (n && !dlb_backend_open(kind->backend, 0, kind->threads, &be, &ignored)) {
		found = dlb_xcalloc((size_t)p->graph->n_ops, sizeof *found);
		qsort(asked, (size_t)n, sizeof *asked, by_key);
		for (int i = 0; i < n; i++) {
			const bool again = i && !strcmp(asked[i].key, asked[i - 1].key);

			found[asked[i].op] = again ? found[asked[i - 1].op] : ask(&be, p, asked[i].op);
			if (again)
				found[asked[i].op].code = 0; /* the code of the first one */
		}
		be.ops->close(&be);
	}
	dlb_arena_release(&a);
	free(asked);
	return found;
}
