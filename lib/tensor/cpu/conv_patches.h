/* Gradient of the weight of a convolution of float32 with channels-last activations, as products with
 * patches; included by conv.c. A patch is the input under the kernel at one position: (KD, KH, KW, C)
 * elements in this order, a row of im2col. The elements under one row of the kernel are adjacent in the input
 * too, if its dilation is 1.
 *   dw (M, taps) = sum over chunks of dy^T (M, p) patches (p, taps)
 * The positions of all images are taken in chunks whose patches fit into the cache. */

static int64_t n_patches(const struct conv_kernel *c) { return c->n * c->positions; }

/* Number of patches in a chunk. */
static int64_t patch_chunk(const struct conv_kernel *c)
{
	enum { BYTES = 1 << 20, LEAST = 96 };
	const int64_t n = BYTES / (c->taps * (int64_t)sizeof(float)), chunk = n < LEAST ? LEAST : n;

	return chunk < n_patches(c) ? chunk : n_patches(c);
}

/* Writes the elements under one row of the kernel, from place `at` of a row of the input on. Returns the
 * end. */
static float *patch_row(const struct conv_kernel *c, const float *row, int64_t at, float *to)
{
	const int64_t channels = c->cg, size = c->size[2], end = c->in[2] - at;
	const size_t place = (size_t)channels * sizeof *to;
	const int64_t lo = at < 0 ? -at : 0, hi = end < size ? end : size;

	if (c->dil[2] == 1 && lo < hi) {
		memset(to, 0, (size_t)lo * place);
		memcpy(to + lo * channels, row + (at + lo) * channels, (size_t)(hi - lo) * place);
		memset(to + hi * channels, 0, (size_t)(size - hi) * place);
		return to + size * channels;
	}
	for (int64_t k = 0; k < size; k++, at += c->dil[2], to += channels)
		if (at < 0 || at >= c->in[2])
			memset(to, 0, place);
		else
			memcpy(to, row + at * channels, place);
	return to;
}

/* Writes patches [begin, begin + n). */
static void fill_patches(const struct conv_kernel *c, const float *x, int64_t begin, int64_t n, float *to)
{
	const int64_t *out = c->out, line = c->size[2] * c->cg;

	for (int64_t p = begin; p < begin + n; p++) {
		const int64_t w = p % out[2], h = p / out[2] % out[1], d = p / (out[1] * out[2]) % out[0];
		const float *image = x + p / c->positions * c->xn;

		for (int64_t kd = 0; kd < c->size[0]; kd++)
			for (int64_t kh = 0; kh < c->size[1]; kh++) {
				const int64_t z = conv_source(c, 0, d, kd), y = conv_source(c, 1, h, kh);

				if (z < 0 || y < 0) {
					memset(to, 0, (size_t)line * sizeof *to);
					to += line;
				} else {
					to = patch_row(c, image + z * c->xs[0] + y * c->xs[1],
						       w * c->step[2] - c->pad[2], to);
				}
			}
	}
}

/* Whether the input itself holds the patches: the kernel has one element and meets each place once. */
static bool patches_in_place(const struct conv_kernel *c)
{
	bool same = c->taps == c->cg;

	for (int i = 0; i < 3; i++)
		same &= c->step[i] == 1 && c->out[i] == c->in[i];
	return same;
}

/* sum (n) = the sum of the rows of x (rows, n). */
static void sum_places(const float *x, int64_t rows, int64_t n, float *sum)
{
	enum { BLOCK = 64 };

	for (int64_t begin = 0; begin < n; begin += BLOCK) {
		const int64_t wide = n - begin < BLOCK ? n - begin : BLOCK;
		double part[BLOCK] = { 0 };

		for (int64_t p = 0; p < rows; p++)
			for (int64_t i = 0; i < wide; i++)
				part[i] += x[p * n + begin + i];
		for (int64_t i = 0; i < wide; i++)
			sum[begin + i] = (float)part[i];
	}
}

static void run_patches(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct conv_kernel *c = (struct conv_kernel *)k;
	const float *dy = r->in[0];
	const bool in_place = patches_in_place(c);
	const int64_t chunk = patch_chunk(c);
	const int m = (int)c->mg, taps = (int)c->taps;
	float *dw = dlb_cpu_stage(&c->w, r->out[0], r->scratch);

	for (int64_t p = 0; p < n_patches(c); p += chunk) {
		const int64_t n = n_patches(c) - p < chunk ? n_patches(c) - p : chunk;
		const struct cpu_matmul product = { .m = m,
						    .n = taps,
						    .k = (int)n,
						    .lda = m,
						    .ldw = taps,
						    .ldy = taps,
						    .trans_a = true,
						    .add = p > 0,
						    .alpha = 1 };

		if (!in_place)
			fill_patches(c, r->in[1], p, n, r->scratch);
		dlb_cpu_openblas_sgemm(&product, dy + p * m,
				       in_place ? (const float *)r->in[1] + p * taps : r->scratch, dw);
	}
	dlb_cpu_stage_out(c->c, &c->w, r->out[0], r->scratch);
	if (c->d.has_bias)
		sum_places(dy, n_patches(c), m, r->out[1]);
}

/* Where products of OpenBLAS are faster than oneDNN's own loops, without AVX-512 (GFLOP/s of oneDNN and of
 * products, one thread of an AMD Zen 3):
 *   3x3: 64 to 512 channels 30 to 54 and 53 to 70; 32 channels 46 and 42; 16 channels 53 and 34
 *   1x1: 128 to 2048 channels 40 to 54 and 58 to 76; 64 channels 58 to 65 and 55 to 61 */
static bool patches_pay(const struct conv_kernel *c, int n_threads)
{
	const int64_t least = c->taps > c->cg ? 64 : 128;
	const bool last = c->xc == 1 && c->ym == 1;

	return c->d.dir == DLB_CONV_GRAD_WEIGHT && c->d.x.dtype == DLB_F32 && last && c->g == 1 &&
	       n_threads == 1 && VECTOR_BYTES == 32 && c->cg >= least && c->mg >= least &&
	       dlb_cpu_openblas_is_known();
}

static int prepare_patches(struct conv_kernel *c)
{
	static const dnnl_format_tag_t plain_tags[] = { dnnl_oiw, dnnl_oihw, dnnl_oidhw },
				       patch_tags[] = { dnnl_owi, dnnl_ohwi, dnnl_odhwi };
	const int n = c->d.w.n_dims;
	const int64_t chunk = patch_chunk(c);
	dnnl_memory_desc_t plain, patches;
	dnnl_dims_t dims;

	for (int i = 0; i < n; i++)
		dims[i] = c->d.w.dim[i];
	dnnl_memory_desc_init_by_tag(&plain, n, dims, dnnl_f32, plain_tags[n - 3]);
	dnnl_memory_desc_init_by_tag(&patches, n, dims, dnnl_f32, patch_tags[n - 3]);
	if (dlb_cpu_staged(c->c, &patches, &plain, &patches, &c->w)) {
		release(c);
		return DLB_NO_KERNEL;
	}
	c->prim.scratch_bytes = patches_in_place(c) ? 0 : (size_t)(chunk * c->taps) * sizeof(float);
	lay_out_scratch(c);
	c->k.library_bytes[DLB_CPU_OPENBLAS] = dlb_cpu_openblas_keeps(c->mg, c->taps, chunk, sizeof(float));
	return 0;
}
