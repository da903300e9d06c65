/* Chooses buddies and predicts the cost of copies. See buddy.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/buddy.h"
#include "exec/checkpoint_files.h"
#include "exec/job.h"
#include "exec/state.h"
#include "exec/sync/sync.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "util/mem.h"

#define USUAL_BPS 5e9 /* memory bandwidth of a kind whose bandwidth is unknown */

/* A node's buddy is the node on another host that has the fewest wards so far; among equals, the next one
 * after the node in cyclic order. */
void dlb_buddy_choose(const int *host, int n, int *out)
{
	int *n_wards = dlb_xcalloc((size_t)n + 1, sizeof *n_wards);

	for (int i = 0; i < n; i++) {
		int best = -1;

		for (int k = 1; k < n; k++) {
			const int j = (i + k) % n;

			if (host[j] != host[i] && (best < 0 || n_wards[j] < n_wards[best]))
				best = j;
			if (best == j && !n_wards[j])
				break;
		}
		out[i] = best;
		if (best >= 0)
			n_wards[best]++;
	}
	free(n_wards);
}

/* [node] the first node of its host; new. */
static int *hosts_of(const struct dlb_cluster *c)
{
	int *host = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *host);

	for (int i = 0; i < c->n_nodes; i++) {
		host[i] = i;
		for (int k = 0; k < i && host[i] == i; k++)
			if (host[k] == k && (!c->node[k].host || !c->node[i].host ||
					     !strcmp(c->node[k].host, c->node[i].host)))
				host[i] = k;
	}
	return host;
}

/* Adds the bytes of tensor t in a copy to bytes[node] of the nodes that copy it. */
static void add_tensor(const struct dlb_job *j, int t, double *bytes)
{
	const struct dlb_tensor *x = &j->graph.tensor[t];
	const struct dlb_plan *p = &j->plan;
	const bool weight = x->kind == DLB_T_WEIGHT,
		   divides = p->n_replicas > 1 && dlb_sharing_divides(&p->sharing);
	const int home = dlb_state_home(&j->graph, p->placement, t), R = divides ? p->n_replicas : 1;
	const double size = dlb_tensor_bytes(x, 1);

	if ((!weight && x->kind != DLB_T_BUFFER) || home < 0 || dlb_checkpoint_is_constant(&j->graph, t))
		return;
	bytes[home] += size;
	for (int r = 0; r < R && weight; r++) {
		const int node = r ? p->replica[r][home] : home;

		if (node >= 0)
			bytes[node] += j->n_state * size / R;
	}
}

int dlb_buddy_check(const struct dlb_job *j, const struct dlb_exec_options *o, struct dlb_error *err)
{
	static const char cure[] = "use --checkpoint-every";

	if (!o->buddy_every)
		return 0;
	if (dlb_plan_is_async(&j->plan))
		return dlb_refuse(err, NULL, cure,
				  "--buddy-every: an asynchronous plan has steps under way at all "
				  "times");
	if (dlb_sync_state_differs(&j->plan))
		return dlb_refuse(err, NULL, cure, "--buddy-every: each replica has a state of its own");
	if (j->plan.state_dtype != DLB_STATE_F32)
		return dlb_refuse(err, NULL, cure,
				  "--buddy-every: copies have optimizer states as f32, not as %s",
				  dlb_state_dtypes[j->plan.state_dtype]);
	if (j->plan.n_replicas > 1 && j->plan.sharing.zero == 3)
		return dlb_refuse(err, NULL, cure, "--buddy-every: no replica has whole weights (--zero 3)");
	if (o->n_freeze_at)
		return dlb_refuse(err, NULL, cure,
				  "--buddy-every: --freeze-at changes which weights are copied");
	return 0;
}

void dlb_buddy_predict(const struct dlb_job *j, int64_t every, struct dlb_report *report)
{
	const int n = j->plan.n_nodes;
	const double step_s = report->predicted_step_s;
	struct dlb_report_buddy *r = &report->buddy;
	double *bytes = dlb_xcalloc((size_t)n + 1, sizeof *bytes),
	       *received_s = dlb_xcalloc((size_t)n + 1, sizeof *received_s);
	int *host = hosts_of(&j->cluster);

	r->every = every;
	r->buddy = dlb_arena_array(&report->arena, (size_t)n + 1, sizeof *r->buddy);
	r->bytes = r->sent_bytes = r->link_s = r->predicted_time_s = 0;
	r->time_s = NAN;
	for (int t = 0; t < j->graph.n_tensors; t++)
		add_tensor(j, t, bytes);
	dlb_buddy_choose(host, n, r->buddy);
	for (int i = 0; i < n; i++)
		if (r->buddy[i] >= 0)
			received_s[r->buddy[i]] += dlb_cost_xfer_s(&j->cost, bytes[i], i, r->buddy[i]);
	for (int i = 0; i < n; i++) {
		const double Bps = j->cluster.kind[j->cluster.node[i].kind].bandwidth_Bps;
		/* a copy reads and writes memory */
		const double copy_s = 2 * bytes[i] / (Bps > 0 ? Bps : USUAL_BPS);
		double link_s = received_s[i];

		r->bytes += bytes[i];
		if (r->buddy[i] >= 0) {
			r->sent_bytes += bytes[i];
			link_s = fmax(link_s, dlb_cost_xfer_s(&j->cost, bytes[i], i, r->buddy[i]));
		}
		r->link_s = fmax(r->link_s, link_s);
		/* until the next copy the link is free except for the messages of the steps; the rest of the
		 * transfer delays the next copy */
		r->predicted_time_s =
			fmax(r->predicted_time_s,
			     copy_s + fmax(0,
					   link_s - (double)every *
							    fmax(0,
								 step_s - report->node[i].predicted_comm_s)));
	}
	free(bytes);
	free(received_s);
	free(host);
}
