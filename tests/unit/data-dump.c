/* Prints the samples of training data, for tests that compare them with other tools:
 *     data-dump [-t TRANSFORM] [-e EPOCH] [-r READERS] [-s] [-k] [-l] SPEC DTYPE SHAPE BOUND
 * writes the samples of an epoch as raw bytes, for an input of SHAPE (1x28x28) per sample, integers below
 * BOUND (0: any). -s: shuffled; -k: read as test data of themselves; -l: labels (int64; one per sample, of
 * sequences one per token). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "data/data.h"
#include "util/mem.h"

static void make_graph(struct dlb_graph *g, enum dlb_dtype dtype, const char *shape, int64_t bound)
{
	dlb_graph_init(g);
	g->input = dlb_arena_array(&g->arena, 2, sizeof *g->input);
	for (int i = 0; i < 2; i++) {
		int t = dlb_graph_add_tensor(g, i ? "label" : "x", i ? DLB_T_LABEL : DLB_T_INPUT);
		struct dlb_tensor *x = &g->tensor[t];

		x->dtype = i ? DLB_I64 : dtype;
		x->bound = bound;
		x->n_dims = 1;
		x->dim[0] = (struct dlb_dim){ 1, 0 };
		if (!i || !dlb_dtype_is_float(dtype))
			for (const char *p = shape; p; p = strchr(p, 'x') ? strchr(p, 'x') + 1 : NULL)
				x->dim[x->n_dims++] = (struct dlb_dim){ 0, atoll(p) };
		g->input[g->n_inputs++] = t;
	}
	g->label = 1;
	g->seed = -1;
}

int main(int argc, char **argv)
{
	struct dlb_data_choice choice = { .seed = 1 };
	struct dlb_data *d = NULL, *again;
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;
	int64_t epoch = 0, n, each = 1;
	bool labels = false, test = false;
	int opt, t, rc = -1;
	char *out;

	while ((opt = getopt(argc, argv, "t:e:r:skl")) >= 0)
		switch (opt) {
		case 't': choice.transform = optarg; break;
		case 'e': epoch = atoll(optarg); break;
		case 'r': choice.readers = atoi(optarg); break;
		case 's': choice.shuffled = true; break;
		case 'k': test = true; break;
		case 'l': labels = true; break;
		default: return 2;
		}
	if (argc - optind != 4 || dlb_dtype_find(argv[optind + 1]) < 0)
		return 2;
	choice.spec = argv[optind];
	make_graph(&g, (enum dlb_dtype)dlb_dtype_find(argv[optind + 1]), argv[optind + 2],
		   atoll(argv[optind + 3]));
	t = labels;
	if (dlb_data_open(&d, &choice, &g, &err))
		goto out;
	if (test) {
		choice.like = d;
		if (dlb_data_open(&again, &choice, &g, &err))
			goto out;
		dlb_data_close(d);
		d = again;
	}
	n = dlb_data_count(d);
	for (int i = 1; i < g.tensor[t].n_dims; i++)
		each *= g.tensor[t].dim[i].add;
	out = dlb_xmalloc((size_t)(n * each) * dlb_dtype_bytes(g.tensor[t].dtype));
	rc = dlb_data_fill(d, t, epoch, 0, n, out, &err);
	if (!rc)
		fwrite(out, dlb_dtype_bytes(g.tensor[t].dtype), (size_t)(n * each), stdout);
	free(out);
out:
	dlb_data_close(d);
	dlb_graph_release(&g);
	if (rc)
		dlb_error_print(stderr, "data-dump", -1, &err);
	return rc ? 2 : 0;
}
