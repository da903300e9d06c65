/* RNN, GRU and LSTM, and their gradients through time.
 *
 * The contribution of X to the gates is one product for the whole sequence; that of the state is one product
 * per step. An extra output (directions, steps, planes, samples, hidden) saves the gates and states of each
 * step for the gradients. Planes: RNN: h; GRU: z r candidate q h, where q = r h or, with linear_before_reset,
 * R h + b; LSTM: i o f g c h. The backward pass keeps the gradients of all gates, so that the gradients of W,
 * R and X are single products too. A sample that has ended (sequence_lens) keeps its state, and its outputs
 * are zero. Gates are in ONNX's order: iofc, zrh.
 * S. Hochreiter, J. Schmidhuber, Long Short-Term Memory, 1997; K. Cho et al., 2014. */
#include "op/op_util.h"

#include <stdlib.h>
#include <string.h>

enum kind { RNN, GRU, LSTM };
enum gemm { G_INPUT, G_STEP, G_STEP2, G_DSTEP, G_DSTEP2, G_DX, G_DX_ADD, G_DW, G_DR, G_DR2, N_GEMMS };
enum buffer {
	X_FIRST,
	SAVED,
	PART,
	REC,
	REC2,
	FIRST_H,
	FIRST_C,
	DH,
	DC,
	DH_NEXT,
	H_PREV,
	DGATES,
	DJOINT,
	DCAND,
	RESET_H,
	DX,
	DX_FIRST,
	BIAS,
	SUB_SCRATCH,
	N_BUFFERS
};
/* Copies. TIME_FIRST: X with time as first dimension; SAMPLE_FIRST: back. STATE_IN: a state of one direction,
 * made contiguous; STATE_OUT: back. BEFORE: the states before all steps but the first; PLANE: a plane of all
 * steps. CANDIDATE: the gradient of GRU's candidate, taken from the gradients of all gates. */
enum move {
	TIME_FIRST,
	SAMPLE_FIRST,
	STATE_IN,
	STATE_OUT,
	NO_STATE,
	NO_BIAS,
	ONE_BIAS,
	ALL_BIASES,
	BEFORE,
	PLANE,
	CANDIDATE,
	NO_PEEPHOLES,
	N_MOVES
};
/* + direction */
enum { CELL_GATES, CELL_CANDIDATE = 2, CELL_BACK = 4, CELL_BACK_RESET = 6, N_CELLS = 8 };
enum { MAX_IN = 11, MAX_OUT = 7 };
struct recurrent {
	struct dlb_kernel kernel;
	struct dlb_kernel *gemm[N_GEMMS], *cell[N_CELLS], *sum[2], *move[N_MOVES], *add_biases;
	void (*body)(struct recurrent *k, const struct dlb_run *r);
	/* version of the recurrent weight, which is packed for the products of the steps */
	uint64_t version;
	enum kind kind;
	int64_t t, n, i, h, d;			/* steps, samples, input and hidden size, directions */
	/* joint: gates whose product with the state is computed at once */
	int gates, joint, planes;
	int saved, n_out, n_in;			/* saved: index of the extra output */
	bool batch_first, reverse, coupled, has_b, has_h, has_c, has_p;
	int act[2][3];
	enum dlb_dtype type, len_type;
	size_t off[N_BUFFERS];
};

static int64_t time_of(const struct recurrent *k, int64_t d, int64_t step)
{
	return d == 1 || k->reverse ? k->t - 1 - step : step;
}

/* Indices of sample 0: at_state in a state, at_output in the output. The rows of neighbouring samples are
 * state_row and output_row apart. */
static int64_t at_state(const struct recurrent *k, int64_t d)
{
	return (k->batch_first ? d : d * k->n) * k->h;
}

static int64_t state_row(const struct recurrent *k)
{
	return k->batch_first ? k->d * k->h : k->h;
}

static int64_t at_output(const struct recurrent *k, int64_t t, int64_t d)
{
	return (k->batch_first ? t * k->d + d : (t * k->d + d) * k->n) * k->h;
}

static int64_t output_row(const struct recurrent *k)
{
	return k->batch_first ? k->t * k->d * k->h : k->h;
}

/* Address of element i of p; NULL if p is NULL. */
static void *at(const struct recurrent *k, const void *p, int64_t i)
{
	return p ? (char *)p + i * (int64_t)dlb_dtype_bytes(k->type) : NULL;
}

static void *buffer(const struct recurrent *k, const struct dlb_run *r, enum buffer b)
{
	return (char *)r->scratch + k->off[b];
}

static void run_sub(const struct recurrent *k, const struct dlb_run *r, struct dlb_kernel *sub_kernel,
		    void *const *in, void *const *out)
{
	struct dlb_run sub = *r;

	sub.in = in;
	sub.out = out;
	sub.scratch = buffer(k, r, SUB_SCRATCH);
	sub.weight_version = k->version;
	sub_kernel->run(sub_kernel, &sub);
}

