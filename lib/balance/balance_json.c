/* Reads and writes the balance section:
 *
 *     {"rule": "log", "round": 3, "first_round": 1, "stable": 2, "converged": false, "keep": false,
 *      "reason": null,
 *      "weights": [1.2, 0.8], "kappa": [1, 2], "kappa_mean": [1, 2], "kappa_rounds": [3, 1],
 *      "settled": [1, 2],                                                absent: the search has not ended
 *      "spread": 0.02, "spread_rounds": 3, "eta": 0.8, "last_sign": [0, 0], "hold": 0, "hold_off": 1,
 *      "expected_s": ..., "floor_s": ...,
 *      "best": {"step_s": ..., "step_se_s": ..., "rounds": 2, "plan_hash": "...", "weights": [...],
 *               "replicas": [[0], [1]], "power": [16, 8]},                absent: one replica
 *      "best_placement": [0, 0, 1, ...],
 *      "links": [{"link": 0, "factor": 0.1, ...}],                      absent: all have the stated bandwidth
 *      "history": [{"round": 1, "step_s": ..., "plan_hash": "...", "weights": [...], ...}]}
 *
 * weights, round and converged are stable for scripts. A section written by hand may have only weights. Sizes
 * are checked against the cluster: weights belong to its node ids. */
#include "balance/rules.h"
#include "plan/plan_json.h"
#include <math.h>
#include <string.h>

enum { MAX_ROUNDS = 1 << 20, MAX_OPS = 1 << 28 };

static json_t *write_reals(const double *x, int n)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_real(x[i]));
	return a;
}

static json_t *write_round(const struct dlb_balance_round *r, int n_nodes)
{
	json_t *o = json_object();

	dlb_set_int(o, "round", r->round);
	dlb_set_real(o, "step_s", r->step_s);
	dlb_set_real(o, "step_se_s", r->step_se_s);
	dlb_set_real(o, "predicted_step_s", r->predicted_step_s);
	if (r->expected_s > 0)
		dlb_set_real(o, "expected_s", r->expected_s);
	dlb_set_real(o, "max_excess_s", r->max_excess_s);
	dlb_set_real(o, "mean_excess_s", r->mean_excess_s);
	dlb_set_bool(o, "test_a", r->test_a);
	dlb_set_bool(o, "test_b", r->test_b);
	dlb_set_bool(o, "held", r->held);
	dlb_set_bool(o, "rolled_back", r->rolled_back);
	dlb_set_bool(o, "changed", r->changed);
	dlb_set_bool(o, "noisy", r->noisy);
	dlb_set_str(o, "decision", r->decision);
	if (r->price_s > 0) {
		dlb_set_real(o, "gain_s", r->gain_s);
		dlb_set_real(o, "price_s", r->price_s);
	}
	dlb_set_real(o, "drift", r->drift);
	dlb_set_str(o, "plan_hash", r->plan_hash);
	dlb_set_int(o, "moved_ops", r->moved_ops);
	json_object_set_new(o, "weights", write_reals(r->weight, n_nodes));
	return o;
}

static json_t *write_best(const struct dlb_balance *b)
{
	json_t *o = json_object();

	dlb_set_real(o, "step_s", b->best_step_s);
	dlb_set_real(o, "step_se_s", b->best_se_s);
	dlb_set_int(o, "rounds", b->best_rounds);
	dlb_set_str(o, "plan_hash", b->best_plan_hash);
	if (b->best_weight)
		json_object_set_new(o, "weights", write_reals(b->best_weight, b->n_nodes));
	if (b->best_teams.n > 1) {
		struct dlb_plan teams;
		dlb_plan_init(&teams, 0, b->n_nodes);
		dlb_balance_teams_set(&b->best_teams, &teams);
		dlb_plan_write_replicas(&teams, o);
		dlb_plan_release(&teams);
	}
	return o;
}

static json_t *write_links(const struct dlb_balance *b)
{
	json_t *list = json_array();

	for (int i = 0; i < b->n_links; i++) {
		const struct dlb_balance_link *x = &b->link[i];
		json_t *o = json_object();

		dlb_set_int(o, "link", x->link);
		dlb_set_real(o, "factor", x->factor);
		dlb_set_bool(o, "suspected", x->suspected);
		dlb_set_int(o, "unseen", x->unseen);
		dlb_set_int(o, "patience", x->patience);
		dlb_set_int(o, "trial", x->trial);
		json_array_append_new(list, o);
	}
	return list;
}

