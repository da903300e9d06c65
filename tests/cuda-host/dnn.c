/* A stand-in for cuDNN's backend API: convolutions in plain loops that add in double. A refusal would only
 * make the back end convolve in another way, so wrong use ends the process; what NVIDIA's library may refuse
 * is refused.
 *
 * Its heuristics offer engines that the back end must leave out before those that it may use (engines[]
 * below). What they compute is wrong by as much as their notes say, so that tests see which was chosen.
 *     DLB_CUDA_HOST_CUDNN=0        cuDNN cannot be used
 *     DLB_CUDA_HOST_NOTES=0        engines do not say their notes
 *     DLB_CUDA_HOST_ENGINES=FILE   appends the name of the engine of each execution, a line each */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_graph.h"
#include "host.h"
#include "tensor/tensor.h"

enum { X, W, Y, OPERANDS, SPATIAL = 3, MOST_VALUES = 16, MOST_ELEMENTS = 8 };

/* Sizes and strides are (image or output channel, channel, spatial); absent dimensions have size 1. */
struct convolution {
	cudnnBackendDescriptorType_t type;
	int n_spatial, written;
	enum dlb_dtype dtype[OPERANDS];
	int64_t id[OPERANDS], align[OPERANDS], dim[OPERANDS][2 + SPATIAL], at[OPERANDS][2 + SPATIAL];
	int64_t stride[SPATIAL], dilation[SPATIAL], before[SPATIAL], after[SPATIAL], groups;
};

struct value {
	cudnnBackendAttributeName_t name;
	cudnnBackendAttributeType_t type;
	int64_t count;
	union { int64_t i[MOST_ELEMENTS]; double d; float f; int e; void *p[MOST_ELEMENTS]; } of;
};

static const char descriptor_mark[] = "descriptor", handle_mark[] = "handle";
struct descriptor {
	const char *mark;
	cudnnBackendDescriptorType_t type;
	bool finalized;
	struct value value[MOST_VALUES];
	int n_values;
	struct convolution conv;	/* of operations, and what is made of them */
	cudnnBackendHeurMode_t mode;
	const struct engine *engine;
};
struct cudnnContext { const char *mark; cudaStream_t stream; };
static int n_descriptors;

/* ---- engines ---- */
enum arithmetic { SOUND, DRAWN, TF32, HALF };
struct engine {
	const char *name;
	cudnnBackendHeurMode_t mode;
	enum arithmetic arithmetic;
	bool (*takes)(const struct convolution *c);	/* its configurations are offered; else not */
	bool finalizes;
	int64_t workspace;
	int n_notes, note[3];
};

static bool any(const struct convolution *c) { return c != NULL; }
static bool is_f32(const struct convolution *c) { return c->dtype[X] == DLB_F32; }

static bool is_plane(const struct convolution *c) { return c->n_spatial == 2; }
static bool is_bf16_plane(const struct convolution *c) { return c->dtype[X] == DLB_BF16 && is_plane(c); }

/* No engine takes groups of volumes. */
static bool is_volume(const struct convolution *c) { return c->n_spatial == 3 && c->groups == 1; }
static bool is_3x3(const struct convolution *c)
{
	return is_f32(c) && is_plane(c) && c->dim[W][3] == 3 && c->dim[W][4] == 3 &&
	       c->stride[1] * c->stride[2] == 1 && c->dilation[1] * c->dilation[2] == 1;
}

