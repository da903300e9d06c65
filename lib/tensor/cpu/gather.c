/* Rows taken from a table, and gradients added to the rows that they were taken from, in the order of the
 * indices. */
#include <string.h>

#include "tensor/cpu/cpu.h"

struct gather_kernel { struct dlb_kernel k; struct dlb_gather_desc d; int64_t bytes; };	/* bytes: of a row */

/* The table's row for index i, negative indices counted from the end; -1: not in this table. */
static int64_t row_of(const struct dlb_gather_desc *d, const void *index, int64_t i)
{
	int64_t r = d->index == DLB_I64 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];

	r = r < 0 ? r + d->of : r;
	return r >= d->first && r - d->first < d->rows ? r - d->first : -1;
}

static void gather_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct gather_kernel *g = (const struct gather_kernel *)k;
	const char *x = r->in[0];
	char *y = r->out[0];

	for (int64_t o = 0; o < g->d.outer; o++)
		for (int64_t i = 0; i < g->d.n_index; i++, y += g->bytes) {
			int64_t row = row_of(&g->d, r->in[1], i);

			if (row >= 0)
				memcpy(y, x + (o * g->d.rows + row) * g->bytes, (size_t)g->bytes);
			else
				memset(y, 0, (size_t)g->bytes);
		}
}

static void add_row(enum dlb_dtype type, void *to, const void *from, int64_t n)
{
	for (int64_t j = 0; j < n; j++) {
		if (type == DLB_F32)
			((float *)to)[j] += ((const float *)from)[j];
		else if (type == DLB_BF16)
			dlb_value_set(to, DLB_BF16, j,
				      dlb_value_real(to, DLB_BF16, j) + dlb_value_real(from, DLB_BF16, j));
		else
			((double *)to)[j] += ((const double *)from)[j];
	}
}

static void gather_grad_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct gather_kernel *g = (const struct gather_kernel *)k;
	const char *dy = r->in[0];

	memset(r->out[0], 0, (size_t)(g->d.outer * g->d.rows * g->bytes));
	for (int64_t o = 0; o < g->d.outer; o++)
		for (int64_t i = 0; i < g->d.n_index; i++, dy += g->bytes) {
			int64_t row = row_of(&g->d, r->in[1], i);

			if (row >= 0 && row + g->d.first != g->d.padding)
				add_row(g->d.dtype, (char *)r->out[0] + (o * g->d.rows + row) * g->bytes, dy,
					g->d.width);
		}
}

int dlb_cpu_gather(struct dlb_backend *b, const struct dlb_gather_desc *d, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	struct gather_kernel *g;

	(void)b, (void)err;
	if ((d->index != DLB_I32 && d->index != DLB_I64) ||
	    (d->backward && d->dtype != DLB_F32 && d->dtype != DLB_F64 && d->dtype != DLB_BF16))
		return DLB_NO_KERNEL;
	g = dlb_xcalloc(1, sizeof *g);
	g->d = *d;
	g->bytes = d->width * (int64_t)dlb_dtype_bytes(d->dtype);
	g->k = (struct dlb_kernel){ .run = d->backward ? gather_grad_run : gather_run,
				    .free = dlb_cpu_kernel_free,
				    .impl = "loop" };
	*k = &g->k;
	return 0;
}
