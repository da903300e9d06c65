/* Checks `overwrite` of every operator: for each input that output 0 may overwrite, and each type, the kernel
 * gives the same bits if output 0 has the input's address. Of a back end other than the CPU (see kernels.h), those
 * that it has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "op/op.h"
#include "util/mem.h"
#include "util/rng.h"
#include "check.h"

enum { MAX_IN = 6, MAX_OUT = 4 };
static int compared;

static void fill(struct dlb_rng *r, const struct dlb_desc *d, void *data)
{
	for (int64_t i = 0; i < dlb_desc_count(d); i++)
		dlb_value_set(data, d->dtype, i,
			      d->dtype == DLB_BOOL ? (double)dlb_rng_below(r, 2) : 0.25 + dlb_rng_uniform(r));
}

static void run(struct dlb_kernel *k, void **in, void **out, void *scratch)
{
	const struct dlb_run r = {
		.in = in, .out = out, .scratch = scratch, .seed = 3, .step = 1, .vertex = 7
	};
	k->run(k, &r);
}

/* Runs io twice, the second time with output 0 over input `over`. False: the class does not accept these
 * operands. */
static bool compare(struct dlb_backend *be, struct dlb_op_io *io, int over)
{
	struct dlb_error err = { .what = "" };
	struct dlb_kernel *k = NULL;
	struct dlb_rng rng;
	void *in[MAX_IN], *out[MAX_OUT], *again[MAX_OUT];
	if (io->cls->infer(io, &err))
		return false;
	const struct dlb_desc *x = &io->in[over], *y = &io->out[0];
	if (x->dtype != y->dtype || x->layout != y->layout || !dlb_desc_same_shape(x, y) ||
	    io->cls->kernel(be, io, &k, &err))
		return false;
	dlb_rng_init(&rng, 11);
	for (int i = 0; i < io->n_in; i++) {
		in[i] = be->ops->alloc(be, dlb_desc_bytes(&io->in[i]) + 64);
		fill(&rng, &io->in[i], in[i]);
	}
	for (int i = 0; i < io->n_out; i++) {
		out[i] = be->ops->alloc(be, dlb_desc_bytes(&io->out[i]) + 64);
		again[i] = i ? be->ops->alloc(be, dlb_desc_bytes(&io->out[i]) + 64) : in[over];
	}
	void *scratch = be->ops->alloc(be, k->scratch_bytes + 64);
	run(k, in, out, scratch);
	run(k, in, again, scratch);
	assert(!be->ops->sync(be, NULL));
	for (int i = 0; i < io->n_out; i++) {
		if (memcmp(out[i], again[i], dlb_desc_bytes(&io->out[i]))) {
			fprintf(stderr, "%s (%s): output %d differs when output 0 lies over input %d\n",
				io->cls->name, dlb_dtype_name(x->dtype), i, over);
			abort();
		}
	}
	for (int i = 0; i < io->n_in; i++)
		be->ops->free(be, in[i]);
	for (int i = 0; i < io->n_out; i++) {
		be->ops->free(be, out[i]);
		if (i)
			be->ops->free(be, again[i]);
	}
	be->ops->free(be, scratch);
	dlb_kernel_free(k);
	compared++;
	return true;
}

static struct dlb_desc desc(enum dlb_dtype t, int n_dims, int64_t a, int64_t b, int64_t c, int64_t d)
{
	struct dlb_desc x = { .dtype = t, .n_dims = n_dims, .dim = { a, b, c, d } };
	return x;
}

/* Shapes of operands: all equal; a bool first or second; a row with a block; operands of the norms' gradients
 * (statistics per channel, per row, or per plane); three numbers per row, a block, a label per row. */
