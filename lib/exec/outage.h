/* The nodes that a run has lost at present, whether their hosts answer, and where ranks start meanwhile.
 *
 * A lost node keeps its number and its rank, which gets no work. The rank is started on the node's host or,
 * if that does not answer, on the first remaining host. */
#ifndef DLB_EXEC_OUTAGE_H
#define DLB_EXEC_OUTAGE_H
#include "exec/hosts.h"
#include "exec/launch.h"

struct dlb_outage_options {
	const char *tool;
	const struct dlb_hosts *hosts;	/* rank NULL: all nodes are on this host, which answers */
	int n;				/* nodes */
	double heartbeat_s;
	const char *copies; /* name of the folders of copies (copies.h); NULL: none */
	double rejoin_s;		/* from a loss or a check to the next check; 0: no checks */
};
struct dlb_outage;
/* Borrows o->hosts. */
struct dlb_outage *dlb_outage_new(const struct dlb_outage_options *o);
/* Ends remaining processes and removes copies on lost hosts that answer now; failed: also removes copies on
 * the other hosts, whose ranks have not done so. */
void dlb_outage_free(struct dlb_outage *o, bool failed);

/* Called when all ranks have ended, as *end describes, for a reason other than a request or an input. Probes
 * the hosts, adds the nodes of hosts that do not answer to end->node, and counts all nodes of end->node as
 * lost. Returns one line on the hosts that do not answer (new); NULL: none. */
char *dlb_outage_happened(struct dlb_outage *o, struct dlb_launch_end *end);
/* [n] whether each node is lost; the reason why a node's host is lost, NULL: it is not. */
const bool *dlb_outage_lost(const struct dlb_outage *o);
const char *dlb_outage_reason(const struct dlb_outage *o, int node);
/* The host that the plan gives to a node. The plan must have hosts. */
const struct dlb_host *dlb_outage_home(const struct dlb_outage *o, int node);
/* The host on which each rank is started [n]; NULL: all on this host. *crowded: a host gets more ranks than
 * its own nodes. */
const struct dlb_host *const *dlb_outage_places(const struct dlb_outage *o, bool *crowded);

/* Called while ranks train; ctx: a struct dlb_outage. Checks lost nodes when that is due; true: some can be
 * put back. */
bool dlb_outage_look(void *ctx);
/* Notes the job of ranks that have ended (0: unknown) and ends a running check. */
void dlb_outage_ended(struct dlb_outage *o, unsigned long job);
/* Counts the nodes that can be put back as no longer lost; *back: [n], valid until the next call. Returns
 * their number. */
int dlb_outage_put_back(struct dlb_outage *o, const bool **back);
#endif
