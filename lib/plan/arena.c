/* Arena offsets: the memory of each (tensor, micro-batch) during its lifetime.
 *
 * The lifetimes are known before the step, so this is offline dynamic storage allocation: rectangles of
 * fixed position in time are packed into a strip of the least height, which is NP-hard (Garey and Johnson,
 * SR2). No packing is lower than the bound, the most bytes alive at once. A packing within DLB_MEMORY_GOOD of
 * the bound, or not above the caller's sufficient size (`enough`), is not improved. The following methods are
 * tried, the cheapest first, and the lowest packing is kept:
 *
 *   program order   places are allocated as the program runs: each gets the smallest free block that is
 *                   large enough (best fit).
 *   by order        places are put one after the other, by size, by bytes x time, or by lifetime, the
 *                   greatest first. Each goes to the lowest offset at which it overlaps none put before.
 *   squeaky wheel   repeats the best of these orders under a lower ceiling. A place that does not fit below
 *                   the ceiling moves to a random earlier turn of the order (mostly a near one), and the
 *                   places from that turn on are put again (Joslin and Clements, "Squeaky wheel"
 *                   optimization, JAIR 10, 1999). When all fit, the ceiling is lowered. After long failure,
 *                   the search restarts from the best order with some places exchanged. The seed is fixed
 *                   and effort is counted in comparisons, not seconds, so that the same program gets the
 *                   same offsets everywhere.
 *
 * Places of a loop may wrap around its end (last < first): they count as two intervals. A place with
 * copies holds memory for all its copies all the time.
 *
 * A place is compared with places of overlapping lifetimes, in order of offset. Most lifetimes are short. So
 * a program's time is cut into slots, and a place no longer than one slot is compared only with places in its
 * slot and the next. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "plan/flow.h"

#define DLB_MEMORY_GOOD 0.02		/* fraction above the bound that is good enough */
#define DLB_MEMORY_POOR 0.05		/* fraction above the bound from which more effort is spent */
/* efforts: comparisons */
enum { EFFORT = 5000000, MORE_EFFORT = 50000000, PATIENCE = 10000, MAX_SLOTS = 8 };

static bool wraps(const struct dlb_place *p) { return p->copies == 1 && p->last < p->first; }

static size_t bytes_of(const struct dlb_place *p) { return (size_t)p->copies * dlb_place_bytes(p->bytes); }

/* The first and last instruction at which a place holds memory in the method of program order: a place that
 * wraps or has copies holds memory all the time. */
static int first_of(const struct dlb_place *p) { return p->copies > 1 || wraps(p) ? 0 : p->first; }

static int last_of(const struct dlb_place *p, int n_instr)
{
	return p->copies > 1 || wraps(p) ? n_instr - 1 : p->last;
}

/* ---- program order ---- */

/* sorted by offset, not adjacent */
struct blocks { struct free_block { size_t offset, bytes; } *at; int n, cap; };

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
	if (b->n && b->at[b->n - 1].offset + b->at[b->n - 1].bytes == *end) {	/* grow the last free block */
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
		b->at[lo] = (struct free_block){ offset, bytes };
		b->n++;
	}
}

/* Sorts the indices of places by first (last: by last) instruction: those of instruction i are by[start[i]]
 * to by[start[i + 1] - 1]. */
static void bucket(const struct dlb_place *place, int n, int n_instr, bool last, int *start, int *by)
{
	memset(start, 0, ((size_t)n_instr + 2) * sizeof *start);
	for (int i = 0; i < n; i++)
		start[(last ? last_of(&place[i], n_instr) : first_of(&place[i])) + 2]++;
	for (int i = 0; i < n_instr; i++)
		start[i + 2] += start[i + 1];
	for (int i = 0; i < n; i++)
		by[start[(last ? last_of(&place[i], n_instr) : first_of(&place[i])) + 1]++] = i;
}

