/* Corrects the bandwidths of links by the rounds, as kappa.c corrects the speeds of nodes.
 *
 *     slower      a round that a slower link explains (slow_link.c) makes the link suspect; a second such
 *                 round in a row corrects its bandwidth to the one that this round shows. Links that explain
 *                 the round equally well, as those of one route do, are all corrected; more than four are not
 *     faster      a corrected link that the plan uses gets the bandwidth that a much faster round shows. If
 *                 the stated bandwidths of all links explain the round, all links get them again
 *     unseen      a corrected link that no plan uses for `patience` rounds gets its stated bandwidth again,
 *                 as a trial, since no measurement would show that it has recovered. In the next four rounds
 *                 a single late round corrects it again; the next trial then comes after twice as many
 *                 rounds. If the link makes a step k times as long, `patience` is at least 4 k. So the first
 *                 trial in vain costs a quarter of the time since the correction, the next an eighth, and so
 *                 on
 *
 * The planner, the predictions and the search for slow links then use the corrected bandwidth. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "balance/culprit.h"
#include "balance/rules.h"

enum { FIRST_PATIENCE = 16, MOST_PATIENCE = 1 << 20, PATIENCE_PER_TIME = 4, TRIAL = 4 };
static const double least_factor = 1e-6;

/* A round that corrects links: its inputs, load and balance; the number of links changed, and the first
 * one. */
struct correction {
	struct dlb_balance_inputs *s;
	const struct dlb_load *l;
	struct dlb_balance *b;
	int n, first;
};

static struct dlb_balance_link *link_of(struct dlb_balance *b, int k)
{
	struct dlb_balance_link *grown;

	for (int i = 0; i < b->n_links; i++)
		if (b->link[i].link == k)
			return &b->link[i];
	grown = dlb_arena_array(&b->arena, (size_t)b->n_links + 1, sizeof *grown);
	if (b->n_links)
		memcpy(grown, b->link, (size_t)b->n_links * sizeof *grown);
	grown[b->n_links] = (struct dlb_balance_link){ .link = k, .factor = 1, .patience = FIRST_PATIENCE };
	b->link = grown;
	return &b->link[b->n_links++];
}

static void set_factor(struct correction *c, struct dlb_balance_link *x, double factor, const char *how)
{
	struct dlb_link *link = &c->s->cluster.link[x->link];
	char others[40] = "", text[160];

	x->factor = factor;
	x->unseen = 0;
	link->bandwidth_Bps = link->stated_Bps * factor;
	c->first = c->n ? c->first : x->link;
	if (c->n++)
		snprintf(others, sizeof others, " (and %d other%s)", c->n - 1, c->n > 2 ? "s" : "");
	snprintf(text, sizeof text, "link %.40s%s counts with %.3g MB/s%s",
		 dlb_link_name(&c->s->cluster, c->first), others, link->bandwidth_Bps / 1e6, how);
	c->b->links_told = dlb_arena_strdup(&c->b->arena, text);
}

/* Looks at a link that has been corrected. */
static void look_again(struct correction *c, struct dlb_balance_link *x)
{
	bool seen;
	const double now = dlb_slow_link_now(c->s, c->l, x->link, &seen);

	x->unseen = seen ? 0 : x->unseen + 1;
	if (now > x->factor) {
		set_factor(c, x, now, now < 1 ? ", more than before" : " again");
	} else if (x->unseen >= x->patience) {
		x->patience = x->patience < MOST_PATIENCE ? 2 * x->patience : MOST_PATIENCE;
		set_factor(c, x, 1, " again, to try it");
		x->trial = TRIAL;
	}
}

/* Notes that the round shows `part` of the present bandwidth of link k, with a step `longer` times as long.
 * The first such round makes the link suspect, the second corrects it. */
static void suspect(struct correction *c, int k, double part, double longer)
{
	struct dlb_balance_link *x = link_of(c->b, k);
	const bool again = x->suspected || x->trial > 0;

	x->suspected = !again;
	x->trial = 0;
	if (!again)
		return;
	x->patience = (int)fmax(x->patience, fmin(PATIENCE_PER_TIME * longer, MOST_PATIENCE));
	set_factor(c, x, fmax(least_factor, x->factor * part), "");
}

/* The number of links that the round may correct. */
static int n_named(const struct dlb_culprit *c)
{
	return c->cause == DLB_CAUSE_LINK && c->n_links <= DLB_EQUAL_LINKS ? c->n_links : 0;
}

static bool is_named(const struct dlb_culprit *c, int k)
{
	for (int i = 0; i < n_named(c); i++)
		if (c->at[i] == k)
			return true;
	return false;
}

static bool any_corrected(const struct dlb_balance *b)
{
	for (int i = 0; i < b->n_links; i++)
		if (b->link[i].factor < 1)
			return true;
	return false;
}

/* Updates a link that the round does not name. restored: all links have their stated bandwidth again. */
static void leave_alone(struct correction *c, struct dlb_balance_link *x, bool restored)
{
	x->suspected = false;
	if (x->trial > 0 && --x->trial == 0)
		x->patience = FIRST_PATIENCE;
	if (x->factor < 1 && restored)
		set_factor(c, x, 1, " again");
	else if (x->factor < 1)
		look_again(c, x);
}

bool dlb_balance_correct_links(struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_balance *b)
{
	const struct dlb_culprit *found = &b->culprit;
	struct correction c = { .s = s, .l = l, .b = b };
	const int n = n_named(found);
	const double first_Bps = n ? s->cluster.link[found->at[0]].bandwidth_Bps : 0;
	const bool restored = !n && any_corrected(b) && dlb_slow_link_none(s, l);

	b->links_told = NULL;
	for (int i = 0; i < b->n_links; i++)
		if (!is_named(found, b->link[i].link))
			leave_alone(&c, &b->link[i], restored);
	for (int i = 0; i < n; i++)
		suspect(&c, found->at[i], found->measured_Bps / first_Bps, l->round_s / found->step_s);
	return c.n > 0;
}
