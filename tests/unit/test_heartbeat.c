/* Heartbeats, in a world that is pretended: this program has a clock, a communicator, datagrams and the
 * state of other ranks' threads of its own in place of the library's, and lets the thread of one rank take
 * one turn after the other. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/heartbeat.h"
#include "comm/heartbeat_udp.h"
#include "util/clock.h"
#include "util/process.h"
#include "util/thread.h"
#include "check.h"

/* Limit and turn, of which sums are exact: a rank is silent after 11 turns. */
#define LIMIT_S 1.5
#define TURN_S 0.125
enum { MOST = 6, SILENT = 11, QUEUED = 16 };

/* As in heartbeat.c. */
struct page {
	_Atomic uint32_t n, left;
	_Atomic int32_t pid, tid;
};
struct card {
	int32_t leader, local_of;
	uint64_t offset, secret;
	struct dlb_beat_place place;
	char host[64];
};

/* near: shares memory with this rank; local: is on its host. state: of its thread. */
struct rank {
	bool near, local, beats;
	int leader, local_of;
	char state;
	struct page page;
};

struct dlb_comm {
	int unused;
};
static struct dlb_comm comm;
static struct rank world[MOST];
static int n_ranks, me;
static bool no_memory, no_thread, no_socket, no_gather;
static struct card mine;
static double now_s;

/* ---- what is pretended ---- */

double dlb_clock_s(void) { return now_s; }
double dlb_clock_thread_cpu_s(void) { return now_s; }
void dlb_sleep_s(double s) { now_s += s; }

int dlb_comm_rank(const struct dlb_comm *c)
{
	(void)c;
	return me;
}

int dlb_comm_size(const struct dlb_comm *c)
{
	(void)c;
	return n_ranks;
}

const char *dlb_comm_host(const struct dlb_comm *c)
{
	(void)c;
	return "my host";
}

bool dlb_comm_near(const struct dlb_comm *c, int rank)
{
	(void)c;
	assert(IS(rank, <, n_ranks));
	return world[rank].near;
}

bool dlb_comm_is_local(const struct dlb_comm *c, int rank)
{
	(void)c;
	assert(IS(rank, <, n_ranks));
	return world[rank].local;
}

void *dlb_comm_alloc(struct dlb_comm *c, size_t bytes)
{
	(void)c;
	assert(IS(bytes, ==, sizeof(struct page)));
	return no_memory ? NULL : &world[me].page;
}

size_t dlb_comm_offset(const struct dlb_comm *c, const void *p)
{
	(void)c;
	assert(p == &world[me].page);
	return 4096 + (size_t)me;
}

void *dlb_comm_there(const struct dlb_comm *c, int rank, size_t offset)
{
	(void)c;
	assert(IS(offset, ==, 4096 + rank));
	return &world[rank].page;
}

int dlb_comm_gather(struct dlb_comm *c, const void *p, size_t bytes, void *recv, int root,
		    struct dlb_error *err)
{
	struct card *all = recv;

	(void)c;
	(void)root;
	if (no_gather)
		return dlb_fail(err, NULL, "no ranks meet");
	assert(IS(bytes, ==, sizeof mine));
	memcpy(&mine, p, bytes);
	for (int r = 0; r < n_ranks; r++) {
		all[r] = mine;
		if (r == me)
			continue;
		all[r].leader = world[r].leader;
		all[r].local_of = world[r].local_of;
		all[r].offset = 4096 + (uint64_t)r;
		all[r].secret = 1000 + (uint64_t)r;
		all[r].place.port = 100 + (uint32_t)r;
		snprintf(all[r].host, sizeof all[r].host, "host of %d", r);
	}
	return 0;
}

int dlb_comm_bcast(struct dlb_comm *c, void *p, size_t bytes, int root, struct dlb_error *err)
{
	(void)c;
	(void)p;
	(void)root;
	(void)err;
	assert(IS(bytes, ==, (size_t)n_ranks * sizeof mine));
	return 0;
}

char dlb_thread_state(pid_t pid, pid_t tid)
{
	const int r = pid - 1000;

	assert(IS(tid, ==, 2000 + r));
	return world[r].state;
}

/* ---- datagrams ---- */

struct sent {
	int to;
	bool local;
	struct dlb_beat beat;
};
static struct sent sent[QUEUED];
static struct dlb_beat waiting[QUEUED];
static int n_sent, n_waiting, socket_end[2];

