/* Shapes and types: the table of types, strides of a layout, NumPy broadcasting. */
#include "tensor/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum class_of { FLOAT, INT, OTHER };
static const struct {
	const char *name, *safetensors;
	size_t bytes;
	int onnx;
	enum class_of cls;
} types[DLB_N_DTYPES] = {
	[DLB_F32]  = { "f32",  "F32",  4, 1,  FLOAT },
	[DLB_F64]  = { "f64",  "F64",  8, 11, FLOAT },
	[DLB_F16]  = { "f16",  "F16",  2, 10, FLOAT },
	[DLB_BF16] = { "bf16", "BF16", 2, 16, FLOAT },
	[DLB_I8]   = { "i8",   "I8",   1, 3,  INT },
	[DLB_I16]  = { "i16",  "I16",  2, 5,  INT },
	[DLB_I32]  = { "i32",  "I32",  4, 6,  INT },
	[DLB_I64]  = { "i64",  "I64",  8, 7,  INT },
	[DLB_U8]   = { "u8",   "U8",   1, 2,  INT },
	[DLB_U16]  = { "u16",  "U16",  2, 4,  INT },
	[DLB_U32]  = { "u32",  "U32",  4, 12, INT },
	[DLB_U64]  = { "u64",  "U64",  8, 13, INT },
	[DLB_BOOL] = { "bool", "BOOL", 1, 9,  OTHER },
};

const char *dlb_dtype_name(enum dlb_dtype t) { return types[t].name; }
const char *dlb_dtype_safetensors(enum dlb_dtype t) { return types[t].safetensors; }
size_t dlb_dtype_bytes(enum dlb_dtype t) { return types[t].bytes; }
bool dlb_dtype_is_float(enum dlb_dtype t) { return types[t].cls == FLOAT; }
bool dlb_dtype_is_int(enum dlb_dtype t) { return types[t].cls == INT; }
int dlb_dtype_to_onnx(enum dlb_dtype t) { return types[t].onnx; }

/* By our name or safetensors': "f32" or "F32". */
int dlb_dtype_find(const char *name)
{
	for (int i = 0; i < DLB_N_DTYPES; i++)
		if (!strcmp(types[i].name, name) || !strcmp(types[i].safetensors, name))
			return i;
	return -1;
}

int dlb_dtype_from_onnx(int onnx)
{
	for (int i = 0; i < DLB_N_DTYPES; i++)
		if (types[i].onnx == onnx)
			return i;
	return -1;
}

int64_t dlb_desc_count(const struct dlb_desc *d)
{
	int64_t n = 1;

	if (d->n_dims < 0)
		return 0;
	for (int i = 0; i < d->n_dims; i++)
		n *= d->dim[i];
	return n;
}

int64_t dlb_desc_range(const struct dlb_desc *d, int from, int to)
{
	int64_t n = 1;

	for (int i = from; i < to; i++)
		n *= d->dim[i];
	return n;
}

size_t dlb_desc_bytes(const struct dlb_desc *d)
{
	return (size_t)dlb_desc_count(d) * types[d->dtype].bytes;
}

int64_t dlb_checked_count(const int64_t *dim, int n_dims)
{
	int64_t n = 1;
	bool empty = false;

	for (int i = 0; i < n_dims; i++) {
		if (dim[i] < 0)
			return -1;
		if (dim[i] == 0) {
			empty = true;
			continue;
		}
		if (n > ((int64_t)1 << 62) / dim[i])
			return -1;
		n *= dim[i];
	}
	return empty ? 0 : n;
}

void dlb_desc_strides(const struct dlb_desc *d, int64_t stride[DLB_MAX_DIMS])
{
	int64_t s = 1;
	bool last = d->layout == DLB_CHANNELS_LAST && d->n_dims >= 3;

	if (last) {
		stride[1] = 1;
		s = d->dim[1];
	}
	for (int i = d->n_dims - 1; i >= 0; i--) {
		if (last && i == 1)
			continue;
		stride[i] = s;
		s *= d->dim[i];
	}
}

bool dlb_desc_same_shape(const struct dlb_desc *a, const struct dlb_desc *b)
{
	if (a->n_dims != b->n_dims)
		return false;
	for (int i = 0; i < a->n_dims; i++)
		if (a->dim[i] != b->dim[i])
			return false;
	return true;
}

int dlb_broadcast(const struct dlb_desc *a, const struct dlb_desc *b, struct dlb_desc *out)
{
	const struct dlb_desc *big = a->n_dims > b->n_dims ? a : b->n_dims > a->n_dims ? b :
		dlb_desc_count(b) > dlb_desc_count(a) ? b : a;
	struct dlb_desc r = { .dtype = a->dtype, .layout = big->layout, .n_dims = big->n_dims };

	for (int i = 1; i <= r.n_dims; i++) {
		int64_t x = i <= a->n_dims ? a->dim[a->n_dims - i] : 1;
		int64_t y = i <= b->n_dims ? b->dim[b->n_dims - i] : 1;

		if (x != y && x != 1 && y != 1)
			return -1;
		r.dim[r.n_dims - i] = x == 1 ? y : x;
	}
	*out = r;
	return 0;
}

