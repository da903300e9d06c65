/* Fuzzer of the document and of every section's reader. Bytes changed at random are rarely JSON, so most
 * mutations are made on the parsed value: some value somewhere is replaced, removed or doubled.
 *     make fuzz && build/fuzz/document -max_total_time=600 -max_len=200000 CORPUS tests/golden */
#include <stdlib.h>
#include <string.h>
#include "balance/balance.h"
#include "cluster/cluster.h"
#include "convert/convert.h"
#include "cost/cost.h"
#include "cost/profile.h"
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "plan/plan_json.h"
#include "plan/program.h"
#include "plan/report.h"
#include "util/rng.h"

/* A reader that refuses must say why. */
static int told(int rc, struct dlb_error *err)
{
	if (rc && !err->what[0])
		dlb_bug("refused without a word");
	err->what[0] = '\0';
	return rc;
}

static void read_graph(const struct dlb_doc *d, const struct dlb_cluster *cl, struct dlb_error *err)
{
	struct dlb_graph g;
	if (told(dlb_graph_read(d, &g, err), err))
		return;
	struct dlb_profile profile = { .n_kinds = 0 };
	struct dlb_cost cost = { .n_ops = 0 };
	struct dlb_plan plan = { .n_ops = 0 };
	bool rescheduled = false;
	if (!told(dlb_profile_read(d, &g, &profile, err), err))
		dlb_profile_release(&profile);
	if (cl && !told(dlb_cost_read(d, &g, cl, &cost, err), err)) {
		if (!told(dlb_plan_read(d, &cost, &plan, &rescheduled, err), err))
			dlb_plan_release(&plan);
		dlb_cost_release(&cost);
	}
	dlb_graph_release(&g);
}

/* What other tools read is written, or refused with a word. */
static void export_all(const struct dlb_doc *d, struct dlb_error *err)
{
	for (const struct dlb_format *f = dlb_formats; f->name; f++) {
		struct dlb_convert_options o = { 0 };
		size_t n;
		char *text = f->export ? f->export(d, &o, &n, err) : NULL;
		if (f->export)
			told(text ? 0 : -1, err);
		free(text);
	}
}

/* -- mutations -- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static json_t *odd_value(uint32_t r, const json_t *old)
{
	static const char *const text[] = {
		"", "N", "-9*N+1", "inf", "nan", "weight", "9223372036854775807", "x-y", "Conv"
	};
	static const json_int_t ints[] = {
		0, 1, -1, 2, 3, 7, 255, INT32_MAX, INT64_MAX, INT64_MIN, (json_int_t)1 << 40
	};
	static const double reals[] = { 0.5, -1.5, 1e308, 1e-308, -0.0 };
	switch (r % 12) {
	case 0: return json_null();
	case 1: return json_boolean(r >> 8 & 1);
	case 2: return json_string(text[(r >> 8) % DLB_LEN(text)]);
	case 3: return json_array();
	case 4: return json_object();
	case 5: return json_real(reals[(r >> 8) % DLB_LEN(reals)]);
	case 6: case 7: return json_integer(ints[(r >> 8) % DLB_LEN(ints)]);
	default:	/* a small step for an id */
		if (!json_is_integer(old))
			return json_integer(r >> 8 & 15);
		return json_integer(json_integer_value(old) % 1000000 + (json_int_t)(r >> 8 & 7) - 3);
	}
}

/* Walks down from v by random steps and changes what it finds there. */
static void mutate_value(json_t *v, struct dlb_rng *rng)
{
	for (;;) {
		const size_t n = json_is_array(v) ? json_array_size(v) : json_object_size(v);
		if (!n)
			return;
		size_t at = dlb_rng_below(rng, n);
		void *it = json_object_iter(v);
		for (size_t i = 0; it && i < at; i++)
			it = json_object_iter_next(v, it);
		json_t *child = json_is_array(v) ? json_array_get(v, at) : json_object_iter_value(it);
		if ((json_is_array(child) || json_is_object(child)) && dlb_rng_below(rng, 8)) {
			v = child;
			continue;
		}
		const uint32_t r = (uint32_t)dlb_rng_next(rng);
		if (json_is_array(v)) {
			if (r % 8 == 0)
				json_array_remove(v, at);
			else if (r % 8 == 1 && n < 64)
				json_array_insert_new(v, at, json_deep_copy(child));
			else
				json_array_set_new(v, at, odd_value(r >> 4, child));
		} else if (r % 8 == 0) {
			json_object_del(v, json_object_iter_key(it));
		} else {
			json_object_iter_set_new(v, it, odd_value(r >> 4, child));
		}
		return;
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	struct dlb_rng rng;
	dlb_rng_init(&rng, seed);
	json_t *v = dlb_rng_below(&rng, 10) ? json_loadb((const char *)data, size, 0, NULL) : NULL;
	if (!v)
		return LLVMFuzzerMutate(data, size, max_size);
	for (uint64_t i = 1 + dlb_rng_below(&rng, 4); i > 0; i--)
		mutate_value(v, &rng);
	char *text = json_dumps(v, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(v);
	const size_t n = text ? strlen(text) : 0;
	if (text && n <= max_size)
		memcpy(data, text, n);
	free(text);
	return text && n <= max_size ? n : LLVMFuzzerMutate(data, size, max_size);
}

/* -- the readers -- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dlb_error err = { .what = "" };
	struct dlb_doc d;
	if (told(dlb_doc_parse(&d, (const char *)data, size, "fuzz.json", &err), &err))
		return 0;
	struct dlb_cluster cl;
	struct dlb_balance b;
	struct dlb_report r = { .n_nodes = 0 };
	struct dlb_optimizer_choice o;
	const int has_cluster = !told(dlb_cluster_read(&d, &cl, &err), &err);
	read_graph(&d, has_cluster ? &cl : NULL, &err);
	export_all(&d, &err);
	if (has_cluster) {
		if (!told(dlb_balance_read(&d, cl.n_nodes, &b, &err), &err))
			dlb_balance_release(&b);
		dlb_cluster_release(&cl);
	}
	if (!told(dlb_report_read(&d, &r, &err), &err))
		dlb_report_release(&r);
	(void)told(dlb_optimizer_read(&d, &o, &err), &err);
	dlb_doc_release(&d);
	return 0;
}
