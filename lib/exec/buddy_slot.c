/* The files of a slot. See buddy_slot.h. */
#define _GNU_SOURCE
#include "exec/buddy_slot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "util/hash.h"
#include "util/mem.h"

const char *const dlb_slot_ends[] = { "part", "kept", "head" };

char *dlb_slot_path(const char *folder, uint64_t start, int rank, int slot, const char *end)
{
	return dlb_xprintf("%s/%016" PRIx64 "-%d-%d.%s", folder, start, rank, slot, end);
}

int dlb_slot_file_open(struct dlb_slot_file *f, const char *path, size_t bytes, struct dlb_error *err)
{
	int rc;

	dlb_slot_file_close(f);
	if (!bytes)
		return 0;
	f->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	rc = f->fd < 0 ? errno : posix_fallocate(f->fd, 0, (off_t)bytes);
	if (!rc && ftruncate(f->fd, (off_t)bytes))
		rc = errno;
	if (!rc) {
		f->p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
		rc = f->p == MAP_FAILED ? errno : 0;
	}
	if (rc) {
		dlb_fail(err, NULL, "cannot keep a copy of %.4g MB in '%s': %s", (double)bytes / 1e6, path,
			 strerror(rc));
		dlb_hint(err, "make room there, or leave out --buddy-every");
		f->p = NULL;
		if (f->fd >= 0)
			close(f->fd);
		return -1;
	}
	f->bytes = bytes;
	return 0;
}

void dlb_slot_file_close(struct dlb_slot_file *f)
{
	if (f->p) {
		munmap(f->p, f->bytes);
		close(f->fd);
	}
	*f = (struct dlb_slot_file){ .fd = -1 };
}

struct dlb_slot_head *dlb_slot_head_of(const struct dlb_slot *s)
{
	return (struct dlb_slot_head *)(void *)s->head.p;
}

uint64_t dlb_slot_sum(const struct dlb_slot_file *f)
{
	struct dlb_checksum c = { { 0 } };

	if (!f->p)
		return 0;
	dlb_checksum_add(&c, f->p, f->bytes);
	return dlb_checksum_end(&c);
}

int *dlb_slot_hosts(struct dlb_comm *comm, struct dlb_error *err)
{
	const int n = dlb_comm_size(comm);
	int *host = dlb_xcalloc((size_t)n + 1, sizeof *host);
	const int lowest = n > 1 ? dlb_comm_local(comm, 0) : 0;

	if (dlb_comm_gather(comm, &lowest, sizeof lowest, host, 0, err) ||
	    dlb_comm_bcast(comm, host, (size_t)n * sizeof *host, 0, err)) {
		free(host);
		return NULL;
	}
	return host;
}
