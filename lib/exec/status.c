/* The progress line. See status.h. */
#define _DEFAULT_SOURCE			/* struct winsize */
#include "exec/status.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/escape.h"

enum { COLUMNS = 80, BAR = 20 };
#define LOG_EVERY_S 5.0			/* seconds from one line of a log to the next */
#define FIRST_AFTER_S 1.0		/* seconds; without -v, shorter runs show no line */

static void add(char text[DLB_STATUS_BYTES], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(char text[DLB_STATUS_BYTES], const char *fmt, ...)
{
	const size_t n = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + n, DLB_STATUS_BYTES - n, fmt, ap);
	va_end(ap);
}

const char *dlb_status_seconds(double s, char buf[32])
{
	if (s < 1e-3)
		snprintf(buf, 32, "%.3g us", s * 1e6);
	else if (s < 1.0)
		snprintf(buf, 32, "%.3g ms", s * 1e3);
	else
		snprintf(buf, 32, "%.3g s", s);
	return buf;
}

/* 0:07, 12:34, 1:02:03, 3 d 4:05:06 */
static void add_left(char text[DLB_STATUS_BYTES], double s)
{
	const long long t = (long long)(s + 0.5), day = 24 * 3600;

	if (!(s >= 0.0) || s > 1e12)
		return;
	add(text, ", ");
	if (t >= day)
		add(text, "%lld d ", t / day);
	if (t >= 3600)
		add(text, "%lld:%02lld:%02lld left", t % day / 3600, t % 3600 / 60, t % 60);
	else
		add(text, "%lld:%02lld left", t / 60, t % 60);
}

void dlb_status_text(const struct dlb_status *s, bool brief, char text[DLB_STATUS_BYTES])
{
	char a[32], b[32];

	snprintf(text, DLB_STATUS_BYTES, "step %lld", (long long)s->step);
	if (s->last_step > 0)
		add(text, " of %lld", (long long)s->last_step);
	if (!isnan(s->loss))
		add(text, ", loss %.4g", s->loss);
	if (!brief && s->samples_per_s > 0.0)
		add(text, ", %.*f samples/s", s->samples_per_s < 100.0 ? 1 : 0, s->samples_per_s);
	if (!brief && s->step_s > 0.0) {
		add(text, ", %s a step", dlb_status_seconds(s->step_s, a));
		if (s->predicted_s > 0.0)
			add(text, " (predicted %s)", dlb_status_seconds(s->predicted_s, b));
	}
	add_left(text, s->left_s);
	if (!brief && s->waits >= 0)
		add(text, ", node %d waits %s for node %d", s->waits, dlb_status_seconds(s->wait_s, a),
		    s->waited_for);
	if (s->event && *s->event) {
		const size_t n = strlen(text);

		add(text, "; ");
		dlb_escape(s->event, text + n + 2, n + 2 < DLB_STATUS_BYTES ? DLB_STATUS_BYTES - n - 2 : 0);
	}
}

void dlb_status_line_open(struct dlb_status_line *l, FILE *f, const char *tool, bool quiet, bool verbose)
{
	const bool terminal = isatty(fileno(f));

	*l = (struct dlb_status_line){ .f = f,
				       .tool = tool,
				       .off = quiet || (!terminal && !verbose),
				       .terminal = terminal,
				       .verbose = verbose,
				       .columns = COLUMNS,
				       .start_s = dlb_clock_s(),
				       .last_s = -HUGE_VAL };
}

static int columns_of(const struct dlb_status_line *l)
{
	struct winsize w;

	return ioctl(fileno(l->f), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : COLUMNS;
}

/* "[########............] 40 % " */
static int bar(const struct dlb_status_told *told, char out[BAR + 16])
{
	const double part = told->done < told->total ? (double)told->done / (double)told->total : 1.0;
	const int n = (int)(part * BAR);
	char *p = out;

	*p++ = '[';
	for (int i = 0; i < BAR; i++)
		*p++ = i < n ? '#' : '.';
	return (int)(p - out) + snprintf(p, 15, "] %3d %% ", (int)(part * 100.0));
}

/* Bytes of text that fit in `columns` columns, one per character. */
static int fitting(const char *text, int columns)
{
	int i = 0;

	for (; text[i] && columns >= 0; i++)
		if (((unsigned char)text[i] & 0xc0) != 0x80 && columns-- == 0)
			break;
	return i;
}

static void rewrite(struct dlb_status_line *l, const struct dlb_status_told *told)
{
	const int columns = columns_of(l) - 1;		/* a character in the last column would wrap */
	char front[BAR + 16] = "";
	int n = 0;

	if (told->total > 0 && columns > 2 * BAR)
		n = bar(told, front);
	fprintf(l->f, "\r%.*s%.*s\033[K", n, front, fitting(told->text, columns - n), told->text);
	fflush(l->f);
	l->shown = true;
}

void dlb_status_line_clear(struct dlb_status_line *l)
{
	if (l->shown)
		fputs("\r\033[K", l->f);
	l->shown = false;
}

void dlb_status_line_show(struct dlb_status_line *l, const struct dlb_status_told *told)
{
	const double now_s = dlb_clock_s();

	if (l->off)
		return;
	if (l->verbose && (told->permanent || (!l->terminal && now_s - l->last_s >= LOG_EVERY_S))) {
		dlb_status_line_clear(l);
		fprintf(l->f, "%s: %s\n", l->tool, told->text);
		fflush(l->f);
		l->last_s = now_s;
	} else if (l->terminal && !told->permanent && (l->verbose || now_s - l->start_s >= FIRST_AFTER_S)) {
		rewrite(l, told);
	}
}
