/* Opens data from a spec, assigns samples and labels to the fed tensors, and
 * fills batches in the epoch's order.
 *
 * Samples go to the inputs in the model's order, labels to the label tensors. With `random`, every fed tensor
 * has its own random stream. The batch dimension may be any dimension (sequence-first models), so one sample
 * is `outer` pieces of `block` elements. */
#include <stdlib.h>
#include <string.h>
#include "data/readers.h"
#include "data/source.h"
#include "data/spec.h"
#include "data/transform.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/rng.h"

/* ---- fed tensors of the graph ---- */

static int fed_read(const struct dlb_graph *g, int t, struct dlb_fed_tensor *f, struct dlb_error *err)
{
	const struct dlb_tensor *x = &g->tensor[t];
	int axis = -1;

	memset(f, 0, sizeof *f);
	f->tensor = t;
	f->dtype = x->dtype;
	f->bound = x->bound;
	f->outer = f->block = 1;
	f->stream = dlb_hash_str(DLB_HASH_INIT, x->name);
	f->role = t == g->label || x->kind == DLB_T_LABEL ? DLB_ROLE_LABEL : DLB_ROLE_SAMPLE;
	if (g->fixed_batch && x->n_dims > 0 && !x->dim[0].mul && x->dim[0].add == g->batch)
		axis = 0;		/* dimension 0 is the fixed batch size; no other size is possible */
	for (int i = axis + 1; i < x->n_dims; i++) {
		if (x->dim[i].mul == 0) {
			*(axis < 0 ? &f->outer : &f->block) *= x->dim[i].add;
			continue;
		}
		if (axis >= 0 || x->dim[i].add)
			return dlb_fail(err, NULL,
					"input '%s' depends on the batch size in several dimensions, or not "
					"in proportion",
					x->name);
		axis = i;
		f->block *= x->dim[i].mul;
	}
	f->batched = axis >= 0;
	f->axis = axis;
	if (!f->batched) {
		f->block = f->outer;
		f->outer = 1;
	}
	/* Sequence lengths (input 4 of recurrent ops) are always the full length. */
	for (int o = 0; o < g->n_ops; o++) {
		const struct dlb_op *op = &g->op[o];

		if (op->n_in > 4 && op->in[4] == t &&
		    (!strcmp(op->type, "LSTM") || !strcmp(op->type, "GRU") || !strcmp(op->type, "RNN"))) {
			f->role = DLB_ROLE_LENGTH;
			f->full = dlb_tensor_desc(&g->tensor[op->in[0]], 1).dim[0];
		}
	}
	f->name = dlb_xstrdup(x->name);
	return 0;
}

static int roles(struct dlb_data *d, const struct dlb_graph *g, const char *spec, struct dlb_error *err)
{
	int samples = 0;

	d->fed = dlb_xcalloc((size_t)g->n_inputs + 2, sizeof *d->fed);
	d->label_fed = -1;
	for (int i = 0; i <= g->n_inputs; i++) {
		int t = i < g->n_inputs ? g->input[i] : g->label;
		bool again = t < 0 || t == g->seed;
		struct dlb_fed_tensor *f = &d->fed[d->n_fed];

		for (int j = 0; j < d->n_fed; j++)
			again = again || d->fed[j].tensor == t;
		if (again)
			continue;
		if (fed_read(g, t, f, err))
			return -1;
		d->n_fed++;
		if (f->role == DLB_ROLE_LABEL) {
			dlb_graph_label_use(g, t, &d->arena, &f->use);
			f->use.n = f->outer * f->block;
			f->is_label = true;
			f->number = d->n_labels++;
			d->label_fed = f->number ? d->label_fed : d->n_fed - 1;
			if (f->number && !d->class->many)
				return dlb_hint((dlb_fail(err, NULL,
							  "data '%s' bring one array of labels, but the "
							  "losses want '%s' too",
							  spec, f->name),
						 err),
						"npy: feeds several, random any");
		}
		if (d->class->endless && f->role != DLB_ROLE_LENGTH) {
			f->role = DLB_ROLE_RANDOM;
		} else if (f->role == DLB_ROLE_SAMPLE) {
			f->number = samples++;
			if (samples > 1 && !d->class->many)
				return dlb_hint(
					(dlb_fail(err, NULL,
						  "data '%s' feed one input, but the model has '%s' too",
						  spec, g->tensor[t].name),
					 err),
					"npy: feeds several, random any");
		}
	}
	return 0;
}

/* ---- shared by sources ---- */

