/* Fusion buffers, in which several arrays are sent as one message. See compressor.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "util/clock.h"
#include "util/mem.h"

float *dlb_fusion_at(const struct dlb_fusion_buffer *f, int i, int chunk)
{
	return dlb_pack_at(&f->pack, f->buffer, i, chunk);
}

void dlb_fusion_add(struct dlb_fusion_buffer *f, float *x, int64_t n, int owner, enum dlb_traffic_class class)
{
	dlb_pack_add(&f->pack, x, n, owner)->class = class;
}

static void count_bytes(struct dlb_fusion_buffer *f)
{
	const double sent = (double)dlb_collective_bytes_sent(f->sum);
	int64_t of_class[DLB_N_TRAFFIC] = { 0 };

	for (int i = 0; i < f->pack.n_parts; i++)
		of_class[f->pack.part[i].class] += f->pack.part[i].n;
	for (int t = 0; t < DLB_N_TRAFFIC; t++)
		f->bytes[t] = f->pack.n ? sent * (double)of_class[t] / (double)f->pack.n : 0;
}

int dlb_fusion_ready(struct dlb_fusion_buffer *f, struct dlb_compressor *k, const struct dlb_allreduce *how,
		     enum dlb_wire wire, int tag, float *buffer, struct dlb_error *err)
{
	struct dlb_collective_desc d = {
		.how = how, .ranks = k->ranks, .dtype = DLB_F32, .wire = wire, .tag = tag
	};

	const size_t unit = (size_t)dlb_wire_unit(wire);

	f->wire = wire;
	for (int i = 0; i < f->pack.n_parts; i++)
		f->pack.part[i].n = dlb_wire_units(wire, f->pack.part[i].n);
	dlb_pack_lay_out(&f->pack, how->n_chunks(&k->ranks), unit * sizeof *f->buffer);
	f->buffer = buffer ? buffer : dlb_xcalloc((size_t)f->pack.n * unit + 1, sizeof *f->buffer);
	if (f->keeps_lost)
		f->lost = dlb_xcalloc((size_t)f->pack.n * unit + 1, sizeof *f->lost);
	d.x = f->buffer;
	d.lost = f->lost;
	d.n = f->pack.n;
	d.at = f->pack.at;
	if (dlb_collective_new(&f->sum, k->c, &d, err))
		return -1;
	count_bytes(f);
	return 0;
}

void dlb_fusion_resize(struct dlb_fusion_buffer *f)
{
	dlb_pack_lay_out(&f->pack, f->pack.n_chunks, f->pack.element_bytes);
	dlb_collective_resize(f->sum, f->pack.at);
	count_bytes(f);
}

void dlb_fusion_free(struct dlb_fusion_buffer *f)
{
	dlb_collective_free(f->sum);
	dlb_pack_release(&f->pack);
	free(f->buffer);
	free(f->lost);
}

void dlb_fusion_load(struct dlb_fusion_buffer *f)
{
	dlb_pack_load(&f->pack, f->buffer);
}

void dlb_fusion_unload(const struct dlb_fusion_buffer *f)
{
	dlb_pack_unload(&f->pack, f->buffer);
}

void dlb_fusion_unload_lost(const struct dlb_fusion_buffer *f) { dlb_pack_unload(&f->pack, f->lost); }

void dlb_fusion_start(struct dlb_compressor *k, struct dlb_fusion_buffer *f)
{
	(void)k;
	if (!f->pack.n)
		return;
	if (f->lost)
		memset(f->lost, 0, (size_t)f->pack.n * f->pack.element_bytes);
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
