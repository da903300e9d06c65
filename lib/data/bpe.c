/* Byte-pair encoding as in GPT-2 (Radford et al. 2019; Sennrich, Haddow, Birch, ACL 2016).
 *
 * Text is cut into pieces by GPT-2's pattern
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * and each piece into bytes. vocab.json and merges.txt write a byte as a printable character; bytes
 * that are not printable are written as U+0100 and up. The encoder joins the pair of tokens whose merge
 * comes first in merges.txt (the leftmost of equal pairs) until no pair has a merge. The tokens that
 * remain are in vocab.json. No blank is put before the text. Special tokens in the text (<|endoftext|>)
 * are encoded like any other text.
 *
 * Tokens are ids throughout: a hash table maps (left id, right id) to rank and joined id. A piece of n bytes
 * takes O(n log n): a heap of pairs over a linked list. Encoded short pieces are cached. */
#include <stdlib.h>
#include <string.h>
#include "data/bpe.h"
#include "data/source.h"
#include "data/text.h"
#include "data/unicode.h"
#include "util/hash.h"
#include "util/mem.h"

enum { NONE = -1, REMEMBERED = 24 };	/* REMEMBERED: longest piece that is cached, in bytes */

struct token { const char *text; int32_t id; };	/* row of vocab.json, hashed by text; text NULL: free */
struct merge { int32_t left, right, joined; uint32_t rank; };	/* joined NONE: free */
/* n 0: free; at: first id in `kept` */
struct bpe_piece { unsigned char text[REMEMBERED]; uint8_t n, n_ids; uint32_t at; };
struct bpe_node { int32_t id, next, prev; };
struct bpe_pair { uint32_t rank; int32_t at, left, right; };

struct dlb_bpe {
	struct dlb_arena arena;			/* text of the tokens */
	struct token *token; size_t n_tokens, token_cap;
	struct merge *merge; size_t n_merges, merge_cap;
	int32_t byte_id[256];
	int64_t vocabulary;
	const char *name;			/* file name while vocab.json is read */
	struct bpe_piece *piece; size_t n_pieces, piece_cap;
	uint32_t *kept; size_t n_kept, kept_cap;	/* ids of cached pieces */
	struct bpe_node *node; size_t node_cap;
	struct bpe_pair *heap; size_t n_heap, heap_cap;
};

/* ---- the pattern ---- */

enum class { LETTER, NUMBER, SPACE, OTHER };

static enum class class_at(const unsigned char *p, size_t n, size_t *length) {
	uint32_t code = 0; int k = dlb_utf8_decode(p, n, &code);

	*length = k ? (size_t)k : 1; /* text was checked as UTF-8; a bad byte counts as OTHER */
	return !k                       ? OTHER :
	       dlb_unicode_letter(code) ? LETTER :
	       dlb_unicode_number(code) ? NUMBER :
	       dlb_unicode_space(code)  ? SPACE :
					  OTHER;
}

static size_t contraction(const unsigned char *p, size_t n)
{
	static const char *const ends[] = { "s", "t", "re", "ve", "m", "ll", "d" };

	for (int i = 0; p[0] == '\'' && i < DLB_LEN(ends); i++) {
		size_t k = strlen(ends[i]);

		if (n > k && !memcmp(p + 1, ends[i], k))
			return 1 + k;
	}
	return 0;
}

size_t dlb_bpe_piece(const unsigned char *p, size_t n)
{
	size_t at = contraction(p, n), length, last = 0;
	enum class first;

	if (at)
		return at;
	if (p[0] == ' ' && n > 1) {
		at = 1;
		first = class_at(p + 1, n - 1, &length);
		if (first == SPACE)
			at = 0;
	}
	first = class_at(p + at, n - at, &length);
	while (at < n && class_at(p + at, n - at, &length) == first) {
		last = length;
		at += length;
	}
	/* \s+(?!\S): the last of several blanks goes to the word after them. */
	return first == SPACE && at < n && at > last ? at - last : at;
}

/* ---- tables ---- */

static struct token *token_slot(struct dlb_bpe *b, const char *text)
{
	size_t i = dlb_hash_str(DLB_HASH_INIT, text) & (b->token_cap - 1);

	while (b->token[i].text && strcmp(b->token[i].text, text))
		i = (i + 1) & (b->token_cap - 1);
	return &b->token[i];
}

static int32_t token_id(struct dlb_bpe *b, const char *text)
{
	const struct token *t = token_slot(b, text);

	return t->text ? t->id : NONE;
}

