/* What all operators share: attributes by opset, word for word, and their values by type; axes; the class of
 * work of other tools' types; shares of samples; the op that updates a weight. */
#include "check.h"
#include "op/op_util.h"

static const struct {
	const char *op;
	int opset;
	struct dlb_attr a;
	const char *what, *hint;
} attributes[] = {
#define IS_A(n, t) \
	{ \
		.name = n, .type = DLB_ATTR_##t, .s = "" \
	}
#define MOVED "it is an input now, or gone: export the model again"
#define LATER "say that opset in the model's opset_import"
#define NOT_SO "export the model again, or correct it with onnx.helper"
	{ "Clip", 10, IS_A("max", REAL), NULL, NULL },
	{ "Clip", 10, IS_A("min", INT), NULL, NULL },
	{ "Clip", 11, IS_A("max", REAL), "attribute 'max' belongs to opsets up to 10", MOVED },
	{ "Reshape", 14, IS_A("allowzero", INT), NULL, NULL },
	{ "Reshape", 13, IS_A("allowzero", INT), "attribute 'allowzero' belongs to opsets from 14", LATER },
	{ "Reshape", 13, IS_A("consumed_inputs", INTS), NULL, NULL },
	{ "Reshape", 14, IS_A("allow_zero", INT), "the operator has no attribute 'allow_zero'",
	  "did you mean 'allowzero'?" },
	{ "Relu", 14, IS_A("negative_slope", REAL), "the operator has no attribute 'negative_slope'",
	  "remove it, or export the model again" },
	{ "Softmax", 14, IS_A("axis", REAL), "attribute 'axis' is a real number, not an integer", NOT_SO },
	{ "Softmax", 14, IS_A("axis", INTS), "attribute 'axis' is a list of integers, not an integer",
	  NOT_SO },
	{ "Celu", 14, IS_A("alpha", TENSOR), "attribute 'alpha' is a tensor, not a real number", NOT_SO },
	{ "Celu", 14, IS_A("alpha", REALS), "attribute 'alpha' is a list of real numbers, not a real number",
	  NOT_SO },
	{ "BitShift", 14, IS_A("direction", INT), "attribute 'direction' is an integer, not a string",
	  NOT_SO },
	{ "BitShift", 14, IS_A("consumed_inputs", INT), "attribute 'direction' is missing",
	  "the operator needs it: export the model again" },
	{ "Pad", 10, IS_A("mode", STR), "attribute 'pads' is missing",
	  "the operator needs it: export the model again" },
	{ "Pad", 11, IS_A("mode", STR), NULL, NULL },
	{ "no operator", 11, IS_A("mode", STR), NULL, NULL },
};

static void check_attributes(void)
{
	const char *name[DLB_MAX_ATTRIBUTES];
	enum dlb_attr_type type[DLB_MAX_ATTRIBUTES];
	struct dlb_error err;

	for (int i = 0; i < DLB_LEN(attributes); i++) {
		err = (struct dlb_error){ .what = "" };
		const int rc = dlb_op_check_attributes(attributes[i].op, attributes[i].opset,
						       &attributes[i].a, 1, &err);
		assert(IS(rc, ==, (attributes[i].what ? -1 : 0)));
		assert(!rc || (SAME(err.what, attributes[i].what) && SAME(err.hint, attributes[i].hint)));
	}
	/* of those in the table, the ones that hold at the opset */
	assert(IS(dlb_op_attributes("ArgMax", 12, name, type), ==, 3) && SAME(name[0], "axis") &&
	       SAME(name[1], "keepdims") && SAME(name[2], "select_last_index") &&
	       IS(type[2], ==, DLB_ATTR_INT));
	assert(IS(dlb_op_attributes("ArgMax", 11, name, type), ==, 2) &&
	       IS(dlb_op_attributes("Relu", 11, name, type), ==, 0) &&
	       IS(dlb_op_attributes("no operator", 11, name, type), ==, 0));
	assert(IS(dlb_op_attributes("Pad", 10, name, type), ==, 3) && SAME(name[1], "pads") &&
	       IS(type[1], ==, DLB_ATTR_INTS) && IS(type[2], ==, DLB_ATTR_REAL));
	assert(dlb_op_attributes_known("Relu") && dlb_op_attributes_known("Pad") &&
	       !dlb_op_attributes_known("no operator"));
}

