/* HannWindow, HammingWindow and BlackmanWindow (size), and MelWeightMatrix (bands, dft_length, sample_rate, lower and
 * upper edge in hertz): constant tables of spectrograms. */
#include "op/op_util.h"
#include <math.h>
#include <string.h>

static int infer_type(struct dlb_op_io *io, struct dlb_error *err)
{
	if (dlb_infer_typed(io, "output_datatype", false, err))
		return -1;
	if (!dlb_io_int(io, "output_datatype", 0))
		io->out[0].dtype = DLB_F32;
	return 0;
}

/* The constant scalar in input i, as a real. */
static int scalar(const struct dlb_op_io *io, int i, double *v, struct dlb_error *err)
{
	if (!io->value || !io->value[i] || dlb_desc_count(&io->in[i]) != 1)
		return dlb_op_fail(io, err, "input %d must be a constant scalar", i);
	*v = dlb_value_real(io->value[i], io->in[i].dtype, 0);
	return 0;
}

/* -- windows: a[0] - a[1] cos(2 pi i / n) + a[2] cos(4 pi i / n) -- */

struct window { const char *type; double a[3]; };
static const struct window windows[] = {
	{ "HannWindow", { 0.5, 0.5, 0 } },
	{ "HammingWindow", { 25.0 / 46, 21.0 / 46, 0 } },
	{ "BlackmanWindow", { 0.42, 0.5, 0.08 } },
};
struct sampled { const struct window *w; double n; };	/* n: the period */

static int window_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t size = 0;

	if (dlb_io_ints(io, 0, "size", &size, 1, err) < 0 || infer_type(io, err))
		return -1;
	if (size < 1 || size > INT32_MAX)
		return dlb_op_fail(io, err, "a window of %lld values", (long long)size);
	io->out[0] = dlb_desc_1d(io->out[0].dtype, size);
	return 0;
}

static double window_value(const void *ctx, int64_t i)
{
	const struct sampled *s = ctx;
	const double x = s->n > 0 ? 2 * DLB_PI * (double)i / s->n : 0, *a = s->w->a;

	return a[0] - a[1] * cos(x) + a[2] * cos(2 * x);
}

static int window_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const int64_t size = io->out[0].dim[0];
	struct sampled s = { windows, (double)(dlb_io_int(io, "periodic", 1) ? size : size - 1) };

	while (strcmp(s.w->type, io->cls->name))
		s.w++;
	return dlb_kernel_table(be, &io->out[0], window_value, &s, k, err);
}

/* -- MelWeightMatrix: triangles between neighbouring edges of bands, which are equally wide in mel -- */

struct mel { double bands, length, rate, low, high; };

static double mel_of(double hertz) { return 2595 * log10(1 + hertz / 700); }

static int read_mel(const struct dlb_op_io *io, struct mel *m, struct dlb_error *err)
{
	double *const into[] = { &m->bands, &m->length, &m->rate, &m->low, &m->high };

	for (int i = 0; i < 5; i++)
		if (scalar(io, i, into[i], err))
			return -1;
	if (!(m->bands >= 1 && m->bands <= 1 << 20 && m->length >= 1 && m->length <= 1 << 24 && m->rate >= 1 &&
	      m->low >= 0 && m->high > m->low && m->high <= m->rate))
		return dlb_op_fail(io, err, "%g bands from %g to %g Hz of a transform of %g values at %g Hz", m->bands,
				   m->low, m->high, m->length, m->rate);
	return 0;
}

/* The bin of edge e of the bands + 2 edges. ONNX divides the range by bands + 2, though the edges have only
 * bands + 1 intervals. */
static int64_t edge_bin(const struct mel *m, int64_t e)
{
	const double low = mel_of(m->low), step = (mel_of(m->high) - low) / (m->bands + 2),
		     hertz = 700 * (pow(10, (low + (double)e * step) / 2595) - 1);

	return (int64_t)floor((m->length + 1) * hertz / m->rate);
}

static int mel_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct mel m;

	if (read_mel(io, &m, err) || infer_type(io, err))
		return -1;
	io->out[0] = dlb_desc_make(io->out[0].dtype, 2,
				   (int64_t[]){ (int64_t)m.length / 2 + 1, (int64_t)m.bands });
	return dlb_checked_count(io->out[0].dim, 2) < 0 ? dlb_op_fail(io, err, "the output is too large") : 0;
}

static double mel_value(const void *ctx, int64_t i)
{
	const struct mel *m = ctx;
	const int64_t bands = (int64_t)m->bands, bin = i / bands, band = i % bands, left = edge_bin(m, band),
		      centre = edge_bin(m, band + 1), right = edge_bin(m, band + 2);

	if (bin == centre)
		return 1;
	if (bin > centre)
		return bin < right ? (double)(right - bin) / (double)(right - centre) : 0;
	return bin > left ? (double)(bin - left) / (double)(centre - left) : 0;
}

static int mel_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	struct mel m;

	return read_mel(io, &m, err) ? -1 : dlb_kernel_table(be, &io->out[0], mel_value, &m, k, err);
}

#define MAKER(n, count, inf, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { count, count }, .n_out = { 1, 1 }, \
		.work = "move", .infer = inf, .flops = dlb_no_flops, .kernel = kern };
MAKER(HannWindow, 1, window_infer, window_kernel)
MAKER(HammingWindow, 1, window_infer, window_kernel)
MAKER(BlackmanWindow, 1, window_infer, window_kernel)
MAKER(MelWeightMatrix, 5, mel_infer, mel_kernel)
