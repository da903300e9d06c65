/* The table of formats. */
#include <string.h>
#include "convert/formats.h"

const struct dlb_format dlb_formats[] = {
	{ .name = "dnn-partitioning", .summary = "msr-fiddle/dnn-partitioning: JSON of a network; split of a plan",
	  .import = dlb_import_dnn_partitioning, .export = dlb_export_dnn_partitioning },
	{ .name = "pipedream", .summary = "PipeDream: graph.txt of a profile", .import = dlb_import_pipedream },
	{ .name = NULL },
};

const struct dlb_format *dlb_format_find(const char *name)
{
	for (const struct dlb_format *f = dlb_formats; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}
