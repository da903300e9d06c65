/* Losses of --loss against PyTorch: the value, two elements of the gradient and the sum of its magnitudes,
 * all in float64; refused losses; and reading of labels (lib/graph/labels.h). */
#include <math.h>
#include "graph/graph.h"
#include "graph/labels.h"
#include "graph/passes.h"
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"

static struct dlb_backend be;

/* Element i of x is (37 i mod 101 - 50) / 16; of the labels, by kind: */
enum labels {
	CLASSES,		/* -100 where i mod 5 = 4, else (7 i + 3) mod c */
	TOKENS,			/* (7 i + 3) mod c */
	SHARES,			/* (13 i mod 5) / 4 */
	REALS,			/* (29 i mod 64 - 32) / 16 */
	PROBABILITIES		/* (i mod 4) / 6 */
};

/* From PyTorch 2.15: torch.nn.functional's cross_entropy, binary_cross_entropy_with_logits, mse_loss,
 * l1_loss, huber_loss, smooth_l1_loss and kl_div(reduction="batchmean"), with torch.autograd.grad. Outputs: y
 * = x, and z = x x. */
static const struct vector {
	const char *loss;
	enum labels labels;
	int64_t dim[4]; int n_dims;
	double value, grad0, grad5, sum;	/* grad5: element 5, or 1 if there are at most 5 */
} vectors[] = {
	{ "cross-entropy",
	  CLASSES,
	  { 4, 5 },
	  2,
	  2.18864109273082,
	  0.0018679120625669,
	  -0.169504433605791,
	  1.50762475828743 },
	{ "cross-entropy,smoothing=0.1",
	  CLASSES,
	  { 4, 5 },
	  2,
	  2.24645359273082,
	  -0.0031320879374331,
	  -0.149504433605791,
	  1.38408560094346 },
	{ "cross-entropy,weights=1/2/0.5/0.25/3",
	  CLASSES,
	  { 6, 5 },
	  2,
	  1.25323586539279,
	  0.000373582412513379,
	  -0.135603546884633,
	  1.14940483922194 },
	{ "cross-entropy,smoothing=0.25,weights=1/2/0.5/0.25/3",
	  CLASSES,
	  { 6, 5 },
	  2,
	  1.91857067078613,
	  -0.0092154769337219,
	  -0.0899688572370385,
	  1.16502697398359 },
	{ "cross-entropy",
	  CLASSES,
	  { 2, 3, 5 },
	  3,
	  2.60524080516013,
	  0.00149432965005352,
	  -0.135603546884633,
	  1.60051625597438 },
	{ "cross-entropy:1,smoothing=0.1",
	  CLASSES,
	  { 2, 5, 3 },
	  3,
	  1.52360438812584,
	  0.0039802402879278,
	  0.0544511172872679,
	  1.21692573903143 },
	{ "cross-entropy,weights=1/2/0.5/0.25/3",
	  CLASSES,
	  { 2, 5, 2, 3 },
	  4,
	  1.89429420176235,
	  0.000112018405996533,
	  0.0169172482016337,
	  1.26444991292183 },
	{ "next-token",
	  TOKENS,
	  { 2, 4, 7 },
	  3,
	  3.40250084636134,
	  0.000508291419752498,
	  0.0968631991517727,
	  1.75762229546403 },
	{ "next-token",
	  CLASSES,
	  { 2, 6, 7 },
	  3,
	  4.05408215200736,
	  0.000381218564814374,
	  0.0726473993638295,
	  1.88405641960153 },
	{ "next-token,smoothing=0.1",
	  TOKENS,
	  { 2, 4, 7 },
	  3,
	  3.38747108445658,
	  -0.00187266096119988,
	  0.0944822467708203,
	  1.62081187390027 },
	{ "bce",
	  SHARES,
	  { 3, 4 },
	  2,
	  1.23237145788241,
	  0.0035073106596349,
	  0.0744424505045291,
	  0.47261803185504 },
	{ "bce",
	  SHARES,
	  { 5, 1 },
	  2,
	  1.12449088263978,
	  0.00841754558312377,
	  -0.0885283966269472,
	  0.404636831841474 },
	{ "bce,pos-weight=3",
	  SHARES,
	  { 3, 4 },
	  2,
	  2.66608317861373,
	  0.0035073106596349,
	  0.0744424505045291,
	  1.03671256868731 },
	{ "bce,pos-weight=3/0.5/1/2",
	  SHARES,
	  { 3, 4 },
	  2,
	  1.65258932024105,
	  0.0035073106596349,
	  0.0744424505045291,
	  0.618547646967732 },
	{ "bce,pos-weight=3/0.5",
	  SHARES,
	  { 3, 2, 2, 2 },
	  4,
	  1.48394523018378,
	  0.00175365532981745,
	  0.0372212252522645,
	  0.5927862938564 },
	{ "mse", REALS, { 3, 4 }, 2, 4.78287760416667, -0.1875, 0.510416666666667, 3.55208333333333 },
	{ "l1", REALS, { 3, 4 }, 2, 1.77604166666667, -0.0833333333333333, 0.0833333333333333, 1 },
	{ "huber", REALS, { 3, 4 }, 2, 1.3271484375, -0.0833333333333333, 0.0833333333333333, 0.84375 },
	{ "huber:2.5", REALS, { 3, 4 }, 2, 2.140625, -0.09375, 0.208333333333333, 1.51041666666667 },
	{ "smooth-l1", REALS, { 3, 4 }, 2, 1.3271484375, -0.0833333333333333, 0.0833333333333333, 0.84375 },
	{ "smooth-l1:0.4",
	  REALS,
	  { 3, 4 },
	  2,
	  1.58391927083333,
	  -0.0833333333333333,
	  0.0833333333333333,
	  0.942708333333333 },
	{ "smooth-l1:0", REALS, { 3, 4 }, 2, 1.77604166666667, -0.0833333333333333, 0.0833333333333333, 1 },
	{ "kl", PROBABILITIES, { 3, 4 }, 2, -0.257932042485129, -0, -0.0555555555555556, 1 },
	{ "y=mse*0.25",
	  REALS,
	  { 3, 4 },
	  2,
	  1.19571940104167,
	  -0.046875,
	  0.127604166666667,
	  0.888020833333333 },
	{ "y=l1*2 z=huber:2.5",
	  REALS,
	  { 3, 4 },
	  2,
	  11.0722274780273,
	  -1.46875,
	  1.05208333333333,
	  8.77571614583333 },
};

