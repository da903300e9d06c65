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
#include "graph/labels.h"

/* ---- scratch memory of one reader: buffers that grow and are reused ---- */
enum dlb_scratch_use {
	DLB_SCRATCH_FILE,
	DLB_SCRATCH_ROWS,
	DLB_SCRATCH_IMAGE,
	DLB_SCRATCH_A,
	DLB_SCRATCH_B,
	DLB_SCRATCH_RESIZE,
	DLB_SCRATCH_SAMPLE,
	DLB_SCRATCH_SLAB,
	DLB_N_SCRATCH
};
struct dlb_scratch { void *p[DLB_N_SCRATCH]; size_t cap[DLB_N_SCRATCH]; };
void *dlb_scratch(struct dlb_scratch *s, enum dlb_scratch_use use, size_t bytes);
void dlb_scratch_release(struct dlb_scratch *s);

/* ---- transforms of images (transform.c). An image is stored plane by plane: (c, h, w) ---- */
enum { DLB_MAX_TRANSFORMS = 16, DLB_MAX_CHANNELS = 64 };
struct dlb_transform_step {
	enum dlb_transform_kind {
		DLB_TR_SCALE,
		DLB_TR_NORMALISE,
		DLB_TR_CHANNELS,
		DLB_TR_PAD,
		DLB_TR_RESIZE,
		DLB_TR_CROP,
		DLB_TR_RANDOM_CROP,
		DLB_TR_FLIP,
		DLB_N_TR
	} kind;
	float mul, div;				/* scale */
	/* normalise: 1 value or one per channel */
	float mean[DLB_MAX_CHANNELS], sd[DLB_MAX_CHANNELS]; int n;
	int64_t amount;				/* pad, channels */
	int64_t h, w;				/* resize, crops; resize with w 0: h is the shorter side */
	double chance;				/* of a flip, 0 to 1 */
};
struct dlb_transform {
	struct dlb_transform_step step[DLB_MAX_TRANSFORMS];
	int n_steps, tail;			/* steps from `tail` on change each value independently */
	int64_t out_c, out_h, out_w;
	/* [out_c][256]: result of steps from `tail` on for each byte */
	float *table;
};
struct dlb_image { bool bytes; int64_t c, h, w; void *p; };	/* bytes, else f32; p borrowed */
struct dlb_sample_seed { uint64_t seed; int64_t epoch, sample; };
int dlb_transform_parse(const char *text, struct dlb_transform *t, struct dlb_error *err);
/* Computes the output shape from the data's shape and builds the table. */
int dlb_transform_bind(struct dlb_transform *t, int64_t c, int64_t h, int64_t w, struct dlb_error *err);
/* Transforms image x into out_c*out_h*out_w floats. seed NULL: crops are centred, nothing is flipped. -1
 * with err: the result has another shape. */
int dlb_transform_apply(const struct dlb_transform *t, const struct dlb_image *x,
			const struct dlb_sample_seed *seed, struct dlb_scratch *s, float *dst,
			struct dlb_error *err);
void dlb_transform_release(struct dlb_transform *t);
/* resample.c: resizes each plane of x from (h, w) to (oh, ow), bilinear with antialiasing. Bytes are
 * bit-equal to Pillow; floats use the same filter without rounding. */
void dlb_resample(const struct dlb_image *x, int64_t oh, int64_t ow, void *dst, struct dlb_scratch *s);

/* ---- specs (spec.c) ---- */
enum { DLB_MAX_SPEC_FILES = 16, DLB_MAX_SPEC_OPTIONS = 4 };
struct dlb_spec_option { const char *name; bool is_file; };
struct dlb_spec {
	const struct dlb_source_class *class;
	char *file[DLB_MAX_SPEC_FILES]; int n_files;
	char *option[DLB_MAX_SPEC_OPTIONS];	/* by row of class->option; NULL: not given */
	char *word;				/* text after ':' of a class without files; NULL: none */
};
int dlb_spec_parse(const char *text, struct dlb_spec *s, struct dlb_error *err);
void dlb_spec_release(struct dlb_spec *s);

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
	const char *name;			/* before the ':' */
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
/* class labels lie in [0, range); 0: unknown */
int64_t dlb_label_range(const struct dlb_fed_tensor *f);
void dlb_label_set(const struct dlb_fed_tensor *f, int64_t v, void *flat);
/* Checks the transform's output shape against input f. -1 with err. */
int dlb_image_fit(const struct dlb_data *d, const struct dlb_graph *g, const struct dlb_fed_tensor *f,
		  struct dlb_error *err);
