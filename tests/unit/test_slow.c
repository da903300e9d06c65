/* --slow: time and sleep debt of a slowed op, with and without shared cores; waits reduce the debt; no
 * message is visible before its time. No upper bound of real times is tested. */
#include <math.h>
#include <stdio.h>

#include "exec/slow.h"
#include "util/clock.h"
#include "check.h"

static double work(int n)
{
	volatile double x = 1.0;

	for (int i = 0; i < n; i++)
		x = x * 1.0000001 + 1e-9;
	return x;
}

static void a_node_as_it_is_owes_nothing(void)
{
	struct dlb_slow w = { .factor = 1.0, .sleeps = true };
	struct dlb_op_time t = dlb_slow_start(&w);

	work(1000);
	dlb_slow_end(&w, &t, NULL);
	assert(IS(t.end_s, >=, t.start_s) && IS(w.owed_s, ==, 0.0));
	assert(IS(dlb_slow_waited(&w, 0.25), ==, 0.25));
}

static void spinning_ends_when_it_says(void)
{
	struct dlb_slow w = { .factor = 3.0 };
	struct dlb_op_time t = dlb_slow_start(&w);
	double cpu_s = dlb_clock_thread_cpu_s(), own_s;

	work(200000);
	own_s = dlb_clock_thread_cpu_s() - cpu_s;
	dlb_slow_end(&w, &t, NULL);
	assert(IS(dlb_clock_thread_cpu_s() - cpu_s, >=, 3.0 * own_s * 0.999));
	assert(IS(t.end_s - t.start_s, >, t.took_s) && IS(t.end_s, <=, dlb_clock_s()) &&
	       IS(w.owed_s, ==, 0.0));
}

/* Successive ops are reported with their slowed times, one after the other; each has its own debt. */
static void sleeping_adds_up(void)
{
	struct dlb_slow w = { .factor = 50.0, .sleeps = true };
	double before_s = dlb_clock_s(), lasted_s = 0.0;
	struct dlb_op_time t = { .end_s = before_s };

	for (int i = 0; i < 5; i++) {
		const double last_s = t.end_s;

		t = dlb_slow_start(&w);
		work(100000);
		dlb_slow_end(&w, &t, NULL);
		assert(IS(t.end_s, >, t.start_s) && IS(t.start_s, >=, last_s - 1e-9));
		assert(fabs(t.end_s - t.start_s - 50.0 * t.cpu_s) < 1e-6 || w.owed_s <= 0.0);
		lasted_s += t.end_s - t.start_s;
	}
	assert(IS(t.end_s - before_s, >=, lasted_s - 1e-6));
	if (w.owed_s > 20e-6) {
		dlb_slow_settle(&w);
		assert(IS(dlb_clock_s(), >=, t.end_s - 1e-9) && IS(w.owed_s, <=, 0.0));
	}
}

/* The least time of a kernel counts, not the current one. */
static void a_cold_cache_does_not_count(void)
{
	struct dlb_slow w = { .factor = 10.0, .sleeps = true };
	struct dlb_least_cpu least = { .n = 1, .now_s = 1e-9, .before_s = 1e-9 };
	struct dlb_op_time t = dlb_slow_start(&w);

	work(100000);
	dlb_slow_end(&w, &t, &least);
	assert(IS(least.now_s, ==, 1e-9) && IS(least.n, ==, 2));
	/* it lasted too long: negative debt, up to the limit */
	assert(IS(w.owed_s, <, 0.0) && IS(w.owed_s, >=, -1e-3));
	assert(IS(t.end_s - t.start_s, <=, 1e-6) && IS(t.took_s, >=, t.cpu_s / 2) && IS(t.took_s, >, 1e-6));
}

static void waits_are_taken_off(void)
{
	struct dlb_slow w = { .factor = 2.0, .sleeps = true, .owed_s = 2.0 };

	assert(IS(dlb_slow_waited(&w, 0.5), ==, 0.0) && IS(w.owed_s, ==, 1.5));
	assert(IS(dlb_slow_waited(&w, 2.5), ==, 1.0) && IS(w.owed_s, ==, 0.0));
	w.owed_s = -0.75;
	assert(IS(dlb_slow_waited(&w, 0.5), ==, 0.5) && IS(w.owed_s, ==, -0.25));
	assert(IS(dlb_slow_waited(&w, 0.5), ==, 0.5) && IS(w.owed_s, ==, 0.0));
}

int main(void)
{
	a_node_as_it_is_owes_nothing();
	spinning_ends_when_it_says();
	sleeping_adds_up();
	a_cold_cache_does_not_count();
	waits_are_taken_off();
	puts("slow: ok");
	return 0;
}
