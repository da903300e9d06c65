/* lib/comm under mpiexec with 1 to 4 ranks; the program starts itself. Large and small messages, out of order
 * and through shared memory, collectives, agreement on errors, and a silent peer. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "util/clock.h"
#include "util/cores.h"
#include "check.h"

static void messages(struct dlb_comm *c, int rank, int size)
{
	enum { N = 300000 };
	int *out = malloc(N * sizeof *out), *in = malloc(4 * N * sizeof *in), small[4] = { 0 };
	struct dlb_request send[8], recv[8];
	struct dlb_error err;

	memset(send, 0, sizeof send);
	memset(recv, 0, sizeof recv);
	for (int i = 0; i < N; i++)
		out[i] = rank * N + i;
	for (int p = 0; p < size; p++) {
		if (p == rank)
			continue;
		dlb_comm_irecv(c, in + p * N, N * sizeof *in, p, 5, &recv[p]);
		dlb_comm_irecv(c, &small[p], sizeof *small, p, 6, &recv[4 + p]);
	}
	for (int p = 0; p < size; p++) {	/* sent in the other order than received */
		if (p == rank)
			continue;
		dlb_comm_isend(c, &rank, sizeof rank, p, 6, &send[4 + p]);
		dlb_comm_isend(c, out, N * sizeof *out, p, 5, &send[p]);
	}
	for (int i = 0; i < 8; i++)
		assert(IS(dlb_comm_wait(c, &recv[i], &err), ==, 0) && !recv[i].active);
	for (int p = 0; p < size; p++)
		assert(p == rank ||
		       (small[p] == p && in[p * N] == p * N && in[p * N + N - 1] == p * N + N - 1));
	for (int i = 0; i < 8; i++) {
		assert(IS(dlb_comm_wait(c, &send[i], &err), ==, 0));
		assert(dlb_comm_test(c, &send[i]));
	}
	free(out);
	free(in);
}

static void collectives(struct dlb_comm *c, int rank, int size)
{
	double x[2] = { rank + 1.0, -rank }, y[8];
	struct dlb_error err = { .what = "" };
	char text[16] = "";
	int who = -1;

	assert(IS(dlb_comm_allreduce_f64(c, x, 2, DLB_COMM_SUM, &err), ==, 0) &&
	       IS(x[0], ==, size * (size + 1) / 2.0));
	x[0] = rank;
	assert(IS(dlb_comm_allreduce_f64(c, x, 1, DLB_COMM_MAX, &err), ==, 0) && IS(x[0], ==, size - 1));
	x[0] = rank - size;
	assert(IS(dlb_comm_allreduce_f64(c, x, 1, DLB_COMM_MIN, &err), ==, 0) && IS(x[0], ==, -size));
	if (rank == size - 1)
		strcpy(text, "from the last");
	assert(IS(dlb_comm_bcast(c, text, sizeof text, size - 1, &err), ==, 0) &&
	       SAME(text, "from the last"));
	x[0] = 10.0 * rank;
	x[1] = 1;
	assert(IS(dlb_comm_gather(c, x, sizeof x, y, 0, &err), ==, 0));
	for (int p = 0; rank == 0 && p < size; p++)
		assert(IS(y[2 * p], ==, 10.0 * p) && IS(y[2 * p + 1], ==, 1));
	assert(IS(dlb_comm_barrier(c, &err), ==, 0));
	assert(IS(dlb_comm_agree(c, 0, &err, &who), ==, 0) && IS(who, ==, rank));
	if (rank)
		dlb_fail(&err, NULL, "rank %d", rank);
	if (size > 1) {
		assert(IS(dlb_comm_agree(c, rank ? -1 : 0, &err, &who), ==, -1));
		assert(IS(who, ==, 1) && SAME(err.what, "rank 1"));
	}
}

/* Each rank sends numbers to the next through a channel: copied, or written in the place; posted late and
 * early. */
