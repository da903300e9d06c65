/* A result that is the same at each run, kept in device memory. */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "util/mem.h"

struct constant_kernel { struct dlb_kernel k; struct dlb_backend *b; size_t bytes; void *data; };

static void constant_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct constant_kernel *c = (const struct constant_kernel *)k;
	struct cuda *device = cuda_of(c->b);

	if (c->bytes)
		dlb_cuda_note(device, "cudaMemcpyAsync",
			      cudaMemcpyAsync(r->out[0], c->data, c->bytes, cudaMemcpyDeviceToDevice,
					      device->stream));
}

static void constant_free(struct dlb_kernel *k)
{
	struct constant_kernel *c = (struct constant_kernel *)k;

	dlb_cuda_free(c->b, c->data);
	free(c);
}

int dlb_cuda_constant(struct dlb_backend *b, const void *data, size_t bytes, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	struct constant_kernel *c;
	void *p = dlb_cuda_alloc(b, bytes);

	if (!p)
		return dlb_fail(err, NULL, "no memory for a constant of %zu bytes on this device", bytes);
	dlb_cuda_upload(b, p, data, bytes);
	c = dlb_xcalloc(1, sizeof *c);
	*c = (struct constant_kernel){ .k = { .run = constant_run,
					      .free = constant_free,
					      .packed_bytes = bytes,
					      .impl = "cuda" },
				       .b = b,
				       .bytes = bytes,
				       .data = p };
	*k = &c->k;
	return 0;
}
