#define _GNU_SOURCE	/* sched_getaffinity */
#include <sched.h>
#include "util/cores.h"

int dlb_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}

int dlb_core(int nth)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set))
		return -1;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set) && nth-- == 0)
			return i;
	return -1;
}
