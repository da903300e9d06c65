/* Initializers made of parts of parameters, over random shapes, permutations, slices, repetitions and
 * tables: their values, the ops that compute them, their text in a document, what is refused, and that
 * they are found again in a state_dict. */
#include <math.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "doc/doc.h"
#include "graph/derived.h"
#include "graph/derived_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "util/rng.h"
#include "check.h"

enum { MOST = 4096, PARTS = 3 };

/* A random derived tensor, and its value, computed here. */
struct example {
	struct dlb_derived d;
	struct dlb_part part[PARTS];
	int64_t index[64];
	float source[PARTS][MOST], want[MOST];
	const char *name[PARTS];
};

static struct dlb_rng rng;
static struct dlb_backend be;

static int below(int n) { return (int)dlb_rng_below(&rng, (uint64_t)n); }

static int64_t count(const int64_t *dim, int n)
{
	int64_t c = 1;

	for (int i = 0; i < n; i++)
		c *= dim[i];
	return c;
}

static void shuffle(int *perm, int n)
{
	for (int i = 0; i < n; i++)
		perm[i] = i;
	for (int i = n - 1; i > 0; i--) {
		const int k = below(i + 1), x = perm[i];
		perm[i] = perm[k];
		perm[k] = x;
	}
}

/* All elements differ. */
static void fill(struct example *x, int p)
{
	for (int i = 0; i < MOST; i++)
		x->source[p][i] = (float)((i * 1571 + p * 37 + 11) % 8191) / 4096.f - 1;
}

/* The part's elements in the order of its permuted dimensions. */
static int64_t elements(const struct dlb_part *p, const float *source, float *out)
{
	int64_t size[DLB_MAX_DIMS], n = 1;

	for (int k = 0; k < p->n_dims; k++)
		n *= size[k] = p->perm[k] == p->axis ? p->count : p->dim[p->perm[k]];
	for (int64_t e = 0; e < n; e++) {
		int64_t at[DLB_MAX_DIMS] = { 0 }, rest = e, from = 0;
		for (int k = p->n_dims - 1; k >= 0; k--) {
			at[p->perm[k]] = rest % size[k] + (p->perm[k] == p->axis ? p->first : 0);
			rest /= size[k];
		}
		for (int k = 0; k < p->n_dims; k++)
			from = from * p->dim[k] + at[k];
		out[e] = source[from];
	}
	return n;
}

static double function_of(enum dlb_derived_function f, double v)
{
	return f == DLB_DERIVED_ONE_PLUS  ? 1 + v :
	       f == DLB_DERIVED_EXP       ? exp(v) :
	       f == DLB_DERIVED_MINUS_EXP ? -exp(v) :
	       f == DLB_DERIVED_SOFTPLUS  ? log(1 + exp(v)) :
					    v;
}

/* A part that gives before * length * behind elements: an entry of three dimensions, cut along one,
 * permuted. */
static void make_part(struct example *x, int p, int64_t before, int64_t length, int64_t behind)
{
	static const char *const names[PARTS] = { "a.weight", "b.weight", "c.bias" };
	struct dlb_part *part = &x->part[p];
	const int64_t size[3] = { before, length, behind };
	int turned[3];

	*part = (struct dlb_part){ .of = names[p], .n_dims = 3, .axis = below(3), .length = length };
	shuffle(turned, 3);
	for (int k = 0; k < 3; k++) { /* its dimension turned[k] is the kth of the result */
		part->perm[k] = turned[k];
		part->dim[turned[k]] = size[k];
	}
	part->count = part->dim[part->axis];
	part->first = below(3);
	part->dim[part->axis] += part->first + below(3);
	fill(x, p);
	x->name[p] = part->of;
}

