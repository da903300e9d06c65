/* The command dlb-run, from its parsed options to its exit status. command.c reads the document and writes
 * the result, rank.c runs one of several ranks, plain.c runs a process that was started without mpirun or
 * srun. */
#ifndef DLB_EXEC_COMMAND_H
#define DLB_EXEC_COMMAND_H
#include "exec/exec.h"
#include "exec/section.h"
#include "plan/plan.h"
#include "plan/sharing.h"
#include "util/cli.h"

struct dlb_run_command {
	const struct dlb_cli *cli;
	int argc; char **argv;
	const char *folder;	/* folder of the parent that started this rank (launch.h); NULL: no parent */
	bool remote;		/* that parent may be on another host */
	struct dlb_exec_options exec;
	struct dlb_run_edit edit;		/* options that are written into the document */
	struct dlb_sharing_options sharing;
	bool print_program;
	/* Called on rank 0 after a round, whose report is in doc. Sets *d and, with d->moves, doc's plan
	 * (balance/live.h) */
	int (*rebalance)(void *live, const struct dlb_cli *cli, struct dlb_doc *doc, struct dlb_round_decision *d,
			 struct dlb_error *err);
	void *live;
	struct dlb_strlist drain;		/* --drain: numbers of nodes */
	/* --on-failure replan, --drain: makes a new plan without the nodes of lost[n] (balance/survive.h) */
	int (*survive)(const struct dlb_cli *cli, struct dlb_doc *doc, const bool *lost, int n, char text[256],
		       struct dlb_error *err);
	bool releases; /* --release idle */
	/* makes a new plan without unneeded nodes (balance/release.h) */
	int (*release)(const struct dlb_cli *cli, struct dlb_doc *doc, char text[400], struct dlb_error *err);
	/* --freeze-at: freezes weights in doc (balance/freeze.h); live: as above */
	int (*freeze)(void *live, const struct dlb_cli *cli, struct dlb_doc *doc, const char *const *glob,
		      int n, char *text, struct dlb_error *err);
	/* adds to err a hint of options that fit into memory (balance/replan_memory.h) */
	void (*memory_cure)(const struct dlb_cli *cli, const struct dlb_doc *doc,
			    const struct dlb_memory_case *x, struct dlb_error *err);
	const char *scenario;			/* --scenario: a file; NULL: none */
	/* simulates rounds of the scenario (balance/scenario.h) */
	int (*play)(const struct dlb_cli *cli, struct dlb_doc *doc, const struct dlb_exec_options *o,
		    const char *path, struct dlb_report *report, struct dlb_error *err);
	char init_text[32];			/* the text of exec.init */
};

/* Reads the document from the operand or standard input. */
int dlb_command_read(const struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err);
/* Writes the options into the document and fills c->exec from it; doc owns the strings. Warns of options
 * without effect. -1 with err: doc is released. */
int dlb_command_edit(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err);
/* The reason why the programs of this plan cannot change inside a run: replicas have a parameter server,
 * or --compress auto chooses the compression. NULL: they can change. */
const char *dlb_command_fixed_plan(const struct dlb_doc *doc);
/* Whether replicas average weights. */
bool dlb_command_averages(const struct dlb_doc *doc);
/* Whether sums are compressed by a method that keeps residuals. */
bool dlb_command_remembers(const struct dlb_doc *doc);
/* Whether the plan has an asynchronous schedule. */
bool dlb_command_is_async(const struct dlb_doc *doc);
/* Adds the report to doc and writes doc to f. */
int dlb_command_write(const struct dlb_run_command *c, struct dlb_doc *doc, const struct dlb_report *report,
		      FILE *f, struct dlb_error *err);
/* Calls dlb_exec_run (also for *paused). Shows progress on standard error, or sends it to the parent. With
 * --rounds doc gets a balance and new plans. */
int dlb_command_exec(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc,
		     struct dlb_report *report, bool *paused, int *who, struct dlb_error *err);
/* Copies these sections of rank 0's doc to the other ranks, in this order; sections that rank 0 lacks are
 * skipped. Collective. */
int dlb_command_share(struct dlb_comm *comm, struct dlb_doc *doc, const char *const *section, int n,
		      struct dlb_error *err);
/* Prints err as the line of rank `rank` (-1: of no rank), or sends it to the parent. Returns the exit
 * status. */
int dlb_command_print_error(const struct dlb_run_command *c, int rank, const struct dlb_error *err);

/* Run dlb-run from start to end: as one of several ranks; as a process that was started without mpirun or
 * srun. Both return the exit status and print the one line of an error. */
int dlb_command_rank(struct dlb_run_command *c);
int dlb_command_plain(struct dlb_run_command *c);
#endif
