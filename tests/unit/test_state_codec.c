/* Optimizer states in bf16 and 8 bits: codes, errors, blocks and chunks; and updates that keep them so, at
 * every level of the instruction set: they are those of the f32 kernel between a decoding and an encoding,
 * however many threads and chunks there are. */
#include "check.h"
#include "kernels.h"

#include "optim/optim.h"
#include "tensor/cpu/bf16.h"
#include "util/chunk.h"

enum { N = 3 * DLB_STATE_BLOCK + 77, MOST = 5000 };
static const enum dlb_state_code codes[] = { DLB_CODE_BF16, DLB_CODE_SIGNED_8, DLB_CODE_UNSIGNED_8 };

static enum dlb_state_dtype dtype_of(enum dlb_state_code c)
{
	return c == DLB_CODE_BF16 ? DLB_STATE_BF16 : DLB_STATE_8BIT;
}

static size_t bytes_of(enum dlb_state_code c, int64_t n, int chunks)
{
	return dlb_state_bytes(dtype_of(c), sizeof(float), n, chunks);
}

/* Magnitudes over `decades`, with some zeros; negative ones too if the code has them. */
static void fill(enum dlb_state_code c, float *x, int64_t n, double decades)
{
	for (int64_t i = 0; i < n; i++) {
		const double v = pow(10, -decades * dlb_rng_uniform(&rng));

		x[i] = dlb_rng_below(&rng, 9) == 0                        ? 0 :
		       c != DLB_CODE_UNSIGNED_8 && dlb_rng_below(&rng, 2) ? (float)-v :
									    (float)v;
	}
}

static void names(void)
{
	for (int i = 0; i < DLB_N_STATE_DTYPES; i++)
		assert(IS(dlb_state_dtype_find(dlb_state_dtypes[i]), ==, i));
	assert(!dlb_state_dtypes[DLB_N_STATE_DTYPES] && dlb_state_dtype_find("8") == -1);
	assert(IS(dlb_state_ratio(DLB_STATE_F32), ==, 1) && IS(dlb_state_ratio(DLB_STATE_BF16), ==, 0.5) &&
	       IS(dlb_state_ratio(DLB_STATE_8BIT), ==, 260.0 / 1024));
}

/* Every code of a block decodes to its own value, in order, and is encoded again as itself: at scales from
 * the smallest to the largest. */
static void all_codes(void)
{
	static const float scale[] = { 0x1p-94f, 1e-20f, 0.3f, 1, 3e38f };

	for (int s = 0; s < 2; s++)
		for (int k = 0; k < DLB_LEN(scale); k++) {
			const enum dlb_state_code c = s ? DLB_CODE_SIGNED_8 : DLB_CODE_UNSIGNED_8;
			const int n = s ? 255 : 256, least = s ? -127 : 0;
			unsigned char state[2][256 + sizeof(float)] = { { 0 } };
			float x[256];

			for (int i = 0; i < n; i++)
				state[0][i] = (unsigned char)(least + i);
			memcpy(state[0] + 256, &scale[k], sizeof(float));
			dlb_state_decode(c, n, 1, state[0], x);
			for (int i = 0; i < n; i++) {
				const double q = (least + i) / (s ? 127.0 : 255.0),
					     want = q * q * q * fabs(q) * scale[k];

				assert(IS(fabs(x[i] - want), <=, 1e-6 * fabs(want)) &&
				       isnormal(x[i]) == (q != 0));
				assert(!i || x[i] > x[i - 1]);
			}
			assert(IS(x[n - 1], ==, scale[k]));
			dlb_state_encode(c, n, 1, x, state[1]);
			assert(!memcmp(state[0], state[1], sizeof state[0]));
			n_checks++;
		}
}

/* Errors: half a step of the fourth root (and 5e-5 of it, its own error), that is 2 / q of the value; without
 * sign nothing but 0 becomes 0; again gives the same bits. */