static void product(const struct recurrent *k, const struct dlb_run *r, enum gemm g, const void *a,
		    const void *w, const void *c, void *y)
{
	run_sub(k, r, k->gemm[g], (void *const[]){ (void *)a, (void *)w, (void *)c }, &y);
}

/* Runs cell `which` for all samples at time t. */
static void cell(const struct recurrent *k, const struct dlb_run *r, int64_t which, int64_t t,
		 void *const *in, void *const *out)
{
	struct dlb_run now = *r;

	now.step = (uint64_t)t;
	run_sub(k, &now, k->cell[which], in, out);
}

/* to = the sum of the rows of m. */
static void sum_rows(const struct recurrent *k, const struct dlb_run *r, struct dlb_kernel *sum,
		     const void *m, void *to)
{
	run_sub(k, r, sum, (void *const[]){ (void *)m }, &to);
}

static void move(const struct recurrent *k, const struct dlb_run *r, enum move m, const void *from, void *to)
{
	run_sub(k, r, k->move[m], (void *const[]){ (void *)from }, &to);
}

/* X with time as the first dimension, copied if samples come first. */
static const void *time_first(const struct recurrent *k, const struct dlb_run *r, const void *x)
{
	if (!k->batch_first)
		return x;
	move(k, r, TIME_FIRST, x, buffer(k, r, X_FIRST));
	return buffer(k, r, X_FIRST);
}

/* Copies the initial state of direction d to contiguous memory; zeros if absent. */
static void first(const struct recurrent *k, const struct dlb_run *r, const void *from, int64_t d, void *to)
{
	move(k, r, from ? STATE_IN : NO_STATE, at(k, from, at_state(k, d)), to);
}

/* Writes the biases of direction d as a cell reads them: the bias of X plus that of the state for each gate.
 * For GRU's candidate the two stay apart, as third and fourth. Zeros if biases are absent. */
static void biases(const struct recurrent *k, const struct dlb_run *r, const void *b, int64_t d, void *to)
{
	const int64_t h = k->h, all = k->gates * h;
	void *const from[] = { at(k, b, d * 2 * all), at(k, b, d * 2 * all + all) };

	if (!b) {
		move(k, r, NO_BIAS, NULL, to);
		return;
	}
	run_sub(k, r, k->add_biases, from, &to);
	if (k->kind == GRU) {
		move(k, r, ONE_BIAS, at(k, from[0], 2 * h), at(k, to, 2 * h));
		move(k, r, ONE_BIAS, at(k, from[1], 2 * h), at(k, to, 3 * h));
	}
}

/* All steps of direction d. */
static void forward_steps(const struct recurrent *k, const struct dlb_run *r, int64_t d, void *saved)
{
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h;
	void *peep = k->has_p ? at(k, r->in[7], d * 3 * h) : NULL, *rw = at(k, r->in[2], d * gh * h);
	void *hp = buffer(k, r, FIRST_H), *cp = buffer(k, r, FIRST_C);
	void *rec = buffer(k, r, REC), *rec2 = buffer(k, r, REC2), *b = buffer(k, r, BIAS);

	for (int64_t step = 0; step < k->t; step++) {
		const int64_t t = time_of(k, d, step);
		void *part = at(k, buffer(k, r, PART), t * k->n * gh), *y = at(k, r->out[0], at_output(k, t, d));
		void *s = at(k, saved, (d * k->t + t) * k->planes * nh);

		product(k, r, G_STEP, hp, rw, NULL, rec);
		cell(k, r, CELL_GATES + d, t, (void *const[]){ part, rec, b, peep, hp, cp, r->in[4] },
		     (void *const[]){ s, y });
		if (k->kind == GRU && k->joint == 2)
			product(k, r, G_STEP2, at(k, s, 3 * nh), at(k, rw, 2 * h * h), NULL, rec2);
		if (k->kind == GRU)
			cell(k, r, CELL_CANDIDATE + d, t,
			     (void *const[]){ NULL, rec2, b, NULL, hp, NULL, r->in[4] }, (void *const[]){ s, y });
		hp = at(k, s, (k->planes - 1) * nh);
		cp = at(k, s, k->kind == LSTM ? 4 * nh : 0);
	}
	for (int o = 1; o < k->saved; o++)
		if (r->out[o])
			move(k, r, STATE_OUT, o == 1 ? hp : cp, at(k, r->out[o], at_state(k, d)));
}

static void forward(struct recurrent *k, const struct dlb_run *r)
{
	const int64_t gh = k->gates * k->h;
	const void *x = time_first(k, r, r->in[0]);
	void *saved = r->out[k->saved] ? r->out[k->saved] : buffer(k, r, SAVED);

	for (int64_t d = 0; d < k->d; d++) {
		first(k, r, k->has_h ? r->in[5] : NULL, d, buffer(k, r, FIRST_H));
		first(k, r, k->has_c ? r->in[6] : NULL, d, buffer(k, r, FIRST_C));
		biases(k, r, k->has_b ? r->in[3] : NULL, d, buffer(k, r, BIAS));
		k->version++;
		product(k, r, G_INPUT, x, at(k, r->in[1], d * gh * k->i), NULL, buffer(k, r, PART));
		forward_steps(k, r, d, saved);
	}
}

