/* Sequences of tensors: lists of tensor ids, which exist only while the graph is folded. Their lengths are
 * known by construction; positions in them must be known too, like conditions (structure.c). */
#include <inttypes.h>
#include <string.h>
#include "graph/fold.h"
#include "graph/order.h"

enum { MAX_LISTED = 64 };	/* list items that count as one vertex for dlb_fold_spend */

static int fail(struct fold *f, int op, struct dlb_error *err, const char *what)
{
	return dlb_vertex_fail(&f->g->op[op], err, DLB_CURE_CHECK, "%s", what);
}

static int operand(const struct fold *f, int op, int k)
{
	return k < f->g->op[op].n_in ? f->g->op[op].in[k] : -1;
}

static const struct dlb_sequence *list_of(struct fold *f, int op, struct dlb_error *err)
{
	const int t = operand(f, op, 0);
	const struct dlb_sequence *s = t < 0 ? NULL : f->sequence[t];

	if (!s)
		fail(f, op, err, "its first input is no sequence");
	return s;
}

/* Makes output 0 a list of n items, which the caller fills; NULL with err. */
static int *new_list(struct fold *f, int op, int n, struct dlb_error *err)
{
	const int out = f->g->op[op].out[0];
	struct dlb_sequence *s = dlb_arena_alloc(&f->a, sizeof *s);

	if (dlb_fold_spend(f, op, 1 + n / MAX_LISTED, err))
		return NULL;
	s->n = n;
	s->item = dlb_arena_array(&f->a, (size_t)n + 1, sizeof *s->item);
	f->sequence[out] = s;
	return s->item;
}

/* Returns the position among n tensors that operand k gives, negative ones counted from the end; `otherwise`
 * if absent. At least 0, at most `last`; -1 with err. */
static int position(struct fold *f, int op, int k, int n, int otherwise, int last, struct dlb_error *err)
{
	int64_t v = otherwise;
	const int t = operand(f, op, k);

	if (t >= 0 && dlb_fold_decide(f, op, t, "position", &v, err))
		return -1;
	if (v < -n || v > last || last < 0)
		return dlb_vertex_fail(&f->g->op[op], err, DLB_CURE_CHECK,
				"position %" PRId64 " of %s is out of range for %d tensors", v,
				f->g->op[op].type, n);
	return (int)(v < 0 ? v + n : v);
}

static int empty(struct fold *f, int op, struct dlb_error *err)
{
	return new_list(f, op, 0, err) ? 0 : -1;
}

static int construct(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int n = o->n_in, *in = o->in;
	int *item = new_list(f, op, n, err);

	if (!item)
		return -1;
	for (int i = 0; i < n; i++)
		if ((item[i] = in[i]) < 0 || f->sequence[in[i]])
			return fail(f, op, err, "one of its inputs is missing, or no tensor");
	return 0;
}

static int insert(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_sequence *s = list_of(f, op, err);
	const int t = operand(f, op, 1);
	int at, *item;

	if (!s || (at = position(f, op, 2, s->n, s->n, s->n, err)) < 0)
		return -1;
	if (t < 0 || f->sequence[t])
		return fail(f, op, err, "what it inserts is no tensor");
	if (!(item = new_list(f, op, s->n + 1, err)))
		return -1;
	for (int i = 0; i <= s->n; i++)
		item[i] = i == at ? t : s->item[i - (i > at)];
	return 0;
}

static int erase(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_sequence *s = list_of(f, op, err);
	int at, *item;

	if (!s || (at = position(f, op, 1, s->n, s->n - 1, s->n - 1, err)) < 0 ||
	    !(item = new_list(f, op, s->n - 1, err)))
		return -1;
	for (int i = 0; i < s->n - 1; i++)
		item[i] = s->item[i + (i >= at)];
	return 0;
}

static int item_at(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_sequence *s = list_of(f, op, err);
	int at;

	if (!s || operand(f, op, 1) < 0)
		return s ? fail(f, op, err, "no position") : -1;
	if ((at = position(f, op, 1, s->n, 0, s->n - 1, err)) < 0)
		return -1;
	return dlb_fold_bind(f, op, 0, s->item[at], err);
}

static int length(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_sequence *s = list_of(f, op, err);
	const int64_t n = s ? s->n : 0;

	return s ? dlb_fold_bind(f, op, 0, dlb_fold_ints(f, op, &n, -1), err) : -1;
}

