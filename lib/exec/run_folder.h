/* A folder for the files that live as long as a run: the parent's own, mpiexec's, and a note of the jobs whose shared memory
 * Open MPI keeps under names of its own. What a run leaves behind that is killed, the next one removes.
 *
 *     TMPDIR/dlb-run.k3JxQa/lock       locked (flock) by the parent and mpiexec as long as either lives; holds the host's name
 *     TMPDIR/dlb-run.k3JxQa/launcher   the process number of mpiexec, whose files are in TMPDIR/ompi.HOST.UID/pid.NUMBER
 *     TMPDIR/dlb-run.k3JxQa/jobs       for each rank the number of its job, in /dev/shm/vader_segment.HOST.UID.JOB.RANK
 *
 * So a folder whose lock is free, of the same user and host, is nobody's, and neither are those files. */
#ifndef DLB_EXEC_RUN_FOLDER_H
#define DLB_EXEC_RUN_FOLDER_H
#include "util/error.h"

/* TMPDIR; memory, where it has room; /tmp. */
const char *dlb_run_folder_parent(void);
/* Removes what dead runs of the tool have left in the place, and makes a folder there. Returns new; the lock in *lock, which
 * is inherited over exec. NULL with err. */
char *dlb_run_folder_new(const char *tool, int *lock, struct dlb_error *err);
/* Removes the folder, what is in it, and the shared memory of its jobs. Takes folder. */
void dlb_run_folder_free(char *folder, int lock);
/* mpiexec to be: notes its own number. */
void dlb_run_folder_record_launcher(const char *folder);
/* A rank: notes the job that it belongs to, before MPI starts. */
void dlb_run_folder_record_job(const char *folder);
#endif