int64_t dlb_label_range(const struct dlb_fed_tensor *f)
{
	const int64_t per = f->outer * f->block;

	/* A float label with several values is one-hot, one value per class.
	 * Integer labels are class numbers. */
	return dlb_dtype_is_float(f->dtype) && per > 1 ? per : f->bound;
}

int dlb_label_check(const struct dlb_fed_tensor *f, int64_t v, int64_t sample, struct dlb_error *err)
{
	const int64_t top = dlb_label_range(f);

	if ((f->use.has_ignore && v == f->use.ignore) || top <= 0 || (v >= 0 && v < top))
		return 0;
	return dlb_fail(err, NULL, "label %lld of sample %lld is outside the model's 0 to %lld", (long long)v,
			(long long)sample, (long long)top - 1);
}

void dlb_label_set(const struct dlb_fed_tensor *f, int64_t v, void *flat)
{
	int64_t count = f->outer * f->block;

	if (count == 1)
		dlb_value_set(flat, f->dtype, 0, (double)v);
	else
		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, j == v);
}

int dlb_image_fit(const struct dlb_data *d, const struct dlb_graph *g, const struct dlb_fed_tensor *f,
		  struct dlb_error *err)
{
	const struct dlb_transform *t = &d->transform;
	struct dlb_desc x = dlb_tensor_desc(&g->tensor[f->tensor], 1);
	char wants[64];

	if (x.n_dims == 4)
		snprintf(wants, sizeof wants, "%lldx%lldx%lld", (long long)x.dim[1], (long long)x.dim[2],
			 (long long)x.dim[3]);
	else
		snprintf(wants, sizeof wants, "%lld values", (long long)(f->outer * f->block));
	if (f->outer * f->block == t->out_c * t->out_h * t->out_w &&
	    (x.n_dims != 4 || (x.dim[1] == t->out_c && x.dim[2] == t->out_h && x.dim[3] == t->out_w)))
		return 0;
	dlb_fail(err, NULL, "input '%s' wants %s a sample, the data give %lldx%lldx%lld",
		 g->tensor[f->tensor].name, wants, (long long)t->out_c, (long long)t->out_h,
		 (long long)t->out_w);
	if (x.n_dims != 4)
		return -1;
	if (x.dim[2] - t->out_h == x.dim[3] - t->out_w && x.dim[2] > t->out_h &&
	    (x.dim[2] - t->out_h) % 2 == 0)
		dlb_hint(err, "try --transform pad=%lld%s", (long long)(x.dim[2] - t->out_h) / 2,
			 x.dim[1] != t->out_c ? ",channels=..." : "");
	else if (x.dim[2] != t->out_h || x.dim[3] != t->out_w)
		dlb_hint(err, "try --transform resize=%lldx%lld%s", (long long)x.dim[2], (long long)x.dim[3],
			 x.dim[1] != t->out_c ? ",channels=..." : "");
	else if (t->out_c == 1 || x.dim[1] == 1)
		dlb_hint(err, "try --transform channels=%lld", (long long)x.dim[1]);
	return -1;
}

int dlb_image_set(const struct dlb_data *d, const struct dlb_fed_tensor *f, const struct dlb_image *x,
		  const struct dlb_sample_seed *seed, struct dlb_scratch *s, void *flat,
		  struct dlb_error *err)
{
	int64_t count = f->outer * f->block;
	float *out = f->dtype == DLB_F32 ? flat :
					   dlb_scratch(s, DLB_SCRATCH_SAMPLE, (size_t)count * sizeof *out);

	if (dlb_transform_apply(&d->transform, x, d->test ? NULL : seed, s, out, err))
		return -1;
	if (f->dtype != DLB_F32)
		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, (double)out[j]);
	return 0;
}

/* ---- opening ---- */

int dlb_data_open(struct dlb_data **out, const struct dlb_data_choice *c, const struct dlb_graph *g,
		  struct dlb_error *err)
{
	struct dlb_data *d;
	struct dlb_spec spec;
	int rc = -1;

	if (dlb_spec_parse(c->spec, &spec, err))
		return -1;
	d = dlb_xcalloc(1, sizeof *d);
	pthread_mutex_init(&d->lock, NULL);
	d->class = spec.class;
	d->shuffled = c->shuffled && !spec.class->endless;
	d->test = c->like != NULL;
	d->like = c->like && c->like->class == spec.class ? c->like : NULL;
	d->seed = c->seed;
	d->n_readers = c->readers > 1 ? c->readers : 1;
	d->order[0].epoch = d->order[1].epoch = -1;
	d->n_losses = dlb_graph_count_losses(g);
	if (roles(d, g, c->spec, err) || dlb_transform_parse(c->transform, &d->transform, err))
		goto out;
	if (d->transform.n_steps && !d->class->images) {
		dlb_fail(err, NULL, "--transform is for images, not for data '%s'", c->spec);
		goto out;
	}
	if ((d->class->open && d->class->open(d, &spec, err)) || d->class->fit(d, g, err))
		goto out;
	d->like = NULL;
	*out = d;
	rc = 0;
out:
	dlb_spec_release(&spec);
	if (rc)
		dlb_data_close(d);
	return rc;
}

