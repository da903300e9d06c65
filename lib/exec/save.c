/* --save: weights and buffers of all nodes into one file. See checkpoint.h. */
#define _XOPEN_SOURCE 700
#include <stdlib.h>
#include <string.h>
#include "comm/await.h"
#include "exec/checkpoint.h"
#include "exec/state.h"
#include "graph/adapters.h"
#include "graph/derived.h"
#include "graph/slice.h"
#include "model/onnx.h"
#include "model/safetensors.h"
#include "util/mem.h"
#include "util/output.h"

/* Collects tensor t on rank 0: *out is on the heap there, NULL elsewhere. */
static int collect(struct dlb_comm *comm, const struct dlb_state *s, int t, int home, void **out,
		   struct dlb_error *err)
{
	const struct dlb_desc d = dlb_tensor_desc(&s->graph->tensor[t], 1);
	const size_t size = dlb_dtype_bytes(d.dtype);
	const int rank = dlb_comm_rank(comm);
	const int n_shares = dlb_state_gathers(s, t) ? s->n_shares : 1;
	char *whole = rank ? NULL : dlb_xmalloc(dlb_desc_bytes(&d) + 1);
	int rc = 0;

	for (int r = 0; r < n_shares && !rc; r++) {
		const struct dlb_share share = dlb_share_of(dlb_desc_count(&d), n_shares, r);
		const size_t bytes = (size_t)share.n * size, at = (size_t)share.first * size;
		const int node = n_shares > 1 ? s->replica[r][home] : home;
		struct dlb_request request = { 0 };
		char *host = rank == 0 ? whole + at : rank == node ? dlb_xmalloc(bytes + 1) : NULL;

		if (rank == node)
			s->be->ops->download(s->be, host, s->value[t], bytes);
		if (node && rank == 0)
			dlb_comm_irecv(comm, host, bytes, node, t, &request);
		else if (node && rank == node)
			dlb_comm_isend(comm, host, bytes, 0, t, &request);
		rc = host && node ? dlb_comm_wait(comm, &request, err) : 0;
		if (rank)
			free(host);
	}
	if (rc)
		free(whole);
	*out = rc ? NULL : whole;
	return rc;
}

/* Copies a frozen parameter on rank 0. It is a constant, whose data every rank has. */
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

/* Recomputes an initializer of the model that was derived from weights. If one of its parts is no weight of
 * the graph, it keeps its old value. */
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
		dlb_derived_value(d, source, desc.dtype, v);
		add(s, d->name, desc, v, false);
	}
	free(source);
	return fits ? 0 : dlb_fail(err, d->name, "the weights that it is made of have other shapes");
}

/* Whether the model has a tensor of that name. Tensors that come from the state_dict alone, and slices, are
 * only parts of its initializers. */
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

/* Writes the weights under all their names and, with a state_dict, its other tensors unchanged. */
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

/* -- adapters -- */

static int refuse_adapter(const struct dlb_adapter *ad, struct dlb_error *err)
{
	return dlb_fail(err, ad->of, "the adapter '%s' or its weight has no values", ad->a);
}

static bool is_adapter(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_adapters; i++)
		if (!strcmp(g->adapter[i].a, name) || !strcmp(g->adapter[i].b, name))
			return true;
	return false;
}

/* Adds the adapters to the weights that they belong to, and removes them from s. */
static int merge_adapters(const struct dlb_graph *g, struct saved *s, struct dlb_error *err)
{
	for (int i = 0; i < g->n_adapters; i++) {
		const struct dlb_adapter *ad = &g->adapter[i];
		const struct dlb_st_tensor *of = find(s, ad->of), *a = find(s, ad->a), *b = find(s, ad->b);

		if (!of || !a || !b || a->desc.n_dims != 2 || b->desc.n_dims != 2)
			return refuse_adapter(ad, err);
		dlb_adapter_merge(ad, of->desc.dtype, a->desc.dim[1], b->desc.dim[0], a->data, b->data,
				  (void *)(uintptr_t)of->data);
	}
	int n = 0;
	for (int i = 0; i < s->n; i++) {
		const bool part = is_adapter(g, s->t[i].name);
		if (part && !s->borrowed[i])
			free((void *)(uintptr_t)s->t[i].data);
		s->borrowed[n] = s->borrowed[i];
		s->t[n] = s->t[i];
		n += !part;
	}
	s->n = n;
	return 0;
}

