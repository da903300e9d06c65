/* Sharing of links: directions of routes, simulated transfers, and predicted times of sums, in small clusters
 * whose links carry 1e6 bytes/s without latency, so a message of 1e6 bytes takes one second alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "cost/cost.h"
#include "graph/order.h"
#include "plan/program.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "plan/timeline.h"
#include "check.h"

#define LINK(name, more) "{\"name\":\"" name "\",\"latency_s\":0,\"bandwidth_Bps\":1e6" more "}"
#define IN(group) "{\"kind\":\"cpu\",\"group\":\"" group "\"}"
#define CLUSTER(links, groups, nodes) "{\"kinds\":[{\"name\":\"cpu\"}],\"links\":[" links "],\"groups\":[" groups "],\"nodes\":[" nodes "]}"
#define HOST(name) "{\"name\":\"" name "\",\"parent\":\"r\",\"up\":\"" name "\"}"
#define FOUR IN("g") "," IN("g") "," IN("g") "," IN("g")

static const char *const
	hosts = CLUSTER(LINK("a", "") "," LINK("b", "") "," LINK("c", "") "," LINK("d", ""),
			"{\"name\":\"r\"}," HOST("a") "," HOST("b") "," HOST("c") "," HOST("d"),
			IN("a") "," IN("b") "," IN("c") "," IN("d")),
	*const two_hosts = CLUSTER(LINK("a", "") "," LINK("b", ""),
				   "{\"name\":\"r\"}," HOST("a") "," HOST("b"),
				   IN("a") "," IN("a") "," IN("b") "," IN("b")),
	*const taking_turns = CLUSTER(LINK("a", ",\"duplex\":false") "," LINK("b", ",\"duplex\":false"),
				      "{\"name\":\"r\"}," HOST("a") "," HOST("b"),
				      IN("a") "," IN("a") "," IN("b") "," IN("b")),
	*const a_switch = CLUSTER(LINK("l", ""), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	*const bus = CLUSTER(LINK("l", ",\"duplex\":false"), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	*const memory = CLUSTER(LINK("l", ",\"overlap\":false"), "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	*const memory_of_two_ways = CLUSTER(LINK("l", ",\"overlap\":false,\"duplex\":true"),
					    "{\"name\":\"g\",\"inside\":\"l\"}", FOUR),
	/* the trunk between two groups; and one bus that is the way out of both */
		*const trunk = CLUSTER(LINK("l", ""),
				       "{\"name\":\"g\",\"inside\":\"l\"},{\"name\":\"a\",\"parent\":\"g\"},{"
				       "\"name\":\"b\",\"parent\":\"g\"}",
				       IN("a") "," IN("a") "," IN("b") "," IN("b")),
	*const one_bus = CLUSTER(LINK("l", ",\"duplex\":false"),
				 "{\"name\":\"g\"},{\"name\":\"a\",\"parent\":\"g\",\"up\":\"l\"},"
				 "{\"name\":\"b\",\"parent\":\"g\",\"up\":\"l\"}",
				 IN("a") "," IN("a") "," IN("b") "," IN("b"));

static void read_cluster(const char *section, struct dlb_cluster *c)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_doc d;
	char *text = dlb_xprintf("{\"dlb\":\"1.0\",\"cluster\":%s}", section);
	if (dlb_doc_parse(&d, text, strlen(text), "f.json", &err) || dlb_cluster_read(&d, c, &err)) {
		dlb_error_print(stderr, section, -1, &err);
		abort();
	}
	dlb_doc_release(&d);
	free(text);
}

static int tensor(struct dlb_graph *g, const char *what, int i, enum dlb_tensor_kind kind, double bytes)
{
	char name[32];
	snprintf(name, sizeof name, "%s%d", what, i);
	int t = dlb_graph_add_tensor(g, name, kind);
	g->tensor[t].size_add = bytes;
	return t;
}

static void op(struct dlb_graph *g, const char *type, int i, int in, int out)
{
	char name[32];
	snprintf(name, sizeof name, "%s%d", type, i);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = name, .type = type, .domain = "test",
						DLB_OPERANDS(in), .out = &out, .n_out = 1 });
}

