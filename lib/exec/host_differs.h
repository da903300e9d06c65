/* Compares this host with the hosts that a plan was made for, as far as that is quickly known before the
 * start: hosts, cores, memory. Speeds of kernels and links are not compared. */
#ifndef DLB_EXEC_HOST_DIFFERS_H
#define DLB_EXEC_HOST_DIFFERS_H
#include "doc/doc.h"
#include <stdbool.h>
#include <stddef.h>

struct dlb_host_resources { int cores; double memory_bytes; };	/* memory 0: not known */
struct dlb_host_resources dlb_host_resources(void);
/* Cores that the nodes of the document's plan want in all; 0: it has no cluster section. */
int dlb_host_planned_cores(const struct dlb_doc *doc);
/* All nodes of the document's plan run on one host, which has `has`: is it less than they were planned
 * for? text[n]: one line without its end, what differs and what to expect. Nodes that are no CPU's ask for
 * no cores and no memory of the host. */
bool dlb_host_differs(const struct dlb_doc *doc, struct dlb_host_resources has, char *text, size_t n);
#endif
