/* The job around the step loop: opening, stepping until a limit, checkpoints, the report.
 *
 * Every rank runs this same code over its own part. Where one may fail and others not, the stage ends in
 * dlb_comm_agree, so all leave together; decisions (stop, signal, a loss that is not finite) are made on
 * numbers that one small sum over the ranks at the end of each step has made equal everywhere. Only the
 * rank that computes the loss contributes to it, so the sum is exact.
 *
 * Under an asynchronous schedule several steps are in flight, and that sum must not make anybody wait: it is started
 * when a rank has run the step's last iteration and looked at a little later, in the same iteration on all ranks. What it
 * decides (to stop, say) then holds for steps that have not begun. The pipeline is drained before a checkpoint, before a
 * batch of another size, and at the end. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/average.h"
#include "exec/checkpoint.h"
#include "exec/exchange.h"
#include "exec/job.h"
#include "model/weights.h"
#include "util/clock.h"
#include "util/cores.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/stats.h"

enum { MAX_BATCHES = 3, ASYNC_SLACK = 2 };	/* slack: iterations from the end of a step to the look at its sum */

struct run {
	const struct dlb_exec_options *o;
	struct dlb_comm *comm;
	struct dlb_subset *all;				/* the ranks, for sums that nobody waits for; NULL: alone, or not wanted */
	int rank;
	struct dlb_job job;
	struct dlb_backend be;
	int replica, *placement;			/* this rank's, and where its replica's ops stand */
	struct dlb_state state;
	struct dlb_ground ground;
	struct dlb_program program[MAX_BATCHES];	/* [0]: full batches */
	struct dlb_engine *engine[MAX_BATCHES];
	int64_t size[MAX_BATCHES];
	int n_engines;
	struct dlb_average *average;			/* of weights over the replicas; NULL: none */
	struct dlb_kept *kept;				/* by compression of sums */
	double apart;					/* how far they were apart at the end; NAN: not at all */
	struct dlb_data *data;
	struct dlb_feed *feed;
	struct dlb_eval *eval;
	struct dlb_checkpoint checkpoint;
	char *checkpoint_path;
	struct dlb_progress_state at;			/* where training stands */
	int64_t first_step, count;			/* samples of an epoch */
	int64_t end_step, end_epoch, end_position;	/* limits; INT64_MAX: none */
	struct dlb_record record;
	double *loss; int64_t n_losses, cap_losses;
	FILE *log;
	const char *stopped;
	double wall_s;
	double *ending;					/* [2 + replicas] what the ranks tell each other at the end of a step */
};

/* ---- opening ---- */

static int open_device(struct run *r, struct dlb_error *err)
{
	const struct dlb_node *node = &r->job.cluster.node[r->rank];
	const struct dlb_device_kind *kind = &r->job.cluster.kind[node->kind];
	const struct dlb_backend_ops *ops = dlb_backend_find(kind->backend);

	if (!ops)
		return dlb_fail(err, NULL, "node %d is of kind '%s': back end '%s' is not built in", r->rank, kind->name, kind->backend);
	return ops->open(node->device < ops->n_devices() ? node->device : 0, kind->threads, &r->be, err);
}

/* A file of weights in place of the model's own (.run.weights); NULL: none. */
static int weights_file(const struct dlb_doc *doc, const char **path, struct dlb_error *err)
{
	struct dlb_ref run = dlb_ref_root(doc, "run"), w = { .v = NULL };
	const char *sha = NULL;
	char found[65];

	*path = NULL;
	if (!run.v || !json_object_get(run.v, "weights"))
		return 0;
	if (dlb_get_object(&run, "weights", DLB_NEED, &w, err) || dlb_get_str(&w, "path", DLB_NEED, path, err) ||
	    dlb_get_str(&w, "sha256", DLB_OPT, &sha, err))
		return -1;
	if (!sha)
		return 0;
	if (dlb_sha256_file(*path, found, err))
		return -1;
	if (strcmp(sha, found))
		return dlb_ref_fail(&w, err, "'%s' is not the file that the document was made for: its SHA-256 differs", *path);
	return 0;
}

static int open_state(struct run *r, const struct dlb_doc *doc, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	struct dlb_job *j = &r->job;
	const char *path;

	if (weights_file(doc, &path, err))
		return -1;
	/* Fresh weights still need the constants that stand in the model's file (masks, tables). */
	if (o->init && !path ? dlb_graph_load_constants(&j->graph, err) : dlb_graph_load_weights(&j->graph, path, err))
		return -1;
	r->replica = dlb_plan_replica_of(&j->plan, r->rank);
	r->ending = dlb_xcalloc((size_t)j->plan.n_replicas + 2, sizeof *r->ending);
	r->placement = j->plan.placement;
	if (r->replica) {
		r->placement = dlb_arena_array(&j->plan.arena, (size_t)j->graph.n_ops + 1, sizeof *r->placement);
		dlb_plan_placement_of(&j->plan, r->replica, r->placement);
	}
	if (r->rank == j->plan.sharing.param_server && j->plan.n_replicas > 1 && dlb_plan_part_of(&j->plan, r->rank) < 0) {
		r->placement = dlb_arena_array(&j->plan.arena, (size_t)j->graph.n_ops + 1, sizeof *r->placement);
		for (int i = 0; i < j->graph.n_ops; i++)	/* it has no part in the work and holds all the weights */
			r->placement[i] = r->rank;
	}
	if (dlb_state_init(&r->state, &j->graph, &r->be, r->placement, r->rank, j->optimizer.rule,
			   j->plan.micro_batches, j->plan.n_replicas > 1, err))
		return -1;
	r->state.first_placement = j->plan.placement;
	return dlb_state_load_graph(&r->state, o->init != NULL, o->init ? strtoull(o->init, NULL, 10) : 0, err);
}

static int64_t left_of_epoch(const struct run *r, const struct dlb_progress_state *at)
{
	return r->count - at->position;
}

