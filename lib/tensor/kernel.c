/* Kernels, whichever back end made them. Apart from the table of back ends, so that a tool that only plans is
 * not linked with their libraries. */
#include "tensor/backend.h"

void dlb_kernel_free(struct dlb_kernel *k)
{
	if (k)
		k->free(k);
}
