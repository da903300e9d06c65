/* Kept results of clusters: texts and sections with a text, good and bad ones and each with every character left out or
 * doubled; routes, directions and times between all nodes; shares of memory; corrected links. kept.h says how they are
 * replaced. */
#include <jansson.h>
#include "check.h"
#include "kept.h"
#include "cluster/cluster.h"
#include "doc/doc.h"

static const char *const kept[] = {
#include "cluster_kept.inc"
};

static const char *const texts[] = {
	"cpu:2",
	"cpu:2 cpu/4:1*0.5@8GB",
	"cpu:2 host cpu/2:2*0.25 cpu:1 link=rack:2e-5,2e7",
	"socket0=cpu:2 socket1=cpu:2@500MB link=socket:1e-6,1e9",
	"2(rack 2(host cpu:2)) link=shm:1e-6,5e9 link=rack:1e-5,1e9 link=site:5e-5,1e8",
	"rack host cpu:1 host cuda:2 rack 3(host cpu:1*1.5)",
	"cuda+tf32:2 host cpu/8:1,host cuda:1@16GiB",
	"4(host 2(a=cpu:1) b=cpu:1)",
	"host cpu rack cpu:3",
};

static void keep_cluster(const char *name, const struct dlb_cluster *c)
{
	json_t *all = dlb_cluster_write(c);
	double slowest = 0;
	int most = 0;

	kept_json(all);
	json_decref(all);
	for (int a = 0; a < c->n_nodes; a++)
		for (int b = 0; b < c->n_nodes; b++) {
			int link[DLB_MAX_ROUTE];
			struct dlb_direction direction[DLB_MAX_ROUTE];
			struct dlb_way way, same = dlb_cluster_way(c, a, b);
			const int n = dlb_cluster_route(c, a, b, link),
				  m = dlb_cluster_directions(c, a, b, direction, &way);

			assert(IS(way.latency_s, ==, same.latency_s) && IS(way.Bps, ==, same.Bps));
			kept_add(link, n);
			for (int i = 0; i < m; i++)
				kept_add((const int[]){ direction[i].link, direction[i].id }, 2);
			kept_real(way.latency_s);
			kept_real(way.Bps);
			kept_add((const int[]){ way.copies, same.copies }, 2);
			slowest = fmax(slowest, dlb_cluster_transfer_s(c, 1e6, a, b));
			kept_real(dlb_cluster_transfer_s(c, 1e5, a, b));
			most = n > most ? n : most;
		}
	for (int i = 0; i < c->n_nodes; i++) {
		kept_real(dlb_cluster_node_memory(c, i));
		kept_add((const int[]){ dlb_cluster_is_cpu(c, i) }, 1);
	}
	for (int i = 0; i < c->n_memories; i++) {
		const struct dlb_memory_share s = dlb_cluster_memory_share(c, i);

		kept_real(s.bytes);
		kept_real(s.bandwidth_Bps);
		kept_real(s.latency_s);
	}
	kept_line(name, "%d nodes, %d groups, %d links, %d directions, %d cores, routes of %d, %.5g s",
		  c->n_nodes, c->n_groups, c->n_links, dlb_cluster_n_directions(c), dlb_cluster_cores(c),
		  most, slowest);
}

/* The answer to a text becomes part of the checksum. */
static void answer(const char *text)
{
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;

	if (dlb_cluster_parse(text, &c, &err)) {
		kept_text(err.where);
		kept_text(err.what);
		kept_text(err.hint);
		return;
	}
	json_t *all = dlb_cluster_write(&c);
	kept_json(all);
	json_decref(all);
	dlb_cluster_release(&c);
}

/* The text without each character, with each twice, and with a few others in its place. */
static void spell(const char *text)
{
	static const char others[] = "0-*:@=(), /x";
	const size_t n = strlen(text);
	char other[200];

	for (size_t i = 0; i < n; i++) {
		snprintf(other, sizeof other, "%.*s%s", (int)i, text, text + i + 1);
		answer(other);
		snprintf(other, sizeof other, "%.*s%s", (int)i + 1, text, text + i);
		answer(other);
		for (const char *x = others; *x; x++) {
			snprintf(other, sizeof other, "%s", text);
			other[i] = *x;
			answer(other);
		}
	}
	kept_line(text, "spelt");
}

