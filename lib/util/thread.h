/* Starts threads. */
#ifndef DLB_UTIL_THREAD_H
#define DLB_UTIL_THREAD_H
#include <pthread.h>

/* As pthread_create, with all signals blocked in the new thread: they interrupt none of its calls, and the
 * calling thread handles them. attr may be NULL. Returns 0 or the error's number. */
int dlb_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
#endif
