/* The run section: what is trained on and how (see exec.h for its members). */
#ifndef DLB_EXEC_SECTION_H
#define DLB_EXEC_SECTION_H
#include "exec/exec.h"

/* What the command line says of it; NULL or not given: the document's stands. */
struct dlb_run_edit {
	const char *staleness;			/* written into the plan */
	const char *data, *test_data, *transform, *order, *optimizer, *init;
	int64_t seed; bool seed_given;
	double hyper[DLB_N_HYPER]; bool hyper_given[DLB_N_HYPER];
	const char *variant, *lr_schedule, *reduce, *max_state;
	int64_t warmup; bool warmup_given;
	double clip_norm; bool clip_given;
	const char *delay_discount;		/* "on", "off" */
	const char *const *group; int n_groups;	/* GLOB:lr=X,weight-decay=Y; in place of all that the document has */
	int64_t steps, until_step;		/* where a cosine ends that does not say; 0: not given */
	bool torch_batchnorm;
};
/* Writes the edits into doc's run section (made when absent) and the optimizer's name into the graph's update
 * ops, which changes neither ids nor hashes. Paths become absolute. */
int dlb_run_section_edit(struct dlb_doc *doc, const struct dlb_run_edit *e, struct dlb_error *err);
/* Checks the section and takes from it what dlb_exec_options holds; strings are borrowed from doc. `init` is
 * written to init_text. */
int dlb_run_section_read(const struct dlb_doc *doc, struct dlb_exec_options *o, char init_text[32], struct dlb_error *err);
#endif