/* Collects the states before all steps of direction d: the initial state before its first step, then saved
 * ones. */
static void states_before(const struct recurrent *k, const struct dlb_run *r, int64_t d)
{
	const int64_t nh = k->n * k->h, backwards = time_of(k, d, 0) > 0;
	void *all = buffer(k, r, H_PREV);

	first(k, r, k->has_h ? r->in[5] : NULL, d, at(k, all, time_of(k, d, 0) * nh));
	if (k->t > 1)
		move(k, r, BEFORE,
		     at(k, r->in[0], (d * k->t + backwards) * k->planes * nh + (k->planes - 1) * nh),
		     at(k, all, backwards ? 0 : nh));
}

/* For a GRU whose reset gate comes first: computes the remaining gradients of the step, which pass through
 * the candidate. */
static void back_reset(const struct recurrent *k, const struct dlb_run *r, int64_t d, int64_t t,
		       const void *rw, void *const *in, void *const *out)
{
	const int64_t h = k->h;
	void *dn = at(k, buffer(k, r, DCAND), t * k->n * h);

	move(k, r, CANDIDATE, at(k, out[2], 2 * h), dn);
	product(k, r, G_DSTEP2, dn, at(k, rw, 2 * h * h), NULL, in[4]);
	cell(k, r, CELL_BACK_RESET + d, t, in, out);
}

/* Runs all steps of direction d in reverse; computes the dgates of all steps, and dh, dc of the initial
 * state. Returns the address of dh. */
static void *back_steps(const struct recurrent *k, const struct dlb_run *r, int64_t d, const void *rw,
			void *dp)
{
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h, jh = k->joint * h;
	void *saved = r->in[0], *peep = k->has_p ? at(k, r->in[7], d * 3 * h) : NULL;
	void *dh = buffer(k, r, DH), *next = buffer(k, r, DH_NEXT);

	for (int64_t step = k->t - 1; step >= 0; step--) {
		const int64_t t = time_of(k, d, step), before = step ? time_of(k, d, step - 1) : 0;
		void *s = at(k, saved, (d * k->t + t) * k->planes * nh),
		     *sp = at(k, saved, (d * k->t + before) * k->planes * nh);
		void *hp = at(k, buffer(k, r, H_PREV), t * nh),
		     *cp = step ? at(k, sp, k->kind == LSTM ? 4 * nh : 0) : buffer(k, r, FIRST_C);
		void *dx = at(k, buffer(k, r, DGATES), t * k->n * gh),
		     *dr = k->kind == GRU ? at(k, buffer(k, r, DJOINT), t * k->n * jh) : dx;
		void *const in[] = { s, hp, cp, peep, buffer(k, r, REC2), at(k, r->in[8], at_output(k, t, d)),
				     r->in[4] };
		void *const out[] = { dh, buffer(k, r, DC), dx, dr, dp };

		cell(k, r, CELL_BACK + d, t, in, out);
		if (k->kind == GRU && k->joint == 2)
			back_reset(k, r, d, t, rw, in, out);
		product(k, r, G_DSTEP, dr, rw, dh, next);
		dh = next;
		next = out[0];
	}
	return dh;
}

/* Computes the gradients of the weights and biases of direction d. */
static void back_weights(const struct recurrent *k, const struct dlb_run *r, int64_t d, const void *x)
{
	const int64_t h = k->h, nh = k->n * h, gh = k->gates * h;
	const void *dgates = buffer(k, r, DGATES), *dr = k->kind == GRU ? buffer(k, r, DJOINT) : dgates;
	void *db = at(k, r->out[3], d * 2 * gh);

	if (r->out[1])
		product(k, r, G_DW, dgates, x, NULL, at(k, r->out[1], d * gh * k->i));
	if (r->out[2])
		product(k, r, G_DR, dr, buffer(k, r, H_PREV), NULL, at(k, r->out[2], d * gh * h));
	if (r->out[2] && k->joint < k->gates) {
		move(k, r, PLANE, at(k, r->in[0], (d * k->t * k->planes + 3) * nh), buffer(k, r, RESET_H));
		product(k, r, G_DR2, buffer(k, r, DCAND), buffer(k, r, RESET_H), NULL,
			at(k, r->out[2], d * gh * h + 2 * h * h));
	}
	if (db) {
		sum_rows(k, r, k->sum[0], dgates, db);
		move(k, r, ALL_BIASES, db, at(k, db, gh));
		if (k->kind == GRU)
			sum_rows(k, r, k->sum[1], dr, at(k, db, gh));
	}
}