static struct merge *merge_slot(const struct dlb_bpe *b, int32_t left, int32_t right)
{
	uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9e3779b97f4a7c15);
	size_t i = (size_t)(key >> 20) & (b->merge_cap - 1);

	while (b->merge[i].joined != NONE && (b->merge[i].left != left || b->merge[i].right != right))
		i = (i + 1) & (b->merge_cap - 1);
	return &b->merge[i];
}

static void tokens_grow(struct dlb_bpe *b)
{
	struct token *old = b->token;
	size_t n = b->token_cap;

	b->token_cap = n ? 2 * n : 1 << 10;
	b->token = dlb_xcalloc(b->token_cap, sizeof *b->token);
	for (size_t i = 0; i < n; i++)
		if (old[i].text)
			*token_slot(b, old[i].text) = old[i];
	free(old);
}

static void merges_grow(struct dlb_bpe *b)
{
	struct merge *old = b->merge;
	size_t n = b->merge_cap;

	b->merge_cap = n ? 2 * n : 1 << 10;
	b->merge = dlb_xmalloc(b->merge_cap * sizeof *b->merge);
	for (size_t i = 0; i < b->merge_cap; i++)
		b->merge[i].joined = NONE;
	for (size_t i = 0; i < n; i++)
		if (old[i].joined != NONE)
			*merge_slot(b, old[i].left, old[i].right) = old[i];
	free(old);
}

/* ---- reading ---- */

static int add_token(void *ctx, const char *text, int64_t id, struct dlb_error *err)
{
	struct dlb_bpe *b = ctx;
	struct token *t;

	(void)err;	/* the parser refuses a repeated text */
	if (4 * (b->n_tokens + 1) > 3 * b->token_cap)
		tokens_grow(b);
	t = token_slot(b, text);
	*t = (struct token){ dlb_arena_strdup(&b->arena, text), (int32_t)id };
	b->n_tokens++;
	b->vocabulary = id + 1 > b->vocabulary ? id + 1 : b->vocabulary;
	return 0;
}

/* Fails if two tokens have one id: such text could not be decoded. */
static int ids_differ(const struct dlb_bpe *b, const char *name, struct dlb_error *err)
{
	const char **by_id;
	int rc = 0;

	if (b->vocabulary > 16 * (int64_t)b->n_tokens + 1024)
		return dlb_fail(err, name, "id %lld in a vocabulary of %zu tokens",
				(long long)b->vocabulary - 1, b->n_tokens);
	by_id = dlb_xcalloc((size_t)b->vocabulary + 1, sizeof *by_id);
	for (size_t i = 0; i < b->token_cap && !rc; i++) {
		const struct token *t = &b->token[i];

		if (!t->text)
			continue;
		if (by_id[t->id])
			rc = dlb_fail(err, name, "tokens '%.64s' and '%.64s' have one id, %d", by_id[t->id],
				      t->text, (int)t->id);
		by_id[t->id] = t->text;
	}
	free(by_id);
	return rc;
}

/* GPT-2's bytes_to_unicode: printable bytes are written as themselves, the others as U+0100 and up, in
 * order. */
