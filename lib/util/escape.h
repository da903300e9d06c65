/* Names from files, as people may see them. A name can hold anything that is UTF-8 text: a line feed breaks a table, an escape
 * sequence moves the cursor or colours the terminal, a mark of writing direction turns what follows around. Each such character
 * is shown as what C source would have: \n, \t, \x1b, \u202e; a byte that is no UTF-8 as \xff. A backslash stays as it is, so
 * the result is for reading, not for parsing. */
#ifndef DLB_UTIL_ESCAPE_H
#define DLB_UTIL_ESCAPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The next character of s, as it may be shown: its bytes, from 1 to 8, with a zero after them. Returns how many bytes of s it
 * stands for; 0 at the end. */
enum { DLB_SHOWN_BYTES = 9 };
size_t dlb_escape_next(const char *s, char shown[DLB_SHOWN_BYTES]);
bool dlb_needs_escape(const char *s);
/* The whole of s; what does not fit into buf is left out, by whole characters. Returns buf. */
const char *dlb_escape(const char *s, char *buf, size_t n);
void dlb_put_escaped(FILE *f, const char *s);
#endif
