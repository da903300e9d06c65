/* Arrays of a back end's memory, for work in host memory: those of a device are copied to the host, and back
 * when the work is done. */
#ifndef DLB_EXEC_HOST_VALUES_H
#define DLB_EXEC_HOST_VALUES_H
#include <stddef.h>
#include "tensor/backend.h"
#include "util/mem.h"

struct dlb_host_values {
	struct dlb_backend *be;
	struct dlb_arena arena;
	struct dlb_host_value {
		void *device, *host;
		size_t bytes;
	} * list;
	int n, cap;
};

/* The array of `bytes` bytes at p: p itself if the back end computes in host memory, else a copy, which lives
 * until dlb_host_values_release. The copy is complete after dlb_host_values_get. */
void *dlb_host_value(struct dlb_host_values *h, void *p, size_t bytes);
/* Waits for the copies to the host, or from it. -1 with err: the device failed. */
int dlb_host_values_get(struct dlb_host_values *h, struct dlb_error *err);
int dlb_host_values_put(struct dlb_host_values *h, struct dlb_error *err);
void dlb_host_values_release(struct dlb_host_values *h);
#endif
