/* The heartbeat of the ranks. See heartbeat.h. */
#define _GNU_SOURCE			/* SYS_gettid */
#include "comm/heartbeat.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/heartbeat_udp.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"
#include "util/thread.h"

enum { LOOKS = 12 };			/* looks per limit */
#define LONGEST_TICK_S 0.25
#define LATE_MEMORY 0.9			/* lateness is forgotten by this factor per look */
#define GOODBYES 3			/* datagrams may be lost */

/* In a rank's shared memory, written by its own thread. */
struct beat_page { _Atomic uint32_t n, left; _Atomic int32_t pid, tid; };

struct heartbeat_peer {
	const struct beat_page *page;	/* near; NULL: watched by datagram, or not at all */
	bool by_udp, local, heard, left, told[DLB_SILENCE_UNHEARD + 1];
	struct dlb_beat_place place;
	char host[64];
	int leader;			/* lowest rank that shares memory with it */
	uint32_t seen;			/* number of the last beat */
	double silent_s, late_s;
};

struct dlb_heartbeat {
	struct dlb_comm *comm;
	int rank, size, fd;
	double limit_s, tick_s, late_s;
	uint64_t secret;
	struct beat_page *page;		/* mine; NULL: no shared memory */
	uint32_t n;
	struct heartbeat_peer *peer;	/* [size] */
	struct dlb_heartbeat_listener listener;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ends;
	bool threaded, stop;		/* stop: under the lock */
};

/* ---- the thread ---- */

static void beat(struct dlb_heartbeat *h, bool left)
{
	const struct dlb_beat b = { .secret = h->secret,
				    .rank = (uint32_t)h->rank,
				    .n = ++h->n,
				    .late_ms = (uint32_t)(h->late_s * 1e3),
				    .left = left };

	if (h->page) {
		if (left)
			atomic_store(&h->page->left, 1);
		atomic_store(&h->page->n, h->n);
	}
	for (int i = 0; i < h->size && h->fd >= 0; i++)
		if (h->peer[i].by_udp && !h->peer[i].left)
			dlb_beat_send(h->fd, &h->peer[i].place, h->peer[i].local, &b);
}

static void receive(struct dlb_heartbeat *h)
{
	struct dlb_beat b;

	while (h->fd >= 0 && dlb_beat_receive(h->fd, h->secret, &b)) {
		struct heartbeat_peer *p = b.rank < (uint32_t)h->size ? &h->peer[b.rank] : NULL;

		if (!p || !p->by_udp)
			continue;
		p->heard = true;
		p->left |= b.left != 0;
		if ((int32_t)(b.n - p->seen) <= 0)	/* late, or already received by another address */
			continue;
		p->seen = b.n;
		p->silent_s = 0.0;
		p->late_s = b.late_ms * 1e-3;
	}
}

/* Whether every lower rank that watches `rank` is silent or has left. The ranks that share its memory watch
 * it and, if it is the lowest of them, the lowest rank of each other set. */
static bool is_lowest(const struct dlb_heartbeat *h, int rank)
{
	const struct heartbeat_peer *p = &h->peer[rank];

	for (int i = 0; i < h->rank; i++) {
		const struct heartbeat_peer *q = &h->peer[i];
		const bool watches = q->leader == p->leader || (p->leader == rank && q->leader == i);

		if (i != rank && watches && !q->left && q->silent_s + h->tick_s < h->limit_s)
			return false;
	}
	return true;
}

static void tell(struct dlb_heartbeat *h, int rank, enum dlb_silence how)
{
	struct heartbeat_peer *p = &h->peer[rank];

	if (p->told[how])
		return;
	p->told[how] = true;
	h->listener.tell(h->listener.ctx, &(struct dlb_heartbeat_told){ rank, p->host, how, p->silent_s,
									is_lowest(h, rank) });
}

/* Looks at a rank of this host; the look lasted `s` seconds. Returns the kind of its silence, which counts
 * only after the limit. */
