/* What a rank says of a silent one, to its parent, on its own, and with --on-event; rows of the log of
 * steps to the byte; and the memories that a node's buffers are bound to. Heartbeats, events, checkpoints,
 * memories and states are pretended: this program has them in place of the library's. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "exec/alarm.h"
#include "exec/checkpoint.h"
#include "exec/event.h"
#include "exec/memories.h"
#include "exec/offload_store.h"
#include "exec/step_log.h"
#include "check.h"

static char said[4000];

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	const size_t at = strlen(said);
	va_list args;

	va_start(args, format);
	vsnprintf(said + at, sizeof said - at, format, args);
	va_end(args);
}

/* ---- alarms ---- */

static struct dlb_heartbeat_listener listener;
static int rank;
static const char *newest;

int dlb_heartbeat_new(struct dlb_heartbeat **out, struct dlb_comm *c, double limit_s,
		      const struct dlb_heartbeat_listener *l, struct dlb_error *err)
{
	(void)c;
	(void)err;
	assert(IS(limit_s, ==, 3));
	listener = *l;
	*out = (void *)&listener;
	return 0;
}

void dlb_heartbeat_free(struct dlb_heartbeat *h)
{
	if (h)
		say("freed");
}

int dlb_comm_rank(const struct dlb_comm *c)
{
	(void)c;
	return rank;
}

void dlb_comm_lose(struct dlb_comm *c, const char *line)
{
	(void)c;
	say("lost: %s\n", line);
}

void dlb_events_happened(struct dlb_events *e, const char *event, int node, int64_t step, const char *message)
{
	assert((void *)e == said);
	say("event %s %d %d %s\n", event, node, (int)step, message);
}

char *dlb_checkpoint_newest(const char *dir)
{
	assert(SAME(dir, "folder"));
	return newest ? strdup(newest) : NULL;
}

/* What the listener says, and what it writes to standard error. */
static const char *telling(enum dlb_silence how, bool lowest)
{
	FILE *f = tmpfile();
	const int kept = dup(2);
	size_t n;

	*said = '\0';
	fflush(stderr);
	dup2(fileno(f), 2);
	listener.tell(listener.ctx, &(struct dlb_heartbeat_told){ 4, "there", how, 3.25, lowest });
	fflush(stderr);
	dup2(kept, 2);
	close(kept);
	n = strlen(said);
	rewind(f);
	said[n + fread(said + n, 1, sizeof said - n - 1, f)] = '\0';
	fclose(f);
	return said;
}

static void alarms(void)
{
	struct dlb_alarm a = { .tool = "tool", .parent = true, .step = 12, .events = (void *)said };
	struct dlb_error err = { .what = "" };

	assert(IS(dlb_alarm_start(&a, 3, &err), ==, 0) && (void *)a.heartbeat == &listener);
	assert(SAME(telling(DLB_SILENCE_STOPPED, true), "\1silent 4 1 3.250 12 there\n"));
	assert(SAME(telling(DLB_SILENCE_GONE, true), "\1silent 4 0 3.250 12 there\n"));
	a.parent = false;
#define SILENT "node 4 (host there) is silent for 3.2 s at step 12"
	assert(SAME(telling(DLB_SILENCE_CUT, true), "event lost 4 12 " SILENT "\nlost: " SILENT "\n"));
	assert(SAME(telling(DLB_SILENCE_CUT, false), "lost: " SILENT "\n"));
	assert(SAME(telling(DLB_SILENCE_STOPPED, false), "lost: " SILENT ": it has been stopped\n"));
	assert(SAME(telling(DLB_SILENCE_GONE, true), ""));
	/* datagrams that do not arrive: once, by rank 0, and not with -q */
	a.quiet = true;
	assert(SAME(telling(DLB_SILENCE_UNHEARD, true), ""));
	a.quiet = false;
	a.unheard = false;
	rank = 1;
	assert(SAME(telling(DLB_SILENCE_UNHEARD, true), "") && a.unheard);
	rank = 0;
	assert(SAME(telling(DLB_SILENCE_UNHEARD, true), ""));
	a.unheard = false;
	assert(HAS(telling(DLB_SILENCE_UNHEARD, true),
		   "tool: no heartbeat of node 4 (host there) arrives: does a firewall"));
	assert(SAME(telling(DLB_SILENCE_UNHEARD, true), ""));
	dlb_alarm_stop(&a);
	assert(SAME(said, "freed") && !a.heartbeat);
	dlb_alarm_hint(NULL, &err);
	assert(SAME(err.hint, ""));
	dlb_alarm_hint("folder", &err);
	assert(SAME(err.hint, "there is no checkpoint yet in 'folder'"));
	newest = "folder/step-3";
	dlb_alarm_hint("folder", &err); /* a hint stays */
	assert(SAME(err.hint, "there is no checkpoint yet in 'folder'"));
	err.hint[0] = '\0';
	dlb_alarm_hint("folder", &err);
	assert(SAME(err.hint, "the last checkpoint is 'folder/step-3'"));
}

