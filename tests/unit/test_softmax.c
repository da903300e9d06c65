/* Softmax and the losses, whole and in parts, with their gradients, against double references, at every level of the
 * cpu's instruction set. The seed is printed. */
#include "check.h"
#include "kernels.h"

/* ---- softmax ---- */
static void one_softmax(enum dlb_dtype t, bool is_log, int64_t outer, int64_t axis, int64_t inner,
			double spread)
{
	struct dlb_desc d = desc(t, 0, 3, DIMS(outer, axis, inner));
	struct arg x = draw(d), y = { d, zeros(outer * axis * inner) }, dy = draw(d),
		   dx = { d, zeros(outer * axis * inner) };
	struct dlb_softmax_desc s = {
		.dtype = t, .log = is_log, .outer = outer, .axis = axis, .inner = inner
	};
	struct arg given = { d, zeros(outer * axis * inner) };
	struct dlb_kernel *k;

	for (int64_t i = 0; i < outer * axis * inner; i++)
		x.v[i] = rounded(t, x.v[i] * spread);
	for (int64_t o = 0; o < outer; o++)
		for (int64_t i = 0; i < inner; i++) {
			double max = -INFINITY, sum = 0, dot = 0;
#define EACH(at) for (int64_t a_ = 0, at = o * axis * inner + i; a_ < axis; a_++, at += inner)
			EACH(at)
				max = fmax(max, x.v[at]);
			EACH(at)
				sum += exp(x.v[at] - max);
			EACH(at) {
				y.v[at] = is_log ? x.v[at] - max - log(sum) : exp(x.v[at] - max) / sum;
				given.v[at] = rounded(t, y.v[at]);
				dot += is_log ? dy.v[at] : dy.v[at] * given.v[at];
			}
			EACH(at)
			dx.v[at] = is_log ? dy.v[at] - exp(given.v[at]) * dot :
					    given.v[at] * (dy.v[at] - dot);
#undef EACH
		}
	MUST(be.ops->softmax(&be, &s, &k, &err_));
	if (t == DLB_F64)
		check_differences("softmax", k, &x, 1, &y, 1, dy.v, 0, dx.v);
	check_run("softmax", k, &x, 1, &y, 1, close_tol(t), NULL, NULL);
	s.backward = true;
	MUST(be.ops->softmax(&be, &s, &k, &err_));
	check_run("softmax gradient", k, (struct arg[]){ dy, given }, 2, &dx, 1, close_tol(t) * 4, NULL, NULL);
	free(x.v); free(y.v); free(dy.v); free(dx.v); free(given.v);
}

/* ---- losses ---- */
static void one_loss(enum dlb_dtype t, enum dlb_dtype label, bool sce, bool weighted, bool ignore,
		     enum dlb_reduction red, int64_t n, int64_t c, int64_t inner, int wrong)
{
	struct dlb_desc dx_ = desc(t, 0, 3, DIMS(n, c, inner)), dl = desc(label, 0, 2, DIMS(n, inner));
	struct arg x = draw(dx_), lp = { dx_, zeros(n * c * inner) }, labels = { dl, zeros(n * inner) },
		   w = weighted ? draw(desc(t, 0, 1, &c)) : absent();
	struct arg y = { red == DLB_REDUCE_NONE ? desc(t, 0, 2, DIMS(n, inner)) : desc(t, 0, 0, NULL),
			 zeros(n * inner) };
	struct arg dy = draw(y.d), dx = { dx_, zeros(n * c * inner) };
	struct dlb_loss_desc d = { .dtype = t,
				   .label = label,
				   .softmax = sce,
				   .has_weight = weighted,
				   .has_ignore = ignore,
				   .ignore = -7,
				   .reduction = red,
				   .n = n,
				   .classes = c,
				   .inner = inner };
	double sum = 0, weight = 0;
	struct dlb_kernel *k;
	char what[100];

