/* The functions in the table dlb_rewrites (rewrites.c), one file per subject (private to lib/graph). */
#ifndef DLB_GRAPH_REWRITES_H
#define DLB_GRAPH_REWRITES_H
#include "graph/graph.h"

enum { DLB_REWRITE_FOLDING, DLB_REWRITE_DEAD, DLB_MAX_REWRITES = 64 };	/* rows that are part of fold.c */

bool dlb_rewrite_is_on(const struct dlb_graph *g, int row);
/* Records that `row`, which is off, would have changed the graph. */
void dlb_rewrite_missed(struct dlb_graph *g, int row);
/* Records that rewrite `row` applied `count` times; does nothing if it is off. */
void dlb_rewrite_done(struct dlb_graph *g, int row, int64_t count);

/* pattern_small.c */
int dlb_rewrite_no_ops(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
int dlb_rewrite_cross_entropy(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_norm.c */
int dlb_rewrite_layer_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
int dlb_rewrite_rms_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_group_norm.c */
int dlb_rewrite_group_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_swish.c */
int dlb_rewrite_swish(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
int dlb_rewrite_swiglu(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_rotary.c */
int dlb_rewrite_rotary(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_softmax.c */
int dlb_rewrite_softmax_guard(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_gelu.c */
int dlb_rewrite_gelu(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* selected_rows.c */
int dlb_rewrite_selected_rows(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* fuse_linear.c */
int dlb_rewrite_linear(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_views.c */
int dlb_rewrite_transposes(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_unbind.c */
int dlb_rewrite_unbind(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* fuse_product.c */
int dlb_rewrite_products(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* pattern_attention.c */
int dlb_rewrite_attention(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* fuse_activation.c */
int dlb_rewrite_norm_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
int dlb_rewrite_conv_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
int dlb_rewrite_add_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
/* winograd.c */
int dlb_rewrite_winograd(struct dlb_graph *g, int64_t *count, struct dlb_error *err);
#endif
