/* Inside lib/exec/sync: the table of ways to synchronise a bucket (sync.h), and the data they work on. */
#ifndef DLB_EXEC_SYNC_WAYS_H
#define DLB_EXEC_SYNC_WAYS_H
#include "comm/compress.h"
#include "comm/pack.h"
#include "exec/sync/sync.h"

struct dlb_sync_bucket;
struct dlb_sync_ops {
	const char *name;
	/* ---- of a bucket; all but due and verdict are compulsory ---- */
	/* Makes buffers and collective. -1 with err. */
	int (*init)(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err);
	bool (*due)(const struct dlb_sync_bucket *b);	/* whether it runs in step sync->step; NULL: always */
	void (*load)(struct dlb_sync_bucket *b);	/* copies into the buffer; time counts from here on */
	void (*start)(struct dlb_sync_bucket *b);
	bool (*test)(struct dlb_sync_bucket *b);	/* advances; true: complete */
	/* waits until complete; -1: the comm broke */
	int (*wait)(struct dlb_sync_bucket *b, struct dlb_error *err);
	void (*take)(struct dlb_sync_bucket *b);	/* copies out of the buffer; counts bytes */
	/* -1 with err: a number of this step was not finite; NULL: does not check */
	int (*verdict)(const struct dlb_sync_bucket *b, struct dlb_error *err);
	/* ---- of the node, called in every step whatever its buckets; each may be NULL ---- */
	void (*open)(struct dlb_sync *x);			/* once, before init of buckets */
	void (*begin)(struct dlb_sync *x, const struct dlb_program *p);
	void (*nudge)(struct dlb_sync *x);
	int (*settle)(struct dlb_sync *x, struct dlb_error *err);
};
extern const struct dlb_sync_ops dlb_sync_sum, dlb_sync_statistics, dlb_sync_compressed, dlb_sync_factors,
	dlb_sync_compressed_factors, dlb_sync_scatter, dlb_sync_gather, dlb_sync_ahead, dlb_sync_mean,
	dlb_sync_gossip, dlb_sync_server;

/* A program's bucket as one way synchronises it. */
struct dlb_sync_bucket {
	const struct dlb_sync_ops *ops;
	struct dlb_sync *sync;
	const struct dlb_bucket *from;
	int index;			/* of the program's bucket */
	enum dlb_sum_class cls;
	struct dlb_pack pack;		/* the arrays that are summed or averaged */
	enum dlb_dtype dtype;
	/* Sums: the buffer in which pack is summed, in memory that ranks of this host share, or in the arena;
	 * NULL: the only array is summed in place, or the compressor has buffers of its own. */
	void *buffer;
	bool borrows;			/* the buffer is another bucket's */
	struct dlb_sync_place *place;	/* sums: [part] of pack; NULL: none moves from step to step */
	struct dlb_collective *sum;	/* sum, statistics, factors, mean */
	struct dlb_compressor *less;	/* the compressed ways */
	double bytes;			/* bytes that `sum` sends */
	double sent[DLB_N_TRAFFIC], sent_dense[DLB_N_TRAFFIC];	/* compressed: in the last step */
	void *own;			/* private data of the way */
	int peer;			/* rank that a wait is for; -1: several */
	int64_t step;			/* the step under way, or the last one */
	bool active, done, ran;		/* started and not waited for; complete; complete in this step */
	double start_s, took_s[DLB_N_SUM_CLASSES];
	struct dlb_sync_times *times;	/* where its seconds count */
};

