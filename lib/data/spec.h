/* The argument of --data. */
#ifndef DLB_DATA_SPEC_H
#define DLB_DATA_SPEC_H
#include <stdbool.h>
#include "util/error.h"

enum { DLB_MAX_SPEC_FILES = 16, DLB_MAX_SPEC_OPTIONS = 4 };
struct dlb_spec_option { const char *name; bool is_file; };
struct dlb_spec {
	const struct dlb_source_class *class;
	char *file[DLB_MAX_SPEC_FILES]; int n_files;
	char *option[DLB_MAX_SPEC_OPTIONS];	/* by row of class->option; NULL: not given */
	char *word;				/* text after ':' of a class without files; NULL: none */
};
int dlb_spec_parse(const char *text, struct dlb_spec *s, struct dlb_error *err);
void dlb_spec_release(struct dlb_spec *s);
#endif
