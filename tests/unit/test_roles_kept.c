/* Kept results of the roles of initializers: small graphs that read each in one way, what the role is or why
 * there is none, and which of them are then trained; and properties of values, against their definitions.
 * kept.h says how lines are replaced. */
#include <math.h>
#include "graph/passes.h"
#include "graph/role.h"
#include "util/patterns.h"
#include "check.h"
#include "kept.h"
#include "text_graph.h"

static const char *const kept[] = {
#include "roles_kept.inc"
};

static const uint64_t seed = 20261203;

static const char *const graphs[] = {
	/* products */
	"x[N,4] | y = MatMul(x, w[4,5])",
	"x[N,4] | y = MatMul(w[5,4], x)",
	"x[N,4] | y = Gemm(x, w[4,5], b[5])",
	"x[N,4] | y = Gemm(x, w[4,5], b[1])",
	"x[N,4] | y = MatMul(x, w[1,1])",
	"x[N,4] | y = Einsum(x, w[4,5])",
	"x[N,4,8,8] | y = Conv(x, w[2,4,3,3], b[2])",
	"x[N,4,8,8] | y = ConvTranspose(x, w[4,2,3,3], b[2])",
	"x[N,4,8,8] | y = DeformConv(x, w[4,2,3,3], o[4,2], b[2], m[3])",
	"x[N,4] | y = MatMul(v[3,4], w[4,5])",
	"x[N,4] | t = Transpose(w[5,4]); y = MatMul(x, t)",
	"x[N,4] | t = Mul(w[5,4], s[5,1]); u = Transpose(t); y = MatMul(x, u)",
	"x[N,4] | c = Concat{axis=0}(w[2,4], v[3,4]); t = Transpose(c); y = MatMul(x, t)",
	"x[N,4] | s = Slice(w[9,4], #0, #5, #0); t = Transpose(s); y = MatMul(x, t)",
	"x[N,4] | n = Shape(w[5,4]); y = Reshape(x, n)",
	"x[N,4] | n = Shape(w[5,4]); e = ConstantOfShape(n); y = MatMul(x, e)",
	"x[N,4] | p = Mul(x, w[4,5]); y = MatMul(p, p)",
	/* frequencies */
	"p[N,3]:i64 | c = Cast{to=11}(p); m = MatMul(c, f[3,4]); s = Sin(m); t = Cos(m); y = Mul(s, t)",
	"p[N,3]:i64 | c = Cast{to=11}(p); m = MatMul(c, f[3,4]); s = Sin(m); y = Mul(s, m)",
	"p[N,3]:i64 | c = Cast{to=11}(p); m = Mul(c, f[3]); u = Unsqueeze(m, #1); y = Sin(u)",
	"p[N,3]:i64 | c = Cast{to=11}(p); m = Mul(c, f[3]); n = Shape(m); y = Cos(m)",
	"p[N,3] | m = MatMul(p, f[3,4]); s = Sin(m); y = Cos(s)",
	"p[N,3]:i64 | c = Cast{to=11}(p); m = MatMul(c, f[3,4]); a = Add(m, %1.0); b = Concat{axis=1}(a, a); "
	"d = Reshape(b, #-1/4); e = Transpose(d); g = Squeeze(e); h = Expand(g, #4/1); i = Identity(h); y = "
	"Cos(i)",
	"p[N,3]:i64 | c = Cast{to=11}(p); m = MatMul(c, f[3,4]); a = Add(m, %1.0); b = Add(a, %1.0); d = "
	"Add(b, %1.0); e = Add(d, %1.0); g = Add(e, %1.0); h = Add(g, %1.0); i = Add(h, %1.0); j = Add(i, "
	"%1.0); k = Add(j, %1.0); y = Cos(k)",
	"x[N,4] | m.f = Mul(m.inv_freq[3], %2.0); y = Sin(m.f)",
	/* tables */
	"i[N,3]:i64 | y = Gather(w[5,4], i)",
	"i[N,3]:i64 | y = Gather(w[5,4], #1/2)",
	"x[N,4] | y = Gather(x, w[5])",
	"i[N,3]:i64 | t = Transpose(w[4,5]); y = Gather(t, i)",
	"i[N,1]:i64 | y = GatherND(w[5,4], i)",
	"i[N,1]:i64 | y = GatherND(w[5,4]~mask, i)",
	"i[N,1]:i64 | y = GatherND(w[5,4]~zeros, i)",
	"x[N,4] | n = NonZero(x); t = Transpose(n); y = GatherND(w[5,4]~zeros, t)",
	"x[N,4] | n = NonZero(x); t = Transpose(n); y = GatherND(w[5,4], t)",
	"x[N,4] | n = NonZero(x); t = Transpose(n); y = GatherND(w[5,4]~mask, t)",
	"i[N,3]:i64 | e = Gather(w[5,4], i); y = MatMul(e, v[4,2])",
	"i[N,3]:i64 | e = Gather(w[5,4], i); p = Gather(t[9,4], #0/1/2); y = Add(e, p)",
	/* biases */
	"x[N,4] | m = MatMul(x, w[4,5]); y = Add(m, b[5])",
	"x[N,4] | m = MatMul(x, w[4,5]); y = Add(b[5], m)",
	"x[N,4] | m = MatMul(x, w[4,5]); y = Add(m, b[1,5])",
	"x[N,4] | m = MatMul(x, w[4,5]); y = Add(m, b[2,5])",
	"x[N,4] | m = MatMul(x, w[4,5]); y = Add(m, b[1])",
	"x[N,4] | m = MatMul(x, w[4,1]); y = Add(m, b[1])",
	"x[N,4] | m = Gemm{transB=1}(x, w[1,4]); y = Add(m, b[1])",
	"x[N,4] | m = MatMul(x, w[4,5]); y = Add(m, %0.5)",
	"x[N,4] | m = MatMul(x, w[4,5]); r = Reshape(m, #-1/5); y = Add(r, b[5])",
	"x[N,4] | m = MatMul(x, w[4,5]); r = Relu(m); y = Add(r, b[5])",
	"x[N,4] | m = MatMul(x, w[4,5]); t = Mul(b[5], %2.0); y = Add(m, t)",
	"x[N,4] | m = MatMul(x, w[4,5]); y = Sub(m, b[5])",
	"x[N,4] | y = Add(x, b[4])",
	"x[N,4] | m = MatMul(x, x); y = Add(m, b[4])",
	/* normalizations */
	"x[N,4] | y = LayerNormalization(x, s[4], b[4])",
	"x[N,4] | y = RMSNormalization(x, s[4])",
	"x[N,4,3] | y = InstanceNormalization(x, s[4]~ones, b[4]~zeros)",
	"x[N,4,3] | r = Reshape(x, #0/2/-1); n = InstanceNormalization(r, s[2]~ones, b[2]~zeros); q = "
	"Reshape(n, #0/4/3); m = Mul(q, g[4,1]); y = Add(m, h[4,1])",
	"x[N,4,3] | r = Reshape(x, #0/2/-1); n = InstanceNormalization(r, s[2], b[2]); q = Reshape(n, "
	"#0/4/3); y = Mul(q, g[4,1])",
	"x[N,4,3] | r = Reshape(x, #0/2/-1); n = InstanceNormalization(r, s[2]~ones, b[2]~zeros); y = "
	"Relu(n)",
	"x[N,4,3] | y = BatchNormalization(x, s[4], b[4], m[4], v[4]~ones)",
	"x[N,4,3] | y = PRelu(x, s[4,1])",
	"x[N,4] | m = ReduceMean(x); d = Sub(x, m); p = Mul(d, d); v = ReduceMean(p); a = Add(v, %0.1); q = "
	"Sqrt(a); n = Div(d, q); t = Mul(n, s[4]); y = Add(t, b[4])",
	"x[N,4] | m = ReduceMean(x); d = Sub(x, m); p = Mul(d, d); v = ReduceMean(p); a = Add(%0.1, v); q = "
	"Sqrt(a); i = Reciprocal(q); n = Mul(d, i); t = Mul(s[4], n); y = Add(b[4], t)",
	"x[N,4] | p = Mul(x, x); v = ReduceMean(p); a = Add(v, %0.1); q = Sqrt(a); i = Div(%1.0, q); n = "
	"Mul(x, i); y = Mul(n, s[4])",
	"x[N,4] | p = Mul(x, x); v = ReduceMean(p); q = Pow(v, %-0.5); n = Mul(x, q); y = Mul(n, s[4])",
	"x[N,4] | v = ReduceL2(x); n = Div(x, v); y = Mul(n, s[4])",
	"x[N,4] | v = ReduceL2(x); c = Clip(v, %0.1); e = Expand(c, #1/4); n = Div(x, e); y = Mul(n, s[1,4])",
	"x[N,4] | v = ReduceL2(x); n = Div(x, v); y = Mul(n, s[2,4])",
	"x[N,4] | v = ReduceMean(x); q = Exp(v); n = Div(x, q); y = Mul(n, s[4])",
	"x[N,4] | q = Sqrt(x); n = Div(x, q); y = Mul(n, s[4])",
	"x[N,4] | n = LayerNormalization(x, a[4], c[4]); t = Mul(n, s[4]); y = Add(t, b[4])",
	"x[N,4] | n = LpNormalization(x); y = Add(n, b[4])",
	/* no parameters */
	"x[N,4] | y = Mul(x, s[1])",
	"x[N,4] | y = Mul(x, %0.5)",
	"x[N,4] | y = Mul(x, s[4])",
	"x[N,4] | y = Relu(x); z = Add(x, unread[4])",
	"x[N,7,4] | y = Add(x, t[7,4]~sine)",
	"x[N,7,4] | m = MatMul(x, t[7,4]~sine); y = Relu(m)",
	"x[N,3,4,2] | y = Sub(x, t[3,4,2]~grid)",
	"x[N,4,4] | y = Add(x, t[4,4]~mask)",
	"x[N,4,4] | y = Add(x, t[4,4]~huge)",
	"x[N,4,4] | y = MatMul(x, t[4,4]~huge)",
	"x[N,4,4] | y = MatMul(x, t[4,4]~mask)",
	"x[N,4] | y = Where(x, t[4], x)",
	/* masks of scores */
	"x[N,4,4] | t = Transpose{perm=0,2,1}(x); m = MatMul(x, t); a = Add(m, k[4,4]~mask); y = Softmax(a)",
	"x[N,4,4] | t = Transpose{perm=0,2,1}(x); m = MatMul(x, t); d = Div(m, %2.0); a = Add(k[4,4]~mask, "
	"d); y = Softmax(a)",
	"x[N,4,4] | m = MatMul(x, w[4,4]); a = Add(m, k[4,4]~mask); y = Softmax(a)",
	"x[N,4,4] | m = MatMul(x, w[4,4]); a = Add(m, k[4,4]); y = Softmax(a)",
	"x[N,4,4] | m = MatMul(x, w[4,4]); a = Add(m, k[4,4]); r = Relu(a); y = Softmax(a)",
	"x[N,4,4] | m = MatMul(x, x); s = Mul(%0.5, m); a = Add(s, k[4,4]); r = Relu(a); y = Tanh(r)",
	"x[N,4,4] | m = MatMul(x, x); s = Mul(m, %0.5); a = Add(s, k[4,4]); r = Relu(a); y = Tanh(r)",
	"x[N,4,4] | m = MatMul(x, x); s = Sub(m, k[4,4]); y = Softmax(s)",
	"x[N,4,4] | m = MatMul(x, x); a = Add(m, k[4,4]); b = Mul(x, k); y = Softmax(a); z = Add(b, y)",
	/* preprocessing */
	"x[N,3,4,4] | s = Sub(x, mean[3,1,1]); d = Div(s, std[3,1,1]); y = Conv(d, w[2,3,3,3])",
	"x[N,3,4,4] | s = Div(x, %255.0); t = Sub(s, m.mean[3,1,1]); d = Mul(m.std[3,1,1], t); y = Conv(d, "
	"w[2,3,3,3])",
	"x[N,3,4,4] | c = Conv(x, w[2,3,3,3]); y = Sub(c, mean[2,1,1])",
	"x[N,3,4,4] | r = Relu(x); y = Sub(r, mean[3,1,1])",
	"x[N,3,4,4] | c = Cast{to=11}(x); s = Sub(c, mean[3,1,1]); y = Sub(c, mean)",
	"x[N,3,4,4] | s = Sub(x, m.mean[3,4,1]); y = Add(s, m.mean)",
	"x[N,3] | a = Add(x, m.a[3]); b = Add(a, m.b[3]); c = Add(b, m.c[3]); d = Add(c, m.d[3]); e = Add(d, "
	"m.e[3]); f = Add(e, m.f[3]); g = Add(f, m.g[3]); h = Add(g, m.h[3]); i = Add(h, m.i[3]); j = Add(i, "
	"m.j[3]); y = Add(j, m.k[3])",
	"x[N,3] | a = Mul(x, m.a[3]); y = Mul(x, a)",
	"x[N,3] | a = Max(x, m.a[3]); y = Mul(x, a)",
	"x[N,3] | a = Sum(x, m.a[3], m.b[3]); y = Mul(x, a)",
	/* names */
	"x[N,7,4] | y = Add(x, encoder.pos_embedding[7,4])",
	"x[N,7,4] | y = Add(x, encoder.pos_embedding[7,4]~sine)",
	"x[N,7,4] | y = Add(x, encoder.mask[7,4]~mask)",
	"x[N,7,4] | y = Add(x, encoder.mask[7,4]~huge)",
	"x[N,3,4,2] | y = Add(x, encoder.points[3,4,2]~grid)",
	"x[N,7,4] | y = Add(x, encoder.scale[1])",
	"x[N,7,4] | y = Add(x, pos_embedding[7,4])",
	"x[N,7,4] | y = Add(x, onnx.Add_12[7,4])",
	"x[N,7,4] | y = Add(x, constant_12[7,4])",
	"x[N,7,4] | y = Add(x, table12[7,4])",
	"x[N,7,4] | y = Add(x, 12[7,4])",
	"x[N,7,4] | y = Add(x, .a[7,4])",
	"x[N,7,4] | y = Add(x, a.[7,4])",
	/* recurrent cells */
	"x[3,N,4] | _,y = LSTM{hidden_size=2}(x, w[1,8,4], r[1,8,2], b[1,16], -, -, -, p[1,6])",
	"x[3,N,4] | _,y = GRU{hidden_size=2}(x, w[1,6,4], r[1,6,2], b[1,12], -, h[1,1,2])",
	"x[3,N,4] | _,y = RNN{hidden_size=2}(x, w[1,2,4], r[1,2,2], b[1,4])",
	/* bodies */
	"x[N,4] | y = Loop(@3, ?1, x, w[4,5])",
	"x[N,4] | y = Loop(@3, ?1, x, w[1])",
	"x[N,4] | y = If(?1, x, w[4,5], v[4])",
	"x[N,4] | y = If(w[4,5], x)",
	"x[N,4] | y = SequenceInsert(x, w[4])",
	"x[N,4] | y = Scan(x, w[1], v[2])",
	/* no inputs */
	" | m = Gather(w[5,4], #1/2); y = MatMul(v[3,2], m)",
	" | y = MatMul(w[4,4], w)",
	/* random numbers count as samples */
	"x[N,4] | n = RandomNormal{shape=3,4}(); m = MatMul(n, w[4,5]); y = Add(m, b[5])",
	"x[N,4] | n = Bernoulli(w[3,4]); y = MatMul(n, v[4,5])",
};