static void random_parts(struct example *x, bool function)
{
	static float base[MOST], row[PARTS][MOST];
	struct dlb_derived *d = &x->d;

	*d = (struct dlb_derived){
		.name = "val_1", .n_dims = 1 + below(4), .n_parts = 1 + below(PARTS), .part = x->part
	};
	d->axis = below(d->n_dims);
	for (int k = 0; k < d->n_dims; k++) {
		d->dim[k] = 1 + below(4);
		d->base[k] = k != d->axis && below(3) == 0 ? 1 : d->dim[k];
	}
	int64_t length = 0, inner = count(d->base + d->axis + 1, d->n_dims - d->axis - 1),
		outer = count(d->base, d->axis);
	for (int p = 0; p < d->n_parts; p++) {
		make_part(x, p, outer, 1 + below(3), inner);
		length += x->part[p].length;
	}
	d->dim[d->axis] = d->base[d->axis] = length;
	d->function = function ? (enum dlb_derived_function)below(DLB_DERIVED_FUNCTIONS) : DLB_DERIVED_SAME;
	for (int p = 0; p < d->n_parts; p++)
		assert(IS(elements(&x->part[p], x->source[p], row[p]), ==,
			  outer * inner * x->part[p].length));
	float *to = base;
	for (int64_t o = 0; o < outer; o++)
		for (int p = 0; p < d->n_parts; p++)
			for (int64_t e = 0, n = inner * x->part[p].length; e < n; e++)
				*to++ = (float)function_of(d->function, row[p][o * n + e]);
	for (int64_t e = 0; e < count(d->dim, d->n_dims); e++) {
		int64_t rest = e, from = 0, at[DLB_MAX_DIMS];
		for (int k = d->n_dims - 1; k >= 0; rest /= d->dim[k--])
			at[k] = rest % d->dim[k];
		for (int k = 0; k < d->n_dims; k++)
			from = from * d->base[k] + (d->base[k] == 1 ? 0 : at[k]);
		x->want[e] = base[from];
	}
}

/* Rows of a table of two dimensions. */
static void random_lookup(struct example *x)
{
	struct dlb_derived *d = &x->d;
	const int64_t rows = 3 + below(6), width = 2 + below(4);

	*d = (struct dlb_derived){
		.name = "val_1", .n_dims = 2 + below(3), .n_parts = 1, .part = x->part, .index = x->index
	};
	d->axis = below(d->n_dims);
	for (int k = 0; k < d->n_dims; k++)
		d->base[k] = d->dim[k] = k == d->axis ? width : 1 + below(4);
	d->n_index = count(d->dim, d->n_dims) / width;
	x->part[0] = (struct dlb_part){ .of = "table",
					.n_dims = 2,
					.dim = { rows, width },
					.count = rows,
					.perm = { 0, 1 },
					.length = d->dim[0] };
	x->name[0] = "table";
	fill(x, 0);
	for (int64_t i = 0; i < d->n_index; i++)
		x->index[i] = below((int)rows);
	const int64_t inner = count(d->dim + d->axis + 1, d->n_dims - d->axis - 1);
	for (int64_t e = 0; e < count(d->dim, d->n_dims); e++)
		x->want[e] = x->source[0][x->index[e / inner / width * inner + e % inner] * width +
					  e / inner % width];
}

static void random_example(struct example *x, int i)
{
	dlb_rng_init(&rng, (uint64_t)i);
	if (i % 5 == 4)
		random_lookup(x);
	else
		random_parts(x, i % 5 == 3);
}

static void same(const float *got, const float *want, int64_t n)
{
	for (int64_t e = 0; e < n; e++)
		assert(IS(fabs((double)got[e] - want[e]), <=, 1e-6 * fabs((double)want[e])));
}

/* -- values and ops -- */

static void check_value(const struct example *x)
{
	const int64_t n = count(x->d.dim, x->d.n_dims);
	float *out = malloc((size_t)n * sizeof *out);	/* exactly: the sanitizer finds a write behind it */
	const void *source[PARTS];

	for (int p = 0; p < x->d.n_parts; p++)
		source[p] = x->source[p];
	assert(dlb_derived_fits(&x->d));
	dlb_derived_value(&x->d, source, DLB_F32, out);
	same(out, x->want, n);
	free(out);
}