static void find_bytes(struct dlb_bpe *b)
{
	uint32_t next = 0x100;

	for (uint32_t c = 0; c < 256; c++) {
		bool printable = (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || c >= 0xae;
		uint32_t code = printable ? c : next++;
		char text[3] = { (char)code, 0, 0 };

		if (code >= 0x80) {
			text[0] = (char)(0xc0 | code >> 6);
			text[1] = (char)(0x80 | (code & 0x3f));
		}
		b->byte_id[c] = token_id(b, text);
	}
}

static int add_merge(struct dlb_bpe *b, const char *left, const char *right, uint32_t rank, const char *where,
		     size_t at, struct dlb_error *err)
{
	char *joined = dlb_xprintf("%s%s", left, right);
	const char *parts[3] = { left, right, joined };
	int32_t id[3];
	struct merge *m;
	int rc = 0;

	for (int i = 0; i < 3 && !rc; i++) {
		id[i] = token_id(b, parts[i]);
		if (id[i] == NONE) {
			rc = dlb_fail(err, where, "byte %zu: '%.64s' is not in the vocabulary", at, parts[i]);
			dlb_hint(err, "are vocab.json and merges.txt of one model?");
		}
	}
	free(joined);
	if (rc)
		return -1;
	if (4 * (b->n_merges + 1) > 3 * b->merge_cap)
		merges_grow(b);
	m = merge_slot(b, id[0], id[1]);
	if (m->joined != NONE)
		return dlb_fail(err, where, "byte %zu: the pair '%.64s %.64s' a second time", at, left,
				right);
	*m = (struct merge){ id[0], id[1], id[2], rank };
	b->n_merges++;
	return 0;
}

/* Reads merges.txt: one merge per line "LEFT RIGHT"; earlier lines have priority. */
static int read_merges(struct dlb_bpe *b, const unsigned char *p, size_t n, const char *name,
		       struct dlb_error *err)
{
	int64_t number = 0;
	uint32_t rank = 0;
	int rc = 0;

	for (size_t at = 0, next; at < n && !rc; at = next) {
		const unsigned char *end = memchr(p + at, '\n', n - at);
		size_t length = end ? (size_t)(end - p) - at : n - at;
		char *line, *blank, where[256];

		next = at + length + 1;
		number++;
		line = dlb_xmalloc(length + 1);
		memcpy(line, p + at, length);
		if (length && line[length - 1] == '\r')
			length--;
		line[length] = '\0';
		snprintf(where, sizeof where, "%.230s:%lld", name, (long long)number);
		blank = strchr(line, ' ');
		if ((number == 1 && !strncmp(line, "#version", 8)) || !length) {
			;
		} else if (strlen(line) != length || !blank || blank == line || !blank[1] ||
			   strchr(blank + 1, ' ')) {
			rc = dlb_hint((dlb_fail(err, where, "byte %zu: not two tokens with a blank between",
						at),
				       err),
				      "LEFT RIGHT, a merge a line");
		} else {
			*blank = '\0';
			rc = add_merge(b, line, blank + 1, rank++, where, at, err);
		}
		free(line);
	}
	return rc;
}

int dlb_bpe_new(struct dlb_bpe **out, const struct dlb_bpe_file *vocab, const struct dlb_bpe_file *merges,
		struct dlb_error *err)
{
	struct dlb_bpe *b = dlb_xcalloc(1, sizeof *b);

	tokens_grow(b);
	merges_grow(b);
	if (dlb_vocab_read(vocab->p, vocab->n, vocab->name, add_token, b, err) ||
	    ids_differ(b, vocab->name, err))
		goto bad;
	find_bytes(b);
	if (read_merges(b, merges->p, merges->n, merges->name, err))
		goto bad;
	*out = b;
	return 0;
bad:
	dlb_bpe_free(b);
	return -1;
}

void dlb_bpe_free(struct dlb_bpe *b)
{
	if (!b)
		return;
	dlb_arena_release(&b->arena);
	free(b->token);
	free(b->merge);
	free(b->piece);
	free(b->kept);
	free(b->node);
	free(b->heap);
	free(b);
}

int64_t dlb_bpe_vocabulary(const struct dlb_bpe *b)
{
	return b->vocabulary;
}

/* ---- merging ---- */

static bool before(const struct bpe_pair *a, const struct bpe_pair *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct dlb_bpe *b, struct bpe_pair x)
{
	size_t i = b->n_heap;

	DLB_GROW(b->heap, b->n_heap, b->heap_cap);
	b->n_heap++;
	for (; i && before(&x, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
		b->heap[i] = b->heap[(i - 1) / 2];
	b->heap[i] = x;
}

static struct bpe_pair heap_pop(struct dlb_bpe *b)
{
	struct bpe_pair top = b->heap[0], x = b->heap[--b->n_heap];
	size_t i = 0, k;

	while ((k = 2 * i + 1) < b->n_heap) {
		if (k + 1 < b->n_heap && before(&b->heap[k + 1], &b->heap[k]))
			k++;
		if (!before(&b->heap[k], &x))
			break;
		b->heap[i] = b->heap[k];
		i = k;
	}
	b->heap[i] = x;
	return top;
}

/* Pushes the pair that begins at node i onto the heap, if the pair has a merge. */
static void offer(struct dlb_bpe *b, int32_t i)
{
	const struct bpe_node *n = b->node;
	const struct merge *m;

	if (i < 0 || n[i].next < 0)
		return;
	m = merge_slot(b, n[i].id, n[n[i].next].id);
	if (m->joined != NONE)
		heap_push(b, (struct bpe_pair){ m->rank, i, n[i].id, n[n[i].next].id });
}

/* Merges the n bytes at p; leaves the tokens as a list in b->node that starts at node 0. */
static void merge_piece(struct dlb_bpe *b, const unsigned char *p, size_t n)
{
	if (n > b->node_cap) {
		b->node_cap = 2 * n;
		b->node = dlb_xrealloc(b->node, b->node_cap, sizeof *b->node);
	}
	b->n_heap = 0;
	for (size_t i = 0; i < n; i++)
		b->node[i] = (struct bpe_node){ b->byte_id[p[i]], i + 1 < n ? (int32_t)i + 1 : NONE,
						(int32_t)i - 1 };
	for (size_t i = 0; i + 1 < n; i++)
		offer(b, (int32_t)i);
	while (b->n_heap) {
		struct bpe_pair x = heap_pop(b);
		struct bpe_node *left = &b->node[x.at], *right;

		/* Skips a pair that no longer exists; a node joined to its left neighbour has id NONE. */
		if (left->id != x.left || left->next < 0 || b->node[left->next].id != x.right)
			continue;
		right = &b->node[left->next];
		left->id = merge_slot(b, x.left, x.right)->joined;
		right->id = NONE;
		left->next = right->next;
		if (left->next >= 0)
			b->node[left->next].prev = x.at;
		offer(b, left->prev);
		offer(b, x.at);
	}
}

static void emit(struct dlb_tokens *t, size_t *cap, uint32_t id)
{
	DLB_GROW(t->id, t->n, *cap);
	t->id[t->n++] = id;
}

static struct bpe_piece *piece_slot(struct dlb_bpe *b, const unsigned char *p, size_t n)
{
	size_t i = dlb_hash_bytes(DLB_HASH_INIT, p, n) & (b->piece_cap - 1);

	while (b->piece[i].n && (b->piece[i].n != n || memcmp(b->piece[i].text, p, n)))
		i = (i + 1) & (b->piece_cap - 1);
	return &b->piece[i];
}

static void pieces_grow(struct dlb_bpe *b)
{
	struct bpe_piece *old = b->piece;
	size_t n = b->piece_cap;

	b->piece_cap = n ? 2 * n : 1 << 12;
	b->piece = dlb_xcalloc(b->piece_cap, sizeof *b->piece);
	for (size_t i = 0; i < n; i++)
		if (old[i].n)
			*piece_slot(b, old[i].text, old[i].n) = old[i];
	free(old);
}

/* Appends the tokens of one piece to t. */
static void encode_piece(struct dlb_bpe *b, const unsigned char *p, size_t n, struct dlb_tokens *t,
			 size_t *cap)
{
	struct bpe_piece *known = NULL;
	size_t first = t->n;

	if (n <= REMEMBERED) {
		if (4 * (b->n_pieces + 1) > 3 * b->piece_cap)
			pieces_grow(b);
		known = piece_slot(b, p, n);
		for (int i = 0; known->n && i < known->n_ids; i++)
			emit(t, cap, b->kept[known->at + (uint32_t)i]);
		if (known->n)
			return;
	}
	merge_piece(b, p, n);
	for (int32_t i = 0; i >= 0; i = b->node[i].next)
		emit(t, cap, (uint32_t)b->node[i].id);
	if (!known || b->n_kept > UINT32_MAX - REMEMBERED)
		return;
	memcpy(known->text, p, n);
	known->n = (uint8_t)n;
	known->n_ids = (uint8_t)(t->n - first);
	known->at = (uint32_t)b->n_kept;
	b->n_pieces++;
	for (size_t i = first; i < t->n; i++) {
		DLB_GROW(b->kept, b->n_kept, b->kept_cap);
		b->kept[b->n_kept++] = t->id[i];
	}
}

int dlb_bpe_encode(struct dlb_bpe *b, const unsigned char *p, size_t n, const char *name,
		   struct dlb_tokens *t, struct dlb_error *err)
{
	struct dlb_tokens x = { 0 };
	size_t cap = 0;
	uint32_t code;

	if (n > INT32_MAX)
		return dlb_fail(err, name,
				"a text of %zu bytes; a byte-pair vocabulary takes up to 2 GiB at once", n);
	for (size_t i = 0; i < n;) {
		int k = dlb_utf8_decode(p + i, n - i, &code);

		if (!k)
			return dlb_fail(err, name, "byte %zu: 0x%02x is not UTF-8 there", i, p[i]);
		for (; k; k--, i++)
			if (b->byte_id[p[i]] == NONE)
				return dlb_hint(
					(dlb_fail(err, name,
						  "byte %zu: the vocabulary has no token for byte 0x%02x", i,
						  p[i]),
					 err),
					"a byte-level vocabulary has all 256");
	}
	for (size_t i = 0; i < n;) {
		size_t k = dlb_bpe_piece(p + i, n - i);

		encode_piece(b, p + i, k, &x, &cap);
		i += k;
	}
	*t = x;
	return 0;
}
