/* Copies the state into slots and sends it to buddies. See buddy.h. */
#include "exec/buddy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/buddy_slot.h"
#include "exec/checkpoint_files.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "model/safetensors.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/output.h"

/* bytes that are added to the checksum while they are in cache; a multiple of 32 */
enum { BLOCK = 256 * 1024 };

/* The tensors in a file of a slot. */
struct contents {
	struct dlb_arena names;
	struct dlb_st_tensor *tensor;
	int n;
	struct dlb_st_layout layout;
	uint64_t version; /* changes with the layout */
};
/* A rank that has this one as its buddy. */
struct ward {
	int rank;
	struct dlb_slot slot[DLB_N_SLOTS];
	struct dlb_slot_head head; /* the head that the ward has sent */
	struct dlb_request got[DLB_N_SLOT_FILES];
};
struct dlb_buddy {
	struct dlb_buddy_desc d;
	char folder[DLB_COPIES_PATH];
	int lock, rank, n_ranks;
	uint64_t start;
	int *host, *buddy; /* [rank] host: the lowest rank of its host; buddy: its buddy, -1: none */
	struct dlb_slot own[DLB_N_SLOTS];
	/* version of the contents whose safetensors head is in the file */
	uint64_t laid[DLB_N_SLOTS][DLB_N_SLOT_FILES];
	struct contents contents[DLB_N_SLOT_FILES];
	struct ward *ward;
	int n_wards;
	struct dlb_slot_head head; /* of the copy under way */
	struct dlb_request sent[1 + DLB_N_SLOT_FILES];
	bool under_way;
	int64_t n_copies;
	double time_s; /* seconds by which copies delayed steps */
};

/* ---- opening ---- */

static int find_wards(struct dlb_buddy *b)
{
	for (int i = 0; i < b->n_ranks; i++)
		b->n_wards += b->buddy[i] == b->rank;
	b->ward = dlb_xcalloc((size_t)b->n_wards + 1, sizeof *b->ward);
	b->n_wards = 0;
	for (int i = 0; i < b->n_ranks; i++)
		if (b->buddy[i] == b->rank)
			b->ward[b->n_wards++].rank = i;
	return 0;
}

/* On the lowest rank of each host: writes down which part has which tensor. */
static int write_places(const struct dlb_buddy *b, struct dlb_error *err)
{
	char *text, *path;
	struct dlb_output o;
	int rc;

	if (b->host[b->rank] != b->rank)
		return 0;
	text = dlb_checkpoint_places(b->d.state, err);
	if (!text)
		return -1;
	path = dlb_slot_path(b->folder, b->start, 0, 0, "places");
	rc = dlb_output_open(&o, path, err);
	if (!rc) {
		fputs(text, o.f);
		rc = dlb_output_commit(&o, err);
	}
	free(path);
	free(text);
	return rc;
}

static int open_own(struct dlb_buddy *b, struct dlb_error *err)
{
	struct contents *c = &b->contents[DLB_SLOT_PART];

	c->n = dlb_checkpoint_part_tensors(b->d.state, true, &c->names, &c->tensor);
	c->version = 1;
	return !c->n ? 0 : dlb_safetensors_layout(b->folder, c->tensor, c->n, &c->layout, err);
}

int dlb_buddy_new(struct dlb_buddy **out, const struct dlb_buddy_desc *d, struct dlb_error *err)
{
	struct dlb_buddy *b = *out = dlb_xcalloc(1, sizeof *b);
	int rc;

	b->d = *d;
	b->rank = dlb_comm_rank(d->comm);
	b->n_ranks = dlb_comm_size(d->comm);
	dlb_copies_path(d->copies, b->folder);
	b->lock = dlb_copies_open(d->copies, false, err);
	rc = b->lock < 0 || !dlb_output_number(&b->start) ? -1 : 0;
	if (b->lock >= 0 && rc)
		dlb_fail(err, NULL, "no random numbers for the names of copies");
	if (dlb_comm_agree(d->comm, rc, err, NULL) ||
	    dlb_comm_bcast(d->comm, &b->start, sizeof b->start, 0, err) ||
	    !(b->host = dlb_slot_hosts(d->comm, err)))
		return -1;
	b->buddy = dlb_xcalloc((size_t)b->n_ranks + 1, sizeof *b->buddy);
	dlb_buddy_choose(b->host, b->n_ranks, b->buddy);
	find_wards(b);
	rc = open_own(b, err) || write_places(b, err) ? -1 : 0;
	return dlb_comm_agree(d->comm, rc, err, NULL);
}

