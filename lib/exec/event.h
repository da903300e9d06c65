/* --on-event: a command of the user is told what happens to a run, in environment variables:
 *
 *     DLB_EVENT    lost: a node is lost; resumed: training goes on without it
 *     DLB_NODE     its number
 *     DLB_STEP     steps done, counted from the first start
 *     DLB_MESSAGE  one line
 *
 * `sh -c COMMAND` runs in a session of its own, beside training, with standard output joined to standard error
 * and without standard input. One runs at a time, in the order of the events. The first one that fails is
 * said. Linux: posix_spawn with a new session. */
#ifndef DLB_EXEC_EVENT_H
#define DLB_EXEC_EVENT_H
#include <stdint.h>
#include <sys/types.h>

struct dlb_events;
/* Borrows both. command NULL: returns NULL, with which the other functions do nothing. */
struct dlb_events *dlb_events_new(const char *tool, const char *command);
/* Starts the command, or queues the event while another command runs. */
void dlb_events_happened(struct dlb_events *e, const char *event, int node, int64_t step, const char *message);
/* Looks whether the command has ended, and starts the next one. */
void dlb_events_poll(struct dlb_events *e);
/* The running command, for those who end all other processes; 0: none. */
pid_t dlb_events_process(const struct dlb_events *e);
/* A caller of waitpid(-1) hands on what it got. */
void dlb_events_reaped(struct dlb_events *e, pid_t pid, int status);
/* Waits for all commands, at most wait_s seconds for each; then ends it and says so. */
void dlb_events_free(struct dlb_events *e, double wait_s);
#endif
