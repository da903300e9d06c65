/* Functions for kernels of any back end. Apart from backends.c, so that planning tools do not
 * link the back ends' libraries. */
#include "tensor/backend.h"

void dlb_kernel_free(struct dlb_kernel *k)
{
	if (k)
		k->free(k);
}

void dlb_kernel_keep(struct dlb_kernel *k, const struct dlb_kernel *part)
{
	for (int i = 0; i < DLB_N_LIBRARIES; i++)
		if (part->library_bytes[i] > k->library_bytes[i])
			k->library_bytes[i] = part->library_bytes[i];
	k->code_bytes += part->code_bytes;
}

void dlb_kernel_renew(struct dlb_kernel *k, const struct dlb_run *r)
{
	if (k->renew)
		k->renew(k, r);
}

void dlb_kernel_count(struct dlb_kernel *k, const struct dlb_run *r)
{
	if (k->count)
		k->count(k, r);
}
