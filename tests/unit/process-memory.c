/* Prints the memory that the processes of a plan are predicted to need, without what depends on the machine:
 *     process-memory DOC
 * A row for each node: the whole process, and the part that counts for its host; both again with kernels of
 * known sizes, 1e6 bytes of samples and a document of 2e6 bytes. */
#include <stdio.h>
#include <stdlib.h>
#include "exec/job.h"
#include "plan/process_bytes.h"
#include "util/mem.h"

/* Sizes that no guess comes to: op i's scratch, packed weights and library memory grow with i. */
static struct dlb_kernel_bytes *kernels(int n)
{
	struct dlb_kernel_bytes *k = dlb_xcalloc((size_t)n + 1, sizeof *k);
	for (int i = 0; i < n; i++) {
		k[i] = (struct dlb_kernel_bytes){ .scratch = 1000 * i,
						  .packed = i % 3 ? 200000 + i : 0,
						  .known = i % 4 > 0 };
		for (int l = 0; l < DLB_N_LIBRARIES; l++)
			k[i].library[l] = (l + 1) * 10 * (i % 5);
	}
	return k;
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
	if (argc != 2) {
		fputs("process-memory DOC\n", stderr);
		return 2;
	}
	if (dlb_doc_read(&doc, argv[1], &err) || dlb_job_read(&j, &doc, &o, &err) ||
	    dlb_job_compile(&j, j.plan.batch, &g, &err)) {
		dlb_error_print(stderr, "process-memory", -1, &err);
		return 2;
	}
	struct dlb_kernel_bytes *k = kernels(j.graph.n_ops);
	for (int node = 0; node < g.n_nodes; node++) {
		struct dlb_process s = { .program = &g, .cost = &j.cost, .n_state = j.n_state };
		const struct dlb_memory_need guessed = dlb_memory_need_of(&s, node);
		s.kernel = k;
		s.data_bytes = 1e6;
		s.document_bytes = 2e6;
		const struct dlb_memory_need known = dlb_memory_need_of(&s, node);
		printf("node %d: %.0f %.0f, %.0f %.0f\n", node, guessed.process_bytes, guessed.own_bytes,
		       known.process_bytes, known.own_bytes);
	}
	free(k);
	dlb_program_release(&g);
	dlb_job_release(&j);
	dlb_doc_release(&doc);
	return 0;
}
