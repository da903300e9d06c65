/* Slowed nodes: see slow.h. */
#include "exec/slow.h"

#include <math.h>
#include "util/clock.h"

#define LEAST_SLEEP_S 20e-6			/* about as long as falling asleep and waking takes */
#define MOST_CREDIT_S 1e-3			/* a node that was delayed catches up by no more */
#define MOST_LATE_S 50e-6			/* most time at the end of a sleep that is spent awake */
/* runs in a period; a kernel's least CPU time is taken over the current and the previous period */
enum { LEAST_OF = 128 };

double dlb_slow_factor(double start, const struct dlb_slow_change *change, int n, int node, int64_t step)
{
	for (int i = 0; i < n; i++)
		if (change[i].node == node && change[i].step <= step)
			start *= change[i].factor;
	return fmax(start, 1.0);
}

struct dlb_op_time dlb_slow_start(const struct dlb_slow *w)
{
	return (struct dlb_op_time){ .start_s = dlb_clock_s(),
				     .cpu_s = w->factor > 1.0 ? dlb_clock_thread_cpu_s() : 0.0 };
}

static double least_of(struct dlb_least_cpu *l, double cpu_s)
{
	if (l->n++ % LEAST_OF == 0) {	/* forgets old runs: a machine may slow down for good */
		l->before_s = l->now_s;
		l->now_s = cpu_s;
	}
	l->now_s = cpu_s < l->now_s ? cpu_s : l->now_s;
	return l->n > LEAST_OF && l->before_s < l->now_s ? l->before_s : l->now_s;
}

static void spin(double s)
{
	const double from = dlb_clock_thread_cpu_s();

	while (dlb_clock_thread_cpu_s() - from < s)
		;
}

void dlb_slow_end(struct dlb_slow *w, struct dlb_op_time *t, struct dlb_least_cpu *least)
{
	double lasts_s;

	t->end_s = dlb_clock_s();
	t->took_s = t->end_s - t->start_s;
	if (w->factor <= 1.0)
		return;
	t->cpu_s = dlb_clock_thread_cpu_s() - t->cpu_s;
	if (!w->sleeps) {
		spin(t->cpu_s * (w->factor - 1.0));
		t->end_s = dlb_clock_s();
		return;
	}
	lasts_s = w->factor * (least ? least_of(least, t->cpu_s) : t->cpu_s);
	w->owed_s = fmax(-MOST_CREDIT_S, w->owed_s + lasts_s - (t->end_s - t->start_s));
	t->end_s += fmax(0.0, w->owed_s);
	t->start_s = fmax(t->start_s, t->end_s - lasts_s);
}

void dlb_slow_settle(struct dlb_slow *w)
{
	double until_s, woke_s;

	if (w->owed_s < LEAST_SLEEP_S)
		return;
	until_s = dlb_clock_s() + w->owed_s;
	if (w->owed_s > w->late_s + LEAST_SLEEP_S) {
		dlb_sleep_s(w->owed_s - w->late_s);
		woke_s = dlb_clock_s();
		w->late_s = fmin(MOST_LATE_S, w->late_s + 0.1 * (woke_s - until_s));
		if (w->late_s < 0.0)
			w->late_s = 0.0;
	}
	while (dlb_clock_s() < until_s)
		;
	w->owed_s = until_s - dlb_clock_s();
}

double dlb_slow_waited(struct dlb_slow *w, double s)
{
	const double owed_s = fmax(0.0, w->owed_s), op_s = fmin(owed_s, s);

	if (w->owed_s < 0.0)				/* the excess of ops only made this wait shorter */
		w->owed_s = fmin(0.0, w->owed_s + s);
	else
		w->owed_s -= op_s;
	return s - op_s;
}
