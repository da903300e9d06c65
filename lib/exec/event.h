/* --on-event: runs a command of the user when a run loses a node or resumes. Environment variables describe
 * the event:
 *
 *     DLB_EVENT    lost: a node is lost; resumed: training continues after the loss
 *     DLB_NODE     number of the lost node
 *     DLB_STEP     steps done, counted from the first start
 *     DLB_MESSAGE  a description in one line
 *
 * `sh -c COMMAND` runs in its own session, concurrently with training, with standard output redirected to
 * standard error and without standard input. Commands run one at a time, in the order of the events. Only the
 * first failure is reported. Linux: posix_spawn with a new session. */
#ifndef DLB_EXEC_EVENT_H
#define DLB_EXEC_EVENT_H
#include <stdint.h>
#include <sys/types.h>

struct dlb_events;
/* Borrows tool and command. command NULL: returns NULL, for which the other functions do nothing. */
struct dlb_events *dlb_events_new(const char *tool, const char *command);
/* Starts the command, or queues the event while another command runs. */
void dlb_events_happened(struct dlb_events *e, const char *event, int node, int64_t step, const char *message);
/* If the running command has ended, starts the next one. */
void dlb_events_poll(struct dlb_events *e);
/* Process number of the running command, for callers that end all other processes; 0: none. */
pid_t dlb_events_process(const struct dlb_events *e);
/* A caller of waitpid(-1) passes its result on, in case the process is the command. */
void dlb_events_reaped(struct dlb_events *e, pid_t pid, int status);
/* Waits for all commands, at most wait_s seconds for each; a command that takes longer is killed, with a
 * message. */
void dlb_events_free(struct dlb_events *e, double wait_s);
#endif