	for (int64_t i = 0; weighted && i < c; i++)
		w.v[i] = rounded(t, fabs(w.v[i]) + 0.1);
	for (int64_t i = 0; i < n * inner; i++)
		labels.v[i] = ignore && (dlb_rng_below(&rng, 4) == 0 || wrong == 2) ?
				      -7 :
				      (double)dlb_rng_below(&rng, (uint64_t)c);
	if (wrong == 1)
		labels.v[0] = (double)c;
	for (int64_t i = 0; i < n * inner; i++) {
		int64_t l = (int64_t)labels.v[i], base = i / inner * c * inner + i % inner;
		double s = 0, loss;

		for (int64_t j = 0; j < c; j++)
			s += exp(x.v[base + j * inner]);
		for (int64_t j = 0; j < c; j++)
			lp.v[base + j * inner] = rounded(t, sce ? x.v[base + j * inner] - log(s) :
								  x.v[base + j * inner]);
		loss = l == -7         ? 0 :
		       l < 0 || l >= c ? NAN :
					 -(weighted ? w.v[l] : 1) * (sce ? x.v[base + l * inner] - log(s) :
									   x.v[base + l * inner]);
		weight += l == -7 ? 0 : l < 0 || l >= c ? NAN : weighted ? w.v[l] : 1;
		sum += loss;
		if (red == DLB_REDUCE_NONE)
			y.v[i] = loss;
	}
	if (red != DLB_REDUCE_NONE)
		y.v[0] = red == DLB_REDUCE_SUM ? sum : weight == 0 ? 0 : sum / weight;
	for (int64_t i = 0; i < n * inner; i++) {
		int64_t l = (int64_t)labels.v[i], base = i / inner * c * inner + i % inner;
		bool bad = l != -7 && (l < 0 || l >= c);
		double up = dy.v[red == DLB_REDUCE_NONE ? i : 0] / (red == DLB_REDUCE_MEAN ? weight : 1) *
			    (bad                ? NAN :
			     weighted && l >= 0 ? w.v[l] :
						  1);

		for (int64_t j = 0; j < c; j++)
			dx.v[base + j * inner] = l == -7    ? 0 :
						 sce || bad ? up * (exp(lp.v[base + j * inner]) - (j == l)) :
						 j == l     ? -up :
							      0;
	}
	snprintf(what, sizeof what, "%s %s reduction %d, %lldx%lldx%lld", sce ? "sce" : "nll",
		 dlb_dtype_name(t), red, (long long)n, (long long)c, (long long)inner);
	MUST(be.ops->loss(&be, &d, &k, &err_));
	if (t == DLB_F64 && !wrong)
		check_differences(what, k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, absent() },
				  2, dy.v, 0, dx.v);
	check_run(what, k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, sce ? lp : absent() }, 2,
		  close_tol(t) * 4, NULL, NULL);
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, absent() }, 2, close_tol(t) * 4,
		  NULL, NULL);
	d.backward = true;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ dy, lp, labels, w }, 4, &dx, 1, close_tol(t) * 4, NULL, NULL);
	free(x.v); free(lp.v); free(labels.v); free(w.v); free(y.v); free(dy.v); free(dx.v);
}

/* Softmax cross-entropy with label smoothing e: (1 - e) times the loss of the label plus e / classes times
 * that of all classes, each with its weight. */
