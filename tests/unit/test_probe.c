/* The cluster that several ranks measure, with ranks that are threads: hosts, kinds, speeds, memories, and
 * the latency and bandwidth of links. This program has a communicator, back ends, hosts and a clock of its
 * own in place of the library's; a device takes the time that its rates give, and a message that of its
 * receiver. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "comm/comm.h"
#include "exec/probe.h"
#include "util/clock.h"
#include "check.h"
#include "thread_ranks.h"

enum { QUEUED = 4, THREADS = 4, LARGE_BYTES = 4 << 20 };
enum which { NOTHING, NO_DEVICE, NO_BACK_END, NO_HOST };

/* ---- what is pretended ---- */

static const double flops[RANKS] = { 1e12, 1.1e12, 0.9e12, 0.5e12, 1.304e12 },
		    copy_Bps[RANKS] = { 5e10, 1e10, 4e10, 2e10, 3e10 };
static const double latency_s[RANKS] = { 1, 40e-6, 2e-6, 60e-6, 3e-6 },
		    message_Bps[RANKS] = { 1e6, 1e9, 2e10, 2e9, 1e10 };
static const char *const three_hosts[RANKS] = { "h0", "h1", "h0", "h2", "h1" }, *const one_host[RANKS] = {
	"h0", "h0", "h0", "h0", "h0"
};

struct message {
	char *data;
	size_t bytes;
};
static const char *const *host_of;
static int failing;
static enum which fails;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static struct message queue[RANKS][RANKS][QUEUED]; /* [from][to] */
static int queued[RANKS][RANKS], pair[2];
static _Thread_local int n_opened;
static _Thread_local int sent[RANKS][2];
static _Thread_local double clock_s, device_s, mark_s[2];

double dlb_clock_s(void) { return clock_s; }
double dlb_clock_thread_cpu_s(void) { return clock_s; }
void dlb_sleep_s(double s) { clock_s += s; }

/* ---- ranks and messages ---- */

const char *dlb_comm_host(const struct dlb_comm *c) { return host_of[c->rank]; }

static void all_have_met(void) { pair[0] = pair[1] = -1; }

/* The first quarter of the messages, which warm up, take ten times as long; the others a little more each. */
static double seconds_of(int to, size_t bytes)
{
	const bool large = bytes > 8;
	const int k = sent[to][large]++ % (large ? 12 : 200);

	return (latency_s[to] + (double)bytes / message_Bps[to]) *
	       (k < (large ? 3 : 50) ? 10 : 1 + 0.001 * k);
}

void dlb_comm_isend(struct dlb_comm *c, const void *p, size_t bytes, int peer, int tag, struct dlb_request *r)
{
	const int low = c->rank < peer ? c->rank : peer, high = c->rank < peer ? peer : c->rank;
	struct message m = { malloc(bytes), bytes };

	assert(IS(tag, ==, DLB_TAG_PROBE) && IS(peer, !=, c->rank));
	memcpy(m.data, p, bytes);
	*r = (struct dlb_request){ .bytes = bytes, .peer = peer };
	pthread_mutex_lock(&lock);
	/* one pair at a time */
	assert(pair[0] < 0 || (IS(pair[0], ==, low) && IS(pair[1], ==, high)));
	pair[0] = low;
	pair[1] = high;
	assert(IS(queued[c->rank][peer], <, QUEUED));
	queue[c->rank][peer][queued[c->rank][peer]++] = m;
	pthread_cond_broadcast(&arrived);
	pthread_mutex_unlock(&lock);
	clock_s += seconds_of(peer, bytes);
}

void dlb_comm_irecv(struct dlb_comm *c, void *p, size_t bytes, int peer, int tag, struct dlb_request *r)
{
	assert(IS(tag, ==, DLB_TAG_PROBE) && IS(peer, !=, c->rank));
	*r = (struct dlb_request){ .bytes = bytes, .peer = peer, .receives = true, .to = p };
}

