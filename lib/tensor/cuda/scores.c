/* Attention by products (cuBLAS) where positions alone decide which keys a query sees. For some samples at a
 * time, it computes scores in scratch, their softmax or its gradient (scores.cu), and products with the
 * results. Without tensor cores this is faster than our own tiles (attention.cu), which do all other cases:
 * masks, lengths, softcap, outputs of scores, keys and values that serve several heads. */
#include <stdlib.h>

#include "tensor/cuda/cuda.h"
#include "tensor/cuda/scores.h"
#include "util/mem.h"

enum { SCORES_BYTES = 512 << 20 }; /* most bytes of scores at a time, if those of one sample fit */
enum { SCORES, DP, N_PLACES }; /* arrays in scratch; behind them is the products' own scratch */
enum { QK, PV, DY_V, G_K, G_Q, P_DY, N_PRODUCTS };

struct scores_kernel {
	struct dlb_kernel k, *tiles; /* tiles: runs if there are masks, lengths or outputs of scores */
	struct cuda *c;
	struct dlb_attention_desc d;
	struct dlb_kernel *product[N_PRODUCTS]; /* NULL: not in this direction */
	cudaKernel_t f;
	struct cuda_scores a;
	int64_t samples; /* at a time; divides the batch */
	size_t bytes, at[N_PLACES + 1]; /* bytes of an element; offsets of the arrays in scratch */
};

static void multiply(const struct scores_kernel *s, int which, void *a, void *w, void *y, char *scratch)
{
	void *const in[2] = { a, w }, *const out[1] = { y };
	struct dlb_kernel *k = s->product[which];

	k->run(k, &(struct dlb_run){ .in = in, .out = out, .scratch = scratch + s->at[N_PLACES] });
}

/* Operand p from sample `first` on. */
static void *from(const struct scores_kernel *s, void *p, int64_t stride, int64_t first)
{
	return p ? (char *)p + (size_t)(first * stride) * s->bytes : NULL;
}

static void launch(const struct scores_kernel *s, void *const in[3], void *const out[2])
{
	struct cuda_scores a = s->a;

	for (int i = 0; i < 3; i++)
		a.p.in[i] = in[i];
	for (int i = 0; i < 2; i++)
		a.p.out[i] = out[i];
	dlb_cuda_launch_rows(s->c, s->f, &a, (a.n * a.width + CUDA_THREADS - 1) / CUDA_THREADS);
}

static void run_forward(const struct scores_kernel *s, const struct dlb_run *r)
{
	const struct dlb_attention_desc *d = &s->d;
	const int64_t of_sample = d->heads * d->rows;

	for (int64_t i = 0; i < d->batch; i += s->samples) {
		void *scores = (char *)r->scratch + s->at[SCORES];
		void *saved = from(s, r->out[1], d->whole ? of_sample * d->keys : of_sample, i);
		void *p = d->whole && saved ? saved : scores;

		multiply(s, QK, from(s, r->in[0], d->q[0], i), from(s, r->in[1], d->k[0], i), scores,
			 r->scratch);
		launch(s, (void *const[]){ scores, NULL, NULL },
		       (void *const[]){ p, d->whole ? NULL : saved });
		multiply(s, PV, p, from(s, r->in[2], d->v[0], i), from(s, r->out[0], d->y[0], i), r->scratch);
	}
}

