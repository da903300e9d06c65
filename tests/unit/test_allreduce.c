/* test_tags=slow */
/* Allreduce under mpiexec with 1 to 4 ranks: sums are right, all ranks hold the same bits, a second run gives the
 * same bits, arrays have any length. test_sums.c tests the lists of hops, and short sums. */
#include "allreduce.h"

static int rank_main(void)
{
	static const int64_t length[] = { 0, 1, 2, 3, 7, 1000, 65536, 65537, 700001 };
	static const int group[] = { 0, 1, 0, 1 };
	struct dlb_comm *c;
	struct dlb_error err;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	for (int a = 0; dlb_allreduces[a]; a++)
		for (int i = 0; i < DLB_LEN(length); i++)
			for (int t = 0; t < DLB_LEN(kinds) - dlb_allreduces[a]->external; t++) {
				if (!check_long() && t && length[i] > 100000)
					continue;
				sum(c,
				    (struct dlb_collective_desc){
					    .how = dlb_allreduces[a],
					    .n = length[i],
					    .ranks = { .n = dlb_comm_size(c), .group = group } },
				    &kinds[t]);
			}
	for (int a = 0; dlb_allreduces[a]; a++) {
		again(c, dlb_allreduces[a], 3000);
		again(c, dlb_allreduces[a], 100003);
	}
	uneven(c, 5000);
	uneven(c, 100001);	/* chunks of several blocks, of one and of none */
	together(c);
	subsets(c, 70001);
	narrow(c);
	lost(c, DLB_WIRE_BF16, 5000);
	lost(c, DLB_WIRE_BLOCKS, 1);
	lost(c, DLB_WIRE_BLOCKS, 301);
	dlb_comm_free(c);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const what[] = { "less", "more", "type", "cuts" };

	if (argc > 2)
		return odd_one(argv[1], argv[2]);
	if (argc > 1)
		return rank_main();
	if (!dlb_comm_is_open_mpi() || system("mpiexec --version >/dev/null 2>&1")) {
		puts("no mpiexec of Open MPI");
		return 77;
	}
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (int n = 1; n <= 4; n++)
		if (check_long() || n == 2 || n == 3)
			assert(IS(start(argv[0], n, "rank", ""), ==, 0));
	assert(IS(start(argv[0], 4, "ring", "none"), ==, 0));
	for (int a = 0; dlb_allreduces[a]; a++) {
		if (!check_long() && a % 4)
			continue;
		assert(IS(start(argv[0], 2 + a % 3, dlb_allreduces[a]->name, what[a % DLB_LEN(what)]), ==,
			  42));
		assert(IS(start(argv[0], 2 + a % 3, dlb_allreduces[a]->name, "lost"), ==, 128 + SIGKILL));
	}
	puts("allreduce: sums of ranks and some of them, the same bits on all, one that differs");
	return 0;
}
