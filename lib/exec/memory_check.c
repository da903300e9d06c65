/* Compares the memory that processes will need with the memory of their hosts. See memory_check.h. */
#include "exec/memory_check.h"

#include <math.h>
#include <stdlib.h>

#include "exec/kernel_sizes.h"
#include "util/mem.h"
#include "util/memory.h"

/* Indices of the values that the rank of each node measures. HOST: the first rank of its host. NEED_BYTES,
 * OWN_BYTES: as in struct dlb_memory_need. */
enum { HOST, HOST_BYTES, PROCESS_BYTES, FREE_BYTES, NEED_BYTES, OWN_BYTES, N_MEASURED };

/* Fills measured, [node][N_MEASURED], equally on all ranks. is_compiled: this rank has compiled its program.
 * Collective. */
static int measure(struct run *r, bool is_compiled, double *measured, struct dlb_error *err)
{
	const struct dlb_memory_need need = is_compiled ? dlb_job_need(&r->job, &r->program[0], r->rank) :
							  (struct dlb_memory_need){ 0, 0 };
	double *own = &measured[N_MEASURED * r->rank];

	own[HOST] = dlb_comm_local(r->comm, 0);
	own[HOST_BYTES] = dlb_memory_host_bytes();
	own[PROCESS_BYTES] = dlb_memory_process_bytes();
	own[FREE_BYTES] = dlb_memory_free_bytes();
	own[NEED_BYTES] = need.process_bytes;
	own[OWN_BYTES] = need.own_bytes;
	return dlb_comm_allreduce_f64(r->comm, measured, N_MEASURED * r->job.plan.n_nodes, DLB_COMM_MAX, err);
}

/* Fills the memory that each node can use. which: the measured value that gives the bytes of its host,
 * HOST_BYTES (all) or FREE_BYTES (free now). */
static void rooms(const struct run *r, const double *measured, int which, struct dlb_memory_room *room)
{
	dlb_memory_room_of(&r->job.cluster, room);
	for (int i = 0; i < r->job.plan.n_nodes; i++) {
		const double *x = &measured[N_MEASURED * i];

		room[i].host = room[i].host < 0 ? -1 : (int)x[HOST];
		room[i].host_bytes = x[which];
		room[i].process_bytes = x[PROCESS_BYTES];
	}
}

static int refuse(const struct run *r, const struct dlb_memory_lack *lack, const struct dlb_memory_need *need,
		  const struct dlb_memory_room *room, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	const struct dlb_memory_case x = { need, room, lack, dlb_kernel_sizes };
	char text[DLB_MEMORY_TEXT];

	dlb_memory_lack_text(lack, room, text);
	dlb_fail(err, NULL, "%s", text);
	if (o->memory_cure)
		o->memory_cure(o->next_plan_ctx, &x, err);
	return -1;
}

static void warn_if_taken(const struct run *r, const double *measured, const struct dlb_memory_need *need,
			  struct dlb_memory_room *room)
{
	struct dlb_memory_lack lack;
	char text[DLB_MEMORY_TEXT + 100], what[DLB_MEMORY_TEXT];

	rooms(r, measured, FREE_BYTES, room);
	if (!r->o->warn || !dlb_memory_lacks(need, room, r->job.plan.n_nodes, &lack))
		return;
	dlb_memory_lack_text(&lack, room, what);
	snprintf(text, sizeof text, "%s free now; other programs use the rest", what);
	r->o->warn(r->o->warn_ctx, text);
}

struct memory_work {
	const struct run *r;
	const double *measured;
};

static int compare(void *ctx, struct dlb_error *err)
{
	const struct memory_work *w = ctx;
	const struct run *r = w->r;
	const int n = r->job.plan.n_nodes;
	const struct dlb_memory_need *need = r->job.need;
	struct dlb_memory_room *room = dlb_xcalloc((size_t)n, sizeof *room);
	struct dlb_memory_lack lack;
	int rc = 0;

	rooms(r, w->measured, HOST_BYTES, room);
	if (dlb_memory_lacks(need, room, n, &lack))
		rc = refuse(r, &lack, need, room, err);
	else
		warn_if_taken(r, w->measured, need, room);
	free(room);
	return rc;
}

int dlb_run_check_memory(struct run *r, struct dlb_error *err)
{
	double *measured = dlb_xcalloc(N_MEASURED * (size_t)r->job.plan.n_nodes, sizeof *measured);
	struct memory_work work = { r, measured };
	int rc = dlb_job_compile(&r->job, r->job.plan.batch, &r->program[0], err);

	rc = measure(r, !rc, measured, rc ? NULL : err) || rc ? -1 : 0;
	r->job.need = dlb_xcalloc((size_t)r->job.plan.n_nodes, sizeof *r->job.need);
	for (int i = 0; i < r->job.plan.n_nodes; i++)
		r->job.need[i] = (struct dlb_memory_need){ measured[N_MEASURED * i + NEED_BYTES],
							   measured[N_MEASURED * i + OWN_BYTES] };
	/* rank 0 compares; its search for a plan that fits takes an unknown time */
	rc = dlb_run_on_disk(r, rc, r->rank ? NULL : compare, &work, err);
	free(measured);
	return rc;
}
