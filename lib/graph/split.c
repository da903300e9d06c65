/* Decides which ops are split and how: from the requests to a cut of every operand.
 *
 * The requested ops are seeds. From a seed the split is carried along tensors to producers and readers, by
 * the rules of the operators (split_rules.c): to other requested ops, and to ops that can follow, such as
 * Relu or Reshape. So two products in sequence are split such that the first one's outputs are the second
 * one's inputs, shard by shard (Shoeybi et al., Megatron-LM, 2019, for a transformer's MLP and attention
 * heads; the rules find these cuts from the shapes). Ops that follow a seed without leading to another split
 * op stay whole in the end: the parts are joined right after the seed.
 *
 * Then backward ops and updates are made anew; backward ops of shards are ordinary backward ops. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/split.h"
#include "util/patterns.h"

struct splitting {
	struct dlb_graph *g;
	const struct dlb_split_request *ask;
	int n_ask;
	int *asked;				/* [op] index of the request, -1: none */
	bool *exact;				/* [op] requested by its name, not by a pattern */
	struct dlb_assigned *assigned;		/* [op] */
	bool *grown;				/* [op] has weights, and was split for the sake of
						 * attention without a request */
	struct dlb_split_region *region;
	int n_regions, cap_regions;
	int *queue, n_queue;
	struct dlb_error *err;
	bool no_axis;			/* err says that an op lacks the axis; an error of an op that
					 * has the axis is more useful */
};

int dlb_split_shard(const char *name)
{
	const char *at = strrchr(name, '@');

	return at && at[1] >= '0' && at[1] <= '9' ? atoi(at + 1) : -1;
}

struct dlb_was_split *dlb_split_of_shard(const struct dlb_graph *g, const char *name)
{
	const char *at = strrchr(name, '@');

	for (int i = 0; i < g->n_was_split && dlb_split_shard(name) >= 0; i++) {
		const char *op = g->was_split[i].op;
		if (!strncmp(op, name, (size_t)(at - name)) && !op[at - name])
			return &g->was_split[i];
	}
	return NULL;
}

bool dlb_split_in_pairs(const struct dlb_graph *g, int t, const int *op, int n)
{
	int least = INT_MAX, most = -1;

	if (n < 3 || dlb_tensor_bytes(&g->tensor[t], g->batch) < DLB_SPLIT_PAIRS_BYTES)
		return false;
	for (int i = 0; i < n; i++) {
		const int shard = dlb_split_shard(g->op[op[i]].name);
		const struct dlb_was_split *w = dlb_split_of_shard(g, g->op[op[i]].name);
		if (w && !w->pairs)
			return false;
		least = w && shard < least ? shard : least;
		most = w && shard > most ? shard : most;
	}
	return least < most;
}

/* -- requests -- */

int dlb_split_parse(const char *text, struct dlb_arena *a, struct dlb_split_request *ask,
		    struct dlb_error *err)
{
	static const char *const axes[] = { "output", "input", "batch", "rows", "head", "vocabulary" };
	const char *eq = strrchr(text, '=');
	char *end = NULL;
	const long parts = eq ? strtol(eq + 1, &end, 10) : 0;
	bool known = false;

	if (!eq || eq == text || end == eq + 1 || (*end && *end != ':')) {
		dlb_fail(err, NULL, "'%.100s' does not say what is split", text);
		return dlb_hint(err, "--split OP=K or OP=K:AXIS, as in fc6=3 or fc6=3:input");
	}
	if (parts < 2 || parts > 4096)
		return dlb_refuse(err, NULL, "as in conv1=2 or conv1=4:output",
				"'%.100s': an op is split into 2 to 4096 shards", text);
	*ask = (struct dlb_split_request){ .parts = (int)parts,
					   .axis = *end ? dlb_arena_strdup(a, end + 1) : NULL,
					   .why = "asked for" };
	char *op = dlb_arena_strdup(a, text);
	op[eq - text] = '\0';
	ask->op = op;
	for (size_t i = 0; i < sizeof axes / sizeof *axes && ask->axis; i++)
		known |= !strcmp(ask->axis, axes[i]);
	if (ask->axis && !known) {
		dlb_fail(err, NULL, "no axis '%.40s' to split '%.100s' along", ask->axis, op);
		return dlb_hint(err, "output, input, batch, rows, head or vocabulary");
	}
	return 0;
}

