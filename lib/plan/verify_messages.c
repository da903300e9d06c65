/* Proof of messages (verify.h): every SEND has one POST, of equal size, and one WAIT on either side, and a
 * zero-copy message is returned once. Proof of progress: runs all programs without data. A send ends only
 * after its receiver has posted, a zero-copy send only after the message is returned. The order of execution
 * does not change which instructions can run (each message has one sender and one receiver), so if one order
 * completes, all do. */
#include <stdlib.h>
#include <string.h>
#include "plan/flow.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/verify.h"

struct message_end { int from, to, tag, tensor, m; size_t bytes; int node, at; bool zero_copy; };
static int by_message(const void *a, const void *b)
{
	const struct message_end *x = a, *y = b;
	if (x->tag != y->tag)
		return x->tag < y->tag ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to > y->to) - (x->to < y->to);
}

static size_t bytes_of(const struct dlb_program *g, const struct dlb_instr *in)
{
	return (size_t)dlb_tensor_bytes(&g->graph->tensor[in->tensor],
					g->size[in->micro_batch < 0 ? 0 : in->micro_batch]);
}

/* Lists the instructions of a kind, sorted by message. kind: 0 SEND, 1 POST, 2 WAIT, 3 WAIT sent, 4 FREE of a
 * zero-copy message. Returns new. */
static struct message_end *collect(const struct dlb_program *g, int kind, int *n)
{
	int cap = 16;
	struct message_end *list = dlb_xmalloc((size_t)cap * sizeof *list);
	*n = 0;
	for (int node = 0; node < g->n_nodes; node++) {
		const struct dlb_program *own = dlb_program_of(g, node);
		const struct dlb_node_program *np = &own->node[node];
		for (int i = 0; i < np->n_instr; i++) {
			const struct dlb_instr *in = &np->instr[i];
			int k = in->verb == DLB_SEND                  ? 0 :
				in->verb == DLB_POST                  ? 1 :
				in->verb == DLB_FREE && in->zero_copy ? 4 :
				in->verb != DLB_WAIT                  ? -1 :
				in->sent                              ? 3 :
									2;
			if (k != kind)
				continue;
			bool ours = k == 0 || k == 3;
			int place = ours ? -1 : dlb_program_find_place(np, in->tensor, in->micro_batch);
			DLB_GROW(list, *n, cap);
			list[(*n)++] = (struct message_end){ ours ? node : in->peer,
							     ours ? in->peer : node,
							     in->tag,
							     in->tensor,
							     in->micro_batch,
							     place < 0 ? bytes_of(own, in) :
									 np->place[place].bytes,
							     node,
							     i,
							     in->zero_copy };
		}
	}
	qsort(list, (size_t)*n, sizeof *list, by_message);
	return list;
}

/* Keeps the zero-copy messages of a; returns their number. */
static int keep_zero_copy(struct message_end *a, int n)
{
	int kept = 0;
	for (int i = 0; i < n; i++)
		if (a[i].zero_copy)
			a[kept++] = a[i];
	return kept;
}

static int same_messages(const struct dlb_program *g, const struct message_end *a, int n,
			 const struct message_end *b, int k, struct dlb_error *err)
{
	for (int i = 0; i < n || i < k; i++) {
		if (i >= k || (i < n && by_message(&a[i], &b[i]) < 0))
			return dlb_verify_fault(g, a[i].node, a[i].at, err,
						"has no counterpart on the other side");
		if (i >= n || by_message(&a[i], &b[i]) > 0)
			return dlb_verify_fault(g, b[i].node, b[i].at, err,
						"has no counterpart on the other side");
		if (a[i].bytes != b[i].bytes || a[i].tensor != b[i].tensor || a[i].m != b[i].m)
			return dlb_verify_fault(g, a[i].node, a[i].at, err,
						"the two sides do not mean the same tensor or size");
		if (a[i].zero_copy != b[i].zero_copy)
			return dlb_verify_fault(g, b[i].node, b[i].at, err,
						"one side has zero-copy, the other a copy");
		if (i > 0 && by_message(&a[i - 1], &a[i]) == 0)
			return dlb_verify_fault(g, a[i].node, a[i].at, err, "is there twice");
	}
	return 0;
}

