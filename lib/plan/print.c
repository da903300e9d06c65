/* Prints a program as text, one line per instruction (dlb-run --print-program). */
#include "comm/allreduce.h"
#include "plan/again.h"
#include "plan/print.h"
#include "plan/program.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/offload.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/tensors.h"
#include "util/escape.h"

/* Prints "WHAT ID 'NAME'". */
static void named(FILE *f, const char *what, int id, const char *name)
{
	fprintf(f, " %s %d '", what, id);
	dlb_put_escaped(f, name);
	fputc('\'', f);
}

static void print_statistics(const struct dlb_node_program *np, const struct dlb_instr *in, const char *op,
			     FILE *f)
{
	fprintf(f, " bucket %d: %lld sums of", in->tag, (long long)np->bucket[in->tag].n);
	named(f, "op", in->op, op);
	fprintf(f, " m=%d", in->micro_batch);
}

/* Prints a weight that is gathered ahead of use, and its place. */
static void print_gather(const struct dlb_program *g, const struct dlb_node_program *np, int bucket, FILE *f)
{
	const struct dlb_bucket *b = &np->bucket[bucket];
	const struct dlb_place *x = &np->place[dlb_program_find_place(np, b->weight, b->life)];
	fprintf(f, " bucket %d:", bucket);
	named(f, "weight", b->weight, g->graph->tensor[b->weight].name);
	fprintf(f, ", %lld elements, at %zu, %zu bytes", (long long)b->n, x->offset, x->bytes);
}

const char *const dlb_verb_names[DLB_N_VERBS] = { "POST", "WAIT",  "SEND",  "COMPUTE", "COLLECTIVE", "COPY",
						  "FREE", "FETCH", "STORE", "FETCHED", "STORED" };

static void print_compute(const struct dlb_graph *g, const struct dlb_instr *in, FILE *f)
{
	if (in->what == DLB_RUN_ACCUMULATE) {
		named(f, "accumulate tensor", in->tensor, g->tensor[in->tensor].name);
		fprintf(f, " for op %d", in->op);
		return;
	}
	named(f,
	      in->again                        ? "run again op" :
	      in->what == DLB_RUN_UPDATE       ? "update op" :
	      in->what == DLB_RUN_SUMS         ? "sums op" :
	      in->what == DLB_RUN_PRECONDITION ? "precondition op" :
						 "run op",
	      in->op, g->op[in->op].name);
	fputs(" (", f);
	dlb_put_escaped(f, g->op[in->op].type);
	fputc(')', f);
}

static void print_instr(const struct dlb_program *g, const struct dlb_node_program *np,
			const struct dlb_instr *in, FILE *f)
{
	const struct dlb_graph *gr = g->graph;
	fprintf(f, "%-10s", dlb_verb_names[in->verb]);
	static const char *const collectives[] = {
		[DLB_RUN_STEP_END] = "step-end", [DLB_RUN_COMPUTED] = "computed", [DLB_RUN_REDUCE] = "reduce",
		[DLB_RUN_REDUCED] = "reduced",   [DLB_RUN_SQUARES] = "squares",   [DLB_RUN_NORM] = "norm",
		[DLB_RUN_TRUST] = "trust"
	};
	if (in->verb == DLB_COLLECTIVE) {
		const bool weights = in->tag >= 0 && np->bucket[in->tag].cls == DLB_SUM_WEIGHTS;
		fprintf(f, " %s",
			!weights                   ? collectives[in->what] :
			in->what == DLB_RUN_REDUCE ? "gather" :
						     "gathered");
		if (in->tag >= 0 && np->bucket[in->tag].cls == DLB_SUM_STATISTICS)
			print_statistics(np, in, gr->op[in->op].name, f);
		else if (in->tag >= 0 && np->bucket[in->tag].ahead)
			print_gather(g, np, in->tag, f);
		else if (in->tag >= 0)
			fprintf(f, " bucket %d: %d %s, %lld elements", in->tag, np->bucket[in->tag].n_ops,
				weights || dlb_sharing_averages(&g->whole->sharing) ? "weights" :
				np->bucket[in->tag].cls == DLB_SUM_FACTOR ? "layers' factors" :
									    "gradients",
				(long long)np->bucket[in->tag].n);
		if (in->tag >= 0 && in->what == DLB_RUN_REDUCE && g->whole->sharing.param_server < 0)
			fprintf(f, " by %s", np->bucket[in->tag].how->name);
		fprintf(f, "\n");
		return;
	}
	if (in->verb == DLB_COMPUTE)
		print_compute(gr, in, f);
	else
		named(f, "tensor", in->tensor, gr->tensor[in->tensor].name);
	const bool whole = in->verb != DLB_COMPUTE && !in->again && dlb_program_gathers(g, in->tensor);
	if (whole)
		fputs(", whole", f);
	if (in->micro_batch >= 0 && !whole)
		fprintf(f,
			in->verb == DLB_COMPUTE || !in->again        ? " m=%d" :
			dlb_program_is_offloaded(g, in->tensor)      ? ", its states" :
			dlb_program_share_reader(g, in->tensor) >= 0 ? " m=%d, its share" :
								       " m=%d again",
			in->micro_batch);
	if (in->peer >= 0)
		fprintf(f, in->verb == DLB_SEND || in->sent ? " to %d tag %d" : " from %d tag %d", in->peer,
			in->tag);
	if (in->verb == DLB_WAIT && in->sent)
		fprintf(f, " sent");
	if (in->zero_copy)
		fprintf(f, " zero-copy");
	int k = in->verb == DLB_POST || in->verb == DLB_COPY ?
			dlb_program_find_place(np, in->tensor, in->micro_batch) :
		in->verb == DLB_FETCH ?
			dlb_program_find_place(np, in->tensor,
					       in->again ? dlb_second_life(g, in->micro_batch) :
							   in->micro_batch) :
			-1;
	if (in->verb == DLB_COMPUTE && in->what == DLB_RUN_OP && gr->op[in->op].n_out > 0)
		k = dlb_program_find_place(np, gr->op[in->op].out[0],
					   dlb_instr_life(g, in, gr->op[in->op].out[0], true));
	if (k >= 0)
		fprintf(f, " at %zu, %zu bytes", np->place[k].offset, np->place[k].bytes);
	if (k >= 0 && np->place[k].of >= 0)
		fprintf(f,
			dlb_graph_view_of(gr, np->place[k].tensor) == np->place[k].of ? " view of tensor %d" :
											" over tensor %d",
			np->place[k].of);
	fprintf(f, "\n");
}

void dlb_program_print(const struct dlb_program *g, FILE *f)
{
	for (int n = 0; n < g->n_nodes; n++) {
		const struct dlb_program *own = dlb_program_of(g, n);
		const struct dlb_node_program *np = &own->node[n];
		if (g->n_replicas > 1)
			fprintf(f, "replica %d, %lld of %lld samples, ", own->replica, (long long)own->batch,
				(long long)own->step_batch);
		fprintf(f,
			"node %d: %d instructions, arena %zu bytes (least possible %zu), scratch %zu, state "
			"%zu\n",
			n, np->n_instr, np->arena_bytes, np->bound_bytes, np->scratch_bytes, np->state_bytes);
		for (int i = 0; i < np->n_instr; i++) {
			fprintf(f, "%6d  ", i);
			print_instr(own, np, &np->instr[i], f);
		}
	}
}
