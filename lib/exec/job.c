/* Reads the sections of a run, compiles the program and predicts its times. dlb_exec_check reads and compiles
 * without a run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "exec/kernel_sizes.h"
#include "exec/run.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "optim/kfac.h"
#include "plan/advise.h"
#include "plan/by_class.h"
#include "plan/interval.h"
#include "plan/plan_json.h"
#include "plan/print.h"
#include "plan/process_bytes.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/timeline.h"
#include "util/mem.h"

/* Reads the prediction errors of the last rounds, back to the last round that corrected kappa or found that
 * the nodes had changed: the errors of this and earlier rounds are no evidence about the present kappa. */
static int read_errors(struct dlb_job *j, const struct dlb_ref *balance, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };
	int n;

	j->n_errors = 0;
	if (dlb_get_array(balance, "history", DLB_OPT, &list, &n, err))
		return -1;
	j->corrected = n > 0;
	for (int i = n - 1; i >= 0 && j->n_errors < DLB_JOB_ERRORS; i--) {
		const struct dlb_ref round = dlb_ref_index(&list, i);
		bool held = false, changed = false;
		double step_s = 0.0, predicted_s = 0.0;

		if (dlb_get_bool(&round, "held", DLB_OPT, &held, err) ||
		    dlb_get_bool(&round, "changed", DLB_OPT, &changed, err) ||
		    dlb_get_real(&round, "step_s", DLB_OPT, 0, 1e18, &step_s, err) ||
		    dlb_get_real(&round, "predicted_step_s", DLB_OPT, 0, 1e18, &predicted_s, err))
			return -1;
		if (held || changed)
			break;
		if (step_s > 0.0 && predicted_s > 0.0)
			j->error[j->n_errors++] = log(step_s / predicted_s);
	}
	return 0;
}

static int read_kappa(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_ref balance, list;
	int n = j->cluster.n_nodes, got = 0;

	j->kappa = dlb_xcalloc((size_t)n + 1, sizeof *j->kappa);
	for (int i = 0; i < n; i++)
		j->kappa[i] = 1.0;
	j->n_errors = 0;
	j->corrected = false;
	if (!dlb_doc_section(doc, "balance"))
		return 0;
	balance = dlb_ref_root(doc, "balance");
	list.v = NULL;
	if (read_errors(j, &balance, err) || dlb_get_array(&balance, "kappa", DLB_OPT, &list, &got, err))
		return -1;
	if (!list.v)
		return 0;
	if (got != n)
		return dlb_ref_fail(&list, err, "%d values for %d nodes", got, n);
	for (int i = 0; i < n; i++) {
		struct dlb_ref x = dlb_ref_index(&list, i);

		if (dlb_ref_real(&x, 1e-9, 1e9, &j->kappa[i], err))
			return -1;
	}
	return 0;
}

/* Marks batch normalizations as PyTorch's: PyTorch updates the running variance by the unbiased estimate,
 * ONNX by the biased one. */
static void torch_batchnorm(struct dlb_graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_op *o = &g->op[i];
		struct dlb_attr *a;

		if (strcmp(o->type, "BatchNormalization") || dlb_attr_find(o->attr, o->n_attr, "unbiased"))
			continue;
		a = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *a);
		if (o->n_attr)
			memcpy(a, o->attr, (size_t)o->n_attr * sizeof *a);
		a[o->n_attr++] = (struct dlb_attr){ .name = "unbiased", .type = DLB_ATTR_INT, .i = 1 };
		o->attr = a;
	}
}

/* Refuses options for sums of gradients if replicas average weights. */
static int fits_sharing(const struct dlb_job *j, struct dlb_error *err)
{
	const struct dlb_sharing *s = &j->plan.sharing;

	if (j->plan.n_replicas < 2 || !dlb_sharing_averages(s))
		return 0;
	if (j->optimizer.rule == DLB_RULE_KFAC)
		return dlb_fail(err, "/run/optimizer/name",
				"kfac's factors are of the sum of gradients; with %s there is none",
				dlb_sharing_name(s));
	if (j->optimizer.clip_norm > 0.0)
		return dlb_fail(err, "/run/optimizer/clip_norm",
				"the norm is of a sum of gradients; with %s there is none",
				dlb_sharing_name(s));
	if (j->optimizer.reduce == DLB_REDUCE_MOMENTS)
		return dlb_fail(err, "/run/optimizer/reduce", "moments stay local with %s",
				dlb_sharing_name(s));
	return 0;
}

