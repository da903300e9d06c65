/* The progress line of a run: how far it is, how fast, and which node waits for which.
 *
 *     step 1200 of 5000, loss 0.3421, 1834 samples/s, 34.9 ms a step (predicted 33.1 ms), 2:14 left, node 1 waits 12.1 ms for node 0
 *
 * Rank 0 makes the text (watch.c). The process whose standard error the user sees shows it: on a terminal as
 * one line that is rewritten, with a bar if the end is known; elsewhere, with -v alone, as lines of a log, a
 * few seconds apart. */
#ifndef DLB_EXEC_STATUS_H
#define DLB_EXEC_STATUS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { DLB_STATUS_BYTES = 600 };

/* NAN: unknown. Times in seconds; times of a step are means over the last few seconds. */
struct dlb_status {
	/* steps done and to be done, counted from the first start; last_step 0: unknown */
	int64_t step, last_step;
	double loss, samples_per_s, step_s, predicted_s, left_s;
	int waits, waited_for;		/* the node that waits most, and the node it waits for; -1: none */
	double wait_s;			/* of that node, per step */
	const char *event;		/* at this step ("checkpoint 'DIR'"); NULL: none */
};
/* The line without newline; control characters of names are escaped. brief: only step, loss and time left. */
void dlb_status_text(const struct dlb_status *s, bool brief, char text[DLB_STATUS_BYTES]);

/* "34.9 ms", in buf. */
const char *dlb_status_seconds(double s, char buf[32]);

/* A line to show; permanent: it must not be overwritten. */
/* done: of this run's `total` steps; total 0: unknown */
struct dlb_status_told { int64_t done, total; bool permanent; const char *text; };

/* The terminal or log that shows the line. */
struct dlb_status_line {
	FILE *f;
	const char *tool;
	bool off, terminal, verbose, shown;
	int columns;			/* of the terminal */
	double start_s, last_s;
};
void dlb_status_line_open(struct dlb_status_line *l, FILE *f, const char *tool, bool quiet, bool verbose);
void dlb_status_line_show(struct dlb_status_line *l, const struct dlb_status_told *told);
/* Removes the rewritten line, before anything else is printed and at the end. */
void dlb_status_line_clear(struct dlb_status_line *l);
#endif
