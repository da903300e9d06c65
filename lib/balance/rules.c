/* The table of balancing rules, and the state handling that they share. */
#include "balance/rules.h"
#include "plan/replica.h"
#include <stdlib.h>
#include <string.h>

const struct dlb_rule dlb_rules[] = {
	{ "log", "corrects the cost model, then weights by excess waiting; keeps the best plan", dlb_rule_log,
	  true },
	{ "patent", "weights by shares of the waiting time, and no more", dlb_rule_patent, false },
	{ NULL, NULL, NULL, false },
};

const struct dlb_rule *dlb_rule_find(const char *name)
{
	for (const struct dlb_rule *r = dlb_rules; r->name; r++)
		if (!strcmp(r->name, name))
			return r;
	return NULL;
}

static void forget_nodes(struct dlb_balance *b)
{
	for (int i = 0; i < b->n_nodes; i++) {
		b->weight[i] = b->kappa[i] = b->kappa_mean[i] = 1;
		b->kappa_rounds[i] = 0;
	}
}

void dlb_balance_init(struct dlb_balance *b, int n_nodes)
{
	size_t n = (size_t)n_nodes + 1;

	memset(b, 0, sizeof *b);
	b->n_nodes = n_nodes;
	b->weight = dlb_arena_array(&b->arena, n, sizeof *b->weight);
	b->kappa = dlb_arena_array(&b->arena, n, sizeof *b->kappa);
	b->last_sign = dlb_arena_array(&b->arena, n, sizeof *b->last_sign);
	b->kappa_mean = dlb_arena_array(&b->arena, n, sizeof *b->kappa_mean);
	b->kappa_rounds = dlb_arena_array(&b->arena, n, sizeof *b->kappa_rounds);
	forget_nodes(b);
	dlb_balance_forget(b);
	b->first_round = 1;
}

void dlb_balance_release(struct dlb_balance *b)
{
	if (!b)
		return;
	if (b->next)
		dlb_plan_release(b->next);
	free(b->next);
	dlb_arena_release(&b->arena);
	memset(b, 0, sizeof *b);
}

void dlb_balance_forget(struct dlb_balance *b)
{
	b->eta = DLB_ETA;
	for (int i = 0; i < b->n_nodes; i++)
		b->last_sign[i] = 0;
	b->converged = b->keep = false;
	b->reason = NULL;
	b->best_step_s = b->best_se_s = 0;
	b->best_plan_hash[0] = '\0';
	b->best_rounds = 0;
	b->best_weight = NULL;
	b->best_placement = NULL;
	b->n_placement = 0;
	b->best_teams.n = 0;
	b->settled = NULL;
	b->hold = 0;
	b->hold_off = 1;
	b->expected_s = 0;
}

int dlb_balance_begin_search(struct dlb_doc *d, int n_nodes, struct dlb_error *err)
{
	struct dlb_balance b;

	if (!dlb_doc_section(d, "balance"))
		return 0;
	if (dlb_balance_read(d, n_nodes, &b, err))
		return -1;
	dlb_balance_forget(&b);
	b.stable = 0;
	b.first_round = b.round + 1;
	dlb_doc_put(d, "balance", dlb_balance_write(&b));
	dlb_balance_release(&b);
	return 0;
}

struct dlb_balance_round *dlb_balance_begin(struct dlb_balance *b, const struct dlb_load *l, const char *rule)
{
	struct dlb_balance_round *h, *r;