/* The most bytes alive at once. */
static size_t most_alive(const struct dlb_place *place, int n, int n_instr)
{
	int64_t *change = dlb_xcalloc((size_t)n_instr + 2, sizeof *change), live = 0, most = 0;
	for (int i = 0; i < n; i++) {
		const struct dlb_place *p = &place[i];
		if (p->offset == SIZE_MAX)
			continue;
		bool all = p->copies > 1;
		change[all ? 0 : p->first] += (int64_t)bytes_of(p);
		change[all ? n_instr : p->last + 1] -= (int64_t)bytes_of(p);
		if (wraps(p))
			change[0] += (int64_t)bytes_of(p);
	}
	for (int i = 0; i <= n_instr; i++) {
		live += change[i];
		most = live > most ? live : most;
	}
	free(change);
	return (size_t)most;
}

static size_t in_program_order(struct dlb_place *place, int n, int n_instr)
{
	struct blocks b = { 0 };
	size_t end = 0;
	int *begins = dlb_xcalloc((size_t)n_instr + 3, sizeof(int)),
	    *ends = dlb_xcalloc((size_t)n_instr + 3, sizeof(int));
	int *by_first = dlb_xcalloc((size_t)n + 1, sizeof(int)),
	    *by_last = dlb_xcalloc((size_t)n + 1, sizeof(int));
	bucket(place, n, n_instr, false, begins, by_first);
	bucket(place, n, n_instr, true, ends, by_last);
	for (int i = 0; i < n_instr; i++) {
		for (int k = begins[i]; k < begins[i + 1]; k++) {
			struct dlb_place *p = &place[by_first[k]];
			if (p->offset == SIZE_MAX)
				continue;
			p->offset = take(&b, bytes_of(p), &end);
		}
		for (int k = ends[i]; k < ends[i + 1]; k++) {
			struct dlb_place *p = &place[by_last[k]];
			if (p->offset == SIZE_MAX)
				continue;
			give(&b, p->offset, bytes_of(p));
		}
	}
	free(b.at);
	free(begins);
	free(ends);
	free(by_first);
	free(by_last);
	return end;
}

/* ---- by order ---- */

struct memory_piece {
	size_t bytes, offset;
	int first, last;					/* last < first: wraps */
	int slot[2];						/* first and last slot that lists it */
	bool out;						/* to be removed */
};
struct spot { size_t offset, end; int first, last, piece; };
/* A shelf is a list of spots sorted by offset. It is divided into rows, so that inserting a spot moves few
 * others. No row is empty; rows from n_rows on are spare. */
enum { ROW_SPOTS = 128 };
struct shelf_row {
	int n;
	struct spot spot[ROW_SPOTS];
};
struct shelf {
	struct shelf_row **row;
	int n_rows, n_all_rows, cap_rows, n;
};
struct packing {
	struct memory_piece *piece; int n;
	/* [turn] the piece that is put at that turn: current order, and order of the lowest packing */
	int *order, *best;
	struct shelf all, slot[MAX_SLOTS];
	/* slot s covers 2 * slot_instrs instructions from s * slot_instrs on */
	int n_instr, n_slots, slot_instrs;
	int64_t effort;
	uint64_t random;
};

static uint64_t draw(struct packing *k)				/* xorshift64 (Marsaglia, 2003) */
{
	k->random ^= k->random << 13;
	k->random ^= k->random >> 7;
	k->random ^= k->random << 17;
	return k->random;
}

/* Inserts a spare row as row r. */
static struct shelf_row *add_row(struct shelf *s, int r)
{
	struct shelf_row *row;

	if (s->n_rows == s->n_all_rows) {
		DLB_GROW(s->row, s->n_all_rows, s->cap_rows);
		s->row[s->n_all_rows++] = dlb_xcalloc(1, sizeof **s->row);
	}
	row = s->row[s->n_rows];
	memmove(s->row + r + 1, s->row + r, (size_t)(s->n_rows - r) * sizeof *s->row);
	s->row[r] = row;
	s->n_rows++;
	row->n = 0;
	return row;
}

