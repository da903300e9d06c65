/* Messages by MPI; the only file that includes it.
 *
 * Every operation is the non-blocking one plus our own wait, which polls MPI_Test and a clock: Open MPI does
 * not notice a link that goes down during a transfer, so the time-out must be ours. A rank that has polled
 * for a while yields its core (sched_yield). On a host with more ranks than cores it soon sleeps instead,
 * since a spinning rank would take time from the rank it waits for. It sleeps until its wakeup is sent
 * (shared.h), or, if the message is MPI's, briefly between polls.
 *
 * Messages above INT_MAX bytes use a derived type (blocks of 2^30 bytes and a rest): MPI counts are ints.
 * MPI_ERRORS_RETURN everywhere; the first failure is kept in c->fault and breaks the comm. */
#define _GNU_SOURCE
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "comm/comm.h"
#include "comm/shared.h"
#include "util/clock.h"
#include "util/cores.h"
#include "util/deadline.h"
#include "util/mem.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "an MPI_Request must fit struct dlb_request");

#define BLOCK_BYTES ((size_t)1 << 30)
#define SUSPENDED_S 1.0 /* a longer gap between two clock readings means that this process was stopped */
#define LONGEST_SLEEP_S 1e-3		/* between polls of MPI and the clock */

enum subject { PROGRAM, FEED, SUM, N_SUBJECTS };
static const int first_tag[] = {
	[PROGRAM] = DLB_TAG_PROGRAM, [FEED] = DLB_TAG_FEED, [SUM] = DLB_TAG_WEIGHTS
};

struct dlb_comm {
	bool mpi, broken;
	bool crowded;
	int rank, size, local_size;
	double timeout_s;
	MPI_Comm world, local;		/* local: ranks of this host */
	MPI_Comm subject[N_SUBJECTS];	/* [PROGRAM]: the world */
	int last_tag;			/* greatest tag that MPI allows */
	int *local_rank;		/* [local_size] world ranks */
	int n_active;			/* MPI requests under way */
	struct dlb_region *region;	/* NULL: no shared memory */
	char **base;			/* [size] addresses here of near ranks' regions; NULL: not near */
	struct dlb_channel *waiting;	/* channels with messages whose places are not posted */
	struct dlb_error fault;		/* reason why the comm is broken */
	_Atomic int lost;		/* dlb_comm_lose: 0 never called, 1 it writes the line, 2 done */
	char lost_line[400];
	char host[64];
};

static MPI_Request *request(struct dlb_request *r)
{
	return (MPI_Request *)(void *)&r->mpi;
}

/* Breaks the comm; keeps the first fault. Returns -1. */
static int broken(struct dlb_comm *c, int rc, const char *what, int peer)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int n = 0;

	if (!c->broken) {
		MPI_Error_string(rc, text, &n);
		if (peer >= 0)
			dlb_fail(&c->fault, NULL, "lost rank %d: %s: %.300s", peer, what, text);
		else
			dlb_fail(&c->fault, NULL, "%s: %.300s", what, text);
		c->broken = true;
	}
	return -1;
}

void dlb_comm_break(struct dlb_comm *c, const char *fmt, ...)
{
	char text[sizeof c->fault.what];
	va_list args;

	if (c->broken)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	dlb_fail(&c->fault, NULL, "%s", text);
	c->broken = true;
}

void dlb_comm_lose(struct dlb_comm *c, const char *line)
{
	int never = 0;

	if (!atomic_compare_exchange_strong(&c->lost, &never, 1))
		return;
	snprintf(c->lost_line, sizeof c->lost_line, "%s", line);
	atomic_store(&c->lost, 2);
}

static int fault(const struct dlb_comm *c, struct dlb_error *err)
{
	if (err)
		*err = c->fault;
	return -1;
}

/* Makes a type of `bytes` bytes, to be sent once; the caller frees *made. Returns MPI's code. */
static int big_type(size_t bytes, MPI_Datatype *made)
{
	int length[2] = { 0, 0 };
	MPI_Aint where[2] = { 0, 0 };
	MPI_Datatype block, type[2] = { MPI_BYTE, MPI_BYTE };
	int rc;

	rc = MPI_Type_contiguous((int)BLOCK_BYTES, MPI_BYTE, &block);
	if (rc != MPI_SUCCESS)
		return rc;
	type[0] = block;
	length[0] = (int)(bytes / BLOCK_BYTES);
	length[1] = (int)(bytes % BLOCK_BYTES);
	where[1] = (MPI_Aint)(bytes - bytes % BLOCK_BYTES);
	rc = MPI_Type_create_struct(2, length, where, type, made);
	if (rc == MPI_SUCCESS)
		rc = MPI_Type_commit(made);
	MPI_Type_free(&block);
	return rc;
}