static const char *nearest_op(const struct dlb_graph *g, const char *name)
{
	const char **names = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *names), *near;
	int n = 0;

	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_FORWARD)
			names[n++] = g->op[i].name;
	near = dlb_nearest(name, names, n);
	free(names);
	return near;
}

/* Is the request to split by samples? Every operator that computes samples independently can be. */
static bool by_batch(const struct dlb_split_request *ask)
{
	return ask->axis && !strcmp(ask->axis, "batch");
}

static int find_asked(struct splitting *s, int which)
{
	const struct dlb_split_request *ask = &s->ask[which];
	const struct dlb_graph *g = s->g;
	bool any = false;

	/* names before patterns, since names may contain brackets */
	for (int pass = 0; pass < 2 && !any; pass++)
		for (int i = 0; i < g->n_ops; i++) {
			if (pass ? !dlb_pattern_matches(ask->op, g->op[i].name) :
				   strcmp(ask->op, g->op[i].name) != 0)
				continue;
			const struct dlb_split_rule *r = dlb_split_rule_of(&g->op[i]);
			const bool alone = r && (r->alone || (by_batch(ask) && r->loops));
			if (!pass && !alone) {
				return dlb_vertex_fail(
					&g->op[i], s->err,
					r ? "it is split with the products before and after it" :
					    "products, convolutions and tables can",
					"%s cannot be split for itself", g->op[i].type);
			}
			if (!alone || s->asked[i] >= 0)
				continue;
			s->asked[i] = which;
			s->exact[i] = !pass;
			any = true;
		}
	if (any)
		return 0;
	const char *near = nearest_op(g, ask->op);
	dlb_fail(s->err, NULL, "no forward op '%.100s' that could be split", ask->op);
	return near ? dlb_hint(s->err, "did you mean '%s'?", near) :
		      dlb_hint(s->err, "dlb-view lists the ops");
}

/* -- carrying splits along tensors -- */

static bool has_weight(const struct dlb_graph *g, int op)
{
	for (int k = 0; k < g->op[op].n_in; k++)
		if (g->op[op].in[k] >= 0 && g->tensor[g->op[op].in[k]].kind == DLB_T_WEIGHT)
			return true;
	return false;
}

static bool is_head(const struct splitting *s, int region_op)
{
	return !strcmp(s->assigned[region_op].spread.axis, "head");
}

/* scores per label in a part of a loss; to replace fewer scores by three numbers is not worth an op */
enum { LEAST_SCORES = 8 };

/* Do types and layouts of the operands allow the split sp? An axis with several rows of units is cut by
 * Reshapes, which need a plain layout and room for one more dimension. Constants that follow the batch are
 * not cut. */
static bool layouts_allow(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_op_split *sp,
			  int64_t units)
{
	if (!units)
		return dlb_split_by_samples(g, o, sp);
	for (int i = 0; i < o->n_in + o->n_out; i++) {
		const struct dlb_split_axis *c = i < o->n_in ? &sp->in[i] : &sp->out[i - o->n_in];
		const int t = i < o->n_in ? o->in[i] : o->out[i - o->n_in];
		if (t < 0 || c->axis < 0)
			continue;
		const struct dlb_dim d = g->tensor[t].dim[c->axis];
		if (g->tensor[t].kind == DLB_T_CONSTANT && (d.mul || g->tensor[t].data_mul))
			return false;
		if (g->tensor[t].n_dims >= 3 && g->tensor[t].layout != DLB_PLAIN &&
		    (d.mul || d.add != units * c->unit))
			return false;
		if (g->tensor[t].n_dims == DLB_MAX_DIMS && (d.mul || d.add != units * c->unit))
			return false;
	}
	return true;
}