enum { MOST = 4, EVEN = 1000000 };
struct message { int from, to; double bytes; };

/* Seconds until n messages that are sent at once have arrived: each is the output of an op that an op on
 * another node reads; ops take no time. */
static double simulated(const char *section, const struct message *m, int n)
{
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_cost c;
	struct dlb_plan p;
	struct dlb_program program;
	struct dlb_timeline t;
	struct dlb_error err = { .status = 0 };
	dlb_graph_init(&g);
	g.batch = 1;
	g.input = dlb_arena_array(&g.arena, 1, sizeof *g.input);
	g.output = dlb_arena_array(&g.arena, MOST, sizeof *g.output);
	g.input[g.n_inputs++] = tensor(&g, "x", 0, DLB_T_INPUT, 4);
	for (int i = 0; i < n; i++) {
		int sent = tensor(&g, "sent", i, DLB_T_ACTIVATION, m[i].bytes);
		op(&g, "Make", i, g.input[0], sent);
		g.output[g.n_outputs++] = tensor(&g, "read", i, DLB_T_ACTIVATION, 4);
		op(&g, "Read", i, sent, g.output[i]);
	}
	read_cluster(section, &cl);
	int bad = dlb_graph_index(&g) || dlb_cost_fit(&c, &g, NULL, &cl, &err);
	assert(!bad);
	memset(c.op_s, 0, (size_t)g.n_ops * (size_t)c.n_batches * (size_t)cl.n_kinds * sizeof *c.op_s);
	dlb_plan_init(&p, g.n_ops, cl.n_nodes);
	p.graph = &g;
	p.batch = 1;
	for (int i = 0; i < n; i++) {
		p.placement[2 * i] = m[i].from;
		p.placement[2 * i + 1] = m[i].to;
	}
	dlb_schedule_order(&p, &c, dlb_schedule_find("1f1b"), NULL);
	bad = dlb_program_compile(&p, &c, 1, 0, &program, &err) || dlb_program_verify(&program, &c, &err) ||
		dlb_program_simulate(&program, &c, &(struct dlb_simulate_choice){ .keep_spans = false }, &t,
				     &err);
	if (bad) {
		dlb_error_print(stderr, section, -1, &err);
		abort();
	}
	double s = t.step_s;
	dlb_timeline_release(&t, cl.n_nodes);
	dlb_program_release(&program);
	dlb_plan_release(&p);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_graph_release(&g);
	return s;
}

static void expect(const char *section, const char *what, double got, double want)
{
	if (fabs(got - want) <= 1e-9 * want)
		return;
	fprintf(stderr, "%s: %s: %g s, not %g s\n", section, what, got, want);
	abort();
}

static void test_messages(void)
{
	static const struct {
		const char *what;
		int n;
		struct message m[MOST];
		double hosts, a_switch, bus, memory, memory_of_two_ways;
	} rows[] = {
		{ "one", 1, { { 0, 1, EVEN } }, 1, 1, 1, 1, 1 },
		{ "opposite ways", 2, { { 0, 1, EVEN }, { 1, 0, EVEN } }, 1, 1, 2, 2, 1 },
		{ "the same way", 2, { { 0, 1, EVEN }, { 0, 1, EVEN } }, 2, 2, 2, 2, 2 },
		{ "from one", 2, { { 0, 1, EVEN }, { 0, 2, EVEN } }, 2, 2, 2, 2, 2 },
		{ "to one", 2, { { 0, 1, EVEN }, { 2, 1, EVEN } }, 2, 2, 2, 2, 2 },
		{ "through one", 2, { { 0, 1, EVEN }, { 1, 2, EVEN } }, 1, 1, 2, 2, 1 },
		{ "apart", 2, { { 0, 1, EVEN }, { 2, 3, EVEN } }, 1, 1, 2, 2, 1 },
		{ "around",
		  4,
		  { { 0, 1, EVEN }, { 1, 2, EVEN }, { 2, 3, EVEN }, { 3, 0, EVEN } },
		  1,
		  1,
		  4,
		  4,
		  1 },
		/* the small message has half of the direction until it has arrived: .5 s; then the other has
		 * all of it */
		{ "unequal, the same way",
		  2,
		  { { 0, 1, EVEN }, { 0, 2, EVEN / 4 } },
		  1.25,
		  1.25,
		  1.25,
		  1.25,
		  1.25 },
		{ "unequal, opposite ways", 2, { { 0, 1, EVEN }, { 1, 0, EVEN / 4 } }, 1, 1, 1.25, 1.25, 1 },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		expect(hosts, rows[i].what, simulated(hosts, rows[i].m, rows[i].n), rows[i].hosts);
		expect(a_switch, rows[i].what, simulated(a_switch, rows[i].m, rows[i].n), rows[i].a_switch);
		expect(bus, rows[i].what, simulated(bus, rows[i].m, rows[i].n), rows[i].bus);
		expect(memory, rows[i].what, simulated(memory, rows[i].m, rows[i].n), rows[i].memory);
		expect(memory_of_two_ways, rows[i].what, simulated(memory_of_two_ways, rows[i].m, rows[i].n),
		       rows[i].memory_of_two_ways);
	}
}