static int index_on_host(const struct dlb_comm *c)
{
	int i = 0;

	while (c->local_rank[i] != c->rank)
		i++;
	return i;
}

/* Finds the ranks of this host and maps their shared memory. A pair of ranks uses it only if each has mapped
 * the other's region. */
static int meet_neighbours(struct dlb_comm *c, struct dlb_error *err)
{
	struct dlb_region_key mine, *key;
	int n, rc = -1;
	bool *sees, *all;

	if (MPI_Comm_split_type(c->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &c->local) != MPI_SUCCESS)
		return dlb_fail(err, NULL, "MPI does not report which ranks share a host");
	MPI_Comm_set_errhandler(c->local, MPI_ERRORS_RETURN);
	MPI_Comm_size(c->local, &n);
	c->local_size = n;
	c->local_rank = dlb_xcalloc((size_t)n, sizeof *c->local_rank);
	key = dlb_xcalloc((size_t)n, sizeof *key);
	sees = dlb_xcalloc((size_t)n, sizeof *sees);
	all = dlb_xcalloc((size_t)n * (size_t)n, sizeof *all);
	c->region = n > 1 ? dlb_region_new(n, &mine) : NULL;
	if (!c->region)
		mine.fd = -1;
	if (dlb_comm_gather_local(c, &c->rank, sizeof c->rank, c->local_rank, err) ||
	    dlb_comm_gather_local(c, &mine, sizeof mine, key, err))
		goto out;
	for (int i = 0; c->region && i < n; i++) {
		c->base[c->local_rank[i]] = c->local_rank[i] == c->rank ?
						    dlb_region_base(c->region) :
						    dlb_region_enter(c->region, &key[i]);
		sees[i] = c->base[c->local_rank[i]] != NULL;
	}
	if (dlb_comm_gather_local(c, sees, (size_t)n * sizeof *sees, all, err))
		goto out;
	for (int i = 0; c->region && i < n; i++)
		if (c->base[c->local_rank[i]] && !all[i * n + index_on_host(c)]) {
			dlb_region_leave(c->region, c->base[c->local_rank[i]]);
			c->base[c->local_rank[i]] = NULL;
		}
	rc = 0;
out:
	free(key);
	free(sees);
	free(all);
	return rc;
}

static int open_subjects(struct dlb_comm *c, struct dlb_error *err)
{
	int *most = NULL, found = 0;

	MPI_Comm_get_attr(c->world, MPI_TAG_UB, &most, &found);
	c->last_tag = found ? *most : 32767;
	c->subject[PROGRAM] = c->world;
	for (int s = PROGRAM + 1; s < N_SUBJECTS; s++) {
		if (MPI_Comm_dup(c->world, &c->subject[s]) != MPI_SUCCESS)
			return dlb_fail(err, NULL, "MPI cannot duplicate the communicator of all ranks");
		MPI_Comm_set_errhandler(c->subject[s], MPI_ERRORS_RETURN);
	}
	return 0;
}

/* Finds whether this host has more ranks than cores that they may run on, counting cores of several ranks
 * once. */
static int find_cores(struct dlb_comm *c, struct dlb_error *err)
{
	const struct dlb_core_set own = dlb_core_set_own();
	struct dlb_core_set *each = dlb_xcalloc((size_t)c->local_size, sizeof *each), all = own;
	int rc = dlb_comm_gather_local(c, &own, sizeof own, each, err), n;

	for (int i = 0; !rc && i < c->local_size; i++)
		dlb_core_set_add(&all, &each[i]);
	n = dlb_core_set_count(&all);
	c->crowded = n > 0 && c->local_size > n;
	free(each);
	return rc;
}

/* Settings of Open MPI over TCP, unless the user has set them. Long messages go in fragments instead of one
 * "put", which takes a tenth to a third longer when both sides send at once. Messages up to 128 KB, twice the
 * default, need no handshake: sums of 1 MB and more get a tenth to a fifth faster (tests/bench/allreduce with
 * simulated hosts). */
