/* The cluster: kinds of device, nodes, groups and links.
 *
 * A node is one device of one host: one MPI rank. Nodes of a kind share costs; a node's `speed` (default 1)
 * divides its times. Groups form a tree (site > rack > host > socket > device ...); every node
 * belongs to one group, its leaf. Each group has an `inside` link, the medium between its members,
 * and an `up` link to its parent's medium.
 *
 * Route from node a to node b: the up links of a's groups below the lowest common ancestor, the
 * ancestor's inside link, the up links down to b. Seconds of a single transfer = sum of latencies + bytes
 * / smallest bandwidth. A link that does not overlap (shared memory: the sender copies) occupies the
 * sending node during the transfer.
 *
 * Concurrent transfers in one direction share its bandwidth, which is the link's. A duplex link (Ethernet,
 * InfiniBand, PCIe, NVLink) has several directions, each with the link's bandwidth: an up link has one
 * outward and one inward; an inside link (a switch) has one from and one to each member (child group or
 * node). A link that is not duplex (memory, bus, radio) has one direction for all transfers. By default, a
 * link that overlaps is duplex.
 *
 * Synthetic clusters: words separated by blanks or commas,
 *     [GROUP=]KIND[/THREADS][:COUNT][*SPEED][@MEMORY]      cpu:2   cpu/4:1   cpu:1*0.5   cpu:2@8GB
 * A KIND word adds nodes to the current host ("h0"), or to that host's group GROUP (a socket) if one is
 * named. The word "host" starts the next host, "rack" the next rack. "COUNT(WORDS)" repeats the words COUNT
 * times: "4(rack 8(host cpu:2))". "link=CLASS:LATENCY,BANDWIDTH" (1e-6,10e9) sets the medium of sockets,
 * hosts, racks or the site (CLASS socket, shm, rack, site). Example: "cpu:2 host cpu:2*0.5
 * link=rack:5e-6,1.25e9". The media of racks and sites are switches: a host's port (its up link) has the
 * class's bandwidth and half the class's latency. The switch itself (inside) costs nothing, so only transfers
 * at one port in one direction share bandwidth. */
#ifndef DLB_CLUSTER_CLUSTER_H
#define DLB_CLUSTER_CLUSTER_H
#include "doc/doc.h"
#include "util/mem.h"

#define DLB_MAX_ROUTE 16			/* limit of the links, and of the directions, of a route */
enum { DLB_MAX_MEMORIES = 4 };		/* limit of the memories that one node names */

/* Fractions of peak FLOP/s and of bandwidth that a class of work (dlb_op_work) reaches, from a datasheet or
 * assumed. Measurements in a profile take precedence. */
struct dlb_efficiency { const char *work; double flops, bandwidth; };
struct dlb_device_kind {
	const char *name;			/* "cpu" (one thread), "cpu/4" */
	const char *backend;			/* "cpu" */
	int threads;
	double peak_flops, bandwidth_Bps;	/* 0: unknown; measured by dlb-profile --cluster */
	double peak_bf16_flops;			/* peak FLOP/s of bf16 matrix products; 0: unknown */
	const char *device;			/* model name of the device; NULL: unknown */
	double memory_bytes;			/* 0: no limit known */
	/* op types or classes of work (dlb_op_work) for which this kind has no kernel */
	const char **without;
	int n_without;
	double launch_s;			/* overhead of one kernel launch; 0: unknown */
	struct dlb_efficiency *efficiency; int n_efficiency;	/* other classes of work use defaults */
	bool free_port;				/* DLB_LINKS_PORT: its nodes pay nothing for transfers */
};
struct dlb_node {
	int kind, group;
	double speed;				/* divides the node's times; default 1 */
	double memory_bytes;			/* share of the host's memory; 0: the kind's memory_bytes */
	const char *host;			/* host name, for launching */
	int device;				/* index on its host */
	/* memories that hold the node's buffers; none: the operating system chooses */
	int memory[DLB_MAX_MEMORIES], n_memories;
};
struct dlb_group {
	const char *name, *cls;
	int parent, inside, up;			/* parent -1: the root; links -1: none (transfers are free) */
	/* processor model and number of cores of an inspected host; NULL, 0: unknown */
	const char *processor; int cores;
};
/* usual: the link has the default figures of its class, neither stated nor measured; not in the document */
struct dlb_link {
	const char *name, *cls;
	double latency_s, bandwidth_Bps;
	bool overlap, duplex, usual;
	double stated_Bps; /* bandwidth in the document, which dlb_cluster_correct_links multiplies */
};
/* A memory of a group: NUMA memory ("dram", "hbm"), memory without cores ("cxl", "nvm") or caches ("l1d",
 * "l2", "l3": `count` equal caches of `bytes` each). bandwidth_Bps, latency_s 0: unknown. The nodes that name
 * a memory reach it over `link` (-1: no link of its own); they share its bytes, its bandwidth and the link's
 * bandwidth equally. A memory of class "file" is a file for offloaded tensors in `folder` of each host; no
 * node names it. Memories of other classes have no folder (NULL). */
