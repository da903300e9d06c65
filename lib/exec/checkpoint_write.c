/* Writes weights, buffers and optimizer state, and their places into the manifest. See checkpoint_files.h. */
#define _XOPEN_SOURCE 700
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/checkpoint_files.h"
#include "exec/state.h"
#include "graph/slice.h"
#include "graph/tensor_json.h"
#include "model/safetensors.h"
#include "util/hash.h"
#include "util/output.h"

const char *dlb_checkpoint_slot_name(struct dlb_arena *a, int rule, int k, const char *weight)
{
	return dlb_arena_printf(a, "optimizer/%s/%s", dlb_optimizers[rule].state_name[k], weight);
}

/* The shape of this replica's share of weight t or of its optimizer state: one dimension. */
static struct dlb_desc share_desc(const struct dlb_state *s, int t)
{
	return (struct dlb_desc){ .dtype = s->graph->tensor[t].dtype,
				  .n_dims = 1,
				  .dim = { dlb_state_share(s, t).n } };
}

bool dlb_checkpoint_is_constant(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];

	return x->kind == DLB_T_WEIGHT && (x->home < 0 || g->op[x->home].phase != DLB_UPDATE);
}

/* Lists the tensors of a part. *list: new; *slot: new, the number of each optimizer state, -1: a weight or
 * buffer. Returns the number of tensors. */
static int list_part(const struct dlb_state *s, bool changed, struct dlb_arena *a,
		     struct dlb_st_tensor **list, int **slot)
{
	const size_t most = (size_t)s->graph->n_tensors * (size_t)(1 + s->n_slots) + 1;
	int n = 0;

	*list = dlb_xmalloc(most * sizeof **list);
	*slot = dlb_xmalloc(most * sizeof **slot);
	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		const struct dlb_desc d = dlb_tensor_desc(x, 1);
		const bool divided = dlb_state_gathers(s, t);

		if (s->value[t] && (divided || dlb_state_is_kept(s)) &&
		    !(changed && dlb_checkpoint_is_constant(s->graph, t))) {
			(*slot)[n] = -1;
			(*list)[n++] = (struct dlb_st_tensor){ x->name, divided ? share_desc(s, t) : d,
							       s->value[t] };
		}
		for (int k = 0; k < s->n_slots && (dlb_state_is_kept(s) || s->n_shares > 1); k++) {
			if (!s->slot[k][t])
				continue;
			(*slot)[n] = k;
			(*list)[n++] = (struct dlb_st_tensor){
				dlb_checkpoint_slot_name(a, s->rule, k, x->name),
				s->n_shares > 1 ? share_desc(s, t) : d, s->slot[k][t]
			};
		}
	}
	return n;
}

int dlb_checkpoint_part_tensors(const struct dlb_state *s, bool changed, struct dlb_arena *a,
				struct dlb_st_tensor **out)
{
	int *slot, n = list_part(s, changed, a, out, &slot);

	free(slot);
	return n;
}

/* Bytes of an array of shape d in the node's memory, where states may have a narrower type. */
static size_t kept_bytes(const struct dlb_state *s, int slot, const struct dlb_desc *d)
{
	return slot < 0 ? dlb_desc_bytes(d) :
			  dlb_state_bytes(s->dtype, dlb_dtype_bytes(d->dtype), dlb_desc_count(d),
					  dlb_state_chunks(s));
}

/* Converts *host from the node's type of states to f32: frees the old array; the new one is *host. */
static void widen(const struct dlb_state *s, int slot, const struct dlb_desc *d, void **host)
{
	void *wide = dlb_xmalloc(dlb_desc_bytes(d) + 1);

	dlb_state_decode(dlb_optimizer_code(s->rule, s->dtype, slot), dlb_desc_count(d), dlb_state_chunks(s),
			 *host, wide);
	free(*host);
	*host = wide;
}

