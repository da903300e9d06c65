/* Keeps a core from entering sleep states. A sleeping core wakes slowly, above all in a virtual machine,
 * whose host must schedule it again. Measured on one of two cores: a sleep ends 0.1 ms late, 0.025 ms on a
 * core kept awake; a message that wakes its reader takes 10 to 15 us, 3.4 us on a core kept awake. */
#ifndef DLB_UTIL_AWAKE_H
#define DLB_UTIL_AWAKE_H
#include <stdbool.h>
struct dlb_awake;
/* Starts a process that can be bound to a core and spins there at the lowest priority (SCHED_IDLE). Any other
 * process of its session or control group takes the core from it; processes of other sessions share the core
 * with it if the system schedules by session (sched_autogroup_enabled). It is a process, not a thread: a
 * killed process keeps its memory and files until its last thread ends, and a thread of this priority can
 * take seconds to end on a busy core. Start it early: it inherits the caller's memory map. It dies with the
 * caller's thread. NULL: it cannot start, or its time would count against a CPU quota of this process's
 * control group. The caller owns it. */
struct dlb_awake *dlb_awake_new(void);
/* Binds it to the nth (from 0) core that this process may run on; call this once.
 * False: no such core, or a is NULL. */
bool dlb_awake_keep(struct dlb_awake *a, int nth);
void dlb_awake_free(struct dlb_awake *a);	/* a may be NULL */
#endif
