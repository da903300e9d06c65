/* How a profile is filled: which sizes are measured in which turns, how often, and what becomes of the
 * times. Steps are not run: this program has measurements, a device's rates and a number of cores of its
 * own in place of the library's. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/probe.h"
#include "exec/profiling.h"
#include "util/cores.h"
#include "check.h"
#include "thread_ranks.h"

enum { OPS = 5, BATCHES = 3, TURNS = 1 + DLB_PROFILE_TURNS };

struct dlb_measurement {
	int64_t n;
	int runs;
};

static char said[4000];
static double op_s[OPS]; /* at one sample; times the samples */
static double step_s[TURNS]; /* of each turn; times the samples */
static int calls, fails_at, n_open, most_open, cores;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	const size_t at = strlen(said);
	va_list args;

	va_start(args, format);
	vsnprintf(said + at, sizeof said - at, format, args);
	va_end(args);
}

static int fails(struct dlb_error *err)
{
	return ++calls == fails_at ? dlb_fail(err, NULL, "call %d fails", calls) : 0;
}

int dlb_measurement_open(const struct dlb_graph *g, struct dlb_backend *be, int64_t n,
			 struct dlb_measurement **out, struct dlb_error *err)
{
	assert(IS(g->n_ops, ==, OPS) && be->ops);
	if (fails(err))
		return -1;
	if (n_open == most_open)
		return dlb_fail(err, NULL, "no memory");
	*out = calloc(1, sizeof **out);
	(*out)->n = n;
	n_open++;
	say("open %d, ", (int)n);
	return 0;
}

int dlb_measurement_run(struct dlb_measurement *m, int warm_up, int repeats, struct dlb_error *err)
{
	assert(IS(warm_up, ==, 1));
	if (fails(err))
		return -1;
	m->runs++;
	say("%d*%d, ", (int)m->n, repeats);
	return 0;
}

double dlb_measurement_last_s(const struct dlb_measurement *m, int n)
{
	assert(IS(n, >, 0));
	return step_s[m->runs - 1] * (double)m->n;
}

int dlb_measurement_overhead(struct dlb_measurement *m, int n, double *s, struct dlb_error *err)
{
	if (fails(err))
		return -1;
	say("overhead %d*%d, ", (int)m->n, n);
	*s = 0.5;
	return 0;
}

void dlb_measurement_medians(const struct dlb_measurement *m, double *op, double *scratch, double *packed)
{
	for (int i = 0; i < OPS; i++) {
		op[i] = op_s[i] * (double)m->n * (1 + me);
		if (scratch) {
			scratch[i] = 100 * i + (double)m->n;
			packed[i] = 1000 * i + (double)m->n;
		}
	}
}

void dlb_measurement_free(struct dlb_measurement *m)
{
	n_open -= m != NULL;
	free(m);
}

int dlb_device_probe(struct dlb_backend *be, double *peak_flops, double *bandwidth_Bps, struct dlb_error *err)
{
	assert(be->ops);
	*peak_flops = 7 + me;
	*bandwidth_Bps = 8 + me;
	return fails(err);
}

int dlb_cores(void) { return cores; }
static void all_have_met(void) {}

static void show(void *ctx, const char *kind, int64_t batch)
{
	assert(ctx == said);
	say("(%s %d) ", kind, (int)batch);
}

static void warn(void *ctx, const char *kind, int64_t batch, const struct dlb_error *err)
{
	assert(ctx == said);
	say("[%s %d: %s] ", kind, (int)batch, err->what);
}

