/* A time limit for calls that may block for ever and have no time-out (MPI_Init, MPI_Finalize). When it has
 * passed, a function of the tool is called, which prints a message and ends the process.
 *
 *     dlb_deadline_words(hung);            once: void hung(const char *what), called in SIGALRM's handler
 *     dlb_deadline_begin(30, "the start of MPI");
 *     MPI_Init(...);
 *     dlb_deadline_end();
 *
 * One limit at a time per process. Without such a function, or with 0 s, there is no limit. */
#ifndef DLB_UTIL_DEADLINE_H
#define DLB_UTIL_DEADLINE_H
void dlb_deadline_words(void (*expired)(const char *what));
void dlb_deadline_begin(double s, const char *what);	/* `what` must live until the end */
void dlb_deadline_end(void);
#endif