/* Nodes 0 and 1 in one group, 2 and 3 in another. */
static void test_between_groups(void)
{
	static const struct {
		const char *what;
		int n;
		struct message m[MOST];
		double duplex, turns;
	} rows[] = {
		{ "one", 1, { { 0, 2, EVEN } }, 1, 1 },
		{ "opposite ways", 2, { { 0, 2, EVEN }, { 3, 1, EVEN } }, 1, 2 },
		{ "the same way", 2, { { 0, 2, EVEN }, { 1, 3, EVEN } }, 2, 2 },
		{ "two each way",
		  4,
		  { { 0, 2, EVEN }, { 1, 3, EVEN }, { 2, 0, EVEN }, { 3, 1, EVEN } },
		  2,
		  4 },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		expect(two_hosts, rows[i].what, simulated(two_hosts, rows[i].m, rows[i].n), rows[i].duplex);
		expect(trunk, rows[i].what, simulated(trunk, rows[i].m, rows[i].n), rows[i].duplex);
		expect(taking_turns, rows[i].what, simulated(taking_turns, rows[i].m, rows[i].n),
		       rows[i].turns);
		expect(one_bus, rows[i].what, simulated(one_bus, rows[i].m, rows[i].n), rows[i].turns);
	}
}

/* A message alone takes the time of dlb_cluster_transfer_s, over any links; directions belong to the route's
 * links and are distinct. */
static void test_lanes(void)
{
	static const char *const *const all[] = { &hosts, &two_hosts, &taking_turns, &a_switch,
						  &bus,   &trunk,     &one_bus };
	for (int i = 0; i < DLB_LEN(all); i++) {
		struct dlb_cluster c;
		read_cluster(*all[i], &c);
		for (int a = 0; a < 4; a++) {
			for (int b = 0; b < 4; b++) {
				struct dlb_direction direction[DLB_MAX_ROUTE];
				int link[DLB_MAX_ROUTE],
					n_links = dlb_cluster_route(&c, a, b, link),
					n = dlb_cluster_directions(&c, a, b, direction, NULL);
				for (int k = 0; k < n; k++) {
					int on = 0;
					for (int j = 0; j < n_links; j++)
						on += link[j] == direction[k].link;
					for (int j = 0; j < k; j++)
						assert(IS(direction[j].id, !=, direction[k].id));
					assert(on && IS(direction[k].id, >=, 0) &&
					       IS(direction[k].id, <, dlb_cluster_n_directions(&c)));
				}
				assert(n || !n_links);
				if (a != b)
					expect(*all[i], "alone",
					       simulated(*all[i], &(struct message){ a, b, EVEN }, 1),
					       dlb_cluster_transfer_s(&c, EVEN, a, b));
			}
		}
		dlb_cluster_release(&c);
	}
}

/* ---- predicted times of sums ---- */

