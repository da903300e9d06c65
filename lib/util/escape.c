/* Escapes names for display: see escape.h. */
#include "util/escape.h"

#include <string.h>

#include "util/utf8.h"

/* Length in bytes of the UTF-8 character at s, and its code point; 0: not UTF-8. */
static size_t decode(const char *s, unsigned long *code)
{
	const unsigned char *u = (const unsigned char *)s;
	const size_t n = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;

	*code = n == 1 ? u[0] : n == 2 ? u[0] & 0x1f : n == 3 ? u[0] & 0x0f : u[0] & 0x07;
	for (size_t i = 1; i < n; i++) {
		if ((u[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (u[i] & 0x3f);
	}
	return n == 1 || dlb_is_utf8(s, n) ? n : 0;
}

/* True for control characters (C0, C1), line and paragraph separators, and marks of writing direction. */
static bool is_control(unsigned long code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2066 && code <= 0x2069);
}

size_t dlb_escape_next(const char *s, char shown[DLB_SHOWN_BYTES])
{
	static const char letters[] = { ['\n'] = 'n', ['\t'] = 't', ['\r'] = 'r' };
	unsigned long code;
	size_t n;

	shown[0] = '\0';
	if (!*s)
		return 0;
	n = decode(s, &code);
	if (!n)
		snprintf(shown, DLB_SHOWN_BYTES, "\\x%02x", (unsigned)(unsigned char)*s);
	else if (!is_control(code))
		snprintf(shown, DLB_SHOWN_BYTES, "%.*s", (int)n, s);
	else if (code < sizeof letters && letters[code])
		snprintf(shown, DLB_SHOWN_BYTES, "\\%c", letters[code]);
	else
		snprintf(shown, DLB_SHOWN_BYTES, code < 0x80 ? "\\x%02lx" : "\\u%04lx", code);
	return n ? n : 1;
}

bool dlb_needs_escape(const char *s)
{
	char shown[DLB_SHOWN_BYTES];

	for (size_t n; (n = dlb_escape_next(s, shown)); s += n)
		if (strncmp(s, shown, n) || shown[n])
			return true;
	return false;
}

const char *dlb_escape(const char *s, char *buf, size_t size)
{
	char shown[DLB_SHOWN_BYTES];
	size_t at = 0;

	for (size_t n; (n = dlb_escape_next(s, shown)) && at + strlen(shown) < size; s += n) {
		memcpy(buf + at, shown, strlen(shown));
		at += strlen(shown);
	}
	if (size)
		buf[at] = '\0';
	return buf;
}

void dlb_put_escaped(FILE *f, const char *s)
{
	char shown[DLB_SHOWN_BYTES];

	for (size_t n; (n = dlb_escape_next(s, shown)); s += n)
		fputs(shown, f);
}
