/* The searches for initializers among the entries of a state_dict (state_dict.c). Each takes the initializers
 * that the earlier ones left:
 *
 *     name    an entry of its name and shape
 *     whole   a whole entry, transposed or with its blocks of rows reordered (gates), perhaps repeated
 *     joined  several entries concatenated along one dimension
 *     rows    some rows of an entry, or a slice along another axis, perhaps transposed or repeated
 *     lookup  rows of an entry at constant indices, such as the bias of relative positions
 *     function  1 + x, exp(x), -exp(x) or softplus(x) of a whole entry x, up to rounding
 *
 * A sum of hashes of elements does not depend on their order. Equal sums show which entries may have the same
 * elements as (part of) an initializer, without trying arrangements. Arrangements of these entries are then
 * compared element by element. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/state_search.h"

/* -- elements -- */

static uint64_t hash(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof bits);
	uint64_t h = (bits + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
	h ^= h >> 31;
	return (h * UINT64_C(0x94d049bb133111eb)) ^ (h >> 17);
}

static uint64_t print_of(const float *v, int64_t n)
{
	uint64_t sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += hash(v[i]);
	return sum;
}

bool dlb_state_is_uniform(const float *v, int64_t n)
{
	return n < 2 || !memcmp(v, v + 1, (size_t)(n - 1) * sizeof *v);
}

const float *dlb_state_as_f32(struct dlb_arena *a, const void *data, enum dlb_dtype dtype, int64_t n)
{
	if (dtype == DLB_F32)
		return data;
	float *v = dlb_arena_array(a, (size_t)n + 1, sizeof *v);
	for (int64_t i = 0; i < n; i++)
		v[i] = (float)dlb_value_real(data, dtype, i);
	return v;
}

/* -- the entries -- */

bool dlb_state_is_listed_parameter(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_listed; i++)
		if (!strcmp(g->listed[i].name, name))
			return g->listed[i].kind == DLB_LISTED_PARAMETER;
	return !g->n_listed;
}

int dlb_state_bucket_of(const struct dict_matching *m, uint64_t print, int64_t count)
{
	return (int)((print ^ (uint64_t)count * UINT64_C(0x9e3779b97f4a7c15)) % (uint64_t)m->n_buckets);
}

void dlb_state_take_entries(struct dict_matching *m, const struct dlb_named *e, int n)
{
	m->entry = dlb_arena_array(&m->a, (size_t)n + 1, sizeof *m->entry);
	m->n_entries = n;
	m->n_buckets = 2 * n + 1;
	m->bucket = dlb_arena_array(&m->a, (size_t)m->n_buckets, sizeof *m->bucket);
	for (int i = 0; i < m->n_buckets; i++)
		m->bucket[i] = -1;
	for (int i = n - 1; i >= 0; i--) {	/* backwards, so that the first of equal
						 * entries is first in its bucket */
		struct dict_entry *x = &m->entry[i];
		*x = (struct dict_entry){
			.e = &e[i], .count = dlb_desc_count(&e[i].desc), .tensor = -1, .next = -1
		};
		dlb_name_map_add(&m->names, e[i].name, i);
		if (!dlb_dtype_is_float(e[i].desc.dtype) || x->count < 1 ||
		    !dlb_state_is_listed_parameter(m->g, e[i].name))
			continue;
		x->v = dlb_state_as_f32(&m->a, e[i].data, e[i].desc.dtype, x->count);
		x->print = print_of(x->v, x->count);
		x->uniform = dlb_state_is_uniform(x->v, x->count);
		while (x->axis + 1 < e[i].desc.n_dims && e[i].desc.dim[x->axis] == 1)
			x->axis++;
		const int b = dlb_state_bucket_of(m, x->print, x->count);
		x->next = m->bucket[b];
		m->bucket[b] = i;
	}
}

static int64_t rows_of(const struct dict_entry *e)
{
	return e->e->desc.n_dims ? e->e->desc.dim[e->axis] : 1;
}

