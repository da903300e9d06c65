/* Offloaded tensors of a node. See offload_store.h. */
#define _GNU_SOURCE
#include "exec/offload_store.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "exec/runtime.h"
#include "plan/offload.h"
#include "util/mem.h"

/* most pending copies; a further request waits until one ends */
enum { MOST_COPIES = 64 };

struct region {
	char *p;
	size_t bytes;
	int memory;
	off_t at;
};
struct copy {
	char *near, *far;
	size_t bytes;
	bool fetches;
};
struct dlb_offload_store {
	const struct dlb_cluster *cluster;
	int node;
	struct dlb_backend *device; /* NULL: the node computes in host memory */
	struct region *region;
	int n_regions, cap_regions;
	/* [memory of the cluster] fd: its file, -1: none yet; end: bytes of the file that are allocated */
	int *fd;
	off_t *end;
	struct dlb_binder *binder;
	pthread_t thread;
	bool started, ends;
	pthread_mutex_t lock;
	pthread_cond_t asked, done;
	struct copy copy[MOST_COPIES]; /* number k is copy[k % MOST_COPIES] */
	int64_t n_asked, n_done;
	int error; /* errno of the first copy that failed; 0: none */
};

struct dlb_offload_store *dlb_offload_store_new(const struct dlb_cluster *c, int node, struct dlb_backend *be)
{
	struct dlb_offload_store *s = dlb_xcalloc(1, sizeof *s);

	s->cluster = c;
	s->node = node;
	s->device = dlb_is_host_memory(be) ? NULL : be;
	s->fd = dlb_xmalloc(((size_t)c->n_memories + 1) * sizeof *s->fd);
	s->end = dlb_xcalloc((size_t)c->n_memories + 1, sizeof *s->end);
	for (int i = 0; i <= c->n_memories; i++)
		s->fd[i] = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->asked, NULL);
	pthread_cond_init(&s->done, NULL);
	return s;
}

static void unmap(struct dlb_offload_store *s, const struct region *r)
{
	if (s->device)
		s->device->ops->host_free(s->device, r->p);
	else
		munmap(r->p, r->bytes);
}

void dlb_offload_store_free(struct dlb_offload_store *s)
{
	if (!s)
		return;
	if (s->started) {
		pthread_mutex_lock(&s->lock);
		s->ends = true;
		pthread_cond_signal(&s->asked);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->thread, NULL);
	}
	for (int i = 0; i < s->n_regions; i++)
		unmap(s, &s->region[i]);
	for (int i = 0; i < s->cluster->n_memories; i++)
		if (s->fd[i] >= 0)
			close(s->fd[i]);
	dlb_binder_free(s->binder);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->asked);
	pthread_cond_destroy(&s->done);
	free(s->region);
	free(s->fd);
	free(s->end);
	free(s);
}

/* ---- room ---- */

static int open_file(struct dlb_offload_store *s, int memory, struct dlb_error *err)
{
	const char *folder = s->cluster->memory[memory].folder;
	char *path;

	if (s->fd[memory] >= 0)
		return 0;
	path = dlb_xprintf("%s/dlb-offload-XXXXXX", folder);
	s->fd[memory] = mkostemp(path, O_CLOEXEC);
	if (s->fd[memory] < 0)
		dlb_refuse(err, folder, "name a folder that can be written in /cluster/memories",
			   "cannot make a file for offloaded tensors: %s", strerror(errno));
	else
		unlink(path);
	free(path);
	return s->fd[memory] < 0 ? -1 : 0;
}

/* Maps the pages of a new region; MAP_FAILED with err. */
static void *map(struct dlb_offload_store *s, struct region *r, const char *name, struct dlb_error *err)
{
	const struct dlb_memory *m = &s->cluster->memory[r->memory];
	int no;
	void *p;

	if (s->device) {
		p = s->device->ops->host_alloc(s->device, r->bytes);
		if (p)
			memset(p, 0, r->bytes);
		else
			p = MAP_FAILED;
		errno = ENOMEM;
	} else if (!m->folder) {
		p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p != MAP_FAILED &&
		    ((!s->binder && dlb_binder_open(&s->binder, s->cluster, s->node, err)) ||
		     dlb_binder_bind_to(s->binder, m, p, r->bytes, err))) {
			munmap(p, r->bytes);
			return MAP_FAILED;
		}
	} else {
		if (open_file(s, r->memory, err))
			return MAP_FAILED;
		r->at = s->end[r->memory];
		/* a full disk fails here rather than in the middle of a step */
		if ((no = posix_fallocate(s->fd[r->memory], r->at, (off_t)r->bytes))) {
			dlb_refuse(err, m->folder, "free some, or offload less",
				   "no %zu bytes for what is offloaded of '%s': %s", r->bytes, name,
				   strerror(no));
			return MAP_FAILED;
		}
		p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd[r->memory], r->at);
		s->end[r->memory] += (off_t)r->bytes;
	}
	if (p == MAP_FAILED)
		dlb_fail(err, NULL, "no memory for what is offloaded of '%s': %s", name, strerror(errno));
	return p;
}

