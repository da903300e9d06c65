/* Seconds of one allreduce in place, ours and MPI's, interleaved, for arrays from 1 KB to the size given:
 *   mpiexec -n 2 allreduce [MOST_MB [ROUNDS]]
 * Rank 0 prints a line a size: bytes, median seconds of MPI_Allreduce and of each of ours, bytes sent by rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "util/clock.h"
#include "util/mem.h"

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *t, int n)
{
	qsort(t, (size_t)n, sizeof *t, by_value);
	return t[n / 2];
}

/* Times the slowest rank; both start together. */
static double timed(struct dlb_comm *c, struct dlb_collective *k, float *x, int64_t n)
{
	struct dlb_error err;
	double start_s, s;

	for (int64_t i = 0; i < n; i++)
		x[i] = 1;
	MPI_Barrier(MPI_COMM_WORLD);
	start_s = dlb_clock_s();
	if (!k) {
		MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	} else {
		dlb_collective_start(k);
		if (dlb_collective_wait(k, &err))
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	s = dlb_clock_s() - start_s;
	if (dlb_comm_allreduce_f64(c, &s, 1, DLB_COMM_MAX, &err) || x[n - 1] != (float)dlb_comm_size(c))
		MPI_Abort(MPI_COMM_WORLD, 1);
	return s;
}

int main(int argc, char **argv)
{
	int64_t most = (argc > 1 ? atoi(argv[1]) : 256) * INT64_C(1048576);
	int rounds = argc > 2 ? atoi(argv[2]) : 11, rank, n_how = 0;
	struct dlb_collective *k[8] = { NULL };
	double t[8][101];
	struct dlb_comm *c;
	struct dlb_error err;
	float *x = dlb_xmalloc((size_t)most);

	if (dlb_comm_new(&c, 60, &err) || rounds > 101)
		return 1;
	rank = dlb_comm_rank(c);
	if (!rank)
		printf("%-11s %11s", "bytes", "mpi_s");
	for (; dlb_allreduces[n_how]; n_how++)
		if (!rank)
			printf(" %11s", dlb_allreduces[n_how]->name);
	if (!rank)
		printf(" %11s %9s\n", "sent_bytes", "ring/mpi");
	for (int64_t bytes = 1024; bytes <= most; bytes *= 4) {
		int64_t n = bytes / 4, sent;

		for (int a = 0; a < n_how; a++)
			if (dlb_collective_new(&k[a], c, &(struct dlb_collective_desc){ .how = dlb_allreduces[a], .x = x, .n = n, .tag = 7,
									   .ranks.n = dlb_comm_size(c) }, &err))
				return 1;
		for (int r = -2; r < rounds; r++)
			for (int a = -1; a < n_how; a++) {
				double s = timed(c, a < 0 ? NULL : k[a], x, n);

				if (r >= 0)
					t[a + 1][r] = s;
			}
		sent = dlb_collective_bytes_sent(k[0]);
		for (int a = 0; a < n_how; a++)
			dlb_collective_free(k[a]);
		for (int a = 0; a <= n_how; a++)
			t[a][0] = median(t[a], rounds);
		if (rank)
			continue;
		printf("%-11lld", (long long)bytes);
		for (int a = 0; a <= n_how; a++)
			printf(" %11.3e", t[a][0]);
		printf(" %11lld %9.2f\n", (long long)sent, t[1][0] / t[0][0]);
		fflush(stdout);
	}
	dlb_comm_free(c);
	free(x);
	return 0;
}
