/* The cluster: what there is. Kinds of device, nodes, groups, links.
 *
 * A node is one device of one host: one MPI rank. Nodes of a kind share costs; a node's `speed`
 * (1.0) divides its times. Groups form a tree (site > rack > host > socket > device ...); every node
 * hangs in one group (its leaf). Each group has an `inside` link, the medium through which its members
 * reach each other, and an `up` link, its own way to its parent's medium.
 *
 * Route from node a to node b: the up links of a's groups below their lowest common ancestor, that
 * ancestor's inside link, the up links down to b. Seconds alone = sum of latencies + bytes / least
 * bandwidth. A link that does not overlap (shared memory: the writer copies) occupies the sending node
 * while it lasts.
 *
 * Transfers that use one lane at the same time share its bandwidth, which is the link's. A duplex link
 * (Ethernet, InfiniBand, PCIe, NVLink: figures are of one way) has lanes for each way: an up link one
 * outward and one inward; an inside link, a switch, one from and one to each member (child group or node).
 * A link that is not duplex (memory, a bus, radio) is one lane, whoever sends and wherever to. Unless it
 * is said, what overlaps is duplex.
 *
 * Synthetic clusters: words separated by blanks or commas,
 *     [GROUP=]KIND[/THREADS][:COUNT][*SPEED][@MEMORY]      cpu:2   cpu/4:1   cpu:1*0.5   cpu:2@8GB
 * each KIND word is put on the current host ("h0"), in its group GROUP (a socket) when one is named; a
 * word "host" starts the next host, "rack" the next rack; "link=CLASS:LATENCY,BANDWIDTH" (1e-6,10e9) sets
 * the medium of sockets, hosts, racks or the site (CLASS socket, shm, rack, site).
 * Example: "cpu:2 host cpu:2*0.5 link=rack:5e-6,1.25e9".
 * The media of racks and sites are switches: a host's port (its up link) has the class's bandwidth and
 * half its latency, and the switch itself (inside) is free, so that only transfers at one port, one way, share. */
#ifndef DLB_CLUSTER_CLUSTER_H
#define DLB_CLUSTER_CLUSTER_H
#include "doc/doc.h"
#include "util/mem.h"

#define DLB_MAX_ROUTE 16			/* links, and lanes, on the longest route */
enum { DLB_MAX_MEMORIES = 4 };		/* that a node names */

/* How near to its peak and its bandwidth a class of work (dlb_op_work) comes, from a datasheet or by assumption;
 * what a profile measured goes first. */
struct dlb_efficiency { const char *work; double flops, bandwidth; };
struct dlb_device_kind {
	const char *name;			/* "cpu" (one thread), "cpu/4" */
	const char *backend;			/* "cpu" */
	int threads;
	double peak_flops, bandwidth_Bps;	/* 0: unknown; measured by dlb-profile --cluster */
	double memory_bytes;			/* 0: no limit known */
	const char **without;			/* op types or classes of work (dlb_op_work) that have no kernel here */
	int n_without;
	double launch_s;			/* of one kernel; 0: unknown */
	struct dlb_efficiency *efficiency; int n_efficiency;	/* classes that nothing is stated of have the usual ones */
	bool free_port;				/* under the port model: transfers cost it nothing (a host) */
};
struct dlb_node {
	int kind, group;
	double speed;				/* 1.0 */
	double memory_bytes;			/* its share of the host's memory; 0: that of the kind */
	const char *host;			/* host name, for launching */
	int device;				/* index on its host */
	int memory[DLB_MAX_MEMORIES], n_memories;	/* where its buffers lie; none: where the system puts them */
};
struct dlb_group { const char *name, *cls; int parent, inside, up; };	/* links -1: none (free) */
struct dlb_link { const char *name, *cls; double latency_s, bandwidth_Bps; bool overlap, duplex, usual; };	/* usual: nobody stated
				 * or measured them, they are the class's usual figures; not in the document */
/* Memory of a group: NUMA memory ("dram", "hbm"), memory without cores ("cxl", "nvm") or caches ("l1d", "l2",
 * "l3": `count` alike, each of `bytes`). bandwidth_Bps, latency_s 0: unknown. Nodes that name it get to it over `link`
 * (-1: none of its own) and share it evenly: its bytes, its bandwidth and that of the link. */
struct dlb_memory {
	int group;
	const char *name, *cls;
	double bytes, bandwidth_Bps, latency_s;
	int count, os_index;			/* os_index: the system's number of a NUMA node; -1: none */
	int link, users;			/* users: nodes that name it */
};

/* How transfers are charged:
 *   routes  latency + bytes over the slowest link of the route; transfers on one link share it
 *   port    a node pays for each tensor that it sends out (once, however many read it) or takes in (once), as
 *           work of its own, at its port's latency and bandwidth (up link of its group, else the inside one);
 *           a kind with free_port pays nothing, and all nodes of such kinds are one place
 *           (Tarnawski et al., NeurIPS 2020) */
