/* Names, messages and options, word for word; the nearest name and quantiles against plain definitions; known
 * answers of the sequential generator. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "util/cli.h"
#include "util/error.h"
#include "util/rng.h"
#include "util/stats.h"
#include "check.h"

static int below(struct dlb_rng *r, int n) { return (int)dlb_rng_below(r, (uint64_t)n); }

/* ---- the nearest name ---- */

/* Least number of inserted, dropped, replaced or swapped letters, in a table of all beginnings. */
static int plain_distance(const char *a, const char *b)
{
	enum { MOST = 72 };
	static int d[MOST][MOST];
	const int n = (int)strlen(a), m = (int)strlen(b);

	for (int i = 0; i <= n; i++)
		for (int j = 0; j <= m; j++) {
			const bool same = i && j && tolower(a[i - 1]) == tolower(b[j - 1]);

			d[i][j] = !i ? j : !j ? i : d[i - 1][j - 1] + !same;
			if (i && j && d[i - 1][j] + 1 < d[i][j])
				d[i][j] = d[i - 1][j] + 1;
			if (i && j && d[i][j - 1] + 1 < d[i][j])
				d[i][j] = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && tolower(a[i - 1]) == tolower(b[j - 2]) &&
			    tolower(a[i - 2]) == tolower(b[j - 1]) && d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	return d[n][m];
}

/* Up to one mistake in names of two letters, two in names of five, then one and a third of the length; not
 * all letters. The first of the nearest. */
static const char *plain_nearest(const char *name, const char *const *candidates, int n)
{
	const int length = (int)strlen(name), most = length < 3 ? 1 : length < 6 ? 2 : 1 + length / 3;
	const char *found = NULL;
	int best = most + 1;

	for (int i = 0; i < n; i++) {
		const int m = candidates[i] ? (int)strlen(candidates[i]) : 99,
			  longer = m > length ? m : length;

		if (length > 63 || m > 63)
			continue;
		const int d = plain_distance(name, candidates[i]);
		if (d < best && d < longer) {
			best = d;
			found = candidates[i];
		}
	}
	return found;
}

static void draw_word(struct dlb_rng *r, char *word, int longest)
{
	int n = below(r, longest + 1);

	word[n] = '\0';
	while (n--)
		word[n] = "abcAB."[below(r, 6)];
}

static void test_nearest(void)
{
	char word[5][80];
	struct dlb_rng r;
	int found = 0;

	dlb_rng_init(&r, 8);
	for (int round = 0; round < 20000; round++) {
		const int longest = round % 50 ? 8 : 65;
		const char *candidates[4];

		draw_word(&r, word[0], longest);
		for (int i = 0; i < 4; i++) {
			draw_word(&r, word[i + 1], longest);
			/* a few letters changed, so that the longer ones are near too */
			if (below(&r, 2)) {
				memcpy(word[i + 1], word[0], sizeof word[0]);
				for (int k = below(&r, 4 + (int)strlen(word[0]) / 3); k && *word[0]; k--)
					word[i + 1][below(&r, (int)strlen(word[0]))] = "abcAB."[below(&r, 6)];
			}
			candidates[i] = below(&r, 9) ? word[i + 1] : NULL;
		}
		const char *want = plain_nearest(word[0], candidates, 4);
		const char *got = dlb_nearest(word[0], candidates, 4);
		if (got != want)
			fprintf(stderr, "'%s': '%s', '%s'\n", word[0], got ? got : "-", want ? want : "-");
		assert(IS(got, ==, want));
		found += want != NULL;
	}
	assert(IS(found, >, 5000) && IS(found, <, 19000));
}

static void test_hints(void)
{
	static const char *const names[] = { "even", "greedy" };
	struct dlb_error err;

	assert(IS(dlb_refuse(&err, "f:3", "cure it", "%s is bad", "x"), ==, -1) && SAME(err.where, "f:3") &&
	       SAME(err.what, "x is bad") && SAME(err.hint, "cure it") && IS(err.status, ==, 2));
	assert(IS(dlb_hint_nearest(&err, "evn", names, 2, "none"), ==, -1) &&
	       SAME(err.hint, "did you mean 'even'?"));
	assert(IS(dlb_hint_nearest(&err, "zzzz", names, 2, "there are two"), ==, -1) &&
	       SAME(err.hint, "there are two"));
	assert(IS(dlb_hint_nearest(&err, "zzzz", names, 2, NULL), ==, -1) && SAME(err.hint, "there are two"));
	assert(IS(dlb_refuse(NULL, NULL, "cure", "x"), ==, -1) && IS(dlb_fail_no(NULL, NULL, "x"), ==, -1) &&
	       IS(dlb_hint(NULL, "x"), ==, -1) && IS(dlb_error_at(NULL, "x"), ==, -1));
	assert(IS(dlb_error_status(NULL), ==, 2) && IS(dlb_error_status(&err), ==, 2));
	dlb_fail_no(&err, NULL, "no");
	assert(IS(dlb_error_status(&err), ==, 1) && SAME(err.hint, "") && SAME(err.where, ""));
	err.status = 0;
	assert(IS(dlb_error_status(&err), ==, 2));
}

/* ---- lines ---- */

static void test_lines(void)
{
	static const struct {
		const char *prefix, *where, *what, *hint;
		int rank;
		const char *line;
	} rows[] = {
		{ NULL, "", "x", "", -1, "t: x\n" },
		{ NULL, "", "x", "y", 0, "t[0]: x; y\n" },
		{ NULL, "/a", "", "", -1, "t: /a: failed\n" },
		{ "f", "", "x", "", -1, "t: f: x\n" },
		{ "f", "3:1", "x", "", 12, "t[12]: f:3:1: x\n" },
		{ "f", "/a\n", "x", "\t", -1, "t: f: /a\\n: x; \\t\n" },
	};

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_error err = { .status = 2 };
		char *text;
		size_t n;
		FILE *f = open_memstream(&text, &n);

		strcpy(err.where, rows[i].where);
		strcpy(err.what, rows[i].what);
		strcpy(err.hint, rows[i].hint);
		if (rows[i].prefix)
			dlb_error_at(&err, rows[i].prefix);
		dlb_error_print(f, "t", rows[i].rank, &err);
		fclose(f);
		assert(SAME(text, rows[i].line));
		free(text);
	}
}

