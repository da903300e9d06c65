/* Protobuf's wire format: a message is a sequence of fields, each a varint tag (number * 8 + type), then a
 * varint (type 0), 8 bytes (1), a length and that many bytes (2), or 4 bytes (5). */
#ifndef DLB_CONVERT_PROTOBUF_H
#define DLB_CONVERT_PROTOBUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dlb_protobuf { const uint8_t *p, *end; };
/* start: position of the tag; data, n: the bytes of type 2 */
struct dlb_field { int number, type; uint64_t v; const uint8_t *start, *data; size_t n; };
bool dlb_protobuf_varint(struct dlb_protobuf *w, uint64_t *v);
/* Reads the next field. False: end of the message, or malformed (*bad). */
bool dlb_protobuf_next(struct dlb_protobuf *w, struct dlb_field *f, bool *bad);

struct dlb_bytes { uint8_t *s; size_t n, cap; };		/* a growing buffer; the owner frees s */
void dlb_bytes_add(struct dlb_bytes *b, const void *data, size_t n);
void dlb_bytes_varint(struct dlb_bytes *b, uint64_t v);
void dlb_bytes_number(struct dlb_bytes *b, int field, uint64_t v);
void dlb_bytes_field(struct dlb_bytes *b, int field, const void *data, size_t n);
#endif
