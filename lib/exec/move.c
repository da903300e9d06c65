/* Moves the state of a run between its nodes when the plan changes. See state.h. */
#include <stdlib.h>
#include <string.h>
#include "exec/kfac.h"
#include "exec/runtime.h"
#include "plan/bucket_tensors.h"
#include "plan/shares.h"
#include "util/mem.h"

/* One array that this rank sends or receives. Back ends with memory of their own need a copy in host
 * memory. */
struct moved {
	void *p, *host;
	size_t bytes;
	bool receives;
	int peer;
	struct dlb_request q;
};
struct moves {
	struct moved *item;
	int n, cap;
};

static void add(struct moves *m, void *p, size_t bytes, bool receives, int peer)
{
	DLB_GROW(m->item, m->n, m->cap);
	m->item[m->n++] = (struct moved){ .p = p, .bytes = bytes, .receives = receives, .peer = peer };
}

/* The optimizer's states of tensor t in s and, with `value`, its values. */
static void add_tensor(struct moves *m, const struct dlb_state *s, int t, bool value, bool receives, int peer)
{
	if (value)
		add(m, s->value[t], dlb_state_value_bytes(s, t), receives, peer);
	for (int k = 0; k < s->n_slots; k++)
		if (s->slot[k][t])
			add(m, s->slot[k][t], dlb_state_slot_bytes(s, t), receives, peer);
}

/* Starts the transfer of x. be: the back end whose memory x->p is; NULL: host memory. */
static void start(struct moved *x, struct dlb_backend *be, struct dlb_comm *comm)
{
	const bool direct = !be || dlb_is_host_memory(be);
	void *p = direct ? x->p : (x->host = dlb_xmalloc(x->bytes + 1));

	if (x->receives) {
		dlb_comm_irecv(comm, p, x->bytes, x->peer, DLB_TAG_MOVE, &x->q);
		return;
	}
	if (!direct)
		be->ops->download(be, p, x->p, x->bytes);
	dlb_comm_isend(comm, p, x->bytes, x->peer, DLB_TAG_MOVE, &x->q);
}

/* Sends and receives all arrays of m; frees m. */
static int exchange(struct moves *m, struct dlb_backend *be, struct dlb_comm *comm, struct dlb_error *err)
{
	int rc = 0;

	for (int i = 0; i < m->n; i++)
		start(&m->item[i], be, comm);
	for (int i = 0; i < m->n && !rc; i++) {
		struct moved *x = &m->item[i];

		rc = dlb_comm_wait(comm, &x->q, err);
		if (!rc && x->receives && x->host)
			be->ops->upload(be, x->p, x->host, x->bytes);
	}
	for (int i = 0; i < m->n && !rc; i++) /* else a message may still be under way */
		free(m->item[i].host);
	if (!rc)
		free(m->item);
	return rc;
}

/* Whether replicas divide weight t under one of the plans only. */
static bool changes_shape(const struct dlb_placements *p, const struct dlb_graph *g, int t)
{
	return p->after && dlb_plan_divides(p->before, g, t) != dlb_plan_divides(p->after, g, t);
}

static int holder(const struct dlb_plan *p, const struct dlb_graph *g, int t, int replica)
{
	return p->replica[replica][dlb_state_home(g, p->placement, t)];
}

/* Copies between two arrays of the back end's memory. */
static void copy(struct dlb_backend *be, void *to, const void *from, size_t bytes)
{
	void *host = dlb_is_host_memory(be) ? NULL : dlb_xmalloc(bytes + 1);

	if (host) {
		be->ops->download(be, host, from, bytes);
		be->ops->upload(be, to, host, bytes);
	} else {
		memcpy(to, from, bytes);
	}
	free(host);
}

/* Adds the messages of a weight that changes its shape: each replica puts it together from the shares of all
 * replicas, or cuts its own share from its whole weight. to, from: of this rank's new and old replica. A node
 * sends at most one share to another node. */
static void reshape(struct moves *m, struct dlb_state *to, const struct dlb_state *from,
		    const struct dlb_placements *p, int t)
{
	const struct dlb_graph *g = to->graph;
	const struct dlb_desc d = dlb_tensor_desc(&g->tensor[t], 1);
	const size_t size = dlb_dtype_bytes(d.dtype);
	const bool cuts = dlb_plan_divides(p->after, g, t),
		   gets = holder(p->after, g, t, to->share) == to->node,
		   gives = holder(p->before, g, t, from->share) == to->node;
	const int R = p->after->n_replicas;

	for (int q = 0; gets && q < R; q++) {
		const int peer = holder(p->before, g, t, q);
		const struct dlb_share share = dlb_share_of(dlb_desc_count(&d), R, q);
		const size_t at = (size_t)share.first * size, bytes = (size_t)share.n * size;
		char *into = (char *)to->value[t] + (cuts ? 0 : at);

		if (cuts && q != to->share)
			continue;
		if (peer == to->node)
			copy(to->be, into, (char *)from->value[t] + (cuts ? at : 0), bytes);
		else
			add(m, into, bytes, true, peer);
	}
	for (int r = 0; gives && r < R; r++) {
		const int peer = holder(p->after, g, t, r);
		const struct dlb_share share = dlb_share_of(dlb_desc_count(&d), R, from->share);

		if (peer != to->node && (!cuts || r == from->share))
			add(m, (char *)from->value[t] + (cuts ? (size_t)share.first * size : 0),
			    (size_t)share.n * size, false, peer);
	}
}