json_t *dlb_balance_write(const struct dlb_balance *b)
{
	json_t *o = json_object(), *history = json_array(), *placement;

	json_object_set_new(o, "rule", b->rule ? json_string(b->rule) : json_null());
	dlb_set_int(o, "round", b->round);
	dlb_set_int(o, "first_round", b->first_round);
	dlb_set_int(o, "stable", b->stable);
	dlb_set_bool(o, "converged", b->converged);
	dlb_set_bool(o, "keep", b->keep);
	json_object_set_new(o, "reason", b->reason ? json_string(b->reason) : json_null());
	json_object_set_new(o, "weights", write_reals(b->weight, b->n_nodes));
	json_object_set_new(o, "kappa", write_reals(b->kappa, b->n_nodes));
	json_object_set_new(o, "kappa_mean", write_reals(b->kappa_mean, b->n_nodes));
	json_object_set_new(o, "kappa_rounds", write_reals(b->kappa_rounds, b->n_nodes));
	if (b->settled)
		json_object_set_new(o, "settled", write_reals(b->settled, b->n_nodes));
	dlb_set_real(o, "spread", b->spread);
	dlb_set_int(o, "spread_rounds", b->spread_rounds);
	dlb_set_real(o, "eta", b->eta);
	json_object_set_new(o, "last_sign", write_reals(b->last_sign, b->n_nodes));
	dlb_set_int(o, "hold", b->hold);
	dlb_set_int(o, "hold_off", b->hold_off);
	if (b->expected_s > 0)
		dlb_set_real(o, "expected_s", b->expected_s);
	if (b->floor_s > 0)
		dlb_set_real(o, "floor_s", b->floor_s);
	if (b->n_samples)
		json_object_set_new(o, "samples", dlb_sample_times_write(b->sample, b->n_samples));
	if (b->best_step_s > 0)
		json_object_set_new(o, "best", write_best(b));
	if (b->best_placement) {
		placement = json_array();
		for (int i = 0; i < b->n_placement; i++)
			json_array_append_new(placement, json_integer(b->best_placement[i]));
		json_object_set_new(o, "best_placement", placement);
	}
	if (b->n_links)
		json_object_set_new(o, "links", write_links(b));
	for (int i = 0; i < b->n_history; i++)
		json_array_append_new(history, write_round(&b->history[i], b->n_nodes));
	json_object_set_new(o, "history", history);
	return o;
}

/* ---- reading ---- */

struct range { double min, max; };

/* Reads a number in the range for each node into a new array *out; if absent, *out is unchanged. */
static int get_reals(const struct dlb_ref *r, const char *key, int opt, struct range range,
		     struct dlb_balance *b, double **out, struct dlb_error *err)
{
	struct dlb_ref a;
	double *x;
	int n = 0;

	a.v = NULL;
	if (dlb_get_array(r, key, opt, &a, &n, err))
		return -1;
	if (!a.v)
		return 0;
	if (n != b->n_nodes)
		return dlb_ref_fail(&a, err, "%d numbers for %d nodes", n, b->n_nodes);
	x = dlb_arena_array(&b->arena, (size_t)n + 1, sizeof *x);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		if (dlb_ref_real(&e, range.min, range.max, &x[i], err))
			return -1;
	}
	*out = x;
	return 0;
}

static int get_count(const struct dlb_ref *r, const char *key, int *out, struct dlb_error *err)
{
	int64_t v = *out;

	if (dlb_get_int(r, key, DLB_OPT, 0, MAX_OPS, &v, err))
		return -1;
	*out = (int)v;
	return 0;
}

static int get_hash(const struct dlb_ref *r, char out[17], struct dlb_error *err)
{
	const char *s = "";

	if (dlb_get_str(r, "plan_hash", DLB_OPT, &s, err))
		return -1;
	snprintf(out, 17, "%.16s", s);
	return 0;
}

/* Reads a string or null. */
static int get_word(const struct dlb_ref *r, const char *key, struct dlb_balance *b, const char **out,
		    struct dlb_error *err)
{
	struct dlb_ref at = dlb_ref_at(r, key);
	const char *s = NULL;

	if (!at.v || json_is_null(at.v))
		return 0;
	if (dlb_get_str(r, key, DLB_NEED, &s, err))
		return -1;
	*out = dlb_arena_strdup(&b->arena, s);
	return 0;
}

