/* Kept results of changes of a graph's types: f32 that becomes f64, but for tables of positions; f16 and bf16
 * that become f32; activations in bf16. kept.h says how lines are replaced. */
#include <jansson.h>
#include <math.h>
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "check.h"
#include "run_graph.h"
#include "kept.h"
#include "text_graph.h"

static const char *const kept[] = {
#include "types_kept.inc"
};

static struct dlb_backend be;
static const uint64_t seed = 20261204;

static const char *const wide[] = {
	"x[N,4] | y = MatMul(x, w[4,5]); z = Mul(y, %0.1)",
	"x[N,4] | y = MatMul(x, w[4,5]); z = Add(y, b[5])",
	"x[N,4] | y = Mul(x, s[1])",
	"x[N,4] | c = Cast{to=1}(x); y = Mul(c, %0.3)",
	"x[N,4] | c = Cast{to=11}(x); y = Mul(c, c)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); y = Mul(x, c)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = Mul(c, %0.1); y = Mul(x, t)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = Mul(c, f[4]); s = Sin(t); y = Mul(x, s); z = Mul(y, f)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = MatMul(c, f[4,4]); s = Cos(t); d = Cast{to=1}(s); y = "
	"Mul(x, d)",
	"x[N,4] i[N,4]:i64 | a = Add(i, #1/2/3/4); c = Cast{to=1}(a); t = Pow(c, %2.0); y = Mul(x, t); z = "
	"Add(y, t)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = Concat{axis=1}(c, c); u = Slice(t, #0, #4, #1); y = "
	"Mul(x, u)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = Mul(c, x); y = Mul(t, %0.1)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = ReduceMean(c); y = Mul(x, t)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=1}(i); t = Softmax(c); y = Mul(x, t)",
	"x[N,4] i[N,4]:i64 | c = Cast{to=11}(i); t = Mul(c, c); d = Cast{to=1}(t); y = Mul(x, d)",
	"x[N,4] i[N,4]:i64 | e = Gather(w[9,4], i); y = Mul(x, e)",
	"x[N,4] b[N,4]:bool | c = Cast{to=1}(b); y = Mul(x, c)",
	"x[N,4] | r = Range(@0, @4, @1); c = Cast{to=1}(r); t = Mul(c, %0.25); y = Add(x, t)",
	"x[N,4] | s = Shape(x); e = ConstantOfShape(s); y = Add(x, e)",
	"x[N,4] | k = Constant{value_float=0.1}(); y = Mul(x, k)",
	"x[N,4] | n = RandomNormalLike{dtype=1}(x); y = Mul(x, n)",
	"x[N,4] | n = EyeLike{dtype=1}(x); y = Mul(x, n)",
};

/* Types and values of all tensors, and attributes. */
static void keep_types(const struct dlb_graph *g)
{
	char text[40];

	for (int t = 0; t < g->n_tensors; t++) {
		const struct dlb_tensor *x = &g->tensor[t];
		const struct dlb_desc d = dlb_tensor_desc(x, 1);

		kept_text(x->name);
		kept_add((const int[]){ x->kind, x->dtype, x->initial, x->in_model }, 4);
		for (int64_t i = 0; x->data && i < dlb_desc_count(&d) && i < 40; i++) {
			snprintf(text, sizeof text, "%.17g", dlb_value_real(x->data, x->dtype, i));
			kept_text(text);
		}
	}
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];

		kept_text(o->type);
		kept_add(o->in, o->n_in);
		kept_add(o->out, o->n_out);
		for (int k = 0; k < o->n_attr; k++) {
			kept_text(o->attr[k].name);
			kept_add((const int[]){ o->attr[k].type, (int)o->attr[k].i, o->attr[k].desc.dtype },
				 3);
			if (o->attr[k].type == DLB_ATTR_TENSOR && o->attr[k].data)
				kept_real(dlb_value_real(o->attr[k].data, o->attr[k].desc.dtype, 0));
		}
	}
	for (int i = 0; i < g->n_notes; i++)
		kept_text(g->note[i]);
}

/* The reals of a graph in text, which are f64, in another type. */
static void retype(struct dlb_graph *g, enum dlb_dtype to)
{
	for (int t = 0; t < g->n_tensors; t++) {
		struct dlb_tensor *x = &g->tensor[t];
		const struct dlb_desc d = dlb_tensor_desc(x, 1);

		if (x->dtype != DLB_F64 || (x->kind != DLB_T_INPUT && x->kind != DLB_T_CONSTANT))
			continue;
		if (x->data) {
			void *v = dlb_arena_array(&g->arena, (size_t)dlb_desc_count(&d) + 1, 8);

			for (int64_t i = 0; i < dlb_desc_count(&d); i++)
				dlb_value_set(v, to, i, ((const double *)x->data)[i]);
			x->data = v;
		}
		x->dtype = to;
	}
	g->dtype = to == DLB_F16 ? DLB_F32 : to;
}

static void counts(const struct dlb_graph *g, int n[DLB_N_DTYPES])
{
	for (int t = 0; t < g->n_tensors; t++)
		n[g->tensor[t].dtype]++;
}

