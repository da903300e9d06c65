/* Weights that several ops share as layers of K-FAC: the gradients of the uses, summed in trees of all shapes,
 * make one layer; what an update then reads; and every reason why a weight is left to the plain rule. */
#include "check.h"
#include "graph/graph.h"
#include "graph/order.h"
#include "optim/kfac.h"
#include "util/rng.h"

enum { MOST = 40, IN = 6, OUT = 5 };

/* What is unlike in a model. */
enum spoilt {
	FINE,
	LACKS,
	EXTRA,
	OTHER_READER,
	OTHER_GRADIENT,
	NOT_OF_INPUT,
	OTHER_SIZE,
	SAME_INPUT,
	OTHER_BIAS,
	BIAS_READ,
	BIAS_MATRIX,
	BIAS_FIXED,
	TRANS_A,
	ALPHA,
	BETA,
	DTYPE,
	NO_SIZE,
	SAME_TERM,
	FORWARD_SUM,
	N_SPOILT
};
static const struct {
	const char *one,
		*several; /* the reason where one op reads the weight, or several do; NULL: it is a layer */
} why[N_SPOILT] = {
	[LACKS] = { NULL, "several ops read it, not all of them layers of one kind" },
	[EXTRA] = { NULL, "several ops read it, not all of them layers of one kind" },
	[OTHER_READER] = { "several ops read it, not all of them layers of one kind",
			   "several ops read it, not all of them layers of one kind" },
	[OTHER_GRADIENT] = { "its gradient is not a product of its layer's input and output gradient",
			     "several ops read it, not all of them layers of one kind" },
	[NOT_OF_INPUT] = { "its gradient is not a product of its layer's input and output gradient",
			   "several ops read it, not all of them layers of one kind" },
	[OTHER_SIZE] = { NULL, "several ops read it, with different shapes or biases" },
	[SAME_INPUT] = { NULL, "several ops read it, and the same input" },
	[OTHER_BIAS] = { NULL, "several ops read it, with different shapes or biases" },
	[BIAS_READ] = { "its layer's bias is no vector of its own",
			"its layer's bias is no vector of its own" },
	[BIAS_MATRIX] = { "its layer's bias is no vector of its own",
			  "its layer's bias is no vector of its own" },
	[BIAS_FIXED] = { "its layer's bias is no vector of its own",
			 "its layer's bias is no vector of its own" },
	[TRANS_A] = { "its Gemm is scaled or reads its input transposed",
		      "its Gemm is scaled or reads its input transposed" },
	[ALPHA] = { "its Gemm is scaled or reads its input transposed",
		    "its Gemm is scaled or reads its input transposed" },
	[BETA] = { "its Gemm is scaled or reads its input transposed",
		   "its Gemm is scaled or reads its input transposed" },
	[DTYPE] = { "its layer does not work in f32 or f64", "its layer does not work in f32 or f64" },
	[NO_SIZE] = { "the sizes of its layer are not known",
		      "several ops read it, with different shapes or biases" },
	[SAME_TERM] = { NULL, "several ops read it, and the same input" },
	[FORWARD_SUM] = { NULL, "several ops read it, not all of them layers of one kind" },
};

struct model {
	struct dlb_graph g;
	int n, w, b, dw, update, bias_update;
	int h[MOST], dy[MOST], layer[MOST], part[MOST];
	int64_t rows[MOST];
};
static int n_names;

static int tensor(struct model *m, enum dlb_tensor_kind kind, int n_dims, int64_t mul, int64_t rows,
		  int64_t columns)
{
	char name[24];

	snprintf(name, sizeof name, "t%d", n_names++);
	const int t = dlb_graph_add_tensor(&m->g, name, kind);

	m->g.tensor[t].dtype = DLB_F32;
	m->g.tensor[t].n_dims = n_dims;
	m->g.tensor[t].dim[0] = (struct dlb_dim){ mul, rows };
	m->g.tensor[t].dim[1] = (struct dlb_dim){ 0, columns };
	return t;
}

static int op(struct model *m, const char *type, enum dlb_phase phase, const int *in, int n_in, int out,
	      int of)
{
	char name[24];

	snprintf(name, sizeof name, "o%d", n_names++);
	const int o = dlb_graph_add_op(&m->g, phase,
				       &(struct dlb_op_spec){ .name = name,
							      .type = type,
							      .domain = "",
							      .in = in,
							      .n_in = n_in,
							      .out = &out,
							      .n_out = out >= 0 });

	m->g.op[o].of = of;
	return o;
}

static int sum(struct model *m, const int *part, int n, enum dlb_phase phase)
{
	const int out = tensor(m, DLB_T_WEIGHT_GRADIENT, 2, 0, OUT, IN);

	op(m, "Sum", phase, part, n, out, -1);
	return out;
}

