/* --save: weights and buffers of all nodes into one file. See checkpoint.h. */
#define _XOPEN_SOURCE 700
#include <stdlib.h>
#include <string.h>
#include "comm/await.h"
#include "exec/checkpoint.h"
#include "exec/state.h"
#include "graph/derived.h"
#include "graph/slice.h"
#include "model/onnx.h"
#include "model/safetensors.h"
#include "util/mem.h"
#include "util/output.h"

/* Brings tensor t to rank 0 (returned on the heap there, NULL elsewhere). */
static int collect(struct dlb_comm *comm, const struct dlb_state *s, int t, int home, void **out,
		   struct dlb_error *err)
{
	struct dlb_desc d = dlb_tensor_desc(&s->graph->tensor[t], 1);
	struct dlb_request r = { 0 };
	size_t bytes = dlb_desc_bytes(&d);
	int rank = dlb_comm_rank(comm), rc = 0;
	void *host;

	*out = NULL;
	if (rank && rank != home)
		return 0;
	host = dlb_xmalloc(bytes + 1);
	if (rank == home)
		s->be->ops->download(s->be, host, s->value[t], bytes);
	if (home != 0) {
		if (rank == 0)
			dlb_comm_irecv(comm, host, bytes, home, t, &r);
		else
			dlb_comm_isend(comm, host, bytes, 0, t, &r);
		rc = dlb_comm_wait(comm, &r, err);
	}
	if (rank == 0 && !rc)
		*out = host;
	else
		free(host);
	return rc;
}

/* A frozen parameter is a constant, whose data every rank has. */
static int copy_frozen(struct dlb_comm *comm, const struct dlb_tensor *x, void **out, struct dlb_error *err)
{
	const struct dlb_desc d = dlb_tensor_desc(x, 1);

	if (dlb_comm_rank(comm))
		return 0;
	if (!x->data)
		return dlb_fail(err, x->name, "the frozen parameter has no data");
	*out = dlb_xmalloc(dlb_desc_bytes(&d) + 1);
	memcpy(*out, x->data, dlb_desc_bytes(&d));
	return 0;
}

static bool is_onnx(const char *path)
{
	const size_t n = strlen(path);
	return n > 5 && !strcmp(path + n - 5, ".onnx");
}

static int no_model(const char *path, struct dlb_error *err)
{
	return dlb_fail(err, NULL, "cannot save '%s': the graph does not say which model it came from", path);
}

/* The tensors to write, on rank 0; data is on the heap unless `borrowed`. */
struct saved { struct dlb_st_tensor *t; bool *borrowed; int n, cap; };

static struct dlb_st_tensor *add(struct saved *s, const char *name, struct dlb_desc desc, const void *data,
				 bool borrowed)
{
	const int cap = s->cap;

	DLB_GROW(s->t, s->n, s->cap);
	if (s->cap != cap)
		s->borrowed = dlb_xrealloc(s->borrowed, (size_t)s->cap, sizeof *s->borrowed);
	s->borrowed[s->n] = borrowed;
	s->t[s->n] = (struct dlb_st_tensor){ .name = name, .desc = desc, .data = data };
	return &s->t[s->n++];
}

static const struct dlb_st_tensor *find(const struct saved *s, const char *name)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->t[i].name, name))
			return &s->t[i];
	return NULL;
}

static void release(struct saved *s)
{
	for (int i = 0; i < s->n; i++)
		if (!s->borrowed[i])
			free((void *)(uintptr_t)s->t[i].data);
	free(s->t);
	free(s->borrowed);
}

/* Recomputes an initializer of the model that was derived from weights. One with a part that is no weight of
 * the graph keeps its old value. */
static int add_derived(struct saved *s, const struct dlb_derived *d, struct dlb_error *err)
{
	const void **source = dlb_xcalloc((size_t)d->n_parts, sizeof *source);
	struct dlb_desc desc = { .n_dims = d->n_dims };
	bool all = true, fits = true;

	memcpy(desc.dim, d->dim, sizeof desc.dim);
	for (int i = 0; i < d->n_parts && all; i++) {
		const struct dlb_st_tensor *of = find(s, d->part[i].of);
		struct dlb_desc want = { .n_dims = d->part[i].n_dims };
		memcpy(want.dim, d->part[i].dim, sizeof want.dim);
		all = of != NULL;
		if (!of)
			break;
		fits &= dlb_desc_same_shape(&want, &of->desc) && (!i || of->desc.dtype == desc.dtype);
		desc.dtype = of->desc.dtype;
		source[i] = of->data;
	}
	if (all && fits) {
		void *v = dlb_xcalloc((size_t)dlb_desc_count(&desc) + 1, dlb_dtype_bytes(desc.dtype));
		dlb_derived_value(d, source, dlb_dtype_bytes(desc.dtype), v);
		add(s, d->name, desc, v, false);
	}
	free(source);
	return fits ? 0 : dlb_fail(err, d->name, "the weights that it is made of have other shapes");
}

/* Whether the model has that tensor: those that come from the state_dict alone are in it only as parts of
 * others, and a slice only as a part of its initializer. */
