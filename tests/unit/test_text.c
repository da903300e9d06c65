/* Texts as ids, the argument of --data, threads that fill samples: each against its definition. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/readers.h"
#include "data/source.h"
#include "data/spec.h"
#include "data/text.h"
#include "util/rng.h"
#include "check.h"

/* ---- UTF-8 ---- */

/* The UTF-8 of a code point, as RFC 3629 defines it; its length. */
static int utf8_of(uint32_t code, unsigned char *s)
{
	static const unsigned char lead[] = { 0, 0xc0, 0xe0, 0xf0 };
	const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;

	s[0] = (unsigned char)(lead[more] | code >> 6 * more);
	for (int i = 1; i <= more; i++)
		s[i] = (unsigned char)(0x80 | (code >> 6 * (more - i) & 0x3f));
	return more + 1;
}

/* Code points are decoded as written, and no other bytes are; nothing is read behind the end. */
static void test_utf8(void)
{
	static const unsigned char ends[] = { 0x00, 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xff };
	unsigned char s[4], t[4];
	uint32_t code, got;

	for (code = 0; code < 0x110000; code += code < 0x11000 ? 1 : 61)
		if (code < 0xd800 || code > 0xdfff) {
			const int n = utf8_of(code, s);

			assert(IS(dlb_utf8_decode(s, (size_t)n, &got), ==, n) && IS(got, ==, code));
			assert(n == 1 || IS(dlb_utf8_decode(s, (size_t)n - 1, &got), ==, 0));
		}
	for (unsigned i = 0; i < 256 * 8 * 8 * 8; i++) {
		s[0] = (unsigned char)(i >> 9);
		for (int k = 1; k < 4; k++)
			s[k] = ends[i >> 3 * (k - 1) & 7];
		const int n = dlb_utf8_decode(s, 4, &code);
		assert(!n || (code < 0x110000 && (code < 0xd800 || code > 0xdfff) &&
			      IS(utf8_of(code, t), ==, n) && !memcmp(s, t, (size_t)n)));
		/* the lead byte of a length with as many bytes behind it, of no shorter form: it is one */
		const bool follow = (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80;
		if (follow && s[0] >= 0xc2 && s[0] < 0xf4 && s[0] != 0xe0 && s[0] != 0xed && s[0] != 0xf0)
			assert(IS(n, ==, s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4));
	}
}

/* ---- alphabets ---- */

static void test_alphabets(void)
{
	struct dlb_rng r;

	dlb_rng_init(&r, 9);
	for (int round = 0; round < 12; round++) {
		const bool bytes = round % 2;
		uint32_t unit[60];
		unsigned char text[240];
		const int n_units = 1 + (int)dlb_rng_below(&r, 60);
		struct dlb_alphabet a;
		struct dlb_tokens t;
		struct dlb_error err;
		size_t n = 0;
		int n_distinct = 0;

		for (int i = 0; i < n_units; i++) {
			unit[i] = (uint32_t)dlb_rng_below(&r, bytes ? 256 : i % 2 ? 90 : 0xd800);
			if (bytes)
				text[n++] = (unsigned char)unit[i];
			else
				n += (size_t)utf8_of(unit[i], text + n);
		}
		for (int i = 0; i < n_units; i++) {
			bool before = false;

			for (int k = 0; k < i; k++)
				before |= unit[k] == unit[i];
			n_distinct += !before;
		}
		assert(IS(dlb_alphabet_of(text, n, "t", bytes, &a, &err), ==, 0) && IS(a.n, ==, n_distinct));
		for (int i = 1; i < a.n; i++)
			assert(IS(a.unit[i - 1], <, a.unit[i]));
		assert(IS(dlb_alphabet_encode(&a, text, n, "t", bytes, &t, &err), ==, 0) &&
		       IS(t.n, ==, n_units));
		for (int i = 0; i < n_units; i++)
			assert(IS(a.unit[t.id[i]], ==, unit[i]));
		free(t.id);
		free(a.unit);
	}
}

static void test_not_in_alphabet(void)
{
	static const struct {
		const char *text;
		bool bytes;
		const char *what; /* NULL: encoded */
	} rows[] = {
		{ "ba\xc3\xa9", false, NULL },
		{ "bac", false, "byte 2: U+0063 is not in the alphabet" },
		{ "b\xc3\xa8", false, "byte 1: U+00E8 is not in the alphabet" },
		{ "\xc3\xa9\xc3", false, "byte 2: 0xc3 is not UTF-8 there" },
		{ "\xc3\xa9\xc3", true, NULL },
		{ "ab\xfe", true, "byte 2: 0xfe is not in the alphabet" },
	};
	static const unsigned char known[] = "ab\xc3\xa9";
	struct dlb_error err = { .what = "" };
	struct dlb_alphabet a[2], none;

	for (int k = 0; k < 2; k++)
		assert(IS(dlb_alphabet_of(known, 4, "known", k, &a[k], &err), ==, 0) &&
		       IS(a[k].n, ==, 3 + k));
	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_tokens t = { 0 };
		const int rc = dlb_alphabet_encode(&a[rows[i].bytes], (const unsigned char *)rows[i].text,
						   strlen(rows[i].text), "t", rows[i].bytes, &t, &err);

		assert(IS(rc, ==, rows[i].what ? -1 : 0) && IS(t.id != NULL, ==, !rc));
		if (rc)
			assert(SAME(err.what, rows[i].what) && SAME(err.where, "t"));
		free(t.id);
	}
	assert(IS(dlb_alphabet_of((const unsigned char *)"a\x80", 2, "t", false, &none, &err), ==, -1) &&
	       SAME(err.what, "byte 1: 0x80 is not UTF-8 there") &&
	       SAME(err.hint, "level=byte takes any bytes") && !none.unit);
	free(a[0].unit);
	free(a[1].unit);
}