static void errors(enum dlb_state_code c, int64_t n, int chunks, double decades)
{
	static float x[MOST], y[MOST];
	static char state[2][4 * MOST];
	const double steps = c == DLB_CODE_SIGNED_8 ? 127 : 255;

	fill(c, x, n, decades);
	dlb_state_encode(c, n, chunks, x, state[0]);
	dlb_state_decode(c, n, chunks, state[0], y);
	for (int chunk = 0; chunk < chunks; chunk++)
		for (int64_t at = dlb_chunk_at(n, chunks, chunk), end = dlb_chunk_at(n, chunks, chunk + 1);
		     at < end; at += DLB_STATE_BLOCK) {
			const int64_t m = end - at < DLB_STATE_BLOCK ? end - at : DLB_STATE_BLOCK;
			double top = 0;

			for (int64_t i = at; i < at + m; i++)
				top = fmax(top, fabs(x[i]));
			for (int64_t i = at; i < at + m; i++) {
				const double q = steps * pow(fabs(x[i]) / top, 0.25),
					     from = q < 0.513 ? 0 : pow((q - 0.513) / steps, 4) * top,
					     to = pow(fmax(q + 0.513, 1) / steps, 4) * top * (1 + 1e-6);

				if (c == DLB_CODE_BF16)
					assert(IS(y[i], ==, bf16_widen(bf16_round(x[i]))));
				else
					assert(IS(fabs(y[i]), >=, from * (1 - 1e-6)) &&
					       IS(fabs(y[i]), <=, to) &&
					       (y[i] == 0 || (x[i] < 0) == (y[i] < 0)));
				assert(x[i] != 0 || y[i] == 0);
				assert(c != DLB_CODE_UNSIGNED_8 || x[i] == 0 || y[i] > 0);
			}
		}
	dlb_state_encode(c, n, chunks, y, state[1]);
	assert(!memcmp(state[0], state[1], bytes_of(c, n, chunks)));
	n_checks++;
}

static void blocks(void)
{
	for (int64_t n = 0; n < 1200; n += n < 20 ? 1 : 59)
		for (int chunks = 1; chunks < 6; chunks++) {
			struct dlb_state_span s = dlb_state_span_at(n, chunks, 0);
			const int64_t all = dlb_state_blocks(n, chunks);
			int64_t at = 0, block = 0;

			for (; s.n; dlb_state_next(n, chunks, &s), block++) {
				const struct dlb_state_span same = dlb_state_span_at(n, chunks, block);

				assert(IS(s.first, ==, at) && s.n <= DLB_STATE_BLOCK &&
				       IS(s.block, ==, block));
				assert(same.first == s.first && same.n == s.n && same.end == s.end);
				at += s.n;
			}
			assert(IS(at, ==, n) && IS(block, ==, all) && !dlb_state_span_at(n, chunks, all).n);
			/* a chunk alone has the blocks that it has in the whole */
			int64_t sum = 0;
			for (int k = 0; k < chunks; k++)
				sum += dlb_state_blocks(dlb_chunk_at(n, chunks, k + 1) -
								dlb_chunk_at(n, chunks, k),
							1);
			assert(IS(sum, ==, all));
			assert(IS(dlb_state_bytes(DLB_STATE_BF16, 4, n, chunks), ==, (size_t)n * 2));
			assert(IS(dlb_state_bytes(DLB_STATE_8BIT, 4, n, chunks), ==,
				  (size_t)((n + 3) / 4 * 4 + 4 * all)));
			n_checks++;
		}
}

