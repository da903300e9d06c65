/* Every case of op_cases.h and op_plain_cases.h, and the same with one thing changed: a dimension or an
 * integer by one, a real number, a dimension or an entry more or less, an operand or attribute left out,
 * another type, a letter of a string, more outputs, the output that is differentiated, the opset. What
 * comes of it, the refusal word for word or FLOP and bytes of every op and all values of outputs and
 * gradients to 17 bits, is compared with tests/data/op-variants, which has one line for each case: how
 * many variants ran, how many were refused, and a checksum of all; so is what the backward ops infer if
 * one operand changes. In f32 the results are near those in f64.
 *
 *     test_op_variants -w >tests/data/op-variants	writes them again, after an intended change
 *     test_op_variants -v [TYPE]			prints the variants */
#include "op_case_graph.h"
#include "op_plain_cases.h"

enum { WORDS = 12, CHARS = 96, LINES = 1 << 20 };

struct words {
	char w[WORDS][CHARS];
	int n;
};

/* The case that is varied, and what came of its variants. */
static struct varied {
	struct test_case c; /* opset, outputs and type of the variant */
	struct words in, attr;
	struct dlb_backend be;
	char *text; /* a line for each variant */
	size_t n_text;
	bool training, tried;
	int ran, refused;
} now;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	now.n_text += (size_t)vsnprintf(now.text + now.n_text, LINES - now.n_text, fmt, ap);
	va_end(ap);
	assert(IS(now.n_text, <, LINES));
}

static uint64_t mixed(uint64_t sum, const void *p, size_t n) /* FNV-1a */
{
	for (size_t i = 0; i < n; i++)
		sum = (sum ^ ((const unsigned char *)p)[i]) * UINT64_C(1099511628211);
	return sum;
}

/* -- results -- */

/* x to 17 bits, but not finer than 2^-20. */
static int64_t digits_of(double x)
{
	int two;

	if (isnan(x) || isinf(x))
		return isnan(x) ? INT64_MAX : x > 0 ? INT64_MAX - 1 : INT64_MAX - 2;
	frexp(x, &two);
	two = two - 17 > -20 ? two - 17 : -20;
	return (int64_t)nearbyint(ldexp(x, -two)) * 64 + (two + 20) % 64;
}

static uint64_t values_sum(uint64_t sum, const struct value *v)
{
	int64_t stride[DLB_MAX_DIMS];

	dlb_desc_strides(&v->d, stride);
	for (int64_t i = 0; i < dlb_desc_count(&v->d); i++) {
		int64_t at = 0, rest = i, digits;

		for (int d = v->d.n_dims - 1; d >= 0; d--) {
			at += rest % v->d.dim[d] * stride[d];
			rest /= v->d.dim[d];
		}
		digits = digits_of(dlb_value_real(v->data, v->d.dtype, at));
		sum = mixed(sum, &digits, sizeof digits);
	}
	return sum;
}

/* Names, types and shapes of what the ops made, their FLOP and bytes, and a checksum of the values. */
static void say_results(const struct machine *m)
{
	char text[128];
	uint64_t sum = 20;

	for (int o = 0; o < m->g.n_ops; o++) {
		const struct dlb_op *op = &m->g.op[o];

		say(" %s %.9g/%.9g", op->type, op->flop, op->bytes);
		for (int i = 0; i < op->n_out; i++)
			if (op->out[i] >= 0 && m->v[op->out[i]].data) {
				say(" %s", dlb_desc_str(&m->v[op->out[i]].d, text, sizeof text));
				sum = values_sum(sum, &m->v[op->out[i]]);
			}
	}
	if (!m->g.n_ops && m->v[m->g.output[0]].data) {
		say(" %s", dlb_desc_str(&m->v[m->g.output[0]].d, text, sizeof text));
		sum = values_sum(sum, &m->v[m->g.output[0]]);
	}
	say(" %08x\n", (unsigned)(sum >> 32 ^ sum));
}

