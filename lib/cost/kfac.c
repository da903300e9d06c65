/* Times of K-FAC's matrix operations: FLOP (optim/kfac.h) / FLOP/s of the kind's fastest large op. */
#include "cost/cost.h"
#include "optim/kfac.h"

static double rate(const struct dlb_cost *c, int update, int kind)
{
	const struct dlb_op *o = &c->graph->op[update];

	return c->inverse_every > 0 && c->matrix_flops && o->phase == DLB_UPDATE && o->n_in > 2 ?
		       c->matrix_flops[kind] :
		       0;
}

double dlb_cost_precondition_s(const struct dlb_cost *c, int update, int kind, bool factored)
{
	double flops = rate(c, update, kind);
	struct dlb_kfac_layer l;

	if (!(flops > 0))
		return 0;
	l = dlb_kfac_layer_at(c->graph, update);
	return dlb_kfac_apply_flop(&l, c->inverse_every, factored) / flops;
}

double dlb_cost_moment_s(const struct dlb_cost *c, int update, int k, int kind, int64_t n)
{
	double flops = rate(c, update, kind);
	struct dlb_kfac_layer l;

	if (!(flops > 0))
		return 0;
	l = dlb_kfac_layer_at(c->graph, update);
	return dlb_kfac_sum_flop(&l, k, (double)dlb_kfac_use_rows(c->graph, &l, k / DLB_KFAC_FACTORS, n)) /
	       flops;
}