#define NOTE(name) CUDNN_NUMERICAL_NOTE_##name
static const struct engine engines[] = {
	{ "nondeterministic", CUDNN_HEUR_MODE_A, DRAWN, any, true, 0, 1, { NOTE(NONDETERMINISTIC) } },
	{ "tf32", CUDNN_HEUR_MODE_A, TF32, is_f32, true, 64, 1, { NOTE(TENSOR_CORE) } },
	{ "narrow", CUDNN_HEUR_MODE_A, HALF, is_f32, true, 0, 2,
	  { NOTE(STRICT_NAN_PROP), NOTE(DOWN_CONVERT_INPUTS) } },
	{ "newer", CUDNN_HEUR_MODE_A, HALF, is_f32, true, 0, 1, { NOTE(TYPE_COUNT) } },
	{ "refused", CUDNN_HEUR_MODE_A, DRAWN, any, false, 0, 0, { 0 } },
	{ "large", CUDNN_HEUR_MODE_A, DRAWN, any, true, (int64_t)1 << 40, 0, { 0 } },
	{ "winograd", CUDNN_HEUR_MODE_A, SOUND, is_3x3, true, 1000, 2,
	  { NOTE(WINOGRAD), NOTE(WINOGRAD_TILE_4x4) } },
	{ "tensor-core", CUDNN_HEUR_MODE_A, SOUND, is_bf16_plane, true, 4096, 1, { NOTE(TENSOR_CORE) } },
	{ "plane", CUDNN_HEUR_MODE_A, SOUND, is_plane, true, 300, 1, { NOTE(STRICT_NAN_PROP) } },
	{ "volume", CUDNN_HEUR_MODE_FALLBACK, SOUND, is_volume, true, 0, 0, { 0 } },
};
enum { N_ENGINES = sizeof engines / sizeof *engines };

/* ---- attributes ---- */
enum { GIVEN, ASKED };		/* set by the caller, or got */
struct rule {
	cudnnBackendDescriptorType_t of;
	cudnnBackendAttributeName_t name;
	cudnnBackendAttributeType_t type, or;
	int64_t least, most;	/* elements */
	int way;
	cudnnBackendDescriptorType_t part;	/* of CUDNN_TYPE_BACKEND_DESCRIPTOR; 0: the operation's */
};

#define RULE(of, name, type, or, least, most, way, part) \
	{ CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, CUDNN_TYPE_##or, least, most, \
	  way, part }
#define ONE(of, name, type) RULE(of, name, type, type, 1, 1, GIVEN, 0)
#define MANY(of, name, type, least, most) RULE(of, name, type, type, least, most, GIVEN, 0)
#define PART(of, name, part) RULE(of, name, BACKEND_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, 1, GIVEN, part)
#define REAL(of, name) RULE(of, name, FLOAT, DOUBLE, 1, 1, GIVEN, 0)
#define GOT(of, name, type, least, most) RULE(of, name, type, type, least, most, ASKED, 0)
#define OPERAND(of, name) PART(OPERATION_CONVOLUTION_##of, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR)
#define OPERATION(of, name, x, w, y) \
	OPERAND(of, OPERATION_CONVOLUTION_##name##_##x), OPERAND(of, OPERATION_CONVOLUTION_##name##_##w), \
	OPERAND(of, OPERATION_CONVOLUTION_##name##_##y), \
	PART(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_CONV_DESC, \
	     CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), \
	REAL(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_ALPHA), \
	REAL(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_BETA)
static const struct rule rules[] = {
	ONE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE),
	MANY(TENSOR, TENSOR_DIMENSIONS, INT64, 4, 5),
	MANY(TENSOR, TENSOR_STRIDES, INT64, 4, 5),
	ONE(TENSOR, TENSOR_UNIQUE_ID, INT64),
	ONE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64),
	ONE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE),
	ONE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE),
	ONE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64),
	MANY(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, 3),
	MANY(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, 3),
	MANY(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, 3),
	MANY(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, 3),
	OPERATION(FORWARD, FORWARD, X, W, Y),
	OPERATION(BACKWARD_DATA, BWD_DATA, DX, W, DY),
	OPERATION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
	ONE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE),
	PART(OPERATIONGRAPH, OPERATIONGRAPH_OPS, 0),
	PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
	ONE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE),
	GOT(ENGINEHEUR, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, 0, INT64_MAX),
	GOT(ENGINECFG, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, 1),
	GOT(ENGINE, ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, 0, INT64_MAX),
	ONE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE),
	PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
	GOT(EXECUTION_PLAN, EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 1, 1),
	MANY(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, MOST_ELEMENTS),
	MANY(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, MOST_ELEMENTS),
	ONE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR),
};
enum { N_RULES = sizeof rules / sizeof *rules };

static void must(bool holds, const char *call, const char *what)
{
	if (!holds)
		cuda_host_abort(call, what);
}

