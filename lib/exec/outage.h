/* The nodes that a run has lost at present, whether their hosts answer, and where ranks start meanwhile.
 *
 * A lost node keeps its number and its rank, which gets no work. On a host that answers the rank is
 * started there; on one that does not, it is started on the first host that is left. */
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
	double rejoin_s;		/* from a loss, and from each look, to the next look; 0: none */
};
struct dlb_outage;
/* Borrows o->hosts. */
struct dlb_outage *dlb_outage_new(const struct dlb_outage_options *o);
/* Ends what is left on hosts that were lost, if they answer now; failed: and removes copies on the others,
 * whose ranks have not done so. */
void dlb_outage_free(struct dlb_outage *o, bool failed);

/* All ranks have ended as *end says, for another reason than a request or an input. Asks the hosts, adds
 * the nodes of those that do not answer to end->node, and counts all of end->node as lost. Returns one
 * line on these hosts: new, NULL: none. */
char *dlb_outage_happened(struct dlb_outage *o, struct dlb_launch_end *end);
/* Whether a node is lost [n]; why its host is (NULL: the host is not lost). */
const bool *dlb_outage_lost(const struct dlb_outage *o);
const char *dlb_outage_reason(const struct dlb_outage *o, int node);
/* The host that the plan has for a node; there must be some. */
const struct dlb_host *dlb_outage_home(const struct dlb_outage *o, int node);
/* Where each rank is started [n], NULL: all are on this one. *crowded: one has more ranks than its own
 * nodes. */
const struct dlb_host *const *dlb_outage_places(const struct dlb_outage *o, bool *crowded);

/* ctx: a struct dlb_outage, while ranks train. Looks after lost nodes when it is time; true: some can be
 * put back. */
bool dlb_outage_look(void *ctx);
/* Notes the job of ranks that have ended (0: not known), and ends a look. */
void dlb_outage_ended(struct dlb_outage *o, unsigned long job);
/* The nodes that can be put back are no longer lost; *back: [n], valid until the next call. Returns their
 * number. */
int dlb_outage_put_back(struct dlb_outage *o, const bool **back);
#endif
