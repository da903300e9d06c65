/* A plain C function as a kernel. */
#include <stdlib.h>

#include "tensor/cpu/cpu.h"

struct host_kernel {
	struct dlb_kernel k;
	dlb_host_fn fn;
	void *ctx;
};

static void host_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct host_kernel *h = (struct host_kernel *)k;

	h->fn(h->ctx, r);
}

static void host_free(struct dlb_kernel *k)
{
	free(((struct host_kernel *)k)->ctx);
	free(k);
}

int dlb_cpu_host(struct dlb_backend *b, dlb_host_fn fn, const void *ctx, size_t ctx_bytes,
		 size_t scratch_bytes, struct dlb_kernel **k, struct dlb_error *err)
{
	struct host_kernel *h = dlb_xcalloc(1, sizeof *h);

	(void)b;
	(void)err;
	h->fn = fn;
	h->ctx = dlb_xmalloc(ctx_bytes ? ctx_bytes : 1);
	if (ctx_bytes)
		memcpy(h->ctx, ctx, ctx_bytes);
	h->k = (struct dlb_kernel){
		.run = host_run, .free = host_free, .scratch_bytes = scratch_bytes, .impl = "loop"
	};
	*k = &h->k;
	return 0;
}