static void keep_roles(const char *text, struct dlb_graph *g)
{
	struct dlb_roles r;

	dlb_roles_init(&r, g);
	for (int t = 0; t < g->n_tensors; t++) {
		const char *why = "";

		if (!dlb_role_is_candidate(g, t))
			continue;
		const bool found = dlb_role_find(&r, t, &why);
		kept_text(text);
		for (int k = 0; k < g->n_tensors; k++)
			kept_add((const int[]){ r.from[k] }, 1);
		kept_line(g->tensor[t].name, "%d%d%d%d%d %s %s", found, dlb_role_is_preprocessing(&r, t),
			  dlb_role_is_mask_of_scores(&r, t), dlb_role_is_mask(&r, t),
			  dlb_role_is_frequency(&r, t), why, strchr(text, '|') + 2);
	}
	dlb_roles_release(&r);
}

/* Which are trained, why, and what is noted, under options. */
static void keep_choice(const char *text, const char *train, const char *freeze, const char *only)
{
	struct dlb_parameter_choice c = { .train = { .what = "--parameters" },
					  .freeze = { .what = "--freeze" },
					  .train_only = { .what = "--train-only" } };
	struct dlb_error err = { .what = "" };
	struct dlb_arena a = { 0 };
	struct dlb_graph g;
	char said[400] = "";
	int n = 0;

	text_graph(&g, text, 17, seed);
	if ((train && dlb_patterns_add(&c.train, train, &a, &err)) ||
	    (freeze && dlb_patterns_add(&c.freeze, freeze, &a, &err)) ||
	    (only && dlb_patterns_add(&c.train_only, only, &a, &err)) ||
	    dlb_graph_choose_parameters(&g, &c, &err))
		n = snprintf(said, sizeof said, "%s", err.what);
	kept_text(err.hint);
	for (int t = 0; t < g.n_tensors && !*err.what; t++)
		if (dlb_role_is_candidate(&g, t) || g.tensor[t].why) {
			const struct dlb_tensor *x = &g.tensor[t];

			n += snprintf(said + n, sizeof said - (size_t)n, "%s%d%d ", x->name, x->initial,
				      x->frozen);
			kept_add((const int[]){ x->rule, g.n_untrained }, 2);
			kept_text(x->why ? x->why : "");
		}
	for (int i = 0; i < g.n_notes; i++)
		kept_text(g.note[i]);
	kept_line(train ? train : freeze ? freeze : only ? only : "chosen", "%s", said);
	dlb_graph_release(&g);
	dlb_arena_release(&a);
}

