/* Functions for kernels of any back end. Apart from backends.c, so that planning tools do not
 * link the back ends' libraries. */
#include "tensor/backend.h"

void dlb_kernel_free(struct dlb_kernel *k)
{
	if (k)
		k->free(k);
}
