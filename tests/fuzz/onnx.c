/* Fuzzer of the ONNX reader; what is read is written as a document's section and checked, then folded:
 * shapes, constants, branches, loops and sequences. Tests write the models that they make to a folder, as
 * seeds.
 *     for t in onnx onnx_functions upcast; do build/tests/test_$t CORPUS; done
 *     make fuzz && build/fuzz/onnx -max_total_time=600 CORPUS share/models */
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"

static void fold(struct dlb_graph *g)
{
	static struct dlb_backend be;
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	struct dlb_error err = { .what = "" };

	if (!be.ops && ops->open(0, 1, &be, &err))
		dlb_bug("no back end: %s", err.what);
	if (dlb_graph_fold(g, 2, &be, &err)) {
		if (!err.what[0])
			dlb_bug("not folded, without a word");
		return;
	}
	if (dlb_graph_check(g, &err))
		dlb_bug("folded, but broken: %s: %s", err.where, err.what);
	for (int i = 0; i < g->n_ops; i++)
		if (dlb_graph_is_structure(g->op[i].type, g->op[i].domain))
			dlb_bug("structure is left: %s", g->op[i].name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	if (dlb_onnx_parse(data, size, "fuzz.onnx", &g, &err)) {
		if (!err.what[0])
			dlb_bug("refused without a word");
		return 0;
	}
	if (dlb_graph_check(&g, &err))
		dlb_bug("read, but broken: %s", err.what);
	g.batch = 2;
	if (!dlb_graph_check(&g, &err)) {
		struct dlb_doc d;
		struct dlb_graph back;
		dlb_doc_init(&d, "fuzz");
		dlb_doc_set(&d, "graph", dlb_graph_write(&g));
		if (dlb_graph_read(&d, &back, &err))
			dlb_bug("written, but not read: %s: %s", err.where, err.what);
		dlb_graph_release(&back);
		dlb_doc_release(&d);
	}
	g.batch = 0;
	dlb_graph_upcast(&g);
	fold(&g);
	dlb_graph_release(&g);
	return 0;
}
