/* Byte pairs: random texts, vocabularies and merges against a plain encoder; GPT-2's pattern against one that
 * tries its alternatives in order; files that are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/bpe.h"
#include "util/rng.h"
#include "check.h"

enum { LONGEST = 16, MOST_TOKENS = 2200, MOST_MERGES = 2000 };

/* A token by its bytes; a token's id is twice its place, plus one. */
struct plain_token {
	unsigned char byte[LONGEST];
	int n;
};
struct plain_merge {
	int left, right, joined;
};
static struct plain_token token[MOST_TOKENS];
static struct plain_merge merge[MOST_MERGES];
static int n_tokens, n_merges;

static int find_token(const unsigned char *p, int n)
{
	for (int i = 0; i < n_tokens; i++)
		if (token[i].n == n && !memcmp(token[i].byte, p, (size_t)n))
			return i;
	return -1;
}

static int find_merge(int left, int right)
{
	for (int i = 0; i < n_merges; i++)
		if (merge[i].left == left && merge[i].right == right)
			return i;
	return -1;
}

/* Makes the 256 bytes and up to n merges of tokens that exist. */
static void make_tables(struct dlb_rng *r, const char *letters, int n)
{
	n_tokens = n_merges = 0;
	for (int c = 0; c < 256; c++)
		token[n_tokens++] = (struct plain_token){ .byte = { (unsigned char)c }, .n = 1 };
	for (int tries = 0; tries < 20 * n && n_merges < n && n_tokens < MOST_TOKENS; tries++) {
		int part[2];
		struct plain_token both = { .n = 0 };

		for (int k = 0; k < 2; k++) {
			const uint64_t m = strlen(letters),
				       i = dlb_rng_below(r, m + (uint64_t)n_tokens - 256);

			part[k] = i < m ? (unsigned char)letters[i] : 256 + (int)(i - m);
		}
		if (token[part[0]].n + token[part[1]].n > LONGEST || find_merge(part[0], part[1]) >= 0)
			continue;
		for (int k = 0; k < 2; k++) {
			memcpy(both.byte + both.n, token[part[k]].byte, (size_t)token[part[k]].n);
			both.n += token[part[k]].n;
		}
		int joined = find_token(both.byte, both.n);
		if (joined < 0) {
			joined = n_tokens;
			token[n_tokens++] = both;
		}
		merge[n_merges++] = (struct plain_merge){ part[0], part[1], joined };
	}
}

/* GPT-2's text of a byte: itself, or the next code point from 256 if it is not printable in Latin-1. */
static int code_of(int byte)
{
	int next = 256;

	for (int c = 0; c <= byte; c++) {
		const bool plain = (c > 32 && c < 127) || (c > 160 && c != 173);

		if (c == byte)
			return plain ? c : next;
		next += !plain;
	}
	return -1;
}

static void put(FILE *f, const struct plain_token *t, bool json)
{
	for (int i = 0; i < t->n; i++) {
		const int code = code_of(t->byte[i]);

		if (code < 128)
			fprintf(f, "%s%c", json && (code == '"' || code == '\\') ? "\\" : "", code);
		else
			fprintf(f, "%c%c", 0xc0 | code / 64, 0x80 | code % 64);
	}
}

static struct dlb_bpe *tables(void)
{
	char *text[2];
	size_t size[2];
	FILE *v = open_memstream(&text[0], &size[0]), *m = open_memstream(&text[1], &size[1]);
	struct dlb_error err = { .what = "" };
	struct dlb_bpe *b;

	fputs("{", v);
	for (int i = 0; i < n_tokens; i++) {
		fputs(i ? ", \"" : "\"", v);
		put(v, &token[i], true);
		fprintf(v, "\": %d", 2 * i + 1);
	}
	fputs("}\n", v);
	fputs("#version: 0.2\r\n", m);
	for (int i = 0; i < n_merges; i++) {
		put(m, &token[merge[i].left], false);
		fputs(" ", m);
		put(m, &token[merge[i].right], false);
		fputs(i % 7 ? "\n" : "\r\n", m);
	}
	fclose(v);
	fclose(m);
	assert(IS(dlb_bpe_new(&b, &(struct dlb_bpe_file){ (unsigned char *)text[0], size[0], "v" },
			      &(struct dlb_bpe_file){ (unsigned char *)text[1], size[1], "m" }, &err),
		  ==, 0));
	assert(IS(dlb_bpe_vocabulary(b), ==, 2 * n_tokens));
	free(text[0]);
	free(text[1]);
	return b;
}