static bool is_in_model(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_derived; i++)
		if (!strcmp(g->derived[i].name, name))
			return false;
	for (int i = 0; i < g->n_unmerged; i++)
		if (!strcmp(g->unmerged[i].name, name))
			return true;
	for (int t = 0; t < g->n_tensors; t++)
		if (!strcmp(g->tensor[t].name, name))
			return g->tensor[t].in_model || !g->tensor[t].in_state;
	return true;
}

static int save_onnx(const struct dlb_graph *g, const char *path, struct saved *s, struct dlb_error *err)
{
	const int n = s->n;
	int rc = g->model_path ? 0 : no_model(path, err), k = 0;

	for (int i = 0; i < g->n_derived && !rc; i++)
		rc = add_derived(s, &g->derived[i], err);
	struct dlb_named *tensor = dlb_xcalloc((size_t)s->n + 1, sizeof *tensor);
	for (int i = 0; i < s->n; i++)
		if (i >= n || is_in_model(g, s->t[i].name))
			tensor[k++] = (struct dlb_named){ s->t[i].name, s->t[i].desc, s->t[i].data };
	if (!rc)
		rc = dlb_onnx_save_apart(g->model_path, path, tensor, k, g->unmerged, g->n_unmerged, err);
	free(tensor);
	return rc;
}

/* With a state_dict: writes the weights under all their names, and its other tensors unchanged. */
static int save_safetensors(const struct dlb_graph *g, const char *path, struct saved *s,
			    struct dlb_error *err)
{
	struct dlb_safetensors state = { .n = 0 };
	const int n = s->n;
	int rc = 0;

	for (int t = 0; t < g->n_tensors; t++)
		for (int i = 0; i < n && g->tensor[t].also; i++)
			for (int k = 0; !strcmp(s->t[i].name, g->tensor[t].name) && g->tensor[t].also[k]; k++)
				add(s, g->tensor[t].also[k], s->t[i].desc, s->t[i].data, true);
	if (g->state_path)
		rc = dlb_safetensors_read(g->state_path, &state, err);
	for (int i = 0; i < state.n && !rc; i++)
		if (!find(s, state.tensor[i].name))
			add(s, state.tensor[i].name, state.tensor[i].desc, state.tensor[i].data, true);
	if (!rc)
		rc = dlb_safetensors_write(path, s->t, s->n, NULL, err);
	dlb_safetensors_release(&state);
	return rc;
}

/* Copies a slice into its tensor, the last one of the list or one before. Takes `host`. */
static void put_part(struct saved *s, const struct dlb_tensor *x, void *host)
{
	const struct dlb_desc d = dlb_slice_desc(x->slice, x->dtype);
	const struct dlb_st_tensor *whole = find(s, x->slice->of);

	if (!whole)
		whole = add(s, x->slice->of, d, dlb_xcalloc(dlb_desc_bytes(&d) + 1, 1), false);
	dlb_slice_put(x->slice, dlb_dtype_bytes(x->dtype), host, (void *)(uintptr_t)whole->data);
	free(host);
}

int dlb_weights_check_path(const char *path, const struct dlb_graph *g, struct dlb_error *err)
{
	if (is_onnx(path) && !g->model_path)
		return no_model(path, err);
	return dlb_output_check(path, err);
}

/* The file that rank 0 writes; here: this is rank 0 and nothing has failed. */
struct weights_writing { const char *path; const struct dlb_graph *g; struct saved *all; bool here; };

static int write_all(void *ctx, struct dlb_error *err)
{
	const struct weights_writing *w = ctx;

	if (!w->here)
		return 0;
	return is_onnx(w->path) ? save_onnx(w->g, w->path, w->all, err)
				: save_safetensors(w->g, w->path, w->all, err);
}

int dlb_weights_save(const char *path, struct dlb_comm *comm, const struct dlb_state *s,
		     struct dlb_error *err)
{
	const struct dlb_graph *g = s->graph;
	struct saved all = { .n = 0 };
	struct weights_writing writing = { .path = path, .g = g, .all = &all };
	int rc = 0;

	for (int t = 0; t < g->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ?
				   dlb_state_home(g, s->first_placement, t) :
				   -1;
		void *host = NULL;

		if (home < 0 && !x->frozen)
			continue;
		rc = home < 0 ? copy_frozen(comm, x, &host, err) : collect(comm, s, t, home, &host, err);
		if (host && x->slice)
			put_part(&all, x, host);
		else if (host)
			add(&all, x->name, dlb_tensor_desc(x, 1), host, false);
	}
	if (!rc)
		rc = s->be->ops->sync(s->be, err);
	/* the file that is there stays if a rank has no values */
	rc = dlb_comm_agree(comm, rc, err, NULL);
	writing.here = !rc && dlb_comm_rank(comm) == 0;
	if (dlb_comm_await_all(comm, write_all, &writing, err))	/* the disk may take longer than --timeout */
		rc = -1;
	release(&all);
	return dlb_comm_agree(comm, rc, err, NULL);
}
