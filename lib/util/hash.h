/* A 64-bit hash (FNV-1a over bytes, mixed at the end) that tells whether sections were made from the same
 * input. It does not resist attacks. Documents hold hashes as 16 hex digits. */
#ifndef DLB_UTIL_HASH_H
#define DLB_UTIL_HASH_H
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"
#define DLB_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t dlb_hash_bytes(uint64_t h, const void *p, size_t n);
uint64_t dlb_hash_u64(uint64_t h, uint64_t v);			/* its 8 bytes, lowest first */
uint64_t dlb_hash_str(uint64_t h, const char *s);
void dlb_hash_hex(uint64_t h, char out[17]);
/* A checksum as fast as memory, which finds torn and flipped data; it does not resist attacks. Begin with
 * zeroed lanes; add data in pieces; the size of each but the last is a multiple of 32 bytes. The result does
 * not depend on how the bytes are cut into pieces. */
struct dlb_checksum {
	uint64_t lane[4];
};
void dlb_checksum_add(struct dlb_checksum *c, const void *p, size_t n);
uint64_t dlb_checksum_end(const struct dlb_checksum *c);
/* SHA-256 of data added in pieces, as 64 hex digits and NUL; _end frees s. */
struct dlb_sha256 *dlb_sha256_new(void);
void dlb_sha256_add(struct dlb_sha256 *s, const void *p, size_t n);
void dlb_sha256_end(struct dlb_sha256 *s, char out[65]);
/* SHA-256 of a whole file, as 64 hex digits and NUL; -1 with err if it cannot be read. */
int dlb_sha256_file(const char *path, char out[65], struct dlb_error *err);
#endif
