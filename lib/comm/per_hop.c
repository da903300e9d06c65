/* Factors as first published: every hop sends L, restores the matrix, adds, and factors again. Kept for
 * comparison. It runs any list of hops (ring, host, ...), one after the other, and blocks. A matrix that is
 * not positive definite is sent as a triangle of the sum; the word before the triangle says which it is. */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "tensor/spd.h"
#include "util/clock.h"
#include "util/mem.h"

/* One matrix: its sum so far, and its message: a word (0: L; 1: the sum), then the triangle. */
struct matrix { int tensor, n; int64_t count; float *sum, *message; bool encoded; };
struct dlb_hops {
	struct matrix *matrix; int n_matrices;		/* ordered by chunk */
	int n_chunks;
	int *first;					/* [n_chunks + 1] first matrix of each chunk */
	int64_t *at;	/* [n_matrices + 1] offset of each matrix in `messages` */
	float *messages, *arrived, *full;
	struct dlb_hop *hop; int n_hops;
};

struct dlb_hops *dlb_hops_new(struct dlb_compressor *k)
{
	struct dlb_hops *h = dlb_xcalloc(1, sizeof *h);
	int n = k->n_triangles, *chunk = dlb_xcalloc((size_t)k->n_tensors + 1, sizeof *chunk);
	int64_t most = 0, sums = 0;
	float *sum;

	h->n_chunks = k->how->n_chunks(&k->ranks);
	dlb_factor_owners(k->tensor, k->n_tensors, h->n_chunks, chunk);
	h->matrix = dlb_xcalloc((size_t)n + 1, sizeof *h->matrix);
	h->first = dlb_xcalloc((size_t)h->n_chunks + 1, sizeof *h->first);
	h->at = dlb_xcalloc((size_t)n + 1, sizeof *h->at);
	for (int c = 0; c < h->n_chunks; c++) {
		for (int i = 0; i < n; i++) {
			const struct dlb_sum_tensor *a = &k->tensor[k->triangle[i].tensor];
			struct matrix *m = &h->matrix[h->n_matrices];

			if (chunk[k->triangle[i].tensor] != c)
				continue;
			*m = (struct matrix){ .tensor = k->triangle[i].tensor,
					      .n = (int)a->rows,
					      .count = dlb_rfp_count((int)a->rows) };
			h->at[h->n_matrices + 1] = h->at[h->n_matrices] + 1 + m->count;
			h->n_matrices++;
			sums += m->count;
			most = a->rows * a->rows > most ? a->rows * a->rows : most;
		}
		h->first[c + 1] = h->n_matrices;
	}
	free(chunk);
	h->messages = dlb_xcalloc((size_t)(2 * h->at[n] + sums + most) + 1, sizeof *h->messages);
	h->arrived = h->messages + h->at[n];
	sum = h->arrived + h->at[n];
	for (int i = 0; i < n; i++) {
		h->matrix[i].message = h->messages + h->at[i];
		h->matrix[i].sum = sum;
		sum += h->matrix[i].count;
	}
	h->full = sum;
	h->hop = dlb_xcalloc((size_t)dlb_allreduce_most_hops(&k->ranks), sizeof *h->hop);
	h->n_hops = k->ranks.n > 1 ? k->how->hops(&k->ranks, k->member, h->hop) : 0;
	return h;
}

void dlb_hops_free(struct dlb_hops *h)
{
	if (!h)
		return;
	free(h->messages);
	free(h->matrix);
	free(h->first);
	free(h->at);
	free(h->hop);
	free(h);
}

static void encode(struct dlb_compressor *k, struct matrix *m)
{
	if (m->encoded)
		return;
	memcpy(m->message + 1, m->sum, (size_t)m->count * sizeof *m->sum);
	m->message[0] = 0;
	if (dlb_rfp_factor(m->n, m->message + 1)) {
		memcpy(m->message + 1, m->sum, (size_t)m->count * sizeof *m->sum);
		m->message[0] = 1;
		k->verdict.n_hops_failed++;
	}
	m->encoded = true;
}

