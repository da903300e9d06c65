/* At the start, all nodes fetch the weights of the parameter server, tensor by tensor. A checksum over names
 * and bytes verifies them. */
#include <stdlib.h>
#include "exec/host_values.h"
#include "exec/state.h"
#include "exec/sync/sync.h"
#include "plan/replica.h"
#include "util/hash.h"
#include "util/mem.h"

/* The node that holds tensor t in replica r; -1: none does. */
static int holder(const struct dlb_plan *p, const struct dlb_graph *g, int t, int r)
{
	const struct dlb_tensor *x = &g->tensor[t];
	int home =
		x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER ? dlb_state_home(g, p->placement, t) : -1;

	return home < 0 ? -1 : p->replica[r][home];
}

/* Checksum of the tensors that node `node` of replica r holds (-1: of all tensors). value: [tensor] those of
 * s, in host memory. */
static uint64_t checksum_of(const struct dlb_plan *p, const struct dlb_state *s, void *const *value, int r,
			    int node)
{
	uint64_t h = DLB_HASH_INIT;

	for (int t = 0; t < s->graph->n_tensors; t++) {
		if (!value[t] || (node >= 0 && holder(p, s->graph, t, r) != node))
			continue;
		h = dlb_hash_str(h, s->graph->tensor[t].name);
		h = dlb_hash_bytes(h, value[t], (size_t)dlb_tensor_bytes(&s->graph->tensor[t], 1));
	}
	return h;
}

static int give(struct dlb_comm *c, const struct dlb_plan *p, const struct dlb_state *s, void *const *value,
		struct dlb_error *err)
{
	int R = p->n_replicas, n = 0, rc = 0;
	struct dlb_request *q = dlb_xcalloc((size_t)R * (size_t)s->graph->n_tensors + 1, sizeof *q);

	for (int t = 0; t < s->graph->n_tensors; t++)
		for (int r = 0; r < R; r++) {
			int node = holder(p, s->graph, t, r);

			if (node >= 0 && node != s->node)
				dlb_comm_isend(c, value[t], (size_t)dlb_tensor_bytes(&s->graph->tensor[t], 1),
					       node, DLB_TAG_WEIGHTS, &q[n++]);
		}
	for (int i = 0; i < n && !rc; i++)
		rc = dlb_comm_wait(c, &q[i], err);
	free(q);
	return rc;
}

static int take(struct dlb_comm *c, const struct dlb_plan *p, const struct dlb_state *s, void *const *value,
		struct dlb_error *err)
{
	int n = 0, rc = 0;
	struct dlb_request *q = dlb_xcalloc((size_t)s->graph->n_tensors + 1, sizeof *q);

	for (int t = 0; t < s->graph->n_tensors; t++)
		if (value[t])
			dlb_comm_irecv(c, value[t], (size_t)dlb_tensor_bytes(&s->graph->tensor[t], 1),
				       p->sharing.param_server, DLB_TAG_WEIGHTS, &q[n++]);
	for (int i = 0; i < n && !rc; i++)
		rc = dlb_comm_wait(c, &q[i], err);
	free(q);
	return rc;
}

/* On the server, compares every node's checksum with the server's own. -1 with err: one differs. */
static int compare(const struct dlb_plan *p, const struct dlb_state *s, void *const *value,
		   const uint64_t *sum, struct dlb_error *err)
{
	for (int r = 0; r < p->n_replicas; r++)
		for (int k = 0; k < p->n_nodes; k++) {
			int node = p->replica[r][k];

			if (node >= 0 && sum[node] != checksum_of(p, s, value, r, node))
				return dlb_fail(err, NULL,
						"the weights that node %d fetched from parameter server %d "
						"are not those it sent",
						node, s->node);
		}
	return 0;
}

/* Sets *checksum to that of the weights and buffers of this node, after it has given or taken them. value:
 * [tensor] in host memory. */
static int fetch(struct dlb_comm *c, const struct dlb_plan *p, const struct dlb_state *s, void *const *value,
		 uint64_t *checksum, struct dlb_error *err)
{
	const bool serves = s->node == p->sharing.param_server;

	if (serves                            ? give(c, p, s, value, err) :
	    dlb_plan_part_of(p, s->node) >= 0 ? take(c, p, s, value, err) :
						0)
		return -1;
	*checksum = checksum_of(p, s, value, dlb_plan_replica_of(p, s->node), serves ? -1 : s->node);
	return 0;
}

int dlb_sync_fetch_weights(struct dlb_comm *c, const struct dlb_plan *p, struct dlb_state *s,
			   uint64_t *checksum, struct dlb_error *err)
{
	struct dlb_host_values host = { .be = s->be };
	int server = p->sharing.param_server, rc;
	uint64_t *all;
	void **value;

	if (p->n_replicas < 2 || server < 0)
		return 0;
	all = dlb_xcalloc((size_t)dlb_comm_size(c), sizeof *all);
	value = dlb_xcalloc((size_t)s->graph->n_tensors + 1, sizeof *value);
	for (int t = 0; t < s->graph->n_tensors; t++)
		if (s->value[t])
			value[t] = dlb_host_value(&host, s->value[t],
						  (size_t)dlb_tensor_bytes(&s->graph->tensor[t], 1));
	rc = dlb_host_values_get(&host, err) || fetch(c, p, s, value, checksum, err) ||
	     dlb_host_values_put(&host, err) ||
	     dlb_comm_gather(c, checksum, sizeof *checksum, all, server, err);
	if (!rc && s->node == server)
		rc = compare(p, s, value, all, err);
	dlb_host_values_release(&host);
	free(value);
	free(all);
	return dlb_comm_agree(c, rc ? -1 : 0, err, NULL);
}