int dlb_beat_open(struct dlb_beat_place *place)
{
	memset(place, 0, sizeof *place);
	if (no_socket)
		return -1;
	assert(!pipe(socket_end));
	close(socket_end[1]);
	place->port = 100 + (uint32_t)me;
	return socket_end[0];
}

static bool socket_is_open(void) { return read(socket_end[0], &(char){ 0 }, 1) == 0; }

void dlb_beat_send(int fd, const struct dlb_beat_place *to, bool local, const struct dlb_beat *b)
{
	assert(IS(fd, ==, socket_end[0]));
	sent[n_sent++ % QUEUED] = (struct sent){ (int)to->port - 100, local, *b };
}

bool dlb_beat_receive(int fd, uint64_t secret, struct dlb_beat *b)
{
	assert(IS(fd, ==, socket_end[0]) && secret == (me ? 1000 : mine.secret));
	if (!n_waiting)
		return false;
	*b = waiting[0];
	memmove(waiting, waiting + 1, (size_t)--n_waiting * sizeof *waiting);
	return true;
}

static void receives(int rank, uint32_t n, uint32_t late_ms, bool left)
{
	waiting[n_waiting++] = (struct dlb_beat){
		.rank = (uint32_t)rank, .n = n, .late_ms = late_ms, .left = left
	};
}

/* ---- turns ---- */

static sem_t go, done;
static _Atomic bool ends;
static double slept_until_s;

int dlb_thread_start(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	(void)attr;
	return no_thread ? EAGAIN : pthread_create(thread, NULL, fn, arg);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock, const struct timespec *until)
{
	(void)cond;
	pthread_mutex_unlock(lock);
	slept_until_s = (double)until->tv_sec + 1e-9 * (double)until->tv_nsec;
	if (!ends) {
		sem_post(&done);
		sem_wait(&go);
	} else {
		usleep(100);
	}
	pthread_mutex_lock(lock);
	return ETIMEDOUT;
}

struct told {
	int rank;
	char host[64];
	enum dlb_silence how;
	double silent_s;
	bool lowest;
};
static struct told told[QUEUED];
static int n_told;

static void tell(void *ctx, const struct dlb_heartbeat_told *t)
{
	assert(ctx == &n_told && IS(n_told, <, QUEUED));
	told[n_told] = (struct told){
		.rank = t->rank, .how = t->how, .silent_s = t->silent_s, .lowest = t->lowest
	};
	snprintf(told[n_told++].host, sizeof told->host, "%s", t->host);
}

/* One turn of the thread, which it begins after s seconds; other ranks may beat before. */
static void turn_after(double s)
{
	for (int r = 0; r < n_ranks; r++)
		if (world[r].beats)
			world[r].page.n++;
	n_sent = 0;
	assert(IS(slept_until_s, ==, now_s + TURN_S));
	now_s += s;
	sem_post(&go);
	sem_wait(&done);
}

static void turns(int n)
{
	while (n-- > 0)
		turn_after(TURN_S);
}

/* The next one told, and no other. */
static bool is_told(int rank, enum dlb_silence how, double silent_s, bool lowest)
{
	char host[64];

	snprintf(host, sizeof host, "host of %d", rank);
	assert(IS(n_told, >, 0) && SAME(told[0].host, host));
	assert(IS(told[0].rank, ==, rank) && IS(told[0].how, ==, how) && IS(told[0].silent_s, ==, silent_s) &&
	       IS(told[0].lowest, ==, lowest));
	memmove(told, told + 1, (size_t)--n_told * sizeof *told);
	return true;
}

/* All ranks share memory until a test says otherwise. */
static void pretend(int n, int rank)
{
	n_ranks = n;
	me = rank;
	now_s = 5000;
	n_told = n_waiting = n_sent = 0;
	no_memory = no_thread = no_socket = no_gather = false;
	ends = false;
	for (int r = 0; r < n; r++) {
		world[r] = (struct rank){ .near = true, .local = true, .beats = r != rank, .state = 'S' };
		world[r].page.pid = r == rank ? 0 : 1000 + r;
		world[r].page.tid = r == rank ? 0 : 2000 + r;
	}
}

static struct dlb_heartbeat *started(void)
{
	const struct dlb_heartbeat_listener listener = { tell, &n_told };
	struct dlb_error err = { .what = "" };
	struct dlb_heartbeat *h;