static void prefer_fragments(void)
{
	char eager[24];

	if (!dlb_comm_is_open_mpi())
		return;
	snprintf(eager, sizeof eager, "%zu", dlb_comm_eager_bytes());
	setenv("OMPI_MCA_btl_tcp_flags", "1", 0);
	setenv("OMPI_MCA_btl_tcp_eager_limit", eager, 0);
}

/* Without an adapter of a fabric (InfiniBand and Omni-Path register in the first folder, Slingshot in the
 * second) Open MPI would choose ob1 after .2 s of looking for adapters. Chooses ob1 at once, unless the user
 * has chosen. */
static void skip_absent_fabrics(void)
{
	if (dlb_comm_is_open_mpi() && access("/sys/class/infiniband", F_OK) && access("/sys/class/cxi", F_OK))
		setenv("OMPI_MCA_pml", "ob1", 0);
}

size_t dlb_comm_eager_bytes(void)
{
	return (size_t)(dlb_comm_is_open_mpi() ? 128 : 64) << 10;
}

/* Asks for exact sleeps: Linux ends them up to 50 us late to save power, longer than our sleep between two
 * polls. */
static void sleep_sharply(void)
{
#ifdef __linux__
	prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
#endif
}

/* Address space that MPI needs to start: Open MPI 4.1 takes 215 MB. With slightly less, some of its
 * components do without and others hang in the first collective call, so we do not start it then. */
enum { START_MB = 224 };

static bool can_start(void)
{
	const size_t bytes = (size_t)START_MB << 20;
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p != MAP_FAILED && munmap(p, bytes) == 0;
}

int dlb_comm_new(struct dlb_comm **out, double timeout_s, struct dlb_error *err)
{
	int provided = 0, up = 0;

	MPI_Initialized(&up);
	if (!up && !can_start()) {
		dlb_fail(err, NULL, "not enough memory to start MPI, which needs %d MB of address space",
			 START_MB);
		return dlb_hint(err, "raise the limit (ulimit -v)");
	}
	struct dlb_comm *c = dlb_xcalloc(1, sizeof *c);

	c->mpi = true;
	c->timeout_s = timeout_s;
	c->world = MPI_COMM_WORLD;
	if (!up) {
		prefer_fragments();
		skip_absent_fabrics();
	}
	dlb_deadline_begin(timeout_s, "the start of MPI, in which all ranks meet, is");
	if (!up && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
		free(c);
		return dlb_fail(err, NULL, "MPI does not start");
	}
	MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN);
	MPI_Comm_rank(c->world, &c->rank);
	MPI_Comm_size(c->world, &c->size);
	c->base = dlb_xcalloc((size_t)c->size, sizeof *c->base);
	if (gethostname(c->host, sizeof c->host - 1))
		strcpy(c->host, "localhost");
	if (open_subjects(c, err) || meet_neighbours(c, err) || find_cores(c, err))
		return -1;
	dlb_deadline_end();
	if (c->crowded)
		sleep_sharply();
	*out = c;
	return 0;
}

int dlb_comm_new_alone(struct dlb_comm **out, struct dlb_error *err)
{
	struct dlb_comm *c = dlb_xcalloc(1, sizeof *c);

	(void)err;
	c->size = c->local_size = 1;
	c->base = dlb_xcalloc(1, sizeof *c->base);
	c->local_rank = dlb_xcalloc(1, sizeof *c->local_rank);
	if (gethostname(c->host, sizeof c->host - 1))
		strcpy(c->host, "localhost");
	*out = c;
	return 0;
}

void dlb_comm_free(struct dlb_comm *c)
{
	int done = 0;

	if (!c)
		return;
	for (int i = 0; c->base && i < c->size; i++)
		if (i != c->rank)
			dlb_region_leave(c->region, c->base[i]);
	dlb_region_free(c->region);
	free(c->base);
	free(c->local_rank);
	if (c->mpi) {
		dlb_deadline_begin(c->timeout_s, "the end of MPI, which all ranks leave together, is");
		MPI_Finalized(&done);
		if (!done && !c->broken)
			MPI_Comm_free(&c->local);
		for (int s = PROGRAM + 1; !done && !c->broken && s < N_SUBJECTS; s++)
			MPI_Comm_free(&c->subject[s]);
		if (!done)
			MPI_Finalize();
		dlb_deadline_end();
	}
	free(c);
}

