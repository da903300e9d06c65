/* The arena that all programs of a rank share, and the shared memory for messages and sums between ranks of
 * one host.
 *
 * Where several ranks share a host, each arena lies in the comm's shared memory: the sender writes into the
 * receiver's place, or the receiver reads in the sender's, and gradients are summed in place. Only the pages
 * of such places are shared. The rest is private memory at the addresses between, since the system gives huge
 * pages to private memory alone (convolutions over small pages were measured to take 4 to 6 % longer). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "exec/engine.h"
#include "exec/runtime.h"
#include "plan/buckets.h"
#include "plan/by_class.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "util/mem.h"

struct byte_range { size_t begin, end; };

bool dlb_is_host_memory(const struct dlb_backend *be)
{
	return be->ops->is_host_memory;
}

void *dlb_visible_alloc(struct dlb_comm *c, struct dlb_backend *be, size_t bytes)
{
	void *p = c && dlb_is_host_memory(be) ? dlb_comm_alloc(c, bytes) : NULL;

	return p ? p : be->ops->alloc(be, bytes);
}

void dlb_visible_free(struct dlb_comm *c, struct dlb_backend *be, void *p)
{
	if (c && dlb_comm_offset(c, p) != SIZE_MAX)
		dlb_comm_release(c, p);
	else
		be->ops->free(be, p);
}

void *dlb_samples_alloc(struct dlb_backend *be, size_t bytes, struct dlb_error *err)
{
	if (dlb_is_host_memory(be))
		return dlb_xcalloc(bytes, 1);
	void *p = be->ops->host_alloc(be, bytes);

	if (p)
		return memset(p, 0, bytes);
	dlb_fail(err, NULL, "device %s:%d: no host memory for %zu bytes of samples", be->ops->name, be->device,
		 bytes);
	return NULL;
}

void dlb_samples_free(struct dlb_backend *be, void *p)
{
	if (p && !dlb_is_host_memory(be))
		be->ops->host_free(be, p);
	else
		free(p);
}

int dlb_runtime_mirror_weights(struct dlb_runtime *g, const struct dlb_graph *graph, struct dlb_error *err)
{
	if (dlb_is_host_memory(g->be))
		return 0;
	g->averaged = dlb_xcalloc((size_t)graph->n_tensors + 1, sizeof *g->averaged);
	g->n_averaged = graph->n_tensors;
	for (int t = 0; t < graph->n_tensors; t++) {
		const struct dlb_tensor *x = &graph->tensor[t];

		if (!g->state->value[t] || x->kind != DLB_T_WEIGHT || x->home < 0 ||
		    graph->op[x->home].phase != DLB_UPDATE)
			continue;
		g->averaged[t] = dlb_samples_alloc(g->be, (size_t)dlb_tensor_bytes(x, 1), err);
		if (!g->averaged[t])
			return -1;
	}
	return 0;
}

void dlb_runtime_free_averaged(struct dlb_runtime *g)
{
	for (int t = 0; t < g->n_averaged; t++)
		dlb_samples_free(g->be, g->averaged[t]);
	free(g->averaged);
	g->averaged = NULL;
	g->n_averaged = 0;
}

int dlb_no_memory(struct dlb_backend *be, size_t bytes, const char *what, struct dlb_error *err)
{
	if (be->ops->sync(be, err))
		return -1;
	return dlb_fail(err, NULL, "no memory for %zu bytes of %s on device %s:%d", bytes, what, be->ops->name,
			be->device);
}

static int by_begin(const void *a, const void *b)
{
	const struct byte_range *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

static int n_cells(const struct dlb_program *p, int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++) {
		int most = 0;	/* all replicas use the same tags: each rank has its own cells */

		for (int r = 0; r < p[i].n_replicas || !r; r++) {
			int k = dlb_program_replica(&p[i], r)->n_messages;

			most = k > most ? k : most;
		}
		sum += most;
	}
	return sum;
}

int dlb_runtime_first_cell(const struct dlb_runtime *g, const struct dlb_program *p, int node)
{
	for (int i = 0; g->cell_of && i < g->n_programs; i++)
		if (p == dlb_program_of(&g->program[i], node))
			return n_cells(g->program, i);
	return -1;
}

struct ranges { struct byte_range *range; int n, cap; };

static void add_place(struct ranges *r, const struct dlb_node_program *np, int place)
{
	const struct dlb_place *p = &np->place[place];

	assert(place >= 0);
	DLB_GROW(r->range, r->n, r->cap);
	r->range[r->n++] = (struct byte_range){ p->offset,
						p->offset + (size_t)p->copies * dlb_place_bytes(p->bytes) };
}

/* Adds the places that ranks of this host write messages to, and those that they read in place. */
static void add_messages(const struct dlb_runtime *g, const struct dlb_node_program *np, struct ranges *r)
{
	for (int i = 0; i < np->n_instr; i++) {
		const struct dlb_instr *in = &np->instr[i];

		if ((in->verb == DLB_POST || (in->verb == DLB_SEND && in->zero_copy)) &&
		    dlb_comm_near(g->comm, in->peer))
			add_place(r, np, dlb_program_find_place(np, in->tensor, in->micro_batch));
	}
}

