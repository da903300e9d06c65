/* A program as text. */
#ifndef DLB_PLAN_PRINT_H
#define DLB_PLAN_PRINT_H
#include "plan/program.h"

void dlb_program_print(const struct dlb_program *g, FILE *f);
#endif
