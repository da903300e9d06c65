/* Weights of which each replica keeps a share (--zero 3). Programs of random graphs and placements of two
 * replicas: verified; every op that reads a divided weight has it whole, at most two are whole at once on a
 * node, replicas gather in one order, and the arena and state hold what was divided. Spoilt programs are
 * refused. */
#include "check.h"
#include "place_cases.h"
#include "place/fit.h"
#include "plan/again.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/timeline.h"

enum { NODES = 4 };

static bool is_gather(const struct dlb_node_program *np, const struct dlb_instr *in)
{
	return in->verb == DLB_COLLECTIVE && (in->what == DLB_RUN_REDUCE || in->what == DLB_RUN_REDUCED) &&
	       np->bucket[in->tag].ahead;
}

/* Gather, gathered and FREE of each weight in this order, with all its readers in between. Returns the number of
 * gathers. */
static int check_lives(const struct dlb_program *g, int node)
{
	const struct dlb_node_program *np = &g->node[node];
	char *stage = calloc((size_t)g->graph->n_tensors, 1);
	int whole = 0, n = 0;
	for (int i = 0; i < np->n_instr; i++) {
		const struct dlb_instr *in = &np->instr[i];
		if (is_gather(np, in)) {
			char *at = &stage[np->bucket[in->tag].weight];
			assert(IS(*at, ==, in->what == DLB_RUN_REDUCED));
			++*at;
			whole += in->what == DLB_RUN_REDUCE;
			n += in->what == DLB_RUN_REDUCE;
			assert(IS(whole, <=, 2));
		} else if (in->verb == DLB_FREE && dlb_program_gathers(g, in->tensor)) {
			assert(IS(stage[in->tensor], ==, 2));
			stage[in->tensor] = 0;
			whole--;
		} else if (in->verb == DLB_COMPUTE && in->what == DLB_RUN_OP) {
			const struct dlb_op *o = &g->graph->op[in->op];
			for (int k = 0; k < o->n_in; k++)
				assert(!dlb_program_gathers(g, o->in[k]) || IS(stage[o->in[k]], ==, 2));
		}
	}
	assert(IS(whole, ==, 0));
	free(stage);
	return n;
}

static struct dlb_node_program *program_at(struct dlb_program *g, int node)
{
	struct dlb_program *own = node < NODES / 2 ? g : &g->other[0];
	return &own->node[node];
}

/* Takes a gather, its end or the FREE of a whole weight away, or exchanges it with the instruction of that kind
 * after it: refused. */
static int spoil(const struct dlb_problem *p, struct dlb_program *g, int node)
{
	struct dlb_node_program *np = program_at(g, node);
	const struct dlb_program *own = dlb_program_of(g, node);
	struct dlb_error err;
	int spoilt = 0;
	for (int i = 0; i < np->n_instr; i++) {
		const struct dlb_instr x = np->instr[i];
		const size_t behind = (size_t)(np->n_instr - i - 1) * sizeof x;
		int next = -1;
		if (!is_gather(np, &x) && !(x.verb == DLB_FREE && dlb_program_gathers(own, x.tensor)))
			continue;
		memmove(np->instr + i, np->instr + i + 1, behind);
		np->n_instr--;
		assert(dlb_program_verify(g, p->cost, &err));
		np->n_instr++;
		memmove(np->instr + i + 1, np->instr + i, behind);
		np->instr[i] = x;
		for (int k = i + 1; k < np->n_instr && next < 0; k++)
			if (is_gather(np, &x) && is_gather(np, &np->instr[k]))
				next = k;
		if (next >= 0) {
			np->instr[i] = np->instr[next];
			np->instr[next] = x;
			assert(dlb_program_verify(g, p->cost, &err));
			np->instr[next] = np->instr[i];
			np->instr[i] = x;
		}
		assert(IS(dlb_program_verify(g, p->cost, &err), ==, 0));
		spoilt++;
	}
	return spoilt;
}

/* Weights and their gradients are counted in elements. */
static void set_sizes(struct dlb_graph *g)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT || g->tensor[t].kind == DLB_T_WEIGHT_GRADIENT) {
			g->tensor[t].n_dims = 1;
			g->tensor[t].dim[0] = (struct dlb_dim){ 0, (int64_t)g->tensor[t].size_add / 4 };
		}
}

static void compile(const struct dlb_problem *p, const struct dlb_plan *plan, struct dlb_program *g)
{
	struct dlb_error err;
	struct dlb_timeline t;
	if (dlb_plan_check(plan, p->cost, &err) || dlb_program_compile(plan, p->cost, 12, 1, g, &err) ||
	    dlb_program_verify(g, p->cost, &err) ||
	    dlb_program_simulate(g, p->cost, &(struct dlb_simulate_choice){ .keep_spans = false }, &t, &err))
		die("program", p->seed, &err);
	for (int n = 0; n < NODES; n++)
		assert(IS(t.node[n].busy_s, <=, t.step_s * (1 + 1e-9)));
	dlb_timeline_release(&t, NODES);
}