int dlb_state_move(struct dlb_state *to, const struct dlb_state *from, const struct dlb_placements *p,
		   struct dlb_comm *comm, struct dlb_error *err)
{
	const struct dlb_graph *g = to->graph;
	const int node = to->node;
	struct moves m = { NULL, 0, 0 };

	/* messages between two ranks arrive in the order in which both ranks start them */
	for (int t = 0; t < g->n_tensors; t++) {
		if (g->tensor[t].kind != DLB_T_WEIGHT && g->tensor[t].kind != DLB_T_BUFFER)
			continue;
		const int was = dlb_state_home(g, p->was, t), is = dlb_state_home(g, p->is, t);
		const bool same = !changes_shape(p, g, t);

		if (!same)
			reshape(&m, to, from, p, t);
		if (dlb_state_home(g, to->placement, t) == node && was != node)
			add_tensor(&m, to, t, same, true, was);
		if (dlb_state_home(g, from->placement, t) == node && is != node)
			add_tensor(&m, from, t, same, false, is);
	}
	return exchange(&m, to->be, comm, err);
}

/* Copies the tensors of from's layers that stay on this node, and adds the sends of its other tensors to
 * m. */
static void leave(struct moves *m, struct dlb_kfac *to, const int *is, struct dlb_kfac *from, int node)
{
	struct dlb_local_tensor x, y;

	for (int i = 0, k = 0; dlb_kfac_state(from, i, &x); i++) {
		const int op = dlb_kfac_update_of(from, i);
		const size_t bytes = (size_t)x.n * dlb_dtype_bytes(x.dtype);

		if (is[op] != node) {
			add(m, x.p, bytes, false, is[op]);
			continue;
		}
		/* `from` and `to` have their layers in the same order */
		while (dlb_kfac_state(to, k, &y) && dlb_kfac_update_of(to, k) != op)
			k++;
		memcpy(y.p, x.p, bytes);
		k++;
	}
}

int dlb_kfac_move(struct dlb_kfac *to, struct dlb_kfac *from, const struct dlb_placements *p,
		  struct dlb_comm *comm, struct dlb_error *err)
{
	const int node = dlb_comm_rank(comm);
	struct moves m = { NULL, 0, 0 };
	struct dlb_local_tensor x;

	leave(&m, to, p->is, from, node);
	for (int i = 0; dlb_kfac_state(to, i, &x); i++) {
		const int peer = p->was[dlb_kfac_update_of(to, i)];

		if (peer != node)
			add(&m, x.p, (size_t)x.n * dlb_dtype_bytes(x.dtype), true, peer);
	}
	return exchange(&m, NULL, comm, err);
}

/* ---- compressed sums ---- */

/* A gradient in the state of compression: its id and its index there. */
struct remembered {
	int id, at;
};

static int by_id(const void *a, const void *b)
{
	const struct remembered *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* Lists the gradients of k in the order of their ids, which is the order of messages: *out (new). Returns
 * their number. */
static int list_remembered(struct dlb_compress_state *k, struct remembered **out)
{
	struct dlb_compress_block block[DLB_COMPRESS_BLOCKS];
	struct remembered *list = NULL;
	int n = 0, cap = 0, id;

	for (; dlb_compress_state_blocks(k, n, &id, block); n++) {
		DLB_GROW(list, n, cap);
		list[n] = (struct remembered){ id, n };
	}
	if (n)
		qsort(list, (size_t)n, sizeof *list, by_id);
	*out = list;
	return n;
}

static void *copy_of(struct dlb_arena *a, const struct dlb_compress_block *b)
{
	return memcpy(dlb_arena_alloc(a, b->bytes), b->p, b->bytes);
}

/* Forgets the gradients that the node no longer has. */
static void forget(struct dlb_compress_state *k, const struct dlb_graph *g, int node,
		   const struct dlb_placements *p)
{
	struct dlb_compress_block block[DLB_COMPRESS_BLOCKS];
	int i = 0, id;

	while (dlb_compress_state_blocks(k, i, &id, block))
		if (dlb_state_home(g, p->holds, dlb_bucket_weight_of(id)) == node)
			i++;
		else
			dlb_compress_state_drop(k, i);
}

/* A rank that changes its replica may send the state of a gradient and receive another replica's state in the
 * same memory. So the state that it sends is copied first. */
int dlb_compress_move(struct dlb_compress_state *k, const struct dlb_graph *g, int node,
		      const struct dlb_placements *p, struct dlb_comm *comm, struct dlb_error *err)
{
	struct dlb_compress_block block[DLB_COMPRESS_BLOCKS];
	struct dlb_arena copies = { 0 };
	struct remembered *list;
	struct moves m = { NULL, 0, 0 };
	const int n = list_remembered(k, &list);
	int id;

	for (int i = 0; i < n; i++) {
		const int w = dlb_bucket_weight_of(list[i].id), was = dlb_state_home(g, p->was, w),
			  is = dlb_state_home(g, p->is, w);
		const bool sends = dlb_state_home(g, p->held, w) == node && is != node,
			   receives = dlb_state_home(g, p->holds, w) == node && was != node;

		dlb_compress_state_blocks(k, list[i].at, &id, block);
		for (int b = 0; b < DLB_COMPRESS_BLOCKS; b++) {
			if (sends)
				add(&m, copy_of(&copies, &block[b]), block[b].bytes, false, is);
			if (receives)
				add(&m, block[b].p, block[b].bytes, true, was);
		}
	}
	free(list);
	if (exchange(&m, NULL, comm, err))
		return -1; /* messages may still read the copies */
	dlb_arena_release(&copies);
	forget(k, g, node, p);
	return 0;
}
