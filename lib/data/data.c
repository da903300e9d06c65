/* From a spec to filled tensors: which fed tensor gets what, in which order samples come.
 *
 * The first fed tensor gets the samples, the label tensor the labels; with `random` every fed tensor
 * gets its own stream. A tensor's batch dimension may be any one (sequence-first models): a sample is
 * then a slab, `outer` pieces of `block` elements. */
#define _XOPEN_SOURCE 700	/* realpath */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "data/source.h"
#include "util/hash.h"
#include "util/rng.h"

enum role { ROLE_SAMPLE, ROLE_LABEL, ROLE_RANDOM, ROLE_LENGTH };
enum source { SOURCE_IMAGES, SOURCE_TOKENS, SOURCE_RANDOM };

struct fed {
	int tensor;
	enum role role;
	enum dlb_dtype dtype;
	int64_t outer, block;		/* of one sample: pieces, elements a piece */
	int64_t bound, full;
	bool batched;			/* has a batch dimension */
	uint64_t stream;
};
struct order { int64_t epoch; int64_t *at; };

struct dlb_data {
	enum source source;
	int64_t count;
	bool shuffled;
	uint64_t seed;
	struct fed *fed;
	int n_fed;
	struct dlb_idx images, labels;
	int64_t first;			/* sample 0 of this part of the files */
	struct dlb_transform transform;
	struct dlb_tokens tokens;
	bool has_label, has_ignore;
	int64_t ignore;
	int label_fed;			/* index in fed, -1 */
	float *sample;			/* one transformed sample */
	pthread_mutex_t lock;		/* guards order and sample */
	struct order order[2];		/* of two epochs: a step may straddle none, but look ahead does */
};

/* ---- the graph's side ---- */

static int fed_read(const struct dlb_graph *g, int t, struct fed *f, struct dlb_error *err)
{
	const struct dlb_tensor *x = &g->tensor[t];
	int axis = -1;

	memset(f, 0, sizeof *f);
	f->tensor = t;
	f->dtype = x->dtype;
	f->bound = x->bound;
	f->outer = f->block = 1;
	f->stream = dlb_hash_str(DLB_HASH_INIT, x->name);
	f->role = t == g->label || x->kind == DLB_T_LABEL ? ROLE_LABEL : ROLE_SAMPLE;
	for (int i = 0; i < x->n_dims; i++) {
		if (x->dim[i].mul == 0) {
			*(axis < 0 ? &f->outer : &f->block) *= x->dim[i].add;
			continue;
		}
		if (axis >= 0 || x->dim[i].add)
			return dlb_fail(err, NULL, "input '%s' follows the batch size in a way that data cannot", x->name);
		axis = i;
		f->block *= x->dim[i].mul;
	}
	f->batched = axis >= 0;
	if (!f->batched) {
		f->block = f->outer;
		f->outer = 1;
	}
	/* Lengths of sequences (input 4 of recurrent ops) are always full. */
	for (int o = 0; o < g->n_ops; o++) {
		const struct dlb_op *op = &g->op[o];

		if (op->n_in > 4 && op->in[4] == t &&
		    (!strcmp(op->type, "LSTM") || !strcmp(op->type, "GRU") || !strcmp(op->type, "RNN"))) {
			f->role = ROLE_LENGTH;
			f->full = dlb_tensor_desc(&g->tensor[op->in[0]], 1).dim[0];
		}
	}
	return 0;
}

static const struct dlb_op *label_reader(const struct dlb_graph *g)
{
	for (int o = 0; g->label >= 0 && o < g->n_ops; o++)
		for (int i = 0; i < g->op[o].n_in; i++)
			if (g->op[o].in[i] == g->label && dlb_attr_find(g->op[o].attr, g->op[o].n_attr, "ignore_index"))
				return &g->op[o];
	return NULL;
}

/* ---- images ---- */

static int spec_files(const char *spec, char **images, char **labels, struct dlb_error *err)
{
	const char *p = spec + 4, *comma = strrchr(p, ',');

	if (!comma || comma == p || !comma[1])
		return dlb_hint((dlb_fail(err, NULL, "data '%s': two files are needed", spec), err), "idx:IMAGES,LABELS");
	*images = dlb_xprintf("%.*s", (int)(comma - p), p);
	*labels = dlb_xstrdup(comma + 1);
	return 0;
}