/* For each index of the axis, the sum of hashes of the elements at all earlier indices; made on first use. */
static const uint64_t *prefix_of(struct dict_matching *m, struct dict_entry *e, int axis)
{
	const struct dlb_desc *d = &e->e->desc;
	const int64_t rows = d->dim[axis], inner = dlb_desc_range(d, axis + 1, d->n_dims);
	uint64_t *sum = e->prefix[axis];

	if (sum)
		return sum;
	sum = dlb_arena_array(&m->a, (size_t)rows + 1, sizeof *sum);
	memset(sum, 0, ((size_t)rows + 1) * sizeof *sum);
	for (int64_t at = 0; at < e->count; at += rows * inner)
		for (int64_t i = 0; i < rows; i++)
			sum[i + 1] += print_of(e->v + at + i * inner, inner);
	for (int64_t i = 0; i < rows; i++)
		sum[i + 1] += sum[i];
	return e->prefix[axis] = sum;
}

int dlb_state_tensor_of(struct dict_matching *m, int i)
{
	struct dict_entry *e = &m->entry[i];
	struct dlb_graph *g = m->g;

	if (e->tensor >= 0)
		return e->tensor;
	for (int t = 0; t < g->n_tensors; t++)
		if (!strcmp(g->tensor[t].name, e->e->name)) /* an initializer of another shape has the name */
			dlb_graph_rename_tensor(g, t,
						dlb_graph_tensor_name(g,
								      dlb_arena_printf(&g->arena, "%s.folded",
										       e->e->name)));
	e->tensor = dlb_graph_add_tensor(g, e->e->name, DLB_T_CONSTANT);
	struct dlb_tensor *t = &g->tensor[e->tensor];
	t->dtype = DLB_F32;
	t->n_dims = e->e->desc.n_dims;
	for (int k = 0; k < t->n_dims; k++)
		t->dim[k] = (struct dlb_dim){ 0, e->e->desc.dim[k] };
	t->data = e->v;
	if (e->e->desc.dtype != DLB_F32) {	/* copied, since the arena of the search is released */
		float *copy = dlb_arena_array(&g->arena, (size_t)e->count, sizeof *copy);
		memcpy(copy, e->v, (size_t)e->count * sizeof *copy);
		t->data = copy;
	}
	t->initial = t->in_state = true;
	return e->tensor;
}

/* -- the choice among entries with equal values -- */

/* Does the exporter state that a reader of tensor t uses the parameter of this name? */
static bool is_used(const struct dlb_graph *g, int t, const char *name)
{
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++) {
		const struct dlb_op *o = &g->op[g->reader[i]];
		for (int k = 0; k < o->n_may_use; k++)
			if (!strcmp(g->listed[o->uses[k]].name, name))
				return true;
	}
	return false;
}

bool dlb_state_is_table(const struct dlb_graph *g, int t)
{
	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		if (strcmp(g->op[g->reader[i]].type, "Gather"))
			return false;
	return g->reader_start[t] < g->reader_start[t + 1];
}

bool dlb_state_is_tied(const struct dict_matching *m, const struct dict_entry *e, int t)
{
	return e->tensor >= 0 && e->tensor < m->n_indexed && e->count >= LEAST_TIED && !e->uniform &&
		dlb_state_is_table(m->g, e->tensor) != dlb_state_is_table(m->g, t);
}

/* Does the exporter list parameters for readers of tensor t, but not this one? */
static bool is_of_others(const struct dlb_graph *g, int t, const char *name)
{
	bool others = false;

	for (int i = g->reader_start[t]; i < g->reader_start[t + 1]; i++)
		others |= g->op[g->reader[i]].n_uses > 0;
	return others && !is_used(g, t, name);
}

/* With the graph's initializers as entries: is t tied to the entry, or computed from it by the exporter,
 * such as the first hidden bias of a recurrent cell, repeated for each sample? In the latter case the
 * entry is a listed parameter. */
static bool is_same_weight(const struct dict_matching *m, const struct dict_entry *e, int t)
{
	if (e->uniform || e->tensor == t || !e->v)
		return false;
	return dlb_state_is_tied(m, e, t) ||
	       (m->g->n_listed && e->count >= LEAST_ROWS && !is_of_others(m->g, t, e->e->name));
}

static int rank(const struct dict_matching *m, const struct dict_entry *e, int t, bool untie)
{
	const bool used = is_used(m->g, t, e->e->name), there = e->tensor >= 0;

	if (used && !(there && untie))
		return there ? 4 : 5;
	if (!untie && dlb_state_is_tied(m, e, t))
		return 3;
	return there ? 1 : 2;
}

