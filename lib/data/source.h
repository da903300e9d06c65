/* Inside lib/data: what a source of samples is, and the transforms.
 *
 *     spec.c       what is written after --data, taken apart
 *     data.c       which input of the model gets what, the order of an epoch, filling
 *     arrays.c     idx:, npy:, digits       over idx.c, npy.c, digits.c
 *     images.c     images:                  over index.c (folders, classes), tar.c, image.c, jpeg.c, png.c
 *     tokens.c     tokens:, text:           over text.c, bpe.c, bpe_json.c, unicode.c
 *     random.c     random
 *     transform.c  what is done to each image; resample.c resizes
 *     readers.c    threads that fill samples side by side
 *
 * A new source is one struct dlb_source_class and a row in spec.c. */
#ifndef DLB_DATA_SOURCE_H
#define DLB_DATA_SOURCE_H
#include <pthread.h>
#include "data/data.h"
#include "graph/labels.h"

/* ---- scratch memory of one reader: buffers that grow and stay ---- */
enum dlb_scratch_use { DLB_SCRATCH_FILE, DLB_SCRATCH_ROWS, DLB_SCRATCH_IMAGE, DLB_SCRATCH_A, DLB_SCRATCH_B, DLB_SCRATCH_RESIZE,
		       DLB_SCRATCH_SAMPLE, DLB_SCRATCH_SLAB, DLB_N_SCRATCH };
struct dlb_scratch { void *p[DLB_N_SCRATCH]; size_t cap[DLB_N_SCRATCH]; };
void *dlb_scratch(struct dlb_scratch *s, enum dlb_scratch_use use, size_t bytes);
void dlb_scratch_release(struct dlb_scratch *s);

/* ---- transforms of images (transform.c). Images lie plane after plane: (c, h, w) ---- */
enum { DLB_MAX_TRANSFORMS = 16, DLB_MAX_CHANNELS = 64 };
struct dlb_transform_step {
	enum dlb_transform_kind { DLB_TR_SCALE, DLB_TR_NORMALISE, DLB_TR_CHANNELS, DLB_TR_PAD, DLB_TR_RESIZE, DLB_TR_CROP,
				  DLB_TR_RANDOM_CROP, DLB_TR_FLIP, DLB_N_TR } kind;
	float mul, div;				/* scale */
	float mean[DLB_MAX_CHANNELS], sd[DLB_MAX_CHANNELS]; int n;	/* normalise: 1 or one a channel */
	int64_t amount;				/* pad, channels */
	int64_t h, w;				/* resize, crops; w 0 of resize: h is that of the shorter side */
	double chance;				/* of a flip */
};
struct dlb_transform {
	struct dlb_transform_step step[DLB_MAX_TRANSFORMS];
	int n_steps, tail;			/* from step `tail` on each value is changed by itself */
	int64_t out_c, out_h, out_w;
	float *table;				/* [out_c][256]: what becomes of a byte from `tail` on */
};
struct dlb_image { bool bytes; int64_t c, h, w; void *p; };	/* bytes, else f32; p is borrowed */
struct dlb_chance { uint64_t seed; int64_t epoch, sample; };
int dlb_transform_parse(const char *text, struct dlb_transform *t, struct dlb_error *err);
/* Fixes the shape that comes out, from that of the data; makes the table. */
int dlb_transform_bind(struct dlb_transform *t, int64_t c, int64_t h, int64_t w, struct dlb_error *err);
/* Image x into out_c*out_h*out_w floats. -1: x has not the shape that the steps want. chance NULL: crops
 * centred, nothing flipped. */
int dlb_transform_apply(const struct dlb_transform *t, const struct dlb_image *x, const struct dlb_chance *chance,
			struct dlb_scratch *s, float *dst, struct dlb_error *err);
void dlb_transform_release(struct dlb_transform *t);
/* resample.c: each plane of x (c, h, w) to (c, oh, ow), bilinear with antialiasing; bytes by Pillow's rule to the
 * bit, floats alike without its rounding. */