static int images_read(struct dlb_data *d, const char *spec, struct dlb_error *err)
{
	char *images = NULL, *labels = NULL;
	int rc = -1;

	if (!strncmp(spec, "digits", 6)) {
		if (dlb_digits_read(&d->images, &d->labels, err))
			return -1;
	} else {
		if (spec_files(spec, &images, &labels, err))
			return -1;
		if (dlb_idx_read(images, &d->images, err) || dlb_idx_read(labels, &d->labels, err))
			goto out;
		if (d->labels.n_dims != 1 || !dlb_dtype_is_int(d->labels.dtype)) {
			dlb_fail(err, labels, "labels are a list of integers, not %d dimensions of %s", d->labels.n_dims,
				 dlb_dtype_name(d->labels.dtype));
			goto out;
		}
		if (d->labels.dim[0] != d->images.dim[0]) {
			dlb_fail(err, NULL, "%lld labels in '%s' for %lld samples in '%s'", (long long)d->labels.dim[0], labels,
				 (long long)d->images.dim[0], images);
			goto out;
		}
	}
	d->count = d->images.dim[0];
	if (!strcmp(spec, "digits:train")) {
		d->count = 1437;
	} else if (!strcmp(spec, "digits:test")) {
		d->first = 1437;
		d->count -= 1437;
	}
	rc = 0;
out:
	free(images);
	free(labels);
	return rc;
}

/* The shape of the data as channels, height, width. */
static int images_shape(const struct dlb_idx *x, int64_t chw[3], struct dlb_error *err)
{
	chw[0] = chw[1] = chw[2] = 1;
	if (x->n_dims > 4)
		return dlb_fail(err, NULL, "samples of %d dimensions; at most channels, height, width are read", x->n_dims - 1);
	for (int i = 1; i < x->n_dims; i++)
		chw[3 - (x->n_dims - i)] = x->dim[i];
	return 0;
}

static int images_fit(struct dlb_data *d, const struct dlb_graph *g, const struct fed *f, struct dlb_error *err)
{
	const struct dlb_transform *t = &d->transform;
	struct dlb_desc x = dlb_tensor_desc(&g->tensor[f->tensor], 1);
	char wants[64];

	if (x.n_dims == 4)
		snprintf(wants, sizeof wants, "%lldx%lldx%lld", (long long)x.dim[1], (long long)x.dim[2], (long long)x.dim[3]);
	else
		snprintf(wants, sizeof wants, "%lld values", (long long)(f->outer * f->block));
	if (f->outer * f->block == t->out_c * t->out_h * t->out_w &&
	    (x.n_dims != 4 || (x.dim[1] == t->out_c && x.dim[2] == t->out_h && x.dim[3] == t->out_w)))
		return 0;
	dlb_fail(err, NULL, "input '%s' wants %s a sample, the data give %lldx%lldx%lld", g->tensor[f->tensor].name, wants,
		 (long long)t->out_c, (long long)t->out_h, (long long)t->out_w);
	if (x.n_dims == 4 && x.dim[2] - t->out_h == x.dim[3] - t->out_w && x.dim[2] > t->out_h && (x.dim[2] - t->out_h) % 2 == 0)
		dlb_hint(err, "try --transform pad=%lld%s", (long long)(x.dim[2] - t->out_h) / 2,
			 x.dim[1] != t->out_c ? ",channels=..." : "");
	else if (x.n_dims == 4 && x.dim[1] != t->out_c && t->out_c == 1)
		dlb_hint(err, "try --transform channels=%lld", (long long)x.dim[1]);
	return -1;
}

