/* cuDNN: the library and execution plans of convolutions. See cudnn.h.
 * Descriptors and attributes: NVIDIA, cuDNN API reference, "Graph API", cudnn_graph.h of cuDNN 9. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cudnn.h"
#include "util/mem.h"

#if defined __has_include && __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

#define LIBRARY "libcudnn.so.9"
/* Bytes to which the workspace is aligned, as by cudaMalloc. */
enum { WORKSPACE_ALIGN = 256 };
#define CALLS(X) \
	X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetErrorString) \
	X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) \
	X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) X(cudnnBackendExecute)

struct cuda_dnn {
	cudnnHandle_t handle;
#define X(name) __typeof__(name) *name;
	CALLS(X)
#undef X
};

/* ---- the library ---- */
static bool find(void *library, const char *name, void *to)
{
	void *p = dlsym(library, name);

	memcpy(to, &p, sizeof p);
	return p != NULL;
}

/* Fills in the entry points. False: there is no such library; dlerror() says why. The library stays
 * loaded. */
static bool load(struct cuda_dnn *n)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

#define X(name) && find(library, #name, &n->name)
	return library CALLS(X);
#undef X
}

/* Another attempt may succeed after a lack of memory. So the failure is reported, and no other method
 * replaces cuDNN: bits would depend on the state of the machine. */
static bool is_out_of_memory(cudnnStatus_t s)
{
	return s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
	       s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

const char *dlb_cuda_dnn_about(void)
{
	static char text[256];
	struct cuda_dnn n = { .handle = NULL };
	cudnnStatus_t s;

	if (!load(&n)) {
		const char *why = dlerror();

		snprintf(text, sizeof text, "convolution by cuBLAS (no cuDNN: %s)", why ? why : LIBRARY);
		return text;
	}
	s = n.cudnnCreate(&n.handle);
	if (s != CUDNN_STATUS_SUCCESS) {
		snprintf(text, sizeof text, "convolution by cuBLAS (cuDNN: %s)", n.cudnnGetErrorString(s));
		return text;
	}
	n.cudnnDestroy(n.handle);
	return "convolution by cuDNN";
}

/* Opens cuDNN for c's device and stream at the first call. c->dnn stays NULL if no cuDNN works there. -1 with
 * err: lack of memory, or cuDNN refuses the stream. */
static int open_once(struct cuda *c, struct dlb_error *err)
{
	struct cuda_dnn n = { .handle = NULL };
	cudnnStatus_t s;

	if (c->dnn_opened)
		return 0;
	c->dnn_opened = true;
	if (!load(&n))
		return 0;
	dlb_cuda_note(c, "cudaSetDevice", cudaSetDevice(c->device));
	s = n.cudnnCreate(&n.handle);
	if (s != CUDNN_STATUS_SUCCESS && !is_out_of_memory(s))
		return 0;
	if (s == CUDNN_STATUS_SUCCESS) {
		c->dnn = dlb_xcalloc(1, sizeof *c->dnn);
		*c->dnn = n;
		s = n.cudnnSetStream(n.handle, c->stream);
	}
	return s == CUDNN_STATUS_SUCCESS ? 0 :
		       dlb_fail(err, NULL, "device cuda:%d: cannot open cuDNN: %s", c->device,
				n.cudnnGetErrorString(s));
}

void dlb_cuda_dnn_close(struct cuda_dnn *n)
{
	if (n)
		n->cudnnDestroy(n->handle);
	free(n);
}

/* ---- descriptors: made by steps; after a step that failed, all others do nothing ---- */
enum { X, W, Y, OPERANDS, SCRATCH = OPERANDS, POINTERS, MOST_MADE = 8 };
struct cuda_dnn_conv {
	struct cuda *c;
	const struct cuda_dnn *n;
	cudnnStatus_t status;
	const char *failed;		/* name of the call that failed */
	cudnnBackendDescriptor_t made[MOST_MADE];	/* parts of the plan; freed after it */
	int n_made;
	cudnnBackendDescriptor_t plan, pack;		/* pack: NULL before the first run */
	void *packed[POINTERS];		/* the addresses in pack */
	int written;			/* X, W or Y */
	size_t bytes[OPERANDS];
	void *aligned[OPERANDS];	/* copies of unaligned operands; NULL before the first */
};

#define STEP(v, call, ...) do { \
		if ((v)->status == CUDNN_STATUS_SUCCESS && \
		    ((v)->status = (v)->n->call(__VA_ARGS__)) != CUDNN_STATUS_SUCCESS) \
			(v)->failed = #call; \
	} while (0)