/* State of the proof of progress. started[part][b * M + m]: number of nodes of the part that have started
 * bucket b of micro-batch (or step) m. All nodes pass COLLECTIVE computed before any sum, so it cannot
 * deadlock. */
struct message_check {
	const struct dlb_program *g; const struct message_end *message; int n;
	bool *sent, *posted, *returned;		/* returned: by the receiver, or copied */
	int *pc, *waiter;
	int **started, *part, *peer, n_at_norm;
	bool *at_norm;
	/* [step] asynchronous: number of nodes that have summed their squares */
	int *n_squared;
	bool *stacked; int *stack, top;
};

static int find_message(const struct message_check *r, int from, int to, int tag)
{
	struct message_end key = { .from = from, .to = to, .tag = tag };
	const struct message_end *x = bsearch(&key, r->message, (size_t)r->n, sizeof key, by_message);
	return x ? (int)(x - r->message) : -1;
}

static void wake(struct message_check *r, int node)
{
	if (!r->stacked[node])
		r->stack[r->top++] = node;
	r->stacked[node] = true;
}

/* A COLLECTIVE of replicas: whether node may pass the instruction. */
static bool meet_others(struct message_check *r, int node, const struct dlb_instr *in)
{
	int R = r->g->n_replicas, M = r->g->micro_batches,
	    m = in->micro_batch < 0  ? in->iteration :
		in->micro_batch >= M ? 0 :
				       in->micro_batch;
	int *started = in->tag < 0 ? NULL : &r->started[r->part[node]][in->tag * M + m];
	if (in->what == DLB_RUN_REDUCE && ++*started == R) {
		dlb_plan_peers(r->g->whole, r->part[node], r->peer);
		for (int k = 0; k < R; k++)
			wake(r, r->peer[k]);
	}
	return in->what != DLB_RUN_REDUCED || *started == R;
}

/* The global norm of an asynchronous step: whether a node may pass. Each node sums its squares before it
 * waits. */
static bool meet_norm(struct message_check *r, const struct dlb_instr *in)
{
	if (in->what == DLB_RUN_SQUARES && ++r->n_squared[in->iteration] == r->g->n_nodes)
		for (int n = 0; n < r->g->n_nodes; n++)
			wake(r, n);
	return in->what == DLB_RUN_SQUARES || r->n_squared[in->iteration] == r->g->n_nodes;
}

/* The global norm, a barrier: whether node may pass. The last node releases the others. */
static bool meet_all(struct message_check *r, int node)
{
	r->n_at_norm += !r->at_norm[node];
	r->at_norm[node] = true;
	if (r->n_at_norm < r->g->n_nodes)
		return false;
	r->n_at_norm = 0;
	for (int n = 0; n < r->g->n_nodes; n++) {
		r->at_norm[n] = false;
		if (n == node)
			continue;
		r->pc[n]++;			/* it is at its norm and waits for no message */
		wake(r, n);
	}
	return true;
}

/* Runs node until it must wait; pushes the nodes that it releases on the stack. */
static void advance(struct message_check *r, int node)
{
	const struct dlb_node_program *np = &dlb_program_of(r->g, node)->node[node];
	for (; r->pc[node] < np->n_instr; r->pc[node]++) {
		const struct dlb_instr *in = &np->instr[r->pc[node]];
		const bool all = in->verb == DLB_COLLECTIVE &&
				 (in->what == DLB_RUN_NORM || in->what == DLB_RUN_SQUARES ||
				  in->what == DLB_RUN_TRUST);
		if (in->verb == DLB_COLLECTIVE && !(!all        ? meet_others(r, node, in) :
						    r->g->async ? meet_norm(r, in) :
								  meet_all(r, node)))
			return;
		if (in->verb != DLB_SEND && in->verb != DLB_POST && in->verb != DLB_WAIT &&
		    !(in->verb == DLB_FREE && in->zero_copy))
			continue;
		bool ours = in->verb == DLB_SEND || in->sent;
		int k = find_message(r, ours ? node : in->peer, ours ? in->peer : node, in->tag);
		if (k < 0)
			return;
		if (in->verb == DLB_WAIT && !(r->sent[k] && r->posted[k] && (r->returned[k] || !in->sent))) {
			r->waiter[k] = node;
			return;
		}
		if (in->verb != DLB_WAIT) {
			*(in->verb == DLB_SEND ? &r->sent[k] :
			  in->verb == DLB_POST ? &r->posted[k] :
						 &r->returned[k]) = true;
			if (r->waiter[k] >= 0 && r->waiter[k] != node) {
				wake(r, r->waiter[k]);
				r->waiter[k] = -1;
			}
		}
	}
}