void dlb_resample(const struct dlb_image *x, int64_t oh, int64_t ow, void *dst, struct dlb_scratch *s);

/* ---- specs (spec.c) ---- */
enum { DLB_MAX_SPEC_FILES = 16, DLB_MAX_SPEC_OPTIONS = 4 };
struct dlb_spec_option { const char *name; bool is_file; };
struct dlb_spec {
	const struct dlb_source_class *class;
	char *file[DLB_MAX_SPEC_FILES]; int n_files;
	char *option[DLB_MAX_SPEC_OPTIONS];	/* by row of class->option; NULL: not given */
	char *word;				/* what follows the ':' of a class without files; NULL: nothing */
};
int dlb_spec_parse(const char *text, struct dlb_spec *s, struct dlb_error *err);
void dlb_spec_release(struct dlb_spec *s);

/* ---- sources ---- */
struct dlb_fed_tensor {
	int tensor;
	enum dlb_role { DLB_ROLE_SAMPLE, DLB_ROLE_LABEL, DLB_ROLE_RANDOM, DLB_ROLE_LENGTH } role;
	int number;			/* among the inputs that get samples, or among those that get labels: 0, 1 ... */
	const char *name;		/* borrowed from the graph while opening; then owned */
	enum dlb_dtype dtype;
	int64_t outer, block;		/* of one sample: pieces, elements a piece */
	int64_t bound, full;
	bool batched;			/* has a batch dimension */
	int axis;			/* which, or -1 */
	uint64_t stream;
	bool is_label;			/* whatever fills it */
	struct dlb_label_use use;	/* of labels */
};
struct dlb_order { int64_t epoch; int64_t *at; };

struct dlb_source_class {
	const char *name;			/* before the ':' */
	const char *form;			/* as it is written, for messages */
	int max_files;				/* 0: none. 1: may hold commas; 2: divided at the last comma */
	struct dlb_spec_option option[DLB_MAX_SPEC_OPTIONS];
	bool images;				/* takes --transform */
	bool endless, many;			/* no last sample; feeds several inputs */
	bool decodes;				/* worth several readers */
	/* Reads or indexes the files; d->source is its own. */
	int (*open)(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err);
	/* Checks it against d->fed and the graph; sets d->count. */
	int (*fit)(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err);
	/* One sample's values, plain and together (outer*block elements of f's dtype). */
	int (*fill)(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t sample, struct dlb_scratch *s,
		    void *flat, struct dlb_error *err);
	void (*close)(struct dlb_data *d);	/* d->source may be NULL */
};
extern const struct dlb_source_class dlb_source_idx, dlb_source_npy, dlb_source_digits, dlb_source_images, dlb_source_tokens,
	dlb_source_text, dlb_source_random;

struct dlb_data {
	const struct dlb_source_class *class;
	void *source;
	const struct dlb_data *like;
	bool test, shuffled;
	int64_t count;
	uint64_t seed;
	struct dlb_fed_tensor *fed; int n_fed;
	int label_fed, n_labels;		/* index in fed of the first labels, -1; how many inputs get labels */
	int n_losses;				/* that the graph has */
	struct dlb_transform transform;
	pthread_mutex_t lock;			/* guards order and the readers */
	struct dlb_shards *shards;		/* NULL: none */
	struct dlb_order order[2];		/* of two epochs: a step may straddle none, but look ahead does */
	struct dlb_readers *readers;		/* NULL until first needed */
	int n_readers;
	struct dlb_scratch scratch;
	struct dlb_arena arena;			/* what fed[].use refers to */
};
/* What class label v gives f: itself, or one-hot where f has one value a class. -1: outside the model's range;
 * `sample` for the message. */