/* Sizes of the pieces from the operand `split`: a list if it has a dimension, else one size, which only the
 * last piece may fall below. NULL with err. */
static const int64_t *piece_sizes(struct fold *f, int op, int64_t total, int *n, struct dlb_error *err)
{
	const struct dlb_tensor *split = &f->g->tensor[operand(f, op, 1)];
	const int t = operand(f, op, 1);
	int64_t *size, each = 1, sum = 0;

	if (split->n_dims == 0) {
		if (dlb_fold_decide(f, op, t, "split", &each, err))
			return NULL;
		if (each < 1 || dlb_fold_spend(f, op, total / each, err)) {
			if (each < 1)
				fail(f, op, err, "the pieces would be empty");
			return NULL;
		}
		*n = (int)((total + each - 1) / each);
		size = dlb_arena_array(&f->a, (size_t)*n + 1, sizeof *size);
		for (int i = 0; i < *n; i++)
			size[i] = i + 1 < *n ? each : total - each * (*n - 1);
		return size;
	}
	const void *v = dlb_fold_is_known(f, t) && !f->varies[t] && split->n_dims == 1 && !split->dim[0].mul
		? dlb_fold_value(f, t, 0) : NULL;
	if (!v) {
		fail(f, op, err, "the sizes of the pieces are not known before the run");
		return NULL;
	}
	if (dlb_fold_spend(f, op, split->dim[0].add, err))
		return NULL;
	*n = (int)split->dim[0].add;
	size = dlb_arena_array(&f->a, (size_t)*n + 1, sizeof *size);
	for (int i = 0; i < *n && sum >= 0; i++) {
		size[i] = dlb_value_int(v, split->dtype, i);
		sum = size[i] < 0 || size[i] > total ? -1 : sum + size[i];
	}
	if (sum == total)
		return size;
	fail(f, op, err, "the sizes of the pieces do not add up to the dimension");
	return NULL;
}

static int split_up(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const int t = operand(f, op, 0);
	const bool given = operand(f, op, 1) >= 0,
		   keep = given || dlb_attr_int(o->attr, o->n_attr, "keepdims", 1);
	int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", 0), total;
	const int64_t *size = NULL;
	int n, *item;

	if (dlb_fold_length(f, op, t, &axis, &total, err) || dlb_fold_spend(f, op, given ? 1 : total, err))
		return -1;
	n = given ? 0 : (int)total;
	if (given && !(size = piece_sizes(f, op, total, &n, err)))
		return -1;
	if (!(item = new_list(f, op, n, err)))
		return -1;
	return n ? dlb_fold_split(f, op, t,
				  &(struct dlb_fold_pieces){ .axis = axis, .size = size, .n = n,
							     .keep = keep }, item, err) : 0;
}

static int join(struct fold *f, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &f->g->op[op];
	const struct dlb_sequence *s = list_of(f, op, err);

	if (!s)
		return -1;
	if (!s->n || !dlb_attr_find(o->attr, o->n_attr, "axis"))
		return fail(f, op, err, s->n ? "no attribute 'axis'" : "the sequence is empty");
	const int t = dlb_fold_join(f, op, s->item, s->n, dlb_attr_int(o->attr, o->n_attr, "axis", 0),
				    dlb_attr_int(o->attr, o->n_attr, "new_axis", 0) != 0, err);
	return t < 0 ? -1 : dlb_fold_bind(f, op, 0, t, err);
}

static const struct {
	const char *type;
	int (*resolve)(struct fold *f, int op, struct dlb_error *err);
} kinds[] = {
	{ "SequenceEmpty", empty },      { "SequenceConstruct", construct }, { "SequenceInsert", insert },
	{ "SequenceErase", erase },      { "SequenceAt", item_at },          { "SequenceLength", length },
	{ "SplitToSequence", split_up }, { "ConcatFromSequence", join },
};

int dlb_sequence_find(const char *type)
{
	for (int i = 0; i < DLB_LEN(kinds); i++)
		if (!strcmp(kinds[i].type, type))
			return i;
	return -1;
}

int dlb_sequence_resolve(struct fold *f, int op, int row, struct dlb_error *err)
{
	if (f->g->op[op].n_out != 1 || f->g->op[op].out[0] < 0)
		return fail(f, op, err, "it has one output");
	return kinds[row].resolve(f, op, err);
}
