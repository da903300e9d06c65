/* Files that a tool reads: nothing is waited for for ever, and no file makes a tool take more memory than it has.
 *
 * Data, models and weights are regular files. What is not (a FIFO, a socket, a device) is refused at once: it may be silent,
 * or endless. Text that is read whole (documents and other tools' files) may come from a pipe too; it has a limit, that of
 * --max-document, which is one of the process, like those of setrlimit. */
#ifndef DLB_UTIL_INPUT_H
#define DLB_UTIL_INPUT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

/* Opens a regular file, links followed: its descriptor, or -1. */
int dlb_input_open(const char *path, uint64_t *bytes, struct dlb_error *err);
/* n bytes of an open file from offset `at`: 0, or -1 with errno (0: the file ends before). *done: those read. */
int dlb_input_get(int fd, uint64_t at, void *dst, size_t n, size_t *done);
/* All of a regular file that is no larger than the memory: returns new, with a zero byte after it. */
int dlb_input_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err);

/* All of a file, pipe or, path NULL, standard input, up to the limit: returns new, with a zero byte after it. begins: the first
 * character other than blank, so that what is something else ends at once; 0: any. */
int dlb_input_read_text(const char *path, char begins, char **text, size_t *n, struct dlb_error *err);
#define DLB_INPUT_MAX_TEXT (UINT64_C(1) << 30)		/* the limit unless told otherwise */
void dlb_input_set_max_text(uint64_t bytes);

/* What this process may have of memory: the machine's, less where it or its control group has a limit. */
double dlb_memory_bytes(void);
#endif
