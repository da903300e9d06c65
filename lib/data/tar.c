/* Walks tar files of POSIX.1-2001 (ustar, pax) and GNU: 512-byte headers, each followed by its member's
 * bytes. Nothing is unpacked, so a member's name is never used as a path. Members' bytes are read
 * later, at the offsets found here. */
#include <stdlib.h>
#include <string.h>
#include "data/file.h"
#include "data/source.h"
#include "data/tar.h"
#include "util/mem.h"

enum { BLOCK = 512, MAX_LONG = 1 << 20 };	/* MAX_LONG: largest pax header or long name, in bytes */

static int fault(const struct dlb_data_file *f, uint64_t at, struct dlb_error *err, const char *what)
{
	return dlb_fail(err, f->path, "byte %llu: %s", (unsigned long long)at, what);
}

/* Parses a number in a header: octal digits, or (GNU) big-endian with the top bit set. -1: neither. */
static int64_t number(const unsigned char *p, int n)
{
	int64_t v = 0;
	int i = 0;

	if (p[0] & 0x80) {
		v = p[0] & 0x3f;
		for (i = 1; i < n; i++) {
			if (v >> 54)
				return -1;
			v = v << 8 | p[i];
		}
		return p[0] & 0x40 ? -1 : v;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
		if (v >> 58)
			return -1;
		v = v << 3 | (p[i] - '0');
	}
	return i == n || p[i] == ' ' || p[i] == '\0' ? v : -1;
}

static bool checksum_holds(const unsigned char *h)
{
	int64_t sum = 0;

	for (int i = 0; i < BLOCK; i++)
		sum += i >= 148 && i < 156 ? ' ' : h[i];
	return sum == number(h + 148, 8);
}

/* Path and size that a pax header or a GNU long name gives for the next member. */
struct pax_record { char *path; int64_t size; };

/* Parses pax records "LENGTH KEY=VALUE\n". */
static int pax(const struct dlb_data_file *f, uint64_t at, const char *p, size_t n, struct pax_record *said,
	       struct dlb_error *err)
{
	size_t i = 0;

	while (i < n && p[i]) {
		size_t length = 0, j = i;
		const char *equals;

		for (; j < n && p[j] >= '0' && p[j] <= '9' && length < n; j++)
			length = 10 * length + (size_t)(p[j] - '0');
		if (j == i || j == n || p[j] != ' ' || length > n - i || length < j - i + 3 ||
		    p[i + length - 1] != '\n' || !(equals = memchr(p + j, '=', i + length - j)))
			return fault(f, at + i, err, "a broken pax record");
		j++;
		if ((size_t)(equals - (p + j)) == 4 && !memcmp(p + j, "path", 4)) {
			free(said->path);
			said->path = dlb_xprintf("%.*s", (int)(p + i + length - 1 - equals - 1), equals + 1);
		} else if ((size_t)(equals - (p + j)) == 4 && !memcmp(p + j, "size", 4)) {
			char *end;

			said->size = strtoll(equals + 1, &end, 10);
			if (said->size < 0 || *end != '\n')
				return fault(f, at + i, err, "a broken size in a pax record");
		} else if (equals - (p + j) > 10 && !memcmp(p + j, "GNU.sparse", 10)) {
			return dlb_hint((fault(f, at + i, err, "a sparse member"), err),
					"make the tar file without --sparse");
		}
		i += length;
	}
	return 0;
}

/* Name in a header: prefix/name in ustar, else name alone. */
static char *plain_name(const unsigned char *h)
{
	bool ustar = !memcmp(h + 257, "ustar\0" "00", 8);

	if (ustar && h[345])
		return dlb_xprintf("%.155s/%.100s", (const char *)h + 345, (const char *)h);
	return dlb_xprintf("%.100s", (const char *)h);
}

/* Reads a member that describes the next one ('x' pax, 'L' long name). */
static int extension(const struct dlb_data_file *f, uint64_t at, int64_t size, char type,
		     struct pax_record *said, struct dlb_error *err)
{
	char *p;
	int rc = 0;

	if (size > MAX_LONG)
		return fault(f, at, err, "a name or pax header of more than 1 MiB");
	p = dlb_xmalloc((size_t)size + 1);
	p[size] = '\0';
	if (dlb_data_file_get(f, at + BLOCK, p, (size_t)size, err)) {
		rc = -1;
	} else if (type == 'x') {
		rc = pax(f, at + BLOCK, p, (size_t)size, said, err);
	} else {
		free(said->path);
		said->path = dlb_xstrdup(p);
	}
	free(p);
	return rc;
}

