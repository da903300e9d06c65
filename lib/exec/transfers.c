/* Messages and sums of a node that computes on a device: they go through host memory, beside its kernels. See
 * step_ops.h. */
#include <string.h>
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "exec/slow.h"
#include "util/mem.h"

void *dlb_transfers_alloc(struct dlb_engine *e, size_t bytes, struct dlb_error *err)
{
	struct dlb_backend *be = e->runtime->be;
	void *p = be->ops->host_alloc(be, bytes);

	if (!p) {
		dlb_fail(err, NULL, "device %s:%d: no host memory for %zu bytes of messages", be->ops->name, be->device,
			 bytes);
		return NULL;
	}
	DLB_GROW(e->host, e->n_host, e->cap_host);
	return e->host[e->n_host++] = p;
}

void dlb_transfers_free(struct dlb_engine *e)
{
	struct dlb_backend *be = e->runtime->be;

	for (int i = 0; i < e->n_host; i++)
		be->ops->host_free(be, e->host[i]);
	free(e->host);
	free(e->outgoing);
}

char *dlb_transfers_mirror(const struct op_pass *t, const struct step_op *a)
{
	return a->mirror ? a->mirror + (size_t)(t->step % t->e->ring) * a->bytes : NULL;
}

static int number_of(const struct dlb_engine *e, const struct step_op *a)
{
	return (int)(a - e->step_op);
}

void dlb_transfers_in(const struct op_pass *t, const struct step_op *a, const void *from, size_t bytes, int after)
{
	struct dlb_backend *be = t->e->runtime->be;
	const int i = number_of(t->e, a);

	be->ops->transfer(be, i, &(struct dlb_transfer){ a->p, from, bytes, false, after });
	be->ops->join(be, i);
}

void dlb_transfers_offloaded(const struct op_pass *t, const struct step_op *a, bool out)
{
	struct dlb_backend *be = t->e->runtime->be;
	struct offloaded *x = a->offloaded;

	x->copy = number_of(t->e, a);
	for (int k = 0; k < x->n; k++)
		be->ops->transfer(be, (int)x->copy,
				  &(struct dlb_transfer){ out ? x->far[k] : x->near[k],
							  out ? x->near[k] : x->far[k], x->bytes, out,
							  DLB_AFTER_ALL });
}

/* ---- outgoing messages and sums, which start when their bytes are in host memory ---- */
static void put(struct op_pass *t, const struct step_op *a)
{
	struct dlb_engine *e = t->e;

	if (!e->outgoing)
		e->outgoing = dlb_xcalloc((size_t)e->n_step_ops, sizeof *e->outgoing);
	e->outgoing[e->n_outgoing++] = (struct outgoing){ a, t->request, t->step, dlb_transfers_mirror(t, a) };
}

void dlb_transfers_send(struct op_pass *t, const struct step_op *a)
{
	struct dlb_backend *be = t->e->runtime->be;

	be->ops->transfer(be, number_of(t->e, a), &(struct dlb_transfer){ dlb_transfers_mirror(t, a), a->p, a->bytes,
									  true, DLB_AFTER_ALL });
	put(t, a);
}

/* The mirror's arrays of this step: of a gradient whose sum has several places in turn, the place of its turn. */
static struct mirror of_step(const struct op_pass *t, const struct mirror *m)
{
	const size_t offset = m->places > 1 ? (size_t)(t->step % m->places) * m->stride : 0;
	struct mirror x = *m;

	x.device = (char *)x.device + offset;
	x.host = (char *)x.host + offset;
	return x;
}

void dlb_transfers_reduce(struct op_pass *t, const struct step_op *a)
{
	struct dlb_backend *be = t->e->runtime->be;
	const struct mirrored *k = &t->e->mirrored[a->tag];

	if (!dlb_sync_is_due(t->e->sync, a->tag))
		return;
	for (int i = 0; i < k->n; i++) {
		const struct mirror m = of_step(t, &k->out[i]);

		be->ops->transfer(be, number_of(t->e, a),
				  &(struct dlb_transfer){ m.host, m.device, m.bytes, true, DLB_AFTER_ALL });
	}
	put(t, a);
}

/* Copies the mirrors to the device. Kernels that are queued later wait for the copies. */
static void to_device(const struct op_pass *t, const struct step_op *a, const struct mirror *list, int n)
{
	struct dlb_backend *be = t->e->runtime->be;

	for (int i = 0; i < n; i++) {
		const struct mirror m = of_step(t, &list[i]);

		if (m.bytes)
			be->ops->transfer(be, number_of(t->e, a),
					  &(struct dlb_transfer){ m.device, m.host, m.bytes, false,
								  m.after });
	}
	be->ops->join(be, number_of(t->e, a));		/* waits for the last copy, which ends last */
}

void dlb_transfers_reduced(struct op_pass *t, const struct step_op *a)
{
	struct dlb_engine *e = t->e;
	const struct mirrored *k = &e->mirrored[a->tag];

	if (!dlb_sync_is_due(e->sync, a->tag))
		return;
	for (int i = 0; i < k->n; i++)
		if (k->share[i])
			memcpy(k->in[i].host, k->share[i], k->in[i].bytes);
	to_device(t, a, k->in, k->n);
	if (!k->kept)
		return;
	for (int i = 0; i < k->n; i++)
		if (k->kept[i].bytes)
			dlb_clip_early(&e->clip, e->np->bucket[a->tag].op[i], t->step);
	to_device(t, a, k->kept, k->n);
}

static void start(struct dlb_engine *e, const struct outgoing *o)
{
	dlb_slow_settle(&e->runtime->slow);
	if (o->a->kind == STEP_SEND)
		dlb_comm_isend(e->runtime->comm, o->mirror, o->a->bytes, o->a->peer, o->a->tag, o->request);
	else
		dlb_sync_start(e->sync, o->a->tag, o->step);
}

int dlb_transfers_start(struct dlb_engine *e, struct dlb_error *err)
{
	struct dlb_backend *be = e->runtime->be;
	int rc = 1;

	while (e->first_outgoing < e->n_outgoing) {
		const struct outgoing *o = &e->outgoing[e->first_outgoing];

		rc = be->ops->transferred(be, number_of(e, o->a), err);
		if (rc < 1)
			break;
		start(e, o);
		e->first_outgoing++;
	}
	if (e->first_outgoing == e->n_outgoing)
		e->first_outgoing = e->n_outgoing = 0;
	return rc < 0 ? -1 : 0;
}

int dlb_transfers_finish(struct dlb_engine *e, struct dlb_error *err)
{
	while (e->n_outgoing) {
		if (dlb_transfers_start(e, err))
			return -1;
		dlb_comm_progress(e->runtime->comm);
	}
	return 0;
}
