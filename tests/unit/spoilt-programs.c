/* Spoils the programs of a plan in every way that it knows, one at a time, and prints the verifier's answers:
 *     spoilt-programs DOC STRIDE [WAY]
 * Each STRIDE-th instruction, place, bucket and weight of each node is spoilt. For each way: a checksum of
 * all answers, in their order; then how often each answer came, in short, without its numbers and names.
 * "accepted" is right where the order of two instructions does not matter; an accepted program must end in
 * the simulator. WAY: prints all answers of that way, in full. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "exec/job.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/timeline.h"
#include "util/mem.h"

enum { MOST_ANSWERS = 400 };
/* A node's program, which is spoilt, and as it was. */
struct spoilt {
	struct dlb_node_program *np, good;
	int n_nodes;
};
struct answer {
	char text[600];
	int n;
};

static int n_of(const struct dlb_node_program *np, char what)
{
	return what == 'i' ? np->n_instr :
	       what == 'p' ? np->n_places :
	       what == 'b' ? np->n_buckets :
			     np->n_weights;
}

static void exchange(struct dlb_instr *a, struct dlb_instr *b)
{
	const struct dlb_instr x = *a;
	*a = *b;
	*b = x;
}

/* ---- the ways: false if there is nothing to spoil at `at` ---- */

static bool removed(struct spoilt *s, int at)
{
	memmove(s->np->instr + at, s->np->instr + at + 1,
		(size_t)(s->np->n_instr - at - 1) * sizeof *s->np->instr);
	s->np->n_instr--;
	return s->np->n_instr > 0;
}

static bool repeated(struct spoilt *s, int at)
{
	memmove(s->np->instr + at + 1, s->np->instr + at,
		(size_t)(s->np->n_instr - at) * sizeof *s->np->instr);
	s->np->n_instr++;
	return true;
}

/* exchanged with the instruction `far` later */
static bool later(struct spoilt *s, int at, int far)
{
	if (at + far >= s->np->n_instr)
		return false;
	exchange(&s->np->instr[at], &s->np->instr[at + far]);
	return true;
}

static bool next(struct spoilt *s, int at) { return later(s, at, 1); }
static bool third(struct spoilt *s, int at) { return later(s, at, 3); }
static bool eighth(struct spoilt *s, int at) { return later(s, at, 8); }
static bool half(struct spoilt *s, int at) { return later(s, at, s->np->n_instr / 2); }

static bool first(struct spoilt *s, int at)
{
	for (; at > 0; at--)
		exchange(&s->np->instr[at], &s->np->instr[at - 1]);
	return true;
}

static bool last(struct spoilt *s, int at)
{
	for (; at + 1 < s->np->n_instr; at++)
		exchange(&s->np->instr[at], &s->np->instr[at + 1]);
	return true;
}

/* with the tensor, and its micro-batch, of the next instruction that has one */
static bool tensor(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	for (int i = at + 1; in->tensor >= 0 && i < s->np->n_instr; i++) {
		const struct dlb_instr *x = &s->np->instr[i];
		if (x->tensor < 0 || x->tensor == in->tensor || x->verb == DLB_COMPUTE ||
		    in->verb == DLB_COMPUTE)
			continue;
		in->tensor = x->tensor;
		in->micro_batch = x->micro_batch;
		in->again = x->again;
		return true;
	}
	return false;
}

/* with the op of the next instruction of its sort */
static bool op(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	for (int i = at + 1; in->verb == DLB_COMPUTE && in->tensor < 0 && i < s->np->n_instr; i++) {
		const struct dlb_instr *x = &s->np->instr[i];
		if (x->verb != DLB_COMPUTE || x->what != in->what || x->tensor >= 0 || x->op == in->op)
			continue;
		in->op = x->op;
		return true;
	}
	return false;
}

static int micro_batches;

static bool micro_batch(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	const int m = in->micro_batch;
	if (m < 0 || m >= micro_batches)
		return false;
	in->micro_batch = (m + 1) % micro_batches;
	return in->micro_batch != m;
}

static bool is_message(const struct dlb_instr *in) { return in->peer >= 0; }

static bool peer(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	in->peer = is_message(in) ? (in->peer + 1) % s->n_nodes : in->peer;
	return is_message(in);
}

static bool tag(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	in->tag += is_message(in);
	return is_message(in);
}

/* another bucket, or one that there is not */
static bool bucket_of(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	if (in->verb != DLB_COLLECTIVE || in->tag < 0 || s->np->n_buckets < 2)
		return false;
	in->tag = (in->tag + 1) % s->np->n_buckets;
	return true;
}

static bool zero_copy(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	in->zero_copy = is_message(in) && !in->zero_copy;
	return is_message(in);
}

static bool sent(struct spoilt *s, int at)
{
	struct dlb_instr *in = &s->np->instr[at];
	in->sent = !in->sent;
	return in->verb == DLB_WAIT;
}

