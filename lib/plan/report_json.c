/* The report section.
 *
 *     {"dry_run": false, "first_step": 0, "steps": 100, "batch": 64, "micro_batches": 8, "optimizer": "sgd",
 *      "stopped": "steps", "losses": [...], "accuracy": 0.9, "test_loss": 0.3,
 *      "evaluations": [...], "best": {...},                              see report_evals.c; absent: none during training
 *      "events": [...],                                                  see report_events.c; absent: no node was lost
 *      "step_s", "step_se_s", "predicted_step_s", "wall_s", "imbalance", "prediction_error",
 *      "nodes": [{"host", "busy_s", "busy_se_s", "predicted_busy_s", "wait_s", "idle_s", "data_wait_s", "bytes_sent", "peak_bytes",
 *                 "waits": {"starved", "backpressure", "collective", "structural"}}],
 *      "communication": {"bytes", "time_s", "hidden_s", "in_place_bytes"},   absent: one node
 *      "feed": {"bytes", "wait_s"},                                      if rank 0 reads for all
 *      "samples": [{"node", "tensor", "time_s"}],                        see cost/samples.c; absent: none prepared
 *      "allreduce": {"algorithm", "bytes", "dense_bytes", "time_s", "hidden_s", "command_s",
 *                    "classes": {"factor", "gradient", "small", "statistics", "weights"}},      with bytes ... hidden_s each; absent: one replica
 *      "delays": [{"weight", "node", "least", "most"}],                    updates behind; absent: synchronous
 *      "kfac": {...},                                                    see report_kfac.c; absent: another optimizer
 *      "batch_statistics": "replica",                                     or "all"; absent: none, or one replica
 *      "varies": true,                                                   bits differ between runs; absent: they do not
 *      "ops":   [{"op", "node", "time_s", "predicted_s"}],
 *      "timeline": [[[op, micro_batch, start_s, end_s], ...], ...],
 *      "saved": "FILE", "checkpoint": "FOLDER", "plan_hash": "16 hex digits"}
 *
 * Values that were not measured (NAN) are left out. A loss that is not finite is null, because JSON has no
 * such number. */
#include <math.h>
#include <string.h>
#include "plan/report.h"
#include "plan/timeline.h"
#include "plan/timeline_json.h"

static const char *const waits[DLB_N_WAITS] = { "starved", "backpressure", "collective", "structural" };

static json_t *write_node(const struct dlb_report_node *n)
{
	json_t *o = json_object(), *w = json_object();
	dlb_set_str(o, "host", n->host);
	dlb_set_finite(o, "busy_s", n->busy_s);
	dlb_set_finite(o, "busy_se_s", n->busy_se_s);
	dlb_set_finite(o, "predicted_busy_s", n->predicted_busy_s);
	dlb_set_finite(o, "wait_s", n->wait_s);
	dlb_set_finite(o, "idle_s", n->idle_s);
	dlb_set_finite(o, "data_wait_s", n->data_wait_s);
	if (n->offload_wait_s > 0)
		dlb_set_finite(o, "offload_wait_s", n->offload_wait_s);
	for (int i = 0; i < DLB_N_WAITS; i++)
		dlb_set_finite(w, waits[i], n->waits_s[i]);
	json_object_set_new(o, "waits", w);
	dlb_set_finite(o, "bytes_sent", n->bytes_sent);
	dlb_set_finite(o, "peak_bytes", n->peak_bytes);
	if (n->process_bytes > 0)
		dlb_set_finite(o, "process_bytes", n->process_bytes);
	if (n->predicted_process_bytes > 0)
		dlb_set_finite(o, "predicted_process_bytes", n->predicted_process_bytes);
	if (n->device_bytes > 0)
		dlb_set_finite(o, "device_bytes", n->device_bytes);
	if (n->graphs > 0) {
		dlb_set_finite(o, "graphs", n->graphs);
		dlb_set_finite(o, "graph_ops", n->graph_ops);
		dlb_set_finite(o, "graph_steps", n->graph_steps);
	}
	return o;
}

static const char *const sum_classes[DLB_N_SUM_CLASSES + 1] = { "factor", "gradient", "small", "statistics",
								"weights" };

static void set_sum(json_t *o, const struct dlb_report_sum *s)
{
	dlb_set_finite(o, "bytes", s->bytes);
	dlb_set_finite(o, "dense_bytes", s->dense_bytes);
	dlb_set_finite(o, "time_s", s->time_s);
	dlb_set_finite(o, "hidden_s", s->hidden_s);
}

