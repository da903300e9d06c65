/* Faults of a plan, as placers might make them: each is refused with the member that is wrong, in exact words.
 * The plan is of two ops in a chain with a weight each, on two nodes. */
#include "check.h"
#include "random_dag.h"
#include "plan/program.h"
#include "plan/schedule.h"

static struct dag d;

/* Ops f0, f1, b1, b0, u0, u1: the first graph of two ops that both have a weight. */
static void make_graph(void)
{
	struct dag_options o = {
		.seed = 3, .n_forward = 2, .training = true, .chain = true, .cluster = "cpu:2", .batch = 8
	};

	dag_init(&d, &o);
	while (d.g.n_ops < 6) {
		dag_release(&d);
		o.seed++;
		dag_init(&d, &o);
	}
}

static void make_plan(struct dlb_plan *p)
{
	dlb_plan_init(p, 6, 2);
	p->graph = &d.g;
	p->batch = 8;
	p->micro_batches = 2;
	for (int i = 0; i < 6; i++)
		p->placement[i] = (d.g.op[i].phase == DLB_FORWARD ? i : d.g.op[i].of) == 1;
	dlb_schedule_order(p, &d.c, dlb_schedule_find("1f1b"), NULL);
}

static int at(const struct dlb_plan *p, int node, int op, int m)
{
	for (int i = 0; i < p->node[node].n_order; i++)
		if (p->node[node].order[i].op == op && p->node[node].order[i].micro_batch == m)
			return i;
	assert(false);
	return -1;
}

/* ---- the faults; each returns the place of the item that is wrong, in `order` of node 0, or -1 ---- */

static int too_few_ops(struct dlb_plan *p) { return p->n_ops--, -1; }
static int too_many_nodes(struct dlb_plan *p) { return p->n_nodes++, -1; }
static int no_micro_batch(struct dlb_plan *p) { return p->micro_batches = 0, -1; }
static int no_sample(struct dlb_plan *p) { return p->batch = 0, -1; }
static int nine_micro_batches(struct dlb_plan *p) { return p->micro_batches = 9, -1; }
static int before_nodes(struct dlb_plan *p) { return p->placement[0] = -1, -1; }
static int behind_nodes(struct dlb_plan *p) { return p->placement[0] = 2, -1; }
static int apart(struct dlb_plan *p) { return p->placement[4] = 1, -1; }

static int no_kernel(struct dlb_plan *p)
{
	(void)p;
	for (int b = 0; b < d.c.n_batches; b++)
		d.c.op_s[3 * d.c.n_batches + b] = INFINITY;
	return -1;
}

static int no_op(struct dlb_plan *p) { return p->node[0].order[2].op = 6, 2; }
static int negative_op(struct dlb_plan *p) { return p->node[0].order[0].op = -1, 0; }

static int elsewhere(struct dlb_plan *p)
{
	const int i = at(p, 0, 0, 0);
	p->node[0].order[i].op = 1;
	return i;
}

static int too_early(struct dlb_plan *p)
{
	const int i = at(p, 0, 0, 0);
	p->node[0].order[i].micro_batch = 1;
	return i;
}

static int update_of_one(struct dlb_plan *p)
{
	const int i = at(p, 0, 4, -1);
	p->node[0].order[i].micro_batch = 0;
	return i;
}

static int again(struct dlb_plan *p)
{
	const int i = at(p, 0, 4, -1);
	p->node[0].order[i] = (struct dlb_item){ 0, 1 };
	return i;
}

static int absent(struct dlb_plan *p)
{
	const int i = at(p, 0, 0, 1), n = --p->node[0].n_order;
	memmove(p->node[0].order + i, p->node[0].order + i + 1, (size_t)(n - i) * sizeof *p->node[0].order);
	return -1;
}

static int no_update(struct dlb_plan *p)
{
	const int i = at(p, 0, 4, -1), n = --p->node[0].n_order;
	memmove(p->node[0].order + i, p->node[0].order + i + 1, (size_t)(n - i) * sizeof *p->node[0].order);
	return -1;
}

#define IN_ORDER ": an op runs its micro-batches in order, an update runs once, as -1"
static const struct {
	int (*spoil)(struct dlb_plan *p);
	const char *where, *what; /* where NULL: the item */
} faults[] = {
	{ too_few_ops, "/plan/placement", "5 ops are placed, the graph has 6" },
	{ too_many_nodes, "/plan/nodes", "3 nodes, the cluster has 2" },
	{ no_micro_batch, "/plan/micro_batches", "0 micro-batches for a batch of 8" },
	{ no_sample, "/plan/micro_batches", "2 micro-batches for a batch of 0" },
	{ nine_micro_batches, "/plan/micro_batches", "9 micro-batches for a batch of 8" },
	{ before_nodes, "/plan/placement/0", "no node -1: the cluster has 2 nodes" },
	{ behind_nodes, "/plan/placement/0", "no node 2: the cluster has 2 nodes" },
	{ apart, "/plan/placement/4",
	  "op 4 'u0' is on node 1, but must share the node of op 0 'f0', which is on node 0" },
	{ no_op, NULL, "no op 6" },
	{ negative_op, NULL, "no op -1" },
	{ elsewhere, NULL, "op 1 is placed on node 1" },
	{ too_early, NULL, "op 0 'f0' runs micro-batch 1 where 0 is due" IN_ORDER },
	{ update_of_one, NULL, "op 4 'u0' runs micro-batch 0 where -1 is due" IN_ORDER },
	{ again, NULL, "op 0 'f0' runs micro-batch 1 where 2 is due" IN_ORDER },
	{ absent, "/plan/nodes", "op 0 'f0' stands 1 times in the order of node 0, not 2 times" },
	{ no_update, "/plan/nodes", "op 4 'u0' stands 0 times in the order of node 0, not 1 times" },
	{ no_kernel, "/plan/placement/3", "node 0 (cpu) has no kernel for op 3 'b0' (B)" },
};

int main(void)
{
	make_graph();
	for (int i = 0; i < DLB_LEN(faults); i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_plan p;
		char where[64];

		make_plan(&p);
		assert(IS(dlb_plan_check(&p, &d.c, &err), ==, 0));
		snprintf(where, sizeof where, "/plan/nodes/0/order/%d", faults[i].spoil(&p));
		assert(IS(dlb_plan_check(&p, &d.c, &err), ==, -1));
		assert(SAME(err.where, faults[i].where ? faults[i].where : where) &&
		       SAME(err.what, faults[i].what));
		dlb_plan_release(&p);
	}
	dag_release(&d);
	printf("test_plan_check: %d faults of plans\n", (int)DLB_LEN(faults));
	return 0;
}
