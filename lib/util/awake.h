/* Keeps a core from falling asleep. One that does takes long to wake, above all in a virtual machine, whose host must run it
 * again: measured on one of two cores, a sleep ends .1 ms late, .025 where the core was kept awake, and a message that wakes
 * its reader takes 10 to 15 us, there 3.4. */
#ifndef DLB_UTIL_AWAKE_H
#define DLB_UTIL_AWAKE_H
struct dlb_awake;
/* A thread that is bound to the nth (from 0) core that this process may run on and does nothing, at the lowest of all
 * priorities (SCHED_IDLE: anybody else of its session or control group who wants the core has it; other sessions share the
 * core with it as with anybody who is busy, where the system goes by sessions, sched_autogroup_enabled). NULL: there is no
 * such core, or the thread cannot be had, or what it takes would be taken off what this process may have (a quota of its
 * control group). Owned by the caller. */
struct dlb_awake *dlb_awake_new(int nth);
void dlb_awake_free(struct dlb_awake *a);	/* NULL too */
#endif
