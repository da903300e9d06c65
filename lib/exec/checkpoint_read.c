/* Reads a checkpoint on any number of nodes, whatever the splits of tensors in the checkpoint and now. See
 * checkpoint_files.h. */
#define _XOPEN_SOURCE 700
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "exec/checkpoint_files.h"
#include "exec/state.h"
#include "graph/slice.h"
#include "model/safetensors.h"
#include "util/input.h"

/* Greater than any step count, and small enough to be added to without overflow. */
#define MOST_STEPS INT64_C(1000000000000000)

struct manifest {
	char dir[4096];
	json_t *json;			/* owned */
	struct dlb_progress_state p;
	const char *optimizer;
	/* the format is unknown; the members p and optimizer are not filled */
	bool external;
};

/* Reads member `key`: an integer from 0 to MOST_STEPS. */
static bool read_count(const json_t *j, const char *key, bool needed, int64_t *out)
{
	const json_t *v = json_object_get(j, key);

	*out = json_integer_value(v);
	return (json_is_integer(v) || (!v && !needed)) && *out >= 0 && *out <= MOST_STEPS;
}

static int read_members(const char *path, int64_t step, struct manifest *m, struct dlb_error *err)
{
	const json_t *j = m->json, *best = json_object_get(j, "best_loss"),
		     *best_test = json_object_get(j, "best_test_loss");
	struct dlb_progress_state *p = &m->p;
	const char *seed = json_string_value(json_object_get(j, "seed")),
		   *state_dtype = json_string_value(json_object_get(j, "state_dtype"));
	const int kept = state_dtype ? dlb_state_dtype_find(state_dtype) : DLB_STATE_F32;
	bool ok = read_count(j, "step", true, &p->step) && read_count(j, "epoch", true, &p->epoch) &&
		  read_count(j, "position", true, &p->position) &&
		  read_count(j, "since_best", false, &p->since_best) &&
		  read_count(j, "best_test_step", false, &p->best_test_step);

	p->best_loss = json_is_number(best) ? json_number_value(best) : HUGE_VAL;
	p->best_test_loss = json_is_number(best_test) ? json_number_value(best_test) : HUGE_VAL;
	m->optimizer = json_string_value(json_object_get(j, "optimizer"));
	if (!ok || !seed || kept < 0 || !m->optimizer || !json_is_object(json_object_get(j, "tensors")) ||
	    p->step != step)
		return dlb_fail(err, path, "a member is missing or out of range");
	p->seed = strtoull(seed, NULL, 10);
	p->state_dtype = (enum dlb_state_dtype)kept;
	return 0;
}

static int manifest_read(const char *dir, int64_t step, struct manifest *m, struct dlb_error *err)
{
	char path[4200];
	unsigned char *text;
	const char *format;
	json_error_t je;
	size_t n;

	if (snprintf(m->dir, sizeof m->dir, "%s/step-%lld", dir, (long long)step) >= (int)sizeof m->dir)
		return dlb_fail(err, NULL, "the name of checkpoint folder '%.100s...' is too long", dir);
	snprintf(path, sizeof path, "%s/" DLB_CHECKPOINT_MANIFEST, m->dir);
	if (dlb_input_read(path, &text, &n, err))
		return -1;
	m->json = json_loadb((const char *)text, n, 0, &je);
	free(text);
	if (!m->json)
		return dlb_fail(err, path, "%d:%d: %s", je.line, je.column, je.text);
	format = json_string_value(json_object_get(m->json, "dlb-checkpoint"));
	if (!format)
		return dlb_fail(err, path, "not a checkpoint's manifest");
	m->external = strncmp(format, "1.", 2) != 0;
	return m->external ? 0 : read_members(path, step, m, err);
}

bool dlb_checkpoint_manifest_list(const char *text, size_t n, struct dlb_checkpoint_list *list)
{
	json_t *j = json_loadb(text, n, 0, &(json_error_t){ .line = 0 });
	const bool ours = json_is_string(json_object_get(j, "dlb-checkpoint"));
	const json_t *files = json_object_get(j, "files"), *name;
	size_t i;

	list->old = !json_is_array(files);
	list->name = dlb_arena_array(&list->arena, json_array_size(files) + 1, sizeof *list->name);
	json_array_foreach(files, i, name)
		if (json_is_string(name) && !strchr(json_string_value(name), '/'))
			list->name[list->n++] = dlb_arena_strdup(&list->arena, json_string_value(name));
	json_decref(j);
	return ours;
}

/* ---- checking ---- */