#define DLB_MEMORY_FILE "file"
struct dlb_memory {
	int group;
	const char *name, *cls, *folder;
	double bytes, bandwidth_Bps, latency_s;
	int count, os_index;			/* os_index: hwloc's OS index of the NUMA node; -1: none */
	int link, users;			/* users: number of nodes that name it */
};

/* How ranks are started on a host. `name` equals the `host` of its nodes. address: the argument of ssh; user
 * NULL: the caller's name; slots: largest number of nodes on the host. */
struct dlb_host { const char *name, *address, *user; int slots; };

/* Cost model of transfers:
 *   routes  sum of latencies + bytes / bandwidth of the slowest link of the route; transfers on one link
 *           share its bandwidth
 *   port    a node spends time of its own on each tensor that it sends (once, however many nodes read it)
 *           or receives (once), at its port's latency and bandwidth (up link of its group, else the inside
 *           link); nodes of kinds with free_port pay nothing, and together they count as one place
 *           (Tarnawski et al., NeurIPS 2020)
 */
enum dlb_link_model { DLB_LINKS_ROUTES, DLB_LINKS_PORT, DLB_N_LINK_MODELS };

struct dlb_cluster {
	struct dlb_arena arena;
	enum dlb_link_model link_model;
	struct dlb_device_kind *kind; struct dlb_node *node; struct dlb_group *group; struct dlb_link *link;
	struct dlb_memory *memory; struct dlb_host *host;
	int n_kinds, n_nodes, n_groups, n_links, n_memories, n_hosts;
};
void dlb_cluster_init(struct dlb_cluster *c);
void dlb_cluster_release(struct dlb_cluster *c);
int dlb_cluster_parse(const char *text, struct dlb_cluster *c, struct dlb_error *err);	/* synthetic */
/* Adds the nodes, groups and links of a synthetic text to c, which has none. If c already has kinds, the text
 * may name no others. -1 with err; the caller releases c. */
int dlb_cluster_build(struct dlb_cluster *c, const char *text, struct dlb_error *err);
/* Describes this host through hwloc, or the host in the XML file `topology`: one node for each `threads`
 * cores of a group (threads <= 0: 1). -1 with err. */
int dlb_cluster_discover(struct dlb_cluster *c, const char *topology, int threads, struct dlb_error *err);
/* Whether the kind is known without measurement to have no kernel for ops of this type and class
 * (dlb_op_kind; below 0: none): the user says so (`without`), or its back end has no such kernel. */
bool dlb_device_kind_lacks(const struct dlb_device_kind *k, const char *type, int op_kind);
int dlb_cluster_check(const struct dlb_cluster *c, struct dlb_error *err);
/* A node's share of memory m: bytes (INFINITY: unknown), bytes/s (0: unknown), and latency in seconds. */
struct dlb_memory_share { double bytes, bandwidth_Bps, latency_s; };
struct dlb_memory_share dlb_cluster_memory_share(const struct dlb_cluster *c, int m);
/* bind.c: binds memory to the memories that a node names, all on this host. From then on, pages that are
 * first touched by this thread, or by a thread that it starts, are allocated in these memories.
 * dlb_binder_bind binds an area to the i-th of them; pages already touched are moved. */
struct dlb_binder;
int dlb_binder_new(struct dlb_binder **out, const struct dlb_cluster *c, int node, struct dlb_error *err);
/* A binder for dlb_binder_bind_to only: it does not change where this thread's allocations go. */
int dlb_binder_open(struct dlb_binder **out, const struct dlb_cluster *c, int node, struct dlb_error *err);
int dlb_binder_bind_to(struct dlb_binder *b, const struct dlb_memory *m, void *p, size_t bytes,
		       struct dlb_error *err);
