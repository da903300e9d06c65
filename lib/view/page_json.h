/* Writes JSON that is safe between <script> and </script>: text from a document can neither end the element
 * nor start another, and control characters are escaped. Commas are written automatically:
 *
 *     dlb_emit_open(e, NULL, '{');  dlb_emit_int(e, "id", 3);
 *     dlb_emit_str(e, "name", "</script>");  dlb_emit_close(e, '}');
 *     {"id":3,"name":"\u003c/script\u003e"}
 *
 * Reals have 7 digits: they are for display. */
#ifndef DLB_VIEW_PAGE_JSON_H
#define DLB_VIEW_PAGE_JSON_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct dlb_emit { FILE *f; bool comma; };
/* key NULL: element of an array. */
void dlb_emit_open(struct dlb_emit *e, const char *key, char bracket);
void dlb_emit_close(struct dlb_emit *e, char bracket);
void dlb_emit_int(struct dlb_emit *e, const char *key, int64_t x);
void dlb_emit_real(struct dlb_emit *e, const char *key, double x);	/* not finite: null */
void dlb_emit_bool(struct dlb_emit *e, const char *key, bool x);
void dlb_emit_str(struct dlb_emit *e, const char *key, const char *s);	/* NULL: null */
#endif
