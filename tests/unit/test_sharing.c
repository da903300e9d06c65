/* How replicas share: options that contradict each other, plans that do, and what options make of the members
 * of a plan; the shares of a batch; steps between means. */
#include "check.h"
#include <math.h>
#include "cluster/cluster.h"
#include "comm/allreduce.h"
#include "util/rng.h"
#include "plan/program.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"

#define AVERAGES "--gossip, --param-server and --sync-every"

/* before, options: of the plan and given; says: the refusal, or the members that are written. */
static const struct row {
	struct dlb_sharing_options before, options;
	const char *says;
} rows[] = {
	{ { 0 }, { .sync = true, .async = true }, "--sync and --async-allreduce exclude each other" },
	{ { 0 },
	  { .allreduce = "x" },
	  "no way to sum 'x'; there are auto, ring, tree, host, hierarchical, doubling and mpi" },
	{ { 0 }, { .compress = "zip" }, NULL },
	{ { 0 },
	  { .allreduce = "mpi", .compress = "bf16" },
	  "--allreduce mpi sums by itself: it cannot compress" },
	{ { .compress = "bf16" },
	  { .allreduce = "mpi" },
	  "--allreduce mpi sums by itself: it cannot compress" },
	{ { 0 }, { .param_server = "x" }, "--param-server wants a node or none, not 'x'" },
	{ { 0 }, { .param_server = "" }, "--param-server wants a node or none, not ''" },
	{ { 0 }, { .param_server = "1x" }, "--param-server wants a node or none, not '1x'" },
	{ { 0 }, { .param_server = "-1" }, "--param-server wants a node or none, not '-1'" },
	{ { 0 }, { .param_server = "2147483648" }, "--param-server wants a node or none, not '2147483648'" },
	{ { 0 },
	  { .gossip = .5, .gossip_given = true, .param_server = "0" },
	  "--gossip and --param-server exclude each other" },
	{ { .param_server = "0" },
	  { .gossip = .5, .gossip_given = true },
	  "--gossip and --param-server exclude each other" },
	{ { 0 },
	  { .sync = true, .sync_every = 2, .sync_every_given = true },
	  "--sync is for sums of gradients, not for " AVERAGES },
	{ { 0 },
	  { .compress = "bf16", .param_server = "0" },
	  "--compress is for sums of gradients, not for " AVERAGES },
	{ { 0 },
	  { .sync_batchnorm = true, .gossip = .5, .gossip_given = true },
	  "--sync-batchnorm is for replicas of one model, not with " AVERAGES },
	{ { 0 }, { .reduce = "x" }, "--reduce wants gradients or moments, with :mean or :sum, not 'x'" },
	{ { 0 }, { .max_state = "x" }, "--max-state wants merged or local, not 'x'" },
	{ { 0 },
	  { .reduce = "moments", .compress = "bf16" },
	  "--compress is for sums of gradients, not of moments" },
	{ { 0 },
	  { .reduce = "moments:sum", .sync_every = 3, .sync_every_given = true },
	  "--reduce moments is for sums, not for " AVERAGES },
	{ { 0 }, { .shards = "x" }, "--shards wants even, sorted or none, not 'x'" },
	{ { 0 }, { .feed = "x" }, "--feed wants local or host, not 'x'" },
	{ { 0 },
	  { .shards = "none", .exchange_data = .5, .exchange_data_given = true },
	  "--exchange-data needs shards, and --shards none says there are none" },
	{ { 0 },
	  { .zero = 1, .zero_given = true, .gossip = .5, .gossip_given = true },
	  "--zero does not divide the optimizer's state: replicas that average their weights (gossip, "
	  "sync_every, "
	  "param_server) have state of their own; leave one of them out" },
	{ { 0 },
	  { .zero = 2, .zero_given = true, .reduce = "moments" },
	  "--zero does not divide the optimizer's state: replicas that sum moments make them of their own "
	  "gradients; leave one of them out" },
	{ { 0 },
	  { 0 },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even'}" },
	{ { .sync = true },
	  { .allreduce = "tree", .compress = "bf16", .sync_batchnorm = true },
	  "{'allreduce':'tree','sync':true,'sync_batchnorm':true,'compress':'bf16','split':'even'}" },
	{ { .sync = true, .allreduce = "mpi" },
	  { .async = true },
	  "{'allreduce':'mpi','sync':false,'sync_batchnorm':false,'compress':'none','split':'even'}" },
	{ { .gossip = .25, .gossip_given = true, .shards = "sorted" },
	  { .sync_every = 7, .sync_every_given = true, .exchange_data = .5, .exchange_data_given = true },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even',"
	  "'gossip':0.25,'sync_every':7,'shards':'sorted','exchange_data':0.5}" },
	{ { .shards = "sorted", .exchange_data = .5, .exchange_data_given = true },
	  { .shards = "none" },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even'}" },
	{ { 0 },
	  { .exchange_data = .5, .exchange_data_given = true, .feed = "host" },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even',"
	  "'shards':'even','exchange_data':0.5,'feed':'host'}" },
	{ { .feed = "host", .zero = 2, .zero_given = true },
	  { .feed = "local" },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even','zero':"
	  "2}" },
	{ { .param_server = "3" },
	  { 0 },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even',"
	  "'param_server':3}" },
	{ { .param_server = "3" },
	  { .param_server = "none" },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even'}" },
	{ { 0 },
	  { .reduce = "moments:sum", .max_state = "local" },
	  "{'allreduce':'ring','sync':false,'sync_batchnorm':false,'compress':'none','split':'even',"
	  "'reduce':'moments:sum','max_state':'local'}" },
};

static void test_options(void)
{
	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_sharing s;
		struct dlb_error err = { .what = "" };

		dlb_sharing_init(&s);
		assert(IS(dlb_sharing_apply(&rows[i].before, &s, &err), ==, 0));
		if (!rows[i].says || rows[i].says[0] != '{') {
			assert(IS(dlb_sharing_apply(&rows[i].options, &s, &err), ==, -1));
			assert(!rows[i].says || SAME(err.what, rows[i].says));
			continue;
		}
		assert(IS(dlb_sharing_apply(&rows[i].options, &s, &err), ==, 0));
		json_t *plan = json_object();
		dlb_sharing_write(&s, plan);
		char *text = json_dumps(plan, JSON_COMPACT);
		for (char *at = text; *at; at++)
			*at = *at == '"' ? '\'' : *at;
		assert(SAME(text, rows[i].says));
		/* read again, it is the same */
		struct dlb_doc doc;
		struct dlb_sharing back;
		dlb_doc_init(&doc, "test.json");
		dlb_doc_set(&doc, "plan", plan);
		const struct dlb_ref at = dlb_ref_root(&doc, "plan");
		dlb_sharing_init(&back);
		assert(IS(dlb_sharing_read(&at, &back, &err), ==, 0));
		json_t *again = json_object();
		dlb_sharing_write(&back, again);
		assert(json_equal(plan, again));
		json_decref(again);
		free(text);
		dlb_doc_release(&doc);
	}
}

/* Plans of two replicas of two nodes each that contradict themselves; node 4 has no part. */
static void test_check(void)
{
	static const struct {
		struct dlb_sharing s;
		bool async;
		const char *where, *what, *hint;
	} plans[] = {
		{ { .param_server = -1 }, false, NULL, NULL, NULL },
		{ { .param_server = -1, .sync = true, .sync_batchnorm = true, .zero = 3 },
		  false,
		  NULL,
		  NULL,
		  NULL },
		{ { .param_server = -1 }, true, NULL, NULL, NULL },
		{ { .param_server = 4 }, false, NULL, NULL, NULL },
		{ { .gossip = .5, .param_server = 0 },
		  false,
		  "/plan/gossip",
		  "gossip and a parameter server exclude each other",
		  "" },
		{ { .gossip = .5, .param_server = -1, .zero = 1 },
		  false,
		  "/plan/zero",
		  "the optimizer's state is not divided: replicas that average their weights (gossip, "
		  "sync_every, "
		  "param_server) have state of their own; leave one of them out",
		  "" },
		{ { .param_server = -1, .zero = 1 },
		  true,
		  "/plan/zero",
		  "the optimizer's state is not divided under an asynchronous schedule, which updates "
		  "weights while "
		  "others read them; leave zero out, or take a synchronous schedule",
		  "" },
		{ { .sync_every = 2, .param_server = -1, .sync = true },
		  false,
		  "/plan/sync",
		  "sync is for sums of gradients; with average there are none",
		  "" },
		{ { .gossip = .5, .param_server = -1 },
		  true,
		  "/plan/schedule",
		  "async: replicas sum gradients; gossip averages the weights that a step ended with, and "
		  "several are "
		  "under way; leave gossip out, or take a synchronous schedule",
		  "" },
		{ { .param_server = -1, .sync = true },
		  true,
		  "/plan/sync",
		  "async: a command after every step would empty the pipeline; leave sync out",
		  "" },
		{ { .param_server = 4, .sync_batchnorm = true },
		  false,
		  "/plan/sync_batchnorm",
		  "statistics of all replicas are for replicas of one model; with param-server they differ",
		  "" },
		{ { .param_server = 5 },
		  false,
		  "/plan/param_server",
		  "there is no node 5; there are nodes 0 to 4",
		  "" },
		{ { .param_server = 1 },
		  false,
		  "/plan/param_server",
		  "node 1 holds only a part of the model",
		  "name a node that has no part in the replicas" },
	};

	for (int i = 0; i < DLB_LEN(plans); i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_plan p;

		dlb_plan_init(&p, 1, 5);
		p.batch = 4;
		p.schedule = plans[i].async ? "async" : "1f1b";
		dlb_plan_set_replicas(&p, 2, (int[]){ 0, 1, -1, -1, -1, 2, 3, -1, -1, -1 });
		p.sharing = plans[i].s;
		p.sharing.allreduce = "ring";
		strcpy(p.sharing.compress, "none");
		assert(IS(dlb_plan_check_replicas(&p, &err), ==, plans[i].what ? -1 : 0));
		if (plans[i].what)
			assert(SAME(err.where, plans[i].where) && SAME(err.what, plans[i].what) &&
			       SAME(err.hint, plans[i].hint));
		p.batch = 1;
		assert(IS(dlb_plan_check_replicas(&p, &err), ==, -1) && SAME(err.where, "/plan/replicas") &&
		       SAME(err.what, "2 replicas for a batch of 1"));
		p.batch = 2;
		p.placement[0] = 2;
		assert(IS(dlb_plan_check_replicas(&p, &err), ==, -1) &&
		       SAME(err.where, "/plan/placement/0") &&
		       SAME(err.what, "node 2 has no part in the replicas"));
		dlb_plan_release(&p);
	}
}

/* Steps between means: as given, or 1 with a server, 25 with gossip, 2 of it sorted; advice where sorted
 * shards meet less often than every 2 steps, or 5 where they exchange samples. */
static void test_means(void)
{
	static const struct {
		struct dlb_sharing s;
		int every;
		const char *name;
		bool advice, averages;
	} means[] = {
		{ { .param_server = -1 }, 0, "tree", false, false },
		{ { .param_server = 0 }, 1, "param-server", false, true },
		{ { .param_server = 0, .sync_every = 3 }, 3, "param-server", false, true },
		{ { .param_server = -1, .gossip = .1 }, 25, "gossip", false, true },
		{ { .param_server = -1, .gossip = .1, .shards = "even" }, 25, "gossip", false, true },
		{ { .param_server = -1, .gossip = .1, .shards = "sorted" }, 2, "gossip", false, true },
		{ { .param_server = -1, .sync_every = 3, .shards = "sorted" }, 3, "average", true, true },
		{ { .param_server = -1, .sync_every = 2, .shards = "sorted" }, 2, "average", false, true },
		{ { .param_server = -1, .sync_every = 5, .shards = "sorted", .exchange_data = .1 },
		  5,
		  "average",
		  false,
		  true },
		{ { .param_server = -1, .sync_every = 6, .shards = "sorted", .exchange_data = .1 },
		  6,
		  "average",
		  true,
		  true },
		{ { .param_server = -1, .sync_every = 6, .shards = "even" }, 6, "average", false, true },
		{ { .param_server = -1, .shards = "sorted" }, 0, "tree", false, false },
	};

	for (int i = 0; i < DLB_LEN(means); i++) {
		struct dlb_sharing s = means[i].s;

		s.allreduce = "tree";
		assert(IS(dlb_sharing_every(&s), ==, means[i].every) &&
		       SAME(dlb_sharing_name(&s), means[i].name));
		assert(IS(dlb_sharing_advice(&s) != NULL, ==, means[i].advice));
		assert(IS(dlb_sharing_averages(&s), ==, means[i].averages) &&
		       IS(dlb_sharing_own_mean(&s), ==, means[i].averages) &&
		       IS(dlb_sharing_tensors(&s), ==, 1));
		for (int step = 0; step < 60; step++)
			assert(IS(dlb_sharing_meets(&s, step), ==,
				  means[i].every && step % means[i].every == means[i].every - 1));
	}
	struct dlb_sharing s = { .param_server = -1, .reduce = "gradients:sum" };
	assert(dlb_sharing_own_mean(&s) && IS(dlb_sharing_tensors(&s), ==, 1));
	s.reduce = "gradients:mean";
	assert(!dlb_sharing_own_mean(&s));
	s.reduce = "moments:mean";
	assert(dlb_sharing_own_mean(&s) && IS(dlb_sharing_tensors(&s), ==, 2));
}

/* By size: the last row that begins at or below the size. */
static void test_sums(void)
{
	struct dlb_sharing s = { .allreduce = "auto",
				 .by_size = { { 0, "doubling" }, { 100, "ring" }, { 1000, "tree" } },
				 .n_by_size = 3 };
	char text[100], small[12];

	assert(SAME(dlb_sharing_sum(&s, 0)->name, "doubling") &&
	       SAME(dlb_sharing_sum(&s, 99)->name, "doubling") &&
	       SAME(dlb_sharing_sum(&s, 100)->name, "ring") && SAME(dlb_sharing_sum(&s, 999)->name, "ring") &&
	       SAME(dlb_sharing_sum(&s, 1000)->name, "tree"));
	assert(SAME(dlb_sharing_sums(&s, text, sizeof text),
		    "auto: doubling, ring from 100 bytes, tree from 1000 bytes"));
	assert(SAME(dlb_sharing_sums(&s, small, sizeof small), "auto: doubl"));
	s.allreduce = "host";
	s.n_by_size = 0;
	assert(SAME(dlb_sharing_sum(&s, 1e9)->name, "host") &&
	       SAME(dlb_sharing_sums(&s, text, sizeof text), "host"));
	s.allreduce = "auto";
	assert(SAME(dlb_sharing_sum(&s, 1e9)->name, "ring"));
}

/* Shares of a batch: each part by power is rounded down or up, a greater power has no less; in equal parts
 * the first replicas have more. Where a part is less than a sample, no share is empty if there are enough
 * samples. */
static void test_shares(void)
{
	double power[5];
	int64_t share[5];
	struct dlb_rng r;

	dlb_rng_init(&r, 5);
	for (int k = 0; k < 2000; k++) {
		const int n = 2 + (int)dlb_rng_below(&r, 4);
		const int64_t batch = (int64_t)dlb_rng_below(&r, 40);
		const struct dlb_plan p = { .n_replicas = n, .power = k % 3 ? power : NULL };
		double sum = 0, least = INFINITY;
		int64_t all = 0;

		for (int i = 0; i < n; i++) {
			power[i] = k % 3 == 0 ? 1 :
				   k % 3 == 1 ? 1 + (double)dlb_rng_below(&r, 3) :
						exp(4 * dlb_rng_uniform(&r));
			sum += power[i];
			least = fmin(least, power[i]);
		}
		dlb_plan_shares(&p, batch, share);
		for (int i = 0; i < n; i++) {
			const double part = (double)batch * power[i] / sum;

			all += share[i];
			assert(batch < n || IS(share[i], >=, 1));
			assert(k % 3 || IS(share[i], ==, batch / n + (i < batch % n)));
			if ((double)batch * least < sum)
				continue;
			assert(IS(fabs((double)share[i] - part), <, 1));
			for (int j = 0; j < n; j++)
				assert(power[i] < power[j] ||
				       IS(share[i], >=, share[j] - (power[i] == power[j])));
		}
		assert(IS(all, ==, batch));
	}
	/* 8.57 : 0.86 : 0.57 of 10: rests give the last two a sample each */
	struct dlb_plan p = { .n_replicas = 3, .power = (double[]){ 15, 1.5, 1 } };
	dlb_plan_shares(&p, 10, share);
	assert(IS(share[0], ==, 8) && IS(share[1], ==, 1) && IS(share[2], ==, 1));
	/* 9.8 : 0.1 : 0.1 of 10: the first gets the rest, and gives a sample to each of the others */
	p.power = (double[]){ 98, 1, 1 };
	dlb_plan_shares(&p, 10, share);
	assert(IS(share[0], ==, 8) && IS(share[1], ==, 1) && IS(share[2], ==, 1));
	/* of 2, the least has none */
	dlb_plan_shares(&p, 2, share);
	assert(IS(share[0], ==, 1) && IS(share[1], ==, 1) && IS(share[2], ==, 0));
}

/* What programs lack: three nodes by name and number, then how many others. */
static void test_lack(void)
{
	struct dlb_node_program np[5] = {
		{ .arena_bytes = 3000000, .scratch_bytes = 200000, .state_bytes = 50000 },
		{ .arena_bytes = 1000000 },
		{ .arena_bytes = 1000001 },
		{ .state_bytes = 2500000 },
		{ .scratch_bytes = 1100000 }
	};
	struct dlb_program g = { .n_nodes = 5, .node = np };
	struct dlb_cluster c;
	struct dlb_error err;
	char text[DLB_LACK_TEXT];

	assert(IS(dlb_cluster_parse("cpu:5", &c, &err), ==, 0));
	for (int i = 0; i < 5; i++)
		c.node[i].memory_bytes = 1000000;
	assert(IS(dlb_program_lack_text(&g, &c, text), ==, 4));
	assert(SAME(text, "2.25 MB more on node 0, 0.0001 MB more on node 2, 1.5 MB more on node 3 and more "
			  "on 1 others"));
	np[4].scratch_bytes = 1000000;
	assert(IS(dlb_program_lack_text(&g, &c, text), ==, 3));
	assert(SAME(text, "2.25 MB more on node 0, 0.0001 MB more on node 2, 1.5 MB more on node 3"));
	np[0].arena_bytes = np[3].state_bytes = 0;
	np[2].arena_bytes = 1000000;
	assert(IS(dlb_program_lack_text(&g, &c, text), ==, 0) && SAME(text, ""));
	dlb_cluster_release(&c);
}

int main(void)
{
	test_options();
	test_check();
	test_means();
	test_sums();
	test_shares();
	test_lack();
	printf("test_sharing: %d sets of options, plans that contradict themselves, means, sums by size, "
	       "shares\n",
	       (int)DLB_LEN(rows));
	return 0;
}
