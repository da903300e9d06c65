/* The folder of a host for copies of the nodes' state (buddy.h): files in memory that outlive the ranks.
 *
 *     /dev/shm/dlb-copies.6f2d...c1.HOST/lock           locked (shared flock) by the run's parent and by ranks
 *                                        START-R-S.head, .part, .kept    slot S of rank R; START: of these ranks
 *                                        step-N/        made to go on from them, as a checkpoint of step N
 *
 * Ranks and parent of a run find it by the run's number, and the host's name tells pretended hosts apart.
 * The run removes it at its end. A folder whose lock is free is of a dead run: the next run with copies
 * removes it, at once where its parent was on this host, else after 10 minutes, since ranks may be started
 * again. */
#ifndef DLB_EXEC_COPIES_H
#define DLB_EXEC_COPIES_H
#include <stdbool.h>
#include <stdint.h>
#include "util/error.h"

enum { DLB_COPIES_NAME = 48, DLB_COPIES_PATH = 400 };
/* A new run's name. -1 with err. */
int dlb_copies_name(char name[DLB_COPIES_NAME], struct dlb_error *err);
/* This host's folder of that run. */
void dlb_copies_path(const char *name, char path[DLB_COPIES_PATH]);
/* Makes the folder if it is not there, and locks it; parent: of the run, first removes folders of dead runs.
 * Returns the lock, for close; -1 with err. */
int dlb_copies_open(const char *name, bool parent, struct dlb_error *err);
/* Removes the files that do not begin with `keep`; NULL: all, and the folder. */
void dlb_copies_remove(const char *name, const char *keep);
#endif
