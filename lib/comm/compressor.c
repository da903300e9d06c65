/* A dlb_compressor: the order of its messages. See compress.h and compressor.h.
 *
 *     first     dense tensors, flags;  P, or gradients dense before `start`;  triangles to their owners
 *     second    Q;  L from the owners, or all factors dense if one was not symmetric
 *     third     the sums of all triangles, if one was not positive definite */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "util/clock.h"
#include "util/mem.h"

bool dlb_all_finite(const float *x, int64_t n)
{
	uint32_t bad = 0;

	for (int64_t i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, &x[i], sizeof u);
		bad |= (u & 0x7f800000) == 0x7f800000;
	}
	return !bad;
}

void dlb_compressor_flag(struct dlb_compressor *k, float *flags, int tensor)
{
	float *own = &flags[k->member];

	if (*own == 0.0f || *own > (float)(tensor + 1))
		*own = (float)(tensor + 1);
}

static int *copied(const int *x, int n)
{
	int *y = dlb_xcalloc((size_t)n + 1, sizeof *y);

	for (int i = 0; i < n; i++)
		y[i] = x ? x[i] : i;
	return y;
}

static bool takes_triangles(const struct dlb_compressor *k)
{
	return k->choice.how == DLB_COMPRESS_CHOLESKY || k->choice.how == DLB_COMPRESS_PER_HOP;
}

static int ready(struct dlb_compressor *k, struct dlb_error *err)
{
	const enum dlb_wire dense = dlb_compress_dense_wire(&k->choice);

	for (int i = 0; i < k->n_tensors; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[i];

		if (!dlb_compress_rank(&k->choice, a) && !(a->factor && takes_triangles(k)))
			dlb_fusion_add(&k->dense, a->x, a->rows * a->cols, -1,
				       dlb_traffic_class_of(&k->choice, a));
	}
	/* Flags are integers, so never rounded to 16 bits. */
	dlb_fusion_add(dense == DLB_WIRE_PLAIN ? &k->dense : &k->flags, k->not_finite, 2 * k->ranks.n, -1,
		       DLB_TRAFFIC_SMALL);
	if (takes_triangles(k) && dlb_triangles_new(k, err))
		return -1;
	if (k->choice.how == DLB_COMPRESS_PER_HOP)
		k->hops = dlb_hops_new(k);
	dlb_low_rank_new(k);
	return dlb_fusion_ready(&k->dense, k, k->how, dense, k->tag + DLB_TAG_DENSE, NULL, err) ||
			       dlb_fusion_ready(&k->flags, k, k->how, DLB_WIRE_PLAIN, k->tag + DLB_TAG_FLAGS,
						NULL, err) ||
			       dlb_fusion_ready(&k->warm, k, k->how, DLB_WIRE_PLAIN, k->tag + DLB_TAG_WARM,
						NULL, err) ||
			       dlb_fusion_ready(&k->p, k, k->how, k->choice.thin_wire, k->tag + DLB_TAG_P,
						NULL, err) ||
			       dlb_fusion_ready(&k->q, k, k->how, k->choice.thin_wire, k->tag + DLB_TAG_Q,
						NULL, err) ?
		       -1 :
		       0;
}

int dlb_compressor_new(struct dlb_compressor **out, struct dlb_comm *c, const struct dlb_compressor_desc *d,
		       struct dlb_error *err)
{
	struct dlb_compressor *k;

	if (d->how->external && d->choice.how != DLB_COMPRESS_NONE) {
		dlb_fail(err, NULL, "allreduce '%s' cannot compress", d->how->name);
		return dlb_hint(err, "try --allreduce ring");
	}
	k = dlb_xcalloc(1, sizeof *k);
	k->c = c;
	k->choice = d->choice;
	k->how = d->how;
	k->tag = d->tag;
	k->state = d->state;
	k->rank_ = copied(d->ranks.rank, d->ranks.n);
	k->group_ = d->ranks.group ? copied(d->ranks.group, d->ranks.n) : NULL;
	k->ranks = (struct dlb_ranks){ .n = d->ranks.n, .rank = k->rank_, .group = k->group_ };
	k->member = dlb_ranks_member(&k->ranks, dlb_comm_rank(c));
	k->n_tensors = d->n_tensors;
	k->tensor = dlb_xcalloc((size_t)d->n_tensors + 1, sizeof *k->tensor);
	memcpy(k->tensor, d->tensor, (size_t)d->n_tensors * sizeof *k->tensor);
	k->not_finite = dlb_xcalloc(2 * (size_t)k->ranks.n + 2, sizeof *k->not_finite);
	k->asymmetric = k->not_finite + k->ranks.n;
	if (k->member >= 0 && ready(k, err)) {
		dlb_compressor_free(k);
		return -1;
	}
	*out = k;
	return 0;
}

