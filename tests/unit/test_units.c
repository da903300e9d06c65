/* Numbers for people: three digits, the unit that fits, and "-" for what is no number. */
#include <math.h>
#include <string.h>
#include "view/view.h"
#include "check.h"

static void shows(const char *(*format)(double, char *, size_t), double x, const char *want)
{
	char got[32];

	format(x, got, sizeof got);
	if (strcmp(got, want)) {
		fprintf(stderr, "'%s', wanted '%s'\n", got, want);
		assert(!"shown otherwise");
	}
}

int main(void)
{
	shows(dlb_view_seconds, 12.345, "12.3 s");
	shows(dlb_view_seconds, 1, "1 s");
	shows(dlb_view_seconds, 0.9994, "999 ms");
	shows(dlb_view_seconds, 1e-3, "1 ms");
	shows(dlb_view_seconds, 9.5e-4, "950 us");
	shows(dlb_view_seconds, 2e-8, "0.02 us"); /* the smallest unit has what is below it */
	shows(dlb_view_seconds, 0, "0 us");
	shows(dlb_view_seconds, -2.5e-3, "-2.5 ms"); /* a gain of a plan */
	shows(dlb_view_seconds, NAN, "-");
	shows(dlb_view_seconds, INFINITY, "-");
	shows(dlb_view_bytes, 3.5e12, "3.5 TB");
	shows(dlb_view_bytes, 1e9, "1 GB");
	shows(dlb_view_bytes, 999e6, "999 MB");
	shows(dlb_view_bytes, 1e3, "1 kB");
	shows(dlb_view_bytes, 999, "999 B");
	shows(dlb_view_bytes, 0, "0 B");
	shows(dlb_view_bytes, -INFINITY, "-");
	shows(dlb_view_flop, 2e12, "2 TFLOP");
	shows(dlb_view_flop, 4e9, "4 GFLOP");
	shows(dlb_view_flop, 1e6, "1 MFLOP");
	shows(dlb_view_flop, 1500, "1.5 kFLOP");
	shows(dlb_view_flop, 7, "7 FLOP");
	return 0;
}
