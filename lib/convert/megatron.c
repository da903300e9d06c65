/* A plan of a transformer as Megatron-LM's --pipeline-model-parallel-layout:
 *
 *     Et*3|t*4|t*2L        stages apart by |; E embedding, t a layer, L loss, *N so many
 *
 * A layer is what has the same number in its ops' names: a part between slashes that ends in a dot and a number
 * ("/h.3/attn/MatMul", "/layers.3/mlp"). Megatron keeps layers whole: each counts where most of its forward FLOP are.
 * What comes before the first is the embedding, what comes after the last the loss. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"
#include "convert/planned.h"

enum { MAX_LAYERS = 100000 };

/* -1: the op is of no layer. */
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

/* Node with most of it; -1: there is nothing of it. */
static int most(const double *flop, int n_nodes)
{
	int at = -1;
	for (int d = 0; d < n_nodes; d++)
		if (flop[d] > 0 && (at < 0 || flop[d] > flop[at]))
			at = d;
	return at;
}

/* at[0] embedding, at[1 .. n] layers, at[n + 1] loss: the node of each, -1 where there is nothing. */
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
		flop[(size_t)(layer >= 0 ? layer + 1 : begun ? n + 1 : 0) * D + (size_t)x->p.placement[i]] += o->flop + o->bytes + 1;
	}
	for (int k = 0; k < n + 2; k++) {
		at[k] = most(&flop[(size_t)k * D], x->cl.n_nodes);
		if (at[k] < 0 && k > 0 && k <= n && rc == 0)
			rc = dlb_fail_no(err, NULL, "there is no layer %d below layer %d", k - 1, n - 1);
	}
	free(flop);
	return rc;
}

/* Runs of one node are stages. With more stages than nodes, stage s is of rank s mod P: nodes have to come round. */
static int write_layout(const int *at, int n, int n_nodes, struct dlb_text *t, struct dlb_error *err)
{
	int *stage = dlb_xcalloc((size_t)n + 2, sizeof *stage), n_stages = 0, last = -1, ranks = 0, run = 0, rc = 0;
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
			rc = dlb_fail_no(err, NULL, "node %d has stages %d apart, which Megatron's %d ranks cannot: they take stages in turn", stage[s],
					 s, ranks);
	dlb_text_add(t, "\n");
	free(stage);
	free(seen);
	return rc;
}

char *dlb_export_megatron(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *size, struct dlb_error *err)
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
	else if (find_nodes(&x, n, at, err) == 0)
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