/* Rows of ops 0 and 3, of 1, of 2 and of 4; the largest batches of these sizes. */
static void profile(struct dlb_profile *p, int n_batches)
{
	static const int64_t sizes[BATCHES] = { 4, 2, 1 };
	static const int ops[OPS] = { 0, 3, 1, 2, 4 }, first[] = { 0, 2, 3, 4, 5 };

	*p = (struct dlb_profile){ .n_batches = n_batches, .n_rows = 4 };
	p->batch = dlb_arena_array(&p->arena, BATCHES, sizeof *p->batch);
	memcpy(p->batch, sizes, sizeof sizes);
	p->row = dlb_arena_array(&p->arena, 5, sizeof *p->row);
	for (int r = 0; r < 4; r++) {
		p->row[r].n_ops = first[r + 1] - first[r];
		p->row[r].op = dlb_arena_array(&p->arena, 2, sizeof(int));
		memcpy(p->row[r].op, ops + first[r], (size_t)p->row[r].n_ops * sizeof(int));
	}
	*said = '\0';
	calls = fails_at = 0;
	most_open = BATCHES;
	cores = 2;
}

static const struct dlb_graph graph = { .n_ops = OPS };
static const struct dlb_backend_ops on_host = { .is_host_memory = true },
				    on_device = { .is_host_memory = false };

static int measure(struct dlb_profile *p, const struct dlb_backend_ops *ops, bool watched,
		   struct dlb_error *err)
{
	struct dlb_backend be = { .ops = ops };
	const struct dlb_profile_device d = { &be, "cpu" };
	const struct dlb_profile_watch watch = { show, warn, said };
	const int rc = dlb_profile_measure(p, &graph, &d, 1, NULL, watched ? &watch : NULL, err);

	assert(IS(n_open, ==, 0));
	return rc;
}

/* Sets the seconds of a step at the largest size, 4, of which op 4 has no kernel and op 2 does not run. */
static void set_step(double s)
{
	const double parts[OPS] = { 0.125, 0.5, NAN, 0.375, INFINITY };

	for (int i = 0; i < OPS; i++)
		op_s[i] = parts[i] * s / 4;
	for (int t = 0; t < TURNS; t++)
		step_s[t] = s / 4;
}

/* How often a step is repeated, in four turns of which the first is one, and for its overhead. */
static void repeats(void)
{
	static const struct {
		double s;
		const char *said;
	} cases[] = {
		{ 0, "open 4, 4*1, 4*10, 4*10, 4*9, " },
		{ 2, "open 4, 4*1, 4*1, 4*1, " },
		{ 0.5, "open 4, 4*1, 4*1, 4*1, " },
		{ 0.25, "open 4, 4*1, 4*1, 4*1, 4*1, " },
		{ 0.125, "open 4, 4*1, 4*3, 4*2, 4*2, " },
		{ 0.03125, "open 4, 4*1, 4*10, 4*10, 4*9, " },
		{ 0.0205, "open 4, 4*1, 4*10, 4*10, 4*9, " },
		{ 0.0195, "open 4, 4*1, 4*10, 4*10, 4*9, overhead 4*5, " },
		{ 0.00499, "open 4, 4*1, 4*10, 4*10, 4*9, overhead 4*20, " },
		{ 0.00375, "open 4, 4*1, 4*13, 4*13, 4*13, overhead 4*26, " },
		{ 0.00049, "open 4, 4*1, 4*100, 4*100, 4*99, overhead 4*100, " },
		{ 1e-6, "open 4, 4*1, 4*100, 4*100, 4*99, overhead 4*100, " },
	};

	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct dlb_profile p;
		struct dlb_error err = { .what = "" };
		const bool overhead = strstr(cases[i].said, "overhead");

		profile(&p, 1);
		set_step(cases[i].s);
		assert(IS(measure(&p, &on_host, false, &err), ==, 0) && SAME(said, cases[i].said));
		assert(overhead ? IS(p.step_overhead_s[0], ==, 0.5) : isnan(p.step_overhead_s[0]));
		dlb_profile_release(&p);
	}
	for (int i = 0; i < 2; i++) { /* not on one core, and not of a device */
		struct dlb_profile p;
		struct dlb_error err = { .what = "" };

		profile(&p, 1);
		set_step(0.01);
		cores = i ? 2 : 1;
		assert(IS(measure(&p, i ? &on_device : &on_host, false, &err), ==, 0) &&
		       !strstr(said, "overhead"));
		dlb_profile_release(&p);
	}
}

