/* Protobuf's wire format: see protobuf.h. */
#include <string.h>
#include "convert/protobuf.h"
#include "util/mem.h"

bool dlb_protobuf_varint(struct dlb_protobuf *w, uint64_t *v)
{
	*v = 0;
	for (int shift = 0; w->p < w->end && shift < 70; shift += 7) {
		*v |= shift < 64 ? (uint64_t)(*w->p & 0x7f) << shift : 0;
		if (!(*w->p++ & 0x80))
			return true;
	}
	return false;
}

bool dlb_protobuf_next(struct dlb_protobuf *w, struct dlb_field *f, bool *bad)
{
	uint64_t tag;
	*f = (struct dlb_field){ .start = w->p };
	if (w->p == w->end)
		return false;
	*bad = true;
	if (!dlb_protobuf_varint(w, &tag) || !(tag >> 3) || tag >> 3 > 0x1fffffff)
		return false;
	f->number = (int)(tag >> 3);
	f->type = (int)(tag & 7);
	size_t fixed = f->type == 1 ? 8 : f->type == 5 ? 4 : 0;
	if (f->type == 0 && !dlb_protobuf_varint(w, &f->v))
		return false;
	if (f->type == 2 && (!dlb_protobuf_varint(w, &f->v) || f->v > (uint64_t)(w->end - w->p)))
		return false;
	if ((f->type != 0 && f->type != 2 && !fixed) || fixed > (size_t)(w->end - w->p))
		return false;
	f->data = w->p;
	f->n = f->type == 2 ? (size_t)f->v : fixed;
	w->p += f->n;
	*bad = false;
	return true;
}

void dlb_bytes_add(struct dlb_bytes *b, const void *data, size_t n)
{
	while (b->n + n > b->cap) {
		b->cap = b->cap ? 2 * b->cap : 256;
		b->s = dlb_xrealloc(b->s, b->cap, 1);
	}
	if (n)
		memcpy(b->s + b->n, data, n);
	b->n += n;
}

void dlb_bytes_varint(struct dlb_bytes *b, uint64_t v)
{
	uint8_t s[10];
	size_t n = 0;
	do {
		s[n] = (uint8_t)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
		n++;
		v >>= 7;
	} while (v);
	dlb_bytes_add(b, s, n);
}

void dlb_bytes_number(struct dlb_bytes *b, int field, uint64_t v)
{
	dlb_bytes_varint(b, (uint64_t)field << 3);
	dlb_bytes_varint(b, v);
}

void dlb_bytes_field(struct dlb_bytes *b, int field, const void *data, size_t n)
{
	dlb_bytes_varint(b, (uint64_t)field << 3 | 2);
	dlb_bytes_varint(b, n);
	dlb_bytes_add(b, data, n);
}