static json_t *write_allreduce(const struct dlb_report_allreduce *a)
{
	json_t *o = json_object(), *classes = json_object(), *sums = json_array();
	dlb_set_str(o, "algorithm", a->algorithm);
	set_sum(o, &a->all);
	dlb_set_finite(o, "command_s", a->command_s);
	if (!isnan(a->apart))
		dlb_set_finite(o, "apart", a->apart);
	for (int i = 0; i < DLB_N_SUM_CLASSES; i++) {
		json_t *c = json_object();
		set_sum(c, &a->cls[i]);
		json_object_set_new(classes, sum_classes[i], c);
	}
	json_object_set_new(o, "classes", classes);
	for (int i = 0; i < a->n_buckets; i++) {
		const struct dlb_report_bucket *b = &a->bucket[i];
		json_t *one = json_pack("{si ss si}", "part", b->part, "class", sum_classes[b->cls],
					"tensors", b->tensors);
		dlb_set_finite(one, "bytes", b->bytes);
		dlb_set_str(one, "algorithm", b->algorithm);
		json_array_append_new(sums, one);
	}
	json_object_set_new(o, "sums", sums);
	if (a->n_ranks)
		json_object_set_new(o, "ranks", dlb_report_ranks_write(a));
	return o;
}

static json_t *write_delays(const struct dlb_report *r)
{
	json_t *list = json_array();
	for (int i = 0; i < r->n_delays; i++) {
		const struct dlb_report_delay *d = &r->delay[i];
		json_array_append_new(list, json_pack("{ss si si si}", "weight", d->weight, "node", d->node,
						      "least", d->least, "most", d->most));
	}
	return list;
}

void dlb_report_set(struct dlb_doc *d, const struct dlb_report *r)
{
	static const char *const inputs[] = { "plan", NULL };
	json_t *section = dlb_report_write(r);

	json_object_set_new(section, "inputs", dlb_doc_input_hashes(d, inputs));
	dlb_doc_set(d, "report", section);
}

json_t *dlb_report_write(const struct dlb_report *r)
{
	json_t *o = json_object(), *losses = json_array(), *nodes = json_array(), *ops = json_array();
	dlb_set_bool(o, "dry_run", r->dry_run);
	dlb_set_int(o, "first_step", r->first_step);
	dlb_set_int(o, "steps", r->steps);
	dlb_set_int(o, "batch", r->batch);
	dlb_set_int(o, "micro_batches", r->micro_batches);
	dlb_set_str(o, "optimizer", r->optimizer);
	dlb_set_str(o, "stopped", r->stopped);
	for (int i = 0; i < r->n_losses; i++)
		json_array_append_new(losses, dlb_doc_number(r->loss[i]));
	json_object_set_new(o, "losses", losses);
	dlb_set_finite(o, "accuracy", r->accuracy);
	dlb_set_finite(o, "test_loss", r->test_loss);
	dlb_report_evals_write(r, o);
	dlb_set_finite(o, "optimizer_violations", r->optimizer_violations);
	dlb_set_finite(o, "step_s", r->step_s);
	dlb_set_finite(o, "step_se_s", r->step_se_s);
	dlb_set_finite(o, "predicted_step_s", r->predicted_step_s);
	if (r->predicted_step_high_s > 0) {
		dlb_set_finite(o, "predicted_step_low_s", r->predicted_step_low_s);
		dlb_set_finite(o, "predicted_step_high_s", r->predicted_step_high_s);
	}
	dlb_set_finite(o, "wall_s", r->wall_s);
	dlb_set_finite(o, "imbalance", r->imbalance);
	dlb_set_finite(o, "prediction_error", r->prediction_error);
	for (int i = 0; i < r->n_nodes; i++)
		json_array_append_new(nodes, write_node(&r->node[i]));
	json_object_set_new(o, "nodes", nodes);
	if (r->n_nodes > 1) {
		json_t *c = json_object();
		dlb_set_finite(c, "bytes", r->communication.bytes);
		dlb_set_finite(c, "time_s", r->communication.time_s);
		dlb_set_finite(c, "hidden_s", r->communication.hidden_s);
		if (!r->dry_run)
			dlb_set_finite(c, "in_place_bytes", r->communication.in_place_bytes);
		json_object_set_new(o, "communication", c);
	}
	if (r->feed.bytes > 0) {
		json_t *c = json_object();

		dlb_set_finite(c, "bytes", r->feed.bytes);
		dlb_set_finite(c, "wait_s", r->feed.wait_s);
		json_object_set_new(o, "feed", c);
	}
	if (r->n_samples)
		json_object_set_new(o, "samples", dlb_sample_times_write(r->sample, r->n_samples));
	if (r->allreduce.algorithm)
		json_object_set_new(o, "allreduce", write_allreduce(&r->allreduce));
	dlb_set_str(o, "batch_statistics", r->batch_statistics);
	if (r->varies)
		json_object_set_new(o, "varies", json_true());
	if (r->kfac.others)
		json_object_set_new(o, "kfac", dlb_report_kfac_write(&r->kfac));
	if (r->n_delays)
		json_object_set_new(o, "delays", write_delays(r));
	for (int i = 0; i < r->n_ops; i++) {
		json_t *p = json_pack("{si si}", "op", r->op[i].op, "node", r->op[i].node);
		dlb_set_finite(p, "time_s", r->op[i].time_s);
		dlb_set_finite(p, "predicted_s", r->op[i].predicted_s);
		json_array_append_new(ops, p);
	}
	json_object_set_new(o, "ops", ops);
	if (r->timeline)
		json_object_set_new(o, "timeline", dlb_spans_write(r->timeline, r->n_spans, r->n_nodes));
	dlb_set_str(o, "saved", r->saved);
	dlb_set_str(o, "checkpoint", r->checkpoint);
	dlb_set_str(o, "plan_hash", r->plan_hash);
	dlb_report_scenario_write(r, o);
	dlb_report_events_write(r, o);
	dlb_report_buddy_write(r, o);
	return o;
}

