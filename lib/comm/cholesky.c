/* See cholesky.h. */
#include "comm/cholesky.h"

#include <string.h>

#include "tensor/cpu/bf16.h"
#include "tensor/spd.h"

static const double retries[] = { 0, 1e-7, 1e-5, 1e-3 };
enum { N_TRIES = sizeof retries / sizeof *retries };

double dlb_spd_added(double damping, double mean_diagonal, int tries)
{
	return tries < 0 ? 0 : damping + retries[tries] * mean_diagonal;
}

int dlb_spd_factor(int n, float *s, double damping, float *work, double *added)
{
	size_t bytes = (size_t)dlb_rfp_count(n) * sizeof *s;
	double trace = 0;

	for (int i = 0; i < n; i++)
		trace += (double)s[dlb_rfp_at(n, i, i)];
	memcpy(work, s, bytes);
	for (int t = 0; t < N_TRIES; t++) {
		*added = dlb_spd_added(damping, n ? trace / n : 0, t);
		for (int i = 0; i < n; i++)
			s[dlb_rfp_at(n, i, i)] += (float)*added;
		if (!dlb_rfp_factor(n, s))
			return t;
		memcpy(s, work, bytes);
	}
	*added = 0;
	return -1;
}

void dlb_bf16_pack(float *words, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += 2) {
		uint16_t pair[2] = { bf16_round(x[i]), i + 1 < n ? bf16_round(x[i + 1]) : 0 };

		memcpy(&words[i / 2], pair, sizeof pair);
	}
}

void dlb_bf16_unpack(float *x, const float *words, int64_t n)
{
	for (int64_t i = 0; i < n; i += 2) {
		uint16_t pair[2];

		memcpy(pair, &words[i / 2], sizeof pair);
		x[i] = bf16_widen(pair[0]);
		if (i + 1 < n)
			x[i + 1] = bf16_widen(pair[1]);
	}
}
