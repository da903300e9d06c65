/* Einsum: sums of products named by index letters, "bij,bjk->bik"; and EinsumGrad, which allows a letter
 * twice in the output (a diagonal, zero elsewhere), for the gradient of a diagonal.
 *
 * Operands are combined from left to right, two at a time. A letter of a pair (A, B) is of one of four
 * kinds: in both and needed later (a batch of the product), in both and not needed later (summed by the
 * product), in A alone (rows), in B alone (columns). So a pair is one gemm over copies in that order; an
 * operand already in order is not copied. Letters of one operand that are not needed are summed before. Each
 * dimension of an ellipsis is a letter of its own, aligned at the right, and broadcasts. The gradient of
 * operand i replaces it by dy:
 *     y = einsum("A,B->Y", a, b):   da = einsum("Y,B->A", dy, b). */
#include "op/op_util.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPERANDS = 8, ELLIPSIS = 52, N_IDS = ELLIPSIS + DLB_MAX_DIMS, MAX_TEXT = 256 };
struct term { int n, id[DLB_MAX_DIMS]; };
struct equation {
	char text[MAX_TEXT];			/* without blanks; the strings below point into it */
	const char *in[MAX_OPERANDS], *out;
	char implied[64];			/* the output, if the equation does not state it */
	int n;
	struct term term[MAX_OPERANDS], y;
	int64_t extent[N_IDS];			/* 0: the letter does not occur */
	bool diagonal;				/* a letter may stand twice in the output */
};

static int letter(char c)
{
	return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? 26 + c - 'A' : -1;
}

/* Reads the letters of `s` for a tensor of n_dims dimensions. n_dims -1 (the output): its ellipsis has as
 * many dimensions as the inputs'. */
static int read_term(const struct dlb_op_io *io, const struct equation *e, const char *s, int n_dims,
		     struct term *t, struct dlb_error *err)
{
	int dots = 0, letters = 0, hidden = 0;

	for (const char *p = s; *p; p++) {
		if (letter(*p) >= 0)
			letters++;
		else if (!strncmp(p, "...", 3) && !dots++)
			p += 2;
		else
			return dlb_op_fail(io, err, "equation: '%s' is not understood", s);
	}
	if (n_dims < 0)
		while (hidden < DLB_MAX_DIMS && e->extent[ELLIPSIS + hidden])
			hidden++;
	else
		hidden = n_dims - letters;
	if (!dots)
		hidden = n_dims < 0 ? 0 : hidden;
	if (hidden < 0 || (hidden && !dots) || letters + hidden > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "equation: '%s' does not fit a tensor of %d dimensions", s,
				   n_dims);
	t->n = 0;
	for (const char *p = s; *p; p++) {
		if (letter(*p) >= 0) {
			t->id[t->n++] = letter(*p);
			continue;
		}
		for (int i = hidden - 1; i >= 0; i--)
			t->id[t->n++] = ELLIPSIS + i;
		p += 2;
	}
	return 0;
}

/* Splits the text into terms. Without "->" the output has the letters that occur once, sorted. */
static int split(const struct dlb_op_io *io, struct equation *e, struct dlb_error *err)
{
	const char *given = dlb_io_str(io, "equation", "");
	char *arrow, *end;
	size_t n = 0;

	for (const char *p = given; *p; p++)
		if (!isspace((unsigned char)*p)) {
			if (n + 1 >= MAX_TEXT)
				return dlb_op_fail(io, err, "the equation is too long");
			e->text[n++] = *p;
		}
	arrow = strstr(e->text, "->");
	if (arrow) {
		*arrow = 0;
		e->out = arrow + 2;
	} else {
		char *o = e->implied;

		if (strstr(e->text, "..."))
			o += sprintf(o, "...");
		for (int c = 'A'; c <= 'z'; c++) {
			const char *at = letter((char)c) >= 0 ? strchr(e->text, c) : NULL;

			if (at && !strchr(at + 1, c))
				*o++ = (char)c;
		}
		e->out = e->implied;
	}
	for (char *p = e->text; p; p = end ? end + 1 : NULL) {
		end = strchr(p, ',');
		if (end)
			*end = 0;
		if (e->n == MAX_OPERANDS)
			return dlb_op_fail(io, err, "more than %d operands", MAX_OPERANDS);
		e->in[e->n++] = p;
	}
	if (e->n != io->n_in)
		return dlb_op_fail(io, err, "the equation has %d operands, the vertex %d inputs", e->n,
				   io->n_in);
	return 0;
}

