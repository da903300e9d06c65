/* LinearAttention: each head has a state S (width of keys x width of values), which each
 * row updates and then reads:
 *     S = exp(g) S,   u = v or beta (v - S^T k),   S = S + k u^T,   o = scale S^T q
 * (update_rule: `gated` rules have g, `delta` rules have beta). Several neighbouring heads
 * of the query read one state.
 * LinearAttentionGrad (dy, q, k, v, past_state, decay, beta, dpresent) -> dq, dk, dv, dpast, ddecay, dbeta
 * visits rows in reverse: it keeps the state before every sqrt(rows)-th row and recomputes those in between.
 * A. Katharopoulos et al., Transformers are RNNs, 2020; S. Yang et al., Gated Delta Networks, 2024; T. Chen
 * et al., Training Deep Nets with Sublinear Memory Cost, 2016. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

/* inputs; the gradient has dy before them, dpresent after them */
enum { Q, K, V, PAST, DECAY, BETA };
enum { GRAD_DY = 0, GRAD_OPERANDS = 1, GRAD_PRESENT = 7, N_OPERANDS = 6 };
struct linear_attention {
	enum dlb_dtype type, state;
	int64_t batch, rows, heads, kv_heads, width, v_width;
	int64_t decays, betas;			/* entries per row, 0: none */
	double scale;
	bool gated, delta;
	int64_t stretch;			/* rows between two kept states */
};

/* Reads the operands from input `at` on. */
static int read_rule(const struct dlb_op_io *io, int at, struct linear_attention *l, struct dlb_error *err)
{
	static const struct { const char *name; bool gated, delta;
	} rules[] = {
		{ "linear", false, false },
		{ "gated", true, false },
		{ "delta", false, true },
		{ "gated_delta", true, true },
	};
	const char *name = dlb_io_str(io, "update_rule", "gated_delta");
	int i = 0;

	while (i < DLB_LEN(rules) && strcmp(rules[i].name, name) != 0)
		i++;
	if (i == DLB_LEN(rules))
		return dlb_op_fail(io, err,
				   "update_rule '%s'; linear, gated, delta and gated_delta are possible",
				   name);
	l->gated = rules[i].gated;
	l->delta = rules[i].delta;
	if (dlb_io_has(io, at + DECAY) != l->gated || dlb_io_has(io, at + BETA) != l->delta)
		return dlb_op_fail(io, err, "update_rule '%s' wants %s decay and %s beta", name,
				   l->gated ? "a" : "no", l->delta ? "a" : "no");
	return 0;
}

static int shaped(const struct dlb_op_io *io, int i, const struct linear_attention *l, int64_t width,
		  struct dlb_error *err)
{
	const struct dlb_desc *d = &io->in[i];
	char s[128];

	if (d->n_dims != 3 || d->dim[0] != l->batch || d->dim[1] != l->rows || d->dim[2] != width)
		return dlb_op_fail(io, err, "input %d is %s; [%lld,%lld,%lld] is needed", i,
				   dlb_desc_str(d, s, sizeof s), (long long)l->batch, (long long)l->rows,
				   (long long)width);
	return 0;
}

