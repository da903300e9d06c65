/* How the machine at hand differs from the one that a document's cluster section was measured on.
 *
 * Hosts, processors, cores and memory are compared as they stand. The speed of each kind of CPU device is
 * measured again, as dlb_cluster_probe does it, alone or by all ranks at the same time: FLOP/s of a
 * product, bytes/s of a copy. Speeds less than 20 % apart are equal, as they are for dlb_cluster_probe,
 * and so is memory less than 2 % apart, since the system's kernel takes a part of it. Links and kinds of
 * other back ends are not measured.
 *
 *     host 'b': 2 cores here, 4 in the document
 *     host 'b': kind cpu: 41 GFLOP/s here, 83 in the document (0.49 times) */
#ifndef DLB_EXEC_MACHINE_CHECK_H
#define DLB_EXEC_MACHINE_CHECK_H
#include "cluster/cluster.h"
#include "comm/comm.h"

enum dlb_machine_verdict { DLB_MACHINE_EQUAL, DLB_MACHINE_UNCHECKED, DLB_MACHINE_DIFFERS };
struct dlb_machine_line { enum dlb_machine_verdict verdict; const char *text; };
struct dlb_machine_check {			/* zeroed: empty */
	struct dlb_arena arena;
	struct dlb_machine_line *line;		/* in the arena */
	int n_lines, cap_lines, n_differences;
};
void dlb_machine_check_release(struct dlb_machine_check *m);

/* Measures this machine and adds a line for each comparison. comm NULL: this process alone; else collective,
 * and all ranks get the same lines. Takes about half a second per kind, three times as long if its speed
 * differs: a difference must show in three measurements. -1 with err: no cluster section, or one that was not
 * measured on a machine. */
int dlb_machine_check(const struct dlb_doc *doc, struct dlb_comm *comm, struct dlb_machine_check *m,
		      struct dlb_error *err);

/* The comparisons of dlb_machine_check, without its measurements. A host of `here` is compared with the host
 * of the same name in `stored`, else with the first host whose name is not among those of `here`. A line of
 * DLB_MACHINE_UNCHECKED counts the remaining hosts of `stored`. */
void dlb_machine_compare_hosts(const struct dlb_cluster *stored, const struct dlb_cluster *here,
			       struct dlb_machine_check *m);
/* Compares peak and bandwidth of kind `kind` of `stored` on each host; nodes' speeds multiply the peak. */
void dlb_machine_compare_speed(const struct dlb_cluster *stored, int kind, const struct dlb_cluster *here,
			       struct dlb_machine_check *m);
#endif
