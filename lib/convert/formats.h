/* Import and export functions of the formats in the table. */
#ifndef DLB_CONVERT_FORMATS_H
#define DLB_CONVERT_FORMATS_H
#include "convert/convert.h"

int dlb_import_dnn_partitioning(const char *text, size_t n, const char *name,
				const struct dlb_convert_options *o, struct dlb_doc *d,
				struct dlb_error *err);
#define EXPORT(name) char *dlb_export_##name(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n, struct dlb_error *err);
EXPORT(dnn_partitioning)
EXPORT(torch_pipelining)
EXPORT(megatron)
EXPORT(rankfile)
EXPORT(hostfile)
EXPORT(sbatch)
EXPORT(smpi)
EXPORT(simgrid)
EXPORT(chakra)
#undef EXPORT
int dlb_import_chakra(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
		      struct dlb_doc *d, struct dlb_error *err);
int dlb_import_hwloc(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
		     struct dlb_doc *d, struct dlb_error *err);
int dlb_import_pipedream(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
			 struct dlb_doc *d, struct dlb_error *err);
#endif
