/* Whole files in memory, and files written so that a reader sees the old one or the new one, never half:
 * written aside in the same folder, fsynced, renamed, the folder fsynced. */
#ifndef DLB_MODEL_FILE_H
#define DLB_MODEL_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "util/error.h"

struct dlb_file { void *data; size_t n; bool mapped; };
/* Maps a regular file, reads anything else (a pipe) to its end. An empty file is an error. */
int dlb_file_open(const char *path, struct dlb_file *f, struct dlb_error *err);
void dlb_file_close(struct dlb_file *f);

/* A file being written: put to `f`, then _commit (which may fail, and then leaves nothing) or _abort. */
struct dlb_aside { FILE *f; char *path, *aside; };
int dlb_aside_open(struct dlb_aside *a, const char *path, struct dlb_error *err);
int dlb_aside_commit(struct dlb_aside *a, struct dlb_error *err);
void dlb_aside_abort(struct dlb_aside *a);
#endif