void dlb_data_close(struct dlb_data *d)
{
	if (!d)
		return;
	dlb_readers_free(d->readers);
	if (d->class->close)
		d->class->close(d);
	pthread_mutex_destroy(&d->lock);
	dlb_transform_release(&d->transform);
	dlb_scratch_release(&d->scratch);
	for (int i = 0; i < 2; i++)
		free(d->order[i].at);
	for (int i = 0; i < d->n_fed; i++)
		free((char *)(uintptr_t)d->fed[i].name);
	free(d->fed);
	dlb_shards_free(d->shards);
	dlb_arena_release(&d->arena);
	free(d);
}

double dlb_data_bytes(const struct dlb_data *d)
{
	const double orders = d->shuffled && d->count != DLB_DATA_ENDLESS ?
				      2.0 * (double)d->count * sizeof(int64_t) :
				      0;

	return (d->class->kept ? d->class->kept(d) : 0) + orders;
}

int64_t dlb_data_count(const struct dlb_data *d)
{
	return d->count;
}

/* ---- filling ---- */

/* Returns the order of an epoch: Fisher-Yates shuffle, keyed by seed and epoch. Two epochs are cached. */
static const int64_t *order_of(struct dlb_data *d, int64_t epoch)
{
	struct dlb_order *o = &d->order[epoch & 1];
	uint64_t key[2] = { d->seed, (uint64_t)epoch };
	struct dlb_rng r;

	if (!d->shuffled && !d->shards)
		return NULL;
	if (o->epoch == epoch)
		return o->at;
	if (!o->at)
		o->at = dlb_xmalloc((size_t)d->count * sizeof *o->at);
	o->epoch = epoch;
	if (d->shards) {
		dlb_shards_order(d->shards, epoch, o->at);
		return o->at;
	}
	for (int64_t i = 0; i < d->count; i++)
		o->at[i] = i;
	dlb_rng_init(&r, dlb_hash_bytes(DLB_HASH_INIT, key, sizeof key));
	for (int64_t i = d->count - 1; i > 0; i--) {
		int64_t j = (int64_t)dlb_rng_below(&r, (uint64_t)i + 1), t = o->at[i];

		o->at[i] = o->at[j];
		o->at[j] = t;
	}
	return o->at;
}

static int sample_fill(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t i,
		       struct dlb_scratch *s, void *flat, struct dlb_error *err)
{
	int64_t count = f->outer * f->block;

	if (f->role == DLB_ROLE_LENGTH) {
		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, (double)f->full);
		return 0;
	}
	if (!d->class->fill(d, f, epoch, i, s, flat, err))
		return 0;
	memset(flat, 0, (size_t)count * dlb_dtype_bytes(f->dtype));
	return -1;
}

/* Returns new array [count] of labels; NULL with err. */
static double *labels_of(struct dlb_data *d, struct dlb_error *err)
{
	const struct dlb_fed_tensor *f = d->label_fed < 0 ? NULL : &d->fed[d->label_fed];
	double *label = NULL;
	char raw[16];

	if (!f || f->outer * f->block != 1) {
		dlb_fail(err, NULL, "shards sorted by label need one label a sample");
		return NULL;
	}
	label = dlb_xmalloc((size_t)d->count * sizeof *label + 1);
	for (int64_t i = 0; i < d->count; i++) {
		if (sample_fill(d, f, 0, i, &d->scratch, raw, err)) {
			free(label);
			return NULL;
		}
		label[i] = dlb_value_real(raw, f->dtype, 0);
	}
	return label;
}

int dlb_data_shard(struct dlb_data *d, const struct dlb_shards_choice *c, struct dlb_error *err)
{
	double *label = NULL;

	if (d->count == DLB_DATA_ENDLESS)
		return dlb_fail(err, NULL, "endless data cannot be dealt into shards");
	if (c->sorted && !(label = labels_of(d, err)))
		return -1;
	d->shards = dlb_shards_new(c, d->count, label, d->shuffled, d->seed);
	free(label);
	return 0;
}

static const struct dlb_fed_tensor *fed_of(const struct dlb_data *d, int t)
{
	for (int i = 0; i < d->n_fed; i++)
		if (d->fed[i].tensor == t)
			return &d->fed[i];
	dlb_bug("tensor %d is not fed by data", t);
}