enum dlb_link_model { DLB_LINKS_ROUTES, DLB_LINKS_PORT, DLB_N_LINK_MODELS };

struct dlb_cluster {
	struct dlb_arena arena;
	enum dlb_link_model link_model;
	struct dlb_device_kind *kind; struct dlb_node *node; struct dlb_group *group; struct dlb_link *link;
	struct dlb_memory *memory;
	int n_kinds, n_nodes, n_groups, n_links, n_memories;
};
void dlb_cluster_init(struct dlb_cluster *c);
void dlb_cluster_release(struct dlb_cluster *c);
int dlb_cluster_parse(const char *text, struct dlb_cluster *c, struct dlb_error *err);	/* synthetic */
/* This host through hwloc, or the XML file `topology` in its place: one node per core group of one thread
 * ("cpu", count = cores) unless told otherwise. threads <= 0: 1. */
int dlb_cluster_discover(struct dlb_cluster *c, const char *topology, int threads, struct dlb_error *err);
int dlb_cluster_check(const struct dlb_cluster *c, struct dlb_error *err);
/* A node's share of memory m: bytes (INFINITY: not known), bytes/s (0: not known), and seconds to reach it. */
struct dlb_memory_share { double bytes, bandwidth_Bps, latency_s; };
struct dlb_memory_share dlb_cluster_memory_share(const struct dlb_cluster *c, int m);
/* bind.c: the memories that a node names, all of this host. What this thread, and those that it starts, touch first from
 * now on lies in them; an area that is bound lies in the i-th, moved there when it has been touched. */
struct dlb_binder;
int dlb_binder_new(struct dlb_binder **out, const struct dlb_cluster *c, int node, struct dlb_error *err);
int dlb_binder_bind(struct dlb_binder *b, int i, void *p, size_t bytes, struct dlb_error *err);
void dlb_binder_free(struct dlb_binder *b);
json_t *dlb_cluster_write(const struct dlb_cluster *c);			/* returns new */
int dlb_cluster_read(const struct dlb_doc *d, struct dlb_cluster *c, struct dlb_error *err);
int dlb_cluster_read_section(const struct dlb_ref *r, struct dlb_cluster *c, struct dlb_error *err);
/* A file that holds a cluster section, bare or in a document; the name of one of share/clusters; or a synthetic
 * string. *section (new): the section as the file has it, with all its "x-" members, or written. */
int dlb_cluster_from(const char *file_or_text, struct dlb_cluster *c, json_t **section, struct dlb_error *err);
/* Links on the route from node a to node b, in order; returns their number (0 when a == b). */
int dlb_cluster_route(const struct dlb_cluster *c, int a, int b, int link[DLB_MAX_ROUTE]);
/* The route as one link, for a transfer alone: sum of latencies, least bandwidth (INFINITY: no link); whether the sender
 * copies. */
struct dlb_way { double latency_s, Bps; bool copies; };
struct dlb_way dlb_cluster_way(const struct dlb_cluster *c, int a, int b);
/* Lanes that a transfer from a to b takes, none twice. Ids are below dlb_cluster_n_lanes. *way (NULL: not asked for): as above. */
struct dlb_lane { int link, id; };
int dlb_cluster_lanes(const struct dlb_cluster *c, int a, int b, struct dlb_lane lane[DLB_MAX_ROUTE], struct dlb_way *way);
int dlb_cluster_n_lanes(const struct dlb_cluster *c);
double dlb_cluster_transfer_s(const struct dlb_cluster *c, double bytes, int a, int b);	/* alone */
/* Bytes: of the memories that it names, else as stated for it or its kind. INFINITY: no limit known. */
double dlb_cluster_node_memory(const struct dlb_cluster *c, int node);

/* -- building: each adds one row and returns its index; strings are copied into the arena -- */
int dlb_cluster_add_kind(struct dlb_cluster *c, const char *backend, int threads);	/* or finds it */
int dlb_cluster_add_node(struct dlb_cluster *c, int kind, int group, const char *host, int device);
int dlb_cluster_add_group(struct dlb_cluster *c, const char *name, const char *cls, int parent);
int dlb_cluster_add_link(struct dlb_cluster *c, const char *name, const char *cls);	/* the class's usual figures */
int dlb_cluster_add_memory(struct dlb_cluster *c, int group, const char *name, const char *cls, double bytes);
/* "cpu" for one thread, else "cpu/4". */
const char *dlb_cluster_kind_name(struct dlb_arena *a, const char *backend, int threads);
/* Usual figures of a class of link, used until one is measured or told; NULL: no such class. */
struct dlb_link_class { const char *name; double latency_s, bandwidth_Bps; bool overlap, stated; };	/* stated: by the user */
const struct dlb_link_class *dlb_link_class_find(const char *name);
#endif