	assert(IS(dlb_heartbeat_new(&h, &comm, LIMIT_S, &listener, &err), ==, 0) && h);
	sem_wait(&done);
	return h;
}

static void end(struct dlb_heartbeat *h)
{
	n_sent = 0;
	ends = true;
	sem_post(&go);
	dlb_heartbeat_free(h);
}

/* ---- ranks that share memory ---- */

static void beats_in_memory(void)
{
	struct dlb_heartbeat *h;

	pretend(3, 1);
	h = started();
	assert(IS(world[1].page.pid, ==, getpid()) && world[1].page.tid && IS(world[1].page.left, ==, 0));
	assert(IS(mine.leader, ==, 0) && IS(mine.local_of, ==, 0) && IS(mine.offset, ==, 4097));
	assert(SAME(mine.host, "my host") && !socket_is_open());
	for (int i = 1; i <= 30; i++) {
		turns(1);
		assert(IS(world[1].page.n, ==, i) && IS(n_sent, ==, 0) && IS(n_told, ==, 0));
	}
	end(h);
	assert(IS(world[1].page.left, ==, 1) && IS(world[1].page.n, >=, 33));
}

static void silent_ranks(void)
{
	static const struct {
		char state;
		enum dlb_silence how;
	} cases[] = { { 'S', DLB_SILENCE_CUT }, { 'T', DLB_SILENCE_STOPPED }, { 'I', DLB_SILENCE_CUT } };

	for (int i = 0; i < 3; i++) {
		pretend(3, 0);
		struct dlb_heartbeat *h = started();

		turns(5);
		world[2].beats = false;
		world[2].state = cases[i].state;
		turns(SILENT - 1);
		assert(IS(n_told, ==, 0));
		turns(1);
		assert(is_told(2, cases[i].how, SILENT * TURN_S, true));
		turns(20);
		assert(IS(n_told, ==, 0));
		world[2].beats = true; /* it goes on; told once is enough */
		turns(3);
		world[2].beats = false;
		turns(20);
		assert(IS(n_told, ==, 0));
		world[2].state = cases[i].state == 'T' ? 'S' : 'T';
		turns(1);
		assert(is_told(2, cases[i].state == 'T' ? DLB_SILENCE_CUT : DLB_SILENCE_STOPPED, 21 * TURN_S,
			       true));
		end(h);
	}
}

/* A rank that waits for a core or a page is not silent; one that has not begun, or has said goodbye,
 * neither. */
static void not_silent(void)
{
	pretend(5, 0);
	world[1].page.pid = 0;
	world[1].beats = false;
	struct dlb_heartbeat *h = started();

	turns(5);
	world[2].beats = world[3].beats = world[4].beats = false;
	world[2].state = 'R';
	world[3].state = 'D';
	world[4].page.left = 1;
	world[4].state = 0;
	turns(40);
	assert(IS(n_told, ==, 0));
	world[2].state = world[3].state = 'S'; /* one turn of silence has counted */
	turns(SILENT - 2);
	assert(IS(n_told, ==, 0));
	turns(1);
	assert(is_told(2, DLB_SILENCE_CUT, SILENT * TURN_S, true) &&
	       is_told(3, DLB_SILENCE_CUT, SILENT * TURN_S, true));
	end(h);
}

static void gone(void)
{
	static const char states[] = { 0, 'Z', 'X' };

	for (int i = 0; i < 3; i++) {
		pretend(2, 1);
		struct dlb_heartbeat *h = started();

		turns(3);
		world[0].beats = false;
		world[0].state = states[i];
		turns(1);
		assert(IS(n_told, ==, 0));
		turns(1);
		assert(is_told(0, DLB_SILENCE_GONE, 2 * TURN_S, true));
		turns(SILENT - 3);
		assert(IS(n_told, ==, 0));
		turns(1);
		assert(is_told(0, DLB_SILENCE_CUT, SILENT * TURN_S, true) && IS(n_told, ==, 0));
		end(h);
	}
}

/* Time in which this rank had no core does not count as silence of others. */
static void late_turns(void)
{
	pretend(2, 0);
	struct dlb_heartbeat *h = started();

	turns(1);
	world[1].beats = false;
	for (int i = 1; i < SILENT; i++)
		turn_after(100);
	assert(IS(n_told, ==, 0));
	turn_after(TURN_S / 2);
	assert(IS(n_told, ==, 0));
	turn_after(TURN_S / 2);
	assert(is_told(1, DLB_SILENCE_CUT, SILENT * TURN_S, true));
	end(h);
}

