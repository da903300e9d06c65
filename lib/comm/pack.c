/* Several arrays in one message: see pack.h. */
#include "comm/pack.h"
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "util/mem.h"

struct dlb_pack_part *dlb_pack_add(struct dlb_pack *p, void *x, int64_t n, int owner)
{
	DLB_GROW(p->part, p->n_parts, p->cap_parts);
	p->part[p->n_parts] = (struct dlb_pack_part){ .x = x, .n = n, .owner = owner };
	return &p->part[p->n_parts++];
}

/* The first element of part i that lies in `chunk` or a later one. */
static int64_t cut(const struct dlb_pack *p, int i, int chunk)
{
	const struct dlb_pack_part *a = &p->part[i];

	return a->owner < 0 ? dlb_chunk_at(a->n, p->n_chunks, chunk) : chunk > a->owner ? a->n : 0;
}

static int64_t begin(const struct dlb_pack *p, int chunk)
{
	int64_t n = 0;

	for (int i = 0; i < p->n_parts; i++)
		n += cut(p, i, chunk);
	return n;
}

void dlb_pack_lay_out(struct dlb_pack *p, int n_chunks, size_t element_bytes)
{
	if (!p->at || n_chunks != p->n_chunks) {
		free(p->at);
		p->at = dlb_xcalloc((size_t)n_chunks + 1, sizeof *p->at);
	}
	p->n_chunks = n_chunks;
	p->element_bytes = element_bytes;
	for (int c = 0; c <= n_chunks; c++)
		p->at[c] = begin(p, c);
	p->n = p->at[n_chunks];
}

/* Copies between the buffer and the arrays, of one chunk. */
static void copy_chunk(const struct dlb_pack *p, char *buffer, int c, bool load)
{
	char *at = buffer + (size_t)p->at[c] * p->element_bytes;

	for (int i = 0; i < p->n_parts; i++) {
		const int64_t from = cut(p, i, c), n = cut(p, i, c + 1) - from;
		const size_t bytes = (size_t)n * p->element_bytes;
		char *x = (char *)p->part[i].x + (size_t)from * p->element_bytes;

		if (n)
			memcpy(load ? at : x, load ? x : at, bytes);
		at += bytes;
	}
}

void dlb_pack_load_chunk(const struct dlb_pack *p, void *buffer, int chunk)
{
	copy_chunk(p, buffer, chunk, true);
}

void dlb_pack_load(const struct dlb_pack *p, void *buffer)
{
	for (int c = 0; c < p->n_chunks; c++)
		copy_chunk(p, buffer, c, true);
}

void dlb_pack_unload(const struct dlb_pack *p, void *buffer)
{
	for (int c = 0; c < p->n_chunks; c++)
		copy_chunk(p, buffer, c, false);
}

void *dlb_pack_at(const struct dlb_pack *p, void *buffer, int i, int chunk)
{
	int64_t at = p->at[chunk];

	for (int j = 0; j < i; j++)
		at += cut(p, j, chunk + 1) - cut(p, j, chunk);
	return (char *)buffer + (size_t)at * p->element_bytes;
}

void dlb_pack_release(struct dlb_pack *p)
{
	free(p->part);
	free(p->at);
}
