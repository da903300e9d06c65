/* Looks upward from where the running program lies. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "util/share.h"

bool dlb_share_find(const char *folder, const char *name, char *path, size_t size)
{
	enum { LEVELS = 4 };			/* build/san-x/bin/tool is three below the tree's root */
	char here[3000];
	ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
	if (n <= 0 || !*name || strchr(name, '/'))
		return false;
	here[n] = '\0';
	for (int level = 0; level <= LEVELS; level++) {
		char *slash = strrchr(here, '/');
		if (!slash)
			return false;
		*slash = '\0';
		for (int installed = 1; installed >= 0; installed--) {
			int length = snprintf(path, size, "%s/share/%s%s/%s.json", here, installed ? "dlb/" : "", folder, name);
			if (length > 0 && (size_t)length < size && !access(path, R_OK))
				return true;
		}
	}
	return false;
}
