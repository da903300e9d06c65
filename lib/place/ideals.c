/* Lists ideals: all of them by breadth-first search with Zobrist hashing, or the prefixes of a few orders. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/ideals.h"
#include "util/rng.h"

/* ---- items: strongly connected classes (Tarjan, SIAM J. Comput. 1(2), 1972) ---- */

struct tarjan { const struct dlb_port *port; int *low, *number, *stack, n_stack, n_seen, *comp, n_comps; };

static void connect(struct tarjan *t, int root)
{
	const struct dlb_port *port = t->port;
	int *call = dlb_xmalloc(((size_t)port->n + 1) * sizeof *call),
	    *next = dlb_xmalloc(((size_t)port->n + 1) * sizeof *next);
	int depth = 0;
	call[0] = root;
	next[0] = port->forward_start[root];
	t->number[root] = t->low[root] = ++t->n_seen;
	t->stack[t->n_stack++] = root;
	while (depth >= 0) {
		int v = call[depth];
		if (next[depth] < port->forward_start[v + 1]) {
			int w = port->forward[next[depth]++];
			if (!t->number[w]) {
				t->number[w] = t->low[w] = ++t->n_seen;
				t->stack[t->n_stack++] = w;
				call[++depth] = w;
				next[depth] = port->forward_start[w];
			} else if (t->comp[w] < 0 && t->number[w] < t->low[v]) {
				t->low[v] = t->number[w];
			}
			continue;
		}
		if (t->low[v] == t->number[v]) {
			int w;
			do {
				w = t->stack[--t->n_stack];
				t->comp[w] = t->n_comps;
			} while (w != v);
			t->n_comps++;
		}
		if (--depth >= 0 && t->low[v] < t->low[call[depth]])
			t->low[call[depth]] = t->low[v];
	}
	free(call);
	free(next);
}

/* Successors of items, with repeats. */
struct dag { int n, *start, *to, *n_preds; };

static void find_items(struct dlb_ideals *s, const struct dlb_port *port, struct dag *g)
{
	size_t n = (size_t)port->n + 1;
	struct tarjan t = { .port = port };
	memset(s, 0, sizeof *s);
	t.low = dlb_xcalloc(n, sizeof(int));
	t.number = dlb_xcalloc(n, sizeof(int));
	t.stack = dlb_xcalloc(n, sizeof(int));
	t.comp = s->item_of = dlb_arena_array(&s->arena, n, sizeof(int));
	for (int i = 0; i < port->n; i++)
		t.comp[i] = -1;
	for (int i = port->n - 1; i >= 0; i--)
		if (!t.number[i])
			connect(&t, i);
	s->n_items = t.n_comps;
	for (int i = 0; i < port->n; i++)		/* Tarjan finds sinks first */
		s->item_of[i] = t.n_comps - 1 - s->item_of[i];
	s->class_start = dlb_arena_array(&s->arena, n + 1, sizeof(int));
	s->class_list = dlb_arena_array(&s->arena, n, sizeof(int));
	for (int i = 0; i < port->n; i++)
		s->class_start[s->item_of[i] + 1]++;
	for (int i = 0; i < s->n_items; i++)
		s->class_start[i + 1] += s->class_start[i];
	memset(t.low, 0, n * sizeof(int));
	for (int i = 0; i < port->n; i++)
		s->class_list[s->class_start[s->item_of[i]] + t.low[s->item_of[i]]++] = i;
	g->n = s->n_items;
	g->start = dlb_xcalloc(n + 1, sizeof(int));
	g->to = dlb_xcalloc((size_t)port->forward_start[port->n] + 1, sizeof(int));
	g->n_preds = dlb_xcalloc(n, sizeof(int));
	int m = 0;
	for (int i = 0; i < s->n_items; i++) {
		for (int k = s->class_start[i]; k < s->class_start[i + 1]; k++) {
			int c = s->class_list[k];
			for (int e = port->forward_start[c]; e < port->forward_start[c + 1]; e++) {
				int j = s->item_of[port->forward[e]];
				if (j != i) {
					g->to[m++] = j;
					g->n_preds[j]++;
				}
			}
		}
		g->start[i + 1] = m;
	}
	free(t.low);
	free(t.number);
	free(t.stack);
}

static void release_dag(struct dag *g)
{
	free(g->start);
	free(g->to);
	free(g->n_preds);
}

/* ---- a growing family ---- */

struct family {
	int words, n, cap, *slot, n_slots, n_links, cap_links;
	uint64_t *bits, *hash, *zobrist;
	/* before: [item][words] predecessors of the item; NULL: `ready` is not used */
	const struct dag *dag; const uint64_t *before;
	/* [ideal][words] items whose predecessors are all in it */
	uint64_t *ready;
	struct ideal_link { int ideal, below, item; } *link;
};

