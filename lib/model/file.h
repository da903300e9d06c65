/* Whole files in memory. */
#ifndef DLB_MODEL_FILE_H
#define DLB_MODEL_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"

struct dlb_file { void *data; size_t n; bool mapped; };
/* Maps a regular file, reads anything else (a pipe) to its end. An empty file is an error. */
int dlb_file_open(const char *path, struct dlb_file *f, struct dlb_error *err);
void dlb_file_close(struct dlb_file *f);
#endif
