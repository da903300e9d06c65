/* Sends a tensor from rank 0 to rank 1 of one host in three ways, interleaved: MPI_Send and MPI_Recv; a
 * channel that copies it into the receiver's place; a channel in whose place rank 0 writes it directly. Rank
 * 1 reads it.
 *   mpiexec -n 2 transfer [MOST_MB [ROUNDS]]
 * One line per size, medians in seconds: from the end of writing until the receiver may read (mpi, copied,
 * written in place; ratios to mpi), then the same including writing and reading. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/comm.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/stats.h"

enum { MPI_WAY, COPIED, MADE_THERE, N_WAYS };
enum { MOST_ROUNDS = 1001 };

struct ends {
	struct dlb_comm *c;
	int rank;
	float *own, *place;	/* rank 0's tensor; rank 1's place, in shared memory, as mapped here */
	float *plain;			/* rank 1's buffer for MPI: huge pages if the system has them */
	struct dlb_channel channel;
};

static void must(int rc, const struct dlb_error *err)
{
	if (!rc)
		return;
	fprintf(stderr, "transfer: %s\n", err->what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static float make(float *x, int64_t n, int round)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)((i + round) & 1023);
	return x[0];
}

static void read_all(const float *x, int64_t n, int round)
{
	float sum[16] = { 0 };		/* enough independent sums to read at memory speed */

	for (int64_t i = 0; i + 16 <= n; i += 16)
		for (int k = 0; k < 16; k++)
			sum[k] += x[i + k];
	if (x[0] != (float)(round & 1023) || x[n - 1] != (float)((n - 1 + round) & 1023) || sum[0] < 0)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One transfer; on rank 1: *move_s from written to readable, *all_s with writing and reading. Both ranks have
 * the same clock. */
static void once(struct ends *e, int way, int64_t n, int round, double *move_s, double *all_s)
{
	size_t bytes = (size_t)n * sizeof(float);
	struct dlb_request r = { .active = false };
	struct dlb_error err;
	double at[2] = { 0 };			/* begin and end of writing */

	if (e->rank == 0) {
		float *x = e->own;

		must(dlb_comm_barrier(e->c, &err), &err);
		at[0] = dlb_clock_s();
		if (way == MADE_THERE) {
			while (!dlb_channel_ready(&e->channel))
				;
			x = e->place;
		}
		make(x, n, round);
		at[1] = dlb_clock_s();
		if (way == MPI_WAY)
			MPI_Send(x, (int)n, MPI_FLOAT, 1, 3, MPI_COMM_WORLD);
		else
			dlb_channel_send(e->c, &e->channel,
					 &(struct dlb_message){ x, e->place, bytes, 1 }, &r);
		must(dlb_comm_wait(e->c, &r, &err), &err);
		MPI_Send(at, 2, MPI_DOUBLE, 1, 4, MPI_COMM_WORLD);
	} else {
		const float *x = way == MPI_WAY ? e->plain : e->place;
		double readable_s, end_s;
		MPI_Request q = MPI_REQUEST_NULL;

		if (way == MPI_WAY)
			MPI_Irecv(e->plain, (int)n, MPI_FLOAT, 0, 3, MPI_COMM_WORLD, &q);
		else
			dlb_channel_post(&e->channel, 0, &r);
		must(dlb_comm_barrier(e->c, &err), &err);
		MPI_Wait(&q, MPI_STATUS_IGNORE);
		must(dlb_comm_wait(e->c, &r, &err), &err);
		readable_s = dlb_clock_s();
		read_all(x, n, round);
		end_s = dlb_clock_s();
		MPI_Recv(at, 2, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		*move_s = readable_s - at[1];
		*all_s = end_s - at[0];
	}
}

static void open_ends(struct ends *e, size_t bytes)
{
	size_t at[2] = { 0 };
	struct dlb_error err;

	must(dlb_comm_new(&e->c, 60, &err), &err);
	e->rank = dlb_comm_rank(e->c);
	if (dlb_comm_size(e->c) != 2 || !dlb_comm_near(e->c, 1 - e->rank)) {
		fprintf(stderr, "transfer: takes two ranks that share memory\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	e->own = dlb_xmalloc(bytes);
	e->plain = dlb_xmalloc(bytes);
	memset(e->own, 0, bytes);
	memset(e->plain, 0, bytes);
	if (e->rank == 1) {
		e->channel.cell = dlb_comm_alloc(e->c, sizeof *e->channel.cell);
		e->place = dlb_comm_alloc(e->c, bytes);
		memset(e->place, 0, bytes);
		at[0] = dlb_comm_offset(e->c, e->channel.cell);
		at[1] = dlb_comm_offset(e->c, e->place);
	}
	must(dlb_comm_bcast(e->c, at, sizeof at, 1, &err), &err);
	e->channel.cell = dlb_comm_there(e->c, 1, at[0]);
	e->place = dlb_comm_there(e->c, 1, at[1]);
}

int main(int argc, char **argv)
{
	size_t most = (size_t)(argc > 1 ? atoi(argv[1]) : 16) << 20;
	int rounds = argc > 2 ? atoi(argv[2]) : 31;
	static double move[N_WAYS][MOST_ROUNDS], all[N_WAYS][MOST_ROUNDS];
	struct ends e = { .c = NULL };

	if (rounds < 1 || rounds > MOST_ROUNDS)
		return 2;
	open_ends(&e, most);
	if (e.rank)
		printf("%-9s %9s %9s %9s %10s %10s | %9s %9s %9s %10s\n", "bytes", "mpi_s", "copied_s",
		       "there_s", "copied/mpi", "there/mpi", "mpi_all_s", "cop_all_s", "the_all_s",
		       "the/mpi_all");
	for (size_t bytes = 1 << 10; bytes <= most; bytes *= 4) {
		/* messages of one channel have one size */
		e.channel.copy_tuner = (struct dlb_copy_tuner){ .n = 0 };
		for (int r = -2; r < rounds; r++)
			for (int way = 0; way < N_WAYS; way++) {
				double m = 0, a = 0;

				once(&e, way, (int64_t)(bytes / sizeof(float)), r + 2, &m, &a);
				if (r >= 0) {
					move[way][r] = m;
					all[way][r] = a;
				}
			}
		if (!e.rank)
			continue;
		for (int way = 0; way < N_WAYS; way++) {
			move[way][0] = dlb_median(move[way], rounds);
			all[way][0] = dlb_median(all[way], rounds);
		}
		printf("%-9zu %9.2e %9.2e %9.2e %10.3f %10.3f | %9.2e %9.2e %9.2e %10.3f\n", bytes,
		       move[MPI_WAY][0], move[COPIED][0], move[MADE_THERE][0],
		       move[COPIED][0] / move[MPI_WAY][0], move[MADE_THERE][0] / move[MPI_WAY][0],
		       all[MPI_WAY][0], all[COPIED][0], all[MADE_THERE][0],
		       all[MADE_THERE][0] / all[MPI_WAY][0]);
		fflush(stdout);
	}
	dlb_comm_free(e.c);
	return 0;
}
