/* The thread that prepares the next step's samples. */
#ifndef DLB_EXEC_FEED_H
#define DLB_EXEC_FEED_H
#include "data/data.h"
#include "exec/engine.h"

struct dlb_feed;
/* The engines that get the samples. Engine i runs program[i] (of the whole plan). slots: number of steps
 * whose samples are kept, at least two. */
struct dlb_fed_engines {
	struct dlb_engine *const *engine;
	const struct dlb_program *program;
	int n, slots;
	struct dlb_backend *be;
};
/* Reads ahead for any of the engines; data is borrowed. dispatch: rank 0 reads for all nodes, and data is
 * NULL on the others; NULL: each node reads its own samples. */
int dlb_feed_new(struct dlb_feed **out, struct dlb_data *data, const struct dlb_fed_engines *fed,
		 struct dlb_dispatch *dispatch, struct dlb_error *err);
void dlb_feed_free(struct dlb_feed *f);
/* Number of steps after the current one whose samples should be requested. */
int dlb_feed_ahead(const struct dlb_feed *f);
/* Requests a step's samples for engine `which`, beginning with sample `first` of `epoch`. -1: the comm broke;
 * likewise for the next two functions. */
int dlb_feed_ask(struct dlb_feed *f, int which, int64_t epoch, int64_t first, struct dlb_error *err);
/* Waits for the oldest requested samples; *fed is valid until the slots-th dlb_feed_ask from now. *wrong -1
 * with why: a sample could not be read. It is replaced by zeros, so that the step can run and all ranks end
 * together after it. */
int dlb_feed_take(struct dlb_feed *f, const struct dlb_fed **fed, int *wrong, struct dlb_error *why,
		  struct dlb_error *err);
/* Seconds in which this node, with all its readers, has prepared samples of a fed tensor, and their number, without the
 * first step. */
struct dlb_feed_time {
	int tensor;
	double time_s, samples;
};
/* Those of each tensor since the last call, new; *n of them. */
struct dlb_feed_time *dlb_feed_take_times(struct dlb_feed *f, int *n);
/* Waits until no request is in progress; collective. */
int dlb_feed_settle(struct dlb_feed *f, struct dlb_error *err);
#endif