/* The lowest of the ranks that watch is the one whose lower ones are silent, or have left. */
static void lowest(void)
{
	pretend(5, 2);
	struct dlb_heartbeat *h = started();

	turns(2);
	world[4].beats = false;
	turns(SILENT);
	assert(is_told(4, DLB_SILENCE_CUT, SILENT * TURN_S, false));
	world[0].beats = world[1].beats = world[3].beats = false;
	turns(SILENT);
	/* 1 was not yet looked at when 0 was */
	assert(is_told(0, DLB_SILENCE_CUT, SILENT * TURN_S, false));
	assert(is_told(1, DLB_SILENCE_CUT, SILENT * TURN_S, true));
	assert(is_told(3, DLB_SILENCE_CUT, SILENT * TURN_S, true));
	end(h);
	pretend(4, 2);
	world[0].page.left = 1;
	h = started();
	turns(2);
	world[3].beats = false;
	turns(SILENT);
	assert(is_told(3, DLB_SILENCE_CUT, SILENT * TURN_S, false));
	world[1].page.left = 1;
	world[3].state = 'T';
	turns(1);
	assert(is_told(3, DLB_SILENCE_STOPPED, (SILENT + 1) * TURN_S, true));
	end(h);
}

/* ---- ranks of other hosts ---- */

/* 0, 1, 2 share memory and 3, 4, 5; 3 is on this host, without common memory, where `local`. */
static void two_sets(int rank, bool local)
{
	pretend(6, rank);
	for (int r = 0; r < 6; r++) {
		world[r].near = r / 3 == rank / 3;
		world[r].local = world[r].near || local;
		world[r].leader = r / 3 * 3;
		world[r].local_of = local ? 0 : world[r].leader;
	}
}

static void beats_by_datagram(void)
{
	struct dlb_heartbeat *h;

	for (int local = 0; local < 2; local++) {
		two_sets(0, local);
		h = started();
		assert(IS(mine.leader, ==, 0) && IS(mine.local_of, ==, 0));
		for (uint32_t i = 1; i <= 5; i++) {
			receives(3, i, 0, false);
			turn_after(i == 2 ? TURN_S + 0.5 : TURN_S);
			assert(IS(n_sent, ==, 1) && IS(sent[0].to, ==, 3) && IS(sent[0].local, ==, local));
			assert(IS(sent[0].beat.n, ==, i) && IS(sent[0].beat.rank, ==, 0) &&
			       !sent[0].beat.left);
			assert(sent[0].beat.secret == mine.secret && IS(world[0].page.n, ==, i));
			/* how late it was lately, of which a tenth is forgotten in each turn */
			assert(IS(sent[0].beat.late_ms, ==,
				  i == 2 ? 500 :
				  i == 3 ? 450 :
				  i == 4 ? 405 :
				  i == 5 ? 364 :
					   0));
		}
		end(h);
		assert(IS(n_sent, >=, 3) && !socket_is_open());
		for (int i = n_sent - 3; i < n_sent; i++)
			assert(sent[i % QUEUED].beat.left && IS(sent[i % QUEUED].to, ==, 3));
	}
	/* those that are not the lowest send none */
	two_sets(4, false);
	h = started();
	assert(IS(mine.leader, ==, 3) && IS(mine.local_of, ==, 3) && !socket_is_open());
	turns(30);
	assert(IS(n_sent, ==, 0) && IS(n_told, ==, 0));
	end(h);
}

static void heard_by_datagram(void)
{
	two_sets(3, false);
	struct dlb_heartbeat *h = started();

	assert(socket_is_open());
	receives(0, 1, 0, false);
	turns(5);
	receives(0, 3, 250, false); /* late by a quarter of a second: two turns more */
	turns(SILENT);
	receives(4, 7, 0, true); /* of a rank that is watched in memory, and of ones that are not watched */
	receives(6, 7, 0, true);
	receives(1, 7, 0, true);
	receives(0, 3, 0, false); /* by another address, and late: no new sign of life */
	receives(0, 2, 0, false);
	turns(1);
	assert(IS(n_told, ==, 0));
	turns(1);
	assert(is_told(0, DLB_SILENCE_CUT, (SILENT + 2) * TURN_S, false));
	world[4].beats = false;
	turns(SILENT);
	assert(is_told(4, DLB_SILENCE_CUT, SILENT * TURN_S, true));
	receives(0, 4, 0, true); /* goodbye: nothing more is sent to it */
	turns(1);
	assert(IS(n_sent, ==, 1));
	turns(30);
	assert(IS(n_sent, ==, 0) && IS(n_told, ==, 0));
	end(h);
}

