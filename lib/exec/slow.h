/* --slow: a node whose ops last a multiple of what they take here.
 *
 * Where every rank has a core it spins after each op, for (factor - 1) times the CPU time that the op took: a rank that has
 * lost its core meanwhile is not stretched for time that it did not have.
 *
 * Where ranks share cores it sleeps, so that they are free for the others. An op then lasts `factor` times the least CPU time
 * of its last runs: waiting for a core, or for a cache that another rank has filled, is no part of it, as a node of its own
 * would have had both to itself. Sleeps end late, some cost more than the op they follow: what ops owe is added up until
 * somebody else could tell (a message is sent, a place given back, a sum begun), waits are taken off it, and only the rest is
 * slept for, in one piece. What took too long even so is taken off what comes next, up to a limit, or off a wait that it made
 * shorter. */
#ifndef DLB_EXEC_SLOW_H
#define DLB_EXEC_SLOW_H
#include <stdbool.h>
#include <stdint.h>

struct dlb_slow {
	double factor;			/* >= 1; 1: no slower */
	bool sleeps;			/* ranks share cores */
	double owed_s;			/* sleeping: that ops are still to last; < 0: that they have lasted too long */
	double late_s;			/* how late sleeps end, lately */
};
/* The least CPU time of a kernel's runs, now and before. Zeros: none yet. */
struct dlb_least_cpu { uint64_t n; double now_s, before_s; };
/* What is measured of an op: clock times, of the op as it was to last; what it took in truth, and its CPU time. */
struct dlb_op_time { double start_s, end_s, took_s, cpu_s; };

struct dlb_op_time dlb_slow_start(const struct dlb_slow *w);
/* least: of this kernel; NULL: what it took now. */
void dlb_slow_end(struct dlb_slow *w, struct dlb_op_time *t, struct dlb_least_cpu *least);
/* Before anything that others can see. */
void dlb_slow_settle(struct dlb_slow *w);
/* After a wait of s seconds; returns those that are none of an op's. */
double dlb_slow_waited(struct dlb_slow *w, double s);
#endif
