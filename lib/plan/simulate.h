/* The state of a simulation, shared by the simulator's files: simulate.c (the loop), simulate_time.c (compute
 * times of a node), simulate_transfer.c (messages over links), simulate_collective.c (sums over replicas,
 * norms), simulate_offload.c (copies of offloaded data). Times are in seconds from the beginning of the
 * step. */
#ifndef DLB_PLAN_SIMULATE_H
#define DLB_PLAN_SIMULATE_H
#include "plan/feed_load.h"
#include "plan/flow.h"
#include "plan/timeline.h"

enum { EV_NODE, EV_FLOW, EV_END };			/* event id: index * 4 + one of these */

struct route {
	int from, to, n;
	struct dlb_direction direction[DLB_MAX_ROUTE];
	double latency_s;
	bool copies;
};
/* A direction that a flow uses, the flow's position in the direction's list, and its load: the fraction of
 * its time in which a sum uses the direction. */
struct passage { struct dlb_direction direction; double load; int pos; };
/* A message or a sum. The bytes of a sum are its seconds without other traffic, at rate 1. */
struct flow {
	struct passage *passage; int n;			/* set while it flows */
	/* bytes: remaining at time `since`; of a message on only one direction: see struct flows */
	double bytes, rate, since, end_s;
	double event_s;					/* time of its one valid EV_END: not after end_s */
	double begin_s;
	bool is_sum, done;
};
struct message {
	struct flow flow;
	int from, to, route;
	bool sent, posted, started, returned;		/* returned: freed by its receiver, or copied */
	int next;					/* in the sender's list of messages to copy */
};
/* The flows on a direction. bytes: remaining bytes, at time `since`, of messages that use only this direction
 * and so have the same rate; INFINITY for the n_wide other flows. share: the rate of a message; sums_load,
 * sums_squares: the loads of all sums added, and their squares added. */
struct flows {
	int *flow;
	double *bytes;
	int n, n_wide, n_sums, cap;
	double sums_load, sums_squares, share, rate, since;
};
/* next: the part's next sum in line, -1: none */
struct sum { struct flow flow; int part, index, started, waiting, next; bool needs_cores; };
/* number of nodes that have summed their squares, and the time of the last node */
struct squares { int n; double at_s; };
struct sim_node {
	int pc, ends;
	/* asynchronous: times before the first step that counts; at the end, times per step that counts */
	struct dlb_node_times from;
	double now, wait_from, overhead_s;
	int wait_kind, waits_for;			/* enum dlb_wait, -1: it copies; message, -1: none */
	/* first message of the list to copy; the message being copied; -1: none */
	int copies, copying;
	bool stands;					/* blocked in a collective */
	/* [place] time at which the last copy of offloaded data from or to it ends; NULL: nothing is
	 * offloaded */
	double *copied_s;
};
struct sim {
	const struct dlb_program *g;
	struct dlb_flow *f;				/* [replica] */
	const struct dlb_cost *c;
	const struct dlb_simulate_choice *choice;
	/* [node] its part; [part][bucket * M + m], m 0 for gradients */
	int *part; struct sum **sum, *all_sums;
	int n_parts;					/* parts with sums */
	int *waits_for_sum;				/* [node] index of the sum; -1: none */
	/* [part] last queued sum (sums run one after another); -1: none */
	int *last_in_line;
	/* sync: number of nodes that have computed, and number of nodes that will */
	int at_command, n_commands; bool *commanded; double command_s;
	struct message *msg; int n_msgs; struct passage *passage;
	/* messages of tag k: tag_start[k] .. tag_start[k+1] */
	int *tag_start;
	struct route *route;
	int n_routes, cap_routes;
	int *route_of, n_slots; /* hash table of (from, to): index + 1; 0: free */
	struct flows *direction; int n_directions;
	struct sim_node *node;
	struct dlb_heap event;
	struct dlb_timeline *t; int *span_cap;
	int at_end, at_norm; double end_s;
	struct squares *squares; int *waits_for_norm;	/* asynchronous: [step]; [node] step, -1: none */
	/* asynchronous: times count from the end of step `from` to the end of step `to` */
	int from, to; double from_s, to_s;
	struct dlb_feed_load feed;
	double *memory_s; /* [memory of the cluster] time at which its last copy ends */
};

/* ---- simulate_time.c ---- */
double dlb_sim_compute_s(const struct sim *s, int node, const struct dlb_instr *in);
/* Seconds of the sum of squares of the node's gradients, each of which is read once. */
double dlb_sim_square_sum_s(const struct sim *s, int node);
/* Seconds of the allreduce of one number per parameter, up and down a tree. */
double dlb_sim_norm_s(const struct sim *s);

/* ---- simulate_offload.c ---- */
void dlb_sim_find_offloaded(struct sim *s);
void dlb_sim_release_offloaded(struct sim *s);
/* FETCH or STORE: begins a copy, which follows the copies that its memory has begun. */
void dlb_sim_copy_offloaded(struct sim *s, int node, const struct dlb_instr *in);
/* FETCHED or STORED: the node waits for the end of that copy. */
void dlb_sim_wait_offloaded(struct sim *s, int node, const struct dlb_instr *in);

/* ---- simulate_transfer.c ---- */
int dlb_sim_route(struct sim *s, int from, int to);		/* index; computed once */
void dlb_sim_find_messages(struct sim *s);
int dlb_sim_find_message(const struct sim *s, int from, int to, int tag);	/* -1: none */
/* If message k is sent and posted: starts it, or lists it for the sender to copy when it waits or ends an
 * op. */
void dlb_sim_meet(struct sim *s, int k, double now);
void dlb_sim_begin_copy(struct sim *s, int k, double now);	/* the sender begins to copy message k */
/* the latency of message k is over: its bytes begin to flow */
void dlb_sim_flow(struct sim *s, int k, double now);
void dlb_sim_begin_sum(struct sim *s, struct sum *x, double now);	/* bytes and passages are set */
void dlb_sim_end(struct sim *s, int k, double now);		/* the last byte of flow k may have arrived */
/* zero-copy message k is returned by its receiver; k -1: no message */
void dlb_sim_return(struct sim *s, int k, double now);

/* ---- simulate_collective.c ---- */
void dlb_sim_find_sums(struct sim *s);
void dlb_sim_release_sums(struct sim *s);
void dlb_sim_sum_ended(struct sim *s, struct sum *x, double now);
/* A COLLECTIVE of the replicas. True if node is blocked; it continues at a later event. */
bool dlb_sim_meet_others(struct sim *s, int node, const struct dlb_instr *in);
/* The global norm, or K-FAC's trust region: a barrier. The node is blocked; the last one to arrive releases all
 * nodes by events. */
void dlb_sim_norm(struct sim *s, int node, bool trust);
/* Asynchronous: the sum of squares starts when the last node has summed its own. True if node is blocked. */
bool dlb_sim_norm_of_step(struct sim *s, int node, const struct dlb_instr *in);
#endif
