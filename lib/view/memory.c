/* Draws the memory plan, one panel per node: instructions along x, bytes along y. At the bottom is memory
 * that stays from step to step (weights, optimizer states, gradient sums, packed copies), then the
 * workspace of kernels, then the arena, where each place is a rectangle from the instruction that opens it
 * to the one that frees it. The solid line is the memory alive, the dashed line its maximum: no arena can
 * be smaller. If permanent memory is most of the peak, it is drawn at a smaller scale, with a break.
 * Outputs in place and views share the rectangle of their input. Under an asynchronous schedule the
 * instructions repeat: a place that reaches into the next round is two rectangles, and a place with copies
 * always has the height of all copies. */
#include <stdlib.h>
#include <string.h>
#include "optim/optim.h"
#include "plan/program.h"
#include "plan/replica.h"
#include "plan/tensors.h"
#include "view/picture.h"
#include "view/places.h"

int dlb_view_memory(const struct dlb_view *v, FILE *f, struct dlb_error *err);

enum {
	WIDTH = 1200,
	LEFT = 110,
	RIGHT = 30,
	PLOT = WIDTH - LEFT - RIGHT,
	HEIGHT = 340,
	MOST_PANELS = 16,
	CUT = 44
};

/* Okabe and Ito's palette, safe for colour-blind readers. */
static const struct { const char *name, *colour;
} class[DLB_N_HELD] = {
	[DLB_HELD_STATE] = { "weights and state", "#999999" },
	[DLB_HELD_WORKSPACE] = { "workspace", "#d5d5d5" },
	[DLB_HELD_ACTIVATION] = { "activations", "#0072b2" },
	[DLB_HELD_GRADIENT] = { "gradients", "#e69f00" },
	[DLB_HELD_WEIGHT_GRADIENT] = { "weight gradients", "#009e73" },
	[DLB_HELD_FED] = { "samples", "#56b4e9" },
	[DLB_HELD_MESSAGE] = { "from other nodes", "#cc79a7" },
};

int dlb_view_program(const struct dlb_view *v, struct dlb_program *p, struct dlb_error *err)
{
	int optimizer = dlb_optimizer_find(v->plan.optimizer);

	return dlb_program_compile(&v->plan, &v->cost, v->plan.batch,
				   optimizer < 0 ? 0 : dlb_optimizers[optimizer].n_state, p, err);
}

enum dlb_held dlb_place_class(const struct dlb_view *v, const struct dlb_place *x, int node)
{
	const struct dlb_tensor *t = &v->graph.tensor[x->tensor];

	if (dlb_tensor_is_fed(t))
		return DLB_HELD_FED;
	if (x->micro_batch < 0 || v->plan.placement[t->producer] != node)
		return DLB_HELD_MESSAGE;
	return t->kind == DLB_T_GRADIENT        ? DLB_HELD_GRADIENT :
	       t->kind == DLB_T_WEIGHT_GRADIENT ? DLB_HELD_WEIGHT_GRADIENT :
						  DLB_HELD_ACTIVATION;
}

static void rect(FILE *f, double x, double y, double w, double h, enum dlb_held c)
{
	fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y, w, h,
		class[c].colour);
}

/* Scale of the y axis: permanent memory takes kept_px pixels, at a scale of its own
 * if the arena would be too small. */
struct scale { double bottom, kept_bytes, kept_px, px_per_byte; };

static double height_of(const struct scale *s, double bytes)
{
	if (bytes <= s->kept_bytes)
		return s->kept_bytes > 0 ? bytes / s->kept_bytes * s->kept_px : 0;
	return s->kept_px + (bytes - s->kept_bytes) * s->px_per_byte;
}

static bool is_cut(const struct scale *s)
{
	return s->kept_px < s->kept_bytes * s->px_per_byte * 0.99;
}

static struct scale scale_of(double bottom, double kept_bytes, double arena_bytes)
{
	double peak = kept_bytes + arena_bytes, even = peak > 0 ? HEIGHT / peak : 0;
	struct scale s = { bottom, kept_bytes, kept_bytes * even, even };

	if (arena_bytes > 0 && s.kept_px > 2 * CUT) {
		s.kept_px = CUT;
		s.px_per_byte = (HEIGHT - CUT) / arena_bytes;
	}
	return s;
}

static void band(FILE *f, const struct scale *s, double from, double bytes, enum dlb_held c)
{
	double y0 = height_of(s, from), y1 = height_of(s, from + bytes);
	char b[32];

	if (y1 - y0 < 0.1)
		return;
	rect(f, LEFT, s->bottom - y1, PLOT, y1 - y0, c);
	fprintf(f, "><title>%s, %s%s</title></rect>\n", class[c].name, dlb_view_bytes(bytes, b, sizeof b),
		is_cut(s) ? ", drawn lower than it is" : "");
}