/* ---- options ---- */

/* What `print` writes to stream number fd. Returns new. */
static char *printed(int fd, void (*print)(void *), void *ctx)
{
	FILE *file = tmpfile(), *stream = fd == 1 ? stdout : stderr;
	const int keep = dup(fd);
	char *text;

	assert(file && IS(keep, >=, 0));
	fflush(stream);
	assert(IS(dup2(fileno(file), fd), ==, fd));
	print(ctx);
	fflush(stream);
	assert(IS(dup2(keep, fd), ==, fd));
	close(keep);
	const long n = ftell(file) < 0 || fseek(file, 0, SEEK_END) ? -1 : ftell(file);
	assert(IS(n, >=, 0));
	text = calloc((size_t)n + 1, 1);
	rewind(file);
	assert(IS(fread(text, 1, (size_t)n, file), ==, n));
	fclose(file);
	return text;
}

struct given {
	struct dlb_cli *cli;
	char **argv;
	int argc, rc;
};

static void parse(void *ctx)
{
	struct given *g = ctx;

	for (g->argc = 0; g->argv[g->argc]; g->argc++)
		;
	g->rc = dlb_cli_parse(g->cli, g->argc, g->argv);
}

static void test_options(void)
{
	const char *name = "x";
	int64_t m = 1, most = 0;
	double lr = 0.5, free_real = 0;
	bool list = false;
	struct dlb_strlist slow = { 0 };
	const struct dlb_opt opts[] = {
		{ 'n', "name", DLB_OPT_STR, &name, "NAME", "a name", NULL, 0, 0 },
		{ 'm', "micro", DLB_OPT_INT, &m, "M", "a number", NULL, 1, 9 },
		{ 0, "lr", DLB_OPT_REAL, &lr, "X", "a rate", NULL, 0, 2.5 },
		{ 0, "shift", DLB_OPT_REAL, &free_real, "X", "any number", NULL, 0, 0 },
		{ 'l', "list", DLB_OPT_FLAG, &list, NULL, "a list", NULL, 0, 0 },
		{ 0, "slow", DLB_OPT_LIST, &slow, "NODE", "a node", NULL, 0, 0 },
		{ 'b', "most", DLB_OPT_BYTES, &most, "BYTES", "bytes", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "t",
			       .usage = "[FILE]",
			       .summary = "tests",
			       .opts = opts,
			       .n_opts = sizeof opts / sizeof *opts,
			       .max_operands = 2 };
	static const struct {
		char *argv[5];
		const char *what; /* NULL: accepted */
	} rows[] = {
		{ { "t", "-m1", "--micro=9", NULL }, NULL },
		{ { "t", "-m", "0", NULL }, "--micro must lie between 1 and 9, not 0" },
		{ { "t", "-m10", NULL }, "--micro must lie between 1 and 9, not 10" },
		{ { "t", "--micro", "5x", NULL }, "--micro wants an integer, not '5x'" },
		{ { "t", "--micro=", NULL }, "--micro wants an integer, not ''" },
		{ { "t", "--micro=9223372036854775808", NULL },
		  "--micro wants an integer, not '9223372036854775808'" },
		{ { "t", "--lr=0", "--lr", "2.5", NULL }, NULL },
		{ { "t", "--lr=2.6", NULL }, "--lr must lie between 0 and 2.5, not 2.6" },
		{ { "t", "--lr=-0.1", NULL }, "--lr must lie between 0 and 2.5, not -0.1" },
		{ { "t", "--lr=inf", NULL }, "--lr wants a number, not 'inf'" },
		{ { "t", "--lr=1,5", NULL }, "--lr wants a number, not '1,5'" },
		{ { "t", "--shift=-1e9", NULL }, NULL },
		{ { "t", "--shift=", NULL }, "--shift wants a number, not ''" },
		{ { "t", "-b1G", NULL }, NULL },
		{ { "t", "-b0", NULL }, "--most wants a number of bytes such as 64K, 10M or 2G, not '0'" },
		{ { "t", "-b1k", NULL }, "--most wants a number of bytes such as 64K, 10M or 2G, not '1k'" },
		{ { "t", "-b1KK", NULL },
		  "--most wants a number of bytes such as 64K, 10M or 2G, not '1KK'" },
		{ { "t", "-b8589934592G", NULL },
		  "--most wants a number of bytes such as 64K, 10M or 2G, not '8589934592G'" },
		{ { "t", "--list=yes", NULL }, "--list takes no value" },
		{ { "t", "--slow", NULL }, "--slow wants NODE" },
		{ { "t", "-lm", NULL }, "-m wants M" },
		{ { "t", "-lz", NULL }, "unknown option '-z'" },
		{ { "t", "--lisp", NULL }, "unknown option '--lisp', did you mean '--list'?" },
		{ { "t", "--helf", NULL }, "unknown option '--helf', did you mean '--help'?" },
		{ { "t", "--something=1", NULL }, "unknown option '--something'" },
		{ { "t", "a", "-", NULL }, NULL },
		{ { "t", "a", "b", "c", NULL }, "one operand too many: 'c'" },
		{ { "t", "--", "-m", "--micro", NULL }, NULL },
	};

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		char *argv[5], want[200] = "";
		struct given g = { &cli, argv, 0, 0 };

		memcpy(argv, rows[i].argv, sizeof argv);
		char *text = printed(2, parse, &g);
		if (rows[i].what)
			snprintf(want, sizeof want, "t: %s; try 't --help'\n", rows[i].what);
		assert(SAME(text, want) && IS(g.rc, ==, rows[i].what ? -1 : 0) &&
		       IS(cli.status, ==, rows[i].what ? 2 : 0));
		free(text);
		dlb_cli_release(&cli);
	}
	assert(IS(m, ==, 9) && IS(lr, ==, 2.5) && IS(free_real, ==, -1e9) && IS(most, ==, 1 << 30) &&
	       IS(cli.n_operands, ==, 2) && SAME(cli.operands[0], "-m") && SAME(cli.operands[1], "--micro"));
}