static void init_family(struct family *f, int n_items, uint64_t seed)
{
	struct dlb_rng r;
	memset(f, 0, sizeof *f);
	f->words = n_items / 64 + 1;
	f->n_slots = 1 << 12;
	f->slot = dlb_xmalloc((size_t)f->n_slots * sizeof *f->slot);
	memset(f->slot, -1, (size_t)f->n_slots * sizeof *f->slot);
	f->zobrist = dlb_xmalloc(((size_t)n_items + 1) * sizeof *f->zobrist);
	dlb_rng_init(&r, seed);
	for (int i = 0; i < n_items; i++)
		f->zobrist[i] = dlb_rng_next(&r);
}

static void release_family(struct family *f)
{
	free(f->slot);
	free(f->bits);
	free(f->hash);
	free(f->zobrist);
	free(f->ready);
	free(f->link);
}

static void grow_slots(struct family *f)
{
	free(f->slot);
	f->n_slots *= 2;
	f->slot = dlb_xmalloc((size_t)f->n_slots * sizeof *f->slot);
	memset(f->slot, -1, (size_t)f->n_slots * sizeof *f->slot);
	for (int i = 0; i < f->n; i++) {
		size_t k = f->hash[i] & (size_t)(f->n_slots - 1);
		while (f->slot[k] >= 0)
			k = (k + 1) & (size_t)(f->n_slots - 1);
		f->slot[k] = i;
	}
}

static bool waits(const struct family *f, int ideal, int item)
{
	size_t W = (size_t)f->words;
	const uint64_t *have = &f->bits[(size_t)ideal * W], *need = &f->before[(size_t)item * W];
	for (size_t w = 0; w < W; w++)
		if (need[w] & ~have[w])
			return true;
	return false;
}

/* Sets the ready items of a new ideal: those of the ideal below, without `item`, and the successors of `item`
 * whose other predecessors are all in the ideal. item -1: the empty ideal. */
static void find_ready(struct family *f, int id, int below, int item)
{
	size_t W = (size_t)f->words;
	uint64_t *own = &f->ready[(size_t)id * W];
	int first = item < 0 ? 0 : f->dag->start[item], last = item < 0 ? f->dag->n : f->dag->start[item + 1];
	if (item < 0) {
		memset(own, 0, W * sizeof *own);
	} else {
		memcpy(own, &f->ready[(size_t)below * W], W * sizeof *own);
		own[(size_t)item / 64] &= ~((uint64_t)1 << (item & 63));
	}
	for (int k = first; k < last; k++) {
		int i = item < 0 ? k : f->dag->to[k];
		if (!waits(f, id, i))
			own[(size_t)i / 64] |= (uint64_t)1 << (i & 63);
	}
}

/* The ideal of `below` plus item (-1: the empty ideal), found or added. */
static int join(struct family *f, int below, int item)
{
	size_t W = (size_t)f->words;
	uint64_t h = item < 0 ? 0 : f->hash[below] ^ f->zobrist[item];
	size_t k = h & (size_t)(f->n_slots - 1), word = (size_t)item / 64;
	uint64_t bit = (uint64_t)1 << (item & 63);
	for (; f->slot[k] >= 0; k = (k + 1) & (size_t)(f->n_slots - 1)) {
		int at = f->slot[k];
		if (f->hash[at] != h)
			continue;
		const uint64_t *a = &f->bits[(size_t)at * W], *b = &f->bits[(size_t)below * W];
		bool same = true;
		for (size_t w = 0; w < W; w++)
			same &= a[w] == (b[w] | (w == word ? bit : 0));
		if (same)
			return at;
	}
	if (f->n == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 1024;
		f->bits = dlb_xrealloc(f->bits, (size_t)f->cap * W, sizeof *f->bits);
		f->hash = dlb_xrealloc(f->hash, (size_t)f->cap, sizeof *f->hash);
		if (f->before)
			f->ready = dlb_xrealloc(f->ready, (size_t)f->cap * W, sizeof *f->ready);
	}
	int id = f->n++;
	uint64_t *own = &f->bits[(size_t)id * W];
	if (item < 0) {
		memset(own, 0, W * sizeof *own);
	} else {
		memcpy(own, &f->bits[(size_t)below * W], W * sizeof *own);
		own[word] |= bit;
	}
	f->hash[id] = h;
	f->slot[k] = id;
	if (f->before)
		find_ready(f, id, below, item);
	if (2 * f->n > f->n_slots)
		grow_slots(f);
	return id;
}

static void link_down(struct family *f, int ideal, int below, int item)
{
	DLB_GROW(f->link, f->n_links, f->cap_links);
	f->link[f->n_links++] = (struct ideal_link){ ideal, below, item };
}

static int size_of(const struct family *f, int i)
{
	int n = 0;
	for (int w = 0; w < f->words; w++)
		n += __builtin_popcountll(f->bits[(size_t)i * (size_t)f->words + (size_t)w]);
	return n;
}

