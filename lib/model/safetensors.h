/* Reads safetensors files (8-byte little-endian header length, JSON header, data) by mapping them; writes to
 * a temporary file, then fsync and rename. Every offset is checked against the file and the shape.
 *
 *     struct dlb_safetensors s;
 *     if (dlb_safetensors_read("ckpt/weights.safetensors", &s, err)) return -1;
 *     const struct dlb_st_tensor *w = dlb_safetensors_find(&s, "fc.weight");
 *     dlb_safetensors_release(&s);
 *
 * Data are used in place in the mapped file; unaligned data are copied. */
#ifndef DLB_MODEL_SAFETENSORS_H
#define DLB_MODEL_SAFETENSORS_H
#include "tensor/tensor.h"
struct dlb_st_tensor { const char *name; struct dlb_desc desc; const void *data; };
struct dlb_safetensors {
	struct dlb_st_tensor *tensor;
	int n;
	char *metadata; /* JSON text or NULL */
	void *map;
	size_t map_bytes;
	void *own;
};
/* Overwrites s; on error s is empty. */
int dlb_safetensors_read(const char *path, struct dlb_safetensors *s, struct dlb_error *err);
/* Parses a file in memory, which must outlive s. `name` is for messages. */
int dlb_safetensors_parse(const void *data, size_t n, const char *name, struct dlb_safetensors *s,
			  struct dlb_error *err);
void dlb_safetensors_release(struct dlb_safetensors *s);
const struct dlb_st_tensor *dlb_safetensors_find(const struct dlb_safetensors *s, const char *name);
/* metadata: key, value, ..., NULL; or NULL. */
int dlb_safetensors_write(const char *path, const struct dlb_st_tensor *t, int n, const char *const *metadata,
			  struct dlb_error *err);
/* As above; also returns the SHA-256 of the data written. */
int dlb_safetensors_write_summed(const char *path, const struct dlb_st_tensor *t, int n,
				 const char *const *metadata, char sha256[65], struct dlb_error *err);
/* The layout of a file of these tensors, for a file that is written in parts: the bytes before the data
 * (head), the size of the file, and the offset of each tensor's data. head and offset are new; `name` is for
 * messages. */
struct dlb_st_layout {
	char *head;
	size_t head_bytes, bytes, *offset;
};
int dlb_safetensors_layout(const char *name, const struct dlb_st_tensor *t, int n, struct dlb_st_layout *l,
			   struct dlb_error *err);
void dlb_safetensors_layout_release(struct dlb_st_layout *l);
#endif
