/* Simulated annealing of the greatest load, by its power norm (loads.h), with an exponent that grows from
 * 8 to 128 as the temperature falls.
 *
 * Where memory is scarce, few moves lead from one placement that fits to another. Then (soft) bytes beyond
 * a node's memory count as load, with a weight that grows as the temperature falls, and only placements
 * that fit are recorded. */
#include <math.h>
#include "place/loads.h"

enum { CLUMP = 8, CHECK = 1024 };

struct load_move { int class, from; };

/* Moves c and records the move; false: not allowed. */
static bool push(struct dlb_loads *a, struct load_move *done, int *n, int c, int to)
{
	double df, dt;
	if (a->at[c] == to || !dlb_loads_may(a, c, to))
		return false;
	dlb_loads_gains(a, c, to, &df, &dt);
	done[(*n)++] = (struct load_move){ c, a->at[c] };
	dlb_loads_move(a, c, to, df, dt);
	return true;
}

static bool accepts(struct dlb_loads *a, double energy, double hot)
{
	if (energy <= a->energy)
		return true;
	double u = dlb_rng_uniform(&a->s->rng);
	return log(energy / a->energy) < -a->q * hot * log(u > 0 ? u : 1e-300);
}

/* Moves one class to another node if the resulting energy is accepted. */
static bool try_one(struct dlb_loads *a, int c, int to, double hot)
{
	double df, dt;
	int from = a->at[c];
	if (to == from || !dlb_loads_may(a, c, to))
		return false;
	dlb_loads_gains(a, c, to, &df, &dt);
	double bytes = a->port->bytes[c], energy = a->energy - a->power[from] - a->power[to] +
		dlb_loads_power(a, dlb_loads_burden(a, from, a->load[from] + df, a->used[from] - bytes)) +
		dlb_loads_power(a, dlb_loads_burden(a, to, a->load[to] + dt, a->used[to] + bytes));
	if (!accepts(a, energy, hot))
		return false;
	dlb_loads_move(a, c, to, df, dt);
	return true;
}

/* Accepts the n moves that were made, or undoes them all. before: the energy before them. */
static bool try_many(struct dlb_loads *a, struct load_move *done, int n, double before, double hot)
{
	double after = a->energy;
	a->energy = before;
	bool good = n > 0 && accepts(a, after, hot);
	a->energy = after;
	while (!good && n > 0) {
		double df, dt;
		n--;
		dlb_loads_gains(a, done[n].class, done[n].from, &df, &dt);
		dlb_loads_move(a, done[n].class, done[n].from, df, dt);
	}
	return good;
}

static bool try_swap(struct dlb_loads *a, int c, int to, double hot)
{
	struct load_move done[2];
	int n = 0, from = a->at[c];
	double before = a->energy;
	if (to == from || !a->size[to])
		return false;
	int other = a->member[(size_t)to * (size_t)a->port->n + (size_t)dlb_loads_below(a, a->size[to])];
	bool ok = push(a, done, &n, c, to) ? push(a, done, &n, other, from) :
		  push(a, done, &n, other, from) && push(a, done, &n, c, to);
	if (ok)
		return try_many(a, done, n, before, hot);
	try_many(a, done, n, 0, 0);			/* one of two moves was made: undo it */
	return false;
}

/* Moves a clump of 2 .. CLUMP - 1 neighbouring classes of one node. */
static bool try_clump(struct dlb_loads *a, int c, int to, double hot)
{
	struct load_move done[CLUMP];
	int n = 0, from = a->at[c], want = 2 + dlb_loads_below(a, CLUMP - 2);
	double before = a->energy;
	if (to == from || !push(a, done, &n, c, to))
		return false;
	for (int tries = 0; n < want && tries < 3 * CLUMP; tries++) {
		int o = dlb_loads_neighbour(a, done[dlb_loads_below(a, n)].class);
		if (o >= 0 && a->at[o] == from)
			push(a, done, &n, o, to);
	}
	return try_many(a, done, n, before, hot);
}

static bool propose(struct dlb_loads *a, double hot)
{
	const struct dlb_port *port = a->port;
	int kind = dlb_loads_below(a, 100), c = dlb_loads_below(a, port->n),
	    to = dlb_loads_below(a, port->n_nodes);
	if (dlb_loads_below(a, 4) == 0) {
		int d = dlb_loads_busiest(a);
		if (a->size[d])
			c = a->member[(size_t)d * (size_t)port->n + (size_t)dlb_loads_below(a, a->size[d])];
	}
	if (kind < 55 || (kind >= 80 && dlb_loads_below(a, 4))) {
		int o = dlb_loads_neighbour(a, c);
		if (o >= 0)
			to = a->at[o];
	}
	return kind < 65 ? try_one(a, c, to, hot) :
	       kind < 80 ? try_swap(a, c, to, hot) :
			   try_clump(a, c, to, hot);
}

void dlb_anneal_throughput(struct dlb_search *s, int *from, int64_t proposals, double hot, bool soft)
{
	struct dlb_loads a;
	double cold = 2e-6, t = hot, cool = pow(cold / hot, (double)CHECK / (double)proposals);

	dlb_loads_init(&a, s, from, soft);
	dlb_loads_set_exponent(&a, 3, s->best_s);
	for (int64_t i = 0; i < proposals; i++) {
		if (i % CHECK == 0) {
			t = hot * pow(cool, (double)i / CHECK);
			double done = (double)i / (double)proposals;
			a.strength = pow(100, done);
			dlb_loads_set_exponent(&a,
					       done < 0.3  ? 3 :
					       done < 0.55 ? 4 :
					       done < 0.75 ? 5 :
					       done < 0.9  ? 6 :
							     7,
					       s->best_s);
			s->budget -= CHECK;
			if (dlb_search_over(s))
				break;
		}
		if (propose(&a, t))
			dlb_loads_keep_best(&a);
	}
	dlb_loads_release(&a);
}
