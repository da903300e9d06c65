/* Fits the costs: the roofline of each class of work, and the time of every op on every kind of device.
 *
 * For one kind and one class of work, with measured samples (flop, bytes, seconds), dlb_roofline_fit finds
 * launch, a, b >= 0 that minimise the squared relative errors of launch + max(a flop, b bytes). The side of
 * the max that each sample is on depends on a and b. So assigning sides and fitting alternate until the sides
 * stay the same (as in k-means; at most 20 times). Classes without measurements use the efficiencies that the
 * cluster states for the kind, else defaults. */
#include "cost/cost.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "util/share.h"

/* Defaults without any measurement: one core of a current server, and typical efficiencies of each class of
 * work. A profile replaces all of them. */
static const double default_peak_flops = 1e11, default_bandwidth_Bps = 1e10, default_launch_s = 2e-6;
static const struct { const char *work; double flop_efficiency, bytes_efficiency;
} works[] = {
	{ "conv", 0.6, 0.6 },   { "dense", 0.6, 0.6 },      { "pool", 0.05, 0.5 },
	{ "norm", 0.1, 0.4 },   { "activation", 0.1, 0.6 }, { "elementwise", 0.1, 0.6 },
	{ "reduce", 0.1, 0.5 }, { "loss", 0.05, 0.4 },      { "move", 0.1, 0.5 },
	{ "update", 0.2, 0.7 }, { "other", 0.1, 0.4 },
};
enum { N_WORKS = sizeof works / sizeof *works, MAX_BLIND = 100 };

/* Estimate for a number of threads that was not measured: peak FLOP/s grow by 90 % of one thread's with each
 * added thread; memory bandwidth grows as the square root of the number of threads. */
static const double thread_efficiency = 0.9;

double dlb_roofline_s(const struct dlb_roofline *r, double flop, double bytes)
{
	return r->launch_s + fmax(flop * r->flop_s, bytes * r->byte_s);
}

/* Solves the m x m system (right side in column m) in place by Gauss-Jordan elimination with pivoting; false
 * if it is singular. */
static bool solve(double a[3][4], int m)
{
	for (int i = 0; i < m; i++) {
		int p = i;
		for (int r = i + 1; r < m; r++)
			if (fabs(a[r][i]) > fabs(a[p][i]))
				p = r;
		if (fabs(a[p][i]) < 1e-12)
			return false;
		for (int k = 0; k <= m; k++) {
			double t = a[i][k];
			a[i][k] = a[p][k];
			a[p][k] = t;
		}
		for (int r = 0; r < m; r++)
			for (int k = m; r != i && k >= i; k--)
				a[r][k] -= a[r][i] / a[i][i] * a[i][k];
	}
	for (int i = 0; i < m; i++)
		a[i][m] /= a[i][i];
	return true;
}

/* One least-squares step over the columns in `use` (0 launch, 1 flop, 2 bytes). Weights 1/t^2 make the errors
 * relative. Columns are first scaled to unit length. If a coefficient would be negative, it is set to 0, its
 * column is removed from `use`, and the step is repeated. */
static void least_squares(struct dlb_roofline *r, const struct dlb_roofline_samples *s,
			  const bool *memory_side, bool use[3])
{
	const double *flop = s->flop, *bytes = s->bytes, *t = s->time_s, *weight = s->weight;
	double *const out[3] = { &r->launch_s, &r->flop_s, &r->byte_s };

	for (int tries = 0; tries < 3; tries++) {
		double a[3][4] = { { 0 } }, length[3] = { 0 };
		int col[3], m = 0;
		for (int k = 0; k < 3; k++)
			if (use[k])
				col[m++] = k;
		if (!m)
			return;
		for (int pass = 0; pass < 2; pass++)
			for (int i = 0; i < s->n; i++) {
				double w = (weight ? weight[i] : 1) / (t[i] * t[i]), rest = t[i];
				double x[3] = { 1, memory_side[i] ? 0 : flop[i],
						memory_side[i] ? bytes[i] : 0 };
				for (int k = 0; k < 3; k++)
					if (!use[k])
						rest -= x[k] * *out[k];	/* its coefficient is fixed */
				for (int p = 0; p < m; p++) {
					if (!pass) {
						length[p] += w * x[col[p]] * x[col[p]];
						continue;
					}
					for (int q = 0; q < m; q++)
						a[p][q] += w * x[col[p]] * x[col[q]] /
							   sqrt(length[p] * length[q]);
					a[p][m] += w * x[col[p]] * rest / sqrt(length[p]);
				}
			}
		if (!solve(a, m)) {
			/* If all samples have the same size, launch and work cannot be separated. */
			if (!use[0] || m < 2)
				return;
			use[0] = false;
			r->launch_s = 0;
			continue;
		}
		int negative = -1;
		for (int p = 0; p < m; p++)
			if (a[p][m] < 0)
				negative = p;
		if (negative >= 0) {
			*out[col[negative]] = 0;
			use[col[negative]] = false;
			continue;
		}
		for (int p = 0; p < m; p++)
			*out[col[p]] = a[p][m] / sqrt(length[p]);
		return;
	}
}

