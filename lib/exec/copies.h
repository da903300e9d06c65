/* The folder of a host for copies of the nodes' state (buddy.h): files in memory that outlive the ranks.
 *
 *     /dev/shm/dlb-copies.6f2d...c1.HOST/    the folder, with these members:
 *         lock                               locked (shared flock) by the run's parent and its ranks
 *         START-R-S.head, .part, .kept       slot S of rank R; START: the number of a start of the ranks
 *         step-N/                            a checkpoint of step N, made from slots when the run continues
 *
 * Ranks and parent of a run find the folder by the run's number. The host's name in it keeps pretended hosts
 * apart. The run removes the folder at its end. If the lock is free, the folder belongs to a dead run, and
 * the next run with copies removes it: at once if the dead run's parent was on this host, else after 10
 * minutes, since ranks may be started again. */
#ifndef DLB_EXEC_COPIES_H
#define DLB_EXEC_COPIES_H
#include <stdbool.h>
#include <stdint.h>
#include "util/error.h"

enum { DLB_COPIES_NAME = 48, DLB_COPIES_PATH = 400 };
/* Chooses the name of a new run's folders. -1 with err. */
int dlb_copies_name(char name[DLB_COPIES_NAME], struct dlb_error *err);
/* This host's folder of that run. */
void dlb_copies_path(const char *name, char path[DLB_COPIES_PATH]);
/* Makes the folder if it does not exist, and locks it. parent: the caller is the run's parent; folders of
 * dead runs are first removed. Returns the lock's descriptor, which the caller closes; -1 with err. */
int dlb_copies_open(const char *name, bool parent, struct dlb_error *err);
/* Removes the files whose names do not begin with `keep`, but not the lock; NULL: all files and the
 * folder. */
void dlb_copies_remove(const char *name, const char *keep);
#endif