char *dlb_desc_str(const struct dlb_desc *d, char *buf, size_t n)
{
	size_t at = 0;

	if (n == 0)
		return buf;
	if (d->n_dims < 0) {
		snprintf(buf, n, "absent");
		return buf;
	}
#define PUT(...) (at += at < n ? (size_t)snprintf(buf + at, n - at, __VA_ARGS__) : 0)
	PUT("%s[", types[d->dtype].name);
	for (int i = 0; i < d->n_dims; i++)
		PUT("%s%" PRId64, i ? "," : "", d->dim[i]);
	PUT("]%s", d->layout == DLB_CHANNELS_LAST && d->n_dims >= 3 ? ":channels-last" : "");
#undef PUT
	return buf;
}

/* ---- single elements, for constants and small host work ---- */

static float from_f16(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	float v = e == 31 ? (m ? NAN : INFINITY) :
		  e       ? ldexpf((float)(m + 1024), e - 25) :
			    ldexpf((float)m, -24);

	return h & 0x8000 ? -v : v;
}

static float from_bf16(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float v;

	memcpy(&v, &u, sizeof v);
	return v;
}

/* Rounds to the nearest half, ties to even: scales so that the half's last bit is
 * 1, rounds, assembles the bits. */
static uint16_t to_f16(double v)
{
	uint16_t sign = signbit(v) ? 0x8000 : 0;
	int e;
	double m, a = fabs(v);

	if (isnan(v))
		return (uint16_t)(sign | 0x7e00);
	if (a >= 65520)
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x1p-14)
		return (uint16_t)(sign | (uint16_t)rint(a * 0x1p24));
	m = frexp(a, &e);				/* a = m 2^e, m in [0.5, 1) */
	return (uint16_t)(sign | (uint16_t)(((e + 13) << 10) + (int)rint(m * 2048)));
}

static uint16_t to_bf16(double v)
{
	float f = (float)v;
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	if (isnan(f))
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

double dlb_value_real(const void *data, enum dlb_dtype t, int64_t i)
{
	switch (t) {
	case DLB_F32: return ((const float *)data)[i];
	case DLB_F64: return ((const double *)data)[i];
	case DLB_F16: return from_f16(((const uint16_t *)data)[i]);
	case DLB_BF16: return from_bf16(((const uint16_t *)data)[i]);
	case DLB_U64: return (double)((const uint64_t *)data)[i];
	default: return (double)dlb_value_int(data, t, i);
	}
}

/* As a C cast if v is in range; NaN gives 0, a value out of range the nearer end of int64. */
static int64_t real_to_int(double v)
{
	if (isnan(v))
		return 0;
	return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
}

int64_t dlb_value_int(const void *data, enum dlb_dtype t, int64_t i)
{
	switch (t) {
	case DLB_I8: return ((const int8_t *)data)[i];
	case DLB_I16: return ((const int16_t *)data)[i];
	case DLB_I32: return ((const int32_t *)data)[i];
	case DLB_I64: return ((const int64_t *)data)[i];
	case DLB_U8: return ((const uint8_t *)data)[i];
	case DLB_U16: return ((const uint16_t *)data)[i];
	case DLB_U32: return ((const uint32_t *)data)[i];
	case DLB_U64: return (int64_t)((const uint64_t *)data)[i];
	case DLB_BOOL: return ((const uint8_t *)data)[i] != 0;
	default: return real_to_int(dlb_value_real(data, t, i));
	}
}

void dlb_value_set(void *data, enum dlb_dtype t, int64_t i, double v)
{
	switch (t) {
	case DLB_F32: ((float *)data)[i] = (float)v; break;
	case DLB_F64: ((double *)data)[i] = v; break;
	case DLB_F16: ((uint16_t *)data)[i] = to_f16(v); break;
	case DLB_BF16: ((uint16_t *)data)[i] = to_bf16(v); break;
	case DLB_I8: ((int8_t *)data)[i] = (int8_t)real_to_int(v); break;
	case DLB_I16: ((int16_t *)data)[i] = (int16_t)real_to_int(v); break;
	case DLB_I32: ((int32_t *)data)[i] = (int32_t)real_to_int(v); break;
	case DLB_I64: ((int64_t *)data)[i] = real_to_int(v); break;
	case DLB_U8: ((uint8_t *)data)[i] = (uint8_t)real_to_int(v); break;
	case DLB_U16: ((uint16_t *)data)[i] = (uint16_t)real_to_int(v); break;
	case DLB_U32: ((uint32_t *)data)[i] = (uint32_t)real_to_int(v); break;
	case DLB_U64: ((uint64_t *)data)[i] = v >= 0x1p63 ? (v >= 0x1p64 ? UINT64_MAX : (uint64_t)v) :
			(uint64_t)real_to_int(v); break;
	case DLB_BOOL: ((uint8_t *)data)[i] = v != 0; break;
	case DLB_N_DTYPES: assert(0);
	}
}

void dlb_value_set_int(void *data, enum dlb_dtype t, int64_t i, int64_t v)
{
	switch (t) {
	case DLB_I8: case DLB_U8: ((uint8_t *)data)[i] = (uint8_t)v; break;
	case DLB_I16: case DLB_U16: ((uint16_t *)data)[i] = (uint16_t)v; break;
	case DLB_I32: case DLB_U32: ((uint32_t *)data)[i] = (uint32_t)v; break;
	case DLB_I64: case DLB_U64: ((uint64_t *)data)[i] = (uint64_t)v; break;
	case DLB_BOOL: ((uint8_t *)data)[i] = v != 0; break;
	default: dlb_value_set(data, t, i, (double)v);
	}
}
