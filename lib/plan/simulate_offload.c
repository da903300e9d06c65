/* Copies of offloaded data (offload.h): each memory makes one copy after another, at its bandwidth and after
 * its latency. A memory of unknown bandwidth costs only its latency. */
#include <math.h>
#include <stdlib.h>
#include "plan/offload.h"
#include "plan/replica.h"
#include "plan/simulate.h"

void dlb_sim_find_offloaded(struct sim *s)
{
	for (int i = 0; i < s->g->n_nodes; i++) {
		const struct dlb_program *own = dlb_program_of(s->g, i);

		if (dlb_program_offloads(own))
			s->node[i].copied_s = dlb_xcalloc((size_t)own->node[i].n_places + 1,
							  sizeof *s->node[i].copied_s);
	}
	if (s->c && s->c->cluster)
		s->memory_s = dlb_xcalloc((size_t)s->c->cluster->n_memories + 1, sizeof *s->memory_s);
}

void dlb_sim_release_offloaded(struct sim *s)
{
	for (int i = 0; i < s->g->n_nodes; i++)
		free(s->node[i].copied_s);
	free(s->memory_s);
}

void dlb_sim_copy_offloaded(struct sim *s, int node, const struct dlb_instr *in)
{
	const struct dlb_offload_copy x = dlb_offload_copy_of(dlb_program_of(s->g, node), node, in);
	struct sim_node *n = &s->node[node];
	double *end_s = &n->copied_s[x.place];

	*end_s = n->now;
	if (!s->memory_s)
		return;
	const int memory = dlb_offload_memory(s->c->cluster, node, x.memory);

	*end_s = fmax(n->now, s->memory_s[memory]) + dlb_offload_copy_s(s->c->cluster, node, memory, x.bytes);
	s->memory_s[memory] = *end_s;
}

void dlb_sim_wait_offloaded(struct sim *s, int node, const struct dlb_instr *in)
{
	struct sim_node *n = &s->node[node];
	const int place = dlb_offload_copy_of(dlb_program_of(s->g, node), node, in).place;
	const double waits_s = fmax(0, n->copied_s[place] - n->now);

	s->t->node[node].offload_s += waits_s;
	n->now += waits_s;
}