/* Attributes of another type count as absent, but an integer is a real number too. */
static void values(void)
{
	static const int64_t list[] = { 4, 5, 6 };
	const struct dlb_attr a[] = { dlb_make_int("i", 7),
				      dlb_make_real("f", 2.5),
				      dlb_make_str("s", "text"),
				      dlb_make_ints("l", list, 3),
				      { .name = "none", .type = DLB_ATTR_STR } };
	const int64_t *ints = list;
	const int n = DLB_LEN(a);

	assert(IS(dlb_attr_find(a, n, "none"), ==, &a[4]) && IS(dlb_attr_find(a, 4, "none"), ==, NULL) &&
	       IS(dlb_attr_find(a, n, "x"), ==, NULL));
	assert(IS(dlb_attr_int(a, n, "i", 1), ==, 7) && IS(dlb_attr_int(a, n, "f", 1), ==, 1) &&
	       IS(dlb_attr_int(a, n, "x", 1), ==, 1));
	assert(IS(dlb_attr_real(a, n, "f", 1), ==, 2.5) && IS(dlb_attr_real(a, n, "i", 1), ==, 7) &&
	       IS(dlb_attr_real(a, n, "s", 1), ==, 1) && IS(dlb_attr_real(a, n, "x", 1), ==, 1));
	assert(SAME(dlb_attr_str(a, n, "s", "other"), "text") &&
	       SAME(dlb_attr_str(a, n, "i", "other"), "other") &&
	       SAME(dlb_attr_str(a, n, "none", "other"), "other") &&
	       SAME(dlb_attr_str(a, n, "x", "other"), "other"));
	assert(IS(dlb_attr_ints(a, n, "l", &ints), ==, 3) && IS(ints, ==, (const int64_t *)list));
	assert(IS(dlb_attr_ints(a, n, "i", &ints), ==, 0) && IS(ints, ==, NULL) &&
	       IS(dlb_attr_ints(a, n, "x", &ints), ==, 0));
}

static void axes_and_work(void)
{
	static const struct {
		const char *type, *work;
	} works[] = {
		{ "Conv", "conv" },           { "Gemm", "dense" },           { "MaxPool", "pool" },
		{ "BiasAdd", "elementwise" }, { "ApplyMomentum", "update" }, { "ReLU", "activation" },
		{ "Update", "update" },       { "nothing", "other" },
	};
	struct dlb_op_io io = { .name = "v", .cls = dlb_op_class_of(DLB_OP_Softmax), .opset = 13 };
	struct dlb_error err = { .what = "" };

	for (int n = 0; n <= 4; n++)
		for (int axis = -6; axis <= 6; axis++) {
			const bool good = axis >= -n && axis < n;
			assert(IS(dlb_axis(&io, axis, n, &err), ==,
				  (!good    ? -1 :
				   axis < 0 ? axis + n :
					      axis)));
		}
	assert(SAME(err.where, "Softmax 'v' (opset 13)") &&
	       SAME(err.what, "axis 6 is out of range for 4 dimensions"));
	io.name = NULL;
	assert(IS(dlb_axis(&io, 9, 2, &err), ==, -1) && SAME(err.where, "Softmax '' (opset 13)"));
	for (int i = 0; i < DLB_LEN(works); i++)
		assert(SAME(dlb_op_work(works[i].type), works[i].work));
	assert(IS(dlb_op_class_of(-1), ==, NULL) && IS(dlb_op_class_of(DLB_N_OPS), ==, NULL) &&
	       dlb_op_class_of(0) && dlb_op_class_of(DLB_N_OPS - 1));
}

/* Samples are shared so that the first parts get one more; part 0 of 0 has all. */
static void shares(void)
{
	for (int64_t n = 0; n < 20; n++)
		for (int parts = 1; parts < 7; parts++) {
			int64_t first = 0;

			for (int p = 0; p < parts; p++) {
				const struct dlb_samples s = { p, parts };

				assert(IS(dlb_samples_first(s, n), ==, first));
				assert(IS(dlb_samples_count(s, n), ==, n / parts + (p < n % parts)));
				first += dlb_samples_count(s, n);
			}
			assert(IS(first, ==, n));
			assert(IS(dlb_samples_count((struct dlb_samples){ 0, 0 }, n), ==, n) &&
			       IS(dlb_samples_first((struct dlb_samples){ 0, 0 }, n), ==, 0));
		}
}

static void update(void)
{
	struct dlb_desc in[2] = { dlb_desc_make(DLB_F32, 2, (int64_t[]){ 3, 4 }),
				  dlb_desc_make(DLB_F32, 2, (int64_t[]){ 3, 4 }) };
	struct dlb_op_io io = {
		.name = "u", .cls = dlb_op_class_of(DLB_OP_Update), .opset = 17, .in = in, .n_in = 2
	};
	struct dlb_error err = { .what = "" };

	assert(!io.cls->infer(&io, &err) && IS(io.cls->flops(&io), ==, 2 * 12) &&
	       IS(io.cls->bytes(&io), ==, 3 * 48));
	in[1].dim[1] = 5;
	assert(io.cls->infer(&io, &err) &&
	       SAME(err.what, "the gradient does not have the weight's shape and type"));
	in[1].dim[1] = 4;
	in[1].dtype = DLB_F64;
	assert(io.cls->infer(&io, &err) &&
	       SAME(err.what, "the gradient does not have the weight's shape and type"));
}

int main(void)
{
	check_attributes();
	values();
	axes_and_work();
	shares();
	update();
	printf("%d rules of attributes\n", DLB_LEN(attributes));
	return 0;
}
