/* Measures a folder as a memory for offloaded tensors. See probe_folder.h. */
#define _GNU_SOURCE
#include "exec/probe_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "util/clock.h"
#include "util/mem.h"

/* bytes written or read at once; most of these blocks, fewer if a tenth of the free bytes is less; bytes of
 * the small read */
enum { BLOCK = 1 << 20, MOST_BLOCKS = 256, SMALL = 4096 };

/* Writes (or reads) n blocks. 0 or errno. */
static int pass(int fd, char *block, int n, bool writes)
{
	for (int i = 0; i < n; i++) {
		const off_t at = (off_t)i * BLOCK;
		const ssize_t got = writes ? pwrite(fd, block, BLOCK, at) : pread(fd, block, BLOCK, at);

		if (got != BLOCK)
			return got < 0 ? errno : ENOSPC;
	}
	return writes && fdatasync(fd) ? errno : 0;
}

/* Fills bandwidth and latency. 0 or errno. */
static int time_file(int fd, int n, struct dlb_memory *m)
{
	char *block = dlb_xcalloc(1, BLOCK);
	double start_s = dlb_clock_s(), read_s;
	int no = pass(fd, block, n, true);
	const double write_s = dlb_clock_s() - start_s;

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	start_s = dlb_clock_s();
	no = no ? no : pread(fd, block, SMALL, (off_t)(n / 2) * BLOCK) != SMALL ? EIO : 0;
	m->latency_s = dlb_clock_s() - start_s;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	start_s = dlb_clock_s();
	no = no ? no : pass(fd, block, n, false);
	read_s = dlb_clock_s() - start_s;
	m->bandwidth_Bps = 2.0 * n * BLOCK / (write_s + read_s);
	free(block);
	return no;
}

static int add_folder(struct dlb_cluster *c, int group, const char *name, const char *folder,
		      struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/dlb-probe-XXXXXX", folder);
	const int fd = mkostemp(path, O_CLOEXEC);
	struct statvfs fs;
	int no = fd < 0 ? errno : 0, n;

	if (!no) {
		unlink(path);
		no = fstatvfs(fd, &fs) ? errno : 0;
	}
	free(path);
	if (!no) {
		const double bytes = (double)fs.f_bavail * (double)fs.f_frsize;
		const int k = dlb_cluster_add_memory(c, group, name, DLB_MEMORY_FILE, bytes);

		c->memory[k].folder = dlb_arena_strdup(&c->arena, folder);
		n = bytes / 10 / BLOCK < MOST_BLOCKS ? (int)(bytes / 10 / BLOCK) : MOST_BLOCKS;
		no = n < 1 ? ENOSPC : time_file(fd, n, &c->memory[k]);
	}
	if (fd >= 0)
		close(fd);
	return no ? dlb_refuse(err, folder, "name a folder of this host that can be written",
			       "cannot be measured as a memory: %s", strerror(no)) :
		    0;
}

int dlb_cluster_add_folders(struct dlb_cluster *c, const char *const *name_folder, int n,
			    struct dlb_error *err)
{
	int host = -1;

	for (int g = 0; g < c->n_groups && n; g++) {
		if (strcmp(c->group[g].cls, "host"))
			continue;
		if (host >= 0)
			return dlb_refuse(err, NULL, "add the others to /cluster/memories",
					  "--memory measures a folder of one host, not of several");
		host = g;
	}
	for (int i = 0; i < n; i++) {
		char *name = dlb_arena_strdup(&c->arena, name_folder[i]), *equals = strchr(name, '=');

		*equals = '\0'; /* the options were checked */
		for (int k = 0; k < c->n_memories; k++)
			if (!strcmp(c->memory[k].name, name))
				return dlb_refuse(err, NULL, "choose another name",
						  "--memory: there is a memory '%s'", name);
		if (add_folder(c, host < 0 ? 0 : host, name, equals + 1, err))
			return -1;
	}
	return 0;
}
