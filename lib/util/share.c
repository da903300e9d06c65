/* Finds files of share/: first in folders above the running program, then where packages
 * install them, for a copied tool. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "util/share.h"

static const char *const installed[] = { "/usr/local/share/dlb", "/usr/share/dlb" };

/* Folder of the running program, links resolved; false: unknown. */
static bool find_here(char *here, size_t size)
{
	const ssize_t n = readlink("/proc/self/exe", here, size - 1);
	char *slash;

	if (n <= 0)
		return false;
	here[n] = '\0';
	slash = strrchr(here, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

bool dlb_share_beside(const char *name, char *path, size_t size)
{
	char here[3000];
	int length;

	if (!find_here(here, sizeof here))
		return false;
	length = snprintf(path, size, "%s/%s", here, name);
	return length > 0 && (size_t)length < size;
}

static bool there(const char *root, const char *share, const char *folder, const char *name, char *path,
		  size_t size)
{
	const int length = snprintf(path, size, "%s%s/%s/%s.json", root, share, folder, name);

	return length > 0 && (size_t)length < size && !access(path, R_OK);
}

bool dlb_share_find(const char *folder, const char *name, char *path, size_t size)
{
	/* build/san-x/bin/tool is three levels below the root of the tree */
	enum { LEVELS = 4 };
	char here[3000];

	if (!*name || strchr(name, '/'))
		return false;
	bool known = find_here(here, sizeof here);
	for (int level = 0; known && level <= LEVELS; level++) {
		char *slash = strrchr(here, '/');
		if (there(here, "/share/dlb", folder, name, path, size) ||
		    there(here, "/share", folder, name, path, size))
			return true;
		known = slash;
		if (slash)
			*slash = '\0';
	}
	for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
		if (there(installed[i], "", folder, name, path, size))
			return true;
	return false;
}

void dlb_share_places(const char *folder, char *text, size_t size)
{
	char here[3000];

	if (!find_here(here, sizeof here))
		strcpy(here, "the tool's folder");
	snprintf(text, size, "share[/dlb]/%s at or above %.80s, nor in %s or %s", folder, here, installed[0],
		 installed[1]);
}
