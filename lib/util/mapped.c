/* Maps files: see mapped.h. The list of mapped files is global because a signal handler reads it. Its entries
 * are never freed, only used again, so that the handler can walk the list at any time. */
#define _DEFAULT_SOURCE				/* MAP_ANONYMOUS */
#include "util/mapped.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "util/mem.h"

#define PAGE ((uintptr_t)4096)

struct mapped_file {
	struct mapped_file *next;
	_Atomic uintptr_t begin, end;		/* equal: free */
	atomic_bool lost;			/* a read failed; kept after the file is unmapped */
	char *path;
	size_t bytes;
	dev_t device;
	ino_t inode;
};

static struct mapped_file *_Atomic files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Maps zeros over the file's pages, from the page that could not be read to the end. Any other fault ends the
 * process: the handler is removed, and the instruction that failed runs again. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	const uintptr_t at = (uintptr_t)info->si_addr / PAGE * PAGE;
	const int before = errno;

	(void)context;
	for (struct mapped_file *f = atomic_load(&files); f; f = f->next) {
		const uintptr_t begin = atomic_load(&f->begin), end = atomic_load(&f->end);

		if (at < begin || at >= end ||
		    mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
			    MAP_FAILED)
			continue;
		atomic_store(&f->lost, true);
		errno = before;
		return;
	}
	signal(sig, SIG_DFL);
}

/* Installs the handler. Called for every file that is mapped, since MPI may have replaced the handler. */
static void catch_faults(void)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	sigemptyset(&a.sa_mask);
	sigaction(SIGBUS, &a, NULL);
}

/* Returns a free entry, new or used before. The caller holds the lock. */
static struct mapped_file *free_entry(void)
{
	struct mapped_file *f = atomic_load(&files);

	while (f && (atomic_load(&f->end) || atomic_load(&f->lost)))
		f = f->next;
	if (f)
		return f;
	f = dlb_xcalloc(1, sizeof *f);
	f->next = atomic_load(&files);
	atomic_store(&files, f);
	return f;
}

void *dlb_mapped_new(int fd, size_t bytes, const char *path)
{
	void *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	struct mapped_file *f;
	struct stat st;

	if (p == MAP_FAILED)
		return NULL;
	pthread_mutex_lock(&lock);
	catch_faults();
	f = free_entry();
	free(f->path);
	f->path = dlb_xstrdup(path);
	f->bytes = bytes;
	f->device = f->inode = 0;
	if (!fstat(fd, &st)) {
		f->device = st.st_dev;
		f->inode = st.st_ino;
	}
	atomic_store(&f->begin, (uintptr_t)p);
	atomic_store(&f->end, (uintptr_t)p + (bytes + PAGE - 1) / PAGE * PAGE);
	pthread_mutex_unlock(&lock);
	return p;
}

void dlb_mapped_free(void *p, size_t bytes)
{
	if (!p)
		return;
	pthread_mutex_lock(&lock);
	for (struct mapped_file *f = atomic_load(&files); f; f = f->next)
		if (atomic_load(&f->begin) == (uintptr_t)p) {
			atomic_store(&f->end, 0);
			atomic_store(&f->begin, 0);
		}
	munmap(p, bytes);
	pthread_mutex_unlock(&lock);
}

/* Whether the mapped file is now shorter than when it was mapped. A read behind its end but in its last page
 * raises no signal, so sizes must be compared. A file that has since been replaced by another of its name
 * does not count: the mapped file still exists. */
static bool is_shorter(const struct mapped_file *f)
{
	struct stat st;

	return atomic_load(&f->end) && !stat(f->path, &st) && st.st_dev == f->device &&
	       st.st_ino == f->inode && (uint64_t)st.st_size < f->bytes;
}

int dlb_mapped_check(struct dlb_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	for (struct mapped_file *f = atomic_load(&files); f && !rc; f = f->next)
		if (atomic_load(&f->lost) || is_shorter(f))
			rc = dlb_refuse(err, f->path, "is the whole file there?",
					"it became shorter while its data were in use, or cannot be read");
	pthread_mutex_unlock(&lock);
	return rc;
}