int dlb_checkpoint_write_part(const char *dir, int rank, const struct dlb_state *s, char sha256[65],
			      struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct dlb_st_tensor *list;
	int *slot;
	const int n = list_part(s, false, &a, &list, &slot);
	void **host = dlb_xcalloc((size_t)n + 1, sizeof *host);
	char *path = dlb_xprintf("%s/part-%d.safetensors", dir, rank);
	int rc = 0;

	sha256[0] = 0;
	for (int i = 0; i < n; i++) {
		const size_t bytes = kept_bytes(s, slot[i], &list[i].desc);

		host[i] = dlb_xmalloc(bytes + 1);
		s->be->ops->download(s->be, host[i], list[i].data, bytes);
	}
	rc = n ? s->be->ops->sync(s->be, err) : 0;
	for (int i = 0; i < n && !rc; i++) {
		if (slot[i] >= 0 && s->dtype != DLB_STATE_F32)
			widen(s, slot[i], &list[i].desc, &host[i]);
		list[i].data = host[i];
	}
	if (n && !rc)
		rc = dlb_safetensors_write_summed(path, list, n, NULL, sha256, err);
	for (int i = 0; i < n; i++)
		free(host[i]);
	free(host);
	free(list);
	free(slot);
	dlb_arena_release(&a);
	free(path);
	return rc;
}

/* Records the place of tensor x: the name of its part file or, for a slice, an entry in the list of the whole
 * tensor's slices. */
static void put_place(json_t *tensors, const struct dlb_tensor *x, int home)
{
	const struct dlb_slice *sl = x->slice;

	if (!sl) {
		json_object_set_new(tensors, x->name, json_sprintf("part-%d.safetensors", home));
		return;
	}
	json_t *list = json_object_get(tensors, sl->of), *o;

	if (!list)
		json_object_set_new(tensors, sl->of, list = json_array());
	o = json_pack("{s:s, s:o}", "name", x->name, "part", json_sprintf("part-%d.safetensors", home));
	dlb_slice_write(sl, o);
	json_array_append_new(list, o);
}

/* Records the shares of weight t or of its optimizer states, one per replica, in the order of replicas. */
static void put_shares(json_t *shares, const struct dlb_state *s, int t)
{
	const struct dlb_tensor *x = &s->graph->tensor[t];
	const struct dlb_desc d = dlb_tensor_desc(x, 1);
	json_t *list = json_array();

	for (int r = 0; r < s->n_shares; r++) {
		const struct dlb_share share = dlb_share_of(dlb_desc_count(&d), s->n_shares, r);

		json_array_append_new(list,
				      json_pack("{s:o, s:I, s:I}", "part",
						json_sprintf("part-%d.safetensors",
							     s->replica[r][dlb_state_home(s->graph,
											  s->first_placement,
											  t)]),
						"first", (json_int_t)share.first, "count",
						(json_int_t)share.n));
	}
	json_object_set_new(shares, x->name, list);
}

/* Records the frozen weights (freeze.h), which have no optimizer state. */
static void put_frozen(json_t *m, const struct dlb_graph *g)
{
	json_t *list = json_array();

	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];

		if (x->kind == DLB_T_WEIGHT && x->frozen && (!x->slice || !x->slice->first))
			json_array_append_new(list, json_string(x->slice ? x->slice->of : x->name));
	}
	if (json_array_size(list))
		json_object_set(m, "frozen", list);
	json_decref(list);
}