static void one_smoothed(enum dlb_dtype t, bool weighted, enum dlb_reduction red, int64_t n, int64_t c,
			 int64_t inner)
{
	const struct dlb_desc dx_ = desc(t, 0, 3, DIMS(n, c, inner));
	const double e = 0.3;
	struct arg x = draw(dx_), lp = { dx_, zeros(n * c * inner) }, dx = { dx_, zeros(n * c * inner) },
		   labels = { desc(DLB_I32, 0, 2, DIMS(n, inner)), zeros(n * inner) },
		   w = weighted ? draw(desc(t, 0, 1, &c)) : absent();
	struct arg y = { red == DLB_REDUCE_NONE ? desc(t, 0, 2, DIMS(n, inner)) : desc(t, 0, 0, NULL),
			 zeros(n * inner) };
	struct arg dy = draw(y.d);
	struct dlb_loss_desc d = { .dtype = t, .label = DLB_I32, .softmax = true, .has_weight = weighted,
				   .has_ignore = true, .ignore = 1, .smoothing = e, .reduction = red,
				   .n = n, .classes = c, .inner = inner };
	double sum = 0, weight = 0, all = 0;
	struct dlb_kernel *k;

	for (int64_t j = 0; j < c; j++)
		all += weighted ? (w.v[j] = rounded(t, fabs(w.v[j]) + 0.1)) : 1;
	for (int64_t i = 0; i < n * inner; i++) {
		const int64_t l = (int64_t)dlb_rng_below(&rng, (uint64_t)c),
			      base = i / inner * c * inner + i % inner;
		const double mine = l == 1 ? 0 : weighted ? w.v[l] : 1;
		double s = 0, loss = 0;

		labels.v[i] = (double)l;
		for (int64_t j = 0; j < c; j++)
			s += exp(x.v[base + j * inner]);
		for (int64_t j = 0; j < c; j++) {
			const double p = x.v[base + j * inner] - log(s);

			lp.v[base + j * inner] = rounded(t, p);
			loss -= l == 1 ? 0 :
					 ((j == l) * (1 - e) * mine +
					  e / (double)c * (weighted ? w.v[j] : 1)) *
						 p;
		}
		sum += loss;
		weight += mine;
		if (red == DLB_REDUCE_NONE)
			y.v[i] = loss;
	}
	if (red != DLB_REDUCE_NONE)
		y.v[0] = red == DLB_REDUCE_SUM ? sum : weight == 0 ? 0 : sum / weight;
	for (int64_t i = 0; i < n * inner; i++)
		for (int64_t j = 0; j < c; j++) {
			const int64_t l = (int64_t)labels.v[i], at = (i / inner * c + j) * inner + i % inner;
			const double up = dy.v[red == DLB_REDUCE_NONE ? i : 0] /
					  (red == DLB_REDUCE_MEAN && weight != 0 ? weight : 1),
				     p = exp(lp.v[at]), mine = weighted ? w.v[l] : 1,
				     of_j = weighted ? w.v[j] : 1;

			dx.v[at] = l == 1 ? 0 : up * ((1 - e) * mine * (p - (j == l)) +
						      e / (double)c * (all * p - of_j));
		}
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("smoothed", k, (struct arg[]){ x, labels, w }, 3, (struct arg[]){ y, lp }, 2, close_tol(t) * 4,
		  NULL, NULL);
	d.backward = true;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("smoothed, gradient", k, (struct arg[]){ dy, lp, labels, w }, 4, &dx, 1, close_tol(t) * 4,
		  NULL, NULL);
	free(x.v), free(lp.v), free(dx.v), free(labels.v), free(w.v), free(y.v), free(dy.v);
}

/* One part of the classes, from class `first` on: its stats, and its gradient from any gradient of them. */
static void one_part(enum dlb_dtype t, int64_t n, int64_t c, int64_t inner, int64_t first,
		     const struct arg *labels)
{
	struct arg x = draw(desc(t, 0, 3, DIMS(n, c, inner))), up = draw(desc(t, 0, 3, DIMS(n, 3, inner))),
		   stats = { up.d, zeros(n * 3 * inner) }, dx = { x.d, zeros(n * c * inner) };
	struct dlb_loss_desc d = { .stage = DLB_LOSS_PART,
				   .first = first,
				   .dtype = t,
				   .label = labels->d.dtype,
				   .softmax = true,
				   .n = n,
				   .classes = c,
				   .inner = inner };
	struct dlb_kernel *k;

	for (int64_t i = 0; i < n * inner; i++) {
		const int64_t base = i / inner * c * inner + i % inner,
			      at = i / inner * 3 * inner + i % inner, l = (int64_t)labels->v[i] - first;
		int64_t largest = 0;

		for (int64_t j = 0; j < c; j++)
			largest = x.v[base + j * inner] > x.v[base + largest * inner] ? j : largest;
		stats.v[at] = x.v[base + largest * inner];
		for (int64_t j = 0; j < c; j++)
			stats.v[at + inner] += exp(x.v[base + j * inner] - stats.v[at]);
		stats.v[at + inner] = rounded(t, stats.v[at + inner]);
		stats.v[at + 2 * inner] = l >= 0 && l < c ? x.v[base + l * inner] : 0;
		if (i % 3 == 0)		/* no gradient: zeros */
			up.v[at] = up.v[at + inner] = up.v[at + 2 * inner] = 0;
		for (int64_t j = 0; j < c; j++)
			dx.v[base + j * inner] = up.v[at + inner] * exp(x.v[base + j * inner] - stats.v[at]) +
				(j == l ? up.v[at + 2 * inner] : 0) +
				(j == largest ? up.v[at] - up.v[at + inner] * stats.v[at + inner] : 0);
	}
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("part", k, (struct arg[]){ x, *labels }, 2, &stats, 1, close_tol(t) * 4, NULL, NULL);
	d.backward = true;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("part, gradient", k, (struct arg[]){ up, x, *labels, stats }, 4, &dx, 1, close_tol(t) * 4,
		  NULL, NULL);
	free(x.v), free(up.v), free(stats.v), free(dx.v);
}

