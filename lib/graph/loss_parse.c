/* Parses --loss: see loss.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/loss.h"

enum { SMOOTHING = 1, WEIGHTS = 2, POS_WEIGHT = 4 };		/* options of a loss */
enum number_kind { NO_NUMBER, AXIS, WIDTH };

static const struct form {
	const char *name;
	enum number_kind number;
	unsigned options;
} forms[DLB_N_LOSSES] = {
	[DLB_LOSS_OFF] = { "none", NO_NUMBER, 0 },
	[DLB_LOSS_AUTO] = { "auto", NO_NUMBER, 0 },
	[DLB_LOSS_CROSS_ENTROPY] = { "cross-entropy", AXIS, SMOOTHING | WEIGHTS },
	[DLB_LOSS_NEXT_TOKEN] = { "next-token", NO_NUMBER, SMOOTHING | WEIGHTS },
	[DLB_LOSS_BCE] = { "bce", NO_NUMBER, POS_WEIGHT },
	[DLB_LOSS_MSE] = { "mse", NO_NUMBER, 0 },
	[DLB_LOSS_L1] = { "l1", NO_NUMBER, 0 },
	[DLB_LOSS_HUBER] = { "huber", WIDTH, 0 },
	[DLB_LOSS_SMOOTH_L1] = { "smooth-l1", WIDTH, 0 },
	[DLB_LOSS_KL] = { "kl", NO_NUMBER, 0 },
	[DLB_LOSS_SUM] = { "sum", NO_NUMBER, 0 },
};
static const struct { const char *name; unsigned bit; } options[] = {
	{ "smoothing", SMOOTHING }, { "weights", WEIGHTS }, { "pos-weight", POS_WEIGHT },
};

struct loss_text { const char *whole, *p; struct dlb_graph *g; struct dlb_error *err; };

static int wrong(const struct loss_text *t, const char *what)
{
	return dlb_refuse(t->err, NULL, "dlb-profile(1) has the forms of --loss",
			"loss '%s': %s", t->whole, what);
}

/* Parses a number that ends at one of `ends` or at the end of the text. */
static int number(struct loss_text *t, const char *ends, double *out)
{
	char *end;

	*out = strtod(t->p, &end);
	if (end == t->p || !isfinite(*out) || (*end && !strchr(ends, *end))) {
		dlb_refuse(t->err, NULL, "give a number, as in huber:0.5",
			   "loss '%s': '%.*s' is not a number", t->whole, (int)strcspn(t->p, ends), t->p);
		return -1;
	}
	t->p = end;
	return 0;
}

/* Parses "OUTPUT=" before the loss. Output names may contain any character, so the text is
 * compared with each name. */
static int take_output(struct loss_text *t, struct dlb_loss_choice *c)
{
	const struct dlb_graph *g = t->g;
	const size_t word = strcspn(t->p, "=,*");
	const char *near, **names;
	size_t longest = 0;
	int n = 0;

	for (int i = 0; i < g->n_outputs; i++) {
		const char *name = g->tensor[g->output[i]].name;
		const size_t length = strlen(name);
		if (strncmp(t->p, name, length) || t->p[length] != '=' || length < longest)
			continue;
		c->output = g->output[i];
		longest = length;
	}
	if (c->output >= 0) {
		t->p += longest + 1;
		return dlb_dtype_is_float(g->tensor[c->output].dtype) ?
			       0 :
			       dlb_refuse(t->err, g->tensor[c->output].name,
					  "losses are of outputs that are floats",
					  "a loss of an output of type %s",
					  dlb_dtype_name(g->tensor[c->output].dtype));
	}
	if (t->p[word] != '=')
		return 0;
	names = dlb_arena_array(&t->g->arena, (size_t)g->n_outputs + 1, sizeof *names);
	for (int i = 0; i < g->n_outputs; i++)
		if (dlb_dtype_is_float(g->tensor[g->output[i]].dtype))
			names[n++] = g->tensor[g->output[i]].name;
	near = dlb_nearest(dlb_arena_printf(&t->g->arena, "%.*s", (int)word, t->p), names, n);
	dlb_fail(t->err, NULL, "loss '%s': no output '%.*s'", t->whole, (int)word, t->p);
	return near ? dlb_hint(t->err, "did you mean '%s'?", near) :
		dlb_hint(t->err, "the model's first float output is '%s'", n ? names[0] : "");
}

