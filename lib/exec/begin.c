/* Writes and parses the position where a run began, as a word of the command line that a parent passes to its
 * ranks. See exec.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "exec/exec.h"

void dlb_begin_text(const struct dlb_begin *b, char text[DLB_BEGIN_TEXT])
{
	if (b->known)
		snprintf(text, DLB_BEGIN_TEXT, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, b->step,
			 b->epoch, b->position, b->log_lines);
	else
		strcpy(text, "-");
}

int dlb_begin_parse(const char *text, struct dlb_begin *b)
{
	int end = 0;

	*b = (struct dlb_begin){ .known = false };
	if (!strcmp(text, "-"))
		return 0;
	b->known = sscanf(text, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 "%n", &b->step, &b->epoch,
			  &b->position, &b->log_lines, &end) == 4 &&
		   !text[end];
	return b->known ? 0 : -1;
}
