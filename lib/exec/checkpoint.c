/* See checkpoint.h. Errors of one rank are everyone's: each stage ends in dlb_comm_agree. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "exec/checkpoint.h"
#include "model/onnx.h"
#include "model/safetensors.h"
#include "util/clock.h"
#include "util/mem.h"

#define MANIFEST "manifest.json"
#define FORMAT "1.1"

/* ---- the folder ---- */

static int make_dirs(const char *dir, struct dlb_error *err)
{
	char *p = dlb_xstrdup(dir);
	int rc = 0;

	for (char *q = p + 1; !rc; q++) {
		char c = *q;

		if (c && c != '/')
			continue;
		*q = '\0';
		if (mkdir(p, 0777) && errno != EEXIST)
			rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", p, strerror(errno));
		*q = c;
		if (!c)
			break;
	}
	free(p);
	return rc;
}

/* The ranks of a run that was killed go with it, but need a moment: a lock is waited for that long. */
static int take_lock(int fd, struct flock *l)
{
	int rc;

	for (int i = 0; (rc = fcntl(fd, F_SETLK, l)) && (errno == EACCES || errno == EAGAIN) && i < 60; i++)
		dlb_sleep_s(0.05);
	return rc;
}

static int lock(struct dlb_checkpoint *c, const char *dir, struct dlb_error *err)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char *path;
	int rc = -1;

	if (make_dirs(dir, err))
		return -1;
	path = dlb_xprintf("%s/lock", dir);
	c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (c->lock < 0) {
		dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	} else if (take_lock(c->lock, &l)) {
		long pid = fcntl(c->lock, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? (long)l.l_pid : 0;

		dlb_fail(err, NULL, "checkpoint folder '%s' is in use by another run (process %ld)", dir, pid);
	} else {
		rc = 0;
	}
	free(path);
	return rc;
}

int dlb_checkpoint_open(struct dlb_checkpoint *c, const char *dir, struct dlb_comm *comm, struct dlb_error *err)
{
	int rc = 0;

	c->lock = -1;
	c->dir = dlb_xstrdup(dir);
	if (dlb_comm_rank(comm) == 0)
		rc = lock(c, dir, err);
	return dlb_comm_agree(comm, rc, err, NULL);
}

void dlb_checkpoint_close(struct dlb_checkpoint *c)
{
	if (!c->dir)
		return;
	if (c->lock >= 0)
		close(c->lock);
	free(c->dir);
	c->dir = NULL;
}

/* "step-120" -> 120, else -1. */
static int64_t step_of(const char *name)
{
	char *end;
	long long v;

	if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9')
		return -1;
	errno = 0;
	v = strtoll(name + 5, &end, 10);
	return *end || errno ? -1 : v;
}

static int descending(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*y > *x) - (*y < *x);
}

/* The steps that have a checkpoint, newest first: returns new. */
static int64_t *steps_in(const char *dir, int *n)
{
	DIR *d = opendir(dir);
	int64_t *step = NULL;
	int cap = 0;

	*n = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		if (step_of(e->d_name) < 0)
			continue;
		DLB_GROW(step, *n, cap);
		step[(*n)++] = step_of(e->d_name);
	}
	if (d)
		closedir(d);
	if (*n)
		qsort(step, (size_t)*n, sizeof *step, descending);
	return step;
}

/* Removes a folder of plain files. */
static void remove_dir(const char *path)
{
	DIR *d = opendir(path);

	for (struct dirent *e; d && (e = readdir(d));) {
		char *p;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		p = dlb_xprintf("%s/%s", path, e->d_name);
		unlink(p);
		free(p);
	}
	if (d)
		closedir(d);
	rmdir(path);
}

static void sync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

/* ---- what a node writes ---- */

struct list { struct dlb_st_tensor *t; int n, cap; struct dlb_arena arena; void **own; int n_own, cap_own; };

static void list_add(struct list *l, const struct dlb_state *s, const char *name, const struct dlb_tensor *x, const void *p)
{
	struct dlb_desc d = dlb_tensor_desc(x, 1);
	void *host = dlb_xmalloc(dlb_desc_bytes(&d) + 1);

	s->be->ops->download(s->be, host, p, dlb_desc_bytes(&d));
	DLB_GROW(l->own, l->n_own, l->cap_own);
	l->own[l->n_own++] = host;
	DLB_GROW(l->t, l->n, l->cap);
	l->t[l->n++] = (struct dlb_st_tensor){ .name = name, .desc = d, .data = host };
}