static int parse(const struct dlb_op_io *io, int at, struct linear_attention *l, struct dlb_error *err)
{
	const struct dlb_desc *q = &io->in[at + Q], *v = &io->in[at + V];
	const int64_t heads = dlb_io_int(io, "q_num_heads", 0), kv = dlb_io_int(io, "kv_num_heads", 0);

	*l = (struct linear_attention){ .type = q->dtype,
					.state = dlb_io_has(io, at + PAST) ? io->in[at + PAST].dtype :
									     q->dtype,
					.heads = heads,
					.kv_heads = kv };
	if (q->n_dims != 3 || v->n_dims != 3 || heads < 1 || kv < 1 || heads % kv || q->dim[2] % heads ||
	    v->dim[2] % kv || !q->dim[2])
		return dlb_op_fail(
			io, err,
			"q_num_heads %lld and kv_num_heads %lld do not fit [batch,rows,heads width] operands",
			(long long)heads, (long long)kv);
	l->batch = q->dim[0];
	l->rows = q->dim[1];
	l->width = q->dim[2] / heads;
	l->v_width = v->dim[2] / kv;
	l->scale = dlb_io_real(io, "scale", 0);
	l->scale = l->scale == 0 ? 1 / sqrt((double)l->width) : l->scale;
	l->stretch = (int64_t)ceil(sqrt((double)l->rows));
	if (dlb_checked_count((int64_t[]){ l->width, l->v_width, 2 * l->stretch + 4 }, 3) < 0)
		return dlb_op_fail(io, err, "states of %lld x %lld are too large", (long long)l->width,
				   (long long)l->v_width);
	if (read_rule(io, at, l, err) || shaped(io, at + K, l, kv * l->width, err) ||
	    shaped(io, at + V, l, kv * l->v_width, err))
		return -1;
	if (l->gated) {
		l->decays = io->in[at + DECAY].n_dims == 3 && io->in[at + DECAY].dim[2] == kv ? 1 : l->width;
		if (shaped(io, at + DECAY, l, kv * l->decays, err))
			return -1;
	}
	if (l->delta) {
		l->betas = io->in[at + BETA].n_dims == 3 && io->in[at + BETA].dim[2] == 1 ? 1 : kv;
		if (shaped(io, at + BETA, l, l->betas, err))
			return -1;
	}
	return dlb_io_has(io, at + PAST) ?
		       dlb_has_count(io, at + PAST, l->batch * kv * l->width * l->v_width, err) :
		       0;
}

static struct dlb_desc state_of(const struct linear_attention *l)
{
	return dlb_desc_make(l->state, 4, (int64_t[]){ l->batch, l->kv_heads, l->width, l->v_width });
}

/* All operands but the state must have one type. */
static int check_types(const struct dlb_op_io *io, int at, struct dlb_error *err)
{
	for (int i = 0; i < N_OPERANDS; i++)
		if (dlb_io_has(io, at + i) && (i == PAST ? !dlb_dtype_is_float(io->in[at + i].dtype) :
					       io->in[at + i].dtype != io->in[at].dtype))
			return dlb_op_fail(io, err, "input %d is of type %s, input %d of %s", at + i,
					   dlb_dtype_name(io->in[at + i].dtype), at,
					   dlb_dtype_name(io->in[at].dtype));
	return dlb_dtype_is_float(io->in[at].dtype) ?
		       0 :
		       dlb_op_fail(io, err, "query is of type %s; a float is needed",
				   dlb_dtype_name(io->in[at].dtype));
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct linear_attention l;

	if (check_types(io, 0, err) || parse(io, 0, &l, err))
		return -1;
	io->out[0] = dlb_desc_make(l.type, 3, (int64_t[]){ l.batch, l.rows, l.heads * l.v_width });
	for (int i = 1; i < io->n_out; i++)
		io->out[i] = state_of(&l);
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct linear_attention l;

	if (check_types(io, GRAD_OPERANDS, err) || parse(io, GRAD_OPERANDS, &l, err) ||
	    shaped(io, GRAD_DY, &l, l.heads * l.v_width, err))
		return -1;
	if (io->in[GRAD_DY].dtype != l.type)
		return dlb_op_fail(io, err, "the gradient is of another type than the query");
	if (dlb_io_has(io, GRAD_PRESENT) &&
	    (io->in[GRAD_PRESENT].dtype != l.state ||
	     dlb_has_count(io, GRAD_PRESENT, l.batch * l.kv_heads * l.width * l.v_width, err)))
		return -1;
	for (int i = 0; i < io->n_out; i++)	/* absent operands have empty outputs */
		io->out[i] = dlb_io_has(io, GRAD_OPERANDS + i) ? io->in[GRAD_OPERANDS + i] :
								 dlb_desc_1d(l.type, 0);
	return 0;
}