/* Adds the gradients in the arena that are summed in place, in buckets of their own. */
static void add_sums(const struct dlb_program *p, const struct dlb_node_program *np, struct ranges *r)
{
	if (dlb_sharing_compresses(&p->whole->sharing))
		return;
	for (int b = 0; b < np->n_buckets; b++) {
		const int op = np->bucket[b].n_ops == 1 ? np->bucket[b].op[0] : -1;
		int at;

		if (np->bucket[b].cls != DLB_SUM_GRADIENT || op < 0 || dlb_program_sums(p, op))
			continue;
		at = dlb_program_place_of(np, p->graph, dlb_update_gradient(p->graph, op), 0);
		if (at >= 0)
			add_place(r, np, at);
	}
}

/* The parts of the arena that other ranks of this host read or write, in order. */
static struct ranges find_shared(const struct dlb_runtime *g, int node)
{
	struct ranges r = { NULL, 0, 0 };

	for (int k = 0; k < g->n_programs; k++) {
		const struct dlb_program *p = dlb_program_of(&g->program[k], node);

		add_messages(g, &p->node[node], &r);
		add_sums(p, &p->node[node], &r);
	}
	if (r.n)
		qsort(r.range, (size_t)r.n, sizeof *r.range, by_begin);
	return r;
}

static void keep_private(struct dlb_runtime *g, const struct ranges *r, size_t bytes)
{
	size_t at = 0;

	for (int i = 0; i < r->n; i++) {
		if (r->range[i].begin > at)
			dlb_comm_private(g->comm, g->arena + at, r->range[i].begin - at);
		at = r->range[i].end > at ? r->range[i].end : at;
	}
	if (bytes > at)
		dlb_comm_private(g->comm, g->arena + at, bytes - at);
}

struct arena_offsets { size_t arena, cells; };

/* Exchanges the offsets of arena and cells with the ranks of this host. */
static int introduce(struct dlb_runtime *g, struct dlb_cell *cells, struct dlb_error *err)
{
	struct arena_offsets mine = { SIZE_MAX, SIZE_MAX }, *all;
	int n = dlb_comm_local_size(g->comm);

	if (g->arena_is_shared && cells)
		mine = (struct arena_offsets){ dlb_comm_offset(g->comm, g->arena),
					       dlb_comm_offset(g->comm, cells) };
	all = dlb_xcalloc((size_t)n, sizeof *all);
	if (dlb_comm_gather_local(g->comm, &mine, sizeof mine, all, err)) {
		free(all);
		return -1;
	}
	g->arena_of = dlb_xcalloc((size_t)dlb_comm_size(g->comm), sizeof *g->arena_of);
	g->cell_of = dlb_xcalloc((size_t)dlb_comm_size(g->comm), sizeof *g->cell_of);
	for (int i = 0; i < n; i++) {
		int rank = dlb_comm_local(g->comm, i);

		if (mine.arena == SIZE_MAX || all[i].arena == SIZE_MAX || !dlb_comm_near(g->comm, rank))
			continue;
		g->arena_of[rank] = dlb_comm_there(g->comm, rank, all[i].arena);
		g->cell_of[rank] = dlb_comm_there(g->comm, rank, all[i].cells);
	}
	free(all);
	return 0;
}

int dlb_runtime_ready(struct dlb_runtime *g, size_t arena_bytes, const struct dlb_program *p, int n_programs,
		      int node, struct dlb_error *err)
{
	size_t bytes = arena_bytes ? arena_bytes : 64;
	struct dlb_cell *cells = NULL;
	struct ranges shared;
	int rc = 0;

	g->arena_bytes = arena_bytes;
	g->program = p;
	g->n_programs = n_programs;
	shared = find_shared(g, node);
	g->arena = dlb_visible_alloc(n_cells(p, n_programs) || shared.n ? g->comm : NULL, g->be, bytes);
	g->arena_is_shared = dlb_comm_offset(g->comm, g->arena) != SIZE_MAX;
	if (g->arena_is_shared) {
		keep_private(g, &shared, bytes);
		memset(g->arena, 0, bytes);
	}
	if (g->arena_is_shared && n_cells(p, n_programs))
		g->cells = cells = dlb_comm_alloc(g->comm, (size_t)n_cells(p, n_programs) * sizeof *cells);
	free(shared.range);
	if (n_cells(p, n_programs))		/* a failed rank takes part too: the others wait for it */
		rc = introduce(g, cells, err);
	return g->arena ? rc : dlb_no_memory(g->be, bytes, "activations", err);
}

void dlb_runtime_release(struct dlb_runtime *g)
{
	if (!g->be)
		return;
	dlb_visible_free(g->comm, g->be, g->arena);
	dlb_comm_release(g->comm, g->cells);
	g->cells = NULL;
	g->be->ops->free(g->be, g->scratch);
	free(g->arena_of);
	free(g->cell_of);
	g->arena = NULL;
	g->scratch = NULL;
	g->arena_of = NULL;
	g->cell_of = NULL;
}
