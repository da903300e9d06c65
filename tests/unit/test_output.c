/* util/output: files that are replaced, written to or refused; nothing else is touched. */
#define _XOPEN_SOURCE 700	/* mkdtemp, mknod */
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
#include "check.h"

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert(f && IS(fputs(text, f), >=, 0) && IS(fclose(f), ==, 0));
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

	assert(IS(write_to("a", "one", &err), ==, 0) && holds("a", "one"));
	assert(IS(chmod("a", 0640), ==, 0));
	assert(IS(dlb_output_open(&o, "a", &err), ==, 0) && IS(fputs("two", o.f), >=, 0) &&
	       IS(dlb_output_flush(&o, &err), ==, 0));
	assert(holds("a", "one"));			/* unchanged until the new file is complete */
	first = strdup(o.aside);
	assert(IS(dlb_output_open(&other, "a", &err), ==, 0) && strcmp(first, other.aside));
	free(first);
	dlb_output_abort(&other);
	assert(IS(dlb_output_commit(&o, &err), ==, 0) && holds("a", "two"));
	assert(IS(stat("a", &st), ==, 0) && IS((st.st_mode & 0777), ==, 0640));
	assert(IS(dlb_output_open(&o, "a", &err), ==, 0) && IS(fputs("three", o.f), >=, 0));
	dlb_output_abort(&o);
	dlb_output_abort(&o);
	assert(holds("a", "two") && IS(entries(), ==, 1));
	assert(IS(dlb_output_check("a", &err), ==, 0) && IS(dlb_output_check("b", &err), ==, 0) &&
	       holds("a", "two") && IS(entries(), ==, 1));
	assert(IS(mkdir("d", 0700), ==, 0) && IS(write_to("d/x", "x", &err), ==, 0) && holds("d/x", "x"));
	assert(IS(write_to("d/none/x", "x", &err), ==, -1) &&
	       HAS(err.what, "cannot write 'd/none/x': No such file"));
	assert(IS(write_to("d", "x", &err), ==, -1) && HAS(err.what, "it is a folder"));
	assert(IS(write_to("new/", "x", &err), ==, -1) && IS(write_to("", "x", &err), ==, -1));
	assert(IS(unlink("d/x"), ==, 0) && IS(rmdir("d"), ==, 0) && IS(unlink("a"), ==, 0) &&
	       IS(entries(), ==, 0));
}

static void test_links(void)
{
	struct dlb_error err;
	struct stat st;

	put("file", "old");
	assert(IS(mkdir("sub", 0700), ==, 0) && IS(symlink("../file", "sub/link"), ==, 0) &&
	       IS(symlink("sub/link", "twice"), ==, 0));
	assert(IS(write_to("twice", "new", &err), ==, 0) && holds("file", "new"));
	assert(IS(lstat("twice", &st), ==, 0) && S_ISLNK(st.st_mode) && IS(lstat("sub/link", &st), ==, 0) &&
	       S_ISLNK(st.st_mode));
	assert(IS(unlink("file"), ==, 0));
	assert(IS(write_to("twice", "x", &err), ==, -1) && HAS(err.what, "symbolic link to nothing"));
	assert(IS(lstat("twice", &st), ==, 0) && S_ISLNK(st.st_mode) && IS(access("file", F_OK), !=, 0));
	/* A link that appears at the file's name meanwhile is not replaced. */
	struct dlb_output o;
	put("victim", "kept");
	assert(IS(dlb_output_open(&o, "late", &err), ==, 0) && IS(symlink("victim", "late"), ==, 0));
	assert(IS(dlb_output_commit(&o, &err), ==, -1) && IS(lstat("late", &st), ==, 0) &&
	       S_ISLNK(st.st_mode) && holds("victim", "kept"));
	assert(IS(unlink("late"), ==, 0) && IS(unlink("victim"), ==, 0) && IS(unlink("twice"), ==, 0) &&
	       IS(unlink("sub/link"), ==, 0) && IS(rmdir("sub"), ==, 0));
	assert(IS(entries(), ==, 0));
}

static void test_special(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX, .sun_path = "socket" };
	struct dlb_error err;
	struct dlb_output o;
	struct stat st;
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	assert(IS(mkfifo("fifo", 0600), ==, 0) && IS(write_to("fifo", "x", &err), ==, -1) &&
	       HAS(err.what, "it is a FIFO"));
	assert(IS(s, >=, 0) && IS(bind(s, (struct sockaddr *)&at, sizeof at), ==, 0));
	assert(IS(write_to("socket", "x", &err), ==, -1) && HAS(err.what, "it is a socket"));
	assert(IS(lstat("fifo", &st), ==, 0) && S_ISFIFO(st.st_mode) && IS(lstat("socket", &st), ==, 0) &&
	       S_ISSOCK(st.st_mode));
	close(s);
	assert(IS(unlink("fifo"), ==, 0) && IS(unlink("socket"), ==, 0));
	assert(IS(write_to("/dev/null", "x", &err), ==, 0) && IS(lstat("/dev/null", &st), ==, 0) &&
	       S_ISCHR(st.st_mode));
	/* only root, on file systems that allow devices */
	if (mknod("full", S_IFCHR | 0666, makedev(1, 7)) == 0 && dlb_output_check("full", &err) == 0) {
		assert(IS(write_to("full", "x", &err), ==, -1) &&
		       HAS(err.what, "cannot write 'full': No space left"));
		assert(IS(dlb_output_open(&o, "full", &err), ==, 0) &&
		       IS(dlb_output_keep_lines(&o, 3, &err), ==, 0) &&
		       IS(dlb_output_place(&o, &err), ==, 0));
		fputs("x\n", o.f);
		assert(IS(dlb_output_flush(&o, &err), ==, -1) && HAS(err.what, "No space left"));
		dlb_output_abort(&o);
		assert(IS(lstat("full", &st), ==, 0) && S_ISCHR(st.st_mode));
	}
	unlink("full");
	assert(IS(entries(), ==, 0));
}

static void test_log(void)
{
	struct dlb_error err;
	struct dlb_output o;

	put("log", "1\n2\n3\n4");
	assert(IS(dlb_output_open(&o, "log", &err), ==, 0) && IS(dlb_output_keep_lines(&o, 2, &err), ==, 0) &&
	       holds("log", "1\n2\n3\n4"));
	assert(IS(dlb_output_place(&o, &err), ==, 0) && holds("log", "1\n2\n"));
	fputs("5\n", o.f);
	assert(IS(dlb_output_flush(&o, &err), ==, 0) && holds("log", "1\n2\n5\n"));
	dlb_output_abort(&o);				/* complete files stay */
	assert(holds("log", "1\n2\n5\n"));
	assert(IS(dlb_output_open(&o, "log", &err), ==, 0) && IS(dlb_output_keep_lines(&o, 9, &err), ==, 0) &&
	       IS(dlb_output_commit(&o, &err), ==, 0));
	assert(holds("log", "1\n2\n5\n") && IS(entries(), ==, 1) && IS(unlink("log"), ==, 0));
}

int main(void)
{
	char folder[] = "/tmp/test_output.XXXXXX";

	assert(mkdtemp(folder) && IS(chdir(folder), ==, 0));
	test_files();
	test_links();
	test_special();
	test_log();
	assert(IS(chdir("/"), ==, 0) && IS(rmdir(folder), ==, 0));
	puts("output: files replaced, links followed, devices written to, the rest refused");
	return 0;
}
