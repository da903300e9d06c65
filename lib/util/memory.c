/* Sizes and limits of memory. See memory.h. */
#define _XOPEN_SOURCE 700
#include "util/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/mem.h"

/* Reads a number from a file of one line; infinity: no number, or "max". */
static double number_in(const char *path)
{
	FILE *f = fopen(path, "r");
	double x;
	const bool found = f && fscanf(f, "%lf", &x) == 1;

	if (f)
		fclose(f);
	return found ? x : HUGE_VAL;
}

/* Returns the number after `name` in a file of lines "NAME NUMBER"; infinity: none. */
static double number_of(const char *path, const char *name)
{
	const size_t n = strlen(name);
	FILE *f = fopen(path, "r");
	char line[256];
	double x = HUGE_VAL;

	while (f && isinf(x) && fgets(line, sizeof line, f))
		if (!strncmp(line, name, n) && strchr(" :", line[n]) && sscanf(line + n + 1, "%lf", &x) != 1)
			x = HUGE_VAL;
	if (f)
		fclose(f);
	return x;
}

/* Files of a control group, by version. A version 1 group without a limit states a huge one: the greatest
 * number of whole pages, in bytes. */
static const struct group_files {
	const char *line; /* start of the group's line, before its path */
	const char *folder[2]; /* below the mount */
	const char *limit, *used, *files; /* files: the line of memory.stat for caches of files */
} versions[] = {
	{ "0::", { "", "/unified" }, "memory.max", "memory.current", "inactive_file" },
	{ ":memory:",
	  { "/memory", "/memory" },
	  "memory.limit_in_bytes",
	  "memory.usage_in_bytes",
	  "total_inactive_file" },
};
static const double no_limit = 0x1p62;

/* Lowers the limit and free bytes in *g to those of the group in folder `at`. */
static void take_group(const struct group_files *v, const char *at, struct dlb_memory_group *g)
{
	char *limit_path = dlb_xprintf("%s/%s", at, v->limit), *used_path = dlb_xprintf("%s/%s", at, v->used),
	     *stat_path = dlb_xprintf("%s/memory.stat", at);
	const double limit = number_in(limit_path), files = number_of(stat_path, v->files);
	double used = number_in(used_path);

	free(limit_path);
	free(used_path);
	free(stat_path);
	if (!(limit < no_limit))
		return;
	if (isinf(used))
		used = 0;
	if (!isinf(files))
		used -= fmin(files, used);
	g->limit_bytes = fmin(g->limit_bytes, limit);
	g->free_bytes = fmin(g->free_bytes, limit - used);
}

/* Lowers *g to the group at path `group` below folder `root` and to all groups above it. */
static void take_groups(const struct group_files *v, const char *root, const char *group, int length,
			struct dlb_memory_group *g)
{
	char *at = dlb_xprintf("%s%.*s", root, length, group);
	const size_t n = strlen(root);

	for (char *end = at + strlen(at); end && (size_t)(end - at) >= n; end = strrchr(at, '/')) {
		*end = '\0';
		take_group(v, at, g);
		if ((size_t)(end - at) == n)
			break;
	}
	free(at);
}

struct dlb_memory_group dlb_memory_group(const char *groups, const char *mounted)
{
	struct dlb_memory_group g = { HUGE_VAL, HUGE_VAL };

	for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
		const char *line = strstr(groups, versions[v].line);

		for (int i = 0; i < 2 && line; i++) {
			const char *group = line + strlen(versions[v].line);
			char *root = dlb_xprintf("%s%s", mounted, versions[v].folder[i]);

			take_groups(&versions[v], root, group, (int)strcspn(group, "\n"), &g);
			free(root);
		}
	}
	return g;
}

static struct dlb_memory_group own_group(void)
{
	char text[4096];
	FILE *f = fopen("/proc/self/cgroup", "r");
	const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = '\0';
	return dlb_memory_group(text, "/sys/fs/cgroup");
}

static double machine_bytes(void) { return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE); }

double dlb_memory_host_bytes(void)
{
	const double swap = 1024 * number_of("/proc/meminfo", "SwapTotal");

	return fmin(machine_bytes() + (isinf(swap) ? 0 : swap), own_group().limit_bytes);
}

double dlb_memory_process_bytes(void)
{
	static const int limits[] = { RLIMIT_AS, RLIMIT_DATA };
	double bytes = HUGE_VAL;

	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		struct rlimit r;

		if (getrlimit(limits[i], &r) == 0 && r.rlim_cur != RLIM_INFINITY)
			bytes = fmin(bytes, (double)r.rlim_cur);
	}
	return bytes;
}

double dlb_memory_free_bytes(void)
{
	return fmin(1024 * number_of("/proc/meminfo", "MemAvailable"), own_group().free_bytes);
}

double dlb_memory_bytes(void)
{
	return fmin(fmin(machine_bytes(), own_group().limit_bytes), dlb_memory_process_bytes());
}