/* Sizes of batch that this run will meet: full ones, the epoch's last one, and the last one of an epoch that
 * was entered at another batch size. */
static void find_sizes(struct run *r)
{
	int64_t batch = r->job.plan.batch < r->count ? r->job.plan.batch : r->count;
	int64_t size[MAX_BATCHES] = { batch, r->count % batch, left_of_epoch(r, &r->at) % batch };

	r->n_engines = 0;
	for (int i = 0; i < MAX_BATCHES; i++) {
		bool known = size[i] == 0 || (i && r->count == DLB_DATA_ENDLESS);

		for (int k = 0; k < r->n_engines; k++)
			known = known || r->size[k] == size[i];
		if (!known)
			r->size[r->n_engines++] = size[i];
	}
}

static int open_engines(struct run *r, struct dlb_error *err)
{
	size_t arena = 64;
	int depth = 0;

	find_sizes(r);
	for (int i = 0; i < r->n_engines; i++) {
		enum dlb_staleness rule = r->job.plan.staleness;
		int rc;

		if (i)			/* such steps are alone in the pipeline: there is nothing to be late for */
			r->job.plan.staleness = DLB_STALE_NONE;
		rc = dlb_job_compile(&r->job, r->size[i], &r->program[i], err);
		r->job.plan.staleness = rule;
		if (rc)
			return -1;
		const struct dlb_node_program *np = &dlb_program_of(&r->program[i], r->rank)->node[r->rank];

		depth = r->program[i].depth > depth ? r->program[i].depth : depth;
		if (np->arena_bytes > arena)
			arena = np->arena_bytes;
	}
	if (r->eval && dlb_eval_arena_bytes(r->eval) > arena)
		arena = dlb_eval_arena_bytes(r->eval);
	r->ground = (struct dlb_ground){ .be = &r->be, .cost = &r->job.cost, .comm = r->comm, .state = &r->state, .slow = 1.0, .cluster = &r->job.cluster,
		.kept = r->kept, .last_step = r->end_step };
	if (r->o->slow && r->rank < r->o->n_slow)
		r->ground.slow = r->o->slow[r->rank];
	r->ground.sleep = dlb_comm_crowded(r->comm);
	if (dlb_ground_ready(&r->ground, arena, r->program, r->n_engines, r->rank, err))
		return -1;
	if (dlb_average_new(&r->average, r->comm, dlb_program_of(&r->program[0], r->rank), r->rank, &r->job.cluster, &r->state, r->o->seed, err))
		return -1;
	r->ground.average = r->average;
	if (dlb_state_add_copies(&r->state, r->program, r->n_engines, err))
		return -1;
	for (int i = 0; i < r->n_engines; i++)
		if (dlb_engine_new(&r->engine[i], &r->ground, dlb_program_of(&r->program[i], r->rank), r->rank, &r->job.optimizer, NULL,
				   err))
			return -1;
	if (r->eval && dlb_eval_ready(r->eval, &r->ground, err))
		return -1;
	dlb_record_init(&r->record, dlb_engine_view(r->engine[0])->n_computes);
	return dlb_feed_new(&r->feed, r->data, r->engine, r->n_engines, depth + 2, err);
}

/* Threads that decode images on this rank: what was asked for, or its share of the cores that no node computes on. */
static int readers(const struct run *r)
{
	const struct dlb_cluster *c = &r->job.cluster;
	const char *host = c->node[r->rank].host;
	int64_t free_cores = dlb_cores(), ranks = 0;

	if (r->o->readers > 0)
		return (int)r->o->readers;
	for (int i = 0; i < c->n_nodes; i++) {
		if (host && c->node[i].host && strcmp(host, c->node[i].host))
			continue;
		free_cores -= c->kind[c->node[i].kind].threads;
		ranks++;
	}
	free_cores /= ranks ? ranks : 1;
	return free_cores < 1 ? 1 : free_cores > 16 ? 16 : (int)free_cores;
}

/* Each replica's own samples, where the plan says so. */
static int open_shards(struct run *r, struct dlb_error *err)
{
	const struct dlb_plan *plan = &r->job.plan;
	int64_t *share, *last;
	struct dlb_shards_choice c = { .n = plan->n_replicas, .batch = plan->batch < r->count ? plan->batch : r->count,
				       .exchange = plan->sharing.exchange_data };
	int rc;

	if (plan->n_replicas < 2 || !plan->sharing.shards)
		return 0;
	share = dlb_xcalloc((size_t)c.n, sizeof *share);
	last = dlb_xcalloc((size_t)c.n, sizeof *last);
	c.sorted = !strcmp(plan->sharing.shards, "sorted");
	c.share = share;
	c.last = last;
	dlb_plan_shares(plan, c.batch, share);
	dlb_plan_shares(plan, r->count % c.batch, last);
	rc = dlb_data_shard(r->data, &c, err);
	free(share);
	free(last);
	return rc;
}

static int open_data(struct run *r, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	struct dlb_data_choice choice = { .spec = o->data, .transform = o->transform, .shuffled = o->shuffled, .seed = o->seed,
					  .readers = readers(r) };

	if (!o->data)
		return dlb_hint((dlb_fail(err, NULL, "no data to train on"), err), "give --data; --data random feeds any model");
	if (dlb_data_open(&r->data, &choice, &r->job.graph, err))
		return -1;
	r->count = dlb_data_count(r->data);
	if (r->count == DLB_DATA_ENDLESS && o->epochs >= 0)
		return dlb_fail(err, NULL, "--epochs: data '%s' have no end; say --steps", o->data);
	if (open_shards(r, err))
		return -1;
	choice.spec = o->test_data;
	choice.shuffled = false;
	choice.like = r->data;
	return o->test_data ? dlb_eval_new(&r->eval, &r->job, r->rank, &choice, err) : 0;
}