/* The exporter lists the initializers, every third one as a buffer, and what each vertex uses; `less`: not the
 * last one, but two parameters that the model does not have, of which its last vertex uses one. */
static void list(struct dlb_graph *g, bool less)
{
	int *uses = dlb_arena_array(&g->arena, (size_t)g->n_tensors + 1, sizeof *uses), n = 0;

	g->listed = dlb_arena_array(&g->arena, (size_t)g->n_tensors + 3, sizeof *g->listed);
	for (int t = 0; t < g->n_tensors; t++) {
		uses[t] = -1;
		if (!dlb_role_is_candidate(g, t) || g->tensor[t].n_dims == 0)
			continue;
		uses[t] = n;
		g->listed[n] = (struct dlb_listed){ .name = g->tensor[t].name,
						    .kind = n % 3 == 2 ? DLB_LISTED_BUFFER :
									 DLB_LISTED_PARAMETER };
		n++;
	}
	if (less && n)
		n--;
	if (less) {
		g->listed[n] = (struct dlb_listed){ .name = "lost.weight", .kind = DLB_LISTED_PARAMETER };
		g->listed[n + 1] = (struct dlb_listed){ .name = "lost.bias", .kind = DLB_LISTED_PARAMETER };
	}
	g->n_listed = n + 2 * less;
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_op *o = &g->op[i];
		int *used = dlb_arena_array(&g->arena, (size_t)o->n_in + 2, sizeof *used);

		for (int k = 0; k < o->n_in; k++)
			if (o->in[k] >= 0 && uses[o->in[k]] >= 0 && uses[o->in[k]] < n)
				used[o->n_uses++] = uses[o->in[k]];
		if (less && i == g->n_ops - 1)
			used[o->n_uses++] = n;
		o->uses = used;
		o->n_may_use = o->n_uses;
	}
}

