/* The member "adapters" of the graph section, and low-rank adapters of weights (struct dlb_adapter). */
#ifndef DLB_GRAPH_ADAPTERS_H
#define DLB_GRAPH_ADAPTERS_H
#include "graph/graph.h"

/* PEFT names a parameter by this prefix followed by the parameter's path in the module. */
#define DLB_ADAPTER_PREFIX "base_model.model."

/* adapters_json.c: the member "adapters"; dlb_adapters_write returns new. dlb_adapters_read, after the
 * tensors were read: the names must be those of weights or constants of two dimensions, with sizes that
 * agree. */
json_t *dlb_adapters_write(const struct dlb_graph *g);
int dlb_adapters_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err);
/* adapters.c: of += scale b a, or its transpose if `of` is (in, out). Values are of type t: a is (rank, in),
 * b (out, rank), `of` (out, in), or (in, out) without ad->transposed. */
void dlb_adapter_merge(const struct dlb_adapter *ad, enum dlb_dtype t, int64_t in, int64_t out, const void *a,
		       const void *b, void *of);
/* The path of the module that has the weight: its name without the last word "weight"; in arena a. */
const char *dlb_adapter_module(const struct dlb_adapter *ad, struct dlb_arena *a);
#endif