/* ---- the pattern ---- */

/* Characters of known classes: letters, numbers, spaces, others. */
static const char *const characters[] = { "a",
					  "\xc3\xa9",
					  "\xe6\x97\xa5",
					  "s",
					  "t",
					  "r",
					  "e",
					  "l",
					  "d",
					  "m",
					  "v",
					  "1",
					  "\xc2\xbd",
					  "\xd9\xa3",
					  " ",
					  " ",
					  " ",
					  "\n",
					  "\xe3\x80\x80",
					  "\xc2\x85",
					  "!",
					  "'",
					  "'",
					  "\xf0\x9f\x99\x82",
					  "\xcc\x81" };
enum { N_LETTERS = 11, N_NUMBERS = 3, N_SPACES = 6 };

static int class_of(int c)
{
	return c < N_LETTERS                        ? 'L' :
	       c < N_LETTERS + N_NUMBERS            ? 'N' :
	       c < N_LETTERS + N_NUMBERS + N_SPACES ? 'S' :
						      'O';
}

/* The number of characters of the piece that begins the n characters c. */
static int plain_piece(const int *c, int n)
{
	static const char *const endings[] = { "s", "t", "re", "ve", "m", "ll", "d" };
	char next[16] = "";
	int run = 0;

	for (int i = 1; i < n && i < 3; i++)
		strcat(next, characters[c[i]]);
	for (int i = 0; !strcmp(characters[c[0]], "'") && i < (int)(sizeof endings / sizeof *endings); i++)
		if (!strncmp(next, endings[i], strlen(endings[i])))
			return 1 + (int)strlen(endings[i]);
	for (const char *kind = "LNO"; *kind; kind++)
		for (int blank = 1; blank >= 0; blank--) {
			int at = blank;

			if (blank && strcmp(characters[c[0]], " "))
				continue;
			while (at < n && class_of(c[at]) == *kind)
				at++;
			if (at > blank)
				return at;
		}
	while (run < n && class_of(c[run]) == 'S')
		run++;
	return run == n || run == 1 ? run : run - 1;
}

static void test_pieces(struct dlb_rng *r)
{
	for (int round = 0; round < 20000; round++) {
		const int n = 1 + (int)dlb_rng_below(r, 9);
		int c[9];
		size_t want = 0;
		char text[64] = "";

		for (int i = 0; i < n; i++) {
			c[i] = (int)dlb_rng_below(r, sizeof characters / sizeof *characters);
			strcat(text, characters[c[i]]);
		}
		for (int i = plain_piece(c, n); i > 0; i--)
			want += strlen(characters[c[i - 1]]);
		/* a buffer of just that size: a sanitizer sees reads behind it */
		unsigned char *exact = malloc(strlen(text));
		memcpy(exact, text, strlen(text));
		const size_t got = dlb_bpe_piece(exact, strlen(text));
		if (got != want)
			fprintf(stderr, "'%s'\n", text);
		assert(IS(got, ==, want));
		free(exact);
	}
}

/* ---- encoding ---- */

/* Joins the first pair in the order of merges, the leftmost of equal ones, until none is left. */
static size_t plain_encode(const unsigned char *p, size_t n, uint32_t *out)
{
	size_t k = n;

	for (size_t i = 0; i < n; i++)
		out[i] = p[i];
	for (;;) {
		size_t best = 0;
		int first = n_merges;

		for (size_t i = 0; i + 1 < k; i++) {
			const int m = find_merge((int)out[i], (int)out[i + 1]);

			if (m >= 0 && m < first) {
				first = m;
				best = i;
			}
		}
		if (first == n_merges)
			break;
		out[best] = (uint32_t)merge[first].joined;
		memmove(out + best + 1, out + best + 2, (k - best - 2) * sizeof *out);
		k--;
	}
	for (size_t i = 0; i < k; i++)
		out[i] = 2 * out[i] + 1;
	return k;
}

