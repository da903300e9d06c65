/* Hashes: see hash.h. FNV-1a takes its input byte by byte, in portions of any size. Its high bits are weak,
 * so hashes in documents also go through a finalizer (the last steps of MurmurHash3's 64-bit mixer). */
#include "util/hash.h"

#include <stdio.h>
#include <string.h>

#define PRIME UINT64_C(0x100000001b3)

uint64_t dlb_hash_bytes(uint64_t h, const void *p, size_t n)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * PRIME;
	return h;
}

#define PRIME2 (PRIME * PRIME)
#define PRIME4 (PRIME2 * PRIME2)
uint64_t dlb_hash_u64(uint64_t h, uint64_t v)
{
	static const uint64_t power[] = { 1,
					  PRIME,
					  PRIME2,
					  PRIME2 * PRIME,
					  PRIME4,
					  PRIME4 * PRIME,
					  PRIME4 * PRIME2,
					  PRIME4 * PRIME2 * PRIME,
					  PRIME4 * PRIME4 };
	int left = 8;

	for (; v; v >>= 8, left--)
		h = (h ^ (v & 0xff)) * PRIME;
	return h * power[left];				/* a zero byte only multiplies */
}

uint64_t dlb_hash_str(uint64_t h, const char *s)
{
	/* includes the NUL, so that "a","bc" differs from "ab","c" */
	do
		h = (h ^ (unsigned char)*s) * PRIME;
	while (*s++);
	return h;
}

void dlb_hash_hex(uint64_t h, char out[17])
{
	h ^= h >> 33;
	h *= UINT64_C(0xff51afd7ed558ccd);
	h ^= h >> 33;
	h *= UINT64_C(0xc4ceb9fe1a85ec53);
	h ^= h >> 33;
	snprintf(out, 17, "%016llx", (unsigned long long)h);
}

/* Four independent lanes of 8-byte words, so that the multiplications overlap. */
void dlb_checksum_add(struct dlb_checksum *c, const void *p, size_t n)
{
	static const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
	const unsigned char *b = p;
	uint64_t w[4], x[4];

	memcpy(x, c->lane, sizeof x);
	for (; n >= sizeof w; b += sizeof w, n -= sizeof w) {
		memcpy(w, b, sizeof w);
		for (int k = 0; k < 4; k++) {
			x[k] = (x[k] ^ w[k]) * factor;
			x[k] ^= x[k] >> 32;
		}
	}
	x[0] = n ? dlb_hash_bytes(x[0] + n, b, n) : x[0];
	memcpy(c->lane, x, sizeof x);
}

uint64_t dlb_checksum_end(const struct dlb_checksum *c)
{
	uint64_t h = DLB_HASH_INIT;

	for (int k = 0; k < 4; k++)
		h = dlb_hash_bytes(h, &c->lane[k], sizeof c->lane[k]);
	return h;
}
