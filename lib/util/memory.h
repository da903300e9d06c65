/* How much memory there is: of this host, of the control group that this process is in, and under the limits
 * of setrlimit. */
#ifndef DLB_UTIL_MEMORY_H
#define DLB_UTIL_MEMORY_H

/* Bytes of memory that this process may use: the machine's, or less if it or its control group has a
 * limit. */
double dlb_memory_bytes(void);
/* Those that the processes of this host and control group may use together: the host's with its swap
 * space, or less if the group or one above it has a limit. */
double dlb_memory_host_bytes(void);
double dlb_memory_process_bytes(void); /* limits of one process (ulimit -v, -d); INFINITY: none */
/* Of those of the host and group, bytes that nobody uses now, and caches of files; INFINITY: not known. */
double dlb_memory_free_bytes(void);

/* A control group's memory: its limit and what is free of it; INFINITY: no limit. */
struct dlb_memory_group {
	double limit_bytes, free_bytes;
};
/* That of the process of which `groups` is the text of /proc/PID/cgroup, with the limits of the groups
 * above it. mounted: where groups are ("/sys/fs/cgroup"), version 2 there or in the folder unified,
 * version 1 in the folder memory. A group that is not to be seen there, as in a container, is the root. */
struct dlb_memory_group dlb_memory_group(const char *groups, const char *mounted);
#endif