static enum dlb_silence look_near(struct dlb_heartbeat *h, int rank, double s)
{
	struct heartbeat_peer *p = &h->peer[rank];
	const pid_t pid = atomic_load(&p->page->pid), tid = atomic_load(&p->page->tid);
	const uint32_t n = atomic_load(&p->page->n);
	char state;

	if (!pid)			/* its thread has not begun */
		return DLB_SILENCE_CUT;
	p->left |= atomic_load(&p->page->left) != 0;
	if (n != p->seen) {
		p->seen = n;
		p->silent_s = 0.0;
		return DLB_SILENCE_CUT;
	}
	p->silent_s += s;
	if (p->left || p->silent_s < 1.5 * h->tick_s)
		return DLB_SILENCE_CUT;
	state = dlb_thread_state(pid, tid);
	if (!state || state == 'Z' || state == 'X') {
		p->left |= atomic_load(&p->page->left) != 0;	/* said just before its end */
		if (!p->left)
			tell(h, rank, DLB_SILENCE_GONE);
	} else if (state == 'R' || state == 'D') {
		p->silent_s -= s;	/* waits for a core or a page: not silent */
	}
	return state == 'T' ? DLB_SILENCE_STOPPED : DLB_SILENCE_CUT;
}

static void look(struct dlb_heartbeat *h, double s)
{
	receive(h);
	for (int i = 0; i < h->size; i++) {
		struct heartbeat_peer *p = &h->peer[i];
		enum dlb_silence how = DLB_SILENCE_CUT;

		if (p->left || (!p->page && !p->by_udp))
			continue;
		if (p->page)
			how = look_near(h, i, s);
		else
			p->silent_s += s;
		if (p->left || p->silent_s + h->tick_s < h->limit_s + p->late_s)
			continue;
		tell(h, i, p->page || p->heard ? how : DLB_SILENCE_UNHEARD);
	}
}

/* Sleeps until until_s; returns whether the thread is to go on. */
static bool sleep_until(struct dlb_heartbeat *h, double until_s)
{
	const struct timespec until = { .tv_sec = (time_t)until_s,
					.tv_nsec = (long)((until_s - floor(until_s)) * 1e9) };
	int rc = 0;
	bool stop;

	pthread_mutex_lock(&h->lock);
	while (!h->stop && !rc)
		rc = pthread_cond_timedwait(&h->ends, &h->lock, &until);
	stop = h->stop;
	pthread_mutex_unlock(&h->lock);
	return !stop;
}

static void *run(void *arg)
{
	struct dlb_heartbeat *h = arg;
	double last_s = dlb_clock_s();

	if (h->page) {
		atomic_store(&h->page->tid, (int32_t)syscall(SYS_gettid));
		atomic_store(&h->page->pid, (int32_t)getpid());
	}
	while (sleep_until(h, last_s + h->tick_s)) {
		const double s = dlb_clock_s() - last_s;

		last_s += s;
		h->late_s = fmax(s - h->tick_s, LATE_MEMORY * h->late_s);
		beat(h, false);
		look(h, fmin(s, h->tick_s));
	}
	return NULL;
}

/* ---- the start ---- */

/* Each rank's contribution, gathered on all. */
struct heartbeat_card {
	int32_t leader, local_of;	/* the lowest rank that shares memory with it; the lowest of its host */
	uint64_t offset, secret;	/* of its page, SIZE_MAX: none; rank 0's secret counts */
	struct dlb_beat_place place;
	char host[64];
};

static void fill_card(struct dlb_heartbeat *h, struct heartbeat_card *card)
{
	card->leader = card->local_of = h->rank;
	for (int i = h->size - 1; i >= 0; i--) {
		if (h->page && dlb_comm_near(h->comm, i) && i < h->rank)
			card->leader = i;
		if (dlb_comm_is_local(h->comm, i) && i < h->rank)
			card->local_of = i;
	}
	card->offset = h->page ? dlb_comm_offset(h->comm, h->page) : SIZE_MAX;
	if (getrandom(&card->secret, sizeof card->secret, 0) != (ssize_t)sizeof card->secret)
		card->secret = (uint64_t)getpid();
	h->fd = dlb_beat_open(&card->place);
	snprintf(card->host, sizeof card->host, "%s", dlb_comm_host(h->comm));
}

