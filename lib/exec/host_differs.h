/* Compares this host with the hosts that a plan was made for, by what is quickly known before the start: the
 * numbers of hosts and cores. memory_check.h compares memory; the speeds of kernels and links are not
 * compared. */
#ifndef DLB_EXEC_HOST_DIFFERS_H
#define DLB_EXEC_HOST_DIFFERS_H
#include "doc/doc.h"
#include <stdbool.h>
#include <stddef.h>

/* Cores that the nodes of the document's plan need in all; 0: the document has no cluster section. */
int dlb_host_planned_cores(const struct dlb_doc *doc);
/* Whether the plan was made for more cores, or for more hosts, than this one host with `cores` cores on which
 * all its nodes run. text[n]: one line without newline that names the difference and its effect. Only CPU
 * nodes need cores of the host. */
bool dlb_host_differs(const struct dlb_doc *doc, int cores, char *text, size_t n);
#endif
