/* Text with one token per unit: a byte or a character (UTF-8 code point). The vocabulary is the sorted set of
 * distinct units; the id of a unit is its index. */
#include <stdlib.h>
#include <string.h>
#include "data/source.h"
#include "data/text.h"
#include "util/mem.h"

enum { CODES = 0x110000 };

int dlb_utf8_decode(const unsigned char *p, size_t n, uint32_t *code)
{
	static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
	int length = p[0] < 0x80 ? 1 :
		     p[0] < 0xc2 ? 0 :
		     p[0] < 0xe0 ? 2 :
		     p[0] < 0xf0 ? 3 :
		     p[0] < 0xf5 ? 4 :
				   0;
	uint32_t c;

	if (length == 1) {
		*code = p[0];
		return 1;
	}
	if (!length || n < (size_t)length)
		return 0;
	c = p[0] & (0x7fu >> length);
	for (int i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fu);
	}
	if (c < least[length] || c >= CODES || (c >= 0xd800 && c < 0xe000))
		return 0;
	*code = c;
	return length;
}

/* Returns the length of the unit at p; 0 with err: not UTF-8. */
static int unit(const unsigned char *text, size_t at, size_t n, const char *name, bool bytes, uint32_t *code,
		struct dlb_error *err)
{
	int length = 1;

	if (bytes)
		*code = text[at];
	else if (!(length = dlb_utf8_decode(text + at, n - at, code)))
		dlb_hint((dlb_fail(err, name, "byte %zu: 0x%02x is not UTF-8 there", at, text[at]), err),
			 "level=byte takes any bytes");
	return length;
}

int dlb_alphabet_of(const unsigned char *p, size_t n, const char *name, bool bytes, struct dlb_alphabet *a,
		    struct dlb_error *err)
{
	unsigned char *seen = dlb_xcalloc(CODES, 1);
	uint32_t code = 0;

	memset(a, 0, sizeof *a);
	for (size_t i = 0; i < n;) {
		int length = unit(p, i, n, name, bytes, &code, err);

		if (!length) {
			free(seen);
			return -1;
		}
		a->n += !seen[code];
		seen[code] = 1;
		i += (size_t)length;
	}
	a->unit = dlb_xmalloc(((size_t)a->n + 1) * sizeof *a->unit);
	a->n = 0;
	for (uint32_t c = 0; c < CODES; c++)
		if (seen[c])
			a->unit[a->n++] = c;
	free(seen);
	return 0;
}

int dlb_alphabet_encode(const struct dlb_alphabet *a, const unsigned char *p, size_t n, const char *name,
			bool bytes, struct dlb_tokens *t, struct dlb_error *err)
{
	uint32_t *id = dlb_xcalloc(CODES, sizeof *id), code = 0;
	struct dlb_tokens x = { .id = dlb_xmalloc((n + 1) * sizeof *x.id) };

	for (int i = 0; i < a->n; i++)
		id[a->unit[i]] = (uint32_t)i + 1;
	for (size_t i = 0; i < n;) {
		int length = unit(p, i, n, name, bytes, &code, err);

		if (length && !id[code])
			dlb_fail(err, name,
				 bytes ? "byte %zu: 0x%02x is not in the alphabet" :
					 "byte %zu: U+%04X is not in the alphabet",
				 i, code);
		if (!length || !id[code]) {
			free(x.id);
			free(id);
			return -1;
		}
		x.id[x.n++] = id[code] - 1;
		i += (size_t)length;
	}
	free(id);
	*t = x;
	return 0;
}
