/* util/output: files that are replaced, written to or refused; nothing else is touched. */
#define _XOPEN_SOURCE 700	/* mkdtemp, mknod */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/output.h"

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static bool holds(const char *path, const char *text)
{
	char buf[200] = "";
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(buf, 1, sizeof buf - 1, f) : 0;

	if (f)
		fclose(f);
	return f && n == strlen(text) && !strcmp(buf, text);
}

static int entries(void)
{
	DIR *d = opendir(".");
	int n = -2;

	assert(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static int write_to(const char *path, const char *text, struct dlb_error *err)
{
	struct dlb_output o;

	if (dlb_output_open(&o, path, err))
		return -1;
	fputs(text, o.f);
	return dlb_output_commit(&o, err);
}

static void test_files(void)
{
	struct dlb_error err;
	struct dlb_output o, other;
	struct stat st;
	char *first;

	assert(write_to("a", "one", &err) == 0 && holds("a", "one"));
	assert(chmod("a", 0640) == 0);
	assert(dlb_output_open(&o, "a", &err) == 0 && fputs("two", o.f) >= 0 && dlb_output_flush(&o, &err) == 0);
	assert(holds("a", "one"));			/* unchanged until the new file is complete */
	first = strdup(o.aside);
	assert(dlb_output_open(&other, "a", &err) == 0 && strcmp(first, other.aside));
	free(first);
	dlb_output_abort(&other);
	assert(dlb_output_commit(&o, &err) == 0 && holds("a", "two"));
	assert(stat("a", &st) == 0 && (st.st_mode & 0777) == 0640);
	assert(dlb_output_open(&o, "a", &err) == 0 && fputs("three", o.f) >= 0);
	dlb_output_abort(&o);
	dlb_output_abort(&o);
	assert(holds("a", "two") && entries() == 1);
	assert(dlb_output_check("a", &err) == 0 && dlb_output_check("b", &err) == 0 && holds("a", "two") && entries() == 1);
	assert(mkdir("d", 0700) == 0 && write_to("d/x", "x", &err) == 0 && holds("d/x", "x"));
	assert(write_to("d/none/x", "x", &err) == -1 && strstr(err.what, "cannot write 'd/none/x': No such file"));
	assert(write_to("d", "x", &err) == -1 && strstr(err.what, "it is a folder"));
	assert(write_to("new/", "x", &err) == -1 && write_to("", "x", &err) == -1);
	assert(unlink("d/x") == 0 && rmdir("d") == 0 && unlink("a") == 0 && entries() == 0);
}

static void test_links(void)
{
	struct dlb_error err;
	struct stat st;

	put("file", "old");
	assert(mkdir("sub", 0700) == 0 && symlink("../file", "sub/link") == 0 && symlink("sub/link", "twice") == 0);
	assert(write_to("twice", "new", &err) == 0 && holds("file", "new"));
	assert(lstat("twice", &st) == 0 && S_ISLNK(st.st_mode) && lstat("sub/link", &st) == 0 && S_ISLNK(st.st_mode));
	assert(unlink("file") == 0);
	assert(write_to("twice", "x", &err) == -1 && strstr(err.what, "symbolic link to nothing"));
	assert(lstat("twice", &st) == 0 && S_ISLNK(st.st_mode) && access("file", F_OK) != 0);
	/* A link that appears at the file's name meanwhile is not replaced. */
	struct dlb_output o;
	put("victim", "kept");
	assert(dlb_output_open(&o, "late", &err) == 0 && symlink("victim", "late") == 0);
	assert(dlb_output_commit(&o, &err) == -1 && lstat("late", &st) == 0 && S_ISLNK(st.st_mode) && holds("victim", "kept"));
	assert(unlink("late") == 0 && unlink("victim") == 0 && unlink("twice") == 0 && unlink("sub/link") == 0 && rmdir("sub") == 0);
	assert(entries() == 0);
}

static void test_special(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = "socket" };
	struct dlb_error err;
	struct dlb_output o;
	struct stat st;
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	assert(mkfifo("fifo", 0600) == 0 && write_to("fifo", "x", &err) == -1 && strstr(err.what, "it is a FIFO"));
	assert(s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0);
	assert(write_to("socket", "x", &err) == -1 && strstr(err.what, "it is a socket"));
	assert(lstat("fifo", &st) == 0 && S_ISFIFO(st.st_mode) && lstat("socket", &st) == 0 && S_ISSOCK(st.st_mode));
	close(s);
	assert(unlink("fifo") == 0 && unlink("socket") == 0);
	assert(write_to("/dev/null", "x", &err) == 0 && lstat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
	/* only root, on file systems that allow devices */
	if (mknod("full", S_IFCHR | 0666, makedev(1, 7)) == 0 && dlb_output_check("full", &err) == 0) {
		assert(write_to("full", "x", &err) == -1 && strstr(err.what, "cannot write 'full': No space left"));
		assert(dlb_output_open(&o, "full", &err) == 0 && dlb_output_keep_lines(&o, 3, &err) == 0 && dlb_output_place(&o, &err) == 0);
		fputs("x\n", o.f);
		assert(dlb_output_flush(&o, &err) == -1 && strstr(err.what, "No space left"));
		dlb_output_abort(&o);
		assert(lstat("full", &st) == 0 && S_ISCHR(st.st_mode));
	}
	unlink("full");
	assert(entries() == 0);
}

static void test_log(void)
{
	struct dlb_error err;
	struct dlb_output o;

	put("log", "1\n2\n3\n4");
	assert(dlb_output_open(&o, "log", &err) == 0 && dlb_output_keep_lines(&o, 2, &err) == 0 && holds("log", "1\n2\n3\n4"));
	assert(dlb_output_place(&o, &err) == 0 && holds("log", "1\n2\n"));
	fputs("5\n", o.f);
	assert(dlb_output_flush(&o, &err) == 0 && holds("log", "1\n2\n5\n"));
	dlb_output_abort(&o);				/* complete files stay */
	assert(holds("log", "1\n2\n5\n"));
	assert(dlb_output_open(&o, "log", &err) == 0 && dlb_output_keep_lines(&o, 9, &err) == 0 && dlb_output_commit(&o, &err) == 0);
	assert(holds("log", "1\n2\n5\n") && entries() == 1 && unlink("log") == 0);
}

int main(void)
{
	char folder[] = "/tmp/test_output.XXXXXX";

	assert(mkdtemp(folder) && chdir(folder) == 0);
	test_files();
	test_links();
	test_special();
	test_log();
	assert(chdir("/") == 0 && rmdir(folder) == 0);
	puts("output: files replaced, links followed, devices written to, the rest refused");
	return 0;
}