/* Simulates a sum message by message. Each pair of ranks has a stream of segments, one at a time, in the
 * order of the list, block by block. A segment is sent as soon as its elements are complete, and received
 * when earlier hops are done with the same elements. Messages under way share directions. Additions take no
 * time. */
enum { RANKS = 8, HOPS = 4 * RANKS + 4, MOST_MAIL = 1 << 14 };
struct spot { int block, hop, seg; };
struct player {
	struct dlb_hop hop[HOPS];
	int n_hops;
	struct spot out[RANKS], in[RANKS];	/* to and from each */
	double left[RANKS];			/* remaining bytes of the message under way; 0: none */
};
struct table {
	struct player p[RANKS];
	double mail[RANKS][RANKS][MOST_MAIL];	/* arrival time of each */
	int n_mail[RANKS][RANKS], n_read[RANKS][RANKS];
	int n, n_blocks, per_block;
};

static bool past(struct spot at, struct spot p, int hop, bool same)
{
	return at.block != p.block ? at.block > p.block :
				     at.hop > hop || (same && at.hop == hop && at.seg > p.seg);
}

/* Moves to the next segment of a hop that sends to q (or receives from q). */
static void next_spot(struct table *t, int r, int q, bool out)
{
	struct player *p = &t->p[r];
	struct spot *s = out ? &p->out[q] : &p->in[q];
	s->seg++;
	while (s->block < t->n_blocks) {
		const struct dlb_hop *h = &p->hop[s->hop];
		if (s->seg < t->per_block * (out ? h->to == q ? h->n_send : 0 : h->from == q ? h->n_recv : 0))
			return;
		*s = s->hop + 1 < p->n_hops ? (struct spot){ s->block, s->hop + 1, 0 } :
					      (struct spot){ s->block + 1, 0, 0 };
	}
}

/* Whether hop g has sent (or received) its elements of chunks [first, + n) that belong to s. */
static bool done_with(const struct player *p, int g, bool out, struct spot s, int first, int n)
{
	const struct dlb_hop *b = &p->hop[g];
	int peer = out ? b->to : b->from, from = out ? b->send : b->recv, many = out ? b->n_send : b->n_recv;
	return peer < 0 || from >= first + n || first >= from + many ||
		past(out ? p->out[peer] : p->in[peer], s, g, from == first && many == n);
}

/* Whether earlier hops have received the elements that s sends or adds to, and have sent those that it adds
 * to or replaces. */
static bool may_move(const struct player *p, struct spot s, bool out)
{
	const struct dlb_hop *h = &p->hop[s.hop];
	int first = out ? h->send : h->recv, n = out ? h->n_send : h->n_recv;
	for (int g = 0; g <= s.hop; g++)
		if ((g < s.hop && !done_with(p, g, false, s, first, n)) ||
		    (!out && !done_with(p, g, true, s, first, n)))
			return false;
	return true;
}

static bool read_mail(struct table *t, int r, double now)
{
	struct player *p = &t->p[r];
	bool read = false;
	for (int q = 0; q < t->n; q++) {
		int *k = &t->n_read[q][r];
		while (*k < t->n_mail[q][r] && t->mail[q][r][*k] <= now + 1e-12 &&
		       may_move(p, p->in[q], false)) {
			++*k;
			next_spot(t, r, q, false);
			read = true;
		}
	}
	return read;
}

/* Bytes per second from rank r to q with the current sharing of links; copies by one rank share its core. */
static double rate(const struct dlb_cluster *c, const struct table *t, int r, int q, const int *flows)
{
	struct dlb_direction direction[DLB_MAX_ROUTE];
	struct dlb_way way;
	int n = dlb_cluster_directions(c, r, q, direction, &way);
	int copied = 0;
	for (int other = 0; other < t->n; other++)
		copied += t->p[r].left[other] > 0 && dlb_cluster_way(c, r, other).copies;
	double Bps = way.copies ? way.Bps / copied : way.Bps;
	for (int i = 0; i < n; i++)
		if (c->link[direction[i].link].overlap)
			Bps = fmin(Bps, c->link[direction[i].link].bandwidth_Bps / flows[direction[i].id]);
	return Bps;
}