/* The relative standard deviation of `n` levels. */
static double deviation(const double *level, int n)
{
	double mean = 0, squares = 0;

	for (int i = 0; i < n; i++)
		mean += level[i] / n;
	for (int i = 0; i < n; i++)
		squares += (level[i] - mean) * (level[i] - mean);
	return sqrt(squares / (n - 1));
}

static void figures(void)
{
	static const double turn[TURNS] = { 0.25, 0.2, 0.3, 0.22 };
	double level[TURNS];
	struct dlb_profile p;
	struct dlb_error err = { .what = "" };

	profile(&p, BATCHES);
	set_step(1);
	memcpy(step_s, turn, sizeof turn);
	for (int t = 0; t < TURNS; t++) /* the mean of the logarithms at sizes 4, 2 and 1 */
		level[t] = log(turn[t]) + log(2);
	assert(IS(measure(&p, &on_host, true, &err), ==, 0));
	/* steps of 1, 1/2 and 1/4 second: 3, 3 and 4 times */
	assert(SAME(said, "(cpu 4) open 4, 4*1, (cpu 2) open 2, 2*1, (cpu 1) open 1, 1*1, "
			  "(cpu 4) 4*1, (cpu 2) 2*1, (cpu 1) 1*1, (cpu 4) 4*1, (cpu 2) 2*1, (cpu 1) 1*1, "
			  "(cpu 4) (cpu 2) (cpu 1) 1*1, "));
	assert(IS(p.n_kinds, ==, 1) && SAME(p.kind[0], "cpu"));
	assert(IS(p.peak_flops[0], ==, 7) && IS(p.bandwidth_Bps[0], ==, 8) && IS(p.step_s[0], ==, 1));
	/* in the last turn not all sizes were measured */
	assert(fabs(p.step_spread[0] / deviation(level, 3) - 1) < 1e-12);
	for (int b = 0; b < BATCHES; b++) {
		const double n = (double)p.batch[b];

		/* ops 0 and 3 have an eighth and three of the step */
		assert(IS(p.row[0].time_s[0][b], ==, 0.25 * n / 4) &&
		       IS(p.row[1].time_s[0][b], ==, 0.5 * n / 4));
		assert(isnan(p.row[2].time_s[0][b]) && isinf(p.row[3].time_s[0][b]));
		for (int r = 0; r < 4; r++) {
			assert(IS(p.row[r].scratch_bytes[0][b], ==, 100 * p.row[r].op[0] + n));
			assert(IS(p.row[r].packed_bytes[0][b], ==, 1000 * p.row[r].op[0] + n));
		}
	}
	dlb_profile_release(&p);
	profile(&p, 1); /* all turns */
	set_step(0.25);
	memcpy(step_s, turn, sizeof turn);
	for (int t = 0; t < TURNS; t++)
		level[t] = log(turn[t]);
	assert(IS(measure(&p, &on_host, false, &err), ==, 0));
	assert(fabs(p.step_spread[0] / deviation(level, 4) - 1) < 1e-12);
	dlb_profile_release(&p);
	profile(&p, 1); /* one turn with a time: not known */
	set_step(0.25);
	step_s[1] = step_s[2] = step_s[3] = 0;
	assert(IS(measure(&p, &on_host, false, &err), ==, 0) && isnan(p.step_spread[0]));
	dlb_profile_release(&p);
}

/* Sizes that do not fit together are measured one after the other. */
static void little_memory(void)
{
	struct dlb_profile p;
	struct dlb_error err = { .what = "" };

	profile(&p, BATCHES);
	set_step(1);
	most_open = 2;
	assert(IS(measure(&p, &on_host, true, &err), ==, 0));
	assert(SAME(
		said,
		"(cpu 4) open 4, 4*1, (cpu 2) open 2, 2*1, (cpu 1) (cpu 4) 4*1, (cpu 2) 2*1, (cpu 4) 4*1, "
		"(cpu 2) 2*1, (cpu 4) (cpu 2) (cpu 1) open 1, 1*1, (cpu 1) 1*1, (cpu 1) 1*1, (cpu 1) 1*1, "));
	for (int b = 0; b < BATCHES; b++)
		assert(IS(p.row[1].time_s[0][b], ==, 0.5 * (double)p.batch[b] / 4));
	dlb_profile_release(&p);
}

