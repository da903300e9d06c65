/* Fills a profile. See profiling.h. */
#include "exec/profiling.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/exec.h"
#include "exec/probe.h"
#include "util/cores.h"
#include "util/stats.h"

enum { MAX_KIND = 64 };			/* bytes of a kind's name in a message */
/* Steps that measure a step's overhead, in at most overhead_s seconds. */
enum { LEAST_OVERHEADS = 5, MOST_OVERHEADS = 100 };
static const double overhead_s = 0.1;

/* -- one device -- */

/* Number of repeats: enough for a median, in at most about a second. Short steps are repeated for .15 s,
 * since clock rates and neighbours of a virtual core change within tens of milliseconds. */
static int repeats_for(double step_s)
{
	const double n = step_s > 0 ? 1.0 / step_s : 30, few = step_s > 0 ? 0.15 / step_s : 30;

	return n < 3 ? 3 : few > 300 ? 300 : few > 30 ? (int)few : n > 30 ? 30 : (int)n;
}

static double sum_of(const double *op_s, int n)
{
	double s = 0;

	for (int i = 0; i < n; i++)
		s += isfinite(op_s[i]) ? op_s[i] : 0;
	return s;
}

/* Fills the row of each signature: the median time over the ops with that signature. */
static void take_times(struct dlb_profile *p, int kind, int b, const double *op_s, const double *scratch,
		       const double *packed)
{
	for (int r = 0; r < p->n_rows; r++) {
		struct dlb_profile_row *row = &p->row[r];
		double *x = dlb_xcalloc((size_t)row->n_ops + 1, sizeof *x);
		int n = 0;
		for (int i = 0; i < row->n_ops; i++)
			if (!isnan(op_s[row->op[i]]))
				x[n++] = op_s[row->op[i]];
		row->time_s[kind][b] = n ? dlb_median(x, n) : NAN;
		row->scratch_bytes[kind][b] = scratch[row->op[0]];
		row->packed_bytes[kind][b] = packed[row->op[0]];
		free(x);
	}
}

/* The first step of each size is a turn too. */
enum { TURNS = 1 + DLB_PROFILE_TURNS };

/* Batch sizes that are measured in turns. */
struct sizes {
	struct dlb_profile *p;
	const struct dlb_graph *g;
	const struct dlb_profile_device *d;
	const struct dlb_profile_watch *watch;
	int kind;
	struct dlb_measurement **m;		/* [batch]; NULL: not open */
	int *repeats;				/* [batch] repeats still to run */
	double (*turn_s)[TURNS];		/* [batch] seconds of a step; 0: not measured in this turn */
	double *op_s;
};

static void show(const struct sizes *z, int b)
{
	if (z->watch && z->watch->progress)
		z->watch->progress(z->watch->ctx, z->d->kind, z->p->batch[b]);
}

/* Opens size b and runs a step to learn its duration. */
static int try_size(struct sizes *z, int b, struct dlb_error *err)
{
	show(z, b);
	if (dlb_measurement_open(z->g, z->d->be, z->p->batch[b], &z->m[b], err))
		return -1;
	if (dlb_measurement_run(z->m[b], 1, 1, err)) {
		dlb_measurement_free(z->m[b]);
		z->m[b] = NULL;
		return -1;
	}
	dlb_measurement_medians(z->m[b], z->op_s, NULL, NULL);
	z->turn_s[b][0] = dlb_measurement_last_s(z->m[b], 1);
	z->repeats[b] = repeats_for(sum_of(z->op_s, z->g->n_ops)) - 1;
	return 0;
}

/* Whether all sizes were measured in this turn. */
static bool is_whole_turn(const struct sizes *z, int first, int end, int turn)
{
	for (int b = first; b < end; b++)
		if (!(z->turn_s[b][turn] > 0))
			return false;
	return true;
}

/* Relative standard deviation of a step's time between turns: the standard deviation of each turn's mean,
 * over the sizes, of the logarithm of the time. NAN: fewer than two turns measured all sizes. */
static double spread_of(const struct sizes *z, int first, int end)
{
	double level[TURNS], mean = 0, squares = 0;
	int n = 0;

	for (int t = 0; t < TURNS; t++) {
		if (!is_whole_turn(z, first, end, t))
			continue;
		level[n] = 0;
		for (int b = first; b < end; b++)
			level[n] += log(z->turn_s[b][t]) / (end - first);
		mean += level[n++];
	}
	if (n < 2)
		return NAN;
	for (int t = 0; t < n; t++)
		squares += pow(level[t] - mean / n, 2);
	return sqrt(squares / (n - 1));
}

