/* Files that are read whole, or at any offset. */
#ifndef DLB_DATA_FILE_H
#define DLB_DATA_FILE_H
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

/* Loads a whole file: *data is new. */
int dlb_data_file_read(const char *path, unsigned char **data, size_t *n, struct dlb_error *err);
/* A file that is read at any offset. */
struct dlb_data_file { int fd; char *path; uint64_t size; };
int dlb_data_file_open(struct dlb_data_file *f, const char *path, struct dlb_error *err);
/* Reads n bytes from offset `at`; -1 with err, which names the offset, if the file ends before. */
int dlb_data_file_get(const struct dlb_data_file *f, uint64_t at, void *dst, size_t n, struct dlb_error *err);
void dlb_data_file_close(struct dlb_data_file *f);
#endif
