/* Keeps the newest content in a small file. A thread writes it, so that the caller does not wait for the
 * disk.
 *
 *     if (dlb_latest_new(&l, path, &err)) ...
 *     dlb_latest_put(l, text, n);			as often as wanted
 *     if (dlb_latest_failed(l, &err)) ...		the newest write failed
 *     if (dlb_latest_free(l, 5, &err)) ...
 *
 * Readers see one whole content or the next: a regular file is replaced by rename (util/output.h), a device
 * is written to. While the disk is busy, a newer content replaces one that waits. The file is not synced:
 * only programs that run now read it. Call all functions from one thread. */
#ifndef DLB_UTIL_LATEST_H
#define DLB_UTIL_LATEST_H
#include <stddef.h>
#include "util/error.h"

struct dlb_latest;
/* Checks that path can be written. -1 with err. */
int dlb_latest_new(struct dlb_latest **out, const char *path, struct dlb_error *err);
/* text: n bytes, copied. */
void dlb_latest_put(struct dlb_latest *l, const char *text, size_t n);
/* -1 with err (may be NULL) if the newest write failed; a later one may succeed again. */
int dlb_latest_failed(struct dlb_latest *l, struct dlb_error *err);
/* Waits at most wait_s seconds (rounded up to the next whole second) until the newest content is written. -1
 * with err (may be NULL) if it could not be written. l NULL: does nothing. */
int dlb_latest_free(struct dlb_latest *l, double wait_s, struct dlb_error *err);
#endif
