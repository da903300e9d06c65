/* Reads a document with a plan, and builds text. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "convert/planned.h"
#include "graph/graph_json.h"
#include "plan/plan_json.h"

int dlb_planned_read(const struct dlb_doc *d, struct dlb_planned *x, struct dlb_error *err)
{
	memset(x, 0, sizeof *x);
	dlb_graph_init(&x->g);
	if (dlb_graph_read(d, &x->g, err) == 0 && dlb_cluster_read(d, &x->cl, err) == 0 &&
	    dlb_cluster_correct_links(d, &x->cl, err) == 0 &&
	    dlb_cost_read(d, &x->g, &x->cl, &x->c, err) == 0 &&
	    dlb_plan_read(d, &x->c, &x->p, NULL, err) == 0)
		return 0;
	dlb_planned_release(x);
	return -1;
}

void dlb_planned_release(struct dlb_planned *x)
{
	dlb_plan_release(&x->p);
	dlb_cost_release(&x->c);
	dlb_cluster_release(&x->cl);
	dlb_graph_release(&x->g);
}

void dlb_text_add(struct dlb_text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	while (t->n + (size_t)n + 1 > t->cap) {
		t->cap = t->cap ? 2 * t->cap : 256;
		t->s = dlb_xrealloc(t->s, t->cap, 1);
	}
	va_start(ap, fmt);
	vsnprintf(t->s + t->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	t->n += (size_t)n;
}
