/* Escapes names from files for display. A name can hold any UTF-8 text: a line feed would break a table, an
 * escape sequence control the terminal, a direction mark reverse the text after it. Each such character is
 * shown as in C source: \n, \t, \x1b, \u202e; a byte that is not UTF-8 as \xff. A backslash is not escaped,
 * so the result cannot be parsed back. */
#ifndef DLB_UTIL_ESCAPE_H
#define DLB_UTIL_ESCAPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Escapes the next character of s: 1 to 8 bytes and a zero. Returns its length in s in bytes; 0 at the
 * end. */
enum { DLB_SHOWN_BYTES = 9 };
size_t dlb_escape_next(const char *s, char shown[DLB_SHOWN_BYTES]);
bool dlb_needs_escape(const char *s);
/* Escapes all of s into buf, as many whole characters as fit. Returns buf. */
const char *dlb_escape(const char *s, char *buf, size_t n);
void dlb_put_escaped(FILE *f, const char *s);
#endif
