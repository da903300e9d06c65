/* Kernels composed of kernels, and the most common single ones. */
#include "op/op_util.h"

#include <assert.h>
#include <stdlib.h>
#include "util/mem.h"

enum { MAX_REFS = 8, TEMP = 1 << 25 };
struct chain_step {
	struct dlb_kernel *k;
	int in[MAX_REFS], out[MAX_REFS];
	int n_in, n_out;
};
struct dlb_chain {
	struct dlb_kernel kernel;
	struct dlb_backend *be;
	struct dlb_error *err;
	int rc;
	struct chain_step *step;
	size_t *temp;			/* offsets in the scratch memory */
	int n_steps, cap_steps, n_temps, cap_temps;
	size_t temp_bytes;
};

struct dlb_chain *dlb_chain_new(struct dlb_backend *be, struct dlb_error *err)
{
	struct dlb_chain *c = dlb_xcalloc(1, sizeof *c);

	c->be = be;
	c->err = err;
	return c;
}

int dlb_chain_temp(struct dlb_chain *c, const struct dlb_desc *d)
{
	DLB_GROW(c->temp, c->n_temps, c->cap_temps);
	c->temp[c->n_temps] = c->temp_bytes;
	c->temp_bytes += (dlb_desc_bytes(d) + 63) / 64 * 64;
	return TEMP + c->n_temps++;
}

void dlb_chain_fail(struct dlb_chain *c, int rc)
{
	if (!c->rc)
		c->rc = rc;
}

void dlb_chain_add(struct dlb_chain *c, int rc, struct dlb_kernel *k, const int *in, int n_in, const int *out,
		   int n_out)
{
	struct chain_step *s;

	if (rc || c->rc) {
		if (!rc)
			dlb_kernel_free(k);
		dlb_chain_fail(c, rc);
		return;
	}
	assert(n_in <= MAX_REFS && n_out <= MAX_REFS);
	DLB_GROW(c->step, c->n_steps, c->cap_steps);
	s = &c->step[c->n_steps++];
	*s = (struct chain_step){ .k = k, .n_in = n_in, .n_out = n_out };
	for (int i = 0; i < n_in; i++)
		s->in[i] = in[i];
	for (int i = 0; i < n_out; i++)
		s->out[i] = out[i];
}

int dlb_chain_constant(struct dlb_chain *c, const void *data, const struct dlb_desc *d)
{
	const int to = dlb_chain_temp(c, d);
	struct dlb_kernel *k = NULL;

	if (!c->rc) {
		const int rc = c->be->ops->constant(c->be, data, dlb_desc_bytes(d), &k, c->err);

		dlb_chain_add(c, rc, k, NULL, 0, &to, 1);
	}
	return to;
}

static struct dlb_map_desc map_desc(const struct dlb_map *m, const struct dlb_desc *out)
{
	return (struct dlb_map_desc){
		.fn = m->fn, .n_in = m->n_in, .out = *out, .alpha = m->alpha, .beta = m->beta
	};
}

void dlb_chain_map(struct dlb_chain *c, const struct dlb_map *m, const int *in,
		   const struct dlb_desc *const *d, int out, const struct dlb_desc *d_out)
{
	struct dlb_map_desc desc = map_desc(m, d_out);
	struct dlb_kernel *k = NULL;

	if (c->rc)
		return;
	for (int i = 0; i < m->n_in; i++)
		desc.in[i] = *d[i];
	int rc = c->be->ops->map(c->be, &desc, &k, c->err);
	dlb_chain_add(c, rc, k, in, m->n_in, &out, 1);
}

void dlb_chain_copy(struct dlb_chain *c, int in, int out, const struct dlb_desc *d)
{
	dlb_chain_cast(c, in, d, out, d);
}

void dlb_chain_cast(struct dlb_chain *c, int in, const struct dlb_desc *d_in, int out,
		    const struct dlb_desc *d_out)
{
	int64_t count = dlb_desc_count(d_in), one = 1;
	struct dlb_kernel *k = NULL;

	if (c->rc)
		return;
	int rc = dlb_kernel_strided(c->be,
				    &(struct dlb_strided){ .in = d_in, .out = d_out, .n_dims = 1,
							   .dim = &count, .in_stride = &one,
							   .out_stride = &one }, &k, c->err);
	dlb_chain_add(c, rc, k, &in, 1, &out, 1);
}

void dlb_chain_reduce(struct dlb_chain *c, enum dlb_reduce_fn fn, unsigned axes, int in,
		      const struct dlb_desc *d_in, int out, const struct dlb_desc *d_out)
{
	struct dlb_reduce_desc r = { .fn = fn, .in = *d_in, .out = *d_out, .axes = axes };
	struct dlb_kernel *k = NULL;

	if (c->rc)
		return;
	int rc = c->be->ops->reduce(c->be, &r, &k, c->err);
	dlb_chain_add(c, rc, k, &in, 1, &out, 1);
}

