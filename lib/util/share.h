/* Files that come with the tools: tables and clusters under share/. */
#ifndef DLB_UTIL_SHARE_H
#define DLB_UTIL_SHARE_H
#include <stdbool.h>
#include <stddef.h>

/* Path of share/FOLDER/NAME.json, as installed (PREFIX/share/dlb beside PREFIX/bin) or in the tree that the running
 * program was built in. false: there is none. Names with a slash in them are never found. */
bool dlb_share_find(const char *folder, const char *name, char *path, size_t size);
#endif