static void failures(void)
{
	static const struct {
		int call, rc;
		const char *said;
	} cases[] = {
		{ 1, 0, "(cpu 4) [cpu 4: call 1 fails] (cpu 2) open 2, 2*1, (cpu 1) open 1, 1*1, " },
		{ 2, 0, "(cpu 4) open 4, [cpu 4: call 2 fails] (cpu 2) open 2, 2*1, (cpu 1) open 1, 1*1, " },
		{ 5, 0, "(cpu 4) open 4, 4*1, (cpu 2) open 2, 2*1, (cpu 1) (cpu 4) 4*1, (cpu 2) 2*1, " },
		{ 7, 0,
		  "(cpu 4) open 4, 4*1, (cpu 2) open 2, 2*1, (cpu 1) open 1, 1*1, (cpu 4) [cpu 4: call 7 "
		  "fails] "
		  "(cpu 2) open 2, 2*1, (cpu 1) open 1, 1*1, " },
	};

	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct dlb_profile p;
		struct dlb_error err = { .what = "" };

		profile(&p, BATCHES);
		set_step(1);
		fails_at = cases[i].call;
		assert(IS(measure(&p, &on_host, true, &err), ==, cases[i].rc));
		said[strlen(cases[i].said)] = '\0';
		assert(SAME(said, cases[i].said));
		assert(i == 2 || isnan(p.row[1].time_s[0][0]));
		assert(IS(p.row[1].time_s[0][2], ==, 0.125));
		dlb_profile_release(&p);
	}
	struct dlb_profile p;
	struct dlb_error err = { .what = "" };

	profile(&p, BATCHES); /* no size runs: the last one is the reason, and has no warning */
	most_open = 0;
	assert(IS(measure(&p, &on_host, true, &err), ==, -1) && SAME(err.what, "no memory"));
	assert(SAME(said, "(cpu 4) [cpu 4: no memory] (cpu 2) [cpu 2: no memory] (cpu 1) "));
	dlb_profile_release(&p);
	profile(&p, 1); /* the overhead, and the device's rates */
	set_step(0.01);
	fails_at = 6;
	assert(IS(measure(&p, &on_host, true, &err), ==, -1) && SAME(err.what, "call 6 fails"));
	dlb_profile_release(&p);
	profile(&p, 1);
	fails_at = 7;
	assert(IS(measure(&p, &on_host, true, &err), ==, -1) && SAME(err.what, "call 7 fails"));
	dlb_profile_release(&p);
}

static void several_devices(void)
{
	struct dlb_backend be = { .ops = &on_host };
	const struct dlb_profile_device d[] = { { &be, "cpu" }, { &be, "cpu/2" } };
	struct dlb_profile p;
	struct dlb_error err = { .what = "" };

	profile(&p, 1);
	set_step(2);
	assert(IS(dlb_profile_measure(&p, &graph, d, 2, NULL, NULL, &err), ==, 0) && IS(p.n_kinds, ==, 2));
	assert(SAME(p.kind[1], "cpu/2") && IS(p.step_s[1], ==, 2) && IS(p.row[1].time_s[1][0], ==, 1));
	dlb_profile_release(&p);
	profile(&p, 1);
	fails_at = 6; /* the first step of the second one */
	assert(IS(dlb_profile_measure(&p, &graph, d, 2, NULL, NULL, &err), ==, -1));
	dlb_profile_release(&p);
}

/* ---- ranks ---- */

