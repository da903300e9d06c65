/* Keeps a core from falling asleep. One that does takes long to wake, above all in a virtual machine, whose host must run it
 * again: measured on one of two cores, a sleep ends .1 ms late, .025 where the core was kept awake, and a message that wakes
 * its reader takes 10 to 15 us, there 3.4. */
#ifndef DLB_UTIL_AWAKE_H
#define DLB_UTIL_AWAKE_H
#include <stdbool.h>
struct dlb_awake;
/* A process that can be bound to a core and does nothing there, at the lowest of all priorities (SCHED_IDLE: anybody else of its
 * session or control group who wants the core has it; other sessions share the core with it as with anybody who is busy, where
 * the system goes by sessions, sched_autogroup_enabled). Not a thread: whoever is killed is gone only when its last thread is,
 * and a thread of this priority takes seconds to die where others want its core; all that while it would hold the memory and
 * files of the rest. It has what memory the caller has now, so it is to be started early; it dies with the caller's thread.
 * NULL: it cannot be had, or what it takes would be taken off what this process may have (a quota of its control group). Owned
 * by the caller. */
struct dlb_awake *dlb_awake_new(void);
/* From now on it keeps the nth (from 0) core that this process may run on; to be called once. False: there is no such core, or
 * a is NULL. */
bool dlb_awake_keep(struct dlb_awake *a, int nth);
void dlb_awake_free(struct dlb_awake *a);	/* NULL too */
#endif