/* Builds the variant in `real` and runs it, with its gradient if it has one; grad[] are ids of gradients.
 * Returns what refused it, or NULL. */
static const char *run_variant(const struct test_case *c, enum dlb_dtype real, struct machine *m,
			       struct built *b, int *grad, struct dlb_error *err)
{
	dlb_rng_init(&rng, 20);
	twist = as_it_is;
	twist.real = real;
	build(&m->g, c, b);
	m->g.training = now.training;
	if (dlb_graph_fold(&m->g, -1, &m->be, err))
		return "inference";
	const bool backward = m->g.n_ops == 1 && b->n_wanted && dlb_op_class_of(m->g.op[0].kind)->gradient &&
			      !dlb_dtype_is_int(m->g.tensor[m->g.output[0]].dtype);
	for (int i = 0; i < b->n_wanted; i++) {
		b->wanted[i] = m->g.input[i];
		grad[i] = -1;
	}
	if (backward && differentiate(m, m->g.output[0], b->wanted, b->n_wanted, grad, err))
		return "gradient";
	machine_values(m);
	return run_all(m, err) ? "kernel" : NULL;
}

/* What a backward op infers from its operands, of which one is changed. */
static void say_inferred(struct dlb_op_io *io, struct dlb_desc *changed, struct dlb_desc to)
{
	const struct dlb_desc was = *changed;
	struct dlb_desc out[8] = { { .n_dims = 0 } };
	struct dlb_error err = { 0 };
	char text[128];

	*changed = to;
	io->out = out;
	say("  %d %s:", (int)(changed - io->in), dlb_desc_str(changed, text, sizeof text));
	if (io->cls->infer(io, &err))
		say(" %s", err.what);
	for (int i = 0; i < io->n_out && !err.what[0]; i++)
		say(" %s", dlb_desc_str(&out[i], text, sizeof text));
	if (!err.what[0] && io->cls->flops)
		say(" %.9g", io->cls->flops(io));
	say("\n");
	*changed = was;
}

/* Each operand of op o with a dimension of one more or one less, one dimension more or less, another type. */
static void vary_operands(const struct machine *m, const struct dlb_op *o)
{
	static const enum dlb_dtype types[] = { DLB_F32, DLB_I64, DLB_BF16 };
	struct dlb_desc in[16], d;
	const void *value[16] = { NULL };
	struct dlb_op_io io = { .name = o->name,
				.cls = dlb_op_class_of(o->kind),
				.opset = o->opset,
				.attr = o->attr,
				.n_attr = o->n_attr,
				.n_in = o->n_in,
				.n_out = o->n_out,
				.in = in,
				.value = value };

	assert(IS(o->n_in, <=, 16) && IS(o->n_out, <=, 8));
	say(" %s:\n", o->type);
	for (int i = 0; i < o->n_in; i++) {
		const struct value *v = o->in[i] < 0 ? NULL : &m->v[o->in[i]];

		in[i] = v ? v->d : (struct dlb_desc){ .n_dims = -1 };
		if (!v || !v->data)
			continue;
		/* a longer list is read beyond its end: there are zeros */
		void *longer = dlb_xcalloc(dlb_desc_bytes(&v->d) * 16 + 4096, 1);
		memcpy(longer, v->data, dlb_desc_bytes(&v->d));
		value[i] = longer;
	}
	for (int i = 0; i < o->n_in; i++) {
		for (int k = 0; k < in[i].n_dims; k++)
			for (int by = -1; by <= 1; by += 2) {
				d = in[i];
				d.dim[k] += by;
				say_inferred(&io, &in[i], d);
			}
		for (int k = 0; k < DLB_LEN(types) && in[i].n_dims >= 0; k++) {
			d = in[i];
			d.dtype = types[k];
			say_inferred(&io, &in[i], d);
		}
		d = in[i];
		if (d.n_dims > 0) {
			d.n_dims--;
			say_inferred(&io, &in[i], d);
			d.n_dims++;
		}
		if (d.n_dims >= 0) {
			d.dim[d.n_dims++] = 1;
			say_inferred(&io, &in[i], d);
		}
	}
	for (int i = 0; i < o->n_in; i++)
		free((void *)(uintptr_t)value[i]);
}