/* Formats before 1.2: checks that all parts in the manifest are safetensors files of full length. */
static int check_parts(const struct manifest *m, struct dlb_error *err)
{
	json_t *tensors = json_object_get(m->json, "tensors"), *place, *e;
	const char *key, *last = "";
	size_t i;
	int rc = 0;

	json_object_foreach(tensors, key, place) {
		for (i = 0; i < (json_is_array(place) ? json_array_size(place) : 1) && !rc; i++) {
			e = json_is_array(place) ? json_object_get(json_array_get(place, i), "part") : place;
			struct dlb_safetensors st;
			const char *name = json_string_value(e);

			if (!name || strchr(name, '/') || !strcmp(name, last))
				continue;	/* an invalid entry is reported when its tensor is read */
			char *path = dlb_xprintf("%s/%s", m->dir, name);
			rc = dlb_safetensors_read(path, &st, err);
			dlb_safetensors_release(&st);
			free(path);
			last = name;
		}
	}
	return rc;
}

static int check_sums(const struct manifest *m, int rank, int n_ranks, struct dlb_error *err)
{
	const json_t *files = json_object_get(m->json, "files"), *e;
	struct dlb_sum *sum;
	bool found;
	size_t i;
	int n, rc = dlb_sums_read(m->dir, &sum, &n, &found, err);

	if (!rc && !found && !files)
		rc = check_parts(m, err);
	else if (!rc && !found)
		rc = dlb_fail(err, m->dir, "no file " DLB_CHECKPOINT_SUMS);
	else if (!rc && !dlb_sums_have(sum, n, DLB_CHECKPOINT_MANIFEST))
		rc = dlb_fail(err, m->dir,
			      "no checksum of " DLB_CHECKPOINT_MANIFEST " in " DLB_CHECKPOINT_SUMS);
	if (!rc && found)
		rc = dlb_sums_check(m->dir, sum, n, rank, n_ranks, err);
	json_array_foreach(files, i, e) {
		const char *name = json_string_value(e);

		if (!rc && (!name || (strcmp(name, DLB_CHECKPOINT_SUMS) && !dlb_sums_have(sum, n, name))))
			rc = dlb_fail(err, m->dir, "no checksum of '%.60s' in " DLB_CHECKPOINT_SUMS,
				      name ? name : "?");
	}
	free(sum);
	return rc;
}

int dlb_checkpoint_check(const char *dir, int64_t step, int rank, int n_ranks, struct dlb_error *err)
{
	struct manifest m = { .json = NULL };
	int rc = manifest_read(dir, step, &m, err);

	if (!rc && !m.external)
		rc = check_sums(&m, rank, n_ranks, err);
	json_decref(m.json);
	return rc;
}

/* ---- reading ---- */

/* Parts opened so far. */
struct part_file { char name[64]; struct dlb_safetensors st; };
struct part_files { struct part_file *part; int n, cap; };

static struct dlb_safetensors *part_open(struct part_files *ps, const char *dir, const char *name,
					 struct dlb_error *err)
{
	char *path;
	int rc;

	for (int i = 0; i < ps->n; i++)
		if (!strcmp(ps->part[i].name, name))
			return &ps->part[i].st;
	if (strchr(name, '/') || strlen(name) >= sizeof ps->part->name) {
		dlb_fail(err, dir, "part '%.100s' is not a file of the checkpoint", name);
		return NULL;
	}
	DLB_GROW(ps->part, ps->n, ps->cap);
	memset(&ps->part[ps->n], 0, sizeof *ps->part);
	strcpy(ps->part[ps->n].name, name);
	path = dlb_xprintf("%s/%s", dir, name);
	rc = dlb_safetensors_read(path, &ps->part[ps->n].st, err);
	free(path);
	return rc ? NULL : &ps->part[ps->n++].st;
}

/* Data of tensor `name`, of shape and type *want, in this part of the checkpoint; NULL with err. */
static const void *find_data(const struct dlb_safetensors *st, const char *dir, const char *name,
			     const struct dlb_desc *want, struct dlb_error *err)
{
	const struct dlb_st_tensor *t = dlb_safetensors_find(st, name);
	char a[128], b[128];

	if (!t) {
		dlb_fail(err, dir, "the checkpoint has no tensor '%s'", name);
		return NULL;
	}
	if (t->desc.dtype == want->dtype && dlb_desc_same_shape(&t->desc, want))
		return t->data;
	dlb_fail(err, dir, "tensor '%s' is %s in the checkpoint, %s in the model", name,
		 dlb_desc_str(&t->desc, a, sizeof a), dlb_desc_str(want, b, sizeof b));
	return NULL;
}

