/* Strided copies: transpose, slice, expand, change of layout, cast, scatter of slices. */
#include "tensor/cpu/bf16.h"
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/threads.h"

#define CHUNK 256			/* elements of a cast at a time */
#define TILE 32				/* transposes use tiles, so both sides use whole cache lines */
/* rows up to this many bytes are copied faster by a loop than by memcpy */
#define SHORT 1024

struct copy_kernel {
	struct dlb_kernel k;
	struct dlb_copy_desc d;
	struct dlb_nest nest;		/* operands out, in */
	size_t in_bytes, out_bytes;
	bool tiled;			/* the last two loops are a transpose */
	bool rows;			/* the last two loops are short rows, contiguous on both sides */
	bool empty, by_tile;		/* by_tile: parts cut the transpose's rows */
	int outer, parts;		/* loops outside the inner copy; parts they are cut into */
};
struct copy_job { const struct copy_kernel *c; const struct dlb_run *run; };

/* ---- same type: by size ---- */
/* Copies n rows of `bytes` bytes each. */
static void move_rows(char *o, int64_t so, const char *x, int64_t si, int64_t n, size_t bytes)
{
	const size_t whole = bytes & ~(size_t)31;

	for (int64_t i = 0; i < n; i++, o += so, x += si) {
		for (size_t j = 0; j < whole; j += 32)
			memcpy(o + j, x + j, 32);
		for (size_t j = whole; j < bytes; j++)
			o[j] = x[j];
	}
}

