/* The sources idx:IMAGES,LABELS, npy:SAMPLES[,...][,LABELS] and digits: arrays with one sample per row.
 *
 * Gzip files and labels are loaded into memory. Samples of .npy files and bytes of plain IDX files stay in
 * the file and are read row by row. Samples of a float input pass through the transform, if there is one. All
 * other values are copied unchanged, so integers and doubles lose nothing. */
#include <stdlib.h>
#include <string.h>
#include "data/file.h"
#include "data/idx.h"
#include "data/npy.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/spec.h"
#include "data/transform.h"
#include "util/mem.h"

struct array {
	enum dlb_dtype dtype;
	int n_dims;
	int64_t dim[DLB_MAX_DIMS], row;		/* row: elements per sample */
	const char *name;			/* file name, for messages */
	void *data;				/* owned; NULL: the elements are in `file` */
	struct dlb_data_file file; uint64_t at;	/* elements begin at byte `at` */
};
struct arrays {
	struct array samples[DLB_MAX_SPEC_FILES], labels[DLB_MAX_SPEC_FILES];
	int n_samples, n_labels;		/* numbers of arrays in use */
	int64_t first;				/* row of sample 0: digits:test begins at 1437 */
};

static void row_count(struct array *a)
{
	a->row = 1;
	for (int i = 1; i < a->n_dims; i++)
		a->row *= a->dim[i];
}

static void array_close(struct array *a)
{
	free(a->data);
	dlb_data_file_close(&a->file);
}

static double bytes_of(const struct array *a)
{
	return a->data ? (double)a->dim[0] * (double)a->row * (double)dlb_dtype_bytes(a->dtype) : 0;
}

static double arrays_kept(const struct dlb_data *d)
{
	const struct arrays *a = d->source;
	double sum = 0;

	for (int i = 0; i < a->n_samples; i++)
		sum += bytes_of(&a->samples[i]);
	for (int i = 0; i < a->n_labels; i++)
		sum += bytes_of(&a->labels[i]);
	return sum;
}

static void from_idx(struct array *a, struct dlb_idx *x, const char *name)
{
	a->dtype = x->dtype;
	a->n_dims = x->n_dims;
	memcpy(a->dim, x->dim, sizeof a->dim);
	a->data = x->data;
	a->at = x->at;
	a->name = name;
	row_count(a);
}

static int from_npy(struct array *a, const char *path, struct dlb_error *err)
{
	enum { HEAD = (1 << 16) + 12 };
	unsigned char *head;
	struct dlb_npy x;
	size_t n;
	int rc;

	if (dlb_data_file_open(&a->file, path, err))
		return -1;
	a->name = a->file.path;
	n = a->file.size < HEAD ? (size_t)a->file.size : HEAD;
	head = dlb_xmalloc(n + 1);
	rc = dlb_data_file_get(&a->file, 0, head, n, err) ||
			     dlb_npy_parse(head, n, a->file.size, path, &x, err) ?
		     -1 :
		     0;
	free(head);
	if (rc)
		return -1;
	a->dtype = x.dtype;
	a->n_dims = x.n_dims;
	memcpy(a->dim, x.dim, sizeof a->dim);
	a->at = x.at;
	row_count(a);
	return 0;
}

/* Loads an array from its file into memory, unless it is there already. */
static int load(struct array *a, struct dlb_error *err)
{
	size_t bytes = (size_t)(a->dim[0] * a->row) * dlb_dtype_bytes(a->dtype);

	if (a->data)
		return 0;
	a->data = dlb_xmalloc(bytes);
	return dlb_data_file_get(&a->file, a->at, a->data, bytes, err);
}

/* Returns row i, in memory or read into scratch; NULL with err if it cannot be read. */
static const void *row(const struct array *a, int64_t i, struct dlb_scratch *s, struct dlb_error *err)
{
	size_t bytes = (size_t)a->row * dlb_dtype_bytes(a->dtype);
	void *p;

	if (a->data)
		return (const char *)a->data + (size_t)i * bytes;
	p = dlb_scratch(s, DLB_SCRATCH_FILE, bytes);
	return dlb_data_file_get(&a->file, a->at + (uint64_t)i * bytes, p, bytes, err) ? NULL : p;
}