/* Measures the seconds of a step outside its ops, at the greatest size. They stay unknown for a GPU, whose
 * ops the host does not time, for steps so long that these seconds do not matter, and on a single core. */
static int measure_overhead(struct sizes *z, struct dlb_error *err)
{
	const double step_s = z->p->step_s[z->kind];
	const int n = step_s > 0 ? (int)fmin(MOST_OVERHEADS, overhead_s / step_s) : 0;

	if (n < LEAST_OVERHEADS || !z->d->be->ops->is_host_memory || dlb_cores() < 2)
		return 0;
	return dlb_measurement_overhead(z->m[0], n, &z->p->step_overhead_s[z->kind], err);
}

/* Measures sizes first .. end - 1 in turns, so that slow and fast seconds of the machine affect all sizes
 * alike. */
static int take_turns(struct sizes *z, int first, int end, struct dlb_error *err)
{
	double *scratch = z->op_s + z->g->n_ops, *packed = scratch + z->g->n_ops;

	for (int left = DLB_PROFILE_TURNS; left > 0; left--) {
		for (int b = first; b < end; b++) {
			int n = (z->repeats[b] + left - 1) / left;
			show(z, b);
			if (!n)
				continue;
			if (dlb_measurement_run(z->m[b], 1, n, err))
				return -1;
			z->repeats[b] -= n;
			z->turn_s[b][TURNS - left] = dlb_measurement_last_s(z->m[b], n);
		}
	}
	for (int b = first; b < end; b++) {
		dlb_measurement_medians(z->m[b], z->op_s, scratch, packed);
		take_times(z->p, z->kind, b, z->op_s, scratch, packed);
		if (b == 0) {
			z->p->step_s[z->kind] = sum_of(z->op_s, z->g->n_ops);
			z->p->step_spread[z->kind] = spread_of(z, first, end);
			if (measure_overhead(z, err))
				return -1;
		}
	}
	return 0;
}

static void close_sizes(struct sizes *z, int first, int end)
{
	for (int b = first; b < end; b++) {
		dlb_measurement_free(z->m[b]);
		z->m[b] = NULL;
	}
}

/* Opens as many sizes together as memory allows; a size that does not run alone is left out. Returns how many
 * ran. */
static int measure_sizes(struct sizes *z, struct dlb_error *err)
{
	int measured = 0, first = 0;

	while (first < z->p->n_batches) {
		int end = first;
		while (end < z->p->n_batches && try_size(z, end, err) == 0)
			end++;
		const bool ran = end > first && take_turns(z, first, end, err) == 0;
		close_sizes(z, first, end);
		if (ran) {
			measured += end - first;
			first = end;
			continue;
		}
		if (first + 1 < z->p->n_batches && z->watch && z->watch->warn)
			z->watch->warn(z->watch->ctx, z->d->kind, z->p->batch[first], err);
		first++;
	}
	return measured;
}

static int measure_device(struct dlb_profile *p, const struct dlb_graph *g,
			  const struct dlb_profile_device *d, const struct dlb_profile_watch *watch,
			  struct dlb_error *err)
{
	struct sizes z = { .p = p, .g = g, .d = d, .watch = watch, .kind = dlb_profile_add_kind(p, d->kind) };

	z.m = dlb_xcalloc((size_t)p->n_batches, sizeof(struct dlb_measurement *));
	z.repeats = dlb_xcalloc((size_t)p->n_batches, sizeof *z.repeats);
	z.turn_s = dlb_xcalloc((size_t)p->n_batches, sizeof *z.turn_s);
	z.op_s = dlb_xcalloc(3 * (size_t)g->n_ops + 1, sizeof *z.op_s);
	const int measured = measure_sizes(&z, err);
	free(z.op_s);
	free(z.turn_s);
	free(z.repeats);
	free(z.m);
	return measured ? dlb_device_probe(d->be, &p->peak_flops[z.kind], &p->bandwidth_Bps[z.kind], err) :
			  -1;
}

/* -- several ranks -- */

/* Number of doubles of one kind's figures; all ranks have the same rows. */
static size_t flat_count(const struct dlb_profile *p)
{
	return 5 + (size_t)p->n_rows * (3 * (size_t)p->n_batches + 1);
}

