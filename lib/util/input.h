/* Reads input files without blocking for ever and without exceeding the memory.
 *
 * Data, models and weights must be regular files. Anything else (FIFO, socket, device) is refused at once: it
 * may block, or never end. Text that is read whole (documents, other tools' files) may also come from a pipe,
 * up to the limit --max-document, which applies to the whole process, like a limit of setrlimit. */
#ifndef DLB_UTIL_INPUT_H
#define DLB_UTIL_INPUT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

/* Opens a regular file, following links. Returns its descriptor; -1 with err. */
int dlb_input_open(const char *path, uint64_t *bytes, struct dlb_error *err);
/* Reads n bytes from offset `at` of an open file. Returns 0; -1 with errno (0: the file
 * ends before). *done: bytes read. */
int dlb_input_get(int fd, uint64_t at, void *dst, size_t n, size_t *done);
/* Reads a whole regular file, if it fits the memory: *data is new, with a zero byte at its end. */
int dlb_input_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err);

/* Reads a whole file, pipe or (path NULL) standard input, up to the limit: *text is new, with a zero byte
 * at its end. begins: the required first character after blanks, so that other input is refused early; 0:
 * any. */
int dlb_input_read_text(const char *path, char begins, char **text, size_t *n, struct dlb_error *err);
#define DLB_INPUT_MAX_TEXT (UINT64_C(1) << 30)		/* the default limit */
void dlb_input_set_max_text(uint64_t bytes);
#endif
