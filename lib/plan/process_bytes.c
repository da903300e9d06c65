/* The memory of a process, part by part: see process_bytes.h.
 *
 * The parts that grow with the model are computed from the program: the arena, state and scratch, each
 * allocation with its rounding; samples read ahead; the records of measured times; and the memory of nodes on
 * the same host that this one reads and writes, since the system counts a shared page in every process that
 * touched it. The rest is a few MB of heap, whose constants were measured with mallinfo2 and /proc/self/smaps
 * on x86-64 (glibc 2.36, oneDNN 2.6.3, Open MPI 4.1.4) for models of 20 to 600 ops. */
#include "plan/process_bytes.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/allreduce.h"
#include "plan/bucket_tensors.h"
#include "plan/buckets.h"
#include "plan/by_class.h"
#include "plan/feed_load.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/report.h"
#include "plan/shares.h"
#include "plan/small_states.h"
#include "plan/tensors.h"
#include "util/mem.h"

enum { PAGE = 4096, MAPPED = 128 * 1024 }; /* malloc maps larger blocks one by one */
/* Heap of the process: libraries, stacks and back end; with MPI; for each op of the graph, its names in
 * the model and the graph; for each kernel; for each convolution, its code; for each instruction, with its
 * step op and report; for each sum of replicas; for each weight gathered ahead of use, all by one
 * collective; LAPACK's buffers, which K-FAC uses. */
enum {
	BASE = 3300000,
	MPI_BASE = 3300000,
	PER_OP = 3600,
	PER_KERNEL = 3600,
	PER_CONV = 24000,
	PER_INSTR = 800,
	PER_BUCKET = 65536,
	PER_GATHER = 1024,
	LAPACK_BASE = 1750000,
	/* limit of the bytes of a collective's send buffers if numbers are converted (comm/collective.c,
	 * share_slots) */
	CONVERTED = 512 * 1024
};

/* Bytes that an allocation takes in addition to those requested: the rest of its last page and malloc's
 * header. */
static double rounding(double bytes)
{
	const double pages = (double)(((size_t)bytes + PAGE - 1) / PAGE) * PAGE;

	return bytes < MAPPED ? 96 : pages - bytes + PAGE;
}

static double allocated(double bytes) { return bytes + rounding(bytes); }

/* Rounding of the allocations of one tensor on this node, as dlb_state_init and dlb_state_constant make
 * them. */
static double tensor_rounding(const struct dlb_process *s, const struct dlb_program *p, int t)
{
	const struct dlb_graph *g = s->cost->graph;
	const struct dlb_tensor *x = &g->tensor[t];
	const double bytes = dlb_tensor_bytes(x, p->size[0]);
	double sum = rounding(x->kind == DLB_T_WEIGHT ? (double)dlb_program_weight_bytes(p, t) : bytes);

	if (x->kind != DLB_T_WEIGHT || x->home < 0 || g->op[x->home].phase != DLB_UPDATE)
		return sum;
	sum += dlb_program_sums(p, x->home) ? rounding(bytes) : 0;
	sum += dlb_program_is_offloaded(p, t) ? 0 :
						s->n_state * rounding((double)dlb_program_state_bytes(p, t));
	return sum;
}

/* Number of different sizes of micro-batches. Each op has a kernel for each size. */
static int n_sizes(const struct dlb_program *p) { return 1 + (p->size[p->micro_batches - 1] != p->size[0]); }

static double state_rounding(const struct dlb_process *s, const struct dlb_program *p, int node)
{
	const struct dlb_graph *g = s->cost->graph;
	double sum = 0;

	for (int t = 0; t < g->n_tensors; t++) {
		const int home = dlb_graph_home(g, t);

		if (dlb_tensor_is_state(&g->tensor[t]) && home >= 0)
			sum += p->plan->placement[home] == node || g->tensor[t].kind == DLB_T_CONSTANT ?
				       tensor_rounding(s, p, t) :
				       0;
	}
	for (int i = 0; i < g->n_ops; i++) {
		const double packed = dlb_cost_packed_bytes(s->cost, i, s->cost->cluster->node[node].kind,
							    (double)p->size[0]);

		if (p->plan->placement[i] == node && packed > 0 && !dlb_program_packs_once(p, i))
			sum += n_sizes(p) * rounding(packed);
	}
	return sum;
}

/* ---- kernels that were not measured ---- */

/* Least number of rows of a product whose kernel packs the weight (tensor/cpu/gemm.c). */
enum { PACK_ROWS = 512 };

/* Bytes of the weight that op's kernel packs, guessed from its shape: the weight of a convolution, or of a
 * product of many rows. */
