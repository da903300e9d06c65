/* dlb-place --zero: the choice of the stage. See replan_zero.h and replan.h. */
#include <string.h>
#include "balance/replan_zero.h"
#include "place/problem.h"
#include "plan/sharing.h"

int dlb_replan_take_zero(struct dlb_replan *o)
{
	int64_t stage = 0;

	o->sharing.zero_given = o->zero != NULL;
	o->zero_auto = o->zero && !strcmp(o->zero, "auto");
	if (!o->zero || o->zero_auto)
		return 0;
	if (strcmp(o->zero, "0") && (!dlb_cli_is_count(o->zero, DLB_MOST_ZERO, &stage) || !stage))
		return dlb_cli_usage(o->cli, "--zero wants 0, 1, 2, 3 or auto, not '%s'", o->zero);
	o->sharing.zero = stage;
	return 0;
}

int dlb_replan_dividing(const struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			struct dlb_plan *plan, struct dlb_error *err)
{
	const struct dlb_replicas_choice c = dlb_replan_replicas(in);
	struct dlb_replan with = *in->options;
	struct replan_input stage = *in;
	int rc;

	if (!with.zero_auto)
		return make(in, p, plan, err);
	stage.options = &with;
	for (with.sharing.zero = 0;; with.sharing.zero++) {
		rc = make(&stage, p, plan, err);
		if (!rc || dlb_error_status(err) != 1 || dlb_problem_is_limited(p) || c.n == 1 ||
		    with.sharing.zero == DLB_MOST_ZERO || dlb_sharing_undivided(&c.sharing))
			return rc;
	}
}