static bool near(const struct value *a, const struct value *b)
{
	const int64_t n = dlb_desc_count(&a->d);
	double most = 1;

	if (!dlb_desc_same_shape(&a->d, &b->d) ||
	    dlb_dtype_is_int(a->d.dtype) != dlb_dtype_is_int(b->d.dtype))
		return false;
	if (dlb_dtype_is_int(a->d.dtype)) /* a rounding may decide */
		return true;
	for (int64_t i = 0; i < n; i++)
		if (isfinite(dlb_value_real(b->data, b->d.dtype, i)))
			most = fmax(most, fabs(dlb_value_real(b->data, b->d.dtype, i)));
	for (int64_t i = 0; i < n; i++) {
		const double x = dlb_value_real(a->data, a->d.dtype, i),
			     y = dlb_value_real(b->data, b->d.dtype, i);

		if (!(fabs(x - y) <= 0x1p-5 * most) && !(isnan(x) && isnan(y)) && x != y)
			return false;
	}
	return true;
}

/* The variant in f32 gives about the same as in f64, m. */
static void check_f32(const struct test_case *c, const struct machine *wide, const struct built *b,
		      const int *grad)
{
	struct machine m = { .be = now.be };
	struct dlb_error err = { 0 };
	struct built same;
	int g[MAX_IN];

	if (!run_variant(c, DLB_F32, &m, &same, g, &err)) {
		bool good = near(&m.v[m.g.output[0]], &wide->v[wide->g.output[0]]);

		for (int i = 0; i < b->n_wanted; i++)
			good &= g[i] < 0 || grad[i] < 0 || near(&m.v[g[i]], &wide->v[grad[i]]);
		if (!good)
			fprintf(stderr, "%s %d (%s; %s): f32 and f64 differ\n", c->type, c->opset, c->in,
				c->attr);
		assert(good);
	} else {
		say("  f32: %s\n", err.what);
	}
	machine_reset(&m);
}

static void join(const struct words *words, int left_out, char *text, size_t n)
{
	size_t at = 0;

	text[0] = 0;
	for (int i = 0; i < words->n; i++)
		if (i != left_out)
			at += (size_t)snprintf(text + at, n - at, "%s%s", at ? " " : "", words->w[i]);
}

/* Tries the case as its words stand; attribute left_out is not there. */
static void try_it(int left_out)
{
	struct machine m = { .be = now.be };
	struct dlb_error err = { 0 };
	char in[256], attr[256];
	struct test_case c = now.c;
	struct built b;
	int grad[MAX_IN];

	join(&now.in, -1, in, sizeof in);
	join(&now.attr, left_out, attr, sizeof attr);
	c.in = in;
	c.attr = attr;
	say("%s %d (%s; %s) %d %d%s:", c.type, c.opset, in, attr, c.n_out, c.y,
	    now.training ? " trained" : "");
	const char *refused = run_variant(&c, DLB_F64, &m, &b, grad, &err);
	if (refused) {
		now.refused++;
		say(" %s: %s: %s; %s (%d)\n", refused, err.where, err.what, err.hint, err.status);
	} else {
		now.ran++;
		say_results(&m);
		check_f32(&c, &m, &b, grad);
		for (int o = 1; o < m.g.n_ops && !now.tried; o++)
			vary_operands(&m, &m.g.op[o]);
		now.tried = true;
	}
	machine_reset(&m);
}

/* -- variants -- */

