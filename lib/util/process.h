/* Other processes of this system, as /proc tells of them. */
#ifndef DLB_UTIL_PROCESS_H
#define DLB_UTIL_PROCESS_H
#include <stdbool.h>
#include <sys/types.h>

/* Its state as ps shows it: R running, S sleeping, T stopped, Z dead and not yet waited for; 0: there is none such. */
char dlb_process_state(pid_t pid);
bool dlb_process_has_stopped(pid_t pid);	/* among its descendants */
/* From now on descendants of this process whose parent dies become its children, so that none can get away. */
void dlb_process_adopt(void);
/* Sends sig to every living descendant of pid, but for pid itself. Returns how many there were. */
int dlb_process_signal_descendants(pid_t pid, int sig);
#endif