static void backward(struct recurrent *k, const struct dlb_run *r)
{
	const int64_t h = k->h, gh = k->gates * h;
	const void *x = time_first(k, r, r->in[1]), *dgates = buffer(k, r, DGATES);
	void *const *out = r->out, *dx = k->batch_first ? buffer(k, r, DX) : out[0];

	for (int64_t d = 0; d < k->d; d++) {
		const void *w = at(k, r->in[2], d * gh * k->i);
		/* only LSTM has peepholes */
		void *dp = k->has_p ? at(k, out[6], d * 3 * h) : NULL, *dh;

		states_before(k, r, d);
		first(k, r, k->has_c ? r->in[6] : NULL, d, buffer(k, r, FIRST_C));
		first(k, r, r->in[9], d, buffer(k, r, DH));
		first(k, r, r->in[10], d, buffer(k, r, DC));
		if (dp)
			move(k, r, NO_PEEPHOLES, NULL, dp);
		k->version++;
		dh = back_steps(k, r, d, at(k, r->in[3], d * gh * h), dp);
		if (out[0] && k->d == 2 && d == 0)
			product(k, r, G_DX, dgates, w, NULL, buffer(k, r, DX_FIRST));
		else if (out[0])
			product(k, r, d ? G_DX_ADD : G_DX, dgates, w, d ? buffer(k, r, DX_FIRST) : NULL, dx);
		back_weights(k, r, d, x);
		for (int o = 4; o < 6; o++)
			if (out[o])
				move(k, r, STATE_OUT, o == 4 ? dh : buffer(k, r, DC),
				     at(k, out[o], at_state(k, d)));
	}
	if (out[0] && k->batch_first)
		move(k, r, SAMPLE_FIRST, dx, out[0]);
}

/* -- reading the vertex -- */

static int read_activations(const struct dlb_op_io *io, struct recurrent *k, struct dlb_error *err)
{
	static const char *const names[] = { "Sigmoid", "Tanh", "Relu" };
	static const int usual[3][3] = { { DLB_CELL_TANH },
					 { DLB_CELL_SIGMOID, DLB_CELL_TANH },
					 { DLB_CELL_SIGMOID, DLB_CELL_TANH, DLB_CELL_TANH } };
	const char *p = dlb_io_str(io, "activations", "");
	int per = 1 + (int)k->kind, n = 0;

	for (int d = 0; d < 2; d++)
		memcpy(k->act[d], usual[k->kind], sizeof k->act[d]);
	for (; *p; n++) {
		size_t len = strcspn(p, ",");
		int f = -1;

		for (int i = 0; i < 3; i++)
			if (strlen(names[i]) == len && !strncmp(names[i], p, len))
				f = i;
		if (f < 0)
			return dlb_op_fail(io, err, "activation '%.*s' is not available", (int)len, p);
		if (n >= per * k->d)
			return dlb_op_fail(io, err, "more than %d activations", per * (int)k->d);
		k->act[n / per][n % per] = f;
		p += len + (p[len] == ',');
	}
	if (n && n != per * k->d)
		return dlb_op_fail(io, err, "%d activations, %d are needed", n, per * (int)k->d);
	return dlb_attr_find(io->attr, io->n_attr, "clip") ?
		       dlb_op_fail(io, err, "attribute 'clip' is not available") :
		       0;
}

static int want_shape(const struct dlb_op_io *io, int i, int n, const int64_t *dim, struct dlb_error *err)
{
	struct dlb_desc want = dlb_desc_make(io->in[0].dtype, n, dim);
	char a[128];

	if (dlb_io_has(io, i) && !dlb_desc_same_shape(&io->in[i], &want))
		return dlb_op_fail(io, err, "input %d is %s, which does not fit the others", i,
				   dlb_desc_str(&io->in[i], a, sizeof a));
	return 0;
}

static struct dlb_desc state_desc(const struct recurrent *k)
{
	return dlb_desc_make(k->type, 3,
			     (int64_t[]){ k->batch_first ? k->n : k->d, k->batch_first ? k->d : k->n, k->h });
}

/* Indices of the inputs: of the forward vertex, or of its gradient. */
struct places { int x, w, r, b, len, h, c, p; };
static const struct places forward_places = { 0, 1, 2, 3, 4, 5, 6, 7 },
			   grad_places = { 1, 2, 3, -1, 4, 5, 6, 7 };

static int parse(const struct dlb_op_io *io, const struct places *at, struct recurrent *k,
		 struct dlb_error *err)
{
	const char *direction = dlb_io_str(io, "direction", "forward");
	const struct dlb_desc *x = &io->in[at->x], *w = &io->in[at->w], *r = &io->in[at->r];
	struct dlb_desc state;