/* A row of one head: pointers into operands of type T. */
#define LINEAR(T, EXP) \
	struct row_##T { const T *q, *k, *v, *decay; T beta; }; \
	static struct row_##T row_at_##T(const struct linear_attention *l, void *const *in, int64_t b, int64_t h, int64_t t) \
	{ \
		const int64_t at = b * l->rows + t, share = l->heads / l->kv_heads; \
		struct row_##T r = { (const T *)in[Q] + (at * l->heads + h * share) * l->width, \
			(const T *)in[K] + (at * l->kv_heads + h) * l->width, (const T *)in[V] + (at * l->kv_heads + h) * l->v_width, \
			NULL, 1 }; \
		if (l->gated) \
			r.decay = (const T *)in[DECAY] + (at * l->kv_heads + h) * l->decays; \
		if (l->delta) \
			r.beta = ((const T *)in[BETA])[at * l->betas + (l->betas > 1 ? h : 0)]; \
		return r; \
	} \
	static T gate_##T(const struct linear_attention *l, const struct row_##T *r, int64_t d) \
	{ \
		return l->gated ? EXP(r->decay[l->decays > 1 ? d : 0]) : 1; \
	} \
	/* s = exp(g) s; e = v - s^T k, or v */ \
	static void decay_##T(const struct linear_attention *l, const struct row_##T *r, T *s, T *e) \
	{ \
		const int64_t n = l->v_width; \
		memcpy(e, r->v, (size_t)n * sizeof *e); \
		for (int64_t d = 0; d < l->width; d++) { \
			const T by = gate_##T(l, r, d); \
			for (int64_t m = 0; m < n && l->gated; m++) \
				s[d * n + m] *= by; \
			for (int64_t m = 0; m < n && l->delta; m++) \
				e[m] -= s[d * n + m] * r->k[d]; \
		} \
	} \
	/* s += k (beta e)^T */ \
	static void write_##T(const struct linear_attention *l, const struct row_##T *r, const T *e, T *s) \
	{ \
		const int64_t n = l->v_width; \
		for (int64_t d = 0; d < l->width; d++) { \
			const T by = r->k[d] * r->beta; \
			for (int64_t m = 0; m < n; m++) \
				s[d * n + m] += by * e[m]; \
		} \
	} \
	static void read_##T(const struct linear_attention *l, const T *q, const T *s, T *o) \
	{ \
		const int64_t n = l->v_width; \
		memset(o, 0, (size_t)n * sizeof *o); \
		for (int64_t d = 0; d < l->width; d++) { \
			const T by = (T)l->scale * q[d]; \
			for (int64_t m = 0; m < n; m++) \
				o[m] += by * s[d * n + m]; \
		} \
	} \
	static void forward_##T(const struct linear_attention *l, void *const *in, void *const *out, T *e) \
	{ \
		const int64_t size = l->width * l->v_width, share = l->heads / l->kv_heads; \
		T *const scratch = e + l->v_width; \
		for (int64_t u = 0; u < l->batch * l->kv_heads; u++) { \
			T *s = out[1] ? (T *)out[1] + u * size : scratch; \
			if (in[PAST]) \
				memcpy(s, (const T *)in[PAST] + u * size, (size_t)size * sizeof *s); \
			else \
				memset(s, 0, (size_t)size * sizeof *s); \
			for (int64_t t = 0; t < l->rows; t++) { \
				const int64_t b = u / l->kv_heads, h = u % l->kv_heads; \
				const struct row_##T r = row_at_##T(l, in, b, h, t); \
				T *o = (T *)out[0] + ((b * l->rows + t) * l->heads + h * share) * l->v_width; \
				decay_##T(l, &r, s, e); \
				write_##T(l, &r, e, s); \
				for (int64_t i = 0; i < share; i++) \
					read_##T(l, r.q + i * l->width, s, o + i * l->v_width); \
			} \
		} \
	} \
	/* A row in the backward pass. s: the state between decay and update; e: as decay_ left it. ds: the \
	 * gradient of the state after the row, replaced by that of the state before it. du: scratch of \
	 * v_width. */ \
	struct back_##T { const T *s, *e; T *ds, *du; }; \
	/* The gradients of row t of head h in batch b. */ \
	static void back_##T(const struct linear_attention *l, void *const *in, void *const *out, \
			     int64_t b, int64_t h, int64_t t, const struct back_##T *w) \
	{ \
		const T *s = w->s, *e = w->e; \
		T *ds = w->ds, *du = w->du; \
		const int64_t n = l->v_width, share = l->heads / l->kv_heads, at = b * l->rows + t; \
		const struct row_##T r = row_at_##T(l, in, b, h, t); \
		const T *dy = (const T *)in[N_OPERANDS] + (at * l->heads + h * share) * n; \
		T *dq = (T *)out[Q] + (at * l->heads + h * share) * l->width, *dk = (T *)out[K] + (at * l->kv_heads + h) * l->width; \
		T *dv = (T *)out[V] + (at * l->kv_heads + h) * n, dbeta = 0, dgate = 0; \
		for (int64_t i = 0; i < share; i++) \
			for (int64_t d = 0; d < l->width; d++) { \
				const T by = (T)l->scale * r.q[i * l->width + d], weight = r.k[d] * r.beta; \
				T sum = 0; \
				for (int64_t m = 0; m < n; m++) { \
					sum += dy[i * n + m] * (s[d * n + m] + weight * e[m]); \
					ds[d * n + m] += by * dy[i * n + m]; \
				} \
				dq[i * l->width + d] = (T)l->scale * sum; \
			} \
		memset(du, 0, (size_t)n * sizeof *du); \
		for (int64_t d = 0; d < l->width; d++) { \
			T sum = 0; \
			for (int64_t m = 0; m < n; m++) { \
				du[m] += r.k[d] * ds[d * n + m]; \
				sum += ds[d * n + m] * e[m]; \
			} \
			dk[d] = r.beta * sum; \
		} \
		for (int64_t m = 0; m < n; m++) { \
			dbeta += du[m] * e[m]; \
			dv[m] = du[m] *= r.beta; \
		} \
		if (l->delta) \
			((T *)out[BETA])[at * l->betas + (l->betas > 1 ? h : 0)] += dbeta; \
		for (int64_t d = 0; d < l->width; d++) { \
			const T by = gate_##T(l, &r, d); \
			T sum = 0, grown = 0; \
			for (int64_t m = 0; m < n; m++) { \
				if (l->delta) { \
					sum += s[d * n + m] * du[m]; \
					ds[d * n + m] -= r.k[d] * du[m]; \
				} \
				grown += ds[d * n + m] * s[d * n + m]; \
				ds[d * n + m] *= by; \
			} \
			dk[d] -= sum; \
			if (l->decays > 1) \
				((T *)out[DECAY])[(at * l->kv_heads + h) * l->decays + d] = grown; \
			dgate += grown; \
		} \
		if (l->decays == 1) \
			((T *)out[DECAY])[at * l->kv_heads + h] = dgate; \
	} \
	/* The rows of one head, in stretches from the last to the first: s is recomputed forward through a stretch, \
	 * keeping each row's state and e, then ds goes backward through it. */ \
	static void backward_head_##T(const struct linear_attention *l, void *const *in, void *const *out, int64_t u, T *scratch) \
	{ \
		const int64_t size = l->width * l->v_width, n = l->stretch, b = u / l->kv_heads, h = u % l->kv_heads; \
		T *ds = scratch, *s = ds + size, *du = s + size, *e = du + l->v_width, *kept = e + n * l->v_width, *own = kept + n * size; \
		const int64_t stretches = n ? (l->rows + n - 1) / n : 0; \
		if (in[PAST]) \
			memcpy(s, (const T *)in[PAST] + u * size, (size_t)size * sizeof *s); \
		else \
			memset(s, 0, (size_t)size * sizeof *s); \
		for (int64_t t = 0; t < l->rows; t++) { \
			const struct row_##T r = row_at_##T(l, in, b, h, t); \
			if (t % n == 0) \
				memcpy(kept + t / n * size, s, (size_t)size * sizeof *s); \
			decay_##T(l, &r, s, e); \
			write_##T(l, &r, e, s); \
		} \
		if (in[N_OPERANDS + 1]) \
			memcpy(ds, (const T *)in[N_OPERANDS + 1] + u * size, (size_t)size * sizeof *ds); \
		else \
			memset(ds, 0, (size_t)size * sizeof *ds); \
		for (int64_t c = stretches - 1; c >= 0; c--) { \
			const int64_t from = c * n, end = from + n < l->rows ? from + n : l->rows; \
			memcpy(s, kept + c * size, (size_t)size * sizeof *s); \
			for (int64_t t = from; t < end; t++) { \
				const struct row_##T r = row_at_##T(l, in, b, h, t); \
				decay_##T(l, &r, s, e + (t - from) * l->v_width); \
				memcpy(own + (t - from) * size, s, (size_t)size * sizeof *s); \
				write_##T(l, &r, e + (t - from) * l->v_width, s); \
			} \
			for (int64_t t = end - 1; t >= from; t--) \
				back_##T(l, in, out, b, h, t, \
					 &(struct back_##T){ own + (t - from) * size, \
							     e + (t - from) * l->v_width, ds, du }); \
		} \
		if (in[PAST]) \
			memcpy((T *)out[PAST] + u * size, ds, (size_t)size * sizeof *ds); \
	}
