/* Measuring where we are: what a device can do at best, and what the links between nodes take.
 *
 * Alone (comm NULL or of size 1) the cluster is this host as hwloc sees it, one node for every `threads`
 * cores, with the device's peak measured. Under mpirun or srun every rank is a node on the host it runs on;
 * all ranks call, all get the cluster. Link classes: "shm" between ranks of one host, "rack" between hosts. */
#ifndef DLB_EXEC_PROBE_H
#define DLB_EXEC_PROBE_H
#include "cluster/cluster.h"
#include "comm/comm.h"
#include "tensor/backend.h"

int dlb_cluster_probe(struct dlb_comm *comm, int threads, struct dlb_cluster *out, struct dlb_error *err);
/* FLOP/s of a large product and bytes/s of a large copy (read and written bytes both count), the best of a
 * few tries; about 0.3 s. */
int dlb_device_probe(struct dlb_backend *be, double *peak_flops, double *bandwidth_Bps, struct dlb_error *err);
#endif