	if (b->rule && strcmp(b->rule, rule)) {		/* state of another rule does not apply */
		forget_nodes(b);
		dlb_balance_forget(b);
		b->stable = 0;
		b->n_history = 0;
		b->first_round = b->round + 1;
	}
	b->rule = dlb_arena_strdup(&b->arena, rule);
	b->round++;
	b->floor_s = l->bound_s;
	h = dlb_arena_array(&b->arena, (size_t)b->n_history + 1, sizeof *h);
	if (b->n_history)
		memcpy(h, b->history, (size_t)b->n_history * sizeof *h);
	b->history = h;
	r = &h[b->n_history++];
	r->round = b->round;
	r->step_s = l->round_s;
	r->step_se_s = l->round_se_s;
	r->predicted_step_s = l->predicted_s;
	r->expected_s = b->expected_s;
	r->moved_ops = l->moved_ops;
	r->drift = 1;
	if (!b->spread_rounds) {
		b->spread = l->usual_spread;
		b->spread_rounds = 1;
	}
	memcpy(r->plan_hash, l->plan_hash, sizeof r->plan_hash);
	r->weight = dlb_arena_array(&b->arena, (size_t)b->n_nodes + 1, sizeof *r->weight);
	memcpy(r->weight, b->weight, (size_t)b->n_nodes * sizeof *r->weight);
	b->stable = r > h && !strcmp(r[-1].plan_hash, r->plan_hash) ? b->stable + 1 : 1;
	return r;
}

struct dlb_balance_teams dlb_balance_teams_of(const struct dlb_plan *p, struct dlb_arena *a)
{
	struct dlb_balance_teams t = { .n = p->n_replicas > 1 ? p->n_replicas : 1 };
	size_t R = (size_t)t.n, n = (size_t)p->n_nodes;

	if (t.n < 2)
		return t;
	t.replica = dlb_arena_array(a, R * n, sizeof *t.replica);
	t.power = dlb_arena_array(a, R, sizeof *t.power);
	for (size_t r = 0; r < R; r++) {
		memcpy(t.replica + r * n, p->replica[r], n * sizeof *t.replica);
		t.power[r] = p->power ? p->power[r] : 1;
	}
	return t;
}

void dlb_balance_teams_set(const struct dlb_balance_teams *t, struct dlb_plan *p)
{
	dlb_plan_set_replicas(p, t->n, t->replica);
	p->power = NULL;
	if (t->n < 2)
		return;
	p->power = dlb_arena_array(&p->arena, (size_t)t->n, sizeof *p->power);
	memcpy(p->power, t->power, (size_t)t->n * sizeof *p->power);
}

void dlb_balance_hold_plan(struct dlb_balance *b, const struct dlb_load *l)
{
	b->best_placement = NULL;
	b->n_placement = 0;
	b->best_teams.n = 0;
	if (!l->placement)
		return;
	b->n_placement = l->n_ops;
	b->best_placement = dlb_arena_array(&b->arena, (size_t)l->n_ops + 1, sizeof *b->best_placement);
	memcpy(b->best_placement, l->placement, (size_t)l->n_ops * sizeof *b->best_placement);
	b->best_teams = l->teams;
	if (l->teams.n < 2)
		return;
	size_t R = (size_t)l->teams.n, n = (size_t)b->n_nodes;
	b->best_teams.replica = memcpy(dlb_arena_array(&b->arena, R * n, sizeof(int)), l->teams.replica,
				       R * n * sizeof(int));
	b->best_teams.power = memcpy(dlb_arena_array(&b->arena, R, sizeof(double)), l->teams.power,
				     R * sizeof(double));
}

void dlb_balance_rescale(struct dlb_balance *b)
{
	double sum = 0;

	for (int i = 0; i < b->n_nodes; i++) {
		if (!(b->weight[i] >= DLB_LEAST_WEIGHT))
			b->weight[i] = DLB_LEAST_WEIGHT;
		sum += b->weight[i];
	}
	for (int i = 0; i < b->n_nodes; i++)
		b->weight[i] *= b->n_nodes / sum;
}

double dlb_imbalance(const double *busy_s, const bool *free_node, int n)
{
	double most = 0, sum = 0;
	int count = 0;

	for (int i = 0; i < n; i++)
		if (!free_node || free_node[i]) {
			most = busy_s[i] > most ? busy_s[i] : most;
			sum += busy_s[i];
			count++;
		}
	return sum > 0 ? most / (sum / count) : 1;
}
