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

/* Every type beside its neighbours: whole numbers, and the ends of int64 for what lies beyond. */
static void all_types(void)
{
	static const double whole[] = { 0, 1, 2, 7, 100, 127 };
	int64_t store[8];

	for (int t = 0; t < DLB_N_DTYPES; t++) {
		const bool is_bool = t == DLB_BOOL,
			   has_sign = dlb_dtype_is_float(t) || (t >= DLB_I8 && t <= DLB_I64);
		for (int i = 0; i < (int)(2 * sizeof whole / sizeof *whole); i++) {
			const double v = whole[i / 2] * (i % 2 && has_sign ? -1 : 1),
				     want = is_bool ? v != 0 : v;

			for (int by_int = 0; by_int < 2; by_int++) {
				memset(store, 0x5a, sizeof store);
				const double left = dlb_value_real(store, t, 2),
					     right = dlb_value_real(store, t, 4);
				if (by_int)
					dlb_value_set_int(store, t, 3, (int64_t)v);
				else
					dlb_value_set(store, t, 3, v);
				assert(IS(dlb_value_real(store, t, 3), ==, want) &&
				       IS(dlb_value_int(store, t, 3), ==, (int64_t)want));
				assert(IS(dlb_value_real(store, t, 2), ==, left) &&
				       IS(dlb_value_real(store, t, 4), ==, right));
			}
		}
	}
	static const struct {
		double v;
		int64_t i;
	} ends[] = {
		{ 0x1p63, INT64_MAX },
		{ 0x1p70, INT64_MAX },
		{ -0x1p63, INT64_MIN },
		{ -0x1p64, INT64_MIN },
		{ 0x1p62, (int64_t)1 << 62 },
		{ INFINITY, INT64_MAX },
		{ -2.75, -2 },
		{ 2.75, 2 },
		{ NAN, 0 },
	};
	for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
		dlb_value_set(store, DLB_I64, 0, ends[k].v);
		dlb_value_set(store, DLB_F64, 1, ends[k].v);
		assert(IS(store[0], ==, ends[k].i) && IS(dlb_value_int(store, DLB_F64, 1), ==, ends[k].i));
	}
	/* beyond the largest numbers of u64; a wide type's low bits in a narrow one */
	dlb_value_set(store, DLB_U64, 0, 0x1p64);
	assert(IS((uint64_t)store[0], ==, UINT64_MAX) && IS(dlb_value_real(store, DLB_U64, 0), ==, 0x1p64));
	dlb_value_set(store, DLB_U64, 0, 0x1p63 + 2048);
	assert(IS((uint64_t)store[0], ==, ((uint64_t)1 << 63) + 2048));
	dlb_value_set(store, DLB_U64, 0, 7);
	assert(IS(store[0], ==, 7));
	dlb_value_set_int(store, DLB_U8, 0, 300);
	dlb_value_set_int(store, DLB_I16, 1, -70000);
	assert(IS(dlb_value_int(store, DLB_U8, 0), ==, 44) &&
	       IS(dlb_value_int(store, DLB_I16, 1), ==, -70000 + 65536));
}

/* Halves next to the ends: the largest finite one, what rounds to infinity, and the smallest normal one. */
static void ends_of_halves(void)
{
	static const struct {
		double v, f16, bf16;
	} rows[] = {
		{ 65519, 65504, 65536 },
		{ 65520, INFINITY, 65536 },
		{ -65520, -INFINITY, -65536 },
		{ 0x1p-14, 0x1p-14, 0x1p-14 },
		{ 0x1.ff8p-15, 0x1.ff8p-15, 0x1p-14 },
		{ 0x1.8p-25, 0x1p-24, 0x1.8p-25 },
		{ 0x1p-25, 0, 0x1p-25 },
		{ 1 + 3.0 / 2048, 1 + 2.0 / 1024, 1 },
		{ 1 + 1.0 / 256, 1 + 4.0 / 1024, 1 },
		{ 1 + 3.0 / 256, 1 + 12.0 / 1024, 1 + 4.0 / 256 },
	};
	uint16_t h[2];

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		dlb_value_set(h, DLB_F16, 1, rows[i].v);
		assert(IS(dlb_value_real(h, DLB_F16, 1), ==, rows[i].f16));
		dlb_value_set(h, DLB_BF16, 1, rows[i].v);
		assert(IS(dlb_value_real(h, DLB_BF16, 1), ==, rows[i].bf16));
	}
}

/* Strides and texts of few dimensions; the layout of what is broadcast; products of some dimensions. */
static void layouts(void)
{
	struct dlb_desc d = { .dtype = DLB_F16,
			      .layout = DLB_CHANNELS_LAST,
			      .n_dims = 3,
			      .dim = { 2, 3, 4 } },
			row = { .dtype = DLB_F16, .n_dims = 1, .dim = { 4 } }, out,
			same = { .dtype = DLB_F16, .n_dims = 3, .dim = { 1, 3, 4 } };
	int64_t s[DLB_MAX_DIMS];
	char buf[80] = "x";

	dlb_desc_strides(&d, s);
	assert(IS(s[0], ==, 12) && IS(s[1], ==, 1) && IS(s[2], ==, 3));
	assert(SAME(dlb_desc_str(&d, buf, sizeof buf), "f16[2,3,4]:channels-last") &&
	       IS(dlb_desc_bytes(&d), ==, 48) && IS(dlb_desc_range(&d, 1, 3), ==, 12) &&
	       IS(dlb_desc_range(&d, 0, 2), ==, 6) && IS(dlb_desc_range(&d, 2, 2), ==, 1));
	assert(!dlb_broadcast(&d, &row, &out) && IS(out.layout, ==, DLB_CHANNELS_LAST));
	assert(!dlb_broadcast(&row, &d, &out) && IS(out.layout, ==, DLB_CHANNELS_LAST) &&
	       IS(out.dtype, ==, DLB_F16));
	assert(!dlb_broadcast(&same, &d, &out) && IS(out.layout, ==, DLB_CHANNELS_LAST) &&
	       IS(out.dim[0], ==, 2));
	assert(!dlb_broadcast(&d, &same, &out) && IS(out.layout, ==, DLB_CHANNELS_LAST));
	d.dim[0] = 1; /* of two as large, the first one's */
	assert(!dlb_broadcast(&same, &d, &out) && IS(out.layout, ==, DLB_PLAIN));
	d.n_dims = 2; /* has no channels apart */
	dlb_desc_strides(&d, s);
	assert(IS(s[0], ==, 3) && IS(s[1], ==, 1) && SAME(dlb_desc_str(&d, buf, sizeof buf), "f16[1,3]"));
	assert(SAME(dlb_desc_str(&d, buf, 5), "f16[") && IS(dlb_desc_str(&d, buf, 0), ==, (char *)buf) &&
	       SAME(buf, "f16["));
}

int main(void)
{
	types();
	shapes();
	counts();
	values();
	all_types();
	ends_of_halves();
	layouts();
	puts("dtypes, strides, broadcasting, counts and single values hold");
	return 0;
}
