/* A replica that is like another one has the same program, on other nodes. The program is copied, not
 * compiled again. This is done only for drafts of a search, because a run compiles each replica by itself. */
#include <stdlib.h>
#include <string.h>
#include "plan/compile.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"

/* Whether replicas may have equal programs at all. They may not if they divide states, because their shares
 * differ, nor with a parameter server, because it is one node. Comparing all routes must take less time than
 * compiling. */
static bool may_be_alike(const struct dlb_plan *p, const struct dlb_cost *c)
{
	const int64_t routes = (int64_t)p->n_nodes * p->n_nodes / p->n_replicas;

	return p->draft && c && c->cluster && !dlb_sharing_divides(&p->sharing) &&
	       p->sharing.param_server < 0 && !dlb_plan_has_one_order(p) && !dlb_plan_is_async(p) &&
	       routes <= (int64_t)p->n_ops * p->micro_batches;
}

static bool same_order(const struct dlb_node_plan *a, const struct dlb_node_plan *b)
{
	if (a->n_order != b->n_order)
		return false;
	for (int i = 0; i < a->n_order && a->order != b->order; i++)
		if (a->order[i].op != b->order[i].op || a->order[i].micro_batch != b->order[i].micro_batch)
			return false;
	return true;
}

/* Whether the nodes of replicas q and r have equal orders, and equal room for their arenas. */
static bool same_parts(const struct dlb_plan *p, int q, int r)
{
	for (int k = 0; k < p->n_nodes; k++) {
		const int a = p->replica[q][k], b = p->replica[r][k];

		if (a >= 0 && (!same_order(&p->node[a], &p->node[b]) ||
			       (p->arena_room && p->arena_room[a] != p->arena_room[b])))
			return false;
	}
	return true;
}

void dlb_compile_find_like(const struct dlb_plan *p, const struct dlb_cost *c, const int64_t *share,
			   int *like)
{
	int *alike = dlb_xcalloc((size_t)p->n_replicas, sizeof *alike);
	const bool may = may_be_alike(p, c);

	if (may)
		dlb_plan_alike(p, c->cluster, NULL, alike);
	for (int r = 0; r < p->n_replicas; r++) {
		like[r] = r;
		for (int q = 0; q < r && may && like[r] == r; q++)
			if (like[q] == q && alike[q] == alike[r] && share[q] == share[r] &&
			    same_parts(p, q, r))
				like[r] = q;
	}
	free(alike);
}

/* The node of replica r that does the work of `node` of replica q; a node outside of q is returned
 * unchanged. */
static int node_in(const struct dlb_plan *p, int q, int r, int node)
{
	return node >= 0 && p->part_of[node] >= 0 && p->replica_of[node] == q ?
		       p->replica[r][p->part_of[node]] :
		       node;
}

void dlb_compile_copy_replica(const struct dlb_plan *p, const struct dlb_program *from, int q, int r,
			      const struct dlb_plan *part, int64_t first, struct dlb_program *out)
{
	*out = *from;
	memset(&out->arena, 0, sizeof out->arena);
	out->plan = out->whole = part;
	out->part = NULL;
	out->node = dlb_arena_array(&out->arena, (size_t)p->n_nodes, sizeof *out->node);
	out->first = dlb_arena_array(&out->arena, (size_t)out->micro_batches, sizeof *out->first);
	for (int m = 0; m < out->micro_batches; m++)
		out->first[m] = m ? out->first[m - 1] + out->size[m - 1] : first;
	for (int k = 0; k < p->n_nodes; k++) {
		if (p->replica[q][k] < 0)
			continue;
		const struct dlb_node_program *of = &from->node[p->replica[q][k]];
		struct dlb_node_program *to = &out->node[p->replica[r][k]];

		*to = *of;
		to->instr = dlb_arena_array(&out->arena, (size_t)of->n_instr + 1, sizeof *to->instr);
		for (int i = 0; i < of->n_instr; i++) {
			to->instr[i] = of->instr[i];
			to->instr[i].peer = node_in(p, q, r, of->instr[i].peer);
		}
	}
}
