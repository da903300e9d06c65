/* Functions shared by operators: descs, windows of convolutions and pools, chains of kernels.
 *
 * A chain is a sequence of back-end kernels that acts as one kernel; temporaries are in scratch memory. After
 * the first failure later calls do nothing, and finish returns that failure:
 *
 *     struct dlb_chain *c = dlb_chain_new(be, err);
 *     int t = dlb_chain_temp(c, &io->out[0]);
 *     dlb_chain_map(c, DLB_MAP(sub, 2), DLB_REFS(DLB_IN(0), DLB_IN(1)), descs, t, &io->out[0]);
 *     dlb_chain_map(c, DLB_MAP(mul, 2), DLB_REFS(t, t), ...);
 *     return dlb_chain_finish(c, k); */
#ifndef DLB_OP_UTIL_H
#define DLB_OP_UTIL_H
#include "op/op.h"
#include "util/mem.h"

#define DLB_PI 3.14159265358979323846

/* -- attributes of a vertex -- */
static inline int64_t dlb_io_int(const struct dlb_op_io *io, const char *name, int64_t otherwise)
{
	return dlb_attr_int(io->attr, io->n_attr, name, otherwise);
}
static inline double dlb_io_real(const struct dlb_op_io *io, const char *name, double otherwise)
{
	return dlb_attr_real(io->attr, io->n_attr, name, otherwise);
}
static inline const char *dlb_io_str(const struct dlb_op_io *io, const char *name, const char *otherwise)
{
	return dlb_attr_str(io->attr, io->n_attr, name, otherwise);
}
static inline bool dlb_io_has(const struct dlb_op_io *io, int i)	/* input i is present */
{
	return i < io->n_in && io->in[i].n_dims >= 0;
}
static inline bool dlb_io_wants(const struct dlb_op_io *io, int i)	/* output i has a reader */
{
	return i < io->n_out && io->out[i].n_dims != -1;
}
static inline bool dlb_io_weight(const struct dlb_op_io *io, int i)
{
	return io->weight && i < io->n_in && io->weight[i];
}
struct dlb_attr dlb_make_int(const char *name, int64_t v);
struct dlb_attr dlb_make_real(const char *name, double v);
struct dlb_attr dlb_make_str(const char *name, const char *v);
struct dlb_attr dlb_make_ints(const char *name, const int64_t *v, int n);	/* borrows v */

/* Constant integers from input i if present, else from the attribute, at most max. Returns their number, 0 if
 * both are absent, -1 with err (not constant, not integers, too many). */
int dlb_io_ints(const struct dlb_op_io *io, int i, const char *attr, int64_t *out, int max,
		struct dlb_error *err);
/* Axes from input i or attribute "axes", as a bit mask; `otherwise` if absent. -1 with err. */
int64_t dlb_io_axes(const struct dlb_op_io *io, int i, int n_dims, int64_t otherwise, struct dlb_error *err);
/* The same axes as a list in the given order, in which none may occur twice; if absent, 0 to n_dims - 1.
 * Returns their number, -1 with err. */
int dlb_io_axis_list(const struct dlb_op_io *io, int i, int n_dims, int axis[DLB_MAX_DIMS],
		     struct dlb_error *err);

/* Checks for infer, on which kernels rely: present inputs of [first, first + n) have one type; inputs i and j
 * have one shape; input i has n elements. 0, or -1 with err. */
int dlb_same_types(const struct dlb_op_io *io, int first, int n, struct dlb_error *err);
/* Input `first` and the present ones of [from, from + n) have one type, or `first` is bf16 or f16
 * and the others are f32. */
int dlb_param_types(const struct dlb_op_io *io, int first, int from, int n, struct dlb_error *err);
/* Present inputs of [first, first + n) have one type, or are bf16 and f32; *out is that type, or bf16. */
int dlb_mixed_types(const struct dlb_op_io *io, int first, int n, enum dlb_dtype *out, struct dlb_error *err);
int dlb_same_shapes(const struct dlb_op_io *io, int i, int j, struct dlb_error *err);
/* Shape inference of a gradient: output 0 is like inputs 0 and 1, which have one type and shape. */
int dlb_infer_alike(struct dlb_op_io *io, struct dlb_error *err);
int dlb_has_count(const struct dlb_op_io *io, int i, int64_t count, struct dlb_error *err);
/* The shape that constant input i holds, with input 0's type; checks the sizes. */
int dlb_io_shape(const struct dlb_op_io *io, int i, struct dlb_desc *out, struct dlb_error *err);

/* Reads attribute `name`, the dimensions of batch, heads, rows and width (which is the last), into axis;
 * leaves axis if there is none. */
int dlb_io_head_axes(const struct dlb_op_io *io, const char *name, int64_t axis[4], struct dlb_error *err);
/* Gives output 0 the shape of input 0, and the type that attribute `name` gives by ONNX's number. Without the
 * attribute the type is input 0's; if needed is set, -1 with err. */
int dlb_infer_typed(struct dlb_op_io *io, const char *name, bool needed, struct dlb_error *err);

/* -- descriptors -- */
struct dlb_desc dlb_desc_make(enum dlb_dtype t, int n_dims, const int64_t *dim);	/* row-major */
struct dlb_desc dlb_desc_1d(enum dlb_dtype t, int64_t n);
struct dlb_desc dlb_desc_scalar(enum dlb_dtype t);

/* Copies the attributes of the vertex whose names are in `keep` to a[]; returns their number. */
int dlb_keep_attrs(const struct dlb_op_io *io, const char *const *keep, int n_keep, struct dlb_attr *a);