	memset(k, 0, sizeof *k);
	k->kind = io->cls->name[0] == 'L' ? LSTM : io->cls->name[0] == 'G' ? GRU : RNN;
	k->gates = k->kind == LSTM ? 4 : k->kind == GRU ? 3 : 1;
	k->planes = k->kind == LSTM ? 6 : k->kind == GRU ? 5 : 1;
	k->joint = k->kind == GRU && !dlb_io_int(io, "linear_before_reset", 0) ? 2 : k->gates;
	k->saved = k->kind == LSTM ? 3 : 2;
	k->batch_first = dlb_io_int(io, "layout", 0) != 0;
	k->coupled = dlb_io_int(io, "input_forget", 0) != 0;
	k->reverse = !strcmp(direction, "reverse");
	k->d = strcmp(direction, "bidirectional") ? 1 : 2;
	if (x->n_dims != 3 || w->n_dims != 3 || r->n_dims != 3)
		return dlb_op_fail(io, err, "X, W and R must have 3 dimensions");
	k->type = x->dtype;
	k->t = x->dim[k->batch_first];
	k->n = x->dim[!k->batch_first];
	k->i = x->dim[2];
	k->h = r->dim[2];
	if (dlb_io_int(io, "hidden_size", k->h) != k->h || k->t < 1)
		return dlb_op_fail(io, err, "hidden_size does not fit R, or there is no step");
	state = state_desc(k);
	if (want_shape(io, at->w, 3, (int64_t[]){ k->d, k->gates * k->h, k->i }, err) ||
	    want_shape(io, at->r, 3, (int64_t[]){ k->d, k->gates * k->h, k->h }, err) ||
	    (at->b >= 0 && want_shape(io, at->b, 2, (int64_t[]){ k->d, 2 * k->gates * k->h }, err)) ||
	    want_shape(io, at->len, 1, &k->n, err) || want_shape(io, at->h, 3, state.dim, err) ||
	    want_shape(io, at->c, 3, state.dim, err) ||
	    want_shape(io, at->p, 2, (int64_t[]){ k->d, 3 * k->h }, err))
		return -1;
	if (dlb_checked_count((int64_t[]){ k->t, k->n, k->d, 8 * k->gates, k->h + k->i }, 5) < 0)
		return dlb_op_fail(io, err, "the tensors are too large");
	for (int i = 0; i < io->n_in; i++)
		if (dlb_io_has(io, i) &&
		    (i == at->len ? !dlb_dtype_is_int(io->in[i].dtype) : io->in[i].dtype != k->type))
			return dlb_op_fail(io, err, "input %d is of type %s", i,
					   dlb_dtype_name(io->in[i].dtype));
	k->has_b = at->b >= 0 && dlb_io_has(io, at->b);
	k->has_h = dlb_io_has(io, at->h);
	k->has_c = dlb_io_has(io, at->c);
	k->has_p = dlb_io_has(io, at->p);
	k->len_type = dlb_io_has(io, at->len) ? io->in[at->len].dtype : DLB_I32;
	k->n_in = io->n_in;
	k->n_out = io->n_out;
	return read_activations(io, k, err);
}

static struct dlb_desc saved_desc(const struct recurrent *k)
{
	return dlb_desc_make(k->type, 5, (int64_t[]){ k->d, k->t, k->planes, k->n, k->h });
}

static struct dlb_desc output_desc(const struct recurrent *k)
{
	return k->batch_first ? dlb_desc_make(k->type, 4, (int64_t[]){ k->n, k->t, k->d, k->h }) :
		dlb_desc_make(k->type, 4, (int64_t[]){ k->t, k->d, k->n, k->h });
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct recurrent k;

	if (parse(io, &forward_places, &k, err))
		return -1;
	for (int i = 0; i < io->n_out; i++)
		io->out[i] = i == 0 ? output_desc(&k) : i == k.saved ? saved_desc(&k) : state_desc(&k);
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc y, saved, state;
	struct recurrent k;

	if (parse(io, &grad_places, &k, err))
		return -1;
	y = output_desc(&k);
	saved = saved_desc(&k);
	state = state_desc(&k);
	if (want_shape(io, 8, 4, y.dim, err) || want_shape(io, 9, 3, state.dim, err) ||
	    want_shape(io, 10, 3, state.dim, err) || want_shape(io, 0, 5, saved.dim, err))
		return -1;
	for (int i = 0; i < io->n_out; i++)
		io->out[i] = i < 3  ? io->in[1 + i] :
			     i == 3 ? dlb_desc_make(k.type, 2, (int64_t[]){ k.d, 2 * k.gates * k.h }) :
			     i < 6  ? state :
				      dlb_desc_make(k.type, 2, (int64_t[]){ k.d, 3 * k.h });
	return 0;
}

static double flops_of(const struct dlb_op_io *io, const struct places *at)
{
	struct recurrent k;

	if (parse(io, at, &k, NULL))
		return 0;
	return (double)(k.d * k.t * k.n * k.gates * k.h) * (2.0 * (double)(k.i + k.h) + 8);
}

