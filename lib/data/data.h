/* Data: samples and labels for the step, the same on every node that asks, by index alone.
 *
 *   SPEC   idx:IMAGES,LABELS (gzip or not)      npy:SAMPLES[,...],LABELS      digits | digits:train | digits:test
 *          images:DIR|FILE.tar[,labels=FILE]    random                        tokens:FILE[,type=u8|u16|u32]
 *          text:FILE[,level=char|byte][,alphabet=FILE] | text:FILE,vocab=FILE,merges=FILE
 *   order  shuffled (by seed and epoch) or sequential: sample i of step s is s*batch+i
 *   transform of images, left to right: see transform.c
 *
 * dlb_data_fill writes sample i (position in the epoch's order) of each fed tensor, plain layout. What chance does
 * to a sample (crops, flips) hangs on seed, epoch and the sample's number alone, so neither placement nor a restart
 * changes it. Files are indexed and checked when opened; large ones are read, images decoded, only when filled.
 * A dlb_data may be used from one thread beside the one that opened it: filling locks. */
#ifndef DLB_DATA_DATA_H
#define DLB_DATA_DATA_H
#include "data/shards.h"
#include "graph/graph.h"

#define DLB_DATA_ENDLESS (INT64_MAX / 2)

struct dlb_data;				/* opaque */
struct dlb_data_choice {
	const char *spec, *transform;		/* transform: NULL, none */
	bool shuffled;
	uint64_t seed;
	int readers;				/* threads that decode images, from 1; 0: one */
	const struct dlb_data *like;		/* these are the test data of that: its classes and alphabet hold
						 * here too, random crops are centred, nothing is flipped. Borrowed
						 * while opening. */
};
/* Checks the spec against the graph's inputs: shapes after the transform, ranges of labels and tokens. */
int dlb_data_open(struct dlb_data **out, const struct dlb_data_choice *c, const struct dlb_graph *g, struct dlb_error *err);
void dlb_data_close(struct dlb_data *d);
/* Replicas draw from shards of their own (shards.h) from now on; before anything is filled. -1: data without end, or
 * sorted ones without one label a sample. */
int dlb_data_shard(struct dlb_data *d, const struct dlb_shards_choice *c, struct dlb_error *err);
int64_t dlb_data_count(const struct dlb_data *d);	/* samples in an epoch; DLB_DATA_ENDLESS: random */
/* Samples [first, first+n) of `epoch` for fed tensor t (graph id) into dst (n samples, t's dtype, plain).
 * -1: a file cannot be read or holds something wrong, err names it and the place; dst is then zero there. */
int dlb_data_fill(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n, void *dst, struct dlb_error *err);
/* Labels of fed tensor t that count (not ignored) among those samples, each with its class's weight; n when t holds no
 * labels or is -1. */
double dlb_data_counted(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n);
int dlb_data_label(const struct dlb_data *d, int k);	/* the graph's tensor that gets the k-th labels, -1: there is none */
int dlb_data_losses(const struct dlb_data *d);		/* losses that the graph adds up */
/* The spec with its paths made absolute, so that it can be stored: returns new. -1 with err when a file
 * is not there. Specs without files are copied. */
int dlb_data_absolute(const char *spec, char **out, struct dlb_error *err);
#endif
