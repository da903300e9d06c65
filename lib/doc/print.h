/* Compact JSON, as jansson would print it but faster: text is gathered and goes to the stream in large pieces. */
#ifndef DLB_DOC_PRINT_H
#define DLB_DOC_PRINT_H
#include <jansson.h>
#include <stdio.h>

/* Set f, all else 0. n bytes are not yet written; error: errno of the first write that failed. */
struct dlb_printer { FILE *f; int error; size_t n; char text[1 << 15]; };

void dlb_print_text(struct dlb_printer *p, const char *s, size_t n);		/* as it is */
/* 0; -1: a value that cannot be written (not finite, not UTF-8). */
int dlb_print_compact(struct dlb_printer *p, const json_t *v);
int dlb_print_string(struct dlb_printer *p, const char *s, size_t n);		/* in quotes, with escapes */
void dlb_print_flush(struct dlb_printer *p);					/* to the stream; before f is used otherwise */
#endif
