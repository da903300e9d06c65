/* The table of operators, and functions shared by their classes. */
#include "op/op.h"

#include <stdarg.h>
#include <string.h>

#define OP(n) extern const struct dlb_op_class dlb_op_##n;
#include "op/op_list.h"
#undef OP

static const struct dlb_op_class *const classes[] = {
#define OP(n) [DLB_OP_##n] = &dlb_op_##n,
#include "op/op_list.h"
#undef OP
};

const struct dlb_op_class *dlb_op_class_of(int kind)
{
	return kind >= 0 && kind < DLB_N_OPS ? classes[kind] : NULL;
}

static const char *plain_domain(const char *domain)
{
	return !domain || !strcmp(domain, "ai.onnx") ? "" : domain;
}

int dlb_op_kind_find(const char *type, const char *domain)
{
	domain = plain_domain(domain);
	for (int i = 0; i < DLB_N_OPS; i++)
		if (classes[i]->name[0] == type[0] && !strcmp(classes[i]->name, type) &&
		    !strcmp(plain_domain(classes[i]->domain), domain))
			return i;
	return -1;
}

/* Names used by TensorFlow, PyTorch and published placement graphs for operators that ONNX has too. */
static const struct { const char *type, *work;
} external[] = {
	{ "Conv2D", "conv" },
	{ "Conv2DBackpropInput", "conv" },
	{ "Conv2DBackpropFilter", "conv" },
	{ "DepthwiseConv2dNative", "conv" },
	{ "Conv2d", "conv" },
	{ "convolution", "conv" },
	{ "BatchMatMul", "dense" },
	{ "BatchMatMulV2", "dense" },
	{ "Linear", "dense" },
	{ "dense", "dense" },
	{ "MaxPool2d", "pool" },
	{ "AvgPool", "pool" },
	{ "AvgPool2d", "pool" },
	{ "AvgPoolGrad", "pool" },
	{ "FusedBatchNorm", "norm" },
	{ "FusedBatchNormV3", "norm" },
	{ "BatchNorm2d", "norm" },
	{ "FusedBatchNormGrad", "norm" },
	{ "FusedBatchNormGradV3", "norm" },
	{ "LayerNorm", "norm" },
	{ "ReLU", "activation" },
	{ "Gelu", "activation" },
	{ "BiasAdd", "elementwise" },
	{ "BiasAddGrad", "reduce" },
	{ "AddV2", "elementwise" },
	{ "AddN", "elementwise" },
	{ "RealDiv", "elementwise" },
	{ "ConcatV2", "move" },
	{ "StridedSlice", "move" },
	{ "GatherV2", "move" },
	{ "Placeholder", "move" },
	{ "SparseSoftmaxCrossEntropyWithLogits", "loss" },
	{ "ApplyGradientDescent", "update" },
	{ "ApplyAdam", "update" },
	{ "ApplyMomentum", "update" },
};

const char *dlb_op_work(const char *type)
{
	for (int i = 0; i < DLB_N_OPS; i++)
		if (!strcmp(classes[i]->name, type))
			return classes[i]->work ? classes[i]->work : "other";
	for (size_t i = 0; i < sizeof external / sizeof external[0]; i++)
		if (!strcmp(external[i].type, type))
			return external[i].work;
	return "other";
}

/* -- attributes -- */

const struct dlb_attr *dlb_attr_find(const struct dlb_attr *a, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(a[i].name, name))
			return &a[i];
	return NULL;
}

int64_t dlb_attr_int(const struct dlb_attr *a, int n, const char *name, int64_t otherwise)
{
	const struct dlb_attr *x = dlb_attr_find(a, n, name);

	return x && x->type == DLB_ATTR_INT ? x->i : otherwise;
}

double dlb_attr_real(const struct dlb_attr *a, int n, const char *name, double otherwise)
{
	const struct dlb_attr *x = dlb_attr_find(a, n, name);

	if (x && x->type == DLB_ATTR_REAL)
		return x->f;
	return x && x->type == DLB_ATTR_INT ? (double)x->i : otherwise;
}

const char *dlb_attr_str(const struct dlb_attr *a, int n, const char *name, const char *otherwise)
{
	const struct dlb_attr *x = dlb_attr_find(a, n, name);

	return x && x->type == DLB_ATTR_STR && x->s ? x->s : otherwise;
}

int dlb_attr_ints(const struct dlb_attr *a, int n, const char *name, const int64_t **out)
{
	const struct dlb_attr *x = dlb_attr_find(a, n, name);

	*out = NULL;
	if (!x || x->type != DLB_ATTR_INTS)
		return 0;
	*out = x->ints;
	return x->n;
}

/* -- errors and shapes -- */

int dlb_op_fail(const struct dlb_op_io *io, struct dlb_error *err, const char *fmt, ...)
{
	char what[384], where[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	snprintf(where, sizeof where, "%s '%s' (opset %d)", io->cls->name, io->name ? io->name : "",
		 io->opset);
	return dlb_fail(err, where, "%s", what);
}

int dlb_axis(const struct dlb_op_io *io, int64_t axis, int n_dims, struct dlb_error *err)
{
	if (axis < -n_dims || axis >= n_dims)
		return dlb_op_fail(io, err, "axis %lld is out of range for %d dimensions", (long long)axis,
				   n_dims);
	return (int)(axis < 0 ? axis + n_dims : axis);
}

double dlb_no_flops(const struct dlb_op_io *io)
{
	(void)io;
	return 0;
}

int dlb_infer_same(struct dlb_op_io *io, struct dlb_error *err)
{
	(void)err;
	io->out[0] = io->in[0];
	return 0;
}

int dlb_infer_broadcast(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc d = io->in[0];
	char a[128], b[128];

	for (int i = 1; i < io->n_in; i++) {
		struct dlb_desc sum;

		if (io->in[i].n_dims < 0)
			continue;
		if (dlb_broadcast(&d, &io->in[i], &sum))
			return dlb_op_fail(io, err, "shapes %s and %s do not broadcast",
					   dlb_desc_str(&d, a, sizeof a),
					   dlb_desc_str(&io->in[i], b, sizeof b));
		sum.dtype = d.dtype;
		d = sum;
	}
	io->out[0] = d;
	return 0;
}
