/* Views of a document for people.
 *
 *   table   all sections in the order of the pipe: model, profile, cluster, plan, report, balance
 *   svg     time-lines per node, the predicted step above the measured one on one scale, waits as gaps;
 *           bars of busy and waiting time; the loss curve
 *   trace   Chrome trace events (opens in Perfetto): one process predicted, one measured, a thread per node
 *   memory  the memory plan: place and lifetime of each tensor, and the total alive, as a drawing
 *   front   step time against memory, as a drawing
 *   dot     the graph for Graphviz, coloured by node
 *   html    all of these as one self-contained page: html.c, its data page_*.c, its script and style in page/
 *
 * A view shows the sections that exist and does not mention absent ones. */
#ifndef DLB_VIEW_VIEW_H
#define DLB_VIEW_VIEW_H
#include "balance/balance.h"
#include "place/place.h"
#include "plan/program.h"

struct dlb_view {
	const struct dlb_doc *doc;		/* borrowed */
	struct dlb_graph graph;
	struct dlb_profile profile;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_plan plan;
	struct dlb_report report;
	struct dlb_balance balance;
	bool has_graph, has_profile, has_cluster, has_cost, has_plan, has_report, has_balance;
	/* the placement changed after dlb-place predicted its times */
	bool edited;
	bool transfers;				/* draw messages as arrows, in formats that can */
};
/* Reads and checks all sections present. */
int dlb_view_read(const struct dlb_doc *d, struct dlb_view *v, struct dlb_error *err);
void dlb_view_release(struct dlb_view *v);

struct dlb_view_format {
	const char *name, *summary;
	int (*write)(const struct dlb_view *v, FILE *f, struct dlb_error *err);
};
extern const struct dlb_view_format dlb_view_formats[];	/* ends with name NULL */
const struct dlb_view_format *dlb_view_format_find(const char *name);
/* Prints why op (id or name) is on its node: a line per node with the predicted cost there. */
int dlb_view_why(const struct dlb_view *v, const char *op, FILE *f, struct dlb_error *err);
/* Prints the differences between two documents of one model; other graphs are refused (diff.c). */
int dlb_view_diff(const struct dlb_view *a, const struct dlb_view *b, FILE *f, struct dlb_error *err);
/* The planning problem of the document's plan: costs, weights, schedule. The caller
 * releases it with dlb_problem_release. */
int dlb_view_problem(const struct dlb_view *v, struct dlb_problem *p, struct dlb_error *err);

/* ---- shared by the formats (units.c) ---- */
/* Formats "12.3 ms", "4.56 s", "1.2 us" into buf; returns buf. */
const char *dlb_view_seconds(double s, char *buf, size_t n);
const char *dlb_view_bytes(double bytes, char *buf, size_t n);
const char *dlb_view_flop(double flop, char *buf, size_t n);
/* Escapes every name in v for display; the last step of dlb_view_read (names.c). */
void dlb_view_show_names(struct dlb_view *v);
/* Writes text with XML's escapes (svg.c). */
void dlb_view_escaped(FILE *f, const char *s);
/* Compiles the program of the document's plan (memory.c). */
int dlb_view_program(const struct dlb_view *v, struct dlb_program *p, struct dlb_error *err);
/* Percent by which a node's arena exceeds its maximum of memory alive. */
static inline double dlb_view_over(const struct dlb_node_program *np)
{
	return np->bound_bytes ? 100 * ((double)np->arena_bytes / (double)np->bound_bytes - 1) : 0;
}
const char *dlb_view_phase_name(const struct dlb_view *v, int op);
/* True if the report's optimizer is not the plan's. */
bool dlb_view_other_optimizer(const struct dlb_view *v);
#endif
