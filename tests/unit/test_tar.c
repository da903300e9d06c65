/* Tar files written header by header: which members are visited, with which name, offset and size; numbers,
 * pax records and long names of every form; the refusal and the byte of each fault. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/tar.h"
#include "util/mem.h"
#include "check.h"

enum { BLOCK = 512, MOST = 3 << 20, LONGEST = 1 << 20 };

static unsigned char file[MOST];
static size_t n_file;
static char path[] = "/tmp/dlb-test-XXXXXX", seen[4096];
static int n_cases;

/* -- writing -- */

static void sign(unsigned char *h)
{
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < BLOCK; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

/* Appends a header whose field of the size has these 12 bytes. */
static unsigned char *put_header(const char *name, char type, const char *size)
{
	unsigned char *h = file + n_file;

	n_file += BLOCK;
	assert(IS(n_file, <, sizeof file));
	memset(h, 0, BLOCK);
	strncpy((char *)h, name, 100);
	memcpy(h + 124, size, 12);
	h[156] = (unsigned char)type;
	sign(h);
	return h;
}

static void put_bytes(const void *p, size_t n)
{
	const size_t padded = (n + BLOCK - 1) / BLOCK * BLOCK;

	assert(IS(n_file + padded, <, sizeof file));
	memset(file + n_file, 0, padded);
	memcpy(file + n_file, p, n);
	n_file += padded;
}

static void put(const char *name, char type, const void *p, size_t n)
{
	char size[16];

	snprintf(size, sizeof size, "%011o", (unsigned)n);
	put_header(name, type, size);
	put_bytes(p, n);
}

static void put_text(const char *name, char type, const char *text) { put(name, type, text, strlen(text)); }

/* A pax header for the next member, of records "KEY=VALUE\n" with their lengths. */
static void put_pax(const char *const *said, int n)
{
	char text[1024];
	int at = 0;

	for (int i = 0; i < n; i++) {
		int length = (int)strlen(said[i]) + 3;

		length += length > 9;
		length += length > 99;
		at += snprintf(text + at, sizeof text - (size_t)at, "%d %s\n", length, said[i]);
	}
	put_text("pax", 'x', text);
}
#define PAX(...) \
	put_pax((const char *const[]){ __VA_ARGS__ }, DLB_LEN(((const char *const[]){ __VA_ARGS__ })))

static void end(int zeros)
{
	memset(file + n_file, 0, (size_t)zeros * BLOCK);
	n_file += (size_t)zeros * BLOCK;
}

/* -- walking -- */

static int see(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err)
{
	const size_t at = strlen(seen);

	snprintf(seen + at, sizeof seen - at, "%.40s %llu %llu %llu%s;", m->name,
		 (unsigned long long)m->header, (unsigned long long)m->at, (unsigned long long)m->size,
		 m->link ? " link" : "");
	return ctx && !strcmp(m->name, ctx) ? dlb_fail(err, NULL, "stop here") : 0;
}

static int walk(char *stop, struct dlb_error *err)
{
	struct dlb_data_file f;
	FILE *to = fopen(path, "wb");

	assert(to && IS(fwrite(file, 1, n_file, to), ==, n_file) && !fclose(to));
	seen[0] = '\0';
	*err = (struct dlb_error){ .what = "" };
	assert(IS(dlb_data_file_open(&f, path, err), ==, 0));
	const int rc = dlb_tar_walk(&f, see, stop, err);
	dlb_data_file_close(&f);
	n_file = 0;
	n_cases++;
	return rc;
}

/* Walks what was written: "NAME HEADER AT SIZE[ link];" of each member. */
static void visits(const char *want)
{
	struct dlb_error err;

	end(2);
	if (walk(NULL, &err)) {
		fprintf(stderr, "%s: %s\n", want, err.what);
		abort();
	}
	assert(SAME(seen, want));
}

static void fails(const char *what)
{
	struct dlb_error err;

	assert(IS(walk(NULL, &err), ==, -1) && SAME(err.what, what) && SAME(err.where, path));
}

/* -- members -- */

static void kinds(void)
{
	static char bytes[2 * BLOCK];
	static const size_t sizes[] = { 0, 1, BLOCK - 1, BLOCK, BLOCK + 1 };

	for (int i = 0; i < DLB_LEN(sizes); i++) {
		char want[200];

		put("a", '0', bytes, sizes[i]);
		put("b", '\0', bytes, 3);
		snprintf(want, sizeof want, "a 0 512 %zu;b %zu %zu 3;", sizes[i],
			 BLOCK + (sizes[i] + BLOCK - 1) / BLOCK * BLOCK,
			 2 * BLOCK + (sizes[i] + BLOCK - 1) / BLOCK * BLOCK);
		visits(want);
	}
	put("seven", '7', bytes, 600);
	put("sparse", 'S', bytes, 600);
	visits("seven 0 512 600;sparse 1536 2048 600 link;");
	/* these have no bytes, whatever size they state */
	for (char type = '1'; type <= '6'; type++) {
		char want[60];

		put_header("none", type, "00000001130");
		put("b", '0', bytes, 2);
		snprintf(want, sizeof want, "%sb 512 1024 2;", type <= '2' ? "none 0 512 0 link;" : "");
		visits(want);
	}
	/* global headers and long targets of links have bytes, and are not visited */
	for (int i = 0; i < 3; i++) {
		put("not seen", "gKZ"[i], bytes, 513);
		put("b", '0', bytes, 2);
		visits("b 1536 2048 2;");
	}
	visits("");
}

static void names(void)
{
	char full[101] = "", before[156] = "";
	const char *const empty = "00000000000";

	memset(full, 'n', 100);
	memset(before, 'p', 155);
	for (int ustar = 0; ustar < 3; ustar++) {
		unsigned char *h = put_header("b", '0', empty);

		memcpy(h + 257, ustar == 0 ? "ustar\00000" : ustar == 1 ? "ustar  \0" : "ustar\00001", 8);
		memcpy(h + 345, "a/", 2);
		sign(h);
		visits(ustar == 0 ? "a//b 0 512 0;" : "b 0 512 0;");
	}
	put_text("long", 'L', "the/long/name");
	put_header("short", '0', empty);
	put_header("next", '0', empty); /* the long name is of one member */
	visits("the/long/name 1024 1536 0;next 1536 2048 0;");
	put_text("long", 'L', "one");
	put_text("long", 'L', "another"); /* the last one counts */
	PAX("path=third");
	put_text("target", 'K', "elsewhere"); /* stands between a name and its member */
	put_header("short", '2', empty);
	visits("third 4096 4608 0 link;");
	PAX("path=third");
	put_text("long", 'L', "");
	put_header("short", '0', empty);
	visits(" 1536 2048 0;");
}

static void pax_records(void)
{
	char bytes[600] = "";

	PAX("size=600", "path=a name", "mtime=1.5", "pathx=no", "xpath=no", "sizes=no", "GNU.sparse=no",
	    "pat=no");
	put_header("short", '0', "00000000001");
	put_bytes(bytes, 600);
	put("next", '0', bytes, 1); /* nothing is left of the records */
	visits("a name 1024 1536 600;next 2560 3072 1;");
	PAX("path=",
	    "comment=123456789012345678901234567890123456789012345678901234567890123456789012345678901"
	    "23456789012345678901234567890");
	put_header("short", '0', "00000000000");
	visits(" 1024 1536 0;");
	/* the size of the records is not that of a header between them and the member, or of a link */
	PAX("size=600");
	put_text("g", 'g', "global");
	put_text("K", 'K', "target");
	put_text("L", 'L', "name");
	PAX("mtime=1");
	put_header("short", '0', "00000000001");
	put_bytes(bytes, 600);
	visits("name 5120 5632 600;");
	PAX("size=600");
	put_header("link", '1', "00000000001");
	put("next", '0', bytes, 1);
	visits("link 1024 1536 0 link;next 1536 2048 1;");
	put_text("pax", 'x', "12 path=abc\n\0 and more");
	put_header("short", '0', "00000000000");
	visits("abc 1024 1536 0;");
}

static void broken_records(void)
{
	static const struct {
		const char *text;
		int at;
	} broken[] = {
		{ "x path=a\n", 0 },	{ "9path=a\n", 0 },   { "9\tpath=a\n", 0 },	{ "11 path=a\n", 0 },
		{ "8 path=a\n", 0 },	{ "9 path.a\n", 0 },  { "9 path=a.", 0 },	{ "6 a=b\n9 path=a", 6 },
		{ "6 a=b\n=", 6 },	{ "3 \n", 0 },	      { "4 =\n5 =\n", 4 },	{ "99999999999999999999 a=b\n", 0 },
		{ "9 abcde\n6 a=b\n", 0 }, { "9", 0 },	      { "6 a=b\n2\n", 6 },
	}, sizes[] = { { "11 size=-1\n", 0 }, { "11 size=1x\n", 0 }, { "6 a=b\n12 size= 1 \n", 6 } };
	char want[120];

	for (int i = 0; i < DLB_LEN(broken); i++) {
		put_text("pax", 'x', broken[i].text);
		end(2);
		snprintf(want, sizeof want, "byte %d: a broken pax record", BLOCK + broken[i].at);
		fails(want);
	}
	for (int i = 0; i < DLB_LEN(sizes); i++) {
		put_text("pax", 'x', sizes[i].text);
		end(2);
		snprintf(want, sizeof want, "byte %d: a broken size in a pax record", BLOCK + sizes[i].at);
		fails(want);
	}
	PAX("GNU.sparsed=1");
	end(2);
	fails("byte 512: a sparse member");
}

/* Names and headers are at most 1 MiB long. */
static void longest(void)
{
	static char name[LONGEST + 1];
	struct dlb_error err;

	for (char type = 'L'; type; type = type == 'L' ? 'x' : '\0')
		for (int more = 0; more < 2; more++) {
			memset(name, type == 'L' ? 'n' : 0, sizeof name);
			put("member", '0', "", 0);
			put("long", type, name, LONGEST + (size_t)more);
			put("short", '0', "", 0);
			end(2);
			const int rc = walk(NULL, &err);
			assert(IS(rc, ==, more ? -1 : 0));
			assert(!more || SAME(err.what, "byte 512: a name or pax header of more than 1 MiB"));
		}
}

/* -- numbers -- */

static void numbers(void)
{
	static const struct {
		const char *size;
		long long want;
	} rows[] = {
		{ "00000000003\0", 3 },
		{ "000000000003", 3 },
		{ "          3 ", 3 },
		{ "3           ", 3 },
		{ "3\0  8garbage", 3 },
		{ "   3\0       ", 3 },
		{ "\0\0\0\0\0\0\0\0\0\0\0\0", 0 },
		{ "            ", 0 },
		{ "00000000017 ", 15 },
		{ "\x80\0\0\0\0\0\0\0\0\0\0\3", 3 },
		{ "\x80\0\0\0\0\0\0\0\0\0\2\3", 515 },
		{ "00000000008\0", -1 },
		{ "3x\0\0\0\0\0\0\0\0\0\0", -1 },
		{ "-0000000003\0", -1 },
		{ "\xc0\0\0\0\0\0\0\0\0\0\0\3", -1 },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", -1 },
		{ "\x80\1\0\0\0\0\0\0\0\0\0\0", -1 },
		{ "\x80\0\0\0\x40\0\0\0\0\0\0\0", -1 },
	};
	static const char bytes[600];
	char want[80];

	for (int i = 0; i < DLB_LEN(rows); i++) {
		put_header("a", '0', rows[i].size);
		put_bytes(bytes, 600);
		if (rows[i].want < 0) {
			end(2);
			fails("byte 124: no number where the member's size should be");
			continue;
		}
		n_file -= rows[i].want ? rows[i].want > BLOCK ? 0 : BLOCK : 2 * BLOCK;
		snprintf(want, sizeof want, "a 0 512 %lld;", rows[i].want);
		visits(want);
	}
	/* as many bytes as a number can say, of which the file has none */
	put_header("a", '0', "777777777777");
	end(2);
	fails("truncated at byte 1536: the member at byte 0 has 68719476735 bytes");
	put_header("a", '0', "\x80\0\0\0\x3f\xff\xff\xff\xff\xff\xff\xff");
	end(2);
	fails("truncated at byte 1536: the member at byte 0 has 4611686018427387903 bytes");
}

/* -- ends -- */

static void ends(void)
{
	static const char bytes[BLOCK];
	struct dlb_error err;

	put("a", '0', bytes, 5);
	fails("truncated at byte 1024: the two blocks of zeros that end a tar file are not there");
	put("a", '0', bytes, 5);
	end(1); /* one is enough */
	assert(IS(walk(NULL, &err), ==, 0) && SAME(seen, "a 0 512 5;"));
	put("a", '0', bytes, 5);
	end(1);
	n_file--;
	fails("truncated at byte 1535: the two blocks of zeros that end a tar file are not there");
	fails("truncated at byte 0: the two blocks of zeros that end a tar file are not there");
	put("a", '0', bytes, BLOCK);
	n_file--;
	fails("truncated at byte 1023: the member at byte 0 has 512 bytes");
	put("a", '0', bytes, BLOCK);
	put("b", '0', bytes, 1);
	end(2);
	memset(file + n_file - BLOCK, 'x', BLOCK); /* what follows is not read */
	assert(IS(walk(NULL, &err), ==, 0) && SAME(seen, "a 0 512 512;b 1024 1536 1;"));
	put("a", '0', bytes, 0);
	put("b", '0', bytes, 1);
	file[BLOCK]++;
	end(2);
	fails("byte 512: no tar header: its checksum is wrong");
	put("a", '0', bytes, 0);
	put("b", '0', bytes, 1);
	end(2);
	assert(IS(walk((char[]){ "a" }, &err), ==, -1) && SAME(err.what, "stop here") &&
	       SAME(seen, "a 0 512 0;"));
}

static void other_formats(void)
{
	static const struct {
		const char *magic, *what, *cure;
	} rows[] = {
		{ "\x1f\x8b", "a gzip file", "gunzip it first" },
		{ "BZh", "a bzip2 file", "bunzip2 it first" },
		{ "\xfd"
		  "7zXZ",
		  "an xz file", "unxz it first" },
		{ "\x28\xb5\x2f\xfd", "a zstd file", "unzstd it first" },
		{ "PK\3\4", "a zip file", "unzip it; a folder is read too" },
	};
	struct dlb_error err;
	char want[120];

	for (int i = 0; i < DLB_LEN(rows); i++)
		for (size_t less = 0; less < 2; less++) {
			memset(file, 'x', 1000);
			memcpy(file, rows[i].magic, strlen(rows[i].magic) - less);
			n_file = 1000;
			snprintf(want, sizeof want, "byte 0: %s, whose members cannot be read in any order",
				 rows[i].what);
			assert(IS(walk(NULL, &err), ==, -1));
			assert(SAME(err.what,
				    less ? "byte 0: not a tar file: the first header's checksum is wrong" :
					   want));
			assert(SAME(err.hint, less ? "" : rows[i].cure));
		}
}

int main(void)
{
	const int fd = mkstemp(path);

	assert(IS(fd, >=, 0));
	close(fd);
	kinds();
	names();
	pax_records();
	broken_records();
	longest();
	numbers();
	ends();
	other_formats();
	unlink(path);
	printf("%d tar files\n", n_cases);
	return 0;
}
