/* Options of dlb-run that have no effect in this run: rows for dlb_cli_warn_unused (util/cli.h). */
#ifndef DLB_EXEC_UNUSED_H
#define DLB_EXEC_UNUSED_H
#include "exec/exec.h"
#include "util/cli.h"

/* doc: with the options written into it. print_program: no step is run. scenario: of --scenario, or NULL.
 * row[DLB_RUN_UNUSED] ends with option NULL. */
enum { DLB_RUN_UNUSED = 90 };
void dlb_run_unused(const struct dlb_doc *doc, const struct dlb_exec_options *o, bool print_program,
		    const char *scenario, struct dlb_unused *row);
#endif
