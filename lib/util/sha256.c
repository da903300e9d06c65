/* SHA-256 of files, by libmd. Apart from hash.c, so that only those who need it are linked with it. */
#include <errno.h>
#include <sha2.h>
#include <stdio.h>
#include <string.h>

#include "util/hash.h"

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
