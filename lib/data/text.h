/* Texts as ids of their bytes or code points. */
#ifndef DLB_DATA_TEXT_H
#define DLB_DATA_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

/* Token ids, in memory. */
struct dlb_tokens { uint32_t *id; size_t n; };
/* The distinct units (bytes or code points) of a text, sorted; the id of a unit is its index. */
struct dlb_alphabet { uint32_t *unit; int n; };
/* Decodes one code point of the n bytes at p: returns its length in bytes; 0: not UTF-8. */
int dlb_utf8_decode(const unsigned char *p, size_t n, uint32_t *code);
/* bytes: a unit is a byte, else a code point. */
int dlb_alphabet_of(const unsigned char *p, size_t n, const char *name, bool bytes, struct dlb_alphabet *a,
		    struct dlb_error *err);
int dlb_alphabet_encode(const struct dlb_alphabet *a, const unsigned char *p, size_t n, const char *name,
			bool bytes, struct dlb_tokens *t, struct dlb_error *err);
#endif
