/* util: known answers of the generators and hashes, the arena, options, medians, error lines. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/cores.h"
#include "util/cli.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/input.h"
#include "util/mem.h"
#include "util/patterns.h"
#include "util/process.h"
#include "util/rng.h"
#include "util/stats.h"
#include "util/utf8.h"
#include "check.h"
#ifdef DLB_MOVES_OFTEN
#include <sanitizer/asan_interface.h>
#endif

static void test_philox(void)
{
	/* Known answers of Random123's kat_vectors, philox4x32 with 10 rounds. */
	static const struct { uint64_t seed, stream, i; uint32_t out[4]; } kat[] = {
		{ 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ UINT64_MAX, UINT64_MAX, UINT64_MAX, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e), UINT64_C(0x85a308d3243f6a88),
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};
	double sum = 0, squares = 0;
	uint32_t out[4];
	int n = 20000;

	for (int k = 0; k < DLB_LEN(kat); k++) {
		dlb_philox(kat[k].seed, kat[k].stream, kat[k].i, out);
		assert(!memcmp(out, kat[k].out, sizeof out));
	}
	for (int i = 0; i < n; i++) {
		double u = dlb_philox_uniform(1, 2, (uint64_t)i), z = dlb_philox_normal(1, 2, (uint64_t)i);

		assert(IS(u, >=, 0) && IS(u, <, 1) && isfinite(z));
		sum += z;
		squares += z * z;
	}
	assert(IS(fabs(sum / n), <, 0.03) && IS(fabs(squares / n - 1), <, 0.04));
}

/* Normals follow Box and Muller's formula, and each number is the same whether drawn alone or with others. */
static void test_normals(void)
{
	enum { N = 5003 };
	static float many[4 * N], some[4 * 70];
	double sum = 0, squares = 0;
	uint32_t x[4];

	dlb_philox_normals(1, 2, UINT32_MAX - 1000, N, many);
	for (int i = 0; i < N; i++) {
		dlb_philox(1, 2, (uint64_t)UINT32_MAX - 1000 + (uint64_t)i, x);
		for (int k = 0; k < 4; k += 2) {
			double r = sqrt(-2 * log(((x[k] >> 8) + 1) / 16777216.0)),
			       a = 6.283185307179586 * (x[k + 1] >> 8) / 16777216.0;

			assert(IS(fabs(many[4 * i + k] - r * cos(a)), <, 4e-6) &&
			       IS(fabs(many[4 * i + k + 1] - r * sin(a)), <, 4e-6));
		}
	}
	for (int i = 0; i < 4 * N; i++) {
		sum += (double)many[i];
		squares += (double)many[i] * (double)many[i];
	}
	assert(IS(fabs(sum / (4 * N)), <, 0.03) && IS(fabs(squares / (4 * N) - 1), <, 0.04));
	for (int at = 0; at + 70 < N; at += 367) {
		for (int n = 1; n <= 70; n += 23) {
			dlb_philox_normals(1, 2, (uint64_t)UINT32_MAX - 1000 + (uint64_t)at, n, some);
			assert(!memcmp(some, many + (size_t)4 * (size_t)at, (size_t)n * 4 * sizeof *some));
		}
	}
}

static void test_rng(void)
{
	struct dlb_rng r, same;
	int count[5] = { 0 };

	dlb_rng_init(&r, 7);
	dlb_rng_init(&same, 7);
	for (int i = 0; i < 10000; i++) {
		uint64_t x = dlb_rng_below(&r, 5);

		assert(IS(x, ==, dlb_rng_below(&same, 5)));
		count[x]++;
	}
	for (int i = 0; i < 5; i++)
		assert(IS(abs(count[i] - 2000), <, 200));
	assert(IS(dlb_rng_below(&r, 1), ==, 0) && IS(dlb_rng_below(&r, 0), ==, 0));
	assert(IS(dlb_rng_uniform(&r), <, 1));
}

