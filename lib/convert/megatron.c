/* Exports the plan of a transformer as Megatron-LM's --pipeline-model-parallel-layout:
 *
 *     Et*3|t*4|t*2L        stages separated by |; E embedding, t a layer, L loss, *N repetition
 *
 * The layer of an op is the number in its name: a part between slashes that ends in a dot and a number
 * ("/h.3/attn/MatMul", "/layers.3/mlp"). Megatron keeps layers whole, so a layer is assigned to the node with
 * most of its forward FLOP. Ops before the first layer are the embedding, ops after the last the loss.
 *
 * Megatron builds equal layers from its own description of a transformer. So the export refuses a model
 * unless each layer has matrix products and attention, and all layers have the same ops. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"
#include "convert/planned.h"
#include "op/op.h"
#include "plan/tensors.h"
#include "util/hash.h"

enum { MAX_LAYERS = 100000 };

/* Layer number in an op's name; -1: none. */
static int layer_of(const char *name)
{
	for (const char *s = name; *s; s++) {
		if (*s != '.' || !isdigit((unsigned char)s[1]) || s == name || s[-1] == '/')
			continue;
		char *end;
		long n = strtol(s + 1, &end, 10);
		if ((*end == '/' || *end == '.') && n < MAX_LAYERS)
			return (int)n;
	}
	return -1;
}

/* Node with most FLOP; -1: no FLOP anywhere. */
static int most(const double *flop, int n_nodes)
{
	int at = -1;
	for (int d = 0; d < n_nodes; d++)
		if (flop[d] > 0 && (at < 0 || flop[d] > flop[at]))
			at = d;
	return at;
}

/* Fills at[0] with the node of the embedding, at[1 .. n] with those of the layers, at[n + 1] with that of the
 * loss; -1: the part has no ops. Returns -1 with err if a layer has no ops. */
static int find_nodes(const struct dlb_planned *x, int n, int *at, struct dlb_error *err)
{
	size_t D = (size_t)x->cl.n_nodes;
	double *flop = dlb_xcalloc((size_t)(n + 2) * D, sizeof *flop);
	bool begun = false;
	int rc = 0;
	for (int i = 0; i < x->g.n_ops; i++) {
		const struct dlb_op *o = &x->g.op[i];
		int layer = layer_of(o->name);
		if (o->phase != DLB_FORWARD)
			continue;
		begun |= layer >= 0;
		flop[(size_t)(layer >= 0 ? layer + 1 :
			      begun      ? n + 1 :
					   0) *
			     D +
		     (size_t)x->p.placement[i]] += o->flop + o->bytes + 1;
	}
	for (int k = 0; k < n + 2; k++) {
		at[k] = most(&flop[(size_t)k * D], x->cl.n_nodes);
		if (at[k] < 0 && k > 0 && k <= n && rc == 0)
			rc = dlb_fail_no(err, NULL, "there is no layer %d below layer %d", k - 1, n - 1);
	}
	free(flop);
	return rc;
}

/* True for ops of attention: Attention itself or a Softmax between products. */
static bool mixes_tokens(const struct dlb_op *o)
{
	return strstr(o->type, "Attention") != NULL || !strcmp(o->type, "Softmax");
}

static bool multiplies(const struct dlb_op *o)
{
	return !strcmp(dlb_op_work(o->type), "dense");
}

/* Forward ops of a layer. Layers are equal if counts and the sum of hashed op types are. */
struct census { int n, n_dense, n_mixing; uint64_t types; };

static int check_stack(const struct dlb_graph *g, int n, struct dlb_error *err)
{
	struct census *c = dlb_xcalloc((size_t)n + 1, sizeof *c);
	int rc = 0;
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		const int layer = o->phase == DLB_FORWARD ? layer_of(o->name) : -1;
		if (layer < 0 || dlb_graph_is_view(g, i) || !strcmp(dlb_op_work(o->type), "move"))
			continue;		/* the last layer may have an extra Slice */
		c[layer].n++;
		c[layer].n_dense += multiplies(o);
		c[layer].n_mixing += mixes_tokens(o);
		c[layer].types += dlb_hash_bytes(DLB_HASH_INIT, o->type, strlen(o->type));
	}
	for (int k = 0; k < n && rc == 0; k++) {
		if (!c[k].n)
			rc = dlb_fail_no(err, NULL, "there is no layer %d below layer %d", k, n - 1);
		else if (!c[k].n_mixing || c[k].n_dense < 2)
			rc = dlb_fail_no(err, NULL,
					 "no stack of transformer layers: layer %d has %s; Megatron's layers "
					 "are attention and products of matrices",
					 k, c[k].n_mixing ? "not two products of matrices" : "no attention");
		else if (c[k].n != c[0].n || c[k].types != c[0].types)
			rc = dlb_fail_no(err, NULL,
					 "no stack of transformer layers: layer %d has other ops than layer "
					 "0; Megatron's layers are alike",
					 k);
	}
	free(c);
	return rc;
}

/* Consecutive layers of one node are a stage. With more stages than nodes, stage s must be on rank s mod
 * P. */
static int write_layout(const int *at, int n, int n_nodes, struct dlb_text *t, struct dlb_error *err)
{
	int *stage = dlb_xcalloc((size_t)n + 2, sizeof *stage), n_stages = 0, last = -1, ranks = 0, run = 0,
	    rc = 0;
	bool *seen = dlb_xcalloc((size_t)n_nodes, sizeof *seen);
	for (int k = 0; k < n + 2; k++) {
		if (at[k] < 0)
			continue;
		if (at[k] != last) {
			if (run)
				dlb_text_add(t, run > 1 ? "t*%d" : "t", run);
			dlb_text_add(t, "%s", last < 0 ? "" : "|");
			run = 0;
			stage[n_stages++] = last = at[k];
			ranks += !seen[last];
			seen[last] = true;
		}
		if (k == 0 || k == n + 1) {
			if (run)
				dlb_text_add(t, run > 1 ? "t*%d" : "t", run);
			run = 0;
			dlb_text_add(t, k ? "L" : "E");
		} else {
			run++;
		}
	}
	if (run)
		dlb_text_add(t, run > 1 ? "t*%d" : "t", run);
	for (int s = ranks; s < n_stages && rc == 0; s++)
		if (stage[s] != stage[s - ranks])
			rc = dlb_fail_no(err, NULL,
					 "node %d has stages %d apart, which Megatron's %d ranks cannot: "
					 "they take stages in turn",
					 stage[s], s, ranks);
	dlb_text_add(t, "\n");
	free(stage);
	free(seen);
	return rc;
}

char *dlb_export_megatron(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *size,
			  struct dlb_error *err)
{
	struct dlb_planned x;
	struct dlb_text t = { .n = 0 };
	int n = 0, rc = -1;
	(void)o;
	if (dlb_planned_read(d, &x, err))
		return NULL;
	for (int i = 0; i < x.g.n_ops; i++)
		if (x.g.op[i].phase == DLB_FORWARD && layer_of(x.g.op[i].name) >= n)
			n = layer_of(x.g.op[i].name) + 1;
	int *at = dlb_xcalloc((size_t)n + 2, sizeof *at);
	if (!n)
		dlb_fail_no(err, NULL, "no layers: no op is named as in '/h.3/attn/MatMul'");
	else if (check_stack(&x.g, n, err) == 0 && find_nodes(&x, n, at, err) == 0)
		rc = write_layout(at, n, x.cl.n_nodes, &t, err);
	free(at);
	dlb_planned_release(&x);
	if (rc) {
		free(t.s);
		return NULL;
	}
	*size = t.n;
	return t.s;
}
