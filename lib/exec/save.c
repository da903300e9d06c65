/* See checkpoint.h: --save. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "exec/checkpoint.h"
#include "model/file.h"
#include "model/onnx.h"
#include "model/safetensors.h"
#include "util/mem.h"

/* Brings tensor t to rank 0's heap (returned on rank 0, NULL elsewhere). */
static int collect(struct dlb_comm *comm, const struct dlb_state *s, int t, int home, void **out, struct dlb_error *err)
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

/* A frozen parameter is a constant: every rank has its data. */
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

static int save_onnx(const struct dlb_graph *g, const char *path, const struct dlb_st_tensor *t, int n, struct dlb_error *err)
{
	const char **name = dlb_xcalloc((size_t)n + 1, sizeof *name);
	const void **data = dlb_xcalloc((size_t)n + 1, sizeof *data);
	struct dlb_desc *desc = dlb_xcalloc((size_t)n + 1, sizeof *desc);
	int rc;

	for (int i = 0; i < n; i++) {
		name[i] = t[i].name;
		data[i] = t[i].data;
		desc[i] = t[i].desc;
	}
	if (g->model_path)
		rc = dlb_onnx_save(g->model_path, path, name, data, desc, n, err);
	else
		rc = no_model(path, err);
	free(name);
	free(data);
	free(desc);
	return rc;
}

/* A part goes into its tensor, the last of the list or one before; takes `host`. Returns how many there are now. */
static int put_part(struct dlb_st_tensor *st, int n, const struct dlb_tensor *x, void *host)
{
	const struct dlb_desc d = dlb_slice_desc(x->slice, x->dtype);
	int i = n - 1;

	while (i >= 0 && strcmp(st[i].name, x->slice->of) != 0)
		i--;
	if (i < 0) {
		i = n++;
		st[i] = (struct dlb_st_tensor){ .name = x->slice->of, .desc = d, .data = dlb_xcalloc(dlb_desc_bytes(&d) + 1, 1) };
	}
	dlb_slice_put(x->slice, dlb_dtype_bytes(x->dtype), host, (void *)(uintptr_t)st[i].data);
	free(host);
	return n;
}

int dlb_weights_check_path(const char *path, const struct dlb_graph *g, struct dlb_error *err)
{
	struct dlb_aside a;
	struct stat st;

	if (is_onnx(path) && !g->model_path)
		return no_model(path, err);
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(EISDIR));
	if (dlb_aside_open(&a, path, err))
		return -1;
	dlb_aside_abort(&a);
	return 0;
}

int dlb_weights_save(const char *path, struct dlb_comm *comm, const struct dlb_state *s, struct dlb_error *err)
{
	const struct dlb_graph *g = s->graph;
	size_t n = (size_t)g->n_tensors + 1;
	struct dlb_st_tensor *st = dlb_xcalloc(n, sizeof *st);
	int k = 0, rc = 0;

	for (int t = 0; t < g->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ? dlb_state_home(g, s->first_placement, t) : -1;
		void *host = NULL;

		if (home < 0 && !x->frozen)
			continue;
		rc = home < 0 ? copy_frozen(comm, x, &host, err) : collect(comm, s, t, home, &host, err);
		if (host && x->slice)
			k = put_part(st, k, x, host);
		else if (host)
			st[k++] = (struct dlb_st_tensor){ .name = x->name, .desc = dlb_tensor_desc(x, 1), .data = host };
	}
	if (!rc && dlb_comm_rank(comm) == 0)
		rc = is_onnx(path) ? save_onnx(g, path, st, k, err) : dlb_safetensors_write(path, st, k, NULL, err);
	for (int i = 0; i < k; i++)
		free((void *)(uintptr_t)st[i].data);
	free(st);
	return dlb_comm_agree(comm, rc, err, NULL);
}