static void test_hash(void)
{
	char hex[65], path[] = "/tmp/dlb-test-util-XXXXXX";
	struct dlb_error err;
	int fd;

	/* FNV-1a of "a" and "foobar": Fowler, Noll, Vo's own test suite. */
	assert(IS(dlb_hash_bytes(DLB_HASH_INIT, "a", 1), ==, UINT64_C(0xaf63dc4c8601ec8c)));
	assert(IS(dlb_hash_bytes(DLB_HASH_INIT, "foobar", 6), ==, UINT64_C(0x85944171f73967e8)));
	assert(IS(dlb_hash_str(dlb_hash_str(DLB_HASH_INIT, "a"), "bc"), !=,
		  dlb_hash_str(dlb_hash_str(DLB_HASH_INIT, "ab"), "c")));
	dlb_hash_hex(0, hex);
	assert(IS(strlen(hex), ==, 16));
	/* a number is its eight bytes, lowest first, however many of them are zero */
	for (int shift = 0; shift < 64; shift++) {
		const uint64_t v = UINT64_C(0xf123456789abcdef) >> shift;
		unsigned char byte[8];

		for (int i = 0; i < 8; i++)
			byte[i] = (unsigned char)(v >> 8 * i);
		assert(IS(dlb_hash_u64(7, v), ==, dlb_hash_bytes(7, byte, 8)));
	}
	assert(IS(dlb_hash_u64(7, 0), ==, dlb_hash_bytes(7, "\0\0\0\0\0\0\0", 8)));
	fd = mkstemp(path);
	assert(IS(fd, >=, 0) && IS(write(fd, "abc", 3), ==, 3) && !close(fd));
	assert(!dlb_sha256_file(path, hex, &err));
	assert(SAME(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
	/* a million times "a": FIPS 180's long message, which ends within a block */
	FILE *f = fopen(path, "wb");
	for (int i = 0; i < 1000000; i++)
		assert(IS(putc('a', f), ==, 'a'));
	assert(!fclose(f) && !dlb_sha256_file(path, hex, &err));
	assert(SAME(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
	struct dlb_sha256 *sha = dlb_sha256_new(); /* the same in pieces that are not aligned to blocks */
	char as[1024];
	memset(as, 'a', sizeof as);
	for (int i = 0, n = 0; n < 1000000; i++) {
		const int piece = i * 7 % 1000 < 1000000 - n ? i * 7 % 1000 : 1000000 - n;
		dlb_sha256_add(sha, as, (size_t)piece);
		n += piece;
	}
	dlb_sha256_end(sha, hex);
	assert(SAME(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
	unlink(path);
	assert(IS(dlb_sha256_file(path, hex, &err), ==, -1) && HAS(err.what, "cannot open") &&
	       IS(err.status, ==, 2));
	assert(IS(dlb_sha256_file("/tmp", hex, &err), ==, -1) && HAS(err.what, "not a file but a folder"));
}

/* A checksum tells apart small numbers in another order, and other lengths. */
static void test_checksum(void)
{
	static const uint64_t a[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, b[8] = { 5, 6, 7, 8, 1, 2, 3, 4 };
	struct dlb_checksum x = { { 0 } }, y = { { 0 } }, z = { { 0 } };

	dlb_checksum_add(&x, a, sizeof a);
	dlb_checksum_add(&y, b, sizeof b);
	dlb_checksum_add(&z, a, sizeof a - 1);
	for (int k = 0; k < 4; k++)
		assert(IS(x.lane[k], !=, y.lane[k]));
	assert(memcmp(&x, &z, sizeof x));
}

/* As many bytes as --max-document says are read, and not one more. */
static void test_longest_text(void)
{
	bool list = false;
	const struct dlb_opt opt = { .name = "list", .type = DLB_OPT_FLAG, .value = &list };
	struct dlb_cli cli = { .tool = "dlb-x", .usage = "", .summary = "", .opts = &opt, .n_opts = 1 };
	char path[] = "/tmp/dlb-test-util-XXXXXX", *text;
	struct dlb_error err;
	size_t n;
	int fd = mkstemp(path);

	assert(!dlb_cli_parse(&cli, 2, (char *[]){ "dlb-x", "--max-document=16", NULL }));
	assert(IS(fd, >=, 0) && IS(write(fd, "{0123456789abcd}", 16), ==, 16));
	assert(!dlb_input_read_text(path, '{', &text, &n, &err) && IS(n, ==, 16) &&
	       SAME(text, "{0123456789abcd}"));
	free(text);
	assert(IS(write(fd, "\n", 1), ==, 1) && IS(dlb_input_read_text(path, '{', &text, &n, &err), ==, -1) &&
	       HAS(err.what, "more than 16 bytes") && !text);
	close(fd);
	unlink(path);
	dlb_cli_release(&cli);
}

/* A name that is no pattern of itself matches itself. */
static void test_patterns(void)
{
	assert(dlb_pattern_matches("block.*", "block.0.weight") &&
	       !dlb_pattern_matches("block.*", "head.weight"));
	assert(dlb_pattern_matches("block[0].weight", "block[0].weight") &&
	       dlb_pattern_matches("block[0].weight", "block0.weight"));
	assert(!dlb_pattern_matches("block[0].weight", "block[1].weight") &&
	       dlb_pattern_matches("a\\b", "a\\b"));
}

/* An item that is the path of a file means its lines, without empty lines and comments. */
static void test_pattern_files(void)
{
	static const char text[] = "# frozen\n\nhead.*\r\n\r\nblock.0\n#block.1\nlast";
	static const char *const names[] = { "head.weight", "block.0", "last" };
	char path[] = "/tmp/dlb-test-util-XXXXXX";
	struct dlb_patterns p = { .what = "--freeze" }, none = { .what = "--freeze" };
	struct dlb_arena a = { 0 };
	struct dlb_error err;
	int fd = mkstemp(path);

	assert(IS(fd, >=, 0) && IS(write(fd, text, sizeof text - 1), ==, sizeof text - 1) && !close(fd));
	assert(!dlb_patterns_add(&p, "tail", &a, &err) && !dlb_patterns_add(&p, path, &a, &err));
	assert(IS(p.n, ==, 4) && SAME(p.item[0], "tail") && SAME(p.item[1], "head.*") &&
	       SAME(p.item[2], "block.0") && SAME(p.item[3], "last"));
	assert(IS(dlb_patterns_match(&p, "tail"), ==, 0) && IS(dlb_patterns_match(&p, "head.bias"), ==, 1) &&
	       IS(dlb_patterns_match(&p, "last"), ==, 3) && IS(dlb_patterns_match(&p, "block.1"), ==, -1) &&
	       IS(dlb_patterns_match(&p, ""), ==, -1));
	assert(IS(dlb_patterns_check(&p, names, 3, &err), ==, -1) &&
	       SAME(err.what, "--freeze: no weight matches 'tail'"));
	p.item++;
	p.n--;
	assert(IS(dlb_patterns_check(&p, names, 3, &err), ==, 0));
	assert(!truncate(path, 10)); /* the comment and an empty line */
	assert(IS(dlb_patterns_add(&none, path, &a, &err), ==, -1) && HAS(err.what, "no name in it") &&
	       SAME(err.where, path));
	unlink(path);
	dlb_arena_release(&a);
}

/* Writes the UTF-8 of a code point as RFC 3629 defines it; the number of bytes. */
static int utf8_of(unsigned code, unsigned char *s)
{
	const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const unsigned char lead[] = { 0, 0xc0, 0xe0, 0xf0 };

	s[0] = (unsigned char)(lead[more] | code >> 6 * more);
	for (int i = 1; i <= more; i++)
		s[i] = (unsigned char)(0x80 | (code >> 6 * (more - i) & 0x3f));
	return more + 1;
}

/* Characters of UTF-8 are those that the definition writes, and no other bytes of their length. */
static void test_utf8(void)
{
	static const unsigned char ends[] = { 0x00, 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xff };
	unsigned char s[4], t[4];
	int n_right = 0;

	for (unsigned code = 1; code < 0x110000; code += code < 0x1100 ? 1 : 13)
		if (code < 0xd800 || code > 0xdfff)
			assert(dlb_is_utf8((char *)s, (size_t)utf8_of(code, s)));
	for (unsigned i = 0; i < 256 * 256 * 64; i++) {
		s[0] = (unsigned char)(i >> 14);
		s[1] = (unsigned char)(i >> 6);
		s[2] = ends[i >> 3 & 7];
		s[3] = ends[i & 7];
		const unsigned b = s[0];
		const int n = b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
		const unsigned code = n == 1 ? b :
				      n == 2 ? (b & 0x1f) << 6 | (s[1] & 0x3f) :
				      n == 3 ? (b & 0xf) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3f) :
					       (b & 7) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 |
						       (s[3] & 0x3f);
		const bool right = code && code < 0x110000 && (code < 0xd800 || code > 0xdfff) &&
				   utf8_of(code, t) == n && !memcmp(s, t, (size_t)n);

		if (dlb_is_utf8((char *)s, (size_t)n) != right) {
			fprintf(stderr, "%02x %02x %02x %02x, %d bytes: %d expected\n", s[0], s[1], s[2],
				s[3], n, right);
			abort();
		}
		n_right += right;
	}
	assert(IS(n_right, >, 100000));
	assert(dlb_is_utf8(NULL, 0) &&
	       dlb_is_utf8("a\xc3\x9f"
			   "b",
			   4) &&
	       !dlb_is_utf8("a\xc3\x9f"
			    "b",
			    2));
}

/* Of three children one is stopped and one has ended, unreaped: only living ones get a signal. */
static void test_processes(void)
{
	pid_t child[3];
	int status;

	for (int i = 0; i < 3; i++) {
		child[i] = fork();
		assert(IS(child[i], >=, 0));
		if (!child[i]) {
			if (i == 2)
				_exit(0);
			alarm(60); /* if the test fails */
			for (;;)
				pause();
		}
	}
	siginfo_t info;
	assert(!waitid(P_PID, (id_t)child[2], &info, WEXITED | WNOWAIT));
	assert(IS(dlb_process_state(child[2]), ==, 'Z') && !dlb_process_has_stopped(getpid()));
	assert(!kill(child[1], SIGSTOP) && IS(waitpid(child[1], &status, WUNTRACED), ==, child[1]));
	assert(WIFSTOPPED(status) && dlb_process_has_stopped(getpid()) &&
	       IS(dlb_process_state(child[1]), ==, 'T'));
	assert(IS(dlb_process_signal_descendants(getpid(), SIGCONT, child[0]), ==, 1));
	assert(IS(waitpid(child[1], &status, WCONTINUED), ==, child[1]) && WIFCONTINUED(status));
	assert(!dlb_process_has_stopped(getpid()));
	assert(IS(dlb_process_signal_descendants(getpid(), SIGKILL, 0), ==, 2));
	for (int i = 0; i < 3; i++) {
		assert(IS(waitpid(child[i], &status, 0), ==, child[i]));
		assert(i == 2 ? WIFEXITED(status) : WIFSIGNALED(status) && IS(WTERMSIG(status), ==, SIGKILL));
	}
	assert(IS(dlb_process_state(child[0]), ==, 0));
}

static void test_arena(void)
{
	struct dlb_arena a = { 0 };
	char *first = dlb_arena_strdup(&a, "first"), *text;

	for (size_t i = 0; i < 5000; i++) {
		unsigned char *p = dlb_arena_alloc(&a, i % 700);

		assert(IS(((uintptr_t)p & 15), ==, 0));
		for (size_t k = 0; k < i % 700; k++)
			assert(!p[k]);
		memset(p, 0xff, i % 700);
	}
	memset(dlb_arena_array(&a, 1 << 20, 3), 1, 3 << 20);
	text = dlb_arena_printf(&a, "%d ops on '%s'", 17, "h0");
	assert(SAME(first, "first") && SAME(text, "17 ops on 'h0'"));
	struct dlb_arena b = { 0 };
	size_t used = a.used_bytes;
	const char *hundred = dlb_arena_alloc(&b, 100);
	assert(hundred && IS(b.used_bytes, ==, 112));
#ifdef DLB_MOVES_OFTEN
	assert(!__asan_address_is_poisoned(hundred + 99) && __asan_address_is_poisoned(hundred + 100));
#endif
	dlb_arena_give(&a, &b);
	assert(!a.head && !a.used_bytes && IS(b.used_bytes, ==, used + 112));
	assert(SAME(first, "first") && SAME(text, "17 ops on 'h0'") && dlb_arena_alloc(&b, 1 << 20));
	dlb_arena_release(&b);
	dlb_arena_release(&a);
	dlb_arena_release(&a);
	dlb_arena_release(NULL);
	text = dlb_xprintf("%s", "x");
	assert(SAME(text, "x"));
	free(text);
}

static void test_stats(void)
{
	const double x[] = { 4, 1, 3, 2 }, one[] = { 5 };

	assert(IS(dlb_median(x, 4), ==, 2.5) && IS(dlb_median(x, 3), ==, 3) &&
	       IS(dlb_median(one, 1), ==, 5) && IS(dlb_median(x, 0), ==, 0));
	assert(IS(dlb_quantile(x, 4, 0), ==, 1) && IS(dlb_quantile(x, 4, 1), ==, 4) &&
	       IS(fabs(dlb_quantile(x, 4, 0.25) - 1.75), <, 1e-15));
	assert(IS(dlb_mean(x, 4), ==, 2.5) && IS(dlb_mean(x, 0), ==, 0));
	assert(IS(fabs(dlb_median_se(x, 4) - 1.2533141 * 1.4826022 * 1 / 2), <, 1e-6) &&
	       IS(dlb_median_se(one, 1), ==, 0));
	assert(IS(x[0], ==, 4));
}

static void print(const struct dlb_error *err, int rank, const char *expected)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	dlb_error_print(f, "dlb-x", rank, err);
	fclose(f);
	assert(SAME(text, expected));
	free(text);
}

static void test_error(void)
{
	static const char *const names[] = { "greedy", "proportional", "even", "conv1.out" };
	struct dlb_error err;
	char big[2000];

	assert(IS(dlb_fail(&err, "/ops/17/inputs/0", "no tensor '%s'", "conv1_out"), ==, -1) &&
	       IS(err.status, ==, 2));
	dlb_hint(&err, "did you mean '%s'?", dlb_nearest("conv1_out", names, 4));
	dlb_error_at(&err, "<stdin>");
	print(&err, -1,
	      "dlb-x: <stdin>: /ops/17/inputs/0: no tensor 'conv1_out'; did you mean 'conv1.out'?\n");
	dlb_fail(&err, "12:5", "'}' expected");
	dlb_error_at(&err, "graph.json");
	print(&err, 3, "dlb-x[3]: graph.json:12:5: '}' expected\n");
	dlb_fail_no(&err, NULL, "%s\nand\033[2J", "two lines");
	assert(IS(err.status, ==, 1));
	print(&err, -1, "dlb-x: two lines\\nand\\x1b[2J\n");
	dlb_fail(&err, err.what, "wrapped: %s", err.what);
	assert(!strncmp(err.what, "wrapped: two lines", 18) && !strncmp(err.where, "two lines", 9));
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	assert(IS(dlb_fail(&err, big, "%s", big), ==, -1) && IS(dlb_hint(&err, "%s", big), ==, -1) &&
	       IS(dlb_error_at(&err, big), ==, -1));
	assert(IS(strlen(err.where), ==, sizeof err.where - 1) &&
	       IS(strlen(err.what), ==, sizeof err.what - 1));
	assert(IS(dlb_fail(NULL, NULL, "nobody listens"), ==, -1));
	assert(SAME(dlb_nearest("gredy", names, 4), "greedy") && SAME(dlb_nearest("EVEN", names, 4), "even"));
	/* a swap of neighbours is one mistake; a name of six letters may have three mistakes, Levenshtein's */
	assert(SAME(dlb_nearest("form", (const char *[]){ "fxxm", "from" }, 2), "from"));
	assert(SAME(dlb_nearest("kitten", (const char *[]){ "sittings", "sitting" }, 2), "sitting") &&
	       !dlb_nearest("kitten", (const char *[]){ "sittings" }, 1));
	assert(!dlb_nearest("zzz", names, 4) && !dlb_nearest(big, names, 4) && !dlb_nearest("x", names, 0));
}

static void test_cli(void)
{
	const char *algorithm = "greedy";
	int64_t m = 1, most = 0;
	double lr = 0.01;
	bool list = false, given = false;
	struct dlb_strlist slow = { 0 };
	const struct dlb_opt opts[] = {
		{ 'a', "algorithm", DLB_OPT_STR, &algorithm, "NAME", "placement algorithm", &given, 0, 0 },
		{ 'm', "micro-batches", DLB_OPT_INT, &m, "M", "micro-batches in flight", NULL, 1, 1000 },
		{ 0, "lr", DLB_OPT_REAL, &lr, "X", "learning rate", NULL, 0, 0 },
		{ 0, "list", DLB_OPT_FLAG, &list, NULL, "list the algorithms", NULL, 0, 0 },
		{ 0, "slow", DLB_OPT_LIST, &slow, "NODE:FACTOR", "stretch a node", NULL, 0, 0 },
		{ 0, "most", DLB_OPT_BYTES, &most, "BYTES", "bytes that are read", NULL, 0, 0 },
	};
	struct dlb_cli cli = { .tool = "dlb-x",
			       .usage = "[OPTION...] [FILE]",
			       .summary = "test",
			       .opts = opts,
			       .n_opts = DLB_LEN(opts),
			       .max_operands = 1 };
	char *good[] = { "dlb-x", "-m8",  "--lr=-1e-3", "-qv", "--slow", "1:2", "--slow=2:3",
			 "-a",    "even", "--list",     "--",  "-file",  NULL };
	char *bad[][4] = {
		{ "dlb-x", "-m0", NULL },
		{ "dlb-x", "-m", NULL },
		{ "dlb-x", "-m1x", NULL },
		{ "dlb-x", "--lr=nan", NULL },
		{ "dlb-x", "--algoritm", "x", NULL },
		{ "dlb-x", "-z", NULL },
		{ "dlb-x", "--list=1", NULL },
		{ "dlb-x", "a", "b", NULL },
		{ "dlb-x", "-m99999999999999999999", NULL },
		{ "dlb-x", "--lis", NULL },
		{ "dlb-x", "-m1001", NULL },
		{ "dlb-x", "--lr=1x", NULL },
		{ "dlb-x", "--most=0", NULL },
		{ "dlb-x", "--most=-1K", NULL },
		{ "dlb-x", "--most=K", NULL },
		{ "dlb-x", "--most=1T", NULL },
		{ "dlb-x", "--most=1KB", NULL },
		{ "dlb-x", "--most=8589934592G", NULL },
		{ "dlb-x", "--most=9223372036854775808", NULL },
	};
	static const struct {
		char *text;
		int64_t bytes;
	} sizes[] = { { "--most=1", 1 },
		      { "--most=64K", 65536 },
		      { "--most=10M", 10485760 },
		      { "--most=8589934591G", INT64_MAX - 1073741823 } };
	int keep = dup(STDERR_FILENO);

	assert(!dlb_cli_parse(&cli, DLB_LEN(good) - 1, good));
	assert(IS(m, ==, 8) && IS(lr, ==, -1e-3) && cli.quiet && cli.verbose && list && given &&
	       SAME(algorithm, "even"));
	assert(IS(slow.n, ==, 2) && SAME(slow.item[1], "2:3") && IS(cli.n_operands, ==, 1) &&
	       SAME(cli.operands[0], "-file"));
	dlb_cli_release(&cli);
	for (int i = 0; i < DLB_LEN(sizes); i++) {
		assert(!dlb_cli_parse(&cli, 2, (char *[]){ "dlb-x", sizes[i].text, NULL }) &&
		       IS(most, ==, sizes[i].bytes));
		dlb_cli_release(&cli);
	}
	assert(freopen("/dev/null", "w", stderr));
	for (int i = 0; i < DLB_LEN(bad); i++) {
		int argc = 0;

		while (bad[i][argc])
			argc++;
		assert(dlb_cli_parse(&cli, argc, bad[i]) && IS(cli.status, ==, 2));
	}
	fflush(stderr);
	dup2(keep, STDERR_FILENO);
	close(keep);
}

static void test_cores(void)
{
	struct dlb_core_set own = dlb_core_set_own(), other = { .word[15] = UINT64_C(1) << 63 };

	assert(IS(dlb_core_set_count(&own), ==, dlb_cores()));
	dlb_core_set_add(&own, &own);
	assert(IS(dlb_core_set_count(&own), ==, dlb_cores()));
	dlb_core_set_add(&other, &own);
	assert(dlb_core_set_count(&other) == dlb_cores() + !(own.word[15] >> 63));
}

int main(void)
{
	double start = dlb_clock_s(), cpu = dlb_clock_thread_cpu_s();

	test_philox();
	test_normals();
	test_rng();
	test_hash();
	test_checksum();
	test_patterns();
	test_pattern_files();
	test_utf8();
	test_processes();
	test_arena();
	test_stats();
	test_error();
	test_cli();
	test_longest_text();
	test_cores();
	dlb_sleep_s(0.01);
	assert(IS(dlb_clock_s() - start, >=, 0.01) && IS(dlb_clock_thread_cpu_s(), >=, cpu));
	puts("util: generators, hashes, arena, medians, error lines, options");
	return 0;
}
