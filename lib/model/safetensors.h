/* safetensors (8-byte little-endian header length, JSON header, data): read by mapping, written aside,
 * fsynced, renamed. Every offset is checked against the file and the shape.
 *
 *     struct dlb_safetensors s;
 *     if (dlb_safetensors_read("ckpt/weights.safetensors", &s, err)) return -1;
 *     const struct dlb_st_tensor *w = dlb_safetensors_find(&s, "fc.weight");
 *     dlb_safetensors_release(&s);
 *
 * Data are used where they lie in the mapped file; those that lie crooked for their type are copied. */
#ifndef DLB_MODEL_SAFETENSORS_H
#define DLB_MODEL_SAFETENSORS_H
#include "tensor/tensor.h"
struct dlb_st_tensor { const char *name; struct dlb_desc desc; const void *data; };
struct dlb_safetensors { struct dlb_st_tensor *tensor; int n; char *metadata; /* JSON text or NULL */ void *map; size_t map_bytes; void *own; };
/* Overwrites s; empty on error. */
int dlb_safetensors_read(const char *path, struct dlb_safetensors *s, struct dlb_error *err);
/* The same of bytes in memory, which must outlive s. `name` is for messages. */
int dlb_safetensors_parse(const void *data, size_t n, const char *name, struct dlb_safetensors *s, struct dlb_error *err);
void dlb_safetensors_release(struct dlb_safetensors *s);
const struct dlb_st_tensor *dlb_safetensors_find(const struct dlb_safetensors *s, const char *name);
/* metadata: pairs key, value, ..., NULL; may be NULL. */
int dlb_safetensors_write(const char *path, const struct dlb_st_tensor *t, int n, const char *const *metadata, struct dlb_error *err);
/* The same, and the file's SHA-256, of what was meant to be written. */
int dlb_safetensors_write_summed(const char *path, const struct dlb_st_tensor *t, int n, const char *const *metadata, char sha256[65],
				 struct dlb_error *err);
#endif
