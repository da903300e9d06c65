/* Repeats annealing runs from the best or from a start; every third begins on coarser graphs
 * (multilevel.c), and exact window search (window.c) follows each; runs get longer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/search.h"
#include "util/clock.h"

bool dlb_search_over(const struct dlb_search *s)
{
	return (s->deadline_s > 0 ? dlb_clock_s() >= s->deadline_s : s->budget <= 0) ||
	       s->best_s <= s->bound_s;
}

/* Whether classes need more than SCARCE of the memory of nodes with a limit. */
static bool memory_is_scarce(const struct dlb_port *port)
{
	static const double SCARCE = 0.6;
	double need = 0, have = 0;
	for (int c = 0; c < port->n; c++)
		need += port->bytes[c];
	for (int d = 0; d < port->n_nodes; d++)
		have += isfinite(port->room_bytes[d]) ? port->room_bytes[d] : 0;
	return have > 0 && need > SCARCE * have;
}

void dlb_search_run(struct dlb_search *s, int *const *starts, int n_starts, bool cold)
{
	/* Low temperatures balance many small classes, high ones leave a bad local optimum. */
	static const double heat[] = { 0.02, 0.05, 0.003, 0.1, 0.01, 0.02, 0.001, 0.05 };
	static const double MULTILEVEL_HEAT = 0.1;
	static const double latency_heat[] = { 0.025, 0.01, 0.05, 0.005 };
	size_t n = (size_t)s->port->n;
	bool scarce = memory_is_scarce(s->port);
	int *from = dlb_xmalloc((n + 1) * sizeof *from);
	int64_t length = s->latency ? 20000 : 300000 + 4000 * (int64_t)n;
	/* at least one of each temperature */
	if (s->deadline_s <= 0 && !s->latency && !cold && length > s->budget / 3)
		length = s->budget / 3 + 1;
	for (int run = 0; !dlb_search_over(s); run++) {
		bool best = cold || run % 3 != 2;
		memcpy(from, best ? s->best : starts[run / 3 % n_starts], n * sizeof *from);
		int64_t proposals = s->deadline_s <= 0 && s->budget < length ? s->budget : length;
		if (s->latency)
			dlb_anneal_latency(s, from, proposals, cold ? 2e-6 : latency_heat[run % 4],
					   scarce && !cold);
		else if (!cold && run % 3 == 1)
			dlb_search_multilevel(s, from, run % 2 == 1, 2 * proposals, MULTILEVEL_HEAT);
		else
			dlb_anneal_throughput(s, from, proposals, cold ? 4e-6 : heat[(run - run / 3) % 8],
					      scarce && !cold);
		if (!s->latency)
			dlb_search_windows(s);
		if (run % 4 == 3 && length < 40000000)
			length += length / 2;
	}
	free(from);
}
