/* The run section: data and settings of training (exec.h lists its members). */
#ifndef DLB_EXEC_SECTION_H
#define DLB_EXEC_SECTION_H
#include "exec/exec.h"

/* Settings of the command line; NULL or not given: the document's value stays. */
struct dlb_run_edit {
	const char *staleness;			/* written into the plan */
	const char *data, *test_data, *transform, *order, *optimizer, *init, *name, *note;
	int64_t seed; bool seed_given;
	double hyper[DLB_N_HYPER]; bool hyper_given[DLB_N_HYPER];
	const char *variant, *lr_schedule, *reduce, *max_state;
	int64_t warmup; bool warmup_given;
	double clip_norm; bool clip_given;
	const char *delay_discount;		/* "on", "off" */
	/* GLOB:lr=X,weight-decay=Y; replaces all groups of the document */
	const char *const *group; int n_groups;
	int64_t steps, until_step;		/* end of a cosine schedule that names none; 0: not given */
	bool torch_batchnorm;
};
/* Writes the edits into doc's run section (made if absent) and the optimizer's name into the graph's update
 * ops, which changes neither ids nor hashes. Paths become absolute. */
int dlb_run_section_edit(struct dlb_doc *doc, const struct dlb_run_edit *e, struct dlb_error *err);
/* Checks the section and fills o from it; strings are borrowed from doc. The value of `init` goes to
 * init_text. */
int dlb_run_section_read(const struct dlb_doc *doc, struct dlb_exec_options *o, char init_text[32],
			 struct dlb_error *err);
#endif