static void test_counts(void)
{
	static const struct {
		const char *text;
		int64_t n; /* -1: refused */
	} rows[] = { { "1", 1 },   { "7", 7 }, { "8", -1 },  { "0", -1 },
		     { "-1", -1 }, { "", -1 }, { "3x", -1 }, { "99999999999999999999", -1 } };
	int64_t n;

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		const bool good = dlb_cli_is_count(rows[i].text, 7, &n);

		assert(IS(good, ==, rows[i].n > 0) && (!good || IS(n, ==, rows[i].n)));
	}
}

static void warn(void *ctx)
{
	static const struct dlb_unused rows[] = {
		{ "micro", true, "one" }, { "micro", true, "two" }, { "lr", false, "three" },
		{ "lr", true, "four" },   { "name", true, "five" }, { NULL, false, NULL },
	};
	struct dlb_cli *cli = ctx;

	dlb_cli_warn_unused(cli, rows);
	dlb_cli_warn(cli, "warned %d", 1);
	dlb_cli_say(cli, "said %d", 2);
}

/* Of each option that was given, the first reason that holds. */
static void test_warnings(void)
{
	static const struct {
		bool quiet, verbose;
		const char *text;
	} rows[] = {
		{ false, false, "t: --micro has no effect: one\nt: --lr has no effect: four\nt: warned 1\n" },
		{ true, false, "" },
		{ true, true, "t: said 2\n" },
	};

	for (int i = 0; i < 3; i++) {
		struct dlb_cli cli = { .tool = "t",
				       .given = { "lr", "micro" },
				       .n_given = 2,
				       .quiet = rows[i].quiet,
				       .verbose = rows[i].verbose };
		char *text = printed(2, warn, &cli);

		assert(SAME(text, rows[i].text));
		free(text);
	}
}

/* ---- numbers ---- */

