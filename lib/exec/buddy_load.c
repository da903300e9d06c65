/* Finds the newest whole copy of all ranks' state, and loads it. See buddy.h. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/buddy_slot.h"
#include "exec/checkpoint_files.h"
#include "exec/state.h"
#include "util/input.h"
#include "util/mem.h"

/* A sealed slot on a host. holder: the lowest rank of that host. */
struct entry {
	uint64_t start;
	int64_t step;
	int rank, slot, holder, bad;
};

struct dlb_buddy_found {
	struct dlb_comm *comm;
	char dir[DLB_COPIES_PATH];
	int rank, n;
	int *host; /* [rank] the lowest rank of its host */
	uint64_t start;
	int64_t step;
	struct entry *part; /* [n] where each rank's copy is */
	bool loaded;
};

static bool is_holder(const struct dlb_buddy_found *f) { return f->host[f->rank] == f->rank; }

/* ---- finding ---- */

/* Reads the head of START-R-S.head; false: the slot is not sealed, or the file is not of this start and
 * rank. */
static bool read_head(const char *folder, const struct entry *e, struct dlb_slot_head *h)
{
	char *path = dlb_slot_path(folder, e->start, e->rank, e->slot, dlb_slot_ends[DLB_N_SLOT_FILES]);
	const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	const bool ok = fd >= 0 && read(fd, h, sizeof *h) == (ssize_t)sizeof *h &&
			h->magic == DLB_SLOT_MAGIC && atomic_load(&h->sealed) == 1 && h->start == e->start &&
			h->rank == e->rank;

	if (fd >= 0)
		close(fd);
	free(path);
	return ok;
}

/* The sealed slots in this host's folder; new. */
static struct entry *list_slots(const struct dlb_buddy_found *f, int *n)
{
	DIR *dir = is_holder(f) ? opendir(f->dir) : NULL;
	struct entry *list = dlb_xcalloc(1, sizeof *list);
	int cap = 1;

	*n = 0;
	for (struct dirent *d; dir && (d = readdir(dir));) {
		struct entry e = { .holder = f->rank };
		struct dlb_slot_head h;
		int end = 0;

		if (sscanf(d->d_name, "%16" SCNx64 "-%d-%d.head%n", &e.start, &e.rank, &e.slot, &end) != 3 ||
		    !end || d->d_name[end] || !read_head(f->dir, &e, &h) || h.n_ranks != f->n || e.rank < 0 ||
		    e.rank >= f->n)
			continue;
		e.step = h.at.step;
		DLB_GROW(list, *n, cap);
		list[(*n)++] = e;
	}
	if (dir)
		closedir(dir);
	return list;
}

/* The slots of all hosts, on rank 0; new. */
static struct entry *gather_slots(struct dlb_buddy_found *f, int *n, struct dlb_error *err)
{
	int mine;
	struct entry *list = list_slots(f, &mine), *all;
	double most = mine;
	int rc = dlb_comm_allreduce_f64(f->comm, &most, 1, DLB_COMM_MAX, err), each = (int)most;

	list = dlb_xrealloc(list, (size_t)each + 1, sizeof *list);
	for (int i = mine; i < each; i++)
		list[i] = (struct entry){ .bad = 1 };
	*n = each * f->n;
	all = dlb_xcalloc((size_t)*n + 1, sizeof *all);
	if (!rc)
		rc = dlb_comm_gather(f->comm, list, (size_t)each * sizeof *list, all, 0, err);
	free(list);
	if (!rc)
		return all;
	free(all);
	return NULL;
}

/* Whether every rank has a slot with the start and step of `of`; fills f->part. */
static bool is_whole(struct dlb_buddy_found *f, const struct entry *all, int n, const struct entry *of)
{
	int found = 0;

	for (int i = 0; i < f->n; i++)
		f->part[i].bad = 1;
	for (int i = 0; i < n; i++) {
		const struct entry *e = &all[i];

		if (e->bad || e->start != of->start || e->step != of->step || !f->part[e->rank].bad)
			continue;
		f->part[e->rank] = *e;
		found++;
	}
	return found == f->n;
}

/* On rank 0: the newest copy that is whole. */
static void choose(struct dlb_buddy_found *f, const struct entry *all, int n)
{
	const struct entry *best = NULL;

	for (int i = 0; i < n; i++)
		if (!all[i].bad && (!best || all[i].step > best->step) && is_whole(f, all, n, &all[i]))
			best = &all[i];
	f->step = best ? best->step : -1;
	f->start = best ? best->start : 0;
	if (best)
		is_whole(f, all, n, best);
}

