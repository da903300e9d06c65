/* Loads weights from the model's file: see weights.h. */
#define _XOPEN_SOURCE 700	/* realpath */
#include "model/weights.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "graph/name_map.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "model/onnx.h"
#include "model/safetensors.h"
#include "util/hash.h"

/* Tensors of a file by name, in either format. skim: external data of an ONNX model are not hashed. */
struct store {
	const char *path;
	struct dlb_graph onnx;
	struct dlb_name_map names;		/* of the tensors in `onnx` */
	struct dlb_safetensors st;
	bool is_st;
};

static void close_store(struct store *s)
{
	dlb_name_map_release(&s->names);
	dlb_graph_release(&s->onnx);
	dlb_safetensors_release(&s->st);
}

static bool is_safetensors(const char *path)
{
	const size_t n = strlen(path);

	return n > 12 && !strcmp(path + n - 12, ".safetensors");
}

static int open_store(struct store *s, const char *path, const char *sha256, bool skim, struct dlb_error *err)
{
	int (*read)(const char *, struct dlb_graph *, struct dlb_error *) = skim ? dlb_onnx_skim :
										   dlb_onnx_read;
	char sha[65];

	*s = (struct store){ .path = path, .is_st = is_safetensors(path) };
	dlb_graph_init(&s->onnx);
	if (s->is_st ? dlb_safetensors_read(path, &s->st, err) : read(path, &s->onnx, err))
		return -1;
	/* dlb_onnx_read has already hashed the file */
	if (sha256 && !s->onnx.model_sha256 && dlb_sha256_file(path, sha, err)) {
		close_store(s);
		return -1;
	}
	if (sha256 && s->onnx.model_sha256)
		memcpy(sha, s->onnx.model_sha256, sizeof sha);
	if (sha256 && strcmp(sha, sha256) != 0) {
		close_store(s);
		dlb_fail(err, path,
			 "the model has changed since the document was made (SHA-256 %.12s..., not %.12s...)",
			 sha, sha256);
		return dlb_hint(err, "run dlb-profile again");
	}
	for (int i = 0; i < s->onnx.n_tensors; i++)
		dlb_name_map_add(&s->names, s->onnx.tensor[i].name, i);
	return 0;
}

/* Closes s, but gives the memory of the model that was read to g, because take() uses its data in place. g's
 * arena gets the mapped files; g->values, which can be dropped, gets the other data. */
static void keep(struct store *s, struct dlb_graph *g)
{
	dlb_arena_give_mapped(&s->onnx.arena, &g->arena);
	dlb_arena_give(&s->onnx.arena, &g->values);
	close_store(s);
}

/* Finds a tensor by name. Returns 1: found, 0: not there. */
static int look_up(const struct store *s, const char *name, struct dlb_desc *d, const void **data)
{
	if (s->is_st) {
		const struct dlb_st_tensor *t = dlb_safetensors_find(&s->st, name);
		if (t) {
			*d = t->desc;
			*data = t->data;
		}
		return t != NULL;
	}
	const int i = dlb_name_map_get(&s->names, name);
	if (i < 0 || !s->onnx.tensor[i].data)
		return 0;
	*d = dlb_tensor_desc(&s->onnx.tensor[i], 1);
	*data = s->onnx.tensor[i].data;
	return 1;
}

/* Converts `count` elements to another type, one by one. */
static void convert(void *to, enum dlb_dtype to_type, const void *from, const struct dlb_desc *have,
		    const struct dlb_slice *s, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		dlb_value_set(to, to_type, i,
			      dlb_value_real(from, have->dtype, s ? dlb_slice_index(s, i) : i));
}

/* Name of tensor t in the file, or of the tensor that t is a slice of. */
static const char *source_name(const struct dlb_tensor *t)
{
	return t->slice ? t->slice->of : t->from ? t->from : t->name;
}

/* Whether dlb_graph_drop_values drops the data of t. */
static bool is_dropped(const struct dlb_tensor *t)
{
	return t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER;
}