/* ---- opening ---- */

static int idx_open(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err)
{
	struct arrays *a = d->source = dlb_xcalloc(1, sizeof *a);
	struct dlb_idx x;

	a->n_samples = a->n_labels = 1;
	if (dlb_idx_open(s->file[0], &x, &a->samples[0].file, err))
		return -1;
	from_idx(&a->samples[0], &x, NULL);
	if (dlb_idx_open(s->file[1], &x, &a->labels[0].file, err))
		return -1;
	from_idx(&a->labels[0], &x, NULL);
	if (load(&a->labels[0], err))
		return -1;
	if (x.n_dims != 1 || !dlb_dtype_is_int(x.dtype))
		return dlb_fail(err, s->file[1], "labels are a list of integers, not %d dimensions of %s",
				x.n_dims, dlb_dtype_name(x.dtype));
	if (a->labels[0].dim[0] != a->samples[0].dim[0])
		return dlb_fail(err, NULL, "%lld labels in '%s' for %lld samples in '%s'",
				(long long)a->labels[0].dim[0], s->file[1], (long long)a->samples[0].dim[0],
				s->file[0]);
	d->count = a->samples[0].dim[0];
	return 0;
}

static int digits_open(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err)
{
	enum { TRAIN = 1437 };
	struct arrays *a = d->source = dlb_xcalloc(1, sizeof *a);
	struct dlb_idx images, labels;

	if (s->word && strcmp(s->word, "train") && strcmp(s->word, "test"))
		return dlb_hint((dlb_fail(err, NULL, "no data 'digits:%s'", s->word), err),
				"there are digits, digits:train and digits:test");
	if (dlb_digits_read(&images, &labels, err))
		return -1;
	a->n_samples = a->n_labels = 1;
	from_idx(&a->samples[0], &images, "digits");
	from_idx(&a->labels[0], &labels, "digits");
	d->count = a->samples[0].dim[0];
	if (s->word && !strcmp(s->word, "train"))
		d->count = TRAIN;
	if (s->word && !strcmp(s->word, "test")) {
		a->first = TRAIN;
		d->count -= TRAIN;
	}
	return 0;
}

/* Appends the names of the inputs of a role to `list`, for messages. */
static void list_inputs(const struct dlb_data *d, enum dlb_role role, char *list, size_t cap)
{
	for (int i = 0; i < d->n_fed; i++) {
		const size_t n = strlen(list);

		if (d->fed[i].role == role)
			snprintf(list + n, cap - n, "%s'%s'%s", n ? ", " : "", d->fed[i].name,
				 role == DLB_ROLE_LABEL ? " (labels)" : "");
	}
}

/* Returns the number of the integer input whose tokens also serve as labels, because the loss shifts the
 * labels by one token itself (next_token): the first with as many values per sample as the label. -1:
 * none. */
static int tokens_for_labels(const struct dlb_data *d)
{
	const struct dlb_fed_tensor *label = d->label_fed < 0 ? NULL : &d->fed[d->label_fed];

	for (int i = 0; i < d->n_fed && label && label->use.next_token && d->n_labels == 1; i++) {
		const struct dlb_fed_tensor *f = &d->fed[i];

		if (f->role == DLB_ROLE_SAMPLE && dlb_dtype_is_int(f->dtype) &&
		    f->outer * f->block == label->outer * label->block)
			return f->number;
	}
	return -1;
}

/* Assigns the files: samples in the order of the model's inputs, then labels in the order of the losses.
 * *labels_from: the samples' file that also holds the labels; -1: none. */