static void find_limits(struct run *r)
{
	const struct dlb_exec_options *o = r->o;

	r->first_step = r->at.step;
	r->end_step = r->end_epoch = INT64_MAX;
	if (o->steps >= 0)
		r->end_step = r->at.step + o->steps;
	if (o->until_step >= 0 && o->until_step < r->end_step)
		r->end_step = o->until_step;
	if (o->epochs >= 0) {
		r->end_epoch = r->at.epoch + o->epochs;
		r->end_position = r->at.position;
	} else if (r->end_step == INT64_MAX && isnan(o->until_loss) && !o->patience) {
		if (r->count == DLB_DATA_ENDLESS)
			r->end_step = r->at.step + 100;
		else
			r->end_epoch = r->at.epoch + 1;
	}
}

/* The log is cut back to the step that training goes on from: a loss a line, line i for step i - 1. */
static int open_log(struct run *r, struct dlb_error *err)
{
	int64_t lines = 0;
	int c;

	if (!r->o->loss_log || r->rank)
		return 0;
	r->log = fopen(r->o->loss_log, r->at.step ? "r+" : "w");
	if (!r->log && errno == ENOENT)
		r->log = fopen(r->o->loss_log, "w");
	if (!r->log)
		return dlb_fail(err, NULL, "cannot open '%s': %s", r->o->loss_log, strerror(errno));
	while (lines < r->at.step && (c = getc(r->log)) != EOF)
		lines += c == '\n';
	if (fseek(r->log, 0, SEEK_CUR) || ftruncate(fileno(r->log), ftell(r->log)))
		return dlb_fail(err, NULL, "cannot cut '%s' back: %s", r->o->loss_log, strerror(errno));
	return 0;
}

static struct dlb_checkpoint_kept kept_here(const struct run *r)
{
	return (struct dlb_checkpoint_kept){ r->kept, r->replica, r->job.plan.n_replicas };
}

static int load_kept(struct run *r, struct dlb_error *err)
{
	const struct dlb_checkpoint_kept kept = kept_here(r);

	return dlb_checkpoint_load_kept(&r->checkpoint, r->at.step, &kept, err);
}

static int open_run(struct run *r, const struct dlb_doc *doc, int *who, struct dlb_error *err)
{
	bool found = false;
	int rc = dlb_job_read(&r->job, doc, r->o, err);

	if (!rc && r->job.plan.n_nodes != dlb_comm_size(r->comm)) {
		rc = dlb_fail(err, NULL, "the plan is for %d nodes, there are %d ranks", r->job.plan.n_nodes, dlb_comm_size(r->comm));
		dlb_hint(err, "start it with mpirun -n %d, or plainly", r->job.plan.n_nodes);
	}
	rc = rc || open_device(r, err) || open_state(r, doc, err) || open_data(r, err) ? -1 : 0;
	if (dlb_comm_agree(r->comm, rc, err, who))
		return -1;
	r->at = (struct dlb_progress_state){ .seed = r->o->seed, .best_loss = HUGE_VAL };
	r->kept = dlb_kept_new();
	if (r->o->checkpoint && (dlb_checkpoint_open(&r->checkpoint, r->o->checkpoint, r->comm, err) ||
				 dlb_checkpoint_load(&r->checkpoint, r->comm, &r->state, &r->at, &found, err)))
		return -1;
	if (found && r->at.position >= r->count) {
		rc = dlb_fail(err, r->checkpoint.dir, "the checkpoint stands at sample %lld of an epoch of %lld",
			      (long long)r->at.position, (long long)r->count);
	} else {
		find_limits(r);
		rc = open_engines(r, err) || (found && load_kept(r, err)) || open_log(r, err) ? -1 : 0;
	}
	if (dlb_comm_agree(r->comm, rc, err, who))
		return -1;
	if (r->program[0].depth && dlb_comm_size(r->comm) > 1)
		return dlb_subset_new(&r->all, r->comm, NULL, dlb_comm_size(r->comm), 0, err);
	return 0;
}

static void close_run(struct run *r)
{
	if (r->log)
		fclose(r->log);
	dlb_feed_free(r->feed);
	dlb_eval_free(r->eval);
	dlb_record_release(&r->record);
	for (int i = 0; i < MAX_BATCHES; i++) {
		dlb_engine_free(r->engine[i]);
		dlb_program_release(&r->program[i]);
	}
	dlb_average_free(r->average);
	dlb_kept_free(r->kept);
	dlb_subset_free(r->all, r->comm);
	dlb_data_close(r->data);
	dlb_ground_release(&r->ground);
	dlb_state_release(&r->state);
	if (r->be.ops)
		r->be.ops->close(&r->be);
	dlb_checkpoint_close(&r->checkpoint);
	dlb_job_release(&r->job);
	free(r->checkpoint_path);
	free(r->loss);
	free(r->ending);
}

/* ---- stepping ---- */

static const char *limit_reached(const struct run *r, const struct dlb_progress_state *at)
{
	if (at->step >= r->end_step)
		return "steps";
	if (at->epoch > r->end_epoch || (at->epoch == r->end_epoch && at->position >= r->end_position))
		return "epochs";
	return NULL;
}

static int64_t batch_at(const struct run *r, const struct dlb_progress_state *at)
{
	return r->size[0] < left_of_epoch(r, at) ? r->size[0] : left_of_epoch(r, at);
}

static int engine_for(const struct run *r, int64_t n)
{
	for (int i = 0; i < r->n_engines; i++)
		if (r->size[i] == n)
			return i;
	dlb_bug("no program for a batch of %lld", (long long)n);
}

static void advance(const struct run *r, struct dlb_progress_state *at)
{
	at->position += batch_at(r, at);
	at->step++;
	if (at->position >= r->count) {
		at->epoch++;
		at->position = 0;
	}
}

static void ask(struct run *r, const struct dlb_progress_state *at)
{
	dlb_feed_ask(r->feed, engine_for(r, batch_at(r, at)), at->epoch, at->position);
}