static void *resolve(const struct dlb_chain *c, const struct dlb_run *r, int ref)
{
	if (ref < 0)
		return NULL;
	if (ref >= TEMP)
		return r->scratch ? (char *)r->scratch + c->temp[ref - TEMP] :
				    NULL; /* NULL without scratch: the temporary has no elements */
	return ref >= DLB_OUT(0) ? r->out[ref - DLB_OUT(0)] : r->in[ref];
}

static void chain_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_chain *c = (const struct dlb_chain *)k;

	for (int i = 0; i < c->n_steps; i++) {
		const struct chain_step *s = &c->step[i];
		void *in[MAX_REFS], *out[MAX_REFS];
		struct dlb_run sub = *r;

		for (int j = 0; j < s->n_in; j++)
			in[j] = resolve(c, r, s->in[j]);
		for (int j = 0; j < s->n_out; j++)
			out[j] = resolve(c, r, s->out[j]);
		sub.in = in;
		sub.out = out;
		sub.scratch = r->scratch ? (char *)r->scratch + c->temp_bytes : NULL;
		s->k->run(s->k, &sub);
	}
}

/* Passes r to the kernels although its operands are the chain's: kernels that change with the step read only
 * the step's numbers. */
static void chain_renew(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_chain *c = (const struct dlb_chain *)k;

	for (int i = 0; i < c->n_steps; i++)
		dlb_kernel_renew(c->step[i].k, r);
}

static void chain_free(struct dlb_kernel *k)
{
	struct dlb_chain *c = (struct dlb_chain *)k;

	for (int i = 0; i < c->n_steps; i++)
		dlb_kernel_free(c->step[i].k);
	free(c->step);
	free(c->temp);
	free(c);
}

int dlb_chain_finish(struct dlb_chain *c, struct dlb_kernel **k)
{
	size_t most = 0;

	if (c->rc) {
		int rc = c->rc;

		chain_free(&c->kernel);
		return rc;
	}
	for (int i = 0; i < c->n_steps; i++) {
		most = c->step[i].k->scratch_bytes > most ? c->step[i].k->scratch_bytes : most;
		c->kernel.packed_bytes += c->step[i].k->packed_bytes;
		dlb_kernel_keep(&c->kernel, c->step[i].k);
		if (c->step[i].k->renew)
			c->kernel.renew = chain_renew;
	}
	c->kernel.run = chain_run;
	c->kernel.free = chain_free;
	c->kernel.scratch_bytes = c->temp_bytes + most;
	c->kernel.impl = c->n_steps == 1 ? c->step[0].k->impl : "chain";
	*k = &c->kernel;
	return 0;
}

/* -- single kernels -- */

int dlb_kernel_map(struct dlb_backend *be, const struct dlb_op_io *io, const struct dlb_map *m,
		   struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_map_desc d = map_desc(m, &io->out[0]);

	for (int i = 0; i < m->n_in; i++)
		d.in[i] = io->in[i];
	return be->ops->map(be, &d, k, err);
}

int dlb_kernel_strided(struct dlb_backend *be, const struct dlb_strided *s, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_copy_desc d = { .in = s->in->dtype,
				   .out = s->out->dtype,
				   .n_dims = s->n_dims,
				   .in_offset = s->in_offset,
				   .out_offset = s->out_offset,
				   .zero_first = s->zero_first,
				   .out_count = dlb_desc_count(s->out) };

	for (int i = 0; i < s->n_dims; i++) {
		d.dim[i] = s->dim[i];
		d.in_stride[i] = s->in_stride[i];
		d.out_stride[i] = s->out_stride[i];
	}
	return be->ops->copy(be, &d, k, err);
}

int dlb_kernel_table(struct dlb_backend *be, const struct dlb_desc *d,
		     double (*value)(const void *ctx, int64_t i), const void *ctx, struct dlb_kernel **k,
		     struct dlb_error *err)
{
	const int64_t n = dlb_desc_count(d);
	void *data = dlb_xcalloc((size_t)n + 1, dlb_dtype_bytes(d->dtype));
	int rc;

	for (int64_t i = 0; i < n; i++)
		dlb_value_set(data, d->dtype, i, value(ctx, i));
	rc = be->ops->constant(be, data, dlb_desc_bytes(d), k, err);
	free(data);
	return rc;
}

int dlb_kernel_view(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		    struct dlb_error *err)
{
	int64_t count = dlb_desc_count(&io->in[0]), one = 1;

	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = &io->in[0], .out = &io->out[0], .n_dims = 1,
							 .dim = &count, .in_stride = &one,
							 .out_stride = &one }, k, err);
}

/* Returns a temporary of type `wide` if the type of d is among `types`, else `ref`. *d becomes the operand's
 * desc as the kernel sees it. */