/* A zigzag across the part drawn at a smaller scale. */
static void broken(FILE *f, const struct scale *s)
{
	double y = s->bottom - s->kept_px * 0.55;
	char b[32];

	if (!is_cut(s))
		return;
	fprintf(f, "<path fill=\"none\" stroke=\"white\" stroke-width=\"3\" d=\"M%d %.1f", LEFT, y);
	for (int i = 1; i <= PLOT / 20; i++)
		fprintf(f, "l20 %d", i % 2 ? -6 : 6);
	fprintf(f, "\"/>\n<text x=\"%d\" y=\"%.1f\" fill=\"white\">%s that stay, not to scale</text>\n",
		LEFT + 8, s->bottom - 6, dlb_view_bytes(s->kept_bytes, b, sizeof b));
}

int dlb_place_stretches(const struct dlb_node_program *np, const struct dlb_place *x, int from[2], int to[2])
{
	bool wraps = x->last < x->first, whole = x->copies > 1;

	from[0] = wraps || whole ? 0 : x->first;
	to[0] = whole ? np->n_instr : x->last;
	from[1] = x->first;
	to[1] = np->n_instr;
	return wraps && !whole ? 2 : 1;
}

double dlb_place_room(const struct dlb_place *x)
{
	return x->copies > 1 ? (double)x->copies * (double)dlb_place_bytes(x->bytes) : (double)x->bytes;
}

static void place(const struct dlb_view *v, FILE *f, int node, const struct dlb_node_program *np,
		  const struct dlb_place *x, const struct scale *s)
{
	double px_per_instr = (double)PLOT / np->n_instr, h = dlb_place_room(x) * s->px_per_byte;
	int from[2], to[2], n = dlb_place_stretches(np, x, from, to), M = v->plan.micro_batches;
	char b[32];

	if (x->of >= 0 || h < 0.15)			/* too small to be seen */
		return;
	for (int i = 0; i < n; i++) {
		rect(f, LEFT + from[i] * px_per_instr,
		     s->bottom - height_of(s, s->kept_bytes + (double)x->offset) - h,
		     (to[i] - from[i]) * px_per_instr, h, dlb_place_class(v, x, node));
		fprintf(f, " fill-opacity=\"%s\" stroke=\"white\" stroke-width=\"%s\"><title>",
			x->micro_batch > 0 && x->micro_batch % M % 2 ? "0.7" : "1", h > 3 ? "0.5" : "0.1");
		dlb_view_escaped(f, v->graph.tensor[x->tensor].name);
		if (x->micro_batch >= 0)
			fprintf(f, ", micro-batch %d%s", x->micro_batch % M,
				x->micro_batch < M ? "" : ", again");
		if (x->copies > 1)
			fprintf(f, ", %d copies", x->copies);
		fprintf(f, ", %s, instructions %d to %d</title></rect>\n",
			dlb_view_bytes(dlb_place_room(x), b, sizeof b), x->first, x->last);
	}
}

double *dlb_places_alive(const struct dlb_node_program *np)
{
	double *live = dlb_xcalloc((size_t)np->n_instr + 2, sizeof *live);

	for (int i = 0; i < np->n_places; i++) {
		int from[2], to[2],
			n = np->place[i].of >= 0 ? 0 : dlb_place_stretches(np, &np->place[i], from, to);
		for (int k = 0; k < n; k++) {
			live[from[k]] += dlb_place_room(&np->place[i]);
			live[to[k] + (to[k] < np->n_instr)] -= dlb_place_room(&np->place[i]);
		}
	}
	for (int i = 1; i < np->n_instr; i++)
		live[i] += live[i - 1];
	live[np->n_instr] = np->n_instr ? live[np->n_instr - 1] : 0;
	return live;
}

/* Memory alive after each instruction. */
static void alive(FILE *f, const struct dlb_node_program *np, const struct scale *s)
{
	double *live = dlb_places_alive(np), last = -1;

	fprintf(f, "<polyline fill=\"none\" stroke=\"black\" stroke-width=\"1.2\" points=\"");
	for (int i = 0; i <= np->n_instr; i++) {
		if (live[i] == last && i < np->n_instr)
			continue;
		if (last >= 0)
			fprintf(f, "%.1f,%.1f ", LEFT + (double)PLOT * i / np->n_instr,
				s->bottom - height_of(s, s->kept_bytes + last));
		fprintf(f, "%.1f,%.1f ", LEFT + (double)PLOT * i / np->n_instr,
			s->bottom - height_of(s, s->kept_bytes + live[i]));
		last = live[i];
	}
	fprintf(f, "\"/>\n");
	free(live);
}

