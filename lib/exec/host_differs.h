/* Compares this host with the hosts that a plan was made for, as far as that is quickly known before the
 * start: hosts and cores. Memory is compared by memory_check.h, speeds of kernels and links are not. */
#ifndef DLB_EXEC_HOST_DIFFERS_H
#define DLB_EXEC_HOST_DIFFERS_H
#include "doc/doc.h"
#include <stdbool.h>
#include <stddef.h>

/* Cores that the nodes of the document's plan want in all; 0: it has no cluster section. */
int dlb_host_planned_cores(const struct dlb_doc *doc);
/* All nodes of the document's plan run on one host of so many cores: is it less than they were planned
 * for? text[n]: one line without its end, what differs and what to expect. Nodes that are no CPU's ask for
 * no cores of the host. */
bool dlb_host_differs(const struct dlb_doc *doc, int cores, char *text, size_t n);
#endif
