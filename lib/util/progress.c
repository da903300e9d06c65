/* Progress of long work: one line on stderr that is overwritten, only on a terminal, only after a
 * second, at most ten times a second. */
#include "util/cli.h"

#include <inttypes.h>
#include <unistd.h>

#include "util/clock.h"

void dlb_progress_start(struct dlb_progress *p, const char *what, bool quiet)
{
	*p = (struct dlb_progress){ .what = what,
				    .start_s = dlb_clock_s(),
				    .off = quiet || !isatty(STDERR_FILENO) };
}

void dlb_progress_update(struct dlb_progress *p, int64_t done, int64_t total, const char *extra)
{
	double now;

	if (p->off)
		return;
	now = dlb_clock_s();
	if (now - p->start_s < 1 || now - p->last_s < 0.1)
		return;
	p->last_s = now;
	p->shown = true;
	fprintf(stderr, "\r%s %" PRId64, p->what, done);
	if (total > 0)
		fprintf(stderr, "/%" PRId64, total);
	fprintf(stderr, "%s%s\033[K", extra && extra[0] ? "  " : "", extra ? extra : "");
	fflush(stderr);
}

void dlb_progress_end(struct dlb_progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}
