/* Dimensions that a model names: sizes of --dim, expressions of names, and which dimension is the batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "check.h"

/* Names of the dimensions of input x, sizes that are given, and its shape as it is fed (with a T behind it
 * if a Transpose was added), or the message and the cure. */
static const struct {
	const char *name[3], *given[2], *want, *cure;
} rows[] = {
	{ { "batch", "s" }, { "s=4" }, "N,4", NULL },
	{ { "batch", "2*s + 1" }, { "s=4" }, "N,9", NULL },
	{ { "batch", " s*2+1 " }, { "s=4" }, "N,9", NULL },
	{ { "batch", "s // 3" }, { "s=10" }, "N,3", NULL },
	{ { "batch", "s/3" }, { "s=10" }, "N,3", NULL },
	{ { "batch", "(s + 2)*3" }, { "s=10" }, "N,36", NULL },
	{ { "batch", "( s+2 )*( 3 )" }, { "s=10" }, "N,36", NULL },
	{ { "batch", "s + 2*3" }, { "s=10" }, "N,16", NULL },
	{ { "batch", "s - 3*2" }, { "s=10" }, "N,4", NULL },
	{ { "batch", "s - 3 - 2" }, { "s=10" }, "N,5", NULL },
	{ { "batch", "(3 - s)//2 + 9" }, { "s=10" }, "N,5", NULL }, /* rounded down: -7 // 2 is -4 */
	{ { "batch", "(2 - s)//2 + 9" }, { "s=10" }, "N,5", NULL },
	{ { "batch", "10 - s" }, { "s=10" }, "N,0", NULL },
	{ { "batch", "007*s" }, { "s=10" }, "N,70", NULL },
	{ { "batch", "a.b:c_1" }, { "a.b:c_1=7" }, "N,7", NULL },
	{ { "batch", "s + t" }, { "s=10", "t=2" }, "N,12", NULL },
	{ { "batch", "batch*2" }, { NULL }, "N,2N", NULL },
	{ { "batch", "batch + s" }, { "s=10" }, "N,N+10", NULL },
	{ { "batch", "s*batch - 3" }, { "s=10" }, "N,10N-3", NULL },
	{ { "batch", "batch//2*2" }, { NULL }, "N,N", NULL },
	{ { "batch", "s*549755813888" }, { "s=2" }, "N,1099511627776", NULL },
	{ { "batch", "549755813888 + s" }, { "s=549755813888" }, "N,1099511627776", NULL },
	{ { "batch", "s*549755813889" },
	  { "s=2" },
	  "dimension 1 of the input has no size ('s*549755813889')",
	  "give it one with --dim s*549755813889=N" },
	{ { "batch", "549755813889 + s" },
	  { "s=549755813888" },
	  "dimension 1 of the input has no size ('549755813889 + s')",
	  "give it one with --dim 549755813889 + s=N" },
	{ { "batch", "3 - s" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('3 - s')",
	  "give it one with --dim 3 - s=N" },
	{ { "batch", "s s" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('s s')",
	  "give it one with --dim s s=N" },
	{ { "batch", "s +" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('s +')",
	  "give it one with --dim s +=N" },
	{ { "batch", "(s" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('(s')",
	  "give it one with --dim (s=N" },
	{ { "batch", "s)" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('s)')",
	  "give it one with --dim s)=N" },
	{ { "batch", "s/0" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('s/0')",
	  "give it one with --dim s/0=N" },
	{ { "batch", "s/(3 - s)" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('s/(3 - s)')",
	  "give it one with --dim s/(3 - s)=N" },
	{ { "batch", "t" },
	  { NULL },
	  "dimension 1 of the input has no size ('t')",
	  "give it one with --dim t=N" },
	{ { "batch", "s + t*u" },
	  { "s=4" },
	  "dimension 1 of the input has no size ('s + t*u')",
	  "give it one with --dim t=N" },
	{ { "batch", "batch*batch" },
	  { NULL },
	  "dimension 1 of the input, 'batch*batch', does not follow the batch linearly",
	  "export with the batch as a dimension of its own" },
	{ { "batch", "(batch + 1)//2" },
	  { NULL },
	  "dimension 1 of the input, '(batch + 1)//2', does not follow the batch linearly",
	  "export with the batch as a dimension of its own" },
	{ { "batch", "s" },
	  { "s=4", "z=3" },
	  "no input has a dimension 'z' without a size",
	  "--dim gives a size to a dimension that the model names" },
	/* which one is the batch */
	{ { "s", "N" }, { "s=4" }, "N,4 T", NULL },
	{ { "s", "t", "batch_size" }, { "s=4", "t=5" }, "N,4,5 T", NULL },
	{ { "s", "bs", "t" }, { "s=4", "t=5" }, "N,4,5 T", NULL },
	{ { "rows", "columns" }, { "columns=3" }, "N,3", NULL },
	{ { "rows", "columns" }, { "rows=3" }, "N,3 T", NULL },
	{ { "batch", "s" }, { "batch=5" }, "N,5 T", NULL },
	{ { "batch", "N" }, { "N=5" }, "N,5", NULL },
	{ { "rows", "columns", "deep" },
	  { "rows=3" },
	  "dimension 1 of the input has no size ('columns')",
	  "give it one with --dim columns=N" },
	{ { "rows", "columns" },
	  { NULL },
	  "dimension 1 of the input has no size ('columns')",
	  "give it one with --dim columns=N" },
	{ { "rows", "columns" }, { "rows=3", "columns=4" }, "3,4", NULL },
};

static void make(struct dlb_graph *g, const char *const *name)
{
	dlb_graph_init(g);
	const int x = dlb_graph_add_tensor(g, "x", DLB_T_INPUT);
	struct dlb_tensor *t = &g->tensor[x];

	for (t->n_dims = 0; t->n_dims < 3 && name[t->n_dims]; t->n_dims++)
		t->dim[t->n_dims].add = -1;
	t->dim_name = name;
	t->bound = 17;
	t->dtype = DLB_I64;
	g->input = dlb_arena_array(&g->arena, 1, sizeof *g->input);
	g->input[0] = x;
	g->n_inputs = 1;
}

static void describe(const struct dlb_graph *g, char *text, size_t size)
{
	const struct dlb_tensor *t = &g->tensor[g->input[0]];
	size_t n = 0;

	for (int k = 0; k < t->n_dims; k++) {
		const struct dlb_dim d = t->dim[k];
		n += (size_t)snprintf(text + n, size - n, "%s", k ? "," : "");
		if (d.mul > 1)
			n += (size_t)snprintf(text + n, size - n, "%lld", (long long)d.mul);
		if (d.mul)
			n += (size_t)snprintf(text + n, size - n, "N");
		if (d.add || !d.mul)
			n += (size_t)snprintf(text + n, size - n, d.mul ? "%+lld" : "%lld", (long long)d.add);
	}
	snprintf(text + n, size - n, "%s", g->n_ops ? " T" : "");
}

/* The input that is fed is x of the same type; the Transpose makes the shape that the model states. */
static void check_transpose(const struct dlb_graph *g)
{
	const struct dlb_tensor *x = &g->tensor[g->input[0]];

	assert(SAME(x->name, "x") && IS(x->kind, ==, DLB_T_INPUT) && IS(x->bound, ==, 17) &&
	       IS(x->dtype, ==, DLB_I64));
	if (!g->n_ops)
		return;
	const struct dlb_op *o = &g->op[0];
	const struct dlb_tensor *y = &g->tensor[o->out[0]];
	const int64_t *perm = NULL;
	assert(SAME(o->type, "Transpose") && IS(o->in[0], ==, g->input[0]) && SAME(y->name, "x.transposed") &&
	       IS(y->kind, ==, DLB_T_ACTIVATION));
	assert(IS(dlb_attr_ints(o->attr, o->n_attr, "perm", &perm), ==, x->n_dims));
	for (int k = 0; k < x->n_dims; k++)
		assert(IS(y->dim[k].mul, ==, x->dim[perm[k]].mul) &&
		       IS(y->dim[k].add, ==, x->dim[perm[k]].add));
}

static void test_rows(void)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_graph g;
		char got[200];
		make(&g, rows[i].name);
		for (int k = 0; k < 2 && rows[i].given[k]; k++)
			assert(!dlb_graph_set_dim(&g, rows[i].given[k], &err));
		const int rc = dlb_graph_size_inputs(&g, &err);
		if (rc != (rows[i].cure ? -1 : 0))
			fprintf(stderr, "row %zu: %s; %s\n", i, err.what, err.hint);
		assert(IS(rc, ==, rows[i].cure ? -1 : 0));
		if (rc) {
			assert(SAME(err.what, rows[i].want) && SAME(err.hint, rows[i].cure));
		} else {
			describe(&g, got, sizeof got);
			assert(SAME(got, rows[i].want));
			check_transpose(&g);
		}
		dlb_graph_release(&g);
	}
}

static void test_sizes(void)
{
	static const char *const bad[] = { "s", "s=", "=4", "s=0", "s=-1", "s=4x", "s=x", "s=1099511627777",
					   "" };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	dlb_graph_init(&g);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char want[100];
		snprintf(want, sizeof want, "'%s' is not NAME=N with a size N of 1 or more", bad[i]);
		assert(IS(dlb_graph_set_dim(&g, bad[i], &err), ==, -1) && SAME(err.what, want) &&
		       SAME(err.hint, "as in --dim seq=128"));
	}
	assert(IS(g.n_sizes, ==, 0));
	assert(!dlb_graph_set_dim(&g, "s=1099511627776", &err) && !dlb_graph_set_dim(&g, "a=b=1", &err));
	assert(IS(g.n_sizes, ==, 2) && SAME(g.size[0].name, "s") && IS(g.size[0].n, ==, (int64_t)1 << 40));
	assert(SAME(g.size[1].name, "a=b") && IS(g.size[1].n, ==, 1));
	dlb_graph_release(&g);
}

int main(void)
{
	test_rows();
	test_sizes();
	return 0;
}
