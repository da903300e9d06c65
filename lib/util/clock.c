/* Clocks: see clock.h. */
#include "util/clock.h"

#include <errno.h>
#include <math.h>
#include <time.h>

static double seconds(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double dlb_clock_s(void)
{
	return seconds(CLOCK_MONOTONIC);
}

double dlb_clock_thread_cpu_s(void)
{
	return seconds(CLOCK_THREAD_CPUTIME_ID);
}

void dlb_sleep_s(double s)
{
	struct timespec t;

	if (!(s > 0))
		return;
	t.tv_sec = (time_t)s;
	t.tv_nsec = (long)((s - floor(s)) * 1e9);
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}
