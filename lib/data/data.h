/* Training data: fills samples and labels of a step by index, with equal results on every node.
 *
 *   SPEC   idx:IMAGES,LABELS (gzip or not)   npy:SAMPLES[,...],LABELS   digits | digits:train | digits:test
 *          images:DIR|FILE.tar[,labels=FILE]   random   tokens:FILE[,type=u8|u16|u32]
 *          text:FILE[,level=char|byte][,alphabet=FILE] | text:FILE,vocab=FILE,merges=FILE
 *   order  shuffled (by seed and epoch) or sequential: sample i of step s is s*batch+i
 *   transform of images, left to right: see transform.c
 *
 * dlb_data_fill writes sample i (position in the epoch's order) of a fed tensor, in plain layout. Random
 * crops and flips depend only on seed, epoch and sample number, so placement and restarts do not change them.
 * Files are checked and indexed when opened; large files are read, and images decoded, only when a batch is
 * filled. A second thread may use a dlb_data beside the one that opened it: filling takes a lock. */
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
	int readers;				/* threads that decode images, at least 1; 0 means 1 */
	/* For test data: the training data, whose classes and alphabet are used. Random crops are then
	 * centred and nothing is flipped. Borrowed while opening. */
	const struct dlb_data *like;
};
/* Opens the data and checks them against the graph's inputs: shapes after the transform, ranges of labels and
 * tokens. *out is new; -1 with err. */
int dlb_data_open(struct dlb_data **out, const struct dlb_data_choice *c, const struct dlb_graph *g,
		  struct dlb_error *err);
void dlb_data_close(struct dlb_data *d);
/* From now on each replica draws from its own shard (shards.h). Call it before anything is filled. -1 with
 * err: endless data, or a deal sorted by label without one label per sample. */
int dlb_data_shard(struct dlb_data *d, const struct dlb_shards_choice *c, struct dlb_error *err);
/* Bytes of memory that open data keep: samples, and the order of two epochs. */
double dlb_data_bytes(const struct dlb_data *d);
int64_t dlb_data_count(const struct dlb_data *d);	/* samples per epoch; DLB_DATA_ENDLESS for random */
/* Fills dst with samples [first, first+n) of `epoch` for fed tensor t (graph id): n samples of
 * t's dtype, plain layout. -1: a sample cannot be read or is invalid; err names file and place,
 * and the sample's values are 0. */
int dlb_data_fill(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n, void *dst,
		  struct dlb_error *err);
/* Sum of class weights of the labels of fed tensor t that count (are not ignored) among these samples; n
 * if t holds no labels or is -1. */
double dlb_data_counted(struct dlb_data *d, int t, int64_t epoch, int64_t first, int64_t n);
int dlb_data_label(const struct dlb_data *d, int k);	/* graph id of the k-th label tensor; -1: none */
int dlb_data_losses(const struct dlb_data *d);		/* number of losses that the graph adds up */
/* Returns in *out a new copy of the spec with absolute paths, so that it can be stored. -1 with err if a file
 * does not exist. A spec without files is copied. */
int dlb_data_absolute(const char *spec, char **out, struct dlb_error *err);
#endif
