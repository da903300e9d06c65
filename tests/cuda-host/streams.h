/* Streams and events of the stand-in, for runtime.c and graph.c. */
#ifndef CUDA_HOST_STREAMS_H
#define CUDA_HOST_STREAMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum task_kind { RUN, RECORD, WAIT };
struct task {
	enum task_kind kind;
	void (*run)(void *arg);
	struct CUevent_st *event;
	uint64_t until;			/* WAIT: the event's count of records */
	struct task *next;
	size_t bytes;			/* of arg */
	uint64_t number;		/* in the order in which tasks are queued */
	size_t from_host;		/* bytes that it copies from the host */
	_Alignas(16) char arg[];
};
struct task_list { struct task *first, *last; };	/* first NULL: last is of no use */
/* capturing: tasks become part of a graph, `captured`. */
struct CUstream_st {
	struct task_list queue, captured;
	bool capturing;
	bool pageable;			/* the last copy is not from or to pinned memory */
	struct CUstream_st *next;
};
struct CUevent_st { uint64_t queued, done; struct CUstream_st *stream; struct timespec at; };	/* at: last passed */

#define MAY_FAIL(status) \
	do { \
		if (cuda_host_fails()) \
			return status; \
	} while (0)

void cuda_host_append(struct task_list *l, struct task *t);	/* takes t */
/* A task was appended to s: it runs at once where memory is unified. */
void cuda_host_queued(struct CUstream_st *s);
/* Aborts if a stream is captured: `call` would wait for what is not queued, or use memory now. */
void cuda_host_no_capture(const char *call);
#endif