/* ---- reading ---- */

static int get_str(const struct dlb_ref *r, const char *key, struct dlb_report *out, const char **s,
		   struct dlb_error *err)
{
	const char *x = NULL;
	if (dlb_get_str(r, key, DLB_OPT, &x, err))
		return -1;
	if (x)
		*s = dlb_arena_strdup(&out->arena, x);
	return 0;
}

static int get_time(const struct dlb_ref *r, const char *key, double *x, struct dlb_error *err)
{
	return dlb_get_real(r, key, DLB_OPT, 0, 1e18, x, err);
}

static int read_sum(const struct dlb_ref *r, struct dlb_report_sum *s, struct dlb_error *err)
{
	return dlb_get_real(r, "bytes", DLB_OPT, 0, 1e18, &s->bytes, err) ||
			       dlb_get_real(r, "dense_bytes", DLB_OPT, 0, 1e18, &s->dense_bytes, err) ||
			       get_time(r, "time_s", &s->time_s, err) ||
			       get_time(r, "hidden_s", &s->hidden_s, err) ?
		       -1 :
		       0;
}

static int read_bucket(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_bucket *b,
		       struct dlb_error *err)
{
	static const char *const known[] = { "part", "class", "tensors", "bytes", "algorithm", NULL };
	const char *cls = NULL;
	int64_t part = 0, tensors = 0;
	if (dlb_ref_known(r, known, err) || dlb_get_int(r, "part", DLB_NEED, 0, INT32_MAX, &part, err) ||
	    dlb_get_str(r, "class", DLB_NEED, &cls, err) ||
	    dlb_get_int(r, "tensors", DLB_NEED, 0, INT32_MAX, &tensors, err) ||
	    dlb_get_real(r, "bytes", DLB_NEED, 0, 1e18, &b->bytes, err) ||
	    get_str(r, "algorithm", out, &b->algorithm, err))
		return -1;
	b->part = (int)part;
	b->tensors = (int)tensors;
	while (b->cls < DLB_N_SUM_CLASSES && strcmp(sum_classes[b->cls], cls))
		b->cls++;
	return b->cls < DLB_N_SUM_CLASSES ? 0 : dlb_ref_fail(r, err, "no class of sums '%.40s'", cls);
}

static int read_buckets(const struct dlb_ref *allreduce, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_report_allreduce *a = &out->allreduce;
	struct dlb_ref list = { .v = NULL };
	int n = 0;
	if (dlb_get_array(allreduce, "sums", DLB_OPT, &list, &n, err))
		return -1;
	a->bucket = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *a->bucket);
	for (a->n_buckets = 0; list.v && a->n_buckets < n; a->n_buckets++) {
		struct dlb_ref e = dlb_ref_index(&list, a->n_buckets);
		if (read_bucket(&e, out, &a->bucket[a->n_buckets], err))
			return -1;
	}
	return 0;
}

