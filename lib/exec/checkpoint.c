/* Checkpoints: the folder, and the collective work of all ranks. See checkpoint.h. Each stage ends in
 * dlb_comm_agree, so all ranks return an error of one rank. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/await.h"
#include "exec/checkpoint_files.h"
#include "exec/state.h"
#include "util/clock.h"
#include "util/output.h"

/* ---- the folder ---- */

static int make_dirs(const char *dir, struct dlb_error *err)
{
	char *p = dlb_xstrdup(dir);
	int rc = 0;

	for (char *q = p + 1; !rc; q++) {
		char c = *q;

		if (c && c != '/')
			continue;
		*q = '\0';
		if (mkdir(p, 0777) && errno != EEXIST)
			rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", p, strerror(errno));
		*q = c;
		if (!c)
			break;
	}
	free(p);
	return rc;
}

/* Takes the lock; waits for the time that the ranks of a killed run may need to end. */
static int take_lock(int fd, struct flock *l)
{
	int rc;

	for (int i = 0; (rc = fcntl(fd, F_SETLK, l)) && (errno == EACCES || errno == EAGAIN) && i < 60; i++)
		dlb_sleep_s(0.05);
	return rc;
}

static int lock(struct dlb_checkpoint *c, struct dlb_error *err)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	c->folder = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->folder < 0)
		return dlb_fail(err, NULL, "cannot open '%s': %s", c->dir, strerror(errno));
	c->lock = openat(c->folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (c->lock < 0)
		return dlb_fail(err, NULL, "cannot open '%s/lock': %s", c->dir,
				errno == ELOOP ? "it is a symbolic link" : strerror(errno));
	if (take_lock(c->lock, &l)) {
		long pid = fcntl(c->lock, F_GETLK, &l) == 0 && l.l_type != F_UNLCK ? (long)l.l_pid : 0;

		return dlb_fail(err, NULL, "checkpoint folder '%s' is in use by another run (process %ld)",
				c->dir, pid);
	}
	return 0;
}

/* ---- do all ranks see one folder? ---- */

/* Runs `work` on the disk. The work may take longer than --timeout on one rank, so all ranks wait without
 * limit. */
static int on_disk(struct dlb_comm *comm, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		   struct dlb_error *err)
{
	return dlb_comm_agree(comm, dlb_comm_await_all(comm, work, ctx, err), err, NULL);
}

/* The checkpoint folder that is being opened. name: the file that rank 0 puts there. */
struct folder_opening { struct dlb_checkpoint *c; const struct dlb_comm *comm; char name[40]; };

/* On ranks other than 0: waits until rank 0's file is visible, and checks that this rank can write in the
 * folder. */
