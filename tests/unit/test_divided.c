/* Weights that replicas divide: which ones, and this replica's part of each; the nodes of weights; and the
 * reasons why options of sharing have no effect, all rows under all plans. */
#include "check.h"
#include "graph/graph.h"
#include "graph/order.h"
#include "optim/optim.h"
#include "plan/buckets.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "util/cli.h"

enum { LEAST = DLB_LEAST_GATHERED_BYTES / 4, W = 6 };
static int n_checks;

/* Ops 0 to 6 read weights 0 to 6; op 7 reads weight 1 too; updates follow, but weights 4 and 5 have none. */
static struct dlb_graph graph;
static int weight[W + 1], update[W + 1];

static int tensor(const char *what, int i, enum dlb_tensor_kind kind, enum dlb_dtype dtype, int64_t n)
{
	char name[24];

	snprintf(name, sizeof name, "%s%d", what, i);
	const int t = dlb_graph_add_tensor(&graph, name, kind);
	struct dlb_tensor *x = &graph.tensor[t];

	x->dtype = dtype;
	x->n_dims = 1;
	x->dim[0] = (struct dlb_dim){ 0, n };
	x->size_add = (double)n * (double)dlb_dtype_bytes(dtype);
	return t;
}

static int op(const char *what, int i, enum dlb_phase phase, int a, int b, int out)
{
	const int in[2] = { a, b };
	char name[24];

	snprintf(name, sizeof name, "%s%d", what, i);
	return dlb_graph_add_op(&graph, phase,
				&(struct dlb_op_spec){ .name = name,
						       .type = "F",
						       .domain = "test",
						       .in = in,
						       .n_in = b >= 0 ? 2 : 1,
						       .out = &out,
						       .n_out = out >= 0 });
}

static void make_graph(void)
{
	static const struct {
		enum dlb_dtype dtype;
		int64_t n;
	} of[W + 1] = { { DLB_F32, LEAST },        { DLB_F32, LEAST + 7 }, { DLB_F32, LEAST - 1 },
			{ DLB_F64, 3 * LEAST },    { DLB_F32, 2 * LEAST }, { DLB_F32, 2 * LEAST },
			{ DLB_F32, 5 * LEAST + 2 } };
	int x;

	dlb_graph_init(&graph);
	graph.training = true;
	x = tensor("x", 0, DLB_T_INPUT, DLB_F32, 10);
	for (int i = 0; i <= W; i++) {
		const int y = tensor("y", i, DLB_T_ACTIVATION, DLB_F32, 10);

		weight[i] = tensor("w", i, i == 5 ? DLB_T_CONSTANT : DLB_T_WEIGHT, of[i].dtype, of[i].n);
		op("f", i, DLB_FORWARD, x, weight[i], y);
		x = y;
	}
	op("f", 7, DLB_FORWARD, x, weight[1], tensor("y", 7, DLB_T_ACTIVATION, DLB_F32, 10));
	graph.loss = graph.op[graph.n_ops - 1].out[0];
	for (int i = 0; i <= W; i++) {
		update[i] = -1;
		if (i == 4 || i == 5)
			continue;
		const int dw = tensor("dw", i, DLB_T_WEIGHT_GRADIENT, of[i].dtype, of[i].n);

		op("b", i, DLB_BACKWARD, graph.op[i].out[0], -1, dw);
		update[i] = op("u", i, DLB_UPDATE, i % 2 ? dw : weight[i], i % 2 ? weight[i] : dw, -1);
		graph.tensor[dw].of = weight[i];
		graph.tensor[weight[i]].home = update[i];
	}
	assert(!dlb_graph_index(&graph));
}

static void test_which(void)
{
	static const bool may[W + 1] = { true, true, false, false, false, false, true };
	int *at = calloc((size_t)graph.n_ops, sizeof *at);
	struct dlb_plan plan = { .n_replicas = 2, .graph = &graph, .placement = at, .n_ops = graph.n_ops };

	for (int i = 0; i <= W; i++) {
		assert(IS(dlb_weight_may_be_gathered(&graph, weight[i]), ==, may[i]));
		assert(update[i] < 0 || IS(dlb_update_weight(&graph, update[i]), ==, weight[i]));
	}
	assert(IS(dlb_update_weight(&graph, 0), ==, weight[0])); /* the weight among its inputs */
	assert(!dlb_weight_may_be_gathered(&graph, graph.op[0].out[0]));
	/* nodes: of the home, else of the first reader */
	for (int i = 0; i < graph.n_ops; i++)
		at[i] = 10 + i;
	for (int i = 0; i <= W; i++)
		assert(IS(dlb_weight_node(&graph, at, weight[i]), ==, 10 + (update[i] >= 0 ? update[i] : i)));
	assert(IS(dlb_weight_node(&graph, at, graph.loss), ==, -1));
	/* all ops on one node; then the second reader of weight 1, the update of weight 0, on another */
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < graph.n_ops; i++)
			at[i] = 1;
		at[turn == 1 ? 7 : update[0]] = turn ? 0 : 1;
		for (int zero = 0; zero <= 3; zero++)
			for (int R = 1; R <= 2; R++) {
				bool any = false;

				plan.sharing.zero = zero;
				plan.n_replicas = R;
				for (int i = 0; i <= W; i++) {
					const bool one = i != (turn == 1 ? 1 :
							       turn == 2 ? 0 :
									   -1),
						   divides = may[i] && one && zero == 3 && R > 1;

					assert(IS(dlb_weight_has_one_node(&graph, at, weight[i]), ==, one));
					assert(IS(dlb_weight_is_gathered(&graph, at, weight[i]), ==,
						  may[i] && one));
					assert(IS(dlb_plan_divides(&plan, &graph, weight[i]), ==, divides));
					any |= divides;
				}
				assert(IS(dlb_plan_gathers(&plan, &graph), ==, any));
				n_checks++;
			}
	}
	/* none: every large weight has a reader elsewhere */
	for (int i = 0; i < graph.n_ops; i++)
		at[i] = graph.op[i].phase == DLB_UPDATE;
	plan.sharing.zero = 3;
	assert(!dlb_plan_gathers(&plan, &graph));
	free(at);
}