/* State that is divided: (R - 1) / R of each weight. */
static void check_bytes(const struct dlb_program *whole, const struct dlb_program *divided)
{
	for (int n = 0; n < NODES; n++) {
		const struct dlb_program *a = dlb_program_of(whole, n), *b = dlb_program_of(divided, n);
		double less = 0;
		for (int t = 0; t < b->graph->n_tensors; t++)
			if (dlb_program_gathers(b, t) && b->plan->placement[b->graph->tensor[t].home] == n)
				less += dlb_tensor_bytes(&b->graph->tensor[t], 1) -
					(double)dlb_program_share_bytes(b, t);
		assert(IS(fabs((double)a->node[n].weights_bytes - (double)b->node[n].weights_bytes - less), <,
			  1));
	}
}

static int by_bytes(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x < y) - (x > y);
}

/* A program of one replica alone, as planning compiles it: its state has the two largest weights whole,
 * beside the share of each. */
static void check_alone(const struct dlb_problem *p, const struct dlb_plan *plan)
{
	struct dlb_plan part;
	struct dlb_program two, three;
	struct dlb_error err;
	dlb_plan_of_replica(plan, 0, 6, &part);
	part.sharing.zero = 2;
	if (dlb_program_compile(&part, p->cost, 6, 1, &two, &err))
		die("stage 2 alone", p->seed, &err);
	part.sharing.zero = 3;
	if (dlb_program_compile(&part, p->cost, 6, 1, &three, &err))
		die("stage 3 alone", p->seed, &err);
	const int n_tensors = three.graph->n_tensors;
	double *whole = calloc((size_t)n_tensors + 2, sizeof *whole);
	for (int n = 0; n < NODES / 2; n++) {
		double less = 0;
		int k = 0;
		memset(whole, 0, ((size_t)n_tensors + 2) * sizeof *whole);
		for (int t = 0; t < n_tensors; t++)
			if (dlb_program_gathers(&three, t) &&
			    part.placement[three.graph->tensor[t].home] == n) {
				whole[k] = dlb_tensor_bytes(&three.graph->tensor[t], 1);
				less += whole[k++] - (double)dlb_program_share_bytes(&three, t);
			}
		qsort(whole, (size_t)k, sizeof *whole, by_bytes);
		less -= whole[0] + whole[1];
		assert(IS(fabs((double)two.node[n].state_bytes - (double)three.node[n].state_bytes - less), <,
			  2));
	}
	free(whole);
	dlb_program_release(&two);
	dlb_program_release(&three);
	dlb_plan_release(&part);
}

static int test_programs(uint64_t seed)
{
	static const int replica[] = { 0, 1, -1, -1, 2, 3, -1, -1 };
	static const char *const clusters[] = { "cpu:4", "cpu:2 host cpu:2*0.5",
						"cpu:1 host cpu:1 host cpu:2" };
	static const char *const schedules[] = { "1f1b", "gpipe", "interleaved", "zero-bubble", "none" };
	struct dlb_rng r;
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dlb_program whole, g;
	int spoilt = 0, n_gathers = 0;
	dlb_rng_init(&r, seed);
	random_training(&d, seed, clusters[seed % 3], &r);
	set_sizes(&d.g);
	problem(&p, &d, 1 + (int)dlb_rng_below(&r, 4), schedules[seed % 5], NULL, seed);
	random_plan(&p, &plan, &r);
	for (int i = 0; i < d.g.n_ops; i++)
		plan.placement[i] %= NODES / 2;
	dlb_plan_set_replicas(&plan, 2, replica);
	dlb_sharing_init(&plan.sharing);
	plan.clip = seed % 4 == 0;
	plan.sharing.zero = 2;
	dlb_plan_order(&plan, &d.c, NULL);
	compile(&p, &plan, &whole);
	plan.sharing.zero = 3;
	dlb_plan_order(&plan, &d.c, NULL);
	compile(&p, &plan, &g);
	check_bytes(&whole, &g);
	check_alone(&p, &plan);
	for (int n = 0; n < NODES; n++)
		n_gathers += check_lives(dlb_program_of(&g, n), n);
	if (n_gathers && seed % 3 == 0)
		spoilt += spoil(&p, &g, (int)dlb_rng_below(&r, NODES));
	dlb_program_release(&g);
	dlb_program_release(&whole);
	case_release(&d, &p, &plan);
	return spoilt;
}

int main(void)
{
	int spoilt = 0;
	for (uint64_t seed = 1; seed <= 60; seed++)
		spoilt += test_programs(seed);
	assert(IS(spoilt, >, 100));
	printf("test_gathers: programs of 60 plans, %d spoilt\n", spoilt);
	return 0;
}