static int by_value(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The value at q (n - 1) of the sorted numbers, between neighbours on the line. */
static double plain_quantile(const double *x, int n, double q)
{
	double y[40], at = q * (n - 1);

	memcpy(y, x, (size_t)n * sizeof *y);
	qsort(y, (size_t)n, sizeof *y, by_value);
	const double from = floor(at), part = at - from;
	return y[(int)from] * (1 - part) + y[(int)ceil(at)] * part;
}

static void test_statistics(void)
{
	struct dlb_rng r;
	double x[40], off[40];

	dlb_rng_init(&r, 2);
	for (int round = 0; round < 500; round++) {
		const int n = 1 + below(&r, 40);
		double sum = 0, q = dlb_rng_uniform(&r);

		for (int i = 0; i < n; i++)
			sum += x[i] = below(&r, 2) ? below(&r, 5) : dlb_rng_uniform(&r) - 0.5;
		assert(IS(fabs(dlb_quantile(x, n, q) - plain_quantile(x, n, q)), <, 1e-12));
		assert(IS(dlb_quantile(x, n, -0.1), ==, plain_quantile(x, n, 0)) &&
		       IS(dlb_quantile(x, n, 1.1), ==, plain_quantile(x, n, 1)));
		assert(IS(fabs(dlb_mean(x, n) - sum / n), <, 1e-12));
		for (int i = 0; i < n; i++)
			off[i] = fabs(x[i] - plain_quantile(x, n, 0.5));
		/* sqrt(pi / 2) / sqrt(n) times 1.4826 median deviations */
		const double want = sqrt(acos(-1) / 2 / n) * 1.4826022185 * plain_quantile(off, n, 0.5);
		assert(IS(fabs(dlb_median_se(x, n) - want), <, 1e-8));
	}
	assert(IS(dlb_median_se(x, 0), ==, 0) && IS(dlb_median_se(x, -1), ==, 0));
}

/* Known answers: of Vigna's splitmix64 for seed 1234567, of xoshiro256** for the state 1, 2, 3, 4. */
static void test_generator(void)
{
	static const uint64_t seeded[] = { UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
					   UINT64_C(9817491932198370423), UINT64_C(4593380528125082431) };
	static const uint64_t drawn[] = { 11520,
					  0,
					  1509978240,
					  UINT64_C(1215971899390074240),
					  UINT64_C(1216172134540287360),
					  UINT64_C(607988272756665600),
					  UINT64_C(16172922978634559625),
					  UINT64_C(8476171486693032832) };
	struct dlb_rng r, same;

	dlb_rng_init(&r, 1234567);
	for (int i = 0; i < 4; i++)
		assert(IS(r.s[i], ==, seeded[i]));
	r = (struct dlb_rng){ { 1, 2, 3, 4 } };
	for (int i = 0; i < 8; i++)
		assert(IS(dlb_rng_next(&r), ==, drawn[i]));
	same = r;
	for (int i = 0; i < 100; i++)
		assert(IS(dlb_rng_uniform(&r), ==,
			  (double)(dlb_rng_next(&same) / 2048) / 9007199254740992.0));
	/* of 3 * 2^62 values the lowest 2^62 of a draw are drawn again, so that all are equally likely */
	const uint64_t n = UINT64_C(3) << 62;
	for (int i = 0; i < 100; i++) {
		uint64_t x = dlb_rng_next(&same);

		while (x < UINT64_C(1) << 62)
			x = dlb_rng_next(&same);
		assert(IS(dlb_rng_below(&r, n), ==, x % n));
	}
	for (uint64_t v = 0; v < 3; v++) { /* splitmix64's answer for a seed is one step from it */
		dlb_rng_init(&r, v);
		dlb_rng_init(&same, r.s[0] ^ 5);
		assert(IS(dlb_philox_stream(v, 5), ==, same.s[0]));
	}
	for (uint64_t i = 0; i < 50; i++) {
		uint32_t w[4];

		dlb_philox(7, 8, i, w);
		const double u = dlb_philox_uniform(7, 8, i),
			     a = (double)(((uint64_t)w[2] << 32 | w[3]) / 2048) / 9007199254740992.0;
		assert(IS(u, ==, (double)(((uint64_t)w[0] << 32 | w[1]) / 2048) / 9007199254740992.0));
		assert(IS(fabs(dlb_philox_normal(7, 8, i) - sqrt(-2 * log1p(-u)) * cos(2 * acos(-1) * a)), <,
			  1e-9));
	}
}

int main(void)
{
	test_nearest();
	test_hints();
	test_lines();
	test_options();
	test_counts();
	test_warnings();
	test_statistics();
	test_generator();
	puts("words: the nearest name, messages, options, quantiles, the generator");
	return 0;
}
