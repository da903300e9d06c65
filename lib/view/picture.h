/* Shared by the drawings of a step: time-lines of the document, the reason of each gap, and messages between
 * nodes. Spans show only computation; the program shows what a node did between two spans:
 *
 *     COMPUTE a | WAIT t from 1 | WAIT sent | COMPUTE b    the gap between a and b: starved, if t's producer
 *                                                          ended after a did; else backpressure
 *
 * Times are in seconds from the start of the step. */
#ifndef DLB_VIEW_PICTURE_H
#define DLB_VIEW_PICTURE_H
#include "view/view.h"

/* A time-line of the document. */
struct dlb_source {
	const char *name;				/* "predicted", "measured", "simulated" */
	struct dlb_span *const *span; const int *n_spans;	/* [node]; borrowed */
	int n_nodes;
	double end_s;					/* end of the last span, or of the step if later */
};
/* Each returns false if the document has no such time-line. */
bool dlb_view_predicted(const struct dlb_view *v, struct dlb_source *s);
bool dlb_view_measured(const struct dlb_view *v, struct dlb_source *s);
/* Above this ratio of lengths, the shorter of two time-lines on one scale would be unreadable. */
#define DLB_VIEW_FAR 2.5
static inline bool dlb_view_far(double a_s, double b_s)
{
	return a_s > 0 && b_s > 0 && (a_s > DLB_VIEW_FAR * b_s || b_s > DLB_VIEW_FAR * a_s);
}

/* Start and end of each (op, micro-batch) of every replica. */
struct dlb_op_spans {
	int n_ops, micro_batches, n_replicas;
	const struct dlb_plan *plan;
	double *start_s, *end_s;
	int *node;
};
void dlb_op_spans_init(struct dlb_op_spans *w, const struct dlb_view *v, const struct dlb_source *s);
void dlb_op_spans_release(struct dlb_op_spans *w);

/* A gap in a node's time-line. kind: enum dlb_wait; -1: copying, or not measured. peer: sender of
 * the message waited for; -1: none. */
struct dlb_gap { int kind, peer; double start_s, end_s; };
/* Finds the gaps of a node longer than least_s, in order. Returns their number; *out is
 * new. p NULL: every kind is -1. */
int dlb_view_gaps(const struct dlb_view *v, const struct dlb_program *p, const struct dlb_source *s,
		  const struct dlb_op_spans *w, int node, double least_s, struct dlb_gap **out);

/* A message: from the end of the op that makes the tensor to the start of its first reader on another
 * node. */
struct dlb_sending { int from, to, tensor, micro_batch; double start_s, end_s, bytes; };
/* Returns the number of messages, largest first; *out is new. */
int dlb_view_sendings(const struct dlb_view *v, const struct dlb_op_spans *w, struct dlb_sending **out);

/* True if a time-line of the document has messages between nodes. */
bool dlb_view_has_sendings(const struct dlb_view *v);

/* True if the node computes neither in the plan nor in the report. */
bool dlb_view_idle(const struct dlb_view *v, int node);
/* Writes "nodes 3, 5-8: no work" into buf; false, and an empty buf, if every node has work. */
bool dlb_view_idle_nodes(const struct dlb_view *v, int n_nodes, char *buf, size_t n);
#endif
