/* Low rank: orthonormal bases of small matrices for any condition and rank, the three passes over a gradient,
 * the keys of columns. test_lowrank.c has large ones. */
#include "bases.h"

/* ---- the three passes ---- */

static void passes(void)
{
	static const int shapes[][3] = { { 1, 1, 1 },    { 3, 5, 2 },    { 16, 8, 2 },  { 7, 100, 5 },
					 { 129, 65, 8 }, { 40, 96, 16 }, { 37, 31, 31 } };
	const struct dlb_skinny *k = dlb_skinny();

	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		int n = shapes[s][0], m = shapes[s][1], r = shapes[s][2];
		const struct dlb_skinny_shape shape = { n, m, r };
		int64_t stride = dlb_skinny_stride(m);
		float *x = dlb_xmalloc((size_t)(4 * n * m + n * r) * sizeof *x), *e = x + n * m,
		      *g = e + n * m, *kept = g + n * m, *p = kept + n * m;
		float *qt = dlb_xmalloc((size_t)(r * stride) * sizeof *qt);

		for (int i = 0; i < n * m; i++) {
			g[i] = x[i] = (float)normal(&rng);
			kept[i] = e[i] = (float)normal(&rng);
		}
		dlb_lowrank_first_q(qt, m, r, 5);
		k->project(&shape, x, e, qt, p);
		for (int i = 0; i < n; i++)
			for (int c = 0; c < r; c++) {
				double want = 0;

				for (int j = 0; j < m; j++)
					want += (double)x[i * m + j] * (double)qt[c * stride + j];
				assert(IS(fabs(want - (double)p[i * r + c]), <=, 1e-5 * sqrt(m) * 4));
			}
		for (int i = 0; i < n * m; i++)
			assert(IS(x[i], ==, g[i] + e[i]));
		assert(!memcmp(e, kept, (size_t)(n * m) * sizeof *e));
		k->project_back(&shape, x, p, qt);
		for (int c = 0; c < r; c++)
			for (int64_t j = 0; j < stride; j++) {
				double want = 0, size = 0;

				for (int i = 0; i < n && j < m; i++) {
					want += (double)x[i * m + j] * (double)p[i * r + c];
					size += fabs((double)x[i * m + j] * (double)p[i * r + c]);
				}
				assert(IS(fabs(want - (double)qt[c * stride + j]), <=, 1e-6 * size));
			}
		memcpy(g, x, (size_t)(n * m) * sizeof *g);
		k->restore(&shape, x, e, p, qt, 0.25f);
		for (int i = 0; i < n; i++)
			for (int j = 0; j < m; j++) {
				float want = 0;

				for (int c = 0; c < r; c++)
					want += qt[c * stride + j] * p[i * r + c];
				assert(IS(x[i * m + j], ==, want)); /* the same bits on any machine */
				assert(IS(e[i * m + j], ==, g[i * m + j] - want * 0.25f));
			}
		n_checks++;
		free(x);
		free(qt);
	}
}

/* ---- keys ---- */

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Keys of columns differ from gradient to gradient and from step to step; the numbers are those of splitmix64,
 * of which Rosetta Code, "Pseudo-random numbers/Splitmix64", has the first five for the seed 1234567. */
static void keys(void)
{
	static const uint64_t known[] = { UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
					  UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
					  UINT64_C(16408922859458223821) };
	enum { IDS = 40, STEPS = 50 };
	uint64_t key[IDS * STEPS];
	double x[2 * DLB_LEN(known)];

	dlb_splitmix_fill(x, DLB_LEN(known), 2, 1234567);
	for (int i = 0; i < DLB_LEN(known); i++)
		assert(IS(x[2 * i], ==, (double)(known[i] >> 11) * 0x1p-52 - 1));
	for (int i = 0; i < IDS * STEPS; i++)
		key[i] = dlb_lowrank_key((uint64_t)(i / STEPS), (uint64_t)(i % STEPS));
	qsort(key, IDS * STEPS, sizeof *key, by_size);
	for (int i = 1; i < IDS * STEPS; i++)
		assert(IS(key[i - 1], !=, key[i]));
}

int main(void)
{
	dlb_rng_init(&rng, 1);
	bases(100, 33);
	passes();
	keys();
	printf("%ld checks of low rank\n", n_checks);
	return 0;
}
