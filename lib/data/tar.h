/* Members of tar files. */
#ifndef DLB_DATA_TAR_H
#define DLB_DATA_TAR_H
#include <stdbool.h>
#include <stdint.h>
#include "data/file.h"

/* Visits the members of a tar file (ustar, pax, GNU long names) in order: regular files, and links and sparse
 * files with `link` set. The callback returns -1 with err to stop. */
struct dlb_tar_member { const char *name; uint64_t header, at, size; bool link; };
int dlb_tar_walk(const struct dlb_data_file *f,
		 int (*visit)(void *ctx, const struct dlb_tar_member *m, struct dlb_error *err), void *ctx,
		 struct dlb_error *err);
#endif
