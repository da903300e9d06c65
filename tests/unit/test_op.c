/* Walks the table of operators: every class is found by its name, infers shapes, and has a kernel or a reason
 * for having none; every class with a gradient has a case (op_cases.h), whose gradient is compared with central
 * differences in double. */
#include "op_case_graph.h"

/* Classes without a kernel, and the reasons. */
static const struct { const char *type, *why; } no_kernel[] = {
	{ "Update", "the executor makes it, through the back end's update" },
};

static const char *const works[] = { "conv",   "dense", "pool", "norm",   "activation", "elementwise",
				     "reduce", "loss",  "move", "update", "other" };

/* -- gradients -- */

static void die(const struct test_case *c, const struct dlb_error *err)
{
	fprintf(stderr, "%s (%s; %s):\n", c->type, c->in, c->attr);
	dlb_error_print(stderr, "test_op", -1, err);
	abort();
}

/* sum(y * cotangent) */
static double objective(struct machine *m, const struct test_case *c, int y, int op)
{
	struct dlb_error err = { 0 };
	struct dlb_desc plain;
	int64_t stride[DLB_MAX_DIMS];
	double sum = 0;

	if (run_op(m, op, &err))
		die(c, &err);
	dlb_desc_strides(&m->v[y].d, stride);
	plain = m->v[y].d;
	for (int64_t i = 0; i < dlb_desc_count(&plain); i++) {
		int64_t at = 0, rest = i;

		for (int d = plain.n_dims - 1; d >= 0; d--) {
			at += rest % plain.dim[d] * stride[d];
			rest /= plain.dim[d];
		}
		sum += weight_of(i) * dlb_value_real(m->v[y].data, DLB_F64, at);
	}
	return sum;
}

static void forget(struct machine *m, int op)	/* frees outputs of op, so that they are computed again */
{
	for (int i = 0; i < m->g.op[op].n_out; i++)
		if (m->g.op[op].out[i] >= 0) {
			free(m->v[m->g.op[op].out[i]].data);
			m->v[m->g.op[op].out[i]].data = NULL;
		}
}

static int check_gradients(struct machine *m, const struct test_case *c, const int *wanted, const int *grad,
			   int n, int y)
{
	int checked = 0;

	for (int i = 0; i < n; i++) {
		struct value *x = &m->v[wanted[i]], *dx = grad[i] < 0 ? NULL : &m->v[grad[i]];

		for (int64_t j = 0; j < dlb_desc_count(&x->d); j++, checked++) {
			double *e = &((double *)x->data)[j], was = *e, h = 1e-6, up, down;
			double got = dx ? dlb_value_real(dx->data, DLB_F64, j) : 0, want;

			*e = was + h;
			forget(m, 0);
			up = objective(m, c, y, 0);
			*e = was - h;
			forget(m, 0);
			down = objective(m, c, y, 0);
			*e = was;
			want = (up - down) / (2 * h);
			if (!(fabs(got - want) <= 1e-6 + 1e-6 * fabs(want))) {
				fprintf(stderr,
					"%s (%s; %s): gradient %lld of input %d is %.12g, central difference "
					"%.12g\n",
					c->type, c->in, c->attr, (long long)j, i, got, want);
				abort();
			}
		}
	}
	return checked;
}

static int run_case(struct dlb_backend be, const struct test_case *c)
{
	struct machine m = { .be = be };
	struct dlb_error err = { 0 };
	struct built b;
	int grad[MAX_IN], n, y;

	build(&m.g, c, &b);
	if (dlb_graph_fold(&m.g, -1, &m.be, &err))
		die(c, &err);
	assert(IS(m.g.n_ops, ==, 1));
	y = m.g.output[0];
	assert(IS(m.g.op[0].flop, >=, 0) && IS(m.g.op[0].bytes, >, 0));
	for (int i = 0; i < m.g.n_inputs; i++)
		b.wanted[i] = m.g.input[i];
	if (differentiate(&m, y, b.wanted, b.n_wanted, grad, &err) || run_all(&m, &err))
		die(c, &err);
	n = check_gradients(&m, c, b.wanted, grad, b.n_wanted, y);
	machine_reset(&m);
	return n;
}

/* -- the table -- */

static bool named(const char *const *list, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(list[i], name))
			return true;
	return false;
}