static int constant(struct dlb_graph *g, const char *name, const int64_t *dim, int n, const float *v)
{
	struct dlb_desc d = { .dtype = DLB_F32, .n_dims = n };

	memcpy(d.dim, dim, (size_t)n * sizeof *dim);
	return dlb_graph_add_constant(g, name, &d, v, NULL);
}

/* Negates tensor t, so that it has a reader; the model's output. */
static int negate(struct dlb_graph *g, int t)
{
	const int out = dlb_graph_add_tensor(g, "y", DLB_T_ACTIVATION);
	const struct dlb_op_spec s = {
		.name = "neg", .type = "Neg", .in = &t, .n_in = 1, .out = &out, .n_out = 1, .opset = 17
	};

	g->tensor[out].producer = dlb_graph_add_op(g, DLB_FORWARD, &s);
	g->output = dlb_arena_array(&g->arena, 1, sizeof *g->output);
	g->output[0] = out;
	g->n_outputs = 1;
	return out;
}

/* The ops that are added compute the same from the parameters; they are folded. */
static void check_ops(const struct example *x)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int source[PARTS];

	dlb_graph_init(&g);
	for (int p = 0; p < x->d.n_parts; p++)
		source[p] = constant(&g, x->name[p], x->part[p].dim, x->part[p].n_dims, x->source[p]);
	const int t = constant(&g, "val_1", x->d.dim, x->d.n_dims, x->want);
	negate(&g, t);
	assert(!dlb_derived_add(&g, t, &x->d, source, &err) && IS(g.n_derived, ==, 1));
	assert(g.derived[0].name != x->d.name && SAME(g.derived[0].name, "val_1") &&
	       SAME(g.derived[0].part[0].of, x->name[0]));
	assert(IS(g.op[0].in[0], !=, t) && !dlb_graph_sort(&g, &err) && !dlb_graph_fold(&g, 1, &be, &err));
	const struct dlb_tensor *y = &g.tensor[g.output[0]];
	const struct dlb_desc got = dlb_tensor_desc(y, 1);
	assert(y->data && IS(got.n_dims, ==, x->d.n_dims));
	for (int k = 0; k < got.n_dims; k++)
		assert(IS(got.dim[k], ==, x->d.dim[k]));
	for (int64_t e = 0; e < count(x->d.dim, x->d.n_dims); e++)
		assert(IS(fabs((double)((const float *)y->data)[e] + x->want[e]), <=,
			  2e-6 * fabs((double)x->want[e])));
	dlb_graph_release(&g);
}

/* -- text -- */

static int read_text(json_t *list, struct dlb_graph *g, struct dlb_error *err)
{
	json_t *graph = json_pack("{s:O}", "derived", list);
	const struct dlb_ref r = { .v = graph, .key = "graph", .index = -1 };
	const int rc = dlb_derived_read(&r, g, err);

	json_decref(graph);
	return rc;
}

static void check_json(struct example *x)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g, h;

	dlb_graph_init(&g);
	g.derived = &x->d;
	g.n_derived = 1;
	json_t *list = dlb_derived_write(&g), *again;
	dlb_graph_init(&h);
	assert(!read_text(list, &h, &err) && IS(h.n_derived, ==, 1));
	const struct dlb_derived *d = &h.derived[0];
	assert(SAME(d->name, "val_1") && IS(d->n_dims, ==, x->d.n_dims) && IS(d->axis, ==, x->d.axis) &&
	       IS(d->function, ==, x->d.function) && IS(d->n_parts, ==, x->d.n_parts) &&
	       IS(d->n_index, ==, x->d.n_index));
	assert(!memcmp(d->dim, x->d.dim, sizeof d->dim) &&
	       !memcmp(d->base, x->d.base, (size_t)d->n_dims * sizeof *d->base));
	assert(!d->index || !memcmp(d->index, x->index, (size_t)d->n_index * sizeof *d->index));
	for (int p = 0; p < d->n_parts; p++) {
		const struct dlb_part *a = &d->part[p], *b = &x->part[p];
		assert(SAME(a->of, b->of) && IS(a->n_dims, ==, b->n_dims) && IS(a->axis, ==, b->axis) &&
		       IS(a->first, ==, b->first) && IS(a->count, ==, b->count) &&
		       IS(a->length, ==, b->length));
		assert(!memcmp(a->dim, b->dim, (size_t)a->n_dims * sizeof *a->dim) &&
		       !memcmp(a->perm, b->perm, (size_t)a->n_dims * sizeof *a->perm));
	}
	again = dlb_derived_write(&h);
	assert(json_equal(list, again));
	json_decref(list);
	json_decref(again);
	dlb_graph_release(&h);
}

