/* Programs and simulated steps of random plans are the kept ones: schedules, replicas, ways to share, divided
 * states, ops that run again, clusters with slow links, times that vary, all at random. A row for each plan:
 * what it is, a few numbers, and a checksum of the printed program and of all times to 5 digits; or the
 * refusal. After an intended change of programs: read the diff that this makes:
 *     build/tests/test_program_kept --write tests/unit/program_kept.inc */
#include "check.h"
#include "random_dag.h"
#include "graph/order.h"
#include "plan/again.h"
#include "plan/async.h"
#include "plan/print.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/timeline.h"

enum { PLANS = 200 };
static const char *const kept[] = {
#include "program_kept.inc"
	NULL
};
static const char *const clusters[] = { "cpu:4", "cpu:2 host cpu:2*0.7 link=rack:1e-5,1e7",
					"cpu:1 host cpu:1*2 host cpu:1 host cpu:1*0.3 link=rack:1e-4,1e6",
					"2(rack 2(host cpu:1)) link=rack:1e-5,2e7 link=site:5e-4,1e6" };
static const char *const sums[] = { "ring", "tree", "host", "doubling", "hierarchical" };
static const char *const compressions[] = { "none", "none", "bf16", "lowrank:2", "cholesky" };

static uint32_t add(uint32_t sum, const char *text)
{
	for (; *text; text++)
		sum = (sum ^ (unsigned char)*text) * 16777619;
	return sum;
}

static uint32_t add_times(uint32_t sum, const struct dlb_timeline *t, int n_nodes)
{
	char text[40];
	for (int n = 0; n < n_nodes; n++) {
		const struct dlb_node_times *x = &t->node[n];
		const double times[] = { x->busy_s,
					 x->wait_s,
					 x->waits_s[0],
					 x->waits_s[1],
					 x->waits_s[2],
					 x->bytes_sent,
					 x->copy_s,
					 x->comm_s,
					 x->comm_hidden_s,
					 x->sum_s[DLB_SUM_GRADIENT],
					 x->sum_s[DLB_SUM_SMALL],
					 x->sum_s[DLB_SUM_WEIGHTS],
					 x->sum_wait_s[DLB_SUM_GRADIENT],
					 x->sum_wait_s[DLB_SUM_SMALL],
					 x->sum_wait_s[DLB_SUM_WEIGHTS],
					 x->command_s };
		for (int i = 0; i < DLB_LEN(times); i++) {
			snprintf(text, sizeof text, " %.4e", fabs(times[i]) < 1e-12 ? 0 : times[i]);
			sum = add(sum, text);
		}
		for (int i = 0; i < t->n_spans[n]; i++) {
			const struct dlb_span *s = &t->span[n][i];
			snprintf(text, sizeof text, " %d %d %.4e", s->op, s->micro_batch, s->start_s);
			sum = add(sum, text);
		}
	}
	snprintf(text, sizeof text, " %.4e %.4e", t->step_s, t->fill_s);
	return add(sum, text);
}

/* The options of a plan at random, as text too. */
static void choose(struct dlb_plan *p, const struct dag *d, uint64_t seed, struct dlb_rng *r, char *text,
		   size_t size)
{
	const struct dlb_schedule *rule = &dlb_schedules[0];
	int n = 0, *group = malloc((size_t)d->g.n_ops * sizeof *group);
	const bool twice = seed % 3 == 0;

	while (dlb_schedules[n].name)
		n++;
	rule = &dlb_schedules[dlb_rng_below(r, (uint64_t)n)];
	p->graph = &d->g;
	p->batch = d->g.batch;
	p->micro_batches = 1 + (int)dlb_rng_below(r, 5);
	p->schedule = rule->name;
	p->in_place = dlb_rng_below(r, 4) > 0;
	p->clip = dlb_rng_below(r, 4) == 0;
	p->in_flight = seed % 5 == 0 ? 2 : 0;
	dlb_graph_groups(&d->g, group);
	for (int i = 0; i < d->g.n_ops; i++)
		p->placement[i] = group[i] < i ? p->placement[group[i]] :
						 (int)dlb_rng_below(r, twice ? 2 : 4);
	free(group);
	if (!rule->async && dlb_rng_below(r, 3) == 0) {
		p->again = dlb_arena_array(&p->arena, (size_t)p->n_ops + 1, sizeof *p->again);
		for (int i = 0; i < p->n_ops; i++)
			p->again[i] = d->g.op[i].phase == DLB_FORWARD && dlb_rng_below(r, 2);
		/* without those that the backward phase does not need, one by one */
		for (int i = 0; i < p->n_ops; i++)
			if (p->again[i] && !dlb_plan_needs_again(p, &d->g, i)) {
				p->again[i] = false;
				i = -1;
			}
	}
	if (twice) {
		struct dlb_sharing *s = &p->sharing;
		dlb_plan_set_replicas(p, 2, (int[]){ 0, 1, -1, -1, 2, 3, -1, -1 });
		s->allreduce = sums[dlb_rng_below(r, DLB_LEN(sums))];
		s->zero = rule->async && seed % 7 ? 0 : (int)dlb_rng_below(r, 4);
		s->feed_host = dlb_rng_below(r, 4) == 0;
		s->sync = dlb_rng_below(r, 4) == 0;
		s->gossip = dlb_rng_below(r, 6) == 0 ? .25 : 0;
		strcpy(s->compress, compressions[dlb_rng_below(r, DLB_LEN(compressions))]);
	}
	if (rule->async)
		p->staleness = dlb_rng_below(r, 3) ? DLB_STALE_NONE : DLB_STALE_2BW;
	snprintf(text, size, "%s%s%s M %d%s%s%s", rule->name, rule->async ? " " : "",
		 rule->async ? dlb_staleness_names[p->staleness] : "", p->micro_batches,
		 p->in_place ? "" : " copied", p->clip ? " clip" : "", p->again ? " again" : "");
	if (twice)
		snprintf(text + strlen(text), size - strlen(text), " %s %s zero %d%s%s%s",
			 p->sharing.allreduce, p->sharing.compress, p->sharing.zero,
			 p->sharing.sync ? " sync" : "", p->sharing.gossip > 0 ? " gossip" : "",
			 p->sharing.feed_host ? " fed" : "");
}