static void meet(struct dlb_heartbeat *h, const struct heartbeat_card *card)
{
	const struct heartbeat_card *mine = &card[h->rank];
	bool any = false;

	h->secret = card[0].secret;
	for (int i = 0; i < h->size; i++) {
		struct heartbeat_peer *p = &h->peer[i];

		memcpy(p->host, card[i].host, sizeof p->host);
		p->place = card[i].place;
		p->leader = card[i].leader;
		p->local = card[i].local_of == mine->local_of;
		if (i == h->rank)
			continue;
		if (h->page && dlb_comm_near(h->comm, i) && card[i].offset != SIZE_MAX)
			p->page = dlb_comm_there(h->comm, i, card[i].offset);
		else
			p->by_udp = mine->leader == h->rank && card[i].leader == i && h->fd >= 0;
		any |= p->by_udp;
	}
	if (!any && h->fd >= 0) {
		close(h->fd);
		h->fd = -1;
	}
}

/* Starts the thread with a small stack, since `ulimit -v` may leave little room. */
static bool start(struct dlb_heartbeat *h)
{
	pthread_attr_t small;
	pthread_condattr_t monotonic;
	bool started;

	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&h->ends, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, (size_t)256 << 10);
	started = !dlb_thread_start(&h->thread, &small, run, h);
	pthread_attr_destroy(&small);
	return started;
}

int dlb_heartbeat_new(struct dlb_heartbeat **out, struct dlb_comm *c, double limit_s,
		      const struct dlb_heartbeat_listener *listener, struct dlb_error *err)
{
	const int n = dlb_comm_size(c);
	struct heartbeat_card mine = { .leader = 0 }, *card;
	struct dlb_heartbeat *h;
	int rc;

	*out = NULL;
	if (limit_s <= 0 || n < 2)
		return 0;
	h = dlb_xcalloc(1, sizeof *h);
	h->comm = c;
	h->rank = dlb_comm_rank(c);
	h->size = n;
	h->limit_s = limit_s;
	h->tick_s = fmin(LONGEST_TICK_S, limit_s / LOOKS);
	h->listener = *listener;
	h->peer = dlb_xcalloc((size_t)n, sizeof *h->peer);
	h->page = dlb_comm_alloc(c, sizeof *h->page);
	card = dlb_xcalloc((size_t)n, sizeof *card);
	fill_card(h, &mine);
	rc = dlb_comm_gather(c, &mine, sizeof mine, card, 0, err) ||
			     dlb_comm_bcast(c, card, (size_t)n * sizeof *card, 0, err) ?
		     -1 :
		     0;
	if (!rc) {
		meet(h, card);
		h->threaded = start(h);
		if (!h->threaded)		/* it sends no beats, so nobody may wait for them */
			beat(h, true);
		*out = h;
	} else {
		if (h->fd >= 0)
			close(h->fd);
		free(h->peer);
		free(h);
	}
	free(card);
	return rc;
}

void dlb_heartbeat_free(struct dlb_heartbeat *h)
{
	if (!h)
		return;
	if (h->threaded) {
		if (h->page)		/* before the thread ends, which others can see */
			atomic_store(&h->page->left, 1);
		pthread_mutex_lock(&h->lock);
		h->stop = true;
		pthread_cond_signal(&h->ends);
		pthread_mutex_unlock(&h->lock);
		pthread_join(h->thread, NULL);
		for (int i = 0; i < GOODBYES; i++)
			beat(h, true);
	}
	if (h->fd >= 0)
		close(h->fd);
	pthread_cond_destroy(&h->ends);
	pthread_mutex_destroy(&h->lock);
	free(h->peer);		/* the page stays, for ranks that have not read it yet */
	free(h);
}