bool dlb_comm_is_open_mpi(void)
{
#ifdef OPEN_MPI
	return true;
#else
	return false;
#endif
}

int dlb_comm_rank(const struct dlb_comm *c) { return c->rank; }
int dlb_comm_size(const struct dlb_comm *c) { return c->size; }
int dlb_comm_local_size(const struct dlb_comm *c) { return c->local_size; }
bool dlb_comm_crowded(const struct dlb_comm *c) { return c->crowded; }
bool dlb_comm_broken(const struct dlb_comm *c) { return c->broken; }
double dlb_comm_timeout_s(const struct dlb_comm *c) { return c->timeout_s; }

void dlb_comm_set_timeout(struct dlb_comm *c, double timeout_s) { c->timeout_s = timeout_s; }
const char *dlb_comm_host(const struct dlb_comm *c) { return c->host; }

void dlb_comm_abort(struct dlb_comm *c, int status)
{
	fflush(NULL);
	if (c && c->mpi)
		MPI_Abort(c->world, status);
	_exit(status);
}

/* Sends the waiting messages whose places have been posted. */
static void push_waiting(struct dlb_comm *c)
{
	struct dlb_channel **at = &c->waiting;

	while (*at) {
		struct dlb_channel *ch = *at;

		if (dlb_channel_push(ch))
			*at = ch->next;
		else
			at = &ch->next;
	}
}

/* Lets MPI make progress, as any call of it does. */
static void nudge_mpi(struct dlb_comm *c)
{
	int flag;

	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->world, &flag, MPI_STATUS_IGNORE);
}

void dlb_comm_progress(struct dlb_comm *c)
{
	push_waiting(c);
	if (c->n_active)
		nudge_mpi(c);
}

static void send_by_channel(struct dlb_comm *c, struct dlb_channel *ch, struct dlb_request r,
			    struct dlb_request *out)
{
	bool waits = ch->first != NULL;

	*out = r;
	out->active = true;
	out->channel = ch;
	out->nth = ++ch->n;
	dlb_channel_queue(ch, out);
	if (!waits && !dlb_channel_push(ch)) {
		ch->next = c->waiting;
		c->waiting = ch;
	}
}

void dlb_channel_send(struct dlb_comm *c, struct dlb_channel *ch, const struct dlb_message *m,
		      struct dlb_request *r)
{
	send_by_channel(c, ch,
			(struct dlb_request){
				.bytes = m->bytes, .peer = m->peer, .from = m->p, .to = m->there },
			r);
}

void dlb_channel_send_zero_copy(struct dlb_comm *c, struct dlb_channel *ch, const struct dlb_message *m,
				bool in_place, struct dlb_request *r)
{
	send_by_channel(c, ch,
			(struct dlb_request){ .bytes = m->bytes,
					      .peer = m->peer,
					      .from = m->p,
					      .to = m->there,
					      .in_place = in_place,
					      .returned = true },
			r);
}

int dlb_comm_idle(struct dlb_comm *c, struct dlb_idle *i, int peer, const char *what, struct dlb_error *err)
{
	unsigned n = ++i->n;
	double now_s;

	if (c->broken)
		return fault(c, err);
	push_waiting(c);
	if (c->n_active && n % 8 == 0)
		nudge_mpi(c);
	if (c->crowded) {
		if (n == 1)
			sched_yield();
		else if (i->sends_wakeup && c->region && !c->n_active)
			dlb_wakeup_wait(dlb_wakeup_of(c->base[c->rank]), i->wakeups_seen, LONGEST_SLEEP_S);
		else
			dlb_sleep_s(20e-6);
		i->wakeups_seen = i->sends_wakeup && c->region ?
					  dlb_wakeup_count(dlb_wakeup_of(c->base[c->rank])) :
					  0;
	} else if (n > 256) {
		sched_yield();		/* cheap if no other process wants the core */
	}
	if (n % 16)
		return 0;
	if (atomic_load(&c->lost) == 2) {
		dlb_comm_break(c, "%s", c->lost_line);
		return fault(c, err);
	}
	now_s = dlb_clock_s();
	if (i->since_s == 0.0)
		i->since_s = now_s;
	/* this process was stopped: that time says nothing about other ranks */
	else if (now_s - i->last_s > SUSPENDED_S)
		i->since_s += now_s - i->last_s;
	i->last_s = now_s;
	if (c->timeout_s <= 0 || now_s - i->since_s <= c->timeout_s)
		return 0;
	if (peer >= 0)
		dlb_fail(&c->fault, NULL, "lost rank %d: nothing heard for %g s", peer, c->timeout_s);
	else
		dlb_fail(&c->fault, NULL, "lost a rank: %s not complete after %g s", what, c->timeout_s);
	dlb_hint(&c->fault, "a longer --timeout helps when a node is only slow");
	c->broken = true;
	return fault(c, err);
}

