/* The tensors of a bucket as compression sees them: matrices. */
#ifndef DLB_PLAN_BUCKET_TENSORS_H
#define DLB_PLAN_BUCKET_TENSORS_H
#include "comm/compress.h"
#include "plan/program.h"

/* The tensors of bucket b before the run (x unset), in arena a; *n: their number. A gradient has the id and
 * name of its weight, a factor the name of its layer's weight and an id of its own. A gradient is one matrix.
 * The gradient of a fused weight (graph/fused_weight.h) is one matrix for each weight in it, with a name like
 * w[0:128] that gives its rows. Tensor i lies in the bucket's summand tensor[i].summand from element
 * tensor[i].at on. */
struct dlb_sum_tensor *dlb_bucket_tensors(const struct dlb_graph *g, const struct dlb_bucket *b,
					  struct dlb_arena *a, int *n);
/* The weight whose gradient, or a part of whose gradient, has this id. */
int dlb_bucket_weight_of(int id);
/* Name of the gradient with this id, in arena a. */
const char *dlb_bucket_tensor_name(const struct dlb_graph *g, int id, struct dlb_arena *a);
#endif
