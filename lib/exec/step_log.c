/* The log of steps. See step_log.h. Numbers written at every step are formatted by hand: printf takes half a
 * microsecond for each. */
#include "exec/step_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/timeline.h"
#include "util/lines.h"
#include "util/mem.h"
#include "util/output.h"

/* most bytes without nodes, and of a node; a number has at most 24 */
enum { ROW_BYTES = 1024, NODE_BYTES = 400 };

struct dlb_step_log {
	struct dlb_output file;
	struct dlb_lines *lines;
	char *text;
	size_t n;
};

/* ---- set-up ---- */

/* Counts the lines of steps up to `step` in the existing file. */
static int lines_up_to(const char *path, int64_t step, int64_t *lines, struct dlb_error *err)
{
	FILE *f = step > 0 ? fopen(path, "r") : NULL;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int64_t at;
	int rc = 0;

	*lines = 0;
	while (f && !rc && (n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
		if (sscanf(line, "{\"step\":%" SCNd64 ",", &at) != 1)
			rc = dlb_refuse(err, path, "give another name",
					"line %" PRId64 " is none of a log of steps", *lines + 1);
		else if (at > step)
			break;
		else
			++*lines;
	}
	free(line);
	if (f)
		fclose(f);
	return rc;
}

static int open_file(struct dlb_step_log *l, const char *path, int64_t step, struct dlb_error *err)
{
	int64_t lines;

	/* refuses anything but a file or device, before it is read */
	if (dlb_output_open(&l->file, path, err))
		return -1;
	if (l->file.aside &&
	    (lines_up_to(path, step, &lines, err) || dlb_output_keep_lines(&l->file, lines, err)))
		return -1;
	if (dlb_output_place(&l->file, err) || dlb_output_flush(&l->file, err))
		return -1;
	/* from here on nothing is written through the stream */
	l->lines = dlb_lines_new(fileno(l->file.f), l->file.path);
	return 0;
}

int dlb_step_log_open(struct dlb_step_log **out, const char *path, int64_t step, int n_nodes,
		      struct dlb_error *err)
{
	struct dlb_step_log *l = dlb_xcalloc(1, sizeof *l);

	l->text = dlb_xmalloc(ROW_BYTES + (size_t)n_nodes * NODE_BYTES);
	if (open_file(l, path, step, err)) {
		dlb_step_log_close(l, 0);
		return -1;
	}
	*out = l;
	return 0;
}

void dlb_step_log_close(struct dlb_step_log *l, double wait_s)
{
	if (!l)
		return;
	dlb_lines_free(l->lines, wait_s);
	dlb_output_abort(&l->file);			/* the old file stays */
	free(l->text);
	free(l);
}

/* ---- a row ---- */

static void put(struct dlb_step_log *l, const char *s)
{
	const size_t n = strlen(s);

	memcpy(l->text + l->n, s, n);
	l->n += n;
}

/* Writes x with at least `digits` digits. */
static void put_whole(struct dlb_step_log *l, uint64_t x, int digits)
{
	char digit[24];
	int n = 0;

	for (; x || n < digits; x /= 10)
		digit[n++] = (char)('0' + x % 10);
	while (n > 0)
		l->text[l->n++] = digit[--n];
}

/* Seconds to the nanosecond, bytes to the byte: the resolution of the measurements. */
static void put_number(struct dlb_step_log *l, const char *name, double x)
{
	const double whole = floor(x);
	uint64_t ns;

	put(l, name);
	if (!(x >= 0.0) || x >= 1e15) {
		l->n += (size_t)sprintf(l->text + l->n, "%.9g", isfinite(x) ? x : 0.0);
		return;
	}
	ns = (uint64_t)((x - whole) * 1e9 + 0.5);
	put_whole(l, (uint64_t)whole + ns / 1000000000, 1);
	ns %= 1000000000;
	if (!ns)
		return;
	put(l, ".");
	put_whole(l, ns, 9);
	while (l->text[l->n - 1] == '0')
		l->n--;
}

/* With all digits; null for a number that is not finite, which JSON cannot hold. */
static void put_exact(struct dlb_step_log *l, const char *name, double x)
{
	put(l, name);
	if (isfinite(x))
		l->n += (size_t)sprintf(l->text + l->n, "%.17g", x);
	else
		put(l, "null");
}

static void put_node(struct dlb_step_log *l, const struct dlb_node_step *n)
{
	static const char *const waits[DLB_N_WAITS] = { ",\"waits\":{\"starved\":", ",\"backpressure\":",
							",\"collective\":", ",\"structural\":" };

	put_number(l, "{\"busy_s\":", n->busy_s);
	for (int i = 0; i < DLB_N_WAITS; i++)
		put_number(l, waits[i], n->waits_s[i]);
	put(l, "}");
	if (n->waited_for > 0.0) {
		put_number(l, ",\"waited_for\":", n->waited_for - 1.0);
		put_number(l, ",\"waited_for_s\":", n->waited_for_s);
	}
	put_number(l, ",\"data_wait_s\":", n->data_wait_s);
	put_number(l, ",\"bytes_sent\":", n->bytes_sent);
	put_number(l, ",\"sum_bytes\":", n->sum_bytes);
	put(l, "}");
}

static void put_row(struct dlb_step_log *l, const struct dlb_step_row *r)
{
	double bytes = 0.0;

	l->n = 0;
	put(l, "{\"step\":");
	put_whole(l, (uint64_t)r->step, 1);
	put(l, ",\"epoch\":");
	put_whole(l, (uint64_t)r->epoch, 1);
	if (r->simulated)
		put(l, ",\"simulated\":true");
	if (r->has_loss)
		put_exact(l, ",\"loss\":", r->loss);
	if (!r->simulated)
		put_exact(l, ",\"lr\":", r->rate);
	put_number(l, ",\"wall_s\":", r->wall_s);
	put_number(l, ",\"step_s\":", r->step_s);
	for (int i = 0; i < r->n_nodes; i++)
		bytes += r->node[i].bytes_sent;
	put_number(l, ",\"bytes\":", bytes);
	put(l, ",\"nodes\":[");
	for (int i = 0; i < r->n_nodes; i++) {
		if (i)
			put(l, ",");
		put_node(l, &r->node[i]);
	}
	put(l, "]");
	if (!isnan(r->eval_s)) {
		put_exact(l, ",\"test_loss\":", r->test_loss);
		if (!isnan(r->accuracy))
			put_exact(l, ",\"accuracy\":", r->accuracy);
		put_number(l, ",\"eval_s\":", r->eval_s);
	}
	if (r->decision) {
		put(l, ",\"decision\":\"");
		put(l, r->decision);
		put(l, "\"");
	}
	put(l, "}\n");
}

void dlb_step_log_write(struct dlb_step_log *l, const struct dlb_step_row *row)
{
	put_row(l, row);
	dlb_lines_put(l->lines, l->text, l->n);
}

int dlb_step_log_wrong(const struct dlb_step_log *l, struct dlb_error *err)
{
	return dlb_lines_failed(l->lines, err);
}

int dlb_step_log_drain(struct dlb_step_log *l, struct dlb_error *err)
{
	return dlb_lines_drain(l->lines, err);
}