/* A block of zeros; one with a NaN or an infinity, beside others; values below the least scale. */
static void special(void)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	static float x[N], y[N];
	static char state[4 * N];

	for (int k = 0; k < DLB_LEN(codes); k++) {
		const enum dlb_state_code c = codes[k];

		memset(x, 0, sizeof x);
		dlb_state_encode(c, N, 1, x, state);
		dlb_state_decode(c, N, 1, state, y);
		for (int i = 0; i < N; i++)
			assert(y[i] == 0);
		memset(state, 0, sizeof state); /* as a new state is */
		dlb_state_decode(c, N, 1, state, y);
		for (int i = 0; i < N; i++)
			assert(y[i] == 0);
		for (int b = 0; b < DLB_LEN(bad); b++) {
			fill(c, x, N, 3);
			x[DLB_STATE_BLOCK + 5] = bad[b];
			dlb_state_encode(c, N, 1, x, state);
			dlb_state_decode(c, N, 1, state, y);
			for (int i = 0; i < N; i++)
				assert(i == DLB_STATE_BLOCK + 5                       ? !isfinite(y[i]) :
				       c != DLB_CODE_BF16 && i / DLB_STATE_BLOCK == 1 ? isnan(y[i]) :
											isfinite(y[i]));
		}
		for (int i = 0; i < N; i++)
			x[i] = i % 3 ? 1e-40f : 0; /* denormal */
		dlb_state_encode(c, N, 1, x, state);
		dlb_state_decode(c, N, 1, state, y);
		for (int i = 0; i < N && c != DLB_CODE_BF16; i++)
			assert(c == DLB_CODE_SIGNED_8 ? y[i] == 0 :
							(y[i] > 0) == (x[i] > 0) && y[i] < 1e-37f);
		n_checks++;
	}
}

static bool may_be_small(int rule)
{
	return rule != DLB_RULE_SGD && rule != DLB_RULE_KFAC && rule != DLB_RULE_ADAGRAD &&
	       rule != DLB_RULE_MAX_ADABELIEF;
}

/* Some steps of a rule on n elements with kept states, against the f32 kernel on decoded ones. */
static void updates(int rule, enum dlb_state_dtype dtype, int64_t n, int chunks)
{
	static float w[2][MOST], g[MOST], wide[2][MOST];
	static char kept[2][4 * MOST];
	const int n_state = dlb_optimizers[rule].n_state;
	struct dlb_optimizer_choice c;
	struct dlb_kernel *small, *plain;

	dlb_optimizer_defaults(rule, &c);
	struct dlb_update_desc d = dlb_optimizer_desc(&c, DLB_F32, n, DLB_UPDATE_WHOLE, NULL);
	MUST(be.ops->update(&be, &d, &plain, &err_));
	c.state_dtype = dtype;
	d = dlb_optimizer_desc(&c, DLB_F32, n, DLB_UPDATE_WHOLE, NULL);
	d.n_chunks = chunks;
	MUST(be.ops->update(&be, &d, &small, &err_));
	memset(kept, 0, sizeof kept);
	fill(DLB_CODE_SIGNED_8, w[0], n, 1);
	memcpy(w[1], w[0], sizeof w[0]);
	for (int step = 1; step < 6; step++) {
		void *in[] = { g }, *out[] = { w[0], kept[0], kept[1] },
		     *wide_out[] = { w[1], wide[0], wide[1] };
		int64_t bad = 0;
		struct dlb_run r = { .in = in, .out = wide_out, .step = (uint64_t)step, .not_finite = &bad };

		fill(DLB_CODE_SIGNED_8, g, n, 4);
		for (int k = 0; k < n_state; k++)
			dlb_state_decode(d.code[k], n, chunks, kept[k], wide[k]);
		plain->run(plain, &r);
		r.out = out;
		small->run(small, &r);
		MUST(be.ops->sync(&be, &err_));
		dlb_kernel_count(small, &r);
		assert(!memcmp(w[0], w[1], (size_t)n * sizeof(float)) && !bad);
		for (int k = 0; k < n_state; k++) {
			static char want[4 * MOST];

			memset(want, 0, sizeof want);
			dlb_state_encode(d.code[k], n, chunks, wide[k], want);
			assert(!memcmp(want, kept[k], dlb_state_bytes(dtype, sizeof(float), n, chunks)));
		}
	}
	dlb_kernel_free(small);
	dlb_kernel_free(plain);
	n_checks++;
}