/* The sums of each class. */
static int read_classes(const struct dlb_ref *r, struct dlb_report_sum cls[DLB_N_SUM_CLASSES],
			struct dlb_error *err)
{
	static const char *const known[] = { "bytes", "dense_bytes", "time_s", "hidden_s", NULL };

	if (dlb_ref_known(r, sum_classes, err))
		return -1;
	for (int i = 0; i < DLB_N_SUM_CLASSES; i++) {
		struct dlb_ref c = { .v = NULL };

		if (dlb_get_object(r, sum_classes[i], DLB_OPT, &c, err) ||
		    (c.v && (dlb_ref_known(&c, known, err) || read_sum(&c, &cls[i], err))))
			return -1;
	}
	return 0;
}

static int read_allreduce(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "algorithm", "bytes",     "dense_bytes", "time_s",
					     "hidden_s",  "command_s", "apart",       "classes",
					     "sums",      "ranks",     NULL };
	struct dlb_report_allreduce *a = &out->allreduce;
	struct dlb_ref r = { .v = NULL }, classes = { .v = NULL };
	if (dlb_get_object(report, "allreduce", DLB_OPT, &r, err))
		return -1;
	if (!r.v)
		return 0;
	a->algorithm = "ring";
	a->apart = NAN;
	if (dlb_ref_known(&r, known, err) || get_str(&r, "algorithm", out, &a->algorithm, err) ||
	    read_sum(&r, &a->all, err) || get_time(&r, "command_s", &a->command_s, err) ||
	    get_time(&r, "apart", &a->apart, err) || dlb_get_object(&r, "classes", DLB_OPT, &classes, err) ||
	    read_buckets(&r, out, err) || dlb_report_ranks_read(&r, out, err))
		return -1;
	return classes.v ? read_classes(&classes, a->cls, err) : 0;
}

static int read_feed(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "bytes", "wait_s", NULL };
	struct dlb_ref r = { .v = NULL };

	if (dlb_get_object(report, "feed", DLB_OPT, &r, err))
		return -1;
	if (!r.v)
		return 0;
	return dlb_ref_known(&r, known, err) ||
			       dlb_get_real(&r, "bytes", DLB_OPT, 0, 1e18, &out->feed.bytes, err) ||
			       get_time(&r, "wait_s", &out->feed.wait_s, err) ?
		       -1 :
		       0;
}

static int read_communication(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "bytes", "time_s", "hidden_s", "in_place_bytes", NULL };
	struct dlb_ref r = { .v = NULL };
	if (dlb_get_object(report, "communication", DLB_OPT, &r, err))
		return -1;
	if (!r.v)
		return 0;
	return dlb_ref_known(&r, known, err) ||
			       dlb_get_real(&r, "bytes", DLB_OPT, 0, 1e18, &out->communication.bytes, err) ||
			       dlb_get_real(&r, "in_place_bytes", DLB_OPT, 0, 1e18,
					    &out->communication.in_place_bytes, err) ||
			       get_time(&r, "time_s", &out->communication.time_s, err) ||
			       get_time(&r, "hidden_s", &out->communication.hidden_s, err) ?
		       -1 :
		       0;
}

static int read_losses(const struct dlb_ref *r, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_ref list;
	int n = 0;
	if (dlb_get_array(r, "losses", DLB_OPT, &list, &n, err))
		return -1;
	if (!list.v)
		return 0;
	out->loss = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->loss);
	out->n_losses = n;
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&list, i);
		out->loss[i] = NAN;
		if (!json_is_null(e.v) && dlb_ref_real(&e, -HUGE_VAL, HUGE_VAL, &out->loss[i], err))
			return -1;
	}
	return 0;
}