/* Numbers ideals by size and sorts links by ideal. */
static void finish(struct dlb_ideals *s, struct family *f)
{
	int *rank = dlb_xcalloc((size_t)f->n + 1, sizeof *rank),
	    *at = dlb_xcalloc((size_t)s->n_items + 2, sizeof *at);
	for (int i = 0; i < f->n; i++)
		at[size_of(f, i) + 1]++;
	for (int i = 0; i <= s->n_items; i++)
		at[i + 1] += at[i];
	for (int i = 0; i < f->n; i++)
		rank[i] = at[size_of(f, i)]++;
	s->n = f->n;
	s->words = f->words;
	s->bits = dlb_arena_array(&s->arena, (size_t)f->n * (size_t)f->words, sizeof *s->bits);
	for (int i = 0; i < f->n; i++)
		memcpy(&s->bits[(size_t)rank[i] * (size_t)f->words], &f->bits[(size_t)i * (size_t)f->words],
		       (size_t)f->words * sizeof *s->bits);
	s->down_start = dlb_arena_array(&s->arena, (size_t)f->n + 2, sizeof(int));
	s->down = dlb_arena_array(&s->arena, (size_t)f->n_links + 1, sizeof *s->down);
	int *fill = dlb_xcalloc((size_t)f->n + 1, sizeof *fill);
	for (int i = 0; i < f->n_links; i++)
		s->down_start[rank[f->link[i].ideal] + 1]++;
	for (int i = 0; i < f->n; i++)
		s->down_start[i + 1] += s->down_start[i];
	for (int i = 0; i < f->n_links; i++) {
		int r = rank[f->link[i].ideal], n = 0;
		struct dlb_ideal_below d = { rank[f->link[i].below], f->link[i].item };
		while (n < fill[r] && s->down[s->down_start[r] + n].item != d.item)
			n++;
		if (n == fill[r])
			s->down[s->down_start[r] + fill[r]++] = d;
	}
	int kept = 0;				/* drops links found twice */
	for (int i = 0; i < f->n; i++) {
		int from = s->down_start[i];
		s->down_start[i] = kept;
		for (int k = 0; k < fill[i]; k++)
			s->down[kept++] = s->down[from + k];
	}
	s->down_start[f->n] = kept;
	free(fill);
	free(rank);
	free(at);
}

bool dlb_ideals_all(struct dlb_ideals *s, const struct dlb_port *port, int most)
{
	struct dag g;
	struct family f;
	find_items(s, port, &g);
	init_family(&f, s->n_items, 1);
	size_t W = (size_t)f.words;
	uint64_t *before = dlb_xcalloc((size_t)s->n_items * W + 1, sizeof *before);
	for (int i = 0; i < g.n; i++)
		for (int k = g.start[i]; k < g.start[i + 1]; k++)
			before[(size_t)g.to[k] * W + (size_t)i / 64] |= (uint64_t)1 << (i & 63);
	f.dag = &g;
	f.before = before;
	join(&f, -1, -1);
	for (int id = 0; id < f.n && f.n <= most; id++) {
		for (size_t w = 0; w < W; w++) {
			for (uint64_t left = f.ready[(size_t)id * W + w]; left; left &= left - 1) {
				int i = (int)w * 64 + __builtin_ctzll(left);
				link_down(&f, join(&f, id, i), id, i);
			}
		}
	}
	bool all = f.n <= most;
	if (all)
		finish(s, &f);
	else
		dlb_ideals_release(s);
	free(before);
	release_family(&f);
	release_dag(&g);
	return all;
}

void dlb_ideals_orders(struct dlb_ideals *s, const struct dlb_port *port, int n_orders, uint64_t seed)
{
	struct dag g;
	struct family f;
	struct dlb_rng r;
	find_items(s, port, &g);
	init_family(&f, s->n_items, 1);
	dlb_rng_init(&r, seed);
	int *ready = dlb_xcalloc((size_t)g.n + 1, sizeof *ready),
	    *waits = dlb_xcalloc((size_t)g.n + 1, sizeof *waits);
	int empty = join(&f, -1, -1);
	for (int o = 0; o < n_orders; o++) {
		int n = 0, at = empty;
		memcpy(waits, g.n_preds, (size_t)g.n * sizeof *waits);
		for (int i = g.n - 1; i >= 0; i--)
			if (!waits[i])
				ready[n++] = i;
		/* a stack: depth first; a queue: breadth first; else random near the top */
		while (n) {
			int k = o == 0 ? n - 1 :
				o == 1 ? 0 :
					 n - 1 - (int)dlb_rng_below(&r, (uint64_t)(n < 3 ? n : 3));
			int i = ready[k];
			memmove(&ready[k], &ready[k + 1], (size_t)(n - k - 1) * sizeof *ready);
			n--;
			int next = join(&f, at, i);
			link_down(&f, next, at, i);
			at = next;
			for (int e = g.start[i + 1] - 1; e >= g.start[i]; e--)
				if (--waits[g.to[e]] == 0)
					ready[n++] = g.to[e];
		}
	}
	free(ready);
	free(waits);
	finish(s, &f);
	release_family(&f);
	release_dag(&g);
}

void dlb_ideals_release(struct dlb_ideals *s)
{
	dlb_arena_release(&s->arena);
	memset(s, 0, sizeof *s);
}