/* Reads the manifest's entry for one slice of a tensor. d: the shape of the slice. false: the entry is
 * invalid. */
static bool read_place(const json_t *e, struct dlb_slice *s, const char **name, const char **part,
		       struct dlb_desc *d)
{
	const json_t *shape = json_object_get(e, "shape");

	*name = json_string_value(json_object_get(e, "name"));
	*part = json_string_value(json_object_get(e, "part"));
	*s = (struct dlb_slice){ .n_dims = (int)json_array_size(shape) < DLB_MAX_DIMS ?
						   (int)json_array_size(shape) :
						   DLB_MAX_DIMS,
				 .axis = (int)json_integer_value(json_object_get(e, "axis")),
				 .units = json_integer_value(json_object_get(e, "units")),
				 .unit = json_integer_value(json_object_get(e, "unit")),
				 .first = json_integer_value(json_object_get(e, "first")),
				 .count = json_integer_value(json_object_get(e, "count")) };
	for (int i = 0; i < s->n_dims; i++)
		s->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
	if (!*name || !*part || s->n_dims < 1 || s->axis < 0 || s->axis >= s->n_dims || s->units < 1 ||
	    s->count < 1)
		return false;
	d->n_dims = s->n_dims;
	memcpy(d->dim, s->dim, sizeof d->dim);
	if (s->count > s->units || s->dim[s->axis] % s->units)
		return false;
	d->dim[s->axis] = s->dim[s->axis] / s->units * s->count;
	return dlb_slice_fits(s, d);
}

struct loading {
	const struct manifest *m;
	struct part_files *parts;
	const struct dlb_state *s;
	int slot;
	struct dlb_arena *a;
};

/* The name in the checkpoint of the tensor or of its optimizer state l->slot. */
static const char *kept_as(const struct loading *l, const char *name)
{
	return l->slot < 0 ? name : dlb_checkpoint_slot_name(l->a, l->s->rule, l->slot, name);
}

/* Marks the n elements of part s in `seen`, a byte for each element of the whole. true: one of them was marked
 * before. */
static bool overlaps(const struct dlb_slice *s, int64_t n, char *seen)
{
	char *part = dlb_xmalloc((size_t)n + 1);
	bool twice;

	dlb_slice_take(s, 1, seen, part);
	twice = memchr(part, 1, (size_t)n);
	memset(part, 1, (size_t)n);
	dlb_slice_put(s, 1, part, seen);
	free(part);
	return twice;
}

/* Reads and checks the manifest's entry for one share of a weight or optimizer state of n elements. */
static bool read_share(const json_t *e, int64_t n, struct dlb_share *share, const char **part)
{
	*part = json_string_value(json_object_get(e, "part"));
	*share = (struct dlb_share){ json_integer_value(json_object_get(e, "first")),
				     json_integer_value(json_object_get(e, "count")) };
	return *part && share->first >= 0 && share->n >= 0 && share->n <= n && share->first <= n - share->n;
}

/* Assembles the tensor `name`, or its optimizer state l->slot, of shape d, from the shares that replicas
 * wrote. New; NULL with err. */
static void *gather_shares(const struct loading *l, const json_t *list, const char *name,
			   const struct dlb_desc *d, struct dlb_error *err)
{
	const size_t bytes = dlb_dtype_bytes(d->dtype);
	const int64_t n = dlb_desc_count(d);
	char *whole = dlb_xcalloc(dlb_desc_bytes(d) + 1, 1), *seen = dlb_xcalloc((size_t)n + 1, 1);
	int64_t covered = 0;
	size_t i;
	json_t *e;

	json_array_foreach(list, i, e) {
		const char *file;
		struct dlb_share share;
		const struct dlb_safetensors *st = NULL;
		const void *data = NULL;

		if (!read_share(e, n, &share, &file)) {
			dlb_fail(err, l->m->dir, "the manifest does not say where the shares of '%s' are",
				 kept_as(l, name));
			goto bad;
		}
		const struct dlb_desc part = { .dtype = d->dtype, .n_dims = 1, .dim = { share.n } };
		if (share.n && !((st = part_open(l->parts, l->m->dir, file, err)) &&
				 (data = find_data(st, l->m->dir, kept_as(l, name), &part, err))))
			goto bad;
		const struct dlb_slice s = { .n_dims = 1,
					     .dim = { n },
					     .units = n,
					     .unit = 1,
					     .first = share.first,
					     .count = share.n };
		if (share.n && overlaps(&s, share.n, seen)) {
			dlb_fail(err, l->m->dir, "in the manifest shares of '%s' overlap", kept_as(l, name));
			goto bad;
		}
		if (share.n)
			memcpy(whole + (size_t)share.first * bytes, data, (size_t)share.n * bytes);
		covered += share.n;
	}
	if (covered == n) {
		free(seen);
		return whole;
	}
	dlb_fail(err, l->m->dir, "the checkpoint has not all shares of '%s'", kept_as(l, name));
bad:
	free(whole);
	free(seen);
	return NULL;
}

