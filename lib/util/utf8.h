/* Checks UTF-8: names from files go into JSON documents, which must be UTF-8. */
#ifndef DLB_UTIL_UTF8_H
#define DLB_UTIL_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/* True if the n bytes are UTF-8 without a zero byte, overlong form or surrogate. */
bool dlb_is_utf8(const char *text, size_t n);
#endif