/* Joining of parts that are given by their stats. */
static void one_join(enum dlb_dtype t, enum dlb_reduction red, int64_t n, int64_t inner,
		     const struct arg *labels, int64_t classes)
{
	enum { PARTS = 3 };
	const struct dlb_desc ds = desc(t, 0, 3, DIMS(n, 3, inner));
	struct arg in[1 + PARTS] = { *labels },
			  y = { red == DLB_REDUCE_NONE ? labels->d : desc(t, 0, 0, NULL), zeros(n * inner) };
	struct arg norm = { desc(t, 0, 3, DIMS(n, 2, inner)), zeros(n * 2 * inner) }, up,
		   dstats = { ds, NULL };
	struct dlb_loss_desc d = { .stage = DLB_LOSS_JOIN,
				   .n_parts = PARTS,
				   .dtype = t,
				   .label = labels->d.dtype,
				   .softmax = true,
				   .has_ignore = true,
				   .ignore = 2,
				   .reduction = red,
				   .n = n,
				   .classes = classes,
				   .inner = inner };
	double sum = 0, weight = 0;
	struct dlb_kernel *k;

	y.d.dtype = t;
	up = draw(y.d);
	for (int p = 1; p <= PARTS; p++) {
		in[p] = draw(ds);
		for (int64_t i = 0; i < n * inner; i++) {	/* sums of exponentials are at least 1 */
			double *one = &in[p].v[(i / inner * 3 + 1) * inner + i % inner];

			*one = rounded(t, 1 + fabs(*one));
		}
	}
	for (int64_t i = 0; i < n * inner; i++) {
		const int64_t at = i / inner * 3 * inner + i % inner, to = i / inner * 2 * inner + i % inner;
		double m = -INFINITY, all = 0, score = 0, loss;

		for (int p = 1; p <= PARTS; p++)
			m = fmax(m, in[p].v[at]);
		for (int p = 1; p <= PARTS; p++) {
			all += in[p].v[at + inner] * exp(in[p].v[at] - m);
			score += in[p].v[at + 2 * inner];
		}
		norm.v[to] = m;
		norm.v[to + inner] = rounded(t, log(all));
		loss = labels->v[i] == 2 ? 0 : m + log(all) - score;
		sum += loss;
		weight += labels->v[i] != 2;
		if (red == DLB_REDUCE_NONE)
			y.v[i] = loss;
	}
	if (red != DLB_REDUCE_NONE)
		y.v[0] = red == DLB_REDUCE_SUM ? sum : weight == 0 ? 0 : sum / weight;
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("join", k, in, 1 + PARTS, (struct arg[]){ y, norm }, 2, close_tol(t) * 4, NULL, NULL);
	MUST(be.ops->loss(&be, &d, &k, &err_));
	check_run("join", k, in, 1 + PARTS, (struct arg[]){ y, absent() }, 2, close_tol(t) * 4, NULL, NULL);
	d.backward = true;
	for (int p = 1; p <= PARTS; p++) {
		dstats.v = zeros(n * 3 * inner);
		for (int64_t i = 0; i < n * inner; i++) {
			const int64_t at = i / inner * 3 * inner + i % inner,
				      to = i / inner * 2 * inner + i % inner;
			const double g = labels->v[i] == 2 ? 0 : up.v[red == DLB_REDUCE_NONE ? i : 0] /
								 (red == DLB_REDUCE_MEAN ? weight : 1);

			dstats.v[at + inner] = g * exp(in[p].v[at] - norm.v[to] - norm.v[to + inner]);
			dstats.v[at] = dstats.v[at + inner] * in[p].v[at + inner];
			dstats.v[at + 2 * inner] = -g;
		}
		MUST(be.ops->loss(&be, &d, &k, &err_));
		check_run("join, gradient", k, (struct arg[]){ up, *labels, norm, in[p] }, 4, &dstats, 1,
			  close_tol(t) * 4, NULL, NULL);
		free(dstats.v);
	}
	free(y.v), free(norm.v), free(up.v);
	release(in + 1, PARTS);
}

