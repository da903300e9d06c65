/* Which layers K-FAC knows, and what they cost. See kfac.h. */
#include "optim/kfac.h"
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

const char *const dlb_kfac_names[DLB_KFAC_FACTORS] = { [DLB_KFAC_A] = "A", [DLB_KFAC_G] = "G" };

static double attr_real(const struct dlb_op *o, const char *name, double otherwise)
{
	const struct dlb_attr *a = dlb_attr_find(o->attr, o->n_attr, name);

	return !a ? otherwise : a->type == DLB_ATTR_INT ? (double)a->i : a->f;		/* jq writes 1.0 as 1 */
}

static int64_t attr_int(const struct dlb_op *o, const char *name)
{
	const struct dlb_attr *a = dlb_attr_find(o->attr, o->n_attr, name);

	return a ? a->i : 0;
}

static int update_of(const struct dlb_graph *g, int weight)
{
	int home = weight < 0 || g->tensor[weight].kind != DLB_T_WEIGHT ? -1 : g->tensor[weight].home;

	return home >= 0 && g->op[home].phase == DLB_UPDATE && g->op[home].in[0] == weight ? home : -1;
}

/* How often an op of the forward phase reads tensor t. */
static int readers(const struct dlb_graph *g, int t)
{
	int n = 0;

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		n += g->op[g->reader[r]].phase == DLB_FORWARD;
	return n;
}

static bool is_matrix(const struct dlb_tensor *t)
{
	return t->n_dims == 2 && t->dim[1].mul == 0 && t->dim[1].add > 0;
}

/* Forward op `op` as a layer; false: it is none that K-FAC knows. */
static bool match(const struct dlb_graph *g, int op, struct dlb_kfac_layer *l)
{
	const struct dlb_op *o = &g->op[op], *make;
	const int w = o->n_in > 1 ? o->in[1] : -1, b = o->n_in > 2 ? o->in[2] : -1;
	enum dlb_dtype type;
	int dw, dy = -1;

	if (o->phase != DLB_FORWARD || strcmp(o->type, "Gemm") || w < 0 || o->in[0] < 0 || attr_int(o, "transA") ||
	    attr_real(o, "alpha", 1) != 1 || attr_real(o, "beta", 1) != 1)
		return false;
	*l = (struct dlb_kfac_layer){ .update = update_of(g, w), .bias_update = update_of(g, b), .by_input = !attr_int(o, "transB") };
	if (l->update < 0 || readers(g, w) != 1 || !is_matrix(&g->tensor[o->in[0]]) || !is_matrix(&g->tensor[o->out[0]]) ||
	    g->tensor[o->in[0]].producer < 0 || (b >= 0 && (l->bias_update < 0 || readers(g, b) != 1 || g->tensor[b].n_dims != 1)))
		return false;
	dw = g->op[l->update].in[1];
	make = &g->op[g->tensor[dw].producer];
	if (make->phase != DLB_BACKWARD || make->of != op || strcmp(make->type, "Gemm") || make->n_in < 2)
		return false;
	for (int k = 0; k < 2; k++)
		if (make->in[1 - k] == o->in[0])
			dy = make->in[k];
	if (dy < 0 || g->tensor[dy].producer < 0 || !is_matrix(&g->tensor[dy]))
		return false;
	type = g->tensor[w].dtype;
	if ((type != DLB_F32 && type != DLB_F64) || g->tensor[o->in[0]].dtype != type || g->tensor[dy].dtype != type)
		return false;
	l->x[0] = o->in[0];
	l->x[1] = dy;
	l->n[0] = g->tensor[o->in[0]].dim[1].add + (b >= 0);
	l->n[1] = g->tensor[dy].dim[1].add;
	return true;
}

struct dlb_kfac_layer *dlb_kfac_layers(const struct dlb_graph *g, int *n)
{
	struct dlb_kfac_layer *all = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *all);

	*n = 0;
	for (int op = 0; op < g->n_ops; op++)
		*n += match(g, op, &all[*n]);
	return all;
}