/* Fails for a file that is not tar, with a cure for known formats. */
static int not_tar(const struct dlb_data_file *f, const unsigned char *h, struct dlb_error *err)
{
	static const struct { const char *magic; size_t n; const char *what, *cure;
	} others[] = {
		{ "\x1f\x8b", 2, "a gzip file", "gunzip it first" },
		{ "BZh", 3, "a bzip2 file", "bunzip2 it first" },
		{ "\xfd"
		  "7zXZ",
		  5, "an xz file", "unxz it first" },
		{ "\x28\xb5\x2f\xfd", 4, "a zstd file", "unzstd it first" },
		{ "PK\3\4", 4, "a zip file", "unzip it; a folder is read too" },
	};

	for (int i = 0; i < DLB_LEN(others); i++)
		if (!memcmp(h, others[i].magic, others[i].n)) {
			dlb_fail(err, f->path, "byte 0: %s, whose members cannot be read in any order",
				 others[i].what);
			return dlb_hint(err, "%s", others[i].cure);
		}
	return fault(f, 0, err, "not a tar file: the first header's checksum is wrong");
}

/* A walk over the members of f. at: offset of the next header; said: path and size that an extension before
 * that header gives for its member. */
struct walk {
	const struct dlb_data_file *f;
	uint64_t at;
	struct pax_record said;
	int (*visit)(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err);
	void *ctx;
};

/* Handles the header h: visits its member and moves to the next header. */
static int header(struct walk *w, const unsigned char *h, struct dlb_error *err)
{
	const struct dlb_data_file *f = w->f;
	struct pax_record *said = &w->said;
	const uint64_t at = w->at;
	int64_t size = number(h + 124, 12);
	struct dlb_tar_member m = { .header = at, .at = at + BLOCK };
	char type = (char)h[156], *name;
	int rc = 0;

	if (!checksum_holds(h))
		return at ? fault(f, at, err, "no tar header: its checksum is wrong") : not_tar(f, h, err);
	if (size < 0)
		return fault(f, at + 124, err, "no number where the member's size should be");
	if (type == '1' || type == '2' || (type >= '3' && type <= '6'))
		/* links, devices and folders have no bytes, whatever size they state */
		size = 0;
	else if (type != 'x' && type != 'L' && type != 'g' && type != 'K' && said->size >= 0)
		size = said->size;
	if ((uint64_t)size > f->size - at - BLOCK)
		return dlb_fail(err, f->path,
				"truncated at byte %llu: the member at byte %llu has %lld bytes",
				(unsigned long long)f->size, (unsigned long long)at, (long long)size);
	w->at = at + BLOCK + ((uint64_t)size + BLOCK - 1) / BLOCK * BLOCK;
	if (type == 'x' || type == 'L')
		return extension(f, at, size, type, said, err);
	if (type == 'g' || type == 'K')
		return 0;		/* global pax header, long link target: unused */
	name = said->path ? said->path : plain_name(h);
	m.name = name;
	m.size = (uint64_t)size;
	m.link = type == '1' || type == '2' || type == 'S';
	if (m.link || type == '0' || type == '\0' || type == '7')
		rc = w->visit(w->ctx, &m, err);
	free(name);
	*said = (struct pax_record){ .size = -1 };
	return rc;
}

int dlb_tar_walk(const struct dlb_data_file *f,
		 int (*visit)(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err), void *ctx,
		 struct dlb_error *err)
{
	static const unsigned char zeros[BLOCK];
	unsigned char h[BLOCK];
	struct walk w = { .f = f, .said = { .size = -1 }, .visit = visit, .ctx = ctx };
	int rc = 0;

	while (!rc) {
		if (w.at + BLOCK > f->size) {
			rc = dlb_fail(err, f->path,
				      "truncated at byte %llu: the two blocks of zeros that end a tar file "
				      "are not there",
				      (unsigned long long)f->size);
			break;
		}
		rc = dlb_data_file_get(f, w.at, h, BLOCK, err);
		if (!rc && !memcmp(h, zeros, BLOCK))
			break;
		rc = rc || header(&w, h, err) ? -1 : 0;
	}
	free(w.said.path);
	return rc;
}
