/* Lists of names given on a command line, each a name or a pattern as of the shell ("0.*"; * also crosses dots and
 * slashes). An item that is the path of a file stands for the file's lines; empty ones and those that begin with # are
 * left out.
 *
 *     struct dlb_patterns p = { .what = "--freeze" };
 *     if (dlb_patterns_add(&p, "backbone.*", &arena, err) || dlb_patterns_check(&p, names, n_names, err)) return -1;
 *     if (dlb_patterns_match(&p, "backbone.0.weight") >= 0) ... */
#ifndef DLB_UTIL_PATTERNS_H
#define DLB_UTIL_PATTERNS_H
#include <stdbool.h>
#include "util/error.h"
#include "util/mem.h"

/* The name is like the pattern of the shell, or equal to it: "block[0].weight" names the weight that is called so. */
bool dlb_pattern_matches(const char *pattern, const char *name);
struct dlb_patterns { const char *what; const char **item; int n; };	/* what: the option, for messages; the rest in an arena */
int dlb_patterns_add(struct dlb_patterns *p, const char *text, struct dlb_arena *a, struct dlb_error *err);
/* The first item that the name matches, -1: none. */
int dlb_patterns_match(const struct dlb_patterns *p, const char *name);
/* Every item matches one of the names at least; else -1, with the nearest name. */
int dlb_patterns_check(const struct dlb_patterns *p, const char *const *names, int n, struct dlb_error *err);
#endif