/* May `op`, reached from an op of region r, be split by sp? */
static bool may_follow(struct splitting *s, int op, const struct dlb_op_split *sp,
		       const struct dlb_split_region *r, bool grow)
{
	const struct dlb_graph *g = s->g;
	const struct dlb_op *o = &g->op[op];
	const struct dlb_split_rule *rule = dlb_split_rule_of(o);
	const struct dlb_split_request *ask = s->asked[op] >= 0 ? &s->ask[s->asked[op]] : NULL;

	if (!layouts_allow(g, o, sp, r->units))
		return false;
	if (ask)
		return ask->parts == r->parts && (by_batch(ask) ? !r->units :
			!ask->axis || !strcmp(ask->axis, sp->axis) || !strcmp(ask->axis, "head"));
	if (rule->part)
		return r->units * sp->in[0].unit >= LEAST_SCORES * r->parts;
	if (!rule->alone)
		return true;
	if (has_weight(g, op))
		return grow;
	return !sp->sum;
}

static void assign(struct splitting *s, int op, int region, const struct dlb_op_split *sp)
{
	s->assigned[op] = (struct dlb_assigned){ region, *sp };
	s->queue[s->n_queue++] = op;
}

static void try_carry(struct splitting *s, int op, int operand, struct dlb_split_axis cut, int region,
		      bool grow)
{
	const struct dlb_split_region *r = &s->region[region];
	struct dlb_op_split sp;

	if (op < 0 || s->assigned[op].region >= 0 || !dlb_split_rule_of(&s->g->op[op]) ||
	    !dlb_split_carry(s->g, &s->g->op[op], operand, cut, r->units, &sp) ||
	    !may_follow(s, op, &sp, r, grow))
		return;
	/* an axis of samples is called "rows" if its units are not samples */
	if (!r->units || !strcmp(sp.axis, "batch"))
		sp.axis = r->units ? "rows" : "batch";
	s->grown[op] = s->asked[op] < 0 && has_weight(s->g, op) && dlb_split_rule_of(&s->g->op[op])->alone;
	assign(s, op, region, &sp);
}

static int output_index(const struct dlb_op *o, int t)
{
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] == t)
			return k;
	return -1;
}

/* Carries the splits of queued ops to all their neighbours. */
static void carry_on(struct splitting *s, bool grow)
{
	const struct dlb_graph *g = s->g;

	for (int q = 0; q < s->n_queue; q++) {
		const int op = s->queue[q];
		const struct dlb_op *o = &g->op[op];
		const struct dlb_assigned *a = &s->assigned[op];
		for (int k = 0; k < o->n_in; k++) {
			const int t = o->in[k], p = t < 0 ? -1 : g->tensor[t].producer;
			if (p >= 0 && a->spread.in[k].axis >= 0)
				try_carry(s, p, g->op[p].n_in + output_index(&g->op[p], t), a->spread.in[k],
					  a->region, grow);
		}
		for (int k = 0; k < o->n_out; k++) {
			const int t = o->out[k];
			if (t < 0 || a->spread.out[k].axis < 0)
				continue;
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
				const struct dlb_op *reader = &g->op[g->reader[r]];
				for (int i = 0; i < reader->n_in && i < DLB_SPLIT_OPERANDS; i++)
					if (reader->in[i] == t)
						try_carry(s, g->reader[r], i, a->spread.out[k], a->region,
							  grow);
			}
		}
	}
	s->n_queue = 0;
}

/* -- seeds -- */

/* The number of units of loop l, from the first operand that has an axis of the loop; 0: the units are
 * samples; -1: there is nothing to divide. Sets *operand to that operand, inputs before outputs, and *cut to
 * its cut. */
static int64_t units_of(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_loop *l,
			bool samples, int *operand, struct dlb_split_axis *cut)
{
	for (int i = 0; i < o->n_in + o->n_out; i++) {
		const int t = i < o->n_in ? o->in[i] : o->out[i - o->n_in];
		const int axis = i < o->n_in ? l->in[i] : l->out[i - o->n_in];
		if (t < 0 || axis < 0)
			continue;
		const struct dlb_dim d = g->tensor[t].dim[axis];
		int64_t units = !d.mul ? d.add : d.add ? 0 : d.mul, unit = 1;
		if (dlb_split_groups(g, o) > 1 && strcmp(l->name, "batch") != 0) {
			unit = units / dlb_split_groups(g, o);
			units = dlb_split_groups(g, o);
		}
		*operand = i;
		*cut = (struct dlb_split_axis){ axis, samples ? d.mul : unit };
		return samples ? (d.mul && !d.add ? 0 : -1) : units ? units : -1;
	}
	return -1;
}

