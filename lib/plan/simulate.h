/* The state of one simulation, which the files of the simulator share: simulate.c (its loop), simulate_time.c (what a node
 * computes), simulate_transfer.c (messages over links), simulate_collective.c (sums over replicas, norms). Times in
 * seconds from the step's beginning. */
#ifndef DLB_PLAN_SIMULATE_H
#define DLB_PLAN_SIMULATE_H
#include "plan/flow.h"

enum { EV_NODE, EV_FLOW, EV_END };			/* event id: index * 4 + one of these */

struct route { int from, to, n; struct dlb_direction direction[DLB_MAX_ROUTE]; double latency_s; bool copies; };
/* Where a flow goes: a direction, its place in the direction's list, and how much of a flow it is there: a sum keeps some of its directions
 * busy for a part of its time only. */
struct passage { struct dlb_direction direction; double load; int pos; };
/* A message, or a sum: its bytes are the seconds that it takes alone, its rate is 1 then. */
struct flow {
	struct passage *passage; int n;			/* while it flows */
	double bytes, rate, since, end_s;		/* bytes: still to flow at time `since`; on one direction alone it keeps them */
	double event_s;					/* when its one valid EV_END comes: not after end_s */
	double begin_s;
	bool is_sum, done;
};
struct message {
	struct flow flow;
	int from, to, route;
	bool sent, posted, started, returned;		/* returned: by its receiver, or copied */
	int next;					/* in the sender's list of what it must copy */
};
/* What flows on a direction. bytes: as a message's, but at the direction's `since`, for all that flow on this direction alone do so at one
 * rate; INFINITY for the n_wide others. share: of a message; sums_load, sums_squares: of their loads
 * there, and of the squares of these. */
struct flows { int *flow; double *bytes; int n, n_wide, n_sums, cap; double sums_load, sums_squares, share, rate, since; };
struct sum { struct flow flow; int part, index, started, waiting, next; bool needs_cores; };	/* next: of its part to begin */
struct squares { int n; double at_s; };			/* nodes that have made them; the last one */
struct sim_node {
	int pc, ends;
	struct dlb_node_times from;			/* asynchronous: up to the first step that counts */
	double now, wait_from;
	int wait_kind, waits_for;			/* enum dlb_wait, -1: it copies; message, -1 */
	int copies, copying;				/* list of messages to copy; the last one begun, -1 */
	bool stands;					/* in a collective */
};
struct sim {
	const struct dlb_program *g;
	struct dlb_flow *f;				/* [replica] */
	const struct dlb_cost *c;
	const double *scale;
	int *part; struct sum **sum, *all_sums;		/* [node] its part; [part][bucket * M + m], m 0 for gradients */
	int n_parts;					/* that have sums */
	int *waits_for_sum;				/* [node] index of it, -1 */
	int *last_in_line;				/* [part] its sums go one after another: index, -1 */
	int at_command, n_commands; bool *commanded; double command_s;	/* sync: nodes that have computed, of how many */
	double jitter; uint64_t seed;
	struct message *msg; int n_msgs; struct passage *passage;
	int *tag_start;					/* messages of tag k: tag_start[k] .. tag_start[k+1] */
	struct route *route; int n_routes, cap_routes; int *route_of;	/* [from * nodes + to]: index + 1 */
	struct flows *direction; int n_directions;
	struct sim_node *node;
	struct dlb_heap event;
	struct dlb_timeline *t; int *span_cap;
	int at_end, at_norm; double end_s;
	struct squares *squares; int *waits_for_norm;	/* asynchronous: [step]; [node] step, -1 */
	int from, to; double from_s, to_s;		/* asynchronous: times count from the end of step `from` to that of `to` */
	struct dlb_feed_load feed;
};

/* ---- simulate_time.c ---- */
double dlb_sim_compute_s(const struct sim *s, int node, const struct dlb_instr *in);
/* Of the sums of squares here: the gradients are read once. */
double dlb_sim_square_sum_s(const struct sim *s, int node);
/* Of the allreduce of a number a parameter, as a tree up and down. */
double dlb_sim_norm_s(const struct sim *s);

/* ---- simulate_transfer.c ---- */
int dlb_sim_route(struct sim *s, int from, int to);		/* index; found once */
void dlb_sim_find_messages(struct sim *s);
int dlb_sim_find_message(const struct sim *s, int from, int to, int tag);	/* -1: none */
/* Sent and posted: on its way, or in the sender's list of what it will copy when it waits or has ended an op. */
void dlb_sim_meet(struct sim *s, int k, double now);
void dlb_sim_begin_copy(struct sim *s, int k, double now);	/* the sender begins to copy message k */
void dlb_sim_flow(struct sim *s, int k, double now);		/* message k: its first byte is through */
void dlb_sim_begin_sum(struct sim *s, struct sum *x, double now);	/* with its bytes and passages */
void dlb_sim_end(struct sim *s, int k, double now);		/* of flow k the last byte may be */
void dlb_sim_return(struct sim *s, int k, double now);		/* the last reader of zero-copy message k has run; -1: no message */

/* ---- simulate_collective.c ---- */
void dlb_sim_find_sums(struct sim *s);
void dlb_sim_release_sums(struct sim *s);
void dlb_sim_sum_ended(struct sim *s, struct sum *x, double now);
/* COLLECTIVE of the replicas: true when node stands and will be called again. */
bool dlb_sim_meet_others(struct sim *s, int node, const struct dlb_instr *in);
/* The global norm, or K-FAC's trust region: all wait for all. True while node must; the last one sends all on their way. */
bool dlb_sim_norm(struct sim *s, int node, bool trust);
/* Asynchronous: the sum of squares is under way from when the last node has made its own. True when node stands. */
bool dlb_sim_norm_of_step(struct sim *s, int node, const struct dlb_instr *in);
#endif
