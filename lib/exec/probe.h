/* Measures the peak rates of devices and the links between nodes.
 *
 * Alone (comm NULL or of size 1) the cluster is this host as hwloc reports it, with one node for every
 * `threads` cores; the device's peak is measured. Under mpirun or srun every rank is a node on its host; all
 * ranks call, and all get the cluster. Link classes: "shm" between ranks of one host, "rack" between
 * hosts. */
#ifndef DLB_EXEC_PROBE_H
#define DLB_EXEC_PROBE_H
#include "cluster/cluster.h"
#include "comm/comm.h"
#include "tensor/backend.h"

int dlb_cluster_probe(struct dlb_comm *comm, int threads, struct dlb_cluster *out, struct dlb_error *err);
/* FLOP/s of a large product and bytes/s of a large copy (read and written bytes both count), the best of a
 * few tries. Takes about 0.3 s. */
int dlb_device_probe(struct dlb_backend *be, double *peak_flops, double *bandwidth_Bps,
		     struct dlb_error *err);
#endif