static int best_entry(const struct dict_matching *m, uint64_t print, int64_t count, int t, bool untie)
{
	int best = -1, best_rank = 0;

	for (int i = m->bucket[dlb_state_bucket_of(m, print, count)]; i >= 0; i = m->entry[i].next) {
		const struct dict_entry *e = &m->entry[i];
		if (e->print != print || e->count != count)
			continue;
		const int r = m->own && !is_same_weight(m, e, t) ? 0 : rank(m, e, t, untie);
		if (r > best_rank) {
			best = i;
			best_rank = r;
		}
	}
	return best;
}

/* The entry with these elements that suits target t best; -1: none. */
static int find_entry(struct dict_matching *m, uint64_t print, int64_t count, int t)
{
	const int best = best_entry(m, print, count, t, m->untie);

	m->parted |= m->untie && best != best_entry(m, print, count, t, false);
	return best;
}

/* -- arrangements -- */

static bool next_permutation(int *p, int n)
{
	int i = n - 2, j = n - 1;

	while (i >= 0 && p[i] > p[i + 1])
		i--;
	if (i < 0)
		return false;
	while (p[j] < p[i])
		j--;
	const int x = p[i];
	p[i] = p[j];
	p[j] = x;
	for (int a = i + 1, b = n - 1; a < b; a++, b--) {
		const int y = p[a];
		p[a] = p[b];
		p[b] = y;
	}
	return true;
}

/* Are the part's elements, in their order, those at v? */
static bool equals(const struct dlb_part *p, const float *from, const float *v)
{
	struct dlb_part_walk w;

	dlb_part_begin(&w, p);
	for (int64_t e = 0; e < w.count; e++, dlb_part_next(&w))
		if (memcmp(&from[w.at], &v[e], sizeof *v))
			return false;
	return true;
}

static bool push(struct dict_matching *m, const struct dlb_part *p, int entry)
{
	if (m->n_parts == DLB_LEN(m->part))
		return false;
	m->part[m->n_parts] = *p;
	m->source[m->n_parts++] = entry;
	return true;
}

/* Tries to reorder the entry's blocks of rows: the gates of an LSTM (4) or GRU (3), or two directions. */
static bool arrange_blocks(struct dict_matching *m, int i, const float *v, int64_t length,
			   const struct dlb_part *whole)
{
	const int before = m->n_parts;

	for (int blocks = 4; blocks > 1; blocks--) {
		struct dlb_part p = *whole;
		p.count = whole->count / blocks;
		p.length = length / blocks;
		if (whole->count % blocks || length % blocks || whole->axis)
			continue;
		const int64_t size = m->entry[i].count / rows_of(&m->entry[i]) * p.count;
		bool all = true;
		for (int b = 0; b < blocks && all; b++) {
			all = false;
			for (int from = 0; from < blocks && !all; from++) {
				p.first = whole->first + from * p.count;
				all = equals(&p, m->entry[i].v, v + b * size);
			}
			all = all && push(m, &p, i);
		}
		if (all)
			return true;
		m->n_parts = before;
	}
	return false;
}

/* Indices [first, first + count) of an axis of the entry. */
struct entry_range {
	int axis;
	int64_t first, count;
};

static struct entry_range whole_of(const struct dict_entry *e)
{
	return (struct entry_range){ e->axis, 0, rows_of(e) };
}

/* A part that is the range of the entry without permutation; it fills `length` indices of the target's
 * axis. */
static struct dlb_part part_of(const struct dict_entry *e, struct entry_range r, int64_t length)
{
	struct dlb_part p = { .of = e->e->name,
			      .n_dims = e->e->desc.n_dims,
			      .axis = r.axis,
			      .first = r.first,
			      .count = r.count,
			      .length = length };

	for (int k = 0; k < p.n_dims; k++) {
		p.dim[k] = e->e->desc.dim[k];
		p.perm[k] = k;
	}
	return p;
}

/* Finds the permutation of a range of entry i that gives v, which fills `length` indices of the target's
 * axis; if `contiguous`, also reorders blocks of rows. Records the parts. */
static bool arrange(struct dict_matching *m, int i, struct entry_range r, const float *v, int64_t length,
		    bool contiguous)
{
	const struct dict_entry *e = &m->entry[i];
	struct dlb_part p = part_of(e, r, length);

	do {
		if (equals(&p, e->v, v))
			return push(m, &p, i);
	} while (p.n_dims <= 4 && next_permutation(p.perm, p.n_dims));
	for (int k = 0; k < p.n_dims; k++)
		p.perm[k] = k;
	return contiguous && arrange_blocks(m, i, v, length, &p);
}

