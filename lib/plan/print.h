/* A program as text. */
#ifndef DLB_PLAN_PRINT_H
#define DLB_PLAN_PRINT_H
#include "plan/program.h"

extern const char *const dlb_verb_names[DLB_N_VERBS];
void dlb_program_print(const struct dlb_program *g, FILE *f);
#endif