static void count(const struct dlb_cluster *c, const struct table *t, int *flows)
{
	struct dlb_direction direction[DLB_MAX_ROUTE];
	memset(flows, 0, (size_t)dlb_cluster_n_directions(c) * sizeof *flows);
	for (int r = 0; r < t->n; r++)
		for (int q = 0; q < t->n; q++)
			for (int i = t->p[r].left[q] > 0 ? dlb_cluster_directions(c, r, q, direction, NULL) :
							   0;
			     i-- > 0;)
				flows[direction[i].id]++;
}

static void start_messages(struct table *t, double segment)
{
	for (int r = 0; r < t->n; r++)
		for (int q = 0; q < t->n; q++)
			if (t->p[r].left[q] <= 0 && t->p[r].out[q].block < t->n_blocks &&
			    may_move(&t->p[r], t->p[r].out[q], true))
				t->p[r].left[q] = segment;
}

/* Seconds until the next message is sent or arrives; INFINITY: there is none. */
static double until_next(const struct dlb_cluster *c, const struct table *t, const int *flows, double now)
{
	double least = INFINITY;
	for (int r = 0; r < t->n; r++)
		for (int q = 0; q < t->n; q++) {
			for (int k = t->n_read[r][q]; k < t->n_mail[r][q]; k++)
				if (t->mail[r][q][k] > now + 1e-12) {
					least = fmin(least, t->mail[r][q][k] - now);
					break;
				}
			if (t->p[r].left[q] > 0)
				least = fmin(least, t->p[r].left[q] / rate(c, t, r, q, flows));
		}
	return least;
}

static void move_messages(const struct dlb_cluster *c, struct table *t, const int *flows, double s,
			  double now)
{
	for (int r = 0; r < t->n; r++)
		for (int q = 0; q < t->n; q++) {
			double *left = &t->p[r].left[q];
			if (*left <= 0)
				continue;
			*left -= s * rate(c, t, r, q, flows);
			if (*left > 1e-6)
				continue;
			*left = 0;
			assert(IS(t->n_mail[r][q], <, MOST_MAIL));
			t->mail[r][q][t->n_mail[r][q]++] = now + dlb_cluster_way(c, r, q).latency_s;
			next_spot(t, r, q, true);
		}
}

static double played(const struct dlb_cluster *c, const struct dlb_allreduce *how,
		     const struct dlb_ranks *ranks, double bytes, double segment)
{
	static struct table t;
	int *flows = dlb_xcalloc((size_t)dlb_cluster_n_directions(c) + 1, sizeof *flows);
	double now = 0, chunk = bytes / how->n_chunks(ranks), s = 0;
	memset(t.n_mail, 0, sizeof t.n_mail);
	memset(t.n_read, 0, sizeof t.n_read);
	t.n = ranks->n;
	t.per_block = (int)(DLB_BLOCK_BYTES / segment);
	t.n_blocks = (int)(chunk / segment / t.per_block + .5);
	assert(IS(fabs(t.n_blocks * t.per_block * segment - chunk), <, 1));	/* whole blocks */
	for (int r = 0; r < t.n; r++) {
		struct player *p = &t.p[r];
		p->n_hops = how->hops(ranks, r, p->hop);
		for (int q = 0; q < t.n; q++) {
			p->left[q] = 0;
			p->in[q] = p->out[q] = (struct spot){ 0, 0, -1 };
			next_spot(&t, r, q, false);
			next_spot(&t, r, q, true);
		}
	}
	while (s < INFINITY) {
		for (bool read = true; read;) {
			read = false;
			for (int r = 0; r < t.n; r++)
				read |= read_mail(&t, r, now);
		}
		start_messages(&t, segment);
		count(c, &t, flows);
		s = until_next(c, &t, flows, now);
		now += s < INFINITY ? s : 0;
		move_messages(c, &t, flows, s < INFINITY ? s : 0, now);
	}
	for (int r = 0; r < t.n; r++)
		for (int q = 0; q < t.n; q++)
			assert(IS(t.p[r].in[q].block, ==, t.n_blocks) &&
			       IS(t.p[r].out[q].block, ==, t.n_blocks));
	free(flows);
	return now;
}