/* ---- the argument of --data ---- */

static void test_specs(void)
{
	static const char sixteen[] = "npy:a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p";
	static const struct {
		const char *text, *word, *file[2], *option[3];
		int n_files;
		const char *what, *hint;
	} rows[] = {
		{ "random", NULL, { 0 }, { 0 }, 0, NULL, NULL },
		{ "digits:test", "test", { 0 }, { 0 }, 0, NULL, NULL },
		{ "idx:a,b,c", NULL, { "a,b", "c" }, { 0 }, 2, NULL, NULL },
		{ "npy:a,b", NULL, { "a", "b" }, { 0 }, 2, NULL, NULL },
		{ "tokens:a,b", NULL, { "a,b" }, { 0 }, 1, NULL, NULL },
		{ "tokens:a,type=u8", NULL, { "a" }, { "u8" }, 1, NULL, NULL },
		{ "text:a,alphabet=b,level=char", NULL, { "a" }, { "char", "b" }, 1, NULL, NULL },
		{ "text:none,levle=byte",
		  NULL,
		  { 0 },
		  { 0 },
		  0,
		  "data 'text:' have no option 'levle'",
		  "they are written text:FILE[,level=char|byte][,alphabet=FILE] or "
		  "text:FILE,vocab=FILE,merges=FILE" },
		{ "tokens:a,type=u8,type=u8", NULL, { 0 }, { 0 }, 0, "data: 'type' twice", "" },
		{ "tokens:",
		  NULL,
		  { 0 },
		  { 0 },
		  0,
		  "data 'tokens:': a file is needed",
		  "tokens:FILE[,type=u8|u16|u32]" },
		{ "tokens",
		  NULL,
		  { 0 },
		  { 0 },
		  0,
		  "data 'tokens': a file is needed",
		  "tokens:FILE[,type=u8|u16|u32]" },
		{ "idx:a", NULL, { 0 }, { 0 }, 0, "data 'idx:a': two files are needed", "idx:IMAGES,LABELS" },
		{ "idx:a,",
		  NULL,
		  { 0 },
		  { 0 },
		  0,
		  "data 'idx:a,': a file's name is missing",
		  "idx:IMAGES,LABELS" },
		{ "npy:a,,b",
		  NULL,
		  { 0 },
		  { 0 },
		  0,
		  "data 'npy:a,,b': a file's name is missing",
		  "npy:SAMPLES.npy[,...],LABELS.npy" },
		{ "ramdom", NULL, { 0 }, { 0 }, 0, "no data 'ramdom'", "did you mean 'random'?" },
		{ "zzzzzzzz:a",
		  NULL,
		  { 0 },
		  { 0 },
		  0,
		  "no data 'zzzzzzzz:a'",
		  "there are idx:, npy:, images:, tokens:, text:, digits and random" },
	};
	struct dlb_error err;
	struct dlb_spec s;
	char many[200];

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		err = (struct dlb_error){ .what = "" };
		assert(IS(dlb_spec_parse(rows[i].text, &s, &err), ==, rows[i].what ? -1 : 0));
		if (rows[i].what) {
			assert(SAME(err.what, rows[i].what) && SAME(err.hint, rows[i].hint));
			continue;
		}
		assert(IS(s.n_files, ==, rows[i].n_files) && !strncmp(s.class->name, rows[i].text, 3));
		assert(IS(s.word != NULL, ==, rows[i].word != NULL) &&
		       (!s.word || SAME(s.word, rows[i].word)));
		for (int k = 0; k < s.n_files; k++)
			assert(SAME(s.file[k], rows[i].file[k]));
		for (int k = 0; k < 3; k++)
			assert(rows[i].option[k] ? SAME(s.option[k], rows[i].option[k]) : !s.option[k]);
		dlb_spec_release(&s);
	}
	/* as many files as there is room for, and one more */
	int n = 16;
	strcpy(many, sixteen);
	for (; n < DLB_MAX_SPEC_FILES; n++)
		strcat(many, ",x");
	assert(IS(n, ==, DLB_MAX_SPEC_FILES) && IS(dlb_spec_parse(many, &s, &err), ==, 0) &&
	       IS(s.n_files, ==, n));
	dlb_spec_release(&s);
	strcat(many, ",x");
	assert(IS(dlb_spec_parse(many, &s, &err), ==, -1) && HAS(err.what, "name more than "));
}