static double packed_guess(const struct dlb_graph *g, int op, double n)
{
	const struct dlb_op *o = &g->op[op];
	const bool conv = !strcmp(dlb_op_work(o->type), "conv");
	double most = 0;

	if (o->phase == DLB_UPDATE || (!conv && strcmp(dlb_op_work(o->type), "dense")))
		return 0;
	for (int i = 0; i < o->n_in; i++) {
		const struct dlb_tensor *x = o->in[i] < 0 ? NULL : &g->tensor[o->in[i]];

		if (!x || x->kind != DLB_T_WEIGHT || x->n_dims < 2)
			continue;
		const double bytes = dlb_tensor_bytes(x, 1), rows = dlb_op_flop_at(g, op, (int64_t)n) *
								    (double)dlb_dtype_bytes(x->dtype) /
								    bytes / 2;

		most = (conv || rows >= PACK_ROWS) && bytes > most ? bytes : most;
	}
	return most;
}

/* Bytes of scratch memory and packed weights of the ops for which the cost model has no sizes (dlb-profile
 * --analytic). */
static double unmeasured_bytes(const struct dlb_process *s, const struct dlb_program *p, int node)
{
	const struct dlb_graph *g = s->cost->graph;
	const int kind = s->cost->cluster->node[node].kind;
	double once = 0, kept = 0;

	for (int i = 0; i < g->n_ops; i++) {
		if (p->plan->placement[i] != node ||
		    s->cost->measured[(size_t)kind * (size_t)g->n_ops + (size_t)i])
			continue;
		const bool known = s->kernel && s->kernel[i].known;
		const double packed = known ? s->kernel[i].packed : packed_guess(g, i, (double)p->size[0]);

		if (known)
			once = fmax(once, s->kernel[i].scratch);
		else if (dlb_program_packs_once(p, i))
			once = fmax(once, packed);
		if (packed > 0 && (known || !dlb_program_packs_once(p, i)))
			kept += n_sizes(p) * allocated(packed);
	}
	once -= (double)p->node[node].scratch_bytes;
	return kept + (once > 0 ? allocated(once) : 0);
}

/* Bytes that libraries keep for the products of this node (dlb_kernel_bytes.library), and the code that they
 * generate for each product and each size of its micro-batches. */
static double library_bytes(const struct dlb_process *s, const struct dlb_program *p, int node)
{
	double sum = 0;

	for (int l = 0; l < DLB_N_LIBRARIES && s->kernel; l++) {
		double most = 0;

		for (int i = 0; i < s->cost->graph->n_ops; i++)
			if (p->plan->placement[i] == node)
				most = fmax(most, s->kernel[i].library[l]);
		sum += most;
	}
	for (int i = 0; i < s->cost->graph->n_ops && s->kernel; i++)
		if (p->plan->placement[i] == node)
			sum += n_sizes(p) * s->kernel[i].code;
	return sum;
}

/* ---- shared memory ---- */

static bool near(const struct dlb_cluster *c, int a, int b)
{
	const char *x = c->node[a].host, *y = c->node[b].host;

	return a != b && (x == y || (x && y && !strcmp(x, y)));
}

struct page_range {
	size_t begin, end;
};

static struct page_range pages_of(size_t offset, size_t bytes)
{
	return (struct page_range){ offset / PAGE * PAGE, (offset + bytes + PAGE - 1) / PAGE * PAGE };
}