/* Tries the case with `word` replaced by a text. */
static void try_word(char *word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void try_word(char *word, const char *fmt, ...)
{
	char was[CHARS];
	va_list ap;

	memcpy(was, word, CHARS);
	va_start(ap, fmt);
	vsnprintf(word, CHARS, fmt, ap);
	va_end(ap);
	try_it(-1);
	memcpy(word, was, CHARS);
}

/* Every number of the word: an integer one more and one less; a real half as much again, and negative. */
static void vary_numbers(char *word, int from, bool operand)
{
	const char *equals = strchr(word, '=');
	char old[CHARS];

	snprintf(old, sizeof old, "%s", word);
	for (int i = from; old[i]; i++) {
		char *end;
		const bool dim = operand && (!equals || i < equals - word);
		const int begin = i > from && old[i - 1] == '-' ? i - 1 : i;

		if (!isdigit((unsigned char)old[i]))
			continue;
		const double x = strtod(old + begin, &end);
		const bool real = memchr(old + begin, '.', (size_t)(end - old - begin));
		if (dim) {
			const long d = strtol(old + i, &end, 10);
			const long least = i && old[i - 1] == '<' ? 1 : 0;

			try_word(word, "%.*s%ld%s", i, old, d + 1, end);
			if (d > least)
				try_word(word, "%.*s%ld%s", i, old, d - 1, end);
		} else if (real) {
			try_word(word, "%.*s%.4f%s", begin, old, 1.5 * x, end);
			try_word(word, "%.*s%.4f%s", begin, old, -x, end);
		} else {
			try_word(word, "%.*s%ld%s", begin, old, (long)x + 1, end);
			try_word(word, "%.*s%ld%s", begin, old, (long)x - 1, end);
		}
		i = (int)(end - old) - 1;
	}
}

static void vary_operand(char *word)
{
	const char kind = word[0];
	char old[CHARS], *x, *comma = strrchr(word, ',');

	if (kind == '-') {
		try_word(word, "f2x3");
		try_word(word, "i=1");
		return;
	}
	snprintf(old, sizeof old, "%s", word);
	vary_numbers(word, 1, true);
	try_word(word, "-");
	if (kind == 'i' || kind == 'q') {
		try_word(word, "%s,1", old);
		try_word(word, "%c%s", kind == 'i' ? 'q' : 'i', old + 1);
		if (comma)
			try_word(word, "%.*s", (int)(comma - word), old);
		return;
	}
	if (strchr(old, '='))
		return;
	if (isdigit((unsigned char)old[1]))
		try_word(word, "%c1x%s", kind, old + 1);
	if ((x = strchr(old, 'x')))
		try_word(word, "%c%s", kind, x + 1);
	if (kind == 'f' || kind == 'p' || kind == 'k') {
		try_word(word, "l%s<2", old + 1);
		try_word(word, "b%s", old + 1);
	} else {
		try_word(word, "f%.*s", (int)strcspn(old + 1, "<"), old + 1);
	}
	if (kind == 'f' || kind == 'p' || kind == 'g') /* no gradient is wanted */
		try_word(word, "k%s", old + 1);
	if (kind == 'l')
		try_word(word, "j%s", old + 1);
}

static void vary_attribute(char *word, int k)
{
	const int value = (int)(strchr(word, '=') - word) + 1;
	char old[CHARS], *comma = strrchr(word, ',');

	snprintf(old, sizeof old, "%s", word);
	try_it(k);
	if (isalpha((unsigned char)old[value]) || old[value] == '.') {
		const bool all = !strncmp(old, "equation", 8);

		/* it still begins with a letter or three points */
		for (int i = !all ? (int)strlen(old) - 1 : value + 3 * (old[value] == '.'); old[i]; i++) {
			if (i > value)
				try_word(word, "%.*s%s", i, old, old + i + 1);
			try_word(word, "%.*sz%s", i, old, old + i + 1);
		}
		return;
	}
	vary_numbers(word, value, false);
	if (!comma)
		return;
	try_word(word, "%s,1", old);
	if (comma[1])
		try_word(word, "%.*s", (int)(comma - word), old);
}

static void vary(const struct test_case *c)
{
	static const int opsets[] = { 1, 6, 8, 9, 10, 11, 12, 13, 15, 18, 21, 22, 24 };
	int kind = dlb_op_kind_find(c->type, NULL);

	kind = kind < 0 ? dlb_op_kind_find(c->type, "dlb") : kind;
	assert(IS(kind, >=, 0));
	const int *outs = dlb_op_class_of(kind)->n_out;
	try_it(-1);
	for (int i = 0; i < now.in.n; i++)
		vary_operand(now.in.w[i]);
	for (int i = 0; i < now.attr.n; i++)
		vary_attribute(now.attr.w[i], i);
	for (now.c.n_out = outs[0]; now.c.n_out <= (outs[1] < 0 ? 3 : outs[1]); now.c.n_out++)
		for (now.c.y = 0; now.c.y < now.c.n_out; now.c.y++)
			try_it(-1);
	now.c = *c;
	now.training = true;
	try_it(-1);
	now.training = false;
	for (int i = 0; i < DLB_LEN(opsets); i++) {
		now.c.opset = opsets[i];
		try_it(-1);
	}
	now.c.opset = c->opset;
}

/* -- the file -- */

static void split(const char *text, struct words *words)
{
	char all[256], *rest;

	snprintf(all, sizeof all, "%s", text);
	words->n = 0;
	for (char *w = strtok_r(all, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
		snprintf(words->w[words->n++], CHARS, "%s", w);
}

/* The line of a case. */
static const char *line_of(struct dlb_backend be, const struct test_case *c)
{
	static char line[300];

	now.n_text = 0;
	now.tried = false;
	now.ran = now.refused = 0;
	now.be = be;
	now.c = *c;
	split(c->in, &now.in);
	split(c->attr, &now.attr);
	vary(c);
	snprintf(line, sizeof line, "%s %d (%s; %s): %d ran, %d refused, %016llx\n", c->type, c->opset, c->in,
		 c->attr, now.ran, now.refused, (unsigned long long)mixed(20, now.text, now.n_text));
	return line;
}

static const struct test_case *nth(int i)
{
	return i < DLB_LEN(cases)                        ? &cases[i] :
	       i - DLB_LEN(cases) < DLB_LEN(plain_cases) ? &plain_cases[i - DLB_LEN(cases)] :
							   NULL;
}

int main(int argc, char **argv)
{
	const struct dlb_backend_ops *ops = dlb_backend_find("cpu");
	const bool write = argc > 1 && !strcmp(argv[1], "-w"), print = argc > 1 && !strcmp(argv[1], "-v");
	FILE *kept = write || print ? NULL : fopen("tests/data/op-variants", "r");
	struct dlb_backend be;
	struct dlb_error err = { 0 };
	char want[400];
	int n = 0, wrong = 0;

	assert(write || print || kept);
	assert(ops && !ops->open(0, 1, &be, &err));
	now.text = dlb_xmalloc(LINES);
	for (int i = 0; nth(i); i++) {
		if (argc > 2 && strcmp(argv[2], nth(i)->type))
			continue;
		const char *line = line_of(be, nth(i));

		n += now.ran + now.refused;
		if (write)
			fputs(line, stdout);
		if (print)
			fputs(now.text, stdout);
		if (kept && (!fgets(want, sizeof want, kept) || strcmp(line, want))) {
			fprintf(stderr, "expected %sgot      %s%s", want, line, wrong++ ? "" : now.text);
		}
	}
	assert(!kept || (!fgets(want, sizeof want, kept) && !fclose(kept)));
	assert(IS(wrong, ==, 0));
	free(now.text);
	ops->close(&be);
	if (kept)
		printf("%d cases, %d variants\n", DLB_LEN(cases) + DLB_LEN(plain_cases), n);
	return 0;
}
