/* A small interpreter of graphs for tests. For each op it infers shapes from the actual inputs, then prepares
 * and runs the kernel, with tensors from malloc. */
#ifndef DLB_TESTS_MACHINE_H
#define DLB_TESTS_MACHINE_H
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"

struct value { struct dlb_desc d; void *data; };	/* data NULL: absent or not computed yet */
struct machine {
	struct dlb_backend be;
	struct dlb_graph g;
	struct value *v;		/* [tensor] */
	int n;
	bool unsupported;		/* err says that an op is unsupported */
	/* NULL, or a back end for ops that `be` has no kernel for; tried: [kind] how many ops had one, and had none */
	struct dlb_backend *spare;
	struct {
		int runs, lacks;
	} * tried;
};

static inline struct value copy_of(const struct dlb_desc *d, const void *data)
{
	struct value v = { .d = *d, .data = dlb_xmalloc(dlb_desc_bytes(d)) };

	memcpy(v.data, data, dlb_desc_bytes(d));
	return v;
}

static void set_value(struct machine *m, int t, const struct dlb_desc *d, const void *data)
{
	free(m->v[t].data);
	m->v[t] = copy_of(d, data);
}

/* -- running -- */

/* Kernels read the data of constants, so fills are expanded. */
static void load_constants(struct machine *m)
{
	struct dlb_arena a = { 0 };

	for (int i = 0; i < m->g.n_tensors; i++) {
		const struct dlb_tensor *t = &m->g.tensor[i];
		struct dlb_desc d;

		if (m->v[i].data || (!t->data && !t->is_fill))
			continue;
		d = dlb_tensor_desc(t, 1);
		set_value(m, i, &d, dlb_tensor_value(t, 1, &a));
	}
	dlb_arena_release(&a);
}

/* Operand i of an op with its descriptors. */
static const struct dlb_desc *operand_desc(const struct dlb_op_io *io, int i)
{
	return i < io->n_in ? &io->in[i] : &io->out[i - io->n_in];
}

/* Replaces operands in host memory by copies in the back end's. */
static void to_device(struct dlb_backend *be, const struct dlb_op_io *io, void **p)
{
	for (int i = 0; !be->ops->is_host_memory && i < io->n_in + io->n_out; i++) {
		const void *host = p[i];

		if (!host)
			continue;
		p[i] = be->ops->alloc(be, dlb_desc_bytes(operand_desc(io, i)));
		be->ops->upload(be, p[i], host, dlb_desc_bytes(operand_desc(io, i)));
	}
}

/* Copies all operands back: some inputs are written in place (running statistics). */
static void from_device(struct machine *m, struct dlb_backend *be, const struct dlb_op *o,
			const struct dlb_op_io *io, void **p)
{
	for (int i = 0; !be->ops->is_host_memory && i < io->n_in + io->n_out; i++) {
		const int t = i < io->n_in ? o->in[i] : o->out[i - io->n_in];

		if (t >= 0 && p[i])
			be->ops->download(be, m->v[t].data, p[i], dlb_desc_bytes(operand_desc(io, i)));
		be->ops->free(be, p[i]);
	}
}

/* Prepares the op's kernel by m->be or the spare back end, of which it returns the one that has it. */
static struct dlb_backend *prepare(struct machine *m, const struct dlb_op *o, const struct dlb_op_io *io,
				   struct dlb_kernel **k, int *rc, struct dlb_error *err)
{
	*rc = dlb_op_kernel(&m->be, io, k, err);
	if (m->tried && *rc == DLB_NO_KERNEL)
		m->tried[o->kind].lacks++;
	else if (m->tried && !*rc)
		m->tried[o->kind].runs++;
	if (*rc != DLB_NO_KERNEL || !m->spare)
		return &m->be;
	*rc = dlb_op_kernel(m->spare, io, k, err);
	return m->spare;
}

