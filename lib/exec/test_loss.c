/* Test loss and accuracy: the inference graph, compiled for the same placement, on the weights in place:
 * those of replica 0. If each replica has only a share of them, all replicas evaluate the same samples side
 * by side and gather the weights as in training. Micro-batches have the training batch's size and run one at
 * a time. A sample is right if the class of the greatest score is its label (the first of equal scores; for
 * binary cross-entropy: the logit's sign); with several positions per sample, each counts. The node that
 * computes the loss counts, since it has scores and labels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/data.h"
#include "exec/job.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "util/mem.h"

struct dlb_eval {
	struct dlb_graph graph;
	int *op_of, *tensor_of;
	struct dlb_plan plan;
	int node;
	struct dlb_data *data;
	int64_t count, batch;
	struct dlb_program program[2];	/* full batches, the short last one */
	struct dlb_engine *engine[2];
	int n;
	int scores, labels; /* tensors; -1: the loss is of no classification, so there is no accuracy */
	/* op that computes the loss from the results of parts of the scores; -1: the scores are whole */
	int join;
	int scorer, loss_node; /* the nodes with the scores (-1: none) and with the loss */
	bool binary, has_ignore;
	int64_t ignore;
	struct dlb_backend *be;		/* of the engines */
	char *base;			/* one batch of samples */
};

/* Finds the scores and labels of the loss. */
static void find_scores(struct dlb_eval *e)
{
	e->scores = e->labels = e->scorer = e->join = -1;
	/* with several losses, takes the first classification */
	for (int i = 0; i < e->graph.n_ops && e->scores < 0; i++) {
		const struct dlb_op *o = &e->graph.op[i];
		const struct dlb_attr *ignore;

		if (o->kind < 0 || !(dlb_op_class_of(o->kind)->flags & DLB_OP_IS_LOSS) || o->n_in < 2 ||
		    o->in[1] < 0)
			continue;
		e->binary = !strcmp(o->type, "BinaryCrossEntropyLoss");
		e->join = !strcmp(o->type, "CrossEntropyJoin") ? i : -1;
		if (!e->binary && e->join < 0 && strcmp(o->type, "SoftmaxCrossEntropyLoss") &&
		    strcmp(o->type, "NegativeLogLikelihoodLoss"))
			continue;
		e->scores = o->in[e->join >= 0];
		e->labels = o->in[e->join < 0];
		e->scorer = e->plan.placement[i];
		ignore = dlb_attr_find(o->attr, o->n_attr, "ignore_index");
		e->has_ignore = ignore != NULL;
		e->ignore = ignore ? ignore->i : 0;
	}
}

/* Number of replicas that evaluate: all if each has a share of the weights, else one. */
static int n_evaluating(const struct dlb_job *j)
{
	return j->plan.sharing.zero == 3 && j->plan.n_replicas > 1 ? j->plan.n_replicas : 1;
}

/* Sets the replicas of the evaluation, which gather the weights that training divides. */
static void join_replicas(struct dlb_eval *e, const struct dlb_job *j)
{
	const size_t R = (size_t)n_evaluating(j), n = (size_t)j->plan.n_nodes;
	int *flat = dlb_xcalloc(R * n, sizeof *flat);
	bool *gathered = dlb_arena_array(&e->plan.arena, (size_t)e->graph.n_tensors + 1, sizeof *gathered);

	for (size_t r = 0; r < R; r++)
		memcpy(flat + r * n, j->plan.replica[r], n * sizeof *flat);
	dlb_plan_set_replicas(&e->plan, (int)R, flat);
	free(flat);
	for (int t = 0; t < e->graph.n_tensors; t++)
		gathered[t] = e->tensor_of[t] >= 0 &&
			      dlb_weight_is_gathered(&j->graph, j->plan.placement, e->tensor_of[t]);
	e->plan.gathered = gathered;
	e->plan.sharing.zero = j->plan.sharing.zero;
}

static int make_plan(struct dlb_eval *e, const struct dlb_job *j, struct dlb_error *err)
{
	const struct dlb_graph *g = &e->graph;

	dlb_plan_init(&e->plan, g->n_ops, j->plan.n_nodes);
	e->plan.graph = g;
	e->plan.batch = n_evaluating(j) * e->batch;
	e->plan.micro_batches = 1;
	for (int i = 0; i < g->n_ops; i++)
		e->plan.placement[i] = j->plan.placement[e->op_of[i]];
	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];

		if ((x->kind == DLB_T_WEIGHT || x->kind == DLB_T_BUFFER) &&
		    dlb_state_home(g, e->plan.placement, t) !=
			    dlb_state_home(&j->graph, j->plan.placement, e->tensor_of[t]))
			return dlb_fail(err, NULL, "'%s' is not on the node of the first op that reads it",
					x->name);
	}
	dlb_schedule_order(&e->plan, NULL, &dlb_schedules[0], NULL);
	if (n_evaluating(j) > 1)
		join_replicas(e, j);
	return 0;
}