enum { N_FORMS = 9 };
static void form(int f, enum dlb_dtype t, int over, int n_in, struct dlb_desc *in)
{
	for (int i = 0; i < n_in; i++) {
		in[i] = f < 5 || f == 7 ? desc(t, 4, 3, 8, 5, 7) : desc(t, 2, 6, 600, 0, 0);
		if ((f == 1 && i == 0) || (f == 2 && i == 1))
			in[i].dtype = DLB_BOOL;
		if (f == 3 && i != over)
			in[i] = desc(t, 1, 7, 0, 0, 0);
		if (f == 4 && i > 1)
			in[i] = desc(t, 1, 8, 0, 0, 0);
		if (f == 7 && i > 1)
			in[i] = desc(t, 1, i == 2 ? 8 : 24, 0, 0, 0);
		if (f == 6 && i > 1)
			in[i] = desc(t, 1, i == 2 ? 600 : 6, 0, 0, 0);
		if (f == 8 && i != 1)
			in[i] = i == 2 ? desc(DLB_I64, 1, 6, 0, 0, 0) : desc(t, 2, 6, 3, 0, 0);
	}
}

static void test_class(struct dlb_backend *be, const struct dlb_op_class *cls)
{
	static const enum dlb_dtype types[] = { DLB_F32, DLB_F64, DLB_I32, DLB_BOOL };
	static const struct { const char *name; struct dlb_attr attr; } needs[] = {
		{ "Dropout", { .name = "ratio", .type = DLB_ATTR_REAL, .f = 0.5 } },
		{ "BitShift", { .name = "direction", .type = DLB_ATTR_STR, .s = "LEFT" } },
		{ "GroupNormalization", { .name = "num_groups", .type = DLB_ATTR_INT, .i = 8 } },
	};
	const struct dlb_attr *attr = NULL;
	for (int i = 0; i < DLB_LEN(needs); i++)
		attr = strncmp(cls->name, needs[i].name, strlen(needs[i].name)) ? attr : &needs[i].attr;
	int most = cls->n_in[1] < 0 ? 3 : cls->n_in[1], before = compared;
	for (int over = 0; over < MAX_IN; over++) {
		int here = compared;
		if (!(cls->overwrite >> over & 1) || (cls->n_in[1] >= 0 && over >= cls->n_in[1]))
			continue;
		for (int n_in = cls->n_in[0] > over ? cls->n_in[0] : over + 1; n_in <= most; n_in++) {
			for (int f = 0; f < N_FORMS * DLB_LEN(types) * 2; f++) {
				struct dlb_desc in[MAX_IN], out[MAX_OUT];
				bool channels_last = f % 2;
				form(f / 2 % N_FORMS, types[f / 2 / N_FORMS], over, n_in, in);
				for (int i = 0; i < n_in; i++)
					in[i].layout = channels_last && in[i].n_dims > 2 ? DLB_CHANNELS_LAST :
											   DLB_PLAIN;
				memset(out, 0, sizeof out);
				struct dlb_op_io io = { .name = "v",
							.cls = cls,
							.opset = 13,
							.n_in = n_in,
							.in = in,
							.out = out,
							.n_out = cls->n_out[1] > 0 &&
										 cls->n_out[1] < MAX_OUT ?
									 cls->n_out[1] :
									 1,
							.training = true,
							.attr = attr,
							.n_attr = attr ? 1 : 0 };
				compare(be, &io, over);
			}
		}
		if (compared == here && over == 0 && be->ops->is_host_memory) {
			fprintf(stderr, "%s: no operands tried suit it\n", cls->name);
			abort();
		}
	}
	assert(IS(compared, >, before - !be->ops->is_host_memory));
}

int main(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_backend be;
	const char *name = getenv("DLB_TEST_BACKEND");
	int n = 0;
	if (dlb_backend_open(name ? name : "cpu", 0, 1, &be, &err)) {
		dlb_error_print(stderr, "test", -1, &err);
		exit(1);
	}
	for (int i = 0; i < DLB_N_OPS; i++) {
		const struct dlb_op_class *cls = dlb_op_class_of(i);
		if (!cls->overwrite)
			continue;
		assert(IS(cls->n_out[0], >=, 1) && IS(cls->n_in[1], !=, 0));
		test_class(&be, cls);
		n++;
	}
	be.ops->close(&be);
	printf("test_in_place: %d classes, %d pairs of runs\n", n, compared);
	return 0;
}
