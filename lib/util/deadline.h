/* A limit for calls that may never come back and take no time-out themselves (MPI_Init, MPI_Finalize): when it has passed,
 * the tool's own last words are called, which end the process.
 *
 *     dlb_deadline_words(hung);                  once: void hung(const char *what), called in a signal handler (SIGALRM)
 *     dlb_deadline_begin(30, "the start of MPI");
 *     MPI_Init(...);
 *     dlb_deadline_end();
 *
 * One at a time in a process. Without words, or with 0 s, nothing happens. */
#ifndef DLB_UTIL_DEADLINE_H
#define DLB_UTIL_DEADLINE_H
void dlb_deadline_words(void (*expired)(const char *what));
void dlb_deadline_begin(double s, const char *what);	/* borrows what until the end */
void dlb_deadline_end(void);
#endif
