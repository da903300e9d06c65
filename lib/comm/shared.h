/* Internal header of lib/comm: shared memory of the ranks of one host, copies into it, and wakeups.
 *
 * Each rank owns a region: an unnamed file in memory, as large as the host's memory, of which only touched
 * pages exist. Every rank of the host maps all regions, so allocation in one's own region is a local call,
 * and an offset is enough to tell another rank an address. A process that dies leaves nothing behind. (An MPI
 * window would be a named file of fixed size, allocated collectively, without huge pages: see
 * dlb_comm_private.) */
#ifndef DLB_COMM_SHARED_H
#define DLB_COMM_SHARED_H
#include <stdint.h>
#include "comm/comm.h"

struct dlb_region;
/* What other ranks of the host need to map a region. */
struct dlb_region_key { int64_t pid, fd; uint64_t secret, bytes; };

/* Makes this rank's region, on a host with n_local ranks. NULL: not possible; messages then go by MPI. */
struct dlb_region *dlb_region_new(int n_local, struct dlb_region_key *key);
void dlb_region_free(struct dlb_region *r);
/* Maps another rank's region; NULL: not possible. */
char *dlb_region_enter(const struct dlb_region *r, const struct dlb_region_key *theirs);
void dlb_region_leave(const struct dlb_region *r, char *theirs);
char *dlb_region_base(const struct dlb_region *r);
size_t dlb_region_bytes(const struct dlb_region *r);
void *dlb_region_alloc(struct dlb_region *r, size_t bytes);	/* whole pages of zeros; NULL: no room */
void dlb_region_release(struct dlb_region *r, void *p);
bool dlb_region_private(struct dlb_region *r, void *p, size_t bytes);
/* allocated, and no page of it private */
bool dlb_region_shares(const struct dlb_region *r, const void *p, size_t bytes);

/* Maps all pages of shared memory now, so that later accesses cause no page faults. */
void dlb_region_touch(void *p, size_t bytes);
/* Copies past the caches, to memory that another core reads next. A store to a line that the other core still
 * caches waits until the line has been fetched from there (measured between two cores of an EPYC: 2 GB/s, 20
 * past the caches). The copy is visible before any store after the call. */
void dlb_copy_far(void *to, const void *from, size_t bytes);
/* Whether stores through the caches or past them are faster depends on the two cores, on which caches hold
 * the lines, and on the size; virtual cores move between these cases. So a dlb_copy_tuner (zeroed at first;
 * one per kind of store) times both at intervals. It chooses stores past the caches only if they take less
 * than .7 of the time, because the receiver reads faster from caches. */
enum dlb_copy_way { DLB_COPY_NEAR, DLB_COPY_FAR };
/* the way to store `bytes` */
enum dlb_copy_way dlb_copy_tuner_begin(const struct dlb_copy_tuner *p, size_t bytes, double *start_s);
/* after the stores */
void dlb_copy_tuner_end(struct dlb_copy_tuner *p, enum dlb_copy_way way, size_t bytes, double start_s);
void dlb_copy_there(struct dlb_copy_tuner *p, void *to, const void *from, size_t bytes);

/* Wakeups, used if there are more ranks than cores: polling would take the other ranks' time, so a waiting
 * rank sleeps until another rank sends its wakeup, which lies in the first page of the sleeper's region. */
struct dlb_wakeup;
struct dlb_wakeup *dlb_wakeup_of(char *base);
void dlb_wakeup_send(struct dlb_wakeup *b); /* call it after storing the data that the receiver waits for */
uint32_t dlb_wakeup_count(const struct dlb_wakeup *b);	/* sent so far */
/* Sleeps until more than `seen` were sent or s seconds have passed; may return early. */
void dlb_wakeup_wait(struct dlb_wakeup *b, uint32_t seen, double s);

/* channel.c, without MPI. queue: appends a message to those whose place is not posted. */
void dlb_channel_queue(struct dlb_channel *ch, struct dlb_request *r);
bool dlb_channel_push(struct dlb_channel *ch);		/* true: no message waits any more */
bool dlb_channel_test(struct dlb_request *r);
#endif
