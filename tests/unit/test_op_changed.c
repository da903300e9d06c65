/* Every case of op_cases.h with empty dimensions, without one operand, and with integers at the ends of their
 * range: it runs, or is refused with a message. */
#include "op_case_graph.h"

enum { MAX_BYTES = 1 << 20 };

static double bytes_of(const struct dlb_graph *g)
{
	double sum = 0;

	for (int t = 0; t < g->n_tensors; t++)
		sum += dlb_tensor_bytes(&g->tensor[t], 1);
	return sum;
}

/* Returns 1 if the case ran to its end. */
static int run_twisted(struct dlb_backend be, const struct test_case *c)
{
	struct machine m = { .be = be };
	struct dlb_error err = { 0 };
	int grad[MAX_IN], done = 0;
	struct built b;

	build(&m.g, c, &b);
	const bool made = !dlb_graph_fold(&m.g, -1, &m.be, &err);
	for (int i = 0; i < m.g.n_inputs; i++)
		b.wanted[i] = m.g.input[i];
	if (made && bytes_of(&m.g) < MAX_BYTES &&
	    !differentiate(&m, m.g.output[0], b.wanted, m.g.n_inputs, grad, &err))
		done = bytes_of(&m.g) >= MAX_BYTES || !run_all(&m, &err);
	if (!done && !err.what[0] && bytes_of(&m.g) < MAX_BYTES)
		fprintf(stderr, "%s (%s; %s): refused without a word\n", c->type, c->in, c->attr);
	assert(done || err.what[0] || bytes_of(&m.g) >= MAX_BYTES);
	machine_reset(&m);
	return done;
}

static int run_twists(struct dlb_backend be, const struct test_case *c)
{
	static const int64_t ends[] = { INT64_MAX, INT64_MIN, INT32_MAX, INT64_C(1) << 40, -1, 0 };
	static const enum dlb_dtype types[] = { DLB_F64, DLB_F32, DLB_BF16 };
	int done = 0;

	for (int i = 0; i < DLB_LEN(types); i++) {
		twist = as_it_is;
		twist.real = types[i];
		done += run_twisted(be, c);
		for (twist.at = -1; twist.at < 4; twist.at++)
			for (twist.gone = 1; twist.gone < 10; twist.gone++)
				done += run_twisted(be, c);
		twist.gone = as_it_is.gone;
		for (twist.absent = 0; twist.absent < MAX_IN; twist.absent++)
			done += run_twisted(be, c);
		twist.absent = as_it_is.absent;
		for (twist.odd = 0; twist.odd < MAX_IN + MAX_ATTR; twist.odd++)
			for (int k = 0; k < DLB_LEN(ends); k++) {
				twist.value = ends[k];
				done += run_twisted(be, c);
			}
	}
	twist = as_it_is;
	return done;
}

int main(void)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	struct dlb_backend be;
	struct dlb_error err = { 0 };
	int n = 0;

	dlb_rng_init(&rng, 20);
	assert(ops && !ops->open(0, 1, &be, &err));
	for (int i = 0; i < DLB_LEN(cases); i++)
		n += run_twists(be, &cases[i]);
	ops->close(&be);
	printf("%d changed cases ran, the others were refused\n", n);
	return 0;
}