/* -- elements, for host kernels that compute in double -- */
static inline double dlb_real_get(const void *p, enum dlb_dtype t, int64_t i)
{
	return t == DLB_F32 ? (double)((const float *)p)[i] :
	       t == DLB_F64 ? ((const double *)p)[i] :
			      dlb_value_real(p, t, i);
}
static inline void dlb_real_set(void *p, enum dlb_dtype t, int64_t i, double v)
{
	if (t == DLB_F32)
		((float *)p)[i] = (float)v;
	else if (t == DLB_F64)
		((double *)p)[i] = v;
	else
		dlb_value_set(p, t, i, v);
}

/* -- windows -- */
struct dlb_kernel_window {
	int n;					/* spatial dimensions, 1 to 3 */
	int64_t kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3], out[3];
};
/* Reads strides, dilations, pads, auto_pad, ceil_mode for spatial sizes in[n] and window `kernel` (NULL: from
 * kernel_shape); sets out[], the output sizes of a convolution or pool. */
int dlb_window_read(const struct dlb_op_io *io, const int64_t *in, int n, const int64_t *kernel,
		    struct dlb_kernel_window *w, struct dlb_error *err);

/* -- kernels -- */
#define DLB_IN(i) (i)
#define DLB_OUT(i) ((1 << 24) + (i))	/* after the inputs of any op */
#define DLB_NOTHING (-1)
#define DLB_REFS(...) (const int[]){ __VA_ARGS__ }
/* An elementwise function of n_in operands (tensor/map_list.h). */
struct dlb_map { enum dlb_map_fn fn; int n_in; double alpha, beta; };
#define DLB_MAP(f, n) (&(struct dlb_map){ .fn = DLB_MAP_##f, .n_in = (n) })
struct dlb_chain;
struct dlb_chain *dlb_chain_new(struct dlb_backend *be, struct dlb_error *err);
int dlb_chain_temp(struct dlb_chain *c, const struct dlb_desc *d);		/* a reference */
/* A temporary like d that holds these bytes in each run. `data` is copied. */
int dlb_chain_constant(struct dlb_chain *c, const void *data, const struct dlb_desc *d);
/* Appends the kernel that a prepare call returned in *k with status rc. */
void dlb_chain_add(struct dlb_chain *c, int rc, struct dlb_kernel *k, const int *in, int n_in, const int *out,
		   int n_out);
/* d[i]: desc of operand in[i]; d_out: that of `out`. */
void dlb_chain_map(struct dlb_chain *c, const struct dlb_map *m, const int *in,
		   const struct dlb_desc *const *d, int out, const struct dlb_desc *d_out);
void dlb_chain_copy(struct dlb_chain *c, int in, int out, const struct dlb_desc *d);	/* the same bytes */
void dlb_chain_cast(struct dlb_chain *c, int in, const struct dlb_desc *d_in, int out,
		    const struct dlb_desc *d_out);
void dlb_chain_reduce(struct dlb_chain *c, enum dlb_reduce_fn fn, unsigned axes, int in,
		      const struct dlb_desc *d_in, int out, const struct dlb_desc *d_out);
void dlb_chain_fail(struct dlb_chain *c, int rc);
int dlb_chain_finish(struct dlb_chain *c, struct dlb_kernel **k);		/* takes c */

/* An elementwise kernel over the vertex's inputs and output 0. */
int dlb_kernel_map(struct dlb_backend *be, const struct dlb_op_io *io, const struct dlb_map *m,
		   struct dlb_kernel **k, struct dlb_error *err);
/* Prepares `kernel` with operands of the masked types (bit t: type t) converted to type `wide`: for types
 * that the back end does not compute in, and whose values `wide` represents. */
int dlb_kernel_widened(struct dlb_backend *be, const struct dlb_op_io *io, unsigned types,
		       enum dlb_dtype wide,
		       int (*kernel)(struct dlb_backend *be, const struct dlb_op_io *io,
				     struct dlb_kernel **k, struct dlb_error *err),
		       struct dlb_kernel **k, struct dlb_error *err);
/* A kernel that writes element i = value(ctx, i) of a tensor like d at each run; the values are computed here. */
int dlb_kernel_table(struct dlb_backend *be, const struct dlb_desc *d, double (*value)(const void *ctx, int64_t i),
		     const void *ctx, struct dlb_kernel **k, struct dlb_error *err);
/* Copies input 0 to output 0 (for views whose tensors do not share memory). */
int dlb_kernel_view(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		    struct dlb_error *err);
/* A host function with n_in inputs and n_out outputs, whatever the vertex has: absent ones are NULL. The
 * kernel keeps a copy of the ctx_bytes at `ctx`. */
struct dlb_host_call {
	dlb_host_fn fn;
	int n_in, n_out;
	const void *ctx;
	size_t ctx_bytes, scratch_bytes;
};
int dlb_kernel_host(struct dlb_backend *be, const struct dlb_op_io *io, const struct dlb_host_call *h,
		    struct dlb_kernel **k, struct dlb_error *err);
/* A copy from a tensor like `in` to one like `out`, by n_dims loops of sizes dim[]; strides and offsets in
 * elements. zero_first: elements of `out` that are not written become 0. */
struct dlb_strided {
	const struct dlb_desc *in, *out;
	int n_dims;
	const int64_t *dim, *in_stride, *out_stride;
	int64_t in_offset, out_offset;
	bool zero_first;
};
int dlb_kernel_strided(struct dlb_backend *be, const struct dlb_strided *s, struct dlb_kernel **k,
		       struct dlb_error *err);
#endif
