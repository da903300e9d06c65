/* The sources tokens: and text:. Sample i of T tokens starts at token i*T; its
 * labels are shifted by one token.
 *
 *     tokens:FILE               bytes of a text; the vocabulary is the bytes that occur, sorted
 *     tokens:FILE,type=u16      ids, little-endian: u8, u16, u32; read from the file when filled
 *     text:FILE[,level=char]    characters; the vocabulary is the characters of the text or of alphabet=FILE
 *     text:FILE,level=byte      bytes; the id is the byte's value
 *     text:FILE,vocab=F,merges=F  byte-pair tokens (bpe.c)
 *
 * Test data use the vocabulary of the training data. */
#include <stdlib.h>
#include <string.h>
#include "data/bpe.h"
#include "data/file.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/spec.h"
#include "data/text.h"
#include "util/input.h"
#include "util/mem.h"
#include "util/memory.h"

struct sequence {
	struct dlb_tokens tokens;		/* in memory, unless `file` is read */
	struct dlb_data_file file;
	int width;				/* bytes per id in the file; 0: in memory */
	size_t n;				/* number of tokens */
	int64_t vocabulary;			/* 0: unknown until the file is read */
	struct dlb_alphabet alphabet; bool has_alphabet, bytes;
	const char *what;			/* unit for messages: "bytes" */
	char *path;
};

static int too_short(const struct sequence *q, struct dlb_error *err)
{
	return q->n < 2 ?
		       dlb_fail(err, q->path, "a text of %zu %s is too short to learn from", q->n, q->what) :
		       0;
}

/* Loads a text. Text and 32-bit ids together take five bytes per byte of the file. */
static int text_read(const char *path, unsigned char **p, size_t *n, struct dlb_error *err)
{
	enum { PER_BYTE = 1 + sizeof(uint32_t) };

	if (dlb_data_file_read(path, p, n, err))
		return -1;
	if ((double)*n * PER_BYTE < dlb_memory_bytes())
		return 0;
	free(*p);
	*p = NULL;
	dlb_fail(err, path, "the ids of its %zu bytes do not fit this machine's memory (%.0f)", *n,
		 dlb_memory_bytes());
	return dlb_hint(err,
			"text:FILE,level=byte and tokens:FILE,type=u16 are read from the file as wanted");
}

/* ---- tokens: ---- */

static int ids_open(struct sequence *q, const char *type, struct dlb_error *err)
{
	static const struct {
		const char *name;
		int width;
	} types[] = { { "u8", 1 }, { "u16", 2 }, { "u32", 4 } };

	for (int i = 0; i < DLB_LEN(types); i++)
		if (!strcmp(type, types[i].name))
			q->width = types[i].width;
	if (!q->width)
		return dlb_hint((dlb_fail(err, NULL, "tokens: no type '%s'", type), err),
				"there are u8, u16 and u32, little-endian");
	if (dlb_data_file_open(&q->file, q->path, err))
		return -1;
	if (q->file.size % (uint64_t)q->width)
		return dlb_fail(err, q->path, "byte %llu: the file ends within a token of %d bytes",
				(unsigned long long)(q->file.size - q->file.size % (uint64_t)q->width),
				q->width);
	q->n = (size_t)(q->file.size / (uint64_t)q->width);
	q->what = "tokens";
	return too_short(q, err);
}

/* Encodes text with the alphabet of `like`, of a file, or its own. */
static int by_alphabet(struct sequence *q, const struct sequence *like, const char *alphabet,
		       struct dlb_error *err)
{
	unsigned char *p = NULL, *other = NULL;
	size_t n, m;
	int rc = text_read(q->path, &p, &n, err);

	q->has_alphabet = true;
	if (!rc && like) {
		q->alphabet.n = like->alphabet.n;
		q->alphabet.unit = dlb_xmalloc(((size_t)like->alphabet.n + 1) * sizeof *q->alphabet.unit);
		memcpy(q->alphabet.unit, like->alphabet.unit,
		       (size_t)like->alphabet.n * sizeof *q->alphabet.unit);
	} else if (!rc && alphabet) {
		rc = dlb_data_file_read(alphabet, &other, &m, err) ||
		     dlb_alphabet_of(other, m, alphabet, q->bytes, &q->alphabet, err);
	} else if (!rc) {
		rc = dlb_alphabet_of(p, n, q->path, q->bytes, &q->alphabet, err);
	}
	rc = rc || dlb_alphabet_encode(&q->alphabet, p, n, q->path, q->bytes, &q->tokens, err) ? -1 : 0;
	free(p);
	free(other);
	q->n = q->tokens.n;
	q->vocabulary = q->alphabet.n;
	return rc ? -1 : too_short(q, err);
}