/* Data of tensor `name`, or of its optimizer state l->slot, from part `file` or, if replicas divided the
 * data, from their shares. *own: the new memory that holds the data, or NULL. */
static const void *whole_data(const struct loading *l, const char *name, const char *file,
			      const struct dlb_desc *d, void **own, struct dlb_error *err)
{
	const char *of = l->slot < 0 ? "weight_shares" : "shares";
	const json_t *shares = json_object_get(json_object_get(l->m->json, of), name);
	const struct dlb_safetensors *st;

	*own = NULL;
	if (json_is_array(shares))
		return *own = gather_shares(l, shares, name, d, err);
	st = part_open(l->parts, l->m->dir, file, err);
	return st ? find_data(st, l->m->dir, kept_as(l, name), d, err) : NULL;
}

/* Copies the slice of tensor `of` at place e into `whole`, of shape d, and marks its elements in `seen`.
 * Returns its number of elements; -1 with err. */
static int64_t gather_part(const struct loading *l, const json_t *e, const char *of, const struct dlb_desc *d,
			   void *whole, char *seen, struct dlb_error *err)
{
	struct dlb_desc part = { .dtype = d->dtype }, all;
	const char *name, *file;
	struct dlb_slice s;
	const void *data;
	void *own;

	if (!read_place(e, &s, &name, &file, &part))
		return dlb_fail(err, l->m->dir, "the manifest does not say where the parts of '%s' are", of);
	all = dlb_slice_desc(&s, d->dtype);
	if (!dlb_desc_same_shape(&all, d))
		return dlb_fail(err, l->m->dir, "'%s' has another shape in the checkpoint than in the model",
				of);
	if (overlaps(&s, dlb_desc_count(&part), seen))
		return dlb_fail(err, l->m->dir, "in the manifest parts of '%s' overlap", of);
	if (!(data = whole_data(l, name, file, &part, &own, err)))
		return -1;
	dlb_slice_put(&s, dlb_dtype_bytes(d->dtype), data, whole);
	free(own);
	return dlb_desc_count(&part);
}

/* Copies the slices of tensor `of`, which `list` places, into `whole`, of shape d. */
static int gather_parts(const struct loading *l, const json_t *list, const char *of, const struct dlb_desc *d,
			void *whole, struct dlb_error *err)
{
	char *seen = dlb_xcalloc((size_t)dlb_desc_count(d) + 1, 1);
	int64_t covered = 0, n = 0;
	size_t i;
	json_t *e;

	json_array_foreach(list, i, e) {
		if ((n = gather_part(l, e, of, d, whole, seen, err)) < 0)
			break;
		covered += n;
	}
	free(seen);
	return n < 0 ? -1 :
	       covered == dlb_desc_count(d) ?
		       0 :
		       dlb_fail(err, l->m->dir, "the checkpoint has not all of '%s'", of);
}

/* Uploads n elements to dst: a weight, a buffer, or an optimizer state, which is converted to the node's type
 * of states. */
static void upload(const struct loading *l, const void *from, enum dlb_dtype dtype, int64_t n, void *dst)
{
	const struct dlb_state *s = l->s;
	const int n_chunks = dlb_state_chunks(s);
	void *kept;

	if (l->slot < 0 || s->dtype == DLB_STATE_F32) {
		s->be->ops->upload(s->be, dst, from, (size_t)n * dlb_dtype_bytes(dtype));
		return;
	}
	kept = dlb_xcalloc(dlb_state_bytes(s->dtype, sizeof(float), n, n_chunks) + 1, 1);
	dlb_state_encode(dlb_optimizer_code(s->rule, s->dtype, l->slot), n, n_chunks, from, kept);
	s->be->ops->upload(s->be, dst, kept, dlb_state_bytes(s->dtype, sizeof(float), n, n_chunks));
	free(kept);
}

