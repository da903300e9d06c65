/* Internal to lib/data: the interface of a data source, and the image transforms.
 *
 *     spec.c       parses the argument of --data
 *     data.c       assigns data to inputs, orders an epoch, fills batches
 *     arrays.c     idx:, npy:, digits       over idx.c, npy.c, digits.c
 *     images.c     images:                  over index.c (folders, classes), tar.c, image.c, jpeg.c, png.c
 *     tokens.c     tokens:, text:           over text.c, bpe.c, bpe_json.c, unicode.c
 *     random.c     random
 *     transform.c  image transforms; resample.c resizes
 *     readers.c    threads that fill samples in parallel
 *
 * A new source is one struct dlb_source_class and a row in spec.c. */
#ifndef DLB_DATA_SOURCE_H
#define DLB_DATA_SOURCE_H
#include <pthread.h>
#include "data/data.h"
#include "data/readers.h"
#include "data/spec.h"
#include "data/transform.h"
#include "graph/labels.h"

/* ---- sources ---- */
struct dlb_fed_tensor {
	int tensor;
	enum dlb_role { DLB_ROLE_SAMPLE, DLB_ROLE_LABEL, DLB_ROLE_RANDOM, DLB_ROLE_LENGTH } role;
	/* index among the inputs that get samples, or among those that get labels */
	int number;
	const char *name;		/* borrowed from the graph while opening, then owned */
	enum dlb_dtype dtype;
	int64_t outer, block;		/* of one sample: pieces, elements per piece */
	int64_t bound, full;
	bool batched;			/* has a batch dimension */
	int axis;			/* index of the batch dimension; -1: none */
	uint64_t stream;
	bool is_label;			/* also if its role is RANDOM */
	struct dlb_label_use use;	/* labels only */
};
struct dlb_order { int64_t epoch; int64_t *at; };

struct dlb_source_class {
	const char *name;			/* the word before the ':' */
	const char *form;			/* syntax, for messages */
	/* 0: none. 1: name may contain commas; 2: split at the last comma */
	int max_files;
	struct dlb_spec_option option[DLB_MAX_SPEC_OPTIONS];
	bool images;				/* takes --transform */
	bool endless, many;			/* no last sample; feeds several inputs */
	bool decodes;				/* faster with several readers */
	/* Reads or indexes the files; sets d->source. -1 with err. */
	int (*open)(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err);
	/* Checks the data against d->fed and the graph; sets d->count. -1 with err. */
	int (*fit)(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err);
	/* Fills one sample: outer*block contiguous elements of f's dtype, plain layout. -1 with err. */
	int (*fill)(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t sample,
		    struct dlb_scratch *s, void *flat, struct dlb_error *err);
	double (*kept)(const struct dlb_data *d); /* bytes of samples in memory; NULL: none */
	void (*close)(struct dlb_data *d);	/* d->source may be NULL */
};
extern const struct dlb_source_class dlb_source_idx, dlb_source_npy, dlb_source_digits, dlb_source_images,
	dlb_source_tokens, dlb_source_text, dlb_source_random;

struct dlb_data {
	const struct dlb_source_class *class;
	void *source;
	const struct dlb_data *like;
	bool test, shuffled;
	int64_t count;
	uint64_t seed;
	struct dlb_fed_tensor *fed; int n_fed;
	/* index in fed of the first labels, -1: none; number of label tensors */
	int label_fed, n_labels;
	int n_losses;				/* losses in the graph */
	struct dlb_transform transform;
	pthread_mutex_t lock;			/* guards order and readers */
	struct dlb_shards *shards;		/* NULL: none */
	struct dlb_order order[2];		/* of two epochs: look-ahead may be in the next one */
	struct dlb_readers *readers;		/* NULL until first needed */
	int n_readers;
	struct dlb_scratch scratch;
	struct dlb_arena arena;			/* memory of fed[].use */
};
/* Checks that class label v is in the model's range or is the ignored label. -1
 * with err, which names `sample`. */
int dlb_label_check(const struct dlb_fed_tensor *f, int64_t v, int64_t sample, struct dlb_error *err);
/* Returns the number of classes: class labels lie in [0, number); 0: unknown. */
int64_t dlb_label_range(const struct dlb_fed_tensor *f);
void dlb_label_set(const struct dlb_fed_tensor *f, int64_t v, void *flat);
/* Checks the transform's output shape against input f. -1 with err. */
int dlb_image_fit(const struct dlb_data *d, const struct dlb_graph *g, const struct dlb_fed_tensor *f,
		  struct dlb_error *err);
/* Transforms x and writes it in f's dtype. */
int dlb_image_set(const struct dlb_data *d, const struct dlb_fed_tensor *f, const struct dlb_image *x,
		  const struct dlb_sample_seed *seed, struct dlb_scratch *s, void *flat,
		  struct dlb_error *err);
#endif
