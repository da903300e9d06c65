/* Memory that ranks share, in one process: places as the first gap that is large enough gives them, what
 * other ranks see of it, and copies past the caches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/shared.h"
#include "util/rng.h"
#include "check.h"

enum { MOST = 40, PAGE = 4096, HUGE = 2 << 20 };

/* Blocks in order of their addresses; the first page is taken. */
struct plain_block {
	size_t begin, end;
};
static struct plain_block block[MOST + 1];
static int n_blocks;

static size_t up(size_t n, size_t to) { return n % to ? n - n % to + to : n; }

/* Takes the first gap that holds n bytes, whole pages; large blocks begin at a multiple of 2 MiB. */
static size_t take(size_t bytes)
{
	const size_t n = up(bytes ? bytes : 1, PAGE);

	for (int i = 0;; i++) {
		const size_t at = up(block[i].end, n < HUGE ? PAGE : HUGE);

		if (i + 1 < n_blocks && at + n > block[i + 1].begin)
			continue;
		for (int k = n_blocks++; k > i + 1; k--)
			block[k] = block[k - 1];
		block[i + 1] = (struct plain_block){ at, at + n };
		return at;
	}
}

static void give(int i)
{
	n_blocks--;
	for (; i < n_blocks; i++)
		block[i] = block[i + 1];
}

static void test_places(void)
{
	static const size_t sizes[] = { 0,           1,        4095, 4096,     4097,    20000,
					HUGE - PAGE, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE };
	struct dlb_region_key key;
	struct dlb_region *r = dlb_region_new(1, &key);
	struct dlb_rng rng;

	if (!r) {
		puts("no shared memory here");
		return;
	}
	char *base = dlb_region_base(r);
	dlb_rng_init(&rng, 6);
	block[0] = (struct plain_block){ 0, PAGE };
	n_blocks = 1;
	for (int round = 0; round < 600; round++) {
		if (n_blocks == 1 || (n_blocks < MOST && dlb_rng_below(&rng, 2))) {
			const size_t bytes = sizes[dlb_rng_below(&rng, sizeof sizes / sizeof *sizes)];
			char *p = dlb_region_alloc(r, bytes);

			assert(p && IS((size_t)(p - base), ==, take(bytes)));
			assert(!p[0] && !p[bytes / 2] && (!bytes || !p[bytes - 1]));
			p[0] = p[bytes / 2] = 1; /* to be zero again when it is released */
		} else {
			const int i = 1 + (int)dlb_rng_below(&rng, (uint64_t)n_blocks - 1);

			dlb_region_release(r, base + block[i].begin);
			give(i);
		}
		const int i = 1 + (int)dlb_rng_below(&rng, MOST);
		if (i < n_blocks) {
			char *p = base + block[i].begin;
			const size_t n = block[i].end - block[i].begin;

			assert(dlb_region_shares(r, p, n) && dlb_region_shares(r, p + n - 1, 1));
			assert(!dlb_region_shares(r, p + 1, n) && !dlb_region_shares(r, p - 1, 2));
		}
	}
	assert(!dlb_region_alloc(r, dlb_region_bytes(r)) && !dlb_region_alloc(r, SIZE_MAX));
	dlb_region_free(r);
	dlb_region_free(NULL);
}

/* Another mapping sees the same bytes, but for pages that were made private; and only with the right key. */
static void test_views(void)
{
	struct dlb_region_key key, wrong;
	struct dlb_region *r = dlb_region_new(2, &key);

	if (!r)
		return;
	char *p = dlb_region_alloc(r, 5 * PAGE), *theirs = dlb_region_enter(r, &key);
	const size_t at = (size_t)(p - dlb_region_base(r));
	assert(theirs && theirs != dlb_region_base(r) && IS(key.bytes, ==, dlb_region_bytes(r)));
	memset(p, 7, 5 * PAGE);
	assert(IS(theirs[at], ==, 7) && IS(theirs[at + 5 * PAGE - 1], ==, 7));
	/* whole pages within the part only: the first and the last are cut */
	assert(dlb_region_private(r, p + 100, 4 * PAGE));
	assert(IS(p[PAGE - 1], ==, 7) && IS(p[PAGE], ==, 0) && IS(p[4 * PAGE - 1], ==, 0) &&
	       IS(p[4 * PAGE], ==, 7));
	p[PAGE] = 9;
	assert(IS(theirs[at + PAGE], ==, 7));
	assert(dlb_region_shares(r, p, PAGE) && dlb_region_shares(r, p + 4 * PAGE, PAGE));
	assert(!dlb_region_shares(r, p, PAGE + 1) && !dlb_region_shares(r, p + 4 * PAGE - 1, 2) &&
	       !dlb_region_shares(r, p + 2 * PAGE, 1) && !dlb_region_shares(r, p, 5 * PAGE));
	assert(dlb_region_private(r, p + 1, PAGE - 1)); /* no whole page: nothing */
	assert(IS(p[1], ==, 7) && dlb_region_shares(r, p, PAGE));
	dlb_region_release(r, p);
	assert(IS(dlb_region_alloc(r, 5 * PAGE) == (void *)p, ==, true));
	assert(!p[0] && dlb_region_shares(r, p, 5 * PAGE));
	p[PAGE] = 5;
	assert(IS(theirs[at + PAGE], ==, 5));
	dlb_region_leave(r, theirs);
	for (int k = 0; k < 3; k++) {
		wrong = key;
		wrong.fd = k == 0 ? -1 : wrong.fd;
		wrong.bytes += k == 1;
		wrong.secret += k == 2;
		assert(!dlb_region_enter(r, &wrong));
	}
	struct dlb_wakeup *w = dlb_wakeup_of(dlb_region_base(r));
	const uint32_t seen = dlb_wakeup_count(w);
	dlb_wakeup_send(w);
	dlb_wakeup_send(w);
	assert(IS(dlb_wakeup_count(w), ==, seen + 2));
	dlb_wakeup_wait(w, seen, 60); /* it was sent before: no wait */
	dlb_region_free(r);
}

/* Copies of any length and alignment, and nothing beside them. */
static void test_copies(void)
{
	static const size_t lengths[] = { 0, 1, 63, 4095, 4096, 4097, 4159, 4160, 8191, 10000 };
	static unsigned char from[10200], to[10400], want[10400];

	for (size_t i = 0; i < sizeof from; i++)
		from[i] = (unsigned char)(i * 31 + i / 251);
	for (int k = 0; k < (int)(sizeof lengths / sizeof *lengths); k++)
		for (size_t at = 0; at < 130; at += at < 70 ? 1 : 13) {
			const size_t source = at * 5 % 67;

			memset(to, 0xee, sizeof to);
			memset(want, 0xee, sizeof want);
			memcpy(want + at, from + source, lengths[k]);
			dlb_copy_far(to + at, from + source, lengths[k]);
			assert(!memcmp(to, want, sizeof to));
		}
}

int main(void)
{
	test_places();
	test_views();
	test_copies();
	puts("shared memory: places, views, copies");
	return 0;
}
