/* Arena offsets: where each (tensor, micro-batch) lies while it is alive.
 *
 * The lifetimes are known before the step, so this is dynamic storage allocation with all requests in hand.
 * Places are given out in program order from a list of free blocks, the smallest that is large enough (best
 * fit); neighbours are joined when freed. Program order follows time, a pipeline's places come and go in
 * like sizes, and so the arena ends close to the bound (the most bytes alive at once), which is recorded
 * beside it. */
#include <stdlib.h>
#include <string.h>
#include "plan/flow.h"

struct blocks { struct block { size_t offset, bytes; } *at; int n, cap; };	/* sorted by offset, none touch */

static size_t take(struct blocks *b, size_t bytes, size_t *end)
{
	int best = -1;
	for (int i = 0; i < b->n; i++)
		if (b->at[i].bytes >= bytes && (best < 0 || b->at[i].bytes < b->at[best].bytes))
			best = i;
	if (best >= 0) {
		size_t offset = b->at[best].offset;
		b->at[best].offset += bytes;
		b->at[best].bytes -= bytes;
		if (!b->at[best].bytes) {
			memmove(b->at + best, b->at + best + 1, (size_t)(b->n - best - 1) * sizeof *b->at);
			b->n--;
		}
		return offset;
	}
	if (b->n && b->at[b->n - 1].offset + b->at[b->n - 1].bytes == *end) {	/* grow the free end */
		size_t offset = b->at[--b->n].offset;
		*end = offset + bytes;
		return offset;
	}
	size_t offset = *end;
	*end += bytes;
	return offset;
}

static void give(struct blocks *b, size_t offset, size_t bytes)
{
	int lo = 0, hi = b->n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (b->at[mid].offset < offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	bool joins_left = lo > 0 && b->at[lo - 1].offset + b->at[lo - 1].bytes == offset;
	bool joins_right = lo < b->n && offset + bytes == b->at[lo].offset;
	if (joins_left) {
		b->at[lo - 1].bytes += bytes;
		if (joins_right) {
			b->at[lo - 1].bytes += b->at[lo].bytes;
			memmove(b->at + lo, b->at + lo + 1, (size_t)(b->n - lo - 1) * sizeof *b->at);
			b->n--;
		}
	} else if (joins_right) {
		b->at[lo].offset = offset;
		b->at[lo].bytes += bytes;
	} else {
		DLB_GROW(b->at, b->n, b->cap);
		memmove(b->at + lo + 1, b->at + lo, (size_t)(b->n - lo) * sizeof *b->at);
		b->at[lo] = (struct block){ offset, bytes };
		b->n++;
	}
}

/* Indices of places by first or last instruction: start[i] .. start[i+1] of by. */
static void bucket(const struct dlb_place *place, int n, int n_instr, bool last, int *start, int *by)
{
	memset(start, 0, ((size_t)n_instr + 2) * sizeof *start);
	for (int i = 0; i < n; i++)
		start[(last ? place[i].last : place[i].first) + 2]++;
	for (int i = 0; i < n_instr; i++)
		start[i + 2] += start[i + 1];
	for (int i = 0; i < n; i++)
		by[start[(last ? place[i].last : place[i].first) + 1]++] = i;
}

size_t dlb_memory_plan(struct dlb_place *place, int n, int n_instr, size_t *bound)
{
	struct blocks b = { 0 };
	size_t end = 0, live = 0;
	int *begins = dlb_xcalloc((size_t)n_instr + 3, sizeof(int)), *ends = dlb_xcalloc((size_t)n_instr + 3, sizeof(int));
	int *by_first = dlb_xcalloc((size_t)n + 1, sizeof(int)), *by_last = dlb_xcalloc((size_t)n + 1, sizeof(int));
	bucket(place, n, n_instr, false, begins, by_first);
	bucket(place, n, n_instr, true, ends, by_last);
	*bound = 0;
	for (int i = 0; i < n_instr; i++) {
		for (int k = begins[i]; k < begins[i + 1]; k++) {
			struct dlb_place *p = &place[by_first[k]];
			if (p->offset == SIZE_MAX)
				continue;
			p->offset = take(&b, dlb_place_bytes(p->bytes), &end);
			live += dlb_place_bytes(p->bytes);
			if (live > *bound)
				*bound = live;
		}
		for (int k = ends[i]; k < ends[i + 1]; k++) {
			struct dlb_place *p = &place[by_last[k]];
			if (p->offset == SIZE_MAX)
				continue;
			give(&b, p->offset, dlb_place_bytes(p->bytes));
			live -= dlb_place_bytes(p->bytes);
		}
	}
	free(b.at);
	free(begins);
	free(ends);
	free(by_first);
	free(by_last);
	return end;
}