static int read_round(const struct dlb_ref *r, struct dlb_balance *b, struct dlb_balance_round *h,
		      struct dlb_error *err)
{
	static const char *const known[] = {
		"round",      "step_s",       "step_se_s",     "predicted_step_s",
		"expected_s", "max_excess_s", "mean_excess_s", "test_a",
		"test_b",     "held",         "rolled_back",   "changed",
		"drift",      "plan_hash",    "moved_ops",     "weights",
		"noisy",      "decision",     "gain_s",        "price_s",
		NULL
	};

	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "an object is expected");
	h->weight = b->weight;
	h->drift = 1;
	return dlb_ref_known(r, known, err) || get_count(r, "round", &h->round, err) ||
			       dlb_get_real(r, "step_s", DLB_NEED, 0, 1e18, &h->step_s, err) ||
			       dlb_get_real(r, "step_se_s", DLB_OPT, 0, 1e18, &h->step_se_s, err) ||
			       dlb_get_real(r, "predicted_step_s", DLB_OPT, 0, 1e18, &h->predicted_step_s,
					    err) ||
			       dlb_get_real(r, "expected_s", DLB_OPT, 0, 1e18, &h->expected_s, err) ||
			       dlb_get_real(r, "max_excess_s", DLB_OPT, 0, 1e18, &h->max_excess_s, err) ||
			       dlb_get_real(r, "mean_excess_s", DLB_OPT, 0, 1e18, &h->mean_excess_s, err) ||
			       dlb_get_bool(r, "test_a", DLB_OPT, &h->test_a, err) ||
			       dlb_get_bool(r, "test_b", DLB_OPT, &h->test_b, err) ||
			       dlb_get_bool(r, "held", DLB_OPT, &h->held, err) ||
			       dlb_get_bool(r, "rolled_back", DLB_OPT, &h->rolled_back, err) ||
			       dlb_get_bool(r, "changed", DLB_OPT, &h->changed, err) ||
			       dlb_get_bool(r, "noisy", DLB_OPT, &h->noisy, err) ||
			       dlb_get_real(r, "drift", DLB_OPT, 1e-9, 1e9, &h->drift, err) ||
			       get_word(r, "decision", b, &h->decision, err) ||
			       dlb_get_real(r, "gain_s", DLB_OPT, -1e18, 1e18, &h->gain_s, err) ||
			       dlb_get_real(r, "price_s", DLB_OPT, 0, 1e18, &h->price_s, err) ||
			       get_hash(r, h->plan_hash, err) ||
			       get_count(r, "moved_ops", &h->moved_ops, err) ||
			       get_reals(r, "weights", DLB_OPT, (struct range){ 0, 1e9 }, b, &h->weight,
					 err) ?
		       -1 :
		       0;
}

static int read_history(const struct dlb_ref *r, struct dlb_balance *b, struct dlb_error *err)
{
	struct dlb_ref a;
	int n = 0;

	a.v = NULL;
	if (dlb_get_array(r, "history", DLB_OPT, &a, &n, err))
		return -1;
	if (n > MAX_ROUNDS)
		return dlb_ref_fail(&a, err, "more than %d rounds", MAX_ROUNDS);
	b->history = dlb_arena_array(&b->arena, (size_t)n + 1, sizeof *b->history);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		if (read_round(&e, b, &b->history[i], err))
			return -1;
	}
	b->n_history = n;
	return 0;
}

static int read_best_teams(const struct dlb_ref *best, struct dlb_balance *b, struct dlb_error *err)
{
	struct dlb_plan teams;

	dlb_plan_init(&teams, 0, b->n_nodes);
	int rc = dlb_plan_read_replicas(best, &teams, err);
	if (!rc)
		b->best_teams = dlb_balance_teams_of(&teams, &b->arena);
	dlb_plan_release(&teams);
	return rc;
}

static int read_best(const struct dlb_ref *r, struct dlb_balance *b, struct dlb_error *err)
{
	static const char *const known[] = { "step_s",  "step_se_s", "rounds", "plan_hash",
					     "weights", "replicas",  "power",  NULL };
	struct dlb_ref o = { .v = NULL }, a = o;
	int n = 0;

	if (dlb_get_array(r, "best_placement", DLB_OPT, &a, &n, err))
		return -1;
	if (a.v) {
		b->best_placement = dlb_arena_array(&b->arena, (size_t)n + 1, sizeof *b->best_placement);
		b->n_placement = n;
	}
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&a, i);
		int64_t node;
		if (dlb_ref_int(&e, 0, b->n_nodes - 1, &node, err))
			return -1;
		b->best_placement[i] = (int)node;
	}
	if (dlb_get_object(r, "best", DLB_OPT, &o, err))
		return -1;
	if (!o.v)
		return 0;
	b->best_weight = b->weight;
	return dlb_ref_known(&o, known, err) ||
			       dlb_get_real(&o, "step_s", DLB_NEED, 1e-12, 1e18, &b->best_step_s, err) ||
			       dlb_get_real(&o, "step_se_s", DLB_OPT, 0, 1e18, &b->best_se_s, err) ||
			       get_count(&o, "rounds", &b->best_rounds, err) ||
			       get_hash(&o, b->best_plan_hash, err) ||
			       get_reals(&o, "weights", DLB_OPT, (struct range){ 0, 1e9 }, b, &b->best_weight,
					 err) ||
			       read_best_teams(&o, b, err) ?
		       -1 :
		       0;
}