static int parse(const struct dlb_op_io *io, struct equation *e, struct dlb_error *err)
{
	memset(e, 0, sizeof *e);
	e->diagonal = io->cls->domain != NULL;
	if (split(io, e, err))
		return -1;
	for (int i = 0; i < e->n; i++) {
		struct term *t = &e->term[i];

		if (io->in[i].n_dims < 0)
			return dlb_op_fail(io, err, "operand %d is missing", i);
		if (read_term(io, e, e->in[i], io->in[i].n_dims, t, err))
			return -1;
		for (int j = 0; j < t->n; j++) {
			int64_t *n = &e->extent[t->id[j]], d = io->in[i].dim[j];

			if (d < 1)
				return dlb_op_fail(io, err, "operand %d is empty", i);
			if (*n && *n != d && (t->id[j] < ELLIPSIS || (*n != 1 && d != 1)))
				return dlb_op_fail(io, err,
						   "operand %d: dimension %d is %lld, elsewhere %lld", i, j,
						   (long long)d, (long long)*n);
			*n = d > *n ? d : *n;
		}
	}
	if (read_term(io, e, e->out, -1, &e->y, err))
		return -1;
	for (int j = 0; j < e->y.n; j++) {
		if (!e->extent[e->y.id[j]])
			return dlb_op_fail(io, err, "the output has a letter that no operand has");
		for (int k = 0; k < j && !e->diagonal; k++)
			if (e->y.id[k] == e->y.id[j])
				return dlb_op_fail(io, err, "the output has a letter twice");
	}
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct equation e;

	if (dlb_same_types(io, 0, io->n_in, err) || parse(io, &e, err))
		return -1;
	io->out[0] = (struct dlb_desc){ .dtype = io->in[0].dtype, .n_dims = e.y.n };
	for (int i = 0; i < e.y.n; i++)
		io->out[0].dim[i] = e.extent[e.y.id[i]];
	if (dlb_checked_count(io->out[0].dim, e.y.n) < 0)
		return dlb_op_fail(io, err, "the output is too large");
	return 0;
}

/* Counts every letter once per pair: an upper bound that is exact for two operands. */
static double flops(const struct dlb_op_io *io)
{
	struct equation e;
	double n = 1;

	if (parse(io, &e, NULL))
		return 0;
	for (int i = 0; i < N_IDS; i++)
		n *= e.extent[i] ? (double)e.extent[i] : 1;
	return n * (e.n > 1 ? 2.0 * (e.n - 1) : 1);
}

/* -- kernel -- */

struct einsum_operand { int ref, n, id[2 * DLB_MAX_DIMS]; int64_t stride[2 * DLB_MAX_DIMS]; };
struct einsum_work {
	struct dlb_backend *be;
	struct dlb_chain *c;
	const struct equation *e;
	enum dlb_dtype type;
	struct dlb_error *err;
};

static int find(const struct einsum_operand *o, int id)
{
	for (int i = 0; i < o->n; i++)
		if (o->id[i] == id)
			return i;
	return -1;
}

/* Describes a tensor as an operand. A letter that occurs twice steps along the diagonal. */
static struct einsum_operand make_operand(const struct equation *e, const struct term *t,
					  const struct dlb_desc *d, int ref)
{
	struct einsum_operand o = { .ref = ref };
	int64_t stride[DLB_MAX_DIMS];

	dlb_desc_strides(d, stride);
	for (int i = 0; i < t->n; i++) {
		int at = find(&o, t->id[i]);

		if (at < 0) {
			at = o.n++;
			o.id[at] = t->id[i];
			o.stride[at] = 0;
		}
		o.stride[at] += d->dim[i] < e->extent[t->id[i]] ? 0 : stride[i];
	}
	return o;
}

