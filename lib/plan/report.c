/* Storage of the report, and the node that waits longest for samples. */
#include <string.h>
#include "plan/report.h"

void dlb_report_release(struct dlb_report *r)
{
	dlb_arena_release(&r->arena);
	memset(r, 0, sizeof *r);
}

int dlb_report_starved(const struct dlb_report *r, double *sample_s)
{
	int node = 0;

	for (int i = 1; i < r->n_nodes; i++)
		if (r->node[i].data_wait_s > r->node[node].data_wait_s)
			node = i;
	*sample_s = 0;
	for (int i = 0; i < r->n_samples; i++)
		if (r->sample[i].node == (r->feed.bytes > 0 ? 0 : node))
			*sample_s += r->sample[i].time_s;
	return node;
}
