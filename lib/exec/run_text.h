/* Options of dlb-run whose text has a form of its own, such as --slow NODE:FACTOR@STEP. */
#ifndef DLB_EXEC_RUN_TEXT_H
#define DLB_EXEC_RUN_TEXT_H
#include "exec/command.h"
#include "exec/slow.h"

struct dlb_run_text {
	/* as given; NULL: not given */
	const char *until, *rounds, *on_failure, *release;
	struct dlb_strlist slow, groups, freeze;
	/* the parsed options, to which the command's exec options point */
	double *factor;
	int n_factors; /* of --slow: [node] at the start */
	struct dlb_slow_change *change;
	int n_changes, cap_changes; /* in the order of their steps */
	struct dlb_freeze_at *freeze_at; /* in the order of their steps; freeze.n rows and one of zeros */
};

/* Fills the options of c, which use t until dlb_run_text_release. -1: a line has been printed (dlb_cli_usage). */
int dlb_run_text_parse(struct dlb_run_text *t, struct dlb_run_command *c);
void dlb_run_text_release(struct dlb_run_text *t);
#endif
