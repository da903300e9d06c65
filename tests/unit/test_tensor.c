/* Shapes and types: dtype table, strides, broadcasting, half floats, counts that overflow. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/tensor.h"
#include "check.h"

static void types(void)
{
	for (int t = 0; t < DLB_N_DTYPES; t++) {
		assert(IS(dlb_dtype_find(dlb_dtype_name(t)), ==, t) &&
		       IS(dlb_dtype_find(dlb_dtype_safetensors(t)), ==, t));
		assert(IS(dlb_dtype_from_onnx(dlb_dtype_to_onnx(t)), ==, t));
		assert(IS(dlb_dtype_bytes(t), >=, 1) && IS(dlb_dtype_bytes(t), <=, 8));
		assert(!(dlb_dtype_is_float(t) && dlb_dtype_is_int(t)));
	}
	assert(IS(dlb_dtype_find("f33"), ==, -1) && IS(dlb_dtype_from_onnx(8), ==, -1) &&
	       IS(dlb_dtype_from_onnx(0), ==, -1));
	assert(!dlb_dtype_is_int(DLB_BOOL) && !dlb_dtype_is_float(DLB_BOOL));
}

static void shapes(void)
{
	struct dlb_desc d = {
		.dtype = DLB_F32, .layout = DLB_CHANNELS_LAST, .n_dims = 4, .dim = { 2, 3, 4, 5 }
	};
	struct dlb_desc row = { .dtype = DLB_F32, .n_dims = 1, .dim = { 5 } }, none = { .n_dims = -1 },
			scalar = { .n_dims = 0 }, out;
	struct dlb_desc bad = { .n_dims = 1, .dim = { 4 } }, col = { .n_dims = 2, .dim = { 7, 1 } };
	int64_t s[DLB_MAX_DIMS];
	char buf[80];

	dlb_desc_strides(&d, s);
	assert(IS(s[0], ==, 60) && IS(s[1], ==, 1) && IS(s[2], ==, 15) && IS(s[3], ==, 3));
	assert(SAME(dlb_desc_str(&d, buf, sizeof buf), "f32[2,3,4,5]:channels-last"));
	assert(SAME(dlb_desc_str(&d, buf, 6), "f32[2"));
	assert(SAME(dlb_desc_str(&none, buf, sizeof buf), "absent"));
	assert(SAME(dlb_desc_str(&scalar, buf, sizeof buf), "f32[]"));
	assert(IS(dlb_desc_count(&d), ==, 120) && IS(dlb_desc_bytes(&d), ==, 480) &&
	       IS(dlb_desc_count(&scalar), ==, 1) && IS(dlb_desc_count(&none), ==, 0));
	d.layout = DLB_PLAIN;
	dlb_desc_strides(&d, s);
	assert(IS(s[0], ==, 60) && IS(s[1], ==, 20) && IS(s[2], ==, 5) && IS(s[3], ==, 1));
	assert(IS(dlb_broadcast(&d, &row, &out), ==, 0) && dlb_desc_same_shape(&out, &d));
	assert(IS(dlb_broadcast(&row, &d, &out), ==, 0) && dlb_desc_same_shape(&out, &d));
	assert(IS(dlb_broadcast(&scalar, &row, &out), ==, 0) && dlb_desc_same_shape(&out, &row));
	assert(IS(dlb_broadcast(&col, &row, &out), ==, 0) && IS(out.n_dims, ==, 2) && IS(out.dim[0], ==, 7) &&
	       IS(out.dim[1], ==, 5));
	assert(IS(dlb_broadcast(&d, &bad, &out), ==, -1));
	assert(!dlb_desc_same_shape(&row, &bad) && !dlb_desc_same_shape(&row, &col));
}

static void counts(void)
{
	assert(dlb_checked_count((int64_t[]){ 3, 4 }, 2) == 12 && IS(dlb_checked_count(NULL, 0), ==, 1));
	assert(dlb_checked_count((int64_t[]){ 3, -1 }, 2) == -1);
	assert(dlb_checked_count((int64_t[]){ (int64_t)1 << 40, (int64_t)1 << 30 }, 2) == -1);
	assert(dlb_checked_count((int64_t[]){ (int64_t)1 << 31, (int64_t)1 << 31 }, 2) == (int64_t)1 << 62);
	assert(dlb_checked_count((int64_t[]){ INT64_MAX, INT64_MAX, 0 }, 3) == -1);
	assert(dlb_checked_count((int64_t[]){ 0, 5, 6 }, 3) == 0);
}

static void values(void)
{
	static const double exact[] = { 0,
					1,
					-1,
					0.5,
					2,
					65504,
					-65504,
					6.103515625e-05,
					5.9604644775390625e-08,
					1.0009765625,
					0.333251953125 };
	uint64_t store[4];

	for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
		dlb_value_set(store, DLB_F16, 3, exact[i]);
		assert(IS(dlb_value_real(store, DLB_F16, 3), ==, exact[i]));
	}
	for (int h = 0; h < 65536; h++) {		/* every half is converted and back */
		uint16_t u = (uint16_t)h;
		double v = dlb_value_real(&u, DLB_F16, 0), b = dlb_value_real(&u, DLB_BF16, 0);

		dlb_value_set(store, DLB_F16, 0, v);
		assert(isnan(v) ? isnan(dlb_value_real(store, DLB_F16, 0)) : !memcmp(store, &u, 2));
		dlb_value_set(store, DLB_BF16, 0, b);
		assert(isnan(b) ? isnan(dlb_value_real(store, DLB_BF16, 0)) : !memcmp(store, &u, 2));
	}
	dlb_value_set(store, DLB_F16, 0, 1e6);
	assert(isinf(dlb_value_real(store, DLB_F16, 0)));
	dlb_value_set(store, DLB_F16, 0, 1 + 1.0 / 2048);	/* tie: to even */
	assert(IS(dlb_value_real(store, DLB_F16, 0), ==, 1));
	dlb_value_set(store, DLB_BOOL, 1, -3);
	assert(IS(dlb_value_int(store, DLB_BOOL, 1), ==, 1) && IS(dlb_value_real(store, DLB_BOOL, 1), ==, 1));
	dlb_value_set(store, DLB_I8, 0, -7);
	assert(IS(dlb_value_int(store, DLB_I8, 0), ==, -7) && IS(dlb_value_real(store, DLB_I8, 0), ==, -7));
	dlb_value_set(store, DLB_I64, 0, 1e30);
	assert(IS(dlb_value_int(store, DLB_I64, 0), ==, INT64_MAX));
	dlb_value_set(store, DLB_F64, 0, NAN);
	assert(IS(dlb_value_int(store, DLB_F64, 0), ==, 0));
	dlb_value_set(store, DLB_U64, 0, 0x1p63);
	assert(IS(dlb_value_real(store, DLB_U64, 0), ==, 0x1p63));
}

int main(void)
{
	types();
	shapes();
	counts();
	values();
	puts("dtypes, strides, broadcasting, counts and single values hold");
	return 0;
}