static int see(const char *dir, const char *name, const struct dlb_comm *comm, struct dlb_error *err)
{
	char *theirs = dlb_xprintf("%s/%s", dir, name),
	     *mine = dlb_xprintf("%s/%s-%d", dir, name, dlb_comm_rank(comm));
	int rc = 0, fd;

	for (int i = 0; access(theirs, F_OK) && i < 40; i++)
		dlb_sleep_s(0.05);		/* a network file system may show new files late */
	if (access(theirs, F_OK)) {
		dlb_fail(err, NULL,
			 "checkpoint folder '%s' is not shared: node %d (host %s) does not see what node 0 "
			 "writes there",
			 dir, dlb_comm_rank(comm), dlb_comm_host(comm));
		rc = dlb_hint(err, "give a folder that all hosts have");
	} else {
		fd = open(mine, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
		if (fd < 0)
			rc = dlb_fail(err, NULL,
				      "node %d (host %s) cannot write to checkpoint folder '%s': %s",
				      dlb_comm_rank(comm), dlb_comm_host(comm), dir, strerror(errno));
		else
			close(fd);
		if (fd >= 0)
			unlink(mine);
	}
	free(theirs);
	free(mine);
	return rc;
}

/* Rank 0 makes the folder, locks it and puts a file there that the other ranks look for. */
static int make_folder(void *ctx, struct dlb_error *err)
{
	struct folder_opening *o = ctx;
	uint64_t number = 0;
	int fd;

	if (dlb_comm_rank(o->comm))
		return 0;
	if (make_dirs(o->c->dir, err) || lock(o->c, err))
		return -1;
	if (!dlb_output_number(&number))
		return dlb_fail(err, NULL, "no random numbers for a temporary name in '%s'", o->c->dir);
	snprintf(o->name, sizeof o->name, ".shared-%016" PRIx64, number);
	fd = openat(o->c->folder, o->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0)
		return dlb_fail(err, NULL, "cannot write to '%s': %s", o->c->dir, strerror(errno));
	close(fd);
	return 0;
}

static int check_shared(void *ctx, struct dlb_error *err)
{
	const struct folder_opening *o = ctx;

	return dlb_comm_rank(o->comm) ? see(o->c->dir, o->name, o->comm, err) : 0;
}

static int clean_folder(void *ctx, struct dlb_error *err)
{
	const struct folder_opening *o = ctx;

	(void)err;
	if (dlb_comm_rank(o->comm))
		return 0;
	unlinkat(o->c->folder, o->name, 0);
	dlb_checkpoint_sweep(o->c->folder);
	return 0;
}

int dlb_checkpoint_open(struct dlb_checkpoint *c, const char *dir, struct dlb_comm *comm,
			struct dlb_error *err)
{
	struct folder_opening o = { .c = c, .comm = comm };

	*c = (struct dlb_checkpoint){ .dir = dlb_xstrdup(dir), .lock = -1, .folder = -1 };
	if (on_disk(comm, make_folder, &o, err) || dlb_comm_bcast(comm, o.name, sizeof o.name, 0, err))
		return -1;
	if (on_disk(comm, check_shared, &o, err)) {
		if (dlb_comm_rank(comm) == 0)
			unlinkat(c->folder, o.name, 0);
		return -1;
	}
	return on_disk(comm, clean_folder, &o, err);
}

void dlb_checkpoint_close(struct dlb_checkpoint *c)
{
	if (!c->dir)
		return;
	if (c->lock >= 0)
		close(c->lock);
	if (c->folder >= 0)
		close(c->folder);
	free(c->damaged);
	free(c->dir);
	c->dir = NULL;
}

/* ---- saving ---- */

/* Checksums of the files that a rank has written. */
struct written { char part[65], local[65]; };

/* Gathers the checksums of all ranks' files on rank 0; *sum is new on all ranks. */
static int gather_sums(struct dlb_comm *comm, const struct written *mine, struct dlb_sum **sum, int *n,
		       struct dlb_error *err)
{
	const int size = dlb_comm_size(comm);
	struct written *all = dlb_xcalloc((size_t)size, sizeof *all);
	int rc = dlb_comm_gather(comm, mine, sizeof *mine, all, 0, err);

	*sum = dlb_xcalloc(2 * (size_t)size, sizeof **sum);
	*n = 0;
	for (int i = 0; i < size && !rc && dlb_comm_rank(comm) == 0; i++)
		for (int k = 0; k < 2; k++) {
			const char *sha256 = k ? all[i].local : all[i].part;
			struct dlb_sum *s = &(*sum)[*n];

			if (!sha256[0])
				continue;
			snprintf(s->name, sizeof s->name, "%s-%d.safetensors", k ? "kept" : "part", i);
			memcpy(s->sha256, sha256, sizeof s->sha256);
			++*n;
		}
	free(all);
	return rc;
}

/* A checkpoint that is being written. */
struct saving {
	struct dlb_checkpoint *c;
	const struct dlb_state *state;
	const struct dlb_local_state *local;
	const struct dlb_progress_state *at;
	int rank, n_ranks;
	char name[32], *aside;		/* the folder's name and path */
	struct written mine;
	struct dlb_sum *sum; int n_sums;
	char **path;
};

/* Makes a folder with a random name and writes the list of its future files before any of the files. */
static int make_aside(void *ctx, struct dlb_error *err)
{
	struct saving *s = ctx;
	uint64_t number = 0;
	char *path;
	int rc = 0;

	if (s->rank)
		return 0;
	if (!dlb_output_number(&number))
		rc = dlb_fail(err, NULL, "no random numbers for a temporary name in '%s'", s->c->dir);
	snprintf(s->name, sizeof s->name, DLB_CHECKPOINT_NEW "%016" PRIx64, number);
	path = dlb_xprintf("%s/%s", s->c->dir, s->name);
	if (!rc && mkdirat(s->c->folder, s->name, 0777))
		rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", path, strerror(errno));
	else if (!rc)
		rc = dlb_checkpoint_write_names(path, s->n_ranks, err);
	free(path);
	return rc;
}

static int write_mine(void *ctx, struct dlb_error *err)
{
	struct saving *s = ctx;

	return dlb_checkpoint_write_part(s->aside, s->rank, s->state, s->mine.part, err) ||
	       dlb_checkpoint_write_local(s->aside, s->rank, s->local, s->mine.local, err) ? -1 : 0;
}

static int settle(void *ctx, struct dlb_error *err)
{
	struct saving *s = ctx;

	return s->rank == 0 && (dlb_checkpoint_write_manifest(s->aside, s->state, s->at, s->sum, s->n_sums,
							      err) ||
				dlb_checkpoint_settle(s->c, s->name, s->at->step, s->path, err)) ?
		       -1 :
		       0;
}

int dlb_checkpoint_save(struct dlb_checkpoint *c, struct dlb_comm *comm, const struct dlb_state *state,
			const struct dlb_local_state *local, const struct dlb_progress_state *p, char **path,
			struct dlb_error *err)
{
	struct saving s = { .c = c,
			    .state = state,
			    .local = local,
			    .at = p,
			    .rank = dlb_comm_rank(comm),
			    .n_ranks = dlb_comm_size(comm),
			    .path = path };
	int rc;

	if (path)
		*path = NULL;
	rc = on_disk(comm, make_aside, &s, err) || dlb_comm_bcast(comm, s.name, sizeof s.name, 0, err) ? -1 :
													 0;
	s.aside = dlb_xprintf("%s/%s", c->dir, s.name);
	if (!rc)
		rc = on_disk(comm, write_mine, &s, err) ||
				     gather_sums(comm, &s.mine, &s.sum, &s.n_sums, err) ||
				     on_disk(comm, settle, &s, err) ?
			     -1 :
			     0;
	if (rc && s.rank == 0)
		dlb_checkpoint_remove(c->folder, s.name);
	free(s.sum);
	free(s.aside);
	return rc;
}

/* ---- loading ---- */

/* The checkpoints of a folder, of which one is loaded. */
struct checkpoint_search {
	struct dlb_checkpoint *c;
	struct dlb_state *state;
	struct dlb_progress_state at;
	int rank, n_ranks;
	int64_t step;			/* the checkpoint that is checked or read */
	int64_t *steps; int n;		/* newest first; only rank 0 has the values */
};

static int list_steps(void *ctx, struct dlb_error *err)
{
	struct checkpoint_search *s = ctx;

	(void)err;
	if (!s->rank)
		s->steps = dlb_checkpoint_steps(s->c->folder, &s->n);
	return 0;
}

int dlb_checkpoint_newest_step(struct dlb_checkpoint *c, struct dlb_comm *comm, int64_t *step,
			       struct dlb_error *err)
{
	struct checkpoint_search s = { .c = c, .rank = dlb_comm_rank(comm) };
	const int rc = on_disk(comm, list_steps, &s, err);

	*step = s.n ? s.steps[0] : -1;
	free(s.steps);
	return rc ? -1 : dlb_comm_bcast(comm, step, sizeof *step, 0, err);
}

static int check(void *ctx, struct dlb_error *err)
{
	const struct checkpoint_search *s = ctx;

	return dlb_checkpoint_check(s->c->dir, s->step, s->rank, s->n_ranks, err);
}

static int read_whole(void *ctx, struct dlb_error *err)
{
	struct checkpoint_search *s = ctx;

	return dlb_checkpoint_read(s->c->dir, s->step, s->state, &s->at, err);
}

/* Finds the newest whole checkpoint; s->step -1: there is none. *said: the error of the newest damaged
 * one. */
static int find_whole(struct checkpoint_search *s, struct dlb_comm *comm, struct dlb_error *said,
		      struct dlb_error *err)
{
	struct dlb_checkpoint *c = s->c;
	int cap = 0, rc = 0;

	if (on_disk(comm, list_steps, s, err) || dlb_comm_bcast(comm, &s->n, sizeof s->n, 0, err))
		return -1;
	s->step = -1;
	for (int i = 0; i < s->n; i++) {
		struct dlb_error why = { .what = "" };

		s->step = s->rank ? 0 : s->steps[i];
		if (dlb_comm_bcast(comm, &s->step, sizeof s->step, 0, err)) {
			rc = -1;
			break;
		}
		rc = on_disk(comm, check, s, &why);
		if (!rc)
			break;
		if (dlb_comm_broken(comm)) {
			*err = why;
			break;
		}
		if (!c->n_damaged)
			*said = why;
		DLB_GROW(c->damaged, c->n_damaged, cap);
		c->damaged[c->n_damaged++] = s->step;
	}
	if (rc && !dlb_comm_broken(comm)) {
		*err = *said;
		dlb_hint(err,
			 s->n > 1 ? "none of the %d checkpoints in '%.150s' is whole: give another "
				    "--checkpoint folder" :
				    "give another --checkpoint folder",
			 s->n, c->dir);
	}
	return rc;
}

int dlb_checkpoint_load(struct dlb_checkpoint *c, struct dlb_comm *comm, struct dlb_state *s,
			struct dlb_progress_state *p, bool *found, char **warning, struct dlb_error *err)
{
	struct checkpoint_search search = { .c = c, .state = s, .rank = dlb_comm_rank(comm),
					    .n_ranks = dlb_comm_size(comm) };
	struct dlb_error said = { .what = "" };
	int rc = find_whole(&search, comm, &said, err);

	free(search.steps);
	*warning = NULL;
	*found = !rc && search.step >= 0;
	if (rc || !*found)
		return rc;
	rc = on_disk(comm, read_whole, &search, err);
	if (!rc)
		*p = search.at;
	if (!rc && c->n_damaged)
		*warning = dlb_xprintf("%s%s%s; training goes on from the checkpoint before, %s/step-%lld",
				       said.where, said.where[0] ? ": " : "", said.what, c->dir,
				       (long long)search.step);
	return rc;
}
