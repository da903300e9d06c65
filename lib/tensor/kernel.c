/* Functions for kernels of any back end. Apart from backends.c, so that planning tools do not
 * link the back ends' libraries. */
#include "tensor/backend.h"

void dlb_kernel_free(struct dlb_kernel *k)
{
	if (k)
		k->free(k);
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