static struct descriptor *check(const char *call, cudnnBackendDescriptor_t p)
{
	struct descriptor *d = p;

	must(d && d->mark == descriptor_mark, call, "not a descriptor");
	return d;
}

static const struct rule *rule_of(const char *call, const struct descriptor *d,
				  cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
				  int64_t count, int way)
{
	for (int i = 0; i < N_RULES; i++) {
		const struct rule *r = &rules[i];

		if (r->of != d->type || r->name != name)
			continue;
		must(r->way == way, call,
		     way == ASKED ? "an attribute that is only set" : "an attribute that is only got");
		must(r->type == type || r->or == type, call, "the type of the attribute is another");
		must(count >= r->least && count <= r->most, call, "too few or too many elements");
		return r;
	}
	cuda_host_abort(call, "a descriptor of this type has no such attribute");
}

static const struct value *find(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
	for (int i = 0; i < d->n_values; i++)
		if (d->value[i].name == name)
			return &d->value[i];
	return NULL;
}

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
	return type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_DOUBLE || type == CUDNN_TYPE_VOID_PTR ||
			       type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_BACKEND_DESCRIPTOR ?
		       8 :
		       4;
}

static bool is_operation(const struct descriptor *d)
{
	return d->type >= CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
	       d->type <= CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count, const void *elements)
{
	static const char call[] = "cudnnBackendSetAttribute";
	struct descriptor *d = check(call, descriptor);
	const struct rule *r = rule_of(call, d, name, type, count, GIVEN);
	struct value *v = (struct value *)find(d, name);

	if (cuda_host_fails())
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	must(!d->finalized, call, "the descriptor is finalized");
	must(elements != NULL, call, "no elements");
	if (!v)
		v = &d->value[d->n_values++];
	*v = (struct value){ .name = name, .type = type, .count = count };
	memcpy(&v->of, elements, (size_t)count * bytes_of(type));
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
		const struct descriptor *part = check(call, v->of.p[0]);

		must(part->finalized, call, "a part is not finalized");
		must(r->part ? part->type == r->part : is_operation(part), call, "a part of another type");
	}
	if (type == CUDNN_TYPE_HANDLE)
		must(v->of.p[0] && ((cudnnHandle_t)v->of.p[0])->mark == handle_mark, call, "not a handle");
	return CUDNN_STATUS_SUCCESS;
}

/* ---- finalizing ---- */
static enum dlb_dtype dtype_of(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
	const int e = find(d, name)->of.e;

	must(e == CUDNN_DATA_FLOAT || e == CUDNN_DATA_DOUBLE || e == CUDNN_DATA_BFLOAT16,
	     "cudnnBackendFinalize", "a type that is not used");
	return e == CUDNN_DATA_FLOAT ? DLB_F32 : e == CUDNN_DATA_DOUBLE ? DLB_F64 : DLB_BF16;
}