static int64_t extent_of(const struct einsum_work *w, const int *id, int n)
{
	int64_t count = 1;

	for (int i = 0; i < n; i++)
		count *= w->e->extent[id[i]];
	return count;
}

static bool lies(const struct einsum_work *w, const struct einsum_operand *o, const int *id, int n)
{
	int64_t step = 1;

	for (int i = n - 1; i >= 0; i--) {
		if (w->e->extent[id[i]] > 1 && o->stride[find(o, id[i])] != step)
			return false;
		step *= w->e->extent[id[i]];
	}
	return true;
}

/* Copies the elements of o to operand `to`, whose letters are those of o in another order; d: its desc.
 * zero_first: the other elements of `to` become 0. */
static void copy(struct einsum_work *w, const struct einsum_operand *o, const struct einsum_operand *to,
		 const struct dlb_desc *d, bool zero_first)
{
	const int n = to->n;
	struct dlb_copy_desc copies = { .in = w->type, .out = w->type, .n_dims = n, .zero_first = zero_first,
					.out_count = dlb_desc_count(d) };
	struct dlb_kernel *k = NULL;
	int rc;

	if (n > DLB_MAX_DIMS) {
		dlb_chain_fail(w->c, DLB_NO_KERNEL);
		return;
	}
	for (int i = 0; i < n; i++) {
		copies.dim[i] = w->e->extent[to->id[i]];
		copies.in_stride[i] = o->stride[find(o, to->id[i])];
		copies.out_stride[i] = to->stride[i];
	}
	rc = w->be->ops->copy(w->be, &copies, &k, w->err);
	dlb_chain_add(w->c, rc, k, &o->ref, 1, &to->ref, 1);
}

/* A new operand over contiguous memory `ref` with the letters in this order. */
static struct einsum_operand contiguous(const struct einsum_work *w, int ref, const int *id, int n)
{
	struct einsum_operand o = { .ref = ref, .n = n };
	int64_t step = 1;

	for (int i = n - 1; i >= 0; i--) {
		o.id[i] = id[i];
		o.stride[i] = step;
		step *= w->e->extent[id[i]];
	}
	return o;
}

static struct einsum_operand pack(struct einsum_work *w, const struct einsum_operand *o, const int *id, int n)
{
	struct dlb_desc d = dlb_desc_1d(w->type, extent_of(w, id, n));
	struct einsum_operand p;

	if (lies(w, o, id, n))
		return contiguous(w, o->ref, id, n);
	p = contiguous(w, dlb_chain_temp(w->c, &d), id, n);
	copy(w, o, &p, &d, false);
	return p;
}

/* Returns o summed over its letters that are not in `keep`. */
static struct einsum_operand sum_out(struct einsum_work *w, const struct einsum_operand *o, const bool *keep)
{
	int id[2 * DLB_MAX_DIMS] = { 0 }, n = 0, kept;
	struct dlb_desc in, out;
	struct einsum_operand p;

	for (int i = 0; i < o->n; i++)
		if (keep[o->id[i]])
			id[n++] = o->id[i];
	kept = n;
	if (kept == o->n)
		return *o;
	for (int i = 0; i < o->n; i++)
		if (!keep[o->id[i]])
			id[n++] = o->id[i];
	p = pack(w, o, id, n);
	in = dlb_desc_make(w->type, 2,
			   (int64_t[]){ extent_of(w, id, kept), extent_of(w, id + kept, n - kept) });
	out = dlb_desc_make(w->type, 2, (int64_t[]){ in.dim[0], 1 });
	n = dlb_chain_temp(w->c, &out);
	dlb_chain_reduce(w->c, DLB_REDUCE_FN_SUM, 2, p.ref, &in, n, &out);
	return contiguous(w, n, id, kept);
}

/* Writes to id the letters of a that are in b (in_b) or not, and in `keep` (kept) or not. Letters of the
 * output come first, in its order. Returns their number. */
static int choose(const struct einsum_work *w, const struct einsum_operand *a, const struct einsum_operand *b,
		  bool in_b, const bool *keep, bool kept, int *id)
{
	int n = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < (pass ? a->n : w->e->y.n); i++) {
			int x = pass ? a->id[i] : w->e->y.id[i];
			bool there = find(a, x) >= 0;

			for (int j = 0; j < n; j++)
				there = there && id[j] != x;
			if (there && (find(b, x) >= 0) == in_b && keep[x] == kept)
				id[n++] = x;
		}
	return n;
}