void dlb_compressor_free(struct dlb_compressor *k)
{
	struct dlb_fusion_buffer *all[9];

	if (!k)
		return;
	memcpy(all,
	       (struct dlb_fusion_buffer *[]){ &k->dense, &k->flags, &k->warm, &k->p, &k->q, &k->scatter,
					       &k->gather, &k->third, &k->whole },
	       sizeof all);
	k->third.buffer = NULL;			/* borrowed from scatter */
	for (int i = 0; i < DLB_LEN(all); i++)
		dlb_fusion_free(all[i]);
	dlb_low_rank_free(k);
	dlb_hops_free(k->hops);
	free(k->triangle);
	free(k->factor_work);
	free(k->not_finite);
	free(k->tensor);
	free(k->rank_);
	free(k->group_);
	free(k);
}

static void send(struct dlb_compressor *k, struct dlb_fusion_buffer *f)
{
	dlb_fusion_load(f);
	dlb_fusion_start(k, f);
}

/* Flags tensors that are sent dense in this step and are not finite. */
static void check_dense(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_tensors; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[i];

		if ((k->low_rank_now && dlb_compress_rank(&k->choice, a)) ||
		    (a->factor && takes_triangles(k)))
			continue;
		if (!dlb_all_finite(a->x, a->rows * a->cols))
			dlb_compressor_flag(k, k->not_finite, i);
	}
}

static void count_dense(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_tensors; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[i];

		k->traffic.dense_bytes[dlb_traffic_class_of(&k->choice, a)] += (double)
			dlb_allreduce_bytes(k->how, &k->ranks, k->member, a->rows * a->cols, NULL,
					    sizeof(float), NULL);
	}
}

void dlb_compressor_start(struct dlb_compressor *k, int64_t step)
{
	memset(&k->traffic, 0, sizeof k->traffic);
	for (int i = 0; i < k->n_triangles; i++)
		k->triangle[i].factored = false;
	k->verdict = (struct dlb_verdict){ .rank = -1 };
	k->step = step;
	k->hops_due = false;
	k->low_rank_now = k->n_low_rank && step >= k->choice.start;
	k->phase = DLB_PHASE_DONE;
	if (k->member < 0 || k->ranks.n < 2)
		return;
	k->phase = DLB_PHASE_FIRST;
	memset(k->not_finite, 0, 2 * (size_t)k->ranks.n * sizeof *k->not_finite);
	count_dense(k);
	check_dense(k);
	dlb_triangles_check(k);
	if (k->low_rank_now)
		dlb_low_rank_project(k);
	send(k, &k->dense);
	send(k, &k->flags);
	if (k->low_rank_now)
		send(k, &k->p);
	else if (k->n_low_rank)
		send(k, &k->warm);
	if (k->choice.how == DLB_COMPRESS_CHOLESKY && k->n_triangles) {
		dlb_triangles_load(k);
		dlb_fusion_start(k, &k->scatter);
	}
	dlb_compressor_test(k);
}

/* Reads the flags of all ranks into the verdict. */
static bool all_finite(struct dlb_compressor *k)
{
	dlb_fusion_unload(k->flags.pack.n ? &k->flags : &k->dense);
	for (int m = 0; m < k->ranks.n; m++) {
		int bad = (int)k->not_finite[m], off = (int)k->asymmetric[m];

		if (bad > 0 && bad <= k->n_tensors && !k->verdict.not_finite) {
			k->verdict.not_finite = k->tensor[bad - 1].name;
			k->verdict.rank = k->ranks.rank[m];
		}
		k->verdict.n_asymmetric += off > 0;
	}
	return !k->verdict.not_finite;
}