/* Whether this rank's host has the files of e with the sizes and checksums in e's head. */
static bool is_sound(const struct dlb_buddy_found *f, const struct entry *e)
{
	struct dlb_slot_head h;
	bool ok = read_head(f->dir, e, &h);

	for (int k = 0; k < DLB_N_SLOT_FILES && ok; k++) {
		char *path = dlb_slot_path(f->dir, e->start, e->rank, e->slot, dlb_slot_ends[k]);
		struct dlb_slot_file file = { .fd = -1 };
		struct stat st;

		ok = !h.bytes[k] ||
		     (stat(path, &st) == 0 && (uint64_t)st.st_size == h.bytes[k] &&
		      !dlb_slot_file_open(&file, path, h.bytes[k], NULL) && dlb_slot_sum(&file) == h.sum[k]);
		dlb_slot_file_close(&file);
		free(path);
	}
	return ok;
}

/* Each holder checks its chosen slots. *bad: on all ranks, whether any slot is damaged; damaged slots are
 * marked bad in all[]. */
static int check(struct dlb_buddy_found *f, struct entry *all, int n, bool *bad, struct dlb_error *err)
{
	double *damaged = dlb_xcalloc((size_t)f->n + 1, sizeof *damaged);
	int rc;

	for (int i = 0; i < f->n; i++)
		damaged[i] = f->part[i].holder == f->rank && !is_sound(f, &f->part[i]);
	rc = dlb_comm_allreduce_f64(f->comm, damaged, f->n, DLB_COMM_MAX, err);
	*bad = false;
	for (int i = 0; i < f->n; i++) {
		*bad |= damaged[i] > 0;
		for (int k = 0; k < n && damaged[i] > 0; k++)
			all[k].bad |= all[k].start == f->start && all[k].step == f->step &&
				      all[k].rank == i && all[k].holder == f->part[i].holder;
	}
	free(damaged);
	return rc;
}

int dlb_buddy_find(struct dlb_buddy_found **out, const char *copies, struct dlb_comm *comm,
		   struct dlb_error *err)
{
	struct dlb_buddy_found *f = *out = dlb_xcalloc(1, sizeof *f);
	struct entry *all;
	bool bad = true;
	int n, rc = 0;

	f->comm = comm;
	f->rank = dlb_comm_rank(comm);
	f->n = dlb_comm_size(comm);
	f->step = -1;
	dlb_copies_path(copies, f->dir);
	f->part = dlb_xcalloc((size_t)f->n + 1, sizeof *f->part);
	f->host = dlb_slot_hosts(comm, err);
	all = f->host ? gather_slots(f, &n, err) : NULL;
	if (!all)
		return -1;
	while (bad && !rc) {
		if (f->rank == 0)
			choose(f, all, n);
		rc = dlb_comm_bcast(comm, &f->step, sizeof f->step, 0, err) ||
				     dlb_comm_bcast(comm, &f->start, sizeof f->start, 0, err) ||
				     dlb_comm_bcast(comm, f->part, (size_t)f->n * sizeof *f->part, 0, err) ?
			     -1 :
			     0;
		bad = false;
		if (!rc && f->step >= 0)
			rc = check(f, all, n, &bad, err);
	}
	free(all);
	return rc;
}

int64_t dlb_buddy_found_step(const struct dlb_buddy_found *f) { return f ? f->step : -1; }

const char *dlb_buddy_found_dir(const struct dlb_buddy_found *f) { return f->dir; }

/* ---- loading ---- */

static char *step_folder(const struct dlb_buddy_found *f)
{
	return dlb_xprintf("%s/step-%" PRId64, f->dir, f->step);
}

/* DIR/step-N/part-R.safetensors; new. */
static char *file_of_checkpoint(const struct dlb_buddy_found *f, int rank, int k)
{
	return dlb_xprintf("%s/step-%" PRId64 "/%s-%d.safetensors", f->dir, f->step, dlb_slot_ends[k], rank);
}

/* On the holder of rank i's file k: links it into the checkpoint folder. */
static int link_file(const struct dlb_buddy_found *f, int i, int k, struct dlb_error *err)
{
	char *from = dlb_slot_path(f->dir, f->start, i, f->part[i].slot, dlb_slot_ends[k]),
	     *to = file_of_checkpoint(f, i, k);
	int rc = 0;

	unlink(to);
	if (link(from, to))
		rc = dlb_fail(err, NULL, "cannot link '%s' as '%s': %s", from, to, strerror(errno));
	free(from);
	free(to);
	return rc;
}

/* Collective over the lowest ranks of the hosts: each gets rank i's files from their holder. A failure here
 * must break the comm, since other ranks wait for the files. */
