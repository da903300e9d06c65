/* Other tools' files: into a document, and what a document says in their words.
 *
 * A format is one file of this folder and one row of dlb_formats[] (convert.c). Importing makes the sections
 * graph, cluster and cost, or what of them the file has; exporting writes the plan or what it runs on. Units change here: files have milliseconds, documents
 * seconds. Files are not trusted: what is wrong with one is said with the place in it. */
#ifndef DLB_CONVERT_CONVERT_H
#define DLB_CONVERT_CONVERT_H
#include "cost/cost.h"

/* What a format does not say itself. Zeros: its own defaults. */
enum { DLB_TAKES_MACHINE = 1, DLB_TAKES_RANK = 2, DLB_TAKES_THREADS = 4 };	/* machine: accelerators, hosts, memory, bandwidth */
struct dlb_convert_options { int64_t accelerators, hosts, threads, rank; bool rank_given; double memory_bytes, bandwidth_Bps; };
/* What of a plan a format has no words for. */
enum { DLB_UNSAID_REPLICAS = 1, DLB_UNSAID_MICRO_BATCHES = 2, DLB_UNSAID_ASYNC = 4 };
struct dlb_format {
	const char *name, *summary;
	unsigned unsaid, import_takes, export_takes;	/* which of the options have a meaning */
	/* Reads text (n bytes, from `name`) into d, which is an empty document. NULL: cannot be read. */
	int (*import)(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
		      struct dlb_doc *d, struct dlb_error *err);
	/* The other tool's file, *n bytes, returns new; NULL with err. NULL: cannot be written. */
	char *(*export)(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n, struct dlb_error *err);
};
extern const struct dlb_format dlb_formats[];		/* ends with name NULL */
const struct dlb_format *dlb_format_find(const char *name);
/* What the plan of d has that f has no words for, one line; false: nothing. */
bool dlb_format_unsaid(const struct dlb_format *f, const struct dlb_doc *d, char *line, size_t size);

/* ---- shared by formats that describe a network on accelerators and a host (accelerators.c) ---- */
struct dlb_vertex {
	const char *name, *type;			/* type NULL: "Layer" */
	int64_t id;
	double host_s, accelerator_s;			/* INFINITY: no kernel there */
	double size_bytes, output_s, output_bytes;	/* of memory; of its output: seconds through a port, bytes */
	bool backward;
	int colour;					/* below the number of vertices; -1: none */
	const struct dlb_attr *attr; int n_attr;	/* of its own, at most 8; borrowed */
};
struct dlb_edge { int from, to; };			/* vertices; loops and repetitions do no harm */
struct dlb_network {
	struct dlb_vertex *vertex; struct dlb_edge *edge;
	int n_vertices, n_edges, n_accelerators, n_hosts;
	double memory_bytes;				/* of one accelerator */
};
/* Sets d's sections graph, cluster (nodes: accelerators, then the host's cores) and cost. Ops keep the vertex's
 * id as their attribute "id". */
int dlb_network_import(const struct dlb_network *net, struct dlb_doc *d, struct dlb_error *err);
#define DLB_KIND_ACCELERATOR "accelerator"
#define DLB_KIND_HOST "host"
#endif
