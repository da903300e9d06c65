/* Gives padding rows of embeddings, named by the user, no gradient. */
#include <stdlib.h>
#include <string.h>
#include "graph/graph.h"
#include "graph/passes.h"
#include "util/patterns.h"

/* Is the op a Gather of rows (axis 0) from a table whose name matches `glob`? */
static bool is_embedding(const struct dlb_graph *g, const struct dlb_op *o, const char *glob)
{
	return !strcmp(o->type, "Gather") && !*o->domain && o->n_in == 2 && o->in[0] >= 0 &&
	       dlb_pattern_matches(glob, g->tensor[o->in[0]].name) &&
	       dlb_attr_int(o->attr, o->n_attr, "axis", 0) == 0;
}

static void set_padding(struct dlb_graph *g, struct dlb_op *o, int64_t row)
{
	struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *attr);
	int n = 0;

	for (int i = 0; i < o->n_attr; i++)
		if (strcmp(o->attr[i].name, "padding"))
			attr[n++] = o->attr[i];
	attr[n++] = (struct dlb_attr){ .name = "padding", .type = DLB_ATTR_INT, .i = row };
	o->attr = attr;
	o->n_attr = n;
}

int dlb_graph_set_padding_row(struct dlb_graph *g, const char *text, struct dlb_error *err)
{
	const char *equals = strrchr(text, '=');
	char *end = NULL;
	const long long row = equals ? strtoll(equals + 1, &end, 10) : -1;
	int found = 0;

	if (!equals || equals == text || end == equals + 1 || *end || row < 0) {
		dlb_fail(err, NULL, "'%s' is no padding row", text);
		return dlb_hint(err, "as in --padding-row '*word_embeddings*=0'");
	}
	char *glob = dlb_xprintf("%.*s", (int)(equals - text), text);
	for (int i = 0; i < g->n_ops; i++)
		if (is_embedding(g, &g->op[i], glob)) {
			set_padding(g, &g->op[i], row);
			found++;
		}
	if (!found) {
		dlb_fail(err, NULL, "no embedding has a table named like '%s'", glob);
		dlb_hint(err, "tables are named by the model's initializers, as in '*embed*'");
	}
	free(glob);
	return found ? 0 : -1;
}
