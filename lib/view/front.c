/* Draws the plan's front (dlb-place --front): step time against the memory of the fullest node. */
#include <math.h>
#include "view/view.h"

int dlb_view_front(const struct dlb_view *v, FILE *f, struct dlb_error *err);

enum { WIDTH = 720, HEIGHT = 420, LEFT = 90, RIGHT = 30, TOP = 40, BOTTOM = 60, TICKS = 5 };

struct front_scale { double least_bytes, most_bytes, least_s, most_s; };

static double x_of(const struct front_scale *s, double bytes)
{
	return LEFT + (WIDTH - LEFT - RIGHT) * (bytes - s->least_bytes) / (s->most_bytes - s->least_bytes);
}

static double y_of(const struct front_scale *s, double seconds)
{
	return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (seconds - s->least_s) / (s->most_s - s->least_s);
}

static double number(const json_t *point, const char *key)
{
	return json_number_value(json_object_get(point, key));
}

/* A tenth of the range is left on each side. */
static struct front_scale scale_of(const json_t *front)
{
	struct front_scale s = { .least_bytes = INFINITY, .least_s = INFINITY };
	const json_t *point;
	size_t i;

	json_array_foreach(front, i, point) {
		s.least_bytes = fmin(s.least_bytes, number(point, "bytes"));
		s.most_bytes = fmax(s.most_bytes, number(point, "bytes"));
		s.least_s = fmin(s.least_s, number(point, "value_s"));
		s.most_s = fmax(s.most_s, number(point, "value_s"));
	}
	const double bytes = fmax(0.1 * (s.most_bytes - s.least_bytes), 1e-3 * s.most_bytes + 1);
	const double seconds = fmax(0.1 * (s.most_s - s.least_s), 1e-3 * s.most_s + 1e-12);
	s.least_bytes = fmax(0, s.least_bytes - bytes);
	s.most_bytes += bytes;
	s.least_s = fmax(0, s.least_s - seconds);
	s.most_s += seconds;
	return s;
}

static void axes(const struct front_scale *s, FILE *f)
{
	char b[32];

	fprintf(f, "<path fill=\"none\" stroke=\"#333333\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP,
		HEIGHT - BOTTOM, WIDTH - RIGHT);
	for (int i = 0; i <= TICKS; i++) {
		const double bytes = s->least_bytes + (s->most_bytes - s->least_bytes) * i / TICKS,
			     seconds = s->least_s + (s->most_s - s->least_s) * i / TICKS;
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x_of(s, bytes),
			HEIGHT - BOTTOM + 20, dlb_view_bytes(bytes, b, sizeof b));
		fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
			y_of(s, seconds) + 4, dlb_view_seconds(seconds, b, sizeof b));
	}
	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">memory of the fullest node</text>\n",
		(WIDTH + LEFT - RIGHT) / 2, HEIGHT - 14);
	fprintf(f, "<text x=\"%d\" y=\"%d\">seconds per step, predicted</text>\n", LEFT - 60, TOP - 18);
}

int dlb_view_front(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	const json_t *front = json_object_get(dlb_doc_section(v->doc, "plan"), "front"), *point;
	char a[32], b[32];
	size_t i;

	if (!json_array_size(front))
		return dlb_refuse(err, "/plan/front", "dlb-place --front makes it", "the plan has no front");
	const struct front_scale s = scale_of(front);
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
		"fill=\"white\"/>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	axes(&s, f);
	fprintf(f, "<polyline fill=\"none\" stroke=\"#0072b2\" points=\"");
	json_array_foreach(front, i, point)
		fprintf(f, "%s%.1f,%.1f", i ? " " : "", x_of(&s, number(point, "bytes")),
			y_of(&s, number(point, "value_s")));
	fprintf(f, "\"/>\n");
	json_array_foreach(front, i, point)
		fprintf(f,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#0072b2\"><title>%s, %s a step, "
			"%d ops run again</title></circle>\n",
			x_of(&s, number(point, "bytes")), y_of(&s, number(point, "value_s")),
			dlb_view_bytes(number(point, "bytes"), a, sizeof a),
			dlb_view_seconds(number(point, "value_s"), b, sizeof b), (int)number(point, "again"));
	fprintf(f, "</svg>\n");
	return 0;
}