static void list_release(struct list *l)
{
	for (int i = 0; i < l->n_own; i++)
		free(l->own[i]);
	free(l->own);
	free(l->t);
	dlb_arena_release(&l->arena);
}

static const char *slot_name(struct dlb_arena *a, int rule, int k, const char *weight)
{
	return dlb_arena_printf(a, "optimizer/%s/%s", dlb_optimizers[rule].state_name[k], weight);
}

static int write_part(const char *dir, int rank, const struct dlb_state *s, struct dlb_error *err)
{
	struct list l = { 0 };
	char *path = dlb_xprintf("%s/part-%d.safetensors", dir, rank);
	int rc = 0;

	for (int t = 0; t < s->graph->n_tensors && dlb_state_is_kept(s); t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];

		if (!s->value[t])
			continue;
		list_add(&l, s, x->name, x, s->value[t]);
		for (int k = 0; k < s->n_slots; k++)
			if (s->slot[k][t])
				list_add(&l, s, slot_name(&l.arena, s->rule, k, x->name), x, s->slot[k][t]);
	}
	if (l.n)
		rc = dlb_safetensors_write(path, l.t, l.n, NULL, err);
	list_release(&l);
	free(path);
	return rc;
}

/* ---- what compression keeps back ---- */

/* "error/R/NAME" of replica R; "basis/NAME", the same on all. */
static const char *kept_name(struct dlb_arena *a, const struct dlb_kept_state *s, int replica)
{
	return s->summed ? dlb_arena_printf(a, "%s/%d/%s", s->what, replica, s->name) : dlb_arena_printf(a, "%s/%s", s->what, s->name);
}

/* What compression keeps, then K-FAC; i from 0, *first_kfac from 0 too. */
static bool kept_at(const struct dlb_checkpoint_kept *k, int i, int *first_kfac, struct dlb_kept_state *s)
{
	if (*first_kfac == i && k->kept && dlb_kept_state(k->kept, i, s))
		*first_kfac = i + 1;
	else
		return dlb_kfac_state(k->kfac, i - *first_kfac, s);
	return true;
}

static int write_kept(const char *dir, int rank, const struct dlb_checkpoint_kept *kept, struct dlb_error *err)
{
	struct list l = { 0 };
	struct dlb_kept_state s;
	int rc = 0;

	for (int i = 0, k = 0; kept && kept_at(kept, i, &k, &s); i++) {
		DLB_GROW(l.t, l.n, l.cap);
		l.t[l.n++] = (struct dlb_st_tensor){ .name = kept_name(&l.arena, &s, kept->replica), .data = s.p,
						     .desc = { .dtype = s.dtype, .n_dims = 1, .dim = { s.n } } };
	}
	if (l.n) {
		char *path = dlb_xprintf("%s/kept-%d.safetensors", dir, rank);

		rc = dlb_safetensors_write(path, l.t, l.n, NULL, err);
		free(path);
	}
	list_release(&l);
	return rc;
}

/* Where tensor x is: the name of a part, or, of a part of a tensor, one in the list of that tensor's parts. */
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

static int write_manifest(const char *dir, const struct dlb_state *s, const struct dlb_progress_state *p, struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/" MANIFEST, dir);
	json_t *m = json_pack("{s:s, s:I, s:I, s:I, s:s, s:I}", "dlb-checkpoint", FORMAT, "step", (json_int_t)p->step, "epoch",
			      (json_int_t)p->epoch, "position", (json_int_t)p->position, "optimizer",
			      s->rule >= 0 ? dlb_optimizers[s->rule].name : "none", "since_best", (json_int_t)p->since_best);
	json_t *tensors = json_object();
	FILE *f = fopen(path, "w");
	int rc = 0;

	/* 64 bits of seed do not fit a JSON integer's sign; as text they do. */
	json_object_set_new(m, "seed", json_sprintf("%llu", (unsigned long long)p->seed));
	if (isfinite(p->best_loss))
		json_object_set_new(m, "best_loss", json_real(p->best_loss));
	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		int home = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ? dlb_state_home(s->graph, s->first_placement, t) : -1;

		if (home >= 0)
			put_place(tensors, x, home);
	}
	json_object_set_new(m, "tensors", tensors);
	if (!f || json_dumpf(m, f, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) || fputc('\n', f) == EOF || fflush(f) ||
	    fsync(fileno(f)))
		rc = dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(errno));
	if (f && fclose(f) && !rc)
		rc = dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(errno));
	json_decref(m);
	free(path);
	return rc;
}

