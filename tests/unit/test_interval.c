/* The interval of a prediction: Student's t against a table, and by simulation how many next errors lie inside. */
#include "check.h"
#include "plan/interval.h"
#include "util/rng.h"
#include <math.h>

/* The 0.95 quantile of Student's t (NIST/SEMATECH e-Handbook, table 1.3.6.7.2). */
static void t_is_the_table(void)
{
	static const struct {
		double v, t;
	} row[] = { { 4, 2.132 },  { 5, 2.015 },  { 7, 1.895 },  { 10, 1.812 },
		    { 15, 1.753 }, { 20, 1.725 }, { 60, 1.671 }, { 99, 1.660 } };

	for (int i = 0; i < DLB_LEN(row); i++)
		assert(fabs(dlb_student_t95(row[i].v) - row[i].t) < 0.001);
}

/* Share of next errors inside the interval when mean and standard deviation are drawn as the prior says: the mean
 * normal about u0 with variance sd^2 / k, sd^2 = v s0^2 / chi-squared of v. */
static double covered(const struct dlb_interval_prior *x, int n)
{
	const int cases = 20000;
	int inside = 0;

	for (int i = 0; i < cases; i++) {
		double error[8], chi2 = 0, z[32];

		for (int j = 0; j < 32; j++)
			z[j] = dlb_philox_normal(7, (uint64_t)i, (uint64_t)j);
		for (int j = 0; j < (int)x->sd_rounds; j++)
			chi2 += z[j] * z[j];
		const double sd = x->sd * sqrt(x->sd_rounds / chi2),
			     mean = x->mean + sd / sqrt(x->mean_rounds) * z[20];
		for (int j = 0; j < n; j++)
			error[j] = mean + sd * z[21 + j];
		const struct dlb_interval r = dlb_interval_next(x, error, n);
		const double next = exp(mean + sd * z[30]);
		inside += r.low <= next && next <= r.high;
	}
	return (double)inside / cases;
}

static void nine_of_ten_are_inside(void)
{
	static const struct dlb_interval_prior x = { 0.04, 2, 0.06, 4 };

	for (int n = 0; n <= 8; n += 2) /* standard error of the share: 0.2 % */
		assert(fabs(covered(&x, n) - 0.9) < 0.01);
}

static void rounds_narrow_it_and_move_it(void)
{
	static const struct dlb_interval_prior x = { 0.0, 2, 0.06, 4 };
	static const double error[] = { 0.101, 0.099, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1,
					0.1,   0.1,   0.1, 0.1, 0.1, 0.1, 0.1, 0.1 };
	const struct dlb_interval none = dlb_interval_next(&x, error, 0),
				  some = dlb_interval_next(&x, error, 16);

	assert(none.low < 1 && 1 < none.high && fabs(log(none.low) + log(none.high)) < 1e-12);
	assert(some.low < exp(0.1) && exp(0.1) < some.high && some.low > 1 &&
	       some.high - some.low < none.high - none.low);
}

int main(void)
{
	t_is_the_table();
	nine_of_ten_are_inside();
	rounds_narrow_it_and_move_it();
	return 0;
}