static int read_node(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_node *n,
		     struct dlb_error *err)
{
	static const char *const known[] = { "host",
					     "busy_s",
					     "busy_se_s",
					     "predicted_busy_s",
					     "wait_s",
					     "idle_s",
					     "data_wait_s",
					     "offload_wait_s",
					     "waits",
					     "bytes_sent",
					     "peak_bytes",
					     "process_bytes",
					     "predicted_process_bytes",
					     "device_bytes",
					     "graphs",
					     "graph_ops",
					     "graph_steps",
					     NULL };
	static const char *const known_waits[] = { "starved", "backpressure", "collective", "structural",
						   NULL };
	struct dlb_ref w;
	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	if (dlb_ref_known(r, known, err) || get_str(r, "host", out, &n->host, err) ||
	    get_time(r, "busy_s", &n->busy_s, err) || get_time(r, "busy_se_s", &n->busy_se_s, err) ||
	    get_time(r, "predicted_busy_s", &n->predicted_busy_s, err) ||
	    get_time(r, "wait_s", &n->wait_s, err) || get_time(r, "idle_s", &n->idle_s, err) ||
	    get_time(r, "data_wait_s", &n->data_wait_s, err) ||
	    get_time(r, "offload_wait_s", &n->offload_wait_s, err) ||
	    get_time(r, "bytes_sent", &n->bytes_sent, err) ||
	    get_time(r, "peak_bytes", &n->peak_bytes, err) ||
	    dlb_get_real(r, "process_bytes", DLB_OPT, 0, 1e18, &n->process_bytes, err) ||
	    dlb_get_real(r, "predicted_process_bytes", DLB_OPT, 0, 1e18, &n->predicted_process_bytes, err) ||
	    dlb_get_real(r, "device_bytes", DLB_OPT, 0, 1e18, &n->device_bytes, err) ||
	    dlb_get_real(r, "graphs", DLB_OPT, 0, 1e9, &n->graphs, err) ||
	    dlb_get_real(r, "graph_ops", DLB_OPT, 0, 1e9, &n->graph_ops, err) ||
	    dlb_get_real(r, "graph_steps", DLB_OPT, 0, 1e18, &n->graph_steps, err) ||
	    dlb_get_object(r, "waits", DLB_OPT, &w, err))
		return -1;
	if (w.v && dlb_ref_known(&w, known_waits, err))
		return -1;
	for (int i = 0; w.v && i < DLB_N_WAITS; i++)
		if (get_time(&w, waits[i], &n->waits_s[i], err))
			return -1;
	return 0;
}

static int read_op(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_op *o,
		   struct dlb_error *err)
{
	static const char *const known[] = { "op", "node", "time_s", "predicted_s", NULL };
	int64_t op, node;
	o->time_s = o->predicted_s = NAN;
	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	if (dlb_ref_known(r, known, err) || dlb_get_int(r, "op", DLB_NEED, 0, INT32_MAX, &op, err) ||
	    dlb_get_int(r, "node", DLB_NEED, 0, out->n_nodes - 1, &node, err) ||
	    get_time(r, "time_s", &o->time_s, err) || get_time(r, "predicted_s", &o->predicted_s, err))
		return -1;
	o->op = (int)op;
	o->node = (int)node;
	return 0;
}

static int read_delay(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_delay *d,
		      struct dlb_error *err)
{
	static const char *const known[] = { "weight", "node", "least", "most", NULL };
	int64_t node, least, most;
	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	if (dlb_ref_known(r, known, err) || get_str(r, "weight", out, &d->weight, err) ||
	    dlb_get_int(r, "node", DLB_NEED, 0, out->n_nodes - 1, &node, err) ||
	    dlb_get_int(r, "least", DLB_NEED, 0, INT32_MAX, &least, err) ||
	    dlb_get_int(r, "most", DLB_NEED, 0, INT32_MAX, &most, err))
		return -1;
	d->node = (int)node;
	d->least = (int)least;
	d->most = (int)most;
	return 0;
}

static int read_delays(const struct dlb_ref *r, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };
	int n = 0;
	if (dlb_get_array(r, "delays", DLB_OPT, &list, &n, err))
		return -1;
	n = list.v ? n : 0;
	out->delay = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->delay);
	out->n_delays = n;
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&list, i);
		if (read_delay(&e, out, &out->delay[i], err))
			return -1;
	}
	return 0;
}

static int read_lists(const struct dlb_ref *r, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_ref list;
	int n = 0;
	if (dlb_get_array(r, "nodes", DLB_NEED, &list, &n, err))
		return -1;
	out->node = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->node);
	out->n_nodes = n;
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&list, i);
		if (read_node(&e, out, &out->node[i], err))
			return -1;
	}
	n = 0;
	if (dlb_get_array(r, "ops", DLB_OPT, &list, &n, err))
		return -1;
	n = list.v ? n : 0;
	out->op = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->op);
	out->n_ops = n;
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&list, i);
		if (read_op(&e, out, &out->op[i], err))
			return -1;
	}
	if (read_feed(r, out, err) ||
	    dlb_sample_times_read(r, out->n_nodes, &out->arena, &out->sample, &out->n_samples, err) ||
	    read_communication(r, out, err) || read_allreduce(r, out, err) || read_delays(r, out, err) ||
	    dlb_report_kfac_read(r, out, err) || dlb_report_evals_read(r, out, err) ||
	    dlb_report_events_read(r, out, err) || dlb_report_scenario_read(r, out, err) ||
	    dlb_report_buddy_read(r, out, err))
		return -1;
	return dlb_spans_read(r, out->n_nodes, -1, &out->arena, &out->timeline, &out->n_spans, err);
}