static int save_checkpoint(struct run *r, struct dlb_error *err)
{
	char *path = NULL;
	const struct dlb_checkpoint_kept kept = kept_here(r);
	double ignored;

	if (r->log)
		fflush(r->log);
	if (dlb_average_all(r->average, r->comm, &r->job.plan, &ignored, err) ||
	    dlb_checkpoint_save(&r->checkpoint, r->comm, &r->state, &kept, &r->at, &path, err))
		return -1;
	free(r->checkpoint_path);
	r->checkpoint_path = path;
	return 0;
}

/* Has it learnt enough? Made of the loss alone, which all ranks know alike. */
static const char *converged(struct run *r, double loss)
{
	if (loss < r->at.best_loss) {
		r->at.best_loss = loss;
		r->at.since_best = 0;
	} else {
		r->at.since_best++;
	}
	if (!isnan(r->o->until_loss) && loss < r->o->until_loss)
		return "loss";
	if (r->o->patience > 0 && r->at.since_best >= r->o->patience)
		return "patience";
	return NULL;
}

/* The end of a step: the loss and whether to stop, equal on all ranks. One rank makes a replica's loss, so each sum has one
 * term that is not zero; replicas' losses are added in their order. */
static int step_end(struct run *r, struct dlb_engine *e, const struct dlb_step *step, int wrong, double *loss, bool *stop, bool *failed,
		    struct dlb_error *err)
{
	int R = r->job.plan.n_replicas;
	double start_s = dlb_clock_s(), *x = r->ending;

	memset(x, 0, ((size_t)R + 2) * sizeof *x);
	x[0] = r->o->stop && *r->o->stop ? 1.0 : 0.0;
	x[1] = wrong ? 1.0 : 0.0;
	x[2 + r->replica] = step->fed->weight * dlb_engine_loss_of(e, step);
	if (dlb_comm_allreduce_f64(r->comm, x, R + 2, DLB_COMM_SUM, err))
		return -1;
	dlb_engine_view(e)->times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	*loss = 0.0;
	for (int k = 0; k < R; k++)
		*loss += x[2 + k];
	*stop = x[0] > 0.0;
	*failed = x[1] > 0.0;
	return 0;
}

static void keep_loss(struct run *r, double loss)
{
	if (r->n_losses == r->cap_losses) {
		r->cap_losses = r->cap_losses ? 2 * r->cap_losses : 4096;
		r->loss = dlb_xrealloc(r->loss, (size_t)r->cap_losses, sizeof *r->loss);
	}
	r->loss[r->n_losses++] = loss;
	if (r->log) {
		fprintf(r->log, "%.17g\n", loss);
		fflush(r->log);
	}
}

/* The first full step is slower (caches, first touches): it counts only when there is no other. */
static void keep_times(struct run *r, int which, int64_t full_steps)
{
	if (which)
		return;
	if (full_steps == 2) {
		dlb_record_release(&r->record);
		dlb_record_init(&r->record, dlb_engine_view(r->engine[0])->n_computes);
	}
	dlb_record_add(&r->record, dlb_engine_view(r->engine[0]));
}

static struct dlb_step step_at(const struct run *r, const struct dlb_progress_state *at, const struct dlb_fed *fed)
{
	return (struct dlb_step){ .step = at->step, .seed = r->o->seed, .version = (uint64_t)at->step + 1, .fed = fed,
		.rate = dlb_optimizer_rate(&r->job.optimizer, at->step), .has_rate = true,
		.rate_before = dlb_optimizer_rate(&r->job.optimizer, at->step ? at->step - 1 : 0) };
}

static int not_finite(const struct run *r, int64_t step, double loss, struct dlb_error *err)
{
	dlb_fail(err, NULL, "the loss of step %lld is not finite (%g)", (long long)step, fabs(loss));
	return dlb_hint(err, r->o->checkpoint ? "the checkpoints before it are kept; try a smaller --lr" : "try a smaller --lr");
}

static int64_t total_steps(const struct run *r)
{
	if (r->end_step != INT64_MAX)
		return r->end_step - r->first_step;
	if (r->end_epoch != INT64_MAX)
		return (r->end_epoch - r->at.epoch) * ((r->count + r->size[0] - 1) / r->size[0]);
	return 0;
}

static int fetch(struct run *r, struct dlb_error *err)
{
	const struct dlb_sharing *s = &r->job.plan.sharing;
	uint64_t sum = 0;

	if (dlb_fetch_weights(r->comm, &r->job.plan, &r->state, &sum, err))
		return -1;
	if (r->o->verbose && r->job.plan.n_replicas > 1 && s->param_server == r->rank)
		fprintf(stderr, "dlb-run: parameter server %d: all nodes start with its weights, checksum %016llx\n", s->param_server,
			(unsigned long long)sum);
	return 0;
}

/* ---- several steps in flight ---- */

/* Steps from an empty pipeline to an empty one; step s is at s % n of each list. */
struct flight {
	struct dlb_engine *e;
	int which, depth;
	int64_t first, end, n;			/* end: INT64_MAX until it is known */
	struct dlb_step *step;
	struct flight_end { double x[3]; struct dlb_request sum; int unread; struct dlb_error why; struct dlb_progress_state next; } *at_end;
	struct dlb_progress_state head;		/* the next step to begin */
	const char *stopped;
	int64_t failed, steady;			/* step with samples that could not be read, -1; iterations with everything in them */
	bool nonfinite;
	double before_s;
};

/* What all ranks know alike decides. */
static bool may_begin(const struct run *r, const struct flight *f)
{
	int64_t every = r->o->checkpoint ? r->o->checkpoint_every : 0;

	if (f->stopped || f->failed >= 0 || f->nonfinite || limit_reached(r, &f->head))
		return false;
	return f->head.step == f->first || (engine_for(r, batch_at(r, &f->head)) == 0 && f->which == 0 && (!every || f->head.step % every));
}

