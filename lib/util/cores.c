#define _GNU_SOURCE	/* sched_getaffinity */
#include <sched.h>
#include "util/cores.h"

int dlb_cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}
