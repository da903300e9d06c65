/* The document: one JSON object, an envelope of sections, that is passed along the pipe.
 *
 *     {"dlb":"1.0", "graph":{}, "profile":{}, "cluster":{}, "cost":{}, "balance":{}, "plan":{},
 *      "run":{}, "report":{}, "provenance":[]}
 *
 * A filter reads the document, sets its own section and writes the document. Everything else, and every
 * member named x-..., is passed on unchanged. jansson's json_t represents it; the module of each section
 * (lib/<layer>/<section>_json.c) converts its json_t to an open C struct and back. This module knows only
 * the envelope: the sections, their dependencies, hashes, versions, and typed getters that know the JSON
 * Pointer of the value they read.
 *
 * Dependencies: replacing a section drops the sections made from it.
 *     graph -> profile -> cost <- cluster;  cost -> plan -> report;  balance <- cluster's node ids.
 *
 * A struct dlb_ref is a json value with its pointer, so every message names the place: "<stdin>:
 * /graph/ops/17/inputs/0: no tensor 44". */
#ifndef DLB_DOC_DOC_H
#define DLB_DOC_DOC_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "util/error.h"

struct dlb_doc {
	json_t *root;		/* owned */
	char name[200];		/* file name or "<stdin>", for messages */
};

/* Reads one document from `path` (NULL or "-": stdin). Errors: cannot open; parse error with line and column;
 * "empty input; did the previous command fail?"; not an object; no "dlb" member; another major version (names
 * both); an unknown member if the minor version is not newer than ours (suggests the closest name). */
int dlb_doc_read(struct dlb_doc *d, const char *path, struct dlb_error *err);
int dlb_doc_parse(struct dlb_doc *d, const char *text, size_t n, const char *name, struct dlb_error *err);
/* Bytes of heap that these sections take, as jansson 2.14 and glibc allocate them on 64-bit machines.
 * sections ends with NULL. */
double dlb_doc_heap_bytes(const struct dlb_doc *d, const char *const *sections);
void dlb_doc_init(struct dlb_doc *d, const char *name);		/* an empty document of our version */
/* Writes the whole document and a newline: integers as integers, reals with 17 digits, members of the
 * envelope in the order above, then x- members. -1 with err if the stream fails. */
int dlb_doc_write(const struct dlb_doc *d, FILE *f, struct dlb_error *err);
void dlb_doc_release(struct dlb_doc *d);
bool dlb_doc_is_newer(const struct dlb_doc *d);		/* same major, later minor version */

/* Returns the section, borrowed; NULL if absent. */
json_t *dlb_doc_section(const struct dlb_doc *d, const char *section);
/* As above, but an absent section is an error that names the tool that makes it. */
int dlb_doc_need(const struct dlb_doc *d, const char *section, json_t **out, struct dlb_error *err);
/* Sets the section; takes `value`. Drops the sections that depend on it. */
void dlb_doc_set(struct dlb_doc *d, const char *section, json_t *value);
/* As dlb_doc_set, but drops nothing (dlb-rebalance writes balance). */
void dlb_doc_put(struct dlb_doc *d, const char *section, json_t *value);
/* Appends {tool, version, arguments} to provenance. */
void dlb_doc_provenance(struct dlb_doc *d, const char *tool, int argc, char **argv);

/* A number as the document writes it: an integer if its value is one, null if it is not finite. Returns
 * new. */
json_t *dlb_doc_number(double x);
/* Each sets member `key` of object o. dlb_set_str omits a NULL text, dlb_set_real a value that is not finite.
 * dlb_set_number writes a value as dlb_doc_number makes it: an integer if it is one, null if it is not
 * finite. dlb_set_finite does the same, but omits a value that is not finite. */
void dlb_set_int(json_t *o, const char *key, int64_t v);
void dlb_set_bool(json_t *o, const char *key, bool v);
void dlb_set_real(json_t *o, const char *key, double v);
void dlb_set_number(json_t *o, const char *key, double v);
void dlb_set_finite(json_t *o, const char *key, double v);
void dlb_set_str(json_t *o, const char *key, const char *v);

/* Hash of parsed values: members sorted, numbers by value (1 and 1.0 are equal). Skips x- members and members
 * named in `skip` (NULL-terminated, or NULL) at every depth. */
uint64_t dlb_doc_hash(const json_t *v, const char *const *skip);
/* Returns (new) {"graph":"16 hex digits", ...}: the "inputs" of a section made from the named sections. */
json_t *dlb_doc_input_hashes(const struct dlb_doc *d, const char *const *sections);
/* Checks the section's "inputs" against the document: -1 with "made from another graph" and the like. A
 * section without "inputs" (written by hand) passes. */
int dlb_doc_check_inputs(const struct dlb_doc *d, const char *section, struct dlb_error *err);

/* ---- typed getters ---- */
/* `up` must outlive the reference. index: -1 for members. newer: the document has a newer minor version,
 * so unknown members are accepted. */
struct dlb_ref {
	json_t *v;
	const struct dlb_ref *up;
	const char *key;
	int index;
	const char *doc;
	bool newer;
};

struct dlb_ref dlb_ref_root(const struct dlb_doc *d, const char *section);
struct dlb_ref dlb_ref_at(const struct dlb_ref *up, const char *key);	/* v NULL: absent */
struct dlb_ref dlb_ref_index(const struct dlb_ref *up, int i);
/* Writes the JSON Pointer, such as "/graph/ops/17", into buf. */
void dlb_ref_pointer(const struct dlb_ref *r, char *buf, size_t n);
/* As dlb_fail, with the document's name and the pointer as where. */
int dlb_ref_fail(const struct dlb_ref *r, struct dlb_error *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Each reads member `key` of object r into *out. -1 with err: it is missing (with `opt`, *out stays unchanged
 * instead), has another type, or is outside [min,max]. Reals accept integers; JSON has no NaN or infinity. */
enum { DLB_NEED = 0, DLB_OPT = 1 };
int dlb_get_int(const struct dlb_ref *r, const char *key, int opt, int64_t min, int64_t max, int64_t *out,
		struct dlb_error *err);
int dlb_get_real(const struct dlb_ref *r, const char *key, int opt, double min, double max, double *out,
		 struct dlb_error *err);
int dlb_get_bool(const struct dlb_ref *r, const char *key, int opt, bool *out, struct dlb_error *err);
/* *out is borrowed. */
int dlb_get_str(const struct dlb_ref *r, const char *key, int opt, const char **out, struct dlb_error *err);
/* Reads one of n names as its index. */
int dlb_get_name(const struct dlb_ref *r, const char *key, int opt, const char *const *names, int n, int *out,
		 struct dlb_error *err);
int dlb_get_array(const struct dlb_ref *r, const char *key, int opt, struct dlb_ref *out, int *n,
		  struct dlb_error *err);
int dlb_get_object(const struct dlb_ref *r, const char *key, int opt, struct dlb_ref *out,
		   struct dlb_error *err);
/* Checks that members of r are in `known` (NULL-terminated) or start with x-; the error suggests the closest
 * name. Not checked in a document of a newer minor version. */
int dlb_ref_known(const struct dlb_ref *r, const char *const *known, struct dlb_error *err);
/* Reads element i of array r as an integer or real. */
int dlb_ref_int(const struct dlb_ref *r, int64_t min, int64_t max, int64_t *out, struct dlb_error *err);
int dlb_ref_real(const struct dlb_ref *r, double min, double max, double *out, struct dlb_error *err);
#endif
