/* Names from files are printed with control characters escaped. */
#include <stdio.h>
#include <string.h>
#include "util/escape.h"
#include "check.h"

static void shows(const char *s, const char *want)
{
	char got[256], small[6];

	dlb_escape(s, got, sizeof got);
	if (strcmp(got, want)) {
		fprintf(stderr, "'%s', wanted '%s'\n", got, want);
		assert(!"shown otherwise");
	}
	assert(IS(dlb_needs_escape(s), ==, (strcmp(s, want) != 0)));
	assert(IS(strlen(dlb_escape(s, small, sizeof small)), <, sizeof small));
	assert(!strncmp(small, want, strlen(small)));
}

/* Of all characters up to U+2FFF the controls C0 and C1, the separators of lines and paragraphs, and the marks
 * of writing direction (U+202A to U+202E, U+2066 to U+2069) are escaped, and no other. */
static void test_controls(void)
{
	static const unsigned range[][2] = {
		{ 0x01, 0x1f }, { 0x7f, 0x9f }, { 0x2028, 0x202e }, { 0x2066, 0x2069 }
	};

	for (unsigned code = 1; code < 0x3000; code++) {
		char s[4] = "", shown[DLB_SHOWN_BYTES], want[16];
		bool control = false;

		if (code < 0x80)
			snprintf(s, sizeof s, "%c", (int)code);
		else if (code < 0x800)
			snprintf(s, sizeof s, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
		else
			snprintf(s, sizeof s, "%c%c%c", (int)(0xe0 | code >> 12),
				 (int)(0x80 | (code >> 6 & 0x3f)), (int)(0x80 | (code & 0x3f)));
		for (int k = 0; k < 4; k++)
			control |= code >= range[k][0] && code <= range[k][1];
		snprintf(want, sizeof want, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
		if (!control)
			snprintf(want, sizeof want, "%s", s);
		if (code == '\n' || code == '\t' || code == '\r')
			snprintf(want, sizeof want, "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
		assert(IS(dlb_escape_next(s, shown), ==, strlen(s)) && SAME(shown, want));
		assert(IS(dlb_needs_escape(s), ==, control));
	}
}

int main(void)
{
	test_controls();
	shows("", "");
	shows("conv1.weight", "conv1.weight");
	shows("a\\b 'c' \"d\"", "a\\b 'c' \"d\"");
	shows("a\nb\tc\rd", "a\\nb\\tc\\rd");
	shows("\x1b[31mred\x07\x7f", "\\x1b[31mred\\x07\\x7f");
	shows("Stra\xc3\x9f"
	      "e \xe5\xb1\xa4 \xf0\x9f\x98\x80",
	      "Stra\xc3\x9f"
	      "e \xe5\xb1\xa4 \xf0\x9f\x98\x80");
	shows("\xc2\x9b" "31m", "\\u009b31m");					/* CSI of one character */
	shows("\xe2\x80\xae" "abc\xe2\x81\xa6", "\\u202eabc\\u2066");
	shows("\xe2\x80\xa8", "\\u2028");
	/* invalid UTF-8: a lone byte, a truncated character, an overlong one, a surrogate, beyond the last
	 * code point */
	shows("\x9b" "31m", "\\x9b31m");
	shows("a\xe5\xb1", "a\\xe5\\xb1");
	shows("\xc0\xaf", "\\xc0\\xaf");
	shows("\xed\xa0\x80", "\\xed\\xa0\\x80");
	shows("\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80");
	shows("\xff\xfe", "\\xff\\xfe");
	/* truncation keeps whole characters */
	char small[4];
	assert(SAME(dlb_escape("ab\x1b", small, sizeof small), "ab"));
	assert(SAME(dlb_escape("ab\xc3\x9f", small, sizeof small), "ab"));
	printf("ok\n");
	return 0;
}