static cudnnBackendDescriptor_t create(struct cuda_dnn_conv *v, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t d = NULL;

	STEP(v, cudnnBackendCreateDescriptor, type, &d);
	return d;
}

/* Creates a descriptor that is kept until the convolution is freed. */
static cudnnBackendDescriptor_t create_kept(struct cuda_dnn_conv *v, cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t d = create(v, type);

	if (d)
		v->made[v->n_made++] = d;
	return d;
}

static void destroy(const struct cuda_dnn_conv *v, cudnnBackendDescriptor_t d)
{
	if (d)
		v->n->cudnnBackendDestroyDescriptor(d);
}

static void set(struct cuda_dnn_conv *v, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
	STEP(v, cudnnBackendSetAttribute, d, name, type, count, values);
}

static void set_part(struct cuda_dnn_conv *v, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		     cudnnBackendDescriptor_t part)
{
	set(v, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static void finalize(struct cuda_dnn_conv *v, cudnnBackendDescriptor_t d)
{
	STEP(v, cudnnBackendFinalize, d);
}

/* Forgets that steps were refused, so that further ones run. Lack of memory is no refusal, and is kept. */
static void forget_refusal(struct cuda_dnn_conv *v)
{
	if (!is_out_of_memory(v->status))
		v->status = CUDNN_STATUS_SUCCESS;
}

/* ---- the graph ---- */
static cudnnDataType_t type_of(enum dlb_dtype t)
{
	return t == DLB_F64 ? CUDNN_DATA_DOUBLE : t == DLB_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* cuDNN takes 2 or 3 spatial dimensions, so one of size 1 is added before a single one. */
static cudnnBackendDescriptor_t tensor(struct cuda_dnn_conv *v, const struct dlb_desc *d, int64_t id)
{
	const cudnnBackendDescriptor_t t = create_kept(v, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const cudnnDataType_t type = type_of(d->dtype);
	const int64_t align = CUDA_ALIGN;
	int64_t dim[DLB_MAX_DIMS], stride[DLB_MAX_DIMS];
	int n = d->n_dims;

	memcpy(dim, d->dim, sizeof dim);
	dlb_desc_strides(d, stride);
	if (n == 3) {
		dim[3] = dim[2];
		stride[3] = stride[2];
		stride[2] *= dim[2];
		dim[2] = 1;
		n = 4;
	}
	set(v, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	set(v, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dim);
	set(v, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, stride);
	set(v, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
	set(v, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
	finalize(v, t);
	return t;
}

/* The windows: strides, dilations and pads. The number of groups follows from the channels of x and w. */
static cudnnBackendDescriptor_t windows(struct cuda_dnn_conv *v, const struct dlb_conv_desc *d)
{
	const cudnnBackendDescriptor_t w = create_kept(v, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
	const cudnnDataType_t sums = d->x.dtype == DLB_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int given = d->x.n_dims - 2, added = given == 1 ? 1 : 0;
	const int64_t n = given + added;
	int64_t stride[4] = { 1 }, dilation[4] = { 1 }, before[4] = { 0 }, after[4] = { 0 };

	for (int i = 0; i < given; i++) {
		stride[added + i] = d->stride[i];
		dilation[added + i] = d->dilation[i];
		before[added + i] = d->pad_begin[i];
		after[added + i] = d->pad_end[i];
	}
	set(v, w, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
	set(v, w, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	set(v, w, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
	set(v, w, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, stride);
	set(v, w, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, dilation);
	set(v, w, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, before);
	set(v, w, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, after);
	finalize(v, w);
	return w;
}

static cudnnBackendDescriptor_t operation(struct cuda_dnn_conv *v, const struct dlb_conv_desc *d)
{
	static const struct {
		cudnnBackendDescriptorType_t type;
		cudnnBackendAttributeName_t windows, x, w, y, alpha, beta;
	} of[] = {
#define ATTRIBUTE(name) CUDNN_ATTR_OPERATION_CONVOLUTION_##name
#define OF(direction, name, X_, W_, Y_) \
	{ CUDNN_BACKEND_OPERATION_CONVOLUTION_##direction##_DESCRIPTOR, ATTRIBUTE(name##_CONV_DESC), \
	  ATTRIBUTE(name##_##X_), ATTRIBUTE(name##_##W_), ATTRIBUTE(name##_##Y_), ATTRIBUTE(name##_ALPHA), \
	  ATTRIBUTE(name##_BETA) }
		[DLB_CONV_FORWARD] = OF(FORWARD, FORWARD, X, W, Y),
		[DLB_CONV_GRAD_INPUT] = OF(BACKWARD_DATA, BWD_DATA, DX, W, DY),
		[DLB_CONV_GRAD_WEIGHT] = OF(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
#undef OF
#undef ATTRIBUTE
	};
	const cudnnBackendDescriptor_t w = windows(v, d), x = tensor(v, &d->x, X),
				       weight = tensor(v, &d->w, W), y = tensor(v, &d->y, Y),
				       op = create_kept(v, of[d->dir].type);
	const bool is_double = d->x.dtype == DLB_F64;
	const cudnnBackendAttributeType_t type = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
	const float f[] = { 1, 0 };
	const double g[] = { 1, 0 };

	set_part(v, op, of[d->dir].windows, w);
	set_part(v, op, of[d->dir].x, x);
	set_part(v, op, of[d->dir].w, weight);
	set_part(v, op, of[d->dir].y, y);
	set(v, op, of[d->dir].alpha, type, 1, is_double ? (const void *)&g[0] : &f[0]);
	set(v, op, of[d->dir].beta, type, 1, is_double ? (const void *)&g[1] : &f[1]);
	finalize(v, op);
	return op;
}

static cudnnBackendDescriptor_t graph(struct cuda_dnn_conv *v, const struct dlb_conv_desc *d)
{
	const cudnnBackendDescriptor_t op = operation(v, d),
				       g = create_kept(v, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);

	set(v, g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &v->n->handle);
	set_part(v, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
	finalize(v, g);
	return g;
}

/* ---- the choice of an engine ---- */
/* Whether an engine may have this note. Notes that are not listed here, such as those of a newer cuDNN,
 * exclude the engine. So do FFT, whose errors grow with the largest element, DOWN_CONVERT_INPUTS and
 * REDUCED_PRECISION_REDUCTION. In f32, TENSOR_CORE means that inputs may be rounded to TF32; f64 and bf16 are
 * not rounded. */
static bool is_allowed(cudnnBackendNumericalNote_t note, const struct dlb_conv_desc *d, struct dlb_numerics may)
{
	switch (note) {
	case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP: return true;
	case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return may.fast;
	case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return may.tf32 || d->x.dtype != DLB_F32;
	case CUDNN_NUMERICAL_NOTE_WINOGRAD:
	case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4: return d->winograd;
	default: return false;
	}
}

/* True if all notes of the configuration's engine are allowed. */
static bool suits(struct cuda_dnn_conv *v, const struct dlb_conv_desc *d, struct dlb_numerics may,
		  cudnnBackendDescriptor_t config)
{
	cudnnBackendDescriptor_t engine = create(v, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	cudnnBackendNumericalNote_t note[32];
	int64_t got, n = 0;
	bool yes;

	STEP(v, cudnnBackendGetAttribute, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
	     1, &got, &engine);
	STEP(v, cudnnBackendGetAttribute, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
	     DLB_LEN(note), &n, note);
	yes = v->status == CUDNN_STATUS_SUCCESS && n <= DLB_LEN(note);
	for (int64_t i = 0; yes && i < n; i++)
		yes = is_allowed(note[i], d, may);
	destroy(v, engine);
	return yes;
}

/* Makes the configuration's execution plan v's plan. False: it cannot be made, or needs too much
 * workspace. */
static bool makes_plan(struct cuda_dnn_conv *v, cudnnBackendDescriptor_t config, size_t *scratch)
{
	const cudnnBackendDescriptor_t plan = create(v, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	int64_t got, bytes = 0;

	set(v, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &v->n->handle);
	set_part(v, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	finalize(v, plan);
	STEP(v, cudnnBackendGetAttribute, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
	     &got, &bytes);
	if (v->status != CUDNN_STATUS_SUCCESS || bytes > CUDA_DNN_WORKSPACE) {
		destroy(v, plan);
		return false;
	}
	v->plan = plan;
	*scratch = bytes ? (size_t)bytes + WORKSPACE_ALIGN : 0;
	return true;
}

/* Tries the configurations of one heuristic in their order. */
static void choose(struct cuda_dnn_conv *v, const struct dlb_conv_desc *d, struct dlb_numerics may,
		   cudnnBackendDescriptor_t of, cudnnBackendHeurMode_t mode, size_t *scratch)
{
	const cudnnBackendDescriptor_t h = create(v, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	cudnnBackendDescriptor_t *config;
	int64_t n = 0, got = 0;		/* n: an upper bound of got */

	set_part(v, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, of);
	set(v, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	finalize(v, h);
	STEP(v, cudnnBackendGetAttribute, h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
	     &n, NULL);
	config = dlb_xcalloc((size_t)n + 1, sizeof *config);
	for (int64_t i = 0; i < n; i++)
		config[i] = create(v, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	if (n)
		STEP(v, cudnnBackendGetAttribute, h, CUDNN_ATTR_ENGINEHEUR_RESULTS,
		     CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &got, config);
	for (int64_t i = 0; i < got && i < n && !v->plan && v->status == CUDNN_STATUS_SUCCESS; i++) {
		if (suits(v, d, may, config[i]) && makes_plan(v, config[i], scratch)) {
			v->made[v->n_made++] = config[i];
			config[i] = NULL;
		}
		forget_refusal(v);
	}
	for (int64_t i = 0; i < n; i++)
		destroy(v, config[i]);
	free(config);
	destroy(v, h);
}

int dlb_cuda_dnn_conv(struct cuda *c, const struct dlb_conv_desc *d, struct dlb_numerics may, struct cuda_dnn_conv **out,
		      size_t *scratch, struct dlb_error *err)
{
	static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
	struct cuda_dnn_conv *v;
	cudnnBackendDescriptor_t g;
	int rc = DLB_NO_KERNEL;

	if (open_once(c, err))
		return -1;
	if (!c->dnn)
		return DLB_NO_KERNEL;
	v = dlb_xcalloc(1, sizeof *v);
	v->c = c;
	v->n = c->dnn;
	v->written = d->dir == DLB_CONV_FORWARD ? Y : d->dir == DLB_CONV_GRAD_INPUT ? X : W;
	v->bytes[X] = dlb_desc_bytes(&d->x);
	v->bytes[W] = dlb_desc_bytes(&d->w);
	v->bytes[Y] = dlb_desc_bytes(&d->y);
	g = graph(v, d);
	for (int i = 0; i < DLB_LEN(modes) && v->status == CUDNN_STATUS_SUCCESS && !v->plan; i++) {
		choose(v, d, may, g, modes[i], scratch);
		forget_refusal(v);
	}
	if (v->plan) {
		*out = v;
		return 0;
	}
	if (is_out_of_memory(v->status))
		rc = dlb_fail(err, NULL, "device cuda:%d: %s: %s", c->device, v->failed,
			      v->n->cudnnGetErrorString(v->status));
	dlb_cuda_dnn_free(v);
	return rc;
}

void dlb_cuda_dnn_free(struct cuda_dnn_conv *v)
{
	if (!v)
		return;
	for (int i = 0; i < OPERANDS; i++)
		if (v->aligned[i])
			cudaFree(v->aligned[i]);
	destroy(v, v->pack);
	destroy(v, v->plan);
	while (v->n_made)
		destroy(v, v->made[--v->n_made]);
	free(v);
}

/* ---- a run ---- */
static void *align(struct cuda_dnn_conv *v, int i, void *p)
{
	return dlb_cuda_align(v->c, &v->aligned[i], p, v->bytes[i], i != v->written);
}

/* Makes the pack of the addresses p. A finalized pack cannot be changed, so other addresses need a new
 * one. */
static void pack(struct cuda_dnn_conv *v, void *const p[POINTERS])
{
	static const int64_t ids[OPERANDS] = { X, W, Y };

	if (v->pack && !memcmp(v->packed, p, sizeof v->packed))
		return;
	destroy(v, v->pack);
	v->pack = create(v, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	set(v, v->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, OPERANDS, p);
	set(v, v->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, OPERANDS, ids);
	set(v, v->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &p[SCRATCH]);
	finalize(v, v->pack);
	memcpy(v->packed, p, sizeof v->packed);
}

void dlb_cuda_dnn_run(struct cuda_dnn_conv *v, void *x, void *w, void *y, void *scratch)
{
	void *const given[OPERANDS] = { x, w, y };
	void *const p[POINTERS] = { align(v, X, x), align(v, W, w), align(v, Y, y),
				    (char *)scratch + (-(uintptr_t)scratch & (WORKSPACE_ALIGN - 1)) };
	const int o = v->written;

	if (!p[X] || !p[W] || !p[Y])
		return;
	v->status = CUDNN_STATUS_SUCCESS;
	pack(v, p);
	STEP(v, cudnnBackendExecute, v->n->handle, v->plan, v->pack);
	if (v->status != CUDNN_STATUS_SUCCESS) {
		dlb_cuda_note_text(v->c, v->failed, v->n->cudnnGetErrorString(v->status));
		destroy(v, v->pack);
		v->pack = NULL;
	} else if (p[o] != given[o]) {
		dlb_cuda_note(v->c, "cudaMemcpyAsync",
			      cudaMemcpyAsync(given[o], p[o], v->bytes[o], cudaMemcpyDeviceToDevice,
					      v->c->stream));
	}
}

#else	/* without cuDNN's headers */

const char *dlb_cuda_dnn_about(void) { return "convolution by cuBLAS (built without cuDNN's headers)"; }
void dlb_cuda_dnn_close(struct cuda_dnn *n) { (void)n; }
void dlb_cuda_dnn_free(struct cuda_dnn_conv *v) { (void)v; }

int dlb_cuda_dnn_conv(struct cuda *c, const struct dlb_conv_desc *d, struct dlb_numerics may, struct cuda_dnn_conv **v,
		      size_t *scratch, struct dlb_error *err)
{
	(void)c, (void)d, (void)may, (void)v, (void)scratch, (void)err;
	return DLB_NO_KERNEL;
}

void dlb_cuda_dnn_run(struct cuda_dnn_conv *v, void *x, void *w, void *y, void *scratch)
{
	(void)v, (void)x, (void)w, (void)y, (void)scratch;
}
#endif
