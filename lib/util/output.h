/* Writes output files so that a reader sees either the old file or the complete new one, and nothing
 * else with that name is destroyed.
 *
 *     struct dlb_output o;
 *     if (dlb_output_open(&o, path, err)) return -1;
 *     fprintf(o.f, ...);
 *     return dlb_output_commit(&o, err);
 *
 * For a regular or new file, the content goes to a temporary file in the same folder (unpredictable
 * name, O_EXCL), which is then renamed; it gets the old file's mode. A symbolic link is followed,
 * and its file is replaced. A character device is written directly. A folder, FIFO, socket, block
 * device or dangling link is refused.
 *
 * A log is renamed before it is complete, so that others can read it as it grows:
 *
 *     if (dlb_output_open(&o, path, err) || dlb_output_keep_lines(&o, n, err) ||
 *         dlb_output_place(&o, err)) ...
 *     fprintf(o.f, "%.17g\n", loss); if (dlb_output_flush(&o, err)) ...		per line
 *     dlb_output_commit(&o, err);
 */
#ifndef DLB_UTIL_OUTPUT_H
#define DLB_UTIL_OUTPUT_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "util/error.h"

struct dlb_output {
	FILE *f;			/* write here; _flush and _commit report its errors */
	char *path;			/* as the user gave it */
	char *name, *aside;		/* names in the folder: file, temporary file; NULL: f is a device */
	int folder;
	bool placed;			/* already renamed */
};

/* Checks that `path` can be written, without changing it: for tools that write hours later. */
int dlb_output_check(const char *path, struct dlb_error *err);
int dlb_output_open(struct dlb_output *o, const char *path, struct dlb_error *err);
/* Starts with the first n lines of the existing file, or all its lines if it has fewer. */
int dlb_output_keep_lines(struct dlb_output *o, int64_t n, struct dlb_error *err);
/* Renames the file now; readers see later writes as they come. */
int dlb_output_place(struct dlb_output *o, struct dlb_error *err);
int dlb_output_flush(struct dlb_output *o, struct dlb_error *err);
/* Syncs, renames and closes. If it fails, the old file is unchanged (unless _place was called). */
int dlb_output_commit(struct dlb_output *o, struct dlb_error *err);
/* Closes, and removes a temporary file. Accepts zeroed and committed outputs. */
void dlb_output_abort(struct dlb_output *o);
/* True if a file name is that of a temporary file, left by a killed process. */
bool dlb_output_is_aside(const char *name);
/* 64 unpredictable bits, for other temporary names; false: the system has no source of them. */
bool dlb_output_number(uint64_t *number);
#endif
