/* Files that a tool writes under a name that its user gave: a reader sees the old file or the whole new one, and whatever
 * else has that name is not lost.
 *
 *     struct dlb_output o;
 *     if (dlb_output_open(&o, path, err)) return -1;
 *     fprintf(o.f, ...);
 *     return dlb_output_commit(&o, err);
 *
 * A regular file, or none, gets its content under a temporary name in its folder (unpredictable, made with O_EXCL) and is
 * replaced by rename; the new one has its mode. A symbolic link is followed to its file, which is replaced there. A character
 * device is written to. A folder, FIFO, socket, block device or dangling link is refused.
 *
 * A log is put in place before it is complete, so that others can read along:
 *
 *     if (dlb_output_open(&o, path, err) || dlb_output_keep_lines(&o, n, err) || dlb_output_place(&o, err)) ...
 *     fprintf(o.f, "%.17g\n", loss); if (dlb_output_flush(&o, err)) ...		once a line
 *     dlb_output_commit(&o, err); */
#ifndef DLB_UTIL_OUTPUT_H
#define DLB_UTIL_OUTPUT_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "util/error.h"

struct dlb_output {
	FILE *f;			/* to write to; its errors are found by _flush and _commit */
	char *path;			/* as the user gave it */
	char *name, *aside;		/* in the folder: the file, and the temporary one; NULL: f is a device */
	int folder;
	bool placed;			/* renamed already */
};

/* Finds out whether `path` can be written, and leaves it as it is: for tools that write hours later. */
int dlb_output_check(const char *path, struct dlb_error *err);
int dlb_output_open(struct dlb_output *o, const char *path, struct dlb_error *err);
/* Begins with the first n lines of the file that has the name now; with all of it, when it has fewer. */
int dlb_output_keep_lines(struct dlb_output *o, int64_t n, struct dlb_error *err);
/* Renames it into place now; what is written after that is seen as it comes. */
int dlb_output_place(struct dlb_output *o, struct dlb_error *err);
int dlb_output_flush(struct dlb_output *o, struct dlb_error *err);
/* Synced, renamed, closed. Where it fails, the old file is there still (unless _place has been called). */
int dlb_output_commit(struct dlb_output *o, struct dlb_error *err);
/* Closes and removes what has not been put in place. Accepts zeroed and committed. */
void dlb_output_abort(struct dlb_output *o);
/* Whether a file of that name in a folder is a temporary one, left by a process that was killed. */
bool dlb_output_is_aside(const char *name);
/* 64 bits that nobody can foresee, for other temporary names; false: the system has none. */
bool dlb_output_number(uint64_t *number);
#endif