/* Writes m to path and frees m. sha256: filled with the file's checksum; may be NULL. */
static int write_json(const char *path, json_t *m, char *sha256, struct dlb_error *err)
{
	char *text = json_dumps(m, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
	struct dlb_output o;
	int rc = text ? dlb_output_open(&o, path, err) : dlb_fail(err, path, "a name is not UTF-8 text");

	if (!rc) {
		fprintf(o.f, "%s\n", text);
		rc = dlb_output_commit(&o, err);
	}
	if (!rc && sha256) {
		struct dlb_sha256 *sum = dlb_sha256_new();

		dlb_sha256_add(sum, text, strlen(text));
		dlb_sha256_add(sum, "\n", 1);
		dlb_sha256_end(sum, sha256);
	}
	free(text);
	json_decref(m);
	return rc;
}

int dlb_checkpoint_write_names(const char *dir, int n_ranks, struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/" DLB_CHECKPOINT_MANIFEST, dir);
	json_t *files = json_array();
	int rc;

	for (int i = 0; i < n_ranks; i++) {
		json_array_append_new(files, json_sprintf("part-%d.safetensors", i));
		json_array_append_new(files, json_sprintf("kept-%d.safetensors", i));
	}
	json_array_append_new(files, json_string(DLB_CHECKPOINT_SUMS));
	rc = write_json(path,
			json_pack("{s:s, s:o}", "dlb-checkpoint", DLB_CHECKPOINT_FORMAT, "files", files),
			NULL, err);
	free(path);
	return rc;
}

/* The manifest's members for the progress of training. */
static json_t *progress_json(const struct dlb_state *s, const struct dlb_progress_state *p)
{
	json_t *m = json_pack("{s:s, s:I, s:I, s:I, s:s, s:I}", "dlb-checkpoint", DLB_CHECKPOINT_FORMAT,
			      "step", (json_int_t)p->step, "epoch", (json_int_t)p->epoch, "position",
			      (json_int_t)p->position, "optimizer",
			      s->rule >= 0 ? dlb_optimizers[s->rule].name : "none", "since_best",
			      (json_int_t)p->since_best);

	if (s->dtype != DLB_STATE_F32)
		dlb_set_str(m, "state_dtype", dlb_state_dtypes[s->dtype]);
	/* a seed of 64 unsigned bits does not fit a signed JSON integer, so it is text */
	json_object_set_new(m, "seed", json_sprintf("%llu", (unsigned long long)p->seed));
	dlb_set_real(m, "best_loss", p->best_loss);
	if (isfinite(p->best_test_loss)) {
		dlb_set_real(m, "best_test_loss", p->best_test_loss);
		dlb_set_int(m, "best_test_step", p->best_test_step);
	}
	return m;
}

/* Sets o as member `name` of m, unless o is empty; takes o. */
static void put_filled(json_t *m, const char *name, json_t *o)
{
	if (json_object_size(o))
		json_object_set(m, name, o);
	json_decref(o);
}

/* Records the part file of each tensor: the members `tensors`, `shares`, `weight_shares` and `frozen`. */
static void put_places(json_t *m, const struct dlb_state *s, bool changed)
{
	json_t *tensors = json_object(), *shares = json_object(), *weight_shares = json_object();

	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		int home = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ?
				   dlb_state_home(s->graph, s->first_placement, t) :
				   -1;

		if (home >= 0 && !(changed && dlb_checkpoint_is_constant(s->graph, t)))
			put_place(tensors, x, home);
		if (home >= 0 && dlb_state_is_divided(s, t))
			put_shares(shares, s, t);
		if (home >= 0 && dlb_state_gathers(s, t))
			put_shares(weight_shares, s, t);
	}
	json_object_set_new(m, "tensors", tensors);
	put_frozen(m, s->graph);
	put_filled(m, "shares", shares);
	put_filled(m, "weight_shares", weight_shares);
}

char *dlb_checkpoint_places(const struct dlb_state *s, struct dlb_error *err)
{
	json_t *m = json_pack("{sb}", "changed", 1);
	char *text;

	put_places(m, s, true);
	text = json_dumps(m, JSON_COMPACT);
	json_decref(m);
	if (!text)
		dlb_fail(err, NULL, "a name is not UTF-8 text");
	return text;
}

int dlb_checkpoint_write_changed(const char *path, const char *places, const struct dlb_state *s,
				 const struct dlb_progress_state *p, struct dlb_error *err)
{
	json_t *m = progress_json(s, p), *rest = json_loads(places, 0, NULL);

	json_object_update(m, rest);
	json_decref(rest);
	return write_json(path, m, NULL, err);
}

int dlb_checkpoint_write_manifest(const char *dir, const struct dlb_state *s,
				  const struct dlb_progress_state *p, const struct dlb_sum *sum, int n,
				  struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/" DLB_CHECKPOINT_MANIFEST, dir);
	struct dlb_sum *all = dlb_xcalloc((size_t)n + 1, sizeof *all);
	json_t *m = progress_json(s, p), *files = json_array();
	int rc;

	for (int i = 0; i < n; i++) {
		all[i] = sum[i];
		json_array_append_new(files, json_string(sum[i].name));
	}
	json_array_append_new(files, json_string(DLB_CHECKPOINT_SUMS));
	json_object_set_new(m, "files", files);
	put_places(m, s, false);
	strcpy(all[n].name, DLB_CHECKPOINT_MANIFEST);
	rc = write_json(path, m, all[n].sha256, err) || dlb_sums_write(dir, all, n + 1, err) ? -1 : 0;
	free(all);
	free(path);
	return rc;
}