static const struct sequence *alphabet_of(const struct dlb_data *like, bool bytes)
{
	const struct sequence *q = like ? like->source : NULL;

	return q && q->has_alphabet && q->bytes == bytes ? q : NULL;
}

static int tokens_open(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err)
{
	struct sequence *q = d->source = dlb_xcalloc(1, sizeof *q);

	q->path = dlb_xstrdup(s->file[0]);
	if (s->option[0])
		return ids_open(q, s->option[0], err);
	q->bytes = true;
	q->what = "bytes";
	return by_alphabet(q, alphabet_of(d->like, true), NULL, err);
}

/* ---- text: ---- */

enum { LEVEL, ALPHABET, VOCAB, MERGES };

static int by_pairs(struct sequence *q, const char *vocab, const char *merges, struct dlb_error *err)
{
	unsigned char *p = NULL, *v = NULL, *m = NULL;
	size_t n, n_v = 0, n_m = 0;
	struct dlb_bpe *b = NULL;
	int rc = dlb_data_file_read(vocab, &v, &n_v, err) || dlb_data_file_read(merges, &m, &n_m, err) ||
				 text_read(q->path, &p, &n, err) ||
				 dlb_bpe_new(&b, &(struct dlb_bpe_file){ v, n_v, vocab },
					     &(struct dlb_bpe_file){ m, n_m, merges }, err) ||
				 dlb_bpe_encode(b, p, n, q->path, &q->tokens, err) ?
			 -1 :
			 0;

	if (!rc) {
		q->n = q->tokens.n;
		q->vocabulary = dlb_bpe_vocabulary(b);
		q->what = "tokens";
		rc = too_short(q, err);
	}
	dlb_bpe_free(b);
	free(p);
	free(v);
	free(m);
	return rc;
}

static int by_value(struct sequence *q, struct dlb_error *err)
{
	if (dlb_data_file_open(&q->file, q->path, err))
		return -1;
	q->width = 1;
	q->n = (size_t)q->file.size;
	q->what = "bytes";
	q->vocabulary = 256;
	return too_short(q, err);
}

static int text_open(struct dlb_data *d, const struct dlb_spec *s, struct dlb_error *err)
{
	struct sequence *q = d->source = dlb_xcalloc(1, sizeof *q);
	const char *level = s->option[LEVEL], *alphabet = s->option[ALPHABET], *vocab = s->option[VOCAB],
		   *merges = s->option[MERGES];
	bool pairs = vocab || merges, bytes = level && !strcmp(level, "byte");

	q->path = dlb_xstrdup(s->file[0]);
	if (pairs && (!vocab || !merges))
		return dlb_hint((dlb_fail(err, NULL, "text: a byte-pair vocabulary is two files"), err),
				"text:FILE,vocab=FILE,merges=FILE");
	if (level && !bytes && strcmp(level, "char"))
		return dlb_hint((dlb_fail(err, NULL, "text: no level '%s'", level), err),
				"there are char and byte");
	if ((pairs && (level || alphabet)) || (bytes && alphabet))
		return dlb_fail(err, NULL,
				"text: %s has a vocabulary of its own; alphabet= and level= are not for it",
				pairs ? "vocab=,merges=" : "level=byte");
	if (pairs)
		return by_pairs(q, vocab, merges, err);
	if (bytes)
		return by_value(q, err);
	q->what = "characters";
	return by_alphabet(q, alphabet ? NULL : alphabet_of(d->like, false), alphabet, err);
}

/* ---- both ---- */

static void sequence_close(struct dlb_data *d)
{
	struct sequence *q = d->source;

	if (!q)
		return;
	free(q->tokens.id);
	free(q->alphabet.unit);
	dlb_data_file_close(&q->file);
	free(q->path);
	free(q);
}