/* The product of a and b, which keeps the letters in `keep`. last: it is written to output 0 if its letters
 * are in the output's order. */
static struct einsum_operand contract(struct einsum_work *w, const struct einsum_operand *a,
				      const struct einsum_operand *b, const bool *keep, bool last)
{
	int batch[16], row[16], col[16], sum[16], id[64], nb, nr, nc, ns, n;
	bool need_a[N_IDS], need_b[N_IDS], direct;
	struct einsum_operand x, y, z;
	struct dlb_gemm_desc g = { .dtype = w->type, .alpha = 1 };
	struct dlb_kernel *k = NULL;

	for (int i = 0; i < N_IDS; i++) {
		need_a[i] = keep[i] || find(b, i) >= 0;
		need_b[i] = keep[i] || find(a, i) >= 0;
	}
	x = sum_out(w, a, need_a);
	y = sum_out(w, b, need_b);
	nb = choose(w, &x, &y, true, keep, true, batch);
	ns = choose(w, &x, &y, true, keep, false, sum);
	nr = choose(w, &x, &y, false, keep, true, row);
	nc = choose(w, &y, &x, false, keep, true, col);
#define JOIN(p, np, q, nq) (memcpy(id, batch, (size_t)nb * sizeof *id), memcpy(id + nb, p, (size_t)(np) * sizeof *id), \
			    memcpy(id + nb + (np), q, (size_t)(nq) * sizeof *id), nb + (np) + (nq))
	g.trans_a = lies(w, &x, id, JOIN(sum, ns, row, nr)) && !lies(w, &x, id, JOIN(row, nr, sum, ns));
	n = g.trans_a ? JOIN(sum, ns, row, nr) : JOIN(row, nr, sum, ns);
	x = pack(w, &x, id, n);
	g.trans_w = lies(w, &y, id, JOIN(col, nc, sum, ns)) && !lies(w, &y, id, JOIN(sum, ns, col, nc));
	n = g.trans_w ? JOIN(col, nc, sum, ns) : JOIN(sum, ns, col, nc);
	y = pack(w, &y, id, n);
	n = JOIN(row, nr, col, nc);
#undef JOIN
	g.n_batch = extent_of(w, batch, nb);
	g.m = extent_of(w, row, nr);
	g.n = extent_of(w, col, nc);
	g.k = extent_of(w, sum, ns);
	g.a_batch = g.m * g.k;
	g.w_batch = g.k * g.n;
	direct = last && n == w->e->y.n && !memcmp(id, w->e->y.id, (size_t)n * sizeof *id);
	struct dlb_desc d = dlb_desc_1d(w->type, g.n_batch * g.m * g.n);
	z = contiguous(w, direct ? DLB_OUT(0) : dlb_chain_temp(w->c, &d), id, n);
	int rc = w->be->ops->gemm(w->be, &g, &k, w->err);
	dlb_chain_add(w->c, rc, k, DLB_REFS(x.ref, y.ref), 2, &z.ref, 1);
	return z;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct equation e;
	struct einsum_operand o, to;

	if (dlb_dtype_is_int(io->in[0].dtype))		/* exact up to 2^53 */
		return dlb_kernel_widened(be, io, 1u << io->in[0].dtype, DLB_F64, kernel, k, err);
	if (parse(io, &e, err))
		return -1;
	if (io->in[0].dtype != DLB_F32 && io->in[0].dtype != DLB_F64)
		return DLB_NO_KERNEL;
	struct einsum_work w = { be, dlb_chain_new(be, err), &e, io->in[0].dtype, err };
	o = make_operand(&e, &e.term[0], &io->in[0], DLB_IN(0));
	for (int i = 1; i <= e.n; i++) {		/* the last round sums the remaining
							 * letters of a single operand */
		bool keep[N_IDS] = { false };
		struct einsum_operand next;

		for (int j = 0; j < e.y.n; j++)
			keep[e.y.id[j]] = true;
		for (int j = i + 1; j < e.n; j++)
			for (int l = 0; l < e.term[j].n; l++)
				keep[e.term[j].id[l]] = true;
		if (i == e.n) {
			o = sum_out(&w, &o, keep);
			break;
		}
		next = make_operand(&e, &e.term[i], &io->in[i], DLB_IN(i));
		if (o.n > DLB_MAX_DIMS) {
			dlb_chain_fail(w.c, DLB_NO_KERNEL);
			break;
		}
		o = contract(&w, &o, &next, keep, i == e.n - 1);
	}
	to = make_operand(&e, &e.y, &io->out[0], DLB_OUT(0));
	if (o.ref != DLB_OUT(0) && o.n == to.n)
		copy(&w, &o, &to, &io->out[0], to.n < e.y.n);
	return dlb_chain_finish(w.c, k);
}