/* ---- rows ---- */

static void rows(void)
{
	static char path[] = "/tmp/test_alarm.XXXXXX";
	const struct dlb_node_step nodes[2] = {
		{ .busy_s = 1.9999999999,
		  .waits_s = { 0.5, 0, 1e-9, 4e-10 },
		  .data_wait_s = 0.1,
		  .bytes_sent = 1e15,
		  .sum_bytes = 7 },
		{ .busy_s = -1,
		  .waits_s = { NAN, INFINITY, 6e-10, 12.25 },
		  .bytes_sent = 123456789012,
		  .waited_for = 1,
		  .waited_for_s = 0.000000125 },
	};
	struct dlb_step_row r = { .step = 120,
				  .epoch = 3,
				  .has_loss = true,
				  .loss = 0.1,
				  .rate = 0.25,
				  .wall_s = 100,
				  .step_s = 0.75,
				  .node = nodes,
				  .n_nodes = 2,
				  .test_loss = 2,
				  .accuracy = 0.5,
				  .eval_s = 0.5,
				  .decision = "stay" };
	struct dlb_step_log *l;
	struct dlb_error err = { .what = "" };
	const int fd = mkstemp(path);
	FILE *f;

	close(fd);
	assert(IS(dlb_step_log_open(&l, path, 0, 2, &err), ==, 0));
	dlb_step_log_write(l, &r);
	r = (struct dlb_step_row){ .simulated = true,
				   .wall_s = 1,
				   .step_s = 0.5,
				   .eval_s = 0.25,
				   .test_loss = INFINITY,
				   .accuracy = NAN };
	dlb_step_log_write(l, &r);
	r = (struct dlb_step_row){ .step = 1, .rate = NAN, .eval_s = NAN };
	dlb_step_log_write(l, &r);
	assert(IS(dlb_step_log_drain(l, &err), ==, 0) && IS(dlb_step_log_wrong(l, &err), ==, 0));
	dlb_step_log_close(l, 7);
	f = fopen(path, "r");
	said[fread(said, 1, sizeof said - 1, f)] = '\0';
	fclose(f);
	unlink(path);
	assert(SAME(
		said,
		"{\"step\":120,\"epoch\":3,\"loss\":0.10000000000000001,\"lr\":0.25,\"wall_s\":100,\"step_"
		"s\":0.75,"
		"\"bytes\":1.00012346e+15,\"nodes\":[{\"busy_s\":2,\"waits\":{\"starved\":0.5,"
		"\"backpressure\":0,"
		"\"collective\":0.000000001,\"structural\":0},\"data_wait_s\":0.1,\"bytes_sent\":1e+15,\"sum_"
		"bytes\":7},"
		"{\"busy_s\":-1,\"waits\":{\"starved\":0,\"backpressure\":0,\"collective\":0.000000001,"
		"\"structural\":12.25},\"waited_for\":0,\"waited_for_s\":0.000000125,\"data_wait_s\":0,"
		"\"bytes_sent\":123456789012,\"sum_bytes\":0}],\"test_loss\":2,\"accuracy\":0.5,\"eval_s\":0."
		"5,"
		"\"decision\":\"stay\"}\n"
		"{\"step\":0,\"epoch\":0,\"simulated\":true,\"wall_s\":1,\"step_s\":0.5,\"bytes\":0,"
		"\"nodes\":[],"
		"\"test_loss\":null,\"eval_s\":0.25}\n"
		"{\"step\":1,\"epoch\":0,\"lr\":null,\"wall_s\":0,\"step_s\":0,\"bytes\":0,\"nodes\":[]}\n"));
}

