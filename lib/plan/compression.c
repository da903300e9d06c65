/* The ranks of compressed sums in the report:
 *
 *     "ranks": [{"weight": "fc1.weight", "min": 12, "median": 30, "max": 31, "most": 31}, ...]
 *
 * For a simulated step, every tensor has its greatest rank. A measured run has the ranks used, 0 before
 * compression starts. */
#include "graph/fused_weight.h"
#include "plan/bucket_tensors.h"
#include "plan/by_class.h"
#include "plan/replica.h"
#include "plan/report.h"

static void expect_of_bucket(struct dlb_report *r, const struct dlb_program *g, const struct dlb_program *own,
			     const struct dlb_bucket *b)
{
	const struct dlb_compress_choice choice = dlb_program_compress(g, (int)b->cls);
	struct dlb_report_allreduce *a = &r->allreduce;
	int n;
	const struct dlb_sum_tensor *x = dlb_bucket_tensors(own->graph, b, &r->arena, &n);

	for (int i = 0; i < n; i++) {
		const int most = dlb_compress_rank(&choice, &x[i]);

		if (most)
			a->rank[a->n_ranks++] = (struct dlb_report_rank){
				dlb_arena_strdup(&r->arena, x[i].name), most, most, most, most
			};
	}
}

void dlb_report_expect_ranks(struct dlb_report *r, const struct dlb_program *g)
{
	struct dlb_report_allreduce *a = &r->allreduce;

	a->rank = dlb_arena_array(&r->arena, (size_t)g->graph->n_ops * DLB_MOST_FUSED + 1, sizeof *a->rank);
	for (int node = 0; node < g->whole->n_nodes; node++) {
		const struct dlb_program *own = dlb_program_of(g, node);
		const struct dlb_node_program *np = &own->node[node];

		for (int b = 0; dlb_plan_replica_of(g->whole, node) == 0 && b < np->n_buckets; b++)
			if (np->bucket[b].cls <= DLB_SUM_SMALL && np->bucket[b].cls != DLB_SUM_FACTOR)
				expect_of_bucket(r, g, own, &np->bucket[b]);
	}
}

json_t *dlb_report_ranks_write(const struct dlb_report_allreduce *a)
{
	json_t *list = json_array();

	for (int i = 0; i < a->n_ranks; i++) {
		const struct dlb_report_rank *x = &a->rank[i];

		json_array_append_new(list,
				      json_pack("{ss si si si si}", "weight", x->weight, "min", x->least,
						"median", x->median, "max", x->greatest, "most", x->most));
	}
	return list;
}

static int read_rank(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_rank *x,
		     struct dlb_error *err)
{
	static const char *const known[] = { "weight", "min", "median", "max", "most", NULL };
	int64_t v[4] = { 0 };
	const char *weight = NULL;

	if (dlb_ref_known(r, known, err) || dlb_get_str(r, "weight", DLB_NEED, &weight, err))
		return -1;
	for (int k = 0; k < 4; k++)
		if (dlb_get_int(r, known[k + 1], DLB_NEED, 0, INT32_MAX, &v[k], err))
			return -1;
	*x = (struct dlb_report_rank){ dlb_arena_strdup(&out->arena, weight), (int)v[0], (int)v[1], (int)v[2],
				       (int)v[3] };
	return 0;
}

int dlb_report_ranks_read(const struct dlb_ref *allreduce, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_report_allreduce *a = &out->allreduce;
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(allreduce, "ranks", DLB_OPT, &list, &n, err))
		return -1;
	a->rank = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *a->rank);
	for (a->n_ranks = 0; list.v && a->n_ranks < n; a->n_ranks++) {
		struct dlb_ref e = dlb_ref_index(&list, a->n_ranks);

		if (read_rank(&e, out, &a->rank[a->n_ranks], err))
			return -1;
	}
	return 0;
}
