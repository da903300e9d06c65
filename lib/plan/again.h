/* Ops that run again: an activation is dropped after its last use in the forward phase and computed again, just
 * before its first use in the backward phase, from tensors that are kept.
 *
 * plan->again[op] marks such forward ops. For every micro-batch m the compiler adds a second COMPUTE (op, m) with
 * `again` set, on the op's node, before the first backward op there that needs it. Outputs then have two lives,
 * with a place each: the first, (tensor, m), and the second, (tensor, M + m). Backward ops on the op's node, and
 * ops that run again there, read the second life; all others (forward ops, messages to other nodes, sums) read the
 * first. A tensor received from another node is kept there until its last reader.
 *
 * The second run computes the same bits: the same kernel, random key (seed, vertex, step, sample) and
 * samples. It has no other effect: the running statistics that it would update are written to a separate
 * place, and its loss is not added. */
#ifndef DLB_PLAN_AGAIN_H
#define DLB_PLAN_AGAIN_H
#include "plan/program.h"

static inline bool dlb_plan_runs_again(const struct dlb_plan *p, int op)
{
	return (p->again && p->again[op]) || (p->far && p->far[op] == DLB_FAR_VIEW);
}
/* Whether some op is marked in p->again. */
static inline bool dlb_plan_runs_any_again(const struct dlb_plan *p)
{
	for (int i = 0; p->again && i < p->n_ops; i++)
		if (p->again[i])
			return true;
	return false;
}
/* Whether some op may run again, or have its outputs offloaded. */
static inline bool dlb_plan_has_again(const struct dlb_plan *p) { return p->again || p->far; }
/* Smallest output, in bytes for a micro-batch, that is offloaded: copying a smaller one costs more than its
 * place. */
enum { DLB_FAR_LEAST = 4096 };
/* Whether the outputs of op are kept in another memory (offload.h): their second life is fetched. */
static inline bool dlb_plan_is_far(const struct dlb_plan *p, int op) { return p->far && p->far[op] >= 0; }
/* Whether op (its second run with `again`) reads the second life of tensor t. */
bool dlb_plan_reads_again(const struct dlb_plan *p, const struct dlb_graph *g, int op, bool again, int t);
/* Whether input i of op is a running statistic that the op updates. */
bool dlb_op_updates_input(const struct dlb_graph *g, int op, int i);
/* Whether pattern matches the name of op or of one of its outputs. */
bool dlb_op_is_named(const struct dlb_graph *g, int op, const char *pattern);
/* Whether a backward op reads an output of op, or a view of an output. */
bool dlb_op_has_backward_use(const struct dlb_graph *g, int op);
/* Why op cannot run again under plan p, as the end of a message; NULL: it can. */
const char *dlb_plan_keeps_op(const struct dlb_plan *p, const struct dlb_graph *g, int op);
/* Whether a backward op, or an op that runs again, on op's node needs op's second run. */
bool dlb_plan_needs_again(const struct dlb_plan *p, const struct dlb_graph *g, int op);
/* Whether an op on the producer's node reads the second life of tensor t, an output of an op that is
 * offloaded or runs again. */
bool dlb_plan_is_read_again(const struct dlb_plan *p, const struct dlb_graph *g, int t);
/* Checks that the ops of p->again can run again and that their second runs are needed. 0, or -1 with err. */
int dlb_plan_check_again(const struct dlb_plan *p, const struct dlb_graph *g, struct dlb_error *err);

/* The micro-batch number of the second life of (t, m) in a program's places. */
static inline int dlb_second_life(const struct dlb_program *g, int m) { return g->micro_batches + m; }
/* The micro-batch number of the place from which instruction `in` reads tensor t (out: to which it writes
 * t). */
int dlb_instr_life(const struct dlb_program *g, const struct dlb_instr *in, int t, bool out);
#endif
