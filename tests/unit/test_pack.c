/* pack: arrays in one message lie chunk after chunk, each chunk with the slices of all arrays in order, as
 * a naive count of elements says; whole arrays lie in the chunk of their owner; unloading restores them. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/allreduce.h"
#include "comm/pack.h"

enum { PARTS = 5, MOST = 40 };

/* The chunk of element k of n: the only one whose cuts enclose it. */
static int chunk_of(int64_t n, int n_chunks, int64_t k)
{
	for (int c = 0; c < n_chunks; c++)
		if (dlb_chunk_at(n, n_chunks, c) <= k && k < dlb_chunk_at(n, n_chunks, c + 1))
			return c;
	abort();
}

static void lies_in_chunks(int n_chunks, const int64_t n[PARTS], const int owner[PARTS])
{
	float x[PARTS][MOST], was[PARTS][MOST], buffer[PARTS * MOST], naive[PARTS * MOST];
	struct dlb_pack p = { 0 };
	int64_t at = 0;

	for (int i = 0; i < PARTS; i++) {
		for (int k = 0; k < MOST; k++)
			x[i][k] = was[i][k] = (float)(100 * i + k);
		dlb_pack_add(&p, x[i], n[i], owner[i])->class = i;
	}
	dlb_pack_lay_out(&p, n_chunks, sizeof(float));
	for (int c = 0; c < n_chunks; c++) {
		assert(p.at[c] == at);
		for (int i = 0; i < PARTS; i++) {
			assert(dlb_pack_at(&p, buffer, i, c) == buffer + at);
			for (int64_t k = 0; k < n[i]; k++)
				if ((owner[i] < 0 ? chunk_of(n[i], n_chunks, k) : owner[i]) == c)
					naive[at++] = x[i][k];
		}
	}
	assert(p.at[n_chunks] == at && p.n == at);
	memset(buffer, 0, sizeof buffer);
	dlb_pack_load(&p, buffer);
	assert(!memcmp(buffer, naive, (size_t)at * sizeof(float)));
	for (int i = 0; i < PARTS; i++)
		for (int64_t k = 0; k < n[i]; k++)
			x[i][k] = -1;
	dlb_pack_unload(&p, buffer);
	assert(!memcmp(x, was, sizeof x));		/* beyond n too */
	/* shorter, as a rank that adapts: the same place for the cuts */
	p.part[0].n = n[0] / 2;
	dlb_pack_lay_out(&p, n_chunks, sizeof(float));
	assert(p.n == at - (n[0] - n[0] / 2) && p.part[1].class == 1);
	dlb_pack_release(&p);
}

int main(void)
{
	const int64_t n[PARTS] = { 7, 1, MOST, 0, 16 };
	int runs = 0;

	for (int n_chunks = 1; n_chunks <= 9; n_chunks++)
		for (int o = -1; o < n_chunks; o++, runs++)
			lies_in_chunks(n_chunks, n,
				       (const int[PARTS]){ -1, o, -1, o, o < 0 ? -1 : n_chunks - 1 - o });
	printf("%d layouts\n", runs);
	return 0;
}