/* full = the matrix in a message, by rows. */
static void decode(const struct matrix *m, const float *message, float *full)
{
	if (message[0] == 0)
		dlb_rfp_restore(m->n, message + 1, full);
	else
		dlb_rfp_unpack(m->n, message + 1, true, full);
}

static void add(struct dlb_hops *h, struct matrix *m, const float *message)
{
	if (message[0] == 0) {
		dlb_rfp_restore(m->n, message + 1, h->full);
		for (int j = 0; j < m->n; j++)
			for (int i = j; i < m->n; i++)
				m->sum[dlb_rfp_at(m->n, i, j)] += h->full[(int64_t)(m->n - 1 - j) * m->n +
									  (m->n - 1 - i)];
	} else {
		for (int64_t i = 0; i < m->count; i++)
			m->sum[i] += message[1 + i];
	}
	m->encoded = false;
}

static int64_t words(const struct dlb_hops *h, int chunk, int n_chunks)
{
	return h->at[h->first[chunk + n_chunks]] - h->at[h->first[chunk]];
}

static int one_hop(struct dlb_hops *h, struct dlb_compressor *k, const struct dlb_hop *hop,
		   struct dlb_error *err)
{
	struct dlb_request out = { 0 }, in = { 0 };
	const int *rank = k->ranks.rank;
	int64_t n_out = hop->to >= 0 ? words(h, hop->send, hop->n_send) : 0,
		n_in = hop->from >= 0 ? words(h, hop->recv, hop->n_recv) : 0;

	if (n_out) {
		for (int i = h->first[hop->send]; i < h->first[hop->send + hop->n_send]; i++)
			encode(k, &h->matrix[i]);
		dlb_comm_isend(k->c, h->messages + h->at[h->first[hop->send]], (size_t)n_out * sizeof(float),
			       rank[hop->to], k->tag + DLB_TAG_HOPS, &out);
		k->traffic.bytes[DLB_TRAFFIC_FACTOR] += (double)n_out * sizeof(float);
	}
	if (n_in)
		dlb_comm_irecv(k->c, h->arrived, (size_t)n_in * sizeof(float), rank[hop->from],
			       k->tag + DLB_TAG_HOPS, &in);
	if (dlb_comm_wait(k->c, &out, err) || dlb_comm_wait(k->c, &in, err))
		return -1;
	for (int i = h->first[hop->recv]; n_in && i < h->first[hop->recv + hop->n_recv]; i++) {
		struct matrix *m = &h->matrix[i];
		const float *message = h->arrived + h->at[i] - h->at[h->first[hop->recv]];

		if (hop->add) {
			if (n_out && i >= h->first[hop->send] && i < h->first[hop->send + hop->n_send]) {
				/* both peers must add the same two matrices, so this rank adds its own as
				 * sent */
				memset(m->sum, 0, (size_t)m->count * sizeof *m->sum);
				add(h, m, m->message);
			}
			add(h, m, message);
		} else {
			memcpy(m->message, message, (size_t)(m->count + 1) * sizeof *message);
			m->encoded = true;
		}
	}
	return 0;
}

int dlb_hops_run(struct dlb_hops *h, struct dlb_compressor *k, struct dlb_error *err)
{
	double start_s = dlb_clock_s();

	for (int i = 0; i < h->n_matrices; i++) {
		struct matrix *m = &h->matrix[i];

		dlb_rfp_pack(m->n, k->tensor[m->tensor].x, true, m->sum);
		m->encoded = false;
	}
	for (int i = 0; i < h->n_hops; i++)
		if (one_hop(h, k, &h->hop[i], err))
			return -1;
	/* all ranks, also the sender, decode the message, so that all have the same bits */
	for (int i = 0; i < h->n_matrices; i++) {
		struct matrix *m = &h->matrix[i];

		encode(k, m);
		k->verdict.n_not_definite += m->message[0] != 0;
		decode(m, m->message, k->tensor[m->tensor].x);
	}
	k->traffic.time_s[DLB_TRAFFIC_FACTOR] += dlb_clock_s() - start_s;
	return 0;
}