static int spread_files(const struct dlb_buddy_found *f, int i, struct dlb_error *err)
{
	const int holder = f->part[i].holder;
	struct dlb_slot_head h;
	int rc = 0;

	if (f->rank == holder && !read_head(f->dir, &f->part[i], &h))
		rc = dlb_fail(err, NULL, "a copy in '%s' has changed", f->dir);
	for (int k = 0; k < DLB_N_SLOT_FILES && !rc; k++) {
		struct dlb_slot_file file = { .fd = -1 };
		uint64_t bytes = f->rank == holder ? h.bytes[k] : 0;
		struct dlb_request q = { 0 };
		char *path;

		if (f->rank != holder) {
			dlb_comm_irecv(f->comm, &bytes, sizeof bytes, holder, DLB_TAG_COPY, &q);
			rc = dlb_comm_wait(f->comm, &q, err);
		}
		path = f->rank == holder ?
			       dlb_slot_path(f->dir, f->start, i, f->part[i].slot, dlb_slot_ends[k]) :
			       file_of_checkpoint(f, i, k);
		rc = rc || dlb_slot_file_open(&file, path, bytes, err) ||
				     (f->rank == holder && bytes && link_file(f, i, k, err)) ?
			     -1 :
			     0;
		free(path);
		for (int r = 0; r < f->n && f->rank == holder && !rc; r++) {
			if (f->host[r] != r || r == holder)
				continue;
			dlb_comm_isend(f->comm, &bytes, sizeof bytes, r, DLB_TAG_COPY, &q);
			rc = dlb_comm_wait(f->comm, &q, err);
			if (rc || !bytes)
				continue;
			dlb_comm_isend(f->comm, file.p, bytes, r, DLB_TAG_COPY, &q);
			rc = dlb_comm_wait(f->comm, &q, err);
		}
		if (f->rank != holder && bytes && !rc) {
			dlb_comm_irecv(f->comm, file.p, bytes, holder, DLB_TAG_COPY, &q);
			rc = dlb_comm_wait(f->comm, &q, err);
		}
		dlb_slot_file_close(&file);
	}
	return rc;
}

/* Gives all ranks the text of START-0-0.places from a host that has it; new. */
static char *share_places(const struct dlb_buddy_found *f, struct dlb_error *err)
{
	const int root = f->part[0].holder;
	unsigned char *text = NULL;
	size_t n = 0;
	int rc = 0;

	if (f->rank == root) {
		char *path = dlb_slot_path(f->dir, f->start, 0, 0, "places");

		rc = dlb_input_read(path, &text, &n, err);
		free(path);
	}
	if (dlb_comm_agree(f->comm, rc, err, NULL) || dlb_comm_bcast(f->comm, &n, sizeof n, root, err))
		return NULL;
	text = dlb_xrealloc(text, n + 1, 1);
	if (dlb_comm_bcast(f->comm, text, n, root, err)) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return (char *)text;
}

/* On the lowest rank of each host: makes a folder in the form of a checkpoint and writes its manifest. */
static int make_folder(const struct dlb_buddy_found *f, const char *places, const struct dlb_state *s,
		       const struct dlb_progress_state *p, struct dlb_error *err)
{
	char *folder = step_folder(f), *manifest = dlb_xprintf("%s/" DLB_CHECKPOINT_MANIFEST, folder);
	int rc = 0;

	if ((mkdir(f->dir, 0700) && errno != EEXIST) || (mkdir(folder, 0700) && errno != EEXIST))
		rc = dlb_fail(err, NULL, "cannot make folder '%s': %s", folder, strerror(errno));
	if (!rc)
		rc = dlb_checkpoint_write_changed(manifest, places, s, p, err);
	free(manifest);
	free(folder);
	return rc;
}

int dlb_buddy_load(struct dlb_buddy_found *f, struct dlb_state *s, struct dlb_progress_state *p,
		   struct dlb_error *err)
{
	struct dlb_slot_head h = { .at.step = -1 };
	char *places = share_places(f, err);
	int rc = 0;

	if (!places)
		return -1;
	f->loaded = true;
	if (f->rank == f->part[0].holder && !read_head(f->dir, &f->part[0], &h))
		rc = dlb_fail(err, NULL, "a copy in '%s' has changed", f->dir);
	rc = dlb_comm_agree(f->comm, rc, err, NULL) ||
			     dlb_comm_bcast(f->comm, &h.at, sizeof h.at, f->part[0].holder, err) ?
		     -1 :
		     0;
	if (!rc)
		rc = dlb_comm_agree(f->comm, is_holder(f) ? make_folder(f, places, s, &h.at, err) : 0, err,
				    NULL);
	free(places);
	for (int i = 0; i < f->n && !rc && is_holder(f); i++)
		rc = spread_files(f, i, err);
	if (rc && is_holder(f) && !dlb_comm_broken(f->comm))
		dlb_comm_break(f->comm, "%s", err->what);
	if (dlb_comm_agree(f->comm, rc, err, NULL))
		return -1;
	return dlb_comm_agree(f->comm, dlb_checkpoint_read(f->dir, f->step, s, p, err), err, NULL);
}

void dlb_buddy_found_free(struct dlb_buddy_found *f)
{
	if (!f)
		return;
	if (f->loaded && is_holder(f)) {
		char *folder = step_folder(f);

		for (int i = 0; i < f->n; i++)
			for (int k = 0; k < DLB_N_SLOT_FILES; k++) {
				char *path = file_of_checkpoint(f, i, k);

				unlink(path);
				free(path);
			}
		char *manifest = dlb_xprintf("%s/" DLB_CHECKPOINT_MANIFEST, folder);

		unlink(manifest);
		rmdir(folder);
		free(manifest);
		free(folder);
	}
	free(f->host);
	free(f->part);
	free(f);
}
