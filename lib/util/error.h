/* Errors: what the world did wrong, said once, by the one that saw it.
 *
 * A function that can fail for a reason outside the program returns -1 and has filled `err`
 * through dlb_fail; those above clean up and return -1. A mistake of the program itself is a
 * bug: assert or dlb_bug. The library never prints and never exits otherwise.
 *
 *     if (n > max)
 *             return dlb_fail(err, "/graph/ops/17/inputs/0", "no tensor '%s'", name);
 *
 * dlb_error_print writes "tool: [where: ]what[; hint]" as one line. */
#ifndef DLB_UTIL_ERROR_H
#define DLB_UTIL_ERROR_H
#include <stddef.h>
#include <stdio.h>

struct dlb_error {
	char where[256];	/* file:line:column, JSON Pointer, or empty */
	char what[512];		/* what is wrong: lower case, no full stop, names in single quotes */
	char hint[256];		/* the cure, or empty */
	int status;		/* exit status it stands for: 2 (default) or 1, an honest no */
};

/* Fills err (may be NULL) and returns -1. `where` may be NULL. */
int dlb_fail(struct dlb_error *err, const char *where, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* As dlb_fail, for an honest no: exit status 1. */
int dlb_fail_no(struct dlb_error *err, const char *where, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* dlb_fail and dlb_hint in one: `cure` is the hint. */
int dlb_refuse(struct dlb_error *err, const char *where, const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds or replaces the hint; returns -1 so that `return dlb_hint(err, ...)` reads well. */
int dlb_hint(struct dlb_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts `prefix` (a file's name) before err->where: "FILE: /graph/ops/3" before a pointer or a name,
 * "FILE:12:5" before a line number, "FILE" alone when where is empty. Returns -1. */
int dlb_error_at(struct dlb_error *err, const char *prefix);
/* One line on f. rank < 0: none shown. */
void dlb_error_print(FILE *f, const char *tool, int rank, const struct dlb_error *err);

/* A bug in dlb itself: prints file, line and message, aborts. */
#define dlb_bug(...) dlb_bug_at(__FILE__, __LINE__, __VA_ARGS__)
void dlb_bug_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
/* The candidate nearest to `name` by edit distance, or NULL when none is near ("did you mean"). */
const char *dlb_nearest(const char *name, const char *const *candidates, int n);
#endif
