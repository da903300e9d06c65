/* Input files: whole and in parts, of every length around the sizes of buffers and limits; what is no regular
 * file; the newest content of a file, with folders that come and go. No descriptor is left open by a
 * refusal. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "util/clock.h"
#include "util/input.h"
#include "util/latest.h"
#include "util/mem.h"
#include "util/output.h"
#include "check.h"

enum { MOST = 300000 };

static char bytes[MOST];

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void put(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");

	assert(f && IS(fwrite(p, 1, n, f), ==, n) && !fclose(f));
}

/* -- regular files -- */

static void whole(void)
{
	static const size_t lengths[] = { 0, 1, 4095, 4096, 4097, 65536, MOST };
	struct dlb_error err = { .what = "" };

	for (int i = 0; i < DLB_LEN(lengths); i++) {
		unsigned char *p;
		uint64_t size;
		size_t n, done;
		char part[8];

		put("file", bytes, lengths[i]);
		assert(IS(dlb_input_read("file", &p, &n, &err), ==, 0) && IS(n, ==, lengths[i]) &&
		       !memcmp(p, bytes, n) && IS(p[n], ==, 0));
		free(p);
		const int fd = dlb_input_open("file", &size, &err);
		assert(IS(fd, >=, 0) && IS(size, ==, lengths[i]));
		for (size_t at = n < 9 ? 0 : n - 9; at <= n + 1; at++) {
			const size_t left = at < n ? n - at : 0, want = left < 8 ? left : 8;

			errno = 7;
			assert(IS(dlb_input_get(fd, at, part, 8, &done), ==, left < 8 ? -1 : 0));
			assert(IS(done, ==, want) && !memcmp(part, bytes + (at < n ? at : 0), want));
			assert(IS(errno, ==, left < 8 ? 0 : 7));
		}
		assert(IS(dlb_input_get(fd, n + 5, part, 0, &done), ==, 0) && IS(done, ==, 0));
		close(fd);
	}
}

static void refused(const char *path, const char *what)
{
	struct dlb_error err = { .what = "" };
	unsigned char *p;
	uint64_t size;
	size_t n;

	assert(IS(dlb_input_open(path, &size, &err), ==, -1) && SAME(err.what, what));
	err.what[0] = '\0';
	assert(IS(dlb_input_read(path, &p, &n, &err), ==, -1) && SAME(err.what, what));
}

static void other_kinds(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	const int s = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(at.sun_path, "socket");
	assert(!bind(s, (struct sockaddr *)&at, sizeof at));
	assert(!mkfifo("fifo", 0600) && !mkdir("folder", 0700) && !symlink("file", "link") &&
	       !symlink("none", "gone"));
	refused("socket", "'socket' is not a file but a socket");
	refused("fifo", "'fifo' is not a file but a FIFO");
	refused("folder", "'folder' is not a file but a folder");
	refused("/dev/null", "'/dev/null' is not a file but a device");
	refused("none", "cannot open 'none': No such file or directory");
	refused("gone", "cannot open 'gone': No such file or directory");
	struct dlb_error err;
	uint64_t size;
	const int fd = dlb_input_open("link", &size, &err);
	assert(IS(fd, >=, 0));
	close(fd);
	close(s);
	const char *const made[] = { "socket", "fifo", "folder", "link", "gone" };
	for (int i = 0; i < DLB_LEN(made); i++)
		assert(!remove(made[i]));
}

/* -- text up to a limit -- */

static void text_of(size_t length, uint64_t most, char begins, const char *what)
{
	struct dlb_error err = { .what = "" };
	char *text;
	size_t n;

	put("text", bytes, length);
	dlb_input_set_max_text(most);
	const int rc = dlb_input_read_text("text", begins, &text, &n, &err);
	dlb_input_set_max_text(DLB_INPUT_MAX_TEXT);
	if (*what) {
		assert(IS(rc, ==, -1) && SAME(err.what, what) && SAME(err.where, "text") && !text);
		return;
	}
	assert(IS(rc, ==, 0) && IS(n, ==, length) && !memcmp(text, bytes, n) && IS(text[n], ==, 0));
	free(text);
}