/* Transforms x and writes it in f's dtype. */
int dlb_image_set(const struct dlb_data *d, const struct dlb_fed_tensor *f, const struct dlb_image *x,
		  const struct dlb_sample_seed *seed, struct dlb_scratch *s, void *flat,
		  struct dlb_error *err);

/* readers.c: calls fn(ctx, i, scratch) for i = 0 .. n-1 on the threads and the caller. */
struct dlb_readers;
int dlb_readers_new(struct dlb_readers **out, int n, struct dlb_error *err);
void dlb_readers_free(struct dlb_readers *r);
void dlb_readers_run(struct dlb_readers *r, int64_t n,
		     void (*fn)(void *ctx, int64_t i, struct dlb_scratch *s), void *ctx);

/* ---- files ---- */
/* Loads a whole file: *data is new. */
int dlb_data_file_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err);
/* A file that is read at any offset. */
struct dlb_data_file { int fd; char *path; uint64_t size; };
int dlb_data_file_open(struct dlb_data_file *f, const char *path, struct dlb_error *err);
/* Reads n bytes from offset `at`; -1 with err, which names the offset, if the file ends before. */
int dlb_data_file_get(const struct dlb_data_file *f, uint64_t at, void *dst, size_t n, struct dlb_error *err);
void dlb_data_file_close(struct dlb_data_file *f);

/* An IDX file (Y. LeCun's format of MNIST): two zero bytes, a type, the number of dimensions, each dimension
 * as 32 bits, then the elements; all big-endian. Here in the machine's byte order. */
struct dlb_idx {
	enum dlb_dtype dtype;
	int n_dims;
	int64_t dim[DLB_MAX_DIMS];
	void *data; /* owned */
	uint64_t at;
};
/* Opens an IDX file. One-byte elements of a plain file are not loaded: data is NULL, they begin at
 * byte `at`, and *file stays open. */
int dlb_idx_open(const char *path, struct dlb_idx *x, struct dlb_data_file *file, struct dlb_error *err);
/* Parses an IDX file in memory, gzip or not; x->data is new. `name` for messages. */
int dlb_idx_parse(const void *p, size_t n, const char *name, struct dlb_idx *x, struct dlb_error *err);
void dlb_idx_release(struct dlb_idx *x);
/* The built-in digits: the two IDX files of share/data/digits. */
int dlb_digits_read(struct dlb_idx *images, struct dlb_idx *labels, struct dlb_error *err);

/* Parses the header of a .npy file (NumPy's format, versions 1 to 3): type, dimensions, offset of the
 * elements. p has the first n bytes of the file, `size` is the size of the whole file. */
struct dlb_npy { enum dlb_dtype dtype; int n_dims; int64_t dim[DLB_MAX_DIMS]; uint64_t at; };
int dlb_npy_parse(const unsigned char *p, size_t n, uint64_t size, const char *name, struct dlb_npy *x,
		  struct dlb_error *err);

/* ---- images ---- */
#define DLB_MAX_PIXELS (INT64_C(1) << 26)	/* per image: limits the memory that a header can claim */
/* Decodes an image file in memory: grey (c 1) or RGB (c 3), planes in scratch. On error
 * *at is the offset of the fault. */
int dlb_image_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		     struct dlb_image *x, size_t *at, struct dlb_error *err);
bool dlb_image_named(const char *name);		/* ends in .jpg, .jpeg or .png, in either case */
/* One format each: interleaved pixels (h, w, c), in DLB_SCRATCH_ROWS. */
int dlb_jpeg_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		    struct dlb_image *x, size_t *at, struct dlb_error *err);
int dlb_png_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		   struct dlb_image *x, size_t *at, struct dlb_error *err);

