/* memory: limits of control groups, from folders like those of the kernel. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/mem.h"
#include "util/memory.h"
#include "check.h"

static char root[] = "/tmp/test_memory.XXXXXX";

/* Writes a file below root, with the folders above it. */
static void put(const char *path, const char *text)
{
	char *name = dlb_xprintf("%s/%s", root, path);
	FILE *f;

	for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(name, 0700);
		*at = '/';
	}
	f = fopen(name, "w");
	assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
	free(name);
}

static void finds(const char *groups, double limit_bytes, double free_bytes)
{
	const struct dlb_memory_group g = dlb_memory_group(groups, root);

	assert(IS(g.limit_bytes, ==, limit_bytes) && IS(g.free_bytes, ==, free_bytes));
}

static void version_2(void)
{
	put("a/memory.max", "8000\n");
	put("a/memory.current", "5000\n");
	put("a/memory.stat", "anon 4000\ninactive_file 700\nactive_file 300\n");
	put("a/b/memory.max", "max\n");
	put("a/b/memory.current", "1000\n");
	put("a/c/memory.max", "6000\n");
	put("a/c/memory.current", "500\n");
	finds("0::/a\n", 8000, 3700);
	finds("0::/a/b\n", 8000, 3700); /* its own has none: that above it */
	finds("0::/a/c\n", 6000, 3700); /* the least of each */
	finds("0::/\n", HUGE_VAL, HUGE_VAL);
	finds("0::/not/here\n", HUGE_VAL, HUGE_VAL);
	put("memory.max", "2000\n");
	finds("0::/not/here\n", 2000, 2000); /* a container sees its own group as the root */
	finds("", HUGE_VAL, HUGE_VAL);
}

static void version_1(void)
{
	put("memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("memory/x/memory.limit_in_bytes", "4096\n");
	put("memory/x/memory.usage_in_bytes", "4000\n");
	put("memory/x/memory.stat", "inactive_file 1\ntotal_inactive_file 900\n");
	put("unified/memory.max", "3000\n");
	finds("5:cpu:/y\n4:memory:/x/y\n", 4096, 996);
	finds("5:cpu:/x\n4:memory:/\n", HUGE_VAL, HUGE_VAL);
	finds("4:memory:/x\n0::/\n", 2000, 996);
}

static void here(void)
{
	assert(IS(dlb_memory_host_bytes(), >, 1e6) && IS(dlb_memory_free_bytes(), >, 0));
	assert(IS(dlb_memory_bytes(), <=, dlb_memory_host_bytes()));
	assert(IS(dlb_memory_bytes(), <=, dlb_memory_process_bytes()));
}

int main(void)
{
	assert(mkdtemp(root));
	version_2();
	version_1();
	here();
	puts("memory: limits of control groups and those above them");
	fflush(stdout);
	return execlp("rm", "rm", "-r", root, (char *)NULL);
}