static void check_class(int kind)
{
	const struct dlb_op_class *c = dlb_op_class_of(kind);
	bool tested = !c->gradient, excused = c->kernel != NULL;

	assert(IS(dlb_op_kind_find(c->name, c->domain), ==, kind));
	assert(c->infer);
	if (!c->domain && strcmp(c->name, "Constant") && !dlb_op_attributes_known(c->name)) {
		fprintf(stderr, "%s has no row in attributes.c\n", c->name);
		abort();
	}
	assert(IS(c->n_in[0], >=, 0) && (c->n_in[1] < 0 || c->n_in[1] >= c->n_in[0]));
	assert(IS(c->n_out[0], >=, 0) && (c->n_out[1] < 0 || c->n_out[1] >= c->n_out[0]));
	assert(named(works, DLB_LEN(works), dlb_op_work(c->name)));
	for (int i = 0; i < DLB_LEN(no_kernel); i++)
		excused |= !strcmp(no_kernel[i].type, c->name);
	if (!excused)
		fprintf(stderr, "%s has no kernel\n", c->name);
	assert(excused);
	for (int i = 0; i < DLB_LEN(cases); i++)
		tested |= !strcmp(cases[i].type, c->name);
	if (!tested)
		fprintf(stderr, "%s has a gradient that no case tests\n", c->name);
	assert(tested);
	for (int k = 0; k < kind; k++)		/* backward ops are found by name alone */
		if (c->domain && !strcmp(c->domain, "dlb"))
			assert(strcmp(dlb_op_class_of(k)->name, c->name));
}

/* Attributes that an operator does not have at an opset are refused by name. */
static void check_attributes(void)
{
	const struct dlb_attr axes = { .name = "axes", .type = DLB_ATTR_INTS },
			      keep = { .name = "keepdim", .type = DLB_ATTR_INT };
	const struct dlb_attr alpha = { .name = "alpha", .type = DLB_ATTR_STR, .s = "1" },
			      whole = { .name = "alpha", .type = DLB_ATTR_INT };
	struct dlb_error err = { 0 };

	assert(!dlb_op_check_attributes("ReduceMax", 13, &axes, 1, &err) &&
	       dlb_op_check_attributes("ReduceMax", 18, &axes, 1, &err));
	assert(SAME(err.what, "attribute 'axes' belongs to opsets up to 17") && err.hint[0]);
	assert(dlb_op_check_attributes("ReduceMax", 13, &keep, 1, &err) &&
	       SAME(err.what, "the operator has no attribute 'keepdim'"));
	assert(SAME(err.hint, "did you mean 'keepdims'?"));
	assert(dlb_op_check_attributes("Relu", 13, &alpha, 1, &err) &&
	       !dlb_op_check_attributes("not of ONNX", 13, &alpha, 1, &err));
	assert(dlb_op_check_attributes("Elu", 13, &alpha, 1, &err) &&
	       SAME(err.what, "attribute 'alpha' is a string, not a real number"));
	assert(!dlb_op_check_attributes("Elu", 13, &whole, 1, &err) &&
	       !dlb_op_check_attributes("Relu", 13, NULL, 0, &err));
	assert(dlb_op_check_attributes("Concat", 13, NULL, 0, &err) &&
	       SAME(err.what, "attribute 'axis' is missing"));
}

int main(void)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	struct dlb_backend be;
	struct dlb_error err = { 0 };
	uint64_t seed = 20;
	int n = 0;

	twist = as_it_is;
	dlb_rng_init(&rng, seed);
	assert(ops && !ops->open(0, 1, &be, &err));
	for (int i = 0; i < DLB_N_OPS; i++)
		check_class(i);
	check_attributes();
	assert(IS(dlb_op_kind_find("Relu", "ai.onnx"), ==, DLB_OP_Relu) &&
	       IS(dlb_op_kind_find("Relu", "x"), <, 0));
	assert(IS(dlb_op_kind_find("Adam", "ai.onnx.preview.training"), ==, DLB_OP_TrainingAdam) &&
	       IS(dlb_op_kind_find("Adam", ""), <, 0));
	assert(SAME(dlb_op_work("Conv2D"), "conv") && SAME(dlb_op_work("no such"), "other"));
	for (int i = 0; i < DLB_LEN(cases); i++)
		n += run_case(be, &cases[i]);
	ops->close(&be);
	printf("%d classes, %d cases, %d gradient elements against central differences (seed %llu)\n",
	       DLB_N_OPS, DLB_LEN(cases), n, (unsigned long long)seed);
	return 0;
}