int dlb_eval_new(struct dlb_eval **out, const struct dlb_job *j, int node,
		 const struct dlb_data_choice *choice, struct dlb_error *err)
{
	struct dlb_eval *e = dlb_xcalloc(1, sizeof *e);
	int64_t size[2];

	e->node = node;
	if (dlb_graph_eval(&j->graph, &e->graph, &e->op_of, &e->tensor_of, err) ||
	    dlb_graph_index(&e->graph) || dlb_data_open(&e->data, choice, &e->graph, err))
		goto bad;
	e->count = dlb_data_count(e->data);
	if (e->count == DLB_DATA_ENDLESS) {
		dlb_fail(err, NULL, "--test-data must have an end, '%s' has none", choice->spec);
		goto bad;
	}
	e->batch = j->plan.batch < e->count ? j->plan.batch : e->count;
	if (make_plan(e, j, err))
		goto bad;
	find_scores(e);
	e->loss_node = e->plan.placement[e->graph.tensor[e->graph.loss].producer];
	size[0] = e->batch;
	size[1] = e->count % e->batch;
	for (e->n = 0; e->n < 2 && size[e->n]; e->n++)
		if (dlb_program_compile(&e->plan, NULL, n_evaluating(j) * size[e->n], 0, &e->program[e->n],
					err))
			goto bad;
	*out = e;
	return 0;
bad:
	dlb_eval_free(e);
	return -1;
}

double dlb_eval_data_bytes(const struct dlb_eval *e) { return dlb_data_bytes(e->data); }

void dlb_eval_free(struct dlb_eval *e)
{
	if (!e)
		return;
	for (int i = 0; i < 2; i++) {
		dlb_engine_free(e->engine[i]);
		dlb_program_release(&e->program[i]);
	}
	dlb_data_close(e->data);
	dlb_plan_release(&e->plan);
	dlb_graph_release(&e->graph);
	dlb_samples_free(e->be, e->base);
	free(e);
}

size_t dlb_eval_arena_bytes(const struct dlb_eval *e)
{
	size_t most = 0;

	for (int i = 0; i < e->n; i++) {
		const struct dlb_node_program *np = &dlb_program_of(&e->program[i], e->node)->node[e->node];

		if (np->arena_bytes > most)
			most = np->arena_bytes;
	}
	return most;
}

int dlb_eval_ready(struct dlb_eval *e, struct dlb_runtime *runtime, struct dlb_error *err)
{
	size_t most = 64;

	for (int i = 0; i < e->n; i++) {
		if (dlb_engine_new(&e->engine[i], runtime, dlb_program_of(&e->program[i], e->node), e->node,
				   NULL, e->tensor_of, err))
			return -1;
		if (dlb_engine_view(e->engine[i])->feed_bytes > most)
			most = dlb_engine_view(e->engine[i])->feed_bytes;
	}
	e->be = runtime->be;
	e->base = dlb_samples_alloc(e->be, most, err);
	return e->base ? 0 : -1;
}

/* Counts right and countable samples by scores in parts: right if the label's score is the greatest of
 * all. */
static void count_right_of_parts(const struct dlb_eval *e, int which, double *right, double *all)
{
	const struct dlb_op *o = &e->graph.op[e->join];
	const struct dlb_desc x = dlb_tensor_desc(&e->graph.tensor[e->scores], e->program[which].batch);
	const enum dlb_dtype label_type = e->graph.tensor[e->labels].dtype;
	void *labels_copy, **copy = dlb_xcalloc((size_t)o->n_in, sizeof *copy);
	const void *labels = dlb_engine_read(e->engine[which], e->labels, 0, &labels_copy),
		   **stats = dlb_xcalloc((size_t)o->n_in, sizeof *stats);		/* [part], from 1 */
	int64_t inner = 1;

	for (int p = 1; p < o->n_in; p++)
		stats[p] = dlb_engine_read(e->engine[which], o->in[p], 0, &copy[p]);
	for (int i = 2; i < x.n_dims; i++)
		inner *= x.dim[i];
	for (int64_t i = 0; i < x.dim[0] * inner; i++) {
		const int64_t at = i / inner * DLB_LOSS_STATS * inner + i % inner,
			      label = dlb_value_int(labels, label_type, i);
		double most = -HUGE_VAL, score = 0;

		if (e->has_ignore && label == e->ignore)
			continue;
		for (int p = 1; p < o->n_in; p++) {
			most = fmax(most, dlb_value_real(stats[p], x.dtype, at));
			score += dlb_value_real(stats[p], x.dtype, at + 2 * inner);
		}
		*right += score == most;
		++*all;
	}
	for (int p = 1; p < o->n_in; p++)
		free(copy[p]);
	free(copy);
	free(stats);
	free(labels_copy);
}

