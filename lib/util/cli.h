/* Options, messages, start and end of a tool.
 *
 * One table of rows defines the parser and the --help text; tests compare the manual with it:
 *
 *     const char *algorithm = NULL; bool list = false;
 *     const struct dlb_opt opts[] = {
 *             { 'a', "algorithm", DLB_OPT_STR, &algorithm, "NAME", "placement algorithm" },
 *             { 0, "list", DLB_OPT_FLAG, &list, NULL, "list the algorithms" },
 *     };
 *     struct dlb_cli cli = { .tool = "dlb-place", .usage = "[OPTION...] [FILE]",
 *             .summary = "place every op on a node", .opts = opts, .n_opts = DLB_LEN(opts),
 *             .max_operands = 1 };
 *     if (dlb_cli_parse(&cli, argc, argv)) return cli.status;
 *
 * --help, --version, -q/--quiet, -v/--verbose and --max-document (util/input.h) are added to
 * every table. Long options take =VALUE or the next word; abbreviations are not accepted. "--"
 * ends the options; "-" is an operand. */
#ifndef DLB_UTIL_CLI_H
#define DLB_UTIL_CLI_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "util/error.h"

#define DLB_VERSION "0.1.0"

enum dlb_opt_type {
	DLB_OPT_FLAG,		/* bool */
	DLB_OPT_STR,		/* const char *, borrowed from argv */
	DLB_OPT_INT,		/* int64_t */
	DLB_OPT_REAL,		/* double */
	DLB_OPT_BYTES,		/* int64_t; 500, 64K, 10M, 2G; K is 1024 */
	DLB_OPT_LIST,		/* struct dlb_strlist: every occurrence is appended */
};
struct dlb_strlist { const char **item; int n; };

struct dlb_opt {
	char letter;			/* 0: none */
	const char *name;		/* long name without dashes */
	enum dlb_opt_type type;
	void *value;			/* the destination; holds the default before parsing */
	const char *arg;		/* name of the argument in --help; NULL for flags */
	const char *help;		/* one line, lower case, no full stop */
	bool *given;			/* NULL, or set true if the option was given */
	double min, max;		/* for INT and REAL; both 0: no limits */
};

enum { DLB_MOST_GIVEN = 256 };
struct dlb_cli {
	const char *tool, *usage, *summary;
	const struct dlb_opt *opts;
	int n_opts;
	int max_operands;
	/* set by dlb_cli_parse */
	const char *operands[8];
	int n_operands;
	bool quiet, verbose;
	const char *given[DLB_MOST_GIVEN];	/* names of given options, in order */
	int n_given;
	int status;			/* exit status when parse returned non-zero (0 after --help) */
};

/* Returns 0 to go on. Otherwise main returns cli->status: help or version was printed (0), or a usage error
 * as one line on stderr that ends in "; try 'TOOL --help'" (2). */
int dlb_cli_parse(struct dlb_cli *cli, int argc, char **argv);
/* Prints a usage error found after parsing; returns 2. */
int dlb_cli_usage(const struct dlb_cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether text is a number from 1 to most, and nothing else; *n: the number. For options that also take a word. */
bool dlb_cli_is_count(const char *text, int64_t most, int64_t *n);
/* Prints err as the tool's line on stderr; returns err->status (1 or 2). */
int dlb_cli_die(const struct dlb_cli *cli, const struct dlb_error *err);
/* Prints "TOOL: message" on stderr unless quiet; dlb_cli_say needs -v. */
void dlb_cli_warn(const struct dlb_cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dlb_cli_say(const struct dlb_cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* An option that has no effect in this plan or run if `unused`, and why. A table ends with option NULL. */
struct dlb_unused { const char *option; bool unused; const char *why; };
bool dlb_cli_given(const struct dlb_cli *cli, const char *option);
/* Warns of each given option that has a row with `unused`, with the first such row's reason: "--chunks has no
 * effect: the schedule is 1f1b". */
void dlb_cli_warn_unused(const struct dlb_cli *cli, const struct dlb_unused *row);
/* Flushes and closes stdout. Returns 0; 2 after one line on stderr if that fails (full disk). */
int dlb_cli_close_stdout(const struct dlb_cli *cli);
void dlb_cli_release(struct dlb_cli *cli);

/* Progress line (\r) on stderr, only on a terminal and after a second. total 0: unknown. */
struct dlb_progress { const char *what; double start_s, last_s; bool shown, off; };
void dlb_progress_start(struct dlb_progress *p, const char *what, bool quiet);
void dlb_progress_update(struct dlb_progress *p, int64_t done, int64_t total, const char *extra);
void dlb_progress_end(struct dlb_progress *p);
#endif
