/* Names from files go into JSON documents, so they must be UTF-8 text. */
#ifndef DLB_UTIL_UTF8_H
#define DLB_UTIL_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/* n bytes of UTF-8 without a zero byte; overlong forms and surrogates are refused. */
bool dlb_is_utf8(const char *text, size_t n);
#endif