/* The modules with parameters that are trained beside the adapters. */
static json_t *other_modules(const struct dlb_graph *g, struct dlb_arena *a)
{
	json_t *list = json_array();
	const char *last = "";

	for (int t = 0; t < g->n_tensors; t++) {
		const char *name = g->tensor[t].slice ? g->tensor[t].slice->of : g->tensor[t].name;
		const char *dot = strrchr(name, '.');
		if (g->tensor[t].kind != DLB_T_WEIGHT || is_adapter(g, name) || !dot)
			continue;
		const char *module = dlb_arena_printf(a, "%.*s", (int)(dot - name), name);
		if (strcmp(module, last))
			json_array_append_new(list, json_string(module));
		last = module;
	}
	return list;
}

/* PEFT's description of the adapters (LoraConfig). Its patterns list ranks and alphas that differ from the
 * first adapter's. */
static json_t *adapter_config(const struct dlb_graph *g, struct dlb_arena *a)
{
	json_t *modules = json_array(), *ranks = json_object(), *alphas = json_object();
	const struct dlb_adapter *const first = &g->adapter[0];
	const double alpha = first->scale * first->rank;
	bool by_inputs = true;

	for (int i = 0; i < g->n_adapters; i++) {
		const struct dlb_adapter *ad = &g->adapter[i];
		const char *module = dlb_adapter_module(ad, a);

		by_inputs &= !ad->transposed;
		json_array_append_new(modules, json_string(module));
		if (ad->rank != first->rank)
			dlb_set_int(ranks, module, ad->rank);
		if (ad->scale * ad->rank != alpha)
			dlb_set_real(alphas, module, ad->scale * ad->rank);
	}
	return json_pack("{s:s, s:i, s:f, s:f, s:s, s:b, s:o, s:o, s:o, s:o}", "peft_type", "LORA", "r",
			 first->rank, "lora_alpha", alpha, "lora_dropout", 0.0, "bias", "none",
			 "fan_in_fan_out", by_inputs, "target_modules", modules, "modules_to_save", other_modules(g, a),
			 "rank_pattern", ranks, "alpha_pattern", alphas);
}

/* Writes PEFT's adapter_config.json beside the file at path if that has PEFT's name. */
static int write_config(const struct dlb_graph *g, const char *path, struct dlb_error *err)
{
	static const char adapters[] = "adapter_model.safetensors";
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct dlb_arena a = { 0 };
	struct dlb_output o;
	int rc = 0;

	if (!g->n_adapters || strcmp(name, adapters))
		return 0;
	const char *beside = dlb_arena_printf(&a, "%.*sadapter_config.json", (int)(name - path), path);
	if (dlb_output_open(&o, beside, err)) {
		rc = -1;
	} else {
		json_t *config = adapter_config(g, &a);
		json_dumpf(config, o.f, JSON_INDENT(2));
		fputc('\n', o.f);
		json_decref(config);
		rc = dlb_output_commit(&o, err);
	}
	dlb_arena_release(&a);
	return rc;
}

/* Writes the trained parameters of a graph with adapters, under PEFT's names. */
static int save_adapters(const struct dlb_graph *g, const char *path, struct saved *s,
			 struct dlb_error *err)
{
	struct dlb_arena a = { 0 };

