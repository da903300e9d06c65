/* The UTF-8 check: see utf8.h. */
#include "util/utf8.h"
#include <stdint.h>

bool dlb_is_utf8(const char *text, size_t n)
{
	const uint8_t *s = (const uint8_t *)text, *end = n ? s + n : s;	/* text may be NULL if n is 0 */
	while (s < end) {
		const int more = *s < 0x80 ? 0 : *s >= 0xc2 && *s < 0xe0 ? 1 : *s >= 0xe0 && *s < 0xf0 ? 2 :
				 *s >= 0xf0 && *s < 0xf5 ? 3 : -1;
		if (more < 0 || end - s <= more || (!*s))
			return false;
		for (int i = 1; i <= more; i++)
			if ((s[i] & 0xc0) != 0x80)
				return false;
		if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
		    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
			return false;
		s += 1 + more;
	}
	return true;
}