static double begin_step(struct run *r, struct flight *f)
{
	struct flight_end *x = &f->at_end[f->head.step % f->n];
	double asked_s = dlb_clock_s(), fed_s;
	const struct dlb_fed *fed;

	x->why.what[0] = 0;
	fed = dlb_feed_take(r->feed, &x->unread, &x->why);
	f->step[f->head.step % f->n] = step_at(r, &f->head, fed);
	fed_s = dlb_clock_s() - asked_s;
	advance(r, &f->head);
	x->next = f->head;
	if (!limit_reached(r, &f->head))
		ask(r, &f->head);
	return fed_s;
}

static void start_end(struct run *r, struct flight *f, int64_t step)
{
	struct flight_end *x = &f->at_end[step % f->n];

	x->x[0] = dlb_engine_loss_of(f->e, &f->step[step % f->n]);
	x->x[1] = r->o->stop && *r->o->stop ? 1.0 : 0.0;
	x->x[2] = x->unread ? 1.0 : 0.0;
	if (r->all)
		dlb_comm_isum(r->comm, r->all, x->x, 3, true, &x->sum);
}

static int look_at_end(struct run *r, struct flight *f, int64_t step, int64_t total, struct dlb_error *err)
{
	struct flight_end *x = &f->at_end[step % f->n];
	bool has_loss = r->job.graph.loss >= 0;
	double start_s = dlb_clock_s();

	if (r->all && dlb_comm_wait(r->comm, &x->sum, err))
		return -1;
	dlb_engine_view(f->e)->times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	if (f->failed >= 0 || f->nonfinite)		/* what follows a step that failed does not count */
		return 0;
	if (x->x[2] > 0.0) {
		f->failed = step;
		return 0;
	}
	if (has_loss && !isfinite(x->x[0]) && !r->o->allow_nonfinite) {
		f->nonfinite = true;
		not_finite(r, step, x->x[0], err);
		return 0;
	}
	x->next.best_loss = r->at.best_loss;
	x->next.since_best = r->at.since_best;
	r->at = x->next;
	if (has_loss) {
		const char *why = converged(r, x->x[0]);

		keep_loss(r, x->x[0]);
		f->stopped = f->stopped ? f->stopped : why;
	}
	if (x->x[1] > 0.0)
		f->stopped = "signal";
	if (r->o->progress && r->rank == 0)
		r->o->progress(r->o->progress_ctx, r->at.step - r->first_step, total, x->x[0]);
	return 0;
}

static int fly(struct run *r, struct flight *f, int64_t total, struct dlb_error *err)
{
	double start_s = dlb_clock_s();

	for (int64_t i = f->first, lag = f->depth + ASYNC_SLACK; f->end == INT64_MAX || i < f->end + lag; i++) {
		struct dlb_step_times *t = &dlb_engine_view(f->e)->times;
		double now_s, wait_s = 0.0;

		if (f->end == INT64_MAX && may_begin(r, f))
			wait_s = begin_step(r, f);
		else if (f->end == INT64_MAX)
			f->end = i;
		const struct dlb_window w = { .iteration = i, .first = f->first, .end = f->end < i + 1 ? f->end : i + 1, .step = f->step,
					      .n = f->n };

		if (i - f->depth < f->end && dlb_engine_run_iteration(f->e, &w, err))
			return -1;
		if (i - f->depth >= f->first && i - f->depth < f->end)
			start_end(r, f, i - f->depth);
		if (i - lag >= f->first && i - lag < f->end && look_at_end(r, f, i - lag, total, err))
			return -1;
		now_s = dlb_clock_s();
		t->step_s = now_s - f->before_s;
		t->data_wait_s = wait_s;
		f->before_s = now_s;
		if (i >= f->first + f->depth && i < f->end)
			keep_times(r, f->which, f->steady += f->which == 0);
	}
	if (!r->record.seen && f->which == 0) {		/* too short for an iteration with everything in it */
		dlb_engine_view(f->e)->times.step_s = (dlb_clock_s() - start_s) / (double)(f->end - f->first);
		dlb_record_add(&r->record, dlb_engine_view(f->e));
	}
	return 0;
}

static int train_async(struct run *r, int *who, struct dlb_error *err)
{
	int64_t total = total_steps(r), most = 0;
	struct flight f = { .failed = -1, .before_s = dlb_clock_s() };
	double start_s = f.before_s;
	int rc = 0;

	for (int i = 0; i < r->n_engines; i++)
		most = r->program[i].depth > most ? r->program[i].depth : most;
	f.n = most + ASYNC_SLACK + 1;
	f.step = dlb_xcalloc((size_t)f.n, sizeof *f.step);
	f.at_end = dlb_xcalloc((size_t)f.n, sizeof *f.at_end);
	if (!(r->stopped = limit_reached(r, &r->at)))
		ask(r, &r->at);
	while (!r->stopped && !rc) {
		f.head = r->at;
		f.first = r->at.step;
		f.end = INT64_MAX;
		f.which = engine_for(r, batch_at(r, &r->at));
		f.e = r->engine[f.which];
		f.depth = r->program[f.which].depth;
		rc = fly(r, &f, total, err);
		if (rc || f.nonfinite) {
			rc = -1;
		} else if (f.failed >= 0) {
			const struct flight_end *x = &f.at_end[f.failed % f.n];

			*err = x->why;
			rc = dlb_comm_agree(r->comm, x->unread, err, who);
		} else {
			r->stopped = f.stopped ? f.stopped : limit_reached(r, &r->at);
			if (r->o->checkpoint && r->o->checkpoint_every && !r->stopped && r->at.step % r->o->checkpoint_every == 0)
				rc = save_checkpoint(r, err);
			f.before_s = dlb_clock_s();
		}
	}
	free(f.step);
	free(f.at_end);
	r->wall_s = dlb_clock_s() - start_s;
	return rc;
}