/* Checks a finished request: MPI's code, and the size of a received message. Breaks the comm and returns -1
 * on error. */
static int arrived(struct dlb_comm *c, const struct dlb_request *r, int rc, MPI_Status *status)
{
	int class = MPI_SUCCESS;
	MPI_Count n = 0;

	if (rc != MPI_SUCCESS) {
		MPI_Error_class(rc, &class);
		if (class != MPI_ERR_TRUNCATE)
			return broken(c, rc, "message", r->peer);
		dlb_comm_break(c, "rank %d sent more than the %zu bytes that rank %d expects", r->peer,
			       r->bytes, c->rank);
		return -1;
	}
	if (!r->receives ||
	    (MPI_Get_elements_x(status, MPI_BYTE, &n) == MPI_SUCCESS && (size_t)n == r->bytes))
		return 0;
	dlb_comm_break(c, "rank %d sent %lld bytes where rank %d expects %zu", r->peer, (long long)n, c->rank,
		       r->bytes);
	return -1;
}

/* Waits for *q, called `what` in errors; `peer` -1: a collective. */
static int wait_for(struct dlb_comm *c, MPI_Request *q, int peer, const char *what, struct dlb_error *err)
{
	struct dlb_idle idle = { 0 };

	if (c->broken)
		return fault(c, err);
	for (;;) {
		int done = 0, rc = MPI_Test(q, &done, MPI_STATUS_IGNORE);

		if (rc != MPI_SUCCESS) {
			broken(c, rc, what, peer);
			return fault(c, err);
		}
		if (done)
			return 0;
		if (dlb_comm_idle(c, &idle, peer, what, err))
			return -1;
	}
}

/* Waits for a collective that MPI started with code rc. */
static int finish(struct dlb_comm *c, int rc, MPI_Request *q, const char *what, struct dlb_error *err)
{
	if (rc == MPI_SUCCESS)
		return wait_for(c, q, -1, what, err);
	broken(c, rc, what, -1);
	return fault(c, err);
}

/* The communicator of *tag; *tag becomes its number within the subject. */
static MPI_Comm subject_of(struct dlb_comm *c, int *tag)
{
	int s = N_SUBJECTS - 1;

	while (*tag < first_tag[s])
		s--;
	*tag -= first_tag[s];
	if (*tag > c->last_tag) {
		dlb_comm_break(
			c,
			"%d message tags needed, but MPI has only %d: use fewer micro-batches or larger ops",
			*tag + 1, c->last_tag + 1);
		*tag = 0;
	}
	return c->subject[s];
}

static void start(struct dlb_comm *c, void *p, size_t bytes, int peer, int tag, struct dlb_request *r,
		  bool send)
{
	MPI_Comm subject = subject_of(c, &tag);
	MPI_Datatype type = MPI_BYTE;
	int count = 1, rc = MPI_SUCCESS;

	*r = (struct dlb_request){ .bytes = bytes, .peer = peer, .active = true, .receives = !send };
	if (bytes <= INT_MAX)
		count = (int)bytes;
	else
		rc = big_type(bytes, &type);
	if (rc == MPI_SUCCESS)
		rc = send ? MPI_Isend(p, count, type, peer, tag, subject, request(r))
			  : MPI_Irecv(p, count, type, peer, tag, subject, request(r));
	if (type != MPI_BYTE)
		MPI_Type_free(&type);
	if (rc != MPI_SUCCESS) {
		*request(r) = MPI_REQUEST_NULL;
		broken(c, rc, send ? "send" : "receive", peer);
	}
	c->n_active++;
}