static void channels(struct dlb_comm *c, int rank, int size)
{
	enum { N = 5000, ROUNDS = 300 };
	int to = (rank + 1) % size, from = (rank + size - 1) % size, *own = malloc(N * sizeof *own), *place,
	    *there;
	struct dlb_channel in = { .n = 0 }, out = { .n = 0 };
	size_t mine[2], all[8][2];
	struct dlb_cell *cell = dlb_comm_alloc(c, sizeof *cell);
	struct dlb_error err;

	if (size < 2 || !cell) {
		assert(IS(size, <, 2));		/* Linux has it */
		free(own);
		return;
	}
	place = dlb_comm_alloc(c, (64 << 20) + N * sizeof *place);
	assert(place && !place[0] && IS(dlb_comm_offset(c, own), ==, SIZE_MAX) &&
	       IS(dlb_comm_offset(c, place) % (2 << 20), ==, 0));
	memset(place, 1, 64 << 20);
	dlb_comm_private(c, place, 64 << 20);		/* other ranks no longer see this memory */
	assert(!place[0]);
	memset(place, 2, 64 << 20);
	place += (64 << 20) / sizeof *place;
	in.cell = cell;
	mine[0] = dlb_comm_offset(c, cell);
	mine[1] = dlb_comm_offset(c, place);
	assert(IS(dlb_comm_gather_local(c, mine, sizeof mine, all, &err), ==, 0) &&
	       IS(dlb_comm_local(c, to), ==, to) && dlb_comm_near(c, to));
	out.cell = dlb_comm_there(c, to, all[to][0]);
	in.wakeup = dlb_comm_wakeup(c, from);
	out.wakeup = dlb_comm_wakeup(c, to);
	assert(!in.wakeup == !dlb_comm_crowded(c) && !out.wakeup == !in.wakeup);
	there = dlb_comm_there(c, to, all[to][1]);
	for (int i = 0; i < ROUNDS; i++) {
		struct dlb_request recv = { .active = false }, send = { .active = false };
		int *p = own;

		if (i % 3)
			dlb_channel_post(&in, from, &recv);
		if (i % 2 && dlb_channel_ready(&out))
			p = there;
		for (int k = 0; k < N; k++)
			p[k] = i * N + k + rank;
		dlb_channel_send(c, &out, &(struct dlb_message){ p, there, N * sizeof *p, to }, &send);
		if (i % 3 == 0)
			dlb_channel_post(&in, from, &recv);
		assert(IS(dlb_comm_wait(c, &recv, &err), ==, 0));
		for (int k = 0; k < N; k++)
			assert(IS(place[k], ==, i * N + k + from));
		assert(IS(dlb_comm_wait(c, &send, &err), ==, 0));
		if (i % 10 == 0)
			assert(IS(dlb_comm_barrier(c, &err), ==, 0));
	}
	assert(IS(in.n, ==, ROUNDS) && IS(out.n, ==, ROUNDS));
	assert(IS(dlb_comm_barrier(c, &err), ==, 0));
	dlb_comm_release(c, place - (64 << 20) / sizeof *place);
	place = dlb_comm_alloc(c, 64 << 20);
	for (int k = 0; k < 1 << 20; k++)
		assert(!place[k]);		/* released pages are zero when allocated again */
	dlb_comm_release(c, place);
	dlb_comm_release(c, cell);
	assert(IS(dlb_comm_barrier(c, &err), ==, 0));
	free(own);
}

/* The same with zero-copy: the receiver reads the numbers in the sender's memory, or gets a copy, in
 * turns. The sender waits for the return before it writes the next numbers; the post comes before the send
 * or after. */