int dlb_binder_bind(struct dlb_binder *b, int i, void *p, size_t bytes, struct dlb_error *err);
void dlb_binder_free(struct dlb_binder *b);
/* The name of link k, else its class. */
static inline const char *dlb_link_name(const struct dlb_cluster *c, int k)
{
	return c->link[k].name ? c->link[k].name : c->link[k].cls;
}
json_t *dlb_cluster_write(const struct dlb_cluster *c);			/* returns new */
int dlb_cluster_read(const struct dlb_doc *d, struct dlb_cluster *c, struct dlb_error *err);
/* Corrects the bandwidths of the links of c (from dlb_cluster_read): stated bandwidths times the factors of
 * the document's balance section (balance/balance.h). May be called again after each round. */
int dlb_cluster_correct_links(const struct dlb_doc *d, struct dlb_cluster *c, struct dlb_error *err);
/* As dlb_cluster_read, but also accepts a section whose member "synthetic" describes nodes, groups and
 * links. */
int dlb_cluster_read_section(const struct dlb_ref *r, struct dlb_cluster *c, struct dlb_error *err);
/* Reads a cluster from a file with a cluster section (bare or in a document), from a file in share/clusters
 * by its name, or from a synthetic string. *section (new): the section as in the file, with all "x-" members
 * and with lists in place of "synthetic"; or the section written from the string. */
int dlb_cluster_from(const char *file_or_text, struct dlb_cluster *c, json_t **section,
		     struct dlb_error *err);
/* Links on the route from node a to node b, in order; returns their number (0 if a == b). */
int dlb_cluster_route(const struct dlb_cluster *c, int a, int b, int link[DLB_MAX_ROUTE]);
/* A route summarized as one link for a single transfer: sum of latencies, smallest bandwidth (INFINITY: no
 * link). copies: some link does not overlap, so the sender is busy during the transfer. */
struct dlb_way { double latency_s, Bps; bool copies; };
struct dlb_way dlb_cluster_way(const struct dlb_cluster *c, int a, int b);
/* Directions that a transfer from a to b occupies, each once; ids are below dlb_cluster_n_directions. *way:
 * as dlb_cluster_way returns it; way may be NULL. */
struct dlb_direction { int link, id; };
int dlb_cluster_directions(const struct dlb_cluster *c, int a, int b,
			   struct dlb_direction direction[DLB_MAX_ROUTE], struct dlb_way *way);
int dlb_cluster_n_directions(const struct dlb_cluster *c);
double dlb_cluster_transfer_s(const struct dlb_cluster *c, double bytes, int a, int b);	/* single transfer */
/* Memory of a node in bytes: its shares of the memories that it names, else the bytes stated for the node,
 * else those of its kind. INFINITY: no known limit. */
double dlb_cluster_node_memory(const struct dlb_cluster *c, int node);
/* Number of cores that all CPU nodes together need: one for each of their threads. */
int dlb_cluster_cores(const struct dlb_cluster *c);
bool dlb_cluster_is_cpu(const struct dlb_cluster *c, int node);	/* else a GPU */

/* -- building: each function adds one row and returns its index; strings are copied into the arena -- */
int dlb_cluster_add_kind(struct dlb_cluster *c, const char *backend, int threads);	/* or finds it */
int dlb_cluster_add_node(struct dlb_cluster *c, int kind, int group, const char *host, int device);
int dlb_cluster_add_group(struct dlb_cluster *c, const char *name, const char *cls, int parent);
/* gives the link the default figures of its class */
int dlb_cluster_add_link(struct dlb_cluster *c, const char *name, const char *cls);
/* user may be NULL */
int dlb_cluster_add_host(struct dlb_cluster *c, const char *name, const char *address, const char *user,
			 int slots);
int dlb_cluster_add_memory(struct dlb_cluster *c, int group, const char *name, const char *cls, double bytes);
/* "cpu" for one thread, else "cpu/4". */
const char *dlb_cluster_kind_name(struct dlb_arena *a, const char *backend, int threads);
/* Default figures of a class of link, used until figures are measured or stated by the user.
 * dlb_link_class_find returns NULL if there is no such class. */
struct dlb_link_class { const char *name; double latency_s, bandwidth_Bps; bool overlap, stated; };
const struct dlb_link_class *dlb_link_class_find(const char *name);
#endif