static double flops(const struct dlb_op_io *io)
{
	return flops_of(io, &forward_places);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return 2 * flops_of(io, &grad_places);
}

/* -- kernels -- */

static void run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	struct recurrent *k = (struct recurrent *)kernel;
	void *in[MAX_IN] = { NULL }, *out[MAX_OUT] = { NULL };
	struct dlb_run sub = *r;

	for (int i = 0; i < k->n_in && i < MAX_IN; i++)
		in[i] = r->in[i];
	for (int i = 0; i < k->n_out && i < MAX_OUT; i++)
		out[i] = r->out[i];
	sub.in = in;
	sub.out = out;
	k->body(k, &sub);
}

static void release(struct dlb_kernel *kernel)
{
	struct recurrent *k = (struct recurrent *)kernel;

	for (int i = 0; i < N_GEMMS; i++)
		dlb_kernel_free(k->gemm[i]);
	for (int i = 0; i < N_CELLS; i++)
		dlb_kernel_free(k->cell[i]);
	dlb_kernel_free(k->sum[0]);
	dlb_kernel_free(k->sum[1]);
	for (int i = 0; i < N_MOVES; i++)
		dlb_kernel_free(k->move[i]);
	dlb_kernel_free(k->add_biases);
	free(k);
}

/* step: a product with the recurrent weight in every step, so packing it is worthwhile */
struct cell_gemm { enum gemm g; int64_t m, n, k; bool ta, tw, add, step; };

static int prepare_cell(struct dlb_backend *be, struct recurrent *k, int which, enum dlb_cell_loop loop,
			struct dlb_error *err)
{
	int rc = 0;

	for (int d = 0; d < k->d && !rc; d++) {
		struct dlb_cell_desc c = { .dtype = k->type,
					   .loop = loop,
					   .length = k->len_type,
					   .n = k->n,
					   .h = k->h,
					   .plane = k->n * k->h,
					   .x_row = k->gates * k->h,
					   .rec_row = loop == DLB_CELL_GRU_CANDIDATE ? k->h : k->joint * k->h,
					   .y_row = output_row(k),
					   .coupled = k->coupled,
					   .joint = k->joint == 3,
					   .peepholes = k->has_p };

		memcpy(c.act, k->act[d], sizeof c.act);
		rc = be->ops->cell(be, &c, &k->cell[which + d], err);
	}
	return rc;
}

static int prepare_sum(struct dlb_backend *be, const struct recurrent *k, int64_t width,
		       struct dlb_kernel **sum, struct dlb_error *err)
{
	const struct dlb_reduce_desc d = { .fn = DLB_REDUCE_FN_SUM,
					   .axes = 1,
					   .in = dlb_desc_make(k->type, 2, (int64_t[]){ k->t * k->n, width }),
					   .out = dlb_desc_make(k->type, 2, (int64_t[]){ 1, width }) };

	return be->ops->reduce(be, &d, sum, err);
}

static int prepare_loops(struct dlb_backend *be, struct recurrent *k, bool backward, struct dlb_error *err)
{
	static const enum dlb_cell_loop loops[3][2] = { { DLB_CELL_RNN, DLB_CELL_RNN_GRAD },
							{ DLB_CELL_GRU, DLB_CELL_GRU_GRAD },
							{ DLB_CELL_LSTM, DLB_CELL_LSTM_GRAD } };
	int rc = prepare_cell(be, k, backward ? CELL_BACK : CELL_GATES, loops[k->kind][backward], err);

	if (!rc && k->kind == GRU)
		rc = backward ? prepare_cell(be, k, CELL_BACK_RESET, DLB_CELL_GRU_GRAD_RESET, err) :
			prepare_cell(be, k, CELL_CANDIDATE, DLB_CELL_GRU_CANDIDATE, err);
	if (!rc && backward)
		rc = prepare_sum(be, k, k->gates * k->h, &k->sum[0], err);
	if (!rc && backward && k->kind == GRU)
		rc = prepare_sum(be, k, k->joint * k->h, &k->sum[1], err);
	return rc;
}