/* Alternates between assigning sides and fitting, starting from *r; returns the weighted sum of squared
 * relative errors. */
static double descend(struct dlb_roofline *r, const struct dlb_roofline_samples *s, bool *side)
{
	const double *flop = s->flop, *bytes = s->bytes, *t = s->time_s, *weight = s->weight;
	double sum = 0;

	for (int round = 0; round < 20; round++) {
		bool changed = round == 0, use[3] = { false, false, false };
		for (int i = 0; i < s->n; i++) {
			bool memory = bytes[i] * r->byte_s > flop[i] * r->flop_s;
			changed |= memory != side[i];
			side[i] = memory;
			if (!weight || weight[i] > 0) {
				use[0] = true;
				use[1] |= !memory && flop[i] > 0;
				use[2] |= memory && bytes[i] > 0;
			}
		}
		if (!changed)
			break;
		least_squares(r, s, side, use);
	}
	for (int i = 0; i < s->n; i++) {
		double e = (dlb_roofline_s(r, flop[i], bytes[i]) - t[i]) / t[i];
		sum += (weight ? weight[i] : 1) * e * e;
	}
	return sum;
}

/* Alternation finds a local optimum, so several starting positions of the roofline's ridge are tried. */
void dlb_roofline_fit(struct dlb_roofline *r, const struct dlb_roofline_samples *s)
{
	const double *flop = s->flop, *bytes = s->bytes;
	bool *side = dlb_xcalloc((size_t)s->n + 1, sizeof *side);
	struct dlb_roofline best = *r;
	double least = INFINITY;

	for (double tilt = 1.0 / 16; tilt <= 16; tilt *= 2) {
		struct dlb_roofline x = *r;
		x.byte_s *= tilt;
		double sum = descend(&x, s, side);
		bool memory = false;
		for (int i = 0; i < s->n; i++)
			memory |= side[i];
		/* If no sample is bound by memory, keeps the coefficient, but lowers it as far as is needed
		 * so that no sample becomes bound by memory. */
		if (!memory)
			x.byte_s = r->byte_s;
		for (int i = 0; i < s->n && !memory; i++)
			if (bytes[i] > 0)
				x.byte_s = fmin(x.byte_s, flop[i] * x.flop_s / bytes[i]);
		if (sum < least) {
			least = sum;
			best = x;
		}
	}
	*r = best;
	free(side);
}

/* ---- a kind's rooflines ---- */

struct samples {
	double *flop, *bytes, *time_s, *weight;
	int *row, n;
	int *work;				/* [row of the profile] class of work */
};

static struct dlb_roofline_samples unweighted(const struct samples *s)
{
	return (struct dlb_roofline_samples){
		.flop = s->flop, .bytes = s->bytes, .time_s = s->time_s, .n = s->n
	};
}
struct kind_model {
	double peak_flops, bandwidth_Bps;
	struct dlb_roofline of[N_WORKS];		/* with this peak and bandwidth */
	bool fitted[N_WORKS];				/* fitted to measurements on this kind */
	bool stated[N_WORKS];				/* not fitted, but from the cluster's efficiencies */
};

static int work_of(const char *type)
{
	const char *w = dlb_op_work(type);

	for (int i = 0; i < N_WORKS - 1; i++)
		if (!strcmp(works[i].work, w))
			return i;
	return N_WORKS - 1;
}

