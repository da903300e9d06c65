/* Formats numbers with units for people: three significant digits and a suitable unit. */
#include "view/view.h"
#include <math.h>

static const char *scaled(double x, const char *const *unit, const double *size, int n, char *buf, size_t len)
{
	int i = 0;

	if (!isfinite(x)) {
		snprintf(buf, len, "-");
		return buf;
	}
	while (i < n - 1 && fabs(x) < size[i])
		i++;
	snprintf(buf, len, "%.3g %s", x / size[i], unit[i]);
	return buf;
}

const char *dlb_view_seconds(double s, char *buf, size_t n)
{
	static const char *const unit[] = { "s", "ms", "us" };
	static const double size[] = { 1, 1e-3, 1e-6 };

	return scaled(s, unit, size, 3, buf, n);
}

const char *dlb_view_bytes(double bytes, char *buf, size_t n)
{
	static const char *const unit[] = { "TB", "GB", "MB", "kB", "B" };
	static const double size[] = { 1e12, 1e9, 1e6, 1e3, 1 };

	return scaled(bytes, unit, size, 5, buf, n);
}

const char *dlb_view_flop(double flop, char *buf, size_t n)
{
	static const char *const unit[] = { "TFLOP", "GFLOP", "MFLOP", "kFLOP", "FLOP" };
	static const double size[] = { 1e12, 1e9, 1e6, 1e3, 1 };

	return scaled(flop, unit, size, 5, buf, n);
}

const char *dlb_view_phase_name(const struct dlb_view *v, int op)
{
	static const char *const name[] = { "forward", "backward", "update" };

	return v->has_graph && op >= 0 && op < v->graph.n_ops ? name[v->graph.op[op].phase] : "op";
}