/* Decides whether replicas sum gradients or moments: the plan decides it, else the optimizer of section run.
 * Then both have the same value. Refuses combinations that are not supported. */
static int settle_reduce(struct dlb_job *j, struct dlb_error *err)
{
	static const char *const names[2][2] = { { "gradients:mean", "gradients:sum" },
						 { "moments:mean", "moments:sum" } };
	struct dlb_optimizer_choice *o = &j->optimizer;
	struct dlb_sharing *s = &j->plan.sharing;

	if (s->reduce && dlb_reduce_parse(s->reduce, &o->reduce, &o->reduce_by, err))
		return -1;
	if (s->max_state)
		o->local_max = !strcmp(s->max_state, "local");
	if (o->reduce_by == DLB_REDUCE_BY_MAX)
		return dlb_hint((dlb_fail(err, "/run/optimizer/reduce",
					  "replicas sum: there is no exchange by maximum"),
				 err),
				"moments:mean is there");
	s->reduce = names[o->reduce == DLB_REDUCE_MOMENTS][o->reduce_by == DLB_REDUCE_BY_SUM];
	if (o->reduce == DLB_REDUCE_GRADIENTS)
		return 0;
	if (!dlb_optimizers[o->rule].n_moments)
		return dlb_hint((dlb_fail(err, "/plan/reduce",
					  "optimizer %s exchanges gradients, not moments",
					  dlb_optimizers[o->rule].name),
				 err),
				"max-adabelief can");
	if (o->reduce_by == DLB_REDUCE_BY_SUM && !o->local_max)
		return dlb_hint(
			(dlb_fail(err, "/plan/reduce",
				  "a merged maximum that is summed again at every step grows without bound"),
			 err),
			"--max-state local, or moments:mean");
	if (o->clip_norm > 0)
		return dlb_fail(
			err, "/plan/reduce",
			"where moments are exchanged there is no gradient of the whole batch to clip");
	if (dlb_plan_is_async(&j->plan))
		return dlb_fail(err, "/plan/reduce",
				"asynchronous schedules exchange gradients, not moments");
	if (strcmp(s->compress, "none"))
		return dlb_fail(err, "/plan/compress", "moments are not compressed");
	return dlb_sharing_check_shares(s, err);
}

static const char *weight_name(const struct dlb_tensor *t)
{
	return t->slice ? t->slice->of : t->name;
}

/* Checks that every group of the optimizer matches a weight. */
static int check_groups(const struct dlb_job *j, struct dlb_error *err)
{
	const struct dlb_graph *g = &j->graph;
	const char **name = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *name), *near = NULL;
	int n = 0, rc = 0;

	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT)
			name[n++] = weight_name(&g->tensor[t]);
	for (int i = 0; i < j->optimizer.n_groups && !rc; i++) {
		const struct dlb_optimizer_group *group = &j->optimizer.group[i];
		bool found = false;
		for (int k = 0; k < n && !found; k++)
			found = dlb_group_matches(group, name[k]);
		if (found)
			continue;
		rc = dlb_fail(err, "/run/optimizer/groups", "no weight matches '%s'", group->glob);
		near = dlb_nearest(group->glob, name, n);
		if (near || n)
			dlb_hint(err, near ? "did you mean '%s'?" : "there is '%s'", near ? near : name[0]);
	}
	free(name);
	return rc;
}

static int read_plan(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_error *err)
{
	bool rescheduled;

	if (dlb_cluster_correct_links(doc, &j->cluster, err) ||
	    dlb_plan_read(doc, &j->cost, &j->plan, &rescheduled, err) || read_kappa(j, doc, err))
		return -1;
	j->optimizer.state_dtype = j->plan.state_dtype;
	if (fits_sharing(j, err) || dlb_optimizer_check_states(j->optimizer.rule, j->plan.state_dtype, err))
		return -1;
	if (rescheduled)	/* the placement was edited: orders the ops again, by the measured speeds */
		dlb_plan_order(&j->plan, &j->cost, j->kappa);
	j->plan.clip = j->optimizer.clip_norm > 0;
	j->plan.inverse_every = (int)j->optimizer.hyper[DLB_HYPER_INVERSE_EVERY];
	return j->plan.n_replicas > 1 ? settle_reduce(j, err) : 0;
}