/* Renames the complete folder into place and removes all but the newest two. */
static int settle(const char *dir, const char *aside, int64_t step, char **path, struct dlb_error *err)
{
	char *final = dlb_xprintf("%s/step-%lld", dir, (long long)step), *old = dlb_xprintf("%s/.old-%ld", dir, (long)getpid());
	int rc = 0, n;
	int64_t *steps;

	sync_dir(aside);
	if (rename(final, old) && errno != ENOENT)
		rc = dlb_fail(err, NULL, "cannot replace '%s': %s", final, strerror(errno));
	else if (rename(aside, final))
		rc = dlb_fail(err, NULL, "cannot rename '%s' to '%s': %s", aside, final, strerror(errno));
	sync_dir(dir);
	remove_dir(old);
	steps = rc ? NULL : steps_in(dir, &n);
	for (int i = 2; steps && i < n; i++) {
		char *p = dlb_xprintf("%s/step-%lld", dir, (long long)steps[i]);

		remove_dir(p);
		free(p);
	}
	free(steps);
	free(old);
	if (!rc && path)
		*path = final;
	else
		free(final);
	return rc;
}

int dlb_checkpoint_save(struct dlb_checkpoint *c, struct dlb_comm *comm, const struct dlb_state *s,
			const struct dlb_checkpoint_kept *kept, const struct dlb_progress_state *p, char **path, struct dlb_error *err)
{
	char *aside = dlb_xprintf("%s/.new-step-%lld", c->dir, (long long)p->step);
	int rank = dlb_comm_rank(comm), rc = 0;

	if (path)
		*path = NULL;
	if (rank == 0) {
		remove_dir(aside);		/* left by a run that was killed */
		if (mkdir(aside, 0777))
			rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", aside, strerror(errno));
	}
	rc = dlb_comm_agree(comm, rc, err, NULL);
	if (!rc)
		rc = dlb_comm_agree(comm, write_part(aside, rank, s, err) || write_kept(aside, rank, kept, err) ? -1 : 0, err, NULL);
	if (!rc) {
		if (rank == 0 && !(rc = write_manifest(aside, s, p, err)))
			rc = settle(c->dir, aside, p->step, path, err);
		rc = dlb_comm_agree(comm, rc, err, NULL);
	}
	if (rc && rank == 0)
		remove_dir(aside);
	free(aside);
	return rc;
}

/* ---- loading ---- */

struct manifest {
	char dir[4096];
	json_t *json;			/* owned */
	struct dlb_progress_state p;
	const char *optimizer;
};

static int manifest_read(const char *dir, int64_t step, struct manifest *m, struct dlb_error *err)
{
	char path[4200];
	json_error_t je;
	json_t *j, *v;
	struct dlb_progress_state *p = &m->p;
	const char *seed;

	if (snprintf(m->dir, sizeof m->dir, "%s/step-%lld", dir, (long long)step) >= (int)sizeof m->dir)
		return dlb_fail(err, NULL, "the name of checkpoint folder '%.100s...' is too long", dir);
	snprintf(path, sizeof path, "%s/" MANIFEST, m->dir);
	j = json_load_file(path, 0, &je);
	if (!j)
		return dlb_fail(err, path, "%d:%d: %s", je.line, je.column, je.text);
	m->json = j;
	v = json_object_get(j, "dlb-checkpoint");
	if (!json_is_string(v))
		return dlb_fail(err, path, "not a checkpoint's manifest");
	if (strncmp(json_string_value(v), "1.", 2))
		return dlb_fail(err, path, "checkpoint format %.20s; this is %s", json_string_value(v), FORMAT);
	p->step = json_integer_value(json_object_get(j, "step"));
	p->epoch = json_integer_value(json_object_get(j, "epoch"));
	p->position = json_integer_value(json_object_get(j, "position"));
	p->since_best = json_integer_value(json_object_get(j, "since_best"));
	p->best_loss = json_is_number(v = json_object_get(j, "best_loss")) ? json_number_value(v) : HUGE_VAL;
	seed = json_string_value(json_object_get(j, "seed"));
	m->optimizer = json_string_value(json_object_get(j, "optimizer"));
	if (!seed || !m->optimizer || !json_is_object(json_object_get(j, "tensors")) || p->step != step || p->epoch < 0 ||
	    p->position < 0 || p->since_best < 0)
		return dlb_fail(err, path, "a member is missing or out of range");
	p->seed = strtoull(seed, NULL, 10);
	return 0;
}

