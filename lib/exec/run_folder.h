/* A folder for the files that live as long as a run: the parent's, mpiexec's, and the numbers of the jobs
 * whose shared memory Open MPI keeps under names of its own. The files of a killed run are removed by the
 * next run.
 *
 *     TMPDIR/dlb-run.k3JxQa/lock       locked (flock) by the parent and mpiexec as long as either lives; holds the host's name
 *     TMPDIR/dlb-run.k3JxQa/launcher   the process numbers of mpiexec, whose files are in TMPDIR/ompi.HOST.UID/pid.NUMBER
 *     TMPDIR/dlb-run.k3JxQa/jobs       for each rank the number of its job, in /dev/shm/vader_segment.HOST.UID.JOB.RANK
 *
 * A folder of the same user and host whose lock is free belongs to a dead run, and so do those files. */
#ifndef DLB_EXEC_RUN_FOLDER_H
#define DLB_EXEC_RUN_FOLDER_H
#include "util/error.h"

/* The folder in which runs make theirs: TMPDIR; else a file system in memory with enough room; else /tmp. */
const char *dlb_run_folder_parent(void);
/* Removes the tool's folders of dead runs from there, and makes a folder. Returns its path (new); *lock: the
 * lock, inherited over exec. NULL with err. */
char *dlb_run_folder_new(const char *tool, int *lock, struct dlb_error *err);
/* Removes the folder with its files and the shared memory of its jobs. Frees `folder`. */
void dlb_run_folder_free(char *folder, int lock);
/* Called in the process that becomes mpiexec; notes its process id. */
void dlb_run_folder_record_launcher(const char *folder);
/* mpiexec's number of the job that this rank belongs to; 0: not known. */
unsigned long dlb_run_folder_job(void);
/* Removes the shared memory of a job whose ranks have ended, and the files of its daemon on this host,
 * jf.FAMILY beside mpiexec's own (FAMILY: the upper bits of the job's number). */
void dlb_run_folder_remove_job(unsigned long job);
/* Called in a rank before MPI starts; notes the job that it belongs to. */
void dlb_run_folder_record_job(const char *folder);
#endif
