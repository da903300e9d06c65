/* The weight's gradient of a depthwise convolution, channels-last, float; included by conv.c.
 *
 *     dw[c][tap] = sum over images and outputs o of dy[o][c] x[o at tap][c]
 *
 * oneDNN computes a 1 x 1 product per channel, at a thirtieth of the processor's speed. Here
 * neighbouring channels fill the vectors: VECTORS of them, with sums in registers for a row of outputs
 * at one tap (four chains of additions hide each other's latency). The last block of channels overlaps
 * the one before to stay full, and stores only its own channels. Sums run over images and rows, then
 * columns, for any number of threads. */
enum { DW_LANES = 16, DW_VECTORS = 4 };
typedef float dw_lanes __attribute__((vector_size(DW_LANES * sizeof(float)), aligned(sizeof(float))));

/* sum += dy x over `n` outputs of a row; x elements are xs apart, dy elements ys. */
static inline __attribute__((always_inline)) void dw_row(int vectors, int64_t n, const float *x, int64_t xs,
							 const float *dy, int64_t ys, float *sum)
{
	dw_lanes s[DW_VECTORS], a, b;

	for (int v = 0; v < vectors; v++)
		memcpy(&s[v], sum + v * DW_LANES, sizeof a);
	for (int64_t i = 0; i < n; i++, x += xs, dy += ys)
		for (int v = 0; v < vectors; v++) {
			memcpy(&a, x + v * DW_LANES, sizeof a);
			memcpy(&b, dy + v * DW_LANES, sizeof b);
			s[v] += a * b;
		}
	for (int v = 0; v < vectors; v++)
		memcpy(sum + v * DW_LANES, &s[v], sizeof s[v]);
}

/* Outputs [*lo, *hi) along dimension i whose kernel position k is inside the input. */
static void dw_span(const struct conv_kernel *c, int i, int64_t k, int64_t *lo, int64_t *hi)
{
	*lo = 0;
	*hi = c->out[i];
	while (*lo < *hi && conv_source(c, i, *lo, k) < 0)
		(*lo)++;
	while (*hi > *lo && conv_source(c, i, *hi - 1, k) < 0)
		(*hi)--;
}

/* One tap of a block of channels; x and dy point to the first channel. */
static inline __attribute__((always_inline)) void dw_tap(const struct conv_kernel *c, int vectors,
							 const int64_t *k, const float *x, const float *dy,
							 float *sum)
{
	int64_t lo[3], hi[3];

	for (int i = 0; i < 3; i++)
		dw_span(c, i, k[i], &lo[i], &hi[i]);
	memset(sum, 0, (size_t)vectors * sizeof(dw_lanes));
	for (int64_t n = 0; n < c->n && lo[2] < hi[2]; n++)
		for (int64_t d = lo[0]; d < hi[0]; d++)
			for (int64_t h = lo[1]; h < hi[1]; h++)
				dw_row(vectors, hi[2] - lo[2],
				       x + n * c->xn + conv_source(c, 0, d, k[0]) * c->xs[0] +
					       conv_source(c, 1, h, k[1]) * c->xs[1] +
					       conv_source(c, 2, lo[2], k[2]) * c->xs[2],
				       c->step[2] * c->xs[2],
				       dy + n * c->yn + ((d * c->out[1] + h) * c->out[2] + lo[2]) * c->yp,
				       c->yp, sum);
}

static inline __attribute__((always_inline)) void dw_block(const struct conv_kernel *c, int vectors,
							   int64_t block, const struct dlb_run *r)
{
	const int64_t wide = vectors * DW_LANES, own = block * wide,
		      first = own + wide > c->g ? c->g - wide : own;
	float *dw = r->out[0], sum[DW_VECTORS * DW_LANES];
	int64_t k[3];

	for (int64_t tap = 0; tap < c->taps; tap++) {
		k[2] = tap % c->size[2];
		k[1] = tap / c->size[2] % c->size[1];
		k[0] = tap / c->size[2] / c->size[1];
		dw_tap(c, vectors, k, (const float *)r->in[1] + first, (const float *)r->in[0] + first, sum);
		for (int64_t ch = own; ch < first + wide; ch++)
			dw[ch * c->taps + tap] = sum[ch - first];
	}
}

struct depthwise_job { const struct conv_kernel *c; const struct dlb_run *r; };

static int dw_vectors(const struct conv_kernel *c)
{
	return c->g >= DW_VECTORS * DW_LANES ? DW_VECTORS : 1;
}

static int64_t dw_blocks(const struct conv_kernel *c)
{
	const int64_t wide = dw_vectors(c) * DW_LANES;

	return (c->g + wide - 1) / wide;
}

static void depthwise_part(const void *ctx, int part, int parts)
{
	const struct depthwise_job *job = ctx;
	const struct conv_kernel *c = job->c;
	const int64_t blocks = dw_blocks(c);

	for (int64_t b = cpu_cut(blocks, part, parts); b < cpu_cut(blocks, part + 1, parts); b++)
		if (dw_vectors(c) == DW_VECTORS)
			dw_block(c, DW_VECTORS, b, job->r);
		else
			dw_block(c, 1, b, job->r);
}

static void run_depthwise(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (struct conv_kernel *)k;
	const struct depthwise_job job = { c, r };
	float *db = c->d.has_bias ? r->out[1] : NULL;

	dlb_cpu_parallel(c->parts, depthwise_part, &job);
	if (!db)
		return;
	memset(db, 0, (size_t)c->g * sizeof *db);
	for (int64_t n = 0; n < c->n; n++)
		for (int64_t p = 0; p < c->positions; p++) {
			const float *dy = (const float *)r->in[0] + n * c->yn + p * c->yp;
			for (int64_t ch = 0; ch < c->g; ch++)
				db[ch] += dy[ch];
		}
}

/* True for a depthwise convolution: one channel per group, channels adjacent in memory. */
static bool is_depthwise(const struct conv_kernel *c)
{
	return c->d.dir == DLB_CONV_GRAD_WEIGHT && c->d.x.dtype == DLB_F32 && c->cg == 1 && c->mg == 1 &&
	       c->g >= DW_LANES && c->xc == 1 && c->ym == 1;
}
