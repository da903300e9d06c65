/* Parts of the lower bounds on latency (latency_bound.c, module_bound.c). */
#ifndef DLB_PLACE_LATENCY_BOUND_H
#define DLB_PLACE_LATENCY_BOUND_H
#include <math.h>
#include "place/port.h"

/* node: [kind] one of its nodes; of: [node] its kind; count: [kind] number of nodes; host: [kind] */
struct dlb_latency_kinds {
	int n, *node, *of, *count;
	bool *host;
};

/* Seconds of op v on node d; INFINITY: its class has no kernel there. */
static inline double dlb_latency_work_s(const struct dlb_port *port, int v, int d)
{
	size_t D = (size_t)port->n_nodes, at = (size_t)d;
	return isfinite(port->work_s[(size_t)port->class_of[v] * D + at]) ? port->op_s[(size_t)v * D + at] :
									    INFINITY;
}

/* Seconds of v's output through the port of a node of kind k, in either direction. */
static inline double dlb_latency_pay_s(const struct dlb_port *port, const struct dlb_latency_kinds *kinds,
				       int v, int k)
{
	return kinds->host[k] ?
		       0 :
		       port->out_s[(size_t)v * (size_t)port->n_places + (size_t)port->place[kinds->node[k]]];
}

/* The two least costs of paths, including the send, of different kinds of last node, and the kind of the
 * least. A node that receives can use the second one if the first ended on itself. */
struct dlb_latency_two {
	double s[2];
	int kind;
};
static inline void dlb_latency_offer(struct dlb_latency_two *two, double s, int kind)
{
	if (s < two->s[0]) {
		two->s[1] = two->s[0];
		two->s[0] = s;
		two->kind = kind;
	} else if (s < two->s[1]) {
		two->s[1] = s;
	}
}

/* The least cost of arriving at a node of kind k from another node. Between hosts it is free; hosts are
 * unlimited. */
static inline double dlb_latency_from_other(const struct dlb_latency_two *two,
					    const struct dlb_latency_kinds *kinds, int k)
{
	return two->s[k == two->kind && kinds->count[k] == 1 && !kinds->host[k]];
}

/* The least cost of paths up to the begin of op v on a node of kind k, over the operands for which `in` holds
 * (NULL: all). head: [op][kind]; sent: [op]. */
double dlb_latency_arrive_s(const struct dlb_port *port, const struct dlb_latency_kinds *kinds,
			    const double *head, const struct dlb_latency_two *sent, const bool *in, int v,
			    int k);

/* Sets head of op v, the least cost of paths up to its end on each kind of node, and sent[v]. */
void dlb_latency_reach(const struct dlb_port *port, const struct dlb_latency_kinds *kinds, const bool *in,
		       int v, double *head, struct dlb_latency_two *sent);

/* A lower bound by modules, in seconds (module_bound.c). */
double dlb_latency_modules_bound_s(const struct dlb_port *port, const struct dlb_latency_kinds *kinds);
#endif