LINEAR(float, expf)
LINEAR(double, exp)
#undef LINEAR

/* -- operands of other types are converted to f32, and results rounded -- */

/* An operand of one call: its type, and the offset of its converted copy in scratch memory. */
struct attention_operand { enum dlb_dtype type; int64_t count; size_t at; };
struct linear_call {
	struct linear_attention l;
	enum dlb_dtype work;
	bool backward;
	int n_in, n_out;
	/* inputs: the operands, dy, dpresent */
	struct attention_operand in[N_OPERANDS + 2], out[N_OPERANDS];
	size_t rest;						/* offset in scratch after the copies */
};

static void convert(const void *from, enum dlb_dtype t, void *to, enum dlb_dtype u, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		dlb_value_set(to, u, i, dlb_value_real(from, t, i));
}

static void linear_run(const void *ctx, const struct dlb_run *r)
{
	const struct linear_call *c = ctx;
	const int64_t units = c->l.batch * c->l.kv_heads;
	void *in[N_OPERANDS + 2] = { NULL }, *out[N_OPERANDS] = { NULL };
	char *scratch = r->scratch;

	for (int i = 0; i < c->n_in; i++) {
		/* the gradient's inputs begin with dy */
		void *p = !c->backward   ? r->in[i] :
			  i < N_OPERANDS ? r->in[GRAD_OPERANDS + i] :
					   r->in[i == N_OPERANDS ? GRAD_DY : GRAD_PRESENT];

		in[i] = p;
		if (p && c->in[i].type != c->work)
			convert(p, c->in[i].type, in[i] = scratch + c->in[i].at, c->work, c->in[i].count);
	}
	for (int i = 0; i < c->n_out; i++)
		out[i] = c->out[i].type != c->work || !r->out[i] ? scratch + c->out[i].at : r->out[i];
	if (c->backward && c->l.delta)
		memset(out[BETA], 0, (size_t)c->out[BETA].count * dlb_dtype_bytes(c->work));
	if (!c->backward && c->work == DLB_F32)
		forward_float(&c->l, in, out, (float *)(void *)(scratch + c->rest));
	else if (!c->backward)
		forward_double(&c->l, in, out, (double *)(void *)(scratch + c->rest));
	for (int64_t u = 0; u < units && c->backward; u++)
		if (c->work == DLB_F32)
			backward_head_float(&c->l, in, out, u, (float *)(void *)(scratch + c->rest));
		else
			backward_head_double(&c->l, in, out, u, (double *)(void *)(scratch + c->rest));
	for (int i = 0; i < c->n_out; i++)
		if (r->out[i] && c->out[i].type != c->work)
			convert(out[i], c->work, r->out[i], c->out[i].type, c->out[i].count);
}

