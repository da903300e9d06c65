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
/* FLOP/s of a large product of f32 and bytes/s of a large copy (read and written bytes both count), the best of a
 * few tries, by the device's clock if it has one. Takes about 0.3 s. probe_device.c */
int dlb_device_probe(struct dlb_backend *be, double *peak_flops, double *bandwidth_Bps,
		     struct dlb_error *err);
/* peak_bf16_flops 0: the device has no bf16 products. memory_bytes: the free bytes. link: between host memory
 * and the device, the slower direction. */
struct dlb_device_rates {
	double peak_flops, peak_bf16_flops, bandwidth_Bps, launch_s, memory_bytes, link_latency_s, link_Bps;
	char device[200];
};
/* Adds a node for every device of a back end with memory of its own on this host, each behind a link of class "pcie",
 * all measured. The kind has the rates of the first device; a node with another speed stores it. A core
 * drives each device, so the cluster loses as many CPU nodes, but keeps at least one if it had any. -1 with
 * err. */
int dlb_cluster_add_devices(struct dlb_cluster *c, const char *backend, struct dlb_error *err);
#endif