static void keep_wide(const char *text, bool chosen)
{
	struct dlb_parameter_choice all = { .train = { .n = 0 } };
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int n[DLB_N_DTYPES] = { 0 };

	text_graph(&g, text, 17, seed);
	retype(&g, DLB_F32);
	if (chosen && dlb_graph_choose_parameters(&g, &all, &err))
		test_die(&err);
	dlb_graph_widen(&g);
	counts(&g, n);
	keep_types(&g);
	kept_line(chosen ? "wide" : "wide, all trained", "%d f64, %d f32, %d ops %s", n[DLB_F64], n[DLB_F32],
		  g.n_ops, strchr(text, '|') + 2);
	dlb_graph_release(&g);
}

static void keep_upcast(const char *text, enum dlb_dtype from)
{
	struct dlb_graph g;
	int n[DLB_N_DTYPES] = { 0 };

	text_graph(&g, text, 17, seed);
	retype(&g, from);
	for (int i = 0; i < g.n_ops; i++)
		for (int k = 0; k < g.op[i].n_attr; k++)
			if (g.op[i].attr[k].type == DLB_ATTR_INT && g.op[i].attr[k].i == 1)
				g.op[i].attr[k].i = dlb_dtype_to_onnx(from);
	dlb_graph_upcast(&g);
	counts(&g, n);
	keep_types(&g);
	for (int i = 0; i < DLB_N_UPCAST; i++)
		kept_add((const int[]){ g.upcast[i].initializers, g.upcast[i].others }, 2);
	kept_line(dlb_dtype_name(from), "%d f32, %d %s", n[DLB_F32], n[from], strchr(text, '|') + 2);
	dlb_graph_release(&g);
}

static const char *const mixed[] = {
	"x[N,4] | h = MatMul(x, w[4,5]); r = Relu(h); y = MatMul(r, v[5,3])",
	"x[N,4] | h = Gemm(x, w[4,5], b[5]); r = Tanh(h); y = Gemm(r, v[5,3])",
	"x[N,4] | h = MatMul(x, w[4,5]); r = Softmax(h); y = MatMul(r, v[5,3])",
	"x[N,4] | h = MatMul(x, w[4,5]); n = LayerNormalization(h, s[5], b[5]); y = MatMul(n, v[5,3])",
	"x[N,4] | t = Mul(w[4,5], s[5]); h = MatMul(x, t); e = Exp(h); y = MatMul(e, v[5,3])",
	"x[N,4] | h = MatMul(x, w[4,5]); p = Pow(h, %2.0); m = ReduceMean{axes=1,}(p); y = Mul(h, m)",
	"x[N,3,8,8] | c = Conv(x, w[4,3,3,3], b[4]); r = Relu(c); p = MaxPool{kernel_shape=2,2}(r); f = "
	"Flatten(p); y = MatMul(f, v[100,3])",
	"x[N,3,8,8] | c = Conv(x, w[4,3,3,3]); n = BatchNormalization(c, s[4], b[4], m[4], q[4]~ones); g = "
	"GlobalAveragePool(n); f = Flatten(g); y = MatMul(f, v[4,3])",
	"x[N,4] | h = MatMul(x, w[4,5]); a = Add(h, h); b = Sum(a, h); c = Concat{axis=1}(a, b); y = "
	"MatMul(c, v[10,3])",
	"i[N,3]:i64 | e = Gather(w[5,4], i); h = MatMul(e, v[4,4]); y = Add(e, h)",
	"x[N,4] | h = MatMul(x, w[4,5]); c = CumSum(h, @1); y = MatMul(c, v[5,3])",
	"x[N,4] | h = MatMul(x, w[4,5]); s = Sigmoid(h); g = Greater(s, %0.5); c = Cast{to=1}(g); y = Mul(h, "
	"c)",
};

static void keep_mixed(const char *text)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int n[DLB_N_DTYPES] = { 0 };

	text_graph(&g, text, 17, seed);
	retype(&g, DLB_F32);
	g.batch = 8;
	if (dlb_graph_fold(&g, 3, &be, &err) || dlb_graph_find_parameters(&g, &err) ||
	    dlb_graph_attach_loss(&g, "mse", &err) || dlb_graph_rewrite(&g, &err) ||
	    dlb_graph_choose_layout(&g, &err) || dlb_graph_mix(&g, &err) ||
	    dlb_graph_differentiate(&g, &err) || dlb_graph_check(&g, &err)) {
		kept_line("mixed", "%s", err.what);
	} else {
		json_t *doc = dlb_graph_write(&g);

		counts(&g, n);
		kept_json(doc);
		json_decref(doc);
		kept_line("mixed", "%d bf16, %d f32, %d ops %s", n[DLB_BF16], n[DLB_F32], g.n_ops,
			  strchr(text, '|') + 2);
	}
	dlb_graph_release(&g);
}

int main(int argc, char **argv)
{
	test_backend(&be);
	for (int i = 0; i < DLB_LEN(wide); i++) {
		keep_wide(wide[i], true);
		keep_wide(wide[i], false);
		keep_upcast(wide[i], DLB_F16);
		keep_upcast(wide[i], DLB_BF16);
	}
	for (int i = 0; i < DLB_LEN(mixed); i++)
		keep_mixed(mixed[i]);
	be.ops->close(&be);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