static int sequence_fit(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err)
{
	const struct sequence *q = d->source;
	int64_t length = -1;

	(void)g;
	for (int i = 0; i < d->n_fed; i++) {
		const struct dlb_fed_tensor *f = &d->fed[i];

		if (f->role == DLB_ROLE_LENGTH)
			continue;
		if (f->role == DLB_ROLE_LABEL && f->use.shifted) {
			dlb_fail(err, NULL,
				 "data '%s:' give labels shifted by one token, and the model's loss shifts "
				 "them again",
				 d->class->name);
			return dlb_hint(err, f->use.next_token ?
						     "profile the model with --loss cross-entropy, or feed "
						     "the tokens as npy:" :
						     "feed the tokens as npy:, as inputs and as labels");
		}
		if (length >= 0 && f->outer * f->block != length)
			return dlb_fail(err, NULL,
					"input '%s' wants %lld tokens a sample, the first one %lld", f->name,
					(long long)(f->outer * f->block), (long long)length);
		length = f->outer * f->block;
		if (f->bound > 0 && q->vocabulary > f->bound)
			return dlb_fail(err, q->path, "a vocabulary of %lld %s, input '%s' takes %lld",
					(long long)q->vocabulary,
					q->has_alphabet ? q->bytes ? "distinct bytes" : "characters" :
							  q->what,
					f->name, (long long)f->bound);
	}
	d->count = length > 0 ? (int64_t)(q->n - 1) / length : 0;
	if (d->count < 1)
		return dlb_fail(err, q->path, "%zu %s are too few for one sample of %lld and the next token",
				q->n, q->what, (long long)length);
	return 0;
}

static int sequence_fill(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t sample,
			 struct dlb_scratch *s, void *flat, struct dlb_error *err)
{
	const struct sequence *q = d->source;
	int64_t count = f->outer * f->block, first = sample * count + (f->role == DLB_ROLE_LABEL);
	const unsigned char *p;

	(void)epoch;
	if (!q->width) {
		for (int64_t j = 0; j < count; j++)
			dlb_value_set(flat, f->dtype, j, q->tokens.id[first + j]);
		return 0;
	}
	p = dlb_scratch(s, DLB_SCRATCH_FILE, (size_t)(count * q->width));
	if (dlb_data_file_get(&q->file, (uint64_t)(first * q->width), (void *)(uintptr_t)p,
			      (size_t)(count * q->width), err))
		return -1;
	for (int64_t j = 0; j < count; j++) {
		uint32_t v = 0;

		for (int k = q->width - 1; k >= 0; k--)
			v = v << 8 | p[j * q->width + k];
		if (f->bound > 0 && v >= f->bound)
			return dlb_fail(err, q->path,
					"byte %llu: token %u is outside what input '%s' takes, 0 to %lld",
					(unsigned long long)((first + j) * q->width), v, f->name,
					(long long)f->bound - 1);
		dlb_value_set(flat, f->dtype, j, v);
	}
	return 0;
}

static double sequence_kept(const struct dlb_data *d)
{
	const struct sequence *q = d->source;

	return q->width ? 0 : (double)q->tokens.n * (double)sizeof *q->tokens.id;
}

const struct dlb_source_class dlb_source_tokens = {
	.name = "tokens",
	.form = "tokens:FILE[,type=u8|u16|u32]",
	.max_files = 1,
	.option = { { "type", false } },
	.open = tokens_open,
	.fit = sequence_fit,
	.fill = sequence_fill,
	.kept = sequence_kept,
	.close = sequence_close,
};
const struct dlb_source_class dlb_source_text = {
	.name = "text",
	.form = "text:FILE[,level=char|byte][,alphabet=FILE] or text:FILE,vocab=FILE,merges=FILE",
	.max_files = 1,
	.option = { [LEVEL] = { "level", false },
		    [ALPHABET] = { "alphabet", true },
		    [VOCAB] = { "vocab", true },
		    [MERGES] = { "merges", true } },
	.open = text_open,
	.fit = sequence_fit,
	.fill = sequence_fill,
	.kept = sequence_kept,
	.close = sequence_close,
};
