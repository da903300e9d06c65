/* Hashes: see hash.h. FNV-1a takes its input byte by byte in any portions; what is written in documents
 * goes through a finalizer (the last steps of MurmurHash3's 64-bit mixer), for FNV's high bits are weak. */
#include "util/hash.h"

#include <errno.h>
#include <sha2.h>
#include <stdio.h>
#include <string.h>

uint64_t dlb_hash_bytes(uint64_t h, const void *p, size_t n)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

uint64_t dlb_hash_str(uint64_t h, const char *s)
{
	return dlb_hash_bytes(h, s, strlen(s) + 1);	/* with the NUL, so that "a","bc" is not "ab","c" */
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

int dlb_sha256_file(const char *path, char out[65], struct dlb_error *err)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char buffer[65536], digest[SHA256_DIGEST_LENGTH];
	FILE *f = fopen(path, "rb");
	SHA2_CTX sha;
	size_t n;

	if (!f)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	SHA256Init(&sha);
	while ((n = fread(buffer, 1, sizeof buffer, f)) > 0)
		SHA256Update(&sha, buffer, n);
	if (ferror(f)) {
		int e = errno;

		fclose(f);
		return dlb_fail(err, NULL, "cannot read '%s': %s", path, strerror(e));
	}
	fclose(f);
	SHA256Final(digest, &sha);
	for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) {
		out[2 * i] = hex[digest[i] >> 4];
		out[2 * i + 1] = hex[digest[i] & 15];
	}
	out[64] = 0;
	return 0;
}