static size_t room(size_t *bytes, int64_t count)
{
	const size_t at = *bytes;

	*bytes += ((size_t)count * sizeof(double) + 63) & ~(size_t)63;
	return at;
}

/* Describes operand i, and reserves scratch for a copy if one may be needed. */
static struct attention_operand operand_of(const struct dlb_desc *d, size_t *bytes)
{
	const int64_t n = d->n_dims < 0 ? 0 : dlb_desc_count(d);

	return (struct attention_operand){ d->dtype, n, room(bytes, n) };
}

static int prepare(struct dlb_backend *be, const struct dlb_op_io *io, bool backward, struct dlb_kernel **k,
		   struct dlb_error *err)
{
	const int first = backward ? GRAD_OPERANDS : 0;
	const struct dlb_desc absent = { .n_dims = -1 };
	struct linear_call c = { .backward = backward,
				 .n_in = backward ? N_OPERANDS + 2 : N_OPERANDS,
				 .n_out = backward ? N_OPERANDS : 2 };
	size_t bytes = 0;

	if (parse(io, first, &c.l, err))
		return -1;
	c.work = c.l.type == DLB_F64 ? DLB_F64 : DLB_F32;
	const struct linear_attention *l = &c.l;
	const int64_t state = l->batch * l->kv_heads * l->width * l->v_width, size = l->width * l->v_width;