static int images_labels(const struct dlb_data *d, const struct dlb_graph *g, const struct fed *f, struct dlb_error *err)
{
	int64_t per = f->outer * f->block, top = per > 1 ? per : f->bound;

	if (per > 1 && !dlb_dtype_is_float(f->dtype))
		return dlb_fail(err, NULL, "label '%s' wants %lld values a sample, the data give one", g->tensor[f->tensor].name,
				(long long)per);
	for (int64_t i = 0; i < d->count; i++) {
		int64_t v = dlb_value_int(d->labels.data, d->labels.dtype, d->first + i);

		if (d->has_ignore && v == d->ignore)
			continue;
		if (top > 0 && (v < 0 || v >= top))
			return dlb_fail(err, NULL, "label %lld of sample %lld is outside the model's 0 to %lld", (long long)v,
					(long long)i, (long long)top - 1);
	}
	return 0;
}

/* ---- opening ---- */

static int tokens_fit(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err)
{
	int64_t length = -1;

	for (int i = 0; i < d->n_fed; i++) {
		const struct fed *f = &d->fed[i];
		const char *name = g->tensor[f->tensor].name;

		if (f->role == ROLE_LENGTH)
			continue;
		if (length >= 0 && f->outer * f->block != length)
			return dlb_fail(err, NULL, "input '%s' wants %lld tokens a sample, the first one %lld", name,
					(long long)(f->outer * f->block), (long long)length);
		length = f->outer * f->block;
		if (f->bound > 0 && d->tokens.vocabulary > f->bound)
			return dlb_fail(err, NULL, "the text has %d distinct bytes, input '%s' takes %lld", d->tokens.vocabulary, name,
					(long long)f->bound);
	}
	d->count = length > 0 ? (int64_t)(d->tokens.n - 1) / length : 0;
	if (d->count < 1)
		return dlb_fail(err, NULL, "the text of %zu bytes is shorter than one sample of %lld tokens", d->tokens.n, (long long)length);
	return 0;
}

static int roles(struct dlb_data *d, const struct dlb_graph *g, const char *spec, struct dlb_error *err)
{
	bool sample = false;

	d->fed = dlb_xcalloc((size_t)g->n_inputs + 2, sizeof *d->fed);
	d->label_fed = -1;
	for (int i = 0; i <= g->n_inputs; i++) {
		int t = i < g->n_inputs ? g->input[i] : g->label;
		bool again = t < 0 || t == g->seed;
		struct fed *f = &d->fed[d->n_fed];

		for (int j = 0; j < d->n_fed; j++)
			again = again || d->fed[j].tensor == t;
		if (again)
			continue;
		if (fed_read(g, t, f, err))
			return -1;
		if (f->role == ROLE_LABEL)
			d->label_fed = d->n_fed;
		if (d->source == SOURCE_RANDOM && f->role != ROLE_LENGTH) {
			f->role = ROLE_RANDOM;
		} else if (f->role == ROLE_SAMPLE) {
			if (sample)
				return dlb_hint((dlb_fail(err, NULL, "data '%s' feed one input, but the model has '%s' too", spec,
						g->tensor[t].name), err), "--data random feeds any");
			sample = true;
		}
		d->n_fed++;
	}
	return 0;
}

static int fit(struct dlb_data *d, const struct dlb_graph *g, const char *transform, struct dlb_error *err)
{
	int64_t chw[3];

	if (dlb_transform_parse(transform, &d->transform, err))
		return -1;
	if (d->source != SOURCE_IMAGES) {
		if (d->transform.n_steps)
			return dlb_fail(err, NULL, "--transform is for images");
		return d->source == SOURCE_TOKENS ? tokens_fit(d, g, err) : 0;
	}
	if (images_shape(&d->images, chw, err) || dlb_transform_bind(&d->transform, chw[0], chw[1], chw[2], err))
		return -1;
	d->sample = dlb_xcalloc((size_t)(d->transform.out_c * d->transform.out_h * d->transform.out_w), sizeof *d->sample);
	for (int i = 0; i < d->n_fed; i++) {
		if (d->fed[i].role == ROLE_SAMPLE && images_fit(d, g, &d->fed[i], err))
			return -1;
		if (d->fed[i].role == ROLE_LABEL && images_labels(d, g, &d->fed[i], err))
			return -1;
	}
	return 0;
}

