/* Groups of weights with their own hyper-parameters: GLOB:lr=X,weight-decay=Y. */
#include <stdlib.h>
#include <string.h>
#include "optim/optim.h"
#include "util/mem.h"
#include "util/patterns.h"

static const struct {
	const char *option;
	int hyper;
} settings[] = { { "lr", DLB_HYPER_LR }, { "weight-decay", DLB_HYPER_DECAY } };

/* Reads one setting NAME=X from the n characters at `text`. */
static int read_setting(const char *text, size_t n, struct dlb_optimizer_group *g)
{
	for (int i = 0; i < DLB_LEN(settings); i++) {
		const size_t name = strlen(settings[i].option);
		char *end;

		if (n <= name + 1 || strncmp(text, settings[i].option, name) || text[name] != '=')
			continue;
		const double v = strtod(text + name + 1, &end);
		if (end != text + n || !(v >= 0) || v > 1e38)
			return -1;
		g->given[settings[i].hyper] = true;
		g->hyper[settings[i].hyper] = v;
		return 0;
	}
	return -1;
}

int dlb_group_parse(const char *text, struct dlb_optimizer_group *g, struct dlb_error *err)
{
	const char *colon = strrchr(text, ':'), *p = colon ? colon + 1 : "";

	*g = (struct dlb_optimizer_group){ .glob = "" };
	bool good = colon && colon > text && (size_t)(colon - text) < sizeof g->glob && *p;
	while (good && *p) {
		const size_t n = strcspn(p, ",");
		good = !read_setting(p, n, g) && (!p[n] || p[n + 1]);
		p += n + (p[n] == ',');
	}
	if (!good)
		return dlb_hint((dlb_fail(err, NULL, "--group wants GLOB:lr=X,weight-decay=Y, not '%.100s'",
					  text),
				 err),
				"as in --group '*.bias:weight-decay=0'");
	memcpy(g->glob, text, (size_t)(colon - text));
	return 0;
}

bool dlb_group_matches(const struct dlb_optimizer_group *g, const char *name)
{
	return dlb_pattern_matches(g->glob, name);
}

double dlb_optimizer_for(const struct dlb_optimizer_choice *c, const char *name,
			 struct dlb_optimizer_choice *own)
{
	*own = *c;
	for (int i = 0; i < c->n_groups; i++)
		for (int h = 0; h < DLB_N_HYPER && dlb_group_matches(&c->group[i], name); h++)
			if (c->group[i].given[h])
				own->hyper[h] = c->group[i].hyper[h];
	return c->hyper[DLB_HYPER_LR] > 0 ? own->hyper[DLB_HYPER_LR] / c->hyper[DLB_HYPER_LR] : 1;
}