static void test_zero_copy(struct dlb_comm *c, int rank, int size)
{
	enum { N = 3000, ROUNDS = 300 };
	int to = (rank + 1) % size, from = (rank + size - 1) % size, stayed = 0;
	int *own = dlb_comm_alloc(c, 2 * N * sizeof *own), *place = own + N, *theirs;
	struct dlb_channel in = { .n = 0 }, out = { .n = 0 };
	struct dlb_cell *cell = dlb_comm_alloc(c, sizeof *cell);
	size_t mine[2], all[8][2];
	struct dlb_error err;

	if (size < 2)
		return;
	in.cell = cell;
	mine[0] = dlb_comm_offset(c, cell);
	mine[1] = dlb_comm_offset(c, own);
	assert(IS(dlb_comm_gather_local(c, mine, sizeof mine, all, &err), ==, 0));
	out.cell = dlb_comm_there(c, to, all[to][0]);
	in.wakeup = dlb_comm_wakeup(c, from);
	out.wakeup = dlb_comm_wakeup(c, to);
	assert(!in.wakeup == !dlb_comm_crowded(c) && !out.wakeup == !in.wakeup);
	theirs = dlb_comm_there(c, from, all[from][1]);
	for (int i = 0; i < ROUNDS; i++) {
		struct dlb_request recv = { .active = false }, send = { .active = false };
		const int *read;

		if (i % 3)
			dlb_channel_post(&in, from, &recv);
		for (int k = 0; k < N; k++)
			own[k] = i * N + k + rank;
		const struct dlb_message m = { own, (int *)dlb_comm_there(c, to, all[to][1]) + N,
					       N * sizeof *own, to };
		dlb_channel_send_zero_copy(c, &out, &m, i / 5 % 2 == 0, &send);
		if (i % 3 == 0)
			dlb_channel_post(&in, from, &recv);
		assert(IS(dlb_comm_wait(c, &recv, &err), ==, 0));
		assert(IS(dlb_channel_is_in_place(&recv), ==, (i / 5 % 2 == 0)));
		read = dlb_channel_is_in_place(&recv) ? theirs : place;
		stayed += dlb_channel_is_in_place(&recv);
		if (i % 50 == 0) {
			/* not returned yet: the barrier comes before any return */
			assert(!dlb_comm_test(c, &send));
			assert(IS(dlb_comm_barrier(c, &err), ==, 0));
		}
		for (int k = 0; k < N; k++)
			assert(IS(read[k], ==, i * N + k + from));
		dlb_channel_return(&in);
		assert(IS(dlb_comm_wait(c, &send, &err), ==, 0));
	}
	assert(IS(stayed, ==, ROUNDS / 2));
	assert(IS(dlb_comm_barrier(c, &err), ==, 0));
	dlb_comm_release(c, own);
	dlb_comm_release(c, cell);
	assert(IS(dlb_comm_barrier(c, &err), ==, 0));
}

static void silence(struct dlb_comm *c, int rank, int size)
{
	struct dlb_request r = { 0 };
	struct dlb_error err = { .what = "" };
	double start_s = dlb_clock_s();
	int x;

	if (size < 2)
		return;
	if (rank == 0) {
		dlb_comm_set_timeout(c, 0.3);
		dlb_comm_irecv(c, &x, sizeof x, 1, 9, &r);
		assert(IS(dlb_comm_wait(c, &r, &err), ==, -1) && dlb_comm_broken(c));
		assert(HAS(err.what, "lost rank 1") && IS(dlb_clock_s() - start_s, <, 5));
		assert(IS(dlb_comm_barrier(c, &err), ==, -1) && IS(dlb_comm_agree(c, 0, &err, NULL), ==, -1));
		dlb_comm_abort(c, 42);
	}
	for (;;)
		dlb_sleep_s(0.1);
}

/* Rank 1 sends more or fewer bytes than rank 0 expects, below and above the eager limit: one line. */
static int wrong_size(const char *how)
{
	enum { N = 1 << 20 };
	bool more = strstr(how, "more") != NULL;
	size_t bytes = strstr(how, "long") ? N : 100, sent = more ? bytes + 8 : bytes - 8;
	char *p = calloc(1, N + 8);
	struct dlb_request r = { .active = false };
	struct dlb_error err = { .what = "" };
	struct dlb_comm *c;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	if (dlb_comm_rank(c) == 1)
		dlb_comm_isend(c, p, sent, 0, 4, &r);
	else
		dlb_comm_irecv(c, p, bytes, 1, 4, &r);
	if (dlb_comm_rank(c) == 1) {
		dlb_comm_wait(c, &r, &err);
		dlb_comm_barrier(c, &err);		/* rank 0 ends it */
		return 1;
	}
	assert(IS(dlb_comm_wait(c, &r, &err), ==, -1) && dlb_comm_broken(c));
	assert(HAS(err.what, more ? "rank 1 sent more than" : "rank 1 sent") &&
	       HAS(err.what, "rank 0 expects"));
	dlb_comm_abort(c, 42);
}

