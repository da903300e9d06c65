/* Writes the graph for Graphviz: ops as boxes, coloured by node if there is a plan, else by phase. */
#include "view/view.h"

int dlb_view_dot(const struct dlb_view *v, FILE *f, struct dlb_error *err);

/* Lighter tints of Okabe and Ito's palette, which is safe for colour-blind readers. */
static const char *const fill[] = { "#cfe3f5", "#fde2b8", "#cdebdd", "#f6d3e4",
				    "#fff6b0", "#d5ecfb", "#f5cdb8", "#e0e0e0" };

static void label(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', f);
		fputc((unsigned char)*s < ' ' ? ' ' : *s, f);
	}
}

/* Edges between nodes are thick, dashed and vermilion, with both nodes in the label. */
static void edges(const struct dlb_view *v, int op, FILE *f)
{
	const struct dlb_graph *g = &v->graph;

	for (int k = 0; k < g->op[op].n_in; k++) {
		int t = g->op[op].in[k];
		char bytes[32];

		if (t < 0 || g->tensor[t].producer < 0)
			continue;
		int from = v->has_plan ? v->plan.placement[g->tensor[t].producer] : 0,
		    to = v->has_plan ? v->plan.placement[op] : 0;

		fprintf(f, "\to%d -> o%d [label=\"%s", g->tensor[t].producer, op,
			dlb_view_bytes(dlb_tensor_bytes(&g->tensor[t], g->batch), bytes, sizeof bytes));
		if (from != to)
			fprintf(f,
				"\\nnode %d to %d\", color=\"#d55e00\", fontcolor=\"#a04000\", penwidth=2, "
				"style=dashed];\n",
				from, to);
		else
			fprintf(f, "\"];\n");
	}
}

int dlb_view_dot(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	const struct dlb_graph *g = &v->graph;

	if (!v->has_graph) {
		dlb_fail(err, NULL, "no graph in the document");
		return dlb_hint(err, "start the pipe with dlb-profile");
	}
	fprintf(f, "digraph dlb {\n\trankdir=TB;\n\tnode [shape=box, style=filled, fontname=sans, "
		   "fontsize=10];\n"
		   "\tedge [fontname=sans, fontsize=8, color=gray40];\n");
	for (int i = 0; i < g->n_ops; i++) {
		int colour = v->has_plan ? v->plan.placement[i] : (int)g->op[i].phase;

		fprintf(f, "\to%d [label=\"", i);
		label(f, g->op[i].name);
		fprintf(f, "\\n");
		label(f, g->op[i].type);
		if (v->has_plan)
			fprintf(f, "\\nnode %d", v->plan.placement[i]);
		fprintf(f, "\", fillcolor=\"%s\"];\n", fill[colour % DLB_LEN(fill)]);
	}
	for (int i = 0; i < g->n_ops; i++)
		edges(v, i, f);
	fprintf(f, "}\n");
	return 0;
}
