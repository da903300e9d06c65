/* The padding row of an embedding, given by the option, has no gradient. */
#include <math.h>
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"
#include "graph/passes.h"

/* Rows 0 to 3 are each read twice; row 2 is padding by the option. */
static void gradient(void)
{
	static const int64_t ids[8] = { 0, 1, 2, 3, 3, 2, 1, 0 };
	struct dlb_graph g;
	const char *name = getenv("DLB_TEST_BACKEND");	/* see kernels.h */
	struct dlb_backend be;
	struct dlb_error err = { .what = "" };
	struct test_run r;
	uint64_t drawn = 0;

	if (dlb_backend_open(name ? name : "cpu", 0, 1, &be, &err))
		test_die(&err);
	begin_graph(&g, 20);
	const int x = sample_input(&g, DLB_I64, (int64_t[]){ 0, 2 }, 2);
	const int w = drawn_constant(&g, "words", (int64_t[]){ 4, 3 }, 2, true, 1, &drawn);
	g.output[g.n_outputs++] = op(&g, "Gather", (int[]){ w, x }, 2, NULL, 0);
	assert(IS(dlb_graph_set_padding_row(&g, "word=2", &err), ==, -1) &&
	       HAS(err.what, "no embedding has a table named like 'word'"));
	assert(IS(dlb_graph_set_padding_row(&g, "words", &err), ==, -1) &&
	       IS(dlb_graph_set_padding_row(&g, "words=-1", &err), ==, -1));
	if (dlb_graph_set_padding_row(&g, "wor*=2", &err) || dlb_graph_fold(&g, 4, &be, &err) ||
	    dlb_graph_find_parameters(&g, &err) || dlb_graph_attach_loss(&g, "sum", &err) ||
	    dlb_graph_differentiate(&g, &err))
		test_die(&err);
	test_run_init(&r, &g, &be, 4);
	memcpy(r.value[g.input[0]], ids, sizeof ids);
	test_run_phase(&r, DLB_FORWARD);
	test_run_phase(&r, DLB_BACKWARD);
	const int update = g.n_ops - 1;
	assert(IS(g.op[update].phase, ==, DLB_UPDATE));
	const double *grad = r.value[g.op[update].in[1]];
	for (int i = 0; i < 12; i++)
		assert(IS(grad[i], ==, (i / 3 == 2 ? 0 : grad[0])) && IS(grad[0], !=, 0));
	test_run_release(&r);
	dlb_graph_release(&g);
	be.ops->close(&be);
}

int main(void)
{
	gradient();
	printf("embedding: padding rows\n");
	return 0;
}
