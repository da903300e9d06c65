/* Wraps oneDNN's C API: primitives with user scratchpads, reorders, packed weights. oneDNN allocates
 * only while a kernel is prepared. */
#include <stdlib.h>

#include "tensor/cpu/cpu.h"

const char *dlb_cpu_dnnl_text(dnnl_status_t s)
{
	switch (s) {
	case dnnl_success: return "success";
	case dnnl_out_of_memory: return "out of memory";
	case dnnl_invalid_arguments: return "invalid arguments";
	case dnnl_unimplemented: return "not implemented";
	case dnnl_runtime_error: return "runtime error";
	default: return "error";
	}
}

/* For calls that fail only if host memory is out. */
static void must(dnnl_status_t s)
{
	if (s != dnnl_success)
		dlb_bug("oneDNN: %s", dlb_cpu_dnnl_text(s));
}

static bool is_reference(const_dnnl_primitive_desc_t pd)
{
	const char *name = "";

	dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
	return !strncmp(name, "ref", 3);
}

static int pd_with(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint, float scale,
		   const_dnnl_post_ops_t after, dnnl_primitive_desc_t *pd)
{
	dnnl_primitive_attr_t attr;
	dnnl_status_t s;

	must(dnnl_primitive_attr_create(&attr));
	must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
	if (scale != 1)
		must(dnnl_primitive_attr_set_output_scales(attr, 1, 0, &scale));
	if (after)
		must(dnnl_primitive_attr_set_post_ops(attr, after));
	s = dnnl_primitive_desc_create(pd, od, attr, c->engine, hint);
	dnnl_primitive_attr_destroy(attr);
	if (s == dnnl_success && !is_reference(*pd))
		return 0;
	if (s == dnnl_success)
		dnnl_primitive_desc_destroy(*pd);
	*pd = NULL;
	return DLB_NO_KERNEL;
}

int dlb_cpu_pd(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint,
	       dnnl_primitive_desc_t *pd)
{
	return pd_with(c, od, hint, 1, NULL, pd);
}

int dlb_cpu_pd_scaled(struct cpu *c, const_dnnl_op_desc_t od, float scale, dnnl_primitive_desc_t *pd)
{
	return pd_with(c, od, NULL, scale, NULL, pd);
}

int dlb_cpu_pd_relu(struct cpu *c, const_dnnl_op_desc_t od, const_dnnl_primitive_desc_t hint,
		    dnnl_primitive_desc_t *pd)
{
	dnnl_post_ops_t after;
	int rc;

	must(dnnl_post_ops_create(&after));
	must(dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, 0, 0));
	rc = pd_with(c, od, hint, 1, after, pd);
	dnnl_post_ops_destroy(after);
	return rc;
}

const dnnl_memory_desc_t *dlb_cpu_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
	return dnnl_primitive_desc_query_md(pd, what, index);
}

int dlb_cpu_prim(struct cpu *c, const_dnnl_primitive_desc_t pd, struct cpu_prim *p)
{
	const dnnl_memory_desc_t *md = dlb_cpu_md(pd, dnnl_query_scratchpad_md, 0);

	const char *impl = "";

	memset(p, 0, sizeof *p);
	if (dnnl_primitive_create(&p->prim, pd) != dnnl_success)
		return DLB_NO_KERNEL;
	dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl);
	p->has_code = !strncmp(impl, "brg:", 4);
	p->scratch_bytes = md ? dnnl_memory_desc_get_size(md) : 0;
	if (p->scratch_bytes) {
		p->arg[0].arg = DNNL_ARG_SCRATCHPAD;
		must(dnnl_memory_create(&p->arg[0].memory, md, c->engine, DNNL_MEMORY_NONE));
		p->n_args = 1;
	}
	return 0;
}

void dlb_cpu_prim_arg(struct cpu *c, struct cpu_prim *p, int dnnl_arg, const dnnl_memory_desc_t *md)
{
	p->arg[p->n_args].arg = dnnl_arg;
	must(dnnl_memory_create(&p->arg[p->n_args].memory, md, c->engine, DNNL_MEMORY_NONE));
	p->n_args++;
}

