/* Finds the padding row of an embedding: torch.nn.Embedding(padding_idx=K) gives row K no gradient, which
 * ONNX's Gather cannot express. PyTorch's exporter (dynamo=True) stores the original call in the vertex's
 * metadata, under "pkg.torch.onnx.fx_node"; its third argument is the row:
 *
 *     %embedding : ... target=torch.ops.aten.embedding.default](args = (%p_weight, %input_ids, 0), kwargs = {})
 */
#include <stdlib.h>
#include <string.h>
#include "model/onnx_reader.h"

#define CALL "torch.ops.aten.embedding.default](args = ("

/* Returns the third argument in `text`, up to ')'; -1: none. */
static int64_t third_argument(const char *text)
{
	const char *end = strchr(text, ')');
	char *after;

	for (int commas = 0; commas < 2; commas++, text++)
		if (!(text = strchr(text, ',')) || !end || text > end)
			return -1;
	const long long row = strtoll(text, &after, 10);
	return after == text || row < 0 || (*after != ',' && *after != ')') ? -1 : row;
}

int64_t dlb_reader_padding_row(const Onnx__NodeProto *p)
{
	const char *text = strcmp(p->op_type, "Gather") ?
				   NULL :
				   dlb_reader_metadata(p->metadata_props, p->n_metadata_props, DLB_FX_NODE);
	const char *call = text ? strstr(text, CALL) : NULL;

	return call ? third_argument(call + strlen(CALL)) : -1;
}
