/* A result that is the same at each run. */
#include "tensor/cpu/cpu.h"

struct constant_kernel { struct dlb_kernel k; size_t bytes; char data[]; };

static void constant_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct constant_kernel *c = (const struct constant_kernel *)k;

	if (c->bytes)
		memcpy(r->out[0], c->data, c->bytes);
}

int dlb_cpu_constant(struct dlb_backend *b, const void *data, size_t bytes, struct dlb_kernel **k,
		     struct dlb_error *err)
{
	struct constant_kernel *c = dlb_xcalloc(1, sizeof *c + bytes);

	(void)b, (void)err;
	c->bytes = bytes;
	if (bytes)
		memcpy(c->data, data, bytes);
	c->k = (struct dlb_kernel){
		.run = constant_run, .free = dlb_cpu_kernel_free, .packed_bytes = bytes, .impl = "loop"
	};
	*k = &c->k;
	return 0;
}