static double label(enum labels kind, int64_t i, int64_t c)
{
	switch (kind) {
	case CLASSES: return i % 5 == 4 ? -100 : (double)((7 * i + 3) % c);
	case TOKENS: return (double)((7 * i + 3) % c);
	case SHARES: return (double)(13 * i % 5) / 4;
	case REALS: return (double)(29 * i % 64 - 32) / 16;
	case PROBABILITIES: return (double)(i % 4) / 6;
	}
	return NAN;
}

/* x, with outputs y and z. */
static int two_outputs(struct dlb_graph *g, const int64_t *dim, int n_dims)
{
	begin_graph(g, 17);
	const int x = sample_input(g, DLB_F64, dim, n_dims);
	const int y = op(g, "Identity", &x, 1, NULL, 0), z = op(g, "Mul", (const int[]){ x, x }, 2, NULL, 0);
	g->tensor[y].name = "y";
	g->tensor[z].name = "z";
	g->output[g->n_outputs++] = y;
	g->output[g->n_outputs++] = z;
	return x;
}

static int fold(struct dlb_graph *g, const char *text, struct dlb_error *err)
{
	char copy[100], *item = copy;
	const char *losses[4];
	int n = 0;

	snprintf(copy, sizeof copy, "%s", text);
	for (char *rest = copy; (item = strtok_r(rest, " ", &rest)) && n < 4;)
		losses[n++] = item;
	return dlb_graph_fold(g, 4, &be, err) || dlb_graph_attach_losses(g, losses, n, err) ? -1 : 0;
}

static void near(const struct vector *v, const char *what, double is, double should)
{
	if (fabs(is - should) <= 1e-13 + 1e-12 * fabs(should))
		return;
	fprintf(stderr, "%s: %s is %.15g, PyTorch says %.15g\n", v->loss, what, is, should);
	abort();
}

