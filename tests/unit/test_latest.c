/* util/latest: a file that has its newest content, whole; a disk that fails, then works again. */
#define _XOPEN_SOURCE 700	/* mkdtemp */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/latest.h"
#include "util/mem.h"
#include "check.h"

#define MUST(call) assert(!(call))

static char folder[] = "/tmp/dlb-latest-XXXXXX";

static char *at(const char *name)
{
	return dlb_xprintf("%s/%s", folder, name);
}

/* The content, new; NULL: no such file. */
static char *content(const char *path)
{
	char text[4096];
	FILE *f = fopen(path, "r");
	size_t n;

	if (!f)
		return NULL;
	n = fread(text, 1, sizeof text - 1, f);
	text[n] = 0;
	fclose(f);
	return dlb_xstrdup(text);
}

static void put(struct dlb_latest *l, const char *text)
{
	dlb_latest_put(l, text, strlen(text));
}

/* Every content has 1000 equal letters: a mixture or a part of one would show. */
static void check_whole(void)
{
	char *path = at("file"), text[1001] = "";
	struct dlb_latest *l;
	struct dlb_error err;

	MUST(dlb_latest_new(&l, path, &err));
	assert(!content(path));			/* checking leaves no file */
	for (int i = 0; i < 400; i++) {
		char *now;

		memset(text, 'a' + i % 26, 1000);
		put(l, text);
		dlb_sleep_s(1e-4);
		now = content(path);
		if (now) {
			assert(IS(strlen(now), ==, (size_t)1000));
			assert(IS(strspn(now, (char[]){ now[0], 0 }), ==, (size_t)1000));
		}
		free(now);
	}
	put(l, "the last");
	MUST(dlb_latest_free(l, 30, &err));
	char *last = content(path);
	assert(SAME(last, "the last"));
	free(last);
	unlink(path);
	free(path);
}

static void check_failures(void)
{
	char *inner = at("in"), *path = at("in/file"), *away = at("away");
	struct dlb_latest *l;
	struct dlb_error err;

	assert(dlb_latest_new(&l, path, &err));		/* no such folder */
	assert(HAS(err.what, "in/file"));
	MUST(mkdir(inner, 0777));
	MUST(dlb_latest_new(&l, path, &err));
	MUST(rename(inner, away));
	put(l, "lost");
	for (int i = 0; i < 1000 && !dlb_latest_failed(l, &err); i++)
		dlb_sleep_s(0.01);
	assert(dlb_latest_failed(l, &err));
	assert(HAS(err.what, "No such file"));
	MUST(rename(away, inner));
	put(l, "found");
	MUST(dlb_latest_free(l, 30, &err));
	char *now = content(path);
	assert(SAME(now, "found"));
	free(now);
	unlink(path);
	rmdir(inner);

	MUST(dlb_latest_new(&l, "/dev/full", &err));
	put(l, "x");
	assert(dlb_latest_free(l, 30, &err));
	assert(HAS(err.what, "No space left"));
	MUST(dlb_latest_free(NULL, 30, &err));
	free(inner);
	free(path);
	free(away);
}

int main(void)
{
	if (!mkdtemp(folder))
		return 1;
	check_whole();
	check_failures();
	rmdir(folder);
	return 0;
}
