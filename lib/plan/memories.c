/* Assigns a node's buffers to its memories. There are three kinds of buffers (enum dlb_buffers). The kind of
 * which a step moves the most bytes per byte held is placed first, into the fastest memory; the bytes that do
 * not fit go to the next memory. Bytes that fit nowhere count in the slowest memory, so that the check of
 * memory refuses the plan with the numbers. */
#include <math.h>
#include "plan/flow.h"
#include "plan/tensors.h"

struct buffer_kind { enum dlb_buffers what; double size, moved; };
struct room { int i; double bytes, Bps; };

static double heat(const struct buffer_kind *k) { return k->size > 0 ? k->moved / k->size : 0; }

/* Counts the bytes that a step moves: each op's traffic, and the sums of gradients. */
static void count_traffic(const struct dlb_program *g, int node, const struct dlb_cost *c,
			  struct buffer_kind *k)
{
	const struct dlb_node_program *np = &g->node[node];

	for (int i = 0; i < np->n_instr; i++) {
		const struct dlb_instr *in = &np->instr[i];
		int m = in->micro_batch < 0 ? 0 : in->micro_batch % g->micro_batches;
		double bytes[DLB_N_BUFFERS];

		if (in->verb != DLB_COMPUTE)
			continue;
		if (in->what == DLB_RUN_ACCUMULATE)
			k[DLB_BUF_STATE].moved += 2 * dlb_tensor_bytes(&g->graph->tensor[in->tensor], 1);
		if ((in->what != DLB_RUN_OP && in->what != DLB_RUN_UPDATE) ||
		    dlb_graph_is_view(g->graph, in->op))
			continue;
		dlb_cost_traffic(c, in->op, (double)g->size[m], bytes);
		for (int b = 0; b < DLB_N_BUFFERS; b++)
			k[b].moved += bytes[b];
	}
}

/* Insertion sorts, stable: kinds by traffic per byte, memories by speed, the greatest first. A memory of
 * unknown speed counts as fast. */
static void sort_kinds(struct buffer_kind *k, int n)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j && heat(&k[j]) > heat(&k[j - 1]); j--) {
			struct buffer_kind other = k[j];
			k[j] = k[j - 1];
			k[j - 1] = other;
		}
}

static void sort_rooms(struct room *r, int n)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j && r[j].Bps > r[j - 1].Bps; j--) {
			struct room other = r[j];
			r[j] = r[j - 1];
			r[j - 1] = other;
		}
}

static void put_node(struct dlb_program *g, int node, const struct dlb_cost *c)
{
	struct dlb_node_program *np = &g->node[node];
	const struct dlb_node *d = &c->cluster->node[node];
	struct buffer_kind k[DLB_N_BUFFERS] = {
		{ DLB_BUF_WEIGHTS, (double)np->weights_bytes, 0 },
		{ DLB_BUF_STATE, (double)(np->state_bytes - np->weights_bytes), 0 },
		{ DLB_BUF_ACTIVATIONS, (double)(np->arena_bytes + np->scratch_bytes), 0 },
	};
	struct room room[DLB_MAX_MEMORIES];
	struct dlb_memory_use *use = dlb_arena_array(&g->arena, 1, sizeof *use);

	count_traffic(g, node, c, k);
	for (int i = 0; i < d->n_memories; i++) {
		struct dlb_memory_share m = dlb_cluster_memory_share(c->cluster, d->memory[i]);
		room[i] = (struct room){ i, m.bytes, m.bandwidth_Bps > 0 ? m.bandwidth_Bps : INFINITY };
	}
	sort_kinds(k, DLB_N_BUFFERS);
	sort_rooms(room, d->n_memories);
	for (int b = 0, i = 0; b < DLB_N_BUFFERS; b++) {
		for (double left = k[b].size; left > 0;) {
			bool last = i == d->n_memories - 1;
			double here = last ? left : floor(fmin(left, room[i].bytes));

			use->bytes[room[i].i][k[b].what] += here;
			room[i].bytes -= here;
			left -= here;
			if (left > 0)
				i++;
		}
	}
	np->use = use;
}

void dlb_compile_put(struct dlb_program *g, const struct dlb_cost *c)
{
	for (int r = 0; r < g->n_replicas && c && c->cluster; r++) {
		struct dlb_program *own = r ? &g->other[r - 1] : g;

		for (int node = 0; node < g->n_nodes; node++)
			if (c->cluster->node[node].n_memories && own->node[node].n_instr)
				put_node(own, node, c);
	}
}