static void compare(const struct vector *v)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	struct test_run r;
	const int x = two_outputs(&g, v->dim, v->n_dims);
	int64_t n = 1, classes;
	double sum = 0;
	int grad;

	if (fold(&g, v->loss, &err) || dlb_graph_differentiate_from(&g, g.loss, g.seed, &x, 1, &grad, &err))
		test_die(&err);
	test_run_init(&r, &g, &be, v->dim[0]);
	for (int i = 0; i < v->n_dims; i++)
		n *= v->dim[i];
	for (int64_t i = 0; i < n; i++)
		((double *)r.value[x])[i] = (double)(i * 37 % 101 - 50) / 16;
	for (int k = 0; k < g.n_inputs; k++) {
		const struct dlb_tensor *t = &g.tensor[g.input[k]];
		const struct dlb_desc d = dlb_tensor_desc(t, v->dim[0]);
		classes = t->bound;
		for (int64_t i = 0; t->kind == DLB_T_LABEL && i < dlb_desc_count(&d); i++)
			dlb_value_set(r.value[g.input[k]], t->dtype, i, label(v->labels, i, classes));
	}
	test_run_phase(&r, DLB_FORWARD);
	test_run_phase(&r, DLB_BACKWARD);
	const double *dx = r.value[grad];
	near(v, "the loss", dlb_value_real(r.value[g.loss], DLB_F64, 0), v->value);
	near(v, "gradient 0", dx[0], v->grad0);
	near(v, "gradient 5", dx[n > 5 ? 5 : 1], v->grad5);
	for (int64_t i = 0; i < n; i++)
		sum += fabs(dx[i]);
	near(v, "the gradient's magnitude", sum, v->sum);
	test_run_release(&r);
	dlb_graph_release(&g);
}

static void refused(const char *loss, const char *said)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	two_outputs(&g, (const int64_t[]){ 3, 4 }, 2);
	if (fold(&g, loss, &err) == 0 || (!strstr(err.what, said) && !strstr(err.hint, said))) {
		fprintf(stderr, "--loss %s: %s; %s\n", loss, err.what, err.hint);
		abort();
	}
	dlb_graph_release(&g);
}

/* Which labels of a sample a loss counts, with ops between labels and loss. */
static void uses(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_arena a = { 0 };
	struct dlb_label_use use;
	struct dlb_graph g;

	two_outputs(&g, (const int64_t[]){ 2, 4, 7 }, 3);
	assert(!fold(&g, "next-token,weights=1/2/3/4/5/6/7", &err));
	assert(dlb_graph_label_use(&g, g.label, &a, &use) && use.has_ignore && IS(use.ignore, ==, -100) &&
	       IS(use.classes, ==, 7) && IS(use.n, ==, 4));
	assert(use.next_token && use.shifted && !use.counted[0] && use.counted[1] && use.counted[2] &&
	       use.counted[3]);
	assert(use.weight && IS(use.weight[6], ==, 7) && IS(dlb_graph_count_losses(&g), ==, 1));
	dlb_graph_release(&g);

	two_outputs(&g, (const int64_t[]){ 2, 4, 7 }, 3); /* classes last: the labels go through a Reshape */
	assert(!fold(&g, "y=cross-entropy z=mse", &err) && IS(dlb_graph_count_losses(&g), ==, 2));
	assert(dlb_graph_label_use(&g, g.label, &a, &use) && use.has_ignore && IS(use.classes, ==, 7) &&
	       !use.shifted && use.counted[0] && !use.weight);
	assert(SAME(g.tensor[g.input[1]].name, "y.label") && SAME(g.tensor[g.input[2]].name, "z.label"));
	assert(dlb_graph_label_use(&g, g.input[2], &a, &use) && !use.has_ignore && IS(use.n, ==, 28));
	assert(!dlb_graph_label_use(&g, g.input[0], &a, &use));
	dlb_graph_release(&g);
	dlb_arena_release(&a);
}

int main(void)
{
	test_backend(&be);
	for (int i = 0; i < DLB_LEN(vectors); i++)
		compare(&vectors[i]);
	refused("cross-entrpy", "did you mean 'cross-entropy'");
	refused("w=mse", "no output 'w'");
	refused("mse:2", "belongs to cross-entropy, huber");
	refused("huber:0", "more than 0");
	refused("huber:x", "'x' is not a number");
	refused("cross-entropy:1.5", "whole number");
	refused("cross-entropy,smoothing=1", "1 excluded");
	refused("cross-entropy,weights=1/2", "output has 4 classes");
	refused("cross-entropy,weights=1/-2/1/1", "not negative");
	refused("bce,smoothing=0.1", "bce has no option 'smoothing'");
	refused("bce,pos-weight=1/2/3", "neither 1 nor");
	refused("mse*0", "factor is more than 0");
	refused("next-token", "samples, positions and tokens");
	refused("y=mse none", "beside other losses");
	uses();
	be.ops->close(&be);
	printf("losses: %d beside PyTorch's, refusals, labels\n", DLB_LEN(vectors));
	return 0;
}
