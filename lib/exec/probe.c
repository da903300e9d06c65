/* Probes: the rates of every device (probe_device.c), a ping-pong on every class of link. See probe.h.
 *
 * Ranks measure their devices at the same time, as they will compute at the same time: shared resources
 * (memory bandwidth, a core with several ranks) count in the result. Ping-pongs run one pair at a time. */
#include "exec/probe.h"
#include "util/clock.h"
#include "util/stats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 8, LARGE = 4 << 20 };

static int probe_cpu(int threads, double *peak_flops, double *bandwidth_Bps, struct dlb_error *err)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	struct dlb_backend be;
	int rc;

	if (!ops)
		return dlb_fail(err, NULL, "this dlb was built without the cpu back end");
	if (ops->open(0, threads, &be, err))
		return -1;
	rc = dlb_device_probe(&be, peak_flops, bandwidth_Bps, err);
	ops->close(&be);
	return rc;
}

/* ---- ranks ---- */

struct rank_info { char host[128], processor[128]; int cores; double peak_flops, bandwidth_Bps, host_bytes; };

/* Gathers the results of all ranks on every rank. If one failed, all fail. */
static int ask_ranks(struct dlb_comm *comm, int threads, struct rank_info *all, struct dlb_error *err)
{
	struct rank_info mine = { .host = "" };
	struct dlb_cluster here;
	int rc = 0, n = dlb_comm_size(comm);

	snprintf(mine.host, sizeof mine.host, "%s", dlb_comm_host(comm));
	if (dlb_cluster_discover(&here, NULL, threads, err)) {
		rc = -1;
	} else {
		for (int i = 0; i < here.n_memories; i++)
			if (!strcmp(here.memory[i].cls, "dram") || !strcmp(here.memory[i].cls, "hbm"))
				mine.host_bytes += here.memory[i].bytes;
		snprintf(mine.processor, sizeof mine.processor, "%s",
			 here.group[0].processor ? here.group[0].processor : "");
		mine.cores = here.group[0].cores;
		dlb_cluster_release(&here);
	}
	if (dlb_comm_agree(comm, rc, err, NULL) || dlb_comm_barrier(comm, err))
		return -1;
	rc = probe_cpu(threads, &mine.peak_flops, &mine.bandwidth_Bps, err);
	if (dlb_comm_agree(comm, rc, err, NULL) || dlb_comm_gather(comm, &mine, sizeof mine, all, 0, err))
		return -1;
	return dlb_comm_bcast(comm, all, (size_t)n * sizeof *all, 0, err);
}

/* Fills nodes, hosts and links (not measured yet). A rank whose peak is more than 20 % off the median gets a
 * speed of its own; smaller differences are noise. */
static void build(const struct rank_info *all, int n, int threads, struct dlb_cluster *c)
{
	double *x = dlb_xcalloc((size_t)n, sizeof *x), peak;
	int kind = dlb_cluster_add_kind(c, "cpu", threads), *on = dlb_xcalloc((size_t)n + 1, sizeof *on);
	bool many = false;

	for (int i = 1; i < n; i++)
		many |= strcmp(all[i].host, all[0].host) != 0;
	if (many)
		dlb_cluster_add_group(c, "rack", "rack", -1);
	for (int i = 0; i < n; i++)
		x[i] = all[i].peak_flops;
	c->kind[kind].peak_flops = peak = dlb_median(x, n);
	for (int i = 0; i < n; i++)
		x[i] = all[i].bandwidth_Bps;
	c->kind[kind].bandwidth_Bps = dlb_median(x, n);
	for (int i = 0; i < n; i++) {
		int g = many;
		while (g < c->n_groups && strcmp(c->group[g].name, all[i].host))
			g++;
		if (g == c->n_groups) {
			dlb_cluster_add_group(c, all[i].host, "host", many ? 0 : -1);
			c->group[g].inside = dlb_cluster_add_link(c,
								  dlb_arena_printf(&c->arena, "shm:%s",
										   all[i].host),
								  "shm");
			c->group[g].processor = *all[i].processor ?
							dlb_arena_strdup(&c->arena, all[i].processor) :
							NULL;
			c->group[g].cores = all[i].cores;
			if (many)
				c->group[g].up = dlb_cluster_add_link(c,
								      dlb_arena_printf(&c->arena, "rack:%s",
										       all[i].host),
								      "rack");
		}
		int d = dlb_cluster_add_node(c, kind, g, all[i].host, on[g]++);
		double speed = all[i].peak_flops / peak;
		if (fabs(speed - 1) > 0.2)
			c->node[d].speed = round(speed * 100) / 100;
	}
	for (int i = 0; i < n; i++)
		c->node[i].memory_bytes = floor(all[i].host_bytes / on[c->node[i].group]);
	free(on);
	free(x);
}

/* ---- links ---- */

/* Half the round-trip time of `bytes` between this rank and `peer` in seconds, the median of `rounds`;
 * `first` sends first. -1 with err. */
static double ping_pong(struct dlb_comm *comm, char *buf, size_t bytes, int peer, bool first, int rounds,
			struct dlb_error *err)
{
	double *t = dlb_xcalloc((size_t)rounds, sizeof *t), half_s;
	int rc = 0;

