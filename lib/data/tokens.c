/* Text as tokens: one a byte, the vocabulary being the distinct bytes in order. */
#include <stdlib.h>
#include <string.h>
#include "data/source.h"

int dlb_tokens_read(const char *path, struct dlb_tokens *t, struct dlb_error *err)
{
	bool seen[256] = { false };
	unsigned char id[256];
	struct dlb_tokens u = { 0 };

	if (dlb_file_read(path, &u.id, &u.n, err))
		return -1;
	if (u.n < 2) {
		free(u.id);
		return dlb_fail(err, path, "a text of %zu bytes is too short to learn from", u.n);
	}
	for (size_t i = 0; i < u.n; i++)
		seen[u.id[i]] = true;
	for (int b = 0; b < 256; b++) {
		id[b] = (unsigned char)u.vocabulary;
		u.vocabulary += seen[b];
	}
	for (size_t i = 0; i < u.n; i++)
		u.id[i] = id[u.id[i]];
	*t = u;
	return 0;
}

void dlb_tokens_release(struct dlb_tokens *t)
{
	free(t->id);
	memset(t, 0, sizeof *t);
}
