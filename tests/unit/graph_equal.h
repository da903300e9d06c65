/* Asserts that two graphs are equal in every member, except data of tensors in the model's file. */
#ifndef TESTS_GRAPH_EQUAL_H
#define TESTS_GRAPH_EQUAL_H
#include <string.h>
#include "graph/graph.h"
#include "check.h"

static inline int same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static inline void assert_same_attr(const struct dlb_attr *a, const struct dlb_attr *b)
{
	assert(same_text(a->name, b->name) && IS(a->type, ==, b->type));
	assert(a->type != DLB_ATTR_INT || a->i == b->i);
	assert(a->type != DLB_ATTR_REAL || !memcmp(&a->f, &b->f, sizeof a->f) ||
	       (a->f != a->f && b->f != b->f));
	assert(a->type != DLB_ATTR_STR || same_text(a->s, b->s));
	assert(IS(a->n, ==, b->n));
	assert(a->type != DLB_ATTR_INTS || !a->n ||
	       !memcmp(a->ints, b->ints, (size_t)a->n * sizeof *a->ints));
	assert(a->type != DLB_ATTR_REALS || !a->n ||
	       !memcmp(a->reals, b->reals, (size_t)a->n * sizeof *a->reals));
	if (a->type == DLB_ATTR_TENSOR) {
		assert(dlb_desc_same_shape(&a->desc, &b->desc) && IS(a->desc.dtype, ==, b->desc.dtype));
		assert(!memcmp(a->data, b->data, dlb_desc_bytes(&a->desc)));
	}
}

static inline void assert_same_tensor(const struct dlb_tensor *a, const struct dlb_tensor *b)
{
	assert(same_text(a->name, b->name) && IS(a->kind, ==, b->kind) &&
	       IS(a->dtype, ==, b->dtype) && IS(a->layout, ==, b->layout));
	assert(IS(a->n_dims, ==, b->n_dims) && IS(a->producer, ==, b->producer) &&
	       IS(a->home, ==, b->home) && IS(a->of, ==, b->of));
	for (int k = 0; k < a->n_dims; k++)
		assert(IS(a->dim[k].mul, ==, b->dim[k].mul) && IS(a->dim[k].add, ==, b->dim[k].add));
	assert(IS(a->is_fill, ==, b->is_fill) && IS(a->in_model, ==, b->in_model) &&
	       IS(a->bound, ==, b->bound));
	assert(!a->is_fill || !memcmp(&a->fill, &b->fill, sizeof a->fill));
	assert(IS(a->fan_in, ==, b->fan_in) && IS(a->fan_out, ==, b->fan_out));
	assert(a->n_dims >= 0 || (a->size_mul == b->size_mul && a->size_add == b->size_add));
	assert(!a->data_mul == !b->data_mul);
	if (a->data && (b->data || !a->in_model)) {
		const struct dlb_desc d = dlb_tensor_desc(a, 1);
		assert(b->data && !memcmp(a->data, b->data, dlb_desc_bytes(&d)));
		assert(!a->data_mul || !memcmp(a->data_mul, b->data_mul, (size_t)dlb_desc_count(&d) * 8));
	}
}

static inline void assert_same_graph(const struct dlb_graph *a, const struct dlb_graph *b)
{
	assert(IS(a->n_ops, ==, b->n_ops) && IS(a->n_tensors, ==, b->n_tensors) &&
	       IS(a->batch, ==, b->batch) && IS(a->dtype, ==, b->dtype));
	assert(IS(a->training, ==, b->training) && IS(a->opset, ==, b->opset) &&
	       IS(a->loss, ==, b->loss) && IS(a->label, ==, b->label));
	assert(IS(a->seed, ==, b->seed) && same_text(a->model_path, b->model_path));
	assert(same_text(a->model_sha256, b->model_sha256));
	assert(IS(a->n_inputs, ==, b->n_inputs) && IS(a->n_outputs, ==, b->n_outputs));
	for (int i = 0; i < a->n_inputs; i++)
		assert(IS(a->input[i], ==, b->input[i]));
	for (int i = 0; i < a->n_outputs; i++)
		assert(IS(a->output[i], ==, b->output[i]));
	assert(IS(a->n_listed, ==, b->n_listed));
	for (int i = 0; i < a->n_listed; i++) {
		const struct dlb_listed *p = &a->listed[i], *q = &b->listed[i];
		assert(same_text(p->name, q->name) && same_text(p->input, q->input));
		assert(IS(p->kind, ==, q->kind) && IS(p->persistent, ==, q->persistent));
	}
	for (int i = 0; i < a->n_tensors; i++)
		assert_same_tensor(&a->tensor[i], &b->tensor[i]);
	for (int i = 0; i < a->n_ops; i++) {
		const struct dlb_op *p = &a->op[i], *q = &b->op[i];
		assert(same_text(p->name, q->name) && same_text(p->type, q->type) &&
		       same_text(p->domain, q->domain));
		assert(IS(p->kind, ==, q->kind) && IS(p->phase, ==, q->phase) && IS(p->opset, ==, q->opset));
		assert(IS(p->n_in, ==, q->n_in) && IS(p->n_out, ==, q->n_out) &&
		       IS(p->n_attr, ==, q->n_attr));
		assert(!p->n_in || !memcmp(p->in, q->in, (size_t)p->n_in * sizeof *p->in));
		assert(!p->n_out || !memcmp(p->out, q->out, (size_t)p->n_out * sizeof *p->out));
		assert(IS(p->of, ==, q->of) && IS(p->colocate, ==, q->colocate));
		assert(IS(p->flop, ==, q->flop) && IS(p->flop_fixed, ==, q->flop_fixed));
		assert(IS(p->bytes, ==, q->bytes) && IS(p->bytes_fixed, ==, q->bytes_fixed));
		for (int k = 0; k < p->n_attr; k++)
			assert_same_attr(&p->attr[k], &q->attr[k]);
	}
}
#endif