int dlb_job_replan(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_plan *before,
		   struct dlb_error *err)
{
	*before = j->plan;
	memset(&j->plan, 0, sizeof j->plan);
	free(j->kappa);
	free(j->need);
	j->kappa = NULL;
	j->need = NULL;
	return dlb_cost_read_samples(doc, true, &j->cost, &j->cost.sample_s, err) || read_plan(j, doc, err) ?
		       -1 :
		       0;
}

int dlb_job_correct(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_error *err)
{
	free(j->kappa);
	j->kappa = NULL;
	return dlb_cost_read_samples(doc, true, &j->cost, &j->cost.sample_s, err) || read_kappa(j, doc, err) ?
		       -1 :
		       0;
}

/* Binds graph and costs to the optimizer, and reads the plan. */
static int bind(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		struct dlb_error *err)
{
	if (dlb_optimizer_bind(&j->graph, j->optimizer.rule, err) || check_groups(j, err))
		return -1;
	dlb_cost_set_optimizer(&j->cost, j->optimizer.rule);
	j->cost.inverse_every = j->optimizer.hyper[DLB_HYPER_INVERSE_EVERY];
	if (o->torch_batchnorm)
		torch_batchnorm(&j->graph);
	return read_plan(j, doc, err);
}

int dlb_job_refreeze(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		     struct dlb_job *before, struct dlb_error *err)
{
	*before = (struct dlb_job){ .graph = j->graph, .cost = j->cost, .plan = j->plan, .kappa = j->kappa };
	memset(&j->graph, 0, sizeof j->graph);
	memset(&j->cost, 0, sizeof j->cost);
	memset(&j->plan, 0, sizeof j->plan);
	j->kappa = NULL;
	free(j->need);
	j->need = NULL;
	if (dlb_graph_read(doc, &j->graph, err) || dlb_graph_index(&j->graph) ||
	    dlb_cost_read(doc, &j->graph, &j->cluster, &j->cost, err))
		return -1;
	return bind(j, doc, o, err);
}

int dlb_job_read(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_error *err)
{
	static const char *const sections[] = { "graph", "profile", "cluster", "cost", "plan", NULL };

	snprintf(j->name, sizeof j->name, "%s", doc->name);
	j->document_bytes = dlb_doc_heap_bytes(doc, sections);
	if (dlb_graph_read(doc, &j->graph, err) || dlb_graph_index(&j->graph) ||
	    dlb_cluster_read(doc, &j->cluster, err) ||
	    dlb_cost_read(doc, &j->graph, &j->cluster, &j->cost, err) ||
	    dlb_optimizer_read(doc, &j->optimizer, err) || bind(j, doc, o, err))
		return -1;
	j->n_state = dlb_optimizers[j->optimizer.rule].n_state;
	if (o->slow)
		for (int i = j->cluster.n_nodes; i < o->n_slow; i++)
			if (o->slow[i] != 1.0)
				return dlb_fail(err, NULL, "--slow %d: there are nodes 0 to %d", i,
						j->cluster.n_nodes - 1);
	for (int i = 0; i < o->n_slow_changes; i++)
		if (o->slow_change[i].node >= j->cluster.n_nodes)
			return dlb_fail(err, NULL, "--slow %d: there are nodes 0 to %d", o->slow_change[i].node,
					j->cluster.n_nodes - 1);
	return 0;
}

void dlb_job_release(struct dlb_job *j)
{
	free(j->kappa);
	free(j->need);
	dlb_plan_release(&j->plan);
	dlb_cost_release(&j->cost);
	dlb_cluster_release(&j->cluster);
	dlb_graph_release(&j->graph);
	memset(j, 0, sizeof *j);
}

int dlb_job_compile(const struct dlb_job *j, int64_t n, struct dlb_program *p, struct dlb_error *err)
{
	if (!dlb_program_compile(&j->plan, &j->cost, n, j->n_state, p, err) &&
	    !dlb_program_verify(p, &j->cost, err))
		return 0;
	if (err)
		err->status = 2;
	return dlb_error_at(err, j->name);
}

static void report_delays(const struct dlb_program *p, struct dlb_report *r)
{
	int n = 0;

	for (int i = 0; i < p->n_nodes; i++)
		n += p->node[i].n_weights;
	r->delay = dlb_arena_array(&r->arena, (size_t)n + 1, sizeof *r->delay);
	for (int i = 0; i < p->n_nodes; i++) {
		for (int k = 0; k < p->node[i].n_weights; k++) {
			const struct dlb_weight_copies *w = &p->node[i].weight[k];

			r->delay[r->n_delays++] = (struct dlb_report_delay){
				dlb_arena_strdup(&r->arena, p->graph->tensor[w->tensor].name), i,
				w->least < 0 ? 0 : w->least, w->most < 0 ? 0 : w->most
			};
		}
	}
}