static int by_begin(const void *a, const void *b)
{
	const struct page_range *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Bytes of the pages in n ranges, which may overlap. */
static double union_bytes(struct page_range *r, int n)
{
	size_t at = 0, sum = 0;

	qsort(r, (size_t)n, sizeof *r, by_begin);
	for (int i = 0; i < n; i++) {
		const size_t begin = r[i].begin > at ? r[i].begin : at;

		sum += r[i].end > begin ? r[i].end - begin : 0;
		at = r[i].end > at ? r[i].end : at;
	}
	return (double)sum;
}

/* Whether the instruction has no step op of its own in the executor (exec/prepare.c). */
static bool is_nothing(const struct dlb_graph *g, const struct dlb_instr *in)
{
	if (in->verb == DLB_FREE)
		return !in->zero_copy;
	return in->verb == DLB_COMPUTE &&
	       (in->what == DLB_RUN_STEP_END || (in->what == DLB_RUN_OP && dlb_graph_is_view(g, in->op)));
}

/* Whether the sender may copy the message of SEND i: always, unless it is zero-copy. A zero-copy message may
 * be copied if SEND directly follows the kernel that computes the tensor: there the executor uses the faster
 * way (exec/prepare_message.c). */
static bool is_copied(const struct dlb_graph *g, const struct dlb_node_program *np, int i)
{
	const struct dlb_instr *send = &np->instr[i], *made = send;

	if (!send->zero_copy)
		return true;
	while (made > np->instr && (made->verb == DLB_SEND || is_nothing(g, made)))
		made--;
	return made->verb == DLB_COMPUTE && made->op == g->tensor[send->tensor].producer &&
	       made->micro_batch == send->micro_batch;
}

static struct page_range place_pages(const struct dlb_node_program *of, const struct dlb_instr *in)
{
	const struct dlb_place *x = &of->place[dlb_program_find_place(of, in->tensor, in->micro_batch)];

	return pages_of(x->offset, (size_t)x->copies * dlb_place_bytes(x->bytes));
}

/* Bytes of the places in node b's arena that node a touches for messages: a writes to the places of messages
 * that it copies, and reads the places of messages that b sends without a copy. */
static double message_bytes(const struct dlb_program *p, int a, int b)
{
	const struct dlb_node_program *here = &p->node[a], *there = &p->node[b];
	struct page_range *r = dlb_xcalloc((size_t)(here->n_instr + there->n_instr) + 1, sizeof *r);
	double sum;
	int n = 0;

	for (int i = 0; i < here->n_instr; i++)
		if (here->instr[i].verb == DLB_SEND && here->instr[i].peer == b && is_copied(p->graph, here, i))
			r[n++] = place_pages(there, &here->instr[i]);
	for (int i = 0; i < there->n_instr; i++)
		if (there->instr[i].verb == DLB_SEND && there->instr[i].peer == a && there->instr[i].zero_copy)
			r[n++] = place_pages(there, &there->instr[i]);
	sum = union_bytes(r, n);
	free(r);
	return sum;
}

/* The pages of the other node's gradient that bucket b sums in place in the arena; empty: it is summed
 * elsewhere. */
static struct page_range arena_pages(const struct dlb_program *of, const struct dlb_node_program *other,
				     const struct dlb_bucket *b)
{
	const int update = b->n_ops == 1 ? b->op[0] : -1;
	const bool elsewhere = update < 0 || (b->cls != DLB_SUM_GRADIENT && b->cls != DLB_SUM_SMALL) ||
			       dlb_program_sums(of, update);
	const int t = elsewhere ? -1 : dlb_update_gradient(of->graph, update),
		  k = t < 0 ? -1 : dlb_program_place_of(other, of->graph, t, 0);

	return k < 0 ? (struct page_range){ 0, 0 } :
		       pages_of(other->place[k].offset, dlb_place_bytes(other->place[k].bytes));
}

/* Bytes at one end of a ring of segments for an array of so many bytes (comm/collective.c,
 * choose_segments). */
static double ring_bytes(double bytes)
{
	const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	const double ring = cache > 0 ? 0.75 * (double)cache : 0.75 * (1 << 20);

	return PAGE + (4 * bytes < ring ? 4 * bytes : ring);
}

static bool is_half(const struct dlb_allreduce *how)
{
	return how == &dlb_ring_scatter || how == &dlb_ring_gather;
}

/* Number of links of a ring of replicas between nodes a and b of one part: one to the next replica, one from
 * the previous replica. */
static int ring_ends(const struct dlb_plan *p, int a, int b)
{
	const int R = p->n_replicas, x = dlb_plan_replica_of(p, a), y = dlb_plan_replica_of(p, b);

	return (y == (x + 1) % R) + (x == (y + 1) % R);
}

/* Bytes touched by the compressed sums of bucket x with one other replica; 0: they are not compressed. They
 * go through rings of segments, even if dense sums are made in place. ends: as for sum_bytes. */
static double compressed_bytes(const struct dlb_program *of, const struct dlb_bucket *x, int ends)
{
	const int rings = x->how == &dlb_allreduce_ring ? ends : 2;
	const struct dlb_compress_choice choice = dlb_program_compress(of, (int)x->cls);
	struct dlb_compress_array array[DLB_COMPRESS_ARRAYS];
	double sum = 0;
	struct dlb_arena arena = { 0 };
	int n;

	if (choice.how == DLB_COMPRESS_NONE || !dlb_sum_is_compressed(x->cls))
		return 0;
	const struct dlb_sum_tensor *a = dlb_bucket_tensors(of->graph, x, &arena, &n);

	dlb_compress_arrays(&choice, of->whole->n_replicas, a, n, array);
	for (int i = 0; i < DLB_COMPRESS_ARRAYS; i++)
		if (array[i].bytes > 0)
			sum += PER_BUCKET + rings * ring_bytes(array[i].bytes) +
			       (array[i].converted ? fmin(array[i].bytes, CONVERTED) * rings / 2 : 0);
	dlb_arena_release(&arena);
	return sum;
}

/* Bytes that the sums with the same part of another replica touch: its gradients if they are summed in place,
 * else a ring of segments on this node and one on the other. The halves of a ring have them only between
 * neighbours (ends: their links). Gradients in the arena may share places one after the other, so their pages
 * count once. */
static double sum_bytes(const struct dlb_program *of, const struct dlb_node_program *other, int ends)
{
	struct page_range *r = dlb_xcalloc((size_t)other->n_buckets + 1, sizeof *r);
	double sum = 0, gathered = 0;
	int n = 0;

	for (int b = 0; b < other->n_buckets; b++) {
		const struct dlb_bucket *x = &other->bucket[b];
		const double bytes = (double)x->n * x->element_bytes;

		if (x->ahead) {
			sum += PER_GATHER;
			gathered = fmax(gathered, bytes);
			continue;
		}
		const double compressed = compressed_bytes(of, x, ends);

		if (compressed > 0) {
			sum += compressed;
			continue;
		}
		sum += PER_BUCKET;
		if (!x->how->in_place) {
			sum += (is_half(x->how) ? ends : 2) * ring_bytes(bytes);
			continue;
		}
		r[n] = arena_pages(of, other, x);
		if (r[n].end > 0)
			n++;
		else
			sum += PAGE + bytes;
	}
	sum += union_bytes(r, n) + (gathered > 0 ? PER_BUCKET + ends * ring_bytes(gathered) : 0);
	free(r);
	return sum;
}

static double shared_bytes(const struct dlb_process *s, const struct dlb_program *p, int node)
{
	const struct dlb_plan *whole = s->program->whole;
	double sum = 0;

	for (int i = 0; i < whole->n_nodes; i++) {
		const struct dlb_program *of = dlb_program_of(p, i);

		if (!near(s->cost->cluster, i, node))
			continue;
		if (of == dlb_program_of(p, node))
			sum += message_bytes(of, node, i);
		else if (dlb_plan_part_of(whole, i) == dlb_plan_part_of(whole, node))
			sum += sum_bytes(of, &of->node[i], ring_ends(whole, node, i));
	}
	return sum;
}

/* ---- samples, times, heap ---- */

/* Bytes of the shares of samples that are prepared ahead: this node's share, and on rank 0 the shares that it
 * sends. */
static double feed_bytes(const struct dlb_process *s, const struct dlb_program *p, int node)
{
	const struct dlb_plan *whole = s->program->whole;
	const bool sends = whole->n_replicas > 1 && whole->sharing.feed_host && node == 0;
	const int slots = p->depth + 2;
	double sum = 0;

	for (int i = 0; i < whole->n_nodes; i++)
		if (i == node || sends)
			sum += allocated((double)dlb_feed_bytes(p, i));
	return slots * sum;
}

double dlb_process_least_bytes(int n_nodes) { return BASE + (n_nodes > 1 ? MPI_BASE : 0); }

static double heap_bytes(const struct dlb_process *s, const struct dlb_program *p, int node)
{
	const struct dlb_node_program *np = &p->node[node];
	double computes = 0, kernels = 0, convs = 0;

	for (int i = 0; i < np->n_instr; i++) {
		const struct dlb_instr *in = &np->instr[i];
		const bool prepares = in->verb == DLB_COMPUTE && !in->again;	/* an op has one kernel */

		computes += in->verb == DLB_COMPUTE;
		kernels += prepares;
		convs += prepares && !strcmp(dlb_op_work(s->cost->graph->op[in->op].type), "conv");
	}
	return dlb_process_least_bytes(s->program->whole->n_nodes) + s->document_bytes +
	       (s->program->whole->inverse_every > 0 ? LAPACK_BASE : 0) +
	       (double)PER_OP * s->cost->graph->n_ops +
	       (PER_KERNEL * kernels + PER_CONV * convs) * n_sizes(p) / p->micro_batches +
	       (double)PER_INSTR * np->n_instr + 2 * sizeof(double) * DLB_RECORD_SLOTS * computes;
}

double dlb_process_bytes(const struct dlb_process *s, int node)
{
	const struct dlb_program *p = dlb_program_of(s->program, node);
	const struct dlb_node_program *np = &p->node[node];

	return allocated((double)np->arena_bytes) + allocated((double)np->scratch_bytes) +
	       (double)np->state_bytes + state_rounding(s, p, node) + unmeasured_bytes(s, p, node) +
	       library_bytes(s, p, node) + shared_bytes(s, s->program, node) +
	       feed_bytes(s, s->program, node) + s->data_bytes + heap_bytes(s, p, node);
}

/* ---- the available memory ---- */

struct dlb_memory_need dlb_memory_need_of(const struct dlb_process *s, int node)
{
	const double bytes = dlb_process_bytes(s, node);

	return (struct dlb_memory_need){ bytes, bytes - shared_bytes(s, s->program, node) };
}

void dlb_memory_room_of(const struct dlb_cluster *c, struct dlb_memory_room *room)
{
	for (int i = 0; i < c->n_nodes; i++) {
		const char *backend = c->kind[c->node[i].kind].backend;

		room[i] = (struct dlb_memory_room){ strcmp(backend, "cpu") ? -1 : i, 0, INFINITY };
		for (int k = i - 1; k >= 0; k--)
			if (room[i].host >= 0 && room[k].host >= 0 && near(c, k, i))
				room[i].host = room[k].host;
	}
	for (int i = 0; i < c->n_nodes; i++)
		for (int k = 0; k < c->n_nodes; k++)
			if (room[i].host == room[k].host)
				room[i].host_bytes += dlb_cluster_node_memory(c, k);
}

/* Keeps the larger lack in *lack. */
static void keep_lack(struct dlb_memory_lack x, struct dlb_memory_lack *lack)
{
	if (x.need_bytes - x.room_bytes > lack->need_bytes - lack->room_bytes)
		*lack = x;
}

bool dlb_memory_lacks(const struct dlb_memory_need *need, const struct dlb_memory_room *room, int n_nodes,
		      struct dlb_memory_lack *lack)
{
	*lack = (struct dlb_memory_lack){ .n = 0 };
	for (int i = 0; i < n_nodes; i++) {
		struct dlb_memory_lack host = { .first = -1, .room_bytes = room[i].host_bytes };

		if (room[i].host < 0)
			continue;
		for (int k = 0; k < n_nodes; k++) {
			if (room[k].host != room[i].host)
				continue;
			host.first = host.first < 0 ? k : host.first;
			host.n++;
			host.need_bytes += need[k].own_bytes;
		}
		if (host.first == i)
			keep_lack(host, lack);
		keep_lack((struct dlb_memory_lack){ i, 1, need[i].process_bytes, room[i].process_bytes },
			  lack);
	}
	return lack->n > 0;
}

/* "9.3 GB", "812 MB" */
static void amount(double bytes, char text[24])
{
	snprintf(text, 24, bytes < 1e9 ? "%.4g MB" : "%.4g GB", bytes < 1e9 ? bytes / 1e6 : bytes / 1e9);
}

void dlb_memory_lack_text(const struct dlb_memory_lack *lack, const struct dlb_memory_room *room,
			  char text[DLB_MEMORY_TEXT])
{
	const bool limited = lack->n == 1 && lack->room_bytes == room[lack->first].process_bytes;
	char need[24], has[24];

	amount(lack->need_bytes, need);
	amount(lack->room_bytes, has);
	if (lack->n == 1)
		snprintf(text, DLB_MEMORY_TEXT, "the process of node %d needs %s of memory, its %s %s",
			 lack->first, need, limited ? "limit (ulimit) is" : "host has", has);
	else
		snprintf(text, DLB_MEMORY_TEXT,
			 "the processes of node %d and %d more of its host need %s of memory, which has %s",
			 lack->first, lack->n - 1, need, has);
}

/* The part of `room` bytes that is left for peaks, which now take `peaks` of `needs` bytes: see
 * dlb_memory_limit. */
static double room_for_peaks(double room, double peaks, double needs, bool generous)
{
	const double same = room - (needs - peaks), scaled = room * peaks / needs;

	return generous ? fmax(same, scaled) : fmin(same, scaled);
}

double dlb_memory_limit(const struct dlb_memory_need *need, const struct dlb_memory_room *room, int n_nodes,
			const double *peak_bytes, bool generous)
{
	double limit = INFINITY;

	for (int i = 0; i < n_nodes; i++) {
		double peaks = 0, needs = 0;
		int n = 0;

		for (int k = 0; k < n_nodes; k++) {
			const bool near_by = room[k].host == room[i].host;

			n += near_by;
			peaks += near_by ? peak_bytes[k] : 0;
			needs += near_by ? need[k].own_bytes : 0;
		}
		if (room[i].host < 0)
			continue;
		limit = fmin(limit, room_for_peaks(room[i].host_bytes, peaks, needs, generous) / n);
		limit = fmin(limit, room_for_peaks(room[i].process_bytes, peak_bytes[i],
						   need[i].process_bytes, generous));
	}
	return fmax(1, limit);
}
