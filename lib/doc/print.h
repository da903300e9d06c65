/* Compact JSON onto a stream, as jansson would print it but faster. */
#ifndef DLB_DOC_PRINT_H
#define DLB_DOC_PRINT_H
#include <jansson.h>
#include <stdio.h>

/* 0; -1: a value that cannot be written (not finite, not UTF-8). Errors of the stream are left in ferror(f). */
int dlb_print_compact(const json_t *v, FILE *f);
#endif
