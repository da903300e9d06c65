/* Lists of names from the command line, each a name or a shell pattern ("0.*"; * also matches dots
 * and slashes). An item that is the path of a file means the file's lines; empty lines and lines
 * that begin with # are skipped.
 *
 *     struct dlb_patterns p = { .what = "--freeze" };
 *     if (dlb_patterns_add(&p, "backbone.*", &arena, err) || dlb_patterns_check(&p, names, n_names, err))
 *             return -1;
 *     if (dlb_patterns_match(&p, "backbone.0.weight") >= 0) ...
 */
#ifndef DLB_UTIL_PATTERNS_H
#define DLB_UTIL_PATTERNS_H
#include <stdbool.h>
#include "util/error.h"
#include "util/mem.h"

/* True if the name matches the shell pattern or equals it: "block[0].weight" also
 * matches the weight of that name. */
bool dlb_pattern_matches(const char *pattern, const char *name);
/* what: name of the option, for messages; items are in an arena */
struct dlb_patterns { const char *what; const char **item; int n; };
int dlb_patterns_add(struct dlb_patterns *p, const char *text, struct dlb_arena *a, struct dlb_error *err);
/* Index of the first item that matches the name; -1: none. */
int dlb_patterns_match(const struct dlb_patterns *p, const char *name);
/* Checks that every item matches a name; -1 with err, which suggests the closest name. */
int dlb_patterns_check(const struct dlb_patterns *p, const char *const *names, int n, struct dlb_error *err);
#endif