static void memories(void)
{
	static const struct {
		double bytes, Bps, link_Bps;
		int count, users;
	} rows[] = {
		{ 1e9, 1e10, 0, 1, 0 }, { 1e9, 1e10, 0, 1, 1 },  { 1e9, 0, 5e9, 2, 2 },
		{ 0, 1e10, 5e9, 1, 3 }, { 3e9, 2e9, 5e9, 4, 2 }, { 8e9, 0, 0, 1, 4 },
	};
	struct dlb_error err;
	struct dlb_cluster c;

	assert(!dlb_cluster_parse("cpu:4@3GB host cuda:2", &c, &err));
	for (int i = 0; i < DLB_LEN(rows); i++) {
		char name[16];
		snprintf(name, sizeof name, "m%d", i);
		const int m = dlb_cluster_add_memory(&c, c.node[0].group, name, "cxl", rows[i].bytes);
		struct dlb_memory *x = &c.memory[m];

		x->bandwidth_Bps = rows[i].Bps;
		x->latency_s = 1e-7 * i;
		x->count = rows[i].count;
		x->users = rows[i].users;
		if (rows[i].link_Bps > 0) {
			x->link = dlb_cluster_add_link(&c, name, "cxl");
			c.link[x->link].bandwidth_Bps = rows[i].link_Bps;
		}
		c.node[i % 4].memory[c.node[i % 4].n_memories++] = m;
		keep_cluster(name, &c);
	}
	dlb_cluster_release(&c);
}

/* Sections whose text describes the nodes, and corrections of their links. */
static void sections(void)
{
	static const char *const rows[] = {
		"{\"kinds\":[{\"name\":\"a\",\"backend\":\"cpu\",\"threads\":2},{\"name\":\"b\",\"backend\":"
		"\"cpu\"}],"
		"\"synthetic\":\"a:2 host b*2\"}",
		"{\"kinds\":[],\"synthetic\":\"a:2\"}",
		"{\"kinds\":[{\"name\":\"a\",\"backend\":\"cpu\",\"threads\":2}],\"synthetic\":\"aa\"}",
		"{\"kinds\":[{\"name\":\"a\",\"backend\":\"cpu\",\"threads\":2}],\"synthetic\":3}",
		("{\"kinds\":[{\"name\":\"a\",\"backend\":\"cpu\",\"threads\":2}],\"synthetic\":\"a\","
		 "\"nodes\":[]}"),
		"{\"kinds\":[{\"name\":\"a\",\"backend\":\"cpu\",\"threads\":2}],\"synthetic\":\"\"}",
		"[]",
	};
	static const char *const links[] = {
		"{}",
		"[]",
		"{\"links\":[]}",
		"{\"links\":[{\"link\":0,\"factor\":0.5}]}",
		"{\"links\":[{\"link\":1,\"factor\":2},{\"link\":0,\"factor\":0.25}]}",
		"{\"links\":[{\"link\":0}]}",
		"{\"links\":[{\"factor\":1}]}",
		"{\"links\":[{\"link\":99,\"factor\":1}]}",
		"{\"links\":[{\"link\":-1,\"factor\":1}]}",
		"{\"links\":[{\"link\":0,\"factor\":9e-10}]}",
		"{\"links\":[{\"link\":0,\"factor\":1.1e9}]}",
		"{\"links\":{}}",
	};
	struct dlb_error err = { .what = "" };
	struct dlb_cluster c;
	struct dlb_doc d;

	dlb_doc_init(&d, "f.json");
	for (int i = 0; i < DLB_LEN(rows); i++) {
		dlb_doc_put(&d, "cluster", json_loads(rows[i], 0, NULL));
		const struct dlb_ref r = dlb_ref_root(&d, "cluster");

		if (dlb_cluster_read_section(&r, &c, &err)) {
			kept_line("section", "%s %s; %s", err.where, err.what, err.hint);
		} else {
			keep_cluster("section", &c);
			dlb_cluster_release(&c);
		}
		if (!dlb_cluster_read(&d, &c, &err))
			dlb_cluster_release(&c);
		else
			kept_line("section", "%s %s; %s", err.where, err.what, err.hint);
	}
	assert(!dlb_cluster_parse(texts[4], &c, &err));
	dlb_doc_put(&d, "cluster", dlb_cluster_write(&c));
	dlb_cluster_release(&c);
	assert(!dlb_cluster_read(&d, &c, &err));
	for (int i = 0; i < DLB_LEN(links); i++) {
		dlb_doc_put(&d, "balance", json_loads(links[i], 0, NULL));
		if (dlb_cluster_correct_links(&d, &c, &err))
			kept_line("links", "%s %s", err.where, err.what);
		for (int k = 0; k < c.n_links; k++)
			kept_real(c.link[k].bandwidth_Bps);
		kept_line("links", "%.5g B/s", c.link[0].bandwidth_Bps);
	}
	dlb_cluster_release(&c);
	dlb_doc_release(&d);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(texts); i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_cluster c;

		if (dlb_cluster_parse(texts[i], &c, &err)) {
			kept_line(texts[i], "%s", err.what);
		} else {
			keep_cluster(texts[i], &c);
			dlb_cluster_release(&c);
		}
		spell(texts[i]);
	}
	memories();
	sections();
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
