/* The mean of all state over the replicas, at the end of a run and before a checkpoint: see sync.h. */
#include <math.h>
#include <string.h>
#include "exec/host_values.h"
#include "exec/state.h"
#include "exec/sync/ways.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "util/mem.h"

struct mean_state {
	struct dlb_comm *comm;
	const struct dlb_plan *plan;
	struct dlb_state *state;
	struct dlb_ranks peers;
	struct dlb_host_values host;
	void **value; /* [tensor] weights and buffers of one type, in host memory; NULL: not of that type */
	/* sums of squares: of this replica's distance from the mean, and of the mean */
	double apart2, norm2;
};

/* Whether replicas sum moments: then weights are equal on all replicas, and each replica has its own
 * optimizer states. */
static bool sums_moments(const struct dlb_plan *p)
{
	return dlb_sharing_tensors(&p->sharing) > 1;
}

bool dlb_sync_state_differs(const struct dlb_plan *p)
{
	return p->n_replicas > 1 && (dlb_sharing_averages(&p->sharing) || sums_moments(p));
}

static void add_state(struct mean_state *m, enum dlb_dtype dtype, struct dlb_pack *pack)
{
	const struct dlb_state *s = m->state;

	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		const struct dlb_desc d = dlb_tensor_desc(x, 1);
		const size_t bytes = dlb_desc_bytes(&d);

		m->value[t] = NULL;
		if (!s->value[t] || x->dtype != dtype)
			continue;
		if (!sums_moments(m->plan)) {
			m->value[t] = dlb_host_value(&m->host, s->value[t], bytes);
			dlb_pack_add(pack, m->value[t], dlb_desc_count(&d), -1);
		}
		for (int k = 0; k < s->n_slots; k++)
			if (s->slot[k][t])
				dlb_pack_add(pack, dlb_host_value(&m->host, s->slot[k][t], bytes),
					     dlb_desc_count(&d), -1);
	}
}

static double value_at(const void *x, enum dlb_dtype dtype, int64_t i)
{
	return dtype == DLB_F64 ? ((const double *)x)[i] : ((const float *)x)[i];
}

/* Adds the distances of the weights from their mean to apart2 and norm2. own: [tensor] the weights before
 * they became the mean; NULL: not measured */
static void measure(struct mean_state *m, enum dlb_dtype dtype, char *const *own)
{
	const struct dlb_state *s = m->state;

	for (int t = 0; t < s->graph->n_tensors; t++) {
		struct dlb_desc d = dlb_tensor_desc(&s->graph->tensor[t], 1);

		for (int64_t i = 0, n = own[t] ? dlb_desc_count(&d) : 0; i < n; i++) {
			double mean = value_at(m->value[t], dtype, i), x = value_at(own[t], dtype, i) - mean;

			m->apart2 += x * x;
			m->norm2 += mean * mean;
		}
	}
}

static char **copy_weights(const struct mean_state *m, struct dlb_arena *arena)
{
	const struct dlb_state *s = m->state;
	char **own = dlb_arena_array(arena, (size_t)s->graph->n_tensors + 1, sizeof *own);

	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		size_t bytes = (size_t)dlb_tensor_bytes(x, 1);

		if (m->value[t] && x->kind == DLB_T_WEIGHT)
			own[t] = memcpy(dlb_arena_alloc(arena, bytes + 1), m->value[t], bytes);
	}
	return own;
}

static int sum(struct mean_state *m, enum dlb_dtype dtype, const struct dlb_pack *pack, void *buffer,
	       struct dlb_error *err)
{
	struct dlb_collective_desc d = { .how = dlb_sharing_sum(&m->plan->sharing, INFINITY),
					 .ranks = m->peers,
					 .dtype = dtype,
					 .x = buffer,
					 .n = pack->n,
					 .at = pack->at,
					 .tag = DLB_TAG_STATE };
	struct dlb_collective *k;
	int rc;

	if (dlb_collective_new(&k, m->comm, &d, err))
		return -1;
	dlb_collective_start(k);
	rc = dlb_collective_wait(k, err);
	dlb_collective_free(k);
	return rc;
}

static int mean_of(struct mean_state *m, enum dlb_dtype dtype, struct dlb_error *err)
{
	/* One algorithm for all, so that the chunks are the same whatever the number of bytes of state on a
	 * node. */
	const struct dlb_allreduce *how = dlb_sharing_sum(&m->plan->sharing, INFINITY);
	struct dlb_arena arena = { 0 };
	struct dlb_pack pack = { 0 };
	char **own;
	void *buffer;
	int rc;

	m->host = (struct dlb_host_values){ .be = m->state->be };
	m->value = dlb_arena_array(&arena, (size_t)m->state->graph->n_tensors + 1, sizeof *m->value);
	add_state(m, dtype, &pack);
	rc = dlb_host_values_get(&m->host, err);
	own = copy_weights(m, &arena);
	dlb_pack_lay_out(&pack, how->n_chunks(&m->peers), dlb_dtype_bytes(dtype));
	buffer = dlb_arena_alloc(&arena, (size_t)pack.n * pack.element_bytes + 1);
	if (pack.n && !rc) {
		dlb_pack_load(&pack, buffer);
		rc = sum(m, dtype, &pack, buffer, err);
	}
	if (pack.n && !rc) {
		dlb_sync_scale(buffer, dtype, pack.n, 1.0 / m->plan->n_replicas);
		dlb_pack_unload(&pack, buffer);
		rc = dlb_host_values_put(&m->host, err);
	}
	measure(m, dtype, own);
	dlb_host_values_release(&m->host);
	dlb_pack_release(&pack);
	dlb_arena_release(&arena);
	return rc;
}

int dlb_sync_mean_state(struct dlb_comm *c, const struct dlb_plan *p, const struct dlb_cluster *cluster,
			struct dlb_state *s, double *apart, struct dlb_error *err)
{
	struct mean_state m = { .comm = c, .plan = p, .state = s };
	const int part = dlb_plan_part_of(p, dlb_comm_rank(c));
	double sums[2];
	int rc = 0;

	*apart = NAN;
	if (!dlb_sync_state_differs(p))
		return 0;
	if (part >= 0) {
		struct dlb_arena arena = { 0 };

		dlb_sync_find_peers(p, cluster, part, &arena, &m.peers);
		rc = mean_of(&m, DLB_F32, err) || mean_of(&m, DLB_F64, err) ? -1 : 0;
		dlb_arena_release(&arena);
	}
	sums[0] = m.apart2;
	sums[1] = m.norm2;
	if (rc || dlb_comm_allreduce_f64(c, sums, 2, DLB_COMM_SUM, err))
		return -1;
	if (dlb_sharing_averages(&p->sharing))
		*apart = sums[1] > 0.0 ? sqrt(sums[0] / sums[1]) : 0.0; /* both are sums over the replicas */
	return 0;
}
