/* The memory plan as a picture: a panel a node. Along x the node's instructions, upwards bytes: at the bottom what
 * stays from step to step (weights, optimizer states, gradient sums, packed copies), then the workspace of kernels,
 * then the arena, where each rectangle is a place from the instruction that opens it to the one that frees it. The
 * line is what is alive, the dashed one the most that is: no arena can be lower. What overwrites an input in place,
 * and views, lie in the rectangle of what was there first. Under an asynchronous schedule the instructions go round: a
 * place that reaches into the next round is two rectangles, and one with copies is as high as all of them all the time. */
#include <stdlib.h>
#include <string.h>
#include "optim/optim.h"
#include "plan/program.h"
#include "view/view.h"

int dlb_view_memory(const struct dlb_view *v, FILE *f, struct dlb_error *err);

enum { WIDTH = 1200, LEFT = 110, RIGHT = 30, PLOT = WIDTH - LEFT - RIGHT, HEIGHT = 340, MOST_PANELS = 16 };
enum class { STATE, WORKSPACE, ACTIVATION, GRADIENT, WEIGHT_GRADIENT, FED, MESSAGE, N_CLASSES };

/* Okabe and Ito's palette, told apart by everybody. */
static const struct { const char *name, *colour; } class[N_CLASSES] = {
	[STATE] = { "weights and state", "#999999" }, [WORKSPACE] = { "workspace", "#d5d5d5" },
	[ACTIVATION] = { "activations", "#0072b2" }, [GRADIENT] = { "gradients", "#e69f00" },
	[WEIGHT_GRADIENT] = { "weight gradients", "#009e73" }, [FED] = { "samples", "#56b4e9" },
	[MESSAGE] = { "from other nodes", "#cc79a7" },
};

int dlb_view_program(const struct dlb_view *v, struct dlb_program *p, struct dlb_error *err)
{
	int optimizer = dlb_optimizer_find(v->plan.optimizer);

	return dlb_program_compile(&v->plan, &v->cost, v->plan.batch, optimizer < 0 ? 0 : dlb_optimizers[optimizer].n_state, p, err);
}

static enum class class_of(const struct dlb_view *v, const struct dlb_place *x, int node)
{
	const struct dlb_tensor *t = &v->graph.tensor[x->tensor];

	if (dlb_tensor_is_fed(t))
		return FED;
	if (x->micro_batch < 0 || v->plan.placement[t->producer] != node)
		return MESSAGE;
	return t->kind == DLB_T_GRADIENT ? GRADIENT : t->kind == DLB_T_WEIGHT_GRADIENT ? WEIGHT_GRADIENT : ACTIVATION;
}

static void rect(FILE *f, double x, double y, double w, double h, enum class c)
{
	fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y, w, h, class[c].colour);
}

static void band(FILE *f, double base, double bytes, double bottom, double px, enum class c)
{
	char b[32];

	if (bytes * px < 0.1)
		return;
	rect(f, LEFT, bottom - (base + bytes) * px, PLOT, bytes * px, c);
	fprintf(f, "><title>%s, %s</title></rect>\n", class[c].name, dlb_view_bytes(bytes, b, sizeof b));
}

/* When a place takes room: from[i] to to[i]; returns how many stretches, 1 or 2. */
static int stretches(const struct dlb_node_program *np, const struct dlb_place *x, int from[2], int to[2])
{
	bool wraps = x->last < x->first, whole = x->copies > 1;

	from[0] = wraps || whole ? 0 : x->first;
	to[0] = whole ? np->n_instr : x->last;
	from[1] = x->first;
	to[1] = np->n_instr;
	return wraps && !whole ? 2 : 1;
}

static double room(const struct dlb_place *x)
{
	return x->copies > 1 ? (double)x->copies * (double)dlb_place_bytes(x->bytes) : (double)x->bytes;
}

static void place(const struct dlb_view *v, FILE *f, int node, const struct dlb_node_program *np, const struct dlb_place *x,
		  double base, double bottom, double px)
{
	double px_per_instr = (double)PLOT / np->n_instr, h = room(x) * px;
	int from[2], to[2], n = stretches(np, x, from, to);
	char b[32];

	if (x->of >= 0 || h < 0.15)			/* a hair's breadth: the picture would only grow */
		return;
	for (int i = 0; i < n; i++) {
		rect(f, LEFT + from[i] * px_per_instr, bottom - (base + (double)x->offset) * px - h, (to[i] - from[i]) * px_per_instr, h,
		     class_of(v, x, node));
		fprintf(f, " fill-opacity=\"%s\" stroke=\"white\" stroke-width=\"%s\"><title>",
			x->micro_batch > 0 && x->micro_batch % 2 ? "0.7" : "1", h > 3 ? "0.5" : "0.1");
		dlb_view_escaped(f, v->graph.tensor[x->tensor].name);
		if (x->micro_batch >= 0)
			fprintf(f, ", micro-batch %d", x->micro_batch);
		if (x->copies > 1)
			fprintf(f, ", %d copies", x->copies);
		fprintf(f, ", %s, instructions %d to %d</title></rect>\n", dlb_view_bytes(room(x), b, sizeof b), x->first, x->last);
	}
}