/* The first spot of a row at or after offset. */
static int seek(const struct shelf_row *row, size_t offset)
{
	int lo = 0, hi = row->n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (row->spot[mid].offset < offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Inserts a spot before those of the same or a greater offset; returns their number. */
static int insert(struct shelf *s, const struct spot *spot)
{
	int r = s->n_rows - 1, after = 0;

	while (r > 0 && s->row[r]->spot[0].offset >= spot->offset)
		after += s->row[r--]->n;
	struct shelf_row *row = r < 0 ? add_row(s, 0) : s->row[r];
	if (row->n == ROW_SPOTS) {
		struct shelf_row *next = add_row(s, r + 1);

		row->n = ROW_SPOTS / 2;
		next->n = ROW_SPOTS - row->n;
		memcpy(next->spot, row->spot + row->n, (size_t)next->n * sizeof *next->spot);
		if (next->spot[0].offset < spot->offset)
			row = next;
		else
			after += next->n;
	}
	const int at = seek(row, spot->offset);
	after += row->n - at;
	memmove(row->spot + at + 1, row->spot + at, (size_t)(row->n - at) * sizeof *row->spot);
	row->spot[at] = *spot;
	row->n++;
	s->n++;
	return after;
}

static void shelve(struct packing *k, struct shelf *s, const struct memory_piece *p)
{
	const int stretches = p->last < p->first ? 2 : 1;
	for (int i = 0; i < stretches; i++) {
		const struct spot spot = { .offset = p->offset,
					   .end = p->offset + p->bytes,
					   .first = stretches == 2 && i == 0 ? 0 : p->first,
					   .last = stretches == 2 && i == 1 ? INT_MAX : p->last,
					   .piece = (int)(p - k->piece) };
		k->effort += insert(s, &spot) / 8 + 2;
	}
}

/* Removes spots of pieces that are `out`. */
static void clear_out(struct packing *k, struct shelf *s)
{
	int kept_rows = 0;
	k->effort += s->n / 4 + 2;
	s->n = 0;
	for (int r = 0; r < s->n_rows; r++) {
		struct shelf_row *row = s->row[r];
		int kept = 0;

		for (int i = 0; i < row->n; i++)
			if (!k->piece[row->spot[i].piece].out)
				row->spot[kept++] = row->spot[i];
		row->n = kept;
		s->n += kept;
		if (kept) { /* a row that is empty now becomes a spare one */
			s->row[r] = s->row[kept_rows];
			s->row[kept_rows++] = row;
		}
	}
	s->n_rows = kept_rows;
}

/* Puts piece i at the lowest offset without overlap; false if it ends above the ceiling. */
static bool put(struct packing *k, int i, size_t ceiling)
{
	struct memory_piece *p = &k->piece[i];
	const bool around = p->last < p->first;
	const struct shelf *s = !around && p->last - p->first < k->slot_instrs ?
					&k->slot[p->first / k->slot_instrs] :
					&k->all;
	size_t top = 0;
	bool fits = false;
	int seen = 0;
	for (int r = 0; r < s->n_rows && !fits; r++) {
		const struct shelf_row *row = s->row[r];
		int j;

		for (j = 0; j < row->n; j++) {
			const struct spot *q = &row->spot[j];
			if (around ? q->first > p->last && q->last < p->first :
				     q->first > p->last || q->last < p->first)
				continue;
			fits = q->offset >= top + p->bytes;
			if (fits)
				break;
			if (q->end > top)
				top = q->end;
		}
		seen += j;
	}
	k->effort += seen + 4;
	if (top + p->bytes > ceiling)
		return false;
	p->offset = top;
	shelve(k, &k->all, p);
	for (int t = p->slot[0]; t <= p->slot[1]; t++)
		shelve(k, &k->slot[t], p);
	return true;
}

/* Puts the pieces order[from ..]; returns the turn of the first piece that does not fit; n: all fit. */
static int put_from(struct packing *k, int from, size_t ceiling)
{
	while (from < k->n && put(k, k->order[from], ceiling))
		from++;
	return from;
}

static void take_back(struct packing *k, int from, int to)
{
	for (int i = from; i < to; i++)
		k->piece[k->order[i]].out = true;
	clear_out(k, &k->all);
	for (int t = 0; t < k->n_slots; t++)
		clear_out(k, &k->slot[t]);
	for (int i = from; i < to; i++)
		k->piece[k->order[i]].out = false;
}

static void clear(struct packing *k)
{
	k->all.n = k->all.n_rows = 0;
	for (int t = 0; t < k->n_slots; t++)
		k->slot[t].n = k->slot[t].n_rows = 0;
}

static size_t height(const struct packing *k)
{
	size_t h = 0;
	for (int r = 0; r < k->all.n_rows; r++)
		for (int i = 0; i < k->all.row[r]->n; i++)
			if (k->all.row[r]->spot[i].end > h)
				h = k->all.row[r]->spot[i].end;
	return h;
}

/* ---- squeaky wheel ---- */

/* A packing of at most this height is not improved. */
static size_t good_height(size_t bound, size_t enough)
{
	size_t good = bound + (size_t)((double)bound * DLB_MEMORY_GOOD);
	return good > enough ? good : enough;
}

static size_t poor_height(size_t bound) { return bound + (size_t)((double)bound * DLB_MEMORY_POOR); }

bool dlb_memory_is_good(size_t bytes, size_t bound) { return bytes <= good_height(bound, 0); }

static size_t ceiling_below(size_t best, size_t bound)
{
	size_t step = (best - bound) / 50;
	return best - (step > DLB_PLACE_ALIGN ? step : DLB_PLACE_ALIGN);
}

/* Moves the piece at `turn` to an earlier turn, and puts the pieces from there on again; returns put_from's
 * result. */
static int advance(struct packing *k, int turn, size_t ceiling)
{
	double u = (double)(draw(k) >> 11) * 0x1p-53;
	int to = turn - (int)(u * u * u * (turn + 1)), who = k->order[turn];
	if (to == turn && turn > 0)
		to--;
	take_back(k, to, turn);
	memmove(k->order + to + 1, k->order + to, (size_t)(turn - to) * sizeof *k->order);
	k->order[to] = who;
	return put_from(k, to, ceiling);
}

static void shuffle(struct packing *k)
{
	memcpy(k->order, k->best, (size_t)k->n * sizeof *k->order);
	for (int i = 0; i < 1 + k->n / 50; i++) {
		int a = (int)(draw(k) % (uint64_t)k->n), b = (int)(draw(k) % (uint64_t)k->n), x = k->order[a];
		k->order[a] = k->order[b];
		k->order[b] = x;
	}
}

/* Lowers `best`, the height of k->best, until it is good or the effort is spent. The effort is smaller if
 * `enough` is given, because then a search has many candidates. out: offsets of the lowest packing. Returns
 * the new height. */
static size_t squeaky_wheel(struct packing *k, size_t best, size_t bound, size_t enough, size_t *out)
{
	size_t good = good_height(bound, enough);
	size_t poor = enough ? SIZE_MAX : poor_height(bound);
	size_t ceiling = ceiling_below(best, bound);
	int64_t start = k->effort;
	memcpy(k->order, k->best, (size_t)k->n * sizeof *k->order);
	clear(k);
	int turn = put_from(k, 0, ceiling), tries = 0;
	while (best > good && k->effort - start < (best > poor ? MORE_EFFORT : EFFORT)) {
		if (turn == k->n) {
			best = height(k);
			memcpy(k->best, k->order, (size_t)k->n * sizeof *k->order);
			for (int i = 0; i < k->n; i++)
				out[i] = k->piece[i].offset;
			tries = 0;
			if (best <= good)
				break;
			ceiling = ceiling_below(best, bound);
			clear(k);
			turn = put_from(k, 0, ceiling);
		} else if (++tries > PATIENCE) {
			tries = 0;
			shuffle(k);
			clear(k);
			turn = put_from(k, 0, ceiling);
		} else {
			turn = advance(k, turn, ceiling);
		}
	}
	return best;
}

/* ---- the plan ---- */

struct piece_rank { double key[2]; int piece; };
static int by_rank(const void *a, const void *b)
{
	const struct piece_rank *x = a, *y = b;
	for (int i = 0; i < 2; i++)
		if (x->key[i] != y->key[i])
			return x->key[i] > y->key[i] ? -1 : 1;
	return (x->piece > y->piece) - (x->piece < y->piece);
}

static void rank(struct packing *k, int rule, struct piece_rank *r)
{
	for (int i = 0; i < k->n; i++) {
		double bytes = (double)k->piece[i].bytes, life = k->piece[i].last - k->piece[i].first + 1.0;
		if (life < 1)
			life += k->n_instr;
		r[i] = rule == 0 ? (struct piece_rank){ { bytes, life }, i } :
		       rule == 1 ? (struct piece_rank){ { bytes * life, life }, i } :
				   (struct piece_rank){ { life, bytes }, i };
	}
	qsort(r, (size_t)k->n, sizeof *r, by_rank);
	for (int i = 0; i < k->n; i++)
		k->order[i] = r[i].piece;
}

static void packing_init(struct packing *k, const struct dlb_place *place, int n, int n_instr)
{
	*k = (struct packing){ .random = 88172645463325252u };
	k->piece = dlb_xcalloc((size_t)n + 1, sizeof *k->piece);
	k->order = dlb_xcalloc((size_t)n + 1, sizeof(int));
	k->best = dlb_xcalloc((size_t)n + 1, sizeof(int));
	k->n_instr = n_instr;
	k->n_slots = n / 16 < 1 ? 1 : n / 16 > MAX_SLOTS ? MAX_SLOTS : n / 16;
	k->slot_instrs = n_instr / k->n_slots + 1;
	for (int i = 0; i < n; i++) {
		if (place[i].offset == SIZE_MAX)
			continue;
		struct memory_piece *p = &k->piece[k->n++];
		*p = (struct memory_piece){ bytes_of(&place[i]),   0,    place[i].first, place[i].last,
					    { 0, k->n_slots - 1 }, false };
		if (wraps(&place[i]))
			continue;
		p->first = first_of(&place[i]);
		p->last = last_of(&place[i], n_instr);
		p->slot[0] = p->first / k->slot_instrs - 1;
		p->slot[0] = p->slot[0] < 0 ? 0 : p->slot[0];
		p->slot[1] = p->last / k->slot_instrs;
	}
}

static void shelf_release(struct shelf *s)
{
	for (int r = 0; r < s->n_all_rows; r++)
		free(s->row[r]);
	free(s->row);
}

static void packing_release(struct packing *k)
{
	for (int t = 0; t < MAX_SLOTS; t++)
		shelf_release(&k->slot[t]);
	shelf_release(&k->all);
	free(k->piece);
	free(k->order);
	free(k->best);
}

static size_t pack(struct dlb_place *place, int n, int n_instr, size_t height_before, size_t bound,
		   size_t enough)
{
	size_t good = good_height(bound, enough);
	struct packing k;
	packing_init(&k, place, n, n_instr);
	struct piece_rank *r = dlb_xcalloc((size_t)k.n + 1, sizeof *r);
	size_t *offset = dlb_xcalloc((size_t)k.n + 1, sizeof *offset), best = SIZE_MAX;
	for (int rule = 0; rule < 3 && best > good; rule++) {
		rank(&k, rule, r);
		clear(&k);
		put_from(&k, 0, SIZE_MAX);
		size_t h = height(&k);
		if (h >= best)
			continue;
		best = h;
		memcpy(k.best, k.order, (size_t)k.n * sizeof *k.best);
		for (int i = 0; i < k.n; i++)
			offset[i] = k.piece[i].offset;
	}
	if (best > good)
		best = squeaky_wheel(&k, best, bound, enough, offset);
	for (int i = 0, j = 0; i < n && best < height_before; i++)
		if (place[i].offset != SIZE_MAX)
			place[i].offset = offset[j++];
	free(offset);
	free(r);
	packing_release(&k);
	return best < height_before ? best : height_before;
}

size_t dlb_memory_plan(struct dlb_place *place, int n, int n_instr, size_t enough, size_t *bound)
{
	size_t h = in_program_order(place, n, n_instr);
	*bound = most_alive(place, n, n_instr);
	return h <= good_height(*bound, enough) ? h : pack(place, n, n_instr, h, *bound, enough);
}
