/* Internal header of heartbeat*.c: beats by datagram between ranks that share no memory. */
#ifndef DLB_COMM_HEARTBEAT_UDP_H
#define DLB_COMM_HEARTBEAT_UDP_H
#include <stdbool.h>
#include <stdint.h>

/* Where a rank receives: every address of its host, IPv4 ones mapped to IPv6, and its port. n 0: nowhere. */
enum { DLB_BEAT_ADDRESSES = 8 };
struct dlb_beat_place { uint32_t n, port; unsigned char address[DLB_BEAT_ADDRESSES][16]; };
/* secret: of the job; datagrams with another one are ignored. late_ms: how late the sender was lately. */
struct dlb_beat { uint64_t secret; uint32_t rank, n, late_ms, left; };

/* Opens a socket that does not block, on any port; -1: not possible. */
int dlb_beat_open(struct dlb_beat_place *mine);
/* local: the peer is on this host too. */
void dlb_beat_send(int fd, const struct dlb_beat_place *to, bool local, const struct dlb_beat *b);
/* The next datagram of the job; false: none waits. */
bool dlb_beat_receive(int fd, uint64_t secret, struct dlb_beat *b);
#endif