/* Counts right and countable samples by whole scores. */
static void count_right_of(const struct dlb_eval *e, int which, const void *scores, const void *labels,
			   double *right, double *all)
{
	int64_t n = e->program[which].batch, stride[DLB_MAX_DIMS], inner = 1;
	struct dlb_desc x = dlb_tensor_desc(&e->graph.tensor[e->scores], n);
	struct dlb_desc t = dlb_tensor_desc(&e->graph.tensor[e->labels], n);

	if (e->binary) {
		for (int64_t i = 0; i < dlb_desc_count(&t); i++, ++*all)
			*right += (dlb_value_real(scores, x.dtype, i) > 0.0) ==
				  (dlb_value_real(labels, t.dtype, i) > 0.5);
		return;
	}
	dlb_desc_strides(&x, stride);
	for (int i = 2; i < x.n_dims; i++)
		inner *= x.dim[i];
	for (int64_t i = 0; i < x.dim[0] * inner; i++) {
		int64_t at = i / inner * stride[0], rest = i % inner, best = 0,
			label = dlb_value_int(labels, t.dtype, i);
		double most = -HUGE_VAL;

		if (e->has_ignore && label == e->ignore)
			continue;
		for (int k = x.n_dims - 1; k >= 2; k--) {
			at += rest % x.dim[k] * stride[k];
			rest /= x.dim[k];
		}
		for (int64_t c = 0; c < x.dim[1]; c++) {
			double v = dlb_value_real(scores, x.dtype, at + c * stride[1]);

			if (v > most) {
				most = v;
				best = c;
			}
		}
		*right += best == label;
		++*all;
	}
}

/* Counts right and countable samples of the last run. */
static void count_right(const struct dlb_eval *e, int which, double *right, double *all)
{
	void *scores_copy, *labels_copy;
	const void *scores = dlb_engine_read(e->engine[which], e->scores, 0, &scores_copy),
		   *labels = dlb_engine_read(e->engine[which], e->labels, 0, &labels_copy);

	count_right_of(e, which, scores, labels, right, all);
	free(scores_copy);
	free(labels_copy);
}

int dlb_eval_run(struct dlb_eval *e, struct dlb_comm *comm, const struct dlb_step *like, double *accuracy,
		 double *loss, int *who, struct dlb_error *err)
{
	double sum[4] = { 0.0 }, seed = 1.0;		/* right, all, loss * weight, weight */
	struct dlb_error why;
	/* the other ranks need this rank's messages: a sample that cannot be read is reported at the end */
	int rc = 0;
	const struct dlb_fed fed = { .base = e->base, .seed = &seed };

	for (int64_t at = 0; at < e->count;) {
		int which = e->count - at < e->batch;
		const struct dlb_engine_program *v = dlb_engine_view(e->engine[which]);
		const struct dlb_step step = { .version = like->version, .replay = like->replay, .fed = &fed };
		double weight, batch_loss;

		for (int i = 0; i < v->n_feed; i++)
			if (dlb_data_fill(e->data, v->feed[i].tensor, 0,
					  at + v->feed[i].first - v->program->first[0], v->feed[i].n,
					  e->base + v->feed[i].offset, rc ? &why : err))
				rc = -1;
		if (dlb_engine_run(e->engine[which], &step, err))
			return -1;
		if (e->node == e->scorer)
			(e->join < 0 ? count_right : count_right_of_parts)(e, which, &sum[0], &sum[1]);
		if (e->node == e->loss_node) {
			weight = dlb_data_counted(e->data, dlb_data_label(e->data, 0), 0, at,
						  e->program[which].batch);
			if (dlb_engine_loss(e->engine[which], &seed, &batch_loss, rc ? &why : err))
				rc = -1;
			sum[2] += weight * batch_loss;
			sum[3] += weight;
		}
		at += e->program[which].batch;
	}
	if (dlb_comm_agree(comm, rc, err, who) || dlb_comm_allreduce_f64(comm, sum, 4, DLB_COMM_SUM, err))
		return -1;
	*accuracy = sum[1] > 0.0 ? sum[0] / sum[1] : NAN;
	*loss = sum[3] > 0.0 ? sum[2] / sum[3] : NAN;
	return 0;
}
