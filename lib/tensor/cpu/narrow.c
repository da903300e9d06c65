/* Runs f32 kernels on bf16 operands in blocks: see narrow.h. */
#include <stdlib.h>

#include "tensor/cpu/bf16.h"
#include "tensor/cpu/narrow.h"

struct narrow_kernel {
	struct dlb_kernel k;
	int64_t rows, block;
	struct narrow_operand in[NARROW_MOST], out[NARROW_MOST];
	size_t in_at[NARROW_MOST], out_at[NARROW_MOST];		/* offsets in scratch */
	int n_in, n_out;
	struct dlb_kernel *whole, *rest;	/* for a full block, and for the remaining rows */
	size_t own_bytes;			/* of scratch, before the f32 kernel's */
};

int64_t dlb_cpu_narrow_block(int64_t rows, int64_t per_row, int64_t elements)
{
	const int64_t n = per_row > 0 ? elements / per_row : elements;

	return n < 1 ? 1 : n < rows ? n : rows;
}

static char *place(const struct narrow_operand *o, void *base, int64_t row)
{
	return base ? (char *)base + row * o->per_row * (int64_t)dlb_dtype_bytes(o->dtype) : NULL;
}

static int64_t elements(const struct narrow_operand *o, int64_t rows)
{
	return o->per_row ? o->per_row * rows : o->count;
}

static void narrow_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct narrow_kernel *n = (struct narrow_kernel *)k;
	char *scratch = r->scratch;

	for (int64_t at = 0; at < n->rows; at += n->block) {
		const int64_t rows = n->rows - at < n->block ? n->rows - at : n->block;
		struct dlb_kernel *sub = rows == n->block ? n->whole : n->rest;
		void *in[NARROW_MOST], *out[NARROW_MOST];
		struct dlb_run part = *r;

		for (int i = 0; i < n->n_in; i++) {
			const struct narrow_operand *o = &n->in[i];

			in[i] = place(o, r->in[i], at);
			if (o->dtype != DLB_BF16 || !in[i])
				continue;
			if (o->per_row || at == 0)
				bf16_widen_row((float *)(scratch + n->in_at[i]), in[i], elements(o, rows));
			in[i] = scratch + n->in_at[i];
		}
		for (int i = 0; i < n->n_out; i++) {
			const struct narrow_operand *o = &n->out[i];

			out[i] = place(o, r->out[i], at);
			if (out[i] && (o->dtype == DLB_BF16 || (o->sum && at)))
				out[i] = scratch + n->out_at[i];
		}
		part.in = in;
		part.out = out;
		part.scratch = scratch + n->own_bytes;
		/* where it matters (dropout), rows are samples */
		part.first_sample = r->first_sample + at;
		sub->run(sub, &part);
		for (int i = 0; i < n->n_out; i++) {
			const struct narrow_operand *o = &n->out[i];

			if (!out[i])
				continue;
			if (o->dtype == DLB_BF16) {
				bf16_round_row((uint16_t *)(void *)place(o, r->out[i], at), out[i],
					       elements(o, rows));
			} else if (o->sum && at) {
				float *sum = r->out[i];

				for (int64_t j = 0; j < o->count; j++)
					sum[j] += ((const float *)out[i])[j];
			}
		}
	}
}

static void narrow_free(struct dlb_kernel *k)
{
	struct narrow_kernel *n = (struct narrow_kernel *)k;

	dlb_kernel_free(n->whole);
	dlb_kernel_free(n->rest);
	free(n);
}

/* Assigns scratch to every operand that is converted or summed. */
static void lay_out(struct narrow_kernel *n)
{
	for (int i = 0; i < n->n_in + n->n_out; i++) {
		const bool is_in = i < n->n_in;
		const struct narrow_operand *o = is_in ? &n->in[i] : &n->out[i - n->n_in];

		if (o->absent || (o->dtype != DLB_BF16 && !o->sum))
			continue;
		*(is_in ? &n->in_at[i] : &n->out_at[i - n->n_in]) = n->own_bytes;
		const size_t bytes = cpu_round64((size_t)elements(o, n->block) * sizeof(float));
		n->own_bytes += bytes ? bytes : 64;	/* an empty operand needs an address too */
	}
}

int dlb_cpu_narrow(struct dlb_backend *b, const struct narrow_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	struct narrow_kernel *n = dlb_xcalloc(1, sizeof *n);
	const int64_t rest = d->rows % d->block;
	int rc;

	n->rows = d->rows;
	n->block = d->block;
	n->n_in = d->n_in;
	n->n_out = d->n_out;
	memcpy(n->in, d->in, sizeof n->in);
	memcpy(n->out, d->out, sizeof n->out);
	lay_out(n);
	n->k = (struct dlb_kernel){ .run = narrow_run, .free = narrow_free, .impl = "bf16 by f32" };
	rc = d->prepare(b, d->ctx, d->block, &n->whole, err);
	if (!rc && rest)
		rc = d->prepare(b, d->ctx, rest, &n->rest, err);
	if (rc) {
		narrow_free(&n->k);
		return rc;
	}
	size_t most = n->whole->scratch_bytes;
	if (n->rest && n->rest->scratch_bytes > most)
		most = n->rest->scratch_bytes;
	n->k.scratch_bytes = n->own_bytes + most;
	dlb_kernel_keep(&n->k, n->whole);
	n->k.packed_bytes = n->whole->packed_bytes + (n->rest ? n->rest->packed_bytes : 0);
	*k = &n->k;
	return 0;
}