/* A log that is continued keeps whole rows up to the step, and nothing behind them. */
static void continued(void)
{
	static const struct {
		int64_t step;
		const char *was, *kept;
	} cases[] = {
		{ 0, "{\"step\":1}\n", "" },
		{ 1, "{\"step\":1}\n{\"step\":2}\n", "{\"step\":1}\n" },
		{ 2, "{\"step\":1}\n{\"step\":2}\n", "{\"step\":1}\n{\"step\":2}\n" },
		{ 5, "{\"step\":1}\n{\"step\":2}", "{\"step\":1}\n" },
	};

	for (int i = 0; i < DLB_LEN(cases); i++) {
		char path[] = "/tmp/test_alarm.XXXXXX";
		struct dlb_step_log *l;
		struct dlb_error err = { .what = "" };
		FILE *f = fdopen(mkstemp(path), "w");

		fputs(cases[i].was, f);
		fclose(f);
		assert(IS(dlb_step_log_open(&l, path, cases[i].step, 1, &err), ==, 0));
		dlb_step_log_close(l, 7);
		f = fopen(path, "r");
		said[fread(said, 1, sizeof said - 1, f)] = '\0';
		fclose(f);
		unlink(path);
		assert(SAME(said, cases[i].kept));
	}
	dlb_step_log_close(NULL, 7);
}

/* ---- memories ---- */

static char buffer[100 * 4096];
static size_t page;
static int binds, fails_at;

int dlb_binder_bind(struct dlb_binder *b, int i, void *p, size_t bytes, struct dlb_error *err)
{
	assert((void *)b == buffer);
	if (++binds == fails_at)
		return dlb_fail(err, NULL, "not bound");
	say("%d:%d+%d ", i, (int)((char *)p - buffer), (int)bytes);
	return 0;
}

bool dlb_offload_store_has(const struct dlb_offload_store *s, const void *p) { return (const void *)s == p; }

size_t dlb_state_value_bytes(const struct dlb_state *s, int t)
{
	(void)s;
	return 100 + (size_t)t;
}

size_t dlb_state_slot_bytes(const struct dlb_state *s, int t)
{
	(void)s;
	return 200 + (size_t)t;
}

static struct dlb_memories *memories(int n, double first, double second, double third)
{
	struct dlb_memory_use use = { { { 0 } } };
	struct dlb_memories *m;
	const double bytes[] = { first, second, third };

	for (int i = 0; i < 3; i++)
		use.bytes[i][DLB_BUF_WEIGHTS] = use.bytes[i][DLB_BUF_STATE] = bytes[i];
	dlb_memories_new(&m, (void *)buffer, n, &use);
	*said = '\0';
	binds = fails_at = 0;
	return m;
}

