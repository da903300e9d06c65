/* Information on other processes, from /proc. */
#ifndef DLB_UTIL_PROCESS_H
#define DLB_UTIL_PROCESS_H
#include <stdbool.h>
#include <sys/types.h>

/* State of a process as in ps: R running, S sleeping, T stopped, Z zombie; 0: no such process. */
char dlb_process_state(pid_t pid);
/* As above, for one thread. */
char dlb_thread_state(pid_t pid, pid_t tid);
bool dlb_process_has_stopped(pid_t pid);	/* any descendant of pid is stopped */
/* From now on, descendants whose parent dies become children of this process, so that none escapes. */
void dlb_process_adopt(void);
/* Sends sig to every living descendant of pid except `spared` (0: none) and its descendants. Returns the
 * number of processes that got it. */
int dlb_process_signal_descendants(pid_t pid, int sig, pid_t spared);
/* Bytes of this process's resident memory that no file backs: anonymous and shared memory (proc(5), RssAnon
 * and RssShmem of status). 0: unknown. */
double dlb_process_own_bytes(void);
/* Ends pid, a child, and all its descendants: SIGTERM first, SIGKILL for those that still live after wait_s
 * seconds. Reaps pid, unless a caller that waits for any child has already done so. */
void dlb_process_end(pid_t pid, double wait_s);
#endif
