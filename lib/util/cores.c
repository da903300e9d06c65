/* Cores by sched_getaffinity: see cores.h. */
#define _GNU_SOURCE	/* sched_getaffinity */
#include "util/cores.h"

#include <sched.h>

struct dlb_core_set dlb_core_set_own(void)
{
	struct dlb_core_set s = { { 0 } };
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set))
		return s;
	for (int i = 0; i < CPU_SETSIZE && i < 64 * 16; i++)
		if (CPU_ISSET(i, &set))
			s.word[i / 64] |= UINT64_C(1) << i % 64;
	return s;
}

void dlb_core_set_add(struct dlb_core_set *s, const struct dlb_core_set *other)
{
	for (int i = 0; i < 16; i++)
		s->word[i] |= other->word[i];
}

int dlb_core_set_count(const struct dlb_core_set *s)
{
	int n = 0;

	for (int i = 0; i < 16; i++)
		n += __builtin_popcountll(s->word[i]);
	return n;
}

int dlb_cores(void)
{
	const struct dlb_core_set own = dlb_core_set_own();
	const int n = dlb_core_set_count(&own);

	return n < 1 ? 1 : n;
}