/* Parts opened so far. */
struct part { char name[64]; struct dlb_safetensors st; };
struct parts { struct part *part; int n, cap; };

static struct dlb_safetensors *part_open(struct parts *ps, const char *dir, const char *name, struct dlb_error *err)
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

/* The data of tensor `name` of this part of the checkpoint, or NULL. */
static const void *find_data(const struct dlb_safetensors *st, const char *dir, const char *name, const struct dlb_desc *want,
			     struct dlb_error *err)
{
	const struct dlb_st_tensor *t = dlb_safetensors_find(st, name);
	char a[128], b[128];

	if (!t) {
		dlb_fail(err, dir, "the checkpoint has no tensor '%s'", name);
		return NULL;
	}
	if (t->desc.dtype == want->dtype && dlb_desc_same_shape(&t->desc, want))
		return t->data;
	dlb_fail(err, dir, "tensor '%s' is %s in the checkpoint, %s in the model", name, dlb_desc_str(&t->desc, a, sizeof a),
		 dlb_desc_str(want, b, sizeof b));
	return NULL;
}

/* One of a tensor's parts, as the manifest tells it; false: it does not. */
static bool read_place(const json_t *e, struct dlb_slice *s, const char **name, const char **part, struct dlb_desc *d)
{
	const json_t *shape = json_object_get(e, "shape");

	*name = json_string_value(json_object_get(e, "name"));
	*part = json_string_value(json_object_get(e, "part"));
	*s = (struct dlb_slice){ .n_dims = (int)json_array_size(shape) < DLB_MAX_DIMS ? (int)json_array_size(shape) : DLB_MAX_DIMS,
		.axis = (int)json_integer_value(json_object_get(e, "axis")), .units = json_integer_value(json_object_get(e, "units")),
		.unit = json_integer_value(json_object_get(e, "unit")), .first = json_integer_value(json_object_get(e, "first")),
		.count = json_integer_value(json_object_get(e, "count")) };
	for (int i = 0; i < s->n_dims; i++)
		s->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
	if (!*name || !*part || s->n_dims < 1 || s->axis < 0 || s->axis >= s->n_dims || s->units < 1 || s->count < 1)
		return false;
	d->n_dims = s->n_dims;
	memcpy(d->dim, s->dim, sizeof d->dim);
	if (s->count > s->units || s->dim[s->axis] % s->units)
		return false;
	d->dim[s->axis] = s->dim[s->axis] / s->units * s->count;
	return dlb_slice_fits(s, d);
}

struct loading { const struct manifest *m; struct parts *parts; const struct dlb_state *s; int slot; struct dlb_arena *a; };

/* As a checkpoint names it: itself, or the optimizer's state of it. */
static const char *kept_as(const struct loading *l, const char *name)
{
	return l->slot < 0 ? name : slot_name(l->a, l->s->rule, l->slot, name);
}

/* Puts the parts of a tensor (of which the model has `part_of` or, NULL, all) together in `whole`, whose shape is d. */
static int gather_parts(const struct loading *l, const json_t *list, const char *of, const struct dlb_desc *d, void *whole,
			struct dlb_error *err)
{
	int64_t covered = 0;
	size_t i;
	json_t *e;

