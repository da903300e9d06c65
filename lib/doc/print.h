/* Prints compact JSON as jansson would, but faster: text is buffered and written in large pieces. */
#ifndef DLB_DOC_PRINT_H
#define DLB_DOC_PRINT_H
#include <jansson.h>
#include <stdio.h>

/* Begin with f set and all else 0. n: bytes not yet written; error: errno of the first failed write. */
struct dlb_printer { FILE *f; int error; size_t n; char text[1 << 15]; };

void dlb_print_text(struct dlb_printer *p, const char *s, size_t n);		/* unchanged */
/* Returns 0; -1: the value cannot be written (not finite, not UTF-8). */
int dlb_print_compact(struct dlb_printer *p, const json_t *v);
int dlb_print_string(struct dlb_printer *p, const char *s, size_t n);		/* in quotes, with escapes */
/* writes the buffer; call it before other use of f */
void dlb_print_flush(struct dlb_printer *p);
#endif
