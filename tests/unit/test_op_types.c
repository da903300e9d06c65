/* Every case of op_cases.h in bf16 is near the case in f32; so is the case on the back end that DLB_TEST_BACKEND
 * names, which has all operators but those with the flag DLB_OP_ON_CPU. */
#include "op_case_graph.h"

/* Runs the case in `type`, forward and backward, on values that bf16 can hold; false: refused. m has its back
 * ends. */
static bool run_rounded(const struct test_case *c, enum dlb_dtype type, struct machine *m, int *grad,
			struct built *b)
{
	struct dlb_error err = { 0 };

	twist = as_it_is;
	twist.real = type;
	twist.rounded = true;
	build(&m->g, c, b);
	const bool done = !dlb_graph_fold(&m->g, -1, &m->be, &err) &&
			  !differentiate(m, m->g.output[0], b->wanted, b->n_wanted, grad, &err) &&
			  !run_all(m, &err);
	twist = as_it_is;
	return done;
}

/* Compares a with b, in f32: within some roundings of b's largest element or, if sums cancel, of the operands,
 * which are about 1. */
struct nearness {
	const char *name;
	double within;
};

static void check_near(const struct test_case *c, struct nearness near, const struct value *a,
		       const struct value *b, int grad)
{
	const int64_t n = dlb_desc_count(&b->d);
	double most = 0;

	assert(dlb_desc_same_shape(&a->d, &b->d));
	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(dlb_value_real(b->data, b->d.dtype, i)));
	for (int64_t i = 0; i < n; i++) {
		const double got = dlb_value_real(a->data, a->d.dtype, i),
			     want = dlb_value_real(b->data, b->d.dtype, i);

		if (!(fabs(got - want) <= near.within * fmax(most, 1)) && !(isnan(got) && isnan(want)) &&
		    !(isinf(want) && got == want)) {
			fprintf(stderr, "%s (%s; %s) %s: element %lld of %s %d is %g, by the CPU in f32 %g\n",
				c->type, c->in, c->attr, near.name, (long long)i,
				grad < 0 ? "output" : "gradient", grad < 0 ? c->y : grad, got, want);
			abort();
		}
	}
}

/* Runs the case by the back ends of m in `type`, and by the CPU in f32; returns 1 if both ran, to results that
 * are near. Releases m. */
static int compare(struct dlb_backend cpu, const struct test_case *c, enum dlb_dtype type,
		   struct nearness near, struct machine *m)
{
	struct machine wide = { .be = cpu };
	int of_m[MAX_IN], of_wide[MAX_IN];
	const struct dlb_rng state = rng;
	struct built b;
	const bool one = run_rounded(c, type, m, of_m, &b);

	rng = state;
	const bool both = one && run_rounded(c, DLB_F32, &wide, of_wide, &b);
	if (both) {
		check_near(c, near, &m->v[m->g.output[0]], &wide.v[wide.g.output[0]], -1);
		for (int i = 0; i < b.n_wanted; i++)
			if (of_m[i] >= 0 && of_wide[i] >= 0)
				check_near(c, near, &m->v[of_m[i]], &wide.v[of_wide[i]], i);
	}
	machine_reset(m);
	if (one)
		machine_reset(&wide);
	return both;
}

/* The case entirely in bf16, also its parameters. */
static int run_bf16(struct dlb_backend be, const struct test_case *c)
{
	struct machine m = { .be = be };

	return compare(be, c, DLB_BF16, (struct nearness){ "in bf16", 0x1p-5 }, &m);
}

/* Runs all cases on the back end that DLB_TEST_BACKEND names, ops that it lacks on the CPU: results are near
 * the CPU's, and the ops that it lacks are those with the flag DLB_OP_ON_CPU. */
static void run_elsewhere(struct dlb_backend cpu, const char *name)
{
	struct machine m = { .spare = &cpu, .tried = dlb_xcalloc(DLB_N_OPS, sizeof *m.tried) };
	struct dlb_error err = { 0 };
	int n = 0, lacking = 0, wrong = 0;

	if (dlb_backend_open(name, 0, 1, &m.be, &err))
		dlb_bug("%s", err.what);
	for (int i = 0; i < DLB_LEN(cases); i++) {
		struct machine one = m;

		n += compare(cpu, &cases[i], DLB_F32, (struct nearness){ name, 0x1p-12 }, &one);
	}
	for (int k = 0; k < DLB_N_OPS; k++) {
		const struct dlb_op_class *c = dlb_op_class_of(k);
		const bool on_cpu = c->flags & DLB_OP_ON_CPU;

		lacking += on_cpu;
		if (on_cpu ? m.tried[k].runs > 0 : m.tried[k].lacks > 0 && !m.tried[k].runs) {
			fprintf(stderr, "%s %s DLB_OP_ON_CPU: %d kernels of %s, %d times none\n", c->name,
				on_cpu ? "has the flag" : "lacks the flag", m.tried[k].runs, name,
				m.tried[k].lacks);
			wrong++;
		}
	}
	assert(IS(wrong, ==, 0));
	free(m.tried);
	m.be.ops->close(&m.be);
	printf("%d cases run on %s as on the CPU; %d operators are the CPU's alone\n", n, name, lacking);
}

int main(void)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	const char *elsewhere = getenv("DLB_TEST_BACKEND"); /* see kernels.h */
	struct dlb_backend be;
	struct dlb_error err = { 0 };
	int n = 0;

	dlb_rng_init(&rng, 20);
	assert(ops && !ops->open(0, 1, &be, &err));
	for (int i = 0; i < DLB_LEN(cases) && !elsewhere; i++)
		n += run_bf16(be, &cases[i]);
	if (elsewhere)
		run_elsewhere(be, elsewhere);
	else
		printf("%d of %d cases run in bf16 as in f32\n", n, DLB_LEN(cases));
	ops->close(&be);
	return 0;
}
