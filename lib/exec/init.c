/* Initial weights by PyTorch's defaults: convolutions and dense layers uniform in +-1/sqrt(fan_in) (He et
 * al., 2015, with PyTorch's slope sqrt 5), scales of normalizations 1, other vectors 0, embedding tables
 * N(0,1) times 0.02 (as GPT-2), all other weights of two and more dimensions uniform in +-sqrt(6/(fan_in +
 * fan_out)) (Glorot and Bengio, 2010). */
#include <math.h>
#include <string.h>
#include "exec/engine.h"
#include "exec/state.h"
#include "graph/slice.h"
#include "util/hash.h"
#include "util/rng.h"

/* The forward op that reads tensor t, and the number of the input. */
static const struct dlb_op *reader_of(const struct dlb_graph *g, int t, int *input)
{
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		const struct dlb_op *op = &g->op[g->reader[r]];

		if (op->phase != DLB_FORWARD)
			continue;
		for (int i = 0; i < op->n_in; i++)
			if (op->in[i] == t) {
				*input = i;
				return op;
			}
	}
	*input = -1;
	return NULL;
}

/* The same for a weight. If the slices of a weight are concatenated for an op that reads the whole weight,
 * that op. */
static const struct dlb_op *reader(const struct dlb_graph *g, int t, int *input)
{
	const struct dlb_op *op = reader_of(g, t, input);

	while (g->tensor[t].slice && op && (!strcmp(op->type, "Concat") || !strcmp(op->type, "Reshape")))
		op = reader_of(g, op->out[0], input);
	return op;
}

/* Draws the elements of a slice as the same elements of the whole tensor. */
void dlb_weight_draw(const struct dlb_graph *g, int t, uint64_t seed, void *dst)
{
	const struct dlb_tensor *x = &g->tensor[t];
	const struct dlb_desc part = dlb_tensor_desc(x, 1),
			      d = x->slice ? dlb_slice_desc(x->slice, x->dtype) : part;
	int64_t count = dlb_desc_count(&d), fan_in = x->fan_in, fan_out = x->fan_out;
	uint64_t stream = dlb_hash_str(DLB_HASH_INIT, x->slice ? x->slice->of : x->name);
	double bound = 0.0, fixed = 0.0;
	bool normal = false;
	int input;
	const struct dlb_op *op = reader(g, t, &input);
	const char *work = op ? dlb_op_work(op->type) : "other";

	if (fan_in <= 0 && d.n_dims >= 2) {
		fan_out = d.dim[0];
		fan_in = count / (d.dim[0] > 0 ? d.dim[0] : 1);
	}
	if (x->kind == DLB_T_BUFFER) {
		/* Running variance starts at 1, the mean at 0. */
		fixed = input == 4;
	} else if (d.n_dims < 2) {
		fixed = op && !strcmp(work, "norm") && input == 1;
	} else if (x->start == DLB_START_DRAWN) {
		bound = 1.0 / sqrt((double)fan_in);
	} else if (op && !strcmp(op->type, "Gather")) {
		normal = true;
	} else if (op && (!strcmp(work, "conv") || !strcmp(work, "dense")) && fan_in > 0) {
		bound = 1.0 / sqrt((double)fan_in);
	} else if (fan_in + fan_out > 0) {
		bound = sqrt(6.0 / (double)(fan_in + fan_out));
	}
	for (int64_t i = 0; i < dlb_desc_count(&part); i++) {
		const uint64_t at = (uint64_t)(x->slice ? dlb_slice_index(x->slice, i) : i);
		double v = fixed;

		if (normal)
			v = 0.02 * dlb_philox_normal(seed, stream, at);
		else if (bound > 0.0)
			v = bound * (2.0 * dlb_philox_uniform(seed, stream, at) - 1.0);
		dlb_value_set(dst, d.dtype, i, v);
	}
}