/* -- the searches -- */

bool dlb_state_has_folded_norms(const struct dlb_graph *g)
{
	static const char end[] = ".running_mean";
	bool folded = false;

	for (int i = 0; i < g->n_listed; i++) {
		const size_t n = strlen(g->listed[i].name);
		if (n < sizeof end || strcmp(g->listed[i].name + n + 1 - sizeof end, end))
			continue;
		bool there = false;
		for (int t = 0; t < g->n_tensors && !there; t++)
			there = !strcmp(g->tensor[t].name, g->listed[i].name);
		folded |= !there;
	}
	return folded;
}

static bool same_values(struct dict_matching *m, const struct dlb_tensor *x, const struct dict_entry *e)
{
	return !e->v || !x->data ||
	       !memcmp(dlb_state_as_f32(&m->a, x->data, x->dtype, e->count), e->v,
		       (size_t)e->count * sizeof *e->v);
}

bool dlb_state_by_name(struct dict_matching *m, int t)
{
	struct dlb_tensor *x = &m->g->tensor[t];
	const int i = dlb_name_map_get(&m->names, x->name);
	const struct dlb_desc have = dlb_tensor_desc(x, 1);

	if (i < 0 || !dlb_desc_same_shape(&have, &m->entry[i].e->desc))
		return false;
	const struct dlb_named *e = m->entry[i].e;
	if (m->folded_norms && !same_values(m, x, &m->entry[i])) {
		m->n_changed++;
		m->entry[i].tensor = t;
		return true;
	}
	if (e->desc.dtype == x->dtype) {
		x->data = e->data;
	} else if (dlb_dtype_is_float(e->desc.dtype) && dlb_dtype_is_float(x->dtype)) {
		void *v = dlb_arena_array(&m->g->arena, (size_t)m->entry[i].count + 1,
					  dlb_dtype_bytes(x->dtype));
		for (int64_t k = 0; k < m->entry[i].count; k++)
			dlb_value_set(v, x->dtype, k, dlb_value_real(e->data, e->desc.dtype, k));
		x->data = v;
	} else {
		return false;
	}
	x->is_fill = false;
	x->in_state = true;
	x->from = NULL;
	m->entry[i].tensor = t;
	return true;
}

/* If the dimensions before `lead` repeat one block, sets base[] to the shape with 1 in their place and the
 * axis to the first dimension of base[] above 1; else false. */
static bool reduce(struct target *x, int lead)
{
	int64_t block = x->count;

	memcpy(x->base, x->dim, sizeof x->base);
	for (int k = 0; k < lead; k++) {
		block /= x->dim[k];
		for (int64_t i = 1; i < x->dim[k]; i++)
			if (memcmp(x->v, x->v + i * block, (size_t)block * sizeof *x->v))
				return false;
		x->base[k] = 1;
	}
	x->axis = 0;
	while (x->axis + 1 < x->n_dims && x->base[x->axis] == 1)
		x->axis++;
	return true;
}

static int64_t base_count(const struct target *x)
{
	int64_t n = 1;

	for (int i = 0; i < x->n_dims; i++)
		n *= x->base[i];
	return n;
}

bool dlb_state_by_whole(struct dict_matching *m, struct target *x)
{
	for (int lead = 0; lead < x->n_dims; lead++) {
		if (!reduce(x, lead))
			return false;
		const int64_t n = base_count(x);
		if (lead && x->base[lead - 1] == x->dim[lead - 1])
			continue;			/* a dimension of 1 repeats nothing: same as with the
							 * previous `lead` */
		const int i = find_entry(m, print_of(x->v, n), n, x->t);
		m->n_parts = 0;
		if (i >= 0 && arrange(m, i, whole_of(&m->entry[i]), x->v, x->base[x->axis], true))
			return true;
	}
	return false;
}

/* The target's elements at indices [first, first + length) of `axis`, contiguous; in x->v or m->a. */
static const float *cut(struct dict_matching *m, const struct target *x, int axis, int64_t first,
			int64_t length)
{
	int64_t inner = 1, outer = 1;

	for (int k = 0; k < x->n_dims; k++)
		*(k < axis ? &outer : &inner) *= k == axis ? 1 : x->dim[k];
	if (outer == 1)
		return x->v + first * inner;
	float *v = dlb_arena_array(&m->a, (size_t)(outer * inner * length) + 1, sizeof *v);
	for (int64_t o = 0; o < outer; o++)
		memcpy(v + o * inner * length, x->v + (o * x->dim[axis] + first) * inner,
		       (size_t)(inner * length) * sizeof *v);
	return v;
}