static int share_files(struct dlb_data *d, const struct dlb_spec *s, int *labels_from, struct dlb_error *err)
{
	struct arrays *a = d->source;
	int n_samples = 0;
	char list[512] = "";

	for (int i = 0; i < d->n_fed; i++)
		n_samples += d->fed[i].role == DLB_ROLE_SAMPLE;
	*labels_from = s->n_files == n_samples && d->n_labels ? tokens_for_labels(d) : -1;
	if (s->n_files == n_samples + d->n_labels || *labels_from >= 0) {
		a->n_samples = n_samples;
		a->n_labels = d->n_labels;
		return 0;
	}
	list_inputs(d, DLB_ROLE_SAMPLE, list, sizeof list);
	list_inputs(d, DLB_ROLE_LABEL, list, sizeof list);
	return dlb_fail(err, NULL, "data 'npy:' name %d files, the model has %d inputs: %s", s->n_files,
			n_samples + d->n_labels, list);
}

static int npy_open(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err)
{
	struct arrays *a = d->source = dlb_xcalloc(1, sizeof *a);
	const struct array *first = &a->samples[0];
	int labels_from;

	if (share_files(d, s, &labels_from, err))
		return -1;
	if (!a->n_samples)
		first = &a->labels[0];
	for (int i = 0; i < a->n_samples + a->n_labels; i++) {
		struct array *x = i < a->n_samples ? &a->samples[i] : &a->labels[i - a->n_samples];
		const char *file = s->file[i < s->n_files ? i : labels_from];

		if (from_npy(x, file, err))
			return -1;
		if (x->dim[0] != first->dim[0])
			return dlb_fail(err, NULL, "%lld %s in '%s' for %lld samples in '%s'",
					(long long)x->dim[0], i < a->n_samples ? "samples" : "labels", file,
					(long long)first->dim[0], s->file[0]);
		if (i >= a->n_samples && load(x, err))
			return -1;
	}
	d->count = first->dim[0];
	return 0;
}

static void arrays_close(struct dlb_data *d)
{
	struct arrays *a = d->source;

	if (!a)
		return;
	for (int i = 0; i < a->n_samples; i++)
		array_close(&a->samples[i]);
	for (int i = 0; i < a->n_labels; i++)
		array_close(&a->labels[i]);
	free(a);
}

/* ---- fitting ---- */

/* True if the samples of input f go through the transform. */
static bool transformed(const struct dlb_data *d, const struct dlb_fed_tensor *f)
{
	return f->number == 0 && dlb_dtype_is_float(f->dtype) &&
	       (d->transform.n_steps || d->class != &dlb_source_npy);
}

/* Writes the shape of an array's samples as channels, height, width; missing leading dimensions are 1. */
static int as_image(const struct array *x, int64_t chw[3], struct dlb_error *err)
{
	chw[0] = chw[1] = chw[2] = 1;
	if (x->n_dims > 4)
		return dlb_fail(err, NULL,
				"samples of %d dimensions; at most channels, height, width are read",
				x->n_dims - 1);
	for (int i = 1; i < x->n_dims; i++)
		chw[3 - (x->n_dims - i)] = x->dim[i];
	return 0;
}

