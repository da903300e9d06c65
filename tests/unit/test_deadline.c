/* The end of a blocking call's time is told, once, unless the call ended before. */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include "util/clock.h"
#include "util/deadline.h"
#include "check.h"

static const char *volatile told;
static volatile sig_atomic_t n_told;

static void expired(const char *what)
{
	told = what;
	n_told++;
}

/* Seconds until the timer expires; 0: it does not run. */
static double left_s(void)
{
	struct itimerval t;

	assert(!getitimer(ITIMER_REAL, &t) && !t.it_interval.tv_sec && !t.it_interval.tv_usec);
	return (double)t.it_value.tv_sec + (double)t.it_value.tv_usec * 1e-6;
}

int main(void)
{
	dlb_deadline_begin(1000, "nobody to tell");
	assert(IS(left_s(), ==, 0));
	dlb_deadline_end();
	dlb_deadline_words(expired);
	dlb_deadline_begin(0, "no limit");
	dlb_deadline_begin(-1, "no limit");
	assert(IS(left_s(), ==, 0));
	dlb_deadline_begin(2000.5, "the first");
	assert(IS(left_s(), >, 1900) && IS(left_s(), <=, 2000.6));
	dlb_deadline_end();
	assert(IS(left_s(), ==, 0) && IS(n_told, ==, 0));
	dlb_deadline_begin(1e-9, "the second"); /* a timer of 0 s would never expire */
	for (int i = 0; !n_told && i < 20000; i++)
		dlb_sleep_s(1e-3);
	assert(IS(n_told, ==, 1) && SAME(told, "the second") && IS(left_s(), ==, 0));
	dlb_deadline_end();
	raise(SIGALRM); /* between two calls */
	assert(IS(n_told, ==, 1));
	dlb_deadline_begin(1000, "the third");
	raise(SIGALRM);
	assert(IS(n_told, ==, 2) && SAME(told, "the third"));
	dlb_deadline_end();
	puts("deadline: told once, ended before, no limit");
	return 0;
}
