/* The interval of a predicted step: where 9 of 10 runs are expected to measure.
 *
 * The errors e = ln(measured / predicted) of runs are taken as normal, with unknown mean and variance. Before a run
 * was measured, their mean is expected to be u0 and their standard deviation s0, as if from k and v rounds. The n
 * rounds of the history that the present model predicted, with mean m and sum of squares S about it, are added (the
 * conjugate normal-inverse-chi-squared prior; Gelman et al., Bayesian Data Analysis, 3rd ed., section 3.3):
 *
 *     mean      u = (k u0 + n m) / (k + n)
 *     variance  s^2 = (v s0^2 + S + k n / (k + n) (m - u0)^2) / (v + n)
 *     next      u +- t s sqrt(1 + 1 / (k + n))	t: Student's t with v + n degrees of freedom
 *
 * The relative standard deviation of a step between the turns of the profile, on the node where it is
 * largest, is taken into s0 as that of DLB_SPREAD_ROUNDS more rounds: a prediction is no better than the
 * machine keeps its speed.
 *
 * An op whose time was not measured has that of a roofline. 1.4826 times the median error of the kind's roofline on
 * measured ops (their standard deviation, were they normal) widens s0, by such ops' share of the time. */
#ifndef DLB_PLAN_INTERVAL_H
#define DLB_PLAN_INTERVAL_H
#include "plan/plan.h"

enum { DLB_SPREAD_ROUNDS = 3 };
/* What is expected of e: u0, k, s0, v. */
struct dlb_interval_prior {
	double mean, mean_rounds, sd, sd_rounds;
};
/* Factors of the prediction. */
struct dlb_interval {
	double low, high;
};
/* error: e of n rounds. */
struct dlb_interval dlb_interval_next(const struct dlb_interval_prior *x, const double *error, int n);
/* Of a plan under these costs. corrected: they are multiplied by factors measured in earlier rounds. error:
 * e of the n rounds that were predicted with the present factors. */
struct dlb_interval dlb_interval_of(const struct dlb_plan *p, const struct dlb_cost *c, bool corrected,
				    const double *error, int n);
/* Student's t of v degrees of freedom, v >= 4, that is not exceeded with probability 0.95; within 0.1 %. */
double dlb_student_t95(double v);
#endif