static int prepare_moves(struct dlb_backend *be, struct recurrent *k, struct dlb_error *err)
{
	const int64_t n = k->n, h = k->h, i = k->i, nh = n * h, gh = k->gates * h;
	const struct dlb_desc sums = dlb_desc_1d(k->type, (k->kind == GRU ? 2 : k->gates) * h);
	const struct dlb_map_desc add = { .fn = DLB_MAP_add, .n_in = 2, .in = { sums, sums }, .out = sums };
	const struct { int64_t dim[3], from[3], to[3], zeros; } moves[N_MOVES] = {
		[TIME_FIRST] = { { k->t, n, i }, { i, k->t * i, 1 }, { n * i, i, 1 }, 0 },
		[SAMPLE_FIRST] = { { k->t, n, i }, { n * i, i, 1 }, { i, k->t * i, 1 }, 0 },
		[STATE_IN] = { { 1, n, h }, { 0, state_row(k), 1 }, { 0, h, 1 }, 0 },
		[STATE_OUT] = { { 1, n, h }, { 0, h, 1 }, { 0, state_row(k), 1 }, 0 },
		[NO_STATE] = { .zeros = nh },
		[NO_BIAS] = { .zeros = 4 * h },
		[ONE_BIAS] = { { 1, 1, h }, { 0, 0, 1 }, { 0, 0, 1 }, 0 },
		[ALL_BIASES] = { { 1, 1, gh }, { 0, 0, 1 }, { 0, 0, 1 }, 0 },
		[BEFORE] = { { 1, k->t - 1, nh }, { 0, k->planes * nh, 1 }, { 0, nh, 1 }, 0 },
		[PLANE] = { { 1, k->t, nh }, { 0, k->planes * nh, 1 }, { 0, nh, 1 }, 0 },
		[CANDIDATE] = { { 1, n, h }, { 0, gh, 1 }, { 0, h, 1 }, 0 },
		[NO_PEEPHOLES] = { .zeros = 3 * h },
	};
	int rc = be->ops->map(be, &add, &k->add_biases, err);

	for (int m = 0; m < N_MOVES && !rc; m++) {
		struct dlb_copy_desc d = { .in = k->type,
					   .out = k->type,
					   .n_dims = 3,
					   .zero_first = moves[m].zeros > 0,
					   .out_count = moves[m].zeros };

		memcpy(d.dim, moves[m].dim, sizeof moves[m].dim);
		memcpy(d.in_stride, moves[m].from, sizeof moves[m].from);
		memcpy(d.out_stride, moves[m].to, sizeof moves[m].to);
		rc = be->ops->copy(be, &d, &k->move[m], err);
	}
	return rc;
}

/* The parts of a kernel: the function that runs it, the elements of its buffers, its matrix products. */
struct recurrent_parts {
	void (*body)(struct recurrent *k, const struct dlb_run *r);
	const int64_t *size;		/* [N_BUFFERS] */
	const struct cell_gemm *gemm;
	int n_gemms;
};

/* Takes k, which is freed after an error. */
static int prepare(struct dlb_backend *be, struct recurrent *k, const struct recurrent_parts *p,
		   struct dlb_kernel **out, struct dlb_error *err)
{
	const struct cell_gemm *s = p->gemm;
	size_t bytes = 0, most = 0, packed = 0;
	int rc = prepare_loops(be, k, p->body == backward, err);

	if (!rc)
		rc = prepare_moves(be, k, err);

	for (int i = 0; i < p->n_gemms && !rc; i++) {
		struct dlb_gemm_desc d = { .dtype = k->type,
					   .m = s[i].m,
					   .n = s[i].n,
					   .k = s[i].k,
					   .n_batch = 1,
					   .trans_a = s[i].ta,
					   .trans_w = s[i].tw,
					   .has_c = s[i].add,
					   .w_is_weight = s[i].step,
					   .alpha = 1,
					   .beta = s[i].add,
					   .c_row = s[i].n,
					   .c_col = 1 };

		rc = be->ops->gemm(be, &d, &k->gemm[s[i].g], err);
		if (!rc && k->gemm[s[i].g]->scratch_bytes > most)
			most = k->gemm[s[i].g]->scratch_bytes;
		if (!rc)
			packed += k->gemm[s[i].g]->packed_bytes;
	}
	for (int i = 0; i < 2; i++)
		if (k->sum[i] && k->sum[i]->scratch_bytes > most)
			most = k->sum[i]->scratch_bytes;
	for (int i = 0; i < N_BUFFERS; i++) {
		k->off[i] = bytes;
		bytes += i == SUB_SCRATCH ? most :
					    ((size_t)p->size[i] * dlb_dtype_bytes(k->type) + 63) / 64 * 64;
	}
	k->body = p->body;
	k->kernel = (struct dlb_kernel){
		.run = run, .free = release, .scratch_bytes = bytes, .packed_bytes = packed, .impl = "gemm"
	};
	for (int i = 0; i < N_GEMMS && !rc; i++)
		if (k->gemm[i])
			dlb_kernel_keep(&k->kernel, k->gemm[i]);
	if (rc)
		release(&k->kernel);
	else
		*out = &k->kernel;
	return rc;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **out,
		  struct dlb_error *err)
{
	struct recurrent *k = dlb_xcalloc(1, sizeof *k);