/* Tries to split a seed by one loop: 1 if done; 0 if the seed is to be split by samples and the loop does not
 * run over samples; -1 if not possible, with the reason in s->err (of the first loop that fails). */
static int seed_loop(struct splitting *s, int op, const struct dlb_loop *l, bool samples)
{
	const struct dlb_split_request *ask = &s->ask[s->asked[op]];
	const struct dlb_op *o = &s->g->op[op];
	struct dlb_split_axis cut = { -1, 0 };
	struct dlb_op_split sp;
	int operand = -1;
	const int64_t units = units_of(s->g, o, l, samples, &operand, &cut),
		      count = samples ? s->g->batch : units;

	if (samples && units)
		return 0;
	if (count < ask->parts) {
		if (!*s->err->what || s->no_axis)
			dlb_vertex_fail(o, s->err, "give fewer shards",
					"%d shards are too many: %s has %lld to share out along '%s'",
					ask->parts, o->type, (long long)(count > 0 ? count : 0),
					samples ? "batch" : l->name);
		s->no_axis = false;
		return -1;
	}
	if (!dlb_split_loop(s->g, o, l, operand, cut, units, &sp) || !layouts_allow(s->g, o, &sp, units)) {
		if (!*s->err->what || s->no_axis)
			dlb_vertex_fail(o, s->err, "give another axis",
					"%s cannot be split along '%s' as it stands", o->type,
					samples ? "batch" : l->name);
		s->no_axis = false;
		return -1;
	}
	DLB_GROW(s->region, s->n_regions, s->cap_regions);
	s->region[s->n_regions] = (struct dlb_split_region){ units, ask->parts };
	if (samples)
		sp.axis = "batch";
	assign(s, op, s->n_regions++, &sp);
	return 1;
}

static int seed(struct splitting *s, int op)
{
	const struct dlb_op *o = &s->g->op[op];
	const struct dlb_split_request *ask = &s->ask[s->asked[op]];
	const bool weights = has_weight(s->g, op);
	struct dlb_loop l[DLB_SPLIT_OPERANDS];
	const int n = dlb_split_rule_of(o)->loops(s->g, o, l);
	bool found = false;
	int rc = -1;

	if (s->assigned[op].region >= 0)
		return 0;
	if (by_batch(ask) && dlb_op_class_of(o->kind)->flags & DLB_OP_MIXES_BATCH && s->g->training) {
		if (!s->exact[op])
			return 0;
		return dlb_vertex_fail(o, s->err, "split what stands before and after it",
				       "%s takes statistics over the batch, and is not split by samples",
				       o->type);
	}
	if (by_batch(ask) && dlb_op_samples(s->g, op).parts) {
		if (!s->exact[op])
			return 0;
		return dlb_vertex_fail(o, s->err,
				       "split into more shards at once, from the graph that dlb-profile made",
				       "it has a share of the samples already");
	}
	for (int k = 0; k < n && by_batch(ask) && rc != 1; k++) {
		const int tried = seed_loop(s, op, &l[k], true);
		found |= tried != 0;
		rc = tried ? tried : rc;
	}
	/* ops without weights are split by heads if possible */
	for (int pass = 0; pass < 2 && rc != 1 && !by_batch(ask); pass++)
		for (int k = 0; k < n && rc != 1; k++) {
			const bool head = !strcmp(l[k].name, "head");
			if (ask->axis ? pass || strcmp(ask->axis, l[k].name) != 0 :
					(head && !weights) == (pass == 1))
				continue;
			found = true;
			rc = seed_loop(s, op, &l[k], false);
		}
	if (!found && ask->axis && !*s->err->what) {
		dlb_vertex_fail(o, s->err, "leave the axis out: the best is taken",
				"%s has no axis '%s' to be split along", o->type, ask->axis);
		s->no_axis = true;
	}
	if (rc == 1) {
		*s->err = (struct dlb_error){ .what = "" };
		carry_on(s, is_head(s, op) && ask->axis);
		return 0;
	}
	return s->exact[op] ? -1 : 0;
}

