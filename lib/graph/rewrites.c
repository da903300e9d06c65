/* The table of rewrites, switching them off, and the record of applied rewrites. */
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/pattern.h"
#include "graph/rewrites.h"

const struct dlb_rewrite dlb_rewrites[] = {
	[DLB_REWRITE_FOLDING] = { .name = "constant-folding",
				  .summary = "vertices of constants become constants; off: only those that "
					     "shapes need" },
	[DLB_REWRITE_DEAD] = { .name = "dead-vertices", .summary = "vertices that reach no output go" },
	{ .name = "no-ops",
	  .summary = "Cast, Transpose, Reshape and the like that change nothing go",
	  .run = dlb_rewrite_no_ops },
	{ .name = "layer-norm",
	  .summary = "LayerNormalization that is spelt out becomes one op",
	  .run = dlb_rewrite_layer_norm },
	{ .name = "rms-norm",
	  .summary = "RMSNormalization that is spelt out becomes one op",
	  .run = dlb_rewrite_rms_norm },
	{ .name = "group-norm",
	  .summary = "GroupNormalization that is spelt out, by InstanceNormalization, becomes one op",
	  .run = dlb_rewrite_group_norm },
	{ .name = "gelu",
	  .summary = "GELU that is spelt out, by Erf or by Tanh, becomes one op",
	  .run = dlb_rewrite_gelu },
	{ .name = "swish", .summary = "x times the Sigmoid of x becomes Swish", .run = dlb_rewrite_swish },
	{ .name = "swiglu", .summary = "Swish times a value becomes SwiGLU", .run = dlb_rewrite_swiglu },
	{ .name = "rotary",
	  .summary = "RotaryEmbedding that is spelt out, by halves, becomes one op (not with bf16); "
		     "a Transpose before it moves behind it",
	  .run = dlb_rewrite_rotary },
	{ .name = "softmax-guard",
	  .summary = "Where(IsNaN(y), 0, y) after a Softmax goes where no mask can make a row NaN",
	  .run = dlb_rewrite_softmax_guard },
	{ .name = "cross-entropy",
	  .summary = "LogSoftmax and NegativeLogLikelihoodLoss become one op",
	  .run = dlb_rewrite_cross_entropy },
	{ .name = "selected-rows",
	  .summary = "where a Gather or Slice keeps some rows of a product, the others are not computed",
	  .run = dlb_rewrite_selected_rows },
	{ .name = "linear",
	  .summary = "MatMul by a matrix and the Add of a bias become Gemm, which reads a transposed weight "
		     "as it lies",
	  .run = dlb_rewrite_linear },
	{ .name = "transposes",
	  .summary = "Reshapes and Transposes that follow one another become one Transpose, or none",
	  .run = dlb_rewrite_transposes },
	{ .name = "unbind",
	  .summary = "parts taken by Gather or Slice, index by index, become one Split before the Transpose",
	  .run = dlb_rewrite_unbind },
	{ .name = "products",
	  .summary = "MatMul reads and writes through Transposes, with scalar factors taken in",
	  .run = dlb_rewrite_products },
	{ .name = "attention",
	  .summary = "products around a Softmax over 192 keys (causal: 128) or more become one Attention",
	  .run = dlb_rewrite_attention },
	{ .name = "norm-relu",
	  .summary = "Relu goes into the BatchNormalization before it",
	  .run = dlb_rewrite_norm_relu },
	{ .name = "conv-relu",
	  .summary = "Relu goes into the convolution before it",
	  .run = dlb_rewrite_conv_relu },
	{ .name = "add-relu", .summary = "Relu goes into the Add before it", .run = dlb_rewrite_add_relu },
	{ .name = "winograd",
	  .summary = "3x3 convolutions of many channels may go by Winograd's algorithm",
	  .run = dlb_rewrite_winograd },
	{ .name = NULL },
};

bool dlb_rewrite_is_on(const struct dlb_graph *g, int row)
{
	return !(g->no_rewrite >> row & 1);
}

void dlb_rewrite_missed(struct dlb_graph *g, int row)
{
	g->missed |= UINT64_C(1) << row;
}

void dlb_rewrite_done(struct dlb_graph *g, int row, int64_t count)
{
	struct dlb_rewritten *w = dlb_arena_array(&g->arena, (size_t)g->n_rewritten + 1, sizeof *w);

	if (!dlb_rewrite_is_on(g, row))
		return;
	if (g->n_rewritten)
		memcpy(w, g->rewritten, (size_t)g->n_rewritten * sizeof *w);
	w[g->n_rewritten++] = (struct dlb_rewritten){ dlb_rewrites[row].name, count };
	g->rewritten = w;
}

int dlb_graph_no_rewrite(struct dlb_graph *g, const char *name, struct dlb_error *err)
{
	const char *names[DLB_MAX_REWRITES];
	int n = 0;

	for (; dlb_rewrites[n].name; n++) {
		names[n] = dlb_rewrites[n].name;
		if (!strcmp(name, names[n]) || !strcmp(name, "all"))
			g->no_rewrite |= UINT64_C(1) << n;
	}
	for (int i = 0; i < n; i++)
		if (!strcmp(name, names[i]) || !strcmp(name, "all"))
			return 0;
	dlb_fail(err, NULL, "no rewrite '%s'", name);
	return dlb_hint_nearest(err, name, names, n, "--list names them");
}

bool dlb_graph_missed(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; dlb_rewrites[i].name; i++)
		if ((!strcmp(name, dlb_rewrites[i].name) || !strcmp(name, "all")) && g->missed >> i & 1)
			return true;
	return false;
}

static void try_on_copy(struct dlb_graph *g, int row)
{
	struct dlb_error ignored = { .what = "" };
	struct dlb_graph copy;
	int64_t count = 0;

	dlb_graph_copy(g, &copy);
	if (dlb_rewrites[row].run(&copy, &count, &ignored) || count)
		dlb_rewrite_missed(g, row);
	dlb_graph_release(&copy);
}

int dlb_graph_rewrite(struct dlb_graph *g, struct dlb_error *err)
{
	dlb_graph_index(g);
	for (int i = 0; dlb_rewrites[i].name; i++) {
		const struct dlb_rewrite *r = &dlb_rewrites[i];
		int64_t count = 0;
		if (!r->run || (r->inference && g->training))
			continue;
		if (!dlb_rewrite_is_on(g, i)) {
			try_on_copy(g, i);
			continue;
		}
		if (r->run(g, &count, err))
			return -1;
		if (count) {
			dlb_graph_drop_dead(g, NULL, 0);	/* removes ops that were fused */
			dlb_graph_index(g);
		}
		dlb_rewrite_done(g, i, count);
	}
	dlb_graph_fill_work(g, 0);
	dlb_graph_set_homes(g);
	return 0;
}