int dlb_label_check(const struct dlb_fed_tensor *f, int64_t v, int64_t sample, struct dlb_error *err);
int64_t dlb_label_range(const struct dlb_fed_tensor *f);	/* class labels lie in [0, this); 0: not known */
void dlb_label_set(const struct dlb_fed_tensor *f, int64_t v, void *flat);
/* The transform's shape against the input that gets the samples. */
int dlb_image_fit(const struct dlb_data *d, const struct dlb_graph *g, const struct dlb_fed_tensor *f, struct dlb_error *err);
/* Transforms x into f's dtype. */
int dlb_image_set(const struct dlb_data *d, const struct dlb_fed_tensor *f, const struct dlb_image *x, int64_t epoch,
		  int64_t sample, struct dlb_scratch *s, void *flat, struct dlb_error *err);

/* readers.c: fn(ctx, i, scratch) for i = 0 .. n-1, shared out among the threads and the caller. */
struct dlb_readers;
int dlb_readers_new(struct dlb_readers **out, int n, struct dlb_error *err);
void dlb_readers_free(struct dlb_readers *r);
void dlb_readers_run(struct dlb_readers *r, int64_t n, void (*fn)(void *ctx, int64_t i, struct dlb_scratch *s), void *ctx);

/* ---- files ---- */
/* A whole file in memory: returns new. */
int dlb_data_file_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err);
/* A file read at will. */
struct dlb_data_file { int fd; char *path; uint64_t size; };
int dlb_data_file_open(struct dlb_data_file *f, const char *path, struct dlb_error *err);
/* n bytes from offset `at`; fewer there are an error that names the offset. */
int dlb_data_file_get(const struct dlb_data_file *f, uint64_t at, void *dst, size_t n, struct dlb_error *err);
void dlb_data_file_close(struct dlb_data_file *f);

/* An IDX file (Y. LeCun's format of MNIST): two zero bytes, a type, the number of dimensions, each
 * dimension as 32 bits, then the elements; all big-endian. Here in the machine's order. */
struct dlb_idx { enum dlb_dtype dtype; int n_dims; int64_t dim[DLB_MAX_DIMS]; void *data; /* owned, malloc */ uint64_t at; };
/* Elements of a byte in a file that is not gzip stay there: data is NULL, they begin at byte `at`, and the file is open. */
int dlb_idx_open(const char *path, struct dlb_idx *x, struct dlb_data_file *file, struct dlb_error *err);
/* From memory, gzip or not, and to memory; `name` for messages. */
int dlb_idx_parse(const void *p, size_t n, const char *name, struct dlb_idx *x, struct dlb_error *err);
void dlb_idx_release(struct dlb_idx *x);
/* The digits built in: the two IDX files of share/data/digits. */
int dlb_digits_read(struct dlb_idx *images, struct dlb_idx *labels, struct dlb_error *err);

/* The header of a .npy file (NumPy's format, versions 1 to 3) whose first n bytes are at p and that has `size` bytes
 * in all: type, dimensions, and where the elements begin. */
struct dlb_npy { enum dlb_dtype dtype; int n_dims; int64_t dim[DLB_MAX_DIMS]; uint64_t at; };
int dlb_npy_parse(const unsigned char *p, size_t n, uint64_t size, const char *name, struct dlb_npy *x, struct dlb_error *err);

/* ---- images ---- */
#define DLB_MAX_PIXELS (INT64_C(1) << 26)	/* of one image: what a header may make us allocate */
/* An image in a file's bytes: grey (c 1) or RGB (c 3), planes in scratch. *at: the offset of what is wrong. */
int dlb_image_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s, struct dlb_image *x,
		     size_t *at, struct dlb_error *err);
bool dlb_image_named(const char *name);		/* ends in .jpg, .jpeg or .png, small or capital */
/* One format each: the pixels as they come, channel by channel (h, w, c), in DLB_SCRATCH_ROWS. */
int dlb_jpeg_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s, struct dlb_image *x,
		    size_t *at, struct dlb_error *err);
int dlb_png_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s, struct dlb_image *x,
		   size_t *at, struct dlb_error *err);