static void keep_listed(const char *text, bool less)
{
	const struct dlb_parameter_choice all = { .train = { .n = 0 } };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	char said[400] = "";
	int n = 0;

	text_graph(&g, text, 17, seed);
	list(&g, less);
	if (dlb_graph_unmerge(&g, &err) || dlb_graph_tie(&g, false, &err) ||
	    dlb_graph_choose_parameters(&g, &all, &err))
		n = snprintf(said, sizeof said, "%s", err.what);
	for (int t = 0; t < g.n_tensors && !*err.what; t++)
		if (dlb_role_is_candidate(&g, t)) {
			const struct dlb_tensor *x = &g.tensor[t];

			n += snprintf(said + n, sizeof said - (size_t)n, "%s%d%d ", x->name, x->initial,
				      x->named_by_readers);
			kept_add((const int[]){ x->rule, g.n_untrained, g.n_ops }, 3);
			kept_text(x->why ? x->why : "");
		}
	for (int i = 0; i < g.n_ops; i++) {
		kept_text(g.op[i].type);
		kept_add(g.op[i].in, g.op[i].n_in);
	}
	for (int i = 0; i < g.n_unmerged; i++) {
		kept_text(g.unmerged[i].name);
		kept_text(g.unmerged[i].of);
	}
	for (int i = 0; i < g.n_notes; i++)
		kept_text(g.note[i]);
	kept_line(less ? "listed, but one" : "listed", "%s", said);
	dlb_graph_release(&g);
}