/* -- gradient -- */

/* The equation for the gradient of operand i. Letters that occur in no other term have a constant gradient:
 * their axes go to axes[]. Returns the number of axes, -1: unsupported. */
static int grad_equation(const struct equation *e, int i, char *text, int64_t *axes)
{
	int n_axes = 0, at = 0, n = sprintf(text, "%s", e->out);
	bool dots = strstr(e->out, "...") != NULL;

	for (int j = 0; j < e->n; j++)
		if (j != i) {
			n += sprintf(text + n, ",%s", e->in[j]);
			dots = dots || strstr(e->in[j], "...");
		}
	const int known = n;
	n += sprintf(text + n, "->");
	for (const char *p = e->in[i]; *p; p++) {
		if (*p == '.') {
			if (!dots)
				return -1;
			n += sprintf(text + n, "...");
			p += 2;
			at += e->term[i].n - ((int)strlen(e->in[i]) - 3);
		} else if (memchr(text, *p, (size_t)known)) {
			text[n++] = *p;
			at++;
		} else if (strchr(e->in[i], *p) != strrchr(e->in[i], *p)) {
			return -1;
		} else {
			axes[n_axes++] = at++;
		}
	}
	text[n] = 0;
	return n_axes && strchr(e->in[i], '.') ? -1 : n_axes;
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct equation e;

	if (parse(&b->io, &e, err))
		return -1;
	for (int i = 0; i < e.n; i++) {
		char text[2 * MAX_TEXT];
		int64_t axes[DLB_MAX_DIMS];
		int in[MAX_OPERANDS], n = 0, n_axes, g;

		if (!b->need[i])
			continue;
		n_axes = grad_equation(&e, i, text, axes);
		if (n_axes < 0)
			return dlb_op_fail(&b->io, err,
					   "no gradient of operand %d is available for this equation", i);
		in[n++] = b->dout[0];
		for (int j = 0; j < e.n; j++)
			if (j != i)
				in[n++] = b->in[j];
		struct dlb_attr a = dlb_make_str("equation", text);
		g = dlb_b_op(b, &(struct dlb_op_spec){ .type = "EinsumGrad", .in = in, .n_in = n, .attr = &a,
						       .n_attr = 1 }, NULL, b->in[i]);
		if (n_axes) {
			g = dlb_b_op2(b, "Unsqueeze", g, dlb_b_const_ints(b, axes, n_axes));
			g = dlb_b_op2(b, "Expand", g, dlb_b_const_shape(b, b->in[i]));
		} else {
			g = dlb_b_unbroadcast(b, g, b->in[i]);
		}
		b->din[i] = g;
		if (g < 0)
			return -1;
	}
	return 0;
}

const struct dlb_op_class dlb_op_Einsum = { .name = "Einsum",
					    .n_in = { 1, MAX_OPERANDS },
					    .n_out = { 1, 1 },
					    .work = "dense",
					    .infer = infer,
					    .flops = flops,
					    .gradient = gradient,
					    .kernel = kernel };
const struct dlb_op_class dlb_op_EinsumGrad = { .name = "EinsumGrad",
						.domain = "dlb",
						.n_in = { 1, MAX_OPERANDS },
						.n_out = { 1, 1 },
						.work = "dense",
						.infer = infer,
						.flops = flops,
						.kernel = kernel };