void dlb_comm_isend(struct dlb_comm *c, const void *p, size_t bytes, int peer, int tag, struct dlb_request *r)
{
	/* MPI_Isend takes const; the cast only serves start(), which both directions share. */
	start(c, (void *)(uintptr_t)p, bytes, peer, tag, r, true);
}

void dlb_comm_irecv(struct dlb_comm *c, void *p, size_t bytes, int peer, int tag, struct dlb_request *r)
{
	start(c, p, bytes, peer, tag, r, false);
}

bool dlb_comm_test(struct dlb_comm *c, struct dlb_request *r)
{
	MPI_Status status;
	int done = 0, rc;

	if (!r->active)
		return true;
	if (r->channel) {
		if (!r->receives && c->waiting)
			push_waiting(c);
		return dlb_channel_test(r);
	}
	if (c->broken)
		return false;
	rc = MPI_Test(request(r), &done, &status);
	if ((done || rc != MPI_SUCCESS) && arrived(c, r, rc, &status) == 0) {
		r->active = false;
		c->n_active--;
	}
	return !r->active;
}

int dlb_comm_wait(struct dlb_comm *c, struct dlb_request *r, struct dlb_error *err)
{
	struct dlb_idle idle = { .sends_wakeup = r->channel && r->channel->wakeup };

	while (!dlb_comm_test(c, r))
		if (dlb_comm_idle(c, &idle, r->peer, "message", err))
			return -1;
	return c->broken ? fault(c, err) : 0;
}

int dlb_comm_bcast(struct dlb_comm *c, void *p, size_t bytes, int root, struct dlb_error *err)
{
	MPI_Request q;

	if (!c->mpi || c->size == 1)
		return 0;
	for (size_t at = 0; at < bytes || at == 0; at += BLOCK_BYTES) {
		size_t n = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
		int rc;

		if (c->broken)
			return fault(c, err);
		rc = MPI_Ibcast((char *)p + at, (int)n, MPI_BYTE, root, c->world, &q);
		if (rc != MPI_SUCCESS) {
			broken(c, rc, "broadcast", -1);
			return fault(c, err);
		}
		if (wait_for(c, &q, c->rank == root ? -1 : root, "broadcast", err))
			return -1;
	}
	return 0;
}

int dlb_comm_barrier(struct dlb_comm *c, struct dlb_error *err)
{
	MPI_Request q;
	int rc;

	if (!c->mpi || c->size == 1)
		return 0;
	if (c->broken)
		return fault(c, err);
	rc = MPI_Ibarrier(c->world, &q);
	return finish(c, rc, &q, "barrier", err);
}

int dlb_comm_allreduce_f64(struct dlb_comm *c, double *x, int n, enum dlb_comm_op op, struct dlb_error *err)
{
	const MPI_Op ops[] = { [DLB_COMM_SUM] = MPI_SUM, [DLB_COMM_MAX] = MPI_MAX, [DLB_COMM_MIN] = MPI_MIN };
	MPI_Request q;
	int rc;

	if (!c->mpi || c->size == 1)
		return 0;
	if (c->broken)
		return fault(c, err);
	rc = MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, ops[op], c->world, &q);
	return finish(c, rc, &q, "sum over ranks", err);
}

struct dlb_subset { MPI_Comm mpi; };

int dlb_subset_new(struct dlb_subset **out, struct dlb_comm *c, const int *rank, int n, int tag,
		   struct dlb_error *err)
{
	MPI_Group all, some;
	MPI_Comm made = MPI_COMM_NULL;
	int *ranks = dlb_xcalloc((size_t)n + 1, sizeof *ranks), rc;
	MPI_Comm of = subject_of(c, &tag);

	for (int i = 0; i < n; i++)
		ranks[i] = rank ? rank[i] : i;
	MPI_Comm_group(of, &all);
	MPI_Group_incl(all, n, ranks, &some);
	dlb_deadline_begin(c->timeout_s, "a communicator of some ranks is");
	rc = MPI_Comm_create_group(of, some, tag, &made);
	dlb_deadline_end();
	MPI_Group_free(&some);
	MPI_Group_free(&all);
	free(ranks);
	if (rc != MPI_SUCCESS || made == MPI_COMM_NULL) {
		broken(c, rc, "communicator", -1);
		return fault(c, err);
	}
	MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
	*out = dlb_xcalloc(1, sizeof **out);
	(*out)->mpi = made;
	return 0;
}

