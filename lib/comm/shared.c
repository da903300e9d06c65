/* Shared memory and wakeups: see shared.h. Linux: memfd_create, /proc/PID/fd to open another process's,
 * futexes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "comm/shared.h"
#include "util/mem.h"

#define PAGE ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)
#define MOST_ADDRESSES ((size_t)1 << 45) /* of all regions of a host: a quarter of x86-64's addresses */

struct shm_block { size_t begin, end; };
struct dlb_region {
	int fd;
	char *base;
	size_t bytes;
	/* allocated, by address; block 0 is the first page */
	struct shm_block *block; int n_blocks, cap_blocks;
	struct shm_block *own; int n_own, cap_own;			/* private parts of these */
};

/* The first page: the secret, then the wakeup. */
struct dlb_wakeup { _Alignas(64) _Atomic uint32_t sent; _Atomic uint32_t asleep; };
enum { WAKEUP_AT = 64 };

static size_t up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static void *map(const struct dlb_region *r, int fd)
{
	void *p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, r->bytes, MADV_DONTDUMP);
	/* has an effect only if the system allows huge pages for shared memory */
	madvise(p, r->bytes, MADV_HUGEPAGE);
	return p;
}

struct dlb_region *dlb_region_new(int n_local, struct dlb_region_key *key)
{
	struct dlb_region *r = dlb_xcalloc(1, sizeof *r);
	size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE),
	       most = MOST_ADDRESSES / (size_t)n_local;

	*key = (struct dlb_region_key){ .pid = getpid(), .fd = -1 };
	r->bytes = up(memory < most ? memory : most, HUGE_PAGE);
	r->fd = memfd_create("dlb", MFD_CLOEXEC);
	if (r->fd < 0 || ftruncate(r->fd, (off_t)r->bytes) || !(r->base = map(r, r->fd)) ||
	    getrandom(&key->secret, sizeof key->secret, 0) != sizeof key->secret) {
		dlb_region_free(r);
		return NULL;
	}
	key->fd = r->fd;
	key->bytes = r->bytes;
	*(uint64_t *)(void *)r->base = key->secret;
	DLB_GROW(r->block, r->n_blocks, r->cap_blocks);
	r->block[r->n_blocks++] = (struct shm_block){ 0, PAGE };
	return r;
}

void dlb_region_free(struct dlb_region *r)
{
	if (!r)
		return;
	if (r->base)
		munmap(r->base, r->bytes);
	if (r->fd >= 0)
		close(r->fd);
	free(r->block);
	free(r->own);
	free(r);
}

/* Maps the region of another rank. In a container the pid may belong to another process; the secret shows
 * whether the region is the right one. */
char *dlb_region_enter(const struct dlb_region *r, const struct dlb_region_key *theirs)
{
	char path[64], *p = NULL;
	struct stat st;
	int fd;

	if (theirs->fd < 0 || theirs->bytes != r->bytes)
		return NULL;
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)theirs->pid, (long long)theirs->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && (size_t)st.st_size == r->bytes)
		p = map(r, fd);
	close(fd);
	if (!p || *(const uint64_t *)(const void *)p == theirs->secret)
		return p;
	munmap(p, r->bytes);
	return NULL;
}

void dlb_region_leave(const struct dlb_region *r, char *theirs)
{
	if (theirs)
		munmap(theirs, r->bytes);
}

char *dlb_region_base(const struct dlb_region *r) { return r->base; }
size_t dlb_region_bytes(const struct dlb_region *r) { return r->bytes; }

void *dlb_region_alloc(struct dlb_region *r, size_t bytes)
{
	size_t n = up(bytes ? bytes : 1, PAGE), align = n >= HUGE_PAGE ? HUGE_PAGE : PAGE, at = 0;
	int i = 0;

	if (n < bytes)
		return NULL;
	for (; i < r->n_blocks; i++) {		/* the first gap that is large enough */
		at = up(r->block[i].end, align);
		if (at + n <= (i + 1 < r->n_blocks ? r->block[i + 1].begin : r->bytes))
			break;
	}
	if (i == r->n_blocks || at + n < n)
		return NULL;
	DLB_GROW(r->block, r->n_blocks, r->cap_blocks);
	for (int k = r->n_blocks++; k > i + 1; k--)
		r->block[k] = r->block[k - 1];
	r->block[i + 1] = (struct shm_block){ at, at + n };
	return r->base + at;
}

