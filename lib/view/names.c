/* Replaces the names of the document by their escaped form for display (util/escape.h). This is done once,
 * after reading and checking, so all formats show the same names. Names that need no escape are not
 * copied. */
#include <string.h>
#include "util/escape.h"
#include "view/view.h"

static void show(struct dlb_arena *a, const char **name)
{
	size_t bytes;
	char *shown;

	if (!*name || !dlb_needs_escape(*name))
		return;
	bytes = strlen(*name) * DLB_SHOWN_BYTES + 1;
	shown = dlb_arena_alloc(a, bytes);
	*name = dlb_escape(*name, shown, bytes);
}

static void show_graph(struct dlb_graph *g)
{
	for (int i = 0; i < g->n_ops; i++) {
		show(&g->arena, &g->op[i].name);
		show(&g->arena, &g->op[i].type);
	}
	for (int i = 0; i < g->n_tensors; i++)
		show(&g->arena, &g->tensor[i].name);
	for (int i = 0; i < g->n_was_split; i++) {
		show(&g->arena, &g->was_split[i].op);
		show(&g->arena, &g->was_split[i].axis);
		show(&g->arena, &g->was_split[i].why);
	}
	show(&g->arena, &g->model_path);
}

static void show_cluster(struct dlb_cluster *c)
{
	for (int i = 0; i < c->n_kinds; i++) {
		show(&c->arena, &c->kind[i].name);
		for (int k = 0; k < c->kind[i].n_without; k++)
			show(&c->arena, &c->kind[i].without[k]);
	}
	for (int i = 0; i < c->n_nodes; i++)
		show(&c->arena, &c->node[i].host);
	for (int i = 0; i < c->n_groups; i++) {
		show(&c->arena, &c->group[i].name);
		show(&c->arena, &c->group[i].cls);
	}
	for (int i = 0; i < c->n_links; i++) {
		show(&c->arena, &c->link[i].name);
		show(&c->arena, &c->link[i].cls);
	}
	for (int i = 0; i < c->n_memories; i++) {
		show(&c->arena, &c->memory[i].name);
		show(&c->arena, &c->memory[i].cls);
		show(&c->arena, &c->memory[i].folder);
	}
}

static void show_plan(struct dlb_plan *p)
{
	show(&p->arena, &p->algorithm);
	show(&p->arena, &p->winner);
	show(&p->arena, &p->affinity);
	for (int i = 0; i < p->n_nodes; i++)
		for (int k = 0; k < p->node[i].n_memories; k++)
			show(&p->arena, &p->node[i].memory[k].name);
}

static void show_report(struct dlb_report *r)
{
	show(&r->arena, &r->optimizer);
	show(&r->arena, &r->stopped);
	show(&r->arena, &r->saved);
	show(&r->arena, &r->checkpoint);
	show(&r->arena, &r->best.saved);
	show(&r->arena, &r->batch_statistics);
	show(&r->arena, &r->allreduce.algorithm);
	show(&r->arena, &r->kfac.others);
	for (int i = 0; i < r->n_nodes; i++)
		show(&r->arena, &r->node[i].host);
	for (int i = 0; i < r->n_delays; i++)
		show(&r->arena, &r->delay[i].weight);
	for (int i = 0; i < r->allreduce.n_buckets; i++)
		show(&r->arena, &r->allreduce.bucket[i].algorithm);
	for (int i = 0; i < r->kfac.n_weights; i++)
		show(&r->arena, &r->kfac.weight[i]);
	for (int i = 0; i < r->kfac.n_left; i++) {
		show(&r->arena, &r->kfac.left[i].weight);
		show(&r->arena, &r->kfac.left[i].why);
	}
}

void dlb_view_show_names(struct dlb_view *v)
{
	show_graph(&v->graph);
	show_cluster(&v->cluster);
	show_plan(&v->plan);
	show_report(&v->report);
	show(&v->balance.arena, &v->balance.rule);
	show(&v->balance.arena, &v->balance.reason);
}
