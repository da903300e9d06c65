/* Opens and closes the parts of a run: device, weights, programs with their engines, data, evaluation, log,
 * checkpoints. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/data.h"
#include "exec/dispatch.h"
#include "exec/feed.h"
#include "exec/checkpoint_files.h"
#include "exec/kfac.h"
#include "exec/memories.h"
#include "exec/memory_check.h"
#include "exec/offload_store.h"
#include "exec/record.h"
#include "exec/run.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "model/weights.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "util/cores.h"
#include "util/hash.h"
#include "util/mapped.h"
#include "util/mem.h"

/* The device of this rank's node: the nodes of a host with one back end get its devices in turn. If there are
 * more nodes than devices, nodes share devices, with a warning. */
static int device_of(const struct run *r, const struct dlb_backend_ops *ops)
{
	const struct dlb_cluster *c = &r->job.cluster;
	const struct dlb_node *own = &c->node[r->rank];
	const int n = ops->n_devices(NULL);	/* 0: dlb_backend_open reports why */
	char text[120];
	int before = 0;

	for (int i = 0; i < r->rank; i++)
		before += !strcmp(c->node[i].host, own->host) &&
			  dlb_backend_find(c->kind[c->node[i].kind].backend) == ops;
	if (n > 0 && before >= n && !ops->is_host_memory && r->o->warn) {
		snprintf(text, sizeof text, "node %d shares device %s:%d with another node", r->rank, ops->name,
			 before % n);
		r->o->warn(r->o->warn_ctx, text);
	}
	return n > 0 ? before % n : 0;
}

/* Bytes that the plan needs on this rank's device for all nodes that share it. */
static double device_need(const struct run *r, int *nodes)
{
	const struct dlb_cluster *c = &r->job.cluster;
	const int n = r->be.ops->n_devices(NULL);
	double bytes = 0;
	int before = 0;

	*nodes = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		if (strcmp(c->node[i].host, c->node[r->rank].host) ||
		    dlb_backend_find(c->kind[c->node[i].kind].backend) != r->be.ops)
			continue;
		if (before++ % (n > 0 ? n : 1) != r->be.device)
			continue;
		bytes += r->job.plan.node[i].peak_bytes;
		++*nodes;
	}
	return bytes;
}

/* Refuses a plan for which the device has too little free memory now. No node has copied data to the device
 * yet, since all ranks wait for each other after this. The memory that the back end's libraries have taken is
 * not free. */
static int check_device_memory(struct run *r, struct dlb_error *err)
{
	char who[60];
	double wanted;
	int nodes;

	if (!r->be.ops->free_bytes)
		return 0;
	wanted = device_need(r, &nodes);
	r->device_free_bytes = r->be.ops->free_bytes(&r->be);
	if (r->be.ops->sync(&r->be, err))
		return -1;
	if (nodes > 1)
		snprintf(who, sizeof who, "its %d nodes need", nodes);
	else
		snprintf(who, sizeof who, "the plan of node %d needs", r->rank);
	return wanted <= r->device_free_bytes ?
		       0 :
		       dlb_refuse(err, NULL,
				  "end the other programs on it, or set the node's memory_bytes and plan again",
				  "device %s:%d: %s %.4g MB, %.4g MB are free", r->be.ops->name, r->be.device, who,
				  wanted / 1e6, r->device_free_bytes / 1e6);
}

static int open_device(struct run *r, struct dlb_error *err)
{
	const struct dlb_node *node = &r->job.cluster.node[r->rank];
	const struct dlb_device_kind *kind = &r->job.cluster.kind[node->kind];
	const struct dlb_backend_ops *ops;
	char where[100];

	/* memories are bound before any is touched */
	if (node->n_memories && dlb_binder_new(&r->binder, &r->job.cluster, r->rank, err))
		return -1;
	ops = dlb_backend_load(kind->backend, err);
	if (!ops) {
		snprintf(where, sizeof where, "node %d of kind '%s'", r->rank, kind->name);
		return dlb_error_at(err, where);
	}
	if (dlb_backend_open(kind->backend, device_of(r, ops), kind->threads, &r->be, err))
		return -1;
	return check_device_memory(r, err);
}

