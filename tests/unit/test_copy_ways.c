/* Copies through the caches and past them: the same bytes, and which way is taken by the seconds that each
 * took, by a clock of this program's own; and arrays of a device in host memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "exec/host_values.h"
#include "util/clock.h"
#include "check.h"

static double clock_s;

double dlb_clock_s(void) { return clock_s; }
double dlb_clock_thread_cpu_s(void) { return clock_s; }
void dlb_sleep_s(double s) { clock_s += s; }

/* ---- the bytes ---- */

static void far_bytes(void)
{
	enum { MOST = 4 * 4096, GUARD = 128 };
	static const size_t sizes[] = { 0, 1, 63, 4095, 4096, 4097, 4159, 4160, 4223, 8192, 10000 };
	unsigned char *from = malloc(MOST), *to = malloc(MOST);

	for (int i = 0; i < MOST; i++)
		from[i] = (unsigned char)(i * 31 + i / 251);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (size_t at = 0; at < 66; at += 13)
			for (size_t of = 0; of < 66; of += 11) {
				const size_t n = sizes[i];

				memset(to, 0xee, MOST);
				dlb_copy_far(to + GUARD + at, from + of, n);
				assert(!memcmp(to + GUARD + at, from + of, n));
				for (size_t k = 0; k < GUARD; k++)
					assert(to[at + k] == 0xee && to[GUARD + at + n + k] == 0xee);
			}
	free(from);
	free(to);
}

/* ---- the way ---- */

/* The ways of the next n copies of 8192 bytes, N or F, which take these seconds. */
static const char *ways(struct dlb_copy_tuner *t, int n, double near_s, double far_s)
{
	static char text[600];

	for (int i = 0; i < n; i++) {
		double start_s = -1;
		const enum dlb_copy_way way = dlb_copy_tuner_begin(t, 8192, &start_s);

		assert(IS(start_s, ==, clock_s));
		text[i] = way == DLB_COPY_FAR ? 'F' : 'N';
		clock_s += way == DLB_COPY_FAR ? far_s : near_s;
		dlb_copy_tuner_end(t, way, 8192, start_s);
	}
	text[n] = '\0';
	return text;
}

static void tuned(void)
{
	struct dlb_copy_tuner t = { .n = 0 };
	double start_s = -1;
	char from[100] = "text", to[100] = "";

	assert(SAME(ways(&t, 8, 1, 0.5), "NFNFFFFF")); /* faster by far */
	assert(!strspn(ways(&t, 248, 1, 0.5), "N"));
	assert(SAME(ways(&t, 8, 1, 0.75), "NFNFNNNN")); /* tried again, and not by so much */
	t = (struct dlb_copy_tuner){ .n = 0 };
	assert(SAME(ways(&t, 1, 8, 0), "N") && SAME(ways(&t, 1, 0, 4), "F"));
	assert(IS(t.s[DLB_COPY_NEAR], ==, 8.0 / 8192) && IS(t.s[DLB_COPY_FAR], ==, 4.0 / 8192));
	assert(SAME(ways(&t, 2, 2, 16), "NF")); /* the least of the last two of each */
	assert(IS(t.s[DLB_COPY_NEAR], ==, 2.0 / 8192) && IS(t.s[DLB_COPY_FAR], ==, 4.0 / 8192));
	assert(SAME(ways(&t, 1, 32, 0), "N") && IS(t.s[DLB_COPY_NEAR], ==, 2.0 / 8192));
	assert(SAME(ways(&t, 1, 16, 0), "N") && IS(t.s[DLB_COPY_NEAR], ==, 16.0 / 8192));
	assert(SAME(ways(&t, 1, 0, 1), "F"));
	/* short copies are not timed */
	const struct dlb_copy_tuner before = t;

	assert(dlb_copy_tuner_begin(&t, 4095, &start_s) == DLB_COPY_NEAR && IS(start_s, ==, -1));
	dlb_copy_tuner_end(&t, DLB_COPY_NEAR, 4095, 0);
	assert(IS(before.n, ==, t.n) && IS(before.s[0], ==, t.s[0]) && IS(before.last[0], ==, t.last[0]));
	assert(dlb_copy_tuner_begin(&t, 4096, &start_s) == DLB_COPY_FAR && IS(start_s, ==, clock_s));
	dlb_copy_there(&t, to, from, sizeof to);
	assert(SAME(to, "text"));
	dlb_copy_there(&t, to, NULL, 0);
	char *big = calloc(2, 8192);

	memset(big, 7, 8192);
	for (int i = 0; i < 2; i++) {
		t.n = (unsigned)i; /* near, far */
		memset(big + 8192, 0, 8192);
		dlb_copy_there(&t, big + 8192, big, 8192);
		assert(!memcmp(big, big + 8192, 8192) && IS(t.n, ==, i + 1));
	}
	free(big);
}

/* ---- arrays of a device ---- */

static int n_syncs;
static bool fails;

static void carry(struct dlb_backend *be, void *to, const void *from, size_t bytes)
{
	(void)be;
	memcpy(to, from, bytes);
}

static int sync_device(struct dlb_backend *be, struct dlb_error *err)
{
	(void)be;
	n_syncs++;
	return fails ? dlb_fail(err, NULL, "the device fails") : 0;
}

static void values_of_a_device(void)
{
	const struct dlb_backend_ops device = { .upload = carry, .download = carry, .sync = sync_device },
				     memory = { .is_host_memory = true };
	struct dlb_backend be = { .ops = &memory };
	struct dlb_host_values h = { .be = &be };
	struct dlb_error err = { .what = "" };
	char a[8] = "first", b[8] = "second", *x, *y;

	assert(dlb_host_value(&h, a, 6) == a && IS(h.n, ==, 0));
	assert(IS(dlb_host_values_get(&h, &err), ==, 0) && IS(dlb_host_values_put(&h, &err), ==, 0) &&
	       IS(n_syncs, ==, 0));
	be.ops = &device;
	x = dlb_host_value(&h, a, 6);
	y = dlb_host_value(&h, b, 7);
	assert(x != a && y != b && SAME(x, "first") && SAME(y, "second"));
	assert(IS(dlb_host_values_get(&h, &err), ==, 0) && IS(n_syncs, ==, 1));
	strcpy(x, "third");
	strcpy(y, "fourth");
	assert(SAME(a, "first") && IS(dlb_host_values_put(&h, &err), ==, 0) && IS(n_syncs, ==, 2));
	assert(SAME(a, "third") && SAME(b, "fourth"));
	fails = true;
	assert(IS(dlb_host_values_get(&h, &err), ==, -1) && IS(dlb_host_values_put(&h, &err), ==, -1));
	dlb_host_values_release(&h);
}

int main(void)
{
	far_bytes();
	tuned();
	values_of_a_device();
	return 0;
}