/* A batch that is being filled. If several samples fail, the error of the first is
 * reported, whichever thread found it. */
struct filling {
	struct dlb_data *d;
	const struct dlb_fed_tensor *f;
	const int64_t *order;
	int64_t epoch, first, n;
	char *dst;
	pthread_mutex_t lock;
	int64_t failed;				/* sample of err; n: none */
	struct dlb_error err;
};

static void fill_one(void *ctx, int64_t i, struct dlb_scratch *s)
{
	struct filling *x = ctx;
	const struct dlb_fed_tensor *f = x->f;
	size_t block = (size_t)f->block * dlb_dtype_bytes(f->dtype);
	int64_t at = x->order ? x->order[x->first + i] : x->first + i;
	struct dlb_error err;			/* not cleared: it has 1 KB, more than a small sample */
	char *flat = f->outer == 1 ? x->dst + (size_t)i * block :
				     dlb_scratch(s, DLB_SCRATCH_SLAB, (size_t)f->outer * block);

	if (sample_fill(x->d, f, x->epoch, at, s, flat, &err)) {
		pthread_mutex_lock(&x->lock);
		if (i < x->failed) {
			x->failed = i;
			x->err = err;
		}
		pthread_mutex_unlock(&x->lock);
	}
	if (f->outer == 1)
		return;
	for (int64_t o = 0; o < f->outer; o++)
		memcpy(x->dst + (size_t)(o * x->n + i) * block, flat + (size_t)o * block, block);
}

int dlb_data_fill(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n, void *dst,
		  struct dlb_error *err)
{
	const struct dlb_fed_tensor *f = fed_of(d, t);
	struct filling x = {
		.d = d, .f = f, .epoch = epoch, .first = first, .n = n, .dst = dst, .failed = n
	};

	if (!f->batched)
		return sample_fill(d, f, 0, 0, &d->scratch, dst, err);
	pthread_mutex_init(&x.lock, NULL);
	pthread_mutex_lock(&d->lock);
	x.order = order_of(d, epoch);
	if (d->class->decodes && f->role == DLB_ROLE_SAMPLE && d->n_readers > 1 && n > 1) {
		if (!d->readers && dlb_readers_new(&d->readers, d->n_readers, &x.err))
			x.failed = -1;
		else
			dlb_readers_run(d->readers, n, fill_one, &x);
	} else {
		for (int64_t i = 0; i < n; i++)
			fill_one(&x, i, &d->scratch);
	}
	pthread_mutex_unlock(&d->lock);
	pthread_mutex_destroy(&x.lock);
	if (x.failed == n)
		return 0;
	if (err)
		*err = x.err;
	return -1;
}

int dlb_data_losses(const struct dlb_data *d)
{
	return d->n_losses;
}

int dlb_data_label(const struct dlb_data *d, int k)
{
	for (int i = 0; i < d->n_fed; i++)
		if (d->fed[i].is_label && d->fed[i].number == k)
			return d->fed[i].tensor;
	return -1;
}

/* Sum of class weights over the labels of one sample that count in the loss. */
static double counted_of(const struct dlb_fed_tensor *f, const void *label)
{
	const struct dlb_label_use *u = &f->use;
	double sum = 0;

	for (int64_t j = 0; j < u->n; j++) {
		const int64_t v = u->has_ignore || u->weight ? dlb_value_int(label, f->dtype, j) : 0;

		if ((u->counted && !u->counted[j]) || (u->has_ignore && v == u->ignore))
			continue;
		sum += u->weight && v >= 0 && v < u->classes ? u->weight[v] : 1;
	}
	return sum;
}

double dlb_data_counted(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n)
{
	const struct dlb_fed_tensor *f = t < 0 ? NULL : fed_of(d, t);
	const int64_t *order;
	struct dlb_error err;		/* ignored: dlb_data_fill reports unreadable labels */
	double counted = 0;
	char *one;

	if (!f || !f->is_label)
		return (double)n;
	if (!f->use.has_ignore && !f->use.weight)
		return (double)n * counted_of(f, NULL);
	one = dlb_xmalloc((size_t)(f->outer * f->block) * dlb_dtype_bytes(f->dtype));
	pthread_mutex_lock(&d->lock);
	order = order_of(d, epoch);
	for (int64_t i = 0; i < n; i++) {
		sample_fill(d, f, epoch, order ? order[first + i] : first + i, &d->scratch, one, &err);
		counted += counted_of(f, one);
	}
	pthread_mutex_unlock(&d->lock);
	free(one);
	return counted;
}