static void run_backward(const struct scores_kernel *s, const struct dlb_run *r)
{
	const struct dlb_attention_desc *d = &s->d;
	const int64_t of_sample = d->heads * d->rows;

	for (int64_t i = 0; i < d->batch; i += s->samples) {
		void *q = from(s, r->in[0], d->q[0], i), *key = from(s, r->in[1], d->k[0], i),
		     *dy = from(s, r->in[5], d->y[0], i);
		void *scores = (char *)r->scratch + s->at[SCORES], *dp = (char *)r->scratch + s->at[DP];
		void *saved = from(s, r->in[6], d->whole ? of_sample * d->keys : of_sample, i);
		void *p = d->whole ? saved : scores;

		if (!d->whole)
			multiply(s, QK, q, key, scores, r->scratch);
		multiply(s, DY_V, dy, from(s, r->in[2], d->v[0], i), dp, r->scratch);
		launch(s, (void *const[]){ dp, p, d->whole ? NULL : saved }, (void *const[]){ dp, p });
		if (r->out[0])
			multiply(s, G_K, dp, key, from(s, r->out[0], d->q[0], i), r->scratch);
		if (r->out[1])
			multiply(s, G_Q, dp, q, from(s, r->out[1], d->k[0], i), r->scratch);
		if (r->out[2])
			multiply(s, P_DY, p, dy, from(s, r->out[2], d->v[0], i), r->scratch);
	}
}

static void scores_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct scores_kernel *s = (const struct scores_kernel *)k;

	if (r->in[3] || r->in[4] || r->out[s->d.backward ? 3 : 2])
		s->tiles->run(s->tiles, r);
	else
		(s->d.backward ? run_backward : run_forward)(s, r);
}

static void scores_free(struct dlb_kernel *k)
{
	struct scores_kernel *s = (struct scores_kernel *)k;

	for (int i = 0; i < N_PRODUCTS; i++)
		dlb_kernel_free(s->product[i]);
	dlb_kernel_free(s->tiles);
	free(s);
}

/* An operand of the products y (m, n) = alpha a w, one for each head of some samples. stride: of {sample,
 * head, row, column}. */
struct side {
	int64_t stride[4];
};

static struct side rows_of(const int64_t s[3]) { return (struct side){ { s[0], s[1], s[2], 1 } }; }
static struct side columns_of(const int64_t s[3]) { return (struct side){ { s[0], s[1], 1, s[2] } }; }

/* One of the products. size: rows, columns, terms. */
struct product {
	int which;
	bool wanted;
	int64_t size[3];
	struct side a, w, y;
	double alpha;
};

static int prepare_product(struct dlb_backend *b, struct scores_kernel *s, const struct product *x,
			   struct dlb_error *err)
{
	struct dlb_product_desc p = { .dtype = s->d.dtype,
				      .n_dims = 4,
				      .k = x->size[2],
				      .alpha = x->alpha,
				      .dim = { s->samples, s->d.heads, x->size[0], x->size[1] } };
	int rc;

	for (int i = 0; i < 4; i++) {
		p.a[i] = x->a.stride[i];
		p.w[i] = x->w.stride[i];
		p.y[i] = x->y.stride[i];
	}
	rc = dlb_cuda_product(b, &p, &s->product[x->which], err);
	if (!rc && s->k.scratch_bytes < s->at[N_PLACES] + s->product[x->which]->scratch_bytes)
		s->k.scratch_bytes = s->at[N_PLACES] + s->product[x->which]->scratch_bytes;
	return rc;
}

static int prepare_products(struct dlb_backend *b, struct scores_kernel *s, struct dlb_error *err)
{
	const struct dlb_attention_desc *d = &s->d;
	const int64_t scores[3] = { d->heads * d->rows * d->keys, d->rows * d->keys, d->keys };
	const struct product all[] = {
		{ QK,
		  !d->backward || !d->whole,
		  { d->rows, d->keys, d->width },
		  rows_of(d->q),
		  columns_of(d->k),
		  rows_of(scores),
		  d->scale },
		{ PV,
		  !d->backward,
		  { d->rows, d->v_width, d->keys },
		  rows_of(scores),
		  rows_of(d->v),
		  rows_of(d->y),
		  1 },
		{ DY_V,
		  d->backward,
		  { d->rows, d->keys, d->v_width },
		  rows_of(d->y),
		  columns_of(d->v),
		  rows_of(scores),
		  1 },
		{ G_K,
		  d->backward,
		  { d->rows, d->width, d->keys },
		  rows_of(scores),
		  rows_of(d->k),
		  rows_of(d->q),
		  d->scale },
		{ G_Q,
		  d->backward,
		  { d->keys, d->width, d->rows },
		  columns_of(scores),
		  rows_of(d->q),
		  rows_of(d->k),
		  d->scale },
		{ P_DY,
		  d->backward,
		  { d->keys, d->v_width, d->rows },
		  columns_of(scores),
		  rows_of(d->y),
		  rows_of(d->v),
		  1 },
	};
	int rc = 0;

	for (int i = 0; i < DLB_LEN(all) && !rc; i++)
		if (all[i].wanted)
			rc = prepare_product(b, s, &all[i], err);
	return rc;
}