static void close_slot(struct dlb_slot *s)
{
	dlb_slot_file_close(&s->head);
	for (int k = 0; k < DLB_N_SLOT_FILES; k++)
		dlb_slot_file_close(&s->file[k]);
}

static void release_contents(struct contents *c)
{
	dlb_safetensors_layout_release(&c->layout);
	free(c->tensor);
	dlb_arena_release(&c->names);
	*c = (struct contents){ .version = c->version };
}

void dlb_buddy_free(struct dlb_buddy *b, bool ends)
{
	if (!b)
		return;
	/* MPI may still write into the slots of a broken comm's messages; the process ends soon */
	for (int k = 0; k < DLB_N_SLOTS && !dlb_comm_broken(b->d.comm); k++) {
		close_slot(&b->own[k]);
		for (int i = 0; i < b->n_wards; i++)
			close_slot(&b->ward[i].slot[k]);
	}
	if (dlb_comm_broken(b->d.comm))
		return;
	for (int k = 0; k < DLB_N_SLOT_FILES; k++)
		release_contents(&b->contents[k]);
	if (ends && b->host && b->host[b->rank] == b->rank)
		dlb_copies_remove(b->d.copies, NULL);
	if (b->lock >= 0)
		close(b->lock);
	free(b->ward);
	free(b->host);
	free(b->buddy);
	free(b);
}

bool dlb_buddy_alone(const struct dlb_buddy *b)
{
	for (int i = 0; i < b->n_ranks; i++)
		if (b->buddy[i] >= 0)
			return false;
	return true;
}

/* ---- writing a slot ---- */

/* Opens a rank's slot for files of the given sizes and unseals the slot. */
static int open_slot(const struct dlb_buddy *b, int rank, int slot, struct dlb_slot *s, const uint64_t *bytes,
		     struct dlb_error *err)
{
	struct dlb_slot_file *file[] = { &s->file[0], &s->file[1], &s->head };
	const size_t size[] = { bytes[0], bytes[1], sizeof(struct dlb_slot_head) };
	int rc = 0;

	if (s->head.p)
		atomic_store(&dlb_slot_head_of(s)->sealed, 0);
	for (int k = DLB_LEN(file) - 1; k >= 0 && !rc; k--) {
		char *path;

		if (file[k]->p && file[k]->bytes == size[k])
			continue;
		path = dlb_slot_path(b->folder, b->start, rank, slot, dlb_slot_ends[k]);
		rc = dlb_slot_file_open(file[k], path, size[k], err);
		free(path);
	}
	return rc;
}

static void seal(struct dlb_slot *s, const struct dlb_slot_head *head)
{
	struct dlb_slot_head *to = dlb_slot_head_of(s);

	memcpy(to, head, offsetof(struct dlb_slot_head, sealed));
	atomic_store(&to->sealed, 1);
}

/* A file that is written from beginning to end while its checksum is computed. */
struct writer {
	struct dlb_slot_file *f;
	size_t at, summed;
	struct dlb_checksum sum;
};

static void sum_up_to(struct writer *w, size_t end)
{
	dlb_checksum_add(&w->sum, w->f->p + w->summed, end - w->summed);
	w->summed = end;
}

