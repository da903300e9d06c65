/* The table of file formats. */
#include <string.h>
#include "convert/formats.h"
#include "plan/plan.h"
#include "plan/schedule.h"

const struct dlb_format dlb_formats[] = {
	{ .name = "dnn-partitioning",
	  .summary = "msr-fiddle/dnn-partitioning: JSON of a network; split of a plan",
	  .import = dlb_import_dnn_partitioning,
	  .export = dlb_export_dnn_partitioning,
	  .unsaid = DLB_UNSAID_REPLICAS | DLB_UNSAID_MICRO_BATCHES | DLB_UNSAID_ASYNC },
	{ .name = "pipedream",
	  .summary = "PipeDream: graph.txt of a profile",
	  .import = dlb_import_pipedream,
	  .import_takes = DLB_TAKES_MACHINE },
	{ .name = "chakra",
	  .summary = "MLCommons Chakra: execution trace; trace of a planned node",
	  .import = dlb_import_chakra,
	  .export = dlb_export_chakra,
	  .unsaid = DLB_UNSAID_ASYNC,
	  .import_takes = DLB_TAKES_MACHINE,
	  .export_takes = DLB_TAKES_RANK },
	{ .name = "torch-pipelining",
	  .summary = "torch.distributed.pipelining: CSV of a plan's schedule",
	  .export = dlb_export_torch_pipelining,
	  .unsaid = DLB_UNSAID_REPLICAS | DLB_UNSAID_ASYNC },
	{ .name = "megatron",
	  .summary = "Megatron-LM: pipeline layout of a plan",
	  .export = dlb_export_megatron,
	  .unsaid = DLB_UNSAID_REPLICAS | DLB_UNSAID_MICRO_BATCHES | DLB_UNSAID_ASYNC },
	{ .name = "rankfile",
	  .summary = "Open MPI: which cores of which host a rank has",
	  .export = dlb_export_rankfile },
	{ .name = "hostfile", .summary = "Open MPI: hosts and their slots", .export = dlb_export_hostfile },
	{ .name = "sbatch", .summary = "Slurm: batch script that runs a plan", .export = dlb_export_sbatch,
	  .export_takes = DLB_TAKES_REPLAN },
	{ .name = "smpi", .summary = "SimGrid: actions of a planned step", .export = dlb_export_smpi },
	{ .name = "simgrid", .summary = "SimGrid: platform of a cluster", .export = dlb_export_simgrid },
	{ .name = "hwloc",
	  .summary = "hwloc: XML of a machine",
	  .import = dlb_import_hwloc,
	  .import_takes = DLB_TAKES_THREADS },
	{ .name = NULL },
};

const struct dlb_format *dlb_format_find(const char *name)
{
	for (const struct dlb_format *f = dlb_formats; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

bool dlb_format_unsaid(const struct dlb_format *f, const struct dlb_doc *d, char *line, size_t size)
{
	const json_t *plan = dlb_doc_section(d, "plan");
	const char *schedule = json_string_value(json_object_get(plan, "schedule"));
	const struct dlb_schedule *s = schedule ? dlb_schedule_find(schedule) : NULL;
	const int replicas = (int)json_array_size(json_object_get(plan, "replicas"));
	const long long M = json_integer_value(json_object_get(plan, "micro_batches"));
	char text[3][120] = { "", "", "" };

	if (f->unsaid & DLB_UNSAID_REPLICAS && replicas > 1)
		snprintf(text[0], sizeof text[0], ", %d replicas (written is the first)", replicas);
	if (f->unsaid & DLB_UNSAID_MICRO_BATCHES && M > 1)
		snprintf(text[1], sizeof text[1], ", %lld micro-batches and their order", M);
	if (f->unsaid & DLB_UNSAID_ASYNC && s && s->async)
		snprintf(text[2], sizeof text[2], ", that steps overlap (schedule '%.40s')", s->name);
	snprintf(line, size, "%s cannot express%s%s%s", f->name, *text[0] ? text[0] + 1 : "",
		 *text[0] || !*text[1] ? text[1] : text[1] + 1,
		 *text[0] || *text[1] || !*text[2] ? text[2] : text[2] + 1);
	return *text[0] || *text[1] || *text[2];
}