/* ---- threads ---- */

enum { ITEMS = 500 };
struct visits {
	pthread_mutex_t lock;
	int n[ITEMS];
};

/* Counts the visit, and writes to scratch that no other thread may have at the time. */
static void visit(void *ctx, int64_t i, struct dlb_scratch *s)
{
	struct visits *v = ctx;
	unsigned char *p = dlb_scratch(s, DLB_SCRATCH_FILE, (size_t)i % 300 + 1);

	memset(p, (int)i & 255, (size_t)i % 300 + 1);
	pthread_mutex_lock(&v->lock);
	v->n[i]++;
	pthread_mutex_unlock(&v->lock);
	for (int64_t k = 0; k < i % 300 + 1; k++)
		assert(IS(p[k], ==, i & 255));
	assert(dlb_scratch(s, DLB_SCRATCH_FILE, 1) == p);
}

static void test_readers(void)
{
	static const int64_t counts[] = { 1, ITEMS, 0, 7, ITEMS };

	for (int threads = 1; threads <= 4; threads++) {
		struct dlb_readers *r;
		struct dlb_error err;

		assert(IS(dlb_readers_new(&r, threads, &err), ==, 0));
		for (int k = 0; k < (int)(sizeof counts / sizeof *counts); k++) {
			struct visits v = { .lock = PTHREAD_MUTEX_INITIALIZER };

			dlb_readers_run(r, counts[k], visit, &v);
			for (int i = 0; i < ITEMS; i++)
				assert(IS(v.n[i], ==, i < counts[k]));
		}
		dlb_readers_free(r);
	}
	dlb_readers_free(NULL);
}

int main(void)
{
	test_utf8();
	test_alphabets();
	test_not_in_alphabet();
	test_specs();
	test_readers();
	puts("text: UTF-8, alphabets, --data, threads");
	return 0;
}