/* Sums of sums: random numbers of neighbours at a time, until one is left. */
static int tree(struct model *m, const int *part, int n, struct dlb_rng *r, enum dlb_phase phase)
{
	int left[MOST + 1];

	memcpy(left, part, (size_t)n * sizeof *left);
	while (n > 1) {
		const int k = 2 + (int)dlb_rng_below(r, (uint64_t)n - 1),
			  at = (int)dlb_rng_below(r, (uint64_t)(n - k) + 1);

		left[at] = sum(m, left + at, k, phase);
		memmove(left + at + 1, left + at + k, (size_t)(n - at - k) * sizeof *left);
		n -= k - 1;
	}
	return left[0];
}

static struct dlb_attr *attrs_of(struct model *m, int i, enum spoilt s)
{
	struct dlb_attr *a = dlb_arena_array(&m->g.arena, 2, sizeof *a);
	const bool last = i == m->n - 1;

	a[0] = (struct dlb_attr){ .name = "transB", .type = DLB_ATTR_INT, .i = 1 };
	if (last && s == TRANS_A)
		a[1] = (struct dlb_attr){ .name = "transA", .type = DLB_ATTR_INT, .i = 1 };
	else if (last && (s == ALPHA || s == BETA))
		a[1] = (struct dlb_attr){ .name = s == ALPHA ? "alpha" : "beta",
					  .type = DLB_ATTR_REAL,
					  .f = .5 };
	else
		a[1] = (struct dlb_attr){ .name = "beta", .type = DLB_ATTR_REAL, .f = 1 };
	return a;
}

static void use(struct model *m, int i, int x, enum spoilt s)
{
	const bool last = i == m->n - 1;
	int h = tensor(m, DLB_T_ACTIVATION, 2, 1, i, IN);

	m->rows[i] = i;
	if (s == SAME_INPUT && last && i) {
		h = m->h[0];
		m->rows[i] = 0;
	} else {
		op(m, "Relu", DLB_FORWARD, &x, 1, h, -1);
	}
	const int y = tensor(m, DLB_T_ACTIVATION, 2, 1, m->rows[i], OUT),
		  bias = last && s == OTHER_BIAS ? -1 : m->b;

	if (s == NO_SIZE && last)
		m->g.tensor[y].dim[1] = (struct dlb_dim){ 1, 0 };
	if (s == OTHER_SIZE && last && i)
		m->g.tensor[y].dim[1] = (struct dlb_dim){ 0, OUT + 1 };
	if (s == DTYPE && last)
		m->g.tensor[h].dtype = DLB_BF16;
	m->h[i] = h;
	m->layer[i] = op(m, "Gemm", DLB_FORWARD, (const int[]){ h, m->w, bias }, bias < 0 ? 2 : 3, y, -1);
	m->g.op[m->layer[i]].attr = attrs_of(m, i, s);
	m->g.op[m->layer[i]].n_attr = 2;
	m->dy[i] = y; /* until there are gradients */
}

static void make(struct model *m, int n, enum spoilt s, struct dlb_rng *r)
{
	memset(m, 0, sizeof *m);
	dlb_graph_init(&m->g);
	m->n = n;
	const int x = tensor(m, DLB_T_INPUT, 2, 1, 0, IN);

	m->w = tensor(m, DLB_T_WEIGHT, 2, 0, OUT, IN);
	m->b = tensor(m, s == BIAS_FIXED ? DLB_T_CONSTANT : DLB_T_WEIGHT, s == BIAS_MATRIX ? 2 : 1, 0, OUT,
		      1);
	for (int i = 0; i < n; i++)
		use(m, i, x, s);
	if (s == OTHER_READER)
		op(m, "Relu", DLB_FORWARD, &m->w, 1, tensor(m, DLB_T_ACTIVATION, 2, 0, OUT, IN), -1);
	if (s == BIAS_READ)
		op(m, "Relu", DLB_FORWARD, &m->b, 1, tensor(m, DLB_T_ACTIVATION, 1, 0, OUT, 0), -1);
	for (int i = n - 1; i >= 0; i--) { /* the last use first, its input before or behind its gradient */
		const int dy = tensor(m, DLB_T_GRADIENT, 2, 1, m->rows[i], OUT),
			  wrong = s == NOT_OF_INPUT && i == n - 1 ? dy : m->h[i];

		op(m, "Relu", DLB_BACKWARD, &m->dy[i], 1, dy, -1);
		m->dy[i] = dy;
		m->part[i] = tensor(m, DLB_T_WEIGHT_GRADIENT, 2, 0, OUT, IN);
		op(m, s == OTHER_GRADIENT && i == n - 1 ? "MatMul" : "Gemm", DLB_BACKWARD,
		   i % 2 ? (const int[]){ dy, wrong } : (const int[]){ wrong, dy }, 2, m->part[i],
		   m->layer[i]);
	}
	int part[MOST + 1], k = s == LACKS && n > 1 ? n - 1 : n;

	for (int i = 0; i < n; i++)
		part[i] = m->part[s == SAME_TERM && i == n - 1 ? 0 : i];
	for (int i = n - 1; i > 0 && s != LACKS; i--) { /* in any order */
		const int j = (int)dlb_rng_below(r, (uint64_t)i + 1), was = part[i];

		part[i] = part[j];
		part[j] = was;
	}
	if (s == EXTRA && n > 1)
		part[k++] = m->part[0];
	m->dw = tree(m, part, k, r, s == FORWARD_SUM ? DLB_FORWARD : DLB_BACKWARD);
	const int db = tensor(m, DLB_T_WEIGHT_GRADIENT, 1, 0, OUT, 0);

	op(m, "ReduceSum", DLB_BACKWARD, &m->dy[0], 1, db, m->layer[0]);
	m->update = op(m, "Update", DLB_UPDATE, (const int[]){ m->w, m->dw }, 2, -1, m->layer[0]);
	m->g.tensor[m->w].home = m->update;
	m->bias_update = op(m, "Update", DLB_UPDATE, (const int[]){ m->b, db }, 2, -1, m->layer[0]);
	m->g.tensor[m->b].home = m->bias_update;
	dlb_graph_index(&m->g);
}