void *dlb_offload_store_alloc(struct dlb_offload_store *s, const char *memory, size_t bytes, const char *name,
			      struct dlb_error *err)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct region r = { .bytes = (bytes + page) / page * page,
			    .memory = dlb_offload_memory(s->cluster, s->node, memory) };

	r.p = map(s, &r, name, err);
	if (r.p == MAP_FAILED)
		return NULL;
	DLB_GROW(s->region, s->n_regions, s->cap_regions);
	s->region[s->n_regions++] = r;
	return r.p;
}

static struct region *region_of(const struct dlb_offload_store *s, const char *p)
{
	for (int i = 0; i < s->n_regions; i++)
		if (p >= s->region[i].p && p < s->region[i].p + s->region[i].bytes)
			return &s->region[i];
	return NULL;
}

bool dlb_offload_store_has(const struct dlb_offload_store *s, const void *p)
{
	return s && p && region_of(s, p);
}

bool dlb_offload_store_is_in(const struct dlb_offload_store *s, const void *p, const char *memory)
{
	const struct region *r = s ? region_of(s, p) : NULL;

	return memory ? r && r->memory == dlb_offload_memory(s->cluster, s->node, memory) : !r;
}

bool dlb_offload_store_release_room(struct dlb_offload_store *s, const void *p)
{
	struct region *r = s && p ? region_of(s, p) : NULL;

	if (!r)
		return false;
	unmap(s, r);
	if (s->fd[r->memory] >= 0)
		(void)!fallocate(s->fd[r->memory], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, r->at,
				 (off_t)r->bytes);
	*r = s->region[--s->n_regions];
	return true;
}

/* ---- copies ---- */

/* Reads or writes the bytes of a file. Returns 0 or errno. */
static int copy_file(int fd, const struct copy *x, off_t at)
{
	for (size_t done = 0; done < x->bytes;) {
		const off_t from = at + (off_t)done;
		const ssize_t n = x->fetches ? pread(fd, x->near + done, x->bytes - done, from) :
					       pwrite(fd, x->near + done, x->bytes - done, from);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		done += (size_t)n;
	}
	return 0;
}

static int copy_one(const struct dlb_offload_store *s, const struct copy *x)
{
	const struct region *r = region_of(s, x->far);

	if (s->fd[r->memory] >= 0)
		return copy_file(s->fd[r->memory], x, r->at + (x->far - r->p));
	memcpy(x->fetches ? x->near : x->far, x->fetches ? x->far : x->near, x->bytes);
	return 0;
}

static void *copy_all(void *arg)
{
	struct dlb_offload_store *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct copy x;
		int no;

		while (s->n_done == s->n_asked && !s->ends)
			pthread_cond_wait(&s->asked, &s->lock);
		if (s->n_done == s->n_asked)
			break;
		x = s->copy[s->n_done % MOST_COPIES];
		pthread_mutex_unlock(&s->lock);
		no = copy_one(s, &x);
		pthread_mutex_lock(&s->lock);
		s->error = s->error ? s->error : no;
		s->n_done++;
		pthread_cond_broadcast(&s->done);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int64_t ask(struct dlb_offload_store *s, struct copy x)
{
	int64_t n;

	pthread_mutex_lock(&s->lock);
	if (!s->started) {
		s->error = pthread_create(&s->thread, NULL, copy_all, s);
		s->started = !s->error;
	}
	while (s->started && s->n_asked - s->n_done == MOST_COPIES)
		pthread_cond_wait(&s->done, &s->lock);
	n = s->n_asked++;
	s->copy[n % MOST_COPIES] = x;
	if (!s->started) /* dlb_offload_store_wait reports s->error */
		s->n_done = s->n_asked;
	pthread_cond_signal(&s->asked);
	pthread_mutex_unlock(&s->lock);
	return n;
}

int64_t dlb_offload_store_fetch(struct dlb_offload_store *s, void *near, const void *far, size_t bytes)
{
	return ask(s, (struct copy){ near, (char *)(uintptr_t)far, bytes, true });
}

int64_t dlb_offload_store_put(struct dlb_offload_store *s, void *far, const void *near, size_t bytes)
{
	return ask(s, (struct copy){ (char *)(uintptr_t)near, far, bytes, false });
}

bool dlb_offload_store_is_done(struct dlb_offload_store *s, int64_t copy)
{
	pthread_mutex_lock(&s->lock);
	const bool done = s->n_done > copy;
	pthread_mutex_unlock(&s->lock);
	return done;
}

int dlb_offload_store_wait(struct dlb_offload_store *s, int64_t copy, struct dlb_error *err)
{
	int no;

	pthread_mutex_lock(&s->lock);
	while (s->n_done <= copy)
		pthread_cond_wait(&s->done, &s->lock);
	no = s->error;
	pthread_mutex_unlock(&s->lock);
	return no ? dlb_fail(err, NULL, "copying offloaded tensors: %s", strerror(no)) : 0;
}