	json_array_foreach(list, i, e) {
		struct dlb_desc part = { .dtype = d->dtype }, all;
		const char *name, *file;
		struct dlb_slice s;

		if (!read_place(e, &s, &name, &file, &part))
			return dlb_fail(err, l->m->dir, "the manifest does not say where the parts of '%s' are", of);
		all = dlb_slice_desc(&s, d->dtype);
		if (!dlb_desc_same_shape(&all, d))
			return dlb_fail(err, l->m->dir, "'%s' has another shape in the checkpoint than in the model", of);
		const struct dlb_safetensors *st = part_open(l->parts, l->m->dir, file, err);
		const void *data = st ? find_data(st, l->m->dir, kept_as(l, name), &part, err) : NULL;
		if (!data)
			return -1;
		dlb_slice_put(&s, dlb_dtype_bytes(d->dtype), data, whole);
		covered += dlb_desc_count(&part);
	}
	return covered == dlb_desc_count(d) ? 0 : dlb_fail(err, l->m->dir, "the checkpoint has not all of '%s'", of);
}

static int tensor_load(const struct loading *l, const struct dlb_tensor *x, void *dst, struct dlb_error *err)
{
	const char *of = x->slice ? x->slice->of : x->name;
	const json_t *place = json_object_get(json_object_get(l->m->json, "tensors"), of);
	const struct dlb_desc d = dlb_tensor_desc(x, 1), all = x->slice ? dlb_slice_desc(x->slice, x->dtype) : d;
	const void *data = NULL;
	void *whole = NULL, *part = NULL;
	int rc = 0;

	if (json_is_string(place)) {
		const struct dlb_safetensors *st = part_open(l->parts, l->m->dir, json_string_value(place), err);
		data = st ? find_data(st, l->m->dir, kept_as(l, of), &all, err) : NULL;
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
		l->s->be->ops->upload(l->s->be, dst, data, dlb_desc_bytes(&d));
	free(whole);
	free(part);
	return rc;
}

static int tensors_load(const struct manifest *m, struct dlb_state *s, struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	struct parts ps = { 0 };
	int rc = 0;

	if (s->rule >= 0 && strcmp(m->optimizer, dlb_optimizers[s->rule].name)) {
		dlb_fail(err, m->dir, "the checkpoint was made with optimizer '%s', this run has '%s'", m->optimizer,
			 dlb_optimizers[s->rule].name);
		return dlb_hint(err, "give another --checkpoint folder");
	}
	for (int t = 0; t < s->graph->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		struct loading l = { m, &ps, s, -1, &a };

		if (!s->value[t])
			continue;
		rc = tensor_load(&l, x, s->value[t], err);
		for (l.slot = 0; l.slot < s->n_slots && !rc; l.slot++)
			if (s->slot[l.slot][t])
				rc = tensor_load(&l, x, s->slot[l.slot][t], err);
	}
	for (int i = 0; i < ps.n; i++)
		dlb_safetensors_release(&ps.part[i].st);
	free(ps.part);
	dlb_arena_release(&a);
	return rc;
}

int dlb_checkpoint_load(struct dlb_checkpoint *c, struct dlb_comm *comm, struct dlb_state *s, struct dlb_progress_state *p,
			bool *found, struct dlb_error *err)
{
	struct manifest m = { .json = NULL };
	int64_t newest = -1;
	int rc = 0;

	if (dlb_comm_rank(comm) == 0) {
		int n;
		int64_t *steps = steps_in(c->dir, &n);

		if (n)
			newest = steps[0];
		free(steps);
	}
	if (dlb_comm_bcast(comm, &newest, sizeof newest, 0, err))
		return -1;
	*found = newest >= 0;
	if (!*found)
		return 0;
	rc = manifest_read(c->dir, newest, &m, err);
	if (!rc)
		rc = tensors_load(&m, s, err);
	rc = dlb_comm_agree(comm, rc, err, NULL);
	if (!rc)
		*p = m.p;
	json_decref(m.json);
	return rc;
}

/* All such files of a checkpoint. */
static int kept_open(const char *dir, struct dlb_safetensors **st, int *n, struct dlb_error *err)
{
	DIR *d = opendir(dir);
	int rc = 0, cap = 0;

	for (struct dirent *e; d && !rc && (e = readdir(d));) {
		char *path;

		if (strncmp(e->d_name, "kept-", 5))
			continue;
		path = dlb_xprintf("%s/%s", dir, e->d_name);
		DLB_GROW(*st, *n, cap);
		rc = dlb_safetensors_read(path, &(*st)[*n], err);
		*n += !rc;
		free(path);
	}
	if (d)
		closedir(d);
	return rc;
}

static const struct dlb_st_tensor *kept_find(const struct dlb_safetensors *st, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (dlb_safetensors_find(&st[i], name))
			return dlb_safetensors_find(&st[i], name);
	return NULL;
}

/* Replica r's, or every replica's of those there were, divided by how many there are now. */
static int kept_take(const struct dlb_safetensors *st, int n, const char *dir, struct dlb_kept_state *s, int replica, int n_replicas,
			 struct dlb_error *err)
{
	struct dlb_arena a = { 0 };
	const struct dlb_st_tensor *t;
	int before = 0, rc = 0;

	if (s->needed && !kept_find(st, n, kept_name(&a, s, 0)))
		rc = dlb_fail(err, dir, "the checkpoint has no tensor '%s'", kept_name(&a, s, 0));
	while (s->summed && kept_find(st, n, kept_name(&a, s, before)))
		before++;
	for (int r = 0; r < (s->summed ? before : 1) && !rc; r++) {
		const bool shared_out = s->summed && before != n_replicas;

		t = kept_find(st, n, kept_name(&a, s, r));
		if (!t || (s->summed && before == n_replicas && r != replica))
			continue;
		if (t->desc.dtype != s->dtype || dlb_desc_count(&t->desc) != s->n) {
			rc = dlb_fail(err, dir, "tensor '%s' has %lld elements in the checkpoint, %lld here", t->name,
				      (long long)dlb_desc_count(&t->desc), (long long)s->n);
			dlb_hint(err, "go on with the --compress and --dtype that the checkpoint was made with, or another --checkpoint folder");
		}
		for (int64_t i = 0; i < s->n && !rc; i++) {
			double x = dlb_value_real(t->data, s->dtype, i);

			dlb_value_set(s->p, s->dtype, i, shared_out ? (r ? dlb_value_real(s->p, s->dtype, i) : 0) + x / n_replicas : x);
		}
	}
	dlb_arena_release(&a);
	return rc;
}

int dlb_checkpoint_load_kept(struct dlb_checkpoint *c, int64_t step, const struct dlb_checkpoint_kept *kept, struct dlb_error *err)
{
	struct dlb_safetensors *st = NULL;
	struct dlb_kept_state s;
	char *dir;
	int n = 0, rc;

	dir = dlb_xprintf("%s/step-%lld", c->dir, (long long)step);
	rc = kept_open(dir, &st, &n, err);
	for (int i = 0, k = 0; !rc && kept_at(kept, i, &k, &s); i++)
		rc = kept_take(st, n, dir, &s, kept->replica, kept->n_replicas, err);
	for (int i = 0; i < n; i++)
		dlb_safetensors_release(&st[i]);
	free(st);
	free(dir);
	return rc;
}

/* ---- --save ---- */

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
		rc = dlb_fail(err, NULL, "cannot save '%s': the graph does not say which model it came from", path);
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

int dlb_weights_save(const char *path, struct dlb_comm *comm, const struct dlb_state *s, struct dlb_error *err)
{
	const struct dlb_graph *g = s->graph;
	size_t n = (size_t)g->n_tensors + 1, length = strlen(path);
	struct dlb_st_tensor *st = dlb_xcalloc(n, sizeof *st);
	int k = 0, rc = 0;

	for (int t = 0; t < g->n_tensors && !rc; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		int home = x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ? dlb_state_home(g, s->first_placement, t) : -1;
		void *host;

		if (home < 0)
			continue;
		rc = collect(comm, s, t, home, &host, err);
		if (host && x->slice)
			k = put_part(st, k, x, host);
		else if (host)
			st[k++] = (struct dlb_st_tensor){ .name = x->name, .desc = dlb_tensor_desc(x, 1), .data = host };
	}
	if (!rc && dlb_comm_rank(comm) == 0) {
		if (length > 5 && !strcmp(path + length - 5, ".onnx")) {
			rc = save_onnx(g, path, st, k, err);
		} else {
			rc = dlb_safetensors_write(path, st, k, NULL, err);
		}
	}
	for (int i = 0; i < k; i++)
		free((void *)(uintptr_t)st[i].data);
	free(st);
	return dlb_comm_agree(comm, rc, err, NULL);
}