/* Reports the buckets that replica 0's nodes sum in a step. */
static void report_sums(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *r)
{
	struct dlb_report_allreduce *a = &r->allreduce;
	int n = 0;

	if (p->n_replicas < 2 || j->plan.sharing.param_server >= 0)
		return;
	for (int i = 0; i < p->n_nodes; i++)
		n += p->node[i].n_buckets;
	a->bucket = dlb_arena_array(&r->arena, (size_t)n + 1, sizeof *a->bucket);
	for (int i = 0; i < p->n_nodes; i++) {
		for (int k = 0; k < p->node[i].n_buckets; k++) {
			const struct dlb_bucket *b = &p->node[i].bucket[k];

			a->bucket[a->n_buckets++] = (struct dlb_report_bucket){
				i, (int)b->cls, dlb_bucket_n_tensors(b), (double)b->n * b->element_bytes,
				b->how->name
			};
		}
	}
}

/* Reports which weights K-FAC preconditions. */
static void report_kfac(const struct dlb_job *j, struct dlb_report *r)
{
	struct dlb_kfac_layer *all;
	int n;

	if (j->optimizer.rule != DLB_RULE_KFAC)
		return;
	all = dlb_kfac_layers(&j->graph, &n);
	r->kfac.others = dlb_optimizers[DLB_RULE_SGD].name;
	r->kfac.n_weights = n;
	r->kfac.weight = dlb_arena_array(&r->arena, (size_t)n + 1, sizeof *r->kfac.weight);
	for (int i = 0; i < n; i++)
		r->kfac.weight[i] = dlb_arena_strdup(&r->arena,
						     j->graph.tensor[j->graph.op[all[i].update].in[0]].name);
	free(all);
	r->kfac.left = dlb_arena_array(&r->arena, (size_t)j->graph.n_ops + 1, sizeof *r->kfac.left);
	for (int op = 0; op < j->graph.n_ops; op++) {
		const char *why = dlb_kfac_left(&j->graph, op);

		if (why)
			r->kfac.left[r->kfac.n_left++] = (struct dlb_report_left){
				dlb_arena_strdup(&r->arena, j->graph.tensor[j->graph.op[op].in[0]].name), why
			};
	}
}

struct dlb_memory_need dlb_job_need(const struct dlb_job *j, const struct dlb_program *p, int node)
{
	struct dlb_kernel_bytes *kernel = dlb_kernel_sizes(p, &j->cost, node);
	const struct dlb_process process = {
		p, &j->cost, j->n_state, j->document_bytes, j->data_bytes, kernel
	};
	const struct dlb_memory_need need = dlb_memory_need_of(&process, node);

	free(kernel);
	return need;
}

void dlb_job_report_plan(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *r)
{
	r->batch = j->plan.batch;
	r->micro_batches = p->micro_batches;
	r->batch_statistics = dlb_plan_batch_statistics(&j->plan, &j->graph);
	for (int i = 0; i < j->plan.n_nodes; i++) {
		struct dlb_numerics numerics;

		r->varies |= !dlb_numerics_read(j->cluster.kind[j->cluster.node[i].kind].backend, &numerics, NULL) &&
			     numerics.fast;
	}
	report_delays(p, r);
	report_kfac(j, r);
	report_sums(j, p, r);
	r->optimizer = dlb_optimizers[j->optimizer.rule].name;
	r->accuracy = r->test_loss = r->optimizer_violations = NAN;
	r->plan_hash = dlb_arena_strdup(&r->arena, j->plan.hash);
	r->n_nodes = j->plan.n_nodes;
	r->node = dlb_arena_array(&r->arena, (size_t)r->n_nodes + 1, sizeof *r->node);
	for (int i = 0; i < r->n_nodes; i++) {
		const struct dlb_node_program *np = &dlb_program_of(p, i)->node[i];

		r->node[i].host = dlb_arena_strdup(&r->arena, j->cluster.node[i].host ?
								      j->cluster.node[i].host :
								      "localhost");
		r->node[i].peak_bytes = (double)(np->arena_bytes + np->state_bytes + np->scratch_bytes);
	}
}

