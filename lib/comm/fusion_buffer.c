/* Fusion buffers, in which several arrays are sent as one message. See compressor.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "util/clock.h"
#include "util/mem.h"

static int ring_chunks(const struct dlb_ranks *r)
{
	return r->n;
}

static int scatter_hops(const struct dlb_ranks *r, int member, struct dlb_hop *hop)
{
	dlb_allreduce_ring.hops(r, member, hop);
	return r->n - 1;
}

static int gather_hops(const struct dlb_ranks *r, int member, struct dlb_hop *hop)
{
	int n = dlb_allreduce_ring.hops(r, member, hop);

	memmove(hop, hop + n / 2, (size_t)(n - n / 2) * sizeof *hop);
	return n - n / 2;
}

const struct dlb_allreduce dlb_ring_scatter = {
	.name = "ring's first half", .summary = "chunks are summed, each at its owner", .n_chunks = ring_chunks, .hops = scatter_hops,
};
const struct dlb_allreduce dlb_ring_gather = {
	.name = "ring's second half", .summary = "owners' chunks go to all", .n_chunks = ring_chunks, .hops = gather_hops,
};

static int64_t cut(const struct dlb_fusion_buffer *f, int i, int chunk)
{
	const struct dlb_fusion_part *p = &f->part[i];

	return p->owner < 0 ? dlb_chunk_at(p->n, f->n_chunks, chunk) : chunk > p->owner ? p->n : 0;
}

static int64_t begin(const struct dlb_fusion_buffer *f, int chunk)
{
	int64_t n = 0;

	for (int i = 0; i < f->n_parts; i++)
		n += cut(f, i, chunk);
	return n;
}

float *dlb_fusion_at(const struct dlb_fusion_buffer *f, int i, int chunk, int64_t *n)
{
	int64_t at = begin(f, chunk);

	for (int j = 0; j < i; j++)
		at += cut(f, j, chunk + 1) - cut(f, j, chunk);
	*n = cut(f, i, chunk + 1) - cut(f, i, chunk);
	return f->buffer + at;
}

void dlb_fusion_add(struct dlb_fusion_buffer *f, float *x, int64_t n, int owner, enum dlb_traffic_class class)
{
	DLB_GROW(f->part, f->n_parts, f->cap_parts);
	f->part[f->n_parts++] = (struct dlb_fusion_part){ x, n, owner, class };
}

static void lay_out(struct dlb_fusion_buffer *f)
{
	f->n = 0;
	for (int i = 0; i < f->n_parts; i++)
		f->n += f->part[i].n;
	for (int c = 0; c <= f->n_chunks; c++)
		f->at[c] = begin(f, c);
}

static void count_bytes(struct dlb_fusion_buffer *f)
{
	const double sent = (double)dlb_collective_bytes_sent(f->sum);
	int64_t of_class[DLB_N_TRAFFIC] = { 0 };

	for (int i = 0; i < f->n_parts; i++)
		of_class[f->part[i].class] += f->part[i].n;
	for (int t = 0; t < DLB_N_TRAFFIC; t++)
		f->bytes[t] = f->n ? sent * (double)of_class[t] / (double)f->n : 0;
}

int dlb_fusion_ready(struct dlb_fusion_buffer *f, struct dlb_compressor *k, const struct dlb_allreduce *how, enum dlb_wire wire, int tag,
		    float *buffer, struct dlb_error *err)
{
	struct dlb_collective_desc d = { .how = how, .ranks = k->ranks, .dtype = DLB_F32, .wire = wire, .tag = tag };

	f->n_chunks = how->n_chunks(&k->ranks);
	f->at = dlb_xcalloc((size_t)f->n_chunks + 1, sizeof *f->at);
	lay_out(f);
	f->buffer = buffer ? buffer : dlb_xcalloc((size_t)f->n + 1, sizeof *f->buffer);
	d.x = f->buffer;
	d.n = f->n;
	d.at = f->at;
	if (dlb_collective_new(&f->sum, k->c, &d, err))
		return -1;
	count_bytes(f);
	return 0;
}

void dlb_fusion_resize(struct dlb_fusion_buffer *f)
{
	lay_out(f);
	dlb_collective_resize(f->sum, f->at);
	count_bytes(f);
}

void dlb_fusion_free(struct dlb_fusion_buffer *f)
{
	dlb_collective_free(f->sum);
	free(f->part);
	free(f->at);
	free(f->buffer);
}

/* Copies all parts into the buffer (in), or out of it, in the order of the buffer. */
static void copy(const struct dlb_fusion_buffer *f, bool in)
{
	float *at = f->buffer;

	for (int c = 0; c < f->n_chunks; c++)
		for (int i = 0; i < f->n_parts; i++) {
			int64_t from = cut(f, i, c), n = cut(f, i, c + 1) - from;
			float *own = f->part[i].x + from;

			if (n)
				memcpy(in ? at : own, in ? own : at, (size_t)n * sizeof *at);
			at += n;
		}
}

void dlb_fusion_load(struct dlb_fusion_buffer *f)
{
	copy(f, true);
}

void dlb_fusion_unload(const struct dlb_fusion_buffer *f)
{
	copy(f, false);
}

void dlb_fusion_start(struct dlb_compressor *k, struct dlb_fusion_buffer *f)
{
	(void)k;
	if (!f->n)
		return;
	f->active = true;
	f->since_s = dlb_clock_s();
	dlb_collective_start(f->sum);
}

bool dlb_fusion_done(struct dlb_compressor *k, struct dlb_fusion_buffer *f)
{
	double s, all = 0;

	if (!f->active)
		return true;
	if (!dlb_collective_test(f->sum) || dlb_comm_broken(k->c))
		return false;
	f->active = false;
	s = dlb_clock_s() - f->since_s;
	for (int t = 0; t < DLB_N_TRAFFIC; t++)
		all += f->bytes[t];
	for (int t = 0; t < DLB_N_TRAFFIC && all > 0; t++) {
		k->traffic.bytes[t] += f->bytes[t];
		k->traffic.time_s[t] += s * f->bytes[t] / all;
	}
	return true;
}