static bool version(struct spoilt *s, int at)
{
	s->np->instr[at].version++;
	return s->np->n_weights && s->np->instr[at].verb == DLB_COMPUTE;
}

static bool offset_up(struct spoilt *s, int at)
{
	s->np->place[at].offset += DLB_PLACE_ALIGN;
	return true;
}

static bool offset_down(struct spoilt *s, int at)
{
	const bool can = s->np->place[at].offset >= DLB_PLACE_ALIGN;
	s->np->place[at].offset -= can ? DLB_PLACE_ALIGN : 0;
	return can;
}

static bool offset_odd(struct spoilt *s, int at)
{
	s->np->place[at].offset++;
	return true;
}

static bool larger(struct spoilt *s, int at)
{
	s->np->place[at].bytes += 1 + dlb_place_bytes(s->np->place[at].bytes);
	return true;
}

static bool early(struct spoilt *s, int at)
{
	const bool can = s->np->place[at].first > 0;
	s->np->place[at].first = s->np->place[at].first / 2;
	return can;
}

static bool long_lived(struct spoilt *s, int at)
{
	const int end = s->np->n_instr - 1;
	const bool can = s->np->place[at].last < end;
	s->np->place[at].last = end;
	return can;
}

static bool unshared(struct spoilt *s, int at)
{
	const bool can = s->np->place[at].of >= 0;
	s->np->place[at].of = -1;
	return can;
}

/* shares the place before it in the list */
static bool shared(struct spoilt *s, int at)
{
	if (!at)
		return false;
	s->np->place[at].of = s->np->place[at - 1].tensor;
	s->np->place[at].of_m = s->np->place[at - 1].micro_batch;
	return true;
}

static bool copy_less(struct spoilt *s, int at)
{
	const bool can = s->np->place[at].copies > 1;
	s->np->place[at].copies -= can;
	return can;
}

static bool small_arena(struct spoilt *s, int at)
{
	const struct dlb_place *x = &s->np->place[at];
	s->np->arena_bytes = x->offset + x->bytes - 1;
	return x->bytes > 0;
}

static bool elements(struct spoilt *s, int at)
{
	s->np->bucket[at].n++;
	return true;
}

static bool op_less(struct spoilt *s, int at)
{
	const bool can = s->np->bucket[at].n_ops > 1;
	s->np->bucket[at].n_ops -= can;
	return can;
}

static bool life(struct spoilt *s, int at)
{
	s->np->bucket[at].life++;
	return s->np->bucket[at].ahead;
}

static bool weight_less(struct spoilt *s, int at)
{
	const bool can = s->np->weight[at].n > 0;
	s->np->weight[at].n -= can;
	return can;
}

static bool sum_less(struct spoilt *s, int at)
{
	const bool can = s->np->weight[at].sums > 1;
	s->np->weight[at].sums -= can;
	return can;
}

static const struct way {
	const char *name;
	char what;
	bool (*spoil)(struct spoilt *s, int at);
} ways[] = {
	{ "removed", 'i', removed },
	{ "repeated", 'i', repeated },
	{ "exchanged with the next", 'i', next },
	{ "exchanged with the third after it", 'i', third },
	{ "exchanged with the eighth after it", 'i', eighth },
	{ "exchanged with that half a program later", 'i', half },
	{ "moved to the front", 'i', first },
	{ "moved to the end", 'i', last },
	{ "with another tensor", 'i', tensor },
	{ "with another op", 'i', op },
	{ "with another micro-batch", 'i', micro_batch },
	{ "with another peer", 'i', peer },
	{ "with another tag", 'i', tag },
	{ "with another bucket", 'i', bucket_of },
	{ "zero-copy or not", 'i', zero_copy },
	{ "waits for a send or not", 'i', sent },
	{ "of an older version", 'i', version },
	{ "place too far", 'p', offset_up },
	{ "place too near", 'p', offset_down },
	{ "place not aligned", 'p', offset_odd },
	{ "place too large", 'p', larger },
	{ "place too early", 'p', early },
	{ "place too long", 'p', long_lived },
	{ "place of its own", 'p', unshared },
	{ "place shared", 'p', shared },
	{ "place with a copy less", 'p', copy_less },
	{ "place behind the arena", 'p', small_arena },
	{ "bucket with another element", 'b', elements },
	{ "bucket without its last op", 'b', op_less },
	{ "bucket into another life", 'b', life },
	{ "weight with a copy less", 'w', weight_less },
	{ "weight with a sum less", 'w', sum_less },
};

/* ---- the answers ---- */

/* The first word, and what follows the last colon; numbers become #, names in quotes '. */
static void in_short(const char *text, char *to, size_t size)
{
	const char *fault = text;
	size_t n = 0;
	bool quoted = false;
	for (const char *at = text; (at = strstr(at, ": ")); at += 2)
		fault = at + 2;
	if (fault > text) {
		n = (size_t)snprintf(to, size, "%.*s: ", (int)strcspn(text, " "), text);
		text = fault;
	}
	for (; *text && n + 1 < size; text++) {
		if (*text == '\'') {
			quoted = !quoted;
			if (!quoted)
				continue;
		} else if (quoted || (*text >= '0' && *text <= '9' && n && to[n - 1] == '#')) {
			continue;
		}
		to[n++] = *text >= '0' && *text <= '9' ? '#' : *text;
	}
	to[n] = '\0';
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct answer *)a)->text, ((const struct answer *)b)->text);
}