int dlb_data_open(struct dlb_data **out, const char *spec, const char *transform, bool shuffled, uint64_t seed,
		  const struct dlb_graph *g, struct dlb_error *err)
{
	static const char *const names[] = { "idx:", "digits", "tokens:", "random" };
	struct dlb_data *d = dlb_xcalloc(1, sizeof *d);
	const struct dlb_op *reader = label_reader(g);

	pthread_mutex_init(&d->lock, NULL);
	d->shuffled = shuffled;
	d->seed = seed;
	d->order[0].epoch = d->order[1].epoch = -1;
	if (reader) {
		d->has_ignore = true;
		d->ignore = dlb_attr_int(reader->attr, reader->n_attr, "ignore_index", 0);
	}
	if (!strncmp(spec, "idx:", 4) || !strcmp(spec, "digits") || !strcmp(spec, "digits:train") || !strcmp(spec, "digits:test")) {
		d->source = SOURCE_IMAGES;
		if (images_read(d, spec, err))
			goto bad;
	} else if (!strncmp(spec, "tokens:", 7)) {
		d->source = SOURCE_TOKENS;
		if (dlb_tokens_read(spec + 7, &d->tokens, err))
			goto bad;
	} else if (!strcmp(spec, "random")) {
		d->source = SOURCE_RANDOM;
		d->count = DLB_DATA_ENDLESS;
		d->shuffled = false;
	} else {
		const char *near = dlb_nearest(spec, names, DLB_LEN(names));

		dlb_fail(err, NULL, "no data '%s'", spec);
		dlb_hint(err, near ? "did you mean '%s'" : "there are idx:IMAGES,LABELS, digits, tokens:FILE and random", near);
		goto bad;
	}
	if (roles(d, g, spec, err) || fit(d, g, transform, err))
		goto bad;
	*out = d;
	return 0;
bad:
	dlb_data_close(d);
	return -1;
}

void dlb_data_close(struct dlb_data *d)
{
	if (!d)
		return;
	pthread_mutex_destroy(&d->lock);
	dlb_idx_release(&d->images);
	dlb_idx_release(&d->labels);
	dlb_tokens_release(&d->tokens);
	dlb_transform_release(&d->transform);
	free(d->order[0].at);
	free(d->order[1].at);
	free(d->sample);
	free(d->fed);
	free(d);
}

int64_t dlb_data_count(const struct dlb_data *d)
{
	return d->count;
}

/* ---- filling ---- */

/* The order of an epoch: Fisher and Yates keyed by seed and epoch. Kept for two epochs. */
static const int64_t *order_of(struct dlb_data *d, int64_t epoch)
{
	struct order *o = &d->order[epoch & 1];
	uint64_t key[2] = { d->seed, (uint64_t)epoch };
	struct dlb_rng r;

	if (!d->shuffled)
		return NULL;
	if (o->epoch == epoch)
		return o->at;
	if (!o->at)
		o->at = dlb_xmalloc((size_t)d->count * sizeof *o->at);
	for (int64_t i = 0; i < d->count; i++)
		o->at[i] = i;
	dlb_rng_init(&r, dlb_hash_bytes(DLB_HASH_INIT, key, sizeof key));
	for (int64_t i = d->count - 1; i > 0; i--) {
		int64_t j = (int64_t)dlb_rng_below(&r, (uint64_t)i + 1), t = o->at[i];

		o->at[i] = o->at[j];
		o->at[j] = t;
	}
	o->epoch = epoch;
	return o->at;
}

