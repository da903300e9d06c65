/* Minimum cuts: see min_cut.h. */
#include "place/min_cut.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "util/mem.h"

void dlb_min_cut_init(struct dlb_min_cut *c, int n_vertices)
{
	size_t n = (size_t)n_vertices + 1;
	*c = (struct dlb_min_cut){ .n = n_vertices };
	c->first = dlb_xmalloc(n * sizeof *c->first);
	memset(c->first, -1, n * sizeof *c->first);
	c->level = dlb_xcalloc(n, sizeof *c->level);
	c->queue = dlb_xcalloc(n, sizeof *c->queue);
	c->at = dlb_xcalloc(n, sizeof *c->at);
	c->path = dlb_xcalloc(n, sizeof *c->path);
}

void dlb_min_cut_release(struct dlb_min_cut *c)
{
	void *all[] = { c->first, c->next, c->to, c->room, c->given, c->level, c->queue, c->at, c->path };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

void dlb_min_cut_arc(struct dlb_min_cut *c, int from, int to, double capacity)
{
	if (c->n_arcs + 2 > c->cap_arcs) {
		size_t cap = (size_t)(c->cap_arcs = c->cap_arcs ? 2 * c->cap_arcs : 64);
		c->next = dlb_xrealloc(c->next, cap, sizeof *c->next);
		c->to = dlb_xrealloc(c->to, cap, sizeof *c->to);
		c->room = dlb_xrealloc(c->room, cap, sizeof *c->room);
		c->given = dlb_xrealloc(c->given, cap, sizeof *c->given);
	}
	for (int turn = 0; turn < 2; turn++) {
		int i = c->n_arcs++, v = turn ? to : from;
		c->to[i] = turn ? from : to;
		c->given[i] = turn ? 0 : capacity;
		c->next[i] = c->first[v];
		c->first[v] = i;
	}
}

/* level[v]: length of the shortest path of residual arcs from the source. Returns whether the sink is
 * reached. */
static bool find_levels(struct dlb_min_cut *c, int source, int sink, int64_t *budget)
{
	int head = 0, tail = 0;
	memset(c->level, -1, (size_t)c->n * sizeof *c->level);
	c->level[source] = 0;
	c->queue[tail++] = source;
	while (head < tail && c->level[sink] < 0) {
		int v = c->queue[head++];
		for (int i = c->first[v]; i >= 0; i = c->next[i], --*budget) {
			if (c->room[i] <= 0 || c->level[c->to[i]] >= 0)
				continue;
			c->level[c->to[i]] = c->level[v] + 1;
			c->queue[tail++] = c->to[i];
		}
	}
	return c->level[sink] >= 0;
}

/* Augments one residual path along rising levels; 0: there is none. */
static double push(struct dlb_min_cut *c, int source, int sink, int64_t *budget)
{
	int n = 0, v = source;
	while (v != sink) {
		int i = c->at[v];
		for (; i >= 0 && (c->room[i] <= 0 || c->level[c->to[i]] != c->level[v] + 1); i = c->next[i])
			--*budget;
		c->at[v] = i;
		if (i >= 0) {
			c->path[n++] = i;
			v = c->to[i];
		} else if (n) {				/* a dead end: back to the next arc */
			int back = c->path[--n];
			v = c->to[back ^ 1];
			c->at[v] = c->next[back];
		} else {
			return 0;
		}
	}
	double least = INFINITY;
	for (int k = 0; k < n; k++)
		least = fmin(least, c->room[c->path[k]]);
	for (int k = 0; k < n; k++) {
		c->room[c->path[k]] -= least;
		c->room[c->path[k] ^ 1] += least;
	}
	*budget -= n;
	return least;
}

double dlb_min_cut_value(struct dlb_min_cut *c, int source, int sink, int64_t *budget)
{
	double flow = 0, more;
	if (c->n_arcs)
		memcpy(c->room, c->given, (size_t)c->n_arcs * sizeof *c->room);
	while (*budget > 0 && find_levels(c, source, sink, budget)) {
		memcpy(c->at, c->first, (size_t)c->n * sizeof *c->at);
		while (*budget > 0 && (more = push(c, source, sink, budget)) > 0)
			flow += more;
	}
	return flow;
}