/* A text of words of 1 to 40 letters, some of them twice, that is encoded at once. */
static void compare(struct dlb_rng *r, const char *letters, int n_words, int longest)
{
	const size_t cap = (size_t)n_words * (size_t)(longest + 1);
	unsigned char *text = malloc(cap);
	uint32_t *want = malloc(cap * sizeof *want);
	size_t n = 0, n_want = 0, last = 0;
	struct dlb_error err = { .what = "" };
	struct dlb_bpe *b = tables();
	struct dlb_tokens t;

	for (int w = 0; w < n_words; w++) {
		const size_t from = n;

		if (n && dlb_rng_below(r, 3) == 0) { /* the word before once more */
			memcpy(text + n, text + last, from - last);
			n += from - last;
		} else {
			text[n++] = ' ';
			for (int i = 1 + (int)dlb_rng_below(r, (uint64_t)longest); i; i--)
				text[n++] = (unsigned char)letters[dlb_rng_below(r, strlen(letters))];
		}
		last = from;
		n_want += plain_encode(text + from, n - from, want + n_want);
	}
	assert(IS(dlb_bpe_encode(b, text, n, "t", &t, &err), ==, 0) && IS(t.n, ==, n_want));
	for (size_t i = 0; i < n_want; i++)
		assert(IS(t.id[i], ==, want[i]));
	free(t.id);
	dlb_bpe_free(b);
	free(want);
	free(text);
}

/* Without merges, each byte of each character is the token of that byte. */
static void test_bytes(void)
{
	static const unsigned lead[] = { 0, 0xc0, 0xe0, 0xf0 };
	unsigned char text[4 * 3000];
	struct dlb_error err;
	struct dlb_tokens t;
	size_t n = 0;

	n_merges = 0;
	n_tokens = 256;
	struct dlb_bpe *b = tables();
	for (unsigned code = 1; code < 0x110000; code += code < 0x800 ? 1 : 0x7ff) {
		if (code >= 0xd800 && code < 0xe000)
			continue;
		if (code < 0x80)
			text[n++] = (unsigned char)code;
		for (int more = code < 0x80    ? -1 :
				code < 0x800   ? 1 :
				code < 0x10000 ? 2 :
						 3,
			 k = more;
		     k >= 0; k--)
			text[n++] = (unsigned char)(k < more ? 0x80 | (code >> 6 * k & 0x3f) :
							       lead[more] | code >> 6 * k);
	}
	assert(IS(dlb_bpe_encode(b, text, n, "t", &t, &err), ==, 0) && IS(t.n, ==, n));
	for (size_t i = 0; i < n; i++)
		assert(IS(t.id[i], ==, 2 * text[i] + 1));
	free(t.id);
	dlb_bpe_free(b);
}

/* ---- refusals ---- */