static void bound(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_memory_use use = { { { 0 } } };
	const int p = (int)page;
	char want[200];
	struct dlb_memories *m = memories(3, 2.5 * p, 1.25 * p, 1);

	/* whole pages of each; what is left goes to the last with planned bytes */
	assert(IS(dlb_memories_put(m, DLB_BUF_WEIGHTS, buffer, 4 * page + 5, &err), ==, 0));
	snprintf(want, sizeof want, "0:0+%d 1:%d+%d 2:%d+%d ", 2 * p, 2 * p, p, 3 * p, p + 5);
	assert(SAME(said, want));
	*said = '\0'; /* of another kind */
	assert(IS(dlb_memories_put(m, DLB_BUF_STATE, buffer, page, &err), ==, 0));
	snprintf(want, sizeof want, "0:0+%d ", p);
	assert(SAME(said, want));
	*said = '\0';
	assert(IS(dlb_memories_put(m, DLB_BUF_STATE, buffer, 2 * page, &err), ==, 0));
	snprintf(want, sizeof want, "0:0+%d 1:%d+%d ", p, p, p);
	assert(SAME(said, want) && IS(dlb_memories_put(m, DLB_BUF_STATE, NULL, page, &err), ==, 0) &&
	       SAME(said, want));
	assert(IS(dlb_memories_put(m, DLB_BUF_STATE, buffer, 0, &err), ==, 0) && SAME(said, want));
	dlb_memories_free(m);
	m = memories(3, p, 4 * p, 0); /* the third has none */
	assert(IS(dlb_memories_put(m, DLB_BUF_WEIGHTS, buffer, 9 * page, &err), ==, 0));
	snprintf(want, sizeof want, "0:0+%d 1:%d+%d ", p, p, 8 * p);
	assert(SAME(said, want));
	dlb_memories_free(m);
	m = memories(2, p, p, 0);
	fails_at = 2;
	assert(IS(dlb_memories_put(m, DLB_BUF_WEIGHTS, buffer, 2 * page, &err), ==, -1) &&
	       SAME(err.what, "not bound"));
	dlb_memories_free(m);
	m = memories(1, p, 0, 0); /* no choice */
	assert(!m && IS(dlb_memories_put(m, DLB_BUF_WEIGHTS, buffer, page, &err), ==, 0) && SAME(said, ""));
	dlb_memories_new(&m, NULL, 2, &use);
	assert(!m);
	dlb_memories_new(&m, (void *)buffer, 2, NULL);
	assert(!m && IS(dlb_memories_put_state(m, &(struct dlb_state){ .n_slots = 0 }, &err), ==, 0));
}

/* Values, copies, optimizer states and sums of the tensors of this node; what is offloaded is not bound. */
static void bound_state(void)
{
	enum { TENSORS = 4, OPS = 2 };
	struct dlb_tensor tensor[TENSORS] = { { .home = -1 }, { .home = 1 }, { .home = 0 }, { .home = -1 } };
	struct dlb_graph g = { .tensor = tensor, .n_tensors = TENSORS, .n_ops = OPS };
	void *value[TENSORS] = { buffer, buffer + 1000, NULL, buffer + 3000 };
	void *slot[2][TENSORS] = { { NULL, buffer + 1100, NULL, buffer + 3100 },
				   { NULL, buffer + 1200, NULL, buffer + 3200 } };
	void *sum[OPS] = { buffer + 9000, buffer + 9500 };
	char *copy[TENSORS] = { NULL, buffer + 1300, NULL, NULL };
	size_t sum_bytes[OPS] = { 30, 31 }, copy_bytes[TENSORS] = { 0, 41, 0, 0 };
	struct dlb_state s = { .graph = &g,
			       .value = value,
			       .slot = { slot[0], slot[1] },
			       .n_slots = 2,
			       .sum = sum,
			       .copy = copy,
			       .sum_bytes = sum_bytes,
			       .copy_bytes = copy_bytes,
			       .store = (void *)(buffer + 3000) };
	struct dlb_error err = { .what = "" };
	struct dlb_memories *m = memories(2, 1e6, 1, 0);

	assert(IS(dlb_memories_put_state(m, &s, &err), ==, 0));
	assert(SAME(said,
		    "0:0+100 0:1000+101 0:1300+41 0:1100+201 0:1200+201 0:9500+31 0:3100+203 0:3200+203 "));
	for (int at = 1; at <= 8; at++) {
		binds = 0;
		fails_at = at;
		assert(IS(dlb_memories_put_state(m, &s, &err), ==, -1) && IS(binds, ==, at));
	}
	dlb_memories_free(m);
	s.store = (void *)(buffer + 1100); /* the states of the second are offloaded */
	m = memories(2, 1e6, 1, 0);
	assert(IS(dlb_memories_put_state(m, &s, &err), ==, 0));
	assert(SAME(said, "0:0+100 0:1000+101 0:1300+41 0:9500+31 0:3000+103 0:3100+203 0:3200+203 "));
	dlb_memories_free(m);
}

int main(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	alarms();
	rows();
	continued();
	bound();
	bound_state();
	return 0;
}