/* Samples at a time: the largest divisor of the batch for which the scores fit. */
static int64_t samples_of(const struct dlb_attention_desc *d, size_t of_sample)
{
	int64_t n = d->batch;

	while (n > 1 && (d->batch % n || (size_t)n * of_sample > SCORES_BYTES))
		n--;
	return n;
}

/* DLB_NO_KERNEL: products cannot compute it. */
static int prepare(struct dlb_backend *b, const struct dlb_attention_desc *d, struct scores_kernel *s,
		   struct dlb_error *err)
{
	const size_t of_sample = (size_t)(d->heads * d->rows * d->keys) * s->bytes;
	const int64_t run = CUDA_ALIGN / (int64_t)s->bytes;

	if ((d->dtype != DLB_F32 && d->dtype != DLB_F64) || d->softcap > 0 || d->heads != d->kv_heads ||
	    d->keys % run || !of_sample || !d->batch || !d->width || !d->v_width)
		return DLB_NO_KERNEL;
	s->samples = samples_of(d, of_sample);
	for (int i = 0; i < N_PLACES; i++)
		s->at[i + 1] = s->at[i] + (i == DP && !d->backward ?
						   0 :
						   ((size_t)s->samples * of_sample + 255) & ~(size_t)255);
	s->a = (struct cuda_scores){ .n = s->samples * d->heads * d->rows,
				     .rows = d->rows,
				     .keys = d->keys,
				     .past = d->past,
				     .left = d->left,
				     .right = d->right,
				     .causal = d->causal,
				     .width = dlb_cuda_row_threads(d->keys, d->dtype) };
	s->f = dlb_cuda_find_typed(s->c, d->backward ? "scores_grad" : "scores_softmax", d->dtype);
	s->k.scratch_bytes = s->at[N_PLACES] > s->tiles->scratch_bytes ? s->at[N_PLACES] :
									 s->tiles->scratch_bytes;
	return s->a.width && s->f ? prepare_products(b, s, err) : DLB_NO_KERNEL;
}

int dlb_cuda_attention_by_products(struct dlb_backend *b, const struct dlb_attention_desc *d,
				   struct dlb_kernel **k, struct dlb_error *err)
{
	struct cuda *c = cuda_of(b);
	struct dlb_kernel *tiles;
	struct scores_kernel *s;
	int rc;

	if (d->dtype == DLB_BF16 && !c->attention_checked && dlb_cuda_check_attention(b, err))
		return -1;
	c->attention_checked |= d->dtype == DLB_BF16;
	rc = dlb_cuda_attention(b, d, &tiles, err);
	if (rc)
		return rc;
	s = dlb_xcalloc(1, sizeof *s);
	s->c = c;
	s->d = *d;
	s->tiles = tiles;
	s->bytes = dlb_dtype_bytes(d->dtype);
	s->k = (struct dlb_kernel){ .run = scores_run, .free = scores_free, .impl = "cublas" };
	rc = prepare(b, d, s, err);
	*k = &s->k;
	if (rc == DLB_NO_KERNEL)
		*k = tiles;
	if (rc == DLB_NO_KERNEL)
		s->tiles = NULL;
	if (rc)
		scores_free(&s->k);
	return rc == DLB_NO_KERNEL ? 0 : rc;
}