	if (parse(io, &forward_places, k, err) || (k->type != DLB_F32 && k->type != DLB_F64)) {
		const bool bad = k->type == DLB_F32 || k->type == DLB_F64;

		free(k);
		return bad ? -1 : DLB_NO_KERNEL;
	}
	const int64_t nh = k->n * k->h, rows = k->t * k->n, gh = k->gates * k->h;
	const int64_t size[N_BUFFERS] = { [X_FIRST] = k->batch_first ? rows * k->i : 0,
					  [SAVED] = dlb_io_wants(io, k->saved) ? 0 :
										 k->d * k->t * k->planes * nh,
					  [PART] = rows * gh,
					  [REC] = k->n * gh,
					  [REC2] = nh,
					  [FIRST_H] = nh,
					  [FIRST_C] = nh,
					  [BIAS] = 4 * k->h };
	const struct cell_gemm s[] = { { G_INPUT, rows, gh, k->i, false, true, false, false },
		{ G_STEP, k->n, k->joint * k->h, k->h, false, true, false, true },
		{ G_STEP2, k->n, k->h, k->h, false, true, false, true } };

	const struct recurrent_parts p = { forward, size, s, DLB_LEN(s) };

	return prepare(be, k, &p, out, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **out,
		       struct dlb_error *err)
{
	struct recurrent *k = dlb_xcalloc(1, sizeof *k);

	if (parse(io, &grad_places, k, err) || (k->type != DLB_F32 && k->type != DLB_F64)) {
		const bool bad = k->type == DLB_F32 || k->type == DLB_F64;

		free(k);
		return bad ? -1 : DLB_NO_KERNEL;
	}
	const int64_t nh = k->n * k->h, rows = k->t * k->n, gh = k->gates * k->h, jh = k->joint * k->h;
	const int64_t size[N_BUFFERS] = { [X_FIRST] = k->batch_first ? rows * k->i : 0,
					  [REC2] = nh,
					  [FIRST_C] = nh,
					  [DH] = nh,
					  [DC] = nh,
					  [DH_NEXT] = nh,
					  [H_PREV] = rows * k->h,
					  [DGATES] = rows * gh,
					  [DJOINT] = k->kind == GRU ? rows * jh : 0,
					  [DCAND] = rows * k->h,
					  [RESET_H] = rows * k->h,
					  [DX] = k->batch_first ? rows * k->i : 0,
					  [DX_FIRST] = k->d == 2 ? rows * k->i : 0 };
	const struct cell_gemm s[] = { { G_DSTEP, k->n, k->h, jh, false, false, true, true },
				       { G_DSTEP2, k->n, k->h, k->h, false, false, false, true },
				       { G_DX, rows, k->i, gh, false, false, false, false },
				       { G_DX_ADD, rows, k->i, gh, false, false, true, false },
				       { G_DW, gh, k->i, rows, true, false, false, false },
				       { G_DR, jh, k->h, rows, true, false, false, false },
				       { G_DR2, k->h, k->h, rows, true, false, false, false } };
	const struct recurrent_parts p = { backward, size, s, DLB_LEN(s) };

	return prepare(be, k, &p, out, err);
}

/* -- gradient -- */

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const int din_of[7] = { 0, 1, 2, 3, 5, 6, 7 };
	const char *name = b->io.cls->name;
	const bool lstm = name[0] == 'L';
	int in[MAX_IN], out[MAX_OUT];

	(void)err;
	for (int i = 0; i < 3; i++)
		in[8 + i] = i < (lstm ? 3 : 2) && i < b->io.n_out ? b->dout[i] : -1;
	for (int i = 0; i < MAX_IN - 4; i++) {
		const int from = i < 3 ? i : i + 1;		/* all but the bias */

		in[1 + i] = from < b->io.n_in ? b->in[from] : -1;
	}
	in[0] = dlb_b_extra_output(b, lstm ? 3 : 2);
	const char *type = lstm ? "LSTMGrad" : name[0] == 'G' ? "GRUGrad" : "RNNGrad";
	if (dlb_b_op(b, &(struct dlb_op_spec){ .type = type, .in = in, .n_in = MAX_IN, .n_out = MAX_OUT,
					       .attr = b->io.attr, .n_attr = b->io.n_attr },
		     out, b->in[0]) < 0)
		return -1;
	for (int o = 0; o < MAX_OUT; o++) {
		const int i = din_of[o];

		if (i < b->io.n_in && b->in[i] >= 0 && b->need[i])
			b->din[i] = out[o];
	}
	return 0;
}

#define CLASSES(N, INS, OUTS) \
	const struct dlb_op_class dlb_op_##N = { .name = #N, \
						 .n_in = { 3, INS }, \
						 .n_out = { 1, OUTS }, \
						 .work = "dense", \
						 .infer = infer, \
						 .flops = flops, \
						 .gradient = gradient, \
						 .kernel = kernel }; \
	const struct dlb_op_class dlb_op_##N##Grad = { .name = #N "Grad", \
						       .domain = "dlb", \
						       .n_in = { 4, MAX_IN }, \
						       .n_out = { 1, MAX_OUT }, \
						       .work = "dense", \
						       .infer = grad_infer, \
						       .flops = grad_flops, \
						       .kernel = grad_kernel };
CLASSES(RNN, 6, 3)
CLASSES(GRU, 6, 3)
CLASSES(LSTM, 8, 4)
