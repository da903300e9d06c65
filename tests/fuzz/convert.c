/* Fuzzer of the readers of other tools' files: what is taken must be a document that its own readers take.
 * The first byte chooses the format.
 *     make fuzz && build/fuzz/convert -max_total_time=600 CORPUS */
#include <stdlib.h>
#include <string.h>
#include "convert/convert.h"
#include "graph/graph_json.h"

static void check(const struct dlb_doc *d)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct dlb_cluster cl = { .n_nodes = 0 };
	struct dlb_cost c = { .n_ops = 0 };
	if (!dlb_doc_section(d, "graph")) {			/* a machine alone */
		if (dlb_cluster_read(d, &cl, &err))
			dlb_bug("made a cluster that cannot be read: %s: %s", err.where, err.what);
		dlb_cluster_release(&cl);
		return;
	}
	if (dlb_graph_read(d, &g, &err) || dlb_cluster_read(d, &cl, &err) ||
	    dlb_cost_read(d, &g, &cl, &c, &err))
		dlb_bug("made a document that cannot be read: %s: %s", err.where, err.what);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_graph_release(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_convert_options o = { 0 };
	struct dlb_error err = { .what = "" };
	struct dlb_doc d;
	int n = 0;
	while (dlb_formats[n].name)
		n++;
	const struct dlb_format *f = size ? &dlb_formats[data[0] % n] : NULL;
	if (!f || !f->import)
		return 0;
	dlb_doc_init(&d, "fuzz");
	if (f->import((const char *)data + 1, size - 1, "fuzz", &o, &d, &err) == 0)
		check(&d);
	else if (!err.what[0])
		dlb_bug("refused without a word");
	dlb_doc_release(&d);
	return 0;
}