/* Tries to cover all indices of the axis by whole entries, one after another. */
static bool join_along(struct dict_matching *m, struct target *x, int axis)
{
	const int64_t steps = x->dim[axis], step = x->count / steps;
	uint64_t *before = dlb_arena_array(&m->a, (size_t)steps + 1, sizeof *before);
	int64_t at = 0;

	before[0] = 0;
	for (int64_t s = 0; s < steps; s++)
		before[s + 1] = before[s] + print_of(cut(m, x, axis, s, 1), step);
	m->n_parts = 0;
	while (at < steps) {
		bool found = false;
		for (int i = 0; i < m->n_entries && !found; i++) {
			const struct dict_entry *e = &m->entry[i];
			const int64_t length = e->count / step;
			if (!e->v || e->count % step || length < 1 || length > steps - at ||
			    before[at + length] - before[at] != e->print)
				continue;
			const float *v = cut(m, x, axis, at, length);
			const int best = find_entry(m, e->print, e->count, x->t);
			found = best >= 0 && arrange(m, best, whole_of(e), v, length, axis == x->axis);
			at += found ? length : 0;
		}
		if (!found)
			return false;
	}
	return m->n_parts > 1;
}

bool dlb_state_by_joined(struct dict_matching *m, struct target *x)
{
	if (x->uniform || !reduce(x, 0))
		return false;
	const int first = x->axis;
	for (int axis = 0; axis < x->n_dims; axis++) {
		x->axis = first;
		if (x->dim[axis] > 1 && join_along(m, x, axis)) {
			x->axis = axis;
			return true;
		}
	}
	return false;
}

static bool slice_at(struct dict_matching *m, struct target *x, int i, int axis, int64_t n, uint64_t print)
{
	struct dict_entry *e = &m->entry[i];
	const int64_t rows = e->e->desc.dim[axis], row = e->count / rows, count = n / row;

	if (n % row || count < 1)
		return false;
	const uint64_t *before = prefix_of(m, e, axis);
	for (int64_t first = 0; first + count <= rows; first++) {
		m->n_parts = 0;
		if (before[first + count] - before[first] == print &&
		    arrange(m, i, (struct entry_range){ axis, first, count }, x->v, x->base[x->axis], false))
			return true;
	}
	return false;
}

/* Is the target some rows of entry i, or, if the entry is of a state_dict, a slice along another axis, such
 * as the real parts of a complex weight? */
static bool rows_at(struct dict_matching *m, struct target *x, int i, int64_t n, uint64_t print)
{
	struct dict_entry *e = &m->entry[i];

	if (!e->v || e->uniform || e->count <= n || !e->e->desc.n_dims)
		return false;
	for (int axis = e->axis, end = m->own ? axis + 1 : e->e->desc.n_dims; axis < end; axis++)
		if (slice_at(m, x, i, axis, n, print))
			return true;
	return false;
}

bool dlb_state_by_rows(struct dict_matching *m, struct target *x)
{
	for (int lead = 0; lead < x->n_dims && !x->uniform; lead++) {
		if (!reduce(x, lead))
			return false;
		const int64_t n = base_count(x);
		if (n < LEAST_ROWS)
			return false;
		const uint64_t print = print_of(x->v, n);
		for (int used = 1; used >= 0; used--)
			for (int i = 0; i < m->n_entries; i++)
				if (is_used(m->g, x->t, m->entry[i].e->name) == used &&
				    (!m->own || is_same_weight(m, &m->entry[i], x->t)) &&
				    rows_at(m, x, i, n, print))
					return true;
	}
	return false;
}

/* -- rows of a table at constant indices -- */

struct table_row { uint64_t print; int64_t row; };

static int by_print(const void *a, const void *b)
{
	const struct table_row *x = a, *y = b;

	return x->print != y->print ? (x->print > y->print) - (x->print < y->print) :
				      (x->row > y->row) - (x->row < y->row);
}

