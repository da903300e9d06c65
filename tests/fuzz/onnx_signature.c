/* Fuzzer of the exporter's list of parameters: the text is put into a model's metadata, and the list into
 * a document.
 *     build/tests/test_onnx_signature CORPUS && make fuzz && build/fuzz/onnx_signature -max_total_time=600 CORPUS */
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "model/onnx.h"
#include "onnx.pb-c.h"

static uint8_t *model_with(char *text, size_t *n)
{
	Onnx__ModelProto m = ONNX__MODEL_PROTO__INIT;
	Onnx__GraphProto g = ONNX__GRAPH_PROTO__INIT;
	Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = { &opset };
	Onnx__StringStringEntryProto signature = ONNX__STRING_STRING_ENTRY_PROTO__INIT, call = signature;
	Onnx__StringStringEntryProto *metadata[] = { &signature }, *calls[] = { &call };
	Onnx__NodeProto v = ONNX__NODE_PROTO__INIT, *vertices[] = { &v };
	Onnx__ValueInfoProto y = ONNX__VALUE_INFO_PROTO__INIT, *outputs[] = { &y };
	char *made[] = { (char *)"y" };

	opset.has_version = 1;
	opset.version = 20;
	signature.key = (char *)"pkg.torch.export.ExportedProgram.graph_signature";
	call.key = (char *)"pkg.torch.onnx.fx_node";
	signature.value = call.value = text;
	opset.domain = v.domain = (char *)"own";	/* an operator whose attributes nobody checks */
	v.op_type = (char *)"Make";
	v.n_output = 1;
	v.output = made;
	v.n_metadata_props = 1;
	v.metadata_props = calls;
	y.name = made[0];
	g.n_node = g.n_output = g.n_metadata_props = 1;
	g.node = vertices;
	g.output = outputs;
	g.metadata_props = metadata;
	m.n_opset_import = 1;
	m.opset_import = opsets;
	m.graph = &g;
	*n = protobuf_c_message_get_packed_size(&m.base);
	uint8_t *p = dlb_xmalloc(*n);
	protobuf_c_message_pack(&m.base, p);
	return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = dlb_xcalloc(size + 1, 1);
	struct dlb_error err = { .what = "" };
	struct dlb_graph g, back;
	struct dlb_doc d;
	size_t n;

	if (size)
		memcpy(text, data, size);
	uint8_t *p = model_with(text, &n);
	if (dlb_onnx_parse(p, n, "fuzz.onnx", &g, &err))
		dlb_bug("the list is refused, where it is to be ignored: %s", err.what);
	/* empty lines come before a list of nothing, too */
	const char *first = text + strspn(text, "\n");
	if (!g.n_listed && !g.n_notes && strncmp(first, "# inputs", 8) &&
	    strncmp(text, "ExportGraphSignature(", 21))
		dlb_bug("ignored without a word");
	g.batch = 1;
	dlb_doc_init(&d, "fuzz");
	dlb_doc_set(&d, "graph", dlb_graph_write(&g));
	if (dlb_graph_read(&d, &back, &err) || back.n_listed != g.n_listed)
		dlb_bug("written, but not read: %s: %s", err.where, err.what);
	for (int i = 0; i < g.n_listed; i++)
		if (strcmp(g.listed[i].name, back.listed[i].name) ||
		    strcmp(g.listed[i].input, back.listed[i].input))
			dlb_bug("written, but read otherwise: '%s'", g.listed[i].name);
	dlb_doc_release(&d);
	dlb_graph_release(&back);
	dlb_graph_release(&g);
	free(p);
	free(text);
	return 0;
}
