/* --slow: a node whose ops last a multiple of their real time.
 *
 * If every rank has a core, it spins after each op for (factor - 1) times the op's CPU time. CPU time leaves
 * out time in which the rank had lost its core.
 *
 * If ranks share cores, it sleeps, so that the cores are free for the other ranks. An op then lasts `factor`
 * times the least CPU time of its last runs: waiting for a core, or for a cache that another rank has filled,
 * does not count, since a node of its own would have both to itself. Sleeps end late, and a sleep may cost
 * more than the op. So the time owed is added up until another rank can notice it (when a message is sent, a
 * place given back, or a sum started). Waits are subtracted, and the rest is slept in one piece. If ops
 * lasted too long, the excess is subtracted from later ops, up to a limit; a wait, which the excess made
 * shorter, cancels it. */
#ifndef DLB_EXEC_SLOW_H
#define DLB_EXEC_SLOW_H
#include <stdbool.h>
#include <stdint.h>

/* After `step` steps, counted from the first start, the ops of the node last `factor` times as long as before;
 * factor below 1: shorter, but no shorter than without --slow. */
struct dlb_slow_change { int node; double factor; int64_t step; };
/* The node's factor, at least 1, when `step` steps are done: the factor at the start times those of the
 * changes so far. */
double dlb_slow_factor(double start, const struct dlb_slow_change *change, int n, int node, int64_t step);

struct dlb_slow {
	double factor;			/* >= 1; 1: no slower */
	bool sleeps;			/* ranks share cores */
	/* sleeping: seconds that ops still have to last; < 0: seconds that they lasted too long */
	double owed_s;
	double late_s;			/* recent lateness of sleeps */
};
/* The least CPU time of a kernel's runs, in the current and the previous period. Zeros: none yet. */
struct dlb_least_cpu { uint64_t n; double now_s, before_s; };
/* Times of an op: clock times of start and end with the slowed duration; the real duration; the CPU time. */
struct dlb_op_time { double start_s, end_s, took_s, cpu_s; };

struct dlb_op_time dlb_slow_start(const struct dlb_slow *w);
/* least: of this kernel; NULL: uses the op's own CPU time. */
void dlb_slow_end(struct dlb_slow *w, struct dlb_op_time *t, struct dlb_least_cpu *least);
/* Sleeps for the time owed, before an action that other ranks can see. */
void dlb_slow_settle(struct dlb_slow *w);
/* Called after a wait of s seconds: subtracts it from the time owed. Returns the seconds that count as
 * waiting. */
double dlb_slow_waited(struct dlb_slow *w, double s);
#endif
