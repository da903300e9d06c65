/* Corrects the bandwidths of links by the rounds, as kappa.c corrects the speeds of nodes.
 *
 *     slower      a round that a slower link explains (slow_link.c) makes it suspect; the second one in a row
 *                 corrects its bandwidth to what that round shows. Of two links that explain it equally well both
 *                 are corrected, of more none
 *     faster      a corrected link that the plan uses gets the bandwidth that a much faster round shows
 *     unseen      one that no plan uses for `patience` rounds is given its stated bandwidth again, since nothing
 *                 else would show that it has it. In the next rounds one late round corrects it, and the next
 *                 such try comes after twice as many rounds. With a link that makes a step k times as long,
 *                 `patience` is at least 4 k: the first try in vain costs a quarter of the time since, the next
 *                 an eighth, and so on
 *
 * The planner, the predictions and the search for slow links then count with the corrected bandwidth. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "balance/culprit.h"
#include "balance/rules.h"

enum { FIRST_PATIENCE = 16, MOST_PATIENCE = 1 << 20, PATIENCE_PER_TIME = 4, TRIAL = 4, MOST_EQUAL = 2 };
static const double least_factor = 1e-6;

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

/* Adds to what is told: link k and what is known of it. */
static void tell(struct dlb_balance *b, const struct dlb_cluster *cl, int k, double factor, const char *how)
{
	char text[200];

	snprintf(text, sizeof text, "%s%slink %.40s counts with %.3g MB/s%s",
		 b->links_told ? b->links_told : "", b->links_told ? ", " : "", dlb_link_name(cl, k),
		 cl->link[k].stated_Bps * factor / 1e6, how);
	b->links_told = dlb_arena_strdup(&b->arena, text);
}

static void set_factor(struct dlb_balance_inputs *s, struct dlb_balance *b, struct dlb_balance_link *x,
		       double factor, const char *how)
{
	x->factor = factor;
	x->unseen = 0;
	s->cluster.link[x->link].bandwidth_Bps = s->cluster.link[x->link].stated_Bps * factor;
	tell(b, &s->cluster, x->link, factor, how);
}

/* Looks at a link that has been corrected. */
static void look_again(struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_balance *b,
		       struct dlb_balance_link *x)
{
	bool seen;
	const double now = dlb_slow_link_now(s, l, x->link, &seen);

	x->unseen = seen ? 0 : x->unseen + 1;
	if (now > x->factor) {
		set_factor(s, b, x, now, now < 1 ? ", more than before" : " again");
	} else if (x->unseen >= x->patience) {
		x->patience = x->patience < MOST_PATIENCE ? 2 * x->patience : MOST_PATIENCE;
		set_factor(s, b, x, 1, " again, to try it");
		x->trial = TRIAL;
	}
}

/* Takes up what the round says of link k: `part` of its present bandwidth; a step is `longer` times as long. */
static void suspect(struct dlb_balance_inputs *s, struct dlb_balance *b, int k, double part, double longer)
{
	struct dlb_balance_link *x = link_of(b, k);
	const bool again = x->suspected || x->trial > 0;

	x->suspected = !again;
	x->trial = 0;
	if (!again)
		return;
	x->patience = (int)fmax(x->patience, fmin(PATIENCE_PER_TIME * longer, MOST_PATIENCE));
	set_factor(s, b, x, fmax(least_factor, x->factor * part), "");
}

static bool is_named(const struct dlb_culprit *c, int k)
{
	return c->cause == DLB_CAUSE_LINK && c->n_links <= MOST_EQUAL && (c->at == k || c->or_at == k);
}

bool dlb_balance_correct_links(struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_balance *b)
{
	const struct dlb_culprit *c = &b->culprit;

	b->links_told = NULL;
	for (int i = 0; i < b->n_links; i++) {
		struct dlb_balance_link *x = &b->link[i];

		if (is_named(c, x->link))
			continue;
		x->suspected = false;
		if (x->trial > 0 && --x->trial == 0)
			x->patience = FIRST_PATIENCE;
		if (x->factor < 1)
			look_again(s, l, b, x);
	}
	if (c->cause == DLB_CAUSE_LINK && c->n_links <= MOST_EQUAL) {
		const double part = c->measured_Bps / s->cluster.link[c->at].bandwidth_Bps,
			     longer = l->round_s / c->step_s;

		suspect(s, b, c->at, part, longer);
		if (c->or_at != c->at)
			suspect(s, b, c->or_at, part, longer);
	}
	return b->links_told != NULL;
}