/* One sample's values, plain and together, into `flat` (outer*block elements of f's dtype). */
static void sample_fill(struct dlb_data *d, const struct fed *f, int64_t i, void *flat)
{
	int64_t count = f->outer * f->block;

	if (f->role == ROLE_LENGTH) {
		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, (double)f->full);
	} else if (f->role == ROLE_RANDOM) {
		dlb_random_fill(d->seed, f->stream, i, count, f->dtype, f->bound, flat);
	} else if (d->source == SOURCE_TOKENS) {
		const unsigned char *p = d->tokens.id + i * count + (f->role == ROLE_LABEL);

		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, p[j]);
	} else if (f->role == ROLE_LABEL) {
		int64_t v = dlb_value_int(d->labels.data, d->labels.dtype, d->first + i);

		if (count == 1)
			dlb_value_set(flat, f->dtype, 0, (double)v);
		else
			for (int64_t j = 0; j < count; j++)
				dlb_value_set(flat, f->dtype, j, j == v);
	} else {
		const struct dlb_transform *t = &d->transform;
		const char *src = (const char *)d->images.data +
			(size_t)((d->first + i) * t->c * t->h * t->w) * dlb_dtype_bytes(d->images.dtype);

		if (f->dtype == DLB_F32) {
			dlb_transform_apply(t, d->images.dtype, src, flat);
			return;
		}
		dlb_transform_apply(t, d->images.dtype, src, d->sample);
		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, d->sample[j]);
	}
}

static const struct fed *fed_of(const struct dlb_data *d, int t)
{
	for (int i = 0; i < d->n_fed; i++)
		if (d->fed[i].tensor == t)
			return &d->fed[i];
	dlb_bug("tensor %d is not fed by data", t);
}

void dlb_data_fill(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n, void *dst)
{
	const struct fed *f = fed_of(d, t);
	size_t bytes = dlb_dtype_bytes(f->dtype), block = (size_t)f->block * bytes;
	char *flat = NULL;
	const int64_t *order;

	if (!f->batched) {
		sample_fill(d, f, 0, dst);
		return;
	}
	pthread_mutex_lock(&d->lock);
	order = order_of(d, epoch);
	if (f->outer > 1)
		flat = dlb_xmalloc((size_t)f->outer * block);
	for (int64_t i = 0; i < n; i++) {
		int64_t at = order ? order[first + i] : first + i;

		if (!flat) {
			sample_fill(d, f, at, (char *)dst + (size_t)i * block);
			continue;
		}
		sample_fill(d, f, at, flat);
		for (int64_t o = 0; o < f->outer; o++)
			memcpy((char *)dst + (size_t)(o * n + i) * block, flat + (size_t)o * block, block);
	}
	pthread_mutex_unlock(&d->lock);
	free(flat);
}

double dlb_data_counted(struct dlb_data *d, int64_t epoch, int64_t first, int64_t n)
{
	const struct fed *f = d->label_fed < 0 ? NULL : &d->fed[d->label_fed];
	int64_t counted = 0, per = f ? f->outer * f->block : 1;
	const int64_t *order;
	char *one;

	if (!f)
		return (double)n;
	if (!d->has_ignore)
		return (double)(n * per);
	one = dlb_xmalloc((size_t)per * dlb_dtype_bytes(f->dtype));
	pthread_mutex_lock(&d->lock);
	order = order_of(d, epoch);
	for (int64_t i = 0; i < n; i++) {
		sample_fill(d, f, order ? order[first + i] : first + i, one);
		for (int64_t j = 0; j < per; j++)
			counted += dlb_value_int(one, f->dtype, j) != d->ignore;
	}
	pthread_mutex_unlock(&d->lock);
	free(one);
	return (double)counted;
}

/* ---- storing a spec ---- */

static int absolute(const char *path, char **out, struct dlb_error *err)
{
	char *p = realpath(path, NULL);

	if (!p)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	*out = p;
	return 0;
}

int dlb_data_absolute(const char *spec, char **out, struct dlb_error *err)
{
	char *images = NULL, *labels = NULL, *a = NULL, *b = NULL;
	int rc = -1;

	if (!strncmp(spec, "tokens:", 7)) {
		if (absolute(spec + 7, &a, err))
			return -1;
		*out = dlb_xprintf("tokens:%s", a);
	} else if (!strncmp(spec, "idx:", 4)) {
		if (spec_files(spec, &images, &labels, err) || absolute(images, &a, err) || absolute(labels, &b, err))
			goto out;
		*out = dlb_xprintf("idx:%s,%s", a, b);
	} else {
		*out = dlb_xstrdup(spec);
	}
	rc = 0;
out:
	free(images);
	free(labels);
	free(a);
	free(b);
	return rc;
}
