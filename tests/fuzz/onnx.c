/* Fuzzer of the ONNX reader; what is read is written as a document's section and checked.
 *     make fuzz && build/fuzz/onnx -max_total_time=600 CORPUS share/models */
#include "graph/graph.h"
#include "model/onnx.h"

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
	dlb_graph_release(&g);
	return 0;
}
