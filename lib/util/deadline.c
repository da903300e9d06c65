/* Limits the time of blocking calls: see deadline.h. The signal handler needs global variables. */
#define _XOPEN_SOURCE 700	/* setitimer */
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <sys/time.h>
#include "util/deadline.h"

static void (*words)(const char *what);
static const char *volatile subject;

static void on_alarm(int sig)
{
	(void)sig;
	if (subject)
		words(subject);
}

void dlb_deadline_words(void (*expired)(const char *what))
{
	const struct sigaction a = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	words = expired;
	sigaction(SIGALRM, &a, NULL);
}

static void set(double s)
{
	const struct itimerval t = { .it_value = { .tv_sec = (time_t)s,
						   .tv_usec = (suseconds_t)(fmod(s, 1.0) * 1e6) } };

	setitimer(ITIMER_REAL, &t, NULL);
}

void dlb_deadline_begin(double s, const char *what)
{
	if (!words || s <= 0)
		return;
	subject = what;
	set(s < 1e-3 ? 1e-3 : s);
}

void dlb_deadline_end(void)
{
	if (!subject)
		return;
	set(0);
	subject = NULL;
}