/* -- values -- */

static struct dlb_tensor tensor_of(const void *v, enum dlb_dtype dtype, const int64_t *dim, int n)
{
	struct dlb_tensor t = { .kind = DLB_T_CONSTANT, .dtype = dtype, .n_dims = n, .data = v };

	for (int k = 0; k < n; k++)
		t.dim[k].add = dim[k];
	return t;
}

/* Arrays of zeros but for one element or two, of every length up to 5. */
static void masks(void)
{
	for (int64_t n = 0; n <= 5; n++)
		for (int64_t i = 0; i < (n ? n : 1); i++)
			for (int64_t k = 0; k < (n ? n : 1); k++)
				for (int equal = 0; equal < 2; equal++) {
					double v[5] = { 0 };
					const struct dlb_tensor t = tensor_of(v, DLB_F64, &n, 1);
					if (n) {
						v[i] = 3;
						v[k] = equal ? 3 : 4;
					}
					assert(IS(dlb_values_mask(&t), ==, n > 1 && (i == k || equal)));
					assert(IS(dlb_values_uniform(&t), ==,
						  n == 1 || (n == 2 && i != k && equal)));
				}
	const struct dlb_tensor fill = { .is_fill = true, .n_dims = 0 };
	assert(dlb_values_uniform(&fill) && !dlb_values_mask(&fill));
}

