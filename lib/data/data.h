/* Data: samples and labels for the step, the same on every node that asks, by index alone.
 *
 *   SPEC          idx:IMAGES,LABELS (gzip or not)   digits | digits:train | digits:test   tokens:FILE   random
 *   --order       shuffled (default; keyed by seed and epoch) | sequential
 *   --transform   acts left to right: scale=1/255 | scale=X, normalise=MEAN/STD, pad=P, channels=C
 *
 * dlb_data_fill writes sample i (position in the epoch's order) of each fed tensor, plain layout. Positions
 * are those of the order: position p of epoch e; sequential: sample i of step s is s*batch+i.
 * A dlb_data may be used from one thread beside the one that opened it: filling locks. */
#ifndef DLB_DATA_DATA_H
#define DLB_DATA_DATA_H
#include "graph/graph.h"

#define DLB_DATA_ENDLESS (INT64_MAX / 2)

struct dlb_data;				/* opaque */
/* Checks the spec against the graph's inputs: shapes (channels, height, width; pad and channels applied),
 * label range. Opens and reads the files (whole; IDX up to memory). */
int dlb_data_open(struct dlb_data **out, const char *spec, const char *transform, bool shuffled, uint64_t seed,
		  const struct dlb_graph *g, struct dlb_error *err);
void dlb_data_close(struct dlb_data *d);
int64_t dlb_data_count(const struct dlb_data *d);	/* samples in an epoch; DLB_DATA_ENDLESS: random */
/* Samples [first, first+n) of `epoch` for fed tensor t (graph id) into dst (n samples, t's dtype, plain). */
void dlb_data_fill(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n, void *dst);
/* Labels that count (not ignored) among those samples; n when the graph has no label. */
double dlb_data_counted(struct dlb_data *d, int64_t epoch, int64_t first, int64_t n);
/* The spec with its paths made absolute, so that it can be stored: returns new. -1 with err when a file
 * is not there. Specs without files are copied. */
int dlb_data_absolute(const char *spec, char **out, struct dlb_error *err);
#endif