static void test_refused(void)
{
	static const char v[] = "{\"a\":0,\"b\":1,\"ab\":2}";
	static const struct {
		const char *vocab, *merges;
		size_t n_merges; /* 0: all */
		const char *where, *what;
	} rows[] = {
		{ v, "a b", 0, NULL, NULL },
		{ v, "#version: 0.2\na b\r\n\n", 0, NULL, NULL },
		{ v, "", 0, NULL, NULL },
		{ v, "a b\n#version: 0.2\n", 0, "m:2", "byte 4: '#version:' is not in the vocabulary" },
		{ v, "b a\n", 0, "m:1", "byte 0: 'ba' is not in the vocabulary" },
		{ v, "\nc a\n", 0, "m:2", "byte 1: 'c' is not in the vocabulary" },
		{ v, "\n\na c\n", 0, "m:3", "byte 2: 'c' is not in the vocabulary" },
		{ v, "a b\r\na b", 0, "m:2", "byte 5: the pair 'a b' a second time" },
		{ v, " b\n", 0, "m:1", "byte 0: not two tokens with a blank between" },
		{ v, "a \n", 0, "m:1", "byte 0: not two tokens with a blank between" },
		{ v, "a\n", 0, "m:1", "byte 0: not two tokens with a blank between" },
		{ v, "a b c\n", 0, "m:1", "byte 0: not two tokens with a blank between" },
		{ v, "a b\0\n", 5, "m:1", "byte 0: not two tokens with a blank between" },
		{ "{\"a\":0,\"b\":1055}", "", 0, NULL, NULL },
		{ "{\"a\":0,\"b\":1056}", "", 0, "v", "id 1056 in a vocabulary of 2 tokens" },
		{ "{\"a\":3,\"b\":3}", "", 0, "v", "have one id, 3" },
	};

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_error err = { .what = "", .where = "" };
		const size_t n = rows[i].n_merges ? rows[i].n_merges : strlen(rows[i].merges);
		struct dlb_bpe *b = NULL;
		const int rc = dlb_bpe_new(&b,
					   &(struct dlb_bpe_file){ (const unsigned char *)rows[i].vocab,
								   strlen(rows[i].vocab), "v" },
					   &(struct dlb_bpe_file){ (const unsigned char *)rows[i].merges, n,
								   "m" },
					   &err);

		assert(IS(rc, ==, rows[i].what ? -1 : 0));
		if (rc)
			assert(SAME(err.where, rows[i].where) && HAS(err.what, rows[i].what) && !b);
		dlb_bpe_free(b);
	}
	dlb_bpe_free(NULL);
}

/* A text that is no UTF-8, or has a byte that has no token, is refused at its first such byte. */
static void test_texts(void)
{
	static const char v[] = "{\"a\":0,\"b\":1,\"ab\":2,\"\xc3\x83\":3,\"\xc2\xa9\":4}";
	static const struct {
		const char *text, *what;
	} rows[] = {
		{ "abb\xc3\xa9", NULL },
		{ "abz", "byte 2: the vocabulary has no token for byte 0x7a" },
		{ "ab\xc3\xa8", "byte 3: the vocabulary has no token for byte 0xa8" },
		{ "ab\xc3", "byte 2: 0xc3 is not UTF-8 there" },
		{ "\xc3\xa9\xa9", "byte 2: 0xa9 is not UTF-8 there" },
	};
	static const uint32_t want[] = { 2, 1, 3, 4 };
	struct dlb_error err = { .what = "" };
	struct dlb_bpe *b;

	assert(IS(dlb_bpe_new(&b, &(struct dlb_bpe_file){ (const unsigned char *)v, sizeof v - 1, "v" },
			      &(struct dlb_bpe_file){ (const unsigned char *)"a b", 3, "m" }, &err),
		  ==, 0) &&
	       IS(dlb_bpe_vocabulary(b), ==, 5));
	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_tokens t = { 0 };
		const int rc = dlb_bpe_encode(b, (const unsigned char *)rows[i].text, strlen(rows[i].text),
					      "t", &t, &err);

		assert(IS(rc, ==, rows[i].what ? -1 : 0));
		if (rc)
			assert(SAME(err.what, rows[i].what) && SAME(err.where, "t") && !t.id);
		else
			assert(IS(t.n, ==, 4) && !memcmp(t.id, want, sizeof want));
		free(t.id);
	}
	dlb_bpe_free(b);
}

int main(void)
{
	struct dlb_rng r;

	dlb_rng_init(&r, 11);
	test_pieces(&r);
	for (int round = 0; round < 40; round++) {
		make_tables(&r, "ab", 5 + 3 * round);
		compare(&r, "ab", 30, 40);
	}
	make_tables(&r, "abcdefgh", 1700);
	assert(IS(n_merges, >, 1536) && IS(n_tokens, >, 1536)); /* tables grow twice */
	compare(&r, "abcdefgh", 400, 12);
	make_tables(&r, "abc", 40);
	compare(&r, "abcdefghijklmno", 8000, 6); /* more than 4000 different words */
	test_bytes();
	test_refused();
	test_texts();
	puts("byte pairs: random texts, the pattern, refusals");
	return 0;
}
