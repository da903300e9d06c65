/* The report's members on evaluations during training, and the best of them.
 *
 *     "evaluations": [{"step": 100, "test_loss": 0.41, "accuracy": 0.86, "time_s": 0.2}, ...],
 *     "best": {"step": 100, "test_loss": 0.41, "saved": "FILE"} */
#include <math.h>
#include "plan/report.h"

void dlb_report_evals_write(const struct dlb_report *r, json_t *report)
{
	json_t *list = r->n_evals ? json_array() : NULL;

	for (int i = 0; i < r->n_evals; i++) {
		json_t *o = json_object();

		dlb_set_int(o, "step", r->eval[i].step);
		dlb_set_finite(o, "test_loss", r->eval[i].test_loss);
		dlb_set_finite(o, "accuracy", r->eval[i].accuracy);
		dlb_set_finite(o, "time_s", r->eval[i].time_s);
		json_array_append_new(list, o);
	}
	if (list)
		json_object_set_new(report, "evaluations", list);
	if (r->best.saved) {
		json_t *o = json_object();

		dlb_set_int(o, "step", r->best.step);
		dlb_set_finite(o, "test_loss", r->best.test_loss);
		dlb_set_str(o, "saved", r->best.saved);
		json_object_set_new(report, "best", o);
	}
}

static int read_eval(const struct dlb_ref *r, struct dlb_report_eval *e, struct dlb_error *err)
{
	static const char *const known[] = { "step", "test_loss", "accuracy", "time_s", NULL };

	*e = (struct dlb_report_eval){ .test_loss = NAN, .accuracy = NAN, .time_s = NAN };
	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	return dlb_ref_known(r, known, err) ||
			       dlb_get_int(r, "step", DLB_NEED, 0, INT64_MAX, &e->step, err) ||
			       dlb_get_real(r, "test_loss", DLB_OPT, -HUGE_VAL, HUGE_VAL, &e->test_loss,
					    err) ||
			       dlb_get_real(r, "accuracy", DLB_OPT, 0, 1, &e->accuracy, err) ||
			       dlb_get_real(r, "time_s", DLB_OPT, 0, 1e18, &e->time_s, err) ?
		       -1 :
		       0;
}

static int read_best(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "step", "test_loss", "saved", NULL };
	struct dlb_ref r = { .v = NULL };
	const char *saved = NULL;

	if (dlb_get_object(report, "best", DLB_OPT, &r, err))
		return -1;
	if (!r.v)
		return 0;
	if (dlb_ref_known(&r, known, err) ||
	    dlb_get_int(&r, "step", DLB_NEED, 0, INT64_MAX, &out->best.step, err) ||
	    dlb_get_real(&r, "test_loss", DLB_NEED, -HUGE_VAL, HUGE_VAL, &out->best.test_loss, err) ||
	    dlb_get_str(&r, "saved", DLB_NEED, &saved, err))
		return -1;
	out->best.saved = dlb_arena_strdup(&out->arena, saved);
	return 0;
}

int dlb_report_evals_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(report, "evaluations", DLB_OPT, &list, &n, err))
		return -1;
	n = list.v ? n : 0;
	out->eval = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->eval);
	for (out->n_evals = 0; out->n_evals < n; out->n_evals++) {
		struct dlb_ref e = dlb_ref_index(&list, out->n_evals);

		if (read_eval(&e, &out->eval[out->n_evals], err))
			return -1;
	}
	return read_best(report, out, err);
}