void dlb_kfac_bind(struct dlb_graph *g)
{
	struct dlb_kfac_layer *all;
	int n;

	dlb_graph_index(g);
	all = dlb_kfac_layers(g, &n);
	for (int i = 0; i < n; i++) {
		struct dlb_op *o = &g->op[all[i].update];
		int *in;

		if (o->n_in > 2)
			continue;
		in = dlb_arena_array(&g->arena, 4, sizeof *in);
		memcpy(in, o->in, 2 * sizeof *in);
		memcpy(in + 2, all[i].x, 2 * sizeof *in);
		o->in = in;
		o->n_in = 4;
	}
	free(all);
	dlb_graph_index(g);
}

int dlb_kfac_factor_of(const struct dlb_graph *g, int update, int tensor)
{
	const struct dlb_op *o = &g->op[update];

	for (int k = 2; k < o->n_in; k++)
		if (o->in[k] == tensor)
			return k - 2;
	return -1;
}

/* The op of the forward phase that reads a weight; -1: none. */
static int reader_of(const struct dlb_graph *g, int weight)
{
	for (int r = g->reader_start[weight]; r < g->reader_start[weight + 1]; r++)
		if (g->op[g->reader[r]].phase == DLB_FORWARD)
			return g->reader[r];
	return -1;
}

int dlb_kfac_layer_of(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	int op, home;

	if (o->phase != DLB_UPDATE || o->n_in < 2 || o->in[0] < 0)
		return -1;
	if (o->n_in > 2)
		return update;
	op = reader_of(g, o->in[0]);
	if (op < 0 || g->op[op].n_in < 3 || g->op[op].in[2] != o->in[0])	/* a bias: of a layer whose weight is bound? */
		return -1;
	home = update_of(g, g->op[op].in[1]);
	return home >= 0 && g->op[home].n_in > 2 ? home : -1;
}

struct dlb_kfac_layer dlb_kfac_layer_at(const struct dlb_graph *g, int update)
{
	struct dlb_kfac_layer l;

	if (!match(g, reader_of(g, g->op[update].in[0]), &l))
		dlb_bug("update %d is of no layer", update);
	return l;
}

double dlb_kfac_state_bytes(const struct dlb_graph *g, int update)
{
	const struct dlb_kfac_layer l = dlb_kfac_layer_at(g, update);
	double elements = 0;

	for (int k = 0; k < DLB_KFAC_FACTORS; k++)
		elements += 3 * (double)l.n[k] * (double)l.n[k];
	return elements * (double)dlb_dtype_bytes(g->tensor[l.x[DLB_KFAC_A]].dtype);
}

double dlb_kfac_sum_flop(const struct dlb_kfac_layer *l, int k, double rows)
{
	return rows * (double)l->n[k] * (double)l->n[k];	/* a triangle */
}

double dlb_kfac_apply_flop(const struct dlb_kfac_layer *l, double inverse_every, bool factored)
{
	double a = (double)l->n[DLB_KFAC_A], g = (double)l->n[DLB_KFAC_G];

	double inverse = 2 * (a * a * a + g * g * g) * (factored ? 2 : 3) / 3;		/* potri 2 n^3 / 3, potrf n^3 / 3 */

	return 2 * a * g * (a + g) + inverse / inverse_every;
}

int dlb_optimizer_bind(struct dlb_graph *g, int rule, struct dlb_error *err)
{
	struct dlb_kfac_layer *all;
	int n;

	if (rule != DLB_RULE_KFAC)
		return 0;
	dlb_kfac_bind(g);
	all = dlb_kfac_layers(g, &n);
	free(all);
	if (n)
		return 0;
	dlb_fail(err, "/run/optimizer/name", "kfac knows no layer of this model: it has no Gemm of f32 or f64 with a weight of its own");
	return dlb_hint(err, "take another optimizer");
}