static void second(struct dlb_compressor *k)
{
	k->phase = DLB_PHASE_SECOND;
	if (!all_finite(k)) {
		k->phase = DLB_PHASE_DONE;
		return;
	}
	dlb_fusion_unload(&k->dense);
	if (k->low_rank_now) {
		dlb_fusion_unload(&k->p);
		dlb_low_rank_back(k);
		if (k->verdict.not_finite) {
			k->phase = DLB_PHASE_DONE;
			return;
		}
		send(k, &k->q);
	} else if (k->n_low_rank) {
		dlb_fusion_unload(&k->warm);
		if (k->step + DLB_WARM_STEPS >= k->choice.start)
			dlb_low_rank_warm(k);
	}
	if (!k->n_triangles)
		return;
	if (k->verdict.n_asymmetric) {
		send(k, &k->whole);
	} else if (k->hops) {
		k->hops_due = true; /* they block, so they run in _wait, which all ranks call in one order */
	} else {
		dlb_triangles_factor(k);
		dlb_fusion_start(k, &k->gather);
	}
}

static void third(struct dlb_compressor *k)
{
	k->phase = DLB_PHASE_DONE;
	if (k->low_rank_now) {
		dlb_fusion_unload(&k->q);
		dlb_low_rank_restore(k);
	}
	if (k->n_triangles && k->verdict.n_asymmetric) {
		dlb_fusion_unload(&k->whole);
	} else if (k->n_triangles && !k->hops && dlb_triangles_restore(k)) {
		k->phase = DLB_PHASE_THIRD;
		dlb_fusion_start(k, &k->third);
	}
}

bool dlb_compressor_test(struct dlb_compressor *k)
{
	struct dlb_fusion_buffer *first[] = { &k->dense, &k->flags, &k->p, &k->warm, &k->scatter },
				 *then[] = { &k->q, &k->whole, &k->gather };
	bool done = true;

	if (dlb_comm_broken(k->c) || k->phase == DLB_PHASE_DONE)
		return true;
	if (k->phase == DLB_PHASE_FIRST) {
		for (int i = 0; i < DLB_LEN(first); i++)
			done = dlb_fusion_done(k, first[i]) && done;
		if (done)
			second(k);
	}
	if (k->phase == DLB_PHASE_SECOND && !k->failed && !k->hops_due) {
		done = true;
		for (int i = 0; i < DLB_LEN(then); i++)
			done = dlb_fusion_done(k, then[i]) && done;
		if (done)
			third(k);
	}
	if (k->phase == DLB_PHASE_THIRD && dlb_fusion_done(k, &k->third)) {
		dlb_triangles_take_sums(k);
		k->phase = DLB_PHASE_DONE;
	}
	return k->phase == DLB_PHASE_DONE || dlb_comm_broken(k->c);
}

static struct dlb_fusion_buffer *under_way(struct dlb_compressor *k)
{
	struct dlb_fusion_buffer *all[] = { &k->dense, &k->flags, &k->p,      &k->warm, &k->scatter,
					    &k->q,     &k->whole, &k->gather, &k->third };

	for (int i = 0; i < DLB_LEN(all); i++)
		if (all[i]->active)
			return all[i];
	return NULL;
}

int dlb_compressor_wait(struct dlb_compressor *k, struct dlb_error *err)
{
	while (!dlb_compressor_test(k) || dlb_comm_broken(k->c)) {
		struct dlb_fusion_buffer *f = under_way(k);

		if (k->hops_due) {
			k->hops_due = false;
			k->failed = dlb_hops_run(k->hops, k, &k->fault) != 0;
		}
		if (k->failed) {
			*err = k->fault;
			return -1;
		}
		if (f && dlb_collective_wait(f->sum, err))
			return -1;
		if (!f && dlb_comm_broken(k->c))
			return dlb_comm_idle(k->c, &(struct dlb_idle){ 0 }, -1, "allreduce", err);
	}
	return 0;
}

const struct dlb_verdict *dlb_compressor_verdict(const struct dlb_compressor *k)
{
	return &k->verdict;
}

int dlb_verdict_error(const struct dlb_verdict *v, struct dlb_error *err)
{
	if (!v->not_finite)
		return 0;
	if (v->rank < 0)
		dlb_fail(err, NULL, "the sum of the gradients of '%s' over the replicas is not finite",
			 v->not_finite);
	else
		dlb_fail(err, NULL, "the gradient of '%s' on node %d is not finite", v->not_finite, v->rank);
	return dlb_hint(err, "try a smaller --lr");
}

const struct dlb_traffic *dlb_compressor_traffic(const struct dlb_compressor *k)
{
	return &k->traffic;
}