/* *path: a file of weights that replaces the model's own (.run.weights); NULL: none. */
static int weights_file(const struct dlb_doc *doc, const char **path, struct dlb_error *err)
{
	struct dlb_ref run = dlb_ref_root(doc, "run"), w = { .v = NULL };
	const char *sha = NULL;
	char found[65];

	*path = NULL;
	if (!run.v || !json_object_get(run.v, "weights"))
		return 0;
	if (dlb_get_object(&run, "weights", DLB_NEED, &w, err) ||
	    dlb_get_str(&w, "path", DLB_NEED, path, err) || dlb_get_str(&w, "sha256", DLB_OPT, &sha, err))
		return -1;
	if (!sha)
		return 0;
	if (dlb_weights_sha256(*path, found, err))
		return -1;
	if (strcmp(sha, found))
		return dlb_hint(
			(dlb_ref_fail(
				 &w, err,
				 "'%s' is not the file that the document was made for: its SHA-256 differs",
				 *path),
			 err),
			"run dlb-profile again with it");
	return 0;
}

/* The run whose files dlb_run_on_disk opens. */
struct run_files { struct run *r; const struct dlb_doc *doc; bool resumes; };

static int read_weights(void *ctx, struct dlb_error *err)
{
	const struct run_files *f = ctx;
	struct dlb_graph *g = &f->r->job.graph;
	const char *path;

	if (weights_file(f->doc, &path, err))
		return -1;
	/* Fresh weights still need the constants in the model's file (masks, tables). */
	return f->r->o->init && !path ? dlb_graph_load_constants(g, err) :
					dlb_graph_load_weights(g, path, err);
}

/* before: the state under the previous plan; NULL: none. */
static int open_state(struct run *r, struct dlb_state *before, struct dlb_error *err)
{
	struct dlb_job *j = &r->job;
	const bool async = dlb_plan_is_async(&j->plan);

	r->replica = dlb_plan_replica_of(&j->plan, r->rank);
	r->placement = j->plan.placement;
	if (r->replica) {
		r->placement = dlb_arena_array(&j->plan.arena, (size_t)j->graph.n_ops + 1,
					       sizeof *r->placement);
		dlb_plan_placement_of(&j->plan, r->replica, r->placement);
	}
	if (r->rank == j->plan.sharing.param_server && j->plan.n_replicas > 1 &&
	    dlb_plan_part_of(&j->plan, r->rank) < 0) {
		r->placement = dlb_arena_array(&j->plan.arena, (size_t)j->graph.n_ops + 1,
					       sizeof *r->placement);
		/* the server holds all weights and runs no op */
		for (int i = 0; i < j->graph.n_ops; i++)
			r->placement[i] = r->rank;
	}
	const bool divides = j->plan.n_replicas > 1 && dlb_sharing_divides(&j->plan.sharing);
	if (j->plan.offload.n && !r->store)
		r->store = dlb_offload_store_new(&r->job.cluster, r->rank, &r->be);
	const struct dlb_local_graph l = { .graph = &j->graph,
					   .be = &r->be,
					   .placement = r->placement,
					   .node = r->rank,
					   .before = before,
					   .n_shares = divides ? j->plan.n_replicas : 0,
					   .share = r->replica,
					   .plan = &j->plan,
					   .store = r->store };
	if (dlb_state_init(&r->state, &l, j->optimizer.rule,
			   j->plan.micro_batches > 1 || (async && (j->plan.clip || j->plan.n_replicas > 1)),
			   j->plan.n_replicas > 1 ? r->comm : NULL, err))
		return -1;
	r->state.first_placement = j->plan.placement;
	r->state.replica = j->plan.replica;
	if (j->optimizer.rule != DLB_RULE_KFAC)
		return 0;
	return dlb_kfac_new(&r->kfac, &l, &j->optimizer, j->plan.n_replicas, err);
}

int64_t dlb_run_left_of_epoch(const struct run *r, const struct dlb_progress_state *at)
{
	return r->count - at->position;
}

/* The batch sizes of this run: full ones, the epoch's last one, and the last one of an epoch that was entered
 * at another batch size. */
static void find_sizes(struct run *r)
{
	int64_t batch = r->job.plan.batch < r->count ? r->job.plan.batch : r->count;
	int64_t size[MAX_BATCHES] = { batch, r->count % batch, dlb_run_left_of_epoch(r, &r->at) % batch };

	r->n_engines = 0;
	for (int i = 0; i < MAX_BATCHES; i++) {
		bool known = size[i] == 0 || (i && r->count == DLB_DATA_ENDLESS);

		for (int k = 0; k < r->n_engines; k++)
			known = known || r->size[k] == size[i];
		if (!known)
			r->size[r->n_engines++] = size[i];
	}
}