static void test_parts(void)
{
	int *at = calloc((size_t)graph.n_ops, sizeof *at);
	struct dlb_plan plan = { .graph = &graph, .placement = at, .n_ops = graph.n_ops };
	struct dlb_program g = { .graph = &graph, .plan = &plan, .micro_batches = 3 };
	bool has[40] = { false };

	plan.sharing.zero = 3;
	for (int R = 1; R <= 4; R++) {
		int64_t end[W + 1] = { 0 }, sum[W + 1] = { 0 };

		plan.n_shares = R;
		for (plan.share = 0; plan.share < R; plan.share++)
			for (int i = 0; i <= W; i++) {
				const struct dlb_tensor *x = &graph.tensor[weight[i]];
				const struct dlb_share s = dlb_program_share(&g, weight[i]);
				const size_t each = dlb_dtype_bytes(x->dtype);

				/* equal parts, but for one element; in the ring's order */
				assert(IS(s.n, >=, x->dim[0].add / R) &&
				       IS(s.n, <=, (x->dim[0].add + R - 1) / R));
				assert(IS(dlb_program_share_bytes(&g, weight[i]), ==, (size_t)s.n * each) &&
				       IS(dlb_program_share_offset(&g, weight[i]), ==,
					  (size_t)s.first * each));
				assert(R > 1 || (IS(s.first, ==, 0) && IS(s.n, ==, x->dim[0].add)));
				assert((plan.share == R - 1) == (s.first == 0));
				sum[i] += s.n;
				end[i] = s.first + s.n > end[i] ? s.first + s.n : end[i];
			}
		for (int i = 0; i <= W; i++)
			assert(IS(sum[i], ==, graph.tensor[weight[i]].dim[0].add) && IS(end[i], ==, sum[i]));
	}
	/* without a shape: by its bytes */
	graph.tensor[weight[6]].n_dims = -1;
	plan.n_shares = 2;
	plan.share = 1;
	assert(IS(dlb_program_share(&g, weight[6]).n, ==, (5 * LEAST + 2) / 2));
	graph.tensor[weight[6]].n_dims = 1;

	static const struct {
		int shares, zero;
		bool any;
	} rows[] = { { 2, 3, true }, { 1, 3, false }, { 0, 3, false }, { 2, 2, false } };
	for (int i = 0; i < DLB_LEN(rows); i++) {
		plan.n_shares = rows[i].shares;
		plan.sharing.zero = rows[i].zero;
		const bool *found = dlb_program_find_gathered(&g);
		assert(IS(found != NULL, ==, rows[i].any));
		for (int k = 0; k <= W && found; k++)
			assert(IS(found[weight[k]], ==, dlb_weight_is_gathered(&graph, at, weight[k])));
	}
	plan.gathered = has; /* as the plan says */
	plan.sharing.zero = 3;
	plan.n_shares = 2;
	assert(dlb_program_find_gathered(&g) == has);
	g.gathered = has;
	has[weight[1]] = true;
	for (int i = 0; i < 8; i++)
		assert(IS(dlb_program_reads_gathered(&g, i), ==, i == 1 || i == 7));
	assert(IS(dlb_program_weight_bytes(&g, weight[1]), ==, dlb_program_share_bytes(&g, weight[1])) &&
	       IS(dlb_program_weight_bytes(&g, weight[0]), ==, 4 * LEAST));
	int *far = malloc((size_t)graph.n_tensors * sizeof *far);
	for (int t = 0; t < graph.n_tensors; t++)
		far[t] = t == weight[1] ? 0 : -1;
	g.far_weight = far;
	assert(IS(dlb_program_weight_bytes(&g, weight[1]), ==, 0) &&
	       IS(dlb_program_weight_bytes(&g, weight[0]), ==, 4 * LEAST));
	free(far);
	dlb_arena_release(&g.arena);
	free(at);
}