static double price(const struct dlb_cluster *cl, const struct dlb_allreduce *how, int n, double bytes)
{
	struct dlb_cost c = { .cluster = cl };
	struct dlb_plan p;
	int each[RANKS * RANKS];
	for (int i = 0; i < n * n; i++)
		each[i] = i % n ? -1 : i / n;
	dlb_plan_init(&p, 0, n);
	dlb_plan_set_replicas(&p, n, each);
	dlb_sharing_init(&p.sharing);
	double s = dlb_plan_sum_s(&p, &c, how, 0, (int64_t)(bytes / 4), 4);
	dlb_plan_release(&p);
	return s;
}

/* The predicted time of a sum is that of its simulation: nearly exactly if all directions are busy from the
 * first segment on, within a few per cent otherwise. */
static void test_prices(void)
{
	static const char *const *const all[] = { &hosts, &a_switch, &two_hosts, &taking_turns,
						  &bus,   &trunk,    &one_bus,   &memory };
	static const struct { int blocks; double off; } rows[] = { { 8, .03 }, { 32, .01 } };
	double most = 0;
	for (int i = 0; i < DLB_LEN(all) * 3 * 2 * DLB_LEN(rows); i++) {
		const char *section = *all[i % DLB_LEN(all)];
		int n = 2 + i / DLB_LEN(all) % 3, k = i / DLB_LEN(all) / 6, group[RANKS];
		struct dlb_cluster c;
		read_cluster(section, &c);
		for (int l = 0; l < c.n_links; l++)
			c.link[l].latency_s = i / DLB_LEN(all) / 3 % 2 ? .01 : 0;
		for (int r = 0; r < n; r++)
			group[r] = c.node[r].group;
		for (int a = 0; dlb_allreduces[a]; a++) {
			const struct dlb_allreduce *how = dlb_allreduces[a];
			const struct dlb_ranks ranks = { .n = n, .group = group };
			double segment = section == memory ? DLB_LOCAL_SEGMENT_BYTES : DLB_SEGMENT_BYTES;
			double bytes = how->n_chunks(&ranks) * rows[k].blocks * segment *
				       floor(DLB_BLOCK_BYTES / segment);
			double want = how->external ? 0 : played(&c, how, &ranks, bytes, segment),
			       got = price(&c, how, n, bytes);
			bool busy = how == &dlb_allreduce_ring || n == 2;
			double off = busy ? .005 : rows[k].off;
			/* nodes 0 and 1 may share a group without a link */
			if (how->external || (want <= 0 && got <= 0))
				continue;
			if (fabs(got / want - 1) > off) {
				fprintf(stderr, "%s: %s of %d ranks, %d blocks: %g s, played %g s\n", section,
					how->name, n, rows[k].blocks, got, want);
				abort();
			}
			most = fmax(most, fabs(got / want - 1));
		}
		dlb_cluster_release(&c);
	}
	assert(IS(most, >, .005));
}

/* In a ring of 4 each rank sends 2 (1 - 1/4) of the bytes; a bus carries those of all four ranks; additions
 * are free. */
static void test_sums(void)
{
	static const struct { const char *const *section; double ring_s;
	} rows[] = {
		{ &hosts, 1.5 },     { &a_switch, 1.5 },   { &bus, 6 },     { &memory, 1.5 },
		{ &two_hosts, 1.5 }, { &taking_turns, 3 }, { &one_bus, 3 },
	};
	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_cluster cl;
		read_cluster(*rows[i].section, &cl);
		expect(*rows[i].section, "ring", price(&cl, &dlb_allreduce_ring, 4, EVEN), rows[i].ring_s);
		dlb_cluster_release(&cl);
	}
}

int main(void)
{
	test_messages();
	test_between_groups();
	test_lanes();
	test_sums();
	test_prices();
	puts("links: directions, messages both ways and one way, rings, prices of sums beside sums played "
	     "message by message");
	return 0;
}
