/* Lists of taps of one dimension. */
#include "op/tap_list.h"

#include <stdlib.h>
#include "util/mem.h"

void dlb_tap_list_start(struct dlb_tap_list *l, int64_t n)
{
	*l = (struct dlb_tap_list){ .n = n, .cap_taps = n + 1 };
	l->end = dlb_xcalloc((size_t)n + 1, sizeof *l->end);
	l->tap = dlb_xcalloc((size_t)l->cap_taps, sizeof *l->tap);
}

void dlb_tap_list_add(struct dlb_tap_list *l, int64_t i, int64_t from, double w)
{
	DLB_GROW(l->tap, l->n_taps, l->cap_taps);
	l->tap[l->n_taps++] = (struct dlb_tap){ from, w };
	l->end[i] = l->n_taps;
}

void dlb_tap_list_end(struct dlb_tap_list *l)
{
	for (int64_t i = 1; i < l->n; i++)
		if (l->end[i] < l->end[i - 1])
			l->end[i] = l->end[i - 1];
}

void dlb_tap_list_transpose(const struct dlb_tap_list *l, int64_t n, struct dlb_tap_list *to)
{
	int64_t *next = dlb_xcalloc((size_t)n + 1, sizeof *next);

	dlb_tap_list_start(to, n);
	free(to->tap);
	to->n_taps = l->n_taps;
	to->cap_taps = l->n_taps + 1;
	to->tap = dlb_xcalloc((size_t)to->cap_taps, sizeof *to->tap);
	for (int64_t t = 0; t < l->n_taps; t++)
		to->end[l->tap[t].from]++;
	for (int64_t i = 1; i < n; i++) {
		next[i] = to->end[i - 1];
		to->end[i] += to->end[i - 1];
	}
	for (int64_t i = 0, t = 0; i < l->n; i++)
		for (; t < l->end[i]; t++)
			to->tap[next[l->tap[t].from]++] = (struct dlb_tap){ i, l->tap[t].w };
	free(next);
}

void dlb_tap_list_release(struct dlb_tap_list *l)
{
	free(l->end);
	free(l->tap);
	*l = (struct dlb_tap_list){ 0 };
}