static int train(struct run *r, int *who, struct dlb_error *err)
{
	bool has_loss = r->job.graph.loss >= 0;
	int64_t full_steps = 0, total = total_steps(r);
	double start_s, before_s;

	if (dlb_comm_barrier(r->comm, err))
		return -1;
	if (r->program[0].depth)
		return train_async(r, who, err);
	start_s = before_s = dlb_clock_s();
	if (!(r->stopped = limit_reached(r, &r->at)))
		ask(r, &r->at);
	if (fetch(r, err))				/* while the first samples are read */
		return -1;
	while (!r->stopped) {
		int which = engine_for(r, batch_at(r, &r->at));
		struct dlb_engine *e = r->engine[which];
		struct dlb_error why = { .what = "" };
		int wrong;
		double asked_s = dlb_clock_s();
		const struct dlb_fed *fed = dlb_feed_take(r->feed, &wrong, &why);
		const struct dlb_step step = step_at(r, &r->at, fed);
		struct dlb_progress_state next = r->at;
		double loss, now_s, fed_s = dlb_clock_s();
		bool stop, failed;

		advance(r, &next);
		if (!limit_reached(r, &next))
			ask(r, &next);
		if (dlb_engine_run(e, &step, err))
			return -1;
		if (!wrong && dlb_engine_exchange(e) && !r->o->allow_nonfinite)
			wrong = dlb_exchange_verdict(dlb_engine_exchange(e), &why);
		if (step_end(r, e, &step, wrong, &loss, &stop, &failed, err))
			return -1;
		if (failed) {
			*err = why;
			return dlb_comm_agree(r->comm, wrong, err, who);
		}
		now_s = dlb_clock_s();
		dlb_engine_view(e)->times.step_s = now_s - before_s;
		dlb_engine_view(e)->times.data_wait_s = fed_s - asked_s;
		before_s = now_s;
		keep_times(r, which, full_steps += which == 0);
		if (has_loss && !isfinite(loss) && !r->o->allow_nonfinite)
			return not_finite(r, r->at.step, loss, err);
		next.best_loss = r->at.best_loss;
		next.since_best = r->at.since_best;
		r->at = next;
		if (has_loss) {
			keep_loss(r, loss);
			r->stopped = converged(r, loss);
		}
		if (stop)
			r->stopped = "signal";
		else if (!r->stopped)
			r->stopped = limit_reached(r, &r->at);
		if (r->o->progress && r->rank == 0)
			r->o->progress(r->o->progress_ctx, r->at.step - r->first_step, total, loss);
		if (r->o->checkpoint && r->o->checkpoint_every && !r->stopped && r->at.step % r->o->checkpoint_every == 0) {
			if (save_checkpoint(r, err))
				return -1;
			before_s = dlb_clock_s();
		}
	}
	r->wall_s = dlb_clock_s() - start_s;
	return 0;
}

/* ---- the report ---- */

static double median_of(const struct dlb_record *rec, size_t offset, double *se)
{
	double *x = dlb_xmalloc(((size_t)rec->n_steps + 1) * sizeof *x), m;

	for (int i = 0; i < rec->n_steps; i++)
		memcpy(&x[i], (const char *)&rec->step[i] + offset, sizeof x[i]);
	m = dlb_median(x, rec->n_steps);
	if (se)
		*se = dlb_median_se(x, rec->n_steps);
	free(x);
	return m;
}

struct node_summary {
	double comm_s, comm_hidden_s;
	double busy_s, busy_se_s, waits_s[DLB_N_WAITS], bytes_sent, data_wait_s, command_s, shrunk;
	struct dlb_report_sum sum, cls[DLB_N_SUM_CLASSES];
	char host[64];
	int n_ops, n_spans;
};

/* Compute c is the second half of an op, c - 1 its first. */
static bool in_halves(const struct dlb_engine_program *v, int c)
{
	return c > 0 && !v->compute_is_op[c - 1] && v->compute_op[c - 1] == v->compute_op[c] && v->compute_m[c - 1] == v->compute_m[c];
}

/* Medians per op over the kept steps and micro-batches. */
static int ops_here(const struct run *r, struct dlb_report_op *out)
{
	const struct dlb_engine_program *v = dlb_engine_view(r->engine[0]);
	const struct dlb_record *rec = &r->record;
	const struct dlb_job *j = &r->job;
	const struct dlb_program *program = v->program;
	int M = program->micro_batches, n = 0;
	double *x = dlb_xmalloc(((size_t)rec->n_slots * (size_t)M + 1) * sizeof *x);
	int *next = dlb_xmalloc(((size_t)v->n_computes + 1) * sizeof *next), *head;

	head = dlb_xmalloc(((size_t)j->graph.n_ops + 1) * sizeof *head);
	for (int i = 0; i < j->graph.n_ops; i++)
		head[i] = -1;
	for (int c = 0; c < v->n_computes; c++) {
		if (!v->compute_is_op[c])
			continue;
		next[c] = head[v->compute_op[c]];
		head[v->compute_op[c]] = c;
	}
	for (int op = 0; op < j->graph.n_ops; op++) {
		int k = 0;

		for (int c = head[op]; c >= 0; c = next[c])
			for (int s = 0; s < rec->n_slots; s++) {
				size_t at = (size_t)s * (size_t)rec->n_computes + (size_t)c;

				x[k] = rec->end_s[at] - rec->start_s[at];
				if (in_halves(v, c))
					x[k] += rec->end_s[at - 1] - rec->start_s[at - 1];
				k++;
			}
		if (k)
			out[n++] = (struct dlb_report_op){ .op = op, .node = r->rank, .time_s = dlb_median(x, k),
				.predicted_s = j->kappa[r->rank] * dlb_cost_op_s(&j->cost, op, r->rank, (double)program->size[M / 2]) };
	}
	free(x);
	free(next);
	free(head);
	return n;
}

