/* Parts of the graph section between JSON and C: dimensions, values of constants, attributes.
 *
 * Dimension    a number, or text in N, the number of samples: "N", "64*N", "N+1", "2*N-3".
 * Values       a flat array in row-major order, of numbers (reals with 17 digits) or booleans. Text where
 *              JSON has no number: "nan", "inf", "-inf"; and integers beyond 2^53, which jq would round.
 * Attribute    INT and REAL a number (a REAL that a printer wrote without its fraction comes back as an INT, and
 *              the accessors of op.h take it), STR text, INTS and REALS arrays, TENSOR an object
 *              {"dtype", "shape", "value"}; {"int": "TEXT"} or {"real": "inf"} where the number needs text. */
#ifndef DLB_GRAPH_VALUE_JSON_H
#define DLB_GRAPH_VALUE_JSON_H
#include "graph/graph.h"

json_t *dlb_dim_write(struct dlb_dim d);
int dlb_dim_read(const struct dlb_ref *r, struct dlb_dim *d, struct dlb_error *err);

json_t *dlb_real_write(double v);			/* a number or text */
int dlb_real_read(const struct dlb_ref *r, double *v, struct dlb_error *err);

json_t *dlb_values_write(const void *data, enum dlb_dtype t, int64_t count);
/* Exactly `count` values of type t, in `a`. */
int dlb_values_read(const struct dlb_ref *r, enum dlb_dtype t, int64_t count, struct dlb_arena *a,
		    void **data, struct dlb_error *err);

json_t *dlb_attrs_write(const struct dlb_attr *attr, int n);		/* an object */
int dlb_attrs_read(const struct dlb_ref *r, struct dlb_arena *a, struct dlb_attr **attr, int *n,
		   struct dlb_error *err);
#endif