/* Binds buffers to memories in the shares that the program of full batches plans. */
static int put_buffers(struct run *r, struct dlb_error *err)
{
	const struct dlb_node_program *np = &dlb_program_of(&r->program[0], r->rank)->node[r->rank];

	dlb_memories_new(&r->memories, r->binder, r->job.cluster.node[r->rank].n_memories, np->use);
	r->runtime.memories = r->memories;
	return dlb_memories_put(r->memories, DLB_BUF_ACTIVATIONS, r->runtime.arena, r->runtime.arena_bytes,
				err) ||
			       dlb_memories_put_state(r->memories, &r->state, err) ||
			       dlb_kfac_put(r->kfac, r->memories, err) ?
		       -1 :
		       0;
}

/* Whether program[0] is already the program of full batches, made by dlb_run_check_memory; else releases
 * it. */
static bool has_program(struct run *r)
{
	if (r->program[0].n_nodes && r->program[0].step_batch == r->size[0])
		return true;
	dlb_program_release(&r->program[0]);
	return false;
}

/* Opens the averages of weights, which serve all engines. */
static int open_averages(struct run *r, struct dlb_error *err)
{
	if (dlb_runtime_mirror_weights(&r->runtime, &r->job.graph, err) ||
	    dlb_sync_new(&r->averages,
			 &(struct dlb_sync_desc){ .comm = r->comm,
						  .program = dlb_program_of(&r->program[0], r->rank),
						  .node = r->rank,
						  .cluster = &r->job.cluster,
						  .weight = r->runtime.averaged,
						  .state = &r->state,
						  .seed = r->o->seed },
			 err))
		return -1;
	r->runtime.averages = r->averages;
	return 0;
}

static int open_engines(struct run *r, struct dlb_error *err)
{
	size_t arena = 64;

	find_sizes(r);
	for (int i = 0; i < r->n_engines; i++) {
		enum dlb_staleness rule = r->job.plan.staleness;
		int rc = 0;

		if (i)	/* steps of other sizes are alone in the pipeline, so nothing is stale */
			r->job.plan.staleness = DLB_STALE_NONE;
		if (i || !has_program(r))
			rc = dlb_job_compile(&r->job, r->size[i], &r->program[i], err);
		r->job.plan.staleness = rule;
		if (rc)
			return -1;
		const struct dlb_node_program *np = &dlb_program_of(&r->program[i], r->rank)->node[r->rank];

		if (np->arena_bytes > arena)
			arena = np->arena_bytes;
	}
	if (r->eval && dlb_eval_arena_bytes(r->eval) > arena)
		arena = dlb_eval_arena_bytes(r->eval);
	r->runtime = (struct dlb_runtime){ .be = &r->be,
					   .cost = &r->job.cost,
					   .comm = r->comm,
					   .state = &r->state,
					   .slow.factor = 1.0,
					   .cluster = &r->job.cluster,
					   .compress = r->compress,
					   .kfac = r->kfac,
					   .last_step = r->end_step };
	if (r->o->slow && r->rank < r->o->n_slow)
		r->runtime.slow.factor = r->o->slow[r->rank];
	r->runtime.slow.sleeps = dlb_comm_crowded(r->comm);
	if (dlb_runtime_ready(&r->runtime, arena, r->program, r->n_engines, r->rank, err))
		return -1;
	if (dlb_sharing_averages(&r->job.plan.sharing) && open_averages(r, err))
		return -1;
	if (dlb_state_add_copies(&r->state, r->program, r->n_engines, err) || put_buffers(r, err))
		return -1;
	for (int i = 0; i < r->n_engines; i++)
		if (dlb_engine_new(&r->engine[i], &r->runtime, dlb_program_of(&r->program[i], r->rank),
				   r->rank, &r->job.optimizer, NULL, err) ||
		    dlb_sync_put(dlb_engine_sync(r->engine[i]), r->memories, err))
			return -1;
	if (r->eval && dlb_eval_ready(r->eval, &r->runtime, err))
		return -1;
	dlb_run_record_init(r);
	return 0;
}