	for (int i = 0; i < s->n; i++)
		if (!is_adapter(g, s->t[i].name))
			s->t[i].name = dlb_arena_printf(&a, DLB_ADAPTER_PREFIX "%s", s->t[i].name);
	int rc = dlb_safetensors_write(path, s->t, s->n, NULL, err);
	rc = rc ? rc : write_config(g, path, err);
	dlb_arena_release(&a);
	return rc;
}

/* -- all -- */

/* Copies a slice, `host`, into its tensor in s, which is added if it is not there yet. Frees `host`. */
static void put_part(struct saved *s, const struct dlb_tensor *x, void *host)
{
	const struct dlb_desc d = dlb_slice_desc(x->slice, x->dtype);
	const struct dlb_st_tensor *whole = find(s, x->slice->of);

	if (!whole)
		whole = add(s, x->slice->of, d, dlb_xcalloc(dlb_desc_bytes(&d) + 1, 1), false);
	dlb_slice_put(x->slice, dlb_dtype_bytes(x->dtype), host, (void *)(uintptr_t)whole->data);
	free(host);
}

int dlb_weights_check_path(const char *path, bool merge, const struct dlb_graph *g,
			   struct dlb_error *err)
{
	if (is_onnx(path) && !g->model_path)
		return no_model(path, err);
	if (is_onnx(path) && g->n_adapters && !merge)
		return dlb_refuse(err, NULL, "give --merge, which adds them to the model's weights",
				  "cannot save '%s': an ONNX model has no adapters", path);
	for (int t = 0; t < g->n_tensors && is_onnx(path); t++)
		if (g->tensor[t].kind == DLB_T_BUFFER && !g->tensor[t].in_model && !g->tensor[t].in_state)
			return dlb_refuse(
				err, NULL, "save as .safetensors",
				"cannot save '%s': the model has no tensor for '%s', which dlb-profile added",
				path, g->tensor[t].name);
	return dlb_output_check(path, err);
}

/* The file that rank 0 writes; here: this is rank 0 and nothing has failed. */
struct weights_writing {
	const char *path;
	const struct dlb_graph *g;
	struct saved *all;
	bool here, apart;		/* apart: adapters without the weights that they belong to */
};

static int write_all(void *ctx, struct dlb_error *err)
{
	const struct weights_writing *w = ctx;

	if (!w->here)
		return 0;
	if (w->apart)
		return save_adapters(w->g, w->path, w->all, err);
	if (merge_adapters(w->g, w->all, err))
		return -1;
	return is_onnx(w->path) ? save_onnx(w->g, w->path, w->all, err)
				: save_safetensors(w->g, w->path, w->all, err);
}

int dlb_weights_save(const char *path, bool merge, struct dlb_comm *comm, const struct dlb_state *s,
		     struct dlb_error *err)
{
	const struct dlb_graph *g = s->graph;
	struct saved all = { .n = 0 };
	struct weights_writing writing = {
		.path = path, .g = g, .all = &all, .apart = g->n_adapters && !merge
	};
	int rc = 0;

	for (int t = 0; t < g->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ?
				   dlb_state_home(g, s->first_placement, t) :
				   -1;
		void *host = NULL;

		if (home < 0 && (!x->frozen || writing.apart))
			continue;
		rc = home < 0 ? copy_frozen(comm, x, &host, err) : collect(comm, s, t, home, &host, err);
		if (host && x->slice)
			put_part(&all, x, host);
		else if (host)
			add(&all, x->name, dlb_tensor_desc(x, 1), host, false);
	}
	if (!rc)
		rc = s->be->ops->sync(s->be, err);
	/* an existing file stays if a rank has no values */
	rc = dlb_comm_agree(comm, rc, err, NULL);
	writing.here = !rc && dlb_comm_rank(comm) == 0;
	if (dlb_comm_await_all(comm, write_all, &writing, err))	/* the disk may take longer than --timeout */
		rc = -1;
	release(&all);
	return dlb_comm_agree(comm, rc, err, NULL);
}
