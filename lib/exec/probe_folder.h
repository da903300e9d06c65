/* Measures a folder as a memory for offloaded tensors (plan/offload.h). */
#ifndef DLB_EXEC_PROBE_FOLDER_H
#define DLB_EXEC_PROBE_FOLDER_H
#include "cluster/cluster.h"

/* Adds a memory of class file for each NAME=FOLDER to the only host of c: its free bytes; the bandwidth of
 * writing a file to the disk and reading it back without the system's cached pages; the latency of a small
 * read. -1 with err. */
int dlb_cluster_add_folders(struct dlb_cluster *c, const char *const *name_folder, int n,
			    struct dlb_error *err);
#endif