/* -- ops that only follow stay split if they join two split ops -- */

static bool same_cut(struct dlb_split_axis a, struct dlb_split_axis b)
{
	return a.axis == b.axis && a.unit == b.unit;
}

static bool joined_before(const struct splitting *s, int op)
{
	const struct dlb_graph *g = s->g;
	const struct dlb_assigned *a = &s->assigned[op];

	for (int k = 0; k < g->op[op].n_in; k++) {
		const int t = g->op[op].in[k], p = t < 0 ? -1 : g->tensor[t].producer;
		if (p >= 0 && a->spread.in[k].axis >= 0 && s->assigned[p].region == a->region &&
		    same_cut(s->assigned[p].spread.out[output_index(&g->op[p], t)], a->spread.in[k]))
			return true;
	}
	return false;
}

static bool joined_after(const struct splitting *s, int op)
{
	const struct dlb_graph *g = s->g;
	const struct dlb_assigned *a = &s->assigned[op];

	/* the op itself joins the results of its shards, which are small */
	if (dlb_split_rule_of(&g->op[op])->part)
		return true;
	for (int k = 0; k < g->op[op].n_out; k++) {
		const int t = g->op[op].out[k];
		if (t < 0 || a->spread.out[k].axis < 0)
			continue;
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
			const int reader = g->reader[r];
			if (s->assigned[reader].region != a->region)
				continue;
			for (int i = 0; i < g->op[reader].n_in; i++)
				if (g->op[reader].in[i] == t &&
				    same_cut(s->assigned[reader].spread.in[i], a->spread.out[k]))
					return true;
		}
	}
	return false;
}

static void leave_loose_ends(struct splitting *s)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (int i = 0; i < s->g->n_ops; i++)
			if (s->assigned[i].region >= 0 && s->asked[i] < 0 && !s->grown[i] &&
			    !(joined_before(s, i) && joined_after(s, i))) {
				s->assigned[i].region = -1;
				changed = true;
			}
	}
}

/* -- the whole pass -- */

void dlb_graph_undifferentiate(struct dlb_graph *g)
{
	bool *read = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *read);
	int *order = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *order), n = 0;

	for (int i = 0; i < g->n_ops; i++) {
		if (g->op[i].phase != DLB_FORWARD)
			continue;
		order[n++] = i;
		for (int k = 0; k < g->op[i].n_in; k++)
			if (g->op[i].in[k] >= 0)
				read[g->op[i].in[k]] = true;
	}
	for (int i = 0; i < n; i++) {		/* drops outputs that were saved for the backward pass */
		struct dlb_op *o = &g->op[order[i]];
		for (int k = 1; k < o->n_out; k++) {
			const int t = o->out[k];
			if (t >= 0 && !read[t] && g->tensor[t].kind != DLB_T_BUFFER &&
			    !dlb_graph_is_output(g, t) && t != g->loss)
				o->out[k] = -1;
		}
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		/* outputs of Split must stay */
		while (o->n_out > 1 && o->out[o->n_out - 1] < 0 && cls && cls->n_out[1] >= 0)
			o->n_out--;
	}
	for (int t = 0; t < g->n_tensors; t++)
		g->tensor[t].home = -1;
	dlb_graph_reorder(g, order, n);
	free(order);
	free(read);
}

/* Records the ids of ops that draw random numbers, since the numbers depend on the id and the ids change. */
static void keep_vertices(struct dlb_graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_op *o = &g->op[i];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		if (!cls || !(cls->flags & DLB_OP_RANDOM) ||
		    dlb_attr_find(o->attr, o->n_attr, DLB_ATTR_VERTEX))
			continue;
		struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *attr);
		if (o->n_attr)
			memcpy(attr, o->attr, (size_t)o->n_attr * sizeof *attr);
		attr[o->n_attr++] = (struct dlb_attr){ .name = DLB_ATTR_VERTEX,
						       .type = DLB_ATTR_INT,
						       .i = i };
		o->attr = attr;
	}
}

