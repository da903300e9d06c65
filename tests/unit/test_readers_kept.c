/* Kept results of the readers of sections. In a good section, each member and each element in turn is left
 * out, becomes a value of another type, or a number at and beyond every limit; an unknown member is added
 * to each object. The line of a member is a checksum of the answers: the message, or the section as it is
 * written again. kept.h says how they are replaced. */
#include "costs_case.h"
#include "balance/balance.h"
#include "doc/doc.h"
#include "optim/optim.h"

static const char *const kept[] = {
#include "readers_kept.inc"
};

static struct costs x;

/* ---- readers: what is read is written again ---- */

static int read_cluster(const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_cluster c;

	if (dlb_cluster_read(d, &c, err))
		return -1;
	*back = dlb_cluster_write(&c);
	for (int i = 0; i < c.n_nodes; i++)
		kept_real(dlb_cluster_node_memory(&c, i));
	dlb_cluster_release(&c);
	return 0;
}

static int read_profile(const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_profile p;

	if (dlb_profile_read(d, &x.d.g, &p, err))
		return -1;
	*back = dlb_profile_write(&p);
	dlb_profile_release(&p);
	return 0;
}

static int read_cost(const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_cost c;

	if (dlb_cost_read(d, &x.d.g, &x.d.cl, &c, err))
		return -1;
	*back = dlb_cost_write(&c);
	for (int t = 0; t < x.d.g.n_tensors; t++)
		for (int i = 0; i < x.d.cl.n_nodes; i++)
			kept_real(dlb_cost_sample_s(&c, t, i));
	dlb_cost_release(&c);
	return 0;
}

static int read_balance(const struct dlb_doc *d, json_t **back, struct dlb_error *err)
{
	struct dlb_balance b;

	if (dlb_balance_read(d, 2, &b, err))
		return -1;
	*back = dlb_balance_write(&b);
	dlb_balance_release(&b);
	return 0;
}

/* ---- changes ---- */

static const char *const values[] = {
	"null",
	"true",
	"false",
	"\"x\"",
	"\"\"",
	"\"cpu\"",
	"\"h0\"",
	"[]",
	"{}",
	"[1]",
	"[null]",
	"-1",
	"0",
	"1",
	"2",
	"3",
	"4",
	"64",
	"65",
	"-1.0",
	"0.5",
	"1e-13",
	"1e-9",
	"9e-10",
	"1e3",
	"1001",
	"1e6",
	"1048576",
	"1048577",
	"1.1e9",
	"1e9",
	"1e12",
	"1.1e12",
	"1e18",
	"1.1e18",
	"1e24",
	"1.1e24",
	"1.1e30",
	"1099511627776",
	"1099511627777",
};

static void answer(int (*read)(const struct dlb_doc *, json_t **, struct dlb_error *),
		   const struct dlb_doc *d)
{
	struct dlb_error err = { .what = "" };
	json_t *back = NULL;

	if (read(d, &back, &err)) {
		kept_text(err.where);
		kept_text(err.what);
		kept_text(err.hint);
	} else {
		kept_json(back);
		json_decref(back);
	}
}

struct walk {
	struct dlb_doc *d;
	const char *section;
	int (*read)(const struct dlb_doc *, json_t **, struct dlb_error *);
};

/* Puts v, which it takes, in the place of a member or element; NULL: none. */
static void put(json_t *in, const char *key, size_t i, json_t *v)
{
	if (key && v)
		json_object_set_new(in, key, v);
	else if (key)
		json_object_del(in, key);
	else
		json_array_set_new(in, i, v);
}

static void change(const struct walk *w, json_t *in, const char *key, size_t i, const char *at)
{
	json_t *was = json_deep_copy(key ? json_object_get(in, key) : json_array_get(in, i));

	if (key) {
		put(in, key, i, NULL);
		answer(w->read, w->d);
	}
	for (int k = 0; k < DLB_LEN(values); k++) {
		put(in, key, i, json_loads(values[k], JSON_DECODE_ANY, NULL));
		answer(w->read, w->d);
	}
	put(in, key, i, was);
	kept_line(at, "changed");
}

