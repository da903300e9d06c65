/* The source images:DIR|FILE.tar[,labels=FILE]: JPEG and PNG files, decoded when a batch is filled. Memory
 * holds their index and one image per reader. The first image sets the number of channels and the input size
 * of the transform; others may differ if the transform gives the same shape. */
#include <stdlib.h>
#include <string.h>
#include "data/file.h"
#include "data/image.h"
#include "data/index.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/spec.h"
#include "data/transform.h"
#include "util/mem.h"

enum { MAX_FILE_BYTES = 1 << 28 };

static int open_images(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err)
{
	struct dlb_index *x = d->source = dlb_xcalloc(1, sizeof *x);

	if (dlb_index_read(x, s->file[0], s->option[0], d->label_fed >= 0, d->like ? d->like->source : NULL,
			   err))
		return -1;
	d->count = x->n;
	return 0;
}

static void close_images(struct dlb_data *d)
{
	if (!d->source)
		return;
	dlb_index_release(d->source);
	free(d->source);
}

/* Loads the file of entry e into scratch. */
static int load(const struct dlb_index *x, const struct dlb_index_entry *e, struct dlb_scratch *s,
		unsigned char **p, size_t *n, struct dlb_error *err)
{
	struct dlb_data_file f = { .fd = -1 };
	char *path;
	int rc;

	*n = (size_t)e->size;
	if (x->is_tar) {
		if (e->size > MAX_FILE_BYTES)
			return dlb_fail(err, NULL, "%llu bytes are too many for an image",
					(unsigned long long)e->size);
		*p = dlb_scratch(s, DLB_SCRATCH_FILE, *n + 1);
		return dlb_data_file_get(&x->tar, e->at, *p, *n, err);
	}
	path = dlb_xprintf("%s/%s", x->root, e->name);
	rc = dlb_data_file_open(&f, path, err);
	free(path);
	if (!rc && f.size > MAX_FILE_BYTES)
		rc = dlb_fail(err, NULL, "%llu bytes are too many for an image", (unsigned long long)f.size);
	if (!rc) {
		*n = (size_t)f.size;	/* its size may have changed since indexing */
		*p = dlb_scratch(s, DLB_SCRATCH_FILE, *n + 1);
		rc = dlb_data_file_get(&f, 0, *p, *n, err);
	}
	dlb_data_file_close(&f);
	return rc;
}

/* Puts "ROOT: NAME", or the file's own path, before the message in err. */
static void name_it(const struct dlb_index *x, const struct dlb_index_entry *e, struct dlb_error *err)
{
	snprintf(err->where, sizeof err->where, x->is_tar ? "%.120s: %.120s" : "%.120s/%.120s", x->root,
		 e->name);
}

static int decode(const struct dlb_index *x, const struct dlb_index_entry *e, struct dlb_scratch *s,
		  struct dlb_image *image, struct dlb_error *err)
{
	struct dlb_error why = { .what = "" };
	unsigned char *p = NULL;
	size_t n, at;

	if (load(x, e, s, &p, &n, err)) {
		if (!err->where[0])
			name_it(x, e, err);
		return -1;
	}
	if (!dlb_image_decode(p, n, DLB_MAX_PIXELS, s, image, &at, &why))
		return 0;
	if (x->is_tar)
		dlb_fail(err, NULL, "byte %zu (%llu of the tar file): %s", at,
			 (unsigned long long)(e->at + at), why.what);
	else
		dlb_fail(err, NULL, "byte %zu: %s", at, why.what);
	name_it(x, e, err);
	return -1;
}

static int fit_labels(struct dlb_data *d, const struct dlb_fed_tensor *f, struct dlb_error *err)
{
	const struct dlb_index *x = d->source;
	const int64_t per = f->outer * f->block, top = dlb_label_range(f);

	if (per > 1 && !dlb_dtype_is_float(f->dtype))
		return dlb_fail(err, NULL, "label '%s' wants %lld values a sample, the data give one",
				f->name, (long long)per);
	if (top > 0 && x->n_classes > top)
		return dlb_fail(err, NULL, "'%s' has %d classes (the last: '%s'), the model %lld", x->root,
				x->n_classes, x->class[x->n_classes - 1], (long long)top);
	for (int64_t i = 0; i < x->n; i++)
		if (dlb_label_check(f, x->entry[i].label, i, err)) {
			name_it(x, &x->entry[i], err);
			return -1;
		}
	return 0;
}

static int fit(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err)
{
	const struct dlb_index *x = d->source;
	struct dlb_image first;

	if (decode(x, &x->entry[0], &d->scratch, &first, err) ||
	    dlb_transform_bind(&d->transform, first.c, first.h, first.w, err))
		return -1;
	for (int i = 0; i < d->n_fed; i++) {
		const struct dlb_fed_tensor *f = &d->fed[i];

		if (f->role == DLB_ROLE_SAMPLE && !dlb_dtype_is_float(f->dtype))
			return dlb_fail(err, NULL, "images are for a float input, '%s' takes %s", f->name,
					dlb_dtype_name(f->dtype));
		if ((f->role == DLB_ROLE_SAMPLE && dlb_image_fit(d, g, f, err)) ||
		    (f->role == DLB_ROLE_LABEL && fit_labels(d, f, err)))
			return -1;
	}
	return 0;
}

static int fill(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t sample,
		struct dlb_scratch *s, void *flat, struct dlb_error *err)
{
	const struct dlb_index *x = d->source;
	const struct dlb_index_entry *e = &x->entry[sample];
	struct dlb_image image;

	if (f->role == DLB_ROLE_LABEL) {
		dlb_label_set(f, e->label, flat);
		return 0;
	}
	if (decode(x, e, s, &image, err))
		return -1;
	const struct dlb_sample_seed seed = { .seed = d->seed, .epoch = epoch, .sample = sample };
	if (!dlb_image_set(d, f, &image, &seed, s, flat, err))
		return 0;
	name_it(x, e, err);
	return -1;
}

const struct dlb_source_class dlb_source_images = {
	.name = "images",
	.form = "images:DIR|FILE.tar[,labels=FILE]",
	.max_files = 1,
	.option = { { "labels", true } },
	.images = true,
	.decodes = true,
	.open = open_images,
	.fit = fit,
	.fill = fill,
	.close = close_images,
};