/* The row of a plan. */
static void make_row(uint64_t seed, char *row, size_t size)
{
	struct dlb_rng r;
	struct dag d;
	struct dlb_plan p;
	struct dlb_program g;
	struct dlb_timeline t;
	struct dlb_error err = { .what = "" };
	size_t length;
	char *text, what[200];
	uint32_t sum = 2166136261;

	dlb_rng_init(&r, seed + 77);
	const struct dag_options o = { .seed = seed,
				       .n_forward = 2 + (int)dlb_rng_below(&r, 14),
				       .training = seed % 8 != 1 || seed % 3 == 0,
				       .chain = seed % 4 == 0,
				       .colocate = dlb_rng_uniform(&r),
				       .cluster = clusters[dlb_rng_below(&r, DLB_LEN(clusters))],
				       .batch = 4 + (int64_t)dlb_rng_below(&r, 20) };
	dag_init(&d, &o);
	dlb_plan_init(&p, d.g.n_ops, 4);
	choose(&p, &d, seed, &r, what, sizeof what);
	if (!dlb_plan_check_replicas(&p, &err))
		dlb_plan_order(&p, &d.c, NULL);
	if (err.what[0] || dlb_plan_check(&p, &d.c, &err) ||
	    dlb_program_compile(&p, &d.c, o.batch, 2, &g, &err)) {
		snprintf(row, size, "%s: %s: %s", what, err.where, err.what);
	} else {
		int n_instr = 0;
		size_t bytes = 0;
		FILE *f = open_memstream(&text, &length);
		dlb_program_print(&g, f);
		fclose(f);
		if (dlb_program_verify(&g, &d.c, &err) ||
		    dlb_program_simulate(&g, &d.c,
					 &(struct dlb_simulate_choice){ .keep_spans = true,
									.jitter = seed % 4 ? 0 : .1,
									.seed = seed },
					 &t, &err)) {
			fprintf(stderr, "seed %d, %s: %s: %s\n", (int)seed, what, err.where, err.what);
			abort();
		}
		sum = add_times(add(sum, text), &t, 4);
		for (int n = 0; n < 4; n++) {
			n_instr += dlb_program_of(&g, n)->node[n].n_instr;
			bytes += dlb_program_of(&g, n)->node[n].arena_bytes;
		}
		snprintf(row, size, "%s: %d instructions, %zu bytes, %.4g s, %08x", what, n_instr, bytes,
			 t.step_s, sum);
		dlb_timeline_release(&t, 4);
		dlb_program_release(&g);
		free(text);
	}
	dlb_plan_release(&p);
	dag_release(&d);
}

int main(int argc, char **argv)
{
	FILE *f = argc == 3 && !strcmp(argv[1], "--write") ? fopen(argv[2], "w") : NULL;
	int other = 0;

	for (int seed = 1; seed <= PLANS; seed++) {
		char row[1200];
		make_row((uint64_t)seed, row, sizeof row);
		if (f) {
			fprintf(f, "\"%s\",\n", row);
		} else if (strcmp(row, kept[seed - 1])) {
			fprintf(stderr, "plan %d was: %s\n     now is: %s\n", seed, kept[seed - 1], row);
			other++;
		}
	}
	if (f)
		return fclose(f);
	assert(IS(other, ==, 0));
	printf("test_program_kept: %d programs\n", PLANS);
	return 0;
}
