/* The table of formats. */
#include <string.h>
#include "convert/formats.h"

const struct dlb_format dlb_formats[] = {
	{ .name = "dnn-partitioning", .summary = "msr-fiddle/dnn-partitioning: JSON of a network; split of a plan",
	  .import = dlb_import_dnn_partitioning, .export = dlb_export_dnn_partitioning },
	{ .name = "pipedream", .summary = "PipeDream: graph.txt of a profile", .import = dlb_import_pipedream },
	{ .name = "chakra", .summary = "MLCommons Chakra: execution trace; trace of a planned node",
	  .import = dlb_import_chakra, .export = dlb_export_chakra },
	{ .name = "torch-pipelining", .summary = "torch.distributed.pipelining: CSV of a plan's schedule",
	  .export = dlb_export_torch_pipelining },
	{ .name = "megatron", .summary = "Megatron-LM: pipeline layout of a plan", .export = dlb_export_megatron },
	{ .name = "rankfile", .summary = "Open MPI: which cores of which host a rank has", .export = dlb_export_rankfile },
	{ .name = "hostfile", .summary = "Open MPI: hosts and their slots", .export = dlb_export_hostfile },
	{ .name = "hwloc", .summary = "hwloc: XML of a machine", .import = dlb_import_hwloc },
	{ .name = NULL },
};

const struct dlb_format *dlb_format_find(const char *name)
{
	for (const struct dlb_format *f = dlb_formats; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}
