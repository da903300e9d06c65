/* Files that come with the tools: tables and clusters under share/. */
#ifndef DLB_UTIL_SHARE_H
#define DLB_UTIL_SHARE_H
#include <stdbool.h>
#include <stddef.h>

/* Path of share/FOLDER/NAME.json, as installed (PREFIX/share/dlb beside PREFIX/bin), in the tree that the running
 * program was built in, or else where packages are installed. false: there is none. Links to the program are followed.
 * Names with a slash in them are never found. */
bool dlb_share_find(const char *folder, const char *name, char *path, size_t size);
/* Words for where that looks, to stand after "not in" or "nor in"; at most 200 bytes. */
void dlb_share_places(const char *folder, char *text, size_t size);
#endif
