/* Finds files that come with the tools: tables and clusters under share/. */
#ifndef DLB_UTIL_SHARE_H
#define DLB_UTIL_SHARE_H
#include <stdbool.h>
#include <stddef.h>

/* Finds share/FOLDER/NAME.json: as installed (PREFIX/share/dlb beside PREFIX/bin), else in the source
 * tree of the running program, else where packages are installed. Links to the program are followed.
 * False: not found, or NAME has a slash. */
bool dlb_share_find(const char *folder, const char *name, char *path, size_t size);
/* Writes the path of `name` relative to the folder of the running program; links to the program are followed.
 * False: that folder is unknown, or the path is too long. */
bool dlb_share_beside(const char *name, char *path, size_t size);
/* Writes the places that dlb_share_find searches, for a message after "not in"
 * or "nor in"; at most 200 bytes. */
void dlb_share_places(const char *folder, char *text, size_t size);
#endif