static int read_report(const struct dlb_doc *d, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "inputs",
					     "dry_run",
					     "first_step",
					     "steps",
					     "batch",
					     "micro_batches",
					     "optimizer",
					     "stopped",
					     "losses",
					     "accuracy",
					     "test_loss",
					     "evaluations",
					     "best",
					     "events",
					     "buddy",
					     "scenario",
					     "optimizer_violations",
					     "step_s",
					     "step_se_s",
					     "predicted_step_s",
					     "predicted_step_low_s",
					     "predicted_step_high_s",
					     "wall_s",
					     "imbalance",
					     "prediction_error",
					     "nodes",
					     "communication",
					     "feed",
					     "samples",
					     "allreduce",
					     "batch_statistics",
					     "varies",
					     "delays",
					     "kfac",
					     "ops",
					     "timeline",
					     "saved",
					     "checkpoint",
					     "plan_hash",
					     NULL };
	json_t *section;
	int64_t M = 1;
	if (dlb_doc_need(d, "report", &section, err) || dlb_doc_check_inputs(d, "report", err))
		return -1;
	struct dlb_ref r = dlb_ref_root(d, "report");
	if (dlb_ref_known(&r, known, err) || dlb_get_bool(&r, "dry_run", DLB_OPT, &out->dry_run, err) ||
	    dlb_get_int(&r, "first_step", DLB_OPT, 0, INT64_MAX, &out->first_step, err) ||
	    dlb_get_int(&r, "steps", DLB_OPT, 0, INT64_MAX, &out->steps, err) ||
	    dlb_get_int(&r, "batch", DLB_OPT, 1, INT64_MAX, &out->batch, err) ||
	    dlb_get_int(&r, "micro_batches", DLB_OPT, 1, INT32_MAX, &M, err) ||
	    get_str(&r, "optimizer", out, &out->optimizer, err) ||
	    get_str(&r, "stopped", out, &out->stopped, err) || read_losses(&r, out, err) ||
	    dlb_get_real(&r, "accuracy", DLB_OPT, 0, 1, &out->accuracy, err) ||
	    dlb_get_real(&r, "test_loss", DLB_OPT, -HUGE_VAL, HUGE_VAL, &out->test_loss, err) ||
	    dlb_get_real(&r, "optimizer_violations", DLB_OPT, 0, 1e300, &out->optimizer_violations, err) ||
	    get_time(&r, "step_s", &out->step_s, err) || get_time(&r, "step_se_s", &out->step_se_s, err) ||
	    get_time(&r, "predicted_step_s", &out->predicted_step_s, err) ||
	    get_time(&r, "predicted_step_low_s", &out->predicted_step_low_s, err) ||
	    get_time(&r, "predicted_step_high_s", &out->predicted_step_high_s, err) ||
	    get_time(&r, "wall_s", &out->wall_s, err) || get_time(&r, "imbalance", &out->imbalance, err) ||
	    dlb_get_real(&r, "prediction_error", DLB_OPT, -1e18, 1e18, &out->prediction_error, err) ||
	    get_str(&r, "saved", out, &out->saved, err) ||
	    get_str(&r, "checkpoint", out, &out->checkpoint, err) ||
	    get_str(&r, "batch_statistics", out, &out->batch_statistics, err) ||
	    dlb_get_bool(&r, "varies", DLB_OPT, &out->varies, err) ||
	    get_str(&r, "plan_hash", out, &out->plan_hash, err))
		return -1;
	out->micro_batches = (int)M;
	return read_lists(&r, out, err);
}

int dlb_report_read(const struct dlb_doc *d, struct dlb_report *r, struct dlb_error *err)
{
	*r = (struct dlb_report){
		.accuracy = NAN, .test_loss = NAN, .optimizer_violations = NAN, .prediction_error = NAN
	};
	if (!read_report(d, r, err))
		return 0;
	dlb_report_release(r);
	return -1;
}