static int run_kernel(struct machine *m, const struct dlb_op *o, struct dlb_op_io *io, struct dlb_error *err)
{
	void **p = dlb_xcalloc((size_t)(io->n_in + io->n_out) + 1, sizeof *p), *scratch = NULL;
	struct dlb_kernel *k = NULL;
	int rc;
	struct dlb_backend *be = prepare(m, o, io, &k, &rc, err);

	if (rc == DLB_NO_KERNEL) {
		m->unsupported = true;
		rc = dlb_fail(err, o->name, "%s has no kernel for these types", o->type);
	}
	for (int i = 0; i < io->n_in && !rc; i++)
		p[i] = o->in[i] < 0 ? NULL : m->v[o->in[i]].data;
	for (int i = 0; i < io->n_out && !rc; i++) {
		struct value *v = o->out[i] < 0 ? NULL : &m->v[o->out[i]];

		if (!v)
			continue;
		*v = (struct value){ .d = io->out[i], .data = dlb_xmalloc(dlb_desc_bytes(&io->out[i])) };
		memset(v->data, 0xA5, dlb_desc_bytes(&io->out[i]));	/* kernels must not rely on zeros */
		p[io->n_in + i] = v->data;
	}
	if (!rc) {
		const struct dlb_run r = { .in = p,
					   .out = p + io->n_in,
					   .seed = 1,
					   .vertex = 7,
					   .weight_version = 0,
					   .scratch = (scratch = be->ops->alloc(be, k->scratch_bytes + 1)) };

		to_device(be, io, p);
		k->run(k, &r);
		rc = be->ops->sync(be, err);
		from_device(m, be, o, io, p);
	}
	if (scratch)
		be->ops->free(be, scratch);
	dlb_kernel_free(k);
	free(p);
	return rc;
}

static int run_op(struct machine *m, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &m->g.op[op];
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
	struct dlb_desc *d = dlb_xcalloc((size_t)(o->n_in + o->n_out) + 1, sizeof *d);
	const void **value = dlb_xcalloc((size_t)o->n_in + 1, sizeof *value);
	struct dlb_op_io io = { .name = o->name,
				.cls = cls,
				.opset = o->opset,
				.attr = o->attr,
				.n_attr = o->n_attr,
				.n_in = o->n_in,
				.n_out = o->n_out,
				.in = d,
				.out = d + o->n_in,
				.value = value };
	int rc = 0;

	if (!cls) {
		m->unsupported = true;
		rc = dlb_fail(err, o->name, "no operator %s (opset %d)", o->type, o->opset);
	}
	for (int i = 0; i < o->n_in && !rc; i++) {
		d[i].n_dims = -1;
		if (o->in[i] < 0)
			continue;
		if (!m->v[o->in[i]].data)
			rc = dlb_fail(err, o->name, "input '%s' has no value", m->g.tensor[o->in[i]].name);
		d[i] = m->v[o->in[i]].d;
		value[i] = m->v[o->in[i]].data;
	}
	if (!rc && (o->n_in < cls->n_in[0] || (cls->n_in[1] >= 0 && o->n_in > cls->n_in[1])))
		rc = dlb_fail(err, o->name, "%d inputs", o->n_in);
	if (!rc)
		rc = cls->infer(&io, err);
	for (int i = 0; i < o->n_out; i++)
		if (o->out[i] < 0)
			io.out[i].n_dims = -1;
	if (!rc)
		rc = run_kernel(m, o, &io, err);
	free(d);
	free(value);
	return rc;
}

static int run_all(struct machine *m, struct dlb_error *err)
{
	load_constants(m);
	for (int i = 0; i < m->g.n_ops; i++)
		if (run_op(m, i, err))
			return -1;
	return 0;
}

static void machine_reset(struct machine *m)
{
	for (int i = 0; i < m->n; i++)
		free(m->v[i].data);
	free(m->v);
	dlb_graph_release(&m->g);
	m->v = NULL;
	m->n = 0;
}

static void machine_values(struct machine *m)
{
	m->v = dlb_xrealloc(m->v, (size_t)m->g.n_tensors + 1, sizeof *m->v);
	for (; m->n < m->g.n_tensors; m->n++)
		m->v[m->n] = (struct value){ .d = { .n_dims = -1 } };
}

#endif