/* What is alive after each instruction. */
static void alive(FILE *f, const struct dlb_node_program *np, double base, double bottom, double px)
{
	double *change = dlb_xcalloc((size_t)np->n_instr + 2, sizeof *change), live = 0, last = -1;

	for (int i = 0; i < np->n_places; i++) {
		int from[2], to[2], n = np->place[i].of >= 0 ? 0 : stretches(np, &np->place[i], from, to);
		for (int k = 0; k < n; k++) {
			change[from[k]] += room(&np->place[i]);
			change[to[k] + (to[k] < np->n_instr)] -= room(&np->place[i]);
		}
	}
	fprintf(f, "<polyline fill=\"none\" stroke=\"black\" stroke-width=\"1.2\" points=\"");
	for (int i = 0; i <= np->n_instr; i++) {
		live += i < np->n_instr ? change[i] : 0;
		if (live == last && i < np->n_instr)
			continue;
		if (last >= 0)
			fprintf(f, "%.1f,%.1f ", LEFT + (double)PLOT * i / np->n_instr, bottom - (base + last) * px);
		fprintf(f, "%.1f,%.1f ", LEFT + (double)PLOT * i / np->n_instr, bottom - (base + live) * px);
		last = live;
	}
	fprintf(f, "\"/>\n");
	free(change);
}

static void label(FILE *f, double y, double bytes)
{
	char b[32];

	fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888888\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
		LEFT - 5, LEFT, y, y, LEFT - 8, y + 4, dlb_view_bytes(bytes, b, sizeof b));
}

static double panel(const struct dlb_view *v, FILE *f, int node, const struct dlb_node_program *np, double y)
{
	double base = (double)np->state_bytes + (double)np->scratch_bytes, peak = base + (double)np->arena_bytes;
	double px = peak > 0 ? HEIGHT / peak : 0, bottom = y + 26 + HEIGHT, least = bottom - (base + (double)np->bound_bytes) * px;
	char a[32], b[32], c[32];

	fprintf(f, "<text x=\"12\" y=\"%.1f\" font-size=\"14\">node %d: peak %s; arena %s, least possible %s (%.1f %% over)</text>\n", y + 14, node,
		dlb_view_bytes(peak, a, sizeof a), dlb_view_bytes((double)np->arena_bytes, b, sizeof b),
		dlb_view_bytes((double)np->bound_bytes, c, sizeof c), dlb_view_over(np));
	fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#f7f7f7\" stroke=\"#cccccc\"/>\n", LEFT, y + 26, PLOT, HEIGHT);
	band(f, 0, (double)np->state_bytes, bottom, px, STATE);
	band(f, (double)np->state_bytes, (double)np->scratch_bytes, bottom, px, WORKSPACE);
	for (int i = 0; i < np->n_places; i++)
		place(v, f, node, np, &np->place[i], base, bottom, px);
	alive(f, np, base, bottom, px);
	fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-dasharray=\"6 4\"/>\n", LEFT, WIDTH - RIGHT,
		least, least);
	label(f, bottom, 0);
	for (int i = 1; i <= 4; i++)
		label(f, bottom - i * HEIGHT / 4.0, i * peak / 4);
	fprintf(f, "<text x=\"%d\" y=\"%.1f\">instruction 0</text>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n", LEFT,
		bottom + 16, WIDTH - RIGHT, bottom + 16, np->n_instr);
	return bottom + 40;
}

static double legend(FILE *f, double y)
{
	double x = 12;

	for (int i = 0; i < N_CLASSES; i++) {
		rect(f, x, y, 12, 12, i);
		fprintf(f, "/>\n<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 17, y + 11, class[i].name);
		x += 40 + 7.0 * (double)strlen(class[i].name);
	}
	fprintf(f, "<text x=\"%.0f\" y=\"%.0f\">line: alive; dashed: the most alive</text>\n", x, y + 11);
	return y + 30;
}

int dlb_view_memory(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	struct dlb_program p;
	int shown;
	double y = 12;

	if (!v->has_plan) {
		dlb_fail(err, NULL, "no plan in the document");
		return dlb_hint(err, "run dlb-place first");
	}
	if (dlb_view_program(v, &p, err))
		return -1;
	shown = p.n_nodes < MOST_PANELS ? p.n_nodes : MOST_PANELS;
	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", WIDTH, 50 + shown * (HEIGHT + 66) + 20);
	y = legend(f, y);
	for (int i = 0; i < shown; i++)
		y = panel(v, f, i, &dlb_program_of(&p, i)->node[i], y);
	if (shown < p.n_nodes)
		fprintf(f, "<text x=\"12\" y=\"%.1f\">... and %d more nodes</text>\n", y + 8, p.n_nodes - shown);
	fprintf(f, "</svg>\n");
	dlb_program_release(&p);
	return 0;
}