void dlb_job_report(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *r)
{
	dlb_job_report_plan(j, p, r);
	for (int i = 0; i < r->n_nodes; i++)
		r->node[i].predicted_process_bytes = j->need ? j->need[i].process_bytes :
							       dlb_job_need(j, p, i).process_bytes;
}

int dlb_job_predict(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *r,
		    struct dlb_error *err)
{
	struct dlb_timeline t;

	if (dlb_program_simulate(p, &j->cost, &(struct dlb_simulate_choice){ .node_scale = j->kappa }, &t,
				 err))
		return -1;
	const struct dlb_interval x = dlb_interval_of(&j->plan, &j->cost, j->corrected, j->error,
						      j->n_errors);

	r->predicted_step_s = t.step_s;
	r->predicted_step_low_s = t.step_s * x.low;
	r->predicted_step_high_s = t.step_s * x.high;
	for (int i = 0; i < r->n_nodes; i++) {
		r->node[i].predicted_busy_s = t.node[i].busy_s;
		r->node[i].predicted_comm_s = t.node[i].comm_s;
	}
	dlb_timeline_release(&t, r->n_nodes);
	return 0;
}

void dlb_report_conclude(struct dlb_report *r)
{
	double most = 0.0, sum = 0.0;

	for (int i = 0; i < r->n_nodes; i++) {
		struct dlb_report_node *n = &r->node[i];

		most = n->busy_s > most ? n->busy_s : most;
		sum += n->busy_s;
		n->idle_s = r->step_s - n->busy_s - n->wait_s;
		if (n->idle_s < 0.0)
			n->idle_s = 0.0;
	}
	r->imbalance = sum > 0.0 ? most * r->n_nodes / sum : 1.0;
	r->prediction_error = r->step_s > 0.0 ? r->predicted_step_s / r->step_s - 1.0 : 0.0;
}

int dlb_exec_check(const struct dlb_doc *doc, const struct dlb_exec_options *o, int *n_nodes,
		   struct dlb_error *err)
{
	struct dlb_job j = { .kappa = NULL };
	struct dlb_program p = { .n_nodes = 0 };
	int rc = dlb_job_read(&j, doc, o, err) || dlb_buddy_check(&j, o, err) ? -1 : 0;

	if (!rc && !o->data)
		rc = dlb_hint((dlb_fail(err, NULL, "no data to train on"), err),
			      "give --data; --data random feeds any model");
	if (!rc)
		rc = dlb_job_compile(&j, j.plan.batch, &p, err);
	if (!rc)
		rc = dlb_graph_check_runnable(&j.graph, p.size[0], err) || dlb_evaluate_fits(o, &p, err) ?
			     -1 :
			     0;
	if (!rc)
		*n_nodes = j.plan.n_nodes;
	dlb_program_release(&p);
	dlb_job_release(&j);
	return rc;
}

int dlb_exec_advise(struct dlb_doc *doc, const struct dlb_exec_options *o, bool again, struct dlb_error *err)
{
	json_t *plan = dlb_doc_section(doc, "plan");
	const char *how = json_string_value(json_object_get(plan, "compress"));
	struct dlb_job j = { .kappa = NULL };
	int rc = 0;

	if (!how || strcmp(how, DLB_COMPRESS_AUTO) || !json_object_get(plan, "replicas") ||
	    (json_object_get(plan, "compress_by_class") && !again))
		return 0;
	if (!(rc = dlb_job_read(&j, doc, o, err))) {
		j.plan.optimizer = dlb_optimizers[j.optimizer.rule].name;
		rc = dlb_plan_advise(&j.plan, &j.cost, j.n_state, j.kappa, err);
	}
	if (!rc) {
		dlb_sharing_write_compression(&j.plan.sharing, plan);
		dlb_advice_write(&j.plan, plan);
	}
	dlb_job_release(&j);
	return rc;
}

int dlb_exec_print_program(const struct dlb_doc *doc, const struct dlb_exec_options *o, FILE *f,
			   struct dlb_error *err)
{
	struct dlb_job j = { .kappa = NULL };
	struct dlb_program p = { .n_nodes = 0 };
	int rc = dlb_job_read(&j, doc, o, err);

	if (!rc)
		rc = dlb_job_compile(&j, j.plan.batch, &p, err);
	if (!rc)
		dlb_program_print(&p, f);
	dlb_program_release(&p);
	dlb_job_release(&j);
	return rc;
}