static void walk(const struct walk *w, json_t *v, const char *at)
{
	char name[160];

	if (json_is_object(v)) {
		const char *key[64];
		const char *k;
		json_t *ignored;
		int n = 0;

		json_object_foreach(v, k, ignored) key[n++] = strdup(k);
		json_object_set_new(v, "unknown", json_integer(1));
		answer(w->read, w->d);
		json_object_del(v, "unknown");
		for (int i = 0; i < n; i++) {
			snprintf(name, sizeof name, "%s/%s", at, key[i]);
			change(w, v, key[i], 0, name);
			walk(w, json_object_get(v, key[i]), name);
			free((char *)key[i]);
		}
	} else if (json_is_array(v)) {
		/* the first two and the last */
		for (size_t i = 0; i < json_array_size(v); i++) {
			if (i > 1 && i + 1 < json_array_size(v))
				continue;
			snprintf(name, sizeof name, "%s/%d", at, (int)i);
			change(w, v, NULL, i, name);
			walk(w, json_array_get(v, i), name);
		}
		json_t *twice = json_array_size(v) ? json_deep_copy(json_array_get(v, 0)) : NULL;
		if (twice) {
			json_array_append_new(v, twice);
			answer(w->read, w->d);
			json_array_remove(v, json_array_size(v) - 1);
		}
	}
}

static void section(struct dlb_doc *d, const char *name, json_t *good,
		    int (*read)(const struct dlb_doc *, json_t **, struct dlb_error *))
{
	const struct walk w = { d, name, read };
	struct dlb_error err = { .what = "" };
	json_t *back = NULL;

	dlb_doc_put(d, name, good);
	costs_must(read(d, &back, &err), &err);
	kept_json(back);
	kept_line(name, "read");
	json_decref(back);
	walk(&w, dlb_doc_section(d, name), name);
}

static const char balance[] =
	"{\"rule\":\"log\",\"round\":3,\"first_round\":1,\"stable\":2,\"converged\":false,\"keep\":true,"
	"\"reason\":\"cycle\","
	"\"weights\":[1.2,0.8],\"kappa\":[1,2],\"kappa_mean\":[1.1,1.9],\"kappa_rounds\":[3,1],\"settled\":["
	"1,2],"
	"\"spread\":0.02,\"spread_rounds\":3,\"eta\":0.8,\"last_sign\":[0,-1],\"hold\":1,\"hold_off\":2,"
	"\"expected_s\":0.5,"
	"\"floor_s\":0.25,\"best\":{\"step_s\":0.75,\"step_se_s\":0.125,\"rounds\":2,\"plan_hash\":"
	"\"0123456789abcdef\","
	"\"weights\":[1.5,0.5],\"replicas\":[[0],[1]],\"power\":[16,8]},\"best_placement\":[0,0,1,0],"
	"\"links\":[{\"link\":1,\"factor\":0.1,\"suspected\":true,\"unseen\":1,\"patience\":2,\"trial\":3}],"
	"\"samples\":[{\"node\":1,\"tensor\":\"x0\",\"time_s\":0.005}],"
	"\"history\":[{\"round\":1,\"step_s\":1.5,\"step_se_s\":0.1,\"predicted_step_s\":1.25,\"expected_s\":"
	"1.4,"
	"\"max_excess_s\":0.2,\"mean_excess_s\":0.1,\"test_a\":true,\"test_b\":false,\"held\":true,\"rolled_"
	"back\":false,"
	"\"changed\":true,\"noisy\":false,\"decision\":\"does not "
	"pay\",\"gain_s\":0.01,\"price_s\":3.5,\"drift\":1.1,"
	"\"plan_hash\":\"fedcba9876543210\",\"moved_ops\":4,\"weights\":[1,1]}]}";

int main(int argc, char **argv)
{
	struct dlb_doc d;

	costs_init(&x, 1);
	dlb_doc_init(&d, "f.json");
	section(&d, "balance", json_loads(balance, 0, NULL), read_balance);
	section(&d, "cluster", dlb_cluster_write(&x.d.cl), read_cluster);
	section(&d, "profile", dlb_profile_write(&x.p), read_profile);
	section(&d, "cost", dlb_cost_write(&x.d.c), read_cost);
	dlb_doc_release(&d);
	costs_release(&x);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
