/* The report's member on K-FAC: the weights that it preconditioned, the optimizer of the others, and
 * counts of failures.
 *
 *     "kfac": {"weights": ["fc1.weight", ...], "others": "sgd", "left": [{"weight": "wte.weight", "why": "several ops read it"}],
 *              "inverses": 40, "shifted": 0, ...} */
#include <stddef.h>
#include "plan/report.h"

static const struct { const char *name; size_t at;
} counts[] = {
	{ "inverses", offsetof(struct dlb_report_kfac, inverses) },
	{ "shifted", offsetof(struct dlb_report_kfac, shifted) },
	{ "kept", offsetof(struct dlb_report_kfac, kept) },
	{ "not_finite", offsetof(struct dlb_report_kfac, not_finite) },
	{ "held_back", offsetof(struct dlb_report_kfac, held_back) },
	{ "exchanges", offsetof(struct dlb_report_kfac, exchanges) },
	{ "not_symmetric", offsetof(struct dlb_report_kfac, not_symmetric) },
	{ "not_definite", offsetof(struct dlb_report_kfac, not_definite) },
	{ "hops_failed", offsetof(struct dlb_report_kfac, hops_failed) },
};

static int64_t *count_at(struct dlb_report_kfac *k, int i)
{
	return (int64_t *)(void *)((char *)k + counts[i].at);
}

json_t *dlb_report_kfac_write(const struct dlb_report_kfac *k)
{
	struct dlb_report_kfac copy = *k;
	json_t *o = json_object(), *weights = json_array(), *left = json_array();

	for (int i = 0; i < k->n_weights; i++)
		json_array_append_new(weights, json_string(k->weight[i]));
	json_object_set_new(o, "weights", weights);
	dlb_set_str(o, "others", k->others);
	for (int i = 0; i < k->n_left; i++)
		json_array_append_new(left, json_pack("{s:s,s:s}", "weight", k->left[i].weight, "why",
						      k->left[i].why));
	json_object_set_new(o, "left", left);
	for (int i = 0; i < DLB_LEN(counts); i++)
		dlb_set_int(o, counts[i].name, *count_at(&copy, i));
	return o;
}

static int read_left(const struct dlb_ref *r, struct dlb_report_kfac *k, struct dlb_arena *a,
		     struct dlb_error *err)
{
	static const char *const known[] = { "weight", "why", NULL };
	struct dlb_ref list;

	if (!json_object_get(r->v, "left"))
		return 0;
	if (dlb_get_array(r, "left", DLB_NEED, &list, &k->n_left, err))
		return -1;
	k->left = dlb_arena_array(a, (size_t)k->n_left + 1, sizeof *k->left);
	for (int i = 0; i < k->n_left; i++) {
		struct dlb_ref e = dlb_ref_index(&list, i);
		const char *weight, *why;

		if (dlb_ref_known(&e, known, err) || dlb_get_str(&e, "weight", DLB_NEED, &weight, err) ||
		    dlb_get_str(&e, "why", DLB_NEED, &why, err))
			return -1;
		k->left[i] = (struct dlb_report_left){ dlb_arena_strdup(a, weight),
						       dlb_arena_strdup(a, why) };
	}
	return 0;
}

int dlb_report_kfac_read(const struct dlb_ref *r, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "weights",   "others",        "left",         "inverses",
					     "shifted",   "kept",          "not_finite",   "held_back",
					     "exchanges", "not_symmetric", "not_definite", "hops_failed",
					     NULL };
	struct dlb_report_kfac *k = &out->kfac;
	struct dlb_ref at, list;
	const char *others;

	if (!json_object_get(r->v, "kfac"))
		return 0;
	if (dlb_get_object(r, "kfac", DLB_NEED, &at, err) || dlb_ref_known(&at, known, err) ||
	    dlb_get_array(&at, "weights", DLB_NEED, &list, &k->n_weights, err) ||
	    dlb_get_str(&at, "others", DLB_NEED, &others, err))
		return -1;
	k->others = dlb_arena_strdup(&out->arena, others);
	k->weight = dlb_arena_array(&out->arena, (size_t)k->n_weights + 1, sizeof *k->weight);
	for (int i = 0; i < k->n_weights; i++) {
		struct dlb_ref e = dlb_ref_index(&list, i);

		if (!json_is_string(e.v))
			return dlb_ref_fail(&e, err, "must be the name of a weight");
		k->weight[i] = dlb_arena_strdup(&out->arena, json_string_value(e.v));
	}
	if (read_left(&at, k, &out->arena, err))
		return -1;
	for (int i = 0; i < DLB_LEN(counts); i++)
		if (dlb_get_int(&at, counts[i].name, DLB_OPT, 0, INT64_MAX, count_at(k, i), err))
			return -1;
	return 0;
}
