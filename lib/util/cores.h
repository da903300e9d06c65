/* Cores that this process may run on (its affinity; 1 where that is not told). */
#ifndef DLB_UTIL_CORES_H
#define DLB_UTIL_CORES_H
int dlb_cores(void);
#endif