/* Threads that decode images on this rank: as many as --readers says, or its share of the cores on which no
 * node computes. */
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

/* Gives each replica its own samples, if the plan says so. */
static int open_shards(struct run *r, struct dlb_error *err)
{
	const struct dlb_plan *plan = &r->job.plan;
	int64_t *share, *last;
	struct dlb_shards_choice c = { .n = plan->n_replicas,
				       .batch = plan->batch < r->count ? plan->batch : r->count,
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

/* Whether this rank opens no data: rank 0 feeds it with training data, and there are no test data, which
 * every node reads itself. */
static bool is_fed(const struct run *r)
{
	return r->job.plan.n_replicas > 1 && r->job.plan.sharing.feed_host && r->rank && !r->o->test_data;
}

/* Called on all ranks, after their engines were made. */
static int open_feed(struct run *r, struct dlb_error *err)
{
	const bool host = r->job.plan.n_replicas > 1 && r->job.plan.sharing.feed_host;
	int slots = 2;

	for (int i = 0; i < r->n_engines; i++)
		slots = r->program[i].depth + 2 > slots ? r->program[i].depth + 2 : slots;
	if (host)
		slots += dlb_dispatch_levels_of(&r->job.cluster, dlb_comm_size(r->comm));
	const struct dlb_fed_engines fed = { r->engine, r->program, r->n_engines, slots, &r->be };

	if (host && dlb_dispatch_new(&r->dispatch, r->comm, &r->job.cluster, &fed, err))
		return -1;
	return dlb_feed_new(&r->feed, host && r->rank ? NULL : r->data, &fed, r->dispatch, err);
}

static int open_eval(struct run *r, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	const struct dlb_data_choice choice = { .spec = o->test_data,
						.transform = o->transform,
						.seed = o->seed,
						.readers = readers(r),
						.like = r->data };

	return o->test_data ? dlb_eval_new(&r->eval, &r->job, r->rank, &choice, err) : 0;
}

static int open_data(struct run *r, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	struct dlb_data_choice choice = { .spec = o->data,
					  .transform = o->transform,
					  .shuffled = o->shuffled,
					  .seed = o->seed,
					  .readers = readers(r) };

	if (!o->data)
		return dlb_hint((dlb_fail(err, NULL, "no data to train on"), err),
				"give --data; --data random feeds any model");
	if (is_fed(r))
		return 0;
	if (dlb_data_open(&r->data, &choice, &r->job.graph, err))
		return -1;
	r->count = dlb_data_count(r->data);
	if (r->count == DLB_DATA_ENDLESS && o->epochs >= 0)
		return dlb_fail(err, NULL, "--epochs: data '%s' have no end; say --steps", o->data);
	if (open_shards(r, err))
		return -1;
	return open_eval(r, err);
}

/* Copies the weights into the state, which is when a mapped file of weights is read. Then drops the graph's
 * values, so that the process keeps no second copy; malloc_trim returns the small blocks. */
static int fill_state(void *ctx, struct dlb_error *err)
{
	const struct run_files *f = ctx;
	const char *init = f->r->o->init;

	if (dlb_state_load_graph(&f->r->state, init != NULL, init ? strtoull(init, NULL, 10) : 0,
				 f->r->o->seed, err) ||
	    dlb_mapped_check(err))
		return -1;
	dlb_graph_drop_values(&f->r->job.graph);
	malloc_trim(0);
	return 0;
}

/* Opens the data. Called before memory is compared, since samples in memory count. */
static int open_samples(void *ctx, struct dlb_error *err)
{
	struct run *r = ctx;

	if (open_data(r, err))
		return -1;
	r->job.data_bytes = (r->data ? dlb_data_bytes(r->data) : 0) +
			    (r->eval ? dlb_eval_data_bytes(r->eval) : 0);
	return 0;
}

static void find_limits(struct run *r)
{
	const struct dlb_exec_options *o = r->o;
	const struct dlb_begin *b = &r->begin;

	r->first_step = r->at.step;
	r->begin = o->begin.known ? o->begin :
				    (struct dlb_begin){ true, r->at.step, r->at.epoch, r->at.position, 0 };
	r->end_step = r->end_epoch = INT64_MAX;
	if (o->steps >= 0)
		r->end_step = b->step + o->steps;
	if (o->until_step >= 0 && o->until_step < r->end_step)
		r->end_step = o->until_step;
	if (o->epochs >= 0) {
		r->end_epoch = b->epoch + o->epochs;
		r->end_position = b->position;
	} else if (r->end_step == INT64_MAX && isnan(o->until_loss) && !o->patience) {
		if (r->count == DLB_DATA_ENDLESS)
			r->end_step = b->step + 100;
		else
			r->end_epoch = b->epoch + 1;
	}
}

static int64_t count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	int64_t n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* Opens the log of losses, one a line, at the step where training continues. Line i is of step i - 1, unless
 * the log began later. */
static int open_log(struct run *r, struct dlb_error *err)
{
	int64_t lines = r->at.step;

	if (!r->o->loss_log || r->rank)
		return 0;
	if (dlb_output_open(&r->log, r->o->loss_log, err))
		return -1;
	if (r->o->begin.known) {
		lines = r->begin.log_lines + r->at.step - r->begin.step;
	} else if (r->log.aside) {	/* else the log is a device */
		r->begin.log_lines = count_lines(r->o->loss_log);
		if (r->begin.log_lines > lines)
			r->begin.log_lines = lines;
	}
	return dlb_output_keep_lines(&r->log, lines, err);
}

/* Puts the log in place. Called once all ranks have opened the rest of the run, so that a refused run leaves
 * an older log unchanged. */
static int place_log(struct run *r, struct dlb_error *err)
{
	if (r->log.f && dlb_output_place(&r->log, err))
		return -1;
	r->lines = r->log.f ? dlb_lines_new(fileno(r->log.f), r->log.path) : NULL;
	return 0;
}

static int check_save(const struct run *r, struct dlb_error *err)
{
	const char *const path[] = { r->o->save, r->o->save_best };
	int rc = 0;

	for (int i = 0; i < DLB_LEN(path) && !rc && !r->rank; i++)
		rc = path[i] ? dlb_weights_check_path(path[i], r->o->merge, &r->job.graph, err) : 0;
	return rc;
}

struct dlb_local_state dlb_run_local_state(const struct run *r)
{
	return (struct dlb_local_state){ r->compress, r->kfac, r->replica, r->job.plan.n_replicas };
}

static int load_local(struct run *r, struct dlb_error *err)
{
	const struct dlb_local_state local = dlb_run_local_state(r);
	const char *dir = r->found ? dlb_buddy_found_dir(r->found) : r->checkpoint.dir;

	return dlb_checkpoint_load_local(dir, r->at.step, &local, err);
}

/* Reads the local state that the engines continue from, and opens or checks the files that are written
 * later. */
static int open_files(void *ctx, struct dlb_error *err)
{
	const struct run_files *f = ctx;

	return (f->resumes && load_local(f->r, err)) || open_log(f->r, err) || check_save(f->r, err) ? -1 : 0;
}

static int place_logs(void *ctx, struct dlb_error *err)
{
	struct run *r = ((const struct run_files *)ctx)->r;

	return place_log(r, err) || dlb_watch_new(&r->watch, r, err) ? -1 : 0;
}

/* Finds copies of the state that are newer than the newest checkpoint. Collective. */
static int find_copies(struct run *r, struct dlb_error *err)
{
	int64_t newest = -1;

	if (!r->o->copies)
		return 0;
	if (dlb_buddy_find(&r->found, r->o->copies, r->comm, err) ||
	    dlb_checkpoint_newest_step(&r->checkpoint, r->comm, &newest, err))
		return -1;
	if (dlb_buddy_found_step(r->found) > newest)
		return 0;
	dlb_buddy_found_free(r->found);
	r->found = NULL;
	return 0;
}

static int load_copies(struct run *r, struct dlb_error *err)
{
	char line[100];

	if (!r->found)
		return 0;
	if (dlb_buddy_load(r->found, &r->state, &r->at, err))
		return -1;
	r->from_copies = true;
	snprintf(line, sizeof line, "going on from step %lld, of which there are copies",
		 (long long)r->at.step);
	if (!r->rank && r->o->warn)
		r->o->warn(r->o->warn_ctx, line);
	return 0;
}

/* Whether the model has weights that are not trained, which copies of the state do not contain. */
static bool has_constants(const struct dlb_graph *g)
{
	for (int t = 0; t < g->n_tensors; t++)
		if (dlb_checkpoint_is_constant(g, t))
			return true;
	return false;
}

/* Warns if the checkpoint's run kept optimizer states in another type. The run can continue: a checkpoint has
 * states as f32. */
static void say_kept(const struct run *r)
{
	char text[200];

	if (r->at.state_dtype == r->state.dtype || r->rank || !r->o->warn)
		return;
	snprintf(text, sizeof text,
		 "the checkpoint's run kept optimizer states as %s; this one keeps them as %s",
		 dlb_state_dtypes[r->at.state_dtype], dlb_state_dtypes[r->state.dtype]);
	r->o->warn(r->o->warn_ctx, text);
}

static int open_checkpoint(struct run *r, bool *found, struct dlb_error *err)
{
	char *warning = NULL;
	int rc = dlb_checkpoint_open(&r->checkpoint, r->o->checkpoint, r->comm, err);

	if (!rc)
		rc = find_copies(r, err);
	if (!rc && (!r->found || has_constants(&r->job.graph)))
		rc = dlb_checkpoint_load(&r->checkpoint, r->comm, &r->state, &r->at, found, &warning, err);
	if (warning && !r->rank && r->o->warn)
		r->o->warn(r->o->warn_ctx, warning);
	free(warning);
	if (!rc && *found)
		say_kept(r);
	if (!rc)
		rc = load_copies(r, err);
	*found |= r->from_copies;
	return rc;
}

/* Opens the copies of the state, in a run that a parent has started. Collective. */
static int open_buddy(struct run *r, struct dlb_error *err)
{
	const struct dlb_buddy_desc d = { r->o->copies, r->comm, &r->state, r->o->buddy_every };

	if (!r->o->copies || !r->o->buddy_every)
		return 0;
	if (dlb_buddy_new(&r->buddy, &d, err))
		return -1;
	if (dlb_buddy_alone(r->buddy) && !r->rank && r->o->warn && !r->o->begin.known)
		r->o->warn(r->o->warn_ctx, "--buddy-every: all nodes are on one host; copies in its memory "
					   "outlive nodes, not the host");
	return 0;
}

/* Sets which blocks malloc maps by themselves. While a run opens, it maps each large block, so that a
 * temporary block leaves no hole in the heap; by default, malloc would raise the limit with every block
 * freed. Later, blocks come from the heap, since libraries use temporary blocks in each step and mapping them
 * takes time. */
static void let_malloc_map(bool opening)
{
	enum { FEW = 128 * 1024, MOST = 32 * 1024 * 1024 };

	mallopt(M_MMAP_THRESHOLD, opening ? FEW : MOST);
	mallopt(M_TRIM_THRESHOLD, opening ? FEW : 2 * MOST);
}

static int open_all(struct run *r, const struct dlb_doc *doc, int *who, struct dlb_error *err)
{
	struct run_files files = { .r = r, .doc = doc };
	int rc = dlb_job_read(&r->job, doc, r->o, err);

	if (!rc && r->job.plan.n_nodes != dlb_comm_size(r->comm)) {
		rc = dlb_fail(err, NULL, "the plan is for %d nodes, there are %d ranks", r->job.plan.n_nodes,
			      dlb_comm_size(r->comm));
		dlb_hint(err, "start it with mpirun -n %d, or plainly", r->job.plan.n_nodes);
	}
	if (dlb_comm_agree(r->comm, rc, err, who) ||
	    dlb_comm_agree(r->comm, dlb_run_on_disk(r, 0, open_samples, r, err), err, who) ||
	    dlb_comm_agree(r->comm, dlb_run_check_memory(r, err), err, who))
		return -1;
	rc = dlb_run_on_disk(r, open_device(r, err), read_weights, &files, err);
	rc = dlb_run_on_disk(r, rc || open_state(r, NULL, err) ? -1 : 0, fill_state, &files, err);
	if (dlb_comm_agree(r->comm, rc, err, who) ||
	    dlb_comm_bcast(r->comm, &r->count, sizeof r->count, 0, err))
		return -1;
	r->at = (struct dlb_progress_state){ .seed = r->o->seed,
					     .best_loss = HUGE_VAL,
					     .best_test_loss = HUGE_VAL };
	r->n_frozen = r->o->n_frozen;
	r->compress = dlb_compress_state_new();
	if (r->o->checkpoint && open_checkpoint(r, &files.resumes, err))
		return -1;
	if (files.resumes && r->at.position >= r->count) {
		rc = dlb_fail(err, r->checkpoint.dir,
			      "the checkpoint stands at sample %lld of an epoch of %lld",
			      (long long)r->at.position, (long long)r->count);
	} else {
		find_limits(r);
		rc = open_engines(r, err) || dlb_evaluate_fits(r->o, &r->program[0], err) ||
				     dlb_run_check_freeze(r, err) ?
			     -1 :
			     0;
	}
	if (dlb_comm_agree(r->comm, dlb_run_on_disk(r, rc, open_files, &files, err), err, who) ||
	    dlb_evaluate_resume(r, err) ||
	    dlb_comm_agree(r->comm, dlb_run_on_disk(r, open_feed(r, err), place_logs, &files, err), err, who))
		return -1;
	dlb_buddy_found_free(r->found);
	r->found = NULL;
	if (open_buddy(r, err))
		return -1;
	if (r->program[0].async && r->job.plan.clip && dlb_comm_size(r->comm) > 1 &&
	    dlb_subset_new(&r->runtime.norms, r->comm, NULL, dlb_comm_size(r->comm), DLB_TAG_NORMS, err))
		return -1;
	if (r->program[0].depth && dlb_comm_size(r->comm) > 1)
		return dlb_subset_new(&r->all, r->comm, NULL, dlb_comm_size(r->comm), DLB_TAG_ALL_RANKS, err);
	return 0;
}

int dlb_run_open(struct run *r, const struct dlb_doc *doc, int *who, struct dlb_error *err)
{
	int rc;

	let_malloc_map(true);
	rc = open_all(r, doc, who, err);
	let_malloc_map(false);
	return rc;
}

/* Closes all that was made from the plan except the state. */
static void close_engines(struct run *r)
{
	dlb_feed_free(r->feed);
	dlb_dispatch_free(r->dispatch);
	dlb_eval_free(r->eval);
	dlb_record_release(&r->record);
	for (int i = 0; i < MAX_BATCHES; i++) {
		dlb_engine_free(r->engine[i]);
		dlb_program_release(&r->program[i]);
		r->engine[i] = NULL;
	}
	dlb_sync_free(r->averages);
	dlb_runtime_free_averaged(&r->runtime);
	r->feed = NULL;
	r->dispatch = NULL;
	r->eval = NULL;
	r->averages = NULL;
}

/* Collective. Adds the counts of this node's K-FAC layers so far, before the layers move. */
static int keep_counts(struct run *r, struct dlb_error *err)
{
	const struct dlb_kfac_counts c = dlb_kfac_counted(r->kfac);
	struct dlb_kfac_counts *to = &r->kfac_counts;
	double held_back = (double)c.held_back;

	to->inverses += c.inverses;
	to->shifted += c.shifted;
	to->kept += c.kept;
	to->not_finite += c.not_finite;
	/* equal on all nodes that have layers */
	if (dlb_comm_allreduce_f64(r->comm, &held_back, 1, DLB_COMM_MAX, err))
		return -1;
	to->held_back += (int64_t)held_back;
	return 0;
}

/* Reads the frozen graph with its costs, plan and constants; *before: the previous job. Renumbers `state` for
 * the frozen graph. */
static int read_frozen(struct run *r, struct dlb_job *before, struct dlb_state *state, struct dlb_error *err)
{
	struct run_files files = { .r = r, .doc = r->doc };
	const int rc = dlb_job_refreeze(&r->job, r->doc, r->o, before, err);

	state->graph = &before->graph; /* the graph has moved from r->job to *before */
	if (!rc)
		dlb_state_follow(state, &r->job.graph);
	return dlb_run_on_disk(r, rc, read_weights, &files, err);
}

/* The placements between which the state `before` of the previous plan, `plan`, moves. With several replicas
 * they lie in the new plan's arena, else they are borrowed. frozen: only the graph has changed. */
static struct dlb_placements placements_of(struct run *r, const struct dlb_plan *plan,
					   const struct dlb_state *before, bool frozen)
{
	const size_t n = (size_t)r->job.graph.n_ops + 1;
	int *was, *is, *held;

	if (frozen || r->job.plan.n_replicas < 2)
		return (struct dlb_placements){ before->placement, r->placement, before->placement,
						r->placement,      NULL,         NULL };
	was = dlb_arena_array(&r->job.plan.arena, n, sizeof *was);
	is = dlb_arena_array(&r->job.plan.arena, n, sizeof *is);
	held = dlb_arena_array(&r->job.plan.arena, n, sizeof *held);
	dlb_plan_placement_of(plan, r->replica, was);
	dlb_plan_placement_of(&r->job.plan, before->share, is);
	dlb_plan_placement_of(plan, before->share, held);
	return (struct dlb_placements){ was, is, held, r->placement, plan, &r->job.plan };
}

int dlb_run_reopen(struct run *r, bool frozen, int *who, struct dlb_error *err)
{
	struct dlb_job job = { .kappa = NULL }; /* the previous job; only its replaced parts are set */
	struct dlb_state before;
	struct dlb_kfac *kfac = r->kfac;
	struct dlb_placements placements;
	int rc;

	*who = 0;
	/* no other rank may still read or write this rank's memory */
	if (dlb_run_settle_copy(r, true, err) || dlb_feed_settle(r->feed, err) || keep_counts(r, err) ||
	    dlb_comm_barrier(r->comm, err))
		return -1;
	dlb_buddy_free(r->buddy, false);
	r->buddy = NULL;
	for (int i = 0; i < r->n_engines; i++)
		r->shrunk += (double)dlb_engine_view(r->engine[i])->shrunk;
	close_engines(r);
	dlb_runtime_release(&r->runtime);
	dlb_memories_free(r->memories);
	r->memories = NULL;
	r->kfac = NULL;
	before = r->state;
	memset(&r->state, 0, sizeof r->state);
	rc = frozen ? read_frozen(r, &job, &before, err) : dlb_job_replan(&r->job, r->doc, &job.plan, err);
	rc = rc || open_state(r, &before, err) ? -1 : 0;
	rc = dlb_comm_agree(r->comm, rc, err, who);
	if (!rc) {
		placements = placements_of(r, &job.plan, &before, frozen);
		rc = dlb_state_move(&r->state, &before, &placements, r->comm, err) ||
				     dlb_kfac_move(r->kfac, kfac, &placements, r->comm, err) ?
			     -1 :
			     0;
	}
	if (!dlb_comm_broken(r->comm)) {		/* else messages may still use these arrays */
		dlb_state_release(&before);
		dlb_kfac_free(kfac);
	}
	dlb_job_release(&job);
	if (rc)
		return -1;
	/* waits for uploads of the moved arrays */
	if (dlb_comm_agree(r->comm, r->be.ops->sync(&r->be, err), err, who) ||
	    dlb_comm_agree(r->comm, open_eval(r, err), err, who) ||
	    dlb_comm_agree(r->comm, open_engines(r, err), err, who) ||
	    (!frozen && r->job.plan.n_replicas > 1 &&
	     dlb_compress_move(r->compress, &r->job.graph, r->state.node, &placements, r->comm, err)) ||
	    dlb_comm_agree(r->comm, open_feed(r, err), err, who) || open_buddy(r, err))
		return -1;
	return dlb_watch_replanned(r->watch, err);
}

void dlb_run_close(struct run *r)
{
	/* seconds for writing the logs of a failed run */
	const double wait_s = r->o->timeout_s > 0 ? r->o->timeout_s / 2 : 30;
	struct dlb_error ignored;

	dlb_lines_free(r->lines, wait_s);
	dlb_output_abort(&r->log);
	if (!dlb_comm_broken(r->comm))
		dlb_feed_settle(r->feed, &ignored);
	dlb_watch_free(r->watch, wait_s);
	dlb_buddy_found_free(r->found);
	dlb_buddy_free(r->buddy, r->ends);
	close_engines(r);
	dlb_compress_state_free(r->compress);
	dlb_kfac_free(r->kfac);
	dlb_subset_free(r->all, r->comm);
	dlb_subset_free(r->runtime.norms, r->comm);
	dlb_data_close(r->data);
	dlb_runtime_release(&r->runtime);
	dlb_state_release(&r->state);
	dlb_offload_store_free(r->store);
	dlb_memories_free(r->memories);
	dlb_binder_free(r->binder);
	if (r->be.ops)
		r->be.ops->close(&r->be);
	dlb_checkpoint_close(&r->checkpoint);
	dlb_job_release(&r->job);
	free(r->checkpoint_path);
	free(r->loss);
	free(r->evals);
}