static void forget_own(struct dlb_region *r, struct shm_block b)
{
	int n = 0;

	for (int i = 0; i < r->n_own; i++)
		if (r->own[i].begin < b.begin || r->own[i].begin >= b.end)
			r->own[n++] = r->own[i];
	r->n_own = n;
}

/* Frees the block at p and makes its private pages shared again. */
void dlb_region_release(struct dlb_region *r, void *p)
{
	size_t at = (size_t)((char *)p - r->base);

	for (int i = 0; p && i < r->n_blocks; i++) {
		size_t bytes = r->block[i].end - at;

		if (r->block[i].begin != at)
			continue;
		if (mmap(p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, r->fd,
			 (off_t)at) == MAP_FAILED)
			dlb_bug("shared memory of %zu bytes is lost", bytes);
		madvise(p, bytes, MADV_DONTDUMP);
		fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes);
		forget_own(r, r->block[i]);
		for (; i + 1 < r->n_blocks; i++)
			r->block[i] = r->block[i + 1];
		r->n_blocks--;
		return;
	}
}

bool dlb_region_private(struct dlb_region *r, void *p, size_t bytes)
{
	size_t from = up((size_t)((char *)p - r->base), PAGE),
	       to = (size_t)((char *)p - r->base + bytes) / PAGE * PAGE;

	if (to <= from)
		return true;
	if (mmap(r->base + from, to - from, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	madvise(r->base + from, to - from, MADV_HUGEPAGE);
	DLB_GROW(r->own, r->n_own, r->cap_own);
	r->own[r->n_own++] = (struct shm_block){ from, to };
	return true;
}

bool dlb_region_shares(const struct dlb_region *r, const void *p, size_t bytes)
{
	size_t from = (size_t)((const char *)p - r->base), to = from + bytes;
	bool taken = false;

	for (int i = 0; i < r->n_blocks; i++)
		taken |= from >= r->block[i].begin && to <= r->block[i].end;
	for (int i = 0; i < r->n_own; i++)
		if (from < r->own[i].end && r->own[i].begin < to)
			return false;
	return taken;
}

void dlb_region_touch(void *p, size_t bytes)
{
	volatile char *byte = p;

#ifdef MADV_POPULATE_WRITE
	size_t from = (size_t)p / PAGE * PAGE, to = up((size_t)p + bytes, PAGE);

	if (madvise((void *)from, to - from, MADV_POPULATE_WRITE) == 0)
		return;
#endif
	for (size_t i = 0; i < bytes; i += PAGE)
		(void)byte[i];
}

struct dlb_wakeup *dlb_wakeup_of(char *base)
{
	return (struct dlb_wakeup *)(void *)(base + WAKEUP_AT);
}

uint32_t dlb_wakeup_count(const struct dlb_wakeup *b)
{
	return atomic_load(&b->sent);
}

/* All four accesses are sequentially consistent: if the sender sees no sleeper, the waiter's futex sees the
 * new count. */
void dlb_wakeup_send(struct dlb_wakeup *b)
{
	atomic_fetch_add(&b->sent, 1);
	if (atomic_load(&b->asleep))
		syscall(SYS_futex, &b->sent, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void dlb_wakeup_wait(struct dlb_wakeup *b, uint32_t seen, double s)
{
	const struct timespec t = { .tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9) };

	atomic_store(&b->asleep, 1);
	syscall(SYS_futex, &b->sent, FUTEX_WAIT, seen, &t, NULL, 0);
	atomic_store(&b->asleep, 0);
}