static void unheard(void)
{
	two_sets(0, true);
	struct dlb_heartbeat *h = started();

	turns(SILENT - 1);
	assert(IS(n_told, ==, 0));
	turns(1);
	assert(is_told(3, DLB_SILENCE_UNHEARD, SILENT * TURN_S, true));
	receives(3, 2000000000u, 0, false);
	turns(1);
	receives(3, 4000000000u, 0, false);
	turns(1);
	receives(3, 5, 250, false); /* the count has begun again at 0 */
	turns(SILENT + 1);
	assert(IS(n_told, ==, 0));
	turns(1);
	assert(is_told(3, DLB_SILENCE_CUT, (SILENT + 2) * TURN_S, true));
	end(h);
}

/* The lowest rank of each other set watches the lowest one of this set, too. */
static void lowest_of_sets(void)
{
	two_sets(4, false);
	struct dlb_heartbeat *h = started();

	turns(1);
	world[3].beats = false;
	turns(SILENT);
	assert(is_told(3, DLB_SILENCE_CUT, SILENT * TURN_S, false));
	world[5].beats = false;
	turns(SILENT);
	assert(is_told(5, DLB_SILENCE_CUT, SILENT * TURN_S, true));
	end(h);
}

/* ---- without means ---- */

static void without(void)
{
	const struct dlb_heartbeat_listener listener = { tell, &n_told };
	struct dlb_error err = { .what = "" };
	struct dlb_heartbeat *h = (void *)&h;

	pretend(1, 0);
	assert(IS(dlb_heartbeat_new(&h, &comm, LIMIT_S, &listener, &err), ==, 0) && !h);
	pretend(2, 0);
	h = (void *)&h;
	assert(IS(dlb_heartbeat_new(&h, &comm, 0, &listener, &err), ==, 0) && !h);
	no_gather = true;
	h = (void *)&h;
	assert(IS(dlb_heartbeat_new(&h, &comm, LIMIT_S, &listener, &err), ==, -1) && !h);
	assert(SAME(err.what, "no ranks meet") && !socket_is_open());
	two_sets(0, false);
	no_thread = true; /* it says goodbye at once */
	assert(IS(dlb_heartbeat_new(&h, &comm, LIMIT_S, &listener, &err), ==, 0) && h);
	assert(IS(world[0].page.left, ==, 1) && IS(world[0].page.n, ==, 1) && IS(n_sent, ==, 1) &&
	       sent[0].beat.left);
	dlb_heartbeat_free(h);
	assert(IS(n_sent, ==, 1) && !socket_is_open());
	dlb_heartbeat_free(NULL);
	pretend(3, 1);
	no_memory = no_socket = true; /* it watches nobody, and does not fail */
	h = started();
	assert(mine.offset == SIZE_MAX && IS(mine.leader, ==, 1) && IS(mine.local_of, ==, 0));
	turns(30);
	assert(IS(n_told, ==, 0) && IS(n_sent, ==, 0) && IS(world[1].page.n, ==, 0));
	end(h);
}

/* A limit far above a turn's longest: the turn is a quarter of a second. */
static void long_limit(void)
{
	const struct dlb_heartbeat_listener listener = { tell, &n_told };
	struct dlb_error err = { .what = "" };
	struct dlb_heartbeat *h;

	pretend(2, 0);
	assert(IS(dlb_heartbeat_new(&h, &comm, 300, &listener, &err), ==, 0) && h);
	sem_wait(&done);
	assert(IS(slept_until_s, ==, now_s + 0.25));
	end(h);
}

int main(void)
{
	alarm(60); /* a thread that takes no turn */
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	beats_in_memory();
	silent_ranks();
	not_silent();
	gone();
	late_turns();
	lowest();
	beats_by_datagram();
	heard_by_datagram();
	unheard();
	lowest_of_sets();
	without();
	long_limit();
	return 0;
}