static void label(FILE *f, double y, double bytes)
{
	char b[32];

	fprintf(f,
		"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888888\"/>\n<text x=\"%d\" "
		"y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
		LEFT - 5, LEFT, y, y, LEFT - 8, y + 4, dlb_view_bytes(bytes, b, sizeof b));
}

static double panel(const struct dlb_view *v, FILE *f, int node, const struct dlb_node_program *np, double y)
{
	double kept = (double)np->state_bytes + (double)np->scratch_bytes,
	       peak = kept + (double)np->arena_bytes;
	struct scale s = scale_of(y + 26 + HEIGHT, kept, (double)np->arena_bytes);
	double least = s.bottom - height_of(&s, kept + (double)np->bound_bytes), from = is_cut(&s) ? kept : 0;
	char a[32], b[32], c[32];

	fprintf(f,
		"<text x=\"12\" y=\"%.1f\" font-size=\"14\">node %d: peak %s; arena %s, least possible %s "
		"(%.1f %% over)</text>\n",
		y + 14, node, dlb_view_bytes(peak, a, sizeof a),
		dlb_view_bytes((double)np->arena_bytes, b, sizeof b),
		dlb_view_bytes((double)np->bound_bytes, c, sizeof c), dlb_view_over(np));
	fprintf(f,
		"<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#f7f7f7\" "
		"stroke=\"#cccccc\"/>\n",
		LEFT, y + 26, PLOT, HEIGHT);
	band(f, &s, 0, (double)np->state_bytes, DLB_HELD_STATE);
	band(f, &s, (double)np->state_bytes, (double)np->scratch_bytes, DLB_HELD_WORKSPACE);
	broken(f, &s);
	for (int i = 0; i < np->n_places; i++)
		place(v, f, node, np, &np->place[i], &s);
	alive(f, np, &s);
	fprintf(f,
		"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"black\" stroke-dasharray=\"6 "
		"4\"/>\n",
		LEFT, WIDTH - RIGHT, least, least);
	label(f, s.bottom, 0);
	for (int i = from > 0 ? 0 : 1; i <= 4; i++)
		label(f, s.bottom - height_of(&s, from + i * (peak - from) / 4),
		      from + i * (peak - from) / 4);
	fprintf(f,
		"<text x=\"%d\" y=\"%.1f\">instruction 0</text>\n<text x=\"%d\" y=\"%.1f\" "
		"text-anchor=\"end\">%d</text>\n",
		LEFT, s.bottom + 16, WIDTH - RIGHT, s.bottom + 16, np->n_instr);
	return s.bottom + 40;
}

static double legend(FILE *f, double y)
{
	double x = 12;

	for (int i = 0; i < DLB_N_HELD; i++) {
		rect(f, x, y, 12, 12, (enum dlb_held)i);
		fprintf(f, "/>\n<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 17, y + 11, class[i].name);
		x += 40 + 7.0 * (double)strlen(class[i].name);
	}
	fprintf(f, "<text x=\"%.0f\" y=\"%.0f\">line: alive; dashed: the most alive</text>\n", x, y + 11);
	return y + 30;
}

int dlb_view_memory(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	struct dlb_program p;
	int shown = 0, working = 0, height;
	double y = 12;
	char idle[200];

	if (!v->has_plan) {
		dlb_fail(err, NULL, "no plan in the document");
		return dlb_hint(err, "run dlb-place first");
	}
	if (dlb_view_program(v, &p, err))
		return -1;
	for (int i = 0; i < p.n_nodes; i++)
		working += v->plan.node[i].n_order > 0;
	height = 50 + (working < MOST_PANELS ? working : MOST_PANELS) * (HEIGHT + 66) + 40;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" "
		"font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		WIDTH, height, WIDTH, height);
	y = legend(f, y);
	for (int i = 0; i < p.n_nodes && shown < MOST_PANELS; i++)
		if (v->plan.node[i].n_order > 0) {
			y = panel(v, f, i, &dlb_program_of(&p, i)->node[i], y);
			shown++;
		}
	if (shown < working)
		fprintf(f, "<text x=\"12\" y=\"%.1f\">... and %d more nodes with work</text>\n", y + 8,
			working - shown);
	if (dlb_view_idle_nodes(v, p.n_nodes, idle, sizeof idle))
		fprintf(f, "<text x=\"12\" y=\"%.1f\">%s</text>\n", y + 26, idle);
	fprintf(f, "</svg>\n");
	dlb_program_release(&p);
	return 0;
}