/* A gradient's second life is read by its update alone, if its share has a place of its own. */
static void test_places(void)
{
	struct dlb_program g = { .graph = &graph };

	assert(!dlb_program_leaves(&g, update[0]) && !dlb_program_has_share_place(&g, update[0]));
	g.kept = dlb_arena_array(&g.arena, (size_t)graph.n_ops + 1, sizeof *g.kept);
	for (int i = 0; i < graph.n_ops; i++)
		g.kept[i] = DLB_KEPT_WHOLE;
	g.kept[update[0]] = DLB_KEPT_IN_PLACE;
	g.kept[update[1]] = DLB_KEPT_IN_BUFFER;
	for (int i = 0; i <= W; i++) {
		if (update[i] < 0)
			continue;
		const int dw = dlb_update_gradient(&graph, update[i]);

		assert(IS(dlb_program_leaves(&g, update[i]), ==, i < 2));
		assert(IS(dlb_program_has_share_place(&g, update[i]), ==, i == 0));
		assert(IS(dlb_program_share_reader(&g, dw), ==, i ? -1 : update[0]));
		assert(IS(dlb_program_share_reader(&g, weight[i]), ==, -1));
	}
	assert(IS(dlb_program_share_reader(&g, graph.loss), ==, -1));
	dlb_arena_release(&g.arena);
}

/* The reason that dlb_cli_warn_unused takes for an option: of its first row that is unused. */
static const char *why_unused(const struct dlb_unused *row, const char *option)
{
	for (; row->option; row++)
		if (row->unused && !strcmp(row->option, option))
			return row->why;
	return NULL;
}

static void expect_unused(const struct dlb_sharing *s, int n_replicas, const char *optimizer, bool statistics)
{
	static const char *const all[] = { "allreduce",      "compress", "reduce",
					   "max-state",      "sync",     "async-allreduce",
					   "sync-batchnorm", "gossip",   "param-server",
					   "sync-every",     "shards",   "exchange-data",
					   "feed",           "zero" };
	const bool kfac = optimizer && !strcmp(optimizer, "kfac"),
		   stateless = kfac || (optimizer && !strcmp(optimizer, "sgd"));
	struct dlb_unused row[DLB_SHARING_UNUSED];

	dlb_sharing_unused(s, n_replicas, optimizer, statistics, row);
	for (int i = 0; i < DLB_LEN(all); i++) {
		const char *why = why_unused(row, all[i]), *want = NULL;

		if (n_replicas < 2)
			want = "the plan has one replica, which shares nothing; dlb-place --replicas makes "
			       "several";
		else if (i == 6 && !statistics)
			want = "no batch normalization of the model takes statistics of a batch";
		else if (i == 0 && s->param_server >= 0)
			want = "a parameter server makes the mean, and nothing is summed";
		else if (i == 1 && !strcmp(s->compress, "cholesky:per-hop") && !kfac)
			want = "cholesky:per-hop is for the factors of --optimizer kfac";
		else if (i == 1 && !strcmp(s->compress, "auto") && !s->compress_of[1][0])
			want = "on these links compressing costs more than it saves (dlb-view has the "
			       "figures)";
		else if (i == 13 && s->zero == 1 && stateless)
			want = "the optimizer keeps no state that replicas could divide";
		else if (i == 3 && dlb_sharing_tensors(s) < 2)
			want = "it is for --reduce moments";
		assert(IS(why != NULL, ==, want != NULL) && (!want || SAME(why, want)));
	}
	n_checks++;
}

static void test_unused(void)
{
	static const char *const optimizers[] = { NULL, "sgd", "adam", "kfac", "none such" };
	static const char *const compress[] = { "none", "auto", "cholesky:per-hop", "bf16" };
	static const char *const reduce[] = { NULL, "gradients", "moments" };

	for (int i = 0; i < DLB_LEN(optimizers); i++)
		for (int c = 0; c < DLB_LEN(compress); c++)
			for (int r = 0; r < DLB_LEN(reduce); r++)
				for (int more = 0; more < 8; more++) {
					const struct dlb_sharing_options o = { .reduce = reduce[r] };
					struct dlb_error err;
					struct dlb_sharing s;

					dlb_sharing_init(&s);
					assert(IS(dlb_sharing_apply(&o, &s, &err), ==, 0));
					strcpy(s.compress, compress[c]);
					s.param_server = more & 1 ? 0 : -1;
					s.zero = more & 2 ? 1 : more & 1 ? 2 : 0;
					if (more & 4)
						strcpy(s.compress_of[1], "bf16");
					expect_unused(&s, 1, optimizers[i], more & 1);
					expect_unused(&s, 2 + more, optimizers[i], more & 2);
				}
}

int main(void)
{
	make_graph();
	test_which();
	test_parts();
	test_places();
	test_unused();
	dlb_graph_release(&graph);
	printf("%d checks\n", n_checks);
	return 0;
}