void dlb_cpu_prim_run(struct cpu *c, struct cpu_prim *p, void *const *ptr, void *scratch)
{
	int i = 0;

	if (p->scratch_bytes)
		must(dnnl_memory_set_data_handle(p->arg[i++].memory, scratch));
	for (int j = 0; i < p->n_args; i++, j++)
		must(dnnl_memory_set_data_handle(p->arg[i].memory, ptr[j]));
	must(dnnl_primitive_execute(p->prim, c->stream, p->n_args, p->arg));
}

void dlb_cpu_prim_release(struct cpu_prim *p)
{
	for (int i = 0; i < p->n_args; i++)
		dnnl_memory_destroy(p->arg[i].memory);
	if (p->prim)
		dnnl_primitive_destroy(p->prim);
	memset(p, 0, sizeof *p);
}

int dlb_cpu_reorder(struct cpu *c, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
		    struct cpu_prim *p)
{
	dnnl_primitive_attr_t attr;
	dnnl_primitive_desc_t pd;
	dnnl_status_t s;
	int rc;

	memset(p, 0, sizeof *p);
	if (dnnl_memory_desc_equal(from, to))
		return 0;
	must(dnnl_primitive_attr_create(&attr));
	must(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
	s = dnnl_reorder_primitive_desc_create(&pd, from, c->engine, to, c->engine, attr);
	dnnl_primitive_attr_destroy(attr);
	if (s != dnnl_success)
		return DLB_NO_KERNEL;
	rc = dlb_cpu_prim(c, pd, p);
	dnnl_primitive_desc_destroy(pd);
	if (rc)
		return rc;
	dlb_cpu_prim_arg(c, p, DNNL_ARG_FROM, from);
	dlb_cpu_prim_arg(c, p, DNNL_ARG_TO, to);
	return 0;
}

int dlb_cpu_staged(struct cpu *c, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
		   const dnnl_memory_desc_t *staged, struct cpu_staged *s)
{
	*s = (struct cpu_staged){ .bytes = dnnl_memory_desc_get_size(staged) };
	return dlb_cpu_reorder(c, from, to, &s->move);
}

void *dlb_cpu_stage(const struct cpu_staged *s, void *operand, char *scratch)
{
	return s->move.prim ? scratch + s->at : operand;
}

void *dlb_cpu_stage_in(struct cpu *c, struct cpu_staged *s, void *operand, char *scratch)
{
	void *const ptr[] = { operand, scratch + s->at };

	if (!s->move.prim)
		return operand;
	dlb_cpu_prim_run(c, &s->move, ptr, scratch);
	return ptr[1];
}

void dlb_cpu_stage_out(struct cpu *c, struct cpu_staged *s, void *operand, char *scratch)
{
	void *const ptr[] = { scratch + s->at, operand };

	if (s->move.prim)
		dlb_cpu_prim_run(c, &s->move, ptr, scratch);
}

int dlb_cpu_packed(struct cpu *c, const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *want, bool kept,
		   struct cpu_packed *p)
{
	int rc;

	memset(p, 0, sizeof *p);
	rc = dlb_cpu_reorder(c, plain, want, &p->reorder);
	if (rc == 0 && p->reorder.prim) {
		p->bytes = dnnl_memory_desc_get_size(want);
		p->data = kept ? dlb_cpu_aligned(p->bytes) : NULL;
	}
	return rc;
}

void *dlb_cpu_packed_get(struct cpu *c, struct cpu_packed *p, void *plain, uint64_t version, void *scratch)
{
	void *data = p->data ? p->data : (char *)scratch + p->at;

	if (!p->reorder.prim)
		return plain;
	if (!p->data || version == 0 || version != p->version) {
		void *const ptr[] = { plain, data };

		dlb_cpu_prim_run(c, &p->reorder, ptr, scratch);
		p->version = version;
	}
	return data;
}

void dlb_cpu_packed_release(struct cpu_packed *p)
{
	dlb_cpu_prim_release(&p->reorder);
	free(p->data);
	memset(p, 0, sizeof *p);
}
