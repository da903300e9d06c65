/* The table of back ends. Only this file depends on which are built. */
#include <string.h>

#include "tensor/backend.h"
#include "tensor/cpu/cpu.h"

const struct dlb_backend_ops *const dlb_backends[] = {
	&dlb_cpu_ops,			/* when opened, uses the best level of the processor */
	NULL,
};

const struct dlb_backend_ops *dlb_backend_find(const char *name)
{
	for (int i = 0; dlb_backends[i]; i++)
		if (!strcmp(dlb_backends[i]->name, name))
			return dlb_backends[i];
	return NULL;
}