/* One large number at every place of arrays around the length of a row of the loop. */
static void boundless(void)
{
	static float v[2100];
	static const int64_t lengths[] = { 1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 2100 };

	for (int i = 0; i < DLB_LEN(lengths); i++)
		for (int64_t at = 0; at <= lengths[i]; at += at % 1024 == 1 ? 1021 : 1) {
			const struct dlb_tensor t = tensor_of(v, DLB_F32, &lengths[i], 1);
			memset(v, 0, sizeof v);
			v[at < 2100 ? at : 2099] = at < lengths[i] ? -1.01e30f : 0;
			assert(IS(dlb_values_boundless(&t), ==, at < lengths[i]));
		}
	for (int k = 0; k < 5; k++) {
		const double sizes[] = { 1e30, 1.0000001e30, -1.0000001e30, INFINITY, 9e29 },
			     w[2] = { 0, sizes[k] };
		const int64_t two = 2;
		const struct dlb_tensor t = tensor_of(w, DLB_F64, &two, 1);
		assert(IS(dlb_values_boundless(&t), ==, k >= 1 && k <= 3));
	}
}

/* Tables of sinusoids in rows or columns, whole, or with one number changed. */
static void sinusoids(void)
{
	static double v[2 * 13 * 4];

	for (int64_t rows = 3; rows <= 13; rows++)
		for (int way = 0; way < 3; way++)
			for (int64_t changed = -1; changed < rows; changed++) {
				const int64_t columns = way == 2 ? 1 : 4,
					      dim[2] = { way == 1 ? columns : rows,
							 way == 1 ? rows : columns };
				const struct dlb_tensor t = tensor_of(v, DLB_F64, dim, 2);
				for (int64_t i = 0; i < rows; i++)
					for (int64_t c = 0; c < columns; c++) {
						double *x = &v[way == 1 ? c * rows + i : i * columns + c];
						*x = sin((double)i * (0.3 + 0.2 * (double)c) + (double)c) +
						     (c == 2 && i == changed ? 0.1 : 0);
					}
				/* what follows the twelfth row is not looked at */
				const bool whole = changed < 0 || changed >= 12;
				const bool want = way < 2 && rows >= 5 && whole;
				if (dlb_values_sinusoid(&t) != want) {
					fprintf(stderr, "%lld rows, way %d, changed %lld\n", (long long)rows,
						way, (long long)changed);
					abort();
				}
			}
	for (int i = 0; i < 24; i++)
		v[i] = i / 4; /* lines do not turn */
	const int64_t dim[2] = { 6, 4 };
	const struct dlb_tensor t = tensor_of(v, DLB_F64, dim, 2);
	assert(!dlb_values_sinusoid(&t));
}