int dlb_split_start(struct dlb_graph *g, const char *what, struct dlb_error *err)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].kind < 0)
			return dlb_vertex_fail(&g->op[i], err, "take the operator out of the model",
					       "a graph with operators that are not known (%s) cannot be %s",
					       g->op[i].type, what);
	dlb_graph_undifferentiate(g);
	keep_vertices(g);
	return 0;
}

static void record(struct splitting *s)
{
	struct dlb_graph *g = s->g;

	struct dlb_was_split *all = dlb_arena_array(&g->arena, (size_t)g->n_was_split + (size_t)g->n_ops + 1,
						    sizeof *all);
	if (g->n_was_split)			/* keeps the record of earlier splits */
		memcpy(all, g->was_split, (size_t)g->n_was_split * sizeof *all);
	g->was_split = all;
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_assigned *a = &s->assigned[i];
		if (a->region < 0 || (s->asked[i] < 0 && !dlb_split_rule_of(&g->op[i])->alone))
			continue;
		const char *why = s->asked[i] >= 0 ? s->ask[s->asked[i]].why : "joins others that are split";
		g->was_split[g->n_was_split++] = (struct dlb_was_split){
			dlb_arena_strdup(&g->arena, g->op[i].name), a->spread.axis,
			dlb_arena_strdup(&g->arena, why), s->region[a->region].parts, false
		};
	}
}

static int choose(struct splitting *s)
{
	const struct dlb_graph *g = s->g;

	for (int i = 0; i < s->n_ask; i++)
		if (find_asked(s, i))
			return -1;
	/* ops without weights first, such as attention: the projections around them follow their split */
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < g->n_ops; i++)
			if (s->asked[i] >= 0 && !has_weight(g, i) == !pass && seed(s, i))
				return -1;
	for (int a = 0; a < s->n_ask; a++) {
		bool any = false;
		for (int i = 0; i < g->n_ops; i++)
			any |= s->asked[i] == a && s->assigned[i].region >= 0;
		if (!any)
			return *s->err->what ? -1 : dlb_refuse(s->err, NULL,
					"dlb-costmodel(1) says what can be split",
					"nothing of '%.100s' can be split", s->ask[a].op);
	}
	leave_loose_ends(s);
	return 0;
}

/* Makes the batches at which shapes are inferred divisible by the shares. */
static int share_batch(struct splitting *s)
{
	for (int i = 0; i < s->g->n_ops; i++) {
		const int r = s->assigned[i].region;
		if (r >= 0 && !s->region[r].units && dlb_graph_share_samples(s->g, s->region[r].parts))
			return dlb_vertex_fail(&s->g->op[i], s->err, "split all of them into as many",
					       "too many different numbers of shards by batch");
	}
	return 0;
}

int dlb_split_finish(struct dlb_graph *g, bool trains, struct dlb_error *err)
{
	if (trains)
		return dlb_graph_differentiate(g, err);
	dlb_graph_drop_dead(g, NULL, 0);
	dlb_graph_fill_work(g, 0);
	dlb_graph_set_homes(g);
	return 0;
}

int dlb_graph_split(struct dlb_graph *g, const struct dlb_split_request *ask, int n, struct dlb_error *err)
{
	const bool trains = g->training && g->loss >= 0;
	struct dlb_error scratch = { .what = "" };
	int rc = -1;

	if (dlb_split_start(g, "split", err))
		return -1;
	struct splitting s = { .g = g, .ask = ask, .n_ask = n, .err = &scratch };
	s.asked = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *s.asked);
	s.exact = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *s.exact);
	s.grown = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *s.grown);
	s.queue = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *s.queue);
	s.assigned = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *s.assigned);
	for (int i = 0; i < g->n_ops; i++)
		s.asked[i] = s.assigned[i].region = -1;
	if (choose(&s) || share_batch(&s)) {
		if (err)
			*err = scratch;
	} else {
		record(&s);
		rc = dlb_split_make(g, s.assigned, s.region, err);
	}
	free(s.asked);
	free(s.exact);
	free(s.grown);
	free(s.queue);
	free(s.assigned);
	free(s.region);
	return rc ? -1 : dlb_split_finish(g, trains, err);
}