/* Loads tensor x, or its optimizer state l->slot, into dst. share: the range of elements that dst holds. */
static int tensor_load(const struct loading *l, const struct dlb_tensor *x, const struct dlb_share *share,
		       void *dst, struct dlb_error *err)
{
	const char *of = x->slice ? x->slice->of : x->name;
	const json_t *place = json_object_get(json_object_get(l->m->json, "tensors"), of);
	const struct dlb_desc d = dlb_tensor_desc(x, 1),
			      all = x->slice ? dlb_slice_desc(x->slice, x->dtype) : d;
	const void *data = NULL;
	void *whole = NULL, *part = NULL;
	int rc = 0;

	if (json_is_string(place)) {
		data = whole_data(l, of, json_string_value(place), &all, &whole, err);
		rc = data ? 0 : -1;
	} else if (json_is_array(place)) {
		data = whole = dlb_xcalloc(dlb_desc_bytes(&all) + 1, 1);
		rc = gather_parts(l, place, of, &all, whole, err);
	} else {
		rc = dlb_fail(err, l->m->dir, "the checkpoint has no tensor '%s'", of);
	}
	if (!rc && x->slice) {
		part = dlb_xmalloc(dlb_desc_bytes(&d) + 1);
		dlb_slice_take(x->slice, dlb_dtype_bytes(x->dtype), data, part);
		data = part;
	}
	if (!rc)
		upload(l, (const char *)data + (size_t)share->first * dlb_dtype_bytes(x->dtype), x->dtype,
		       share->n, dst);
	free(whole);
	free(part);
	return rc;
}

/* Refuses a run that trains weights which were frozen when the checkpoint was made. */
static int check_frozen(const struct manifest *m, const struct dlb_graph *g, struct dlb_error *err)
{
	const json_t *list = json_object_get(m->json, "frozen"), *e;
	size_t i;

	json_array_foreach(list, i, e)
	{
		const char *name = json_string_value(e);

		for (int t = 0; t < g->n_tensors && name; t++) {
			const struct dlb_tensor *x = &g->tensor[t];

			if (x->kind == DLB_T_WEIGHT && !x->frozen &&
			    !strcmp(x->slice ? x->slice->of : x->name, name))
				return dlb_refuse(err, m->dir,
						  "go on with the document that its run wrote, or with the "
						  "same --freeze-at",
						  "weight '%s' is frozen in the checkpoint, and this run "
						  "would train it",
						  name);
		}
	}
	return 0;
}

static int tensors_load(const struct manifest *m, struct dlb_state *s, struct dlb_error *err)
{
	/* the checkpoint has no constant tensors */
	const bool changed = json_is_true(json_object_get(m->json, "changed"));
	struct dlb_arena a = { 0 };
	struct part_files ps = { 0 };
	int rc = 0;

	if (s->rule >= 0 && strcmp(m->optimizer, dlb_optimizers[s->rule].name)) {
		dlb_fail(err, m->dir, "the checkpoint was made with optimizer '%s', this run has '%s'",
			 m->optimizer, dlb_optimizers[s->rule].name);
		return dlb_hint(err, "give another --checkpoint folder");
	}
	rc = check_frozen(m, s->graph, err);
	for (int t = 0; t < s->graph->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		struct loading l = { m, &ps, s, -1, &a };

		if (!s->value[t] || (changed && dlb_checkpoint_is_constant(s->graph, t)))
			continue;
		const struct dlb_share held = dlb_state_held(s, t), share = dlb_state_share(s, t);

		rc = tensor_load(&l, x, &held, s->value[t], err);
		for (l.slot = 0; l.slot < s->n_slots && !rc; l.slot++)
			if (s->slot[l.slot][t])
				rc = tensor_load(&l, x, &share, s->slot[l.slot][t], err);
	}
	for (int i = 0; i < ps.n; i++)
		dlb_safetensors_release(&ps.part[i].st);
	free(ps.part);
	dlb_arena_release(&a);
	return rc ? -1 : s->be->ops->sync(s->be, err);
}

int dlb_checkpoint_read(const char *dir, int64_t step, struct dlb_state *s, struct dlb_progress_state *p,
			struct dlb_error *err)
{
	struct manifest m = { .json = NULL };
	int rc = manifest_read(dir, step, &m, err);

	if (!rc && m.external)
		rc = dlb_fail(err, m.dir, "checkpoint format %.20s; this is %s",
			      json_string_value(json_object_get(m.json, "dlb-checkpoint")),
			      DLB_CHECKPOINT_FORMAT);
	if (!rc)
		rc = tensors_load(&m, s, err);
	if (!rc)
		*p = m.p;
	json_decref(m.json);
	return rc;
}