#define MOVE(type, name) \
static void move_##name(void *vo, int64_t so, const void *vi, int64_t si, int64_t n) \
{ \
	type *o = vo; \
	const type *x = vi; \
	if (so == 1 && si == 1) \
		memcpy(o, x, (size_t)n * sizeof *o); \
	else if (so == 1 && si == 0) \
		for (int64_t i = 0; i < n; i++) \
			o[i] = *x; \
	else \
		for (int64_t i = 0; i < n; i++) \
			o[i * so] = x[i * si]; \
}
/* o[i][j] = x[j][i] */
#define TRANSPOSE(type, name) \
static void tile_##name(void *vo, int64_t so, const void *vi, int64_t si, int64_t n, int64_t m) \
{ \
	type *o = vo; \
	const type *x = vi; \
	for (int64_t j = 0; j < m; j += TILE) \
		for (int64_t i = 0; i < n; i += TILE) \
			for (int64_t a = i; a < n && a < i + TILE; a++) \
				for (int64_t b = j; b < m && b < j + TILE; b++) \
					o[a * so + b] = x[b * si + a]; \
}
MOVE(uint8_t, 1)
MOVE(uint16_t, 2)
MOVE(uint32_t, 4)
MOVE(uint64_t, 8)
TRANSPOSE(uint8_t, 1)
TRANSPOSE(uint16_t, 2)
TRANSPOSE(uint64_t, 8)
#ifdef __has_builtin
#if __has_builtin(__builtin_shufflevector)
#define BLOCK_8x8 1
#endif
#endif
#ifdef BLOCK_8x8
/* o[a][b] = x[b][a], 8 x 8: swaps elements, then pairs, then halves. */
typedef uint32_t eight __attribute__((vector_size(32)));
static inline void block_8x8(uint32_t *o, int64_t so, const uint32_t *x, int64_t si)
{
	eight r[8], t[8];

	for (int i = 0; i < 8; i++)
		memcpy(&r[i], x + i * si, sizeof r[i]);
	for (int i = 0; i < 8; i += 2) {
		t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
		t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
	}
	for (int i = 0; i < 8; i += 4)
		for (int j = 0; j < 2; j++) {
			r[i + 2 * j] = __builtin_shufflevector(t[i + j], t[i + j + 2], 0, 1, 8, 9, 4, 5, 12,
							       13);
			r[i + 2 * j + 1] = __builtin_shufflevector(t[i + j], t[i + j + 2], 2, 3, 10, 11, 6, 7,
								   14, 15);
		}
	for (int i = 0; i < 4; i++) {
		t[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
		t[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
	}
	for (int i = 0; i < 8; i++)
		memcpy(o + i * so, &t[i], sizeof t[i]);
}

static void tile_4(void *vo, int64_t so, const void *vi, int64_t si, int64_t n, int64_t m)
{
	uint32_t *o = vo;
	const uint32_t *x = vi;
	const int64_t n8 = n & ~(int64_t)7, m8 = m & ~(int64_t)7;

	for (int64_t j = 0; j < m8; j += TILE)
		for (int64_t i = 0; i < n8; i += TILE)
			for (int64_t a = i; a < n8 && a < i + TILE; a += 8)
				for (int64_t b = j; b < m8 && b < j + TILE; b += 8)
					block_8x8(o + a * so + b, so, x + b * si + a, si);
	for (int64_t a = 0; a < n; a++)
		for (int64_t b = a < n8 ? m8 : 0; b < m; b++)
			o[a * so + b] = x[b * si + a];
}
#else
TRANSPOSE(uint32_t, 4)
#endif

static void move(size_t bytes, void *o, int64_t so, const void *x, int64_t si, int64_t n)
{
	switch (bytes) {
	case 1: move_1(o, so, x, si, n); break;
	case 2: move_2(o, so, x, si, n); break;
	case 4: move_4(o, so, x, si, n); break;
	default: move_8(o, so, x, si, n);
	}
}

static void tile(size_t bytes, void *o, int64_t so, const void *x, int64_t si, int64_t n, int64_t m)
{
	switch (bytes) {
	case 1: tile_1(o, so, x, si, n, m); break;
	case 2: tile_2(o, so, x, si, n, m); break;
	case 4: tile_4(o, so, x, si, n, m); break;
	default: tile_8(o, so, x, si, n, m);
	}
}

/* ---- other types, and adding: through double, or int64 between integers ---- */
union chunk { double real[CHUNK]; int64_t whole[CHUNK]; };

static void load(union chunk *c, bool real, enum dlb_dtype t, const void *x, int64_t s, int64_t n)
{
	switch (t) {
#define LOAD(type) { \
		const type *p = x; \
		if (real) \
			for (int64_t i = 0; i < n; i++) \
				c->real[i] = (double)p[i * s]; \
		else \
			for (int64_t i = 0; i < n; i++) \
				c->whole[i] = (int64_t)p[i * s]; \
		} break
	case DLB_F32: LOAD(float);
	case DLB_F64: LOAD(double);
	case DLB_I8: LOAD(int8_t);
	case DLB_I16: LOAD(int16_t);
	case DLB_I32: LOAD(int32_t);
	case DLB_I64: LOAD(int64_t);
	case DLB_U8: LOAD(uint8_t);
	case DLB_U16: LOAD(uint16_t);
	case DLB_U32: LOAD(uint32_t);
	case DLB_U64: LOAD(uint64_t);
#undef LOAD
	default:
		for (int64_t i = 0; i < n; i++) {
			if (real)
				c->real[i] = dlb_value_real(x, t, i * s);
			else
				c->whole[i] = dlb_value_int(x, t, i * s);
		}
	}
}

static void store(const union chunk *c, bool real, enum dlb_dtype t, void *o, int64_t s, int64_t n, bool add)
{
	if (real) {
		if (t == DLB_F32 || t == DLB_F64) {
			for (int64_t i = 0; i < n; i++)
				if (t == DLB_F32)
					((float *)o)[i * s] = add ? ((float *)o)[i * s] + (float)c->real[i] :
								    (float)c->real[i];
				else
					((double *)o)[i * s] = add ? ((double *)o)[i * s] + c->real[i] :
								     c->real[i];
			return;
		}
		for (int64_t i = 0; i < n; i++)
			dlb_value_set(o, t, i * s, c->real[i] + (add ? dlb_value_real(o, t, i * s) : 0));
		return;
	}
	for (int64_t i = 0; i < n; i++) {
		uint64_t v = (uint64_t)c->whole[i] + (add ? (uint64_t)dlb_value_int(o, t, i * s) : 0);

		switch (t) {
		case DLB_BOOL: ((uint8_t *)o)[i * s] = v != 0; break;
		case DLB_I8: case DLB_U8: ((uint8_t *)o)[i * s] = (uint8_t)v; break;
		case DLB_I16: case DLB_U16: ((uint16_t *)o)[i * s] = (uint16_t)v; break;
		case DLB_I32: case DLB_U32: ((uint32_t *)o)[i * s] = (uint32_t)v; break;
		default: ((uint64_t *)o)[i * s] = v;
		}
	}
}

/* Does the two casts of every mixed-precision step; false for all others. */
static bool convert_bf16(const struct copy_kernel *c, void *o, int64_t so, const void *x, int64_t si,
			 int64_t n)
{
	if (so != 1 || si != 1 || c->d.accumulate)
		return false;
	if (c->d.in == DLB_F32 && c->d.out == DLB_BF16)
		bf16_round_row(o, x, n);
	else if (c->d.in == DLB_BF16 && c->d.out == DLB_F32)
		bf16_widen_row(o, x, n);
	else
		return false;
	return true;
}

static void convert(const struct copy_kernel *c, char *o, int64_t so, const char *x, int64_t si, int64_t n)
{
	bool real = dlb_dtype_is_float(c->d.in) || dlb_dtype_is_float(c->d.out);
	union chunk buf;

	if (convert_bf16(c, o, so, x, si, n))
		return;
	for (int64_t i = 0; i < n; i += CHUNK) {
		int64_t len = n - i < CHUNK ? n - i : CHUNK;

		load(&buf, real, c->d.in, x + i * si * (int64_t)c->in_bytes, si, len);
		store(&buf, real, c->d.out, o + i * so * (int64_t)c->out_bytes, so, len, c->d.accumulate);
	}
}

static void copy_part(const void *ctx, int part, int parts)
{
	const struct copy_job *job = ctx;
	const struct copy_kernel *c = job->c;
	const struct dlb_nest *n = &c->nest;
	const int last = n->n_dims - 1;
	const int64_t in_bytes = (int64_t)c->in_bytes, out_bytes = (int64_t)c->out_bytes;
	char *out = (char *)job->run->out[0] + c->d.out_offset * out_bytes;
	const char *in = (const char *)job->run->in[0] + c->d.in_offset * in_bytes;
	int64_t len = last < 0 ? 1 : n->dim[last], so = last < 0 ? 1 : n->stride[0][last],
		si = last < 0 ? 1 : n->stride[1][last];
	int64_t pos[DLB_MAX_DIMS] = { 0 }, at[DLB_NEST_OPERANDS] = { 0 };
	const int64_t outer = dlb_nest_count(n, c->outer),
		      tiles = c->tiled ? (n->dim[last - 1] + TILE - 1) / TILE : 0;
	const int64_t from = c->by_tile ? 0 : cpu_cut(outer, part, parts),
		      end = c->by_tile ? outer : cpu_cut(outer, part + 1, parts);
	const int64_t t0 = c->by_tile ? cpu_cut(tiles, part, parts) * TILE : 0;
	const int64_t t1 = c->by_tile && part + 1 < parts ? cpu_cut(tiles, part + 1, parts) * TILE :
			   c->tiled                       ? n->dim[last - 1] :
							    0;

	dlb_nest_seek(n, c->outer, from, pos, at);
	for (int64_t i = from; i < end; i++) {
		char *o = out + at[0] * out_bytes;
		const char *x = in + at[1] * in_bytes;

		if (c->tiled)
			tile(c->in_bytes, o + t0 * n->stride[0][last - 1] * out_bytes, n->stride[0][last - 1],
			     x + t0 * n->stride[1][last - 1] * in_bytes, si, t1 - t0, len);
		else if (c->rows)
			move_rows(o, n->stride[0][last - 1] * out_bytes, x, n->stride[1][last - 1] * in_bytes,
				  n->dim[last - 1], (size_t)(len * in_bytes));
		else if (c->d.in != c->d.out || c->d.accumulate)
			convert(c, o, so, x, si, len);
		else
			move(c->in_bytes, o, so, x, si, len);
		dlb_nest_step(n, c->outer, pos, at);
	}
}

static void copy_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct copy_kernel *c = (const struct copy_kernel *)k;
	const struct copy_job job = { c, r };

	if (c->d.zero_first && c->d.out_count)
		memset(r->out[0], 0, (size_t)c->d.out_count * c->out_bytes);
	if (!c->empty)
		dlb_cpu_parallel(c->parts, copy_part, &job);
}

