/* Writes the data of dlb-view -f html: one JSON object, one member per function below, drawn by the scripts
 * in lib/view/page. Long lists are columns of numbers. Lists that would make the page too large or the tool
 * too slow are cut, and the object states how many items were left out. */
#ifndef DLB_VIEW_PAGE_H
#define DLB_VIEW_PAGE_H
#include "view/page_json.h"
#include "view/picture.h"

void dlb_page_summary(const struct dlb_view *v, struct dlb_emit *e);
void dlb_page_graph(const struct dlb_view *v, struct dlb_emit *e);	/* "ops", "tensors" */
void dlb_page_cluster(const struct dlb_view *v, struct dlb_emit *e);
/* predicted and measured busy, waits, bytes */
void dlb_page_nodes(const struct dlb_view *v, struct dlb_emit *e);
void dlb_page_losses(const struct dlb_view *v, struct dlb_emit *e);
void dlb_page_evaluations(const struct dlb_view *v, struct dlb_emit *e);
void dlb_page_rounds(const struct dlb_view *v, struct dlb_emit *e);
void dlb_page_provenance(const struct dlb_view *v, struct dlb_emit *e);
/* "predicted", "measured" */
void dlb_page_times(const struct dlb_view *v, const struct dlb_program *p, struct dlb_emit *e);
void dlb_page_memory(const struct dlb_view *v, const struct dlb_program *p, struct dlb_emit *e);
/* Predicted step of each op on other nodes, as --why prints. */
void dlb_page_why(const struct dlb_view *v, struct dlb_emit *e);
#endif