/* Appends n bytes; p NULL: the bytes are in the file already. */
static void put(struct writer *w, const char *p, size_t n)
{
	while (n) {
		const size_t k = n < BLOCK ? n : BLOCK;

		if (p)
			memcpy(w->f->p + w->at, p, k);
		p = p ? p + k : NULL;
		w->at += k;
		n -= k;
		if (w->at - w->summed >= BLOCK)
			sum_up_to(w, w->at / 32 * 32);
	}
}

struct placed {
	const struct dlb_st_tensor *t;
	size_t offset;
};
static int by_offset(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Copies the tensors of c into the file. device: the tensors are in its memory, NULL: host memory. laid: the
 * file already has the head. */
static int fill(const struct contents *c, struct dlb_slot_file *f, bool laid, struct dlb_backend *device,
		uint64_t *sum, struct dlb_error *err)
{
	struct writer w = { .f = f };
	struct placed *order;

	*sum = 0;
	if (!c->n)
		return 0;
	order = dlb_xcalloc((size_t)c->n, sizeof *order);
	for (int i = 0; i < c->n; i++)
		order[i] = (struct placed){ &c->tensor[i], c->layout.offset[i] };
	qsort(order, (size_t)c->n, sizeof *order, by_offset);
	for (int i = 0; i < c->n && device; i++)
		device->ops->download(device, f->p + order[i].offset, order[i].t->data,
				      dlb_desc_bytes(&order[i].t->desc));
	if (device && device->ops->sync(device, err)) {
		free(order);
		return -1;
	}
	put(&w, laid ? NULL : c->layout.head, c->layout.head_bytes);
	for (int i = 0; i < c->n; i++)
		put(&w, device ? NULL : order[i].t->data, dlb_desc_bytes(&order[i].t->desc));
	sum_up_to(&w, w.at);
	free(order);
	*sum = dlb_checksum_end(&w.sum);
	return 0;
}

/* Updates the contents of the file for the state of compression and K-FAC, whose names and sizes may change
 * from step to step. */
static int look_at_local(struct dlb_buddy *b, const struct dlb_local_state *local, struct dlb_error *err)
{
	struct contents *c = &b->contents[DLB_SLOT_KEPT], now = { .n = 0 };
	bool same;

	now.n = dlb_checkpoint_local_tensors(local, &now.names, &now.tensor);
	same = now.n == c->n;
	for (int i = 0; i < now.n && same; i++)
		same = dlb_desc_count(&now.tensor[i].desc) == dlb_desc_count(&c->tensor[i].desc) &&
		       now.tensor[i].desc.dtype == c->tensor[i].desc.dtype &&
		       !strcmp(now.tensor[i].name, c->tensor[i].name);
	for (int i = 0; i < now.n && same; i++)
		c->tensor[i].data = now.tensor[i].data;
	now.version = c->version + 1;
	if (same) {
		release_contents(&now);
		return 0;
	}
	release_contents(c);
	*c = now;
	return !c->n ? 0 : dlb_safetensors_layout(b->folder, c->tensor, c->n, &c->layout, err);
}

static int write_own(struct dlb_buddy *b, int slot, const struct dlb_local_state *local,
		     const struct dlb_progress_state *at, struct dlb_error *err)
{
	struct dlb_slot *s = &b->own[slot];
	struct dlb_slot_head *head = &b->head;
	struct dlb_backend *be = b->d.state->be;

	*head = (struct dlb_slot_head){
		.magic = DLB_SLOT_MAGIC, .start = b->start, .rank = b->rank, .n_ranks = b->n_ranks, .at = *at
	};
	if (look_at_local(b, local, err))
		return -1;
	for (int k = 0; k < DLB_N_SLOT_FILES; k++)
		head->bytes[k] = b->contents[k].layout.bytes;
	if (open_slot(b, b->rank, slot, s, head->bytes, err))
		return -1;
	for (int k = 0; k < DLB_N_SLOT_FILES; k++) {
		const bool on_device = k == DLB_SLOT_PART && !dlb_is_host_memory(be);

		if (fill(&b->contents[k], &s->file[k], b->laid[slot][k] == b->contents[k].version,
			 on_device ? be : NULL, &head->sum[k], err))
			return -1;
		b->laid[slot][k] = b->contents[k].version;
	}
	return 0;
}

/* ---- a copy ---- */

static int fail(struct dlb_buddy *b, int rc, struct dlb_error *err)
{
	/* the first copies allocate the slots and may find too little space; a later failure breaks the
	 * comm */
	if (b->n_copies < DLB_N_SLOTS)
		return dlb_comm_agree(b->d.comm, rc, err, NULL);
	if (rc)
		dlb_comm_break(b->d.comm, "%s", err->what);
	return rc;
}

/* Receives the sizes of the wards' files, opens their slots and posts the receives. */
static int post_wards(struct dlb_buddy *b, int slot, struct dlb_error *err)
{
	int rc = 0;

	for (int i = 0; i < b->n_wards && !rc; i++) {
		struct ward *w = &b->ward[i];
		struct dlb_request q = { 0 };

		dlb_comm_irecv(b->d.comm, &w->head, sizeof w->head, w->rank, DLB_TAG_COPY, &q);
		if (dlb_comm_wait(b->d.comm, &q, err))
			return -1;
	}
	for (int i = 0; i < b->n_wards && !rc; i++)
		rc = open_slot(b, b->ward[i].rank, slot, &b->ward[i].slot[slot], b->ward[i].head.bytes, err);
	if (fail(b, rc, err))
		return -1;
	for (int i = 0; i < b->n_wards; i++)
		for (int k = 0; k < DLB_N_SLOT_FILES; k++) {
			struct ward *w = &b->ward[i];
			struct dlb_slot_file *f = &w->slot[slot].file[k];

			if (w->head.bytes[k])
				dlb_comm_irecv(b->d.comm, f->p, f->bytes, w->rank, DLB_TAG_COPY, &w->got[k]);
		}
	return 0;
}

int dlb_buddy_copy(struct dlb_buddy *b, const struct dlb_local_state *local,
		   const struct dlb_progress_state *at, struct dlb_error *err)
{
	const int slot = (int)(b->n_copies % DLB_N_SLOTS), to = b->buddy[b->rank];
	const double start_s = dlb_clock_s();
	char keep[24];

	/* the first copy of this start is now complete on all hosts, so older copies can go */
	if (b->n_copies == 1 && b->host[b->rank] == b->rank) {
		char *own = dlb_slot_path("", b->start, 0, 0, "");

		snprintf(keep, sizeof keep, "%.16s-", own + 1);
		free(own);
		dlb_copies_remove(b->d.copies, keep);
	}
	if (fail(b, write_own(b, slot, local, at, err), err))
		return -1;
	if (to >= 0)
		dlb_comm_isend(b->d.comm, &b->head, sizeof b->head, to, DLB_TAG_COPY,
			       &b->sent[DLB_N_SLOT_FILES]);
	if (post_wards(b, slot, err))
		return -1;
	for (int k = 0; k < DLB_N_SLOT_FILES && to >= 0; k++)
		if (b->head.bytes[k])
			dlb_comm_isend(b->d.comm, b->own[slot].file[k].p, b->head.bytes[k], to, DLB_TAG_COPY,
				       &b->sent[k]);
	b->under_way = true;
	b->n_copies++;
	b->time_s += dlb_clock_s() - start_s;
	return 0;
}

bool dlb_buddy_under_way(const struct dlb_buddy *b) { return b && b->under_way; }

static bool is_complete(struct dlb_buddy *b)
{
	bool all = true;

	for (int k = 0; k <= DLB_N_SLOT_FILES; k++)
		all &= dlb_comm_test(b->d.comm, &b->sent[k]);
	for (int i = 0; i < b->n_wards; i++)
		for (int k = 0; k < DLB_N_SLOT_FILES; k++)
			all &= dlb_comm_test(b->d.comm, &b->ward[i].got[k]);
	return all;
}

static int wait_for_all(struct dlb_buddy *b, struct dlb_error *err)
{
	for (int i = 0; i < b->n_wards; i++)
		for (int k = 0; k < DLB_N_SLOT_FILES; k++)
			if (dlb_comm_wait(b->d.comm, &b->ward[i].got[k], err))
				return -1;
	for (int k = 0; k <= DLB_N_SLOT_FILES; k++)
		if (dlb_comm_wait(b->d.comm, &b->sent[k], err))
			return -1;
	return 0;
}

int dlb_buddy_settle(struct dlb_buddy *b, bool wait, struct dlb_error *err)
{
	const double start_s = dlb_clock_s();
	const int slot = (int)((b->n_copies - 1) % DLB_N_SLOTS);

	if (wait ? wait_for_all(b, err) : !is_complete(b))
		return wait ? -1 : 0;
	if (dlb_comm_broken(b->d.comm))		/* the sum at the end of the step reports the reason */
		return 0;
	seal(&b->own[slot], &b->head);
	for (int i = 0; i < b->n_wards; i++)
		seal(&b->ward[i].slot[slot], &b->ward[i].head);
	b->under_way = false;
	b->time_s += dlb_clock_s() - start_s;
	return 0;
}

/* ---- the report ---- */

static double slot_bytes(const struct dlb_slot *s)
{
	double bytes = (double)s->head.bytes;

	for (int k = 0; k < DLB_N_SLOT_FILES; k++)
		bytes += (double)s->file[k].bytes;
	return bytes;
}

double dlb_buddy_mapped_bytes(const struct dlb_buddy *b)
{
	double bytes = 0;

	for (int k = 0; b && k < DLB_N_SLOTS; k++) {
		bytes += slot_bytes(&b->own[k]);
		for (int i = 0; i < b->n_wards; i++)
			bytes += slot_bytes(&b->ward[i].slot[k]);
	}
	return bytes;
}

struct figures {
	double bytes, sent_bytes, time_s;
	char folder[DLB_COPIES_PATH];
};

int dlb_buddy_report(struct dlb_buddy *b, struct dlb_report *report, struct dlb_error *err)
{
	struct figures mine = { .time_s = b->n_copies ? b->time_s / (double)b->n_copies : 0 },
		       *all = dlb_xcalloc((size_t)b->n_ranks, sizeof *all);
	struct dlb_report_buddy *r = &report->buddy;
	int rc;

	for (int k = 0; k < DLB_N_SLOT_FILES; k++)
		mine.bytes += (double)b->contents[k].layout.bytes;
	mine.sent_bytes = b->buddy[b->rank] >= 0 ? mine.bytes : 0;
	memcpy(mine.folder, b->folder, sizeof mine.folder);
	rc = dlb_comm_gather(b->d.comm, &mine, sizeof mine, all, 0, err);
	if (!rc && b->rank == 0) {
		r->every = b->d.every;
		r->copies = b->n_copies;
		r->bytes = r->sent_bytes = r->time_s = 0;
		r->folder = dlb_arena_array(&report->arena, (size_t)b->n_ranks, sizeof *r->folder);
		r->buddy = dlb_arena_array(&report->arena, (size_t)b->n_ranks, sizeof *r->buddy);
		memcpy(r->buddy, b->buddy, (size_t)b->n_ranks * sizeof *r->buddy);
		r->n_folders = 0;
	}
	for (int i = 0; i < b->n_ranks && !rc && b->rank == 0; i++) {
		r->bytes += all[i].bytes;
		r->sent_bytes += all[i].sent_bytes;
		r->time_s = all[i].time_s > r->time_s ? all[i].time_s : r->time_s;
		if (b->host[i] == i)
			r->folder[r->n_folders++] = dlb_arena_strdup(&report->arena, all[i].folder);
	}
	free(all);
	return rc;
}