struct dlb_sync_served;
struct dlb_sync_line;				/* ahead.c */
struct dlb_sync {
	struct dlb_sync_desc d;
	const struct dlb_plan *plan;
	int part;			/* of the model, on this node; -1: none */
	struct dlb_ranks peers;		/* by replica: the nodes with the same part */
	struct dlb_sync_bucket *bucket; int n;
	int *first;			/* [program's buckets + 1] bucket i's ways begin at first[i] */
	int n_active;
	double since_s;			/* time at which n_active was last 0 */
	int64_t step, steps;		/* this step; steps begun */
	struct dlb_compress_choice choice[DLB_N_COMPRESSED];	/* by class of sum */
	struct dlb_sync_times times;
	struct dlb_sync_times fixed;	/* bytes that every step sends */
	struct dlb_sync_times factors;	/* of the last exchange of factors */
	double sent[DLB_N_SUM_CLASSES];	/* averages: bytes since the start */
	struct dlb_sync_served *served; int n_served;	/* server.c */
	struct dlb_sync_line *line;	/* of weights gathered ahead of use */
	int64_t *share;			/* [replica] samples of a step; on the server */
	struct dlb_arena arena;
};

/* ---- sync.c ---- */
/* The nodes with the same part in all replicas, in arrays of the arena. */
void dlb_sync_find_peers(const struct dlb_plan *p, const struct dlb_cluster *cluster, int part,
			 struct dlb_arena *arena, struct dlb_ranks *peers);
/* ops->wait that nudges all buckets until b is done */
int dlb_sync_poll(struct dlb_sync_bucket *b, struct dlb_error *err);

/* ---- sum.c ---- */
/* One array that a bucket sums. places, stride: a sum with several places, `stride` bytes apart; step s uses
 * place s mod places. */
struct dlb_sync_summand { void *x; int64_t n; enum dlb_dtype dtype; int places; size_t stride; };
struct dlb_sync_place { char *base; int places; size_t stride; };
typedef struct dlb_sync_summand dlb_sync_summand_of(const struct dlb_sync_bucket *b, int i);
dlb_sync_summand_of dlb_sync_gradient;
/* Fills pack, dtype and place; pack is not laid out yet. */
void dlb_sync_add_summands(struct dlb_sync_bucket *b, dlb_sync_summand_of *of);
void dlb_sync_make_buffer(struct dlb_sync_bucket *b);
/* Lays pack out and makes buffer and collective of a dense sum; sets bytes. *dense_bytes: bytes that its hops
 * send. */
int dlb_sync_open_sum(struct dlb_sync_bucket *b, double *dense_bytes, struct dlb_error *err);
/* The same for a sum that runs `times` times in every step; counts its bytes in every step. */
int dlb_sync_open_sum_of_step(struct dlb_sync_bucket *b, double times, struct dlb_error *err);
void dlb_sync_load_sum(struct dlb_sync_bucket *b);
void dlb_sync_start_sum(struct dlb_sync_bucket *b);
bool dlb_sync_test_sum(struct dlb_sync_bucket *b);
int dlb_sync_wait_sum(struct dlb_sync_bucket *b, struct dlb_error *err);
void dlb_sync_take_sum(struct dlb_sync_bucket *b);

/* ---- compressed.c ---- */
/* Makes the compressor of the summands. *dense_bytes: bytes that a dense sum would send. */
int dlb_sync_open_compressor(struct dlb_sync_bucket *b, double *dense_bytes, struct dlb_error *err);
void dlb_sync_start_compressor(struct dlb_sync_bucket *b);
bool dlb_sync_test_compressor(struct dlb_sync_bucket *b);
int dlb_sync_wait_compressor(struct dlb_sync_bucket *b, struct dlb_error *err);
int dlb_sync_compressor_verdict(const struct dlb_sync_bucket *b, struct dlb_error *err);

/* ---- mean.c ---- */
/* Adds the weights that bucket b updates to its pack and lays it out. The class of a part is its tensor. */
void dlb_sync_pack_weights(struct dlb_sync_bucket *b);
/* Bytes that this node would send for a sum in every step. */
double dlb_sync_dense_bytes(const struct dlb_sync_bucket *b);
bool dlb_sync_meets(const struct dlb_sync_bucket *b);	/* ops->due of a mean over all replicas */
void dlb_sync_scale(void *x, enum dlb_dtype dtype, int64_t n, double factor);	/* x *= factor */
#endif