/* The rows of the entry, sorted by their sums of hashes; in m->a. */
static const struct table_row *sorted_rows(struct dict_matching *m, const struct dict_entry *e)
{
	const int64_t rows = e->e->desc.dim[0], width = e->e->desc.dim[1];
	struct table_row *r = dlb_arena_array(&m->a, (size_t)rows + 1, sizeof *r);

	for (int64_t i = 0; i < rows; i++)
		r[i] = (struct table_row){ print_of(e->v + i * width, width), i };
	qsort(r, (size_t)rows, sizeof *r, by_print);
	return r;
}

/* The entry's row with these elements; -1: none. */
static int64_t row_of(const struct dict_entry *e, const struct table_row *r, const float *v)
{
	const int64_t rows = e->e->desc.dim[0], width = e->e->desc.dim[1];
	const uint64_t print = print_of(v, width);
	int64_t low = 0, high = rows;

	while (low < high) {
		const int64_t mid = (low + high) / 2;
		if (r[mid].print < print)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < rows && r[low].print == print; low++)
		if (!memcmp(e->v + r[low].row * width, v, (size_t)width * sizeof *v))
			return r[low].row;
	return -1;
}

/* Do all vectors of the target along the axis lie in the table? Sets m->index. */
static bool looks_up(struct dict_matching *m, const struct target *x, const struct dict_entry *e, int axis,
		     const struct table_row **sorted)
{
	const int64_t width = x->dim[axis], n = x->count / width;
	int64_t inner = 1;
	float *v = dlb_arena_array(&m->a, (size_t)width + 1, sizeof *v);

	for (int k = axis + 1; k < x->n_dims; k++)
		inner *= x->dim[k];
	if (!*sorted)
		*sorted = sorted_rows(m, e);
	m->index = NULL;
	for (int64_t i = 0; i < n; i++) {
		for (int64_t k = 0; k < width; k++)
			v[k] = x->v[(i / inner * width + k) * inner + i % inner];
		const int64_t row = row_of(e, *sorted, v);
		if (row < 0)
			break;
		if (!m->index)
			m->index = dlb_arena_array(&m->a, (size_t)n + 1, sizeof *m->index);
		m->index[i] = row;
		m->n_index = i + 1;
	}
	if (m->index && m->n_index == n)
		return true;
	m->index = NULL;
	return false;
}

bool dlb_state_by_lookup(struct dict_matching *m, struct target *x)
{
	if (m->own || x->uniform || x->n_dims < 2 || x->count < LEAST_ROWS || !reduce(x, 0))
		return false;
	for (int i = 0; i < m->n_entries; i++) {
		const struct dict_entry *e = &m->entry[i];
		const struct table_row *sorted = NULL;
		if (!e->v || e->uniform || e->e->desc.n_dims != 2)
			continue;
		const struct dlb_part p = part_of(e, (struct entry_range){ e->axis, 0, e->e->desc.dim[0] },
						  x->dim[0]);
		for (int axis = 0; axis < x->n_dims; axis++)
			if (x->dim[axis] == p.dim[1] && looks_up(m, x, e, axis, &sorted)) {
				x->axis = axis;
				m->n_parts = 0;
				return push(m, &p, i);
			}
	}
	return false;
}

/* Is v, up to rounding, this function of the entry's elements? */
static bool is_function(const struct dict_entry *e, enum dlb_derived_function f, const float *v)
{
	for (int64_t i = 0; i < e->count; i++)
		if (!(fabs(dlb_derived_function(f, e->v[i]) - v[i]) <= 1e-6 * fabs(v[i])))
			return false;
	return true;
}

bool dlb_state_by_function(struct dict_matching *m, struct target *x)
{
	if (m->own || !reduce(x, 0))
		return false;
	for (int used = 1; used >= 0; used--)
		for (int i = 0; i < m->n_entries; i++) {
			const struct dict_entry *e = &m->entry[i];
			if (!e->v || e->tensor >= 0 || e->count != x->count || !e->e->desc.n_dims ||
			    is_used(m->g, x->t, e->e->name) != used ||
			    (!used && (e->uniform || e->count < LEAST_FUNCTION)))
				continue;
			for (int f = DLB_DERIVED_SAME + 1; f < DLB_DERIVED_FUNCTIONS; f++) {
				if (!is_function(e, f, x->v))
					continue;
				const struct dlb_part p = part_of(e, whole_of(e), x->base[x->axis]);
				m->n_parts = 0;
				m->function = f;
				return push(m, &p, i);
			}
		}
	return false;
}