/* Numbers of links are checked against the cluster where it is read (dlb_cluster_correct_links). */
static int read_links(const struct dlb_ref *r, struct dlb_balance *b, struct dlb_error *err)
{
	static const char *const known[] = { "link",     "factor", "suspected", "unseen",
					     "patience", "trial",  NULL };
	struct dlb_ref a = { .v = NULL };
	int n = 0;

	if (dlb_get_array(r, "links", DLB_OPT, &a, &n, err))
		return -1;
	b->link = n ? dlb_arena_array(&b->arena, (size_t)n, sizeof *b->link) : NULL;
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&a, i);
		struct dlb_balance_link *x = &b->link[i];

		if (!json_is_object(e.v))
			return dlb_ref_fail(&e, err, "an object is expected");
		if (dlb_ref_known(&e, known, err) || get_count(&e, "link", &x->link, err) ||
		    dlb_get_real(&e, "factor", DLB_NEED, 1e-9, 1e9, &x->factor, err) ||
		    dlb_get_bool(&e, "suspected", DLB_OPT, &x->suspected, err) ||
		    get_count(&e, "unseen", &x->unseen, err) ||
		    get_count(&e, "patience", &x->patience, err) || get_count(&e, "trial", &x->trial, err))
			return -1;
	}
	b->n_links = n;
	return 0;
}

static int read_section(const struct dlb_ref *r, struct dlb_balance *b, struct dlb_error *err)
{
	static const char *const known[] = {
		"rule",     "round",         "stable",  "converged",  "keep",
		"reason",   "weights",       "kappa",   "kappa_mean", "kappa_rounds",
		"spread",   "spread_rounds", "eta",     "last_sign",  "hold",
		"hold_off", "expected_s",    "floor_s", "best",       "best_placement",
		"history",  "first_round",   "settled", "links",      "samples",
		NULL
	};

	if (dlb_ref_known(r, known, err) ||
	    get_reals(r, "weights", DLB_NEED, (struct range){ 1e-9, 1e9 }, b, &b->weight, err) ||
	    get_reals(r, "kappa", DLB_OPT, (struct range){ 1e-9, 1e9 }, b, &b->kappa, err) ||
	    get_reals(r, "kappa_mean", DLB_OPT, (struct range){ 1e-9, 1e9 }, b, &b->kappa_mean, err) ||
	    get_reals(r, "kappa_rounds", DLB_OPT, (struct range){ 0, 1e9 }, b, &b->kappa_rounds, err) ||
	    get_reals(r, "settled", DLB_OPT, (struct range){ 1e-9, 1e9 }, b, &b->settled, err) ||
	    dlb_get_real(r, "spread", DLB_OPT, 0, 1e3, &b->spread, err) ||
	    get_count(r, "spread_rounds", &b->spread_rounds, err) ||
	    get_reals(r, "last_sign", DLB_OPT, (struct range){ -1, 1 }, b, &b->last_sign, err) ||
	    get_word(r, "rule", b, &b->rule, err) || get_word(r, "reason", b, &b->reason, err) ||
	    get_count(r, "round", &b->round, err) || get_count(r, "first_round", &b->first_round, err) ||
	    get_count(r, "stable", &b->stable, err) || get_count(r, "hold", &b->hold, err) ||
	    get_count(r, "hold_off", &b->hold_off, err) ||
	    dlb_get_bool(r, "converged", DLB_OPT, &b->converged, err) ||
	    dlb_get_bool(r, "keep", DLB_OPT, &b->keep, err) ||
	    dlb_get_real(r, "eta", DLB_OPT, 0, 1, &b->eta, err) ||
	    dlb_get_real(r, "expected_s", DLB_OPT, 0, 1e18, &b->expected_s, err) || read_links(r, b, err) ||
	    dlb_sample_times_read(r, b->n_nodes, &b->arena, &b->sample, &b->n_samples, err) ||
	    dlb_get_real(r, "floor_s", DLB_OPT, 0, 1e18, &b->floor_s, err) || read_best(r, b, err) ||
	    read_history(r, b, err))
		return -1;
	dlb_balance_rescale(b);
	return 0;
}

int dlb_balance_read(const struct dlb_doc *d, int n_nodes, struct dlb_balance *b, struct dlb_error *err)
{
	struct dlb_ref r = dlb_ref_root(d, "balance");

	dlb_balance_init(b, n_nodes);
	if (!r.v)
		return 0;
	if (!(json_is_object(r.v) ? read_section(&r, b, err) :
				    dlb_ref_fail(&r, err, "an object is expected")))
		return 0;
	dlb_balance_release(b);
	return -1;
}
