/* Private to buddy*.c: a slot, that is three files that hold one copy of one rank's state. */
#ifndef DLB_EXEC_BUDDY_SLOT_H
#define DLB_EXEC_BUDDY_SLOT_H
#include "exec/buddy.h"
#include "exec/copies.h"

#define DLB_SLOT_MAGIC UINT64_C(0x31797061636c6264)
enum { DLB_SLOT_PART, DLB_SLOT_KEPT, DLB_N_SLOT_FILES, DLB_N_SLOTS = 2 };
/* The file START-R-S.head. start: a random number that identifies one start of the run, with its ranks and
 * plan. */
struct dlb_slot_head {
	uint64_t magic, start;
	int64_t rank, n_ranks;
	struct dlb_progress_state at;
	uint64_t bytes[DLB_N_SLOT_FILES]; /* 0: no such file */
	uint64_t sum[DLB_N_SLOT_FILES];
	_Atomic uint64_t sealed;
};
struct dlb_slot_file {
	int fd;
	char *p;
	size_t bytes;
}; /* a mapped file; p NULL: there is none */
struct dlb_slot {
	struct dlb_slot_file head, file[DLB_N_SLOT_FILES];
};

extern const char *const dlb_slot_ends[DLB_N_SLOT_FILES + 1]; /* .part .kept .head */
/* Path of a slot's file; new. */
char *dlb_slot_path(const char *folder, uint64_t start, int rank, int slot, const char *end);
/* Maps a file of this many bytes and reserves their space; an existing file keeps its contents. -1 with
 * err. */
int dlb_slot_file_open(struct dlb_slot_file *f, const char *path, size_t bytes, struct dlb_error *err);
void dlb_slot_file_close(struct dlb_slot_file *f);
/* The mapped head of a slot. */
struct dlb_slot_head *dlb_slot_head_of(const struct dlb_slot *s);
uint64_t dlb_slot_sum(const struct dlb_slot_file *f);
/* [rank] the lowest rank of its host; new. Collective; NULL with err. */
int *dlb_slot_hosts(struct dlb_comm *comm, struct dlb_error *err);
#endif
