/* The report's storage. */
#include <string.h>
#include "plan/report.h"

void dlb_report_release(struct dlb_report *r)
{
	dlb_arena_release(&r->arena);
	memset(r, 0, sizeof *r);
}