static void count(struct answer *list, int *n, const char *text)
{
	int i = 0;
	while (i < *n && strcmp(list[i].text, text))
		i++;
	if (i == MOST_ANSWERS)
		dlb_bug("too many answers");
	if (i == *n) {
		snprintf(list[i].text, sizeof list[i].text, "%s", text);
		list[(*n)++].n = 0;
	}
	list[i].n++;
}

/* What the verifier says about the program as it is now. */
static void ask(const struct dlb_program *g, const struct dlb_cost *c, char *said, size_t size, char *text,
		size_t text_size)
{
	struct dlb_timeline t;
	struct dlb_error err = { .what = "" };
	if (dlb_program_verify(g, c, &err)) {
		snprintf(said, size, "%s: %s", err.where, err.what);
		in_short(err.what, text, text_size);
		return;
	}
	const bool ends = !dlb_program_simulate(g, c, &(struct dlb_simulate_choice){ .keep_spans = false },
						&t, &err);
	if (ends)
		dlb_timeline_release(&t, g->n_nodes);
	snprintf(text, text_size, "%s", ends ? "accepted" : "ACCEPTED, BUT DOES NOT END");
	snprintf(said, size, "%s", text);
}

static void *copied(const void *from, size_t n, size_t more, size_t size)
{
	void *to = dlb_xcalloc(n + more + 1, size);
	if (n)
		memcpy(to, from, n * size);
	return to;
}

/* np with copies of its arrays. */
static struct dlb_node_program copy_of(const struct dlb_node_program *np)
{
	struct dlb_node_program x = *np;
	x.instr = copied(np->instr, (size_t)np->n_instr, 1, sizeof *np->instr);
	x.place = copied(np->place, (size_t)np->n_places, 0, sizeof *np->place);
	x.bucket = copied(np->bucket, (size_t)np->n_buckets, 0, sizeof *np->bucket);
	x.weight = copied(np->weight, (size_t)np->n_weights, 0, sizeof *np->weight);
	return x;
}

static void release(struct dlb_node_program *np)
{
	free(np->instr);
	free(np->place);
	free(np->bucket);
	free(np->weight);
}

static void spoil(const struct dlb_program *g, const struct dlb_cost *c, const struct way *w, int stride,
		  bool whole)
{
	struct answer *list = dlb_xcalloc(MOST_ANSWERS, sizeof *list);
	uint32_t sum = 2166136261;
	int n = 0;
	for (int node = 0; node < g->n_nodes; node++) {
		struct spoilt s = { .np = (struct dlb_node_program *)&dlb_program_of(g, node)->node[node],
				    .n_nodes = g->n_nodes };
		s.good = *s.np;
		for (int at = node % stride; at < n_of(&s.good, w->what); at += stride) {
			char said[1000], text[600];
			*s.np = copy_of(&s.good);
			if (w->spoil(&s, at)) {
				ask(g, c, said, sizeof said, text, sizeof text);
				if (whole)
					printf("node %d, %c %d: %s\n", node, w->what, at, said);
				for (const char *k = said; *k; k++)
					sum = (sum ^ (unsigned char)*k) * 16777619;
				count(list, &n, text);
			}
			release(s.np);
			*s.np = s.good;
		}
	}
	if (n)
		printf("%s: %08x\n", w->name, sum);
	qsort(list, (size_t)n, sizeof *list, by_text);
	for (int i = 0; i < n; i++)
		printf("%6d %s\n", list[i].n, list[i].text);
	free(list);
}

int main(int argc, char **argv)
{
	struct dlb_exec_options o = {
		.steps = 1, .epochs = -1, .until_step = -1, .dry_run = true, .quiet = true
	};
	struct dlb_job j = { .kappa = NULL };
	struct dlb_program g = { .n_nodes = 0 };
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc;
	if (argc < 3 || argc > 4 || atoi(argv[2]) < 1) {
		fputs("spoilt-programs DOC STRIDE [WAY]\n", stderr);
		return 2;
	}
	if (dlb_doc_read(&doc, argv[1], &err) || dlb_job_read(&j, &doc, &o, &err) ||
	    dlb_job_compile(&j, j.plan.batch, &g, &err)) {
		dlb_error_print(stderr, "spoilt-programs", -1, &err);
		return 2;
	}
	micro_batches = g.micro_batches;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (argc == 3 || !strcmp(ways[i].name, argv[3]))
			spoil(&g, &j.cost, &ways[i], atoi(argv[2]), argc > 3);
	dlb_program_release(&g);
	dlb_job_release(&j);
	dlb_doc_release(&doc);
	return 0;
}
