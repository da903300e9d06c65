/* Sizes of memory: of this host, of this process's control group, and the limits of setrlimit. */
#ifndef DLB_UTIL_MEMORY_H
#define DLB_UTIL_MEMORY_H

/* Bytes of memory that this process may use: the machine's, or less if the process or its control group has a
 * limit. */
double dlb_memory_bytes(void);
/* Bytes of memory that all processes of this host and control group may use together: the host's memory and
 * swap space, or less if the group or one above it has a limit. */
double dlb_memory_host_bytes(void);
double dlb_memory_process_bytes(void); /* limits of one process (ulimit -v, -d); INFINITY: none */
/* Free bytes of the host or of the control group, whichever are fewer. Caches of files count as free.
 * INFINITY: unknown. */
double dlb_memory_free_bytes(void);

/* A control group's memory: its limit, and the bytes of it that are free; INFINITY: no limit. */
struct dlb_memory_group {
	double limit_bytes, free_bytes;
};
/* Returns the memory of a process's control group, under the limits of all groups above it. groups: text of
 * the process's /proc/PID/cgroup. mounted: the folder of the groups ("/sys/fs/cgroup"), with version 2 in it
 * or in its folder unified, and version 1 in its folder memory. For a group that is not visible there, as in
 * a container, the limits of the visible root hold. */
struct dlb_memory_group dlb_memory_group(const char *groups, const char *mounted);
#endif