void dlb_subset_free(struct dlb_subset *s, struct dlb_comm *c)
{
	if (!s)
		return;
	if (!c->broken)			/* freeing is collective, and other ranks may be gone */
		MPI_Comm_free(&s->mpi);
	free(s);
}

void dlb_comm_isum(struct dlb_comm *c, struct dlb_subset *s, void *x, int n, bool f64, struct dlb_request *r)
{
	int rc;

	*r = (struct dlb_request){ .peer = -1, .active = true };
	c->n_active++;
	rc = MPI_Iallreduce(MPI_IN_PLACE, x, n, f64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, s->mpi, request(r));
	if (rc == MPI_SUCCESS)
		return;
	*request(r) = MPI_REQUEST_NULL;
	broken(c, rc, "sum over ranks", -1);
}

int dlb_comm_gather(struct dlb_comm *c, const void *p, size_t bytes, void *recv, int root,
		    struct dlb_error *err)
{
	MPI_Request q;
	int rc;

	if (!c->mpi || c->size == 1) {
		if (bytes)
			memcpy(recv, p, bytes);
		return 0;
	}
	if (c->broken)
		return fault(c, err);
	if (bytes > INT_MAX)
		dlb_bug("gather of %zu bytes", bytes);
	rc = MPI_Igather(p, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, root, c->world, &q);
	return finish(c, rc, &q, "gather", err);
}

int dlb_comm_local(const struct dlb_comm *c, int i) { return c->local_rank[i]; }

bool dlb_comm_is_local(const struct dlb_comm *c, int rank)
{
	for (int i = 0; i < c->local_size; i++)
		if (c->local_rank[i] == rank)
			return true;
	return false;
}

int dlb_comm_gather_local(struct dlb_comm *c, const void *p, size_t bytes, void *recv, struct dlb_error *err)
{
	MPI_Request q;
	int rc;

	if (!c->mpi || c->local_size == 1) {
		if (bytes)
			memcpy(recv, p, bytes);
		return 0;
	}
	if (c->broken)
		return fault(c, err);
	rc = MPI_Iallgather(p, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, c->local, &q);
	return finish(c, rc, &q, "gather on this host", err);
}

void *dlb_comm_alloc(struct dlb_comm *c, size_t bytes)
{
	return c->region ? dlb_region_alloc(c->region, bytes) : NULL;
}

void dlb_comm_release(struct dlb_comm *c, void *p)
{
	if (c->region && p)
		dlb_region_release(c->region, p);
}

void dlb_comm_private(struct dlb_comm *c, void *p, size_t bytes)
{
	dlb_region_private(c->region, p, bytes);
}

bool dlb_comm_near(const struct dlb_comm *c, int rank)
{
	return c->base[rank] != NULL;
}

size_t dlb_comm_offset(const struct dlb_comm *c, const void *p)
{
	size_t at = c->region ? (size_t)((uintptr_t)p - (uintptr_t)dlb_region_base(c->region)) : SIZE_MAX;

	return c->region && at < dlb_region_bytes(c->region) ? at : SIZE_MAX;
}

bool dlb_comm_shares(const struct dlb_comm *c, const void *p, size_t bytes)
{
	return dlb_comm_offset(c, p) != SIZE_MAX && dlb_region_shares(c->region, p, bytes);
}

struct dlb_wakeup *dlb_comm_wakeup(const struct dlb_comm *c, int rank)
{
	return c->crowded && c->base[rank] ? dlb_wakeup_of(c->base[rank]) : NULL;
}

void *dlb_comm_there(const struct dlb_comm *c, int rank, size_t offset)
{
	return c->base[rank] + offset;
}

int dlb_comm_agree(struct dlb_comm *c, int rc, struct dlb_error *err, int *who)
{
	double lowest = rc ? c->rank : c->size;
	struct dlb_error none = { .status = 2 };

	if (who)
		*who = c->rank;
	if (c->broken)
		return rc ? -1 : fault(c, err);
	if (dlb_comm_allreduce_f64(c, &lowest, 1, DLB_COMM_MIN, err))
		return -1;
	if ((int)lowest == c->size)
		return 0;
	if (who)
		*who = (int)lowest;
	if (dlb_comm_bcast(c, err ? err : &none, sizeof none, (int)lowest, NULL))
		return fault(c, err);
	return -1;
}