	for (int i = 0; i < rounds && !rc; i++) {
		struct dlb_request out, in;
		double start = dlb_clock_s();
		dlb_comm_irecv(comm, buf + LARGE, bytes, peer, DLB_TAG_PROBE, &in);
		if (!first)
			rc = dlb_comm_wait(comm, &in, err);
		if (rc)
			break;
		dlb_comm_isend(comm, buf, bytes, peer, DLB_TAG_PROBE, &out);
		rc = dlb_comm_wait(comm, &out, err) || (first && dlb_comm_wait(comm, &in, err)) ? -1 : 0;
		t[i] = (dlb_clock_s() - start) / 2;
	}
	half_s = dlb_median(t + rounds / 4, rounds - rounds / 4);	/* the first ones warm up */
	free(t);
	return rc ? -1 : half_s;
}

/* Latency and bandwidth between ranks a and b, in x[0], x[1] on rank a. Other ranks only take part in the
 * barrier, so that pairs do not overlap. */
static int measure_pair(struct dlb_comm *comm, char *buf, int a, int b, double *x, struct dlb_error *err)
{
	int me = dlb_comm_rank(comm), rc = 0;
	double small = 0, large = 0;

	if (me == a || me == b) {
		int peer = me == a ? b : a;
		rc = (small = ping_pong(comm, buf, SMALL, peer, me == a, 200, err)) < 0 ||
		     (large = ping_pong(comm, buf, LARGE, peer, me == a, 12, err)) < 0 ? -1 : 0;
		if (!rc && me == a) {
			x[0] = small;
			x[1] = LARGE / fmax(large - small, 1e-9);
		}
	}
	if (dlb_comm_agree(comm, rc, err, NULL))
		return -1;
	return dlb_comm_barrier(comm, err);
}

/* x[2 * link], x[2 * link + 1]: latency and bandwidth, measured by one rank, then shared. A host with one
 * rank keeps the default figures of the class; every host's port is measured to the first host. */
static int measure_links(struct dlb_comm *comm, struct dlb_cluster *c, struct dlb_error *err)
{
	double *x = dlb_xcalloc(2 * (size_t)c->n_links + 2, sizeof *x), best_latency = INFINITY,
	       best_bandwidth = 0;
	char *buf = dlb_xcalloc(2, LARGE);
	int rc = 0, first_host = -1, first_rank = -1;

	for (int g = 0; g < c->n_groups && !rc; g++) {
		int rank[2] = { -1, -1 };
		for (int i = c->n_nodes - 1; i >= 0; i--)
			if (c->node[i].group == g) {
				rank[1] = rank[0];
				rank[0] = i;
			}
		if (rank[0] < 0)
			continue;
		if (rank[1] >= 0)
			rc = measure_pair(comm, buf, rank[0], rank[1], &x[2 * c->group[g].inside], err);
		if (first_host < 0) {
			first_host = g;
			first_rank = rank[0];
		} else if (!rc) {
			rc = measure_pair(comm, buf, first_rank, rank[0], &x[2 * c->group[g].up], err);
		}
	}
	if (!rc)
		rc = dlb_comm_allreduce_f64(comm, x, 2 * c->n_links, DLB_COMM_MAX, err);
	for (int i = 0; i < c->n_links && !rc; i++) {
		struct dlb_link *l = &c->link[i];
		bool port = !strcmp(l->cls, "rack");
		if (x[2 * i] <= 0)
			continue;
		l->latency_s = x[2 * i] * (port ? 0.5 : 1);	/* a route has two ports */
		l->bandwidth_Bps = x[2 * i + 1];
		if (port) {
			best_latency = fmin(best_latency, l->latency_s);
			best_bandwidth = fmax(best_bandwidth, l->bandwidth_Bps);
		}
	}
	/* the first host's port gets the best latency and bandwidth measured to it */
	if (!rc && best_bandwidth > 0) {
		c->link[c->group[first_host].up].latency_s = best_latency;
		c->link[c->group[first_host].up].bandwidth_Bps = best_bandwidth;
	}
	free(buf);
	free(x);
	return rc;
}

int dlb_cluster_probe(struct dlb_comm *comm, int threads, struct dlb_cluster *out, struct dlb_error *err)
{
	int n = comm ? dlb_comm_size(comm) : 1, rc;
	struct rank_info *all;

	threads = threads > 0 ? threads : 1;
	if (n == 1) {
		if (dlb_cluster_discover(out, NULL, threads, err))
			return -1;
		rc = probe_cpu(threads, &out->kind[0].peak_flops, &out->kind[0].bandwidth_Bps, err);
		if (rc)
			dlb_cluster_release(out);
		return rc;
	}
	dlb_cluster_init(out);
	all = dlb_xcalloc((size_t)n, sizeof *all);
	rc = ask_ranks(comm, threads, all, err);
	if (!rc) {
		build(all, n, threads, out);
		rc = measure_links(comm, out, err);
	}
	free(all);
	if (!rc)
		rc = dlb_cluster_check(out, err);
	if (rc)
		dlb_cluster_release(out);
	return rc;
}