	for (int i = 0; i < c.n_in; i++) {
		const int at = i < N_OPERANDS ? first + i : i == N_OPERANDS ? GRAD_DY : GRAD_PRESENT;

		c.in[i] = operand_of(dlb_io_has(io, at) ? &io->in[at] : &absent, &bytes);
	}
	if (backward) {
		for (int i = 0; i < N_OPERANDS; i++)
			c.out[i] = operand_of(dlb_io_has(io, first + i) ? &io->in[first + i] : &absent,
					      &bytes);
	} else {
		c.out[0] = (struct attention_operand){ l->type, l->batch * l->rows * l->heads * l->v_width,
						       0 };
		c.out[0].at = room(&bytes, c.out[0].count);
		c.out[1] = (struct attention_operand){ l->state, state, room(&bytes, state) };
	}
	c.rest = bytes;
	room(&bytes,
	     backward ? (2 * l->stretch + 2) * size + (l->stretch + 1) * l->v_width : size + l->v_width);
	return dlb_kernel_host(be, io,
			       &(struct dlb_host_call){ .fn = linear_run, .n_in = c.n_in, .n_out = c.n_out,
							.ctx = &c, .ctx_bytes = sizeof c,
							.scratch_bytes = bytes }, k, err);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return prepare(be, io, false, k, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	return prepare(be, io, true, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "q_num_heads", "kv_num_heads", "scale", "update_rule" };
	struct dlb_attr a[DLB_LEN(keep)];
	const int n = dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a);
	int in[GRAD_PRESENT + 1], out[N_OPERANDS] = { -1, -1, -1, -1, -1, -1 };
	/* y's gradient is zero if only present_state has one */
	const int dy = dlb_b_dout_or_zeros(b, 0);

	(void)err;
	in[GRAD_DY] = dy;
	for (int i = 0; i < N_OPERANDS; i++)
		in[GRAD_OPERANDS + i] = dlb_io_has(&b->io, i) ? b->in[i] : -1;
	in[GRAD_PRESENT] = b->io.n_out > 1 ? b->dout[1] : -1;
	dlb_b_op(b, &(struct dlb_op_spec){ .type = "LinearAttentionGrad", .in = in, .n_in = DLB_LEN(in),
					   .n_out = N_OPERANDS, .attr = a, .n_attr = n }, out, b->in[Q]);
	if (out[0] < 0)
		return -1;
	for (int i = 0; i < b->io.n_in; i++)
		if (b->in[i] >= 0 && b->need[i])
			b->din[i] = out[i];
	return 0;
}

static double work(const struct dlb_op_io *io, int at, double each)
{
	const double heads = (double)dlb_io_int(io, "q_num_heads", 1),
		     rows = (double)io->in[at].dim[0] * (double)io->in[at].dim[1];

	return each * rows * (double)io->in[at].dim[2] * (double)io->in[at + V].dim[2] / heads;
}

static double flops(const struct dlb_op_io *io)
{
	return work(io, 0, 6);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return work(io, GRAD_OPERANDS, 20);
}

const struct dlb_op_class dlb_op_LinearAttention = { .name = "LinearAttention",
						     .n_in = { 3, 6 },
						     .n_out = { 1, 2 },
						     .flags = DLB_OP_ON_CPU,
						     .work = "elementwise",
						     .infer = infer,
						     .flops = flops,
						     .gradient = gradient,
						     .kernel = kernel };
const struct dlb_op_class dlb_op_LinearAttentionGrad = { .name = "LinearAttentionGrad",
							 .domain = "dlb",
							 .n_in = { 4, 8 },
							 .n_out = { 1, 6 },
							 .flags = DLB_OP_ON_CPU,
							 .work = "elementwise",
							 .infer = grad_infer,
							 .flops = grad_flops,
							 .kernel = grad_kernel };
