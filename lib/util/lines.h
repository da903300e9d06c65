/* Writes the lines of a log in a thread, so that the caller does not wait for the disk.
 *
 *     l = dlb_lines_new(fd, path);
 *     dlb_lines_put(l, "0.52\n", 5);				for each line
 *     if (dlb_lines_failed(l, &err)) ...			a full disk is reported soon after
 *     if (dlb_lines_drain(l, &err)) ...			all are written, though not synced
 *     dlb_lines_free(l, 30);
 *
 * After a failed write a regular file is cut back to whole lines. Call all functions from one thread. If no
 * thread can be started, lines are written at once. */
#ifndef DLB_UTIL_LINES_H
#define DLB_UTIL_LINES_H
#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"

struct dlb_lines;
/* Writes from the position of fd. Duplicates fd: the caller may close its own at any time. path: for
 * messages; copied. */
struct dlb_lines *dlb_lines_new(int fd, const char *path);
/* text: n bytes of whole lines, copied. At most 64 MiB may wait for the disk; more is an error, like a full
 * disk. */
void dlb_lines_put(struct dlb_lines *l, const char *text, size_t n);
/* 0: no write has failed so far, or l is NULL; else -1 with err (may be NULL). Lines put after an error are
 * dropped. */
int dlb_lines_failed(struct dlb_lines *l, struct dlb_error *err);
/* Waits, without limit, until all lines are written. Returns the same as dlb_lines_failed. */
int dlb_lines_drain(struct dlb_lines *l, struct dlb_error *err);
/* Waits at most wait_s seconds (rounded up to the next whole second) until all lines are written; lines that
 * still wait then may be lost. l NULL: does nothing. */
void dlb_lines_free(struct dlb_lines *l, double wait_s);
#endif