static void split_losses(enum dlb_dtype t, int64_t n, int64_t classes, int64_t inner)
{
	struct arg labels = { desc(DLB_I64, 0, 2, DIMS(n, inner)), zeros(n * inner) };

	for (int64_t i = 0; i < n * inner; i++)
		labels.v[i] = (double)dlb_rng_below(&rng, (uint64_t)classes);
	one_part(t, n, classes / 3, inner, 0, &labels);
	one_part(t, n, classes - classes / 3, inner, classes / 3, &labels);
	for (int red = 0; red < 3; red++)
		one_join(t, red, n, inner, &labels, classes);
	release(&labels, 1);
}

static void softmaxes_and_losses(void)
{
	for (int t = DLB_F32; t <= DLB_F64; t++) {
		for (int l = 0; l < 2; l++) {
			static const int64_t shapes[][3] = { { 5, 10, 1 }, { 3, 1, 1 },   { 2, 100, 1 },
							     { 4, 7, 5 },  { 1, 33, 40 }, { 3, 16, 1 },
							     { 2, 1, 3 } };

			for (int i = 0; i < DLB_LEN(shapes); i++)
				one_softmax(t, l, shapes[i][0], shapes[i][1], shapes[i][2], i % 2 ? 1 : 60);
			for (int i = 0; i < 4; i++) /* rows of whole runs, and longer */
				one_softmax(t, l, 3, (const int64_t[]){ 64, 200, 1000, 1500 }[i], 1, 10);
			one_softmax(t, l, 2, 300, 3, 10);
		}
		for (int red = 0; red < 3; red++)
			for (int weighted = 0; weighted < 2; weighted++) {
				one_smoothed(t, weighted, red, 7, 5, 1);
				one_smoothed(t, weighted, red, 3, 50, 2);
				one_smoothed(t, weighted, red, 2, 6, 40);
			}
		split_losses(t, 9, 7, 1);
		split_losses(t, 4, 150, 1);
		split_losses(t, 2, 9, 35);
		split_losses(t, 3, 4000, 2);
		for (int flags = 0; flags < 16; flags++)
			for (int red = 0; red < 3; red++) {
				enum dlb_dtype label = flags & 1 ? DLB_I32 : DLB_I64;

				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 6, 10, 1, 0);
				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 3, 5, 12, 0);
				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 4, 40, 1, 0);
				one_loss(t, label, flags & 2, flags & 4, flags & 8, red, 3, 5, 2, 1);
				if (flags & 8)
					one_loss(t, label, flags & 2, flags & 4, true, red, 3, 5, 1, 2);
			}
	}
}

int main(void)
{
	begin_tests(20261121);
	/* every level of the instruction set that this machine has */
	for (int i = 0; use_level(i); i++) {
		softmaxes_and_losses();
	}
	be.ops->close(&be);
	printf("%ld softmaxes and losses agree with double\n", n_checks);
	return 0;
}
