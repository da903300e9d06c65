/* Kept results of placement on small random training graphs: every algorithm under weights, limits, pins,
 * moves, objectives and schedules, with the reasons for the places of ops. kept.h says how they are
 * replaced. */
#include "place_worlds.h"
#include "place/moves.h"
#include "place/value.h"
#include "place/why.h"

static const char *const kept[] = {
#include "place_kept.inc"
};

static const struct world worlds[] = {
	{ { .seed = 1, .n_forward = 7, .chain = true, .colocate = 1, .cluster = "cpu:1 cpu/4:1 cpu:1*0.5" },
	  4,
	  "1f1b" },
	{ { .seed = 2,
	    .n_forward = 9,
	    .colocate = .5,
	    .no_kernel = .2,
	    .cluster = "cpu:2 host cpu/2:2*0.25 cpu:1 link=rack:2e-5,2e7" },
	  3,
	  "gpipe" },
	{ { .seed = 3, .n_forward = 6, .colocate = 0, .cluster = "cpu:2 host cpu:1*0.7 link=rack:5e-5,1e7" },
	  2,
	  "zero-bubble" },
	{ { .seed = 4,
	    .n_forward = 11,
	    .chain = true,
	    .colocate = .7,
	    .cluster = "3(host cpu:1) host cpu:1*2 link=rack:1e-5,1e8" },
	  4,
	  "interleaved" },
	{ { .seed = 5, .n_forward = 8, .colocate = .8, .cluster = "cpu:3" }, 4, "async" },
	{ { .seed = 6, .n_forward = 12, .colocate = .3, .cluster = "cpu:2 cpu/3:2*0.6" }, 1, "none" },
};

static const struct variant variants[] = {
	{ .name = "plain" },
	{ .name = "weights", .weighs = true, .n_state = 2 },
	{ .name = "memory", .little_memory = true },
	{ .name = "pins", .pins = true, .excludes = true, .by_rank = true },
	{ .name = "moves", .moves = true, .serves = true, .weighs = true },
	{ .name = "recompute", .recomputes = true, .little_memory = true, .n_state = 1 },
	{ .name = "draft", .drafts = true, .numbered = true },
	{ .name = "compared", .compared = true, .quick = true, .n_shares = 2, .n_state = 2 },
	{ .name = "throughput", .objective = DLB_THROUGHPUT, .weighs = true },
	{ .name = "latency", .objective = DLB_LATENCY },
	{ .name = "full", .objective = DLB_THROUGHPUT, .little_memory = true },
	{ .name = "full latency", .objective = DLB_LATENCY, .little_memory = true, .pins = true },
};

/* Reasons for the places of a few ops. */
static void keep_why(const char *name, const struct made *m, const struct dlb_plan *plan)
{
	char *text = NULL;
	size_t size;
	struct dlb_error err = { .what = "" };
	FILE *f = open_memstream(&text, &size);

	for (int i = 0; i < m->d.g.n_ops; i += 3)
		if (dlb_place_why(&m->p, plan, i, f, &err))
			die("why", 0, &err);
	fclose(f);
	kept_text(text);
	kept_line(name, "%d lines", (int)size);
	free(text);
}

/* Which cases are tried: every third of all algorithms. */
static bool wanted(const struct world *w, const struct variant *v, const struct dlb_placer *x)
{
	const int i = (int)(w - worlds), j = (int)(v - variants), k = (int)(x - dlb_placers);

	if (!strcmp(x->name, "by-kind"))
		return false;
	/* auto takes a quarter of all time under little memory with an asynchronous schedule */
	return strcmp(x->name, "auto") ? (i + j + k) % 3 == 0 : (i + j) % 3 == 0 && (i != 4 || j != 2);
}

static void all_placers(const struct world *w, const struct variant *v)
{
	struct made m;

	init(&m, w, v);
	for (const struct dlb_placer *x = dlb_placers; x->name; x++) {
		struct dlb_plan plan;
		struct dlb_error err = { .what = "" };
		char name[64];

		if (!wanted(w, v, x))
			continue;
		snprintf(name, sizeof name, "%d %s %s", (int)(w - worlds), v->name, x->name);
		const int rc = dlb_place(&m.p, x->name, &plan, &err);
		keep_plan(name, rc, &plan, &err);
		if (rc)
			continue;
		kept_real(dlb_place_value_s(&m.p, plan.placement));
		kept_real(dlb_place_order_s(&m.p, plan.placement));
		kept_real(dlb_place_lack_bytes(&m.p, plan.placement));
		kept_real(dlb_place_migration_s(&m.p, plan.placement));
		keep_why(name, &m, &plan);
		dlb_plan_release(&plan);
	}
	release(&m);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(worlds); i++)
		for (int j = 0; j < DLB_LEN(variants); j++)
			all_placers(&worlds[i], &variants[j]);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
