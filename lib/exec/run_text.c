/* Options of dlb-run whose text has a form of its own. See run_text.h. */
#include "exec/run_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "util/mem.h"

/* ---- --slow NODE:FACTOR[@STEP] ---- */

static int parse_slow_item(const struct dlb_cli *cli, const char *text, struct dlb_slow_change *c, bool *at)
{
	char *end, *rest = NULL;
	const long node = strtol(text, &end, 10);
	const double f = *end == ':' ? strtod(end + 1, &rest) : 0.0;

	*at = rest && *rest == '@';
	*c = (struct dlb_slow_change){ (int)node, f, 0 };
	if (end == text || *end != ':' || rest == end + 1 || node < 0 || node > 1000000 ||
	    !(f >= (*at ? 1e-6 : 1.0)) || f > 1e6 ||
	    (*at ? !dlb_cli_is_count(rest + 1, INT64_C(1) << 50, &c->step) : *rest))
		return dlb_cli_usage(
			cli,
			"--slow wants NODE:FACTOR with a factor from 1, or NODE:FACTOR@STEP, not "
			"'%s'",
			text);
	return 0;
}

static void add_change(struct dlb_run_text *t, struct dlb_slow_change c)
{
	int i = t->n_changes;

	DLB_GROW(t->change, t->n_changes, t->cap_changes);
	for (t->n_changes++; i > 0 && t->change[i - 1].step > c.step; i--)
		t->change[i] = t->change[i - 1];
	t->change[i] = c;
}

static void set_factor(struct dlb_run_text *t, int node, double factor)
{
	for (; t->n_factors <= node; t->n_factors++) {
		t->factor = dlb_xrealloc(t->factor, (size_t)t->n_factors + 1, sizeof *t->factor);
		t->factor[t->n_factors] = 1.0;
	}
	t->factor[node] = factor;
}

/* No change may make a node faster than it is. A product of rounded numbers may be 1 % off. */
static int check_slow(const struct dlb_cli *cli, const struct dlb_run_text *t)
{
	for (int i = 0; i < t->n_changes; i++) {
		const struct dlb_slow_change *c = &t->change[i];
		double f = c->node < t->n_factors ? t->factor[c->node] : 1.0;

		for (int k = 0; k <= i; k++)
			f *= t->change[k].node == c->node ? t->change[k].factor : 1.0;
		if (f < 0.99)
			return dlb_cli_usage(
				cli,
				"--slow %d:%g@%lld: node %d cannot be faster than it is; a factor "
				"below 1 takes back an earlier one",
				c->node, c->factor, (long long)c->step, c->node);
	}
	return 0;
}

static int parse_slow(const struct dlb_cli *cli, struct dlb_run_text *t, struct dlb_run_command *c)
{
	for (int i = 0; i < t->slow.n; i++) {
		struct dlb_slow_change x;
		bool at;

		if (parse_slow_item(cli, t->slow.item[i], &x, &at))
			return -1;
		if (at)
			add_change(t, x);
		else
			set_factor(t, x.node, x.factor);
	}
	c->exec.slow = t->factor;
	c->exec.n_slow = t->n_factors;
	c->exec.slow_change = t->change;
	c->exec.n_slow_changes = t->n_changes;
	return check_slow(cli, t);
}

/* ---- --freeze-at GLOB@STEP ---- */

static int parse_freeze(const struct dlb_cli *cli, struct dlb_run_text *t, struct dlb_run_command *c)
{
	struct dlb_freeze_at *f = t->freeze_at = dlb_xcalloc((size_t)t->freeze.n + 1, sizeof *f);
	struct dlb_exec_options *x = &c->exec;

	x->freeze_at = f;
	for (int i = 0; i < t->freeze.n; i++) {
		const char *text = t->freeze.item[i], *at = strrchr(text, '@');
		int64_t step;
		int k = x->n_freeze_at;

		if (!at || at == text || !dlb_cli_is_count(at + 1, INT64_C(1) << 50, &step))
			return dlb_cli_usage(cli, "--freeze-at wants GLOB@STEP with a step from 1, not '%s'",
					     text);
		for (x->n_freeze_at++; k > 0 && f[k - 1].step > step; k--)
			f[k] = f[k - 1];
		f[k] = (struct dlb_freeze_at){ dlb_xprintf("%.*s", (int)(at - text), text), step };
	}
	return 0;
}

/* ---- words and numbers ---- */

/* 'loss<X': exec.until_loss is X; NaN without the option. */
static int parse_until(const struct dlb_cli *cli, struct dlb_run_text *t, struct dlb_run_command *c)
{
	double *loss = &c->exec.until_loss;
	char *end;

	*loss = NAN;
	if (!t->until)
		return 0;
	*loss = strncmp(t->until, "loss<", 5) ? NAN : strtod(t->until + 5, &end);
	if (!isfinite(*loss) || end == t->until + 5 || *end)
		return dlb_cli_usage(cli, "--until wants 'loss<X', not '%s'", t->until);
	return 0;
}

static int parse_rounds(const struct dlb_cli *cli, struct dlb_run_text *t, struct dlb_run_command *c)
{
	int64_t *n = &c->exec.rounds;

	*n = t->rounds ? INT64_MAX : 0;
	if (!t->rounds || !strcmp(t->rounds, "auto") || dlb_cli_is_count(t->rounds, INT64_MAX, n))
		return 0;
	return dlb_cli_usage(cli, "--rounds wants a number from 1 or auto, not '%s'", t->rounds);
}

static int parse_failure(const struct dlb_cli *cli, struct dlb_run_text *t, struct dlb_run_command *c)
{
	const char *what = t->on_failure;

	c->exec.replan = what && !strcmp(what, "replan");
	if (!what || c->exec.replan || !strcmp(what, "stop"))
		return 0;
	return dlb_cli_usage(cli, "--on-failure wants stop or replan, not '%s'", what);
}

static int parse_release(const struct dlb_cli *cli, struct dlb_run_text *t, struct dlb_run_command *c)
{
	c->releases = t->release && !strcmp(t->release, "idle");
	if (!t->release || c->releases)
		return 0;
	return dlb_cli_usage(cli, "--release wants idle, not '%s'", t->release);
}

int dlb_run_text_parse(struct dlb_run_text *t, struct dlb_run_command *c)
{
	static int (*const parsers[])(const struct dlb_cli *, struct dlb_run_text *,
				      struct dlb_run_command *) = {
		parse_slow, parse_freeze, parse_until, parse_rounds, parse_failure, parse_release
	};

	for (int i = 0; i < DLB_LEN(parsers); i++)
		if (parsers[i](c->cli, t, c))
			return -1;
	return 0;
}

void dlb_run_text_release(struct dlb_run_text *t)
{
	for (int i = 0; t->freeze_at && t->freeze_at[i].glob; i++)
		free((char *)(uintptr_t)t->freeze_at[i].glob);
	free(t->freeze_at);
	free(t->factor);
	free(t->change);
	free(t->slow.item);
	free(t->groups.item);
	free(t->freeze.item);
}