int dlb_comm_wait(struct dlb_comm *c, struct dlb_request *r, struct dlb_error *err)
{
	struct message *q = queue[r->peer][c->rank];

	(void)err;
	if (!r->receives)
		return 0;
	pthread_mutex_lock(&lock);
	while (!queued[r->peer][c->rank])
		pthread_cond_wait(&arrived, &lock);
	assert(IS(q->bytes, ==, r->bytes));
	memcpy(r->to, q->data, q->bytes);
	free(q->data);
	memmove(q, q + 1, (QUEUED - 1) * sizeof *q);
	queued[r->peer][c->rank]--;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- devices ---- */

struct pretended {
	struct dlb_kernel k;
	double s;
};

static void run(struct dlb_kernel *k, const struct dlb_run *r)
{
	(void)r;
	device_s += ((struct pretended *)(void *)k)->s;
}

static void free_kernel(struct dlb_kernel *k) { free(k); }

static struct dlb_kernel *new_kernel(double s)
{
	struct pretended *p = calloc(1, sizeof *p);

	*p = (struct pretended){ { .run = run, .free = free_kernel }, s };
	return &p->k;
}

static int gemm(struct dlb_backend *be, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
		struct dlb_error *err)
{
	(void)be;
	(void)err;
	*k = new_kernel(2 * pow((double)d->n, 3) / flops[me]);
	return 0;
}

static int copy(struct dlb_backend *be, const struct dlb_copy_desc *d, struct dlb_kernel **k,
		struct dlb_error *err)
{
	(void)be;
	if (fails == NO_DEVICE && me == failing)
		return dlb_fail(err, NULL, "device %d fails", me);
	*k = new_kernel(8.0 * (double)d->dim[0] / copy_Bps[me]);
	return 0;
}

static void *take(struct dlb_backend *be, size_t bytes)
{
	(void)be;
	(void)bytes;
	return malloc(1);
}

static void give(struct dlb_backend *be, void *p)
{
	(void)be;
	free(p);
}

static int nothing(struct dlb_backend *be, struct dlb_error *err)
{
	(void)be;
	(void)err;
	return 0;
}

static int mark(struct dlb_backend *be, int i, struct dlb_error *err)
{
	mark_s[i] = device_s;
	return nothing(be, err);
}

static double seconds(struct dlb_backend *be, int from, int to)
{
	(void)be;
	return mark_s[to] - mark_s[from];
}

static void close_device(struct dlb_backend *be)
{
	(void)be;
	n_opened--;
}

static int open_device(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err);

static const struct dlb_backend_ops ops = { .name = "cpu",
					    .is_host_memory = true,
					    .open = open_device,
					    .close = close_device,
					    .alloc = take,
					    .free = give,
					    .sync = nothing,
					    .mark = mark,
					    .seconds = seconds,
					    .gemm = gemm,
					    .copy = copy };
static _Thread_local int threads_given;

static int open_device(int device, int n_threads, struct dlb_backend *out, struct dlb_error *err)
{
	(void)err;
	assert(IS(device, ==, 0));
	threads_given = n_threads;
	*out = (struct dlb_backend){ .ops = &ops, .n_threads = n_threads };
	n_opened++;
	return 0;
}

const struct dlb_backend_ops *dlb_backend_load(const char *name, struct dlb_error *err)
{
	(void)err;
	assert(SAME(name, "cpu"));
	return fails == NO_BACK_END && me == failing ? NULL : &ops;
}

const struct dlb_backend_ops *dlb_backend_find(const char *name) { return dlb_backend_load(name, NULL); }
const char *dlb_backend_name(int i) { return i ? NULL : "cpu"; }

int dlb_backend_open(const char *name, int device, int n_threads, struct dlb_backend *out,
		     struct dlb_error *err)
{
	(void)name;
	return open_device(device, n_threads, out, err);
}

/* A host with 4e9 bytes of memory and 1 more by the rank, 1e9 of fast memory, and others that do not
 * count. */
int dlb_cluster_discover(struct dlb_cluster *c, const char *topology, int threads, struct dlb_error *err)
{
	if (fails == NO_HOST && me == failing)
		return dlb_fail(err, NULL, "host of rank %d fails", me);
	assert(!topology);
	threads_given = threads;
	dlb_cluster_init(c);
	const int g = dlb_cluster_add_group(c, "here", "host", -1),
		  kind = dlb_cluster_add_kind(c, "cpu", threads);

	dlb_cluster_add_memory(c, g, "l3", "l3", 1e6);
	dlb_cluster_add_memory(c, g, "dram", "dram", 4e9 + me);
	dlb_cluster_add_memory(c, g, "cxl", "cxl", 1e10);
	dlb_cluster_add_memory(c, g, "hbm", "hbm", 1e9);
	c->group[g].processor = me == 3 ? NULL : "Z80";
	c->group[g].cores = 10 + me;
	dlb_cluster_add_node(c, kind, g, "here", 0);
	return 0;
}

/* ---- tests ---- */

static struct dlb_cluster found[RANKS];
static struct dlb_error why[RANKS];
static int status[RANKS], opened[RANKS], threads_of[RANKS];

static void rank_main(struct dlb_comm *c)
{
	why[me] = (struct dlb_error){ .what = "" };
	status[me] = dlb_cluster_probe(c, THREADS, &found[me], &why[me]);
	opened[me] = n_opened;
	threads_of[me] = threads_given;
}

static void measure(int n, const char *const *hosts, enum which failure, int rank)
{
	host_of = hosts;
	fails = failure;
	failing = rank;
	all_have_met();
	run_ranks(n, rank_main);
	for (int r = 0; r < n; r++)
		assert(IS(opened[r], ==, 0));
}

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* Half a round trip: the median of those that do not warm up, 50 .. 199 of small messages and 3 .. 11 of
 * large ones. */
static double small_s(int to) { return (latency_s[to] + 8 / message_Bps[to]) * 1.1245 / 2; }
static double large_s(int to) { return (latency_s[to] + LARGE_BYTES / message_Bps[to]) * 1.007 / 2; }
static double rate_to(int to) { return LARGE_BYTES / (large_s(to) - small_s(to)); }

static void check_link(const struct dlb_cluster *c, int link, const char *name, double s, double Bps)
{
	const struct dlb_link *l = &c->link[link];

	assert(IS(link, >=, 0) && SAME(l->name, name) && !strncmp(l->cls, name, strlen(l->cls)));
	assert(close_to(l->latency_s, s) && close_to(l->bandwidth_Bps, Bps));
}

static void check_group(const struct dlb_cluster *c, int node, const char *host, int device, double speed)
{
	const struct dlb_node *n = &c->node[node];

	assert(SAME(n->host, host) && SAME(c->group[n->group].name, host) &&
	       SAME(c->group[n->group].cls, "host"));
	assert(IS(n->device, ==, device) && close_to(n->speed, speed) && IS(n->kind, ==, 0));
}

static void ranks_of_three_hosts(void)
{
	const struct dlb_link_class *shm = dlb_link_class_find("shm");
	const double bytes[RANKS] = { 2.5e9, 2500000000, 2500000001, 5000000003, 2500000002 };

	measure(5, three_hosts, NOTHING, 0);
	for (int r = 0; r < 5; r++) {
		const struct dlb_cluster *c = &found[r];

		assert(IS(status[r], ==, 0) && IS(c->n_nodes, ==, 5) && IS(c->n_groups, ==, 4));
		assert(IS(c->n_links, ==, 6) && IS(c->n_kinds, ==, 1) && SAME(c->kind[0].name, "cpu/4"));
		assert(IS(threads_of[r], ==, THREADS));
		assert(close_to(c->kind[0].peak_flops, 1e12) && close_to(c->kind[0].bandwidth_Bps, 3e10));
		check_group(c, 0, "h0", 0, 1);
		check_group(c, 1, "h1", 0, 1);
		check_group(c, 2, "h0", 1, 1);
		check_group(c, 3, "h2", 0, 0.5);
		check_group(c, 4, "h1", 1, 1.3);
		for (int i = 0; i < 5; i++)
			assert(IS(c->node[i].memory_bytes, ==, bytes[i]));
		assert(SAME(c->group[0].name, "rack") && SAME(c->group[0].cls, "rack"));
		assert(IS(c->group[0].parent, ==, -1));
		for (int g = 1; g < 4; g++) {
			assert(IS(c->group[g].parent, ==, 0) &&
			       IS(c->group[g].cores, ==, g == 3 ? 13 : 9 + g));
			assert(g == 3 ? !c->group[g].processor : SAME(c->group[g].processor, "Z80"));
		}
		check_link(c, c->group[1].inside, "shm:h0", small_s(2), rate_to(2));
		check_link(c, c->group[2].inside, "shm:h1", small_s(4), rate_to(4));
		check_link(c, c->group[3].inside, "shm:h2", shm->latency_s, shm->bandwidth_Bps);
		/* a route has two ports; the first host's is as good as the best */
		check_link(c, c->group[2].up, "rack:h1", small_s(1) / 2, rate_to(1));
		check_link(c, c->group[3].up, "rack:h2", small_s(3) / 2, rate_to(3));
		check_link(c, c->group[1].up, "rack:h0", small_s(1) / 2, rate_to(3));
		dlb_cluster_release(&found[r]);
	}
}

static void ranks_of_one_host(void)
{
	measure(2, one_host, NOTHING, 0);
	for (int r = 0; r < 2; r++) {
		const struct dlb_cluster *c = &found[r];

		assert(IS(status[r], ==, 0) && IS(c->n_nodes, ==, 2) && IS(c->n_groups, ==, 1));
		assert(IS(c->n_links, ==, 1) && IS(c->group[0].parent, ==, -1) && IS(c->group[0].up, ==, -1));
		assert(close_to(c->kind[0].peak_flops, 1.05e12) && close_to(c->kind[0].bandwidth_Bps, 3e10));
		check_group(c, 0, "h0", 0, 1);
		check_group(c, 1, "h0", 1, 1);
		assert(IS(c->node[0].memory_bytes, ==, 2.5e9) && IS(c->node[1].memory_bytes, ==, 2.5e9));
		check_link(c, c->group[0].inside, "shm:h0", small_s(1), rate_to(1));
		dlb_cluster_release(&found[r]);
	}
}

static void one_rank_fails(void)
{
	static const struct {
		enum which failure;
		int rank;
		const char *what;
	} cases[] = {
		{ NO_DEVICE, 2, "device 2 fails" },
		{ NO_BACK_END, 1, "this dlb was built without the cpu back end" },
		{ NO_HOST, 0, "host of rank 0 fails" },
	};

	for (int i = 0; i < DLB_LEN(cases); i++) {
		measure(3, three_hosts, cases[i].failure, cases[i].rank);
		for (int r = 0; r < 3; r++)
			assert(IS(status[r], ==, -1) && SAME(why[r].what, cases[i].what));
	}
}

static void alone(void)
{
	struct dlb_comm comm = { .rank = 0 };
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;

	me = 0;
	n_ranks = 1;
	fails = NOTHING;
	for (int i = 0; i < 4; i++) {
		static const int threads[] = { 1, 3, 0, -2 };

		assert(IS(dlb_cluster_probe(i % 2 ? &comm : NULL, threads[i], &c, &err), ==, 0));
		assert(IS(threads_given, ==, i == 1 ? 3 : 1) &&
		       SAME(c.kind[0].name, i == 1 ? "cpu/3" : "cpu"));
		assert(close_to(c.kind[0].peak_flops, 1e12) && close_to(c.kind[0].bandwidth_Bps, 5e10));
		assert(IS(c.n_nodes, ==, 1) && IS(c.n_groups, ==, 1) && IS(c.n_memories, ==, 4));
		dlb_cluster_release(&c);
	}
	failing = 0;
	fails = NO_DEVICE;
	assert(IS(dlb_cluster_probe(NULL, 1, &c, &err), ==, -1) && SAME(err.what, "device 0 fails"));
	fails = NO_HOST;
	assert(IS(dlb_cluster_probe(NULL, 1, &c, &err), ==, -1) && SAME(err.what, "host of rank 0 fails"));
	assert(IS(n_opened, ==, 0));
}

int main(void)
{
	alarm(60); /* ranks that wait for each other */
	alone();
	ranks_of_three_hosts();
	ranks_of_one_host();
	one_rank_fails();
	return 0;
}