/* MPI starts with settings for TCP that sum long arrays faster, but for those that the user has set. */
static void settings(bool own)
{
	assert(SAME(getenv("OMPI_MCA_btl_tcp_flags"), own ? "2" : "1") &&
	       SAME(getenv("OMPI_MCA_btl_tcp_eager_limit"), own ? "1000" : "131072"));
	assert(IS(dlb_comm_eager_bytes(), ==, 131072));
	if (access("/sys/class/infiniband", F_OK) && access("/sys/class/cxi", F_OK))
		assert(SAME(getenv("OMPI_MCA_pml"), "ob1"));
}

/* What the communicator says of its ranks, which share this host. */
static void facts(struct dlb_comm *c, int rank, int size)
{
	char host[64] = "";

	assert(!gethostname(host, sizeof host - 1) && SAME(dlb_comm_host(c), host));
	assert(IS(dlb_comm_timeout_s(c), ==, 30) && !dlb_comm_broken(c));
	assert(IS(dlb_comm_local_size(c), ==, size) && IS(dlb_comm_crowded(c), ==, size > dlb_cores()));
	for (int i = 0; i < size; i++)
		assert(IS(dlb_comm_local(c, i), ==, i) && dlb_comm_is_local(c, i) &&
		       IS(dlb_comm_near(c, i), ==, size > 1));
	assert(!dlb_comm_is_local(c, size) && !dlb_comm_is_local(c, -1));
	assert(size < 2 || IS(dlb_comm_offset(c, dlb_comm_there(c, rank, 77)), ==, 77));
}

static int rank_main(bool quiet_peer)
{
	const bool own = getenv("OMPI_MCA_btl_tcp_flags") != NULL;
	struct dlb_comm *c;
	struct dlb_error err;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	settings(own);
	facts(c, dlb_comm_rank(c), dlb_comm_size(c));
	messages(c, dlb_comm_rank(c), dlb_comm_size(c));
	collectives(c, dlb_comm_rank(c), dlb_comm_size(c));
	channels(c, dlb_comm_rank(c), dlb_comm_size(c));
	test_zero_copy(c, dlb_comm_rank(c), dlb_comm_size(c));
	if (quiet_peer)
		silence(c, dlb_comm_rank(c), dlb_comm_size(c));
	dlb_comm_free(c);
	return 0;
}

static int start(const char *self, int n, const char *how)
{
	char command[1024];
	int status;

	snprintf(command, sizeof command,
		 "mpiexec -n %d --oversubscribe --bind-to none '%s' %s >/dev/null 2>&1", n, self, how);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
	struct dlb_comm *c;
	struct dlb_error err;
	double x = 3;

	if (argc > 1 && strstr(argv[1], "size"))
		return wrong_size(argv[1]);
	if (argc > 1)
		return rank_main(!strcmp(argv[1], "silence"));
	assert(IS(dlb_comm_new_alone(&c, &err), ==, 0));
	collectives(c, 0, 1);
	assert(IS(dlb_comm_allreduce_f64(c, &x, 1, DLB_COMM_SUM, &err), ==, 0) && IS(x, ==, 3));
	dlb_comm_free(c);
	if (!dlb_comm_is_open_mpi() || system("mpiexec --version >/dev/null 2>&1")) {
		puts("no mpiexec of Open MPI");
		return 77;
	}
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (int n = 1; n <= 4; n++) {
		if (n == 3) {
			setenv("OMPI_MCA_btl_tcp_flags", "2", 1);
			setenv("OMPI_MCA_btl_tcp_eager_limit", "1000", 1);
		}
		assert(IS(start(argv[0], n, "plain"), ==, 0));
		unsetenv("OMPI_MCA_btl_tcp_flags");
		unsetenv("OMPI_MCA_btl_tcp_eager_limit");
	}
	assert(IS(start(argv[0], 2, "silence"), ==, 42));
	double start_s = dlb_clock_s(), starting_s;

	assert(IS(start(argv[0], 2, "plain"), ==, 0));
	starting_s = dlb_clock_s() - start_s;
	for (int i = 0; i < 4; i++) {
		static const char *const how[] = { "size-more", "size-less", "long-size-more",
						   "long-size-less" };

		start_s = dlb_clock_s();
		assert(IS(start(argv[0], 2, how[i]), ==, 42));
		assert(IS(dlb_clock_s() - start_s, <, starting_s + 3));
	}
	puts("comm: messages, shared memory, collectives and agreement on 1 to 4 ranks, a silent peer, "
	     "messages of the wrong size");
	return 0;
}
