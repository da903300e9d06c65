/* Sums of K-FAC's factors: triangles are summed at their owners, who factor them once and send L back. See
 * compressor.h.
 *
 * Triangles and L are those of the reversed matrix, whose product has the cheaper routine (tensor/spd.h). All
 * ranks, the owner too, use L L^T minus the damping as the sum, so that all have the same bits. */
#include <stdlib.h>
#include <string.h>
#include "comm/cholesky.h"
#include "comm/compressor.h"
#include "tensor/spd.h"
#include "util/mem.h"

static const float asymmetry = 1e-5f;	/* relative to the largest element: more asymmetry is reported */

int dlb_triangles_new(struct dlb_compressor *k, struct dlb_error *err)
{
	int *owner = dlb_xcalloc((size_t)k->n_tensors + 1, sizeof *owner);
	int64_t most = 0;

	dlb_factor_owners(k->tensor, k->n_tensors, k->ranks.n, owner);
	k->triangle = dlb_xcalloc((size_t)k->n_tensors + 1, sizeof *k->triangle);
	for (int i = 0; i < k->n_tensors; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[i];
		int64_t count = dlb_rfp_count((int)a->rows);

		if (!a->factor)
			continue;
		k->triangle[k->n_triangles++] = (struct dlb_triangle){ .tensor = i, .owner = owner[i] };
		dlb_fusion_add(&k->scatter, NULL, count, owner[i], DLB_TRAFFIC_FACTOR);
		dlb_fusion_add(&k->third, NULL, count, owner[i], DLB_TRAFFIC_FACTOR);
		dlb_fusion_add(&k->gather, NULL, dlb_factor_words(&k->choice, a->rows), owner[i],
			       DLB_TRAFFIC_FACTOR);
		dlb_fusion_add(&k->whole, a->x, a->rows * a->cols, -1, DLB_TRAFFIC_FACTOR);
		most = count > most ? count : most;
	}
	free(owner);
	k->factor_work = dlb_xcalloc(2 * (size_t)most + 1, sizeof *k->factor_work);
	if (dlb_fusion_ready(&k->whole, k, k->how, DLB_WIRE_PLAIN, k->tag + DLB_TAG_WHOLE, NULL, err))
		return -1;
	if (k->choice.how == DLB_COMPRESS_PER_HOP)
		return 0;
	return dlb_fusion_ready(&k->scatter, k, &dlb_ring_scatter, DLB_WIRE_PLAIN, k->tag + DLB_TAG_SCATTER,
				NULL, err) ||
			       dlb_fusion_ready(&k->gather, k, &dlb_ring_gather, DLB_WIRE_PLAIN,
						k->tag + DLB_TAG_GATHER, NULL, err) ||
			       dlb_fusion_ready(&k->third, k, &dlb_ring_gather, DLB_WIRE_PLAIN,
						k->tag + DLB_TAG_THIRD, k->scatter.buffer, err) ?
		       -1 :
		       0;
}

void dlb_triangles_check(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_triangles; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[k->triangle[i].tensor];
		float largest, off;
		bool finite;

		off = dlb_asymmetry((int)a->rows, a->x, &largest, &finite);
		if (!finite)
			dlb_compressor_flag(k, k->not_finite, k->triangle[i].tensor);
		else if (off > asymmetry * largest)
			dlb_compressor_flag(k, k->asymmetric, k->triangle[i].tensor);
	}
}

static float *triangle_at(const struct dlb_compressor *k, const struct dlb_fusion_buffer *f, int i)
{
	return dlb_fusion_at(f, i, k->triangle[i].owner);
}

void dlb_triangles_load(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_triangles; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[k->triangle[i].tensor];

		dlb_rfp_pack((int)a->rows, a->x, true, triangle_at(k, &k->scatter, i));
	}
}

void dlb_triangles_factor(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_triangles; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[k->triangle[i].tensor];
		int64_t count = dlb_rfp_count((int)a->rows);
		float *l = k->factor_work, *work = l + count, *out = triangle_at(k, &k->gather, i);
		double added;

		if (k->triangle[i].owner != (k->member + 1) % k->ranks.n)
			continue;
		memcpy(l, triangle_at(k, &k->scatter, i), (size_t)count * sizeof *l);
		out[0] = (float)dlb_spd_factor((int)a->rows, l, a->damping, work, &added);
		if (k->choice.wire == DLB_WIRE_BF16)
			dlb_bf16_pack(out + 1, l, count);
		else
			memcpy(out + 1, l, (size_t)count * sizeof *l);
	}
}

static void undamp(const struct dlb_sum_tensor *a)
{
	for (int64_t i = 0; i < a->rows && a->damping != 0; i++)
		a->x[i * a->rows + i] -= (float)a->damping;
}

bool dlb_compressor_factored(const struct dlb_compressor *k, int i)
{
	for (int t = 0; t < k->n_triangles; t++)
		if (k->triangle[t].tensor == i)
			return k->triangle[t].factored;
	return false;
}

bool dlb_triangles_restore(struct dlb_compressor *k)
{
	bool more = false;

	for (int i = 0; i < k->n_triangles; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[k->triangle[i].tensor];
		const float *in = triangle_at(k, &k->gather, i);
		float *l = k->factor_work;

		k->triangle[i].taken = in[0] >= 0;
		if (!k->triangle[i].taken) {
			more = true;
			k->verdict.n_not_definite++;
			continue;
		}
		k->verdict.n_retries += in[0] > 0;
		k->triangle[i].factored = a->as_factor;
		if (k->choice.wire == DLB_WIRE_BF16)
			dlb_bf16_unpack(a->as_factor ? a->x : l, in + 1, dlb_rfp_count((int)a->rows));
		else if (a->as_factor)
			memcpy(a->x, in + 1, (size_t)dlb_rfp_count((int)a->rows) * sizeof *a->x);
		if (a->as_factor)
			continue;
		dlb_rfp_restore((int)a->rows, k->choice.wire == DLB_WIRE_BF16 ? l : in + 1, a->x);
		undamp(a);
	}
	return more;
}

void dlb_triangles_take_sums(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_triangles; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[k->triangle[i].tensor];

		if (!k->triangle[i].taken)
			dlb_rfp_unpack((int)a->rows, triangle_at(k, &k->scatter, i), true, a->x);
	}
}
