/* Checks the protobuf wire format before unpacking: lengths, nesting, repetition. See onnx_proto.h.
 *
 * A message is a sequence of fields: a varint tag (number * 8 + wire type), then by wire type a varint (0), 8
 * bytes (1), a length and that many bytes (2), or 4 bytes (5). The descriptor that protobuf-c generated from
 * onnx.proto says which bytes are a nested message. */
#include <inttypes.h>
#include "model/onnx_proto.h"

#define MAX_DEPTH 64		/* model, graph, node, attribute, graph, ...: 16 levels of bodies */
#define MAX_MESSAGES 4000000	/* 2 bytes on the wire may become a message of 400 bytes in memory */

struct wire {
	const uint8_t *start, *end;	/* the whole file */
	const char *name;
	size_t n_messages;
	struct dlb_error *err;
};

static int bad(struct wire *w, const uint8_t *at, const char *what)
{
	dlb_fail(w->err, w->name, "%s at byte %zu", what, (size_t)(at - w->start));
	return dlb_hint(w->err, "is it an ONNX file, and all of it?");
}

/* Reads a varint of at most 10 bytes; NULL: it does not end before `end`. */
static const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
	*v = 0;
	for (int shift = 0; p < end && shift < 70; shift += 7) {
		*v |= (uint64_t)(*p & 0x7f) << shift;
		if (!(*p++ & 0x80))
			return p;
	}
	return NULL;
}

static int walk(struct wire *w, const ProtobufCMessageDescriptor *d, const uint8_t *p, const uint8_t *end,
		int depth)
{
	uint64_t seen = 0;	/* singular message fields seen, a bit per field number */
	while (p < end) {
		const uint8_t *at = p;
		uint64_t tag, v;
		if (!(p = varint(p, end, &tag)))
			return bad(w, at, "truncated field");
		const uint64_t number = tag >> 3;
		if (!number || number > 0x1fffffff)
			return bad(w, at, "field number out of range");
		switch (tag & 7) {
		case 0:
			if (!(p = varint(p, end, &v)))
				return bad(w, at, "truncated number");
			continue;
		case 1:
		case 5:
			if ((size_t)(end - p) < ((tag & 7) == 1 ? 8 : 4))
				return bad(w, at, "truncated number");
			p += (tag & 7) == 1 ? 8 : 4;
			continue;
		case 2:
			if (!(p = varint(p, end, &v)) || v > (uint64_t)(end - p))
				return bad(w, at, "truncated data");
			break;
		default:
			return bad(w, at, "unknown wire type");
		}
		const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d,
											    (unsigned)number);
		if (f && f->type == PROTOBUF_C_TYPE_MESSAGE) {
			if (f->label != PROTOBUF_C_LABEL_REPEATED && number < 64) {
				if (seen >> number & 1)
					return bad(w, at, "repeated field that may occur once");
				seen |= UINT64_C(1) << number;
			}
			if (depth >= MAX_DEPTH)
				return bad(w, at, "too deeply nested message");
			if (++w->n_messages > MAX_MESSAGES)
				return bad(w, at, "too many messages");
			if (walk(w, f->descriptor, p, p + v, depth + 1))
				return -1;
		}
		p += v;
	}
	return 0;
}

int dlb_onnx_wire_check(const ProtobufCMessageDescriptor *d, const void *data, size_t n, const char *name,
			struct dlb_error *err)
{
	struct wire w = { data, (const uint8_t *)data + n, name, 0, err };
	return walk(&w, d, w.start, w.end, 0);
}

static void *arena_take(void *a, size_t n) { return dlb_arena_alloc(a, n ? n : 1); }
static void arena_leave(void *a, void *p) { (void)a; (void)p; }

void *dlb_onnx_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n, const char *name,
		      struct dlb_arena *a, struct dlb_error *err)
{
	ProtobufCAllocator in_arena = { arena_take, arena_leave, a };
	if (dlb_onnx_wire_check(d, data, n, name, err))
		return NULL;
	void *m = protobuf_c_message_unpack(d, &in_arena, n, data);
	if (!m) {
		dlb_fail(err, name, "a model cannot be decoded from it");
		dlb_hint(err, "is it an ONNX file, and all of it?");
	}
	return m;
}