/* (rows, columns, 2), of which one number counts rows and the other columns, or with one place changed. */
static void grids(void)
{
	double v[3 * 4 * 2];

	for (int64_t rows = 1; rows <= 3; rows++)
		for (int64_t columns = 1; columns <= 4; columns++)
			for (int way = 0; way < 2; way++)
				for (int64_t changed = -1; changed < 2 * rows * columns; changed++) {
					const int64_t dim[4] = { 1, rows, columns, 2 };
					for (int64_t i = 0; i < rows * columns; i++) {
						v[2 * i + way] = (double)(i / columns);
						v[2 * i + !way] = (double)(i % columns) + 7;
					}
					if (changed >= 0)
						v[changed] += 0.5;
					for (int n = 3; n <= 4; n++) {
						const struct dlb_tensor t = tensor_of(v, DLB_F64,
										      dim + (n == 3), n);
						const bool want = changed < 0 && rows > 1 && columns > 1;
						assert(IS(dlb_values_grid(&t), ==, want));
					}
				}
	const int64_t flat[2] = { 12, 2 }, three[4] = { 2, 2, 2, 2 };
	const struct dlb_tensor t = tensor_of(v, DLB_F64, flat, 2), u = tensor_of(v, DLB_F64, three, 4);
	assert(!dlb_values_grid(&t) && !dlb_values_grid(&u));
}

static void words(void)
{
	assert(IS(dlb_role_word("fc.bias"), ==, DLB_WORD_BIAS) &&
	       IS(dlb_role_word("bias"), ==, DLB_WORD_BIAS) &&
	       IS(dlb_role_word("r.bias_hh_l0"), ==, DLB_WORD_BIAS) &&
	       IS(dlb_role_word("a.in_proj_weight"), ==, DLB_WORD_WEIGHT) &&
	       IS(dlb_role_word("bias.weight"), ==, DLB_WORD_WEIGHT) &&
	       IS(dlb_role_word("weight.x"), ==, DLB_WORD_NONE));
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(graphs); i++) {
		struct dlb_graph g;

		text_graph(&g, graphs[i], 17, seed);
		for (int k = 0; k < g.n_ops; k++)
			g.op[k].kind = dlb_op_kind_find(g.op[k].type, "");
		keep_roles(graphs[i], &g);
		dlb_graph_release(&g);
		keep_choice(graphs[i], NULL, NULL, NULL);
		keep_listed(graphs[i], false);
		keep_listed(graphs[i], true);
	}
	for (int i = 2; i < DLB_LEN(graphs); i += 9) {
		keep_choice(graphs[i], "w", NULL, NULL);
		keep_choice(graphs[i], "?", "b", NULL);
		keep_choice(graphs[i], NULL, "w*", NULL);
		keep_choice(graphs[i], NULL, "none", NULL);
		keep_choice(graphs[i], NULL, NULL, "b");
	}
	masks();
	boundless();
	sinusoids();
	grids();
	words();
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
