/* Files mapped into memory, read-only.
 *
 * Another program may cut a file short while it is mapped. A read behind the file's new end would then kill
 * this process with SIGBUS. The signal's handler of this module puts zeros there instead, and
 * dlb_mapped_check reports the loss afterwards. So a reader of a mapped file calls dlb_mapped_check before it
 * relies on the values that it read. A read error of the disk arrives as the same signal. */
#ifndef DLB_UTIL_MAPPED_H
#define DLB_UTIL_MAPPED_H
#include <stddef.h>
#include "util/error.h"

/* Maps the first `bytes` (at least 1) of an open file; path is for messages. NULL with errno. */
void *dlb_mapped_new(int fd, size_t bytes, const char *path);
void dlb_mapped_free(void *p, size_t bytes);		/* accepts NULL */
/* -1 with err: a file became shorter while it was mapped, or could not be read. */
int dlb_mapped_check(struct dlb_error *err);
#endif
