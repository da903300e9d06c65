/* Finds activations fused into ops of another kind of device, and makes them ops of their own: see
 * affinity.h.
 *
 *     {"classes": {"conv": ["fpga"], "activation": ["asic"]}}      Conv(activation Relu) on the FPGA
 *         becomes Conv on the FPGA and Relu on the ASIC, ReluGrad there too
 *
 * Graph and costs change before placement, so that all nodes run the same graph under every placement. */
#include <string.h>
#include "cost/cost.h"
#include "graph/fuse_activation.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "place/affinity.h"

struct kind_table { const struct dlb_affinity *a; const struct dlb_cluster *c; };

/* Whether the op and its fused activation prefer different kinds. Counts the op in *e (NULL: not counted),
 * and sets the kinds for the first one. */
static bool differ(const void *ctx, const struct dlb_op *o, struct dlb_fused_elsewhere *e)
{
	const struct kind_table *t = ctx;
	const struct dlb_fused f = dlb_graph_fused(o);

	if (!f.type || dlb_affinity_find_fused(t->a, o))
		return false;
	const struct dlb_device_kind *own = dlb_affinity_home(dlb_affinity_find(t->a, f.type), f.type, t->c);
	const struct dlb_device_kind *other = dlb_affinity_home(dlb_affinity_find(t->a, f.activation),
								f.activation, t->c);
	if (!other || other == own)
		return false;
	if (e && !e->n++) {
		e->op = o->name;
		e->kind = own ? own->name : NULL;
		e->activation_kind = other->name;
	}
	return true;
}

static bool apart(const void *ctx, const struct dlb_op *o)
{
	return differ(ctx, o, NULL);
}

struct dlb_fused_elsewhere dlb_affinity_fused_elsewhere(const struct dlb_affinity *a,
							const struct dlb_graph *g,
							const struct dlb_cluster *c)
{
	const struct kind_table t = { a, c };
	struct dlb_fused_elsewhere e = { .n = 0 };

	for (int i = 0; i < g->n_ops; i++)
		differ(&t, &g->op[i], &e);
	return e;
}

/* The cost section without the hashes of its inputs and the user's members. */
static json_t *bare(const json_t *cost)
{
	json_t *o = json_object(), *v;
	const char *key;

	json_object_foreach((json_t *)cost, key, v)
		if (strcmp(key, "inputs") && strncmp(key, "x-", 2))
			json_object_set(o, key, v);
	return o;
}

static int check_costs(const struct dlb_doc *doc, const struct dlb_graph *g, const struct dlb_profile *p,
		       const struct dlb_cluster *c, struct dlb_error *err)
{
	struct dlb_cost cost = { .n_ops = 0 };

	if (dlb_cost_fit(&cost, g, p, c, err))
		return -1;
	json_t *made = dlb_cost_write(&cost), *was = bare(dlb_doc_section(doc, "cost"));
	const bool same = json_equal(made, was);
	json_decref(made);
	json_decref(was);
	dlb_cost_release(&cost);
	return same ? 0 :
		      dlb_refuse(err, doc->name,
				 "--rewrites all, or dlb-profile --no-rewrite conv-relu (norm-relu, "
				 "add-relu) and dlb-costmodel",
				 "the costs are not those that dlb-costmodel makes, so there are none of "
				 "activations by themselves");
}

static int count_unmeasured(const struct dlb_profile *p, const struct dlb_graph *g)
{
	int n = 0;

	for (int r = 0; r < p->n_rows; r++) {
		bool timed = g->op[p->row[r].op[0]].phase == DLB_UPDATE;
		for (int k = 0; k < p->n_kinds; k++)
			timed |= p->row[r].time_s[k][0] == p->row[r].time_s[k][0];
		n += p->n_kinds && !timed;
	}
	return n;
}

int dlb_affinity_part(struct dlb_doc *doc, const struct dlb_affinity *a, int *n_unmeasured,
		      struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "profile", "cluster", NULL };
	struct dlb_graph was = { .n_ops = 0 }, g = { .n_ops = 0 };
	struct dlb_cluster c = { .n_nodes = 0 };
	struct dlb_profile p = { .n_kinds = 0 };
	struct dlb_cost cost = { .n_ops = 0 };
	const bool profiled = dlb_doc_section(doc, "profile");
	json_t *plan = json_incref(dlb_doc_section(doc, "plan"));
	const struct kind_table t = { a, &c };
	int rc = -1;

	if (dlb_graph_read(doc, &was, err) || dlb_graph_read(doc, &g, err) ||
	    dlb_cluster_read(doc, &c, err) || (profiled && dlb_profile_read(doc, &was, &p, err)) ||
	    check_costs(doc, &was, profiled ? &p : NULL, &c, err) ||
	    dlb_graph_part_activations(&g, apart, &t, err) < 0 || dlb_graph_index(&g))
		goto out;
	dlb_profile_put_graph(doc, &was, &g, profiled ? &p : NULL);
	*n_unmeasured = count_unmeasured(&p, &g);
	if (dlb_cost_fit(&cost, &g, profiled ? &p : NULL, &c, err))
		goto out;
	json_t *section = dlb_cost_write(&cost);
	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "cost", section);
	if (plan)
		dlb_doc_put(doc, "plan", json_incref(plan));
	rc = 0;
out:
	json_decref(plan);
	dlb_cost_release(&cost);
	dlb_profile_release(&p);
	dlb_cluster_release(&c);
	dlb_graph_release(&g);
	dlb_graph_release(&was);
	return rc;
}
