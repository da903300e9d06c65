/* Which options of dlb-run have nothing to do in the run at hand: rows for dlb_cli_warn_unused (util/cli.h). */
#ifndef DLB_EXEC_UNUSED_H
#define DLB_EXEC_UNUSED_H
#include "exec/exec.h"
#include "util/cli.h"

/* doc: with the options written into it. print_program: nothing is run at all. row[DLB_RUN_UNUSED] ends with option NULL. */
enum { DLB_RUN_UNUSED = 80 };
void dlb_run_unused(const struct dlb_doc *doc, const struct dlb_exec_options *o, bool print_program, struct dlb_unused *row);
#endif