static void spans_here(const struct run *r, int slot, struct dlb_span *out)
{
	const struct dlb_engine_program *v = dlb_engine_view(r->engine[0]);
	const struct dlb_record *rec = &r->record;

	for (int c = 0; c < v->n_computes; c++) {
		size_t at = (size_t)slot * (size_t)rec->n_computes + (size_t)c;

		out[c] = (struct dlb_span){ .op = v->compute_op[c], .micro_batch = v->compute_m[c], .start_s = rec->start_s[at],
					    .end_s = rec->end_s[at] };
	}
}

/* The kept step nearest the median, as rank 0 sees it. */
static int median_slot(const struct run *r, double step_s)
{
	int best = 0;

	for (int i = 1; i < r->record.n_slots; i++)
		if (fabs(r->record.slot_step_s[i] - step_s) < fabs(r->record.slot_step_s[best] - step_s))
			best = i;
	return best;
}

/* Ops and spans of every rank come to rank 0, one after the other. */
static int collect(struct run *r, const struct node_summary *all, const struct dlb_report_op *ops, const struct dlb_span *spans,
		   struct dlb_report *report, struct dlb_error *err)
{
	int n = report->n_nodes, total = 0;

	if (r->rank) {
		struct dlb_request q[2] = { { 0 } };
		int n_ops = all[0].n_ops, n_spans = all[0].n_spans;

		dlb_comm_isend(r->comm, ops, (size_t)n_ops * sizeof *ops, 0, 1, &q[0]);
		dlb_comm_isend(r->comm, spans, (size_t)n_spans * sizeof *spans, 0, 2, &q[1]);
		return dlb_comm_wait(r->comm, &q[0], err) || dlb_comm_wait(r->comm, &q[1], err) ? -1 : 0;
	}
	for (int i = 0; i < n; i++)
		total += all[i].n_ops;
	report->op = dlb_arena_array(&report->arena, (size_t)total + 1, sizeof *report->op);
	report->timeline = dlb_arena_array(&report->arena, (size_t)n + 1, sizeof *report->timeline);
	report->n_spans = dlb_arena_array(&report->arena, (size_t)n + 1, sizeof *report->n_spans);
	for (int i = 0; i < n; i++) {
		struct dlb_request q[2] = { { 0 } };
		struct dlb_report_op *to = report->op + report->n_ops;
		struct dlb_span *span = dlb_arena_array(&report->arena, (size_t)all[i].n_spans + 1, sizeof *span);

		report->timeline[i] = span;
		report->n_spans[i] = all[i].n_spans;
		report->n_ops += all[i].n_ops;
		if (i == 0) {
			memcpy(to, ops, (size_t)all[0].n_ops * sizeof *to);
			memcpy(span, spans, (size_t)all[0].n_spans * sizeof *span);
			continue;
		}
		dlb_comm_irecv(r->comm, to, (size_t)all[i].n_ops * sizeof *to, i, 1, &q[0]);
		dlb_comm_irecv(r->comm, span, (size_t)all[i].n_spans * sizeof *span, i, 2, &q[1]);
		if (dlb_comm_wait(r->comm, &q[0], err) || dlb_comm_wait(r->comm, &q[1], err))
			return -1;
	}
	return 0;
}

static int by_op(const void *a, const void *b)
{
	const struct dlb_report_op *x = a, *y = b;

	return (x->op > y->op) - (x->op < y->op);
}

static void fill_nodes(const struct node_summary *all, struct dlb_report *report)
{
	for (int i = 0; i < report->n_nodes; i++) {
		struct dlb_report_node *n = &report->node[i];

		n->busy_s = all[i].busy_s;
		n->busy_se_s = all[i].busy_se_s;
		n->bytes_sent = all[i].bytes_sent;
		n->data_wait_s = all[i].data_wait_s;
		report->communication.bytes += all[i].bytes_sent - all[i].sum.bytes;
		report->communication.time_s += all[i].comm_s;
		report->communication.hidden_s += all[i].comm_hidden_s;
		n->host = dlb_arena_strdup(&report->arena, all[i].host);
		memcpy(n->waits_s, all[i].waits_s, sizeof n->waits_s);
		for (int k = 0; k < DLB_N_WAITS; k++)
			n->wait_s += all[i].waits_s[k];
	}
}

/* Only rules with a running maximum promise something here. */
static void count_violations(const struct dlb_job *j, const struct node_summary *all, struct dlb_report *report)
{
	if (j->optimizer.rule != DLB_RULE_MAX_ADABELIEF)
		return;
	report->optimizer_violations = 0;
	for (int i = 0; i < report->n_nodes; i++)
		report->optimizer_violations += dlb_plan_replica_of(&j->plan, i) == 0 ? all[i].shrunk : 0;
}

/* What this node sent and waited for in a step's sums over the replicas. */
static void sums_here(const struct run *r, struct node_summary *mine)
{
	const struct dlb_exchange_times *t;

	if (!dlb_engine_exchange(r->engine[0]))
		return;
	t = dlb_exchange_times(dlb_engine_exchange(r->engine[0]));
	mine->sum.time_s = median_of(&r->record, offsetof(struct dlb_step_times, sum_s), NULL);
	mine->sum.hidden_s = median_of(&r->record, offsetof(struct dlb_step_times, sum_hidden_s), NULL);
	mine->command_s = median_of(&r->record, offsetof(struct dlb_step_times, command_s), NULL);
	for (size_t k = 0; k < DLB_N_SUM_CLASSES; k++) {
		mine->cls[k] = (struct dlb_report_sum){ .bytes = t->bytes[k], .dense_bytes = t->dense_bytes[k],
			.time_s = median_of(&r->record, offsetof(struct dlb_step_times, class_s) + k * sizeof(double), NULL),
			.hidden_s = median_of(&r->record, offsetof(struct dlb_step_times, class_hidden_s) + k * sizeof(double), NULL) };
		mine->sum.bytes += mine->cls[k].bytes;
		mine->sum.dense_bytes += mine->cls[k].dense_bytes;
	}
}