static int take(struct dlb_graph *g, struct dlb_tensor *t, const struct store *s, struct dlb_error *err)
{
	const struct dlb_desc want = t->slice ? dlb_slice_desc(t->slice, t->dtype) : dlb_tensor_desc(t, 1);
	const struct dlb_desc part = dlb_tensor_desc(t, 1);
	const char *name = source_name(t);
	struct dlb_desc have;
	const void *from;
	char a[120], b[120];

	if (!look_up(s, name, &have, &from))
		return dlb_refuse(err, s->path,
				  "give weights of this model: names are those of the graph's tensors",
				  "no tensor '%s'", name);
	bool follows = false;
	for (int k = 0; k < t->n_dims; k++)
		follows |= t->dim[k].mul != 0;
	if (follows || want.n_dims < 0 || !dlb_desc_same_shape(&want, &have))
		return dlb_refuse(err, s->path, "give weights of this model",
				"tensor '%s' is %s where the graph needs %s", name,
				dlb_desc_str(&have, a, sizeof a),
				want.n_dims < 0 ? "?" : dlb_desc_str(&want, b, sizeof b));
	const bool is_mapped = dlb_arena_maps(&s->onnx.arena, from), dropped = is_dropped(t);
	if (is_mapped && s->onnx.external_unread && !dropped &&
	    dlb_onnx_check_finite(s->path, &have, from, name, err))
		return -1;
	/* used in place: keep() gives the arena to g */
	if (have.dtype == t->dtype && !s->is_st && !t->slice && (is_mapped || dropped)) {
		t->data = from;
		t->is_fill = false;
		return 0;
	}
	const int64_t count = dlb_desc_count(&part);
	void *to = dlb_arena_array(dropped ? &g->values : &g->arena, count ? (size_t)count : 1,
				   dlb_dtype_bytes(t->dtype));
	if (have.dtype == t->dtype && t->slice)
		dlb_slice_take(t->slice, dlb_dtype_bytes(t->dtype), from, to);
	else if (have.dtype == t->dtype)
		memcpy(to, from, dlb_desc_bytes(&have));
	else if (dlb_dtype_is_float(have.dtype) && dlb_dtype_is_float(t->dtype))
		convert(to, t->dtype, from, &have, t->slice, count);
	else
		return dlb_refuse(err, s->path, "give weights of this model",
				"tensor '%s' is %s where the graph needs %s", name,
				dlb_dtype_name(have.dtype), dlb_dtype_name(t->dtype));
	t->data = to;
	t->is_fill = false;
	return 0;
}

static bool is_state(const struct dlb_tensor *t)
{
	return t->start == DLB_START_MODEL &&
	       (t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER || t->frozen);
}

/* True if the data must be loaded from the model's file, or (in_state) from the state_dict file. */
static bool wanted(const struct dlb_tensor *t, bool in_state, bool constants_only)
{
	return (in_state ? t->in_state : t->in_model && !t->in_state) && !t->data && !t->is_fill &&
	       !(constants_only && is_state(t) && !t->frozen);
}

static int load_from(struct dlb_graph *g, bool in_state, bool constants_only, struct dlb_error *err)
{
	const char *path = in_state ? g->state_path : g->model_path;
	struct store s;
	bool missing = false;
	int rc = 0;

	for (int i = 0; i < g->n_tensors; i++)
		missing |= wanted(&g->tensor[i], in_state, constants_only);
	if (!missing)
		return 0;
	if (!path)
		return dlb_refuse(err, "/graph/model", "run dlb-profile on the ONNX model",
				  "the document names no %s to take weights from",
				  in_state ? "state_dict" : "model");
	if (open_store(&s, path, in_state ? g->state_sha256 : g->model_sha256, g->external_unread, err))
		return -1;
	for (int i = 0; i < g->n_tensors && !rc; i++)
		if (wanted(&g->tensor[i], in_state, constants_only))
			rc = take(g, &g->tensor[i], &s, err);
	keep(&s, g);
	return rc;
}

static int load_own(struct dlb_graph *g, bool constants_only, struct dlb_error *err)
{
	return load_from(g, false, constants_only, err) || load_from(g, true, constants_only, err) ? -1 : 0;
}

int dlb_graph_load_constants(struct dlb_graph *g, struct dlb_error *err)
{
	return load_own(g, true, err);
}

int dlb_graph_load_weights(struct dlb_graph *g, const char *path, struct dlb_error *err)
{
	struct store s;
	int rc = 0;

	if (path && (!g->model_path || strcmp(path, g->model_path) != 0)) {
		if (open_store(&s, path, NULL, false, err))
			return -1;
		for (int i = 0; i < g->n_tensors && !rc; i++)
			if (is_state(&g->tensor[i]))
				rc = take(g, &g->tensor[i], &s, err);
		keep(&s, g);
	}
	return rc ? rc : load_own(g, false, err);
}

int dlb_weights_sha256(const char *path, char out[65], struct dlb_error *err)
{
	struct dlb_graph g;

	if (is_safetensors(path))
		return dlb_sha256_file(path, out, err);
	if (dlb_onnx_read(path, &g, err))
		return -1;
	const int rc = g.model_sha256 ? 0 : dlb_sha256_file(path, out, err);
	if (g.model_sha256)
		memcpy(out, g.model_sha256, 65);
	dlb_graph_release(&g);
	return rc;
}

int dlb_graph_take_state_file(struct dlb_graph *g, const char *path, bool untie, struct dlb_safetensors *s,
			      struct dlb_error *err)
{
	char sha[65];
	char *full = realpath(path, NULL);

	if (!full)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	g->state_path = dlb_arena_strdup(&g->arena, full);
	free(full);
	if (dlb_sha256_file(path, sha, err) || dlb_safetensors_read(path, s, err))
		return -1;
	g->state_sha256 = dlb_arena_strdup(&g->arena, sha);
	struct dlb_named *entry = dlb_xcalloc((size_t)s->n + 1, sizeof *entry);
	for (int i = 0; i < s->n; i++)
		entry[i] = (struct dlb_named){ s->tensor[i].name, s->tensor[i].desc, s->tensor[i].data };
	const int rc = dlb_graph_take_state(g, entry, s->n, untie, err);
	free(entry);
	return rc ? dlb_error_at(err, path) : 0;
}