/* Visits the members of a tar file (ustar, pax, GNU long names) in order: regular files, and links and sparse
 * files with `link` set. The callback returns -1 with err to stop. */
struct dlb_tar_member { const char *name; uint64_t header, at, size; bool link; };
int dlb_tar_walk(const struct dlb_data_file *f,
		 int (*visit)(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err), void *ctx,
		 struct dlb_error *err);

/* index.c: the images of a folder or tar file, sorted by class and name. */
struct dlb_index_entry { char *name; uint64_t at, size; int label; };	/* at, size: in the tar file */
struct dlb_index {
	struct dlb_arena arena;
	struct dlb_index_entry *entry; int64_t n, cap;
	char **class; int n_classes;		/* sorted names; none if labels are numbers */
	bool is_tar;
	struct dlb_data_file tar;
	char *root;
};
/* Builds the index in x, which must be zeroed. labels: file of lines "NAME LABEL"; NULL: folders are the
 * classes, if `classes` is set. like: use its classes, or NULL. */
int dlb_index_read(struct dlb_index *x, const char *path, const char *labels, bool classes,
		   const struct dlb_index *like, struct dlb_error *err);
void dlb_index_release(struct dlb_index *x);

/* ---- text ---- */
/* Token ids, in memory. */
struct dlb_tokens { uint32_t *id; size_t n; };
/* The distinct units (bytes or code points) of a text, sorted; the id of a unit is its index. */
struct dlb_alphabet { uint32_t *unit; int n; };
/* Decodes one code point of the n bytes at p: returns its length in bytes; 0: not UTF-8. */
int dlb_utf8_decode(const unsigned char *p, size_t n, uint32_t *code);
/* bytes: a unit is a byte, else a code point. */
int dlb_alphabet_of(const unsigned char *p, size_t n, const char *name, bool bytes, struct dlb_alphabet *a,
		    struct dlb_error *err);
int dlb_alphabet_encode(const struct dlb_alphabet *a, const unsigned char *p, size_t n, const char *name,
			bool bytes, struct dlb_tokens *t, struct dlb_error *err);
bool dlb_unicode_letter(uint32_t code);		/* categories L* of Unicode 14; next line: N* */
bool dlb_unicode_number(uint32_t code);
bool dlb_unicode_space(uint32_t code);		/* White_Space */
/* Length in bytes of the piece that GPT-2's pattern takes from the n > 0 bytes of UTF-8 at p. */
size_t dlb_bpe_piece(const unsigned char *p, size_t n);

/* Byte-pair encoding as in GPT-2: see bpe.c. */
struct dlb_bpe;
struct dlb_text { const unsigned char *p; size_t n; const char *name; };	/* a file's bytes and name */
int dlb_bpe_new(struct dlb_bpe **out, const struct dlb_text *vocab, const struct dlb_text *merges,
		struct dlb_error *err);
void dlb_bpe_free(struct dlb_bpe *b);
int64_t dlb_bpe_vocabulary(const struct dlb_bpe *b);	/* largest id + 1 */
int dlb_bpe_encode(struct dlb_bpe *b, const unsigned char *p, size_t n, const char *name,
		   struct dlb_tokens *t, struct dlb_error *err);
/* bpe_json.c: calls `each` for the pairs of vocab.json in file order: token
 * (borrowed during the call) and id. */
int dlb_vocab_read(const unsigned char *p, size_t n, const char *name,
		   int (*each)(void *ctx, const char *token, int64_t id, struct dlb_error *err), void *ctx,
		   struct dlb_error *err);

/* random.c: fills dst with `count` elements of dtype. Reals without a bound are N(0,1); integers, and
 * reals with a bound, are integers in [0, bound), or in {0, 1} if bound is 0. Element j of sample i has
 * counter i*count+j in `stream`. */
void dlb_random_fill(uint64_t seed, uint64_t stream, int64_t sample, int64_t count, enum dlb_dtype dtype,
		     int64_t bound, void *dst);
#endif
