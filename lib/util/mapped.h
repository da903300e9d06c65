/* Files mapped into memory, read-only.
 *
 * Another program may cut a file short while it is mapped. A read behind its new end would then kill this
 * process with SIGBUS. Here such a read finds zeros, in memory put there by the handler of the signal, and
 * dlb_mapped_check tells of it afterwards. So a reader that has taken values from a mapped file calls
 * dlb_mapped_check before it relies on them. A read error of the disk arrives as the same signal. */
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