/* Two ranks have two devices, one has one, of a kind that is measured already. */
static const char *const kinds[3][2] = { { "a", "c" }, { "b", "d" }, { "a", NULL } };
static struct dlb_profile found[3];
static struct dlb_error why[3];
static int status[3], other_rows;

static void rank_main(struct dlb_comm *c)
{
	struct dlb_backend be = { .ops = &on_host };
	const struct dlb_profile_device d[] = { { &be, kinds[me][0] }, { &be, kinds[me][1] } };

	found[me].n_rows -= me == other_rows;
	why[me] = (struct dlb_error){ .what = "" };
	status[me] = dlb_profile_measure(&found[me], &graph, d, kinds[me][1] ? 2 : 1, c, NULL, &why[me]);
}

static void ranks(int fails_at_call, int rank_of_other_rows)
{
	for (int r = 0; r < 3; r++)
		profile(&found[r], BATCHES);
	set_step(0.015625);
	fails_at = fails_at_call;
	other_rows = rank_of_other_rows;
	run_ranks(3, rank_main);
	assert(IS(n_open, ==, 0));
}

static void several_ranks(void)
{
	static const struct {
		const char *kind;
		int rank;
	} of[] = { { "a", 0 }, { "b", 1 }, { "c", 0 }, { "d", 1 } };
	const struct dlb_profile *p = &found[0];

	ranks(0, -1);
	assert(SAME(why[0].what, "") && SAME(why[1].what, "") && SAME(why[2].what, ""));
	assert(IS(status[0], ==, 0) && IS(status[1], ==, 0) && IS(status[2], ==, 0) && IS(p->n_kinds, ==, 4));
	for (int k = 0; k < 4; k++) {
		const int r = of[k].rank;

		assert(SAME(p->kind[k], of[k].kind) && IS(p->step_s[k], ==, 0.015625 * (1 + r)));
		assert(IS(p->peak_flops[k], ==, 7 + r) && IS(p->bandwidth_Bps[k], ==, 8 + r));
		assert(IS(p->step_spread[k], <, 1e-9) &&
		       (r ? isnan(p->step_overhead_s[k]) : p->step_overhead_s[k] == 0.5));
		for (int b = 0; b < BATCHES; b++) {
			const double n = (double)p->batch[b];

			assert(IS(p->row[0].time_s[k][b], ==, 0.25 * 0.015625 * n / 4 * (1 + r)));
			assert(IS(p->row[1].time_s[k][b], ==, 0.5 * 0.015625 * n / 4 * (1 + r)));
			assert(isnan(p->row[2].time_s[k][b]) && isinf(p->row[3].time_s[k][b]));
			for (int i = 0; i < 4; i++) {
				assert(IS(p->row[i].scratch_bytes[k][b], ==, 100 * p->row[i].op[0] + n));
				assert(IS(p->row[i].packed_bytes[k][b], ==, 1000 * p->row[i].op[0] + n));
			}
		}
	}
	assert(IS(found[1].n_kinds, ==, 2) && IS(found[2].n_kinds, ==, 0));
	for (int r = 0; r < 3; r++)
		dlb_profile_release(&found[r]);
	/* a call in the middle */
	ranks(calls / 2, -1);
	assert(status[0] && status[1] && status[2] && SAME(why[0].what, why[1].what) &&
	       SAME(why[2].what, why[1].what));
	for (int r = 0; r < 3; r++)
		dlb_profile_release(&found[r]);
	for (int other = 0; other < 3; other++) {
		ranks(0, other);
		for (int r = 0; r < 3; r++) {
			assert(IS(status[r], ==, -1) &&
			       SAME(why[r].what, "the ranks were not given the same model and options"));
			found[r].n_rows = 4;
			dlb_profile_release(&found[r]);
		}
	}
	assert(IS(calls, ==, 0));
}

int main(void)
{
	alarm(60); /* ranks that wait for each other */
	repeats();
	figures();
	little_memory();
	failures();
	several_devices();
	several_ranks();
	return 0;
}
