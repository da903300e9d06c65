/* The options of dlb-run. */
#ifndef DLB_EXEC_RUN_OPTIONS_H
#define DLB_EXEC_RUN_OPTIONS_H
#include "exec/command.h"
#include "exec/run_text.h"

/* Parses the arguments of c into c and t. cli: c's. The caller frees c->drain.item. Returns 0; else
 * cli->status is the exit status. */
int dlb_run_options_parse(struct dlb_cli *cli, struct dlb_run_command *c, struct dlb_run_text *t);
#endif
