/* Whole files mapped into memory (util/mapped.h). */
#ifndef DLB_MODEL_FILE_H
#define DLB_MODEL_FILE_H
#include <stddef.h>
#include "util/error.h"

struct dlb_file { void *data; size_t n; };
/* Maps a regular file. -1 with err: it is empty, not regular, or cannot be read. */
int dlb_file_open(const char *path, struct dlb_file *f, struct dlb_error *err);
void dlb_file_close(struct dlb_file *f);
#endif