static int widen(struct dlb_chain *c, struct dlb_desc *d, unsigned types, enum dlb_dtype wide, int ref)
{
	if (d->n_dims < 0)
		return DLB_NOTHING;
	if (!(types >> d->dtype & 1))
		return ref;
	d->dtype = wide;
	return dlb_chain_temp(c, d);
}

/* A constant of the vertex in the type that the kernel sees: `value` itself, or new if the types differ. */
static const void *widen_value(const struct dlb_desc *from, const struct dlb_desc *to, const void *value)
{
	if (!value || from->dtype == to->dtype)
		return value;
	void *wide = dlb_xmalloc(dlb_desc_bytes(to) + 1);

	for (int64_t i = 0, n = dlb_desc_count(to); i < n; i++)
		dlb_value_set(wide, to->dtype, i, dlb_value_real(value, from->dtype, i));
	return wide;
}

int dlb_kernel_widened(struct dlb_backend *be, const struct dlb_op_io *io, unsigned types,
		       enum dlb_dtype wide,
		       int (*kernel)(struct dlb_backend *be, const struct dlb_op_io *io,
				     struct dlb_kernel **k, struct dlb_error *err),
		       struct dlb_kernel **k, struct dlb_error *err)
{
	const void *value[MAX_REFS] = { NULL };
	struct dlb_desc in[MAX_REFS], out[MAX_REFS];
	struct dlb_kernel *sub = NULL;
	struct dlb_op_io w = *io;
	int from[MAX_REFS], to[MAX_REFS];

	if (io->n_in > MAX_REFS || io->n_out > MAX_REFS)
		return DLB_NO_KERNEL;
	struct dlb_chain *c = dlb_chain_new(be, err);

	w.in = in;
	w.out = out;
	w.value = value;
	for (int i = 0; i < io->n_in; i++) {
		in[i] = io->in[i];
		from[i] = widen(c, &in[i], types, wide, DLB_IN(i));
		value[i] = widen_value(&io->in[i], &in[i], io->value ? io->value[i] : NULL);
		if (from[i] >= TEMP)
			dlb_chain_cast(c, DLB_IN(i), &io->in[i], from[i], &in[i]);
	}
	for (int i = 0; i < io->n_out; i++) {
		out[i] = io->out[i];
		to[i] = widen(c, &out[i], types, wide, DLB_OUT(i));
	}
	const int rc = kernel(be, &w, &sub, err);
	dlb_chain_add(c, rc, sub, from, io->n_in, to, io->n_out);
	for (int i = 0; i < io->n_out; i++)
		if (to[i] >= TEMP)
			dlb_chain_cast(c, to[i], &out[i], DLB_OUT(i), &io->out[i]);
	for (int i = 0; i < io->n_in; i++)
		if (io->value && value[i] != io->value[i])
			free((void *)value[i]);
	return dlb_chain_finish(c, k);
}

/* Does the vertex have bf16 parameters, as in a model that is bf16 throughout? bf16 kernels
 * take them as f32 (f32_in). */
static bool bf16_parameters(const struct dlb_op_io *io)
{
	for (int i = 0; i < io->n_in && i < 32; i++)
		if (io->cls->f32_in >> i & 1 && dlb_io_has(io, i) && io->in[i].dtype == DLB_BF16)
			return true;
	return false;
}

int dlb_op_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const unsigned halves = 1u << DLB_F16 | 1u << DLB_BF16;
	unsigned types = 0;
	int rc;

	if (!io->cls->kernel)
		return DLB_NO_KERNEL;
	rc = bf16_parameters(io) ? DLB_NO_KERNEL : io->cls->kernel(be, io, k, err);
	for (int i = 0; i < io->n_in + io->n_out && rc == DLB_NO_KERNEL; i++) {
		const struct dlb_desc *d = i < io->n_in ? &io->in[i] : &io->out[i - io->n_in];

		types |= d->n_dims < 0 ? 0 : 1u << d->dtype;
	}
	return types & halves ? dlb_kernel_widened(be, io, halves, DLB_F32, io->cls->kernel, k, err) : rc;
}

int dlb_kernel_host(struct dlb_backend *be, const struct dlb_op_io *io, const struct dlb_host_call *h,
		    struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *sub = NULL;
	int in[MAX_REFS], out[MAX_REFS];
	const int rc = be->ops->host(be, h->fn, h->ctx, h->ctx_bytes, h->scratch_bytes, &sub, err);

	assert(h->n_in <= MAX_REFS && h->n_out <= MAX_REFS);
	for (int i = 0; i < h->n_in; i++)
		in[i] = dlb_io_has(io, i) ? DLB_IN(i) : DLB_NOTHING;
	for (int i = 0; i < h->n_out; i++)
		out[i] = dlb_io_wants(io, i) ? DLB_OUT(i) : DLB_NOTHING;
	dlb_chain_add(c, rc, sub, in, h->n_in, out, h->n_out);
	return dlb_chain_finish(c, k);
}
