/* Errors with causes outside the program (input, files, devices, peers). The
 * function that detects one reports it.
 *
 * Such a function returns -1 after filling `err` through dlb_fail; its callers clean up and
 * return -1. A mistake in the program itself is a bug: assert or dlb_bug. Otherwise the
 * library never prints and never exits.
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
	char what[512];		/* the fault: lower case, no full stop, names in single quotes */
	char hint[320]; /* the cure, or empty */
	int status;		/* exit status: 2 (default), or 1 for a negative result */
};

/* Fills err (may be NULL) and returns -1. `where` may be NULL. */
int dlb_fail(struct dlb_error *err, const char *where, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* As dlb_fail, with exit status 1: the input is valid, but the answer is no. */
int dlb_fail_no(struct dlb_error *err, const char *where, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* dlb_fail and dlb_hint in one: `cure` is the hint. */
int dlb_refuse(struct dlb_error *err, const char *where, const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Adds or replaces the hint; returns -1 so that `return dlb_hint(err, ...)` reads well. */
int dlb_hint(struct dlb_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts `prefix` (a file name) before err->where: "FILE: /graph/ops/3" before a pointer or a name, "FILE:12:5"
 * before a line number, "FILE" alone if where is empty. Returns -1. */
int dlb_error_at(struct dlb_error *err, const char *prefix);
/* Prints one line on f. rank < 0: without a rank. */
void dlb_error_print(FILE *f, const char *tool, int rank, const struct dlb_error *err);

/* The exit status that err stands for: 2 unless it says otherwise, and where err is NULL. */
static inline int dlb_error_status(const struct dlb_error *err) { return err && err->status ? err->status : 2; }

/* Reports a bug in dlb itself: prints file, line and message, then aborts. */
#define dlb_bug(...) dlb_bug_at(__FILE__, __LINE__, __VA_ARGS__)
void dlb_bug_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
/* The candidate closest to `name` by edit distance ("did you mean"); NULL: none is close. */
const char *dlb_nearest(const char *name, const char *const *candidates, int n);
/* Adds the hint "did you mean 'X'?" for that candidate, or `otherwise` if none is close (NULL: the hint of err stays).
 * Returns -1. */
int dlb_hint_nearest(struct dlb_error *err, const char *name, const char *const *candidates, int n,
		     const char *otherwise);
#endif