static void expect_layer(struct model *m, const struct dlb_kfac_layer *l, bool bias)
{
	int64_t rows = 0;

	assert(IS(l->update, ==, m->update) && IS(l->n_uses, ==, m->n) &&
	       IS(l->n[DLB_KFAC_A], ==, IN + bias) && IS(l->n[DLB_KFAC_G], ==, OUT) &&
	       IS(l->bias_update, ==, bias ? m->bias_update : -1));
	assert(!l->by_input && !l->conv && IS(l->groups, ==, 1));
	for (int i = 0; i < m->n; i++) { /* in the order of the ops */
		assert(IS(l->use[i].op, ==, m->layer[i]) && IS(l->use[i].x[DLB_KFAC_A], ==, m->h[i]) &&
		       IS(l->use[i].x[DLB_KFAC_G], ==, m->dy[i]));
		assert(IS(dlb_kfac_use_rows(&m->g, l, i, 7), ==, 7 + m->rows[i]));
		rows += 7 + m->rows[i];
	}
	assert(IS(dlb_kfac_rows(&m->g, l, 7), ==, rows));
}

static void one(int n, enum spoilt s, struct dlb_rng *r)
{
	struct model m;
	int n_layers;
	const char *want = n > 32 && s != OTHER_READER ? "more than 32 ops read it" :
			   n > 1                       ? why[s].several :
							 why[s].one;

	make(&m, n, s, r);
	const char *left = dlb_kfac_left(&m.g, m.update);
	assert(IS(left != NULL, ==, want != NULL) && (!want || SAME(left, want)));
	assert((s == BIAS_MATRIX || !dlb_kfac_left(&m.g, m.bias_update)) && !dlb_kfac_left(&m.g, m.layer[0]));
	for (int again = 0; again < 2; again++) {
		const struct dlb_op *u = &m.g.op[m.update];
		const bool bias = s != OTHER_BIAS;

		dlb_kfac_bind(&m.g);
		struct dlb_kfac_layer *all = dlb_kfac_layers(&m.g, &n_layers);
		assert(IS(n_layers, ==, !want) && IS(u->n_in, ==, want ? 2 : 2 + 2 * n));
		assert(IS(u->in[0], ==, m.w) && IS(u->in[1], ==, m.dw));
		assert(IS(dlb_kfac_layer_of(&m.g, m.update), ==, want ? -1 : m.update));
		assert(IS(dlb_kfac_layer_of(&m.g, m.bias_update), ==, want || !bias ? -1 : m.update));
		assert(IS(dlb_kfac_layer_of(&m.g, m.layer[0]), ==, -1));
		for (int i = 0; i < n && !want; i++) {
			assert(IS(u->in[2 + 2 * i], ==, m.h[i]) && IS(u->in[3 + 2 * i], ==, m.dy[i]));
			assert(IS(dlb_kfac_moment_of(&m.g, m.update, m.h[i]), ==, 2 * i) &&
			       IS(dlb_kfac_moment_of(&m.g, m.update, m.dy[i]), ==, 2 * i + 1));
		}
		if (!want) {
			const double side = IN + bias;

			expect_layer(&m, all, bias);
			const struct dlb_kfac_layer at = dlb_kfac_layer_at(&m.g, m.update);
			expect_layer(&m, &at, bias);
			assert(IS(dlb_kfac_state_bytes(&m.g, m.update), ==,
				  4 * (2 + n) * (side * side + OUT * OUT)));
		}
		free(all);
	}
	dlb_graph_release(&m.g);
}

int main(void)
{
	struct dlb_rng r;
	int n_models = 0;

	dlb_rng_init(&r, 11);
	for (int n = 1; n <= 9; n++)
		for (int s = 0; s < N_SPOILT; s++)
			for (int turn = 0; turn < 3; turn++, n_models++)
				one(n, (enum spoilt)s, &r);
	for (int n = 30; n <= 34; n++, n_models++)
		one(n, FINE, &r);
	printf("%d models\n", n_models);
	return 0;
}