/* Members of a tar file (ustar, pax, GNU long names), in order. The callback gets each regular file; links and
 * others are told apart by `link`. It returns -1 with err to end the walk. */
struct dlb_tar_member { const char *name; uint64_t header, at, size; bool link; };
int dlb_tar_walk(const struct dlb_data_file *f, int (*visit)(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err),
		 void *ctx, struct dlb_error *err);

/* index.c: the images of a folder or tar file, by class and name. */
struct dlb_index_entry { char *name; uint64_t at, size; int label; };	/* at, size: in the tar */
struct dlb_index {
	struct dlb_arena arena;
	struct dlb_index_entry *entry; int64_t n, cap;
	char **class; int n_classes;		/* sorted names; none when labels are numbers */
	bool is_tar;
	struct dlb_data_file tar;
	char *root;
};
/* labels: a file of lines "NAME LABEL", NULL: classes are the folders, where classes are wanted at all. like: take
 * its classes. `x` zeroed. */
int dlb_index_read(struct dlb_index *x, const char *path, const char *labels, bool classes, const struct dlb_index *like,
		   struct dlb_error *err);
void dlb_index_release(struct dlb_index *x);

/* ---- text ---- */
/* Token ids, in memory. */
struct dlb_tokens { uint32_t *id; size_t n; };
/* The distinct units (bytes or code points) of a text, sorted; a unit's id is its place. */
struct dlb_alphabet { uint32_t *unit; int n; };
/* One code point of the n bytes at p: returns its length, 0 when they are not UTF-8. */
int dlb_utf8_decode(const unsigned char *p, size_t n, uint32_t *code);
/* bytes: units are bytes, else code points. */
int dlb_alphabet_of(const unsigned char *p, size_t n, const char *name, bool bytes, struct dlb_alphabet *a, struct dlb_error *err);
int dlb_alphabet_encode(const struct dlb_alphabet *a, const unsigned char *p, size_t n, const char *name, bool bytes,
			struct dlb_tokens *t, struct dlb_error *err);
bool dlb_unicode_letter(uint32_t code);		/* categories L*, N* of Unicode 14 */
bool dlb_unicode_number(uint32_t code);
bool dlb_unicode_space(uint32_t code);		/* White_Space */
/* Length in bytes of the piece that GPT-2's pattern takes from the n > 0 bytes of UTF-8 at p. */
size_t dlb_bpe_piece(const unsigned char *p, size_t n);

/* Byte-pair encoding as GPT-2's (bpe.c): bytes, written as printable characters, are merged pair by pair in the
 * order of the merges. */
struct dlb_bpe;
int dlb_bpe_new(struct dlb_bpe **out, const unsigned char *vocab, size_t n_vocab, const char *vocab_name,
		const unsigned char *merges, size_t n_merges, const char *merges_name, struct dlb_error *err);
void dlb_bpe_free(struct dlb_bpe *b);
int64_t dlb_bpe_vocabulary(const struct dlb_bpe *b);	/* greatest id + 1 */
int dlb_bpe_encode(struct dlb_bpe *b, const unsigned char *p, size_t n, const char *name, struct dlb_tokens *t, struct dlb_error *err);
/* bpe_json.c: the pairs of vocab.json, in its order: name (borrowed during the call) and id. */
int dlb_vocab_read(const unsigned char *p, size_t n, const char *name,
		   int (*each)(void *ctx, const char *token, int64_t id, struct dlb_error *err), void *ctx, struct dlb_error *err);

/* random.c: `count` elements of dtype into dst: reals N(0,1), integers in [0, bound) (bound 0: 0 or 1) and so reals with a bound,
 * element j of sample i from stream(name) at i*count+j. */
void dlb_random_fill(uint64_t seed, uint64_t stream, int64_t sample, int64_t count, enum dlb_dtype dtype, int64_t bound,
		     void *dst);
#endif