static void check_tensor(const char *call, const struct descriptor *d)
{
	const struct value *dim = find(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
			   *stride = find(d, CUDNN_ATTR_TENSOR_STRIDES);
	const int64_t align = find(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->of.i[0];

	must(dim->count == stride->count, call, "as many dimensions as strides");
	for (int i = 0; i < dim->count; i++)
		must(dim->of.i[i] > 0 && stride->of.i[i] > 0, call, "a dimension or stride below 1");
	must(align > 0 && !(align & (align - 1)) &&
		     align % (int64_t)dlb_dtype_bytes(dtype_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE)) == 0,
	     call, "an alignment that is no power of two, or below an element");
}

static void check_windows(const char *call, const struct descriptor *d)
{
	const int64_t n = find(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)->of.i[0];
	const struct value *stride = find(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
			   *dilation = find(d, CUDNN_ATTR_CONVOLUTION_DILATIONS),
			   *before = find(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
			   *after = find(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);

	must(find(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE)->of.e == CUDNN_CROSS_CORRELATION, call, "the mode");
	must(stride->count == n && dilation->count == n && before->count == n && after->count == n, call,
	     "as many strides, dilations and pads as spatial dimensions");
	for (int i = 0; i < n; i++)
		must(stride->of.i[i] > 0 && dilation->of.i[i] > 0 && before->of.i[i] >= 0 &&
			     after->of.i[i] >= 0,
		     call, "a stride, dilation or pad out of range");
}

/* Operand o of c from its tensor. */
static void take_tensor(struct convolution *c, int o, const struct descriptor *t)
{
	const struct value *dim = find(t, CUDNN_ATTR_TENSOR_DIMENSIONS),
			   *stride = find(t, CUDNN_ATTR_TENSOR_STRIDES);

	must(dim->count == c->n_spatial + 2, "cudnnBackendFinalize",
	     "a tensor of another number of dimensions");
	for (int i = 0; i < 2 + SPATIAL; i++) {
		const int from = i < 2 ? i : i - (SPATIAL - c->n_spatial);

		c->dim[o][i] = i >= 2 && from < 2 ? 1 : dim->of.i[from];
		c->at[o][i] = i >= 2 && from < 2 ? 0 : stride->of.i[from];
	}
	c->dtype[o] = dtype_of(t, CUDNN_ATTR_TENSOR_DATA_TYPE);
	c->id[o] = find(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)->of.i[0];
	c->align[o] = find(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->of.i[0];
}

static void take_windows(struct convolution *c, const struct descriptor *d)
{
	for (int i = 0; i < SPATIAL; i++) {
		const int from = i - (SPATIAL - c->n_spatial);

		c->stride[i] = from < 0 ? 1 : find(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->of.i[from];
		c->dilation[i] = from < 0 ? 1 : find(d, CUDNN_ATTR_CONVOLUTION_DILATIONS)->of.i[from];
		c->before[i] = from < 0 ? 0 : find(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->of.i[from];
		c->after[i] = from < 0 ? 0 : find(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)->of.i[from];
	}
}

/* Gradients of weights in f32 where x and y are bf16. */
static bool is_widened(const struct convolution *c)
{
	return c->written == W && c->dtype[X] == DLB_BF16 && c->dtype[W] == DLB_F32;
}

static void check_shapes(const char *call, const struct convolution *c)
{
	must(c->dim[X][0] == c->dim[Y][0] && c->dim[W][0] == c->dim[Y][1], call,
	     "numbers of images or channels");
	must(c->dim[X][1] % c->dim[W][1] == 0 && c->dim[W][0] % c->groups == 0, call, "groups");
	for (int i = 0; i < SPATIAL; i++) {
		const int64_t room = c->dim[X][2 + i] + c->before[i] + c->after[i] -
				     (c->dim[W][2 + i] - 1) * c->dilation[i] - 1;

		must(room >= 0 && c->dim[Y][2 + i] == room / c->stride[i] + 1, call, "sizes of x, w and y");
	}
	must(c->dtype[X] == c->dtype[Y] && (c->dtype[X] == c->dtype[W] || is_widened(c)), call,
	     "types of x, w and y");
	must(c->id[X] != c->id[W] && c->id[X] != c->id[Y] && c->id[W] != c->id[Y], call,
	     "identifiers of tensors");
}

/* The attributes of an operation stand in the rules in this order: x, w, y, windows, alpha, beta. */
static void take_operation(const char *call, struct descriptor *d)
{
	struct convolution *c = &d->conv;
	const struct descriptor *windows;
	const struct value *alpha, *beta;
	cudnnBackendAttributeType_t type;
	int first = 0;

	while (rules[first].of != d->type)
		first++;
	windows = find(d, rules[first + 3].name)->of.p[0];
	alpha = find(d, rules[first + 4].name);
	beta = find(d, rules[first + 5].name);
	c->type = d->type;
	c->written = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR	  ? Y :
		     d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? X :
											       W;
	c->n_spatial = (int)find(windows, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)->of.i[0];
	for (int o = 0; o < OPERANDS; o++)
		take_tensor(c, o, find(d, rules[first + o].name)->of.p[0]);
	take_windows(c, windows);
	c->groups = c->dim[X][1] / c->dim[W][1];
	check_shapes(call, c);
	must(dtype_of(windows, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) ==
		     (c->dtype[X] == DLB_F64 ? DLB_F64 : DLB_F32),
	     call, "the type of sums");
	type = c->dtype[X] == DLB_F64 ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
	must(alpha->type == type && beta->type == type, call, "the type of alpha or beta");
	must(type == CUDNN_TYPE_DOUBLE ? alpha->of.d == 1 && beta->of.d == 0 :
					 alpha->of.f == 1 && beta->of.f == 0,
	     call, "alpha is not 1, or beta not 0");
}

static bool offers(const struct engine *e, const struct descriptor *heuristics)
{
	return e->mode == heuristics->mode && e->takes(&heuristics->conv);
}

static int64_t n_offered(const struct descriptor *heuristics)
{
	int64_t n = 0;

	for (int i = 0; i < N_ENGINES; i++)
		n += offers(&engines[i], heuristics);
	return n;
}

static void take_part(struct descriptor *d, cudnnBackendAttributeName_t name)
{
	const struct descriptor *part = find(d, name)->of.p[0];

	d->conv = part->conv;
	d->engine = part->engine;
}

static void check_pack(const char *call, const struct descriptor *d)
{
	const struct value *p = find(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS),
			   *id = find(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);

	must(p->count == id->count, call, "as many pointers as identifiers");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
	static const char call[] = "cudnnBackendFinalize";
	struct descriptor *d = check(call, descriptor);

	if (cuda_host_fails())
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	must(!d->finalized, call, "the descriptor is finalized");
	for (int i = 0; i < N_RULES; i++)
		must(rules[i].of != d->type || rules[i].way == ASKED || find(d, rules[i].name), call,
		     "an attribute is missing");
	if (is_operation(d))
		take_operation(call, d);
	switch (d->type) {
	case CUDNN_BACKEND_TENSOR_DESCRIPTOR: check_tensor(call, d); break;
	case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: check_windows(call, d); break;
	case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: check_pack(call, d); break;
	case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: take_part(d, CUDNN_ATTR_OPERATIONGRAPH_OPS); break;
	case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
		take_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
		d->mode = (cudnnBackendHeurMode_t)find(d, CUDNN_ATTR_ENGINEHEUR_MODE)->of.e;
		if (!n_offered(d))
			return CUDNN_STATUS_NOT_SUPPORTED;
		break;
	case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
		take_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
		if (!d->engine->finalizes)
			return CUDNN_STATUS_NOT_SUPPORTED;
		break;
	case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
	case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
		cuda_host_abort(call, "engines are those of the heuristics");
		break;
	default: break;
	}
	d->finalized = true;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- getting ---- */
/* Makes p, which the caller has created, that engine or its configuration. */
static void fill(const char *call, void *p, cudnnBackendDescriptorType_t type, const struct descriptor *from,
		 const struct engine *e)
{
	struct descriptor *d = check(call, p);

	must(d->type == type && !d->finalized, call, "results go to new descriptors of their type");
	d->conv = from->conv;
	d->engine = e;
	d->finalized = true;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
				       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
				       int64_t requested, int64_t *count, void *elements)
{
	static const char call[] = "cudnnBackendGetAttribute";
	const struct descriptor *d = check(call, descriptor);
	int64_t n = 0;

	rule_of(call, d, name, type, requested, ASKED);
	if (cuda_host_fails())
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	must(d->finalized, call, "the descriptor is not finalized");
	must(count && (elements || !requested), call, "no place for the results");
	if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && !requested)
		n = N_ENGINES;	/* at most so many; NVIDIA's library also gets fewer than it says */
	else if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
		for (int i = 0; i < N_ENGINES; i++) {
			if (!offers(&engines[i], d))
				continue;
			if (n < requested)
				fill(call, ((void **)elements)[n], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d,
				     &engines[i]);
			n++;
		}
	else if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
		fill(call, ((void **)elements)[n++], CUDNN_BACKEND_ENGINE_DESCRIPTOR, d, d->engine);
	else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
		for (int i = 0; i < d->engine->n_notes && cuda_host_setting("DLB_CUDA_HOST_NOTES", 1);
		     i++, n++) {
			if (n < requested)
				((int *)elements)[n] = d->engine->note[i];
		}
	else
		((int64_t *)elements)[n++] = d->engine->workspace;
	*count = n;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- execution ---- */
struct execution { struct convolution c; const struct engine *engine; void *p[OPERANDS], *workspace; };

/* As a type with fewer bits of mantissa holds it: cut off, as tensor cores read an f32. */
static double cut(double v, int bits)
{
	float f = (float)v;
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	u &= ~(uint32_t)0 << (23 - bits);
	memcpy(&f, &u, sizeof f);
	return f;
}

static int64_t count5(const int64_t *dim) { return dim[0] * dim[1] * dim[2] * dim[3] * dim[4]; }

/* Where element i of operand o, in row-major order, lies. */
static int64_t place(const struct convolution *c, int o, int64_t i)
{
	int64_t at = 0;

	for (int j = 1 + SPATIAL; j >= 0; j--) {
		at += i % c->dim[o][j] * c->at[o][j];
		i /= c->dim[o][j];
	}
	return at;
}

/* Operand o in row-major order, as the engine reads it. */
static double *read_operand(const struct execution *e, int o)
{
	const int64_t n = count5(e->c.dim[o]);
	double *v = calloc((size_t)n, sizeof *v);

	for (int64_t i = 0; i < n && o != e->c.written; i++) {
		v[i] = dlb_value_real(e->p[o], e->c.dtype[o], place(&e->c, o, i));
		if (e->engine->arithmetic == TF32 || e->engine->arithmetic == HALF)
			v[i] = cut(v[i], e->engine->arithmetic == TF32 ? 10 : 7);
	}
	return v;
}

/* The products of one pair of channels of one image: y += x w, dx += dy w or dw += x dy. */
static void channel(const struct convolution *c, double *x, double *w, double *y)
{
	const int64_t *in = c->dim[X] + 2, *size = c->dim[W] + 2, *out = c->dim[Y] + 2;
	const int64_t taps = size[0] * size[1] * size[2], positions = out[0] * out[1] * out[2];

	for (int64_t p = 0; p < positions; p++)
		for (int64_t t = 0; t < taps; t++) {
			const int64_t o[3] = { p / out[2] / out[1], p / out[2] % out[1], p % out[2] };
			const int64_t k[3] = { t / size[2] / size[1], t / size[2] % size[1], t % size[2] };
			int64_t at = 0;
			bool inside = true;

			for (int i = 0; i < SPATIAL; i++) {
				const int64_t s = o[i] * c->stride[i] - c->before[i] + k[i] * c->dilation[i];

				inside = inside && s >= 0 && s < in[i];
				at = at * in[i] + s;
			}
			if (!inside)
				continue;
			if (c->written == Y)
				y[p] += x[at] * w[t];
			else if (c->written == X)
				x[at] += y[p] * w[t];
			else
				w[t] += x[at] * y[p];
		}
}

static void run(void *arg)
{
	static int drawn;
	const struct execution *e = arg;
	const struct convolution *c = &e->c;
	const int64_t in = c->dim[X][2] * c->dim[X][3] * c->dim[X][4],
		      taps = c->dim[W][2] * c->dim[W][3] * c->dim[W][4],
		      positions = c->dim[Y][2] * c->dim[Y][3] * c->dim[Y][4], cg = c->dim[W][1],
		      m = c->dim[W][0];
	double *v[OPERANDS];

	for (int o = 0; o < OPERANDS; o++)
		v[o] = read_operand(e, o);
	if (e->engine->workspace)
		memset(e->workspace, 0xff, (size_t)e->engine->workspace);
	for (int64_t n = 0; n < c->dim[X][0]; n++)
		for (int64_t i = 0; i < m; i++)
			for (int64_t j = 0; j < cg; j++)
				channel(c, v[X] + (n * c->dim[X][1] + i / (m / c->groups) * cg + j) * in,
					v[W] + (i * cg + j) * taps, v[Y] + (n * m + i) * positions);
	for (int64_t i = 0; i < count5(c->dim[c->written]); i++)
		dlb_value_set(e->p[c->written], c->dtype[c->written], place(c, c->written, i),
			      v[c->written][i] * (e->engine->arithmetic == DRAWN ? 1 + 1e-3 * ++drawn : 1));
	for (int o = 0; o < OPERANDS; o++)
		free(v[o]);
}

static void log_engine(const struct engine *e)
{
	const char *name = getenv("DLB_CUDA_HOST_ENGINES");
	FILE *f = name && *name ? fopen(name, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%s\n", e->name);
	fclose(f);
}

static void check_address(const char *call, const struct execution *e, int o)
{
	int64_t last = 0;

	for (int i = 0; i < 2 + SPATIAL; i++)
		last += (e->c.dim[o][i] - 1) * e->c.at[o][i];
	must((uintptr_t)e->p[o] % (uintptr_t)e->c.align[o] == 0, call,
	     "an operand is not as aligned as its tensor says");
	cuda_host_must_be_device(call, e->p[o], (size_t)(last + 1) * dlb_dtype_bytes(e->c.dtype[o]));
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_,
				  cudnnBackendDescriptor_t pack_)
{
	static const char call[] = "cudnnBackendExecute";
	const struct descriptor *plan = check(call, plan_), *pack = check(call, pack_);
	struct execution e = { .c = plan->conv, .engine = plan->engine };
	const struct value *p, *id;

	if (cuda_host_fails())
		return CUDNN_STATUS_EXECUTION_FAILED;
	must(handle->mark == handle_mark, call, "not a handle");
	must(plan->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan->finalized, call, "not a plan");
	must(pack->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && pack->finalized, call, "not a pack");
	p = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
	id = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
	must(p->count == OPERANDS, call, "an operand is missing");
	for (int o = 0; o < OPERANDS; o++) {
		for (int i = 0; i < OPERANDS; i++)
			if (id->of.i[i] == e.c.id[o])
				e.p[o] = p->of.p[i];
		must(e.p[o] != NULL, call, "an operand is missing");
		check_address(call, &e, o);
	}
	e.workspace = find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->of.p[0];
	if (e.engine->workspace) {
		must((uintptr_t)e.workspace % 256 == 0, call, "the workspace is not aligned");
		cuda_host_must_be_device(call, e.workspace, (size_t)e.engine->workspace);
	}
	log_engine(e.engine);
	cuda_host_enqueue(handle->stream, run, &e, sizeof e);
	return CUDNN_STATUS_SUCCESS;
}

/* ---- handles and descriptors ---- */
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
	if (cuda_host_fails())
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	if (!cuda_host_setting("DLB_CUDA_HOST_CUDNN", 1))
		return CUDNN_STATUS_NOT_INITIALIZED;
	*handle = calloc(1, sizeof **handle);
	(*handle)->mark = handle_mark;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
	must(handle->mark == handle_mark, "cudnnDestroy", "not a handle");
	must(!n_descriptors, "cudnnDestroy", "descriptors are left");
	handle->mark = NULL;
	free(handle);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	must(handle->mark == handle_mark, "cudnnSetStream", "not a handle");
	handle->stream = stream;
	return cuda_host_fails() ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
					   cudnnBackendDescriptor_t *descriptor)
{
	struct descriptor *d;

	if (cuda_host_fails())
		return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
	d = calloc(1, sizeof *d);
	d->mark = descriptor_mark;
	d->type = type;
	n_descriptors++;
	*descriptor = d;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
	struct descriptor *d = check("cudnnBackendDestroyDescriptor", descriptor);

	n_descriptors--;
	d->mark = NULL;
	free(d);
	return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
	static const struct { cudnnStatus_t status; const char *text; } known[] = {
#define KNOWN(name) { name, #name }
		KNOWN(CUDNN_STATUS_SUCCESS),
		KNOWN(CUDNN_STATUS_NOT_INITIALIZED),
		KNOWN(CUDNN_STATUS_BAD_PARAM),
		KNOWN(CUDNN_STATUS_NOT_SUPPORTED),
		KNOWN(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
		KNOWN(CUDNN_STATUS_EXECUTION_FAILED),
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].status == status)
			return known[i].text;
	return "unrecognized status";
}
