/* Imports other tools' files into a document, and exports a document's plan to other tools' formats.
 *
 * A format is one file of this folder and one row of dlb_formats[] (convert.c). Import makes the
 * sections graph, cluster and cost, or those that the file has data for. Export writes the plan or its
 * cluster. Units are converted here: most files have milliseconds, documents seconds. Files are
 * untrusted: errors name the place in the file. */
#ifndef DLB_CONVERT_CONVERT_H
#define DLB_CONVERT_CONVERT_H
#include "cost/cost.h"

/* Options for data that a format lacks. Zeros: defaults of the format. */
/* MACHINE: accelerators, hosts, memory, bandwidth */
enum { DLB_TAKES_MACHINE = 1, DLB_TAKES_RANK = 2, DLB_TAKES_THREADS = 4, DLB_TAKES_REPLAN = 8 };
struct dlb_convert_options {
	int64_t accelerators, hosts, threads, rank;
	bool rank_given, replan;
	double memory_bytes, bandwidth_Bps;
};
/* Features of a plan that a format may be unable to express. */
enum { DLB_UNSAID_REPLICAS = 1, DLB_UNSAID_MICRO_BATCHES = 2, DLB_UNSAID_ASYNC = 4 };
struct dlb_format {
	const char *name, *summary;
	/* unsaid: features it cannot express; *_takes: options that have an effect */
	unsigned unsaid, import_takes, export_takes;
	/* Imports n bytes of text, read from `name`, into d, an empty document. NULL:
	 * the format cannot be imported. */
	int (*import)(const char *text, size_t n, const char *name, const struct dlb_convert_options *o,
		      struct dlb_doc *d, struct dlb_error *err);
	/* Returns the exported file (new) of *n bytes; NULL with err. NULL: the format cannot be exported. */
	char *(*export)(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
			struct dlb_error *err);
};
extern const struct dlb_format dlb_formats[];		/* ends with name NULL */
const struct dlb_format *dlb_format_find(const char *name);
/* Writes one line with the features of d's plan that f cannot express; false: none. */
bool dlb_format_unsaid(const struct dlb_format *f, const struct dlb_doc *d, char *line, size_t size);

/* ---- networks on accelerators and a host, shared by several formats (accelerators.c) ---- */
struct dlb_vertex {
	const char *name, *type;			/* type NULL: "Layer" */
	int64_t id;
	double host_s, accelerator_s;			/* INFINITY: no kernel there */
	/* size_bytes: memory; output_s: seconds of the output through a port */
	double size_bytes, output_s, output_bytes;
	bool backward;
	int colour;					/* less than the number of vertices; -1: none */
	const struct dlb_attr *attr; int n_attr;	/* at most 8; borrowed */
};
struct dlb_edge { int from, to; };			/* vertices; self-loops and duplicates are allowed */
struct dlb_network {
	struct dlb_vertex *vertex; struct dlb_edge *edge;
	int n_vertices, n_edges, n_accelerators, n_hosts;
	double memory_bytes;				/* per accelerator */
};
/* Makes the sections graph, cluster (nodes: accelerators, then the host's cores) and cost of d. An op's
 * attribute "id" is the vertex's id. -1 with err. */
int dlb_network_import(const struct dlb_network *net, struct dlb_doc *d, struct dlb_error *err);
#define DLB_KIND_ACCELERATOR "accelerator"
#define DLB_KIND_HOST "host"
#endif