static void shape_text(const struct array *x, char *out, size_t cap)
{
	size_t n = 0;

	snprintf(out, cap, "1");
	for (int i = 1; i < x->n_dims && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%lld", i > 1 ? "x" : "", (long long)x->dim[i]);
}

/* Checks rows that are copied unchanged: they have as many values as the input takes, and the same
 * shape apart from dimensions of 1. */
static int row_fit(const struct array *x, const struct dlb_graph *g, const struct dlb_fed_tensor *f,
		   struct dlb_error *err)
{
	const struct dlb_tensor *t = &g->tensor[f->tensor];
	int64_t mine[DLB_MAX_DIMS], theirs[DLB_MAX_DIMS];
	int n_mine = 0, n_theirs = 0;
	char text[128];

	for (int i = 0; i < t->n_dims; i++)
		if (i != f->axis && t->dim[i].add != 1)
			theirs[n_theirs++] = t->dim[i].add;
	for (int i = 1; i < x->n_dims; i++)
		if (x->dim[i] != 1)
			mine[n_mine++] = x->dim[i];
	/* If the number of dimensions differs (batch dimension with mul > 1, flattened
	 * rows), only the count is compared. */
	if (f->outer * f->block == x->row &&
	    (n_mine != n_theirs || !memcmp(mine, theirs, (size_t)n_mine * sizeof *mine)))
		return 0;
	shape_text(x, text, sizeof text);
	return dlb_fail(err, x->name, "samples of %s (%lld values), input '%s' wants %lld", text,
			(long long)x->row, f->name, (long long)(f->outer * f->block));
}

/* True if each row is one class number, false if it has all values of the label tensor. */
static bool is_class(const struct array *labels, const struct dlb_fed_tensor *f)
{
	return labels->row == 1 && !(f->outer * f->block == 1 && dlb_dtype_is_float(f->dtype));
}

/* Puts the byte offset of label i of array x into err->where. */
static void say_byte(const struct array *x, int64_t i, struct dlb_error *err)
{
	if (x->file.path)
		snprintf(err->where, sizeof err->where, "%.180s: byte %llu", x->name,
			 (unsigned long long)(x->at + (uint64_t)i * dlb_dtype_bytes(x->dtype)));
}

/* Checks that labels that are probabilities (f->bound > 0) lie between 0 and 1. */
static int check_reals(const struct dlb_data *d, const struct array *x, const struct dlb_fed_tensor *f,
		       struct dlb_error *err)
{
	const struct arrays *a = d->source;

	for (int64_t i = 0; i < d->count * x->row && f->bound > 0; i++) {
		const double v = dlb_value_real(x->data, x->dtype, a->first * x->row + i);

		if (v >= 0 && v <= (double)f->bound - 1)
			continue;
		dlb_fail(err, x->name, "label %g of sample %lld is outside what input '%s' takes, 0 to %lld",
			 v, (long long)(i / x->row), f->name, (long long)f->bound - 1);
		say_byte(x, i, err);
		return -1;
	}
	return 0;
}

static int labels_fit(struct dlb_data *d, const struct dlb_graph *g, const struct dlb_fed_tensor *f,
		      struct dlb_error *err)
{
	const struct arrays *a = d->source;
	const struct array *x = &a->labels[f->number];
	int64_t per = f->outer * f->block;

	if (!is_class(x, f)) {
		if (row_fit(x, g, f, err))
			return -1;
	} else if (per > 1 && !dlb_dtype_is_float(f->dtype)) {
		return dlb_fail(err, NULL, "label '%s' wants %lld values a sample, the data give one",
				f->name, (long long)per);
	}
	if ((!dlb_dtype_is_float(f->dtype) || is_class(x, f)) && dlb_dtype_is_float(x->dtype)) {
		return dlb_hint((dlb_fail(err, x->name, "labels of type %s; classes are integers",
					  dlb_dtype_name(x->dtype)),
				 err),
				"save them as numpy.save(FILE, y.astype('int64'))");
	}
	if (dlb_dtype_is_float(f->dtype) && !is_class(x, f))
		return check_reals(d, x, f, err);
	for (int64_t i = 0; i < d->count * x->row; i++) {
		int64_t v = dlb_value_int(x->data, x->dtype, a->first * x->row + i);

		if (!dlb_label_check(f, v, i / x->row, err))
			continue;
		say_byte(x, i, err);
		return -1;
	}
	return 0;
}

static int arrays_fit(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err)
{
	const struct arrays *a = d->source;
	int64_t chw[3];

	for (int i = 0; i < d->n_fed; i++) {
		const struct dlb_fed_tensor *f = &d->fed[i];
		const struct array *x = &a->samples[f->number];

		if (f->role == DLB_ROLE_LABEL && labels_fit(d, g, f, err))
			return -1;
		if (f->role != DLB_ROLE_SAMPLE)
			continue;
		if (transformed(d, f)) {
			if (as_image(x, chw, err) ||
			    dlb_transform_bind(&d->transform, chw[0], chw[1], chw[2], err) ||
			    dlb_image_fit(d, g, f, err))
				return -1;
		} else if (d->transform.n_steps && f->number == 0) {
			return dlb_fail(err, NULL, "--transform is for images, input '%s' takes %s", f->name,
					dlb_dtype_name(f->dtype));
		} else if (row_fit(x, g, f, err)) {
			return -1;
		} else if (!dlb_dtype_is_float(f->dtype) && dlb_dtype_is_float(x->dtype)) {
			return dlb_hint((dlb_fail(err, x->name, "elements of type %s, input '%s' takes %s",
						  dlb_dtype_name(x->dtype), f->name,
						  dlb_dtype_name(f->dtype)),
					 err),
					"save integers: numpy.save(FILE, x.astype('int64'))");
		}
	}
	return 0;
}

/* ---- filling ---- */

static int copy_row(const struct array *x, const struct dlb_fed_tensor *f, int64_t sample, const void *src,
		    void *flat, struct dlb_error *err)
{
	bool whole = !dlb_dtype_is_float(f->dtype);

	if (f->dtype == x->dtype && !whole) {
		memcpy(flat, src, (size_t)x->row * dlb_dtype_bytes(x->dtype));
		return 0;
	}
	for (int64_t j = 0; j < x->row; j++) {
		int64_t v;

		if (!whole) {
			dlb_value_set(flat, f->dtype, j, dlb_value_real(src, x->dtype, j));
			continue;
		}
		v = dlb_value_int(src, x->dtype, j);
		if (f->role == DLB_ROLE_SAMPLE && f->bound > 0 && (v < 0 || v >= f->bound))
			return dlb_fail(
				err, x->name,
				"byte %llu: %lld of sample %lld is outside what input '%s' takes, 0 to %lld",
				(unsigned long long)(x->at + (uint64_t)(sample * x->row + j) *
								     dlb_dtype_bytes(x->dtype)),
				(long long)v, (long long)sample, f->name, (long long)f->bound - 1);
		dlb_value_set(flat, f->dtype, j, (double)v);
	}
	return 0;
}

static int arrays_fill(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t sample,
		       struct dlb_scratch *s, void *flat, struct dlb_error *err)
{
	const struct arrays *a = d->source;
	const struct array *x = f->role == DLB_ROLE_LABEL ? &a->labels[f->number] : &a->samples[f->number];
	const void *p = row(x, a->first + sample, s, err);
	struct dlb_image image;
	int64_t chw[3];

	if (!p)
		return -1;
	if (f->role == DLB_ROLE_LABEL && is_class(x, f)) {
		dlb_label_set(f, dlb_value_int(p, x->dtype, 0), flat);
		return 0;
	}
	if (f->role == DLB_ROLE_LABEL || !transformed(d, f))
		return copy_row(x, f, sample, p, flat, err);
	if (as_image(x, chw, err))
		return -1;
	image = (struct dlb_image){
		.bytes = x->dtype == DLB_U8, .c = chw[0], .h = chw[1], .w = chw[2], .p = (void *)(uintptr_t)p
	};
	if (x->dtype != DLB_U8 && x->dtype != DLB_F32) {
		float *wide = image.p = dlb_scratch(s, DLB_SCRATCH_IMAGE, (size_t)x->row * sizeof *wide);

		for (int64_t j = 0; j < x->row; j++)
			wide[j] = (float)dlb_value_real(p, x->dtype, j);
	}
	const struct dlb_sample_seed seed = { .seed = d->seed, .epoch = epoch, .sample = sample };
	return dlb_image_set(d, f, &image, &seed, s, flat, err);
}

const struct dlb_source_class dlb_source_idx = {
	.name = "idx",
	.form = "idx:IMAGES,LABELS",
	.max_files = 2,
	.images = true,
	.open = idx_open,
	.fit = arrays_fit,
	.fill = arrays_fill,
	.kept = arrays_kept,
	.close = arrays_close,
};
const struct dlb_source_class dlb_source_npy = {
	.name = "npy",
	.form = "npy:SAMPLES.npy[,...],LABELS.npy",
	.max_files = DLB_MAX_SPEC_FILES,
	.images = true,
	.many = true,
	.open = npy_open,
	.fit = arrays_fit,
	.fill = arrays_fill,
	.kept = arrays_kept,
	.close = arrays_close,
};
const struct dlb_source_class dlb_source_digits = {
	.name = "digits",
	.form = "digits[:train|:test]",
	.images = true,
	.open = digits_open,
	.fit = arrays_fit,
	.fill = arrays_fill,
	.kept = arrays_kept,
	.close = arrays_close,
};