/* Each change of a good text is refused with this message. */
static void test_bad_text(void)
{
	static const char good[] = "{\"name\": \"v\", \"shape\": [2, 6], \"base\": [1, 6], \"axis\": 1, "
				   "\"function\": \"exp(x)\", \"parts\": ["
				   "{\"of\": \"w\", \"shape\": [9, 1], \"axis\": 0, \"first\": 3, \"count\": "
				   "6, \"perm\": [1, 0], \"length\": 6}]}";
	static const char
		table[] = "{\"name\": \"v\", \"shape\": [2, 3], \"axis\": 1, \"index\": [4, 0], \"parts\": ["
			  "{\"of\": \"w\", \"shape\": [5, 3], \"axis\": 0, \"first\": 0, \"count\": 5, "
			  "\"perm\": [0, 1], \"length\": 2}]}";
	static const struct {
		const char *from, *to, *where, *what;
		bool lookup;
	} rows[] = {
		{ "[2, 6]", "[2, 6, 1]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "[2, 6]", "[0, 6]", "/graph/derived/0/shape/0", "", false },
		{ "[2, 6]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]", "/graph/derived/0/shape",
		  "9 dimensions; at most 8", false },
		{ "[1, 6]", "[1, 5]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "[1, 6]", "[6]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "[1, 6]", "[3, 6]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "\"axis\": 1", "\"axis\": 0", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "\"axis\": 1", "\"axis\": 8", "/graph/derived/0/axis", "", false },
		{ "exp(x)", "exp(y)", "/graph/derived/0/function", "no function 'exp(y)'", false },
		{ "\"first\": 3", "\"first\": 4", "/graph/derived/0", "its parts do not fit its shape",
		  false },
		{ "\"first\": 3", "\"first\": -1", "/graph/derived/0/parts/0/first", "", false },
		{ "\"count\": 6", "\"count\": 5", "/graph/derived/0", "its parts do not fit its shape",
		  false },
		{ "\"count\": 6", "\"count\": 0", "/graph/derived/0/parts/0/count", "", false },
		{ "[1, 0]", "[1, 1]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "[1, 0]", "[1, 2]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "[1, 0]", "[1, 9]", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "[1, 0]", "[0]", "/graph/derived/0/parts/0/perm", "1 dimensions of 2", false },
		{ "\"length\": 6", "\"length\": 5", "/graph/derived/0", "its parts do not fit its shape",
		  false },
		{ "\"length\": 6", "\"length\": 0", "/graph/derived/0/parts/0/length", "", false },
		{ "\"axis\": 0", "\"axis\": 1", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "\"axis\": 0", "\"axis\": 2", "/graph/derived/0", "its parts do not fit its shape", false },
		{ "\"of\": \"w\"", "\"of\": 1", "/graph/derived/0/parts/0/of", "", false },
		{ "\"of\"", "\"off\"", "/graph/derived/0/parts/0", "", false },
		{ "\"base\"", "\"bases\"", "/graph/derived/0", "", false },
		{ "[4, 0]", "[5, 0]", "/graph/derived/0", "its parts do not fit its shape", true },
		{ "[4, 0]", "[4, -1]", "/graph/derived/0/index/1", "", true },
		{ "[4, 0]", "[4, 0, 0]", "/graph/derived/0", "its parts do not fit its shape", true },
		{ "[4, 0]", "[4]", "/graph/derived/0", "its parts do not fit its shape", true },
		{ "[4, 0]", "[4, 0], \"function\": \"1+x\"", "/graph/derived/0",
		  "its parts do not fit its shape", true },
		{ "[4, 0]", "[4, 0], \"base\": [1, 3]", "/graph/derived/0", "its parts do not fit its shape",
		  true },
		{ "[5, 3]", "[5, 2]", "/graph/derived/0", "its parts do not fit its shape", true },
		{ "[5, 3]", "[5, 3, 1]", "/graph/derived/0/parts/0/perm", "2 dimensions of 3", true },
	};

	for (int i = -2; i < (int)(sizeof rows / sizeof *rows); i++) {
		const char *text = i == -2 || (i >= 0 && rows[i].lookup) ? table : good;
		char changed[600];
		struct dlb_error err = { .what = "" };
		struct dlb_graph g;
		if (i < 0) {
			snprintf(changed, sizeof changed, "[%s]", text);
		} else {
			const char *at = strstr(text, rows[i].from);
			assert(at);
			snprintf(changed, sizeof changed, "[%.*s%s%s]", (int)(at - text), text, rows[i].to,
				 at + strlen(rows[i].from));
		}
		json_t *list = json_loads(changed, 0, NULL);
		assert(list);
		dlb_graph_init(&g);
		const int rc = read_text(list, &g, &err);
		if (i < 0)
			assert(IS(rc, ==, 0) && IS(g.n_derived, ==, 1));
		else if (rc != -1 || strncmp(err.where, "document: ", 10) ||
			 strcmp(err.where + 10, rows[i].where) ||
			 (*rows[i].what && strcmp(err.what, rows[i].what))) {
			fprintf(stderr, "%s: %d, %s: %s\n", changed, rc, err.where, err.what);
			abort();
		}
		dlb_graph_release(&g);
		json_decref(list);
	}
}

/* -- a state_dict -- */

/* A tensor that a search finds: a whole entry, transposed and repeated; entries joined; a slice of one;
 * rows of a table; a function of each element; or blocks of rows in another order. False: it has too few
 * elements to be found. */
static bool findable(struct example *x, int i)
{
	enum { WHOLE, JOINED, SLICE, TABLE, FUNCTION, BLOCKS, KINDS };
	struct dlb_derived *d = &x->d;
	const int kind = i % KINDS;

	do {
		if (kind == TABLE)
			random_lookup(x);
		else
			random_parts(x, kind == FUNCTION);
	} while ((kind == JOINED ? d->n_parts == 1 : d->n_parts > 1) ||
		 (kind == FUNCTION && d->function == DLB_DERIVED_SAME));
	for (int k = 0; k < d->n_dims;
	     k++) /* only leading dimensions repeat, and none of joined parts or of functions */
		if (d->base[k] != d->dim[k] &&
		    (k > 1 || (k == 1 && d->base[0] > 1) || kind == JOINED || kind == FUNCTION))
			return false;
	for (int p = 0; p < d->n_parts && kind != TABLE; p++) {
		struct dlb_part *part = &x->part[p];
		if (kind != SLICE && (part->first || part->count < part->dim[part->axis]))
			return false;
		if (kind == FUNCTION && (part->perm[0] || part->perm[1] != 1))
			return false;
	}
	if (kind == BLOCKS) { /* as many rows in 2 to 4 blocks, turned by one */
		const int64_t blocks = 2 + below(3), rows = blocks * (1 + below(2)), width = 3;
		d->n_dims = 2, d->dim[0] = d->base[0] = rows, d->dim[1] = d->base[1] = width;
		x->part[0].n_dims = 2, x->part[0].dim[0] = rows, x->part[0].dim[1] = width;
		for (int64_t e = 0; e < rows * width; e++)
			x->want[e] = x->source[0][(e + rows / blocks * width) % (rows * width)];
	}
	return count(d->base, d->n_dims) >= 8;
}

/* The entries: in f32 or f64. */
static void make_entries(const struct example *x, bool f64, struct dlb_named *e)
{
	static double wide[PARTS][MOST];

	for (int p = 0; p < x->d.n_parts; p++) {
		for (int i = 0; i < MOST; i++)
			wide[p][i] = (double)x->source[p][i];
		e[p] = (struct dlb_named){ .name = x->name[p],
					   .data = f64 ? (void *)wide[p] : (void *)x->source[p],
					   .desc = { .dtype = f64 ? DLB_F64 : DLB_F32,
						     .n_dims = x->part[p].n_dims } };
		memcpy(e[p].desc.dim, x->part[p].dim, sizeof e[p].desc.dim);
	}
}

/* The graph has the entries that it needs, and the description of the initializer gives its values from
 * them. */
static void check_graph(const struct dlb_graph *g, const struct example *x)
{
	static float out[MOST];
	const struct dlb_derived *d = &g->derived[0];
	const void *source[64] = { NULL };

	assert(IS(g->n_derived, ==, 1) && SAME(d->name, "val_1") && dlb_derived_fits(d));
	for (int k = 0; k < d->n_parts; k++)
		for (int t = 0; t < g->n_tensors; t++)
			if (!strcmp(d->part[k].of, g->tensor[t].name)) {
				const struct dlb_tensor *w = &g->tensor[t];
				assert(w->initial && w->in_state && IS(w->dtype, ==, DLB_F32) &&
				       IS(w->n_dims, ==, d->part[k].n_dims));
				for (int i = 0; i < w->n_dims; i++)
					assert(IS(w->dim[i].add, ==, d->part[k].dim[i]) &&
					       IS(w->dim[i].mul, ==, 0));
				source[k] = w->data;
			}
	dlb_derived_value(d, source, DLB_F32, out);
	same(out, x->want, count(x->d.dim, x->d.n_dims));
}

/* The initializer is found among the entries by its values; with one other value, it is not. */
static void check_found(const struct example *x, bool f64)
{
	static float changed[MOST];
	struct dlb_named e[PARTS];

	make_entries(x, f64, e);
	for (int turn = 0; turn < 2; turn++) {
		struct dlb_error err = { .what = "" };
		struct dlb_graph g;
		memcpy(changed, x->want, sizeof changed);
		changed[count(x->d.dim, x->d.n_dims) - 1] += turn ? 3 : 0;
		dlb_graph_init(&g);
		const int t = constant(&g, "val_1", x->d.dim, x->d.n_dims, changed);
		g.tensor[t].initial = g.tensor[t].in_model = true;
		negate(&g, t);
		assert(IS(dlb_graph_take_state(&g, e, x->d.n_parts, false, &err), ==, turn ? -1 : 0));
		if (turn)
			assert(IS(g.n_derived, ==, 0) &&
			       HAS(err.what, "none of the tensors of the state_dict is in the model"));
		else
			check_graph(&g, x);
		dlb_graph_release(&g);
	}
}

int main(void)
{
	static struct example x;
	struct dlb_error err = { .what = "" };

	if (dlb_backend_open("cpu", 0, 1, &be, &err))
		abort();
	for (int i = 0; i < 200; i++) {
		random_example(&x, i);
		check_value(&x);
		check_ops(&x);
		check_json(&x);
	}
	test_bad_text();
	int n_found = 0;
	for (int i = 0; i < 2000; i++) {
		dlb_rng_init(&rng, (uint64_t)i);
		if (findable(&x, i)) {
			check_found(&x, i % 7 == 0);
			n_found++;
		}
	}
	assert(IS(n_found, >, 200));
	return 0;
}