static void add_sum(struct dlb_report_sum *all, const struct dlb_report_sum *one)
{
	all->bytes += one->bytes;
	all->dense_bytes += one->dense_bytes;
	if (one->time_s > all->time_s) {
		all->time_s = one->time_s;
		all->hidden_s = one->hidden_s > 0.0 ? one->hidden_s : 0.0;
	}
}

static void fill_sums(const struct run *r, const struct node_summary *all, struct dlb_report *report)
{
	struct dlb_report_allreduce *a = &report->allreduce;

	if (r->job.plan.n_replicas < 2)
		return;
	a->algorithm = dlb_sharing_name(&r->job.plan.sharing);
	a->apart = r->apart;
	for (int i = 0; i < report->n_nodes; i++) {
		add_sum(&a->all, &all[i].sum);
		for (int k = 0; k < DLB_N_SUM_CLASSES; k++)
			add_sum(&a->cls[k], &all[i].cls[k]);
		a->command_s = all[i].command_s > a->command_s ? all[i].command_s : a->command_s;
	}
}

static int make_report(struct run *r, struct dlb_report *report, struct dlb_error *err)
{
	const struct dlb_record *rec = &r->record;
	int n = r->job.plan.n_nodes, slot = 0, rc;
	struct node_summary mine = { .busy_s = 0 }, *all = dlb_xcalloc((size_t)n + 1, sizeof *all);
	struct dlb_report_op *ops = dlb_xcalloc((size_t)r->job.graph.n_ops + 1, sizeof *ops);
	struct dlb_span *spans = dlb_xcalloc((size_t)rec->n_computes + 1, sizeof *spans);

	dlb_job_report(&r->job, &r->program[0], report);
	report->first_step = r->first_step;
	report->steps = r->at.step - r->first_step;
	report->stopped = r->stopped;
	report->wall_s = r->wall_s;
	report->step_s = median_of(rec, offsetof(struct dlb_step_times, step_s), &report->step_se_s);
	slot = median_slot(r, report->step_s);
	rc = dlb_comm_bcast(r->comm, &slot, sizeof slot, 0, err);
	mine.busy_s = median_of(rec, offsetof(struct dlb_step_times, busy_s), &mine.busy_se_s);
	for (int k = 0; k < DLB_N_WAITS; k++)
		mine.waits_s[k] = median_of(rec, offsetof(struct dlb_step_times, waits_s) + (size_t)k * sizeof(double), NULL);
	mine.comm_s = median_of(rec, offsetof(struct dlb_step_times, comm_s), NULL);
	mine.comm_hidden_s = median_of(rec, offsetof(struct dlb_step_times, comm_hidden_s), NULL);
	mine.data_wait_s = median_of(rec, offsetof(struct dlb_step_times, data_wait_s), NULL);
	sums_here(r, &mine);
	mine.bytes_sent = dlb_engine_view(r->engine[0])->times.bytes_sent + mine.sum.bytes;
	for (int i = 0; i < r->n_engines; i++)
		mine.shrunk += (double)dlb_engine_view(r->engine[i])->shrunk;
	snprintf(mine.host, sizeof mine.host, "%s", dlb_comm_host(r->comm));
	mine.n_ops = rec->n_slots ? ops_here(r, ops) : 0;
	mine.n_spans = rec->n_slots ? rec->n_computes : 0;
	if (mine.n_spans)
		spans_here(r, slot, spans);
	all[0] = mine;
	rc = rc || dlb_comm_gather(r->comm, &mine, sizeof mine, all, 0, err) || collect(r, all, ops, spans, report, err) ? -1 : 0;
	if (!rc && r->rank == 0) {
		fill_nodes(all, report);
		count_violations(&r->job, all, report);
		fill_sums(r, all, report);
		if (report->n_ops)
			qsort(report->op, (size_t)report->n_ops, sizeof *report->op, by_op);
		report->loss = dlb_arena_array(&report->arena, (size_t)r->n_losses + 1, sizeof *report->loss);
		report->n_losses = (int)r->n_losses;
		if (r->n_losses)
			memcpy(report->loss, r->loss, (size_t)r->n_losses * sizeof *report->loss);
		rc = dlb_job_predict(&r->job, &r->program[0], report, err);
		dlb_report_conclude(report);
	}
	free(all);
	free(ops);
	free(spans);
	return dlb_comm_agree(r->comm, rc, err, NULL);
}

/* What is left to do when training has ended well. */
static int finish(struct run *r, struct dlb_report *report, int *who, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;

	if (dlb_average_all(r->average, r->comm, &r->job.plan, &r->apart, err))
		return -1;
	if (o->checkpoint && (r->at.step > r->first_step || !r->checkpoint_path) && save_checkpoint(r, err))
		return -1;
	if (make_report(r, report, err))
		return -1;
	if (r->eval && dlb_eval_run(r->eval, r->comm, (uint64_t)r->at.step + 1, &report->accuracy, &report->test_loss, who, err))
		return -1;
	if (o->save && dlb_weights_save(o->save, r->comm, &r->state, err))
		return -1;
	if (o->save)
		report->saved = dlb_arena_strdup(&report->arena, o->save);
	if (r->checkpoint_path)
		report->checkpoint = dlb_arena_strdup(&report->arena, r->checkpoint_path);
	return 0;
}

int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, int *who, struct dlb_error *err)
{
	struct run *r = dlb_xcalloc(1, sizeof *r);
	int rc;

	memset(report, 0, sizeof *report);
	*who = 0;			/* what all ranks find alike is rank 0's to say */
	r->o = o;
	r->comm = comm;
	r->rank = dlb_comm_rank(comm);
	r->checkpoint.lock = -1;
	rc = open_run(r, doc, who, err);
	if (!rc)
		rc = train(r, who, err);
	if (!rc)
		rc = finish(r, report, who, err);
	close_run(r);
	free(r);
	return rc;
}
