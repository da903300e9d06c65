/* Threads. See thread.h. */
#include "util/thread.h"

#include <signal.h>
#include <stddef.h>

int dlb_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}