static void flatten(struct dlb_profile *p, int k, double *x, bool take)
{
#define MOVE(place) do { if (take) (place) = *x; else *x = (place); x++; } while (0)
	MOVE(p->peak_flops[k]);
	MOVE(p->bandwidth_Bps[k]);
	MOVE(p->step_s[k]);
	MOVE(p->step_spread[k]);
	MOVE(p->step_overhead_s[k]);
	for (int r = 0; r < p->n_rows; r++) {
		struct dlb_profile_row *row = &p->row[r];
		for (int b = 0; b < p->n_batches; b++) {
			MOVE(row->time_s[k][b]);
			MOVE(row->scratch_bytes[k][b]);
			MOVE(row->packed_bytes[k][b]);
		}
		MOVE(row->workspace_bytes[k]);
	}
#undef MOVE
}

/* Names of every rank's device i, on all ranks; "": the rank has none. */
static char *share_names(struct dlb_comm *c, const struct dlb_profile_device *d, int n, int i,
			 struct dlb_error *err)
{
	char mine[MAX_KIND] = "", *all = dlb_xcalloc((size_t)dlb_comm_size(c), MAX_KIND);

	if (i < n)
		snprintf(mine, sizeof mine, "%s", d[i].kind);
	if (dlb_comm_gather(c, mine, sizeof mine, all, 0, err) ||
	    dlb_comm_bcast(c, all, (size_t)dlb_comm_size(c) * MAX_KIND, 0, err)) {
		free(all);
		return NULL;
	}
	return all;
}

/* A device of a rank. d: set on that rank alone; kind: known to all ranks. */
struct ranked_device { int rank; const struct dlb_profile_device *d; const char *kind; };

/* The device's rank measures its kind; rank 0 receives the figures. */
static int measure_there(struct dlb_profile *p, const struct dlb_graph *g, const struct ranked_device *there,
			 struct dlb_comm *c, const struct dlb_profile_watch *watch, struct dlb_error *err)
{
	const int me = dlb_comm_rank(c), from = there->rank;
	const size_t n = flat_count(p);
	int who, rc = me == from ? measure_device(p, g, there->d, watch, err) : 0;

	if (dlb_comm_agree(c, rc, err, &who))
		return -1;
	double *x = dlb_xcalloc(n, sizeof *x),
	       *all = me == 0 ? dlb_xcalloc(n * (size_t)dlb_comm_size(c), sizeof *all) : NULL;
	if (me == from)
		flatten(p, dlb_profile_find_kind(p, there->kind), x, false);
	rc = dlb_comm_gather(c, x, n * sizeof *x, all, 0, err);
	if (!rc && me == 0 && from != 0)
		flatten(p, dlb_profile_add_kind(p, there->kind), all + n * (size_t)from, true);
	free(all);
	free(x);
	return rc;
}

static int measure_all_ranks(struct dlb_profile *p, const struct dlb_graph *g,
			     const struct dlb_profile_device *d, int n_devices, struct dlb_comm *c,
			     const struct dlb_profile_watch *watch, struct dlb_error *err)
{
	double shape[3] = { n_devices, (double)flat_count(p), -(double)flat_count(p) };
	char *name = NULL;
	int rc = 0;

	if (dlb_comm_allreduce_f64(c, shape, 3, DLB_COMM_MAX, err))
		return -1;
	if (shape[1] != -shape[2])
		return dlb_fail(err, NULL, "the ranks were not given the same model and options");
	for (int i = 0; i < (int)shape[0] && !rc; i++) {
		if (!(name = share_names(c, d, n_devices, i, err)))
			return -1;
		for (int r = 0; r < dlb_comm_size(c) && !rc; r++) {
			const char *kind = name + (size_t)r * MAX_KIND;
			bool first = *kind;
			for (int q = 0; q < r; q++)
				first &= strcmp(kind, name + (size_t)q * MAX_KIND) != 0;
			const struct ranked_device there = { r, i < n_devices ? &d[i] : NULL, kind };
			if (first)
				rc = measure_there(p, g, &there, c, watch, err);
		}
		free(name);
	}
	return rc;
}

int dlb_profile_measure(struct dlb_profile *p, const struct dlb_graph *g, const struct dlb_profile_device *d,
			int n_devices, struct dlb_comm *comm, const struct dlb_profile_watch *watch,
			struct dlb_error *err)
{
	if (comm && dlb_comm_size(comm) > 1)
		return measure_all_ranks(p, g, d, n_devices, comm, watch, err);
	for (int i = 0; i < n_devices; i++)
		if (measure_device(p, g, &d[i], watch, err))
			return -1;
	return 0;
}