static int unknown(const struct loss_text *t, size_t n)
{
	const char *names[DLB_N_LOSSES];
	char word[64];

	for (int i = 0; i < DLB_N_LOSSES; i++)
		names[i] = forms[i].name;
	snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), t->p);
	dlb_fail(t->err, NULL, "unknown loss '%s'", t->whole);
	return dlb_hint_nearest(t->err, word, names, DLB_N_LOSSES,
				"cross-entropy[:AXIS], next-token, bce, mse, l1, huber[:DELTA], "
				"smooth-l1[:BETA], kl, sum or none");
}

static int take_name(struct loss_text *t, struct dlb_loss_choice *c)
{
	const size_t n = strcspn(t->p, ":,*");
	int kind = 0;

	while (kind < DLB_N_LOSSES && (strlen(forms[kind].name) != n || strncmp(forms[kind].name, t->p, n)))
		kind++;
	if (kind == DLB_N_LOSSES)
		return unknown(t, n);
	c->kind = (enum dlb_loss_kind)kind;
	t->p += n;
	if (*t->p != ':')
		return 0;
	if (forms[kind].number == NO_NUMBER)
		return wrong(t, "a number after ':' belongs to cross-entropy, huber and smooth-l1");
	t->p++;
	c->has_number = true;
	if (number(t, ",*", &c->number))
		return -1;
	if (forms[kind].number == AXIS && (c->number != floor(c->number) || fabs(c->number) > 16))
		return wrong(t, "the class axis is a small whole number");
	if (forms[kind].number == WIDTH && !(c->number > 0 || (kind == DLB_LOSS_SMOOTH_L1 && c->number == 0)))
		return wrong(t, "the width is more than 0");
	return 0;
}

static int take_list(struct loss_text *t, struct dlb_loss_choice *c)
{
	int n = 1;
	double *w;

	for (const char *p = t->p; *p && *p != ',' && *p != '*'; p++)
		n += *p == '/';
	w = dlb_arena_array(&t->g->arena, (size_t)n, sizeof *w);
	for (int i = 0; i < n; i++) {
		if (number(t, i + 1 < n ? "/" : ",*", &w[i]))
			return -1;
		if (w[i] < 0)
			return wrong(t, "weights are not negative");
		t->p += i + 1 < n;
	}
	c->weight = w;
	c->n_weights = n;
	return 0;
}

static int take_option(struct loss_text *t, struct dlb_loss_choice *c)
{
	const size_t n = strcspn(t->p, "=,*");
	int i = 0;

	while (i < DLB_LEN(options) && (strlen(options[i].name) != n || strncmp(options[i].name, t->p, n)))
		i++;
	if (i == DLB_LEN(options) || !(forms[c->kind].options & options[i].bit)) {
		dlb_fail(t->err, NULL, "loss '%s': %s has no option '%.*s'", t->whole, forms[c->kind].name,
			 (int)n, t->p);
		return dlb_hint(t->err, "cross-entropy and next-token have smoothing=E and weights=A/B/..., "
					"bce has pos-weight=A/B/...");
	}
	t->p += n;
	if (*t->p++ != '=')
		return wrong(t, "an option is written NAME=VALUE");
	if (options[i].bit != SMOOTHING)
		return take_list(t, c);
	if (number(t, ",*", &c->smoothing))
		return -1;
	return c->smoothing >= 0 && c->smoothing < 1 ? 0 : wrong(t, "smoothing is from 0 to 1, 1 excluded");
}

int dlb_loss_parse(struct dlb_graph *g, const char *text, struct dlb_loss_choice *c, struct dlb_error *err)
{
	struct loss_text t = { .whole = text, .p = text, .g = g, .err = err };

	*c = (struct dlb_loss_choice){ .kind = DLB_LOSS_AUTO, .output = -1, .number = 1, .factor = 1 };
	if (!text)
		return 0;
	if (take_output(&t, c) || take_name(&t, c))
		return -1;
	while (*t.p == ',') {
		t.p++;
		if (take_option(&t, c))
			return -1;
	}
	if (*t.p != '*')
		return 0;
	t.p++;
	if (number(&t, "", &c->factor))
		return -1;
	return c->factor > 0 ? 0 : wrong(&t, "the factor is more than 0");
}
