/* How far a measured step may be from the predicted one. See interval.h. */
#include "plan/interval.h"
#include <math.h>

/* Priors from plans on one and two nodes of one machine: most predictions that no measured round has
 * corrected are too low. */
static const struct dlb_interval_prior uncorrected = { 0.08, 2, 0.06, 4 }, expected = { 0.01, 2, 0.035, 4 };
static const double unmeasured = 0.5; /* relative error for kinds of which no op was measured; assumed */

double dlb_student_t95(double v)
{
	const double z = 1.6448536269514722, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z,
		     z9 = z7 * z * z;

	/* Abramowitz and Stegun, 26.7.5 */
	return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
	       (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v) +
	       (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * v * v * v * v);
}

struct dlb_interval dlb_interval_next(const struct dlb_interval_prior *x, const double *error, int n)
{
	const double k = x->mean_rounds, v = x->sd_rounds;
	double m = 0.0, squares = 0.0;

	for (int i = 0; i < n; i++)
		m += error[i] / n;
	for (int i = 0; i < n; i++)
		squares += (error[i] - m) * (error[i] - m);
	const double off = m - x->mean, u = (k * x->mean + n * m) / (k + n),
		     s2 = (v * x->sd * x->sd + squares + k * n / (k + n) * off * off) / (v + n),
		     half = dlb_student_t95(v + n) * sqrt(s2 * (1 + 1 / (k + n)));

	return (struct dlb_interval){ exp(u - half), exp(u + half) };
}

/* Relative error of the step's compute time that is due to ops whose times come from a roofline. */
static double roofline_sd(const struct dlb_plan *p, const struct dlb_cost *c)
{
	double all_s = 0.0, off_s = 0.0;

	for (int i = 0; i < p->n_ops; i++) {
		const int kind = c->cluster->node[p->placement[i]].kind;
		const double s = dlb_cost_op_s(c, i, p->placement[i], (double)p->batch),
			     error = c->fit_error[kind];

		if (!isfinite(s))
			continue;
		all_s += s;
		if (!c->measured[(size_t)kind * (size_t)c->n_ops + (size_t)i])
			off_s += s * (isnan(error) ? unmeasured : 1.4826 * error);
	}
	return all_s > 0.0 ? off_s / all_s : 0.0;
}

/* The largest spread of the plan's nodes; NAN: not known. */
static double step_spread(const struct dlb_plan *p, const struct dlb_cost *c)
{
	double most = NAN;

	for (int i = 0; i < p->n_ops; i++)
		most = fmax(most, c->step_spread[c->cluster->node[p->placement[i]].kind]);
	return most;
}

/* Merges a measured spread into the prior of the standard deviation. */
static void take_spread(struct dlb_interval_prior *x, double spread)
{
	const double v = x->sd_rounds, n = DLB_SPREAD_ROUNDS;

	if (isnan(spread))
		return;
	x->sd = sqrt((v * x->sd * x->sd + n * spread * spread) / (v + n));
	x->sd_rounds += n;
}

struct dlb_interval dlb_interval_of(const struct dlb_plan *p, const struct dlb_cost *c, bool corrected,
				    const double *error, int n)
{
	struct dlb_interval_prior x = corrected ? expected : uncorrected;

	take_spread(&x, step_spread(p, c));
	if (!corrected)
		x.sd = hypot(x.sd, roofline_sd(p, c));
	return dlb_interval_next(&x, error, n);
}
