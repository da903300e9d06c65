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

int main(void)
{
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