static void refusals(void)
{
	for (int rule = 0; rule < DLB_N_RULES; rule++) {
		const bool may = may_be_small(rule);
		struct dlb_error err = { .what = "" };

		assert(!dlb_optimizer_check_states(rule, DLB_STATE_F32, &err));
		for (int d = DLB_STATE_BF16; d < DLB_N_STATE_DTYPES; d++)
			assert(IS((dlb_optimizer_check_states(rule, d, &err) == 0), ==, may));
		for (int k = 0; may && k < dlb_optimizers[rule].n_state; k++)
			assert(dlb_optimizer_code(rule, DLB_STATE_8BIT, k) >= DLB_CODE_SIGNED_8);
	}
	struct dlb_update_desc d = {
		.dtype = DLB_F64, .count = 4, .rule = DLB_RULE_ADAM, .code = { DLB_CODE_BF16, DLB_CODE_BF16 }
	};
	struct dlb_kernel *k;
	struct dlb_error err = { .what = "" };

	assert(IS(be.ops->update(&be, &d, &k, &err), ==, DLB_NO_KERNEL));
	d.dtype = DLB_F32;
	d.stage = DLB_UPDATE_PREDICT;
	assert(IS(be.ops->update(&be, &d, &k, &err), ==, DLB_NO_KERNEL));
}

/* The bits do not depend on the number of threads. */
static void threads(int rule, enum dlb_state_dtype dtype, int chunks)
{
	enum { LARGE = 150001 };
	static float w[2][LARGE], g[LARGE];
	static char kept[2][2][4 * LARGE];
	struct dlb_optimizer_choice c;

	dlb_optimizer_defaults(rule, &c);
	c.state_dtype = dtype;
	struct dlb_update_desc d = dlb_optimizer_desc(&c, DLB_F32, LARGE, DLB_UPDATE_WHOLE, NULL);
	d.n_chunks = chunks;
	memset(kept, 0, sizeof kept);
	memset(w, 0, sizeof w);
	for (int i = 0; i < 2; i++) {
		struct dlb_backend own;
		struct dlb_kernel *k;

		MUST(dlb_backend_open("cpu", 0, i ? 3 : 1, &own, &err_));
		MUST(own.ops->update(&own, &d, &k, &err_));
		for (int step = 1; step < 4; step++) {
			void *in[] = { g }, *out[] = { w[i], kept[i][0], kept[i][1] };

			dlb_rng_init(&rng, (uint64_t)step);
			fill(DLB_CODE_SIGNED_8, g, LARGE, 4);
			k->run(k, &(struct dlb_run){ .in = in, .out = out, .step = (uint64_t)step });
		}
		dlb_kernel_free(k);
		own.ops->close(&own);
	}
	assert(!memcmp(w[0], w[1], sizeof w[0]) && !memcmp(kept[0], kept[1], sizeof kept[0]));
	n_checks++;
}

int main(void)
{
	dlb_rng_init(&rng, 3);
	open_backend();
	names();
	all_codes();
	blocks();
	special();
	for (int k = 0; k < DLB_LEN(codes); k++)
		for (int chunks = 1; chunks < 4; chunks++)
			for (int decades = 0; decades < 13; decades += 3) {
				errors(codes[k], N, chunks, decades);
				errors(codes[k], 1 + (int64_t)dlb_rng_below(&rng, MOST - 1), chunks, decades);
			}
	refusals();
	for (int l = 0; use_level(l); l++)
		for (int rule = 0; rule < DLB_N_RULES; rule++)
			for (int dtype = DLB_STATE_BF16; dtype < DLB_N_STATE_DTYPES; dtype++)
				for (int chunks = 1; chunks < 4 && may_be_small(rule); chunks++)
					updates(rule, dtype, chunks == 2 ? 7 : N, chunks);
	for (int dtype = DLB_STATE_BF16; dtype < DLB_N_STATE_DTYPES; dtype++)
		for (int chunks = 1; chunks < 4; chunks++)
			threads(DLB_RULE_ADAMW, dtype, chunks);
	be.ops->close(&be);
	printf("%ld checks of kept states\n", n_checks);
	return 0;
}