static void texts(void)
{
	static const size_t lengths[] = { 0,     1,     2,      100,    65534,  65535,
					  65536, 65537, 131071, 131072, 131073, 200000 };
	char what[60];

	for (int i = 0; i < DLB_LEN(lengths); i++)
		for (int more = -1; more <= 1; more++) {
			if (!lengths[i] && more < 0)
				continue;
			snprintf(what, sizeof what, "more than %zu bytes", lengths[i] + (size_t)more);
			text_of(lengths[i], lengths[i] + (uint64_t)(int64_t)more, 0, more < 0 ? what : "");
		}
	text_of(200000, DLB_INPUT_MAX_TEXT, 0, "");
	/* a first character other than the required one is noticed when a buffer is full; each holds twice as
	 * much as the one before */
	for (int i = 0; i < DLB_LEN(lengths); i++)
		for (int right = 0; right < 2; right++) {
			const size_t blanks = lengths[i],
				     totals[] = { blanks + 1, blanks + 10, blanks + 70000, 131071, 131070 };

			for (size_t k = 0; k < blanks; k++)
				bytes[k] = " \t\r\n"[k % 4];
			bytes[blanks] = right ? '{' : '[';
			text_of(blanks, DLB_INPUT_MAX_TEXT, '{', "");
			for (int t = 0; t < DLB_LEN(totals); t++) {
				bool seen = false;

				if (totals[t] <= blanks)
					continue;
				for (size_t full = 65535; full <= totals[t]; full = 2 * full + 1)
					seen |= blanks < full;
				text_of(totals[t], DLB_INPUT_MAX_TEXT, '{',
					seen && !right ? "it does not begin with '{'" : "");
				text_of(totals[t], DLB_INPUT_MAX_TEXT, 0, "");
			}
		}
}

/* -- the newest content -- */

static bool holds(const char *path, const char *want)
{
	char got[100] = "";
	FILE *f = fopen(path, "rb");
	const size_t n = f ? fread(got, 1, sizeof got - 1, f) : 0;

	if (f)
		fclose(f);
	return f && n == strlen(want) && !strcmp(got, want);
}

static void newest(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_latest *l;

	assert(IS(dlb_latest_new(&l, "no/such", &err), ==, -1) &&
	       SAME(err.what, "cannot write 'no/such': No such file or directory"));
	assert(!mkdir("in", 0700) && IS(dlb_latest_new(&l, "in/new", &err), ==, 0));
	for (int i = 0; i < 100; i++) {
		char text[20];

		dlb_latest_put(l, text, (size_t)snprintf(text, sizeof text, "content %d", i));
	}
	assert(IS(dlb_latest_free(l, 60, &err), ==, 0) && holds("in/new", "content 99"));
	assert(IS(dlb_latest_new(&l, "in/new", &err), ==, 0) && IS(dlb_latest_failed(l, NULL), ==, 0));
	assert(!unlink("in/new") && !rmdir("in"));
	dlb_latest_put(l, "lost", 4);
	while (!dlb_latest_failed(l, &err))
		dlb_sleep_s(.001);
	assert(SAME(err.what, "cannot write 'in/new': No such file or directory"));
	assert(!mkdir("in", 0700));
	dlb_latest_put(l, "found", 5); /* a later write succeeds again */
	while (dlb_latest_failed(l, NULL))
		dlb_sleep_s(.001);
	assert(holds("in/new", "found"));
	assert(!unlink("in/new") && !rmdir("in"));
	dlb_latest_put(l, "lost", 4);
	assert(IS(dlb_latest_free(l, 60, &err), ==, -1) &&
	       SAME(err.what, "cannot write 'in/new': No such file or directory"));
	assert(IS(dlb_latest_free(NULL, 60, &err), ==, 0));
}

static void refused_outputs(void)
{
	struct dlb_error err;
	struct dlb_output o;

	assert(!mkfifo("fifo", 0600) && !mkdir("folder", 0700));
	assert(IS(dlb_output_open(&o, "fifo", &err), ==, -1) &&
	       SAME(err.what, "cannot write 'fifo': it is a FIFO"));
	assert(IS(dlb_output_open(&o, "folder", &err), ==, -1));
	assert(IS(dlb_output_open(&o, "folder/", &err), ==, -1));
	assert(IS(dlb_output_open(&o, "/dev/tty/x", &err), ==, -1));
	assert(IS(dlb_output_check("file", &err), ==, 0) && IS(dlb_output_check("new", &err), ==, 0) &&
	       access("new", F_OK));
	assert(IS(dlb_output_open(&o, "log", &err), ==, 0));
	assert(!mkdir("log", 0700) && IS(dlb_output_keep_lines(&o, 1, &err), ==, -1));
	assert(SAME(err.what, "cannot read 'log': Is a directory"));
	assert(IS(dlb_output_commit(&o, &err), ==, -1) && HAS(err.what, "cannot write 'log': "));
	const char *const made[] = { "fifo", "folder", "log" };
	for (int i = 0; i < DLB_LEN(made); i++)
		assert(!remove(made[i]));
}

int main(void)
{
	char folder[] = "/tmp/dlb-test-XXXXXX";

	assert(mkdtemp(folder) && !chdir(folder));
	for (int i = 0; i < MOST; i++)
		bytes[i] = (char)('a' + i * 7 % 26);
	const int before = descriptors();
	whole();
	other_kinds();
	refused_outputs();
	texts();
	newest();
	assert(IS(descriptors(), ==, before));
	assert(!unlink("file") && !unlink("text") && !chdir("/") && !rmdir(folder));
	printf("inputs are read whole, in parts and up to limits\n");
	return 0;
}
