/* The interval of a predicted step: 9 of 10 runs are expected to measure a step in it.
 *
 * The errors e = ln(measured / predicted) of runs are assumed normal, with unknown mean and variance. Before
 * any run is measured, their mean is expected to be u0 and their standard deviation s0, as if from k and v
 * rounds. The n rounds of the history that the present model predicted, with mean m and sum of squares S
 * about it, are added (the conjugate normal-inverse-chi-squared prior; Gelman et al., Bayesian Data Analysis,
 * 3rd ed., section 3.3):
 *
 *     mean      u = (k u0 + n m) / (k + n)
 *     variance  s^2 = (v s0^2 + S + k n / (k + n) (m - u0)^2) / (v + n)
 *     next      u +- t s sqrt(1 + 1 / (k + n))	t: Student's t with v + n degrees of freedom
 *
 * The relative standard deviation of a step between the turns of the profile, on the node where it is
 * largest, is merged into s0 like that of DLB_SPREAD_ROUNDS more rounds, because no prediction is more
 * exact than the machine's speed is constant.
 *
 * The time of an op that was not measured comes from a roofline. s0 is widened by 1.4826 times the median
 * error of the kind's roofline on measured ops (the standard deviation of normal errors), weighted by such
 * ops' share of the time. */
#ifndef DLB_PLAN_INTERVAL_H
#define DLB_PLAN_INTERVAL_H
#include "plan/plan.h"

enum { DLB_SPREAD_ROUNDS = 3 };
/* The prior of e: u0, k, s0, v. */
struct dlb_interval_prior {
	double mean, mean_rounds, sd, sd_rounds;
};
/* The bounds of the interval, as factors of the prediction. */
struct dlb_interval {
	double low, high;
};
/* The interval of the next round. error: e of n rounds. */
struct dlb_interval dlb_interval_next(const struct dlb_interval_prior *x, const double *error, int n);
/* The interval of a plan under costs c. corrected: the costs are multiplied by factors measured in earlier
 * rounds. error: e of the n rounds that were predicted with the present factors. */
struct dlb_interval dlb_interval_of(const struct dlb_plan *p, const struct dlb_cost *c, bool corrected,
				    const double *error, int n);
/* The value that Student's t with v degrees of freedom, v >= 4, does not exceed with probability 0.95; within
 * 0.1 %. */
double dlb_student_t95(double v);
#endif
