/* Exports a plan as a schedule of torch.distributed.pipelining, in its "compute only" form: a CSV with one
 * row per rank, one cell per action.
 *
 *     0F0,0F1,0B0,0F2,0B1,...          cell: stage, F (forward) or B (backward), micro-batch
 *     1F0,1B0,1F1,...
 *
 * Each node with ops is a rank, in the order of node ids; its ops are one stage, numbered in forward
 * order. Torch runs a stage as a whole, so a cell is where the node begins that micro-batch's
 * forward or backward part. Torch sends only between neighbouring stages, so a plan is refused if a
 * tensor skips a stage or goes back. */
#include <limits.h>
#include <stdlib.h>
#include "convert/formats.h"
#include "convert/planned.h"
#include "plan/tensors.h"

struct rank_stage { int node, first, stage; };		/* first: its first op */

static int by_first(const void *a, const void *b)
{
	const struct rank_stage *x = a, *y = b;
	return x->first - y->first;
}

/* Fills rank[], by node ids, and stage_of[node] (-1: no ops). Returns the number of ranks. */
static int find_stages(const struct dlb_planned *x, struct rank_stage *rank, int *stage_of)
{
	int n = 0;
	for (int d = 0; d < x->cl.n_nodes; d++) {
		int first = INT_MAX;
		stage_of[d] = -1;
		for (int i = 0; i < x->g.n_ops; i++)
			if (x->p.placement[i] == d && x->g.op[i].phase == DLB_FORWARD && i < first)
				first = i;
		if (first < INT_MAX)
			rank[n++] = (struct rank_stage){ .node = d, .first = first };
	}
	qsort(rank, (size_t)n, sizeof *rank, by_first);
	for (int k = 0; k < n; k++)
		stage_of[rank[k].node] = k;
	return n;
}

static int check_stages(const struct dlb_planned *x, const int *stage_of, struct dlb_error *err)
{
	const struct dlb_graph *g = &x->g;
	for (int i = 0; i < g->n_ops; i++) {
		int to = stage_of[x->p.placement[i]];
		if (to < 0)
			return dlb_fail_no(err, NULL,
					   "node %d has backward ops and no forward op: it is no stage",
					   x->p.placement[i]);
		for (int k = 0; k < g->op[i].n_in; k++) {
			int from = g->op[i].in[k] < 0 || dlb_tensor_is_state(&g->tensor[g->op[i].in[k]]) ?
					   -1 :
					   g->tensor[g->op[i].in[k]].producer;
			if (from < 0)
				continue;
			int s = stage_of[x->p.placement[from]], step = to - s;
			/* a forward op may feed its own and the next stage (backward ops there too), a
			 * backward op its own and the previous one */
			bool forward = g->op[from].phase == DLB_FORWARD;
			if (step == 0 || (forward ? step == 1 : step == -1))
				continue;
			dlb_fail_no(err, NULL,
				    "op '%s' of stage %d feeds op '%s' of stage %d: stages of torch pass on "
				    "to the next",
				    g->op[from].name, s, g->op[i].name, to);
			return dlb_hint(err, "plan contiguous parts, as -a proportional or -a even does");
		}
	}
	return 0;
}

static void write_row(const struct dlb_planned *x, int node, int stage, struct dlb_text *t)
{
	const struct dlb_node_plan *np = &x->p.node[node];
	bool *seen = dlb_xcalloc((size_t)x->p.micro_batches * 2, sizeof *seen);
	const char *comma = "";
	for (int i = 0; i < np->n_order; i++) {
		int m = np->order[i].micro_batch, phase = x->g.op[np->order[i].op].phase;
		if (m < 0 || phase == DLB_UPDATE || seen[m * 2 + (phase == DLB_BACKWARD)])
			continue;
		seen[m * 2 + (phase == DLB_BACKWARD)] = true;
		dlb_text_add(t, "%s%d%c%d", comma, stage, phase == DLB_BACKWARD ? 'B' : 'F', m);
		comma = ",";
	}
	dlb_text_add(t, "\n");
	free(seen);
}

char *dlb_export_torch_pipelining(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
				  struct dlb_error *err)
{
	struct dlb_planned x;
	struct dlb_text t = { .n = 0 };
	(void)o;
	if (dlb_planned_read(d, &x, err))
		return NULL;
	struct rank_stage *rank = dlb_xcalloc((size_t)x.cl.n_nodes, sizeof *rank);
	int *stage_of = dlb_xcalloc((size_t)x.cl.n_nodes, sizeof *stage_of);
	find_stages(&x, rank, stage_of);
	if (check_stages(&x, stage_of, err) == 0)
		for (int node = 0; node < x.cl.n_nodes; node++)
			if (stage_of[node] >= 0)
				write_row(&x, node, stage_of[node], &t);
	free(rank);
	free(stage_of);
	dlb_planned_release(&x);
	*n = t.n;
	return t.s;
}