static int prove_progress(const struct dlb_program *g, const struct message_end *message, int n,
			  struct dlb_error *err)
{
	struct message_check r = { .g = g, .message = message, .n = n };
	int rc = 0;
	size_t n_nodes = (size_t)g->n_nodes;
	r.sent = dlb_xcalloc((size_t)n + 1, sizeof(bool));
	r.posted = dlb_xcalloc((size_t)n + 1, sizeof(bool));
	r.returned = dlb_xcalloc((size_t)n + 1, sizeof(bool));
	r.waiter = dlb_xmalloc(((size_t)n + 1) * sizeof(int));
	r.pc = dlb_xcalloc(n_nodes, sizeof(int));
	r.started = dlb_xcalloc(n_nodes, sizeof *r.started);
	r.part = dlb_xcalloc(n_nodes, sizeof(int));
	r.peer = dlb_xcalloc((size_t)g->n_replicas + 1, sizeof(int));
	r.stack = dlb_xcalloc(n_nodes + 1, sizeof(int));
	r.stacked = dlb_xcalloc(n_nodes, sizeof(bool));
	r.at_norm = dlb_xcalloc(n_nodes, sizeof(bool));
	r.n_squared = dlb_xcalloc((size_t)g->steps, sizeof(int));
	for (int k = 0; k < n; k++) {
		r.waiter[k] = -1;
		r.returned[k] = !message[k].zero_copy;
	}
	for (int node = g->n_nodes - 1; node >= 0; node--) {
		r.part[node] = dlb_plan_part_of(g->whole, node);
		r.started[node] = dlb_xcalloc((size_t)dlb_program_of(g, node)->node[node].n_buckets *
							      (size_t)g->micro_batches +
						      1,
					      sizeof(int));
		wake(&r, node);
	}
	while (r.top) {
		int node = r.stack[--r.top];
		r.stacked[node] = false;
		advance(&r, node);
	}
	for (int node = 0; node < g->n_nodes && rc == 0; node++)
		if (r.pc[node] < dlb_program_of(g, node)->node[node].n_instr)
			rc = dlb_verify_fault(g, node, r.pc[node], err, "deadlock: this can never be over");
	for (int node = 0; node < g->n_nodes; node++)
		free(r.started[node]);
	free(r.started);
	free(r.part);
	free(r.peer);
	free(r.sent);
	free(r.posted);
	free(r.returned);
	free(r.waiter);
	free(r.pc);
	free(r.stack);
	free(r.stacked);
	free(r.at_norm);
	free(r.n_squared);
	return rc;
}

int dlb_verify_messages(const struct dlb_program *g, struct dlb_error *err)
{
	struct message_end *list[5];
	int n[5], rc = 0;
	for (int k = 0; k < 5; k++)
		list[k] = collect(g, k, &n[k]);
	for (int k = 1; k < 4 && rc == 0; k++)
		rc = same_messages(g, list[0], n[0], list[k], n[k], err);
	if (rc == 0)
		rc = prove_progress(g, list[0], n[0], err);
	if (rc == 0)
		rc = same_messages(g, list[0], keep_zero_copy(list[0], n[0]), list[4], n[4], err);
	for (int k = 0; k < 5; k++)
		free(list[k]);
	return rc;
}