/* Applies the efficiencies that the kind states, for classes that were not measured on it. */
static void state_model(const struct dlb_device_kind *d, struct kind_model *m)
{
	for (int w = 0; w < N_WORKS; w++) {
		if (d->launch_s > 0 && !m->fitted[w])
			m->of[w].launch_s = d->launch_s;
		for (int i = 0; i < d->n_efficiency && !m->fitted[w]; i++) {
			if (strcmp(d->efficiency[i].work, works[w].work))
				continue;
			m->stated[w] = true;
			m->of[w].flop_s = 1 / (m->peak_flops * d->efficiency[i].flops);
			m->of[w].byte_s = 1 / (m->bandwidth_Bps * d->efficiency[i].bandwidth);
		}
	}
}

static void default_model(struct kind_model *m)
{
	for (int w = 0; w < N_WORKS; w++)
		m->of[w] = (struct dlb_roofline){ default_launch_s,
						  1 / (m->peak_flops * works[w].flop_efficiency),
						  1 / (m->bandwidth_Bps * works[w].bytes_efficiency) };
}

/* Collects the measured samples of profile kind q and class of work w (w < 0: all classes). The arrays have
 * room for rows x batches samples. */
static void take_samples(const struct dlb_graph *g, const struct dlb_profile *p, int q, int w,
			 struct samples *s)
{
	s->n = 0;
	for (int i = 0; i < p->n_rows; i++)
		for (int b = 0; b < p->n_batches && (w < 0 || s->work[i] == w); b++) {
			double t = p->row[i].time_s[q][b];
			if (!isfinite(t) || t <= 0)
				continue;
			s->flop[s->n] = dlb_op_flop_at(g, p->row[i].op[0], p->batch[b]);
			s->bytes[s->n] = dlb_op_bytes_at(g, p->row[i].op[0], p->batch[b]);
			s->time_s[s->n] = t;
			s->weight[s->n] = 1;
			s->row[s->n++] = i;
		}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median_of(double *x, int n)
{
	if (!n)
		return NAN;
	qsort(x, (size_t)n, sizeof *x, ascending);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static double relative_error(const struct dlb_roofline *r, const struct samples *s, int i)
{
	return fabs(dlb_roofline_s(r, s->flop[i], s->bytes[i]) - s->time_s[i]) / s->time_s[i];
}

/* Median relative error of predicting each signature from a fit to the other signatures: the error to expect
 * for ops that were not measured. It needs a fit per signature, so classes of more than MAX_BLIND signatures
 * are skipped (NAN). */
static double blind_error(const struct dlb_roofline *start, struct samples *s)
{
	struct dlb_roofline_samples some = unweighted(s);
	int n_rows = 0, n = 0;
	double *e, result;

	some.weight = s->weight;
	for (int i = 0; i < s->n; i++)
		n_rows += !i || s->row[i] != s->row[i - 1];
	if (n_rows < 2 || n_rows > MAX_BLIND)
		return NAN;
	e = dlb_xcalloc((size_t)s->n, sizeof *e);
	for (int i = 0, end; i < s->n; i = end) {
		struct dlb_roofline r = *start;
		for (end = i; end < s->n && s->row[end] == s->row[i]; end++)
			s->weight[end] = 0;
		dlb_roofline_fit(&r, &some);
		for (int k = i; k < end; k++) {
			e[n++] = relative_error(&r, s, k);
			s->weight[k] = 1;
		}
	}
	result = median_of(e, n);
	free(e);
	return result;
}

static void describe_fit(struct dlb_cost *c, const struct dlb_profile *p, int q, int w,
			 const struct kind_model *m, const struct dlb_roofline *start, struct samples *s)
{
	struct dlb_cost_fit *f = &c->fit[c->n_fits++];
	const struct dlb_roofline *r = &m->of[w];
	double *e = dlb_xcalloc((size_t)s->n, sizeof *e);

	*f = (struct dlb_cost_fit){ .kind = dlb_arena_strdup(&c->arena, p->kind[q]),
				    .work = works[w].work,
				    .n = s->n,
				    .launch_s = r->launch_s,
				    .flop_efficiency = r->flop_s > 0 ? 1 / (m->peak_flops * r->flop_s) : NAN,
				    .bytes_efficiency = r->byte_s > 0 ? 1 / (m->bandwidth_Bps * r->byte_s) :
									NAN };
	for (int i = 0; i < s->n; i++) {
		e[i] = relative_error(r, s, i);
		if (e[i] >= f->worst_error) {
			f->worst_error = e[i];
			f->worst = dlb_arena_strdup(&c->arena, p->row[s->row[i]].type);
		}
	}
	f->median_error = median_of(e, s->n);
	f->blind_error = blind_error(start, s);
	free(e);
}

/* Fits profile kind q. Peak and bandwidth are measured, else stated by the cluster, else the best rates among
 * the ops. Writes the quality of the fit to `c`; c NULL: skips this, because blind_error takes most of the
 * time. */
static void fit_kind(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p, int q,
		     const struct dlb_device_kind *stated, struct samples *s, struct kind_model *m)
{
	struct dlb_roofline_samples of_work;
	struct dlb_roofline all;
	bool rates = p->peak_flops[q] <= 0 && !(stated && stated->peak_flops > 0);
	bool traffic = p->bandwidth_Bps[q] <= 0 && !(stated && stated->bandwidth_Bps > 0);

	m->peak_flops = p->peak_flops[q] > 0 ? p->peak_flops[q] : stated ? stated->peak_flops : 0;
	m->bandwidth_Bps = p->bandwidth_Bps[q] > 0 ? p->bandwidth_Bps[q] : stated ? stated->bandwidth_Bps : 0;
	take_samples(g, p, q, -1, s);
	for (int i = 0; i < s->n; i++) {
		if (rates)
			m->peak_flops = fmax(m->peak_flops, s->flop[i] / s->time_s[i]);
		if (traffic)
			m->bandwidth_Bps = fmax(m->bandwidth_Bps, s->bytes[i] / s->time_s[i]);
	}
	if (m->peak_flops <= 0)
		m->peak_flops = default_peak_flops;
	if (m->bandwidth_Bps <= 0)
		m->bandwidth_Bps = default_bandwidth_Bps;
	default_model(m);
	if (!s->n)
		return;
	all = m->of[N_WORKS - 1];
	of_work = unweighted(s);
	dlb_roofline_fit(&all, &of_work);
	for (int w = 0; w < N_WORKS; w++) {
		struct dlb_roofline start = m->of[w];
		take_samples(g, p, q, w, s);
		if (!s->n) {
			/* A class that was not measured has default efficiencies and this kind's launch
			 * time. */
			m->of[w].launch_s = all.launch_s;
			continue;
		}
		m->fitted[w] = true;
		of_work = unweighted(s);
		dlb_roofline_fit(&m->of[w], &of_work);
		if (c)
			describe_fit(c, p, q, w, m, &start, s);
	}
}

/* ---- every op on every kind ---- */

struct fitter {
	struct dlb_cost *c;
	const struct dlb_graph *g;
	const struct dlb_profile *p;		/* may be NULL */
	const struct dlb_cluster *cl;
	struct kind_model *model;		/* [profile kind] */
	int *row_of;				/* [op] row of the profile; -1: none */
};

/* The profile's kind used for cluster kind k: the kind of the same name (then *exact is true), else the kind
 * of the same back end with the nearest number of threads, else the first kind. -1: the profile has no
 * kinds. */
static int base_kind(const struct fitter *f, int k, bool *exact)
{
	const struct dlb_device_kind *d = &f->cl->kind[k];
	int best = -1, best_gap = 0;

	*exact = false;
	for (int q = 0; f->p && q < f->p->n_kinds; q++) {
		const char *name = f->p->kind[q], *slash = strchr(name, '/');
		size_t n = slash ? (size_t)(slash - name) : strlen(name);
		int threads = slash ? atoi(slash + 1) : 1, gap = abs(threads - d->threads);
		if (!strcmp(name, d->name)) {
			*exact = true;
			return q;
		}
		if (strlen(d->backend) == n && !strncmp(d->backend, name, n) &&
		    (best < 0 || gap < best_gap)) {
			best = q;
			best_gap = gap;
		}
	}
	return best < 0 && f->p && f->p->n_kinds ? 0 : best;
}

static bool same_backend(const char *kind_name, const char *backend)
{
	size_t n = strcspn(kind_name, "/");

	return strlen(backend) == n && !strncmp(kind_name, backend, n);
}

/* Finds the rooflines of cluster kind k: efficiencies of the base kind, with k's own peak and bandwidth. */
static int model_of(const struct fitter *f, int k, int base, bool exact, struct kind_model *m,
		    struct dlb_error *err)
{
	const struct dlb_device_kind *d = &f->cl->kind[k];
	char where[300];

	memset(m, 0, sizeof *m);
	if (exact) {
		*m = f->model[base];
		state_model(d, m);
		return 0;
	}
	m->peak_flops = d->peak_flops;
	m->bandwidth_Bps = d->bandwidth_Bps;
	if (base >= 0 && same_backend(f->p->kind[base], d->backend)) {
		const char *slash = strchr(f->p->kind[base], '/');
		double times = (double)d->threads / (slash ? fmax(1, atoi(slash + 1)) : 1);
		if (m->peak_flops <= 0)
			m->peak_flops = f->model[base].peak_flops * (1 + thread_efficiency * (times - 1));
		if (m->bandwidth_Bps <= 0)
			m->bandwidth_Bps = f->model[base].bandwidth_Bps * sqrt(times);
	} else if (!strcmp(d->backend, "cpu")) {
		if (m->peak_flops <= 0)
			m->peak_flops = default_peak_flops * (1 + thread_efficiency * (d->threads - 1));
		if (m->bandwidth_Bps <= 0)
			m->bandwidth_Bps = default_bandwidth_Bps * sqrt(d->threads);
	}
	if (!(m->peak_flops > 0) || !(m->bandwidth_Bps > 0)) {
		snprintf(where, sizeof where, "/cluster/kinds/%d", k);
		dlb_fail(err, where,
			 "there are no figures for the kind '%s': it is not in the profile and has no "
			 "peak_flops and bandwidth_Bps",
			 d->name);
		const char *known[1] = { "cpu" };
		char places[200];
		dlb_share_places("clusters", places, sizeof places);
		const char *near = dlb_nearest(d->name, f->p && f->p->n_kinds ? f->p->kind : known,
					       f->p && f->p->n_kinds ? f->p->n_kinds : 1);
		return near ? dlb_hint(err, "did you mean '%s'?", near) :
			      dlb_hint(err, "state them, or name a file: '%.40s' is none, nor in %s", d->name,
				       places);
	}
	default_model(m);
	for (int w = 0; base >= 0 && w < N_WORKS; w++) {
		const struct kind_model *b = &f->model[base];
		m->of[w].launch_s = b->of[w].launch_s;
		m->of[w].flop_s = b->of[w].flop_s * b->peak_flops / m->peak_flops;
		m->of[w].byte_s = b->of[w].byte_s * b->bandwidth_Bps / m->bandwidth_Bps;
	}
	state_model(d, m);
	return 0;
}

/* Finds the times of one op on one kind at every batch size. Measurements are used as they are. For a batch
 * size or kind without a measurement, the measurement at the nearest batch size is multiplied by the ratio of
 * the rooflines. Returns whether the op was measured on this kind. */
static bool op_times(const struct fitter *f, int op, int k, int base, bool exact, const struct kind_model *m,
		     double *t)
{
	const struct dlb_cost *c = f->c;
	const struct dlb_profile_row *row = f->row_of[op] < 0 ? NULL : &f->p->row[f->row_of[op]];
	const char *type = f->g->op[op].type;
	const double *seen = row && base >= 0 ? row->time_s[base] : NULL;
	int w = work_of(type);
	const struct dlb_device_kind *d = &f->cl->kind[k];
	bool none = dlb_device_kind_lacks(d, type, f->g->op[op].kind),
	     measured = exact && seen && isfinite(seen[0]);

	for (int b = 0; b < c->n_batches; b++)
		if (seen && isinf(seen[b]) && same_backend(f->p->kind[base], d->backend))
			none = true;
	for (int b = 0; b < c->n_batches; b++) {
		double flop = dlb_op_flop_at(f->g, op, c->batch[b]),
		       bytes = dlb_op_bytes_at(f->g, op, c->batch[b]);
		int near = -1;
		if (none) {
			t[b] = INFINITY;
			measured = false;
			continue;
		}
		for (int i = 0; seen && i < c->n_batches; i++)
			if (isfinite(seen[i]) && (near < 0 || abs(i - b) < abs(near - b)))
				near = i;
		t[b] = dlb_roofline_s(&m->of[w], flop, bytes);
		if (near >= 0 && exact && near == b) {
			t[b] = seen[b];
			continue;
		}
		if (near >= 0 && !(m->stated[w] && !exact)) {
			double there = dlb_roofline_s(&f->model[base].of[w],
						      dlb_op_flop_at(f->g, op, c->batch[near]),
						      dlb_op_bytes_at(f->g, op, c->batch[near]));
			if (there > 0)
				t[b] *= seen[near] / there;
		}
	}
	return measured;
}

static void kind_sizes(const struct fitter *f, int k, int base)
{
	struct dlb_cost *c = f->c;

	for (int i = 0; i < c->n_ops; i++) {
		size_t at = (size_t)k * (size_t)c->n_ops + (size_t)i;
		if (base < 0 || f->row_of[i] < 0)
			continue;
		const struct dlb_profile_row *row = &f->p->row[f->row_of[i]];
		const size_t bytes = (size_t)c->n_batches * sizeof(double);

		memcpy(&c->scratch_bytes[at * (size_t)c->n_batches], row->scratch_bytes[base], bytes);
		memcpy(&c->packed_bytes[at * (size_t)c->n_batches], row->packed_bytes[base], bytes);
		c->workspace_bytes[at] = row->workspace_bytes[base];
	}
}

static int fill_kind(struct fitter *f, int k, struct dlb_error *err)
{
	struct dlb_cost *c = f->c;
	struct kind_model m;
	bool exact;
	int base = base_kind(f, k, &exact), n = 0;
	double *e;

	if (model_of(f, k, base, exact, &m, err))
		return -1;
	c->accumulate_Bps[k] = m.bandwidth_Bps;
	c->profile_step_s[k] = exact ? f->p->step_s[base] : NAN;
	c->step_spread[k] = exact ? f->p->step_spread[base] : NAN;
	c->step_overhead_s[k] = exact ? f->p->step_overhead_s[base] : NAN;
	e = dlb_xcalloc((size_t)c->n_ops + 1, sizeof *e);
	for (int i = 0; i < c->n_ops; i++) {
		size_t at = (size_t)k * (size_t)c->n_ops + (size_t)i;
		double *t = &c->op_s[at * (size_t)c->n_batches];
		/* Ops of one row of the profile have equal costs: the first op's times are copied. */
		int r = f->row_of[i], first = r < 0 ? i : f->p->row[r].op[0];
		if (first < i) {
			size_t from = (size_t)k * (size_t)c->n_ops + (size_t)first;
			memcpy(t, &c->op_s[from * (size_t)c->n_batches], (size_t)c->n_batches * sizeof *t);
			c->measured[at] = c->measured[from];
			continue;
		}
		c->measured[at] = op_times(f, i, k, base, exact, &m, t);
		if (c->measured[at] && t[0] > 0) {
			double model = dlb_roofline_s(&m.of[work_of(f->g->op[i].type)],
						      dlb_op_flop_at(f->g, i, c->batch[0]),
						      dlb_op_bytes_at(f->g, i, c->batch[0]));
			e[n++] = fabs(model - t[0]) / t[0];
		}
	}
	c->fit_error[k] = median_of(e, n);
	free(e);
	kind_sizes(f, k, base);
	return 0;
}

static void init(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		 const struct dlb_cluster *cl)
{
	struct dlb_arena *a = &c->arena;

	memset(c, 0, sizeof *c);
	c->graph = g;
	c->cluster = cl;
	c->n_ops = g->n_ops;
	c->n_kinds = cl->n_kinds;
	c->update_scale = 1;
	c->batch = dlb_arena_array(a, p ? (size_t)p->n_batches + 1 : 6, sizeof *c->batch);
	for (int b = 0; p && b < p->n_batches; b++)
		c->batch[c->n_batches++] = p->batch[b];
	for (int64_t b = g->batch; !p && b >= 1 && b * 16 >= g->batch && c->n_batches < 5; b /= 2)
		c->batch[c->n_batches++] = b;
	if (!c->n_batches)
		c->batch[c->n_batches++] = 1;
	dlb_cost_make_arrays(c);
	c->fit = dlb_arena_array(a, (p ? (size_t)p->n_kinds * N_WORKS : 0) + 1, sizeof *c->fit);
}

static int fit(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
	       const struct dlb_cluster *cl, bool describe, struct dlb_error *err)
{
	struct fitter f = { .c = c, .g = g, .p = p, .cl = cl };
	struct dlb_arena scratch = { 0 };
	struct samples s = { .n = 0 };
	size_t n = p ? (size_t)p->n_rows * (size_t)p->n_batches + 1 : 1;
	int rc = 0;

	init(c, g, p, cl);
	f.model = dlb_arena_array(&scratch, (p ? (size_t)p->n_kinds : 0) + 1, sizeof *f.model);
	f.row_of = dlb_arena_array(&scratch, (size_t)g->n_ops + 1, sizeof *f.row_of);
	for (int i = 0; i < g->n_ops; i++)
		f.row_of[i] = -1;
	for (int r = 0; p && r < p->n_rows; r++)
		for (int i = 0; i < p->row[r].n_ops; i++)
			f.row_of[p->row[r].op[i]] = r;
	s.flop = dlb_arena_array(&scratch, n, sizeof *s.flop);
	s.bytes = dlb_arena_array(&scratch, n, sizeof *s.bytes);
	s.time_s = dlb_arena_array(&scratch, n, sizeof *s.time_s);
	s.weight = dlb_arena_array(&scratch, n, sizeof *s.weight);
	s.row = dlb_arena_array(&scratch, n, sizeof *s.row);
	s.work = dlb_arena_array(&scratch, p ? (size_t)p->n_rows + 1 : 1, sizeof *s.work);
	for (int r = 0; p && r < p->n_rows; r++)
		s.work[r] = work_of(p->row[r].type);
	for (int q = 0; p && q < p->n_kinds; q++) {
		const struct dlb_device_kind *stated = NULL;
		for (int k = 0; k < cl->n_kinds; k++)
			if (!strcmp(cl->kind[k].name, p->kind[q]))
				stated = &cl->kind[k];
		fit_kind(describe ? c : NULL, g, p, q, stated, &s, &f.model[q]);
	}
	for (int k = 0; k < cl->n_kinds && !rc; k++)
		rc = fill_kind(&f, k, err);
	dlb_arena_release(&scratch);
	if (rc)
		dlb_cost_release(c);
	return rc;
}

int dlb_cost_fit(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		 const struct dlb_cluster *cl, struct dlb_error *err)
{
	return fit(c, g, p, cl, true, err);
}

int dlb_cost_estimate(struct dlb_cost *c, const struct dlb_graph *g, const struct dlb_profile *p,
		      const struct dlb_cluster *cl, struct dlb_error *err)
{
	return fit(c, g, p, cl, false, err);
}

/* ---- output of -v ---- */

static void print_percent(FILE *f, double x)
{
	if (isfinite(x))
		fprintf(f, " %8.0f%%", 100 * x);
	else
		fprintf(f, " %9s", "-");
}

void dlb_cost_print_fit(const struct dlb_cost *c, FILE *f)
{
	for (int k = 0; k < c->n_kinds; k++) {
		int measured = 0, none = 0;
		double sum = 0;
		for (int i = 0; i < c->n_ops; i++) {
			size_t at = (size_t)k * (size_t)c->n_ops + (size_t)i;
			measured += c->measured[at];
			none += isinf(c->op_s[at * (size_t)c->n_batches]);
			if (isfinite(c->op_s[at * (size_t)c->n_batches]))
				sum += c->op_s[at * (size_t)c->n_batches];
		}
		fprintf(f, "kind %s: %d of %d ops measured, %d without a kernel, %.6g s a step",
			c->cluster->kind[k].name, measured, c->n_ops, none, sum);
		if (isfinite(c->profile_step_s[k]))
			fprintf(f, " (whole step measured: %.6g s)", c->profile_step_s[k]);
		if (isfinite(c->fit_error[k]))
			fprintf(f, ", roofline off by %.0f%% (median)", 100 * c->fit_error[k]);
		fputc('\n', f);
	}
	if (!c->n_fits)
		return;
	fprintf(f, "%-10s %-12s %7s %10s %9s %9s %9s %9s  %s\n", "kind", "work", "samples", "launch_s",
		"of peak", "of bandw.", "median", "unseen", "worst");
	for (int i = 0; i < c->n_fits; i++) {
		const struct dlb_cost_fit *r = &c->fit[i];
		fprintf(f, "%-10s %-12s %7d %10.2e", r->kind, r->work, r->n, r->launch_s);
		print_percent(f, r->flop_efficiency);
		print_percent(f, r->bytes_efficiency);
		print_percent(f, r->median_error);
		print_percent(f, r->blind_error);
		fprintf(f, "  %s, %.0f%%\n", r->worst ? r->worst : "-", 100 * r->worst_error);
	}
}
