/* The port model of placement: a node's load is its computing plus the transfer of each tensor that it
 * sends or receives, once each; a host transfers for free (cluster.h). Two objectives (Tarnawski et al.,
 * NeurIPS 2020):
 *
 *   throughput  seconds per step of a saturated pipeline, the load of the most loaded node:
 *                   load(d) = sum of the work on d
 *                           + sum of c(t) over tensors t made on d and read elsewhere     (sent once)
 *                           + sum of c(t) over tensors t made elsewhere and read on d     (received once)
 *   latency     seconds of one batch by itself. The ops of a node form calls: all ops on it with the same
 *               number of visits (the most separate runs of the node on any path that ends there) are one
 *               call, which waits for all its inputs, then receives, computes and sends. Ops on the host run
 *               as soon as their inputs are there, on as many cores as needed. A placement whose calls
 *               deadlock has no latency.
 *
 * A class is the unit of moves: all ops that must share a node (a group of the problem). A net is a tensor
 * with the classes that read it. Transfers are counted by place: a node with a port, or the whole host. */
#ifndef DLB_PLACE_PORT_H
#define DLB_PLACE_PORT_H
#include <stdbool.h>
#include <stdint.h>
#include "util/error.h"
#include "util/mem.h"

struct dlb_problem;
struct dlb_port {
	struct dlb_arena arena;
	int n, n_nodes, n_places, n_nets;
	double *work_s;				/* [class][node]; INFINITY: no kernel */
	double *bytes, *room_bytes;		/* [class], [node] */
	int *place;				/* [node] */
	bool *host;				/* [place] pays nothing */
	int *source, *sink_start, *sink;	/* [net], [net + 1], classes other than the source */
	double *net_s;				/* [net][place] */
	int *touch_start, *touch;		/* nets of a class: 2 * net + (1 if it is the source) */
	/* ops, in topological order, for latency */
	int n_ops, *class_of, *pred_start, *pred, *succ_start, *succ;
	double *op_s, *out_s;			/* [op][node], [op][place] */
	/* successors in the class graph of forward ops, for contiguity */
	int *forward_start, *forward;
};
/* weighted: ranked times (under node weights), else stated ones. */
void dlb_port_init(struct dlb_port *port, const struct dlb_problem *p, bool weighted);
void dlb_port_release(struct dlb_port *port);
/* Loads of at[class] = node, seconds, into load[n_nodes] (may be NULL); returns the greatest. */
double dlb_port_throughput_s(const struct dlb_port *port, const int *at, double *load);
/* Seconds of one batch; INFINITY: calls deadlock. finish[op]: end times, may be NULL. */
double dlb_port_latency_s(const struct dlb_port *port, const int *at, double *finish);
/* The same with reusable storage, for searches. */
struct dlb_calls {
	const struct dlb_port *port;
	uint16_t *visit;			/* [op][place] */
	int *id, *call, *start, *member, *waits, *ready, *fed;
	double *begin;
};
void dlb_calls_init(struct dlb_calls *w, const struct dlb_port *port);
void dlb_calls_release(struct dlb_calls *w);
double dlb_calls_latency_s(struct dlb_calls *w, const int *at, double *finish);
/* The largest shortage of memory of a node, in bytes; INFINITY: a class has no kernel on its node. 0:
 * valid. */
double dlb_port_lack_bytes(const struct dlb_port *port, const int *at, int *node);
/* Seconds of a net through the slowest port. */
double dlb_port_net_s(const struct dlb_port *port, int net);
/* Whether two nodes have equal work, memory and transfers. */
bool dlb_port_alike(const struct dlb_port *port, int a, int b);
/* Divides nodes into kinds of equal nodes: kind_of[node]; first[kind], its first node. Returns the number of
 * kinds. */
int dlb_port_kinds(const struct dlb_port *port, int *kind_of, int *first);

/* Contracts each class that has no work and only one neighbour into that neighbour, on whose node it costs
 * nothing: map[class] -> class of `coarse`. If memory might bind, only classes of 0 bytes are contracted. */
void dlb_port_contract(const struct dlb_port *port, struct dlb_port *coarse, int *map);
/* Joins the classes of each chain into one: map[class] -> class of `coarse`. In a chain each class is the
 * only successor of the class before it, which is its only predecessor. A joined class is small enough for
 * the smallest node to have room for n_chains of that size. A chain is cut where a class sends less than its
 * neighbours in the chain. (chains.c) */
void dlb_port_join_chains(const struct dlb_port *port, int n_chains, struct dlb_port *coarse, int *map);
/* Merges classes into n: map[class] -> coarse class. -1: left out (a class without edges and nets; its ops
 * get class_of -1). */
void dlb_port_coarsen(const struct dlb_port *port, const int *map, int n, struct dlb_port *coarse);
/* The same from to[class], the class that it joined, or itself; sets map. dlb_port_root follows to[] from c
 * to the class that joined no other. */
void dlb_port_merge(const struct dlb_port *port, const int *to, struct dlb_port *coarse, int *map);
int dlb_port_root(const int *to, int c);

/* ---- certified lower bounds (port_bound.c, latency_bound.c): no placement's value is less ---- */
double dlb_port_bound_s(const struct dlb_port *port, bool latency);
double dlb_latency_bound_s(const struct dlb_port *port);	/* up to rounding */
/* Work over speed: a lower bound on the greatest load of every assignment of groups, or of fractions of
 * groups, to nodes that fits their memory; at least a group's time on its best node. time_s[group][node],
 * INFINITY: no kernel; bytes[group], room_bytes[node]. (bound.c) */
double dlb_load_bound_s(const double *time_s, const double *bytes, const double *room_bytes, int n_groups,
			int n_nodes);
/* Finds prices y[kind] >= 0 of a node's second, sum of count * y = 1, with a large sum over groups of min
 * over kinds of y * time. Returns that sum, a lower bound on every placement's greatest load.
 * time_s[group][kind]. (bound.c) */
double dlb_load_prices(const double *time_s, int n_groups, const int *count, int n_kinds, double *y);
#endif