/* If `out` is contiguous in the last loop and `in` in another one, moves that loop to just before the last.
 * Returns whether it did. */
static bool make_tiled(struct dlb_nest *n)
{
	int last = n->n_dims - 1;

	if (last < 1 || n->stride[0][last] != 1 || n->stride[1][last] == 1 || n->stride[1][last] == 0)
		return false;
	for (int i = 0; i < last; i++)
		if (n->stride[1][i] == 1) {
			for (int j = i; j < last - 1; j++) {
				struct dlb_nest t = *n;

				n->dim[j] = t.dim[j + 1];
				n->dim[j + 1] = t.dim[j];
				for (int o = 0; o < 2; o++) {
					n->stride[o][j] = t.stride[o][j + 1];
					n->stride[o][j + 1] = t.stride[o][j];
				}
			}
			return true;
		}
	return false;
}

int dlb_cpu_copy(struct dlb_backend *b, const struct dlb_copy_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	struct copy_kernel *c = dlb_xcalloc(1, sizeof *c);

	(void)err;
	c->d = *d;
	c->in_bytes = dlb_dtype_bytes(d->in);
	c->out_bytes = dlb_dtype_bytes(d->out);
	c->nest = (struct dlb_nest){ .n_dims = d->n_dims, .n_operands = 2 };
	for (int i = 0; i < d->n_dims; i++) {
		c->empty = c->empty || d->dim[i] == 0;
		c->nest.dim[i] = d->dim[i];
		c->nest.stride[0][i] = d->out_stride[i];
		c->nest.stride[1][i] = d->in_stride[i];
	}
	if (!c->empty)
		dlb_nest_simplify(&c->nest);
	c->tiled = !c->empty && d->in == d->out && !d->accumulate && make_tiled(&c->nest);
	if (!c->empty) {
		const int last = c->nest.n_dims - 1;

		c->rows = !c->tiled && last > 0 && d->in == d->out && !d->accumulate &&
			  c->nest.stride[0][last] == 1 && c->nest.stride[1][last] == 1 &&
			  c->nest.dim[last] * (int64_t)c->in_bytes <= SHORT;
		c->outer = last < 0 ? 0 : last - (c->tiled || c->rows);
		/* accumulation may address an element twice (stride 0), so one part does it all, in order */
		c->by_tile = c->tiled && dlb_nest_count(&c->nest, c->outer) < b->n_threads;
		c->parts = d->accumulate ? 1 : dlb_cpu_parts(b, dlb_nest_count(&c->nest, last + 1),
			c->by_tile ? c->nest.dim[last - 1] / TILE : dlb_nest_count(&c->nest, c->outer));
	}
	c->k = (struct dlb_kernel){ .run = copy_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &c->k;
	return 0;
}
