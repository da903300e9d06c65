/* See step_log.h. Numbers are put into text by hand where many are wanted at every step: printf takes half a microsecond for
 * each. */
#include "exec/step_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/mem.h"

enum { ROW_BYTES = 512, NODE_BYTES = 400 };	/* at most; numbers have at most 24 */

struct dlb_step_log {
	int fd;
	bool regular;				/* can be cut */
	off_t end;				/* of what is whole */
	char *path, *text;
	size_t n;
};

/* ---- opening ---- */

static int cannot(const char *what, const char *path, struct dlb_error *err)
{
	return dlb_fail(err, NULL, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* Where the lines of steps up to `step` end. */
static int find_end(FILE *f, const char *path, int64_t step, off_t *end, struct dlb_error *err)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int64_t number = 0, at;
	int rc = 0;

	*end = 0;
	while (!rc && (n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
		number++;
		if (sscanf(line, "{\"step\":%" SCNd64 ",", &at) != 1)
			rc = dlb_refuse(err, path, "give another name", "line %" PRId64 " is none of a log of steps", number);
		else if (at > step)
			break;
		else
			*end += n;
	}
	free(line);
	return rc;
}

static int cut_back(struct dlb_step_log *l, int64_t step, struct dlb_error *err)
{
	int copy, rc = 0;
	FILE *f;

	if (step > 0) {
		copy = dup(l->fd);
		f = copy < 0 ? NULL : fdopen(copy, "r");
		if (!f)
			return cannot("read", l->path, err);
		rc = find_end(f, l->path, step, &l->end, err);
		fclose(f);
	}
	if (!rc && (ftruncate(l->fd, l->end) || lseek(l->fd, l->end, SEEK_SET) < 0))
		rc = cannot("cut back", l->path, err);
	return rc;
}

/* A device is written to; a FIFO or socket is not: nobody knows whether there is a reader. */
static int open_file(struct dlb_step_log *l, struct dlb_error *err)
{
	struct stat st;

	l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
	if (l->fd < 0)
		return cannot("open", l->path, err);
	if (fstat(l->fd, &st))
		return cannot("read", l->path, err);
	l->regular = S_ISREG(st.st_mode);
	if (!l->regular && !S_ISCHR(st.st_mode))
		return dlb_refuse(err, NULL, "give a file, and follow it with tail -f", "cannot log to '%s': it is no file", l->path);
	return 0;
}

int dlb_step_log_open(struct dlb_step_log **out, const char *path, int64_t step, int n_nodes, struct dlb_error *err)
{
	struct dlb_step_log *l = dlb_xcalloc(1, sizeof *l);

	l->path = dlb_xstrdup(path);
	l->text = dlb_xmalloc(ROW_BYTES + (size_t)n_nodes * NODE_BYTES);
	if (open_file(l, err) || (l->regular && cut_back(l, step, err))) {
		dlb_step_log_close(l);
		return -1;
	}
	*out = l;
	return 0;
}

void dlb_step_log_close(struct dlb_step_log *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	free(l->path);
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

/* At least `digits` of them. */
static void put_whole(struct dlb_step_log *l, uint64_t x, int digits)
{
	char digit[24];
	int n = 0;

	for (; x || n < digits; x /= 10)
		digit[n++] = (char)('0' + x % 10);
	while (n > 0)
		l->text[l->n++] = digit[--n];
}

/* Seconds to the nanosecond, bytes to the byte: what a clock and a count have. */
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

/* With all its digits; JSON has no word for what is not finite. */
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
	static const char *const waits[DLB_N_WAITS] = { ",\"waits\":{\"starved\":", ",\"backpressure\":", ",\"collective\":", ",\"structural\":" };

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
		put_exact(l, ",\"accuracy\":", r->accuracy);
		put_number(l, ",\"eval_s\":", r->eval_s);
	}
	put(l, "}\n");
}

int dlb_step_log_write(struct dlb_step_log *l, const struct dlb_step_row *row, struct dlb_error *err)
{
	size_t at = 0;

	put_row(l, row);
	while (at < l->n) {
		const ssize_t n = write(l->fd, l->text + at, l->n - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			cannot("write", l->path, err);
			if (l->regular && ftruncate(l->fd, l->end))
				dlb_hint(err, "its last line is not whole");
			return -1;
		}
		at += (size_t)n;
	}
	l->end += (off_t)l->n;
	return 0;
}
